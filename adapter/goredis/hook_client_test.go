package goredis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/internal/adapters"
	"github.com/balekv/bale/internal/redisproc"
	"github.com/balekv/bale/testkit/storetest"
)

// The hook with the other ways that go-redis has to send commands: clusters, auto-pipelining,
// client-side caching, transactions by hand.

// TestTransactionByHand reads values in the reply of an EXEC of one's own.
func TestTransactionByHand(t *testing.T) {
	ctx := t.Context()
	for _, protocol := range []int{2, 3} {
		hooked, raw := clients(t, HookOptions{Match: []string{"k", "h"}}, protocol)
		v := big("by hand")
		hooked.Set(ctx, "k", v, 0)
		hooked.HSet(ctx, "h", "f", v)
		exec := func() *redis.Cmd {
			conn := hooked.Conn()
			defer conn.Close()
			for _, args := range [][]any{{"multi"}, {"get", "k"}, {"hgetall", "h"}, {"mget", "k", "none"}, {"set", "k", v, "get"}} {
				if err := conn.Do(ctx, args...).Err(); err != nil {
					t.Fatal(err)
				}
			}
			return conn.Do(ctx, "exec")
		}
		var hash any = []any{"f", v}
		if protocol == 3 {
			hash = map[any]any{"f": v}
		}
		if diff := gocmp([]any{v, hash, []any{v, nil}, v}, exec().Val()); diff != "" {
			t.Error(diff)
		}
		if !isPacked(raw.Get(ctx, "k").Val()) {
			t.Error("not packed")
		}
		raw.Set(ctx, "k", damage(raw.Get(ctx, "k").Val()), 0)
		if cmd := exec(); !errors.Is(cmd.Err(), bale.ErrCorrupt) || cmd.Val() != nil {
			t.Errorf("damaged: %v", cmd.Err())
		}
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cluster := redisproc.ClusterForTest(t, 3)
	hooked, raw := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()}), redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	defer hooked.Close()
	defer raw.Close()
	install(t, newHook(t, HookOptions{}), hooked)
	p := hooked.Pipeline()
	for i := range 100 {
		p.Set(ctx, fmt.Sprint("key:", i), big(fmt.Sprint(i)), 0)
	}
	if _, err := p.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	p = hooked.Pipeline()
	var keys []string
	for i := range 100 {
		keys = append(keys, fmt.Sprint("key:", i))
		p.Get(ctx, keys[i])
	}
	cmds, err := p.Exec(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range keys {
		want := big(fmt.Sprint(i))
		if cmds[i].(*redis.StringCmd).Val() != want || hooked.Get(ctx, key).Val() != want {
			t.Errorf("%s comes back different", key)
		}
		if !isPacked(raw.Get(ctx, key).Val()) {
			t.Errorf("%s is not packed", key)
		}
	}
	tx := hooked.TxPipeline()
	tx.Set(ctx, "{a}1", big("1"), 0)
	got := tx.Get(ctx, "{a}1")
	if _, err := tx.Exec(ctx); err != nil || got.Val() != big("1") {
		t.Errorf("transaction: %v", err)
	}
	if err := hooked.MSet(ctx, "{a}1", big("1"), "{a}2", big("2")).Err(); err != nil {
		t.Error(err)
	}
	if diff := gocmp([]any{big("1"), big("2")}, hooked.MGet(ctx, "{a}1", "{a}2").Val()); diff != "" {
		t.Errorf("MGet: %s", diff)
	}
}

func TestAutoPipeline(t *testing.T) {
	for name, open := range autoPipelines {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			hooked, raw := clients(t, HookOptions{}, 3)
			ap, err := open(hooked)
			if err != nil {
				t.Fatal(err)
			}
			defer ap.Close()
			for i := range 50 {
				key := fmt.Sprint("key:", i)
				if err := ap.Set(ctx, key, big(key), 0).Err(); err != nil {
					t.Fatal(err)
				}
				if got, err := ap.Get(ctx, key).Result(); got != big(key) || err != nil {
					t.Errorf("%s: %v", key, err)
				}
				if !isPacked(raw.Get(ctx, key).Val()) {
					t.Errorf("%s is not packed", key)
				}
			}
			if err := ap.StrLen(ctx, "key:1").Err(); !errors.Is(err, ErrCommand) {
				t.Errorf("strlen: %v", err)
			}
		})
	}
}

// autoPipelines are the two faces of go-redis' auto-pipelining.
var autoPipelines = map[string]func(*redis.Client) (*redis.AutoPipeliner, error){
	"blocking": (*redis.Client).AutoPipeline, "asynchronous": (*redis.Client).AsyncAutoPipeline,
}

// TestClientSideCache has go-redis keep replies: it keeps packed ones, each hit is unpacked anew,
// and a list that was replaced is not the cached one.
func TestClientSideCache(t *testing.T) {
	ctx := t.Context()
	server := redisproc.ForTest(t)
	cached := redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: 3, ClientSideCacheConfig: &redis.ClientSideCacheConfig{}})
	defer cached.Close()
	install(t, newHook(t, HookOptions{}), cached)
	v := big("cached")
	cached.MSet(ctx, "k", v, "l", v)
	cached.HSet(ctx, "h", "f", v)
	for i := range 5 {
		if got, err := cached.Get(ctx, "k").Result(); got != v || err != nil {
			t.Errorf("get %d: %v", i, err)
		}
		if diff := gocmp([]any{v, v}, cached.MGet(ctx, "k", "l").Val()); diff != "" {
			t.Errorf("mget %d: %s", i, diff)
		}
		if diff := gocmp(map[string]string{"f": v}, cached.HGetAll(ctx, "h").Val()); diff != "" {
			t.Errorf("hgetall %d: %s", i, diff)
		}
	}
}

// TestFromMastersPastTheCache: writers of package stream see what Redis has, and not what the
// client keeps of the past.
func TestFromMastersPastTheCache(t *testing.T) {
	server := redisproc.ForTest(t)
	cached := redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: 3, ClientSideCacheConfig: &redis.ClientSideCacheConfig{}})
	defer cached.Close()
	for name, client := range map[string]func() (redis.UniversalClient, error){
		"client":   func() (redis.UniversalClient, error) { return cached, nil },
		"blocking": func() (redis.UniversalClient, error) { return cached.AutoPipeline() },
	} {
		t.Run(name, func(t *testing.T) {
			c, err := client()
			if err != nil {
				t.Fatal(err)
			}
			s := NewStore(c)
			asked := func(ctx context.Context) int {
				before := called(t, server, "get")
				for range 3 {
					if _, err := s.Get(ctx, "k"); !errors.Is(err, bale.ErrNotFound) {
						t.Error(err)
					}
				}
				return called(t, server, "get") - before
			}
			if n := asked(t.Context()); n > 1 {
				t.Errorf("%d of 3 reads go to the server: nothing is cached", n)
			}
			if n := asked(adapters.FromMasters(t.Context())); n != 3 {
				t.Errorf("%d of 3 reads go to the server", n)
			}
		})
	}
}

// TestStoreOverAutoPipeline cancels writes that are under way and uses their buffers again: what is
// stored is a value that was given, never what the buffer held later.
func TestStoreOverAutoPipeline(t *testing.T) {
	for name, open := range autoPipelines {
		t.Run(name, func(t *testing.T) {
			server := redisproc.ForTest(t)
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
			defer rdb.Close()
			ap, err := open(rdb)
			if err != nil {
				t.Fatal(err)
			}
			defer ap.Close()
			s := NewStore(ap)
			testCancelledWrites(t, s)

			// Behind a write that waits for its reply, others are queued when their callers leave.
			if err := syscall.Kill(server.PID(), syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			defer syscall.Kill(server.PID(), syscall.SIGCONT)
			value := []byte("v")
			for i := range 10 {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				if err := s.Set(ctx, fmt.Sprint("queued", i), value, bale.Expiry{}); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a paused server: %v", err)
				}
				cancel()
			}
			value[0] = 'X'
			syscall.Kill(server.PID(), syscall.SIGCONT)
			for i := range 10 {
				if got, err := s.Get(t.Context(), fmt.Sprint("queued", i)); string(got) != "v" || err != nil {
					t.Errorf("queued%d: %q, %v", i, got, err)
				}
			}
		})
	}
}

// TestStoreInAutoPipeline: calls end with their contexts there too. go-redis alone ends them with
// its time-outs.
func TestStoreInAutoPipeline(t *testing.T) {
	t.Parallel()
	for name, open := range autoPipelines {
		t.Run(name, func(t *testing.T) {
			store := func(t *testing.T, d storetest.Deployment) bale.Store {
				ap, err := open(connect(t, d).(*redis.Client))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { ap.Close() })
				return NewStore(ap)
			}
			storetest.Run(t, store, storetest.Cluster, storetest.Sentinel)
			storetest.Overtaken(t, store)
		})
	}
}

func testCancelledWrites(t *testing.T, s *Store) {
	value := make([]byte, 64<<10)
	for i := range 300 {
		for j := range value {
			value[j] = 'v'
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Microsecond)
		s.Set(ctx, fmt.Sprint("k", i%10), value, bale.Expiry{})
		for j := range value {
			value[j] = 'X'
		}
		cancel()
	}
	if err := s.Set(t.Context(), "last", value[:1], bale.Expiry{}); err != nil {
		t.Fatal(err)
	}
	if ok, err := s.Touch(t.Context(), "last", bale.TTL(time.Hour)); !ok || err != nil {
		t.Errorf("touch: %v, %v", ok, err)
	}
	for i := range 10 {
		got, err := s.Get(t.Context(), fmt.Sprint("k", i))
		if err != nil && !errors.Is(err, bale.ErrNotFound) {
			t.Fatal(err)
		}
		if bytes.ContainsRune(got, 'X') {
			t.Errorf("k%d holds what the buffer was used for later", i)
		}
	}
}

// TestScopeInTransactionByHand: in the reply of EXEC, values of keys in scope are unpacked, and a
// frame under a key out of scope stays as it is. Where the hook did not see all commands, a frame
// is an error: it could be either.
func TestScopeInTransactionByHand(t *testing.T) {
	ctx := t.Context()
	for _, protocol := range []int{2, 3} {
		hooked, raw := clients(t, HookOptions{Match: []string{"in:*"}}, protocol)
		v := big("in scope")
		hooked.Set(ctx, "in:k", v, 0)
		hooked.HSet(ctx, "in:h", "f", v)
		upload := raw.Get(ctx, "in:k").Val() // a frame that somebody has uploaded
		raw.Set(ctx, "out:k", upload, 0)
		raw.HSet(ctx, "out:h", "f", upload)
		raw.RPush(ctx, "list", upload)
		read := [][]any{{"multi"}, {"GET", "in:k"}, {"get", "out:k"}, {"mget", "in:k", "out:k", "in:none"}, {"hgetall", "out:h"}, {"hgetall", "in:h"}, {"lrange", "list", 0, -1}, {"ping", upload}}
		var in, out any = []any{"f", v}, []any{"f", upload}
		if protocol == 3 {
			in, out = map[any]any{"f": v}, map[any]any{"f": upload}
		}
		want := []any{v, upload, []any{v, upload, nil}, out, in, []any{upload}, upload}
		for name, exec := range map[string]func() (redis.Cmder, error){
			"Conn": func() (redis.Cmder, error) {
				conn := hooked.Conn()
				defer conn.Close()
				for _, args := range [][]any{{"multi"}, {"get", "in:k"}, {"discard"}} { // which leaves nothing behind
					conn.Do(ctx, args...)
				}
				for _, args := range read {
					if err := conn.Do(ctx, args...).Err(); err != nil {
						return nil, err
					}
				}
				cmd := redis.NewSliceCmd(ctx, "exec")
				return cmd, conn.Process(ctx, cmd)
			},
			"Watch": func() (cmd redis.Cmder, err error) {
				err = hooked.Watch(ctx, func(tx *redis.Tx) error {
					for _, args := range append(read, []any{"exec"}) {
						c := redis.NewCmd(ctx, args...)
						if err := tx.Process(ctx, c); err != nil {
							return err
						}
						cmd = c
					}
					return nil
				})
				return cmd, err
			},
			"Pipeline": func() (cmd redis.Cmder, err error) {
				cmds, err := hooked.Pipelined(ctx, func(p redis.Pipeliner) error {
					for _, args := range append(read, []any{"exec"}) {
						p.Do(ctx, args...)
					}
					return nil
				})
				return cmds[len(cmds)-1], err
			},
		} {
			cmd, err := exec()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if diff := gocmp(want, valueOf(cmd)); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}

		// MULTI in a pipeline, and EXEC later.
		for _, key := range []string{"in:k", "out:k", "none"} {
			conn := hooked.Conn()
			defer conn.Close()
			if _, err := conn.Pipelined(ctx, func(p redis.Pipeliner) error { p.Do(ctx, "multi"); p.Do(ctx, "get", key); return nil }); err != nil {
				t.Fatal(err)
			}
			cmd := conn.Do(ctx, "exec")
			if key == "none" {
				if diff := gocmp([]any{nil}, cmd.Val()); diff != "" || cmd.Err() != nil {
					t.Errorf("%s: %v, %s", key, cmd.Err(), diff)
				}
			} else if !errors.Is(cmd.Err(), ErrCommand) || cmd.Val() != nil {
				t.Errorf("%s: %v, %v", key, cmd.Val(), cmd.Err())
			}
		}
	}
}
