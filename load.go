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

	// StaleIfError is how long beyond its expiry a value is still given out if its load fails. It stays in Redis so much longer. Other loads than
	// those of GetOrLoad do not see it. Defaults to 0, not at all.
	StaleIfError time.Duration

	// Lock, if not 0, lets one process at a time load a key: the others wait for what it stores. It is how long the lock lives in
	// Redis, at KEY:lock, if the process does not give it back: longer than a load takes, or there may be two.
	Lock time.Duration

	// Timeout ends the context of a load. Defaults to 30 s.
	Timeout time.Duration
}

const (
	defaultBeta        = 1
	defaultRefreshes   = 64
	defaultLoadTimeout = 30 * time.Second

	lockSuffix  = ":lock"
	minLockWait = 2 * time.Millisecond // between two looks at a lock that another process has, doubled each time
	maxLockWait = 100 * time.Millisecond
	unlockTime  = time.Second // for giving a lock back, whatever became of the caller
)

// loader is what GetOrLoad needs of a Cache.
type loader[T any] struct {
	options LoadOptions

	mu         sync.Mutex
	flights    map[string]*flight[T] // by key
	refreshing int
	closed     bool
	running    sync.WaitGroup
}

// flight is one load under way and all that wait for it.
type flight[T any] struct {
	cancel  context.CancelFunc
	waiting int           // callers, under loader.mu; when the last one leaves the load is cancelled
	done    chan struct{} // closed when what follows is there

	value T
	plain []byte // value encoded, if several wait: the first one gets value, each other one a copy of its own
	first sync.Once
	err   error
}

func (l *loader[T]) init(o LoadOptions) error {
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"NegativeTTL", o.NegativeTTL}, {"StaleIfError", o.StaleIfError}, {"Lock", o.Lock}, {"Timeout", o.Timeout}} {
		if d.d < 0 {
			return fmt.Errorf("bale: %w: Load.%s is %v, must not be negative", ErrInvalid, d.name, d.d)
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
// Loaded values are stored with their expiry inside, by this machine's clock, and expire by it.
func (c *Cache[T]) GetOrLoad(ctx context.Context, key string, e Expiry, load func(context.Context) (T, error)) (T, error) {
	var zero T
	expiry, err := c.expiry(e)
	if err != nil {
		return zero, &KeyError{"load", key, err}
	}
	v, fresh, err := c.get(ctx, key, c.recorder)
	l := loading[T]{c, key, expiry, load, errors.Is(err, ErrNotFound) || err == nil}
	switch {
	case err == nil && !fresh.expired(time.Now):
		if c.early(&fresh) {
			c.refresh(ctx, l)
		}
		return v, nil
	case fresh.Absent:
		return zero, ErrNotFound
	case ctx.Err() != nil:
		return zero, &KeyError{"load", key, context.Cause(ctx)}
	}
	return c.join(ctx, l)
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

var errClosed = fmt.Errorf("the cache is closed: %w", os.ErrClosed)

// early reports whether a value is to be loaded before it expires.
func (l *loader[T]) early(f *freshness) bool {
	if f.Expires.IsZero() || l.options.Beta < 0 {
		return false
	}
	ahead := float64(f.Took) * l.options.Beta * -math.Log(1-mathrand.Float64()) // of a number above 0
	return ahead >= float64(time.Until(f.Expires))
}

// loading is one call of GetOrLoad.
type loading[T any] struct {
	cache  *Cache[T]
	key    string
	expiry Expiry
	load   func(context.Context) (T, error)

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
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return v, &KeyError{"load", call.key, errClosed}
	}
	f := l.flights[call.key]
	if f == nil {
		f = l.start(ctx, call, false)
	}
	f.waiting++
	l.mu.Unlock()

	select {
	case <-f.done:
	case <-ctx.Done():
		l.mu.Lock()
		f.waiting--
		if f.waiting == 0 {
			f.cancel()
			if l.flights[call.key] == f {
				delete(l.flights, call.key) // who comes now is not to get an error that is not his own
			}
		}
		l.mu.Unlock()
		return v, &KeyError{"load", call.key, context.Cause(ctx)}
	}
	if f.err != nil {
		return v, &KeyError{"load", call.key, f.err}
	}
	mine := false
	f.first.Do(func() { mine = true })
	if mine || f.plain == nil {
		return f.value, nil
	}
	if err := call.cache.codec.Decode(f.plain, &v); err != nil {
		var zero T
		return zero, &KeyError{"load", call.key, &errCodec{"decode", err}}
	}
	return v, nil
}

// start starts a load; mu is locked.
func (l *loader[T]) start(ctx context.Context, call loading[T], ahead bool) *flight[T] {
	f := &flight[T]{done: make(chan struct{})}
	ctx, f.cancel = context.WithTimeout(context.WithoutCancel(ctx), l.options.Timeout)
	l.flights[call.key] = f
	l.running.Go(func() {
		defer f.cancel()
		f.value, f.err = call.run(ctx, ahead)
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
			if plain, err := call.cache.codec.Append(nil, f.value); err == nil { // else all share it
				f.plain = plain
			}
		}
		close(f.done)
	})
	return f
}

// run is a load from beginning to end.
func (l *loading[T]) run(ctx context.Context, ahead bool) (v T, err error) {
	o := &l.cache.options
	var stale T
	until := time.Time{} // the end of stale's time
	// look reports whether the value is there after all.
	look := func() (found bool) {
		var fresh freshness
		v, fresh, err = l.cache.get(ctx, l.key, nil)
		switch {
		case err == nil && !fresh.expired(time.Now):
			return !ahead
		case err == nil:
			stale, until = v, fresh.Expires.Add(o.StaleIfError)
		}
		return fresh.Absent
	}
	if l.readable {
		// Somebody may have stored it between the caller's look and now.
		if !ahead && look() {
			return v, err
		}
		if o.Lock > 0 {
			unlock, found := l.lock(ctx, ahead, look)
			if found {
				return v, err
			}
			defer unlock()
		}
	}
	op := stats.Load
	if ahead {
		op = stats.Refresh
	}
	rec := begin(ctx, l.cache.recorder, op, 1)
	start := time.Now()
	v, err = l.call(ctx)
	took := time.Since(start)
	rec.stage(stats.Loading)
	rec.end(ctx, err)
	switch {
	case err == nil:
		l.store(ctx, v, &frame.Freshness{Took: took})
	case errors.Is(err, ErrNotFound):
		if o.NegativeTTL > 0 {
			l.expiry = TTL(o.NegativeTTL)
			l.store(ctx, v, &frame.Freshness{Absent: true})
		}
	case time.Now().Before(until):
		return stale, nil
	}
	return v, err
}

// call calls the loader, and comes back whatever it does.
func (l *loading[T]) call(ctx context.Context) (v T, err error) {
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		finished := false
		defer func() {
			if p := recover(); p != nil {
				err = &errLoad{fmt.Errorf("the loader panicked: %v\n%s", p, debug.Stack())}
			} else if !finished {
				err = &errLoad{errors.New("the loader ended its goroutine")}
			}
		}()
		v, err = l.load(ctx)
		finished = true
	}()
	<-returned
	if err != nil {
		var zero T
		v = zero
		if _, ours := errors.AsType[*errLoad](err); !ours {
			err = &errLoad{err}
		}
	}
	return v, err
}

// store writes what was loaded, with when it expires.
func (l *loading[T]) store(ctx context.Context, v T, fresh *frame.Freshness) {
	if !l.readable {
		return
	}
	e := l.expiry
	switch {
	case e.In > 0:
		fresh.Expires = time.Now().Add(e.In)
		e.In += l.cache.options.StaleIfError
	case !e.At.IsZero():
		fresh.Expires = e.At
		e.At = e.At.Add(l.cache.options.StaleIfError)
	}
	_ = l.cache.set(ctx, l.key, v, e, fresh) // told to the Recorder, and no reason to withhold the value
}

// lock waits until this process may load the key, or look finds it. Where Redis does not give a lock, everybody may.
func (l *loading[T]) lock(ctx context.Context, ahead bool, look func() bool) (unlock func(), found bool) {
	token := []byte(rand.Text())
	key := l.key + lockSuffix
	for wait := minLockWait; ; wait = min(2*wait, maxLockWait) {
		ok, err := l.cache.store.Swap(ctx, key, nil, token, l.cache.options.Lock)
		if err != nil {
			return func() {}, false
		}
		if ok {
			unlock = func() {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTime)
				defer cancel()
				_, _ = l.cache.store.Swap(ctx, key, token, nil, 0) // it ends by itself else
			}
			if look() {
				unlock()
				return nil, true
			}
			return unlock, false
		}
		if ahead {
			return nil, true // another process is at it
		}
		select {
		case <-ctx.Done():
			return func() {}, false
		case <-time.After(wait/2 + mathrand.N(wait)):
		}
		if look() {
			return nil, true
		}
	}
}
