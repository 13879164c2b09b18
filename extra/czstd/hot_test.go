//go:build cgo

package czstd

import (
	"bytes"
	"testing"

	"github.com/valyala/gozstd"

	"github.com/balekv/bale"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
)

// BenchmarkHot is Pack and Unpack through libzstd with a dictionary: .ci/gate compares them with
// those of the commit before.
func BenchmarkHot(b *testing.B) {
	var samples [][]byte
	for i := range 200 {
		samples = append(samples, profile(i))
	}
	d, err := frame.NewDictionary(gozstd.BuildDict(samples, 4<<10))
	if err != nil {
		b.Fatal(err)
	}
	p, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: native(b, 3, d)}})
	if err != nil {
		b.Fatal(err)
	}
	src := profile(10_000)
	packed, err := p.Pack(nil, src)
	if err != nil {
		b.Fatal(err)
	}
	dst := make([]byte, 0, bale.MaxPackedLen(len(src)))
	b.Run("path=pack/compress=libzstd+dict", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			dst, err = p.Pack(dst[:0], src)
		}
		if err != nil || !bytes.Equal(dst, packed) {
			b.Fatalf("packed to something else: %v", err)
		}
	})
	b.Run("path=unpack/compress=libzstd+dict", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			dst, err = p.Unpack(b.Context(), dst[:0], packed)
		}
		if err != nil || !bytes.Equal(dst, src) {
			b.Fatalf("unpacked to something else: %v", err)
		}
	})
}
