package proxy

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	redigolib "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
	rueidislib "github.com/redis/rueidis"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/adapter/redigo"
	"github.com/balekv/bale/adapter/rueidis"
	"github.com/balekv/bale/testkit/storetest"
)

// infront starts a proxy in front of a deployment. It logs in as one who may, and its clients log
// in themselves. With a pool, one that does not is the proxy's user: then there is no address.
func infront(t *testing.T, d storetest.Deployment, pool int) string {
	o := options("redis://"+d.Addrs[0], "*")
	o.Cluster, o.Pool = d.Kind == storetest.Cluster, pool
	if d.CA != nil {
		o.Redis = "rediss://" + d.Addrs[0]
		o.Login.CA = filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(o.Login.CA, d.CA, 0o600); err != nil {
			t.Fatal(err)
		}
	} else {
		c := redis.NewClient(&redis.Options{Addr: d.Addrs[0]})
		defer c.Close()
		if err := c.Ping(t.Context()).Err(); err != nil && strings.Contains(err.Error(), "NOAUTH") {
			if pool > 0 && d.Username == "" {
				return ""
			}
			o.Login.User, o.Login.Password = "app", "secret"
		}
	}
	return start(t, o).addr
}

// TestStores: all that a Store must do works through the proxy, also over shared connections. These
// clients send nothing that takes them off before they have to.
func TestStores(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		store func(t *testing.T, d storetest.Deployment, addr string, pooled bool) bale.Store
		pool  int
		not   []storetest.Kind
	}{
		{"goredis 2", goredisStore(2), 0, nil},
		{"goredis 3", goredisStore(3), 0, nil},
		{"goredis, pool", goredisStore(2), 2, []storetest.Kind{storetest.Cluster}},
		{"redigo", redigoStore, 0, []storetest.Kind{storetest.Cluster}}, // which has none
		{"redigo, pool", redigoStore, 1, []storetest.Kind{storetest.Cluster}},
		{"rueidis", rueidisStore, 0, nil},
		{"rueidis, pool", rueidisStore, 2, []storetest.Kind{storetest.Cluster}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T, d storetest.Deployment) bale.Store {
				addr := infront(t, d, test.pool)
				if addr == "" {
					return nil
				}
				return test.store(t, d, addr, test.pool > 0)
			}, append(test.not, storetest.Sentinel)...)
		})
	}
}

func goredisStore(protocol int) func(*testing.T, storetest.Deployment, string, bool) bale.Store {
	return func(t *testing.T, d storetest.Deployment, addr string, pooled bool) bale.Store {
		client := redis.NewUniversalClient(&redis.UniversalOptions{
			Addrs: []string{addr}, IsClusterMode: d.Kind == storetest.Cluster, Username: d.Username, Password: d.Password, Protocol: protocol, DisableIdentity: pooled,
			ContextTimeoutEnabled: true, DialTimeout: time.Second,
		})
		t.Cleanup(func() { client.Close() })
		return goredis.NewStore(client)
	}
}

func redigoStore(t *testing.T, d storetest.Deployment, addr string, _ bool) bale.Store {
	options := []redigolib.DialOption{redigolib.DialConnectTimeout(time.Minute), redigolib.DialReadTimeout(time.Minute), redigolib.DialWriteTimeout(time.Minute)}
	if d.Username != "" {
		options = append(options, redigolib.DialUsername(d.Username), redigolib.DialPassword(d.Password))
	}
	pool := &redigolib.Pool{MaxIdle: 20, DialContext: func(ctx context.Context) (redigolib.Conn, error) {
		return redigolib.DialContext(ctx, "tcp", addr, options...)
	}}
	t.Cleanup(func() { pool.Close() })
	return redigo.NewStore(pool)
}

func rueidisStore(t *testing.T, d storetest.Deployment, addr string, pooled bool) bale.Store {
	o := rueidislib.ClientOption{
		InitAddress: []string{addr}, Username: d.Username, Password: d.Password, ForceSingleClient: d.Kind != storetest.Cluster, ConnWriteTimeout: 10 * time.Second,
	}
	if pooled {
		o.AlwaysRESP2, o.DisableCache, o.ClientSetInfo = true, true, rueidislib.DisableClientSetInfo
	}
	client, err := rueidislib.NewClient(o)
	if err != nil && (strings.Contains(err.Error(), "WRONGPASS") || strings.Contains(err.Error(), "NOAUTH")) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return rueidis.NewStore(client, rueidis.StoreOptions{})
}
