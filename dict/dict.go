// Package dict is the life of compression dictionaries: trained from samples, published, rolled out to a running
// fleet, watched, replaced and collected.
//
// [Train] makes the dictionary that saves most on values it was not trained on, or says why there is none. A
// [Registry] keeps the dictionaries of a fleet in Redis, by groups: sets of keys whose values look alike. A
// [Group] is one of them in a running program; given to a bale.Packer it packs with the group's current dictionary and
// reads with all it ever had:
//
//	registry, err := dict.NewRegistry(store, dict.RegistryOptions{})
//	group, err := registry.Open(ctx, "user:profile", dict.GroupOptions{Auto: &dict.Auto{}})
//	packer, err := bale.NewPacker(bale.PackerOptions{Dictionaries: group})
//
// A dictionary is made of pieces of its samples, and whoever can read the registry can read them:
// [TrainOptions].Exclude keeps the values of fields out of it.
package dict

import (
	"github.com/balekv/bale/frame"
)

// Dictionary is an immutable dictionary, named by its content.
type Dictionary = frame.Dictionary

// New makes a dictionary of a copy of b, in the format of zstd's trainer or any bytes that values have in
// common, the most common last. See [frame.NewDictionary].
func New(b []byte) (*Dictionary, error) { return frame.NewDictionary(b) }
