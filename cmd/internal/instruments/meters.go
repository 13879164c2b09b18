package instruments

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/balekv/bale/stats"
)

// totals are what a meter has counted.
type totals struct{ operations, bytes uint64 }

// meter is a way to observe operations from many goroutines: each has a number and a size in bytes.
type meter interface {
	record(caller int, bytes uint64)

	// read returns the totals so far. Another caller's operation may be in one of them alone.
	read(caller int) totals

	// finish returns the totals of everything recorded, and how much was dropped. It ends the meter.
	finish(ctx context.Context) (all totals, dropped uint64, err error)
}

// instrument makes a meter for a number of callers.
type instrument struct {
	name  string
	claim float64 // operations a second that are published for it; 0 for none
	open  func(callers int) (meter, error)
}

// instruments are those that are compared. The claim is a published one, of unknown hardware and
// load: it stands beside the figures and is none of them.
var instruments = []instrument{
	{"mutex", 182_000, func(int) (meter, error) { return new(locked), nil }},
	{"rwmutex", 315_000, func(int) (meter, error) { return new(readLocked), nil }},
	{"sharded", 315_000, func(int) (meter, error) { return new(sharded), nil }},
	{"atomic", 890_000, func(int) (meter, error) { return new(atomics), nil }},
	{"counters", 0, func(int) (meter, error) {
		return &counters{stats.NewCounters(stats.CountersOptions{TimeEvery: -1})}, nil
	}},
	{"ring", 0, openRing},
	{"channel", 0, func(callers int) (meter, error) { return openChannel(callers), nil }},
}

// locked are totals behind a sync.Mutex.
type locked struct {
	mu sync.Mutex
	totals
}

func (m *locked) record(_ int, bytes uint64) {
	m.mu.Lock()
	m.operations++
	m.bytes += bytes
	m.mu.Unlock()
}

func (m *locked) read(int) totals {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.totals
}

func (m *locked) finish(context.Context) (totals, uint64, error) { return m.read(0), 0, nil }

// readLocked are totals behind a sync.RWMutex.
type readLocked struct {
	mu sync.RWMutex
	totals
}

func (m *readLocked) record(_ int, bytes uint64) {
	m.mu.Lock()
	m.operations++
	m.bytes += bytes
	m.mu.Unlock()
}

func (m *readLocked) read(int) totals {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.totals
}

func (m *readLocked) finish(context.Context) (totals, uint64, error) { return m.read(0), 0, nil }

// atomics are totals without a lock.
type atomics struct{ operations, bytes atomic.Uint64 }

func (m *atomics) record(_ int, bytes uint64) {
	m.operations.Add(1)
	m.bytes.Add(bytes)
}

func (m *atomics) read(int) totals { return totals{m.operations.Load(), m.bytes.Load()} }

func (m *atomics) finish(context.Context) (totals, uint64, error) { return m.read(0), 0, nil }

// sharded are atomics in several cache lines; a read adds them up.
type sharded [shards]struct {
	atomics
	_ [cacheLines]byte
}

const (
	shards     = 64
	cacheLines = 128 - 16 // processors fetch lines of 64 bytes in pairs
)

func (m *sharded) record(caller int, bytes uint64) { m[caller%shards].record(caller, bytes) }

func (m *sharded) read(int) (all totals) {
	for i := range m {
		all.operations += m[i].operations.Load()
		all.bytes += m[i].bytes.Load()
	}
	return all
}

func (m *sharded) finish(context.Context) (totals, uint64, error) { return m.read(0), 0, nil }

// event is an operation as bale's recorders take it.
func event(bytes uint64) stats.Event {
	return stats.Event{Op: stats.Get, Keys: 1, Hits: 1, Stored: int(bytes)}
}

// counters are bale's stats.Counters; a read is a snapshot of everything they count.
type counters struct{ *stats.Counters }

func (m *counters) record(_ int, bytes uint64) { m.Record(context.Background(), event(bytes)) }

func (m *counters) read(int) totals {
	of := m.Snapshot().Ops[stats.Get]
	return totals{of.Count, of.Stored}
}

func (m *counters) finish(context.Context) (totals, uint64, error) { return m.read(0), 0, nil }

// ring is bale's stats.Ring before a sink that counts; a read is what the sink has by then.
type ring struct {
	*stats.Ring
	group stats.Recorder
	sink  atomics
}

func openRing(int) (meter, error) {
	m := &ring{}
	var err error
	if m.Ring, err = stats.NewRing(m, stats.RingOptions{TimeEvery: -1}); err != nil {
		return nil, err
	}
	m.group = m.Group("study")
	return m, nil
}

// Write is the sink's.
func (m *ring) Write(_ context.Context, b *stats.Batch) error {
	bytes := uint64(0)
	for i := range b.Events {
		bytes += uint64(b.Events[i].Stored)
	}
	m.sink.operations.Add(uint64(len(b.Events)))
	m.sink.bytes.Add(bytes)
	return nil
}

func (m *ring) record(_ int, bytes uint64) { m.group.Record(context.Background(), event(bytes)) }

func (m *ring) read(int) totals { return m.sink.read(0) }

func (m *ring) finish(context.Context) (totals, uint64, error) {
	err := m.Close()
	dropped, _ := m.Dropped()
	return m.read(0), dropped, err
}

// channel is a goroutine that has the totals for itself. A read is a message, too, and its answer.
type channel struct {
	messages chan message
	answers  []chan totals // of each caller
	done     chan totals
}

type message struct {
	bytes  uint64
	answer chan<- totals // nil for an operation
}

const channelSize = 1024

func openChannel(callers int) *channel {
	m := &channel{messages: make(chan message, channelSize), done: make(chan totals, 1)}
	for range callers {
		m.answers = append(m.answers, make(chan totals, 1))
	}
	go func() {
		var all totals
		for next := range m.messages {
			if next.answer != nil {
				next.answer <- all
				continue
			}
			all.operations++
			all.bytes += next.bytes
		}
		m.done <- all
	}()
	return m
}

func (m *channel) record(_ int, bytes uint64) { m.messages <- message{bytes: bytes} }

func (m *channel) read(caller int) totals {
	m.messages <- message{answer: m.answers[caller]}
	return <-m.answers[caller]
}

func (m *channel) finish(context.Context) (totals, uint64, error) {
	close(m.messages)
	return <-m.done, 0, nil
}
