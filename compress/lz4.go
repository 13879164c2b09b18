package compress

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/pierrec/lz4/v4"

	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/claim"
)

// lz4Offset is how far back an LZ4 match can reach, and so the size of a dictionary.
const lz4Offset = 64 << 10

// lz4Blocks makes and reads LZ4 blocks. Match tables are pooled.
type lz4Blocks struct {
	compress func(dst, src []byte) (int, error)
	dict     []byte
	id       frame.DictionaryID
}

// newLZ4 makes a compressor with the fast encoder, or with best the high-compression one (level 9),
// which takes no dictionary. The last 64 KiB of a dictionary count.
func newLZ4(best bool, dictionary *frame.Dictionary) Compressor {
	c := &lz4Blocks{id: dictionary.ID(), dict: dictionary.Tail(lz4Offset)}
	switch {
	case dictionary != nil:
		c.compress = newDictEncoder(c.dict).encode
	case best:
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
	return c
}

func (*lz4Blocks) Algorithm() frame.Algorithm         { return frame.LZ4 }
func (c *lz4Blocks) DictionaryID() frame.DictionaryID { return c.id }

// Compress appends the block of src to dst. It allocates nothing when dst has room for
// lz4.CompressBlockBound(len(src)) more bytes.
func (c *lz4Blocks) Compress(dst, src []byte) ([]byte, error) {
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

// lz4Expansion is how many bytes one byte of a block can decode to: a length byte counts up to 255.
const lz4Expansion = 255

// Decompress appends the size bytes that the block src holds to dst.
func (c *lz4Blocks) Decompress(dst, src []byte, size int) ([]byte, error) {
	if int64(size) > lz4Expansion*int64(len(src)) { // an int of 32 bits holds 2 GiB
		return dst, fmt.Errorf("lz4: %d bytes cannot hold %d", len(src), size)
	}
	if cap(dst)-len(dst) < size && claim.First(size, len(src)) < size && !holdsLZ4(src, size, len(c.dict)) {
		return dst, fmt.Errorf("lz4: block of %d bytes does not hold %d", len(src), size)
	}
	if size == 0 { // the library writes to no address then
		if len(src) != 1 || src[0] != 0 {
			return dst, fmt.Errorf("lz4: block of %d bytes holds more than none", len(src))
		}
		return dst, nil
	}
	dst = slices.Grow(dst, size)
	n := len(dst)
	got, err := lz4.UncompressBlockWithDict(src, dst[n:n+size], c.dict)
	if err != nil {
		return dst, err
	}
	if got != size {
		return dst, fmt.Errorf("lz4: block holds %d bytes, %d expected", got, size)
	}
	return dst[:n+size], nil
}

// holdsLZ4 reports whether a block decodes to size bytes with a dictionary of dict bytes. The
// layout is that of lz4_Block_format.md.
func holdsLZ4(b []byte, size, dict int) bool {
	total := 0
	length := func(n int) int { // goes on in further bytes if it is 15
		for more := n == 15; more; {
			if len(b) == 0 || n > size {
				return size + 1
			}
			n, more, b = n+int(b[0]), b[0] == 255, b[1:]
		}
		return n
	}
	for len(b) > 0 {
		token := int(b[0])
		b = b[1:]
		literals := length(token >> 4)
		if literals > len(b) || literals > size-total {
			return false
		}
		b = b[literals:]
		total += literals
		if len(b) == 0 && token&15 == 0 {
			break
		}
		if len(b) < 2 {
			return false
		}
		offset := int(binary.LittleEndian.Uint16(b))
		b = b[2:]
		match := minMatch + length(token&15)
		if offset == 0 || offset > total+dict || match > size-total {
			return false
		}
		total += match
	}
	return total == size
}

// Close does nothing: pooled tables are left to the garbage collector.
func (*lz4Blocks) Close() error { return nil }
