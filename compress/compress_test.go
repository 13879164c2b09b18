package compress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/testvalues"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// variant is a setting with a dictionary or none.
type variant struct {
	Setting
	dictionary *frame.Dictionary
	name       string
}

func (v variant) String() string { return v.Setting.String() + v.name }

func (v variant) make(t testing.TB) Compressor {
	t.Helper()
	c, err := v.Setting.New(v.dictionary)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// variants is every setting with every kind of dictionary that it takes.
func variants(t testing.TB) []variant {
	t.Helper()
	raw, err := frame.NewDictionary(testvalues.RawDictionary())
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("../frame/testdata/trained.dict")
	if err != nil {
		t.Fatal(err)
	}
	trained, err := frame.NewDictionary(b)
	if err != nil {
		t.Fatal(err)
	}
	var all []variant
	for _, s := range Settings() {
		all = append(all, variant{s, nil, ""})
		if s.TakesDictionary() {
			all = append(all, variant{s, raw, "+raw"}, variant{s, trained, "+trained"})
		} else if _, err := s.New(raw); !errors.Is(err, ErrNoDictionary) && s.String() != "lz4:best" {
			t.Errorf("%v with a dictionary: %v", s, err)
		}
	}
	return all
}

// sizes go through the limits of every format: tokens of 15 and 255, blocks, windows and the small
// and large contexts of zstd.
var sizes = []int{0, 1, 2, 3, 4, 5, 11, 12, 13, 14, 15, 16, 17, 31, 63, 64, 65, 254, 255, 256, 257, 450, 1023, 1024, 1025, 3800, 16383, 16384, 65535, 65536, 65537, 131073, 1 << 20, 3 << 20}

func TestRoundTrip(t *testing.T) {
	for _, v := range variants(t) {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			c := v.make(t)
			if c.Algorithm() != v.Algorithm || c.DictionaryID() != v.dictionary.ID() {
				t.Errorf("%v, dictionary %v", c.Algorithm(), c.DictionaryID())
			}
			for _, kind := range testvalues.Kinds {
				for _, size := range sizes {
					if size > 200_000 && (v.Level == "best" && v.dictionary != nil || testvalues.Race) {
						continue // seconds for each
					}
					checkRoundTrip(t, c, fmt.Sprintf("%s of %d bytes", kind, size), testvalues.Of(kind, size))
				}
			}
			for i := range 50 {
				checkRoundTrip(t, c, "profile", testvalues.Profile(i))
			}
			corpora, err := testvalues.Corpora()
			if err != nil {
				t.Fatal(err)
			}
			for name, values := range corpora {
				for i, value := range values[:min(len(values), 100)] {
					checkRoundTrip(t, c, fmt.Sprint(name, i), value)
				}
			}
		})
	}
}

// TestRoundTripLarge: what hardly compresses is decoded whatever it could have been at most. With
// ints of 32 bits that overflowed: gzip refused random bytes from 2 MB on, and lz4 from 8 MB on.
func TestRoundTripLarge(t *testing.T) {
	random := testvalues.Of("random", 9<<20)
	for _, name := range []string{"gzip:fastest", "lz4", "s2", "zstd:fastest"} {
		setting, err := Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		checkRoundTrip(t, variant{setting, nil, ""}.make(t), name, random)
	}
}

func checkRoundTrip(t *testing.T, c Compressor, name string, src []byte) {
	t.Helper()
	original := bytes.Clone(src)
	payload, err := c.Compress([]byte("before"), src)
	if err != nil || !bytes.HasPrefix(payload, []byte("before")) {
		t.Fatalf("%s: compress: %v", name, err)
	}
	payload = payload[len("before"):]
	if bound := len(src) + len(src)/6 + 32; len(payload) > bound {
		t.Errorf("%s: payload of %d bytes, more than %d", name, len(payload), bound)
	}
	// Room to the byte, behind it what must not be touched.
	dst := append(make([]byte, 0, len("before")+len(src)+8), "before"...)
	guard := dst[:cap(dst)][len("before")+len(src):]
	copy(guard, "guarding")
	got, err := c.Decompress(dst, payload, len(src))
	if err != nil || string(got[:6]) != "before" || !bytes.Equal(got[6:], src) {
		t.Fatalf("%s: decompress: %v", name, err)
	}
	if string(guard) != "guarding" {
		t.Errorf("%s: written behind the end: %q", name, guard)
	}
	if !bytes.Equal(src, original) {
		t.Errorf("%s: the source was changed", name)
	}
	if got, err := c.Decompress(nil, payload, len(src)); err != nil || !bytes.Equal(got, src) { // and with no room at all
		t.Errorf("%s: decompress into a new buffer: %v", name, err)
	}
	// Sizes that the payload does not have.
	for _, size := range []int{0, len(src) - 1, len(src) + 1, 2*len(src) + 100} {
		if size < 0 || size == len(src) {
			continue
		}
		for _, dst := range [][]byte{[]byte("before"), nil} {
			if got, err := c.Decompress(dst, payload, size); err == nil || !bytes.Equal(got, dst) {
				t.Errorf("%s: %d bytes pass for %d: %v, %d bytes appended", name, len(src), size, err, len(got)-len(dst))
			}
		}
	}
}

// TestDamagedPayloads cuts and changes payloads: an error or other content is right (the frame's
// checksum tells), a panic or a byte written behind the end is not.
func TestDamagedPayloads(t *testing.T) {
	for _, v := range variants(t) {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			c := v.make(t)
			src := testvalues.Profile(1)
			payload, err := c.Compress(nil, src)
			if err != nil {
				t.Fatal(err)
			}
			dst := make([]byte, len(src)+64)
			try := func(payload []byte) {
				t.Helper()
				guard := dst[len(src):]
				for i := range guard {
					guard[i] = 0xA5
				}
				got, err := c.Decompress(dst[:0], payload, len(src))
				if err == nil && len(got) != len(src) || err != nil && len(got) != 0 {
					t.Errorf("%d bytes, %v", len(got), err)
				}
				for i, b := range guard {
					if b != 0xA5 {
						t.Fatalf("written %d bytes behind the end", i)
					}
				}
			}
			for n := range payload {
				try(payload[:n])
			}
			for bit := range len(payload) * 8 {
				payload[bit/8] ^= 1 << (bit % 8)
				try(payload)
				payload[bit/8] ^= 1 << (bit % 8)
			}
		})
	}
}

// forged are payloads of a few bytes that claim to hold size bytes.
func forged(a frame.Algorithm, size int) map[string][]byte {
	switch a {
	case frame.Snappy, frame.S2:
		claim := binary.AppendUvarint(nil, uint64(size))
		return map[string][]byte{
			"no element":   claim,
			"a literal":    append(slices.Clip(claim), 0, 'x'),
			"a long one":   append(slices.Clip(claim), 63<<2, 0xff, 0xff, 0xff, 0x03, 'x'),
			"a repeat":     append(slices.Clip(claim), 0, 'x', 1, 1, 7<<2|1, 0, 0xff, 0xff, 0xff),
			"a cut repeat": append(slices.Clip(claim), 0, 'x', 1, 1, 7<<2|1, 0),
		}
	case frame.Zstd:
		claim := binary.LittleEndian.AppendUint32([]byte{2<<6 | 1<<5}, uint32(size)) // in a single segment
		block := func(kind, n int) []byte {
			h := n<<3 | kind<<1 | 1
			return append(slices.Clip(claim), byte(h), byte(h>>8), byte(h>>16), 'x', 'x', 'x', 'x')[:len(claim)+3+[]int{n, 1, n}[kind]]
		}
		return map[string][]byte{
			"no block": claim, "a raw block": block(0, 4), "the same byte": block(1, 128<<10), "a compressed block": block(2, 4),
			"no size": {0, 0x80, 4<<3 | 2<<1 | 1, 0, 0, 'x', 'x', 'x', 'x'},
		}
	}
	return map[string][]byte{"bytes": []byte("a few bytes")}
}

// TestForgedLength: what a payload of a few bytes claims to hold is not allocated for it.
func TestForgedLength(t *testing.T) {
	const size, limit = 64 << 20, 1 << 20
	for _, v := range variants(t) {
		c := v.make(t)
		checkRoundTrip(t, c, "profile", testvalues.Profile(1)) // its contexts are made
		for name, payload := range forged(v.Algorithm, size) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got, err := c.Decompress(nil, payload, size)
			runtime.ReadMemStats(&after)
			if v.Algorithm != frame.Stored && err == nil {
				t.Errorf("%v: %s pass for %d bytes", v, name, len(got))
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > limit {
				t.Errorf("%v: %s: %d bytes allocated for a payload of %d", v, name, n, len(payload))
			}
		}
	}
}

// TestLongRepeats: a payload that is all but nothing beside its content may be all right.
func TestLongRepeats(t *testing.T) {
	src := make([]byte, 20<<20) // more than S2's longest repeat, many of zstd's blocks
	for _, name := range []string{"s2", "s2:better", "snappy", "lz4", "gzip:fastest", "zstd", "zstd:default"} {
		s, err := Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		c := variant{Setting: s}.make(t)
		payload, err := c.Compress(nil, src)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.Decompress(nil, payload, len(src)); err != nil || !bytes.Equal(got, src) {
			t.Errorf("%v: %d bytes: %v", s, len(payload), err)
		}
	}
}

// TestBytesAfterTheEnd: what follows a payload makes it another one, be it a frame that has no
// content.
func TestBytesAfterTheEnd(t *testing.T) {
	magic := []byte{0x28, 0xb5, 0x2f, 0xfd}
	for _, v := range variants(t) {
		c := v.make(t)
		for _, size := range []int{5, 450, 70_000} {
			src := testvalues.Of("json", size)
			payload, err := c.Compress(nil, src)
			if err != nil {
				t.Fatal(err)
			}
			for name, more := range map[string][]byte{
				"a byte": {1}, "two": {1, 2}, "three": {1, 2, 3}, "a skippable frame": {0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0},
				"an empty frame": append(slices.Clip(magic), 1<<5, 0, 1, 0, 0), "its own": payload,
			} {
				if _, err := c.Decompress(nil, append(slices.Clip(payload), more...), size); err == nil {
					t.Errorf("%v: %d bytes with %s after them pass", v, size, name)
				}
			}
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	for _, v := range variants(t) {
		c := v.make(t)
		var callers sync.WaitGroup
		for caller := range 4 {
			callers.Go(func() {
				for i := range 10 {
					src := testvalues.Profile(caller*10 + i)
					payload, err := c.Compress(nil, src)
					if err != nil {
						t.Error(err)
						return
					}
					if got, err := c.Decompress(nil, payload, len(src)); err != nil || !bytes.Equal(got, src) {
						t.Errorf("%v: %v", v, err)
					}
				}
			})
		}
		callers.Wait()
	}
}

// TestSoak: four callers pack and unpack values of all sizes without a pause, for BALE_SOAK, half a
// second by default. Every value comes back, at most one in a hundred allocates, and no memory is
// kept.
func TestSoak(t *testing.T) {
	lasting := 500 * time.Millisecond
	if s := os.Getenv("BALE_SOAK"); s != "" {
		var err error
		if lasting, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	var all []Compressor
	for _, v := range variants(t) {
		if v.Algorithm == frame.Zstd {
			all = append(all, v.make(t))
		}
	}
	var values [][]byte
	for i := range 200 {
		values = append(values, testvalues.Profile(i), testvalues.LogBatch(i, 1+i%3), testvalues.Page(i), testvalues.Of("random", 1<<(i%16)))
	}
	var done, bytesIn atomic.Int64
	run := func(until time.Time) (m runtime.MemStats) {
		var callers sync.WaitGroup
		for caller := range 4 {
			callers.Go(func() {
				var packed, back []byte
				for i := caller; ; i++ {
					if i%64 == caller && time.Now().After(until) {
						return
					}
					v, c := values[i*7%len(values)], all[i%len(all)]
					var err error
					if packed, err = c.Compress(packed[:0], v); err == nil {
						back, err = c.Decompress(back[:0], packed, len(v))
					}
					if err != nil || !bytes.Equal(back, v) {
						t.Errorf("setting %d, a value of %d bytes: another one, or %v", i%len(all), len(v), err)
						return
					}
					done.Add(1)
					bytesIn.Add(int64(len(v)))
				}
			})
		}
		callers.Wait()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m
	}
	first := run(time.Now().Add(lasting / 5))
	warm := done.Load()
	last := run(time.Now().Add(lasting))
	n := done.Load() - warm
	perValue := float64(last.TotalAlloc-first.TotalAlloc) / float64(n)
	t.Logf("%d values, %d MB: %.4f allocations and %.2f bytes for each; heap %.1f MB, was %.1f MB", n, bytesIn.Load()/1e6, float64(last.Mallocs-first.Mallocs)/float64(n), perValue, float64(last.HeapAlloc)/1e6, float64(first.HeapAlloc)/1e6)
	// Buffers grow to the largest value, and collections take contexts out of the pools: that is all.
	if allocations := int64(last.Mallocs - first.Mallocs); !testvalues.Race && allocations > n/100+5000 { // the race detector empties pools
		t.Errorf("%d allocations for %d values", allocations, n)
	}
	if last.HeapAlloc > first.HeapAlloc+32<<20 {
		t.Errorf("the heap grew from %d to %d bytes", first.HeapAlloc, last.HeapAlloc)
	}
}

func TestAllocations(t *testing.T) {
	if testvalues.Race {
		t.Skip("the race detector empties pools")
	}
	for _, v := range variants(t) {
		c := v.make(t)
		for _, src := range [][]byte{testvalues.Profile(1), testvalues.Page(1)} {
			payload, err := c.Compress(nil, src)
			if err != nil {
				t.Fatal(err)
			}
			dst := make([]byte, 0, 2*len(src)+100)
			if n := testing.AllocsPerRun(50, func() { c.Compress(dst, src) }); n > 0 {
				t.Errorf("%v: compressing %d bytes allocates %v times", v, len(src), n)
			}
			if n := testing.AllocsPerRun(50, func() { c.Decompress(dst, payload, len(src)) }); n > 0 {
				t.Errorf("%v: decompressing %d bytes allocates %v times", v, len(src), n)
			}
		}
	}
}

// TestMemoryOfDictionaries: a program with twenty groups, each with the largest dictionary that
// Train makes by itself, stays below 150 MiB, at the default level and at one that searches all
// matches. Four groups stand for the twenty.
func TestMemoryOfDictionaries(t *testing.T) {
	const groups, size, most = 4, 1 << 20, 4 * 150 << 20 / 20
	heap := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	for _, level := range []string{"", "9"} {
		before := heap()
		var all []Compressor
		for g := range groups {
			content := make([]byte, 0, size)
			for i := 0; len(content) < size-1000; i++ {
				content = append(content, testvalues.Profile(g<<16+i)...)
			}
			d, err := frame.NewDictionary(content)
			if err != nil {
				t.Fatal(err)
			}
			c, err := Setting{Algorithm: frame.Zstd, Level: level}.New(d)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			var callers sync.WaitGroup
			for i := range 4 {
				callers.Go(func() {
					v := testvalues.Profile(g<<16 + 100 + i)
					p, err := c.Compress(nil, v)
					if back, err2 := c.Decompress(nil, p, len(v)); err != nil || err2 != nil || !bytes.Equal(back, v) || len(p) > len(v)/5 {
						t.Errorf("%d bytes became %d: %v, %v", len(v), len(p), err, err2)
					}
				})
			}
			callers.Wait()
			all = append(all, c)
		}
		n := heap() - before
		if n > most || n < groups*size {
			t.Errorf("level %q: %d groups take %d bytes", level, groups, n)
		}
		t.Logf("level %q: %d dictionaries of %d bytes take %.0f MiB", level, groups, size, float64(n)/(1<<20))
		runtime.KeepAlive(all)
	}
}

// TestDictionaryPays: with a dictionary of similar values each is smaller than without, and only
// the same dictionary reads it.
func TestDictionaryPays(t *testing.T) {
	for _, v := range variants(t) {
		if v.dictionary == nil {
			continue
		}
		with, without := v.make(t), variant{Setting: v.Setting}.make(t)
		sizeWith, sizeWithout := 0, 0
		for i := range 100 {
			src := testvalues.Profile(i)
			a, err := with.Compress(nil, src)
			if err != nil {
				t.Fatal(err)
			}
			b, err := without.Compress(nil, src)
			if err != nil {
				t.Fatal(err)
			}
			sizeWith, sizeWithout = sizeWith+len(a), sizeWithout+len(b)
			if got, err := without.Decompress(nil, a, len(src)); err == nil && bytes.Equal(got, src) {
				t.Errorf("%v: read without the dictionary", v)
			}
		}
		if float64(sizeWith) > 0.8*float64(sizeWithout) {
			t.Errorf("%v: %d bytes with, %d without a dictionary", v, sizeWith, sizeWithout)
		}
	}
}

func TestZstdPayloadLeavesOutMagicAndID(t *testing.T) {
	for _, v := range variants(t) {
		if v.Algorithm != frame.Zstd {
			continue
		}
		c := v.make(t)
		for _, size := range []int{1, 200, 450, 2000, 70000, 300000} {
			payload, err := c.Compress(nil, testvalues.Of("json", size))
			if err != nil {
				t.Fatal(err)
			}
			if bytes.HasPrefix(payload, []byte{0x28, 0xB5, 0x2F, 0xFD}) || payload[0]&3 != 0 {
				t.Errorf("%v, %d bytes: payload starts with %x", v, size, payload[:4])
			}
		}
	}
}

// TestFrameOverhead checks what package frame says that a frame costs over the bare payload.
func TestFrameOverhead(t *testing.T) {
	for _, v := range variants(t) {
		for _, size := range []int{100, 127, 128, 16383, 16384, 2<<20 - 1} {
			h := frame.Header{Algorithm: v.Algorithm, DictionaryID: v.dictionary.ID(), HasChecksum: true, Length: uint64(size)}
			over := h.PayloadOffset()
			length := 1
			if size >= 128 {
				length++
			}
			if size >= 16384 {
				length++
			}
			want := 9 + length
			switch v.Algorithm {
			case frame.Snappy, frame.S2:
				want = 9
			case frame.Zstd:
				over -= 4 // the magic number that is left out
				want -= 4
			}
			if v.dictionary != nil {
				want += 4
			}
			if over != want {
				t.Errorf("%v, %d bytes: a frame costs %d bytes, want %d", v, size, over, want)
			}
			if over > 12 && (v.dictionary == nil || v.Algorithm == frame.Zstd) {
				t.Errorf("%v, %d bytes: a frame costs %d bytes, more than 12", v, size, over)
			}
		}
	}
}

func TestParse(t *testing.T) {
	for _, s := range Settings() {
		got, err := Parse(s.String())
		if err != nil || got != s {
			t.Errorf("%v: %v, %v", s, got, err)
		}
		if s.Algorithm.String() != s.String() {
			if _, err := Parse(s.Algorithm.String()); err != nil {
				t.Errorf("%v without level: %v", s, err)
			}
		}
	}
	for _, name := range []string{"", "zstd:", "zstd:huge", "none:fast", "brotli", "ZSTD", "zstd:fastest:", "s2 "} {
		if s, err := Parse(name); !errors.Is(err, ErrSetting) || !strings.Contains(err.Error(), "zstd:better") {
			t.Errorf("%q: %v, %v", name, s, err)
		}
	}
	if _, err := (Setting{frame.Zstd, "huge"}).New(nil); !errors.Is(err, ErrSetting) {
		t.Errorf("New: %v", err)
	}
	if (Setting{}).String() != "none" {
		t.Errorf("zero setting is %q", Setting{})
	}
}

func TestClosed(t *testing.T) {
	c, err := Setting{Algorithm: frame.Zstd}.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := c.Compress(nil, testvalues.Profile(1))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := c.Compress(nil, testvalues.Profile(1)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("compress: %v", err)
	}
	if _, err := c.Decompress(nil, payload, 450); !errors.Is(err, os.ErrClosed) {
		t.Errorf("decompress: %v", err)
	}
}

func TestBadDictionaries(t *testing.T) {
	trained, err := os.ReadFile("../frame/testdata/trained.dict")
	if err != nil {
		t.Fatal(err)
	}
	// A dictionary that is cut or changed is refused or works; it does not panic later.
	step := 7
	if testvalues.Race {
		step = 61 // there is nothing concurrent in it
	}
	for i := 16; i < len(trained); i += step {
		changed := bytes.Clone(trained)
		changed[i] ^= 0xff
		for _, b := range [][]byte{trained[:i], changed} {
			d, err := frame.NewDictionary(b)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range Settings() {
				if !s.TakesDictionary() || s.Level == "best" {
					continue
				}
				c, err := s.New(d)
				if err != nil {
					continue
				}
				src := testvalues.Profile(i)
				payload, err := c.Compress(nil, src)
				if err != nil {
					continue
				}
				if got, err := c.Decompress(nil, payload, len(src)); err != nil || !bytes.Equal(got, src) {
					t.Errorf("%v with a damaged dictionary (%d bytes, byte %d): %v", s, len(b), i, err)
				}
			}
		}
	}
}

// FuzzDictionary takes any value with any dictionary through the formats that have one; lz4's
// encoder is ours, its decoder is not.
func FuzzDictionary(f *testing.F) {
	f.Add(testvalues.RawDictionary(), testvalues.Profile(1))
	f.Add(testvalues.Of("zeros", 100), testvalues.Of("zeros", 1000))
	f.Add(testvalues.Of("text", 70000), testvalues.Of("text", 70000))
	f.Fuzz(func(t *testing.T, dictionary, src []byte) {
		d, err := frame.NewDictionary(dictionary)
		if err != nil {
			return
		}
		for _, name := range []string{"lz4", "s2", "s2:better", "zstd"} {
			s, err := Parse(name)
			if err != nil {
				t.Fatal(err)
			}
			c, err := s.New(d)
			if err != nil {
				continue // it looks like a trained dictionary, and is none
			}
			checkRoundTrip(t, c, name, src)
		}
	})
}

// TestCloseInUse closes compressors while others use them: each call works, or says that it is
// closed.
func TestCloseInUse(t *testing.T) {
	value := testvalues.Profile(1)
	for _, s := range Settings() {
		c := variant{Setting: s}.make(t)
		payload, err := c.Compress(nil, value)
		if err != nil {
			t.Fatal(err)
		}
		var users, started sync.WaitGroup
		started.Add(4)
		var closed atomic.Bool
		for range 4 {
			users.Go(func() {
				once := sync.OnceFunc(started.Done)
				for last := false; !last; {
					last = closed.Load()
					got, err := c.Decompress(nil, payload, len(value))
					if err == nil {
						_, err = c.Compress(nil, value)
					}
					once()
					if err == nil && !bytes.Equal(got, value) || err != nil && !errors.Is(err, os.ErrClosed) {
						t.Errorf("%v: %d bytes, %v", s, len(got), err)
						return
					}
				}
			})
		}
		started.Wait()
		if err := errors.Join(c.Close(), c.Close()); err != nil {
			t.Error(err)
		}
		closed.Store(true)
		users.Wait()
	}
}
