package resilient

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/balekv/bale/stats"
)

// Retry tries failed calls again, unless they are of kind [Once].
//
// Before a retry it waits a random time between zero and Delay ("full jitter"). Delay doubles with
// each try, up to MaxDelay. If the error has a method RetryAfter() time.Duration, it waits at least
// that long; the error of an HTTP response with the header Retry-After has one. It does not begin
// to wait if the deadline would pass before the next try. Without Options.Timeout and a deadline of
// the caller's there is no such bound: then a RetryAfter of a day makes the caller wait for a day.
//
// A budget keeps retries from adding to an overload: each success earns Budget tokens, and each
// retry takes one before it waits.
type Retry struct {
	// Tries is how many tries a call has, with the first one. Default 1: none are retried.
	Tries int

	// Delay is the longest wait before the first retry. Default 20 ms.
	Delay time.Duration

	// MaxDelay is the longest wait before any. Default 1 s, or Delay if that is longer.
	MaxDelay time.Duration

	// Budget is how many retries there may be per success. Default 0.1.
	Budget float64

	// Burst is how many retries the budget holds at most, and at the start. Default 10.
	Burst int
}

func (r *Retry) complete() error {
	if r.Tries < 0 || r.Delay < 0 || r.MaxDelay < 0 || r.Budget < 0 || !(r.Budget <= 1) || r.Burst < 0 {
		return fmt.Errorf("%+v has a negative value or a Budget above 1", *r)
	}
	if r.Tries == 0 && *r != (Retry{}) {
		return fmt.Errorf("%+v lacks Tries", *r)
	}
	if r.Tries > 1 {
		r.Delay, r.MaxDelay = or(r.Delay, 20*time.Millisecond), or(r.MaxDelay, max(time.Second, r.Delay))
		r.Budget, r.Burst = or(r.Budget, 0.1), or(r.Burst, 10)
	}
	return nil
}

// or returns v, or a default if it is zero.
func or[T comparable](v, other T) T {
	var zero T
	if v == zero {
		return other
	}
	return v
}

// budget is a token bucket that successes fill.
type budget struct{ tokens, each, most float64 }

func newBudget(each float64, burst int) budget {
	return budget{tokens: float64(burst), each: each, most: float64(burst)}
}

func (b *budget) earn() { b.tokens = min(b.most, b.tokens+b.each) }

func (b *budget) take() bool {
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// again reports whether a failed call is to be tried again, after the wait before that.
func (g *Guard) again(ctx context.Context, try, tries int, end time.Duration, err error) bool {
	if try >= tries || ctx.Err() != nil || errors.Is(err, ErrRejected) {
		return false
	}
	if once, ok := errors.AsType[interface {
		error
		final() bool
	}](err); ok && once.final() {
		return false
	}
	if !g.failed(err) {
		return false
	}
	wait := rand.N(later(backoff(&g.o.Retry, try), 1))
	if e, ok := errors.AsType[interface {
		error
		RetryAfter() time.Duration
	}](err); ok {
		wait = max(wait, e.RetryAfter())
	}
	if end-g.now() <= wait {
		return false
	}
	g.mu.Lock()
	ok := g.retries.take()
	if ok {
		g.stats.Retries++
	} else {
		g.stats.Denied++
	}
	g.mu.Unlock()
	if ok {
		g.record(ctx, stats.Retry, stats.OK)
	}
	if !ok || wait == 0 {
		return ok
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// backoff is the longest wait after a number of tries.
func backoff(r *Retry, try int) time.Duration {
	d := r.Delay
	for range try - 1 {
		if d >= r.MaxDelay/2 {
			return r.MaxDelay
		}
		d *= 2
	}
	return min(d, r.MaxDelay)
}
