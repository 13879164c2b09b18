package msgpack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math/bits"

	"github.com/balekv/bale/extra/formats"
)

// scanner walks through a value as the specification lays it out
// (https://github.com/msgpack/msgpack/blob/master/spec.md), so that the library meets only lengths
// that are there.
type scanner struct {
	src      []byte
	off      int
	payloads []int // where the content of each extension starts
}

// scan checks that src is one value, whole and at most depth deep, and appends the offsets of its
// extensions' content to payloads.
func scan(src []byte, depth int, payloads []int) ([]int, error) {
	s := scanner{src, 0, payloads}
	if err := s.value(depth); err != nil {
		if errors.Is(err, formats.ErrLimit) {
			err = fmt.Errorf("%w: arrays and maps nest deeper than MaxDepth, %d", err, depth)
		}
		return s.payloads, fmt.Errorf("msgpack: %w", err)
	}
	if left := len(src) - s.off; left > 0 {
		return s.payloads, trailing(left)
	}
	return s.payloads, nil
}

var errCut = fmt.Errorf("cut, or a length is wrong: %w", io.ErrUnexpectedEOF)

// value passes one value, which may nest depth deep.
func (s *scanner) value(depth int) error {
	if s.off >= len(s.src) {
		return errCut
	}
	c := s.src[s.off]
	s.off++
	switch {
	case c <= 0x7f || c >= 0xe0: // small integers
		return nil
	case c <= 0x8f:
		return s.children(2*uint64(c&0x0f), depth)
	case c <= 0x9f:
		return s.children(uint64(c&0x0f), depth)
	case c <= 0xbf:
		return s.skip(uint64(c & 0x1f))
	}
	switch c {
	case 0xc0, 0xc2, 0xc3: // nil, false, true
		return nil
	case 0xc4, 0xc5, 0xc6: // bin 8, 16, 32
		return s.sized(1<<(c-0xc4), s.skip)
	case 0xc7, 0xc8, 0xc9: // ext 8, 16, 32
		return s.sized(1<<(c-0xc7), s.extension)
	case 0xca, 0xcb: // float 32, 64
		return s.skip(4 << (c - 0xca))
	case 0xcc, 0xcd, 0xce, 0xcf: // uint 8 to 64
		return s.skip(1 << (c - 0xcc))
	case 0xd0, 0xd1, 0xd2, 0xd3: // int 8 to 64
		return s.skip(1 << (c - 0xd0))
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8: // fixext 1 to 16
		return s.extension(1 << (c - 0xd4))
	case 0xd9, 0xda, 0xdb: // str 8, 16, 32
		return s.sized(1<<(c-0xd9), s.skip)
	case 0xdc, 0xdd: // array 16, 32
		return s.sized(2<<(c-0xdc), func(n uint64) error { return s.children(n, depth) })
	case 0xde, 0xdf: // map 16, 32
		return s.sized(2<<(c-0xde), func(n uint64) error { return s.pairs(n, depth) })
	}
	return fmt.Errorf("byte 0x%x starts no value", c)
}

// sized reads a length of 1, 2 or 4 bytes and goes on with it.
func (s *scanner) sized(width int, next func(uint64) error) error {
	if width > len(s.src)-s.off {
		return errCut
	}
	var n uint64
	switch b := s.src[s.off:]; width {
	case 1:
		n = uint64(b[0])
	case 2:
		n = uint64(binary.BigEndian.Uint16(b))
	case 4:
		n = uint64(binary.BigEndian.Uint32(b))
	}
	s.off += width
	return next(n)
}

func (s *scanner) skip(n uint64) error {
	if n > uint64(len(s.src)-s.off) {
		return errCut
	}
	s.off += int(n)
	return nil
}

// extension passes the type and the n bytes of an extension.
func (s *scanner) extension(n uint64) error {
	if n == 0 {
		return errors.New("an extension without content") // whose place would be that of the value after it
	}
	if err := s.skip(1); err != nil {
		return err
	}
	s.payloads = append(s.payloads, s.off)
	return s.skip(n)
}

// children passes n values one level down.
func (s *scanner) children(n uint64, depth int) error {
	if depth == 0 {
		return formats.ErrLimit
	}
	if n > uint64(len(s.src)-s.off) { // each has a byte at least
		return errCut
	}
	for range n {
		if err := s.value(depth - 1); err != nil {
			return err
		}
	}
	return nil
}

// pairs is children for a map. The library makes room for n keys, which the map keeps even if all
// are the same: 40 bytes and more for each byte, that nobody can see. So about half of the keys
// must differ, unless they are long. It counts the hashes of a sample of 256 to 512 keys: a map
// within maps gets no memory on its word.
func (s *scanner) pairs(n uint64, depth int) error {
	if depth == 0 || 2*n > uint64(len(s.src)-s.off) {
		return s.children(2*n, depth)
	}
	var seen [1024 / 64]uint64
	differ, part := uint64(0), bits.Len64(n/512) // one key of 2^part
	for range n {
		start := s.off
		if err := s.value(depth - 1); err != nil {
			return err
		}
		if h := s.keyHash(start); h<<(64-part) == 0 {
			bit := h >> 54 // the ten highest
			differ += ^seen[bit/64] >> (bit % 64) & 1
			seen[bit/64] |= 1 << (bit % 64)
		}
		if err := s.value(depth - 1); err != nil {
			return err
		}
	}
	if differ < n>>part/2 {
		return fmt.Errorf("a map of %d keys, most of which are the same", n)
	}
	return nil
}

// maxHashed is the longest key in bytes that counts by its content. A longer one takes more bytes
// than its room in the map. A key may be a map with such a key in turn, and so on: each byte would
// be hashed as often as there are levels.
const maxHashed = 64

// keyHash is a hash of the key from start to here; of a long one, of its place.
func (s *scanner) keyHash(start int) uint64 {
	if s.off-start > maxHashed {
		return maphash.Comparable(seed, start)
	}
	return maphash.Bytes(seed, s.src[start:s.off])
}

var seed = maphash.MakeSeed()

// reader hands a scanned value to the library. The library usually reads an extension's content by
// Read. If it takes the extension for the head of a map, it reads the content by ReadByte. Then it
// parses the content as the map, with lengths that the scanner has not seen. So ReadByte refuses to
// read the first byte of a content.
type reader struct {
	src      []byte
	off      int
	payloads []int // ascending; those before off may be gone
}

var errExtension = errors.New("msgpack: an extension where a map or an interned string is read")

func (r *reader) ReadByte() (byte, error) {
	if r.off >= len(r.src) {
		return 0, io.ErrUnexpectedEOF
	}
	for len(r.payloads) > 0 && r.payloads[0] < r.off {
		r.payloads = r.payloads[1:]
	}
	if len(r.payloads) > 0 && r.payloads[0] == r.off {
		return 0, errExtension
	}
	r.off++
	return r.src[r.off-1], nil
}

func (r *reader) UnreadByte() error {
	r.off--
	return nil
}

func (r *reader) Read(p []byte) (int, error) {
	if r.off >= len(r.src) && len(p) > 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n := copy(p, r.src[r.off:])
	r.off += n
	return n, nil
}
