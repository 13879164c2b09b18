package content

import (
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"
)

// Entropy returns the bits of information in a byte of the values, 0 to 8, over all values together
// and with each byte taken alone. Random or well compressed values have 8, JSON has 4 to 6. It
// shows the gain from shorter codes for frequent bytes. Repeated sequences do not count here, see
// Common.
//
// Entropy counted in a sample is too low, by about (K-1)/(2 N ln 2) bits for K different bytes
// among N (Miller and Madow, 1955). Entropy adds this term. It corrects the whole error from about
// 1,000 bytes on. For fewer random bytes the result stays too low: about 6.4 bits for 64 bytes, and
// 7.6 for 256.
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

	// The first 64 KiB of each value are read, up to 512 KiB on either side: as much as a table of
	// 8 MiB can hold.
	maxGramValue = 64 << 10
	maxGramBytes = 512 << 10
)

// Common returns how much the values of a group have in common, 0 to 1. It is the part of heldOut's
// bytes in runs of at least six bytes that also occur in the training values. A dictionary could
// replace these runs. 0 if either side is empty.
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

// grams is a set of grams: a table with twice as many places as grams, searched from a gram's hash
// on. A gram is its own eight bytes, so two different grams never match.
type grams struct {
	table []uint64
	shift int
	by    uint64 // times a gram is its hash: random, for forged values would have one place for all
}

func newGrams(values [][]byte) *grams {
	n := 0
	for v := range looked(values) {
		n += len(v)
	}
	size := bits.Len(uint(max(1, 2*n) - 1)) // rounded up to a power of two
	g := &grams{make([]uint64, 1<<size), 64 - size, rand.Uint64() | 1}
	for v := range looked(values) {
		for i := 0; i+gramSize <= len(v); i++ {
			x := gram(v[i:])
			*g.place(x) = x
		}
	}
	return g
}

// place returns the slot of x, or the free slot for it. The hash is multiplicative (Knuth, The Art
// of Computer Programming, 6.4).
func (g *grams) place(x uint64) *uint64 {
	for i := x * g.by >> g.shift; ; i++ {
		if p := &g.table[i&uint64(len(g.table)-1)]; *p == x || *p == 0 {
			return p
		}
	}
}

func (g *grams) has(x uint64) bool { return *g.place(x) == x }
