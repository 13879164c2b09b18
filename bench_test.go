package bale

import (
	"bytes"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/testvalues"
)

// alternate times two implementations in alternating turns of n calls, so that noise of the machine
// hits both alike. It returns the nanoseconds per call of each: the medians of the turns.
func alternate(b *testing.B, n int, first, second func()) (firstNs, secondNs float64) {
	var times [2][]float64
	turn := 0
	for b.Loop() {
		for _, which := range []int{turn % 2, 1 - turn%2} { // each goes first every other time
			f := first
			if which == 1 {
				f = second
			}
			start := time.Now()
			for range n {
				f()
			}
			times[which] = append(times[which], float64(time.Since(start).Nanoseconds())/float64(n))
		}
		turn++
	}
	median := func(v []float64) float64 { slices.Sort(v); return v[len(v)/2] }
	return median(times[0]), median(times[1])
}

// bareZstd is the library that the zstd compressor stands on, called directly with the same
// options.
func bareZstd(b *testing.B) (*zstd.Encoder, *zstd.Decoder) {
	b.Helper()
	e, err := zstd.NewWriter(nil, zstd.WithWindowSize(64<<10), zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderCRC(false),
		zstd.WithAllLitEntropyCompression(true), zstd.WithLowerEncoderMem(true), zstd.WithSingleSegment(true))
	if err != nil {
		b.Fatal(err)
	}
	d, err := zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderConcurrency(0))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { e.Close(); d.Close() })
	return e, d
}

// BenchmarkPackOverhead is what Pack and Unpack cost over the bare compressor call, at 450 bytes:
// "ns-over-bare". For zstd the bare call is the library's own.
func BenchmarkPackOverhead(b *testing.B) {
	src := testvalues.Profile(1)
	const calls = 500
	dictionary := readDict(b, rawDictFile)
	// Without a dictionary lz4 and s2 do not make a value of this size smaller.
	for name, c := range map[string]Compressor{
		"zstd":     newCompressor(b, compress.Setting{Algorithm: frame.Zstd}, nil),
		"lz4+dict": newCompressor(b, compress.Setting{Algorithm: frame.LZ4}, dictionary),
		"s2+dict":  newCompressor(b, compress.Setting{Algorithm: frame.S2}, dictionary),
	} {
		p, err := NewPacker(PackerOptions{Compressors: &compress.Set{Write: c}})
		if err != nil {
			b.Fatal(err)
		}
		defer p.Close()
		packed, err := p.Pack(nil, src)
		if err != nil {
			b.Fatal(err)
		}
		h, offset, ok := frame.Parse(packed)
		if !ok {
			b.Fatalf("%s does not make the value smaller", name)
		}
		payload := packed[offset:]
		dst := make([]byte, 0, MaxPackedLen(len(src)))
		bareCompress := func() { dst, _ = c.Compress(dst[:0], src) }
		bareDecompress := func() { dst, _ = c.Decompress(dst[:0], payload, int(h.Length)) }
		if c.Algorithm() == frame.Zstd {
			e, d := bareZstd(b)
			whole := e.EncodeAll(src, nil)
			if !bytes.Equal(whole[4:], payload) {
				b.Fatal("the bare library makes another payload")
			}
			bareCompress = func() { dst = e.EncodeAll(src, dst[:0]) }
			bareDecompress = func() { dst, _ = d.DecodeAll(whole, dst[:0]) }
		}
		b.Run(name+"/pack", func(b *testing.B) {
			bare, ours := alternate(b, calls, bareCompress, func() { dst, _ = p.Pack(dst[:0], src) })
			if dst, _ = p.Pack(dst[:0], src); !bytes.Equal(dst, packed) {
				b.Fatal("packed to something else")
			}
			b.ReportMetric(bare, "ns-bare")
			b.ReportMetric(ours-bare, "ns-over-bare")
			b.ReportMetric(testing.AllocsPerRun(100, func() { dst, _ = p.Pack(dst[:0], src) }), "allocs")
		})
		b.Run(name+"/unpack", func(b *testing.B) {
			bare, ours := alternate(b, calls, bareDecompress, func() { dst, _ = p.Unpack(b.Context(), dst[:0], packed) })
			if dst, _ = p.Unpack(b.Context(), dst[:0], packed); !bytes.Equal(dst, src) {
				b.Fatal("unpacked to something else")
			}
			b.ReportMetric(bare, "ns-bare")
			b.ReportMetric(ours-bare, "ns-over-bare")
			b.ReportMetric(testing.AllocsPerRun(100, func() { dst, _ = p.Unpack(b.Context(), dst[:0], packed) }), "allocs")
		})
	}
}

// BenchmarkPooledAgainstNew compares two zstd round trips at 3.8 KB: "times-cheaper" is their
// ratio. One uses a Packer, which shares its contexts. The other makes a stream encoder and a
// stream decoder with default options for each value, as many programs do. Both have the same level
// and write the same bytes. The cost of making the two does not depend on the value. So the ratio
// grows as the value itself compresses faster: three values show how much.
func BenchmarkPooledAgainstNew(b *testing.B) {
	b.Run("log of one message", func(b *testing.B) { benchmarkPooledAgainstNew(b, testvalues.LogBatch(1, 1)) })
	b.Run("log of three messages", func(b *testing.B) { benchmarkPooledAgainstNew(b, testvalues.LogBatch(1, 3)) })
	b.Run("JSON with random ids", func(b *testing.B) { benchmarkPooledAgainstNew(b, testvalues.Page(1)) })
}

func benchmarkPooledAgainstNew(b *testing.B, src []byte) {
	p := newPacker(b, PackerOptions{Compressors: &compress.Set{Write: newCompressor(b, compress.Setting{Algorithm: frame.Zstd, Level: "default"}, nil)}})
	var packed, unpacked, fresh, again []byte
	pooled := func() {
		var err error
		packed, err = p.Pack(packed[:0], src)
		if err == nil {
			unpacked, err = p.Unpack(b.Context(), unpacked[:0], packed)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	newEach := func() {
		var out bytes.Buffer
		e, err := zstd.NewWriter(&out, zstd.WithEncoderCRC(false)) // the frame has a checksum already
		if err == nil {
			_, err = e.Write(src)
		}
		if err == nil {
			err = e.Close()
		}
		if err != nil {
			b.Fatal(err)
		}
		fresh = out.Bytes()
		d, err := zstd.NewReader(&out)
		if err == nil {
			again, err = io.ReadAll(d)
		}
		if err != nil {
			b.Fatal(err)
		}
		d.Close()
	}
	one, many := alternate(b, 500, pooled, newEach)
	_, offset, _ := frame.Parse(packed)
	if !bytes.Equal(packed[offset:], fresh[4:]) || !bytes.Equal(unpacked, src) || !bytes.Equal(again, src) {
		b.Fatal("the two do not write the same, or do not read it back")
	}
	b.ReportMetric(float64(len(src)), "B-value")
	b.ReportMetric(one, "ns-pooled")
	b.ReportMetric(many, "ns-new")
	b.ReportMetric(many/one, "times-cheaper")
}

// TestUnclosedEncoderWritesNothing shows a trap of benchmarks without a proved round trip. A stream
// encoder that is never closed or flushed is very fast, and has written nothing.
func TestUnclosedEncoderWritesNothing(t *testing.T) {
	var out bytes.Buffer
	e, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Write(testvalues.Page(1)); err != nil {
		t.Fatal(err)
	}
	if out.Len() != 0 {
		t.Errorf("%d bytes before Close: the trap is gone", out.Len())
	}
	if err := e.Close(); err != nil || out.Len() == 0 {
		t.Errorf("%d bytes after Close, %v", out.Len(), err)
	}
}

// BenchmarkPack and BenchmarkUnpack show each setting at the sizes that caches hold.
func BenchmarkPack(b *testing.B) { benchmarkSettings(b, false) }

// BenchmarkUnpack is the way back of BenchmarkPack.
func BenchmarkUnpack(b *testing.B) { benchmarkSettings(b, true) }

func benchmarkSettings(b *testing.B, unpack bool) {
	for _, s := range compress.Settings() {
		for name, src := range map[string][]byte{"450B": testvalues.Profile(1), "3.8KB": testvalues.Page(1)} {
			b.Run(s.String()+"/"+name, func(b *testing.B) {
				p := newPacker(b, PackerOptions{Compressors: &compress.Set{Write: newCompressor(b, s, nil)}})
				packed, err := p.Pack(nil, src)
				if err != nil {
					b.Fatal(err)
				}
				dst := make([]byte, 0, MaxPackedLen(len(src)))
				b.ReportAllocs()
				b.SetBytes(int64(len(src)))
				for b.Loop() {
					if unpack {
						dst, err = p.Unpack(b.Context(), dst[:0], packed)
					} else {
						dst, err = p.Pack(dst[:0], src)
					}
				}
				if err != nil || unpack && !bytes.Equal(dst, src) || !unpack && !bytes.Equal(dst, packed) {
					b.Fatalf("not the same at the end: %v", err)
				}
				b.ReportMetric(float64(len(src))/float64(len(packed)), "ratio")
			})
		}
	}
}
