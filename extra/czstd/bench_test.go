//go:build cgo

package czstd

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/valyala/gozstd"

	"github.com/balekv/bale"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/compress/zstd"
	"github.com/balekv/bale/frame"
)

// BenchmarkPackAgainstLibrary times Pack and Unpack with a dictionary of 16 KiB at 450 bytes. It
// compares them with gozstd's own CompressDict and DecompressDict, and with the pure-Go engine. All
// take turns over the same values in one run. "times-bare" is the median of the paired ratios.
func BenchmarkPackAgainstLibrary(b *testing.B) {
	var samples, values [][]byte
	for i := range 4000 {
		samples = append(samples, profile(i))
	}
	for i := range 256 {
		values = append(values, profile(10_000+i))
	}
	trained := gozstd.BuildDict(samples, 16<<10)
	d, err := frame.NewDictionary(trained)
	if err != nil {
		b.Fatal(err)
	}
	cd, err := gozstd.NewCDictLevel(trained, 3)
	if err != nil {
		b.Fatal(err)
	}
	defer cd.Release()
	dd, err := gozstd.NewDDict(trained)
	if err != nil {
		b.Fatal(err)
	}
	defer dd.Release()
	packer := func(c compress.Compressor) *bale.Packer {
		p, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: c}})
		if err != nil {
			b.Fatal(err)
		}
		return p
	}
	ours := packer(native(b, 3, d))
	goOnly, err := zstd.New(zstd.Options{Dictionary: d})
	if err != nil {
		b.Fatal(err)
	}
	pureGo := packer(goOnly)
	var bare, packed [][]byte
	size := 0
	for _, v := range values {
		size += len(v)
		bare = append(bare, gozstd.CompressDict(nil, v, cd))
		p, err := ours.Pack(nil, v)
		if err != nil {
			b.Fatal(err)
		}
		for _, packer := range []*bale.Packer{ours, pureGo} {
			if got, err := packer.Unpack(b.Context(), nil, p); err != nil || !bytes.Equal(got, v) {
				b.Fatalf("round trip: %v", err)
			}
		}
		packed = append(packed, p)
	}
	dst := make([]byte, 0, 4096)
	each := func(f func(i int)) func() {
		return func() {
			for i := range values {
				f(i)
			}
		}
	}
	compare := func(name string, calls ...func(i int)) {
		b.Run(name, func(b *testing.B) {
			times := make([][]float64, len(calls))
			turn := 0
			for b.Loop() {
				for k := range calls {
					k = (k + turn) % len(calls)
					start := time.Now()
					each(calls[k])()
					times[k] = append(times[k], float64(time.Since(start).Nanoseconds())/float64(len(values)))
				}
				turn++
			}
			var ratios []float64
			for i := range times[0] {
				ratios = append(ratios, times[1][i]/times[0][i])
			}
			b.ReportMetric(median(times[0]), "ns-bare")
			b.ReportMetric(median(times[1]), "ns-ours")
			b.ReportMetric(median(times[2]), "ns-pure-go")
			b.ReportMetric(median(ratios), "times-bare")
			b.ReportMetric(testing.AllocsPerRun(10, each(calls[1]))/float64(len(values)), "allocs")
			b.ReportMetric(float64(size)/float64(len(values)), "B-value")
		})
	}
	compare("pack",
		func(i int) { dst = gozstd.CompressDict(dst[:0], values[i], cd) },
		func(i int) { dst, _ = ours.Pack(dst[:0], values[i]) },
		func(i int) { dst, _ = pureGo.Pack(dst[:0], values[i]) })
	compare("unpack",
		func(i int) { dst, _ = gozstd.DecompressDict(dst[:0], bare[i], dd) },
		func(i int) { dst, _ = ours.Unpack(b.Context(), dst[:0], packed[i]) },
		func(i int) { dst, _ = pureGo.Unpack(b.Context(), dst[:0], packed[i]) })
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}
