package near

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/internal/redisproc"
)

// over puts a Cache of long memory before a bale.Cache with the given settings.
func over(t *testing.T, store bale.Store, o Options[int], l bale.LoadOptions) (*Cache[int], *bale.Cache[int]) {
	t.Helper()
	cache, err := bale.New(store, bale.Options[int]{Load: l})
	if err != nil {
		t.Fatal(err)
	}
	o.MaxAge = cmp.Or(o.MaxAge, time.Hour)
	near, err := New(cache, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		near.Close()
		cache.Close()
	})
	return near, cache
}

// quiet says that no reading is left over.
func quiet(t *testing.T, c *Cache[int]) {
	t.Helper()
	for i := range c.shards {
		c.shards[i].mu.Lock()
		if n := len(c.shards[i].flights); n > 0 {
			t.Errorf("%d readings are left", n)
		}
		c.shards[i].mu.Unlock()
	}
}

// joined waits until n calls wait for the load of a key.
func joined(t *testing.T, c *Cache[int], key string, n int) {
	t.Helper()
	s := c.shard(key)
	await(t, fmt.Sprintf("not %d calls wait", n), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		f := s.flights[want{key, true}]
		return f != nil && f.waiting == n
	})
}

// TestOldValueIsNotKept: an old value in place of one that could not be loaded is served to those
// who wait, whoever loads, and not kept.
func TestOldValueIsNotKept(t *testing.T) {
	const callers = 10
	ctx := t.Context()
	store := &gated{Store: newStore(t, redisproc.ForTest(t).Addr())}
	near, cache := over(t, store, Options[int]{}, bale.LoadOptions{StaleIfError: time.Hour, Beta: -1})
	type method func(context.Context, string, func(context.Context) (int, error), ...bale.Expiry) (bale.Entry[int], error)
	for name, first := range map[string]method{"by it": near.GetOrLoad, "past it": cache.GetOrLoad} {
		t.Run("loaded "+name, func(t *testing.T) {
			soon := bale.TTL(20 * time.Millisecond)
			if _, err := near.Delete(ctx, "k"); err != nil {
				t.Fatal(err)
			}
			if _, err := getOrLoad(ctx, near, "k", func(context.Context) (int, error) { return 1, nil }, soon); err != nil {
				t.Fatal(err)
			}
			near.drop("k")
			await(t, "the value does not expire", func() bool {
				_, err := cache.Get(ctx, "k")
				return errors.Is(err, bale.ErrNotFound)
			})
			before := store.gets.Load()
			loading, gate := make(chan struct{}, callers+1), make(chan struct{})
			var all sync.WaitGroup
			get := func(from method) {
				all.Go(func() {
					v, err := from(ctx, "k", func(context.Context) (int, error) {
						loading <- struct{}{}
						<-gate
						return 0, errors.New("down")
					}, soon)
					if v.Value != 1 || !v.Stale || err != nil {
						t.Errorf("got %+v, %v", v, err)
					}
				})
			}
			get(first)
			next(t, loading)
			for range callers {
				get(near.GetOrLoad)
			}
			if name == "by it" {
				joined(t, near, "k", callers+1)
			} else {
				joined(t, near, "k", callers)
				await(t, "it does not read", func() bool { return store.gets.Load() == before+3 }) // two are of the load
			}
			close(gate)
			all.Wait()
			if v, err := near.Get(ctx, "k"); !errors.Is(err, bale.ErrNotFound) {
				t.Errorf("%d is kept, which has expired; %v", v, err)
			}
			quiet(t, near)
		})
	}
}

// TestWriteWhileLoading: what is written while a value is loaded is what calls get that come then,
// and what is kept.
func TestWriteWhileLoading(t *testing.T) {
	ctx := t.Context()
	near, _ := over(t, newStore(t, redisproc.ForTest(t).Addr()), Options[int]{}, bale.LoadOptions{})
	for name, test := range map[string]struct {
		do   func() error
		want int // what is written, or loaded after
	}{
		"Set":     {func() error { return near.Set(ctx, "k", 2, bale.TTL(time.Hour)) }, 2},
		"SetMany": {func() error { return near.SetMany(ctx, map[string]int{"k": 2, "l": 3}, bale.TTL(time.Hour)) }, 2},
		"Delete":  {func() error { _, err := near.Delete(ctx, "k"); return err }, 4},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := near.Delete(ctx, "k"); err != nil {
				t.Fatal(err)
			}
			loading, gate := make(chan struct{}, 1), make(chan struct{})
			var all sync.WaitGroup
			all.Go(func() {
				v, err := getOrLoad(ctx, near, "k", func(context.Context) (int, error) {
					loading <- struct{}{}
					<-gate
					return 1, nil
				}, bale.TTL(time.Hour))
				if v != 1 || err != nil {
					t.Errorf("one who came before got %d, %v", v, err)
				}
			})
			next(t, loading)
			if err := test.do(); err != nil {
				t.Fatal(err)
			}
			quiet(t, near)
			get := func(when string) {
				t.Helper()
				if v, err := getOrLoad(ctx, near, "k", func(context.Context) (int, error) { return 4, nil }, bale.TTL(time.Hour)); v != test.want || err != nil {
					t.Errorf("%s GetOrLoad gets %d, %v", when, v, err)
				}
				if v, err := near.Get(ctx, "k"); v != test.want || err != nil {
					t.Errorf("%s Get gets %d, %v", when, v, err)
				}
			}
			get("while it loads")
			close(gate)
			all.Wait()
			get("then")
			near.drop("k")
			get("from Redis")
			quiet(t, near)
		})
	}
}

// TestDeletesAgainstLoaders: many load all the time, and what they began to load before a Delete
// nobody gets who comes after it.
func TestDeletesAgainstLoaders(t *testing.T) {
	ctx := t.Context()
	near, _ := over(t, newStore(t, redisproc.ForTest(t).Addr()), Options[int]{}, bale.LoadOptions{})
	var source atomic.Int64
	load := func(context.Context) (int, error) {
		v := source.Load()
		time.Sleep(50 * time.Microsecond) // it takes a while
		return int(v), nil
	}
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := getOrLoad(ctx, near, "k", load, bale.TTL(time.Hour)); err != nil {
					t.Error(err)
					return
				}
				time.Sleep(10 * time.Microsecond) // or these have the processors to themselves
			}
		})
	}
	for n := range 500 {
		source.Store(int64(n))
		if _, err := near.Delete(ctx, "k"); err != nil {
			t.Error(err)
			break
		}
		if got, err := getOrLoad(ctx, near, "k", load, bale.TTL(time.Hour)); err != nil || got != n {
			t.Errorf("%d was to be loaded, got %d, %v", n, got, err)
			break
		}
	}
	close(done)
	readers.Wait()
}

// TestOneReadingByLoaders: all who miss a key at once share a reading, and a load if there is
// nothing to read.
func TestOneReadingByLoaders(t *testing.T) {
	const callers = 1000
	ctx := t.Context()
	for _, test := range []struct {
		there             bool
		wantGets, wantSet int64
	}{
		{true, 1, 0},
		{false, 2, 1}, // bale looks again before it loads
	} {
		store := &gated{Store: newStore(t, redisproc.ForTest(t).Addr()), gate: make(chan struct{})}
		near, cache := over(t, store, Options[int]{}, bale.LoadOptions{})
		if test.there {
			if err := cache.Set(ctx, "k", 1, bale.TTL(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		var loads atomic.Int64
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				v, err := getOrLoad(ctx, near, "k", func(context.Context) (int, error) { loads.Add(1); return 1, nil }, bale.TTL(time.Hour))
				if v != 1 || err != nil {
					t.Errorf("got %d, %v", v, err)
				}
			})
		}
		joined(t, near, "k", callers)
		close(store.gate)
		all.Wait()
		if gets, loads := store.gets.Load(), loads.Load(); gets != test.wantGets || loads != test.wantSet {
			t.Errorf("the value is there %v: %d readings and %d loads by %d calls", test.there, gets, loads, callers)
		}
		quiet(t, near)
	}
}

// TestGetDoesNotWaitForALoad: it says at once that there is nothing.
func TestGetDoesNotWaitForALoad(t *testing.T) {
	ctx := t.Context()
	near, _ := over(t, newStore(t, redisproc.ForTest(t).Addr()), Options[int]{}, bale.LoadOptions{})
	loading, gate := make(chan struct{}, 1), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		getOrLoad(ctx, near, "k", func(context.Context) (int, error) { loading <- struct{}{}; <-gate; return 1, nil }, bale.TTL(time.Hour))
	})
	next(t, loading)
	if v, err := near.Get(ctx, "k"); !errors.Is(err, bale.ErrNotFound) {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err := near.GetMany(ctx, "k"); err != nil || len(v) != 0 {
		t.Errorf("%v, %v", v, err)
	}
	close(gate)
	all.Wait()
}

// TestLaterReadingStays: a reading that ends late does not take the place of one that began after
// it.
func TestLaterReadingStays(t *testing.T) {
	ctx := t.Context()
	store := &gated{Store: newStore(t, redisproc.ForTest(t).Addr()), gate: make(chan struct{}), read: make(chan struct{}, 1)}
	near, cache := over(t, store, Options[int]{}, bale.LoadOptions{})
	set := func(v int) {
		if err := cache.Set(ctx, "k", v, bale.TTL(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	set(1)
	var first sync.WaitGroup
	first.Go(func() {
		if v, err := near.Get(ctx, "k"); v != 1 || err != nil {
			t.Errorf("%+v, %v", v, err)
		}
	})
	next(t, store.read) // it has got 1
	set(2)
	second := make(chan int)
	w := want{"k", true}
	go func() {
		v, err := near.miss(ctx, w, near.now(), func(context.Context) (bale.Entry[int], error) { return bale.Entry[int]{Value: 2}, nil }) // past the gate
		if err != nil {
			t.Error(err)
		}
		second <- v.Value
	}()
	if v := <-second; v != 2 {
		t.Errorf("%d", v)
	}
	close(store.gate)
	first.Wait()
	store.read = nil
	if v, err := near.Get(ctx, "k"); v != 2 || err != nil {
		t.Errorf("%d is kept, %v", v, err)
	}
}

// TestRefreshAhead: a value that is about to expire is loaded in the background when it is read.
func TestRefreshAhead(t *testing.T) {
	ctx := t.Context()
	near, cache := over(t, newStore(t, redisproc.ForTest(t).Addr()), Options[int]{}, bale.LoadOptions{Beta: 1e18})
	var loads atomic.Int64
	get := func(want int) {
		t.Helper()
		if v, err := getOrLoad(ctx, near, "k", func(context.Context) (int, error) { return int(loads.Add(1)), nil }, bale.TTL(time.Hour)); v != want || err != nil {
			t.Errorf("got %d, %v; want %d", v, err, want)
		}
	}
	get(1)
	get(1) // which is kept
	if n := loads.Load(); n != 1 {
		t.Errorf("%d loads", n)
	}
	near.drop("k")
	get(1)
	await(t, "it is not refreshed", func() bool {
		v, err := cache.Get(ctx, "k")
		return v == 2 && err == nil
	})
	near.drop("k")
	get(2)
}

// TestContextsOfLoaders: one who gives up does not make others fail, nor load again, be it the
// first or another; when all have, the load ends.
func TestContextsOfLoaders(t *testing.T) {
	near, _ := over(t, newStore(t, redisproc.ForTest(t).Addr()), Options[int]{}, bale.LoadOptions{})
	loading, ended, gate := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	var loads atomic.Int64
	errs := make(chan error)
	get := func() context.CancelFunc {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			v, err := getOrLoad(ctx, near, "k", func(ctx context.Context) (int, error) {
				loads.Add(1)
				loading <- struct{}{}
				select {
				case <-gate:
					return 1, nil
				case <-ctx.Done():
					ended <- struct{}{}
					return 0, ctx.Err()
				}
			}, bale.TTL(time.Hour))
			if err == nil && v != 1 {
				err = fmt.Errorf("got %d", v)
			}
			errs <- err
		}()
		return cancel
	}
	left := func(who string) {
		t.Helper()
		var keyErr *bale.KeyError
		if err := <-errs; !errors.Is(err, context.Canceled) || !errors.As(err, &keyErr) || keyErr.Op != "load" || keyErr.Key != "k" {
			t.Errorf("%s gives up: %v", who, err)
		}
	}
	first := get()
	next(t, loading)
	second, third := get(), get()
	joined(t, near, "k", 3)
	first()
	left("who began it")
	second()
	left("who waits")
	joined(t, near, "k", 1)
	third()
	left("the last one")
	next(t, ended)
	quiet(t, near)

	fourth := get()
	next(t, loading) // anew
	fifth := get()
	defer fifth()
	joined(t, near, "k", 2)
	fourth()
	left("who began it")
	close(gate)
	if err := <-errs; err != nil {
		t.Errorf("one who does not give up: %v", err)
	}
	if n := loads.Load(); n != 2 {
		t.Errorf("%d loads", n)
	}
	if v, err := near.Get(t.Context(), "k"); v != 1 || err != nil || near.Stats().Hits != 1 {
		t.Errorf("%d, %v is kept, %+v", v, err, near.Stats())
	}
}

// TestLeftLoadIsNotJoined: one who comes when all have left a load does not wait for its end, nor
// get its error.
func TestLeftLoadIsNotJoined(t *testing.T) {
	near, _ := over(t, newStore(t, redisproc.ForTest(t).Addr()), Options[int]{}, bale.LoadOptions{})
	w := want{"k", true}
	hold := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if v, err := near.miss(ctx, w, near.now(), func(ctx context.Context) (bale.Entry[int], error) {
		<-ctx.Done()
		<-hold
		return bale.Entry[int]{}, ctx.Err()
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("one who gives up: %+v, %v", v, err)
	}
	quiet(t, near)
	if v, err := near.miss(t.Context(), w, near.now(), func(context.Context) (bale.Entry[int], error) { return bale.Entry[int]{Value: 1}, nil }); v.Value != 1 || err != nil {
		t.Errorf("%+v, %v", v, err)
	}
	close(hold)
}

// TestPanicWhileLoading: after any panic, all waiting callers get an error.
func TestPanicWhileLoading(t *testing.T) {
	const callers = 3
	for _, what := range []string{"load", "store", "Size", "none"} {
		t.Run(what, func(t *testing.T) {
			store := &gated{Store: newStore(t, redisproc.ForTest(t).Addr()), gate: make(chan struct{}), panic: what == "store"}
			near, _ := over(t, store, Options[int]{Size: func(string, int) int {
				if what == "Size" {
					panic("as it is told")
				}
				return 8
			}}, bale.LoadOptions{})
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					_, err := getOrLoad(t.Context(), near, "k", func(context.Context) (int, error) {
						if what == "load" {
							panic("as it is told")
						}
						return 1, nil
					}, bale.TTL(time.Hour))
					var keyErr *bale.KeyError
					if what == "none" {
						if err != nil {
							t.Error(err)
						}
					} else if !errors.As(err, &keyErr) || keyErr.Key != "k" || !strings.Contains(err.Error(), "panic with a value of type string") {
						t.Errorf("they get %v", err)
					}
				})
			}
			joined(t, near, "k", callers)
			close(store.gate)
			all.Wait()
			quiet(t, near)
		})
	}
}

// TestInvalidExpiry: it is an error of the one who gives it alone, also if others load.
func TestInvalidExpiry(t *testing.T) {
	near, _ := over(t, newStore(t, redisproc.ForTest(t).Addr()), Options[int]{}, bale.LoadOptions{})
	loading, gate := make(chan struct{}, 1), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		v, err := getOrLoad(t.Context(), near, "k", func(context.Context) (int, error) { loading <- struct{}{}; <-gate; return 1, nil }, bale.TTL(time.Hour))
		if v != 1 || err != nil {
			t.Errorf("%+v, %v", v, err)
		}
	})
	next(t, loading)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // so that it does not wait
	var keyErr *bale.KeyError
	if _, err := getOrLoad(ctx, near, "k", none, bale.TTL(-1)); !errors.Is(err, bale.ErrInvalid) || !errors.As(err, &keyErr) || keyErr.Key != "k" {
		t.Error(err)
	}
	close(gate)
	all.Wait()
}
