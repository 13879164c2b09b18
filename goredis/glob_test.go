package goredis

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/redisproc"
)

func TestGlobTerminates(t *testing.T) {
	// Exponential for a matcher that tries every star again.
	if glob(strings.Repeat("a*", 30)+"b", strings.Repeat("a", 500)) {
		t.Error("matches")
	}
}

// TestGlobLikeRedis asks the server for its keys by patterns made of all that means something in one.
func TestGlobLikeRedis(t *testing.T) {
	ctx := t.Context()
	rdb := redis.NewClient(&redis.Options{Addr: redisproc.ForTest(t).Addr()})
	defer rdb.Close()
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
	for _, key := range keys {
		if err := rdb.Set(ctx, key, "", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	patterns := []string{`[\a-c]`, `[\a-]`, `[a\-c]`, `[a-\]]`, `[\]-a]`, `[^\a-c]`, `[\^a]`, `[^]`, `[^^]`, `[]`, `[-a]`, `[a-c-e]`, `[c-a]`, `[a\]*`, `\[a]`, `\a`}
	for range 4000 {
		patterns = append(patterns, random(`abcd-]\[[^*?`, 1+rng.IntN(7)))
	}
	for _, pattern := range patterns {
		if checkGlob(pattern) != nil {
			continue
		}
		want, err := rdb.Keys(ctx, pattern).Result()
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(want)
		got := slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return !glob(pattern, key) })
		if !slices.Equal(got, want) {
			t.Errorf("%q matches %q, Redis says %q", pattern, got, want)
		}
	}
}

// FuzzGlob compares with Redis itself, which has the last word on its syntax.
func FuzzGlob(f *testing.F) {
	server := redisproc.ForTest(f)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	f.Cleanup(func() { rdb.Close() })
	for _, pattern := range []string{"*", "", "a", "a*", "*a", "a*b*c", "?", "a?c", "[abc]", "[a-c]x", "[^a-c]x", "[c-a]", `\*`, `a\[b`, "[]a]", "[a-]", `[\]]`, "**", "a[b]c*", "user:*:name", "[^a]*", `[a\-c]`} {
		for _, key := range []string{"", "a", "b", "ab", "abc", "axc", "bx", "*", "a[b", "]", "-", "user:1:name", "user:1", "abcd"} {
			f.Add(pattern, key)
		}
	}
	f.Fuzz(func(t *testing.T, pattern, key string) {
		if checkGlob(pattern) != nil || len(pattern) > 50 || len(key) > 50 || key == "" {
			return
		}
		ctx := t.Context()
		if err := rdb.FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		if err := rdb.Set(ctx, key, "", 0).Err(); err != nil {
			t.Fatal(err)
		}
		keys, err := rdb.Keys(ctx, pattern).Result()
		if err != nil {
			t.Fatal(err)
		}
		if got, want := glob(pattern, key), len(keys) == 1; got != want {
			t.Errorf("glob(%q, %q) = %v, Redis says %v", pattern, key, got, want)
		}
	})
}
