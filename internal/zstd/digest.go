package zstd

import "math/bits"

// Level trades time to encode for size. All levels decode alike.
type Level uint8

const (
	// Default is as fast as libzstd's level 3, and smaller.
	Default Level = iota

	// Fast takes 5 to 20% less time where there are few long matches, and is up to 13% larger.
	Fast

	// Better weighs each match against the next ones, as libzstd's level 9 does.
	Better

	// Best weighs all matches against each other by what they cost in bits.
	Best
)

// fastPatience is that of the level Fast, which takes no short matches from the dictionary.
const fastPatience = 4

// Digest is a dictionary that is ready to encode with at a level. It is immutable and safe for
// concurrent use: all contexts share it. It refers to the dictionary's content.
type Digest struct {
	content []byte
	offsets [3]uint32
	tables  tables

	// find fills the sequences and literals of an Encoder for a part of a value. It returns where it
	// stopped.
	find func(e *Encoder, src []byte, from, to int) int

	// From these numbers on, tables of a block's own are tried.
	manyLiterals, manySequences int

	// Of the levels Default and Fast.
	long, short dictionaryTable
	farthest    [8]uint8 // by match length: the largest offset that pays, as its code
	patience    uint8    // after 1<<patience bytes without a match every other position is looked at

	best *bestDigest // of the levels Better and Best
}

// NewDigest prepares a dictionary, nil for none, for a level.
func NewDigest(d *Dictionary, level Level) *Digest {
	g := &Digest{offsets: startOffsets}
	if d != nil {
		g.content, g.offsets = d.content, d.offsets
		g.content = g.content[max(len(g.content)-maxContent, 0):]
		if d.tables {
			g.tables.literals = new(huffEncoder)
			g.tables.literals.prepare(&d.literals)
			for code := range g.tables.codes {
				g.tables.codes[code] = new(fseEncoder)
				g.tables.codes[code].prepare(&d.distributions[code])
			}
			g.tables.complete = g.tables.codes[literalCode].has(literalLength(blockSize)) &&
				g.tables.codes[matchCode].has(matchLength(blockSize)) &&
				g.tables.codes[offsetCode].has(offsetSize(uint32(len(g.content)+MaxSize)))
		}
	}
	g.manyLiterals, g.manySequences = manyLiterals, manySequences
	switch level {
	case Best, Better:
		g.best = newBestDigest(g.content, &g.tables)
		if g.find = g.findLazy; level == Best {
			g.find = g.findBest
			g.manyLiterals, g.manySequences = 64, 16
		}
		return g
	}
	g.find = g.findFirst
	if g.patience = 8; level == Fast {
		g.patience = fastPatience
	}
	g.farthest = g.tables.farthest()
	g.long.fill(g.content, 8)
	if level != Fast {
		g.short.fill(g.content, shortHash)
	}
	return g
}

// tagBits of an entry tell most of the positions with another hash without a look at the content.
// The others are the position, which bounds the content.
const (
	tagBits    = 8
	maxContent = 1<<(32-tagBits) - 1
)

// dictionaryTable has the last position of each hash in the dictionary's content, above its tag.
type dictionaryTable struct {
	entries []uint32
	shift   uint8 // a hash shifted by it is the index, and below that the tag
}

// fill adds all positions. The table has one to two entries for each, and from 32 KiB on half of
// that, at most 1<<18: the processor's caches matter more.
func (t *dictionaryTable) fill(content []byte, length int) {
	log := bits.Len(uint(len(content)))
	log = max(min(log, 15), min(log-1, 18), 4)
	t.entries = make([]uint32, 1<<log)
	t.shift = uint8(64 - log - tagBits)
	for i := range len(content) - 7 {
		h := hash(load64(content, i), length) >> t.shift
		t.entries[h>>tagBits] = uint32(i+1)<<tagBits | uint32(h&(1<<tagBits-1))
	}
}

// shortHash is how many bytes the table of short matches looks at.
const shortHash = 5

// hash mixes the first bytes of v into the high bits.
func hash(v uint64, length int) uint64 {
	return v << (8 * (8 - length)) * multiplier
}

const multiplier = 0x9E3779B185EBCA87

// farthest weighs the mean literal against short matches.
func (t *tables) farthest() (codes [8]uint8) {
	literal, tables := t.meanLiteral(), t.codesOrPredefined()
	for n := minMatch; n < len(codes); n++ {
		price := tables[matchCode].prices[matchLength(uint32(n))] + tables[literalCode].prices[1]
		for code := range uint32(32) {
			if price+tables[offsetCode].prices[code]+code*priceUnit <= uint32(n)*literal {
				codes[n] = uint8(code)
			}
		}
	}
	return codes
}

// meanLiteral is the price of a literal of a mean value.
func (t *tables) meanLiteral() uint32 {
	if t.literals == nil {
		return 6 * priceUnit
	}
	sum := uint32(0)
	for _, c := range t.literals.codes {
		if n := c & lengthMask; n > 0 {
			sum += n * priceUnit << maxHuffmanLog >> n
		}
	}
	return sum >> maxHuffmanLog
}

// codesOrPredefined are the tables that a first block most likely uses.
func (t *tables) codesOrPredefined() [sequenceCodes]*fseEncoder {
	codes := t.codes
	for code, table := range codes {
		if table == nil {
			codes[code] = predefinedEncoders[code]
		}
	}
	return codes
}
