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
// in themselves.
func infront(t *testing.T, d storetest.Deployment) string {
	o := options("redis://"+d.Addrs[0], "*")
	o.Cluster = d.Kind == storetest.Cluster
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
			o.Login.User, o.Login.Password = "app", "secret"
		}
	}
	return start(t, o).addr
}

// TestStores: all that a Store must do works through the proxy.
func TestStores(t *testing.T) {
	for name, open := range map[string]storetest.Open[bale.Store]{
		"goredis 2": func(t *testing.T, d storetest.Deployment) bale.Store { return openGoredis(t, d, 2) },
		"goredis 3": func(t *testing.T, d storetest.Deployment) bale.Store { return openGoredis(t, d, 3) },
		"redigo": func(t *testing.T, d storetest.Deployment) bale.Store {
			addr := infront(t, d)
			options := []redigolib.DialOption{redigolib.DialConnectTimeout(time.Minute), redigolib.DialReadTimeout(time.Minute), redigolib.DialWriteTimeout(time.Minute)}
			if d.Username != "" {
				options = append(options, redigolib.DialUsername(d.Username), redigolib.DialPassword(d.Password))
			}
			pool := &redigolib.Pool{MaxIdle: 20, DialContext: func(ctx context.Context) (redigolib.Conn, error) {
				return redigolib.DialContext(ctx, "tcp", addr, options...)
			}}
			t.Cleanup(func() { pool.Close() })
			return redigo.NewStore(pool)
		},
		"rueidis": func(t *testing.T, d storetest.Deployment) bale.Store {
			client, err := rueidislib.NewClient(rueidislib.ClientOption{
				InitAddress: []string{infront(t, d)}, Username: d.Username, Password: d.Password, ForceSingleClient: d.Kind != storetest.Cluster, ConnWriteTimeout: 10 * time.Second,
			})
			if err != nil && (strings.Contains(err.Error(), "WRONGPASS") || strings.Contains(err.Error(), "NOAUTH")) {
				return nil
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(client.Close)
			return rueidis.NewStore(client, rueidis.StoreOptions{})
		},
	} {
		without := []storetest.Kind{storetest.Sentinel}
		if name == "redigo" { // which has no cluster
			without = append(without, storetest.Cluster)
		}
		t.Run(name, func(t *testing.T) { storetest.Run(t, open, without...) })
	}
}

func openGoredis(t *testing.T, d storetest.Deployment, protocol int) bale.Store {
	client := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: []string{infront(t, d)}, IsClusterMode: d.Kind == storetest.Cluster, Username: d.Username, Password: d.Password, Protocol: protocol, ContextTimeoutEnabled: true, DialTimeout: time.Second,
	})
	t.Cleanup(func() { client.Close() })
	return goredis.NewStore(client)
}
