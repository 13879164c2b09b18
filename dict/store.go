package dict

import (
	"context"
	"time"
)

// Store is what a [Registry] needs of a Redis client; the adapters have one for each client. It is safe for
// concurrent use. Its client must not pack values itself: the registry's own would be packed with the
// dictionaries that are in them.
type Store interface {
	// Get returns the values of keys in their order, nil for a key that does not exist. They belong to the
	// caller.
	Get(ctx context.Context, keys ...string) ([][]byte, error)

	// Exists reports which keys exist.
	Exists(ctx context.Context, keys ...string) ([]bool, error)

	// Swap replaces the value of a key if it is old, in one step, and reports whether it did. Nil is no value: with
	// a nil old it creates the key, with a nil value it deletes it. The key expires after ttl, with zero
	// never.
	Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error)

	// Notify sends a message to all that listen.
	Notify(ctx context.Context, channel, message string) error

	// Listen calls receive for each message, one after another, and with an empty one whenever it has connected, for
	// messages may have been missed. It returns when ctx ends, or when it cannot listen at all.
	Listen(ctx context.Context, channel string, receive func(message string)) error
}

// SwapScript is Swap with an old value as a Lua script, for the adapters: KEYS[1] is the key, ARGV the old value, the new one, "0"
// to delete the key in place of storing it, and the milliseconds that it is to live, "0" for ever. It returns 1 if it did so.
const SwapScript = `
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[3] == '0' then
  redis.call('DEL', KEYS[1])
elseif ARGV[4] == '0' then
  redis.call('SET', KEYS[1], ARGV[2])
else
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[4])
end
return 1`
