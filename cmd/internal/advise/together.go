package advise

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/balekv/bale/cmd/internal/keygroup"
	"github.com/balekv/bale/cmd/internal/page"
)

// Together is what a group was made of: a dictionary serves it as well as one for each of them, or
// they are packed with the same one.
type Together struct {
	Groups []string `json:"groups,omitempty"`
	Apart  float64  `json:"apart"` // bytes that they would save as groups of their own, 0 for packed ones
}

// mostTogether bounds the patterns that are tried, those with most memory first: each takes as long
// as a group.
const mostTogether = 16

// family is groups whose names differ in one part.
type family struct {
	pattern string // of all of them
	members []*attempt
	memory  int64 // of those with a dictionary
}

// families are those of the groups that are of the same kind, largest family first. Groups of the
// kind "" are in none.
func families(all []*attempt, o *Options, kind func(*attempt) string) (found []*family) {
	by := map[string]*family{}
	for _, t := range all {
		k := kind(t)
		if k == "" || t.group.Match != t.name || slices.Contains(o.Groups, t.name) {
			continue
		}
		parts := strings.Split(t.name, ":")
		for i, p := range parts {
			if p == "*" {
				continue
			}
			parts[i] = "*"
			f := &family{pattern: strings.Join(parts, ":")}
			parts[i] = p
			if beyond(o.Match, f.pattern) { // whose keys nobody has looked at
				continue
			}
			key := t.kind + " " + k + " " + f.pattern
			if by[key] == nil {
				by[key] = f
				found = append(found, f)
			}
			by[key].members = append(by[key].members, t)
		}
	}
	found = slices.DeleteFunc(found, func(f *family) bool { return len(f.members) < 2 })
	slices.SortStableFunc(found, func(x, y *family) int { return cmp.Compare(len(y.members), len(x.members)) })
	return found
}

// beyond reports whether a pattern is like keys that no pattern of --match is like.
func beyond(match []string, pattern string) bool {
	return len(match) > 0 && !slices.ContainsFunc(match, func(m string) bool {
		return keygroup.Covers(m, pattern)
	})
}

// alone reports whether all members are still groups, and the pattern catches no keys of others.
func (f *family) alone(all []*attempt) bool {
	caught := func(name string) bool { return keygroup.Match(f.pattern, name) }
	return !slices.ContainsFunc(f.members, func(t *attempt) bool { return !slices.Contains(all, t) }) &&
		!slices.ContainsFunc(all, func(t *attempt) bool {
			return !slices.Contains(f.members, t) && (t.group.Together != nil && slices.ContainsFunc(t.group.names, caught) ||
				slices.ContainsFunc(t.entries, func(e *entry) bool { return caught(e.name) }))
		})
}

// join puts one group in the place of a family.
func (a *Advice) join(all []*attempt, f *family, one *attempt) []*attempt {
	one.group.Together, one.group.names = &Together{}, nil
	for _, t := range f.members {
		one.group.names = append(one.group.names, t.group.names...) // a small one has few entries in one
		one.group.Together.Groups = append(one.group.Together.Groups, t.name)
		one.group.Together.Apart += t.group.Saving.Estimate
	}
	for i, k := range a.TopKeys {
		if slices.Contains(one.group.Together.Groups, k.Group) {
			a.TopKeys[i].Group = f.pattern
		}
	}
	return append(slices.DeleteFunc(all, func(t *attempt) bool { return slices.Contains(f.members, t) }), one)
}

// together joins groups whose names differ in one part, where a common dictionary saves as much as
// one each, its own memory included. It takes in groups of the same format that are too small for
// one of their own.
func (a *Advice) together(ctx context.Context, all []*attempt, m *memory, o *Options) ([]*attempt, error) {
	found := families(all, o, func(t *attempt) string {
		if t.withDictionary() || t.tried && t.group.Packed == nil {
			return "tried"
		}
		return ""
	})
	for _, f := range found {
		var formats []string
		for _, t := range f.members {
			if t.withDictionary() {
				f.memory += t.group.Now
				formats = append(formats, t.format())
			}
		}
		f.members = slices.DeleteFunc(f.members, func(t *attempt) bool {
			return !t.withDictionary() && !slices.Contains(formats, t.format())
		})
	}
	found = slices.DeleteFunc(found, func(f *family) bool { return len(f.members) < 2 })
	slices.SortStableFunc(found, func(x, y *family) int {
		return cmp.Or(cmp.Compare(y.memory, x.memory), cmp.Compare(len(y.members), len(x.members)))
	})
	tried, progress := 0, o.progress(joining)
	for _, f := range found {
		if tried == mostTogether {
			break
		}
		if err := ctx.Err(); err != nil { // names can be such that no pattern is tried
			return all, err
		}
		if !f.alone(all) {
			continue
		}
		tried++
		if progress != nil {
			progress(tried, min(len(found), mostTogether), page.Name(shownName(&Group{Name: f.pattern}, o), shownProgress)+", one dictionary")
		}
		one := newAttempt(m, union(f.pattern, f.members), o)
		for _, t := range f.members {
			one.how = max(one.how, t.how)
		}
		if err := one.try(ctx, o); err != nil {
			return all, err
		}
		apart := 0.0
		for _, t := range f.members {
			apart += t.group.Saving.Estimate
		}
		if !one.withDictionary() ||
			one.group.Saving.Estimate < apart-sameWorth*float64(one.group.Now) {
			continue
		}
		all = a.join(all, f, one)
	}
	return all, nil
}

func (t *attempt) withDictionary() bool { return t.chosen != nil && t.chosen.Dictionary > 0 }

// format is what most values are.
func (t *attempt) format() string {
	if len(t.group.Formats) == 0 {
		return ""
	}
	return t.group.Formats[0].Name
}

// packedTogether joins groups whose names differ in one part, and whose values are packed with the
// same dictionary. Earlier advice joined them, so that the next one must not train a dictionary for
// each.
func (a *Advice) packedTogether(ctx context.Context, all []*attempt, m *memory, o *Options) ([]*attempt, error) {
	for _, f := range families(all, o, func(t *attempt) string {
		if t.chosen != nil || t.group.Packed == nil || len(t.group.Packed.Dictionaries) == 0 ||
			t.group.Packed.Dictionaries[0].Part < 0.5 { // any value may name any dictionary
			return ""
		}
		return t.group.Why + t.group.Packed.Dictionaries[0].ID.String()
	}) {
		if err := ctx.Err(); err != nil {
			return all, err
		}
		if !f.alone(all) {
			continue
		}
		one := newAttempt(m, union(f.pattern, f.members), o)
		one.group.Why = f.members[0].group.Why
		for _, t := range f.members {
			one.how = max(one.how, t.how)
		}
		all = a.join(all, f, one)
	}
	return all, nil
}

// union is a group of the keys of several. Its sample is as uniform as theirs: the keys with the
// lowest ranks of all, as far as every one of them goes.
func union(pattern string, of []*attempt) *found {
	u := &found{name: pattern, match: pattern, kind: of[0].kind}
	looked, read := uint64(math.MaxUint64), uint64(math.MaxUint64)
	for _, t := range of {
		u.keys += t.keys
		if t.heat != nil {
			if u.heat == nil {
				u.heat = &heat{}
			}
			u.heat.merge(t.heat)
		}
		last, lastRead, dropped := uint64(0), uint64(0), false
		for _, e := range t.entries {
			if last = max(last, e.rank); e.sampled {
				lastRead = max(lastRead, e.rank)
			} else {
				dropped = true
			}
		}
		if int64(len(t.entries)) < t.keys {
			looked = min(looked, last)
		}
		if dropped {
			read = min(read, lastRead)
		}
	}
	for _, t := range of {
		for _, e := range t.entries {
			if e.rank > looked {
				continue
			}
			if e.rank > min(looked, read) {
				part := *e
				part.drop()
				e = &part
			}
			u.entries = append(u.entries, e)
		}
	}
	slices.SortFunc(u.entries, func(a, b *entry) int { return cmp.Compare(a.rank, b.rank) })
	return u
}

// joined says that a group is several, and why.
func joined(g *Group) string {
	names := page.Plural(len(g.Together.Groups), "group")
	if len(g.Together.Groups) <= reasonNames {
		names = strings.Join(g.Together.Groups, ", ")
	}
	if g.Chosen < 0 {
		return fmt.Sprintf("%s joins %s: their values are packed with the same dictionary.", g.Name, names)
	}
	return fmt.Sprintf("%s joins %s: one dictionary for all saves %s, and they save %s apart. The memory of dictionaries counts.", g.Name, names,
		page.Amount(g.Saving.Estimate), page.Amount(g.Together.Apart))
}
