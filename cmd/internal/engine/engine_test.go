package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/balekv/bale"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/testvalues"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// settings are all that ParseForm takes, and how many combinations it refuses.
func settings(t testing.TB) (all []Setting, refused int) {
	t.Helper()
	base := compress.Settings()
	for _, level := range []string{"", "1", "3", "22"} {
		base = append(base, compress.Setting{Algorithm: frame.Zstd, Level: level})
	}
	for _, b := range base {
		for _, cgo := range []bool{false, true} {
			for _, form := range []Form{Pooled, Naive, Stream} {
				for _, dict := range []bool{false, true} {
					want := Setting{b, cgo, form, dict}
					got, err := ParseForm(want.String())
					switch {
					case err != nil:
						refused++
					case got != want:
						t.Errorf("%+v is spelled %q, which is read as %+v", want, want, got)
					default:
						all = append(all, got)
					}
				}
			}
		}
	}
	return all, refused
}

func TestEverySetting(t *testing.T) {
	all, refused := settings(t)
	if len(all) < 60 || refused < 60 {
		t.Errorf("%d settings are taken and %d refused", len(all), refused)
	}
	for _, s := range all {
		got, err := Parse(s.String())
		switch {
		case s.Form == Pooled && (err != nil || got != s):
			t.Errorf("Parse(%q) is %+v, %v", s, got, err)
		case s.Form != Pooled && !errors.Is(err, compress.ErrSetting):
			t.Errorf("Parse(%q) is %+v, %v, want ErrSetting", s, got, err)
		case s.Form != Pooled && got != Setting{}:
			t.Errorf("Parse(%q) is %+v beside its error", s, got)
		}
	}
}

func TestParseForm(t *testing.T) {
	zstd3 := compress.Setting{Algorithm: frame.Zstd, Level: "3"}
	for _, c := range []struct {
		name string
		want Setting
	}{
		{"zstd:3", Setting{Setting: zstd3}},
		{"zstd:3/naive", Setting{Setting: zstd3, Form: Naive}},
		{"zstd:3/cgo/naive", Setting{Setting: zstd3, Cgo: true, Form: Naive}},
		{"zstd:3/naive+dict", Setting{Setting: zstd3, Form: Naive, Dict: true}},
		{"zstd:3/cgo/stream+dict", Setting{Setting: zstd3, Cgo: true, Form: Stream, Dict: true}},
		{"gzip/naive", Setting{Setting: compress.Setting{Algorithm: frame.Gzip}, Form: Naive}},
		{"lz4:best/stream", Setting{Setting: compress.Setting{Algorithm: frame.LZ4, Level: "best"}, Form: Stream}},
		{"s2/naive+dict", Setting{Setting: compress.Setting{Algorithm: frame.S2}, Form: Naive, Dict: true}},
		{"snappy/stream", Setting{Setting: compress.Setting{Algorithm: frame.Snappy}, Form: Stream}},
	} {
		if len(Built(c.name)) == 0 {
			continue
		}
		got, err := ParseForm(c.name)
		if err != nil || got != c.want {
			t.Errorf("%q is %+v, %v, want %+v", c.name, got, err, c.want)
		}
		if got.String() != c.name {
			t.Errorf("%q is spelled %q", c.name, got)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct{ name, why string }{
		{"none/naive", "nothing to pool"},
		{"none/stream", "nothing to pool"},
		{"snappy/naive", "no encoder"},
		{"s2/naive", "s2/naive+dict"},
		{"s2:better/naive", "s2:better/naive+dict"},
		{"gzip/stream", "streams alone"},
		{"gzip:best/stream", "gzip:best is measured"},
		{"lz4/stream+dict", "take no dictionary"},
		{"s2/stream+dict", "take no dictionary"},
		{"gzip/naive+dict", "takes no dictionary"},
		{"lz4:best/naive+dict", "takes no dictionary"},
		{"gzip/cgo/naive", "/cgo is for zstd"},
		{"zstd/pooled", "no such setting"},
		{"zstd/naive/stream", "no such setting"},
		{"zstd/naive/cgo", "no such setting"},
		{"zstd+dict/naive", "no such setting"},
		{"zstd/naive/naive", "no such setting"},
		{"/naive", "no such setting"},
	} {
		if got, err := ParseForm(c.name); err == nil || !strings.Contains(err.Error(), c.why) || got != (Setting{}) {
			t.Errorf("ParseForm(%q) is %+v, %v, want an error with %q", c.name, got, err, c.why)
		}
	}
	if _, err := Parse("zstd:3/naive"); err == nil || !strings.Contains(err.Error(), "balebench run") {
		t.Errorf("Parse says %v and not what the form is for", err)
	}
}

func FuzzParseForm(f *testing.F) {
	all, _ := settings(f)
	for _, s := range all {
		f.Add(s.String())
	}
	f.Add("zstd:03/cgo/naive+dict+dict")
	f.Fuzz(func(t *testing.T, name string) {
		s, err := ParseForm(name)
		if err != nil {
			return
		}
		if s.String() != name {
			t.Errorf("%q is read as %q", name, s)
		}
		if _, err := Parse(name); (err == nil) != (s.Form == Pooled) {
			t.Errorf("Parse(%q): %v", name, err)
		}
	})
}

// text is a value that compresses.
func text(n int, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 0))
	words := []string{`"name":`, `"city":"Berlin",`, `"id":`, `"active":true,`, `"tags":["a","b"],`, `"note":null,`}
	var b []byte
	for len(b) < n {
		b = append(b, words[rng.IntN(len(words))]...)
		b = fmt.Appendf(b, "%d,", rng.IntN(1_000_000))
	}
	return b[:n]
}

// values are of all sizes that take another way through some library.
func values() [][]byte {
	random := make([]byte, 5000)
	rng := rand.New(rand.NewPCG(3, 3))
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	return [][]byte{{}, {'x'}, text(63, 1), text(407, 2), text(4096, 3), random, bytes.Repeat([]byte("ab"), 40_000), text(300_000, 4)}
}

// dictionaries are a trained one and one of plain content.
func dictionaries(t testing.TB) []*dict.Dictionary {
	t.Helper()
	samples := make([][]byte, 300)
	for i := range samples {
		samples[i] = text(1000, uint64(100+i))
	}
	raw, err := frame.NewDictionary(bytes.Join(samples[:8], nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range dict.Builders(compress.Setting{}) {
		content, err := b.Build(t.Context(), samples, 8<<10)
		if err == nil && bytes.HasPrefix(content, trainedMagic) {
			trained, err := frame.NewDictionary(content)
			if err != nil {
				t.Fatal(err)
			}
			return []*dict.Dictionary{trained, raw}
		}
	}
	t.Fatal("no builder makes a dictionary in zstd's format")
	return nil
}

// makes makes the compressor of a setting for as long as the test runs.
func makes(t testing.TB, s Setting, d *dict.Dictionary) compress.Compressor {
	t.Helper()
	c, err := s.New(d)
	if err != nil {
		t.Fatalf("%v: %v", s, err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("%v: %v", s, err)
		}
	})
	return c
}

// TestEnginesRoundTrip takes values through every form of every setting: bare, through frames, from
// several goroutines, and to a reader of another form where the format is the same.
func TestEnginesRoundTrip(t *testing.T) {
	all, _ := settings(t)
	dicts := dictionaries(t)
	for _, s := range all {
		if s.Form == Pooled || s.Level == "22" {
			continue
		}
		if testvalues.Race && s.Level != "" && (s.Level != "default" || s.Algorithm == frame.Zstd) {
			continue // the level is no matter to races
		}
		with := []*dict.Dictionary{nil}
		if s.Dict {
			with = dicts
			if slow(s) {
				with = dicts[:1]
			}
		}
		for i, d := range with {
			t.Run(fmt.Sprintf("%v/%d", s, i), func(t *testing.T) { roundTrip(t, s, d) })
		}
	}
}

// slow settings take tens of megabytes a context, and naive ones that for each value.
func slow(s Setting) bool {
	return s.Algorithm == frame.Zstd && (s.Level == "best" || s.Level == "22")
}

func roundTrip(t *testing.T, s Setting, d *dict.Dictionary) {
	c := makes(t, s, d)
	if c.Algorithm() != s.Algorithm || c.DictionaryID() != d.ID() {
		t.Errorf("it is said to be %v with %v", c.Algorithm(), c.DictionaryID())
	}
	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: c, Engine: s.Engine()}})
	if err != nil {
		t.Fatal(err)
	}
	defer packer.Close()
	var others []compress.Compressor // readers of the same format
	if s.Form == Naive || s.Algorithm == frame.Zstd {
		others = append(others, makes(t, Setting{Setting: s.Setting}, d), makes(t, Setting{Setting: s.Setting, Cgo: true}, d))
	}
	prefix := []byte("before")
	values, callers := values(), 4
	if slow(s) {
		values, callers = values[3:5], 1
	}
	for _, value := range values {
		payload, err := c.Compress(slices.Clone(prefix), value)
		if err != nil || !bytes.HasPrefix(payload, prefix) {
			t.Fatalf("compress %d bytes: %v, and what was there is %q", len(value), err, payload[:min(len(payload), len(prefix))])
		}
		payload = payload[len(prefix):]
		if len(payload) == 0 {
			t.Fatalf("%d bytes are none, compressed", len(value))
		}
		for _, r := range append(others, c) {
			got, err := r.Decompress(slices.Clone(prefix), payload, len(value))
			if err != nil || !bytes.Equal(got, append(slices.Clone(prefix), value...)) {
				t.Errorf("%d bytes come back from %T as %d bytes, %v", len(value), r, len(got)-len(prefix), err)
			}
		}
		for _, wrong := range []int{-1, 1} {
			if size := len(value) + wrong; size >= 0 {
				if got, err := c.Decompress(slices.Clone(prefix), payload, size); err == nil || !bytes.Equal(got, prefix) {
					t.Errorf("%d bytes are taken for %d: %d bytes, %v", len(value), size, len(got)-len(prefix), err)
				}
			}
		}
		for _, cut := range []int{0, 1, len(payload) / 2} {
			if got, err := c.Decompress(slices.Clone(prefix), payload[:cut], len(value)); len(value) > 0 && (err == nil || !bytes.Equal(got, prefix)) {
				t.Errorf("%d of %d bytes of payload are taken: %d bytes, %v", cut, len(payload), len(got)-len(prefix), err)
			}
		}
		stored, err := packer.Pack(nil, value)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := packer.Unpack(t.Context(), nil, stored); err != nil || !bytes.Equal(back, value) {
			t.Errorf("%d bytes come back from a frame as %d, %v", len(value), len(back), err)
		}
	}
	// A failed reader or writer does not affect the next ones.
	var all sync.WaitGroup
	for g := range callers {
		all.Go(func() {
			value := text(500+100*g, uint64(g))
			for range 5 {
				payload, err := c.Compress(nil, value)
				if err != nil {
					t.Error(err)
					return
				}
				if len(payload) >= len(value) {
					t.Errorf("%d bytes are %d, compressed", len(value), len(payload))
				}
				if got, err := c.Decompress(nil, payload, len(value)); err != nil || !bytes.Equal(got, value) {
					t.Errorf("%d bytes come back as %d, %v", len(value), len(got), err)
				}
			}
		})
	}
	all.Wait()
}

// unclosed is a program that does not close its streams.
type unclosed struct{ io.WriteCloser }

func (unclosed) Close() error { return nil }

// TestUnclosedStream makes the mistake by which a benchmark once compressed to zero bytes, and must
// notice it. A value from an unclosed stream must not come back from a frame as another value, nor
// look smaller than it is.
func TestUnclosedStream(t *testing.T) {
	for _, name := range Built("zstd/stream", "zstd:3/cgo/stream", "lz4/stream", "s2/stream", "snappy/stream") {
		for _, n := range []int{100, 4096, 5 << 20} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				if testvalues.Race && n > 1<<20 {
					t.Skip("slow")
				}
				s, err := ParseForm(name)
				if err != nil {
					t.Fatal(err)
				}
				c := makes(t, s, nil).(*streams)
				packer, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: c}})
				if err != nil {
					t.Fatal(err)
				}
				defer packer.Close()
				value := text(n, 1)
				roundTrip := func() error {
					stored, err := packer.Pack(nil, value)
					if err != nil {
						return err
					}
					back, err := packer.Unpack(t.Context(), nil, stored)
					if err == nil && !bytes.Equal(back, value) {
						t.Errorf("%d bytes of another value came back without an error", len(back))
					}
					return err
				}
				if err := roundTrip(); err != nil {
					t.Fatalf("closed: %v", err)
				}
				whole := c.writers.New
				c.writers = sync.Pool{New: func() any {
					e := whole().(*encoder)
					e.writer = unclosed{e.writer}
					return e
				}}
				// S2's writer, snappy's too, passes on at once what is larger than its buffer, and
				// its format has no end: nothing is missing.
				harmless := n > 1<<20 && s.Algorithm != frame.Zstd && s.Algorithm != frame.LZ4
				if err := roundTrip(); (err == nil) != harmless {
					t.Errorf("a stream that was not closed: %v", err)
				}
			})
		}
	}
}

// TestNothingWritten is the same mistake in a compressor that does not look at what it wrote: the
// frame finds it.
func TestNothingWritten(t *testing.T) {
	for _, name := range Built("zstd/stream", "zstd/naive", "zstd/cgo/naive", "gzip/naive", "lz4/stream") {
		s, err := ParseForm(name)
		if err != nil {
			t.Fatal(err)
		}
		c := makes(t, s, nil)
		nothing := &naive{algorithm: s.Algorithm, compress: func(dst, src []byte) ([]byte, error) { return dst, nil }, decompress: c.Decompress, pooled: c}
		packer, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: nothing}})
		if err != nil {
			t.Fatal(err)
		}
		defer packer.Close()
		stored, err := packer.Pack(nil, text(4096, 1))
		if err != nil || len(stored) > 32 {
			t.Fatalf("%s: %d bytes are stored, %v: the mistake is not made", name, len(stored), err)
		}
		if back, err := packer.Unpack(t.Context(), nil, stored); !errors.Is(err, bale.ErrCorrupt) {
			t.Errorf("%s: %d bytes come back of a payload of none, %v", name, len(back), err)
		}
	}
}

// TestLevels compares the output of the forms at each level. A naive one-shot call writes the same
// bytes as the pooled one if both call the same library with the same settings.
func TestLevels(t *testing.T) {
	if testvalues.Race {
		t.Skip("it is about bytes, and slow")
	}
	value := text(20_000, 9)
	sizes := map[string]map[string]int{}
	all, _ := settings(t)
	for _, s := range all {
		if s.Dict || s.Level == "22" {
			continue
		}
		payload, err := makes(t, s, nil).Compress(nil, value)
		if err != nil {
			t.Fatal(err)
		}
		group := fmt.Sprintf("%v %v", s.Algorithm, s.Cgo)
		if sizes[group] == nil {
			sizes[group] = map[string]int{}
		}
		sizes[group][s.Form.String()+" "+s.Level] = len(payload)
		pooled, err := makes(t, Setting{Setting: s.Setting, Cgo: s.Cgo}, nil).Compress(nil, value)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case s.Form == Naive && s.Cgo && !bytes.Equal(payload, pooled):
			t.Errorf("%v writes %d bytes, pooled %d others", s, len(payload), len(pooled))
		case len(payload) < len(pooled)*95/100, len(payload) > len(pooled)*105/100+32:
			t.Errorf("%v writes %d bytes, pooled %d: another level?", s, len(payload), len(pooled))
		}
	}
	for _, group := range []string{"zstd false", "zstd true"} {
		for _, form := range []string{"naive", "stream"} {
			if g := sizes[group]; g != nil && (g[form+" best"] >= g[form+" fastest"] || g[form+" 1"] != g[form+" fastest"] || g[form+" 3"] != g[form+" default"]) {
				t.Errorf("%s %s: sizes by level are %v", group, form, g)
			}
		}
	}
}

func TestStreamClosed(t *testing.T) {
	for _, d := range dictionaries(t) {
		s, err := ParseForm("zstd/stream+dict")
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.New(d)
		if err != nil {
			t.Fatal(err)
		}
		payload, err := c.Compress(nil, text(1000, 1))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := c.Compress(nil, []byte("x")); !errors.Is(err, errStreamClosed) {
			t.Errorf("closed, it compresses: %v", err)
		}
		if _, err := c.Decompress(nil, payload, 1000); !errors.Is(err, errStreamClosed) {
			t.Errorf("closed, it decompresses: %v", err)
		}
	}
}

func TestBadDictionary(t *testing.T) {
	b := append(slices.Clone(trainedMagic), bytes.Repeat([]byte{0xFF}, 1000)...)
	d, err := frame.NewDictionary(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Built("zstd/naive+dict", "zstd/stream+dict", "zstd/cgo/naive+dict", "zstd/cgo/stream+dict") {
		s, err := ParseForm(name)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := s.New(d); err == nil {
			t.Errorf("%s takes a dictionary that cannot be read", name)
			c.Close()
		}
	}
	for _, name := range []string{"lz4/stream", "snappy/stream"} {
		s, err := ParseForm(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.New(d); !errors.Is(err, compress.ErrNoDictionary) {
			t.Errorf("%s takes a dictionary: %v", name, err)
		}
	}
}

// TestHostileTables: a writer of the registry chooses the entropy tables of a dictionary. With any
// tables nothing panics, and a value comes back or is an error.
func TestHostileTables(t *testing.T) {
	const tables = 300 // bytes at the start that hold them
	good := dictionaries(t)[0].Bytes()
	r := rand.New(rand.NewPCG(1, 14))
	value := text(3000, 1)
	taken, refused := 0, 0
	for i := range 400 {
		b := slices.Clone(good)
		for range 1 + i%4 {
			b[4+r.IntN(tables)] = byte(r.Uint32())
		}
		if i%5 == 0 {
			b = b[:r.IntN(tables)+16]
		}
		d, err := frame.NewDictionary(b)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range Built("zstd/cgo", "zstd", "zstd/naive+dict", "zstd/stream+dict", "zstd/cgo/stream+dict") {
			s, err := ParseForm(name)
			if err != nil {
				t.Fatal(err)
			}
			c, err := s.New(d)
			if err != nil {
				refused++
				continue
			}
			taken++
			packed, err := c.Compress(nil, value)
			if err == nil {
				if got, err := c.Decompress(nil, packed, len(value)); err == nil && !bytes.Equal(got, value) {
					t.Errorf("%s: another value came back with dictionary %x", name, b[:tables])
				}
			}
			garbage := slices.Clone(packed)
			for range 5 {
				if len(garbage) > 0 {
					garbage[r.IntN(len(garbage))] ^= byte(r.Uint32())
				}
			}
			c.Decompress(nil, garbage, len(value))
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if taken < 50 || refused < 50 {
		t.Errorf("%d were taken, %d refused: the test shows little", taken, refused)
	}
}

func TestStreamAllocatesNothing(t *testing.T) {
	if testvalues.Race {
		t.Skip("the race detector empties pools")
	}
	for _, name := range Built("zstd/stream", "zstd/cgo/stream", "zstd/stream+dict") {
		s, err := ParseForm(name)
		if err != nil {
			t.Fatal(err)
		}
		var d *dict.Dictionary
		if s.Dict {
			d = dictionaries(t)[0]
		}
		c := makes(t, s, d)
		value := text(4096, 1)
		payload, back := make([]byte, 0, 8192), make([]byte, 0, 8192)
		if n := testing.AllocsPerRun(100, func() {
			if payload, err = c.Compress(payload[:0], value); err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("%s: compressing allocates %v times", name, n)
		}
		if n := testing.AllocsPerRun(100, func() {
			if back, err = c.Decompress(back[:0], payload, len(value)); err != nil {
				t.Fatal(err)
			}
		}); n > 1 { // klauspost's decoder allocates what its reset sets to nil
			t.Errorf("%s: decompressing allocates %v times", name, n)
		}
	}
}

// BenchmarkForms is what a value of 4 KB costs by form.
func BenchmarkForms(b *testing.B) {
	d := dictionaries(b)[0]
	value := text(4096, 1)
	for _, name := range Built(
		"zstd:3", "zstd:3/naive", "zstd:3/stream", "zstd:3+dict", "zstd:3/naive+dict", "zstd:3/stream+dict",
		"zstd:3/cgo", "zstd:3/cgo/naive", "zstd:3/cgo/stream", "zstd:3/cgo+dict", "zstd:3/cgo/naive+dict", "zstd:3/cgo/stream+dict",
		"gzip", "gzip/naive", "lz4", "lz4/naive", "lz4/stream", "lz4+dict", "lz4/naive+dict", "s2", "s2/stream", "s2+dict", "s2/naive+dict", "snappy", "snappy/stream",
	) {
		s, err := ParseForm(name)
		if err != nil {
			b.Fatal(err)
		}
		var with *dict.Dictionary
		if s.Dict {
			with = d
		}
		c := makes(b, s, with)
		payload, err := c.Compress(nil, value)
		if err != nil {
			b.Fatal(err)
		}
		buffer := make([]byte, 0, 2*len(value))
		b.Run("compress/"+name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(value)))
			for b.Loop() {
				if buffer, err = c.Compress(buffer[:0], value); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(value))/float64(len(payload)), "ratio")
		})
		b.Run("decompress/"+name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(value)))
			for b.Loop() {
				if buffer, err = c.Decompress(buffer[:0], payload, len(value)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
