package dataset

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/balekv/bale/cmd/internal/dataset/shop"
	"github.com/balekv/bale/internal/testvalues"
)

// aliasing is a serializer as no one should write it: what it decodes is a piece of its source.
type aliasing struct{}

func (aliasing) append(dst []byte, v *string) ([]byte, error) { return append(dst, *v...), nil }

func (aliasing) decode(src []byte, v *string) error {
	*v = unsafe.String(unsafe.SliceData(src), len(src))
	return nil
}

func TestVerifyNoticesAliasing(t *testing.T) {
	c := typed[string]{aliasing{}, []string{"value"}, sameGo[string]}
	source := []byte("value")
	if err := c.Verify(source, 0); err == nil {
		t.Error("a value that shares its source's memory passes")
	}
	if string(source) != "value" {
		t.Error("Verify changes its source")
	}
}

// eachCoder calls do with every coder of some sets, in both tracks.
func eachCoder(t *testing.T, seed uint64, names []string, do func(d *Dataset, codec string, c Coder)) {
	t.Helper()
	for _, name := range names {
		d, err := Make(name, seed)
		if err != nil {
			t.Fatal(err)
		}
		sets := []*Dataset{d}
		if dynamic, err := d.Dynamic(); err == nil {
			sets = append(sets, dynamic)
		}
		for _, d := range sets {
			for _, codec := range Codecs() {
				c, err := d.Coder(codec)
				if errors.Is(err, ErrNoCoder) {
					continue
				} else if err != nil {
					t.Fatal(err)
				}
				do(d, codec, c)
			}
		}
	}
}

// TestVerifyNoticesDamage changes each byte of an encoding in turn. A damaged encoding that still
// decodes must not pass for the value. Bytes without information about the value are exempt: those
// of gob that describe the type, and the name of a zero field (which the value does not have).
func TestVerifyNoticesDamage(t *testing.T) {
	if testvalues.Race {
		t.Skip("slow with the race detector, and a single goroutine")
	}
	eachCoder(t, 3, []string{"profiles", "sessions", "text", "protobuf", "random", "fields10"}, func(d *Dataset, codec string, c Coder) {
		value := slices.IndexFunc(d.Raw, func(v []byte) bool { return !bytes.Contains(v, []byte(":false")) })
		b, err := c.Encode(nil, value)
		if err != nil {
			t.Fatal(err)
		}
		passed := 0
		for i := range b {
			if codec == "msgpack" && (b[i] < '0' || b[i] > 'z') {
				continue // it allocates what a damaged length says, tens of gigabytes: letters and digits are none
			}
			b[i] ^= 1
			if c.Verify(b, value) == nil {
				passed++
			}
			b[i] ^= 1
		}
		if passed > 0 && codec != "gob" || passed > len(b)*4/5 {
			t.Errorf("%s, %s, as %s: %d of %d changed bytes pass", d.Name, d.Track, codec, passed, len(b))
		}
	})
}

func TestSameGo(t *testing.T) {
	base := func() shop.LogBatch {
		at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
		return shop.LogBatch{Service: "a", Host: "b", Entries: []shop.LogEntry{{Time: at, Level: "info", Micros: 1}, {Time: at, Level: "warn"}}}
	}
	want := base()
	for name, test := range map[string]struct {
		change func(*shop.LogBatch)
		same   bool
	}{
		"nothing":    {func(*shop.LogBatch) {}, true},
		"zone":       {func(b *shop.LogBatch) { b.Entries[0].Time = b.Entries[0].Time.In(time.FixedZone("", 3600)) }, true},
		"nanosecond": {func(b *shop.LogBatch) { b.Entries[0].Time = b.Entries[0].Time.In(time.Local).Add(1) }, false},
		"string":     {func(b *shop.LogBatch) { b.Host = "c" }, false},
		"inner":      {func(b *shop.LogBatch) { b.Entries[1].Micros++ }, false},
		"shorter":    {func(b *shop.LogBatch) { b.Entries = b.Entries[:1] }, false},
		"empty":      {func(b *shop.LogBatch) { b.Entries = b.Entries[:0] }, false},
		"nil":        {func(b *shop.LogBatch) { b.Entries = nil }, false},
	} {
		got := base()
		test.change(&got)
		if sameGo(&got, &want) != test.same {
			t.Errorf("%s: same is not %v", name, test.same)
		}
	}
}

func TestSameDocument(t *testing.T) {
	for _, test := range []struct {
		got, want any
		same      bool
	}{
		{int8(-1), int64(-1), true}, {uint8(1), int64(1), true}, {int64(1), int64(1), true}, {uint64(math.MaxUint64), uint64(math.MaxUint64), true},
		{uint64(math.MaxUint64), int64(-1), false}, {int64(-1), uint64(math.MaxUint64), false}, {int64(2), int64(1), false}, {float64(1), int64(1), false},
		{nil, int64(0), false}, {"1", int64(1), false}, {int64(1), 1.0, false}, {1.0, 1.0, true}, {float32(0.5), 0.5, true}, {float32(0.1), 0.1, false},
		{math.Copysign(0, -1), 0.0, false},
		{nil, nil, true}, {false, nil, false}, {"a", "a", true}, {"a", "b", false}, {[]byte("a"), "a", false}, {json.Number("1"), json.Number("1"), true},
		{json.Number("1.0"), json.Number("1"), false},
		{[]any{int8(1), "a"}, []any{int64(1), "a"}, true}, {[]any{"a"}, []any{"a", nil}, false}, {[]any(nil), []any{}, false}, {[]any{}, []any{}, true},
		{map[string]any{"a": int8(1)}, map[string]any{"a": int64(1)}, true}, {map[any]any{"a": nil}, map[string]any{"a": nil}, true},
		{map[any]any{"b": nil}, map[string]any{"a": nil}, false}, {map[any]any{int64(1): nil}, map[string]any{"a": nil}, false},
		{map[string]any{}, map[string]any{"a": nil}, false}, {map[string]any(nil), map[string]any{}, false}, {[]any{}, map[string]any{}, false},
	} {
		if sameDocument(&test.got, &test.want) != test.same {
			t.Errorf("%T %v and %T %v: same is not %v", test.got, test.got, test.want, test.want, test.same)
		}
	}
}

func TestNumber(t *testing.T) {
	for in, want := range map[json.Number]any{
		"0": int64(0), "-1": int64(-1), "9223372036854775807": int64(math.MaxInt64), "9223372036854775808": uint64(math.MaxInt64 + 1),
		"18446744073709551615": uint64(math.MaxUint64), "18446744073709551616": json.Number("18446744073709551616"), "-9223372036854775809": json.Number("-9223372036854775809"),
		"36893488147419103000": 36893488147419103000.0,
		"-0":                   math.Copysign(0, -1), "1.5": 1.5, "12.50": 12.5, "1.0": 1.0, "1e3": 1000.0, "1E+3": 1000.0, "0.10e-2": 0.001, "0.1": 0.1, "0e5": 0.0,
		"0.10000000000000000001": json.Number("0.10000000000000000001"), "1e400": json.Number("1e400"), "1e-400": json.Number("1e-400"),
		"1e99999999999999999999": json.Number("1e99999999999999999999"),
	} {
		if got := number(in); got != want || fmt.Sprint(got) != fmt.Sprint(want) { // which tells zeros apart
			t.Errorf("%s: %T %v, want %T %v", in, got, got, want, want)
		}
	}
}

// TestNumbersOfDocuments: the digits of a number survive every codec that takes it, and those that
// would change it say that they do not.
func TestNumbersOfDocuments(t *testing.T) {
	for _, test := range []struct {
		document string
		numbers  bool // json.Number, in the JSON libraries
		refused  bool // by MessagePack and CBOR
	}{
		{`{"a":[1,-2,0.5,1e+21,0,"1.0"]}`, false, false}, // a single name, for json2 writes several in any order
		{`{"a":12.50}`, true, false},
		{`{"a":9007199254740993}`, true, false},
		{`{"a":[18446744073709551615,-0]}`, true, false},
		{`[[[123456789012345678901234567890]]]`, true, true},
		{`1e400`, true, true},
	} {
		d, err := Load(t.Context(), "-", strings.NewReader(test.document), limits)
		if err != nil {
			t.Fatal(err)
		}
		if _, numbers, err := parse(d.Raw); err != nil || numbers != test.numbers {
			t.Errorf("%s: json.Number %v, %v", test.document, numbers, err)
		}
		for _, info := range CodecInfos() {
			if !info.Dynamic {
				continue
			}
			c, err := d.Coder(info.Name)
			binary := info.Name == "msgpack" || info.Name == "shamaton" || info.Name == "cbor"
			if refused := test.refused && binary; errors.Is(err, ErrNoCoder) != refused || refused {
				if !refused {
					t.Errorf("%s as %s: error %v", test.document, info.Name, err)
				}
				continue
			}
			b, err := c.Encode(nil, 0)
			if err == nil {
				err = c.Verify(b, 0)
			}
			if err != nil {
				t.Errorf("%s as %s: %v", test.document, info.Name, err)
			}
			if strings.Contains(info.About, "JSON") && string(b) != test.document {
				t.Errorf("%s as %s: other bytes, %d of them", test.document, info.Name, len(b))
			}
		}
	}
}

// TestConcurrentUse: callers share a coder, as those of the lab do.
func TestConcurrentUse(t *testing.T) {
	eachCoder(t, 1, []string{"profiles", "random"}, func(d *Dataset, codec string, c Coder) {
		var callers sync.WaitGroup
		for caller := range 8 {
			callers.Go(func() {
				var b []byte
				for i := range 20 {
					var err error
					if b, err = c.Encode(b[:0], (i*caller)%50); err == nil {
						err = c.Decode(b)
					}
					if err == nil {
						err = c.Verify(b, (i*caller)%50)
					}
					if err != nil {
						t.Errorf("%s, %s, as %s: %v", d.Name, d.Track, codec, err)
						return
					}
				}
			})
		}
		callers.Wait()
	})
}

// TestEncodeAppends: what is in front stays, with room behind it and without.
func TestEncodeAppends(t *testing.T) {
	d, err := Make("profiles", 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, codec := range Codecs() {
		c, err := d.Coder(codec)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := c.Encode(nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, room := range []int{0, 1, len(whole) / 2, 4 * len(whole)} {
			dst := append(make([]byte, 0, 3+room), "abc"...)
			got, err := c.Encode(dst, 0)
			if err != nil || !bytes.Equal(got, append([]byte("abc"), whole...)) {
				t.Errorf("%s with room for %d bytes: other bytes, %v", codec, room, err)
			}
		}
	}
}

func TestCodecInfos(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range CodecInfos() {
		if seen[c.Name] || c.About == "" || !c.Typed {
			t.Errorf("%+v", c)
		}
		seen[c.Name] = true
		if v := c.Version(); c.Library == "" && v != "" || c.Library != "" && v != "" && v[0] != 'v' && v[0] != 'g' {
			t.Errorf("%s: version %q", c.Name, v)
		}
	}
}
