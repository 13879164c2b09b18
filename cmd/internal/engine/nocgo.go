//go:build !cgo

package engine

import (
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
)

// Default is the engine for everything: pure Go.
var Default compress.Engine

// Name is the zstd library in use.
var Name = "klauspost/compress (pure Go)"

// Builders are all that can make dictionaries.
func Builders() []dict.Builder { return dict.Builders() }

// Lacking says what a build with cgo would have in addition.
const Lacking = "This bale was built without cgo: libzstd's compressor and its builders were not tried. They make values smaller and write them several times " +
	"faster; docs/figures.md says by how much on the project's corpora."

func (s Setting) naiveZstd(dict []byte) (compressFunc, decompressFunc) {
	return naiveGoZstd(s.Setting, dict)
}

func (s Setting) streamZstd(c *streams, dict []byte) error {
	c.goZstd(s.Setting, dict)
	return nil
}
