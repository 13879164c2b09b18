// Package lz4 compresses to LZ4 blocks: fast to write, faster to read, with dictionaries.
package lz4

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/pierrec/lz4/v4"

	"github.com/balekv/bale/frame"
)

// Level trades time to compress for size. Every level is read alike.
type Level uint8

const (
	Default Level = iota // the fast encoder
	Best                 // the high-compression encoder, level 9
)

// Options are the settings of a Compressor; the zero value is useful.
type Options struct {
	// Level defaults to Default. With a dictionary it is the only one.
	Level Level

	// Dictionary is what values have in common, or nil. The last 64 KiB of it count.
	Dictionary *frame.Dictionary
}

// maxOffset is how far back an LZ4 match can reach, and so the size of a dictionary.
const maxOffset = 64 << 10

// Compressor makes and reads LZ4 blocks. It is safe for concurrent use; match tables are pooled.
type Compressor struct {
	compress func(dst, src []byte) (int, error)
	dict     []byte
	id       frame.DictionaryID
}

// New makes a Compressor.
func New(o Options) (*Compressor, error) {
	if o.Level > Best {
		return nil, fmt.Errorf("lz4: no level %d", o.Level)
	}
	c := &Compressor{id: o.Dictionary.ID(), dict: o.Dictionary.Tail(maxOffset)}
	switch {
	case o.Dictionary != nil && o.Level == Best:
		return nil, errors.New("lz4: level best takes no dictionary; use the default level")
	case o.Dictionary != nil:
		c.compress = newDictEncoder(c.dict).encode
	case o.Level == Best:
		pool := sync.Pool{New: func() any { return &lz4.CompressorHC{Level: lz4.Level9} }}
		c.compress = func(dst, src []byte) (int, error) {
			e := pool.Get().(*lz4.CompressorHC)
			defer pool.Put(e)
			return e.CompressBlock(src, dst)
		}
	default:
		pool := sync.Pool{New: func() any { return new(lz4.Compressor) }}
		c.compress = func(dst, src []byte) (int, error) {
			e := pool.Get().(*lz4.Compressor)
			defer pool.Put(e)
			return e.CompressBlock(src, dst)
		}
	}
	return c, nil
}

// Algorithm is [frame.LZ4].
func (*Compressor) Algorithm() frame.Algorithm { return frame.LZ4 }

// DictionaryID names the dictionary, zero for none.
func (c *Compressor) DictionaryID() frame.DictionaryID { return c.id }

// Compress appends the block of src to dst. It allocates nothing when dst has room for
// lz4.CompressBlockBound(len(src)) more bytes.
func (c *Compressor) Compress(dst, src []byte) ([]byte, error) {
	if len(src) == 0 {
		return append(dst, 0), nil // one token: no literals, no match
	}
	bound := lz4.CompressBlockBound(len(src))
	n := len(dst)
	dst = slices.Grow(dst, bound)
	size, err := c.compress(dst[n:n+bound], src)
	if err != nil {
		return dst, fmt.Errorf("lz4: %w", err)
	}
	return dst[:n+size], nil
}

// maxExpansion is how many bytes one of a block can stand for: a byte of a length counts up to 255.
const maxExpansion = 255

// Decompress appends the size bytes that the block src holds to dst.
func (c *Compressor) Decompress(dst, src []byte, size int) ([]byte, error) {
	if size > maxExpansion*len(src) {
		return dst, fmt.Errorf("lz4: %d bytes cannot hold %d", len(src), size)
	}
	dst = slices.Grow(dst, size)
	n := len(dst)
	if len(src) == 1 && src[0] == 0 && size == 0 {
		return dst, nil
	}
	got, err := lz4.UncompressBlockWithDict(src, dst[n:n+size], c.dict)
	if err != nil {
		return dst, err
	}
	if got != size {
		return dst, fmt.Errorf("lz4: block holds %d bytes, %d expected", got, size)
	}
	return dst[:n+size], nil
}

// Close does nothing: pooled tables are left to the garbage collector.
func (*Compressor) Close() error { return nil }
