package bale

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stats"
)

// LoadOptions are the settings of [Cache.GetOrLoad]; the zero value is useful. Caches that share keys should have the same.
type LoadOptions struct {
	// Beta is how eagerly a value is loaded anew before it expires, so that it is there when it would have. A load that took long, a value close
	// to its end and a larger Beta make it likelier, by the rule of XFetch: when now - took*Beta*ln(random) is beyond the expiry (Vattani, Chierichetti, Lowenstein:
	// Optimal Probabilistic Cache Stampede Prevention, VLDB 2015). Callers get the value that is there, and do not wait. Defaults to 1; negative
	// for never.
	Beta float64

	// Refreshes is how many such loads may run at once. Defaults to 64; beyond, a value just expires.
	Refreshes int

	// NegativeTTL is how long it is kept that there is no value, where the loader said ErrNotFound. Defaults to 0, not at all.
	NegativeTTL time.Duration

	// StaleIfError is how long beyond its expiry a value is still given out if its load fails. It stays in Redis so much longer. Get and GetMany do not
	// see it then; a Packer and a hook, which know nothing of expiries, do. Defaults to 0, not at all.
	StaleIfError time.Duration

	// Lock, if not 0, lets one process at a time load a key: the others wait for what it stores. It is how long the lock lives in
	// Redis, at KEY:lock, if the process does not give it back: longer than a load takes, or there may be two.
	Lock time.Duration

	// Timeout ends the context of a load. Defaults to 30 s.
	Timeout time.Duration

	// Patience is how long GetOrLoad waits for Redis in one step at most, before it does without: when it reads, takes the lock and stores. It is at most half of
	// what is left of the caller's deadline. The client must honour contexts (of go-redis, ContextTimeoutEnabled). A Redis that is slow and not down should be waited for: each
	// caller that does not adds to the loads. Defaults to 2 s.
	Patience time.Duration
}

const (
	defaultBeta        = 1
	defaultRefreshes   = 64
	defaultLoadTimeout = 30 * time.Second
	defaultPatience    = 2 * time.Second

	lockSuffix  = ":lock"
	minLockWait = 2 * time.Millisecond // between two looks at a lock that another process has, doubled each time
	maxLockWait = 100 * time.Millisecond
	unlockTime  = time.Second // for giving a lock back, whatever became of the caller
)

// loader is what GetOrLoad needs of a Cache.
type loader[T any] struct {
	options LoadOptions

	flying     atomic.Int64 // flights, so that who writes need not take mu where there are none
	mu         sync.Mutex
	flights    map[string]*flight[T] // by key; one that was overtaken by a write is not here any more
	refreshing int
	closed     bool
	running    sync.WaitGroup
}

// flight is one load under way and all that wait for it.
type flight[T any] struct {
	cancel  context.CancelFunc
	waiting int // callers, under loader.mu; when the last one leaves the load is cancelled

	storing   sync.Mutex // held while what was loaded is stored
	overtaken bool       // under storing: the key was written or deleted since, so that nothing is to be stored

	done  chan struct{} // closed when what follows is there
	value T
	plain []byte // value encoded, if several wait: the first one gets value, each other one a copy of its own
	first sync.Once
	err   error
}

func (l *loader[T]) init(o LoadOptions) error {
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"NegativeTTL", o.NegativeTTL}, {"StaleIfError", o.StaleIfError}, {"Lock", o.Lock}, {"Timeout", o.Timeout}, {"Patience", o.Patience}} {
		if d.d != 0 && d.d < time.Millisecond {
			return fmt.Errorf("bale: %w: Load.%s is %v, must be at least 1ms, or 0", ErrInvalid, d.name, d.d)
		}
	}
	if math.IsNaN(o.Beta) || o.Refreshes < 0 {
		return fmt.Errorf("bale: %w: Load.Beta is %v and Load.Refreshes %d, must be a number and not negative", ErrInvalid, o.Beta, o.Refreshes)
	}
	if o.Beta == 0 {
		o.Beta = defaultBeta
	}
	if o.Refreshes == 0 {
		o.Refreshes = defaultRefreshes
	}
	if o.Timeout == 0 {
		o.Timeout = defaultLoadTimeout
	}
	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	l.options, l.flights = o, map[string]*flight[T]{}
	return nil
}

// errLoad is the class of what a loader says.
type errLoad struct{ err error }

func (e *errLoad) Error() string { return e.err.Error() }
func (e *errLoad) Unwrap() error { return e.err }

// GetOrLoad returns the value of a key, or loads and stores it if there is none. All callers in this process that wait for the same key wait for
// one load, and each gets a value of its own; [LoadOptions] has more: one load among all processes, loads ahead of expiry, what is not
// there remembered, and old values for when a load fails.
//
// The loader gets a context with the values of its first caller's, which ends when all callers have left, or with LoadOptions.Timeout. One that panics
// makes an error for those who wait for it. Its error comes back in a [KeyError].
//
// The cache never stands in the way of a value: if Redis cannot be read, or what is there cannot be unpacked, the value is loaded; if it cannot be stored, it is
// returned all the same, and the Recorder is told. What cannot be unpacked is left as it is.
//
// A load that a Set, SetMany or Delete of the same Cache overtakes is not stored. One of another process, or past the Cache, can be overwritten by a load that began
// before it: what is written there and must not be seen old should be deleted after a moment again, or have a short expiry.
//
// Loaded values are stored with their expiry inside, by this machine's clock, and expire by it.
func (c *Cache[T]) GetOrLoad(ctx context.Context, key string, e Expiry, load func(context.Context) (T, error)) (T, error) {
	v, _, err := c.Fetch(ctx, key, e, load)
	return v, err
}

// Fetch is GetOrLoad that says whether the value is an old one, beyond its expiry, given out because its load failed: see LoadOptions.StaleIfError.
func (c *Cache[T]) Fetch(ctx context.Context, key string, e Expiry, load func(context.Context) (T, error)) (v T, stale bool, err error) {
	var zero T
	expiry, err := c.expiry(e)
	if err != nil {
		return zero, false, &KeyError{"load", key, err}
	}
	patient, cancel := c.patient(ctx)
	v, fresh, err := c.get(patient, key, c.recorder)
	cancel()
	l := loading[T]{cache: c, key: key, expiry: expiry, load: load, readable: errors.Is(err, ErrNotFound) || err == nil, seen: fresh.Expires}
	switch {
	case err == nil && !fresh.expired(time.Now):
		if c.early(&fresh) {
			c.refresh(ctx, l)
		}
		return v, false, nil
	case fresh.Absent:
		return zero, false, ErrNotFound
	case ctx.Err() != nil:
		return zero, false, &KeyError{"load", key, context.Cause(ctx)}
	}
	hasOld := err == nil
	loaded, err := c.join(ctx, l)
	if _, failed := errors.AsType[*errLoad](err); failed && hasOld && !errors.Is(err, ErrNotFound) && time.Now().Before(fresh.Expires.Add(c.options.StaleIfError)) {
		return v, true, nil
	}
	return loaded, false, err
}

// patient is the context for one step with Redis.
func (l *loader[T]) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	d := l.options.Patience
	if deadline, ok := ctx.Deadline(); ok {
		d = min(d, time.Until(deadline)/2)
	}
	return context.WithTimeout(ctx, d)
}

// Close ends the loads of [Cache.GetOrLoad] that still run, and waits for their loaders to return. Afterwards nothing is loaded any more. The Store and the
// Packer stay the caller's. A Cache whose GetOrLoad is not used need not be closed.
func (c *Cache[T]) Close() error {
	c.mu.Lock()
	c.closed = true
	for _, f := range c.flights {
		f.cancel()
	}
	c.mu.Unlock()
	c.running.Wait()
	return nil
}

var (
	errClosed = fmt.Errorf("the cache is closed: %w", os.ErrClosed)

	// errNotLoaded: another process is at it, and nobody was to wait.
	errNotLoaded = errors.New("not loaded")
)

// early reports whether a value is to be loaded before it expires.
func (l *loader[T]) early(f *freshness) bool {
	if f.Expires.IsZero() || l.options.Beta < 0 {
		return false
	}
	ahead := float64(f.Took) * l.options.Beta * -math.Log(1-mathrand.Float64()) // of a number above 0
	return ahead >= float64(time.Until(f.Expires))
}

// overtake lets the loads of keys come to nothing in Redis: the keys are being written. A write calls it before and after: one that stores at the moment is waited for, and one that
// begins meanwhile may have read what was there before.
func (l *loader[T]) overtake(keys ...string) {
	if l.flying.Load() == 0 {
		return
	}
	for _, key := range keys {
		l.mu.Lock()
		f := l.flights[key]
		delete(l.flights, key)
		l.mu.Unlock()
		if f != nil {
			f.storing.Lock()
			f.overtaken = true
			f.storing.Unlock()
		}
	}
}

// loading is one call of GetOrLoad.
type loading[T any] struct {
	cache  *Cache[T]
	key    string
	expiry Expiry
	load   func(context.Context) (T, error)
	seen   time.Time // when the value expires that the caller saw

	// readable says that Redis answered, with a value or none: it is worth asking again, and nothing is lost by storing.
	readable bool
}

// refresh loads a value in the background, unless it is loaded already.
func (l *loader[T]) refresh(ctx context.Context, call loading[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.flights[call.key] != nil || l.refreshing >= l.options.Refreshes {
		return
	}
	l.refreshing++
	f := l.start(ctx, call, true)
	f.waiting++ // itself: it is not cancelled
}

// join waits for the load of a key, which it starts if nobody has.
func (l *loader[T]) join(ctx context.Context, call loading[T]) (v T, err error) {
	var f *flight[T]
	for f == nil {
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			return v, &KeyError{"load", call.key, errClosed}
		}
		f = l.flights[call.key]
		if f == nil {
			f = l.start(ctx, call, false)
		}
		f.waiting++
		l.mu.Unlock()

		select {
		case <-f.done:
		case <-ctx.Done():
			l.leave(call.key, f)
			return v, &KeyError{"load", call.key, context.Cause(ctx)}
		}
		if errors.Is(f.err, errNotLoaded) {
			f = nil // a refresh that gave up; this caller does not
		}
	}
	if f.err != nil {
		return v, &KeyError{"load", call.key, f.err}
	}
	mine := false
	f.first.Do(func() { mine = true })
	if mine {
		return f.value, nil
	}
	if err := call.cache.codec.Decode(f.plain, &v); err != nil {
		var zero T
		return zero, &KeyError{"load", call.key, &errCodec{"decode", err}}
	}
	return v, nil
}

// leave cancels a load that nobody waits for any more.
func (l *loader[T]) leave(key string, f *flight[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.waiting--; f.waiting > 0 {
		return
	}
	f.cancel()
	if l.flights[key] == f {
		delete(l.flights, key) // who comes now is not to get an error that is not his own
	}
}

// start starts a load; mu is locked.
func (l *loader[T]) start(ctx context.Context, call loading[T], ahead bool) *flight[T] {
	f := &flight[T]{done: make(chan struct{})}
	ctx, f.cancel = context.WithTimeout(context.WithoutCancel(ctx), l.options.Timeout)
	l.flights[call.key] = f
	l.flying.Add(1)
	l.running.Go(func() {
		defer f.cancel()
		f.err = guard("loading", func() (err error) {
			f.value, err = call.run(ctx, f, ahead)
			return err
		})
		l.mu.Lock()
		if l.flights[call.key] == f {
			delete(l.flights, call.key)
		}
		if ahead {
			l.refreshing--
		}
		several := f.waiting > 1
		if l.closed && errors.Is(f.err, context.Canceled) {
			f.err = errClosed
		}
		l.mu.Unlock()
		if several && f.err == nil {
			f.err = guard("encoding", func() (err error) {
				if f.plain, err = call.cache.codec.Append(nil, f.value); err != nil {
					return &errCodec{"encode", err}
				}
				return nil
			})
		}
		l.flying.Add(-1)
		close(f.done)
	})
	return f
}

// guard makes an error of whatever ends a function of the user's: a panic, or the end of its goroutine, which is one of its own.
func guard(what string, do func() error) (err error) {
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		finished := false
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("%s panicked: %v\n%s", what, p, debug.Stack())
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

// run is a load from beginning to end.
func (l *loading[T]) run(ctx context.Context, f *flight[T], ahead bool) (v T, err error) {
	o := &l.cache.options
	var zero T
	var stored []byte // what is there, of a value that has expired
	// look reports whether the value is there after all, or is said not to be.
	look := func() (found bool) {
		var fresh freshness
		ctx, cancel := l.cache.patient(ctx)
		defer cancel()
		stored, err = l.cache.store.Get(ctx, l.key)
		if err == nil {
			rec := recording{}
			fresh, err = l.cache.decode(ctx, stored, &v, &rec)
		}
		switch {
		case err == nil:
			return !fresh.expired(time.Now) && (!ahead || fresh.Expires.After(l.seen))
		case !errors.Is(err, ErrNotFound):
			l.readable = false // by this process, but perhaps by another
		case fresh.Absent && !fresh.expired(time.Now):
			err = ErrNotFound
			return true
		}
		return false
	}
	if l.readable {
		// Somebody may have stored it between the caller's look and now.
		if look() {
			return v, err
		}
		if o.Lock > 0 {
			unlock, found, lockErr := l.lock(ctx, ahead, look)
			if found {
				return v, err
			}
			if lockErr != nil {
				return zero, lockErr
			}
			defer unlock()
		}
	}
	if err := ctx.Err(); err != nil {
		return zero, err
	}
	op := stats.Load
	if ahead {
		op = stats.Refresh
	}
	var rec recording
	rec.begin(ctx, l.cache.recorder, op, 1)
	start := time.Now()
	err = guard("the loader", func() (err error) {
		v, err = l.load(ctx)
		return err
	})
	if err != nil {
		v, err = zero, &errLoad{err}
	}
	took := time.Since(start)
	rec.stage(stats.Loading)
	rec.end(ctx, err)

	f.storing.Lock()
	defer f.storing.Unlock()
	if f.overtaken || !l.readable {
		return v, err
	}
	// The loader may have used up its time: what it brought is stored all the same.
	ctx, cancel := l.cache.patient(context.WithoutCancel(ctx))
	defer cancel()
	switch {
	case err == nil:
		fresh := frame.Freshness{Took: took}
		if e := l.expiry; e.In > 0 {
			fresh.Expires = time.Now().Add(e.In)
		} else {
			fresh.Expires = e.At
		}
		_ = l.cache.set(ctx, l.key, v, l.expiry, &fresh) // told to the Recorder, and no reason to withhold the value
	case errors.Is(err, ErrNotFound) && o.NegativeTTL > 0:
		l.remember(ctx, stored)
	}
	return v, err
}

// remember stores that there is no value, in place of what was there: nothing, or a value that has expired. What came since stays.
func (l *loading[T]) remember(ctx context.Context, old []byte) {
	ttl := l.cache.options.NegativeTTL
	absent, _, err := l.cache.packer.pack(nil, nil, &frame.Freshness{Expires: time.Now().Add(ttl), Absent: true})
	if err == nil {
		_, err = l.cache.store.Swap(ctx, l.key, old, absent, ttl)
	}
	if err != nil {
		var rec recording
		rec.begin(ctx, l.cache.recorder, stats.Set, 1)
		rec.end(ctx, err)
	}
}

// lock waits until this process may load the key, or look finds it. Where Redis does not give a lock, everybody may.
func (l *loading[T]) lock(ctx context.Context, ahead bool, look func() bool) (unlock func(), found bool, err error) {
	token := []byte(rand.Text())
	key := l.key + lockSuffix
	for wait := minLockWait; ; wait = min(2*wait, maxLockWait) {
		patient, cancel := l.cache.patient(ctx)
		ok, err := l.cache.store.Swap(patient, key, nil, token, l.cache.options.Lock)
		cancel()
		switch {
		case err != nil && ctx.Err() == nil:
			return func() {}, false, nil
		case ok:
			unlock = func() {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTime)
				defer cancel()
				_, _ = l.cache.store.Swap(ctx, key, token, nil, 0) // it ends by itself else
			}
			if look() {
				unlock()
				return nil, true, nil
			}
			return unlock, false, nil
		case ahead:
			return nil, false, errNotLoaded
		}
		select {
		case <-ctx.Done():
			return nil, false, ctx.Err()
		case <-time.After(wait/2 + mathrand.N(wait)):
		}
		if look() {
			return nil, true, nil
		}
	}
}
