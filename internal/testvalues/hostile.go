package testvalues

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"github.com/balekv/bale/frame"
)

// Claim is a forged payload.
type Claim struct {
	Algorithm frame.Algorithm
	Payload   []byte
}

// Claims returns payloads whose structure claims size bytes, a power of two from 1 MiB to 2 GiB.
// None can be decoded.
func Claims(size int) map[string]Claim {
	all := map[string]Claim{}
	const block = 128 << 10
	// A single segment, its size in 4 bytes; the blocks of what follows.
	start := binary.LittleEndian.AppendUint32([]byte{0x20 | 2<<6}, uint32(size))
	zstd := func(first, others []byte) []byte {
		b := append(bytes.Clone(start), first...)
		b = append(b, bytes.Repeat(others, size/block)...)
		b[len(b)-len(others)] |= 1 // the last one
		return b
	}
	compressed, run := []byte{2<<1 | 1<<3, 0, 0, 0xff}, []byte{1 << 1, 0, block >> 13, 'x'}
	all["zstd"] = Claim{frame.Zstd, zstd(nil, compressed)}
	all["zstd that decodes in part"] = Claim{frame.Zstd, zstd(append(bytes.Repeat(run, 3), compressed...), run)}
	// Runs that are larger than a block may be.
	all["zstd of 33 bytes"] = Claim{frame.Zstd, append(bytes.Clone(start), append(bytes.Repeat([]byte{1 << 1, 0, 0xff, 'x'}, 6), 1<<1|1, 0, 0xff, 'x')...)}

	length := binary.AppendUvarint(nil, uint64(size))
	// Repeats of 16 MiB, of a copy that there has not been, or that goes back too far.
	repeats := bytes.Repeat([]byte{7<<2 | 1, 0, 0xfc, 0xff, 0xfe}, size>>24)
	all["s2"] = Claim{frame.S2, append(bytes.Clone(length), repeats...)}
	all["s2 of the far"] = Claim{frame.S2, append(append(bytes.Clone(length), 0, 'x', 1<<2|1, 9), repeats...)}
	all["snappy"] = Claim{frame.Snappy, append(bytes.Clone(length), repeats...)}
	// Matches without anything before them.
	all["lz4"] = Claim{frame.LZ4, append([]byte{15, 1, 0}, bytes.Repeat([]byte{255}, size/255+1)...)}
	// A member, as far as its header goes.
	all["gzip"] = Claim{frame.Gzip, append([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff}, bytes.Repeat([]byte{0xff}, size/1000)...)}
	return all
}

// Mutate changes a value as faults do: flipped bits, changed bytes, cuts, insertions.
func Mutate(rng *rand.Rand, b []byte) []byte {
	b = bytes.Clone(b)
	for range 1 + rng.IntN(3) {
		if len(b) == 0 {
			return b
		}
		at := rng.IntN(len(b))
		switch rng.IntN(6) {
		case 0:
			b[at] ^= 1 << rng.IntN(8)
		case 1:
			b[at] = byte(rng.Uint32())
		case 2:
			b = b[:at]
		case 3:
			b = slices.Insert(b, at, byte(rng.Uint32()))
		case 4:
			b = slices.Delete(b, at, min(len(b), at+1+rng.IntN(8)))
		case 5: // within the header, where it tells most
			b[rng.IntN(min(len(b), 20))] ^= 1 << rng.IntN(8)
		}
	}
	return b
}

// Forge makes a frame with a valid header over arbitrary bytes: the header's check does not stop
// it.
func Forge(rng *rand.Rand, payload []byte) []byte {
	h := frame.Header{
		Algorithm: frame.Algorithm(rng.IntN(7)), HasChecksum: rng.IntN(2) == 0, Checksum: rng.Uint32(), Length: rng.Uint64() >> rng.IntN(64),
	}
	if rng.IntN(4) == 0 {
		h.DictionaryID = frame.DictionaryID(rng.Uint32())
	}
	if h.Algorithm.LengthInPayload() {
		// The payload must start with the length that the check covers.
		plain := h
		plain.Algorithm = frame.Stored
		length := plain.Append(nil)[h.PayloadOffset():]
		payload = append(length, payload...)
	}
	return append(h.Append(nil), payload...)
}
