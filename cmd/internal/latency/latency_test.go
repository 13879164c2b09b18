package latency

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/go-cmp/cmp"

	"github.com/balekv/bale/internal/testvalues"
)

const testStages = 7 // as many as an operation of the lab has

func newRecorder(t testing.TB, o Options) *Recorder {
	t.Helper()
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// latencies are like those of an operation: each stage about a middle of its own, from 100 ns to 1
// ms, with a tail.
func latencies(n int, seed uint64) [][testStages]time.Duration {
	rng := rand.New(rand.NewPCG(seed, 0))
	out := make([][testStages]time.Duration, n)
	for i := range out {
		for s := range out[i] {
			out[i][s] = time.Duration(100 * math.Pow(10, float64(s)*4/(testStages-1)) * math.Exp(rng.NormFloat64()/2))
		}
	}
	return out
}

// TestLikeHDR records what HdrHistogram records too, and must have the same counts in the same
// buckets.
func TestLikeHDR(t *testing.T) {
	r := newRecorder(t, Options{Stages: 1, Shards: 3})
	want := hdrhistogram.New(1, int64(Max), digits)
	rng := rand.New(rand.NewPCG(1, 2))
	record := func(caller int, d time.Duration) {
		r.Shard(caller).Record(0, d)
		if err := want.RecordValue(int64(d)); err != nil {
			t.Fatal(err)
		}
	}
	for shift := range 36 {
		for _, d := range []time.Duration{1<<shift - 1, 1 << shift, 1<<shift + 1} {
			record(shift, d)
		}
		for caller := range 300 {
			record(caller, min(Max, time.Duration(rng.Int64N(2<<shift))))
		}
	}
	record(0, Max)
	got := r.Snapshot()[0]
	counts := make([]int64, buckets)
	for _, f := range got.filled {
		counts[f.bucket] = f.count
	}
	if diff := cmp.Diff(want.Export().Counts, counts); diff != "" {
		t.Fatalf("counts differ (-HdrHistogram +Recorder):\n%s", diff)
	}
	for i := range 1001 {
		q := float64(i) / 1000
		if got, want := got.Quantile(q), min(Max, time.Duration(want.ValueAtPercentile(100*q))); got != want {
			t.Errorf("quantile %v is %v, HdrHistogram's %v", q, got, want)
		}
	}
	// The middle of Max's own bucket is beyond it.
	low, high := bounds(int32(index(Max)))
	beyond := float64((low+high+1)/2-Max) * float64(counts[index(Max)]) / float64(got.Count())
	if mean := want.Mean() - beyond; math.Abs(got.Mean()/mean-1) > 1e-12 {
		t.Errorf("mean %v, HdrHistogram's %v", got.Mean(), mean)
	}
	if got.Count() != want.TotalCount() || got.Clamped() != 0 {
		t.Errorf("%d, %d clamped, want %d, 0", got.Count(), got.Clamped(), want.TotalCount())
	}
}

func TestPrecision(t *testing.T) {
	for d := time.Duration(1); d <= Max; d += 1 + d/7 {
		r := newRecorder(t, Options{Stages: 1, Shards: 1})
		r.Shard(0).Record(0, d)
		h := r.Snapshot()[0]
		for _, q := range []float64{0, 0.5, 1} {
			if got := h.Quantile(q); math.Abs(float64(got-d)) > float64(d)/1000 {
				t.Errorf("%v: quantile %v is %v", d, q, got)
			}
		}
		if mean, longest := h.Mean(), h.Quantile(1); mean > float64(longest) {
			t.Errorf("%v: the mean is %v ns, and the longest %v", d, mean, longest)
		}
	}
}

func TestRange(t *testing.T) {
	for _, c := range []struct {
		d, want time.Duration
		clamped int64
	}{
		{math.MinInt64, 0, 0}, {-1, 0, 0}, {0, 0, 0}, {1, 1, 0},
		{Max, Max, 0}, {Max + 1, Max, 1}, {math.MaxInt64, Max, 1},
	} {
		r := newRecorder(t, Options{Stages: 2})
		r.Shard(5).Record(1, c.d)
		h := r.Snapshot()
		if h[1].Mean() > float64(h[1].Quantile(0.99)) {
			t.Errorf("%d: a mean of %v ns, and P99 %d", c.d, h[1].Mean(), h[1].Quantile(0.99))
		}
		if h[0].Count() != 0 || h[1].Count() != 1 || h[1].Quantile(1) != c.want || h[1].Clamped() != c.clamped {
			t.Errorf("%d: %d and %d latencies, longest %d, %d clamped, want 0 and 1, %d, %d",
				c.d, h[0].Count(), h[1].Count(), h[1].Quantile(1), h[1].Clamped(), c.want, c.clamped)
		}
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{}, {Stages: -1}, {Stages: 1, Shards: -1}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
	r := newRecorder(t, Options{Stages: 1, Shards: 2})
	if r.Shard(0) == r.Shard(1) || r.Shard(0) != r.Shard(2) || r.Shard(-1) == nil {
		t.Error("callers 0 and 2 must share a shard that 1 does not")
	}
}

// TestConcurrent is for the race detector as much as for the counts: 10,000 callers record while
// others look.
func TestConcurrent(t *testing.T) {
	const callers, each = 10_000, 20
	r := newRecorder(t, Options{Stages: testStages})
	times := latencies(each, 1)
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			s := r.Shard(caller)
			for i := range times {
				s.RecordAll(times[i][:])
			}
		})
	}
	before := int64(0)
	for range 3 {
		n := r.Snapshot()[0].Count()
		if n < before {
			t.Errorf("%d latencies after %d", n, before)
		}
		before = n
	}
	all.Wait()
	for i, h := range r.Snapshot() {
		if h.Count() != callers*each {
			t.Errorf("stage %d has %d latencies, want %d", i, h.Count(), callers*each)
		}
	}
	r.Reset()
	for i, h := range r.Snapshot() {
		if h.Count() != 0 || h.Quantile(0.5) != 0 || h.Mean() != 0 || h.Points() != nil {
			t.Errorf("stage %d has %d latencies after Reset", i, h.Count())
		}
	}
}

func TestMerge(t *testing.T) {
	whole, parts := newRecorder(t, Options{Stages: testStages}), make([]Histogram, testStages)
	for part := range uint64(3) {
		r := newRecorder(t, Options{Stages: testStages})
		for _, times := range latencies(500, part) {
			times[part] = 2 * Max
			r.Shard(0).RecordAll(times[:])
			whole.Shard(0).RecordAll(times[:])
		}
		for i, h := range r.Snapshot() {
			parts[i].Merge(h)
		}
	}
	for i, want := range whole.Snapshot() {
		parts[i].Merge(nil)
		parts[i].Merge(&Histogram{})
		if diff := cmp.Diff(want.Points(), parts[i].Points()); diff != "" || want.Count() != parts[i].Count() || want.Clamped() != parts[i].Clamped() {
			t.Errorf("stage %d merged has %d latencies, %d clamped, want %d, %d:\n%s", i, parts[i].Count(), parts[i].Clamped(), want.Count(), want.Clamped(), diff)
		}
	}
}

func TestPoints(t *testing.T) {
	for _, c := range []struct {
		n    int
		want []Point
	}{
		{0, nil},
		{1, []Point{{0, 1}, {0.25, 1}, {0.5, 1}, {1, 1}}},
		{4, []Point{{0, 1}, {0.25, 1}, {0.5, 2}, {0.75, 3}, {1, 4}}},
		{100, []Point{{0, 1}, {0.25, 25}, {0.5, 50}, {0.75, 75}, {0.9, 90}, {0.95, 95}, {0.975, 98}, {0.99, 99}, {1, 100}}},
	} {
		r := newRecorder(t, Options{Stages: 1})
		for i := range c.n {
			r.Shard(i).Record(0, time.Duration(i+1))
		}
		if diff := cmp.Diff(c.want, r.Snapshot()[0].Points()); diff != "" {
			t.Errorf("%d latencies (-want +got):\n%s", c.n, diff)
		}
	}
	r := newRecorder(t, Options{Stages: 1})
	for i := range 200_000 {
		r.Shard(i).Record(0, time.Duration(i)*time.Microsecond)
	}
	points := r.Snapshot()[0].Points()
	if n := len(points); n != len(quantiles)+1 || points[n-2].Quantile != 0.99999 {
		t.Errorf("200,000 latencies have %d points, %v before the last, want %d, 99.999%%", n, points[n-2], len(quantiles)+1)
	}
	for i, p := range points[1:] {
		if p.Value < points[i].Value || p.Quantile <= points[i].Quantile {
			t.Errorf("%v comes after %v", p, points[i])
		}
	}
}

func TestRecordAllocatesNothing(t *testing.T) {
	if testvalues.Race {
		t.Skip("the race detector allocates")
	}
	r := newRecorder(t, Options{Stages: testStages})
	times := latencies(1000, 1)
	i := 0
	if n := testing.AllocsPerRun(len(times)-1, func() {
		s := r.Shard(i)
		s.RecordAll(times[i][:])
		s.Record(0, times[i][0])
		s.Record(0, -1)
		s.Record(0, 2*Max)
		i++
	}); n != 0 {
		t.Errorf("recording allocates %v times", n)
	}
}

// BenchmarkRecord is the time of one latency: an operation records seven of them. Goroutines share
// the processors.
func BenchmarkRecord(b *testing.B) {
	times := latencies(1<<12, 1)
	for _, goroutines := range []int{1, 2, 64, 10_000} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			r := newRecorder(b, Options{Stages: testStages})
			b.ReportAllocs()
			operations := (b.N + testStages - 1) / testStages
			var all sync.WaitGroup
			for g := range goroutines {
				n := (operations + goroutines - 1) / goroutines
				all.Go(func() {
					s := r.Shard(g)
					for i := range n {
						s.RecordAll(times[(i+g*61)%len(times)][:])
					}
				})
			}
			all.Wait()
		})
	}
}

// BenchmarkLocked is what the counters of our own are measured against: HdrHistogram behind a lock
// that is taken once an operation.
func BenchmarkLocked(b *testing.B) {
	times := latencies(1<<12, 1)
	var mu sync.Mutex
	var stages [testStages]*hdrhistogram.Histogram
	for i := range stages {
		stages[i] = hdrhistogram.New(1, int64(Max), digits)
	}
	for i := 0; i < b.N; i += testStages {
		mu.Lock()
		for s, d := range times[i/testStages%len(times)] {
			stages[s].RecordValue(int64(d))
		}
		mu.Unlock()
	}
}
