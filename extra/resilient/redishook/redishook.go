// Package redishook puts the commands of a go-redis client behind a [resilient.Guard], without a
// change to the program.
package redishook

import (
	"context"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/extra/resilient"
)

// New returns a hook for a go-redis client's AddHook. Add it before other hooks that should run
// once for each try. But Install a goredis.Hook first: a wait for a dictionary is no part of a call
// then.
//
// The Guard's Options.Failed should be resilient.StoreFailed. Turn off the client's own retries
// (redis.Options.MaxRetries: -1), and let deadlines hold for its connections
// (ContextTimeoutEnabled).
//
// Commands that only read, and writes that have the same effect when Redis does them twice, may be
// retried: they are of kind resilient.Idempotent. All others are of kind resilient.Once: INCR, SET
// with NX, EVAL, XADD. A pipeline may be retried if all of its commands may, a transaction may not.
// After a retry, a write's answer can differ from that of one try: the second DEL counts no keys.
// Nothing is hedged, because a command holds one reply.
//
// Before the client of a Cluster, one Guard sees all nodes together: a node that fails opens its
// Breaker for all of them if enough calls go there. For a Guard per node add the hook to the client
// of each, in redis.ClusterClient.OnNewNode.
//
// Commands that wait for others (BLPOP, XREAD with BLOCK, WAIT, SUBSCRIBE) pass by the Guard, and
// so do those by which a client makes its connections.
func New(g *resilient.Guard) redis.Hook { return &hook{g} }

type hook struct{ guard *resilient.Guard }

// DialHook: connections have the deadline of the command that needs them.
func (h *hook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h *hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		kind, passes := kindOf(cmd)
		if passes {
			return next(ctx, cmd)
		}
		return h.do(ctx, kind, []redis.Cmder{cmd}, func(ctx context.Context) error { return next(ctx, cmd) })
	}
}

func (h *hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		kind := resilient.Idempotent
		for _, cmd := range cmds {
			k, passes := kindOf(cmd)
			if passes {
				return next(ctx, cmds)
			}
			kind = min(kind, k)
		}
		return h.do(ctx, kind, cmds, func(ctx context.Context) error { return next(ctx, cmds) })
	}
}

// do makes a call behind the Guard. A missing key is no failure, and neither is a watched key that
// has changed.
func (h *hook) do(ctx context.Context, kind resilient.Kind, cmds []redis.Cmder, call func(context.Context) error) error {
	made := false
	answer, err := resilient.Do(ctx, h.guard, kind, func(ctx context.Context) (error, error) {
		if made {
			for _, cmd := range cmds {
				cmd.SetErr(nil)
			}
		}
		made = true
		err := call(ctx)
		if err == redis.Nil || err == redis.TxFailedErr {
			return err, nil
		}
		return nil, err
	})
	switch {
	case answer != nil:
		return answer
	case !made: // refused, or over before it began
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
	}
	return err
}

// kindOf says what may be done with a command, and whether it passes by the Guard.
func kindOf(cmd redis.Cmder) (kind resilient.Kind, passes bool) {
	name := strings.ToLower(cmd.Name())
	switch {
	case aside[name], (name == "xread" || name == "xreadgroup") && has(cmd, "block"):
		return resilient.Once, true
	case repeatable[name], name == "xread":
		return resilient.Idempotent, false
	case (name == "set" || name == "json.set") && !has(cmd, "nx", "xx", "get", "ifeq", "ifne", "ifdeq", "ifdne"),
		name == "zadd" && !has(cmd, "nx", "xx", "gt", "lt", "incr", "ch"),
		strings.HasSuffix(name, "expire") || strings.HasSuffix(name, "expireat"):
		return resilient.Idempotent, false
	}
	return resilient.Once, false
}

// has reports whether a command has one of these options. Keys and values may look like one: then
// the command is not repeated, which does no harm.
func has(cmd redis.Cmder, options ...string) bool {
	for _, arg := range cmd.Args()[1:] {
		s, _ := arg.(string)
		if b, ok := arg.([]byte); ok && len(b) < 10 { // no option is longer
			s = string(b)
		}
		if slices.ContainsFunc(options, func(o string) bool { return strings.EqualFold(s, o) }) {
			return true
		}
	}
	return false
}

func set(names string) map[string]bool {
	m := map[string]bool{}
	for name := range strings.FieldsSeq(names) {
		m[name] = true
	}
	return m
}

// aside are the commands that wait for somebody else or change what the connection is for, and
// those by which the client makes its connections: a command in a Guard waits for these.
var aside = set(`hello auth select client readonly readwrite asking cluster command sentinel
	blpop brpop blmove blmpop brpoplpush bzpopmin bzpopmax bzmpop wait waitaof subscribe psubscribe ssubscribe
	unsubscribe punsubscribe sunsubscribe monitor discard watch unwatch`)

// repeatable are the commands that only read, and the writes that may be done twice.
var repeatable = set(`get mget strlen getrange substr exists ttl pttl expiretime pexpiretime type touch keys scan dbsize ping echo time info
	hget hmget hgetall hkeys hvals hlen hexists hstrlen hrandfield hscan httl hpttl hexpiretime hpexpiretime
	lrange llen lindex lpos smembers sismember smismember scard srandmember sscan sinter sunion sdiff sintercard
	zrange zrevrange zrangebyscore zrevrangebyscore zrangebylex zrevrangebylex zscore zmscore zcard zcount zlexcount zrank zrevrank
	zrandmember zscan zinter zunion zdiff zintercard xrange xrevrange xlen xinfo xpending bitcount bitpos getbit geodist geohash geopos
	geosearch pfcount sort_ro object memory eval_ro evalsha_ro fcall_ro
	setex psetex mset del unlink persist hset hmset hdel lset sadd srem zrem setbit setrange pfadd json.get json.mget`)
