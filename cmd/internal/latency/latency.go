// Package latency records how long the stages of an operation take, from thousands of goroutines at
// a time, without a lock and without allocating.
//
// A [Recorder] counts in shards, which callers share. [Recorder.Snapshot] adds the shards up to a
// [Histogram] for each stage, with quantiles, the mean, and the [Histogram.Points] of a plot.
package latency

import (
	"fmt"
	"math/bits"
	"runtime"
	"sync/atomic"
	"time"
)

// Max is the longest latency with a bucket of its own. Longer ones count as Max, and as
// [Histogram.Clamped].
const Max = time.Minute

// A latency is right to 3 digits, 0.1%: the lab's smallest floor of 1% is ten buckets wide. The
// geometry is HdrHistogram's: a value below 2,048 ns has a bucket of its own, and each power of two
// above is cut in 1,024. That is 216 KiB a stage and shard; 2 digits would take 30.
const (
	digits      = 3
	subBits     = 11 // of 2,048, the power of two that 2*10^digits fits in
	halfBuckets = 1 << (subBits - 1)
	buckets     = (38 - subBits) * halfBuckets // a minute in ns has 36 bits
)

// Options are the settings of a Recorder.
type Options struct {
	// Stages is how many latencies an operation has; at least 1.
	Stages int

	// Shards is how many sets of counters there are. More of them keep processors out of each
	// other's caches, and each takes 216 KiB for each of the Stages. Defaults to the power of two
	// from twice GOMAXPROCS on, at most 32.
	Shards int
}

const maxShards = 32

// Recorder counts latencies. All methods except Reset are safe for concurrent use.
type Recorder struct {
	shards []Shard
	stages int
}

// New makes a Recorder.
func New(o Options) (*Recorder, error) {
	if o.Stages < 1 {
		return nil, fmt.Errorf("latency: %d stages, must be at least 1", o.Stages)
	}
	if o.Shards < 0 {
		return nil, fmt.Errorf("latency: %d shards, must be at least 1, or 0 for twice GOMAXPROCS", o.Shards)
	}
	if o.Shards == 0 {
		o.Shards = min(maxShards, 1<<bits.Len(uint(2*runtime.GOMAXPROCS(0)-1)))
	}
	r := &Recorder{shards: make([]Shard, o.Shards), stages: o.Stages}
	for i := range r.shards {
		r.shards[i].stages = make([]stage, o.Stages)
	}
	return r, nil
}

// Shard is where a caller records; callers are numbered from 0. Any number of callers may share
// one.
func (r *Recorder) Shard(caller int) *Shard { return &r.shards[uint(caller)%uint(len(r.shards))] }

// Snapshot returns the latencies recorded so far, a Histogram for each stage. It may miss
// concurrent operations, or have only some of their stages.
func (r *Recorder) Snapshot() []*Histogram {
	out := make([]*Histogram, r.stages)
	for i := range out {
		h := &Histogram{}
		for b := range buckets {
			n := int64(0)
			for s := range r.shards {
				n += int64(r.shards[s].stages[i].counts[b].Load())
			}
			if n > 0 {
				h.filled = append(h.filled, filled{int32(b), n})
				h.count += n
			}
		}
		for s := range r.shards {
			h.clamped += int64(r.shards[s].stages[i].clamped.Load())
		}
		out[i] = h
	}
	return out
}

// Reset forgets all. Nobody may record meanwhile: such a latency would be in the next Snapshot or
// not.
func (r *Recorder) Reset() {
	for i := range r.shards {
		clear(r.shards[i].stages)
	}
}

// stage counts the latencies of one stage in a shard. To add to a counter takes 6 to 7 ns of
// processor time, as much as HdrHistogram behind one lock per operation. Without the lock no caller
// waits for a preempted goroutine that holds it, and a Snapshot blocks nothing. Counters of 32 bits
// would halve the memory, but overflow in a watched run of some hours.
type stage struct {
	counts  [buckets]atomic.Uint64
	clamped atomic.Uint64
}

// Shard is a part of a Recorder's counters. It is safe for concurrent use.
type Shard struct{ stages []stage }

// Record counts one latency of a stage, numbered from 0. One below zero, from a clock that was set
// back, counts as zero.
func (s *Shard) Record(stage int, d time.Duration) { s.stages[stage].record(d) }

// RecordAll counts an operation: the latency of each stage, in their order.
func (s *Shard) RecordAll(times []time.Duration) {
	stages := s.stages[:len(times)]
	for i, d := range times {
		stages[i].record(d)
	}
}

func (s *stage) record(d time.Duration) {
	if uint64(d) > uint64(Max) {
		d = s.clamp(d)
	}
	s.counts[index(d)].Add(1)
}

// clamp is what a latency out of range counts as.
func (s *stage) clamp(d time.Duration) time.Duration {
	if d < 0 {
		return 0
	}
	s.clamped.Add(1)
	return Max
}

// index is HdrHistogram's countsIndexFor, for lowestDiscernibleValue 1.
func index(d time.Duration) int {
	bucket := bits.Len64(uint64(d)|(1<<subBits-1)) - subBits
	return bucket*halfBuckets + int(uint64(d)>>bucket)
}
