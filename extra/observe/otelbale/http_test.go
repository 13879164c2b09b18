package otelbale_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/balekv/bale/extra/observe/otelbale"
	"github.com/balekv/bale/extra/resilient"
	"github.com/balekv/bale/extra/resilient/httpc"
)

// TestHTTPClient: each try is a span below the caller's, which the service sees, and a metric, both
// with the route and without the arguments.
func TestHTTPClient(t *testing.T) {
	var parents []string
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if parents = append(parents, r.Header.Get("Traceparent")); len(parents) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer service.Close()
	ctx := context.Background()
	spans := tracetest.NewInMemoryExporter()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	defer tracer.Shutdown(ctx)
	reader := sdkmetric.NewManualReader()
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	defer meter.Shutdown(ctx)
	client, err := httpc.New(httpc.Options{
		Guard: &resilient.Options{Retry: resilient.Retry{Tries: 2, Delay: time.Millisecond}},
		Wrap: func(next http.RoundTripper) http.RoundTripper {
			return otelbale.HTTPClient(next, otelhttp.WithTracerProvider(tracer), otelhttp.WithMeterProvider(meter),
				otelhttp.WithPropagators(propagation.TraceContext{}))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	within, request := tracer.Tracer("test").Start(ctx, "request")
	if _, err := httpc.JSON[struct{}](within, client, "GET", service.URL+"/v1/users/{id}", nil, 7); err != nil {
		t.Fatal(err)
	}
	if resp, err := client.Get(service.URL); err != nil { // without a route
		t.Fatal(err)
	} else {
		resp.Body.Close()
	}
	request.End()

	var names []string
	for i, span := range spans.GetSpans() {
		names = append(names, span.Name)
		want := fmt.Sprintf("00-%s-%s-01", span.SpanContext.TraceID(), span.SpanContext.SpanID())
		if i < 3 && parents[i] != want {
			t.Errorf("request %d says that it belongs to %q, not to %q", i, parents[i], want)
		}
		if i < 2 && (span.Parent.SpanID() != request.SpanContext().SpanID() || !slices.Contains(span.Attributes, attribute.String("url.template", "/v1/users/{id}"))) {
			t.Errorf("span %d is below %v and has %v", i, span.Parent.SpanID(), span.Attributes)
		}
	}
	if got := strings.Join(names, ", "); got != "GET /v1/users/{id}, GET /v1/users/{id}, GET, request" {
		t.Errorf("the spans are %s", got)
	}

	var all metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &all); err != nil {
		t.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if h, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == "http.client.request.duration" {
			for _, p := range h.DataPoints {
				route, _ := p.Attributes.Value("url.template")
				status, _ := p.Attributes.Value("http.response.status_code")
				counts[route.AsString()+" "+status.Emit()] += p.Count
			}
		}
	}
	if got := fmt.Sprint(counts); got != "map[ 200:1 /v1/users/{id} 200:1 /v1/users/{id} 503:1]" {
		t.Errorf("counted: %s", got)
	}
}

// TestSpansOfHostileServers: a span has none of what a server sent instead of an answer, which may
// be 4 MiB once quoted. A processor queues thousands of spans.
func TestSpansOfHostileServers(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "SECRET"+strings.Repeat("\x01", 900<<10)+"\r\n\r\n")
	}))
	defer service.Close()
	spans := tracetest.NewInMemoryExporter()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	defer tracer.Shutdown(t.Context())
	client, err := httpc.New(httpc.Options{Wrap: func(next http.RoundTripper) http.RoundTripper {
		return otelbale.HTTPClient(next, otelhttp.WithTracerProvider(tracer))
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	if resp, err := client.Get(service.URL); err == nil {
		resp.Body.Close()
		t.Fatal("no error")
	}
	for _, span := range spans.GetSpans() {
		if text := span.Status.Description; text == "" || len(text) > 1000 || strings.Contains(text, "SECRET") {
			t.Errorf("%d bytes: %.300q", len(text), text)
		}
		if !slices.Contains(span.Attributes, attribute.String("error.type", "*errors.errorString")) {
			t.Errorf("%v", span.Attributes)
		}
	}
}
