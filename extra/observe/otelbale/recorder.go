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
//
// Spans and the metric db.client.operation.duration follow the semantic conventions for Redis,
// version 1.43. An operation of a Cache is one span of kind client, made when the operation has
// ended. The span includes serializing and packing. If the Redis client is instrumented as well,
// its span is a sibling. A load is a span of kind internal. Two attributes of the conventions
// differ, because a stats.Event does not have them:
//
//   - db.operation.name is the equivalent command of the operation: GET, SET, MGET, PIPELINE SET,
//     UNLINK or PEXPIRE. A Store may send others, as on a cluster.
//   - error.type is the stats.Class of the error; there is no db.response.status_code.
//
// The metrics of bale, by bale.group:
//
//	bale.operations        by bale.operation and bale.outcome: hit, miss, ok, or the class of the error
//	bale.keys              by bale.operation and bale.result: hit, miss or error for reads, any for the others
//	bale.plain.io          bytes of the values, serialized, by bale.operation
//	bale.stored.io         bytes of the same values in Redis: the ratio is one rate divided by the other
//	bale.stage.duration    by bale.operation and bale.stage, of those operations that were timed
//	bale.buffers.fresh     buffers that had to be made or to grow
//	bale.dictionary        1 for the bale.algorithm and bale.dictionary.id that the group wrote last with
//	bale.dictionary.*      how far dict.Auto is, and what a registry lost: see [ObserveDictionary]
//	bale.events.dropped    events that the Ring dropped; of a Sink alone
//
// Both durations come from a sample: see Options.TimeEvery. No attribute contains a key, a value or
// a part of one, because a stats.Event has none.
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
