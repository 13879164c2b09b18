package compress

import (
	"fmt"

	"github.com/klauspost/compress/s2"

	"github.com/balekv/bale/frame"
)

// snappy makes and reads Snappy blocks.
type snappy struct{}

func (snappy) Algorithm() frame.Algorithm       { return frame.Snappy }
func (snappy) DictionaryID() frame.DictionaryID { return 0 }
func (snappy) Close() error                     { return nil }

func (snappy) Compress(dst, src []byte) ([]byte, error) {
	return appendBlock(dst, src, s2.EncodeSnappy)
}

func (snappy) Decompress(dst, src []byte, size int) ([]byte, error) {
	return decodeBlock(dst, src, size, 0, s2.Decode) // Snappy's format is a subset of S2's
}

// s2Level is a level of S2. All levels decode alike.
type s2Level uint8

const (
	s2Default s2Level = iota
	s2Better          // 10 to 40% slower, somewhat smaller
	s2Best            // many times slower
)

// s2Blocks makes and reads S2 blocks, without a context. A dictionary's tables are built once.
type s2Blocks struct {
	encode func(dst, src []byte) []byte
	decode func(dst, src []byte) ([]byte, error)
	dict   int // bytes of the dictionary
	id     frame.DictionaryID
}

// newS2 makes a compressor. The last 64 KiB of a dictionary count.
func newS2(l s2Level, dictionary *frame.Dictionary) (Compressor, error) {
	c := &s2Blocks{decode: s2.Decode, id: dictionary.ID()}
	encoders := [...]func(dst, src []byte) []byte{s2Default: s2.Encode, s2Better: s2.EncodeBetter, s2Best: s2.EncodeBest}
	if dictionary != nil {
		tail := dictionary.Tail(s2.MaxDictSize)
		c.dict = len(tail)
		d := s2.MakeDictManual(tail, 0)
		if d == nil {
			return nil, fmt.Errorf("s2: dictionary %v is not usable: it has %d bytes", c.id, len(dictionary.Bytes()))
		}
		encoders = [...]func(dst, src []byte) []byte{s2Default: d.Encode, s2Better: d.EncodeBetter, s2Best: d.EncodeBest}
		c.decode = d.Decode
	}
	c.encode = encoders[l]
	return c, nil
}

func (*s2Blocks) Algorithm() frame.Algorithm         { return frame.S2 }
func (c *s2Blocks) DictionaryID() frame.DictionaryID { return c.id }
func (*s2Blocks) Close() error                       { return nil }

func (c *s2Blocks) Compress(dst, src []byte) ([]byte, error) { return appendBlock(dst, src, c.encode) }

func (c *s2Blocks) Decompress(dst, src []byte, size int) ([]byte, error) {
	return decodeBlock(dst, src, size, c.dict, c.decode)
}
