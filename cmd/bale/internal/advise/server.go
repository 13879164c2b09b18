package advise

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// inPlace are the commands that work inside of a value, or on its length, and so would find packed bytes there. INCR and
// its like are none of them: numbers are never packed.
var inPlace = map[string]bool{
	"append": true, "setrange": true, "getrange": true, "substr": true, "strlen": true, "lcs": true, "setbit": true, "getbit": true, "bitcount": true,
	"bitpos": true, "bitop": true, "bitfield": true, "bitfield_ro": true, "hstrlen": true, "eval": true, "evalsha": true, "eval_ro": true, "evalsha_ro": true, "fcall": true, "fcall_ro": true,
}

// read asks all masters.
func (s *Server) read(ctx context.Context, client redis.UniversalClient) error {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return s.describe(ctx, client.(*redis.Client))
	}
	var lock sync.Mutex
	return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		lock.Lock()
		defer lock.Unlock()
		return s.describe(ctx, node)
	})
}

// describe adds what a master says of itself.
func (s *Server) describe(ctx context.Context, node *redis.Client) error {
	for _, section := range []string{"server", "memory", "stats", "commandstats"} {
		info, err := node.Info(ctx, section).Result()
		if err != nil {
			return fmt.Errorf("INFO %s: %w", section, err)
		}
		for line := range strings.Lines(info) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				s.set(name, value)
			}
		}
	}
	s.Masters++
	return nil
}

func (s *Server) set(name, value string) {
	n, _ := strconv.ParseInt(value, 10, 64)
	switch name {
	case "redis_version", "valkey_version": // Valkey gives both, and its own last
		s.Version = value
	case "uptime_in_seconds":
		s.Seconds = max(s.Seconds, float64(n))
	case "used_memory":
		s.UsedMemory += n
	case "maxmemory":
		s.MaxMemory += n
	case "maxmemory_policy":
		s.Policy = value
	case "keyspace_hits":
		s.Hits += n
	case "keyspace_misses":
		s.Misses += n
	}
	command, ok := strings.CutPrefix(name, "cmdstat_")
	if !ok || !inPlace[command] {
		return
	}
	calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
	if n, err := strconv.ParseInt(calls, 10, 64); err == nil && n > 0 {
		if s.InPlace == nil {
			s.InPlace = map[string]int64{}
		}
		s.InPlace[command] += n
	}
}
