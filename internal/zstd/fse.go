package zstd

import (
	"encoding/binary"
	"math/bits"
)

// distribution says how the states of an FSE table are shared among its symbols: the normalized
// counts that a frame or dictionary describes.
type distribution struct {
	log     uint8             // the table has 1<<log states
	symbols uint8             // the number of counts, the last one not zero
	counts  [maxSymbols]int16 // the states of each symbol; -1 is one state, of lower probability
}

// minTableLog is the smallest accuracy log that a description can have.
const minTableLog = 5

// read takes the description of a table with at most the given number of symbols from the start of
// b, and returns its length. RFC 8878, 4.1.1.
func (d *distribution) read(b []byte, symbols int, maxLog uint8) (int, error) {
	*d = distribution{log: uint8(bitsAt(b, 0)&15) + minTableLog}
	if d.log > maxLog {
		return 0, corrupt("accuracy log of an FSE table is too large")
	}
	at := 4
	// rest is what is left to share out, plus one. Values below it take width bits; the smaller of
	// them, which are fewer than short, one bit less.
	rest := 1<<d.log + 1
	symbol := 0
	for rest > 1 {
		if symbol >= symbols {
			return 0, corrupt("FSE table has too many symbols")
		}
		width := bits.Len(uint(rest))
		half := 1 << (width - 1)
		short := 2*half - 1 - rest
		v := int(bitsAt(b, at))
		at += width
		if v&(half-1) < short {
			v &= half - 1
			at--
		} else if v &= 2*half - 1; v >= half {
			v -= short
		}
		count := v - 1
		d.counts[symbol] = int16(count)
		symbol++
		rest -= max(count, -count)
		for repeat := 3; count == 0 && repeat == 3; { // symbols without a state
			repeat = int(bitsAt(b, at) & 3)
			at += 2
			if symbol += repeat; symbol >= symbols {
				return 0, corrupt("FSE table has too many symbols")
			}
		}
	}
	n := (at + 7) / 8
	if n > len(b) {
		return 0, corrupt("FSE table is cut short")
	}
	d.symbols = uint8(symbol)
	return n, nil
}

// bitsAt returns at least 25 bits of b from bit at on, the lowest first. Past the end they are
// zero.
func bitsAt(b []byte, at int) uint32 {
	var four [4]byte
	i := at / 8
	if i+4 <= len(b) {
		return binary.LittleEndian.Uint32(b[i:]) >> (at % 8)
	}
	if i < len(b) {
		copy(four[:], b[i:])
	}
	return binary.LittleEndian.Uint32(four[:]) >> (at % 8)
}

// spread writes the symbol of each state to the first 1<<log of table. RFC 8878, 4.1.1.
func (d *distribution) spread(table *[1 << maxTableLog]uint8) {
	mask := 1<<d.log - 1
	high := mask
	for symbol, count := range d.counts[:d.symbols] {
		if count == -1 {
			table[high&mask] = uint8(symbol)
			high--
		}
	}
	step := (mask+1)>>1 + (mask+1)>>3 + 3
	at := 0
	for symbol, count := range d.counts[:d.symbols] {
		for range count {
			table[at] = uint8(symbol)
			for at = (at + step) & mask; at > high; at = (at + step) & mask {
			}
		}
	}
}
