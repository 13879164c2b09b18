package otelbale_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/extra/observe/otelbale"
	"github.com/balekv/bale/extra/resilient"
	"github.com/balekv/bale/extra/resilient/httpc"
	"github.com/balekv/bale/stats"
)

// A span below the caller's, for an operation of a Cache.
func ExampleRecorder() {
	ctx := context.Background()
	spans := tracetest.NewInMemoryExporter() // or that of OTLP
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	defer tracer.Shutdown(ctx)

	recorder, err := otelbale.NewRecorder("shop:user", otelbale.Options{TracerProvider: tracer, ServerAddress: "redis.example.com"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer recorder.Close()

	// A Cache does this for each operation, where bale.Options.Recorder is the recorder.
	ctx, request := tracer.Tracer("shop").Start(ctx, "request")
	recorder.Record(ctx, stats.Event{Op: stats.Get, Keys: 1, Hits: 1, Timed: recorder.Timed(ctx)})
	request.End()

	for _, span := range spans.GetSpans() {
		fmt.Println(span.Name, span.SpanKind)
	}
	// Output:
	// GET redis.example.com client
	// request internal
}

// All that OpenTelemetry costs off the hot path: the Cache tells a Ring, which tells the Sink.
func ExampleSink() {
	ctx := context.Background()
	reader := sdkmetric.NewManualReader() // or a periodic one with the exporter of OTLP
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	defer meter.Shutdown(ctx)

	sink, err := otelbale.NewSink(otelbale.Options{MeterProvider: meter})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sink.Close()
	ring, err := stats.NewRing(sink, stats.RingOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}

	// A Cache does this for each operation, where bale.Options.Recorder is the ring's group.
	users := ring.Group("shop:user")
	users.Record(ctx, stats.Event{Op: stats.Set, Keys: 1, Plain: 400, Stored: 100})

	if err := ring.Close(); err != nil {
		fmt.Println(err)
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &all); err != nil {
		fmt.Println(err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Unit == "By" {
			fmt.Println(m.Name, sum.DataPoints[0].Value)
		}
	}
	// Output:
	// bale.plain.io 400
	// bale.stored.io 100
}

// How many of the values for a dictionary Auto has seen; a program has group.Status.
func ExampleObserveDictionary() {
	ctx := context.Background()
	reader := sdkmetric.NewManualReader() // or a periodic one with the exporter of OTLP
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	defer meter.Shutdown(ctx)
	status := func() dict.Status { return dict.Status{Collected: 63, Wanted: 1000} }
	stop, err := otelbale.ObserveDictionary("shop:user", status, meter)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &all); err != nil {
		fmt.Println(err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		fmt.Println(m.Name, m.Data.(metricdata.Gauge[int64]).DataPoints[0].Value)
	}
	// Output:
	// bale.dictionary.collected 63
	// bale.dictionary.wanted 1000
}

// The calls to an endpoint behind a resilient.Guard, and the state of its breaker.
func ExampleObserveGuard() {
	ctx := context.Background()
	reader := sdkmetric.NewManualReader() // or a periodic one with the exporter of OTLP
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	defer meter.Shutdown(ctx)

	guard, err := resilient.New(resilient.Options{Breaker: resilient.Breaker{Failures: 0.5, Calls: 2}, Limit: resilient.Limit{Healthy: time.Second}})
	if err != nil {
		fmt.Println(err)
		return
	}
	stop, err := otelbale.ObserveGuard("prices", guard.Stats, meter)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		resilient.Do(ctx, guard, resilient.Read, func(context.Context) (int, error) { return 0, errors.New("no answer") })
	}

	show := func() {
		var all metricdata.ResourceMetrics
		if err := reader.Collect(ctx, &all); err != nil {
			fmt.Println(err)
		}
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				switch data := m.Data.(type) {
				case metricdata.Gauge[int64]:
					fmt.Println(m.Name, data.DataPoints[0].Value)
				case metricdata.Sum[int64]:
					for _, p := range data.DataPoints {
						if outcome, _ := p.Attributes.Value("bale.outcome"); p.Value > 0 {
							fmt.Println(m.Name, outcome.AsString(), p.Value)
						}
					}
				}
			}
		}
	}
	show()
	fmt.Println(stop())
	show()
	// Unordered output:
	// bale.guard.calls tried 2
	// bale.guard.calls failed 2
	// bale.guard.calls rejected_open 1
	// bale.guard.state 2
	// bale.guard.limit 20
	// bale.guard.in_flight 0
	// bale.guard.waiting 0
	// <nil>
}

// A span for each request of an HTTP client, and its trace for the service.
func ExampleHTTPClient() {
	client, err := httpc.New(httpc.Options{Wrap: func(next http.RoundTripper) http.RoundTripper {
		return otelbale.HTTPClient(next)
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.CloseIdleConnections()

	otel.SetTextMapPropagator(propagation.TraceContext{})
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("Traceparent") != "")
	}))
	defer service.Close()
	tracer := sdktrace.NewTracerProvider()
	defer tracer.Shutdown(context.Background())
	ctx, request := tracer.Tracer("shop").Start(context.Background(), "request")
	defer request.End()

	traced, err := httpc.JSON[bool](ctx, client, "GET", service.URL+"/v1/orders/{id}", nil, 7)
	fmt.Println(traced, err)
	// Output:
	// true <nil>
}

// All hosts of an HTTP client behind Guards.
func ExampleObserveGuards() {
	ctx := context.Background()
	reader := sdkmetric.NewManualReader()
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	defer meter.Shutdown(ctx)
	transport, err := resilient.NewTransport(nil, resilient.Options{Limit: resilient.Limit{Healthy: time.Second}})
	if err != nil {
		fmt.Println(err)
		return
	}
	stop, err := otelbale.ObserveGuards("orders", transport.Guards, meter)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	transport.Guard("orders.example:443") // as a request makes it

	var all metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &all); err != nil {
		fmt.Println(err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if limit, ok := m.Data.(metricdata.Gauge[int64]); ok && m.Name == "bale.guard.limit" {
			guard, _ := limit.DataPoints[0].Attributes.Value("bale.guard")
			fmt.Println(m.Name, guard.AsString(), limit.DataPoints[0].Value)
		}
	}
	// Output:
	// bale.guard.limit orders/orders.example:443 20
}
