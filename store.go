package bale

import (
	"context"
	"fmt"
	"math"
	"time"
)

// aging is a Store that can return the expiries of keys, like those of the adapters. Entries need
// it for values without an expiry inside.
type aging interface {
	PTTL(ctx context.Context, keys []string) ([]int64, error)
}

// Store is the Redis client that a [Cache] needs. The adapters have one for each client. Your own
// Store must be safe for concurrent use and must not keep a value after it returned.
//
// A Store may also have the method PTTL(ctx context.Context, keys []string) ([]int64, error). It
// returns the reply of PTTL for each key: the remaining milliseconds, -1 for no expiry, or -2 for a
// missing key. Package near needs it to drop the values of Set in time. Package stream needs it to
// find chunks that would expire before their value. GetOrLoad needs it to ignore a lock that does
// not expire in time.
//
// A client may read from replicas, or cache values in the process. Package stream must ask masters
// when it writes. It marks the context of Get and PTTL then, and the adapters' Stores heed that. A
// Store around one of them must pass the context on. Any other Store must read from masters only.
// Otherwise streams may lose values.
//
// An operation on many keys is one command or one pipeline, and the client splits it by slot on a
// cluster. If it fails for some keys only, the error is a [KeyErrors] for them.
type Store interface {
	// Get returns the value of a key, which belongs to the caller, or ErrNotFound.
	Get(ctx context.Context, key string) ([]byte, error)

	// Set writes a value and its expiry in one step.
	Set(ctx context.Context, key string, value []byte, e Expiry) error

	// GetMany returns the values in the order of keys, nil for a key that does not exist. A key
	// that holds another type than a string is an error of that key. MGET returns nil for it, so a
	// Store must check.
	GetMany(ctx context.Context, keys []string) ([][]byte, error)

	// SetMany writes each item as Set does. It is not a transaction.
	SetMany(ctx context.Context, items []Item) error

	// Delete removes keys and returns how many of them existed.
	Delete(ctx context.Context, keys []string) (int, error)

	// Touch sets the expiry of a key and reports whether the key exists.
	Touch(ctx context.Context, key string, e Expiry) (bool, error)

	// Swap replaces the value of a key if it equals old, in one step. It reports whether it did, or
	// found the new value there already. Nil means no value: with a nil old it creates the key,
	// with a nil value it deletes it. The key expires after ttl; zero means no expiry. With the
	// same old and new value it gives the key this ttl.
	Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error)
}

// Item is one value to be stored.
type Item struct {
	Key    string
	Value  []byte
	Expiry Expiry
}

// Expiry is when a value ends: after a time ([TTL]), at a time ([ExpireAt]), or never ([NoExpiry]).
// The zero Expiry is the cache's default ([Options].TTL); for a [Store] it means never. Redis keeps
// expiries to the millisecond, and finer ones are rounded up.
type Expiry struct {
	in    time.Duration // from now
	at    time.Time
	never bool
}

// TTL expires a value after d. A TTL below one millisecond is an error where it is used, because it
// is most often a number without its unit. Zero is the zero Expiry, and does not mean "at once".
func TTL(d time.Duration) Expiry { return Expiry{in: d} }

// ExpireAt expires a value at t, after 1970. A time in the past makes it expire at once; the zero
// time is the zero Expiry.
func ExpireAt(t time.Time) Expiry { return Expiry{at: t} }

// NoExpiry lets a value stay until it is deleted or evicted, also in a cache with a default.
func NoExpiry() Expiry { return Expiry{never: true} }

// Validate returns [ErrInvalid] for an Expiry that is out of range.
func (e Expiry) Validate() error {
	switch {
	case e.in != 0 && e.in < time.Millisecond:
		return fmt.Errorf("%w: expiry in %v, must be at least 1ms", ErrInvalid, e.in)
	case !e.at.IsZero() && e.at.UnixMilli() <= 0:
		return fmt.Errorf("%w: expiry at %v, must be after 1970", ErrInvalid, e.at)
	}
	return nil
}

// Millis is the expiry in the form of Redis commands: milliseconds from now (PX), or milliseconds
// since 1970 (PXAT) if absolute; zero for never.
func (e Expiry) Millis() (ms int64, absolute bool) {
	if !e.at.IsZero() {
		return ceilMillis(time.Duration(e.at.Nanosecond()%int(time.Millisecond))) + e.at.UnixMilli(), true
	}
	return ceilMillis(e.in), false
}

// later is the expiry plus d; an expiry that never ends stays as it is.
func (e Expiry) later(d time.Duration) Expiry {
	if e.in > 0 {
		e.in = min(e.in, math.MaxInt64-d) + d
	}
	if !e.at.IsZero() {
		e.at = e.at.Add(d)
	}
	return e
}

// ceilMillis rounds up, but not to more than a time.Duration has room for.
func ceilMillis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 && ms < math.MaxInt64/int64(time.Millisecond) {
		ms++
	}
	return ms
}
