package cbor

import (
	"encoding/hex"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/balekv/bale"
	"github.com/balekv/bale/extra/formats"
	"github.com/balekv/bale/extra/formats/internal/codectest"
)

func TestRoundTrip(t *testing.T) {
	codectest.RoundTrip(t, Codec[codectest.Record]{}, codectest.Sample())
	codectest.RoundTrip(t, Codec[codectest.Record]{}, codectest.Record{})
	codectest.RoundTrip(t, Codec[*codectest.Profile]{}, &codectest.Ada)
	codectest.RoundTrip(t, Codec[*codectest.Profile]{}, nil)
	codectest.RoundTrip(t, Codec[string]{}, "not \xff UTF-8")
	codectest.RoundTrip(t, Codec[[]byte]{}, []byte{})
	codectest.RoundTrip(t, Codec[cbor.RawMessage]{}, cbor.RawMessage{0x83, 1, 2, 3})
	codectest.RoundTrip(t, Codec[cbor.RawTag]{}, cbor.RawTag{Number: 1000, Content: []byte("\x63abc")})
	codectest.RoundTrip(t, Codec[any]{}, any(nil))
	codectest.RoundTrip(t, Codec[any]{}, any([]any{uint64(5), int64(-5), "x", []byte("bytes"), map[string]any{"at": time.Unix(1, 2)}}))
	codectest.RoundTrip(t, Codec[map[int64]string]{}, map[int64]string{1 << 33: "x", -1: ""})
	codectest.RoundTrip(t, Codec[[]int]{}, make([]int, 200_000)) // more than the library takes by itself
}

// TestBigIntegers: they are read where that is wanted, and do not get into an error otherwise.
func TestBigIntegers(t *testing.T) {
	c, err := New[*big.Int](Options{BigIntegers: true})
	if err != nil {
		t.Fatal(err)
	}
	large := new(big.Int).Lsh(big.NewInt(-1), 8<<20)
	codectest.RoundTrip(t, c, large, cmp.Comparer(func(a, b *big.Int) bool { return a.Cmp(b) == 0 }))
	b, err := c.Append(nil, large)
	if err != nil {
		t.Fatal(err)
	}
	var v int
	if err := (Codec[int]{}).Decode(b, &v); !errors.Is(err, formats.ErrLimit) || len(err.Error()) > 200 {
		t.Errorf("%.200v", err)
	}
}

// TestTimes: a time keeps its offset.
func TestTimes(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 5400))
	b, err := Codec[time.Time]{}.Append(nil, at)
	if want := "\xc0\x78\x232026-01-02T03:04:05.000000006+01:30"; string(b) != want || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	var got time.Time
	if err := (Codec[time.Time]{}).Decode(b, &got); err != nil || got.Format(time.RFC3339Nano) != at.Format(time.RFC3339Nano) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestErrors(t *testing.T) {
	never := func(int) bool { return false }
	codectest.Cut(t, Codec[codectest.Record]{}, codectest.Sample(), never)
	codectest.Cut(t, Codec[any]{}, any(map[string]any{"list": []any{1, "x"}, "at": time.Unix(1, 2)}), never)
	codectest.Unencodable(t, Codec[[]any]{}, []any{1, func() {}})
	if _, err := New[int](Options{MaxDepth: 3}); !errors.Is(err, bale.ErrInvalid) {
		t.Error(err)
	}
}

// TestDepth: Decode accepts a value as deep as MaxDepth, and refuses a deeper one. It tries arrays,
// maps, tags, a field that nobody reads and a raw field.
func TestDepth(t *testing.T) {
	for _, depth := range []int{0, 4, 10_000} {
		limit := depth
		if depth == 0 {
			limit = 1000
		}
		c, err := New[any](Options{MaxDepth: depth})
		if err != nil {
			t.Fatal(err)
		}
		for _, open := range []string{"\x81", "\xa1\x61a", "\x98\x01", "\x9b\x00\x00\x00\x00\x00\x00\x00\x01", "\xbb\x00\x00\x00\x00\x00\x00\x00\x01\x61a"} {
			var v any
			if err := codectest.Bounded(t, bale.Codec[any](c), []byte(strings.Repeat(open, limit)+"\x01"), &v); err != nil {
				t.Errorf("%q %d deep: %v", open, limit, err)
			}
			if err := c.Decode([]byte(strings.Repeat(open, limit+1)+"\x01"), &v); !errors.Is(err, formats.ErrLimit) {
				t.Errorf("%q %d deep: %v", open, limit+1, err)
			}
		}
		var v any
		if err := c.Decode([]byte(strings.Repeat("\xd9\x03\xe8", limit+2)+"\x01"), &v); !errors.Is(err, formats.ErrLimit) {
			t.Errorf("%d tags: %v", limit+2, err)
		}
	}
	deep := strings.Repeat("\x81", 10_000_000)
	var fields struct{ A int }
	var raw cbor.RawMessage
	for _, err := range []error{
		Codec[struct{ A int }]{}.Decode([]byte("\xa1\x61B"+deep), &fields),
		Codec[cbor.RawMessage]{}.Decode([]byte(deep), &raw),
	} {
		if !errors.Is(err, formats.ErrLimit) {
			t.Error(err)
		}
	}
}

func TestIndefiniteLength(t *testing.T) {
	for _, src := range []string{"\x9f\x01\xff", "\xbf\x61a\x01\xff", "\x7f\x61a\xff", "\x5f\x41a\xff"} {
		var v any
		if err := (Codec[any]{}).Decode([]byte(src), &v); !errors.Is(err, formats.ErrLimit) {
			t.Errorf("%q: %v, %v", src, v, err)
		}
		c, err := New[any](Options{IndefiniteLength: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Decode([]byte(src), &v); err != nil {
			t.Errorf("%q: %v", src, err)
		}
	}
}

func TestHostile(t *testing.T) {
	type fields struct {
		At time.Time
		M  map[string]any
		N  map[any]int
		L  []int
		S  string
		I  int8
	}
	for name, src := range map[string]string{
		"nothing":                  "",
		"array of 4 billion":       "9affffffff",
		"array of 2 to the 63rd":   "9b8000000000000000",
		"map of 4 billion":         "baffffffff",
		"map of 2 to the 64th":     "bbffffffffffffffff",
		"string of 4 billion":      "7affffffff",
		"bytes of 2 to the 63rd":   "5b7fffffffffffffff",
		"array in a field":         "a1614c9affffffff",
		"map in a field":           "a1614dbaffffffff",
		"array with one":           "9a8000000001",
		"cut length":               "9affff",
		"reserved head":            "1c",
		"break alone":              "ff",
		"key twice":                "a2614901614902",
		"key twice in a map":       "a1614da2616101616102",
		"array for a key":          "a1614ea1810101",
		"map for a key":            "a1614ea1a001",
		"number for a time's text": "a1624174c001",
		"tag without content":      "c0",
	} {
		src, err := hex.DecodeString(src)
		if err != nil {
			t.Fatal(err)
		}
		var v fields
		if err := codectest.Bounded(t, bale.Codec[fields](Codec[fields]{}), src, &v); err == nil {
			t.Errorf("%s is decoded to a struct", name)
		}
		var a any
		if err := codectest.Bounded(t, bale.Codec[any](Codec[any]{}), src, &a); err == nil {
			t.Errorf("%s is decoded", name)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	codectest.Concurrent(t, Codec[codectest.Record]{}, codectest.Sample())
}

func TestAllocations(t *testing.T) {
	codectest.Pin(t, Codec[codectest.Profile]{}, codectest.Ada, 3, 16)
	codectest.Pin(t, Codec[*codectest.Profile]{}, &codectest.Ada, 2, 17)
}

func FuzzDecode(f *testing.F) {
	for _, b := range seeds(f) {
		f.Add(b)
	}
	f.Fuzz(hostile)
}

// TestMutated is the fuzz test that runs always.
func TestMutated(t *testing.T) {
	codectest.Mutate(t, seeds(t), func(src []byte) { hostile(t, src) })
}

func seeds(t testing.TB) [][]byte {
	var all [][]byte
	for _, v := range []any{codectest.Sample(), codectest.Ada, []any{time.Unix(1, 2), 1, -1}} {
		b, err := Codec[any]{}.Append(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	for _, s := range []string{"9affffffff", "c249010000000000000000", "1bffffffffffffffff", "3bffffffffffffffff", "f97e00", "d9d9f7f6", "fb7ff8000000000001", "a1f60a", "c11a514b67b0"} {
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

// hostile is what must hold for all bytes.
func hostile(t *testing.T, src []byte) {
	outOfRange := func(err error) bool { return strings.Contains(err.Error(), "for time.Time") }
	codectest.Fuzz(t, Codec[codectest.Record]{}, src, func(a, b codectest.Record) bool { return same(t, a, b) }, outOfRange)
	codectest.Fuzz(t, Codec[any]{}, src, func(a, b any) bool { return same(t, a, b) }, outOfRange)
}

// same compares by encoding, which has one form for a NaN and for a number of whatever type.
func same[T any](t *testing.T, a, b T) bool {
	sorted, err := cbor.CanonicalEncOptions().EncMode()
	if err != nil {
		t.Fatal(err)
	}
	x, err := sorted.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := sorted.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(x) == string(y)
}
