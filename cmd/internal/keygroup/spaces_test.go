package keygroup

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/balekv/bale/internal/testvalues"
)

// crowded makes the keys of a space with much at the first place besides prefixes: ids, binary
// names, names that are there once.
func crowded(r *source, ids, binaries int) (keys []string, want map[string]int64) {
	want = make(map[string]int64)
	group := func(name string, n int, key func(i int) string) {
		for i := range n {
			keys = append(keys, key(i))
		}
		want[name] = int64(n)
	}
	group("user/*", 3000, func(i int) string { return fmt.Sprint("user/", i) })
	group("rails:cache:views/products/*", 300, func(i int) string {
		return fmt.Sprintf("rails:cache:views/products/%d-20260101/%s", i, r.md5())
	})
	group("queue:*", 500, func(i int) string { return fmt.Sprint("queue:", i) })
	group("tags:*", 200, func(i int) string { return fmt.Sprint("tags:", i) })
	group("app1.cart.*", 2000, func(i int) string { return fmt.Sprint("app1.cart.", i) })
	group("session-*", 4000, func(int) string { return "session-" + r.of("0123456789abcdef", 16) })
	for range ids {
		keys = append(keys, r.uuid())
	}
	for range binaries {
		keys = append(keys, string(r.bytes(8+r.IntN(24))))
	}
	keys = append(keys, `say "hi"`, "it's", "🎉", "🎉:party", "glob*", "what?", "a[b]c", `back\slash`, "{tag}", "with space", "new\nline", "größe", "config", "lock:leader")
	keys = append(keys, many(10, "blob:#")...)
	return keys, want
}

// orders calls do with the keys in several orders.
func orders(t *testing.T, keys []string, do func(t *testing.T, keys []string)) {
	for _, order := range []string{"as made", "reversed", "sorted", "1", "2", "3"} {
		t.Run(order, func(t *testing.T) {
			keys := slices.Clone(keys)
			switch order {
			case "as made":
			case "reversed":
				slices.Reverse(keys)
			case "sorted":
				slices.Sort(keys)
			default:
				newSource(uint64(order[0])).Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			}
			do(t, keys)
		})
	}
}

// wantWithin checks that groups match the wanted ones, except for some keys that may be in others.
func wantWithin(t *testing.T, groups []Group[*int64], want map[string]int64, lost int64) {
	t.Helper()
	got := make(map[string]int64)
	var besides []string
	for _, g := range groups {
		w, ok := want[g.Name]
		if !ok {
			if g.Keys >= 100 {
				besides = append(besides, fmt.Sprintf("%q %d", g.Name, g.Keys))
			}
			continue
		}
		got[g.Name] = g.Keys
		if g.Keys < w && g.Keys+lost >= w {
			got[g.Name] = w
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%sbesides %s", diff, strings.Join(besides, ", "))
	}
	if len(besides) > 3 {
		t.Errorf("%d groups besides: %s", len(besides), strings.Join(besides, ", "))
	}
}

func TestPrefixesStayBesideOddKeys(t *testing.T) {
	for _, size := range []struct{ ids, binaries int }{{0, 0}, {3000, 0}, {0, 300}, {3000, 300}, {3000, 900}, {30000, 3000}, {300, 30000}} {
		t.Run(fmt.Sprintf("%d ids, %d binary", size.ids, size.binaries), func(t *testing.T) {
			keys, want := crowded(newSource(5), size.ids, size.binaries)
			orders(t, keys, func(t *testing.T, keys []string) {
				f, groups := groupsOf(t, Options{}, keys)
				wantWithin(t, groups, want, 0)
				check(t, f, groups, keys)
			})
		})
	}
}

func TestPrefixesStayBelowAWord(t *testing.T) {
	for _, size := range []struct{ ids, binaries int }{{0, 0}, {3000, 0}, {0, 300}, {3000, 900}, {30000, 3000}, {300, 30000}} {
		t.Run(fmt.Sprintf("%d ids, %d binary", size.ids, size.binaries), func(t *testing.T) {
			at, below := crowded(newSource(5), size.ids, size.binaries)
			for _, word := range []string{"app:", "a:b:"} {
				var keys []string
				for _, k := range at {
					keys = append(keys, word+k)
				}
				keys = append(keys, many(3000, "user:#")...)
				want := map[string]int64{"user:*": 3000}
				for name, n := range below {
					want[word+strings.Replace(name, "app1", "app*", 1)] = n // beside a ':' a '.' is a weak separator
				}
				orders(t, keys, func(t *testing.T, keys []string) {
					f, groups := groupsOf(t, Options{}, keys)
					wantWithin(t, groups, want, 0)
					check(t, f, groups, keys)
				})
			}
		})
	}
}

// Words with a single key fill the tree, and are joined. The prefixes stay, because they have other
// children than the words. A prefix with the same children would be as much an id as the words are.
func TestPrefixesStayBesideManyRareWords(t *testing.T) {
	n := 60_000
	if testvalues.Race || testing.Short() {
		n = 15_000
	}
	for _, word := range []string{"", "app:"} {
		for name, rare := range map[string]func(r *source) string{
			"words": func(r *source) string { return r.of(smallOnly, 3+r.IntN(12)) },
			"parts": func(r *source) string {
				return r.of(smallOnly, 4) + ":" + r.of(smallOnly, 5) + ":" + r.of(smallOnly, 6)
			},
		} {
			t.Run(word+name, func(t *testing.T) {
				r := newSource(9)
				keys := many(3000, "zz:#")
				for range n {
					keys = append(keys, word+rare(r))
				}
				want := map[string]int64{"zz:*": 3000}
				for _, p := range []string{"queue:*", "tags/*", "session-*"} {
					want[word+p] = 600
					keys = append(keys, many(600, word+strings.ReplaceAll(p, "*", "#"))...)
				}
				orders(t, keys, func(t *testing.T, keys []string) {
					f, groups := groupsOf(t, Options{}, keys)
					wantWithin(t, groups, want, 60)
					check(t, f, groups, keys)
				})
			})
		}
	}
}

// A key of more than maxLength bytes is `*` with all the rest of it.
func TestPrefixesStayBesideLongKeys(t *testing.T) {
	for _, word := range []string{"", "app:"} {
		r := newSource(2)
		keys := many(3000, "zz:#")
		for range 3000 {
			keys = append(keys, word+r.of(smallOnly, 600))
		}
		want := map[string]int64{"zz:*": 3000}
		for _, p := range []string{"queue:*", "tags:*:x"} {
			want[word+p] = 100
			keys = append(keys, many(100, word+strings.ReplaceAll(p, "*", "#"))...)
		}
		orders(t, keys, func(t *testing.T, keys []string) {
			f, groups := groupsOf(t, Options{}, keys)
			wantWithin(t, groups, want, 0)
			check(t, f, groups, keys)
		})
	}
}
