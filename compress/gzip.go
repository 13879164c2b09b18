package compress

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/gzip"

	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/claim"
)

// gzipMembers makes and reads gzip members (RFC 1952). Its contexts, which take up to 1 MB each,
// are pooled.
type gzipMembers struct {
	writers sync.Pool // of *gzipWriter
	readers sync.Pool // of *gzipReader
}

// gzipWriter appends what gz writes to out.
type gzipWriter struct {
	gz  *gzip.Writer
	out []byte
}

func (w *gzipWriter) Write(p []byte) (int, error) {
	w.out = append(w.out, p...)
	return len(p), nil
}

type gzipReader struct {
	gz  gzip.Reader
	src bytes.Reader
	one [1]byte // here, so that it does not escape at each value
}

// newGzip makes a compressor of a level, 1 to 9.
func newGzip(level int) Compressor {
	c := &gzipMembers{}
	c.writers.New = func() any {
		w := new(gzipWriter)
		w.gz, _ = gzip.NewWriterLevel(w, level) // fails only for a level that does not exist
		return w
	}
	c.readers.New = func() any { return new(gzipReader) }
	return c
}

func (*gzipMembers) Algorithm() frame.Algorithm       { return frame.Gzip }
func (*gzipMembers) DictionaryID() frame.DictionaryID { return 0 }

// Compress appends the member of src to dst.
func (c *gzipMembers) Compress(dst, src []byte) ([]byte, error) {
	w := c.writers.Get().(*gzipWriter)
	defer c.writers.Put(w)
	w.out = dst
	w.gz.Reset(w)
	_, err := w.gz.Write(src)
	// Nothing is written before Close: a benchmark without it measures an encoder that stores
	// nothing.
	err = errors.Join(err, w.gz.Close())
	out := w.out
	w.out = nil
	if err != nil {
		return dst, err
	}
	return out, nil
}

// gzipExpansion is how many bytes one byte of a member can decode to: a match of 258 bytes takes at
// least 2 bits.
const gzipExpansion = 1032

// Decompress appends the size bytes that the member src holds to dst.
func (c *gzipMembers) Decompress(dst, src []byte, size int) ([]byte, error) {
	if int64(size) > gzipExpansion*int64(len(src)) { // an int of 32 bits holds 2 GiB
		return dst, fmt.Errorf("gzip: %d bytes cannot hold %d", len(src), size)
	}
	r := c.readers.Get().(*gzipReader)
	defer c.readers.Put(r)
	r.src.Reset(src)
	defer r.src.Reset(nil)
	if err := r.gz.Reset(&r.src); err != nil {
		return dst, err
	}
	r.gz.Multistream(false)
	n, room := len(dst), size
	if cap(dst)-n < size {
		room = claim.First(size, len(src))
	}
	for read := 0; ; room = claim.Next(size, room) {
		dst = slices.Grow(dst[:n+read], room-read)
		if _, err := io.ReadFull(&r.gz, dst[n+read:n+room]); err != nil {
			return dst[:n], fmt.Errorf("gzip: content ends before its %d bytes: %w", size, err)
		}
		if read = room; room == size {
			break
		}
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
func (*gzipMembers) Close() error { return nil }
