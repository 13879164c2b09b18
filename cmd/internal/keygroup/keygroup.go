// Package keygroup finds the groups of keys in a key space, while their names pass by:
// `user:*:profile` for the keys user:17:profile and user:ada:profile. [New] makes a [Finder],
// [Finder.Add] takes a key, [Finder.Groups] returns the groups.
//
// The method has three steps.
//
//   - A key is split into parts, at ':' and similar ones ('|', '#', brackets), else at '/', else
//     at '.'. A part that looks like an id becomes `*` at once: numbers, hashes, UUIDs, drawn
//     tokens, dates, addresses, hosts, paths, codes. The same applies within a part, at '-', '_'
//     and other weak separators: user_17_profile is user_*_profile, user17 is user*. The rest is a
//     word.
//   - The parts make a tree, in which each place counts its keys. Words that turn out to be ids are
//     joined into `*` where a place has many rare ones: user:ada, user:bob. Words stay if they are
//     few, or have many keys each: rate:GET, rate:POST. Beside ids a word stays only if it has many
//     keys and other children than the ids.
//   - When the tree is at its bound, the places with the most rare words are joined first; when
//     that is not enough, the rarest branches are cut to `*`. So memory has a bound, whatever the
//     keys. A word that turns out to have many keys after it was joined is a word again; the keys
//     before that, some 16 of them, stay in `*`.
//
// Groups applies the same rules to all counted keys. The order of keys matters only for words that
// had to be joined to stay within the bound. A group is rare there if it has less than a thousandth
// of all keys and fewer than 100. It joins the group around it, or the others of its prefix. If
// more than 10 rare groups remain, they become the one named [Other].
package keygroup

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/balekv/bale"
	"github.com/balekv/bale/internal/glob"
)

// Other is the name of the group of keys that are in no other.
const Other = "(other)"

// Options are the settings of a [Finder]; the zero value is useful.
type Options struct {
	// Max is how many groups there are at most, 1 to 1000. Defaults to 200.
	Max int

	// Patterns are groups that are given, as patterns of SCAN. A key is in the first that matches
	// it, and else in one that is found. They count to Max, are never joined, and fewer than Max.
	Patterns []string
}

// Group is a set of keys that look alike.
type Group[T any] struct {
	Name  string // what its keys have in common: user:*:profile
	Match string // a pattern for SCAN that matches all its keys, and may match others'; "" where there is none
	Keys  int64  // that were added
	Value T      // what is kept for it
}

// Finder finds groups, and keeps a T for each, which is the caller's. It is for one goroutine at a
// time.
type Finder[T any] struct {
	max   int
	make  func() T
	merge func(into, from T)
	given []given[T]
	other *group[T]
	root  *node[T]
	lexer lexer
	keys  int64

	leaves, nodes int    // of the tree
	made          uint64 // nodes that were made
	joined        []slot // what words that were joined are, nil before the first
}

// Match reports whether a key matches a pattern of SCAN. The pattern has passed CheckPattern.
func Match(pattern, key string) bool { return glob.Match(pattern, key) }

// Covers reports whether a pattern is like all keys that another one is like. It says no where
// classes make that hard to tell: in the pattern, or with a backslash or a range in the other one.
func Covers(pattern, other string) bool {
	long := strings.Repeat("\x01", len(pattern)+1) // its ? alone are not like that
	return pattern == other || pattern == "*" ||
		!has(pattern, "[") && !strings.Contains(pattern, "\x01") && !(has(other, "[") && strings.ContainsAny(other, `\-`)) &&
			Match(pattern, Example(other, "")) && Match(pattern, Example(other, long))
}

// has reports whether a pattern has one of some characters without a backslash.
func has(pattern, characters string) bool {
	for i := 0; i < len(pattern); i++ {
		if pattern[i] == '\\' {
			i++
		} else if strings.IndexByte(characters, pattern[i]) >= 0 {
			return true
		}
	}
	return false
}

// Example is a key that a pattern is like, with a text in place of each *, and an odd character for
// one of several.
func Example(pattern, star string) string {
	var key strings.Builder
	closed := strings.LastIndexByte(pattern, ']')
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '*':
			key.WriteString(star)
		case c == '?':
			key.WriteByte(1)
		case c == '[':
			if key.WriteByte(1); i < closed {
				i += strings.IndexByte(pattern[i:], ']')
			}
		case c == '\\' && i+1 < len(pattern):
			i++
			key.WriteByte(pattern[i])
		default:
			key.WriteByte(c)
		}
	}
	return key.String()
}

// DictionaryGroup is the name of the group of dictionaries for a pattern's keys, if nobody has
// chosen one: user:profile for user:*:profile. It is empty for a pattern without words.
func DictionaryGroup(pattern string) string {
	var words []string
	for word := range strings.FieldsFuncSeq(Example(pattern, "\x01"), func(r rune) bool {
		return !unicode.In(r, unicode.Letter, unicode.Digit, unicode.Mark) && !strings.ContainsRune("_-.", r)
	}) {
		if word = strings.Trim(word, "_-."); word != "" {
			words = append(words, word)
		}
	}
	return strings.Join(words, ":")
}

// CheckPattern reports a pattern that Match cannot read. A goredis.Hook refuses the same ones.
func CheckPattern(pattern string) error {
	if err := glob.Check(pattern); err != nil {
		return fmt.Errorf("keygroup: %w: pattern %q %w", bale.ErrInvalid, pattern, err)
	}
	return nil
}

// given is a group of Options.Patterns.
type given[T any] struct {
	pattern string
	group   *group[T]
}

// New makes a Finder. make makes what is kept for a new group; merge adds from to into, after which
// from is not used any more.
func New[T any](o Options, make func() T, merge func(into, from T)) (*Finder[T], error) {
	if o.Max == 0 {
		o.Max = 200
	}
	f := &Finder[T]{max: o.Max, make: make, merge: merge, root: &node[T]{}}
	switch {
	case make == nil || merge == nil:
		return nil, fmt.Errorf("keygroup: %w: no make or no merge", bale.ErrInvalid)
	case o.Max < 1 || o.Max > 1000:
		return nil, fmt.Errorf("keygroup: %w: Max is %d, must be 1 to 1000, or 0 for 200", bale.ErrInvalid, o.Max)
	case len(o.Patterns) >= o.Max:
		return nil, fmt.Errorf("keygroup: %w: %d patterns, must be fewer than the %d groups of Max", bale.ErrInvalid, len(o.Patterns), o.Max)
	}
	for _, p := range o.Patterns {
		if err := CheckPattern(p); err != nil {
			return nil, err
		}
		f.given = append(f.given, given[T]{pattern: p})
	}
	return f, nil
}

// Add counts a key and returns what is kept for its group. The key is not kept.
func (f *Finder[T]) Add(key string) T {
	g := f.add(key)
	g.keys++
	return g.value
}

func (f *Finder[T]) add(key string) *group[T] {
	f.keys++
	for i := range f.given {
		if p := &f.given[i]; glob.Match(p.pattern, key) {
			if p.group == nil {
				p.group = f.newGroup()
			}
			return p.group
		}
	}
	if key == "" {
		return f.others()
	}
	if f.leaves >= maxLeaves || f.nodes >= maxNodes {
		f.shrink()
	}
	n := f.root
	n.keys++
	for _, p := range f.lexer.split(key) {
		if n.rest {
			break
		}
		c := n.next(&p)
		if c == nil || c.edge != string(p.edge) && !p.whole && f.returns(n, p.edge) {
			c = f.newNode(n, &p)
		}
		c.keys++
		c.saw(&p)
		n.odd = n.odd || p.binary
		n = c
	}
	if n.leaf == nil {
		n.leaf = f.newGroup()
		n.leaf.home = n
		f.leaves++
	}
	return n.leaf.now()
}

// Find returns what is kept for the group of a key that was added, without counting it: groups may
// have been merged since. It is false for a key that is in no group.
func (f *Finder[T]) Find(key string) (T, bool) {
	if g := f.find(key); g != nil {
		return g.value, true
	}
	var zero T
	return zero, false
}

func (f *Finder[T]) find(key string) *group[T] {
	for _, p := range f.given {
		if glob.Match(p.pattern, key) {
			return p.group
		}
	}
	if key == "" {
		return f.other
	}
	parts := f.lexer.split(key)
	n := f.root
	for i := range parts {
		if n.rest {
			break
		}
		if n = n.next(&parts[i]); n == nil {
			break
		}
	}
	if n == nil || n.leaf == nil {
		// Where branches were joined, the key may have been counted beside a word that came later.
		steps := maxSteps
		if n = f.root.search(parts, &steps, func(n *node[T]) bool { return n.leaf != nil }); n == nil {
			return nil
		}
	}
	return n.leaf.now()
}

// others is the group of what is in no other.
func (f *Finder[T]) others() *group[T] {
	if f.other == nil {
		f.other = f.newGroup()
	}
	return f.other
}

// group is what a leaf of the tree has.
type group[T any] struct {
	keys  int64
	value T
	home  *node[T]  // the node whose pattern matches its keys; nil for none
	into  *group[T] // the group that it was merged into
}

func (f *Finder[T]) newGroup() *group[T] { return &group[T]{value: f.make()} }

// now is the group that g is a part of.
func (g *group[T]) now() *group[T] {
	for g.into != nil {
		if g.into.into != nil {
			g.into = g.into.into
		}
		g = g.into
	}
	return g
}

// join merges one group into another.
func (f *Finder[T]) join(into, from *group[T]) {
	into, from = into.now(), from.now()
	if into == from {
		return
	}
	into.keys += from.keys
	f.merge(into.value, from.value)
	var zero T
	from.value, from.home, from.into = zero, nil, into
}

// unescape makes a name of a pattern: only a star of the keys keeps its backslash, to tell it from
// one of the pattern.
func unescape(pattern string) string {
	if strings.IndexByte(pattern, '\\') < 0 {
		return pattern
	}
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		if pattern[i] == '\\' && i+1 < len(pattern) && pattern[i+1] != '*' {
			i++
			b.WriteByte(pattern[i])
			continue
		}
		b.WriteByte(pattern[i])
		if pattern[i] == '\\' && i+1 < len(pattern) {
			i++
			b.WriteByte(pattern[i])
		}
	}
	return b.String()
}
