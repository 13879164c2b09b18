package compress

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/klauspost/compress/s2"
)

// appendBlock appends the block that encode makes of src. It allocates nothing if dst has room for
// s2.MaxEncodedLen(len(src)) bytes more. (The functions of klauspost replace dst.)
func appendBlock(dst, src []byte, encode func(dst, src []byte) []byte) ([]byte, error) {
	bound := s2.MaxEncodedLen(len(src))
	if bound < 0 {
		return dst, fmt.Errorf("a block holds at most %d bytes, not %d", s2.MaxBlockSize, len(src))
	}
	n := len(dst)
	dst = slices.Grow(dst, bound)
	// Some encoders look at the length of their buffer, some at its capacity: both are limited.
	return dst[:n+len(encode(dst[n:n+bound:n+bound], src))], nil
}

// s2Expansion is how many bytes one byte of a block can decode to without S2's repeats: a copy of
// 64 bytes takes 3.
const s2Expansion = 22

// decodeBlock appends the content of a block, which must be size bytes long. decode uses a
// dictionary of dict bytes.
func decodeBlock(dst, block []byte, size, dict int, decode func(dst, src []byte) ([]byte, error)) ([]byte, error) {
	n, err := s2.DecodedLen(block)
	if err != nil {
		return dst, err
	}
	if n != size {
		return dst, fmt.Errorf("block holds %d bytes, %d expected", n, size)
	}
	// A plausible length is allocated at once. Five bytes can be a repeat of 16 MiB: a larger claim
	// is checked element by element first.
	if cap(dst)-len(dst) < size && size/s2Expansion > len(block) && !holdsS2(block, size, dict) {
		return dst, fmt.Errorf("block of %d bytes does not hold %d", len(block), size)
	}
	dst = slices.Grow(dst, size)
	at := len(dst)
	if _, err := decode(dst[at:at:at+size], block); err != nil {
		return dst, err
	}
	return dst[:at+size], nil
}

// holdsS2 reports whether a block decodes to size bytes, exactly like the decoder. The elements are
// those of Snappy's format_description.txt, and S2's repeat. A repeat is a copy with a 1-byte
// offset of zero. If its length is 5 to 7, the rest of the length follows in 1 to 3 bytes. The
// first repeat has the dictionary's size as its offset.
func holdsS2(block []byte, size, dict int) bool {
	_, n := binary.Uvarint(block)
	b := block[n:]
	total, offset := 0, dict
	for len(b) > 0 {
		head, length := 1, 0 // of the element: its own bytes, and those that it stands for
		kind, x := b[0]&3, int(b[0]>>2)
		switch kind {
		case 0:
			if x >= 60 {
				head += x - 59
				x = int(little(b, 1, x-59))
			}
			length = x + 1
			head += length
		case 1:
			head, length = 2, 4+x&7
			if to := int(b[0])&0xe0<<3 | int(little(b, 1, 1)); to > 0 {
				offset = to
			} else if x&7 >= 5 {
				extra := x&7 - 4
				length = 4 + int(little(b, 2, extra)) + [...]int{4, 1 << 8, 1 << 16}[extra-1]
				head += extra
			}
		case 2:
			head, length, offset = 3, x+1, int(little(b, 1, 2))
		case 3:
			head, length, offset = 5, x+1, int(little(b, 1, 4))
		}
		if head > len(b) || head < 1 || length > size-total { // a literal beyond what an int holds
			return false
		}
		if kind != 0 && !s2Copies(total, offset, length, dict) {
			return false
		}
		b = b[head:]
		total += length
	}
	return total == size
}

// s2Copies reports whether a copy is valid at a position: from the content before it, or from
// within the dictionary.
func s2Copies(at, offset, length, dict int) bool {
	if offset <= at {
		return offset > 0
	}
	start := dict - offset + at
	return at <= s2.MaxDictSrcOffset && start >= 0 && start+length <= dict
}

// little is the little-endian number of n bytes at b[at]; those beyond the end are zero.
func little(b []byte, at, n int) (v uint32) {
	for i, c := range b[min(at, len(b)):min(at+n, len(b))] {
		v |= uint32(c) << (8 * i)
	}
	return v
}
