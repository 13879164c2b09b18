package advise

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/balekv/bale/cmd/internal/keygroup"
	"github.com/balekv/bale/cmd/internal/page"
)

// Together is what a group was made of, whose dictionary serves as well as one for each of them.
type Together struct {
	Groups []string `json:"groups,omitempty"`
	Apart  float64  `json:"apart"` // bytes that they would save with a dictionary each
}

// mostTogether bounds the patterns that are tried, those of the most groups first: each takes as
// long as a group.
const mostTogether = 16

// together joins groups whose names differ in one part, where a common dictionary saves as much as
// one each, its own memory included.
func (a *Advice) together(ctx context.Context, all []*attempt, m *memory, o *Options) ([]*attempt, error) {
	like := map[string][]*attempt{} // by a pattern of all of them
	var patterns []string
	for _, t := range all {
		if t.chosen == nil || t.chosen.Dictionary == 0 || t.group.Match != t.name || slices.Contains(o.Groups, t.name) {
			continue
		}
		parts := strings.Split(t.name, ":")
		for i, p := range parts {
			if p == "*" {
				continue
			}
			parts[i] = "*"
			key := t.kind + " " + strings.Join(parts, ":")
			if parts[i] = p; like[key] == nil {
				patterns = append(patterns, key)
			}
			like[key] = append(like[key], t)
		}
	}
	slices.SortStableFunc(patterns, func(x, y string) int { return cmp.Compare(len(like[y]), len(like[x])) })
	tried, progress := 0, o.progress(joining)
	for _, key := range patterns {
		if tried == mostTogether {
			break
		}
		if err := ctx.Err(); err != nil { // names can be such that no pattern is tried
			return all, err
		}
		_, pattern, _ := strings.Cut(key, " ")
		members := like[key]
		inside := func(t *attempt) bool { return slices.Contains(members, t) }
		if len(members) < 2 || slices.ContainsFunc(members, func(t *attempt) bool { return !slices.Contains(all, t) }) { // joined by another pattern
			continue
		}
		if slices.ContainsFunc(all, func(t *attempt) bool {
			return !inside(t) && slices.ContainsFunc(t.entries, func(e *entry) bool { return keygroup.Match(pattern, e.name) })
		}) {
			continue // the pattern would pack keys of others
		}
		tried++
		if progress != nil {
			progress(tried, min(len(patterns), mostTogether), "trying one dictionary for "+strconv.QuoteToGraphic(pattern))
		}
		one := newAttempt(m, union(pattern, members), o)
		one.how = members[0].how
		apart := &Together{}
		for _, t := range members {
			apart.Groups = append(apart.Groups, t.name)
			apart.Apart += t.group.Saving.Estimate
		}
		if err := one.try(ctx, o); err != nil {
			return all, err
		}
		if one.chosen == nil || one.chosen.Dictionary == 0 || one.group.Saving.Estimate < apart.Apart-sameWorth*float64(one.group.Now) {
			continue
		}
		one.group.Together = apart
		all = append(slices.DeleteFunc(all, inside), one)
		for i, k := range a.TopKeys {
			if slices.Contains(apart.Groups, k.Group) {
				a.TopKeys[i].Group = pattern
			}
		}
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
	return fmt.Sprintf("%s joins %s: one dictionary for all saves %s, and one for each saves %s. Their own memory counts.", g.Name, names,
		page.Amount(g.Saving.Estimate), page.Amount(g.Together.Apart))
}
