// Package redigo keeps bale's values and dictionaries through a redigo pool: [Store] for a
// bale.Cache and a dict.Registry.
//
// redigo supports neither clusters nor sentinels: the pool's Dial chooses the server. Give the
// connections a read and a write timeout (redis.DialReadTimeout, redis.DialWriteTimeout), so that a
// hanging server does not block callers.
package redigo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/balekv/bale"
	"github.com/balekv/bale/internal/adapters"
)

// Store is a [bale.Store] over a redigo pool. It is safe for concurrent use.
type Store struct {
	pool   *redis.Pool
	script adapters.Script
}

var _ bale.Store = (*Store)(nil)

// NewStore makes a Store. The pool stays the caller's, to be closed after the Store's last use.
func NewStore(pool *redis.Pool) *Store { return &Store{pool: pool} }

// connection returns a connection of the pool, unless the context has ended: the pool does not look
// if it has an idle one, and an answer may come before redigo looks.
func connection(ctx context.Context, pool *redis.Pool) (redis.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return pool.GetContext(ctx)
}

// do sends one command on a connection of the pool.
func do(ctx context.Context, pool *redis.Pool, command string, args ...any) (reply any, err error) {
	conn, err := connection(ctx, pool)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if ctx.Done() == nil {
		return conn.Do(command, args...) // spares the goroutine that watches the context
	}
	reply, err = redis.DoContext(conn, ctx, command, args...)
	return reply, ended(ctx, err)
}

// ended turns a time-out into the context's error. redigo gives the connection the rest of the
// context's time, so the two end together.
func ended(ctx context.Context, err error) error {
	deadline, ok := ctx.Deadline()
	if ok && errors.Is(err, os.ErrDeadlineExceeded) && time.Until(deadline) < time.Millisecond {
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}

// owned returns a value that may be written after the call. A call that ends with its context
// leaves the connection at work for a moment.
func owned(ctx context.Context, value []byte) []byte {
	if ctx.Done() == nil {
		return value
	}
	return append(make([]byte, 0, len(value)), value...)
}

// Get implements [bale.Store].
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	v, err := redis.Bytes(do(ctx, s.pool, "GET", key))
	if errors.Is(err, redis.ErrNil) {
		return nil, bale.ErrNotFound
	}
	return v, err
}

// set are the arguments of SET.
func set(ctx context.Context, key string, value []byte, e bale.Expiry) []any {
	ms, absolute := e.Millis()
	switch {
	case ms == 0:
		return []any{key, owned(ctx, value)}
	case absolute:
		return []any{key, owned(ctx, value), "PXAT", ms}
	}
	return []any{key, owned(ctx, value), "PX", ms}
}

// Set implements [bale.Store].
func (s *Store) Set(ctx context.Context, key string, value []byte, e bale.Expiry) error {
	_, err := do(ctx, s.pool, "SET", set(ctx, key, value, e)...)
	return err
}

// GetMany implements [bale.Store], by one MGET. If MGET misses some keys, a second round trip
// (EXISTS) tells misses from keys of another type.
func (s *Store) GetMany(ctx context.Context, keys []string) ([][]byte, error) {
	values := make([][]byte, len(keys))
	if len(keys) == 0 {
		return values, nil
	}
	replies, err := redis.Values(do(ctx, s.pool, "MGET", redis.Args{}.AddFlat(keys)...))
	if err == nil {
		err = adapters.CheckMany(len(keys), len(replies))
	}
	if err != nil {
		return values, err
	}
	var missing []string
	var at []int
	for i, r := range replies {
		if v, ok := r.([]byte); ok {
			values[i] = v
		} else {
			missing, at = append(missing, keys[i]), append(at, i)
		}
	}
	if len(missing) == 0 {
		return values, nil
	}
	// MGET returns nil for a key of another type, too, while GET returns an error. So send
	// GET if EXISTS finds one of the missing keys. Send it also if EXISTS fails, because a user
	// may have no right to EXISTS.
	if n, err := redis.Int(do(ctx, s.pool, "EXISTS", redis.Args{}.AddFlat(missing)...)); n == 0 && err == nil {
		return values, nil
	}
	commands := make([][]any, len(missing))
	for i, key := range missing {
		commands[i] = []any{key}
	}
	replies, err = pipeline(ctx, s.pool, "GET", missing, commands)
	for i, r := range replies {
		if v, ok := r.([]byte); ok {
			values[at[i]] = v
		}
	}
	if _, is := errors.AsType[bale.KeyErrors](err); is || err == nil {
		return values, err
	}
	failed := make(bale.KeyErrors, len(missing)) // the others have a value
	for i, key := range missing {
		failed[i] = &bale.KeyError{Op: "get", Key: key, Err: err}
	}
	return values, failed
}

// SetMany implements [bale.Store], by one pipeline.
func (s *Store) SetMany(ctx context.Context, items []bale.Item) error {
	if len(items) == 0 {
		return nil
	}
	commands := make([][]any, len(items))
	keys := make([]string, len(items))
	for i, item := range items {
		keys[i], commands[i] = item.Key, set(ctx, item.Key, item.Value, item.Expiry)
	}
	_, err := pipeline(ctx, s.pool, "SET", keys, commands)
	return err
}

// pipeline sends a command for each key. The error is a KeyErrors if the server refused some, and
// the common cause if none was answered.
func pipeline(ctx context.Context, pool *redis.Pool, command string, keys []string, args [][]any) (replies []any, err error) {
	conn, err := connection(ctx, pool)
	if err != nil {
		return nil, err
	}
	defer func() {
		if failure := conn.Close(); err == nil {
			err = failure
		}
	}()
	for _, a := range args {
		if err := conn.Send(command, a...); err != nil {
			return nil, fmt.Errorf("pipeline: %w", err)
		}
	}
	// The empty command sends what is pending and reads all replies.
	if replies, err = redis.Values(redis.DoContext(conn, ctx, "")); err != nil {
		return nil, fmt.Errorf("pipeline: %w", ended(ctx, err))
	}
	var failed bale.KeyErrors
	for i, r := range replies {
		if refused, ok := r.(redis.Error); ok {
			failed = append(failed, &bale.KeyError{Op: strings.ToLower(command), Key: keys[i], Err: refused})
		}
	}
	if len(failed) > 0 {
		return replies, failed
	}
	return replies, nil
}

// Delete implements [bale.Store]. It unlinks: the memory of large values is freed in the
// background, and not while other callers wait.
func (s *Store) Delete(ctx context.Context, keys []string) (int, error) {
	if len(keys) == 0 {
		return 0, nil
	}
	return redis.Int(do(ctx, s.pool, "UNLINK", redis.Args{}.AddFlat(keys)...))
}

// Touch implements [bale.Store].
func (s *Store) Touch(ctx context.Context, key string, e bale.Expiry) (bool, error) {
	ms, absolute := e.Millis()
	switch {
	case ms == 0:
		// PERSIST says 0 for a key that has no expiry as for one that does not exist.
		if _, err := do(ctx, s.pool, "PERSIST", key); err != nil {
			return false, err
		}
		return redis.Bool(do(ctx, s.pool, "EXISTS", key))
	case absolute:
		return redis.Bool(do(ctx, s.pool, "PEXPIREAT", key, ms))
	}
	return redis.Bool(do(ctx, s.pool, "PEXPIRE", key, ms))
}

// PTTL returns the reply of PTTL for each key: the remaining milliseconds, -1 for no expiry, or -2
// for a missing key. Packages near and stream use it.
func (s *Store) PTTL(ctx context.Context, keys []string) ([]int64, error) {
	replies, err := s.each(ctx, "PTTL", keys)
	if err != nil || len(replies) == 0 {
		return nil, err
	}
	return redis.Int64s(replies, nil)
}
