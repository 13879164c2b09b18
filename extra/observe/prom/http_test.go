package prom_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/balekv/bale/extra/observe/prom"
	"github.com/balekv/bale/extra/resilient/httpc"
)

type answer func(*http.Request) (*http.Response, error)

func (f answer) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestHTTPClient(t *testing.T) {
	c, err := prom.NewCollector(prom.Options{Namespace: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	client := c.HTTPClient(answer(func(req *http.Request) (*http.Response, error) {
		switch req.URL.Path {
		case "/gone":
			return nil, errors.New("no answer")
		case "/late": // as the hedge that another answer has overtaken
			return nil, req.Context().Err()
		}
		status := 204
		if n, ok := strings.CutPrefix(req.URL.Path, "/status/"); ok { // HTTP/2 allows any number
			status, _ = strconv.Atoi(n)
		}
		return &http.Response{StatusCode: status, Body: http.NoBody}, nil
	}))
	for _, r := range []struct{ method, route, path string }{
		{"", "/v1/{id}", "/v1/1"}, {"GET", "/v1/{id}", "/v1/2"}, {"PUT", "", "/v1/3"}, {"SECRET", "", "/v1/3"}, {"GET", "", "/gone"}, {"GET", "", "/late"},
		{"GET", "", "/status/123456789"}, {"GET", "", "/status/-1"}, {"GET", "", "/status/600"}, {"GET", "\xff", "/v1/3"},
	} {
		req, err := http.NewRequestWithContext(httpc.WithRoute(t.Context(), r.route), r.method, "http://h"+r.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Method = r.method
		if r.path == "/late" {
			ctx, cancel := context.WithCancel(req.Context())
			cancel()
			req = req.WithContext(ctx)
		}
		if _, err := client.RoundTrip(req); (err != nil) != (r.path == "/gone" || r.path == "/late") {
			t.Error(err)
		}
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, f := range families {
		if f.GetName() != "shop_http_client_request_duration_seconds" {
			continue
		}
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			counts[strings.Join(labels, " ")] = m.Histogram.GetSampleCount()
		}
	}
	want := map[string]uint64{
		"code=204 method=GET route=/v1/{id}": 2, "code=204 method=PUT route=": 1, "code=204 method=other route=": 1, "code=error method=GET route=": 1,
		"code=canceled method=GET route=": 1,
		"code=other method=GET route=":    3, "code=204 method=GET route=\uFFFD": 1,
	}
	for labels, n := range want {
		if counts[labels] != n {
			t.Errorf("%s counts %d, not %d", labels, counts[labels], n)
		}
	}
	if len(counts) != len(want) {
		t.Errorf("counted: %v", counts)
	}
}
