// Package frame is the wire format of the values that bale stores: a short header in front of a
// compressed payload.
//
// [Parse] detects a frame and reads its header; [Header.Append] writes one. [Describe] explains a
// frame field by field. The package moves no payload and knows no compressor: that is the Packer's
// work.
//
// # Layout
//
//	 0        1        2        3        4
//	+--------+--------+--------+-----------------+
//	|  0xBA  |  0x1E  |  tag   |  check (16 bit) |
//	+--------+--------+--------+-----------------+
//	| checksum of the content (32 bit)           |   if tag.S
//	+--------------------------------------------+
//	| dictionary id (32 bit)                     |   if tag.D
//	+--------------------------------------------+
//	| decoded length (uvarint, 1 to 9 bytes)     |
//	+--------------------------------------------+
//	| payload                                    |
//	+--------------------------------------------+
//	| trailer, to the end of the value           |   from version 2 on
//	+--------------------------------------------+
//
//	tag:  7 6   5   4   3 2 1 0
//	     |ver | D | S |algorithm|
//
// All fixed-width integers are little endian.
//
//   - The first byte, 0xBA, is a UTF-8 continuation byte: no text and no JSON
//     starts with it.
//   - ver is the version minus one: 00 is version 1, 01 is version 2.
//   - check covers the magic, the tag, and everything from byte 5 to the end of the
//     length. It is the CRC-32C of those bytes, its upper half exclusive-or its lower half. With
//     the 16 bits of the magic, random bytes pass for a frame with a chance
//     below 2^-32. A reader decides by the header alone whether a value is a
//     frame; what is not is foreign: stored without bale, handed back untouched.
//   - checksum is the CRC-32C of the decoded content (not of the payload), so
//     that a wrong dictionary, a flipped bit and a cut value are all found out
//     after decoding, by one comparison.
//   - dictionary id names the dictionary by its content: the same id always means the
//     same bytes. It is never zero: a header with a zero here is not valid.
//   - the length is that of the decoded content. It bounds what a reader
//     allocates, before it decodes anything. A uvarint is the base-128 number
//     of protocol buffers, in its shortest form only.
//
// # Payloads
//
// The payload is the algorithm's standard format, so that a reader in another language needs only
// that algorithm's stock library. The algorithms' numbers are stored 0, snappy 1, s2 2, lz4 3,
// gzip 4, zstd 5 and chunks 6; 7 to 15 are unknown.
//
//	stored   the content itself (used to escape content that starts with BA 1E)
//	snappy   a Snappy block. A block starts with its decoded length as a uvarint,
//	         the very field that ends our header: both are one, written once. The
//	         block therefore starts at the length field.
//	s2       an S2 block, which starts at the length field likewise. Its dictionary is
//	         the last 64 KiB of the dictionary's bytes, whatever they are. The first repeat
//	         offset is their number, so it leads to the first of them
//	         (s2.MakeDictManual(bytes, 0) of github.com/klauspost/compress).
//	lz4      an LZ4 block. Its dictionary is the last 64 KiB of the dictionary's bytes, whatever
//	         they are.
//	gzip     a gzip member (RFC 1952).
//	zstd     a Zstandard frame (RFC 8878) without its magic number and without a
//	         Dictionary_ID, which the header above already carries: put
//	         28 B5 2F FD in front and decode. Its dictionary is used as the zstd tools
//	         use one: a trained dictionary if it starts with 37 A4 30 EC, plain
//	         content otherwise.
//	chunks   a manifest (package stream): the value is larger than one key should be, and its
//	         chunks are in other keys. A reader of single values can only report this. The
//	         length in the header is that of the manifest.
//
// The payload of n decoded bytes has at most n + n/6 + 1 KiB, which no encoder of these formats
// exceeds. It counts from the end of the length to the trailer. A reader refuses a larger one.
//
// A payload is whole: nothing follows the block, the one gzip member or the one Zstandard frame,
// not even an empty or a skippable frame. A Zstandard frame may state its content's size, which
// must be the header's length. A library that allocates what the frame states gets a buffer of the
// header's length, or a frame whose size field the reader has set to it. Content of no bytes is
// stored, so a reader may refuse a compressed payload of that length.
//
// # Trailers
//
// A frame of version 2 has a trailer behind the payload, and is otherwise a frame of version 1. The
// trailer describes the value, and is no part of its content. Its last three bytes are its kind and
// a check. A reader looks at the kind first: it does not know the size of another one, nor its
// check. There is one kind so far:
//
//	 0                          6                8       9       11
//	+--------------------------+----------------+-------+-------+
//	| expires (48 bit)         | took (16 bit)  |  0x01 | check |
//	+--------------------------+----------------+-------+-------+
//
// Its fields:
//
//   - expires is when the value must be loaded again from its source, in milliseconds since 1970, 0
//     for never. It may stay in Redis longer, for the case that the load fails.
//   - took is how many milliseconds the load took, at most 65,534. 65,535 is a cached miss: the
//     source had no value. The content is empty then.
//   - check is made like the header's, over the 9 bytes before it.
//
// # Reading
//
// A reader takes these steps, in this order, so that all readers report the same:
//
//  1. A value without a valid header, which has at least 6 bytes, is foreign. A strict reader takes
//     one that starts with BA 1E for corrupt.
//  2. Version 2: a trailer of another kind than 1 is an unknown algorithm. One with a wrong check, or
//     without room for its bytes, is corrupt. A cached miss is not found, and ends here: its length,
//     algorithm and payload are not looked at.
//  3. A length above the reader's limit is too large. 64 MiB is usual.
//  4. A later version, of which the reader parses the header alone, an unknown algorithm and chunks
//     are an unknown algorithm.
//  5. A payload above its bound is corrupt.
//  6. A dictionary that the reader cannot get is an unknown dictionary. Only s2, lz4 and zstd take
//     one: with another algorithm any id is unknown.
//  7. The payload must decode to the length, and match the checksum. Otherwise it is corrupt.
//
// Libraries differ in the redundant bits that they look at. So without a checksum, readers may
// differ between corrupt and content. With one, the content is right all the same.
//
// A dictionary has 16 bytes to 1 MiB. Its id is the first 32 bits of the SHA-256 of its bytes,
// little endian, or the next 32 if these are zero. A registry (package dict) keeps it in Redis
// under bale:dict:data:ID, and after its removal under bale:dict:quarantine:ID. There the id has 8
// lower-case hexadecimal digits.
//
// Whether an expired value counts is up to the reader. bale.Cache.Get reports it as missing.
//
// # What a frame costs
//
// A frame adds 9 bytes and the length to the bare payload. The length takes 1 byte below 128, 2
// below 16 KiB, and 3 below 2 MiB. For each algorithm, in bytes:
//
//   - snappy and s2: 9 at any size, because their payload contains the length.
//   - zstd: 6 to 8, because a frame leaves out 4 bytes of magic.
//   - lz4 and gzip: 10 to 12.
//
// A dictionary id adds 4, and zstd saves up to 4 of these in its own frame. Without the checksum a
// frame is 4 bytes smaller. A trailer of version 2 adds 11.
//
// # Compatibility
//
// Versions and algorithms are appended, never changed: every later reader reads every vector in
// testdata.
package frame

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/bits"
)

const (
	magic0 = 0xBA
	magic1 = 0x1E

	tagVersionShift = 6
	tagDictionary   = 1 << 5
	tagChecksum     = 1 << 4
	tagAlgorithm    = 0x0F

	fixedSize      = 5 // magic, tag, check
	checkOffset    = 3
	checksumSize   = 4
	dictionarySize = 4
)

// MaxHeaderSize is the size in bytes of the longest possible header.
const MaxHeaderSize = fixedSize + checksumSize + dictionarySize + 9

// Version numbers the layouts of a frame, from 1 to 4. Magic, tag, check and the fields under the
// check have the same place in all of them. So every reader recognises every frame, and can report
// a version that is too new for it.
type Version uint8

const (
	// V1 is the first layout: everything in the package comment except the trailer.
	V1 Version = 1

	// V2 adds a trailer: see [Freshness].
	V2 Version = 2
)

// Header is the part of a frame before the payload.
type Header struct {
	Version   Version   // zero is written as V1
	Algorithm Algorithm // decodes the payload

	// DictionaryID names the dictionary that the payload was compressed with;
	// zero for none.
	DictionaryID DictionaryID

	// HasChecksum says whether Checksum is there: see [Checksum].
	HasChecksum bool
	Checksum    uint32

	// Length is the size of the decoded content in bytes, at most 2^63-1.
	Length uint64
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// HasMagic reports whether b starts with the two magic bytes. All frames do, and by chance one in
// 65,536 of random values; no text does.
func HasMagic[B []byte | string](b B) bool {
	return len(b) >= 2 && b[0] == magic0 && b[1] == magic1
}

// PayloadOffset is the number of bytes before the payload of a frame with this header: the bytes
// that Append writes.
func (h Header) PayloadOffset() int {
	n := fixedSize
	if h.HasChecksum {
		n += checksumSize
	}
	if h.DictionaryID != 0 {
		n += dictionarySize
	}
	if !h.Algorithm.LengthInPayload() {
		n += uvarintLen(h.Length)
	}
	return n
}

// Append appends the header to dst; the payload must follow. For an algorithm whose payload starts
// with the length ([Algorithm.LengthInPayload]) it does not write the length, but the check covers
// it.
func (h Header) Append(dst []byte) []byte {
	start := len(dst)
	tag := byte(h.Algorithm) & tagAlgorithm
	if h.Version > V1 {
		tag |= byte(h.Version-V1) << tagVersionShift
	}
	if h.HasChecksum {
		tag |= tagChecksum
	}
	if h.DictionaryID != 0 {
		tag |= tagDictionary
	}
	dst = append(dst, magic0, magic1, tag, 0, 0)
	if h.HasChecksum {
		dst = binary.LittleEndian.AppendUint32(dst, h.Checksum)
	}
	if h.DictionaryID != 0 {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(h.DictionaryID))
	}
	beforeLength := len(dst)
	dst = binary.AppendUvarint(dst, h.Length)
	binary.LittleEndian.PutUint16(dst[start+checkOffset:], check(dst[start:]))
	if h.Algorithm.LengthInPayload() {
		dst = dst[:beforeLength]
	}
	return dst
}

// Parse reads the header at the start of b and returns it with the offset of the payload in b. It
// reports false for anything that is not a frame. It does not look at the payload. The version and
// the algorithm may be unknown to this package ([Header.Known]): the value is still a frame, not a
// plain value.
func Parse(b []byte) (h Header, offset int, ok bool) {
	if len(b) <= fixedSize || b[0] != magic0 || b[1] != magic1 {
		return Header{}, 0, false
	}
	tag := b[2]
	h.Version = V1 + Version(tag>>tagVersionShift)
	h.Algorithm = Algorithm(tag & tagAlgorithm)
	n := fixedSize
	if tag&tagChecksum != 0 {
		if len(b) < n+checksumSize {
			return Header{}, 0, false
		}
		h.HasChecksum = true
		h.Checksum = binary.LittleEndian.Uint32(b[n:])
		n += checksumSize
	}
	if tag&tagDictionary != 0 {
		if len(b) < n+dictionarySize {
			return Header{}, 0, false
		}
		h.DictionaryID = DictionaryID(binary.LittleEndian.Uint32(b[n:]))
		if h.DictionaryID == 0 {
			return Header{}, 0, false
		}
		n += dictionarySize
	}
	length, size := binary.Uvarint(b[n:])
	if size <= 0 || size != uvarintLen(length) || length > math.MaxInt64 {
		return Header{}, 0, false
	}
	h.Length = length
	if check(b[:n+size]) != binary.LittleEndian.Uint16(b[checkOffset:]) {
		return Header{}, 0, false
	}
	if !h.Algorithm.LengthInPayload() {
		n += size
	}
	return h, n, true
}

// Known reports whether this package knows the header's version and algorithm, and so the format of
// the payload.
func (h Header) Known() bool { return h.Version <= V2 && h.Algorithm.Known() }

// check computes the check over a header, skipping the place of the check itself.
func check(header []byte) uint16 {
	c := updateShort(afterTag[header[checkOffset-1]], header[fixedSize:])
	return uint16(c>>16) ^ uint16(c)
}

// afterTag is the CRC of the magic and each tag: a call less for each value.
var afterTag = func() (table [256]uint32) {
	for tag := range table {
		table[tag] = crc32.Checksum([]byte{magic0, magic1, byte(tag)}, castagnoli)
	}
	return table
}()

func uvarintLen(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }
