package resilient

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestHedges(t *testing.T) {
	const ms = time.Millisecond
	learned := func(t *testing.T, o Options) *Guard {
		g := guard(t, o)
		for range 200 {
			Do(t.Context(), g, Read, well(10*ms))
		}
		return g
	}
	o := Options{Hedge: Hedge{Quantile: 0.95, Burst: 5}, Limit: Limit{Healthy: 10 * ms}}
	// calls returns a call that takes these times, one after another.
	calls := func(made *atomic.Int32, times ...time.Duration) func(context.Context) (int, error) {
		return func(ctx context.Context) (int, error) {
			n := made.Add(1)
			return int(n), sleep(ctx, times[n-1])
		}
	}
	for name, run := range map[string]func(t *testing.T){
		"the second wins": func(t *testing.T) {
			g := learned(t, o)
			var made atomic.Int32
			start := time.Now()
			v, err := Do(t.Context(), g, Read, calls(&made, time.Hour, 10*ms))
			if took := time.Since(start); v != 2 || err != nil || took < 15*ms || took > 40*ms {
				t.Errorf("%d, %v, %v", v, err, took)
			}
			synctest.Wait() // the first has ended, with its context
			if s := g.Stats(); s.Hedges != 1 || s.Won != 1 || s.InFlight != 0 || s.Failures != 0 {
				t.Errorf("%+v", s)
			}
		},
		"the first wins": func(t *testing.T) {
			g := learned(t, o)
			var made atomic.Int32
			if v, err := Do(t.Context(), g, Read, calls(&made, 25*ms, time.Hour)); v != 1 || err != nil || made.Load() != 2 {
				t.Error(v, err, made.Load())
			}
			synctest.Wait()
			if s := g.Stats(); s.Hedges != 1 || s.Won != 0 || s.InFlight != 0 {
				t.Errorf("%+v", s)
			}
		},
		"no need": func(t *testing.T) {
			g := learned(t, o)
			if v, err := Do(t.Context(), g, Read, well(5*ms)); v != 1 || err != nil || g.Stats().Hedges != 0 {
				t.Error(v, err)
			}
		},
		"not known yet": func(t *testing.T) {
			g := guard(t, o)
			if _, err := Do(t.Context(), g, Read, well(time.Hour)); err != nil || g.Stats().Hedges != 0 {
				t.Error(err)
			}
		},
		"no read": func(t *testing.T) {
			g := learned(t, o)
			if _, err := Do(t.Context(), g, Idempotent, well(time.Hour)); err != nil || g.Stats().Hedges != 0 {
				t.Error(err)
			}
		},
		"budget": func(t *testing.T) {
			g := learned(t, o)
			for range 20 {
				Do(t.Context(), g, Read, sick(time.Minute))
			}
			if s := g.Stats(); s.Hedges != 5 {
				t.Errorf("%+v", s)
			}
		},
		"no place": func(t *testing.T) {
			o := o
			o.Limit.Min, o.Limit.Max = 1, 1
			g := learned(t, o)
			if v, err := Do(t.Context(), g, Read, well(time.Hour)); v != 1 || err != nil || g.Stats().Hedges != 0 {
				t.Error(v, err)
			}
		},
		"both fail": func(t *testing.T) {
			g := learned(t, o)
			if _, err := Do(t.Context(), g, Read, sick(30*ms)); !errors.Is(err, errSick) {
				t.Error(err)
			}
			if s := g.Stats(); s.Hedges != 1 || s.Failures != 2 || s.InFlight != 0 {
				t.Errorf("%+v", s)
			}
		},
		"the caller leaves": func(t *testing.T) {
			g := learned(t, o)
			ctx, cancel := context.WithTimeout(t.Context(), 50*ms)
			defer cancel()
			if _, err := Do(ctx, g, Read, well(time.Hour)); err != context.DeadlineExceeded {
				t.Error(err)
			}
			synctest.Wait()
			if s := g.Stats(); s.InFlight != 0 || s.Failures != 2 {
				t.Errorf("%+v", s)
			}
		},
		"a panic": func(t *testing.T) {
			g := learned(t, o)
			defer func() {
				if recover() != "oh" || g.Stats().InFlight != 0 {
					t.Errorf("%+v", g.Stats())
				}
			}()
			Do(t.Context(), g, Read, func(context.Context) (int, error) { panic("oh") })
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, run) })
	}
}

// TestQuantile: the estimate follows what it estimates.
func TestQuantile(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, of := range []float64{0.5, 0.9, 0.95, 0.99} {
		q := quantile{of: of}
		above := 0
		for i := range 40000 {
			d := time.Duration(rng.ExpFloat64() * float64(time.Millisecond))
			if i >= 20000 { // slower by ten times
				d *= 10
			}
			if i%20000 >= 5000 && float64(d) > q.is {
				above++
			}
			q.add(d)
		}
		if share := 1 - float64(above)/30000; share < of-0.02 || share > of+0.02 {
			t.Errorf("%v: %.3f", of, share)
		}
	}
}

// closing is a call whose results must be closed. The first panics when the second has started.
type closing struct {
	*testing.T
	made, open atomic.Int32
	second     chan struct{}
}

func (c *closing) make(ctx context.Context) (int, error) {
	if c.made.Add(1) == 1 {
		<-c.second
		panic("oh")
	}
	close(c.second)
	<-ctx.Done()
	c.open.Add(1)
	return 1, nil
}

func (c *closing) discard(int) { c.open.Add(-1) }

// TestHedgePanic: the result of a hedge beside a call that panics is closed.
func TestHedgePanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, c := guard(t, Options{Hedge: Hedge{Quantile: 0.5}}), &closing{T: t, second: make(chan struct{})}
		g.slow.saw, g.slow.is = learning, 1
		func() {
			defer func() {
				if got := recover(); got != "oh" {
					t.Error(got)
				}
			}()
			do[int](t.Context(), g, Read, c)
		}()
		synctest.Wait()
		if n := c.open.Load(); n != 0 {
			t.Errorf("%d results are open", n)
		}
	})
}

// TestHedgeQuantile: as many calls are hedged as Quantile says, although hedges hide how long the
// slow ones would have taken.
func TestHedgeQuantile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, Options{Hedge: Hedge{Quantile: 0.8, Budget: 1, Burst: 1000}})
		const n = 20000
		for range n {
			Do(t.Context(), g, Read, func(ctx context.Context) (int, error) {
				return 1, sleep(ctx, time.Duration(rand.ExpFloat64()*float64(time.Millisecond)))
			})
			synctest.Wait()
		}
		if share := float64(g.Stats().Hedges) / n; share < 0.18 || share > 0.22 {
			t.Errorf("%.3f of the calls had a hedge", share)
		}
	})
}

// TestQuantileOfNothing: a call that takes no time, by a coarse clock, does not end the estimate.
func TestQuantileOfNothing(t *testing.T) {
	q := quantile{of: 0.95}
	q.add(0)
	for range 2000 {
		q.add(time.Millisecond)
	}
	if q.is < float64(time.Millisecond)/2 {
		t.Error(q.is)
	}
}
