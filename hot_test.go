package bale

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/testvalues"
	"github.com/balekv/bale/stats"
)

// BenchmarkHot are the paths that every operation takes, each for itself and short: .ci/gate
// compares them with those of the commit before.
func BenchmarkHot(b *testing.B) {
	src := testvalues.Profile(1)
	dictionary := readDict(b, rawDictFile)
	for _, c := range []struct {
		name string
		with Compressor
	}{
		{"zstd", newCompressor(b, compress.Setting{Algorithm: frame.Zstd}, nil)},
		{"s2+dict", newCompressor(b, compress.Setting{Algorithm: frame.S2}, dictionary)},
	} {
		p := newPacker(b, PackerOptions{Compressors: &compress.Set{Write: c.with}})
		packed, err := p.Pack(nil, src)
		if err != nil {
			b.Fatal(err)
		}
		dst := make([]byte, 0, MaxPackedLen(len(src)))
		b.Run("path=pack/compress="+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				dst, err = p.Pack(dst[:0], src)
			}
			if err != nil || !bytes.Equal(dst, packed) {
				b.Fatalf("packed to something else: %v", err)
			}
		})
		b.Run("path=unpack/compress="+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				dst, err = p.Unpack(b.Context(), dst[:0], packed)
			}
			if err != nil || !bytes.Equal(dst, src) {
				b.Fatalf("unpacked to something else: %v", err)
			}
		})
	}
	for _, r := range []struct {
		name string
		with stats.Recorder
	}{{"none", nil}, {"counters", stats.NewCounters(stats.CountersOptions{})}} {
		c := recorded(b, r.with)
		b.Run("path=get/recorder="+r.name, func(b *testing.B) {
			b.ReportAllocs()
			ctx := b.Context()
			var err error
			for b.Loop() {
				_, err = c.Get(ctx, "k")
			}
			if err != nil {
				b.Fatal(err)
			}
		})
	}
	c, load := loadedOnce(b)
	b.Run("path=getorload", func(b *testing.B) {
		b.ReportAllocs()
		ctx := b.Context()
		var err error
		for b.Loop() {
			_, err = c.GetOrLoad(ctx, "k", load)
		}
		if err != nil {
			b.Fatal(err)
		}
	})
}

// loadedOnce is a cache whose key k is a hit of GetOrLoad, with an expiry inside.
func loadedOnce(tb testing.TB) (*Cache[int], func(context.Context) (int, error)) {
	p := newPacker(tb, PackerOptions{MinSize: 1 << 20})
	stored, _, err := p.pack(nil, []byte("12"), &frame.Freshness{Expires: time.Now().Add(24 * time.Hour)})
	if err != nil {
		tb.Fatal(err)
	}
	c, err := New(still{value: stored}, Options[int]{Codec: rawBytes{}, Packer: p})
	if err != nil {
		tb.Fatal(err)
	}
	return c, func(context.Context) (int, error) { return 0, errors.New("a hit loads nothing") }
}

// TestAllocationsOfAHit pins those of GetOrLoad: most are of the context that bounds its read.
func TestAllocationsOfAHit(t *testing.T) {
	if testvalues.Race {
		t.Skip("the race detector allocates")
	}
	c, load := loadedOnce(t)
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := c.GetOrLoad(t.Context(), "k", load); err != nil {
			t.Fatal(err)
		}
	}); n > 5 {
		t.Errorf("%v allocations", n)
	}
}
