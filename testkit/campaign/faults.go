package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
)

// fault is a kind of fault. Its parameters are drawn when it begins, from a source of its own.
type fault struct {
	name   string
	on     string // servers that it is for: s(ingle), c(luster), e (sentinel), r(egistry apart)
	lossy  bool   // the server may lose what it acknowledged
	weight int
	do     func(w *walk, ctx context.Context, r *rand.Rand)
}

// faults are all kinds but those of the tools (tool-kill, tool-stop), which are in their plans, and
// of the proxy (proxy-kill), which has a loop of its own.
//
// Clock jumps are not among them: the machine's clock is everybody's, and there is no library to
// give one process another clock.
var faults = []fault{
	{"worker-kill", "sce", false, 4, (*walk).killWorker},
	{"worker-stop", "sce", false, 5, (*walk).stopWorker},
	{"server-stop", "sce", false, 3, (*walk).stopServer},
	{"client-kill", "sce", false, 3, (*walk).killClients},
	{"output-limit", "sce", false, 1, (*walk).limitOutput},
	{"acl", "sce", false, 4, (*walk).changeACL},
	{"slow-link", "sce", false, 2, (*walk).slowLink},
	{"cut-link", "sce", false, 3, (*walk).cutLink},
	{"noeviction", "s", false, 1, (*walk).refuseMemory},
	{"slots", "c", false, 8, (*walk).moveSlots},
	{"failover", "c", false, 3, (*walk).failOver},
	{"registry-stop", "r", false, 3, (*walk).stopRegistry},
	{"registry-empty", "r", true, 2, (*walk).emptyRegistry},
	{"flush", "sce", true, 1, (*walk).flush},
	{"restart-empty", "s", true, 1, (*walk).restartEmpty},
	{"restart-rdb", "s", true, 2, (*walk).restartRDB},
	{"volatile-lru", "sce", true, 1, func(w *walk, ctx context.Context, r *rand.Rand) { w.evict(ctx, r, "volatile-lru") }},
	{"allkeys-lru", "sce", true, 2, func(w *walk, ctx context.Context, r *rand.Rand) { w.evict(ctx, r, "allkeys-lru") }},
	{"failover-kill", "ce", true, 3, (*walk).killMaster},
	{"failover-stop", "ce", true, 2, (*walk).stopMaster},
}

// faultLoop makes one fault after another until the context ends.
func (w *walk) faultLoop(ctx context.Context, r *rand.Rand) {
	var possible []fault
	total := 0
	for _, f := range faults {
		if w.concerns(f.on) && (!f.lossy || w.lossy) && w.c.faultsOn[f.name] {
			possible = append(possible, f)
			total += f.weight
		}
	}
	if len(possible) == 0 {
		return
	}
	for {
		n, i := r.IntN(total), 0
		for n >= possible[i].weight {
			n -= possible[i].weight
			i++
		}
		own := rand.New(rand.NewPCG(r.Uint64(), 1))
		if !sleep(ctx, time.Duration(r.Float64()*float64(w.c.pause))) {
			return
		}
		w.count("fault "+possible[i].name, 1)
		if name := possible[i].name; name == "acl" || possible[i].on == "r" { // of tools and dictionaries
			possible[i].do(w, ctx, own)
			continue
		}
		end := w.trouble.begin(w.now())
		possible[i].do(w, ctx, own)
		end(w.now())
	}
}

// concerns reports whether the walk's servers are among those of a fault or story.
func (w *walk) concerns(on string) bool {
	return w.apart && on == "r" || strings.Contains(on, map[string]string{"single": "s", "cluster": "c", "sentinel": "e"}[w.kind])
}

func (w *walk) killWorker(ctx context.Context, r *rand.Rand) {
	i := 1 + r.IntN(len(w.workers)-1) // the first one keeps the dictionaries
	config := w.planWorker(r, i)
	delay, before := time.Duration(r.IntN(40))*time.Millisecond, time.Duration(r.IntN(1200))*time.Millisecond
	if r.IntN(2) == 0 { // between two steps that are far apart
		for _, p := range w.servers.proxies {
			p.delay.Store(int64(delay))
		}
		sleep(ctx, before)
		w.event("after %v of slow links, %v:", before, delay)
	}
	w.event("kill -9 worker %d", i)
	w.workers[i].load().kill()
	for _, p := range w.servers.proxies {
		p.delay.Store(0)
	}
	sleep(ctx, time.Duration(r.IntN(500))*time.Millisecond)
	w.startWorker(ctx, i, config)
}

func (w *walk) stopWorker(ctx context.Context, r *rand.Rand) {
	i := r.IntN(len(w.workers))
	d := time.Duration(r.Float64() * 9 * float64(w.c.grace))
	w.event("stop worker %d for %v", i, d)
	p := w.workers[i].load()
	p.process.signal(syscall.SIGSTOP)
	sleep(ctx, d)
	p.process.signal(syscall.SIGCONT)
	w.event("worker %d goes on", i)
}

func (w *walk) pick(r *rand.Rand) *redisproc.Server { return w.servers.all[r.IntN(len(w.servers.all))] }

// stopServer stops one for less than it takes to be replaced.
func (w *walk) stopServer(ctx context.Context, r *rand.Rand) {
	server := w.pick(r)
	d := time.Duration(50+r.IntN(650)) * time.Millisecond
	w.event("stop server %s for %v", server.Addr(), d)
	end := w.stops.begin(w.now())
	_ = syscall.Kill(server.PID(), syscall.SIGSTOP)
	sleep(ctx, d)
	_ = syscall.Kill(server.PID(), syscall.SIGCONT)
	end(w.now())
}

func (w *walk) stopRegistry(ctx context.Context, r *rand.Rand) {
	d := time.Duration(r.Float64() * 9 * float64(w.c.grace))
	w.event("stop the registry for %v", d)
	_ = syscall.Kill(w.servers.registry.PID(), syscall.SIGSTOP)
	sleep(ctx, d)
	_ = syscall.Kill(w.servers.registry.PID(), syscall.SIGCONT)
}

// emptyRegistry takes all dictionaries. Programs put back the current and previous ones of their
// groups; what needs another one may be lost.
func (w *walk) emptyRegistry(ctx context.Context, r *rand.Rand) {
	client := redis.NewClient(&redis.Options{Addr: w.servers.registry.Addr()})
	defer client.Close()
	registry, err := dict.NewRegistry(goredis.NewStore(client), dict.RegistryOptions{})
	if err != nil {
		w.violate("", "campaign", err.Error())
		return
	}
	// Those that are current or previous for ten polls: every program holds them.
	held := w.inUse(ctx, registry)
	if !sleep(ctx, 5*w.c.grace) {
		return
	}
	still := w.inUse(ctx, registry)
	held = slices.DeleteFunc(held, func(id frame.DictionaryID) bool { return !slices.Contains(still, id) })
	ctx = context.WithoutCancel(ctx)
	keys, err := client.Keys(ctx, dict.DefaultPrefix+"*").Result()
	if err != nil {
		w.event("the registry does not say what it has: %v", err)
		return
	}
	w.event("restart the registry empty; programs hold %v", held)
	lost := strings.Join(keys, " ")
	for _, id := range held {
		lost = strings.ReplaceAll(lost, id.String(), "")
	}
	w.mu.Lock()
	w.lost += " " + lost
	w.mu.Unlock()
	if err := w.servers.registry.Restart(ctx); err != nil {
		w.event("restart of the registry: %v", err)
		return
	}
	for deadline := time.Now().Add(15 * time.Second); len(held) > 0; time.Sleep(20 * time.Millisecond) {
		held = slices.DeleteFunc(held, func(id frame.DictionaryID) bool { return client.Exists(ctx, registry.DataKey(id)).Val() == 1 })
		if len(held) > 0 && time.Now().After(deadline) {
			w.violate("", "registry not restored", fmt.Sprintf("programs held the current and previous dictionaries, and did not put back %v", held))
			return
		}
	}
	w.event("the dictionaries are in the registry again")
}

// inUse are the current and previous dictionaries of the groups that programs follow.
func (w *walk) inUse(ctx context.Context, registry *dict.Registry) (ids []frame.DictionaryID) {
	for _, group := range []string{groupStrings, groupCaches} {
		s, err := registry.State(ctx, group)
		if err != nil {
			w.event("the registry does not answer: %v", err)
			continue
		}
		for _, id := range []frame.DictionaryID{s.Current, s.Previous} {
			if id != 0 && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

func (w *walk) killClients(ctx context.Context, r *rand.Rand) {
	kind := []string{"normal", "pubsub"}[r.IntN(2)]
	w.event("CLIENT KILL TYPE %s", kind)
	w.servers.each(ctx, "CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
}

func (w *walk) limitOutput(ctx context.Context, r *rand.Rand) {
	w.event("client-output-buffer-limit")
	w.servers.each(ctx, "CONFIG", "SET", "client-output-buffer-limit", "normal 20000 10000 1 pubsub 1000 500 1")
	sleep(ctx, time.Second)
	w.servers.each(ctx, "CONFIG", "SET", "client-output-buffer-limit", "normal 0 0 0 pubsub 33554432 8388608 60")
}

// changeACL takes rights on keys from the tools for a while.
func (w *walk) changeACL(ctx context.Context, r *rand.Rand) {
	rules := [][]string{
		{"resetkeys", "~bale:dict:*", "~c:*"}, {"resetkeys", "~bale:dict:*", "~h:*", "~l:*"}, {"resetkeys", "~bale:dict:*"},
		{"resetkeys", "~bale:dict:*", "~x:{1*"}, {"resetkeys", "%R~*", "~bale:dict:*"}, {"-get"}, {"-getrange"}, {"-@hash"},
	}[r.IntN(8)]
	w.event("ACL of the tools: %v", rules)
	w.servers.each(ctx, append([]string{"ACL", "SETUSER", toolUser}, rules...)...)
	sleep(ctx, time.Duration(r.IntN(4000))*time.Millisecond)
	w.servers.each(ctx, "ACL", "SETUSER", toolUser, "resetkeys", "~*", "&*", "+@all")
	w.event("ACL of the tools: all")
}

func (w *walk) slowLink(ctx context.Context, r *rand.Rand) {
	addrs := w.servers.addresses()
	p := w.servers.proxies[addrs[r.IntN(len(addrs))]]
	d := time.Duration(1+r.IntN(80)) * time.Millisecond
	w.event("slow link to %s: %v", p.target, d)
	p.delay.Store(int64(d))
	sleep(ctx, time.Duration(r.IntN(2000))*time.Millisecond)
	p.delay.Store(0)
}

func (w *walk) cutLink(ctx context.Context, r *rand.Rand) {
	addrs := w.servers.addresses()
	p := w.servers.proxies[addrs[r.IntN(len(addrs))]]
	w.event("cut links to %s", p.target)
	p.cut()
}

// refuseMemory makes a server refuse writes.
func (w *walk) refuseMemory(ctx context.Context, r *rand.Rand) {
	w.event("maxmemory with noeviction")
	w.servers.each(ctx, "CONFIG", "SET", "maxmemory", "1mb")
	sleep(ctx, time.Duration(r.IntN(1500))*time.Millisecond)
	w.servers.each(ctx, "CONFIG", "SET", "maxmemory", "0")
}

// evict lets servers evict for a while, as much as they have and a little less.
func (w *walk) evict(ctx context.Context, r *rand.Rand, policy string) {
	part := 0.6 + 0.4*r.Float64()
	length := time.Duration(float64(w.c.grace) * (1 + 6*r.Float64()))
	w.event("maxmemory %.0f%% with %s for %v", 100*part, policy, length)
	loss := w.model.lose(policy, policy == "volatile-lru", w.now())
	for _, server := range w.servers.all {
		info, err := server.Do(ctx, "INFO", "memory")
		_, used, _ := strings.Cut(info, "used_memory:")
		used, _, _ = strings.Cut(used, "\r")
		n, _ := strconv.ParseFloat(used, 64)
		if err == nil && n > 0 {
			_, _ = server.Do(ctx, "CONFIG", "SET", "maxmemory-samples", "10")
			_, _ = server.Do(ctx, "CONFIG", "SET", "maxmemory-policy", policy)
			// The server itself takes the first 1.5 MB.
			_, _ = server.Do(context.WithoutCancel(ctx), "CONFIG", "SET", "maxmemory", strconv.Itoa(int(1.5e6+part*max(0, n-1.5e6))))
		}
	}
	sleep(ctx, length)
	w.servers.each(ctx, "CONFIG", "SET", "maxmemory", "0")
	w.servers.each(ctx, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	w.model.lostUntil(loss, w.now())
	w.event("maxmemory 0")
}

func (w *walk) flush(ctx context.Context, r *rand.Rand) {
	masters := w.servers.masters(ctx)
	if len(masters) == 0 {
		return
	}
	server := masters[r.IntN(len(masters))]
	w.event("FLUSHALL %s", server.Addr())
	loss := w.model.lose("FLUSHALL", false, w.now())
	ctx2, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, _ = server.Do(ctx2, "FLUSHALL")
	w.model.lostUntil(loss, w.now())
	w.orphaned = true
}

func (w *walk) restartEmpty(ctx context.Context, r *rand.Rand) {
	server := w.servers.all[0]
	w.event("restart empty %s", server.Addr())
	loss := w.model.lose("restart empty", false, w.now())
	if err := w.servers.restart(context.WithoutCancel(ctx), server, true); err != nil {
		w.event("restart: %v", err)
	}
	_ = w.servers.heal(context.WithoutCancel(ctx))
	w.model.lostUntil(loss, w.now())
	w.orphaned = true
}

func (w *walk) restartRDB(ctx context.Context, r *rand.Rand) {
	server := w.servers.all[0]
	since := w.now()
	if _, err := server.Do(ctx, "SAVE"); err != nil {
		w.event("SAVE: %v", err)
		return
	}
	w.event("SAVE, and restart in a moment")
	sleep(ctx, time.Duration(r.IntN(3000))*time.Millisecond)
	w.model.revert("restart from RDB", since, w.now())
	if err := w.servers.restart(context.WithoutCancel(ctx), server, false); err != nil {
		w.event("restart: %v", err)
	}
	_ = w.servers.heal(context.WithoutCancel(ctx))
	w.model.reverted()
	w.event("it is there again, as of %s", stamp(since))
	w.orphaned = true
}

// failOver makes a replica the master, without a loss.
func (w *walk) failOver(ctx context.Context, r *rand.Rand) {
	var replicas []*redisproc.Server
	masters := w.servers.masters(ctx)
	for _, s := range w.servers.all {
		if !slices.Contains(masters, s) {
			replicas = append(replicas, s)
		}
	}
	if len(replicas) == 0 {
		return
	}
	s := replicas[r.IntN(len(replicas))]
	w.failedOver = true
	reply, err := s.Do(ctx, "CLUSTER", "FAILOVER")
	w.event("CLUSTER FAILOVER of %s: %s %v", s.Addr(), reply, err)
}

// lag is how far a replica can be behind its master while both run.
const lag = 3 * time.Second

// killMaster kills a master and starts it again when another one has taken its place.
func (w *walk) killMaster(ctx context.Context, r *rand.Rand) {
	w.loseMaster(ctx, r, "kill", func(s *redisproc.Server) { _ = syscall.Kill(s.PID(), syscall.SIGKILL) })
}

func (w *walk) stopMaster(ctx context.Context, r *rand.Rand) {
	w.loseMaster(ctx, r, "stop", func(s *redisproc.Server) { _ = syscall.Kill(s.PID(), syscall.SIGSTOP) })
}

func (w *walk) loseMaster(ctx context.Context, r *rand.Rand, how string, do func(*redisproc.Server)) {
	masters := w.servers.masters(ctx)
	if len(masters) == 0 {
		return
	}
	ctx = context.WithoutCancel(ctx) // the next rest waits for the end of it
	s := masters[r.IntN(len(masters))]
	since := w.now() - lag
	w.event("%s master %s", how, s.Addr())
	before, endLoss := 0, func() {}
	if w.kind == "sentinel" {
		before = w.servers.lasting(ctx)
		loss := w.model.lose("fail-over", false, w.now())
		endLoss = func() { w.endLoss(ctx, loss, before) }
	}
	w.model.revert("fail-over", since, w.now())
	w.failedOver = true
	do(s)
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		now := w.servers.masters(ctx)
		if len(now) > 0 && len(now) >= len(masters) && !slices.Contains(now, s) {
			break
		}
	}
	sleep(ctx, time.Duration(r.IntN(1000))*time.Millisecond)
	_ = w.servers.heal(ctx)
	w.model.reverted()
	endLoss()
	w.orphaned = true
	w.event("the servers are well again, masters %v", func() (a []string) {
		for _, m := range w.servers.masters(ctx) {
			a = append(a, m.Addr())
		}
		return a
	}())
}

// endLoss ends the time in which a fail-over may have lost all keys: a sentinel may promote a
// replica that has only begun to get them.
func (w *walk) endLoss(ctx context.Context, loss *write, before int) {
	after := w.servers.lasting(ctx)
	if before >= 0 && after >= before*9/10 {
		w.model.notLost(loss)
		return
	}
	w.event("the servers lost the keys: %d of %d that never expire are left", after, before)
	w.count("fail-overs that lost the keys", 1)
	w.model.lostUntil(loss, w.now())
}

// moveSlots moves the slots of some keys in use, or of the registry's, to another master.
func (w *walk) moveSlots(ctx context.Context, r *rand.Rand) {
	masters := w.servers.masters(ctx)
	if len(masters) < 2 {
		return
	}
	keys := []string{"bale:dict:groups", "bale:dict:group:" + groupStrings, "bale:dict:group:" + groupCaches, "x:{" + strconv.Itoa(r.IntN(w.c.coldKeys/coldTag)) + "}", "h:{" + strconv.Itoa(r.IntN(hookTags)) + "}"}
	n := 1 + r.IntN(6)
	w.event("move slots")
	for range n {
		var slot int64
		if r.IntN(2) == 0 {
			slot = r.Int64N(16384)
		} else {
			key := keys[r.IntN(len(keys))]
			reply, err := masters[0].Do(ctx, "CLUSTER", "KEYSLOT", key)
			if err != nil {
				return
			}
			slot, _ = strconv.ParseInt(reply, 10, 64)
		}
		to := masters[r.IntN(len(masters))]
		if err := w.moveSlot(ctx, masters, int(slot), to, time.Duration(r.IntN(200))*time.Millisecond); err != nil {
			w.event("slot %d: %v", slot, err)
		}
	}
}

// moveKey moves the slot of a key to another master.
func (w *walk) moveKey(ctx context.Context, r *rand.Rand, key string) {
	masters := w.servers.masters(ctx)
	if len(masters) < 2 {
		return
	}
	reply, err := masters[0].Do(ctx, "CLUSTER", "KEYSLOT", key)
	slot, _ := strconv.Atoi(reply)
	if err == nil {
		err = w.moveSlot(ctx, masters, slot, masters[r.IntN(len(masters))], 0)
	}
	if err != nil {
		w.event("slot of %s: %v", key, err)
	}
}

func (w *walk) moveSlot(ctx context.Context, masters []*redisproc.Server, slot int, to *redisproc.Server, open time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second) // a slot is not left between two
	defer cancel()
	trouble := w.trouble.begin(w.now())
	defer func() { trouble(w.now()) }()
	number := strconv.Itoa(slot)
	ids := map[*redisproc.Server]string{}
	var from *redisproc.Server
	for _, m := range masters {
		id, err := m.Do(ctx, "CLUSTER", "MYID")
		if err != nil {
			return err
		}
		ids[m] = id
		client := redis.NewClient(&redis.Options{Addr: m.Addr()})
		slots, err := client.ClusterSlots(ctx).Result()
		client.Close()
		if err != nil {
			return err
		}
		for _, s := range slots {
			if slot >= s.Start && slot <= s.End && len(s.Nodes) > 0 && s.Nodes[0].Addr == m.Addr() {
				from = m
			}
		}
	}
	if from == nil || from == to {
		return nil
	}
	host, port, _ := strings.Cut(to.Addr(), ":")
	steps := func(s *redisproc.Server, args ...string) error {
		_, err := s.Do(ctx, args...)
		return err
	}
	if err := steps(to, "CLUSTER", "SETSLOT", number, "IMPORTING", ids[from]); err != nil {
		return err
	}
	if err := steps(from, "CLUSTER", "SETSLOT", number, "MIGRATING", ids[to]); err != nil {
		return err
	}
	for {
		keys, err := from.Do(ctx, "CLUSTER", "GETKEYSINSLOT", number, "5")
		if err != nil {
			return err
		}
		if keys == "" {
			break
		}
		moved, start := strings.Split(keys, "\n"), w.now()
		reply, err := from.Do(ctx, append([]string{"MIGRATE", host, port, "", "0", "5000", "KEYS"}, moved...)...)
		// It sends what is left to live, which begins again where it arrives. After an error some
		// may have arrived, unless it did not connect.
		if reply != "NOKEY" && (err == nil || !strings.Contains(err.Error(), "connecting to")) {
			w.model.delay(moved, w.now()-start)
		}
		if err != nil {
			return fmt.Errorf("MIGRATE: %w", err)
		}
		time.Sleep(open / 4)
	}
	time.Sleep(open)
	for _, m := range append([]*redisproc.Server{to, from}, masters...) {
		if err := steps(m, "CLUSTER", "SETSLOT", number, "NODE", ids[to]); err != nil {
			return err
		}
	}
	w.count("slots moved", 1)
	return nil
}
