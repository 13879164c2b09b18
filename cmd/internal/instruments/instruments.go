// Package instruments measures what observing costs: counters behind locks, without locks, in
// shards, bale's own Counters and Ring, and a channel, from one goroutine to a thousand.
//
// [Run] is the entry point. Every round proves that all operations were counted, or says how many
// the ring dropped.
package instruments

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/rounds"
)

// The loads: goroutines at once, and the percentage of their operations that read.
var (
	goroutines = []int{1, 10, 100, 1000}
	reads      = []int{0, 50, 90, 99}
)

const (
	bytesEach = 100 // of an operation
	lookEvery = 64  // operations, at the clock
)

// Cell is an instrument under a load.
type Cell struct {
	Instrument   string           `json:"instrument"`
	Goroutines   int              `json:"goroutines"`
	Reads        int              `json:"reads_percent"` // of the operations; the others record
	Operations   int64            `json:"operations"`
	OpsPerSecond outcome.Estimate `json:"ops_per_second"`
	BytesPerOp   outcome.Estimate `json:"bytes_per_op"`  // allocated
	AllocsPerOp  outcome.Estimate `json:"allocs_per_op"` // and how often
	Recorded     uint64           `json:"recorded"`
	Dropped      uint64           `json:"dropped"`                   // of Recorded, by a full ring
	Claim        float64          `json:"published_claim,omitempty"` // operations a second; of unknown hardware and load, not measured here
	Verified     bool             `json:"verified"`                  // everything was counted, and no read went back
	Error        string           `json:"error,omitempty"`

	open                 func(callers int) (meter, error)
	rates, bytes, allocs []float64
}

// errTotals: a meter did not count what was recorded. errBack: a read gave less than one before.
var (
	errTotals = errors.New("MISMATCH: not everything was counted")
	errBack   = errors.New("MISMATCH: a read gave less than the read before")
)

// Run measures all instruments under all loads. A cell that did not count everything is an error,
// beside the report.
func Run(ctx context.Context, o rounds.Options) (report *outcome.Report, err error) {
	return run(ctx, o, instruments)
}

func run(ctx context.Context, o rounds.Options, all []instrument) (report *outcome.Report, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	var cells []*Cell
	var names []string
	for _, share := range reads {
		for _, i := range all {
			for _, n := range goroutines {
				cells = append(cells, &Cell{Instrument: i.name, Goroutines: n, Reads: share, Claim: i.claim, Verified: true, open: i.open})
				names = append(names, fmt.Sprintf("%s, %d%% reads, %s", i.name, share, page.Plural(n, "goroutine")))
			}
		}
	}
	report = &outcome.Report{Cells: cells, Method: method}
	report.Environment, err = rounds.Measure(ctx, o, names, func(ctx context.Context, i int, d time.Duration) error {
		if c := cells[i]; c.Verified {
			if err := c.measure(ctx, d, o.Seed); err != nil {
				c.Verified, c.Error = false, err.Error()
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, c := range cells {
		c.OpsPerSecond, c.BytesPerOp, c.AllocsPerOp = outcome.NewEstimate(c.rates), outcome.NewEstimate(c.bytes), outcome.NewEstimate(c.allocs)
		if !c.Verified {
			report.Failures = append(report.Failures, fmt.Sprintf("FAILED %s: %s", names[i], c.Error))
		}
	}
	report.Findings, report.Charts = findings(cells), charts(cells)
	return report, report.Err()
}

// pattern says for each of a hundred operations whether it reads.
func pattern(percent int, seed uint64) (reads [100]bool) {
	for _, i := range rand.New(rand.NewPCG(seed, uint64(percent))).Perm(len(reads))[:percent] {
		reads[i] = true
	}
	return reads
}

// measure is a round. Its time ends when the last goroutine has ended its last operation, so
// that none is without its time.
func (c *Cell) measure(ctx context.Context, d time.Duration, seed uint64) error {
	m, err := c.open(c.Goroutines)
	if err != nil {
		return err
	}
	isRead := pattern(c.Reads, seed)
	var recorded, operations atomic.Uint64
	var back, stop atomic.Bool
	var ready, done sync.WaitGroup
	gate := make(chan struct{})
	var began time.Time // when the gate opened
	ready.Add(c.Goroutines)
	for caller := range c.Goroutines {
		done.Go(func() {
			ready.Done()
			<-gate
			at, all, records, last := caller%len(isRead), uint64(0), uint64(0), totals{}
			for !stop.Load() {
				if isRead[at] {
					now := m.read(caller)
					if now.operations < last.operations || now.bytes < last.bytes {
						back.Store(true)
					}
					last = now
				} else {
					m.record(caller, bytesEach)
					records++
				}
				if at++; at == len(isRead) {
					at = 0
				}
				// A timer's goroutine would wait its turn behind a thousand of these.
				if all++; all%lookEvery == 0 && (time.Since(began) >= d || ctx.Err() != nil) {
					stop.Store(true)
				}
			}
			recorded.Add(records)
			operations.Add(all)
		})
	}
	ready.Wait()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began = time.Now()
	close(gate)
	done.Wait()
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	counted, dropped, err := m.finish(ctx)
	switch want := recorded.Load() - dropped; {
	case err != nil:
		return err
	case counted.operations != want || counted.bytes != want*bytesEach:
		return fmt.Errorf("%w: %d operations of %d, %d bytes of %d", errTotals, counted.operations, want, counted.bytes, want*bytesEach)
	case back.Load():
		return errBack
	}
	n := float64(max(1, operations.Load()))
	c.Operations += int64(operations.Load())
	c.Recorded += recorded.Load()
	c.Dropped += dropped
	c.rates = append(c.rates, float64(operations.Load())/took.Seconds())
	c.bytes = append(c.bytes, float64(after.TotalAlloc-before.TotalAlloc)/n)
	c.allocs = append(c.allocs, float64(after.Mallocs-before.Mallocs)/n)
	return nil
}
