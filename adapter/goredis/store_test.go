package goredis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/batch"
	"github.com/balekv/bale/internal/redisproc"
	"github.com/balekv/bale/internal/testvalues"
	"github.com/balekv/bale/testkit/storetest"
)

// deployments are the ways to run Redis, each with a client for it.
var deployments = map[string]func(t *testing.T) redis.UniversalClient{
	"standalone": func(t *testing.T) redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: redisproc.ForTest(t).Addr()})
	},
	"cluster": func(t *testing.T) redis.UniversalClient {
		return redis.NewUniversalClient(&redis.UniversalOptions{Addrs: redisproc.ClusterForTest(t, 3).Addrs()})
	},
	"sentinel": func(t *testing.T) redis.UniversalClient {
		s := redisproc.SentinelForTest(t, "main", redisproc.ForTest(t))
		return redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{s.Addr()}, MasterName: "main"})
	},
	"ring": func(t *testing.T) redis.UniversalClient {
		return redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": redisproc.ForTest(t).Addr(), "b": redisproc.ForTest(t).Addr()}})
	},
}

// connect makes a client for a deployment.
func connect(t *testing.T, d storetest.Deployment) redis.UniversalClient {
	o := &redis.UniversalOptions{
		Addrs: d.Addrs, MasterName: d.Master, Username: d.Username, Password: d.Password, IsClusterMode: d.Kind == storetest.Cluster,
		ContextTimeoutEnabled: true, DialTimeout: time.Second,
	}
	if d.CA != nil {
		o.TLSConfig = &tls.Config{RootCAs: x509.NewCertPool()}
		o.TLSConfig.RootCAs.AppendCertsFromPEM(d.CA)
	}
	client := redis.NewUniversalClient(o)
	t.Cleanup(func() { client.Close() })
	return client
}

func TestStore(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T, d storetest.Deployment) bale.Store { return NewStore(connect(t, d)) }
	storetest.Run(t, open)
	storetest.Overtaken(t, open)
}

// TestStoreInBatches: a buffer between does everything that a Store must, too.
func TestStoreInBatches(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, d storetest.Deployment) bale.Store {
		s, err := batch.New(NewStore(connect(t, d)), batch.Options{Wait: true, Delay: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	})
}

func errorOf[T any](_ T, err error) error { return err }

// TestPartialFailure has a server that refuses some keys (by its access list): the others succeed,
// and the error names those.
func TestPartialFailure(t *testing.T) {
	ctx := t.Context()
	server := redisproc.ForTest(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer admin.Close()
	if err := admin.Do(ctx, "acl", "setuser", "app", "on", ">secret", "~ok:*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	// A ring of one server goes the way of all deployments with several.
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": server.Addr()}, Username: "app", Password: "secret"})
	defer ring.Close()
	cache, err := bale.New(NewStore(ring), bale.Options[string]{})
	if err != nil {
		t.Fatal(err)
	}
	err = cache.SetMany(ctx, map[string]string{"ok:1": "one", "no:1": "two"})
	var failed bale.KeyErrors
	if !errors.As(err, &failed) || len(failed) != 1 || failed[0].Key != "no:1" || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("SetMany: %v", err)
	}
	got, err := cache.GetMany(ctx, "ok:1", "no:1")
	if !errors.As(err, &failed) || len(failed) != 1 || failed[0].Key != "no:1" || got["ok:1"] != "one" {
		t.Errorf("GetMany: %v, %v", got, err)
	}
}

// TestCacheThroughRedis takes values of a Cache through a real server, also those that other
// programs wrote.
func TestCacheThroughRedis(t *testing.T) {
	ctx := t.Context()
	server := redisproc.ForTest(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	cache, err := bale.New(NewStore(rdb), bale.Options[profile]{TTL: time.Hour, Jitter: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	if err := cache.Set(ctx, "k", ada); err != nil {
		t.Fatal(err)
	}
	if got, err := cache.Get(ctx, "k"); err != nil || got.Bio != ada.Bio {
		t.Errorf("%v, %v", got, err)
	}
	stored := rdb.Get(ctx, "k").Val()
	if !isPacked(stored) {
		t.Error("not packed")
	}
	if ttl := rdb.PTTL(ctx, "k").Val(); ttl > time.Hour || ttl < 29*time.Minute {
		t.Errorf("TTL %v", ttl)
	}
	rdb.Set(ctx, "foreign", `{"name":"Grace Hopper"}`, 0)
	if got, err := cache.Get(ctx, "foreign"); err != nil || got.Name != "Grace Hopper" {
		t.Errorf("plain value: %v, %v", got, err)
	}
	damaged := damage(stored)
	rdb.Set(ctx, "k", damaged, 0)
	if _, err := cache.Get(ctx, "k"); !errors.Is(err, bale.ErrCorrupt) || !strings.Contains(err.Error(), `"k"`) || !strings.Contains(err.Error(), "zstd") {
		t.Errorf("damaged value: %v", err)
	}
	if rdb.Get(ctx, "k").Val() != damaged {
		t.Error("the damaged value was touched")
	}
	if err := cache.Touch(ctx, "none", bale.TTL(time.Minute)); !errors.Is(err, bale.ErrNotFound) {
		t.Errorf("touch: %v", err)
	}
	if n, err := cache.Delete(ctx, "k", "none"); n != 1 || err != nil {
		t.Errorf("delete: %d, %v", n, err)
	}
}

// TestStoreAllocations pins that the Store costs no more than what it stands for.
func TestStoreAllocations(t *testing.T) {
	if testvalues.Race {
		t.Skip("the race detector empties pools")
	}
	ctx := t.Context()
	rdb := redis.NewClient(&redis.Options{Addr: redisproc.ForTest(t).Addr()})
	defer rdb.Close()
	s := NewStore(rdb)
	value := []byte(big("allocations"))
	key := strings.ToLower("K") // no constant, which would go into an interface for nothing
	measure := func(f func()) float64 { return testing.AllocsPerRun(200, f) }
	for name, pair := range map[string][2]float64{
		"set": {measure(func() { s.Set(ctx, key, value, bale.TTL(time.Hour)) }), measure(func() { rdb.Set(ctx, key, value, time.Hour) })},
		"get": {measure(func() { s.Get(ctx, key) }), measure(func() { rdb.Get(ctx, key).Bytes() })},
	} {
		if pair[0] > pair[1] {
			t.Errorf("%s: %v allocations, %v by hand", name, pair[0], pair[1])
		}
	}
}

// counting notes round trips that read values, by the name of the first command. A new connection
// sends others.
type counting struct {
	through
	sent *[]string
}

func (c counting) note(name string) {
	if name == "mget" || name == "exists" || name == "get" {
		*c.sent = append(*c.sent, name)
	}
}

func (c counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.note(cmd.Name())
		return next(ctx, cmd)
	}
}

func (c counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.note(cmds[0].Name())
		return next(ctx, cmds)
	}
}

// TestStoreRoundTrips pins the round trips of GetMany on one server.
func TestStoreRoundTrips(t *testing.T) {
	ctx := t.Context()
	rdb := redis.NewClient(&redis.Options{Addr: redisproc.ForTest(t).Addr()})
	defer rdb.Close()
	if err := errors.Join(rdb.MSet(ctx, "a", "1", "b", "2").Err(), rdb.RPush(ctx, "list", "x").Err()); err != nil {
		t.Fatal(err)
	}
	var sent []string
	rdb.AddHook(counting{sent: &sent})
	s := NewStore(rdb)
	for _, test := range []struct {
		keys, want []string
		fails      bool
	}{
		{[]string{"a", "b"}, []string{"mget"}, false},
		{[]string{"a", "none", "none"}, []string{"mget", "exists"}, false},
		{[]string{"a", "none", "list"}, []string{"mget", "exists", "get"}, true},
	} {
		sent = nil
		if _, err := s.GetMany(ctx, test.keys); (err != nil) != test.fails {
			t.Errorf("%v: %v", test.keys, err)
		}
		if diff := cmp.Diff(test.want, sent); diff != "" {
			t.Errorf("%v (-want +sent):\n%s", test.keys, diff)
		}
	}
}
