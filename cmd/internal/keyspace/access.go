package keyspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Optional is a command that a walk can do without.
type Optional string

// The optional commands, as ACL rules name them.
const (
	ServerInfo  Optional = "info"
	DBSize      Optional = "dbsize"
	MemoryUsage Optional = "memory|usage"

	// ClusterNodes is asked for on a cluster, together with CLUSTER INFO.
	ClusterNodes Optional = "cluster|nodes"
)

// lost is what is lost without each.
var lost = map[Optional]string{
	ServerInfo:   "it is not known whether this is a cluster, whether keys are evicted, how much memory is used, and which other databases there are; the walk does not pause for a server in trouble, and does not notice that one is restarted or fails over",
	DBSize:       "progress shows no total",
	MemoryUsage:  "sizes are not known before values are read: large values are read one element at a time at first, which takes longer",
	ClusterNodes: "the walk does not notice slots that are moved meanwhile, whose keys it may miss; one with --run does",
}

// unknownCommand is what servers answer to a command that they do not have, or that rename-command
// or a managed service took away. The rest of the message may hold arguments, and so values.
var unknownCommand = regexp.MustCompile(`(?i)^ERR (?:unknown (?:command|subcommand)|(?:this )?command (?:is )?(?:not (?:available|supported|allowed|permitted)|disabled)|unsupported command)(?:[^'"` + "`" + `]*['"` + "`" + `]([^'"` + "`" + `]+)['"` + "`" + `])?`)

// IsForbidden reports the answer to a command that a server does not have, or does not let the user
// run, whatever the key.
func IsForbidden(err error) bool {
	return err != nil && (errors.Is(err, ErrDenied) || deniedCommand(err) != "" || IsReply(err) && unknownCommand.MatchString(err.Error()))
}

// Lost probes optional commands, and CLIENT NO-TOUCH, on all masters. It returns a sentence for
// each that a server refuses, with the consequence. It changes nothing.
func Lost(ctx context.Context, client redis.UniversalClient, commands ...Optional) ([]string, error) {
	nodes, err := nodesOf(ctx, client)
	if err != nil {
		return nil, err
	}
	var all []string
	add := func(text string) {
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	for _, node := range nodes {
		for _, command := range commands {
			var err error
			switch command {
			case ServerInfo:
				err = node.Info(ctx, "server").Err()
			case DBSize:
				err = node.DBSize(ctx).Err()
			case MemoryUsage:
				err = node.MemoryUsage(ctx, probeKey).Err()
			case ClusterNodes:
				if _, ok := client.(*redis.ClusterClient); ok {
					err = cmp.Or(node.ClusterNodes(ctx).Err(), node.ClusterInfo(ctx).Err())
				}
			}
			if IsForbidden(err) {
				add(fmt.Sprintf("%v: %s", Explain(err, node.Options().Username), lost[command]))
			} else if err != nil && !IsReply(err) && !errors.Is(err, redis.Nil) {
				return nil, err
			}
		}
		text, err := touching(ctx, node)
		if err != nil {
			return nil, err
		}
		if text != "" {
			add(text)
		}
	}
	return all, nil
}

// endsByNoTouch reports a server, by its INFO, that a client with NO-TOUCH may crash. While a slot
// of a cluster is moved, such a server looks up keys before it executes a command. The lookup asks
// the client that executes one, and there is none yet. Redis 8.4 and Valkey 9.0 are mended
// (github.com/redis/redis/pull/14415, github.com/valkey-io/valkey/pull/2347). Some releases before
// are not affected, or mended later: they do without.
func endsByNoTouch(info map[string]string) bool {
	version, mended := info["redis_version"], 804
	if info["valkey_version"] != "" {
		version, mended = info["valkey_version"], 900
	}
	v := number(version) // a managed service may hide it
	cluster := info["redis_mode"] == "cluster" || info["server_mode"] == "cluster"
	return cluster && (v == 0 || v < mended && v >= 702) // which know it
}

// number is a version of two numbers as one: 7.4 is 704. It is 0 for what is none.
func number(version string) int {
	var major, minor int
	if known, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); known < 2 {
		return 0
	}
	return 100*major + minor
}

// touching says that reading makes keys look used, where that matters.
func touching(ctx context.Context, node *redis.Client) (string, error) {
	text, err := node.Info(ctx).Result()
	if err != nil && !IsReply(err) {
		return "", err
	}
	why := "INFO does not tell whether it is safe to send CLIENT NO-TOUCH"
	info := Info(text)
	switch {
	case err != nil:
	case endsByNoTouch(info):
		why = ServerName(Version(info)) + " may crash by CLIENT NO-TOUCH in a cluster while a slot is moved (Redis 8.4 and Valkey 9.0 do not), so that bale does not send it"
	default:
		refused := node.Do(ctx, "CLIENT", "NO-TOUCH", "ON").Err() // as each connection has asked already
		if refused == nil || !IsReply(refused) {
			return "", refused
		}
		why = "the server does not know CLIENT NO-TOUCH (Redis 7.2 and Valkey do)"
		if deniedCommand(refused) != "" {
			why = Explain(refused, node.Options().Username).Error()
		}
	}
	policy := info["maxmemory_policy"]
	if err == nil && !strings.HasSuffix(policy, "lru") && !strings.HasSuffix(policy, "lfu") {
		return "", nil
	}
	return fmt.Sprintf("the server evicts by %s, and every key that is read counts as used just now, because %s: keys that your programs use may be evicted before others. Read a replica, or a small --match",
		cmp.Or(policy, "a policy that it does not tell, which may be LRU or LFU"), why), nil
}
