package codec

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type record struct {
	Name string            `json:"name"`
	HTML string            `json:"html"`
	At   time.Time         `json:"at"`
	List []int             `json:"list"`
	Map  map[string]string `json:"map,omitempty"`
}

var sample = record{"Zoë \U0001F600", "<b>&</b>\u2028", time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), []int{1, 2, 3}, map[string]string{"b": "2", "a": "1"}}

func TestJSONIsWhatMarshalMakes(t *testing.T) {
	for _, v := range []any{nil, true, 1.5, "text", sample, &sample, []any{1, "x", nil}, map[string]any{"z": 1, "a": []int{}}, json.RawMessage(`{"raw": 1}`), strings.Repeat("long ", 10_000)} {
		want, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		got, err := JSON[any]{}.Append([]byte("before"), v)
		if err != nil || string(got) != "before"+string(want) {
			t.Errorf("%.50v: %.100s, %v", v, got, err)
		}
	}
}

type panics struct{}

func (panics) MarshalJSON() ([]byte, error) { panic("in the program's own code") }

func TestJSONErrors(t *testing.T) {
	for _, v := range []any{math.NaN(), func() {}, make(chan int)} {
		if got, err := (JSON[any]{}).Append([]byte("before"), v); err == nil || string(got) != "before" {
			t.Errorf("%T: %q, %v", v, got, err)
		}
	}
	func() {
		defer func() { recover() }()
		JSON[any]{}.Append(nil, panics{})
	}()
	// An encoder that failed or panicked works again.
	for range 10 {
		if got, err := (JSON[any]{}).Append(nil, 1); err != nil || string(got) != "1" {
			t.Errorf("after an error: %q, %v", got, err)
		}
	}
	for _, src := range []string{"", "{", `{"name":1}`, "{} {}", "{}x"} {
		var v record
		if err := (JSON[record]{}).Decode([]byte(src), &v); err == nil {
			t.Errorf("%q is decoded", src)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	check(t, JSON[record]{}, sample)
	check(t, Gob[record]{}, sample)
	check(t, JSON[[]byte]{}, []byte("\x00\xff"))
	check(t, Gob[string]{}, "text")
	for _, b := range [][]byte{{}, []byte("x"), bytes.Repeat([]byte{0, 255}, 1000)} {
		check(t, Bytes{}, b)
		check(t, String{}, string(b))
	}
	var v []byte
	if err := (Bytes{}).Decode(nil, &v); err != nil || v == nil {
		t.Errorf("nothing is decoded to %v, %v", v, err)
	}
}

// check takes a value there and back, and makes sure that nothing of it lies in the source's
// memory.
func check[T any](t *testing.T, c interface {
	Append([]byte, T) ([]byte, error)
	Decode([]byte, *T) error
}, v T) {
	t.Helper()
	b, err := c.Append([]byte("before"), v)
	if err != nil || !bytes.HasPrefix(b, []byte("before")) {
		t.Fatalf("%T: %v", c, err)
	}
	b = b[len("before"):]
	var got T
	if err := c.Decode(b, &got); err != nil {
		t.Fatalf("%T: %v", c, err)
	}
	for i := range b {
		b[i] = 'X'
	}
	if diff := cmp.Diff(v, got); diff != "" {
		t.Errorf("%T: %s", c, diff)
	}
}

func TestGobErrors(t *testing.T) {
	good, err := Gob[record]{}.Append(nil, sample)
	if err != nil {
		t.Fatal(err)
	}
	for name, src := range map[string][]byte{"nothing": nil, "cut": good[:len(good)-1], "continued": append(bytes.Clone(good), 0)} {
		var v record
		if err := (Gob[record]{}).Decode(src, &v); err == nil {
			t.Errorf("%s is decoded", name)
		}
	}
	if got, err := (Gob[func()]{}).Append([]byte("before"), func() {}); err == nil || string(got) != "before" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestConcurrentUse(t *testing.T) {
	want, err := json.Marshal(sample)
	if err != nil {
		t.Fatal(err)
	}
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			var dst []byte
			for range 200 {
				var err error
				if dst, err = (JSON[record]{}).Append(dst[:0], sample); err != nil || !bytes.Equal(dst, want) {
					t.Errorf("other bytes, %v", err)
				}
			}
		})
	}
	callers.Wait()
}

// BenchmarkJSON compares with json.Marshal, which allocates its result.
func BenchmarkJSON(b *testing.B) {
	dst, err := JSON[record]{}.Append(nil, sample)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			dst, _ = JSON[record]{}.Append(dst[:0], sample)
		}
	})
	b.Run("marshal", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := json.Marshal(sample); err != nil {
				b.Fatal(err)
			}
		}
	})
}
