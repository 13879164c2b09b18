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
	"slices"
	"strings"
	"unicode"

	"github.com/balekv/bale/internal/fieldpath"
)

// minSecret is the length in bytes from which on an excluded value is looked for elsewhere in the
// samples and in the dictionary. Shorter ones ("true", "42") are in anything.
const minSecret = 6

// excluder blanks the values of fields in JSON samples, and checks dictionaries for them.
type excluder struct {
	fields  fieldpath.Paths
	secrets map[string]bool
	pieces  pieces // of the secrets
}

func newExcluder(fields []string) *excluder {
	return &excluder{fields: fields, secrets: map[string]bool{}}
}

// span is a part of a sample.
type span struct {
	from, to  int
	elsewhere bool // what stands there is to be left out elsewhere, too
}

// collect finds the values of the fields in a sample, with all names inside them, and remembers
// them. It returns false for a sample that is no JSON object or list, or nests deeper than
// fieldpath.MaxDepth: its fields are unknown. A text or number may be a field of a hash.
func (e *excluder) collect(sample []byte) ([]span, bool) {
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
						spans = append(spans, e.hide(sample, int(before), int(d.InputOffset()), token, !isWord(name))...)
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
				spans = append(spans, e.hide(sample, int(before), int(d.InputOffset()), token, true)...)
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

// hide returns the span of a scalar value or a name, without quotes. With elsewhere it also
// remembers the text, both raw and unescaped, to find it in other places.
func (e *excluder) hide(sample []byte, from, to int, token json.Token, elsewhere bool) []span {
	// Between the end of the token before and this one there are only spaces, ':' and ','.
	for from < to && strings.IndexByte(" \t\r\n:,", sample[from]) >= 0 {
		from++
	}
	if s, ok := token.(string); ok {
		from, to = from+1, to-1
		if elsewhere {
			// Inside strings of samples quotes have escapes. Without them they are syntax: pieces
			// across them, of a value that is itself JSON, may be in all samples.
			e.remember(s, strings.Split(s, `"`)...)
		}
	}
	if from >= to {
		return nil
	}
	if elsewhere {
		raw := string(sample[from:to])
		e.remember(raw, raw)
	}
	return []span{{from, to, elsewhere && to-from >= minSecret}}
}

// remember keeps a value, and the pieces of its parts.
func (e *excluder) remember(value string, parts ...string) {
	if len(value) < minSecret || e.secrets[value] {
		return
	}
	e.secrets[value] = true
	for _, p := range parts {
		e.pieces.add(p)
	}
}

// redact returns the samples without the values of the fields, and how many were left out because
// they are no JSON objects or lists.
func (e *excluder) redact(ctx context.Context, samples [][]byte) (redacted [][]byte, skipped int, err error) {
	for _, s := range samples {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		spans, ok := e.collect(s)
		if !ok {
			skipped++
			continue
		}
		b := make([]byte, 0, len(s))
		at := 0
		var own []string
		for _, cut := range spans {
			b = append(b, s[at:cut.from]...)
			at = cut.to
			if cut.elsewhere {
				own = append(own, string(s[cut.from:cut.to]))
			}
		}
		// A value may stand elsewhere, too: an e-mail address in a text, a token in a URL.
		redacted = append(redacted, newCutter(own).cut(append(b, s[at:]...)))
	}
	return redacted, skipped, nil
}

// maxWord is the longest string in bytes that a cutter looks for in one piece. It bounds what is
// compared at each place of a text: a long value that repeats itself would take quadratic time.
const maxWord = 256

// cutter takes strings of minSecret bytes or more out of texts, in time that hardly depends on how
// many they are. Longer ones than maxWord go piece by piece.
type cutter struct {
	words  []string        // sorted, each once
	prefix []int           // of each word: the longest other one that it starts with, or -1
	starts map[string]bool // the first minSecret bytes of the words
}

func newCutter(whole []string) *cutter {
	var words []string
	for _, w := range whole {
		for len(w) > maxWord {
			n := min(maxWord, len(w)-minSecret) // for the last one to be long enough
			words, w = append(words, w[:n]), w[n:]
		}
		words = append(words, w)
	}
	slices.Sort(words)
	c := &cutter{words: slices.Compact(words), starts: map[string]bool{}}
	for i, w := range c.words {
		c.starts[w[:minSecret]] = true
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

// longest is the length of the longest word that a text starts with, or zero.
func (c *cutter) longest(text string) int {
	if len(text) < minSecret || !c.starts[text[:minSecret]] {
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

// pieces are fingerprints of pieces of values. They take less than two bytes per byte of a value; a
// map takes up to five.
type pieces struct {
	prints []uint64
	starts []uint32 // by first bits: where their prints start, once these are sorted
	shift  int
}

// add adds the pieces of a value. The last one ends with it, so that nothing of a whole value is
// left.
func (p *pieces) add(value string) {
	for end, print := range fingerprints(value) {
		if (end-piece)%pieceStep == 0 || end == len(value) {
			p.prints, p.starts = append(p.prints, print), nil
		}
	}
}

// sort makes the pieces ready for find.
func (p *pieces) sort() {
	if p.starts != nil {
		return
	}
	slices.Sort(p.prints)
	p.prints = slices.Compact(p.prints)
	log := bits.Len(uint(len(p.prints) / 4))
	p.shift = 64 - log
	p.starts = make([]uint32, 1<<log+1)
	at := 0
	for i := range p.starts {
		for at < len(p.prints) && p.prints[at]>>p.shift < uint64(i) {
			at++
		}
		p.starts[i] = uint32(at)
	}
}

func (p *pieces) contain(print uint64) bool {
	first := print >> p.shift
	_, found := slices.BinarySearch(p.prints[p.starts[first]:p.starts[first+1]], print)
	return found
}

// find returns the places of pieces in a text. Pieces that touch share one.
func (p *pieces) find(text []byte) (found []span) {
	p.sort()
	if len(p.prints) == 0 {
		return nil
	}
	for end, print := range fingerprints(text) {
		if !p.contain(print) {
			continue
		}
		if last := len(found) - 1; last >= 0 && end-piece <= found[last].to {
			found[last].to = end
		} else {
			found = append(found, span{from: end - piece, to: end})
		}
	}
	return found
}

// fingerprints yields the end of each piece in a text, and a polynomial of its bytes.
func fingerprints[T string | []byte](text T) iter.Seq2[int, uint64] {
	leaves := uint64(1) // the factor of the byte that leaves
	for range piece {
		leaves *= golden
	}
	return func(yield func(int, uint64) bool) {
		print := uint64(0)
		for i := range len(text) {
			print = print*golden + uint64(text[i])
			if i >= piece {
				print -= leaves * uint64(text[i-piece])
			}
			if i >= piece-1 && !yield(i+1, print) {
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
		found := e.pieces.find(s)
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
	if len(e.secrets) == 0 {
		return nil
	}
	index := suffixarray.New(d.Bytes())
	found := len(e.pieces.find(d.Bytes()))
	for secret := range e.secrets {
		if err := ctx.Err(); err != nil {
			return err
		}
		if len(index.Lookup([]byte(secret), 1)) > 0 {
			found++
		}
	}
	if found > 0 {
		return fmt.Errorf("it holds %d values, or pieces of values, of the excluded fields %s, which stand in other fields too: exclude those as well", found, strings.Join(slices.Sorted(slices.Values(e.fields)), ", "))
	}
	return nil
}
