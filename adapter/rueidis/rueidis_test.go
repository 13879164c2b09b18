package rueidis

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/balekv/bale"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/internal/adapters"
	"github.com/balekv/bale/internal/redisproc"
	"github.com/balekv/bale/testkit/storetest"
)

func TestMain(m *testing.M) {
	// When the nodes of a cluster change, the client keeps the old connections for five seconds,
	// closed or not; it looks for them again a second later.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

// connect makes a client for a deployment.
func connect(t *testing.T, d storetest.Deployment) rueidis.Client {
	t.Helper()
	o := rueidis.ClientOption{
		InitAddress: d.Addrs, Username: d.Username, Password: d.Password, ForceSingleClient: d.Kind == storetest.Standalone,
		ConnWriteTimeout: 10 * time.Second,
	}
	o.Sentinel.MasterSet = d.Master
	o.Dialer.Timeout = time.Second
	if d.CA != nil {
		o.TLSConfig = &tls.Config{RootCAs: x509.NewCertPool()}
		o.TLSConfig.RootCAs.AppendCertsFromPEM(d.CA)
	}
	client, err := rueidis.NewClient(o)
	if err != nil && strings.Contains(err.Error(), "WRONGPASS") || err != nil && strings.Contains(err.Error(), "NOAUTH") {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func TestStore(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T, d storetest.Deployment) bale.Store {
		if client := connect(t, d); client != nil {
			return NewStore(client, StoreOptions{})
		}
		return nil
	}
	storetest.Run(t, open)
	storetest.Overtaken(t, open)
}

// TestStoreWithCache: the process keeps a value as it is stored, until the server reports a change.
// The caller owns the value that it receives.
func TestStoreWithCache(t *testing.T) {
	ctx := t.Context()
	server := redisproc.ForTest(t)
	d := storetest.Deployment{Kind: storetest.Standalone, Addrs: []string{server.Addr()}}
	client := connect(t, d)
	cached, direct := NewStore(client, StoreOptions{CacheTTL: time.Minute}), NewStore(connect(t, d), StoreOptions{})
	cache, err := bale.New(cached, bale.Options[string]{})
	if err != nil {
		t.Fatal(err)
	}
	value := strings.Repeat("a value that packs well, ", 20)
	if err := cache.Set(ctx, "k", value); err != nil {
		t.Fatal(err)
	}
	hits := func() bool {
		return client.DoCache(ctx, client.B().Get().Key("k").Cache(), time.Minute).IsCacheHit()
	}
	for range 3 {
		if got, err := cache.Get(ctx, "k"); err != nil || got != value {
			t.Fatalf("%q, %v", got, err)
		}
		stored, err := cached.Get(ctx, "k")
		if err != nil || len(stored) > len(value)/2 {
			t.Fatalf("%d bytes are kept for %d, %v", len(stored), len(value), err)
		}
		clear(stored)
		many, err := cached.GetMany(ctx, []string{"k", "none", "k"})
		if err != nil || many[0] == nil || many[1] != nil || !bytes.Equal(many[0], many[2]) {
			t.Fatalf("%d values, %v", len(many), err)
		}
		clear(many[0])
	}
	if !hits() {
		t.Error("nothing is kept")
	}
	if _, err := cached.Get(ctx, "none"); !errors.Is(err, bale.ErrNotFound) {
		t.Errorf("a key that does not exist: %v", err)
	}
	if err := direct.Set(ctx, "k", []byte(`"changed"`), bale.Expiry{}); err != nil {
		t.Fatal(err)
	}
	if stored, err := cached.Get(adapters.FromMasters(ctx), "k"); string(stored) != `"changed"` {
		t.Errorf("the master's value is %q, %v", stored, err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		got, err := cache.Get(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		if got == "changed" {
			break
		}
		if got != value || time.Now().After(deadline) {
			t.Fatalf("%q", got)
		}
	}
}

func TestDictStore(t *testing.T) {
	t.Parallel()
	storetest.RunDict(t, func(t *testing.T, d storetest.Deployment) dict.Store { return NewStore(connect(t, d), StoreOptions{}) })
}

func TestDictStoreAsksMasters(t *testing.T) {
	t.Parallel()
	storetest.RunDictMasters(t, func(t *testing.T, d storetest.Deployment) (dict.Store, func(string)) {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: d.Addrs, SendToReplicas: func(c rueidis.Completed) bool { return c.IsReadOnly() }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		return NewStore(client, StoreOptions{}), func(key string) { _ = client.Do(t.Context(), client.B().Get().Key(key).Build()).Error() }
	})
}

// BenchmarkSet writes with 64 callers. For a context that can end, a write takes a goroutine.
func BenchmarkSet(b *testing.B) {
	server := redisproc.ForTest(b)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	s, value := NewStore(client, StoreOptions{}), make([]byte, 400)
	for name, ctx := range map[string]context.Context{"without an end": context.Background(), "that can end": b.Context()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(64 / runtime.GOMAXPROCS(0))
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := s.Set(ctx, "k", value, bale.Expiry{}); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
