package bale

import (
	"context"
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

// TestCodecErrorHidesValues: no error of a codec shows any of the value, at any length, and the
// cause is at hand.
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
		check("set", c.Set(ctx, "k", value, Expiry{}))
		check("set many", c.SetMany(ctx, map[string]private{"k": value}, Expiry{}))
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
