// Package httplab measures HTTP clients against a server in a process of its own, which answers
// after a set delay: throughput, latency, connections, goroutines, allocations.
//
// [Run] measures what [Options] ask for. It interleaves the cells in rounds of random order, as
// package lab does, and checks the status and every byte of each response.
package httplab

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/latency"
	"github.com/balekv/bale/cmd/internal/origin"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/rounds"
)

// Options say what to measure, and for how long.
type Options struct {
	rounds.Options
	Clients []ClientSetting
	Sizes   []int  // bytes of a response's body
	Reuse   []bool // of connections

	// Loops are how requests come: [Open], [Closed].
	Loops []string

	// Rate is requests a second of the open loop. Default 0: the highest that all clients keep, by
	// trying.
	Rate float64

	Concurrency int           // callers of the closed loop
	InFlight    int           // requests of the open loop that are in flight at most; later ones wait
	Delay       time.Duration // of the server
}

// The loops. In the open one requests start at a fixed rate, whatever became of earlier ones. In
// the closed one each caller makes a request when its last one has ended.
const (
	Open   = "open"
	Closed = "closed"
)

const (
	maxCallers = 10_000
	maxRate    = 1_000_000
	maxDelay   = time.Minute
)

// Validate returns an error if no run is possible.
func (o *Options) Validate() error {
	for _, size := range o.Sizes {
		if size < origin.MinSize || size > origin.MaxSize {
			return fmt.Errorf("--size %d, must be %d bytes to 16 MiB", size, origin.MinSize)
		}
	}
	for _, loop := range o.Loops {
		if loop != Open && loop != Closed {
			return fmt.Errorf("--loop %q; there are %s, %s", loop, Open, Closed)
		}
	}
	switch {
	case len(o.Clients) == 0 || len(o.Sizes) == 0 || len(o.Reuse) == 0 || len(o.Loops) == 0:
		return errors.New("a list is empty: --client, --size, --reuse and --loop need one entry each")
	case !(o.Rate >= 0 && o.Rate <= maxRate):
		return fmt.Errorf("--rate %g, must be 0 to %d", o.Rate, maxRate)
	case o.Concurrency < 1 || o.Concurrency > maxCallers:
		return fmt.Errorf("--concurrency %d, must be 1 to %d", o.Concurrency, maxCallers)
	case o.InFlight < 1 || o.InFlight > maxCallers:
		return fmt.Errorf("--in-flight %d, must be 1 to %d", o.InFlight, maxCallers)
	case o.Delay < 0 || o.Delay > maxDelay:
		return fmt.Errorf("--delay %v, must be 0 to %v", o.Delay, maxDelay)
	}
	return o.Options.Validate()
}

// Identity is what tells a cell from all others of its run.
type Identity struct {
	Client  string  `json:"client"`
	Size    int     `json:"size"`
	Reuse   bool    `json:"reuse"`
	Callers int     `json:"callers"`        // of a closed loop
	Rate    float64 `json:"rate,omitempty"` // requests a second of an open loop
}

// Cell is a client under a load, and its figures. Times are in microseconds. In an open loop they
// count from the intended start.
type Cell struct {
	Identity

	Requests    int64            `json:"requests"` // that succeeded
	Errors      int64            `json:"errors"`   // others, those included that were given up at the end of a round
	Unstarted   int64            `json:"unstarted,omitempty"`
	FirstError  string           `json:"first_error,omitempty"`
	PerSecond   outcome.Estimate `json:"per_second"`
	P50         outcome.Estimate `json:"p50_us"`
	P99         outcome.Estimate `json:"p99_us"`
	P999        outcome.Estimate `json:"p999_us"`
	Served      outcome.Estimate `json:"served_p99_us"` // from the actual start
	Connections outcome.Estimate `json:"connections"`   // opened in a round, with its warm-up
	Goroutines  outcome.Estimate `json:"goroutines"`    // peak in a round
	AllocsPerOp outcome.Estimate `json:"allocs_per_op"` // of this process, the load generator included
	BytesPerOp  outcome.Estimate `json:"bytes_per_op"`
	GCPause     float64          `json:"gc_pause_max_us"` // the longest stop of the world
	ClientCPU   float64          `json:"client_cpu"`      // cores that this process used
	ServerCPU   float64          `json:"server_cpu"`
	MachineCPU  *float64         `json:"machine_cpu"` // cores that all programs used; null where it is unknown

	Limit string `json:"limit,omitempty"` // of package outcome
	Why   string `json:"limit_why,omitempty"`

	Latency []outcome.Point `json:"latency"`
	Service []outcome.Point `json:"service,omitempty"` // from the actual start; of an open loop only

	Verified bool   `json:"verified"` // every response was the one that was asked for
	Error    string `json:"error,omitempty"`
}

// cell is one in the making.
type cell struct {
	Identity
	setting ClientSetting
	server  *origin.Server
	rounds  []round
	latency [stages]latency.Histogram
	failure error
}

// The stages of a request.
const (
	total  = iota // from the intended start
	served        // from the actual one
	stages
)

// run is the state of a Run.
type run struct {
	Options
	servers map[string]*origin.Server
	latency *latency.Recorder
	cells   []*cell

	finding func(done, total int, what string) // a rate: the progress of that step; may be nil
	found   int                                // rates
}

// Run measures. If ctx ends early, it returns its error alone.
func Run(ctx context.Context, o Options) (_ *outcome.Report, err error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	r := &run{Options: o, servers: map[string]*origin.Server{}, finding: cli.Step(o.Progress, 1, 2)}
	if r.latency, err = latency.New(latency.Options{Stages: stages}); err != nil {
		return nil, err
	}
	defer func() {
		for _, s := range r.servers {
			err = errors.Join(err, s.Close())
		}
	}()
	for _, c := range o.Clients {
		if r.servers[c.Server] != nil {
			continue
		}
		s, err := origin.Start(ctx, c.Server, origin.Behaviour{Delay: o.Delay})
		if err != nil {
			return nil, err
		}
		r.servers[c.Server] = s
	}
	if err := r.matrix(ctx); err != nil {
		return nil, err
	}
	names := make([]string, len(r.cells))
	for i, c := range r.cells {
		names[i] = c.Client
	}
	if r.found > 0 {
		o.Progress = cli.Step(o.Progress, 2, 2)
	}
	e, err := rounds.Measure(ctx, o.Options, names, func(ctx context.Context, i int, d time.Duration) error {
		r.measure(ctx, r.cells[i], d)
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	report := r.report(e)
	return report, report.Err()
}

// matrix makes the cells, and finds the rates of open loops without one.
func (r *run) matrix(ctx context.Context) error {
	open := slices.Contains(r.Loops, Open)
	for _, size := range r.Sizes {
		for _, reuse := range r.Reuse {
			of := func(rate float64) (cells []*cell) {
				for _, c := range r.Clients {
					i := Identity{Client: c.String(), Size: size, Reuse: reuse, Rate: rate}
					if rate == 0 {
						i.Callers = r.Concurrency
					}
					cells = append(cells, &cell{Identity: i, setting: c, server: r.servers[c.Server]})
				}
				return cells
			}
			if open {
				rate := r.Rate
				if rate == 0 {
					if rate = r.findRate(ctx, of); ctx.Err() != nil {
						return ctx.Err()
					}
				}
				r.cells = append(r.cells, of(rate)...)
			}
			if slices.Contains(r.Loops, Closed) {
				r.cells = append(r.cells, of(0)...)
			}
		}
	}
	return nil
}

const (
	firstShare = 0.7 // of what the slowest client does in a closed loop: the first rate
	nextShare  = 0.8 // of a rate that was not kept: the next
	mostTries  = 8
	probeLeast = 200 * time.Millisecond
)

// findRate returns a rate that all clients keep: it measures each once in a closed loop, and then
// at falling rates.
func (r *run) findRate(ctx context.Context, of func(rate float64) []*cell) float64 {
	probe := min(max(r.Duration/time.Duration(r.Rounds), probeLeast), r.Duration)
	const most = 1 + mostTries // turns of a client; a rate that is kept early skips the last ones
	turn, wanted := most*len(r.Clients)*r.found, most*len(r.Clients)*len(r.Sizes)*len(r.Reuse)
	r.found++
	measure := func(c *cell) {
		if r.finding != nil {
			r.finding(turn, wanted, "finding a rate, "+c.Client)
		}
		turn++
		r.measure(ctx, c, probe)
	}
	lowest := math.Inf(1)
	for _, c := range of(0) {
		if measure(c); len(c.rounds) > 0 && c.rounds[0].perSecond > 0 {
			lowest = min(lowest, c.rounds[0].perSecond)
		}
	}
	if math.IsInf(lowest, 1) {
		return 1 // all fail, and say so
	}
	rate := twoDigits(firstShare * lowest)
	for range mostTries {
		kept := true
		for _, c := range of(rate) {
			measure(c)
			if kept = ctx.Err() == nil && (c.failure != nil || len(c.rounds) > 0 && c.rounds[0].kept(rate)); !kept {
				break
			}
		}
		if kept || ctx.Err() != nil {
			break
		}
		rate = twoDigits(nextShare * rate)
	}
	return rate
}

// twoDigits rounds a rate down, so that it can be typed; it is at least 1.
func twoDigits(v float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(max(1, v)))-1)
	return max(1, math.Floor(v/unit)*unit)
}

func us(d time.Duration) float64 { return float64(d) / 1e3 }
