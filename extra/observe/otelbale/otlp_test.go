package otelbale_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"

	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/extra/observe/otelbale"
	"github.com/balekv/bale/extra/resilient"
	"github.com/balekv/bale/stats"
)

// otlpServer takes metrics by OTLP over HTTP.
type otlpServer struct {
	*httptest.Server
	answer func() int // status of the next request

	mu       sync.Mutex
	requests int
	bodies   []byte            // of all requests
	figures  map[string]string // of the last that was taken, in the form of figures
}

func newOTLPServer(t *testing.T, answer func() int) *otlpServer {
	s := &otlpServer{answer: answer}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		s.requests++
		s.bodies = append(s.bodies, body...)
		s.mu.Unlock()
		if status := s.answer(); status != http.StatusOK {
			w.WriteHeader(status)
			return
		}
		var request collector.ExportMetricsServiceRequest
		if err := proto.Unmarshal(body, &request); err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		s.figures = otlpFigures(&request)
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/x-protobuf")
		w.WriteHeader(http.StatusOK)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *otlpServer) got() (map[string]string, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.figures, s.requests
}

func otlpFigures(request *collector.ExportMetricsServiceRequest) map[string]string {
	m := map[string]string{}
	put := func(name string, attributes []*common.KeyValue, value string) {
		var pairs []string
		for _, a := range attributes {
			pairs = append(pairs, a.Key+"="+a.Value.GetStringValue())
		}
		slices.Sort(pairs)
		if value != "0" {
			m[name+" "+strings.Join(pairs, ",")] = value
		}
	}
	for _, resource := range request.ResourceMetrics {
		for _, scope := range resource.ScopeMetrics {
			for _, metric := range scope.Metrics {
				for _, p := range append(metric.GetSum().GetDataPoints(), metric.GetGauge().GetDataPoints()...) {
					put(metric.Name, p.Attributes, fmt.Sprint(p.GetAsInt()))
				}
				for _, p := range metric.GetHistogram().GetDataPoints() {
					put(metric.Name, p.Attributes, fmt.Sprintf("%d, %.0f us", p.Count, p.GetSum()*1e6))
				}
			}
		}
	}
	return m
}

// otlp is a Ring into a Sink whose provider exports to a server.
func otlp(t *testing.T, s *otlpServer) (*stats.Ring, *sdkmetric.MeterProvider) {
	t.Helper()
	exporter, err := otlpmetrichttp.New(t.Context(), otlpmetrichttp.WithEndpointURL(s.URL+"/v1/metrics"),
		otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{
			Enabled: true, InitialInterval: time.Millisecond, MaxInterval: 5 * time.Millisecond, MaxElapsedTime: time.Minute,
		}))
	if err != nil {
		t.Fatal(err)
	}
	reader := sdkmetric.NewPeriodicReader(exporter, sdkmetric.WithInterval(time.Hour), sdkmetric.WithTimeout(time.Minute)) // only when it is told to
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	t.Cleanup(func() {
		if err := provider.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	sink, err := otelbale.NewSink(otelbale.Options{MeterProvider: provider})
	if err != nil {
		t.Fatal(err)
	}
	ring, err := stats.NewRing(sink, stats.RingOptions{Size: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(ring.Close(), sink.Close()); err != nil {
			t.Error(err)
		}
	})
	return ring, provider
}

// TestOTLP: what goes into the ring comes out at the other end of OTLP.
func TestOTLP(t *testing.T) {
	s := newOTLPServer(t, func() int { return http.StatusOK })
	ring, provider := otlp(t, s)
	want := map[string]string{}
	for _, group := range []string{"shop", "page"} {
		recorder := ring.Group(group)
		for _, e := range everything() {
			recorder.Record(t.Context(), e)
		}
		for name, value := range wantEverything(group) {
			want[name] = value
		}
	}
	if err := ring.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := provider.ForceFlush(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, _ := s.got()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestOTLPOutage: a server that refuses, hangs or is gone delays no caller, and nothing is lost
// once it is back.
func TestOTLPOutage(t *testing.T) {
	const hits = "bale.operations bale.group=shop,bale.operation=get,bale.outcome=hit"
	refused := 0
	entered, release := make(chan struct{}), make(chan struct{})
	mode := "refuses"
	s := newOTLPServer(t, func() int {
		switch mode { // changed between flushes alone, which wait for the requests before
		case "refuses":
			if refused++; refused <= 3 {
				return http.StatusServiceUnavailable
			}
		case "rejects":
			return http.StatusBadRequest
		case "hangs":
			entered <- struct{}{}
			<-release
		}
		return http.StatusOK
	})
	ring, provider := otlp(t, s)
	recorder := ring.Group("shop")
	record := func(n int) {
		t.Helper()
		for range n {
			recorder.Record(t.Context(), hit)
		}
		if err := ring.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	record(1000)
	if err := provider.ForceFlush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, requests := s.got(); got[hits] != "1000" || requests != 4 {
		t.Errorf("%s hits after %d requests", got[hits], requests)
	}

	mode = "rejects"
	record(1000)
	if err := provider.ForceFlush(t.Context()); err == nil {
		t.Error("no error from a server that rejects")
	}

	mode = "hangs"
	flushed := make(chan error)
	go func() { flushed <- provider.ForceFlush(t.Context()) }()
	<-entered
	record(30_000) // returns, though the exporter waits
	select {
	case err := <-flushed:
		t.Errorf("the exporter did not wait: %v", err)
	default:
	}
	if dropped, delivered := ring.Dropped(); dropped != 0 || delivered != 32_000 {
		t.Errorf("%d delivered, %d dropped", delivered, dropped)
	}
	close(release)
	if err := <-flushed; err != nil {
		t.Error(err)
	}

	mode = "serves"
	if err := provider.ForceFlush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, _ := s.got(); got[hits] != "32000" {
		t.Errorf("%s hits", got[hits])
	}
	if bytes.Count(s.bodies, []byte("bale.operations")) != 7 {
		t.Errorf("%d requests", bytes.Count(s.bodies, []byte("bale.operations")))
	}
}

// TestGuardName: a name that is not UTF-8 keeps no metrics from the exporter.
func TestGuardName(t *testing.T) {
	s := newOTLPServer(t, func() int { return http.StatusOK })
	_, provider := otlp(t, s)
	stop, err := otelbale.ObserveGuard("a\xff", func() resilient.Stats { return resilient.Stats{Tries: 3} }, provider)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(provider.ForceFlush(t.Context()), stop()); err != nil {
		t.Error(err)
	}
	if got, _ := s.got(); got["bale.guard.calls bale.guard=a\uFFFD,bale.outcome=tried"] != "3" {
		t.Error(got)
	}
}

// TestObserveDictionary: how far Auto is, and what was put back, reach an exporter; a group without
// Auto has no series of the former.
func TestObserveDictionary(t *testing.T) {
	s := newOTLPServer(t, func() int { return http.StatusOK })
	_, provider := otlp(t, s)
	for name, status := range map[string]dict.Status{"a": {Collected: 63, Wanted: 1000}, "without": {Synced: time.Now(), Restored: 2}} {
		stop, err := otelbale.ObserveDictionary(name, func() dict.Status { return status }, provider)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
	}
	if err := provider.ForceFlush(t.Context()); err != nil {
		t.Error(err)
	}
	got, _ := s.got()
	if got["bale.dictionary.collected bale.group=a"] != "63" || got["bale.dictionary.wanted bale.group=a"] != "1000" {
		t.Error(got)
	}
	if n, ok := got["bale.dictionary.wanted bale.group=without"]; ok {
		t.Errorf("%s wanted without Auto", n)
	}
	if got["bale.dictionary.restored bale.group=without"] != "2" {
		t.Error(got)
	}
}

// TestGuards: the hosts of a Transport, without a name from the program for each.
func TestGuards(t *testing.T) {
	s := newOTLPServer(t, func() int { return http.StatusOK })
	_, provider := otlp(t, s)
	transport, err := resilient.NewTransport(nil, resilient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	stop, err := otelbale.ObserveGuards("orders", transport.Guards, provider)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		g := transport.Guard(fmt.Sprint("host", i))
		if _, err := resilient.Do(t.Context(), g, resilient.Read, func(context.Context) (int, error) { return 1, nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(provider.ForceFlush(t.Context()), stop()); err != nil {
		t.Error(err)
	}
	got, _ := s.got()
	for i := range 300 {
		if n, shown := got[fmt.Sprintf("bale.guard.calls bale.guard=orders/host%d,bale.outcome=tried", i)]; shown != (i < 100) || shown && n != "1" {
			t.Errorf("host %d: %q", i, n)
		}
	}
}
