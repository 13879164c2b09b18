package goredis

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/adapters"
	"github.com/balekv/bale/internal/redisproc"
)

// TestMissInPipeline: a miss between other commands is redis.Nil to a program with the hook, as
// without it. To a user of the Store it is bale.ErrNotFound, or nil among many. The other commands
// keep their results.
func TestMissInPipeline(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	absent := string(frame.Freshness{Absent: true}.Append(frame.Header{Version: frame.V2}.Append(nil)))
	for name, open := range topologies {
		t.Run(name, func(t *testing.T) {
			client, raw := open(t)
			defer client.Close()
			defer raw.Close()
			store := NewStore(raw)
			rec := &recorder{}
			install(t, newHook(t, HookOptions{Recorder: rec}), client)
			a, b := big("a"), big("b")
			for key, v := range map[string]string{"{k}a": a, "{k}b": b} {
				if err := client.Set(ctx, key, v, 0).Err(); err != nil {
					t.Fatal(err)
				}
			}
			if err := raw.Set(ctx, "{k}absent", absent, 0).Err(); err != nil {
				t.Fatal(err)
			}
			keys := []string{"{k}a", "{k}none", "{k}absent", "{k}b"}
			for what, run := range map[string]func(context.Context, func(redis.Pipeliner) error) ([]redis.Cmder, error){"pipeline": client.Pipelined, "transaction": client.TxPipelined} {
				rec.told()
				cmds, err := run(ctx, func(p redis.Pipeliner) error {
					for _, key := range keys {
						p.Get(ctx, key)
					}
					return nil
				})
				if err != redis.Nil || len(cmds) != len(keys) {
					t.Fatalf("%s: %d commands, %v", what, len(cmds), err)
				}
				for i, want := range []struct {
					v   string
					err error
				}{{a, nil}, {"", redis.Nil}, {"", redis.Nil}, {b, nil}} {
					if got, err := cmds[i].(*redis.StringCmd).Result(); got != want.v || err != want.err {
						t.Errorf("%s: %s: %d bytes, %v", what, keys[i], len(got), err)
					}
				}
				hits, misses := 0, 0
				for _, e := range rec.told() {
					hits, misses = hits+int(e.Hits), misses+int(e.Misses)
				}
				if hits != 2 || misses != 2 {
					t.Errorf("%s: %d hits and %d misses are told", what, hits, misses)
				}
			}
			got, err := store.GetMany(ctx, keys[:2])
			if err != nil || got[0] == nil || got[1] != nil {
				t.Errorf("GetMany: %v", err)
			}
			if _, err := store.Get(ctx, "{k}none"); !errors.Is(err, bale.ErrNotFound) || errors.Is(err, redis.Nil) {
				t.Errorf("Get: %v", err)
			}
			if c, is := raw.(*redis.Client); is {
				ap, err := c.AsyncAutoPipeline()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := NewStore(ap).Get(ctx, "{k}none"); !errors.Is(err, bale.ErrNotFound) || errors.Is(err, redis.Nil) {
					t.Errorf("Get through AsyncAutoPipeline: %v", err)
				}
			}
		})
	}
}

// TestPlaceholderIsAValue: a stored value may be the text that commands without a reply hold.
func TestPlaceholderIsAValue(t *testing.T) {
	t.Parallel()
	for name, open := range topologies {
		t.Run(name, func(t *testing.T) {
			client, raw := open(t)
			client.Close()
			defer raw.Close()
			ctx, s := t.Context(), NewStore(raw)
			if err := s.Set(ctx, "k", []byte(noText), bale.Expiry{}); err != nil {
				t.Fatal(err)
			}
			values, err := s.GetMany(ctx, []string{"a", "k", "b"})
			if err != nil || string(values[1]) != noText {
				t.Errorf("%q, %v", values, err)
			}
			if v, err := s.Get(adapters.FromMasters(ctx), "k"); err != nil || string(v) != noText {
				t.Errorf("%q, %v", v, err)
			}
			if values, err := s.Read(ctx, "k"); err != nil || string(values[0]) != noText {
				t.Errorf("%q, %v", values, err)
			}
		})
	}
}

// TestPipelineSaysWhy: commands of a pipeline that got no answer have the reason of their own
// connection.
func TestPipelineSaysWhy(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	items := []bale.Item{{Key: "{a}nope", Value: []byte("1")}, {Key: "{b}1", Value: []byte("1")}, {Key: "{b}2", Value: []byte("1")}, {Key: "{b}3", Value: []byte("1")}}
	for name, open := range topologies {
		t.Run("login/"+name, func(t *testing.T) {
			client, raw := open(t)
			client.Close()
			defer raw.Close()
			var refused redis.UniversalClient
			switch c := raw.(type) {
			case *redis.Client:
				refused = redis.NewClient(&redis.Options{Addr: c.Options().Addr, Username: "nobody", Password: "wrong"})
			case *redis.ClusterClient:
				refused = redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Options().Addrs, Username: "nobody", Password: "wrong"})
			default:
				t.Skip("no client that can be made again")
			}
			defer refused.Close()
			s := NewStore(refused)
			_, get := s.GetMany(ctx, []string{"a", "b"})
			_, ttl := s.PTTL(ctx, []string{"a", "b"})
			for _, err := range []error{s.SetMany(ctx, items), get, ttl} {
				if err == nil || !strings.Contains(err.Error(), "WRONGPASS") || strings.Contains(err.Error(), "no answer") {
					t.Errorf("%v", err)
				}
			}
		})
	}
	servers := redisproc.ClusterForTest(t, 3)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: servers.Addrs(), MaxRedirects: -1, ReadTimeout: 200 * time.Millisecond})
	defer client.Close()
	s := NewStore(client)
	if err := s.SetMany(ctx, items); err != nil {
		t.Fatal(err)
	}
	node, err := client.MasterForKey(ctx, "{b}1")
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range servers.Servers {
		if _, err := server.Do(ctx, "ACL", "SETUSER", "default", "resetkeys", "~{b}*"); err != nil {
			t.Fatal(err)
		}
		if server.Addr() == node.Options().Addr {
			if err := syscall.Kill(server.PID(), syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			defer syscall.Kill(server.PID(), syscall.SIGCONT)
		}
	}
	err = s.SetMany(ctx, items)
	failed, is := errors.AsType[bale.KeyErrors](err)
	if !is || len(failed) != len(items) || !strings.Contains(failed[0].Error(), "NOPERM") {
		t.Fatalf("%v", err)
	}
	for _, f := range failed[1:] {
		if timeout, is := errors.AsType[net.Error](f); !is || !timeout.Timeout() {
			t.Errorf("%v", f)
		}
	}
}
