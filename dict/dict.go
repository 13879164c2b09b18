// Package dict trains compression dictionaries ([Train]) and keeps them in Redis ([Registry]).
// [Registry.Open] follows those for similar values in a program ([Group]).
package dict

import (
	"github.com/balekv/bale/frame"
)

// Dictionary is an immutable dictionary, named by its content. [frame.NewDictionary] makes one.
type Dictionary = frame.Dictionary
