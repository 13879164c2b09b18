package bale

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stats"
)

// clockwork is a Store whose values expire by the test's clock.
type clockwork struct {
	*memory
	ends map[string]time.Time
}

// valueOf is the value of an Entry.
func valueOf[T any](e Entry[T], err error) (T, error) { return e.Value, err }

func newClockwork() *clockwork { return &clockwork{newMemory(), map[string]time.Time{}} }

func (s *clockwork) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, end := range s.ends {
		if !time.Now().Before(end) {
			delete(s.values, key)
			delete(s.ends, key)
		}
	}
}

func (s *clockwork) Get(ctx context.Context, key string) ([]byte, error) {
	s.expire()
	return s.memory.Get(ctx, key)
}

func (s *clockwork) Set(ctx context.Context, key string, value []byte, e Expiry) error {
	err := s.memory.Set(ctx, key, value, e)
	s.ending(key, e)
	return err
}

func (s *clockwork) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error) {
	s.expire()
	ok, err := s.memory.Swap(ctx, key, old, value, ttl)
	if ok {
		s.ending(key, TTL(ttl))
	}
	return ok, err
}

func (s *clockwork) ending(key string, e Expiry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ends, key)
	if e.in > 0 {
		s.ends[key] = time.Now().Add(e.in)
	}
	if !e.at.IsZero() {
		s.ends[key] = e.at
	}
}

func newLoading(t *testing.T, s Store, o LoadOptions) (*Cache[string], *stats.Counters) {
	t.Helper()
	counters := stats.NewCounters(stats.CountersOptions{TimeEvery: 1})
	c, err := New(s, Options[string]{Load: o, TTL: time.Minute, Recorder: counters})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, counters
}

// another is the token of another process in a lock.
var another = []byte("ANOTHER2PROCESS2ANOTHER234")

// source counts its loads.
type source struct {
	loads atomic.Int64
	value func(n int64) (string, error)
	takes time.Duration
}

func (s *source) load(ctx context.Context) (string, error) {
	n := s.loads.Add(1)
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if s.value == nil {
		return fmt.Sprint("value ", n), nil
	}
	return s.value(n)
}

func TestGetOrLoadLoadsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, counters := newLoading(t, newClockwork(), LoadOptions{Beta: -1})
		src := &source{takes: 10 * time.Millisecond}
		const callers = 10_000
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				if v, err := valueOf(c.GetOrLoad(t.Context(), "k", src.load)); v != "value 1" || err != nil {
					t.Errorf("%q, %v", v, err)
				}
			})
		}
		wg.Wait()
		if n := src.loads.Load(); n != 1 {
			t.Errorf("%d loads", n)
		}
		if v, err := c.Get(t.Context(), "k"); v != "value 1" || err != nil {
			t.Errorf("Get: %q, %v", v, err)
		}
		if m, err := c.GetMany(t.Context(), "k"); m["k"] != "value 1" || err != nil {
			t.Errorf("GetMany: %q, %v", m, err)
		}
		time.Sleep(time.Minute) // to the very end
		if _, err := c.Get(t.Context(), "k"); !errors.Is(err, ErrNotFound) {
			t.Errorf("after its TTL: %v", err)
		}
		if v, err := valueOf(c.GetOrLoad(t.Context(), "k", src.load)); v != "value 2" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		s := counters.Snapshot()
		if load, get := s.Ops[stats.Load], s.Ops[stats.Get]; load.Count != 2 || load.Times[stats.Loading].Count != 2 || load.Times[stats.Loading].Sum != 20*time.Millisecond ||
			get.Count != callers+3 || get.Hits != 1 || get.Misses != callers+2 {
			t.Errorf("%d loads in %v, %d gets, %d hits, %d misses", load.Count, load.Times[stats.Loading].Sum, get.Count, get.Hits, get.Misses)
		}
	})
}

// TestEachWaiterHasItsOwn: what one caller does to its value no other sees.
func TestEachWaiterHasItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(newClockwork(), Options[map[string]int]{})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				v, err := valueOf(c.GetOrLoad(t.Context(), "k", func(context.Context) (map[string]int, error) {
					time.Sleep(time.Second)
					return map[string]int{"a": 1}, nil
				}))
				if err != nil || !cmp.Equal(v, map[string]int{"a": 1}) {
					t.Errorf("%v, %v", v, err)
				}
				v["a"] = i // the race detector looks on
			})
		}
		wg.Wait()
	})
}

// TestEarlyRefresh: XFetch loads before the end, in the background, at about the time that its
// formula says.
func TestEarlyRefresh(t *testing.T) {
	for beta, want := range map[float64][2]float64{0: {2, 60}, 50: {20, 60}} {
		synctest.Test(t, func(t *testing.T) {
			c, counters := newLoading(t, newClockwork(), LoadOptions{Beta: beta})
			src := &source{takes: time.Second}
			get := func() string {
				v, err := valueOf(c.GetOrLoad(t.Context(), "k", src.load))
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
			get()
			last := time.Now()
			var ahead []float64 // seconds before the end
			for range 20 {
				for n := src.loads.Load(); src.loads.Load() == n; time.Sleep(100 * time.Millisecond) {
					before := time.Now()
					get()
					if time.Since(before) != 0 {
						t.Fatal("a caller waits for a load ahead")
					}
					synctest.Wait()
				}
				begun := time.Now().Add(-100 * time.Millisecond)
				ahead = append(ahead, (time.Minute - begun.Sub(last)).Seconds())
				time.Sleep(time.Second - 100*time.Millisecond)
				synctest.Wait()
				last = time.Now()
			}
			mean := 0.0
			for _, a := range ahead {
				mean += a / float64(len(ahead))
			}
			if mean < want[0] || mean > want[1] {
				t.Errorf("beta %v: loaded %.1f s before the end on average: %.1f", beta, mean, ahead)
			}
			if n := counters.Snapshot().Ops[stats.Refresh].Count; n != 20 {
				t.Errorf("%d refreshes", n)
			}
		})
	}
}

func TestEarlyRefreshFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, counters := newLoading(t, newClockwork(), LoadOptions{Beta: math.MaxFloat64})
		src := &source{takes: time.Millisecond, value: func(n int64) (string, error) {
			if n > 1 {
				return "", errors.New("down")
			}
			return "first", nil
		}}
		for i := range 10 {
			if v, err := valueOf(c.GetOrLoad(t.Context(), "k", src.load)); v != "first" || err != nil {
				t.Fatalf("call %d: %q, %v", i, v, err)
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if n := counters.Snapshot().Ops[stats.Refresh].Errors[stats.Loader]; n != 9 {
			t.Errorf("%d failed refreshes", n)
		}
	})
}

// TestRefreshesAreBounded: no more at once than the option says.
func TestRefreshesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, counters := newLoading(t, newClockwork(), LoadOptions{Beta: math.MaxFloat64, Refreshes: 3})
		src := &source{takes: time.Millisecond}
		for range 2 {
			for i := range 10 {
				if _, err := c.GetOrLoad(t.Context(), fmt.Sprint(i), src.load); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			src.takes = time.Second
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := counters.Snapshot().Ops[stats.Refresh].Count; n != 3 {
			t.Errorf("%d refreshes", n)
		}
	})
}

func TestNegative(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newClockwork()
		c, counters := newLoading(t, store, LoadOptions{NegativeTTL: 10 * time.Second})
		src := &source{value: func(n int64) (string, error) {
			if n < 3 {
				return "", fmt.Errorf("user 7: %w", ErrNotFound)
			}
			return "at last", nil
		}}
		for i := range 5 {
			if _, err := c.GetOrLoad(t.Context(), "k", src.load); !errors.Is(err, ErrNotFound) {
				t.Errorf("call %d: %v", i, err)
			}
		}
		if n := src.loads.Load(); n != 1 {
			t.Errorf("%d loads", n)
		}
		if _, err := c.Get(t.Context(), "k"); err != ErrNotFound {
			t.Errorf("Get: %v", err)
		}
		if m, err := c.GetMany(t.Context(), "k"); len(m) != 0 || err != nil {
			t.Errorf("GetMany: %v, %v", m, err)
		}
		packer := newPacker(t, PackerOptions{})
		if _, err := packer.Unpack(t.Context(), nil, store.values["k"]); !errors.Is(err, ErrNotFound) {
			t.Errorf("Unpack: %v", err)
		}
		time.Sleep(10 * time.Second)
		c.GetOrLoad(t.Context(), "k", src.load)
		time.Sleep(10 * time.Second)
		if v, err := valueOf(c.GetOrLoad(t.Context(), "k", src.load)); v != "at last" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		if e := counters.Snapshot().Ops[stats.Load]; e.Count != 3 || e.Errors[stats.Loader] != 0 {
			t.Errorf("%d loads, of which %d failed", e.Count, e.Errors[stats.Loader])
		}
		// By default it is asked again and again.
		c, _ = newLoading(t, newClockwork(), LoadOptions{})
		src = &source{value: func(int64) (string, error) { return "", ErrNotFound }}
		for range 3 {
			c.GetOrLoad(t.Context(), "k", src.load)
		}
		if n := src.loads.Load(); n != 3 {
			t.Errorf("%d loads", n)
		}
	})
}

func TestStaleIfError(t *testing.T) {
	for _, e := range []struct {
		name   string
		expiry func() Expiry
	}{{"ttl", func() Expiry { return TTL(time.Minute) }}, {"at", func() Expiry { return ExpireAt(time.Now().Add(time.Minute)) }}} {
		t.Run(e.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := newLoading(t, newClockwork(), LoadOptions{StaleIfError: time.Hour, Beta: -1, Timeout: 5 * time.Second})
				down := errors.New("the database is down")
				var fail error
				src := &source{value: func(n int64) (string, error) { return fmt.Sprint("value ", n), fail }}
				call := func() (string, error) { return valueOf(c.GetOrLoad(t.Context(), "k", src.load, e.expiry())) }
				if v, err := call(); v != "value 1" || err != nil {
					t.Fatal(v, err)
				}
				fail = down
				time.Sleep(30 * time.Minute)
				if v, err := call(); v != "value 1" || err != nil {
					t.Errorf("in its time: %q, %v", v, err)
				}
				if n := src.loads.Load(); n != 2 {
					t.Errorf("%d loads", n)
				}
				if _, err := c.Get(t.Context(), "k"); err != ErrNotFound {
					t.Errorf("Get shows what has expired: %v", err)
				}
				if m, err := c.GetMany(t.Context(), "k"); len(m) != 0 || err != nil {
					t.Errorf("GetMany shows what has expired: %v, %v", m, err)
				}
				src.takes = time.Minute // longer than the timeout
				if v, err := call(); v != "value 1" || err != nil {
					t.Errorf("when the load hangs: %q, %v", v, err)
				}
				src.takes, fail = 0, nil
				if v, err := call(); v != "value 4" || err != nil {
					t.Errorf("when it is up again: %q, %v", v, err)
				}
				fail = down
				time.Sleep(61 * time.Minute)
				if _, err := call(); !errors.Is(err, down) {
					t.Errorf("beyond the bound: %v", err)
				}
			})
		})
	}
}

// TestLoaderMisbehaves: it harms those who wait for it, with an error, and nobody else.
func TestLoaderMisbehaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, counters := newLoading(t, newClockwork(), LoadOptions{})
		for name, load := range map[string]func(context.Context) (string, error){
			"loader: panic with a value of type string": func(context.Context) (string, error) { time.Sleep(1); panic(secret) },
			"ended its goroutine":                       func(context.Context) (string, error) { time.Sleep(1); runtime.Goexit(); return "", nil },
			"loader: panic: panic called with nil":      func(context.Context) (string, error) { time.Sleep(1); panic(nil) },
			"no luck":                                   func(context.Context) (string, error) { time.Sleep(1); return "half", errors.New("no luck") },
		} {
			var wg sync.WaitGroup
			for range 5 {
				wg.Go(func() {
					v, err := valueOf(c.GetOrLoad(t.Context(), "k", load))
					var keyed *KeyError
					if v != "" || !errors.As(err, &keyed) || keyed.Op != "load" || keyed.Key != "k" || !strings.Contains(err.Error(), name) {
						t.Errorf("%s: %q, %v", name, v, err)
					}
					var panicked *codec.PanicError
					if errors.As(err, &panicked) != strings.Contains(name, "panic") || panicked != nil && !bytes.Contains(panicked.Stack, []byte("TestLoaderMisbehaves")) {
						t.Errorf("%s: the stack is missing: %+v", name, panicked)
					}
					if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "goroutine 1") {
						t.Errorf("%s: the message shows the value or the stack: %v", name, err)
					}
				})
			}
			wg.Wait()
		}
		if v, err := valueOf(c.GetOrLoad(t.Context(), "k", func(context.Context) (string, error) { return "fine", nil })); v != "fine" || err != nil {
			t.Errorf("afterwards: %q, %v", v, err)
		}
		if n := counters.Snapshot().Ops[stats.Load].Errors[stats.Loader]; n != 4 {
			t.Errorf("%d failed loads", n)
		}
	})
}

// TestCallersLeave: one that leaves does so at once and alone; when the last one has left, the load
// ends.
func TestCallersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newLoading(t, newClockwork(), LoadOptions{})
		type key struct{}
		src := &source{takes: time.Second}
		first, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "of the first"))
		ended := make(chan error, 3)
		go func() {
			_, err := c.GetOrLoad(first, "k", func(ctx context.Context) (string, error) {
				if ctx.Value(key{}) != "of the first" {
					t.Error("the context has lost its values")
				}
				return src.load(ctx)
			})
			ended <- err
		}()
		synctest.Wait()
		second := make(chan string)
		go func() {
			v, err := valueOf(c.GetOrLoad(t.Context(), "k", src.load))
			if err != nil {
				t.Error(err)
			}
			second <- v
		}()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the first leaves with %v", err)
		}
		if v := <-second; v != "value 1" {
			t.Errorf("the second gets %q", v)
		}

		// All leave: the loader's context ends, and who comes then starts anew.
		alone, cancel := context.WithCancel(t.Context())
		loader := make(chan error, 1)
		go func() {
			_, err := c.GetOrLoad(alone, "l", func(ctx context.Context) (string, error) {
				<-ctx.Done()
				loader <- ctx.Err()
				time.Sleep(time.Second) // takes its time to notice
				return "", ctx.Err()
			})
			ended <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if v, err := valueOf(c.GetOrLoad(t.Context(), "l", src.load)); v != "value 2" || err != nil {
			t.Errorf("after the last has left: %q, %v", v, err)
		}
		if err := <-loader; !errors.Is(err, context.Canceled) {
			t.Errorf("the loader's context: %v", err)
		}
		if _, err := c.GetOrLoad(alone, "m", src.load); !errors.Is(err, context.Canceled) {
			// A Store that does not look at the context finds nothing, and it is the load that
			// notices.
			t.Errorf("with a context that has ended: %v", err)
		}
	})
}

// TestLeftLoadIsOvertaken: all callers left a load, and its loader ignores its context. The load
// does not overwrite what a Set or a later load has written since.
func TestLeftLoadIsOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newLoading(t, newClockwork(), LoadOptions{})
		ended := make(chan error, 2)
		leave := func(takes time.Duration) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				_, err := c.GetOrLoad(ctx, "k", func(context.Context) (string, error) {
					time.Sleep(takes)
					return fmt.Sprint("of before, after ", takes), nil
				})
				ended <- err
			}()
			synctest.Wait()
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		leave(time.Second)
		if v, err := valueOf(c.GetOrLoad(t.Context(), "k", func(context.Context) (string, error) { return "newer", nil })); v != "newer" || err != nil {
			t.Fatalf("%q, %v", v, err)
		}
		time.Sleep(2 * time.Second)
		if v, err := c.Get(t.Context(), "k"); v != "newer" || err != nil {
			t.Errorf("after a later load: %q, %v", v, err)
		}
		if _, err := c.Delete(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		leave(3 * time.Second)
		leave(time.Second) // which ends first
		leave(2 * time.Second)
		time.Sleep(1500 * time.Millisecond)
		if err := c.Set(t.Context(), "k", "set"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute / 2)
		if v, err := c.Get(t.Context(), "k"); v != "set" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		if n := len(c.flights); n != 0 {
			t.Errorf("%d loads are remembered", n)
		}
	})
}

// TestStoreFails: the value is loaded although Redis is down, and what cannot be read is not
// overwritten.
func TestStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newClockwork()
		c, counters := newLoading(t, store, LoadOptions{Lock: time.Minute})
		src := &source{}
		store.fail = errors.New("connection refused")
		if v, err := valueOf(c.GetOrLoad(t.Context(), "k", src.load)); v != "value 1" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		store.fail = nil
		unreadable := append(frame.Header{Algorithm: frame.Zstd, DictionaryID: 5, Length: 5}.Append(nil), "xxxxx"...)
		store.values["k"] = unreadable
		if v, err := valueOf(c.GetOrLoad(t.Context(), "k", src.load)); v != "value 2" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		if string(store.values["k"]) != string(unreadable) {
			t.Error("what could not be read was overwritten")
		}
		s := counters.Snapshot().Ops[stats.Get]
		if s.Errors[stats.Server] != 1 || s.Errors[stats.UnknownDictionary] != 1 || s.Hits+s.Misses != 0 {
			t.Errorf("%+v", s.Errors)
		}
	})
}

// TestLock: of several processes one loads, and the others get what it stored.
func TestLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newClockwork()
		src := &source{takes: 3 * time.Second}
		var processes []*Cache[string]
		for range 5 {
			c, _ := newLoading(t, store, LoadOptions{Lock: 10 * time.Second})
			processes = append(processes, c)
		}
		var wg sync.WaitGroup
		for _, c := range processes {
			for range 10 {
				wg.Go(func() {
					if v, err := valueOf(c.GetOrLoad(t.Context(), "k", src.load)); v != "value 1" || err != nil {
						t.Errorf("%q, %v", v, err)
					}
				})
			}
		}
		wg.Wait()
		if n := src.loads.Load(); n != 1 {
			t.Errorf("%d loads", n)
		}
		if _, held := store.values["k:lock"]; held {
			t.Error("the lock is not given back")
		}
		// A process that died holds the lock no longer than it lives.
		if ok, err := store.Swap(t.Context(), "l:lock", nil, another, 10*time.Second); !ok || err != nil {
			t.Fatal(ok, err)
		}
		start := time.Now()
		if v, err := valueOf(processes[0].GetOrLoad(t.Context(), "l", src.load)); v != "value 2" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		if took := time.Since(start); took < 13*time.Second || took > 14*time.Second {
			t.Errorf("it took %v", took)
		}
		// Who waits for it leaves with its context.
		store.Swap(t.Context(), "m:lock", nil, another, time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := processes[0].GetOrLoad(ctx, "m", src.load); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// TestLockAhead: of several processes at most one at a time refreshes.
func TestLockAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newClockwork()
		src := &source{takes: time.Second}
		var processes []*Cache[string]
		for range 5 {
			c, _ := newLoading(t, store, LoadOptions{Lock: 10 * time.Second, Beta: math.MaxFloat64})
			processes = append(processes, c)
		}
		for _, c := range processes {
			if _, err := c.GetOrLoad(t.Context(), "k", src.load); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := src.loads.Load(); n != 2 {
			t.Errorf("%d loads", n)
		}
		time.Sleep(2 * time.Second)
		if v, _ := processes[3].Get(t.Context(), "k"); v != "value 2" {
			t.Errorf("%q after the refresh", v)
		}
	})
}

func TestCloseEndsLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newLoading(t, newClockwork(), LoadOptions{})
		src := &source{takes: time.Hour}
		ended := make(chan error)
		go func() {
			_, err := c.GetOrLoad(t.Context(), "k", src.load)
			ended <- err
		}()
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, os.ErrClosed) {
			t.Errorf("who waits gets %v", err)
		}
		if _, err := c.GetOrLoad(t.Context(), "k", src.load); !errors.Is(err, os.ErrClosed) {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// TestCloseEndsOvertakenLoads: Close cancels a load whose key was written since, and its caller
// gets the reason.
func TestCloseEndsOvertakenLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newLoading(t, newClockwork(), LoadOptions{Timeout: time.Hour})
		ended := make(chan error, 1)
		go func() {
			_, err := c.GetOrLoad(t.Context(), "k", hangs)
			ended <- err
		}()
		synctest.Wait()
		if err := c.Set(t.Context(), "k", "set"); err != nil {
			t.Error(err)
		}
		start := time.Now()
		if err := c.Close(); err != nil || time.Since(start) != 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if err := <-ended; !errors.Is(err, os.ErrClosed) {
			t.Errorf("the caller gets %v", err)
		}
	})
}

func TestLoadOptions(t *testing.T) {
	for name, o := range map[string]LoadOptions{
		"NegativeTTL": {NegativeTTL: -1}, "StaleIfError": {StaleIfError: -1}, "Lock": {Lock: -1}, "Timeout": {Timeout: -1}, "Beta": {Beta: math.NaN()}, "Refreshes": {Refreshes: -1},
		"SoftTimeout": {SoftTimeout: time.Second}, "Backoff": {Backoff: time.Second},
	} {
		if _, err := New(newMemory(), Options[int]{Load: o}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c, _ := newLoading(t, newMemory(), LoadOptions{})
	if _, err := c.GetOrLoad(t.Context(), "k", nil, TTL(1)); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

// TestCloseClosesWhatNewMade: a default Packer is closed, a given one stays the caller's.
func TestCloseClosesWhatNewMade(t *testing.T) {
	given, err := NewPacker(PackerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer given.Close()
	long := strings.Repeat("packed ", 100)
	for _, test := range []struct {
		packer *Packer
		after  error
	}{{nil, os.ErrClosed}, {given, nil}} {
		c, err := New(newMemory(), Options[string]{Packer: test.packer})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Set(t.Context(), "k", long); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := c.Get(t.Context(), "k"); !errors.Is(err, test.after) {
			t.Errorf("Get after Close: %v, want %v", err, test.after)
		}
		if err := c.Set(t.Context(), "k", long); !errors.Is(err, test.after) {
			t.Errorf("Set after Close: %v, want %v", err, test.after)
		}
	}
}
