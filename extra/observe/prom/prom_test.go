package prom_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"github.com/balekv/bale"
	"github.com/balekv/bale/extra/observe/prom"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stats"
	"github.com/balekv/bale/stats/eventfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newCollector(t testing.TB, o prom.Options) *prom.Collector {
	t.Helper()
	c, err := prom.NewCollector(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// record is one of each that there is to see.
func record(c *stats.Counters) {
	ctx := context.Background()
	hit := stats.Event{Op: stats.Get, Keys: 1, Hits: 1, Plain: 400, Stored: 100, Timed: true}
	hit.Times[stats.Store] = 50 * time.Microsecond
	hit.Times[stats.Decode] = 4 * time.Microsecond
	for range 3 {
		c.Record(ctx, hit)
	}
	c.Record(ctx, stats.Event{Op: stats.Get, Keys: 1, Misses: 1})
	c.Record(ctx, stats.Event{Op: stats.Get, Keys: 1, Errors: 1, Class: stats.Corrupt})
	c.Record(ctx, stats.Event{Op: stats.GetMany, Keys: 10, Hits: 6, Misses: 3, Errors: 1, Class: stats.Timeout, Plain: 60, Stored: 50})
	c.Record(ctx, stats.Event{Op: stats.Set, Keys: 1, Plain: 400, Stored: 100, Algorithm: frame.Zstd, DictionaryID: 0xabcd, Fresh: 2})
	c.Record(ctx, stats.Event{Op: stats.Delete, Keys: 4})
}

func TestMetrics(t *testing.T) {
	c := newCollector(t, prom.Options{Buckets: []float64{0.00001, 0.0001, 1}})
	record(c.Group("shop:user"))
	zeros := func(op, but string) string {
		var b strings.Builder
		for class := stats.Corrupt; class < stats.Classes; class++ {
			if s := class.String(); s != but {
				fmt.Fprintf(&b, "bale_operations_total{group=\"shop:user\",op=%q,outcome=%q} 0\n", op, s)
			}
		}
		return b.String()
	}
	want := `
# HELP bale_dictionary_info What the group wrote last with. The value is 1.
# TYPE bale_dictionary_info gauge
bale_dictionary_info{algorithm="zstd",dictionary="0000abcd",group="shop:user"} 1
# HELP bale_fresh_buffers_total Buffers that had to be made or to grow, in place of one that was used before.
# TYPE bale_fresh_buffers_total counter
bale_fresh_buffers_total{group="shop:user"} 2
# HELP bale_keys_total Keys of the operations by result: hit, miss or error of reads, any of the others.
# TYPE bale_keys_total counter
bale_keys_total{group="shop:user",op="delete",result="any"} 4
bale_keys_total{group="shop:user",op="get",result="error"} 1
bale_keys_total{group="shop:user",op="get",result="hit"} 3
bale_keys_total{group="shop:user",op="get",result="miss"} 1
bale_keys_total{group="shop:user",op="get_many",result="error"} 1
bale_keys_total{group="shop:user",op="get_many",result="hit"} 6
bale_keys_total{group="shop:user",op="get_many",result="miss"} 3
bale_keys_total{group="shop:user",op="set",result="any"} 1
# HELP bale_operations_total Operations by outcome: hit or miss of get, ok of the others, or the class of the error.
# TYPE bale_operations_total counter
bale_operations_total{group="shop:user",op="delete",outcome="ok"} 1
bale_operations_total{group="shop:user",op="get",outcome="hit"} 3
bale_operations_total{group="shop:user",op="get",outcome="miss"} 1
bale_operations_total{group="shop:user",op="get",outcome="corrupt"} 1
bale_operations_total{group="shop:user",op="get_many",outcome="ok"} 0
bale_operations_total{group="shop:user",op="get_many",outcome="timeout"} 1
bale_operations_total{group="shop:user",op="set",outcome="ok"} 1
` + zeros("delete", "") + zeros("get", "corrupt") + zeros("get_many", "timeout") + zeros("set", "") + `
# HELP bale_plain_bytes_total Bytes of the values, serialized.
# TYPE bale_plain_bytes_total counter
bale_plain_bytes_total{group="shop:user",op="get"} 1200
bale_plain_bytes_total{group="shop:user",op="get_many"} 60
bale_plain_bytes_total{group="shop:user",op="set"} 400
# HELP bale_stage_duration_seconds Time of each stage of the operations that were timed, which are a sample: its count is not that of the operations.
# TYPE bale_stage_duration_seconds histogram
bale_stage_duration_seconds_bucket{group="shop:user",op="get",stage="decode",le="1.0789593218788871e-05"} 3
bale_stage_duration_seconds_bucket{group="shop:user",op="get",stage="decode",le="0.00010264848819015071"} 3
bale_stage_duration_seconds_bucket{group="shop:user",op="get",stage="decode",le="1"} 3
bale_stage_duration_seconds_bucket{group="shop:user",op="get",stage="decode",le="+Inf"} 3
bale_stage_duration_seconds_sum{group="shop:user",op="get",stage="decode"} 1.2e-05
bale_stage_duration_seconds_count{group="shop:user",op="get",stage="decode"} 3
bale_stage_duration_seconds_bucket{group="shop:user",op="get",stage="store",le="1.0789593218788871e-05"} 0
bale_stage_duration_seconds_bucket{group="shop:user",op="get",stage="store",le="0.00010264848819015071"} 3
bale_stage_duration_seconds_bucket{group="shop:user",op="get",stage="store",le="1"} 3
bale_stage_duration_seconds_bucket{group="shop:user",op="get",stage="store",le="+Inf"} 3
bale_stage_duration_seconds_sum{group="shop:user",op="get",stage="store"} 0.00015
bale_stage_duration_seconds_count{group="shop:user",op="get",stage="store"} 3
# HELP bale_stored_bytes_total Bytes of the same values as they are in Redis.
# TYPE bale_stored_bytes_total counter
bale_stored_bytes_total{group="shop:user",op="get"} 300
bale_stored_bytes_total{group="shop:user",op="get_many"} 50
bale_stored_bytes_total{group="shop:user",op="set"} 100
`
	for range 2 { // the second scrape has the labels of the first
		if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLint(t *testing.T) {
	ring, err := stats.NewRing(eventfile.NewWriter(new(strings.Builder)), stats.RingOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Close()
	c := newCollector(t, prom.Options{Ring: ring})
	record(c.Group("shop:user"))
	record(c.Group("shop:\xff"))
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	problems, err := testutil.GatherAndLint(registry)
	if err != nil {
		t.Error(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if n, err := testutil.GatherAndCount(registry); err != nil || n < 100 {
		t.Errorf("%d series, %v", n, err)
	}
}

func TestRing(t *testing.T) {
	ring, err := stats.NewRing(eventfile.NewWriter(new(strings.Builder)), stats.RingOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := newCollector(t, prom.Options{Ring: ring, Namespace: "shop"})
	group := ring.Group("shop:user")
	for range 3 {
		group.Record(t.Context(), stats.Event{})
	}
	if err := ring.Close(); err != nil {
		t.Fatal(err)
	}
	const want = `
# HELP shop_ring_events_total Events that the ring has delivered, or dropped for it was full.
# TYPE shop_ring_events_total counter
shop_ring_events_total{outcome="delivered"} 3
shop_ring_events_total{outcome="dropped"} 0
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// TestGroupsAreBounded: whatever a program takes for groups.
func TestGroupsAreBounded(t *testing.T) {
	c := newCollector(t, prom.Options{MaxGroups: 2})
	a, b := c.Group("a"), c.Group("b")
	other := c.Group("c")
	switch {
	case a == b || a == other || b == other:
		t.Error("groups are one")
	case c.Group("a") != a || c.Group("b") != b:
		t.Error("a group is made twice")
	case c.Group("d") != other || c.Group("other") != other:
		t.Error("there is another group beyond the most")
	}
	record(a)
	for i := range 1000 {
		record(c.Group(fmt.Sprint(i)))
	}
	groups := map[string]bool{}
	for _, family := range gather(t, c) {
		for _, m := range family.Metric {
			for _, l := range m.Label {
				if l.GetName() == "group" {
					groups[l.GetValue()] = true
				}
			}
		}
	}
	if diff := cmp.Diff(map[string]bool{"a": true, "b": true, "other": true}, groups); diff != "" {
		t.Error(diff)
	}

	many := newCollector(t, prom.Options{})
	last := many.Group("199")
	for i := range 200 {
		if many.Group(fmt.Sprint(i)) == many.Group("other") {
			t.Errorf("group %d is other", i)
		}
	}
	if many.Group("200") != many.Group("other") || many.Group("199") != last {
		t.Error("group 200 is not other")
	}
}

func gather(t *testing.T, c prometheus.Collector) []*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// TestNativeHistogram: the native buckets, decoded as their specification says, are those of the
// Snapshot, and so are the classic ones.
func TestNativeHistogram(t *testing.T) {
	c := newCollector(t, prom.Options{Counters: stats.CountersOptions{TimeEvery: 1}})
	counters := c.Group("g")
	for _, d := range []time.Duration{1, 119, 120, 200, 201, 999, 1000, 1001, time.Microsecond * 55, time.Microsecond * 56, time.Millisecond, time.Second,
		time.Second + 1, time.Hour} {
		e := stats.Event{Op: stats.Get, Keys: 1, Misses: 1, Timed: true}
		e.Times[stats.Store] = d
		for range d%7 + 1 {
			counters.Record(t.Context(), e)
		}
	}
	want := counters.Snapshot().Ops[stats.Get].Times[stats.Store]
	for _, family := range gather(t, c) {
		if family.GetName() != "bale_stage_duration_seconds" {
			continue
		}
		h := family.Metric[0].Histogram
		got := stats.Histogram{Count: h.GetSampleCount(), Sum: time.Duration(math.Round(h.GetSampleSum() * 1e9))}
		got.Buckets[0] = h.GetZeroCount()
		if h.GetSchema() != stats.HistogramSchema || h.GetZeroThreshold() != math.Exp2(stats.HistogramFirst/4.) {
			t.Errorf("schema %d, zero up to %v", h.GetSchema(), h.GetZeroThreshold())
		}
		index, delta := 0, 0
		var count int64
		for _, span := range h.PositiveSpan {
			index += int(span.GetOffset())
			for range span.GetLength() {
				count += h.PositiveDelta[delta]
				got.Buckets[index-stats.HistogramFirst] = uint64(count)
				index++
				delta++
			}
		}
		if delta != len(h.PositiveDelta) {
			t.Errorf("the spans have %d buckets, not %d", delta, len(h.PositiveDelta))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if len(h.Bucket) != 12 {
			t.Errorf("%d classic buckets", len(h.Bucket))
		}
		for _, b := range h.Bucket {
			var n uint64
			for i := range want.Buckets {
				if want.Bound(i) <= time.Duration(b.GetUpperBound()*1e9) {
					n += want.Buckets[i]
				}
			}
			if b.GetCumulativeCount() != n {
				t.Errorf("%d up to %v, not %d", b.GetCumulativeCount(), b.GetUpperBound(), n)
			}
		}
		return
	}
	t.Error("no histogram")
}

// TestNothingFalls: a counter that falls is one of a program that was restarted, for Prometheus.
func TestNothingFalls(t *testing.T) {
	c := newCollector(t, prom.Options{Counters: stats.CountersOptions{TimeEvery: 1}})
	counters := c.Group("g")
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for range 2 {
		callers.Go(func() {
			timed := stats.Event{Op: stats.GetMany, Keys: 3, Misses: 3, Timed: true}
			timed.Times[stats.Store] = time.Microsecond
			for {
				select {
				case <-stop:
					return
				default:
				}
				counters.Record(context.Background(), stats.Event{Op: stats.Get, Keys: 1, Errors: 1, Class: stats.Server})
				counters.Record(context.Background(), stats.Event{Op: stats.Set, Keys: 1, Errors: 1, Class: stats.Server})
				counters.Record(context.Background(), timed)
			}
		})
	}
	last := map[string]float64{}
	for range 200 {
		for _, family := range gather(t, c) {
			for _, m := range family.Metric {
				id := family.GetName() + fmt.Sprint(m.Label)
				value := m.Counter.GetValue() + float64(m.Histogram.GetSampleCount())
				if value < last[id] {
					t.Errorf("%s falls from %v to %v", id, last[id], value)
				}
				last[id] = value
			}
		}
	}
	close(stop)
	callers.Wait()
}

func TestOptionsRefused(t *testing.T) {
	for name, o := range map[string]prom.Options{
		"groups":    {MaxGroups: -1},
		"low":       {Buckets: []float64{1e-9}},
		"high":      {Buckets: []float64{65}},
		"nan":       {Buckets: []float64{math.NaN()}},
		"falling":   {Buckets: []float64{1, 0.5}},
		"too close": {Buckets: []float64{1, 1.01}},
		"namespace": {Namespace: "\xff"},
	} {
		if _, err := prom.NewCollector(o); !errors.Is(err, bale.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	none := newCollector(t, prom.Options{Buckets: []float64{}})
	record(none.Group("g"))
	for _, family := range gather(t, none) {
		for _, m := range family.Metric {
			if len(m.Histogram.GetBucket()) > 0 {
				t.Error("classic buckets where there are to be none")
			}
		}
	}
}

func BenchmarkScrape(b *testing.B) {
	c := newCollector(b, prom.Options{})
	for i := range 200 {
		record(c.Group(fmt.Sprint("group", i)))
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	b.ReportAllocs()
	for b.Loop() {
		families, err := registry.Gather()
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for _, f := range families {
			n += len(f.Metric)
		}
		b.ReportMetric(float64(n), "series")
	}
}
