package redigo

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"go.uber.org/goleak"

	"github.com/balekv/bale"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/testkit/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a client waits for an answer: a busy machine may stand still for many
// seconds.
const patience = time.Minute

// connect makes a pool for a deployment.
func connect(t *testing.T, d storetest.Deployment) *redis.Pool {
	t.Helper()
	options := []redis.DialOption{redis.DialConnectTimeout(patience), redis.DialReadTimeout(patience), redis.DialWriteTimeout(patience)}
	if d.Username != "" {
		options = append(options, redis.DialUsername(d.Username), redis.DialPassword(d.Password))
	}
	if d.CA != nil {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(d.CA)
		options = append(options, redis.DialUseTLS(true), redis.DialTLSConfig(&tls.Config{RootCAs: pool}))
	}
	pool := &redis.Pool{MaxIdle: 20, DialContext: func(ctx context.Context) (redis.Conn, error) {
		return redis.DialContext(ctx, "tcp", d.Addrs[0], options...)
	}}
	t.Cleanup(func() { pool.Close() })
	return pool
}

func TestStore(t *testing.T) {
	open := func(t *testing.T, d storetest.Deployment) bale.Store { return NewStore(connect(t, d)) }
	storetest.Run(t, open, storetest.Cluster, storetest.Sentinel)
	storetest.Overtaken(t, open)
}

func TestDictStore(t *testing.T) {
	storetest.RunDict(t, func(t *testing.T, d storetest.Deployment) dict.Store { return NewStore(connect(t, d)) }, storetest.Cluster, storetest.Sentinel)
}
