package goredis

import (
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
