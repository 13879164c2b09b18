package latency

import (
	"math"
	"time"
)

// Histogram is a distribution of latencies, right to 0.1%. It keeps the buckets that have any: some
// thousand, where HdrHistogram keeps 27,648, of which a run has nine for each of hundreds of cells.
// It is not safe for concurrent use while it is merged into. A nil or zero Histogram is empty.
type Histogram struct {
	filled  []filled // by rising bucket
	count   int64
	clamped int64
}

// filled is a bucket with latencies.
type filled struct {
	bucket int32
	count  int64
}

// bounds are the lowest and the highest latency of a bucket: the inverse of index.
func bounds(bucket int32) (low, high time.Duration) {
	if bucket < 2*halfBuckets {
		return time.Duration(bucket), time.Duration(bucket)
	}
	shift := bucket/halfBuckets - 1
	low = time.Duration(bucket-shift*halfBuckets) << shift
	return low, low + 1<<shift - 1
}

// Merge adds the latencies of another one, which stays as it is.
func (h *Histogram) Merge(from *Histogram) {
	if from == nil || from.count == 0 {
		return
	}
	all := make([]filled, 0, len(h.filled)+len(from.filled))
	a, b := h.filled, from.filled
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0].bucket < b[0].bucket:
			all, a = append(all, a[0]), a[1:]
		case a[0].bucket > b[0].bucket:
			all, b = append(all, b[0]), b[1:]
		default:
			all, a, b = append(all, filled{a[0].bucket, a[0].count + b[0].count}), a[1:], b[1:]
		}
	}
	h.filled = append(append(all, a...), b...)
	h.count += from.count
	h.clamped += from.clamped
}

// Count is how many latencies there are.
func (h *Histogram) Count() int64 {
	if h == nil {
		return 0
	}
	return h.count
}

// Clamped is how many of them were longer than [Max]: where it is not zero, the longest latencies
// and the mean are lower bounds.
func (h *Histogram) Clamped() int64 {
	if h == nil {
		return 0
	}
	return h.clamped
}

// Quantile returns the latency that a part q, 0 to 1, of all did not exceed. It is the end of the
// bucket, as in HdrHistogram; for q = 0 it is the start of the first. It is zero without latencies.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.Count() == 0 {
		return 0
	}
	if q <= 0 {
		low, _ := bounds(h.filled[0].bucket)
		return low
	}
	// The rank of the latency, rounded as HdrHistogram does.
	rank := max(1, int64(min(q, 1)*float64(h.count)+0.5))
	for _, f := range h.filled {
		if rank -= f.count; rank <= 0 {
			_, high := bounds(f.bucket)
			return min(Max, high)
		}
	}
	return Max
}

// Mean is the mean latency in nanoseconds, each taken as the middle of its bucket, at most [Max];
// zero if there are none.
func (h *Histogram) Mean() float64 {
	if h.Count() == 0 {
		return 0
	}
	sum := 0.0
	for _, f := range h.filled {
		low, high := bounds(f.bucket)
		sum += float64(f.count) * float64(min(Max, low+(high-low+1)/2))
	}
	return sum / float64(h.count)
}

// Point is one of a plot of latencies by percentile.
type Point struct {
	Quantile float64       // 0 to 1
	Value    time.Duration // as Histogram.Quantile has it
}

// quantiles are the lines of an HDR plot: even steps on its axis, up to one in 100,000. From the
// median on, the distance from 90% to 99% is the same as from 99% to 99.9%.
var quantiles = []float64{
	0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.99, 0.995, 0.9975, 0.999, 0.9995, 0.99975, 0.9999, 0.99995, 0.999975, 0.99999,
}

// Points are the latencies by percentile, for an HDR plot: 0, 25, 50, 75, 90, 95, 97.5, 99 and so
// on up to 99.999. They stop where no latency is beyond the percentile, and the longest latency is
// at 100. There are at most 18, and none without latencies.
func (h *Histogram) Points() []Point {
	n := h.Count()
	if n == 0 {
		return nil
	}
	var points []Point
	for _, q := range quantiles {
		// The difference is not quite what it looks like: 1 - 0.99 is below 0.01, and 100 values
		// have one beyond 99%.
		if q > 0.5 && math.Round((1-q)*float64(n)*1e6) < 1e6 {
			break
		}
		points = append(points, Point{q, h.Quantile(q)})
	}
	return append(points, Point{1, h.Quantile(1)})
}
