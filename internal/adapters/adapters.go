// Package adapters has what the Stores of all clients share.
package adapters

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

type mastersKey struct{}

// FromMasters returns a context with which Get and PTTL of a Store ask masters, even if the client
// reads from replicas or caches values in the process. A Store around another one passes it on.
func FromMasters(ctx context.Context) context.Context {
	return context.WithValue(ctx, mastersKey{}, true)
}

// AsksMasters reports whether the context is one of FromMasters.
func AsksMasters(ctx context.Context) bool { return ctx.Value(mastersKey{}) != nil }

// CheckMany reports a reply to MGET that has not one value for each key. No Redis sends it, and
// what belongs to which key is unknown then.
func CheckMany(keys, values int) error {
	if keys != values {
		return fmt.Errorf("MGET of %d keys has a reply of %d values", keys, values)
	}
	return nil
}

// WorstPolicy is the method EvictionPolicy of a dict.Store: the policy of the server that endangers
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
			return "", 0, errors.New("INFO memory names no maxmemory and maxmemory_policy")
		}
		if d := Danger(p, limit); d > worst {
			worst, policy, maxmemory = d, p, limit
		}
	}
	return policy, maxmemory, nil
}

// Danger is 2 where any key may be evicted, 1 where those with a TTL may.
func Danger(policy string, maxmemory int64) int {
	switch {
	case maxmemory > 0 && strings.HasPrefix(policy, "allkeys-"):
		return 2
	case maxmemory > 0 && strings.HasPrefix(policy, "volatile-"):
		return 1
	}
	return 0
}

// SwapScript is the method Swap of a Store as a Lua script: of one key, with [SwapArguments]. It
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
	ms := ttl.Milliseconds()
	if ttl%time.Millisecond > 0 {
		ms++
	}
	return []string{string(old), string(value), is(old), is(value), strconv.FormatInt(ms, 10)}
}

// Script runs a script by its SHA-1, which saves sending it, or as a whole where the server or its
// ACL has EVAL alone. The zero value is ready, and safe for concurrent use.
type Script struct {
	whole atomic.Bool // EVALSHA was refused
}

// Run calls run, which sends EVAL if whole is set, and else EVALSHA with EVAL for NOSCRIPT. It
// remembers that EVALSHA is refused.
func (s *Script) Run(run func(whole bool) (bool, error)) (bool, error) {
	if s.whole.Load() {
		return run(true)
	}
	ok, err := run(false)
	if !refusedSHA(err) {
		return ok, err
	}
	s.whole.Store(true)
	return run(true)
}

// refusedSHA reports that the ACL does not allow EVALSHA, or that the server does not have it. All
// servers quote the command in either answer; clients leave out ERR at times.
func refusedSHA(err error) bool {
	if err == nil {
		return false
	}
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "'evalsha'") && (strings.Contains(text, "noperm ") || strings.Contains(text, "unknown command"))
}
