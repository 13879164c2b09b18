package compress

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/pierrec/lz4/v4"

	"github.com/balekv/bale/frame"
)

// TestHolds compares with the decoder, on blocks as they are, cut and changed.
func TestHoldsLZ4(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	content := make([]byte, 2000)
	for i := range content {
		content[i] = byte(rng.IntN(4)) + 'a'
	}
	d, err := frame.NewDictionary(content)
	if err != nil {
		t.Fatal(err)
	}
	agreed := 0
	for _, dictionary := range []*frame.Dictionary{nil, d} {
		c := newLZ4(false, dictionary).(*lz4Blocks)
		for range 20_000 {
			at := rng.IntN(1500)
			value := append(bytes.Clone(content[at:at+rng.IntN(400)]), make([]byte, rng.IntN(2000))...)
			block, err := c.Compress(nil, value)
			if err != nil {
				t.Fatal(err)
			}
			if !holdsLZ4(block, len(value), len(c.dict)) || holdsLZ4(block, len(value)+1, len(c.dict)) || len(value) > 0 && holdsLZ4(block, len(value)-1, len(c.dict)) {
				t.Fatalf("%x of %d bytes", block, len(value))
			}
			block = block[:1+rng.IntN(len(block))]
			block[rng.IntN(len(block))] ^= 1 << rng.IntN(8)
			for _, size := range []int{len(value), 1 + rng.IntN(3000)} {
				got, err := lz4.UncompressBlockWithDict(block, make([]byte, size), c.dict)
				if decoded := err == nil && got == size; decoded && !holdsLZ4(block, size, len(c.dict)) {
					t.Fatalf("%x does not hold %d bytes, and is decoded", block, size)
				} else if decoded {
					agreed++
				} else if err != nil && holdsLZ4(block, size, len(c.dict)) {
					t.Fatalf("%x holds %d bytes, and is not decoded: %v", block, size, err)
				}
			}
		}
	}
	if agreed < 100 {
		t.Errorf("only %d changed blocks can be decoded", agreed)
	}
}
