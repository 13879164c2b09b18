package redigo

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/adapters"
)

// Listen's pause between attempts, and its limit on consecutive attempts that received nothing.
const (
	reconnect   = time.Second
	maxFailures = 3
)

var _ dict.Store = (*Store)(nil)

// Read implements [dict.Store].
func (s *Store) Read(ctx context.Context, keys ...string) ([][]byte, error) {
	values := make([][]byte, len(keys))
	replies, err := s.each(ctx, "GETRANGE", keys, 0, frame.MaxDictionarySize)
	for i, r := range replies {
		if v, ok := r.([]byte); ok && len(v) > 0 {
			values[i] = v
		}
	}
	return values, err
}

// each sends a command for each key, in one pipeline.
func (s *Store) each(ctx context.Context, command string, keys []string, args ...any) ([]any, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	commands := make([][]any, len(keys))
	for i, k := range keys {
		commands[i] = append([]any{k}, args...)
	}
	return pipeline(ctx, s.pool, command, keys, commands)
}

// Refresh implements [dict.Store].
func (s *Store) Refresh(ctx context.Context, keys ...string) ([]bool, error) {
	there := make([]bool, len(keys))
	replies, err := s.each(ctx, "TOUCH", keys)
	for i, r := range replies {
		there[i] = r == int64(1)
	}
	return there, err
}

// EvictionPolicy implements [dict.Store].
func (s *Store) EvictionPolicy(ctx context.Context) (policy string, maxmemory int64, err error) {
	info, err := redis.String(do(ctx, s.pool, "INFO", "memory"))
	if err != nil {
		return "", 0, err
	}
	return adapters.WorstPolicy(info)
}

var swap = redis.NewScript(1, adapters.SwapScript)

// Swap implements [bale.Store] and [dict.Store].
func (s *Store) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (swapped bool, err error) {
	conn, err := connection(ctx, s.pool)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	args := redis.Args{key}.AddFlat(adapters.SwapArguments(old, value, ttl))
	swapped, err = s.script.Run(func(whole bool) (bool, error) {
		if whole {
			return redis.Bool(redis.DoContext(conn, ctx, "EVAL", redis.Args{adapters.SwapScript, 1}.AddFlat(args)...))
		}
		return redis.Bool(swap.DoContext(ctx, conn, args...))
	})
	return swapped, ended(ctx, err)
}

// Notify implements [dict.Store].
func (s *Store) Notify(ctx context.Context, channel, message string) error {
	_, err := do(ctx, s.pool, "PUBLISH", channel, message)
	return err
}

// Listen implements [dict.Store], on a connection of its own that the pool dials and does not
// count. It replaces a connection that breaks. If several in a row receive nothing, it returns
// their error.
func (s *Store) Listen(ctx context.Context, channel string, receive func(message string)) error {
	for failures := 0; ; {
		heard, err := s.listen(ctx, channel, receive)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if heard {
			failures = 0
		} else if failures++; failures == maxFailures {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(reconnect):
		}
	}
}

// listen is one connection's worth, and reports whether it heard anything.
func (s *Store) listen(ctx context.Context, channel string, receive func(message string)) (heard bool, err error) {
	conn, err := s.dial(ctx)
	if err != nil {
		return false, err
	}
	end := sync.OnceValue(conn.Close)
	defer end()
	defer context.AfterFunc(ctx, func() { end() })()
	subscription := redis.PubSubConn{Conn: conn}
	if err := subscription.Subscribe(channel); err != nil {
		return false, err
	}
	for {
		// Wait without a limit: the connection's own timeout is for replies.
		switch m := subscription.ReceiveWithTimeout(0).(type) {
		case redis.Subscription:
			receive("")
		case redis.Message:
			receive(string(m.Data))
		case error:
			return heard, m
		}
		heard = true
	}
}

// dial makes a connection as the pool does, which need not have one left.
func (s *Store) dial(ctx context.Context) (redis.Conn, error) {
	switch {
	case s.pool.DialContext != nil:
		return s.pool.DialContext(ctx)
	case s.pool.Dial != nil:
		return s.pool.Dial()
	}
	return nil, errors.New("redigo: the pool has neither Dial nor DialContext")
}
