// Package codectest is what every codec must do, as tests that the codecs' own tests call.
package codectest

import (
	"bytes"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/balekv/bale"
	"github.com/balekv/bale/internal/testvalues"
)

// Record has every kind of field that all the codecs can keep.
type Record struct {
	ID       int64             `json:"id"`
	Largest  uint64            `json:"largest"`
	Smallest int64             `json:"smallest"`
	Float    float64           `json:"float"`
	Single   float32           `json:"single"`
	Yes      bool              `json:"yes"`
	Name     string            `json:"name"`
	Blob     []byte            `json:"blob"`
	At       time.Time         `json:"at"`
	Took     time.Duration     `json:"took"`
	Next     *Record           `json:"next,omitempty"`
	List     []Inner           `json:"list"`
	Empty    []string          `json:"empty"`
	None     []string          `json:"none"`
	ByName   map[string]Inner  `json:"by_name"`
	Words    map[string]string `json:"words"`
	NoMap    map[string]int    `json:"no_map"`
	Grid     [][]int64         `json:"grid"`
	Pair     [2]int16          `json:"pair"`
	Any      any               `json:"any"`
	Left     string            `json:"left,omitempty"`
	private  int
}

// Inner is inside a Record.
type Inner struct {
	Text  string     `json:"text"`
	Score *float64   `json:"score"`
	When  *time.Time `json:"when"`
}

// Sample is a Record with something hard in each field.
func Sample() Record {
	score, at := -0.1, time.Date(2026, 7, 8, 9, 10, 11, 805_306_368, time.UTC) // its MessagePack begins like nil
	return Record{
		ID: 1 << 62, Largest: math.MaxUint64, Smallest: math.MinInt64, Float: math.MaxFloat64, Single: 0.1, Yes: true,
		Name: "Zoë \U0001F600 <b>&\u2028\x00\"\\", Blob: []byte{0, 1, 0xff}, At: at, Took: time.Hour + 1,
		Next:   &Record{Name: strings.Repeat("long ", 200), At: time.Unix(1<<31, 0), List: []Inner{}},
		List:   []Inner{{Text: "one", Score: &score, When: &at}, {}},
		Empty:  []string{},
		ByName: map[string]Inner{"": {}, "ключ": {Text: "значение"}},
		Words:  map[string]string{"a": "1", "b": ""},
		Grid:   [][]int64{{}, nil, {-129, 65536, 1 << 40}},
		Pair:   [2]int16{-32768, 32767},
		Any:    map[string]any{"list": []any{"x", nil, true, 1.5}, "map": map[string]any{}},
	}
}

// Equal lets a comparison ignore what no codec sees.
var Equal = cmp.Options{cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".private" }, cmp.Ignore())}

// RoundTrip encodes and decodes v, through a Packer too. It checks that Append appends, and that it
// keeps dst if dst has room. The decoded value must not alias the source's memory.
func RoundTrip[T any](t *testing.T, c bale.Codec[T], v T, o ...cmp.Option) {
	t.Helper()
	o = append(o, Equal)
	b, err := c.Append([]byte("before"), v)
	if err != nil || !bytes.HasPrefix(b, []byte("before")) {
		t.Fatalf("%T: %.20q, %v", c, b, err)
	}
	room := make([]byte, 3, 3+4*len(b))
	if again, err := c.Append(room, v); err != nil || &again[0] != &room[0] {
		t.Errorf("%T: dst has room and is left, %v", c, err)
	}

	packer, err := bale.NewPacker(bale.PackerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer packer.Close()
	stored, err := packer.Pack(nil, b[len("before"):])
	if err != nil {
		t.Fatal(err)
	}
	src, err := packer.Unpack(t.Context(), nil, stored)
	if err != nil {
		t.Fatal(err)
	}
	var got T
	if err := c.Decode(src, &got); err != nil {
		t.Fatalf("%T: %v", c, err)
	}
	if !bytes.Equal(src, b[len("before"):]) {
		t.Errorf("%T: Decode wrote to its source", c)
	}
	for i := range src {
		src[i] = 'X'
	}
	if diff := cmp.Diff(v, got, o...); diff != "" {
		t.Errorf("%T (-want +got):\n%s", c, diff)
	}
}

// Cut decodes each prefix of v's encoding, and the encoding with bytes after it. All must be
// errors, except the prefixes that whole reports as values.
func Cut[T any](t *testing.T, c bale.Codec[T], v T, whole func(n int) bool) {
	t.Helper()
	b, err := c.Append(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	for n := range b {
		var got T
		if err := c.Decode(b[:n], &got); (err == nil) != whole(n) {
			t.Errorf("%T: %d of %d bytes: %v", c, n, len(b), err)
		}
	}
	for _, more := range []string{"\x00", "x", string(b)} {
		var got T
		if err := c.Decode([]byte(string(b)+more), &got); err == nil {
			t.Errorf("%T: %.10q after the value is decoded", c, more)
		}
	}
}

// Unencodable checks that dst comes back as it was when v cannot be encoded.
func Unencodable[T any](t *testing.T, c bale.Codec[T], v T) {
	t.Helper()
	if got, err := c.Append([]byte("before"), v); err == nil || string(got) != "before" {
		t.Errorf("%T: %q, %v", c, got, err)
	}
}

// Concurrent uses c from many goroutines at once, some of which decode what fails.
func Concurrent[T any](t *testing.T, c bale.Codec[T], v T, o ...cmp.Option) {
	t.Helper()
	o = append(o, Equal)
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			var b []byte
			for range 100 {
				var err error
				if b, err = c.Append(b[:0], v); err != nil {
					t.Error(err)
					return
				}
				var got, failed T
				if caller%2 == 0 && c.Decode(b[:len(b)-1], &failed) == nil {
					t.Error("a cut value is decoded")
				}
				if err := c.Decode(b, &got); err != nil || !cmp.Equal(v, got, o...) {
					t.Errorf("another value, %v", err)
					return
				}
			}
		})
	}
	callers.Wait()
}

// Pin checks how often Append and Decode of v allocate, Append with room in dst.
func Pin[T any](t *testing.T, c bale.Codec[T], v T, appending, decoding float64) {
	t.Helper()
	if testvalues.Race {
		t.Skip("the race detector allocates")
	}
	b, err := c.Append(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(200, func() { b, err = c.Append(b[:0], v) }); n > appending || err != nil {
		t.Errorf("%T: Append allocates %v times, not %v, %v", c, n, appending, err)
	}
	if n := testing.AllocsPerRun(200, func() {
		var got T
		err = c.Decode(b, &got)
	}); n > decoding || err != nil {
		t.Errorf("%T: Decode allocates %v times, not %v, %v", c, n, decoding, err)
	}
}

// Bounded decodes src and checks its allocations. Each byte may allocate a Record or an entry of a
// map, and the decoder itself may allocate a constant.
func Bounded[T any](t *testing.T, c bale.Codec[T], src []byte, v *T) error {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := c.Decode(src, v)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20+1024*uint64(len(src)) {
		t.Errorf("%T: %d bytes make it allocate %d", c, len(src), n)
	}
	return err
}

// Fuzz decodes src, and makes sure that what it is decoded to comes back as it is, unless that
// fails for a reason that the codec's comment gives.
func Fuzz[T any](t *testing.T, c bale.Codec[T], src []byte, equal func(a, b T) bool, documented ...func(error) bool) {
	t.Helper()
	var v T
	kept := bytes.Clone(src)
	err := Bounded(t, c, src, &v)
	if !bytes.Equal(src, kept) {
		t.Errorf("%T: Decode wrote to its source", c)
	}
	if err != nil {
		return
	}
	b, err := c.Append(nil, v)
	if err != nil {
		t.Fatalf("%T: what was decoded is not encoded: %v", c, err)
	}
	var again T
	if err := c.Decode(b, &again); err != nil {
		for _, is := range documented {
			if is(err) {
				return
			}
		}
		t.Fatalf("%T: what was encoded is not decoded: %v", c, err)
	}
	if !equal(v, again) {
		t.Errorf("%T: %+v comes back as %+v", c, v, again)
	}
}

// Mutate calls f with seeds and with what random changes make of them, the same at each call.
func Mutate(t *testing.T, seeds [][]byte, f func(src []byte)) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	for _, seed := range seeds {
		f(seed)
	}
	for range 3000 {
		b := bytes.Clone(seeds[random.IntN(len(seeds))])
		for range 1 + random.IntN(4) {
			at := random.IntN(len(b) + 1)
			switch n := min(random.IntN(9), len(b)-at); random.IntN(4) {
			case 0: // a byte
				if at < len(b) {
					b[at] = byte(random.Uint32())
				}
			case 1: // bytes gone
				b = slices.Delete(b, at, at+n)
			case 2: // bytes again
				b = slices.Insert(b, at, bytes.Clone(b[at:at+n])...)
			case 3: // a piece of another
				other := seeds[random.IntN(len(seeds))]
				from := random.IntN(len(other) + 1)
				b = slices.Insert(b, at, other[from:min(len(other), from+random.IntN(40))]...)
			}
		}
		f(b)
	}
}

// Profile is the kind of value that most caches hold: 400 bytes of JSON.
type Profile struct {
	ID           int64     `json:"id"`
	Name         string    `json:"name"`
	Email        string    `json:"email"`
	Country      string    `json:"country"`
	Language     string    `json:"language"`
	AvatarURL    string    `json:"avatar_url"`
	Plan         string    `json:"plan"`
	Verified     bool      `json:"verified"`
	BalanceCents int64     `json:"balance_cents"`
	CreatedAt    time.Time `json:"created_at"`
	Settings     Settings  `json:"settings"`
	Tags         []string  `json:"tags"`
}

// Settings are in a Profile.
type Settings struct {
	Theme         string `json:"theme"`
	Newsletter    bool   `json:"newsletter"`
	Notifications string `json:"notifications"`
	Timezone      string `json:"timezone"`
}

// Ada is a Profile.
var Ada = Profile{
	ID: 100037, Name: "Ada García", Email: "user100037@mail.example.net", Country: "US", Language: "hi",
	AvatarURL: "https://cdn.example.com/avatars/23a28c145cc9637065098c17443eddca.png",
	Plan:      "free", Verified: true, BalanceCents: 15980, CreatedAt: time.Date(2028, 8, 6, 11, 43, 9, 952e6, time.UTC),
	Settings: Settings{Theme: "system", Notifications: "mentions", Timezone: "America/New_York"},
	Tags:     []string{"wholesale", "beta", "vip"},
}
