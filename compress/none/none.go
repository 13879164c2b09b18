// Package none is the compressor that does not compress: for writing plain values, and for
// reading content that was stored as it is inside a frame.
package none

import (
	"fmt"

	"github.com/balekv/bale/frame"
)

// Compressor copies. It is safe for concurrent use and holds nothing.
type Compressor struct{}

// New makes a Compressor.
func New() *Compressor { return &Compressor{} }

// Algorithm is [frame.Stored].
func (*Compressor) Algorithm() frame.Algorithm { return frame.Stored }

// DictionaryID is zero: there is nothing a dictionary could do.
func (*Compressor) DictionaryID() frame.DictionaryID { return 0 }

// Compress appends src to dst.
func (*Compressor) Compress(dst, src []byte) ([]byte, error) { return append(dst, src...), nil }

// Decompress appends src, which must be size bytes long, to dst.
func (*Compressor) Decompress(dst, src []byte, size int) ([]byte, error) {
	if len(src) != size {
		return dst, fmt.Errorf("none: %d bytes stored, %d expected", len(src), size)
	}
	return append(dst, src...), nil
}

// Close does nothing.
func (*Compressor) Close() error { return nil }
