package keygroup

import (
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/balekv/bale"
	"github.com/balekv/bale/internal/testvalues"
)

func newCounter(t testing.TB, o Options) *Finder[*int64] {
	t.Helper()
	f, err := New(o, func() *int64 { return new(int64) }, func(into, from *int64) { *into += *from })
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func groupsOf(t testing.TB, o Options, keys []string) (*Finder[*int64], []Group[*int64]) {
	t.Helper()
	f := newCounter(t, o)
	for _, k := range keys {
		*f.Add(k)++
	}
	return f, f.Groups()
}

func namesOf(groups []Group[*int64]) []string {
	var names []string
	for _, g := range groups {
		names = append(names, g.Name)
	}
	slices.Sort(names)
	return names
}

// check checks what holds for any keys.
func check(t *testing.T, f *Finder[*int64], groups []Group[*int64], keys []string) {
	t.Helper()
	if len(groups) > f.max {
		t.Errorf("%d groups, more than %d", len(groups), f.max)
	}
	var sum int64
	byValue := make(map[*int64]Group[*int64])
	for i, g := range groups {
		sum += g.Keys
		byValue[g.Value] = g
		if *g.Value != g.Keys {
			t.Errorf("group %q of %d keys has a value of %d", g.Name, g.Keys, *g.Value)
		}
		if i > 0 && g.Keys > groups[i-1].Keys {
			t.Errorf("group %q is larger than the one before", g.Name)
		}
	}
	if sum != int64(len(keys)) {
		t.Errorf("groups have %d keys, not %d", sum, len(keys))
	}
	for _, k := range keys {
		v, ok := f.Find(k)
		g, found := byValue[v]
		switch {
		case !ok || !found:
			t.Fatalf("%.100q is in no group", k)
		case g.Match == "" && g.Name != Other:
			t.Fatalf("group %q has no pattern", g.Name)
		case g.Match != "" && !Match(g.Match, k):
			t.Fatalf("pattern %q of group %q does not match %.200q", g.Match, g.Name, k)
		}
	}
}

var sets = map[string][]pattern{"mixed": mixed, "flat": flat, "wild": wild, "blind": blind, "all": slices.Concat(mixed, flat, wild)}

func TestFindsPatterns(t *testing.T) {
	sizes, seeds := []int{300, 3000}, uint64(4)
	if testing.Short() || testvalues.Race {
		sizes, seeds = []int{1000}, 2
	}
	for name, patterns := range sets {
		for _, n := range sizes {
			for seed := range seeds {
				t.Run(fmt.Sprintf("%s/%d/%d", name, n, seed), func(t *testing.T) {
					want := make(map[string]int64)
					keys := keys(patterns, n, seed)
					for _, p := range patterns {
						want[p.name] = int64(n)
					}
					f, groups := groupsOf(t, Options{}, keys)
					got := make(map[string]int64)
					for _, g := range groups {
						got[g.Name] = g.Keys
						if w := want[g.Name]; g.Keys*100 >= w*99 && g.Keys*100 <= w*101 || g.Name == "stat:processed:*" {
							got[g.Name] = w // a few keys may be in a group that they look like
						}
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("(-want +got):\n%s", diff)
					}
					check(t, f, groups, keys)
				})
			}
		}
	}
}

func TestOrderDoesNotMatter(t *testing.T) {
	all := keys(sets["all"], 1000, 1)
	slices.Sort(all)
	var first []string
	for seed := range uint64(4) {
		newSource(seed).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		_, groups := groupsOf(t, Options{}, all)
		names := namesOf(groups)
		if first == nil {
			first = names
		}
		if diff := cmp.Diff(first, names); diff != "" {
			t.Errorf("shuffle %d (-first +this):\n%s", seed, diff)
		}
	}
}

func TestLettersBeforeNumbers(t *testing.T) {
	for want, keys := range map[string][]string{
		"u*":     many(1500, "u#"),
		"us*":    many(1500, "us#"),
		"{u*}:x": many(1500, "{u#}:x"),
		"a:u*:b": many(1500, "a:u#:b"),
		"*":      slices.Concat(many(1500, "u#"), many(1500, "w#")),
		"a:*":    slices.Concat(many(1500, "a:u#"), many(200, "a:#")),
		"b:*":    slices.Concat(many(1500, "b:u#"), many(200, "b:u#z")),
	} {
		f, groups := groupsOf(t, Options{}, keys)
		if names := namesOf(groups); !slices.Equal(names, []string{want}) {
			t.Errorf("groups of %s and so on are %q, want %q", keys[0], names, want)
		}
		check(t, f, groups, keys)
	}
}

// TestSlashesFirst: a name that begins with a separator is a word where its key has a stronger one.
// A binary name there takes no group that its pattern does not match.
func TestSlashesFirst(t *testing.T) {
	keys := append(many(10000, "/#"), "/\xff\xfe")
	for i := range 2000 {
		keys = append(keys, fmt.Sprintf("%x", sha1.Sum([]byte{byte(i), byte(i >> 8)})))
	}
	for _, first := range []string{"/17:meta", "/17"} {
		all := append([]string{first}, keys...)
		f, groups := groupsOf(t, Options{}, all)
		check(t, f, groups, all)
	}
}

// many are n keys of a format.
func many(n int, format string) []string {
	var keys []string
	for i := range n {
		keys = append(keys, strings.ReplaceAll(format, "#", fmt.Sprint(i)))
	}
	return keys
}

func TestGroups(t *testing.T) {
	var oneOff, kinds, prefixed, methods, users, tenants, pairs []string
	r := newSource(7)
	for range 30 {
		oneOff = append(oneOff, r.word()+r.word())
		prefixed = append(prefixed, many(60, "report:"+oneOff[len(oneOff)-1]+":#")...)
		if len(kinds) < 12*20 {
			kinds = append(kinds, many(20, oneOff[len(oneOff)-1]+":#")...)
		}
	}
	for range 20 {
		m := strings.ToUpper(r.word() + r.word())
		methods = append(methods, many(200, "rate:"+m+":#")...)
	}
	for range 100 {
		tenant := r.word() + r.word()
		tenants = slices.Concat(tenants, many(60, "app:"+tenant+":order:#"), many(60, "app:"+tenant+":user:#"))
	}
	for range 3000 {
		users = append(users, "user:"+r.user())
	}
	pairs = many(3000, "user:#")
	for i := range 3000 { // few names have most of the keys
		pairs = append(pairs, fmt.Sprintf("follows:n%s:%d", strings.Repeat("a", r.IntN(1+r.IntN(1+r.IntN(120)))), i))
	}
	for _, test := range []struct {
		name    string
		keys    []string
		options Options
		want    []string
	}{
		{name: "none"},
		{name: "few", keys: []string{"config", "lock:leader", "version"}, want: []string{"config", "lock:leader", "version"}},
		{name: "the empty key", keys: []string{"", "a"}, want: []string{Other, "a"}},
		{name: "one-off keys alone", keys: oneOff[:12], want: slices.Sorted(slices.Values(oneOff[:12]))},
		{name: "short ids", keys: slices.Concat(many(50000, "user:#"), many(1500, "{u#}:profile")), want: []string{"user:*", "{u*}:profile"}},
		{name: "rare words below a prefix", keys: slices.Concat(many(65000, "sess:#"), prefixed), want: []string{"report:*:*", "sess:*"}},
		{name: "few words beside short ids", keys: slices.Concat(many(9000, "sess:#"), many(1500, "u#:prefs"), many(300, "u#"), kinds[:3*20]),
			want: slices.Sorted(slices.Values([]string{"u*", "u*:prefs", "sess:*", oneOff[0] + ":*", oneOff[1] + ":*", oneOff[2] + ":*"}))},
		{name: "other words", keys: slices.Concat(many(50000, "#:#"), kinds), want: []string{Other, "*:*"}},
		{name: "short ids beside special characters", keys: slices.Concat(many(50000, "user:#"), many(1500, "[u#]:who?*")), want: []string{"[u*]:who?\\*", "user:*"}},
		{name: "one-off keys", keys: append(many(50000, "user:#"), oneOff...), want: []string{Other, "user:*"}},
		{name: "few one-off keys", keys: append(many(50000, "user:#"), "config", "lock:leader"), want: []string{"config", "lock:leader", "user:*"}},
		{name: "rare keys of a prefix", keys: append(many(50000, "user:#"), "config:a", "config:b:c", "config:d", "config:e", "config:f", "config:g", "config:h", "config:i",
			"config:j", "config:k", "config:l", "config:m"), want: []string{"config:*", "user:*"}},
		{name: "a rare key below a frequent group", keys: append(append(many(5000, "bull:mail:#"), many(50, "user:#")...), "bull:mail:meta", "bull:mail:wait", "bull:mail:id:x"), want: []string{"bull:mail:*", "user:*"}},
		{name: "words that are frequent", keys: methods, want: nil}, // counted below
		{name: "names", keys: users, want: []string{"user:*"}},
		{name: "tenants", keys: tenants, want: []string{"app:*:order:*", "app:*:user:*"}},
		{name: "names of which some are frequent", keys: pairs, want: []string{"follows:*:*", "user:*"}},
		{name: "depth", keys: slices.Concat(many(500, "user:#"), many(500, "user:#:cart"), many(500, "user:#:cart:#")), want: []string{"user:*", "user:*:cart", "user:*:cart:*"}},
		{name: "glued", keys: slices.Concat(many(500, "user#"), many(500, "user_#_x"), many(500, "sess#abc")), want: []string{"sess*", "user*", "user_*_x"}},
		{name: "constants", keys: slices.Concat(many(500, ":1:users.#"), many(500, "db0:x:#"), many(500, "oauth3:*:#")), want: []string{":1:users.*", "db0:x:*", "oauth3:\\*:*"}},
		{name: "escapes", keys: slices.Concat(many(200, `a*b?c[d]e\f^g:#`)), want: []string{`a\*b?c[d]e\f^g:*`}},
		{name: "given", options: Options{Patterns: []string{"user:1*", "nothing:*"}}, keys: many(200, "user:#"), want: []string{"user:*", "user:1*"}},
		{name: "given first", options: Options{Patterns: []string{"user:1*", "user:*"}}, keys: many(200, "user:#"), want: []string{"user:*", "user:1*"}},
		{name: "one group", options: Options{Max: 1}, keys: slices.Concat(many(500, "user:#"), many(5, "order:#")), want: []string{Other}},
		{name: "two groups", options: Options{Max: 2}, keys: slices.Concat(many(500, "user:#"), many(5, "order:#"), many(7, "x:#")), want: []string{Other, "user:*"}},
		{name: "hashes alone", keys: []string{"0cc175b9c0f1b6a831c399e269772661", "92eb5ffee6ae2fec3ad71c777531578f"}, want: []string{"*"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, groups := groupsOf(t, test.options, test.keys)
			if test.name == "words that are frequent" {
				if len(groups) != 20 {
					t.Errorf("%d groups, not 20: %v", len(groups), namesOf(groups))
				}
			} else if diff := cmp.Diff(test.want, namesOf(groups)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			check(t, f, groups, test.keys)
		})
	}
}

func TestAddAfterGroups(t *testing.T) {
	all := slices.Concat(keys(mixed, 500, 3), keys(wild, 500, 4), keys(flat, 500, 5))
	newSource(1).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	f := newCounter(t, Options{})
	for i, k := range all {
		*f.Add(k)++
		if i%1000 == 0 {
			check(t, f, f.Groups(), all[:i+1])
		}
	}
	check(t, f, f.Groups(), all)
}

func TestCovers(t *testing.T) {
	for _, test := range []struct {
		pattern, other string
		want           bool
	}{
		{"user:*", "user:*", true}, {"*", "user:[0-9]*", true}, {"*", `job\[*\]`, true}, {"user:*", "user:?", true}, {"user:*", "user:1*", true},
		{"user:1*", "user:*", false}, {"user:[^0-9]*", "user:[0-9]*", false}, {"user:[^a]", "user:?", false}, {"*[^:]", "user:*", false},
		{`*]x`, `[a\]]x`, false}, {`a\?*`, `a\?b*`, true}, {"*:", "*", false},
		{"user:*:???", "user:*:eu:*", false}, {"*a???", "ab*aa*", false}, {"*?a??*", "ba[a-]]", false}, {"\x01*", "?*", false},
	} {
		if got := Covers(test.pattern, test.other); got != test.want {
			t.Errorf("Covers(%q, %q) = %v", test.pattern, test.other, got)
		}
	}
}

func TestDictionaryGroup(t *testing.T) {
	for pattern, want := range map[string]string{
		"user:*": "user", "user:*:profile": "user:profile", "*": "", "session-*": "session", "a?c:x": "a:c:x", "user:[0-9]*:a": "user:a", "plain": "plain",
		"{cms}:*": "cms", "a b:*": "a:b", `a\*b:*`: "a:b", "/api/v1/*.json": "api:v1:json", "größe:*": "größe", "cafe\u0301:*": "cafe\u0301", "a\xff:*": "a", "-_.": "", "": "",
	} {
		if got := DictionaryGroup(pattern); got != want {
			t.Errorf("%q: %q, want %q", pattern, got, want)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	count := func() *int64 { return new(int64) }
	merge := func(into, from *int64) { *into += *from }
	for _, o := range []Options{
		{Max: -1}, {Max: 1001}, {Max: 2, Patterns: []string{"a", "b"}}, {Patterns: []string{""}}, {Patterns: []string{"a["}}, {Patterns: []string{`a\`}},
	} {
		if _, err := New(o, count, merge); !errors.Is(err, bale.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := New(Options{}, nil, merge); !errors.Is(err, bale.ErrInvalid) {
		t.Error("no make:", err)
	}
	if _, err := New(Options{}, count, nil); !errors.Is(err, bale.ErrInvalid) {
		t.Error("no merge:", err)
	}
}

func TestSplit(t *testing.T) {
	var l lexer
	for _, test := range []struct{ key, want string }{
		{"user:17:profile", "user|:*|:profile"},
		{"user:550e8400-e29b-41d4-a716-446655440000", "user|:*"},
		{"a:2026-11-21T10:30:00Z:b", "a|:*|:b"},
		{"a:2026-11-21 10:30:00.5+01:00", "a|:*"},
		{"a:2026-W05", "a|:*"},
		{"{\"n\":1}\x00", "*"}, {"a:\"b:c\"\x00x:d", "a|:*|:d"}, {"a:[\"1\"]\xff\xfe", "a|:*"},
		{"a:10.1.2.3:b", "a|:*|:b"},
		{"a:10.0.0.0/8:b", "a|:*|:b"},
		{"a:2001:db8::1:x", "a|:*|:x"},
		{"a:2001:db8:0:1:2:3:4:5:b", "a|:*|:b"},
		{"a::b", "a|::b"},
		{"a:ada.l@example.org:b", "a|:*|:b"},
		{"a:www.example.com:b", "a|:*|:b"},
		{"users.42", "users|.*"},
		{"a:users.42", "a|:users.*"},
		{"a:en-US", "a|:*"},
		{"a:v2", "a|:v2"},
		{"a:v1.2.3", "a|:*"},
		{"a:1.2.3-4", "a|:*"},
		{"a:https://example.com:80/x?y=z:b", "a|:*|:b"},
		{"a:/x/y:b", "a|:*|:b"},
		{"a:x/y.jpg", "a|:*"},
		{"/etc/app/x", "/etc|/app|/x"},
		{"a:SKU-8837-XL", "a|:*"},
		{"{user:1}:cart", "{user|:*|}:cart"},
		{"a:-73.98,40.7", "a|:*"},
		{"a:V1StGXR8_Z5jdHi6B-myT", "a|:*"},
		{"a:userProfileSettings", "a|:userProfileSettings"},
		{"a:01ARZ3NDEKTSV4RRFFQ69G5FAV", "a|:*"},
		{`a:"b:c":d`, "a|:*|:d"},
		{`a:{"b":1}`, "a|:*"},
		{`a:{"b`, `a|:{"b`},
		{"a:\x00\x01:\xff:b", "a|:*|:b"},
		{"a:größe", "a|:größe"},
		{"a*b", `a\*b`},
		{"a:", "a|:"},
		{"a:" + strings.Repeat("x", 100), "a|:*"},
		{strings.Repeat("a:", 50), "a" + strings.Repeat("|:a", maxDepth-2) + "|:*"},
		{"a:" + strings.Repeat("b", 1000) + ":c", "a|:*"},
		{"a" + strings.Repeat(":", 20) + "b", "a|:*"},
	} {
		var got []string
		for _, p := range l.split(test.key) {
			got = append(got, string(p.edge))
		}
		if s := strings.Join(got, "|"); s != test.want {
			t.Errorf("%.60q: %s, not %s", test.key, s, test.want)
		}
	}
}

// TestCheckPattern: a pattern that a goredis.Hook refuses is refused here, too, for the advice is a
// hook's Match.
func TestCheckPattern(t *testing.T) {
	for pattern, ok := range map[string]bool{"user:*": true, "[a-c]*": true, "": false, `a\`: false, "[a": false, "[a-\xff]": false} {
		if err := CheckPattern(pattern); (err == nil) != ok || !ok && !errors.Is(err, bale.ErrInvalid) {
			t.Errorf("%q: %v", pattern, err)
		}
	}
}

// hostile makes the keys of spaces that have no groups.
var hostile = map[string]func(r *source, i int) string{
	"random words": func(r *source, _ int) string { return r.of(smallOnly, 3+r.IntN(12)) },
	"random words in parts": func(r *source, _ int) string {
		return r.of(smallOnly, 4) + ":" + r.of(smallOnly, 5) + ":" + r.of(smallOnly, 6)
	},
	"few words in many parts": func(r *source, _ int) string {
		var b strings.Builder
		for range 2 + r.IntN(12) {
			b.WriteString(r.pick("a", "b", "cd") + r.pick(":", "|", "#", "::", ":|", "{", "}:"))
		}
		return b.String()
	},
	"50 separators": func(r *source, _ int) string {
		var b strings.Builder
		for range 50 {
			b.WriteString(r.of(smallOnly, 1+r.IntN(3)) + r.of(":/.-_|#@, {}[]", 1))
		}
		return b.String()
	},
	"binary": func(r *source, _ int) string { return string(r.bytes(1 + r.IntN(40))) },
	"long":   func(r *source, i int) string { return longKeys[i%len(longKeys)][i%1000:] },
	"a million children at each of three levels": func(r *source, _ int) string {
		return "a:" + r.of(smallOnly, 6) + ":" + r.of(smallOnly, 6) + ":" + r.of(smallOnly, 6)
	},
	"many children at weak separators": func(r *source, _ int) string {
		return r.of(smallOnly, 2) + "_" + r.of(smallOnly, 4) + "-" + r.of(smallOnly, 2)
	},
	"separators": func(r *source, _ int) string { return r.of(":/.-_|#@, {}[]*?\\^'\"", 1+r.IntN(20)) },
	"long labels": func(r *source, _ int) string {
		return r.of(smallOnly, 60) + ":" + r.of(smallOnly, 60) + ":" + r.of(smallOnly, 60)
	},
	"two letters, many parts": func(r *source, _ int) string {
		var b strings.Builder
		for range 12 {
			b.WriteString(r.pick("a", "b") + ":")
		}
		return b.String()
	},
	"numbers": func(_ *source, i int) string { return string(binary.BigEndian.AppendUint64(nil, uint64(i))) },
}

var longKeys = func() (keys []string) {
	r := newSource(1)
	for range 8 {
		var b strings.Builder
		for b.Len() < 512<<10 {
			b.WriteString(r.of(smallOnly, 1+r.IntN(30)) + r.pick(":", "/", ""))
		}
		keys = append(keys, b.String())
	}
	return keys
}()

// hostileKeys is how many keys each hostile space has. For ten million of each:
//
//	go test -run Bounded -v -timeout 1h -args -hostile 10000000
var hostileKeys = flag.Int("hostile", 100_000, "keys of each hostile space")

func TestMemoryIsBounded(t *testing.T) {
	n := *hostileKeys
	if testvalues.Race || testing.Short() {
		n = min(n, 20_000)
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for name, key := range hostile {
		t.Run(name, func(t *testing.T) {
			r := newSource(3)
			before, largest := heap(), uint64(0)
			live, most := 0, 0
			f, err := New(Options{}, func() *int64 {
				live++
				most = max(most, live)
				return new(int64)
			}, func(into, from *int64) {
				live--
				*into += *from
			})
			if err != nil {
				t.Fatal(err)
			}
			var sample []string
			for i := range n {
				k := key(r, i)
				*f.Add(k)++
				if i%(n/100) == 0 {
					sample = append(sample, k)
				}
				if i%(n/10) == n/10-1 {
					largest = max(largest, heap())
				}
			}
			if over := int64(largest) - int64(before); over > 32<<20 {
				t.Errorf("%d MiB of heap", over>>20)
			} else {
				t.Logf("%.1f MiB of heap, %d groups at most", float64(over)/(1<<20), most)
			}
			if most > maxLeaves+1 {
				t.Errorf("%d groups at a time", most)
			}
			groups := f.Groups()
			var sum int64
			for _, g := range groups {
				sum += g.Keys
			}
			if sum != int64(n) || len(groups) > f.max {
				t.Errorf("%d groups with %d keys, not %d", len(groups), sum, n)
			}
			for _, k := range sample {
				v, ok := f.Find(k)
				i := slices.IndexFunc(groups, func(g Group[*int64]) bool { return g.Value == v })
				if !ok || i < 0 {
					t.Errorf("%.100q is in no group", k)
				} else if m := groups[i].Match; m != "" && !Match(m, k) {
					t.Errorf("%q does not match %.100q", m, k)
				}
			}
			for _, g := range groups[:min(len(groups), 4)] {
				t.Logf("%9d %.60s", g.Keys, g.Name)
			}
		})
	}
}

// TestStarsOfKeys: a group around others has a pattern that ends in a *, and no * of its keys.
func TestStarsOfKeys(t *testing.T) {
	f := newCounter(t, Options{})
	for i := range 20_000 {
		f.Add(fmt.Sprint("user:", i))
	}
	for range 200 {
		f.Add("x*")
	}
	rare := f.Add("x*:y")
	*rare = 7
	for _, g := range f.Groups() {
		if *g.Value == 7 && g.Match != "" && !Match(g.Match, "x*:y") {
			t.Errorf("%s does not match it", g.Match)
		}
	}
}

func TestAllocations(t *testing.T) {
	if testvalues.Race {
		t.Skip("the race detector allocates")
	}
	f := newCounter(t, Options{})
	all := slices.Concat(keys(mixed, 1000, 1), keys(wild, 1000, 1))
	for _, k := range all {
		f.Add(k)
	}
	f.Groups()
	i := 0
	if n := testing.AllocsPerRun(len(all)-1, func() {
		f.Add(all[i])
		f.Find(all[i])
		i++
	}); n != 0 {
		t.Errorf("%v allocations for a key of a known group", n)
	}
}

func FuzzAdd(f *testing.F) {
	f.Add([]byte("user:1\nuser:2:profile\nuser:ada\n{a}:b\n"), uint8(3), false)
	f.Add([]byte("a*b\n\xff\x00:\n[::1]:x\n2001:db8::1\n"), uint8(200), true)
	r := newSource(1)
	var b strings.Builder
	for _, p := range slices.Concat(mixed, flat, wild) {
		for range 20 {
			b.WriteString(p.key(r) + "\n")
		}
	}
	f.Add([]byte(b.String()), uint8(20), true)
	f.Fuzz(func(t *testing.T, data []byte, most uint8, twice bool) {
		keys := strings.Split(string(data), "\n")
		finder := newCounter(t, Options{Max: max(int(most), 2), Patterns: []string{"given*"}})
		// Words that are many: what is joined for memory is joined here, too.
		for i, k := range keys {
			*finder.Add(k)++
			if twice && i == len(keys)/2 {
				check(t, finder, finder.Groups(), keys[:i+1])
				finder.thin(finder.root, 4, true)
				finder.prune(finder.root, int64(most))
			}
		}
		check(t, finder, finder.Groups(), keys)
		if twice {
			check(t, finder, finder.Groups(), keys)
		}
	})
}

func BenchmarkAdd(b *testing.B) {
	for name, patterns := range sets {
		b.Run(name, func(b *testing.B) {
			f := newCounter(b, Options{})
			all := keys(patterns, 2000, 1)
			for _, k := range all {
				f.Add(k)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if i++; i == len(all) {
					i = 0
				}
				f.Add(all[i])
			}
		})
	}
	for _, key := range []string{"user:1234567:profile", "session:550e8400-e29b-41d4-a716-446655440000", "laravel_cache:users.42"} {
		b.Run(key, func(b *testing.B) {
			f := newCounter(b, Options{})
			b.ReportAllocs()
			for b.Loop() {
				f.Add(key)
			}
		})
	}
}

// BenchmarkHostile is a key of a space without groups.
func BenchmarkHostile(b *testing.B) {
	for name, key := range hostile {
		b.Run(name, func(b *testing.B) {
			r := newSource(1)
			var all []string
			for i := range 200_000 {
				all = append(all, key(r, i))
			}
			f := newCounter(b, Options{})
			i := 0
			for b.Loop() {
				if i++; i == len(all) {
					i = 0
				}
				f.Add(all[i])
			}
		})
	}
}

// TestManyWords: a part of very many words or ids is an id: each of them may look at all that is
// left.
func TestManyWords(t *testing.T) {
	var l lexer
	for _, key := range []string{strings.Repeat("a-B ", 15), strings.Repeat("a-", 250) + "B1@", strings.Repeat("1-a.", 30)} {
		if parts := l.split("x:" + key); len(parts) != 2 || !parts[1].whole {
			t.Errorf("%q: %+v", key, parts)
		}
	}
}
