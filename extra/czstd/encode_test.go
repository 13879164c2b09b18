//go:build cgo && linux

package czstd

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/valyala/gozstd"

	"github.com/balekv/bale/dict"
	engine "github.com/balekv/bale/internal/zstd"
)

// engineDictionaries are those of both trainers, plain ones, and one of the largest size.
func engineDictionaries(tb testing.TB) map[string][]byte {
	var samples, large [][]byte
	for i := range 10_000 {
		p := profile(i)
		if large = append(large, p); i < 2000 {
			samples = append(samples, p)
		}
	}
	ours, err := dict.Train(context.Background(), samples[:200], dict.TrainOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	trained := gozstd.BuildDict(samples, 16<<10)
	return map[string][]byte{
		"none": nil, "libzstd's": trained, "large": gozstd.BuildDict(samples, 112<<10), "our own": ours.Dictionary.Bytes(),
		"1 MiB": bytes.Join(large, nil)[:1<<20], "plain": bytes.Join(samples[:20], nil), "tiny": []byte("{\"id\":"),
		"tables and 1 MiB": append(bytes.Clone(trained), bytes.Join(large, nil)...)[:1<<20],
	}
}

// TestEncoder: libzstd and the pure-Go decoder read what the pure-Go encoder writes, of all levels.
func TestEncoder(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for name, dictionary := range engineDictionaries(t) {
		d, err := engine.NewDictionary(dictionary)
		if err != nil {
			t.Fatal(err)
		}
		read, decoder := reader(t, dictionary), engine.NewDecoder(d)
		var sources [][]byte
		for _, values := range realValues(t) {
			sources = append(sources, values[:min(len(values), 60)]...)
		}
		all := append(values(), sources...)
		if len(dictionary) > 0 {
			all = append(all, dictionary, dictionary[len(dictionary)/2:], bytes.Repeat(dictionary[max(len(dictionary)-40, 0):], 5))
			sources = append(sources, dictionary, dictionary)
		}
		for range 100 {
			all = append(all, mixture(rng, sources))
		}
		for level := engine.Default; level <= engine.Best; level++ {
			e := engine.NewEncoder(engine.NewDigest(d, level))
			for i, v := range all {
				v = v[:min(len(v), engine.MaxSize)]
				frame, err := e.Encode(nil, v)
				if err != nil {
					t.Fatal(err)
				}
				read(t, frame, v)
				if got, err := decoder.Decode(nil, frame, len(v)); err != nil || !bytes.Equal(got, v) {
					t.Fatal(fmt.Sprintf("%s, level %d, value %d of %d bytes: %v", name, level, i, len(v), err))
				}
			}
		}
	}
}

// TestManyValues: values under many dictionaries, all levels in turn, come back by libzstd, by
// klauspost's decoder and by our own. It tries BALE_FUZZ_N values or 20,000, 10,000 a dictionary.
func TestManyValues(t *testing.T) {
	const each = 10_000
	rng := rand.New(rand.NewPCG(7, 8))
	var samples [][]byte
	for _, values := range realValues(t) {
		samples = append(samples, values[:min(len(values), 2000)]...)
	}
	dst, back := make([]byte, 0, 1<<18), make([]byte, 0, 1<<18)
	plain, packed := 0, 0
	for range max(fuzzRuns(t)/each, 1) {
		dictionary := randomDictionary(rng, samples)
		d, err := engine.NewDictionary(dictionary)
		if err != nil {
			t.Fatal(err)
		}
		decoder := engine.NewDecoder(d)
		var encoders []*engine.Encoder
		for level := engine.Default; level <= engine.Best; level++ {
			encoders = append(encoders, engine.NewEncoder(engine.NewDigest(d, level)))
		}
		dd, err := gozstd.NewDDict(dictionary)
		if err != nil {
			t.Fatal(err)
		}
		header, option := []byte{0x28, 0xB5, 0x2F, 0xFD, 0}, zstd.WithDecoderDictRaw(0, dictionary)
		var id []byte
		if bytes.HasPrefix(dictionary, []byte{0x37, 0xA4, 0x30, 0xEC}) {
			dictionary = bytes.Clone(dictionary)
			copy(dictionary[4:], []byte{1, 0, 0, 0})
			id, option = []byte{1}, zstd.WithDecoderDicts(dictionary)
		}
		kp, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), option)
		if err != nil {
			t.Fatal(err)
		}
		for i := range each {
			v := samples[rng.IntN(len(samples))]
			if i%4 == 0 {
				v = mixture(rng, [][]byte{v, samples[rng.IntN(len(samples))], dictionary})
				v = v[:min(len(v), rng.IntN(8<<10), engine.MaxSize)]
			}
			frame, err := encoders[i/4%len(encoders)].Encode(append(dst, header[:4]...), v)
			if err != nil {
				t.Fatal(err)
			}
			plain, packed = plain+len(v), packed+len(frame)-4
			if got, err := decoder.Decode(back, frame[4:], len(v)); err != nil || !bytes.Equal(got, v) {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
			if got, err := gozstd.DecompressDict(back, frame, dd); err != nil || !bytes.Equal(got, v) {
				t.Fatalf("libzstd: %d bytes, %v", len(got), err)
			}
			named := slices.Concat(header[:4], []byte{byte(len(id))}, frame[5:6], id, frame[6:])
			if got, err := kp.DecodeAll(named, back); err != nil || !bytes.Equal(got, v) {
				t.Fatalf("klauspost: %d bytes of %d, %v", len(got), len(v), err)
			}
		}
		dd.Release()
		kp.Close()
	}
	t.Logf("%d bytes became %d", plain, packed)
}

// randomDictionary is one of libzstd's trainer, of some size and samples, or plain content.
func randomDictionary(rng *rand.Rand, samples [][]byte) []byte {
	size := 1 << (8 + rng.IntN(9))
	if rng.IntN(4) == 0 {
		plain := mixture(rng, samples)
		return append([]byte("plain: "), plain[:min(len(plain), size)]...)
	}
	from := rng.IntN(len(samples))
	some := samples[from:min(from+100+rng.IntN(1000), len(samples))]
	if trained := gozstd.BuildDict(some, size); len(trained) > 0 {
		return trained
	}
	return some[0]
}

// mixture joins parts of the sources, random bytes and runs.
func mixture(rng *rand.Rand, sources [][]byte) (v []byte) {
	for range 1 + rng.IntN(30) {
		n := 1 << rng.IntN(12)
		n += rng.IntN(n)
		switch rng.IntN(8) {
		case 0:
			for range min(n, 300) {
				v = append(v, byte(rng.Uint32()))
			}
		case 1:
			v = append(v, bytes.Repeat([]byte{byte(rng.Uint32())}, n)...)
		default:
			s := sources[rng.IntN(len(sources))]
			from := rng.IntN(len(s))
			v = append(v, s[from:min(from+n, len(s))]...)
		}
	}
	return v
}
