package goredis

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Install puts the hook on a *redis.Client (a Sentinel one, too), a *redis.ClusterClient or a
// *redis.Ring. Each command then passes the hook exactly once. This includes commands on the
// clients of single nodes, such as in Watch, ForEachMaster and MasterForKey. It includes nodes that
// the client meets later. If the client has the hook already, Install does nothing. Install sends
// nothing and is safe for concurrent use, also beside SetAddrs of a Ring. Do not install on a
// client inside that client's OnNewNode function: Install would deadlock.
//
// Call Install right after you made the client. A Conn that you opened before stays without the
// hook. So does the copy that WithTimeout returns, because go-redis drops its hooks: call Install
// on the copy as well.
//
// Install looks for an installed hook with a probe, a command that never reaches a server. A hook
// that you added earlier, such as a circuit breaker, must let the probe pass. Otherwise Install
// changes nothing and returns an error; you can call it again. Each error is an [InstallError].
func (h *Hook) Install(client redis.UniversalClient) error {
	switch c := client.(type) {
	case *redis.Client:
		if duplex(c.Options().AutoPipelineOptions) {
			return &InstallError{Client: fmt.Sprintf("%T", client), Reason: sendsFirst}
		}
		if first, _ := h.add(c, whole); first == nil {
			return &InstallError{Client: fmt.Sprintf("%T", client), Reason: isBlocked}
		}
		return nil
	case *redis.ClusterClient:
		if duplex(c.Options().AutoPipelineOptions) {
			return &InstallError{Client: fmt.Sprintf("%T", client), Reason: sendsFirst}
		}
		return h.addAll(c, func(add func(*redis.Client)) string {
			if !addNodes(c, "nodes", []string{"nodes"}, add) {
				return askCluster(c, add)
			}
			return ""
		})
	case *redis.Ring:
		return h.addAll(c, func(add func(*redis.Client)) string {
			if !addNodes(c, "sharding", []string{"shards", "list"}, add) {
				return askRing(c, add)
			}
			return ""
		})
	}
	return &InstallError{Client: fmt.Sprintf("%T", client), Reason: "Install does not know this type; give it the Client, ClusterClient or Ring underneath"}
}

const (
	sendsFirst = "full-duplex auto-pipelining sends a command before the hook can change it; leave AutoPipelineOptions.FullDuplex off"
	usedBefore = "the client was used before, and a node that it met then may be without the hook; call Install right after you made the client"
	isDown     = "a node is down, and has no hook when it comes back; call Install right after you made the client"
	isBlocked  = "an earlier hook of the client stopped Install's probe; call Install before you add that hook, or when it lets commands pass"
	nodeBlocks = "an earlier hook of a node's client stopped Install's probe, so commands on that client alone may miss the hook; make a new client and call Install before you add that hook"
)

func duplex(o *redis.AutoPipelineOptions) bool { return o != nil && o.FullDuplex }

// clientOfNodes is a ClusterClient or a Ring. The type has a name because the compiler writes out
// an unnamed one, of 600 methods, in the name of each of them: the package took 165 MB.
type clientOfNodes interface {
	redis.UniversalClient
	OnNewNode(func(*redis.Client))
}

// addAll puts the hook on a client of many nodes and on the nodes' own clients. each calls add for
// the existing nodes. It returns why there may be more, or "".
func (h *Hook) addAll(client clientOfNodes, each func(add func(*redis.Client)) string) error {
	top, had := h.add(client, outer)
	if top == nil {
		return &InstallError{Client: fmt.Sprintf("%T", client), Reason: isBlocked}
	}
	if !had {
		fail := func(reason string) {
			top.failure.Store(&InstallError{Client: fmt.Sprintf("%T", client), Reason: reason, Installed: true})
		}
		add := func(node *redis.Client) {
			if first, _ := h.add(node, inner); first == nil {
				fail(nodeBlocks)
			}
		}
		client.OnNewNode(add)
		if reason := each(add); reason != "" {
			fail(reason)
		}
	}
	if err := top.failure.Load(); err != nil {
		return err
	}
	return nil
}

// addNodes calls add for the clients of all nodes that a ClusterClient or a Ring holds. Their
// methods leave out a cluster's seeds and a ring's shards that are down, so it reads go-redis' own
// fields, under go-redis' own lock. It reports false if the fields have changed.
func addNodes(client any, holder string, path []string, add func(*redis.Client)) (ok bool) {
	var found []*redis.Client
	ok = func() (ok bool) {
		defer func() { ok = recover() == nil && ok }() // reflect panics for what is not there
		at := reflect.ValueOf(client).Elem().FieldByName(holder).Elem()
		if _, ring := client.(*redis.Ring); ring {
			// A SetAddrs that began before the caller's OnNewNode publishes its shards later:
			// addNodes waits for it.
			mu := at.FieldByName("setAddrsMu")
			if mu.Type() != reflect.TypeFor[sync.Mutex]() {
				return false
			}
			lock := (*sync.Mutex)(mu.Addr().UnsafePointer())
			lock.Lock()
			defer lock.Unlock()
		}
		mu := at.FieldByName("mu")
		if mu.Type() != reflect.TypeFor[sync.RWMutex]() {
			return false
		}
		lock := (*sync.RWMutex)(mu.Addr().UnsafePointer())
		lock.RLock()
		defer lock.RUnlock()
		for _, name := range path {
			if at = at.FieldByName(name); at.Kind() == reflect.Pointer {
				at = at.Elem()
			}
		}
		for _, node := range at.Seq2() {
			c := node.Elem().FieldByName("Client")
			if c.Type() != reflect.TypeFor[*redis.Client]() {
				return false
			}
			found = append(found, (*redis.Client)(c.UnsafePointer()))
		}
		return true
	}()
	if ok {
		for _, c := range found {
			add(c)
		}
	}
	return ok
}

// askCluster calls add for the nodes that a ClusterClient tells.
func askCluster(c *redis.ClusterClient, add func(*redis.Client)) string {
	// The context has ended, so that the client sends nothing. It goes through the nodes of the
	// slots that it knows. If it knows none, it makes clients of its seeds and fails. A seed that
	// it does not make was there.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var made atomic.Int32
	c.OnNewNode(func(*redis.Client) { made.Add(1) })
	known := c.ForEachShard(ctx, func(_ context.Context, node *redis.Client) error { add(node); return nil }) == nil
	if o := c.Options(); known || o.ClusterSlots == nil && int(made.Load()) < len(o.Addrs) {
		return usedBefore
	}
	return ""
}

// askRing calls add for the shards that a Ring tells.
func askRing(c *redis.Ring, add func(*redis.Client)) string {
	var shards atomic.Int32
	_ = c.ForEachShard(context.Background(), func(_ context.Context, node *redis.Client) error { add(node); shards.Add(1); return nil })
	if int(shards.Load()) < len(c.Options().Addrs) {
		return isDown
	}
	return ""
}

// level is what an installed hook does.
type level int32

const (
	passing level = iota // nothing: another one does it
	whole                // everything, on a client of one server
	outer                // everything, on a client of many nodes
	inner                // on the client of a node, everything that did not pass an outer one
)

// installed is a hook on one client.
type installed struct {
	hook    *Hook
	level   atomic.Int32
	failure atomic.Pointer[InstallError] // of an outer one
}

var _ redis.Hook = (*installed)(nil)

// add puts the hook on one client. The first copy in the client's chain does the work. add returns
// it, and reports whether it worked before. It returns nil if another hook stopped the probe: a
// copy may be behind that one.
func (h *Hook) add(client interface {
	AddHook(redis.Hook)
	Process(context.Context, redis.Cmder) error
}, l level) (first *installed, had bool) {
	added := &installed{hook: h}
	client.AddHook(added)
	// No lock is needed: of two that are added at once, the probes of both find the first.
	p := &probe{StatusCmd: redis.NewStatusCmd(context.Background(), "ping"), to: added}
	_ = client.Process(context.Background(), p)
	if p.first == nil {
		return nil, false
	}
	had = !p.first.level.CompareAndSwap(int32(passing), int32(l))
	if l == inner {
		p.first.level.Store(int32(inner)) // it may have been added to the node alone
	}
	return p.first, had
}

// probe is a command that looks for the first hook on a client. It goes no further than the added
// one.
type probe struct {
	*redis.StatusCmd
	to, first *installed
}

// DialHook implements [redis.Hook].
func (i *installed) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (i *installed) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	if sentAlready(next) {
		return i.refuse
	}
	tx := new(transaction) // go-redis calls ProcessHook for each Conn and Tx
	return func(ctx context.Context, cmd redis.Cmder) error {
		if p, ok := cmd.(*probe); ok && p.to.hook == i.hook {
			if p.first == nil {
				p.first = i
			}
			if p.to == i {
				return nil
			}
			return next(ctx, cmd)
		}
		l := level(i.level.Load())
		if l == passing || l == inner && i.hook.passed(ctx, cmd) {
			return next(ctx, cmd)
		}
		return i.hook.process(ctx, cmd, l == outer, tx, next)
	}
}

// ProcessPipelineHook implements [redis.Hook], for transactions too.
func (i *installed) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		l := level(i.level.Load())
		if l == passing || l == inner && i.hook.passed(ctx, cmds...) {
			return next(ctx, cmds)
		}
		return i.hook.processPipeline(ctx, cmds, l == outer, next)
	}
}

// sentAlready reports whether go-redis has sent the command before it calls the hook: full-duplex
// auto-pipelining that was switched on after Install. Only the function's name shows it, and only
// if no hook was added after this one.
func sentAlready(next redis.ProcessHook) bool {
	f := runtime.FuncForPC(reflect.ValueOf(next).Pointer())
	return f != nil && strings.Contains(f.Name(), ".(*fdEngine).hostHook")
}

// refuse fails the commands that the hook deals with. They are in flight, so it cannot hold them
// back.
func (i *installed) refuse(_ context.Context, cmd redis.Cmder) error {
	if spec, name := lookup(cmd.Args()); spec != nil && level(i.level.Load()) != passing {
		err := &CommandError{Command: name, Reason: sendsFirst}
		if keys, _ := spec.Spans(cmd.Args()); keys.First <= keys.Last {
			err.Key = text(cmd.Args()[keys.First])
		}
		return err
	}
	return nil // go-redis waits for the reply
}

// underway says in a context which commands have passed the outer hook.
type underway struct {
	context.Context
	hook *Hook
	cmd  redis.Cmder   // one command,
	cmds []redis.Cmder // or a pipeline
}

// Value gives the outer hook's mark to the inner one, whose key is the hook.
func (u *underway) Value(key any) any {
	if key == any(u.hook) {
		return u
	}
	return u.Context.Value(key)
}

// passed reports whether commands have passed the outer hook. Other commands may have the same
// context: those of OnConnect, for example.
func (h *Hook) passed(ctx context.Context, cmds ...redis.Cmder) bool {
	u, ok := ctx.Value(h).(*underway)
	return ok && slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool {
		if u.cmd == nil {
			return slices.ContainsFunc(u.cmds, func(c redis.Cmder) bool { return sameArgs(c, cmd) })
		}
		return sameArgs(u.cmd, cmd) || splits[cmd.Name()] && cmd.Name() == u.cmd.Name()
	})
}

// splits are the commands that a ClusterClient may split by slot, each part with arguments of its
// own.
var splits = map[string]bool{"mget": true, "mset": true, "msetnx": true, "msetex": true}

// sameArgs reports whether two commands are one: its wrapper may be another.
func sameArgs(a, b redis.Cmder) bool {
	x, y := a.Args(), b.Args()
	return len(x) > 0 && len(y) > 0 && &x[0] == &y[0]
}
