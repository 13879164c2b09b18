package keygroup

import (
	"strings"
	"unicode/utf8"
)

// Limits of the part of a key that is read. The rest becomes a `*` at the end of its pattern.
const (
	maxLength = 512 // bytes of a key
	maxDepth  = 12  // parts
	maxLabel  = 96  // bytes of a part, beyond which it is an id
	maxWords  = 48  // words, ids and weak separators of a part, likewise
	maxSep    = 8   // bytes of separators in a row
)

// part is one part of a key, with the separators before it, as the tree has it.
type part struct {
	raw    string // as it is in the key
	edge   []byte // the separators and the label, as a glob: ids are *. Its bytes are the lexer's: valid until the next key
	sep    int    // how many bytes of edge are separators
	wild   bool   // the label has a *
	whole  bool   // the label is *
	binary bool
	rest   bool // the * is for all the rest of the key
}

// lexer splits keys. Its memory is used again for each.
type lexer struct {
	parts []part
	buf   []byte
}

// The classes of bytes.
const (
	lower = 1 << iota
	upper
	digit
	hexLetter
	control
	high
	colon // separates parts in any key
	special
	slash
	dot
	question
	at
)

const (
	letter = lower | upper
	alnum  = letter | digit
	word   = alnum | high | control
)

var classes = func() (c [256]uint16) {
	for i := range c {
		b := byte(i)
		switch {
		case b >= 'a' && b <= 'z':
			c[i] = lower
		case b >= 'A' && b <= 'Z':
			c[i] = upper
		case b >= '0' && b <= '9':
			c[i] = digit
		case b < 0x20 || b == 0x7f:
			c[i] = control
		case b >= 0x80:
			c[i] = high
		}
		if b|0x20 >= 'a' && b|0x20 <= 'f' {
			c[i] |= hexLetter
		}
		if strings.IndexByte(":|#{}[]", b) >= 0 {
			c[i] |= colon
		}
		if strings.IndexByte(`*?[]\^`, b) >= 0 {
			c[i] |= special
		}
	}
	c['/'], c['.'], c['@'] = slash, dot, at
	c['?'] |= question
	return c
}()

// is reports whether the byte of s at i is of a class; no byte is of none.
func is(s string, i int, class uint16) bool { return i < len(s) && classes[s[i]]&class != 0 }

// split splits a key into parts at the strongest separators in it: ':' and similar ones, else '/',
// else '.'. Weaker separators stay within parts.
func (l *lexer) split(key string) []part {
	l.parts, l.buf = l.parts[:0], l.buf[:0]
	long := len(key) > maxLength
	if long {
		key = key[:maxLength]
	}
	var seen uint16
	for i := range len(key) {
		seen |= classes[key[i]]
	}
	primary := uint16(0)
	for _, class := range []uint16{colon, slash, dot} {
		if seen&class != 0 {
			primary = class
			break
		}
	}
	binaryEnd := 0 // behind the last byte that is no text
	if seen&(high|control) != 0 {
		binaryEnd = lastBinary(key)
	}
	for i := 0; i < len(key); {
		start := len(l.buf)
		from := i
		for is(key, i, primary) && json(key, i) == 0 {
			i++
		}
		if i-from > maxSep || len(l.parts) == maxDepth-1 {
			l.tail(key, from, start)
			return l.parts
		}
		for _, b := range []byte(key[from:i]) {
			l.literal(b)
		}
		sep := len(l.buf)
		end := i
		p := l.label(key, &end, i, primary, binaryEnd, long)
		p.raw, p.sep = key[i:end], sep-start
		if p.whole {
			l.buf = append(l.buf[:sep], '*')
		}
		p.edge = l.buf[start:len(l.buf):len(l.buf)]
		l.parts = append(l.parts, p)
		if i = end; p.rest {
			return l.parts
		}
	}
	if long {
		l.tail(key, len(key), len(l.buf))
	}
	return l.parts
}

// tail makes all that is left of a key one part.
func (l *lexer) tail(key string, from, start int) {
	l.buf = l.buf[:start]
	sep := 0
	if is(key, from, colon|slash|dot) {
		l.literal(key[from])
		sep = len(l.buf) - start
	}
	l.buf = append(l.buf, '*')
	l.parts = append(l.parts, part{raw: key[from:], edge: l.buf[start:len(l.buf):len(l.buf)], sep: sep, wild: true, whole: true, rest: true})
}

// literal appends a byte to a label, escaped for a glob.
func (l *lexer) literal(b byte) {
	if classes[b]&special != 0 {
		l.buf = append(l.buf, '\\')
	}
	l.buf = append(l.buf, b)
}

// label appends the label of the part of key that starts at i, and sets end to where it ends.
func (l *lexer) label(key string, end *int, i int, primary uint16, binaryEnd int, long bool) (p part) {
	base := len(l.buf)
	segment, seen := i, uint16(0)
	for segment < len(key) && classes[key[segment]]&primary == 0 {
		seen |= classes[key[segment]]
		segment++
	}
	if segment == i && json(key, i) == 0 {
		*end = i
		return p
	}
	binary := func(from, to int) bool {
		if binaryEnd <= from || lastBinary(key[from:to]) == 0 {
			return false
		}
		// The bytes may be separators by chance, up to the last that is no text.
		for to = max(to, binaryEnd); to < len(key) && classes[key[to]]&primary == 0; {
			to++
		}
		l.buf, *end = l.buf[:base], to
		p = part{wild: true, whole: true, binary: true, rest: long && to == len(key)}
		return true
	}
	if seen&(control|high) != 0 && binary(i, segment) {
		return p
	}
	if seen&^(lower|hexLetter) == 0 && segment-i > 4 && segment-i <= maxLabel && (segment < len(key) || !long) && !strings.HasPrefix(key[segment:], "://") {
		l.buf = append(l.buf, key[i:segment]...)
		*end = segment
		return p
	}
	star := func() {
		p.wild = true
		// Ids with only weak separators between them are one id.
		if n := len(l.buf); n > base {
			j := n
			for j > base && n-j < 3 && weak(l.buf[j-1]) {
				j--
			}
			if j > base && l.buf[j-1] == '*' && (j-1 == base || l.buf[j-2] != '\\') {
				l.buf = l.buf[:j]
				return
			}
		}
		l.buf = append(l.buf, '*')
	}
	if e := wholeID(key, i, segment, primary, seen); e > 0 {
		star()
		i = e
	}
	for steps := 0; i < len(key) && classes[key[i]]&primary == 0; steps++ {
		if steps == maxWords { // each may look at all that is left
			p.wild, p.whole, i = true, true, max(i, segment)
			break
		}
		if e := idAt(key, i, segment, primary, seen); e > 0 {
			star()
			i = e
			continue
		}
		if !is(key, i, word) {
			l.literal(key[i])
			i++
			continue
		}
		e := i
		for is(key, e, word) {
			e++
		}
		keep, id := classify(key[i:e])
		l.buf = append(l.buf, key[i:i+keep]...)
		if id {
			star()
		}
		i = e
	}
	if i > segment && binary(segment, i) { // an id goes beyond the segment
		return p
	}
	*end = i
	if len(l.buf)-base > maxLabel || long && i == len(key) {
		p.wild, p.whole = true, true
	}
	p.rest = long && i == len(key)
	p.whole = p.whole || len(l.buf) == base+1 && l.buf[base] == '*'
	return p
}

// weak reports whether ids on both sides of a byte are one: 2026-11-20, 10.1.2.3.
func weak(b byte) bool {
	return classes[b] == 0 && b != '(' && b != ')' || b == '.' || b == '/' || b == '@'
}

// lastBinary returns the end of the last byte of s that is a control or no UTF-8.
func lastBinary(s string) int {
	last := 0
	for i := 0; i < len(s); {
		if s[i] < utf8.RuneSelf {
			if classes[s[i]]&control != 0 {
				last = i + 1
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		i += n
		if r == utf8.RuneError && n == 1 {
			last = i
		}
	}
	return last
}
