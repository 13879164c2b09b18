package resilient

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Breaker stops calls to an endpoint that fails most of them. It opens when, of at least Calls in
// Window, the share Failures failed or the share SlowShare took Slow or longer. For the time Open
// it refuses all calls. Then it is half open: it lets Probes calls through at a time. As many
// successes close it. A failure opens it again, for twice as long, up to MaxOpen.
type Breaker struct {
	// Failures is the share of failed calls that opens it, such as 0.5. 0 for no Breaker, unless
	// there is a SlowShare.
	Failures float64

	// Slow is how long a call takes that counts as slow, and SlowShare the share of slow calls that
	// opens the Breaker. Default none.
	Slow      time.Duration
	SlowShare float64

	// Window is the time over which calls are counted, in ten parts. Default 10 s.
	Window time.Duration

	// Calls is how many calls there must be in the window. Default 20.
	Calls int

	// Open is how long the Breaker stays open the first time, and MaxOpen the longest time. Each is
	// shortened by a random part, up to a fifth, so that programs do not return together. Defaults
	// 2 s and 30 s.
	Open, MaxOpen time.Duration

	// Probes is how many calls a Breaker that is half open lets through at a time, and how many
	// must succeed. Default 3.
	Probes int
}

func (b *Breaker) complete() error {
	if !(b.Failures >= 0 && b.Failures <= 1 && b.SlowShare >= 0 && b.SlowShare <= 1) || b.Slow < 0 || b.Window < 0 || b.Calls < 0 || b.Open < 0 || b.MaxOpen < 0 || b.Probes < 0 {
		return fmt.Errorf("%+v has a negative value or a share above 1", *b)
	}
	if !b.on() && *b != (Breaker{}) {
		return fmt.Errorf("%+v lacks Failures or SlowShare", *b)
	}
	if (b.Slow > 0) != (b.SlowShare > 0) {
		return fmt.Errorf("%+v: Slow and SlowShare need each other", *b)
	}
	b.Window = max(parts, or(b.Window, 10*time.Second)) // a part has at least 1 ns
	b.Calls, b.Probes = or(b.Calls, 20), or(b.Probes, 3)
	b.Open = or(b.Open, 2*time.Second)
	b.MaxOpen = max(b.Open, or(b.MaxOpen, 30*time.Second))
	return nil
}

// State is the state of a [Breaker].
type State uint8

// The states.
const (
	Closed   State = iota // all calls are made
	HalfOpen              // some are, to find out whether the endpoint is well
	Opened                // none are
)

func (s State) String() string {
	switch s {
	case Closed:
		return "closed"
	case HalfOpen:
		return "half open"
	case Opened:
		return "open"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

const parts = 10 // of a window

// part counts the calls of a part of the window.
type part struct {
	number              int64 // since the guard was made
	calls, failed, slow int
}

// breaker is the state of a [Breaker]. Times are since the guard was made.
type breaker struct {
	Breaker
	state   State
	period  uint64 // counts the changes of state: calls of an earlier one say nothing
	parts   [parts]part
	opens   int           // in a row
	until   time.Duration // it stays open
	probing int
	passed  int
}

var errOpen = errors.New("open")

// on reports whether there is a Breaker at all.
func (b *Breaker) on() bool { return b.Failures > 0 || b.SlowShare > 0 }

// tryHalfOpen makes an open Breaker half open when it is time, and reports whether it did.
func (b *breaker) tryHalfOpen(now time.Duration) bool {
	if b.state != Opened || now < b.until {
		return false
	}
	b.change(HalfOpen)
	return true
}

// allow lets a call through, maybe as a probe.
func (b *breaker) allow() (probe bool, period uint64, err error) {
	switch {
	case b.state == Closed:
		return false, b.period, nil
	case b.state == Opened || b.probing >= b.Probes:
		return false, 0, errOpen
	}
	b.probing++
	return true, b.period, nil
}

func (b *breaker) change(to State) {
	b.state = to
	b.period++
	b.probing, b.passed = 0, 0
}

// forget takes back a permit whose call says nothing of the endpoint.
func (b *breaker) forget(p permit) {
	if p.probe && p.period == b.period {
		b.probing--
	}
}

// done counts a call that was allowed.
func (b *breaker) done(now, took time.Duration, failed bool, p permit) {
	if !b.on() || p.period != b.period {
		return
	}
	slow := b.Slow > 0 && took >= b.Slow
	if p.probe {
		b.probing--
		if failed || slow {
			b.open(now)
		} else if b.passed++; b.passed >= b.Probes {
			b.opens = 0
			b.parts = [parts]part{}
			b.change(Closed)
		}
		return
	}
	number := int64(now / (b.Window / parts))
	at := &b.parts[number%parts]
	if at.number != number {
		*at = part{number: number}
	}
	at.calls++
	if failed {
		at.failed++
	}
	if slow {
		at.slow++
	}
	if !failed && !slow {
		return
	}
	var sum part
	for _, p := range b.parts {
		if p.number > number-parts {
			sum.calls, sum.failed, sum.slow = sum.calls+p.calls, sum.failed+p.failed, sum.slow+p.slow
		}
	}
	if sum.calls >= b.Calls && (b.Failures > 0 && float64(sum.failed) >= b.Failures*float64(sum.calls) || slow && float64(sum.slow) >= b.SlowShare*float64(sum.calls)) {
		b.open(now)
	}
}

func (b *breaker) open(now time.Duration) {
	d := b.MaxOpen
	if b.Open <= d>>b.opens { // the doubled time cannot overflow
		d = b.Open << b.opens
	}
	b.opens++
	b.until = later(now, d-rand.N(d/5+1))
	b.change(Opened)
}
