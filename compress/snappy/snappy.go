// Package snappy compresses to Snappy blocks: very fast, for values that repeat themselves.
// It knows no dictionary; s2 is the same family with one.
package snappy

import (
	"github.com/klauspost/compress/s2"

	"github.com/balekv/bale/compress/internal/block"
	"github.com/balekv/bale/frame"
)

// Compressor makes and reads Snappy blocks. It is safe for concurrent use and holds nothing.
type Compressor struct{}

// New makes a Compressor.
func New() *Compressor { return &Compressor{} }

// Algorithm is [frame.Snappy].
func (*Compressor) Algorithm() frame.Algorithm { return frame.Snappy }

// DictionaryID is zero: Snappy has no dictionaries.
func (*Compressor) DictionaryID() frame.DictionaryID { return 0 }

// Compress appends the block of src to dst. It allocates nothing when dst has room for
// s2.MaxEncodedLen(len(src)) more bytes.
func (*Compressor) Compress(dst, src []byte) ([]byte, error) {
	return block.Append(dst, src, s2.EncodeSnappy)
}

// Decompress appends the size bytes that the block src holds to dst.
func (*Compressor) Decompress(dst, src []byte, size int) ([]byte, error) {
	// The Snappy format is a subset of S2's, so this decoder reads both.
	return block.Decode(dst, src, size, s2.Decode)
}

// Close does nothing.
func (*Compressor) Close() error { return nil }
