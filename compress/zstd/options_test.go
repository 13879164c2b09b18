package zstd

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	kdict "github.com/klauspost/compress/dict"
	"github.com/klauspost/compress/zstd"

	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/testvalues"
)

// BenchmarkLevels measures ratio, time and memory of the levels, without a dictionary and with one.
// Half of each set trains the dictionary (16 KiB, by klauspost's builder), the other half is
// measured. "larger" are values of 16 KiB and more, each some of the others in a row.
func BenchmarkLevels(b *testing.B) {
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
		dictionary, err := frame.NewDictionary(trained)
		if err != nil {
			b.Fatal(err)
		}
		larger := [][]byte{nil}
		for _, v := range measure {
			last := &larger[len(larger)-1]
			if *last = append(*last, v...); len(*last) > 1<<14 {
				larger = append(larger, nil)
			}
		}
		for size, values := range map[string][][]byte{"": measure, "/larger": larger} {
			for level, l := range []string{"default", "fastest", "better", "best"} {
				for with, d := range map[string]*frame.Dictionary{"": nil, "+dict": dictionary} {
					b.Run(name+size+"/"+l+with, func(b *testing.B) {
						measureLevel(b, Options{Level: Level(level), Dictionary: d, Concurrency: 1}, values)
					})
				}
			}
		}
	}
}

func measureLevel(b *testing.B, o Options, values [][]byte) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	c, err := New(o)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	dst, back := make([]byte, 0, 1<<20), make([]byte, 0, 1<<20)
	raw, packed := 0, 0
	for _, v := range values {
		p, err := c.Compress(dst, v)
		if err != nil {
			b.Fatal(err)
		}
		raw, packed = raw+len(v), packed+len(p)
		if got, err := c.Decompress(back, p, len(v)); err != nil || !bytes.Equal(got, v) {
			b.Fatal(fmt.Errorf("another value, %w", err))
		}
	}
	runtime.ReadMemStats(&after)
	var times []float64
	for b.Loop() {
		start := time.Now()
		for _, v := range values {
			if _, err := c.Compress(dst, v); err != nil {
				b.Fatal(err)
			}
		}
		times = append(times, time.Since(start).Seconds()*1e6/float64(len(values)))
	}
	slices.Sort(times)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(raw)/float64(packed), "ratio")
	b.ReportMetric(times[len(times)/2], "µs/value")
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc-2<<20)/1e6, "MB")
}
