package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
)

// streams is a compressor that calls its library's streaming API. Writers and readers are pooled,
// and reset for each value. For an algorithm whose frames leave the length to the payload, as
// blocks have it, the payload is that length and the stream.
type streams struct {
	algorithm frame.Algorithm
	id        frame.DictionaryID
	magic     []byte    // starts what writers write, and is left out of a payload
	writers   sync.Pool // of *encoder
	readers   sync.Pool // of *decoder
	release   func()    // nil for nothing
	closed    atomic.Bool
}

// encoder is a library's writer.
type encoder struct {
	writer io.WriteCloser
	reset  func(io.Writer)
	sink   sink
}

// decoder is a library's reader.
type decoder struct {
	reader io.Reader
	reset  func(io.Reader) error
	source source
	one    [1]byte // here, so that it does not escape at each value
}

// newStream makes a compressor of streams.
func (s Setting) newStream(d *frame.Dictionary) (compress.Compressor, error) {
	if d != nil && s.Algorithm != frame.Zstd {
		return nil, fmt.Errorf("%w: streams of %v", compress.ErrNoDictionary, s.Algorithm)
	}
	// A dictionary that cannot be read, or a level that is not there, is to fail here, as it does
	// for the other forms.
	pooled, err := s.Engine().New(s.Setting, d)
	if err != nil {
		return nil, err
	}
	if err := pooled.Close(); err != nil {
		return nil, err
	}
	c := &streams{algorithm: s.Algorithm, id: d.ID()}
	switch s.Algorithm {
	case frame.Zstd:
		c.magic = magic
		if err := s.streamZstd(c, d.Bytes()); err != nil {
			return nil, fmt.Errorf("zstd: dictionary %v is not usable: %w", d.ID(), err)
		}
	case frame.S2, frame.Snappy:
		c.s2(s.Setting)
	case frame.LZ4:
		c.lz4(s.Setting)
	}
	return c, nil
}

// s2 sets streams of s2 or snappy up. They are cut into blocks of 1 MB and 64 KB.
func (c *streams) s2(s compress.Setting) {
	options := []s2.WriterOption{s2.WriterConcurrency(1)}
	switch {
	case s.Algorithm == frame.Snappy:
		options = append(options, s2.WriterSnappyCompat())
	case s.Level == "better":
		options = append(options, s2.WriterBetterCompression())
	case s.Level == "best":
		options = append(options, s2.WriterBestCompression())
	}
	c.writers.New = func() any {
		w := s2.NewWriter(nil, options...)
		return &encoder{writer: w, reset: w.Reset}
	}
	c.readers.New = func() any {
		r := s2.NewReader(nil)
		return &decoder{reader: r, reset: func(from io.Reader) error { r.Reset(from); return nil }}
	}
}

// lz4 sets streams of lz4 up: its frames.
func (c *streams) lz4(s compress.Setting) {
	level := lz4.Fast
	if s.Level == "best" {
		level = lz4.Level9
	}
	c.writers.New = func() any {
		w := lz4.NewWriter(nil)
		if err := w.Apply(lz4.CompressionLevelOption(level)); err != nil {
			return err
		}
		return &encoder{writer: w, reset: w.Reset}
	}
	c.readers.New = func() any {
		r := lz4.NewReader(nil)
		return &decoder{reader: r, reset: func(from io.Reader) error { r.Reset(from); return nil }}
	}
}

// goZstd sets streams of zstd in pure Go up. With a concurrency of one the library starts no
// goroutine for them.
func (c *streams) goZstd(s compress.Setting, dict []byte) {
	encoding := append(encoderOptions(s, dict), zstd.WithEncoderConcurrency(1))
	decoding := append(decoderOptions(dict), zstd.WithDecoderConcurrency(1))
	c.writers.New = func() any {
		w, err := zstd.NewWriter(nil, encoding...)
		if err != nil {
			return err
		}
		return &encoder{writer: w, reset: w.Reset}
	}
	c.readers.New = func() any {
		r, err := zstd.NewReader(nil, decoding...)
		if err != nil {
			return err
		}
		return &decoder{reader: r, reset: r.Reset}
	}
}

var errStreamClosed = fmt.Errorf("stream: compressor is closed: %w", os.ErrClosed)

func (c *streams) Algorithm() frame.Algorithm       { return c.algorithm }
func (c *streams) DictionaryID() frame.DictionaryID { return c.id }

// get takes an encoder or decoder from its pool.
func get[T any](c *streams, pool *sync.Pool) (*T, error) {
	if c.closed.Load() {
		return nil, errStreamClosed
	}
	switch x := pool.Get().(type) {
	case *T:
		return x, nil
	case error:
		return nil, x
	}
	return nil, errStreamClosed
}

// Compress appends the stream of src to dst.
func (c *streams) Compress(dst, src []byte) ([]byte, error) {
	e, err := get[encoder](c, &c.writers)
	if err != nil {
		return dst, err
	}
	out := dst
	if c.algorithm.LengthInPayload() {
		out = binary.AppendUvarint(out, uint64(len(src)))
	}
	start := len(out)
	e.sink = sink{out: out, skip: len(c.magic)}
	e.reset(&e.sink)
	_, err = e.writer.Write(src)
	// Most of a stream, or all of it, is written when it is closed: to leave that out is to measure
	// an encoder that stores nothing.
	err = errors.Join(err, e.writer.Close())
	out, skipped := e.sink.out, e.sink.skip == 0
	e.sink = sink{}
	switch {
	case err != nil:
		return dst, err // the writer is in no state to be used again
	case !skipped || len(out) == start && len(src) > 0:
		return dst, fmt.Errorf("stream: the writer of %v wrote nothing", c.algorithm)
	}
	c.writers.Put(e)
	return out, nil
}

// Decompress appends the size bytes that the stream src holds to dst.
func (c *streams) Decompress(dst, src []byte, size int) ([]byte, error) {
	if c.algorithm.LengthInPayload() {
		length, head := binary.Uvarint(src)
		if head <= 0 || length != uint64(size) {
			return dst, fmt.Errorf("stream: payload does not start with its length of %d bytes", size)
		}
		src = src[head:]
	}
	d, err := get[decoder](c, &c.readers)
	if err != nil {
		return dst, err
	}
	d.source = source{c.magic, src}
	n := len(dst)
	dst = slices.Grow(dst, size)
	if err := d.read(dst[n : n+size]); err != nil {
		return dst[:n], err
	}
	d.source = source{}
	c.readers.Put(d)
	return dst[:n+size], nil
}

// read fills b with the content of the source, which must end there.
func (d *decoder) read(b []byte) error {
	if err := d.reset(&d.source); err != nil {
		return err
	}
	if _, err := io.ReadFull(d.reader, b); err != nil {
		return fmt.Errorf("stream: content ends before its %d bytes: %w", len(b), err)
	}
	switch more, err := d.reader.Read(d.one[:]); {
	case more > 0:
		return fmt.Errorf("stream: content is longer than its %d bytes", len(b))
	case err != io.EOF:
		return fmt.Errorf("stream: no end after %d bytes: %w", len(b), err)
	}
	return nil
}

// Close releases a dictionary; pooled writers and readers are left to the garbage collector.
func (c *streams) Close() error {
	if !c.closed.Swap(true) && c.release != nil {
		c.release()
	}
	return nil
}

// sink appends to out what comes after the first skip bytes.
type sink struct {
	out  []byte
	skip int
}

func (s *sink) Write(p []byte) (int, error) {
	skip := min(s.skip, len(p))
	s.skip -= skip
	s.out = append(s.out, p[skip:]...)
	return len(p), nil
}

// source reads one slice after another.
type source [2][]byte

func (s *source) Read(p []byte) (int, error) {
	n := copy(p, s[0])
	s[0] = s[0][n:]
	m := copy(p[n:], s[1])
	s[1] = s[1][m:]
	if n+m == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n + m, nil
}
