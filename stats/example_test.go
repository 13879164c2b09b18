package stats_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/internal/memstore"
	"github.com/balekv/bale/stats"
)

func ExampleCounters() {
	ctx := context.Background()
	counters := stats.NewCounters(stats.CountersOptions{TimeEvery: 1})
	store := memstore.New()
	pages, err := bale.New(store, bale.Options[string]{Recorder: counters})
	if err != nil {
		panic(err)
	}
	err = errors.Join(
		pages.Set(ctx, "page:1", "<p>hello, hello, hello, hello, hello, hello, hello, hello</p>"),
		store.Set(ctx, "page:2", []byte("no JSON"), bale.NoExpiry()))
	if err != nil {
		panic(err)
	}
	for _, key := range []string{"page:1", "page:1", "page:2", "page:3"} {
		_, _ = pages.Get(ctx, key)
	}

	snapshot := counters.Snapshot()
	get, set := &snapshot.Ops[stats.Get], &snapshot.Ops[stats.Set]
	fmt.Printf("%d of %d found, %d refused by the codec\n", get.Hits, get.Count, get.Errors[stats.Codec])
	fmt.Printf("%.1f times smaller\n", set.Ratio())
	p99 := get.Times[stats.Store].Quantile(0.99)
	fmt.Println(p99 > 0, get.Times[stats.Store].Count, "timed")
	// Output:
	// 2 of 4 found, 1 refused by the codec
	// 1.6 times smaller
	// true 4 timed
}

// All figures of the operations that callers started, with names for labels.
func ExampleSnapshot() {
	counters := stats.NewCounters(stats.CountersOptions{})
	for _, e := range []stats.Event{ // of Caches
		{Op: stats.GetMany, Keys: 10, Hits: 8, Misses: 2},
		{Op: stats.Load, Keys: 2, Errors: 2, Class: stats.Loader},
		{Op: stats.Set, Keys: 1, Errors: 1, Class: stats.Timeout},
	} {
		counters.Record(context.Background(), e)
	}
	snapshot := counters.Snapshot()
	for i := range snapshot.Ops {
		op, figures := stats.Op(i), &snapshot.Ops[i]
		if figures.Count == 0 {
			continue
		}
		fmt.Printf("%v: by a caller: %v, keys: %d\n", op, op.Call(), figures.Keys)
		for class, n := range figures.Errors {
			if n > 0 {
				fmt.Printf("%v: %v: %d\n", op, stats.Class(class), n)
			}
		}
	}
	// Output:
	// set: by a caller: true, keys: 1
	// set: timeout: 1
	// get_many: by a caller: true, keys: 10
	// load: by a caller: false, keys: 2
	// load: loader: 1
}

// The buckets of a histogram, for a metrics library of your own.
func ExampleHistogram() {
	counters := stats.NewCounters(stats.CountersOptions{})
	for _, took := range []time.Duration{150 * time.Microsecond, 170 * time.Microsecond, 3 * time.Millisecond} {
		// A Cache does this for each operation.
		counters.Record(context.Background(), stats.Event{
			Op: stats.Get, Keys: 1, Hits: 1,
			Timed: true, Times: [stats.Stages]time.Duration{stats.Store: took},
		})
	}
	snapshot := counters.Snapshot()
	h := &snapshot.Ops[stats.Get].Times[stats.Store]
	for i, n := range h.Buckets {
		if n > 0 {
			fmt.Printf("%d up to %v: bucket %d of schema %d\n", n, h.Bound(i).Round(time.Microsecond), i+stats.HistogramFirst, stats.HistogramSchema)
		}
	}
	fmt.Println(h.Quantile(0.5).Round(time.Microsecond), h.Sum)
	// Output:
	// 2 up to 173µs: bucket -50 of schema 2
	// 1 up to 3.285ms: bucket -33 of schema 2
	// 173µs 3.32ms
}

// slow is a Recorder that reports slow operations.
type slow time.Duration

func (slow) Timed(context.Context) bool { return true }

func (s slow) Record(_ context.Context, e stats.Event) {
	if e.Total() > time.Duration(s) {
		fmt.Printf("%v of %d keys took %v, %v of it in Redis\n", e.Op, e.Keys, e.Total(), e.Times[stats.Store])
	}
}

// A Recorder of your own beside the Counters.
func ExampleMulti() {
	counters := stats.NewCounters(stats.CountersOptions{})
	recorder := stats.Multi(counters, slow(50*time.Millisecond)) // goes into bale.Options.Recorder

	// A Cache does this for each operation.
	ctx := context.Background()
	for _, took := range []time.Duration{170 * time.Microsecond, 80 * time.Millisecond} {
		event := stats.Event{Op: stats.GetMany, Keys: 100, Hits: 100, Timed: recorder.Timed(ctx)}
		event.Times[stats.Store], event.Times[stats.Decode] = took, time.Millisecond
		recorder.Record(ctx, event)
	}
	snapshot := counters.Snapshot()
	fmt.Println(snapshot.Ops[stats.GetMany].Count, "operations")
	// Output:
	// get_many of 100 keys took 81ms, 80ms of it in Redis
	// 2 operations
}

// lines is a Sink that writes a line per event.
type lines struct{}

func (lines) Write(_ context.Context, b *stats.Batch) error {
	for i, e := range b.Events {
		fmt.Println(b.Groups[i], e.Op, e.Plain, e.Stored)
	}
	return nil
}

// Callers put events into a Ring and go on. A Sink of your own gets them in batches.
func ExampleRing() {
	ctx := context.Background()
	var sink stats.Sink = lines{} // or eventfile.NewWriter(file)
	ring, err := stats.NewRing(sink, stats.RingOptions{Failed: func(err error) { fmt.Println(err) }})
	if err != nil {
		panic(err)
	}
	users, pages := ring.Group("shop:user"), ring.Group("shop:page") // go into bale.Options.Recorder

	// Caches do this for each operation.
	users.Record(ctx, stats.Event{Op: stats.Set, Keys: 1, Plain: 400, Stored: 125})
	pages.Record(ctx, stats.Event{Op: stats.Get, Keys: 1, Hits: 1, Plain: 3000, Stored: 700})

	err = ring.Flush(ctx) // in a program only before it looks at what the Sink has
	fmt.Println(err)
	dropped, delivered := ring.Dropped()
	fmt.Println(dropped, delivered, ring.Close())
	// Output:
	// shop:user set 400 125
	// shop:page get 3000 700
	// <nil>
	// 0 2 <nil>
}
