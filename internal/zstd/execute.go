package zstd

import "math/bits"

// state is an entry of an FSE table for decoding.
//
//	bits 0 to 7    how many extra bits the code has
//	bits 8 to 15   how many bits the next state takes
//	bits 16 to 47  what is added to the extra bits
//	bits 48 to 63  what is added to the bits of the next state
//
// The sum of three still has the sums in the lower two fields.
type state uint64

func (s state) base() uint32 { return uint32(s >> 16) }
func (s state) next() uint32 { return uint32(s >> 48) }

// states is an FSE table for decoding.
type states struct {
	log uint8
	of  [1 << maxTableLog]state
}

// coded is a code's base and extra bits as a state without successor.
func coded(code, symbol int) state {
	switch code {
	case literalCode:
		return state(literalBases[symbol])<<16 | state(literalBits[symbol])
	case matchCode:
		return state(matchBases[symbol])<<16 | state(matchBits[symbol])
	}
	return 1<<symbol<<16 | state(symbol)
}

// build makes the table of a distribution. RFC 8878, 4.1.1.
func (t *states) build(code int, d *distribution) {
	var table [1 << maxTableLog]uint8
	d.spread(&table)
	t.log = d.log
	next := d.counts // the next state of each symbol, counted from its first
	for i, symbol := range table[:1<<d.log] {
		from := max(next[symbol], 1)
		next[symbol] = from + 1
		n := int(d.log) + 1 - bits.Len16(uint16(from))
		t.of[i] = coded(code, int(symbol)) | state(n)<<8 | state(int(from)<<n-1<<d.log)<<48
	}
}

// one makes the table of a single symbol.
func (t *states) one(code, symbol int) {
	t.log = 0
	t.of[0] = coded(code, symbol)
}

// The modes of a table.
const (
	predefinedMode = iota
	rleMode
	describedMode
	repeatMode
)

// readSequencesHeader reads the header of the sequences at src[at:] and makes their tables. It
// returns how many there are, and where their bits start. RFC 8878, 3.1.1.3.2.1.
func (c *context) readSequencesHeader(src []byte, at int) (count, end int, err error) {
	if at == len(src) {
		return 0, 0, errShort
	}
	count = int(src[at])
	size := 1 + min(count>>7, 1) + (count+1)>>8
	if len(src)-at < size {
		return 0, 0, errShort
	}
	switch size {
	case 2:
		count = (count-128)<<8 | int(src[at+1])
	case 3:
		count = 0x7f00 + int(little(src[at+1:], 2))
	}
	at += size
	if count == 0 {
		if at < len(src) {
			return 0, 0, corrupt("bytes follow a block's literals")
		}
		return 0, at, nil
	}
	if at == len(src) {
		return 0, 0, errShort
	}
	modes := src[at]
	at++
	if modes&3 != 0 {
		return 0, 0, corrupt("reserved bits of the tables' modes are set")
	}
	for code := range c.states {
		own := &c.ownStates[code]
		switch modes >> (6 - 2*code) & 3 {
		case predefinedMode:
			c.states[code] = predefinedStates[code]
		case rleMode:
			if at == len(src) {
				return 0, 0, errShort
			}
			if int(src[at]) >= codes[code].symbols {
				return 0, 0, corrupt("no such code")
			}
			own.one(code, int(src[at]))
			c.states[code] = own
			at++
		case describedMode:
			n, err := c.distribution.read(src[at:], codes[code].symbols, codes[code].maxLog)
			if err != nil {
				return 0, 0, err
			}
			own.build(code, &c.distribution)
			c.states[code] = own
			at += n
		case repeatMode:
			if c.states[code] == nil {
				return 0, 0, corrupt("sequences need a table that there is not")
			}
		}
	}
	return count, at, nil
}

// sequence is a number of literals, and then a match of match bytes, offset bytes back.
type sequence struct{ literals, match, offset uint32 }

// sequenceReader decodes sequences from the bits of src between start and at, backwards.
type sequenceReader struct {
	src       []byte
	start, at int
	state     [sequenceCodes]uint32
	done      int // where the last sequence ends; bits were read for states that it does not have
}

// take returns the next n bits.
func (r *sequenceReader) take(n uint8) uint64 {
	if r.at < r.start {
		return 0
	}
	v := bitsBefore(r.src, r.at)
	r.at -= int(n)
	return top(v, uint64(n))
}

// open reads the first states.
func (r *sequenceReader) open(tables *[sequenceCodes]*states) {
	for code := range r.state {
		r.state[code] = uint32(r.take(tables[code].log))
	}
}

// closed reports whether the bits end with the sequences read.
func (r *sequenceReader) closed() bool { return r.done == r.start }

// fewBits is how many extra bits a sequence may have, so that 57 bits suffice for its states as
// well.
const fewBits = 57 - 2*maxTableLog - (maxTableLog - 1)

// masks have that many low bits, by the byte with their number.
var masks = func() (all [256]uint32) {
	for n := range all {
		all[n] = 1<<n - 1
	}
	return all
}()

// read fills batch, and updates the repeat offsets.
func (r *sequenceReader) read(batch []sequence, tables *[sequenceCodes]*states, offsets *[3]uint32) bool {
	src, start, at, done := r.src, r.start, r.at, 0
	literalTable, offsetTable, matchTable := &tables[literalCode].of, &tables[offsetCode].of, &tables[matchCode].of
	literalState, offsetState, matchState := r.state[literalCode], r.state[offsetCode], r.state[matchCode]
	recent, third := uint64(offsets[0])|uint64(offsets[1])<<32, offsets[2]
	for i := range batch {
		if at < start {
			return false
		}
		l, o, m := literalTable[literalState&(1<<maxTableLog-1)], offsetTable[offsetState&(1<<maxTableLog-1)], matchTable[matchState&(1<<maxTableLog-1)]
		// The low bits of the sums say where each part ends.
		sum := o + m
		v := bitsBefore(src, at)
		value := o.base() + uint32(bits.RotateLeft64(v, int(o)))&masks[uint8(o)]
		match := m.base() + uint32(bits.RotateLeft64(v, int(sum)))&masks[uint8(m)]
		if used := int(sum & 0xff); used+int(l&0xff) > fewBits {
			if at-used < start {
				return false
			}
			v = bits.RotateLeft64(bitsBefore(src, at-used), -used)
		}
		sum += l
		done = at - int(sum&0xff)
		literals := l.base()
		if uint8(l) != 0 { // 16 literals or more
			literals += uint32(bits.RotateLeft64(v, int(sum))) & masks[uint8(l)]
		}
		sum += l >> 8
		literalState = l.next() + uint32(bits.RotateLeft64(v, int(sum)))&masks[uint8(l>>8)]
		sum += m >> 8
		matchState = m.next() + uint32(bits.RotateLeft64(v, int(sum)))&masks[uint8(m>>8)]
		sum += o >> 8
		offsetState = o.next() + uint32(bits.RotateLeft64(v, int(sum)))&masks[uint8(o>>8)]
		at -= int(sum & 0xff)
		switch {
		case o&31 > 1:
			third, recent = uint32(recent>>32), recent<<32|uint64(value-3)
		case o&31 == 0:
			if literals == 0 {
				recent = bits.RotateLeft64(recent, 32)
			}
		case literals != 0 && value == 2:
			recent = bits.RotateLeft64(recent, 32)
		default:
			again := third
			if literals == 0 && value == 3 {
				again = uint32(recent) - 1
			}
			third, recent = uint32(recent>>32), recent<<32|uint64(again)
		}
		batch[i] = sequence{literals, match, uint32(recent)}
	}
	r.at, r.done = at, done
	r.state = [...]uint32{literalState, offsetState, matchState}
	*offsets = [...]uint32{uint32(recent), uint32(recent >> 32), third}
	return true
}

// execution writes what sequences stand for.
type execution struct {
	out             []byte // the memory that may be written
	pos, start, end int    // the next byte in it, the frame's first and the block's last
	literals        []byte
	literal, last   int // the next in them, and the last
	dictionary      []byte
}

// wide copies src[j:] to dst[i:end] in steps of 16 bytes, at least one, and so up to overshoot
// bytes more. They do not overlap within 16 bytes.
func wide(dst []byte, i, end int, src []byte, j int) {
	for {
		a, b := load64(src, j), load64(src, j+8)
		store64(dst, i, a)
		store64(dst, i+8, b)
		if i += 16; i >= end {
			return
		}
		j += 16
	}
}

// longMatch is the length from which a match is worth a call of copy.
const longMatch = 128

// run executes sequences, and reports whether they fit. Those that a fast copy might take beyond
// memory go to careful, and so does all that is rare.
func (x *execution) run(sequences []sequence) bool {
	out, pos, literals, literal, dictionary := x.out, x.pos, x.literals, x.literal, x.dictionary
	start, last, safe := x.start, x.last, min(x.end, len(out)-overshoot)
	for i := range sequences {
		s := &sequences[i]
		n, m, offset := int(s.literals), int(s.match), int(s.offset)
		middle := pos + n
		end := middle + m
		at := middle - offset
		if literal+n > last || end > safe || offset < 16 || m >= longMatch || at < start-len(dictionary) {
			goto careful
		}
		if at >= start {
			wide(out, pos, middle, literals, literal)
			wide(out, middle, end, out, at)
		} else {
			if at += len(dictionary) - start; at+m > len(dictionary)-overshoot {
				goto careful
			}
			wide(out, pos, middle, literals, literal)
			wide(out, middle, end, dictionary, at)
		}
		pos = end
		literal += n
		continue
	careful:
		x.pos, x.literal = pos, literal
		if !x.careful(s) {
			return false
		}
		pos, literal = x.pos, x.literal
	}
	x.pos, x.literal = pos, literal
	return true
}

// careful executes a sequence without a byte more, wherever its match is, if it fits.
func (x *execution) careful(s *sequence) bool {
	n, m := int(s.literals), int(s.match)
	if n > x.last-x.literal || n+m > x.end-x.pos {
		return false
	}
	x.pos += copy(x.out[x.pos:x.pos+n], x.literals[x.literal:])
	x.literal += n
	if s.offset == 0 || uint64(s.offset) > uint64(x.pos-x.start+len(x.dictionary)) {
		return false
	}
	end := x.pos + m
	at := x.pos - int(s.offset)
	if at < x.start {
		x.pos += copy(x.out[x.pos:end], x.dictionary[at-x.start+len(x.dictionary):])
		at = x.start
	}
	for x.pos < end { // what is copied already repeats
		x.pos += copy(x.out[x.pos:end], x.out[at:x.pos])
	}
	return true
}
