package bale

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/testvalues"
)

// dynamic is Compressors whose parts a test sets.
type dynamic struct {
	compress.Set
	writer  Compressor
	readers map[frame.DictionaryID]Compressor
	err     error
	plain   []int // of Packed
	stored  []int
}

func (d *dynamic) Writer() Compressor { return d.writer }

func (d *dynamic) Reader(ctx context.Context, a frame.Algorithm, id frame.DictionaryID) (Compressor, error) {
	if err := ctx.Err(); err != nil && id != 0 {
		return nil, err
	}
	if r := d.readers[id]; r != nil && r.Algorithm() == a {
		return r, nil
	}
	if id == 0 {
		return d.Set.Reader(ctx, a, id)
	}
	return nil, d.err
}

func (d *dynamic) Unpacked([]byte) {}

func (d *dynamic) Packed(plain []byte, stored int) {
	if len(d.plain) < 10 {
		d.plain, d.stored = append(d.plain, len(plain)), append(d.stored, stored)
	}
}

func TestChangingCompressors(t *testing.T) {
	old, current := readDict(t, rawDictFile), readDict(t, trainedDictFile)
	withOld, withCurrent := newCompressor(t, compress.Setting{Algorithm: frame.S2}, old), newCompressor(t, compress.Setting{Algorithm: frame.Zstd}, current)
	plain := newCompressor(t, compress.Setting{Algorithm: frame.Zstd}, nil)
	errGone := errors.New("nobody has it")
	d := &dynamic{writer: plain, readers: map[frame.DictionaryID]Compressor{old.ID(): withOld, current.ID(): withCurrent}, err: errGone}
	p, err := NewPacker(PackerOptions{Compressors: d})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	value := testvalues.Profile(3)
	var all [][]byte
	for _, w := range []Compressor{plain, withOld, withCurrent, newCompressor(t, compress.Setting{}, nil)} {
		d.writer = w
		packed, err := p.Pack(nil, value)
		if err != nil {
			t.Fatal(err)
		}
		h, _, ok := frame.Parse(packed)
		if ok != (w.Algorithm() != frame.Stored) || h.DictionaryID != w.DictionaryID() || ok && h.Algorithm != w.Algorithm() {
			t.Errorf("written with %v and %v: %+v", w.Algorithm(), w.DictionaryID(), h)
		}
		all = append(all, packed)
	}
	for i, packed := range all {
		if got, err := p.Unpack(t.Context(), nil, packed); err != nil || !bytes.Equal(got, value) {
			t.Errorf("value %d: %v", i, err)
		}
		if d.plain[i] != len(value) || d.stored[i] != len(packed) {
			t.Errorf("value %d: told of %d and %d bytes, not %d and %d", i, d.plain[i], d.stored[i], len(value), len(packed))
		}
	}
	// A value that is too small to be tried has no Packed call.
	if _, err := p.Pack(nil, value[:10]); err != nil || len(d.plain) != len(all) {
		t.Errorf("%d values told of, %v", len(d.plain), err)
	}
	clear(d.readers)
	var failure *DecodeError
	if got, err := p.Unpack(t.Context(), []byte("x"), all[1]); !errors.Is(err, ErrUnknownDictionary) || !errors.Is(err, errGone) || !errors.As(err, &failure) || failure.DictionaryID != old.ID() || string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := p.Unpack(cancelled, nil, all[1]); !errors.Is(err, ErrUnknownDictionary) || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := p.Unpack(cancelled, nil, all[0]); err != nil {
		t.Errorf("cancelled, but nothing is to be waited for: %v", err)
	}
}

// TestPackedWithoutFreshness: what compressors come to does not depend on the method that writes.
func TestPackedWithoutFreshness(t *testing.T) {
	d := &dynamic{writer: newCompressor(t, compress.Setting{Algorithm: frame.Zstd}, readDict(t, trainedDictFile))}
	p, err := NewPacker(PackerOptions{Compressors: d})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	c, m := newCache(t, Options[user]{Packer: p, TTL: time.Hour})
	defer c.Close()
	if err := c.Set(t.Context(), "set", grace); err != nil {
		t.Fatal(err)
	}
	if _, err := c.GetOrLoad(t.Context(), "loaded", func(context.Context) (user, error) { return grace, nil }); err != nil {
		t.Fatal(err)
	}
	size := len(m.values["set"])
	if n := len(m.values["loaded"]); n != size+frame.FreshnessSize || !slices.Equal(d.stored, []int{size, size}) {
		t.Errorf("%d and %d bytes, told of %v", size, n, d.stored)
	}
}

func TestChangingCompressorsAllocates(t *testing.T) {
	d := readDict(t, trainedDictFile)
	c := newCompressor(t, compress.Setting{Algorithm: frame.S2}, d)
	p, err := NewPacker(PackerOptions{Compressors: &dynamic{writer: c, readers: map[frame.DictionaryID]Compressor{d.ID(): c}, plain: make([]int, 10)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	value := testvalues.Profile(3)
	packed, err := p.Pack(nil, value)
	if err != nil {
		t.Fatal(err)
	}
	dst := make([]byte, 0, MaxPackedLen(len(value)))
	if n := testing.AllocsPerRun(100, func() { dst, err = p.Pack(dst[:0], value) }); n > 0 || err != nil {
		t.Errorf("Pack: %v allocations, %v", n, err)
	}
	if n := testing.AllocsPerRun(100, func() { dst, err = p.Unpack(t.Context(), dst[:0], packed) }); n > 0 || err != nil {
		t.Errorf("Unpack: %v allocations, %v", n, err)
	}
}

func TestEngineOption(t *testing.T) {
	made := 0
	engine := func(s compress.Setting, d *frame.Dictionary) (Compressor, error) {
		made++
		return s.New(d)
	}
	p, err := NewPacker(PackerOptions{Compressors: &compress.Set{Engine: engine}})
	if err != nil || made != 1 {
		t.Fatalf("%d made, %v", made, err)
	}
	t.Cleanup(func() { p.Close() })
	packed, err := p.Pack(nil, testvalues.Profile(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Unpack(t.Context(), nil, packed); err != nil || made != 1 {
		t.Errorf("%d made, %v", made, err)
	}
}
