package compress

import (
	"encoding/binary"
	"math"
	"math/bits"
	"sync"
)

// pierrec/lz4 reads blocks with a dictionary but does not write them, so the encoder is here. It
// follows the reference implementation's fast encoder (LZ4_compress_fast with an attached
// dictionary). It is greedy, with one candidate per hash of four bytes, in the value itself or else
// in the dictionary. The dictionary's table is built once.

const (
	minMatch     = 4
	lastLiterals = 5  // the format: the last five bytes are always literals,
	matchLimit   = 12 // and no match starts within the last twelve

	// hashBits sizes the tables: 16,384 entries cover a full dictionary with 4
	// positions an entry. Larger tables made the corpora no smaller but cost cache.
	hashBits = 14
)

type dictEncoder struct {
	dict  []byte
	table [1 << hashBits]uint16 // hash -> position in dict
	pool  sync.Pool             // of *valueTable
}

// valueTable finds positions of the value being encoded. Positions are stored plus base, and base
// grows past each value, so that the entries of earlier values are out of date without clearing.
type valueTable struct {
	base  uint32
	table [1 << hashBits]uint32
}

func newDictEncoder(dict []byte) *dictEncoder {
	e := &dictEncoder{dict: dict}
	e.pool.New = func() any { return &valueTable{base: 1} }
	for i := 0; i+minMatch <= len(dict); i++ {
		e.table[hash4(binary.LittleEndian.Uint32(dict[i:]))] = uint16(i)
	}
	return e
}

func hash4(v uint32) uint32 { return v * 2654435761 >> (32 - hashBits) }

// encode writes the block of src to dst, which has room for the worst case, and returns its size.
func (e *dictEncoder) encode(dst, src []byte) (int, error) {
	t := e.pool.Get().(*valueTable)
	defer e.pool.Put(t)
	if uint64(t.base)+uint64(len(src)) > math.MaxUint32 {
		*t = valueTable{base: 1}
	}
	out, anchor := 0, 0
	if len(src) > matchLimit {
		limit := len(src) - matchLimit
		misses := 0
		for pos := 0; pos < limit; {
			v := binary.LittleEndian.Uint32(src[pos:])
			h := hash4(v)
			candidate := t.table[h]
			t.table[h] = t.base + uint32(pos)

			offset, length := 0, 0
			if candidate >= t.base {
				if at := int(candidate - t.base); pos-at < lz4Offset && binary.LittleEndian.Uint32(src[at:]) == v {
					offset, length = pos-at, minMatch+e.extend(src, at+minMatch, pos+minMatch)
				}
			}
			if length == 0 {
				at := int(e.table[h])
				if distance := pos + len(e.dict) - at; at+minMatch <= len(e.dict) && distance < lz4Offset && binary.LittleEndian.Uint32(e.dict[at:]) == v {
					offset, length = distance, minMatch+e.extend(src, at+minMatch-len(e.dict), pos+minMatch)
				}
			}
			if length == 0 {
				misses++
				pos += 1 + misses>>6 // faster and faster through what does not compress
				continue
			}
			misses = 0
			out = putSequence(dst, out, src[anchor:pos], offset, length)
			pos += length
			anchor = pos
			if back := pos - 2; back < limit {
				t.table[hash4(binary.LittleEndian.Uint32(src[back:]))] = t.base + uint32(back)
			}
		}
	}
	t.base += uint32(len(src))
	return putLiterals(dst, out, src[anchor:]), nil
}

// extend counts how many bytes at b in src equal those at a. A negative a lies in the dictionary,
// which ends where src begins.
func (e *dictEncoder) extend(src []byte, a, b int) int {
	start, end := b, len(src)-lastLiterals
	if a < 0 {
		d := e.dict[len(e.dict)+a:]
		n := matchLen(d, src[b:end])
		b += n
		if n < len(d) {
			return b - start
		}
		a = 0
	}
	return b + matchLen(src[a:end], src[b:end]) - start
}

// matchLen is the length of the common prefix of a and b.
func matchLen(a, b []byte) int {
	n, m := 0, min(len(a), len(b))
	for ; n+8 <= m; n += 8 {
		if x := binary.LittleEndian.Uint64(a[n:]) ^ binary.LittleEndian.Uint64(b[n:]); x != 0 {
			return n + bits.TrailingZeros64(x)>>3
		}
	}
	for n < m && a[n] == b[n] {
		n++
	}
	return n
}

// putSequence writes literals and a match at out and returns where the next one goes.
func putSequence(dst []byte, out int, literals []byte, offset, length int) int {
	token := out
	out = putLiterals(dst, out, literals)
	binary.LittleEndian.PutUint16(dst[out:], uint16(offset))
	out += 2
	length -= minMatch
	dst[token] |= byte(min(length, 15))
	return putLength(dst, out, length)
}

// putLiterals writes a token without a match, and the literals.
func putLiterals(dst []byte, out int, literals []byte) int {
	dst[out] = byte(min(len(literals), 15)) << 4
	out = putLength(dst, out+1, len(literals))
	return out + copy(dst[out:], literals)
}

// putLength writes the rest of a length of 15 and more that does not fit into the token.
func putLength(dst []byte, out, n int) int {
	if n < 15 {
		return out
	}
	for n -= 15; n >= 255; n -= 255 {
		dst[out] = 255
		out++
	}
	dst[out] = byte(n)
	return out + 1
}
