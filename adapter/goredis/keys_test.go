package goredis

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/internal/redisproc"
)

// TestKeysOfAnyType: the hook knows a key by what go-redis sends for it.
func TestKeysOfAnyType(t *testing.T) {
	ctx := t.Context()
	half, fine := 0.5, true
	keys := map[string]any{
		"1": &fine, "0": false, "5": time.Duration(5), "0.10000000149011612": float32(0.1), "1000000000000000000000": 1e21,
		"-7": int8(-7), "2": uint16(2), "0.5": &half, "b": []byte("b"), "s": "s",
		"1970-01-01T00:00:01.000000005Z": time.Unix(1, 5).UTC(),
	}
	c := redis.NewClient(&redis.Options{Addr: redisproc.ForTest(t).Addr()})
	defer c.Close()
	h, err := NewHook(newPacker(t, bale.PackerOptions{}), HookOptions{Match: slices.Collect(maps.Keys(keys))})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Install(c); err != nil {
		t.Fatal(err)
	}
	value := strings.Repeat("value ", 100)
	for key, arg := range keys {
		if err := c.Set(ctx, key, value, 0).Err(); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Do(ctx, "get", arg).Text(); err != nil || got != value {
			t.Errorf("%T for %s: %.20q, %v", arg, key, got, err)
		}
	}
}
