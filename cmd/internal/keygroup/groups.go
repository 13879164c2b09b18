package keygroup

import (
	"cmp"
	"slices"
	"strings"
)

// What decides at the end.
const (
	frequent  = 50  // keys that a word needs, to stay beside ids or many other words
	fewRare   = 16  // rare words that stay at a place without ids
	fewAlike  = 32  // words that stay though what is below them is the same
	manyCodes = 4   // codes, of languages and so on, that are ids
	constant  = 100 // keys that tell that a part which looks like an id is always the same
	rareKeys  = 100 // a group with fewer keys is rare, if it has less than
	rarePart  = 1000
	fewGroups = 10 // rare groups that stay
	chance    = 50 // less than this part of the keys at a place of ids is there by chance

	fewSiblings = 3 // rare words below a prefix that are joined, where there are many rare groups
)

// Groups returns what was found, at most Options.Max groups, largest first. It merges groups to
// that end; more keys may be added after it.
func (f *Finder[T]) Groups() []Group[T] {
	f.refine(f.root, true)
	if f.root.rest {
		f.join(f.others(), f.root.leaf)
	}
	f.gather()
	given := 0
	for _, p := range f.given {
		if p.group != nil {
			given++
		}
	}
	f.fit(f.max - given)

	var groups []Group[T]
	for _, p := range f.given {
		if p.group != nil {
			groups = append(groups, Group[T]{Name: p.pattern, Match: p.pattern, Keys: p.group.keys, Value: p.group.value})
		}
	}
	f.walk(f.root, nil, func(n *node[T], above []*node[T]) {
		match := patternOf(path(n, above))
		groups = append(groups, Group[T]{Name: unescape(match), Match: match, Keys: n.leaf.keys, Value: n.leaf.value})
	})
	if f.other != nil {
		groups = append(groups, Group[T]{Name: Other, Keys: f.other.keys, Value: f.other.value})
	}
	slices.SortFunc(groups, func(a, b Group[T]) int { return cmp.Or(cmp.Compare(b.Keys, a.Keys), strings.Compare(a.Name, b.Name)) })
	return groups
}

// path is the way down to a node from the root, which walk gives with the nodes above it.
func path[T any](n *node[T], above []*node[T]) []*node[T] {
	return append(above[1:len(above):len(above)], n)
}

func patternOf[T any](path []*node[T]) string {
	var b strings.Builder
	for _, n := range path {
		n.pattern(&b)
	}
	return b.String()
}

// pattern appends the node's part of a pattern.
func (n *node[T]) pattern(b *strings.Builder) {
	switch {
	case n.wild && !n.varied && n.keys >= constant:
		b.WriteString(n.sepOf())
		for i := range len(n.raw) {
			if classes[n.raw[i]]&special != 0 {
				b.WriteByte('\\')
			}
			b.WriteByte(n.raw[i])
		}
	case n.rest && !n.whole:
		b.WriteString(n.edge + "*")
	case n.whole && n.keys >= constant:
		b.WriteString(n.sepOf() + n.lead + "*")
	default:
		b.WriteString(n.edge)
	}
}

// walk calls do for all nodes that have a group of their own, with the nodes above them.
func (f *Finder[T]) walk(n *node[T], above []*node[T], do func(n *node[T], above []*node[T])) {
	if n.leaf != nil {
		if n.leaf = n.leaf.now(); n.leaf.home == n {
			do(n, above)
		}
	}
	if len(n.children) == 0 {
		return
	}
	above = append(above, n)
	for _, c := range n.sorted() {
		f.walk(c, above, do)
	}
}

// refine decides for each place of a branch which words are ids, from above. The first place is the
// one at which the names of keys begin to differ: there words that are frequent stay in any case.
func (f *Finder[T]) refine(n *node[T], first bool) {
	for _, place := range n.places() {
		f.settle(n, place[0].sepOf(), first)
	}
	only := first && len(n.children) == 1
	for _, c := range n.sorted() {
		f.refine(c, only)
	}
}

// place returns the words behind a separator, without *. keys counts the keys of all children
// behind it.
func (n *node[T]) place(sep string) (words []*node[T], keys int64) {
	for _, c := range n.sorted() {
		if c.sepOf() == sep {
			keys += c.keys
			if !c.whole {
				words = append(words, c)
			}
		}
	}
	return words, keys
}

func (f *Finder[T]) settle(n *node[T], sep string, first bool) {
	f.joinCodes(n, sep)
	f.joinForms(n, sep)

	words, keys := n.place(sep)
	star := n.children[sep+"*"]
	var rare, beside []*node[T] // beside ids, of which there are many more
	var sum int64
	for _, c := range words {
		switch {
		case c.keys >= frequent:
		case star != nil && !first && (star.catches || c.keys*10 <= star.keys):
			beside = append(beside, c)
		default:
			rare = append(rare, c)
			sum += c.keys
		}
	}
	if len(beside) > 0 {
		f.collapse(n, sep, "*", beside)
	}
	oneOff := first && (star == nil || !star.catches) && sum*100 < f.keys
	if len(rare) > fewRare && !oneOff {
		// A few words without a digit beside many short ids are no ids: menu beside u1 to u99.
		ids := slices.DeleteFunc(slices.Clone(rare), func(c *node[T]) bool { return !hasDigit(c.label()) })
		if first && len(ids) > 0 && len(rare)-len(ids) <= fewRare {
			rare = ids
		}
		f.generalize(n, sep, rare)
	}

	words, _ = n.place(sep)
	if star = n.children[sep+"*"]; !first && star != nil && (star.keys*2 >= keys || star.catches && star.keys*10 >= keys) {
		if words = slices.DeleteFunc(words, func(c *node[T]) bool { return named(c, keys) || !alike(c, star) }); len(words) > 0 {
			f.collapse(n, sep, "*", words)
		}
		return
	}
	if len(words) <= fewAlike {
		return
	}
	largest := slices.MaxFunc(words, func(a, b *node[T]) int { return cmp.Compare(a.keys, b.keys) })
	if first && (len(words) <= 2*fewAlike || !largest.forks()) { // user:*, order:* and so on, each with ids alone
		return
	}
	same := slices.DeleteFunc(slices.Clone(words), func(c *node[T]) bool { return !alike(c, largest) })
	if len(same)*10 >= len(words)*9 {
		f.generalize(n, sep, same)
	}
}

// named reports whether to keep a label with a * beside the ids of a place with this number of
// keys. The label needs many of the keys, or several keys and a word of its own, as session-*.
func named[T any](n *node[T], keys int64) bool {
	if !n.wild || n.keys*20 >= keys {
		return n.wild
	}
	return n.keys >= rareKeys && n.keys*200 >= keys && slices.ContainsFunc(strings.FieldsFunc(n.label(), func(r rune) bool { return r < 0x80 && inner(byte(r)) }),
		func(word string) bool { return len(word) > 2 && !strings.Contains(word, "*") })
}

// forks reports whether there is more than one way down from n.
func (n *node[T]) forks() bool {
	for len(n.children) == 1 && n.leaf == nil {
		for _, c := range n.children {
			n = c
		}
	}
	return len(n.children) > 0
}

// joinForms joins rare words at a place into the labels with one * that they match: cus_AbCdE into
// cus_*, beside many of which it is.
func (f *Finder[T]) joinForms(n *node[T], sep string) {
	words, _ := n.place(sep)
	forms := slices.Clone(n.forms)
	for _, c := range words {
		prefix, suffix, ok := strings.Cut(c.edge, "*")
		if ok && c.keys >= frequent && len(prefix) > len(sep) && !strings.ContainsAny(c.label(), "\\") && !strings.Contains(suffix, "*") {
			forms = append(forms, form{edge: c.edge, prefix: prefix, suffix: suffix})
		}
	}
	for _, form := range forms {
		into := n.children[form.edge]
		if into == nil || form.prefix[:min(len(sep), len(form.prefix))] != sep {
			continue
		}
		known := slices.Contains(n.forms, form)
		alike := slices.DeleteFunc(slices.Clone(words), func(c *node[T]) bool {
			if c == into || n.children[c.edge] != c || c.keys >= frequent || c.keys*10 > into.keys || !form.match([]byte(c.edge)) {
				return true
			}
			return !known && strings.ContainsFunc(c.edge[len(form.prefix):len(c.edge)-len(form.suffix)], func(r rune) bool { return r < 0x80 && inner(byte(r)) })
		})
		if len(alike) == 0 || !known && len(n.forms) >= maxForms {
			continue
		}
		f.collapse(n, sep, form.edge[len(sep):], alike)
		if !known {
			n.forms = append(n.forms, form)
		}
	}
}

// alike reports whether every large child of a (a tenth of its keys or more) also exists below b,
// with more of b's keys than chance explains.
func alike[T any](a, b *node[T]) bool {
	if b.rest {
		return true
	}
	small := make(map[string]int64)
	left := a.ends()
	for _, c := range a.children {
		if c.keys*10 < a.keys {
			small[c.sepOf()] += c.keys
			continue
		}
		to := b.next(&part{edge: []byte(c.edge), sep: c.sep})
		if to == nil || to.keys*chance < b.keys || !alike(c, to) {
			return false
		}
	}
	if left*10 >= a.keys && b.ends()*chance < b.keys {
		return false
	}
	for sep, keys := range small {
		if keys*10 < a.keys {
			continue
		}
		found := false
		for _, c := range b.children {
			found = found || c.sepOf() == sep
		}
		if !found {
			return false
		}
	}
	return true
}

// ends returns how many keys end at n.
func (n *node[T]) ends() int64 {
	keys := n.keys
	for _, c := range n.children {
		keys -= c.keys
	}
	return keys
}

// joinCodes joins the codes of languages, countries and currencies at a place where there are many:
// as the whole label, or at the same place of one.
func (f *Finder[T]) joinCodes(n *node[T], sep string) {
	words, _ := n.place(sep)
	type at struct {
		form form
		kind codeKind
	}
	found := make(map[at][]*node[T])
	var order []at
	for _, c := range words {
		start := len(sep)
		for start < len(c.edge) {
			end := start
			for end < len(c.edge) && !inner(c.edge[end]) {
				end++
			}
			kinds := kindOf(c.edge[start:end])
			for kind := language; kind <= currency && kinds != 0; kind <<= 1 {
				if kinds&kind == 0 {
					continue
				}
				prefix, suffix := c.edge[:start], c.edge[end:]
				edge := prefix + "*" + suffix
				if i := len(prefix) - 2; i >= len(sep) && prefix[i] == '*' && (i == 0 || prefix[i-1] != '\\') {
					edge = prefix[:i+1] + suffix
				} else if len(suffix) > 1 && suffix[1] == '*' {
					edge = prefix + suffix[1:]
				}
				a := at{form{edge: edge, prefix: prefix, suffix: suffix}, kind}
				if found[a] == nil {
					order = append(order, a)
				}
				found[a] = append(found[a], c)
			}
			start = end + 1
		}
	}
	for _, a := range order {
		joined := slices.DeleteFunc(found[a], func(c *node[T]) bool { return n.children[c.edge] != c })
		whole := a.form.edge == sep+"*"
		if len(joined) < manyCodes || whole && len(joined)*4 < len(words)*3 {
			continue
		}
		f.collapse(n, sep, a.form.edge[len(sep):], joined)
		if !whole && !slices.Contains(n.forms, a.form) {
			n.forms = append(n.forms, a.form)
		}
	}
}

// rare reports whether a group is.
func (f *Finder[T]) rare(keys int64) bool { return keys < rareKeys && keys*rarePart < f.keys }

// meant reports whether the prefix of a branch beside a binary one is more than chance in binary
// names. The branch must have many keys. One in 9000 names of random bytes starts with a given byte
// and a separator, but only one in two million with two given bytes.
func (f *Finder[T]) meant(n, binary *node[T]) bool {
	literal := len(n.label()) - strings.Count(n.label(), "*")
	return !f.rare(n.keys) && literal > 0 && (literal > 1 || n.keys*rarePart >= binary.keys)
}

// gather merges rare groups: into the group around each, else into one of what their keys begin
// with, into one that is like it, else into the others.
func (f *Finder[T]) gather() {
	into := func(a, n *node[T], enough bool) bool {
		if a == n || a.leaf == nil || !a.endsWild() {
			return false
		}
		g := a.leaf.now()
		if g.home != a || !enough && (!f.rare(n.leaf.keys) || f.rare(g.keys)) || enough && n.leaf.keys*4 >= g.keys {
			return false
		}
		f.join(g, n.leaf)
		a.varied, a.raw = true, ""
		return true
	}
	around := func(n *node[T], above []*node[T]) {
		for i := len(above) - 1; i >= 0; i-- {
			a := above[i]
			if i > 0 && into(a, n, false) {
				return
			}
			if !a.odd || !n.endsWild() && n.label() != "" && !f.rare(n.leaf.keys) {
				continue
			}
			below := path(n, above[i:])[0]
			for _, c := range a.sorted() {
				if c.binary && strings.HasPrefix(below.edge, strings.TrimSuffix(c.edge, "*")) &&
					!f.meant(below, c) && into(c, n, true) {
					return
				}
			}
		}
	}
	f.walk(f.root, nil, around)

	var tops []*node[T]
	count := func() (rare []*node[T]) {
		tops = tops[:0]
		f.walk(f.root, nil, func(n *node[T], above []*node[T]) {
			if !f.rare(n.leaf.keys) {
				return
			}
			rare = append(rare, n)
			for _, a := range above[1:] {
				if f.rare(a.keys) {
					if !slices.Contains(tops, a) {
						tops = append(tops, a)
					}
					break
				}
			}
		})
		return rare
	}
	if len(count()) <= fewGroups {
		return
	}
	for _, n := range slices.Clone(tops) {
		below := 0
		f.walk(n, nil, func(*node[T], []*node[T]) { below++ })
		if below >= 3 {
			f.cutBelow(n)
		}
	}
	for _, join := range []func(){func() { f.joinSiblings(f.root) }, f.joinLike} {
		if len(count()) <= fewGroups {
			return
		}
		join()
	}
	if rare := count(); len(rare) > fewGroups {
		for _, n := range rare {
			f.join(f.others(), n.leaf)
		}
	}
}

// joinSiblings joins the rare words of each place below the first: report:may:*, report:june:* and
// so on into report:*:*.
func (f *Finder[T]) joinSiblings(n *node[T]) {
	for _, c := range n.sorted() {
		f.joinSiblings(c)
	}
	if n == f.root {
		return
	}
	for _, place := range n.places() {
		words := slices.DeleteFunc(slices.Clone(place), func(c *node[T]) bool { return c.whole || !f.rare(c.keys) })
		if len(words) >= fewSiblings {
			f.refine(f.collapse(n, place[0].sepOf(), "*", words), false)
		}
	}
}

// joinLike merges rare groups into others whose patterns are like their keys as well: those that
// have a * in the place of a word with a digit, as u7 beside u1234. Other words are a kind of their
// own.
func (f *Finder[T]) joinLike() {
	paths := make(map[*node[T]][]*node[T])
	var rare []*node[T]
	f.walk(f.root, nil, func(n *node[T], above []*node[T]) {
		paths[n] = path(n, above)
		if f.rare(n.leaf.keys) {
			rare = append(rare, n)
		}
	})
	for _, n := range rare {
		var parts []part
		for _, p := range paths[n] {
			parts = append(parts, part{edge: []byte(p.edge), sep: p.sep})
		}
		steps, key := maxSteps, Example(patternOf(paths[n]), "\x00") // which no pattern has
		if like := f.root.search(parts, &steps, func(c *node[T]) bool {
			return numbered(paths[n], paths[c]) && !f.rare(c.leaf.keys) && Match(patternOf(paths[c]), key)
		}); like != nil {
			f.join(like.leaf, n.leaf)
			like.varied, like.raw = true, ""
		}
	}
}

func hasDigit(word string) bool { return strings.ContainsAny(word, "0123456789") }

// numbered reports whether two paths differ in words with digits alone.
func numbered[T any](path, like []*node[T]) bool {
	if len(path) != len(like) {
		return false
	}
	for i, n := range path {
		if n.edge != like[i].edge && (n.wild || !hasDigit(n.label())) {
			return false
		}
	}
	return true
}

// fit merges groups until there are not more than given.
func (f *Finder[T]) fit(most int) {
	for {
		var all []*node[T]
		f.walk(f.root, nil, func(n *node[T], _ []*node[T]) { all = append(all, n) })
		have := len(all)
		if f.other != nil {
			have++
		}
		if have <= most {
			return
		}
		if n, sep := f.widest(); n != nil {
			words, _ := n.place(sep)
			f.refine(f.collapse(n, sep, "*", words), false)
			continue
		}
		slices.SortStableFunc(all, func(a, b *node[T]) int { return cmp.Compare(a.leaf.keys, b.leaf.keys) })
		if f.other == nil {
			f.others()
			have++
		}
		for _, n := range all[:have-most] {
			f.join(f.other, n.leaf)
		}
		return
	}
}

// widest returns the place, not the first, where joining all words leaves the fewest groups; nil if
// none saves many.
func (f *Finder[T]) widest() (widest *node[T], sep string) {
	const many = 8
	most := many - 1
	var visit func(n *node[T], first bool) int
	visit = func(n *node[T], first bool) int {
		all := 0
		if n.leaf != nil && n.leaf.now().home == n {
			all++
		}
		for _, place := range n.places() {
			sum, largest, words := 0, 0, 0
			for _, c := range place {
				below := visit(c, first && len(n.children) == 1)
				sum, largest = sum+below, max(largest, below)
				if !c.whole {
					words++
				}
			}
			all += sum
			if sum-largest > most && !first && words > 1 {
				most, widest, sep = sum-largest, n, place[0].sepOf()
			}
		}
		return all
	}
	visit(f.root, true)
	return widest, sep
}
