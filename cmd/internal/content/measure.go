package content

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// Entropy is how many bits a byte of the values has, 0 to 8, if each byte is looked at alone and
// all values are taken together: 8 for random or well compressed ones, 4 to 6 for JSON. It is what
// a compressor gets by giving frequent bytes shorter codes; what repeats is not in it, see Common.
//
// Counted in a sample, entropy comes out too low, by about (K-1)/(2 N ln 2) bits for K different
// bytes among N (Miller and Madow, 1955). That is added. It makes up for all of it from about 1,000
// bytes on; of fewer random bytes some are still missing: 64 of them show about 6.4 bits, 256 about
// 7.6.
func Entropy(values [][]byte) float64 {
	var counts [256]int
	n := 0
	for _, v := range values {
		n += len(v)
		for _, c := range v {
			counts[c]++
		}
	}
	if n == 0 {
		return 0
	}
	entropy, different := 0.0, 0
	for _, c := range counts {
		if c > 0 {
			p := float64(c) / float64(n)
			entropy -= p * math.Log2(p)
			different++
		}
	}
	return min(8, max(0, entropy)+float64(different-1)/(2*float64(n)*math.Ln2))
}

const (
	gramSize = 6 // bytes: the shortest that the name of a field of MessagePack often takes, and longer than the matches of chance in text

	// Of each value the first 64 KiB are looked at, and of all together the first 512 KiB on either
	// side: what a table of 8 MiB can take.
	maxGramValue = 64 << 10
	maxGramBytes = 512 << 10
)

// Common is how much values of a group have in common, 0 to 1: the part of the bytes of heldOut
// that is in runs of six bytes or more which training values have, too. That is what a dictionary
// could replace. 0 if either has nothing to look at.
//
// It looks at 512 KiB of either, and at 64 KiB of a value, from the start, and takes up to 8 MiB of
// memory meanwhile. The same values give the same number.
func Common(train, heldOut [][]byte) float64 {
	seen := newGrams(train)
	bytes, common := 0, 0
	for v := range looked(heldOut) {
		bytes += len(v)
		covered := 0 // up to here v is counted
		for i := 0; i+gramSize <= len(v); i++ {
			if seen.has(gram(v[i:])) {
				common += i + gramSize - max(i, covered)
				covered = i + gramSize
			}
		}
	}
	if bytes == 0 {
		return 0
	}
	return float64(common) / float64(bytes)
}

// looked are the parts of values that Common looks at.
func looked(values [][]byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		left := maxGramBytes
		for _, v := range values {
			v = v[:min(len(v), maxGramValue, left)]
			left -= len(v)
			if left <= 0 && len(v) == 0 || !yield(v) {
				return
			}
		}
	}
}

// gram is the six bytes that v starts with as a number, never 0.
func gram(v []byte) uint64 {
	return uint64(binary.LittleEndian.Uint32(v)) | uint64(binary.LittleEndian.Uint16(v[4:]))<<32 | 1<<63
}

// grams is a set of grams: a table with twice as many places as there may be, searched from a
// gram's hash on. A gram is its own eight bytes, so that none is taken for another.
type grams struct {
	table []uint64
	shift int
}

func newGrams(values [][]byte) *grams {
	n := 0
	for v := range looked(values) {
		n += len(v)
	}
	size := bits.Len(uint(max(1, 2*n) - 1)) // rounded up to a power of two
	g := &grams{make([]uint64, 1<<size), 64 - size}
	for v := range looked(values) {
		for i := 0; i+gramSize <= len(v); i++ {
			x := gram(v[i:])
			*g.place(x) = x
		}
	}
	return g
}

// place is where x is, or is to be. The multiplier is 2^64 divided by the golden ratio (Knuth, The
// Art of Computer Programming, 6.4).
func (g *grams) place(x uint64) *uint64 {
	for i := x * 0x9e3779b97f4a7c15 >> g.shift; ; i++ {
		if p := &g.table[i&uint64(len(g.table)-1)]; *p == x || *p == 0 {
			return p
		}
	}
}

func (g *grams) has(x uint64) bool { return *g.place(x) == x }
