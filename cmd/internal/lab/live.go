package lab

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/cmd/internal/serve"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/extra/observe/prom"
	"github.com/balekv/bale/stats"
)

// livePage is the report of a run that goes on. It is the run's Observer; nil without
// one.
type livePage struct {
	metrics *serve.Metrics
	server  *serve.Server

	mu        sync.Mutex
	result    func() *outcome.Run // nil before there is one
	ended     *outcome.Run        // what there is in the end; nil before
	open      bool                // a browser shows the page
	delivered chan struct{}       // closed when the browser has the end
	deliver   func()              // closes delivered
}

// live serves the run at an address, if there is one.
func (o *Options) live(ctx context.Context) (*livePage, error) {
	if o.Serve == "" {
		return nil, nil
	}
	metrics, err := serve.NewMetrics()
	if err != nil {
		return nil, err
	}
	p := &livePage{metrics: metrics, delivered: make(chan struct{})}
	p.deliver = sync.OnceFunc(func() { close(p.delivered) })
	served := serve.Options{Addr: o.Serve, Metrics: metrics}
	served.Page = func(w io.Writer) error { return new(outcome.Run).WritePage(w, outcome.PageOptions{Live: true}) }
	served.Content = p.show(func(w io.Writer, r *outcome.Run) error {
		p.open = true
		if p.ended != nil {
			p.deliver()
		}
		return r.WriteContent(w, outcome.PageOptions{Baseline: o.Baseline, Live: p.ended == nil})
	})
	served.Result = p.show(func(w io.Writer, r *outcome.Run) error { return printable.WriteJSON(w, r) })
	if p.server, err = serve.Start(ctx, served); err != nil {
		return nil, fmt.Errorf("--serve: %w", err)
	}
	printable.Fprintf(o.Err, "the report, live: %s\n", p.server.URL())
	o.Observer = p
	progress := o.Progress
	o.Progress = func(at Progress) {
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
		return write(w, p.result())
	}
}

// Recorder implements Observer.
func (p *livePage) Recorder(group string) stats.Recorder { return p.metrics.Recorder(group) }

// Trained implements Observer.
func (p *livePage) Trained(group string, t *dict.Training) {
	p.metrics.Trained(group, t.Dictionary, t.Info())
}

// Pool implements Observer.
func (p *livePage) Pool(client string, pool func() prom.PoolStats) { p.metrics.Pool(client, pool) }

// Watch implements Observer.
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
	asked := p.open
	p.mu.Unlock()
	if !asked {
		return
	}
	select {
	case <-p.delivered:
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
