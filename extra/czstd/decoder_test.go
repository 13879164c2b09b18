//go:build cgo

package czstd

import (
	"bytes"
	"cmp"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/valyala/gozstd"

	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/testvalues"
	"github.com/balekv/bale/internal/zstd"
)

// decoder is the one in pure Go.
func decoder(t testing.TB, d *frame.Dictionary) *zstd.Decoder {
	t.Helper()
	if d == nil {
		return zstd.NewDecoder(nil)
	}
	dictionary, err := zstd.NewDictionary(d.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return zstd.NewDecoder(dictionary)
}

// decoderValues are the corpora, profiles, and values that make large and several blocks.
func decoderValues(t testing.TB) [][]byte {
	t.Helper()
	all := values()
	for i := range 50 {
		all = append(all, profile(i), testvalues.Page(i))
	}
	all = append(all, bytes.Repeat(testvalues.LogBatch(1, 3), 200), testvalues.Of("zeros", 400_000), bytes.Repeat([]byte("0123456789abcdef"), 20_000))
	corpora, err := testvalues.Corpora()
	if err != nil {
		t.Fatal(err)
	}
	for _, values := range corpora {
		for i := 0; i < len(values); i += 1 + len(values)/100 {
			all = append(all, values[i])
		}
		all = append(all, bytes.Join(values[:min(len(values), 300)], nil))
	}
	return all
}

// TestDecoderReadsLibrary: frames of every level, with and without a dictionary, come back.
func TestDecoderReadsLibrary(t *testing.T) {
	values := decoderValues(t)
	for name, d := range dictionaries(t) {
		ours := decoder(t, d)
		for level := -5; level <= 22; level++ {
			if level == 0 || testing.Short() && level > 6 {
				continue
			}
			c := native(t, level, d)
			for i, v := range values {
				if len(v) > 50_000 && level%4 != 3 {
					continue // as slow as they are large
				}
				payload, err := c.Compress(nil, v)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := ours.Decode(nil, payload, len(v)); err != nil || !bytes.Equal(got, v) {
					t.Fatalf("dictionary %s, level %d, value %d of %d bytes: %v", name, level, i, len(v), err)
				}
			}
		}
	}
}

// splice changes a frame: as faults do, or by a part of another.
func splice(rng *rand.Rand, a, b []byte) []byte {
	switch rng.IntN(4) {
	case 0: // the end of another
		return append(bytes.Clone(a[:rng.IntN(len(a)+1)]), b[rng.IntN(len(b)+1):]...)
	case 1: // a single bit, where that is still a frame
		a = bytes.Clone(a)
		a[rng.IntN(len(a))] ^= 1 << rng.IntN(8)
		return a
	case 2: // the size of its block fits again
		a = testvalues.Mutate(rng, a)
		if at := 3; len(a) > at+3 && len(a) < 1<<16 {
			a[at] = a[at]&7 | byte(len(a)-at-3)<<3
			a[at+1] = byte((len(a) - at - 3) >> 5)
		}
		return a
	}
	return testvalues.Mutate(rng, a)
}

// fuzzRuns is how many inputs a test tries: BALE_FUZZ_N or 20,000.
func fuzzRuns(t testing.TB) int {
	s := cmp.Or(os.Getenv("BALE_FUZZ_N"), "20000")
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestDecoderOnDamage: what the decoder accepts, libzstd accepts, with the same content. It tries
// BALE_FUZZ_N damaged frames or 20,000.
func TestDecoderOnDamage(t *testing.T) {
	n := fuzzRuns(t)
	rng := rand.New(rand.NewPCG(5, 6))
	for name, d := range dictionaries(t) {
		ours, library := decoder(t, d), native(t, 3, d)
		var frames, contents [][]byte
		for _, level := range []int{-3, 1, 3, 9, 19} {
			c := native(t, level, d)
			for i, v := range append(decoderValues(t)[:30], testvalues.LogBatch(1, 3), bytes.Repeat([]byte("ab"), 3000)) {
				if len(v) > 10_000 {
					continue
				}
				payload, err := c.Compress(nil, v)
				if err != nil {
					t.Fatal(err)
				}
				if frames, contents = append(frames, payload), append(contents, v); len(payload) == 0 {
					t.Fatalf("value %d has no frame", i)
				}
			}
		}
		accepted, refused, stricter := 0, 0, map[string]int{}
		a, b := make([]byte, 0, 16<<10), make([]byte, 0, 16<<10)
		for range n {
			k := rng.IntN(len(frames))
			damaged := splice(rng, frames[k], frames[rng.IntN(len(frames))])
			size := len(contents[k])
			got, err := ours.Decode(a, damaged, size)
			want, libraryErr := library.Decompress(b, damaged, size)
			switch {
			case err == nil && (libraryErr != nil || !bytes.Equal(got, want)):
				t.Fatalf("dictionary %s: %x as %d bytes is accepted; libzstd: %v", name, damaged, size, libraryErr)
			case err == nil:
				accepted++
			case !errors.Is(err, zstd.ErrCorrupt) || len(got) != 0:
				t.Fatalf("%d bytes, %v", len(got), err)
			case libraryErr == nil:
				stricter[err.Error()]++
			default:
				refused++
			}
		}
		t.Logf("dictionary %s: %d accepted by both, %d by neither, by libzstd alone: %v", name, accepted, refused, stricter)
		if accepted < n/20 || refused < n/4 {
			t.Errorf("%d accepted and %d refused of %d", accepted, refused, n)
		}
	}
}

// FuzzDecoder: what the decoder accepts, libzstd accepts, with the same content.
func FuzzDecoder(f *testing.F) {
	var names []string
	decoders, library := map[string]*zstd.Decoder{}, map[string]*compressor{}
	for name, d := range dictionaries(f) {
		names = append(names, name)
		decoders[name], library[name] = decoder(f, d), native(f, 3, d)
		for _, level := range []int{-3, 3, 19} {
			c := native(f, level, d)
			for _, v := range decoderValues(f)[:20] {
				payload, err := c.Compress(nil, v)
				if err != nil {
					f.Fatal(err)
				}
				f.Add(payload, uint32(len(v)))
			}
		}
	}
	f.Fuzz(func(t *testing.T, payload []byte, size uint32) {
		size %= 1 << 20
		for _, name := range names {
			dst := make([]byte, 3, 3+int(size)+8)
			got, err := decoders[name].Decode(dst, payload, int(size))
			if guard := dst[:cap(dst)][3+int(size):]; !bytes.Equal(guard, make([]byte, 8)) {
				t.Fatal("bytes after the value are written")
			}
			if err != nil {
				if !errors.Is(err, zstd.ErrCorrupt) || len(got) != 3 {
					t.Fatalf("%d bytes, %v", len(got), err)
				}
				continue
			}
			want, err := library[name].Decompress(nil, payload, int(size))
			if err != nil || !bytes.Equal(got[3:], want) {
				t.Fatalf("dictionary %s: %x as %d bytes is accepted; libzstd: %v", name, payload, size, err)
			}
		}
	})
}

// TestDecoderDictionaries: a damaged dictionary that pure Go reads, libzstd reads.
func TestDecoderDictionaries(t *testing.T) {
	b := dictionary(t, "trained.dict").Bytes()
	rng := rand.New(rand.NewPCG(7, 8))
	accepted, refused, stricter := 0, 0, 0
	for range 10_000 {
		damaged := bytes.Clone(b)
		for range 1 + rng.IntN(2) {
			damaged[4+rng.IntN(200)] ^= 1 << rng.IntN(8)
		}
		if rng.IntN(8) == 0 {
			damaged = damaged[:rng.IntN(400)]
		}
		d, err := frame.NewDictionary(damaged)
		if err != nil {
			continue // too short
		}
		_, err = zstd.NewDictionary(damaged)
		library, libraryErr := newCompressor(1, d)
		switch {
		case err == nil && libraryErr != nil:
			t.Fatalf("%x is accepted; libzstd: %v", damaged[:min(len(damaged), 300)], libraryErr)
		case err == nil:
			accepted++
		case libraryErr == nil:
			stricter++
		default:
			refused++
		}
		if libraryErr == nil {
			library.Close()
		}
	}
	t.Logf("%d accepted by both, %d by neither, %d by libzstd alone", accepted, refused, stricter)
	if accepted < 1000 || refused < 1000 {
		t.Errorf("%d accepted, %d refused", accepted, refused)
	}
}

// TestGolden: zstd's own golden files decode, or do not, as they should. gozstd's module has them.
func TestGolden(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/valyala/gozstd").Output()
	if err != nil {
		t.Fatal(err)
	}
	tests := filepath.Join(strings.TrimSpace(string(out)), "zstd", "tests")
	read := func(pattern string) map[string][]byte {
		paths, err := filepath.Glob(filepath.Join(tests, pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(paths), err)
		}
		files := map[string][]byte{}
		for _, path := range paths {
			if files[path], err = os.ReadFile(path); err != nil {
				t.Fatal(err)
			}
		}
		return files
	}
	ours := decoder(t, nil)
	for path, b := range read("golden-decompression/*.zst") {
		want, err := gozstd.Decompress(nil, b)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ours.Decode(nil, b[magicSize:], len(want)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for path, b := range read("golden-decompression-errors/*.zst") {
		for _, size := range []int{0, 1, 100, 70_000, 128 << 10} {
			if _, err := ours.Decode(nil, b[magicSize:], size); !errors.Is(err, zstd.ErrCorrupt) {
				t.Errorf("%s as %d bytes: %v", path, size, err)
			}
		}
	}
}
