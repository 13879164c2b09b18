// Package stream keeps values in Redis that are too large for one key, or for memory. It compresses
// a value while it reads it and stores it as chunks, in bounded memory. Redis strings end at 512
// MB; a stream ends at 10 GiB unless [Options] says otherwise.
//
// [Streams.PutReader] writes a value, and [Streams.GetReader] reads it. A reader sees the old value
// or the new one, never a mixture. Each write uses new keys for its chunks. The key itself names
// the chunks of the value, so that one command replaces it. An interrupted write leaves the old
// value, whole. The new chunks expire, or the next write or deletion of the key retires them, or
// [Streams.Repair] does.
package stream

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/balekv/bale"
	balezstd "github.com/balekv/bale/compress/zstd"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/adapters"
	"github.com/balekv/bale/internal/bufpool"
	"github.com/balekv/bale/stats"
)

// Options are the settings of [Streams]; the zero value is useful.
type Options struct {
	// Chunk is the number of bytes of the compressed stream in a key. Defaults to 1 MiB; 64 KiB to
	// 64 MiB. Larger chunks need fewer commands, but each blocks the server longer.
	Chunk int

	// Level is that of package compress/zstd. Defaults to Default. Its window, within which
	// repetitions are found, is 8 MiB, for Fastest 4 MiB.
	Level balezstd.Level

	// MaxSize is the largest decompressed value in bytes for writing and reading. Defaults to 10
	// GiB.
	MaxSize int64

	// Lease is the lifetime of the chunks of an unfinished value: the remains of an interrupted
	// write expire after it. A write in progress renews it, even if the source is slow. Defaults to
	// 5 min; at least 1 s.
	Lease time.Duration

	// Grace is how long the chunks of a replaced or deleted value remain for its current readers.
	// It also is the time to mend the old value after a fail-over of its shard that lost the new
	// one. Defaults to 1 min; at least 1 ms.
	Grace time.Duration

	// Parallel is the number of chunks in flight, and of chunks read ahead. Defaults to 2; 1 to 16.
	// Each takes a chunk's memory.
	Parallel int

	// Recorder receives each PutReader as a stats.Set. It receives each Reader as a stats.Get when
	// the Reader ends or is closed. Their whole time counts as stats.Store. Nil for none.
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

	// cleanTime bounds each command that may outlive its caller's context, and the removal of the
	// chunks of a failed write as a whole.
	cleanTime = 30 * time.Second

	// lookTime bounds a Reader's check of its chunks' expiry.
	lookTime = 2 * time.Second

	// maxWindow is the largest window of a readable stream, in bytes. It is the maximum of the
	// levels here, and bounds a decoder's memory.
	maxWindow = 8 << 20
)

var (
	// ErrNotStream: the key holds a value that was not written by this package.
	ErrNotStream = errors.New("not a stream")

	// ErrBusy: as many writes and deletions of the key are in progress as its journal has room for.
	ErrBusy = errors.New("too many writes and deletions of the key are in progress")

	// ErrReplaced: the value was replaced or deleted while it was read, longer than Options.Grace
	// ago. The bytes read so far belong to the old value.
	ErrReplaced = errors.New("the value was replaced while it was read")

	// ErrLease: chunks were lost before the value was complete: the lease could not be renewed in
	// time, or Redis has evicted them.
	ErrLease = errors.New("chunks were lost before the value was complete")
)

// Info describes a stream.
type Info struct {
	Size   int64 // bytes of the value
	Stored int64 // bytes of all chunks
	Chunks int
}

// Streams keeps large values in a bale.Store. Make it with [New]; it is safe for concurrent use.
//
// All chunks of a value are one Zstandard stream (RFC 8878). Without their headers (package frame)
// and concatenated, they are input for the zstd tool.
type Streams struct {
	store    bale.Store
	options  Options
	encoders sync.Pool // *zstd.Encoder
	decoders sync.Pool // *zstd.Decoder
	buffers  sync.Pool // *[]byte, of a chunk and its header

	start time.Time
	seen  [1024]atomic.Uint64 // checksums of generations whose chunks' expiry was checked, and when
}

// New makes Streams. The store stays the caller's. An option out of range is bale.ErrInvalid.
//
// Writers, deletions and Repair read from masters. Readers may read from replicas, and ask the
// master for a missing chunk. The adapters see to that; for your own Store see [bale.Store].
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
	case int(o.Level) >= len(levels):
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
	return &Streams{store: store, options: o, start: time.Now()}, nil
}

// PutReader stores the source up to its end, and returns the Info of the new value. The calling
// goroutine reads the source. The old value of the key stays until the new one is complete.
//
// On an error the key holds the old value, with two exceptions. If the swap of the key gets no
// answer, the key holds the old value or the new one, whole. If Redis fails just after the swap,
// the key holds the new value, and the error says that its chunks may expire: write it again, or
// call Repair. The work after the swap does not end with the context. After the context's end,
// PutReader retires chunks of the old value for at most 30 s; the journal has the rest. If Redis
// does not answer, it ends at the latest a minute and a half after the context.
//
// If bale cannot have written the manifest in the key, the error is ErrCorrupt, and the key stays
// as it is. A key that ends in ":bale:journal" is bale.ErrInvalid: it may be another stream's
// journal.
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
	if strings.HasSuffix(key, journalSuffix) {
		return Info{}, fmt.Errorf("%w: a key must not end in %q: it may be another stream's journal", bale.ErrInvalid, journalSuffix)
	}
	return s.newWriter(adapters.FromMasters(ctx), key).put(source, e)
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

// Delete removes a value and reports whether there was one. Its chunks remain for the grace period.
// The work after the key is gone continues for at most 30 s after the context's end. If it fails,
// Delete returns true and the error: Delete it again, or Repair it, to retire the chunks. If the
// client lost an answer and sent its command again, Delete may return false for a value that it
// removed. If Redis does not answer, it ends at the latest a minute and a half after the context.
func (s *Streams) Delete(ctx context.Context, key string) (bool, error) {
	is, err := s.delete(ctx, key)
	if err != nil {
		err = &bale.KeyError{Op: "delete", Key: key, Err: err}
	}
	return is, err
}

func (s *Streams) delete(ctx context.Context, key string) (is bool, err error) {
	ctx = adapters.FromMasters(ctx)
	stored, old, err := s.head(ctx, key)
	if errors.Is(err, bale.ErrNotFound) {
		unfinished, err := s.journalBytes(ctx, key)
		if err == nil {
			_, err = s.sweep(ctx, key, unfinished)
		}
		return false, err
	}
	if err != nil {
		return false, err
	}
	i, err := s.announce(ctx, key, entry{id: rand.Text(), old: old.Generation, oldChunks: old.Chunks}, false)
	detached := context.WithoutCancel(ctx)
	for err == nil {
		if err = i.confirm(ctx, &old); err == nil {
			err = ctx.Err()
		}
		if err != nil {
			break
		}
		var perhaps bool
		if is, perhaps, err = s.replace(detached, key, stored, nil, "", 0); perhaps {
			i.stop()
			return false, err
		}
		if _, err = s.retireOld(ctx, key, &old); err != nil {
			i.stop()
			_ = i.die(detached) // the next sweeper need not wait
			return is, fmt.Errorf("the value is gone, but not its chunks: %w", err)
		}
		if is {
			break
		}
		if stored, old, err = s.head(ctx, key); errors.Is(err, bale.ErrNotFound) {
			err = nil
			break
		}
	}
	_ = i.withdraw(detached) // a sweeper removes the rest
	return is, err
}

// replace swaps the value of a key. If the swap fails, and the key does not show that it was done,
// perhaps is true: the server may have done it, or may do it yet.
//
// Clients send a command again if its answer was lost. So done may be false although the first try
// was done: the key was changed again before the second one. The old value is replaced either way.
func (s *Streams) replace(detached context.Context, key string, old, value []byte, generation string, ttl time.Duration) (done, perhaps bool, err error) {
	// After a lease without a sign of life a sweeper may act: the swap must not be sent so late.
	ctx, cancel := context.WithTimeout(detached, min(cleanTime, s.options.Lease/2))
	defer cancel()
	if done, err = s.store.Swap(ctx, key, old, value, ttl); err == nil {
		return done, false, nil
	}
	ctx, cancel = context.WithTimeout(detached, cleanTime)
	defer cancel()
	_, m, headErr := s.head(ctx, key)
	if value == nil && errors.Is(headErr, bale.ErrNotFound) || value != nil && headErr == nil && m.Generation == generation {
		return true, false, nil
	}
	return false, true, err
}

// Stat returns the Info of a key's value without reading the value.
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

// head reads the value of the key itself.
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

// lookPage is how many chunks are looked for before retire believes that there are no more.
const lookPage = 32

// retire makes the chunks of a replaced value expire. Missing chunks are fine. It ends cleanTime
// after the context; the journal lists the remaining chunks.
//
// The number of chunks may be forged. So retire ends at a page of chunks that are all missing. If
// that is the first page, an earlier retire may have failed half-way, and its chunks have expired.
// Then the last chunk is there, and a binary search finds the first one.
func (s *Streams) retire(ctx context.Context, key string, m *Manifest, after time.Duration) error {
	detached, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(cleanTime, cancel) })()
	touch := func(ctx context.Context, i int) (bool, error) {
		return s.touch(ctx, m.ChunkKey(key, i), bale.TTL(after))
	}
	for start, searched := 0, false; start < m.Chunks; {
		var found atomic.Bool
		err := s.each(detached, min(lookPage, m.Chunks-start), func(ctx context.Context, i int) error {
			ok, err := touch(ctx, start+i)
			if ok {
				found.Store(true)
			}
			return err
		})
		switch {
		case err != nil:
			return err
		case found.Load():
			start += lookPage
			continue
		case searched || start > 0:
			return nil
		}
		searched = true
		if ok, err := touch(detached, m.Chunks-1); err != nil || !ok {
			return err
		}
		for end := m.Chunks - 1; start < end; {
			middle := (start + end) / 2
			ok, err := touch(detached, middle)
			switch {
			case err != nil:
				return err
			case ok:
				end = middle
			default:
				start = middle + 1
			}
		}
	}
	return nil
}

// retireOld retires a value that the key no longer points to. Its writer may put it back: its swap
// was done, the answer was lost, and it swaps again. So retireOld reads the key after that, and
// mends the value if it is there. See restore for keep.
func (s *Streams) retireOld(ctx context.Context, key string, m *Manifest) (keep bool, err error) {
	if err = s.retire(ctx, key, m, s.options.Grace); err != nil || m.Chunks == 0 {
		return false, err
	}
	return s.restore(context.WithoutCancel(ctx), key, m.Generation)
}

// beyond returns the expiry of chunks whose key lives that long. Like the key's it is relative: the
// server's clock may be ahead of this one.
func (s *Streams) beyond(lives time.Duration) bale.Expiry {
	return bale.TTL(min(max(lives, 0), math.MaxInt64-s.options.Grace) + s.options.Grace)
}

// touch sets an expiry, within cleanTime.
func (s *Streams) touch(ctx context.Context, key string, e bale.Expiry) (bool, error) {
	return timely(ctx, func(ctx context.Context) (bool, error) { return s.store.Touch(ctx, key, e) })
}

// get reads a key of the journal, within cleanTime.
func (s *Streams) get(ctx context.Context, key string) ([]byte, error) {
	return timely(ctx, func(ctx context.Context) ([]byte, error) { return s.store.Get(ctx, key) })
}

// timely gives a command cleanTime. A client may send it again as long as its context lasts.
func timely[T any](ctx context.Context, command func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, cleanTime)
	defer cancel()
	return command(ctx)
}

// writer is a PutReader in progress: an io.Writer of the compressed stream.
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
		_ = w.clean() // they have the lease
		return w.manifest.Info, err
	}
	return w.manifest.Info, w.commit(e)
}

// renew renews the lease of the chunks three times per lease.
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
			if err := w.extend(w.ctx, w.touch, func() bale.Expiry { return bale.TTL(w.options.Lease) }); err != nil {
				w.cancel(err)
			}
		}
	}
}

// extend sets the expiry of the chunks that have arrived. A missing one is ErrLease.
func (w *writer) extend(ctx context.Context, touch func(context.Context, string, bale.Expiry) (bool, error), e func() bale.Expiry) error {
	return w.each(ctx, int(w.arrived.Load()), func(ctx context.Context, i int) error {
		ok, err := touch(ctx, w.manifest.ChunkKey(w.key, i), e())
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
			zstd.WithEncoderLevel(levels[w.options.Level].encoder), zstd.WithWindowSize(levels[w.options.Level].window), zstd.WithLowerEncoderMem(true))
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

// levels have the library's level, and its window in bytes, up to maxWindow.
var levels = [...]struct {
	encoder zstd.EncoderLevel
	window  int
}{
	balezstd.Default: {zstd.SpeedDefault, maxWindow},
	balezstd.Fastest: {zstd.SpeedFastest, 4 << 20},
	balezstd.Better:  {zstd.SpeedBetterCompression, maxWindow},
	balezstd.Best:    {zstd.SpeedBestCompression, maxWindow},
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

// headRoom is the maximum size of a chunk's header.
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

// flush sends the buffered bytes as a chunk.
func (w *writer) flush() error {
	if w.buffer == nil {
		return nil
	}
	select {
	case w.slots <- struct{}{}:
	case <-w.ctx.Done():
		return context.Cause(w.ctx)
	}
	if w.manifest.Chunks == maxChunks {
		return fmt.Errorf("%w: a stream has at most %d chunks: raise Options.Chunk", bale.ErrTooLarge, maxChunks)
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
	if ms, absolute := e.Millis(); ms > 0 {
		if end = time.Now().Add(time.Duration(ms) * time.Millisecond); absolute {
			end = time.UnixMilli(ms)
		}
	}
	lasting := func() bale.Expiry {
		if end.IsZero() {
			return bale.NoExpiry()
		}
		return w.beyond(time.Until(end))
	}
	stored, old, err := w.replaced(w.ctx, w.key)
	if err != nil {
		_ = w.clean() // they have the lease
		return err
	}
	mine := entry{id: w.manifest.Generation, chunks: w.manifest.Chunks, old: old.Generation, oldChunks: old.Chunks}
	if old.Chunks == 0 && !end.IsZero() {
		mine.end = end.Add(w.options.Grace).UnixMilli()
	}
	i, err := w.announce(w.ctx, w.key, mine, false)
	if err == nil {
		err = w.extend(w.ctx, i.lasts, lasting)
	}
	detached := context.WithoutCancel(w.ctx)
	head := w.manifest.append(nil)
	again := false
	for err == nil { // while other writers are there first; the last one wins
		if err = i.confirm(w.ctx, &old); err == nil {
			err = context.Cause(w.ctx)
		}
		if err != nil {
			break
		}
		ttl := time.Duration(0)
		if !end.IsZero() {
			ttl = max(time.Until(end), time.Millisecond)
		}
		var swapped, perhaps bool
		if swapped, perhaps, err = w.replace(detached, w.key, stored, head, w.manifest.Generation, ttl); perhaps {
			i.stop() // chunks and entry stay: a sweeper decides by the key
			return err
		}
		if swapped {
			break
		}
		// The first try may have been done. Then another program has retired these chunks, and no
		// other entry names the old value.
		again = true
		if _, err = w.retireOld(w.ctx, w.key, &old); err != nil {
			i.stop()
			return err
		}
		if err = w.extend(w.ctx, i.lasts, lasting); err == nil {
			stored, old, err = w.replaced(w.ctx, w.key)
		}
	}
	if err != nil {
		if w.clean() == nil {
			_ = i.withdraw(detached) // a sweeper removes the rest
		} else {
			i.stop()
		}
		return err
	}
	return w.settle(detached, i, &old, lasting, again)
}

// settle tidies up after the swap. If it fails the entry stays, for a sweeper: the value is stored,
// so that is no error. With again, another program may have retired the chunks.
func (w *writer) settle(ctx context.Context, i *intent, old *Manifest, lasting func() bale.Expiry, again bool) error {
	marked := i.confirm(ctx, old)
	var err error
	switch {
	case errors.Is(marked, ErrLease) || again || old.Generation == "" && w.retired(ctx):
		_, err = w.mend(ctx, w.key, &w.manifest, lasting) // unless it has been replaced since
	case marked != nil: // perhaps
		err = w.extend(ctx, i.lasts, lasting)
	}
	if err != nil {
		i.stop()
		return fmt.Errorf("the value is there, but its chunks may expire: %w", err)
	}
	if keep, err := w.retireOld(w.ctx, w.key, old); err == nil && !keep && marked == nil {
		_ = i.withdraw(ctx)
	} else {
		i.stop() // a sweeper may still be at work: if it dies, the next one needs the entry
	}
	return nil
}

// retired reports whether the first chunk expires before the key. A swap that creates the key may
// be done twice: the answer was lost, and a deletion retired the chunks before the second try. One
// chunk is enough: a deletion that is still at work finds the value in the end, and mends it.
func (w *writer) retired(ctx context.Context) bool {
	l, ok := w.store.(aging)
	if !ok || w.manifest.Chunks == 0 {
		return false
	}
	chunk, err := lifetime(ctx, l, w.manifest.ChunkKey(w.key, 0))
	if err != nil || chunk < 0 {
		return false
	}
	lives, err := lifetime(ctx, l, w.key)
	return err == nil && shorter(chunk, lives)
}

// clean removes the chunks of a value that did not come to be.
func (w *writer) clean() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), cleanTime)
	defer cancel()
	return w.each(ctx, w.manifest.Chunks, func(ctx context.Context, i int) error {
		_, err := w.store.Delete(ctx, []string{w.manifest.ChunkKey(w.key, i)})
		return err
	})
}
