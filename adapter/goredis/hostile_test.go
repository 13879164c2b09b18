package goredis

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/testvalues"
)

// bomb is a frame of 33 bytes or so that is one of 64 MiB.
func bomb(t testing.TB) string {
	t.Helper()
	c, err := compress.Setting{Algorithm: frame.S2}.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := newPacker(t, bale.PackerOptions{Compressors: &compress.Set{Write: c}}).Pack(nil, make([]byte, 64<<20))
	if err != nil || len(b) > 40 {
		t.Fatal(len(b), err)
	}
	return string(b)
}

// TestBudget: a reply, or those of a pipeline, do not become gigabytes, whatever command reads
// them.
func TestBudget(t *testing.T) {
	if testvalues.Race {
		t.Skip("the race detector allocates")
	}
	const n, budget = 60, 256 << 20
	ctx := t.Context()
	hooked, raw := clients(t, HookOptions{}, 3)
	stored := bomb(t)
	var keys []string
	if _, err := raw.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range n {
			keys = append(keys, fmt.Sprint("k", i))
			p.Set(ctx, keys[i], stored, 0)
			p.HSet(ctx, "h", keys[i], stored)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	mget := []any{"mget"}
	for _, key := range keys {
		mget = append(mget, key)
	}
	for name, read := range map[string]func(c redis.UniversalClient) error{
		"MGET":    func(c redis.UniversalClient) error { return c.MGet(ctx, keys...).Err() },
		"Do":      func(c redis.UniversalClient) error { return c.Do(ctx, mget...).Err() },
		"HMGET":   func(c redis.UniversalClient) error { return c.HMGet(ctx, "h", keys...).Err() },
		"HGETALL": func(c redis.UniversalClient) error { return c.HGetAll(ctx, "h").Err() },
		"HVALS":   func(c redis.UniversalClient) error { return c.HVals(ctx, "h").Err() },
		"HSCAN":   func(c redis.UniversalClient) error { return c.HScan(ctx, "h", 0, "", 100).Err() },
		"HRANDFIELD": func(c redis.UniversalClient) error {
			return c.HRandFieldWithValues(ctx, "h", n).Err()
		},
		"SORT": func(c redis.UniversalClient) error {
			return c.Sort(ctx, "list", &redis.Sort{By: "nosort", Get: []string{"*"}}).Err()
		},
		"pipeline": func(c redis.UniversalClient) error {
			_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, key := range keys {
					p.Get(ctx, key)
				}
				return nil
			})
			return err
		},
		"transaction": func(c redis.UniversalClient) error {
			_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
				for _, key := range keys {
					p.Get(ctx, key)
				}
				return nil
			})
			return err
		},
		"transaction by hand": func(c redis.UniversalClient) error {
			conn := c.(*redis.Client).Conn()
			defer conn.Close()
			if err := conn.Do(ctx, "multi").Err(); err != nil {
				return err
			}
			if err := conn.Do(ctx, mget...).Err(); err != nil {
				return err
			}
			return conn.Do(ctx, "exec").Err()
		},
	} {
		if err := raw.Del(ctx, "list").Err(); err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			raw.RPush(ctx, "list", key)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := read(hooked)
		runtime.ReadMemStats(&after)
		var keyed *bale.KeyError
		if !errors.Is(err, bale.ErrBudget) || !errors.As(err, &keyed) || keyed.Key == "" && keyed.Op != "exec" {
			t.Errorf("%s: %.300v", name, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > budget+64<<20 {
			t.Errorf("%s: %d MiB allocated", name, n>>20)
		}
	}
	// The values of a pipeline that are within the budget are there. The next one begins anew.
	for range 2 {
		cmds, _ := hooked.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, key := range keys[:6] {
				p.Get(ctx, key)
			}
			return nil
		})
		for i, cmd := range cmds {
			if got := len(cmd.(*redis.StringCmd).Val()); got != 64<<20 && i < 4 || i >= 4 && !errors.Is(cmd.Err(), bale.ErrBudget) {
				t.Errorf("%d: %d bytes, %v", i, got, cmd.Err())
			}
		}
	}
}

// TestBudgetIsRaised: a legal batch is read as soon as the Packer allows it.
func TestBudgetIsRaised(t *testing.T) {
	const n, size = 10, 1 << 20
	ctx := context.Background()
	for budget, want := range map[int]error{n*size - 1: bale.ErrBudget, n * size: nil} {
		hooked, raw := clients(t, HookOptions{}, 2)
		c := redis.NewClient(raw.Options())
		defer c.Close()
		hook, err := NewHook(newPacker(t, bale.PackerOptions{MaxSize: size, Budget: budget}), HookOptions{Match: []string{"*"}})
		if err != nil {
			t.Fatal(err)
		}
		install(t, hook, c)
		var keys []string
		for i := range n {
			keys = append(keys, fmt.Sprint("k", i))
			if err := hooked.Set(ctx, keys[i], make([]byte, size), 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.MGet(ctx, keys...).Err(); !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("budget %d: %v", budget, err)
		}
	}
}
