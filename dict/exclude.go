package dict

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"index/suffixarray"
	"io"
	"iter"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode"

	"github.com/balekv/bale/internal/fieldpath"
)

// minSecret is the length in bytes from which on an excluded value is looked for elsewhere in the
// samples and in the dictionary. Shorter ones ("true", "42") are in anything.
const minSecret = 6

// maxRedacted is the size in bytes of the largest sample that is redacted. A list of digits takes
// 24 times its bytes meanwhile, and the worst words some 0.7 µs a byte. A dictionary hardly helps
// larger samples.
const maxRedacted = 4 << 20

// excluder blanks the values of fields in JSON samples, and checks dictionaries for them.
type excluder struct {
	fields fieldpath.Paths
	prints [piece + 1]prints // by length: of short values, and of pieces of long ones
	quoted [][]byte          // parts of samples: long values with quotes in them, as they are stored
}

func newExcluder(fields []string) *excluder { return &excluder{fields: fields} }

// span is a part of a sample.
type span struct {
	from, to  int
	elsewhere bool // what stands there is to be left out elsewhere, too
}

// collect finds the values of the fields in a sample, with all names inside them, and remembers
// them. It returns false for a sample that is no JSON object or list, nests deeper than
// fieldpath.MaxDepth or is larger than maxRedacted: its fields are unknown. A text or number may be
// a field of a hash.
func (e *excluder) collect(sample []byte) ([]span, bool) {
	if len(sample) > maxRedacted {
		return nil, false
	}
	type level struct {
		object bool
		key    bool // the next token is a name
		hidden bool // everything below belongs to an excluded field
	}
	var (
		spans []span
		stack []level
		path  = make([]fieldpath.Place, 1, 8) // the root, and of each object that is open the member that is read
		d     = json.NewDecoder(bytes.NewReader(sample))
	)
	d.UseNumber()
	values := 0
	for {
		before := d.InputOffset()
		token, err := d.Token()
		if err == io.EOF {
			return spans, len(stack) == 0 && values > 0
		}
		if err != nil {
			return nil, false
		}
		if len(stack) > 0 {
			if top := &stack[len(stack)-1]; top.object && top.key {
				if name, ok := token.(string); ok {
					e.fields.Below(&path[len(path)-1], &path[len(path)-2], name)
					top.key = false
					if top.hidden {
						spans = e.hide(spans, sample, int(before), int(d.InputOffset()), token, !isWord(name))
					}
					continue
				}
			}
		}
		hidden := false
		if len(stack) > 0 {
			top := stack[len(stack)-1]
			hidden = top.hidden || top.object && token != json.Delim('}') && e.fields.Any(&path[len(path)-1])
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			if len(stack) == fieldpath.MaxDepth {
				return nil, false
			}
			object := token == json.Delim('{')
			stack = append(stack, level{object: object, key: object, hidden: hidden})
			if object {
				path = append(path, fieldpath.Place{})
			}
			continue
		case json.Delim('}'), json.Delim(']'):
			if stack[len(stack)-1].object {
				path = path[:len(path)-1]
			}
			stack = stack[:len(stack)-1]
		default:
			if len(stack) == 0 {
				return nil, false
			}
			if hidden {
				spans = e.hide(spans, sample, int(before), int(d.InputOffset()), token, true)
			}
		}
		if len(stack) == 0 {
			values++
		} else if top := &stack[len(stack)-1]; top.object {
			top.key = true
		}
	}
}

// isWord tells the name of a field from what is data itself, such as the addresses in
// {"ada@example.com": {"role": "owner"}}. A word stands in many places, and gives nothing away
// there.
func isWord(name string) bool {
	return !strings.ContainsFunc(name, func(c rune) bool { return c != '_' && c != '-' && !unicode.IsLetter(c) })
}

// hide adds the span of a scalar value or a name, without quotes. With elsewhere it also remembers
// the text, both raw and unescaped, to find it in other places.
func (e *excluder) hide(spans []span, sample []byte, from, to int, token json.Token, elsewhere bool) []span {
	// Between the end of the token before and this one there are only spaces, ':' and ','.
	for from < to && strings.IndexByte(" \t\r\n:,", sample[from]) >= 0 {
		from++
	}
	text, ok := token.(string)
	if ok {
		from, to = from+1, to-1
	}
	if from >= to {
		return spans
	}
	if elsewhere {
		e.remember(sample[from:to])
	}
	switch {
	case !elsewhere || !ok || text == string(sample[from:to]):
	case len(text) < piece || !strings.Contains(text, `"`):
		e.remember([]byte(text))
	default:
		// Inside strings of samples quotes have escapes. Without them they are syntax: pieces across
		// them, of a value that is itself JSON, may be in all samples. So the whole value is kept.
		e.quoted = append(e.quoted, sample[from-1:to+1])
		for part := range strings.SplitSeq(text, `"`) {
			if len(part) >= piece {
				e.remember([]byte(part))
			}
		}
	}
	return append(spans, span{from, to, elsewhere && to-from >= minSecret})
}

// remember keeps the fingerprint of a value, or those of the pieces of a long one. The last piece
// ends with the value, so that nothing of a whole one is left.
func (e *excluder) remember(value []byte) {
	if len(value) < minSecret {
		return
	}
	n := min(len(value), piece)
	for end, print := range fingerprints(value, n) {
		if (end-n)%pieceStep == 0 || end == len(value) {
			e.prints[n].add(print)
		}
	}
}

// redact returns the samples without the values of the fields, and how many were left out because
// collect refused them.
func (e *excluder) redact(ctx context.Context, samples [][]byte) (redacted [][]byte, skipped int, err error) {
	var b []byte
	for _, s := range samples {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		spans, ok := e.collect(s)
		if !ok {
			skipped++
			continue
		}
		b = b[:0]
		at, text := 0, string(s)
		var own []string
		for _, cut := range spans {
			b = append(b, s[at:cut.from]...)
			at = cut.to
			if cut.elsewhere {
				own = append(own, text[cut.from:cut.to])
			}
		}
		b = append(b, s[at:]...)
		// A value may stand elsewhere, too: an e-mail address in a text, a token in a URL.
		redacted = append(redacted, bytes.Clone(newCutter(own).cut(b)))
	}
	return redacted, skipped, nil
}

// maxWord is the longest string in bytes that a cutter looks for in one piece. It bounds what is
// compared at each place of a text: a long value that repeats itself would take quadratic time.
const maxWord = 256

// cutter takes strings of minSecret bytes or more out of texts, in time that hardly depends on how
// many they are. Longer ones than maxWord go piece by piece.
type cutter struct {
	words  []string // sorted, each once
	prefix []int    // of each word: the longest other one that it starts with, or -1
	starts prints   // of the first minSecret bytes of the words
}

func newCutter(whole []string) *cutter {
	words := make([]string, 0, len(whole))
	for _, w := range whole {
		for len(w) > maxWord {
			n := min(maxWord, len(w)-minSecret) // for the last one to be long enough
			words, w = append(words, w[:n]), w[n:]
		}
		words = append(words, w)
	}
	slices.Sort(words)
	c := &cutter{words: slices.Compact(words)}
	for i, w := range c.words {
		c.starts.add(start(w))
		// In order, what a word starts with comes before it, and all in between start so, too: it
		// is the word before, or one that this starts with.
		j := i - 1
		for j >= 0 && !strings.HasPrefix(w, c.words[j]) {
			j = c.prefix[j]
		}
		c.prefix = append(c.prefix, j)
	}
	return c
}

// cut returns a text, which it may overwrite, without the words: from left to right, the longest
// that stands at a place.
func (c *cutter) cut(text []byte) []byte {
	if len(c.words) == 0 {
		return text
	}
	from, kept := string(text), text[:0]
	for len(from) > 0 {
		n := c.longest(from)
		if n == 0 {
			kept = append(kept, from[0])
			n = 1
		}
		from = from[n:]
	}
	return kept
}

// start is the first minSecret bytes of a text.
func start(text string) (start uint64) {
	for i := range minSecret {
		start = start<<8 | uint64(text[i])
	}
	return start
}

// longest is the length of the longest word that a text starts with, or zero.
func (c *cutter) longest(text string) int {
	if len(text) < minSecret || !c.starts.contain(start(text)) {
		return 0
	}
	i, found := slices.BinarySearch(c.words, text)
	if !found {
		i-- // as in newCutter
	}
	for i >= 0 && !strings.HasPrefix(text, c.words[i]) {
		i = c.prefix[i]
	}
	if i < 0 {
		return 0
	}
	return len(c.words[i])
}

// Builders cut samples anywhere, so a long value in another field would enter dictionaries in
// pieces. To refuse these would refuse good dictionaries, too: values share names and the start of
// a URL with other fields. So values of piece bytes or more are cut out of all samples. This finds
// any part of 32 bytes (piece+pieceStep-1), since it has one of the pieces. A UUID or 128 bits in
// hex are longer than a piece; most names and hosts are shorter.
const (
	piece     = 25
	pieceStep = 8 // from one piece of a value to the next, in bytes; each one would take eight times the memory
)

// prints is a set of fingerprints. It takes 9 or 10 bytes for each, and twice that while it grows.
// A map takes 25 to 38. If two texts share a fingerprint, too much is excluded, never too little.
type prints struct {
	table []uint64 // a fingerprint stands at its place or after it; 0 is none
	n     int      // at most seven eighths of the table
}

// seed spreads fingerprints over tables. It is secret, so that nobody can write values with the
// same place, which would make tables slow. The contents of a set do not depend on it.
var seed = rand.Uint64() | 1

// place returns the index of a fingerprint in the table, or of where to add it.
func (p *prints) place(print uint64) int {
	high, low := bits.Mul64(print, seed)
	high, _ = bits.Mul64(high^low, uint64(len(p.table)))
	at := int(high)
	for p.table[at] != print && p.table[at] != 0 {
		if at++; at == len(p.table) {
			at = 0
		}
	}
	return at
}

func (p *prints) add(print uint64) {
	if 8*p.n >= 7*len(p.table) {
		old := p.table
		p.table, p.n = make([]uint64, len(old)+len(old)/8+8), 0
		for _, print := range old {
			if print != 0 {
				p.add(print)
			}
		}
	}
	print = max(print, 1)
	if at := p.place(print); p.table[at] == 0 {
		p.table[at] = print
		p.n++
	}
}

func (p *prints) contain(print uint64) bool {
	return p.n > 0 && p.table[p.place(max(print, 1))] != 0
}

// find returns the places of values of n bytes, or of pieces, in a text. Where some touch, they
// share one.
func (e *excluder) find(text []byte, n int) (found []span) {
	p := &e.prints[n]
	if p.n == 0 {
		return nil
	}
	for end, print := range fingerprints(text, n) {
		if !p.contain(print) {
			continue
		}
		if last := len(found) - 1; last >= 0 && end-n <= found[last].to {
			found[last].to = end
		} else {
			found = append(found, span{from: end - n, to: end})
		}
	}
	return found
}

// fingerprints yields the end of each n bytes in a text, and a polynomial of them.
func fingerprints(text []byte, n int) iter.Seq2[int, uint64] {
	leaves := uint64(1) // the factor of the byte that leaves
	for range n {
		leaves *= golden
	}
	return func(yield func(int, uint64) bool) {
		print := uint64(0)
		for i := range len(text) {
			print = print*golden + uint64(text[i])
			if i >= n {
				print -= leaves * uint64(text[i-n])
			}
			if i >= n-1 && !yield(i+1, print) {
				return
			}
		}
	}
}

// cutPieces cuts the pieces of all collected values out of redacted samples, which it overwrites.
// It returns the number of samples with pieces.
func (e *excluder) cutPieces(ctx context.Context, redacted [][]byte) (with int, err error) {
	for i, s := range redacted {
		if err := ctx.Err(); err != nil {
			return with, err
		}
		found := e.find(s, piece)
		if len(found) == 0 {
			continue
		}
		kept, at := s[:0], 0
		for _, cut := range found {
			kept = append(kept, s[at:cut.from]...)
			at = cut.to
		}
		redacted[i] = append(kept, s[at:]...)
		with++
	}
	return with, nil
}

// verify looks for the values, and for pieces of them, in a dictionary.
func (e *excluder) verify(ctx context.Context, d *Dictionary) error {
	found := 0
	for n := range e.prints {
		if err := ctx.Err(); err != nil {
			return err
		}
		found += len(e.find(d.Bytes(), n))
	}
	slices.SortFunc(e.quoted, bytes.Compare)
	e.quoted = slices.CompactFunc(e.quoted, bytes.Equal)
	var index *suffixarray.Index
	if len(e.quoted) > 0 { // it takes longer than find
		index = suffixarray.New(d.Bytes())
	}
	for _, quoted := range e.quoted {
		if err := ctx.Err(); err != nil {
			return err
		}
		var value string
		if err := json.Unmarshal(quoted, &value); err != nil {
			return err
		}
		if len(index.Lookup([]byte(value), 1)) > 0 {
			found++
		}
	}
	if found > 0 {
		return fmt.Errorf("at %d places it holds values of the excluded fields %s, or pieces of them, which stand in other fields too: exclude those as well", found, strings.Join(slices.Sorted(slices.Values(e.fields)), ", "))
	}
	return nil
}
