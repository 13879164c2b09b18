// Package dict manages compression dictionaries: it trains them from samples, publishes them, rolls
// them out to a running fleet, watches, replaces and removes them.
//
// [Train] makes the dictionary that saves most on held-out values, or returns an error that says
// why there is none. A [Registry] keeps the dictionaries of a fleet in Redis, by groups: sets of
// keys with similar values. A [Group] follows one of them in a running program. A bale.Packer with
// a Group packs with the current dictionary and reads with all dictionaries that the group ever
// had:
//
//	registry, err := dict.NewRegistry(store, dict.RegistryOptions{})
//	group, err := registry.Open(ctx, "user:profile", dict.GroupOptions{Auto: &dict.Auto{}})
//	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: group})
//
// A dictionary must outlive the values that need it. So a program writes with a dictionary only if
// the registry has answered within the last five grace periods. A tool that writes calls
// [Registry.Use]. A remover waits for six grace periods, scans all values, and calls
// [Registry.Remove], which fails if anything has happened since. Removed dictionaries stay in
// quarantine, where readers still find them.
//
// A dictionary consists of pieces of its samples, and anyone who can read the registry can read
// them. [TrainOptions].Exclude keeps the values of fields out of it.
package dict

import (
	"github.com/balekv/bale/frame"
)

// Dictionary is an immutable dictionary, named by its content. [frame.NewDictionary] makes one.
type Dictionary = frame.Dictionary
