package near

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/balekv/bale"
	balerueidis "github.com/balekv/bale/adapter/rueidis"
	"github.com/balekv/bale/internal/redisproc"
)

// ledger knows when each value of some keys was overwritten, at the latest. Values count upwards.
type ledger struct {
	start time.Time
	keys  []string
	ends  [][]atomic.Int64 // by key and value: after this time it was not in Redis any more; zero while it may be
	last  []atomic.Int64   // by key, the value that was written last
}

const mostValues = 1 << 20

func newLedger(keys int) *ledger {
	l := &ledger{start: time.Now(), last: make([]atomic.Int64, keys)}
	for i := range keys {
		l.keys = append(l.keys, fmt.Sprintf("k%d", i))
		l.ends = append(l.ends, make([]atomic.Int64, mostValues))
	}
	return l
}

func (l *ledger) now() int64 { return int64(time.Since(l.start)) }

// run writes by one cache and reads by another until stop returns. Each value that is read was in
// Redis at most maxAge before the call. Errors of Redis are the test's doing, where it allows them.
func (l *ledger) run(t *testing.T, writer *bale.Cache[int], reader *Cache[int], maxAge time.Duration, errorsAllowed bool, stop func()) {
	ctx := t.Context()
	done := make(chan struct{})
	var all sync.WaitGroup
	over := func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
	var reads, kept atomic.Int64
	for i, key := range l.keys {
		all.Go(func() {
			for n := 1; !over() && n < mostValues; {
				if err := writer.Set(ctx, key, n); err != nil {
					if !errorsAllowed {
						t.Error(err)
						return
					}
					time.Sleep(time.Millisecond)
					continue // with the same value: whether it was written is unknown
				}
				l.ends[i][n-1].Store(l.now())
				l.last[i].Store(int64(n))
				n++
				if n%16 == 0 {
					time.Sleep(2 * time.Millisecond) // readers find something that is kept
				}
			}
		})
	}
	for r := range 4 {
		all.Go(func() {
			for !over() {
				for i, key := range l.keys {
					before := l.now()
					var got map[string]int
					var err error
					var n int
					switch r % 3 {
					case 0:
						n, err = reader.Get(ctx, key)
					case 1:
						n, err = getOrLoad(ctx, reader, key, none)
					default:
						got, err = reader.GetMany(ctx, l.keys...)
					}
					if got == nil && err == nil {
						got = map[string]int{key: n}
					}
					if err != nil && !errors.Is(err, bale.ErrNotFound) && !errorsAllowed {
						t.Error(err)
						return
					}
					for j, key := range l.keys {
						n, ok := got[key]
						if !ok {
							continue
						}
						reads.Add(1)
						if end := l.ends[j][n].Load(); end != 0 && end < before {
							kept.Add(1)
							if late := time.Duration(before - end); late > maxAge {
								t.Errorf("a call got value %d of key %d, which had been overwritten %v before it; MaxAge is %v", n, i, late, maxAge)
								return
							}
						}
					}
					time.Sleep(50 * time.Microsecond)
				}
			}
		})
	}
	stop()
	close(done)
	all.Wait()
	t.Logf("%d values read, %d of them were not in Redis any more when the call came", reads.Load(), kept.Load())
}

// settled waits until all that is read is what is in Redis.
func (l *ledger) settled(t *testing.T, writer *bale.Cache[int], reader *Cache[int]) {
	t.Helper()
	await(t, "what is kept does not become what is in Redis", func() bool {
		want, err := writer.GetMany(t.Context(), l.keys...)
		if err != nil {
			return false // the server comes back
		}
		got, err := reader.GetMany(t.Context(), l.keys...)
		if err != nil || len(got) != len(want) {
			return false
		}
		for key, n := range want {
			if got[key] != n {
				return false
			}
		}
		return true
	})
}

// TestPromise: connections and the server fail in any way, and no call gets a value that was
// overwritten more than MaxAge before it. When all is quiet, every value is as in Redis.
func TestPromise(t *testing.T) {
	const maxAge = 150 * time.Millisecond
	const interval = 50 * time.Millisecond
	for name, test := range map[string]struct {
		maxAge  time.Duration
		listen  bool
		patient bool // with connections that do not answer
		trouble func(t *testing.T, s *redisproc.Server, p *proxy, near *Cache[int])
	}{
		"by age alone":        {maxAge, false, false, nil},
		"no trouble":          {maxAge, true, false, nil},
		"invalidations alone": {time.Hour, true, false, nil},
		"connections killed": {maxAge, true, false, func(t *testing.T, s *redisproc.Server, _ *proxy, near *Cache[int]) {
			for range 10 {
				before := near.Stats().Resets
				for _, kind := range []string{"normal", "pubsub"} {
					if _, err := s.Do(t.Context(), "CLIENT", "KILL", "TYPE", kind); err != nil {
						t.Error(err)
					}
				}
				await(t, "the loss is not noticed", func() bool { return near.Stats().Resets > before })
			}
		}},
		"half-open connection": {maxAge, true, false, func(t *testing.T, _ *redisproc.Server, p *proxy, near *Cache[int]) {
			for range 3 {
				before := near.Stats().Resets
				p.freeze()
				time.Sleep(2 * maxAge) // nothing to wait for: it is just that long
				await(t, "the loss is not noticed", func() bool { return near.Stats().Resets > before })
				p.thaw()
				before = near.Stats().Resets
				await(t, "it does not listen again", func() bool { return near.Stats().Resets > before })
			}
		}},
		"half-open connection, and nobody notices": {maxAge, true, true, func(t *testing.T, _ *redisproc.Server, p *proxy, _ *Cache[int]) {
			p.freeze()
			time.Sleep(4 * maxAge)
			p.thaw()
		}},
		"server stopped": {maxAge, true, false, func(t *testing.T, s *redisproc.Server, _ *proxy, near *Cache[int]) {
			for range 2 {
				before := near.Stats().Resets
				if err := syscall.Kill(s.PID(), syscall.SIGSTOP); err != nil {
					t.Error(err)
				}
				time.Sleep(2 * maxAge)
				if err := syscall.Kill(s.PID(), syscall.SIGCONT); err != nil {
					t.Error(err)
				}
				await(t, "the loss is not noticed", func() bool { return near.Stats().Resets > before })
			}
		}},
		"server restarted": {maxAge, true, false, func(t *testing.T, s *redisproc.Server, _ *proxy, near *Cache[int]) {
			for range 2 {
				before := near.Stats().Resets
				if err := s.Restart(t.Context()); err != nil {
					t.Error(err)
				}
				await(t, "the loss is not noticed", func() bool { return near.Stats().Resets > before })
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			server := redisproc.ForTest(t)
			p := newProxy(t, server.Addr())
			writer := direct[int](t, newStore(t, server.Addr()))
			o := Options[int]{MaxAge: test.maxAge}
			interval := interval
			if test.patient {
				interval = time.Minute
			}
			if test.listen {
				o.Invalidations = invalidations(t, connect(t, rueidis.ClientOption{}, p.listener.Addr().String()), interval)
			}
			near := newCache(t, newStore(t, server.Addr()), o)
			if test.listen {
				listening(t, near, 1)
			}
			l := newLedger(3)
			l.run(t, writer, near, test.maxAge, test.trouble != nil, func() {
				if test.trouble != nil {
					test.trouble(t, server, p, near)
				}
				time.Sleep(2 * maxAge)
				await(t, "nothing was kept, or no write is announced", func() bool {
					s := near.Stats()
					return s.Hits > 0 && s.Misses > 0 && (s.Invalidations > 0 || !test.listen)
				})
			})
			l.settled(t, writer, near)
			s := near.Stats()
			if s.Invalidations > 0 && !test.listen {
				t.Errorf("%+v", s)
			}
			t.Logf("%+v", s)
		})
	}
}

// TestLate: a value whose reading took longer than MaxAge is not kept for another, nor do calls
// that come so late share the reading.
func TestLate(t *testing.T) {
	ctx := t.Context()
	server := redisproc.ForTest(t)
	store := &gated{Store: newStore(t, server.Addr()), gate: make(chan struct{}), read: make(chan struct{}, 1)}
	const maxAge = 200 * time.Millisecond
	near := newCache(t, store, Options[string]{MaxAge: maxAge})
	got := make(chan string, 2)
	get := func() {
		v, err := near.Get(ctx, "k")
		if err != nil {
			t.Error(err)
		}
		got <- v
	}
	late := func() {
		t.Helper()
		do(t, server, "SET k a")
		go get()
		next(t, store.read) // Redis has answered
		do(t, server, "SET k b")
		began := near.now()
		await(t, "time stands still", func() bool { return near.now()-began > maxAge })
	}
	late()
	store.gate <- struct{}{}
	if v := <-got; v != "a" {
		t.Errorf("got %q", v)
	}
	go get()
	next(t, store.read)
	store.gate <- struct{}{}
	if v := <-got; v != "b" {
		t.Errorf("then %q", v)
	}

	near.drop("k")
	late()
	go get()
	next(t, store.read) // the second call reads by itself
	close(store.gate)
	first, second := <-got, <-got
	if first != "b" && second != "b" {
		t.Errorf("got %q and %q", first, second)
	}
	store.read = nil
	if v, err := near.Get(ctx, "k"); err != nil || v != "b" {
		t.Errorf("then %q, %v", v, err)
	}
}

// TestCluster: the changes on all nodes are seen, also by one who connects to them before there is
// a value.
func TestCluster(t *testing.T) {
	const keys = 60 // some on each node
	cluster := redisproc.ClusterForTest(t, 3)
	client := connect(t, rueidis.ClientOption{}, cluster.Addrs()...)
	near := newCache(t, balerueidis.NewStore(client, balerueidis.StoreOptions{}), Options[int]{MaxAge: time.Hour, Invalidations: invalidations(t, client, 100*time.Millisecond)})
	writer := direct[int](t, newStore(t, cluster.Addrs()...))
	listening(t, near, 3)
	l := newLedger(keys)
	for round := 1; round <= 5; round++ {
		values := map[string]int{}
		for _, key := range l.keys {
			values[key] = round
		}
		if err := writer.SetMany(t.Context(), values); err != nil {
			t.Fatal(err)
		}
		l.settled(t, writer, near)
		await(t, "nothing is kept", func() bool {
			before := near.Stats()
			if _, err := near.GetMany(t.Context(), l.keys...); err != nil {
				t.Fatal(err)
			}
			return near.Stats().Hits == before.Hits+keys
		})
	}
	for _, s := range cluster.Servers {
		before := near.Stats().Resets
		if _, err := s.Do(t.Context(), "FLUSHALL"); err != nil {
			t.Fatal(err)
		}
		await(t, "a flush is not seen", func() bool { return near.Stats().Resets > before })
	}
	if got, err := near.GetMany(t.Context(), l.keys...); err != nil || len(got) != 0 {
		t.Errorf("%d values, %v", len(got), err)
	}
	l.run(t, writer, near, time.Hour, false, func() { time.Sleep(300 * time.Millisecond) })
	l.settled(t, writer, near)
}
