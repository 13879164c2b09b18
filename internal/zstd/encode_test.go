package zstd

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"unsafe"

	kdict "github.com/klauspost/compress/dict"
	"github.com/klauspost/compress/zstd"

	"github.com/balekv/bale/internal/testvalues"
)

// reader decodes by the library, with a dictionary as NewDictionary takes it.
func reader(t testing.TB, dictionary []byte) func(frame []byte) ([]byte, error) {
	t.Helper()
	o := []zstd.DOption{zstd.WithDecoderConcurrency(1)}
	descriptor := []byte{0x28, 0xB5, 0x2F, 0xFD, 0}
	id := []byte(nil)
	switch d, err := NewDictionary(dictionary); {
	case err != nil:
		t.Fatal(err)
	case d.tables:
		dictionary = bytes.Clone(dictionary)
		binary.LittleEndian.PutUint32(dictionary[4:], 1)
		o = append(o, zstd.WithDecoderDicts(dictionary))
		descriptor[4], id = 1, []byte{1} // a frame without an id would be one without a dictionary
	case len(dictionary) > 0:
		o = append(o, zstd.WithDecoderDictRaw(0, dictionary))
	}
	d, err := zstd.NewReader(nil, o...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return func(frame []byte) ([]byte, error) {
		if frame[0] != 0 {
			return nil, fmt.Errorf("descriptor %#x", frame[0])
		}
		return d.DecodeAll(bytes.Join([][]byte{descriptor, frame[1:2], id, frame[2:]}, nil), nil)
	}
}

// incomplete is a dictionary with few literals, so that most bytes have no code, and with codes of
// sequences that are missing.
func incomplete(t testing.TB) []byte {
	t.Helper()
	var samples [][]byte
	for i := range 200 {
		samples = append(samples, []byte(strings.Map(func(r rune) rune { return 'a' + r%7 }, string(testvalues.Profile(i)))))
	}
	b, err := kdict.BuildZstdDict(samples, kdict.Options{MaxDictSize: 1 << 10, HashBytes: 6, ZstdDictID: 7})
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewDictionary(b)
	if err != nil {
		t.Fatal(err)
	}
	if g := NewDigest(d, Default); g.tables.complete || g.tables.literals.complete {
		t.Fatal("the dictionary has all symbols")
	}
	return b
}

// testValues are values of all kinds, some of which the dictionary's content helps with.
func testValues(content []byte) map[string][]byte {
	rng := rand.New(rand.NewPCG(3, 4))
	random := make([]byte, MaxSize)
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	var profiles, few []byte
	for i := 0; len(profiles) < MaxSize; i++ {
		profiles = append(profiles, testvalues.Profile(1000+i)...)
	}
	for range MaxSize {
		few = append(few, "abcdefgh"[rng.IntN(8)&rng.IntN(8)])
	}
	mixed := bytes.Clone(random)
	for at := 0; at < len(mixed)-5000; at += 5000 + rng.IntN(100) {
		copy(mixed[at:], profiles[rng.IntN(1000):][:rng.IntN(4900)])
	}
	values := map[string][]byte{
		"empty": {}, "byte": {'x'}, "two": []byte("xx"), "equal": bytes.Repeat([]byte{7}, 1000), "all equal": make([]byte, MaxSize),
		"profile": testvalues.Profile(5000), "random": random, "profiles": profiles[:MaxSize], "few": few, "mixed": mixed,
		"run in profile": append(append(testvalues.Profile(1), make([]byte, 3000)...), testvalues.Profile(2)...),
		"content":        content[:min(len(content), MaxSize)],
		"end of content": bytes.Repeat(content[max(len(content)-50, 0):], 9),
	}
	for i := range 40 {
		n := rng.IntN(70)
		values[fmt.Sprint("start", i)] = profiles[i : i+n]
		values[fmt.Sprint("random", i)] = random[:n]
		at := rng.IntN(10_000)
		values[fmt.Sprint("profiles", i)] = profiles[at : at+rng.IntN(20_000)]
		values[fmt.Sprint("few", i)] = few[at : at+rng.IntN(3000)]
		if len(content) > 100 {
			from := rng.IntN(len(content) - 50)
			values[fmt.Sprint("part", i)] = slicesOf(rng, content[from:], profiles)
		}
	}
	return values
}

// slicesOf joins parts of the sources.
func slicesOf(rng *rand.Rand, sources ...[]byte) (v []byte) {
	for range 1 + rng.IntN(20) {
		s := sources[rng.IntN(len(sources))]
		from := rng.IntN(len(s))
		v = append(v, s[from:min(from+rng.IntN(200), len(s))]...)
	}
	return v
}

func testDictionaries(t testing.TB) map[string][]byte {
	trained := testDictionary(t)
	d, err := NewDictionary(trained)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
		"none": nil, "trained": trained, "plain": d.content, "tiny": []byte(`{"id":1`), "short": d.content[:100],
		"incomplete": incomplete(t), "large": bytes.Repeat(d.content, 1<<20/len(d.content)),
	}
}

// TestEncode: the library reads each value back, of all kinds and levels.
func TestEncode(t *testing.T) {
	for name, dictionary := range testDictionaries(t) {
		read := reader(t, dictionary)
		d, err := NewDictionary(dictionary)
		if err != nil {
			t.Fatal(err)
		}
		decoder := NewDecoder(d)
		values := testValues(d.content)
		for level := Default; level <= Best; level++ {
			e := NewEncoder(NewDigest(d, level))
			for round := range 2 {
				for kind, v := range values {
					prefix := []byte("before")
					out, err := e.Encode(bytes.Clone(prefix), v)
					if err != nil || !bytes.HasPrefix(out, prefix) {
						t.Fatal(err)
					}
					if most := len(prefix) + len(v) + len(v)/128 + 32; len(out) > most {
						t.Errorf("%s, level %d, %s of %d bytes: %d", name, level, kind, len(v), len(out))
					}
					out = out[len(prefix):]
					if got, err := read(out); err != nil || !bytes.Equal(got, v) {
						t.Fatalf("%s, level %d, round %d, %s of %d bytes: %v", name, level, round, kind, len(v), err)
					}
					if got, err := decoder.Decode(nil, out, len(v)); err != nil || !bytes.Equal(got, v) {
						t.Fatalf("our decoder: %s, level %d, round %d, %s of %d bytes: %v", name, level, round, kind, len(v), err)
					}
				}
			}
		}
	}
}

// TestOverTheEnd: matches that start in the content and go on in the value, with others among them.
func TestOverTheEnd(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for i := range 20_000 {
		content := make([]byte, 8+rng.IntN(100))
		letters := 2 + rng.IntN(30)
		for k := range content {
			content[k] = byte('A' + rng.IntN(letters))
		}
		d, err := NewDictionary(content)
		if err != nil {
			t.Fatal(err)
		}
		tail := content[rng.IntN(len(content)):]
		var v []byte
		for range 1 + rng.IntN(8) {
			switch rng.IntN(3) {
			case 0:
				v = append(v, content[rng.IntN(len(content)):]...)
			case 1:
				v = append(v, bytes.Repeat(tail, 1+rng.IntN(10))...)
			case 2:
				v = append(v, v[len(v)/2:]...)
			}
		}
		v = v[:min(len(v), 200)]
		out, err := NewEncoder(NewDigest(d, Level(i%4))).Encode(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := NewDecoder(d).Decode(nil, out, len(v)); err != nil || !bytes.Equal(got, v) {
			t.Fatalf("level %d, content %q, value %q: %v", i%4, content, v, err)
		}
	}
}

// forgedTables is a dictionary with some bits of its tables flipped, and less content. Repeat
// offsets may be anywhere in that.
func forgedTables(t testing.TB, rng *rand.Rand, dictionary []byte) []byte {
	d, err := NewDictionary(dictionary)
	if err != nil {
		t.Fatal(err)
	}
	const offsets = 3 * 4
	tables, size := len(dictionary)-len(d.content), 8+rng.IntN(len(d.content)-8)
	forged := bytes.Clone(dictionary[:tables+size])
	for range 1 + rng.IntN(3) {
		forged[8+rng.IntN(tables-offsets-8)] ^= 1 << rng.IntN(8)
	}
	for at := tables - offsets; at < tables; at += 4 {
		binary.LittleEndian.PutUint32(forged[at:], uint32(1+rng.IntN(size)))
	}
	return forged
}

// TestForgedTables: the library reads values that are encoded with any dictionary that it accepts.
func TestForgedTables(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	dictionaries := [][]byte{testDictionary(t), incomplete(t)}
	n := 0
	for i := range 300 {
		forged := forgedTables(t, rng, dictionaries[i%2])
		d, err := NewDictionary(forged)
		if err != nil {
			continue
		}
		if _, _, _, err := theirs(append(forged[:4:4], append([]byte{1, 0, 0, 0}, forged[8:]...)...)); err != nil {
			continue
		}
		n++
		read, e := reader(t, forged), NewEncoder(NewDigest(d, Level(i/2%4)))
		for _, v := range [][]byte{testvalues.Profile(i), slicesOf(rng, d.content, testvalues.Profile(1)), bytes.Repeat(d.content[rng.IntN(len(d.content)):], 3), make([]byte, MaxSize)} {
			v = v[:min(len(v), MaxSize)]
			out, err := e.Encode(nil, v)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := read(out); err != nil || !bytes.Equal(got, v) {
				t.Fatalf("%x, level %d, %d bytes: %v", forged, i/2%4, len(v), err)
			}
		}
	}
	if n < 30 {
		t.Errorf("%d dictionaries are accepted", n)
	}
}

func TestTooLarge(t *testing.T) {
	e := NewEncoder(NewDigest(nil, Default))
	if out, err := e.Encode([]byte("x"), make([]byte, MaxSize+1)); err == nil || string(out) != "x" {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

// TestEncoderMemory: a context takes at most as much as a dictionary and 64 KiB, whatever it has
// encoded: as one of 16 KiB at Default and Fast, of 48 KiB at Better, of 64 KiB at Best. No level
// allocates to encode.
func TestEncoderMemory(t *testing.T) {
	trained := testDictionary(t)
	d, err := NewDictionary(trained)
	if err != nil {
		t.Fatal(err)
	}
	values := testValues(d.content)
	most := [...]uintptr{Default: 80 << 10, Fast: 80 << 10, Better: 112 << 10, Best: 128 << 10}
	for level := Default; level <= Best; level++ {
		e := NewEncoder(NewDigest(d, level))
		dst := make([]byte, 0, MaxSize+MaxSize/128+32)
		size := func() uintptr {
			n := unsafe.Sizeof(*e) + uintptr(cap(e.literals)) + uintptr(cap(e.sequences))*unsafe.Sizeof(found{}) + uintptr(cap(e.ways))*unsafe.Sizeof(weighed{})
			if e.fresh != nil {
				n += unsafe.Sizeof(*e.fresh)
			}
			if e.chains != nil {
				n += unsafe.Sizeof(*e.chains)
			}
			return n
		}
		e.Encode(dst, values["profile"])
		small := size()
		for _, v := range values {
			e.Encode(dst, v)
		}
		if large := size(); small > 64<<10 && level <= Fast || large > most[level] {
			t.Errorf("level %d: %d bytes, %d after large values, at most %d", level, small, large, most[level])
		}
		for kind, v := range values {
			room := dst[: 0 : len(v)+len(v)/128+32]
			if n := testing.AllocsPerRun(3, func() { e.Encode(room, v) }); n != 0 {
				t.Errorf("level %d: %v allocations for %s of %d bytes", level, n, kind, len(v))
			}
		}
	}
}

// TestEncoderRepeats: a value's frame does not depend on those before it, also when positions no
// longer fit into the tables.
func TestEncoderRepeats(t *testing.T) {
	d, err := NewDictionary(testDictionary(t))
	if err != nil {
		t.Fatal(err)
	}
	values := testValues(d.content)
	for level := Default; level <= Best; level++ {
		digest := NewDigest(d, level)
		used := NewEncoder(digest)
		for round := range 2 {
			for kind, v := range values {
				got, _ := used.Encode(nil, v)
				want, _ := NewEncoder(digest).Encode(nil, v)
				if !bytes.Equal(got, want) {
					t.Fatalf("level %d, round %d, %s: %d bytes, by a new context %d", level, round, kind, len(got), len(want))
				}
			}
			used.local.next = 1<<32 - 1 - 3*MaxSize
		}
	}
}

// TestDigestIsShared: contexts encode at a time with one digest.
func TestDigestIsShared(t *testing.T) {
	d, err := NewDictionary(testDictionary(t))
	if err != nil {
		t.Fatal(err)
	}
	values := testValues(d.content)
	for level := Default; level <= Best; level++ {
		digest, decoder := NewDigest(d, level), NewDecoder(d)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				e := NewEncoder(digest)
				for kind, v := range values {
					out, err := e.Encode(nil, v)
					if err != nil {
						t.Error(err)
					}
					if got, err := decoder.Decode(nil, out, len(v)); err != nil || !bytes.Equal(got, v) {
						t.Errorf("level %d, %s: %v", level, kind, err)
					}
				}
			})
		}
		wg.Wait()
	}
}

// FuzzEncode: whatever the value, the dictionary and the level, both decoders give the value back.
func FuzzEncode(f *testing.F) {
	trained, few := testDictionary(f), incomplete(f)
	for i, v := range testValues(trained) {
		if len(v) < 4000 {
			f.Add(v, []byte(i), uint8(len(v)))
		}
	}
	rng := rand.New(rand.NewPCG(9, 10))
	for i := range 16 {
		value := [][]byte{{}, {7}, make([]byte, MaxSize), bytes.Repeat(testvalues.Profile(i), 200)}[i/4%4]
		f.Add(value, forgedTables(f, rng, trained), uint8(i%4))
	}
	readers := map[string]func([]byte) ([]byte, error){string(trained): reader(f, trained), string(few): reader(f, few)}
	f.Fuzz(func(t *testing.T, value, content []byte, choice uint8) {
		dictionary := content
		switch choice >> 2 % 4 {
		case 1:
			dictionary = trained
		case 2:
			dictionary = few
		case 3: // the tables with other content
			d, _ := NewDictionary(trained)
			dictionary = append(trained[:len(trained)-len(d.content):len(trained)-len(d.content)], content...)
		}
		d, err := NewDictionary(dictionary)
		if err != nil {
			return
		}
		e := NewEncoder(NewDigest(d, Level(choice%4)))
		value = value[:min(len(value), MaxSize)]
		read, decoder := readers[string(dictionary)], NewDecoder(d)
		for range 2 { // with and without what the context keeps
			out, err := e.Encode(nil, value)
			if err != nil {
				t.Fatal(err)
			}
			if len(out) > len(value)+len(value)/128+32 {
				t.Fatalf("%d bytes for %d", len(out), len(value))
			}
			if got, err := decoder.Decode(nil, out, len(value)); err != nil || !bytes.Equal(got, value) {
				t.Fatalf("our decoder: %v", err)
			}
			if read == nil {
				continue // a reader of the library takes long to make
			}
			if got, err := read(out); err != nil || !bytes.Equal(got, value) {
				t.Fatalf("library: %v", err)
			}
		}
	})
}
