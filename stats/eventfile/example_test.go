package eventfile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/balekv/bale/stats"
	"github.com/balekv/bale/stats/eventfile"
)

func Example() {
	ctx := context.Background()
	var file bytes.Buffer // or an *os.File
	ring, err := stats.NewRing(eventfile.NewWriter(&file), stats.RingOptions{})
	if err != nil {
		panic(err)
	}
	users := ring.Group("shop:user") // goes into bale.Options.Recorder

	// A Cache does this for each operation.
	users.Record(ctx, stats.Event{Op: stats.Get, Keys: 1, Hits: 1, Plain: 400, Stored: 125})
	users.Record(ctx, stats.Event{Op: stats.Get, Keys: 1, Misses: 1})
	if err := ring.Close(); err != nil {
		panic(err)
	}

	whole := file.Len()
	hits := map[string]int32{}
	err = eventfile.Read(&file, func(b *stats.Batch) error {
		for i, e := range b.Events {
			if b.Groups[i] != eventfile.OtherGroups { // more groups than a file takes
				hits[b.Groups[i]] += e.Hits
			}
		}
		return nil
	})
	fmt.Println(hits, whole < 200, err)

	err = eventfile.Read(bytes.NewReader([]byte("something else")), nil)
	fmt.Println(errors.Is(err, eventfile.ErrFormat))
	// Output:
	// map[shop:user:1] true <nil>
	// true
}
