package msgpack

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/balekv/bale"
	"github.com/balekv/bale/extra/formats"
	"github.com/balekv/bale/extra/formats/internal/codectest"
)

var never = func(int) bool { return false }

func TestRoundTrip(t *testing.T) {
	codectest.RoundTrip(t, Codec[codectest.Record]{}, codectest.Sample())
	codectest.RoundTrip(t, Codec[codectest.Record]{}, codectest.Record{})
	codectest.RoundTrip(t, Codec[*codectest.Profile]{}, &codectest.Ada)
	codectest.RoundTrip(t, Codec[*codectest.Profile]{}, nil)
	codectest.RoundTrip(t, Codec[string]{}, "not \xff UTF-8")
	codectest.RoundTrip(t, Codec[[]byte]{}, []byte{})
	codectest.RoundTrip(t, Codec[msgpack.RawMessage]{}, msgpack.RawMessage{0x93, 1, 2, 3})
	codectest.RoundTrip(t, Codec[any]{}, any(nil))
	codectest.RoundTrip(t, Codec[any]{}, any([]any{int8(5), "x", []byte("bytes"), map[string]any{"at": time.Unix(1, 2)}}))
	codectest.RoundTrip(t, Codec[map[int64]string]{}, map[int64]string{1 << 33: "x", -1: ""})
	codectest.RoundTrip(t, Codec[[]int]{}, make([]int, 70_000))
	// Times whose content begins like nil and like maps of each size.
	for _, nsec := range []int64{0, 1, 541e6, 806e6, 932e6, 936e6, 999_999_999} {
		for _, sec := range []int64{0, 1 << 31, 3_740_000_000, 1 << 40, -1} {
			codectest.RoundTrip(t, Codec[[]time.Time]{}, []time.Time{time.Unix(sec, nsec), {}})
		}
	}
}

// TestFieldNames: the msgpack tag, else the json tag, else the field's name.
func TestFieldNames(t *testing.T) {
	b, err := Codec[struct {
		A int `json:"a"`
		B int `msgpack:"b" json:"c"`
		D int
		E int `json:"-"`
		F int `json:"f,omitempty"`
	}]{}.Append(nil, struct {
		A int `json:"a"`
		B int `msgpack:"b" json:"c"`
		D int
		E int `json:"-"`
		F int `json:"f,omitempty"`
	}{1, 2, 3, 4, 0})
	if want := "\x83\xa1a\x01\xa1b\x02\xa1D\x03"; string(b) != want || err != nil {
		t.Errorf("%q, %v", b, err)
	}
}

// pointed encodes by methods of its pointer.
type pointed struct{ n int }

func (p *pointed) EncodeMsgpack(e *msgpack.Encoder) error {
	e.UseArrayEncodedStructs(true) // a setting that must not stay
	return e.EncodeInt(int64(p.n))
}

func (p *pointed) DecodeMsgpack(d *msgpack.Decoder) (err error) {
	d.DisallowUnknownFields(true)
	p.n, err = d.DecodeInt()
	return err
}

func TestOwnMethods(t *testing.T) {
	codectest.RoundTrip(t, Codec[pointed]{}, pointed{300}, cmp.AllowUnexported(pointed{}))
	codectest.RoundTrip(t, Codec[codectest.Profile]{}, codectest.Ada)
	var v struct{ A int }
	if err := (Codec[struct{ A int }]{}).Decode([]byte("\x81\xa1B\x01"), &v); err != nil {
		t.Error(err)
	}
}

// short reads less than there is.
type short struct{}

func (*short) DecodeMsgpack(d *msgpack.Decoder) error { _, err := d.DecodeArrayLen(); return err }

func TestErrors(t *testing.T) {
	codectest.Cut(t, Codec[codectest.Record]{}, codectest.Sample(), never)
	codectest.Cut(t, Codec[any]{}, any(map[string]any{"list": []any{1, "x"}, "at": time.Unix(1, 2)}), never)
	codectest.Unencodable(t, Codec[[]any]{}, []any{1, func() {}})
	if _, err := New[int](Options{MaxDepth: -1}); !errors.Is(err, bale.ErrInvalid) {
		t.Error(err)
	}
	var v short
	if err := (Codec[short]{}).Decode([]byte{0x91, 1}, &v); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}

// TestDepth: Decode accepts a value as deep as MaxDepth, and refuses a deeper one. It tries arrays,
// maps, a field that nobody reads and a raw field.
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
		for _, open := range []string{"\x91", "\x81\xa1a", "\xdc\x00\x01", "\xdd\x00\x00\x00\x01", "\xde\x00\x01\xa1a", "\xdf\x00\x00\x00\x01\xa1a"} {
			var v any
			if err := codectest.Bounded(t, bale.Codec[any](c), []byte(strings.Repeat(open, limit)+"\x01"), &v); err != nil {
				t.Errorf("%q %d deep: %v", open, limit, err)
			}
			if err := c.Decode([]byte(strings.Repeat(open, limit+1)+"\x01"), &v); !errors.Is(err, formats.ErrLimit) {
				t.Errorf("%q %d deep: %v", open, limit+1, err)
			}
		}
	}
	deep := strings.Repeat("\x91", 10_000_000)
	var fields struct{ A int }
	var raw msgpack.RawMessage
	for _, err := range []error{
		Codec[struct{ A int }]{}.Decode([]byte("\x81\xa1B"+deep), &fields),
		Codec[msgpack.RawMessage]{}.Decode([]byte(deep), &raw),
	} {
		if !errors.Is(err, formats.ErrLimit) {
			t.Error(err)
		}
	}
}

// TestHostile: lengths that are not there, and values for which the library panics or allocates
// what they claim.
func TestHostile(t *testing.T) {
	type fields struct {
		At time.Time
		M  map[string]any
		N  map[any]int
		W  map[string]string
		S  fmt.Stringer
		L  []int
	}
	for name, src := range map[string]string{
		"nothing":                     "",
		"array of 4 billion":          "ddffffffff",
		"map of 4 billion":            "dfffffffff",
		"string of 4 billion":         "dbffffffff",
		"bytes of 4 billion":          "c6ffffffff",
		"extension of 4 billion":      "c9ffffffffff",
		"array in a field":            "81a14cddffffffff",
		"map in a field":              "81a14ddfffffffff",
		"array with one":              "dd8000000001",
		"cut length":                  "ddffff",
		"extension without content":   "c700ff",
		"unused byte":                 "c1",
		"nil for a time":              "81a24174c0",
		"array for a key":             "81a14e819001",
		"string for an interface":     "81a153a178",
		"map in a time's content":     "81a14dd7ffdfffffffff000000",
		"map of strings in a time's":  "81a157d7ffdfffffffff000000",
		"map with any keys in a time": "81a14ed7ffdfffffffff000000",
		"map in ext 8":                "81a14dc705ffdfffffffff",
		"nil in a time's content":     "81a14dd6ffc0000000",
		"interned string":             "81a14dd4808f",
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
		_ = codectest.Bounded(t, bale.Codec[any](Codec[any]{}), src, &a) // some are good values for an interface
	}
}

// TestOneKeyManyTimes: a map has no room for keys that it does not have. Keys that differ are read,
// however many.
func TestOneKeyManyTimes(t *testing.T) {
	for _, n := range []int{16, 511, 512, 1000, 100_000} {
		head := string(binary.BigEndian.AppendUint32([]byte{0xdf}, uint32(n)))
		var v any
		if err := (Codec[any]{}).Decode([]byte("\x91"+head+strings.Repeat("\xa1a\xc0", n)), &v); err == nil {
			t.Errorf("a map with the same key %d times is decoded", n)
		}
		m := map[string]any{}
		for i := range n {
			m[fmt.Sprint(i)] = nil
		}
		b, err := Codec[any]{}.Append(nil, m)
		if err == nil {
			err = Codec[any]{}.Decode(b, &v)
		}
		if err != nil || !cmp.Equal(v, any(m)) {
			t.Errorf("%d keys: %v", n, err)
		}
	}
}

// TestLongKeys: the content of a long key is not hashed. A key that is a map with such a key, and
// so on for 10,000 levels, would take minutes.
func TestLongKeys(t *testing.T) {
	hash := func(key string) uint64 { return (&scanner{src: []byte(key), off: len(key)}).keyHash(0) }
	for _, n := range []int{maxHashed, maxHashed + 1, 1 << 20} {
		if same := hash(strings.Repeat("a", n)) == hash(strings.Repeat("b", n)); same != (n > maxHashed) {
			t.Errorf("of %d bytes: %v", n, same)
		}
	}
	const n = 64 << 20
	c, err := New[any](Options{MaxDepth: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	long := binary.BigEndian.AppendUint32([]byte{0xdb}, n)
	src := slices.Concat([]byte(strings.Repeat("\xde\x00\x01", 9999)), long, make([]byte, n), []byte(strings.Repeat("\xc0", 9999)))
	var v any
	if err := codectest.Bounded(t, bale.Codec[any](c), src, &v); err == nil {
		t.Error("a map is the key of a map[string]any")
	}
	m := map[string]any{}
	for i := range 1000 {
		m[fmt.Sprintf("%0*d", 2*maxHashed, i)] = nil
	}
	b, err := Codec[any]{}.Append(nil, m)
	if err == nil {
		err = Codec[any]{}.Decode(b, &v)
	}
	if err != nil || !cmp.Equal(v, any(m)) {
		t.Error(err)
	}
	v = nil
	same := "\xde\x03\xe8" + strings.Repeat("\xd9\x41"+strings.Repeat("a", maxHashed+1)+"\xc0", 1000)
	if err := codectest.Bounded(t, bale.Codec[any](Codec[any]{}), []byte(same), &v); err != nil {
		t.Error(err)
	}
}

func TestConcurrentUse(t *testing.T) {
	codectest.Concurrent(t, Codec[codectest.Record]{}, codectest.Sample())
}

func TestAllocations(t *testing.T) {
	codectest.Pin(t, Codec[codectest.Profile]{}, codectest.Ada, 3, 15)
	codectest.Pin(t, Codec[*codectest.Profile]{}, &codectest.Ada, 3, 17)
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
	for _, v := range []any{codectest.Sample(), codectest.Ada, []any{time.Unix(1, 2), int8(1)}} {
		b, err := Codec[any]{}.Append(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	for _, s := range []string{"ddffffffff", "81a16dd7ffdfffffffff000000", "9193c0c3cb7ff8000000000000", "c70cff000000010000000000000001", "81a26174c0"} {
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
	codectest.Fuzz(t, Codec[codectest.Record]{}, src, func(a, b codectest.Record) bool {
		return cmp.Equal(a, b, codectest.Equal, nan, cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Any" }, cmp.Comparer(alike)))
	})
	codectest.Fuzz(t, Codec[any]{}, src, alike)

	// The library refuses everything that the scan refuses, except for the limits. A value that
	// passes the scan ends where the library says.
	if _, err := scan(src, 1000, nil); err == nil && string(src) != "\xc0" { // nil leaves a raw message nil
		var raw msgpack.RawMessage
		if err := (Codec[msgpack.RawMessage]{}).Decode(src, &raw); err != nil || string(raw) != string(src) {
			t.Errorf("the library reads %d bytes of %d: %v", len(raw), len(src), err)
		}
	}
}

// nan takes every NaN for every other.
var nan = cmp.Options{
	cmp.Comparer(func(a, b float64) bool { return a == b || a != a && b != b }),
	cmp.Comparer(func(a, b float32) bool { return a == b || a != a && b != b }),
}

// alike compares what interfaces hold, where an integer may come back as another type of integer.
func alike(a, b any) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

// TestTypesOfAllKinds: what an interface holds keeps its type.
func TestTypesOfAllKinds(t *testing.T) {
	for _, v := range []any{int8(1), uint64(1 << 63), float32(1.5), "x", true} {
		b, err := Codec[any]{}.Append(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		var got any
		if err := (Codec[any]{}).Decode(b, &got); err != nil || !reflect.DeepEqual(v, got) {
			t.Errorf("%T: %v, %v", v, got, err)
		}
	}
}
