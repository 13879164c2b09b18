package prom

import (
	"math"

	dto "github.com/prometheus/client_model/go"

	"github.com/balekv/bale/stats"
)

// maxGap is how many empty buckets are written before a new span takes fewer bytes.
const maxGap = 2

// histogram is h with both kinds of buckets. The native buckets are the buckets of h. Only the
// first differs: it is the zero bucket, with everything shorter. See
// https://prometheus.io/docs/specs/native_histograms.
func (c *Collector) histogram(h *stats.Histogram) *dto.Histogram {
	count, sum, zero := h.Count, h.Sum.Seconds(), h.Buckets[0] // copies, for h is the caller's
	schema, threshold := int32(stats.HistogramSchema), bound(stats.HistogramFirst)
	d := &dto.Histogram{SampleCount: &count, SampleSum: &sum, Schema: &schema, ZeroThreshold: &threshold, ZeroCount: &zero}

	var below uint64 // what is in the buckets before next
	next := 0
	d.Bucket = make([]*dto.Bucket, len(c.bounds))
	for i, index := range c.bounds {
		for ; next <= index-stats.HistogramFirst; next++ {
			below += h.Buckets[next]
		}
		cumulative, upper := below, bound(index)
		d.Bucket[i] = &dto.Bucket{CumulativeCount: &cumulative, UpperBound: &upper}
	}

	var before int64 // the count of the bucket before
	end := 0         // the index after the last that is written
	for i, n := range h.Buckets {
		if i == 0 || n == 0 {
			continue
		}
		index := i + stats.HistogramFirst
		gap := index - end
		if len(d.PositiveSpan) == 0 || gap > maxGap {
			offset, none := int32(gap), uint32(0) // that of the first is the index itself, for end is zero
			d.PositiveSpan = append(d.PositiveSpan, &dto.BucketSpan{Offset: &offset, Length: &none})
			gap = 0
		}
		span := d.PositiveSpan[len(d.PositiveSpan)-1]
		length := span.GetLength() + uint32(gap) + 1
		span.Length = &length
		for ; gap > 0; gap-- {
			d.PositiveDelta = append(d.PositiveDelta, -before)
			before = 0
		}
		d.PositiveDelta = append(d.PositiveDelta, int64(n)-before)
		before, end = int64(n), index+1
	}
	return d
}

// bound is where the native bucket of an index ends, in seconds.
func bound(index int) float64 {
	return math.Exp2(float64(index) / (1 << stats.HistogramSchema))
}
