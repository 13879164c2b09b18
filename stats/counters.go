package stats

import (
	"context"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/balekv/bale/frame"
)

// CountersOptions are the settings of [Counters]; the zero value is useful.
type CountersOptions struct {
	// TimeEvery times one in TimeEvery operations, chosen at random. 1 times all, which costs 25 ns
	// for each stage and one more. Default 32; a negative number times none.
	TimeEvery int
}

const defaultTimeEvery = 32

// Counters counts operations, and keeps histograms of the time per stage, at a cost of some tens of
// nanoseconds. It is safe for concurrent use and allocates nothing for an operation. Module
// github.com/balekv/bale/extra/observe/prom shows it to Prometheus.
type Counters struct {
	sampler
	shards [counterShards]counterShard

	// Histograms are not sharded: few operations are timed.
	histograms [Ops][Stages]histogram

	dictionary atomic.Uint32 // of the value written last
	algorithm  atomic.Uint32
}

// counterShards spreads the callers over memory, so that processors do not wait for one another's
// caches.
const counterShards = 8

// stackShift drops the low bits of a stack address, which do not differ between stacks: the
// smallest stack has 2 KiB.
const stackShift = 11

type counterShard struct {
	ops   [Ops]opCounters
	fresh atomic.Uint64
	_     [64]byte
}

// opCounters are the counters of one operation. Derived figures have no counter.
type opCounters struct {
	count, keys, misses atomic.Uint64
	plain, stored       atomic.Uint64
	errors              [Classes]atomic.Uint64
	failedKeys          atomic.Uint64
}

// NewCounters makes Counters.
func NewCounters(o CountersOptions) *Counters {
	return &Counters{sampler: newSampler(o.TimeEvery)}
}

// sampler chooses one in sampler operations at random; 0 is none.
type sampler uint32

// newSampler takes the value of [CountersOptions].TimeEvery.
func newSampler(every int) sampler {
	if every == 0 {
		every = defaultTimeEvery
	}
	return sampler(min(max(every, 0), math.MaxInt32))
}

// Timed implements [Recorder].
func (s sampler) Timed(context.Context) bool {
	return s == 1 || s != 0 && rand.Uint32N(uint32(s)) == 0
}

// Record implements [Recorder].
func (c *Counters) Record(_ context.Context, e Event) {
	if e.Op >= Ops || e.Class >= Classes {
		return // of a later version
	}
	// A goroutine has its own stack, and so most often its own shard.
	shard := &c.shards[uintptr(unsafe.Pointer(&e))>>stackShift%counterShards]
	o := &shard.ops[e.Op]
	o.count.Add(1)
	if e.Keys != 1 {
		o.keys.Add(uint64(e.Keys) - 1) // beyond the one that count has; of no key one less, modulo 2^64
	}
	if e.Misses != 0 {
		o.misses.Add(uint64(e.Misses))
	}
	if e.Stored != 0 {
		o.plain.Add(uint64(e.Plain))
		o.stored.Add(uint64(e.Stored))
	}
	if e.Class != OK {
		o.errors[e.Class].Add(1)
		o.failedKeys.Add(uint64(e.Errors))
	}
	if e.Fresh != 0 {
		shard.fresh.Add(uint64(e.Fresh))
	}
	if (e.Op == Set || e.Op == SetMany) && e.Algorithm != frame.Stored &&
		(c.dictionary.Load() != uint32(e.DictionaryID) || c.algorithm.Load() != uint32(e.Algorithm)) {
		c.dictionary.Store(uint32(e.DictionaryID))
		c.algorithm.Store(uint32(e.Algorithm))
	}
	if e.Timed {
		for stage, d := range e.Times {
			if d > 0 {
				c.histograms[e.Op][stage].observe(d)
			}
		}
	}
}

// Snapshot is the state of Counters. A snapshot during operations may be off by a few between the
// figures of one operation.
type Snapshot struct {
	Ops   [Ops]OpStats // by [Op]
	Fresh uint64       // buffers that had to be made or to grow

	// Algorithm and DictionaryID are those of the last packed value that was written.
	Algorithm    frame.Algorithm
	DictionaryID frame.DictionaryID
}

// OpStats are the figures of one operation.
type OpStats struct {
	Count  uint64          // operations
	Keys   uint64          // of all operations
	Hits   uint64          // of reads
	Misses uint64          // of reads
	Errors [Classes]uint64 // operations by [Class]; that of OK is zero

	Plain, Stored uint64 // bytes

	Times [Stages]Histogram // by [Stage], of the operations that were timed
}

// Ratio is the size of the values divided by the stored size; 1 if nothing is stored.
func (o *OpStats) Ratio() float64 {
	if o.Stored == 0 {
		return 1
	}
	return float64(o.Plain) / float64(o.Stored)
}

// Snapshot returns the figures up to now.
func (c *Counters) Snapshot() Snapshot {
	s := Snapshot{Algorithm: frame.Algorithm(c.algorithm.Load()), DictionaryID: frame.DictionaryID(c.dictionary.Load())}
	for op := range s.Ops {
		o := &s.Ops[op]
		var failed uint64
		for i := range c.shards {
			from := &c.shards[i].ops[op]
			o.Count += from.count.Load()
			o.Keys += from.keys.Load()
			o.Misses += from.misses.Load()
			o.Plain += from.plain.Load()
			o.Stored += from.stored.Load()
			failed += from.failedKeys.Load()
			for class := range o.Errors {
				o.Errors[class] += from.errors[class].Load()
			}
		}
		o.Keys += o.Count
		if op := Op(op); op == Get || op == GetMany {
			if notHits := o.Misses + failed; notHits < o.Keys {
				o.Hits = o.Keys - notHits
			}
		}
		for stage := range o.Times {
			o.Times[stage] = c.histograms[op][stage].snapshot()
		}
	}
	for i := range c.shards {
		s.Fresh += c.shards[i].fresh.Load()
	}
	return s
}

// A [Histogram] has the buckets of a Prometheus native histogram of schema 2. Each
// bound is 2^(1/4) times the one before, and one of them is a second. See
// https://prometheus.io/docs/specs/native_histograms.
const (
	HistogramSchema = 2

	// HistogramFirst is the index of the first bucket: bucket i+HistogramFirst ends at
	// 2^((i+HistogramFirst)/4) seconds, inclusive. The first bucket has all durations of 119 ns and
	// less, and the last all above 64 s.
	HistogramFirst = -23 * 4

	histogramBuckets = (23+7)*4 - 2
)

// Histogram is a distribution of durations.
type Histogram struct {
	Count   uint64
	Sum     time.Duration
	Buckets [histogramBuckets]uint64
}

type histogram struct {
	sum     atomic.Int64
	buckets [histogramBuckets]atomic.Uint64
}

// quarters are the bounds within an octave.
var quarters = [...]float64{0.5, math.Exp2(-0.75), math.Exp2(-0.5), math.Exp2(-0.25)}

// bucket is the index of the bucket that d falls into.
func bucket(d time.Duration) int {
	if d <= 0 {
		return 0
	}
	fraction, exponent := math.Frexp(d.Seconds()) // fraction is in [0.5, 1)
	i := (exponent - 1) * 4
	for _, bound := range quarters {
		if fraction > bound {
			i++
		}
	}
	return min(max(i-HistogramFirst, 0), histogramBuckets-1)
}

// Bound is the inclusive upper bound of bucket i, from 0. That of the last bucket, and of any
// beyond, is the longest duration.
func (h *Histogram) Bound(i int) time.Duration {
	if i >= histogramBuckets-1 {
		return math.MaxInt64
	}
	return time.Duration(math.Exp2(float64(i+HistogramFirst)/4) * float64(time.Second))
}

func (h *histogram) observe(d time.Duration) {
	h.buckets[bucket(d)].Add(1)
	h.sum.Add(int64(d))
}

func (h *histogram) snapshot() Histogram {
	s := Histogram{Sum: time.Duration(h.sum.Load())}
	for i := range s.Buckets {
		s.Buckets[i] = h.buckets[i].Load()
		s.Count += s.Buckets[i]
	}
	return s
}

// Quantile is the duration below which a fraction q, 0 to 1, of all durations lie, rounded up to a
// bucket: at most 19% too long. It is zero for an empty histogram.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := uint64(math.Ceil(q * float64(h.Count)))
	var seen uint64
	for i, n := range h.Buckets {
		if seen += n; n > 0 && seen >= rank {
			if i == histogramBuckets-1 {
				return h.Bound(i - 1) // all that can be said
			}
			return h.Bound(i)
		}
	}
	return 0
}
