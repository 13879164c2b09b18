package redigo

import (
	"context"
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/balekv/bale/dict"
)

// reconnect is how long Listen waits between attempts.
const reconnect = time.Second

// DictStore is a [dict.Store] over a redigo pool. It is safe for concurrent use.
type DictStore struct {
	pool *redis.Pool
}

var _ dict.Store = (*DictStore)(nil)

// NewDictStore makes a DictStore. The pool stays the caller's.
func NewDictStore(pool *redis.Pool) *DictStore { return &DictStore{pool} }

// Get implements [dict.Store].
func (s *DictStore) Get(ctx context.Context, keys ...string) ([][]byte, error) {
	return NewStore(s.pool).GetMany(ctx, keys)
}

// Exists implements [dict.Store].
func (s *DictStore) Exists(ctx context.Context, keys ...string) ([]bool, error) {
	exists := make([]bool, len(keys))
	if len(keys) == 0 {
		return exists, nil
	}
	commands := make([][]any, len(keys))
	for i, k := range keys {
		commands[i] = []any{k}
	}
	replies, err := pipeline(ctx, s.pool, "EXISTS", keys, commands)
	for i, r := range replies {
		exists[i] = r == int64(1)
	}
	return exists, err
}

var swap = redis.NewScript(1, dict.SwapScript)

// Swap implements [dict.Store].
func (s *DictStore) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error) {
	return swapIn(ctx, s.pool, key, old, value, ttl)
}

func swapIn(ctx context.Context, pool *redis.Pool, key string, old, value []byte, ttl time.Duration) (swapped bool, err error) {
	conn, err := pool.GetContext(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	swapped, err = redis.Bool(swap.DoContext(ctx, conn, redis.Args{key}.AddFlat(dict.SwapArguments(old, value, ttl))...))
	return swapped, ended(ctx, err)
}

// Notify implements [dict.Store].
func (s *DictStore) Notify(ctx context.Context, channel, message string) error {
	_, err := do(ctx, s.pool, "PUBLISH", channel, message)
	return err
}

// Listen implements [dict.Store], on a connection of its own.
func (s *DictStore) Listen(ctx context.Context, channel string, receive func(message string)) error {
	for {
		_ = s.listen(ctx, channel, receive) // and again, whatever it was
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(reconnect):
		}
	}
}

// listen is one connection's worth.
func (s *DictStore) listen(ctx context.Context, channel string, receive func(message string)) (err error) {
	conn, err := s.pool.GetContext(ctx)
	if err != nil {
		return err
	}
	subscription := redis.PubSubConn{Conn: conn}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := subscription.Subscribe(channel); err != nil {
		return err
	}
	for {
		switch m := subscription.ReceiveContext(ctx).(type) {
		case redis.Subscription:
			receive("")
		case redis.Message:
			receive(string(m.Data))
		case error:
			return m
		}
	}
}
