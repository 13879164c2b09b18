package zstd

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sync"

	"github.com/balekv/bale/internal/bufpool"
	"github.com/balekv/bale/internal/claim"
)

// Decoder decodes frames with one dictionary or none. Its tables are immutable: it is safe for
// concurrent use.
type Decoder struct {
	dictionary Dictionary
	literals   *huffman               // nil without tables
	states     [sequenceCodes]*states // nil without tables
}

// NewDecoder prepares the tables of a dictionary, nil for none.
func NewDecoder(d *Dictionary) *Decoder {
	if d == nil {
		return &Decoder{dictionary: Dictionary{offsets: startOffsets}}
	}
	decoder := &Decoder{dictionary: *d}
	if d.tables {
		decoder.literals = new(huffman)
		decoder.literals.build(&d.literals)
		decoder.literals.pair()
		for code := range decoder.states {
			decoder.states[code] = new(states)
			decoder.states[code].build(code, &d.distributions[code])
		}
	}
	return decoder
}

// predefinedStates are the tables of the format.
var predefinedStates = func() (all [sequenceCodes]*states) {
	for code := range all {
		all[code] = new(states)
		all[code].build(code, &codes[code].predefined)
	}
	return all
}()

const (
	// maxBlock is the largest content of a block in bytes.
	maxBlock = 128 << 10

	// smallLiterals is the size in bytes up to which a block's literals have room in the context.
	// More take a buffer of the pool.
	smallLiterals = 8 << 10

	// batch is how many sequences are decoded before they are executed.
	batch = 128

	// overshoot is how many bytes a fast copy may read or write past its end.
	overshoot = 16
)

// context is the memory of one call at a time: the tables that the frame itself describes, and what
// is decoded in two steps.
type context struct {
	d       *Decoder
	offsets [3]uint32

	// The tables in use are those of the dictionary, of the format or of this context.
	literals    *huffman
	states      [sequenceCodes]*states
	ownLiterals huffman
	ownStates   [sequenceCodes]states

	sequences [batch]sequence
	small     [smallLiterals + overshoot]byte
	large     *bufpool.Buffer // nil if not needed

	weights      weights
	distribution distribution
}

var contexts = sync.Pool{New: func() any { return new(context) }}

// Decode appends the size bytes that the frame src holds to dst. The frame has no magic number,
// and nothing follows it. Any other is an error that is [ErrCorrupt]. Decode allocates nothing when
// dst has room for size bytes. Otherwise it trusts a large size only as far as the content grows.
// It writes to no other part of dst, and keeps no reference to dst or src.
func (d *Decoder) Decode(dst, src []byte, size int) ([]byte, error) {
	h, err := readHeader(src)
	if err == nil {
		err = d.check(h, src, size)
	}
	if err != nil {
		return dst, err
	}
	c := contexts.Get().(*context)
	c.d, c.offsets, c.literals, c.states = d, d.dictionary.offsets, d.literals, d.states
	out, err := c.frame(dst, src, size, h)
	if c.large != nil {
		bufpool.Put(c.large)
		c.large = nil
	}
	contexts.Put(c)
	return out, err
}

// The bits of a frame's descriptor.
const (
	idFlag        = 0x03 // the size of the dictionary's id: 0, 1, 2 or 4 bytes
	checksumFlag  = 0x04 // a checksum of 4 bytes follows the last block
	reservedFlag  = 0x08
	singleSegment = 0x20 // no window follows
	sizeShift     = 6    // the size of the content's size: 0 (1 with singleSegment), 2, 4 or 8 bytes
)

// header is the start of a frame. RFC 8878, 3.1.1.1.
type header struct {
	length   int    // where the first block is
	size     uint64 // of the content, if known
	known    bool
	id       uint32
	maxBlock int // the largest block
	checksum bool
}

// little reads n bytes, little endian.
func little(b []byte, n int) uint64 {
	var eight [8]byte
	copy(eight[:], b[:n])
	return binary.LittleEndian.Uint64(eight[:])
}

func readHeader(b []byte) (h header, err error) {
	if len(b) == 0 {
		return h, errShort
	}
	descriptor := b[0]
	single := descriptor&singleSegment != 0
	idSize, sizeSize := int(1<<(descriptor&idFlag)>>1), int(1<<(descriptor>>sizeShift))
	h.known = single || sizeSize > 1
	if sizeSize == 1 && !single {
		sizeSize = 0
	}
	h.length = 1 + idSize + sizeSize
	if !single {
		h.length++
	}
	if len(b) < h.length {
		return h, errShort
	}
	if descriptor&reservedFlag != 0 {
		return h, corrupt("reserved bit of the descriptor is set")
	}
	h.checksum = descriptor&checksumFlag != 0
	b = b[1:]
	window := uint64(0)
	if !single {
		log := 10 + b[0]>>3
		if log > 31 {
			return h, corrupt("window is too large")
		}
		window = 1<<log + 1<<log>>3*uint64(b[0]&7)
		b = b[1:]
	}
	h.id = uint32(little(b, idSize))
	h.size = little(b[idSize:], sizeSize)
	if sizeSize == 2 {
		h.size += 256
	}
	if single {
		window = h.size
	}
	h.maxBlock = int(min(window, maxBlock))
	return h, nil
}

const errShort = corrupt("frame is cut short")

// The kinds of blocks.
const (
	rawBlock = iota
	rleBlock
	compressedBlock
)

// block is the header of a block.
type block struct {
	last bool
	kind int
	size int // in the frame, for rleBlock in the content
}

const blockHeader = 3

func readBlock(b []byte) block {
	v := int(b[0]) | int(b[1])<<8 | int(b[2])<<16
	return block{v&1 != 0, v >> 1 & 3, v >> 3}
}

// check looks at the whole frame before anything is allocated for it. Its blocks must be able to
// hold size bytes.
func (d *Decoder) check(h header, src []byte, size int) error {
	if h.known && h.size != uint64(size) {
		return corrupt("frame has content of another size")
	}
	if h.id != 0 && h.id != d.dictionary.id {
		return corrupt("frame names another dictionary")
	}
	at, most := h.length, 0
	for last := false; !last; {
		if len(src)-at < blockHeader {
			return errShort
		}
		b := readBlock(src[at:])
		last = b.last
		at += blockHeader
		if b.size > h.maxBlock {
			return corrupt("block is too large")
		}
		switch b.kind {
		case rawBlock:
			most += b.size
			at += b.size
		case rleBlock:
			most += b.size
			at++
		case compressedBlock:
			most += h.maxBlock
			at += b.size
		default:
			return corrupt("kind of block is reserved")
		}
	}
	if h.checksum {
		at += 4
	}
	switch {
	case at > len(src):
		return errShort
	case at < len(src):
		return corrupt("bytes follow the frame")
	case size < 0 || size > most:
		return corrupt("frame cannot hold its size")
	}
	return nil
}

// frame decodes a frame that passed check.
func (c *context) frame(dst, src []byte, size int, h header) ([]byte, error) {
	start, room := len(dst), size
	if cap(dst)-start < size {
		room = claim.First(size, len(src))
		dst = slices.Grow(dst, room)
	}
	pos, at := start, h.length
	for last := false; !last; {
		b := readBlock(src[at:])
		last = b.last
		at += blockHeader
		if start+room-pos < min(h.maxBlock, start+size-pos) {
			room = claim.Next(size, room)
			dst = slices.Grow(dst[:pos], start+room-pos)
		}
		out := dst[:start+room]
		switch b.kind {
		case compressedBlock:
			n, err := c.block(out, pos, start, min(pos+h.maxBlock, start+size), src[:at+b.size], at)
			if err != nil {
				return dst[:start], err
			}
			pos = n
			at += b.size
		default:
			if b.size > start+size-pos {
				return dst[:start], errLong
			}
			if b.kind == rawBlock {
				at += copy(out[pos:], src[at:at+b.size])
			} else {
				fill(out[pos:pos+b.size], src[at])
				at++
			}
			pos += b.size
		}
	}
	if pos != start+size {
		return dst[:start], corrupt("frame holds less than its size")
	}
	dst = dst[:pos]
	if h.checksum && binary.LittleEndian.Uint32(src[at:]) != uint32(checksum(dst[start:])) {
		return dst[:start], corrupt("checksum mismatch")
	}
	return dst, nil
}

const errLong = corrupt("block holds more than fits")

func fill(b []byte, value byte) {
	for i := range b {
		b[i] = value
	}
}

// block decodes the compressed block at src[at:] to out[pos:end], and returns where its content
// ends. The frame's content starts at start.
func (c *context) block(out []byte, pos, start, end int, src []byte, at int) (int, error) {
	literals, n, at, err := c.readLiterals(src, at, end-pos)
	if err != nil {
		return 0, err
	}
	count, at, err := c.readSequencesHeader(src, at)
	if err != nil {
		return 0, err
	}
	x := execution{out: out, pos: pos, start: start, end: end, literals: literals, last: n, dictionary: c.d.dictionary.content}
	if count > 0 {
		r := sequenceReader{src: src, start: 8 * at, at: endMark(src, at)}
		if r.at < 0 {
			return 0, errSequences
		}
		r.open(&c.states)
		for count > 0 {
			batch := c.sequences[:min(count, batch)]
			count -= len(batch)
			if !r.read(batch, &c.states, &c.offsets) || !x.run(batch) {
				return 0, errSequences
			}
		}
		if !r.closed() {
			return 0, errSequences
		}
	}
	if n = x.last - x.literal; n > end-x.pos {
		return 0, errLong
	}
	return x.pos + copy(out[x.pos:end], literals[x.literal:x.last]), nil
}

const errSequences = corrupt("sequences do not fit")

// endMark returns the bit position of the end mark of the bits in b[from:], or -1 without one.
func endMark(b []byte, from int) int {
	if len(b) <= from || b[len(b)-1] == 0 {
		return -1
	}
	return 8*(len(b)-1) + bits.Len8(b[len(b)-1]) - 1
}

// bitsBefore returns the bits that precede position at, the last one on top; at least 57 are valid.
// They are read backwards from at, which is at least 64. A stream of bits in a frame follows at
// least 8 other bytes: 2 of the frame's header, 3 of the block's, and 3 of headers in it.
func bitsBefore(b []byte, at int) uint64 {
	return load64(b, (at+7)>>3-8) << (-uint(at) & 7)
}

// top returns the upper n bits of v, n below 64.
func top(v, n uint64) uint64 { return v >> 1 >> (^n & 63) }
