package resilient

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/stats"
)

var errSick = errors.New("sick")

// sick is a call that fails after a time.
func sick(after time.Duration) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) { return 0, errors.Join(sleep(ctx, after), errSick) }
}

// well is a call that succeeds after a time.
func well(after time.Duration) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) { return 1, sleep(ctx, after) }
}

func sleep(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestAllocations: a call that succeeds allocates nothing, but for a context with an earlier
// deadline.
func TestAllocations(t *testing.T) {
	o := all()
	for timeout, want := range map[time.Duration]float64{0: 0, time.Second: 1} {
		o.Timeout = timeout
		g, call := guard(t, o), well(0)
		if n := testing.AllocsPerRun(1000, func() { Do(t.Context(), g, Read, call) }); n > want {
			t.Errorf("Timeout %v: %v allocations", timeout, n)
		}
	}
}

// TestDeadlineIsShared: each try has an equal part of the time that is left, if a retry may follow.
func TestDeadlineIsShared(t *testing.T) {
	for name, test := range map[string]struct {
		kind  Kind
		burst int
		want  []time.Duration
	}{
		"three tries":            {Read, 10, []time.Duration{time.Second, time.Second, time.Second}},
		"one that is not idempo": {Once, 10, []time.Duration{3 * time.Second}},
		"one retry left":         {Read, 1, []time.Duration{1500 * time.Millisecond, 1500 * time.Millisecond}},
	} {
		for _, own := range []bool{true, false} {
			t.Run(fmt.Sprint(name, own), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o := Options{Retry: Retry{Tries: 3, Delay: 1, Burst: test.burst}}
					ctx := t.Context()
					if own {
						o.Timeout = 3 * time.Second
					} else {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, 3*time.Second)
						defer cancel()
					}
					var got []time.Duration
					_, err := Do(ctx, guard(t, o), test.kind, func(ctx context.Context) (int, error) {
						at, _ := ctx.Deadline()
						got = append(got, time.Until(at).Round(time.Millisecond))
						<-ctx.Done()
						return 0, ctx.Err()
					})
					if !errors.Is(err, context.DeadlineExceeded) || !slices.Equal(got, test.want) {
						t.Errorf("%v, %v", got, err)
					}
				})
			})
		}
	}
}

// TestOver: a call whose context is over is not made.
func TestOver(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g := guard(t, all())
	if _, err := Do(ctx, g, Read, func(context.Context) (int, error) { t.Error("made"); return 0, nil }); err != context.Canceled {
		t.Error(err)
	}
	if s := g.Stats(); s.Tries != 0 || s.InFlight != 0 {
		t.Errorf("%+v", s)
	}
}

// TestDeadlineContext: it behaves as context.WithDeadline's, whatever is asked first.
func TestDeadlineContext(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		within := func() *deadline { return &deadline{Context: parent, at: time.Now().Add(time.Second)} }
		check := func(what string, ctx context.Context, want error) {
			t.Helper()
			done := false
			select {
			case <-ctx.Done():
				done = true
			default:
			}
			if ctx.Err() != want || done != (want != nil) || ctx.Value(key{}) != "value" {
				t.Errorf("%s: %v, %v, %v", what, ctx.Err(), done, ctx.Value(key{}))
			}
		}
		asked, unasked, finished, late := within(), within(), within(), within()
		check("at first", asked, nil)
		child, stop := context.WithTimeout(asked, time.Hour)
		defer stop()
		finished.finish()
		check("finished", finished, context.Canceled)
		asked2 := within()
		check("at first", asked2, nil)
		asked2.finish()
		check("asked, finished", asked2, context.Canceled)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if unasked.Err() != context.DeadlineExceeded {
			t.Error(unasked.Err())
		}
		check("later", asked, context.DeadlineExceeded)
		check("later, a child", child, context.DeadlineExceeded)
		check("later, not asked before", unasked, context.DeadlineExceeded)
		late.at = time.Now().Add(time.Second)
		cancel()
		check("with its parent", late, context.Canceled)
		for _, d := range []*deadline{asked, unasked, late} {
			d.finish()
		}
	})
}

// TestModel puts all policies together, over endpoints that fail, hang and come back at random, and
// checks what must hold whatever happens.
func TestModel(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 3))
				const burst = 5
				budget := 0.05 + rng.Float64()/4
				most := 1 + rng.IntN(30)
				g := guard(t, Options{
					Name: "random", Timeout: time.Duration(1+rng.IntN(1000)) * time.Millisecond,
					Retry:   Retry{Tries: 1 + rng.IntN(4), Budget: budget, Burst: burst},
					Breaker: Breaker{Failures: 0.3 + rng.Float64()/2, Open: time.Second},
					Limit:   Limit{Healthy: 10 * time.Millisecond, Min: 1, Max: most, Queue: rng.IntN(20) - 1},
					Hedge:   Hedge{Quantile: 0.9, Budget: 0.1, Burst: burst},
				})
				var mood, atOnce, made, well atomic.Int64 // of the endpoint
				call := func(ctx context.Context) (int, error) {
					made.Add(1)
					if n := atOnce.Add(1); n > int64(most) {
						t.Errorf("%d calls at once", n)
					}
					defer atOnce.Add(-1)
					if _, limited := ctx.Deadline(); !limited {
						t.Error("no deadline")
					}
					var err error
					switch mood.Load() {
					case 0:
						err = sleep(ctx, 10*time.Millisecond)
					case 1:
						err = errSick
					case 2:
						err = sleep(ctx, time.Hour)
					case 3:
						err = errors.Join(sleep(ctx, 100*time.Millisecond), errSick)
					}
					if err == nil {
						well.Add(1)
					}
					return 1, err
				}
				var wg sync.WaitGroup
				var calls, rejected atomic.Int64
				for range 500 {
					time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second) / 500))
					if rng.IntN(50) == 0 {
						mood.Store(rng.Int64N(4))
					}
					kind, leaves := Kind(rng.IntN(3)), rng.IntN(10) == 0
					wg.Go(func() {
						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						if leaves {
							time.AfterFunc(5*time.Millisecond, cancel)
						}
						calls.Add(1)
						start := time.Now()
						v, err := Do(ctx, g, kind, call)
						if took := time.Since(start); took > g.o.Timeout {
							t.Errorf("a call took %v of %v", took, g.o.Timeout)
						}
						if err == nil && v != 1 {
							t.Errorf("%d, %v", v, err)
						}
						if errors.Is(err, ErrRejected) {
							rejected.Add(1)
						}
					})
				}
				wg.Wait()
				synctest.Wait()
				s := g.Stats()
				if float64(s.Retries) > burst+budget*float64(well.Load()) || float64(s.Hedges) > burst+0.1*float64(well.Load()) {
					t.Errorf("%d retries and %d hedges with %d successes", s.Retries, s.Hedges, well.Load())
				}
				if s.InFlight != 0 || s.Waiting != 0 || atOnce.Load() != 0 || int64(s.Tries+s.Hedges) != made.Load() || g.breaker.probing != 0 && s.State != HalfOpen {
					t.Errorf("%+v, %d made", s, made.Load())
				}
				if got := s.Open + s.Full + s.Late; got < uint64(rejected.Load()) {
					t.Errorf("%d rejections, %d counted", rejected.Load(), got)
				}
				// When the endpoint is well again, so are the calls.
				mood.Store(0)
				time.Sleep(time.Minute)
				for range 100 {
					Do(t.Context(), g, Read, call)
				}
				if _, err := Do(t.Context(), g, Read, call); g.o.Timeout > 20*time.Millisecond*time.Duration(max(1, g.o.Retry.Tries)) && (err != nil || g.Stats().State != Closed) {
					t.Errorf("in the end: %v, %+v", err, g.Stats())
				}
			})
		})
	}
}

// TestExtremes: no duration is too long or too short.
func TestExtremes(t *testing.T) {
	for name, test := range map[string]struct {
		o    Options
		want State // after failures
	}{
		"a long Timeout":             {Options{Timeout: never}, Closed},
		"a long Timeout with Retry":  {Options{Timeout: never, Retry: Retry{Tries: 2}}, Closed},
		"a long Delay":               {Options{Timeout: time.Second, Retry: Retry{Tries: 2, Delay: never, MaxDelay: never}}, Closed},
		"a short Window":             {Options{Breaker: Breaker{Failures: 0.5, Calls: 1, Window: 1}}, Opened},
		"open for 20 s":              {Options{Breaker: Breaker{Failures: 0.5, Calls: 1, Open: 20 * time.Second}}, Opened},
		"open for half an hour":      {Options{Breaker: Breaker{Failures: 0.5, Calls: 1, Open: time.Second << 10, MaxOpen: never >> 20}}, Opened},
		"open for as long as can be": {Options{Breaker: Breaker{Failures: 0.5, Calls: 1, Open: never, MaxOpen: never}}, Opened},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, test.o)
				time.Sleep(time.Second)
				if _, err := Do(t.Context(), g, Read, func(ctx context.Context) (int, error) { return 1, ctx.Err() }); err != nil {
					t.Error(err)
				}
				for range 100 {
					Do(t.Context(), g, Read, sick(0))
					if s := g.Stats(); s.State != test.want {
						t.Fatalf("%+v", s)
					}
					if open := g.breaker.until - g.now(); open < time.Hour {
						time.Sleep(open) // so that the next call is a probe
					}
				}
			})
		})
	}
}

// TestTimeoutBoundsTheWait: a call waits for its turn within its Timeout, and is not made after it.
func TestTimeoutBoundsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, Options{Timeout: 100 * time.Millisecond, Limit: Limit{Healthy: time.Second, Min: 1, Max: 1}})
		release := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			Do(t.Context(), g, Once, func(context.Context) (int, error) { <-release; return 0, nil })
		})
		synctest.Wait()
		start := time.Now()
		_, err := Do(t.Context(), g, Once, well(0))
		if rejected, ok := errors.AsType[*RejectedError](err); !ok || rejected.Reason != Late || time.Since(start) != 100*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := Do(ctx, g, Once, well(0)); err != context.DeadlineExceeded {
			t.Error(err)
		}
		if s := g.Stats(); s.Late != 2 {
			t.Errorf("%+v", s)
		}
		close(release)
		wg.Wait()
	})
}

// TestCountsGrow: a call whose context ends with its turn was never counted.
func TestCountsGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, Options{Limit: Limit{Healthy: time.Second}})
		release := make(chan struct{})
		go Do(t.Context(), g, Once, func(context.Context) (int, error) { <-release; return 0, nil })
		synctest.Wait()
		if s := g.Stats(); s.Tries != 0 || s.InFlight != 1 {
			t.Errorf("%+v", s)
		}
		close(release)
		synctest.Wait()
		if s := g.Stats(); s.Tries != 1 || s.InFlight != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestDefaults: a default does not contradict what is given.
func TestDefaults(t *testing.T) {
	if g := guard(t, Options{Retry: Retry{Tries: 3, Delay: 5 * time.Second}}); backoff(&g.o.Retry, 1) != 5*time.Second {
		t.Error(g.o.Retry)
	}
}

// TestFailedPanics: a Failed that panics costs no place of the Limit.
func TestFailedPanics(t *testing.T) {
	g := guard(t, Options{Limit: Limit{Healthy: time.Second}, Failed: func(err error) bool { panic(err) }})
	func() {
		defer func() {
			if got := recover(); got != errSick {
				t.Error(got)
			}
		}()
		Do(t.Context(), g, Once, func(context.Context) (int, error) { return 0, errSick })
	}()
	if s := g.Stats(); s.InFlight != 0 || s.Failures != 1 {
		t.Errorf("%+v", s)
	}
}

// TestChangedPanics: a Changed that panics costs neither a place of the Limit nor a probe.
func TestChangedPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, Options{
			Limit: Limit{Healthy: time.Second, Min: 1, Max: 1}, Breaker: Breaker{Failures: 0.5, Calls: 1, Probes: 1},
			Changed: func(State, State) { panic(errSick) },
		})
		for range 2 { // it opens, and is half open
			func() {
				defer func() {
					if got := recover(); got != errSick {
						t.Error(got)
					}
				}()
				Do(t.Context(), g, Once, func(context.Context) (int, error) { return 0, errSick })
			}()
			time.Sleep(time.Minute)
		}
		made := false
		func() {
			defer func() { recover() }() // it closes
			Do(t.Context(), g, Once, func(context.Context) (int, error) { made = true; return 0, nil })
		}()
		if s := g.Stats(); !made || s.InFlight != 0 || s.State != Closed {
			t.Errorf("%v, %+v", made, s)
		}
	})
}

// TestOptions: what cannot be meant is an error.
func TestOptions(t *testing.T) {
	nan := math.NaN()
	for name, o := range map[string]Options{
		"a Timeout below 0":       {Timeout: -1},
		"a Retry without Tries":   {Retry: Retry{Delay: time.Second}},
		"a budget":                {Retry: Retry{Tries: 2, Budget: nan}},
		"a Breaker that is off":   {Breaker: Breaker{Calls: 5}},
		"a share":                 {Breaker: Breaker{Failures: 1.1}},
		"no share":                {Breaker: Breaker{Failures: nan}},
		"Slow without SlowShare":  {Breaker: Breaker{Failures: 0.5, Slow: time.Second}},
		"a Limit without Healthy": {Limit: Limit{Max: 100}},
		"no room":                 {Limit: Limit{Healthy: time.Second, Min: 5, Max: 4}},
		"a Hedge that is off":     {Hedge: Hedge{Budget: 0.1}},
		"a Quantile of 1":         {Hedge: Hedge{Quantile: 1}},
		"no Quantile":             {Hedge: Hedge{Quantile: nan}},
	} {
		if _, err := New(o); !errors.Is(err, bale.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if transport, err := NewTransport(nil, o); !errors.Is(err, bale.ErrInvalid) || transport != nil {
			t.Errorf("%s: %v, %v", name, transport, err)
		}
	}
}

// TestRefusedByLimit: calls that the Limit refuses, or that end in its queue, are no failures for
// the Breaker.
func TestRefusedByLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, Options{Limit: Limit{Healthy: 50 * time.Millisecond, Min: 1, Max: 1, Queue: 2}, Breaker: Breaker{Failures: 0.1, Calls: 1}})
		const calls = 100
		var ended sync.WaitGroup
		for i := range calls {
			patience := time.Second // 200 ms in the queue
			if i%2 == 0 {
				patience = 100 * time.Millisecond
			}
			ended.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				Do(ctx, g, Once, func(context.Context) (int, error) { time.Sleep(300 * time.Millisecond); return 1, nil })
			})
			time.Sleep(20 * time.Millisecond)
		}
		ended.Wait()
		s := g.Stats()
		if s.Full == 0 || s.Late == 0 || s.Failures != 0 || s.Open != 0 || s.State != Closed || s.Tries+s.Full+s.Late != calls {
			t.Errorf("%+v", s)
		}
	})
}

// recorder is a Recorder.
type recorder struct {
	mu  sync.Mutex
	got []string
}

func (e *recorder) Timed(context.Context) bool { return false }

func (e *recorder) Record(_ context.Context, event stats.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.got = append(e.got, fmt.Sprint(event.Op, " ", event.Class))
}

// TestRecorder: a Recorder sees what a Guard does, in the order in which it does it.
func TestRecorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var saw recorder
		g := guard(t, Options{Recorder: &saw, Retry: Retry{Tries: 2, Delay: 1}, Breaker: Breaker{Failures: 0.5, Calls: 2, Probes: 1}, Hedge: Hedge{Quantile: 0.5}})
		bad := errors.New("bad")
		fails := func(context.Context) (int, error) { return 0, bad }
		instead := func(_ context.Context, err error) (int, error) { return 7, nil }
		if _, err := Do(t.Context(), g, Idempotent, fails); err != bad {
			t.Error(err)
		}
		if v, err := DoWithFallback(t.Context(), g, Read, fails, instead); v != 7 || err != nil {
			t.Error(v, err)
		}
		time.Sleep(3 * time.Second)
		g.slow.saw, g.slow.is = learning, float64(time.Second)
		for range 2 { // the first one is a probe, which has no hedge
			if _, err := Do(t.Context(), g, Read, func(context.Context) (int, error) { time.Sleep(2 * time.Second); return 1, nil }); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Minute)
		want := []string{"retry ok", "breaker_open ok", "refuse rejected", "fallback ok", "breaker_closed ok", "hedge ok"}
		if !slices.Equal(saw.got, want) {
			t.Errorf("%q", saw.got)
		}
	})
}

// TestFallback: it is for calls that the endpoint failed or a policy refused, and only while
// somebody waits.
func TestFallback(t *testing.T) {
	bad, invalid := errors.New("bad"), errors.New("invalid")
	late, expired := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer expired()
	left, leave := context.WithCancel(t.Context())
	leave()
	for name, test := range map[string]struct {
		ctx  context.Context
		o    Breaker
		err  error // of the call
		saw  error // by the fallback, nil if it is not called
		want error
	}{
		"well":                 {t.Context(), Breaker{}, nil, nil, nil},
		"failed":               {t.Context(), Breaker{}, bad, bad, nil},
		"refused":              {t.Context(), Breaker{Failures: 0.1, Calls: 1}, bad, ErrRejected, nil},
		"not the endpoint's":   {t.Context(), Breaker{}, invalid, nil, invalid},
		"the deadline is over": {late, Breaker{}, nil, context.DeadlineExceeded, nil},
		"the caller has left":  {left, Breaker{}, nil, nil, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			g := guard(t, Options{Breaker: test.o, Failed: func(err error) bool { return err != invalid }})
			call := func(context.Context) (int, error) { return 1, test.err }
			if test.o.Calls > 0 {
				Do(test.ctx, g, Once, call)
			}
			var saw error
			v, err := DoWithFallback(test.ctx, g, Once, call, func(_ context.Context, err error) (int, error) { saw = err; return 7, nil })
			if !errors.Is(saw, test.saw) || (saw == nil) != (test.saw == nil) || err != test.want || (v == 7) != (saw != nil) {
				t.Errorf("%d, %v, the fallback saw %v", v, err, saw)
			}
			if n := g.Stats().Fallbacks; (n == 1) != (saw != nil) {
				t.Errorf("%d fallbacks", n)
			}
		})
	}
}
