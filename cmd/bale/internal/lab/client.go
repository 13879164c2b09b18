package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	redigolib "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
	rueidislib "github.com/redis/rueidis"

	"github.com/balekv/bale"
	"github.com/balekv/bale/goredis"
	"github.com/balekv/bale/redigo"
	"github.com/balekv/bale/rueidis"
)

// Clients are the names of the Redis clients that can be measured. goredis and redigo have a pool of as many connections as there are
// callers, at most; rueidis pipelines all callers over a few.
var Clients = []string{"goredis", "rueidis", "redigo"}

// client is a client under measurement.
type client struct {
	name  string
	store bale.Store
	close func() error
}

// dial makes a client for at most so many callers.
func dial(name string, o redis.Options, callers int) (*client, error) {
	switch name {
	case "goredis":
		o.PoolSize = callers
		o.ContextTimeoutEnabled = true
		o.MaxRetries = -1 // a retry would hide a failure in a latency
		o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = opTimeout, opTimeout, opTimeout
		c := redis.NewClient(&o)
		return &client{name, goredis.NewStore(c), c.Close}, nil
	case "rueidis":
		c, err := rueidislib.NewClient(rueidislib.ClientOption{
			InitAddress: []string{o.Addr}, Username: o.Username, Password: o.Password, SelectDB: o.DB, TLSConfig: o.TLSConfig,
			ForceSingleClient: true, DisableCache: true, DisableRetry: true, ConnWriteTimeout: opTimeout,
		})
		if err != nil {
			return nil, fmt.Errorf("rueidis: %w", err)
		}
		return &client{name, rueidis.NewStore(c, rueidis.StoreOptions{}), func() error { c.Close(); return nil }}, nil
	case "redigo":
		options := []redigolib.DialOption{
			redigolib.DialReadTimeout(opTimeout), redigolib.DialWriteTimeout(opTimeout), redigolib.DialConnectTimeout(opTimeout), redigolib.DialDatabase(o.DB),
			redigolib.DialUsername(o.Username), redigolib.DialPassword(o.Password),
		}
		if o.TLSConfig != nil {
			options = append(options, redigolib.DialUseTLS(true), redigolib.DialTLSConfig(o.TLSConfig))
		}
		pool := &redigolib.Pool{MaxIdle: callers, MaxActive: callers, Wait: true, IdleTimeout: time.Minute, DialContext: func(ctx context.Context) (redigolib.Conn, error) {
			return redigolib.DialContext(ctx, "tcp", o.Addr, options...)
		}}
		return &client{name, redigo.NewStore(pool), pool.Close}, nil
	}
	return nil, fmt.Errorf("no client %q; there are %q", name, Clients)
}

// dialAll makes the clients of a run.
func (r *run) dialAll(o redis.Options, callers int) error {
	for _, name := range r.Clients {
		c, err := dial(name, o, callers)
		if err != nil {
			return err
		}
		if r.wrap != nil {
			c.store = r.wrap(c.store)
		}
		r.clients = append(r.clients, c)
	}
	return nil
}

func (r *run) closeAll() error {
	var err error
	for _, c := range r.clients {
		err = errors.Join(err, c.close())
	}
	return err
}
