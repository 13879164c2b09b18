package dict

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
)

// cover is the content that a builder chooses.
func cover(ctx context.Context, samples [][]byte, size, k int) ([]byte, error) {
	f, err := count(ctx, samples, denseBytes)
	if err != nil {
		return nil, err
	}
	return f.cover(ctx, size, k)
}

func TestCover(t *testing.T) {
	values := profiles(300)
	for _, k := range []int{16, 64, 1000, 1 << 20} {
		for _, size := range []int{100, 4 << 10, 1 << 20} {
			got, err := cover(t.Context(), values, size, k)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) > size {
				t.Errorf("k=%d: %d bytes where %d were asked for", k, len(got), size)
			}
			if k < 1<<20 && size < 1<<20 && len(got) < size/2 {
				t.Errorf("k=%d: %d bytes of %d", k, len(got), size)
			}
		}
	}
	if got, err := cover(t.Context(), [][]byte{[]byte("short")}, 100, 64); got != nil || err != nil {
		t.Errorf("of too little: %q, %v", got, err)
	}
}

// TestDense: content is the same whether substrings have numbers or go by their hashes, and whether
// other builders have counted the same samples before.
func TestDense(t *testing.T) {
	samples := append(profiles(300), logs(100)...)
	dense, err := count(t.Context(), samples, denseBytes)
	must(t, err)
	hashed, err := count(t.Context(), samples, 0)
	must(t, err)
	if dense.slots == nil || hashed.slots != nil {
		t.Fatal("the wrong ones have numbers")
	}
	for _, size := range []int{2 << 10, 16 << 10} {
		for _, choose := range []func(f *frequencies) ([]byte, error){
			func(f *frequencies) ([]byte, error) { return f.cover(t.Context(), size, 64) },
			func(f *frequencies) ([]byte, error) { return f.cover(t.Context(), size, 2048) },
			func(f *frequencies) ([]byte, error) { return f.wholes(t.Context(), size, 0) },
			func(f *frequencies) ([]byte, error) { return f.wholes(t.Context(), size, 1) },
		} {
			want, err := choose(hashed.clone())
			must(t, err)
			if got, err := choose(dense.clone()); err != nil || len(got) == 0 || !bytes.Equal(got, want) {
				t.Errorf("%d bytes: others with numbers than by hashes, %v", size, err)
			}
		}
	}
	var kept materials
	m := kept.get(samples, 1<<20)
	if m != kept.get(samples, 2<<20) || m == kept.get(samples, 10<<10) {
		t.Error("material is for the wrong samples")
	}
	ctx := context.WithValue(t.Context(), materialKey{}, m)
	for _, b := range Builders(compress.Setting{}) {
		want, err := b.build(t.Context(), samples, 8<<10)
		must(t, err)
		if got, err := b.build(ctx, samples, 8<<10); err != nil || got.ID() != want.ID() {
			t.Errorf("%v: another dictionary of material that is kept, %v", &b, err)
		}
	}
	large := slices.Repeat([][]byte{make([]byte, 1<<20)}, 5)
	if kept.get(large, 8<<20) == kept.get(large, 8<<20) {
		t.Error("much material is kept")
	}
}

// TestSearchEnds: sizes end where larger ones come nowhere near the best, and not before.
func TestSearchEnds(t *testing.T) {
	largest := func(values int64) (n int) {
		o := quick(TrainOptions{Values: values, MaxSize: 128 << 10, NoRefit: true, NoTimes: true})
		got, err := Train(t.Context(), profiles(4000), o)
		must(t, err)
		for _, c := range got.Candidates {
			n = max(n, c.Asked)
		}
		return n
	}
	if few, many := largest(4000), largest(10_000_000); few > 32<<10 || many != 128<<10 {
		t.Errorf("sizes up to %d for few values, %d for many", few, many)
	}
}

func TestReadFS(t *testing.T) {
	a, b := bytes.Repeat([]byte("a"), 20), bytes.Repeat([]byte("b"), 30)
	got, err := ReadFS(fstest.MapFS{"a.dict": {Data: a}, "b.dict": {Data: b}, "other.txt": {Data: []byte("x")}})
	if err != nil || len(got) != 2 || !bytes.Equal(got[0].Bytes(), a) || !bytes.Equal(got[1].Bytes(), b) {
		t.Errorf("%v, %v", got, err)
	}
	same := fstest.MapFS{"a.dict": {Data: a}, "b.dict": {Data: b}, "c.dict": {Data: a}}
	if got, err := ReadFS(same); err != nil || len(got) != 2 {
		t.Errorf("a dictionary in two files: %v, %v", got, err)
	}
	many := fstest.MapFS{}
	for i := range maxBundle/frame.MaxDictionarySize + 1 {
		many[fmt.Sprintf("%d.dict", i)] = &fstest.MapFile{Data: make([]byte, frame.MaxDictionarySize)}
	}
	if _, err := ReadFS(many); !errors.Is(err, ErrInvalid) {
		t.Errorf("%d large files: %v", len(many), err)
	}
	for name, fsys := range map[string]fstest.MapFS{"none": {}, "short": {"a.dict": {Data: []byte("x")}}} {
		if _, err := ReadFS(fsys); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func BenchmarkCover(b *testing.B) {
	values := profiles(2500)
	size := 0
	for _, v := range values {
		size += len(v)
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := cover(b.Context(), values, 64<<10, 256); err != nil {
			b.Fatal(err)
		}
	}
}

// lasting is a context that ends after a number of calls of Err.
type lasting struct {
	context.Context
	left int
}

func (l *lasting) Err() error {
	if l.left--; l.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestWholesForged: samples that are worth nothing once one of them is chosen are not looked at
// again for each small one that is.
func TestWholesForged(t *testing.T) {
	const size, small = 8 << 10, 400
	rng := rand.New(rand.NewPCG(1, 2))
	same := make([]byte, 1000)
	for i := range same {
		same[i] = byte(rng.Uint32())
	}
	samples := slices.Repeat([][]byte{same}, 800)
	for range small {
		samples = append(samples, binary.LittleEndian.AppendUint64(nil, rng.Uint64()))
	}
	f, err := count(t.Context(), samples, denseBytes)
	if err != nil {
		t.Fatal(err)
	}
	for length := range 2 {
		if content, err := f.wholes(t.Context(), size, length); err != nil || len(content) < len(same)+7*small {
			t.Errorf("%d bytes, %v", len(content), err)
		}
		if most := uint32(3 * len(samples)); f.scored > most {
			t.Errorf("%d samples were scored, at most %d are to be", f.scored, most)
		}
		if f, err = count(t.Context(), samples, denseBytes); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBuildersEnd: a builder returns when its context ends, at whatever step, and so does Train.
func TestBuildersEnd(t *testing.T) {
	values := profiles(300)
	for _, b := range append(Builders(compress.Setting{})[2:4], Builders(compress.Setting{})[7]) {
		steps := 0
		for ended := true; ended; steps++ {
			ctx := &lasting{t.Context(), steps}
			d, err := b.build(ctx, values, 4<<10)
			if ended = ctx.left < 0; ended && (d != nil || !errors.Is(err, context.Canceled)) {
				t.Fatalf("%v, at step %d: %v, %v", &b, steps, d, err)
			}
			if ctx.left < -2 {
				t.Fatalf("%v, at step %d: it goes on for %d steps", &b, steps, -ctx.left)
			}
			if !ended && err != nil {
				t.Fatalf("%v: %v", &b, err)
			}
		}
		if steps < 6 {
			t.Errorf("%v looks at its context %d times", &b, steps)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits := Builder{Name: "waits", Build: func(ctx context.Context, _ [][]byte, _ int) ([]byte, error) {
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	if _, err := Train(ctx, values, TrainOptions{Builders: []Builder{waits}, NoTimes: true}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestBuildersFrozen: every platform makes the same dictionaries of the same samples. A change of
// the builders, or of the encoder's default level, makes others.
func TestBuildersFrozen(t *testing.T) {
	values := append(profiles(300), logs(100)...)
	got := map[string]frame.DictionaryID{}
	for _, b := range Builders(compress.Setting{}) {
		d, err := b.build(t.Context(), values, 16<<10)
		if err != nil {
			t.Fatal(err)
		}
		got[b.String()] = d.ID()
	}
	want := map[string]frame.DictionaryID{
		"go cover k=64": 0xef913d2c, "go cover k=128": 0x6465f6a5, "go cover k=256": 0x6a28fb79, "go cover k=512": 0xa563daee,
		"go cover k=2048": 0xb618068d, "go cover k=4096": 0x0b0197ab, "go values by score": 0x4c03ff2b, "go values by density": 0xf1e23b13,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
