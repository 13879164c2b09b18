package batch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/balekv/bale"
	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/internal/memstore"
	"github.com/balekv/bale/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a Store that notes its pipelines.
type memory struct {
	bale.Store
	mu        sync.Mutex
	values    map[string]string
	expiries  map[string]bale.Expiry
	pipelines [][]string // the keys
	takes     time.Duration
	refuse    map[string]bool
	fail      error
	others    []string
}

func newMemory() *memory {
	return &memory{values: map[string]string{}, expiries: map[string]bale.Expiry{}, refuse: map[string]bool{}}
}

var errRefused = errors.New("refused")

func (m *memory) SetMany(ctx context.Context, items []bale.Item) error {
	m.mu.Lock()
	takes := m.takes
	m.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var keys []string
	var failed bale.KeyErrors
	for _, item := range items {
		keys = append(keys, item.Key)
		if m.refuse[item.Key] {
			failed = append(failed, &bale.KeyError{Op: "set", Key: item.Key, Err: errRefused})
			continue
		}
		if m.fail == nil {
			m.values[item.Key], m.expiries[item.Key] = string(item.Value), item.Expiry
		}
	}
	m.pipelines = append(m.pipelines, keys)
	if m.fail != nil {
		return m.fail
	}
	if failed != nil {
		return failed
	}
	return nil
}

// sent are the keys of the pipelines so far.
func (m *memory) sent() [][]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.pipelines)
}

func (m *memory) Get(_ context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v, ok := m.values[key]; ok {
		return []byte(v), nil
	}
	return nil, bale.ErrNotFound
}

func (m *memory) GetMany(ctx context.Context, keys []string) ([][]byte, error) {
	values := make([][]byte, len(keys))
	for i, k := range keys {
		values[i], _ = m.Get(ctx, k)
	}
	return values, nil
}

func (m *memory) other(what string, keys ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range keys {
		what += " " + k + "=" + m.values[k]
	}
	m.others = append(m.others, what)
}

func (m *memory) Delete(_ context.Context, keys []string) (int, error) {
	m.other("delete", keys...)
	return len(keys), nil
}

func (m *memory) Touch(_ context.Context, key string, _ bale.Expiry) (bool, error) {
	m.other("touch", key)
	return true, nil
}

func (m *memory) Swap(_ context.Context, key string, _, _ []byte, _ time.Duration) (bool, error) {
	m.other("swap", key)
	return true, nil
}

func newStore(t *testing.T, m *memory, o Options) *Store {
	t.Helper()
	s, err := New(m, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestWhenItSends: a batch is sent when it has enough values, or when the first has waited long
// enough.
func TestWhenItSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s := newStore(t, m, Options{Lanes: 1})
		set := func(n int) {
			for i := range n {
				if err := s.Set(t.Context(), fmt.Sprint("k", i), []byte("v"), bale.TTL(time.Minute)); err != nil {
					t.Fatal(err)
				}
			}
		}
		set(99)
		synctest.Wait()
		if len(m.sent()) != 0 {
			t.Fatal("99 values are enough")
		}
		set(100)
		synctest.Wait()
		if len(m.sent()) != 1 || len(m.sent()[0]) != 100 {
			t.Fatalf("%d pipelines", len(m.sent()))
		}
		set(1)
		time.Sleep(49 * time.Millisecond)
		set(2)
		synctest.Wait()
		if len(m.sent()) != 1 {
			t.Fatal("sent before its time")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if len(m.sent()) != 2 || len(m.sent()[1]) != 2 {
			t.Fatalf("%q", m.sent()[1:])
		}
		if got := m.expiries["k1"]; got != bale.TTL(time.Minute) {
			t.Errorf("expiry %v", got)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(m.sent()) != 2 {
			t.Error("nothing is sent as a pipeline")
		}
		// Values that arrive while a pipeline is in flight go out as one.
		m.mu.Lock()
		m.takes = time.Second
		m.mu.Unlock()
		set(100)
		synctest.Wait()
		set(250 - 100)
		for i := range 100 {
			s.Set(t.Context(), fmt.Sprint("l", i), nil, bale.Expiry{})
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if n := len(m.sent()); n != 4 || len(m.sent()[3]) != 250 {
			t.Errorf("%d pipelines, the last of %d", n, len(m.sent()[n-1]))
		}
	})
}

// TestLastWins: of several values for a key the last one gets there, and what is buffered is what
// Get sees.
func TestLastWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		m := newMemory()
		m.takes = time.Second
		s := newStore(t, m, Options{})
		for round := range 5 {
			for i := range 50 {
				value := fmt.Append(nil, round, " ", i)
				if i == 49 {
					value = value[:0]
				}
				key := fmt.Sprint("k", i)
				if err := s.Set(ctx, key, value, bale.Expiry{}); err != nil {
					t.Fatal(err)
				}
				want := string(value)
				for j := range value {
					value[j] = 'X' // the caller's again
				}
				got, err := s.Get(ctx, key)
				if err != nil || got == nil || string(got) != want {
					t.Errorf("%q, %v, want %q", got, err, want)
				}
				clear(got)
				many, err := s.GetMany(ctx, []string{"none", key})
				if err != nil || many[0] != nil || many[1] == nil || string(many[1]) != want {
					t.Errorf("%q, %v, want %q", many, err, want)
				}
			}
			time.Sleep(time.Duration(rand.Int64N(int64(2 * time.Second))))
		}
		if err := s.Flush(ctx); err != nil {
			t.Error(err)
		}
		for i := range 49 {
			if got := m.values[fmt.Sprint("k", i)]; got != fmt.Sprint("4 ", i) {
				t.Errorf("k%d is %q", i, got)
			}
		}
		// A value that expires before it gets there is not seen.
		s.Set(ctx, "k1", []byte("v"), bale.ExpireAt(time.Now().Add(time.Millisecond)))
		time.Sleep(2 * time.Millisecond)
		if _, err := s.Get(ctx, "k1"); !errors.Is(err, bale.ErrNotFound) {
			t.Error(err)
		}
	})
}

// TestErrors: each failure is reported once, to the caller, Failed or Flush.
func TestErrors(t *testing.T) {
	down := errors.New("connection refused")
	for _, mode := range []string{"wait", "failed", "flush", "close"} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				m := newMemory()
				m.refuse["k3"] = true
				told := map[string]error{}
				var mu sync.Mutex
				tell := func(failed bale.KeyErrors) {
					mu.Lock()
					defer mu.Unlock()
					for _, f := range failed {
						if told[f.Key] != nil {
							t.Errorf("%s is told twice", f.Key)
						}
						told[f.Key] = f.Err
					}
				}
				tellErr := func(err error) {
					if failed, ok := err.(bale.KeyErrors); ok {
						tell(failed)
					} else if err != nil {
						t.Errorf("%T", err)
					}
				}
				o := Options{Wait: mode == "wait"}
				if mode == "failed" {
					o.Failed = tell
				}
				s := newStore(t, m, o)
				set := func() {
					var wg sync.WaitGroup
					for i := range 10 {
						wg.Go(func() {
							key := fmt.Sprint("k", i)
							if err := s.Set(ctx, key, nil, bale.Expiry{}); err != nil {
								tell(bale.KeyErrors{{Key: key, Err: err}})
							}
						})
					}
					wg.Wait()
					time.Sleep(time.Second)
					synctest.Wait()
				}
				end := func() {
					switch mode {
					case "close":
						tellErr(s.Close())
					default:
						tellErr(s.Flush(ctx))
					}
				}
				if mode != "close" {
					set()
					end()
					if len(told) != 1 || !errors.Is(told["k3"], errRefused) {
						t.Errorf("%v", told)
					}
					told = map[string]error{}
				}
				m.fail = down
				set()
				end()
				if len(told) != 10 {
					t.Errorf("%d told: %v", len(told), told)
				}
				for key, err := range told {
					if !errors.Is(err, down) {
						t.Errorf("%s: %v", key, err)
					}
				}
				if mode == "wait" {
					err := s.SetMany(ctx, []bale.Item{{Key: "a"}, {Key: "b"}})
					if failed, ok := errors.AsType[bale.KeyErrors](err); !ok || len(failed) != 2 {
						t.Errorf("SetMany: %v", err)
					}
				}
			})
		})
	}
}

// panicking is a Store that cannot write.
type panicking struct{ bale.Store }

func (panicking) SetMany(context.Context, []bale.Item) error { panic("oh") }

// TestStorePanics: a Store that panics on a lane's own goroutine ends no program.
func TestStorePanics(t *testing.T) {
	s, err := New(panicking{}, Options{Wait: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	err = s.Set(t.Context(), "k", []byte("v"), bale.Expiry{})
	if p, ok := errors.AsType[*codec.PanicError](err); !ok || p.Value != "oh" {
		t.Error(err)
	}
}

// TestKeptErrorsAreBounded where nobody asks for them.
func TestKeptErrorsAreBounded(t *testing.T) {
	m := newMemory()
	m.fail = errors.New("down")
	s := newStore(t, m, Options{Lanes: 1})
	for i := range 5000 {
		if err := s.Set(t.Context(), fmt.Sprint(i), nil, bale.Expiry{}); err != nil {
			t.Fatal(err)
		}
	}
	err := s.Flush(t.Context())
	if failed, ok := errors.AsType[bale.KeyErrors](err); !ok || len(failed) != keptErrors || !strings.Contains(err.Error(), "and 4000 more failed") {
		t.Errorf("%d errors: %.200v", len(failed), err)
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Errorf("told again: %.200v", err)
	}
}

// TestFull: a buffer without room makes callers wait, or drops; and either way it is bounded.
func TestFull(t *testing.T) {
	value := make([]byte, 1000)
	for _, drop := range []bool{false, true} {
		t.Run(fmt.Sprint("drop ", drop), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory()
				m.takes = time.Second
				counters := stats.NewCounters(stats.CountersOptions{})
				s := newStore(t, m, Options{Lanes: 1, MaxBytes: 20_000, Drop: drop, Recorder: counters})
				dropped := 0
				done := make(chan int)
				go func() {
					for i := range 100 {
						if err := s.Set(t.Context(), fmt.Sprint("k", i), value, bale.Expiry{}); errors.Is(err, ErrFull) {
							dropped++
						} else if err != nil {
							t.Error(err)
						}
						l := s.lanes[0]
						l.mu.Lock()
						if used := l.filling.size + l.sent.size; used > 20_000 {
							t.Errorf("%d bytes are buffered", used)
						}
						l.mu.Unlock()
					}
					close(done)
				}()
				synctest.Wait()
				if drop != (dropped > 70) {
					t.Errorf("%d dropped", dropped)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				want := context.DeadlineExceeded
				if drop {
					want = ErrFull
				}
				if err := s.Set(ctx, "more", value, bale.Expiry{}); !errors.Is(err, want) {
					t.Errorf("a value more: %v", err)
				}
				<-done
				if err := s.Flush(t.Context()); err != nil {
					t.Error(err)
				}
				if len(m.values)+dropped != 100 {
					t.Errorf("%d stored, %d dropped", len(m.values), dropped)
				}
				told := counters.Snapshot().Ops[stats.Flush]
				if drop && told.Errors[stats.Dropped] != uint64(dropped)+1 || told.Stored != uint64(len(m.values))*1000 || told.Times[stats.Store].Count == 0 {
					t.Errorf("the recorder knows %+v", told.Errors)
				}
				// What is larger than the buffer goes alone.
				huge := bytes.Repeat([]byte("x"), 100_000)
				if err := s.Set(t.Context(), "huge", huge, bale.Expiry{}); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if m.values["huge"] != string(huge) {
					t.Error("the huge value is not there")
				}
			})
		})
	}
}

// TestLargeBesideSmall: a value larger than a lane's buffer gets its turn although small ones keep
// coming. If it gives up, the small ones go on.
func TestLargeBesideSmall(t *testing.T) {
	for _, givesUp := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory()
			m.takes = time.Second
			s := newStore(t, m, Options{Lanes: 1, MaxBytes: 20_000, Entries: 2})
			over := make(chan struct{})
			var small sync.WaitGroup
			for i := range 30 {
				small.Go(func() {
					for n := 0; ; n++ {
						select {
						case <-over:
							return
						default:
						}
						if err := s.Set(t.Context(), fmt.Sprintf("k%d:%d", i, n), make([]byte, 1000), bale.Expiry{}); err != nil {
							t.Error(err)
						}
					}
				})
			}
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if givesUp {
				ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
			}
			defer cancel()
			if err := s.Set(ctx, "large", make([]byte, 100_000), bale.Expiry{}); (err != nil) != givesUp {
				t.Errorf("%v, gives up: %v", err, givesUp)
			}
			sent := len(m.sent())
			time.Sleep(time.Minute)
			if len(m.sent()) < sent+10 {
				t.Errorf("%d pipelines in the next minute", len(m.sent())-sent)
			}
			close(over)
			small.Wait()
		})
	}
}

// TestOthersComeAfter: what is done to a key comes after the values that were set before.
func TestOthersComeAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		m := newMemory()
		m.takes = time.Second
		s := newStore(t, m, Options{})
		for _, v := range []string{"1", "2", "3"} {
			s.Set(ctx, "a", []byte(v), bale.Expiry{})
			s.Set(ctx, "b", []byte(v), bale.Expiry{})
			switch v {
			case "1":
				if n, err := s.Delete(ctx, []string{"a", "b", "c"}); n != 3 || err != nil {
					t.Error(n, err)
				}
			case "2":
				if ok, err := s.Touch(ctx, "a", bale.TTL(time.Second)); !ok || err != nil {
					t.Error(ok, err)
				}
			case "3":
				if ok, err := s.Swap(ctx, "a", nil, nil, 0); !ok || err != nil {
					t.Error(ok, err)
				}
			}
		}
		if diff := cmp.Diff([]string{"delete a=1 b=1 c=", "touch a=2", "swap a=3"}, m.others); diff != "" {
			t.Error(diff)
		}
		s.Set(ctx, "a", nil, bale.Expiry{})
		ended, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		for name, err := range map[string]error{"delete": second(s.Delete(ended, []string{"a"})), "touch": second(s.Touch(ended, "a", bale.Expiry{})), "flush": s.Flush(ended)} {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

// TestCloseLosesNothing: every Set that succeeded is in Redis after Close, whatever went on
// meanwhile.
func TestCloseLosesNothing(t *testing.T) {
	for range 20 {
		m := newMemory()
		s := newStore(t, m, Options{MaxBytes: 8000})
		var accepted sync.Map
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				for i := range 1000 {
					key := fmt.Sprint(w, ":", i)
					err := s.Set(t.Context(), key, []byte(key), bale.Expiry{})
					if errors.Is(err, ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
					}
					accepted.Store(key, true)
				}
			})
		}
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
		var closers sync.WaitGroup
		for range 3 {
			closers.Go(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		closers.Wait()
		wg.Wait()
		accepted.Range(func(key, _ any) bool {
			if m.values[key.(string)] != key {
				t.Errorf("%s is lost", key)
			}
			return true
		})
		if err := s.Set(t.Context(), "k", nil, bale.Expiry{}); !errors.Is(err, ErrClosed) {
			t.Errorf("Set after Close: %v", err)
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Errorf("Flush after Close: %v", err)
		}
	}
}

func TestOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"Entries": {Entries: -1}, "MaxBytes": {MaxBytes: 5}, "Lanes": {Lanes: 65}, "Delay": {Delay: -1}, "Timeout": {Timeout: -1},
	} {
		if _, err := New(newMemory(), o); !errors.Is(err, bale.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(nil, Options{}); !errors.Is(err, bale.ErrInvalid) {
		t.Error(err)
	}
}

// TestPipelineTimesOut: a store that hangs does not block a caller.
func TestPipelineTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.takes = time.Hour
		s := newStore(t, m, Options{Wait: true})
		if err := s.Set(t.Context(), "k", nil, bale.Expiry{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := s.Set(ctx, "k", nil, bale.Expiry{}); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > time.Second {
			t.Error(err, time.Since(start))
		}
	})
}

// TestWhoDoesNotWait: the error of a value whose caller has left is for Flush.
func TestWhoDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.fail, m.takes = errors.New("refused by Redis"), time.Second
		s := newStore(t, m, Options{Wait: true})
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if err := s.Set(ctx, "k", []byte("v"), bale.Expiry{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := s.Flush(t.Context()); !errors.Is(err, m.fail) {
			t.Errorf("Flush: %v", err)
		}
	})
}

// TestSentBytes: what is overwritten in the buffer is not sent, and not told as sent.
func TestSentBytes(t *testing.T) {
	m := newMemory()
	c := stats.NewCounters(stats.CountersOptions{})
	s := newStore(t, m, Options{Recorder: c})
	for range 10 {
		if err := s.Set(t.Context(), "k", make([]byte, 1000), bale.Expiry{}); err != nil {
			t.Error(err)
		}
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	if o := c.Snapshot().Ops[stats.Flush]; o.Stored != 1000 || o.Keys != 1 {
		t.Errorf("%d keys, %d bytes", o.Keys, o.Stored)
	}
}

// TestSwapComesAfterAll: a lock is given back after what was written under it is there.
func TestSwapComesAfterAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.takes = time.Second
		s := newStore(t, m, Options{})
		for i := range 20 {
			s.Set(t.Context(), fmt.Sprint("k", i), []byte("v"), bale.Expiry{})
		}
		if _, err := s.Swap(t.Context(), "lock", []byte("mine"), nil, 0); err != nil || len(m.values) != 20 {
			t.Errorf("%d of 20 values were there before, %v", len(m.values), err)
		}
	})
}

// BenchmarkSet is what a Set costs its caller, the store below costing nothing.
// TestPTTL: a Cache over a batch knows when the values in Redis expire, and keeps none that are not
// there yet.
func TestPTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := memstore.New()
		for key, e := range map[string]bale.Expiry{"ends": bale.TTL(time.Minute), "stays": {}} {
			if err := below.Set(t.Context(), key, []byte("v"), e); err != nil {
				t.Fatal(err)
			}
		}
		ask := func(store bale.Store) []int64 {
			t.Helper()
			s, err := New(store, Options{Delay: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if err := s.Set(t.Context(), "buffered", []byte("v"), bale.TTL(time.Minute)); err != nil {
				t.Fatal(err)
			}
			ms, err := s.PTTL(t.Context(), []string{"buffered", "stays", "missing", "ends"})
			if err != nil {
				t.Error(err)
			}
			c, err := bale.New(s, bale.Options[string]{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for i, end := range c.Expires(t.Context(), "buffered", "stays", "missing", "ends") {
				var want time.Time
				if ms[i] != -1 {
					want = time.Now().Add(time.Duration(max(ms[i], 0)) * time.Millisecond)
				}
				if !end.Equal(want) {
					t.Errorf("key %d expires at %v, want %v", i, end, want)
				}
			}
			return ms
		}
		if got := ask(below); !slices.Equal(got, []int64{-2, -1, -2, 60_000}) {
			t.Errorf("%d", got)
		}
		if got := ask(struct{ bale.Store }{below}); !slices.Equal(got, []int64{-2, -1, -1, -1}) {
			t.Errorf("a Store without PTTL: %d", got)
		}
	})
}

func BenchmarkSet(b *testing.B) {
	s, err := New(nowhere{}, Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	value := make([]byte, 300)
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprint("user:", i)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if err := s.Set(b.Context(), keys[i%len(keys)], value, bale.Expiry{}); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

type nowhere struct{ bale.Store }

func (nowhere) SetMany(context.Context, []bale.Item) error { return nil }
