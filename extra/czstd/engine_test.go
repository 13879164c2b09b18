//go:build cgo && linux

package czstd

import (
	"bytes"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/klauspost/compress/zstd"
	"github.com/valyala/gozstd"

	"github.com/balekv/bale/internal/testvalues"
	engine "github.com/balekv/bale/internal/zstd"
)

// realValues are the profiles of this package, and with BALE_CORPORA the files there.
func realValues(tb testing.TB) map[string][][]byte {
	all, err := testvalues.Corpora()
	if err != nil {
		tb.Fatal(err)
	}
	if all == nil {
		all = map[string][][]byte{}
	}
	for i := range 2000 {
		all["profiles"] = append(all["profiles"], testvalues.Profile(i))
	}
	return all
}

// halves trains on every other value, and measures at most 300 of the rest.
func halves(values [][]byte, size int) (dictionary []byte, measure [][]byte) {
	var train [][]byte
	for i, v := range values {
		if i%2 == 0 {
			train = append(train, v)
		} else if len(measure) < 300 {
			measure = append(measure, v)
		}
	}
	return gozstd.BuildDict(train, size), measure
}

// payload is how large a frame is without magic number and dictionary id, as bale stores it.
func payload(frame []byte) int {
	return len(frame) - 4 - [...]int{0, 1, 2, 4}[frame[4]&3]
}

// BenchmarkEngine compares the sizes and times of the pure-Go engine with libzstd's and
// klauspost's, with dictionaries of libzstd's default trainer. All take turns over the same values
// in one run.
func BenchmarkEngine(b *testing.B) {
	all := realValues(b)
	for _, l := range []struct {
		name  string
		level engine.Level
		lib   int
		kp    zstd.EncoderLevel
	}{
		{"fast", engine.Fast, 1, zstd.SpeedFastest}, {"default", engine.Default, 3, zstd.SpeedFastest},
		{"better", engine.Better, 9, zstd.SpeedBetterCompression}, {"best", engine.Best, 19, zstd.SpeedBestCompression},
	} {
		for _, corpus := range []string{"profiles", "movies", "events", "tweets"} {
			for _, size := range []int{16 << 10, 64 << 10, 112 << 10} {
				if all[corpus] == nil || testing.Short() && size > 16<<10 {
					continue
				}
				b.Run(fmt.Sprintf("%s/%s/%d", l.name, corpus, size), func(b *testing.B) {
					dictionary, values := halves(all[corpus], size)
					compareEngines(b, dictionary, values, l.level, l.lib, l.kp)
				})
			}
		}
	}
}

// compareEngines measures the three in turns. "x-lib" and "x-kp" are the medians of the paired
// ratios of time, "b-lib" and "b-kp" the ratios of bytes.
func compareEngines(b *testing.B, dictionary []byte, values [][]byte, level engine.Level, lib int, kpLevel zstd.EncoderLevel) {
	options := []zstd.EOption{zstd.WithEncoderLevel(kpLevel), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true)}
	var d *engine.Dictionary
	var cd *gozstd.CDict
	if len(dictionary) > 0 {
		var err error
		if d, err = engine.NewDictionary(dictionary); err != nil {
			b.Fatal(err)
		}
		if cd, err = gozstd.NewCDictLevel(dictionary, lib); err != nil {
			b.Fatal(err)
		}
		defer cd.Release()
		options = append(options, zstd.WithEncoderDict(dictionary))
	}
	library := func(dst, v []byte) []byte {
		if cd == nil {
			return gozstd.CompressLevel(dst, v, lib)
		}
		return gozstd.CompressDict(dst, v, cd)
	}
	ours := engine.NewEncoder(engine.NewDigest(d, level))
	kp, err := zstd.NewWriter(nil, options...)
	if err != nil {
		b.Fatal(err)
	}
	read := reader(b, dictionary)
	plain, sizes := 0, [3]int{}
	dst := make([]byte, 0, 1<<20)
	for _, v := range values {
		plain += len(v)
		frame, err := ours.Encode(dst[:0], v)
		if err != nil {
			b.Fatal(err)
		}
		sizes[0] += len(frame)
		read(b, frame, v)
		sizes[1] += payload(library(dst[:0], v))
		sizes[2] += payload(kp.EncodeAll(v, dst[:0]))
	}
	times := [3][]float64{}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for turn := 0; b.Loop(); turn++ {
		for k := range times {
			k = (k + turn) % len(times)
			start := threadTime(b)
			for _, v := range values {
				switch k {
				case 0:
					ours.Encode(dst[:0], v)
				case 1:
					library(dst[:0], v)
				case 2:
					kp.EncodeAll(v, dst[:0])
				}
			}
			times[k] = append(times[k], float64(threadTime(b)-start)/1e3/float64(len(values)))
		}
	}
	var ratios [2][]float64
	for i := range times[0] {
		for k := range ratios {
			ratios[k] = append(ratios[k], times[0][i]/times[k+1][i])
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(plain)/float64(len(values)), "B-value")
	for k, name := range []string{"", "-lib", "-kp"} {
		b.ReportMetric(float64(plain)/float64(sizes[k]), "ratio"+name)
		b.ReportMetric(median(times[k]), "µs"+name)
	}
	b.ReportMetric(float64(sizes[0])/float64(sizes[1]), "b-lib")
	b.ReportMetric(float64(sizes[0])/float64(sizes[2]), "b-kp")
	b.ReportMetric(median(ratios[0]), "x-lib")
	b.ReportMetric(median(ratios[1]), "x-kp")
	digest := engine.NewDigest(d, level)
	b.ReportMetric(contextKB(b, values, func() func(v []byte) {
		e := engine.NewEncoder(digest)
		return func(v []byte) { e.Encode(dst[:0], v) }
	}), "KB-context")
	b.ReportMetric(contextKB(b, values, func() func(v []byte) {
		e, err := zstd.NewWriter(nil, options...)
		if err != nil {
			b.Fatal(err)
		}
		return func(v []byte) { e.EncodeAll(v, dst[:0]) }
	}), "KB-context-kp")
}

// contextKB is the heap that a context keeps after the values, beside what all share.
func contextKB(b *testing.B, values [][]byte, open func() func(v []byte)) float64 {
	const contexts = 2
	heap := func() float64 {
		runtime.GC()
		runtime.GC() // pools keep what they have for one collection
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	var all []func(v []byte)
	before := heap()
	for range contexts {
		encode := open()
		for _, v := range values[:min(len(values), 50)] {
			encode(v)
		}
		all = append(all, encode)
	}
	after := heap()
	runtime.KeepAlive(all)
	return (after - before) / contexts / 1000
}

// BenchmarkLargerValues compares the engines at values between those that are cached in most
// programs and the largest that ours takes, each some of a corpus in a row, with klauspost's level
// of the same name; and at small values without a dictionary.
func BenchmarkLargerValues(b *testing.B) {
	all := realValues(b)
	for _, l := range []struct {
		name  string
		level engine.Level
		lib   int
		kp    zstd.EncoderLevel
	}{
		{"fast", engine.Fast, 1, zstd.SpeedFastest}, {"default", engine.Default, 3, zstd.SpeedDefault},
		{"better", engine.Better, 9, zstd.SpeedBetterCompression}, {"best", engine.Best, 19, zstd.SpeedBestCompression},
	} {
		for _, corpus := range slices.Sorted(maps.Keys(all)) {
			dictionary, values := halves(all[corpus], 64<<10)
			for _, size := range []int{0, 8 << 10, 16 << 10, 32 << 10, 64 << 10, engine.MaxSize} {
				b.Run(fmt.Sprintf("%s/%s/%d", l.name, corpus, size), func(b *testing.B) {
					if size == 0 {
						compareEngines(b, nil, values, l.level, l.lib, l.kp)
						return
					}
					joined := slices.Concat(values...)
					if len(joined) < size {
						b.Skip("too few values")
					}
					var larger [][]byte
					for v := range slices.Chunk(joined, size) {
						if len(v) == size && len(larger) < 20 {
							larger = append(larger, v)
						}
					}
					compareEngines(b, dictionary, larger, l.level, l.lib, l.kp)
				})
			}
		}
	}
}

// BenchmarkLargeDictionary compares the time to write with 1 MiB of samples and with 112 KiB, of
// the engine at its default level and of libzstd. "x-ours" and "x-lib" are the medians of the
// paired ratios.
func BenchmarkLargeDictionary(b *testing.B) {
	values := realValues(b)["movies"]
	if values == nil {
		b.Skip("BALE_CORPORA is not set")
	}
	trained, measure := halves(values, 112<<10)
	var samples []byte
	for i := 0; i < len(values); i += 2 {
		samples = append(samples, values[i]...)
	}
	large := append(bytes.Clone(trained), samples...)[:1<<20]
	var ours [2]*engine.Encoder
	var lib [2]*gozstd.CDict
	for k, dictionary := range [][]byte{trained, large} {
		d, err := engine.NewDictionary(dictionary)
		if err != nil {
			b.Fatal(err)
		}
		ours[k] = engine.NewEncoder(engine.NewDigest(d, engine.Default))
		if lib[k], err = gozstd.NewCDictLevel(dictionary, 3); err != nil {
			b.Fatal(err)
		}
		defer lib[k].Release()
		read := reader(b, dictionary)
		for _, v := range measure {
			frame, err := ours[k].Encode(nil, v)
			if err != nil {
				b.Fatal(err)
			}
			read(b, frame, v)
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	dst := make([]byte, 0, 1<<16)
	var x [2][]float64
	for b.Loop() {
		var times [2][2]float64
		for k := range 2 {
			start := threadTime(b)
			for _, v := range measure {
				ours[k].Encode(dst, v)
			}
			between := threadTime(b)
			for _, v := range measure {
				gozstd.CompressDict(dst, v, lib[k])
			}
			times[0][k], times[1][k] = float64(between-start), float64(threadTime(b)-between)
		}
		for i, t := range times {
			x[i] = append(x[i], t[1]/t[0])
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(x[0]), "x-ours")
	b.ReportMetric(median(x[1]), "x-lib")
}

// threadTime is the processor time of this thread. On a shared machine it tells more than a clock.
func threadTime(tb testing.TB) time.Duration {
	var t syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 3, uintptr(unsafe.Pointer(&t)), 0); errno != 0 { // CLOCK_THREAD_CPUTIME_ID
		tb.Fatal(errno)
	}
	return time.Duration(t.Nano())
}

// reader checks a frame of the engine by libzstd.
func reader(tb testing.TB, dictionary []byte) func(tb testing.TB, frame, value []byte) {
	tb.Helper()
	decompress := func(frame []byte) ([]byte, error) { return gozstd.Decompress(nil, frame) }
	if len(dictionary) > 0 {
		dd, err := gozstd.NewDDict(dictionary)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(dd.Release)
		decompress = func(frame []byte) ([]byte, error) { return gozstd.DecompressDict(nil, frame, dd) }
	}
	return func(tb testing.TB, frame, value []byte) {
		tb.Helper()
		got, err := decompress(slices.Concat([]byte{0x28, 0xB5, 0x2F, 0xFD}, frame))
		if err != nil || !bytes.Equal(got, value) {
			tb.Fatalf("libzstd reads %d bytes of %d: %v", len(got), len(value), err)
		}
	}
}
