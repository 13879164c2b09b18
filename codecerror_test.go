package bale

import (
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/stats"
)

// secret is what no message may show a part of.
const secret = "4111111111111111"

// private is a type that encoding/json refuses in each of its ways.
type private struct {
	At     time.Time
	N      int8
	Quoted int `json:",string"`
	M      map[string]int8
	Own    hesitant
	F      float64
	Any    any
}

// hesitant shows the value in its own errors.
type hesitant struct{ S string }

func (r hesitant) MarshalText() ([]byte, error) {
	if r.S != "" {
		return nil, fmt.Errorf("refused: %s", r.S)
	}
	return nil, nil
}

func (r *hesitant) UnmarshalText(text []byte) error {
	if len(text) > 0 {
		return fmt.Errorf("refused: %s", text)
	}
	return nil
}

// TestCodecErrorHidesValues: no error of a codec shows any part of the value, at any length. The
// cause stays reachable.
func TestCodecErrorHidesValues(t *testing.T) {
	ctx := t.Context()
	packer, err := NewPacker(PackerOptions{MinSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer packer.Close()
	check := func(name string, err error) {
		t.Helper()
		var e *codec.Error
		if !errors.Is(err, ErrCodec) || !errors.As(err, &e) || ErrorClass(err) != stats.Codec {
			t.Fatalf("%s: %v", name, err)
		}
		if failed, many := err.(KeyErrors); many {
			err = failed[0]
		}
		for message := err; message != e.Err; message = errors.Unwrap(message) {
			if strings.Contains(message.Error(), secret[:4]) || len(message.Error()) > 500 || !strings.Contains(message.Error(), "bale.private") {
				t.Errorf("%s: %d bytes: %.500v", name, len(message.Error()), message)
			}
		}
	}
	long := strings.Repeat(secret, 1<<16)
	for _, value := range []string{
		`{"At":"` + secret + `"}`, `{"At":"` + long + `"}`, `{"N":` + secret + `}`, `{"N":` + long + `}`, `{"N":"` + secret + `"}`, `{"Quoted":"x` + secret + `"}`,
		`{"M":{"` + secret + `":"` + secret + `"}}`, `{"M":{"` + secret + `":` + secret + `}}`, `{"Own":"` + secret + `"}`, secret + `x`, `{"` + secret, `["` + secret + `"]`, `{"F":1e` + secret + `}`,
	} {
		packed, err := packer.Pack(nil, []byte(value))
		if err != nil {
			t.Fatal(err)
		}
		for _, stored := range [][]byte{[]byte(value), packed} {
			store := newMemory()
			store.values["k"] = stored
			c, err := New(store, Options[private]{Packer: packer})
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.Get(ctx, "k")
			check(fmt.Sprintf("get of %.30s", value), err)
			_, err = c.GetMany(ctx, "k")
			check(fmt.Sprintf("get many of %.30s", value), err)
		}
	}
	c, err := New(newMemory(), Options[private]{})
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []private{{Own: hesitant{secret}}, {Own: hesitant{long}}, {Any: json.Number("x" + secret)}, {Any: json.RawMessage(`"` + secret)}} {
		check("set", c.Set(ctx, "k", value))
		check("set many", c.SetMany(ctx, map[string]private{"k": value}))
	}
}

// unhashable is a map[any]int in gob, whose key is a []int.
const unhashable = "\r\x7f\x04\x01\x02\xff\x80\x00\x01\x10\x01\x04\x00\x00" +
	"\x16\xff\x80\x00\x01\x05[]int\xff\x81\x02\x01\x02\xff\x82\x00\x01\x04\x00\x00" + "\x07\xff\x82\x03\x00\x01\x02\x02"

// explosive panics with the value when it meets the secret.
type explosive struct{}

func (explosive) Append(dst []byte, v string) ([]byte, error) {
	if v == secret {
		panic(v)
	}
	return append(dst, v...), nil
}

func (explosive) Decode(src []byte, v *string) error {
	if *v = string(src); *v == secret {
		panic(*v)
	}
	return nil
}

// TestCodecPanics: a panic of a codec is an error of its key alone, and shows neither the value nor
// the stack.
func TestCodecPanics(t *testing.T) {
	gob.Register([]int{})
	ctx := t.Context()
	check := func(name string, err error, want string) {
		t.Helper()
		var e *codec.Error
		var panicked *codec.PanicError
		if !errors.Is(err, ErrCodec) || ErrorClass(err) != stats.Codec || !errors.As(err, &e) || !errors.As(err, &panicked) || len(panicked.Stack) == 0 || panicked.Value == nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !strings.HasSuffix(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", name, err)
		}
	}
	store := newMemory()
	store.values["k"] = []byte(unhashable)
	gobs, err := New(store, Options[map[any]int]{Codec: codec.Gob[map[any]int]{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := gobs.Set(ctx, "well", map[any]int{1: 2}); err != nil {
		t.Fatal(err)
	}
	v, err := gobs.Get(ctx, "k")
	if check("get", err, "panic: runtime error: hash of unhashable type []int"); v != nil {
		t.Errorf("the value is %v", v)
	}
	many, err := gobs.GetMany(ctx, "k", "well")
	if check("get many", err, "panic: runtime error: hash of unhashable type []int"); many["well"][1] != 2 || len(many) != 1 {
		t.Errorf("the values are %v", many)
	}
	loaded, err := valueOf(gobs.GetOrLoad(ctx, "k", func(context.Context) (map[any]int, error) { return map[any]int{3: 4}, nil }))
	if loaded[3] != 4 || err != nil {
		t.Errorf("loaded: %v, %v", loaded, err)
	}

	packer, err := NewPacker(PackerOptions{MinSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer packer.Close()
	texts, err := New(store, Options[string]{Codec: explosive{}, Packer: packer})
	if err != nil {
		t.Fatal(err)
	}
	const message = "panic with a value of type string"
	check("set", texts.Set(ctx, "k", secret), message)
	check("set many", texts.SetMany(ctx, map[string]string{"k": secret}), message)
	if store.values["text"], err = packer.Pack(nil, []byte(secret)); err != nil {
		t.Fatal(err)
	}
	_, err = texts.Get(ctx, "text")
	check("get of a packed value", err, message)
	store.values["text"] = []byte(secret)
	s, err := texts.Get(ctx, "text")
	if check("get of a plain value", err, message); s != "" {
		t.Errorf("the value is %q", s)
	}
}

// TestCodecErrorNames says what went wrong, where and with what, and has the cause.
func TestCodecErrorNames(t *testing.T) {
	_, badNumber := strconv.Atoi(secret + "x")
	for _, test := range []struct {
		cause error
		want  string
	}{
		{json.Unmarshal([]byte(`{"N":12345678}`), &private{}), "decode T with C: a JSON number is no int8, at offset 13, field \"N\""},
		{json.Unmarshal([]byte(`{"N":x}`), &private{}), "decode T with C: invalid JSON at offset 6"},
		{fmt.Errorf("%s: %w", secret, io.ErrUnexpectedEOF), "decode T with C: unexpected EOF"},
		{badNumber, "decode T with C: an error of type *strconv.NumError, whose text may show the value"},
	} {
		err := &codec.Error{Op: "decode", Codec: "C", Type: "T", Err: test.cause}
		if err.Error() != test.want || !errors.Is(err, test.cause) || errors.Is(err, context.Canceled) {
			t.Errorf("%v, want %s", err, test.want)
		}
	}
	if e, ok := errors.AsType[*strconv.NumError](error(&KeyError{"get", "k", &codec.Error{Err: badNumber}})); !ok || !strings.Contains(e.Error(), secret) {
		t.Errorf("the cause is %v", e)
	}
}
