package otelbale

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/balekv/bale"
	"github.com/balekv/bale/stats"
)

// Recorder is a stats.Recorder of one group. Make one with [NewRecorder]; it is safe for concurrent
// use.
type Recorder struct {
	metrics metrics
	group   *groupMetrics
	tracer  trace.Tracer
	roots   bool
	target  string // of spans' names
}

var _ stats.Recorder = (*Recorder)(nil)

// NewRecorder makes the Recorder of a group: one per group. Its metrics exist until
// [Recorder.Close]. An option out of range is bale.ErrInvalid.
func NewRecorder(group string, o Options) (*Recorder, error) {
	server, err := o.check()
	if err != nil {
		return nil, err
	}
	if group == "" {
		return nil, fmt.Errorf("otelbale: %w: no group", bale.ErrInvalid)
	}
	r := &Recorder{roots: o.Roots}
	r.tracer = o.TracerProvider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))
	switch {
	case o.ServerPort != 0:
		r.target = " " + net.JoinHostPort(o.ServerAddress, strconv.Itoa(o.ServerPort))
	case o.ServerAddress != "":
		r.target = " " + o.ServerAddress
	}
	r.metrics.server = server
	r.group = r.metrics.newGroup(strings.ToValidUTF8(group, "\uFFFD"), &o)
	groups := []*groupMetrics{r.group}
	r.metrics.groups = func() []*groupMetrics { return groups }
	if err := r.metrics.start(o.MeterProvider); err != nil {
		return nil, err
	}
	return r, nil
}

// Close takes the Recorder's counters out of the MeterProvider; flush that before. Later calls of
// the Recorder are allowed.
func (r *Recorder) Close() error { return r.metrics.close() }

// spans reports whether an operation becomes a span.
func (r *Recorder) spans(ctx context.Context) bool {
	return r.roots || trace.SpanFromContext(ctx).IsRecording()
}

// Timed implements stats.Recorder: it times the operations that become spans, and a sample of the
// others.
func (r *Recorder) Timed(ctx context.Context) bool {
	return r.spans(ctx) || r.group.counters.Timed(ctx)
}

// Record implements stats.Recorder.
func (r *Recorder) Record(ctx context.Context, e stats.Event) {
	r.group.record(ctx, &e)
	if e.Timed && r.spans(ctx) {
		r.span(ctx, &e)
	}
}

// span makes the span of an operation that has just ended.
func (r *Recorder) span(ctx context.Context, e *stats.Event) {
	end := time.Now()
	start := end.Add(-e.Total())
	kind, name := trace.SpanKindInternal, e.Op.String()
	attributes := make([]attribute.KeyValue, 0, 24)
	if command, pipeline := command(e.Op, e.Keys); command != "" {
		kind, name = trace.SpanKindClient, command+r.target
		attributes = append(attributes, r.metrics.server...)
		attributes = append(attributes, semconv.DBOperationName(command))
		if pipeline {
			attributes = append(attributes, semconv.DBOperationBatchSize(int(e.Keys)))
		}
	}
	attributes = append(attributes, groupKey.String(r.group.name), operationKey.String(e.Op.String()))
	if e.Class != stats.OK {
		attributes = append(attributes, semconv.ErrorTypeKey.String(e.Class.String()))
	}
	attributes = appendOutcome(attributes, e)
	if e.Stored > 0 {
		attributes = append(attributes, plainKey.Int(e.Plain), storedKey.Int(e.Stored), ratioKey.Float64(float64(e.Plain)/float64(e.Stored)),
			algorithmKey.String(e.Algorithm.String()))
		if e.DictionaryID != 0 {
			attributes = append(attributes, dictionaryKey.String(e.DictionaryID.String()))
		}
	}
	for stage, d := range e.Times {
		if d > 0 {
			attributes = append(attributes, stageKeys[stage].Float64(d.Seconds()))
		}
	}
	_, span := r.tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithTimestamp(start), trace.WithAttributes(attributes...))
	if e.Class != stats.OK {
		span.SetStatus(codes.Error, e.Class.String())
	}
	span.End(trace.WithTimestamp(end))
}

// appendOutcome appends the results of the keys.
func appendOutcome(attributes []attribute.KeyValue, e *stats.Event) []attribute.KeyValue {
	switch e.Op {
	case stats.Get:
		outcome := "hit"
		switch {
		case e.Class != stats.OK:
			outcome = e.Class.String()
		case e.Misses > 0:
			outcome = "miss"
		}
		return append(attributes, outcomeKey.String(outcome))
	case stats.GetMany:
		attributes = append(attributes, hitsKey.Int(int(e.Hits)), missesKey.Int(int(e.Misses)))
	case stats.SetMany, stats.Delete, stats.Flush:
	default:
		return append(attributes, outcomeKey.String(e.Class.String()))
	}
	attributes = append(attributes, outcomeKey.String(e.Class.String()), keysKey.Int(int(e.Keys)))
	if e.Errors > 0 {
		attributes = append(attributes, errorsKey.Int(int(e.Errors)))
	}
	return attributes
}
