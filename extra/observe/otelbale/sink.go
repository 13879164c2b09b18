package otelbale

import (
	"context"
	"sync/atomic"

	"github.com/balekv/bale/extra/observe/internal/group"
	"github.com/balekv/bale/stats"
)

// Sink is a stats.Sink that adds to metrics: those of a [Recorder], of all groups. It makes no
// spans, because they would have no caller. Make one with [NewSink]; it is safe for concurrent use.
type Sink struct {
	metrics metrics
	groups  *group.Set[*groupMetrics]
	dropped atomic.Uint64
}

var _ stats.Sink = (*Sink)(nil)

// NewSink makes a Sink. Its metrics exist until [Sink.Close]. The Ring's TimeEvery chooses the
// operations to time. An option out of range is bale.ErrInvalid.
func NewSink(o Options) (*Sink, error) {
	server, err := o.check()
	if err != nil {
		return nil, err
	}
	s := &Sink{}
	s.metrics.server = server
	s.groups = group.NewSet(o.MaxGroups, func(name string) *groupMetrics { return s.metrics.newGroup(name, &o) })
	s.metrics.groups = s.groups.All
	s.metrics.lost = &s.dropped
	if err := s.metrics.start(o.MeterProvider); err != nil {
		return nil, err
	}
	return s, nil
}

// Write implements stats.Sink. It adds, and never waits: the MeterProvider's reader exports on its
// own goroutine.
func (s *Sink) Write(ctx context.Context, b *stats.Batch) error {
	for i := range b.Events {
		s.groups.Get(b.Groups[i]).record(ctx, &b.Events[i])
	}
	s.dropped.Add(b.Dropped)
	return nil
}

// Close takes the Sink's counters out of the MeterProvider; close the Ring and flush the provider
// before.
func (s *Sink) Close() error { return s.metrics.close() }
