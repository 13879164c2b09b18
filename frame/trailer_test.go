package frame

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var freshnesses = []Freshness{
	{},
	{Expires: time.UnixMilli(1), Took: time.Millisecond},
	{Expires: time.UnixMilli(1_800_000_000_123), Took: MaxTook},
	{Expires: time.UnixMilli(maxExpires), Took: 77 * time.Millisecond},
	{Expires: time.UnixMilli(1_800_000_000_123), Absent: true},
	{Absent: true},
}

func TestTrailerRoundTrip(t *testing.T) {
	for _, f := range freshnesses {
		b := f.Append([]byte("payload"))
		got, kind, size, ok := ParseTrailer(b)
		if !ok || kind != FreshnessTrailer || size != FreshnessSize || len(b) != len("payload")+size {
			t.Errorf("%v: %v, kind %d, %d bytes", f, ok, kind, size)
		}
		if diff := cmp.Diff(f, got); diff != "" {
			t.Error(diff)
		}
		if alone := f.Append(nil); len(alone) != FreshnessSize {
			t.Errorf("%d bytes", len(alone))
		}
	}
	for _, test := range []struct{ in, want Freshness }{
		{Freshness{Took: time.Microsecond}, Freshness{Took: time.Millisecond}},
		{Freshness{Took: 1500 * time.Microsecond}, Freshness{Took: 2 * time.Millisecond}},
		{Freshness{Took: time.Hour}, Freshness{Took: MaxTook}},
		{Freshness{Took: -time.Hour}, Freshness{}},
		{Freshness{Expires: time.UnixMilli(-5)}, Freshness{Expires: time.UnixMilli(1)}}, // long ago is not never
		{Freshness{Expires: time.UnixMilli(0)}, Freshness{Expires: time.UnixMilli(1)}},
		{Freshness{Expires: time.UnixMilli(maxExpires + 1)}, Freshness{Expires: time.UnixMilli(maxExpires)}},
		{Freshness{Absent: true, Took: time.Second}, Freshness{Absent: true}},
	} {
		if got, _, _, ok := ParseTrailer(test.in.Append(nil)); !ok || !cmp.Equal(got, test.want) {
			t.Errorf("%+v becomes %+v", test.in, got)
		}
	}
}

// TestDamagedTrailer: no damage to a bit passes, and an unknown kind is not reported as damage.
func TestDamagedTrailer(t *testing.T) {
	for _, f := range freshnesses {
		b := f.Append(nil)
		for bit := range len(b) * 8 {
			b[bit/8] ^= 1 << (bit % 8)
			if got, kind, _, ok := ParseTrailer(b); ok || (kind != FreshnessTrailer) != (bit/8 == 8) {
				t.Errorf("%v with bit %d flipped: %v, %v, kind %d", f, bit, got, ok, kind)
			}
			b[bit/8] ^= 1 << (bit % 8)
		}
		for n := range b {
			if _, _, size, ok := ParseTrailer(b[:n]); ok || size != 0 {
				t.Errorf("%v passes with %d bytes", f, n)
			}
		}
	}
}

// TestTrailerPassesByChance no more often than its check and kind allow: random bytes one time in
// 2^24.
func TestTrailerPassesByChance(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	passed := 0
	b := make([]byte, 16)
	for range 1 << 20 {
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		b[len(b)-trailerEnd] = byte(FreshnessTrailer)
		if _, _, _, ok := ParseTrailer(b); ok {
			passed++
		}
	}
	if passed == 0 || passed > 50 { // 16 are expected
		t.Errorf("%d of 2^20 pass", passed)
	}
}

func TestDescribeTrailer(t *testing.T) {
	head := Header{Version: V2, Algorithm: Stored, Length: 7}.Append(nil)
	head = append(head, "payload"...)
	for want, b := range map[string][]byte{
		"good until 2027-01-15 08:00:00.123 UTC, took 12ms to load": Freshness{Expires: time.UnixMilli(1_800_000_000_123), Took: 12 * time.Millisecond}.Append(head[:len(head):len(head)]),
		"never expires, took 1ms to load":                           Freshness{Took: 1}.Append(head[:len(head):len(head)]),
		"there is no value, good until 2027-01-15 08:00:00.000 UTC": Freshness{Expires: time.UnixMilli(1_800_000_000_000), Absent: true}.Append(head[:len(head):len(head)]),
		"damaged": append(Freshness{}.Append(head[:len(head):len(head)])[:len(head)+FreshnessSize-1], 0xAA),
		"of kind 120, which this version does not know": append(head[:len(head):len(head)], "xxxx"...),
	} {
		fields, ok := Describe(b)
		last := fields[len(fields)-1]
		if !ok || last.Value != want {
			t.Errorf("%q, want %q", last.Value, want)
		}
		if want != "damaged" && last.Name == "freshness" && (last.Offset != len(head) || fields[len(fields)-2].Value != "7 bytes of none") {
			t.Errorf("%v", fields)
		}
	}
}
