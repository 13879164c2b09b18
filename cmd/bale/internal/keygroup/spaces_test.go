package keygroup

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// crowded makes the keys of a space with much at the first place besides prefixes: ids, binary names, names that are there once.
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

func TestPrefixesStayBesideOddKeys(t *testing.T) {
	for _, size := range []struct{ ids, binaries int }{{0, 0}, {3000, 0}, {0, 300}, {3000, 300}, {3000, 900}, {30000, 3000}, {300, 30000}} {
		for _, order := range []string{"ids first", "words first", "sorted", "1", "2", "3"} {
			t.Run(fmt.Sprintf("%d ids, %d binary, %s", size.ids, size.binaries, order), func(t *testing.T) {
				r := newSource(5)
				keys, want := crowded(r, size.ids, size.binaries)
				switch order {
				case "words first":
				case "ids first":
					slices.Reverse(keys)
				case "sorted":
					slices.Sort(keys)
				default:
					r = newSource(uint64(order[0]))
					r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
				}
				f, groups := groupsOf(t, Options{}, keys)
				got := make(map[string]int64)
				var rest []string
				for _, g := range groups {
					if _, ok := want[g.Name]; ok {
						got[g.Name] = g.Keys
					} else {
						rest = append(rest, fmt.Sprintf("%q %d", g.Name, g.Keys))
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-want +got):\n%sbesides %s", diff, strings.Join(rest, ", "))
				}
				t.Log(strings.Join(rest, ", "))
				check(t, f, groups, keys)
			})
		}
	}
}
