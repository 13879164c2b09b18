package goredis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/redisproc"
)

// deployments are the ways to run Redis, each with a client for it.
var deployments = map[string]func(t *testing.T) redis.UniversalClient{
	"standalone": func(t *testing.T) redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: redisproc.ForTest(t).Addr()})
	},
	"cluster": func(t *testing.T) redis.UniversalClient {
		return redis.NewUniversalClient(&redis.UniversalOptions{Addrs: redisproc.ClusterForTest(t, 3).Addrs()})
	},
	"sentinel": func(t *testing.T) redis.UniversalClient {
		s := redisproc.SentinelForTest(t, "main", redisproc.ForTest(t))
		return redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{s.Addr()}, MasterName: "main"})
	},
	"ring": func(t *testing.T) redis.UniversalClient {
		return redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": redisproc.ForTest(t).Addr(), "b": redisproc.ForTest(t).Addr()}})
	},
}

func TestStore(t *testing.T) {
	for name, open := range deployments {
		t.Run(name, func(t *testing.T) {
			client := open(t)
			t.Cleanup(func() { client.Close() })
			testStore(t, NewStore(client), client)
		})
	}
}

func testStore(t *testing.T, s *Store, client redis.UniversalClient) {
	ctx := t.Context()
	t.Run("values", func(t *testing.T) {
		for _, n := range []int{0, 1, 100, 64 << 10, 8 << 20} {
			value := bytes.Repeat([]byte{0, 0xff, 'x'}, n/3+1)[:n]
			key := "binary\x00\xff:" + fmt.Sprint(n)
			if err := s.Set(ctx, key, value, bale.Expiry{}); err != nil {
				t.Fatal(err)
			}
			if got, err := s.Get(ctx, key); err != nil || got == nil || !bytes.Equal(got, value) {
				t.Errorf("%d bytes: %d come back, %v", n, len(got), err)
			}
		}
		if _, err := s.Get(ctx, "none"); !errors.Is(err, bale.ErrNotFound) {
			t.Errorf("missing key: %v", err)
		}
	})
	t.Run("expiry", func(t *testing.T) {
		at := time.Now().Add(time.Hour + 123456*time.Microsecond)
		for name, e := range map[string]bale.Expiry{"px": bale.TTL(1500 * time.Millisecond), "long": bale.TTL(100 * time.Hour), "never": {Never: true}, "zero": {}, "pxat": bale.ExpireAt(at)} {
			for how, set := range map[string]func(key string) error{
				"set":     func(key string) error { return s.Set(ctx, key, []byte("v"), e) },
				"setmany": func(key string) error { return s.SetMany(ctx, []bale.Item{{Key: key, Value: []byte("v"), Expiry: e}}) },
				"touch": func(key string) error {
					if err := client.Set(ctx, key, "v", 5*time.Minute).Err(); err != nil {
						return err
					}
					if ok, err := s.Touch(ctx, key, e); !ok || err != nil {
						return fmt.Errorf("touch: %v, %w", ok, err)
					}
					return nil
				},
			} {
				key := name + how
				before := time.Now()
				if err := set(key); err != nil {
					t.Fatal(err)
				}
				ends, err := client.PExpireTime(ctx, key).Result()
				if err != nil {
					t.Fatal(err)
				}
				after := time.Now()
				ms, absolute := e.Millis()
				switch {
				case ms == 0:
					if ends > 0 {
						t.Errorf("%s: expires at %v", key, ends)
					}
				case absolute:
					if ends.Milliseconds() != at.UnixMilli()+1 { // rounded up
						t.Errorf("%s: expires at %d, want %d", key, ends.Milliseconds(), at.UnixMilli()+1)
					}
				default: // between the moments before and after
					if low, high := before.UnixMilli()+ms, after.UnixMilli()+ms; ends.Milliseconds() < low || ends.Milliseconds() > high {
						t.Errorf("%s: expires at %d, want %d to %d", key, ends.Milliseconds(), low, high)
					}
				}
			}
		}
		for _, e := range []bale.Expiry{{}, bale.TTL(time.Hour), bale.ExpireAt(at)} {
			if ok, err := s.Touch(ctx, "none", e); ok || err != nil {
				t.Errorf("touch of a missing key: %v, %v", ok, err)
			}
		}
		if err := s.Set(ctx, "eternal", nil, bale.Expiry{}); err != nil {
			t.Fatal(err)
		}
		if ok, err := s.Touch(ctx, "eternal", bale.Expiry{Never: true}); !ok || err != nil {
			t.Errorf("touch of a key without expiry: %v, %v", ok, err)
		}
		if err := s.Set(ctx, "past", []byte("v"), bale.ExpireAt(time.Now().Add(-time.Hour))); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(ctx, "past"); !errors.Is(err, bale.ErrNotFound) {
			t.Errorf("expired before it was set: %v", err)
		}
	})
	t.Run("many", func(t *testing.T) {
		var items []bale.Item
		var keys []string
		for i := range 1000 {
			keys = append(keys, fmt.Sprint("many:", i))
			items = append(items, bale.Item{Key: keys[i], Value: []byte(strings.Repeat("x", i))})
		}
		if err := s.SetMany(ctx, items); err != nil {
			t.Fatal(err)
		}
		got, err := s.GetMany(ctx, append([]string{"none"}, keys...))
		if err != nil || got[0] != nil {
			t.Fatalf("missing key: %v, %v", got[0], err)
		}
		for i, v := range got[1:] {
			if v == nil || len(v) != i {
				t.Errorf("value %d has %d bytes", i, len(v))
			}
		}
		if n, err := s.Delete(ctx, append([]string{"none"}, keys[:500]...)); n != 500 || err != nil {
			t.Errorf("%d deleted, %v", n, err)
		}
		if got, err := s.GetMany(ctx, keys); err != nil || got[499] != nil || got[500] == nil {
			t.Errorf("after Delete: %v", err)
		}
		for name, err := range map[string]error{"set": s.SetMany(ctx, nil), "get": errorOf(s.GetMany(ctx, nil)), "delete": errorOf(s.Delete(ctx, nil))} {
			if err != nil {
				t.Errorf("%s of nothing: %v", name, err)
			}
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		for name, err := range map[string]error{
			"get": errorOf(s.Get(cancelled, "k")), "set": s.Set(cancelled, "k", nil, bale.Expiry{}), "getmany": errorOf(s.GetMany(cancelled, []string{"k", "l"})),
			"setmany": s.SetMany(cancelled, []bale.Item{{Key: "k"}}), "delete": errorOf(s.Delete(cancelled, []string{"k"})), "touch": errorOf(s.Touch(cancelled, "k", bale.TTL(time.Hour))),
		} {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
			var many bale.KeyErrors
			if errors.As(err, &many) {
				t.Errorf("%s: blames the keys: %v", name, err)
			}
		}
	})
}

func errorOf[T any](_ T, err error) error { return err }

// TestPartialFailure has a server that refuses some keys (by its access list): the others succeed, and the
// error names those.
func TestPartialFailure(t *testing.T) {
	ctx := t.Context()
	server := redisproc.ForTest(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer admin.Close()
	if err := admin.Do(ctx, "acl", "setuser", "app", "on", ">secret", "~ok:*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	// A ring of one server goes the way of all deployments with several.
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": server.Addr()}, Username: "app", Password: "secret"})
	defer ring.Close()
	cache, err := bale.New(NewStore(ring), bale.Options[string]{})
	if err != nil {
		t.Fatal(err)
	}
	err = cache.SetMany(ctx, map[string]string{"ok:1": "one", "no:1": "two"}, bale.Expiry{})
	var failed bale.KeyErrors
	if !errors.As(err, &failed) || len(failed) != 1 || failed[0].Key != "no:1" || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("SetMany: %v", err)
	}
	got, err := cache.GetMany(ctx, "ok:1", "no:1")
	if !errors.As(err, &failed) || len(failed) != 1 || failed[0].Key != "no:1" || got["ok:1"] != "one" {
		t.Errorf("GetMany: %v, %v", got, err)
	}
}

// TestCacheThroughRedis takes values of a Cache through a real server, also those that other programs wrote.
func TestCacheThroughRedis(t *testing.T) {
	ctx := t.Context()
	server := redisproc.ForTest(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	cache, err := bale.New(NewStore(rdb), bale.Options[profile]{TTL: time.Hour, Jitter: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	if err := cache.Set(ctx, "k", ada, bale.Expiry{}); err != nil {
		t.Fatal(err)
	}
	if got, err := cache.Get(ctx, "k"); err != nil || got.Bio != ada.Bio {
		t.Errorf("%v, %v", got, err)
	}
	stored := rdb.Get(ctx, "k").Val()
	if !isPacked(stored) {
		t.Error("not packed")
	}
	if ttl := rdb.PTTL(ctx, "k").Val(); ttl > time.Hour || ttl < 29*time.Minute {
		t.Errorf("TTL %v", ttl)
	}
	rdb.Set(ctx, "foreign", `{"name":"Grace Hopper"}`, 0)
	if got, err := cache.Get(ctx, "foreign"); err != nil || got.Name != "Grace Hopper" {
		t.Errorf("plain value: %v, %v", got, err)
	}
	damaged := damage(stored)
	rdb.Set(ctx, "k", damaged, 0)
	if _, err := cache.Get(ctx, "k"); !errors.Is(err, bale.ErrCorrupt) || !strings.Contains(err.Error(), `"k"`) || !strings.Contains(err.Error(), "zstd") {
		t.Errorf("damaged value: %v", err)
	}
	if rdb.Get(ctx, "k").Val() != damaged {
		t.Error("the damaged value was touched")
	}
	if err := cache.Touch(ctx, "none", bale.TTL(time.Minute)); !errors.Is(err, bale.ErrNotFound) {
		t.Errorf("touch: %v", err)
	}
	if n, err := cache.Delete(ctx, "k", "none"); n != 1 || err != nil {
		t.Errorf("delete: %d, %v", n, err)
	}
}

// TestStoreAllocations pins that the Store costs no more than what it stands for.
func TestStoreAllocations(t *testing.T) {
	ctx := t.Context()
	rdb := redis.NewClient(&redis.Options{Addr: redisproc.ForTest(t).Addr()})
	defer rdb.Close()
	s := NewStore(rdb)
	value := []byte(big("allocations"))
	key := strings.ToLower("K") // no constant, which would go into an interface for nothing
	measure := func(f func()) float64 { return testing.AllocsPerRun(200, f) }
	for name, pair := range map[string][2]float64{
		"set": {measure(func() { s.Set(ctx, key, value, bale.TTL(time.Hour)) }), measure(func() { rdb.Set(ctx, key, value, time.Hour) })},
		"get": {measure(func() { s.Get(ctx, key) }), measure(func() { rdb.Get(ctx, key).Bytes() })},
	} {
		if pair[0] > pair[1] {
			t.Errorf("%s: %v allocations, %v by hand", name, pair[0], pair[1])
		}
	}
}
