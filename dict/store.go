package dict

import (
	"context"
	"time"
)

// Store is what a [Registry] needs of a Redis client. The Store of each adapter is one. It is safe
// for concurrent use. Its client must not pack values itself: the registry's values would be packed
// with the dictionaries that they contain.
type Store interface {
	// Read returns the values of keys in their order, nil for a key that does not exist or is
	// empty. The server cuts a longer value to [frame.MaxDictionarySize] + 1 bytes (GETRANGE):
	// nothing of a registry is as long. The values belong to the caller. Read asks masters: a
	// program that reads the state of a lagging replica may write with a dictionary that is
	// removed.
	Read(ctx context.Context, keys ...string) ([][]byte, error)

	// Refresh reports which keys exist, and counts as a use of them where Redis evicts keys (TOUCH).
	// It must reach the servers that evict, not replicas.
	Refresh(ctx context.Context, keys ...string) ([]bool, error)

	// Swap replaces the value of a key if it is old, in one step, and reports whether it did, or
	// found the value there already. Nil is no value: with a nil old it creates the key, with a nil
	// value it deletes it. The key expires after ttl; zero means no expiry.
	Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error)

	// Notify sends a message to all that listen.
	Notify(ctx context.Context, channel, message string) error

	// Listen calls receive for each message, one after another, and with an empty one whenever it
	// has connected, for messages may have been missed. It returns when ctx ends, or with the
	// reason when it cannot listen; it is called again then.
	Listen(ctx context.Context, channel string, receive func(message string)) error

	// EvictionPolicy returns Redis's maxmemory-policy and its maxmemory in bytes, 0 for no limit.
	// On a cluster they are those of the master that endangers dictionaries most. An error means
	// that they are unknown.
	EvictionPolicy(ctx context.Context) (policy string, maxmemory int64, err error)
}
