package dict

import (
	"context"
	"strconv"
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

	// Swap replaces the value of a key if it is old, in one step, and reports whether it did, or found the value there
	// already. Nil is no value: with
	// a nil old it creates the key, with a nil value it deletes it. The key expires after ttl, with zero
	// never.
	Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error)

	// Notify sends a message to all that listen.
	Notify(ctx context.Context, channel, message string) error

	// Listen calls receive for each message, one after another, and with an empty one whenever it has connected, for
	// messages may have been missed. It returns when ctx ends, or with the reason when it cannot listen; it is called again then.
	Listen(ctx context.Context, channel string, receive func(message string)) error
}

// SwapScript is Swap as a Lua script, for the adapters: of one key, with [SwapArguments]. It returns 1 if it did so, and also where it finds
// the value there already: a client that lost the reply has sent it again.
const SwapScript = `
local there = redis.call('GET', KEYS[1])
if (ARGV[3] == '1' and there ~= ARGV[1]) or (ARGV[3] == '0' and there) then
  if ARGV[4] == '1' and there == ARGV[2] then return 1 end
  return 0
end
if ARGV[4] == '0' then
  redis.call('DEL', KEYS[1])
elseif ARGV[5] == '0' then
  redis.call('SET', KEYS[1], ARGV[2])
else
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[5])
end
return 1`

// SwapArguments are those of [SwapScript]: the old value, the new one, whether each is a value at all, and the milliseconds that the key is
// to live, rounded up, 0 for ever. They are copies.
func SwapArguments(old, value []byte, ttl time.Duration) []string {
	is := func(v []byte) string {
		if v == nil {
			return "0"
		}
		return "1"
	}
	ms := (ttl + time.Millisecond - 1) / time.Millisecond
	return []string{string(old), string(value), is(old), is(value), strconv.FormatInt(int64(ms), 10)}
}
