package content_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/balekv/bale/cmd/internal/content"
)

// formats are the two notations, with the libraries that have to read them.
var formats = []struct {
	name   string
	append func(dst, src []byte) ([]byte, error)
	decode func(b []byte) (any, error)
	kind   content.Kind
}{
	{"msgpack", content.ToMsgpack, func(b []byte) (v any, err error) {
		return v, msgpack.Unmarshal(b, &v)
	}, content.Msgpack},
	{"cbor", content.ToCBOR, func(b []byte) (v any, err error) {
		return v, cborDecoder.Unmarshal(b, &v)
	}, content.CBOR},
}

var cborDecoder, _ = cbor.DecOptions{
	MaxNestedLevels: 20000, MaxArrayElements: math.MaxInt32, MaxMapPairs: math.MaxInt32, DefaultMapType: reflect.TypeFor[map[string]any](),
}.DecMode()

// plain is a decoded value with its numbers as what encoding/json reads them as: float64, or the
// digits of an integer that a float64 does not keep.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := map[string]any{}
		for k, e := range v {
			m[k] = plain(e)
		}
		return m
	case []any:
		a := make([]any, len(v))
		for i, e := range v {
			a[i] = plain(e)
		}
		return a
	case json.Number:
		if u, err := strconv.ParseUint(string(v), 10, 64); err == nil {
			return number(u)
		}
		if i, err := strconv.ParseInt(string(v), 10, 64); err == nil && i != 0 {
			return number(i)
		}
		f, err := v.Float64()
		if err != nil {
			return err
		}
		return number(f)
	case string, bool, nil:
		return v
	}
	return number(v)
}

func number(v any) any {
	switch r := reflect.ValueOf(v); {
	case r.CanInt():
		return fmt.Sprint(r.Int())
	case r.CanUint():
		return fmt.Sprint(r.Uint())
	default:
		f := r.Float()
		return fmt.Sprintf("float %v %v", f, math.Signbit(f))
	}
}

// faithful compares what the libraries read with what encoding/json reads.
func faithful(t *testing.T, src []byte) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(src))
	d.UseNumber()
	var want any
	must(t, d.Decode(&want))
	for _, f := range formats {
		b, err := f.append([]byte("before"), src)
		if err != nil {
			t.Fatalf("%s: %v", f.name, err)
		}
		got, err := f.decode(b[len("before"):])
		if err != nil {
			t.Fatalf("%s: %v", f.name, err)
		}
		// cmp takes minutes for what nests 9,999 levels deep.
		if want, got := plain(want), plain(got); !reflect.DeepEqual(want, got) || string(b[:6]) != "before" {
			t.Fatalf("%s of %.100q: %.1000v", f.name, src, got)
		}
	}
}

func TestReencode(t *testing.T) {
	var many strings.Builder
	for i := range 70000 {
		fmt.Fprintf(&many, `%d,`, i)
	}
	var members strings.Builder
	for i := range 300 {
		fmt.Fprintf(&members, `"k%d" : {"list":[ ], "of":[[]]} ,`, i)
	}
	for _, src := range []string{
		`{}`, `[]`, ` [ ] `, `{"a":[]}`, `[{}]`, `[[],[]]`, `[[[1]],2]`, `"\\"`, `"\""`, `["a","b"]`, `{"":""}`, `null`, `[true,false,null]`, "\n{\t\"a\"\r: 1 }\n",
		`[0,1,23,24,127,128,255,256,65535,65536,4294967295,4294967296,9223372036854775807,9223372036854775808,18446744073709551615]`,
		`[-1,-24,-25,-32,-33,-128,-129,-256,-257,-32768,-32769,-65536,-65537,-2147483648,-2147483649,-9223372036854775808]`,
		`[18446744073709551616,-18446744073709551616,-0,0.0,-0.0,0e5,1.0,10e-1,1E3,0.5,0.1,0.10,1.7976931348623157e308,4.9e-324,5e-324,1e22]`,
		`[0.10000000000000001,0.30000000000000004,3.141592653589793,1234567.125,100000000000000000000,123456789012345680000]`,
		`"\b\f\n\r\t\/\"\\\u0041\u00e9\u4E16\ud83d\uDE80\u0000"`, `"世界 🚀"`, `"` + strings.Repeat("x", 31) + `"`, `"` + strings.Repeat("x", 32) + `"`,
		`"` + strings.Repeat("x", 256) + `"`, `"` + strings.Repeat("é", 40000) + `"`, `"` + strings.Repeat(`\u00e9`, 40000) + `"`,
		"[" + many.String() + "0]", "{" + members.String() + `"last":1}`, strings.Repeat("[", 9999) + strings.Repeat("]", 9999),
	} {
		t.Run(src[:min(len(src), 20)], func(t *testing.T) { faithful(t, []byte(src)) })
	}
}

// TestReencodeOrder holds the bytes themselves: members in order, twice the same one included, as
// the libraries write them.
func TestReencodeOrder(t *testing.T) {
	src := []byte(`{"b":1,"a":-200,"b":[0.5,"x"]}`)
	var want bytes.Buffer
	enc := msgpack.NewEncoder(&want)
	must(t, errors.Join(enc.EncodeMapLen(3), enc.EncodeString("b"), enc.EncodeInt(1), enc.EncodeString("a"), enc.EncodeInt(-200), enc.EncodeString("b"), enc.EncodeArrayLen(2),
		enc.EncodeFloat32(0.5), enc.EncodeString("x")))
	got, err := content.ToMsgpack(nil, src)
	must(t, err)
	if diff := cmp.Diff(want.Bytes(), got); diff != "" {
		t.Error(diff)
	}
	mode, err := cbor.EncOptions{ShortestFloat: cbor.ShortestFloatNone}.EncMode()
	must(t, err)
	list := []byte(`["b",1,-200,65536,[0.1,"x",null,true],18446744073709551615,-9223372036854775808]`)
	wantCBOR, err := mode.Marshal([]any{"b", 1, -200, 65536, []any{0.1, "x", nil, true}, uint64(math.MaxUint64), int64(math.MinInt64)})
	must(t, err)
	gotCBOR, err := content.ToCBOR(nil, list)
	must(t, err)
	if diff := cmp.Diff(wantCBOR, gotCBOR); diff != "" {
		t.Error(diff)
	}
	if gotCBOR, err = content.ToCBOR(nil, src); err != nil || string(gotCBOR) != "\xa3\x61b\x01\x61a\x38\xc7\x61b\x82\xfa\x3f\x00\x00\x00\x61x" {
		t.Errorf("%x, %v", gotCBOR, err)
	}
}

// TestReencodeIntegers compares the bytes of integers with those of the libraries.
func TestReencodeIntegers(t *testing.T) {
	for shift := range 64 {
		for _, n := range []int64{1 << shift, 1<<shift - 1, 1<<shift + 1, -1 << shift, -1<<shift - 1, -1<<shift + 1, 24, -24, -32} {
			src := strconv.AppendInt(nil, n, 10)
			var want bytes.Buffer
			must(t, msgpack.NewEncoder(&want).EncodeInt(n))
			got, err := content.ToMsgpack(nil, src)
			if err != nil || !bytes.Equal(got, want.Bytes()) {
				t.Errorf("%d as msgpack: %x, %v, want %x", n, got, err, want.Bytes())
			}
			wantCBOR := encoded(t, cbor.Marshal, n)
			if got, err = content.ToCBOR(nil, src); err != nil || !bytes.Equal(got, wantCBOR) {
				t.Errorf("%d as CBOR: %x, %v, want %x", n, got, err, wantCBOR)
			}
		}
	}
}

func TestReencodeRefuses(t *testing.T) {
	for _, test := range []struct {
		src  string
		want error
	}{
		{"", content.ErrNotJSON}, {"{", content.ErrNotJSON}, {"{}{}", content.ErrNotJSON}, {"[1,]", content.ErrNotJSON}, {"nul", content.ErrNotJSON}, {"\"\n\"", content.ErrNotJSON},
		{"+1", content.ErrNotJSON}, {strings.Repeat("[", 10001) + strings.Repeat("]", 10001), content.ErrNotJSON},
		{"1e400", content.ErrInexact}, {"1e-400", content.ErrInexact}, {"0.1234567890123456789012", content.ErrInexact}, {"3e-324", content.ErrInexact},
		{"18446744073709551617", content.ErrInexact}, {"-9223372036854775809", content.ErrInexact}, {"1" + strings.Repeat("0", 64) + "1", content.ErrInexact},
		{"0." + strings.Repeat("1", 1<<20), content.ErrInexact}, {"1e999999999999999999999", content.ErrInexact},
		{`"\ud83d"`, content.ErrInexact}, {`"\ude80\ud83d"`, content.ErrInexact}, {`"\ud83d\n12345"`, content.ErrInexact}, {`"\ud83dx"`, content.ErrInexact},
		{"\"\xff\"", content.ErrInexact}, {"{\"\xff\\n\":1}", content.ErrInexact},
	} {
		for _, f := range formats {
			got, err := f.append([]byte("x"), []byte(test.src))
			if !errors.Is(err, test.want) || string(got) != "x" {
				t.Errorf("%s of %.30q: %q, %v, want %v", f.name, test.src, got, err, test.want)
			}
		}
	}
}

// TestReencodeCorpora re-encodes real values: the profiles of the repository, and what BALE_CORPORA
// has.
func TestReencodeCorpora(t *testing.T) {
	paths := []string{"../../../examples/profiles.ndjson"}
	if dir := os.Getenv("BALE_CORPORA"); dir != "" {
		more, err := filepath.Glob(filepath.Join(dir, "*.ndjson"))
		if err != nil || len(more) == 0 {
			t.Fatalf("BALE_CORPORA: no files in %s, %v", dir, err)
		}
		paths = append(paths, more...)
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			t.Skip("the module is not in its repository")
		}
		must(t, err)
		n, was, is := 0, 0, map[string]int{}
		for line := range bytes.Lines(b) {
			line = bytes.TrimSpace(line)
			if got := content.Detect(line, true); got != content.JSON {
				t.Errorf("%s: value %d is %v", path, n, got)
			}
			if len(line) > 100 && content.Detect(line[:len(line)*2/3], false) != content.JSON {
				t.Errorf("%s: value %d is not JSON when it is cut", path, n)
			}
			faithful(t, line)
			for _, f := range formats {
				out, err := f.append(nil, line)
				must(t, err)
				is[f.name] += len(out)
				if got := content.Detect(out, true); got != f.kind {
					t.Errorf("%s: value %d as %s is %v", path, n, f.name, got)
				}
			}
			was += len(line)
			n++
		}
		t.Logf("%s: %d values, JSON %d bytes in the mean, msgpack %d, CBOR %d", filepath.Base(path), n, was/n, is["msgpack"]/n, is["cbor"]/n)
		if is["msgpack"] >= was || is["cbor"] >= was {
			t.Errorf("%s: %d bytes of JSON become %v", path, was, is)
		}
	}
}
