package stream

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"github.com/balekv/bale"
	"github.com/balekv/bale/frame"
)

// Manifest is what the key of a stream holds, as the payload of a frame of algorithm chunks:
//
//	version (1 byte, 1), length of the generation (1 byte), generation,
//	size, stored, chunks (uvarints)
type Manifest struct {
	Info

	// Generation is a text that no other value of the key has.
	Generation string
}

// ChunkKey is where a chunk is, as the frame of a stored value: KEY:GENERATION:NUMBER, the first being number 0. In a cluster the chunks of a value are on all
// nodes, unless the key has a hash tag.
func (m *Manifest) ChunkKey(key string, i int) string {
	return key + ":" + m.Generation + ":" + strconv.Itoa(i)
}

const (
	manifestVersion = 1
	maxManifest     = 300 // bytes
)

// String says what the value is, for a person.
func (m *Manifest) String() string {
	s := fmt.Sprintf("a stream of %d bytes, stored in %d bytes", m.Size, m.Stored)
	if m.Stored > 0 {
		s += fmt.Sprintf(" (ratio %.2f)", float64(m.Size)/float64(m.Stored))
	}
	if m.Chunks == 1 {
		return s + ", 1 chunk, generation " + m.Generation
	}
	return s + fmt.Sprintf(", %d chunks, generation %s", m.Chunks, m.Generation)
}

func (m *Manifest) append(dst []byte) []byte {
	p := append([]byte{manifestVersion, byte(len(m.Generation))}, m.Generation...)
	for _, v := range []uint64{uint64(m.Size), uint64(m.Stored), uint64(m.Chunks)} {
		p = binary.AppendUvarint(p, v)
	}
	h := frame.Header{Algorithm: frame.Chunks, HasChecksum: true, Checksum: frame.Checksum(p), Length: uint64(len(p))}
	return append(h.Append(dst), p...)
}

// ParseManifest reads what the key of a stream holds. What is not a manifest is ErrNotStream.
func ParseManifest(stored []byte) (Manifest, error) {
	h, offset, ok := frame.Parse(stored)
	if !ok || h.Algorithm != frame.Chunks {
		return Manifest{}, fmt.Errorf("%w: read it with a bale.Cache or the client", ErrNotStream)
	}
	p := stored[offset:]
	if h.Version != frame.V1 || len(p) > 0 && p[0] != manifestVersion {
		return Manifest{}, fmt.Errorf("%w: a stream of a later version: upgrade bale", bale.ErrUnknownAlgorithm)
	}
	if uint64(len(p)) != h.Length || len(p) < 2 || len(p) > maxManifest || h.HasChecksum && frame.Checksum(p) != h.Checksum || len(p) < 2+int(p[1]) {
		return Manifest{}, fmt.Errorf("%w: the manifest of a stream is damaged", bale.ErrCorrupt)
	}
	m := Manifest{Generation: string(p[2 : 2+int(p[1])])}
	p = p[2+len(m.Generation):]
	var numbers [3]int64
	for i := range numbers {
		v, n := binary.Uvarint(p)
		if n <= 0 || v > math.MaxInt64 {
			return Manifest{}, fmt.Errorf("%w: the manifest of a stream is damaged", bale.ErrCorrupt)
		}
		numbers[i], p = int64(v), p[n:]
	}
	m.Info = Info{Size: numbers[0], Stored: numbers[1], Chunks: int(numbers[2])}
	if len(p) > 0 || numbers[2] > math.MaxInt32 || numbers[2] > numbers[1] {
		return Manifest{}, fmt.Errorf("%w: the manifest of a stream is damaged", bale.ErrCorrupt)
	}
	return m, nil
}
