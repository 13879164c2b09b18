package migrate

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
)

// TestRereadsInPortions: values that get large between the reading and the script are read again a
// few at a time.
func TestRereadsInPortions(t *testing.T) {
	const (
		keys    = 60
		size    = 2 << 20
		allowed = 24 << 20 // of Go's heap; a page of keys has 64 MiB then
	)
	s := redisproc.ForTest(t)
	c, program := open(t, s.Addr()), open(t, s.Addr())
	for i := range keys {
		must(t, c.Set(t.Context(), fmt.Sprint("u:", i), text(i)+text(i), 0).Err())
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	o := larger(t)
	before, most, calls := heap(), int64(0), 0
	o.Hold = func(ctx context.Context) (time.Time, error) { // before each writing
		if calls++; calls == 1 { // all are read by then, and none is written
			must(t, pipelined(program, func(p redis.Pipeliner) {
				for i := range keys {
					p.SetRange(ctx, fmt.Sprint("u:", i), size-1, "x")
				}
			}))
		}
		most = max(most, heap()-before)
		return time.Time{}, nil
	}
	r := run(t, c, o)
	if most > allowed {
		t.Errorf("%d MiB of values are held", most>>20)
	}
	if r.Strings.After.Values != keys || r.Strings.Before.Bytes != keys*size {
		t.Errorf("%+v", r)
	}
}

// pipelined sends commands at once.
func pipelined(c redis.UniversalClient, add func(redis.Pipeliner)) error {
	_, err := c.Pipelined(context.Background(), func(p redis.Pipeliner) error {
		add(p)
		return nil
	})
	return err
}

// gone are the compressors of a registry that does not answer.
type gone struct{ *compress.Set }

func (gone) Reader(context.Context, frame.Algorithm, frame.DictionaryID) (compress.Compressor, error) {
	return nil, registry.ErrUnreachable
}

// TestRegistryIsGone: a value is not unreadable because the registry does not answer.
func TestRegistryIsGone(t *testing.T) {
	p, err := bale.NewPacker(bale.PackerOptions{Compressors: gone{&compress.Set{Write: compress.None}}})
	must(t, err)
	defer p.Close()
	c := open(t, redisproc.ForTest(t).Addr())
	must(t, c.Set(t.Context(), "k", frame.Header{Algorithm: frame.Zstd, DictionaryID: 7, Length: 100}.Append(nil), 0).Err())
	counts := newCounts()
	err = walk(t.Context(), c, pass{Match: []string{"*"}, Packer: p, Revert: true, MaxSize: 1 << 20}, counts)
	if !errors.Is(err, registry.ErrUnreachable) || counts.Failed() > 0 {
		t.Errorf("%v, %+v", err, counts)
	}
}
