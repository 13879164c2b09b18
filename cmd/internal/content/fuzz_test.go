package content_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/balekv/bale/cmd/internal/content"
	"github.com/balekv/bale/internal/testvalues"
)

// seeds are a value of each kind.
func seeds(f *testing.F) {
	rng := rand.New(rand.NewPCG(11, 11))
	for _, k := range kinds {
		f.Add(k.make(f, rng, 300))
	}
	for _, k := range others {
		f.Add(k.make(f, rng, 100))
	}
	for _, s := range []string{"", "\x81\xa1a\x01", "\xbf\x61a\x9f\x01\x02\xff\x61b\x7f\x61x\x61y\xff\xff", "\xdf\xff\xff\xff\xff", "\x9b\xff\xff\xff\xff\xff\xff\xff\xff", "\x80\x04\x95", "a:1:{",
		"s:99999:\"", "O:5:\"", "x|s:2147483647:\"", "\xff\xff\xff\xff\x0f\xff\xff\xff\xff\xff", "\x50\x2a\x4d\x18\xff\xff\xff\xff", "\x78\x9c\x01\x02\x03\x04\x05\x06"} {
		f.Add([]byte(s))
	}
}

// FuzzDetect holds that nothing panics, that the kinds that can be checked are right, and that
// hardly anything is allocated.
func FuzzDetect(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, v []byte) {
		before := bytes.Clone(v)
		switch kind := content.Detect(v, true); kind {
		case content.Snappy, content.S2:
			n, err := s2.DecodedLen(v)
			if err != nil || n > 1<<24 || v[0] == 0xff && bytes.HasPrefix(v[1:], []byte("\x06\x00\x00")) {
				break
			}
			if _, err := s2.Decode(nil, v); err != nil {
				t.Errorf("%q is %v, and %v", v, kind, err)
			}
		case content.JSON:
			if !json.Valid(v) {
				t.Errorf("%q is JSON", v)
			}
		case content.Msgpack:
			r := bytes.NewReader(v)
			if err := msgpack.NewDecoder(r).Skip(); err != nil || r.Len() > 0 {
				t.Errorf("%q is %v, and %v, %d bytes left", v, kind, err, r.Len())
			}
		case content.CBOR:
			if err := cborDecoder.Wellformed(v); err != nil {
				t.Errorf("%q is %v, and %v", v, kind, err)
			}
		case content.Empty:
			if len(v) > 0 {
				t.Errorf("%q is empty", v)
			}
		}
		content.Detect(v, false)
		content.Entropy([][]byte{v})
		if !bytes.Equal(before, v) {
			t.Error("the value was changed")
		}
	})
}

// FuzzSnappy checks that every block that the library decodes is detected as one, unless another
// format matches first.
func FuzzSnappy(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, v []byte) {
		for _, block := range [][]byte{s2.EncodeSnappy(nil, v), s2.EncodeBest(nil, v), v} {
			n, err := s2.DecodedLen(block)
			if err != nil || n == 0 || n > 1<<20 || len(block) < 8 {
				continue
			}
			if _, err := s2.Decode(nil, block); err != nil {
				continue
			}
			if got := content.Detect(block, true); got == content.Binary || got == content.Random {
				t.Errorf("%q is %v", block, got)
			}
		}
	})
}

// FuzzReencode holds that what is re-encoded is read as the same value by the libraries, and what
// is not is refused for a reason.
func FuzzReencode(f *testing.F) {
	seeds(f)
	for _, s := range []string{`{"a":[1,-1.5e3,"\ud83d\ude80",null]}`, `[18446744073709551615,-9223372036854775808,1e-320]`, `"\ud800"`, "[\"\xff\"]", `[[],[[]],{}]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		_, err := content.ToMsgpack(nil, src)
		_, errCBOR := content.ToCBOR(nil, src)
		switch {
		case (err == nil) != (errCBOR == nil):
			t.Fatalf("%q: msgpack %v, CBOR %v", src, err, errCBOR)
		case err == nil:
			faithful(t, src)
		case errors.Is(err, content.ErrNotJSON) == json.Valid(src):
			t.Errorf("%q: %v", src, err)
		case !errors.Is(err, content.ErrNotJSON) && !errors.Is(err, content.ErrInexact):
			t.Errorf("%q: %v", src, err)
		}
	})
}

// TestAllocations pins the allocations of Detect: none, except errors for values that start like
// JSON or PHP, and the tables of zlib.
func TestAllocations(t *testing.T) {
	if testvalues.Race {
		t.Skip("the race detector allocates")
	}
	rng := rand.New(rand.NewPCG(12, 12))
	for _, k := range kinds {
		v := k.make(t, rng, 4000)
		want := 0.0
		switch {
		case k.kind == content.Zlib:
			want = 40
		case bytes.IndexByte([]byte("{[\"tfnaOCEs_"), v[0]) >= 0:
			want = 5
		}
		if got := testing.AllocsPerRun(100, func() { content.Detect(v, true) }); got > want {
			t.Errorf("%s: %v allocations, want %v", k.name, got, want)
		}
	}
}

// TestBoundedMemory holds that no length that a value claims is believed: each of these claims
// gigabytes.
func TestBoundedMemory(t *testing.T) {
	for _, v := range []string{"\xdf\xff\xff\xff\xff\xa1a\x01", "\xdd\xff\xff\xff\xff\x01", "\xbb\x7f\xff\xff\xff\xff\xff\xff\xff\x61a", "\x9a\xff\xff\xff\xff\x01", "\xff\xff\xff\xff\x0f\x00\x00\x00\x00",
		"\x0a\xff\xff\xff\x7f\x00", "a:2147483647:{i:0;", "\x81\xa1a\xc6\xff\xff\xff\xff"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 100 {
			content.Detect([]byte(v), true)
			content.Detect([]byte(v), false)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("%q: %d bytes allocated", v, n)
		}
	}
}

func BenchmarkDetect(b *testing.B) {
	rng := rand.New(rand.NewPCG(13, 13))
	for _, k := range append(kinds[:len(kinds):len(kinds)], struct {
		name string
		kind content.Kind
		make maker
	}{"floats", content.Binary, others[4].make}) {
		v := k.make(b, rng, 4000)
		b.Run(k.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(v)))
			for b.Loop() {
				content.Detect(v, true)
			}
		})
	}
}

func BenchmarkCommon(b *testing.B) {
	rng := rand.New(rand.NewPCG(14, 14))
	var train, heldOut [][]byte
	n := 0
	for n < 1<<20 {
		train, heldOut = append(train, asJSON(b, rng, 500)), append(heldOut, asJSON(b, rng, 500))
		n += len(train[len(train)-1]) + len(heldOut[len(heldOut)-1])
	}
	b.ReportAllocs()
	b.SetBytes(int64(n))
	for b.Loop() {
		content.Common(train, heldOut)
	}
}

func BenchmarkReencode(b *testing.B) {
	src := asJSON(b, rand.New(rand.NewPCG(15, 15)), 4000)
	for _, f := range formats {
		b.Run(f.name, func(b *testing.B) {
			var dst []byte
			b.ReportAllocs()
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				dst, _ = f.append(dst[:0], src)
			}
		})
	}
}
