package bale

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/bufpool"
	"github.com/balekv/bale/internal/testvalues"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// everyPacker writes with each setting in turn, and reads with the dictionaries of testdata as
// well.
func everyPacker(t testing.TB, o PackerOptions) []*Packer {
	t.Helper()
	readers := dictionaryReaders(t)
	var all []*Packer
	for _, s := range compress.Settings() {
		o.Compressors = &compress.Set{Write: newCompressor(t, s, nil), Read: readers}
		all = append(all, newPacker(t, o))
		if s.TakesDictionary() && s.Level != "best" {
			o.Compressors = &compress.Set{Write: newCompressor(t, s, readDict(t, trainedDictFile)), Read: readers}
			all = append(all, newPacker(t, o))
		}
	}
	return all
}

func mustPack(t testing.TB, p *Packer, src []byte) []byte {
	t.Helper()
	packed, err := p.Pack([]byte("before"), src)
	if err != nil || !bytes.HasPrefix(packed, []byte("before")) {
		t.Fatalf("pack %d bytes: %v", len(src), err)
	}
	return packed[len("before"):]
}

func checkUnpack(t testing.TB, p *Packer, packed, want []byte) {
	t.Helper()
	got, err := p.Unpack(t.Context(), []byte("before"), packed)
	if err != nil || !bytes.HasPrefix(got, []byte("before")) || !bytes.Equal(got[len("before"):], want) {
		t.Fatalf("unpack to %d bytes: %d bytes, %v", len(want), len(got)-len("before"), err)
	}
}

func TestEveryPackerReadsWhatEveryPackerWrote(t *testing.T) {
	values := [][]byte{nil, []byte("x"), []byte("12345"), testvalues.Profile(1), testvalues.Page(1), testvalues.Of("random", 1000), testvalues.Of("zeros", 100_000),
		[]byte("\xba"), []byte("\xba\x1e"), []byte("\xba\x1e\x05\x00\x00\x00"), append([]byte("\xba\x1e"), testvalues.Of("zeros", 1000)...)}
	packers := everyPacker(t, PackerOptions{})
	// Whole frames, and frames of frames, are values like any other.
	for _, p := range packers {
		frames := mustPack(t, p, testvalues.Page(2))
		values = append(values, frames, mustPack(t, p, frames))
	}
	for _, writer := range packers {
		for _, src := range values {
			packed := mustPack(t, writer, src)
			if len(packed) > len(src)+frame.MaxHeaderSize || !frame.HasMagic(src) && len(packed) > len(src) {
				t.Errorf("%d bytes are stored as %d", len(src), len(packed))
			}
			for _, reader := range packers {
				checkUnpack(t, reader, packed, src)
			}
		}
	}
}

func TestStoredPlain(t *testing.T) {
	zeros := testvalues.Of("zeros", 1000)
	for _, test := range []struct {
		name   string
		o      PackerOptions
		src    []byte
		packed bool
	}{
		{"a number", PackerOptions{}, []byte("42"), false},
		{"below MinSize", PackerOptions{}, zeros[:63], false},
		{"MinSize", PackerOptions{}, zeros[:64], true},
		{"own MinSize", PackerOptions{MinSize: 30}, zeros[:30], true},
		{"below own MinSize", PackerOptions{MinSize: 500}, zeros[:499], false},
		{"random", PackerOptions{}, testvalues.Of("random", 1000), false},
		{"random with any gain", PackerOptions{MinGain: -1}, testvalues.Of("random", 1000), false},
		{"too little gain", PackerOptions{MinGain: 0.9}, testvalues.Profile(1), false},
		{"enough gain", PackerOptions{MinGain: 0.9}, zeros, true},
		{"none", PackerOptions{Compressors: &compress.Set{Write: compress.None}}, zeros, false},
		{"above MaxSize", PackerOptions{MaxSize: 999}, zeros, false},
		{"MaxSize", PackerOptions{MaxSize: 1000}, zeros, true},
		{"starts like a frame", PackerOptions{}, []byte("\xba\x1e"), true},
	} {
		p := newPacker(t, test.o)
		stored := mustPack(t, p, test.src)
		if _, _, ok := frame.Parse(stored); ok != test.packed {
			t.Errorf("%s: packed %v", test.name, ok)
		}
		if !test.packed && !bytes.Equal(stored, test.src) {
			t.Errorf("%s: not stored as it is", test.name)
		}
		checkUnpack(t, p, stored, test.src)
	}
}

func TestChecksum(t *testing.T) {
	src := testvalues.Profile(1)
	with, without := mustPack(t, newPacker(t, PackerOptions{}), src), mustPack(t, newPacker(t, PackerOptions{NoChecksum: true}), src)
	if len(with)-len(without) != 4 {
		t.Errorf("%d bytes with a checksum, %d without", len(with), len(without))
	}
	// Who writes none verifies all the same.
	changed := frame.Header{Algorithm: frame.Stored, HasChecksum: true, Checksum: 1, Length: 4}.Append(nil)
	if _, err := newPacker(t, PackerOptions{NoChecksum: true}).Unpack(t.Context(), nil, append(changed, "that"...)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("error %v", err)
	}
}

func TestUnpackErrors(t *testing.T) {
	src := testvalues.Profile(3)
	packed := mustPack(t, newPacker(t, PackerOptions{}), src)
	damaged := bytes.Clone(packed)
	damaged[len(damaged)-1] ^= 1
	withDictionary := mustPack(t, newPacker(t, PackerOptions{Compressors: &compress.Set{Write: newCompressor(t, compress.Setting{Algorithm: frame.Zstd}, readDict(t, trainedDictFile))}}), src)
	header := func(h frame.Header) []byte { return append(h.Append(nil), "payload"...) }
	for _, test := range []struct {
		name    string
		o       PackerOptions
		stored  []byte
		want    error
		message string
	}{
		{"damaged", PackerOptions{}, damaged, ErrCorrupt, "packed with zstd: corrupt value: "},
		{"cut", PackerOptions{}, packed[:len(packed)/2], ErrCorrupt, "packed with zstd: corrupt value: "},
		{"too large", PackerOptions{MaxSize: 100}, packed, ErrTooLarge, fmt.Sprintf("packed with zstd: value too large: %d bytes decoded, and MaxSize is 100", len(src))},
		{"huge", PackerOptions{}, header(frame.Header{Algorithm: frame.LZ4, Length: math.MaxInt64}), ErrTooLarge, "packed with lz4: value too large"},
		{"dictionary", PackerOptions{}, withDictionary, ErrUnknownDictionary, "packed with zstd, dictionary " + readDict(t, trainedDictFile).ID().String() + ": unknown dictionary"},
		{"algorithm", PackerOptions{}, header(frame.Header{Algorithm: 11, Length: 1}), ErrUnknownAlgorithm, "packed with algorithm 11: unknown algorithm"},
		{"algorithm with dictionary", PackerOptions{}, header(frame.Header{Algorithm: 11, DictionaryID: 5, Length: 1}), ErrUnknownAlgorithm, "packed with algorithm 11, dictionary 00000005: unknown algorithm"},
		{"version", PackerOptions{}, header(frame.Header{Version: 3, Algorithm: frame.Zstd, Length: 1}), ErrUnknownAlgorithm, "frame version 3"},
	} {
		dst := []byte("before")
		got, err := newPacker(t, test.o).Unpack(t.Context(), dst, test.stored)
		var de *DecodeError
		if !errors.Is(err, test.want) || !errors.As(err, &de) || !strings.Contains(fmt.Sprint(err), test.message) {
			t.Errorf("%s: error %v, want %q", test.name, err, test.message)
		}
		if string(got) != "before" {
			t.Errorf("%s: %d bytes are handed out", test.name, len(got)-6)
		}
		for _, class := range []error{ErrCorrupt, ErrTooLarge, ErrUnknownDictionary, ErrUnknownAlgorithm, ErrNotFound, ErrInvalid} {
			if errors.Is(err, class) != (class == test.want) {
				t.Errorf("%s: error %v is %v", test.name, err, class)
			}
		}
		if strings.Contains(fmt.Sprint(err), "example.com") {
			t.Errorf("%s: the error holds the value", test.name)
		}
	}
	if _, err := newPacker(t, PackerOptions{Strict: true}).Unpack(t.Context(), nil, []byte("\xba\x1e\x00\x00\x00\x00")); !errors.Is(err, ErrCorrupt) {
		t.Errorf("strict: %v", err)
	}
	if _, err := newPacker(t, PackerOptions{MaxSize: 10}).Pack(nil, []byte("\xba\x1e and more than that")); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a large value that would have to be escaped: %v", err)
	}
}

// TestForgedLengthAllocatesNothing: what a frame claims is checked before anything is allocated for
// it.
func TestForgedLengthAllocatesNothing(t *testing.T) {
	p := newPacker(t, PackerOptions{MaxSize: 1 << 20})
	for a := range frame.Algorithm(6) {
		stored := append(frame.Header{Algorithm: a, Length: 1 << 40}.Append(nil), "payload"...)
		if a.LengthInPayload() {
			stored = append(frame.Header{Algorithm: a, Length: 1 << 40}.Append(nil), 0x80, 0x80, 0x80, 0x80, 0x80, 0x20)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := p.Unpack(t.Context(), nil, stored)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrTooLarge) || after.TotalAlloc-before.TotalAlloc > 64<<10 {
			t.Errorf("%v: %v, %d bytes allocated", a, err, after.TotalAlloc-before.TotalAlloc)
		}
	}
}

// TestForgedClaimAllocatesLittle: memory grows with the decoded content. The frames here claim 64
// MiB in every header, and fail early.
func TestForgedClaimAllocatesLittle(t *testing.T) {
	if testvalues.Race {
		t.Skip("the race detector allocates, and empties pools")
	}
	const size = 64 << 20
	p := newPacker(t, PackerOptions{MaxSize: size})
	for name, test := range testvalues.Claims(size) {
		stored := append(frame.Header{Algorithm: test.Algorithm, Length: size}.Append(nil), test.Payload...)
		if h, _, ok := frame.Parse(stored); !ok || h.Length != size {
			t.Fatalf("%s: not a frame", name)
		}
		for range 2 { // the contexts are made at first
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := p.Unpack(t.Context(), nil, stored)
			runtime.ReadMemStats(&after)
			allocated := after.TotalAlloc - before.TotalAlloc
			if !errors.Is(err, ErrCorrupt) || allocated > 2<<20+200*uint64(len(stored)) {
				t.Errorf("%s, %d bytes: %v, %d KiB allocated", name, len(stored), err, allocated>>10)
			}
			t.Logf("%s: %d KiB, %v", name, allocated>>10, err)
		}
	}
	// A claim of a usual size is not allocated either.
	for name, test := range testvalues.Claims(1 << 20) {
		if name == "zstd that decodes in part" {
			continue // and takes memory for that part
		}
		stored := append(frame.Header{Algorithm: test.Algorithm, Length: 1 << 20}.Append(nil), test.Payload...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := p.Unpack(t.Context(), nil, stored)
		runtime.ReadMemStats(&after)
		if allocated := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, ErrCorrupt) || allocated > 300<<10+64*uint64(len(stored)) {
			t.Errorf("%s, %d bytes that claim 1 MiB: %v, %d KiB allocated", name, len(stored), err, allocated>>10)
		}
	}
	// An honest frame of that size is still decoded, in not much more memory than it needs.
	content := make([]byte, size)
	for _, s := range compress.Settings() {
		if s.Algorithm == frame.Stored || s.Level == "best" || s.Level == "better" {
			continue
		}
		c, err := s.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		packed := mustPack(t, newPacker(t, PackerOptions{Compressors: &compress.Set{Write: c}, MaxSize: size}), content)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := p.Unpack(t.Context(), nil, packed)
		runtime.ReadMemStats(&after)
		if allocated := after.TotalAlloc - before.TotalAlloc; err != nil || !bytes.Equal(got, content) || allocated > 2*size {
			t.Errorf("%v: %d bytes, %v, %d MiB allocated", s, len(got), err, allocated>>20)
		}
	}
}

// fake is a compressor that does not keep its word.
type fake struct {
	compress.Compressor
	algorithm frame.Algorithm
	err       error
	out       string
}

func (f *fake) Algorithm() frame.Algorithm               { return f.algorithm }
func (f *fake) Compress(dst, src []byte) ([]byte, error) { return append(dst, "small"...), f.err }
func (f *fake) Decompress(dst, src []byte, size int) ([]byte, error) {
	return append(dst, f.out...), f.err
}

func TestReadersOfOthers(t *testing.T) {
	src := testvalues.Of("zeros", 100)
	broken := errors.New("broken")
	writer := &fake{Compressor: compress.None, algorithm: 12, err: broken}
	if got, err := newPacker(t, PackerOptions{Compressors: &compress.Set{Write: writer}}).Pack([]byte("before"), src); !errors.Is(err, broken) || string(got) != "before" {
		t.Errorf("pack: %q, %v", got, err)
	}
	writer.err = nil
	p := newPacker(t, PackerOptions{Compressors: &compress.Set{Write: writer}})
	packed := mustPack(t, p, src)
	for out, want := range map[string]error{string(src): nil, string(src[:99]): ErrCorrupt, string(src) + "x": ErrCorrupt, strings.Repeat("x", 100): ErrCorrupt} {
		writer.out = out
		if got, err := p.Unpack(t.Context(), nil, packed); !errors.Is(err, want) || (want != nil) != (err != nil) || err != nil && len(got) > 0 {
			t.Errorf("a reader that gives %d bytes: %d bytes, %v", len(out), len(got), err)
		}
	}
	writer.err = os.ErrClosed
	if _, err := p.Unpack(t.Context(), nil, packed); !errors.Is(err, os.ErrClosed) || errors.Is(err, ErrCorrupt) {
		t.Errorf("a closed reader: %v", err)
	}
}

func TestPackerOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]PackerOptions{
		"MinSize": {MinSize: -1}, "MaxSize": {MaxSize: -1}, "MinGain": {MinGain: 1}, "MinGain NaN": {MinGain: math.NaN()},
		"Budget": {Budget: -1}, "Budget below MaxSize": {Budget: 1 << 20}, "nil reader": {Compressors: &compress.Set{Read: []Compressor{nil}}},
		"algorithm 16": {Compressors: &compress.Set{Write: &fake{Compressor: compress.None, algorithm: 16}}}, "no writer": {Compressors: &dynamic{}},
	} {
		if _, err := NewPacker(o); !errors.Is(err, ErrInvalid) || !strings.HasPrefix(err.Error(), "bale: invalid argument: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPackAllocations(t *testing.T) {
	if testvalues.Race {
		t.Skip("the race detector empties pools")
	}
	for _, p := range everyPacker(t, PackerOptions{}) {
		for _, src := range [][]byte{testvalues.Profile(1), testvalues.Page(1), testvalues.Of("random", 1000)} {
			packed := mustPack(t, p, src)
			dst := make([]byte, 0, MaxPackedLen(len(src)))
			if n := testing.AllocsPerRun(50, func() { p.Pack(dst, src) }); n > 0 {
				t.Errorf("%v: packing %d bytes allocates %v times", p.compressors.Writer().Algorithm(), len(src), n)
			}
			dst = make([]byte, 0, len(src))
			if n := testing.AllocsPerRun(50, func() { p.Unpack(t.Context(), dst, packed) }); n > 0 {
				t.Errorf("%v: unpacking %d bytes allocates %v times", p.compressors.Writer().Algorithm(), len(src), n)
			}
		}
	}
}

func TestMaxPackedLen(t *testing.T) {
	for _, p := range everyPacker(t, PackerOptions{MinGain: -1}) {
		for _, n := range []int{64, 65, 1000, 70_000, 300_000} {
			dst := make([]byte, 0, MaxPackedLen(n))
			got, err := p.Pack(dst, testvalues.Of("random", n))
			if err != nil || &got[0] != &dst[:1][0] {
				t.Errorf("%v: %d bytes do not fit into MaxPackedLen, %v", p.compressors.Writer().Algorithm(), n, err)
			}
		}
	}
}

func TestPoolsKeepNoLargeBuffers(t *testing.T) {
	large := bufpool.Get()
	large.B = make([]byte, bufpool.MaxCap+1)
	bufpool.Put(large)
	for range 100 {
		if b := bufpool.Get(); cap(b.B) > bufpool.MaxCap {
			t.Fatalf("a buffer of %d bytes was kept", cap(b.B))
		}
	}
}

// checkHostile unpacks a value that anyone may have made. The result must be an error or the
// original content, or the value itself if it is no frame. Frames without a checksum may decode to
// other content.
func checkHostile(t testing.TB, p *Packer, dst, stored, original []byte, maxSize int) {
	got, err := p.Unpack(t.Context(), dst[:0], stored)
	h, _, isFrame := frame.Parse(stored)
	switch {
	case err != nil:
		if len(got) != 0 {
			t.Fatalf("an error and %d bytes: %v", len(got), err)
		}
		if !isFrame {
			t.Fatalf("a value that is no frame: %v", err)
		}
	case !isFrame:
		if !bytes.Equal(got, stored) {
			t.Fatal("a foreign value was changed")
		}
	case len(got) > maxSize || uint64(len(got)) != h.Length:
		t.Fatalf("%d bytes decoded, the header says %d", len(got), h.Length)
	case h.HasChecksum && frame.Checksum(got) != h.Checksum:
		t.Fatal("content with another checksum")
	case original != nil && h.HasChecksum && !bytes.Equal(got, original):
		t.Fatalf("wrong data: %v", h.Algorithm)
	}
}

// TestHostileInput tries damaged and forged values: BALE_FUZZ_N of them, or 20,000. It also watches
// the memory. A call may allocate the limit on the decoded size plus 16 MiB, garbage included, and
// must keep none of it.
func TestHostileInput(t *testing.T) {
	n := 20_000
	if s := os.Getenv("BALE_FUZZ_N"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	const maxSize = 8 << 20
	readers := dictionaryReaders(t)
	var frames, contents [][]byte
	for _, p := range everyPacker(t, PackerOptions{}) {
		for i := range 3 {
			for _, src := range [][]byte{testvalues.Profile(i), testvalues.Page(i), testvalues.Of("zeros", 5000), []byte("\xba\x1e escaped")} {
				frames, contents = append(frames, mustPack(t, p, src)), append(contents, src)
			}
		}
	}
	p := newPacker(t, PackerOptions{Compressors: &compress.Set{Read: readers}, MaxSize: maxSize})
	for i := range frames { // the contexts are made before the memory is measured
		checkUnpack(t, p, frames[i], contents[i])
	}
	dst := make([]byte, 0, 64<<10)
	var start, end runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&start)
	allocated := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	rng := rand.New(rand.NewPCG(1, 2))
	frameSeen, errorSeen := 0, 0
	var peak uint64
	for i := range n {
		k := rng.IntN(len(frames))
		var stored, original []byte
		if i%4 == 0 {
			payload := frames[k][min(len(frames[k]), rng.IntN(16)):]
			stored = testvalues.Forge(rng, payload)
		} else {
			stored, original = testvalues.Mutate(rng, frames[k]), contents[k]
		}
		metrics.Read(allocated)
		before := allocated[0].Value.Uint64()
		checkHostile(t, p, dst, stored, original, maxSize)
		metrics.Read(allocated)
		peak = max(peak, allocated[0].Value.Uint64()-before)
		if _, _, ok := frame.Parse(stored); ok {
			frameSeen++
			if _, err := p.Unpack(t.Context(), dst[:0], stored); err != nil {
				errorSeen++
			}
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&end)
	kept := int64(end.HeapAlloc) - int64(start.HeapAlloc)
	t.Logf("%d values, %d of them frames, %d errors; a call allocated at most %.1f MiB, and %.1f MiB were kept in the end",
		n, frameSeen, errorSeen, float64(peak)/(1<<20), float64(kept)/(1<<20))
	if frameSeen < n/4 || errorSeen < n/5 {
		t.Errorf("only %d frames and %d errors among %d: the test does not reach the decoders", frameSeen, errorSeen, n)
	}
	if peak > maxSize+16<<20 || kept > 16<<20 {
		t.Errorf("a call allocated %d MiB, more than the limit and 16 MiB, or %d MiB were kept", peak>>20, kept>>20)
	}
}

// FuzzUnpack: arbitrary bytes never panic, never come back as wrong data, and never are more than
// the limit.
func FuzzUnpack(f *testing.F) {
	for _, p := range everyPacker(f, PackerOptions{}) {
		f.Add(mustPack(f, p, testvalues.Profile(1)))
		f.Add(mustPack(f, p, testvalues.Of("zeros", 2000)))
	}
	const maxSize = 1 << 20
	p := newPacker(f, PackerOptions{Compressors: &compress.Set{Read: dictionaryReaders(f)}, MaxSize: maxSize})
	f.Fuzz(func(t *testing.T, stored []byte) { checkHostile(t, p, nil, stored, nil, maxSize) })
}

// FuzzRoundTrip: any value comes back, through every setting, read by one Packer.
func FuzzRoundTrip(f *testing.F) {
	packers := everyPacker(f, PackerOptions{MinSize: 1, MinGain: -1})
	reader := newPacker(f, PackerOptions{Compressors: &compress.Set{Read: dictionaryReaders(f)}})
	f.Add(testvalues.Profile(1))
	f.Add([]byte("\xba\x1e"))
	f.Add(mustPack(f, packers[len(packers)-1], testvalues.Profile(1)))
	f.Fuzz(func(t *testing.T, src []byte) {
		for _, p := range packers {
			checkUnpack(t, reader, mustPack(t, p, src), src)
		}
	})
}

// FuzzMutated: a frame that was changed is an error or the original content, whatever was changed.
func FuzzMutated(f *testing.F) {
	packers := everyPacker(f, PackerOptions{})
	reader := newPacker(f, PackerOptions{Compressors: &compress.Set{Read: dictionaryReaders(f)}})
	for i := range packers {
		f.Add(testvalues.Profile(i), uint8(i), uint64(i))
	}
	f.Fuzz(func(t *testing.T, src []byte, which uint8, seed uint64) {
		packed := mustPack(t, packers[int(which)%len(packers)], src)
		checkHostile(t, reader, nil, testvalues.Mutate(rand.New(rand.NewPCG(seed, 0)), packed), src, defaultMaxSize)
	})
}

// TestEscape: what Unpack would take for a frame is escaped, and nothing else is changed.
func TestEscape(t *testing.T) {
	p, strict := newPacker(t, PackerOptions{}), newPacker(t, PackerOptions{Strict: true, MaxSize: 2000})
	packed := mustPack(t, p, testvalues.Profile(1))
	for name, v := range map[string]struct {
		src             []byte
		escaped, strict bool
	}{
		"nothing": {nil, false, false}, "text": {testvalues.Profile(1), false, false}, "magic": {[]byte("\xba\x1e\x00\x00\x00\x00"), false, true},
		"a frame": {packed, true, true}, "an escaped one": {mustPack(t, p, packed), true, true},
	} {
		for _, p := range []*Packer{p, strict} {
			want := v.escaped || p == strict && v.strict
			got, err := p.Escape([]byte("before"), v.src)
			if err != nil || !bytes.HasPrefix(got, []byte("before")) || !bytes.HasSuffix(got, v.src) || (len(got) > len("before")+len(v.src)) != want {
				t.Errorf("%s: %q, %v", name, got, err)
				continue
			}
			checkUnpack(t, p, got[len("before"):], v.src)
		}
	}
	large := append(bytes.Clone(packed), make([]byte, 2000)...)
	if got, err := strict.Escape([]byte("before"), large); !errors.Is(err, ErrTooLarge) || string(got) != "before" {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if got, err := strict.Escape(nil, make([]byte, 3000)); err != nil || len(got) != 3000 {
		t.Errorf("a large value that is no frame: %d bytes, %v", len(got), err)
	}
}

// TestFrameIsEscaped: a value that is a frame is not packed again, however much smaller that would
// make it, so that the dictionary that it needs can be seen.
func TestFrameIsEscaped(t *testing.T) {
	packer := func(a frame.Algorithm) *Packer {
		t.Helper()
		c, err := compress.Setting{Algorithm: a}.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := NewPacker(PackerOptions{Compressors: &compress.Set{Write: c}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	var value []byte
	for i := range 100 {
		value = fmt.Appendf(value, `{"id":%d,"name":"user %d","email":"user%d@example.org"}`, i, i*7919, i*31)
	}
	inner, err := packer(frame.LZ4).Pack(nil, value)
	if err != nil {
		t.Fatal(err)
	}
	outer := packer(frame.Zstd)
	stored, err := outer.Pack(nil, inner)
	if err != nil {
		t.Fatal(err)
	}
	if h, at, ok := frame.Parse(stored); !ok || h.Algorithm != frame.Stored || !bytes.Equal(stored[at:], inner) {
		t.Errorf("a frame of %d bytes became %d bytes with %v", len(inner), len(stored), h.Algorithm)
	}
	if back, err := outer.Unpack(t.Context(), nil, stored); err != nil || !bytes.Equal(back, inner) {
		t.Errorf("%d bytes, %v", len(back), err)
	}
}
