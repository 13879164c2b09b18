package lab

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	redigolib "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
	rueidislib "github.com/redis/rueidis"

	"github.com/balekv/bale"
	"github.com/balekv/bale/goredis"
	"github.com/balekv/bale/redigo"
	"github.com/balekv/bale/rueidis"
)

// Clients are the names of the Redis clients that can be measured.
var Clients = []string{"goredis", "rueidis", "redigo"}

// ClientSyntax is ClientSetting as help texts show it.
const ClientSyntax = "goredis[:N][+auto], rueidis[:N][-auto] or redigo[:N]"

// ErrClient says that there is no such client, or that it has no such setting.
var ErrClient = errors.New("no such client")

// ClientSetting is a Redis client as it is measured: NAME[:CONNECTIONS][+auto|-auto].
type ClientSetting struct {
	Name string // of Clients

	// Connections are how many there are at most. Zero is as many as there are callers, or with auto-pipelining the client's own
	// choice: one for go-redis, and for rueidis 1, 2 or 4, by the number of processors.
	Connections int

	// Auto has the client gather the commands of all callers into pipelines. go-redis does so with "+auto", rueidis unless told not
	// to with "-auto", redigo never.
	Auto bool
}

const (
	autoSuffix     = "+auto"
	noAutoSuffix   = "-auto"
	maxConnections = 10_000
	maxMultiplex   = 1 << rueidislib.MaxPipelineMultiplex
)

// ParseClient reads a setting.
func ParseClient(s string) (ClientSetting, error) {
	rest, auto := strings.CutSuffix(s, autoSuffix)
	rest, never := strings.CutSuffix(rest, noAutoSuffix)
	name, number, counted := strings.Cut(rest, ":")
	c := ClientSetting{Name: name, Auto: auto || name == "rueidis" && !never}
	if !slices.Contains(Clients, name) {
		return c, fmt.Errorf("%w: %q; there are %s", ErrClient, s, ClientSyntax)
	}
	if counted {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || n > maxConnections {
			return c, fmt.Errorf("%w: %q; the connections must be 1 to %d", ErrClient, s, maxConnections)
		}
		if name == "rueidis" && c.Auto && (n > maxMultiplex || bits.OnesCount(uint(n)) != 1) {
			return c, fmt.Errorf("%w: %q; rueidis pipelines over 1, 2, 4 or another power of two up to %d connections", ErrClient, s, maxMultiplex)
		}
		c.Connections = n
	}
	if c.String() != s { // a setting that the client has not, or has anyway
		return c, fmt.Errorf("%w: %q; there are %s: go-redis pipelines the commands of all callers with +auto, rueidis unless it has -auto, redigo never", ErrClient, s, ClientSyntax)
	}
	return c, nil
}

// String is the inverse of ParseClient.
func (c ClientSetting) String() string {
	s := c.Name
	if c.Connections > 0 {
		s += ":" + strconv.Itoa(c.Connections)
	}
	switch {
	case c.Name == "goredis" && c.Auto:
		s += autoSuffix
	case c.Name == "rueidis" && !c.Auto:
		s += noAutoSuffix
	}
	return s
}

// client is a client under measurement.
type client struct {
	name    string
	store   bale.Store
	batcher batcher                                    // nil if it has none
	waits   func() (waits int64, waited time.Duration) // for a connection, so far; nil if it does not say
	close   func() error
}

// dial makes a client for at most so many callers.
func dial(s ClientSetting, o redis.Options, callers int) (*client, error) {
	connections := s.Connections
	if connections == 0 {
		connections = callers
	}
	c := &client{name: s.String()}
	switch s.Name {
	case "goredis":
		o.PoolSize = connections
		o.ContextTimeoutEnabled = true
		o.MaxRetries = -1 // a retry would hide a failure in a latency
		o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = opTimeout, opTimeout, opTimeout
		if s.Auto {
			return c, c.autoPipeline(s, o)
		}
		rdb := redis.NewClient(&o)
		c.store, c.batcher, c.close = goredis.NewStore(rdb), goredisBatcher{rdb}, rdb.Close
		c.waits = func() (int64, time.Duration) {
			s := rdb.PoolStats()
			return int64(s.WaitCount), time.Duration(s.WaitDurationNs)
		}
		return c, nil
	case "rueidis":
		options := rueidislib.ClientOption{
			InitAddress: []string{o.Addr}, Username: o.Username, Password: o.Password, SelectDB: o.DB, TLSConfig: o.TLSConfig,
			ForceSingleClient: true, DisableCache: true, DisableRetry: true, ConnWriteTimeout: opTimeout,
		}
		switch {
		case !s.Auto:
			options.DisableAutoPipelining, options.BlockingPoolSize = true, connections
		case s.Connections == 1:
			options.PipelineMultiplex = -1 // zero is the default, which is more than one
		case s.Connections > 1:
			options.PipelineMultiplex = bits.TrailingZeros(uint(s.Connections))
		}
		rdb, err := rueidislib.NewClient(options)
		if err != nil {
			return nil, fmt.Errorf("rueidis: %w", err)
		}
		c.store, c.batcher, c.close = rueidis.NewStore(rdb, rueidis.StoreOptions{}), rueidisBatcher{rdb}, func() error { rdb.Close(); return nil }
		return c, nil
	case "redigo":
		options := []redigolib.DialOption{
			redigolib.DialReadTimeout(opTimeout), redigolib.DialWriteTimeout(opTimeout), redigolib.DialConnectTimeout(opTimeout), redigolib.DialDatabase(o.DB),
			redigolib.DialUsername(o.Username), redigolib.DialPassword(o.Password),
		}
		if o.TLSConfig != nil {
			options = append(options, redigolib.DialUseTLS(true), redigolib.DialTLSConfig(o.TLSConfig))
		}
		pool := &redigolib.Pool{MaxIdle: connections, MaxActive: connections, Wait: true, IdleTimeout: time.Minute, DialContext: func(ctx context.Context) (redigolib.Conn, error) {
			return redigolib.DialContext(ctx, "tcp", o.Addr, options...)
		}}
		c.store, c.batcher, c.close = redigo.NewStore(pool), redigoBatcher{pool}, pool.Close
		c.waits = func() (int64, time.Duration) {
			s := pool.Stats()
			return s.WaitCount, s.WaitDuration
		}
		return c, nil
	}
	return nil, fmt.Errorf("%w: %q; there are %q", ErrClient, s.Name, Clients)
}

// autoPipeline makes the client go-redis' auto-pipelining one: its blocking face, whose calls end when the server has answered, as
// those of the other clients do.
func (c *client) autoPipeline(s ClientSetting, o redis.Options) error {
	options := redis.DefaultBlockingAutoPipelineOptions()
	if s.Connections > 1 {
		// Each connection has a pipeline under way. A caller waits for its reply before it goes on, so that the order of its own
		// commands stays.
		options.MaxConcurrentBatches, options.Unordered = s.Connections, true
	}
	o.PipelinePoolSize = max(1, s.Connections)
	rdb := redis.NewClient(&o)
	pipeliner, err := rdb.AutoPipelineWithOptions(options)
	if err != nil {
		return errors.Join(fmt.Errorf("go-redis: %w", err), rdb.Close())
	}
	c.store, c.batcher, c.close = goredis.NewStore(pipeliner), goredisBatcher{rdb}, func() error { return errors.Join(pipeliner.Close(), rdb.Close()) }
	return nil
}

// dial makes the clients of a run for at most so many callers, each with so many values in hand.
func (s *Server) dial(ctx context.Context, settings []ClientSetting, callers int, wrap func(bale.Store) bale.Store) error {
	for _, setting := range settings {
		c, err := dial(setting, *s.Options, callers)
		if err != nil {
			return err
		}
		if wrap != nil {
			c.store = wrap(c.store)
		}
		s.clients = append(s.clients, c)
	}
	return nil
}

func (s *Server) closeClients() error {
	var err error
	for _, c := range s.clients {
		err = errors.Join(err, c.close())
	}
	s.clients = nil
	return err
}
