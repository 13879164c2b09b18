package goredis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/internal/redisproc"
	"github.com/balekv/bale/stats"
)

// runner runs commands, or queues them: every type of go-redis that a program sends commands with.
type runner interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Do(ctx context.Context, args ...any) *redis.Cmd
}

// way is one way to come from one runner to another. owner is the address of the server of the key.
type way func(ctx context.Context, from runner, key, owner string, use func(runner) error) error

// via is a way that needs neither the key nor its owner.
func via[T runner](hand func(ctx context.Context, from T, use func(runner) error) error) way {
	return func(ctx context.Context, from runner, _, _ string, use func(runner) error) error {
		return hand(ctx, from.(T), use)
	}
}

// pipelined is a way whose pipeline go-redis executes by itself.
func pipelined[T interface {
	runner
	Pipelined(context.Context, func(redis.Pipeliner) error) ([]redis.Cmder, error)
}]() way {
	return via(func(_ context.Context, from T, use func(runner) error) error {
		return use(pipeFunc{from, from.Pipelined})
	})
}

func txPipelined[T interface {
	runner
	TxPipelined(context.Context, func(redis.Pipeliner) error) ([]redis.Cmder, error)
}]() way {
	return via(func(_ context.Context, from T, use func(runner) error) error {
		return use(pipeFunc{from, from.TxPipelined})
	})
}

// pipeFunc runs each command in a pipeline of its own.
type pipeFunc struct {
	runner
	run func(context.Context, func(redis.Pipeliner) error) ([]redis.Cmder, error)
}

func (p pipeFunc) Process(ctx context.Context, cmd redis.Cmder) error {
	_, err := p.run(ctx, func(p redis.Pipeliner) error { return p.Process(ctx, cmd) })
	return err
}

func watch[T interface {
	runner
	Watch(context.Context, func(*redis.Tx) error, ...string) error
}](ctx context.Context, from runner, key, _ string, use func(runner) error) error {
	return from.(T).Watch(ctx, func(tx *redis.Tx) error { return use(tx) }, key+":watched") // not the key itself, that is written before EXEC
}

func auto[T runner](open func(T) (*redis.AutoPipeliner, error)) way {
	return via(func(_ context.Context, from T, use func(runner) error) error {
		ap, err := open(from)
		if err != nil {
			return err
		}
		return use(ap)
	})
}

func autoWith[T runner](open func(T, *redis.AutoPipelineOptions) (*redis.AutoPipeliner, error)) way {
	return auto(func(from T) (*redis.AutoPipeliner, error) { return open(from, nil) })
}

// each takes of the nodes the one that has the key.
func each[T runner](of func(T) func(context.Context, func(context.Context, *redis.Client) error) error) way {
	return func(ctx context.Context, from runner, _, owner string, use func(runner) error) error {
		var found *redis.Client
		var mu sync.Mutex
		err := of(from.(T))(ctx, func(_ context.Context, node *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			if node.Options().Addr == owner {
				found = node
			}
			return nil
		})
		if err != nil || found == nil {
			return errors.Join(err, fmt.Errorf("found %v", found))
		}
		return use(found)
	}
}

func forKey[T runner](of func(T, context.Context, string) (*redis.Client, error)) way {
	return func(ctx context.Context, from runner, key, _ string, use func(runner) error) error {
		node, err := of(from.(T), ctx, key)
		if err != nil {
			return err
		}
		return use(node)
	}
}

// ways are all methods of go-redis that hand out a runner. The replica ones are read only.
var ways = map[reflect.Type]map[string]way{
	reflect.TypeFor[*redis.Client](): {
		"Conn": via(func(_ context.Context, from *redis.Client, use func(runner) error) error {
			conn := from.Conn()
			defer conn.Close()
			return use(conn)
		}),
		"EphemeralConn": via(func(_ context.Context, from *redis.Client, use func(runner) error) error {
			conn := from.EphemeralConn()
			defer conn.Close()
			return use(conn)
		}),
		"WithTimeout": via(func(_ context.Context, from *redis.Client, use func(runner) error) error {
			return use(from.WithTimeout(time.Minute))
		}),
		"Watch":    watch[*redis.Client],
		"Pipeline": via(func(_ context.Context, from *redis.Client, use func(runner) error) error { return use(from.Pipeline()) }), "Pipelined": pipelined[*redis.Client](),
		"TxPipeline": via(func(_ context.Context, from *redis.Client, use func(runner) error) error {
			return use(from.TxPipeline())
		}), "TxPipelined": txPipelined[*redis.Client](),
		"AutoPipeline": auto((*redis.Client).AutoPipeline), "AutoPipelineWithOptions": autoWith((*redis.Client).AutoPipelineWithOptions),
		"AsyncAutoPipeline": auto((*redis.Client).AsyncAutoPipeline), "AsyncAutoPipelineWithOptions": autoWith((*redis.Client).AsyncAutoPipelineWithOptions),
	},
	reflect.TypeFor[*redis.ClusterClient](): {
		"Watch": watch[*redis.ClusterClient],
		"Pipeline": via(func(_ context.Context, from *redis.ClusterClient, use func(runner) error) error {
			return use(from.Pipeline())
		}), "Pipelined": pipelined[*redis.ClusterClient](),
		"TxPipeline": via(func(_ context.Context, from *redis.ClusterClient, use func(runner) error) error {
			return use(from.TxPipeline())
		}), "TxPipelined": txPipelined[*redis.ClusterClient](),
		"AutoPipeline": auto((*redis.ClusterClient).AutoPipeline), "AutoPipelineWithOptions": autoWith((*redis.ClusterClient).AutoPipelineWithOptions),
		"AsyncAutoPipeline": auto((*redis.ClusterClient).AsyncAutoPipeline), "AsyncAutoPipelineWithOptions": autoWith((*redis.ClusterClient).AsyncAutoPipelineWithOptions),
		"ForEachMaster": each(func(c *redis.ClusterClient) func(context.Context, func(context.Context, *redis.Client) error) error {
			return c.ForEachMaster
		}),
		"ForEachShard": each(func(c *redis.ClusterClient) func(context.Context, func(context.Context, *redis.Client) error) error {
			return c.ForEachShard
		}),
		"MasterForKey": forKey((*redis.ClusterClient).MasterForKey),
		"ForEachSlave": nil, "SlaveForKey": nil, // TestInstallReplicas
		"OnNewNode": nil, // TestInstallNewNodes
	},
	reflect.TypeFor[*redis.Ring](): {
		"Watch":    watch[*redis.Ring],
		"Pipeline": via(func(_ context.Context, from *redis.Ring, use func(runner) error) error { return use(from.Pipeline()) }), "Pipelined": pipelined[*redis.Ring](),
		"TxPipeline": via(func(_ context.Context, from *redis.Ring, use func(runner) error) error { return use(from.TxPipeline()) }), "TxPipelined": txPipelined[*redis.Ring](),
		"AutoPipeline": nil, "AutoPipelineWithOptions": nil, "AsyncAutoPipeline": nil, "AsyncAutoPipelineWithOptions": nil, // a Ring has none
		"ForEachShard": each(func(c *redis.Ring) func(context.Context, func(context.Context, *redis.Client) error) error {
			return c.ForEachShard
		}),
		"GetShardClients": each(func(c *redis.Ring) func(context.Context, func(context.Context, *redis.Client) error) error {
			return func(ctx context.Context, f func(context.Context, *redis.Client) error) error {
				for _, node := range c.GetShardClients() {
					_ = f(ctx, node)
				}
				return nil
			}
		}),
		"GetShardClientForKey": forKey(func(c *redis.Ring, _ context.Context, key string) (*redis.Client, error) {
			return c.GetShardClientForKey(key)
		}),
		"OnNewNode": nil, // TestInstallNewNodes
	},
	reflect.TypeFor[*redis.Conn](): {
		"Pipeline": via(func(_ context.Context, from *redis.Conn, use func(runner) error) error { return use(from.Pipeline()) }), "Pipelined": pipelined[*redis.Conn](),
		"TxPipeline": via(func(_ context.Context, from *redis.Conn, use func(runner) error) error { return use(from.TxPipeline()) }), "TxPipelined": txPipelined[*redis.Conn](),
	},
	reflect.TypeFor[*redis.Tx](): {
		"Pipeline": via(func(_ context.Context, from *redis.Tx, use func(runner) error) error { return use(from.Pipeline()) }), "Pipelined": pipelined[*redis.Tx](),
		"TxPipeline": via(func(_ context.Context, from *redis.Tx, use func(runner) error) error { return use(from.TxPipeline()) }), "TxPipelined": txPipelined[*redis.Tx](),
	},
	reflect.TypeFor[*redis.AutoPipeliner](): {
		"Watch": watch[*redis.AutoPipeliner],
		"Pipeline": via(func(_ context.Context, from *redis.AutoPipeliner, use func(runner) error) error {
			return use(from.Pipeline())
		}), "Pipelined": pipelined[*redis.AutoPipeliner](),
		"TxPipeline": via(func(_ context.Context, from *redis.AutoPipeliner, use func(runner) error) error {
			return use(from.TxPipeline())
		}), "TxPipelined": txPipelined[*redis.AutoPipeliner](),
		"AutoPipeline": auto((*redis.AutoPipeliner).AutoPipeline), "AutoPipelineWithOptions": autoWith((*redis.AutoPipeliner).AutoPipelineWithOptions),
		"AsyncAutoPipeline": auto((*redis.AutoPipeliner).AsyncAutoPipeline), "AsyncAutoPipelineWithOptions": autoWith((*redis.AutoPipeliner).AsyncAutoPipelineWithOptions),
	},
	reflect.TypeFor[*redis.Pipeline](): { // which add to the same queue
		"Pipeline": nil, "Pipelined": nil, "TxPipeline": nil, "TxPipelined": nil,
	},
}

// others are parts of the names of types that methods return and that are neither commands nor
// runners. None holds values of keys.
var others = []string{
	"Options", "Stats", "Builder", "redis.PubSub", "chan struct {}", "[]redis.Cmder", "[]*redis.Client", "maintnotifications.Manager", "push.NotificationHandler",
	"redis.AutoFuture", "redis.commandInfoResolver",
}

// TestEveryWayIsListed: a method of another version of go-redis that hands out one more runner
// fails here, until it is in ways.
func TestEveryWayIsListed(t *testing.T) {
	isRunner := func(typ reflect.Type) bool {
		return typ.Implements(reflect.TypeFor[interface {
			Process(context.Context, redis.Cmder) error
		}]())
	}
	var hands func(typ reflect.Type, given bool) bool // whether a program gets a runner by a value of the type; given: that it hands in
	hands = func(typ reflect.Type, given bool) bool {
		switch typ.Kind() {
		case reflect.Func:
			for in := range typ.Ins() {
				if hands(in, !given) {
					return true
				}
			}
			for out := range typ.Outs() {
				if hands(out, given) {
					return true
				}
			}
			return false
		case reflect.Slice, reflect.Map, reflect.Chan:
			return hands(typ.Elem(), given)
		}
		return !given && isRunner(typ)
	}
	cmder := reflect.TypeFor[redis.Cmder]()
	for typ, listed := range ways {
		var found []string
		for m := range typ.Methods() {
			gives := false
			for i := 1; i < m.Type.NumIn(); i++ {
				gives = gives || hands(m.Type.In(i), true)
			}
			for out := range m.Type.Outs() {
				gives = gives || hands(out, false)
				if basic := out.PkgPath() == "" && out.Kind() < reflect.Array || out.Kind() == reflect.String; !basic && !hands(out, false) && !out.Implements(cmder) && out != reflect.TypeFor[error]() &&
					!slices.ContainsFunc(others, func(s string) bool { return strings.Contains(out.String(), s) }) {
					t.Errorf("%v.%s returns a %v: does it hold values?", typ, m.Name, out)
				}
			}
			if gives {
				found = append(found, m.Name)
			}
		}
		slices.Sort(found)
		if diff := cmp.Diff(slices.Sorted(maps.Keys(listed)), found); diff != "" {
			t.Errorf("%v: the ways to a runner (-listed +found):\n%s", typ, diff)
		}
	}
	if _, is := any(&Hook{}).(redis.Hook); is {
		t.Error("a Hook can be given to AddHook, which leaves paths without it")
	}
}

// conformance goes all ways from a client.
type conformance struct {
	raw    redis.UniversalClient // without the hook
	hook   *Hook
	rec    *recorder
	packer *bale.Packer
	owner  string
	count  int
}

func (c *conformance) all(t *testing.T, name string, r runner, key string, depth int) {
	t.Run(name, func(t *testing.T) { c.one(t, r, key) })
	if depth == 0 {
		return
	}
	for _, method := range slices.Sorted(maps.Keys(ways[reflect.TypeOf(r)])) {
		if ways[reflect.TypeOf(r)][method] == nil {
			continue
		}
		used := false
		if err := ways[reflect.TypeOf(r)][method](t.Context(), r, key, c.owner, func(next runner) error {
			used = true
			if method == "WithTimeout" { // which drops all hooks, says docs/hook.md
				if err := next.Process(t.Context(), redis.NewStatusCmd(t.Context(), "set", key, big("x"))); err != nil || isPacked(c.raw.Get(t.Context(), key).Val()) {
					t.Errorf("%s.WithTimeout: packed, %v: does it keep hooks now?", name, err)
				}
				install(t, c.hook, next.(*redis.Client))
			}
			c.all(t, name+"."+method, next, key, depth-1)
			return nil
		}); err != nil || !used {
			t.Errorf("%s.%s: %v, used %v", name, method, err, used)
		}
	}
}

// one writes and reads through a runner: packed once, unpacked once, told once, or refused.
func (c *conformance) one(t *testing.T, r runner, key string) {
	ctx := t.Context()
	c.count++
	run := func(cmd redis.Cmder) error {
		if err := r.Process(ctx, cmd); err != nil {
			return err
		}
		if p, is := r.(redis.Pipeliner); is {
			if _, is := r.(*redis.Pipeline); is {
				if _, err := p.Exec(ctx); err != nil {
					return err
				}
			}
		}
		return cmd.Err() // an asynchronous one waits here
	}
	v := big(t.Name())
	packed, err := c.packer.Pack(nil, []byte(v))
	if err != nil {
		t.Fatal(err)
	}
	c.rec.told()
	for _, value := range []string{v, string(packed)} { // the second is a frame itself
		if err := run(redis.NewStatusCmd(ctx, "set", key, value)); err != nil {
			t.Fatalf("set: %v", err)
		}
		stored := c.raw.Get(ctx, key).Val()
		if plain, err := c.packer.Unpack(t.Context(), nil, []byte(stored)); err != nil || string(plain) != value || !isPacked(stored) {
			t.Errorf("stored: %d bytes that are %d, packed %v, %v", len(stored), len(plain), isPacked(stored), err)
		}
		get := redis.NewStringCmd(ctx, "get", key)
		if err := run(get); err != nil || get.Val() != value {
			t.Errorf("get: %d bytes, packed %v, %v", len(get.Val()), isPacked(get.Val()), err)
		}
	}
	many := redis.NewCmd(ctx, "mget", key)
	if err := run(many); err != nil || !cmp.Equal(many.Val(), any([]any{string(packed)})) {
		t.Errorf("mget: %v", err)
	}
	if err := run(redis.NewIntCmd(ctx, "append", key, "x")); !errors.Is(err, ErrCommand) {
		t.Errorf("append: %v", err)
	}
	if err := run(redis.NewCmd(ctx, "eval", "return 1", 1, key)); !errors.Is(err, ErrCommand) {
		t.Errorf("eval: %v", err)
	}
	var ops []stats.Op
	for _, e := range c.rec.told() {
		ops = append(ops, e.Op)
	}
	if diff := cmp.Diff([]stats.Op{stats.Set, stats.Get, stats.Set, stats.Get, stats.GetMany}, ops); diff != "" {
		t.Errorf("told:\n%s", diff)
	}
}

// topologies are the kinds of clients, each with one that has no hook.
var topologies = map[string]func(t *testing.T) (client, raw redis.UniversalClient){
	"client": func(t *testing.T) (_, _ redis.UniversalClient) {
		addr := redisproc.ForTest(t).Addr()
		return redis.NewClient(&redis.Options{Addr: addr}), redis.NewClient(&redis.Options{Addr: addr})
	},
	"sentinel": func(t *testing.T) (_, _ redis.UniversalClient) {
		server := redisproc.ForTest(t)
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "main", SentinelAddrs: []string{redisproc.SentinelForTest(t, "main", server).Addr()}}), redis.NewClient(&redis.Options{Addr: server.Addr()})
	},
	"sentinel cluster": func(t *testing.T) (_, _ redis.UniversalClient) {
		server := redisproc.ForTest(t)
		return redis.NewFailoverClusterClient(&redis.FailoverOptions{MasterName: "main", SentinelAddrs: []string{redisproc.SentinelForTest(t, "main", server).Addr()}}), redis.NewClient(&redis.Options{Addr: server.Addr()})
	},
	"cluster": func(t *testing.T) (_, _ redis.UniversalClient) {
		c := redisproc.ClusterForTest(t, 3)
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()}), redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	},
	"ring": func(t *testing.T) (_, _ redis.UniversalClient) {
		o := &redis.RingOptions{Addrs: map[string]string{"a": redisproc.ForTest(t).Addr(), "b": redisproc.ForTest(t).Addr()}}
		return redis.NewRing(o), redis.NewRing(o)
	},
}

// ownerOf is the address of the server of a key.
func ownerOf(t *testing.T, c redis.UniversalClient, key string) string {
	var node *redis.Client
	var err error
	switch c := c.(type) {
	case *redis.Client:
		return ""
	case *redis.ClusterClient:
		node, err = c.MasterForKey(t.Context(), key)
	case *redis.Ring:
		node, err = c.GetShardClientForKey(key)
	}
	if err != nil {
		t.Fatal(err)
	}
	return node.Options().Addr
}

// TestInstall goes every way that go-redis has to run a command, three steps deep, from every kind
// of client; from one that was used before Install as well.
func TestInstall(t *testing.T) {
	t.Parallel()
	for name, open := range topologies {
		for _, used := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/used %v", name, used), func(t *testing.T) {
				client, raw := open(t)
				defer client.Close()
				defer raw.Close()
				c := &conformance{raw: raw, rec: &recorder{}, packer: newPacker(t, bale.PackerOptions{})}
				if used {
					if err := client.Set(t.Context(), "before", "x", 0).Err(); err != nil {
						t.Fatal(err)
					}
				}
				c.hook = newHook(t, HookOptions{Recorder: c.rec, RefuseScripts: true})
				for range 2 { // the second time is none
					install(t, c.hook, client)
				}
				const key = "{k}1"
				c.owner = ownerOf(t, client, key)
				c.all(t, "client", client, key, 3)
				t.Logf("%d ways", c.count)
			})
		}
	}
}

// withHook reports nodes that a client holds without the hook.
func (h *Hook) without(t *testing.T, client any, holder string, path ...string) (nodes, without int) {
	t.Helper()
	if !addNodes(client, holder, path, func(node *redis.Client) {
		nodes++
		if _, had := h.add(node, inner); !had {
			without++
		}
	}) {
		t.Fatal("this version of go-redis keeps its nodes in another way: change held")
	}
	return nodes, without
}

// TestInstallOldNodes: a client that was used holds nodes that none of its methods hands out, and
// that it may use later.
func TestInstallOldNodes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	t.Run("cluster", func(t *testing.T) {
		var seeds []string // by another name than in CLUSTER SLOTS
		for _, addr := range redisproc.ClusterForTest(t, 3).Addrs() {
			seeds = append(seeds, strings.Replace(addr, "127.0.0.1", "localhost", 1))
		}
		open := func() *redis.ClusterClient { return redis.NewClusterClient(&redis.ClusterOptions{Addrs: seeds}) }
		c := open()
		defer c.Close()
		if err := c.Set(ctx, "before", "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
		h := newHook(t, HookOptions{})
		install(t, h, c)
		if nodes, without := h.without(t, c, "nodes", "nodes"); nodes < 4 || without > 0 {
			t.Errorf("%d nodes, %d without the hook", nodes, without)
		}
		// How it is if go-redis keeps its nodes in another way some day.
		for name, test := range map[string]struct {
			use  func(*redis.ClusterClient) error
			want string
		}{
			"new":  {func(*redis.ClusterClient) error { return nil }, ""},
			"used": {func(c *redis.ClusterClient) error { return c.Set(ctx, "before", "x", 0).Err() }, usedBefore},
			"used before it was there": {func(c *redis.ClusterClient) error {
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				if c.Ping(ctx).Err() == nil {
					return errors.New("no error")
				}
				return nil
			}, usedBefore},
		} {
			c := open()
			defer c.Close()
			if err := test.use(c); err != nil {
				t.Fatal(err)
			}
			h := newHook(t, HookOptions{})
			for range 2 {
				err := h.addAll(c, func(add func(*redis.Client)) string { return askCluster(c, add) })
				var refusal *InstallError
				if test.want == "" && err != nil || test.want != "" && (!errors.As(err, &refusal) || !errors.Is(err, ErrInstall) || refusal.Reason != test.want || !refusal.Installed) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if err := c.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
				if _, had := h.add(node, inner); !had {
					return errors.New("a node without the hook")
				}
				return nil
			}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	t.Run("ring", func(t *testing.T) {
		up, down := redisproc.ForTest(t), redisproc.ForTest(t)
		ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"up": up.Addr(), "down": down.Addr()}, HeartbeatFrequency: 10 * time.Millisecond})
		defer ring.Close()
		down.Kill()
		eventually(t, "the ring does not see that a shard is down", func() bool { return ring.Len() == 1 })
		h := newHook(t, HookOptions{})
		install(t, h, ring)
		if nodes, without := h.without(t, ring, "sharding", "shards", "list"); nodes != 2 || without > 0 {
			t.Errorf("%d shards, %d without the hook", nodes, without)
		}
		var refusal *InstallError
		h = newHook(t, HookOptions{})
		if err := h.addAll(ring, func(add func(*redis.Client)) string { return askRing(ring, add) }); !errors.As(err, &refusal) || refusal.Reason != isDown {
			t.Errorf("a shard that is not told: %v", err)
		}
	})
}

// eventually waits until something is so.
func eventually(t *testing.T, failure string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(failure)
		}
	}
}

// TestInstallNewNodes: a node that comes after Install has the hook before anybody sees it.
func TestInstallNewNodes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	first, second := redisproc.ForTest(t), redisproc.ForTest(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"first": first.Addr()}})
	defer ring.Close()
	raw := redis.NewClient(&redis.Options{Addr: second.Addr()})
	defer raw.Close()
	c := &conformance{raw: raw, rec: &recorder{}, packer: newPacker(t, bale.PackerOptions{}), owner: second.Addr()}
	c.hook = newHook(t, HookOptions{Recorder: c.rec, RefuseScripts: true})
	install(t, c.hook, ring)
	ring.OnNewNode(func(node *redis.Client) {
		if _, had := c.hook.add(node, inner); !had {
			t.Error("a new node without the hook")
		}
	})
	ring.SetAddrs(map[string]string{"first": first.Addr(), "second": second.Addr()})
	key := ""
	for i := 0; key == ""; i++ {
		if node, err := ring.GetShardClientForKey(fmt.Sprintf("{k%d}", i)); err != nil {
			t.Fatal(err)
		} else if node.Options().Addr == second.Addr() {
			key = fmt.Sprintf("{k%d}", i)
		}
	}
	c.all(t, "ring", ring, key, 2)

	cluster := redisproc.ClusterForTest(t, 3)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()[:1]})
	defer client.Close()
	install(t, c.hook, client)
	seen := 0
	client.OnNewNode(func(node *redis.Client) {
		seen++
		if _, had := c.hook.add(node, inner); !had {
			t.Error("a new node without the hook")
		}
	})
	if err := client.Set(ctx, "k", "x", 0).Err(); err != nil || seen < 3 {
		t.Errorf("%d new nodes, %v", seen, err)
	}
}

// TestInstallReplicas reads from the clients of replicas.
func TestInstallReplicas(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cluster := redisproc.ClusterForTest(t, 3)
	for _, s := range cluster.Servers {
		if _, err := cluster.AddReplica(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ReadOnly: true})
	defer client.Close()
	install(t, newHook(t, HookOptions{}), client)
	v := big("replica")
	if err := client.Set(ctx, "k", v, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if master, err := client.MasterForKey(ctx, "k"); err != nil || master.Wait(ctx, 1, time.Minute).Val() != 1 {
		t.Fatalf("not replicated, %v", err)
	}
	slave, err := client.SlaveForKey(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := slave.Get(ctx, "k").Result(); err != nil || got != v {
		t.Errorf("SlaveForKey: %d bytes, %v", len(got), err)
	}
	if got, err := client.Get(ctx, "k").Result(); err != nil || got != v {
		t.Errorf("read from a replica: %d bytes, %v", len(got), err)
	}
	var mu sync.Mutex
	read := 0
	if err := client.ForEachSlave(ctx, func(ctx context.Context, slave *redis.Client) error {
		got, err := slave.Get(ctx, "k").Result()
		if err != nil && strings.HasPrefix(err.Error(), "MOVED ") {
			return nil // another slot's
		}
		mu.Lock()
		defer mu.Unlock()
		if read++; got != v {
			t.Errorf("ForEachSlave: %d bytes", len(got))
		}
		return err
	}); err != nil || read != 1 {
		t.Errorf("ForEachSlave: %d read, %v", read, err)
	}
}

// TestInstallOnce: however often, and in whatever order, a hook is on each path once.
func TestInstallOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	addrs := redisproc.ClusterForTest(t, 3).Addrs()
	client, raw := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs}), redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer client.Close()
	defer raw.Close()
	c := &conformance{raw: raw, rec: &recorder{}, packer: newPacker(t, bale.PackerOptions{})}
	c.hook = newHook(t, HookOptions{Recorder: c.rec, RefuseScripts: true})
	node, err := client.MasterForKey(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	c.owner = node.Options().Addr
	install(t, c.hook, node) // a node alone at first
	c.one(t, node, "{k}")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := c.hook.Install(client); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	install(t, c.hook, node)
	client.AddHook(through{}) // the chain is made anew
	c.all(t, "cluster", client, "{k}", 1)
}

// through is a hook that does nothing.
type through struct{}

func (through) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (through) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (through) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestInstallRefuses: a client that Install cannot serve is left as it was.
func TestInstallRefuses(t *testing.T) {
	ctx := t.Context()
	server := redisproc.ForTest(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	ap, err := client.AutoPipeline()
	if err != nil {
		t.Fatal(err)
	}
	full := &redis.AutoPipelineOptions{FullDuplex: true}
	fullClient := redis.NewClient(&redis.Options{Addr: server.Addr(), AutoPipelineOptions: full})
	defer fullClient.Close()
	fullCluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr()}, AutoPipelineOptions: full})
	defer fullCluster.Close()
	for name, c := range map[string]redis.UniversalClient{"nil": nil, "AutoPipeliner": ap, "wrapper": struct{ redis.UniversalClient }{client}, "full duplex": fullClient, "full duplex cluster": fullCluster} {
		var refusal *InstallError
		if err := newHook(t, HookOptions{}).Install(c); !errors.As(err, &refusal) || !errors.Is(err, ErrInstall) || refusal.Installed {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := fullClient.Append(ctx, "k", "x").Err(); err != nil {
		t.Errorf("the client was changed: %v", err)
	}

	// Full duplex that is switched on later cannot be seen, but by each command.
	install(t, newHook(t, HookOptions{}), client)
	clone := client.WithTimeout(time.Minute) // the client itself has an AutoPipeliner already
	install(t, newHook(t, HookOptions{}), clone)
	for name, open := range map[string]func(*redis.AutoPipelineOptions) (*redis.AutoPipeliner, error){
		"blocking": clone.AutoPipelineWithOptions, "asynchronous": client.AsyncAutoPipelineWithOptions,
	} {
		ap, err := open(full)
		if err != nil {
			t.Fatal(err)
		}
		defer ap.Close()
		for _, cmd := range []redis.Cmder{ap.Set(ctx, "k", big("x"), 0), ap.Get(ctx, "k"), ap.StrLen(ctx, "k")} {
			var refusal *CommandError
			if err := cmd.Err(); !errors.As(err, &refusal) || refusal.Key != "k" || refusal.Reason != sendsFirst {
				t.Errorf("%s: %s: %v", name, cmd.Name(), err)
			}
		}
		if err := ap.RPush(ctx, "list", "x").Err(); err != nil {
			t.Errorf("%s: a command without values: %v", name, err)
		}
	}
}

// TestInstallSplitCommands: with routing by the server's hints a ClusterClient splits MGET and MSET
// by slot, and takes texts only.
func TestInstallSplitCommands(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	addrs := redisproc.ClusterForTest(t, 3).Addrs()
	client, raw := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs}), redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer client.Close()
	defer raw.Close()
	client.SetCommandInfoResolver(client.NewDynamicResolver())
	rec := &recorder{}
	install(t, newHook(t, HookOptions{Recorder: rec}), client)
	packed, err := newPacker(t, bale.PackerOptions{}).Pack(nil, []byte(big("frame")))
	if err != nil {
		t.Fatal(err)
	}
	var set []any
	var keys []string
	var want []any
	for i := range 20 {
		key, v := fmt.Sprint("k", i), big(fmt.Sprint(i))
		if i%2 == 0 {
			v = string(packed)
		}
		set, keys, want = append(set, key, v), append(keys, key), append(want, v)
	}
	if err := client.MSet(ctx, set...).Err(); err != nil {
		t.Fatal(err)
	}
	for i, key := range keys {
		if !isPacked(raw.Get(ctx, key).Val()) {
			t.Errorf("%s is not packed", key)
		}
		if got, err := client.Get(ctx, key).Result(); err != nil || got != want[i] {
			t.Errorf("%s: %d bytes, %v", key, len(got), err)
		}
	}
	rec.told()
	got, err := client.MGet(ctx, keys...).Result()
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("mget: %v\n%s", err, diff)
	}
	if events := rec.told(); len(events) != 1 || events[0].Hits != 20 {
		t.Errorf("told: %v", events)
	}
}

// TestInstallOtherCommands: OnConnect runs commands with the context of the command that needs the
// connection. The hook must not take them for commands that it has already handled.
func TestInstallOtherCommands(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	addrs := redisproc.ClusterForTest(t, 3).Addrs()
	raw := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer raw.Close()
	v := big("settings")
	read := 0
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, OnConnect: func(ctx context.Context, conn *redis.Conn) error {
		got, err := conn.Get(ctx, "settings").Result()
		if err != nil && strings.HasPrefix(err.Error(), "MOVED ") || errors.Is(err, redis.Nil) {
			return nil
		}
		cmds, pipeErr := conn.Pipelined(ctx, func(p redis.Pipeliner) error { p.Get(ctx, "settings"); return nil })
		if read++; err != nil || got != v || pipeErr != nil || cmds[0].(*redis.StringCmd).Val() != v {
			t.Errorf("%d bytes, packed %v, %v, %v", len(got), isPacked(got), err, pipeErr)
		}
		return nil
	}})
	defer client.Close()
	hook := newHook(t, HookOptions{})
	install(t, hook, client)
	other := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer other.Close()
	install(t, hook, other)
	if err := other.Set(ctx, "settings", v, 0).Err(); err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		if err := client.Get(ctx, fmt.Sprint("k", i)).Err(); !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
	}
	if read == 0 {
		t.Error("no connection to the server of the settings")
	}
}

// breaker is a hook that stops all commands while it is open.
type breaker struct {
	through
	open *bool
}

func (b breaker) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if *b.open {
			return errors.New("circuit open")
		}
		return next(ctx, cmd)
	}
}

// TestInstallBehindBreaker: while an earlier hook stops commands, Install cannot see an installed
// hook behind it. A second active hook would pack and unpack twice.
func TestInstallBehindBreaker(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, make := range topologies {
		t.Run(name, func(t *testing.T) {
			client, raw := make(t)
			defer client.Close()
			defer raw.Close()
			open := true
			client.AddHook(breaker{open: &open})
			c := &conformance{raw: raw, rec: &recorder{}, packer: newPacker(t, bale.PackerOptions{})}
			c.hook = newHook(t, HookOptions{Recorder: c.rec, RefuseScripts: true})
			blocked := func(when string) {
				t.Helper()
				var refusal *InstallError
				if err := c.hook.Install(client); !errors.As(err, &refusal) || refusal.Installed || refusal.Reason != isBlocked {
					t.Errorf("%s: %v", when, err)
				}
			}
			const key = "{k}"
			open = false
			c.owner = ownerOf(t, client, key)
			open = true
			blocked("the first Install")
			open = false
			if err := client.Set(ctx, key, big("plain"), 0).Err(); err != nil || isPacked(raw.Get(ctx, key).Val()) {
				t.Errorf("a refused Install changes values: %v", err)
			}
			install(t, c.hook, client)
			open = true
			blocked("a later Install")
			open = false
			c.all(t, "client", client, key, 1)
			install(t, c.hook, client)
			c.all(t, "client again", client, key, 1)
		})
	}

	// On a node's own client the hook may be missing then: Install returns an error.
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": redisproc.ForTest(t).Addr()}})
	defer ring.Close()
	open := true
	for _, node := range ring.GetShardClients() {
		node.AddHook(breaker{open: &open})
	}
	h := newHook(t, HookOptions{})
	var refusal *InstallError
	if err := h.Install(ring); !errors.As(err, &refusal) || !refusal.Installed || refusal.Reason != nodeBlocks {
		t.Errorf("a node behind a breaker: %v", err)
	}
}

// TestInstallBesideSetAddrs: a shard that SetAddrs makes while Install runs has the hook.
func TestInstallBesideSetAddrs(t *testing.T) {
	first, second := redisproc.ForTest(t).Addr(), redisproc.ForTest(t).Addr()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"first": first}})
	defer ring.Close()
	made, installed := make(chan struct{}), make(chan error, 1)
	ring.OnNewNode(func(*redis.Client) {
		close(made)
		// Give Install time to end before the ring has the shard. It may as well wait for SetAddrs.
		select {
		case err := <-installed:
			installed <- err
		case <-time.After(time.Second):
		}
	})
	h := newHook(t, HookOptions{})
	var set sync.WaitGroup
	set.Go(func() { ring.SetAddrs(map[string]string{"first": first, "second": second}) })
	<-made
	installed <- h.Install(ring)
	set.Wait()
	if err := <-installed; err != nil {
		t.Error(err)
	}
	if nodes, without := h.without(t, ring, "sharding", "shards", "list"); nodes != 2 || without > 0 {
		t.Errorf("%d shards, %d without the hook", nodes, without)
	}
}
