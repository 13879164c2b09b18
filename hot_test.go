package bale

import (
	"bytes"
	"testing"

	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/testvalues"
	"github.com/balekv/bale/stats"
)

// BenchmarkHot are the paths that every operation takes, each for itself and short: .ci/gate compares them with those of the commit before.
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
		p := newPacker(b, PackerOptions{Compressor: c.with})
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
				dst, err = p.Unpack(dst[:0], packed)
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
}
