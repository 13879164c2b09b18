package stream

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/balekv/bale"
	"github.com/balekv/bale/frame"
)

// Manifest is the value in the key of a stream, as the payload of a frame of algorithm chunks:
//
//	version (1 byte, 1), length of the generation (1 byte, 26), generation,
//	size, stored, chunks (uvarints)
//
// Anyone who can write the key can forge it. So [ParseManifest] takes only what this package could
// have written.
type Manifest struct {
	Info

	// Generation is a text that no other value of the key has: 26 of the letters A to Z and the
	// digits 2 to 7.
	Generation string
}

// ChunkKey is where a chunk is, as the frame of a stored value: KEY:bale:GENERATION:NUMBER, the
// first being number 0. In a cluster the chunks of a value are on all nodes, unless the key has a
// hash tag.
func (m *Manifest) ChunkKey(key string, i int) string {
	return key + ":bale:" + m.Generation + ":" + strconv.Itoa(i)
}

const (
	manifestVersion = 1

	// generationSize is the length of what crypto/rand.Text returns.
	generationSize = 26

	// maxChunks bounds the chunks of a value: 1 TiB of the smallest chunks.
	maxChunks = 1 << 24

	// maxRatio is above the ratio of any zstd stream: a block of 4 bytes holds 128 KiB.
	maxRatio = 1 << 15
)

var errManifest = fmt.Errorf("%w: the manifest of a stream is damaged, or bale did not write it: remove the key if nothing needs it", bale.ErrCorrupt)

// isGeneration reports whether a text is as crypto/rand.Text makes it. Chunk keys are made of it,
// so any other text could name a key of somebody else.
func isGeneration(s string) bool {
	return len(s) == generationSize && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// plausible reports whether this package can have written a value like that. All chunks but the
// last have Options.Chunk bytes and a header. Zstd makes noise larger by 3 bytes a block of 128
// KiB.
func (i *Info) plausible() bool {
	n, most := int64(i.Chunks), i.Size+i.Size>>10+1<<10
	switch {
	case i.Chunks == 0:
		return *i == Info{}
	case n > maxChunks || i.Size > math.MaxInt64/2:
		return false
	}
	most += n * headRoom
	return i.Stored > (n-1)*minChunk && i.Stored <= n*(maxChunk+headRoom) && i.Stored <= most && i.Size/maxRatio <= i.Stored
}

// String describes the value for a person.
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

// ParseManifest reads the value in the key of a stream. Any other value is ErrNotStream.
func ParseManifest(stored []byte) (Manifest, error) {
	h, offset, ok := frame.Parse(stored)
	if !ok || h.Algorithm != frame.Chunks {
		return Manifest{}, fmt.Errorf("%w: read it with a bale.Cache or the client", ErrNotStream)
	}
	p := stored[offset:]
	if isJournal(p) {
		return Manifest{}, fmt.Errorf("%w: not a stream, but a record of an unfinished write of one: stream.Owner returns its key, and Repair tidies up", bale.ErrUnknownAlgorithm)
	}
	if h.Version != frame.V1 || len(p) > 0 && p[0] != manifestVersion {
		return Manifest{}, fmt.Errorf("%w: a stream of a later version: upgrade bale", bale.ErrUnknownAlgorithm)
	}
	const start = 2 + generationSize
	if uint64(len(p)) != h.Length || len(p) < start || h.HasChecksum && frame.Checksum(p) != h.Checksum || p[1] != generationSize || !isGeneration(string(p[2:start])) {
		return Manifest{}, errManifest
	}
	m := Manifest{Generation: string(p[2:start])}
	p = p[start:]
	var numbers [3]int64
	for i := range numbers {
		v, n := binary.Uvarint(p)
		if n <= 0 || v > math.MaxInt64 {
			return Manifest{}, errManifest
		}
		numbers[i], p = int64(v), p[n:]
	}
	m.Info = Info{Size: numbers[0], Stored: numbers[1], Chunks: int(min(numbers[2], maxChunks+1))}
	if len(p) > 0 || !m.plausible() {
		return Manifest{}, errManifest
	}
	return m, nil
}
