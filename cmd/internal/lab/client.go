package lab

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	redigolib "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	rueidislib "github.com/redis/rueidis"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/adapter/redigo"
	"github.com/balekv/bale/adapter/rueidis"
	"github.com/balekv/bale/cmd/internal/radixstore"
	"github.com/balekv/bale/cmd/internal/twemproxy"
	"github.com/balekv/bale/extra/observe/prom"
)

// Clients are the names of the Redis clients that can be measured. radix is dormant, and shown as
// it is.
var Clients = []string{"goredis", "rueidis", "redigo", "radix"}

// ClientSyntax is ClientSetting as help texts show it.
const ClientSyntax = "goredis[:N][+auto][+idle:N], rueidis[:N][-auto], redigo[:N] or radix[:N], each with @twemproxy"

// ErrClient: there is no such client, or it has no such setting.
var ErrClient = errors.New("no such client")

// ClientSetting is a Redis client as it is measured:
// NAME[:CONNECTIONS][+auto|-auto][+idle:N][@twemproxy].
type ClientSetting struct {
	Name string // of Clients

	// Connections is the most connections to open. Zero is one for each caller. With
	// auto-pipelining zero is the client's own choice: one for go-redis, and for rueidis 1, 2 or 4,
	// by the number of processors.
	Connections int

	// Auto has the client gather the commands of all callers into pipelines. go-redis does so with
	// "+auto", rueidis unless told not to with "-auto", redigo and radix never.
	Auto bool

	// Idle is how many connections go-redis keeps open where fewer are needed; none if zero.
	Idle int

	// Proxy has twemproxy (Debian's nutcracker) between client and server.
	Proxy bool
}

const (
	autoSuffix     = "+auto"
	noAutoSuffix   = "-auto"
	idleSuffix     = "+idle:"
	proxySuffix    = "@twemproxy"
	maxConnections = 10_000
	maxMultiplex   = 1 << rueidislib.MaxPipelineMultiplex
)

// ParseClient reads a setting.
func ParseClient(s string) (ClientSetting, error) {
	rest, proxied := strings.CutSuffix(s, proxySuffix)
	rest, idle, kept := strings.Cut(rest, idleSuffix)
	rest, auto := strings.CutSuffix(rest, autoSuffix)
	rest, never := strings.CutSuffix(rest, noAutoSuffix)
	name, number, counted := strings.Cut(rest, ":")
	c := ClientSetting{Name: name, Auto: auto || name == "rueidis" && !never, Proxy: proxied}
	if !slices.Contains(Clients, name) {
		return c, fmt.Errorf("%w: %q; there are %s", ErrClient, s, ClientSyntax)
	}
	var err error
	if counted {
		if c.Connections, err = strconv.Atoi(number); err != nil || c.Connections < 1 || c.Connections > maxConnections {
			return c, fmt.Errorf("%w: %q; the connections must be 1 to %d", ErrClient, s, maxConnections)
		}
		if name == "rueidis" && c.Auto && (c.Connections > maxMultiplex || bits.OnesCount(uint(c.Connections)) != 1) {
			return c, fmt.Errorf("%w: %q; rueidis pipelines over 1, 2, 4 or another power of two up to %d connections", ErrClient, s, maxMultiplex)
		}
	}
	if kept {
		if c.Idle, err = strconv.Atoi(idle); err != nil || c.Idle < 1 || c.Idle > maxConnections || name != Clients[0] || c.Auto {
			return c, fmt.Errorf("%w: %q; goredis without auto-pipelining can keep 1 to %d connections open", ErrClient, s, maxConnections)
		}
	}
	if c.String() != s { // a setting that the client has not, or has anyway
		return c, fmt.Errorf("%w: %q; there are %s: go-redis pipelines the commands of all callers with +auto, rueidis unless it has -auto, redigo and radix never", ErrClient, s, ClientSyntax)
	}
	return c, nil
}

// UnmarshalText is ParseClient, for options.
func (c *ClientSetting) UnmarshalText(text []byte) (err error) {
	*c, err = ParseClient(string(text))
	return err
}

// String is the inverse of ParseClient.
func (c ClientSetting) String() string {
	s := c.Name
	if c.Connections > 0 {
		s += ":" + strconv.Itoa(c.Connections)
	}
	switch {
	case c.gathers():
		s += autoSuffix
	case c.Name == "rueidis" && !c.Auto:
		s += noAutoSuffix
	}
	if c.Idle > 0 {
		s += idleSuffix + strconv.Itoa(c.Idle)
	}
	if c.Proxy {
		s += proxySuffix
	}
	return s
}

// client is a client under measurement.
type client struct {
	name    string
	store   bale.Store
	batcher batcher               // nil if it has none of its own
	pool    func() prom.PoolStats // nil if it does not say
	close   func() error
	timeout time.Duration
	proxied bool // it has a proxy before the server
}

// gathers reports whether it makes pipelines of single commands, and has none for batches.
func (c ClientSetting) gathers() bool { return c.Name == "goredis" && c.Auto }

// dial makes a client for up to this number of callers, with a time-out for each command. If there
// is a proxy, the address in o is the proxy's.
func dial(ctx context.Context, s ClientSetting, o redis.Options, callers int, timeout time.Duration) (*client, error) {
	connections := s.Connections
	if connections == 0 {
		connections = callers
	}
	c := &client{name: s.String(), timeout: timeout, proxied: s.Proxy}
	var err error
	switch s.Name {
	case "goredis":
		err = c.goredis(s, o, connections)
	case "rueidis":
		err = c.rueidis(s, o, connections)
	case "redigo":
		c.redigo(o, connections)
	case "radix":
		err = c.radix(ctx, o, connections)
	default:
		err = fmt.Errorf("%w: %q; there are %q", ErrClient, s.Name, Clients)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (c *client) goredis(s ClientSetting, o redis.Options, connections int) error {
	o.PoolSize, o.MinIdleConns = connections, s.Idle
	o.ContextTimeoutEnabled = true
	o.MaxRetries = -1 // a retry would hide a failure in a latency
	o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = c.timeout, c.timeout, c.timeout
	if s.Proxy {
		o.Protocol, o.Dialer, o.Password = 2, twemproxy.Dial(o.Password, o.Dialer), ""
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	}
	if s.gathers() {
		return c.autoPipeline(s, o)
	}
	// Pipelines have a pool of their own, with larger buffers, and use the other pool when theirs
	// is full. A requested number of connections bounds all of them, so there is one pool then.
	o.PipelinePoolSize = connections
	if s.Connections > 0 {
		o.PipelinePoolSize = -1
	}
	rdb := redis.NewClient(&o)
	c.store, c.batcher, c.close = goredis.NewStore(rdb), goredisBatcher{rdb}, rdb.Close
	c.pool = func() prom.PoolStats {
		s := rdb.PoolStats()
		return prom.PoolStats{
			Waits: uint64(s.WaitCount), Waited: time.Duration(s.WaitDurationNs), Timeouts: uint64(s.Timeouts), Open: int(s.TotalConns), Idle: int(s.IdleConns),
		}
	}
	return nil
}

// autoPipeline makes the client go-redis' auto-pipelining one: its blocking face, whose calls end
// when the server has answered, as those of the other clients do.
func (c *client) autoPipeline(s ClientSetting, o redis.Options) error {
	options := redis.DefaultBlockingAutoPipelineOptions()
	if s.Connections > 1 {
		// Each connection has a pipeline under way. A caller waits for its reply before it goes on,
		// so that the order of its own commands stays.
		options.MaxConcurrentBatches, options.Unordered = s.Connections, true
	}
	o.PipelinePoolSize = max(1, s.Connections)
	rdb := redis.NewClient(&o)
	pipeliner, err := rdb.AutoPipelineWithOptions(options)
	if err != nil {
		return errors.Join(fmt.Errorf("go-redis: %w", err), rdb.Close())
	}
	// Without a batcher: a pipeline of a program's own does not go through those of the client.
	c.store, c.close = goredis.NewStore(pipeliner), func() error { return errors.Join(pipeliner.Close(), rdb.Close()) }
	return nil
}

func (c *client) rueidis(s ClientSetting, o redis.Options, connections int) error {
	options := rueidislib.ClientOption{
		InitAddress: []string{o.Addr}, Username: o.Username, Password: o.Password, SelectDB: o.DB, TLSConfig: o.TLSConfig,
		ForceSingleClient: true, DisableCache: true, DisableRetry: true, ConnWriteTimeout: c.timeout,
	}
	connect := o.Dialer
	if s.Proxy {
		options.AlwaysRESP2, options.ClientSetInfo = true, rueidislib.DisableClientSetInfo
		connect = twemproxy.Dial(o.Password, o.Dialer)
		options.Password = ""
	}
	if connect != nil {
		options.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return connect(ctx, "tcp", addr)
		}
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
		return fmt.Errorf("rueidis: %w", err)
	}
	c.store, c.batcher, c.close = rueidis.NewStore(rdb, rueidis.StoreOptions{}), rueidisBatcher{rdb}, func() error { rdb.Close(); return nil }
	return nil
}

func (c *client) redigo(o redis.Options, connections int) {
	options := []redigolib.DialOption{
		redigolib.DialReadTimeout(c.timeout), redigolib.DialWriteTimeout(c.timeout), redigolib.DialConnectTimeout(c.timeout), redigolib.DialDatabase(o.DB),
		redigolib.DialUsername(o.Username), redigolib.DialPassword(o.Password),
	}
	if o.Dialer != nil {
		options = append(options, redigolib.DialContextFunc(o.Dialer))
	}
	pool := &redigolib.Pool{MaxIdle: connections, MaxActive: connections, Wait: true, IdleTimeout: time.Minute, DialContext: func(ctx context.Context) (redigolib.Conn, error) {
		return redigolib.DialContext(ctx, "tcp", o.Addr, options...)
	}}
	c.store, c.batcher, c.close = redigo.NewStore(pool), redigoBatcher{pool}, pool.Close
	c.pool = func() prom.PoolStats {
		s := pool.Stats()
		return prom.PoolStats{Waits: uint64(s.WaitCount), Waited: s.WaitDuration, Open: s.ActiveCount, Idle: s.IdleCount}
	}
}

func (c *client) radix(ctx context.Context, o redis.Options, connections int) error {
	store, err := radixstore.Open(ctx, o.Addr, radixstore.Options{Connections: connections, Username: o.Username, Password: o.Password, DB: o.DB, Dial: o.Dialer, Timeout: c.timeout})
	if err != nil {
		return err
	}
	c.store, c.batcher, c.close = store, radixBatcher{store.Client()}, store.Close
	return nil
}

// dial makes the clients of a run.
func (s *Server) dial(ctx context.Context, r *Config) error {
	for _, setting := range r.Clients {
		o := *s.Options
		if setting.Proxy {
			var err error
			if o.Addr, err = s.proxied(ctx); err != nil {
				return err
			}
			o.Dialer = s.proxy.DialContext
		}
		c, err := dial(ctx, setting, o, slices.Max(r.Concurrency), r.timeout)
		if err != nil {
			return err
		}
		if r.wrap != nil {
			c.store = r.wrap(c.store)
		}
		if r.Observer != nil && c.pool != nil {
			r.Observer.Pool(s.poolName(c), c.pool)
		}
		s.clients = append(s.clients, c)
	}
	s.evicted, s.lost = s.evictedKeys(ctx), false
	return nil
}

// proxied is the address of the proxy before the server, which is started if it was not.
func (s *Server) proxied(ctx context.Context) (string, error) {
	if s.Options.Username != "" || s.Options.DB != 0 || s.Options.TLSConfig != nil {
		return "", fmt.Errorf("%w: twemproxy takes neither a user name nor a database nor TLS", ErrClient)
	}
	if s.proxy == nil {
		var err error
		if s.proxy, err = twemproxy.Start(ctx, s.Options.Addr, s.Options.Password); err != nil {
			return "", err
		}
	}
	return s.proxy.Addr(), nil
}

// poolName tells a client's connections to one server from those to others.
func (s *Server) poolName(c *client) string { return strings.TrimSpace(c.name + " " + s.Setting) }

func (s *Server) closeClients(o Observer) error {
	var err error
	for _, c := range s.clients {
		if o != nil && c.pool != nil {
			o.Pool(s.poolName(c), nil)
		}
		err = errors.Join(err, c.close())
	}
	s.clients = nil
	if s.proxy != nil {
		err = errors.Join(err, s.proxy.Close())
		s.proxy = nil
	}
	return err
}
