package compress

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/s2"
)

// elements makes a block of random elements: a literal, then copies of all kinds that reach one
// byte back. The repeats of 3 bytes' length are rare, so that most blocks stay small.
func elements(rng *rand.Rand) (body []byte, size int) {
	body, size = []byte{0, 'x', 1<<2 | 1, 1}, 1+5 // a copy of 5: repeats are of its offset
	for range rng.IntN(20) {
		x := rng.IntN(60)
		switch kind := rng.IntN(16); {
		case kind < 4: // a literal of up to 60 bytes
			body = append(append(body, byte(x<<2)), make([]byte, x+1)...)
			size += x + 1
		case kind < 6: // a literal whose length follows in 1 to 4 bytes
			n := 1 + rng.IntN(4)
			length := rng.IntN(300)
			if n == 1 {
				length = min(length, 255)
			}
			body = append(body, byte((59+n)<<2))
			body = append(body, binary.LittleEndian.AppendUint32(nil, uint32(length))[:n]...)
			body = append(body, make([]byte, length+1)...)
			size += length + 1
		case kind < 8:
			body = append(body, byte(x%8<<2|1), 1)
			size += 4 + x%8
		case kind < 10:
			body = append(body, byte(x<<2|2), 1, 0)
			size += x + 1
		case kind < 12:
			body = append(body, byte(x<<2|3), 1, 0, 0, 0)
			size += x + 1
		case kind < 13: // a repeat whose length follows in no byte
			body = append(body, byte(x%5<<2|1), 0)
			size += 4 + x%5
		case kind < 14:
			body = append(body, 5<<2|1, 0, byte(x))
			size += 8 + x
		case kind < 15:
			body = append(body, 6<<2|1, 0, byte(x), 2)
			size += 4 + 256 + x + 512
		default:
			body = append(body, 7<<2|1, 0, byte(x), 2, 0)
			size += 4 + 65536 + x + 512
		}
	}
	return body, size
}

// TestHolds compares with the decoder, which must agree with the test on what its blocks hold.
func TestHolds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const dictionary = 3000
	d := s2.MakeDictManual(make([]byte, dictionary), 0)
	decoded := 0
	for range 8000 {
		body, size := elements(rng)
		block := append(binary.AppendUvarint(nil, uint64(size)), body...)
		if got, err := s2.Decode(nil, block); err != nil || len(got) != size {
			t.Fatalf("%x: the decoder says %d bytes, %v; made for %d", block, len(got), err, size)
		}
		if !holdsS2(block, size, 0) {
			t.Fatalf("%x does not hold its %d bytes", block, size)
		}
		if holdsS2(block, size+1, 0) || holdsS2(block, size-1, 0) {
			t.Fatalf("%x holds other than %d bytes", block, size)
		}
		// Cut or changed, exactly what the decoder takes is held, with a dictionary and without.
		changed := append([]byte(nil), block[:1+rng.IntN(len(block))]...)
		changed[rng.IntN(len(changed))] ^= 1 << rng.IntN(8)
		n, err := s2.DecodedLen(changed)
		if err != nil || n > 1<<20 {
			continue
		}
		for size, decode := range map[int]func(dst, src []byte) ([]byte, error){0: s2.Decode, dictionary: d.Decode} {
			_, err := decode(nil, changed)
			if (err == nil) != holdsS2(changed, n, size) {
				t.Fatalf("%x holds %d bytes with %d of dictionary: %v, and the decoder says %v", changed, n, size, err != nil, err)
			}
			if err == nil {
				decoded++
			}
		}
	}
	if decoded < 100 {
		t.Errorf("only %d changed blocks can be decoded", decoded)
	}
}
