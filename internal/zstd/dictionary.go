package zstd

import (
	"encoding/binary"
	"fmt"
)

// dictionaryMagic starts a dictionary of zstd's trainer.
const dictionaryMagic = 0xEC30A437

// Dictionary is what values have in common, ready for use. It is immutable and safe for concurrent
// use, and shared by all contexts that encode or decode with it. A nil Dictionary is none.
type Dictionary struct {
	id      uint32 // zero without tables
	content []byte
	offsets [3]uint32 // the repeat offsets at a frame's start

	// tables reports whether the dictionary is in the trainer's format, and so has those below.
	tables        bool
	literals      weights
	distributions [sequenceCodes]distribution
}

// startOffsets are the repeat offsets at the start of a frame without a trained dictionary.
var startOffsets = [3]uint32{1, 4, 8}

// NewDictionary reads a dictionary. It is in the format of zstd's trainer if it starts with 37 A4
// 30 EC, and plain content otherwise. The Dictionary refers to b: do not change it. The error of a
// damaged one is [ErrCorrupt].
func NewDictionary(b []byte) (*Dictionary, error) {
	d := &Dictionary{content: b, offsets: startOffsets}
	if len(b) < 8 || binary.LittleEndian.Uint32(b) != dictionaryMagic {
		return d, nil
	}
	d.tables = true
	d.id = binary.LittleEndian.Uint32(b[4:])
	b = b[8:]
	n, err := d.literals.read(b)
	if err != nil {
		return nil, fmt.Errorf("dictionary's table of literals: %w", err)
	}
	b = b[n:]
	for _, code := range [...]int{offsetCode, matchCode, literalCode} {
		n, err := d.distributions[code].read(b, codes[code].symbols, codes[code].maxLog)
		if err != nil {
			return nil, fmt.Errorf("dictionary's table of %s: %w", codes[code].name, err)
		}
		b = b[n:]
	}
	if len(b) < 4*len(d.offsets) {
		return nil, corrupt("dictionary is cut short")
	}
	d.content = b[4*len(d.offsets):]
	for i := range d.offsets {
		d.offsets[i] = binary.LittleEndian.Uint32(b[4*i:])
		if d.offsets[i] == 0 || uint64(d.offsets[i]) > uint64(len(d.content)) {
			return nil, corrupt("dictionary's repeat offset is outside of it")
		}
	}
	return d, nil
}
