package main

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/bale/internal/engine"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/compress/none"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/goredis"
)

// registryReader reads with the dictionaries of a server's registry. It only reads, where a dict.Group would take
// part in the life of the fleet.
type registryReader struct {
	registry *dict.Registry
	lock     sync.Mutex
	readers  map[readerKey]compress.Compressor
}

type readerKey struct {
	algorithm frame.Algorithm
	id        frame.DictionaryID
}

// newRegistryReader reads with the dictionaries of the registry with a prefix on a server.
func newRegistryReader(client redis.UniversalClient, prefix string) (*registryReader, error) {
	registry, err := dict.NewRegistry(goredis.NewDictStore(client), dict.RegistryOptions{Prefix: prefix})
	if err != nil {
		return nil, err
	}
	return &registryReader{registry: registry, readers: map[readerKey]compress.Compressor{}}, nil
}

// Writer implements bale.Dictionaries.
func (*registryReader) Writer() compress.Compressor { return none.New() }

// Packed implements bale.Dictionaries.
func (*registryReader) Packed([]byte, int) {}

// Reader implements bale.Dictionaries. Those it makes are few, and live as long as the command.
func (r *registryReader) Reader(ctx context.Context, a frame.Algorithm, id frame.DictionaryID) (compress.Compressor, error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	key := readerKey{a, id}
	if c := r.readers[key]; c != nil {
		return c, nil
	}
	d, err := r.registry.Fetch(ctx, id)
	if err != nil {
		return nil, err
	}
	c, err := engine.Default.New(compress.Setting{Algorithm: a}, d)
	if err != nil {
		return nil, err
	}
	r.readers[key] = c
	return c, nil
}
