package goredis

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/dict"
)

// DictStore is a [dict.Store] over a go-redis client. It is safe for concurrent use.
type DictStore struct {
	client redis.UniversalClient
}

var _ dict.Store = (*DictStore)(nil)

// NewDictStore makes a DictStore. The client stays the caller's. A [Hook] on it leaves the registry's keys alone as long as they
// start with [dict.DefaultPrefix].
func NewDictStore(client redis.UniversalClient) *DictStore { return &DictStore{client} }

// Get implements [dict.Store].
func (s *DictStore) Get(ctx context.Context, keys ...string) ([][]byte, error) {
	return NewStore(s.client).GetMany(ctx, keys)
}

// Exists implements [dict.Store].
func (s *DictStore) Exists(ctx context.Context, keys ...string) ([]bool, error) {
	exists := make([]bool, len(keys))
	if len(keys) == 0 {
		return exists, nil
	}
	cmds, err := NewStore(s.client).pipeline(ctx, "exists", keys, func(key string) redis.Cmder { return redis.NewIntCmd(ctx, "exists", key) })
	for i, cmd := range cmds {
		exists[i] = cmd.(*redis.IntCmd).Val() > 0
	}
	return exists, err
}

var swap = redis.NewScript(dict.SwapScript)

// Swap implements [dict.Store].
func (s *DictStore) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error) {
	return swapIn(ctx, s.client, key, old, value, ttl)
}

func swapIn(ctx context.Context, client redis.UniversalClient, key string, old, value []byte, ttl time.Duration) (bool, error) {
	args := make([]any, 0, 5)
	for _, a := range dict.SwapArguments(old, value, ttl) {
		args = append(args, a)
	}
	n, err := swap.Run(ctx, client, []string{key}, args...).Int()
	return n == 1, err
}

// Notify implements [dict.Store].
func (s *DictStore) Notify(ctx context.Context, channel, message string) error {
	return s.client.Publish(ctx, channel, message).Err()
}

// Listen implements [dict.Store]. What keeps it from hearing anything in the beginning is returned; later, go-redis makes a
// connection that breaks anew.
func (s *DictStore) Listen(ctx context.Context, channel string, receive func(message string)) error {
	subscription := s.client.Subscribe(ctx, channel)
	defer subscription.Close()
	defer context.AfterFunc(ctx, func() { subscription.Close() })() // Receive does not heed ctx
	// The channel of messages below tells of no errors: a user who may not subscribe, for one.
	switch first, err := subscription.Receive(ctx); {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	default:
		if _, ok := first.(*redis.Subscription); ok {
			receive("")
		}
	}
	messages := subscription.ChannelWithSubscriptions()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case m, ok := <-messages:
			if !ok {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return errors.New("the subscription was closed")
			}
			switch m := m.(type) {
			case *redis.Subscription:
				receive("")
			case *redis.Message:
				receive(m.Payload)
			}
		}
	}
}
