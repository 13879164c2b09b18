package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/bale/internal/keyspace"
)

// The scripts replace a value if it is still what was read, and leave its expiry as it is. They answer 1 for done (also if it was done before, by a
// command that was sent again), 0 for another value, and -1 for no value or one of another type.
const (
	stringScript = `
local stored = redis.pcall('GET', KEYS[1])
if type(stored) == 'table' and string.sub(stored.err, 1, 9) ~= 'WRONGTYPE' then return stored end
if type(stored) ~= 'string' then return -1 end
if stored == ARGV[2] then return 1 end
if stored ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
return 1`

	// A field's own expiry (Redis 7.4, Valkey 9) ends with HSET. ARGV[4] says whether the server knows such expiries.
	fieldScript = `
local stored = redis.pcall('HGET', KEYS[1], ARGV[3])
if type(stored) == 'table' and string.sub(stored.err, 1, 9) ~= 'WRONGTYPE' then return stored end
if type(stored) ~= 'string' then return -1 end
if stored == ARGV[2] then return 1 end
if stored ~= ARGV[1] then return 0 end
local expires = -1
if ARGV[4] == '1' then expires = redis.call('HPEXPIRETIME', KEYS[1], 'FIELDS', 1, ARGV[3])[1] end
redis.call('HSET', KEYS[1], ARGV[3], ARGV[2])
if expires > 0 then redis.call('HPEXPIREAT', KEYS[1], string.format('%.0f', expires), 'FIELDS', 1, ARGV[3]) end
return 1`

	// Values get smaller, so they may be written where memory is full (Redis 7 on).
	allowFull = "#!lua flags=allow-oom\n"

	expiryScript = `return redis.pcall('HPEXPIRETIME', KEYS[1], 'FIELDS', 1, '')`
)

// script is one of the scripts, and its name at a server that has it.
type script struct{ source, sha string }

func newScript(source string) script { return script{source, redis.NewScript(source).Hash()} }

// scripts are the two, in one form.
type scripts struct{ forString, forField script }

func newScripts(head string) *scripts {
	return &scripts{newScript(head + stringScript), newScript(head + fieldScript)}
}

// change is a value and what is to take its place.
type change struct {
	value keyspace.Value
	next  []byte
}

// outcome is what became of a change.
type outcome int

const (
	done outcome = iota
	different
	absent
	elsewhere // on another node of the cluster
)

// swapper sends the scripts.
type swapper struct {
	scripts *scripts
	full    *scripts // to go on with where memory is full; nil not to
	expiry  map[redis.UniversalClient]bool
}

// newSwapper makes a swapper of values that get smaller, or may get larger.
func newSwapper(smaller bool) *swapper {
	s := &swapper{scripts: newScripts(""), expiry: map[redis.UniversalClient]bool{}}
	if smaller {
		s.full = newScripts(allowFull)
	}
	return s
}

// swap makes changes through a client, in one go, and says what became of each.
func (s *swapper) swap(ctx context.Context, c redis.UniversalClient, changes []change) ([]outcome, error) {
	outcomes, left := make([]outcome, len(changes)), make([]int, len(changes))
	for i := range left {
		left[i] = i
	}
	expiry := false
	if i := slices.IndexFunc(changes, func(c change) bool { return c.value.InHash }); i >= 0 {
		var err error
		if expiry, err = s.knowsExpiry(ctx, c, changes[i].value.Key); keyspace.IsMoved(err) {
			for i := range outcomes {
				outcomes[i] = elsewhere
			}
			return outcomes, nil
		} else if err != nil {
			return nil, fmt.Errorf("expiries of fields: %w", err)
		}
	}
	var full error
	for whole := false; len(left) > 0; whole = true { // the second time with the scripts' source
		replies, err := s.send(ctx, c, changes, left, whole, expiry)
		if err != nil {
			return nil, err
		}
		var repeat []int
		next := s.scripts
		for n, i := range left {
			answer, err := replies[n].Int()
			switch {
			case err == nil:
				outcomes[i] = map[int]outcome{1: done, 0: different, -1: absent}[answer]
			case redis.HasErrorPrefix(err, "NOSCRIPT") && !whole:
				repeat = append(repeat, i)
			case isFull(err) && s.full != nil:
				repeat, next, full = append(repeat, i), s.full, err
			case keyspace.IsMoved(err):
				outcomes[i] = elsewhere
			case full != nil && strings.Contains(err.Error(), "ompil"): // a Redis before 7 does not take the flag
				return nil, fmt.Errorf("key %q: %w", changes[i].value.Key, full)
			default:
				return nil, fmt.Errorf("key %q: %w", changes[i].value.Key, err)
			}
		}
		if left = repeat; next != s.scripts {
			s.scripts, s.full = next, nil
		}
	}
	return outcomes, nil
}

// send sends the script for each of some changes. The error is for what is none of a single one.
func (s *swapper) send(ctx context.Context, c redis.UniversalClient, changes []change, which []int, whole, expiry bool) ([]*redis.Cmd, error) {
	replies := make([]*redis.Cmd, len(which))
	err := keyspace.Pipeline(ctx, c, len(which), func(p redis.Pipeliner, n int) {
		v, next := changes[which[n]].value, changes[which[n]].next
		script, args := s.scripts.forString, []any{v.Stored, next}
		if v.InHash {
			script, args = s.scripts.forField, append(args, v.Field, expiry)
		}
		if keys := []string{v.Key}; whole {
			replies[n] = p.Eval(ctx, script.source, keys, args...)
		} else {
			replies[n] = p.EvalSha(ctx, script.sha, keys, args...)
		}
	})
	return replies, err
}

// isFull reports a server that takes no writes for lack of memory.
func isFull(err error) bool { return redis.HasErrorPrefix(err, "OOM") }

// knowsExpiry reports whether a server gives fields of hashes expiries of their own.
func (s *swapper) knowsExpiry(ctx context.Context, c redis.UniversalClient, key string) (bool, error) {
	if knows, ok := s.expiry[c]; ok {
		return knows, nil
	}
	err := c.Eval(ctx, expiryScript, []string{key}).Err()
	unknown := err != nil && strings.Contains(err.Error(), "nknown") // "Unknown Redis command called from script"
	if err != nil && !unknown && !redis.HasErrorPrefix(err, "WRONGTYPE") {
		return false, err
	}
	s.expiry[c] = !unknown
	return !unknown, nil
}
