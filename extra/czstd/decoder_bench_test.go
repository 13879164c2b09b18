//go:build cgo

package czstd

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	kzstd "github.com/klauspost/compress/zstd"
	"github.com/valyala/gozstd"

	"github.com/balekv/bale/internal/testvalues"
	"github.com/balekv/bale/internal/zstd"
)

// BenchmarkDecoder compares the decoder in pure Go with gozstd's DecompressDict and with
// klauspost's. All decode the same frames in turn, in one run: libzstd's of level 3 with a
// dictionary of one half of the values, made from the other half. "times-lib" is the median of the
// paired ratios to gozstd.
func BenchmarkDecoder(b *testing.B) {
	corpora, err := testvalues.Corpora()
	if err != nil {
		b.Fatal(err)
	}
	if corpora == nil {
		corpora = map[string][][]byte{}
	}
	for i := range 4000 {
		corpora["profiles"] = append(corpora["profiles"], profile(i))
	}
	for name, values := range corpora {
		var train, small, medium [][]byte
		for i, v := range values {
			switch {
			case i%2 == 0:
				train = append(train, v)
			case len(v) < 1<<10 && len(small) < 300:
				small = append(small, v)
			case len(v) >= 1<<10 && len(v) < 5<<10 && len(medium) < 300:
				medium = append(medium, v)
			}
		}
		for _, size := range []int{16 << 10, 112 << 10} {
			trained := gozstd.BuildDict(train, size)
			for group, values := range map[string][][]byte{"below1K": small, "1to5K": medium} {
				if len(values) < 10 {
					continue
				}
				b.Run(fmt.Sprintf("%s/dict=%dK/%s", name, size>>10, group), func(b *testing.B) { measureDecoders(b, trained, values) })
			}
		}
	}
}

func measureDecoders(b *testing.B, dictionary []byte, values [][]byte) {
	cd, err := gozstd.NewCDictLevel(dictionary, 3)
	if err != nil {
		b.Fatal(err)
	}
	defer cd.Release()
	dd, err := gozstd.NewDDict(dictionary)
	if err != nil {
		b.Fatal(err)
	}
	defer dd.Release()
	d, err := zstd.NewDictionary(dictionary)
	if err != nil {
		b.Fatal(err)
	}
	ours := zstd.NewDecoder(d)
	theirs, err := kzstd.NewReader(nil, kzstd.WithDecoderDicts(dictionary), kzstd.WithDecoderConcurrency(1))
	if err != nil {
		b.Fatal(err)
	}
	defer theirs.Close()
	raw, packed := 0, 0
	frames := make([][]byte, len(values))
	for i, v := range values {
		frames[i] = gozstd.CompressDict(nil, v, cd)
		raw, packed = raw+len(v), packed+len(frames[i])
	}
	dst := make([]byte, 0, 8<<10)
	calls := []func(i int) ([]byte, error){
		func(i int) ([]byte, error) { return gozstd.DecompressDict(dst, frames[i], dd) },
		func(i int) ([]byte, error) { return ours.Decode(dst, frames[i][magicSize:], len(values[i])) },
		func(i int) ([]byte, error) { return theirs.DecodeAll(frames[i], dst) },
	}
	for i, v := range values {
		for k, call := range calls {
			if got, err := call(i); err != nil || !bytes.Equal(got, v) {
				b.Fatalf("engine %d, value %d: %v", k, i, err)
			}
		}
	}
	each := func(k int) {
		for i := range values {
			if _, err := calls[k](i); err != nil {
				b.Fatal(err)
			}
		}
	}
	times := make([][]float64, len(calls))
	for b.Loop() {
		for k := range calls {
			start := time.Now()
			each(k)
			times[k] = append(times[k], float64(time.Since(start).Nanoseconds())/float64(len(values)))
		}
	}
	ratio := func(k int) float64 {
		var ratios []float64
		for i := range times[0] {
			ratios = append(ratios, times[k][i]/times[0][i])
		}
		return median(ratios)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(times[0]), "ns-lib")
	b.ReportMetric(median(times[1]), "ns-ours")
	b.ReportMetric(ratio(1), "times-lib")
	b.ReportMetric(ratio(2), "klauspost-times-lib")
	b.ReportMetric(testing.AllocsPerRun(10, func() { each(1) })/float64(len(values)), "allocs")
	b.ReportMetric(float64(raw)/float64(len(values)), "B-value")
	b.ReportMetric(float64(raw)/float64(packed), "ratio")
}
