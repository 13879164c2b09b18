package bale

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/bufpool"
	"github.com/balekv/bale/stats"
)

// Codec turns values into bytes and back; package codec has JSON, gob and raw bytes. An
// implementation is safe for concurrent use. A Cache turns its panics into errors.
type Codec[T any] interface {
	// Append appends the encoding of v to dst.
	Append(dst []byte, v T) ([]byte, error)

	// Decode reads the encoding src into *v, which is a zero T. It must not keep src.
	Decode(src []byte, v *T) error
}

// Options are the settings of a [Cache]; the zero value is useful.
type Options[T any] struct {
	// Codec defaults to codec.JSON.
	Codec Codec[T]

	// Packer defaults to one with default options: zstd at its default level, reading every
	// algorithm. Cache.Close closes that default. Caches can share a Packer, and you close it after
	// them.
	Packer *Packer

	// TTL is how long values live that are set without an Expiry, at least a millisecond.
	// Defaults to 0: no expiry.
	TTL time.Duration

	// Jitter shortens each TTL at random by up to this part of it, 0 to 1, so that values set
	// together do not expire together. Defaults to 0. Absolute expiries and "never" are unaffected.
	Jitter float64

	// Load is for [Cache.GetOrLoad].
	Load LoadOptions

	// Recorder receives an Event per operation, synchronously; nil for none.
	Recorder stats.Recorder

	// Log receives a warning for each value that LoadOptions.ReplaceUnreadable replaces, with its
	// key. It also receives one warning when PTTL first fails. Nil for none.
	Log *slog.Logger
}

// Cache keeps values of one type in a [Store]. Make one with [New]; it is safe for concurrent
// use.
//
// A write has three steps. A [Codec] turns the value into bytes. The [Packer] turns these into
// fewer bytes, with a header that says how (package frame). The Store sends them. A read takes the
// same steps backwards. Values that were stored without bale are read unchanged. A value that does
// not get smaller is stored without a header. So you can roll bale into a live cache, and out of it
// again.
//
// [Cache.GetOrLoad] loads a missing value once for all waiting callers. A Store can wrap another
// one. Package batch writes many values in few pipelines. Package stream stores values that are too
// large for one key. Module near keeps decoded values in the process. Package stats records
// operations. Package ready reports readiness.
//
// The only goroutines are the loads of GetOrLoad, and [Cache.Close] ends them.
type Cache[T any] struct {
	store    Store
	codec    Codec[T]
	packer   *Packer
	own      *Packer // the default, for Close
	ttl      Expiry
	jitter   float64
	recorder stats.Recorder
	log      *slog.Logger
	ageless  atomic.Bool // the log has the warning about PTTL
	loader[T]
}

// New makes a Cache over a store, which stays the caller's. An option out of range is [ErrInvalid].
func New[T any](store Store, o Options[T]) (*Cache[T], error) {
	c := &Cache[T]{store: store, codec: o.Codec, packer: o.Packer, ttl: TTL(o.TTL), jitter: o.Jitter, recorder: o.Recorder, log: o.Log}
	switch {
	case store == nil:
		return nil, fmt.Errorf("bale: %w: no Store", ErrInvalid)
	case o.TTL != 0 && o.TTL < time.Millisecond:
		return nil, fmt.Errorf("bale: %w: TTL is %v, must be at least 1ms, or 0 for no expiry", ErrInvalid, o.TTL)
	case !(o.Jitter >= 0 && o.Jitter <= 1):
		return nil, fmt.Errorf("bale: %w: Jitter is %v, must be 0 to 1", ErrInvalid, o.Jitter)
	}
	if err := c.loader.init(o.Load); err != nil {
		return nil, err
	}
	if c.codec == nil {
		c.codec = codec.JSON[T]{}
	}
	if c.packer == nil {
		var err error
		if c.own, err = NewPacker(PackerOptions{}); err != nil {
			return nil, err
		}
		c.packer = c.own
	}
	return c, nil
}

// Get returns the value of a key, or ErrNotFound.
func (c *Cache[T]) Get(ctx context.Context, key string) (T, error) {
	v, fresh, _, err := c.get(ctx, key, c.recorder)
	if err == nil && fresh.expired(time.Now) {
		var zero T
		return zero, ErrNotFound // old values are for GetOrLoad alone
	}
	return v, err
}

// GetEntry is Get that also returns the expiry of the value. For a cached miss the error is
// ErrNotFound and the Entry is Absent.
func (c *Cache[T]) GetEntry(ctx context.Context, key string) (Entry[T], error) {
	v, fresh, _, err := c.get(ctx, key, c.recorder)
	switch {
	case err == nil && fresh.expired(time.Now):
		return Entry[T]{}, ErrNotFound
	case err == nil || fresh.Absent:
		e := Entry[T]{Value: v, Expires: fresh.Expires, Absent: fresh.Absent}
		if err == nil && e.Expires.IsZero() {
			e.Expires = c.Expires(ctx, key)[0]
		}
		return e, err
	}
	return Entry[T]{}, err
}

// Expires asks the Store when keys expire, for values that do not carry their expiry inside. It
// returns a time for each key, in their order. The zero time means never, or that the Store has no
// PTTL. If PTTL fails, as for a user who may not call it, or takes longer than
// LoadOptions.Patience, it returns the present time: then nobody caches the values beyond their
// end.
func (c *Cache[T]) Expires(ctx context.Context, keys ...string) []time.Time {
	expires := make([]time.Time, len(keys))
	store, ok := c.store.(aging)
	if !ok || len(keys) == 0 {
		return expires
	}
	patient, cancel := c.patient(ctx)
	defer cancel()
	now := time.Now() // before the answer: an expiry is never late
	ttls, err := store.PTTL(patient, keys)
	if err == nil && len(ttls) != len(keys) {
		err = fmt.Errorf("PTTL of %d keys has returned %d", len(keys), len(ttls))
	}
	if err != nil {
		for i := range expires {
			expires[i] = now
		}
		if c.log != nil && ctx.Err() == nil && c.ageless.CompareAndSwap(false, true) {
			c.log.Warn("bale: cannot ask when keys expire, so that near keeps no values of Set: allow PTTL", "key", keys[0], "error", err)
		}
		return expires
	}
	for i, ms := range ttls {
		if ms != -1 {
			expires[i] = now.Add(time.Duration(min(max(ms, 0), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond)
		}
	}
	return expires
}

// get is Get that returns the age of the value and its stored form. It returns old values, too.
func (c *Cache[T]) get(ctx context.Context, key string, recorder stats.Recorder) (v T, fresh freshness, stored []byte, err error) {
	var rec recording
	rec.begin(ctx, recorder, stats.Get, 1)
	stored, err = c.store.Get(ctx, key)
	rec.stage(stats.Store)
	if err == nil {
		fresh, err = c.decode(ctx, stored, &v, &rec, nil)
	}
	switch {
	case err == nil && fresh.expired(time.Now):
		rec.event.Misses = 1
	case err == nil:
		rec.event.Hits = 1
	case errors.Is(err, ErrNotFound):
		rec.event.Misses = 1
		rec.end(ctx, nil)
		fresh.Absent = fresh.Absent && !fresh.expired(time.Now)
		return v, fresh, nil, ErrNotFound
	default:
		err = &KeyError{"get", key, err}
	}
	rec.end(ctx, err)
	return v, fresh, stored, err
}

// Set writes a value, with its expiry in the same command. It takes at most one Expiry; without one
// the value expires after Options.TTL. This holds for all methods that take an Expiry.
func (c *Cache[T]) Set(ctx context.Context, key string, v T, e ...Expiry) error {
	expiry, err := c.expiry(e)
	if err == nil {
		c.overtake(key)
		_, err = c.set(ctx, c.store, key, v, expiry, nil, nil)
		c.overtake(key)
	}
	if err != nil {
		return &KeyError{"set", key, err}
	}
	return nil
}

// fence lets a write through only if the key still holds these bytes, nil for no value.
type fence struct{ old []byte }

// set writes a value with a resolved expiry, and reports whether the fence let it through. A value
// with a freshness outlives its expiry by StaleIfError.
func (c *Cache[T]) set(ctx context.Context, store Store, key string, v T, e Expiry, fresh *frame.Freshness, only *fence) (written bool, err error) {
	var rec recording
	rec.begin(ctx, c.recorder, stats.Set, 1)
	packed := bufpool.Get()
	defer bufpool.Put(packed)
	before := cap(packed.B)
	written = true
	if packed.B, err = c.encode(packed.B, v, fresh, &rec); err == nil {
		rec.grown(before, packed.B)
		if _, _, is := frame.Parse(packed.B); is && fresh != nil { // a value above MaxSize has none inside
			e = e.later(c.options.StaleIfError)
		}
		if only == nil {
			err = store.Set(ctx, key, packed.B, e)
		} else {
			value, ttl := packed.B, e.in
			if !e.at.IsZero() {
				if ttl = time.Until(e.at); ttl < time.Millisecond {
					value = nil // it is over
				}
			}
			written, err = store.Swap(ctx, key, only.old, value, ttl)
		}
		rec.stage(stats.Store)
	}
	if written || err != nil {
		rec.end(ctx, err)
	}
	return written, err
}

// GetMany returns the values of the existing keys, read by one command or one pipeline. If some
// cannot be read, the error is a [KeyErrors] for them, and GetMany still returns the others.
func (c *Cache[T]) GetMany(ctx context.Context, keys ...string) (map[string]T, error) {
	values := make(map[string]T, len(keys))
	err := c.getMany(ctx, keys, func(key string, v T, fresh *freshness, _ []byte, err error) {
		if err == nil && !fresh.expired(time.Now) {
			values[key] = v
		}
	})
	return values, err
}

// GetEntries is GetMany that also returns the expiries of the values, and cached misses as Absent.
func (c *Cache[T]) GetEntries(ctx context.Context, keys ...string) (map[string]Entry[T], error) {
	entries := make(map[string]Entry[T], len(keys))
	var ageless []string
	err := c.getMany(ctx, keys, func(key string, v T, fresh *freshness, _ []byte, err error) {
		if !fresh.Absent && err != nil || fresh.expired(time.Now) {
			return
		}
		entries[key] = Entry[T]{Value: v, Expires: fresh.Expires, Absent: fresh.Absent}
		if fresh.Expires.IsZero() {
			ageless = append(ageless, key)
		}
	})
	for i, expires := range c.Expires(ctx, ageless...) {
		e := entries[ageless[i]]
		e.Expires = expires
		entries[ageless[i]] = e
	}
	return entries, err
}

// getMany calls each for each key, with the stored form of its value, or with the reason why it has
// none. If no key can be read, it calls nothing and returns the error.
func (c *Cache[T]) getMany(ctx context.Context, keys []string, each func(key string, v T, fresh *freshness, stored []byte, err error)) error {
	if len(keys) == 0 {
		return nil
	}
	var rec recording
	rec.begin(ctx, c.recorder, stats.GetMany, len(keys))
	stored, err := c.store.GetMany(ctx, keys)
	rec.stage(stats.Store)
	var failed KeyErrors
	if err != nil && !errors.As(err, &failed) {
		rec.event.Errors = int32(len(keys))
		rec.end(ctx, err)
		return fmt.Errorf("bale: get of %d keys: %w", len(keys), err)
	}
	refused := make(map[string]error, len(failed))
	for _, e := range failed {
		refused[e.Key] = e
	}
	batch := c.packer.Batch()
	for i, key := range keys {
		var v T
		var fresh freshness
		err := refused[key]
		switch s := stored[i]; {
		case s != nil:
			fresh, err = c.decode(ctx, s, &v, &rec, &batch)
		case err == nil:
			err = ErrNotFound
		}
		switch {
		case err == nil && !fresh.expired(time.Now):
			rec.event.Hits++
		case err != nil && !errors.Is(err, ErrNotFound) && refused[key] == nil:
			e := &KeyError{"get", key, err}
			failed, err = append(failed, e), e
		case fresh.Absent && fresh.expired(time.Now):
			fresh.Absent = false
		}
		each(key, v, &fresh, stored[i], err)
	}
	rec.event.Errors = int32(len(failed))
	rec.event.Misses = rec.event.Keys - rec.event.Hits - rec.event.Errors
	if len(failed) > 0 {
		rec.end(ctx, failed[0])
		return failed
	}
	rec.end(ctx, nil)
	return nil
}

// SetMany writes values by one pipeline, all with the same expiry and each with its own jitter. It
// is not a transaction: if Redis refuses some, the error is a [KeyErrors] for them. If some cannot
// be encoded, nothing is sent.
func (c *Cache[T]) SetMany(ctx context.Context, values map[string]T, e ...Expiry) error {
	if len(values) == 0 {
		return nil
	}
	var rec recording
	rec.begin(ctx, c.recorder, stats.SetMany, len(values))
	for key := range values {
		c.overtake(key)
	}
	err := c.setMany(ctx, values, e, &rec)
	for key := range values {
		c.overtake(key)
	}
	rec.event.Errors = int32(len(values))
	if failed, some := errors.AsType[KeyErrors](err); some {
		rec.event.Errors = int32(len(failed))
	} else if err != nil {
		err = fmt.Errorf("bale: set of %d keys: %w", len(values), err)
	} else {
		rec.event.Errors = 0
	}
	rec.end(ctx, err)
	return err
}

func (c *Cache[T]) setMany(ctx context.Context, values map[string]T, e []Expiry, rec *recording) error {
	packed := bufpool.Get()
	defer bufpool.Put(packed)
	before := cap(packed.B)
	items := make([]Item, 0, len(values))
	ends := make([]int, 0, len(values))
	var failed KeyErrors
	for key, v := range values {
		expiry, err := c.expiry(e)
		if err != nil {
			return err
		}
		if packed.B, err = c.encode(packed.B, v, nil, rec); err != nil {
			failed = append(failed, &KeyError{"set", key, err})
			continue
		}
		items = append(items, Item{Key: key, Expiry: expiry})
		ends = append(ends, len(packed.B))
	}
	if len(failed) > 0 {
		return failed
	}
	rec.grown(before, packed.B)
	start := 0
	for i, end := range ends { // only now, for packed.B moved while it grew
		items[i].Value = packed.B[start:end:end]
		start = end
	}
	err := c.store.SetMany(ctx, items)
	rec.stage(stats.Store)
	if errors.As(err, &failed) {
		return failed // without what the store put around it
	}
	return err
}

// Delete removes keys and returns how many of them existed. Cached misses count.
func (c *Cache[T]) Delete(ctx context.Context, keys ...string) (int, error) {
	if len(keys) == 0 {
		return 0, nil
	}
	var rec recording
	rec.begin(ctx, c.recorder, stats.Delete, len(keys))
	c.overtake(keys...)
	n, err := c.store.Delete(ctx, keys)
	c.overtake(keys...)
	rec.stage(stats.Store)
	if err != nil {
		rec.event.Errors = int32(len(keys))
		if failed, some := errors.AsType[KeyErrors](err); some {
			rec.event.Errors = int32(len(failed))
		}
		err = fmt.Errorf("bale: delete of %d keys: %w", len(keys), err)
	}
	rec.end(ctx, err)
	return n, err
}

// Touch gives a key another expiry without reading it. A key that does not exist is ErrNotFound. A
// value that [Cache.GetOrLoad] has stored never outlives the expiry of its load.
func (c *Cache[T]) Touch(ctx context.Context, key string, e ...Expiry) error {
	expiry, err := c.expiry(e)
	if err != nil {
		return &KeyError{"touch", key, err}
	}
	var rec recording
	rec.begin(ctx, c.recorder, stats.Touch, 1)
	ok, err := c.store.Touch(ctx, key, expiry)
	rec.stage(stats.Store)
	switch {
	case err != nil:
		err = &KeyError{"touch", key, err}
	case !ok:
		rec.event.Misses = 1
		err = ErrNotFound
	}
	rec.end(ctx, err)
	return err
}

// maxString is the size in bytes of the largest string that Redis keeps (proto-max-bulk-len).
const maxString = 512 << 20

// appendValue appends the encoding of v to dst. All errors are a codec.Error, also for a panic.
func (c *Cache[T]) appendValue(dst []byte, v T) (out []byte, err error) {
	defer func() {
		if err = c.codecError("encode", err, recover()); err != nil {
			out = dst
		}
	}()
	return c.codec.Append(dst, v)
}

// decodeValue reads an encoding into *v. All errors are a codec.Error, also for a panic: it leaves
// *v zero.
func (c *Cache[T]) decodeValue(src []byte, v *T) (err error) {
	defer func() {
		if err = c.codecError("decode", err, recover()); err != nil {
			var zero T
			*v = zero
		}
	}()
	return c.codec.Decode(src, v)
}

// codecError is the error of a codec that returned err or panicked with p, nil for neither.
func (c *Cache[T]) codecError(op string, err error, p any) error {
	if p != nil {
		err = &codec.PanicError{Value: p, Stack: debug.Stack()}
	} else if err == nil {
		return nil
	}
	return &codec.Error{Op: op, Codec: fmt.Sprintf("%T", c.codec), Type: reflect.TypeFor[T]().String(), Err: noMiss(err)}
}

// encode appends the stored form of v to dst, with a freshness if there is one.
func (c *Cache[T]) encode(dst []byte, v T, fresh *frame.Freshness, rec *recording) ([]byte, error) {
	plain := bufpool.Get()
	defer bufpool.Put(plain)
	before := cap(plain.B)
	var err error
	if plain.B, err = c.appendValue(plain.B, v); err != nil {
		return dst, err
	}
	rec.grown(before, plain.B)
	rec.stage(stats.Encode)
	n := len(dst)
	dst, how, err := c.packer.pack(dst, plain.B, fresh)
	if err == nil && len(dst)-n > maxString {
		return dst[:n], fmt.Errorf("%w: %d bytes, and Redis keeps at most %d under a key: package stream keeps more", ErrTooLarge, len(dst)-n, maxString)
	}
	if err == nil {
		rec.packed(how, len(plain.B), len(dst)-n)
	}
	rec.stage(stats.Pack)
	return dst, err
}

// decode reads a stored value into *v, and counts it to its batch, nil for none.
func (c *Cache[T]) decode(ctx context.Context, stored []byte, v *T, rec *recording, b *Batch) (fresh freshness, err error) {
	h, offset, packed, err := c.packer.parse(stored)
	if err != nil {
		return fresh, err
	}
	plain := stored
	if packed {
		var r Compressor
		var payload []byte
		if r, payload, fresh.Freshness, err = c.packer.check(ctx, stored[offset:], &h, b); err != nil {
			rec.stage(stats.Unpack)
			return fresh, err
		}
		if h.Length > largeValue {
			if err := c.packer.gate.enter(ctx, int(h.Length)); err != nil {
				return fresh, decodeError(&h, err)
			}
			defer c.packer.gate.leave(int(h.Length))
		}
		buf := bufpool.Get()
		defer bufpool.Put(buf)
		before := cap(buf.B)
		buf.B, err = c.packer.decode(r, buf.B, payload, &h)
		rec.stage(stats.Unpack)
		if err != nil {
			return fresh, err
		}
		rec.grown(before, buf.B)
		plain = buf.B
	} else {
		c.packer.read(stored)
	}
	rec.packed(readerKey{h.Algorithm, h.DictionaryID}, len(plain), len(stored))
	err = c.decodeValue(plain, v)
	rec.stage(stats.Decode)
	if err != nil && packed {
		err = &DecodeError{h.Algorithm, h.DictionaryID, err}
	}
	return fresh, err
}

// expiry resolves the Expiry of a call: the default and the jitter.
func (c *Cache[T]) expiry(given []Expiry) (e Expiry, err error) {
	switch len(given) {
	case 0:
	case 1:
		e = given[0]
	default:
		return e, fmt.Errorf("%w: %d expiries, at most one can hold", ErrInvalid, len(given))
	}
	if err := e.Validate(); err != nil {
		return e, err
	}
	if e.in == 0 && e.at.IsZero() && !e.never { // the zero time has a location in some time zones
		e = c.ttl
	}
	if c.jitter > 0 && e.in > 0 {
		// At least a millisecond, the shortest expiry: zero would mean no expiry.
		e.in -= time.Duration(math.Min(c.jitter*rand.Float64()*float64(e.in), float64(e.in-time.Millisecond)))
	}
	return e, nil
}
