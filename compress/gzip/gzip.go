// Package gzip compresses to gzip members (RFC 1952): slower and larger than zstd, but read
// by everything.
package gzip

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/gzip"

	"github.com/balekv/bale/frame"
)

// Level trades time to compress for size. Every level is read alike.
type Level uint8

const (
	Default Level = iota // level 6
	Fastest              // level 1
	Best                 // level 9
)

// Options are the settings of a Compressor; the zero value is useful.
type Options struct {
	// Level defaults to Default.
	Level Level
}

// Compressor makes and reads gzip members. It is safe for concurrent use; its contexts, which
// take up to 1 MB each, are pooled.
type Compressor struct {
	writers sync.Pool // of *writer
	readers sync.Pool // of *reader
}

// writer appends what gz writes to out.
type writer struct {
	gz  *gzip.Writer
	out []byte
}

func (w *writer) Write(p []byte) (int, error) {
	w.out = append(w.out, p...)
	return len(p), nil
}

type reader struct {
	gz  gzip.Reader
	src bytes.Reader
	one [1]byte // here, so that it does not escape at each value
}

// New makes a Compressor.
func New(o Options) (*Compressor, error) {
	levels := [...]int{Default: 6, Fastest: gzip.BestSpeed, Best: gzip.BestCompression}
	if int(o.Level) >= len(levels) {
		return nil, fmt.Errorf("gzip: no level %d", o.Level)
	}
	level := levels[o.Level]
	c := &Compressor{}
	c.writers.New = func() any {
		w := new(writer)
		w.gz, _ = gzip.NewWriterLevel(w, level) // fails only for a level that does not exist
		return w
	}
	c.readers.New = func() any { return new(reader) }
	return c, nil
}

// Algorithm is [frame.Gzip].
func (*Compressor) Algorithm() frame.Algorithm { return frame.Gzip }

// DictionaryID is zero: gzip has no dictionaries.
func (*Compressor) DictionaryID() frame.DictionaryID { return 0 }

// Compress appends the member of src to dst.
func (c *Compressor) Compress(dst, src []byte) ([]byte, error) {
	w := c.writers.Get().(*writer)
	defer c.writers.Put(w)
	w.out = dst
	w.gz.Reset(w)
	_, err := w.gz.Write(src)
	// Nothing is written before Close: to leave it out is to measure an encoder that stores nothing.
	err = errors.Join(err, w.gz.Close())
	out := w.out
	w.out = nil
	if err != nil {
		return dst, err
	}
	return out, nil
}

// maxExpansion is how many bytes one of a member can stand for: a match of 258 bytes takes 2 bits at least.
const maxExpansion = 1032

// Decompress appends the size bytes that the member src holds to dst.
func (c *Compressor) Decompress(dst, src []byte, size int) ([]byte, error) {
	if size > maxExpansion*len(src) {
		return dst, fmt.Errorf("gzip: %d bytes cannot hold %d", len(src), size)
	}
	r := c.readers.Get().(*reader)
	defer c.readers.Put(r)
	r.src.Reset(src)
	defer r.src.Reset(nil)
	if err := r.gz.Reset(&r.src); err != nil {
		return dst, err
	}
	r.gz.Multistream(false)
	n := len(dst)
	dst = slices.Grow(dst, size)
	if _, err := io.ReadFull(&r.gz, dst[n:n+size]); err != nil {
		return dst[:n], fmt.Errorf("gzip: content ends before its %d bytes: %w", size, err)
	}
	// The end must be here: reading it also verifies gzip's own checksum.
	switch more, err := r.gz.Read(r.one[:]); {
	case more > 0:
		return dst[:n], fmt.Errorf("gzip: content is longer than its %d bytes", size)
	case err != io.EOF:
		return dst[:n], fmt.Errorf("gzip: no end after %d bytes: %w", size, err)
	case r.src.Len() > 0:
		return dst[:n], fmt.Errorf("gzip: %d bytes after the end", r.src.Len())
	}
	return dst[:n+size], nil
}

// Close does nothing: pooled contexts are left to the garbage collector.
func (*Compressor) Close() error { return nil }
