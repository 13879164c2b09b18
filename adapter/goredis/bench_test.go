package goredis

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/internal/redisproc"
)

type profile struct {
	ID    int      `json:"id"`
	Name  string   `json:"name"`
	Email string   `json:"email"`
	Bio   string   `json:"bio"`
	Tags  []string `json:"tags"`
}

var ada = profile{1, "Ada Lovelace", "ada@example.com", strings.Repeat("Wrote the first program. ", 14), []string{"vip", "beta"}}

const benchCallers = 64

// BenchmarkCacheAgainstHand compares Cache[T] without compression with what one writes by hand:
// go-redis and encoding/json, 64 callers, each operation a Set and a Get. Both run in turn within
// one benchmark, so that the ratio holds on a noisy machine: "x-hand" is time over time by hand,
// "allocs-over" the difference.
func BenchmarkCacheAgainstHand(b *testing.B) {
	server := redisproc.ForTest(b)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: benchCallers})
	defer rdb.Close()
	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: compress.None}})
	if err != nil {
		b.Fatal(err)
	}
	cache, err := bale.New(NewStore(rdb), bale.Options[profile]{Packer: packer})
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	byHand := func(key string) error {
		value, err := json.Marshal(ada)
		if err != nil {
			return err
		}
		if err := rdb.Set(ctx, key, value, time.Hour).Err(); err != nil {
			return err
		}
		got, err := rdb.Get(ctx, key).Bytes()
		if err != nil {
			return err
		}
		var p profile
		if err := json.Unmarshal(got, &p); err != nil {
			return err
		}
		return check(p)
	}
	byCache := func(key string) error {
		if err := cache.Set(ctx, key, ada, bale.TTL(time.Hour)); err != nil {
			return err
		}
		p, err := cache.Get(ctx, key)
		if err != nil {
			return err
		}
		return check(p)
	}
	const slice = 2000 // operations of each in turn
	run := func(op func(string) error, n int) (time.Duration, uint64) {
		var left atomic.Int64
		left.Store(int64(n))
		before := mallocs()
		start := time.Now()
		var callers sync.WaitGroup
		for c := range benchCallers {
			callers.Go(func() {
				key := fmt.Sprintf("bench:%d", c)
				for left.Add(-1) >= 0 {
					if err := op(key); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		callers.Wait()
		return time.Since(start), mallocs() - before
	}
	run(byHand, slice)
	run(byCache, slice)
	var ratios []float64
	var handTime, cacheTime time.Duration
	var handAllocs, cacheAllocs uint64
	n := 0
	for b.Loop() {
		// In both orders, so that none profits from being the second.
		first, second := byHand, byCache
		if n%2 == 1 {
			first, second = second, first
		}
		t1, a1 := run(first, slice)
		t2, a2 := run(second, slice)
		if n%2 == 1 {
			t1, a1, t2, a2 = t2, a2, t1, a1
		}
		n++
		handTime, handAllocs, cacheTime, cacheAllocs = handTime+t1, handAllocs+a1, cacheTime+t2, cacheAllocs+a2
		ratios = append(ratios, float64(t2)/float64(t1))
	}
	ops := float64(n * slice)
	b.ReportMetric(medianOf(ratios), "x-hand")
	b.ReportMetric(float64(handTime.Nanoseconds())/ops, "ns-hand")
	b.ReportMetric(float64(cacheTime.Nanoseconds())/ops, "ns-cache")
	b.ReportMetric((float64(cacheAllocs)-float64(handAllocs))/ops, "allocs-over")
}

func check(p profile) error {
	if p.Bio != ada.Bio || p.ID != ada.ID || len(p.Tags) != len(ada.Tags) {
		return fmt.Errorf("another profile came back")
	}
	return nil
}

// BenchmarkHook is what the hook adds to a command, without a server: a short-cut takes its place.
func BenchmarkHook(b *testing.B) {
	packer, err := bale.NewPacker(bale.PackerOptions{})
	if err != nil {
		b.Fatal(err)
	}
	hook, err := NewHook(packer, HookOptions{Match: []string{"user:*"}})
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	plain := bytes.Repeat([]byte(`{"a":"value of some length"}`), 16)
	packed, err := packer.Pack(nil, plain)
	if err != nil {
		b.Fatal(err)
	}
	reply := string(packed)
	for _, bench := range []struct {
		name string
		cmd  redis.Cmder
		next redis.ProcessHook
	}{
		{"get plain", redis.NewStringCmd(ctx, "get", "user:1"), func(_ context.Context, cmd redis.Cmder) error {
			cmd.(*redis.StringCmd).SetVal("plain")
			return nil
		}},
		{"get packed", redis.NewStringCmd(ctx, "get", "user:1"), func(_ context.Context, cmd redis.Cmder) error {
			cmd.(*redis.StringCmd).SetVal(reply)
			return nil
		}},
		{"set", redis.NewStatusCmd(ctx, "set", "user:1", plain), func(context.Context, redis.Cmder) error { return nil }},
		{"other", redis.NewIntCmd(ctx, "lpush", "user:1", plain), func(context.Context, redis.Cmder) error { return nil }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			process := alone(hook).ProcessHook(bench.next)
			b.ReportAllocs()
			for b.Loop() {
				if err := process(ctx, bench.cmd); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkGetMany reads 100 keys at once, those that are there and those that are not.
func BenchmarkGetMany(b *testing.B) {
	rdb := redis.NewClient(&redis.Options{Addr: redisproc.ForTest(b).Addr()})
	defer rdb.Close()
	s := NewStore(rdb)
	ctx := context.Background()
	for _, name := range []string{"hits", "misses", "one miss"} {
		keys := make([]string, 100)
		for i := range keys {
			keys[i] = fmt.Sprint(name, ":", i)
			if name == "hits" || name == "one miss" && i > 0 {
				if err := rdb.Set(ctx, keys[i], strings.Repeat("x", 500), 0).Err(); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.GetMany(ctx, keys); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
