package zstd

import (
	"slices"

	"github.com/balekv/bale/internal/bufpool"
)

// The kinds of literals sections.
const (
	rawLiterals = iota
	rleLiterals
	compressedLiterals
	treelessLiterals // compressed with the last table
)

const errLiterals = corrupt("literals do not fit")

// readLiterals reads the section of literals at src[at:], which has at most limit of them. It
// returns them with overshoot bytes after them, their number, and where the section ends. They
// are in src or in the context's memory. RFC 8878, 3.1.1.3.1.
func (c *context) readLiterals(src []byte, at, limit int) (literals []byte, n, end int, err error) {
	if len(src)-at < 2 {
		return nil, 0, 0, errShort
	}
	kind, format := src[at]&3, src[at]>>2&3
	if kind >= compressedLiterals {
		return c.readCompressedLiterals(src, at, limit)
	}
	switch format {
	case 1:
		n = int(src[at])>>4 | int(src[at+1])<<4
		at += 2
	case 3:
		if len(src)-at < 3 {
			return nil, 0, 0, errShort
		}
		n = int(src[at])>>4 | int(src[at+1])<<4 | int(src[at+2])<<12
		at += 3
	default:
		n = int(src[at]) >> 3
		at++
	}
	if n > limit {
		return nil, 0, 0, errLong
	}
	if kind == rleLiterals {
		if at == len(src) {
			return nil, 0, 0, errShort
		}
		literals = c.room(n)
		fill(literals[:n], src[at])
		return literals, n, at + 1, nil
	}
	if n > len(src)-at {
		return nil, 0, 0, errShort
	}
	if end = at + n; end+overshoot <= len(src) {
		return src[at:], n, end, nil
	}
	literals = c.room(n)
	copy(literals, src[at:end])
	return literals, n, end, nil
}

// room returns memory for n literals.
func (c *context) room(n int) []byte {
	if n <= smallLiterals {
		return c.small[:]
	}
	if c.large == nil {
		c.large = bufpool.Get()
	}
	c.large.B = slices.Grow(c.large.B[:0], n+overshoot)
	return c.large.B[:n+overshoot]
}

func (c *context) readCompressedLiterals(src []byte, at, limit int) (literals []byte, n, end int, err error) {
	format := int(src[at] >> 2 & 3)
	size := max(format, 1) + 2 // of this header
	if len(src)-at < size {
		return nil, 0, 0, errShort
	}
	v := little(src[at:], size) >> 4
	width := [...]int{10, 10, 14, 18}[format]
	n = int(v) & (1<<width - 1)
	packed := int(v >> width)
	treeless := src[at]&3 == treelessLiterals
	at += size
	if n > limit {
		return nil, 0, 0, errLong
	}
	if packed > len(src)-at {
		return nil, 0, 0, errShort
	}
	end = at + packed
	if !treeless {
		m, err := c.weights.read(src[at:end])
		if err != nil {
			return nil, 0, 0, err
		}
		at += m
		c.literals = &c.ownLiterals
		c.literals.build(&c.weights)
	}
	if c.literals == nil {
		return nil, 0, 0, corrupt("literals need a table that there is not")
	}
	literals = c.room(n)
	ok := false
	if format == 0 {
		ok = c.literals.decode(literals[:n], src[:end], at)
	} else {
		ok = c.literals.decode4(literals[:n], src[:end], at)
	}
	if !ok {
		return nil, 0, 0, errLiterals
	}
	return literals, n, end, nil
}

// symbols is what the next bits of a stream stand for: one symbol or two.
//
//	bits 0 to 5    how many bits
//	bits 6 to 11   how many symbols
//	bits 12 to 15  how many bits for the first symbol
//	bits 16 to 31  the symbols
//
// The sum of five still has the sums in the lower two fields.
type symbols uint32

func (s symbols) bits() uint   { return uint(s & 63) }
func (s symbols) count() int   { return int(s >> 6 & 3) }
func (s symbols) first() uint  { return uint(s >> 12 & 15) }
func (s symbols) both() uint16 { return uint16(s >> 16) }

// huffman is a table for decoding, by the next maxHuffmanLog bits.
type huffman [1 << maxHuffmanLog]symbols

// build makes the table with one symbol in each entry.
func (h *huffman) build(w *weights) {
	spare := maxHuffmanLog - w.log
	var count, next [maxHuffmanLog + 2]int
	for _, weight := range w.of[:w.symbols] {
		count[weight]++
	}
	at := 0
	for weight := 1; weight <= int(w.log); weight++ {
		next[weight] = at
		at += count[weight] << (weight - 1) << spare
	}
	for symbol, weight := range w.of[:w.symbols] {
		if weight == 0 {
			continue
		}
		n := 1 << (weight - 1) << spare
		bits := symbols(w.log + 1 - weight)
		entry := bits | 1<<6 | bits<<12 | symbols(symbol)<<16
		entries := h[next[weight]:][:n]
		next[weight] += n
		few := min(n, 16)
		for i := range entries[:few] {
			entries[i] = entry
		}
		for ; few < n; few *= 2 { // both are powers of two
			copy(entries[few:], entries[:few])
		}
	}
}

// pair adds a second symbol to entries with enough bits for it.
func (h *huffman) pair() {
	for i, first := range h {
		second := h[i<<first.first()&(len(h)-1)]
		if n := first.first() + second.first(); n <= maxHuffmanLog {
			h[i] = symbols(n) | 2<<6 | symbols(first.first())<<12 | first&(0xff<<16) | second&(0xff<<16)<<8
		}
	}
}

// decode fills dst from the single stream src[from:].
func (h *huffman) decode(dst, src []byte, from int) bool {
	at := endMark(src, from)
	return at >= 0 && h.finish(dst, src, from, at)
}

// ten is how many symbols the next five entries have at most.
const ten = 10

// five decodes the symbols of five entries to dst[i:], which has room for ten. It returns the next
// i, and the next position.
func (h *huffman) five(dst, src []byte, i, at int) (int, int) {
	v := bitsBefore(src, at)
	e := h[v>>(64-maxHuffmanLog)]
	used := e
	store16(dst, i, e.both())
	i += e.count()
	v <<= e.bits()
	e = h[v>>(64-maxHuffmanLog)]
	used += e
	store16(dst, i, e.both())
	i += e.count()
	v <<= e.bits()
	e = h[v>>(64-maxHuffmanLog)]
	used += e
	store16(dst, i, e.both())
	i += e.count()
	v <<= e.bits()
	e = h[v>>(64-maxHuffmanLog)]
	used += e
	store16(dst, i, e.both())
	i += e.count()
	v <<= e.bits()
	e = h[v>>(64-maxHuffmanLog)]
	used += e
	store16(dst, i, e.both())
	i += e.count()
	return i, at - int(used.bits())
}

// finish fills dst, and reports whether the stream between from and at ends with it.
func (h *huffman) finish(dst, src []byte, from, at int) bool {
	i := 0
	for i+ten <= len(dst) && at >= 8*from {
		i, at = h.five(dst, src, i, at)
	}
	return h.rest(dst[i:], src, from, at)
}

// rest decodes the last symbols, and reports whether the stream ends with them.
func (h *huffman) rest(dst, src []byte, from, at int) bool {
	for i := 0; i < len(dst); {
		if at < 8*from {
			return false
		}
		v := bitsBefore(src, at)
		for range 5 {
			e := h[v>>(64-maxHuffmanLog)]
			if i+1 >= len(dst) || e.count() == 1 {
				dst[i] = byte(e.both())
				i++
				v <<= e.first()
				at -= int(e.first())
				if i == len(dst) {
					break
				}
				continue
			}
			store16(dst, i, e.both())
			i += 2
			v <<= e.bits()
			at -= int(e.bits())
			if i == len(dst) {
				break
			}
		}
	}
	return at == 8*from
}

// decode4 fills dst from the four streams of src[from:]. The sizes of the first three are before
// them. The streams take turns: their steps do not wait for each other.
func (h *huffman) decode4(dst, src []byte, from int) bool {
	const table = 3 * 2
	if len(src)-from < table+4 || len(dst) < 6 {
		return false
	}
	each := (len(dst) + 3) / 4
	var streams [4]struct{ i, end, from, at int }
	start := from + table
	for k := range streams {
		end := len(src)
		if k < 3 {
			end = start + int(little(src[from+2*k:], 2))
		}
		if end > len(src) {
			return false
		}
		s := &streams[k]
		s.i, s.end = min(k*each, len(dst)), min((k+1)*each, len(dst))
		s.from, s.at = start, endMark(src[:end], start)
		if s.at < 0 {
			return false
		}
		start = end
	}
	for turns := true; turns; {
		for k := range streams {
			s := &streams[k]
			if turns = s.i+ten <= s.end && s.at >= 8*s.from; !turns {
				break
			}
			s.i, s.at = h.five(dst, src, s.i, s.at)
		}
	}
	for _, s := range streams {
		if !h.finish(dst[s.i:s.end], src, s.from, s.at) {
			return false
		}
	}
	return true
}
