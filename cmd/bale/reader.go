package main

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"

	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
)

// registryReader reads with the dictionaries of a registry, where a dict.Group would take part in
// the life of the fleet. A dictionary in quarantine comes back when it is read, unless the servers
// are only looked at. It keeps the dictionaries used last, in dictionaryBytes.
type registryReader struct {
	compress.Set // what needs no registry
	servers      *redisServers
	lock         sync.Mutex
	held         []*heldDictionary // the least recently used first
	bytes        int               // of all
	dropped      int               // bytes since the last garbage collection for them
}

type readerKey struct {
	algorithm frame.Algorithm
	id        frame.DictionaryID
}

// heldDictionary is a dictionary and what reads with it.
type heldDictionary struct {
	dictionary *frame.Dictionary
	readers    map[frame.Algorithm]compress.Compressor
	bytes      int
}

const (
	// dictionaryBytes is the most memory of dictionaries and of what reads with them. Anybody who
	// may write to the registry and to values can make a command meet as many as he likes.
	dictionaryBytes = 64 << 20

	// A compressor takes at most these bytes: libzstd keeps the dictionary twice, with tables for
	// each of its levels.
	ofDictionary   = 4 // times its bytes
	besideOfReader = 128 << 10

	// collectAfter is how many dropped bytes a garbage collection is for. It does not see libzstd's.
	collectAfter = 16 << 20
)

func newRegistryReader(servers *redisServers) *registryReader {
	return &registryReader{Set: compress.Set{Write: compress.None, Engine: engine.Default}, servers: servers}
}

// Reader implements bale.Compressors. It may close what it returned earlier: one value is read at
// a time.
func (r *registryReader) Reader(ctx context.Context, a frame.Algorithm, id frame.DictionaryID) (compress.Compressor, error) {
	if c, err := r.Set.Reader(ctx, a, id); !errors.Is(err, compress.ErrUnknownDictionary) {
		return c, err
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	h := r.find(id)
	if h == nil {
		d, err := r.servers.fetch(ctx, id)
		if err != nil {
			return nil, err
		}
		h = &heldDictionary{dictionary: d, readers: map[frame.Algorithm]compress.Compressor{}}
		r.held = append(r.held, h)
		r.take(h, len(d.Bytes()))
	}
	if c := h.readers[a]; c != nil {
		return c, nil
	}
	c, err := engine.Default.New(compress.Setting{Algorithm: a}, h.dictionary)
	if err != nil {
		return nil, err
	}
	h.readers[a] = c
	return c, r.take(h, ofDictionary*len(h.dictionary.Bytes())+besideOfReader)
}

// find is a dictionary that is held, nil for none. It is the one used last from now on.
func (r *registryReader) find(id frame.DictionaryID) *heldDictionary {
	for i, h := range slices.Backward(r.held) {
		if h.dictionary.ID() == id {
			r.held = append(slices.Delete(r.held, i, i+1), h)
			return h
		}
	}
	return nil
}

// take counts bytes of the dictionary used last, and drops others if they are too many.
func (r *registryReader) take(h *heldDictionary, n int) (err error) {
	h.bytes += n
	r.bytes += n
	for r.bytes > dictionaryBytes && len(r.held) > 1 {
		err = errors.Join(err, r.drop())
	}
	if r.dropped > collectAfter {
		r.dropped = 0
		runtime.GC()
	}
	return err
}

// drop closes what reads with the least recently used dictionary.
func (r *registryReader) drop() (err error) {
	h := r.held[0]
	r.held = slices.Delete(r.held, 0, 1)
	r.bytes -= h.bytes
	r.dropped += h.bytes
	for _, c := range h.readers {
		err = errors.Join(err, c.Close())
	}
	return err
}

// close closes all readers.
func (r *registryReader) close() error {
	err := r.Set.Close()
	for len(r.held) > 0 {
		err = errors.Join(err, r.drop())
	}
	return err
}
