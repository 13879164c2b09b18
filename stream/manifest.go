package stream

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/balekv/bale"
	"github.com/balekv/bale/frame"
)

// manifest is what the key of a stream holds, as the payload of a frame of algorithm chunks:
//
//	version (1 byte, 1), length of the generation (1 byte), generation,
//	size, stored, chunks (uvarints)
//
// A chunk is the frame of a stored value under KEY:GENERATION:NUMBER.
type manifest struct {
	generation string
	Info
}

const (
	manifestVersion = 1
	maxManifest     = 300 // bytes
)

func (m manifest) append(dst []byte) []byte {
	p := append([]byte{manifestVersion, byte(len(m.generation))}, m.generation...)
	for _, v := range []uint64{uint64(m.Size), uint64(m.Stored), uint64(m.Chunks)} {
		p = binary.AppendUvarint(p, v)
	}
	h := frame.Header{Algorithm: frame.Chunks, HasChecksum: true, Checksum: frame.Checksum(p), Length: uint64(len(p))}
	return append(h.Append(dst), p...)
}

func parseManifest(stored []byte) (manifest, error) {
	h, offset, ok := frame.Parse(stored)
	if !ok || h.Algorithm != frame.Chunks {
		return manifest{}, fmt.Errorf("%w: read it with a bale.Cache or the client", ErrNotStream)
	}
	p := stored[offset:]
	if h.Version != frame.V1 || len(p) > 0 && p[0] != manifestVersion {
		return manifest{}, fmt.Errorf("%w: a stream of a later version: upgrade bale", bale.ErrUnknownAlgorithm)
	}
	if uint64(len(p)) != h.Length || len(p) < 2 || len(p) > maxManifest || h.HasChecksum && frame.Checksum(p) != h.Checksum || len(p) < 2+int(p[1]) {
		return manifest{}, fmt.Errorf("%w: the manifest of a stream is damaged", bale.ErrCorrupt)
	}
	m := manifest{generation: string(p[2 : 2+int(p[1])])}
	p = p[2+len(m.generation):]
	var numbers [3]int64
	for i := range numbers {
		v, n := binary.Uvarint(p)
		if n <= 0 || v > math.MaxInt64 {
			return manifest{}, fmt.Errorf("%w: the manifest of a stream is damaged", bale.ErrCorrupt)
		}
		numbers[i], p = int64(v), p[n:]
	}
	m.Info = Info{Size: numbers[0], Stored: numbers[1], Chunks: int(numbers[2])}
	if len(p) > 0 || numbers[2] > math.MaxInt32 || numbers[2] > numbers[1] {
		return manifest{}, fmt.Errorf("%w: the manifest of a stream is damaged", bale.ErrCorrupt)
	}
	return m, nil
}
