package zstd

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	kdict "github.com/klauspost/compress/dict"
	"github.com/klauspost/compress/zstd"

	"github.com/balekv/bale/internal/testvalues"
)

// BenchmarkOptions measures the options for small values: ratio, time and memory of a context of
// the library, by level, window and dictionary. Half of each set trains the dictionary (by the
// library's own builder, 16 KiB), the other half is measured.
func BenchmarkOptions(b *testing.B) {
	corpora, err := testvalues.Corpora()
	if err != nil {
		b.Fatal(err)
	}
	if corpora == nil {
		corpora = map[string][][]byte{"profiles": nil}
		for i := range 1000 {
			corpora["profiles"] = append(corpora["profiles"], testvalues.Profile(i))
		}
	}
	for name, values := range corpora {
		var train, measure [][]byte
		for i, v := range values {
			if i%2 == 0 {
				train = append(train, v)
			} else if len(measure) < 500 {
				measure = append(measure, v)
			}
		}
		trained, err := kdict.BuildZstdDict(train, kdict.Options{MaxDictSize: 16 << 10, HashBytes: 6, ZstdDictID: 1, ZstdLevel: zstd.SpeedBetterCompression})
		if err != nil {
			b.Fatal(err)
		}
		for _, level := range []zstd.EncoderLevel{zstd.SpeedFastest, zstd.SpeedDefault, zstd.SpeedBetterCompression, zstd.SpeedBestCompression} {
			for _, window := range []int{0, 64 << 10} {
				for _, dictionary := range [][]byte{nil, trained} {
					for _, literals := range []bool{false, true} {
						if literals && level > zstd.SpeedDefault {
							continue // on by itself
						}
						o := []zstd.EOption{zstd.WithEncoderLevel(level), zstd.WithEncoderCRC(false), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true)}
						if literals {
							o = append(o, zstd.WithAllLitEntropyCompression(true))
						}
						if window > 0 {
							o = append(o, zstd.WithWindowSize(window))
						}
						if dictionary != nil {
							o = append(o, zstd.WithEncoderDict(dictionary))
						}
						b.Run(fmt.Sprintf("%s/%v/window=%d/dict=%d/literals=%v", name, level, window, len(dictionary), literals), func(b *testing.B) { measureOptions(b, o, measure) })
					}
				}
			}
		}
	}
}

func measureOptions(b *testing.B, o []zstd.EOption, values [][]byte) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	e, err := zstd.NewWriter(nil, o...)
	if err != nil {
		b.Fatal(err)
	}
	dst := make([]byte, 0, 1<<20)
	raw, packed := 0, 0
	for _, v := range values {
		raw, packed = raw+len(v), packed+len(e.EncodeAll(v, dst))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	var times []float64
	for b.Loop() {
		start := time.Now()
		for _, v := range values {
			e.EncodeAll(v, dst)
		}
		times = append(times, time.Since(start).Seconds()*1e6/float64(len(values)))
	}
	slices.Sort(times)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(raw)/float64(packed), "ratio")
	b.ReportMetric(times[len(times)/2], "us/value")
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc-1<<20)/1e6, "MB-context")
	runtime.KeepAlive(e)
}
