package bale

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stats"
)

// reading is a look of a load at its key.
type reading[T any] struct {
	stored []byte // nil for none
	value  T
	fresh  frame.Freshness
	err    error // ErrNotFound, or what is stored cannot be read
}

// look reads the key and reports whether it found a value or a cached miss; then no load is needed.
// A refresh looks for a value other than the one its caller saw.
func (l *loading[T]) look(ctx context.Context, f *flight[T], ahead bool) (r reading[T], found bool) {
	ctx, cancel := l.cache.patient(ctx)
	defer cancel()
	stored, err := l.store.Get(ctx, l.key)
	var batch *Batch
	if l.many != nil { // the values of a GetOrLoadMany count together, as long as it keeps them
		l.many.decoding.Lock()
		defer l.many.decoding.Unlock()
		batch = &l.many.batch
		before := batch.decoded
		defer func() {
			if !found {
				batch.decoded = before
			}
		}()
	}
	if err == nil {
		r.stored = stored
		if stored == nil {
			r.stored = []byte{}
		}
		var fresh freshness
		fresh, err = l.cache.decode(ctx, stored, &r.value, &recording{}, batch)
		r.fresh = fresh.Freshness
	}
	r.err = err
	current := r.fresh.Expires.IsZero() || time.Now().Before(r.fresh.Expires)
	switch {
	case err == nil:
		if found = current && (!ahead || r.fresh.Expires.IsZero() || r.fresh.Expires.After(l.seen)); !found {
			l.cache.setOld(f, r.stored)
		}
	case errors.Is(err, ErrNotFound):
		found = r.fresh.Absent && current
		l.cache.setOld(f, nil)
	case !l.cache.replaceable(err):
		l.storable = false // by this process, but perhaps by another
	}
	return r, found
}

// setOld sets the old value of a flight, nil for none.
func (l *loader[T]) setOld(f *flight[T], old []byte) {
	l.mu.Lock()
	f.old = old
	l.mu.Unlock()
}

// run is a load from beginning to end.
func (l *loading[T]) run(ctx context.Context, f *flight[T], ahead bool) (v T, fresh frame.Freshness, err error) {
	o := &l.cache.options
	var seen reading[T]
	var held *lock
	if l.storable {
		// Somebody may have stored it between the caller's look and now.
		var found bool
		if seen, found = l.look(ctx, f, ahead); !found && o.Lock > 0 {
			if held, seen, found, err = l.lock(ctx, f, ahead, seen); err != nil {
				return v, fresh, err
			}
		}
		if found {
			return seen.value, seen.fresh, seen.err
		}
	}
	if err := ctx.Err(); err != nil {
		held.release(ctx, nil)
		return v, fresh, err
	}
	op := stats.Load
	if ahead {
		op = stats.Refresh
	}
	var rec recording
	rec.begin(ctx, l.cache.recorder, op, 1)
	start := time.Now()
	held.renew(ctx)
	err = guard("the loader", func() (err error) {
		v, err = l.load(ctx)
		return err
	})
	if err != nil {
		var zero T
		v, err = zero, &errLoad{err}
	}
	f.early, f.earlyErr = v, err
	close(f.loaded)
	fresh.Took = time.Since(start)
	rec.stage(stats.Loading)
	rec.end(ctx, err)

	// The loader may have used up its time: its value is stored all the same.
	after := context.WithoutCancel(ctx)
	mine, lockErr := held.stop(after)
	if err != nil && !errors.Is(err, ErrNotFound) {
		if ctx.Err() == context.Canceled { // which says nothing about the source
			held.release(after, nil)
		} else {
			held.release(after, failedMark)
		}
		return v, frame.Freshness{}, err
	}
	if e := l.expiry; err != nil && o.NegativeTTL > 0 {
		fresh = frame.Freshness{Absent: true, Expires: time.Now().Add(o.NegativeTTL)}
	} else if e.in > 0 {
		fresh.Expires = time.Now().Add(e.in)
	} else {
		fresh.Expires = e.at
	}
	if !fresh.Expires.IsZero() { // as a reader of the frame will have it
		fresh.Expires = time.UnixMilli(fresh.Expires.UnixMilli())
	}
	if lockErr != nil { // do without Redis, which fails
		held.release(after, nil)
		return v, fresh, err
	}
	kept, overtaken := l.keep(after, f, mine, v, fresh, err, &seen)
	if kept && err != nil && o.NegativeTTL == 0 {
		held.release(after, slices.Concat(absentMark, held.mine()))
	} else {
		held.release(after, nil)
	}
	if !kept {
		if !overtaken { // callers of before a Set or Delete get what was loaded
			if newer, found := l.look(after, f, false); found {
				return newer.value, newer.fresh, newer.err
			}
		}
		fresh = frame.Freshness{Expires: time.Now()} // it may be older than what others have done
	}
	return v, fresh, err
}

// keep stores a loaded value or miss. It reports false if the key has changed since the load began,
// by this Cache (overtaken) or another. It also reports false if the key may have changed because
// the lock was lost; mine says whether the load holds it. A Redis that fails is not a reason.
func (l *loading[T]) keep(ctx context.Context, f *flight[T], mine bool, v T, fresh frame.Freshness, err error, seen *reading[T]) (kept, overtaken bool) {
	f.storing.Lock()
	defer f.storing.Unlock()
	switch {
	case f.overtaken:
		return false, true
	case !l.storable:
		return true, false
	case !mine:
		return false, false
	}
	c := l.cache
	c.overtakeOlder(f)
	ctx, cancel := c.patient(ctx)
	defer cancel()
	unreadable := seen.stored != nil && seen.err != nil && !errors.Is(seen.err, ErrNotFound)
	swapped, storeErr := true, error(nil)
	switch {
	case err != nil && fresh.Absent:
		var absent []byte
		if absent, _, storeErr = c.packer.pack(nil, nil, &fresh); storeErr == nil {
			swapped, storeErr = l.store.Swap(ctx, l.key, seen.stored, absent, c.options.NegativeTTL)
		}
	case err != nil && seen.stored != nil:
		// An old value must not outlive the loader's ErrNotFound.
		swapped, storeErr = l.store.Swap(ctx, l.key, seen.stored, nil, 0)
	case err != nil:
		return true, false
	case c.options.Lock > 0 || unreadable:
		swapped, storeErr = c.set(ctx, l.store, l.key, v, l.expiry, &fresh, &fence{seen.stored})
	default:
		_, storeErr = c.set(ctx, l.store, l.key, v, l.expiry, &fresh, nil)
	}
	if storeErr != nil {
		if err != nil { // set tells the Recorder itself
			var rec recording
			rec.begin(ctx, c.recorder, stats.Set, 1)
			rec.end(ctx, storeErr)
		}
		return true, false // no reason to withhold the value
	}
	if swapped && unreadable {
		var rec recording
		rec.begin(ctx, c.recorder, stats.Replace, 1)
		rec.end(ctx, nil)
		if c.log != nil {
			c.log.Warn("bale: replaced a value that could not be read", "key", l.key, "error", seen.err)
		}
	}
	return swapped, false
}

// What the lock's key holds beside the token of its holder.
var (
	failedMark = []byte("failed")  // a load has failed, and none starts until this expires
	absentMark = []byte("absent:") // with the token of a load that found nothing: its waiters need not load
)

// isToken reports whether a lock's key holds what rand.Text makes.
func isToken(holder []byte) bool {
	const length = 26
	return len(holder) == length && !bytes.ContainsFunc(holder, func(c rune) bool { return !(c >= 'A' && c <= 'Z' || c >= '2' && c <= '7') })
}

// foreign reports whether the lock's key holds something that no load has written, or a lock that
// does not expire in time. Both may stay without end. If the Store cannot return expiries, the lock
// counts as valid.
func (l *loading[T]) foreign(ctx context.Context, key string, holder []byte) bool {
	if finder, found := bytes.CutPrefix(holder, absentMark); found { // the next load replaces it
		return !isToken(finder)
	}
	if !isToken(holder) && !bytes.Equal(holder, failedMark) {
		return true
	}
	store, ok := l.store.(aging)
	if !ok {
		return false
	}
	o := &l.cache.options
	ttls, err := store.PTTL(ctx, []string{key})
	return err == nil && len(ttls) == 1 && (ttls[0] == -1 || ttls[0] > ceilMillis(max(o.Lock, o.Backoff)))
}

// lock waits until this process may load the key, or finds that it need not. Where Redis does not
// give a lock, or its key holds something foreign, everybody may, and there is none.
func (l *loading[T]) lock(ctx context.Context, f *flight[T], ahead bool, seen reading[T]) (_ *lock, _ reading[T], found bool, err error) {
	c := l.cache
	k := &lock{store: l.store, key: l.key + lockSuffix, token: []byte(rand.Text()), options: &c.options}
	k.open, k.running = c.open, &c.running
	var holder, known, waitedFor []byte
	var checked time.Time // when known was
	rested := true        // since the last attempt
	for attempt, wait := true, minLockWait; ; wait = min(2*wait, maxLockWait) {
		ok, foreign := false, false
		patient, cancel := c.patient(ctx)
		if attempt {
			ok, err = k.store.Swap(patient, k.key, holder, k.token, c.options.Lock)
		}
		if err == nil && !ok && !ahead {
			if holder, err = k.store.Get(patient, k.key); errors.Is(err, ErrNotFound) {
				holder, err = nil, nil
			} else if err == nil && (len(holder) == 0 || !bytes.Equal(holder, known) || time.Since(checked) >= c.options.Lock) {
				foreign = l.foreign(patient, k.key, holder) // again after a while: it may have lost its expiry
				known, checked = holder, time.Now()
			}
		}
		cancel()
		attempt = false
		switch {
		case err != nil && ctx.Err() == nil:
			return nil, seen, false, nil
		case err != nil:
			return nil, seen, false, ctx.Err()
		case ok:
			if seen, found = l.look(ctx, f, ahead); found {
				k.release(ctx, nil)
				return nil, seen, true, nil
			}
			return k, seen, false, nil
		case ahead:
			return nil, seen, false, errNotLoaded
		case foreign:
			return nil, seen, false, nil
		case bytes.Equal(holder, failedMark):
			return nil, seen, false, &errLoad{ErrLoadFailed}
		case bytes.HasPrefix(holder, absentMark) && waitedFor != nil && bytes.HasSuffix(holder, waitedFor):
			return nil, reading[T]{err: ErrNotFound}, true, nil
		case holder == nil || bytes.HasPrefix(holder, absentMark):
			attempt = true
			if rested && ctx.Err() == nil {
				rested = false
				continue
			}
		default:
			waitedFor = holder
		}
		l.settle()
		rested = true
		select {
		case <-ctx.Done():
			return nil, seen, false, ctx.Err()
		case <-time.After(wait/2 + mathrand.N(wait)):
		}
		if seen, found = l.look(ctx, f, ahead); found {
			return nil, seen, true, nil
		}
	}
}

// lock is a lock that this process has taken. Nil is none, which always holds.
type lock struct {
	store   Store
	key     string
	token   []byte
	options *LoadOptions
	open    context.Context // the Cache's
	running *sync.WaitGroup // likewise

	end   context.CancelFunc // ends the renewals
	done  chan struct{}      // closed when they have ended
	fails bool               // Redis did not answer stop
}

// mine is the token.
func (k *lock) mine() []byte {
	if k == nil {
		return nil
	}
	return k.token
}

// renew renews the lock until stop, or until ctx ends: a loader that never returns must not keep
// it.
func (k *lock) renew(ctx context.Context) {
	if k == nil {
		return
	}
	ctx, k.end = context.WithCancel(ctx)
	k.done = make(chan struct{})
	go func() {
		defer close(k.done)
		ticker := time.NewTicker(max(k.options.Lock/renewals, time.Millisecond))
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if ctx.Err() != nil { // at the same moment
					return
				}
				if holds, err := k.holds(ctx); err == nil && !holds {
					return
				}
			}
		}
	}()
}

// holds prolongs the lock, and reports false if it is lost. Another process has it then, or may
// have had it.
func (k *lock) holds(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, k.options.Patience)
	defer cancel()
	return k.store.Swap(ctx, k.key, k.token, k.token, k.options.Lock)
}

// stop ends the renewals and reports whether the lock holds. The error is that of Redis.
func (k *lock) stop(ctx context.Context) (bool, error) {
	if k == nil {
		return true, nil
	}
	k.end()
	<-k.done
	holds, err := k.holds(ctx)
	k.fails = err != nil
	return holds, err
}

// release gives the lock back, or leaves a mark in its place for Backoff. If Redis fails or a Guard
// refuses the call, release tries again in the background, until the lock expires or the Cache is
// closed. It tries twice, so that it hardly adds to the load of a Redis in trouble.
func (k *lock) release(ctx context.Context, mark []byte) {
	if k == nil {
		return
	}
	ctx = context.WithoutCancel(ctx)
	swap := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, unlockTime)
		defer cancel()
		_, err := k.store.Swap(ctx, k.key, k.token, mark, k.options.Backoff)
		return err
	}
	if !k.fails && swap(ctx) == nil {
		return
	}
	k.running.Go(func() { // of a flight: so Close waits
		ctx, cancel := context.WithTimeout(ctx, k.options.Lock)
		defer cancel()
		defer context.AfterFunc(k.open, cancel)()
		for wait := k.options.Lock / 16; ; wait *= 8 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			if swap(ctx) == nil {
				return
			}
		}
	})
}
