package batch_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/batch"
	"github.com/balekv/bale/internal/memstore"
	"github.com/balekv/bale/stats"
)

// A thousand values go to Redis as some ten pipelines.
func Example() {
	ctx := context.Background()
	store := memstore.New() // a program has goredis.NewStore(rdb), or the Store of another adapter
	counters := stats.NewCounters(stats.CountersOptions{})
	buffered, err := batch.New(store, batch.Options{
		Entries:  100,
		Delay:    time.Minute, // in a program some 50 ms
		Failed:   func(failed bale.KeyErrors) { fmt.Println("not cached:", failed) },
		Recorder: counters,
	})
	if err != nil {
		panic(err)
	}
	views, err := bale.New(buffered, bale.Options[int]{TTL: time.Hour})
	if err != nil {
		panic(err)
	}
	for i := range 1000 {
		if err := views.Set(ctx, fmt.Sprint("views:", i), i); err != nil { // returns at once
			panic(err)
		}
	}
	n, err := views.Get(ctx, "views:999") // sees what is in the buffer, too
	fmt.Println(n, err)

	err = buffered.Close() // sends what is left, and waits for it
	fmt.Println(err)
	snapshot := counters.Snapshot()
	fmt.Println(snapshot.Ops[stats.Flush].Keys, snapshot.Ops[stats.Flush].Count < 100)
	err = views.Set(ctx, "views:1000", 1000)
	fmt.Println(errors.Is(err, batch.ErrClosed))
	// Output:
	// 999 <nil>
	// <nil>
	// 1000 true
	// true
}

// hanging is a Store whose server does not answer.
type hanging struct {
	bale.Store
	answers chan bool
}

func (h hanging) SetMany(ctx context.Context, items []bale.Item) error {
	<-h.answers
	return h.Store.SetMany(ctx, items)
}

// While Redis hangs, callers go on without it: the buffer fills, and then values are dropped.
func ExampleOptions_drop() {
	ctx := context.Background()
	store := hanging{memstore.New(), make(chan bool)}
	buffered, err := batch.New(store, batch.Options{MaxBytes: 10_000, Drop: true})
	if err != nil {
		panic(err)
	}
	full := false
	for i := 0; i < 100 && !full; i++ {
		err := buffered.Set(ctx, fmt.Sprint("page:", i), make([]byte, 1000), bale.TTL(time.Hour))
		full = errors.Is(err, batch.ErrFull)
	}
	fmt.Println(full)
	close(store.answers)
	fmt.Println(buffered.Close())
	// Output:
	// true
	// <nil>
}
