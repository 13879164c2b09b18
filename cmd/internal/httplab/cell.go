package httplab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/balekv/bale/cmd/internal/latency"
	"github.com/balekv/bale/cmd/internal/load"
	"github.com/balekv/bale/cmd/internal/origin"
	"github.com/balekv/bale/cmd/internal/outcome"
)

// round is what one round of a cell found.
type round struct {
	perSecond, p50, p99, p999, served float64
	connections, goroutines           float64
	allocs, bytes                     float64
	pause, client, server, machine    float64
	requests, errors, unstarted       int64
	firstError                        error
}

// kept reports whether an open loop had the throughput of its rate.
func (r *round) kept(rate float64) bool {
	return r.perSecond >= outcome.KeptRate*rate && r.unstarted == 0
}

// phase is a load while it goes on.
type phase struct {
	*cell
	client      client
	delay       time.Duration // of the server
	latency     *latency.Recorder
	began       time.Time
	from, until atomic.Int64 // a request counts if from <= its intended start < until, in nanoseconds since began
	ids         atomic.Uint64
	done        atomic.Int64 // requests that succeeded
	counted     atomic.Int64 // of those that count
	errors      atomic.Int64 // those that count and failed
	started     atomic.Int64
	firstError  atomic.Pointer[error]
	mismatch    atomic.Pointer[error]
	buffers     sync.Pool
	stop        chan struct{} // closed for callers to end
}

const (
	maxTime       = int64(1<<63 - 1)
	warmShare     = 2 // a round warms up for one part in so many of its time,
	warmLeast     = 20 * time.Millisecond
	drainPatience = 5 * time.Second // for requests that were due in an open loop
	lookEvery     = time.Millisecond
)

func (p *phase) now() int64 { return int64(time.Since(p.began)) }

// measure runs a cell for a round, with a new client. A wrong response, or a dead server, fails the
// cell.
func (r *run) measure(ctx context.Context, c *cell, slice time.Duration) {
	if c.failure != nil {
		return
	}
	callers := cmp.Or(c.Callers, r.InFlight)
	opened, err := c.setting.row().open(need{c.server.Addr(), c.setting.Policy, callers, c.Reuse, r.Delay})
	if err != nil {
		c.failure = err
		return
	}
	defer opened.close()
	r.latency.Reset()
	runtime.GC()
	before, err := c.server.Stats()
	if err != nil {
		c.failure = err
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &phase{cell: c, client: opened, delay: max(r.Delay, time.Millisecond), latency: r.latency, began: time.Now(), stop: make(chan struct{})}
	p.buffers.New = func() any { b := make([]byte, 0, c.Size+512); return &b }
	p.from.Store(maxTime)
	p.until.Store(maxTime)
	var requests sync.WaitGroup
	if c.Rate > 0 {
		requests.Go(func() { p.open(ctx, callers) })
	} else {
		for i := range callers {
			requests.Go(func() { p.closed(ctx, i) })
		}
	}
	sleep(ctx, max(slice/warmShare, warmLeast))
	found, err := p.watch(ctx, slice)
	ended := make(chan struct{})
	go func() { requests.Wait(); close(ended) }()
	if c.Rate == 0 {
		close(p.stop)
	}
	patience := time.NewTimer(drainPatience)
	defer patience.Stop()
	select {
	case <-ended:
	case <-patience.C:
	case <-ctx.Done():
	}
	over := ctx.Err() != nil // interrupted
	cancel()
	if c.Rate > 0 {
		close(p.stop)
	}
	<-ended
	after, failed := c.server.Stats()
	if wrong := p.mismatch.Load(); wrong != nil {
		failed = *wrong
	}
	if err = errors.Join(err, failed); over || err != nil {
		if !over {
			c.failure = err
		}
		return
	}
	p.conclude(found, after.Connections-before.Connections)
	if found.requests == 0 && found.firstError != nil {
		c.failure = fmt.Errorf("no request succeeded: %w", found.firstError)
		return
	}
	c.rounds = append(c.rounds, *found)
}

// watch measures for a time.
func (p *phase) watch(ctx context.Context, length time.Duration) (*round, error) {
	found := &round{}
	server, err := p.server.Stats()
	if err != nil {
		return found, err
	}
	machine, used, done := load.MachineTime(ctx), load.Used(), p.done.Load()
	from := p.now()
	p.from.Store(from)
	for p.now() < from+int64(length) && ctx.Err() == nil {
		found.goroutines = max(found.goroutines, float64(runtime.NumGoroutine()))
		sleep(ctx, min(lookEvery, length))
	}
	until := p.now()
	p.until.Store(until)
	after := load.Used()
	n := p.done.Load() - done
	seconds := float64(until-from) / 1e9
	found.perSecond = float64(n) / seconds
	ops := float64(max(1, n))
	found.allocs, found.bytes = float64(after.Allocs-used.Allocs)/ops, float64(after.Bytes-used.Bytes)/ops
	found.pause = us(after.LongestPause(&used))
	found.client = (after.CPU - used.CPU).Seconds() / seconds
	found.machine = (load.MachineTime(ctx) - machine).Seconds() / seconds
	now, err := p.server.Stats()
	found.server = (now.CPU - server.CPU).Seconds() / seconds
	return found, err
}

// conclude takes the figures of a round when its requests have ended.
func (p *phase) conclude(found *round, connections int64) {
	histograms := p.latency.Snapshot()
	for i := range histograms {
		p.cell.latency[i].Merge(histograms[i])
	}
	quantile := func(stage int, q float64) float64 { return us(histograms[stage].Quantile(q)) }
	found.p50, found.p99, found.p999, found.served = quantile(total, 0.5), quantile(total, 0.99), quantile(total, 0.999), quantile(served, 0.99)
	found.connections = float64(connections)
	found.requests, found.errors = p.counted.Load(), p.errors.Load()
	if err := p.firstError.Load(); err != nil {
		found.firstError = *err
	}
	if p.Rate > 0 {
		due := int64(float64(p.until.Load()) * p.Rate / 1e9)
		found.unstarted = max(0, due-p.started.Load())
	}
}

// closed is a caller that makes a request when its last one has ended. After a failure it waits as
// long as a response takes: callers that a policy refuses at once would use the machine up.
func (p *phase) closed(ctx context.Context, caller int) {
	for ctx.Err() == nil {
		select {
		case <-p.stop:
			return
		default:
		}
		if !p.request(ctx, caller, p.now()) {
			sleep(ctx, p.delay)
		}
	}
}

// open starts requests at their times, each on a goroutine of its own, as a server does for its
// callers. When as many as may be in flight are, it waits, and later ones start late.
func (p *phase) open(ctx context.Context, most int) {
	var inFlight sync.WaitGroup
	defer inFlight.Wait()
	places := make(chan struct{}, most)
	load.Pace(ctx, p.began, p.Rate, p.until.Load, func(s load.Start) bool {
		select {
		case places <- struct{}{}:
		case <-p.stop:
			return false
		case <-ctx.Done():
			return false
		}
		caller := int(p.started.Add(1))
		inFlight.Go(func() {
			defer func() { <-places }()
			p.request(ctx, caller, s.Intended)
		})
		return true
	})
}

// request makes a request with an intended start, and checks the response.
func (p *phase) request(ctx context.Context, caller int, intended int64) (ok bool) {
	id := p.ids.Add(1)
	buffer := p.buffers.Get().(*[]byte)
	defer p.buffers.Put(buffer)
	start := p.now()
	status, body, err := p.client.get(ctx, p.server.Path(p.Size, id), (*buffer)[:0])
	end := p.now()
	*buffer = body
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d", status)
	} else if err == nil {
		if err = origin.Check(body, p.Size, id); err != nil {
			p.mismatch.CompareAndSwap(nil, &err)
		}
	}
	counts := intended >= p.from.Load() && intended < p.until.Load()
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok { // without the URL, which tells nothing
			err = e.Err
		}
		if p.firstError.CompareAndSwap(nil, &err); counts {
			p.errors.Add(1)
		}
		return false
	}
	if p.done.Add(1); counts {
		p.counted.Add(1)
		shard := p.latency.Shard(caller)
		shard.Record(total, time.Duration(end-intended))
		shard.Record(served, time.Duration(end-start))
	}
	return true
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// result returns the figures of a cell, on a machine with this number of cores.
func (c *cell) result(cores int) Cell {
	of := func(figure func(round) float64) outcome.Estimate {
		values := make([]float64, len(c.rounds))
		for i, r := range c.rounds {
			values[i] = figure(r)
		}
		return outcome.NewEstimate(values)
	}
	all := func(stage int, q float64) float64 { return us(c.latency[stage].Quantile(q)) }
	out := Cell{
		Identity:    c.Identity,
		PerSecond:   of(func(r round) float64 { return r.perSecond }),
		P50:         of(func(r round) float64 { return r.p50 }).Around(all(total, 0.5)),
		P99:         of(func(r round) float64 { return r.p99 }).Around(all(total, 0.99)),
		P999:        of(func(r round) float64 { return r.p999 }).Around(all(total, 0.999)),
		Served:      of(func(r round) float64 { return r.served }).Around(all(served, 0.99)),
		Connections: of(func(r round) float64 { return r.connections }),
		Goroutines:  of(func(r round) float64 { return r.goroutines }),
		AllocsPerOp: of(func(r round) float64 { return r.allocs }),
		BytesPerOp:  of(func(r round) float64 { return r.bytes }),
		Latency:     outcome.Points(&c.latency[total]),
	}
	if c.Rate > 0 {
		out.Service = outcome.Points(&c.latency[served])
	}
	machine, n := 0.0, float64(max(1, len(c.rounds)))
	for _, r := range c.rounds {
		out.Requests += r.requests
		out.Errors += r.errors
		out.Unstarted += r.unstarted
		out.GCPause = max(out.GCPause, r.pause)
		out.ClientCPU += r.client / n
		out.ServerCPU += r.server / n
		machine += r.machine / n
		if out.FirstError == "" && r.firstError != nil {
			out.FirstError = r.firstError.Error()
		}
	}
	if machine > 0 {
		out.MachineCPU = &machine
	}
	failure := c.failure
	if failure == nil && out.Requests == 0 {
		failure = errors.New("no request ended within a round: use a longer --duration")
	}
	if out.Verified = failure == nil; !out.Verified {
		out.Error = failure.Error()
		return out
	}
	out.Limit, out.Why = out.bottleneck(cores)
	return out
}

// Kept reports whether an open loop kept its rate, by the rule of package outcome.
func (c *Cell) Kept() bool {
	return c.Rate > 0 && c.PerSecond.Median >= outcome.KeptRate*c.Rate && c.Unstarted == 0
}

// bottleneck says what kept a cell from being faster.
func (c *Cell) bottleneck(cores int) (limit, why string) {
	uses := fmt.Sprintf("this process uses %.2f and the server %.2f of %d cores", c.ClientCPU, c.ServerCPU, cores)
	all := c.ClientCPU + c.ServerCPU
	if c.MachineCPU != nil && *c.MachineCPU > all {
		if outcome.MuchElse(*c.MachineCPU-all, cores) {
			uses += fmt.Sprintf(", other programs %.2f", *c.MachineCPU-all)
		}
		all = *c.MachineCPU
	}
	switch {
	case c.Kept():
		return outcome.LimitOffered, fmt.Sprintf("%.0f requests a second were asked for, and answered; %s", c.Rate, uses)
	case all >= load.BusyMachine*float64(cores):
		return outcome.LimitMachine, uses
	}
	return outcome.LimitWaiting, uses
}
