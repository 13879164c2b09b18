package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

// Packer packs with the set's compressor, and unpacks with the set and the registry's dictionaries.
// The registry closes the Packer and the set's Write. One value is read at a time.
func (r *Registry) Packer(set *compress.Set, o bale.PackerOptions) (*bale.Packer, error) {
	if set.Write == nil {
		set.Write = compress.None
	}
	r.closers = append(r.closers, set.Write, set)
	o.Compressors, o.MaxSize = source{set, r.reader}, cmp.Or(o.MaxSize, cli.MaxValue)
	packer, err := bale.NewPacker(o)
	if err == nil {
		r.closers = append(r.closers, packer)
	}
	return packer, err
}

// source reads with a registry what its set cannot read.
type source struct {
	*compress.Set
	reader *reader
}

// Reader implements bale.Compressors.
func (s source) Reader(
	ctx context.Context, a frame.Algorithm, id frame.DictionaryID,
) (compress.Compressor, error) {
	c, err := s.Set.Reader(ctx, a, id)
	if errors.Is(err, compress.ErrUnknownDictionary) {
		return s.reader.compressor(ctx, a, id)
	}
	return c, err
}

// reader reads with the dictionaries of a registry, where a dict.Group would take part in the life
// of the fleet. It keeps the dictionaries used last, in dictionaryBytes. It does not ask for a
// missing dictionary again with each value.
type reader struct {
	registry *Registry
	command  context.Context
	lock     sync.Mutex
	held     []*heldDictionary // the least recently used first
	bytes    int               // of all
	dropped  int               // bytes since the last garbage collection for them
	missing  map[frame.DictionaryID]missing
}

type missing struct {
	until time.Time
	err   error
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

	missingFor  = 5 * time.Second // in which a dictionary that cannot be read is not asked for again
	missingKept = 1000            // of them: forged frames can name as many as they like

	// collectAfter is how many dropped bytes a garbage collection is for. It does not see libzstd's.
	collectAfter = 16 << 20
)

// compressor reads payloads of an algorithm with a dictionary. It may close what it returned
// earlier.
func (r *reader) compressor(
	ctx context.Context, a frame.Algorithm, id frame.DictionaryID,
) (compress.Compressor, error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	h := r.find(id)
	if h == nil {
		d, err := r.fetch(ctx, id)
		if err != nil {
			return nil, err
		}
		h = &heldDictionary{dictionary: d, readers: map[frame.Algorithm]compress.Compressor{}}
		r.held = append(r.held, h)
		if err := r.take(h, len(d.Bytes())); err != nil {
			return nil, err
		}
	}
	if c := h.readers[a]; c != nil {
		return c, nil
	}
	c, err := compress.Setting{Algorithm: a}.New(h.dictionary)
	if err != nil {
		return nil, err
	}
	h.readers[a] = c
	return c, r.take(h, ofDictionary*len(h.dictionary.Bytes())+besideOfReader)
}

// ErrUnreachable: the registry did not answer, or its cluster does not serve the key at present. It
// says nothing about the values.
var ErrUnreachable = errors.New("the registry cannot be reached")

// fetch reads a dictionary from the registry, at the pace of the command.
func (r *reader) fetch(ctx context.Context, id frame.DictionaryID) (*dict.Dictionary, error) {
	if m, ok := r.missing[id]; ok && time.Now().Before(m.until) {
		return nil, m.err
	}
	var d *dict.Dictionary
	waiting, cancel := context.WithCancel(ctx) // ctx outlasts the command, to finish what is begun
	defer cancel()
	defer context.AfterFunc(r.command, cancel)()
	unserved := r.registry.Pacer.Wait(waiting, nil, 1, 0) // which may ask the Redis of a shared run
	err := unserved
	if err == nil {
		d, err = r.registry.Read(ctx, id)
	}
	if (unserved != nil || keyspace.IsUnserved(err)) && ctx.Err() == nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if errors.Is(err, dict.ErrUnknown) || errors.Is(err, dict.ErrCorrupt) || keyspace.IsReply(err) {
		if len(r.missing) >= missingKept {
			clear(r.missing)
		}
		r.missing[id] = missing{time.Now().Add(missingFor), err}
	}
	return d, err
}

// find is a dictionary that is held, nil for none. It is the one used last from now on.
func (r *reader) find(id frame.DictionaryID) *heldDictionary {
	for i, h := range slices.Backward(r.held) {
		if h.dictionary.ID() == id {
			r.held = append(slices.Delete(r.held, i, i+1), h)
			return h
		}
	}
	return nil
}

// take counts bytes of the dictionary used last, and drops others if they are too many.
func (r *reader) take(h *heldDictionary, n int) (err error) {
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
func (r *reader) drop() (err error) {
	h := r.held[0]
	r.held = slices.Delete(r.held, 0, 1)
	r.bytes -= h.bytes
	r.dropped += h.bytes
	for _, c := range h.readers {
		err = errors.Join(err, c.Close())
	}
	return err
}

// Close closes all readers.
func (r *reader) Close() (err error) {
	for len(r.held) > 0 {
		err = errors.Join(err, r.drop())
	}
	return err
}
