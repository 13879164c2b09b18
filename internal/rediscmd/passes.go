package rediscmd

import "strings"

// Reason is why a command that the table does not have passes.
type Reason uint8

// The reasons there are.
const (
	Unknown    Reason = iota // the command is newer than this list, or a module's
	Numbers                  // its values are numbers, which are never packed
	NoValue                  // it reads or writes no value: fields, keys, expiries
	MovesBytes               // it sees or moves packed bytes as they are, between places where they are unpacked, or for operators
	OtherTypes               // values of lists, sets, streams and the like are never packed
	Server                   // of the connection, the server, messages and scripts
)

// passing are the commands of Redis up to 8.2 and Valkey up to 9.1 that the table does not have.
var passing = func() map[string]Reason {
	all := map[string]Reason{}
	for reason, names := range map[Reason]string{
		Numbers: "decr decrby hincrby hincrbyfloat incr incrby incrbyfloat",
		NoValue: `clusterscan dbsize del exists expire expireat expiretime hdel hexists hexpire hexpireat hexpiretime hkeys hlen hpersist hpexpire hpexpireat hpexpiretime
			hpttl httl keys persist pexpire pexpireat pexpiretime pttl randomkey scan touch ttl type unlink unwatch watch`,
		MovesBytes: "debug memory migrate move object pfdebug restore restore-asking swapdb",
		OtherTypes: `blmove blmpop blpop brpop brpoplpush bzmpop bzpopmax bzpopmin geoadd geodist geohash geopos georadius georadius_ro georadiusbymember georadiusbymember_ro
			geosearch geosearchstore lindex linsert llen lmove lmpop lpop lpos lpush lpushx lrange lrem lset ltrim rpop rpoplpush rpush rpushx sadd scard sdiff sdiffstore sinter
			sintercard sinterstore sismember smembers smismember smove spop srandmember srem sscan sunion sunionstore vadd vcard vdim vemb vgetattr vinfo vismember vlinks
			vrandmember vrem vsetattr vsim xack xackdel xadd xautoclaim xclaim xdel xdelex xgroup xinfo xlen xpending xrange xread xreadgroup xrevrange xsetid xtrim zadd zcard
			zcount zdiff zdiffstore zincrby zinter zintercard zinterstore zlexcount zmpop zmscore zpopmax zpopmin zrandmember zrange zrangebylex zrangebyscore zrangestore
			zrank zrem zremrangebylex zremrangebyrank zremrangebyscore zrevrange zrevrangebylex zrevrangebyscore zrevrank zscan zscore zunion zunionstore`,
		Server: `acl asking auth bgrewriteaof bgsave client cluster command commandlog config discard echo failover flushall flushdb function hello info lastsave latency lolwut
			module monitor multi pfselftest ping psubscribe psync publish pubsub punsubscribe quit readonly readwrite replconf replicaof reset role save script select
			shutdown slaveof slowlog spublish ssubscribe subscribe sunsubscribe sync time unsubscribe wait waitaof`,
	} {
		for _, name := range strings.Fields(names) {
			all[name] = reason
		}
	}
	return all
}()

// Passes returns why a command that the table does not have passes, given its name in lower case.
func Passes(name string) Reason { return passing[name] }
