package lab

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/google/pprof/profile"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/latency"
	"github.com/balekv/bale/cmd/internal/load"
	"github.com/balekv/bale/cmd/internal/outcome"
)

// cell is a variant on a server, with a client and a number of callers.
type cell struct {
	*variant
	server      *Server
	client      *client
	batch       Batch
	mix         Mix
	concurrency int
	rate        float64 // of the open loop, operations a second; 0 for the closed one
	latency     [recorded]latency.Histogram
	rounds      []outcome.Round
	operations  int64
	hits        int64
	misses      int64
	unstarted   int64
	profiles    map[string]*profile.Profile // of all rounds, by kind
	failure     failure
}

func (c *cell) identity() outcome.Identity {
	i := c.variant.identity()
	i.Client, i.Server, i.Batch, i.Concurrency, i.Rate = c.client.name, c.server.Setting, c.batch.String(), c.concurrency, c.rate
	return i
}

// matrix makes the cells.
func (r *run) matrix(variants []*variant) {
	for _, v := range variants {
		for _, server := range r.servers {
			for _, client := range server.clients {
				for _, batch := range r.Batches {
					for _, n := range r.Concurrency {
						for _, rate := range r.Rates {
							c := &cell{variant: v, server: server, client: client, batch: batch, mix: r.Mix, concurrency: n, rate: rate}
							if reason := c.unfit(); reason != "" {
								r.skip(c.identity(), reason)
								continue
							}
							r.cells = append(r.cells, c)
						}
					}
				}
			}
		}
	}
}

// unfit says why a cell is not measured, or is empty.
func (c *cell) unfit() string {
	mean := c.data.RawBytes() / int64(len(c.data.Raw))
	values := c.concurrency * c.batch.values()
	switch {
	case values > 1 && mean*int64(values) > maxInFlight:
		return fmt.Sprintf("%d values of %d bytes at once are more than %d MiB", values, mean, maxInFlight>>20)
	case values > maxValues:
		return fmt.Sprintf("%d values at once are more than %d", values, maxValues)
	}
	if c.batch.N > 0 && c.client != nil && c.client.batcher == nil {
		return noBatches
	}
	return ""
}

// noBatches is the reason why goredis+auto has no batches.
const noBatches = "goredis+auto makes pipelines of single commands, and a program's own batches go past it: take goredis for those"

// roundTime is the time of a cell in a round.
func (r *run) roundTime() time.Duration { return r.Duration / time.Duration(r.Rounds) }

// measure runs a cell for its share of a round.
func (r *run) measure(ctx context.Context, c *cell, round int) {
	if c.failed() != nil {
		return
	}
	r.timeline.doing(c.variant.String())
	if c.mix.Single() {
		if err := errors.Join(r.proveWrites(ctx, c.client.store, uint64(round)), r.loadKeys(ctx, c.server, c.client.store, c.variant)); err != nil {
			c.failure.replace(r.examine(ctx, c.server, err))
			return
		}
	}
	r.latency.Reset()
	clean()
	found := outcome.Round{Round: round, AtS: time.Since(r.began).Seconds()}
	p := newPhase(r, c)
	var callers sync.WaitGroup
	r.start(ctx, p, &callers, uint64(round))
	warm := p.warmUp(ctx, r.roundTime())
	found.WarmUpS, found.Steady = warm.took.Seconds(), warm.steady

	before, after, err := r.watched(ctx, p, &found)
	p.end(ctx, &callers, r.roundTime())
	if failed := c.failure.get(); failed != nil {
		c.failure.replace(r.examine(ctx, c.server, failed))
	}
	switch {
	case ctx.Err() != nil: // a round that was cut short is no measurement
	case err != nil:
		c.failure.set(err)
	default:
		r.conclude(c, p, &found, before, after)
	}
}

// proof begins what proveWrites writes.
var proof = []byte("proof of round ")

// proveWrites checks that a written value can be read back. In a mix a key always holds the same
// value, so a lost write would pass unnoticed.
func (r *run) proveWrites(ctx context.Context, store bale.Store, round uint64) error {
	key, value := r.dictKey(), binary.BigEndian.AppendUint64(slices.Clip(proof), round)
	if err := store.Set(ctx, key, value, bale.Expiry{}); err != nil {
		return fmt.Errorf("set: %w", err)
	}
	got, err := store.Get(ctx, key)
	if err != nil && !errors.Is(err, bale.ErrNotFound) {
		return fmt.Errorf("get: %w", err)
	}
	if !bytes.Equal(got, value) {
		return errMismatch
	}
	return nil
}

// watched measures what the callers do in a round's time, with a look at all resources before and
// after, while they are at work.
func (r *run) watched(ctx context.Context, p *phase, found *outcome.Round) (before, after *look, err error) {
	stopProfiles, err := p.cell.startProfiles(r.Profiles)
	if err != nil {
		return nil, nil, err
	}
	before, after = &look{main: -1}, &look{main: -1}
	if p.cell.failure.get() != nil { // the server may be gone
		return before, after, stopProfiles()
	}
	if err = before.atServer(ctx, p); err == nil {
		before.atOwn(ctx, p)
		from, done := p.now(), p.done.Load()
		length := r.roundTime()
		if p.cell.rate > 0 { // of which one is to start meanwhile; when it is done is not waited for: late ones are what it has to tell
			length = max(length, time.Duration(1e9/p.cell.rate)+1)
		}
		p.least.Store(from + int64(length))
		p.from.Store(from)
		r.hold(ctx, p, from)
		until := p.until.Load()
		found.Seconds = float64(until-from) / 1e9
		found.OpsPerSecond = float64(p.done.Load()-done) / found.Seconds // of an open loop
		p.settle(ctx)
		after.atOwn(ctx, p)
		if p.cell.failure.get() == nil {
			err = after.atServer(ctx, p)
		}
	}
	return before, after, errors.Join(err, stopProfiles())
}

// settle waits until every operation of a closed loop that counts has ended. The callers go on
// meanwhile, so that the last ones have no easier time.
func (p *phase) settle(ctx context.Context) {
	for began := time.Now(); p.cell.rate == 0 && !p.settled() && p.cell.failure.get() == nil && ctx.Err() == nil && time.Since(began) < p.run.timeout; {
		sleep(ctx, time.Millisecond)
	}
}

// clean has each cell start from the same heap, so that none pays for the garbage of the one
// before. Memory goes back to the system where it is much: to get it anew takes time.
func clean() {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapIdle-m.HeapReleased > muchIdle {
		debug.FreeOSMemory()
	}
}

const muchIdle = 128 << 20

// start sets the callers to work.
func (r *run) start(ctx context.Context, p *phase, callers *sync.WaitGroup, round uint64) {
	c := p.cell
	var starts chan load.Start
	if c.rate > 0 {
		starts = make(chan load.Start, min(maxBacklog, int(c.rate*drainLeast.Seconds())+1))
		callers.Go(func() { p.generate(ctx, c.rate, starts) })
	}
	own := (len(r.keys) - 1) / c.concurrency
	var draw *popularity
	if c.mix.Single() {
		draw = r.Mix.popularity(c.keys)
	}
	for i := range c.concurrency {
		caller := &caller{cell: c, epoch: p.began, rng: rand.New(rand.NewPCG(r.Seed, round<<32|uint64(i))), keys: r.keys[i*own:][:own]}
		if draw != nil {
			caller.draw, caller.keys, caller.misses = draw, r.keys, r.keys[0]+":none"
		}
		to := r.latency.Shard(i)
		callers.Go(func() {
			if starts != nil {
				p.open(ctx, caller, to, starts)
			} else {
				p.closed(ctx, caller, to)
			}
		})
	}
}

// hold lets the callers work for the measured time, and longer until each has completed one whole
// operation. In an open loop it goes on until at least one operation was due.
func (r *run) hold(ctx context.Context, p *phase, from int64) {
	sleep(ctx, r.roundTime())
	for !p.over(p.now()) && p.cell.failure.get() == nil && ctx.Err() == nil && time.Duration(p.now()-from) < r.timeout {
		sleep(ctx, time.Millisecond)
	}
	p.until.CompareAndSwap(maxTime, p.now())
}

// end stops the callers. In an open loop they first do the operations that were due before its end,
// because leaving these out would hide the longest waits. The wait for them is bounded.
func (p *phase) end(ctx context.Context, callers *sync.WaitGroup, slice time.Duration) {
	p.until.CompareAndSwap(maxTime, p.now())
	if p.cell.rate > 0 {
		patience := time.NewTimer(max(drainLeast, drainPatience*slice))
		defer patience.Stop()
		ended := make(chan struct{})
		go func() { callers.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-patience.C:
		case <-ctx.Done():
		}
		close(p.stop)
		<-ended
		// Callers end by themselves when there is none left.
		p.unstarted = max(0, p.due()-p.started.Load())
		return
	}
	close(p.stop)
	callers.Wait()
}

const (
	maxBacklog    = 1 << 20 // operations of an open loop that wait for a caller
	drainPatience = 10      // in so many times what is measured in a round they are done, or they are given up,
	drainLeast    = 5 * time.Second
)

// conclude takes the figures of a round when its callers have ended.
func (r *run) conclude(c *cell, p *phase, found *outcome.Round, before, after *look) {
	measured := p.measured.Load()
	if p.unstarted > 0 {
		r.mu.Lock()
		c.unstarted += p.unstarted
		r.mu.Unlock()
	}
	if measured == 0 {
		return
	}
	histograms := r.latency.Snapshot()
	found.Operations = measured
	if c.rate == 0 {
		// So many callers, each of whom does one in a mean cycle: no operation is cut off at the
		// start or the end, however few there are.
		found.OpsPerSecond = float64(c.concurrency) * float64(measured) * 1e9 / float64(p.cycles.Load())
	}
	for i := range outcome.Stages {
		found.StagesP50 = append(found.StagesP50, us(histograms[i].Quantile(0.5)))
	}
	found.P99 = us(histograms[total].Quantile(0.99))
	found.AtLeast = p.unstarted > 0 || histograms[total].Clamped() > 0
	ops := float64(max(1, after.done-before.done))
	found.AllocsPerOp, found.BytesPerOp = float64(after.used.Allocs-before.used.Allocs)/ops, float64(after.used.Bytes-before.used.Bytes)/ops
	found.Resources = after.since(before)

	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range histograms {
		c.latency[i].Merge(histograms[i])
	}
	c.operations += measured
	c.hits += p.hits.Load()
	c.misses += p.misses.Load()
	c.rounds = append(c.rounds, *found)
}

func (c *cell) failed() error { return errors.Join(c.variant.failure.get(), c.failure.get()) }

// result returns the results of a cell, on a machine with this number of cores.
func (c *cell) result(cores int) outcome.Cell {
	of := func(figure func(outcome.Round) float64) outcome.Estimate { return estimate(c.rounds, figure) }
	out := outcome.Cell{
		Identity: c.identity(),
		Values:   len(c.data.Raw), RawBytes: c.data.RawBytes(), PlainBytes: c.plain, StoredBytes: c.stored, Unstable: c.unstable,
		RedisBytesPerKey: c.perKey, MemoryUsagePerKey: c.usageKey, Keys: c.keys,
		Operations:   c.operations,
		OpsPerSecond: of(func(r outcome.Round) float64 { return r.OpsPerSecond }),
		AllocsPerOp:  of(func(r outcome.Round) float64 { return r.AllocsPerOp }),
		BytesPerOp:   of(func(r outcome.Round) float64 { return r.BytesPerOp }),
		P50:          of(func(r outcome.Round) float64 { return r.StagesP50[total] }).Around(us(c.latency[total].Quantile(0.5))),
		P99:          of(func(r outcome.Round) float64 { return r.P99 }).Around(us(c.latency[total].Quantile(0.99))),
		Hits:         c.hits, Misses: c.misses, Unstarted: c.unstarted, AtLeast: c.unstarted > 0 || c.latency[total].Clamped() > 0,
		Latency: outcome.Points(&c.latency[total]), Stages: map[string]outcome.Stage{}, Rounds: slices.Clone(c.rounds), Resources: mean(c.rounds),
	}
	values := float64(c.batch.values())
	out.ValuesPerSecond = of(func(r outcome.Round) float64 { return values * r.OpsPerSecond })
	for i, name := range outcome.Stages {
		out.Stages[name] = stage(&c.latency[i])
	}
	if c.rate > 0 {
		out.Service = outcome.Points(&c.latency[service])
		lateness := stage(&c.latency[late])
		out.Late = &lateness
	}
	if c.stored > 0 {
		out.Ratio = float64(out.RawBytes) / float64(c.stored)
	}
	err := c.failed()
	switch {
	case err != nil || c.operations > 0:
	case c.unstarted > 0:
		err = fmt.Errorf("the rate is far too high: %d operations waited for a caller when it was given up", c.unstarted)
	default:
		err = errors.New("no operation was completed within a round: use a longer --duration")
	}
	out.Verified = err == nil
	if err != nil {
		out.Error = err.Error()
		out.Mismatch = errors.Is(err, errMismatch) || errors.Is(err, bale.ErrCorrupt)
		return out
	}
	out.Limit, out.Why = bottleneck(&out, c.server, cores)
	return out
}

func us(d time.Duration) float64 { return float64(d) / 1e3 }

func stage(h *latency.Histogram) outcome.Stage {
	return outcome.Stage{P50: us(h.Quantile(0.5)), P95: us(h.Quantile(0.95)), P99: us(h.Quantile(0.99)), P999: us(h.Quantile(0.999)), Mean: h.Mean() / 1e3}
}
