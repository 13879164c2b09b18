package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/balekv/bale"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/adapters"
	"github.com/balekv/bale/stats"
)

// Reader reads a stream. It must be closed. It is for one goroutine at a time.
type Reader struct {
	streams *Streams
	key     string
	info    Info
	decoder *zstd.Decoder // nil once closed
	chunks  *chunkReader
	read    int64
	err     error // of every later Read

	start    time.Time
	recorded bool
	mended   sync.WaitGroup // of lookAfter
}

// GetReader opens the value of a key, or returns ErrNotFound. The first bytes are there, the others
// are read as they are wanted, until the context ends or the Reader is closed. A byte is handed out
// only when its chunk has been verified; the whole value has been when Read returns io.EOF.
func (s *Streams) GetReader(ctx context.Context, key string) (*Reader, error) {
	start := time.Now()
	r, err := s.open(ctx, key)
	if err != nil {
		s.record(ctx, stats.Get, start, 0, 0, err)
		return nil, err
	}
	r.start = start
	return r, nil
}

func (s *Streams) open(ctx context.Context, key string) (*Reader, error) {
	const tries = 4 // a value that is replaced so often between two commands has a problem of its own
	for try := 1; ; try++ {
		_, m, err := s.head(ctx, key)
		if err != nil {
			return nil, notFound("get", key, err)
		}
		if m.Size > s.options.MaxSize {
			return nil, &bale.KeyError{Op: "get", Key: key, Err: fmt.Errorf("%w: %d bytes, and Options.MaxSize is %d", bale.ErrTooLarge, m.Size, s.options.MaxSize)}
		}
		c := newChunkReader(ctx, s, key, m)
		if err := c.next(); err == nil || err == io.EOF {
			decoder, err := s.decoder(c)
			if err != nil {
				c.close()
				return nil, &bale.KeyError{Op: "get", Key: key, Err: err}
			}
			r := &Reader{streams: s, key: key, info: m.Info, decoder: decoder, chunks: c}
			r.lookAfter(ctx)
			return r, nil
		} else if c.close(); !errors.Is(err, ErrReplaced) || try == tries {
			return nil, &bale.KeyError{Op: "get", Key: key, Err: err}
		}
		ctx = adapters.FromMasters(ctx) // the manifest may be that of a replica
	}
}

// lookAgain is how often in a Grace a value is checked that is read all the time.
const lookAgain = 4

// lookAfter checks in the background whether the first or the last chunk would expire before its
// value. Then it mends all chunks. Retiring begins with the first one, mending ends with the last,
// and both may have been interrupted. A fail-over may bring back a value that was checked before.
// So each Streams checks it anew after a part of Grace, or once 1023 others have crowded it out.
func (r *Reader) lookAfter(ctx context.Context) {
	s, m := r.streams, r.chunks.Manifest
	ctx = adapters.FromMasters(ctx)
	l, ok := s.store.(aging)
	sum := frame.Checksum([]byte(m.Generation))
	seen := &s.seen[sum%uint32(len(s.seen))]
	now := uint64(sum)<<32 | uint64(uint32(time.Since(s.start)/max(s.options.Grace/lookAgain, time.Millisecond)))
	if !ok || m.Chunks == 0 || seen.Load() == now {
		return
	}
	r.mended.Go(func() {
		look, cancel := context.WithTimeout(ctx, lookTime) // Close waits for it
		defer cancel()
		chunk, err := lifetime(look, l, m.ChunkKey(r.key, 0), m.ChunkKey(r.key, m.Chunks-1))
		if err != nil {
			return
		}
		if chunk >= 0 {
			lives, err := lifetime(look, l, r.key)
			if err != nil {
				return
			}
			if shorter(chunk, lives) {
				if _, err := s.mend(ctx, r.key, &m, nil); err != nil {
					return // the next Reader tries again
				}
			}
		}
		seen.Store(now)
	})
}

func (s *Streams) decoder(source io.Reader) (*zstd.Decoder, error) {
	decoder, _ := s.decoders.Get().(*zstd.Decoder)
	if decoder == nil {
		var err error
		decoder, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
	}
	if err := decoder.Reset(source); err != nil {
		s.decoders.Put(decoder)
		return nil, err
	}
	return decoder, nil
}

// Info describes the value.
func (r *Reader) Info() Info { return r.info }

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.decoder.Read(p)
	r.read += int64(n)
	return r.verdict(n, err)
}

// verdict turns the decoder's result into the caller's: never more bytes than the value has, and an
// end only at its end.
func (r *Reader) verdict(n int, err error) (int, error) {
	if over := r.read - r.info.Size; over > 0 {
		n -= int(min(over, int64(n)))
		err = fmt.Errorf("%w: it is longer than the %d bytes that it says", bale.ErrCorrupt, r.info.Size)
	}
	switch {
	case err == nil:
		return n, nil
	case err == io.EOF && r.read == r.info.Size && r.chunks.ended():
		r.err = io.EOF
		r.tell(nil)
		return n, io.EOF
	case err == io.EOF:
		err = fmt.Errorf("%w: it ends after %d of %d bytes", bale.ErrCorrupt, r.read, r.info.Size)
	case r.chunks.err != nil && r.chunks.err != io.EOF:
		err = r.chunks.err // rather than what the decoder makes of it
	case !errors.Is(err, bale.ErrCorrupt):
		err = fmt.Errorf("%w: %w", bale.ErrCorrupt, err)
	}
	r.err = &bale.KeyError{Op: "get", Key: r.key, Err: err}
	r.tell(r.err)
	return n, r.err
}

// tell tells the Recorder, once.
func (r *Reader) tell(err error) {
	if !r.recorded {
		r.recorded = true
		r.streams.record(r.chunks.ctx, stats.Get, r.start, r.read, r.info.Stored, err)
	}
}

// WriteTo implements io.WriterTo, which spares io.Copy a buffer.
func (r *Reader) WriteTo(w io.Writer) (int64, error) {
	if r.err != nil {
		if r.err == io.EOF {
			return 0, nil
		}
		return 0, r.err
	}
	start := r.read
	c := counting{r, w, nil}
	_, err := r.decoder.WriteTo(&c)
	if c.err != nil {
		r.err = c.err // what the writer did not take is lost
		return r.read - start, c.err
	}
	if err == nil {
		err = io.EOF
	}
	if _, err = r.verdict(0, err); err == io.EOF {
		err = nil
	}
	return r.read - start, err
}

// counting is where a WriteTo goes: no more bytes than the value has.
type counting struct {
	r   *Reader
	w   io.Writer
	err error // the writer's own
}

func (c *counting) Write(p []byte) (int, error) {
	n := min(int64(len(p)), c.r.info.Size-c.r.read)
	written, err := c.w.Write(p[:n])
	c.err = err
	c.r.read += int64(written)
	if err == nil && int(n) < len(p) {
		c.r.read += int64(len(p)) - n // for the verdict
		err = bale.ErrCorrupt
	}
	return written, err
}

// Close ends reading. It is not needed for the value to have been verified. It waits for the check
// of the chunks' expiry, at most 2 s, and while chunks are mended. If Redis does not answer, that
// ends within a minute and a half.
func (r *Reader) Close() error {
	if r.decoder == nil {
		return nil
	}
	r.tell(nil)
	r.chunks.close()
	r.mended.Wait()
	_ = r.decoder.Reset(nil) // lets go of the chunks
	r.streams.decoders.Put(r.decoder)
	r.decoder = nil
	if r.err == nil {
		r.err = fmt.Errorf("stream: reader is closed: %w", os.ErrClosed)
	}
	return nil
}

// chunkReader reads the chunks of a value one after another, some of them ahead.
type chunkReader struct {
	*Streams
	Manifest
	key     string
	ctx     context.Context
	cancel  context.CancelFunc
	ahead   []chan fetched // of the chunks that are asked for, in order
	asked   int
	taken   int
	current bytes.Reader
	err     error
}

type fetched struct {
	content []byte
	err     error
}

func newChunkReader(ctx context.Context, s *Streams, key string, m Manifest) *chunkReader {
	c := &chunkReader{Streams: s, Manifest: m, key: key}
	c.ctx, c.cancel = context.WithCancel(ctx)
	return c
}

// close waits for the chunks that are on their way.
func (c *chunkReader) close() {
	c.cancel()
	for _, a := range c.ahead {
		<-a
	}
	c.ahead = nil
	c.current.Reset(nil)
}

// ended reports whether all has been read.
func (c *chunkReader) ended() bool { return c.taken == c.Chunks && c.current.Len() == 0 }

// next makes the next chunk the current one; io.EOF after the last.
func (c *chunkReader) next() error {
	if c.err == nil && c.taken == c.Chunks {
		c.err = io.EOF
	}
	if c.err != nil {
		return c.err
	}
	for c.asked < c.Chunks && len(c.ahead) < c.options.Parallel {
		i, a := c.asked, make(chan fetched, 1)
		c.ahead, c.asked = append(c.ahead, a), c.asked+1
		go func() {
			content, err := c.fetch(i)
			a <- fetched{content, err}
		}()
	}
	f := <-c.ahead[0]
	c.ahead = c.ahead[1:]
	if f.err != nil {
		c.err = f.err
		return f.err
	}
	c.taken++
	c.current.Reset(f.content)
	return nil
}

// fetch reads chunk i and verifies it.
func (c *chunkReader) fetch(i int) ([]byte, error) {
	stored, err := c.store.Get(c.ctx, c.ChunkKey(c.key, i))
	if errors.Is(err, bale.ErrNotFound) { // a replica may not have it yet
		stored, err = c.store.Get(adapters.FromMasters(c.ctx), c.ChunkKey(c.key, i))
	}
	if errors.Is(err, bale.ErrNotFound) {
		return nil, c.missing(i)
	}
	if err != nil {
		return nil, fmt.Errorf("chunk %d: %w", i, err)
	}
	h, offset, ok := frame.Parse(stored)
	content := stored[offset:]
	if !ok || h.Algorithm != frame.Stored || !h.HasChecksum || uint64(len(content)) != h.Length || frame.Checksum(content) != h.Checksum {
		return nil, fmt.Errorf("%w: chunk %d is damaged", bale.ErrCorrupt, i)
	}
	return content, nil
}

// missing returns the reason why a chunk is missing.
func (c *chunkReader) missing(i int) error {
	_, m, err := c.head(adapters.FromMasters(c.ctx), c.key)
	switch {
	case errors.Is(err, bale.ErrNotFound) || errors.Is(err, ErrNotStream) || err == nil && m.Generation != c.Generation:
		return ErrReplaced
	case err != nil:
		return fmt.Errorf("chunk %d is missing: %w", i, err)
	}
	return fmt.Errorf("%w: chunk %d is missing", bale.ErrCorrupt, i)
}

// Read implements io.Reader for the decoder.
func (c *chunkReader) Read(p []byte) (int, error) {
	for c.current.Len() == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	return c.current.Read(p)
}
