package zstd

// huffEncoder is the table that encodes literals: the code of each byte above its length, which is
// zero for a byte without a code.
type huffEncoder struct {
	codes    [256]uint32
	complete bool // every byte has a code
}

const (
	lengthBits = 8
	lengthMask = 1<<lengthBits - 1
)

// prepare makes the table of the weights.
func (h *huffEncoder) prepare(w *weights) {
	*h = huffEncoder{complete: true}
	var count, next [maxHuffmanLog + 2]uint32
	for _, weight := range w.of[:w.symbols] {
		count[weight]++
	}
	code := uint32(0)
	for weight := 1; weight <= int(w.log); weight++ { // from the longest code to the shortest
		next[weight] = code
		code = (code + count[weight]) >> 1
	}
	for s, weight := range w.of {
		if weight == 0 {
			h.complete = false
			continue
		}
		h.codes[s] = next[weight]<<lengthBits | uint32(w.log+1-weight)
		next[weight]++
	}
}

// size is how many bits the literals of a histogram take, or 0 if one has no code.
func (h *huffEncoder) size(histogram *[256]uint32) (bits int) {
	for s, n := range histogram {
		if n > 0 {
			length := h.codes[s] & lengthMask
			if length == 0 {
				return 0
			}
			bits += int(n * length)
		}
	}
	return bits
}

// encode writes a stream of the literals to dst at p, and returns where it ends. That is 0 if it
// would pass limit, or if a literal has no code. It writes up to eight bytes beyond the end.
func (h *huffEncoder) encode(dst []byte, p, limit int, literals []byte) int {
	var acc uint64
	var n uint
	i := len(literals)
	missing := !h.complete
	for ; i&3 != 0; i-- {
		c := h.codes[literals[i-1]]
		if missing && c == 0 {
			return 0
		}
		acc |= uint64(c>>lengthBits) << (n & 63)
		n += uint(c & lengthMask)
	}
	for ; i >= 4; i -= 4 {
		store64(dst, p, acc)
		p += int(n >> 3)
		acc >>= n & 56
		n &= 7
		if p >= limit {
			return 0
		}
		four := load32(literals, i-4)
		c0, c1, c2, c3 := h.codes[four>>24], h.codes[four>>16&255], h.codes[four>>8&255], h.codes[four&255]
		if missing && (c0 == 0 || c1 == 0 || c2 == 0 || c3 == 0) {
			return 0
		}
		high := uint64(c0>>lengthBits) | uint64(c1>>lengthBits)<<(c0&31)
		low := uint64(c2>>lengthBits) | uint64(c3>>lengthBits)<<(c2&31)
		acc |= high << (n & 63)
		n += uint(c0&lengthMask + c1&lengthMask)
		acc |= low << (n & 63)
		n += uint(c2&lengthMask + c3&lengthMask)
	}
	// At most 7 + 4*11 bits, and the end mark.
	acc |= 1 << (n & 63)
	store64(dst, p, acc)
	if p += int(n>>3) + 1; p > limit {
		return 0
	}
	return p
}
