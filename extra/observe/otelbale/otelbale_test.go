package otelbale_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/balekv/bale"
	"github.com/balekv/bale/extra/observe/otelbale"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/testvalues"
	"github.com/balekv/bale/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watched are the providers of a test, and what they got.
type watched struct {
	spans  *tracetest.SpanRecorder
	tracer *sdktrace.TracerProvider
	reader *sdkmetric.ManualReader
	meter  *sdkmetric.MeterProvider
}

func watch(t testing.TB, o ...sdktrace.TracerProviderOption) *watched {
	w := &watched{spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	w.tracer = sdktrace.NewTracerProvider(append(o, sdktrace.WithSpanProcessor(w.spans))...)
	w.meter = sdkmetric.NewMeterProvider(sdkmetric.WithReader(w.reader))
	t.Cleanup(func() {
		if err := errors.Join(w.tracer.Shutdown(context.Background()), w.meter.Shutdown(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *watched) recorder(t testing.TB, group string, o otelbale.Options) *otelbale.Recorder {
	t.Helper()
	o.TracerProvider, o.MeterProvider = w.tracer, w.meter
	r, err := otelbale.NewRecorder(group, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (w *watched) collect(t testing.TB) metricdata.ResourceMetrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := w.reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// figures are the data points by name and attributes: sums and gauges as they are, histograms as
// count and sum. Zeros are left out.
func figures(all metricdata.ResourceMetrics) map[string]string {
	m := map[string]string{}
	put := func(name string, a attribute.Set, value string) {
		if value != "0" {
			m[name+" "+a.Encoded(attribute.DefaultEncoder())] = value
		}
	}
	for _, scope := range all.ScopeMetrics {
		for _, one := range scope.Metrics {
			switch data := one.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					put(one.Name, p.Attributes, fmt.Sprint(p.Value))
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					put(one.Name, p.Attributes, fmt.Sprint(p.Value))
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					put(one.Name, p.Attributes, fmt.Sprintf("%d, %.0f us", p.Count, p.Sum*1e6))
				}
			default:
				m[one.Name] = fmt.Sprintf("%T", data)
			}
		}
	}
	return m
}

func timed(e stats.Event, stages map[stats.Stage]time.Duration) stats.Event {
	e.Timed = true
	for stage, d := range stages {
		e.Times[stage] = d
	}
	return e
}

var (
	hit = timed(stats.Event{Op: stats.Get, Keys: 1, Hits: 1, Algorithm: frame.Zstd, DictionaryID: 0xabcd, Plain: 400, Stored: 100},
		map[stats.Stage]time.Duration{stats.Store: 50 * time.Microsecond, stats.Unpack: time.Microsecond, stats.Decode: 4 * time.Microsecond})
	miss   = timed(stats.Event{Op: stats.Get, Keys: 1, Misses: 1}, map[stats.Stage]time.Duration{stats.Store: 40 * time.Microsecond})
	failed = timed(stats.Event{Op: stats.Get, Keys: 1, Errors: 1, Class: stats.Timeout}, map[stats.Stage]time.Duration{stats.Store: time.Second})
	set    = timed(stats.Event{Op: stats.Set, Keys: 1, Plain: 100, Stored: 100}, map[stats.Stage]time.Duration{
		stats.Encode: 3 * time.Microsecond, stats.Pack: 2 * time.Microsecond, stats.Store: 60 * time.Microsecond,
	})
	getMany = timed(stats.Event{
		Op: stats.GetMany, Keys: 10, Hits: 6, Misses: 3, Errors: 1, Class: stats.Corrupt, Algorithm: frame.S2, Plain: 60, Stored: 50,
	}, map[stats.Stage]time.Duration{stats.Store: 80 * time.Microsecond})
	setMany = timed(stats.Event{Op: stats.SetMany, Keys: 3, Algorithm: frame.Zstd, Plain: 300, Stored: 200, Fresh: 2}, map[stats.Stage]time.Duration{
		stats.Store: 70 * time.Microsecond,
	})
	setOne = timed(stats.Event{Op: stats.SetMany, Keys: 1}, map[stats.Stage]time.Duration{stats.Store: 10 * time.Microsecond})
	remove = timed(stats.Event{Op: stats.Delete, Keys: 4}, map[stats.Stage]time.Duration{stats.Store: 20 * time.Microsecond})
	touch  = timed(stats.Event{Op: stats.Touch, Keys: 1}, map[stats.Stage]time.Duration{stats.Store: 30 * time.Microsecond})
	load   = timed(stats.Event{Op: stats.Load, Keys: 1}, map[stats.Stage]time.Duration{stats.Loading: time.Millisecond})
	flush  = timed(stats.Event{Op: stats.Flush, Keys: 5}, map[stats.Stage]time.Duration{stats.Store: 90 * time.Microsecond})
)

// span is the compared part of a span.
type span struct {
	Name       string
	Kind       trace.SpanKind
	Took       time.Duration
	Status     sdktrace.Status
	Attributes map[string]any
	Events     int
	Scope      string
	Schema     string
}

func spanOf(s sdktrace.ReadOnlySpan) span {
	a := map[string]any{}
	for _, kv := range s.Attributes() {
		a[string(kv.Key)] = kv.Value.AsInterface()
	}
	return span{
		s.Name(), s.SpanKind(), s.EndTime().Sub(s.StartTime()), s.Status(), a, len(s.Events()), s.InstrumentationScope().Name, s.InstrumentationScope().SchemaURL,
	}
}

// TestSpans: what is in the span of each operation, no less and no more.
func TestSpans(t *testing.T) {
	server := map[string]any{
		"db.system.name": "redis", "db.namespace": "2", "server.address": "redis.example.com", "server.port": int64(6380), "bale.group": "shop:user",
	}
	with := func(more map[string]any) map[string]any {
		all := map[string]any{}
		for _, m := range []map[string]any{server, more} {
			for k, v := range m {
				all[k] = v
			}
		}
		return all
	}
	const at = " redis.example.com:6380"
	for _, test := range []struct {
		event stats.Event
		want  span
	}{
		{hit, span{Name: "GET" + at, Kind: trace.SpanKindClient, Took: 55 * time.Microsecond, Attributes: with(map[string]any{
			"db.operation.name": "GET", "bale.operation": "get", "bale.outcome": "hit",
			"bale.plain.size": int64(400), "bale.stored.size": int64(100), "bale.ratio": 4., "bale.algorithm": "zstd", "bale.dictionary.id": "0000abcd",
			"bale.stage.store.duration": 0.00005, "bale.stage.unpack.duration": 0.000001, "bale.stage.decode.duration": 0.000004,
		})}},
		{miss, span{Name: "GET" + at, Kind: trace.SpanKindClient, Took: 40 * time.Microsecond, Attributes: with(map[string]any{
			"db.operation.name": "GET", "bale.operation": "get", "bale.outcome": "miss", "bale.stage.store.duration": 0.00004,
		})}},
		{failed, span{Name: "GET" + at, Kind: trace.SpanKindClient, Took: time.Second, Status: sdktrace.Status{Code: codes.Error, Description: "timeout"},
			Attributes: with(map[string]any{
				"db.operation.name": "GET", "bale.operation": "get", "bale.outcome": "timeout", "error.type": "timeout", "bale.stage.store.duration": 1.,
			})}},
		{set, span{Name: "SET" + at, Kind: trace.SpanKindClient, Took: 65 * time.Microsecond, Attributes: with(map[string]any{
			"db.operation.name": "SET", "bale.operation": "set", "bale.outcome": "ok",
			"bale.plain.size": int64(100), "bale.stored.size": int64(100), "bale.ratio": 1., "bale.algorithm": frame.Stored.String(),
			"bale.stage.encode.duration": 0.000003, "bale.stage.pack.duration": 0.000002, "bale.stage.store.duration": 0.00006,
		})}},
		{getMany, span{Name: "MGET" + at, Kind: trace.SpanKindClient, Took: 80 * time.Microsecond, Status: sdktrace.Status{Code: codes.Error, Description: "corrupt"},
			Attributes: with(map[string]any{
				"db.operation.name": "MGET", "bale.operation": "get_many", "bale.outcome": "corrupt", "error.type": "corrupt",
				"bale.keys": int64(10), "bale.hits": int64(6), "bale.misses": int64(3), "bale.errors": int64(1),
				"bale.plain.size": int64(60), "bale.stored.size": int64(50), "bale.ratio": 1.2, "bale.algorithm": "s2", "bale.stage.store.duration": 0.00008,
			})}},
		{setMany, span{Name: "PIPELINE SET" + at, Kind: trace.SpanKindClient, Took: 70 * time.Microsecond, Attributes: with(map[string]any{
			"db.operation.name": "PIPELINE SET", "db.operation.batch.size": int64(3), "bale.operation": "set_many", "bale.outcome": "ok", "bale.keys": int64(3),
			"bale.plain.size": int64(300), "bale.stored.size": int64(200), "bale.ratio": 1.5, "bale.algorithm": "zstd", "bale.stage.store.duration": 0.00007,
		})}},
		{setOne, span{Name: "SET" + at, Kind: trace.SpanKindClient, Took: 10 * time.Microsecond, Attributes: with(map[string]any{
			"db.operation.name": "SET", "bale.operation": "set_many", "bale.outcome": "ok", "bale.keys": int64(1), "bale.stage.store.duration": 0.00001,
		})}},
		{remove, span{Name: "UNLINK" + at, Kind: trace.SpanKindClient, Took: 20 * time.Microsecond, Attributes: with(map[string]any{
			"db.operation.name": "UNLINK", "bale.operation": "delete", "bale.outcome": "ok", "bale.keys": int64(4), "bale.stage.store.duration": 0.00002,
		})}},
		{touch, span{Name: "PEXPIRE" + at, Kind: trace.SpanKindClient, Took: 30 * time.Microsecond, Attributes: with(map[string]any{
			"db.operation.name": "PEXPIRE", "bale.operation": "touch", "bale.outcome": "ok", "bale.stage.store.duration": 0.00003,
		})}},
		{flush, span{Name: "PIPELINE" + at, Kind: trace.SpanKindClient, Took: 90 * time.Microsecond, Attributes: with(map[string]any{
			"db.operation.name": "PIPELINE", "db.operation.batch.size": int64(5), "bale.operation": "flush", "bale.outcome": "ok", "bale.keys": int64(5),
			"bale.stage.store.duration": 0.00009,
		})}},
		{load, span{Name: "load", Kind: trace.SpanKindInternal, Took: time.Millisecond, Attributes: map[string]any{
			"bale.group": "shop:user", "bale.operation": "load", "bale.outcome": "ok", "bale.stage.load.duration": 0.001,
		}}},
	} {
		t.Run(test.event.Op.String()+" "+test.event.Class.String(), func(t *testing.T) {
			w := watch(t)
			r := w.recorder(t, "shop:user", otelbale.Options{ServerAddress: "redis.example.com", ServerPort: 6380, Namespace: "2"})
			ctx, parent := w.tracer.Tracer("test").Start(t.Context(), "parent")
			before := time.Now()
			r.Record(ctx, test.event)
			parent.End()
			ended := w.spans.Ended()
			if len(ended) != 2 {
				t.Fatalf("%d spans", len(ended))
			}
			test.want.Scope, test.want.Schema = "github.com/balekv/bale/extra/observe/otelbale", semconv.SchemaURL
			if diff := cmp.Diff(test.want, spanOf(ended[0])); diff != "" {
				t.Error(diff)
			}
			if ended[0].Parent().SpanID() != parent.SpanContext().SpanID() || ended[0].SpanContext().TraceID() != parent.SpanContext().TraceID() {
				t.Error("not a child of the caller's span")
			}
			if end := ended[0].EndTime(); end.Before(before) || end.After(time.Now()) {
				t.Errorf("ended at %v", end)
			}
		})
	}
}

// TestWhichAreSpans: those below a span that is recorded; with Roots what the sampler chooses.
func TestWhichAreSpans(t *testing.T) {
	never := sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample()))
	for name, test := range map[string]struct {
		provider []sdktrace.TracerProviderOption
		options  otelbale.Options
		parent   bool
		event    stats.Event
		timed    bool
		want     int
	}{
		"no parent":              {event: hit},
		"parent":                 {parent: true, event: hit, timed: true, want: 1},
		"parent of no sample":    {provider: []sdktrace.TracerProviderOption{never}, parent: true, event: hit},
		"not timed":              {parent: true, event: stats.Event{Op: stats.Get, Keys: 1, Hits: 1}, timed: true},
		"roots":                  {options: otelbale.Options{Roots: true}, event: hit, timed: true, want: 1},
		"roots not of the sampl": {provider: []sdktrace.TracerProviderOption{never}, options: otelbale.Options{Roots: true}, event: hit, timed: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := watch(t, test.provider...)
			test.options.TimeEvery = -1
			r := w.recorder(t, "g", test.options)
			ctx := t.Context()
			if test.parent {
				var parent trace.Span
				ctx, parent = w.tracer.Tracer("test").Start(ctx, "parent")
				defer parent.End()
			}
			if got := r.Timed(ctx); got != test.timed {
				t.Errorf("timed: %v", got)
			}
			r.Record(ctx, test.event)
			if n := len(w.spans.Ended()); n != test.want {
				t.Errorf("%d spans, not %d", n, test.want)
			}
		})
	}
	w := watch(t)
	if r := w.recorder(t, "g", otelbale.Options{TimeEvery: 1}); !r.Timed(t.Context()) {
		t.Error("TimeEvery 1 does not time")
	}
}

// everything is one of each, with one that was not timed.
func everything() []stats.Event {
	untimed := stats.Event{Op: stats.Get, Keys: 1, Hits: 1, Plain: 4, Stored: 4}
	return []stats.Event{hit, miss, failed, set, getMany, setMany, setOne, remove, touch, load, flush, untimed, {Op: stats.Ops}, {Class: stats.Classes}}
}

// wantEverything is what everything adds up to.
func wantEverything(group string) map[string]string {
	want := map[string]string{}
	for name, value := range map[string]string{
		"bale.operations bale.group=G,bale.operation=get,bale.outcome=hit":          "2",
		"bale.operations bale.group=G,bale.operation=get,bale.outcome=miss":         "1",
		"bale.operations bale.group=G,bale.operation=get,bale.outcome=timeout":      "1",
		"bale.operations bale.group=G,bale.operation=set,bale.outcome=ok":           "1",
		"bale.operations bale.group=G,bale.operation=get_many,bale.outcome=corrupt": "1",
		"bale.operations bale.group=G,bale.operation=set_many,bale.outcome=ok":      "2",
		"bale.operations bale.group=G,bale.operation=delete,bale.outcome=ok":        "1",
		"bale.operations bale.group=G,bale.operation=touch,bale.outcome=ok":         "1",
		"bale.operations bale.group=G,bale.operation=load,bale.outcome=ok":          "1",
		"bale.operations bale.group=G,bale.operation=flush,bale.outcome=ok":         "1",
		"bale.keys bale.group=G,bale.operation=get,bale.result=hit":                 "2",
		"bale.keys bale.group=G,bale.operation=get,bale.result=miss":                "1",
		"bale.keys bale.group=G,bale.operation=get,bale.result=error":               "1",
		"bale.keys bale.group=G,bale.operation=get_many,bale.result=hit":            "6",
		"bale.keys bale.group=G,bale.operation=get_many,bale.result=miss":           "3",
		"bale.keys bale.group=G,bale.operation=get_many,bale.result=error":          "1",
		"bale.keys bale.group=G,bale.operation=set,bale.result=any":                 "1",
		"bale.keys bale.group=G,bale.operation=set_many,bale.result=any":            "4",
		"bale.keys bale.group=G,bale.operation=delete,bale.result=any":              "4",
		"bale.keys bale.group=G,bale.operation=touch,bale.result=any":               "1",
		"bale.keys bale.group=G,bale.operation=load,bale.result=any":                "1",
		"bale.keys bale.group=G,bale.operation=flush,bale.result=any":               "5",
		"bale.plain.io bale.group=G,bale.operation=get":                             "404",
		"bale.stored.io bale.group=G,bale.operation=get":                            "104",
		"bale.plain.io bale.group=G,bale.operation=set":                             "100",
		"bale.stored.io bale.group=G,bale.operation=set":                            "100",
		"bale.plain.io bale.group=G,bale.operation=get_many":                        "60",
		"bale.stored.io bale.group=G,bale.operation=get_many":                       "50",
		"bale.plain.io bale.group=G,bale.operation=set_many":                        "300",
		"bale.stored.io bale.group=G,bale.operation=set_many":                       "200",
		"bale.buffers.fresh bale.group=G":                                           "2",
		"bale.dictionary bale.algorithm=zstd,bale.dictionary.id=none,bale.group=G":  "1",

		"db.client.operation.duration bale.group=G,db.operation.name=GET,db.system.name=redis":                     "2, 95 us",
		"db.client.operation.duration bale.group=G,db.operation.name=GET,db.system.name=redis,error.type=timeout":  "1, 1000000 us",
		"db.client.operation.duration bale.group=G,db.operation.name=MGET,db.system.name=redis,error.type=corrupt": "1, 80 us",
		"db.client.operation.duration bale.group=G,db.operation.name=SET,db.system.name=redis":                     "2, 75 us",
		"db.client.operation.duration bale.group=G,db.operation.name=PIPELINE SET,db.system.name=redis":            "1, 70 us",
		"db.client.operation.duration bale.group=G,db.operation.name=UNLINK,db.system.name=redis":                  "1, 20 us",
		"db.client.operation.duration bale.group=G,db.operation.name=PEXPIRE,db.system.name=redis":                 "1, 30 us",
		"db.client.operation.duration bale.group=G,db.operation.name=PIPELINE,db.system.name=redis":                "1, 90 us",

		"bale.stage.duration bale.group=G,bale.operation=get,bale.stage=store":      "3, 1000090 us",
		"bale.stage.duration bale.group=G,bale.operation=get,bale.stage=unpack":     "1, 1 us",
		"bale.stage.duration bale.group=G,bale.operation=get,bale.stage=decode":     "1, 4 us",
		"bale.stage.duration bale.group=G,bale.operation=set,bale.stage=encode":     "1, 3 us",
		"bale.stage.duration bale.group=G,bale.operation=set,bale.stage=pack":       "1, 2 us",
		"bale.stage.duration bale.group=G,bale.operation=set,bale.stage=store":      "1, 60 us",
		"bale.stage.duration bale.group=G,bale.operation=get_many,bale.stage=store": "1, 80 us",
		"bale.stage.duration bale.group=G,bale.operation=set_many,bale.stage=store": "2, 80 us",
		"bale.stage.duration bale.group=G,bale.operation=delete,bale.stage=store":   "1, 20 us",
		"bale.stage.duration bale.group=G,bale.operation=touch,bale.stage=store":    "1, 30 us",
		"bale.stage.duration bale.group=G,bale.operation=load,bale.stage=load":      "1, 1000 us",
		"bale.stage.duration bale.group=G,bale.operation=flush,bale.stage=store":    "1, 90 us",
	} {
		want[strings.ReplaceAll(name, "group=G", "group="+group)] = value
	}
	return want
}

// TestMetrics: a Recorder and a Sink show the same.
func TestMetrics(t *testing.T) {
	t.Run("recorder", func(t *testing.T) {
		w := watch(t)
		r := w.recorder(t, "shop", otelbale.Options{})
		for _, e := range everything() {
			r.Record(t.Context(), e)
		}
		for range 2 { // the second collection has the attributes of the first
			if diff := cmp.Diff(wantEverything("shop"), figures(w.collect(t))); diff != "" {
				t.Error(diff)
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		for name := range figures(w.collect(t)) {
			if !strings.Contains(name, "duration") {
				t.Errorf("%s after Close", name)
			}
		}
	})
	t.Run("sink", func(t *testing.T) {
		w := watch(t)
		sink, err := otelbale.NewSink(otelbale.Options{MeterProvider: w.meter, MaxGroups: 2})
		if err != nil {
			t.Fatal(err)
		}
		b := stats.Batch{Dropped: 7}
		want := map[string]string{"bale.events.dropped ": "7"}
		for i, group := range []string{"shop", "page", "beyond"} {
			for _, e := range everything() {
				b.Groups, b.Events = append(b.Groups, group), append(b.Events, e)
			}
			for name, value := range wantEverything([]string{"shop", "page", "other"}[i]) {
				want[name] = value
			}
		}
		if err := sink.Write(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, figures(w.collect(t))); diff != "" {
			t.Error(diff)
		}
		if err := sink.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestInstruments: units, kinds and buckets.
func TestInstruments(t *testing.T) {
	w := watch(t)
	r := w.recorder(t, "g", otelbale.Options{})
	for _, e := range everything() {
		r.Record(t.Context(), e)
	}
	var got []string
	for _, scope := range w.collect(t).ScopeMetrics {
		if scope.Scope.Name != "github.com/balekv/bale/extra/observe/otelbale" || scope.Scope.SchemaURL != semconv.SchemaURL {
			t.Errorf("scope %+v", scope.Scope)
		}
		for _, m := range scope.Metrics {
			kind := fmt.Sprintf("%T", m.Data)
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				kind = fmt.Sprintf("sum %v", data.IsMonotonic)
			case metricdata.Histogram[float64]:
				kind = fmt.Sprint(data.DataPoints[0].Bounds)
			}
			got = append(got, m.Name+" "+m.Unit+" "+kind)
			if m.Description == "" {
				t.Errorf("%s has no description", m.Name)
			}
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{
		"bale.buffers.fresh {buffer} sum true",
		"bale.dictionary  metricdata.Gauge[int64]",
		"bale.keys {key} sum true",
		"bale.operations {operation} sum true",
		"bale.plain.io By sum true",
		"bale.stage.duration s [1e-06 5e-06 2e-05 5e-05 0.0001 0.0002 0.0005 0.001 0.005 0.02 0.1 1]",
		"bale.stored.io By sum true",
		"db.client.operation.duration s [0.001 0.005 0.01 0.05 0.1 0.5 1 5 10]",
	}, got); diff != "" {
		t.Error(diff)
	}
}

func TestOptionsRefused(t *testing.T) {
	for name, o := range map[string]otelbale.Options{
		"url":          {ServerAddress: "redis://redis.example.com"},
		"credentials":  {ServerAddress: "user:secret@redis.example.com"},
		"port":         {ServerAddress: "redis.example.com", ServerPort: 65536},
		"negative":     {ServerAddress: "redis.example.com", ServerPort: -1},
		"port alone":   {ServerPort: 6379},
		"fewer groups": {MaxGroups: -1},
	} {
		_, recorder := otelbale.NewRecorder("g", o)
		_, sink := otelbale.NewSink(o)
		if !errors.Is(recorder, bale.ErrInvalid) || !errors.Is(sink, bale.ErrInvalid) || strings.Contains(recorder.Error(), "secret") {
			t.Errorf("%s: %v, %v", name, recorder, sink)
		}
	}
	if _, err := otelbale.NewRecorder("", otelbale.Options{}); !errors.Is(err, bale.ErrInvalid) {
		t.Error(err)
	}
}

// TestDefaults: the global providers, which do nothing unless the program sets them.
func TestDefaults(t *testing.T) {
	r, err := otelbale.NewRecorder("g", otelbale.Options{Roots: true})
	if err != nil {
		t.Fatal(err)
	}
	r.Record(t.Context(), hit)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestAllocations: what is not a span allocates nothing, timed or not.
func TestAllocations(t *testing.T) {
	if testvalues.Race {
		t.Skip("the race detector allocates")
	}
	w := watch(t)
	r := w.recorder(t, "g", otelbale.Options{TimeEvery: 1})
	for name, e := range map[string]stats.Event{"not timed": {Op: stats.Get, Keys: 1, Hits: 1, Plain: 400, Stored: 100}, "timed": hit} {
		ctx := t.Context()
		r.Record(ctx, e) // makes what is kept
		if n := testing.AllocsPerRun(1000, func() {
			r.Timed(ctx)
			r.Record(ctx, e)
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkRecord(b *testing.B) {
	untimed := hit
	untimed.Timed = false
	for _, bench := range []struct {
		name   string
		event  stats.Event
		parent bool
	}{{"untimed", untimed, false}, {"timed", hit, false}, {"span", hit, true}} {
		b.Run(bench.name, func(b *testing.B) {
			meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
			tracer := sdktrace.NewTracerProvider()
			r, err := otelbale.NewRecorder("g", otelbale.Options{MeterProvider: meter, TracerProvider: tracer})
			if err != nil {
				b.Fatal(err)
			}
			ctx := context.Background()
			if bench.parent {
				var parent trace.Span
				ctx, parent = tracer.Tracer("bench").Start(ctx, "parent")
				defer parent.End()
			}
			b.ReportAllocs()
			for b.Loop() {
				r.Timed(ctx)
				r.Record(ctx, bench.event)
			}
		})
	}
	b.Run("no metrics", func(b *testing.B) {
		r, err := otelbale.NewRecorder("g", otelbale.Options{MeterProvider: noop.NewMeterProvider()})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			r.Timed(context.Background())
			r.Record(context.Background(), untimed)
		}
	})
}

func BenchmarkSink(b *testing.B) {
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	sink, err := otelbale.NewSink(otelbale.Options{MeterProvider: meter})
	if err != nil {
		b.Fatal(err)
	}
	var batch stats.Batch
	for i := range 4096 {
		e := hit
		e.Timed = i%32 == 0
		batch.Groups, batch.Events = append(batch.Groups, fmt.Sprint("group", i%200)), append(batch.Events, e)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := sink.Write(context.Background(), &batch); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(batch.Events)), "ns/event")
}
