package bale

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stats"
)

// hangs is a loader that waits until its context ends.
func hangs(ctx context.Context) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

// stale fills a store with the value "old" under k, which has expired.
func stale(t *testing.T, store Store) {
	t.Helper()
	c, _ := newLoading(t, store, LoadOptions{StaleIfError: time.Hour})
	if _, err := c.GetOrLoad(t.Context(), "k", func(context.Context) (string, error) { return "old", nil }, TTL(time.Second)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
}

// TestOldValueWhileTheDatabaseHangs: every process gets the old value, whoever has the lock.
func TestOldValueWhileTheDatabaseHangs(t *testing.T) {
	for _, lock := range []time.Duration{0, time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			store := newClockwork()
			stale(t, store)
			var wg sync.WaitGroup
			for i := range 4 {
				c, _ := newLoading(t, store, LoadOptions{StaleIfError: time.Hour, Lock: lock, Timeout: 5 * time.Second})
				wg.Go(func() {
					if v, err := valueOf(c.GetOrLoad(t.Context(), "k", hangs, TTL(time.Second))); v != "old" || err != nil {
						t.Errorf("lock %v, process %d: %q, %v", lock, i, v, err)
					}
				})
			}
			wg.Wait()
		})
	}
}

// TestOldValueWhileAnotherHasTheLock: one that waits in vain for another process's lock gets the
// old value.
func TestOldValueWhileAnotherHasTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newClockwork()
		stale(t, store)
		store.Set(t.Context(), "k:lock", another, TTL(time.Hour))
		c, _ := newLoading(t, store, LoadOptions{StaleIfError: time.Hour, Lock: time.Minute, Timeout: 5 * time.Second})
		if v, err := valueOf(c.GetOrLoad(t.Context(), "k", hangs, TTL(time.Second))); v != "old" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
	})
}

// TestOldValueWaitsForNoGate: a caller whose own read fails takes the old value from its flight. It
// does not wait beyond its deadline while other large values are decoded.
func TestOldValueWaitsForNoGate(t *testing.T) {
	for _, busy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := newClockwork()
			c, _ := newLoading(t, store, LoadOptions{StaleIfError: time.Hour, Timeout: time.Minute})
			large := strings.Repeat("large ", largeValue/4)
			if _, err := c.GetOrLoad(t.Context(), "k", func(context.Context) (string, error) { return large, nil }); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
			hung := func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }
			go c.GetOrLoad(t.Context(), "k", hung)
			synctest.Wait()
			store.mu.Lock()
			store.fail = errors.New("connection reset")
			store.mu.Unlock()
			if busy {
				if err := c.packer.gate.enter(t.Context(), c.packer.budget); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			start := time.Now()
			v, err := valueOf(c.GetOrLoad(ctx, "k", hung))
			if busy != (err != nil) || !busy && v != large || time.Since(start) != time.Second {
				t.Errorf("busy %v: %d bytes, %v, after %v", busy, len(v), err, time.Since(start))
			}
			if _, ok := c.Old("k"); ok == busy {
				t.Errorf("busy %v: Old returns %v", busy, ok)
			}
		})
	}
}

// TestOldValueAtADeadline: a caller with less time than the load needs gets the old value at its
// deadline, and the load goes on for the next. A caller that cancels gets its own error: nobody
// waits for an answer there.
func TestOldValueAtADeadline(t *testing.T) {
	for _, lock := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			store := newClockwork()
			stale(t, store)
			c, _ := newLoading(t, store, LoadOptions{StaleIfError: time.Hour, Lock: lock})
			src := &source{takes: time.Second}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			start := time.Now()
			if v, err := valueOf(c.GetOrLoad(ctx, "k", src.load, TTL(time.Hour))); v != "old" || err != nil || time.Since(start) != 100*time.Millisecond {
				t.Errorf("lock %v: %q, %v after %v", lock, v, err, time.Since(start))
			}
			if v, err := valueOf(c.GetOrLoad(ctx, "k", src.load, TTL(time.Hour))); v != "old" || err != nil {
				t.Errorf("lock %v, after the deadline: %q, %v", lock, v, err)
			}
			cancelled, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			if _, err := c.GetOrLoad(cancelled, "k", src.load, TTL(time.Hour)); !errors.Is(err, context.Canceled) {
				t.Errorf("lock %v, cancelled: %v", lock, err)
			}
			time.Sleep(2 * time.Second)
			if v, err := c.Get(t.Context(), "k"); v != "value 1" || err != nil || src.loads.Load() != 1 {
				t.Errorf("lock %v: then %q, %v, after %d loads", lock, v, err, src.loads.Load())
			}
		})
	}
}

// TestEachReadingIsDecodedByItself: what an expired value has, a value that another process stores
// meanwhile does not get.
func TestEachReadingIsDecodedByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newClockwork()
		process := func() *Cache[map[string]int] {
			c, err := New(store, Options[map[string]int]{Load: LoadOptions{StaleIfError: time.Hour, Lock: time.Minute, Beta: -1}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			return c
		}
		load := func(v map[string]int) func(context.Context) (map[string]int, error) {
			return func(context.Context) (map[string]int, error) { time.Sleep(time.Second); return v, nil }
		}
		a, b := process(), process()
		a.GetOrLoad(t.Context(), "k", load(map[string]int{"old": 1}), TTL(time.Second))
		time.Sleep(2 * time.Second)
		go a.GetOrLoad(t.Context(), "k", load(map[string]int{"new": 2}), TTL(time.Hour))
		synctest.Wait()
		v, err := valueOf(b.GetOrLoad(t.Context(), "k", load(nil), TTL(time.Hour)))
		if err != nil || !maps.Equal(v, map[string]int{"new": 2}) {
			t.Errorf("%v, %v", v, err)
		}
	})
}

// TestNotFoundEndsTheOldValue: what the loader says is gone is not served as an old value
// afterwards.
func TestNotFoundEndsTheOldValue(t *testing.T) {
	for _, negative := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			store := newClockwork()
			stale(t, store)
			c, _ := newLoading(t, store, LoadOptions{StaleIfError: time.Hour, NegativeTTL: negative})
			if _, err := c.GetOrLoad(t.Context(), "k", func(context.Context) (string, error) { return "", ErrNotFound }, TTL(time.Second)); !errors.Is(err, ErrNotFound) {
				t.Error(err)
			}
			time.Sleep(2 * time.Second)
			down := errors.New("down")
			if v, err := valueOf(c.GetOrLoad(t.Context(), "k", func(context.Context) (string, error) { return "", down }, TTL(time.Second))); !errors.Is(err, down) {
				t.Errorf("NegativeTTL %v: %q, %v", negative, v, err)
			}
		})
	}
}

// TestDeletedOldValueIsNotServed: what another process deletes while a load hangs is no old value
// for the callers that come after it, nor for those that share a Fetch.
func TestDeletedOldValueIsNotServed(t *testing.T) {
	for _, lock := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			store := newClockwork()
			stale(t, store)
			c, _ := newLoading(t, store, LoadOptions{StaleIfError: time.Hour, Lock: lock, Timeout: 5 * time.Second})
			go c.GetOrLoad(t.Context(), "k", hangs, TTL(time.Second))
			synctest.Wait()
			other, _ := newLoading(t, store, LoadOptions{})
			if n, err := other.Delete(t.Context(), "k"); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			ended := make(chan error, 1)
			go func() {
				_, err := c.GetOrLoad(t.Context(), "k", hangs, TTL(time.Second))
				ended <- err
			}()
			synctest.Wait()
			if old, ok := c.Old("k"); ok {
				t.Errorf("lock %v: Old has %q after the delete", lock, old.Value)
			}
			if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("lock %v: a caller after the delete gets %v", lock, err)
			}
		})
	}
}

// TestLookForgetsTheOldValue: a load that waits for another process's lock finds its value deleted.
func TestLookForgetsTheOldValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newClockwork()
		stale(t, store)
		store.Set(t.Context(), "k:lock", another, TTL(time.Hour))
		c, _ := newLoading(t, store, LoadOptions{StaleIfError: time.Hour, Lock: time.Minute})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go c.GetOrLoad(ctx, "k", hangs, TTL(time.Second))
		synctest.Wait()
		if _, ok := c.Old("k"); !ok {
			t.Error("no old value before the delete")
		}
		store.Delete(t.Context(), []string{"k"})
		time.Sleep(time.Second) // some looks
		if old, ok := c.Old("k"); ok {
			t.Errorf("Old has %q after the delete", old.Value)
		}
	})
}

// TestSlowLoadDoesNotOverwrite: what others did to the key while a load held the lock stays, and
// those who wait for the load get it.
func TestSlowLoadDoesNotOverwrite(t *testing.T) {
	for _, old := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := newClockwork()
			o := LoadOptions{StaleIfError: time.Hour, Lock: time.Second}
			if old {
				stale(t, store)
			}
			slow, _ := newLoading(t, store, o)
			other, _ := newLoading(t, store, o)
			v, err := valueOf(slow.GetOrLoad(t.Context(), "k", func(ctx context.Context) (string, error) {
				if err := other.Set(ctx, "k", "newer", TTL(time.Hour)); err != nil {
					t.Error(err)
				}
				return "slow", nil
			}, TTL(time.Hour)))
			if v != "newer" || err != nil {
				t.Errorf("old value %v: the slow one gets %q, %v", old, v, err)
			}
			if v, err := other.Get(t.Context(), "k"); v != "newer" || err != nil {
				t.Errorf("old value %v: %q is there, %v", old, v, err)
			}
			// A Delete stands, too, of a value that there was.
			store.Delete(t.Context(), []string{"k"})
			stale(t, store)
			slow.GetOrLoad(t.Context(), "k", func(ctx context.Context) (string, error) { other.Delete(ctx, "k"); return "slow", nil }, TTL(time.Hour))
			if v, err := other.Get(t.Context(), "k"); !errors.Is(err, ErrNotFound) {
				t.Errorf("a Delete is undone: %q, %v", v, err)
			}
		})
	}
}

// TestLockIsRenewed: a load that takes longer than the lock lives keeps it, and one at a time
// loads.
func TestLockIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newClockwork()
		src := &source{takes: 20 * time.Second}
		var wg sync.WaitGroup
		for range 5 {
			c, _ := newLoading(t, store, LoadOptions{Lock: time.Second})
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
		if _, err := store.Get(t.Context(), "k:lock"); !errors.Is(err, ErrNotFound) {
			t.Errorf("the lock is left: %v", err)
		}
	})
}

// TestStopEndsARenewal: Redis hangs while a renewal is under way or due. The load is over all the
// same: its value waits for one Patience, that of the last look at the lock.
func TestStopEndsARenewal(t *testing.T) {
	for _, takes := range []time.Duration{1500 * time.Millisecond, 4 * time.Second} {
		for range 20 { // select picks among what is ready at random
			synctest.Test(t, func(t *testing.T) {
				store := &hanging{clockwork: newClockwork()}
				c, _ := newLoading(t, store, LoadOptions{Lock: 3 * time.Second})
				start := time.Now()
				v, err := valueOf(c.GetOrLoad(t.Context(), "k", func(context.Context) (string, error) {
					store.hangs.Store(true)
					time.Sleep(takes)
					return "v", nil
				}))
				if got := time.Since(start); v != "v" || err != nil || got != takes+defaultPatience {
					t.Errorf("a load of %v: %q, %v after %v", takes, v, err, got)
				}
			})
		}
	}
}

// TestReleaseIsTriedAgain: a Store that refuses some calls does not leave a lock behind.
func TestReleaseIsTriedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		refuses func(old, value []byte) bool
		err     error // the loader's
		left    string
	}{
		"the release":               {func(_, value []byte) bool { return value == nil }, nil, ""},
		"the last look at the lock": {func(old, value []byte) bool { return bytes.Equal(old, value) }, nil, ""},
		"the mark of a failure": {
			func(_, value []byte) bool { return string(value) == "failed" }, errors.New("down"), "failed",
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			refuse := 2
			store := &crowded{clockwork: newClockwork(), most: 1, refuse: func(key string, old, value []byte) bool {
				if key != "k:lock" || refuse == 0 || !test.refuses(old, value) {
					return false
				}
				refuse--
				return true
			}}
			c, _ := newLoading(t, store, LoadOptions{Lock: time.Minute, Backoff: 10 * time.Second})
			load := func(context.Context) (string, error) { return "v", test.err }
			v, err := valueOf(c.GetOrLoad(t.Context(), "k", load))
			if !errors.Is(err, test.err) || err == nil && v != "v" {
				t.Errorf("%s: %q, %v", name, v, err)
			}
			time.Sleep(40 * time.Second) // not until it expires
			synctest.Wait()
			if refuse == 2 {
				t.Errorf("%s: nothing was refused", name)
			}
			if v, err := store.Get(t.Context(), "k:lock"); string(v) != test.left || (err == nil) != (test.left != "") {
				t.Errorf("%s: the lock holds %q, %v", name, v, err)
			}
		})
	}
}

// TestCloseEndsReleases: Close waits for no lock that cannot be released.
func TestCloseEndsReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &crowded{clockwork: newClockwork(), most: 1}
		store.refuse = func(_ string, _, value []byte) bool { return value == nil }
		c, _ := newLoading(t, store, LoadOptions{Lock: time.Minute})
		if _, err := c.GetOrLoad(t.Context(), "k", (&source{}).load); err != nil {
			t.Error(err)
		}
		start := time.Now()
		if c.Close(); time.Since(start) > 0 {
			t.Errorf("%v", time.Since(start))
		}
	})
}

// TestLostLock: a load whose lock another process has taken meanwhile stores nothing, for the
// other's load began later.
func TestLostLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newClockwork()
		c, _ := newLoading(t, store, LoadOptions{Lock: time.Second})
		if v, err := valueOf(c.GetOrLoad(t.Context(), "k", func(ctx context.Context) (string, error) {
			return "of before", store.Set(ctx, "k:lock", another, TTL(time.Minute))
		}, TTL(time.Hour))); v != "of before" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		if v, err := c.Get(t.Context(), "k"); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q is stored, %v", v, err)
		}
		if v, err := store.Get(t.Context(), "k:lock"); string(v) != string(another) || err != nil {
			t.Errorf("the other's lock is %q, %v", v, err)
		}
		// One that is gone is lost, too: another may have had it meanwhile.
		if v, err := valueOf(c.GetOrLoad(t.Context(), "l", func(ctx context.Context) (string, error) {
			_, err := store.Delete(ctx, []string{"l:lock"})
			return "of before", err
		}, TTL(time.Hour))); v != "of before" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		if v, err := c.Get(t.Context(), "l"); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q is stored, %v", v, err)
		}
	})
}

// TestLoaderThatNeverReturns: a hanging loader does not keep the lock.
func TestLoaderThatNeverReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newClockwork()
		stuck, _ := newLoading(t, store, LoadOptions{Lock: time.Second, Timeout: 5 * time.Second})
		other, _ := newLoading(t, store, LoadOptions{Lock: time.Second, Timeout: time.Minute})
		release := make(chan struct{})
		go stuck.GetOrLoad(t.Context(), "k", func(context.Context) (string, error) { <-release; return "late", nil }, TTL(time.Hour))
		synctest.Wait()
		start := time.Now()
		if v, err := valueOf(other.GetOrLoad(t.Context(), "k", func(context.Context) (string, error) { return "other", nil }, TTL(time.Hour))); v != "other" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		if waited := time.Since(start); waited > 7*time.Second {
			t.Errorf("it waited %v", waited)
		}
		close(release)
		synctest.Wait()
		if v, err := other.Get(t.Context(), "k"); v != "other" || err != nil {
			t.Errorf("then %q, %v", v, err)
		}
	})
}

// TestFailureIsShared: the processes that wait for a load that fails do not load one after the
// other.
func TestFailureIsShared(t *testing.T) {
	for _, old := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := newClockwork()
			if old {
				stale(t, store)
			}
			down := errors.New("down")
			src := &source{takes: time.Second, value: func(int64) (string, error) { return "", down }}
			var failed atomic.Int64
			start := time.Now()
			var wg sync.WaitGroup
			for range 10 {
				c, _ := newLoading(t, store, LoadOptions{StaleIfError: time.Hour, Lock: time.Minute})
				wg.Go(func() {
					switch v, err := valueOf(c.GetOrLoad(t.Context(), "k", src.load, TTL(time.Second))); {
					case old && (v != "old" || err != nil):
						t.Errorf("%q, %v", v, err)
					case !old && err != nil:
						failed.Add(1)
					}
				})
			}
			wg.Wait()
			if n := src.loads.Load(); n != 1 {
				t.Errorf("old value %v: %d loads in %v", old, n, time.Since(start))
			}
			if n := failed.Load(); !old && n != 10 {
				t.Errorf("%d have an error", n)
			}
			time.Sleep(time.Second) // it is up again
			src.value = nil
			c, _ := newLoading(t, store, LoadOptions{Lock: time.Minute})
			if v, err := valueOf(c.GetOrLoad(t.Context(), "k", src.load, TTL(time.Second))); v != "value 2" || err != nil {
				t.Errorf("then %q, %v", v, err)
			}
		})
	}
}

// TestNotFoundIsShared: the processes that wait for a load that finds nothing do not load one after
// the other; one that comes after it does load.
func TestNotFoundIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newClockwork()
		src := &source{takes: time.Second, value: func(int64) (string, error) { return "", fmt.Errorf("user 7: %w", ErrNotFound) }}
		var wg sync.WaitGroup
		for range 10 {
			c, _ := newLoading(t, store, LoadOptions{Lock: time.Minute})
			wg.Go(func() {
				if _, err := c.GetOrLoad(t.Context(), "k", src.load, TTL(time.Second)); !errors.Is(err, ErrNotFound) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := src.loads.Load(); n != 1 {
			t.Errorf("%d loads", n)
		}
		src.value = nil // it is made
		c, _ := newLoading(t, store, LoadOptions{Lock: time.Minute})
		if v, err := valueOf(c.GetOrLoad(t.Context(), "k", src.load, TTL(time.Second))); v != "value 2" || err != nil {
			t.Errorf("then %q, %v", v, err)
		}
	})
}

// TestRefreshLeavesASetAlone: a refresh does not touch a value without an expiry inside that was
// set after the refresh began.
func TestRefreshLeavesASetAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slow{clockwork: newClockwork()}
		c, _ := newLoading(t, store, LoadOptions{Beta: 1e18})
		src := &source{takes: time.Second}
		c.GetOrLoad(t.Context(), "k", src.load, TTL(time.Minute))
		store.get = time.Second // the refresh looks after the caller did
		go func() {
			time.Sleep(500 * time.Millisecond)
			other, _ := newLoading(t, store, LoadOptions{})
			other.Set(t.Context(), "k", "set", TTL(time.Hour))
		}()
		c.GetOrLoad(t.Context(), "k", src.load, TTL(time.Minute))
		time.Sleep(10 * time.Second)
		if v, err := c.Get(t.Context(), "k"); v != "set" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
	})
}

// TestSoftTimeout: with an old value callers wait no longer than that for a load, counted from its
// start, and the load goes on.
func TestSoftTimeout(t *testing.T) {
	for _, lock := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			store := newClockwork()
			stale(t, store)
			c, counters := newLoading(t, store, LoadOptions{StaleIfError: time.Hour, SoftTimeout: 200 * time.Millisecond, Lock: lock, Timeout: 5 * time.Second})
			src := &source{takes: time.Second}
			call := func(want string, after time.Duration) {
				t.Helper()
				start := time.Now()
				entry, err := c.GetOrLoad(t.Context(), "k", src.load, TTL(time.Hour))
				if entry.Value != want || entry.Stale != (want == "old") || err != nil || time.Since(start) != after {
					t.Errorf("lock %v: %+v, %v after %v", lock, entry, err, time.Since(start))
				}
			}
			call("old", 200*time.Millisecond)
			call("old", 0)
			time.Sleep(400 * time.Millisecond)
			call("old", 0)
			time.Sleep(time.Second)
			call("value 1", 0)
			if n := src.loads.Load(); n != 1 {
				t.Errorf("%d loads", n)
			}
			if n := counters.Snapshot().Ops[stats.Stale].Count; n != 3 {
				t.Errorf("%d old values are told", n)
			}
			// Without an old value they wait for the load.
			store.Delete(t.Context(), []string{"k"})
			call("value 2", time.Second)
			// A load that hangs ends with Timeout, and the next one is another.
			store.Delete(t.Context(), []string{"k"})
			stale(t, store)
			synctest.Wait() // for the loads before
			src.takes = time.Hour
			call("old", 200*time.Millisecond)
			time.Sleep(6 * time.Second)
			synctest.Wait()
			src.takes = 0
			call("value 4", 0)
		})
	}
}

// TestLoadsWithoutCallersAreBounded: beyond Refreshes a load ends when its last caller leaves, with
// the old value.
func TestLoadsWithoutCallersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newLoading(t, newClockwork(), LoadOptions{StaleIfError: time.Hour, SoftTimeout: time.Second, Refreshes: 3})
		keys := []string{"a", "b", "c", "d", "e", "f"}
		for _, key := range keys {
			c.GetOrLoad(t.Context(), key, func(context.Context) (string, error) { return "old", nil }, TTL(time.Second))
		}
		time.Sleep(2 * time.Second)
		var running atomic.Int64
		for range 2 {
			for _, key := range keys {
				v, err := valueOf(c.GetOrLoad(t.Context(), key, func(ctx context.Context) (string, error) {
					running.Add(1)
					defer running.Add(-1)
					return hangs(ctx)
				}, TTL(time.Second)))
				if v != "old" || err != nil {
					t.Errorf("%q, %v", v, err)
				}
			}
			synctest.Wait()
			if n := running.Load(); n != 3 {
				t.Errorf("%d loads run, and nobody waits", n)
			}
		}
		time.Sleep(time.Minute)
		c.mu.Lock()
		n := c.background
		c.mu.Unlock()
		if n != 0 {
			t.Errorf("%d are counted for ever", n)
		}
		// Close ends them.
		c.GetOrLoad(t.Context(), "a", hangs, TTL(time.Second))
		c.Close()
		if entry, err := c.GetOrLoad(t.Context(), "a", hangs, TTL(time.Second)); entry.Value != "old" || !entry.Stale || err != nil {
			t.Errorf("after Close: %+v, %v", entry, err)
		}
	})
}

// TestOldOfAFlight: the old value is there for callers that could not read it themselves, each its
// own copy, and for those who share a Fetch.
func TestOldOfAFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hanging{clockwork: newClockwork()}
		stale(t, store)
		c, _ := newLoading(t, store, LoadOptions{StaleIfError: time.Hour})
		if _, ok := c.Old("k"); ok {
			t.Error("an old value without a load")
		}
		release := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			v, err := valueOf(c.GetOrLoad(t.Context(), "k", func(context.Context) (string, error) { <-release; return "", errors.New("down") }, TTL(time.Second)))
			if v != "old" || err != nil {
				t.Errorf("%q, %v", v, err)
			}
		})
		synctest.Wait()
		if old, ok := c.Old("k"); !ok || old.Value != "old" || !old.Stale {
			t.Errorf("%+v, %v", old, ok)
		}
		store.hangs.Store(true)
		for _, deadline := range []time.Duration{time.Second, time.Hour} {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				defer cancel()
				if v, err := valueOf(c.GetOrLoad(ctx, "k", hangs, TTL(time.Second))); v != "old" || err != nil {
					t.Errorf("deadline %v: %q, %v", deadline, v, err)
				}
			})
		}
		time.Sleep(10 * time.Second)
		close(release)
		all.Wait()
		time.Sleep(2 * time.Hour) // beyond StaleIfError
		store.hangs.Store(false)
		if _, err := c.GetOrLoad(t.Context(), "k", func(context.Context) (string, error) { return "", errors.New("down") }, TTL(time.Second)); err == nil {
			t.Error("an old value is served for ever")
		}
	})
}

// unreadables are values that no process of the test can read, by the class of their error.
func unreadables(t *testing.T) map[stats.Class][]byte {
	t.Helper()
	packed, err := newPacker(t, PackerOptions{}).Pack(nil, bytes.Repeat([]byte("text "), 100))
	if err != nil {
		t.Fatal(err)
	}
	large := frame.Header{Algorithm: frame.Zstd, Length: 1 << 40}
	return map[stats.Class][]byte{
		stats.Corrupt:           packed[:len(packed)-5],
		stats.TooLarge:          append(large.Append(nil), "xyz"...),
		stats.UnknownDictionary: append(frame.Header{Algorithm: frame.Zstd, DictionaryID: 77, Length: 3}.Append(nil), "xyz"...),
		stats.UnknownAlgorithm:  append(frame.Header{Algorithm: 11, Length: 3}.Append(nil), "xyz"...),
		stats.Codec:             []byte("no JSON"),
	}
}

// TestReplaceUnreadable: it is one load, counted and logged, where it was one for each read; what
// comes meanwhile stays.
func TestReplaceUnreadable(t *testing.T) {
	for class, unreadable := range unreadables(t) {
		for _, lock := range []time.Duration{0, time.Second} {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				store := newClockwork()
				process := func(o LoadOptions) (*Cache[string], *stats.Counters) {
					counters := stats.NewCounters(stats.CountersOptions{})
					c, err := New(store, Options[string]{TTL: time.Minute, Load: o, Recorder: counters, Log: slog.New(slog.NewTextHandler(&log, nil))})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { c.Close() })
					return c, counters
				}
				store.values["k"] = unreadable
				src := &source{takes: time.Second}
				off, counters := process(LoadOptions{Lock: lock})
				for i := range 3 {
					if v, err := valueOf(off.GetOrLoad(t.Context(), "k", src.load)); v != fmt.Sprint("value ", i+1) || err != nil {
						t.Errorf("%v: %q, %v", class, v, err)
					}
				}
				if n := counters.Snapshot().Ops[stats.Get].Errors[class]; n != 3 || !bytes.Equal(store.values["k"], unreadable) {
					t.Fatalf("%v: %d reads fail, or it is overwritten", class, n)
				}

				on, counters := process(LoadOptions{ReplaceUnreadable: true, Lock: lock})
				for range 3 {
					if v, err := valueOf(on.GetOrLoad(t.Context(), "k", src.load)); v != "value 4" || err != nil {
						t.Errorf("%v: %q, %v", class, v, err)
					}
				}
				if s := counters.Snapshot(); s.Ops[stats.Replace].Count != 1 || s.Ops[stats.Load].Count != 1 {
					t.Errorf("%v: %d replaced, %d loads", class, s.Ops[stats.Replace].Count, s.Ops[stats.Load].Count)
				}
				if line := log.String(); strings.Count(line, "\n") != 1 || !strings.Contains(line, "key=k") || strings.Contains(line, "no JSON") {
					t.Errorf("%v: logged %q", class, line)
				}
				time.Sleep(time.Minute)
				if _, err := store.Get(t.Context(), "k"); !errors.Is(err, ErrNotFound) {
					t.Errorf("%v: the new value does not expire: %v", class, err)
				}

				// Another process, which can read it, writes while this one loads.
				store.values["k"] = unreadable
				newer := append(frame.Header{Algorithm: frame.Zstd, DictionaryID: 78, Length: 3}.Append(nil), "xyz"...)
				if v, err := valueOf(on.GetOrLoad(t.Context(), "k", func(ctx context.Context) (string, error) {
					return "mine", store.Set(ctx, "k", newer, Expiry{})
				})); v != "mine" || err != nil {
					t.Errorf("%v: %q, %v", class, v, err)
				}
				if !bytes.Equal(store.values["k"], newer) || counters.Snapshot().Ops[stats.Replace].Count != 1 {
					t.Errorf("%v: a value that came meanwhile is overwritten", class)
				}
				if _, held := store.values["k:lock"]; held {
					t.Errorf("%v: the lock is left", class)
				}

				// The loader says that there is none.
				store.values["k"] = unreadable
				if _, err := on.GetOrLoad(t.Context(), "k", func(context.Context) (string, error) { return "", ErrNotFound }); !errors.Is(err, ErrNotFound) {
					t.Errorf("%v: %v", class, err)
				}
				if _, there := store.values["k"]; there {
					t.Errorf("%v: it is left", class)
				}
			})
		}
	}
}

// asking is Compressors whose registry does not answer, or has no dictionary.
type asking struct {
	compress.Set
	err error
}

func (a *asking) Reader(context.Context, frame.Algorithm, frame.DictionaryID) (Compressor, error) {
	return nil, a.err
}

// TestNotReplaced: what says nothing about the value is no reason to overwrite it, nor is a stream,
// whose chunks would be lost.
func TestNotReplaced(t *testing.T) {
	unknown := append(frame.Header{Algorithm: frame.Zstd, DictionaryID: 77, Length: 3}.Append(nil), "xyz"...)
	for name, test := range map[string]struct {
		stored   []byte
		err      error // of the dictionary
		replaced bool
	}{
		"no registry":       {unknown, errors.New("dial tcp: connection refused"), false},
		"a slow registry":   {unknown, context.DeadlineExceeded, false},
		"no such one there": {unknown, ErrUnknownDictionary, true},
		"a miss elsewhere":  {unknown, fmt.Errorf("dictionary: %w", ErrNotFound), false},
		"a stream":          {append(frame.Header{Algorithm: frame.Chunks, Length: 3}.Append(nil), "xyz"...), nil, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := newClockwork()
			store.values["k"] = test.stored
			p := newPacker(t, PackerOptions{Compressors: &asking{err: test.err}, MinSize: 1 << 20})
			c, err := New(store, Options[string]{Packer: p, Load: LoadOptions{ReplaceUnreadable: true}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Get(t.Context(), "k"); err == nil || errors.Is(err, ErrNotFound) {
				t.Errorf("%s: a value that is there is a miss: %v", name, err)
			}
			if v, err := valueOf(c.GetOrLoad(t.Context(), "k", func(context.Context) (string, error) { return "loaded", nil })); v != "loaded" || err != nil {
				t.Errorf("%s: %q, %v", name, v, err)
			}
			if replaced := !bytes.Equal(store.values["k"], test.stored); replaced != test.replaced {
				t.Errorf("%s: replaced %v", name, replaced)
			}
		})
	}
}

// lookingUp is a codec that looks for something else to decode with, and does not find it.
type lookingUp struct{ codec.JSON[string] }

func (lookingUp) Decode([]byte, *string) error { return fmt.Errorf("its key: %w", ErrNotFound) }

// TestCodecIsNoMiss: a value is there, whatever its codec did not find.
func TestCodecIsNoMiss(t *testing.T) {
	store := newClockwork()
	c, err := New(store, Options[string]{Codec: lookingUp{}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := t.Context()
	if err := c.Set(ctx, "k", "value"); err != nil {
		t.Fatal(err)
	}
	before := bytes.Clone(store.values["k"])
	if _, err := c.Get(ctx, "k"); !errors.Is(err, ErrCodec) || errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if _, err := c.GetMany(ctx, "k"); !errors.Is(err, ErrCodec) {
		t.Error(err)
	}
	if v, err := valueOf(c.GetOrLoad(ctx, "k", func(context.Context) (string, error) { return "loaded", nil })); v != "loaded" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	if !bytes.Equal(store.values["k"], before) {
		t.Errorf("overwritten by %q", store.values["k"])
	}
}

// TestEntries: what is known of a value's end comes with it.
func TestEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		c, _ := newLoading(t, newClockwork(), LoadOptions{StaleIfError: time.Hour, NegativeTTL: time.Minute, Beta: -1})
		soon := time.Now().Add(10 * time.Second)
		if soon.Nanosecond()%1e6 != 0 {
			t.Fatal("the test's clock has other than whole milliseconds")
		}
		want := map[string]Entry[string]{
			"loaded": {Value: "loaded", Expires: soon},
			"absent": {Expires: time.Now().Add(time.Minute), Absent: true},
			"set":    {Value: "set"},
		}
		c.Set(ctx, "set", "set", TTL(time.Hour))
		load := func(key string) func(context.Context) (string, error) {
			return func(context.Context) (string, error) {
				if key == "absent" {
					return "", ErrNotFound
				}
				return key, nil
			}
		}
		check := func(what, key string, got Entry[string], err error) {
			t.Helper()
			if want := want[key]; got.Value != want.Value || !got.Expires.Equal(want.Expires) || got.Absent != want.Absent || got.Stale || errors.Is(err, ErrNotFound) != want.Absent {
				t.Errorf("%s of %s: %+v, %v", what, key, got, err)
			}
		}
		for range 2 { // loaded, then read
			for key := range want {
				got, err := c.GetOrLoad(ctx, key, load(key), TTL(10*time.Second))
				check("Fetch", key, got, err)
			}
		}
		many, err := c.GetEntries(ctx, "loaded", "absent", "set", "none")
		if len(many) != 3 || err != nil {
			t.Errorf("%+v, %v", many, err)
		}
		for key := range want {
			got, err := c.GetEntry(ctx, key)
			check("GetEntry", key, got, err)
			if many[key].Absent {
				err = ErrNotFound
			}
			check("GetEntries", key, many[key], err)
		}
		time.Sleep(time.Minute)
		if many, err := c.GetEntries(ctx, "loaded", "absent"); len(many) != 0 || err != nil {
			t.Errorf("what has expired: %+v, %v", many, err)
		}
		for _, key := range []string{"loaded", "absent"} {
			if got, err := c.GetEntry(ctx, key); got != (Entry[string]{}) || !errors.Is(err, ErrNotFound) {
				t.Errorf("%s has expired: %+v, %v", key, got, err)
			}
		}
	})
}
