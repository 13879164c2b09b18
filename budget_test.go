package bale

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/testvalues"
	"github.com/balekv/bale/stats"
)

// TestBudget: an operation on many values ends at its budget, whatever they are packed with.
func TestBudget(t *testing.T) {
	const size = 400_000
	content := []byte(strings.Repeat("x", size))
	for _, s := range compress.Settings() {
		c, err := s.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		p := newPacker(t, PackerOptions{Compressors: &compress.Set{Write: c}, MaxSize: size, Budget: 2*size + 1000})
		packed := mustPack(t, p, content)
		if s.Algorithm == frame.Stored {
			packed = mustPack(t, p, append([]byte{0xBA, 0x1E}, content[2:]...)) // escaped
		}
		small := mustPack(t, p, content[:900])
		batch := p.Batch()
		for i, v := range []struct {
			stored []byte
			err    error
		}{{packed, nil}, {packed, nil}, {packed, ErrBudget}, {content, nil}, {small, nil}, {packed, ErrBudget}} {
			got, err := batch.Unpack(t.Context(), []byte("before"), v.stored)
			if !errors.Is(err, v.err) || err != nil && string(got) != "before" {
				t.Errorf("%v, value %d: %d bytes, %v", s, i, len(got), err)
			}
			if err != nil && (!strings.Contains(err.Error(), "PackerOptions.Budget") || ErrorClass(err) != stats.TooLarge || errors.Is(err, ErrTooLarge)) {
				t.Errorf("%v: %v", s, err)
			}
		}
		for range 5 { // a single value has no budget
			if _, err := p.Unpack(t.Context(), nil, packed); err != nil {
				t.Error(err)
			}
		}
	}
	// Claims count, not only what is decoded.
	p := newPacker(t, PackerOptions{MaxSize: size, Budget: 2 * size})
	forged := append(frame.Header{Algorithm: frame.LZ4, Length: size}.Append(nil), make([]byte, size/200)...)
	batch := p.Batch()
	for i := range 4 {
		want := ErrCorrupt
		if i > 1 {
			want = ErrBudget
		}
		if _, err := batch.Unpack(t.Context(), nil, forged); !errors.Is(err, want) {
			t.Errorf("forged value %d: %v", i, err)
		}
	}
}

// TestGetManyBudget: sixty frames of 33 bytes do not become gigabytes. The error names the keys,
// and the other values are returned.
func TestGetManyBudget(t *testing.T) {
	if testvalues.Race {
		t.Skip("the race detector allocates")
	}
	p := newPacker(t, PackerOptions{Compressors: &compress.Set{Write: second(compress.Setting{Algorithm: frame.S2}.New(nil))}})
	bomb := mustPack(t, p, make([]byte, defaultMaxSize))
	if len(bomb) > 50 {
		t.Fatalf("%d bytes", len(bomb))
	}
	m := newMemory()
	cache, err := New(m, Options[[]byte]{Codec: codec.Bytes{}, Packer: p})
	if err != nil {
		t.Fatal(err)
	}
	const n = 60
	keys := []string{"plain"}
	m.values["plain"] = []byte("a plain value")
	for i := range n {
		keys = append(keys, fmt.Sprint("k", i))
		m.values[keys[i+1]] = bomb
	}
	for name, get := range map[string]func() (int, error){
		"GetMany":    func() (int, error) { v, err := cache.GetMany(t.Context(), keys...); return len(v), err },
		"GetEntries": func() (int, error) { v, err := cache.GetEntries(t.Context(), keys...); return len(v), err },
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := get()
		runtime.ReadMemStats(&after)
		var failed KeyErrors
		if !errors.As(err, &failed) || got+len(failed) != n+1 || got != 1+defaultBudget/defaultMaxSize {
			t.Errorf("%s: %d values, %v", name, got, err)
		}
		for _, f := range failed {
			if !errors.Is(f, ErrBudget) || f.Key == "plain" {
				t.Error(f)
			}
		}
		// Each is decoded into a buffer, and copied by the codec.
		if n := after.TotalAlloc - before.TotalAlloc; n > 3*defaultBudget {
			t.Errorf("%s: %d MiB allocated", name, n>>20)
		}
	}
	// A legal batch is read with a larger budget.
	cache.packer = newPacker(t, PackerOptions{Budget: 8 * defaultMaxSize})
	if v, err := cache.GetMany(t.Context(), keys[:9]...); len(v) != 9 || err != nil {
		t.Errorf("%d values, %v", len(v), err)
	}
}

func second[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// blocking decodes as slowly as a test wants, and counts the bytes that it decodes at a time.
type blocking struct {
	fake
	now, most atomic.Int64
	wait      chan struct{}
}

func (s *blocking) Decompress(dst, src []byte, size int) ([]byte, error) {
	s.most.Store(max(s.most.Load(), s.now.Add(int64(size))))
	<-s.wait
	s.now.Add(-int64(size))
	return append(dst, make([]byte, size)...), nil
}

// TestGate: all callers of a Packer together decode no more than its budget at a time, if their
// values are large. One whose context ends does not wait.
func TestGate(t *testing.T) {
	const size, fits = 2 << 20, 3
	for name, unpack := range map[string]func(p *Packer, ctx context.Context, stored []byte) error{
		"Unpack": func(p *Packer, ctx context.Context, stored []byte) error {
			return errorOf(p.Unpack(ctx, nil, stored))
		},
		"Batch": func(p *Packer, ctx context.Context, stored []byte) error {
			b := p.Batch()
			return errorOf(b.Unpack(ctx, nil, stored))
		},
		"Cache": func(p *Packer, ctx context.Context, stored []byte) error {
			m := newMemory()
			m.values["k"] = stored
			cache, err := New(m, Options[[]byte]{Codec: codec.Bytes{}, Packer: p})
			if err != nil {
				return err
			}
			return errorOf(cache.Get(ctx, "k"))
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &blocking{fake: fake{Compressor: compress.None, algorithm: frame.Zstd}, wait: make(chan struct{})}
			p := newPacker(t, PackerOptions{Compressors: &compress.Set{Write: s}, MaxSize: size, Budget: fits*size + 1000})
			stored := frame.Header{Algorithm: frame.Zstd, Length: size}.Append(nil)
			small := frame.Header{Algorithm: frame.Zstd, Length: largeValue}.Append(nil)
			var callers sync.WaitGroup
			for range 10 {
				callers.Go(func() {
					if err := unpack(p, t.Context(), stored); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
			synctest.Wait()
			if n := s.now.Load(); n != fits*size {
				t.Errorf("%s: %d bytes are decoded at a time", name, n)
			}
			// A frame that nothing can read does not come into line.
			unknown := frame.Header{Algorithm: frame.Zstd, DictionaryID: 1, Length: size}.Append(nil)
			if err := unpack(p, t.Context(), unknown); !errors.Is(err, ErrUnknownDictionary) {
				t.Errorf("%s: %v", name, err)
			}
			for range 2 { // in line, and first in line
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				err := unpack(p, ctx, stored)
				if cancel(); !errors.Is(err, context.DeadlineExceeded) || ErrorClass(err) != stats.Timeout || !strings.Contains(err.Error(), "Budget") {
					t.Errorf("%s: %v", name, err)
				}
			}
			callers.Go(func() {
				if err := unpack(p, t.Context(), small); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
			synctest.Wait()
			if n := s.now.Load(); n != fits*size+largeValue {
				t.Errorf("%s: a small value waits", name)
			}
			close(s.wait)
			callers.Wait()
			if p.gate.free != p.budget || s.most.Load() > fits*size+largeValue {
				t.Errorf("%s: %d of %d bytes are free, at most %d were decoded", name, p.gate.free, p.budget, s.most.Load())
			}
		})
	}
}

// forgetful is a source that has one dictionary at hand and is asked for others.
type forgetful struct {
	Compressors
	asked atomic.Int64
}

func (f *forgetful) Reader(ctx context.Context, a frame.Algorithm, id frame.DictionaryID) (Compressor, error) {
	if id != 1<<31 {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		f.asked.Add(1)
		return nil, ErrUnknownDictionary
	}
	return f.Compressors.Reader(ctx, a, 0)
}

// TestManyUnknownDictionaries: an operation asks for maxUnknown dictionaries, and then reads with
// those at hand alone.
func TestManyUnknownDictionaries(t *testing.T) {
	set := &compress.Set{}
	t.Cleanup(func() { set.Close() })
	source := &forgetful{Compressors: set}
	p, err := NewPacker(PackerOptions{Compressors: source})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	plain := bytes.Repeat([]byte("value "), 100)
	packed, err := p.Pack(nil, plain)
	if err != nil {
		t.Fatal(err)
	}
	h, offset, _ := frame.Parse(packed)
	with := func(id frame.DictionaryID) []byte {
		h := h
		h.DictionaryID = id
		return append(h.Append(nil), packed[offset:]...)
	}
	b := p.Batch()
	for i := range 1000 {
		if _, err := b.Unpack(t.Context(), nil, with(frame.DictionaryID(i+1))); !errors.Is(err, ErrUnknownDictionary) || errors.Is(err, context.Canceled) {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if n := source.asked.Load(); n != maxUnknown {
		t.Errorf("asked for %d", n)
	}
	if got, err := b.Unpack(t.Context(), nil, with(1<<31)); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("one at hand: %v", err)
	}
	if p.Unpack(t.Context(), nil, with(7)); source.asked.Load() != maxUnknown+1 {
		t.Error("the next operation does not ask")
	}
}

// TestNotAskedIsNotReplaced: values whose dictionary GetOrLoadMany did not ask for, because others
// have unknown ones, stay.
func TestNotAskedIsNotReplaced(t *testing.T) {
	set := &compress.Set{}
	t.Cleanup(func() { set.Close() })
	store := newClockwork()
	p := newPacker(t, PackerOptions{Compressors: &forgetful{Compressors: set}})
	c, err := New(store, Options[string]{Packer: p, Load: LoadOptions{ReplaceUnreadable: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	var keys []string
	for i := range maxUnknown + 10 {
		key := fmt.Sprint("k", i)
		keys = append(keys, key)
		store.values[key] = append(frame.Header{Algorithm: frame.Zstd, DictionaryID: frame.DictionaryID(i + 1), Length: 3}.Append(nil), "xyz"...)
	}
	before := maps.Clone(store.values)
	if _, err := c.GetOrLoadMany(t.Context(), keys, func(_ context.Context, keys []string) (map[string]string, error) {
		loaded := map[string]string{}
		for _, key := range keys {
			loaded[key] = "loaded"
		}
		return loaded, nil
	}); err != nil {
		t.Fatal(err)
	}
	for i, key := range keys {
		if replaced := !bytes.Equal(store.values[key], before[key]); replaced != (i < maxUnknown) {
			t.Errorf("%s: replaced %v", key, replaced)
		}
	}
}

// TestPatience: an operation with many unknown dictionaries waits for few of them, and asks for the
// others.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := &compress.Set{}
		defer set.Close()
		source := &tardy{Compressors: set, asked: map[frame.DictionaryID]bool{}}
		p, err := NewPacker(PackerOptions{Compressors: source})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		start, b := time.Now(), p.Batch()
		for id := range frame.DictionaryID(50) {
			src := frame.Header{Algorithm: frame.Zstd, DictionaryID: id + 1, Length: 1}.Append(nil)
			if _, err := b.Unpack(t.Context(), nil, append(src, "payload"...)); !errors.Is(err, ErrUnknownDictionary) {
				t.Errorf("%v: %v", id, err)
			}
		}
		if took := time.Since(start); took > 1100*time.Millisecond {
			t.Errorf("it waited %v", took)
		}
		if len(source.asked) != 50 {
			t.Errorf("asked for %d", len(source.asked))
		}
	})
}

// tardy is a source that gives up after a second.
type tardy struct {
	Compressors
	asked map[frame.DictionaryID]bool
}

func (h *tardy) Reader(ctx context.Context, a frame.Algorithm, id frame.DictionaryID) (Compressor, error) {
	if ctx.Err() == nil {
		h.asked[id] = true
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestManyFetchedDictionaries: an operation fetches maxFetched dictionaries, and then reads with
// those at hand alone. A source that keeps fewer than a reply has would fetch one for each value.
func TestManyFetchedDictionaries(t *testing.T) {
	set := &compress.Set{}
	t.Cleanup(func() { set.Close() })
	source := &fetching{Compressors: set}
	p, err := NewPacker(PackerOptions{Compressors: source})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	packed, err := p.Pack(nil, bytes.Repeat([]byte("value "), 100))
	if err != nil {
		t.Fatal(err)
	}
	h, offset, _ := frame.Parse(packed)
	h.DictionaryID = 1
	src := append(h.Append(nil), packed[offset:]...)
	b := p.Batch()
	for i := range 1000 {
		if _, err := b.Unpack(t.Context(), nil, src); (err == nil) != (i < maxFetched) || err != nil && !errors.Is(err, ErrUnknownDictionary) {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if n := source.asked.Load(); n != maxFetched {
		t.Errorf("asked for %d", n)
	}
}

// fetching is a source that fetches each dictionary again.
type fetching struct {
	Compressors
	asked atomic.Int64
}

func (f *fetching) Reader(ctx context.Context, a frame.Algorithm, id frame.DictionaryID) (Compressor, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	f.asked.Add(1)
	return f.Compressors.Reader(ctx, a, 0)
}
