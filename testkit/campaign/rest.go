package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/internal/redisproc"
	"github.com/balekv/bale/stream"
)

// rest ends all faults, and checks the state. All values must be readable and match the model. No
// expiry may be longer than before, and nothing may be left over.
func (w *walk) rest(ctx context.Context, r *rand.Rand) error {
	w.event("rest")
	if err := w.servers.heal(ctx); err != nil {
		return err
	}
	for i, s := range w.workers {
		if f := s.load(); f == nil || f.process.ended() {
			w.startWorker(ctx, i, w.planWorker(r, i))
		} else {
			f.process.signal(syscall.SIGCONT)
		}
	}
	if err := w.drain(); err != nil {
		return err
	}
	// After this sleep the servers have read all pending commands, and programs have polled. Locks,
	// leases, and the chunks of replaced values are gone.
	sleep(ctx, lockTTL+streamLease+streamGrace+2*w.c.grace)
	w.model.settle(w.now())
	fresh := make([]*fleetWorker, 0, 2)
	defer func() {
		for _, f := range fresh {
			f.process.kill()
		}
	}()
	for i, engine := range []string{"libzstd", "go"} { // which know nothing of what was
		config := w.planWorker(r, i)
		config.Engine, config.Auto = engine, false
		w.servers.tell(&config)
		f, err := w.spawn(ctx, config)
		if err != nil {
			return fmt.Errorf("at rest: %w", err)
		}
		fresh = append(fresh, f)
	}
	w.repair(ctx, fresh)
	w.leftovers(ctx)
	w.readAll(ctx, fresh, "at rest")
	w.staleIfHanging(ctx, fresh)
	w.expiries(fresh[0])
	w.verify(ctx, "at rest")
	group := []string{groupStrings, groupCaches}[r.IntN(2)]
	line, what := revertAll, "revert"
	switch r.IntN(4) {
	case 0:
		line, what = repackAll, "repack"
	case 1:
		line, what = collectAll, "gc"
	case 2:
		line = ""
	}
	if line != "" && w.c.tools {
		pattern := patterns[group][r.IntN(len(patterns[group]))]
		if line == repackAll {
			pattern = "*"
		}
		w.runTool(ctx, toolPlan{name: what + "-at-rest", args: w.fill(line, group, pattern, 0, 0), chaos: "none"})
		w.readAll(ctx, fresh, "after "+what)
		w.expiries(fresh[0])
		w.verify(ctx, "after "+what)
	}
	w.orphaned, w.lost = false, ""
	w.count("rests", 1)
	return nil
}

// readAll reads every key by every worker.
func (w *walk) readAll(ctx context.Context, by []*fleetWorker, when string) {
	w.model.mu.Lock()
	keys := slices.Clone(w.model.keys)
	w.model.mu.Unlock()
	seen := map[string]got{}
	var alone []string
	var mu sync.Mutex
	start := w.now()
	for _, f := range by {
		for i := 0; i < len(keys); {
			key := keys[i]
			o := request{Kind: "get", Keys: []string{key}, Timeout: 20000}
			names := o.Keys
			switch {
			case strings.HasPrefix(key, "hh:"):
				hash, field, _ := strings.Cut(key, "|")
				o.Kind, o.Keys, o.Fields = "hhget", []string{hash}, []string{field}
			case strings.HasPrefix(key, "h:"):
				o.Kind = "hget"
			case strings.HasPrefix(key, "x:"), strings.HasPrefix(key, "y:"):
				o.Kind = "hmget"
				prefix, _, _ := strings.Cut(key, "}")
				for _, k := range keys[i+1:] {
					if strings.HasPrefix(k, prefix+"}") {
						o.Keys = append(o.Keys, k)
						continue
					}
					break
				}
				names = o.Keys
			case strings.HasPrefix(key, "s:"):
				o.Kind = "sget"
			}
			sent := w.send(f, o, func() {}, func(a reply, now instant) {
				mu.Lock()
				defer mu.Unlock()
				for j, g := range a.Got {
					if g.State == gotError && len(a.Got) > 1 { // the error may be another key's
						alone = append(alone, names[j])
						continue
					}
					w.count("reads at rest", 1)
					w.atRest(ctx, f, names[j], start, now, g, when)
					if old, is := seen[names[j]]; !is || old.State == gotValue {
						seen[names[j]] = g
					}
				}
			})
			if sent {
				i += len(names)
			} else if f.process.ended() {
				w.violate("", "campaign", "a worker ended at rest")
				return
			} else {
				time.Sleep(time.Millisecond)
			}
		}
	}
	settled(by)
	mu.Lock()
	again := slices.Compact(slices.Sorted(slices.Values(alone)))
	mu.Unlock()
	for _, key := range again {
		w.send(by[0], request{Kind: "hget", Keys: []string{key}, Timeout: 20000}, func() {}, func(a reply, now instant) {
			mu.Lock()
			defer mu.Unlock()
			for _, g := range a.Got {
				w.atRest(ctx, by[0], key, start, now, g, when)
				seen[key] = g
			}
		})
		settled(by)
	}
	mu.Lock()
	defer mu.Unlock()
	for key, g := range seen {
		if g.State == gotValue || g.State == gotNone {
			w.model.found(key, g, w.now())
		}
	}
}

// settled waits until workers have nothing to do.
func settled(by []*fleetWorker) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		flying := int64(0)
		for _, f := range by {
			flying += f.flying.Load()
		}
		if flying == 0 {
			return
		}
	}
}

// atRest checks what was read while nothing else was under way.
func (w *walk) atRest(ctx context.Context, f *fleetWorker, key string, start, now instant, g got, when string) {
	w.model.mu.Lock()
	broken := w.model.at(key).broken
	w.model.mu.Unlock()
	switch g.State {
	case gotBad:
		w.violate(key, "false value", when+": "+g.Err)
	case gotError:
		w.unreadable(ctx, key, when+": "+g.Err)
	default:
		if err := w.model.allows(key, start, now, g); err != nil && !broken {
			class := "stale"
			if g.State == gotNone {
				class = "lost"
			}
			w.violate(key, class, fmt.Sprintf("%s, by worker %d (%s): %v", when, f.config.Number, f.config.Engine, err))
		}
	}
}

// dictionaryID is the id of a dictionary in an error.
var dictionaryID = regexp.MustCompile(`\b[0-9a-f]{8}\b`)

// needsLost reports whether the error of a value names one of the dictionaries that were lost.
func needsLost(what, lost string) bool {
	return slices.ContainsFunc(dictionaryID.FindAllString(what, -1), func(id string) bool { return strings.Contains(lost, ":"+id) })
}

// unreadable is for a value that cannot be read at rest. It is deleted, so that it is reported
// once.
func (w *walk) unreadable(ctx context.Context, key, what string) {
	w.model.mu.Lock()
	r := w.model.at(key)
	doubt, broken := r.doubt, r.broken
	r.broken = true
	w.model.mu.Unlock()
	if broken {
		return
	}
	// After a loss a server may lack parts of a stream in many keys. An emptied server may also
	// lack the dictionary of a value that another server still has, or that a program wrote before
	// it ended. Eviction is no excuse: programs keep dictionaries in use.
	evicted := strings.HasSuffix(doubt, "-lru")
	if doubt != "" && (strings.HasPrefix(key, "s:") || !evicted) || w.orphaned || needsLost(what, w.lost) {
		w.count("unreadable after a loss", 1)
	} else {
		class := "unreadable"
		switch {
		case strings.HasPrefix(key, "s:"):
			class = "unreadable stream"
		case strings.Contains(what, "dictionary"):
			class = "unknown dictionary"
		}
		w.violate(key, class, what)
	}
	name, field, hash := strings.Cut(key, "|")
	if hash {
		_ = w.servers.client.HDel(ctx, name, field).Err()
	} else {
		_ = w.servers.client.Del(ctx, name).Err()
		for _, server := range w.servers.masters(ctx) { // the chunks of a stream, which nothing names any more
			if strings.HasPrefix(name, "s:") {
				_, _ = server.Do(ctx, "EVAL", "for _, k in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', k) end", "0", name+":*")
			}
		}
	}
	w.model.found(key, got{State: gotNone}, w.now())
}

// expiries checks that no key lives longer than requested.
func (w *walk) expiries(f *fleetWorker) {
	w.model.mu.Lock()
	var keys []string
	for _, key := range w.model.keys {
		if !strings.Contains(key, "|") && !w.model.registers[key].broken {
			keys = append(keys, key)
		}
	}
	w.model.mu.Unlock()
	var waiting sync.WaitGroup
	for start := range slices.Chunk(keys, 50) {
		begun := w.now()
		waiting.Add(1)
		sent := w.send(f, request{Kind: "pttl", Keys: start, Timeout: 20000}, func() {}, func(a reply, now instant) {
			defer waiting.Done()
			for i, g := range a.Got {
				if g.State != gotValue || g.PTTL == -2 {
					continue
				}
				d := time.Duration(g.PTTL) * time.Millisecond
				if g.PTTL == -1 {
					d = -1
				}
				w.count("expiries checked", 1)
				if err := w.model.allowsTTL(start[i], d, begun, now); err != nil {
					w.violate(start[i], "expiry", err.Error())
				}
			}
		})
		if !sent {
			waiting.Done()
			time.Sleep(5 * time.Millisecond)
		}
	}
	waiting.Wait()
}

// staleIfHanging checks that an old value is returned where a load hangs for longer than its
// callers wait.
func (w *walk) staleIfHanging(ctx context.Context, by []*fleetWorker) {
	const ttl = 300 * time.Millisecond
	keys := []string{"l:hang:0", "l:hang:1", "l:hang:2"}
	ask := func(f *fleetWorker, key, loader string, timeout time.Duration, then func(reply)) {
		w.next++
		o := request{Kind: "load", Keys: []string{key}, N: []int64{w.next}, TTL: ttl.Milliseconds(), Timeout: timeout.Milliseconds(), Loader: loader, Size: 300}
		v := w.loads.begin(key, w.next, ttl, loader, w.now())
		w.send(f, o, func() {}, func(a reply, now instant) {
			w.loads.finish(v, false, now)
			if len(a.Got) == 1 {
				then(a)
			}
		})
	}
	wait := func() { settled(by) }
	for _, key := range keys {
		_ = w.servers.client.Del(ctx, key, key+":lock").Err()
		ask(by[0], key, "ok", 5*time.Second, func(a reply) {})
	}
	wait()
	stored := w.now()
	time.Sleep(ttl + 50*time.Millisecond)
	for _, key := range keys {
		for _, f := range by {
			ask(f, key, "hang", 700*time.Millisecond, func(a reply) {
				if w.now()-stored < ttl+staleIfError-slack && a.Got[0].State != gotValue {
					w.violate(key, "no stale value", fmt.Sprintf("the loader hangs, and the value expired %v ago: %s %s", w.now()-stored-ttl, a.Got[0].State, a.Got[0].Err))
				}
			})
		}
	}
	wait()
}

// repair tidies up after streams whose writers were killed, as bale says that an operator does.
func (w *walk) repair(ctx context.Context, by []*fleetWorker) {
	for i := range streamKeys {
		key := fmt.Sprintf("s:%d", i)
		w.send(by[0], request{Kind: "srepair", Keys: []string{key}, Timeout: 10000}, func() {}, func(a reply, _ instant) {
			if len(a.Wrote) == 1 && !a.Wrote[0].OK {
				w.event("repair of %s: %s", key, a.Wrote[0].Err)
			}
		})
	}
	settled(by)
	sleep(ctx, streamGrace+200*time.Millisecond)
}

// leftovers looks for keys that nobody wants any more.
func (w *walk) leftovers(ctx context.Context) {
	for _, server := range w.servers.masters(ctx) {
		w.leftoversOf(ctx, server)
	}
}

func (w *walk) leftoversOf(ctx context.Context, server *redisproc.Server) {
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: 10 * time.Second})
	defer client.Close()
	heads := map[string]string{} // generation of a stream's value
	for i := range streamKeys {
		key := fmt.Sprintf("s:%d", i)
		if b, err := w.servers.client.Get(ctx, key).Bytes(); err == nil {
			if m, err := stream.ParseManifest(b); err == nil {
				heads[key] = m.Generation
			}
		}
	}
	scan := client.Scan(ctx, 0, "*", 500).Iterator()
	for scan.Next(ctx) {
		key := scan.Val()
		w.count("keys looked at", 1)
		switch {
		case strings.HasPrefix(key, "bale:dict:"):
		case strings.HasSuffix(key, ":lock"):
			if client.PTTL(ctx, key).Val() != -2 {
				w.violate("", "left over", "a lock: "+key)
			}
		case strings.HasPrefix(key, "s:") && strings.Count(key, ":") > 1:
			head := strings.Join(strings.Split(key, ":")[:2], ":")
			generation := ""
			if parts := strings.Split(key, ":"); len(parts) > 3 { // s:1:bale:GENERATION:0
				generation = parts[3]
			}
			w.model.mu.Lock()
			doubt := w.model.at(head).doubt
			w.model.mu.Unlock()
			switch {
			case generation == heads[head] || strings.HasSuffix(key, ":alive") || client.PTTL(ctx, key).Val() != -1:
			case doubt != "": // the servers lost what named it; no later rest is to find it
				w.count("left over after a loss", 1)
				client.Del(ctx, key)
			default:
				w.violate(head, "left over", "a chunk of no value, without an expiry: "+key)
			}
		default:
			name := key
			w.model.mu.Lock()
			_, known := w.model.registers[name]
			w.model.mu.Unlock()
			if !known && !strings.HasPrefix(key, "l:") && !strings.HasPrefix(key, "nl:") && !strings.HasPrefix(key, "hh:") {
				w.violate("", "left over", "a key that nobody wrote: "+key)
			}
		}
	}
	if err := scan.Err(); err != nil {
		w.logf("scan: %v", err)
	}
}
