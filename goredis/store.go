// Package goredis keeps bale's values in Redis through go-redis.
package goredis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
)

// Store is a [bale.Store] over a go-redis client: standalone, Sentinel or Cluster. It is safe for
// concurrent use.
type Store struct {
	client  redis.UniversalClient
	cluster bool
}

var _ bale.Store = (*Store)(nil)

// NewStore makes a Store. The client stays the caller's, to be closed after the Store's last use.
func NewStore(client redis.UniversalClient) *Store {
	_, cluster := client.(*redis.ClusterClient)
	return &Store{client, cluster}
}

// Get implements [bale.Store].
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	b, err := s.client.Get(ctx, key).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, bale.ErrNotFound
	}
	return b, err
}

// Set implements [bale.Store].
func (s *Store) Set(ctx context.Context, key string, value []byte, e bale.Expiry) error {
	ms, absolute := e.Millis()
	switch {
	case ms == 0:
		return s.client.Set(ctx, key, value, 0).Err()
	case absolute:
		return s.client.SetArgs(ctx, key, value, redis.SetArgs{ExpireAt: time.UnixMilli(ms)}).Err()
	}
	return s.client.Set(ctx, key, value, time.Duration(ms)*time.Millisecond).Err()
}

// GetMany implements [bale.Store].
func (s *Store) GetMany(ctx context.Context, keys []string) ([][]byte, error) {
	values := make([][]byte, len(keys))
	replies, err := s.client.MGet(ctx, keys...).Result()
	for i, r := range replies {
		if v, ok := r.(string); ok {
			values[i] = []byte(v)
		}
	}
	return values, err
}

// SetMany implements [bale.Store].
func (s *Store) SetMany(ctx context.Context, items []bale.Item) error {
	_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, i := range items {
			(&Store{client: nil}).set(ctx, p, i)
		}
		return nil
	})
	return err
}

func (s *Store) set(ctx context.Context, c redis.Cmdable, i bale.Item) {
	ms, _ := i.Expiry.Millis()
	c.Set(ctx, i.Key, i.Value, time.Duration(ms)*time.Millisecond)
}

// Delete implements [bale.Store].
func (s *Store) Delete(ctx context.Context, keys []string) (int, error) {
	n, err := s.client.Del(ctx, keys...).Result()
	return int(n), err
}

// Touch implements [bale.Store].
func (s *Store) Touch(ctx context.Context, key string, e bale.Expiry) (bool, error) {
	return false, fmt.Errorf("not yet")
}
