package dataset

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/balekv/bale/cmd/bale/internal/dataset/shop"
)

// TestFFJSONIsJSON: ffjson has the same values as the others, in a copy of their types: encoding/json reads what it writes, and it reads what encoding/json
// wrote. Its copies themselves say nothing of that, for what is lost when they are made is in neither of the values that Verify compares.
func TestFFJSONIsJSON(t *testing.T) {
	t.Run("profiles", ffjsonIsJSON[shop.Profile])
	t.Run("sessions", ffjsonIsJSON[shop.Session])
	t.Run("logs", ffjsonIsJSON[shop.LogBatch])
	t.Run("fields10", ffjsonIsJSON[shop.Fields10])
	t.Run("fields100", ffjsonIsJSON[shop.Fields100])
	t.Run("1024B", ffjsonIsJSON[shop.Listing])
}

func ffjsonIsJSON[T any](t *testing.T) {
	_, name, _ := strings.Cut(t.Name(), "/")
	d, err := Make(name, 5)
	if name == "1024B" {
		d, err = Sized(1024, 5)
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.Coder("ffjson")
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(d.Raw); i += 1 + len(d.Raw)/100 {
		b, err := c.Encode(nil, i)
		if err != nil {
			t.Fatal(err)
		}
		var got, want T
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(d.Raw[i], &want); err != nil {
			t.Fatal(err)
		}
		if !sameGo(&got, &want) {
			t.Errorf("encoding/json reads another value %d than was written", i)
		}
		if err := c.Verify(d.Raw[i], i); err != nil {
			t.Errorf("what encoding/json wrote: %v", err)
		}
	}
}

// TestFFJSONDamaged: what no one wrote is an error or another value, and neither a panic nor an endless loop: no one repairs ffjson any more, and so what
// holds it to that is this.
func TestFFJSONDamaged(t *testing.T) {
	pieces := []string{
		"null", "true", "{", "}", "[", "]", ",", ":", `"`, `""`, "{}", "[]", "-", "0", "1e", "1.", "1e999", "99999999999999999999", `\`, `\u`, `\ud800`, `\ud800\ude`,
		"//", "/*", "/**/", "\x00", "\xff", `"settings":`, `"cart":[`, `"created_at":`, `"x":{"y":[`,
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for _, name := range []string{"profiles", "sessions", "fields10"} {
		d := made(t, name, 3)
		c, err := d.Coder("ffjson")
		if err != nil {
			t.Fatal(err)
		}
		refused := 0
		const inputs = 5000
		for i := range inputs {
			b, err := c.Encode(nil, i%100)
			if err != nil {
				t.Fatal(err)
			}
			for range 1 + rng.IntN(3) {
				at := rng.IntN(len(b) + 1)
				rest := string(b[min(len(b), at+rng.IntN(8)):])
				switch b = b[:at]; rng.IntN(4) {
				case 0: // truncated
				case 1: // less in the middle
					b = append(b, rest...)
				case 2:
					b = append(append(b, byte(rng.Uint32())), rest...)
				case 3:
					b = append(append(b, pick(rng, pieces...)...), rest...)
				}
			}
			if c.Decode(b) != nil {
				refused++
			}
		}
		if refused < inputs/2 || refused == inputs {
			t.Errorf("%s: %d of %d refused", name, refused, inputs)
		}
	}
}
