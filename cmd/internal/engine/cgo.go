//go:build cgo

package engine

import (
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/extra/czstd"
)

// Default is the engine for everything that does not ask for pure Go.
var Default compress.Engine = czstd.Engine

// Name is the zstd library in use.
var Name = "libzstd " + czstd.Version()

// Builders are all that can make dictionaries.
func Builders() []dict.Builder { return append(czstd.Builders(), dict.Builders()...) }

// Lacking says what a build with cgo would have in addition, if anything.
const Lacking = ""
