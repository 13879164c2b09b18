package advise

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/keyspace"
)

// inPlace are the commands that work inside of a value, or on its length, and so would find packed
// bytes there. INCR and similar commands are absent: numbers are never packed.
var inPlace = map[string]bool{
	"append": true, "setrange": true, "getrange": true, "substr": true, "strlen": true, "lcs": true, "setbit": true, "getbit": true, "bitcount": true,
	"bitpos": true, "bitop": true, "bitfield": true, "bitfield_ro": true, "hstrlen": true, "eval": true, "evalsha": true, "eval_ro": true, "evalsha_ro": true, "fcall": true, "fcall_ro": true,
}

// ambiguous are those of inPlace that bale's own tools call, too: only calls while advise runs, less
// its own, show what programs do.
var ambiguous = []string{"getrange", "strlen", "hstrlen", "eval", "evalsha"}

// ownCalls counts the commands that advise sends.
type ownCalls struct {
	mu sync.Mutex
	of map[string]int64
}

func (o *ownCalls) add(commands ...redis.Cmder) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range commands {
		o.of[c.Name()]++
	}
}

func (o *ownCalls) DialHook(next redis.DialHook) redis.DialHook { return next }

func (o *ownCalls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		o.add(cmd)
		return next(ctx, cmd)
	}
}

func (o *ownCalls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		o.add(cmds...)
		return next(ctx, cmds)
	}
}

// watch returns a function that sets Watched to what programs have called since.
func (s *Server) watch(ctx context.Context, client redis.UniversalClient, t *keyspace.Topology) (end func(context.Context), err error) {
	before, err := keyspace.CommandCalls(ctx, client)
	if err != nil {
		if keyspace.IsForbidden(err) {
			err = nil
		}
		return func(context.Context) {}, err
	}
	own, began := &ownCalls{of: map[string]int64{}}, time.Now()
	for _, n := range t.Nodes {
		if !n.Replica { // the calls are those of masters
			n.Client.AddHook(own)
		}
	}
	return func(ctx context.Context) {
		after, err := keyspace.CommandCalls(ctx, client)
		if err != nil { // it answered before: that is worth no failure
			return
		}
		s.WatchedSeconds = time.Since(began).Seconds()
		own.mu.Lock()
		defer own.mu.Unlock()
		for _, name := range ambiguous {
			if n := after[name] - before[name] - own.of[name]; n > 0 {
				if s.Watched == nil {
					s.Watched = map[string]int64{}
				}
				s.Watched[name] = n
			}
		}
	}, nil
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

// info is what a master said.
type info struct {
	numbers map[string]int64
	own     int64 // calls of commands that count as hits and read no value as a whole
}

// describe adds what a master says of itself.
func (s *Server) describe(ctx context.Context, node *redis.Client) error {
	n := info{numbers: map[string]int64{}}
	s.info = map[string]string{}
	for _, section := range []string{"server", "memory", "stats", "commandstats", "keyspace"} {
		text, err := node.Info(ctx, section).Result()
		if keyspace.IsForbidden(err) { // keyspace.Nodes has a note
			break
		}
		if err != nil {
			return fmt.Errorf("INFO %s: %w", section, err)
		}
		for line := range strings.Lines(text) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				s.info[name] = value
				s.set(name, value, &n)
			}
		}
	}
	s.Version = keyspace.Version(s.info)
	s.Masters++
	if seconds := float64(n.numbers["uptime_in_seconds"]); seconds > 0 {
		s.Reads += float64(max(0, n.numbers["keyspace_hits"]-n.own)) / seconds
	}
	return nil
}

func (s *Server) set(name, value string, of *info) {
	n, _ := strconv.ParseInt(value, 10, 64)
	of.numbers[name] = n
	switch name {
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
	if db, ok := strings.CutPrefix(name, "db"); ok {
		keys, _, _ := strings.Cut(strings.TrimPrefix(value, "keys="), ",")
		number, err := strconv.Atoi(db)
		if n, keysErr := strconv.ParseInt(keys, 10, 64); err == nil && keysErr == nil {
			if s.databases == nil {
				s.databases = map[int]int64{}
			}
			s.databases[number] += n
			s.Keys += n
		}
	}
	command, ok := strings.CutPrefix(name, "cmdstat_")
	if !ok {
		return
	}
	text, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
	calls, err := strconv.ParseInt(text, 10, 64)
	if err != nil || calls == 0 {
		return
	}
	if looking[command] {
		of.own += calls
	}
	if inPlace[command] && !slices.Contains(ambiguous, command) {
		if s.InPlace == nil {
			s.InPlace = map[string]int64{}
		}
		s.InPlace[command] += calls
	}
}

// looking are the commands that this one looks at keys with, and that count as hits though nobody
// gets a value by them.
var looking = map[string]bool{"type": true, "pttl": true, "ttl": true, "strlen": true, "getrange": true, "hlen": true, "hscan": true, "object|encoding": true}
