package content

import (
	"encoding/binary"
	"math"
)

// maxItemDepth bounds the maps and arrays inside of each other in MessagePack and CBOR that are
// looked into.
const maxItemDepth = 64

// walk goes through the items of a MessagePack or CBOR value. The formats' own loops read heads and
// tell it what they found.
type walk struct {
	levels [maxItemDepth]level
	depth  int

	items, strings int
	text           int  // bytes of strings
	pairs          bool // the value is a map
	cut            bool // the value goes on behind the bytes that there are
}

type level struct {
	left  uint64 // items, keys included; of an indefinite one an even number that is never reached
	pairs bool
	piece byte // the major type of CBOR that its items have, for the pieces of a string
}

const indefinite = math.MaxUint64 - 1

// isKey reports whether the next item is the key of a map.
func (w *walk) isKey() bool {
	return w.depth > 0 && w.levels[w.depth-1].pairs && w.levels[w.depth-1].left%2 == 0
}

// scalar takes an item without others in it, and reports whether it is the value's last.
func (w *walk) scalar() bool {
	w.items++
	return w.done()
}

// done takes an item off the levels that it ends, and reports whether none are left.
func (w *walk) done() bool {
	for w.depth > 0 {
		top := &w.levels[w.depth-1]
		if top.left--; top.left > 0 {
			return false
		}
		w.depth--
	}
	return true
}

// open takes the head of a map or an array of n items. In a map, keys and values count as items
// each. The result last reports whether it is the value's last item, as an empty one may be.
func (w *walk) open(n uint64, pairs bool) (last, ok bool) {
	if w.items == 0 {
		w.pairs = pairs
	}
	if n == 0 {
		return w.scalar(), true
	}
	if w.depth == maxItemDepth {
		return false, false
	}
	w.items++
	w.levels[w.depth] = level{left: n, pairs: pairs}
	w.depth++
	return false, true
}

// string takes a string of n bytes at the start of v, of which only some may be there.
func (w *walk) string(v []byte, n uint64) bool {
	complete := n <= uint64(len(v))
	s := v[:min(n, uint64(len(v)))]
	w.strings++
	w.text += len(s)
	return utf8Text(s, complete)
}

// The least structure that makes a value credible. Of random bytes one in seven starts like a map
// or array of MessagePack. About every sixth item is invalid (strings that are not UTF-8, unknown
// codes, keys of a wrong type). Of the valid ones, one in tens ends where the value does. A part
// need not end anywhere, so it must hold text, or many items.
const (
	minNumbers   = 5  // items, the array included, if it holds no string
	minPartText  = 16 // bytes of strings
	minPartItems = 64
)

// believable reports whether the items read are enough evidence that the value is not random.
func (w *walk) believable(whole bool) bool {
	if !whole && w.cut {
		return w.items > 2 && w.text >= minPartText || w.items >= minPartItems && (w.text > 0 || !w.pairs)
	}
	if w.pairs || w.strings > 0 {
		return w.items > 2 && w.text > 0 || w.items >= minNumbers+2
	}
	return w.items >= minNumbers
}

// msgpackItem reads the map or array of MessagePack at the start of v, and returns its end; for a
// cut part that is the end of v. Lengths must be in their shortest form, strings must be UTF-8, and
// keys must be strings or integers.
func msgpackItem(v []byte, whole bool) (end int, ok bool) {
	if c := v[0]; (c < 0x80 || c > 0x9f) && (c < 0xdc || c > 0xdf) {
		return 0, false
	}
	var w walk
	for i := 0; i < len(v); {
		c := v[i]
		i++
		argument := func(size int) uint64 { // of the head, big endian
			var b [8]byte
			copy(b[8-size:], v[i:min(len(v), i+size)])
			w.cut = w.cut || size > len(v)-i
			i += size
			return binary.BigEndian.Uint64(b[:])
		}
		const (
			scalar = iota
			text
			data
			items
			pairs
		)
		kind, n := scalar, uint64(0)
		switch {
		case c <= 0x7f || c >= 0xe0: // fixint
		case c <= 0x8f:
			kind, n = pairs, uint64(c&0xf)
		case c <= 0x9f:
			kind, n = items, uint64(c&0xf)
		case c <= 0xbf:
			kind, n = text, uint64(c&0x1f)
		case c == 0xc1:
			return 0, false
		case c <= 0xc3: // nil, false, true
		case c <= 0xc6: // bin
			kind, n = data, argument(1<<(c-0xc4))
		case c <= 0xc9: // ext, and its type
			kind, n = data, argument(1<<(c-0xc7))+1
		case c <= 0xcb: // float
			kind, n = data, 4<<(c-0xca)
		case c <= 0xcf: // uint
			n = argument(1 << (c - 0xcc))
		case c <= 0xd3: // int
			n = argument(1 << (c - 0xd0))
		case c <= 0xd8: // fixext, and its type
			kind, n = data, 1<<(c-0xd4)+1
		default: // str 8, 16, 32; array 16, 32; map 16, 32
			size, least := 1<<(c-0xd9), [...]uint64{1: 32, 2: 32, 4: 256} // 16 bits where 8 do: writers older than the 8
			kind = text
			if c > 0xdb {
				size, least = 2<<((c-0xdc)%2), [...]uint64{2: 16, 4: 1 << 16}
				kind = items + int(c-0xdc)/2
			}
			if n = argument(size); !w.cut && n < least[size] {
				return 0, false
			}
		}
		if w.cut {
			break
		}
		if integer := kind == scalar && (c < 0xc0 || c > 0xc3); w.isKey() && kind != text && !integer {
			return 0, false
		}
		last := false
		switch kind {
		case items, pairs:
			if kind == pairs {
				n *= 2
			}
			if n > maxValue || whole && n > uint64(len(v)-i) {
				return 0, false
			}
			if last, ok = w.open(n, kind == pairs); !ok {
				return 0, false
			}
		case text:
			if !w.string(v[i:], n) {
				return 0, false
			}
			fallthrough
		case data:
			if n > uint64(len(v)-i) {
				w.cut = true
				w.items++
				return len(v), !whole && n <= maxValue && w.believable(false)
			}
			i += int(n)
			last = w.scalar()
		default:
			last = w.scalar()
		}
		if last {
			return i, w.believable(true)
		}
	}
	w.cut = true
	return len(v), !whole && w.believable(false)
}

// maxValue is the longest value that Redis keeps, in bytes.
const maxValue = 512 << 20

// cborItem is msgpackItem for CBOR (RFC 8949).
func cborItem(v []byte, whole bool) (end int, ok bool) {
	var w walk
	tagged := false
	for i := 0; i < len(v); {
		major, info := v[i]>>5, v[i]&0x1f
		isBreak := v[i] == 0xff // of a map, an array or a string without a length
		i++
		n := uint64(info)
		switch {
		case info >= 28 && info < 31:
			return 0, false
		case info >= 24 && info < 28:
			size := 1 << (info - 24)
			if size > len(v)-i {
				w.cut = true
				return len(v), !whole && w.believable(false)
			}
			var b [8]byte
			copy(b[8-size:], v[i:i+size])
			i += size
			n = binary.BigEndian.Uint64(b[:])
			least := [...]uint64{1: 24, 2: 1 << 8, 4: 1 << 16, 8: 1 << 32}[size]
			if major != 7 && n < least || major == 7 && size == 1 {
				return 0, false
			}
		case info == 31 && (major < 2 || major == 6):
			return 0, false
		}
		if w.items == 0 && major != 4 && major != 5 && (major != 6 || i > 16) {
			return 0, false
		}
		if w.depth > 0 {
			if piece := w.levels[w.depth-1].piece; piece != 0 && !isBreak && (major != piece || info == 31) {
				return 0, false
			}
		}
		if major == 6 {
			tagged = true // which says something of the item behind it
			continue
		}
		if isBreak && tagged || w.isKey() && (major > 3 || info == 31) && !isBreak {
			return 0, false
		}
		tagged = false
		last := false
		switch major {
		case 2, 3:
			if info == 31 { // pieces, up to a break
				if last, ok = w.open(indefinite, false); !ok {
					return 0, false
				}
				w.levels[w.depth-1].piece = major
				break
			}
			if major == 3 && !w.string(v[i:], n) {
				return 0, false
			}
			if n > uint64(len(v)-i) {
				w.cut = true
				w.items++
				return len(v), !whole && n <= maxValue && w.believable(false)
			}
			i += int(n)
			last = w.scalar()
		case 4, 5:
			switch {
			case info == 31:
				n = indefinite
			case n > maxValue || whole && n > uint64(len(v)-i):
				return 0, false
			case major == 5:
				n *= 2
			}
			if last, ok = w.open(n, major == 5); !ok {
				return 0, false
			}
		case 7:
			if isBreak {
				top := w.depth - 1
				if top < 0 || w.levels[top].left <= maxValue*2 || w.levels[top].pairs && !w.isKey() {
					return 0, false
				}
				w.depth--
				last = w.done()
				break
			}
			if info < 20 || info == 24 { // simple values that nobody has defined
				return 0, false
			}
			last = w.scalar()
		default:
			last = w.scalar()
		}
		if last {
			return i, w.believable(true)
		}
	}
	w.cut = true
	return len(v), !whole && w.believable(false)
}
