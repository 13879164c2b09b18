package lab

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/balekv/bale/cmd/internal/latency"
	"github.com/balekv/bale/cmd/internal/load"
)

// phase is a round of a cell while callers are at work: what they share.
type phase struct {
	run      *run
	cell     *cell
	began    time.Time
	done     atomic.Int64 // operations that were completed
	begun    atomic.Int64 // of a closed loop: those that count and were begun,
	measured atomic.Int64 // and those that count and were completed
	cycles   atomic.Int64 // of those the times from start to start, in nanoseconds
	hits     atomic.Int64
	misses   atomic.Int64

	// Operations count that are to start from from until until, in nanoseconds since began.
	from, until atomic.Int64
	least       atomic.Int64  // until is not before, nor before as many as turns were measured:
	turns       int64         // one of each caller of a closed loop
	stop        chan struct{} // closed for callers to end

	// Of an open loop: operations that a caller came to, and in the end those that none did.
	started   atomic.Int64
	unstarted int64
}

// maxTime is a time that does not come.
const maxTime = math.MaxInt64

func newPhase(r *run, c *cell) *phase {
	p := &phase{run: r, cell: c, began: time.Now(), stop: make(chan struct{})}
	p.from.Store(maxTime)
	p.until.Store(maxTime)
	p.least.Store(maxTime)
	if c.rate == 0 {
		p.turns = int64(c.concurrency)
	}
	return p
}

// now is the time since the phase began.
func (p *phase) now() int64 { return int64(time.Since(p.began)) }

// counts reports whether an operation with this scheduled start is measured.
func (p *phase) counts(at int64) bool { return at >= p.from.Load() && at < p.until.Load() }

// over ends what is measured if its time has come, and reports whether it has.
func (p *phase) over(at int64) bool {
	if at < p.least.Load() || p.measured.Load() < p.turns {
		return false
	}
	p.until.CompareAndSwap(maxTime, at)
	return true
}

// settled reports whether every operation that counts has ended.
func (p *phase) settled() bool { return p.measured.Load() >= p.begun.Load() }

// closed is a caller who starts an operation when its last one has ended. An operation that counts
// is timed from its start to the start of the next: a cycle, with all that the caller does in
// between. Where operations are long, none is begun when all that counts is done: it would be
// waited for.
func (p *phase) closed(ctx context.Context, c *caller, to *latency.Shard) {
	for start := p.now(); ; {
		select {
		case <-p.stop:
			return
		default:
		}
		counts := p.counts(start)
		if counts {
			p.begun.Add(1)
		}
		if !p.operate(ctx, c) {
			return
		}
		next := p.now()
		if counts {
			p.cycles.Add(next - start)
			c.record(to)
			p.count(c)
		}
		if p.over(next) && next-start > long && p.settled() {
			return
		}
		start = next
	}
}

// long is an operation, in nanoseconds, beside which the look at the end of a round takes no time.
const long = int64(20 * time.Millisecond)

// operate does one operation and reports whether the caller may go on.
func (p *phase) operate(ctx context.Context, c *caller) bool {
	if err := c.next(ctx); err != nil {
		if ctx.Err() == nil {
			p.cell.failure.set(err)
		}
		return false
	}
	p.done.Add(1)
	p.run.operations.Add(1)
	return true
}

// count counts an operation that is measured.
func (p *phase) count(c *caller) {
	switch c.hit {
	case 1:
		p.hits.Add(1)
	case -1:
		p.misses.Add(1)
	}
	p.measured.Add(1)
}

// open is a caller that takes the operations of the open loop as they come. It records the whole
// operation from its scheduled start. The wait for a free caller counts, as it would for a request.
func (p *phase) open(ctx context.Context, c *caller, to *latency.Shard, starts <-chan load.Start) {
	for {
		var at load.Start
		var ok bool
		select {
		case <-p.stop:
			return
		case at, ok = <-starts:
			if !ok {
				return
			}
		}
		p.started.Add(1)
		waited := p.now() - at.Intended
		if !p.operate(ctx, c) {
			return
		}
		if p.counts(at.Intended) {
			to.Record(service, c.times[total])
			to.Record(late, time.Duration(at.Sent-at.Intended))
			c.times[total] += time.Duration(waited)
			c.record(to)
			p.count(c)
		}
	}
}

// generate sends the starts of the open loop, evenly spaced, until the phase's end, and closes
// starts then.
func (p *phase) generate(ctx context.Context, rate float64, starts chan<- load.Start) {
	defer close(starts)
	load.Pace(ctx, p.began, rate, p.until.Load, func(s load.Start) bool {
		select {
		case starts <- s:
			return true
		case <-p.stop:
		case <-ctx.Done():
		}
		return false
	})
}

// due returns how many operations of an open loop were scheduled in the phase.
func (p *phase) due() int64 {
	n := int64(float64(p.until.Load()) * p.cell.rate / 1e9)
	for load.IntendedAt(n, p.cell.rate) < p.until.Load() { // what was rounded
		n++
	}
	for n > 0 && load.IntendedAt(n-1, p.cell.rate) >= p.until.Load() {
		n--
	}
	return n
}

// warmth is how the callers' rate became steady.
type warmth struct {
	took   time.Duration
	steady bool
}

const (
	warmWindows = 4  // means of so many windows are compared with those of as many before
	warmShare   = 20 // a window is this part of what is measured in a round,
	warmLeast   = 2 * time.Millisecond
	warmPatient = 4 // in so many times what is measured in a round it must be steady, or it is measured as it is
)

// warmUp returns when the rate of completed operations is steady. It compares the mean of the last
// windows with the mean of the same number before. The two may differ by two standard errors of
// their difference, or by 2%. It also waits until each caller has had a turn, because a thousand
// callers take a while to connect.
func (p *phase) warmUp(ctx context.Context, slice time.Duration) warmth {
	window := max(slice/warmShare, warmLeast)
	var rates []float64
	last, lastAt := int64(0), time.Now()
	for p.cell.failure.get() == nil && ctx.Err() == nil {
		sleep(ctx, window)
		n, now := p.done.Load(), time.Now()
		rates = append(rates, float64(n-last)/now.Sub(lastAt).Seconds())
		last, lastAt = n, now
		took := now.Sub(p.began)
		if n < int64(p.cell.concurrency) && p.cell.rate == 0 || n == 0 {
			if took > p.run.timeout {
				return warmth{took, false}
			}
			continue
		}
		if len(rates) >= 2*warmWindows && settled(rates[len(rates)-2*warmWindows:]) {
			return warmth{took, true}
		}
		if took > warmPatient*slice {
			return warmth{took, false}
		}
	}
	return warmth{time.Since(p.began), false}
}

// settled compares the halves of rates.
func settled(rates []float64) bool {
	half := len(rates) / 2
	a, va := meanVariance(rates[:half])
	b, vb := meanVariance(rates[half:])
	return math.Abs(b-a) <= max(2*math.Sqrt((va+vb)/float64(half)), 0.02*max(a, b))
}

// meanVariance are the mean and the variance of a sample.
func meanVariance(v []float64) (mean, variance float64) {
	for _, x := range v {
		mean += x
	}
	mean /= float64(len(v))
	for _, x := range v {
		variance += (x - mean) * (x - mean)
	}
	return mean, variance / float64(max(1, len(v)-1))
}
