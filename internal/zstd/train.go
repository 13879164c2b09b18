package zstd

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// Trainer counts what an Encoder writes for samples, and describes the tables that suit it. The
// zero value is ready for With. A Trainer is not safe for concurrent use.
type Trainer struct {
	encoder  *Encoder
	literals [256]uint32
	codes    [sequenceCodes][maxSymbols]uint32
	samples  uint32

	// Since the last With: the samples that have a byte, and the offsets of first sequences.
	having  [256]uint32
	offsets map[uint32]uint32
}

// firstSequences are those whose offsets may become a dictionary's repeat offsets.
const firstSequences = 4

// trainedID is the id inside a trained dictionary. bale's frames name a dictionary by its content.
const trainedID = 1

// With makes later samples be written with d, at a level. The counts of earlier ones remain, but
// the repeat offsets come from later ones alone.
func (t *Trainer) With(d *Dictionary, level Level) {
	t.encoder = NewEncoder(NewDigest(d, level))
	t.having = [256]uint32{}
	t.offsets = map[uint32]uint32{}
}

// Add counts a sample, of which it takes MaxSize bytes at most.
func (t *Trainer) Add(src []byte) {
	src = src[:min(len(src), MaxSize)]
	t.samples++
	var has [256]bool
	for _, c := range src {
		has[c] = true
	}
	for c := range has {
		if has[c] {
			t.having[c]++
		}
	}
	n := 0
	t.encoder.parse(src, func(literals []byte, match, offset, code uint32) {
		for _, c := range literals {
			t.literals[c]++
		}
		if match == 0 {
			return
		}
		if n++; n <= firstSequences {
			t.offsets[offset]++
		}
		t.codes[literalCode][literalLength(uint32(len(literals)))]++
		t.codes[matchCode][matchLength(match)]++
		t.codes[offsetCode][offsetSize(code)]++
	})
}

// parse calls f for each sequence that the Encoder finds, with the offset and its code. The
// literals at the end of a block have no match.
func (e *Encoder) parse(src []byte, f func(literals []byte, match, offset, code uint32)) {
	e.offsets = e.digest.offsets
	e.open(len(src))
	for from := 0; from < len(src); {
		offsets := e.offsets
		end := e.find(src, from, min(from+blockSize, len(src)))
		for _, s := range e.sequences {
			offset := s.offset - 3
			if s.offset <= 3 {
				candidates := offsets[:]
				if s.literals == 0 {
					candidates = []uint32{offsets[1], offsets[2], offsets[0] - 1}
				}
				offset = candidates[s.offset-1]
			}
			repeatCode(&offsets, offset, s.literals > 0)
			f(src[from:from+int(s.literals)], uint32(s.match), offset, s.offset)
			from += int(s.literals) + int(s.match)
		}
		f(src[from:end], 0, 0, 0)
		from = end
	}
}

// Dictionary returns the content as a dictionary of at most size bytes, with the tables and repeat
// offsets that suit the samples. Content that is too long loses its start. It returns nil if the
// samples have too little for tables.
func (t *Trainer) Dictionary(content []byte, size int) []byte {
	out := make([]byte, 512)
	binary.LittleEndian.PutUint32(out, dictionaryMagic)
	binary.LittleEndian.PutUint32(out[4:], trainedID)
	p := 8
	w := t.weights()
	n := w.write(out[p:])
	if n == 0 {
		return nil
	}
	p += n
	// All symbols have a state, so that a block can always repeat the tables.
	last := [sequenceCodes]uint32{literalLength(blockSize), offsetSize(uint32(len(content) + MaxSize)), matchLength(blockSize)}
	for _, code := range [...]int{offsetCode, matchCode, literalCode} {
		histogram := t.codes[code]
		total := scale(histogram[:])
		for s := range last[code] + 1 {
			if histogram[s] == 0 {
				histogram[s] = 1
				total++
			}
		}
		var d distribution
		if !d.build(&histogram, total, codes[code].maxLog) {
			return nil
		}
		p += d.write(out[p:])
	}
	head := p + 4*len(startOffsets)
	content = content[max(len(content)-max(size-head, 0), 0):]
	for _, offset := range t.frequentOffsets(len(content)) {
		binary.LittleEndian.PutUint32(out[p:], offset)
		p += 4
	}
	return append(out[:p], content...)
}

// scaled is what a histogram's counts add up to, about: no product with them overflows.
const scaled = 1 << 18

// scale makes a histogram's counts smaller or larger, and returns their sum.
func scale(histogram []uint32) (total int) {
	sum := uint64(0)
	for _, n := range histogram {
		sum += uint64(n)
	}
	for s, n := range histogram {
		if n > 0 {
			histogram[s] = uint32(max(uint64(n)*scaled/sum, 1))
			total += int(histogram[s])
		}
	}
	return total
}

// In bits, the price of a literal without a code. Either all literals of the value are stored raw,
// for about three more each, or the value gets a table of its own.
const (
	rawPenalty   = 3
	tablePenalty = 300
)

// weights gives each byte of the samples a code. The other bytes have one if that is cheaper than
// values that fail for want of it. Bytes in a single sample show how often there are such values.
func (t *Trainer) weights() *weights {
	some := t.literals
	scale(some[:])
	once, literals := 0, 0
	for c, n := range t.having {
		if n == 1 {
			once++
		}
		if n > 0 {
			some[c] = max(some[c], 1)
		}
		literals += int(t.literals[c])
	}
	all := some
	for c := range all {
		all[c] = max(all[c], 1)
	}
	var part, full weights
	full.build(&all)
	if !part.build(&some) {
		return &full
	}
	dearer := 0
	for c, n := range t.literals {
		if n > 0 {
			dearer += int(n) * (int(full.log) - int(full.of[c]) - int(part.log) + int(part.of[c]))
		}
	}
	if samples := int(max(t.samples, 1)); dearer > once*min(rawPenalty*literals/samples, tablePenalty) {
		return &part
	}
	return &full
}

// frequentOffsets are the repeat offsets for content of a size.
func (t *Trainer) frequentOffsets(size int) [3]uint32 {
	type counted struct{ offset, n uint32 }
	var all []counted
	for offset, n := range t.offsets {
		if int64(offset) <= int64(size) {
			all = append(all, counted{offset, n})
		}
	}
	slices.SortFunc(all, func(a, b counted) int {
		return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.offset, b.offset))
	})
	offsets := startOffsets
	for i := range min(len(all), len(offsets)) {
		offsets[i] = all[i].offset
	}
	return offsets
}
