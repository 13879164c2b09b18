package otelbale

import (
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/balekv/bale/extra/resilient/httpc"
)

// HTTPClient gives each request through next a span and the metrics http.client.request.duration
// and http.client.request.body.size, and puts the trace into its header. It is OpenTelemetry's
// otelhttp with the request's httpc.Route as the attribute url.template and in the name of the
// span. It is for httpc.Options.Wrap, where each try is a request:
//
//	client, err := httpc.New(httpc.Options{Wrap: func(next http.RoundTripper) http.RoundTripper {
//		return otelbale.HTTPClient(next)
//	}})
//
// OpenTelemetry wants the whole URL in the span's attribute url.full, with arguments and query.
// Providers and propagators default to the global ones; see [otelhttp.WithTracerProvider]. The
// global propagator is none until the program sets one (otel.SetTextMapPropagator).
func HTTPClient(next http.RoundTripper, options ...otelhttp.Option) http.RoundTripper {
	named := otelhttp.WithSpanNameFormatter(func(_ string, req *http.Request) string {
		if route := httpc.Route(req.Context()); route != "" {
			return req.Method + " " + route
		}
		return req.Method
	})
	templated := roundTripper(func(req *http.Request) (*http.Response, error) {
		if route := httpc.Route(req.Context()); route != "" {
			trace.SpanFromContext(req.Context()).SetAttributes(semconv.URLTemplate(route))
			if labels, ok := otelhttp.ClientLabelerFromContext(req.Context()); ok {
				labels.Add(semconv.URLTemplate(route))
			}
		}
		return next.RoundTrip(req)
	})
	return otelhttp.NewTransport(templated, append([]otelhttp.Option{named}, options...)...)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
