// Package content classifies stored values. [Detect] names the format of a value. [Entropy] and
// [Common] measure how much a group of values could save. [ToMsgpack] and [ToCBOR] re-encode JSON,
// to show the size in another format. The bytes are untrusted: nothing panics, and no claimed
// length is allocated.
package content

import (
	"bytes"
	"encoding/binary"
	"slices"
	"unicode/utf8"

	"github.com/balekv/bale/frame"
)

// Kind is what a value is.
type Kind uint8

// The kinds. A format without a mark of its own is one of the last five: Text, Binary or Random as
// its bytes look, whatever wrote it.
const (
	Empty          Kind = iota // no bytes
	JSON                       // an object, an array, a quoted string, true, false or null
	Number                     // what INCR or INCRBYFLOAT work on: the digits of an int64, or a decimal number
	PHP                        // PHP's serialize, and PHP's sessions
	Igbinary                   // PHP's igbinary
	Java                       // Java's ObjectOutputStream
	Pickle                     // Python's pickle, from protocol 2 on; those before it are Text
	Ruby                       // Ruby's Marshal
	Msgpack                    // a map or an array of MessagePack
	CBOR                       // a map or an array of CBOR
	Protobuf                   // what parses as a protocol buffer's message, or something much like it
	GoRedisCache               // go-redis/cache: MessagePack, and a byte behind it
	GoRedisCacheS2             // the same, compressed
	Gzip                       // RFC 1952
	Zlib                       // RFC 1950
	Zstd                       // frames of RFC 8878, skippable ones in front of them included
	Snappy                     // a block or a framed stream
	S2                         // a block or a framed stream that Snappy cannot read
	LZ4                        // an LZ4 frame; a block has no mark
	Image                      // PNG, JPEG, GIF or WebP
	Bale                       // a frame of this project
	BaleStream                 // the key of a value that package stream keeps in chunks
	HyperLogLog                // what PFADD works on
	Text                       // UTF-8 without control characters, and none of the above
	Random                     // encrypted, or compressed by something without a mark; short arrays of floats may look so, too
	Binary                     // anything else
)

var names = [...]string{"empty", "JSON", "number", "PHP serialized", "igbinary", "Java serialized", "pickle", "Ruby Marshal", "msgpack", "CBOR", "protobuf-like",
	"go-redis/cache", "go-redis/cache with s2", "gzip", "zlib", "zstd", "snappy", "s2", "lz4", "image", "bale", "bale stream", "HyperLogLog", "text", "random", "binary"}

// String is the kind's name for people, as ParseKind takes it.
func (k Kind) String() string {
	if int(k) < len(names) {
		return names[k]
	}
	return names[Binary]
}

// ParseKind is the inverse of String. An unknown name returns Binary.
func ParseKind(name string) Kind {
	if i := slices.Index(names[:], name); i >= 0 {
		return Kind(i)
	}
	return Binary
}

// Compressed reports whether there is little to gain by compressing values of the kind: they are
// compressed already, or random.
func (k Kind) Compressed() bool {
	switch k {
	case GoRedisCacheS2, Gzip, Zlib, Zstd, Snappy, S2, LZ4, Image, Bale, Random:
		return true
	}
	return false
}

// Untouchable reports whether values of the kind must never be packed: Redis works inside of them
// (HyperLogLog), or bale itself does (Bale and BaleStream). Redis works inside of numbers, too, but
// those are too short to be packed.
func (k Kind) Untouchable() bool { return k == HyperLogLog || k == Bale || k == BaleStream }

// marks are what values of a kind start with, in bytes that no text has.
var marks = []struct {
	mark string
	kind Kind
}{
	{"\x28\xb5\x2f\xfd", Zstd},
	{"\x04\x22\x4d\x18", LZ4},
	{"\xff\x06\x00\x00sNaPpY", Snappy},
	{"\xff\x06\x00\x00S2sTwO", S2},
	{"\x89PNG\r\n\x1a\n", Image},
	{"\xff\xd8\xff", Image},
	{"\xac\xed\x00\x05", Java},
}

// Detect returns the format of v: a value, or, if whole is false, the first part of a longer one. A
// few KiB are enough.
//
// A format without a mark counts only if all of v parses as it and has structure. One byte is valid
// MessagePack, valid CBOR and an empty Snappy block, but Detect returns none of these. Valid text
// is text (or JSON, a number, PHP), even if it also parses as a short message of something else.
// Text in encodings other than UTF-8 is Binary, and so are gob, BSON, bare LZ4 and LZF.
//
// Random takes at least 64 bytes: fewer could still have a structure, and are Binary. It means that
// single bytes are spread evenly. So random bytes in base64 or hexadecimal digits are Text, which
// compresses to 3/4 or half its size.
//
// Detect takes time in proportion to v, and allocates next to nothing: for zlib some KB, whatever
// it decompresses to.
func Detect(v []byte, whole bool) Kind {
	if len(v) == 0 {
		return Empty
	}
	if k, ok := marked(v, whole); ok {
		return k
	}
	text := isText(v, whole)
	if k, ok := textual(v, whole, text); ok {
		return k
	}
	if text {
		return Text
	}
	for _, format := range [...]struct {
		is   func(v []byte, whole bool) bool
		kind Kind
	}{{isPickle, Pickle}, {isRuby, Ruby}, {isZlib, Zlib}} {
		if format.is(v, whole) {
			return format.kind
		}
	}
	// Before MessagePack: a block that is one literal holds what was compressed as it is, and two
	// bytes that may open an array around it.
	if k, ok := snappyBlock(v, whole); ok {
		return k
	}
	if last := len(v) - 1; whole && v[last] == goRedisS2 {
		if _, ok := snappyBlock(v[:last], true); ok {
			return GoRedisCacheS2
		}
	}
	end, ok := msgpackItem(v, whole)
	switch {
	case ok && end == len(v):
		return Msgpack
	case ok && whole && end == len(v)-1 && v[end] == goRedisPlain:
		return GoRedisCache
	}
	if end, ok := cborItem(v, whole); ok && end == len(v) {
		return CBOR
	}
	if isProtobuf(v, whole) {
		return Protobuf
	}
	if isRandom(v) {
		return Random
	}
	return Binary
}

// The suffixes with which go-redis/cache marks its values as compressed or not.
const (
	goRedisPlain = 0
	goRedisS2    = 1
)

// marked finds the formats that start with a mark.
func marked(v []byte, whole bool) (Kind, bool) {
	if h, _, ok := frame.Parse(v); ok {
		if h.Algorithm == frame.Chunks {
			return BaleStream, true
		}
		return Bale, true
	}
	for _, m := range marks {
		if len(v) > len(m.mark) && string(v[:len(m.mark)]) == m.mark {
			return m.kind, true
		}
	}
	switch {
	case len(v) > 5 && string(v[:4]) == "\x00\x00\x00\x02" && v[4] >= 0x11 && v[4] <= 0x19: // version 2; a string, an array or an object
		return Igbinary, true
	case len(v) >= 16 && string(v[:4]) == "HYLL" && v[4] <= 1 && v[5]|v[6]|v[7] == 0: // encoding, three unused
		return HyperLogLog, true
	case len(v) >= 10 && string(v[:3]) == "\x1f\x8b\x08" && v[3]&0xe0 == 0: // reserved flags
		return Gzip, true
	case len(v) >= 10 && (string(v[:6]) == "GIF87a" || string(v[:6]) == "GIF89a") && !isText(v, whole):
		return Image, true
	case len(v) >= 16 && string(v[:4]) == "RIFF" && string(v[8:15]) == "WEBPVP8":
		return Image, true
	case skippable(v):
		return afterSkippable(v, whole)
	}
	return Binary, false
}

// skippable reports whether v starts with a frame that readers of zstd and of LZ4 skip: 50 to 5F 2A
// 4D 18, and a length of 32 bits.
func skippable(v []byte) bool {
	return len(v) >= 8 && v[0]&0xf0 == 0x50 && string(v[1:4]) == "\x2a\x4d\x18"
}

// afterSkippable returns the format of the data behind skippable frames. If that is out of sight,
// it is zstd: its tools write such frames.
func afterSkippable(v []byte, whole bool) (Kind, bool) {
	for skippable(v) {
		n := 8 + uint64(binary.LittleEndian.Uint32(v[4:]))
		if n >= uint64(len(v)) {
			return Zstd, !whole || n == uint64(len(v))
		}
		v = v[n:]
	}
	switch {
	case bytes.HasPrefix(v, []byte("\x28\xb5\x2f\xfd")):
		return Zstd, true
	case bytes.HasPrefix(v, []byte("\x04\x22\x4d\x18")):
		return LZ4, true
	}
	return Binary, false
}

// isText reports whether v is UTF-8 without control characters but those that texts have: white
// space, backspace and escape. The last character may be cut if v is a part.
func isText(v []byte, whole bool) bool {
	ascii := true
	for _, c := range v {
		if c < ' ' && (c < '\b' || c > '\r') && c != 0x1b || c == 0x7f {
			return false
		}
		ascii = ascii && c < utf8.RuneSelf
	}
	return ascii || utf8.Valid(v[:len(v)-cutRune(v, whole)])
}

// cutRune is how many bytes at the end of a part belong to a character that goes on behind it.
func cutRune(v []byte, whole bool) int {
	if whole {
		return 0
	}
	for i := 1; i < utf8.UTFMax && i <= len(v); i++ {
		if c := v[len(v)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(v[len(v)-i:]) {
				return i
			}
			return 0
		}
	}
	return 0
}
