package main

import (
	"context"
	"sync"

	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
)

// registryReader reads with the dictionaries of a registry, where a dict.Group would take part in
// the life of the fleet. A dictionary in quarantine comes back when it is read, unless the servers
// are only looked at.
type registryReader struct {
	servers *redisServers
	lock    sync.Mutex
	readers map[readerKey]compress.Compressor
}

type readerKey struct {
	algorithm frame.Algorithm
	id        frame.DictionaryID
}

func newRegistryReader(servers *redisServers) *registryReader {
	return &registryReader{servers: servers, readers: map[readerKey]compress.Compressor{}}
}

// Writer implements bale.Dictionaries.
func (*registryReader) Writer() compress.Compressor { return compress.None }

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
	d, err := r.servers.fetch(ctx, id)
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
