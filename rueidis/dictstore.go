package rueidis

import (
	"context"
	"time"

	"github.com/redis/rueidis"

	"github.com/balekv/bale/dict"
)

// DictStore is a [dict.Store] over a rueidis client. It is safe for concurrent use.
type DictStore struct {
	client rueidis.Client
}

var _ dict.Store = (*DictStore)(nil)

// NewDictStore makes a DictStore. The client stays the caller's.
func NewDictStore(client rueidis.Client) *DictStore { return &DictStore{client} }

// Get implements [dict.Store].
func (s *DictStore) Get(ctx context.Context, keys ...string) ([][]byte, error) {
	return NewStore(s.client, StoreOptions{}).GetMany(ctx, keys)
}

// Exists implements [dict.Store].
func (s *DictStore) Exists(ctx context.Context, keys ...string) ([]bool, error) {
	exists := make([]bool, len(keys))
	if len(keys) == 0 {
		return exists, nil
	}
	commands := make(rueidis.Commands, len(keys))
	for i, k := range keys {
		commands[i] = s.client.B().Exists().Key(k).Build().Pin()
	}
	store := NewStore(s.client, StoreOptions{})
	return exists, store.each(ctx, "exists", keys, s.client.DoMulti(ctx, commands...), func(i int, r rueidis.RedisResult) (err error) {
		exists[i], err = r.AsBool()
		return err
	})
}

var swap = rueidis.NewLuaScript(dict.SwapScript)

// Swap implements [dict.Store].
func (s *DictStore) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error) {
	return swapIn(ctx, s.client, key, old, value, ttl)
}

func swapIn(ctx context.Context, client rueidis.Client, key string, old, value []byte, ttl time.Duration) (bool, error) {
	return swap.Exec(ctx, client, []string{key}, dict.SwapArguments(old, value, ttl)).AsBool()
}

// Notify implements [dict.Store].
func (s *DictStore) Notify(ctx context.Context, channel, message string) error {
	return s.client.Do(ctx, s.client.B().Publish().Channel(channel).Message(message).Build().Pin()).Error()
}

// Listen implements [dict.Store].
func (s *DictStore) Listen(ctx context.Context, channel string, receive func(message string)) error {
	return s.client.Receive(rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { receive("") }),
		s.client.B().Subscribe().Channel(channel).Build().Pin(), func(m rueidis.PubSubMessage) { receive(m.Message) })
}
