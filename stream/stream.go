// Package stream keeps values in Redis that are too large for one key, or for memory: a value is compressed while it is read and stored as chunks, in memory
// that does not grow with it. Redis strings end at 512 MB; a stream at 10 GiB unless [Options] says otherwise.
//
// [Streams.PutReader] writes a value, and [Streams.GetReader] reads it. A reader sees the old value or the new one, never a mixture: chunks are written under new
// keys each time, and the key itself says which belong to the value, so that one command changes it. A write that ends half-way leaves the old value; its chunks expire.
//
// The chunks of all a value are one Zstandard stream (RFC 8878): put together without their headers (package frame) they are what the zstd tool reads.
package stream

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/balekv/bale"
	balezstd "github.com/balekv/bale/compress/zstd"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/bufpool"
	"github.com/balekv/bale/stats"
)

// Options are the settings of [Streams]; the zero value is useful.
type Options struct {
	// Chunk is how many bytes of the compressed stream a key holds. Defaults to 1 MiB; 64 KiB to 64 MiB. Larger ones are
	// fewer commands and hold the server, which does one thing at a time, longer.
	Chunk int

	// Level is that of package compress/zstd. Defaults to Fastest. Higher levels have larger windows, and find what is alike further apart: 4 MiB, 8, 8 and 8.
	Level balezstd.Level

	// MaxSize is the largest value in bytes that is written or read, decompressed. Defaults to 10 GiB.
	MaxSize int64

	// Lease is how long the chunks of an unfinished value live: what an interrupted write leaves is gone after it. It is renewed while the write goes on, however slowly
	// the source gives its bytes. Defaults to 5 min; at least 1 s.
	Lease time.Duration

	// Grace is how long the chunks of a value that was replaced or deleted live on for those who are reading it. Defaults to 1 min; at least 1 ms.
	Grace time.Duration

	// Parallel is how many chunks are on their way at a time, and how many are read ahead. Defaults to 2; 1 to 16. Each holds a chunk's memory.
	Parallel int

	// Recorder is told of each PutReader as stats.Set, and of each Reader as stats.Get when it has come to its end or is closed; the time of all is that of
	// stats.Store. Nil for none.
	Recorder stats.Recorder
}

const (
	defaultChunk    = 1 << 20
	minChunk        = 64 << 10
	maxChunk        = 64 << 20
	defaultMaxSize  = 10 << 30
	defaultLease    = 5 * time.Minute
	minLease        = time.Second
	defaultGrace    = time.Minute
	defaultParallel = 2
	maxParallel     = 16

	// cleanTime is how long chunks are removed, or given an end, after the context of their caller has ended.
	cleanTime = 30 * time.Second

	// maxWindow is the largest window of a stream that is read, in bytes: what the levels here need at most. It bounds a decoder's memory.
	maxWindow = 8 << 20
)

var (
	// ErrNotStream: the key holds a value that was not written by this package.
	ErrNotStream = errors.New("not a stream")

	// ErrReplaced: the value was replaced or deleted while it was read, longer than Options.Grace ago. What was read so far is of the old value.
	ErrReplaced = errors.New("the value was replaced while it was read")

	// ErrLease: chunks were lost before the value was complete: the lease could not be renewed in time, or Redis has evicted them.
	ErrLease = errors.New("chunks were lost before the value was complete")
)

// Info says what a stream is.
type Info struct {
	Size   int64 // bytes of the value
	Stored int64 // bytes of all chunks
	Chunks int
}

// Streams keeps large values in a bale.Store. Make it with [New]; it is safe for concurrent use.
type Streams struct {
	store    bale.Store
	options  Options
	encoders sync.Pool // *zstd.Encoder
	decoders sync.Pool // *zstd.Decoder
	buffers  sync.Pool // *[]byte, of a chunk and its header
}

// New makes Streams. The store stays the caller's.
func New(store bale.Store, o Options) (*Streams, error) {
	if o.Chunk == 0 {
		o.Chunk = defaultChunk
	}
	if o.MaxSize == 0 {
		o.MaxSize = defaultMaxSize
	}
	if o.Lease == 0 {
		o.Lease = defaultLease
	}
	if o.Grace == 0 {
		o.Grace = defaultGrace
	}
	if o.Parallel == 0 {
		o.Parallel = defaultParallel
	}
	switch {
	case store == nil:
		return nil, fmt.Errorf("stream: %w: no Store", bale.ErrInvalid)
	case o.Chunk < minChunk || o.Chunk > maxChunk:
		return nil, fmt.Errorf("stream: %w: Chunk is %d, must be %d to %d, or 0 for %d", bale.ErrInvalid, o.Chunk, minChunk, maxChunk, defaultChunk)
	case o.Level > balezstd.Best:
		return nil, fmt.Errorf("stream: %w: no Level %d", bale.ErrInvalid, o.Level)
	case o.MaxSize < 0:
		return nil, fmt.Errorf("stream: %w: MaxSize is %d, must not be negative", bale.ErrInvalid, o.MaxSize)
	case o.Lease < minLease:
		return nil, fmt.Errorf("stream: %w: Lease is %v, must be at least %v, or 0 for %v", bale.ErrInvalid, o.Lease, minLease, defaultLease)
	case o.Grace < time.Millisecond:
		return nil, fmt.Errorf("stream: %w: Grace is %v, must be at least 1ms, or 0 for %v", bale.ErrInvalid, o.Grace, defaultGrace)
	case o.Parallel < 1 || o.Parallel > maxParallel:
		return nil, fmt.Errorf("stream: %w: Parallel is %d, must be 1 to %d, or 0 for %d", bale.ErrInvalid, o.Parallel, maxParallel, defaultParallel)
	}
	return &Streams{store: store, options: o}, nil
}

// PutReader stores what the source gives until its end, and returns what that was. The old value of the key stays until all is there. The source is
// read by the calling goroutine.
//
// On an error the key is as it was, unless the store fails in the very end, when it is to change the key: nobody can say then whether it did. The new value is there for the
// lease, or the old one as before.
func (s *Streams) PutReader(ctx context.Context, key string, source io.Reader, e bale.Expiry) (Info, error) {
	start := time.Now()
	info, err := s.put(ctx, key, source, e)
	if err != nil {
		info, err = Info{}, &bale.KeyError{Op: "put", Key: key, Err: err}
	}
	s.record(ctx, stats.Set, start, info.Size, info.Stored, err)
	return info, err
}

func (s *Streams) put(ctx context.Context, key string, source io.Reader, e bale.Expiry) (Info, error) {
	if err := e.Validate(); err != nil {
		return Info{}, err
	}
	return s.newWriter(ctx, key).put(source, e)
}

// record tells the Recorder of a value that was written or read.
func (s *Streams) record(ctx context.Context, op stats.Op, start time.Time, size, stored int64, err error) {
	if s.options.Recorder == nil {
		return
	}
	e := stats.Event{Op: op, Keys: 1, Algorithm: frame.Zstd, Plain: int(size), Stored: int(stored), Timed: true}
	e.Times[stats.Store] = time.Since(start)
	switch {
	case errors.Is(err, bale.ErrNotFound):
		e.Misses = 1
	case err != nil:
		e.Class, e.Errors = bale.ErrorClass(err), 1
	case op == stats.Get:
		e.Hits = 1
	}
	s.options.Recorder.Record(ctx, e)
}

// Delete removes a value and reports whether there was one. Its chunks live on for the grace period.
func (s *Streams) Delete(ctx context.Context, key string) (bool, error) {
	for {
		old, m, err := s.head(ctx, key)
		switch {
		case errors.Is(err, bale.ErrNotFound):
			return false, nil
		case err != nil:
			return false, &bale.KeyError{Op: "delete", Key: key, Err: err}
		}
		ok, err := s.store.Swap(ctx, key, old, nil, 0)
		if err != nil {
			return false, &bale.KeyError{Op: "delete", Key: key, Err: err}
		}
		if ok {
			if err = s.retire(ctx, key, &m, s.options.Grace); err != nil {
				err = &bale.KeyError{Op: "delete", Key: key, Err: fmt.Errorf("it is deleted, but not its chunks: %w", err)}
			}
			return true, err
		}
	}
}

// Stat says what the value of a key is, without reading it.
func (s *Streams) Stat(ctx context.Context, key string) (Info, error) {
	_, m, err := s.head(ctx, key)
	if err != nil {
		return Info{}, notFound("stat", key, err)
	}
	return m.Info, nil
}

// notFound leaves ErrNotFound as it is, as bale.Cache does.
func notFound(op, key string, err error) error {
	if errors.Is(err, bale.ErrNotFound) {
		return bale.ErrNotFound
	}
	return &bale.KeyError{Op: op, Key: key, Err: err}
}

// head reads what the key holds.
func (s *Streams) head(ctx context.Context, key string) (stored []byte, m Manifest, err error) {
	if stored, err = s.store.Get(ctx, key); err != nil {
		return nil, m, err
	}
	m, err = ParseManifest(stored)
	return stored, m, err
}

// each calls do for 0 to n-1, some at a time, until one fails.
func (s *Streams) each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next sync.Mutex
	i := 0
	var wg sync.WaitGroup
	for range min(n, s.options.Parallel) {
		wg.Go(func() {
			for ctx.Err() == nil {
				next.Lock()
				mine := i
				i++
				next.Unlock()
				if mine >= n {
					return
				}
				if err := do(ctx, mine); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// retire lets the chunks of a value that is no longer the key's expire, after the grace period; those that are gone already are none of its business. It
// goes on when the context of its caller ends, who has what he wanted.
func (s *Streams) retire(ctx context.Context, key string, m *Manifest, after time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
	defer cancel()
	return s.each(ctx, m.Chunks, func(ctx context.Context, i int) error {
		_, err := s.store.Touch(ctx, m.ChunkKey(key, i), bale.TTL(after))
		return err
	})
}

// writer is a PutReader under way: an io.Writer of the compressed stream.
type writer struct {
	*Streams
	ctx      context.Context
	cancel   context.CancelCauseFunc
	key      string
	manifest Manifest // of what was sent or is on its way
	buffer   []byte   // the chunk that fills: room for a header, and then the bytes so far
	slots    chan struct{}
	sending  sync.WaitGroup

	arrived  atomic.Int64  // how many of the first chunks are there
	last     chan struct{} // closed when the chunk that was sent last and all before it are
	leasing  chan struct{} // closed when renewing has ended
	finished chan struct{} // closed to end it
}

func (s *Streams) newWriter(ctx context.Context, key string) *writer {
	w := &writer{Streams: s, key: key, manifest: Manifest{Generation: rand.Text()}, slots: make(chan struct{}, s.options.Parallel), leasing: make(chan struct{}), finished: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	go w.renew()
	return w
}

func (w *writer) put(source io.Reader, e bale.Expiry) (info Info, err error) {
	defer w.cancel(nil)
	w.manifest.Size, err = w.compress(source)
	if err == nil {
		err = w.flush()
	}
	w.sending.Wait()
	close(w.finished)
	<-w.leasing
	if cause := context.Cause(w.ctx); cause != nil {
		err = cause // of a chunk that failed, rather than what the encoder makes of it
	}
	if err != nil {
		w.clean()
		return w.manifest.Info, err
	}
	return w.manifest.Info, w.commit(e)
}

// renew gives the chunks their lease anew, three times as often as it runs out.
func (w *writer) renew() {
	defer close(w.leasing)
	ticker := time.NewTicker(w.options.Lease / 3)
	defer ticker.Stop()
	for {
		select {
		case <-w.finished:
			return
		case <-w.ctx.Done():
			return
		case <-ticker.C:
			if err := w.extend(int(w.arrived.Load()), bale.TTL(w.options.Lease)); err != nil {
				w.cancel(err)
			}
		}
	}
}

// extend gives the first chunks another expiry. One that is not there is an error.
func (w *writer) extend(chunks int, e bale.Expiry) error {
	return w.each(w.ctx, chunks, func(ctx context.Context, i int) error {
		ok, err := w.store.Touch(ctx, w.manifest.ChunkKey(w.key, i), e)
		if err == nil && !ok {
			err = ErrLease
		}
		return err
	})
}

// compress takes the source through an encoder.
func (w *writer) compress(source io.Reader) (size int64, err error) {
	encoder, _ := w.encoders.Get().(*zstd.Encoder)
	if encoder == nil {
		encoder, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(true),
			zstd.WithEncoderLevel(zstd.SpeedFastest+zstd.EncoderLevel(w.options.Level)), zstd.WithWindowSize(window(w.options.Level)), zstd.WithLowerEncoderMem(true))
		if err != nil {
			return 0, err
		}
	}
	defer func() {
		encoder.Reset(nil)
		w.encoders.Put(encoder)
	}()
	encoder.Reset(w)
	if size, err = encoder.ReadFrom(&limited{w.ctx, source, w.options.MaxSize}); err != nil {
		return size, err
	}
	return size, encoder.Close() // a stream that is not closed has not written all
}

// window is that of a level in bytes, the library's own where that is not larger than maxWindow.
func window(l balezstd.Level) int {
	if l == balezstd.Fastest {
		return 4 << 20
	}
	return maxWindow
}

// limited is a source that ends with its context, and fails beyond a number of bytes.
type limited struct {
	ctx    context.Context
	source io.Reader
	left   int64
}

func (l *limited) Read(p []byte) (int, error) {
	if l.ctx.Err() != nil {
		return 0, context.Cause(l.ctx)
	}
	n, err := l.source.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return n, fmt.Errorf("%w: the source has more than Options.MaxSize bytes", bale.ErrTooLarge)
	}
	return n, err
}

// headRoom is what the header of a chunk takes at most.
const headRoom = frame.MaxHeaderSize

// Write takes bytes of the compressed stream.
func (w *writer) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if w.buffer == nil {
			if b, _ := w.buffers.Get().(*[]byte); b != nil {
				w.buffer = (*b)[:headRoom]
			} else {
				w.buffer = make([]byte, headRoom, headRoom+w.options.Chunk)
			}
		}
		take := min(len(p), headRoom+w.options.Chunk-len(w.buffer))
		w.buffer, p = append(w.buffer, p[:take]...), p[take:]
		if len(w.buffer) == headRoom+w.options.Chunk {
			if err := w.flush(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

// flush sends what there is as a chunk.
func (w *writer) flush() error {
	if w.buffer == nil {
		return nil
	}
	select {
	case w.slots <- struct{}{}:
	case <-w.ctx.Done():
		return context.Cause(w.ctx)
	}
	buffer := w.buffer
	key := w.manifest.ChunkKey(w.key, w.manifest.Chunks)
	w.buffer = nil
	chunk := seal(buffer)
	w.manifest.Chunks++
	w.manifest.Stored += int64(len(chunk))
	before := w.last
	sent := make(chan struct{})
	w.last = sent
	w.sending.Go(func() {
		if err := w.store.Set(w.ctx, key, chunk, bale.TTL(w.options.Lease)); err != nil {
			w.cancel(fmt.Errorf("chunk: %w", err))
		}
		bufpool.Poison(buffer)
		w.buffers.Put(&buffer)
		<-w.slots
		if before != nil {
			<-before // so that arrived are the first ones
		}
		w.arrived.Add(1)
		close(sent)
	})
	return nil
}

// seal puts a header before the bytes of a chunk: that of a stored value.
func seal(buffer []byte) []byte {
	content := buffer[headRoom:]
	h := frame.Header{Algorithm: frame.Stored, HasChecksum: true, Checksum: frame.Checksum(content), Length: uint64(len(content))}
	start := headRoom - h.PayloadOffset()
	h.Append(buffer[:start])
	return buffer[start:]
}

// commit makes the chunks the value of the key.
func (w *writer) commit(e bale.Expiry) error {
	// The end is one moment, however long the following takes.
	var end time.Time
	lasting := bale.TTL(w.options.Lease) // of chunks that never expire, until the key is theirs: else they would stay if this ends in between
	if ms, absolute := e.Millis(); ms > 0 {
		if end = time.Now().Add(time.Duration(ms) * time.Millisecond); absolute {
			end = time.UnixMilli(ms)
		}
		lasting = bale.ExpireAt(end.Add(w.options.Grace))
	}
	if err := w.extend(w.manifest.Chunks, lasting); err != nil {
		w.clean()
		return err
	}
	head := w.manifest.append(nil)
	var old Manifest
	for swapped := false; !swapped; { // while other writers are there first; the last one wins
		stored, m, err := w.head(w.ctx, w.key)
		if err != nil && !errors.Is(err, bale.ErrNotFound) && !errors.Is(err, ErrNotStream) {
			w.clean()
			return err
		}
		ttl := time.Duration(0)
		if !end.IsZero() {
			ttl = max(time.Until(end), time.Millisecond)
		}
		if swapped, err = w.store.Swap(w.ctx, w.key, stored, head, ttl); err != nil {
			// Perhaps it was done, or will be: the chunks stay for a while.
			_ = w.retire(w.ctx, w.key, &w.manifest, w.options.Lease)
			return err
		}
		old = m
	}
	if old.Chunks > 0 && old.Generation != w.manifest.Generation {
		defer func() { _ = w.retire(w.ctx, w.key, &old, w.options.Grace) }() // the value is there; nobody is helped by an error
	}
	if !end.IsZero() {
		return nil
	}
	err := w.extend(w.manifest.Chunks, bale.Expiry{Never: true})
	// Another writer may have replaced the value before, and its word on these chunks is undone now, or has come true already.
	_, now, headErr := w.head(context.WithoutCancel(w.ctx), w.key)
	switch {
	case headErr == nil && now.Generation != w.manifest.Generation || errors.Is(headErr, bale.ErrNotFound) || errors.Is(headErr, ErrNotStream):
		_ = w.retire(w.ctx, w.key, &w.manifest, w.options.Grace)
	case err != nil:
		return fmt.Errorf("the value is there, but its chunks may expire: %w", err)
	}
	return nil
}

// clean removes the chunks of a value that did not come to be.
func (w *writer) clean() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), cleanTime)
	defer cancel()
	_ = w.each(ctx, w.manifest.Chunks, func(ctx context.Context, i int) error {
		_, err := w.store.Delete(ctx, []string{w.manifest.ChunkKey(w.key, i)})
		return err
	})
}
