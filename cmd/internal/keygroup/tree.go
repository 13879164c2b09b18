package keygroup

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Bounds of the tree. A leaf has a group, and so a T.
const (
	maxLeaves = 4096
	maxNodes  = 16384
	maxRaw    = 64   // bytes that are kept of the one value of an id
	maxForms  = 64   // of a node
	maxSteps  = 1000 // of a search
)

// node is a place in the tree: what a key was up to some part of it.
type node[T any] struct {
	id       uint64 // among all nodes that were made
	edge     string // of the part: its separators and label, as a glob; the key in its parent's children
	sep      int    // how many bytes of edge are separators
	keys     int64  // that went through
	leaf     *group[T]
	children map[string]*node[T]
	forms    []form // of children that words are joined into, such as user_*

	raw     string // what the part was in all keys, if it is wild
	varied  bool   // it was not the same in all keys
	lead    string // the letters that the part began with in all keys, if digits alone were behind them
	wild    bool   // the label has a *
	whole   bool   // the label is *
	catches bool   // it is for the words too that are no siblings of it
	caught  bool   // a child catches
	binary  bool   // it had a part that is no text, in which separators may be chance
	odd     bool   // a child is binary
	rest    bool   // it is for all that is below
}

// sepOf returns the separators before the label.
func (n *node[T]) sepOf() string { return n.edge[:n.sep] }

func (n *node[T]) label() string { return n.edge[n.sep:] }

// endsWild reports whether the label ends in a *, other than one of the keys, which is escaped.
func (n *node[T]) endsWild() bool {
	before, ok := strings.CutSuffix(n.edge, "*")
	return ok && (len(before)-len(strings.TrimRight(before, `\`)))%2 == 0
}

// form is a label with one * that other labels are joined into.
type form struct {
	edge           string // of the child
	prefix, suffix string // of edges, around the *
}

func (f form) match(edge []byte) bool {
	return len(edge) >= len(f.prefix)+len(f.suffix) && string(edge[:len(f.prefix)]) == f.prefix && string(edge[len(edge)-len(f.suffix):]) == f.suffix
}

// next returns the child for a part, nil for none.
func (n *node[T]) next(p *part) *node[T] {
	if c := n.children[string(p.edge)]; c != nil {
		return c
	}
	for _, f := range n.forms {
		if f.match(p.edge) {
			if c := n.children[f.edge]; c != nil {
				return c
			}
		}
	}
	if n.caught {
		if c := n.star(p.edge[:p.sep]); c != nil && c.catches {
			return c
		}
	}
	return nil
}

// star returns the child whose label is * behind separators.
func (n *node[T]) star(sep []byte) *node[T] {
	var b [2*maxSep + 1]byte
	return n.children[string(append(append(b[:0], sep...), '*'))]
}

// search returns a node for parts that is wanted, whichever way, in not more steps than given.
func (n *node[T]) search(parts []part, steps *int, wanted func(*node[T]) bool) *node[T] {
	if *steps--; *steps < 0 {
		return nil
	}
	if len(parts) == 0 || n.rest {
		if !wanted(n) {
			return nil
		}
		return n
	}
	p := &parts[0]
	if c := n.children[string(p.edge)]; c != nil {
		if leaf := c.search(parts[1:], steps, wanted); leaf != nil {
			return leaf
		}
	}
	for _, f := range n.forms {
		if c := n.children[f.edge]; c != nil && f.match(p.edge) {
			if leaf := c.search(parts[1:], steps, wanted); leaf != nil {
				return leaf
			}
		}
	}
	if c := n.star(p.edge[:p.sep]); c != nil {
		return c.search(parts[1:], steps, wanted)
	}
	return nil
}

func (f *Finder[T]) newNode(n *node[T], p *part) *node[T] {
	c := &node[T]{edge: string(p.edge), sep: p.sep, lead: strings.Clone(lead(p.raw)), wild: p.wild, whole: p.whole}
	if c.wild {
		c.varied = len(p.raw) > maxRaw || p.binary || p.rest
		if !c.varied {
			c.raw = strings.Clone(p.raw)
		}
	}
	f.enter(n, c)
	return c
}

// enter attaches a node that was made.
func (f *Finder[T]) enter(n, c *node[T]) {
	f.nodes++
	f.made++
	c.id = f.made
	f.attach(n, c)
}

func (f *Finder[T]) attach(n, c *node[T]) {
	if n.children == nil {
		n.children = make(map[string]*node[T])
	}
	n.children[c.edge] = c
}

// slot is where words that were joined are counted until they have enough keys to be words again.
// All whose hash leads there share it: the key of another one takes one away. So a word returns
// that has more keys than the others of its slot together, whatever their number.
type slot struct {
	hash uint64 // of the node and the edge
	keys int
}

// Bounds of slots.
const (
	slots    = 4096 // as maxLeaves: 64 KiB
	returned = 16   // keys that make a joined word one of its own; they stay where they are
)

// returns counts the key of a word that was joined with others at a node. It reports whether it has
// to have a node again.
func (f *Finder[T]) returns(n *node[T], edge []byte) bool {
	if f.joined == nil {
		f.joined = make([]slot, slots)
	}
	hash := (uint64(14695981039346656037) ^ n.id) * 1099511628211 // FNV-1a
	for _, b := range edge {
		hash = (hash ^ uint64(b)) * 1099511628211
	}
	s := &f.joined[(hash^hash>>32)%slots]
	switch {
	case s.hash == hash:
		s.keys++
	case s.keys == 0:
		*s = slot{hash: hash, keys: 1}
	default:
		s.keys--
	}
	if s.hash != hash || s.keys < returned {
		return false
	}
	*s = slot{}
	return true
}

// saw notes what a part was.
func (n *node[T]) saw(p *part) {
	if n.wild && !n.varied && n.raw != p.raw {
		n.varied = true
		n.raw = ""
	}
	if n.lead != "" && n.lead != lead(p.raw) {
		n.lead = ""
	}
	n.binary = n.binary || p.binary
}

// lead returns the letters of a part that has digits alone behind them: u of u1234. Else it is "".
func lead(raw string) string {
	i := 0
	for is(raw, i, letter) {
		i++
	}
	if n := digits(raw, i); n == 0 || i+n < len(raw) {
		return ""
	}
	return raw[:i]
}

// sorted returns the children in an order that does not depend on that of the map.
func (n *node[T]) sorted() []*node[T] {
	return slices.SortedFunc(maps.Values(n.children), func(a, b *node[T]) int { return strings.Compare(a.edge, b.edge) })
}

// places returns the children by what separates them from n, in order.
func (n *node[T]) places() [][]*node[T] {
	if len(n.children) == 0 {
		return nil
	}
	all := n.sorted()
	slices.SortStableFunc(all, func(a, b *node[T]) int { return strings.Compare(a.sepOf(), b.sepOf()) })
	var places [][]*node[T]
	for start := 0; start < len(all); {
		end := start
		for end < len(all) && all[end].sepOf() == all[start].sepOf() {
			end++
		}
		places = append(places, all[start:end])
		start = end
	}
	return places
}

// collapse joins children of n, which are of one place, into the one with the edge sep+label, and
// makes that if need be.
func (f *Finder[T]) collapse(n *node[T], sep, label string, joined []*node[T]) *node[T] {
	edge := sep + label
	into := n.children[edge]
	if into == nil {
		into = &node[T]{edge: edge, sep: len(sep), lead: joined[0].lead, wild: true, whole: label == "*"}
		f.enter(n, into)
	}
	into.varied, into.raw = true, ""
	for _, c := range joined {
		if c != into {
			delete(n.children, c.edge)
			f.absorb(into, c)
		}
	}
	if into.whole {
		into.catches, n.caught = true, true
	}
	n.forms = slices.DeleteFunc(n.forms, func(f form) bool { return n.children[f.edge] == nil })
	return into
}

// absorb adds a branch that is detached from the tree to another.
func (f *Finder[T]) absorb(into, from *node[T]) {
	f.nodes--
	into.keys += from.keys
	if into.lead != from.lead {
		into.lead = ""
	}
	into.binary, into.odd = into.binary || from.binary, into.odd || from.odd
	if into.wild && (from.varied || !from.wild || into.raw != from.raw) {
		into.varied, into.raw = true, ""
	}
	if from.rest && !into.rest {
		f.cut(into)
	}
	if from.leaf != nil {
		f.move(into, from)
	}
	for _, c := range from.sorted() {
		if into.rest {
			f.drain(into, c)
			continue
		}
		to := into.next(&part{edge: []byte(c.edge), sep: c.sep})
		if to == nil {
			f.attach(into, c)
			into.odd = into.odd || c.binary
			into.caught = into.caught || c.catches
			continue
		}
		if c.catches && to.whole {
			to.catches, into.caught = true, true
		}
		f.absorb(to, c)
	}
	for _, form := range from.forms {
		if into.children[form.edge] != nil && !slices.Contains(into.forms, form) {
			into.forms = append(into.forms, form)
		}
	}
}

// move gives the group of one node to another.
func (f *Finder[T]) move(into, from *node[T]) {
	a, g := into.leaf, from.leaf.now()
	from.leaf = nil
	home := g.home == from
	if a == nil {
		into.leaf = g
		if home {
			g.home = into
		}
		return
	}
	f.leaves--
	if a = a.now(); a == g {
		if home {
			g.home = into
		}
	} else if home {
		f.join(a, g)
	}
	// What is the group of other nodes stays theirs.
}

// drain moves all groups of a branch that is detached from the tree to a node.
func (f *Finder[T]) drain(into, from *node[T]) {
	f.nodes--
	if from.leaf != nil {
		f.move(into, from)
	}
	for _, c := range from.sorted() {
		f.drain(into, c)
	}
}

// cut makes one leaf of a node and all that is below it.
func (f *Finder[T]) cut(n *node[T]) {
	below := n.sorted()
	n.children, n.forms, n.caught = nil, nil, false
	for _, c := range below {
		f.drain(n, c)
	}
	n.rest, n.varied, n.raw = true, true, ""
}

// cutBelow makes one leaf of all that is below a node, but keeps the node's own.
func (f *Finder[T]) cutBelow(n *node[T]) {
	places := n.places()
	if n.rest || len(places) == 0 {
		return
	}
	if len(places) > 4 || n == f.root {
		f.cut(n)
		return
	}
	for _, place := range places {
		if len(place) == 1 && place[0].rest {
			continue
		}
		c := f.collapse(n, place[0].sepOf(), "*", place)
		f.cut(c)
	}
}

// Bounds of what is joined while keys pass by.
const (
	bushy  = 32 // rare words at a place that are joined for memory
	rarely = 64 // a word with less than this part of its place's keys is rare
)

// shrink makes the tree half as large as it may be: it joins where there are the most rare words,
// and else cuts the rarest branches.
func (f *Finder[T]) shrink() {
	small := func() bool { return f.leaves <= maxLeaves/2 && f.nodes <= maxNodes/2 }
	for rare := int64(1); rare < f.keys/rarely+2 && !small(); rare *= 4 {
		f.thin(f.root, rare, true)
	}
	for below := f.keys/1000 + 1; !small(); below *= 2 {
		f.prune(f.root, below)
	}
}

// thin joins the rare words of a branch, those with at most rare keys, at places with many of them.
// It does not go below a place that is likely to be joined later: the children of its words are
// better counted for all of them together.
func (f *Finder[T]) thin(n *node[T], rare int64, first bool) {
	for _, place := range n.places() {
		sep := place[0].sepOf()
		var joined []*node[T]
		var keys int64
		for _, c := range place {
			keys += c.keys
		}
		seldom := 0
		for _, c := range place {
			switch {
			case c.whole:
			case c.keys <= rare && (c.keys*rarely < keys || c.keys == 1):
				joined = append(joined, c)
			case c.keys*256 < keys:
				seldom++
			}
		}
		if len(joined) >= bushy {
			f.generalize(n, sep, joined)
		}
		below := seldom < 2*bushy || first
		for _, c := range place {
			if (below || c.whole) && n.children[c.edge] == c {
				f.thin(c, rare, first && len(n.children) == 1)
			}
		}
	}
}

// prune cuts the branches that have fewer keys than given.
func (f *Finder[T]) prune(n *node[T], below int64) {
	if n.keys < below {
		f.cutBelow(n)
		return
	}
	for _, place := range n.places() {
		var joined []*node[T]
		for _, c := range place {
			if c.keys < below && !c.whole {
				joined = append(joined, c)
			}
		}
		if len(joined) > 4 {
			f.collapse(n, place[0].sepOf(), "*", joined)
		}
	}
	if len(n.places()) > 8 {
		f.cut(n)
		return
	}
	for _, c := range n.sorted() {
		f.prune(c, below)
	}
}

// Bounds of forms.
const (
	fewWords  = 16 // that stand before an id within a part, or behind it
	formSize  = 8  // labels that make a form
	mostParts = 95 // percent of the labels that have to be of forms
)

// generalize joins children of one place, by what they begin and end with if that is one of few
// words: user_ada and user_bob into user_*. It joins them into * if not.
func (f *Finder[T]) generalize(n *node[T], sep string, joined []*node[T]) {
	forms := formsOf(joined, len(sep))
	if len(n.forms)+len(forms) > maxForms {
		forms = nil
	}
	for _, form := range forms {
		var some []*node[T]
		joined = slices.DeleteFunc(joined, func(c *node[T]) bool {
			if form.match([]byte(c.edge)) {
				some = append(some, c)
				return true
			}
			return false
		})
		if len(some) == 0 {
			continue
		}
		f.collapse(n, sep, form.edge[len(sep):], some)
		if !slices.Contains(n.forms, form) {
			n.forms = append(n.forms, form)
		}
	}
	if len(joined) > 0 && (len(forms) == 0 || len(joined) >= formSize) {
		f.collapse(n, sep, "*", joined)
	}
}

// inner separates words within a label.
func inner(b byte) bool { return b == '_' || b == '-' || b == '.' || b == '/' || b == ' ' }

// formsOf returns the forms of labels, which start at offset start of edges; none where they have
// not few in common.
func formsOf[T any](labels []*node[T], start int) []form {
	groups := make(map[string][]*node[T]) // by the word that starts the label, and its separator
	covered := 0
	for _, c := range labels {
		end := start
		for end < len(c.edge) && !inner(c.edge[end]) {
			end++
		}
		if end == len(c.edge) || end == start {
			continue
		}
		groups[c.edge[:end+1]] = append(groups[c.edge[:end+1]], c)
	}
	maps.DeleteFunc(groups, func(_ string, g []*node[T]) bool { return len(g) < formSize })
	for _, g := range groups {
		covered += len(g)
	}
	if len(groups) == 0 || len(groups) > fewWords || covered*100 < len(labels)*mostParts {
		return nil
	}
	var forms []form
	for _, prefix := range slices.Sorted(maps.Keys(groups)) {
		g := groups[prefix]
		if more := formsOf(g, len(prefix)); more != nil {
			forms = append(forms, more...)
			continue
		}
		for _, suffix := range suffixes(g, len(prefix)) {
			forms = append(forms, form{edge: prefix + "*" + suffix, prefix: prefix, suffix: suffix})
		}
	}
	return forms
}

// suffixes returns what labels end with, the longest first; "" where that is not one of few.
func suffixes[T any](labels []*node[T], start int) []string {
	count := make(map[string]int)
	covered := 0
	for _, c := range labels {
		if i := strings.LastIndexFunc(c.edge[start:], func(r rune) bool { return r < 0x80 && inner(byte(r)) }); i > 0 {
			count[c.edge[start+i:]]++
		}
	}
	maps.DeleteFunc(count, func(_ string, n int) bool { return n < formSize })
	for _, n := range count {
		covered += n
	}
	if len(count) == 0 || len(count) > fewWords/2 || covered*100 < len(labels)*mostParts {
		return []string{""}
	}
	return slices.SortedFunc(maps.Keys(count), func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
}
