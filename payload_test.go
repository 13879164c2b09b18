package bale

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
)

// counting counts the payloads that reach a compressor.
type counting struct {
	Compressor
	decoded int
}

func (c *counting) Decompress(dst, src []byte, size int) ([]byte, error) {
	c.decoded++
	return c.Compressor.Decompress(dst, src, size)
}

// TestPayloadIsBounded: a payload that no content of its length needs is corrupt, before anything
// decodes it.
func TestPayloadIsBounded(t *testing.T) {
	content := []byte("content")
	for _, algorithm := range []frame.Algorithm{frame.Stored, frame.Snappy, frame.S2, frame.LZ4, frame.Gzip, frame.Zstd} {
		c, err := compress.Engine(nil).New(compress.Setting{Algorithm: algorithm}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		reader := &counting{Compressor: c}
		packer, err := NewPacker(PackerOptions{Compressors: &compress.Set{Write: reader}})
		if err != nil {
			t.Fatal(err)
		}
		defer packer.Close()
		for _, version := range []frame.Version{frame.V1, frame.V2} {
			frameOf := func(more int) []byte {
				h := frame.Header{Version: version, Algorithm: algorithm, Length: uint64(len(content))}
				payload, err := c.Compress(nil, content)
				if err != nil {
					t.Fatal(err)
				}
				if more > 0 {
					payload = append(payload, make([]byte, maxPayload(len(content))+more-len(payload))...)
				}
				stored := append(h.Append(nil), payload...)
				if version == frame.V2 {
					stored = frame.Freshness{Expires: time.Now()}.Append(stored)
				}
				return stored
			}
			reader.decoded = 0
			if got, err := packer.Unpack(t.Context(), nil, frameOf(0)); err != nil || !bytes.Equal(got, content) || reader.decoded != 1 {
				t.Fatalf("%v, version %d: %q, %v, decoded %d times", algorithm, version, got, err, reader.decoded)
			}
			for _, more := range []int{1, 1 << 20} {
				reader.decoded = 0
				if _, err := packer.Unpack(t.Context(), nil, frameOf(more)); !errors.Is(err, ErrCorrupt) || reader.decoded > 0 {
					t.Errorf("%v, version %d, %d bytes too many: %v, decoded %d times", algorithm, version, more, err, reader.decoded)
				}
			}
		}
	}
}

// TestEveryPayloadFits: what cannot be compressed is read with every algorithm and level, at every
// size.
func TestEveryPayloadFits(t *testing.T) {
	random := rand.NewChaCha8([32]byte{1})
	packer, err := NewPacker(PackerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer packer.Close()
	for _, setting := range compress.Settings() {
		c, err := compress.Engine(nil).New(setting, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for _, n := range []int{0, 1, 2, 7, 16, 63, 100, 1000, 65_535, 65_536, 131_073, 1 << 20} {
			content := make([]byte, n)
			random.Read(content)
			payload, err := c.Compress(nil, content)
			if err != nil {
				t.Fatal(setting, err)
			}
			h := frame.Header{Version: frame.V2, Algorithm: setting.Algorithm, Length: uint64(n), HasChecksum: true, Checksum: frame.Checksum(content)}
			stored := frame.Freshness{}.Append(append(h.Append(nil), payload...))
			if got, err := packer.Unpack(t.Context(), nil, stored); err != nil || !bytes.Equal(got, content) {
				t.Errorf("%v: %d bytes in %d: %v", setting, n, len(payload), err)
			}
			if over := len(payload) - n - n/6 - 64; over > 0 { // a good part of the room is for other encoders
				t.Errorf("%v: %d bytes more than was thought for %d", setting, over, n)
			}
		}
	}
}
