package bale

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
)

var writeDamaged = flag.Bool("write-damaged", false, "write "+damagedFile+" anew")

const (
	damagedFile = "frame/testdata/damaged.ndjson"

	// damagedValue is the largest stored value that is damaged, so that the file stays small.
	damagedValue = 320
)

// TestDamaged: what this package makes of damaged frames. Readers in other languages have the same
// list.
func TestDamaged(t *testing.T) {
	var want bytes.Buffer
	verdicts := map[string]int{}
	for _, v := range damaged(t) {
		line, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&want, "%s\n", line)
		verdicts[v.Error]++
	}
	if *writeDamaged {
		if err := os.WriteFile(damagedFile, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(damagedFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.String(), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", damagedFile, diff)
	}
	for _, verdict := range []string{"", "corrupt", "too large", "unknown dictionary", "unknown algorithm"} {
		if verdicts[verdict] < 10 {
			t.Errorf("%d values are %q: %v", verdicts[verdict], verdict, verdicts)
		}
	}
}

// damaged damages the vectors, always in the same ways.
func damaged(t *testing.T) (all []vector) {
	readers := dictionaryReaders(t)
	seen := map[string]bool{}
	for _, v := range readVectors(t) {
		stored, err := hex.DecodeString(v.Stored)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, ok := frame.Parse(stored); !ok || len(stored) > damagedValue {
			continue
		}
		p := newPacker(t, PackerOptions{Compressors: &compress.Set{Read: readers}, MaxSize: v.MaxSize})
		add := func(how string, b []byte) {
			if seen[string(b)] || bytes.Equal(b, stored) {
				return
			}
			seen[string(b)] = true
			d := vector{Name: v.Name + ": " + how, Stored: hex.EncodeToString(b), MaxSize: v.MaxSize}
			content, err := p.Unpack(t.Context(), nil, b)
			d.Content = hex.EncodeToString(content)
			for name, class := range vectorErrors {
				if errors.Is(err, class) {
					d.Error = name
				}
			}
			if err != nil && d.Error == "" {
				t.Fatalf("%s: %v", d.Name, err)
			}
			all = append(all, d)
		}
		damage(stored, add)
	}
	return all
}

// damage calls add with a few dozen variants of a frame.
func damage(stored []byte, add func(how string, b []byte)) {
	h, offset, _ := frame.Parse(stored)
	payload := stored[offset:]
	r := rand.New(rand.NewPCG(1, uint64(len(stored))))
	for _, n := range []int{2, 5, offset - 1, offset, offset + r.IntN(len(payload)+1), len(stored) - 12, len(stored) - 1} {
		if n >= 0 && n < len(stored) {
			add(fmt.Sprintf("cut to %d bytes", n), stored[:n])
		}
	}
	add("a zero more", append(bytes.Clone(stored), 0))
	add("twice", append(bytes.Clone(stored), stored...))
	flip := func(at, bit int) {
		b := bytes.Clone(stored)
		b[at] ^= 1 << bit
		add(fmt.Sprintf("bit %d of byte %d", bit, at), b)
	}
	flip(r.IntN(offset), r.IntN(8))
	for range min(3, len(payload)) {
		flip(offset+r.IntN(len(payload)), r.IntN(8))
	}
	// Headers that check, and say something else.
	header := func(how string, change func(*frame.Header)) {
		changed := h
		change(&changed)
		b := changed.Append(nil)
		if h.Algorithm.LengthInPayload() != changed.Algorithm.LengthInPayload() {
			return // the length would be there twice, or not at all
		}
		add(how, append(b, payload...))
	}
	header("a longer content", func(h *frame.Header) { h.Length++ })
	header("a shorter content", func(h *frame.Header) { h.Length -= min(h.Length, 1) })
	header("a content of a MiB", func(h *frame.Header) { h.Length = 1 << 20 })
	header("a content of a TiB", func(h *frame.Header) { h.Length = 1 << 40 })
	header("no checksum", func(h *frame.Header) { h.HasChecksum = false })
	header("another checksum", func(h *frame.Header) { h.HasChecksum, h.Checksum = true, h.Checksum+1 })
	header("another dictionary", func(h *frame.Header) { h.DictionaryID++ })
	header("the next algorithm", func(h *frame.Header) { h.Algorithm = (h.Algorithm + 1) % 16 })
	header("the next version", func(h *frame.Header) { h.Version = h.Version%4 + 1 })
	if h.HasChecksum && len(payload) > 0 { // so that the decoder alone can find it out
		b := frame.Header{Version: h.Version, Algorithm: h.Algorithm, DictionaryID: h.DictionaryID, Length: h.Length}.Append(nil)
		for range 2 {
			damaged := slices.Concat(b, payload)
			at, bit := r.IntN(len(payload)), r.IntN(8)
			damaged[len(b)+at] ^= 1 << bit
			add(fmt.Sprintf("no checksum, bit %d of byte %d of the payload", bit, at), damaged)
		}
	}
}
