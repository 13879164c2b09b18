package zstd

import (
	"math/bits"
	"slices"
)

// predefinedEncoders are the encoders of the format's own distributions.
var predefinedEncoders = func() (t [sequenceCodes]*fseEncoder) {
	for code := range t {
		t[code] = new(fseEncoder)
		t[code].prepare(&codes[code].predefined)
	}
	return t
}()

// From these numbers on, a block can be worth tables of its own although it has some to repeat.
const (
	manyLiterals  = 1024
	manySequences = 512
)

// freshTables are made for a block, where that pays.
type freshTables struct {
	literals    huffEncoder
	weights     weights
	description [maxDescription]byte // of the weights
	codes       [sequenceCodes]fseEncoder
}

// maxDescription is how many bytes weights take at most.
const maxDescription = 129

func (e *Encoder) newTables() *freshTables {
	if e.fresh == nil {
		e.fresh = new(freshTables)
	}
	return e.fresh
}

// restore takes back what a block did that is not written. Tables that it made anew are lost.
func (e *Encoder) restore(t tables) {
	e.offsets = e.before
	if fresh := e.fresh; fresh != nil {
		if t.literals == &fresh.literals {
			t.literals = nil
		}
		for code := range t.codes {
			if t.codes[code] == &fresh.codes[code] {
				t.codes[code] = nil
			}
		}
	}
	e.tables = t
}

// chooseLiterals returns the Huffman table that suits the literals best, with its description if it
// is a new one, or nil if none makes them smaller.
func (e *Encoder) chooseLiterals(literals []byte) (table *huffEncoder, description []byte) {
	var histogram [256]uint32
	for _, c := range literals {
		histogram[c]++
	}
	best := 8 * len(literals)
	if before := e.tables.literals; before != nil {
		if size := before.size(&histogram); size > 0 && size < best {
			table, best = before, size
		}
	}
	fresh := e.newTables()
	w := &fresh.weights
	if !w.build(&histogram) {
		return table, nil
	}
	size := 0
	for s, n := range histogram[:w.symbols] {
		if n > 0 {
			size += int(n) * int(w.log+1-w.of[s])
		}
	}
	n := w.write(fresh.description[:])
	if n == 0 || size+8*n >= best {
		return table, nil
	}
	fresh.literals.prepare(w)
	return &fresh.literals, fresh.description[:n]
}

// build makes the weights that suit a histogram of at least two bytes.
func (w *weights) build(histogram *[256]uint32) bool {
	var sorted [256]uint32 // the count above the byte
	n := 0
	for s, count := range histogram {
		if count > 0 {
			sorted[n] = count<<8 | uint32(s)
			n++
		}
	}
	if n < 2 {
		return false
	}
	slices.Sort(sorted[:n])
	// Leaves and inner nodes are two queues, rarest first. A node's parent comes after it.
	var counts, parents [512]uint32
	for i, v := range sorted[:n] {
		counts[i] = v >> 8
	}
	leaf, inner := 0, n
	for next := n; next < 2*n-1; next++ {
		for range 2 {
			at := &inner
			if leaf < n && (inner == next || counts[leaf] <= counts[inner]) {
				at = &leaf
			}
			counts[next] += counts[*at]
			parents[*at] = uint32(next)
			*at++
		}
	}
	// Count the leaves of each depth. Those that are too deep go to the deepest level, and others go
	// down until all have room.
	var depths [512]uint8
	var of [maxHuffmanLog + 1]int
	for i := 2*n - 3; i >= 0; i-- {
		depths[i] = depths[parents[i]] + 1
		if i < n {
			of[min(depths[i], maxHuffmanLog)]++
		}
	}
	sum, deepest := 0, 0
	for depth, k := range of {
		sum += k << (maxHuffmanLog - depth)
		if k > 0 {
			deepest = depth
		}
	}
	for ; sum > 1<<maxHuffmanLog; sum-- {
		of[maxHuffmanLog]--
		depth := maxHuffmanLog - 1
		for of[depth] == 0 {
			depth--
		}
		of[depth]--
		of[depth+1] += 2
	}
	*w = weights{log: uint8(deepest)}
	depth := deepest
	for _, v := range sorted[:n] { // the rarest get the longest codes
		for of[depth] == 0 {
			depth--
		}
		of[depth]--
		w.of[byte(v)] = uint8(deepest + 1 - depth)
		w.symbols = max(w.symbols, int(byte(v))+1)
	}
	return true
}

// write describes the table in at most maxDescription bytes, the shorter way, and returns how many,
// or 0 if there is no way.
func (w *weights) write(out []byte) int {
	known := w.of[:w.symbols-1] // the last one follows from the others
	direct := 1 + (len(known)+1)/2
	if n := w.writeFSE(out[1:]); n > 0 && n < 128 && (n+1 < direct || len(known) > 128) {
		out[0] = byte(n)
		return n + 1
	}
	if len(known) > 128 {
		return 0
	}
	clear(out[:direct])
	out[0] = byte(127 + len(known))
	for i, weight := range known {
		out[1+i/2] |= weight << (4 * (^i & 1))
	}
	return direct
}

// writeFSE writes the weights with two states that take turns, if that takes less than 128 bytes.
func (w *weights) writeFSE(out []byte) int {
	known := w.of[:w.symbols-1]
	var histogram [maxSymbols]uint32
	for _, weight := range known {
		histogram[weight]++
	}
	var d distribution
	if len(known) < 3 || !d.build(&histogram, len(known), maxWeightLog) {
		return 0
	}
	var table fseEncoder
	table.prepare(&d)
	size := 0
	for weight, n := range histogram {
		if n > 0 {
			size += int(n * table.prices[weight])
		}
	}
	if size/priceUnit > 8*110 { // with the distribution's description it might not fit
		return 0
	}
	p := d.write(out)
	if p == 0 || p > 16 {
		return 0
	}
	b := bitWriter{out: out, p: p}
	var states [2]uint32
	for i := len(known) - 1; i >= 0; i-- {
		state, weight := &states[i&1], uint32(known[i])
		if i >= len(known)-2 {
			*state = table.start(weight)
			continue
		}
		t := &table.symbols[weight]
		k := (*state + t.bits) >> 16
		b.add(*state, k)
		*state = uint32(table.states[int32(*state>>k)+t.state])
	}
	b.add(states[1], uint32(table.log))
	b.add(states[0], uint32(table.log))
	b.add(1, 1)
	return b.end()
}

// bitWriter writes short runs of bits, the lowest first. One that gets out of room writes nothing
// more.
type bitWriter struct {
	out []byte
	p   int
	acc uint64
	n   uint32
}

func (b *bitWriter) add(v, n uint32) {
	b.acc |= uint64(v&(1<<n-1)) << b.n
	for b.n += n; b.n >= 8; b.n -= 8 {
		if b.p < len(b.out) {
			b.out[b.p] = byte(b.acc)
		}
		b.p++
		b.acc >>= 8
	}
}

// end fills the last byte, and returns where it ends, or 0 if there was no room.
func (b *bitWriter) end() int {
	if b.n > 0 {
		b.add(0, 8-b.n)
	}
	if b.p > len(b.out) {
		return 0
	}
	return b.p
}

// build shares states out by a histogram of n symbols, at least two of them different.
func (d *distribution) build(histogram *[maxSymbols]uint32, n int, maxLog uint8) bool {
	*d = distribution{}
	different, last := 0, 0
	for s, count := range histogram {
		if count > 0 {
			different++
			last = s
		}
	}
	if different < 2 {
		return false
	}
	d.symbols = uint8(last + 1)
	d.log = max(min(uint8(bits.Len(uint(n-1)))-1, maxLog), minTableLog, uint8(bits.Len(uint(different))))
	size := 1 << d.log
	rest := size
	for s, count := range histogram[:d.symbols] {
		if count > 0 {
			d.counts[s] = int16(max((int(count)*size+n/2)/n, 1))
			rest -= int(d.counts[s])
		}
	}
	// Rounding leaves some states over, or lacks some. The symbol with most of them minds least.
	for rest != 0 {
		largest := 0
		for s, count := range d.counts[:d.symbols] {
			if count > d.counts[largest] {
				largest = s
			}
		}
		step := max(min(rest, 1), -1)
		if rest > 0 {
			step = rest
		}
		d.counts[largest] += int16(step)
		rest -= step
	}
	return true
}

// price is how much the symbols of a histogram cost with the distribution, without its description.
func (d *distribution) price(histogram *[maxSymbols]uint32) (sum int) {
	for s, n := range histogram[:d.symbols] {
		if n > 0 {
			sum += int(n) * int(uint32(d.log)*priceUnit-log2(uint32(d.counts[s])))
		}
	}
	return sum
}

// write describes the distribution, which has no count of -1, and returns how many bytes that
// takes, 0 if there is no room. RFC 8878, 4.1.1.
func (d *distribution) write(out []byte) int {
	b := bitWriter{out: out}
	b.add(uint32(d.log-minTableLog), 4)
	rest := 1<<d.log + 1
	for s := 0; rest > 1; {
		count := int(d.counts[s])
		width := bits.Len(uint(rest))
		half := 1 << (width - 1)
		short := 2*half - 1 - rest
		switch v := count + 1; {
		case v < short:
			b.add(uint32(v), uint32(width-1))
		case v < half:
			b.add(uint32(v), uint32(width))
		default:
			b.add(uint32(v+short), uint32(width))
		}
		rest -= count
		if s++; count > 0 {
			continue
		}
		for { // how many more have no state
			n := 0
			for n < 3 && d.counts[s] == 0 {
				n++
				s++
			}
			b.add(uint32(n), 2)
			if n < 3 {
				break
			}
		}
	}
	return b.end()
}

// chooseTables decides by which tables the codes of the sequences are written. It writes the
// descriptions of new ones at p, and returns the kinds and where they end, or 0 if that is at
// limit.
func (e *Encoder) chooseTables(out []byte, p, limit int) (kinds [sequenceCodes]byte, end int) {
	if e.tables.complete && len(e.sequences) < e.digest.manySequences {
		return [sequenceCodes]byte{repeatMode, repeatMode, repeatMode}, p
	}
	var histograms [sequenceCodes][maxSymbols]uint32
	for _, s := range e.sequences {
		histograms[literalCode][literalLength(uint32(s.literals))]++
		histograms[matchCode][matchLength(uint32(s.match))]++
		histograms[offsetCode][offsetSize(s.offset)]++
	}
	for _, code := range [...]int{literalCode, offsetCode, matchCode} { // as their descriptions follow
		histogram := &histograms[code]
		kinds[code] = predefinedMode
		table, best := predefinedEncoders[code], predefinedEncoders[code].price(histogram)
		if before := e.tables.codes[code]; before != nil {
			if price := before.price(histogram); price <= best {
				kinds[code], table, best = repeatMode, before, price
			}
		}
		n := len(e.sequences)
		only := slices.Index(histogram[:], uint32(n))
		switch fresh := &e.newTables().codes[code]; {
		case only >= 0:
			if best > 8*priceUnit && p < limit {
				kinds[code], table = rleMode, fresh
				out[p] = byte(only)
				p++
				fresh.prepare(rle(only))
				e.tables.complete = false
			}
		case n >= e.digest.manySequences || best >= absent:
			var d distribution
			if !d.build(histogram, n, codes[code].maxLog) {
				break
			}
			var description [64]byte
			size := d.write(description[:])
			if size == 0 || d.price(histogram)+8*priceUnit*size >= best {
				break
			}
			if p+size >= limit {
				return kinds, 0
			}
			kinds[code], table = describedMode, fresh
			p += copy(out[p:], description[:size])
			fresh.prepare(&d)
			e.tables.complete = false
		}
		e.tables.codes[code] = table
	}
	return kinds, p
}

// price is how much the symbols of a histogram cost, at least absent if one has no state.
func (f *fseEncoder) price(histogram *[maxSymbols]uint32) (sum int) {
	for s, n := range histogram {
		if n > 0 {
			price := int(f.prices[s])
			if price == absent {
				return absent
			}
			sum += int(n) * price
		}
	}
	return min(sum, absent-1)
}

// rle is the distribution of a single symbol: its only state takes no bits.
func rle(symbol int) *distribution {
	d := &distribution{symbols: uint8(symbol + 1)}
	d.counts[symbol] = 1
	return d
}
