package bale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/testvalues"
	"github.com/balekv/bale/stats"
)

// notes is a Recorder that keeps its events.
type notes struct {
	timed  bool
	events []stats.Event
}

func (n *notes) Timed(context.Context) bool              { return n.timed }
func (n *notes) Record(_ context.Context, e stats.Event) { n.events = append(n.events, e) }

// TestRecorderIsTold: each operation once, with what happened.
func TestRecorderIsTold(t *testing.T) {
	ctx := t.Context()
	store := newMemory()
	d := readDict(t, trainedDictFile)
	packer := newPacker(t, PackerOptions{Compressors: &compress.Set{Write: newCompressor(t, compress.Setting{Algorithm: frame.Zstd}, d)}})
	n := &notes{timed: true}
	c, err := New(store, Options[any]{Recorder: n, Packer: packer})
	if err != nil {
		t.Fatal(err)
	}
	value := any(strings.Repeat("some text ", 20))
	plain := 202 // with quotes
	var stored int
	var told []stats.Event
	step := func(what string, want stats.Event, stages ...stats.Stage) {
		t.Helper()
		if len(n.events) != 1 {
			t.Fatalf("%s: told %d events", what, len(n.events))
		}
		e := n.events[0]
		n.events = nil
		told = append(told, e)
		seen := map[stats.Stage]bool{}
		for s, d := range e.Times {
			if d > 0 {
				seen[stats.Stage(s)] = true
			}
		}
		for _, s := range stages {
			if !seen[s] {
				t.Errorf("%s: %v took no time", what, s)
			}
			delete(seen, s)
		}
		if len(seen) > 0 || !e.Timed || (e.Total() > 0) != (len(stages) > 0) {
			t.Errorf("%s: other stages took time: %v", what, seen)
		}
		e.Timed, e.Times, e.Fresh = false, [stats.Stages]time.Duration{}, 0
		if diff := cmp.Diff(want, e); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	if err := c.Set(ctx, "k", value); err != nil {
		t.Fatal(err)
	}
	stored = len(store.values["k"])
	how := stats.Event{Algorithm: frame.Zstd, DictionaryID: d.ID(), Plain: plain, Stored: stored}
	with := func(change func(e *stats.Event)) stats.Event { e := how; change(&e); return e }
	step("set", with(func(e *stats.Event) { e.Op, e.Keys = stats.Set, 1 }), stats.Encode, stats.Pack, stats.Store)
	c.Get(ctx, "k")
	step("get", with(func(e *stats.Event) { e.Op, e.Keys, e.Hits = stats.Get, 1, 1 }), stats.Store, stats.Unpack, stats.Decode)
	c.Get(ctx, "none")
	step("get of nothing", stats.Event{Op: stats.Get, Keys: 1, Misses: 1}, stats.Store)
	store.values["plain"] = []byte("12")
	c.Get(ctx, "plain")
	step("get of a plain value", stats.Event{Op: stats.Get, Keys: 1, Hits: 1, Plain: 2, Stored: 2}, stats.Store, stats.Decode)
	store.values["cut"] = store.values["k"][:stored-1]
	c.Get(ctx, "cut")
	step("get of a cut value", stats.Event{Op: stats.Get, Keys: 1, Errors: 1, Class: stats.Corrupt}, stats.Store, stats.Unpack)
	store.values["nonsense"] = []byte("{")
	c.Get(ctx, "nonsense")
	step("get of nonsense", stats.Event{Op: stats.Get, Keys: 1, Errors: 1, Class: stats.Codec, Plain: 1, Stored: 1}, stats.Store, stats.Decode)
	c.GetMany(ctx, "k", "none", "plain", "cut", "none")
	step("get many", stats.Event{Op: stats.GetMany, Keys: 5, Hits: 2, Misses: 2, Errors: 1, Class: stats.Corrupt, Plain: plain + 2, Stored: stored + 2}, stats.Store, stats.Unpack, stats.Decode)
	store.refuse = map[string]bool{"b": true}
	c.SetMany(ctx, map[string]any{"a": value, "b": value, "c": value})
	step("set many", with(func(e *stats.Event) {
		e.Op, e.Keys, e.Errors, e.Class, e.Plain, e.Stored = stats.SetMany, 3, 1, stats.Server, 3*plain, 3*stored
	}), stats.Encode, stats.Pack, stats.Store)
	c.Set(ctx, "k", func() {})
	step("set of what has no encoding", stats.Event{Op: stats.Set, Keys: 1, Errors: 1, Class: stats.Codec})
	c.Touch(ctx, "k")
	step("touch", stats.Event{Op: stats.Touch, Keys: 1}, stats.Store)
	c.Touch(ctx, "none")
	step("touch of nothing", stats.Event{Op: stats.Touch, Keys: 1, Misses: 1}, stats.Store)
	c.Delete(ctx, "k", "none")
	step("delete", stats.Event{Op: stats.Delete, Keys: 2}, stats.Store)
	for class, err := range map[stats.Class]error{
		stats.Canceled: context.Canceled, stats.Timeout: fmt.Errorf("dial: %w", os.ErrDeadlineExceeded), stats.Server: errors.New("READONLY"), stats.TooLarge: ErrTooLarge,
		stats.UnknownDictionary: ErrUnknownDictionary, stats.UnknownAlgorithm: ErrUnknownAlgorithm, stats.Invalid: ErrInvalid,
	} {
		store.fail = err
		c.Get(ctx, "k")
		step("get", stats.Event{Op: stats.Get, Keys: 1, Errors: 1, Class: class}, stats.Store)
		c.GetMany(ctx, "k", "l")
		step("get many", stats.Event{Op: stats.GetMany, Keys: 2, Errors: 2, Class: class}, stats.Store)
	}
	// Nothing of the values and keys is in an event, and untimed ones have no times.
	if shown := fmt.Sprintf("%+v", told); strings.Contains(shown, "text") || strings.Contains(shown, "none\"") {
		t.Error(shown)
	}
	store.fail, n.timed = nil, false
	c.Get(ctx, "k")
	if e := n.events[0]; e.Timed || e.Total() != 0 {
		t.Errorf("%+v", e)
	}
}

// still is a Store that has one value and costs next to nothing.
type still struct {
	Store
	value []byte
}

func (s still) Get(context.Context, string) ([]byte, error)                 { return s.value, nil }
func (still) Set(_ context.Context, _ string, value []byte, _ Expiry) error { return nil }

type rawBytes struct{}

func (rawBytes) Append(dst []byte, v int) ([]byte, error) {
	return append(dst, testvalues.Profile(7)[:100]...), nil
}
func (rawBytes) Decode([]byte, *int) error { return nil }

func recorded(tb testing.TB, r stats.Recorder) *Cache[int] {
	packer := newPacker(tb, PackerOptions{MinSize: 1 << 20})
	c, err := New(still{value: []byte("12")}, Options[int]{Codec: rawBytes{}, Packer: packer, Recorder: r})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// TestRecordingAllocatesNothing beyond what the operation does anyway.
func TestRecordingAllocatesNothing(t *testing.T) {
	if testvalues.Race {
		t.Skip("the race detector allocates")
	}
	allocs := func(r stats.Recorder) (get, set float64) {
		c := recorded(t, r)
		return testing.AllocsPerRun(2000, func() { c.Get(t.Context(), "k") }), testing.AllocsPerRun(2000, func() { c.Set(t.Context(), "k", 1) })
	}
	getOff, setOff := allocs(nil)
	getOn, setOn := allocs(stats.NewCounters(stats.CountersOptions{TimeEvery: 2}))
	if getOn != getOff || setOn != setOff {
		t.Errorf("Get %v allocations with a recorder, %v without; Set %v and %v", getOn, getOff, setOn, setOff)
	}
}

// BenchmarkRecording is what a recorder adds to a Get that costs nothing else: "ns-over-off" with a
// Recorder over without one, in turn.
func BenchmarkRecording(b *testing.B) {
	for name, o := range map[string]stats.CountersOptions{"default": {}, "timing all": {TimeEvery: 1}, "timing none": {TimeEvery: -1}} {
		b.Run(name, func(b *testing.B) {
			off, on := recorded(b, nil), recorded(b, stats.NewCounters(o))
			ctx := b.Context()
			without, with := alternate(b, 20_000, func() { off.Get(ctx, "k") }, func() { on.Get(ctx, "k") })
			b.ReportMetric(without, "ns-off")
			b.ReportMetric(with-without, "ns-over-off")
		})
	}
}
