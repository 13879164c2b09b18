// Package block adapts the block functions of klauspost's s2, which replace dst, to
// bale's, which append to it. Packages snappy and s2 share it.
package block

import (
	"errors"
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

var errLength = errors.New("block does not hold the length it should")

// CheckLength verifies that block says that it decodes to size bytes.
func CheckLength(block []byte, size int) error {
	n, err := s2.DecodedLen(block)
	if err != nil {
		return err
	}
	if n != size {
		return errLength
	}
	return nil
}
