package zstd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/balekv/bale/internal/testvalues"
)

// testDictionary is a frozen dictionary of profiles, in the trainer's format.
func testDictionary(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile("../../frame/testdata/trained.dict")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// theirs reads a dictionary by the library.
func theirs(b []byte) (id uint32, content []byte, offsets [3]int, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	d, err := zstd.InspectDictionary(b)
	if err != nil {
		return 0, nil, offsets, err
	}
	return d.ID(), d.Content(), d.Offsets(), nil
}

func TestDictionary(t *testing.T) {
	b := testDictionary(t)
	d, err := NewDictionary(b)
	if err != nil {
		t.Fatal(err)
	}
	id, content, offsets, err := theirs(b)
	if err != nil || !d.tables || d.id != id || !bytes.Equal(d.content, content) {
		t.Errorf("id %d, %d bytes, offsets %v; library: %d, %d, %v, %v", d.id, len(d.content), d.offsets, id, len(content), offsets, err)
	}
	for i, o := range offsets {
		if d.offsets[i] != uint32(o) {
			t.Errorf("repeat offset %d, library: %d", d.offsets[i], o)
		}
	}
	for _, plain := range [][]byte{nil, b[:4], b[1:], []byte("plain content")} {
		if d, err := NewDictionary(plain); err != nil || d.tables || !bytes.Equal(d.content, plain) || d.offsets != startOffsets {
			t.Errorf("plain %.20q: %+v, %v", plain, d, err)
		}
	}
}

// TestDamagedDictionary: every damaged dictionary is refused that the library refuses.
func TestDamagedDictionary(t *testing.T) {
	b := testDictionary(t)
	d, _ := NewDictionary(b)
	tables := len(b) - len(d.content)
	rng := rand.New(rand.NewPCG(1, 2))
	refused, accepted := 0, 0
	for i := range 100_000 {
		damaged := bytes.Clone(b)
		if i%2 == 0 {
			damaged[8+rng.IntN(tables-8)] ^= 1 << rng.IntN(8)
		} else {
			damaged = testvalues.Mutate(rng, damaged)
		}
		ours, err := NewDictionary(damaged)
		if err != nil {
			if refused++; !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%x: %v is not ErrCorrupt", damaged, err)
			}
			continue
		}
		if !ours.tables || ours.id == 0 {
			continue // the library takes no such one
		}
		accepted++
		if _, content, _, err := theirs(damaged); err != nil || !bytes.Equal(content, ours.content) {
			t.Fatalf("%x is accepted with %d bytes; library: %d, %v", damaged, len(ours.content), len(content), err)
		}
	}
	if refused < 10_000 || accepted < 1000 {
		t.Errorf("%d refused, %d accepted", refused, accepted)
	}
}

// TestDistribution: each symbol gets the states of its count, in a table without gaps.
func TestDistribution(t *testing.T) {
	d, err := NewDictionary(testDictionary(t))
	if err != nil {
		t.Fatal(err)
	}
	for code, limits := range codes {
		for _, dist := range []distribution{limits.predefined, d.distributions[code]} {
			var table [1 << maxTableLog]uint8
			dist.spread(&table)
			var states [maxSymbols]int
			for _, symbol := range table[:1<<dist.log] {
				states[symbol]++
			}
			for symbol, n := range states {
				if count := int(dist.counts[symbol]); n != max(count, -count) {
					t.Errorf("%s: symbol %d has %d states, its count is %d", limits.name, symbol, n, count)
				}
			}
		}
	}
	// This one of offsets has code 31, which the library refuses.
	var d31 distribution
	if _, err := d31.read([]byte("\x82\x08\x3c\x04\x68\x00\x99\x18\x0d\x50\x1c\x0e\x42\x04\x00"), codes[offsetCode].symbols, 8); !errors.Is(err, ErrCorrupt) {
		t.Errorf("code 31: %v", err)
	}
	if literalBases[35] != 65536 || matchBases[52] != 65539 {
		t.Errorf("last bases %d and %d", literalBases[35], matchBases[52])
	}
}

// TestForgedPrefixes: content whose prefixes would all have one place by a known hash does not make
// the search for a place quadratic.
func TestForgedPrefixes(t *testing.T) {
	var content []byte
	for p := uint32(0); p < 1<<24 && len(content) < 1<<14; p++ {
		if uint64(p<<8)*multiplier>>50 < 1<<8 {
			content = append(content, byte(p), byte(p>>8), byte(p>>16))
		}
	}
	s, away, n := newSuffixes(content), 0, 0
	for i, r := range s.ranges {
		if r.from < r.to {
			home := int(uint64(r.prefix) * s.by >> s.shift)
			away, n = away+(i-home+len(s.ranges))%len(s.ranges), n+1
		}
	}
	if n < len(content)/4 || away > 100*n {
		t.Errorf("%d prefixes are %d places away on average", n, away/max(n, 1))
	}
}

// TestFullPrefixes: content in which no prefix stands twice leaves places free, for a search of a
// missing prefix to end at one soon.
func TestFullPrefixes(t *testing.T) {
	const n = 1<<14 - 1
	rng := rand.New(rand.NewPCG(1, 2))
	content, seen := []byte{1, 2}, map[uint32]bool{}
	for len(content) < n+7 {
		at := uint32(content[len(content)-2]) | uint32(content[len(content)-1])<<8
		if c := byte(rng.Uint32()); !seen[at|uint32(c)<<16] {
			seen[at|uint32(c)<<16] = true
			content = append(content, c)
		}
	}
	s := newSuffixes(content)
	taken, run, longest := 0, 0, 0
	for _, r := range s.ranges {
		run++
		if r.from == r.to {
			run = 0
		} else {
			taken++
		}
		longest = max(longest, run)
	}
	if taken != n || longest > n/16 {
		t.Errorf("%d prefixes, up to %d of them without a free place between", taken, longest)
	}
}

// TestForgedChains: content with one string again and again, in rising order, does not make the way
// from a match to the nearest one long. Each step is to a shorter match.
func TestForgedChains(t *testing.T) {
	var content []byte
	for i := range uint32(1000) {
		content = binary.BigEndian.AppendUint32(append(content, "STUVW"...), i)
	}
	s, most := newSuffixes(content), 0
	for i := range content {
		steps := 0
		for at, length := s.shorter(i); length > 0; steps++ {
			next, shorter := s.shorter(at)
			if shorter >= length {
				t.Fatalf("from %d a match of %d bytes leads to one of %d", i, length, shorter)
			}
			at, length = next, shorter
		}
		most = max(most, steps)
	}
	if most == 0 {
		t.Error("no position has a nearer one")
	}
}
