package bale

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/internal/bufpool"
)

// Codec turns values into bytes and back; package codec has JSON, gob and raw bytes. An
// implementation is safe for concurrent use.
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

	// Packer defaults to one with default options: zstd at its fastest level, reading every algorithm. It
	// can be shared by caches.
	Packer *Packer

	// TTL is how long values live that are set with the zero Expiry. Zero means for ever; negative
	// is an error.
	TTL time.Duration

	// Jitter shortens each TTL at random by up to this part of it, 0 to 1, so that values set together do not
	// expire together. Defaults to 0. Absolute expiries are kept.
	Jitter float64
}

// Cache keeps values of one type in a [Store]. Make one with [New]; it is safe for concurrent
// use.
type Cache[T any] struct {
	store  Store
	codec  Codec[T]
	packer *Packer
	ttl    Expiry
	jitter float64
}

// New makes a Cache over a store.
func New[T any](store Store, o Options[T]) (*Cache[T], error) {
	c := &Cache[T]{store: store, codec: o.Codec, packer: o.Packer, ttl: TTL(o.TTL), jitter: o.Jitter}
	switch {
	case store == nil:
		return nil, fmt.Errorf("bale: %w: no Store", ErrInvalid)
	case o.TTL < 0:
		return nil, fmt.Errorf("bale: %w: TTL is %v, must not be negative", ErrInvalid, o.TTL)
	case !(o.Jitter >= 0 && o.Jitter <= 1):
		return nil, fmt.Errorf("bale: %w: Jitter is %v, must be 0 to 1", ErrInvalid, o.Jitter)
	}
	if c.codec == nil {
		c.codec = codec.JSON[T]{}
	}
	if c.packer == nil {
		var err error
		if c.packer, err = NewPacker(PackerOptions{}); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Get returns the value of a key, or ErrNotFound.
func (c *Cache[T]) Get(ctx context.Context, key string) (T, error) {
	var v T
	stored, err := c.store.Get(ctx, key)
	if err == nil {
		err = c.decode(ctx, stored, &v)
	}
	if err != nil {
		var zero T // a failed decode may have filled a part of v
		if errors.Is(err, ErrNotFound) {
			return zero, ErrNotFound
		}
		return zero, &KeyError{"get", key, err}
	}
	return v, nil
}

// Set writes a value, with its expiry in the same command.
func (c *Cache[T]) Set(ctx context.Context, key string, v T, e Expiry) error {
	expiry, err := c.expiry(e)
	if err != nil {
		return &KeyError{"set", key, err}
	}
	packed := bufpool.Get()
	defer bufpool.Put(packed)
	if packed.B, err = c.encode(packed.B, v); err != nil {
		return &KeyError{"set", key, err}
	}
	if err := c.store.Set(ctx, key, packed.B, expiry); err != nil {
		return &KeyError{"set", key, err}
	}
	return nil
}

// GetMany returns the values of those keys that exist, read by one command or one pipeline. If
// some cannot be read the error is a [KeyErrors] for them, and the others are returned all the same.
func (c *Cache[T]) GetMany(ctx context.Context, keys ...string) (map[string]T, error) {
	values := make(map[string]T, len(keys))
	if len(keys) == 0 {
		return values, nil
	}
	stored, err := c.store.GetMany(ctx, keys)
	var failed KeyErrors
	if err != nil && !errors.As(err, &failed) {
		return values, fmt.Errorf("bale: get of %d keys: %w", len(keys), err)
	}
	for i, s := range stored {
		if s == nil {
			continue
		}
		var v T
		if err := c.decode(ctx, s, &v); err != nil {
			failed = append(failed, &KeyError{"get", keys[i], err})
			continue
		}
		values[keys[i]] = v
	}
	if len(failed) > 0 {
		return values, failed
	}
	return values, nil
}

// SetMany writes values, all with the same expiry (and each with a jitter of its own), by one
// pipeline. It is not a transaction: if Redis refuses some, the error is a [KeyErrors] for them. If some cannot be
// encoded nothing is sent.
func (c *Cache[T]) SetMany(ctx context.Context, values map[string]T, e Expiry) error {
	if len(values) == 0 {
		return nil
	}
	packed := bufpool.Get()
	defer bufpool.Put(packed)
	items := make([]Item, 0, len(values))
	ends := make([]int, 0, len(values))
	var failed KeyErrors
	for key, v := range values {
		expiry, err := c.expiry(e)
		if err != nil {
			return fmt.Errorf("bale: set of %d keys: %w", len(values), err)
		}
		if packed.B, err = c.encode(packed.B, v); err != nil {
			failed = append(failed, &KeyError{"set", key, err})
			continue
		}
		items = append(items, Item{Key: key, Expiry: expiry})
		ends = append(ends, len(packed.B))
	}
	if len(failed) > 0 {
		return failed
	}
	start := 0
	for i, end := range ends { // only now, for packed.B moved while it grew
		items[i].Value = packed.B[start:end:end]
		start = end
	}
	if err := c.store.SetMany(ctx, items); err != nil {
		if errors.As(err, &failed) {
			return failed
		}
		return fmt.Errorf("bale: set of %d keys: %w", len(values), err)
	}
	return nil
}

// Delete removes keys and returns how many of them there were.
func (c *Cache[T]) Delete(ctx context.Context, keys ...string) (int, error) {
	if len(keys) == 0 {
		return 0, nil
	}
	n, err := c.store.Delete(ctx, keys)
	if err != nil {
		return n, fmt.Errorf("bale: delete of %d keys: %w", len(keys), err)
	}
	return n, nil
}

// Touch gives a key another expiry without reading it. The zero Expiry is the cache's default. A key that
// does not exist is ErrNotFound.
func (c *Cache[T]) Touch(ctx context.Context, key string, e Expiry) error {
	expiry, err := c.expiry(e)
	if err != nil {
		return &KeyError{"touch", key, err}
	}
	ok, err := c.store.Touch(ctx, key, expiry)
	if err != nil {
		return &KeyError{"touch", key, err}
	}
	if !ok {
		return ErrNotFound
	}
	return nil
}

// encode appends the stored form of v to dst.
func (c *Cache[T]) encode(dst []byte, v T) ([]byte, error) {
	plain := bufpool.Get()
	defer bufpool.Put(plain)
	var err error
	if plain.B, err = c.codec.Append(plain.B, v); err != nil {
		return dst, fmt.Errorf("encode: %w", err)
	}
	return c.packer.Pack(dst, plain.B)
}

// decode reads a stored value into *v.
func (c *Cache[T]) decode(ctx context.Context, stored []byte, v *T) error {
	h, offset, packed, err := c.packer.parse(stored)
	if err != nil {
		return err
	}
	plain := stored
	if packed {
		buf := bufpool.Get()
		defer bufpool.Put(buf)
		if buf.B, err = c.packer.decode(ctx, buf.B, stored[offset:], &h); err != nil {
			return err
		}
		plain = buf.B
	}
	if err := c.codec.Decode(plain, v); err != nil {
		if packed {
			err = &DecodeError{h.Algorithm, h.DictionaryID, err}
		}
		return fmt.Errorf("decode: %w", err)
	}
	return nil
}

// expiry resolves the default and the jitter.
func (c *Cache[T]) expiry(e Expiry) (Expiry, error) {
	if err := e.Validate(); err != nil {
		return e, err
	}
	if e.In == 0 && e.At.IsZero() && !e.Never { // the zero time has a location in some time zones
		e = c.ttl
	}
	if c.jitter > 0 && e.In > 0 {
		// At least a millisecond, which is the shortest there is: zero would be for ever.
		e.In -= time.Duration(math.Min(c.jitter*rand.Float64()*float64(e.In), float64(e.In-time.Millisecond)))
	}
	return e, nil
}
