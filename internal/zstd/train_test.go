package zstd

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/balekv/bale/internal/testvalues"
)

// trained makes a dictionary of the samples' tables and plain content.
func trained(t testing.TB, content []byte, samples [][]byte, size int) []byte {
	t.Helper()
	b := content
	for range 2 { // with the tables of the first round, the encoder finds other sequences
		d, err := NewDictionary(b)
		if err != nil {
			return b
		}
		var trainer Trainer
		trainer.With(d, Default)
		for _, s := range samples {
			trainer.Add(s)
		}
		b = trainer.Dictionary(content, size)
	}
	return b
}

// TestTrainer: the tables serve other values as well as those of klauspost's builder for the same
// content. These lack symbols, which saves 0.2%; ours can write all sequences.
func TestTrainer(t *testing.T) {
	var content []byte
	var samples, others [][]byte
	for i := range 1000 {
		if i < 30 {
			content = append(content, testvalues.Profile(i)...)
		}
		samples, others = append(samples, testvalues.Profile(1000+i)), append(others, testvalues.Profile(2000+i))
	}
	b := trained(t, content, samples, 1<<20)
	theirs, err := zstd.BuildDict(zstd.BuildDictOptions{ID: 1, Contents: samples, History: content, Offsets: [3]int{1, 4, 8}, Level: zstd.SpeedDefault})
	if err != nil {
		t.Fatal(err)
	}
	size := func(b []byte) (n int) {
		d, err := NewDictionary(b)
		if err != nil {
			t.Fatal(err)
		}
		e := NewEncoder(NewDigest(d, Default))
		decode := reader(t, b)
		for _, v := range others {
			frame, err := e.Encode(nil, v)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := decode(frame); err != nil || !bytes.Equal(back, v) {
				t.Fatalf("comes back different: %v", err)
			}
			n += len(frame)
		}
		return n
	}
	plain, other, ours := size(content), size(theirs), size(b)
	t.Logf("%d bytes without tables, %d with theirs, %d with ours", plain, other, ours)
	if float64(ours) > 1.005*float64(other) {
		t.Errorf("%d bytes with the tables, %d without, %d with klauspost's", ours, plain, other)
	}
	d, err := NewDictionary(b)
	if err != nil || !bytes.Equal(d.content, content) {
		t.Fatalf("content of %d bytes, want %d; %v", len(d.content), len(content), err)
	}
	if g := NewDigest(d, Default); !g.tables.complete || g.tables.literals.complete {
		t.Errorf("all sequences: %v, all literals: %v", g.tables.complete, g.tables.literals.complete)
	}
	if d.offsets == startOffsets {
		t.Error("no repeat offsets")
	}
	if again := trained(t, content, samples, 1<<20); !bytes.Equal(again, b) {
		t.Error("the same samples give another dictionary")
	}
	if cut := trained(t, content, samples, 4<<10); len(cut) != 4<<10 || !bytes.HasSuffix(content, cut[1000:]) {
		t.Errorf("%d bytes where 4 KiB were asked for", len(cut))
	}
}

// TestTrainerLiterals: every byte has a code where values often have a byte that no sample has.
func TestTrainerLiterals(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	content := []byte("what values have in common, and more of the kind")
	var samples [][]byte
	for range 30 {
		samples = append(samples, fmt.Appendf(nil, "%s%c%x", content[:10], rune(128+rng.IntN(100)), rng.Uint64()))
	}
	d, err := NewDictionary(trained(t, content, samples, 1<<10))
	if err != nil {
		t.Fatal(err)
	}
	if g := NewDigest(d, Default); !g.tables.literals.complete {
		t.Error("bytes have no code")
	}
	for c := range 256 {
		if d.literals.of[c] == 0 {
			t.Errorf("byte %d has no code", c)
		}
	}
}

// TestTrainerParses: the sequences are those that the Encoder writes, and make up the value.
func TestTrainerParses(t *testing.T) {
	b := testDictionary(t)
	d, err := NewDictionary(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, level := range []Level{Default, Best} {
		e := NewEncoder(NewDigest(d, level))
		for name, v := range testValues(d.content) {
			history := bytes.Clone(d.content)
			e.parse(v, func(literals []byte, match, offset, code uint32) {
				history = append(history, literals...)
				for range match {
					history = append(history, history[len(history)-int(offset)])
				}
			})
			if !bytes.Equal(history[len(d.content):], v) {
				t.Errorf("level %d, %s: the sequences make another value", level, name)
			}
		}
	}
}

// TestTrainerOfLittle: what has no tables is no dictionary, and nothing is too large or too odd.
func TestTrainerOfLittle(t *testing.T) {
	content := bytes.Repeat([]byte("content "), 100)
	random := make([]byte, MaxSize+5)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	for name, samples := range map[string][][]byte{
		"none": nil, "empty": {nil, {}}, "one byte": {{1}}, "one": {content}, "random": {random}, "equal": {make([]byte, 1<<20)},
	} {
		for _, size := range []int{10, 1 << 10, 1 << 20} {
			b := trained(t, content, samples, size)
			if b == nil {
				continue
			}
			if _, err := NewDictionary(b); err != nil && size > 512 {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
