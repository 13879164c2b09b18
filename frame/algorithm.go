package frame

import (
	"fmt"
	"strconv"
)

// Algorithm is enough to decode a payload, and no more. A level is a setting of the writer and no
// part of it.
type Algorithm uint8

// The numbers are part of the format: appended, never changed. There is room for 16.
const (
	Stored Algorithm = 0 // the content as it is
	Snappy Algorithm = 1
	S2     Algorithm = 2
	LZ4    Algorithm = 3
	Gzip   Algorithm = 4
	Zstd   Algorithm = 5
	Chunks Algorithm = 6 // the payload says which other keys have the content
)

var names = [...]string{Stored: "none", Snappy: "snappy", S2: "s2", LZ4: "lz4", Gzip: "gzip", Zstd: "zstd", Chunks: "chunks"}

// Known reports whether the package knows the algorithm.
func (a Algorithm) Known() bool { return int(a) < len(names) }

// LengthInPayload reports whether the algorithm's own format starts with the decoded length
// as a uvarint, so that the header's last field is the payload's first.
func (a Algorithm) LengthInPayload() bool { return a == Snappy || a == S2 }

// String is the name of the algorithm, as [ParseAlgorithm] takes it.
func (a Algorithm) String() string {
	if a.Known() {
		return names[a]
	}
	return "algorithm " + strconv.Itoa(int(a))
}

// ParseAlgorithm is the inverse of [Algorithm.String] for the algorithms that are known.
func ParseAlgorithm(s string) (Algorithm, error) {
	for a, name := range names {
		if s == name {
			return Algorithm(a), nil
		}
	}
	return 0, fmt.Errorf("frame: no algorithm is called %q; there are %q", s, names)
}
