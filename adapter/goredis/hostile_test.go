package goredis

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/testvalues"
	"github.com/balekv/bale/stats"
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

// TestManyBadFields: the writer of a hash chooses how many errors it gives, and how long its names
// are; the error names some, and counts all.
func TestManyBadFields(t *testing.T) {
	const fields = 100_000
	ctx := t.Context()
	rec := &recorder{}
	hooked, raw := clients(t, HookOptions{Recorder: rec}, 3)
	bad := string(frame.Header{Algorithm: frame.Zstd, Length: 100}.Append(nil)) + "no zstd"
	for _, key := range []string{"h", "i"} {
		if _, err := raw.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range fields {
				p.HSet(ctx, key, strconv.Itoa(i), bad)
			}
			p.HSet(ctx, key, strings.Repeat("x", 10_000), bad)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for name, read := range map[string]func() error{
		"HGETALL": func() error { return hooked.HGetAll(ctx, "h").Err() },
		"HVALS":   func() error { return hooked.HVals(ctx, "h").Err() },
		"Do":      func() error { return hooked.Do(ctx, "hgetall", "h").Err() },
	} {
		err := read()
		var all bale.KeyErrors
		if !errors.As(err, &all) || len(all) != maxFailed+1 || !errors.Is(all[maxFailed], bale.ErrCorrupt) {
			t.Fatalf("%s: %d errors: %.300v", name, len(all), err)
		}
		if want := fmt.Sprintf("and %d more values", fields+1-maxFailed); !strings.Contains(all[maxFailed].Error(), want) {
			t.Errorf("%s: %v", name, all[maxFailed])
		}
		for _, err := range all {
			if n := len(err.Error()); n > 1000 {
				t.Errorf("%s: an error of %d bytes", name, n)
			}
		}
		if told := rec.told(); len(told) != 1 || told[0].Errors != fields+1 || told[0].Class != stats.Corrupt {
			t.Errorf("%s: %+v", name, told)
		}
	}
	// Each key of a transaction has its own.
	transaction := []redis.Cmder{redis.NewMapStringStringCmd(ctx, "hgetall", "h"), redis.NewMapStringStringCmd(ctx, "hgetall", "i")}
	hooked.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for _, cmd := range transaction {
			p.Process(ctx, cmd)
		}
		return nil
	})
	for _, cmd := range transaction {
		var all bale.KeyErrors
		if !errors.As(cmd.Err(), &all) || len(all) != maxFailed+1 || all[0].Key != cmd.Args()[1] {
			t.Errorf("%v: %d errors", cmd.Args(), len(all))
		}
	}
	// The patterns of SORT name the same two keys for each element of a list.
	if _, err := raw.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.MSet(ctx, "a1", bad, "b1", bad)
		for range fields {
			p.RPush(ctx, "l", 1)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var sorted bale.KeyErrors
	if err := hooked.Do(ctx, "sort", "l", "by", "nosort", "get", "a*", "get", "b*").Err(); !errors.As(err, &sorted) || len(sorted) != maxFailed+1 {
		t.Errorf("SORT: %d errors", len(sorted))
	}
	// The program chooses the keys of MGET: each that failed is named.
	keys := make([]string, 3*maxFailed)
	for i := range keys {
		keys[i] = "k"
	}
	raw.Set(ctx, "k", bad, 0)
	var all bale.KeyErrors
	if err := hooked.MGet(ctx, keys...).Err(); !errors.As(err, &all) || len(all) != len(keys) {
		t.Errorf("MGET: %d errors", len(all))
	}
}

// TestRecorderDoesNotBelieveUploads: with NoEscape a value that looks like a frame is what the
// program was given, and its header claims whatever its writer likes.
func TestRecorderDoesNotBelieveUploads(t *testing.T) {
	rec := &recorder{}
	hooked, _ := clients(t, HookOptions{Recorder: rec, ReadOnly: true, NoEscape: true}, 3)
	forged := append(frame.Header{Algorithm: frame.Zstd, DictionaryID: 7, Length: 1 << 62}.Append(nil), "upload"...)
	for _, v := range []any{forged, string(forged)} {
		if err := hooked.Set(t.Context(), "k", v, 0).Err(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]stats.Event{{Op: stats.Set, Keys: 1, Plain: len(forged), Stored: len(forged)}}, rec.told()); diff != "" {
			t.Error(diff)
		}
	}
}
