package content

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

// isPickle reports whether v is a pickle of protocol 2 to 5. A pickle starts with the protocol and
// one of the usual first codes, and ends in a stop.
func isPickle(v []byte, whole bool) bool {
	if len(v) < 4 || v[0] != 0x80 || v[1] < 2 || v[1] > 5 || whole && v[len(v)-1] != '.' {
		return false
	}
	if v[1] >= 4 && v[2] == 0x95 { // a frame, and its length
		return len(v) >= 11 && v[7]|v[8]|v[9]|v[10] == 0
	}
	return strings.IndexByte("}](c)NKMJGXUTCB\x85\x86\x87\x88\x89\x8a\x8c\x8d\x8e\x8f", v[2]) >= 0
}

// isRuby reports whether v starts as Ruby's Marshal does: its version, 4.8, and a type.
func isRuby(v []byte, _ bool) bool {
	return len(v) >= 3 && v[0] == 4 && v[1] == 8 && strings.IndexByte("{}[\"Iio:;lfTF0cmuUeSCd/@", v[2]) >= 0
}

// maxInflated is how many bytes are decompressed to see whether a value is zlib: its mark has 16
// bits only.
const maxInflated = 16 << 10

// inflater reads zlib; its decompressor takes 40 KB, so it is kept.
type inflater struct {
	src bytes.Reader
	r   io.ReadCloser
	buf [1 << 10]byte
}

var inflaters = sync.Pool{New: func() any { return new(inflater) }}

// isZlib reports whether v starts with zlib's header, with the usual window of 32 KiB and without a
// dictionary, and decompresses.
func isZlib(v []byte, whole bool) bool {
	if len(v) < 8 || v[0] != 0x78 || binary.BigEndian.Uint16(v)%31 != 0 || v[1]&0x20 != 0 {
		return false
	}
	f := inflaters.Get().(*inflater)
	defer inflaters.Put(f)
	f.src.Reset(v)
	defer f.src.Reset(nil)
	if f.r == nil {
		r, err := zlib.NewReader(&f.src)
		if err != nil {
			return false
		}
		f.r = r
	} else if err := f.r.(zlib.Resetter).Reset(&f.src, nil); err != nil {
		return false
	}
	for total := 0; total < maxInflated; {
		n, err := f.r.Read(f.buf[:])
		total += n
		switch {
		case err == io.EOF:
			return f.src.Len() == 0
		case errors.Is(err, io.ErrUnexpectedEOF):
			return !whole
		case err != nil:
			return false
		}
	}
	return true
}

// The tags of a Snappy block.
const (
	tagLiteral = 0
	tagCopy1   = 1
	tagCopy2   = 2
)

// minSnappyTags is the number of tags that part of a block must have. In random bytes a copy
// reaches back behind the start within a few tags.
const minSnappyTags = 64

// snappyBlock reports whether v is a block of Snappy, or of S2 if it uses S2's repeats. It walks
// through the tags (the format description in golang/snappy) and decodes nothing. The tags must
// make exactly as many bytes as the block claims, from bytes that it has.
func snappyBlock(v []byte, whole bool) (Kind, bool) {
	claimed, n := binary.Uvarint(v)
	if n <= 0 || claimed == 0 || claimed > 1<<32-1 || len(v) < 8 {
		return Binary, false
	}
	kind := Snappy
	made, offset, tags := uint64(0), uint64(0), 0
	for i := n; i < len(v); tags++ {
		tag := v[i]
		// The numbers behind the tag have up to 4 bytes, zeros where the value ends before.
		var after [4]byte
		copy(after[:], v[i+1:])
		number := uint64(binary.LittleEndian.Uint32(after[:]))
		length := uint64(tag>>2) + 1
		switch tag & 3 {
		case tagLiteral:
			size := max(0, int(tag>>2)-59) // of the length, if it has bytes of its own
			if size > 0 {
				length = number&(1<<(8*size)-1) + 1
			}
			i += 1 + size
			made += length
			if made > claimed {
				return Binary, false
			}
			if length > uint64(max(0, len(v)-i)) {
				return kind, !whole && tags >= minSnappyTags
			}
			i += int(length)
			continue
		case tagCopy1:
			i += 2
			length = uint64(tag>>2&7) + 4
			if o := uint64(tag&0xe0)<<3 | number&0xff; o != 0 || i > len(v) {
				offset = o
				break
			}
			kind = S2 // a repeat: the offset before, and a length that may have bytes of its own
			switch number >>= 8; tag >> 2 & 7 {
			case 5:
				length = number&0xff + 8
				i++
			case 6:
				length = number&0xffff + 1<<8 + 4
				i += 2
			case 7:
				length = number&0xffffff + 1<<16 + 4
				i += 3
			}
		case tagCopy2:
			offset = number & 0xffff
			i += 3
		default:
			offset = number
			i += 5
		}
		if i > len(v) {
			return kind, !whole && tags >= minSnappyTags
		}
		if offset == 0 || offset > made {
			return Binary, false
		}
		if made += length; made > claimed {
			return Binary, false
		}
	}
	if whole {
		return kind, made == claimed
	}
	return kind, tags >= minSnappyTags
}

// maxProtobufDepth bounds the messages inside of each other that are looked into.
const maxProtobufDepth = 8

// isProtobuf reports whether v is probably a message of protocol buffers. The format has no mark: a
// message is known only by the fact that it parses. So isProtobuf asks for more. There must be at
// least two fields, here or in the message that is the only field, with numbers below 2,048. Few
// fields may be out of order, because writers write them in order. Most bytes must be numbers, text
// and further messages.
func isProtobuf(v []byte, whole bool) bool {
	m := protobufMessage(v, whole, maxProtobufDepth)
	return m.ok && m.fields >= 2 && m.descents*4 <= m.fields && m.opaque*2 <= len(v) && (whole || m.fields >= 4)
}

type message struct {
	ok       bool
	fields   int // of a message with a single one that is a message: of that
	descents int // fields whose number is lower than that before
	opaque   int // bytes that are neither a text nor a message
}

func protobufMessage(v []byte, whole bool, depth int) (m message) {
	last := uint64(0)
	only := 0 // the fields of the message that is the first field
	for i := 0; i < len(v); {
		tag, n := binary.Uvarint(v[i:])
		number := tag >> 3
		if n == 0 && !whole {
			break
		}
		if n <= 0 || n > 2 || n == 2 && tag < 1<<7 || number == 0 {
			return message{}
		}
		if number < last {
			m.descents++
		}
		last = number
		m.fields++
		i += n
		size := uint64(0)
		switch tag & 7 {
		case 0:
			u, n := binary.Uvarint(v[i:])
			if n == 0 && !whole {
				m.ok = true
				return m
			}
			if n <= 0 || n > 1 && u>>(7*(n-1)) == 0 {
				return message{}
			}
			size = uint64(n)
		case 1:
			size = 8
			m.opaque += 4 // it matches anything, as doubles and fixed numbers of 64 bits may be
		case 2:
			u, n := binary.Uvarint(v[i:])
			if n == 0 && !whole {
				m.ok = true
				return m
			}
			if n <= 0 || n > 4 || n > 1 && u>>(7*(n-1)) == 0 {
				return message{}
			}
			i += n
			size = u
			payload := v[i:min(uint64(len(v)), uint64(i)+size)]
			complete := len(payload) == int(size)
			if !complete && whole {
				return message{}
			}
			switch inner := (message{}); {
			case isText(payload, complete):
			case depth > 0:
				if inner = protobufMessage(payload, complete, depth-1); inner.ok && inner.descents*4 <= inner.fields {
					m.opaque += inner.opaque
					if m.fields == 1 {
						only = inner.fields
					}
					break
				}
				fallthrough
			default:
				m.opaque += len(payload)
			}
		case 5:
			size = 4
			m.opaque += 2
		default: // groups, which nobody has written for long, and what there is not
			return message{}
		}
		if size > uint64(len(v)-i) {
			m.ok = !whole
			return m
		}
		i += int(size)
	}
	if m.fields == 1 {
		m.fields = max(1, only)
	}
	m.ok = m.fields > 0
	return m
}

// minRandom is the smallest size in bytes at which a value can be called random.
const minRandom = 64

// isRandom reports whether the bytes of v are spread too evenly for a compressor of single bytes.
// It counts the pairs of equal bytes: among random bytes about 1 pair in 256, which is Pearson's
// chi-square written in another way. The count may be a tenth higher, because compressors without a
// mark leave some unevenness. It may also be four standard deviations higher (of the Poisson
// distribution), so that random values of 64 bytes pass.
func isRandom(v []byte) bool {
	if len(v) < minRandom {
		return false
	}
	var counts [256]float64
	for _, c := range v {
		counts[c]++
	}
	pairs := 0.0
	for _, n := range counts {
		pairs += n * (n - 1) / 2
	}
	n := float64(len(v))
	expected := n * (n - 1) / 2 / 256
	excess := pairs - 1.1*expected
	return excess <= 0 || excess*excess <= 16*expected
}

// utf8Text reports whether a string inside of a structure is UTF-8; if it is cut, its last
// character may be.
func utf8Text(s []byte, complete bool) bool { return utf8.Valid(s[:len(s)-cutRune(s, complete)]) }
