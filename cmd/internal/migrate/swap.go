package migrate

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/internal/adapters"
)

// The scripts replace a value if it is unchanged since it was read, and keep its expiry. The first
// argument is that value, or its SHA-1 if the last one is its length, else 0. Before the last are
// two times in milliseconds, 0 for none. The first is the latest end of the value, -1 to delete it.
// The second is when the run must stop writing. They answer
//
//	 1  done, also by an earlier attempt
//	 2  deleted
//	 3  a field that cannot have an expiry
//	 4  too late to write
//	 0  another value
//	-1  no value, or another type
//
// or with an error, and then nothing was written.
const (
	helpScript = `
local function same(stored, length)
  if length == '0' then return stored == ARGV[1] end
  return #stored == tonumber(length) and redis.sha1hex(stored) == ARGV[1]
end
local function late(by)
  if by == 0 then return false end
  local now = redis.call('TIME')
  return by <= now[1] * 1000 + math.floor(now[2] / 1000)
end`

	stringScript = helpScript + `
local stored = redis.pcall('GET', KEYS[1])
if type(stored) == 'table' and string.sub(stored.err, 1, 9) ~= 'WRONGTYPE' then return stored end
if type(stored) ~= 'string' then return -1 end
if stored == ARGV[2] then return 1 end
if not same(stored, ARGV[5]) then return 0 end
if late(tonumber(ARGV[4])) then return 4 end
local at = tonumber(ARGV[3])
if at < 0 then
  redis.call('DEL', KEYS[1])
  return 2
end
local ttl = redis.call('PTTL', KEYS[1])
redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
if at > 0 and type(redis.pcall('PEXPIREAT', KEYS[1], ARGV[3], 'LT')) == 'table' then
  -- Before Redis 7.0, without LT. Its clock may go on between the two commands, by a millisecond.
  local ended = redis.pcall('PEXPIREAT', KEYS[1], ARGV[3])
  if type(ended) == 'table' then
    redis.call('SET', KEYS[1], stored, 'KEEPTTL')
    return ended
  end
  if ttl >= 0 and ttl < redis.call('PTTL', KEYS[1]) then redis.call('PEXPIRE', KEYS[1], ttl) end
end
return 1`

	// endsScript is when a field is to end, given a time that may be earlier than its own; 0 is for
	// none. An error says that the server cannot have a field end then: Redis 8.2 not beyond 2^46
	// ms. It asks by a command that changes nothing, for it sets an expiry only if there is one
	// (XX) or none (NX).
	endsScript = `
local function ends(at, field)
  local own = redis.call('HPEXPIRETIME', KEYS[1], 'FIELDS', 1, field)[1]
  local first, condition = own, 'NX'
  if own < 0 then first, condition = 0, 'XX' end
  if at > 0 and (own < 0 or at < own) then first = at end
  if first == 0 then return 0 end
  local answer = redis.pcall('HPEXPIREAT', KEYS[1], string.format('%.0f', first), condition, 'FIELDS', 1, field)
  if answer.err then return answer end
  return first
end`

	// pretendScript answers as fieldScript would about a time, and changes nothing.
	pretendScript = endsScript + `
local answer = ends(tonumber(ARGV[2]), ARGV[1])
if type(answer) == 'table' then return answer end
return 1`

	// A field's own expiry (Redis 7.4, Valkey 9) ends with HSET. ARGV[4] is 1 if the server has
	// expiries of fields.
	fieldScript = helpScript + endsScript + `
local stored = redis.pcall('HGET', KEYS[1], ARGV[3])
if type(stored) == 'table' and string.sub(stored.err, 1, 9) ~= 'WRONGTYPE' then return stored end
if type(stored) ~= 'string' then return -1 end
if stored == ARGV[2] then return 1 end
if not same(stored, ARGV[7]) then return 0 end
if late(tonumber(ARGV[6])) then return 4 end
local at = tonumber(ARGV[5])
if at < 0 then
  redis.call('HDEL', KEYS[1], ARGV[3])
  return 2
end
if at > 0 and ARGV[4] ~= '1' then return 3 end
local last = 0
if ARGV[4] == '1' then last = ends(at, ARGV[3]) end
if type(last) == 'table' then return last end
redis.call('HSET', KEYS[1], ARGV[3], ARGV[2])
if last > 0 then redis.call('HPEXPIREAT', KEYS[1], string.format('%.0f', last), 'FIELDS', 1, ARGV[3]) end
return 1`

	// A value that gets smaller may be written where memory is full (Redis 7 on).
	allowFull = "#!lua flags=allow-oom\n"

	expiryScript = `return redis.pcall('HPEXPIRETIME', KEYS[1], 'FIELDS', 1, '')`

	probeScript = `return 1`
)

// script is one of the scripts, and its name at a server that has it.
type script struct{ source, sha string }

func newScript(source string) script { return script{source, redis.NewScript(source).Hash()} }

// scripts are the two, in one form.
type scripts struct{ forString, forField script }

func newScripts(head string) *scripts {
	return &scripts{newScript(head + stringScript), newScript(head + fieldScript)}
}

// Scripts are the sources of the scripts of this package, and of the one by which Stores swap
// values. Package fleet has those of runs. There are no others.
func Scripts() []string {
	return []string{
		stringScript, fieldScript, allowFull + stringScript, allowFull + fieldScript, pretendScript, expiryScript, probeScript,
		adapters.SwapScript,
	}
}

// change is a value and what is to take its place.
type change struct {
	value keyspace.Value
	next  []byte
	ends  time.Time // at the latest; zero for no limit. A value whose time has come is deleted
	cause error     // why the server refused it
}

// outcome is what became of a change.
type outcome int

const (
	done outcome = iota
	different
	absent
	elsewhere // on another node of the cluster
	deleted   // it had expired
	endless   // a field that should get an expiry, on a server that knows none
	refused   // the server cannot, or does not take it, for this value alone
	late      // the server came to it when the run must not write any more
)

// swapper sends the scripts.
type swapper struct {
	scripts *scripts
	forFull *scripts // of values that get smaller, where memory is full
	full    bool     // it was full once
	leaves  bool     // what gets larger stays as it is where memory is full; else that is an error
	expiry  map[redis.UniversalClient]bool
	noSHA   bool // EVALSHA is forbidden: the scripts are sent as a whole
}

func newSwapper() *swapper {
	return &swapper{scripts: newScripts(""), forFull: newScripts(allowFull), expiry: map[redis.UniversalClient]bool{}}
}

// swap makes changes through a client, in one go, and returns the result of each. The server makes
// none after until; zero is no limit.
func (s *swapper) swap(
	ctx context.Context, c redis.UniversalClient, changes []change, until time.Time,
) ([]outcome, error) {
	by, err := onServer(ctx, c, until)
	if err != nil {
		return nil, err
	}
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
	for whole := s.noSHA; len(left) > 0; whole = true { // the second time with the scripts' source
		replies, err := s.send(ctx, c, changes, left, whole, expiry, by)
		if err != nil && len(changes) == 1 && changes[0].large() && c.Ping(ctx).Err() == nil {
			changes[0].cause = fmt.Errorf("the connection broke while %s were sent (maxmemory-clients?): %w",
				printable.Size(len(changes[0].next)), err)
			return []outcome{refused}, nil
		}
		if err != nil {
			return nil, err
		}
		var repeat []int
		for n, i := range left {
			answer, err := replies[n].Int()
			switch {
			case err == nil:
				known := false
				if outcomes[i], known = map[int]outcome{1: done, 2: deleted, 3: endless, 4: late, 0: different,
					-1: absent}[answer]; !known {
					return nil, fmt.Errorf("key %q: the script answered %d, which is none of its answers",
						changes[i].value.Key, answer)
				}
			case redis.HasErrorPrefix(err, "NOSCRIPT") && !whole:
				repeat = append(repeat, i)
			case isFull(err) && !s.full && changes[i].smaller():
				repeat, full = append(repeat, i), err
			case isFull(err) && s.leaves && !changes[i].smaller():
				outcomes[i], changes[i].cause = refused, err
			case keyspace.IsMoved(err):
				outcomes[i] = elsewhere
			case keyspace.IsForbidden(err) && !whole: // EVALSHA is; EVAL may do
				repeat, s.noSHA = append(repeat, i), true
			case strings.HasPrefix(err.Error(), "ERR ") && full == nil && !keyspace.IsForbidden(err) &&
				!ofServer.MatchString(err.Error()):
				outcomes[i], changes[i].cause = refused, keyspace.Explain(err, keyspace.UserOf(c))
			case full != nil && strings.Contains(err.Error(), "ompil"): // a Redis before 7 does not take the flag
				return nil, fmt.Errorf("key %q: %w", changes[i].value.Key, full)
			default:
				return nil, fmt.Errorf("key %q: %w", changes[i].value.Key, keyspace.Explain(err, keyspace.UserOf(c)))
			}
		}
		left, s.full = repeat, s.full || full != nil
	}
	return outcomes, nil
}

// hasEnded reports a time that has come; zero never comes. It is the time of this machine, as in
// programs that read the value.
func hasEnded(at time.Time) bool { return !at.IsZero() && !time.Now().Before(at) }

// onServer is a time of this machine by the server's clock, in milliseconds, and no later than it
// is; 0 for zero. Of several servers it is the earliest.
func onServer(ctx context.Context, c redis.UniversalClient, at time.Time) (int64, error) {
	if at.IsZero() {
		return 0, nil
	}
	cluster, ok := c.(*redis.ClusterClient)
	if !ok {
		now, err := c.Time(ctx).Result()
		if err != nil {
			return 0, fmt.Errorf("TIME: %w", keyspace.Explain(err, keyspace.UserOf(c)))
		}
		return max(1, now.Add(time.Until(at)).UnixMilli()), nil
	}
	var lock sync.Mutex
	var earliest int64
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		there, err := onServer(ctx, node, at)
		lock.Lock()
		defer lock.Unlock()
		if err == nil && (earliest == 0 || there < earliest) {
			earliest = there
		}
		return err
	})
	return earliest, err
}

// farthest is the first time in milliseconds that Redis 8.2 cannot have a field end at: it keeps 46
// bits.
const farthest = 1 << 46

// pretend says what swap would do if no program wrote meanwhile.
func (s *swapper) pretend(
	ctx context.Context, c redis.UniversalClient, changes []change,
) ([]outcome, error) {
	outcomes := make([]outcome, len(changes))
	for i, change := range changes {
		switch {
		case change.ends.IsZero():
		case hasEnded(change.ends):
			outcomes[i] = deleted
		case change.value.InHash:
			knows, err := s.knowsExpiry(ctx, c, change.value.Key)
			if keyspace.IsMoved(err) {
				outcomes[i] = elsewhere
			} else if err != nil {
				return nil, fmt.Errorf("expiries of fields: %w", err)
			} else if !knows {
				outcomes[i] = endless
			} else if at := change.ends.UnixMilli(); at >= farthest {
				err := c.Eval(ctx, pretendScript, []string{change.value.Key}, change.value.Field, at).Err()
				switch {
				case keyspace.IsMoved(err):
					outcomes[i] = elsewhere
				case keyspace.IsReply(err):
					outcomes[i], changes[i].cause = refused, keyspace.Explain(err, keyspace.UserOf(c))
				case err != nil:
					return nil, err
				}
			}
		}
	}
	return outcomes, nil
}

// The server holds twice what it is sent, and that counts against maxmemory.
const (
	// largestOld is the largest value in bytes that is sent to be compared. Of a larger one the server
	// makes the SHA-1, 3 ms for each MiB.
	largestOld = 1 << 20
	// LargestPacked is the largest value in bytes that is sent for another to take its place, with its
	// names. A revert sends any.
	LargestPacked = 8 << 20
)

// size is how many bytes of names and of the new value are sent.
func (c *change) size() int { return len(c.value.Key) + len(c.value.Field) + len(c.next) }

// smaller reports a change that takes no more memory than before.
func (c *change) smaller() bool { return len(c.next) <= len(c.value.Stored) }

// large reports a change that may make the server end the connection (maxmemory-clients).
func (c *change) large() bool { return len(c.next) > largestOld }

// send sends the script for each of some changes. It returns errors of the pipeline, not those of
// single changes.
func (s *swapper) send(
	ctx context.Context, c redis.UniversalClient, changes []change, which []int, whole, expiry bool, by int64,
) ([]*redis.Cmd, error) {
	replies := make([]*redis.Cmd, len(which))
	err := keyspace.Pipeline(ctx, c, len(which), func(p redis.Pipeliner, n int) {
		v, next := changes[which[n]].value, changes[which[n]].next
		at := int64(0)
		if ends := changes[which[n]].ends; hasEnded(ends) {
			at = -1
		} else if !ends.IsZero() {
			at = ends.UnixMilli()
		}
		old, length := any(v.Stored), 0
		if len(v.Stored) > largestOld {
			sum := sha1.Sum(v.Stored)
			old, length = hex.EncodeToString(sum[:]), len(v.Stored)
		}
		scripts := s.scripts
		if s.full && changes[which[n]].smaller() {
			scripts = s.forFull
		}
		script, args := scripts.forString, []any{old, next, at, by, length}
		if v.InHash {
			script, args = scripts.forField, []any{old, next, v.Field, expiry, at, by, length}
		}
		if keys := []string{v.Key}; whole {
			replies[n] = p.Eval(ctx, script.source, keys, args...)
		} else {
			replies[n] = p.EvalSha(ctx, script.sha, keys, args...)
		}
	})
	return replies, err
}

// ofServer matches what a Redis before 7 says of itself in a script's error, and not of the value:
// "ERR Error running script (...): ... -OOM command ...".
var ofServer = regexp.MustCompile(`-(OOM|READONLY|MISCONF|NOREPLICAS|NOAUTH|NOPERM) `)

// isFull reports a server that takes no writes for lack of memory.
func isFull(err error) bool { return redis.HasErrorPrefix(err, "OOM") }

// knowsExpiry reports whether a server gives fields of hashes expiries of their own.
func (s *swapper) knowsExpiry(
	ctx context.Context, c redis.UniversalClient, key string,
) (bool, error) {
	if knows, ok := s.expiry[c]; ok {
		return knows, nil
	}
	err := c.Eval(ctx, expiryScript, []string{key}).Err()
	if keyspace.IsForbidden(err) { // EVAL, by rename-command: it says nothing of expiries
		return false, keyspace.Explain(err, keyspace.UserOf(c))
	}
	unknown := err != nil && strings.Contains(err.Error(), "nknown") // "Unknown Redis command called from script"
	if err != nil && !unknown && !redis.HasErrorPrefix(err, "WRONGTYPE") {
		return false, err
	}
	s.expiry[c] = !unknown
	return !unknown, nil
}

// CanSwap returns an error if a server is a replica, or does not let the user run scripts: a run
// needs them to change values. EVAL is enough: EVALSHA saves sending them.
func CanSwap(ctx context.Context, client redis.UniversalClient) error {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx,
			func(ctx context.Context, node *redis.Client) error { return CanSwap(ctx, node) })
	}
	err := client.Eval(ctx, probeScript, nil).Err()
	if keyspace.IsForbidden(err) {
		return fmt.Errorf("values are replaced by a script within the server: %w",
			keyspace.Explain(err, keyspace.UserOf(client)))
	}
	if err != nil && !keyspace.IsReply(err) {
		return err
	}
	return keyspace.TakesWrites(ctx, client)
}
