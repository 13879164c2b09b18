// Package near keeps decoded values in the process, in front of a bale.Cache. A hit costs tens of
// nanoseconds, without a round trip, decompression or decoding.
//
// [New] puts a [Cache] before a bale.Cache. [Options] bound its memory and the age of its values.
// With [Invalidations] (package github.com/balekv/bale/adapter/rueidis has them) the server reports
// changed keys, whoever changed them, and near drops them at once. Without, values are kept for a
// second. All callers share one value: with Options.Clone each gets its own copy.
package near

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
	"github.com/maypok86/otter/v2/stats"

	"github.com/balekv/bale"
	"github.com/balekv/bale/codec"
)

const (
	defaultMaxBytes    = 64 << 20
	minMaxBytes        = 64 << 10
	defaultMaxAge      = time.Second
	defaultListeningMA = time.Minute // with Invalidations
	largestPart        = 16          // a single value takes at most this part of MaxBytes
	largestEntry       = 1 << 30     // and at most this
	shards             = 256         // locks; taken for misses and changes alone
	listenAgain        = time.Second // after Listen has failed
	resolution         = time.Second // of the clock by which memory is freed
)

// Options are the settings of a [Cache]; the zero value is useful.
type Options[T any] struct {
	// MaxBytes bounds the memory of all kept values in bytes, with their keys and the overhead of
	// the cache. It is never exceeded, as Size counts. A value above a 16th of it, or above 1 GiB,
	// is not kept. Default 64 MiB; at least 64 KiB.
	MaxBytes int64

	// MaxAge is how long a value is kept at most, counted from before Redis was asked for it. It
	// bounds how long an outdated value can be served if Invalidations do not report the change:
	// there are none, or their connection is lost. Default 1 s, or 1 min with Invalidations. For
	// keys that they do not cover it is at most 1 s.
	MaxAge time.Duration

	// Size returns the memory of a decoded value in bytes. It is called once for each kept value.
	// The default is an estimate by reflection. It follows pointers. It does not keep values of more
	// than a million parts or 100 levels, nor values that point to something with a sync.Mutex or
	// sync.RWMutex, which others may change. It does not count the location of a time. One that is
	// decoded from an offset with minutes, such as +05:30, has its own of some 160 bytes.
	Size func(key string, v T) int

	// Clone makes a caller's copy. Default none: all callers share the kept value, and must not
	// change the memory behind it (slices, maps, pointers).
	Clone func(T) T

	// Invalidations report changes in Redis. Default none.
	Invalidations Invalidations

	// Log receives an entry when Invalidations fail. Default none.
	Log *slog.Logger
}

// Invalidations report changed keys. An implementation is safe for concurrent use, and can serve
// several caches.
type Invalidations interface {
	// Listen calls changed with keys that have changed, expired or been deleted, also by this
	// program. It calls changed with nil when any key may have changed. This is the case after the
	// start, after a lost connection, after a reconnect, and when the server was emptied. After the
	// start it misses nothing. Calls may come from several goroutines at once. changed never
	// blocks, and keeps no reference to keys. Listen reconnects by itself. It returns the context's
	// error when ctx ends, or the error that makes listening impossible. It does not call changed
	// after that.
	Listen(ctx context.Context, changed func(keys []string)) error

	// Covers reports whether Listen reports changes of a key.
	Covers(key string) bool
}

// Stats counts the work of a [Cache].
type Stats struct {
	Hits          uint64 // values that were kept
	Misses        uint64 // values that were not, or too old; several calls that wait for one reading are all counted
	Bytes         int64  // that the kept values take
	Entries       int    // kept values
	Evictions     uint64 // values that were dropped to make room
	TooLarge      uint64 // values that were not kept because they take more than a 16th of MaxBytes, or 1 GiB
	Invalidations uint64 // keys that were said to have changed, kept or not
	Resets        uint64 // times that any key may have changed, and all was dropped
}

// Cache is a bale.Cache that keeps decoded values in the process. Make one with [New]; it is safe
// for concurrent use. Invalidations report writes to Redis past the Cache, by the same process or
// others. Without them, such a write shows after MaxAge.
//
// A value is not served after its expiry, nor a cached miss (LoadOptions.NegativeTTL) after its
// own. The values of GetOrLoad carry their expiry. If Touch or EXPIRE has given such a value an
// earlier one, it may be served until MaxAge. For other values near asks the Store, if it has a
// method PTTL, as the adapters have. Without that method they may be served until MaxAge. A value
// whose PTTL fails is not kept.
//
// The promise: a value that a call returns was in Redis during the call, or at most Options.MaxAge
// before it, whatever happens to connections and servers. A loaded value of GetOrLoad counts as in
// Redis when its load ends, even if it was not stored. After a Set or Delete through a Cache has
// returned, no call of the same Cache returns the value from before. The exception is a value that
// others have written again: a load can do that if it began earlier in another process or through
// another bale.Cache.
//
// Use it for reads from masters. A replica that lags may return an outdated value, and near then
// keeps it for MaxAge. Do not put another cache of the process below it (StoreOptions.CacheTTL of
// package rueidis): its age would be added.
//
// Nothing is released yet: until version 1 the API may change.
type Cache[T any] struct {
	cache   *bale.Cache[T]
	entries *otter.Cache[string, *entry[T]]
	maxAge  time.Duration
	covers  func(key string) bool // nil for all
	clone   func(T) T
	size    func(string, T) int

	maxBytes int64
	largest  int64
	bytes    atomic.Int64 // of entries, and of those that are about to be

	seed   maphash.Seed
	shards [shards]shard[T]
	start  time.Time // of the clock that ages are counted by, which is monotonic
	coarse *otter.CoarseClock

	counts                       *stats.Counter // of hits and misses
	evictions, tooLarge, changes atomic.Uint64

	resets atomic.Uint64 // of all that is kept; entries and flights of before serve no later call
	sweep  chan struct{} // has one when there are entries of before a reset

	closed  atomic.Bool
	closing sync.RWMutex // held for writing while closed is set, and for reading while running is added to
	ctx     context.Context
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
}

// entry is a kept value or miss. It never changes.
type entry[T any] struct {
	bale.Entry[T]
	read   time.Duration // when Redis was asked, on the Cache's clock
	until  time.Duration // when it expires or is too old, on the same clock
	resets uint64        // resets before it was read
	size   int64
}

// shard has the reads in flight of some keys. Its lock also protects changes of their entries.
type shard[T any] struct {
	mu      sync.Mutex
	flights map[want]*flight[T]
	_       [48]byte // the next one's lock is in another cache line
}

// want is the key of a flight: calls with the same want share one. Loads have their own flights,
// because a Get does not wait for a load.
type want struct {
	key  string
	load bool
}

// failed makes an error the error of the key.
func (w want) failed(err error) *bale.KeyError {
	if e, ok := errors.AsType[*bale.KeyError](err); ok && e.Key == w.key {
		return e
	}
	if w.load {
		return &bale.KeyError{Op: "load", Key: w.key, Err: err}
	}
	return &bale.KeyError{Op: "get", Key: w.key, Err: err}
}

// flight is a read of one key, for all callers that want it. It stays in its shard as long as its
// value may be kept and others may wait for it. A change of the key takes it out.
type flight[T any] struct {
	began   time.Duration
	resets  uint64                  // resets before it began
	waiting int                     // calls, with the one that began it, under the shard's lock
	cancel  context.CancelCauseFunc // of a load, for the last call that leaves
	cause   error                   // why calls have left, a deadline before all, under the shard's lock

	done  chan struct{} // closed when the fields below are set
	entry bale.Entry[T]
	err   error         // ErrNotFound for a cached miss, too
	until time.Duration // when the value or miss expires or is too old
	size  int64         // of the value, 0 for none that may be kept
	again bool          // it failed for the reader's context: the others read for themselves
}

var (
	errGivenUp = errors.New("near: the reading was given up")
	errClosed  = errors.New("near: the cache was closed")
)

// New puts a Cache in front of another, which the caller still owns. Close it in the end, because
// it starts goroutines. An option out of range is bale.ErrInvalid.
func New[T any](cache *bale.Cache[T], o Options[T]) (*Cache[T], error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = defaultMaxBytes
	}
	if o.MaxAge == 0 {
		o.MaxAge = defaultMaxAge
		if o.Invalidations != nil {
			o.MaxAge = defaultListeningMA
		}
	}
	switch {
	case cache == nil:
		return nil, fmt.Errorf("near: %w: no bale.Cache", bale.ErrInvalid)
	case o.MaxBytes < minMaxBytes:
		return nil, fmt.Errorf("near: %w: MaxBytes is %d, must be at least %d, or 0 for %d", bale.ErrInvalid, o.MaxBytes, minMaxBytes, defaultMaxBytes)
	case o.MaxAge < 0:
		return nil, fmt.Errorf("near: %w: MaxAge is %v, must not be negative", bale.ErrInvalid, o.MaxAge)
	}
	if o.Size == nil {
		o.Size = newEstimator[T]().size
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &Cache[T]{
		coarse: otter.NewCoarseClock(resolution),
		cache:  cache, maxAge: o.MaxAge, clone: o.Clone, size: o.Size,
		maxBytes: o.MaxBytes, largest: min(o.MaxBytes/largestPart, largestEntry),
		seed: maphash.MakeSeed(), start: time.Now(), counts: stats.NewCounter(), sweep: make(chan struct{}, 1),
	}
	for i := range c.shards {
		c.shards[i].flights = map[want]*flight[T]{}
	}
	var err error
	c.entries, err = otter.New(&otter.Options[string, *entry[T]]{
		// Entries are removed some time after their insertion, so there is room for one more than
		// the limit.
		MaximumWeight: uint64(o.MaxBytes - c.largest),
		Weigher:       func(_ string, e *entry[T]) uint32 { return uint32(e.size) },
		// This frees memory, some time later; the age of a value is checked on each read. So a
		// coarse clock is enough, and a cheap one is needed, because otter reads it at each hit.
		ExpiryCalculator: otter.ExpiryWritingFunc(func(e otter.Entry[string, *entry[T]]) time.Duration { return e.Value.until - e.Value.read + resolution }),
		Clock:            c.coarse,
		OnAtomicDeletion: func(e otter.DeletionEvent[string, *entry[T]]) {
			c.bytes.Add(-e.Value.size)
			if e.Cause == otter.CauseOverflow {
				c.evictions.Add(1)
			}
		},
	})
	if err != nil {
		c.coarse.Stop()
		return nil, fmt.Errorf("near: %w", err)
	}
	if o.Invalidations != nil {
		c.covers = o.Invalidations.Covers
	}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	if o.Invalidations != nil {
		ctx := c.ctx
		c.running.Go(func() { c.listen(ctx, o.Invalidations, o.Log) })
		c.running.Go(func() { c.sweeper(ctx) })
	}
	return c, nil
}

// listen handles changes until ctx ends.
func (c *Cache[T]) listen(ctx context.Context, from Invalidations, log *slog.Logger) {
	for {
		err := from.Listen(ctx, c.changed)
		if ctx.Err() != nil {
			return
		}
		c.reset()
		log.Warn("near: nobody says what changes in Redis; values may be served until they are MaxAge old", "error", err, "max_age", c.maxAge, "again_in", listenAgain)
		select {
		case <-ctx.Done():
			return
		case <-time.After(listenAgain):
		}
	}
}

func (c *Cache[T]) changed(keys []string) {
	if keys == nil {
		c.reset()
		return
	}
	c.drop(keys...)
	c.changes.Add(uint64(len(keys)))
}

// Close stops all goroutines, waits for them, and drops the values. The Cache still works, like the
// bale.Cache behind it, but keeps nothing. Calls that wait for a load call the bale.Cache
// themselves: the load may start again.
func (c *Cache[T]) Close() {
	c.closing.Lock()
	c.closed.Store(true)
	c.closing.Unlock()
	c.cancel(errClosed)
	c.running.Wait()
	c.reset()
	c.entries.InvalidateAll()
	c.entries.StopAllGoroutines()
	c.coarse.Stop()
}

// Stats returns the counts so far.
func (c *Cache[T]) Stats() Stats {
	s := c.counts.Snapshot()
	return Stats{
		Hits: s.Hits, Misses: s.Misses, Bytes: c.bytes.Load(), Entries: c.entries.EstimatedSize(), Evictions: c.evictions.Load(),
		TooLarge: c.tooLarge.Load(), Invalidations: c.changes.Load(), Resets: c.resets.Load(),
	}
}

// now is the time on the Cache's clock.
func (c *Cache[T]) now() time.Duration { return time.Since(c.start) }

func (c *Cache[T]) shard(key string) *shard[T] {
	return &c.shards[maphash.String(c.seed, key)%shards]
}

// lookup returns the entry of a key if it is good for a call that came at now, or nil.
func (c *Cache[T]) lookup(key string, now time.Duration) *entry[T] {
	e, ok := c.entries.GetIfPresent(key)
	if !ok || now >= e.until || e.resets != c.resets.Load() {
		return nil
	}
	return e
}

// maxAgeOf is the maximum age of a key's value. If Invalidations do not cover the key, it is the
// same as without them.
func (c *Cache[T]) maxAgeOf(key string) time.Duration {
	if c.covers == nil || c.covers(key) {
		return c.maxAge
	}
	return min(c.maxAge, defaultMaxAge)
}

// give returns a caller's copy of a shared value, or ErrNotFound for a cached miss.
func (c *Cache[T]) give(e bale.Entry[T]) (bale.Entry[T], error) {
	if e.Absent {
		return e, bale.ErrNotFound
	}
	if c.clone != nil {
		e.Value = c.clone(e.Value)
	}
	return e, nil
}

// result is what a caller gets of a read that is done.
func (c *Cache[T]) result(f *flight[T]) (bale.Entry[T], error) {
	if f.err != nil {
		return f.entry, f.err
	}
	return c.give(f.entry)
}

// join returns the read in flight of a key, or begins one; with mine, the caller must do and finish
// it. If a read has ended in between, join returns its entry and no flight.
func (c *Cache[T]) join(w want, now time.Duration) (f *flight[T], mine bool, e *entry[T]) {
	s := c.shard(w.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e = c.lookup(w.key, now); e != nil {
		return nil, false, e
	}
	if f = s.flights[w]; f != nil && f.resets == c.resets.Load() && now-f.began <= c.maxAgeOf(w.key) {
		f.waiting++
		return f, false, nil
	}
	f = &flight[T]{began: c.now(), resets: c.resets.Load(), waiting: 1, done: make(chan struct{})}
	s.flights[w] = f
	return f, true, nil
}

// leave ends the wait of one call. When the last one leaves, the load is cancelled. The bale.Cache
// lets it go on if the cause is a deadline, of any of the calls, and there is an old value. A later
// call does not get this error.
func (c *Cache[T]) leave(w want, f *flight[T], cause error) {
	s := c.shard(w.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	f.cause = graver(f.cause, cause)
	if f.waiting--; f.waiting > 0 {
		return
	}
	f.cancel(f.cause)
	if s.flights[w] == f {
		delete(s.flights, w)
	}
}

// graver is the reason for which a load ends if calls have left for both: a deadline before all.
func graver(a, b error) error {
	if a == nil || errors.Is(b, context.DeadlineExceeded) {
		return b
	}
	return a
}

// finish ends a read. It keeps the value if the key has not changed since the start, and no later
// read exists.
func (c *Cache[T]) finish(w want, f *flight[T]) {
	s := c.shard(w.key)
	s.mu.Lock()
	if s.flights[w] == f {
		delete(s.flights, w)
		if e, ok := c.entries.GetIfPresent(w.key); f.size > 0 && f.resets == c.resets.Load() && (!ok || e.read < f.began) {
			c.keep(w.key, &entry[T]{f.entry, f.began, f.until, f.resets, f.size})
		}
	}
	s.mu.Unlock()
	close(f.done)
}

// keep inserts an entry, under the shard's lock.
func (c *Cache[T]) keep(key string, e *entry[T]) {
	if e.size > c.largest {
		c.tooLarge.Add(1)
		c.entries.Invalidate(key) // one that is too old
		return
	}
	if c.closed.Load() {
		return
	}
	if !c.reserve(e.size) {
		c.entries.CleanUp() // what is to be removed is removed now
		if !c.reserve(e.size) {
			return // others have taken the room meanwhile
		}
	}
	c.entries.Set(key, e)
}

// reserve counts the bytes of an entry before its insertion, if there is room for them.
func (c *Cache[T]) reserve(size int64) bool {
	for {
		n := c.bytes.Load()
		if n+size > c.maxBytes {
			return false
		}
		if c.bytes.CompareAndSwap(n, n+size) {
			return true
		}
	}
}

// weigh is the memory of a value if it is kept.
func (c *Cache[T]) weigh(key string, v T) int64 {
	return min(int64(max(0, c.size(key, v))), 2*largestEntry) + int64(len(key)) + overhead
}

// found sets the result of a flight, to be kept until it expires or is too old.
func (c *Cache[T]) found(key string, f *flight[T], e bale.Entry[T]) {
	f.entry = e
	f.until = f.began + min(c.maxAgeOf(key), math.MaxInt64-f.began)
	if !e.Expires.IsZero() {
		// The clock of ages is monotonic, that of expiries is not: from here on the first one
		// counts.
		now := c.now()
		f.until = now + min(f.until-now, time.Until(e.Expires))
	}
	if !e.Stale && f.until > c.now() {
		f.size = c.weigh(key, e.Value)
	}
}

// read does the read of a key, for all callers that wait for it.
func (c *Cache[T]) read(ctx context.Context, w want, f *flight[T], from func(context.Context) (bale.Entry[T], error)) {
	f.err, f.again = errGivenUp, !w.load // if it panics
	defer func() {
		if w.load { // on a goroutine of its own, where nobody else recovers
			if p := recover(); p != nil {
				f.err = &bale.KeyError{Op: "load", Key: w.key, Err: &codec.PanicError{Value: p, Stack: debug.Stack()}}
			}
		}
		c.finish(w, f)
	}()
	e, err := from(ctx)
	if err == nil || e.Absent {
		c.found(w.key, f, e)
	}
	f.err, f.again = err, givenUp(ctx, err)
}

// givenUp reports whether an error may be the caller's own: that of its context.
func givenUp(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() != nil && !errors.Is(err, bale.ErrNotFound)
}

// Get returns the value of a key, or bale.ErrNotFound. It keeps only the misses that bale.Cache
// caches (LoadOptions.NegativeTTL). Calls for one key share one read. Each ends with its own ctx.
// If the ctx of the reading call ends, another call reads.
func (c *Cache[T]) Get(ctx context.Context, key string) (T, error) {
	now := c.now()
	if e := c.lookup(key, now); e != nil {
		c.counts.RecordHits(1)
		e, err := c.give(e.Entry)
		return e.Value, err
	}
	c.counts.RecordMisses(1)
	e, err := c.miss(ctx, want{key, false}, now, func(ctx context.Context) (bale.Entry[T], error) { return c.cache.GetEntry(ctx, key) })
	return e.Value, err
}

// miss reads a key, or waits for the call that does.
func (c *Cache[T]) miss(ctx context.Context, w want, now time.Duration, from func(context.Context) (bale.Entry[T], error)) (bale.Entry[T], error) {
	for {
		f, mine, e := c.join(w, now)
		if f == nil {
			return c.give(e.Entry)
		}
		if mine && !(w.load && c.load(ctx, []waiting[T]{{w, f}}, func(ctx context.Context) { c.read(ctx, w, f, from) })) {
			c.read(ctx, w, f, from)
			return c.result(f)
		}
		if e, again, err := c.wait(ctx, w, f); !again {
			return e, err
		}
	}
}

// wait waits for a read.
func (c *Cache[T]) wait(ctx context.Context, w want, f *flight[T]) (e bale.Entry[T], again bool, err error) {
	select {
	case <-f.done:
	default:
		select {
		case <-f.done:
		case <-ctx.Done():
			cause := context.Cause(ctx)
			if w.load && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				cause = context.DeadlineExceeded
				if old, ok := c.cache.Old(w.key); ok {
					c.leave(w, f, cause)
					return old, false, nil
				}
			}
			c.leave(w, f, cause)
			if !w.load {
				cause = ctx.Err()
			}
			return e, false, w.failed(cause)
		}
	}
	e, err = c.result(f)
	return e, f.again, err
}

// load reads on a goroutine, which outlives the call if others wait. It reports false if the Cache
// is closed.
func (c *Cache[T]) load(ctx context.Context, mine []waiting[T], read func(ctx context.Context)) bool {
	c.closing.RLock()
	defer c.closing.RUnlock()
	if c.closed.Load() {
		return false
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	var lock sync.Mutex
	var why error
	left := 0
	for _, w := range mine {
		w.f.cancel = func(cause error) {
			lock.Lock()
			defer lock.Unlock()
			why = graver(why, cause)
			if left++; left == len(mine) {
				cancel(why)
			}
		}
	}
	stop := context.AfterFunc(c.ctx, func() { cancel(errClosed) })
	c.running.Go(func() {
		defer cancel(nil)
		defer stop()
		read(ctx)
	})
	return true
}

// waiting is a read that a call waits for.
type waiting[T any] struct {
	want
	f *flight[T]
}

// GetMany returns the values of the existing keys; keys that are not kept are read in one go.
// Errors are like those of bale.Cache.GetMany.
func (c *Cache[T]) GetMany(ctx context.Context, keys ...string) (map[string]T, error) {
	values := make(map[string]T, len(keys))
	err := c.many(ctx, keys, false, c.cache.GetEntries, func(key string, e bale.Entry[T]) { values[key] = e.Value })
	return values, err
}

// many calls add for all keys that are kept, or that are found in one call of from.
func (c *Cache[T]) many(
	ctx context.Context, keys []string, load bool,
	from func(ctx context.Context, keys ...string) (map[string]bale.Entry[T], error), add func(key string, e bale.Entry[T]),
) error {
	now := c.now()
	var missing []string
	var failed bale.KeyErrors
	took := func(w want, e bale.Entry[T], err error) {
		switch {
		case err == nil:
			add(w.key, e)
		case !errors.Is(err, bale.ErrNotFound):
			failed = append(failed, w.failed(err))
		}
	}
	for _, key := range keys {
		if e := c.lookup(key, now); e == nil {
			missing = append(missing, key)
		} else {
			e, err := c.give(e.Entry)
			took(want{key, load}, e, err)
		}
	}
	c.counts.RecordHits(len(keys) - len(missing))
	c.counts.RecordMisses(len(missing))
	for len(missing) > 0 {
		var mine, others []waiting[T]
		for _, key := range missing {
			w := want{key, load}
			switch f, own, e := c.join(w, now); {
			case f == nil:
				e, err := c.give(e.Entry)
				took(w, e, err)
			case own:
				mine = append(mine, waiting[T]{w, f})
			default:
				others = append(others, waiting[T]{w, f})
			}
		}
		if load && len(mine) > 0 && c.load(ctx, mine, func(ctx context.Context) { c.readMany(ctx, mine, from) }) {
			others = append(others, mine...)
		} else if err := c.readMany(ctx, mine, from); err != nil {
			return err
		} else {
			for _, w := range mine {
				e, err := c.result(w.f)
				took(w.want, e, err)
			}
		}
		// Only now, after the callers that wait for this call have their values: two calls never
		// wait for each other.
		missing = missing[:0]
		for _, w := range others {
			e, again, err := c.wait(ctx, w.want, w.f)
			switch {
			case again:
				missing = append(missing, w.key)
			case !load && err != nil && ctx.Err() != nil:
				return fmt.Errorf("near: get of %d keys: %w", len(keys), ctx.Err())
			default:
				took(w.want, e, err)
			}
		}
	}
	if len(failed) > 0 {
		return failed
	}
	return nil
}

// readMany does the reads of keys. Its error is that of all keys.
func (c *Cache[T]) readMany(ctx context.Context, mine []waiting[T], from func(context.Context, ...string) (map[string]bale.Entry[T], error)) (err error) {
	if len(mine) == 0 {
		return nil
	}
	keys := make([]string, len(mine))
	for i, w := range mine {
		keys[i] = w.key
		w.f.err, w.f.again = errGivenUp, !w.load // if it panics
	}
	defer func() {
		if mine[0].load { // on a goroutine of its own, where nobody else recovers
			if p := recover(); p != nil {
				for _, w := range mine {
					w.f.err = w.failed(&codec.PanicError{Value: p, Stack: debug.Stack()})
				}
			}
		}
		for _, w := range mine {
			c.finish(w.want, w.f)
		}
	}()
	got, err := from(ctx, keys...)
	some, ofKeys := errors.AsType[bale.KeyErrors](err)
	errs := make(map[string]error, len(some))
	for _, e := range some {
		errs[e.Key] = e
	}
	for _, w := range mine {
		entry, ok := got[w.key]
		e := errs[w.key]
		switch {
		case ok:
			c.found(w.key, w.f, entry)
			if e = nil; entry.Absent {
				e = bale.ErrNotFound
			}
		case err != nil && !ofKeys: // all failed alike
			e = w.failed(err)
		case e == nil:
			e = bale.ErrNotFound
		}
		w.f.err, w.f.again = e, givenUp(ctx, e)
	}
	if ofKeys {
		return nil
	}
	return err
}

// GetOrLoad returns the value of a key, or loads and stores it, like bale.Cache.GetOrLoad. It calls
// that method when no value is kept, so a refresh ahead of expiry starts then at the earliest.
// Values and cached misses are kept until they expire; old values (LoadOptions.StaleIfError) are
// not. Entry.Expires is that of Redis, also for values of Set, if the Store has a PTTL.
//
// Calls for one key share one read and one load: those of the first call, with its expiry and the
// values of its ctx. Each call ends with its own ctx; at a deadline it gets the old value, if there
// is one. The load's ctx ends when all calls have left. A panic becomes an error for all of them.
func (c *Cache[T]) GetOrLoad(ctx context.Context, key string, load func(context.Context) (T, error), e ...bale.Expiry) (bale.Entry[T], error) {
	now := c.now()
	if e := c.lookup(key, now); e != nil {
		c.counts.RecordHits(1)
		return c.give(e.Entry)
	}
	c.counts.RecordMisses(1)
	w := want{key, true}
	if err := validate(e); err != nil {
		return bale.Entry[T]{}, w.failed(err)
	}
	return c.miss(ctx, w, now, func(ctx context.Context) (bale.Entry[T], error) {
		entry, err := c.cache.GetOrLoad(ctx, key, load, e...)
		if err == nil && entry.Expires.IsZero() {
			entry.Expires = c.cache.Expires(ctx, key)[0]
		}
		return entry, err
	})
}

// GetOrLoadMany is GetOrLoad for many keys, like bale.Cache.GetOrLoadMany: one call of the loader
// for all keys that are neither kept nor in Redis nor in flight. Cached misses that it finds in
// Redis are not kept. The load's ctx ends when all calls for all of its keys have left.
func (c *Cache[T]) GetOrLoadMany(ctx context.Context, keys []string, load func(ctx context.Context, keys []string) (map[string]T, error), e ...bale.Expiry) (map[string]bale.Entry[T], error) {
	entries := make(map[string]bale.Entry[T], len(keys))
	if len(keys) == 0 {
		return entries, nil
	}
	if err := validate(e); err != nil {
		return entries, want{keys[0], true}.failed(err)
	}
	from := func(ctx context.Context, keys ...string) (map[string]bale.Entry[T], error) {
		got, err := c.cache.GetOrLoadMany(ctx, keys, load, e...)
		var ageless []string
		for key, entry := range got {
			if entry.Expires.IsZero() {
				ageless = append(ageless, key)
			}
		}
		for i, expires := range c.cache.Expires(ctx, ageless...) {
			entry := got[ageless[i]]
			entry.Expires = expires
			got[ageless[i]] = entry
		}
		return got, err
	}
	err := c.many(ctx, keys, true, from, func(key string, e bale.Entry[T]) { entries[key] = e })
	return entries, err
}

// validate checks the expiry of a load before others can share the load.
func validate(given []bale.Expiry) error {
	for _, e := range given {
		if err := e.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// The methods that write drop the kept value after the answer of Redis, even if that is an error. A
// value read before that can then no longer be kept. A value read after it is the new value, or a
// later one. The new value is not kept, because only Redis knows whether it has been overwritten
// since.

// Set writes a value like bale.Cache.Set.
func (c *Cache[T]) Set(ctx context.Context, key string, v T, e ...bale.Expiry) error {
	defer c.drop(key)
	return c.cache.Set(ctx, key, v, e...)
}

// SetMany writes values like bale.Cache.SetMany.
func (c *Cache[T]) SetMany(ctx context.Context, values map[string]T, e ...bale.Expiry) error {
	defer func() {
		for key := range values {
			c.drop(key)
		}
	}()
	return c.cache.SetMany(ctx, values, e...)
}

// Delete removes keys like bale.Cache.Delete.
func (c *Cache[T]) Delete(ctx context.Context, keys ...string) (int, error) {
	defer c.drop(keys...)
	return c.cache.Delete(ctx, keys...)
}

// Touch gives a key another expiry like bale.Cache.Touch. The next read of the value asks Redis,
// because it may have expired. An earlier expiry of a value of GetOrLoad may show after MaxAge
// only.
func (c *Cache[T]) Touch(ctx context.Context, key string, e ...bale.Expiry) error {
	defer c.drop(key)
	return c.cache.Touch(ctx, key, e...)
}

// drop removes keys. No later call gets a value that is kept, or being read, now.
func (c *Cache[T]) drop(keys ...string) {
	for _, key := range keys {
		s := c.shard(key)
		s.mu.Lock()
		delete(s.flights, want{key, false})
		delete(s.flights, want{key, true})
		c.entries.Invalidate(key)
		s.mu.Unlock()
	}
}

// reset removes all keys at once. Memory is freed step by step, because the calling connection must
// not wait.
func (c *Cache[T]) reset() {
	c.resets.Add(1)
	select {
	case c.sweep <- struct{}{}:
	default:
	}
}

// sweeper frees the memory of entries from before a reset, until ctx ends.
func (c *Cache[T]) sweeper(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.sweep:
			c.entries.InvalidateAll()
		}
	}
}
