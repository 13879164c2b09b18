package bale

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/balekv/bale/codec"
)

// counted counts the commands of a Store, and takes a while for those of many keys.
type counted struct {
	*clockwork
	gets, sets, manyGets, manySets atomic.Int64
}

func (s *counted) Get(ctx context.Context, key string) ([]byte, error) {
	s.gets.Add(1)
	return s.clockwork.Get(ctx, key)
}

func (s *counted) Set(ctx context.Context, key string, value []byte, e Expiry) error {
	s.sets.Add(1)
	return s.clockwork.Set(ctx, key, value, e)
}

func (s *counted) GetMany(ctx context.Context, keys []string) ([][]byte, error) {
	s.manyGets.Add(1)
	time.Sleep(time.Millisecond)
	s.expire()
	return s.clockwork.GetMany(ctx, keys)
}

func (s *counted) SetMany(ctx context.Context, items []Item) error {
	s.manySets.Add(1)
	time.Sleep(time.Millisecond)
	err := s.clockwork.SetMany(ctx, items)
	for _, i := range items {
		s.ending(i.Key, i.Expiry)
	}
	return err
}

// manySource loads the keys in values, and records its calls.
type manySource struct {
	mu     sync.Mutex
	calls  [][]string
	values map[string]string
	err    error
	takes  time.Duration
}

func (s *manySource) load(ctx context.Context, keys []string) (map[string]string, error) {
	s.mu.Lock()
	s.calls = append(s.calls, slices.Sorted(slices.Values(keys)))
	found := map[string]string{}
	for _, key := range keys {
		if v, ok := s.values[key]; ok {
			found[key] = v
		}
	}
	err := s.err
	s.mu.Unlock()
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return found, err
}

// loaded checks the calls so far, and forgets them.
func (s *manySource) loaded(t *testing.T, want ...[]string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if diff := cmp.Diff(want, s.calls); diff != "" {
		t.Errorf("calls of the loader, -want +got:\n%s", diff)
	}
	s.calls = nil
}

func valuesOf(entries map[string]Entry[string]) map[string]string {
	values := map[string]string{}
	for key, e := range entries {
		values[key] = e.Value
	}
	return values
}

func TestGetOrLoadMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		store := &counted{clockwork: newClockwork()}
		c, _ := newLoading(t, store, LoadOptions{Beta: -1, NegativeTTL: time.Second})
		src := &manySource{values: map[string]string{}}
		keys := []string{"there", "none", "k0"} // k0 twice
		want := map[string]string{"there": "already"}
		for i := range 500 {
			key := fmt.Sprint("k", i)
			keys = append(keys, key)
			src.values[key], want[key] = "value of "+key, "value of "+key
		}
		if err := c.Set(ctx, "there", "already"); err != nil {
			t.Fatal(err)
		}
		store.sets.Store(0)
		got, err := c.GetOrLoadMany(ctx, keys, src.load, TTL(time.Hour))
		if diff := cmp.Diff(want, valuesOf(got)); diff != "" || err != nil {
			t.Errorf("%v, -want +got:\n%s", err, diff)
		}
		if e := got["k7"]; e.Stale || !e.Expires.After(time.Now().Add(59*time.Minute)) {
			t.Errorf("%+v", e)
		}
		src.loaded(t, slices.Sorted(slices.Values(append(slices.DeleteFunc(slices.Collect(maps.Keys(want)), func(k string) bool { return k == "there" }), "none"))))
		// One GetMany of the caller's. The flights' reads and writes join to few more.
		if n := store.gets.Load() + store.sets.Load() + store.manyGets.Load() + store.manySets.Load(); n > 10 {
			t.Errorf("%d commands: %d Get, %d Set, %d GetMany, %d SetMany", n, store.gets.Load(), store.sets.Load(), store.manyGets.Load(), store.manySets.Load())
		}
		got, err = c.GetOrLoadMany(ctx, keys, src.load)
		if diff := cmp.Diff(want, valuesOf(got)); diff != "" || err != nil {
			t.Errorf("again: %v, -want +got:\n%s", err, diff)
		}
		src.loaded(t)
		time.Sleep(2 * time.Second) // beyond NegativeTTL
		if got, err := c.GetOrLoadMany(ctx, keys, src.load); len(got) != len(want) || err != nil {
			t.Errorf("%d values, %v", len(got), err)
		}
		src.loaded(t, []string{"none"})
		if got, err := c.GetOrLoadMany(ctx, nil, src.load); len(got) != 0 || err != nil {
			t.Errorf("no keys: %v, %v", got, err)
		}
		if _, err := c.GetOrLoadMany(ctx, keys, src.load, TTL(1)); !errors.Is(err, ErrInvalid) {
			t.Errorf("1 ns: %v", err)
		}
		src.loaded(t)
	})
}

// TestGetOrLoadManyOfOthers: keys in flight are left to their loads, in this process and, under a
// lock, in another. They do not hold up the others.
func TestGetOrLoadManyOfOthers(t *testing.T) {
	for _, lock := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			store := &counted{clockwork: newClockwork()}
			c, _ := newLoading(t, store, LoadOptions{Beta: -1, Lock: lock})
			src := &manySource{values: map[string]string{"a": "A", "b": "B", "theirs": "mine"}}
			slow := &source{takes: time.Hour / 2}
			var others sync.WaitGroup
			wait, cancel := context.WithCancel(ctx)
			defer cancel()
			others.Go(func() { c.GetOrLoad(wait, "flies", slow.load) })
			synctest.Wait()
			want := map[string]string{"a": "A", "b": "B"}
			asked := []string{"a", "b"}
			if lock > 0 {
				store.clockwork.Set(ctx, "theirs:lock", another, TTL(lock))
				time.AfterFunc(10*time.Second, func() { store.clockwork.Set(ctx, "theirs", []byte(`"theirs"`), TTL(time.Hour)) })
				want["theirs"] = "theirs"
				asked = append(asked, "theirs")
			}
			time.AfterFunc(5*time.Second, func() {
				src.loaded(t, []string{"a", "b"}) // it did not wait for the others
			})
			time.AfterFunc(20*time.Second, cancel)
			got, err := c.GetOrLoadMany(ctx, asked, src.load)
			if diff := cmp.Diff(want, valuesOf(got)); diff != "" || err != nil {
				t.Errorf("lock %v: %v, -want +got:\n%s", lock, err, diff)
			}
			time.Sleep(6 * time.Second)
			limited, stop := context.WithTimeout(ctx, time.Second)
			defer stop()
			got, err = c.GetOrLoadMany(limited, []string{"a", "flies"}, src.load)
			if some, ok := errors.AsType[KeyErrors](err); len(got) != 1 || !ok || len(some) != 1 || some[0].Key != "flies" || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("lock %v, a key in flight: %v, %v", lock, got, err)
			}
			src.loaded(t)
			others.Wait()
		})
	}
}

// panickyStore is a Store whose second reading panics.
type panickyStore struct {
	Store
	readings int
}

func (p *panickyStore) GetMany(ctx context.Context, keys []string) ([][]byte, error) {
	if p.readings++; p.readings == 2 {
		panic("oh")
	}
	return p.Store.GetMany(ctx, keys)
}

// TestStorePanics: a Store that panics as it reads for several loads ends none but one of them.
func TestStorePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newLoading(t, &panickyStore{Store: newClockwork()}, LoadOptions{})
		src := &manySource{values: map[string]string{"a": "A", "b": "B", "c": "C"}}
		got, err := c.GetOrLoadMany(t.Context(), []string{"a", "b", "c"}, src.load)
		some, _ := errors.AsType[KeyErrors](err)
		if _, ok := errors.AsType[*codec.PanicError](err); !ok || len(some) != 1 || len(got) != 2 {
			t.Errorf("%v, %v", got, err)
		}
	})
}

// TestGetOrLoadManyFails: each key has its own error, or its old value.
func TestGetOrLoadManyFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		down := errors.New("down")
		c, _ := newLoading(t, &counted{clockwork: newClockwork()}, LoadOptions{Beta: -1, StaleIfError: time.Hour})
		src := &manySource{values: map[string]string{"a": "A"}}
		if _, err := c.GetOrLoadMany(ctx, []string{"a"}, src.load); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute) // a is old
		src.values["b"], src.err = "B", down
		got, err := c.GetOrLoadMany(ctx, []string{"a", "b", "c"}, src.load)
		some, ok := errors.AsType[KeyErrors](err)
		if len(got) != 1 || got["a"].Value != "A" || !got["a"].Stale || !ok || len(some) != 2 || !errors.Is(err, down) {
			t.Errorf("all: %v, %v", got, err)
		}
		src.err = KeyErrors{{"load", "c", down}}
		got, err = c.GetOrLoadMany(ctx, []string{"a", "b", "c"}, src.load)
		some, ok = errors.AsType[KeyErrors](err)
		if len(got) != 2 || got["a"].Stale || got["b"].Value != "B" || !ok || len(some) != 1 || some[0].Key != "c" || !errors.Is(some[0], down) {
			t.Errorf("one: %v, %v", got, err)
		}
		_, err = c.GetOrLoadMany(ctx, []string{"x", "y"}, func(context.Context, []string) (map[string]string, error) { panic("oh") })
		if some, ok := errors.AsType[KeyErrors](err); !ok || len(some) != 2 {
			t.Errorf("panic: %v", err)
		}
		if p, ok := errors.AsType[*codec.PanicError](err); !ok || p.Value != "oh" {
			t.Errorf("panic: %v", err)
		}
		// A caller that leaves cancels the load.
		limited, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		var ended error
		_, err = c.GetOrLoadMany(limited, []string{"x", "y"}, func(ctx context.Context, _ []string) (map[string]string, error) {
			<-ctx.Done()
			ended = ctx.Err()
			return nil, ctx.Err()
		})
		synctest.Wait()
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(ended, context.Canceled) {
			t.Errorf("left: %v, the load's: %v", err, ended)
		}
		c.Close()
		if _, err := c.GetOrLoadMany(ctx, []string{"z"}, src.load); !errors.Is(err, errClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}

// TestGetOrLoadManyWithoutRedis: values are loaded, by one call, and nothing is written.
func TestGetOrLoadManyWithoutRedis(t *testing.T) {
	store := newMemory()
	store.fail = errors.New("Redis is down")
	c, _ := newLoading(t, store, LoadOptions{})
	src := &manySource{values: map[string]string{"a": "A", "b": "B"}}
	got, err := c.GetOrLoadMany(t.Context(), []string{"a", "b", "c", "a"}, src.load)
	if diff := cmp.Diff(src.values, valuesOf(got)); diff != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
	src.loaded(t, []string{"a", "b", "c"})
	if store.writes > 0 {
		t.Errorf("%d writes", store.writes)
	}
}

// TestGetOrLoadManyAhead: values are loaded ahead of their expiry by one call, for which nobody
// waits.
func TestGetOrLoadManyAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		c, _ := newLoading(t, &counted{clockwork: newClockwork()}, LoadOptions{Beta: 1e9})
		src := &manySource{values: map[string]string{"a": "A", "b": "B", "c": "C"}, takes: time.Second}
		if _, err := c.GetOrLoadMany(ctx, []string{"a", "b"}, src.load); err != nil {
			t.Fatal(err)
		}
		src.loaded(t, []string{"a", "b"})
		time.Sleep(time.Second)
		start := time.Now()
		if got, err := c.GetOrLoadMany(ctx, []string{"a", "b"}, src.load); len(got) != 2 || err != nil || time.Since(start) >= src.takes {
			t.Errorf("%v, %v after %v", got, err, time.Since(start))
		}
		time.Sleep(2 * time.Second)
		src.loaded(t, []string{"a", "b"})
	})
}

// TestGetOrLoadManyAtOnce: overlapping calls load each key once.
func TestGetOrLoadManyAtOnce(t *testing.T) {
	c, _ := newLoading(t, newMemory(), LoadOptions{Beta: -1})
	var loads [40]atomic.Int64
	load := func(_ context.Context, keys []string) (map[string]string, error) {
		found := map[string]string{}
		for _, key := range keys {
			var i int
			fmt.Sscan(key[1:], &i)
			loads[i].Add(1)
			found[key] = "value of " + key
		}
		return found, nil
	}
	var callers sync.WaitGroup
	for from := range 30 {
		callers.Go(func() {
			var keys []string
			for i := range 10 {
				keys = append(keys, fmt.Sprint("k", from+i))
			}
			got, err := c.GetOrLoadMany(t.Context(), keys, load)
			if err != nil || len(got) != len(keys) {
				t.Errorf("%d values, %v", len(got), err)
			}
			for key, e := range got {
				if e.Value != "value of "+key {
					t.Errorf("%s: %q", key, e.Value)
				}
			}
		})
	}
	callers.Wait()
	for i := range loads[:39] {
		if n := loads[i].Load(); n != 1 {
			t.Errorf("k%d was loaded %d times", i, n)
		}
	}
}

// TestGetOrLoadManyBudget: a value beyond the budget is not read on its own after that, and stays.
func TestGetOrLoadManyBudget(t *testing.T) {
	store := &counted{clockwork: newClockwork()}
	const size = 1000
	p := newPacker(t, PackerOptions{MaxSize: size, Budget: 2 * size})
	c, err := New(store, Options[string]{Packer: p, TTL: time.Minute, Load: LoadOptions{Beta: -1, ReplaceUnreadable: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	src := &manySource{values: map[string]string{}}
	stored := strings.Repeat("x", size-2) // and quotation marks
	var keys []string
	for i := range 10 {
		key := fmt.Sprint("k", i)
		if err := c.Set(t.Context(), key, stored); err != nil {
			t.Fatal(err)
		}
		keys, src.values[key] = append(keys, key), "loaded"
	}
	before := maps.Clone(store.values)
	got, err := c.GetOrLoadMany(t.Context(), keys, src.load)
	if err != nil || len(got) != len(keys) {
		t.Fatalf("%d values, %v", len(got), err)
	}
	read := 0
	for _, e := range got {
		if e.Value == stored {
			read++
		}
	}
	if read != 2 {
		t.Errorf("%d values of %d bytes are decoded, and Budget is %d", read, size, 2*size)
	}
	if diff := cmp.Diff(before, store.values); diff != "" {
		t.Errorf("values that were not read are replaced: %s", diff)
	}
}

// appearing has its values from the second look on.
type appearing struct {
	*clockwork
	looked bool
}

func (s *appearing) GetMany(ctx context.Context, keys []string) ([][]byte, error) {
	if !s.looked {
		s.looked = true
		return make([][]byte, len(keys)), nil
	}
	return s.clockwork.GetMany(ctx, keys)
}

// TestGetOrLoadManyBudgetOfLoads: values that others have stored since the first look count
// together.
func TestGetOrLoadManyBudgetOfLoads(t *testing.T) {
	const size = 1000
	stored := strings.Repeat("x", size-2) // and quotation marks
	store := &appearing{clockwork: newClockwork()}
	c, err := New(store, Options[string]{Packer: newPacker(t, PackerOptions{MaxSize: size, Budget: 2 * size}), TTL: time.Minute, Load: LoadOptions{Beta: -1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	var keys []string
	for i := range 10 {
		keys = append(keys, fmt.Sprint("k", i))
		if err := c.Set(t.Context(), keys[i], stored); err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.GetOrLoadMany(t.Context(), keys, func(_ context.Context, keys []string) (map[string]string, error) {
		loaded := map[string]string{}
		for _, key := range keys {
			loaded[key] = "loaded"
		}
		return loaded, nil
	})
	read, loaded := 0, 0
	for _, e := range got {
		if e.Value == stored {
			read++
		} else if e.Value == "loaded" {
			loaded++
		}
	}
	if err != nil || read != 2 || loaded != 8 {
		t.Errorf("%d values read and %d loaded, %v", read, loaded, err)
	}
}

// contended has a lock that another process takes and gives back between any two commands.
type contended struct {
	*clockwork
	key string
}

func (s *contended) Get(ctx context.Context, key string) ([]byte, error) {
	if key == s.key {
		return []byte("absent:" + rand.Text()), nil
	}
	return s.clockwork.Get(ctx, key)
}

func (s *contended) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error) {
	if key == s.key {
		return false, nil
	}
	return s.clockwork.Swap(ctx, key, old, value, ttl)
}

// TestGetOrLoadManyContended: a key whose lock cannot be had does not hold up the others.
func TestGetOrLoadManyContended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newLoading(t, &contended{newClockwork(), "a:lock"}, LoadOptions{Lock: time.Second, Timeout: 10 * time.Second})
		var loaded time.Duration
		start := time.Now()
		got, err := c.GetOrLoadMany(t.Context(), []string{"a", "b"}, func(_ context.Context, keys []string) (map[string]string, error) {
			if slices.Contains(keys, "b") {
				loaded = time.Since(start)
			}
			return map[string]string{"a": "A", "b": "B"}, nil
		})
		if failed, ok := errors.AsType[KeyErrors](err); !ok || len(failed) != 1 || failed[0].Key != "a" || got["b"].Value != "B" {
			t.Errorf("%v, %v", got, err)
		}
		if loaded > time.Second {
			t.Errorf("b was loaded after %v", loaded)
		}
	})
}

// crowded is a Store that refuses Swaps beyond some that are in flight, and others.
type crowded struct {
	*clockwork
	most              int64
	refuse            func(key string, old, value []byte) bool // nil for none
	inFlight, refused atomic.Int64
}

func (s *crowded) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error) {
	defer s.inFlight.Add(-1)
	if s.inFlight.Add(1) > s.most || s.refuse != nil && s.refuse(key, old, value) {
		s.refused.Add(1)
		return false, errors.New("refused")
	}
	time.Sleep(time.Millisecond)
	return s.clockwork.Swap(ctx, key, old, value, ttl)
}

// narrow is a Store behind a limit.
type narrow struct{ crowded }

func (*narrow) AtOnce() int { return 16 }

// TestGetOrLoadManyFarAway: no lock waits for another's turn where nothing limits the calls.
func TestGetOrLoadManyFarAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowSwaps{newClockwork()}
		c, _ := newLoading(t, store, LoadOptions{Beta: -1, Lock: 5 * time.Second})
		src := &manySource{values: map[string]string{}, takes: 100 * time.Millisecond}
		var keys []string
		for i := range 1000 {
			keys = append(keys, fmt.Sprint("k", i))
			src.values[keys[i]] = "value"
		}
		start := time.Now()
		got, err := c.GetOrLoadMany(t.Context(), keys, src.load)
		if took := time.Since(start); len(got) != len(keys) || err != nil || took > 500*time.Millisecond {
			t.Errorf("%d values, %v, after %v", len(got), err, took)
		}
		synctest.Wait()
		if len(store.values) != len(keys) {
			t.Errorf("%d values and locks are stored", len(store.values))
		}
	})
}

// slowSwaps is a Store that is 20 ms away.
type slowSwaps struct{ *clockwork }

func (s *slowSwaps) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error) {
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-time.After(20 * time.Millisecond):
		return s.clockwork.Swap(ctx, key, old, value, ttl)
	}
}

// TestGetOrLoadManyTakesTurns: the locks of many keys do not fill a Store that serves few calls at
// a time, as one does behind a resilient.Limit. So each value is stored and no lock stays.
func TestGetOrLoadManyTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &narrow{crowded{clockwork: newClockwork(), most: 20}}
		c, _ := newLoading(t, store, LoadOptions{Beta: -1, Lock: time.Second})
		src := &manySource{values: map[string]string{}, takes: 10 * time.Second} // the locks are renewed
		var keys []string
		for i := range 100 {
			keys = append(keys, fmt.Sprint("k", i))
			src.values[keys[i]] = "value"
		}
		got, err := c.GetOrLoadMany(t.Context(), keys, src.load)
		if len(got) != len(keys) || err != nil || store.refused.Load() > 0 {
			t.Errorf("%d values, %v, %d refused", len(got), err, store.refused.Load())
		}
		if len(store.values) != len(keys) {
			t.Errorf("%d values and locks are stored", len(store.values))
		}
	})
}
