package dict

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
)

// Store is what a [Registry] needs of a Redis client. The Store of each adapter is one. It is
// safe for concurrent use. Its client must not pack values itself: the registry's own would be
// packed with the dictionaries that are in them.
type Store interface {
	// Read returns the values of keys in their order, nil for a key that does not exist or is empty.
	// A value longer than [frame.MaxDictionarySize] is cut after one byte more by the server
	// (GETRANGE), since nothing of a registry is as long. The values belong to the caller. Read asks
	// masters: a program that reads the state of a lagging replica may write with a dictionary that
	// is removed.
	Read(ctx context.Context, keys ...string) ([][]byte, error)

	// Refresh reports which keys exist, and counts as a use of them where Redis evicts keys (TOUCH).
	// It must reach the servers that evict, not replicas.
	Refresh(ctx context.Context, keys ...string) ([]bool, error)

	// Swap replaces the value of a key if it is old, in one step, and reports whether it did, or
	// found the value there already. Nil is no value: with a nil old it creates the key, with a nil
	// value it deletes it. The key expires after ttl, with zero never.
	Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error)

	// Notify sends a message to all that listen.
	Notify(ctx context.Context, channel, message string) error

	// Listen calls receive for each message, one after another, and with an empty one whenever it
	// has connected, for messages may have been missed. It returns when ctx ends, or with the
	// reason when it cannot listen; it is called again then.
	Listen(ctx context.Context, channel string, receive func(message string)) error
}

// Policy is an optional interface of a [Store].
type Policy interface {
	// EvictionPolicy returns Redis's maxmemory-policy and its maxmemory in bytes, 0 for no limit.
	// On a cluster they are those of the master that endangers dictionaries most.
	EvictionPolicy(ctx context.Context) (policy string, maxmemory int64, err error)
}

// WorstPolicy is EvictionPolicy for the adapters: the policy of the server that endangers
// dictionaries most, from what INFO memory says of each.
func WorstPolicy(infos ...string) (policy string, maxmemory int64, err error) {
	worst := -1
	for _, info := range infos {
		var p string
		var limit int64 = -1
		for line := range strings.Lines(info) {
			if v, ok := strings.CutPrefix(line, "maxmemory:"); ok {
				limit, err = strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			} else if v, ok := strings.CutPrefix(line, "maxmemory_policy:"); ok {
				p = strings.TrimSpace(v)
			}
		}
		if err != nil || limit < 0 || p == "" {
			return "", 0, errors.New("dict: INFO memory names no maxmemory and maxmemory_policy")
		}
		if d := danger(p, limit); d > worst {
			worst, policy, maxmemory = d, p, limit
		}
	}
	return policy, maxmemory, nil
}

// danger is 2 where any key may be evicted, 1 where those with a TTL may.
func danger(policy string, maxmemory int64) int {
	switch {
	case maxmemory > 0 && strings.HasPrefix(policy, "allkeys-"):
		return 2
	case maxmemory > 0 && strings.HasPrefix(policy, "volatile-"):
		return 1
	}
	return 0
}

// SwapScript is Swap as a Lua script, for the adapters: of one key, with [SwapArguments]. It
// returns 1 if it did so, and also where it finds the value there already: a client that lost the
// reply has sent it again.
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

// SwapArguments are the arguments of [SwapScript]: the old value, the new one, and whether each is
// present. The last is the key's lifetime in milliseconds, rounded up, with 0 for no expiry. They
// are copies.
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
