package dataset

import (
	"testing"

	"github.com/balekv/bale/internal/testvalues"
)

// BenchmarkProfile compares the codecs on a hundred typed profiles, in turns: json2 keeps strings
// that it has just decoded, and would otherwise find all of them.
func BenchmarkProfile(b *testing.B) {
	const values = 100
	d := made(b, "profiles", 1)
	for _, name := range Codecs() {
		c, err := d.Coder(name)
		if err != nil {
			b.Fatal(err)
		}
		var encoded [values][]byte
		total := 0
		for i := range encoded {
			if encoded[i], err = c.Encode(nil, i); err != nil {
				b.Fatal(err)
			}
			total += len(encoded[i])
		}
		b.Run(name+"/encode", func(b *testing.B) {
			b.ReportAllocs()
			var dst []byte
			for i := 0; b.Loop(); i++ {
				dst, _ = c.Encode(dst[:0], i%values)
			}
			b.ReportMetric(float64(total)/values, "bytes")
		})
		b.Run(name+"/decode", func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := c.Decode(encoded[i%values]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestEncodeAllocations: where a library can append, so does its coder, and nothing is allocated.
func TestEncodeAllocations(t *testing.T) {
	if testvalues.Race {
		t.Skip("the race detector allocates")
	}
	d := made(t, "profiles", 1)
	for name, most := range map[string]float64{
		"json": 1, "raw": 0, "json2": 0, "go-json": 0, "msgp": 0, "protobuf": 0, "msgpack": 2, "cbor": 2, "shamaton": 3, "sonic": 3,
	} {
		c, err := d.Coder(name)
		if err != nil {
			t.Fatal(err)
		}
		dst := make([]byte, 0, 4096)
		if n := testing.AllocsPerRun(500, func() { dst, _ = c.Encode(dst[:0], 0) }); n > most {
			t.Errorf("%s: %v allocations, want at most %v", name, n, most)
		}
	}
}
