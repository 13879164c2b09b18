package bale

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
)

// GetOrLoadMany is [Cache.GetOrLoad] for many keys: it reads them at once, and calls the loader
// once for all that miss. It waits for loads of these keys that are in flight. With
// LoadOptions.Lock it also waits for those of other processes; if such a load fails, it loads that
// key alone. Loads ahead of expiry also share one call.
//
// The loader returns the values of the keys it found, in a map that it leaves to the Cache. A key
// without a value is a miss, like ErrNotFound. With a [KeyErrors] only the keys in it have failed.
//
// The result has the keys with a value. If some fail, the error is a [KeyErrors] for them, and
// GetOrLoadMany still returns the others. A miss is no error.
func (c *Cache[T]) GetOrLoadMany(ctx context.Context, keys []string, load func(ctx context.Context, keys []string) (map[string]T, error), e ...Expiry) (map[string]Entry[T], error) {
	entries := make(map[string]Entry[T], len(keys))
	if len(keys) == 0 {
		return entries, nil
	}
	if _, err := c.expiry(e); err != nil {
		return entries, &KeyError{"load", keys[0], err}
	}
	store := combine(c.store)
	early, misses := newMany(c, load), newMany(c, load)
	var lock sync.Mutex // of entries and failed
	var failed KeyErrors
	add := func(key string, entry Entry[T], err error) {
		lock.Lock()
		defer lock.Unlock()
		switch {
		case err == nil:
			entries[key] = entry
		case !errors.Is(err, ErrNotFound):
			keyErr, ok := errors.AsType[*KeyError](err)
			if !ok {
				keyErr = &KeyError{"load", key, err}
			}
			failed = append(failed, keyErr)
		}
	}
	var waiting sync.WaitGroup
	calls := map[string]bool{} // keys that need more than what is read
	look := func(key string, v T, fresh *freshness, stored []byte, err error) {
		if calls[key] {
			return // a key that was given twice
		}
		good := err == nil && !fresh.expired(time.Now)
		ahead := good && c.early(fresh)
		if good && !ahead {
			add(key, Entry[T]{Value: v, Expires: fresh.Expires}, nil)
			return
		}
		calls[key] = true
		expiry, _ := c.expiry(e) // with a jitter of its own
		call := &loading[T]{cache: c, store: store, key: key, expiry: expiry}
		if ahead {
			early.add(call)
		}
		if entry, ok, err := call.see(ctx, v, *fresh, stored, err, ahead); ok {
			add(key, entry, err)
			return
		}
		misses.add(call)
		waiting.Go(func() {
			entry, err := c.join(ctx, call)
			add(key, entry, err)
		})
	}
	patient, cancel := c.patient(ctx)
	err := c.getMany(patient, keys, look)
	cancel()
	if _, some := errors.AsType[KeyErrors](err); err != nil && !some {
		for _, key := range keys { // of none the value is known
			var zero T
			look(key, zero, &freshness{}, nil, err)
		}
	}
	early.settle("")
	misses.settle("")
	waiting.Wait()
	if len(failed) > 0 {
		return entries, failed
	}
	return entries, nil
}

// many is the load of a GetOrLoadMany. It starts once all of its keys have settled: their flights
// need the loader, have ended without, or wait for another process.
type many[T any] struct {
	cache *Cache[T]
	load  func(ctx context.Context, keys []string) (map[string]T, error)

	decoding sync.Mutex
	batch    Batch // of the values that its flights find

	mu        sync.Mutex
	unsettled map[string]bool // and "" until all keys are added
	next      *round[T]
}

// round is one call of the loader.
type round[T any] struct {
	keys    []string
	waiting int // flights
	ctx     context.Context
	cancel  context.CancelFunc

	done   chan struct{} // closed when what follows is there
	values map[string]T
	err    error
	failed map[string]error
}

func newMany[T any](c *Cache[T], load func(ctx context.Context, keys []string) (map[string]T, error)) *many[T] {
	return &many[T]{cache: c, load: load, batch: c.packer.Batch(), unsettled: map[string]bool{"": true}}
}

// add makes this the load of a call.
func (m *many[T]) add(call *loading[T]) {
	m.mu.Lock()
	m.unsettled[call.key] = true
	m.mu.Unlock()
	call.many = m
	call.load = func(ctx context.Context) (T, error) { return m.wait(ctx, call.key) }
}

// settle says that a call does not need the loader, or not now.
func (l *loading[T]) settle() {
	if l.many != nil {
		l.many.settle(l.key)
	}
}

func (m *many[T]) settle(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.unsettled, key)
	r := m.next
	if len(m.unsettled) > 0 || r == nil {
		return
	}
	m.next = nil
	m.cache.running.Go(func() { // of a flight that waits: so Close waits too
		defer close(r.done)
		r.err = guard("the loader", func() (err error) {
			r.values, err = m.load(r.ctx, r.keys)
			return err
		})
		if failed, ok := errors.AsType[KeyErrors](r.err); ok {
			r.err, r.failed = nil, make(map[string]error, len(failed))
			for _, e := range failed {
				r.failed[e.Key] = e.Err
			}
		}
	})
}

// wait adds a key to the next call of the loader, and returns its value.
func (m *many[T]) wait(ctx context.Context, key string) (v T, err error) {
	m.mu.Lock()
	r := m.next
	if r == nil {
		r = &round[T]{done: make(chan struct{})}
		deadline, _ := ctx.Deadline() // a flight has one: LoadOptions.Timeout
		r.ctx, r.cancel = context.WithDeadline(context.WithoutCancel(ctx), deadline)
		m.next = r
	}
	r.keys = append(r.keys, key)
	r.waiting++
	m.mu.Unlock()
	m.settle(key)
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if r.waiting--; r.waiting == 0 {
			r.cancel()
			if m.next == r { // nobody waits for it any more
				m.next = nil
			}
		}
	}()
	select {
	case <-ctx.Done():
		return v, ctx.Err()
	case <-r.done:
	}
	v, ok := r.values[key]
	switch {
	case r.err != nil:
		return v, r.err
	case r.failed[key] != nil:
		return v, r.failed[key]
	case !ok:
		return v, ErrNotFound
	}
	return v, nil
}

// limited is a Store that refuses calls beyond so many at once: one behind a resilient.Limit. It
// returns 0 if it takes any number.
type limited interface{ AtOnce() int }

// combined is a Store that sends all Gets, or all Sets, that wait at a time as one command. Of the
// other calls it makes as many at once as a limited Store takes, and the rest wait for their turn.
type combined struct {
	Store
	gets, sets combiner
	others     chan struct{} // has an element for each in flight; nil for no limit
}

func combine(store Store) *combined {
	s := &combined{Store: store}
	if l, ok := store.(limited); ok {
		if n := l.AtOnce(); n > 0 {
			s.others = make(chan struct{}, n)
		}
	}
	s.gets.turn, s.sets.turn = make(chan struct{}, 1), make(chan struct{}, 1)
	s.gets.send = func(ctx context.Context, items []Item) ([][]byte, error) {
		keys := make([]string, len(items))
		for i, item := range items {
			keys[i] = item.Key
		}
		return store.GetMany(ctx, keys)
	}
	s.sets.send = func(ctx context.Context, items []Item) ([][]byte, error) {
		return nil, store.SetMany(ctx, items)
	}
	return s
}

func (s *combined) Get(ctx context.Context, key string) ([]byte, error) {
	value, err := s.gets.do(ctx, Item{Key: key})
	if err == nil && value == nil {
		err = ErrNotFound
	}
	return value, err
}

func (s *combined) Set(ctx context.Context, key string, value []byte, e Expiry) error {
	_, err := s.sets.do(ctx, Item{key, value, e})
	return err
}

func (s *combined) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (ok bool, err error) {
	err = s.turn(ctx, func() (err error) {
		ok, err = s.Store.Swap(ctx, key, old, value, ttl)
		return err
	})
	return ok, err
}

// PTTL returns nothing if the Store has no PTTL.
func (s *combined) PTTL(ctx context.Context, keys []string) (ttls []int64, err error) {
	store, ok := s.Store.(aging)
	if !ok {
		return nil, nil
	}
	err = s.turn(ctx, func() (err error) {
		ttls, err = store.PTTL(ctx, keys)
		return err
	})
	return ttls, err
}

func (s *combined) turn(ctx context.Context, call func() error) error {
	if s.others == nil {
		return call()
	}
	select {
	case s.others <- struct{}{}:
		defer func() { <-s.others }()
		return call()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// combiner sends what waits while it sends.
type combiner struct {
	send func(ctx context.Context, items []Item) ([][]byte, error)
	turn chan struct{} // held while a lot is sent

	mu   sync.Mutex
	next *lot
}

// lot is what is sent at a time.
type lot struct {
	items  []Item
	done   chan struct{} // closed when what follows is there
	values [][]byte
	err    error            // of all
	errs   map[string]error // or of some keys
}

// do sends an item with others. The first item of a lot sends it. The others wait for that even if
// their contexts end: their values are in use until then.
func (c *combiner) do(ctx context.Context, item Item) ([]byte, error) {
	c.mu.Lock()
	if c.next == nil {
		c.next = &lot{done: make(chan struct{})}
	}
	l, i := c.next, len(c.next.items)
	l.items = append(l.items, item)
	c.mu.Unlock()
	if i == 0 {
		c.lead(ctx, l)
	}
	<-l.done
	if err := cmp.Or(l.errs[item.Key], l.err); err != nil || l.values == nil {
		return nil, err
	}
	return l.values[i], nil
}

var errStorePanicked = errors.New("the Store panicked")

// lead sends a lot, within the deadline of its first item.
func (c *combiner) lead(ctx context.Context, l *lot) {
	l.err = errStorePanicked // unless it returns
	defer close(l.done)
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(context.WithoutCancel(ctx), deadline)
		defer cancel()
	}
	runtime.Gosched() // to the others that are about to come
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	c.mu.Lock()
	c.next = nil
	c.mu.Unlock()
	values, err := c.send(ctx, l.items)
	if some, ok := errors.AsType[KeyErrors](err); ok {
		err, l.errs = nil, make(map[string]error, len(some))
		for _, e := range some {
			l.errs[e.Key] = e.Err
		}
	}
	l.values, l.err = values, err
}
