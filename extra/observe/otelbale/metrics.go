package otelbale

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/dbconv"

	"github.com/balekv/bale/extra/observe/internal/group"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stats"
)

var (
	// operationBounds are those that the conventions ask for, in seconds.
	operationBounds = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10}

	// stageBounds are close together where round trips to Redis are.
	stageBounds = []float64{0.000001, 0.000005, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.005, 0.02, 0.1, 1}
)

// metrics are the instruments. Counters are read when the reader collects, so that an operation
// costs no more than stats.Counters do.
type metrics struct {
	server       []attribute.KeyValue
	duration     dbconv.ClientOperationDuration
	stage        metric.Float64Histogram
	registration metric.Registration

	operations, keys, plain, stored, fresh, dropped metric.Int64ObservableCounter
	dictionary                                      metric.Int64ObservableGauge

	groups  func() []*groupMetrics
	lost    *atomic.Uint64 // nil for a Recorder
	observe sync.Mutex
}

// groupMetrics are the metrics of one group.
type groupMetrics struct {
	metrics  *metrics
	name     string
	counters *stats.Counters

	// The options of recorded figures, made on first use: making one takes longer than everything
	// else.
	operation [stats.Ops][2][stats.Classes]atomic.Pointer[[]metric.RecordOption]
	stages    [stats.Ops][stats.Stages]atomic.Pointer[[]metric.RecordOption]

	totals  group.Totals                          // under metrics.observe, as all below
	options map[optionsKey][]metric.ObserveOption // as they were made for a collection before
}

type optionsKey struct {
	instrument metric.Int64ObservableCounter
	op         stats.Op
	third      int // outcome or result
}

func (m *metrics) newGroup(name string, o *Options) *groupMetrics {
	return &groupMetrics{
		metrics: m, name: name, counters: stats.NewCounters(stats.CountersOptions{TimeEvery: o.TimeEvery}), options: map[optionsKey][]metric.ObserveOption{},
	}
}

// start makes the instruments, of the existing groups at each collection.
func (m *metrics) start(provider metric.MeterProvider) error {
	meter := provider.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))
	var err error
	counter := func(name, unit, description string) (c metric.Int64ObservableCounter) {
		if err == nil {
			c, err = meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
		}
		return c
	}
	m.operations = counter("bale.operations", "{operation}", "Operations by outcome: hit or miss of get, ok of the others, or the class of the error.")
	m.keys = counter("bale.keys", "{key}", "Keys of the operations by result: hit, miss or error of reads, any of the others.")
	m.plain = counter("bale.plain.io", "By", "Bytes of the values, serialized.")
	m.stored = counter("bale.stored.io", "By", "Bytes of the same values as they are in Redis.")
	m.fresh = counter("bale.buffers.fresh", "{buffer}", "Buffers that had to be made or to grow, in place of one that was used before.")
	observed := []metric.Observable{m.operations, m.keys, m.plain, m.stored, m.fresh}
	if m.lost != nil {
		m.dropped = counter("bale.events.dropped", "{event}", "Events that the ring dropped, for it was full.")
		observed = append(observed, m.dropped)
	}
	if err == nil {
		m.dictionary, err = meter.Int64ObservableGauge("bale.dictionary", metric.WithDescription("What the group wrote last with. The value is 1."))
		observed = append(observed, m.dictionary)
	}
	if err == nil {
		m.duration, err = dbconv.NewClientOperationDuration(meter, metric.WithExplicitBucketBoundaries(operationBounds...))
	}
	if err == nil {
		m.stage, err = meter.Float64Histogram("bale.stage.duration", metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(stageBounds...),
			metric.WithDescription("Time of each stage of the operations that were timed, which are a sample."))
	}
	if err == nil {
		m.registration, err = meter.RegisterCallback(m.collect, observed...)
	}
	if err != nil {
		return fmt.Errorf("otelbale: %w", err)
	}
	return nil
}

// collect runs when the reader collects. An operation has series after its first use, then
// including those that are zero.
func (m *metrics) collect(_ context.Context, to metric.Observer) error {
	m.observe.Lock()
	defer m.observe.Unlock()
	var s stats.Snapshot
	for _, g := range m.groups() {
		s = g.counters.Snapshot()
		g.collect(to, &s)
	}
	if m.lost != nil {
		to.ObserveInt64(m.dropped, count(m.lost.Load()))
	}
	return nil
}

func (g *groupMetrics) collect(to metric.Observer, s *stats.Snapshot) {
	m := g.metrics
	for i, totals := range g.totals.Update(s) {
		op := stats.Op(i)
		if totals.Count == 0 {
			continue
		}
		for outcome, n := range totals.Outcomes {
			if group.Has(op, outcome) {
				to.ObserveInt64(m.operations, count(n), g.with(m.operations, op, outcome, outcomeKey, group.Outcome)...)
			}
		}
		for result, n := range totals.Keys {
			if (result == group.Any) != group.Reads(op) {
				to.ObserveInt64(m.keys, count(n), g.with(m.keys, op, result, resultKey, group.Result)...)
			}
		}
		if totals.Plain != 0 || totals.Stored != 0 {
			to.ObserveInt64(m.plain, count(totals.Plain), g.with(m.plain, op, 0, "", nil)...)
			to.ObserveInt64(m.stored, count(totals.Stored), g.with(m.stored, op, 0, "", nil)...)
		}
	}
	to.ObserveInt64(m.fresh, count(s.Fresh), metric.WithAttributes(groupKey.String(g.name)))
	if s.Algorithm != frame.Stored {
		to.ObserveInt64(m.dictionary, 1, metric.WithAttributes(groupKey.String(g.name),
			algorithmKey.String(s.Algorithm.String()), dictionaryKey.String(s.DictionaryID.String())))
	}
}

// with returns the attributes of a counter: group, operation, and a third if it has a name.
func (g *groupMetrics) with(c metric.Int64ObservableCounter, op stats.Op, third int, key attribute.Key, name func(int) string) []metric.ObserveOption {
	cached := optionsKey{c, op, third}
	options, ok := g.options[cached]
	if !ok {
		attributes := []attribute.KeyValue{groupKey.String(g.name), operationKey.String(op.String())}
		if name != nil {
			attributes = append(attributes, key.String(name(third)))
		}
		options = []metric.ObserveOption{metric.WithAttributeSet(attribute.NewSet(attributes...))}
		g.options[cached] = options
	}
	return options
}

// count is n in OpenTelemetry's type.
func count(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// record counts an event, and adds its times to the histograms.
func (g *groupMetrics) record(ctx context.Context, e *stats.Event) {
	if e.Op >= stats.Ops || e.Class >= stats.Classes {
		return // of a later version
	}
	g.counters.Record(ctx, *e)
	if !e.Timed {
		return
	}
	m := g.metrics
	if name, _ := command(e.Op, e.Keys); name != "" {
		m.duration.Float64Histogram.Record(ctx, e.Total().Seconds(), g.operationOptions(e)...)
	}
	for stage, d := range e.Times {
		if d > 0 {
			m.stage.Record(ctx, d.Seconds(), g.stageOptions(e.Op, stats.Stage(stage))...)
		}
	}
}

// operationOptions are the attributes of db.client.operation.duration.
func (g *groupMetrics) operationOptions(e *stats.Event) []metric.RecordOption {
	name, pipeline := command(e.Op, e.Keys)
	form := 0
	if pipeline {
		form = 1
	}
	place := &g.operation[e.Op][form][e.Class]
	if options := place.Load(); options != nil {
		return *options
	}
	attributes := append([]attribute.KeyValue{semconv.DBOperationName(name), groupKey.String(g.name)}, g.metrics.server...)
	if e.Class != stats.OK {
		attributes = append(attributes, semconv.ErrorTypeKey.String(e.Class.String()))
	}
	return keep(place, attributes)
}

// stageOptions are the attributes of bale.stage.duration.
func (g *groupMetrics) stageOptions(op stats.Op, stage stats.Stage) []metric.RecordOption {
	place := &g.stages[op][stage]
	if options := place.Load(); options != nil {
		return *options
	}
	return keep(place, []attribute.KeyValue{groupKey.String(g.name), operationKey.String(op.String()), stageKey.String(stage.String())})
}

func keep(place *atomic.Pointer[[]metric.RecordOption], attributes []attribute.KeyValue) []metric.RecordOption {
	options := []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(attributes...))}
	place.Store(&options)
	return options
}

// close ends the collection.
func (m *metrics) close() error {
	if err := m.registration.Unregister(); err != nil {
		return fmt.Errorf("otelbale: %w", err)
	}
	return nil
}
