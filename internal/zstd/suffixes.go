package zstd

import (
	"bytes"
	"cmp"
	"math/bits"
	"math/rand/v2"
	"slices"
)

// suffixes finds the longest match in a dictionary's content, and for each length the nearest one.
type suffixes struct {
	content []byte
	sorted  packed // positions by the string there

	// nearer has for each position the last one that the longest common strings lead to, above their
	// length. The next step from there is shorter.
	nearer packed

	// ranges has the part of sorted with the same first bytes, by their hash. A range with another
	// prefix takes the next free place.
	ranges []prefixRange
	shift  uint8
	by     uint64 // times a prefix is its hash: random, for forged content would have one place for all
}

type prefixRange struct {
	prefix   uint32 // the first minMatch bytes
	from, to uint32 // empty if they are equal
}

// depth is how far strings are compared, which takes depthBits.
const (
	depthBits = 9
	depth     = 1<<depthBits - 1
)

// packed are numbers of width bits each: a program holds some for each byte of its dictionaries.
type packed struct {
	bytes []byte
	width uint
}

func newPacked(n, width int) packed {
	return packed{make([]byte, n*width/8+8), uint(width)}
}

func (p *packed) at(i int) uint64 {
	bit := uint(i) * p.width
	return load64(p.bytes, int(bit>>3)) >> (bit & 7) & (1<<(p.width&63) - 1)
}

// put sets a number that is still zero.
func (p *packed) put(i int, v uint64) {
	bit := uint(i) * p.width
	store64(p.bytes, int(bit>>3), load64(p.bytes, int(bit>>3))|v<<(bit&7))
}

// shorter returns the last position that shares most with the one at position, and how much.
func (s *suffixes) shorter(position int) (at, length int) {
	v := s.nearer.at(position)
	return int(v >> depthBits), int(v & depth)
}

func newSuffixes(content []byte) *suffixes {
	s := &suffixes{content: content}
	n := max(len(content)-7, 0)
	sorted := make([]uint32, n)
	keys := make([]struct {
		start    uint64
		position uint32
	}, n)
	for i := range keys {
		keys[i].start, keys[i].position = bits.ReverseBytes64(load64(content, i)), uint32(i)
	}
	rest := func(i uint32) []byte { return content[i+8 : min(int(i)+depth, len(content))] }
	slices.SortFunc(keys, func(a, b struct {
		start    uint64
		position uint32
	}) int {
		if a.start != b.start {
			return cmp.Compare(a.start, b.start)
		}
		return bytes.Compare(rest(a.position), rest(b.position))
	})
	width := bits.Len(uint(len(content)))
	s.sorted = newPacked(n, width)
	for i, key := range keys {
		sorted[i] = key.position
		s.sorted.put(i, uint64(key.position))
	}
	s.nearer = newPacked(len(content), width+depthBits)
	for i, c := range link(content, sorted) {
		s.nearer.put(i, uint64(c.position)<<depthBits|uint64(c.length))
	}
	prefixAt := func(i int) uint32 { return load32(content, int(sorted[i])) << 8 }
	prefixes := 0
	for i := range n {
		if i == 0 || prefixAt(i) != prefixAt(i-1) {
			prefixes++
		}
	}
	log := max(bits.Len(uint(prefixes+prefixes/2)), 4) // a third of the places stay free: a search ends at one
	s.ranges = make([]prefixRange, 1<<log)
	s.shift, s.by = uint8(64-log), rand.Uint64()|1
	for from := 0; from < n; {
		prefix := prefixAt(from)
		to := from + 1
		for to < n && prefixAt(to) == prefix {
			to++
		}
		*s.find(prefix) = prefixRange{prefix, uint32(from), uint32(to)}
		from = to
	}
	return s
}

// find returns the place of a prefix.
func (s *suffixes) find(prefix uint32) *prefixRange {
	for h := uint64(prefix) * s.by >> (s.shift & 63); ; h++ {
		r := &s.ranges[h&uint64(len(s.ranges)-1)]
		if r.from == r.to || r.prefix == prefix {
			return r
		}
	}
}

type common struct {
	position uint32
	length   uint16
}

// link returns for each position the last one with the longest common strings. It takes positions
// out of the sorted list, the first one first: what then stands beside a position is later, and has
// the longest common strings with it.
func link(content []byte, sorted []uint32) []common {
	n := len(sorted)
	nearer := make([]common, len(content))
	rank := make([]int32, n+1)
	before, after, length := make([]int32, n+1), make([]int32, n+1), make([]uint16, n+1) // length with the one before
	for i, position := range sorted {
		rank[position] = int32(i)
		before[i], after[i] = int32(i-1), int32(i+1)
		if i > 0 {
			p := int(sorted[i-1])
			length[i] = uint16(ahead(content, p, content, int(position), min(len(content)-max(p, int(position)), depth)))
		}
	}
	for position := range n {
		i := rank[position]
		b, a := before[i], after[i]
		best := common{}
		if b >= 0 {
			best = common{sorted[b], length[i]}
			after[b] = a
		}
		if a < int32(n) {
			if l := length[a]; l > best.length || l == best.length && sorted[a] > best.position {
				best = common{sorted[a], l}
			}
			before[a] = b
			length[a] = min(length[a], length[i])
		}
		nearer[position] = best
	}
	// Many positions have one string in common where content is forged. Nobody walks along them all.
	for position := n - 1; position >= 0; position-- {
		at := &nearer[position]
		for next := nearer[at.position]; at.length > 0 && next.length >= at.length; next = nearer[at.position] {
			at.position = next.position
		}
	}
	return nearer
}

// longest returns the longest match of src[ip:to] and its length, 0 for none.
func (s *suffixes) longest(src []byte, ip, to int) (match, length int) {
	r := s.find(load32(src, ip) << 8)
	from, end := int(r.from), int(r.to)
	if from == end {
		return 0, 0
	}
	// The neighbours of src in the sorted order have the longest common strings with it.
	start := bits.ReverseBytes64(load64(src, ip))
	low, high := from, end
	for low < high {
		mid := int(uint(low+high) / 2)
		p := int(s.sorted.at(mid))
		key := bits.ReverseBytes64(load64(s.content, p))
		less := key < start
		if key == start {
			n := min(len(s.content)-p, to-ip, depth)
			k := ahead(s.content, p, src, ip, n)
			less = k == n || s.content[p+k] < src[ip+k]
		}
		if less {
			low = mid + 1
		} else {
			high = mid
		}
	}
	for i := max(low-1, from); i < min(low+1, end); i++ {
		p := int(s.sorted.at(i))
		n := ahead(s.content, p, src, ip, min(len(s.content)-p, to-ip))
		if p+n == len(s.content) {
			n += ahead(src, 0, src, ip+n, to-ip-n)
		}
		if n > length {
			match, length = p, n
		}
	}
	return match, length
}
