package frame

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var headers = []Header{
	{Version: V1, Algorithm: Stored, Length: 0},
	{Version: V1, Algorithm: Stored, HasChecksum: true, Checksum: 0xdeadbeef, Length: 127},
	{Version: V1, Algorithm: Snappy, HasChecksum: true, Checksum: 1, Length: 128},
	{Version: V1, Algorithm: S2, DictionaryID: 0x01020304, HasChecksum: true, Length: 16383},
	{Version: V1, Algorithm: LZ4, DictionaryID: 0xffffffff, Length: 16384},
	{Version: V1, Algorithm: Gzip, HasChecksum: true, Checksum: 0xffffffff, Length: 2<<20 - 1},
	{Version: V1, Algorithm: Zstd, DictionaryID: 1, HasChecksum: true, Checksum: 7, Length: 2 << 20},
	{Version: V1, Algorithm: 15, HasChecksum: true, Length: math.MaxInt64},
	{Version: V2, Algorithm: Chunks, HasChecksum: true, Checksum: 3, Length: 77},
	{Version: 4, Algorithm: Zstd, Length: 5},
}

// whole is a header with a payload; one that starts with the length, where the algorithm has it so.
func whole(h Header) []byte {
	b := h.Append([]byte("before"))[len("before"):]
	if h.Algorithm.LengthInPayload() {
		b = binary.AppendUvarint(b, h.Length)
	}
	return append(b, "payload"...)
}

func TestHeaderRoundTrip(t *testing.T) {
	for _, h := range headers {
		b := whole(h)
		got, offset, ok := Parse(b)
		if !ok {
			t.Errorf("%+v is not recognised: %x", h, b)
			continue
		}
		if diff := cmp.Diff(h, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		want := len(b) - len("payload")
		if h.Algorithm.LengthInPayload() {
			want -= uvarintLen(h.Length)
		}
		if offset != want || offset != h.PayloadOffset() || offset > MaxHeaderSize {
			t.Errorf("%+v: offset %d, want %d, PayloadOffset %d", h, offset, want, h.PayloadOffset())
		}
		if known := h.Version <= V2 && h.Algorithm <= Chunks; h.Known() != known {
			t.Errorf("%+v: known %v", h, h.Known())
		}
	}
}

func TestDamagedHeaderIsNoFrame(t *testing.T) {
	for _, h := range headers {
		b := whole(h)
		size := h.PayloadOffset()
		if h.Algorithm.LengthInPayload() {
			size += uvarintLen(h.Length)
		}
		for bit := range size * 8 {
			b[bit/8] ^= 1 << (bit % 8)
			if got, _, ok := Parse(b); ok {
				t.Errorf("%+v with bit %d flipped passes as %+v", h, bit, got)
			}
			b[bit/8] ^= 1 << (bit % 8)
		}
		for n := range size {
			if _, _, ok := Parse(b[:n]); ok {
				t.Errorf("%+v passes with %d of its %d bytes", h, n, size)
			}
		}
	}
}

// seal puts the right check into a header that Append would not write.
func seal(b []byte) []byte {
	binary.LittleEndian.PutUint16(b[checkOffset:], check(b))
	return b
}

func TestHeadersThatNobodyWrites(t *testing.T) {
	for name, b := range map[string][]byte{
		"a uvarint that is not the shortest": {0xBA, 0x1E, 0x05, 0, 0, 0x85, 0x00},
		"dictionary 0":                       {0xBA, 0x1E, 0x25, 0, 0, 0, 0, 0, 0, 1},
		"a length of 2^63":                   {0xBA, 0x1E, 0x05, 0, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01},
		"a length of 70 bits":                {0xBA, 0x1E, 0x05, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"no length":                          {0xBA, 0x1E, 0x05, 0, 0},
	} {
		if h, _, ok := Parse(seal(b)); ok {
			t.Errorf("%s passes as %+v", name, h)
		}
	}
	// The check itself is not what refuses them.
	if _, _, ok := Parse(seal([]byte{0xBA, 0x1E, 0x05, 0, 0, 0x05})); !ok {
		t.Error("a header with the right check is refused")
	}
}

// TestForeignBytes draws random values that start with the magic. The check passes at most one in
// 2^16, and not none. With the 16 bits of the magic that makes 2^-32.
func TestForeignBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const n = 4 << 20
	passed := 0
	b := make([]byte, 32)
	for range n {
		for i := 0; i < len(b); i += 8 {
			binary.LittleEndian.PutUint64(b[i:], rng.Uint64())
		}
		b[0], b[1] = magic0, magic1
		if _, _, ok := Parse(b); ok {
			passed++
		}
	}
	// 64 are expected if all lengths were acceptable; six standard deviations above are 112.
	if passed > 112 {
		t.Errorf("%d of %d pass, want 64 at most", passed, n)
	}
	if passed == 0 {
		t.Error("none passes: the test does not reach the check")
	}
}

func TestTextIsNoFrame(t *testing.T) {
	for _, s := range []string{"", "a", "12", `{"a":1}`, "\u00ba\u001e text", "日本語", strings.Repeat("x", 100), "\xba", "\xba\x1e", "\x1e\xba\x05\x00\x00\x00"} {
		if _, _, ok := Parse([]byte(s)); ok {
			t.Errorf("%q passes for a frame", s)
		}
		if want := strings.HasPrefix(s, "\xba\x1e"); HasMagic(s) != want || HasMagic([]byte(s)) != want {
			t.Errorf("HasMagic(%q) = %v", s, HasMagic(s))
		}
	}
}

func TestAlgorithmNames(t *testing.T) {
	for a := range Algorithm(16) {
		got, err := ParseAlgorithm(a.String())
		if a.Known() != (err == nil) || err == nil && got != a {
			t.Errorf("%d: %q, known %v, parsed %d, %v", a, a, a.Known(), got, err)
		}
	}
}

func TestDescribe(t *testing.T) {
	describe := func(b []byte) []string {
		fields, _ := Describe(b)
		var lines []string
		for _, f := range fields {
			lines = append(lines, f.String())
		}
		return lines
	}
	if diff := cmp.Diff([]string{
		"   0  ba1e                     magic       a bale frame",
		"   2  32                       tag         version 1, s2, checksum, dictionary",
		"   3  acac                     check       matches the header",
		"   5  00000000                 checksum    CRC-32C of the content is 00000000",
		"   9  04030201                 dictionary  id 01020304",
		"  13  ff7f                     length      16383 bytes decoded (the payload's own first field)",
		"  13  ff7f7061796c6f6164       payload     9 bytes of s2",
	}, describe(whole(headers[3]))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"   0  68656c6c6f               plain       5 bytes, no frame: stored without bale"}, describe([]byte("hello"))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"   0  ba1e05                   plain       3 bytes, starts like a frame, but its header check is wrong: foreign bytes, or a damaged frame"}, describe([]byte("\xba\x1e\x05"))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// The fields of every header lie one after the other.
	for _, h := range headers {
		b := whole(h)
		if h.Version == V2 {
			b = Freshness{Took: 1}.Append(b)
		}
		fields, ok := Describe(b)
		if h.Version == V2 {
			if last := fields[len(fields)-1]; last.Name != "freshness" || last.Offset != len(b)-FreshnessSize {
				t.Errorf("%+v: %v", h, fields)
			}
			fields = fields[:len(fields)-1]
		}
		at := 0
		for _, f := range fields[:len(fields)-1] {
			if f.Offset != at {
				t.Errorf("%+v: %s is at %d, want %d", h, f.Name, f.Offset, at)
			}
			at += len(f.Bytes)
		}
		if !ok || fields[len(fields)-1].Offset != h.PayloadOffset() {
			t.Errorf("%+v: %v", h, fields)
		}
	}
}

// FuzzParse: no bytes panic, and a header that is recognised is written again as it was.
func FuzzParse(f *testing.F) {
	for _, h := range headers {
		f.Add(whole(h))
	}
	f.Add([]byte("plain"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, offset, ok := Parse(b)
		Describe(b)
		if !ok {
			return
		}
		if again := h.Append(nil); string(again) != string(b[:offset]) {
			t.Errorf("%x is written again as %x", b[:offset], again)
		}
	})
}

func BenchmarkHeader(b *testing.B) {
	h := headers[6]
	frame := whole(h)
	dst := make([]byte, 0, 64)
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			dst = h.Append(dst[:0])
		}
	})
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, ok := Parse(frame); !ok {
				b.Fatal("no frame")
			}
		}
	})
}
