package stats

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/balekv/bale/frame"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func event(r *rand.Rand) Event {
	e := Event{
		Op: Op(r.IntN(Ops)), Class: Class(r.IntN(Classes)), Keys: r.Int32N(5), Hits: r.Int32N(1000), Misses: r.Int32N(3), Errors: r.Int32N(3),
		Algorithm: frame.Zstd, DictionaryID: frame.DictionaryID(r.Uint32()), Fresh: r.Int32N(1000), Plain: r.IntN(1 << 20), Stored: r.IntN(1 << 20),
	}
	if r.IntN(2) == 0 {
		e.Timed = true
		for i := range e.Times {
			e.Times[i] = time.Duration(r.Int64N(int64(time.Second)))
		}
	}
	return e
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for i := range Ops {
		seen[Op(i).String()] = true
	}
	for i := range Stages {
		seen[Stage(i).String()] = true
	}
	for i := range Classes {
		seen[Class(i).String()] = true
	}
	if len(seen) != Ops+Stages+Classes-1 || seen[""] { // "load" is both
		t.Errorf("%d names: %v", len(seen), seen)
	}
	if got := Op(200).String(); got != "op 200" {
		t.Error(got)
	}
}

// TestCounters: what many callers count at once adds up.
func TestCounters(t *testing.T) {
	c := NewCounters(CountersOptions{TimeEvery: 1})
	ctx := t.Context()
	var callers sync.WaitGroup
	const n, rounds = 8, 1000
	for range n {
		callers.Go(func() {
			for range rounds {
				if !c.Timed(ctx) {
					t.Error("not timed")
				}
				get := Event{Op: Get, Keys: 1, Hits: 1, Plain: 1000, Stored: 250, Timed: true}
				get.Times[Store] = 100 * time.Microsecond
				c.Record(ctx, get)
				c.Record(ctx, Event{Op: Get, Keys: 1, Misses: 1})
				c.Record(ctx, Event{Op: Get, Keys: 1, Errors: 1, Class: Corrupt})
				c.Record(ctx, Event{Op: GetMany, Keys: 10, Hits: 6, Misses: 3, Errors: 1, Class: UnknownDictionary, Plain: 60, Stored: 50})
				c.Record(ctx, Event{Op: Set, Keys: 1, Plain: 100, Stored: 50, Algorithm: frame.Zstd, DictionaryID: 7, Fresh: 2})
				c.Record(ctx, Event{Op: SetMany, Keys: 0})
				c.Record(ctx, Event{Op: Ops})
			}
		})
	}
	callers.Wait()
	const all = n * rounds
	want := Snapshot{Fresh: 2 * all, Algorithm: frame.Zstd, DictionaryID: 7}
	want.Ops[Get] = OpStats{Count: 3 * all, Keys: 3 * all, Hits: all, Misses: all, Plain: 1000 * all, Stored: 250 * all}
	want.Ops[Get].Errors[Corrupt] = all
	want.Ops[GetMany] = OpStats{Count: all, Keys: 10 * all, Hits: 6 * all, Misses: 3 * all, Plain: 60 * all, Stored: 50 * all}
	want.Ops[GetMany].Errors[UnknownDictionary] = all
	want.Ops[Set] = OpStats{Count: all, Keys: all, Plain: 100 * all, Stored: 50 * all}
	want.Ops[SetMany] = OpStats{Count: all}
	got := c.Snapshot()
	times := &got.Ops[Get].Times[Store]
	if times.Count != all || times.Sum != all*100*time.Microsecond {
		t.Errorf("%d times, %v together", times.Count, times.Sum)
	}
	if q := times.Quantile(0.5); q < 100*time.Microsecond || q > 119*time.Microsecond {
		t.Errorf("the median of 100us is %v", q)
	}
	*times = Histogram{}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if r := got.Ops[Get].Ratio(); r != 4 {
		t.Errorf("ratio %v", r)
	}
	if r := (&OpStats{}).Ratio(); r != 1 {
		t.Errorf("ratio of nothing %v", r)
	}
}

// TestBuckets: each duration is in the bucket whose bounds hold it.
func TestBuckets(t *testing.T) {
	var h Histogram
	durations := []time.Duration{0, 1, 119, 120, time.Second, time.Second + 1, 64 * time.Second, 65 * time.Second, math.MaxInt64}
	r := rand.New(rand.NewPCG(1, 1))
	for range 10_000 {
		durations = append(durations, time.Duration(math.Exp(r.Float64()*43)))
	}
	for _, d := range durations {
		i := bucket(d)
		above := time.Duration(-1)
		if i > 0 {
			above = h.Bound(i - 1)
		}
		if d > h.Bound(i) || d <= above {
			t.Errorf("%v is in bucket %d, from %v to %v", d, i, above, h.Bound(i))
		}
	}
	if b := h.Bound(-HistogramFirst); b != time.Second {
		t.Errorf("no bucket ends at a second, but at %v", b)
	}
	if h.Quantile(0.5) != 0 {
		t.Error("an empty histogram has a median")
	}
}

func TestTimeEvery(t *testing.T) {
	for every, want := range map[int][2]int{1: {100_000, 100_000}, 0: {2_600, 3_650}, 1000: {30, 250}, -1: {0, 0}} {
		c := NewCounters(CountersOptions{TimeEvery: every})
		timed := 0
		for range 100_000 {
			if c.Timed(t.Context()) {
				timed++
			}
		}
		if timed < want[0] || timed > want[1] { // eight standard deviations and more
			t.Errorf("TimeEvery %d times %d of 100,000", every, timed)
		}
	}
}

func TestMulti(t *testing.T) {
	a, b := NewCounters(CountersOptions{TimeEvery: -1}), NewCounters(CountersOptions{TimeEvery: 1})
	m := Multi(a, b)
	if !m.Timed(t.Context()) || Multi(a).Timed(t.Context()) {
		t.Error("timed is not what one of them wants")
	}
	m.Record(t.Context(), Event{Op: Get, Keys: 1})
	if a.Snapshot().Ops[Get].Count != 1 || b.Snapshot().Ops[Get].Count != 1 {
		t.Error("not both were told")
	}
}

// memory is a Sink that keeps what it gets, and can be held up.
type memory struct {
	sync.Mutex
	groups  []string
	events  []Event
	dropped uint64
	from    []time.Time
	hold    chan struct{} // Write waits for it
	err     error
}

func (m *memory) Write(_ context.Context, b *Batch) error {
	if m.hold != nil {
		<-m.hold
	}
	m.Lock()
	defer m.Unlock()
	m.groups, m.events = append(m.groups, b.Groups...), append(m.events, b.Events...)
	m.dropped += b.Dropped
	m.from = append(m.from, b.From, b.To)
	return m.err
}

// TestRing: each event arrives once and in its caller's order, or is counted as dropped.
func TestRing(t *testing.T) {
	for name, o := range map[string]RingOptions{"wide": {}, "narrow": {Size: 5, Interval: time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			sink := &memory{}
			r, err := NewRing(sink, o)
			if err != nil {
				t.Fatal(err)
			}
			const callers, each = 8, 5000
			var wg sync.WaitGroup
			for c := range callers {
				group := string(rune('a' + c))
				recorder := r.Group(group)
				wg.Go(func() {
					for i := range each {
						recorder.Record(t.Context(), Event{Op: Set, Plain: i, Stored: c})
					}
				})
			}
			wg.Wait()
			if err := r.Flush(t.Context()); err != nil {
				t.Error(err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			next := map[string]int{}
			for i, e := range sink.events {
				g := sink.groups[i]
				if g != string(rune('a'+e.Stored)) || e.Plain < next[g] {
					t.Fatalf("event %d of %s comes after %d, with %d", e.Plain, g, next[g], e.Stored)
				}
				next[g] = e.Plain + 1
			}
			dropped, delivered := r.Dropped()
			if int(delivered) != len(sink.events) || delivered+dropped != callers*each || sink.dropped != dropped {
				t.Errorf("%d delivered of %d, %d dropped, of which the sink knows %d", delivered, callers*each, dropped, sink.dropped)
			}
			for i := 1; i < len(sink.from); i++ {
				if sink.from[i].Before(sink.from[i-1]) {
					t.Errorf("times %v and %v", sink.from[i-1], sink.from[i])
				}
			}
		})
	}
}

// TestRingWaitsForWhoIsWriting: what comes behind a caller that was interrupted as it wrote is not
// forgotten by Flush, and not lost uncounted by Close.
func TestRingWaitsForWhoIsWriting(t *testing.T) {
	for _, comesBack := range []bool{true, false} {
		sink := &memory{}
		r, err := NewRing(sink, RingOptions{Interval: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		r.next.Add(1) // it has its slot
		for range 10 {
			r.Group("g").Record(t.Context(), Event{Op: Get})
		}
		if comesBack {
			go func() {
				time.Sleep(time.Millisecond)
				r.slots[0].turn.Store(1)
			}()
			if err := r.Flush(t.Context()); err != nil || len(sink.events) != 11 {
				t.Errorf("%d of 11 events, %v", len(sink.events), err)
			}
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		dropped, delivered := r.Dropped()
		if delivered+dropped != 11 || comesBack && dropped != 0 {
			t.Errorf("%d delivered, %d dropped", delivered, dropped)
		}
	}
}

// TestRingDropsRatherThanWaits: a sink that hangs holds nobody up.
func TestRingDropsRatherThanWaits(t *testing.T) {
	sink := &memory{hold: make(chan struct{})}
	r, err := NewRing(sink, RingOptions{Size: 8})
	if err != nil {
		t.Fatal(err)
	}
	recorder := r.Group("g")
	for range 1000 {
		recorder.Record(t.Context(), Event{})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Flush(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("flush of a ring whose sink hangs: %v", err)
	}
	close(sink.hold)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	dropped, delivered := r.Dropped()
	if delivered > 16 || delivered < 8 || dropped+delivered != 1000 || int(delivered) != len(sink.events) {
		t.Errorf("%d delivered, %d dropped", delivered, dropped)
	}
	recorder.Record(t.Context(), Event{}) // no panic
	if err := r.Flush(t.Context()); err == nil {
		t.Error("a closed ring can be flushed")
	}
}

func TestRingTellsOfFailures(t *testing.T) {
	broken := errors.New("the disk is full")
	var told []error
	r, err := NewRing(&memory{err: broken}, RingOptions{Failed: func(err error) { told = append(told, err) }})
	if err != nil {
		t.Fatal(err)
	}
	r.Group("").Record(t.Context(), Event{})
	if err := r.Close(); !errors.Is(err, broken) || len(told) != 1 || !errors.Is(told[0], broken) {
		t.Errorf("%v, told %v", err, told)
	}
	for name, o := range map[string]RingOptions{"size": {Size: 1}, "size ": {Size: 1<<24 + 1}, "interval": {Interval: -1}} {
		if _, err := NewRing(&memory{}, o); err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.TrimSpace(name)) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := NewRing(nil, RingOptions{}); err == nil {
		t.Error("a ring without a sink")
	}
}

// recorders are those whose cost counts.
func recorders(tb testing.TB) map[string]Recorder {
	ring, err := NewRing(discard{}, RingOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { ring.Close() })
	return map[string]Recorder{"counters": NewCounters(CountersOptions{}), "counters timing all": NewCounters(CountersOptions{TimeEvery: 1}), "ring": ring.Group("g")}
}

type discard struct{}

func (discard) Write(context.Context, *Batch) error { return nil }

// record is what a cache does for a Get: it asks, reads the clock where it should, and tells.
func record(ctx context.Context, r Recorder, clock time.Time) {
	e := Event{Op: Get, Keys: 1, Hits: 1, Plain: 838, Stored: 200, Algorithm: frame.Zstd, DictionaryID: 77}
	if e.Timed = r.Timed(ctx); e.Timed {
		last := time.Since(clock)
		for _, s := range []Stage{Store, Unpack, Decode} {
			now := time.Since(clock)
			e.Times[s] = now - last
			last = now
		}
	}
	r.Record(ctx, e)
}

// BenchmarkRecorder is the cost of a recorder per operation, the clock included. The limit with the
// default sample is 40 ns.
func BenchmarkRecorder(b *testing.B) {
	clock := time.Now()
	for name, r := range recorders(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				record(b.Context(), r, clock)
			}
		})
		b.Run(name+" by all processors", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					record(context.Background(), r, clock)
				}
			})
		})
	}
}

func TestRecordersAllocateNothing(t *testing.T) {
	clock := time.Now()
	for name, r := range recorders(t) {
		if n := testing.AllocsPerRun(1000, func() { record(t.Context(), r, clock) }); n >= 1 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
