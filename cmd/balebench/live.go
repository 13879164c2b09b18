package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/lab"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/cmd/internal/push"
	"github.com/balekv/bale/cmd/internal/serve"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/extra/observe/prom"
	"github.com/balekv/bale/stats"
)

// livePage is the report of a run that goes on. It is the lab's Observer; nil where none is asked
// for.
type livePage struct {
	metrics     *serve.Metrics
	server      *serve.Server
	baseline    *outcome.Run
	environment func(*outcome.Run) // fills in what the lab does not know

	mu     sync.Mutex
	result func() *outcome.Run // nil before there is one
	ended  *outcome.Run        // what there is in the end; nil before
	asked  bool                // somebody has the page open
	told   chan struct{}       // closed when who has it open was given the end
	tell   func()              // closes told
}

// live serves the run that c describes, if --serve asks for that.
func (b *runCommand) live(ctx context.Context, s *cli.Streams, c *lab.Config, baseline *outcome.Run, environment func(*outcome.Run)) (*livePage, error) {
	if b.Serve == "" {
		return nil, nil
	}
	metrics, err := serve.NewMetrics()
	if err != nil {
		return nil, err
	}
	p := &livePage{metrics: metrics, baseline: baseline, environment: environment, told: make(chan struct{})}
	p.tell = sync.OnceFunc(func() { close(p.told) })
	o := serve.Options{Addr: b.Serve, Metrics: metrics}
	o.Page = func(w io.Writer) error { return outcome.BenchShell(w, outcome.BenchOptions{Live: true}) }
	o.Content = p.show(func(w io.Writer, r *outcome.Run) error {
		p.asked = true
		if p.ended != nil {
			p.tell()
		}
		if p.ended == nil { // a file of it would be of a run that was cut short; the page says that it goes on
			e := &r.Environment
			e.Interrupted = false
			e.Notes = slices.DeleteFunc(e.Notes, func(note string) bool { return strings.HasPrefix(note, interruptedRun) })
		}
		return outcome.BenchContent(w, r, baseline, pageOptions(r, p.ended == nil))
	})
	o.Result = p.show(func(w io.Writer, r *outcome.Run) error { return printable.WriteJSON(w, r) })
	if p.server, err = serve.Start(ctx, o); err != nil {
		return nil, fmt.Errorf("--serve: %w", err)
	}
	printable.Fprintf(s.Err, "the report, live: %s\n", p.server.URL())
	c.Observer = p
	progress := c.Progress
	c.Progress = func(at lab.Progress) {
		metrics.Progress(at.Done, at.Total, at.What)
		if at.Cell != nil {
			metrics.Turn(serve.Turn{Cells: at.Cells, CellsDone: at.CellsDone, Rounds: at.Rounds, Round: at.Round, Cell: *at.Cell})
		}
		if progress != nil {
			progress(at)
		}
	}
	return p, nil
}

// show writes something of the result so far.
func (p *livePage) show(write func(io.Writer, *outcome.Run) error) func(io.Writer) error {
	return func(w io.Writer) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case p.ended != nil:
			return write(w, p.ended)
		case p.result == nil:
			return serve.ErrNotYet
		}
		r := p.result()
		p.environment(r)
		return write(w, r)
	}
}

// Recorder implements lab.Observer.
func (p *livePage) Recorder(group string) stats.Recorder { return p.metrics.Recorder(group) }

// Trained implements lab.Observer.
func (p *livePage) Trained(group string, t *dict.Training) {
	p.metrics.Trained(group, t.Dictionary, t.Info())
}

// Pool implements lab.Observer.
func (p *livePage) Pool(client string, pool func() prom.PoolStats) { p.metrics.Pool(client, pool) }

// Watch implements lab.Observer.
func (p *livePage) Watch(result func() *outcome.Run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result = result
}

// end shows the result as it is in the end. Who has the page open gets it before the server ends:
// the page asks every two seconds.
func (p *livePage) end(ctx context.Context, r *outcome.Run) {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.ended = r
	asked := p.asked
	p.mu.Unlock()
	if !asked {
		return
	}
	select {
	case <-p.told:
		// The answer is on its way, and Close waits for it.
	case <-time.After(endPatience):
	case <-ctx.Done():
	}
}

const endPatience = 5 * time.Second

// Close ends it.
func (p *livePage) Close() error {
	if p == nil {
		return nil
	}
	return p.server.Close()
}

// push sends the result to --push, if that is asked for.
func (b *runCommand) push(ctx context.Context, s *cli.Streams, r *outcome.Run) error {
	if b.Push == "" {
		return nil
	}
	gateway, err := push.Parse(b.Push)
	if err != nil {
		return fmt.Errorf("--push: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, pushTimeout)
	defer cancel()
	if err := gateway.Push(ctx, r); err != nil {
		return fmt.Errorf("--push: %w", err)
	}
	printable.Fprintf(s.Err, "pushed to %s\n", gateway)
	return nil
}

const pushTimeout = 30 * time.Second
