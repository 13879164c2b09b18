// Package dict manages compression dictionaries: it trains them from samples, publishes them, rolls
// them out to a running fleet, watches, replaces and removes them.
//
// [Train] makes the dictionary that saves most on values it was not trained on, or says why there
// is none. A [Registry] keeps the dictionaries of a fleet in Redis, by groups: sets of keys whose
// values look alike. A [Group] follows one of them in a running program. Given to a bale.Packer it
// packs with the group's current dictionary and reads with all it ever had:
//
//	registry, err := dict.NewRegistry(store, dict.RegistryOptions{})
//	group, err := registry.Open(ctx, "user:profile", dict.GroupOptions{Auto: &dict.Auto{}})
//	packer, err := bale.NewPacker(bale.PackerOptions{Dictionaries: group})
//
// A dictionary must outlive the values that need it. So a program writes with one only while it has
// heard of the registry within five grace periods, a tool calls [Registry.Use], and a remover waits
// for six, scans all values, and calls [Registry.Remove], which fails if anything has happened
// since. Removed dictionaries stay in quarantine, where readers still find them.
//
// A dictionary consists of pieces of its samples, and anyone who can read the registry can read
// them: [TrainOptions].Exclude keeps the values of fields out of it.
package dict

import (
	"github.com/balekv/bale/frame"
)

// Dictionary is an immutable dictionary, named by its content.
type Dictionary = frame.Dictionary

// New makes a dictionary of a copy of b, in the format of zstd's trainer or any bytes that values
// have in common, the most common last. See [frame.NewDictionary].
func New(b []byte) (*Dictionary, error) { return frame.NewDictionary(b) }
