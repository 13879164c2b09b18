package bale

import (
	"context"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stats"
)

// LoadOptions are the settings of [Cache.GetOrLoad]; the zero value is useful. Caches that share
// keys should have the same.
type LoadOptions struct {
	// Beta sets how eagerly a value is loaded again before it expires. A long load, a near expiry
	// and a large Beta make an early load likelier. The rule is XFetch: load when now -
	// took*Beta*ln(random) is past the expiry (Vattani, Chierichetti, Lowenstein: Optimal
	// Probabilistic Cache Stampede Prevention, VLDB 2015). Callers get the present value and do not
	// wait. Defaults to 1; negative turns early loads off.
	Beta float64

	// Refreshes bounds the loads that run with no caller waiting: those ahead of an expiry, and
	// those whose callers left with an old value. At this limit no early load starts, and a
	// load without callers is cancelled. Defaults to 64.
	Refreshes int

	// NegativeTTL caches a miss for this long when the loader returns ErrNotFound. Defaults to 0:
	// misses are not cached.
	NegativeTTL time.Duration

	// StaleIfError keeps a value in Redis for this long beyond its expiry. GetOrLoad returns the
	// old value if it gets no new one. The loader may have failed, or the lock may have been taken.
	// Or Timeout, SoftTimeout or the caller's deadline may have run out. A caller that cancels its
	// context gets an error. Get and GetMany do not return old values. A Packer does,
	// because it ignores expiries. Defaults to 0: no old values.
	StaleIfError time.Duration

	// SoftTimeout is how long a caller waits for a load when there is an old value, counted from
	// the start of the load. Then the caller gets the old value, and the load continues, within
	// Timeout and Refreshes. Needs StaleIfError. Defaults to 0: callers wait for the load.
	SoftTimeout time.Duration

	// Lock, if not 0, lets one process at a time load a key; the others wait for the loaded value.
	// The lock at KEY:lock expires after this time, in case a process dies. A running load renews
	// it, until Timeout. A value loaded under a lock is stored only if the lock still holds and the
	// key has not changed since the load began. Choose some seconds: a process that stalls for
	// longer loses its lock. GetOrLoad never overwrites foreign content of KEY:lock, nor a lock
	// that outlives both Lock and Backoff. It then loads the key without a lock.
	Lock time.Duration

	// Backoff bars all processes from loading a key for this long after a load under the lock
	// failed. Meanwhile callers get the old value or ErrLoadFailed. Needs Lock. Defaults to 250 ms,
	// long enough for the waiting processes to see the failure.
	Backoff time.Duration

	// ReplaceUnreadable lets GetOrLoad overwrite a value that this process cannot read: corrupt,
	// too large, of another codec, or packed with an unknown dictionary or algorithm. Without it
	// each read of an unreadable value is a load until the value expires. Turn it on only for keys
	// that belong to this cache alone. Leave it off while two versions of a program run with
	// different codecs: each would replace the other's values. It never replaces a stream (package
	// stream), a value beyond PackerOptions.Budget, or one whose dictionary could not be looked up:
	// the registry or a mirror did not answer, or was not asked (its answer that it has none counts
	// for 5 s). For each replaced value the Recorder receives a stats.Replace, and Options.Log a
	// warning.
	ReplaceUnreadable bool

	// Timeout bounds a load: its context ends then. Defaults to 30 s.
	Timeout time.Duration

	// Patience bounds each Redis call of GetOrLoad (read, lock, store). When it runs out, GetOrLoad
	// continues without Redis. A caller's own read takes at most half of its remaining deadline.
	// Once the loader has returned, a caller waits for Redis for at most half of its remaining
	// deadline. It then gets the loaded value, and the store continues. The client must honour
	// contexts (go-redis: ContextTimeoutEnabled). Do not set it so low that a slow Redis counts as
	// down: that adds loads. Defaults to 2 s.
	Patience time.Duration
}

const (
	defaultBeta        = 1
	defaultRefreshes   = 64
	defaultLoadTimeout = 30 * time.Second
	defaultPatience    = 2 * time.Second
	defaultBackoff     = 250 * time.Millisecond // more than the longest wait between two looks at a lock

	lockSuffix  = ":lock"
	minLockWait = 2 * time.Millisecond // between two looks at another process's lock, doubled each time
	maxLockWait = 100 * time.Millisecond
	renewals    = 3           // in the life of a lock, so that two may fail
	unlockTime  = time.Second // bounds the release of a lock, even if the caller has gone
)

// loader is the part of a Cache that GetOrLoad needs.
type loader[T any] struct {
	options LoadOptions

	flying     atomic.Int64 // flights, so that a write takes mu only if there are any
	mu         sync.Mutex
	flights    map[string]*flight[T] // by key, without those that a write has overtaken; see flight
	background int                   // flights that nobody need wait for
	closed     bool
	running    sync.WaitGroup

	open  context.Context // until Close
	close context.CancelFunc
}

// flight is a load in flight, with all its callers.
type flight[T any] struct {
	began  time.Time
	cancel context.CancelFunc

	// Under loader.mu.
	waiting    int        // callers; when the last one leaves the load is cancelled
	background bool       // it counts as a caller of its own, and is not cancelled
	ended      bool       // what follows done is there, or about to be
	left       bool       // all callers left, and it is cancelled: it is there for a write to overtake, for its loader may not heed that
	before     *flight[T] // one that was left, and has not ended
	old        []byte     // the value that the load would replace, as it is stored
	gone       bool       // since it began a caller has found no value in Redis: old was deleted

	loaded    chan struct{} // closed when the loader has returned, with early and earlyErr
	early     T
	earlyErr  error
	lending   sync.RWMutex // held for reading while early is copied, which ends with done
	storing   sync.Mutex   // held while the loaded value is stored
	overtaken bool         // under storing: the key was written or deleted since, so nothing is stored

	done  chan struct{} // closed when what follows is there
	value T
	fresh frame.Freshness
	plain []byte // value encoded, if several wait: the first gets value, each other one its own copy
	first sync.Once
	err   error
}

func (l *loader[T]) init(o LoadOptions) error {
	for _, d := range []struct {
		name string
		d    time.Duration
	}{
		{"NegativeTTL", o.NegativeTTL}, {"StaleIfError", o.StaleIfError}, {"SoftTimeout", o.SoftTimeout}, {"Lock", o.Lock}, {"Backoff", o.Backoff},
		{"Timeout", o.Timeout}, {"Patience", o.Patience},
	} {
		if d.d != 0 && d.d < time.Millisecond {
			return fmt.Errorf("bale: %w: Load.%s is %v, must be at least 1ms, or 0", ErrInvalid, d.name, d.d)
		}
	}
	switch {
	case math.IsNaN(o.Beta) || o.Refreshes < 0:
		return fmt.Errorf("bale: %w: Load.Beta is %v and Load.Refreshes %d, must be a number and not negative", ErrInvalid, o.Beta, o.Refreshes)
	case o.SoftTimeout > 0 && o.StaleIfError == 0:
		return fmt.Errorf("bale: %w: Load.SoftTimeout is %v, which needs Load.StaleIfError: without it there is no old value", ErrInvalid, o.SoftTimeout)
	case o.Backoff > 0 && o.Lock == 0:
		return fmt.Errorf("bale: %w: Load.Backoff is %v, which needs Load.Lock", ErrInvalid, o.Backoff)
	}
	if o.Beta == 0 {
		o.Beta = defaultBeta
	}
	if o.Refreshes == 0 {
		o.Refreshes = defaultRefreshes
	}
	if o.Backoff == 0 {
		o.Backoff = defaultBackoff
	}
	if o.Timeout == 0 {
		o.Timeout = defaultLoadTimeout
	}
	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	l.options, l.flights = o, map[string]*flight[T]{}
	l.open, l.close = context.WithCancel(context.Background())
	return nil
}

// errLoad is the class of a loader's errors.
type errLoad struct{ err error }

func (e *errLoad) Error() string { return e.err.Error() }
func (e *errLoad) Unwrap() error { return e.err }

// GetOrLoad returns the value of a key, or loads and stores it if there is none. All callers of
// this process that wait for a key share one load, and each gets its own value. [LoadOptions] can
// limit the load to one process, load values ahead of their expiry, cache misses, and return old
// values when no new one comes.
//
// The loader's context carries the context values of its first caller. It ends when all callers
// have left, or with LoadOptions.Timeout. A load whose callers left with an old value continues. If
// a loader panics, its callers get a [codec.PanicError] with the stack. A loader's error comes back
// in a [KeyError].
//
// A failing cache never keeps a value from callers. If Redis cannot be read, or the value there
// cannot be unpacked, GetOrLoad loads the value. If it cannot store the value, it still returns it,
// and the Recorder receives the error. A value that cannot be unpacked stays as it is, unless
// LoadOptions.ReplaceUnreadable is set.
//
// A load is not stored if a Set, SetMany or Delete of the same Cache overtakes it. With
// LoadOptions.Lock this includes writes and deletions by other processes. It cannot detect that
// another process deleted a key that had no value. Without Lock, a load that began before
// another process's write can overwrite it. Delete such keys again after a moment, or give them a
// short expiry.
//
// Loaded values are stored with their expiry inside, by this machine's clock, and expire by it. The
// argument e is that of [Cache.Set]. For a cached miss the error is ErrNotFound and the Entry is
// Absent.
func (c *Cache[T]) GetOrLoad(ctx context.Context, key string, load func(context.Context) (T, error), e ...Expiry) (Entry[T], error) {
	expiry, err := c.expiry(e)
	if err != nil {
		return Entry[T]{}, &KeyError{"load", key, err}
	}
	patient, cancel := c.patient(ctx)
	v, fresh, stored, err := c.get(patient, key, c.recorder)
	cancel()
	good := err == nil && !fresh.expired(time.Now)
	early := good && c.early(&fresh)
	if good && !early {
		return Entry[T]{Value: v, Expires: fresh.Expires}, nil
	}
	l := &loading[T]{cache: c, store: c.store, key: key, expiry: expiry, load: load}
	if entry, ok, err := l.see(ctx, v, fresh, stored, err, early); ok {
		return entry, err
	}
	return c.join(ctx, l)
}

// Entry is a value with its expiry.
type Entry[T any] struct {
	Value T

	// Expires is when the value or the cached miss expires. It is zero for never. [Cache.GetEntry]
	// and [Cache.GetEntries] ask the Store for the expiry of a value that does not carry its own,
	// because Set wrote it. If the Store has no PTTL, such a value has the zero time; if PTTL
	// fails, it has the time of the call. GetOrLoad does not ask: there, zero can also mean unknown.
	// An Entry whose Expires has passed must not be cached.
	Expires time.Time

	// Stale reports an old value, past Expires: see LoadOptions.StaleIfError.
	Stale bool

	// Absent reports a cached miss: see LoadOptions.NegativeTTL.
	Absent bool
}

// see takes what the caller has read, and begins a load ahead of expiry if early. It reports
// whether that ends the call. Otherwise the key needs a load.
func (l *loading[T]) see(ctx context.Context, v T, fresh freshness, stored []byte, err error, early bool) (Entry[T], bool, error) {
	l.seen = fresh.Expires
	switch {
	case early:
		l.storable = true
		l.cache.refresh(ctx, l)
		return Entry[T]{Value: v, Expires: fresh.Expires}, true, nil
	case fresh.Absent:
		return Entry[T]{Expires: fresh.Expires, Absent: true}, true, ErrNotFound
	case err == nil:
		l.value, l.old = v, stored
	}
	l.gone = errors.Is(err, ErrNotFound)
	l.storable = err == nil || l.gone || l.cache.replaceable(err)
	return Entry[T]{}, false, nil
}

// Old returns the old value of a key whose load is in flight, or a loaded value that is not yet
// stored. It does not ask Redis. A GetOrLoad that gives up returns the same value. Use it if
// several callers share one GetOrLoad and have different deadlines.
func (c *Cache[T]) Old(key string) (Entry[T], bool) {
	c.mu.Lock()
	f := c.flight(key)
	c.mu.Unlock()
	return c.oldOf(over, &loading[T]{cache: c, key: key}, f)
}

// lend returns a copy of a flight's loaded value that is not yet stored.
func (c *Cache[T]) lend(f *flight[T]) (v T, ok bool) {
	f.lending.RLock()
	defer f.lending.RUnlock()
	select {
	case <-f.done: // early is somebody's own
		return v, false
	default:
	}
	err := guard("copying", func() error {
		plain, err := c.appendValue(nil, f.early)
		if err == nil {
			err = c.decodeValue(plain, &v)
		}
		return err
	})
	return v, err == nil
}

// oldOf returns a flight's loaded value that is not yet stored, or else the old value that a call
// or its flight has. It waits for other large values until ctx ends.
func (c *Cache[T]) oldOf(ctx context.Context, call *loading[T], f *flight[T]) (Entry[T], bool) {
	if f != nil {
		select {
		case <-f.loaded:
			if errors.Is(f.earlyErr, ErrNotFound) {
				return Entry[T]{}, false
			}
			if f.earlyErr == nil {
				if v, ok := c.lend(f); ok {
					return Entry[T]{Value: v, Expires: time.Now()}, true
				}
			}
		default:
		}
	}
	if c.options.StaleIfError == 0 {
		return Entry[T]{}, false
	}
	v, expires := call.value, call.seen
	if call.old == nil {
		var old []byte
		if f != nil {
			c.mu.Lock()
			if !f.gone {
				old = f.old
			}
			c.mu.Unlock()
		}
		if old == nil {
			return Entry[T]{}, false
		}
		fresh, err := c.decode(ctx, old, &v, &recording{}, nil)
		if err != nil {
			return Entry[T]{}, false
		}
		expires = fresh.Expires
	}
	now := time.Now()
	if !now.Before(expires.Add(c.options.StaleIfError)) {
		return Entry[T]{}, false
	}
	var rec recording
	rec.begin(context.Background(), c.recorder, stats.Stale, 1)
	rec.end(context.Background(), nil)
	return Entry[T]{Value: v, Expires: expires, Stale: !now.Before(expires)}, true
}

// replaceable reports whether GetOrLoad may overwrite a value that could not be read for err.
func (l *loader[T]) replaceable(err error) bool {
	if !l.options.ReplaceUnreadable {
		return false
	}
	for _, of := range []error{errNoAnswer, errStream, os.ErrClosed, ErrBudget} { // which say nothing about the value
		if errors.Is(err, of) {
			return false
		}
	}
	switch ErrorClass(err) {
	case stats.Corrupt, stats.TooLarge, stats.UnknownDictionary, stats.UnknownAlgorithm, stats.Codec:
		return true
	}
	return false
}

// patient is the context for one step with Redis.
func (l *loader[T]) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	d := l.options.Patience
	if deadline, ok := ctx.Deadline(); ok {
		d = min(d, time.Until(deadline)/2)
	}
	return context.WithTimeout(ctx, d)
}

// Close cancels the loads in flight and waits for their loaders to return. Their callers get the
// old value, or os.ErrClosed. Close then closes the Packer that [New] made, if Options had none;
// the Store and a given Packer stay the caller's. Afterwards nothing is loaded, and other calls may
// return an error that is os.ErrClosed. With the default Packer, or without GetOrLoad, an unclosed
// Cache holds nothing but memory, which the garbage collector frees.
func (c *Cache[T]) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.loader.close() // ends overtaken flights too
	c.running.Wait()
	if c.own == nil {
		return nil
	}
	return c.own.Close()
}

var (
	errClosed = fmt.Errorf("the cache is closed: %w", os.ErrClosed)

	// errNotLoaded: a refresh left the load to another process.
	errNotLoaded = errors.New("not loaded")
)

// early reports whether to load a value before it expires.
func (l *loader[T]) early(f *freshness) bool {
	if f.Expires.IsZero() || l.options.Beta < 0 {
		return false
	}
	ahead := float64(f.Took) * l.options.Beta * -math.Log(1-mathrand.Float64()) // of a number above 0
	return ahead >= float64(time.Until(f.Expires))
}

// overtake invalidates in-flight loads of keys that are being written, so that they are not stored.
// A write calls it twice. The first call waits for a load that is being stored. The second catches
// a load that began during the write and may have read the old state.
func (l *loader[T]) overtake(keys ...string) {
	if l.flying.Load() == 0 {
		return
	}
	for _, key := range keys {
		l.mu.Lock()
		f := l.flights[key]
		delete(l.flights, key)
		all := f.chain()
		l.mu.Unlock()
		for _, f := range all {
			f.overtake()
		}
	}
}

// overtakeOlder is overtake for the flights that were left before f began. f calls it before it
// stores.
func (l *loader[T]) overtakeOlder(f *flight[T]) {
	l.mu.Lock()
	all := f.before.chain()
	l.mu.Unlock()
	for _, f := range all {
		f.overtake()
	}
}

// overtake waits for the flight if it is storing, and else keeps it from that.
func (f *flight[T]) overtake() {
	f.storing.Lock()
	f.overtaken = true
	f.storing.Unlock()
}

// chain returns the flight, if not nil, and the flights left before it; mu is locked.
func (f *flight[T]) chain() (all []*flight[T]) {
	for ; f != nil; f = f.before {
		all = append(all, f)
	}
	return all
}

// loading is one key of a call of GetOrLoad or GetOrLoadMany.
type loading[T any] struct {
	cache  *Cache[T]
	store  Store
	key    string
	expiry Expiry
	load   func(context.Context) (T, error)
	many   *many[T] // nil in GetOrLoad

	seen  time.Time // the expiry of the value that the caller saw
	value T         // that value, if it is an old one
	old   []byte    // and as it is stored, or nil
	gone  bool      // Redis answered that there is no value

	// storable: Redis answered, and the key has no value or one that a load may replace.
	storable bool
}

// refresh loads a value in the background, unless a load is in flight.
func (l *loader[T]) refresh(ctx context.Context, call *loading[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.flight(call.key) != nil || l.background >= l.options.Refreshes {
		call.settle()
		return
	}
	l.toBackground(l.start(ctx, call, true))
}

// toBackground lets a flight continue without callers, if there is room for one more; mu is locked.
func (l *loader[T]) toBackground(f *flight[T]) {
	if !f.background && !f.ended && !l.closed && l.background < l.options.Refreshes {
		f.background = true
		f.waiting++
		l.background++
	}
}

// join waits for the load of a key, which it starts if none is in flight.
func (c *Cache[T]) join(ctx context.Context, call *loading[T]) (Entry[T], error) {
	defer call.settle()
	for {
		c.mu.Lock()
		f, closed := c.flight(call.key), c.closed
		if !closed {
			if f == nil {
				f = c.start(ctx, call, false)
			} else {
				f.gone = f.gone || call.gone
				call.settle()
			}
			f.waiting++
		}
		c.mu.Unlock()

		var old Entry[T]
		err := errClosed
		if !closed {
			var ok bool
			if old, ok, err = c.await(ctx, f, call); ok {
				return old, nil
			}
		}
		switch {
		case err == nil:
			v, err := c.take(f)
			if err == nil {
				return Entry[T]{Value: v, Expires: f.fresh.Expires}, nil
			}
			return c.instead(ctx, f, call, err)
		case errors.Is(err, errNotLoaded):
			// A refresh gave up. This caller does not.
		case errors.Is(err, ErrNotFound):
			return old, &KeyError{"load", call.key, err}
		default:
			return c.instead(ctx, f, call, err)
		}
	}
}

// await waits for a flight and returns its error, and the age of a miss. A caller that leaves
// earlier gets the loaded value, an old value, or the error of the loader or of its context.
func (c *Cache[T]) await(ctx context.Context, f *flight[T], call *loading[T]) (old Entry[T], ok bool, err error) {
	var soft <-chan time.Time
	if d := c.options.SoftTimeout; d > 0 {
		timer := time.NewTimer(time.Until(f.began.Add(d)))
		defer timer.Stop()
		soft = timer.C
	}
	var half <-chan time.Time // of what a caller has left when the loader has returned
	loaded := f.loaded
	for {
		var leaves error
		select {
		case <-f.done:
			return f.miss(), false, f.err
		case <-loaded:
			loaded = nil
			if deadline, ok := ctx.Deadline(); ok {
				timer := time.NewTimer(time.Until(deadline) / 2)
				defer timer.Stop()
				half = timer.C
			}
			continue
		case <-half:
			half, leaves = nil, f.earlyErr
		case <-soft:
			soft = nil
		case <-ctx.Done():
			leaves = context.Cause(ctx)
		}
		select {
		case <-f.done: // at the same moment
			return f.miss(), false, f.err
		default:
		}
		if leaves == nil || !cancelled(ctx) {
			old, ok = c.oldOf(ctx, call, f)
		}
		if ok || leaves != nil {
			c.leave(f, ok)
			return old, ok, leaves
		}
	}
}

// miss is the Entry of a flight that has ended with ErrNotFound.
func (f *flight[T]) miss() Entry[T] {
	return Entry[T]{Expires: f.fresh.Expires, Absent: f.fresh.Absent}
}

// cancelled reports whether a context was cancelled, rather than at the end of its time.
func cancelled(ctx context.Context) bool {
	return errors.Is(ctx.Err(), context.Canceled) && !errors.Is(context.Cause(ctx), context.DeadlineExceeded)
}

// instead returns the old value of a call in place of an error, if there is one.
func (c *Cache[T]) instead(ctx context.Context, f *flight[T], call *loading[T], err error) (Entry[T], error) {
	if !cancelled(ctx) {
		if old, ok := c.oldOf(ctx, call, f); ok {
			return old, nil
		}
	}
	return Entry[T]{}, &KeyError{"load", call.key, err}
}

// take returns a caller's own value of a flight that has one.
func (c *Cache[T]) take(f *flight[T]) (v T, err error) {
	mine := false
	f.first.Do(func() { mine = true })
	if mine {
		return f.value, nil
	}
	err = c.decodeValue(f.plain, &v)
	return v, err
}

// leave cancels a load without waiting callers, unless it may continue in the background.
func (l *loader[T]) leave(f *flight[T], goOn bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-f.loaded: // what is left is Redis's, and bounded; a write of the key must still find the flight
		f.waiting--
		return
	default:
	}
	if goOn {
		l.toBackground(f)
	}
	if f.waiting--; f.waiting > 0 {
		return
	}
	f.cancel()
	f.left = true // the next caller is not to get this one's error
}

// flight is the load of a key that callers can wait for, or nil; mu is locked.
func (l *loader[T]) flight(key string) *flight[T] {
	if f := l.flights[key]; f != nil && !f.left {
		return f
	}
	return nil
}

// forget takes a flight that has ended out of those of its key; mu is locked.
func (l *loader[T]) forget(key string, f *flight[T]) {
	first := l.flights[key]
	if first == f {
		if first = f.before; first == nil {
			delete(l.flights, key)
		} else {
			l.flights[key] = first
		}
		return
	}
	for ; first != nil; first = first.before {
		if first.before == f {
			first.before = f.before
		}
	}
}

// start starts a load; mu is locked.
func (l *loader[T]) start(ctx context.Context, call *loading[T], ahead bool) *flight[T] {
	f := &flight[T]{began: time.Now(), old: call.old, before: l.flights[call.key], loaded: make(chan struct{}), done: make(chan struct{})}
	ctx, f.cancel = context.WithTimeout(context.WithoutCancel(ctx), l.options.Timeout)
	l.flights[call.key] = f
	l.flying.Add(1)
	stop := context.AfterFunc(l.open, f.cancel)
	l.running.Go(func() {
		defer f.cancel()
		defer stop()
		f.err = guard("loading", func() (err error) {
			f.value, f.fresh, err = call.run(ctx, f, ahead)
			return err
		})
		call.settle()
		l.mu.Lock()
		f.ended = true
		l.forget(call.key, f)
		if f.background {
			l.background--
		}
		several := f.waiting > 1
		if l.closed && errors.Is(f.err, context.Canceled) {
			f.err = errClosed
		}
		l.mu.Unlock()
		if several && f.err == nil {
			f.err = guard("encoding", func() (err error) {
				f.plain, err = call.cache.appendValue(nil, f.value)
				return err
			})
		}
		l.flying.Add(-1)
		f.lending.Lock()
		close(f.done)
		f.lending.Unlock()
	})
	return f
}

// guard turns whatever ends a user's function into an error: a panic, or the end of its goroutine,
// for which it runs on one of its own.
func guard(what string, do func() error) (err error) {
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		finished := false
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("%s: %w", what, &codec.PanicError{Value: p, Stack: debug.Stack()})
			} else if !finished {
				err = fmt.Errorf("%s ended its goroutine", what)
			}
		}()
		err = do()
		finished = true
	}()
	<-returned
	return err
}
