package glob

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/balekv/bale/internal/redisproc"
)

func TestCheck(t *testing.T) {
	for pattern, want := range map[string]error{
		"": errEmpty, `a\`: errPattern, "[": errPattern, "a[bc": errPattern, `[\]`: errPattern, "[a-]": errPattern, "[a-\xff]": errRange, "[\xff-a]": errRange,
		"*": nil, "user:*": nil, `\[a`: nil, "[]": nil, "[^]": nil, "[\x80-\xff]": nil, "größe:*": nil,
	} {
		if got := Check(pattern); got != want {
			t.Errorf("%q: %v, not %v", pattern, got, want)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, test := range []struct {
		pattern, s string
		want       bool
	}{
		{"*", "", true}, {"a*c", "abbc", true}, {"a*c", "abb", false}, {"a*b*c", "axbxbxc", true}, {"?", "", false}, {"?", "x", true},
		{`\*`, "*", true}, {`\*`, "x", false}, {"[a-c]x", "bx", true}, {"[^a-c]x", "bx", false}, {`[\]]`, "]", true}, {`\[a\]`, "[a]", true}, {`\^`, "^", true},
		{strings.Repeat("a*", 30) + "b", strings.Repeat("a", 500), false}, // exponential for a matcher that tries every star again
	} {
		if got := Match(test.pattern, test.s); got != test.want {
			t.Errorf("%q of %q: %v", test.pattern, test.s, got)
		}
	}
}

func TestPrefix(t *testing.T) {
	for pattern, want := range map[string][2]string{
		"user:*": {"user:", "*"}, "user": {"user", ""}, `a\*b*c`: {"a*b", "*c"}, "a?": {"a", "?"}, "[ab]c": {"", "[ab]c"}, "": {"", ""},
	} {
		if prefix, rest := Prefix(pattern); prefix != want[0] || rest != want[1] {
			t.Errorf("%q: %q, %q", pattern, prefix, rest)
		}
	}
}

// TestLikeRedis asks the server for its keys by patterns made of every byte with a meaning in one.
func TestLikeRedis(t *testing.T) {
	server := redisproc.ForTest(t)
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(alphabet string, n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = alphabet[rng.IntN(len(alphabet))]
		}
		return string(b)
	}
	keys := strings.Split(`abcdefghij-]\[^*?!z`, "")
	for range 100 {
		keys = append(keys, random(`abc-]\[^*?`, 2+rng.IntN(3)))
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	set := []string{"MSET"}
	for _, key := range keys {
		set = append(set, key, "")
	}
	if _, err := server.Do(t.Context(), set...); err != nil {
		t.Fatal(err)
	}
	patterns := []string{`[\a-c]`, `[\a-]`, `[a\-c]`, `[a-\]]`, `[\]-a]`, `[^\a-c]`, `[\^a]`, `[^]`, `[^^]`, `[]`, `[-a]`, `[a-c-e]`, `[c-a]`, `[a\]*`, `\[a]`, `\a`}
	for range 4000 {
		patterns = append(patterns, random(`abcd-]\[[^*?`, 1+rng.IntN(7)))
	}
	for _, pattern := range patterns {
		if Check(pattern) != nil {
			continue
		}
		reply, err := server.Do(t.Context(), "KEYS", pattern)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Fields(reply)
		slices.Sort(want)
		got := slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return !Match(pattern, key) })
		if !slices.Equal(got, want) {
			t.Errorf("%q matches %q, Redis says %q", pattern, got, want)
		}
		if prefix, rest := Prefix(pattern); rest == "*" {
			if i := slices.IndexFunc(keys, func(key string) bool { return Match(pattern, key) != strings.HasPrefix(key, prefix) }); i >= 0 {
				t.Errorf("%q is not all keys with the prefix %q: %q", pattern, prefix, keys[i])
			}
		} else if i := slices.IndexFunc(got, func(key string) bool { return !strings.HasPrefix(key, prefix) }); i >= 0 {
			t.Errorf("%q has the prefix %q, but matches %q", pattern, prefix, got[i])
		}
	}
}

// FuzzMatch compares with Redis itself, which has the last word on its syntax.
func FuzzMatch(f *testing.F) {
	server := redisproc.ForTest(f)
	for _, pattern := range []string{"*", "a", "a*", "*a", "a*b*c", "?", "a?c", "[abc]", "[a-c]x", "[^a-c]x", "[c-a]", `\*`, `a\[b`, "[]a]", "[a-]", `[\]]`, "**", "a[b]c*", "user:*:name", "[^a]*", `[a\-c]`} {
		for _, key := range []string{"", "a", "b", "ab", "abc", "axc", "bx", "*", "a[b", "]", "-", "user:1:name", "user:1", "abcd"} {
			f.Add(pattern, key)
		}
	}
	f.Fuzz(func(t *testing.T, pattern, key string) {
		if Check(pattern) != nil || len(pattern) > 50 || len(key) > 50 || key == "" {
			return
		}
		n, err := server.Do(t.Context(), "EVAL", "redis.call('FLUSHALL') redis.call('SET', ARGV[2], '') return #redis.call('KEYS', ARGV[1])", "0", pattern, key)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := Match(pattern, key), n == "1"; got != want {
			t.Errorf("Match(%q, %q) = %v, Redis says %v", pattern, key, got, want)
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	for _, pattern := range []string{"user:*", "shop:*:profile", "*[0-9]"} {
		b.Run(pattern, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Match(pattern, "shop:user:1234567:profile")
			}
		})
	}
}
