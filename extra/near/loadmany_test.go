package near

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/internal/redisproc"
)

// numbers makes a loader that finds the number in a key, and reports its calls.
func numbers(calls chan<- []string) func(context.Context, []string) (map[string]int, error) {
	return func(_ context.Context, keys []string) (map[string]int, error) {
		calls <- slices.Sorted(slices.Values(keys))
		found := map[string]int{}
		for _, key := range keys {
			var n int
			if _, err := fmt.Sscanf(key, "k%d", &n); err == nil {
				found[key] = n
			}
		}
		return found, nil
	}
}

func valuesOf(entries map[string]bale.Entry[int]) map[string]int {
	values := make(map[string]int, len(entries))
	for key, e := range entries {
		values[key] = e.Value
	}
	return values
}

// TestGetOrLoadMany: what is kept is served, what is in Redis is read, the rest is loaded at once;
// then all of it is kept, with its expiry.
func TestGetOrLoadMany(t *testing.T) {
	ctx := t.Context()
	near, cache := over(t, newStore(t, redisproc.ForTest(t).Addr()), Options[int]{MaxAge: time.Hour}, bale.LoadOptions{})
	if err := cache.SetMany(ctx, map[string]int{"k1": 1, "k2": 2}, bale.TTL(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := near.Get(ctx, "k1"); err != nil {
		t.Fatal(err)
	}
	calls := make(chan []string, 10)
	keys := []string{"k1", "k2", "k3", "k4", "k3", "missing"}
	want := map[string]int{"k1": 1, "k2": 2, "k3": 3, "k4": 4}
	for i, loads := range [][]string{{"k3", "k4", "missing"}, {"missing"}} {
		got, err := near.GetOrLoadMany(ctx, keys, numbers(calls), bale.TTL(time.Hour))
		if err != nil || !maps.Equal(valuesOf(got), want) {
			t.Errorf("call %d: %+v, %v", i, got, err)
		}
		for key, e := range got {
			if left := time.Until(e.Expires); left > time.Hour || left < time.Hour-patience {
				t.Errorf("call %d: %s expires in %v", i, key, left)
			}
		}
		if n := len(calls); n != 1 || !slices.Equal(<-calls, loads) {
			t.Errorf("call %d: the loader was called %d times", i, n)
		}
	}
	before := near.Stats().Misses
	got, err := near.GetOrLoadMany(ctx, keys[:4], numbers(calls))
	if err != nil || !maps.Equal(valuesOf(got), want) || len(calls) != 0 || near.Stats().Misses != before {
		t.Errorf("%+v, %v with %d loads, %+v", got, err, len(calls), near.Stats())
	}
	quiet(t, near)
	if got, err := near.GetOrLoadMany(ctx, nil, numbers(calls)); err != nil || len(got) != 0 {
		t.Errorf("no keys: %v, %v", got, err)
	}
	var keyErr *bale.KeyError
	if _, err := near.GetOrLoadMany(ctx, keys, numbers(calls), bale.TTL(-1)); !errors.Is(err, bale.ErrInvalid) || !errors.As(err, &keyErr) || keyErr.Op != "load" {
		t.Errorf("a negative expiry: %v", err)
	}
}

// TestGetOrLoadManyShares: calls for one and many keys share the loads in flight. A key that is
// written meanwhile is not kept as it was loaded.
func TestGetOrLoadManyShares(t *testing.T) {
	ctx := t.Context()
	near, _ := over(t, newStore(t, redisproc.ForTest(t).Addr()), Options[int]{MaxAge: time.Hour}, bale.LoadOptions{})
	calls, gate := make(chan []string, 10), make(chan struct{})
	load := func(ctx context.Context, keys []string) (map[string]int, error) {
		found, err := numbers(calls)(ctx, keys)
		<-gate
		return found, err
	}
	var all sync.WaitGroup
	many := func(keys ...string) {
		all.Go(func() {
			if got, err := near.GetOrLoadMany(ctx, keys, load, bale.TTL(time.Hour)); err != nil || len(got) != len(keys) {
				t.Errorf("%q: %+v, %v", keys, got, err)
			}
		})
	}
	many("k1", "k2")
	if keys := <-calls; !slices.Equal(keys, []string{"k1", "k2"}) {
		t.Errorf("loads %q", keys)
	}
	many("k2", "k3")
	if keys := <-calls; !slices.Equal(keys, []string{"k3"}) {
		t.Errorf("loads %q", keys)
	}
	all.Go(func() {
		if v, err := getOrLoad(ctx, near, "k2", func(context.Context) (int, error) { return 0, errors.New("a second load") }); v != 2 || err != nil {
			t.Errorf("%d, %v", v, err)
		}
	})
	joined(t, near, "k2", 3)
	if err := near.Set(ctx, "k1", 10, bale.TTL(time.Hour)); err != nil {
		t.Fatal(err)
	}
	close(gate)
	all.Wait()
	got, err := near.GetOrLoadMany(ctx, []string{"k1", "k2", "k3"}, numbers(calls))
	if want := map[string]int{"k1": 10, "k2": 2, "k3": 3}; err != nil || !maps.Equal(valuesOf(got), want) || len(calls) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	quiet(t, near)
}

// TestGetOrLoadManyGivesUp: a load goes on as long as a call waits for one of its keys, then its
// context ends. Each call gets its own error, for each of its keys.
func TestGetOrLoadManyGivesUp(t *testing.T) {
	near, _ := over(t, newStore(t, redisproc.ForTest(t).Addr()), Options[int]{}, bale.LoadOptions{})
	loading, ended := make(chan struct{}, 1), make(chan struct{})
	first, leave := context.WithCancel(t.Context())
	second, leaveToo := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		_, err := near.GetOrLoadMany(first, []string{"k1", "k2"}, func(ctx context.Context, _ []string) (map[string]int, error) {
			loading <- struct{}{}
			<-ctx.Done()
			close(ended)
			return nil, ctx.Err()
		})
		var failed bale.KeyErrors
		if !errors.As(err, &failed) || len(failed) != 2 || !errors.Is(err, context.Canceled) {
			t.Errorf("the first gets %v", err)
		}
	})
	next(t, loading)
	all.Go(func() {
		if _, err := near.GetOrLoad(second, "k2", func(context.Context) (int, error) { return 1, nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("the second gets %v", err)
		}
	})
	joined(t, near, "k2", 2)
	leave()
	joined(t, near, "k2", 1)
	select {
	case <-ended:
		t.Error("the load ended with the first call")
	default:
	}
	leaveToo()
	next(t, ended)
	all.Wait()
	quiet(t, near)
}

// TestGetOrLoadManyOldValues: at its deadline a call gets the old values there are, and errors for
// the other keys.
func TestGetOrLoadManyOldValues(t *testing.T) {
	near, cache := over(t, newStore(t, redisproc.ForTest(t).Addr()), Options[int]{}, bale.LoadOptions{StaleIfError: time.Hour, Beta: -1})
	calls := make(chan []string, 1)
	if _, err := near.GetOrLoadMany(t.Context(), []string{"k1"}, numbers(calls), bale.TTL(20*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	await(t, "the value does not expire", func() bool {
		_, err := cache.Get(t.Context(), "k1")
		return errors.Is(err, bale.ErrNotFound)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	gate := make(chan struct{})
	got, err := near.GetOrLoadMany(ctx, []string{"k1", "k2"}, func(context.Context, []string) (map[string]int, error) { <-gate; return nil, nil })
	close(gate)
	var failed bale.KeyErrors
	if e := got["k1"]; len(got) != 1 || e.Value != 1 || !e.Stale {
		t.Errorf("%+v", got)
	}
	if !errors.As(err, &failed) || len(failed) != 1 || failed[0].Key != "k2" || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	quiet(t, near)
}

// TestGetOrLoadManyFails: keys fail alone or together, a panic becomes an error, and a closed Cache
// still loads.
func TestGetOrLoadManyFails(t *testing.T) {
	ctx := t.Context()
	down := errors.New("down")
	var panics atomic.Bool
	near, _ := over(t, newStore(t, redisproc.ForTest(t).Addr()), Options[int]{Size: func(string, int) int {
		if panics.Load() {
			panic("as it is told")
		}
		return 1
	}}, bale.LoadOptions{})
	keys := []string{"k1", "k2"}
	one := func(context.Context, []string) (map[string]int, error) {
		return map[string]int{"k1": 1}, bale.KeyErrors{{Op: "load", Key: "k2", Err: down}}
	}
	got, err := near.GetOrLoadMany(ctx, keys, one)
	var failed bale.KeyErrors
	if !errors.As(err, &failed) || len(failed) != 1 || failed[0].Key != "k2" || !errors.Is(err, down) || got["k1"].Value != 1 {
		t.Errorf("one fails: %+v, %v", got, err)
	}
	near.drop(keys...)
	panics.Store(true)
	got, err = near.GetOrLoadMany(ctx, keys, numbers(make(chan []string, 1)))
	if _, ok := errors.AsType[*codec.PanicError](err); !ok || len(got) != 0 {
		t.Errorf("Size panics: %+v, %v", got, err)
	}
	panics.Store(false)
	quiet(t, near)
	near.Close()
	if got, err := near.GetOrLoadMany(ctx, []string{"k1", "k5"}, numbers(make(chan []string, 1))); err != nil || !maps.Equal(valuesOf(got), map[string]int{"k1": 1, "k5": 5}) {
		t.Errorf("closed: %+v, %v", got, err)
	}
}
