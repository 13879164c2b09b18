package near

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/balekv/bale"
	balerueidis "github.com/balekv/bale/adapter/rueidis"
	"github.com/balekv/bale/internal/redisproc"
)

// TestExpiryIsObeyed: no call that comes after the expiry of a loaded value gets it from here,
// whether or not Redis still has it.
func TestExpiryIsObeyed(t *testing.T) {
	ctx := t.Context()
	addr := redisproc.ForTest(t).Addr()
	for _, listen := range []bool{false, true} {
		for _, stale := range []time.Duration{0, time.Hour} {
			t.Run(fmt.Sprintf("listening %v, StaleIfError %v", listen, stale), func(t *testing.T) {
				client := connect(t, rueidis.ClientOption{}, addr)
				o := Options[int]{}
				if listen {
					o.Invalidations = invalidations(t, client, time.Second)
				}
				near, cache := over(t, balerueidis.NewStore(client, balerueidis.StoreOptions{}), o, bale.LoadOptions{StaleIfError: stale, Beta: -1})
				if listen {
					listening(t, near, 1)
				}
				get := func() (int, error) { return near.Get(ctx, "k") }
				for name, read := range map[string]func() (int, error){
					"Get": get,
					"GetOrLoad": func() (int, error) {
						return getOrLoad(ctx, near, "k", none, bale.TTL(time.Hour))
					},
					"GetMany": func() (int, error) {
						many, err := near.GetMany(ctx, "k")
						if n, ok := many["k"]; ok || err != nil {
							return n, err
						}
						return 0, bale.ErrNotFound
					},
				} {
					// A busy machine may need longer to keep anything.
					kept := func(ttl time.Duration) bool {
						if _, err := near.Delete(ctx, "k"); err != nil {
							t.Fatal(err)
						}
						ends := time.Now().Add(ttl)
						if _, err := cache.GetOrLoad(ctx, "k", func(context.Context) (int, error) { return 1, nil }, bale.ExpireAt(ends)); err != nil {
							t.Fatal(err)
						}
						before := near.Stats().Hits
						for time.Now().Before(ends) {
							if n, err := read(); n != 1 && !errors.Is(err, bale.ErrNotFound) {
								t.Fatalf("%s: %d, %v", name, n, err)
							}
						}
						return near.Stats().Hits > before
					}
					for ttl := 200 * time.Millisecond; !kept(ttl); ttl *= 2 {
						if ttl > patience {
							t.Fatalf("%s: nothing is kept", name)
						}
					}
					for range 3 {
						if n, err := read(); !errors.Is(err, bale.ErrNotFound) {
							t.Fatalf("%s: %d, %v after the expiry", name, n, err)
						}
					}
				}
			})
		}
	}
}

// TestMissesAreKept: a cached miss is served from here until it expires or the key is written,
// however it is asked for.
func TestMissesAreKept(t *testing.T) {
	ctx := t.Context()
	client := connect(t, rueidis.ClientOption{}, redisproc.ForTest(t).Addr())
	store := &gated{Store: balerueidis.NewStore(client, balerueidis.StoreOptions{})}
	near, cache := over(t, store, Options[int]{Invalidations: invalidations(t, client, time.Second)}, bale.LoadOptions{NegativeTTL: time.Hour})
	listening(t, near, 1)
	var loads atomic.Int64
	reads := map[string]func(key string) error{
		"Get": func(key string) error { _, err := near.Get(ctx, key); return err },
		"GetOrLoad": func(key string) error {
			_, err := getOrLoad(ctx, near, key, func(context.Context) (int, error) { loads.Add(1); return 0, bale.ErrNotFound }, bale.TTL(time.Hour))
			return err
		},
		"GetMany": func(key string) error {
			many, err := near.GetMany(ctx, key, key)
			if _, ok := many[key]; !ok && err == nil {
				err = bale.ErrNotFound
			}
			return err
		},
	}
	keeps := func(key string) {
		t.Helper()
		for name, read := range reads {
			await(t, name+" does not find it kept", func() bool { // the invalidation of its own write may come first
				hits := near.Stats().Hits
				if err := reads["GetOrLoad"](key); !errors.Is(err, bale.ErrNotFound) {
					t.Fatalf("%s: %v", name, err)
				}
				if err := read(key); !errors.Is(err, bale.ErrNotFound) {
					t.Fatalf("%s: %v", name, err)
				}
				return near.Stats().Hits >= hits+2
			})
		}
	}
	keeps("k")
	await(t, "its own write is not announced", func() bool { return near.Stats().Invalidations > 0 })
	keeps("k")
	before := store.gets.Load()
	for range 1000 {
		for name, read := range reads {
			if err := read("k"); !errors.Is(err, bale.ErrNotFound) {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	if n := store.gets.Load() - before; n != 0 || loads.Load() != 1 {
		t.Errorf("%d reads went to Redis, %d loads", n, loads.Load())
	}
	for name, set := range map[string]func() error{
		"by it":   func() error { return near.Set(ctx, "k", 1, bale.TTL(time.Hour)) },
		"past it": func() error { return cache.Set(ctx, "k", 1, bale.TTL(time.Hour)) },
	} {
		if _, err := near.Delete(ctx, "k"); err != nil {
			t.Fatal(err)
		}
		keeps("k")
		if err := set(); err != nil {
			t.Fatal(err)
		}
		await(t, "a value set "+name+" is not seen", func() bool {
			n, err := near.Get(ctx, "k")
			return n == 1 && err == nil
		})
	}
	// Each read of a missing key without a cached miss asks Redis.
	before = store.gets.Load()
	for range 3 {
		if err := reads["Get"]("never asked"); !errors.Is(err, bale.ErrNotFound) {
			t.Error(err)
		}
	}
	if n := store.gets.Load() - before; n != 3 {
		t.Errorf("%d reads of 3", n)
	}
}

// TestMissesExpire: a cached miss is not served longer than NegativeTTL.
func TestMissesExpire(t *testing.T) {
	ctx := t.Context()
	near, _ := over(t, newStore(t, redisproc.ForTest(t).Addr()), Options[int]{}, bale.LoadOptions{NegativeTTL: 100 * time.Millisecond})
	if _, err := getOrLoad(ctx, near, "k", none, bale.TTL(time.Hour)); !errors.Is(err, bale.ErrNotFound) {
		t.Fatal(err)
	}
	await(t, "the miss does not expire", func() bool {
		n, err := getOrLoad(ctx, near, "k", func(context.Context) (int, error) { return 1, nil }, bale.TTL(time.Hour))
		return n == 1 && err == nil
	})
}

// TestOldValueByDeadline: who shares a load gets the old value at a deadline of its own, and the
// load goes on.
func TestOldValueByDeadline(t *testing.T) {
	near, cache := over(t, newStore(t, redisproc.ForTest(t).Addr()), Options[int]{}, bale.LoadOptions{StaleIfError: time.Hour, Beta: -1, Lock: time.Second})
	if _, err := getOrLoad(t.Context(), near, "k", func(context.Context) (int, error) { return 1, nil }, bale.TTL(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	await(t, "it does not expire", func() bool {
		_, err := cache.Get(t.Context(), "k")
		return errors.Is(err, bale.ErrNotFound)
	})
	release := make(chan struct{})
	var loads atomic.Int64
	load := func(ctx context.Context) (int, error) {
		loads.Add(1)
		select {
		case <-release:
			return 2, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second+time.Duration(i)*20*time.Millisecond)
			defer cancel()
			if n, err := getOrLoad(ctx, near, "k", load, bale.TTL(time.Hour)); n != 1 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		})
	}
	all.Wait()
	if n, err := near.Get(t.Context(), "k"); !errors.Is(err, bale.ErrNotFound) {
		t.Errorf("the old value is kept: %d, %v", n, err)
	}
	close(release)
	await(t, "the load does not go on", func() bool {
		n, err := near.Get(t.Context(), "k")
		return n == 2 && err == nil
	})
	if n := loads.Load(); n != 1 {
		t.Errorf("%d loads", n)
	}
}

// TestCloseWhileLoading: no goroutine is left, and who waits for a load goes on without.
func TestCloseWhileLoading(t *testing.T) {
	near, _ := over(t, newStore(t, redisproc.ForTest(t).Addr()), Options[int]{}, bale.LoadOptions{})
	loading, release := make(chan struct{}, 10), make(chan struct{})
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			n, err := getOrLoad(t.Context(), near, "k", func(ctx context.Context) (int, error) {
				loading <- struct{}{}
				select {
				case <-release:
					return 1, nil
				case <-ctx.Done():
					return 0, ctx.Err()
				}
			}, bale.TTL(time.Hour))
			if n != 1 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		})
	}
	next(t, loading)
	joined(t, near, "k", 5)
	near.Close()
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(stack, "created by github.com/balekv/bale/extra/near.(*Cache") || strings.Contains(stack, "otter") && strings.Contains(stack, "created by") {
			t.Errorf("left after Close:\n%s", stack)
		}
	}
	close(release)
	all.Wait()
	quiet(t, near)
}

// forbidden is a Store whose user may not call PTTL.
type forbidden struct{ *gated }

func (forbidden) PTTL(context.Context, []string) ([]int64, error) {
	return nil, errors.New("NOPERM this user has no permissions to run the 'pttl' command")
}

// TestNotKeptWithoutItsExpiry: a value whose expiry Redis does not tell is read each time.
func TestNotKeptWithoutItsExpiry(t *testing.T) {
	ctx := t.Context()
	store := forbidden{&gated{Store: newStore(t, redisproc.ForTest(t).Addr())}}
	near, _ := over(t, store, Options[int]{MaxAge: time.Hour}, bale.LoadOptions{})
	if err := near.Set(ctx, "k", 1, bale.TTL(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if n, err := near.Get(ctx, "k"); n != 1 || err != nil {
			t.Errorf("Get: %d, %v", n, err)
		}
		if n, err := getOrLoad(ctx, near, "k", none, bale.TTL(time.Hour)); n != 1 || err != nil {
			t.Errorf("GetOrLoad: %d, %v", n, err)
		}
		if many, err := near.GetMany(ctx, "k"); many["k"] != 1 || err != nil {
			t.Errorf("GetMany: %v, %v", many, err)
		}
	}
	if s := near.Stats(); s.Hits != 0 || s.Entries != 0 {
		t.Errorf("kept: %+v", s)
	}
}

// TestExpiryOfSet: a value of Set with a TTL is not served longer. Redis announces the end only
// when it gets to it: among many keys with an expiry, tens of seconds late.
func TestExpiryOfSet(t *testing.T) {
	ctx := t.Context()
	server := redisproc.ForTest(t)
	client := connect(t, rueidis.ClientOption{}, server.Addr())
	near, cache := over(t, balerueidis.NewStore(client, balerueidis.StoreOptions{}), Options[int]{Invalidations: invalidations(t, client, time.Second)}, bale.LoadOptions{})
	listening(t, near, 1)
	if _, err := server.Do(ctx, "EVAL", "for i=1,20000 do redis.call('SET', 'other:'..i, 'x', 'EX', 3600) end return 1", "0"); err != nil {
		t.Fatal(err)
	}
	const keys = 50
	values := map[string]int{}
	for i := range keys {
		values[fmt.Sprint("k", i)] = i
	}
	for name, read := range map[string]func(key string) (int, error){
		"Get":       func(key string) (int, error) { return near.Get(ctx, key) },
		"GetOrLoad": func(key string) (int, error) { return getOrLoad(ctx, near, key, none, bale.TTL(time.Hour)) },
		"GetMany": func(key string) (int, error) {
			many, err := near.GetMany(ctx, key)
			if n, ok := many[key]; ok || err != nil {
				return n, err
			}
			return 0, bale.ErrNotFound
		},
	} {
		kept := func(ttl time.Duration) bool {
			if err := cache.SetMany(ctx, values, bale.TTL(ttl)); err != nil {
				t.Fatal(err)
			}
			ends := time.Now().Add(ttl + 2*time.Millisecond) // at the latest: Redis counts whole milliseconds
			before := near.Stats().Hits
			for time.Now().Before(ends) {
				for key := range values {
					if _, err := read(key); err != nil && !errors.Is(err, bale.ErrNotFound) {
						t.Fatal(err)
					}
				}
			}
			hits := near.Stats().Hits
			for key := range values {
				if n, err := read(key); !errors.Is(err, bale.ErrNotFound) {
					t.Fatalf("%s: %d, %v after the expiry", name, n, err)
				}
			}
			return hits > before
		}
		for ttl := 200 * time.Millisecond; !kept(ttl); ttl *= 2 {
			if ttl > patience {
				t.Fatalf("%s: nothing is kept", name)
			}
		}
	}
}

// TestDistantExpiry: a value that expires in more than 292 years, the longest time.Duration, is
// kept.
func TestDistantExpiry(t *testing.T) {
	ctx := t.Context()
	near, _ := over(t, newStore(t, redisproc.ForTest(t).Addr()), Options[int]{MaxAge: math.MaxInt64}, bale.LoadOptions{Beta: -1})
	distant := bale.ExpireAt(time.Date(5000, 1, 1, 0, 0, 0, 0, time.UTC))
	for key, set := range map[string]func(key string) error{
		"set":   func(key string) error { return near.Set(ctx, key, 1, distant) },
		"never": func(key string) error { return near.Set(ctx, key, 1, bale.NoExpiry()) },
		"loaded": func(key string) error {
			_, err := getOrLoad(ctx, near, key, func(context.Context) (int, error) { return 1, nil }, distant)
			return err
		},
	} {
		if err := set(key); err != nil {
			t.Fatal(err)
		}
		before := near.Stats().Hits
		for range 3 {
			if v, err := near.Get(ctx, key); v != 1 || err != nil {
				t.Fatalf("%s: %d, %v", key, v, err)
			}
		}
		if near.Stats().Hits == before {
			t.Errorf("%s: it is not kept", key)
		}
	}
}
