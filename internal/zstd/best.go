package zstd

import (
	"slices"
)

const (
	// segment is how many bytes are weighed at a time.
	segment = 768

	// nice is the length from which on a match is taken without weighing.
	nice = 256

	// carry is the length from which on a match in the dictionary is followed to the next position,
	// and no longer one is searched for there.
	carry = 32

	// unlikely is the price of a symbol that the tables to repeat do not have.
	unlikely = 20 * priceUnit
)

// bestDigest is what the level Best has of a dictionary.
type bestDigest struct {
	*suffixes

	// Prices of single literals, of numbers of literals, of lengths and of offsets by their size.
	literals [256]uint32
	runs     [segment + 1]uint32
	lengths  [nice]uint32
	offsets  [32]uint32
	mean     int // of literals
}

func newBestDigest(content []byte, t *tables) *bestDigest {
	b := &bestDigest{suffixes: newSuffixes(content)}
	codes, mean := t.codesOrPredefined(), t.meanLiteral()
	b.mean = int(mean)
	for c := range b.literals {
		b.literals[c] = mean
		if t.literals != nil {
			b.literals[c] = maxHuffmanLog * priceUnit
			if n := t.literals.codes[c] & lengthMask; n > 0 {
				b.literals[c] = n * priceUnit
			}
		}
	}
	price := func(code int, symbol uint32, extra uint8) uint32 {
		return min(codes[code].prices[symbol], unlikely) + uint32(extra)*priceUnit
	}
	for n := range b.runs {
		symbol := literalLength(uint32(n))
		b.runs[n] = price(literalCode, symbol, literalBits[symbol])
	}
	for n := minMatch; n < len(b.lengths); n++ {
		symbol := matchLength(uint32(n))
		b.lengths[n] = price(matchCode, symbol, matchBits[symbol])
	}
	for size := range b.offsets {
		b.offsets[size] = price(offsetCode, uint32(size), uint8(size))
	}
	return b
}

// weighed is the cheapest way to a position: by a literal, or by a match that ends there.
type weighed struct {
	price   uint32
	run     uint16 // literals since the last match
	length  uint16 // of the match, zero for a literal
	offset  uint32
	offsets [3]uint32 // the repeat offsets from here on
}

// findBest finds the cheapest sequences by the prices of the dictionary's tables.
func (d *Digest) findBest(e *Encoder, src []byte, from, to int) int {
	if e.ways == nil {
		e.ways = make([]weighed, segment+1)
	}
	anchor := from // where the literals of the next sequence start
	for from < to && len(e.sequences) <= maxFound-segment/minMatch-1 {
		end := min(from+segment, to)
		at, last := d.weigh(e, src, from, end, to, from-anchor)
		// Walk back from there.
		first := len(e.sequences)
		if last.match > 0 {
			e.sequences = append(e.sequences, found{uint16(at - from), last.match, last.offset})
		}
		for back := at; back > from; {
			w := &e.ways[back-from]
			if back -= max(int(w.length), 1); w.length > 0 {
				e.sequences = append(e.sequences, found{uint16(back - from), w.length, w.offset})
			}
		}
		slices.Reverse(e.sequences[first:])
		for i := range e.sequences[first:] {
			s := &e.sequences[first+i]
			start := from + int(s.literals)
			e.literals = append(e.literals, src[anchor:start]...)
			s.literals = uint16(start - anchor)
			s.offset = repeatCode(&e.offsets, s.offset, start > anchor)
			anchor = start + int(s.match)
		}
		from = at + int(last.match)
	}
	e.literals = append(e.literals, src[anchor:from]...)
	return from
}

// repeatCode returns the code of an offset, and updates the repeat offsets. After literals these
// are 1 to 3. Without literals the first one is left out, and one less than it takes the last
// place.
func repeatCode(offsets *[3]uint32, offset uint32, literals bool) uint32 {
	r := *offsets
	code := offset + 3
	switch {
	case literals && offset == r[0]:
		return 1
	case literals && offset == r[1]:
		code = 2
	case literals && offset == r[2]:
		code = 3
	case literals:
	case offset == r[1]:
		code = 1
	case offset == r[2]:
		code = 2
	case offset == r[0]-1:
		code = 3
	}
	if offset != r[1] {
		r[2] = r[1]
	}
	r[0], r[1] = offset, r[0]
	*offsets = r
	return code
}

// weigh finds the cheapest ways from a position to those up to end. run is how many literals there
// are before. It returns how far it came, and the match to take there, if one is long or goes
// beyond end.
func (d *Digest) weigh(e *Encoder, src []byte, from, end, to, run int) (int, found) {
	b := d.best
	content := d.content
	size := len(content)
	ways := e.ways[:end-from+1]
	for i := range ways {
		ways[i].price = 1<<32 - 1
	}
	run = min(run, segment)
	ways[0] = weighed{price: b.runs[run], run: uint16(run), offsets: e.offsets}
	limit := to - 8
	match, matched := 0, 0 // the longest match in the dictionary, followed from position to position
	for at := range len(ways) - 1 {
		way := &ways[at]
		ip := from + at
		if at > 0 {
			if way.length > 0 {
				parent := &ways[at-int(way.length)]
				way.offsets = parent.offsets
				repeatCode(&way.offsets, way.offset, parent.run > 0)
				way.run = 0
			} else {
				way.offsets = ways[at-1].offsets
				way.run = min(ways[at-1].run+1, segment)
			}
		}
		next := &ways[at+1]
		if price := way.price + b.literals[src[ip]] + b.runs[min(way.run+1, segment)] - b.runs[way.run]; price <= next.price {
			next.price, next.length = price, 0
		}
		matched--
		if match++; match >= size { // it goes on in the value
			matched = 0
		}
		if ip >= limit {
			continue
		}
		v := load64(src, ip)
		short, last := e.insert(ip, v)
		if at+2 < len(ways) && ways[at+2].price <= way.price+priceUnit {
			continue // a match goes on here
		}
		base := way.price + b.runs[0]
		known := minMatch - 1 // the longest of the cheapest matches
		// consider weighs the lengths from n down to those that are known.
		consider := func(offset, code uint32, n, known int) {
			price := base + b.offsets[code&31]
			for n := min(n, len(ways)-1-at, nice-1); n > known; n-- {
				if p, w := price+b.lengths[n], &ways[at+n]; p < w.price {
					w.price, w.length, w.offset = p, uint16(n), offset
				}
			}
		}
		longest, longestOffset := 0, uint32(0)
		candidates := way.offsets
		if way.run == 0 {
			candidates = [3]uint32{way.offsets[1], way.offsets[2], way.offsets[0] - 1}
		}
		for k, o := range candidates {
			if n := d.repeated(src, ip, to, int(o), uint32(v)); n >= minMatch {
				consider(o, uint32(k+1)>>1, n, minMatch-1)
				if n > longest {
					longest, longestOffset = n, o
				}
			}
		}
		known = e.inside(src, ip, to, short, last, known, func(o uint32, n, known int) {
			consider(o, offsetSize(o+3), n, known)
			if n > longest {
				longest, longestOffset = n, o
			}
		})
		if matched < carry {
			match, matched = b.longest(src, ip, to)
		}
		if matched > longest {
			longest, longestOffset = matched, uint32(ip+size-match)
		}
		if longest >= nice || at+longest >= len(ways) {
			return ip, found{0, uint16(longest), longestOffset}
		}
		for j, n := match, matched; n > known; { // from the longest to the nearest
			at, length := b.shorter(j)
			if floor := max(known, length); n > floor {
				o := uint32(ip + size - j)
				consider(o, offsetSize(o+3), n, floor)
				n = floor
			}
			if j = at; length < minMatch {
				break
			}
		}
	}
	return end, found{}
}

// repeated is the length of the match at an offset, or 0 if it is not one of three bytes. v starts
// with these.
func (d *Digest) repeated(src []byte, ip, to, offset int, v uint32) int {
	m := ip - offset
	switch j := len(d.content) + m; {
	case offset == 0 || j < 0:
	case m >= 0:
		if (load32(src, m)^v)<<8 == 0 {
			return ahead(src, m, src, ip, to-ip)
		}
	case m > -4: // the last bytes of the content
	case (load32(d.content, j)^v)<<8 == 0:
		n := ahead(d.content, j, src, ip, min(to-ip, -m))
		if n == -m {
			n += ahead(src, 0, src, ip+n, to-ip-n)
		}
		return n
	}
	return 0
}

// chains find more of the value's earlier positions than localTables alone.
type chains struct {
	long   [1 << localBits]uint32   // by the first eight bytes
	before [1 << chainedBits]uint32 // the position before with the same first four bytes
}

// chainedBits tell how far back positions are chained.
const chainedBits = 10

// insert adds a position. It returns the entries of the last ones with the same first four and
// eight bytes.
func (e *Encoder) insert(ip int, v uint64) (short, long uint32) {
	t := &e.local
	s, l := &t.short[hash(v, 4)>>(t.shift&63)&(1<<localBits-1)], &e.chains.long[hash(v, 8)>>(t.shift&63)&(1<<localBits-1)]
	short, long = *s, *l
	*s, *l = t.base+uint32(ip), t.base+uint32(ip)
	e.chains.before[ip&(1<<chainedBits-1)] = short
	return short, long
}

// inside calls f for the matches in the value that are longer than known, the nearest first, and
// returns the length of the longest.
func (e *Encoder) inside(src []byte, ip, to int, short, long uint32, known int, f func(offset uint32, n, known int)) int {
	v := load32(src, ip)
	last := uint(ip)
	for tries := 8; tries >= 0; tries-- {
		if tries == 0 {
			short = long
		}
		p := uint(short - e.local.base)
		if p >= last { // of another value, or overwritten
			if tries = min(tries, 1); tries == 0 {
				break
			}
			continue
		}
		m := int(p)
		if load32(src, m) == v && ip+known < to && load8(src, m+known) == load8(src, ip+known) {
			if n := ahead(src, m, src, ip, to-ip); n > known {
				f(uint32(ip-m), n, known)
				known = n
			}
		}
		if last = p; ip-m >= 1<<chainedBits {
			tries = min(tries, 1)
		}
		short = e.chains.before[m&(1<<chainedBits-1)]
	}
	return known
}
