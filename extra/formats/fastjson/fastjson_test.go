package fastjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	gojson "github.com/goccy/go-json"
	"github.com/google/go-cmp/cmp"

	"github.com/balekv/bale"
	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/extra/formats"
	"github.com/balekv/bale/extra/formats/internal/codectest"
)

func TestRoundTrip(t *testing.T) {
	codectest.RoundTrip(t, Codec[codectest.Record]{}, codectest.Sample())
	codectest.RoundTrip(t, Codec[codectest.Record]{}, codectest.Record{})
	codectest.RoundTrip(t, Codec[*codectest.Profile]{}, &codectest.Ada)
	codectest.RoundTrip(t, Codec[*codectest.Profile]{}, nil)
	codectest.RoundTrip(t, Codec[[]byte]{}, []byte{})
	codectest.RoundTrip(t, Codec[json.RawMessage]{}, json.RawMessage(`[1,"x"]`))
	codectest.RoundTrip(t, Codec[gojson.RawMessage]{}, gojson.RawMessage(`[1,"x"]`))
	codectest.RoundTrip(t, Codec[json.Number]{}, json.Number("1234567890123456789012"))
	codectest.RoundTrip(t, Codec[any]{}, any(nil))
	codectest.RoundTrip(t, Codec[any]{}, any([]any{1.5, "x", map[string]any{"key": "value"}}))
	codectest.RoundTrip(t, Codec[map[int64]string]{}, map[int64]string{1 << 33: "x", -1: ""})
}

// kept keeps what its method is given, which encoding/json forbids and programs do.
type kept struct{ b []byte }

func (k *kept) UnmarshalJSON(b []byte) error { k.b = b; return nil }

// TestNothingIsKept: not the source, and not the library's own buffer, which the next value is read
// through.
func TestNothingIsKept(t *testing.T) {
	type all struct {
		S, Escaped string
		K          kept
		M          map[string]json.RawMessage
		A          any
		P          *string
		B          []byte
	}
	src := []byte(`{"S":"plain","Escaped":"\u0041b","K":["kept"],"M":{"key":{"raw":1}},"A":{"any":["x"]},"P":"pointed","B":"Ynl0ZXM="}`)
	text := "pointed"
	want := all{"plain", "Ab", kept{[]byte(`["kept"]`)},
		map[string]json.RawMessage{"key": json.RawMessage(`{"raw":1}`)}, map[string]any{"any": []any{"x"}}, &text, []byte("bytes")}
	var got all
	if err := (Codec[all]{}).Decode(src, &got); err != nil {
		t.Fatal(err)
	}
	for i := range src {
		src[i] = 'X'
	}
	for range 10 {
		var other any
		if err := (Codec[any]{}).Decode([]byte(`["`+strings.Repeat("Y", 2*len(src))+`"]`), &other); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(kept{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestBytesOfEncodingJSON: what it writes, to the byte.
func TestBytesOfEncodingJSON(t *testing.T) {
	for _, v := range []any{nil, true, 1.5, 1e21, "<b>&\u2028\xff", codectest.Sample(), &codectest.Ada, map[string]any{"z": 1, "a": []int{}},
		map[int]string{2: "", -1: ""}, json.RawMessage(`{"raw": 1}`), [2]bool{true}, strings.Repeat("long ", 10_000)} {
		want, err := codec.JSON[any]{}.Append(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Codec[any]{}.Append([]byte("before"), v)
		if err != nil || string(got) != "before"+string(want) {
			t.Errorf("%T: %.200s\nnot %.200s, %v", v, got, want, err)
		}
	}
}

func TestErrors(t *testing.T) {
	never := func(int) bool { return false }
	codectest.Cut(t, Codec[codectest.Record]{}, codectest.Sample(), never)
	codectest.Cut(t, Codec[any]{}, any(map[string]any{"list": []any{1, "x"}}), never)
	codectest.Unencodable(t, Codec[[]any]{}, []any{1, func() {}})
	if _, err := New[int](Options{MaxDepth: 10_001}); !errors.Is(err, bale.ErrInvalid) {
		t.Error(err)
	}
}

// tree nests by itself.
type tree struct {
	A *tree
	B []tree
	C map[string]tree
}

// TestDepth: a value as deep as MaxDepth is read, and one that is deeper is not, whatever it is
// read into.
func TestDepth(t *testing.T) {
	for _, depth := range []int{0, 4, 10_000} {
		c, err := New[any](Options{MaxDepth: depth})
		if err != nil {
			t.Fatal(err)
		}
		limit := depth
		if depth == 0 {
			limit = 1000
		}
		for _, nest := range [][2]string{{"[", "]"}, {`{"a":`, "}"}, {`["]]\"]}\\",`, "]"}, {"[[],{},", "]"}} {
			inner := "1"
			levels := limit
			if nest[0] == "[[],{}," {
				inner, levels = "[]", limit-1
			}
			var v any
			if err := codectest.Bounded(t, bale.Codec[any](c), []byte(strings.Repeat(nest[0], levels)+inner+strings.Repeat(nest[1], levels)), &v); err != nil {
				t.Errorf("%s %d deep: %v", nest[0], limit, err)
			}
			if err := c.Decode([]byte(strings.Repeat(nest[0], limit+1)+inner+strings.Repeat(nest[1], limit+1)), &v); !errors.Is(err, formats.ErrLimit) {
				t.Errorf("%s %d deep: %v", nest[0], limit+1, err)
			}
		}
		// Brackets in strings, and side by side, are not deep.
		var v any
		for _, flat := range []string{`["` + strings.Repeat(`[{\"`, 20_000) + `"]`, "[" + strings.Repeat("[],{},", 20_000) + "1]"} {
			if err := c.Decode([]byte(flat), &v); err != nil {
				t.Errorf("%.20s: %v", flat, err)
			}
		}
	}
	const levels = 10_000_000
	for _, open := range []string{"[", `{"A":`, `{"B":[`, `{"C":{"x":`, `{"unknown":[`} {
		deep := []byte(strings.Repeat(open, levels/len(open)))
		errs := []error{
			Codec[any]{}.Decode(deep, new(any)),
			Codec[tree]{}.Decode(deep, new(tree)),
			Codec[map[string]any]{}.Decode(deep, new(map[string]any)),
			Codec[json.RawMessage]{}.Decode(deep, new(json.RawMessage)),
			Codec[[]byte]{}.Decode(deep, new([]byte)),
			Codec[int]{}.Decode(deep, new(int)),
			Codec[kept]{}.Decode(deep, new(kept)),
		}
		for i, err := range errs {
			if !errors.Is(err, formats.ErrLimit) {
				t.Errorf("%s, type %d: %v", open, i, err)
			}
		}
		// And the library by itself ends before the stack does, of which the highest MaxDepth makes
		// use.
		for _, v := range []any{new(any), new(tree), new(json.RawMessage), new(int)} {
			if err := gojson.Unmarshal(deep, v); err == nil {
				t.Errorf("%s: %T is decoded", open, v)
			}
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	codectest.Concurrent(t, Codec[codectest.Record]{}, codectest.Sample())
}

func TestAllocations(t *testing.T) {
	codectest.Pin(t, Codec[codectest.Profile]{}, codectest.Ada, 2, 15)
	codectest.Pin(t, Codec[*codectest.Profile]{}, &codectest.Ada, 1, 16)
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
	for _, v := range []any{codectest.Sample(), codectest.Ada} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	for _, s := range []string{"", "[", "nul", `{"a":1,"a":2}`, `"\ud800"`, `[1e400]`, "[1]x", `{"ID":1,"iD":2}`, "\xff", `{"blob":"!"}`, "-0", `{"at":"x"}`} {
		all = append(all, []byte(s))
	}
	return all
}

// hostile is what must hold for all bytes, encoding/json's opinion among it.
func hostile(t *testing.T, src []byte) {
	codectest.Fuzz(t, Codec[codectest.Record]{}, src, func(a, b codectest.Record) bool { return cmp.Equal(a, b, codectest.Equal) })
	against[codectest.Record](t, src)
	against[any](t, src)
	against[tree](t, src)
}

// against decodes src with this package and with encoding/json: the same values, and errors for the
// same bytes.
func against[T any](t *testing.T, src []byte) {
	var got, want T
	gotErr, wantErr := Codec[T]{}.Decode(src, &got), json.Unmarshal(src, &want)
	if errors.Is(gotErr, formats.ErrLimit) {
		return
	}
	if (gotErr == nil) != (wantErr == nil) {
		t.Errorf("%T: error %v, encoding/json has %v", got, gotErr, wantErr)
	} else if gotErr == nil && !reflect.DeepEqual(got, want) {
		t.Errorf("%T: %s, encoding/json has %s", got, fmt.Sprint(got), fmt.Sprint(want))
	}
}
