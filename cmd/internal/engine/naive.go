package engine

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/klauspost/compress/zstd"

	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
)

// newNaive makes a compressor that keeps nothing from value to value.
func (s Setting) newNaive(d *frame.Dictionary) (compress.Compressor, error) {
	// A dictionary that cannot be read, or a level that is not there, is to fail here, as it does
	// for the other forms.
	pooled, err := s.Engine().New(s.Setting, d)
	if err != nil {
		return nil, err
	}
	n := naive{algorithm: s.Algorithm, id: d.ID(), pooled: pooled}
	if s.Algorithm == frame.Zstd {
		n.compress, n.decompress = s.naiveZstd(d.Bytes())
		return &n, nil
	}
	n.compress = func(dst, src []byte) ([]byte, error) {
		return once(s.Setting, d, compress.Compressor.Compress, dst, src)
	}
	n.decompress = func(dst, src []byte, size int) ([]byte, error) {
		return once(s.Setting, d, func(c compress.Compressor, dst, src []byte) ([]byte, error) { return c.Decompress(dst, src, size) }, dst, src)
	}
	if s.Algorithm == frame.LZ4 {
		n.decompress = pooled.Decompress // blocks are read without a context, and a dictionary as it is
	}
	return &n, nil
}

// naive is a compressor of two functions that make their own context.
type naive struct {
	algorithm  frame.Algorithm
	id         frame.DictionaryID
	compress   compressFunc
	decompress decompressFunc
	pooled     compress.Compressor // for what needs no context
}

type (
	compressFunc   func(dst, src []byte) ([]byte, error)
	decompressFunc func(dst, src []byte, size int) ([]byte, error)
)

func (n *naive) Algorithm() frame.Algorithm               { return n.algorithm }
func (n *naive) DictionaryID() frame.DictionaryID         { return n.id }
func (n *naive) Compress(dst, src []byte) ([]byte, error) { return n.compress(dst, src) }
func (n *naive) Close() error                             { return n.pooled.Close() }
func (n *naive) Decompress(dst, src []byte, size int) ([]byte, error) {
	return n.decompress(dst, src, size)
}

// once makes the setting's compressor for a single call. Its pools are empty, so that the library's
// context is a new one, and they go with it.
func once(s compress.Setting, d *frame.Dictionary, call func(compress.Compressor, []byte, []byte) ([]byte, error), dst, src []byte) ([]byte, error) {
	c, err := s.New(d)
	if err != nil {
		return dst, err
	}
	dst, err = call(c, dst, src)
	return dst, errors.Join(err, c.Close())
}

// magic starts a Zstandard frame. Payloads omit it: the header of bale's frame names the algorithm.
var magic = []byte{0x28, 0xB5, 0x2F, 0xFD}

// trainedMagic starts a dictionary in the format of zstd's trainer.
var trainedMagic = []byte{0x37, 0xA4, 0x30, 0xEC}

// naiveGoZstd makes an Encoder or Decoder for each value, which has contexts for as many calls at a
// time as there are processors.
func naiveGoZstd(s compress.Setting, dict []byte) (compressFunc, decompressFunc) {
	encode := func(dst, src []byte) ([]byte, error) {
		e, err := zstd.NewWriter(nil, encoderOptions(s, dict)...)
		if err != nil {
			return dst, err
		}
		n := len(dst)
		dst = e.EncodeAll(src, dst)
		if !bytes.HasPrefix(dst[n:], magic) {
			return dst[:n], errors.Join(errNoFrame, e.Close())
		}
		return slices.Delete(dst, n, n+len(magic)), e.Close()
	}
	decode := func(dst, src []byte, size int) ([]byte, error) {
		d, err := zstd.NewReader(nil, append(decoderOptions(dict), zstd.WithDecodeAllCapLimit(true))...)
		if err != nil {
			return dst, err
		}
		defer d.Close()
		dst = slices.Grow(dst, size)
		n := len(dst)
		out, err := d.DecodeAll(slices.Concat(magic, src), dst[n:n:n+size])
		switch {
		case err != nil:
			return dst, err
		case len(out) != size:
			return dst, fmt.Errorf("payload holds %d bytes, %d expected", len(out), size)
		}
		return dst[:n+size], nil
	}
	return encode, decode
}

// errNoFrame says that an encoder, which cannot fail, did.
var errNoFrame = errors.New("the encoder wrote no zstd frame")

// encoderOptions are those of the pure-Go library for a level and a dictionary, if there is one. A
// trained one has an id, which is in the payload.
func encoderOptions(s compress.Setting, dict []byte) []zstd.EOption {
	level := zstd.SpeedDefault // bale's default
	if n, err := strconv.Atoi(s.Level); err == nil {
		level = zstd.EncoderLevelFromZstd(n)
	} else if s.Level != "" {
		_, level = zstd.EncoderLevelFromString(s.Level) // its names are bale's
	}
	o := []zstd.EOption{zstd.WithEncoderLevel(level), zstd.WithZeroFrames(true)}
	switch {
	case bytes.HasPrefix(dict, trainedMagic):
		o = append(o, zstd.WithEncoderDict(dict))
	case len(dict) > 0:
		o = append(o, zstd.WithEncoderDictRaw(0, dict))
	}
	return o
}

func decoderOptions(dict []byte) []zstd.DOption {
	switch {
	case bytes.HasPrefix(dict, trainedMagic):
		return []zstd.DOption{zstd.WithDecoderDicts(dict)}
	case len(dict) > 0:
		return []zstd.DOption{zstd.WithDecoderDictRaw(0, dict)}
	}
	return nil
}
