package prom

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/balekv/bale/extra/resilient/httpc"
)

// newRequests returns the histogram of HTTP requests.
func newRequests(namespace string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: "http_client_request_duration_seconds",
		Help:    "Time of HTTP requests until the header of the response.",
		Buckets: prometheus.DefBuckets, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
	}, []string{"method", "route", "code"})
}

// HTTPClient counts and times the requests that pass through next, by method, httpc.Route, and
// status, whose code is "other" beyond 100 to 599. Without a response it is "canceled" if the
// caller needs none any more, which a hedge that lost is, and "error" otherwise. It is for
// httpc.Options.Wrap, where each try is a request:
//
//	client, err := httpc.New(httpc.Options{Wrap: collector.HTTPClient})
//
// Routes become labels: use templates, a few in total.
func (c *Collector) HTTPClient(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		began := time.Now()
		resp, err := next.RoundTrip(req)
		code := "error"
		switch {
		case err == nil:
			code = codeOf(resp)
		case errors.Is(req.Context().Err(), context.Canceled):
			code = "canceled"
		}
		c.requests.WithLabelValues(methodOf(req), strings.ToValidUTF8(httpc.Route(req.Context()), "\uFFFD"), code).Observe(time.Since(began).Seconds())
		return resp, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// codeOf is the status of a response, "other" for one that no standard has: HTTP/2 sets no bound.
func codeOf(resp *http.Response) string {
	if resp.StatusCode < 100 || resp.StatusCode > 599 {
		return "other"
	}
	return strconv.Itoa(resp.StatusCode)
}

// methodOf is the method of a request, "other" for one that no standard has.
func methodOf(req *http.Request) string {
	switch req.Method {
	case "":
		return http.MethodGet
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodTrace, http.MethodConnect:
		return req.Method
	}
	return "other"
}
