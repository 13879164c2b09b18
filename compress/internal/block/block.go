// Package block adapts the block functions of klauspost's s2, which replace dst, to
// bale's, which append to it. Packages snappy and s2 share it.
package block

import (
	"encoding/binary"
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

// maxExpansion is how many bytes one of a block can stand for unless S2's repeats are in it: a copy of 64 bytes takes 3.
const maxExpansion = 22

// Decode appends the content of a block, which must be size bytes long, as decode finds it.
func Decode(dst, block []byte, size int, decode func(dst, src []byte) ([]byte, error)) ([]byte, error) {
	n, err := s2.DecodedLen(block)
	if err != nil {
		return dst, err
	}
	if n != size {
		return dst, fmt.Errorf("block holds %d bytes, %d expected", n, size)
	}
	// What a block says of its length is believed before anything is allocated for it only as far as copies go. Five bytes can be
	// a repeat of 16 MiB, so that beyond that its elements are counted.
	if cap(dst)-len(dst) < size && size/maxExpansion > len(block) && !holds(block, size) {
		return dst, fmt.Errorf("block of %d bytes does not hold %d", len(block), size)
	}
	dst = slices.Grow(dst, size)
	at := len(dst)
	if _, err := decode(dst[at:at:at+size], block); err != nil {
		return dst, err
	}
	return dst[:at+size], nil
}

// holds reports whether the elements of a block make size bytes, by their lengths alone. They are those of Snappy's
// format_description.txt, and S2's repeat: a copy of 1-byte offset whose offset is zero, where a length of 5 to 7 says that 1 to 3
// bytes with the rest of it follow.
func holds(block []byte, size int) bool {
	_, n := binary.Uvarint(block)
	b := block[n:]
	total := 0
	for len(b) > 0 && total <= size {
		head, length := 1, 0 // of the element: its own bytes, and those that it stands for
		switch x := int(b[0] >> 2); b[0] & 3 {
		case 0:
			if x >= 60 {
				head += x - 59
				x = int(little(b, 1, x-59))
			}
			length = x + 1
			head += length
		case 1:
			head, length = 2, 4+x&7
			if b[0]&0xe0 == 0 && len(b) > 1 && b[1] == 0 && x&7 >= 5 {
				extra := x&7 - 4
				length = 4 + int(little(b, 2, extra)) + [...]int{4, 1 << 8, 1 << 16}[extra-1]
				head += extra
			}
		case 2:
			head, length = 3, x+1
		case 3:
			head, length = 5, x+1
		}
		if head > len(b) || head < 1 { // a literal beyond what an int holds
			return false
		}
		b = b[head:]
		total += length
	}
	return total == size
}

// little is the little-endian number of n bytes at b[at]; those beyond the end are zero.
func little(b []byte, at, n int) (v uint32) {
	for i, c := range b[min(at, len(b)):min(at+n, len(b))] {
		v |= uint32(c) << (8 * i)
	}
	return v
}
