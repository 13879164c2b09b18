package stream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/internal/memstore"
	"github.com/balekv/bale/stream"
)

func Example() {
	ctx := context.Background()
	store := memstore.New() // a program has goredis.NewStore(rdb), or the Store of another adapter
	streams, err := stream.New(store, stream.Options{})
	if err != nil {
		panic(err)
	}
	source := strings.NewReader(strings.Repeat("a line of the log\n", 100_000)) // a file, a request's body
	info, err := streams.PutReader(ctx, "log:today", source, bale.TTL(24*time.Hour))
	fmt.Println(info.Size, info.Stored < 10_000, info.Chunks, err)

	reader, err := streams.GetReader(ctx, "log:today")
	if err != nil {
		panic(err)
	}
	defer reader.Close()
	n, err := io.Copy(io.Discard, reader) // a file, a response; whole when err is nil
	fmt.Println(n == reader.Info().Size, err)

	deleted, err := streams.Delete(ctx, "log:today")
	fmt.Println(deleted, err)
	_, err = streams.Stat(ctx, "log:today")
	fmt.Println(errors.Is(err, bale.ErrNotFound))
	// Output:
	// 1800000 true 1 <nil>
	// true <nil>
	// true <nil>
	// true
}

// A value of a Cache is not a stream.
func ExampleStreams_Stat() {
	ctx := context.Background()
	store := memstore.New()
	streams, err := stream.New(store, stream.Options{})
	if err != nil {
		panic(err)
	}
	if _, err := streams.PutReader(ctx, "log:today", strings.NewReader("a line of the log\n"), bale.NoExpiry()); err != nil {
		panic(err)
	}
	if err := store.Set(ctx, "user:1", []byte(`{"name":"Ada"}`), bale.NoExpiry()); err != nil {
		panic(err)
	}
	for _, key := range []string{"log:today", "user:1"} {
		info, err := streams.Stat(ctx, key)
		fmt.Println(key, info.Size, errors.Is(err, stream.ErrNotStream))
	}
	// Output:
	// log:today 18 false
	// user:1 0 true
}

// The keys of a stream, for a tool that counts their memory.
func ExampleManifest() {
	ctx := context.Background()
	store := memstore.New()
	streams, err := stream.New(store, stream.Options{})
	if err != nil {
		panic(err)
	}
	info, err := streams.PutReader(ctx, "log:today", strings.NewReader("a line of the log\n"), bale.NoExpiry())
	if err != nil {
		panic(err)
	}
	stored, err := store.Get(ctx, "log:today")
	if err != nil {
		panic(err)
	}
	manifest, err := stream.ParseManifest(stored)
	fmt.Println(manifest.Info == info, err)
	for i := range manifest.Chunks {
		chunk, err := store.Get(ctx, manifest.ChunkKey("log:today", i))
		fmt.Println(int64(len(chunk)) == manifest.Stored, err)
	}
	// Output:
	// true <nil>
	// true <nil>
}

var errKilled = errors.New("killed")

// dying is the Store of a program that is killed just before it replaces the old value.
type dying struct {
	bale.Store
	dead bool
}

func (d *dying) Touch(context.Context, string, bale.Expiry) (bool, error) {
	d.dead = true
	return false, errKilled
}

func (d *dying) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error) {
	if d.dead {
		return false, errKilled
	}
	return d.Store.Swap(ctx, key, old, value, ttl)
}

// A tool that walks the key space finds the streams whose writers were killed.
func ExampleStreams_Repair() {
	ctx := context.Background()
	store := memstore.New()
	killed, err := stream.New(&dying{Store: store}, stream.Options{})
	if err != nil {
		panic(err)
	}
	_, err = killed.PutReader(ctx, "log:today", strings.NewReader("a line of the log\n"), bale.TTL(time.Hour))
	fmt.Println(errors.Is(err, errKilled))

	streams, err := stream.New(store, stream.Options{})
	if err != nil {
		panic(err)
	}
	owners := map[string]bool{}
	for _, key := range store.Keys() { // a program scans
		stored, err := store.Get(ctx, key)
		if err != nil {
			panic(err)
		}
		if owner, ok := stream.Owner(key, stored); ok {
			owners[owner] = true
		}
	}
	for key := range owners {
		repaired, err := streams.Repair(ctx, key)
		fmt.Printf("%s: %d swept, %d perhaps alive until their lease ends, %v\n", key, repaired.Swept, repaired.Active, err)
	}
	// Output:
	// true
	// log:today: 0 swept, 1 perhaps alive until their lease ends, <nil>
}
