package zstd

import (
	"math/bits"
	"slices"
)

// fseEncoder is the table that encodes the symbols of one code, and what each of them costs.
type fseEncoder struct {
	log     uint8
	symbols [maxSymbols]struct {
		bits  uint32 // (state + bits) >> 16 is how many bits of the state to write
		state int32  // added to the rest of the state: the index of the next one
	}
	states [1 << maxTableLog]uint16
	prices [maxSymbols]uint32 // by symbol, absent for one without a state
}

// priceUnit is a bit. absent is the price of a symbol without a code: no sum of prices below it
// holds one.
const (
	priceUnit = 256
	absent    = 1 << 24
)

// prepare makes the table of a distribution.
func (f *fseEncoder) prepare(d *distribution) {
	var symbols [1 << maxTableLog]uint8
	d.spread(&symbols)
	f.log = d.log
	size := 1 << d.log
	var next [maxSymbols]int
	total := 0
	for s := range f.symbols {
		count := max(int(d.counts[s]), -int(d.counts[s]))
		next[s] = total
		f.prices[s] = absent
		if count > 0 {
			most := uint32(d.log) + 1 - uint32(bits.Len(uint(max(count-1, 1))))
			f.symbols[s].bits = most<<16 - uint32(count)<<most
			f.symbols[s].state = int32(total - count)
			f.prices[s] = uint32(d.log)*priceUnit - log2(uint32(count))
		}
		total += count
	}
	for u, s := range symbols[:size] {
		f.states[next[s]] = uint16(size + u)
		next[s]++
	}
}

// log2 is the binary logarithm in price units, for v > 0.
func log2(v uint32) uint32 {
	n := uint32(bits.Len32(v)) - 1
	if n > 8 {
		v >>= n - 8
	} else {
		v <<= 8 - n
	}
	return n<<8 + logs[v&255]
}

// logs are the fractions of log2, by the eight bits after the first.
var logs = func() (t [256]uint32) {
	for i := range t {
		// Squaring a number doubles its logarithm: each time it overflows is a bit of the fraction.
		for x, k := uint64(256+i)<<22, 7; k >= 0; k-- {
			x = x * x >> 30
			over := x >> 31 // a comparison with 1<<31 comes out wrong on an emulated s390x
			x >>= over
			t[i] |= uint32(over) << k
		}
	}
	return t
}()

// start is the state that the last symbol is written with: it costs no bits.
func (f *fseEncoder) start(symbol uint32) uint32 {
	s := &f.symbols[symbol]
	n := (s.bits + 1<<15) >> 16
	return uint32(f.states[int32((n<<16-s.bits)>>n)+s.state])
}

// has reports whether all symbols up to the last have a state.
func (f *fseEncoder) has(last uint32) bool {
	return !slices.Contains(f.prices[:last+1], absent)
}
