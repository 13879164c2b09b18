//go:build !cgo

package engine

import (
	"github.com/balekv/bale/compress"
)

var libzstd compress.Engine

// Libzstd is the version of "/cgo", which this build lacks.
const Libzstd = ""

func (s Setting) naiveZstd(dict []byte) (compressFunc, decompressFunc) {
	return naiveGoZstd(s.Setting, dict)
}

func (s Setting) streamZstd(c *streams, dict []byte) error {
	c.goZstd(s.Setting, dict)
	return nil
}
