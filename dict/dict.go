// Package dict trains compression dictionaries ([Train]), keeps those of a fleet in Redis
// ([Registry]) and follows one in a running program ([Group]).
package dict

import (
	"github.com/balekv/bale/frame"
)

// Dictionary is an immutable dictionary, named by its content. [frame.NewDictionary] makes one.
type Dictionary = frame.Dictionary
