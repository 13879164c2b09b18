// Package block adapts the block functions of klauspost's s2, which replace dst, to
// bale's, which append to it. Packages snappy and s2 share it.
package block

import (
	"fmt"
	"slices"

	"github.com/klauspost/compress/s2"
)

// Append appends the block that encode makes of src.
func Append(dst, src []byte, encode func(dst, src []byte) []byte) ([]byte, error) {
	bound := s2.MaxEncodedLen(len(src))
	if bound < 0 {
		return dst, fmt.Errorf("a block holds at most %d bytes, not %d", s2.MaxBlockSize, len(src))
	}
	n := len(dst)
	dst = slices.Grow(dst, bound)
	// Some encoders look at the length of what they are given, some at its capacity: both are bound.
	return dst[:n+len(encode(dst[n:n+bound:n+bound], src))], nil
}

// Decode appends the content of a block, which must be size bytes long, as decode finds it.
func Decode(dst, block []byte, size int, decode func(dst, src []byte) ([]byte, error)) ([]byte, error) {
	n, err := s2.DecodedLen(block)
	if err != nil {
		return dst, err
	}
	if n != size {
		return dst, fmt.Errorf("block holds %d bytes, %d expected", n, size)
	}
	dst = slices.Grow(dst, size)
	at := len(dst)
	if _, err := decode(dst[at:at:at+size], block); err != nil {
		return dst, err
	}
	return dst[:at+size], nil
}
