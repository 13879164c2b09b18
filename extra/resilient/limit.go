package resilient

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// Limit adapts how many calls to the endpoint are in flight at once.
//
// It measures in windows of four times Healthy or 100 calls, whichever is longer, but of no more
// than two seconds. While calls take less than twice Healthy on average, a limit that was reached
// grows: by half until calls first became slower, by its square root from then on. Slower calls can
// mean two things: they queue at the endpoint, because there are too many, or the endpoint itself
// has become slow. The limit tells them apart by experiment. It shrinks by a fifth. If as many
// calls a second succeed as before, they did queue, and it shrinks on. If fewer do, it returns to
// where it was, and tries a larger limit next. Between experiments that changed nothing it waits, a
// second at first and four at most. It also experiments if more than a tenth of the calls fail at
// once, as those do that a full endpoint refuses. If fewer than a tenth succeed and the others fail
// late, there is nothing to compare. Then it shrinks by half, and tries a larger limit next: twice
// as large if fewer than 200 calls a second succeed.
//
// The limit keeps queues short, so it does not store a burst of calls that could wait for longer.
// In bursts of up to a second beyond what the endpoint can serve, 50% to 90% as many succeed as
// with the best fixed limit. The same holds if a refusal costs the endpoint a third of a call.
//
// Healthy is fixed: a limit that measured it would learn the latency of a sick endpoint. That a
// slow endpoint cannot hold the limit down is due to the experiments.
type Limit struct {
	// Healthy is how long a call takes on average while the endpoint is well. Half of it or twice
	// as much does little harm. 0 for no Limit.
	Healthy time.Duration

	// Min and Max bound the limit. Defaults 4 and 1,000.
	Min, Max int

	// Initial is the first limit. Default 20, within the bounds.
	Initial int

	// Queue is how many calls may wait for their turn. Default the limit itself; negative for none.
	Queue int

	// Wait is how long a call waits for its turn at most. Default four times Healthy. Once the
	// oldest has waited half of it, the newest is served first: those behind it will be too late
	// for their callers anyway.
	Wait time.Duration
}

func (l *Limit) complete() error {
	if l.Healthy < 0 || l.Min < 0 || l.Max < 0 || l.Initial < 0 || l.Wait < 0 {
		return fmt.Errorf("%+v has a negative value", *l)
	}
	if l.Healthy == 0 && *l != (Limit{}) {
		return fmt.Errorf("%+v lacks Healthy", *l)
	}
	l.Min, l.Max = or(l.Min, 4), or(l.Max, 1000)
	if l.Min > l.Max {
		return fmt.Errorf("%+v: Min is above Max", *l)
	}
	l.Initial = max(l.Min, min(l.Max, or(l.Initial, 20)))
	l.Wait = or(l.Wait, 4*l.Healthy)
	return nil
}

const (
	windowCalls = 100             // that end in a window,
	trialCalls  = 400             // in one of an experiment
	windowMost  = 2 * time.Second // but no longer if one has ended

	tolerance = 2     // times Healthy
	refusals  = 10    // of as many calls one may be refused
	starving  = 9     // calls fail late for each success
	shrink    = 0.8   // in one experiment
	fewer     = 0.9   // as many calls end as before, or four fifths: this is between
	grow      = 1.25  // in one experiment
	more      = 1.125 // likewise
	firstHold = time.Second
	longHold  = 4 * time.Second

	// While few calls end, windows are long and steps of a quarter slow. After the limit was halved,
	// a bold experiment doubles it, and fewer calls decide that.
	boldCalls = 40
	boldGrow  = 2
	boldMore  = 1.4
)

// trial is the experiment that a window is part of.
type trial uint8

const (
	noTrial trial = iota
	smaller
	larger
)

// limiter is the state of a [Limit]. Times are since the guard was made.
type limiter struct {
	Limit
	limit    float64
	inFlight int

	// The window.
	start    time.Duration
	ended    int
	good     int           // of those, successes,
	refused  int           // and failures at once
	latency  time.Duration // of all others
	inFull   bool          // a call found the limit reached
	settling time.Duration // calls in flight when the limit changed say nothing of it
	old      int           // of those are still in flight

	slowed bool // calls took longer than they should, once
	trial  trial
	next   trial   // which experiment comes next
	bold   bool    // and that it is a bold one
	before float64 // the limit,
	rate   float64 // and the calls that ended per second, before the experiment
	hold   time.Duration
	until  time.Duration // no experiment before
}

func newLimiter(o Limit) limiter {
	return limiter{Limit: o, limit: float64(o.Initial), next: smaller, hold: firstHold}
}

// allowed is the whole number of calls.
func (l *limiter) allowed() int { return int(l.limit) }

// take takes a place, if there is one.
func (l *limiter) take() bool {
	if l.inFlight >= l.allowed() {
		l.inFull = true
		return false
	}
	l.inFlight++
	return true
}

// leave gives a place back. A call that says something of the endpoint is counted.
func (l *limiter) leave(now, took time.Duration, counts, failed bool) {
	l.inFlight--
	before := now-took < l.settling // it began under another limit
	if before {
		l.old--
	}
	if l.old > l.inFlight/4 && now-l.settling < windowMost {
		l.start = now // the window begins when most of those have ended
		return
	}
	if before || !counts {
		return
	}
	l.ended++
	switch {
	case !failed:
		l.good++
		l.latency += took
	case took > tolerance*l.Healthy:
		l.latency += took
	default:
		l.refused++
	}
	calls := windowCalls
	switch {
	case l.bold:
		calls = boldCalls
	case l.trial != noTrial:
		calls = trialCalls
	}
	if l.starved() { // as many as may be in flight say enough
		calls = min(calls, l.allowed())
	}
	if d := now - l.start; d >= 4*l.Healthy && l.ended >= calls || d >= windowMost {
		l.close(now)
	}
}

// starved reports whether hardly a call of the window succeeds, and the others fail late.
func (l *limiter) starved() bool { return l.ended-l.good-l.refused > starving*l.good }

// set changes the limit, and begins a window of calls that begin from now on.
func (l *limiter) set(now time.Duration, limit float64) {
	l.limit = max(float64(l.Min), min(float64(l.Max), limit))
	l.settling, l.old = now, l.inFlight
}

// close ends a window.
func (l *limiter) close(now time.Duration) {
	well := l.refused <= l.ended/refusals && l.latency/time.Duration(l.ended-l.refused) <= tolerance*l.Healthy
	rate := float64(l.good) / (now - l.start).Seconds()
	full, starved := l.inFull, l.starved()
	l.bold = l.bold && rate*windowMost.Seconds() < trialCalls
	l.start, l.ended, l.good, l.refused, l.latency, l.inFull = now, 0, 0, 0, 0, false
	if well {
		l.trial, l.hold, l.until, l.bold = noTrial, firstHold, 0, false
		switch {
		case full && !l.slowed:
			l.limit = min(float64(l.Max), l.limit*1.5)
		case full:
			l.limit = min(float64(l.Max), l.limit+math.Sqrt(l.limit))
		}
		return
	}
	l.slowed = true
	switch {
	case starved: // the endpoint is busy with calls whose callers have left
		l.slowed, l.bold, l.trial, l.next, l.until = false, l.trial != larger, noTrial, larger, 0
		l.set(now, l.limit/2)
	case l.trial == smaller && rate >= fewer*l.rate:
		l.experiment(now, smaller, rate) // they did queue
	case l.trial == larger && (rate > boldMore*l.rate || !l.bold && rate > more*l.rate):
		l.experiment(now, larger, rate) // there was room
	case l.trial != noTrial:
		l.bold = false
		l.set(now, l.before)
		l.until = now + l.hold
		l.hold = min(2*l.hold, longHold)
		l.next = smaller + larger - l.trial
		l.trial = noTrial
	case full && now >= l.until:
		l.experiment(now, l.next, rate)
	}
}

// experiment tries another limit.
func (l *limiter) experiment(now time.Duration, t trial, rate float64) {
	l.before, l.rate, l.trial = l.limit, rate, t
	switch {
	case t == smaller:
		l.set(now, l.limit*shrink)
	case l.bold:
		l.set(now, l.limit*boldGrow)
	default:
		l.set(now, l.limit*grow)
	}
	if l.limit == l.before { // a bound
		l.trial, l.next, l.bold = noTrial, smaller+larger-t, false
		l.until = now + l.hold
	}
}

// waiter is a call that waits for its turn.
type waiter struct {
	since time.Duration
	turn  chan struct{} // closed when its turn has come
}

// queue lets a call wait, if there is room. g.mu is held.
func (g *Guard) queue(now time.Duration) (*waiter, error) {
	g.limiter.inFull = true
	most := g.o.Limit.Queue
	if most == 0 {
		most = g.limiter.allowed()
	}
	if len(g.waiting) >= most {
		g.stats.Full++
		return nil, &RejectedError{g.o.Name, Full, 0}
	}
	w := &waiter{now, make(chan struct{})}
	g.waiting = append(g.waiting, w)
	return w, nil
}

// wait waits for a call's turn.
func (g *Guard) wait(ctx context.Context, w *waiter, most time.Duration) error {
	timer := time.NewTimer(min(g.o.Limit.Wait, most))
	defer timer.Stop()
	var err error
	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = &RejectedError{g.o.Name, Late, 0}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, w)
	if i < 0 { // its turn came at the same moment
		if ctx.Err() == nil {
			return nil
		}
		g.limiter.inFlight--
		g.admitWaiting(g.now())
		return err
	}
	g.unqueue(i)
	if ctx.Err() != context.Canceled {
		g.stats.Late++
	}
	return err
}

// admitWaiting gives free places to calls that wait for them. g.mu is held.
func (g *Guard) admitWaiting(now time.Duration) {
	for len(g.waiting) > 0 && g.limiter.take() {
		i := 0
		if now-g.waiting[0].since > g.o.Limit.Wait/2 {
			i = len(g.waiting) - 1
		}
		close(g.waiting[i].turn)
		g.unqueue(i)
	}
}

// unqueue removes a waiter. Nearly all are the first or the last: then the others do not move.
func (g *Guard) unqueue(i int) {
	if i == 0 {
		g.waiting[0] = nil
		g.waiting = g.waiting[1:]
		return
	}
	g.waiting = slices.Delete(g.waiting, i, i+1)
}
