package zstd

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
)

// MaxSize is the largest value in bytes that an Encoder takes.
const MaxSize = 128 << 10

// blockSize and maxFound are how much of a value and how many sequences a block holds at most. They
// bound an Encoder's memory.
const (
	blockSize = 16 << 10
	maxFound  = 2048
	minBlock  = minMatch * (maxFound - segment/minMatch) // unless it is the last
)

// found is a sequence: a match and the literals before it.
type found struct {
	literals, match uint16
	offset          uint32 // 1 to 3 for a repeat offset, the offset and 3 otherwise
}

// Encoder is the context of one call at a time. It is not safe for concurrent use.
type Encoder struct {
	digest *Digest
	local  localTables

	// What the finder found in a block. The literals have room for a copy that is too long.
	sequences []found
	literals  []byte

	offsets [3]uint32    // the repeat offsets after the sequences
	before  [3]uint32    // those before them
	tables  tables       // those in force before a block
	chains  *chains      // of the levels Better and Best
	ways    []weighed    // of the level Best
	fresh   *freshTables // room for tables made for a value, nil before the first
}

// tables are what a block can repeat. One that is nil cannot be repeated.
type tables struct {
	literals *huffEncoder
	codes    [sequenceCodes]*fseEncoder
	complete bool // the codes' tables have all symbols
}

// NewEncoder makes a context for a dictionary's digest.
func NewEncoder(d *Digest) *Encoder {
	e := &Encoder{digest: d}
	if d.best != nil {
		e.chains = new(chains)
	}
	return e
}

// bound is how many bytes a frame of n bytes takes at most, and what writes of eight bytes need
// beyond that.
func bound(n int) int {
	return n + 2 + 3*(n/minBlock+1) + 16
}

// Encode appends the frame of src, without magic number, dictionary id and content's size, to dst.
// It allocates nothing if dst has room for len(src)+len(src)/128+32 bytes more. The only error is
// that src is larger than [MaxSize].
func (e *Encoder) Encode(dst, src []byte) ([]byte, error) {
	if len(src) > MaxSize {
		return dst, fmt.Errorf("zstd: value of %d bytes, at most %d can be encoded", len(src), MaxSize)
	}
	start := len(dst)
	dst = slices.Grow(dst, bound(len(src)))
	out := dst[start:cap(dst)]
	// A window that holds the value keeps the whole dictionary in reach.
	window := max(bits.Len(uint(max(len(src), 1)-1)), 10) - 10
	out[0], out[1] = 0, byte(window<<3)
	p := 2
	e.offsets, e.tables = e.digest.offsets, e.digest.tables
	e.open(len(src))
	for from := 0; ; {
		to := e.find(src, from, min(from+blockSize, len(src)))
		last := uint32(0)
		if to == len(src) {
			last = 1
		}
		kind, size, end := e.block(out, p+3, src[from:to])
		header := last | kind<<1 | uint32(size)<<3
		out[p], out[p+1], out[p+2] = byte(header), byte(header>>8), byte(header>>16)
		p = end
		if from = to; last == 1 {
			return dst[:start+p], nil
		}
	}
}

// find fills in the sequences and literals of a block, and returns where it ends.
func (e *Encoder) find(src []byte, from, to int) int {
	n := to - from
	if cap(e.literals) < n+16 {
		e.literals = make([]byte, 0, n+16)
	}
	if n := min(n/minMatch, maxFound) + 1; cap(e.sequences) < n {
		e.sequences = make([]found, 0, n)
	}
	e.sequences, e.literals = e.sequences[:0], e.literals[:0]
	e.before = e.offsets
	return e.digest.find(e, src, from, to)
}

// block writes the content of the block src at p. It returns its kind, the size that its header
// states, and where it ends.
func (e *Encoder) block(out []byte, p int, src []byte) (kind uint32, size, end int) {
	n := len(src)
	tables := e.tables
	limit := p + n // a raw block is as small
	if end = e.writeLiterals(out, p, limit); end > 0 {
		end = e.writeSequences(out, end, limit)
	}
	if end > 0 {
		return compressedBlock, end - p, end
	}
	e.restore(tables)
	if n > 1 && same(src) {
		out[p] = src[0]
		return rleBlock, n, p + 1
	}
	return rawBlock, n, p + copy(out[p:], src)
}

// same reports whether all bytes are equal.
func same(b []byte) bool {
	for _, c := range b[1:] {
		if c != b[0] {
			return false
		}
	}
	return true
}

// writeLiterals writes the section of literals at p, and returns where it ends, or 0 if it would
// pass limit.
func (e *Encoder) writeLiterals(out []byte, p, limit int) int {
	literals := e.literals
	n := len(literals)
	header := 1
	if n >= 1<<5 {
		header++
	}
	if n >= 1<<12 {
		header++
	}
	if n >= minLiterals {
		if end := e.packLiterals(out, p, min(limit, p+header+n), literals); end > 0 {
			return end
		}
	}
	if p+header+n > limit {
		return 0
	}
	stored := n
	kind := rawLiterals
	if n > 1 && header+n > 4 && same(literals) {
		kind, stored = rleLiterals, 1
	}
	switch header {
	case 1:
		out[p] = byte(kind | n<<3)
	case 2:
		binary.LittleEndian.PutUint16(out[p:], uint16(kind|1<<2|n<<4))
	case 3:
		binary.LittleEndian.PutUint32(out[p:], uint32(kind|3<<2|n<<4))
	}
	p += header
	return p + copy(out[p:], literals[:stored])
}

// Fewer literals than these cannot get smaller: a header takes three bytes, and a new table some
// more.
const (
	minLiterals    = 6
	minNewLiterals = 48
)

// packLiterals writes literals with a Huffman table, and returns where they end, or 0 if that is
// not before limit.
func (e *Encoder) packLiterals(out []byte, p, limit int, literals []byte) int {
	if t := e.tables.literals; t != nil && len(literals) < e.digest.manyLiterals {
		if end := writePacked(out, p, limit, literals, t, nil); end > 0 || t.complete {
			return end
		}
	}
	if len(literals) < minNewLiterals {
		return 0
	}
	table, description := e.chooseLiterals(literals)
	if table == nil {
		return 0
	}
	end := writePacked(out, p, limit, literals, table, description)
	if e.tables.literals = nil; end > 0 {
		e.tables.literals = table
	}
	return end
}

// writePacked writes literals with a table, and its description before them unless it is the one
// before.
func writePacked(out []byte, p, limit int, literals []byte, table *huffEncoder, description []byte) int {
	n := len(literals)
	kind := treelessLiterals
	if description != nil {
		kind = compressedLiterals
	}
	// The sizes take 10, 14 or 18 bits each. Four streams are faster to read; a single one of up to
	// 1 KiB spares their jump table.
	width, format := 10, 0
	switch {
	case n >= 1<<14:
		width, format = 18, 3
	case n >= 1<<10:
		width, format = 14, 2
	}
	header := (4 + 2*width + 7) / 8
	start := p + header
	if start+len(description)+6 >= limit {
		return 0
	}
	end := start + copy(out[start:], description)
	if format == 0 {
		end = table.encode(out, end, limit, literals)
	} else {
		jumps := end
		end += 6
		quarter := (n + 3) / 4
		for i := range 4 {
			from := end
			if end = table.encode(out, from, limit, literals[i*quarter:min((i+1)*quarter, n)]); end == 0 {
				return 0
			}
			if i < 3 {
				binary.LittleEndian.PutUint16(out[jumps+2*i:], uint16(end-from))
			}
		}
	}
	if end == 0 || end >= limit {
		return 0
	}
	h := uint64(kind) | uint64(format)<<2 | uint64(n)<<4 | uint64(end-start)<<(4+width)
	for i := range header {
		out[p+i] = byte(h >> (8 * i))
	}
	return end
}

// literalLengthCode and matchLengthCode are the codes of short lengths, offsetCode is that of an
// offset's size.
var (
	literalLengthCodes = lengthCodes(literalBases, 64)
	matchLengthCodes   = lengthCodes(matchBases, 128+minMatch)
)

// lengthCodes are the codes of the lengths below n.
func lengthCodes(bases [maxSymbols]uint32, n int) (codes [256]uint8) {
	code := 0
	for i := int(bases[0]); i < n; i++ {
		for code+1 < maxSymbols && bases[code+1] > 0 && i >= int(bases[code+1]) {
			code++
		}
		codes[i] = uint8(code)
	}
	return codes
}

// literalLength and matchLength return the code of a length.
func literalLength(n uint32) uint32 {
	if n < 64 {
		return uint32(literalLengthCodes[n])
	}
	return uint32(bits.Len32(n)) + 18
}

func matchLength(n uint32) uint32 {
	if n < 128+minMatch {
		return uint32(matchLengthCodes[n])
	}
	return uint32(bits.Len32(n-minMatch)) + 35
}

// writeSequences writes the section of sequences at p, and returns where it ends, or 0 if it does
// not end before limit.
func (e *Encoder) writeSequences(out []byte, p, limit int) int {
	n := len(e.sequences)
	if p+4 >= limit {
		return 0
	}
	switch {
	case n < 128:
		out[p] = byte(n)
		p++
	case n < 0x7F00:
		out[p], out[p+1] = byte(n>>8)+128, byte(n)
		p += 2
	default:
		out[p], out[p+1], out[p+2] = 255, byte(n-0x7F00), byte((n-0x7F00)>>8)
		p += 3
	}
	if n == 0 {
		return p
	}
	modes := p
	kinds, p := e.chooseTables(out, p+1, limit)
	if p == 0 {
		return 0
	}
	out[modes] = kinds[literalCode]<<6 | kinds[offsetCode]<<4 | kinds[matchCode]<<2
	return encodeSequences(out, p, limit, e.sequences, &e.tables.codes)
}

// encodeSequences writes the stream of sequences, from the last to the first.
func encodeSequences(out []byte, p, limit int, sequences []found, tables *[sequenceCodes]*fseEncoder) int {
	literal, offset, match := tables[literalCode], tables[offsetCode], tables[matchCode]
	var acc uint64
	var n uint
	var ls, os, ms uint32
	for i := len(sequences) - 1; i >= 0; i-- {
		s := sequences[i]
		lc, mc := literalLength(uint32(s.literals)), matchLength(uint32(s.match))
		oc := offsetSize(s.offset) & 31
		lc, mc = lc&63, mc&63
		if i == len(sequences)-1 {
			ls, os, ms = literal.start(lc), offset.start(oc), match.start(mc)
		} else {
			t := &offset.symbols[oc]
			k := (os + t.bits) >> 16
			acc |= uint64(os&(1<<(k&31)-1)) << (n & 63)
			n += uint(k)
			os = uint32(offset.states[uint32(int32(os>>(k&31))+t.state)&511])
			t = &match.symbols[mc]
			k = (ms + t.bits) >> 16
			acc |= uint64(ms&(1<<(k&31)-1)) << (n & 63)
			n += uint(k)
			ms = uint32(match.states[uint32(int32(ms>>(k&31))+t.state)&511])
			t = &literal.symbols[lc]
			k = (ls + t.bits) >> 16
			acc |= uint64(ls&(1<<(k&31)-1)) << (n & 63)
			n += uint(k)
			ls = uint32(literal.states[uint32(int32(ls>>(k&31))+t.state)&511])
		}
		lb, mb := uint(literalBits[lc]), uint(matchBits[mc])
		if lb+mb+uint(oc) > 30 { // more than 56 bits with the states'
			store64(out, p, acc)
			p += int(n >> 3)
			acc >>= n & 56
			n &= 7
		}
		acc |= uint64(uint32(s.literals)-literalBases[lc]) << (n & 63)
		n += lb
		acc |= uint64(uint32(s.match)-matchBases[mc]) << (n & 63)
		n += mb
		acc |= uint64(s.offset-1<<oc) << (n & 63)
		n += uint(oc)
		store64(out, p, acc)
		p += int(n >> 3)
		acc >>= n & 56
		n &= 7
		if p >= limit {
			return 0
		}
	}
	acc |= uint64(ms&(1<<(match.log&31)-1)) << (n & 63)
	n += uint(match.log)
	acc |= uint64(os&(1<<(offset.log&31)-1)) << (n & 63)
	n += uint(offset.log)
	acc |= uint64(ls&(1<<(literal.log&31)-1)) << (n & 63)
	n += uint(literal.log)
	acc |= 1 << (n & 63)
	store64(out, p, acc)
	if p += int(n>>3) + 1; p >= limit {
		return 0
	}
	return p
}

// offsetSize is the code of an offset: how many extra bits it has.
func offsetSize(offset uint32) uint32 { return uint32(bits.Len32(offset)) - 1 }
