package bale

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stats"
)

func (s *clockwork) Touch(_ context.Context, key string, e Expiry) (bool, error) {
	s.expire()
	s.mu.Lock()
	_, ok := s.values[key]
	s.mu.Unlock()
	if ok {
		s.ending(key, e)
	}
	return ok, nil
}

// slow is a clockwork whose swaps, or whose replies to gets, take a while.
type slow struct {
	*clockwork
	swap, get time.Duration
}

func (s *slow) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error) {
	time.Sleep(s.swap)
	return s.clockwork.Swap(ctx, key, old, value, ttl)
}

func (s *slow) Get(ctx context.Context, key string) ([]byte, error) {
	v, err := s.clockwork.Get(ctx, key)
	time.Sleep(s.get)
	return v, err
}

// TestNegativeEndsInTime: what is remembered not to be there is asked for again after NegativeTTL,
// whatever else is configured.
func TestNegativeEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newLoading(t, newClockwork(), LoadOptions{NegativeTTL: time.Second, StaleIfError: time.Hour})
		exists := false
		load := func(context.Context) (string, error) {
			if exists {
				return "real", nil
			}
			return "", ErrNotFound
		}
		c.GetOrLoad(t.Context(), "k", load)
		exists = true
		time.Sleep(59 * time.Minute)
		if v, err := valueOf(c.GetOrLoad(t.Context(), "k", load)); err != nil {
			t.Errorf("59 min after NegativeTTL of 1 s: %q, %v", v, err)
		}
	})
}

// TestTouchOfNegative: a Touch does not make it last longer.
func TestTouchOfNegative(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newLoading(t, newClockwork(), LoadOptions{NegativeTTL: time.Second})
		exists := false
		load := func(context.Context) (string, error) {
			if exists {
				return "real", nil
			}
			return "", ErrNotFound
		}
		c.GetOrLoad(t.Context(), "k", load)
		if err := c.Touch(t.Context(), "k", NoExpiry()); err != nil {
			t.Error(err)
		}
		exists = true
		time.Sleep(1000 * time.Hour)
		if v, err := valueOf(c.GetOrLoad(t.Context(), "k", load)); err != nil {
			t.Errorf("1000 h after NegativeTTL of 1 s: %q, %v", v, err)
		}
		if n, _ := c.Delete(t.Context(), "k"); n != 1 {
		}
	})
}

// TestJoinerOfARefreshThatGivesUp: who waits for a refresh that leaves the load to another process
// makes a load of his own.
func TestJoinerOfARefreshThatGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slow{clockwork: newClockwork()}
		c, _ := newLoading(t, store, LoadOptions{Lock: 10 * time.Second, Beta: 1e18})
		load := func(context.Context) (string, error) { time.Sleep(time.Millisecond); return "real", nil }
		c.GetOrLoad(t.Context(), "k", load, TTL(time.Second))
		time.Sleep(999 * time.Millisecond)
		store.clockwork.Set(t.Context(), "k:lock", another, TTL(5*time.Second))
		store.swap = 10 * time.Millisecond                                                                       // a round trip
		if v, err := valueOf(c.GetOrLoad(t.Context(), "k", load, TTL(time.Second))); v != "real" || err != nil { // starts the refresh
			t.Fatal(v, err)
		}
		time.Sleep(5 * time.Millisecond) // now it has expired
		if v, err := valueOf(c.GetOrLoad(t.Context(), "k", load, TTL(time.Second))); v != "real" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
	})
}

// TestStaleWhileARefreshFails: who waits for a refresh that fails gets the old value.
func TestStaleWhileARefreshFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newLoading(t, newClockwork(), LoadOptions{StaleIfError: time.Hour, Beta: 1e18})
		down := false
		load := func(context.Context) (string, error) {
			if down {
				time.Sleep(3 * time.Second)
				return "", errors.New("down")
			}
			time.Sleep(time.Millisecond)
			return "real", nil
		}
		c.GetOrLoad(t.Context(), "k", load, TTL(10*time.Second))
		down = true
		time.Sleep(9 * time.Second)
		c.GetOrLoad(t.Context(), "k", load, TTL(10*time.Second)) // starts a refresh, which takes 3 s
		time.Sleep(2 * time.Second)                              // expired 1 s ago
		if v, err := valueOf(c.GetOrLoad(t.Context(), "k", load, TTL(10*time.Second))); v != "real" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
	})
}

// TestUnreadableFoundUnderTheLock: what another process stored meanwhile and this one cannot read
// stays.
func TestUnreadableFoundUnderTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newClockwork()
		c, _ := newLoading(t, store, LoadOptions{Lock: 10 * time.Second})
		store.Set(t.Context(), "k:lock", another, TTL(5*time.Second))
		// what the other process will write: with a dictionary that we do not have
		h := frame.Header{Algorithm: frame.Zstd, DictionaryID: 77, Length: 3}
		unreadable := append(h.Append(nil), "xyz"...)
		if _, err := newPacker(t, PackerOptions{}).Unpack(t.Context(), nil, unreadable); !errors.Is(err, ErrUnknownDictionary) {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(time.Second)
			store.Set(context.Background(), "k", unreadable, TTL(time.Hour))
			store.Swap(context.Background(), "k:lock", another, nil, 0)
		}()
		if v, err := valueOf(c.GetOrLoad(t.Context(), "k", func(context.Context) (string, error) { return "mine", nil })); v != "mine" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		if got, _ := store.Get(t.Context(), "k"); string(got) != string(unreadable) {
			t.Errorf("the unreadable value of the other process was overwritten")
		}
	})
}

// TestLargeValueEndsInTime: a value that is too large to say when it expires ends in Redis when it
// should.
func TestLargeValueEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacker(t, PackerOptions{MaxSize: 1000})
		c, err := New(newClockwork(), Options[string]{Packer: p, Load: LoadOptions{StaleIfError: time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.GetOrLoad(t.Context(), "k", func(context.Context) (string, error) { return strings.Repeat("x", 2000), nil }, TTL(time.Second))
		time.Sleep(59 * time.Minute)
		if v, err := c.Get(t.Context(), "k"); err != ErrNotFound {
			t.Errorf("59 min after its TTL of 1 s Get returns %d bytes, %v", len(v), err)
		}
	})
}

// TestNegativeDoesNotShadow: a value that was written during the load stays.
func TestNegativeDoesNotShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newLoading(t, newClockwork(), LoadOptions{NegativeTTL: time.Minute})
		c.GetOrLoad(t.Context(), "k", func(ctx context.Context) (string, error) {
			// the user is created now, by somebody else
			if err := c.Set(ctx, "k", "created", TTL(time.Hour)); err != nil {
				t.Fatal(err)
			}
			return "", ErrNotFound
		})
		if v, err := c.Get(t.Context(), "k"); v != "created" {
			t.Errorf("got %q, %v", v, err)
		}
	})
}

// TestDeleteIsNotUndone: a load that began before a Delete is not stored, and not joined.
func TestDeleteIsNotUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newLoading(t, newClockwork(), LoadOptions{Beta: 1e18})
		var db atomic.Value
		db.Store("old")
		load := func(ctx context.Context) (string, error) {
			v := db.Load().(string)
			time.Sleep(time.Second)
			return v, nil
		}
		c.GetOrLoad(t.Context(), "k", load, TTL(time.Hour))
		c.GetOrLoad(t.Context(), "k", load, TTL(time.Hour)) // a hit; refresh in the background
		time.Sleep(time.Millisecond)
		db.Store("new")
		c.Delete(t.Context(), "k")
		v, err := valueOf(c.GetOrLoad(t.Context(), "k", load, TTL(time.Hour)))
		if v != "new" {
			t.Errorf("after Delete GetOrLoad: got %q, %v", v, err)
		}
		v, err = c.Get(t.Context(), "k")
		if v != "new" {
			t.Errorf("after Delete Get: got %q, %v", v, err)
		}
	})
}

// TestLockTimesOut: waiting for a lock in vain is an error, and no load.
func TestLockTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newClockwork()
		store.Set(t.Context(), "k:lock", another, TTL(time.Minute))
		var loads, dead atomic.Int64
		var wg sync.WaitGroup
		for range 20 { // processes
			c, _ := newLoading(t, store, LoadOptions{Lock: time.Minute, Timeout: 5 * time.Second})
			wg.Go(func() {
				c.GetOrLoad(t.Context(), "k", func(ctx context.Context) (string, error) {
					loads.Add(1)
					if ctx.Err() != nil {
						dead.Add(1)
					}
					return "v", nil
				})
			})
		}
		wg.Wait()
		if n := loads.Load(); n > 0 {
			t.Errorf("%d loads at once while another process has the lock, %d with a context that has ended", n, dead.Load())
		}
	})
}

// TestNobodyIsLeftToLoadFor: a load whose callers have left while it waits for the lock does not
// begin.
func TestNobodyIsLeftToLoadFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newClockwork()
		store.Set(t.Context(), "k:lock", another, TTL(time.Minute))
		c, _ := newLoading(t, store, LoadOptions{Lock: time.Minute})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		n := 0
		c.GetOrLoad(ctx, "k", func(ctx context.Context) (string, error) { n++; return "v", nil })
		synctest.Wait()
		c.Close()
		if n != 0 {
			t.Errorf("loader called %d times after its only caller has left", n)
		}
	})
}

// TestSlowLoadIsStored: a loader that needs longer than its time has its value stored all the same.
func TestSlowLoadIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newLoading(t, ctxStore{newClockwork()}, LoadOptions{Timeout: time.Second})
		n := 0
		load := func(ctx context.Context) (string, error) { n++; time.Sleep(2 * time.Second); return "v", nil }
		for range 3 {
			if v, err := valueOf(c.GetOrLoad(t.Context(), "k", load)); v != "v" || err != nil {
				t.Errorf("%q, %v", v, err)
			}
		}
		if n != 1 {
			t.Errorf("%d loads", n)
		}
	})
}

type ctxStore struct{ *clockwork }

func (s ctxStore) Set(ctx context.Context, key string, value []byte, e Expiry) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.clockwork.Set(ctx, key, value, e)
}

// TestStaleWhenRedisFails: the old value that the caller has seen is enough.
func TestStaleWhenRedisFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &failSecond{clockwork: newClockwork()}
		c, _ := newLoading(t, s, LoadOptions{StaleIfError: time.Hour, Beta: -1})
		fail := false
		load := func(ctx context.Context) (string, error) {
			if fail {
				return "", errors.New("down")
			}
			return "v", nil
		}
		c.GetOrLoad(t.Context(), "k", load, TTL(time.Second))
		time.Sleep(2 * time.Second)
		fail = true
		s.on.Store(true)
		v, err := valueOf(c.GetOrLoad(t.Context(), "k", load, TTL(time.Second)))
		if v != "v" {
			t.Errorf("%q, %v", v, err)
		}
	})
}

// failSecond fails from the second Get on.
type failSecond struct {
	*clockwork
	n  atomic.Int64
	on atomic.Bool
}

func (s *failSecond) Get(ctx context.Context, key string) ([]byte, error) {
	if s.on.Load() && s.n.Add(1) > 1 {
		return nil, errors.New("redis down")
	}
	return s.clockwork.Get(ctx, key)
}

// TestOneRefresh: callers whose read was answered before a refresh stored its value do not start
// another one.
func TestOneRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newLoading(t, &slow{clockwork: newClockwork(), get: time.Millisecond}, LoadOptions{Beta: 1})
		src := &source{takes: 100 * time.Millisecond}
		c.GetOrLoad(t.Context(), "k", src.load, TTL(time.Minute))
		time.Sleep(time.Minute - 200*time.Millisecond)
		before := src.loads.Load()
		var wg sync.WaitGroup
		for range 1500 { // 10 calls a ms for 150 ms; it would expire in 200
			for range 10 {
				wg.Go(func() { c.GetOrLoad(t.Context(), "k", src.load, TTL(time.Minute)) })
			}
			time.Sleep(100 * time.Microsecond)
		}
		time.Sleep(time.Second)
		wg.Wait()
		if n := src.loads.Load() - before; n != 1 {
			t.Errorf("%d refreshes of one value", n)
		}
	})
}

// TestPanickingCodec: it harms those who wait, with an error, and nobody else.
func TestPanickingCodec(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(newClockwork(), Options[string]{Codec: panicking{}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, err := c.GetOrLoad(t.Context(), "k", func(context.Context) (string, error) { time.Sleep(1); return "v", nil }, TTL(time.Second))
				if !errors.Is(err, ErrCodec) || !strings.Contains(err.Error(), "panic with a value of type string") {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

type panicking struct{}

func (panicking) Append([]byte, string) ([]byte, error) { panic("the codec") }
func (panicking) Decode([]byte, *string) error          { return nil }

// TestCodecThatCannotEncode: nobody shares a value; those who would have to get an error.
func TestCodecThatCannotEncode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(newClockwork(), Options[map[string]int]{Codec: refusing{}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		load := func(context.Context) (map[string]int, error) { time.Sleep(time.Second); return map[string]int{}, nil }
		if v, err := valueOf(c.GetOrLoad(t.Context(), "k", load)); v == nil || err != nil {
			t.Errorf("alone: %v, %v", v, err)
		}
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				v, err := valueOf(c.GetOrLoad(t.Context(), "k", load))
				if err == nil {
					v["a"] = i // the race detector looks on
				} else if !errors.Is(err, errRefusing) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

var errRefusing = errors.New("no encoding")

type refusing struct{}

func (refusing) Append(dst []byte, _ map[string]int) ([]byte, error) { return dst, errRefusing }
func (refusing) Decode([]byte, *map[string]int) error                { return nil }

// hanging is a Store that answers nothing while it hangs, as a client does that tries again until
// the context ends.
type hanging struct {
	*clockwork
	hangs atomic.Bool
}

func (h *hanging) wait(ctx context.Context) error {
	if !h.hangs.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (h *hanging) Get(ctx context.Context, key string) ([]byte, error) {
	if err := h.wait(ctx); err != nil {
		return nil, err
	}
	return h.clockwork.Get(ctx, key)
}

func (h *hanging) Set(ctx context.Context, key string, value []byte, e Expiry) error {
	if err := h.wait(ctx); err != nil {
		return err
	}
	return h.clockwork.Set(ctx, key, value, e)
}

func (h *hanging) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error) {
	if err := h.wait(ctx); err != nil {
		return false, err
	}
	return h.clockwork.Swap(ctx, key, old, value, ttl)
}

// TestRedisHangs: GetOrLoad does without it after Patience, or half of its caller's time.
func TestRedisHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hanging{clockwork: newClockwork()}
		store.hangs.Store(true)
		c, counters := newLoading(t, store, LoadOptions{Lock: time.Minute})
		load := func(context.Context) (string, error) { return "loaded", nil }
		for _, test := range []struct{ deadline, want time.Duration }{{0, defaultPatience}, {time.Hour, defaultPatience}, {300 * time.Millisecond, 150 * time.Millisecond}} {
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if test.deadline > 0 {
				ctx, cancel = context.WithTimeout(ctx, test.deadline)
			}
			start := time.Now()
			if v, err := valueOf(c.GetOrLoad(ctx, "k", load)); v != "loaded" || err != nil || time.Since(start) != test.want {
				t.Errorf("deadline %v: %q, %v after %v", test.deadline, v, err, time.Since(start))
			}
			cancel()
		}
		if n := counters.Snapshot().Ops[stats.Get].Errors[stats.Timeout]; n != 3 {
			t.Errorf("%d timeouts are told", n)
		}
		// It stops in the middle: the value is there, and it is not waited for long that it is
		// stored.
		store.hangs.Store(false)
		start := time.Now()
		if v, err := valueOf(c.GetOrLoad(t.Context(), "l", func(context.Context) (string, error) {
			store.hangs.Store(true)
			return "loaded", nil
		})); v != "loaded" || err != nil || time.Since(start) != defaultPatience {
			t.Errorf("%q, %v after %v", v, err, time.Since(start))
		}
	})
}

// TestLoadedValueIsNotWithheld: Redis hangs after the load. Callers get the outcome of the load
// after half of the time they have left, each a copy of its own.
func TestLoadedValueIsNotWithheld(t *testing.T) {
	for _, lock := range []time.Duration{0, 3 * time.Second} {
		for _, fails := range []error{nil, ErrNotFound, errors.New("down")} {
			if fails != nil && lock == 0 {
				continue // nothing is left to do in Redis
			}
			synctest.Test(t, func(t *testing.T) {
				store := &hanging{clockwork: newClockwork()}
				c, err := New(store, Options[map[string]int]{Load: LoadOptions{Lock: lock}})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				load := func(context.Context) (map[string]int, error) {
					store.hangs.Store(true)
					time.Sleep(time.Second)
					return map[string]int{"a": 1}, fails
				}
				var all sync.WaitGroup
				call := func(deadline, want time.Duration) {
					all.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), deadline)
						defer cancel()
						start := time.Now()
						e, err := c.GetOrLoad(ctx, "k", load, TTL(time.Hour))
						if got := time.Since(start); fails == nil && (err != nil || len(e.Value) != 1 || got != want) || !errors.Is(err, fails) {
							t.Errorf("lock %v, deadline %v: %v, %v after %v, want %v after %v", lock, deadline, e, err, got, fails, want)
						}
						if e.Value != nil {
							e.Value["mine"] = 2
						}
					})
					synctest.Wait()
				}
				call(1200*time.Millisecond, 1100*time.Millisecond)
				time.Sleep(100 * time.Millisecond)
				store.hangs.Store(true) // the second caller does not read it
				call(1300*time.Millisecond, 1100*time.Millisecond)
				time.Sleep(1050 * time.Millisecond)
				if old, ok := c.Old("k"); fails == nil && (!ok || old.Value["a"] != 1 || len(old.Value) != 1 || old.Expires.After(time.Now())) || ok != (fails == nil) {
					t.Errorf("lock %v: Old has %+v, %v", lock, old, ok)
				}
				store.hangs.Store(false)
				all.Wait()
			})
		}
	}
}

// expiring is a hanging Store that can say how long keys live on, and counts how often it is asked.
type expiring struct {
	*hanging
	asked atomic.Int64
	err   error // of PTTL
}

func (s *expiring) PTTL(ctx context.Context, keys []string) ([]int64, error) {
	s.asked.Add(1)
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	ms := make([]int64, len(keys))
	for i, key := range keys {
		ms[i] = -1
		if end, ok := s.ends[key]; ok {
			ms[i] = time.Until(end).Milliseconds()
		}
	}
	return ms, s.err
}

// TestExpires: GetOrLoad does not ask for the expiry of a value, and Expires does so for no longer
// than Patience.
func TestExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &expiring{hanging: &hanging{clockwork: newClockwork()}}
		c, _ := newLoading(t, store, LoadOptions{})
		load := func(context.Context) (string, error) { return "loaded", nil }
		ends := time.Now().Add(time.Hour)
		c.Set(t.Context(), "set", "set", TTL(time.Hour))
		for _, key := range []string{"set", "loaded", "loaded"} {
			if got, err := c.GetOrLoad(t.Context(), key, load, NoExpiry()); got.Value != key || !got.Expires.IsZero() || err != nil {
				t.Errorf("%s: %+v, %v", key, got, err)
			}
		}
		if n := store.asked.Load(); n != 0 {
			t.Errorf("asked %d times", n)
		}
		if got := c.Expires(t.Context(), "set", "loaded"); !slices.EqualFunc(got, []time.Time{ends, {}}, time.Time.Equal) {
			t.Errorf("they expire at %v, not %v and never", got, ends)
		}
		c, _ = newLoading(t, hungTTL{store}, LoadOptions{})
		start := time.Now()
		if got := c.Expires(t.Context(), "set")[0]; !got.Equal(start) || time.Since(start) != defaultPatience {
			t.Errorf("PTTL hangs: %v after %v", got, time.Since(start))
		}
	})
}

// TestExpiryThatCannotBeAsked: if PTTL fails, the caller gets the value but must not cache it. The
// log has one message.
func TestExpiryThatCannotBeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := &expiring{hanging: &hanging{clockwork: newClockwork()}, err: errors.New("NOPERM this user has no permissions to run the 'pttl' command")}
		c, err := New(store, Options[string]{Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.Set(t.Context(), "k", "set", TTL(time.Hour))
		got, err2 := c.GetEntry(t.Context(), "k")
		many, err3 := c.GetEntries(t.Context(), "k")
		if err := errors.Join(err2, err3); err != nil {
			t.Error(err)
		}
		for _, e := range []Entry[string]{got, many["k"], {Value: "set", Expires: c.Expires(t.Context(), "k")[0]}} {
			if e.Value != "set" || !e.Expires.Equal(time.Now()) {
				t.Errorf("%+v, want it to expire now", e)
			}
		}
		if line := log.String(); strings.Count(line, "\n") != 1 || !strings.Contains(line, "key=k") || !strings.Contains(line, "NOPERM") {
			t.Errorf("logged %q", line)
		}
	})
}

// hungTTL is a Store that does not answer PTTL.
type hungTTL struct{ *expiring }

func (h hungTTL) PTTL(ctx context.Context, _ []string) ([]int64, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestMistakesOfUnit: a number without its unit is nanoseconds, which nobody means.
func TestMistakesOfUnit(t *testing.T) {
	for name, o := range map[string]Options[int]{"TTL": {TTL: 60}, "Load.NegativeTTL": {Load: LoadOptions{NegativeTTL: 60}}, "Load.Lock": {Load: LoadOptions{Lock: 1}}, "Load.Patience": {Load: LoadOptions{Patience: -1}}} {
		if _, err := New(newMemory(), o); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), name+" is") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := TTL(60).Validate(); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "60ns") {
		t.Error(err)
	}
}

// TestErrCodec: an error of the codec differs from an error of unpacking.
func TestErrCodec(t *testing.T) {
	store := newMemory()
	c, err := New(store, Options[int]{})
	if err != nil {
		t.Fatal(err)
	}
	store.values["k"] = []byte("not JSON")
	if _, err := c.Get(t.Context(), "k"); !errors.Is(err, ErrCodec) || errors.Is(err, ErrCorrupt) || ErrorClass(err) != stats.Codec {
		t.Error(err)
	}
}

// TestDistantExpiries: 292 years are the longest time.Duration, and Redis keeps keys for longer.
func TestDistantExpiries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newClockwork()
		c, _ := newLoading(t, store, LoadOptions{StaleIfError: time.Hour})
		longest := TTL(math.MaxInt64)
		if v, err := valueOf(c.GetOrLoad(t.Context(), "k", new(source).load, longest)); v != "value 1" || err != nil {
			t.Fatalf("%q, %v", v, err)
		}
		if end := store.ends["k"]; end.Sub(time.Now()) < longest.in-time.Second {
			t.Errorf("the key expires at %v", end)
		}
		store.values["old"] = []byte(`"x"`)
		c, _ = newLoading(t, ages{store, math.MaxInt64}, LoadOptions{})
		if e, err := c.GetEntry(t.Context(), "old"); err != nil || e.Expires.Sub(time.Now()) < longest.in-time.Second {
			t.Errorf("the entry is %+v, %v", e, err)
		}
	})
}

// ages is a Store whose keys all live on as long.
type ages struct {
	*clockwork
	ms int64
}

func (s ages) PTTL(_ context.Context, keys []string) ([]int64, error) {
	return slices.Repeat([]int64{s.ms}, len(keys)), nil
}

// TestForeignLock: whoever can write KEY:lock cannot stop the loads of a key. What is there stays.
func TestForeignLock(t *testing.T) {
	plain := func(s *clockwork) Store { return s }
	lasting := func(ttl time.Duration) func(*clockwork) Store {
		return func(s *clockwork) Store { return ages{s, ttl.Milliseconds()} }
	}
	forever := lasting(-time.Millisecond)
	for _, test := range []struct {
		name, content string
		store         func(*clockwork) Store
		loads         bool
	}{
		{"another value", `{"a":"value"}`, plain, true},
		{"nothing", "", plain, true},
		{"large", strings.Repeat("A", 1<<20), plain, true},
		{"token of another alphabet", strings.ToLower(string(another)), plain, true},
		{"mark without a token", "absent:", plain, true},
		{"lock without an expiry", string(another), forever, true},
		{"lock of a day", string(another), lasting(24 * time.Hour), true},
		{"failure without an expiry", "failed", forever, true},
		{"lock", string(another), lasting(time.Minute), false},
		{"failure", "failed", lasting(time.Minute), false},
		{"lock of a store that does not know", string(another), plain, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := newClockwork()
			store.values["k:lock"] = []byte(test.content)
			c, _ := newLoading(t, test.store(store), LoadOptions{Lock: time.Minute})
			start := time.Now()
			v, err := valueOf(c.GetOrLoad(t.Context(), "k", new(source).load))
			if test.loads != (v == "value 1" && err == nil && time.Since(start) == 0) {
				t.Errorf("%s: %q, %v after %v", test.name, v, err, time.Since(start))
			}
			if got, err := c.Get(t.Context(), "k"); test.loads && (got != v || err != nil) {
				t.Errorf("%s: stored is %q, %v", test.name, got, err)
			}
			if got := store.values["k:lock"]; string(got) != test.content {
				t.Errorf("%s: the lock's key holds %.50q", test.name, got)
			}
		})
	}
}

// TestLockThatLosesItsExpiry: a forged lock that expires at first, and then no more, holds a load
// up for two times Lock at most. Redis is asked once each time.
func TestLockThatLosesItsExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lock = 2 * time.Second
		store := &persisted{clockwork: newClockwork(), at: time.Now().Add(5 * lock)}
		store.values["k:lock"] = another
		c, _ := newLoading(t, store, LoadOptions{Lock: lock, Timeout: time.Minute})
		start := time.Now()
		v, err := valueOf(c.GetOrLoad(t.Context(), "k", new(source).load))
		if took := time.Since(start); v != "value 1" || err != nil || took < 5*lock || took > 7*lock {
			t.Errorf("%q, %v after %v of the fake clock", v, err, took)
		}
		if n := store.asked.Load(); n > 7 {
			t.Errorf("PTTL is asked %d times", n)
		}
	})
}

// persisted is a Store whose keys lose their expiry at a time.
type persisted struct {
	*clockwork
	at    time.Time
	asked atomic.Int64
}

func (s *persisted) PTTL(_ context.Context, keys []string) ([]int64, error) {
	s.asked.Add(1)
	ms := int64(1000)
	if !time.Now().Before(s.at) {
		ms = -1
	}
	return slices.Repeat([]int64{ms}, len(keys)), nil
}

// TestLockIsNotTriedWithoutAPause where Redis neither gives it nor says who has it.
func TestLockIsNotTriedWithoutAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &taken{clockwork: newClockwork()}
		c, _ := newLoading(t, store, LoadOptions{Lock: time.Second, Timeout: 10 * time.Second})
		if _, err := c.GetOrLoad(t.Context(), "k", new(source).load); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if n := store.swaps.Load(); n > 1000 { // two for each 50 ms or more
			t.Errorf("%d attempts in 10 s", n)
		}
	})
}

// taken is a Store that gives no lock.
type taken struct {
	*clockwork
	swaps atomic.Int64
}

func (s *taken) Swap(context.Context, string, []byte, []byte, time.Duration) (bool, error) {
	if s.swaps.Add(1) > 100_000 {
		return false, errors.New("too often") // ends a loop without a pause
	}
	return false, nil
}
