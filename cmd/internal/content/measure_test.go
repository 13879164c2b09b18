package content_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/balekv/bale/cmd/internal/content"
)

func TestEntropy(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for _, test := range []struct {
		name     string
		values   [][]byte
		low, top float64
	}{
		{"nothing", nil, 0, 0},
		{"empty values", [][]byte{{}, {}}, 0, 0},
		{"one byte", [][]byte{{7}}, 0, 0},
		{"one byte often", [][]byte{bytes.Repeat([]byte{7}, 1000)}, 0, 0},
		{"two bytes", [][]byte{bytes.Repeat([]byte("a"), 5000), bytes.Repeat([]byte("b"), 5000)}, 1, 1.0002},
		{"three to one", [][]byte{bytes.Repeat([]byte("aaab"), 5000)}, 0.8112, 0.8115},
		{"hexadecimal digits", [][]byte{fmt.Appendf(nil, "%x", randomBytes(t, rng, 10000))}, 3.99, 4.001},
		{"random", [][]byte{randomBytes(t, rng, 1<<20)}, 7.999, 8},
		{"1000 random bytes", [][]byte{randomBytes(t, rng, 1000)}, 7.95, 8},
		{"256 random bytes", [][]byte{randomBytes(t, rng, 256)}, 7.4, 7.9},
		{"64 random bytes", [][]byte{randomBytes(t, rng, 64)}, 6.2, 6.8},
	} {
		if got := content.Entropy(test.values); got < test.low || got > test.top {
			t.Errorf("%s: %v bits, want %v to %v", test.name, got, test.low, test.top)
		}
	}
}

// TestEntropyBias holds what the comment says of few bytes: means of 2,000 random values.
func TestEntropyBias(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for _, test := range []struct {
		size      int
		low, high float64
	}{{64, 6.3, 6.5}, {256, 7.5, 7.75}, {1000, 7.95, 8}} {
		sum := 0.0
		for range 2000 {
			sum += content.Entropy([][]byte{randomBytes(t, rng, test.size)})
		}
		t.Logf("%d bytes: %.3f bits", test.size, sum/2000)
		if got := sum / 2000; got < test.low || got > test.high {
			t.Errorf("%d random bytes show %v bits, want %v to %v", test.size, got, test.low, test.high)
		}
	}
}

func TestCommon(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	var a, b, noise, noise2 [][]byte
	for range 200 {
		a, b = append(a, asJSON(t, rng, 200)), append(b, asJSON(t, rng, 200))
		noise, noise2 = append(noise, randomBytes(t, rng, 5000)), append(noise2, randomBytes(t, rng, 5000))
	}
	v := func(s ...string) (values [][]byte) {
		for _, s := range s {
			values = append(values, []byte(s))
		}
		return values
	}
	for _, test := range []struct {
		name           string
		train, heldOut [][]byte
		low, high      float64
	}{
		{"nothing", nil, nil, 0, 0},
		{"nothing to train on", nil, a, 0, 0},
		{"nothing held out", a, nil, 0, 0},
		{"too short", v("abcde"), v("abcde"), 0, 0},
		{"equal", v("abcdef"), v("abcdef"), 1, 1},
		{"zeros", v("\x00\x00\x00\x00\x00\x00"), v("\x00\x00\x00\x00\x00\x00\x00\x00"), 1, 1},
		{"no zeros", v("abcdef"), v("\x00\x00\x00\x00\x00\x00"), 0, 0},
		{"the half", v("abcdef", "ghijkl"), v("xabcdefyyyyy", "zghijklxxxxx"), 0.5, 0.5},
		{"overlapping", v("abcdefgh"), v("-abcdefgh-"), 0.8, 0.8},
		{"across values", v("abc", "def"), v("abcdef"), 0, 0},
		{"records", a, b, 0.5, 0.97},
		{"random", noise, noise2, 0, 0.0001},
	} {
		got := content.Common(test.train, test.heldOut)
		if got < test.low || got > test.high {
			t.Errorf("%s: %v, want %v to %v", test.name, got, test.low, test.high)
		}
		if again := content.Common(test.train, test.heldOut); again != got {
			t.Errorf("%s: %v, and then %v", test.name, got, again)
		}
	}
}

// TestCommonBounds holds that what lies behind the bounds is not looked at.
func TestCommonBounds(t *testing.T) {
	large := bytes.Repeat([]byte{'-'}, 64<<10)
	if got := content.Common([][]byte{append(large, "abcdef"...)}, [][]byte{[]byte("abcdef")}); got != 0 {
		t.Errorf("behind 64 KiB of a value something is looked at: %v", got)
	}
	var train [][]byte
	for range 8 {
		train = append(train, large[:64<<10])
	}
	if got := content.Common(append(train, []byte("abcdef")), [][]byte{[]byte("abcdef")}); got != 0 {
		t.Errorf("behind 512 KiB of values something is looked at: %v", got)
	}
	if got := content.Common(append(train[:7], []byte("abcdef")), [][]byte{[]byte("abcdef")}); got != 1 {
		t.Errorf("within 512 KiB of values something is not looked at: %v", got)
	}
}
