package zstd

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"unsafe"

	"github.com/klauspost/compress/zstd"

	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/testvalues"
)

const magicSize = 4

// values are a few of each corpus, profiles, and awkward ones.
func values(t testing.TB) map[string][][]byte {
	t.Helper()
	all, err := testvalues.Corpora()
	if err != nil {
		t.Fatal(err)
	}
	if all == nil {
		all = map[string][][]byte{}
	}
	for i := range 40 {
		all["profiles"] = append(all["profiles"], testvalues.Profile(i))
	}
	rng := rand.New(rand.NewPCG(3, 4))
	noise := func(n, symbols int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.IntN(symbols))
		}
		return b
	}
	all["awkward"] = [][]byte{
		nil, {0}, []byte("ab"), bytes.Repeat([]byte("a"), 100), bytes.Repeat([]byte("abc"), 100_000), make([]byte, 300_000),
		noise(300, 256), noise(300_000, 256), noise(700, 4), noise(100_000, 4), noise(300_000, 60), noise(2000, 200),
		bytes.Repeat(noise(5000, 20), 60), append(noise(140_000, 256), bytes.Repeat([]byte("0123456789"), 20_000)...),
	}
	return all
}

// dictionaries are none, plain content, and one of the trainer.
func dictionaries(t testing.TB) map[string][]byte {
	trained := testDictionary(t)
	return map[string][]byte{"none": nil, "plain": trained[200:2000], "trained": trained, "short": []byte(`{"id":`)}
}

func newDecoder(t testing.TB, dictionary []byte) *Decoder {
	t.Helper()
	if dictionary == nil {
		return NewDecoder(nil)
	}
	d, err := NewDictionary(dictionary)
	if err != nil {
		t.Fatal(err)
	}
	return NewDecoder(d)
}

// encoders are those of the library that differ in what frames they make.
func encoders(t testing.TB, dictionary []byte) map[string]*zstd.Encoder {
	t.Helper()
	all := map[string]*zstd.Encoder{}
	for _, level := range []zstd.EncoderLevel{zstd.SpeedFastest, zstd.SpeedDefault, zstd.SpeedBetterCompression, zstd.SpeedBestCompression} {
		for _, single := range []bool{false, true} {
			if single && level == zstd.SpeedBestCompression {
				continue // makes the same blocks, slowly
			}
			o := []zstd.EOption{
				zstd.WithEncoderLevel(level), zstd.WithSingleSegment(single), zstd.WithEncoderCRC(single), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1 << 20),
				zstd.WithAllLitEntropyCompression(true),
			}
			switch {
			case bytes.HasPrefix(dictionary, []byte{0x37, 0xa4, 0x30, 0xec}):
				o = append(o, zstd.WithEncoderDict(dictionary))
			case dictionary != nil:
				o = append(o, zstd.WithEncoderDictRaw(0, dictionary))
			}
			e, err := zstd.NewWriter(nil, o...)
			if err != nil {
				t.Fatal(err)
			}
			all[fmt.Sprint(level, single)] = e
		}
	}
	return all
}

// TestLibraryFrames: frames of the library come back, in room that is exact, larger, or none.
func TestLibraryFrames(t *testing.T) {
	values := values(t)
	for name, dictionary := range dictionaries(t) {
		decoder := newDecoder(t, dictionary)
		for setting, e := range encoders(t, dictionary) {
			for corpus, values := range values {
				for i, v := range values {
					frame := e.EncodeAll(v, nil)[magicSize:]
					for _, dst := range [][]byte{make([]byte, 0, len(v)), make([]byte, 5, len(v)+50), nil} {
						rest := dst[:cap(dst)][min(cap(dst), len(dst)+len(v)):]
						got, err := decoder.Decode(dst, frame, len(v))
						if err != nil || len(got) != len(dst)+len(v) || !bytes.Equal(got[len(dst):], v) {
							t.Fatalf("%s, %s, %s %d of %d bytes in room for %d: %v", name, setting, corpus, i, len(v), cap(dst), err)
						}
						if !bytes.Equal(rest, make([]byte, len(rest))) {
							t.Fatalf("%s, %s, %s %d: bytes after the value are written", name, setting, corpus, i)
						}
					}
					for _, size := range []int{0, len(v) - 1, len(v) + 1, 2 * len(v)} {
						if _, err := decoder.Decode(nil, frame, size); size != len(v) && !errors.Is(err, ErrCorrupt) {
							t.Fatalf("%s, %s, %s %d: %v for %d bytes instead of %d", name, setting, corpus, i, err, size, len(v))
						}
					}
				}
			}
		}
	}
}

// library is the library's decoder of frames that decoder has with or without a dictionary.
type library struct{ *zstd.Decoder }

func newLibrary(t testing.TB, dictionary []byte) library {
	t.Helper()
	o := []zstd.DOption{zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true)}
	if dictionary != nil {
		o = append(o, zstd.WithDecoderDicts(dictionary))
	}
	d, err := zstd.NewReader(nil, o...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return library{d}
}

func (l library) decode(frame []byte, size int) ([]byte, error) {
	return l.DecodeAll(append([]byte{0x28, 0xb5, 0x2f, 0xfd}, frame...), make([]byte, 0, size))
}

// checkAgainst decodes bytes that may be no frame. An accepted one has the right size, and the
// library's content if the library accepts it. It reports whether we accept, and whether both do.
func checkAgainst(t *testing.T, ours *Decoder, theirs library, frame []byte, size int) (accepted, both bool) {
	t.Helper()
	const before, after = 3, 40
	dst := make([]byte, before, before+size+after)
	got, err := ours.Decode(dst, frame, size)
	if rest := dst[:cap(dst)][before+size:]; !bytes.Equal(rest, make([]byte, after)) {
		t.Fatalf("%x: bytes after the value are written", frame)
	}
	if err != nil {
		if !errors.Is(err, ErrCorrupt) || len(got) != before {
			t.Fatalf("%x: %d bytes, %v", frame, len(got), err)
		}
		return false, false
	}
	if len(got) != before+size {
		t.Fatalf("%x: %d bytes instead of %d", frame, len(got)-before, size)
	}
	if h, _ := readHeader(frame); h.id != ours.dictionary.id {
		return true, false // the library has no dictionary for it
	}
	want, err := theirs.decode(frame, size)
	if err == nil && !bytes.Equal(got[before:], want) {
		t.Fatalf("%x as %d bytes has other content for the library", frame, size)
	}
	return true, err == nil
}

// TestDamagedFrames: a damaged frame is an error, or what the library makes of it.
func TestDamagedFrames(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for _, dictionary := range [][]byte{nil, testDictionary(t)} {
		ours, theirs := newDecoder(t, dictionary), newLibrary(t, dictionary)
		var frames [][]byte
		var sizes []int
		for _, e := range encoders(t, dictionary) {
			for _, values := range values(t) {
				for _, v := range values[:min(len(values), 20)] {
					if len(v) > 0 && len(v) < 10_000 {
						frames, sizes = append(frames, e.EncodeAll(v, nil)[magicSize:]), append(sizes, len(v))
					}
				}
			}
		}
		accepted, both := 0, 0
		const n = 50_000
		for range n {
			k := rng.IntN(len(frames))
			damaged := testvalues.Mutate(rng, frames[k])
			if other := frames[rng.IntN(len(frames))]; rng.IntN(4) == 0 {
				damaged = append(bytes.Clone(frames[k][:rng.IntN(len(frames[k]))]), other[rng.IntN(len(other)):]...)
			}
			a, b := checkAgainst(t, ours, theirs, damaged, sizes[k])
			if a {
				accepted++
			}
			if b {
				both++
			}
		}
		if accepted < n/100 || both < accepted/2 {
			t.Errorf("%d of %d accepted, %d by both", accepted, n, both)
		}
	}
}

// FuzzDecode: any bytes are an error, or have the content that the library finds.
func FuzzDecode(f *testing.F) {
	dictionary := testDictionary(f)
	ours := []*Decoder{newDecoder(f, nil), newDecoder(f, dictionary)}
	theirs := []library{newLibrary(f, nil), newLibrary(f, dictionary)}
	for _, dictionary := range [][]byte{nil, dictionary} {
		for _, e := range encoders(f, dictionary) {
			for _, values := range values(f) {
				for i, v := range values {
					if i < 3 || len(v) < 3000 && i < 10 {
						f.Add(e.EncodeAll(v, nil)[magicSize:], uint32(len(v)))
					}
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte, size uint32) {
		for i, ours := range ours {
			checkAgainst(t, ours, theirs[i], frame, int(size%(1<<20)))
		}
	})
}

// TestDecodeAllocates: a call with room allocates nothing, and a context is small.
func TestDecodeAllocates(t *testing.T) {
	if size := unsafe.Sizeof(context{}); size > 32<<10 {
		t.Errorf("a context has %d bytes", size)
	}
	dictionary := testDictionary(t)
	ours := newDecoder(t, dictionary)
	for name, e := range encoders(t, dictionary) {
		for _, v := range [][]byte{testvalues.Profile(1), testvalues.Page(1), bytes.Repeat([]byte("0123456789"), 20_000)} {
			frame := e.EncodeAll(v, nil)[magicSize:]
			dst := make([]byte, 0, len(v))
			if n := testing.AllocsPerRun(100, func() { ours.Decode(dst, frame, len(v)) }); n >= 1 {
				t.Errorf("%s, %d bytes: %v allocations", name, len(v), n)
			}
		}
	}
}

// TestForgedSize: a frame that claims a large size makes Decode allocate as much as its content.
func TestForgedSize(t *testing.T) {
	ours := NewDecoder(nil)
	for name, claim := range testvalues.Claims(256 << 20) {
		if claim.Algorithm != frame.Zstd {
			continue
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := ours.Decode(nil, claim.Payload, 256<<20); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
			t.Errorf("%s: %d MiB allocated", name, n>>20)
		}
	}
}

// TestHandmadeFrames: frames that no encoder makes, or few.
func TestHandmadeFrames(t *testing.T) {
	decoder := NewDecoder(nil)
	block := func(b string) string { return "\x00\x00" + string([]byte{byte(1 | 2<<1 | len(b)<<3), 0, 0}) + b }
	for name, c := range map[string]struct {
		frame, content string
		size           int
	}{
		"empty":                  {"\x20\x00\x01\x00\x00", "", 0},
		"empty as one byte":      {frame: "\x20\x00\x01\x00\x00", size: 1},
		"nothing":                {size: 0},
		"run":                    {"\x20\x05\x2b\x00\x00x", "xxxxx", 5},
		"run in parts":           {"\x20\x05\x12\x00\x00x\x19\x00\x00abc", "xxabc", 5},
		"run that is too long":   {frame: "\x00\x00\x33\x00\x00x", size: 5},
		"one-symbol tables":      {block("\x08a\x01\x54\x01\x00\x00\x01"), "aaaa", 4},
		"code 31 of offsets":     {frame: block("\x08a\x01\x54\x01\x1f\x00\x01"), size: 4},
		"no code of offsets":     {frame: block("\x08a\x01\x54\x01"), size: 4},
		"no bits":                {frame: block("\x08a\x01\x54\x01\x00\x00"), size: 4},
		"no end mark":            {frame: block("\x08a\x01\x54\x01\x00\x00\x00"), size: 4},
		"bits left":              {frame: block("\x08a\x01\x54\x01\x00\x00\x02"), size: 4},
		"too many literals":      {frame: block("\x08a\x01\x54\x02\x00\x00\x01"), size: 4},
		"offset before start":    {frame: block("\x08a\x01\x54\x01\x02\x00\x07"), size: 4},
		"reserved modes":         {frame: block("\x08a\x01\x55\x01\x00\x00\x01"), size: 4},
		"run of literals":        {block("\x21a\x00"), "aaaa", 4},
		"run without a literal":  {frame: block("\x21"), size: 4},
		"literals without table": {frame: block("\x43\x40\x00\x01\x00"), size: 4},
		"bytes after literals":   {frame: block("\x08a\x00\x00"), size: 1},
		"no sequences":           {frame: block("\x10ab"), size: 2},
		"no modes":               {frame: block("\x08a\x01"), size: 4},
		"short count":            {frame: block("\x08a\xff\x00"), size: 4},
		"reserved kind":          {frame: "\x20\x01\x0f\x00\x00x", size: 1},
		"reserved bit":           {frame: "\x28\x01\x09\x00\x00x", size: 1},
		"another dictionary":     {frame: "\x21\x01\x01\x09\x00\x00x", size: 1},
		"window of 4 TiB":        {frame: "\x00\xff\x09\x00\x00x", size: 1},
		"block above the window": {frame: "\x00\x00\x09\x40\x00" + string(make([]byte, 2049)), size: 2049},
		"two frames":             {frame: "\x20\x01\x09\x00\x00x\x20\x01\x09\x00\x00x", size: 2},
		"skippable frame before": {frame: "\x50\x2a\x4d\x18\x00\x00\x00\x00\x20\x01\x09\x00\x00x", size: 1},
		"no checksum":            {frame: "\x24\x01\x09\x00\x00x", size: 1},
		"wrong checksum":         {frame: "\x24\x01\x09\x00\x00xabcd", size: 1},
		"negative size":          {frame: "\x00\x00\x01\x00\x00", size: -1},
	} {
		got, err := decoder.Decode(nil, []byte(c.frame), c.size)
		if name == "empty" || c.content != "" {
			if err != nil || string(got) != c.content {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		} else if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
