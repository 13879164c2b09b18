// Package s2 compresses to S2 blocks: Snappy's successor, as fast and somewhat smaller, with
// dictionaries.
package s2

import (
	"fmt"
	"github.com/klauspost/compress/s2"

	"github.com/balekv/bale/compress/internal/block"
	"github.com/balekv/bale/frame"
)

// Level trades time to compress for size. Every level is read alike.
type Level uint8

const (
	Default Level = iota // the fastest
	Better               // 10 to 40% slower, somewhat smaller
	Best                 // many times slower
)

// Options are the settings of a Compressor; the zero value is useful.
type Options struct {
	// Level defaults to Default.
	Level Level

	// Dictionary is what values have in common, or nil. The last 64 KiB of it count.
	Dictionary *frame.Dictionary
}

// Compressor makes and reads S2 blocks. It is safe for concurrent use. Blocks are made and
// read without a context; a dictionary's tables are built once.
type Compressor struct {
	encode func(dst, src []byte) []byte
	decode func(dst, src []byte) ([]byte, error)
	id     frame.DictionaryID
}

// New makes a Compressor.
func New(o Options) (*Compressor, error) {
	c := &Compressor{decode: s2.Decode, id: o.Dictionary.ID()}
	encoders := []func(dst, src []byte) []byte{Default: s2.Encode, Better: s2.EncodeBetter, Best: s2.EncodeBest}
	if o.Dictionary != nil {
		d := s2.MakeDictManual(o.Dictionary.Tail(s2.MaxDictSize), 0)
		if d == nil {
			return nil, fmt.Errorf("s2: dictionary %v is not usable: it has %d bytes", c.id, len(o.Dictionary.Bytes()))
		}
		encoders = []func(dst, src []byte) []byte{Default: d.Encode, Better: d.EncodeBetter, Best: d.EncodeBest}
		c.decode = d.Decode
	}
	if int(o.Level) >= len(encoders) {
		return nil, fmt.Errorf("s2: no level %d", o.Level)
	}
	c.encode = encoders[o.Level]
	return c, nil
}

// Algorithm is [frame.S2].
func (*Compressor) Algorithm() frame.Algorithm { return frame.S2 }

// DictionaryID names the dictionary, zero for none.
func (c *Compressor) DictionaryID() frame.DictionaryID { return c.id }

// Compress appends the block of src to dst. It allocates nothing when dst has room for
// s2.MaxEncodedLen(len(src)) more bytes.
func (c *Compressor) Compress(dst, src []byte) ([]byte, error) {
	return block.Append(dst, src, c.encode)
}

// Decompress appends the size bytes that the block src holds to dst.
func (c *Compressor) Decompress(dst, src []byte, size int) ([]byte, error) {
	return block.Decode(dst, src, size, c.decode)
}

// Close does nothing.
func (*Compressor) Close() error { return nil }
