// Package zstd compresses to Zstandard frames in pure Go. It gives the smallest values, above all
// with a trained dictionary. See [Level] for the cost of each level.
//
// With a dictionary, bale's own encoder packs values of up to 16 KiB, and its own decoder reads all
// values. klauspost/compress does the rest.
package zstd

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"

	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/bufpool"
	"github.com/balekv/bale/internal/claim"
	own "github.com/balekv/bale/internal/zstd"
)

// Level trades time to compress for size. All levels decode alike.
type Level uint8

// The figures are from BenchmarkLevels on the three corpora of the project's design (values of 0.8
// to 4.7 KB). They compare with Default, without a dictionary and with one of up to 16 KiB. Memory
// is for one caller.
const (
	// Default is like libzstd's level 3. It takes 1.4 MB, with a dictionary 0.2 to 0.4 MB.
	Default Level = iota

	// Fastest is like libzstd's level 1. Values are 2% larger, with a dictionary 9 to 13% larger.
	// It takes about as long, with a dictionary up to a fifth less. It takes 0.4 MB.
	Fastest

	// Better is like libzstd's level 9. Values are up to 7% smaller, and take 1.2 to 1.9 times as
	// long. With a dictionary they are 3 to 7% smaller, and take 6 to 8 times as long. It takes
	// 4.6 MB, with a dictionary 0.4 to 1.1 MB.
	Better

	// Best is like libzstd's level 19. Values are 2 to 8% smaller, and take 2.5 to 8 times as long.
	// With a dictionary they are 6 to 15% smaller, and take 20 to 60 times as long. It takes 36 MB,
	// with a dictionary 0.7 MB. Use it for values written once and read for a long time.
	Best
)

// levels are those of klauspost/compress and of our own encoder.
var levels = [...]struct {
	library zstd.EncoderLevel
	own     own.Level
}{
	Default: {zstd.SpeedDefault, own.Default},
	Fastest: {zstd.SpeedFastest, own.Fast},
	Better:  {zstd.SpeedBetterCompression, own.Better},
	Best:    {zstd.SpeedBestCompression, own.Best},
}

// NearestLevel is the level that comes closest to one of libzstd's numbers, 1 to 22: Default from
// 3, Better from 6, Best from 10.
func NearestLevel(n int) Level {
	of := zstd.EncoderLevelFromZstd(n)
	for l := range levels {
		if levels[l].library == of {
			return Level(l)
		}
	}
	return Default
}

// Options are the settings of a Compressor; the zero value is useful.
type Options struct {
	// Level defaults to Default.
	Level Level

	// Dictionary holds the common parts of values, or is nil. It is one made by zstd's trainer, or
	// plain content.
	Dictionary *frame.Dictionary

	// Concurrency is how many values are compressed, and how many decompressed, at a time; further
	// callers wait. Each holds the memory of its level. Default GOMAXPROCS, for Best at most 4.
	// With a dictionary there is no limit for decompressing (32 KB for each call, beside its
	// value), nor for compressing values of up to 16 KiB (at most 160 KB for each).
	Concurrency int
}

const (
	// ownValue is the largest value in bytes that our own encoder takes, with a dictionary. Up to
	// there it is faster than the library, and smaller but for up to 5% on some. It looks for few
	// matches within the value: at 32 KiB it takes 1 to 14% more bytes at the default level, at 128
	// KiB 4 to 42%. Without a dictionary it takes up to 4% more. See BenchmarkLargerValues in czstd.
	ownValue = 16 << 10

	// smallValue is the largest size in bytes for a single block with a window just large enough
	// for the value and the dictionary. The ratio is the same, and with a dictionary a context
	// holds a sixth to nine tenths of the memory. Larger values have their own contexts, made on
	// first use, with the level's full window.
	smallValue = 64 << 10

	// embeddedID replaces the id inside a trained dictionary. A frame names its dictionary in
	// bale's header, so the id in the payload is left out: 4 bytes less per value. The library
	// needs some id; the smallest is the cheapest to insert and remove.
	embeddedID = 1
)

var (
	magic     = []byte{0x28, 0xB5, 0x2F, 0xFD}
	dictMagic = []byte{0x37, 0xA4, 0x30, 0xEC}

	errClosed = fmt.Errorf("zstd: compressor is closed: %w", os.ErrClosed)
	errShort  = errors.New("zstd: payload is cut short")
)

// Compressor makes and reads Zstandard frames without magic number and dictionary id. It is safe
// for concurrent use. Contexts are shared by all callers; no goroutine is started.
type Compressor struct {
	id       frame.DictionaryID
	decoder  *own.Decoder             // with the dictionary, if there is one
	contexts atomic.Pointer[contexts] // nil once closed
}

// contexts are made on first use.
type contexts struct {
	encoders     *sync.Pool // of *own.Encoder, for most values with a dictionary; nil without one
	small, large func() (*zstd.Encoder, error)
	decoder      func() (*zstd.Decoder, error)
}

// New makes a Compressor, or returns an error for a Level or Concurrency out of range, and for a
// damaged dictionary of zstd's trainer. Contexts are made when first used.
func New(o Options) (*Compressor, error) {
	if int(o.Level) >= len(levels) {
		return nil, fmt.Errorf("zstd: no level %d", o.Level)
	}
	if o.Concurrency < 0 {
		return nil, fmt.Errorf("zstd: concurrency %d is negative", o.Concurrency)
	}
	if o.Concurrency == 0 {
		o.Concurrency = runtime.GOMAXPROCS(0)
		if o.Level == Best {
			o.Concurrency = min(o.Concurrency, 4)
		}
	}
	c := &Compressor{id: o.Dictionary.ID(), decoder: own.NewDecoder(nil)}
	encoder := []zstd.EOption{
		zstd.WithEncoderConcurrency(o.Concurrency),
		zstd.WithEncoderCRC(false), // bale's frame has a checksum
		zstd.WithEncoderLevel(levels[o.Level].library),
		// Literal coding without a match makes values up to half a percent smaller at no measurable
		// cost.
		zstd.WithAllLitEntropyCompression(true),
		zstd.WithLowerEncoderMem(true),
	}
	decoder := []zstd.DOption{
		zstd.WithDecoderConcurrency(o.Concurrency),
		zstd.WithDecodeAllCapLimit(true), // the frame's length bounds what is decoded
	}
	var encoders *sync.Pool
	if o.Dictionary != nil {
		b := o.Dictionary.Bytes()
		trained := bytes.HasPrefix(b, dictMagic)
		if trained && len(b) < 8 {
			return nil, fmt.Errorf("zstd: dictionary %v is cut short", c.id)
		}
		d, err := own.NewDictionary(b)
		if err != nil {
			return nil, fmt.Errorf("zstd: dictionary %v is not usable: %w", c.id, err)
		}
		c.decoder = own.NewDecoder(d)
		digest := sync.OnceValue(func() *own.Digest { return own.NewDigest(d, levels[o.Level].own) })
		encoders = &sync.Pool{New: func() any { return own.NewEncoder(digest()) }}
		if trained {
			b = slices.Clone(b)
			copy(b[4:8], []byte{embeddedID, 0, 0, 0})
			if err := checkDictionary(b); err != nil {
				return nil, fmt.Errorf("zstd: dictionary %v is not usable: %w", c.id, err)
			}
			encoder = append(encoder, zstd.WithEncoderDict(b))
		} else {
			encoder = append(encoder, zstd.WithEncoderDictRaw(0, b))
		}
	}
	window := 1 << bits.Len(uint(smallValue+len(o.Dictionary.Bytes())-1))
	c.contexts.Store(&contexts{
		encoders: encoders,
		small: sync.OnceValues(func() (*zstd.Encoder, error) {
			return zstd.NewWriter(nil, append(slices.Clip(encoder), zstd.WithWindowSize(window), zstd.WithSingleSegment(true))...)
		}),
		large:   sync.OnceValues(func() (*zstd.Encoder, error) { return zstd.NewWriter(nil, encoder...) }),
		decoder: sync.OnceValues(func() (*zstd.Decoder, error) { return zstd.NewReader(nil, decoder...) }),
	})
	return c, nil
}

// checkDictionary reads a trained dictionary as the library will, so that New fails and not the
// first value. A damaged one must not panic either.
func checkDictionary(b []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it cannot be read: %v", p)
		}
	}()
	_, err = zstd.InspectDictionary(b)
	return err
}

// Algorithm is [frame.Zstd].
func (*Compressor) Algorithm() frame.Algorithm { return frame.Zstd }

// DictionaryID names the dictionary, zero for none.
func (c *Compressor) DictionaryID() frame.DictionaryID { return c.id }

// Compress appends the frame of src, without its magic number and dictionary id, to dst. It
// allocates nothing when dst has room for len(src)+len(src)/128+32 more bytes.
func (c *Compressor) Compress(dst, src []byte) ([]byte, error) {
	contexts := c.contexts.Load()
	if contexts == nil {
		return dst, errClosed
	}
	if contexts.encoders != nil && len(src) <= ownValue {
		e := contexts.encoders.Get().(*own.Encoder)
		defer contexts.encoders.Put(e)
		return e.Encode(dst, src)
	}
	encoder := contexts.small
	if len(src) > smallValue {
		encoder = contexts.large
	}
	e, err := encoder()
	if err != nil {
		return dst, err
	}
	n := len(dst)
	dst = e.EncodeAll(src, dst)
	// The library wrote magic, descriptor, rest. Keep descriptor and rest without the id.
	head, skip := withoutID(dst[n+len(magic):])
	if skip == 0 {
		return dst, errors.New("zstd: encoder wrote no frame")
	}
	copy(dst[n:], head.bytes[:head.n])
	size := copy(dst[n+head.n:], dst[n+len(magic)+skip:])
	return dst[:n+head.n+size], nil
}

// Decompress appends the size bytes that the frame src holds to dst.
func (c *Compressor) Decompress(dst, src []byte, size int) ([]byte, error) {
	contexts := c.contexts.Load()
	if contexts == nil {
		return dst, errClosed
	}
	// Without a dictionary the library is faster, but it needs a copy of src that starts with the
	// magic number.
	if contexts.encoders != nil || len(src) > bufpool.MaxCap {
		return c.decoder.Decode(dst, src, size)
	}
	d, err := contexts.decoder()
	if err != nil {
		return dst, err
	}
	if err := check(src, size); err != nil {
		return dst, err
	}
	n, room := len(dst), size
	if cap(dst)-n < size {
		room = claim.First(size, len(src))
	}
	buf := bufpool.Get()
	defer bufpool.Put(buf)
	buf.B = append(buf.B, magic...)
	if room == size && src[0]&idFlag == 0 {
		buf.B = append(buf.B, src...) // as it is, but for the magic number
	} else {
		head, skip := withoutID(src)
		if skip > 0 && room < size {
			head, skip = withoutSize(head, src, skip, size)
		}
		if skip == 0 {
			return dst, errShort
		}
		buf.B = append(buf.B, head.bytes[:head.n]...)
		buf.B = append(buf.B, src[skip:]...)
	}
	for {
		dst = slices.Grow(dst, room)
		out, err := d.DecodeAll(buf.B, dst[n:n:n+room])
		if err != nil && room < size && len(out) > room-maxBlock { // the next block has no room
			room = claim.Next(size, room)
			continue
		}
		if err != nil {
			return dst, err
		}
		if len(out) != size {
			return dst, fmt.Errorf("zstd: payload holds %d bytes, %d expected", len(out), size)
		}
		return dst[:n+size], nil
	}
}

// Close frees the contexts. It may be called while the Compressor is in use, and more than once:
// calls in progress finish, later ones return an error that is [os.ErrClosed].
func (c *Compressor) Close() error {
	c.contexts.Store(nil)
	return nil
}

// The bits of a frame's descriptor.
const (
	idFlag        = 0x03 // the size of the dictionary id: 0, 1, 2 or 4 bytes
	checksumFlag  = 0x04 // a checksum of 4 bytes follows the last block
	singleSegment = 0x20 // no window follows
	sizeShift     = 6    // the size of the content's size: 0 (1 with singleSegment), 2, 4 or 8 bytes
)

// The kinds of blocks. A block with a header of three bytes and one more byte can decode to
// maxBlock bytes, and so can a short compressed one.
const (
	rawBlock = iota
	rleBlock
	compressedBlock
	maxBlock = 128 << 10
)

// check reads a frame (after the magic number) block by block, before any allocation for it. The
// blocks must be able to hold size bytes. Nothing may follow them, because the library would look
// for further frames there. The layout is that of RFC 8878, 3.1.1.
func check(b []byte, size int) error {
	if len(b) == 0 {
		return errShort
	}
	descriptor := b[0]
	at := 1 + [...]int{0, 1, 2, 4}[descriptor&idFlag] + [...]int{0, 2, 4, 8}[descriptor>>sizeShift]
	if descriptor&singleSegment == 0 || descriptor>>sizeShift == 0 {
		at++ // the window, or a size of one byte
	}
	most := 0
	for last := false; !last; {
		if at+3 > len(b) {
			return errShort
		}
		block := int(b[at]) | int(b[at+1])<<8 | int(b[at+2])<<16
		last = block&1 != 0
		n := block >> 3
		at += 3
		switch block >> 1 & 3 {
		case rawBlock:
			most += n
			at += n
		case rleBlock:
			most += min(n, maxBlock)
			at++
		case compressedBlock:
			most += maxBlock
			at += n
		default:
			return errors.New("zstd: a block is of no kind that there is")
		}
	}
	if descriptor&checksumFlag != 0 {
		at += 4
	}
	switch {
	case at > len(b):
		return errShort
	case at < len(b):
		return fmt.Errorf("zstd: %d bytes after the end", len(b)-at)
	case size > most:
		return fmt.Errorf("zstd: %d bytes cannot hold %d", len(b), size)
	}
	return nil
}

// header is the start of a Zstandard frame without a dictionary id: descriptor, window.
type header struct {
	bytes [2]byte
	n     int
}

// withoutID takes the start of a frame (after the magic number) and returns it without the
// dictionary id. It also returns how many bytes of the frame that replaces, 0 for a frame that is
// cut short. The layout is that of RFC 8878, 3.1.1.1.
func withoutID(b []byte) (h header, skip int) {
	if len(b) == 0 {
		return h, 0
	}
	descriptor := b[0]
	skip = 1
	h.bytes[0] = descriptor &^ idFlag
	h.n = 1
	if descriptor&singleSegment == 0 {
		if len(b) < 2 {
			return h, 0
		}
		h.bytes[1] = b[1]
		h.n, skip = 2, 2
	}
	skip += [...]int{0, 1, 2, 4}[descriptor&idFlag]
	if skip > len(b) {
		return h, 0
	}
	return h, skip
}

// withoutSize removes the content's size from the result of withoutID. The library then decodes as
// far as there is room. A single segment gets a window of at least size bytes.
func withoutSize(h header, b []byte, skip, size int) (header, int) {
	descriptor := h.bytes[0]
	skip += [...]int{0, 2, 4, 8}[descriptor>>sizeShift]
	h.bytes[0] &= 1<<sizeShift - 1
	if descriptor&singleSegment != 0 {
		if descriptor>>sizeShift == 0 {
			skip++
		}
		h.bytes[0] &^= singleSegment
		h.bytes[1] = byte(max(bits.Len(uint(size-1))-10, 0)) << 3
		h.n++
	}
	if skip > len(b) {
		return h, 0
	}
	return h, skip
}
