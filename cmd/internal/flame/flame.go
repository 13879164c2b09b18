// Package flame makes flame graphs of pprof profiles. They show in which functions a cell of the
// lab spent its time or memory, and the shares of compression, serialization and the network.
//
// [New] makes a [Tree] of a profile, with the [Shares] of each [Category]. [Merge] adds up the
// profiles of a cell's rounds first. [Difference] extracts the part of one round from a profile
// that counts from the program's start. [Tree.SVG] draws a tree. A [Forest] holds the trees of a
// whole run, small enough for a page.
package flame

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

// kinds are the known profiles, with the sample types that their trees show. These are the time on
// a processor, the bytes allocated, the time that others waited for a lock, and the time that
// goroutines waited.
var kinds = map[string]string{"cpu": "cpu", "heap": "alloc_space", "mutex": "delay", "block": "delay"}

// ErrProfile says that a profile is not of the kind that it should be.
var ErrProfile = errors.New("flame: not such a profile")

// Options are the settings of New.
type Options struct {
	// Kind is "cpu", "heap", "mutex" or "block". Defaults to "cpu".
	Kind string

	// MinShare is the part of the total below which a node is folded into its parent's "(other)".
	// Defaults to 0.005; below 1.
	MinShare float64

	// MaxNodes is how many nodes a tree has at most; the smallest are folded first. Defaults to
	// 200; at least 2.
	MaxNodes int
}

const (
	defaultMinShare = 0.005
	defaultMaxNodes = 200

	rootName  = "all"
	otherName = "(other)"
)

// Tree is a flame graph: what each function cost, with all that it called, by who called it.
type Tree struct {
	Unit   string // of values: "nanoseconds" or "bytes"
	Total  int64
	Shares Shares

	// Nodes are in the order in which a walk meets them: a node's children follow it, the largest
	// first, and are one deeper. The first is the root, "all", which has the Total.
	Nodes []Node
}

// Node is a function, called as the nodes above it say.
type Node struct {
	Name     string // short: "zstd.(*Encoder).EncodeAll"
	Depth    int    // 0 for the root
	Value    int64  // with all that it called
	Category Category
}

// Shares are the parts of the total that each Category cost, by Category. They sum to 1, or to 0
// where the total is 0.
type Shares [categories]float64

// Merge adds profiles of one kind up, such as those of a cell's rounds.
func Merge(profiles ...*profile.Profile) (*profile.Profile, error) {
	p, err := profile.Merge(profiles)
	if err != nil {
		return nil, fmt.Errorf("flame: merge: %w", err)
	}
	return p, nil
}

// Difference returns the samples that a profile gained since an earlier one: heap, mutex and block
// profiles count from the program's start. A heap profile is as old as the last garbage collection,
// so run one before each. Both profiles stay unchanged.
func Difference(before, after *profile.Profile) (*profile.Profile, error) {
	minus := before.Copy()
	minus.Scale(-1)
	p, err := Merge(minus, after)
	if err != nil {
		return nil, err
	}
	p.Sample = slices.DeleteFunc(p.Sample, func(s *profile.Sample) bool { return slices.ContainsFunc(s.Value, func(v int64) bool { return v < 0 }) })
	return p, nil
}

// frame is a function in the whole tree, called as its parents say.
type frame struct {
	function string
	category Category
	value    int64 // with its children's
	children map[string]*frame
	sorted   []*frame // the children, the largest first
	kept     bool
}

func (f *frame) child(function string) *frame {
	c := f.children[function]
	if c == nil {
		c = &frame{function: function, category: categoryOf(function, f.category)}
		if f.children == nil {
			f.children = map[string]*frame{}
		}
		f.children[function] = c
	}
	return c
}

// sort sorts the children, and theirs.
func (f *frame) sort() {
	for _, c := range f.children {
		f.sorted = append(f.sorted, c)
		c.sort()
	}
	slices.SortFunc(f.sorted, func(a, b *frame) int {
		return cmp.Or(cmp.Compare(b.value, a.value), cmp.Compare(a.function, b.function))
	})
}

// New makes a tree of a profile, which stays as it is.
func New(p *profile.Profile, o Options) (*Tree, error) {
	o.Kind, o.MinShare, o.MaxNodes = cmp.Or(o.Kind, "cpu"), cmp.Or(o.MinShare, defaultMinShare), cmp.Or(o.MaxNodes, defaultMaxNodes)
	switch {
	case kinds[o.Kind] == "":
		return nil, fmt.Errorf("flame: no profile %q; there are cpu, heap, mutex and block", o.Kind)
	case !(o.MinShare >= 0 && o.MinShare < 1):
		return nil, fmt.Errorf("flame: MinShare is %v, must be below 1, or 0 for %v", o.MinShare, defaultMinShare)
	case o.MaxNodes < 2:
		return nil, fmt.Errorf("flame: MaxNodes is %d, must be at least 2, or 0 for %d", o.MaxNodes, defaultMaxNodes)
	}
	at := slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool { return t.Type == kinds[o.Kind] })
	if at < 0 {
		return nil, fmt.Errorf("%w: %s has samples of %s, and this one has none", ErrProfile, o.Kind, kinds[o.Kind])
	}
	t := &Tree{Unit: p.SampleType[at].Unit}
	root := &frame{function: rootName, kept: true}
	var byCategory [categories]int64
	for _, s := range p.Sample {
		v := s.Value[at]
		if v <= 0 {
			continue
		}
		root.value += v
		f := root
		// A sample begins with the innermost call, and so does a location that calls were inlined
		// at.
		for _, l := range slices.Backward(s.Location) {
			for _, line := range slices.Backward(l.Line) {
				if line.Function != nil {
					f = f.child(line.Function.Name)
					f.value += v
				}
			}
		}
		byCategory[f.category] += v
	}
	t.Total = root.value
	for c, v := range byCategory {
		if t.Total > 0 {
			t.Shares[c] = float64(v) / float64(t.Total)
		}
	}
	smallest := max(1, int64(o.MinShare*float64(t.Total)))
	root.sort()
	all := root.bySize()
	// Each node that is kept may take an "(other)" with it, so that how many can be is found by
	// trying: one can.
	for least, beyond := 1, min(o.MaxNodes, len(all))+1; least < beyond; {
		keep := (least + beyond) / 2
		for i, f := range all {
			f.kept = i < keep && f.value >= smallest
		}
		root.kept = true
		if nodes := root.append(nil, 0, smallest); len(nodes) <= o.MaxNodes {
			t.Nodes, least = nodes, keep+1
		} else {
			beyond = keep
		}
	}
	return t, nil
}

// bySize are all frames, the largest first, and no child before its parent.
func (f *frame) bySize() []*frame {
	all := []*frame{f}
	for i := 0; i < len(all); i++ {
		all = append(all, all[i].sorted...)
	}
	slices.SortStableFunc(all, func(a, b *frame) int { return cmp.Compare(b.value, a.value) })
	return all
}

// append appends the kept nodes. The others are folded into one, unless their sum is too small
// itself.
func (f *frame) append(nodes []Node, depth int, smallest int64) []Node {
	nodes = append(nodes, Node{short(f.function), depth, f.value, f.category})
	folded := int64(0)
	for _, c := range f.sorted {
		if c.kept {
			nodes = c.append(nodes, depth+1, smallest)
		} else {
			folded += c.value
		}
	}
	if folded >= smallest {
		nodes = append(nodes, Node{otherName, depth + 1, folded, f.category})
	}
	return nodes
}

// short is a function's name with the last element of its package's path, without type arguments.
func short(function string) string {
	pkg := packageOf(function)
	name := function[len(pkg):]
	var b strings.Builder
	elements := strings.Split(pkg, "/")
	last := elements[len(elements)-1]
	if len(elements) > 1 && version(last) {
		last = elements[len(elements)-2]
	}
	b.WriteString(strings.ReplaceAll(last, "%2e", "."))
	depth := 0
	for _, r := range name {
		switch {
		case r == '[':
			depth++
		case r == ']' && depth > 0:
			depth--
		case depth == 0:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// version reports whether an element of a path is that of a major version: "v9".
func version(s string) bool {
	return len(s) > 1 && s[0] == 'v' && strings.Trim(s[1:], "0123456789") == ""
}

// packageOf is the path of a function's package, empty for a function that is not Go's.
func packageOf(function string) string {
	path, _, _ := strings.Cut(function, "[") // type arguments have paths of their own
	start := strings.LastIndexByte(path, '/') + 1
	dot := strings.IndexByte(path[start:], '.')
	if dot < 0 {
		return ""
	}
	return path[:start+dot]
}
