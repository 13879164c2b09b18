package resilient

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestBreaker(t *testing.T) {
	o := Options{Name: "prices", Breaker: Breaker{Failures: 0.5, Slow: time.Second, SlowShare: 0.5, Window: 10 * time.Second, Calls: 10, Open: 5 * time.Second, MaxOpen: 15 * time.Second, Probes: 2}}
	type world struct {
		*testing.T
		g       *Guard
		changes []State
	}
	many := func(w *world, n int, call func(context.Context) (int, error)) {
		for range n {
			Do(w.Context(), w.g, Once, call)
		}
	}
	state := func(w *world, want State, why string) {
		w.Helper()
		if got := w.g.Stats().State; got != want {
			w.Errorf("%s: %v", why, got)
		}
	}
	for name, run := range map[string]func(w *world){
		"opens, tries and closes": func(w *world) {
			many(w, 5, well(0))
			many(w, 4, sick(0))
			state(w, Closed, "below half, and below ten calls")
			many(w, 1, sick(0))
			state(w, Opened, "half of ten")
			var rejected *RejectedError
			_, err := Do(w.Context(), w.g, Read, func(context.Context) (int, error) { w.Error("made"); return 0, nil })
			if !errors.As(err, &rejected) || !errors.Is(err, ErrRejected) || rejected.Reason != Open || rejected.Endpoint != "prices" || rejected.After > 5*time.Second || rejected.After < 4*time.Second {
				w.Error(err)
			}
			time.Sleep(5 * time.Second)
			many(w, 1, well(0))
			state(w, HalfOpen, "one of two probes")
			many(w, 1, well(0))
			state(w, Closed, "two")
			many(w, 9, sick(0))
			state(w, Closed, "counts begin anew")
			if !slices.Equal(w.changes, []State{Opened, HalfOpen, Closed}) {
				w.Error(w.changes)
			}
			if s := w.g.Stats(); s.Tries != 21 || s.Failures != 14 || s.Open != 1 {
				w.Errorf("%+v", s)
			}
		},
		"stays open for longer": func(w *world) {
			many(w, 10, sick(0))
			for _, open := range []time.Duration{5, 10, 15, 15} {
				until := w.g.breaker.until - w.g.now()
				if until > open*time.Second || until < open*time.Second*4/5 {
					w.Errorf("open for %v, not %v s", until, int(open))
				}
				time.Sleep(until)
				many(w, 1, sick(0))
				state(w, Opened, "a probe failed")
			}
		},
		"a probe at a time": func(w *world) {
			many(w, 10, sick(0))
			time.Sleep(5 * time.Second)
			var made atomic.Int32
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					Do(w.Context(), w.g, Read, func(ctx context.Context) (int, error) {
						made.Add(1)
						return well(time.Millisecond)(ctx)
					})
				})
			}
			wg.Wait()
			if n := made.Load(); n != 2 {
				w.Errorf("%d probes", n)
			}
			state(w, Closed, "both succeeded")
		},
		"slow calls": func(w *world) {
			many(w, 5, well(0))
			many(w, 4, well(time.Second))
			state(w, Closed, "four of nine")
			many(w, 1, well(time.Second))
			state(w, Opened, "five of ten")
		},
		"old calls": func(w *world) {
			many(w, 9, sick(0))
			time.Sleep(11 * time.Second)
			many(w, 9, sick(0))
			state(w, Closed, "nine in the window")
			many(w, 1, sick(0))
			state(w, Opened, "ten")
		},
		"callers who leave": func(w *world) {
			many(w, 10, sick(0))
			time.Sleep(5 * time.Second)
			for range 5 { // more than there are probes
				ctx, cancel := context.WithCancel(w.Context())
				Do(ctx, w.g, Read, func(ctx context.Context) (int, error) { cancel(); return 0, ctx.Err() })
			}
			state(w, HalfOpen, "they say nothing")
			many(w, 2, well(0))
			state(w, Closed, "and hold no probe")
		},
		"callers whose time is over": func(w *world) {
			for range 10 {
				ctx, cancel := context.WithTimeout(w.Context(), time.Millisecond)
				Do(ctx, w.g, Read, well(time.Hour))
				cancel()
			}
			state(w, Opened, "the endpoint did not answer")
		},
		"calls from before": func(w *world) {
			release := make(chan struct{})
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					Do(w.Context(), w.g, Once, func(context.Context) (int, error) { <-release; return 0, nil })
				})
			}
			synctest.Wait()
			many(w, 10, sick(0))
			time.Sleep(5 * time.Second)
			probe := make(chan struct{})
			wg.Go(func() { Do(w.Context(), w.g, Once, func(context.Context) (int, error) { <-probe; return 0, nil }) })
			synctest.Wait()
			close(release)
			synctest.Wait()
			state(w, HalfOpen, "they were no probes")
			close(probe)
			wg.Wait()
		},
		"panics": func(w *world) {
			for range 10 {
				func() {
					defer func() {
						if recover() != "oh" {
							w.Error("no panic")
						}
					}()
					Do(w.Context(), w.g, Once, func(context.Context) (int, error) { panic("oh") })
				}()
			}
			state(w, Opened, "they are failures")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{T: t}
				o := o
				o.Changed = func(from, to State) { w.changes = append(w.changes, to) }
				w.g = guard(t, o)
				run(w)
			})
		})
	}
}

// TestTurns: calls beyond the limit wait in order; the newest first once the oldest has waited half
// its time.
func TestTurns(t *testing.T) {
	const ms = time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, Options{Limit: Limit{Healthy: 10 * ms, Min: 1, Initial: 1, Max: 1, Queue: 4, Wait: 40 * ms}})
		var wg sync.WaitGroup
		var order []int
		errs := map[int]error{}
		var lock sync.Mutex
		ask := func(ctx context.Context, i int, takes time.Duration) {
			wg.Go(func() {
				_, err := Do(ctx, g, Read, func(ctx context.Context) (int, error) {
					lock.Lock()
					order = append(order, i)
					lock.Unlock()
					return well(takes)(ctx)
				})
				lock.Lock()
				errs[i] = err
				lock.Unlock()
			})
			synctest.Wait()
		}
		leaves, leave := context.WithCancel(t.Context())
		ask(t.Context(), 0, 15*ms)
		ask(t.Context(), 1, 15*ms)
		ask(t.Context(), 2, 5*ms)
		ask(t.Context(), 3, 5*ms)
		ask(leaves, 4, 5*ms)
		ask(t.Context(), 5, 5*ms) // no room
		if s := g.Stats(); s.Limit != 1 || s.InFlight != 1 || s.Waiting != 4 || s.Full != 1 {
			t.Errorf("%+v", s)
		}
		leave()
		synctest.Wait()
		time.Sleep(20 * ms) // 1 is at it since 15
		ask(t.Context(), 6, 20*ms)
		wg.Wait()
		if !slices.Equal(order, []int{0, 1, 6}) {
			t.Error(order)
		}
		for i, want := range []Reason{2: Late, 3: Late, 5: Full} {
			var rejected *RejectedError
			if want != 0 && (!errors.As(errs[i], &rejected) || rejected.Reason != want) {
				t.Errorf("%d: %v", i, errs[i])
			}
		}
		if errs[4] != context.Canceled || errs[0] != nil || errs[6] != nil {
			t.Error(errs)
		}
		if s := g.Stats(); s.Tries != 3 || s.Late != 2 || s.InFlight != 0 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestTurnAndEndTogether: a call whose turn comes as its context ends gives its place back, or uses
// it.
func TestTurnAndEndTogether(t *testing.T) {
	g := guard(t, Options{Limit: Limit{Healthy: time.Millisecond, Min: 1, Max: 1}})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	left := 0
	for range 100 {
		g.mu.Lock()
		if !g.limiter.take() {
			t.Fatal("a place is lost")
		}
		w, err := g.queue(0)
		g.limiter.leave(0, 0, false, false)
		g.admitWaiting(0)
		g.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		if err := g.wait(over, w, never); err != nil {
			left++
			continue
		}
		g.leave(over, permit{}, nil)
	}
	if s := g.Stats(); s.InFlight != 0 || s.Waiting != 0 || left == 0 || left == 100 || s.Tries != uint64(100-left) {
		t.Errorf("%+v, %d left", s, left)
	}
}

// TestOpensForTheQueue: calls that wait for their turn are not made when the Breaker has opened.
func TestOpensForTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, Options{Limit: Limit{Healthy: time.Second, Min: 1, Max: 1, Queue: 5}, Breaker: Breaker{Failures: 0.5, Calls: 1}})
		for range 5 {
			go Do(t.Context(), g, Once, sick(time.Second))
		}
		time.Sleep(time.Minute)
		if s := g.Stats(); s.Tries != 1 || s.Open != 4 || s.InFlight != 0 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
	})
}
