//go:build cgo

package czstd

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/balekv/bale"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/compress/zstd"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/testvalues"
)

// TestVersion: the declarations in libzstd.go are those of this version.
func TestVersion(t *testing.T) {
	if v := Version(); v != "1.5.7" {
		t.Fatalf("libzstd %s is linked, and its declarations here are those of 1.5.7", v)
	}
}

// dictionary reads one of the frozen dictionaries.
func dictionary(t testing.TB, name string) *frame.Dictionary {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "frame", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	d, err := frame.NewDictionary(b)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func dictionaries(t testing.TB) map[string]*frame.Dictionary {
	return map[string]*frame.Dictionary{"none": nil, "raw": dictionary(t, "raw.dict"), "trained": dictionary(t, "trained.dict")}
}

// profile is a JSON value of 440 to 460 bytes, like a user's profile. It has field names, words
// that other profiles share, and words of its own.
func profile(i int) []byte {
	r := rand.New(rand.NewPCG(uint64(i), 0))
	pick := func(words string) string { w := strings.Fields(words); return w[r.IntN(len(w))] }
	first, last := pick("Ada Mei Noah Tomasz Lucia Omar Priya Sven Aiko Zoe"), pick("Novak Kim Garcia Okafor Schmidt Rossi Singh Larsen Tanaka Brown")
	return fmt.Appendf(nil, `{"id":%d,"name":"%s %s","email":"%s.%s%d@example.com","country":"%s","language":"%s","avatar_url":"https://cdn.example.com/avatars/%016x%016x.png","plan":"%s","verified":%v,"balance_cents":%d,"created_at":"202%d-%02d-%02dT%02d:%02d:%02d.%03dZ","settings":{"theme":"%s","newsletter":%v,"notifications":"%s","timezone":"%s"},"tags":["%s","%s"],"device":"%s"}`,
		100_000+r.IntN(900_000), first, last, strings.ToLower(first), strings.ToLower(last), r.IntN(100), pick("DE FR US JP IN BR SE"), pick("de fr en ja hi pt sv"), r.Uint64(), r.Uint64(),
		pick("free pro team enterprise"), r.IntN(2) == 0, r.IntN(100_000), r.IntN(6), 1+r.IntN(12), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1000),
		pick("light dark system"), r.IntN(2) == 0, pick("none mentions all"), pick("Europe/Berlin Asia/Tokyo America/New_York"), pick("beta vip wholesale newsletter"), pick("early partner churned"),
		pick("iPhone Android Firefox Chrome Safari"))
}

func values() [][]byte {
	r := rand.NewChaCha8([32]byte{1})
	random := make([]byte, 5000)
	r.Read(random)
	return [][]byte{nil, {0}, []byte("a"), profile(1), bytes.Repeat([]byte("ab"), 70_000), random,
		bytes.Join([][]byte{profile(2), random[:300], profile(3)}, nil), bytes.Repeat(profile(4), 2000)}
}

// pure is the pure-Go compressor.
func pure(t testing.TB, level zstd.Level, d *frame.Dictionary) compress.Compressor {
	t.Helper()
	c, err := zstd.New(zstd.Options{Level: level, Dictionary: d})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func native(t testing.TB, level int, d *frame.Dictionary) *compressor {
	t.Helper()
	c, err := newCompressor(level, d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// crossing packs a value with one engine and reads it with both.
func crossing(t *testing.T, from compress.Compressor, value []byte, to ...compress.Compressor) {
	t.Helper()
	prefix := []byte("before")
	payload, err := from.Compress(bytes.Clone(prefix), value)
	if err != nil || !bytes.HasPrefix(payload, prefix) {
		t.Fatalf("%T compresses %d bytes: %v", from, len(value), err)
	}
	payload = payload[len(prefix):]
	for _, c := range to {
		got, err := c.Decompress(bytes.Clone(prefix), payload, len(value))
		if err != nil || !bytes.Equal(got, append(bytes.Clone(prefix), value...)) {
			t.Fatalf("%T wrote %d bytes of %d, %T reads them: %v", from, len(payload), len(value), c, err)
		}
	}
}

func TestEnginesReadEachOther(t *testing.T) {
	for name, d := range dictionaries(t) {
		for level := 1; level <= 22; level += 3 {
			t.Run(fmt.Sprint(name, level), func(t *testing.T) {
				n, p := native(t, level, d), pure(t, zstd.NearestLevel(level), d)
				if n.DictionaryID() != p.DictionaryID() || n.Algorithm() != p.Algorithm() {
					t.Fatal("the engines name themselves differently")
				}
				for _, v := range values() {
					crossing(t, n, v, n, p)
					crossing(t, p, v, n, p)
				}
			})
		}
	}
}

// FuzzEngines: any value, level and dictionary, both ways.
func FuzzEngines(f *testing.F) {
	for i, v := range values() {
		f.Add(v, uint8(3*i), []byte(nil))
		f.Add(v, uint8(i), profile(9))
	}
	fixed := dictionaries(f)
	f.Fuzz(func(t *testing.T, value []byte, level uint8, content []byte) {
		level = level%22 + 1
		d := fixed[[]string{"none", "raw", "trained"}[int(level)%3]]
		if len(content) >= frame.MinDictionarySize {
			var err error
			if d, err = frame.NewDictionary(content); err != nil {
				return
			}
		}
		p, err := zstd.New(zstd.Options{Level: zstd.NearestLevel(int(min(level, 8))), Dictionary: d, Concurrency: 1})
		if err != nil {
			return // a damaged dictionary in the trainer's format
		}
		defer p.Close()
		n, err := newCompressor(int(level), d)
		if err != nil {
			t.Fatalf("%v is a dictionary for pure Go alone: %v", d.ID(), err)
		}
		defer n.Close()
		crossing(t, n, value, n, p)
		crossing(t, p, value, n, p)
	})
}

// FuzzPayload: foreign bytes as a payload are an error or some content of the size asked for, never
// more.
func FuzzPayload(f *testing.F) {
	d := dictionary(f, "trained.dict")
	var cs []*compressor
	for _, d := range []*frame.Dictionary{nil, d} {
		c := native(f, 3, d)
		for _, v := range values() {
			p, err := c.Compress(nil, v)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(p, uint16(len(v)))
		}
		cs = append(cs, c)
	}
	f.Fuzz(func(t *testing.T, payload []byte, size uint16) {
		for _, c := range cs {
			dst := make([]byte, 3, 3+int(size)+8)
			guard := dst[:cap(dst)][3+int(size):]
			out, err := c.Decompress(dst, payload, int(size))
			if err == nil && len(out) != 3+int(size) || err != nil && len(out) != 3 {
				t.Fatalf("%d bytes, %v", len(out), err)
			}
			if !bytes.Equal(guard, make([]byte, 8)) {
				t.Fatal("wrote beyond what was asked for")
			}
		}
	})
}

func TestErrors(t *testing.T) {
	for _, level := range []string{"-1", "0", "23"} {
		if _, err := Engine(compress.Setting{Algorithm: frame.Zstd, Level: level}, nil); !errors.Is(err, compress.ErrSetting) {
			t.Errorf("level %s: %v", level, err)
		}
	}
	trained := dictionary(t, "trained.dict").Bytes()
	damaged, err := frame.NewDictionary(append(bytes.Clone(trained[:12]), bytes.Repeat([]byte{0xFF}, 100)...))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newCompressor(defaultLevel, damaged); err == nil || !strings.Contains(err.Error(), damaged.ID().String()) {
		t.Errorf("a damaged dictionary: %v", err)
	}
	c := native(t, 3, nil)
	payload, err := c.Compress(nil, profile(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, len(profile(1)) - 1, len(profile(1)) + 1} {
		if out, err := c.Decompress([]byte("x"), payload, size); err == nil || string(out) != "x" {
			t.Errorf("size %d: %d bytes, %v", size, len(out), err)
		}
	}
	for i := range payload {
		if _, err := c.Decompress(nil, payload[:i], len(profile(1))); err == nil {
			t.Errorf("cut to %d bytes: no error", i)
		}
	}
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Compress(nil, nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("compress after Close: %v", err)
	}
	if _, err := c.Decompress(nil, payload, 1); !errors.Is(err, os.ErrClosed) {
		t.Errorf("decompress after Close: %v", err)
	}
}

func TestEngine(t *testing.T) {
	for name, want := range map[string]int{"zstd": 3, "zstd:fastest": 1, "zstd:best": 19, "zstd:12": 12} {
		s, err := compress.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Engine(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := c.(*compressor); !ok || n.level != want {
			t.Errorf("%s is %T %+v, want level %d", name, c, c, want)
		}
	}
	if c, err := Engine(compress.Setting{Algorithm: frame.S2}, dictionary(t, "raw.dict")); err != nil || c.Algorithm() != frame.S2 {
		t.Errorf("s2: %v, %v", c, err)
	}
	for _, level := range []string{"0", "23", "nope", "03"} {
		if _, err := Engine(compress.Setting{Algorithm: frame.Zstd, Level: level}, nil); !errors.Is(err, compress.ErrSetting) {
			t.Errorf("level %q: %v", level, err)
		}
	}
}

// TestPacker: the engine under a Packer reads what the pure-Go one packed, and allocates nothing.
func TestPacker(t *testing.T) {
	d := dictionary(t, "trained.dict")
	src := profile(7)
	mine, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: native(t, 3, d), Engine: Engine}})
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	other, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: pure(t, zstd.Fastest, d)}})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, p := range []struct{ from, to *bale.Packer }{{mine, other}, {other, mine}} {
		packed, err := p.from.Pack(nil, src)
		if err != nil || len(packed) >= len(src) {
			t.Fatalf("%d bytes, %v", len(packed), err)
		}
		if got, err := p.to.Unpack(t.Context(), nil, packed); err != nil || !bytes.Equal(got, src) {
			t.Fatalf("%v", err)
		}
	}
	packed, err := mine.Pack(nil, src)
	if err != nil {
		t.Fatal(err)
	}
	dst := make([]byte, 0, bale.MaxPackedLen(len(src)))
	if n := testing.AllocsPerRun(1000, func() { dst, err = mine.Pack(dst[:0], src) }); n >= 1 || err != nil {
		t.Errorf("Pack: %v allocations, %v", n, err)
	}
	if n := testing.AllocsPerRun(1000, func() { dst, err = mine.Unpack(t.Context(), dst[:0], packed) }); n >= 1 || err != nil {
		t.Errorf("Unpack: %v allocations, %v", n, err)
	}
}

// TestDroppedWhileUsed: a compressor that nobody holds any more while its last call runs.
func TestDroppedWhileUsed(t *testing.T) {
	d := dictionary(t, "trained.dict")
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 100 {
				c, err := newCompressor(defaultLevel, d)
				if err != nil {
					t.Error(err)
					return
				}
				v := profile(w*1000 + i)
				p, err := c.Compress(nil, v)
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := c.Decompress(nil, p, len(v)); err != nil || !bytes.Equal(got, v) {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestCloseInUse closes compressors twice at the same time while many goroutines use them. Each
// call returns the right bytes or an error that is os.ErrClosed. Another compressor with the same
// dictionary keeps working.
func TestCloseInUse(t *testing.T) {
	// A large dictionary: its memory goes back to the operating system at once, so that a use after
	// free crashes.
	content := make([]byte, frame.MaxDictionarySize)
	rand.NewChaCha8([32]byte{}).Read(content)
	value := profile(1)
	copy(content, value)
	d, err := frame.NewDictionary(content)
	if err != nil {
		t.Fatal(err)
	}
	stays := native(t, 3, d)
	packed, err := stays.Compress(nil, value)
	if err != nil {
		t.Fatal(err)
	}
	for range 30 {
		c, err := newCompressor(defaultLevel, d)
		if err != nil {
			t.Fatal(err)
		}
		set := &compress.Set{Engine: Engine}
		owner, err := bale.NewPacker(bale.PackerOptions{Compressors: set})
		if err != nil {
			t.Fatal(err)
		}
		plain := bytes.Repeat(value, 10)
		stored, err := owner.Pack(nil, plain)
		if err != nil {
			t.Fatal(err)
		}
		var users, ready sync.WaitGroup
		ready.Add(8)
		closed := make(chan struct{})
		for i := range 8 {
			users.Go(func() {
				var dst []byte
				once := sync.OnceFunc(ready.Done)
				for {
					last := false
					select {
					case <-closed:
						last = true
					default:
					}
					var err error
					want := value
					switch i % 4 {
					case 0:
						dst, err = c.Decompress(dst[:0], packed, len(value))
					case 1:
						want = packed
						dst, err = c.Compress(dst[:0], value)
					case 2:
						dst, err = owner.Unpack(t.Context(), dst[:0], stored)
						want = plain
					case 3:
						dst, err = stays.Decompress(dst[:0], packed, len(value))
						if err != nil {
							t.Error(err)
						}
					}
					once()
					if err == nil && !bytes.Equal(dst, want) || err != nil && !errors.Is(err, os.ErrClosed) {
						t.Errorf("%d: %d bytes, %v", i, len(dst), err)
						return
					}
					if last && i%4 < 3 && !errors.Is(err, os.ErrClosed) {
						t.Errorf("%d: after Close: %v", i, err)
					}
					if last || err != nil {
						return
					}
				}
			})
		}
		ready.Wait()
		var closers sync.WaitGroup
		for range 2 {
			closers.Go(func() {
				if err := errors.Join(c.Close(), set.Close()); err != nil {
					t.Error(err)
				}
			})
		}
		closers.Wait()
		close(closed)
		users.Wait()
	}
	if got, err := stays.Decompress(nil, packed, len(value)); err != nil || !bytes.Equal(got, value) {
		t.Errorf("another compressor of the dictionary: %d bytes, %v", len(got), err)
	}
}

// TestForgedClaimAllocatesLittle: memory grows with the decoded content, not with the claim.
func TestForgedClaimAllocatesLittle(t *testing.T) {
	if testvalues.Race {
		t.Skip("the race detector allocates, and empties pools")
	}
	const size = 64 << 20
	plain := native(t, 3, nil)
	trained := native(t, 3, dictionary(t, "trained.dict"))
	allocatedBy := func(f func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	for name, test := range testvalues.Claims(size) {
		if test.Algorithm != frame.Zstd {
			continue
		}
		for _, c := range []*compressor{plain, trained} {
			var err error
			allocated := allocatedBy(func() { _, err = c.Decompress(nil, test.Payload, size) })
			limit := 2<<20 + 200*uint64(len(test.Payload))
			if name == "zstd of 33 bytes" {
				limit = 24 << 20 // libzstd takes runs of any length, and decodes 14 MiB of them
			}
			if err == nil || allocated > limit {
				t.Errorf("%s: %v, %d KiB allocated", name, err, allocated>>10)
			}
		}
	}
	content := make([]byte, size)
	for _, c := range []*compressor{plain, trained} {
		packed, err := c.Compress(nil, content)
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		allocated := allocatedBy(func() { got, err = c.Decompress([]byte("before"), packed, size) })
		if err != nil || string(got[:6]) != "before" || !bytes.Equal(got[6:], content) || allocated > 2*size {
			t.Errorf("%d bytes from %d, %v, %d MiB allocated", len(got), len(packed), err, allocated>>20)
		}
	}
}

// TestClosedMemoryIsFreed opens and closes compressors whose dictionaries have 600 MB in all.
func TestClosedMemoryIsFreed(t *testing.T) {
	resident := func() int {
		b, err := os.ReadFile("/proc/self/statm")
		if err != nil {
			t.Skip("the memory of a process is read on Linux alone")
		}
		var pages, in int
		if _, err := fmt.Sscan(string(b), &pages, &in); err != nil {
			t.Fatal(err)
		}
		return in * os.Getpagesize()
	}
	content := make([]byte, frame.MaxDictionarySize)
	rand.NewChaCha8([32]byte{}).Read(content)
	d, err := frame.NewDictionary(content)
	if err != nil {
		t.Fatal(err)
	}
	before, held := resident(), int64(0)
	for range 200 {
		c, err := newCompressor(defaultLevel, d)
		if err != nil {
			t.Fatal(err)
		}
		held += c.digested.Load().size
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if grown := resident() - before; held < 400<<20 || grown > 200<<20 {
		t.Errorf("%d MiB were closed, and %d MiB more are in use", held>>20, grown>>20)
	}
}

// TestHostileInput tries damaged and forged values, BALE_FUZZ_N of them or 20,000. Each is an error
// or the right content. A call allocates at most the limit on the decoded size and 16 MiB.
func TestHostileInput(t *testing.T) {
	n := 20_000
	if s := os.Getenv("BALE_FUZZ_N"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	const maxSize = 8 << 20
	trained := native(t, 3, dictionary(t, "trained.dict"))
	reader, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Read: []bale.Compressor{trained}, Engine: Engine}, MaxSize: maxSize})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var frames, contents [][]byte
	for _, c := range []*compressor{native(t, 1, nil), native(t, 19, nil), trained} {
		p, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: c}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			for _, src := range [][]byte{testvalues.Profile(i), testvalues.Page(i), testvalues.Of("zeros", 5000)} {
				packed, err := p.Pack(nil, src)
				if err != nil {
					t.Fatal(err)
				}
				frames, contents = append(frames, packed), append(contents, src)
			}
		}
		p.Close()
	}
	dst := make([]byte, 0, 64<<10)
	allocated := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	rng := rand.New(rand.NewPCG(1, 2))
	framesSeen, errorsSeen, peak := 0, 0, uint64(0)
	for i := range n {
		k := rng.IntN(len(frames))
		stored, original := testvalues.Mutate(rng, frames[k]), contents[k]
		if i%4 == 0 {
			stored, original = testvalues.Forge(rng, frames[k][min(len(frames[k]), rng.IntN(16)):]), nil
		}
		metrics.Read(allocated)
		before := allocated[0].Value.Uint64()
		got, err := reader.Unpack(t.Context(), dst[:0], stored)
		metrics.Read(allocated)
		peak = max(peak, allocated[0].Value.Uint64()-before)
		h, _, ok := frame.Parse(stored)
		if ok {
			framesSeen++
		}
		switch {
		case err != nil:
			errorsSeen++
			if len(got) != 0 || !ok {
				t.Fatalf("%x: %d bytes, and %v", stored, len(got), err)
			}
		case !ok:
			if !bytes.Equal(got, stored) {
				t.Fatal("a foreign value was changed")
			}
		case uint64(len(got)) != h.Length, h.HasChecksum && frame.Checksum(got) != h.Checksum, original != nil && h.HasChecksum && !bytes.Equal(got, original):
			t.Fatalf("%x: wrong content", stored)
		}
	}
	t.Logf("%d values, %d of them frames, %d errors; a call allocated at most %.1f MiB", n, framesSeen, errorsSeen, float64(peak)/(1<<20))
	if framesSeen < n/4 || errorsSeen < n/5 {
		t.Errorf("only %d frames and %d errors among %d: the test does not reach the decoder", framesSeen, errorsSeen, n)
	}
	if peak > maxSize+16<<20 {
		t.Errorf("a call allocated %d MiB, more than the limit and 16 MiB", peak>>20)
	}
}
