// Package memstore has a Store in memory for examples, so that they run without a server.
package memstore

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/balekv/bale"
)

// Store is a bale.Store with PTTL and a dict.Store, like those of the adapters. Make one with New;
// it is safe for concurrent use.
type Store struct {
	mu        sync.Mutex
	values    map[string]value
	listeners map[chan string]string // and their channels in Redis
}

type value struct {
	bytes   []byte
	expires time.Time // zero for never
}

// New makes an empty Store.
func New() *Store {
	return &Store{values: map[string]value{}, listeners: map[chan string]string{}}
}

// at returns the value of a key, unless it has expired. The caller holds the lock.
func (s *Store) at(key string) (value, bool) {
	v, ok := s.values[key]
	if ok && !v.expires.IsZero() && !time.Now().Before(v.expires) {
		delete(s.values, key)
		return value{}, false
	}
	return v, ok
}

func end(e bale.Expiry) time.Time {
	switch ms, absolute := e.Millis(); {
	case ms == 0:
		return time.Time{}
	case absolute:
		return time.UnixMilli(ms)
	default:
		return time.Now().Add(time.Duration(ms) * time.Millisecond)
	}
}

// Keys are all keys, sorted.
func (s *Store) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.values))
}

func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	values, err := s.GetMany(ctx, []string{key})
	if err == nil && values[0] == nil {
		err = bale.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return values[0], nil
}

func (s *Store) Set(ctx context.Context, key string, v []byte, e bale.Expiry) error {
	return s.SetMany(ctx, []bale.Item{{Key: key, Value: v, Expiry: e}})
}

func (s *Store) GetMany(ctx context.Context, keys []string) ([][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	values := make([][]byte, len(keys))
	for i, key := range keys {
		if v, ok := s.at(key); ok {
			values[i] = append([]byte{}, v.bytes...)
		}
	}
	return values, ctx.Err()
}

func (s *Store) SetMany(ctx context.Context, items []bale.Item) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, item := range items {
		s.values[item.Key] = value{bytes.Clone(item.Value), end(item.Expiry)}
	}
	return ctx.Err()
}

func (s *Store) Delete(ctx context.Context, keys []string) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if _, ok := s.at(key); ok {
			n++
		}
		delete(s.values, key)
	}
	return n, ctx.Err()
}

func (s *Store) Touch(ctx context.Context, key string, e bale.Expiry) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.at(key)
	if ok {
		v.expires = end(e)
		s.values[key] = v
	}
	return ok, ctx.Err()
}

func (s *Store) Swap(ctx context.Context, key string, old, v []byte, ttl time.Duration) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	present, ok := s.at(key)
	same := func(b []byte) bool { return ok == (b != nil) && bytes.Equal(present.bytes, b) }
	switch {
	case !same(old):
		return v != nil && same(v), ctx.Err()
	case v == nil:
		delete(s.values, key)
	default:
		s.values[key] = value{bytes.Clone(v), end(bale.TTL(ttl))}
	}
	return true, ctx.Err()
}

func (s *Store) PTTL(ctx context.Context, keys []string) ([]int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ms := make([]int64, len(keys))
	for i, key := range keys {
		switch v, ok := s.at(key); {
		case !ok:
			ms[i] = -2
		case v.expires.IsZero():
			ms[i] = -1
		default:
			ms[i] = time.Until(v.expires).Milliseconds()
		}
	}
	return ms, ctx.Err()
}

func (s *Store) Read(ctx context.Context, keys ...string) ([][]byte, error) {
	return s.GetMany(ctx, keys)
}

func (s *Store) Refresh(ctx context.Context, keys ...string) ([]bool, error) {
	values, err := s.GetMany(ctx, keys)
	exist := make([]bool, len(values))
	for i, v := range values {
		exist[i] = v != nil
	}
	return exist, err
}

// Notify drops a message to a listener that is 16 behind: a Group also polls.
func (s *Store) Notify(ctx context.Context, channel, message string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for to, listens := range s.listeners {
		if listens == channel {
			select {
			case to <- message:
			default:
			}
		}
	}
	return ctx.Err()
}

func (s *Store) Listen(ctx context.Context, channel string, receive func(message string)) error {
	messages := make(chan string, 16)
	s.mu.Lock()
	s.listeners[messages] = channel
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, messages)
	}()
	receive("")
	for {
		select {
		case m := <-messages:
			receive(m)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *Store) EvictionPolicy(context.Context) (policy string, maxmemory int64, err error) {
	return "noeviction", 0, nil
}
