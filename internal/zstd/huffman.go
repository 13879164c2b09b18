package zstd

import "math/bits"

const (
	// maxHuffmanLog is the longest code of a literal in bits.
	maxHuffmanLog = 11

	// maxWeightLog is the largest accuracy log of the FSE table for weights.
	maxWeightLog = 6
)

// weights describe a Huffman table. A symbol of weight w has a code of log+1-w bits, and none if w
// is zero. Codes count up from the smallest weight to the largest, and within one by symbol.
type weights struct {
	log     uint8
	symbols int        // how many weights there are, the last one not zero; zero for no table
	of      [256]uint8 // by symbol, zero from symbols on
}

// read takes the description of a table from the start of b, and returns its length. RFC 8878,
// 4.2.1.
func (w *weights) read(b []byte) (int, error) {
	*w = weights{}
	if len(b) == 0 {
		return 0, corrupt("Huffman table is cut short")
	}
	size, known := 1+int(b[0]), 0
	direct := b[0] >= 128
	if direct {
		known = int(b[0]) - 127
		size = 1 + (known+1)/2
	}
	if size > len(b) {
		return 0, corrupt("Huffman table is cut short")
	}
	if direct {
		for i := range known {
			w.of[i] = b[1+i/2] >> (4 * (^i & 1)) & 15
		}
	} else {
		var err error
		if known, err = w.decode(b[1:size]); err != nil {
			return 0, err
		}
	}
	var of [16]int // symbols by weight
	sum := 0
	for _, weight := range w.of[:known] {
		of[weight]++
		sum += 1 << weight >> 1
	}
	// The last weight is what completes the sum to a power of two.
	log := bits.Len(uint(sum))
	last := bits.Len(uint(1<<log - sum))
	if sum == 0 || log > maxHuffmanLog || 1<<log-sum != 1<<last>>1 {
		return 0, corrupt("Huffman weights have a wrong sum")
	}
	of[last]++
	if of[1] < 2 || of[1]%2 != 0 {
		return 0, corrupt("Huffman tree is incomplete")
	}
	w.of[known] = uint8(last)
	w.symbols = known + 1
	w.log = uint8(log)
	return size, nil
}

// decode takes all weights but the last from b, and returns how many there are. Two states take
// turns, until the bits run out. RFC 8878, 4.2.1.2.
func (w *weights) decode(b []byte) (int, error) {
	var d distribution
	n, err := d.read(b, maxHuffmanLog+1, maxWeightLog)
	if err != nil {
		return 0, err
	}
	b = b[n:]
	if len(b) == 0 || b[len(b)-1] == 0 {
		return 0, corrupt("Huffman weights are cut short")
	}
	var symbols [1 << maxTableLog]uint8
	d.spread(&symbols)
	var table [1 << maxWeightLog]struct{ symbol, bits, base uint8 }
	next := d.counts // the next state of each symbol, counted from its first
	for state := range table[:1<<d.log] {
		symbol := symbols[state]
		from := max(next[symbol], 1)
		next[symbol] = from + 1
		size := d.log + 1 - uint8(bits.Len16(uint16(from)))
		table[state].symbol, table[state].bits = symbol, size
		table[state].base = uint8(int(from)<<size - 1<<d.log)
	}
	left := 8*(len(b)-1) + bits.Len8(b[len(b)-1]) - 1 // bits before the end mark
	take := func(n uint8) uint8 {
		left -= int(n)
		return uint8(bitsAt(b, max(left, 0)) & (1<<n - 1))
	}
	state, other := take(d.log), take(d.log)
	if left < 0 {
		return 0, corrupt("Huffman weights are cut short")
	}
	for known := 0; known+2 < len(w.of); known++ {
		from := table[state]
		w.of[known] = from.symbol
		if left == 0 && from.bits > 0 {
			w.of[known+1] = table[other].symbol
			return known + 2, nil
		}
		state, other = other, from.base+take(from.bits)
		if left < 0 {
			return 0, corrupt("Huffman weights are cut short")
		}
	}
	return 0, corrupt("Huffman table has too many weights")
}
