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

	"github.com/balekv/bale/cmd/internal/fleet"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/migrate"
)

// inPlace are the commands that work inside of a value, or on its length, and so would find packed
// bytes there. INCR and similar commands are absent: numbers are never packed.
var inPlace = map[string]bool{
	"append": true, "setrange": true, "getrange": true, "substr": true, "strlen": true, "lcs": true, "setbit": true, "getbit": true, "bitcount": true,
	"bitpos": true, "bitop": true, "bitfield": true, "bitfield_ro": true, "hstrlen": true, "eval": true, "evalsha": true, "eval_ro": true, "evalsha_ro": true, "fcall": true, "fcall_ro": true,
}

// ambiguous are those of inPlace that bale calls itself: its tools read values by them, programs
// read the registry, and scripts swap values. Only calls while advise runs count, less its own.
// Where bale is in use, the rest may be of a program's bale, too.
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

// watch returns a function that ends the watch: it sets Watched to the calls of others since.
func (s *Server) watch(ctx context.Context, client redis.UniversalClient, t *keyspace.Topology) (end func(ctx context.Context, inUse bool), err error) {
	before, err := keyspace.CommandCalls(ctx, client)
	if err != nil {
		if keyspace.IsForbidden(err) {
			err = nil
		}
		return func(context.Context, bool) {}, err
	}
	hits, err := keyspace.Hits(ctx, client)
	if err != nil {
		return nil, err
	}
	own, began := &ownCalls{of: map[string]int64{}}, time.Now()
	s.now = func(ctx context.Context, counters int64) {
		after, err := keyspace.Hits(ctx, client)
		if err != nil {
			return
		}
		own.mu.Lock()
		defer own.mu.Unlock()
		for name, n := range own.of {
			if looking[name] || name == "object" {
				counters += n
			}
		}
		s.ReadsNow = float64(max(0, after-hits-counters)) / max(1, time.Since(began).Seconds())
	}
	for _, n := range t.Nodes {
		if !n.Replica || n.Addr == n.Master { // the calls are those of masters, and of what was given
			n.Client.AddHook(own)
		}
	}
	return func(ctx context.Context, inUse bool) {
		after, err := keyspace.CommandCalls(ctx, client)
		if err != nil { // it answered before: that is worth no failure
			return
		}
		s.WatchedSeconds = time.Since(began).Seconds()
		s.attribute(func(name string) int64 {
			own.mu.Lock()
			defer own.mu.Unlock()
			return after[name] - before[name] - own.of[name]
		}, inUse, func() scripts { return scriptsOf(ctx, client) })
	}, nil
}

// attribute tells whose the calls of ambiguous commands are. Where bale is not in use they are
// those of other programs.
func (s *Server) attribute(calls func(name string) int64, inUse bool, ask func() scripts) {
	others, perhaps := map[string]int64{}, map[string]int64{}
	for _, name := range ambiguous {
		if n := calls(name); n > 0 {
			others[name] = n
		}
	}
	if len(others) > 0 {
		cached := ask()
		inUse = inUse || cached.ours > 0
		for name, n := range others {
			switch script := name == "eval" || name == "evalsha"; {
			case script && cached.known && cached.ours == cached.all: // there is no script that is not bale's
				delete(others, name)
			case script && cached.known && cached.ours == 0:
			case inUse:
				delete(others, name)
				perhaps[name] = n
			}
		}
	}
	if len(others) > 0 {
		s.Watched = others
	}
	if len(perhaps) > 0 {
		s.Unattributed = perhaps
	}
}

// scripts are the scripts that the masters keep.
type scripts struct {
	known     bool // the server told
	all, ours int64
}

// scriptsOf asks the masters for their scripts.
func scriptsOf(ctx context.Context, client redis.UniversalClient) (sum scripts) {
	var names []string
	for _, source := range migrate.Scripts() {
		names = append(names, redis.NewScript(source).Hash())
	}
	for _, script := range fleet.Scripts() {
		names = append(names, script.Hash())
	}
	var lock sync.Mutex
	add := func(ctx context.Context, node *redis.Client) error {
		there, err := node.ScriptExists(ctx, names...).Result()
		if err != nil {
			return err
		}
		memory, err := node.Info(ctx, "memory").Result()
		if err != nil {
			return err
		}
		all, err := strconv.ParseInt(keyspace.Info(memory)["number_of_cached_scripts"], 10, 64)
		lock.Lock()
		defer lock.Unlock()
		sum.all += all
		for _, is := range there {
			if is {
				sum.ours++
			}
		}
		return err
	}
	var err error
	if cluster, ok := client.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(ctx, add)
	} else {
		err = add(ctx, client.(*redis.Client))
	}
	sum.known = err == nil
	return sum
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
		s.up = max(s.up, seconds)
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
var looking = map[string]bool{"type": true, "pttl": true, "ttl": true, "strlen": true, "getrange": true, "hlen": true, "hscan": true,
	"object|encoding": true, "object|freq": true}
