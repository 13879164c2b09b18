// Package resilient makes calls to an endpoint that may be slow, full or gone: a Redis server, an
// HTTP service.
//
// A [Guard] protects the calls to one endpoint with the policies of its [Options].
package resilient

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"sync"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/stats"
)

// Kind says what may be done with a call.
type Kind uint8

const (
	Once       Kind = iota // it must not be repeated: a failure may come after its effect
	Idempotent             // it may be retried
	Read                   // it may be retried, and made twice at once
)

// Options are the policies of a [Guard]. The zero value of each means none. One that has values,
// but not the one that turns it on, is an error. A call passes through them in this order, from the
// outside in:
//
//  1. Timeout: the time for a call with all its tries, and the part of it for each try.
//  2. [Retry]: further tries after failures, within a budget.
//  3. [Breaker]: no calls to an endpoint that fails them anyway.
//  4. [Limit]: no more calls at once than the endpoint can serve.
//  5. [Hedge]: a second call beside one that takes long.
//
// A policy that refuses a call returns a [RejectedError]. [DoWithFallback] does something else
// after all policies. bale.Cache.GetOrLoad over a [NewStore] loads the value.
type Options struct {
	// Name names the endpoint in errors and metrics.
	Name string

	// Timeout bounds a call with all its tries. A caller's earlier deadline comes first. Each try
	// may use an equal part of what is left, so that a try that hangs leaves time for another; the
	// last one may use all of it.
	Timeout time.Duration

	Retry   Retry
	Breaker Breaker
	Limit   Limit
	Hedge   Hedge

	// Failed says which errors mean that the endpoint failed. Only those are retried, and count for
	// the Breaker. Default every error. It is not asked about the end of the caller's context: if
	// the caller gave up, the call says nothing of the endpoint; if its deadline passed, the
	// endpoint has failed. A bale.DecodeError is an exception, because its value has arrived. It is
	// called by many goroutines at once.
	Failed func(error) bool

	// Changed is called when the Breaker changes its state, from the call that changed it. Two
	// changes may be reported at once. Default none.
	Changed func(from, to State)

	// Recorder receives retries, hedges, refused calls, fallbacks, and the Breaker's opening and
	// closing, as stats.Retry and so on. Give it a group of its own: those calls are in the figures of
	// a Cache already. Default none.
	Recorder stats.Recorder
}

// Guard protects the calls to one endpoint. It is safe for concurrent use, and has no goroutines of
// its own.
//
// With all policies but Hedge, a call that succeeds costs some 200 ns. It allocates nothing without
// a Timeout. A Timeout before the caller's deadline takes one allocation, of the context that has
// it: the call may keep it, so it cannot be used again.
type Guard struct {
	o     Options
	epoch time.Time

	mu      sync.Mutex
	retries budget
	hedges  budget
	breaker breaker
	limiter limiter
	waiting []*waiter // for the limiter, in the order of their coming
	slow    quantile
	stats   Stats
}

// New returns a Guard with these policies. An option out of range is a bale.ErrInvalid.
func New(o Options) (*Guard, error) {
	for _, complete := range []func() error{o.Retry.complete, o.Breaker.complete, o.Limit.complete, o.Hedge.complete} {
		if err := complete(); err != nil {
			return nil, fmt.Errorf("resilient: %w: %w", bale.ErrInvalid, err)
		}
	}
	if o.Timeout < 0 {
		return nil, fmt.Errorf("resilient: %w: Timeout is %v, must not be negative", bale.ErrInvalid, o.Timeout)
	}
	return &Guard{
		o: o, epoch: time.Now(), retries: newBudget(o.Retry.Budget, o.Retry.Burst), hedges: newBudget(o.Hedge.Budget, o.Hedge.Burst),
		breaker: breaker{Breaker: o.Breaker}, limiter: newLimiter(o.Limit), slow: quantile{of: o.Hedge.Quantile},
	}, nil
}

// Stats are what a Guard has done so far, and its state. Counts only grow.
type Stats struct {
	Tries    uint64 // calls to the endpoint that have ended, without hedges
	Failures uint64 // of those and of hedges
	Retries  uint64
	Denied   uint64 // retries that the budget did not allow
	Open     uint64 // calls that the Breaker refused
	Full     uint64 // calls that the Limit refused, because its queue was full,
	Late     uint64 // or because their turn did not come in time
	Hedges   uint64 // second calls
	Won      uint64 // of those, that were first to succeed

	Fallbacks uint64 // calls of DoWithFallback that failed

	State    State // of the Breaker
	Limit    int   // calls that may be in flight; 0 without a Limit
	InFlight int   // counted with a Limit only
	Waiting  int   // for their turn
}

// Calls are the counts by what became of calls, with names for labels. One call can count several
// times: tried, failed and retried.
func (s Stats) Calls() iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		for _, c := range []struct {
			name string
			n    uint64
		}{
			{"tried", s.Tries}, {"failed", s.Failures}, {"retried", s.Retries}, {"retry_denied", s.Denied}, {"rejected_open", s.Open},
			{"rejected_full", s.Full}, {"rejected_late", s.Late}, {"hedged", s.Hedges}, {"hedge_won", s.Won},
			{"fallback", s.Fallbacks},
		} {
			if !yield(c.name, c.n) {
				return
			}
		}
	}
}

// Stats returns what the Guard has done so far.
func (g *Guard) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.stats
	s.State = g.breaker.state
	if g.o.Limit.Healthy > 0 {
		s.Limit, s.InFlight = g.limiter.allowed(), g.limiter.inFlight
	}
	s.Waiting = len(g.waiting)
	return s
}

// Do makes a call to the endpoint under the policies of its Guard. The call must honour its
// context, which may end earlier than the caller's. With [Hedge] a Read may run twice at once, and
// go on after Do has returned. So it must return its result instead of writing it to a shared
// place, and nothing that has to be closed: one of two results is dropped.
//
// The error is the caller's context's if that is over before the call starts, a [RejectedError] if
// a policy refused the call, or what the call returned in its last try.
func Do[T any](ctx context.Context, g *Guard, kind Kind, call func(context.Context) (T, error)) (T, error) {
	return do[T](ctx, g, kind, function[T](call))
}

// DoWithFallback is [Do], with a fallback for calls that fail: that the endpoint failed, or that a
// policy refused. The fallback gets the caller's context, whose deadline may have passed, and the
// error. It is outside of all policies. Neither an error that Options.Failed does not count nor a
// caller who has left needs one.
func DoWithFallback[T any](ctx context.Context, g *Guard, kind Kind, call func(context.Context) (T, error), fallback func(context.Context, error) (T, error)) (T, error) {
	v, err := Do(ctx, g, kind, call)
	if err == nil || ctx.Err() == context.Canceled || !errors.Is(err, ErrRejected) && !g.failed(err) {
		return v, err
	}
	g.mu.Lock()
	g.stats.Fallbacks++
	g.mu.Unlock()
	g.record(ctx, stats.Fallback, stats.OK)
	return fallback(ctx, err)
}

// call is a call with its arguments. Unlike a closure over them it need not be on the heap.
// One with a method discard(T) gets the result of a hedge that nobody waits for.
type call[T any] interface {
	make(ctx context.Context) (T, error)
}

type function[T any] func(context.Context) (T, error)

func (f function[T]) make(ctx context.Context) (T, error) { return f(ctx) }

// do is Do for any form of call.
func do[T any, C call[T]](ctx context.Context, g *Guard, kind Kind, c C) (v T, err error) {
	if err := ctx.Err(); err != nil {
		return v, err
	}
	now, own := g.now(), never // times are since the guard was made
	if at, limited := ctx.Deadline(); limited {
		own = at.Sub(g.epoch)
	}
	end := own
	if g.o.Timeout > 0 {
		end = min(end, later(now, g.o.Timeout))
	}
	tries := 1
	if kind != Once {
		tries = max(1, g.o.Retry.Tries)
	}
	for try := 1; ; try++ {
		got, failed := attempt[T](ctx, g, kind, now, own, end, tries-try, c)
		if try == 1 || !errors.Is(failed, ErrRejected) { // a refused retry leaves the result of the try before
			v, err = got, failed
		}
		if failed == nil || !g.again(ctx, try, tries, end, failed) {
			return v, err
		}
		now = g.now()
	}
}

const never = math.MaxInt64 * time.Nanosecond

// later is the time d after t, never if that is too large a number.
func later(t, d time.Duration) time.Duration { return t + min(d, never-t) }

// attempt makes one try. The caller's context ends at own, the call at end, and more tries may
// follow.
func attempt[T any, C call[T]](ctx context.Context, g *Guard, kind Kind, now, own, end time.Duration, more int, c C) (v T, err error) {
	most := never // for the turn; the caller's context bounds it, too
	if end < own {
		most = end - now
	}
	p, err := g.admit(ctx, now, most)
	if err != nil {
		if errors.Is(err, ErrRejected) {
			g.record(ctx, stats.Refuse, stats.Rejected)
		}
		return v, err
	}
	if more = min(more, p.retries); more > 0 && end != never {
		end = p.began + (end-p.began)/time.Duration(more+1)
	}
	if end >= own {
		return ask[T](ctx, ctx, g, kind, p, c)
	}
	within := &deadline{Context: ctx, at: g.epoch.Add(end)}
	defer within.finish()
	return ask[T](within, ctx, g, kind, p, c)
}

// ask makes the call, alone or with a hedge.
func ask[T any, C call[T]](ctx, caller context.Context, g *Guard, kind Kind, p permit, c C) (v T, err error) {
	if kind == Read && g.o.Hedge.Quantile > 0 {
		if after := g.patience(); after > 0 {
			return hedged[T](ctx, caller, g, p, after, c)
		}
	}
	err = errPanicked
	defer func() { g.leave(caller, p, err) }()
	v, err = c.make(ctx)
	return v, err
}

// errPanicked is what a call that panics leaves behind. The panic goes on.
var errPanicked = errors.New("the call panicked")

// permit is a call that was admitted.
type permit struct {
	began   time.Duration
	probe   bool // of a Breaker that is half open
	period  uint64
	hedge   bool
	retries int // that the budget allows
}

func (g *Guard) now() time.Duration { return time.Since(g.epoch) }

// admit lets a call through the Breaker and the Limit, for whose turn it may wait.
func (g *Guard) admit(ctx context.Context, now, most time.Duration) (p permit, err error) {
	p.began = now
	var w *waiter
	g.mu.Lock()
	if g.breaker.tryHalfOpen(p.began) {
		g.mu.Unlock()
		g.changed(ctx, Opened, HalfOpen) // it may panic: the call has no place yet
		g.mu.Lock()
	}
	p.retries = int(g.retries.tokens)
	p.probe, p.period, err = g.breaker.allow()
	switch {
	case err != nil:
		err = g.refuse(p.began)
	case g.o.Limit.Healthy > 0 && (len(g.waiting) > 0 || !g.limiter.take()):
		if w, err = g.queue(p.began); err != nil {
			g.breaker.forget(p)
		}
	}
	g.mu.Unlock()
	if w == nil {
		return p, err
	}
	err = g.wait(ctx, w, most)
	g.mu.Lock()
	defer g.mu.Unlock()
	p.began = g.now()
	if err == nil && g.breaker.state == Opened { // meanwhile
		err = g.refuse(p.began)
		g.limiter.inFlight--
		g.admitWaiting(p.began)
	}
	if err != nil {
		g.breaker.forget(p)
	}
	return p, err
}

// refuse is the error of a call that the Breaker does not let through. g.mu is held.
func (g *Guard) refuse(now time.Duration) error {
	g.stats.Open++
	return &RejectedError{g.o.Name, Open, max(0, g.breaker.until-now)}
}

func (g *Guard) changed(ctx context.Context, from, to State) {
	if from == to {
		return
	}
	switch to {
	case Opened:
		g.record(ctx, stats.BreakerOpen, stats.OK)
	case Closed:
		g.record(ctx, stats.BreakerClosed, stats.OK)
	}
	if g.o.Changed != nil {
		g.o.Changed(from, to)
	}
}

func (g *Guard) record(ctx context.Context, op stats.Op, class stats.Class) {
	if g.o.Recorder != nil {
		g.o.Recorder.Record(ctx, stats.Event{Op: op, Class: class})
	}
}

// leave counts a call that has ended.
func (g *Guard) leave(caller context.Context, p permit, err error) {
	now := g.now()
	failed, counts := err != nil, true
	defer func() { g.left(caller, now, now-p.began, p, failed, counts, err == errOvertaken) }() // if Failed panics, too
	switch {
	case err == nil:
	case err == errOvertaken || errors.Is(caller.Err(), context.Canceled): // the caller has left
		counts = false
	default:
		failed = err == errPanicked || g.failed(err)
	}
}

// failed reports whether an error means that the endpoint failed. A deadline that passed does. But
// a value that bale cannot read has arrived: the deadline ended the wait for its dictionary.
func (g *Guard) failed(err error) bool {
	if _, arrived := errors.AsType[*bale.DecodeError](err); !arrived && errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	return g.o.Failed == nil || g.o.Failed(err)
}

func (g *Guard) left(caller context.Context, now, took time.Duration, p permit, failed, counts, overtaken bool) {
	g.mu.Lock()
	if !p.hedge {
		g.stats.Tries++
	}
	from := g.breaker.state
	switch {
	case !counts:
		g.breaker.forget(p)
		if overtaken && !p.hedge { // by its hedge, so it is longer than the quantile
			g.slow.add(took)
		}
	default:
		g.breaker.done(now, took, failed, p)
		if failed {
			g.stats.Failures++
		} else {
			g.retries.earn()
			g.hedges.earn()
			if !p.hedge { // of those only the short ones end
				g.slow.add(took)
			}
		}
	}
	if g.o.Limit.Healthy > 0 {
		g.limiter.leave(now, took, counts, failed)
		g.admitWaiting(now)
	}
	to := g.breaker.state
	g.mu.Unlock()
	g.changed(caller, from, to)
}
