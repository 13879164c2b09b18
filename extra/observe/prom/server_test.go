package prom_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/balekv/bale/extra/observe/prom"
	"github.com/balekv/bale/stats"
	"github.com/balekv/bale/stats/eventfile"
	"github.com/balekv/bale/testkit/promtest"
)

// server is a running prometheus.
type server struct{ *promtest.Server }

// runPrometheus runs a prometheus that scrapes a target, until the test ends.
func runPrometheus(t *testing.T, target string, args ...string) *server {
	t.Helper()
	config := fmt.Sprintf(`
global:
  scrape_interval: 500ms
  scrape_timeout: 500ms
scrape_configs:
  - job_name: bale
    static_configs:
      - targets: [%q]
`, target)
	return &server{promtest.Start(t, config, func(file, data, addr string) []string {
		return append([]string{"--config.file=" + file, "--storage.tsdb.path=" + data, "--web.listen-address=" + addr}, args...)
	})}
}

// sample is an element of a vector.
type sample struct {
	Metric    map[string]string
	Value     [2]any // time and value, the latter as text
	Histogram [2]json.RawMessage
}

// query runs an instant query.
func (s *server) query(t *testing.T, query string) []sample {
	t.Helper()
	var answer struct{ Result []sample }
	if err := s.Get("query", url.Values{"query": {query}}, &answer); err != nil {
		t.Fatal(err)
	}
	return answer.Result
}

// number is the result of a query that has one.
func (s *server) number(t *testing.T, query string) float64 {
	t.Helper()
	result := s.query(t, query)
	if len(result) != 1 {
		t.Fatalf("%s: %d results: %v", query, len(result), result)
	}
	v, err := strconv.ParseFloat(fmt.Sprint(result[0].Value[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// all is what the server has of the target, as text: the value of each series.
func (s *server) all(t *testing.T) map[string]string {
	t.Helper()
	m := map[string]string{}
	for _, one := range s.query(t, `{job="bale",__name__=~"bale_.*"}`) {
		delete(one.Metric, "job")
		delete(one.Metric, "instance")
		if h := one.Histogram[1]; h != nil {
			var fields struct{ Count, Sum string }
			if err := json.Unmarshal(h, &fields); err != nil {
				t.Fatal(err)
			}
			m[fmt.Sprint(one.Metric)] = "count " + fields.Count + " sum " + fields.Sum
			continue
		}
		m[fmt.Sprint(one.Metric)] = fmt.Sprint(one.Value[1])
	}
	return m
}

// series are those of a registry in the same form; with native histograms in place of classic ones,
// or not.
func series(t *testing.T, registry prometheus.Gatherer, native bool) map[string]string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]string{}
	for _, f := range families {
		for _, one := range f.Metric {
			labels := map[string]string{"__name__": f.GetName()}
			for _, l := range one.Label {
				labels[l.GetName()] = l.GetValue()
			}
			number := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
			put := func(suffix, le string, v float64) {
				labels["__name__"] = f.GetName() + suffix
				if le != "" {
					labels["le"] = le
				}
				m[fmt.Sprint(labels)] = number(v)
				delete(labels, "le")
			}
			switch h := one.Histogram; {
			case one.Counter != nil:
				put("", "", one.Counter.GetValue())
			case one.Gauge != nil:
				put("", "", one.Gauge.GetValue())
			case native:
				m[fmt.Sprint(labels)] = fmt.Sprintf("count %d sum %s", h.GetSampleCount(), number(h.GetSampleSum()))
			default:
				for _, b := range h.Bucket {
					le := strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64)
					if !strings.ContainsAny(le, ".e") {
						le += ".0" // as OpenMetrics has it
					}
					put("_bucket", le, float64(b.GetCumulativeCount()))
				}
				put("_bucket", "+Inf", float64(h.GetSampleCount()))
				put("_count", "", float64(h.GetSampleCount()))
				put("_sum", "", h.GetSampleSum())
			}
		}
	}
	return m
}

// TestPrometheus: a real one scrapes all that there is, and computes quantiles.
func TestPrometheus(t *testing.T) {
	for _, kind := range []string{"classic", "native"} {
		t.Run(kind, func(t *testing.T) {
			native := kind == "native"
			var args []string
			if native {
				args = []string{"--enable-feature=native-histograms"}
				help, err := exec.CommandContext(t.Context(), "prometheus", "--help").CombinedOutput()
				if err == nil && !bytes.Contains(help, []byte("native-histograms")) {
					t.Skip("this prometheus has no native histograms")
				}
			}
			ring, err := stats.NewRing(eventfile.NewWriter(io.Discard), stats.RingOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer ring.Close()
			ring.Group("g").Record(t.Context(), stats.Event{})
			if err := ring.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			c := newCollector(t, prom.Options{Ring: ring})
			for _, name := range []string{"shop:user", `a "group" \ of ümlauts`} {
				for range 100 {
					record(c.Group(name))
				}
			}
			c.Near("shop:user", func() prom.NearStats { return nearStats })
			registry := prometheus.NewPedanticRegistry()
			registry.MustRegister(c)
			target := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
			defer target.Close()
			s := runPrometheus(t, target.Listener.Addr().String(), args...)

			want := series(t, registry, native)
			promtest.Await(t, func() error {
				if n := len(s.query(t, `bale_operations_total`)); n == 0 {
					return errors.New("no metrics")
				}
				return nil
			})
			if diff := cmp.Diff(want, s.all(t)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}

			// 50 us: between 2^-16 and 2^-14 seconds; in native buckets between 2^-14.5 and
			// 2^-14.25.
			quantile, low, high := `histogram_quantile(0.5, sum by (le) (bale_stage_duration_seconds_bucket{op="get",stage="store"}))`, 15e-6, 61.1e-6
			if native {
				quantile, low, high = `histogram_quantile(0.5, sum(bale_stage_duration_seconds{op="get",stage="store"}))`, 43.1e-6, 51.4e-6
			}
			if v := s.number(t, quantile); !(v > low && v <= high) {
				t.Errorf("the median is %v, not %v to %v", v, low, high)
			}
			if v := s.number(t, `sum(bale_plain_bytes_total{op=~"get|set"}) / sum(bale_stored_bytes_total{op=~"get|set"})`); v != 4 {
				t.Errorf("the ratio is %v", v)
			}

			// Later events show as a rate, without a reset.
			for range 50 {
				record(c.Group("shop:user"))
			}
			promtest.Await(t, func() error {
				if v := s.number(t, `bale_operations_total{group="shop:user",op="get",outcome="hit"}`); v != 450 {
					return fmt.Errorf("%v hits", v)
				}
				return nil
			})
			if v := s.number(t, `sum(resets(bale_operations_total[1m]))`); v != 0 {
				t.Errorf("%v resets", v)
			}
			if native {
				if v := s.number(t, `histogram_quantile(0.99, sum(rate(bale_stage_duration_seconds{op="get",stage="store"}[1m])))`); !(v > low && v <= high) {
					t.Errorf("of the rate, the 99th percentile is %v, not %v to %v", v, low, high)
				}
			} else if v := s.number(t, `histogram_quantile(0.99, sum by (le) (rate(bale_stage_duration_seconds_bucket{op="get",stage="store"}[1m])))`); !(v > low && v <= high) {
				t.Errorf("of the rate, the 99th percentile is %v, not %v to %v", v, low, high)
			}
		})
	}
}

// TestNearPanels: a real Prometheus has data for each panel of the dashboard that shows near.
func TestNearPanels(t *testing.T) {
	text, err := os.ReadFile("../../../docs/ops/grafana/bale.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	c := newCollector(t, prom.Options{})
	var scrapes atomic.Uint64
	c.Near("shop:user", func() prom.NearStats {
		n := scrapes.Add(1)
		return prom.NearStats{Hits: 9 * n, Misses: 3 * n, Bytes: 1 << 20, Entries: 3,
			Evictions: 2 * n, TooLarge: n, Invalidations: 4 * n}
	})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	target := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer target.Close()
	s := runPrometheus(t, target.Listener.Addr().String())
	variables := strings.NewReplacer("$job", "bale", "$instance", ".*", "$group", "shop:user", "$__rate_interval", "4s")
	panels := 0
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			if !strings.Contains(target.Expr, "bale_near_") {
				continue
			}
			panels++
			promtest.Await(t, func() error {
				got := s.query(t, variables.Replace(target.Expr))
				if len(got) != 1 || got[0].Metric["group"] != "shop:user" {
					return fmt.Errorf("%s: %s has %v", panel.Title, target.Expr, got)
				}
				if v := fmt.Sprint(got[0].Value[1]); v == "0" || v == "NaN" ||
					strings.HasPrefix(panel.Title, "Hit rate") && v != "0.75" {
					return fmt.Errorf("%s: %s is %s", panel.Title, target.Expr, v)
				}
				return nil
			})
		}
	}
	if panels < 3 {
		t.Errorf("only %d panels show near", panels)
	}
}
