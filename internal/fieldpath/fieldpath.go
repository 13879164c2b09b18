// Package fieldpath finds fields of JSON by their names, at any depth, or by paths from the root
// such as user.token. [Paths.Below] goes one level down in time that does not grow with the depth:
// values may nest on purpose.
package fieldpath

import "strings"

// MaxDepth is how many objects and arrays may be inside each other in a value that is looked into.
// Programs write a few.
const MaxDepth = 1000

// Paths are the fields that are looked for.
type Paths []string

// Place is where a value stands. The zero value is the root.
type Place struct {
	name    string
	inside  bool  // it is not the root
	matched []int // of each path: how many of its bytes the names down to here are; -1 if they differ
}

// Below makes dst the place of a member of the object at p; p is not changed, and dst keeps none of
// its memory.
func (f Paths) Below(dst, p *Place, name string) {
	dst.name, dst.inside, dst.matched = name, true, dst.matched[:0]
	for i, path := range f {
		at := -1
		switch {
		case !p.inside:
			if strings.HasPrefix(path, name) {
				at = len(name)
			}
		case p.matched[i] >= 0:
			rest := path[p.matched[i]:]
			if len(rest) > len(name) && rest[0] == '.' && strings.HasPrefix(rest[1:], name) {
				at = p.matched[i] + 1 + len(name)
			}
		}
		dst.matched = append(dst.matched, at)
	}
}

// Is reports whether a place is what path i of f means.
func (f Paths) Is(p *Place, i int) bool {
	return p.inside && (f[i] == p.name || p.matched[i] == len(f[i]) && strings.Contains(f[i], "."))
}

// Any reports whether a place is what any path means.
func (f Paths) Any(p *Place) bool {
	for i := range f {
		if f.Is(p, i) {
			return true
		}
	}
	return false
}
