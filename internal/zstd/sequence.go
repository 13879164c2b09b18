package zstd

// A sequence has three codes, each with an FSE table and extra bits of its own.
const (
	literalCode = iota // how many literals precede the match
	offsetCode
	matchCode // the length of the match
	sequenceCodes
)

// maxSymbols and maxTableLog are the largest of those below.
const (
	maxSymbols  = 53
	maxTableLog = 9
)

// codes are the limits of the three codes' tables, RFC 8878, 3.1.1.3.2.1. Offset code 31, which
// only libzstd has, would be for offsets of 2 GiB and more.
var codes = [sequenceCodes]struct {
	name       string
	symbols    int
	maxLog     uint8
	predefined distribution
}{
	literalCode: {"literal lengths", 36, 9, distribution{log: 6, symbols: 36, counts: [maxSymbols]int16{
		4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1,
	}}},
	offsetCode: {"offsets", 31, 8, distribution{log: 5, symbols: 29, counts: [maxSymbols]int16{
		1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1,
	}}},
	matchCode: {"match lengths", 53, 9, distribution{log: 6, symbols: 53, counts: [maxSymbols]int16{
		1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
		1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1,
	}}},
}

// A code stands for the values from its base, as far as its extra bits reach.
var (
	literalBases, literalBits = bases(0, 16, []uint8{1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16})
	matchBases, matchBits     = bases(minMatch, 32, []uint8{1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16})
)

// minMatch is the format's shortest match.
const minMatch = 3

// bases counts up from the base of the first code. The first plain codes have no extra bits, and
// those after them the given ones.
func bases(base uint32, plain int, extra []uint8) (bases [maxSymbols]uint32, bits [maxSymbols]uint8) {
	copy(bits[plain:], extra)
	for code := range plain + len(extra) {
		bases[code] = base
		base += 1 << bits[code]
	}
	return bases, bits
}
