package content

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// The reasons why a value is not re-encoded.
var (
	// ErrNotJSON: the value is not JSON, or nests deeper than the 10,000 levels that encoding/json
	// reads.
	ErrNotJSON = errors.New("not JSON")

	// ErrInexact: the value has a number that no float64 and no integer of 64 bits keeps, or a
	// string that is not UTF-8.
	ErrInexact = errors.New("cannot be re-encoded without loss")
)

// ToMsgpack appends the value of the JSON src to dst as MessagePack: as a Go program with
// vmihailenco/msgpack stores it that uses compact integers. After an error dst is returned as it
// was.
//
// Members stay in order, duplicates included. An integer becomes the shortest integer that holds
// it, if one of 64 bits does. Any other number becomes a float64, or a float32 if that is the same
// number. A number must come back with all of its digits: 0.1 does, but of the 22 digits of
// 0.1234567890123456789012 a float64 keeps 17. So the result is the format at its best: programs
// with float64 fields spend 4 bytes more on a number like 0.5.
func ToMsgpack(dst, src []byte) ([]byte, error) { return reencode(dst, src, msgpack{}) }

// ToCBOR is ToMsgpack for CBOR (RFC 8949). It writes as a Go program with fxamacker/cbor does, plus
// float32, which that library writes only with an option.
func ToCBOR(dst, src []byte) ([]byte, error) { return reencode(dst, src, cbor{}) }

// notation is how a format writes the items of JSON.
type notation interface {
	object(dst []byte, members int) []byte
	array(dst []byte, items int) []byte
	text(dst []byte, s []byte) []byte
	integer(dst []byte, negative bool, n uint64) []byte // -n if negative, which is at most 1<<63 then
	float32(dst []byte, f uint32) []byte
	float64(dst []byte, f uint64) []byte
	literal(dst []byte, first byte) []byte // null, false or true, by its first letter
}

// reencode goes through src, which must be valid JSON, token by token: the first byte of a token
// shows its kind. For formats that write the number of items first it goes twice.
func reencode[N notation](dst, src []byte, format N) ([]byte, error) {
	if !json.Valid(src) {
		return dst, ErrNotJSON
	}
	counts := children(src)
	out := dst
	var unquoted []byte
	for i := 0; i < len(src); {
		switch c := src[i]; c {
		case '{', '[':
			if c == '{' {
				out = format.object(out, counts[0])
			} else {
				out = format.array(out, counts[0])
			}
			counts = counts[1:]
			i++
		case '"':
			end := closing(src, i)
			s := src[i+1 : end]
			if bytes.IndexByte(s, '\\') >= 0 {
				var ok bool
				if unquoted, ok = unquote(unquoted[:0], s); !ok {
					return dst, fmt.Errorf("%w: half a surrogate pair in the string at byte %d", ErrInexact, i)
				}
				s = unquoted
			}
			if !utf8.Valid(s) {
				return dst, fmt.Errorf("%w: the string at byte %d is not UTF-8", ErrInexact, i)
			}
			out = format.text(out, s)
			i = end + 1
		case 't', 'f', 'n':
			out = format.literal(out, c)
			i += len("null")
			if c == 'f' {
				i++
			}
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			end := i + 1
			for end < len(src) && (src[end] >= '0' && src[end] <= '9' || bytes.IndexByte([]byte("+-.eE"), src[end]) >= 0) {
				end++
			}
			var ok bool
			if out, ok = number(out, src[i:end], format); !ok {
				return dst, fmt.Errorf("%w: the number at byte %d has more digits than a float64", ErrInexact, i)
			}
			i = end
		default: // white space, commas, colons, and ends
			i++
		}
	}
	return out, nil
}

// children are how many members or items the objects and arrays of src have, in the order in which
// they open.
func children(src []byte) []int {
	type open struct {
		index int
		array bool
	}
	var counts []int
	var stack []open
	before := byte(0) // the byte before, without white space
	for i := 0; i < len(src); i++ {
		c := src[i]
		switch c {
		case ' ', '\t', '\n', '\r':
			continue
		case '"':
			i = closing(src, i)
		case '{', '[':
			stack = append(stack, open{len(counts), c == '['})
			counts = append(counts, 0)
		case ':':
			counts[stack[len(stack)-1].index]++
		case ',':
			if top := stack[len(stack)-1]; top.array {
				counts[top.index]++
			}
		case ']', '}':
			if c == ']' && before != '[' {
				counts[stack[len(stack)-1].index]++
			}
			stack = stack[:len(stack)-1]
		}
		before = c
	}
	return counts
}

// closing is where the quote is that ends the string whose first quote is at i.
func closing(src []byte, i int) int {
	for i++; src[i] != '"'; i++ {
		if src[i] == '\\' {
			i++
		}
	}
	return i
}

// unquote appends what is between the quotes of a string. It reports false for half a surrogate
// pair.
func unquote(dst, s []byte) ([]byte, bool) {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '\\' {
			i++
			switch c = s[i]; c {
			case 'b':
				c = '\b'
			case 'f':
				c = '\f'
			case 'n':
				c = '\n'
			case 'r':
				c = '\r'
			case 't':
				c = '\t'
			case 'u':
				r := hex4(s[i+1:])
				i += 4
				if utf16.IsSurrogate(r) {
					if i+6 >= len(s) || s[i+1] != '\\' || s[i+2] != 'u' {
						return dst, false
					}
					if r = utf16.DecodeRune(r, hex4(s[i+3:])); r == utf8.RuneError {
						return dst, false
					}
					i += 6
				}
				dst = utf8.AppendRune(dst, r)
				continue
			}
		}
		dst = append(dst, c)
	}
	return dst, true
}

func hex4(s []byte) (r rune) {
	for _, c := range s[:4] {
		switch {
		case c >= 'a':
			c -= 'a' - 10
		case c >= 'A':
			c -= 'A' - 10
		default:
			c -= '0'
		}
		r = r<<4 | rune(c)
	}
	return r
}

// maxDigits bounds the digits of a number that is not an integer of 64 bits. No program's float64
// has more.
const maxDigits = 64

// number appends a number of JSON. It reports false for one that would lose digits.
func number[N notation](dst, s []byte, format N) ([]byte, bool) {
	digits, negative := s, s[0] == '-'
	if negative {
		digits = s[1:]
	}
	if bytes.IndexAny(digits, ".eE") < 0 { // for the error of ParseUint is memory
		if n, err := strconv.ParseUint(string(digits), 10, 64); err == nil && (!negative || n > 0 && n <= 1<<63) {
			return format.integer(dst, negative, n), true
		}
	}
	f, err := strconv.ParseFloat(string(s), 64)
	if err != nil || !keeps(f, digits) {
		return dst, false
	}
	if short := float32(f); float64(short) == f {
		return format.float32(dst, math.Float32bits(short)), true
	}
	return format.float64(dst, math.Float64bits(f)), true
}

// keeps reports whether f, written with as many digits as the number without sign that it was read
// from, is that number again.
func keeps(f float64, number []byte) bool {
	var want, is [maxDigits + 32]byte
	w := significant(want[:0], number)
	if len(w) == 0 || len(w) > maxDigits {
		return len(w) == 0 && f == 0
	}
	return bytes.Equal(w, significant(is[:0], strconv.AppendFloat(make([]byte, 0, maxDigits+32), math.Abs(f), 'e', len(w)-1, 64)))
}

// significant appends the digits of a number without the zeros around them, at most one more than
// maxDigits. The exponent is not looked at: it was read with the digits, and a number that is out
// of range has other digits, or is an error.
func significant(dst, number []byte) []byte {
	start, zeros := len(dst), 0
	for _, c := range number {
		switch {
		case c == 'e' || c == 'E':
			return dst
		case c == '.' || c == '0' && len(dst) == start:
		case c == '0':
			zeros++
		default:
			for ; zeros > 0 && len(dst)-start <= maxDigits; zeros-- {
				dst = append(dst, '0')
			}
			zeros = 0
			if len(dst)-start > maxDigits {
				return dst
			}
			dst = append(dst, c)
		}
	}
	return dst
}

type msgpack struct{}

// sized appends a head whose number has 8 (if there is a code for that), 16 or 32 bits.
func (msgpack) sized(dst []byte, n int, code8, code16, code32 byte) []byte {
	switch {
	case n <= math.MaxUint8 && code8 != 0:
		return append(dst, code8, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, code16), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(dst, code32), uint32(n))
}

func (m msgpack) object(dst []byte, n int) []byte {
	if n < 16 {
		return append(dst, 0x80|byte(n))
	}
	return m.sized(dst, n, 0, 0xde, 0xdf)
}

func (m msgpack) array(dst []byte, n int) []byte {
	if n < 16 {
		return append(dst, 0x90|byte(n))
	}
	return m.sized(dst, n, 0, 0xdc, 0xdd)
}

func (m msgpack) text(dst, s []byte) []byte {
	if len(s) < 32 {
		dst = append(dst, 0xa0|byte(len(s)))
	} else {
		dst = m.sized(dst, len(s), 0xd9, 0xda, 0xdb)
	}
	return append(dst, s...)
}

func (msgpack) integer(dst []byte, negative bool, n uint64) []byte {
	code := byte(0xcc)
	if negative {
		if n <= 32 {
			return append(dst, -byte(n))
		}
		code = 0xd0
		switch n--; { // to the largest positive number of the type that holds it
		case n <= math.MaxInt8:
			return append(dst, code, ^byte(n))
		case n <= math.MaxInt16:
			return binary.BigEndian.AppendUint16(append(dst, code+1), ^uint16(n))
		case n <= math.MaxInt32:
			return binary.BigEndian.AppendUint32(append(dst, code+2), ^uint32(n))
		}
		return binary.BigEndian.AppendUint64(append(dst, code+3), ^n)
	}
	switch {
	case n < 128:
		return append(dst, byte(n))
	case n <= math.MaxUint8:
		return append(dst, code, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, code+1), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(dst, code+2), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, code+3), n)
}

func (msgpack) float32(dst []byte, f uint32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, 0xca), f)
}

func (msgpack) float64(dst []byte, f uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, 0xcb), f)
}

func (msgpack) literal(dst []byte, first byte) []byte {
	switch first {
	case 'n':
		return append(dst, 0xc0)
	case 'f':
		return append(dst, 0xc2)
	}
	return append(dst, 0xc3)
}

type cbor struct{}

// head appends the head of an item: its major type and a number.
func (cbor) head(dst []byte, major byte, n uint64) []byte {
	major <<= 5
	switch {
	case n < 24:
		return append(dst, major|byte(n))
	case n <= math.MaxUint8:
		return append(dst, major|24, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, major|25), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(dst, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, major|27), n)
}

func (c cbor) object(dst []byte, n int) []byte { return c.head(dst, 5, uint64(n)) }
func (c cbor) array(dst []byte, n int) []byte  { return c.head(dst, 4, uint64(n)) }

func (c cbor) text(dst, s []byte) []byte { return append(c.head(dst, 3, uint64(len(s))), s...) }

func (c cbor) integer(dst []byte, negative bool, n uint64) []byte {
	if negative {
		return c.head(dst, 1, n-1)
	}
	return c.head(dst, 0, n)
}

func (cbor) float32(dst []byte, f uint32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, 0xfa), f)
}

func (cbor) float64(dst []byte, f uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, 0xfb), f)
}

func (cbor) literal(dst []byte, first byte) []byte {
	switch first {
	case 'n':
		return append(dst, 0xf6)
	case 'f':
		return append(dst, 0xf4)
	}
	return append(dst, 0xf5)
}
