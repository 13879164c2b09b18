package stats

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// RingOptions are the settings of a [Ring]; the zero value is useful.
type RingOptions struct {
	// Size is how many events the ring holds, rounded up to a power of two. Defaults to 16,384,
	// which takes 2 MiB; 2 to 2^24.
	Size int

	// Interval is how often the ring hands events to the sink. Default 500 ms; at least 1 ms. A
	// half-full ring is drained sooner.
	Interval time.Duration

	// TimeEvery is the same as [CountersOptions].TimeEvery.
	TimeEvery int

	// Failed receives the error of a sink that fails; that batch is lost. The ring's own goroutine
	// calls it.
	Failed func(error)
}

const (
	defaultRingSize     = 1 << 14
	maxRingSize         = 1 << 24
	defaultRingInterval = 500 * time.Millisecond
	batchSize           = 4096 // events at once in a batch
)

// Batch is the input of a [Sink]: events in the order in which they ended. Concurrent events are
// only approximately in order.
type Batch struct {
	// From and To are when the events ended: after From, and not after To.
	From, To time.Time

	// Groups are the groups of the events: Groups[i] that of Events[i].
	Groups []string
	Events []Event

	// Dropped is how many events were lost since the last batch, because the ring was full.
	Dropped uint64
}

// Sink takes events. One goroutine at a time calls it.
type Sink interface {
	// Write takes a batch, and must not keep it.
	Write(ctx context.Context, b *Batch) error
}

// Ring passes events from many callers to a [Sink], such as a compact file (package eventfile),
// through its own goroutine. A caller never waits
// for another one or for the sink: if the ring is full, it drops the event and counts it. Make one
// with [NewRing].
type Ring struct {
	sink    Sink
	options RingOptions
	sampler sampler

	slots []slot
	mask  uint64
	_     [64]byte
	next  atomic.Uint64 // slot to be written
	_     [64]byte
	read  atomic.Uint64 // slot to be read
	_     [64]byte

	dropped   atomic.Uint64
	delivered atomic.Uint64
	reported  uint64 // of dropped, those that a batch has told of

	wake   chan struct{}
	flush  chan chan struct{}
	stop   chan struct{}
	done   chan struct{}
	once   sync.Once
	failed error // the last Write's; after done
}

// slot is one place of the ring, the bounded queue of Dmitry Vyukov (1024cores.net). turn names the
// next user of the slot. It is n for the writer of event n, and n+1 for the reader of that event.
type slot struct {
	turn  atomic.Uint64
	group string
	event Event
}

// NewRing makes a Ring and starts its goroutine; [Ring.Close] ends it. The caller still owns the
// sink.
func NewRing(sink Sink, o RingOptions) (*Ring, error) {
	if o.Size == 0 {
		o.Size = defaultRingSize
	}
	if o.Interval == 0 {
		o.Interval = defaultRingInterval
	}
	switch {
	case sink == nil:
		return nil, errors.New("stats: no Sink")
	case o.Size < 2 || o.Size > maxRingSize:
		return nil, fmt.Errorf("stats: Size is %d, must be 2 to %d", o.Size, maxRingSize)
	case o.Interval < time.Millisecond:
		return nil, fmt.Errorf("stats: Interval is %v, must be at least 1ms", o.Interval)
	}
	size := uint64(1) << bits.Len(uint(o.Size-1))
	r := &Ring{
		sink: sink, options: o, slots: make([]slot, size), mask: size - 1,
		wake: make(chan struct{}, 1), flush: make(chan chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
	}
	r.sampler = newSampler(o.TimeEvery)
	for i := range r.slots {
		r.slots[i].turn.Store(uint64(i))
	}
	go r.drain()
	return r, nil
}

// Group is a [Recorder] for the operations of one group.
func (r *Ring) Group(name string) Recorder { return &ringGroup{r, name} }

type ringGroup struct {
	ring *Ring
	name string
}

func (g *ringGroup) Timed(ctx context.Context) bool { return g.ring.sampler.Timed(ctx) }

func (g *ringGroup) Record(_ context.Context, e Event) { g.ring.put(g.name, &e) }

func (r *Ring) put(group string, e *Event) {
	for {
		n := r.next.Load()
		s := &r.slots[n&r.mask]
		switch turn := s.turn.Load(); {
		case turn == n:
			if !r.next.CompareAndSwap(n, n+1) {
				continue
			}
			s.group, s.event = group, *e
			s.turn.Store(n + 1)
			if n-r.read.Load() == uint64(len(r.slots)/2) {
				select {
				case r.wake <- struct{}{}:
				default:
				}
			}
			return
		case turn < n:
			r.dropped.Add(1) // the reader has not been here since the last time round
			return
		}
	}
}

// Dropped returns how many events were lost because the ring was full, and how many the sink
// received.
func (r *Ring) Dropped() (dropped, delivered uint64) { return r.dropped.Load(), r.delivered.Load() }

// Flush hands all events in the ring to the sink, and returns when the sink has them.
func (r *Ring) Flush(ctx context.Context) error {
	flushed := make(chan struct{})
	select {
	case r.flush <- flushed:
	case <-r.done:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-flushed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errClosed = errors.New("stats: the ring is closed")

// Close hands the remaining events to the sink and ends the goroutine. Later events are dropped.
// Close returns the sink's last error.
func (r *Ring) Close() error {
	r.once.Do(func() { close(r.stop) })
	<-r.done
	return r.failed
}

func (r *Ring) drain() {
	defer close(r.done)
	ticker := time.NewTicker(r.options.Interval)
	defer ticker.Stop()
	batch := Batch{From: time.Now(), Groups: make([]string, 0, batchSize), Events: make([]Event, 0, batchSize)}
	for {
		var flushed chan struct{}
		stopped := false
		select {
		case <-ticker.C:
		case <-r.wake:
		case flushed = <-r.flush:
		case <-r.stop:
			stopped = true
		}
		r.empty(&batch, flushed != nil || stopped)
		if flushed != nil {
			close(flushed)
		}
		if stopped {
			r.dropped.Add(r.next.Load() - r.read.Load())
			return
		}
	}
}

// patience is how long a Flush or Close waits for a caller that was interrupted after it took a
// slot and before it wrote it. Later events wait, too.
const patience = 100 * time.Millisecond

// empty hands over the events in the ring, in batches. With all it also waits for slots that are
// taken and not yet written.
func (r *Ring) empty(b *Batch, all bool) {
	began := time.Now()
	for last := r.next.Load(); r.read.Load() < last; { // not what comes meanwhile, which might never end
		b.Groups, b.Events = b.Groups[:0], b.Events[:0]
		n := r.read.Load()
		for ; n < last && len(b.Events) < batchSize; n++ {
			s := &r.slots[n&r.mask]
			for all && s.turn.Load() != n+1 && time.Since(began) < patience {
				runtime.Gosched()
			}
			if s.turn.Load() != n+1 {
				last = n // taken, and not yet written
				break
			}
			b.Groups, b.Events = append(b.Groups, s.group), append(b.Events, s.event)
			s.turn.Store(n + uint64(len(r.slots)))
		}
		r.read.Store(n)
		if len(b.Events) > 0 {
			r.write(b)
		}
	}
	if r.dropped.Load() != r.reported {
		b.Groups, b.Events = b.Groups[:0], b.Events[:0]
		r.write(b)
	}
}

func (r *Ring) write(b *Batch) {
	dropped := r.dropped.Load()
	b.Dropped = dropped - r.reported
	b.To = time.Now()
	r.failed = r.sink.Write(context.Background(), b)
	if r.failed != nil && r.options.Failed != nil {
		r.options.Failed(r.failed)
	}
	r.reported = dropped
	r.delivered.Add(uint64(len(b.Events)))
	b.From = b.To
}
