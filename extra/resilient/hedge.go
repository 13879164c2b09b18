package resilient

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/balekv/bale/stats"
)

// Hedge makes a second call beside a [Read] that takes long, and returns the first success. The
// other call's context ends then. It takes a place of the Limit, and is left out if none is free.
type Hedge struct {
	// Quantile is the share of successful calls after whose duration a second one is made, such as
	// 0.95. The duration is measured, from the first 100 calls on. Default none: no hedges.
	Quantile float64

	// Budget is how many hedges there may be per success. Default 0.05.
	Budget float64

	// Burst is how many hedges the budget holds at most, and at the start. Default 10.
	Burst int
}

func (h *Hedge) complete() error {
	if !(h.Quantile >= 0 && h.Quantile < 1) || !(h.Budget >= 0 && h.Budget <= 1) || h.Burst < 0 {
		return fmt.Errorf("%+v has a negative value, a Quantile of 1 or more, or a Budget above 1", *h)
	}
	if h.Quantile == 0 && *h != (Hedge{}) {
		return fmt.Errorf("%+v lacks a Quantile", *h)
	}
	if h.Quantile > 0 {
		h.Budget, h.Burst = or(h.Budget, 0.05), or(h.Burst, 10)
	}
	return nil
}

const (
	learning = 100  // calls before a quantile is believed
	step     = 0.02 // by which it moves
)

// quantile follows a quantile of durations: each longer one moves it up, each shorter one down, in
// the ratio in which they should occur (stochastic approximation; Robbins and Monro, 1951).
type quantile struct {
	of  float64
	is  float64 // ns
	saw int
}

func (q *quantile) add(d time.Duration) {
	if q.of == 0 {
		return
	}
	q.saw++
	move := step
	if q.saw < learning {
		move = 10 * step
	}
	switch x := float64(max(1, d)); { // 1 ns: a product with 0 would stay 0
	case q.saw == 1:
		q.is = x
	case x > q.is:
		q.is *= 1 + move*q.of
	default:
		q.is *= 1 - move*(1-q.of)
	}
}

// patience is how long to wait before a hedge, 0 if that is not known.
func (g *Guard) patience() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.slow.saw < learning {
		return 0
	}
	return time.Duration(g.slow.is)
}

// hedged makes a call, and a second one if it takes longer than patience.
func hedged[T any, C call[T]](ctx, caller context.Context, g *Guard, p permit, patience time.Duration, c C) (T, error) {
	type result struct {
		v        T
		err      error
		panicked any
		hedge    bool
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan result, 2)
	discard := func(v T) {
		if d, ok := any(c).(interface{ discard(T) }); ok {
			d.discard(v)
		}
	}
	var decided atomic.Bool // a call has succeeded, or nobody waits for one
	start := func(p permit) {
		r := result{err: errPanicked, hedge: p.hedge}
		defer func() {
			if r.err == errPanicked {
				r.panicked = recover()
			}
			err := r.err
			if err != nil && caller.Err() == nil && errors.Is(ctx.Err(), context.Canceled) {
				err = errOvertaken
			}
			g.leave(caller, p, err)
			if r.err != nil || decided.CompareAndSwap(false, true) {
				results <- r
			} else {
				discard(r.v)
			}
		}()
		r.v, r.err = c.make(ctx)
	}
	go start(p)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	over := ctx.Done()
	running := 1
	var first result
	for {
		select {
		case r := <-results:
			running--
			if r.panicked != nil {
				if !decided.CompareAndSwap(false, true) { // a success is on its way
					discard((<-results).v)
				}
				panic(r.panicked)
			}
			if r.err == nil {
				if r.hedge {
					g.mu.Lock()
					g.stats.Won++
					g.mu.Unlock()
				}
				return r.v, nil
			}
			if first.err == nil {
				first = r
			}
			if running == 0 {
				return first.v, first.err
			}
		case <-timer.C:
			if second, ok := g.second(p); ok {
				running++
				g.record(caller, stats.Hedge, stats.OK)
				go start(second)
			}
		case <-over:
			if decided.CompareAndSwap(false, true) {
				return first.v, ctx.Err()
			}
			over = nil // a success is on its way
		}
	}
}

// errOvertaken is for a call that the other one of a hedge has overtaken: it says nothing.
var errOvertaken = errors.New("overtaken")

// second admits a hedge beside a call.
func (g *Guard) second(p permit) (permit, bool) {
	p.began, p.hedge = g.now(), true
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.probe || g.breaker.state != Closed || len(g.waiting) > 0 || g.hedges.tokens < 1 || g.o.Limit.Healthy > 0 && !g.limiter.take() {
		return p, false
	}
	g.hedges.take()
	g.stats.Hedges++
	return p, true
}
