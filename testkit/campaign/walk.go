package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The keys of a walk. A part in braces is a hash tag: keys that have it in common are on one server
// of a cluster.
const (
	styles      = 3
	hookTags    = 20 // h:{TAG}:NUMBER, hh:{TAG}:NUMBER
	hookPerTag  = 8
	hashFields  = 5
	cachePer    = 25  // c:CODEC:NUMBER
	loadKeys    = 40  // l:NUMBER
	nearKeys    = 40  // n:NUMBER
	nearLoads   = 20  // nl:NUMBER
	batchKeys   = 40  // b:NUMBER
	streamKeys  = 5   // s:NUMBER
	archiveKeys = 300 // y:{TAG}:NUMBER, which tools alone use between two rests
	coldTag     = 20  // x:{TAG}:NUMBER
	inFlight    = 64  // operations of a worker
	mostOrphans = 50
)

// fleetWorker is a worker as the driver sees it.
type fleetWorker struct {
	config  workerConfig
	process *process
	in      io.WriteCloser

	mu      sync.Mutex
	pending map[int64]func(reply, instant) // what is to be done with the reply
	flying  atomic.Int64
}

func (f *fleetWorker) kill() { f.process.kill() }

// walk is the life of one set of servers.
type walk struct {
	c       *campaign
	seed    uint64
	kind    string
	lossy   bool // servers may lose what they acknowledged
	apart   bool // the registry of dictionaries has a server of its own
	folder  string
	servers *servers
	model   *model
	loads   *loads
	workers []*slot
	stops   stops
	trouble *stops // faults that can make a load fail, and operations that took long
	next    int64  // number of the next write
	ids     atomic.Int64
	*dictionaries
	orphaned   bool   // a server lost a part of what there was since the last rest
	lost       string // keys of dictionaries that the registry lost since then, and no program was sure to hold
	failedOver bool   // a fail-over was made since the last rest

	mu         sync.Mutex
	events     []string
	violations []violation
	held       []violation    // those that a fail-over would explain, until the next rest shows whether there was one
	said       map[string]int // violations by class
	counts     map[string]int64
}

// slot holds the worker of a number, which changes when it is killed.
type slot struct {
	mu sync.Mutex
	w  *fleetWorker
}

func (s *slot) load() *fleetWorker { s.mu.Lock(); defer s.mu.Unlock(); return s.w }

// stops are times in which something stood still. What was sent to a server that was stopped may be
// executed twice.
type stops struct {
	mu    sync.Mutex
	times []*[2]instant
}

// begin begins such a time; end ends it.
func (s *stops) begin(now instant) (end func(instant)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &[2]instant{now, never}
	s.times = append(s.times, t)
	return func(now instant) {
		s.mu.Lock()
		defer s.mu.Unlock()
		t[1] = now
	}
}

func (s *stops) overlap(start, end instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.times) - 1; i >= 0 && i > len(s.times)-1000; i-- {
		if t := s.times[i]; start <= t[1] && end >= t[0] {
			return true
		}
	}
	return false
}

// violation is a broken promise.
type violation struct {
	Seed    uint64   `json:"seed"`
	Flags   string   `json:"flags"` // with which the walk can be made again, beside its seed
	At      float64  `json:"at"`    // seconds since the walk began
	Key     string   `json:"key,omitempty"`
	Class   string   `json:"class"`
	What    string   `json:"what"`
	History []string `json:"history,omitempty"` // of the key
	Around  []string `json:"around,omitempty"`  // faults and tools
}

func (w *walk) now() instant { return time.Since(w.c.start) }

func (w *walk) count(what string, n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what] += n
}

func (w *walk) counted(what string) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts[what]
}

// event notes a fault or a tool.
func (w *walk) event(format string, args ...any) {
	line := stamp(w.now()) + " " + fmt.Sprintf(format, args...)
	w.mu.Lock()
	w.events = append(w.events, line)
	w.mu.Unlock()
	w.c.log("%s", line)
}

func (w *walk) logf(format string, args ...any) {
	w.c.log("%s %s", stamp(w.now()), fmt.Sprintf(format, args...))
}

// violate reports a violation. Only the first few of each class are shown in full.
func (w *walk) violate(key, class, what string) {
	v := violation{Seed: w.seed, Flags: w.flags(), At: (w.now() - w.begun()).Seconds(), Key: key, Class: class, What: what}
	if strings.HasPrefix(key, "l:") || strings.HasPrefix(key, "nl:") {
		v.History = w.loads.history(key)
	} else if key != "" {
		w.model.mu.Lock()
		v.History = slices.Clone(w.model.at(key).history)
		w.model.at(key).broken = true
		w.model.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	v.Around = slices.Clone(w.events[max(0, len(w.events)-60):])
	if class == "lost" || class == "stale" || class == "expiry" {
		w.held = append(w.held, v)
		return
	}
	w.report(v)
}

// report counts a violation, and keeps it if it is one of the first of its class; mu is locked.
func (w *walk) report(v violation) {
	w.said[v.Class]++
	w.counts["violations"]++
	if w.said[v.Class] <= 3 {
		w.violations = append(w.violations, v)
		w.c.log("VIOLATION %s %q: %s", v.Class, v.Key, v.What)
	}
}

// release reports the held violations, unless an unplanned fail-over explains them: a busy machine
// may stand still for long enough to cause one.
func (w *walk) release(explained bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range w.held {
		if explained {
			w.counts["explained by an unplanned fail-over"]++
		} else {
			w.report(v)
		}
	}
	w.held = nil
}

// flags are those with which the walk can be made again, beside its seed.
func (w *walk) flags() string {
	mode, registry := "strict", "together"
	if w.lossy {
		mode = "lossy"
	}
	if w.apart {
		registry = "apart"
	}
	return fmt.Sprintf("--servers %s --mode %s --registry %s", w.kind, mode, registry)
}

func (w *walk) begun() instant { return w.c.walkStart }

// planWorker draws how a worker works.
func (w *walk) planWorker(r *rand.Rand, number int) workerConfig {
	c := workerConfig{Number: number, Servers: w.kind, Engine: []string{"go", "libzstd"}[r.IntN(2)], Algorithm: []string{"zstd", "zstd", "zstd", "s2", "lz4"}[r.IntN(5)],
		ReadOnly: r.IntN(5) == 0, Dict: r.IntN(5) > 0, Auto: r.IntN(3) == 0, GraceMS: w.c.grace.Milliseconds(), Timeout: 1000}
	c.Auto = c.Auto && c.Dict
	if number == 0 { // one that packs, and outlives the others: it keeps the dictionaries
		c.ReadOnly, c.Dict = false, true
	}
	if number == w.c.workers-1 && number > 0 && w.kind != "cluster" {
		c.Sidecar = w.c.bale
	}
	return c
}

// startWorker runs a worker in a place.
func (w *walk) startWorker(ctx context.Context, i int, config workerConfig) {
	w.servers.tell(&config)
	f, err := w.spawn(ctx, config)
	if err != nil {
		w.event("worker %d does not start: %v", i, err)
		return
	}
	s := w.workers[i]
	s.mu.Lock()
	s.w = f
	s.mu.Unlock()
	w.event("worker %d: %s %s read-only=%v dict=%v auto=%v proxy=%v", i, config.Engine, config.Algorithm, config.ReadOnly, config.Dict, config.Auto, config.Sidecar != "")
}

// spawn runs a worker, and waits until it is ready.
func (w *walk) spawn(ctx context.Context, config workerConfig) (*fleetWorker, error) {
	var last error
	for range 20 {
		b, err := json.Marshal(config)
		if err != nil {
			return nil, err
		}
		program := w.c.programs[config.Number%len(w.c.programs)]
		f := &fleetWorker{config: config, pending: map[int64]func(reply, instant){}}
		var out io.ReadCloser
		f.process, f.in, out, err = run(program, nil, []string{workerEnv + "=" + string(b)}, true)
		if err != nil {
			return nil, err
		}
		ready := make(chan bool, 1)
		go w.listen(f, out, ready)
		select {
		case <-ready:
			return f, nil
		case <-f.process.done: // the servers may be down
			last = fmt.Errorf("%s", lastLine(f.process.tail.String()))
			w.panicked("worker", f.process.tail.String())
		case <-time.After(20 * time.Second):
			last = fmt.Errorf("not ready after 20 s")
			f.process.kill()
		}
		if !sleep(ctx, 200*time.Millisecond) && ctx.Err() != nil {
			ctx = context.WithoutCancel(ctx) // at rest it has to be there
			time.Sleep(200 * time.Millisecond)
		}
	}
	return nil, last
}

// listen takes a worker's replies until it ends.
func (w *walk) listen(f *fleetWorker, out io.ReadCloser, ready chan<- bool) {
	defer out.Close()
	in := bufio.NewReaderSize(out, 1<<16)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			break
		}
		now := w.now()
		var r reply
		if err := json.Unmarshal(line, &r); err != nil {
			w.logf("worker %d says %q", f.config.Number, line)
			continue
		}
		if r.Note == "ready" {
			ready <- true
			continue
		}
		f.mu.Lock()
		do := f.pending[r.ID]
		delete(f.pending, r.ID)
		f.mu.Unlock()
		if do != nil {
			do(r, now)
			f.flying.Add(-1)
		}
	}
	<-f.process.done
	f.mu.Lock() // nothing more comes
	lost := f.pending
	f.pending = nil
	f.mu.Unlock()
	for _, do := range lost {
		do(reply{}, w.now())
		f.flying.Add(-1)
	}
	w.panicked(fmt.Sprintf("worker %d", f.config.Number), f.process.tail.String())
}

// send sends a request to a worker, and calls then with the reply, which is empty if the worker
// ends before. It reports whether it was sent; before is called if it will be.
func (w *walk) send(f *fleetWorker, r request, before func(), then func(reply, instant)) bool {
	if f == nil || f.process.ended() || f.flying.Load() >= inFlight {
		return false
	}
	r.ID = w.ids.Add(1)
	b, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	f.mu.Lock()
	if f.pending == nil {
		f.mu.Unlock()
		return false
	}
	before()
	f.pending[r.ID] = then
	f.flying.Add(1)
	f.mu.Unlock()
	_, _ = f.in.Write(append(b, '\n')) // one that has ended: listen clears up
	w.count("operations", 1)
	return true
}

// operation is a request with what the model has to know.
type operation struct {
	request
	names  []string // what the writes are called in the model, in their order; those of reads follow in reads
	reads  []string
	raw    bool // the keys' own names are in names
	del    bool
	tch    bool
	delay  time.Duration // how old what is read may be: near
	loader bool
}

// plan draws an operation. It depends only on the source of random numbers.
func (w *walk) plan(r *rand.Rand) operation {
	number := func(n int) []int64 {
		a := make([]int64, n)
		for i := range a {
			w.next++
			a[i] = w.next
		}
		return a
	}
	o := operation{request: request{Timeout: shortest.Milliseconds() + int64(r.IntN(2000)), Style: int(w.next/3000) % styles}}
	if r.IntN(10) == 0 {
		o.Style = r.IntN(styles)
	}
	o.Size = 60 + r.IntN(1200)
	if r.IntN(60) == 0 {
		o.Size = 20 + r.IntN(100<<10)
	}
	if r.IntN(3) == 0 {
		o.TTL = int64(200 + r.IntN(20000))
	}
	writeOne := func(kind, key string) {
		o.Kind, o.Keys, o.names, o.N = kind, []string{key}, []string{key}, number(1)
	}
	readMany := func(kind string, keys ...string) { o.Kind, o.Keys, o.reads = kind, keys, keys }
	cacheClass := func(key func(int) string, n int, delay time.Duration) {
		o.delay = delay
		keys := func() []string {
			start, a := r.IntN(n), []string{}
			for i := range 2 + r.IntN(6) {
				a = append(a, key((start+i)%n))
			}
			return a
		}
		switch k := r.IntN(20); {
		case k < 7:
			writeOne("set", key(r.IntN(n)))
		case k < 13:
			readMany("get", key(r.IntN(n)))
		case k < 15:
			readMany("getmany", keys()...)
		case k < 17:
			o.Kind, o.Keys = "setmany", keys()
			o.names, o.N = o.Keys, number(len(o.Keys))
		case k < 19:
			o.Kind, o.Keys, o.del = "delete", []string{key(r.IntN(n))}, true
			o.names, o.N = o.Keys, []int64{0}
		default:
			o.Kind, o.Keys, o.tch = "touch", []string{key(r.IntN(n))}, true
			o.names = o.Keys
		}
	}
	switch class := r.IntN(100); {
	case class < 18:
		name := []string{"json", "gob", "mp"}[r.IntN(3)]
		cacheClass(func(i int) string { return fmt.Sprintf("c:%s:%d", name, i) }, cachePer, 0)
	case class < 28:
		cacheClass(func(i int) string { return fmt.Sprintf("n:%d", i) }, nearKeys, nearMaxAge+time.Second)
	case class < 34:
		cacheClass(func(i int) string { return fmt.Sprintf("b:%d", i) }, batchKeys, 0)
	case class < 46:
		key := fmt.Sprintf("l:%d", r.IntN(loadKeys))
		if r.IntN(3) == 0 {
			key = fmt.Sprintf("nl:%d", r.IntN(nearLoads))
		}
		o.loader, o.Kind, o.Keys, o.N = true, "load", []string{key}, number(1)
		o.TTL = int64(300 + r.IntN(3000))
		o.Loader = []string{"ok", "ok", "ok", "ok", "ok", "ok", "fail", "fail", "none", "hang"}[r.IntN(10)]
	case class < 47:
		writeOne("sput", fmt.Sprintf("s:%d", r.IntN(streamKeys)))
		o.Size, o.Timeout = 1000+r.IntN(400<<10), 4000
		if r.IntN(4) == 0 {
			o.Size = 1 << 20 << r.IntN(3)
		}
	case class < 49:
		readMany("sget", fmt.Sprintf("s:%d", r.IntN(streamKeys)))
		o.Timeout = 4000
		if r.IntN(8) == 0 {
			o.Kind, o.del, o.reads = "sdelete", true, nil
			o.names, o.N = o.Keys, []int64{0}
		}
	case class < 59: // hashes
		key := fmt.Sprintf("hh:{%d}:%d", r.IntN(hookTags), r.IntN(2))
		for f := range hashFields {
			if k := r.IntN(2); k == 0 || f == 0 {
				o.Fields = append(o.Fields, fmt.Sprintf("f%d", f))
			}
		}
		o.Keys = []string{key}
		var names []string
		for _, f := range o.Fields {
			names = append(names, fieldKey(key, f))
		}
		switch k := r.IntN(10); {
		case k < 4:
			o.Kind, o.names, o.N, o.TTL = "hhset", names, number(len(names)), 0
		case k < 7:
			o.Kind, o.reads = "hhget", names
		case k < 9:
			o.Kind, o.reads = "hhmget", names
		default:
			o.Kind, o.names, o.del, o.N = "hhdel", names, true, make([]int64, len(names))
		}
	default:
		key := fmt.Sprintf("h:{%d}:%d", r.IntN(hookTags), r.IntN(hookPerTag))
		tag := func() []string {
			a := []string{}
			prefix, _, _ := strings.Cut(key, "}")
			for i := range 2 + r.IntN(4) {
				a = append(a, fmt.Sprintf("%s}:%d", prefix, (i*3+int(w.next))%hookPerTag))
			}
			slices.Sort(a)
			return slices.Compact(a)
		}
		cold := r.IntN(6) == 0
		if cold {
			key = w.coldKey(r.IntN(w.c.coldKeys))
		}
		switch k := r.IntN(40); {
		case cold && k%8 == 0: // they are plain, so that there is something to be migrated
			writeOne("hsetraw", key)
		case cold && k%8 < 5:
			readMany("hget", key)
		case cold:
			readMany("hmget", tag()...)
		case k < 8:
			writeOne("hset", key)
		case k < 10:
			writeOne("hsetraw", key)
		case k < 16:
			readMany("hget", key)
		case k < 18:
			readMany("hdo", key)
		case k < 20:
			readMany("hnode", key)
		case k < 22:
			writeOne("hgetset", key)
			o.reads, o.TTL = o.Keys, 0
		case k < 24:
			o.Kind, o.Keys, o.del = "hdelete", []string{key}, true
			o.names, o.N = o.Keys, []int64{0}
		case k < 25:
			o.Kind, o.Keys, o.tch = "htouch", []string{key}, true
			o.names, o.TTL = o.Keys, int64(300+r.IntN(20000))
		case k < 29:
			readMany("hmget", tag()...)
		case k < 32, k < 35:
			o.Kind = "hpipe"
			if k < 32 {
				o.Kind = "htx"
			}
			o.Keys = tag()
			o.names, o.N, o.reads = o.Keys[:1], number(1), o.Keys[1:]
		default:
			writeOne("hwatch", key)
			o.reads = o.Keys
		}
	}
	return o
}

func (w *walk) archiveKey(i int) string { return fmt.Sprintf("y:{%d}:%d", i/coldTag, i%coldTag) }

func (w *walk) coldKey(i int) string { return fmt.Sprintf("x:{%d}:%d", i/coldTag, i%coldTag) }

// start sends an operation, and tells the model of it and of what came.
func (w *walk) startOperation(f *fleetWorker, o operation) bool {
	var writes []*write
	var touch *expiring
	var load *loaded
	var start instant
	before := func() {
		start = w.now()
		ttl := time.Duration(o.TTL) * time.Millisecond
		what := fmt.Sprintf("worker %d %s", f.config.Number, o.Kind)
		switch {
		case o.loader:
			load = w.loads.begin(o.Keys[0], o.N[0], ttl, o.Loader, start)
		case o.tch:
			touch = w.model.touch(o.names[0], ttl, start)
		default:
			for i, name := range o.names {
				t := ttl
				if o.del {
					t = 0
				}
				writes = append(writes, w.model.begin(name, o.N[i], t, start, what))
			}
		}
	}
	return w.send(f, o.request, before, func(a reply, now instant) {
		again := now-start > 900*time.Millisecond || w.stops.overlap(start, now)
		if a.Note != "" {
			w.violate("", "campaign", a.Note)
		}
		if touch != nil && len(a.Wrote) == 1 {
			w.model.touched(o.names[0], touch, a.Wrote[0], again, now)
			return
		}
		for i, d := range a.Wrote {
			w.model.finish(o.names[i], writes[i], d, again, now)
			if !d.OK {
				w.count("writes failed", 1)
			}
		}
		for i, g := range a.Got {
			name := o.Keys[0]
			if !o.loader {
				name = o.reads[i]
			}
			w.read(f, name, o, start, now, g, a.Stale)
		}
		if load != nil {
			own := len(a.Got) == 1 && a.Got[0].State == gotValue && a.Got[0].N == o.N[0]
			w.loads.finish(load, own, now)
		} else if now-start >= shortest && !strings.HasPrefix(o.Keys[0], "s:") { // a server or the machine stood still
			w.trouble.begin(start)(now)
		}
	})
}

// read checks what was read.
func (w *walk) read(f *fleetWorker, key string, o operation, start, now instant, g got, stale bool) {
	w.count("reads", 1)
	var err error
	class := "false value"
	switch {
	case g.State == gotBad:
		err = fmt.Errorf("%s", g.Err)
		class += " by " + o.Kind
	case o.loader:
		err = w.loads.allows(key, start, now, g, stale, o.Loader)
		class = "expired"
		if strings.HasPrefix(key, "nl:") {
			class = "expired in near"
		}
	case g.State == gotError:
		w.count("reads failed: "+g.Class, 1)
		// A value that changed during the read is not damaged, and a dictionary may be out of reach
		// for a while. Other errors are violations.
		if g.Class == "codec" || g.Class == "corrupt" && !strings.HasPrefix(key, "s:") || g.Class == "algorithm" {
			err = fmt.Errorf("it cannot be read: %s", g.Err)
			class = "unreadable"
		}
	default:
		w.count("reads checked", 1)
		err = w.model.allows(key, max(0, start-o.delay), now, g)
		if err == nil {
			return
		}
		class = "stale"
		if g.State == gotNone {
			class = "lost"
		}
	}
	if err != nil {
		w.model.mu.Lock()
		broken := !o.loader && w.model.at(key).broken && g.State != gotBad
		w.model.mu.Unlock()
		if !broken {
			w.violate(key, class, fmt.Sprintf("%s by worker %d (%s, %s): %v", o.Kind, f.config.Number, f.config.Engine, f.config.Algorithm, err))
		}
	}
}

// fillCold writes the keys that are seldom used, plain.
func (w *walk) fillCold(r *rand.Rand) error {
	for i := range w.c.coldKeys + archiveKeys {
		key := w.archiveKey(i - w.c.coldKeys)
		if i < w.c.coldKeys {
			key = w.coldKey(i)
		}
		o := operation{request: request{Kind: "hsetraw", Keys: []string{key}, N: []int64{0}, Style: i % styles, Size: 100 + r.IntN(600), Timeout: 10000}}
		w.next++
		o.N[0] = w.next
		o.names = o.Keys
		if i%10 == 3 {
			o.TTL = int64(5000 + r.IntN(100000))
		}
		f := w.workers[i%len(w.workers)].load()
		for try := 0; !w.startOperation(f, o); try++ {
			if try > 20000 {
				return fmt.Errorf("the workers do not take operations")
			}
			time.Sleep(time.Millisecond)
		}
	}
	return w.drain()
}

// drain waits until no operation is under way.
func (w *walk) drain() error {
	deadline := time.Now().Add(30 * time.Second)
	for {
		flying := int64(0)
		for _, s := range w.workers {
			if f := s.load(); f != nil {
				flying += f.flying.Load()
			}
		}
		if flying == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d operations do not end", flying)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// sources are those of the parts of the walk. Each has its own, so that none depends on how far
// another is.
func (w *walk) sources() []*rand.Rand {
	s := make([]*rand.Rand, 7)
	for i := range s {
		s[i] = rand.New(rand.NewPCG(w.seed, uint64(i)))
	}
	return s
}

// run is the walk from beginning to end.
func (w *walk) run(ctx context.Context, length time.Duration) (err error) {
	if w.folder, err = os.MkdirTemp("", "bale-campaign-"); err != nil {
		return err
	}
	defer os.RemoveAll(w.folder)
	sources := w.sources()
	if w.dictionaries, err = newDictionaries(w.folder, int64(w.seed)); err != nil {
		return err
	}
	if w.servers, err = startServers(ctx, w.kind, w.lossy, w.apart); err != nil {
		return err
	}
	defer w.servers.close()
	defer func() {
		for _, s := range w.workers {
			if f := s.load(); f != nil {
				f.process.signal(syscall.SIGCONT)
				f.process.kill()
			}
		}
	}()
	for i := range w.c.workers {
		w.workers = append(w.workers, &slot{})
		w.startWorker(ctx, i, w.planWorker(sources[0], i))
		if w.workers[i].load() == nil {
			return fmt.Errorf("worker %d does not start", i)
		}
	}
	// Most values are written with a dictionary from the start.
	for _, group := range []string{groupStrings, groupCaches} {
		for _, line := range []string{"dict publish %f --group %g --grace %d", "dict activate %i --group %g --force --grace %d"} {
			if status, out := w.runTool(ctx, toolPlan{name: "setup", args: w.fill(line, group, "", 0, 0), chaos: "none"}); status != 0 {
				return fmt.Errorf("setup: %s", out)
			}
		}
	}
	if err := w.fillCold(sources[1]); err != nil {
		return err
	}
	end := time.Now().Add(length)
	for round := 0; ctx.Err() == nil && time.Now().Before(end); round++ {
		period := min(w.c.period, time.Until(end))
		masters := w.servers.mastersAddrs(ctx)
		w.failedOver = false
		w.chaos(ctx, sources, period)
		err := w.rest(ctx, sources[5])
		w.release(!w.failedOver && masters != w.servers.mastersAddrs(ctx))
		if err != nil {
			return err
		}
		w.c.log("%s round %d of seed %d (%s): %d operations, %d violations", stamp(w.now()), round, w.seed, w.flags(), w.counted("operations"), w.counted("violations"))
		if w.c.first && w.counted("violations") > 0 {
			break
		}
	}
	return nil
}

// chaos is a time with operations, tools and faults.
func (w *walk) chaos(ctx context.Context, sources []*rand.Rand, length time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var others sync.WaitGroup
	for lane := range commands {
		seed := sources[2].Uint64()
		if w.c.tools {
			others.Go(func() { w.toolLoop(ctx, rand.New(rand.NewPCG(seed, 2)), lane) })
		}
	}
	if seed := sources[2].Uint64(); w.c.stories {
		others.Go(func() { w.storyLoop(ctx, rand.New(rand.NewPCG(seed, 2))) })
	}
	if w.c.faults {
		seed := sources[3].Uint64()
		others.Go(func() { w.faultLoop(ctx, rand.New(rand.NewPCG(seed, 3))) })
	}
	if seed := sources[6].Uint64(); w.c.faults && w.c.faultsOn["proxy-kill"] {
		others.Go(func() { w.sidecarLoop(ctx, rand.New(rand.NewPCG(seed, 6))) })
	}
	r := sources[4]
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	owed := 0.0
	last := time.Now()
	for ctx.Err() == nil {
		<-ticker.C
		now := time.Now()
		owed = min(owed+now.Sub(last).Seconds()*float64(w.c.rate), float64(w.c.rate)/5)
		last = now
		for ; owed >= 1; owed-- {
			o := w.plan(r)
			i := r.IntN(len(w.workers))
			for k := range w.workers { // the next one, where that one is dead or busy
				if w.startOperation(w.workers[(i+k)%len(w.workers)].load(), o) {
					break
				}
			}
		}
	}
	others.Wait()
}
