// Package batch writes many values in few pipelines. [Store] stands between a bale.Cache, or any
// other writer, and the bale.Store of a client.
//
// A Set returns when its value is in the buffer, or with [Options].Wait when it is in Redis. The
// buffer is sent when it has enough values, or when the first of them has waited long enough. The
// Store's own Get sees a buffered value at once; other programs see it after it was sent. Buffered
// values are lost if the process dies: do not use a batch for values that must survive that.
package batch

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/internal/bufpool"
	"github.com/balekv/bale/stats"
)

// Options are the settings of a [Store]; the zero value is useful.
type Options struct {
	// Entries is how many values make a pipeline. Default 100. While a pipeline is in flight,
	// further values wait and go out together, so a busy Store's pipelines get longer.
	Entries int

	// Delay is how long a value waits at most for others. Default 50 ms.
	Delay time.Duration

	// MaxBytes bounds the keys and values in the buffer and in flight. Default 16 MiB. Each of the
	// Lanes has an equal part. A larger value waits until its lane is empty, and is sent alone.
	MaxBytes int

	// Drop makes a Set fail with [ErrFull] when the buffer is full. By default it waits for room,
	// until its context ends.
	Drop bool

	// Wait makes Set return when the value is in Redis or has failed, with the error of that value.
	// By default Set returns when the value is in the buffer. Failed then receives errors, or if it
	// is nil the next Flush.
	Wait bool

	// Failed receives the keys of values that did not get to Redis, with their errors. The Store's
	// goroutines call it, several at once, and wait for it: it must not wait for the Store.
	Failed func(bale.KeyErrors)

	// Lanes is how many pipelines can be in flight at once. A key is always in the same lane, so
	// that its values arrive in order. Default 4; 1 to 64.
	Lanes int

	// Timeout ends a pipeline without an answer. Default 10 s.
	Timeout time.Duration

	// Recorder receives an Event of stats.Flush for each pipeline; nil for none.
	Recorder stats.Recorder
}

const (
	defaultEntries  = 100
	defaultDelay    = 50 * time.Millisecond
	defaultMaxBytes = 16 << 20
	defaultLanes    = 4
	maxLanes        = 64
	defaultTimeout  = 10 * time.Second

	entryBytes = 96 // what an entry takes beside its key and value: Item, index, map
)

var (
	// ErrFull: the buffer has no room for a value, and Drop is set.
	ErrFull = errors.New("batch: the buffer is full")

	// ErrClosed: the Store is closed, and takes no more values.
	ErrClosed = errors.New("batch: the Store is closed")
)

// Store is a bale.Store whose Set and SetMany go through a buffer. Make one with [New]; it is safe
// for concurrent use.
type Store struct {
	store   bale.Store
	options Options
	seed    maphash.Seed
	lanes   []*lane
	stop    chan struct{}
	once    sync.Once
	done    sync.WaitGroup
}

var _ bale.Store = (*Store)(nil)

// lane is one of the buffers of a Store, with its own goroutine that sends it.
type lane struct {
	*Store
	maxBytes int

	mu      sync.Mutex
	filling *buffer
	sent    *buffer       // in flight; empty if none is
	room    chan struct{} // if a caller waits for room: closed when there is some
	large   int           // values that wait for an empty buffer
	closed  bool
	failed  bale.KeyErrors // for the next Flush
	more    int            // failed values beyond keptErrors

	begun chan struct{} // the first value has come
	full  chan struct{} // enough have
	flush chan chan struct{}
}

// keptErrors bounds the errors that a lane keeps for the next Flush.
const keptErrors = 1000

// buffer is the values of one pipeline, in one block of memory. It is reused.
type buffer struct {
	items   []bale.Item // without their values until it is sent
	places  []place     // of the values in bytes
	index   map[string]int
	bytes   []byte
	size    int // as MaxBytes counts
	first   time.Time
	outcome *outcome
}

type place struct{ start, end int }

// outcome is the result of a buffer's values. It outlives the buffer: callers may read it later.
type outcome struct {
	done chan struct{} // closed when the rest is there
	errs map[string]error

	mu   sync.Mutex
	left map[string]bool // keys whose callers have not waited
}

func newBuffer() *buffer { return &buffer{index: map[string]int{}} }

func (b *buffer) reset(maxBytes int) {
	bufpool.Poison(b.bytes)
	clear(b.items)
	clear(b.index)
	b.items, b.places, b.bytes, b.size, b.outcome = b.items[:0], b.places[:0], b.bytes[:0], 0, nil
	if cap(b.bytes) > 2*maxBytes {
		b.bytes = nil
	}
}

// value returns a copy of the value of a key, and whether it is buffered. The copy is nil for a
// value that expires before it gets to Redis.
func (b *buffer) value(key string) ([]byte, bool) {
	i, ok := b.index[key]
	if !ok || expired(b.items[i].Expiry) {
		return nil, ok
	}
	v := make([]byte, b.places[i].end-b.places[i].start) // not nil, even if it is empty
	copy(v, b.bytes[b.places[i].start:])
	return v, true
}

// expired reports whether an expiry has passed.
func expired(e bale.Expiry) bool {
	ms, absolute := e.Millis()
	return absolute && time.Now().UnixMilli() >= ms
}

// New makes a Store over another. The caller still owns that one, and closes it after this one. An
// option out of range is bale.ErrInvalid.
func New(store bale.Store, o Options) (*Store, error) {
	for _, f := range []struct {
		name             string
		value            *int
		fallback, lo, hi int
	}{
		{"Entries", &o.Entries, defaultEntries, 1, 1 << 20}, {"MaxBytes", &o.MaxBytes, defaultMaxBytes, 1 << 10, math.MaxInt}, {"Lanes", &o.Lanes, defaultLanes, 1, maxLanes},
	} {
		if *f.value == 0 {
			*f.value = f.fallback
		}
		if *f.value < f.lo || *f.value > f.hi {
			return nil, fmt.Errorf("batch: %w: %s is %d, must be %d to %d, or 0 for %d", bale.ErrInvalid, f.name, *f.value, f.lo, f.hi, f.fallback)
		}
	}
	for _, f := range []struct {
		name     string
		value    *time.Duration
		fallback time.Duration
	}{{"Delay", &o.Delay, defaultDelay}, {"Timeout", &o.Timeout, defaultTimeout}} {
		if *f.value == 0 {
			*f.value = f.fallback
		}
		if *f.value < 0 {
			return nil, fmt.Errorf("batch: %w: %s is %v, must not be negative", bale.ErrInvalid, f.name, *f.value)
		}
	}
	if store == nil {
		return nil, fmt.Errorf("batch: %w: no Store", bale.ErrInvalid)
	}
	s := &Store{store: store, options: o, seed: maphash.MakeSeed(), stop: make(chan struct{})}
	for range o.Lanes {
		l := &lane{Store: s, maxBytes: o.MaxBytes / o.Lanes, filling: newBuffer(), sent: newBuffer(),
			begun: make(chan struct{}, 1), full: make(chan struct{}, 1), flush: make(chan chan struct{})}
		s.lanes = append(s.lanes, l)
		s.done.Go(l.run)
	}
	return s, nil
}

func (s *Store) lane(key string) *lane {
	return s.lanes[maphash.String(s.seed, key)%uint64(len(s.lanes))]
}

// Set implements bale.Store: see [Options].Wait for when it returns. It copies the value. An expiry
// counts from the time when it reaches Redis.
func (s *Store) Set(ctx context.Context, key string, value []byte, e bale.Expiry) error {
	out, err := s.lane(key).put(ctx, key, value, e)
	if err != nil || !s.options.Wait {
		return err
	}
	return out.of(ctx, key)
}

// SetMany implements bale.Store, like one Set per item.
func (s *Store) SetMany(ctx context.Context, items []bale.Item) error {
	var failed bale.KeyErrors
	outcomes := make([]*outcome, len(items))
	for i, item := range items {
		var err error
		if outcomes[i], err = s.lane(item.Key).put(ctx, item.Key, item.Value, item.Expiry); err != nil {
			failed = append(failed, &bale.KeyError{Op: "set", Key: item.Key, Err: err})
		}
	}
	for i, out := range outcomes {
		if out == nil || !s.options.Wait {
			continue
		}
		if err := out.of(ctx, items[i].Key); err != nil {
			failed = append(failed, &bale.KeyError{Op: "set", Key: items[i].Key, Err: err})
		}
	}
	switch {
	case len(failed) == 0:
		return nil
	case len(failed) == len(items) && ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return failed
}

// of waits for the result of a value.
func (o *outcome) of(ctx context.Context, key string) error {
	select {
	case <-o.done:
		return o.errs[key]
	case <-ctx.Done():
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.left == nil {
			o.left = map[string]bool{}
		}
		o.left[key] = true
		return context.Cause(ctx)
	}
}

// put adds a value to the buffer, once there is room.
func (l *lane) put(ctx context.Context, key string, value []byte, e bale.Expiry) (*outcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	need := len(key) + len(value) + entryBytes
	large, waits := need > l.maxBytes, false
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if l.closed {
			return nil, ErrClosed
		}
		// A value larger than the whole buffer is sent alone. Others wait until it had its turn.
		used := l.filling.size + l.sent.size
		if large && used == 0 || !large && l.large == 0 && used+need <= l.maxBytes {
			break
		}
		if l.options.Drop {
			l.mu.Unlock()
			l.record(ctx, stats.Event{Keys: 1, Errors: 1, Class: stats.Dropped})
			l.mu.Lock()
			return nil, ErrFull
		}
		if large && !waits {
			waits = true
			l.large++
			defer func() { l.large--; l.wake() }()
		}
		if l.room == nil {
			l.room = make(chan struct{})
		}
		room := l.room
		signal(l.full)
		l.mu.Unlock()
		var err error
		select {
		case <-room:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if l.mu.Lock(); err != nil {
			return nil, err
		}
	}
	b := l.filling
	if len(b.items) == 0 {
		b.outcome = &outcome{done: make(chan struct{})}
		b.first = time.Now()
		signal(l.begun)
	}
	at := place{len(b.bytes), len(b.bytes) + len(value)}
	b.bytes = append(b.bytes, value...)
	b.size += need
	if i, again := b.index[key]; again { // what was to be written before will never be seen
		b.items[i].Expiry, b.places[i] = e, at
	} else {
		b.index[key] = len(b.items)
		b.items, b.places = append(b.items, bale.Item{Key: key, Expiry: e}), append(b.places, at)
	}
	if len(b.items) == l.options.Entries || b.size > l.maxBytes {
		signal(l.full)
	}
	return b.outcome, nil
}

// wake lets callers that wait for room look again.
func (l *lane) wake() {
	if l.room != nil {
		close(l.room)
		l.room = nil
	}
}

// signal wakes the lane's goroutine, unless a signal is pending.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run sends the buffer when it is time.
func (l *lane) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		var flushed chan struct{}
		select {
		case <-l.begun:
			l.mu.Lock()
			left := l.options.Delay - time.Since(l.filling.first)
			l.mu.Unlock()
			timer.Reset(left)
			continue
		case <-timer.C:
		case <-l.full:
		case flushed = <-l.flush:
		case <-l.stop:
			l.send()
			return
		}
		l.send()
		timer.Stop() // the next values have sent word of their own
		if flushed != nil {
			close(flushed)
		}
	}
}

// send sends the buffer as one pipeline.
func (l *lane) send() {
	l.mu.Lock()
	b := l.filling
	if len(b.items) == 0 {
		l.mu.Unlock()
		return
	}
	l.filling, l.sent = l.sent, b
	l.mu.Unlock()

	bytes := 0
	for i, at := range b.places { // nobody else changes it any more
		b.items[i].Value = b.bytes[at.start:at.end:at.end]
		bytes += at.end - at.start
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.options.Timeout)
	start := time.Now()
	err := l.setMany(ctx, b.items)
	took := time.Since(start)
	cancel()

	var failed bale.KeyErrors
	if err != nil && !errors.As(err, &failed) {
		for _, item := range b.items {
			failed = append(failed, &bale.KeyError{Op: "set", Key: item.Key, Err: err})
		}
	}
	out := b.outcome
	if len(failed) > 0 {
		out.errs = make(map[string]error, len(failed))
		for _, f := range failed {
			out.errs[f.Key] = f.Err
		}
	}
	e := stats.Event{Keys: int32(len(b.items)), Errors: int32(len(failed)), Plain: bytes, Stored: bytes, Timed: true}
	e.Times[stats.Store] = took
	if len(failed) > 0 {
		e.Class = bale.ErrorClass(failed)
	}
	l.record(ctx, e)

	l.mu.Lock()
	b.reset(l.maxBytes)
	if l.options.Failed == nil {
		l.keep(failed, out)
	}
	l.wake()
	l.mu.Unlock()
	close(out.done)
	if len(failed) > 0 && l.options.Failed != nil {
		l.options.Failed(failed)
	}
}

// setMany writes values. Here is nobody else who would recover from a panic of the Store.
func (l *lane) setMany(ctx context.Context, items []bale.Item) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &codec.PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	return l.store.SetMany(ctx, items)
}

// keep keeps errors that neither a caller nor Failed receives.
func (l *lane) keep(failed bale.KeyErrors, out *outcome) {
	out.mu.Lock()
	defer out.mu.Unlock()
	for _, f := range failed {
		switch {
		case l.options.Wait && !out.left[f.Key]: // its caller is
		case len(l.failed) < keptErrors:
			l.failed = append(l.failed, f)
		default:
			l.more++
		}
	}
}

func (s *Store) record(ctx context.Context, e stats.Event) {
	if s.options.Recorder != nil {
		e.Op = stats.Flush
		s.options.Recorder.Record(ctx, e)
	}
}

// errors returns the kept errors, and forgets them.
func (s *Store) errors() error {
	var failed bale.KeyErrors
	more := 0
	for _, l := range s.lanes {
		l.mu.Lock()
		failed, more = append(failed, l.failed...), more+l.more
		l.failed, l.more = nil, 0
		l.mu.Unlock()
	}
	switch {
	case len(failed) == 0:
		return nil
	case more > 0:
		return fmt.Errorf("%w; and %d more failed", failed, more)
	}
	return failed
}

// Flush sends all buffered values and returns when each has got to Redis or has failed. If Failed
// is not set and no caller waits, it returns the errors since the last Flush as bale.KeyErrors: the
// first 1,000 of each lane.
func (s *Store) Flush(ctx context.Context) error {
	if err := s.settle(ctx, s.lanes); err != nil {
		return err
	}
	return s.errors()
}

// settle makes lanes send their buffers.
func (s *Store) settle(ctx context.Context, lanes []*lane) error {
	flushed := make([]chan struct{}, len(lanes))
	for i, l := range lanes {
		flushed[i] = make(chan struct{})
		select {
		case l.flush <- flushed[i]:
		case <-s.stop: // Close sends everything
			s.done.Wait()
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for _, f := range flushed {
		select {
		case <-f:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// settleKeys does the same for the lanes with values of keys, before a command that must come after
// them.
func (s *Store) settleKeys(ctx context.Context, keys ...string) error {
	var lanes []*lane
	for _, key := range keys {
		l := s.lane(key)
		if _, is := l.buffered(key); is && !slices.Contains(lanes, l) {
			lanes = append(lanes, l)
		}
	}
	return s.settle(ctx, lanes)
}

// Close sends all buffered values, waits for them, and ends the Store's goroutines. A Set after it
// fails, and so does a Set that waits for room. Close returns the same errors as Flush. The store
// below stays open.
func (s *Store) Close() error {
	for _, l := range s.lanes {
		l.mu.Lock()
		l.closed = true
		l.wake()
		l.mu.Unlock()
	}
	s.once.Do(func() { close(s.stop) })
	s.done.Wait()
	return s.errors()
}

// buffered returns a copy of the value of a key in the buffer or in flight.
func (l *lane) buffered(key string) (value []byte, is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range [...]*buffer{l.filling, l.sent} {
		if v, ok := b.value(key); ok {
			return v, true
		}
	}
	return nil, false
}

// Get implements bale.Store. It returns a buffered value as it will be in Redis.
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	if v, is := s.lane(key).buffered(key); is {
		if v == nil {
			return nil, bale.ErrNotFound
		}
		return v, nil
	}
	return s.store.Get(ctx, key)
}

// GetMany implements bale.Store, as Get does.
func (s *Store) GetMany(ctx context.Context, keys []string) ([][]byte, error) {
	values := make([][]byte, len(keys))
	ask, places := s.below(keys, func(i int, value []byte) { values[i] = value })
	if len(ask) == 0 {
		return values, nil
	}
	stored, err := s.store.GetMany(ctx, ask)
	for i, v := range stored {
		values[places[i]] = v
	}
	return values, err
}

// below returns the keys without a buffered value, and their places. It calls buffered for others.
func (s *Store) below(keys []string, buffered func(i int, value []byte)) (ask []string, places []int) {
	for i, key := range keys {
		if value, is := s.lane(key).buffered(key); is {
			buffered(i, value)
		} else {
			ask, places = append(ask, key), append(places, i)
		}
	}
	return ask, places
}

// PTTL is the optional method of a bale.Store. Redis has no expiry of a buffered value yet, so its
// key counts as missing (-2): then near does not keep it. If the Store below has no PTTL, all other
// keys seem to last (-1).
func (s *Store) PTTL(ctx context.Context, keys []string) ([]int64, error) {
	ms := slices.Repeat([]int64{-1}, len(keys))
	ask, places := s.below(keys, func(i int, _ []byte) { ms[i] = -2 })
	aging, ok := s.store.(interface {
		PTTL(ctx context.Context, keys []string) ([]int64, error)
	})
	if !ok || len(ask) == 0 {
		return ms, nil
	}
	stored, err := aging.PTTL(ctx, ask)
	if err == nil && len(stored) != len(ask) {
		err = fmt.Errorf("batch: PTTL of %d keys has returned %d", len(ask), len(stored))
	}
	if err != nil {
		return nil, err
	}
	for i, v := range stored {
		ms[places[i]] = v
	}
	return ms, nil
}

// Delete implements bale.Store. Buffered values of the keys are written first.
func (s *Store) Delete(ctx context.Context, keys []string) (int, error) {
	if err := s.settleKeys(ctx, keys...); err != nil {
		return 0, err
	}
	return s.store.Delete(ctx, keys)
}

// Touch implements bale.Store. A buffered value of the key is written first.
func (s *Store) Touch(ctx context.Context, key string, e bale.Expiry) (bool, error) {
	if err := s.settleKeys(ctx, key); err != nil {
		return false, err
	}
	return s.store.Touch(ctx, key, e)
}

// Swap implements bale.Store. All buffered values are written first, not only that of its key: a
// caller that takes or releases a lock with it protects other keys.
func (s *Store) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error) {
	if err := s.settle(ctx, s.lanes); err != nil {
		return false, err
	}
	return s.store.Swap(ctx, key, old, value, ttl)
}
