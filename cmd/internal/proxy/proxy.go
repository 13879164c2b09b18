// Package proxy stands between Redis and clients that know nothing of bale: they write and read
// plain values, and Redis holds packed ones.
//
// [Run] serves until its context ends; [Options] select what is packed. Each connection of a client
// has one to Redis, so that logins, databases, transactions, subscriptions and both protocols are
// those of Redis. The meaning of the commands is the hook's: package rediscmd has the table.
package proxy

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/internal/rediscmd"
)

const (
	dialTimeout = 5 * time.Second
	retryEvery  = time.Second
	partWithin  = 3 * time.Second // for a client to read its last replies, and to close its connection

	// largestString is how many bytes a string may have that Redis sends to the proxy itself: a
	// dictionary, at most.
	largestString = 4 << 20
)

// Options are the settings of a proxy. Streams, Listen, Redis and a Config are required.
type Options struct {
	*cli.Streams // Err receives notes

	Listen     string      // HOST:PORT, :PORT for 127.0.0.1, or unix:PATH
	ListenMode os.FileMode // of a Unix socket
	TLS        Certificates
	Redis      string // URL of the server. Clients log in themselves: its login is for the registry.
	Registry   string // URL of the Redis with the dictionaries; empty for Redis
	Prefix     string // of the registry's keys; empty for the default
	Login      keyspace.Login

	Config            // what is packed
	ConfigFile string // in place of it, and read again at each Reload

	Cluster  bool   // Redis is a cluster: its nodes have listeners at the ports after Listen, which is for any node
	Announce string // the host that clients of a cluster are told; empty for that at which they reached the proxy

	Pool int // connections that clients share until their first command with a state; 0 for none

	MaxClients int           // connections; others get an error
	MaxRequest int           // bytes of a command that is looked into
	MaxMemory  int64         // bytes that all connections hold beyond their buffers; one may hold a quarter, and four times MaxRequest
	Stall      time.Duration // for a client to go on with a command or reply that takes memory, and 1 s for each 128 KiB
	SlowLog    time.Duration // a command that takes at least this long gets a line in Err; 0 for none
	Drain      time.Duration // for replies in flight when the context ends

	Metrics string // HOST:PORT of /metrics and /ready, or empty

	// Reload, if not nil, asks to read ConfigFile again. One that cannot be used changes nothing.
	Reload <-chan os.Signal

	// MemoryGoal, if not nil, receives how many bytes the process should take, garbage included: at
	// the start, and after each Reload.
	MemoryGoal func(bytes int64)

	// Listening, if not nil, receives the address when the proxy accepts connections.
	Listening func(net.Addr)

	second time.Duration // of silent shared connections; 0 for a second, and less in tests
}

// Check completes the options, and reports those that cannot be. The errors name the command's
// flags.
func (o *Options) Check() (err error) {
	usage := func(format string, args ...any) error {
		return fmt.Errorf("%w: %w", cli.ErrUsage, fmt.Errorf(format, args...))
	}
	o.Prefix = cmp.Or(o.Prefix, dict.DefaultPrefix)
	switch {
	case strings.Contains(o.Redis, "addr=") && !o.sentinel() && !o.Cluster:
		return usage("--redis: several nodes are those of a cluster: give --cluster")
	case o.Cluster && (o.sentinel() || strings.HasPrefix(o.Redis, "unix:") || strings.HasPrefix(o.Listen, "unix:")):
		return usage("--cluster goes with TCP, without Sentinel: give --redis a node, and --listen a host and port")
	case o.Pool < 0 || o.Pool > maxPool || o.Pool > 0 && o.Cluster:
		return usage("--pool: 0 to %d are possible, and none with --cluster", maxPool)
	case o.Announce != "" && (!o.Cluster || !isHost(o.Announce) || strings.Contains(o.Announce, ":") && net.ParseIP(o.Announce) == nil):
		return usage("--announce: %q; it is a name or an IP address, and goes with --cluster", o.Announce)
	case o.MaxClients < 1 || o.MaxRequest < bufferSize || o.MaxMemory < int64(o.MaxRequest) || o.Stall <= 0 || o.SlowLog < 0 || o.Drain < 0:
		return usage("--max-clients must be at least 1, --max-request at least 16KiB, --max-memory at least --max-request, --stall positive, and --slow-log and --drain not negative")
	case o.TLS.check() != nil:
		return usage("%w", o.TLS.check())
	case o.ConfigFile != "":
		o.Config, err = ReadConfig(o.ConfigFile, o.Prefix)
		return err
	}
	if err := o.Config.check(o.Prefix, func(_ int, field string) string { return "--" + field }); err != nil {
		return usage("%w", err)
	}
	return nil
}

// goal is that of the memory. Without one Go lets garbage grow to as much as is in use, and beyond
// on a busy machine. It is above what can be in use, or Go would collect all the time.
func (o *Options) goal() int64 {
	const (
		base      = 64 << 20 // dictionaries, and what is small
		perClient = 64 << 10 // two buffers of 16 KiB, and two goroutines with theirs
		perGroup  = 40 << 20 // of each core: an encoder of zstd:11
	)
	goal := float64(o.MaxMemory)*1.5 + perClient*float64(o.MaxClients) + base +
		perGroup*float64(len(o.Groups)*runtime.GOMAXPROCS(0))
	if goal >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(goal)
}

// sentinel reports whether the URL names a master.
func (o *Options) sentinel() bool { return strings.Contains(o.Redis, "master_name=") }

// Run serves until ctx ends, and then until the replies in flight are delivered, at most Drain. If
// Redis does not answer at first, connections end at once until it does.
func Run(ctx context.Context, o Options) (err error) {
	if err := o.Check(); err != nil {
		return err
	}
	if o.MemoryGoal == nil {
		o.MemoryGoal = func(int64) {}
	}
	o.MemoryGoal(o.goal())
	o.Login.LargestString = largestString
	p := &proxy{options: o, memory: memory{max: o.MaxMemory}, clients: map[*client]bool{}, leaving: map[*client]bool{}}
	if o.Cluster {
		p.cluster = &cluster{proxy: p, nodes: map[string]*node{}, named: map[string]*node{}}
	}
	secure, err := o.TLS.load()
	if err != nil {
		return err
	}
	p.tls.Store(secure)
	opened := p.open(ctx)
	defer func() { err = errors.Join(err, p.close()) }()
	if errors.Is(opened, cli.ErrUsage) || errors.Is(opened, keyspace.ErrLogin) || ctx.Err() != nil {
		return opened
	}
	l, err := listen(ctx, o.Listen, o.ListenMode)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if o.Metrics != "" {
		stop, failed := p.serveMetrics(ctx)
		if failed != nil {
			return errors.Join(failed, l.Close())
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	if o.Listening != nil {
		o.Listening(l.Addr())
	}
	return p.serve(ctx, l, opened)
}

// proxy serves clients.
type proxy struct {
	options Options
	memory  memory

	// Both are replaced as a whole, by the goroutine that watches.
	upstream atomic.Pointer[upstream]
	packing  atomic.Pointer[packing]
	tls      atomic.Pointer[tls.Config] // for clients; nil without TLS

	counters counters
	ready    readiness
	slowness limiter
	endings  limiter // of connections
	notes    limiter // of servers that clients are not told
	failures limiter // of connections to Redis
	cluster  *cluster

	draining atomic.Bool
	until    time.Time // ends draining
	lock     sync.Mutex
	clients  map[*client]bool
	leaving  map[*client]bool // those of them that send no more, and may be gone: others take their places
	work     sync.WaitGroup
}

// closers are closed in the opposite of their order.
type closers []io.Closer

func (c *closers) add(one io.Closer) { *c = append(*c, one) }

// Close implements io.Closer.
func (c *closers) Close() (err error) {
	for _, one := range slices.Backward(*c) {
		err = errors.Join(err, one.Close())
	}
	*c = nil
	return err
}

// upstream is a Redis, with its dictionaries.
type upstream struct {
	server   *redis.Options // where it is
	seeds    []string       // nodes of a cluster
	pool     *pool          // nil without --pool
	registry *dict.Registry
	follow   dict.GroupOptions
	reader   *bale.Packer // unpacks everything
	data     redis.UniversalClient
	closers
}

// packing is how values are packed.
type packing struct {
	scope    rediscmd.Scope
	readOnly bool
	packers  []*bale.Packer // by the part of the scope
	closers
}

// Close closes them at once: while Redis hangs, each group waits for its poll.
func (k *packing) Close() error {
	failed := make([]error, len(k.closers))
	var wg sync.WaitGroup
	for i, one := range k.closers {
		wg.Go(func() { failed[i] = one.Close() })
	}
	wg.Wait()
	k.closers = nil
	return errors.Join(failed...)
}

// open connects to Redis and its registry, and packs as the Config says.
func (p *proxy) open(ctx context.Context) error {
	u, err := p.connect(ctx)
	if err != nil {
		return err
	}
	k, err := p.pack(ctx, u, &p.options.Config)
	if err != nil {
		return errors.Join(err, u.Close())
	}
	p.packing.Store(k)
	p.upstream.Store(u)
	return nil
}

func (p *proxy) close() (err error) {
	if k := p.packing.Load(); k != nil {
		err = k.Close()
	}
	if u := p.upstream.Load(); u != nil {
		err = errors.Join(err, u.Close())
	}
	return err
}

// connect opens an upstream, which the caller closes.
func (p *proxy) connect(ctx context.Context) (_ *upstream, err error) {
	o := &p.options
	u := new(upstream)
	defer func() {
		if err != nil {
			err = errors.Join(err, u.Close())
		}
	}()
	if u.server, u.seeds, err = o.Login.Server(ctx, o.Redis); err != nil {
		return nil, err
	}
	if u.data, err = o.Login.Open(ctx, o.Redis); err != nil {
		return nil, err
	}
	u.add(u.data)
	switch data, single := u.data.(*redis.Client); {
	case single && o.Cluster:
		return nil, fmt.Errorf("%w: --cluster: this Redis is no part of a cluster", cli.ErrUsage)
	case !single && !o.Cluster: // clients would be sent past the proxy
		return nil, fmt.Errorf("%w: --redis: this one is a part of a cluster: give --cluster", cli.ErrUsage)
	case single && data.Options().Addr != u.server.Addr:
		return nil, fmt.Errorf("the master was at %s, and moved to %s meanwhile", u.server.Addr, data.Options().Addr)
	case o.Cluster:
		if len(u.seeds) == 0 {
			u.seeds = []string{u.server.Addr}
		}
		if err = u.anyDescribes(ctx, &p.counters); err != nil {
			return nil, err
		}
	}
	store := registry.NewExplaining(u.data)
	keys := store
	u.follow.Log = printable.Log(o.Err)
	if o.Registry != "" && o.Registry != o.Redis {
		any, err := o.Login.Open(ctx, o.Registry)
		if err != nil {
			return nil, fmt.Errorf("--registry: %w", err)
		}
		u.add(any)
		keys, u.follow.Data, u.follow.DataName = registry.NewExplaining(any), store, u.server.Addr
	}
	if u.registry, err = dict.NewRegistry(keys, dict.RegistryOptions{Prefix: o.Prefix}); err != nil {
		return nil, err
	}
	follow := u.follow
	follow.ReadOnly, follow.Engine = true, o.Groups[0].setting.Engine() // it writes nothing under this name
	g, err := u.registry.Open(ctx, "proxy", follow)
	if err != nil {
		return nil, err
	}
	u.add(g)
	if u.reader, err = bale.NewPacker(bale.PackerOptions{Compressors: g}); err == nil && o.Pool > 0 {
		u.pool = p.newPool(ctx, u)
		u.add(u.pool)
	}
	return u, err
}

// pack makes a packing, which the caller closes.
func (p *proxy) pack(ctx context.Context, u *upstream, c *Config) (_ *packing, err error) {
	k := &packing{scope: c.scope(p.options.Prefix), readOnly: c.ReadOnly}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.Close())
		}
	}()
	for _, group := range c.Groups {
		var compressors bale.Compressors
		if group.setting.Dict {
			follow := u.follow
			follow.ReadOnly, follow.Setting, follow.Engine = c.ReadOnly, group.setting.Setting, group.setting.Engine()
			g, err := u.registry.Open(ctx, group.Group, follow)
			if err != nil {
				return nil, err
			}
			k.add(g)
			compressors = g
		} else {
			w, err := group.setting.New(nil)
			if err != nil {
				return nil, err
			}
			k.add(w)
			compressors = &compress.Set{Write: w}
		}
		packer, err := bale.NewPacker(bale.PackerOptions{Compressors: compressors})
		if err != nil {
			return nil, err
		}
		k.packers = append(k.packers, packer)
	}
	return k, nil
}

// watch opens the upstream if that failed before, and reloads.
func (p *proxy) watch(ctx context.Context, failed error) {
	o := &p.options
	again := time.NewTicker(retryEvery)
	defer again.Stop()
	for note := ""; ; {
		if failed != nil && failed.Error() != note {
			note = failed.Error()
			o.Notef("serves no client yet, and tries again: %v", failed)
		}
		p.follow(ctx)
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			if o.sentinel() {
				p.unlessMoved(ctx)
			}
			if p.upstream.Load() == nil {
				if failed = p.open(ctx); failed == nil {
					o.Notef("serves clients now")
				}
			}
		case <-o.Reload:
			if err := p.reload(ctx); err != nil {
				o.Notef("keeps the settings it has: %v", err)
			}
		}
	}
}

// follow has the nodes of a cluster described from time to time.
func (p *proxy) follow(ctx context.Context) {
	cl, u := p.cluster, p.upstream.Load()
	if cl == nil || u == nil || time.Since(cl.followed) < followEvery {
		return
	}
	before := cl.why // written by this goroutine alone
	if err := cl.follow(ctx, u); err != nil && ctx.Err() == nil && (before == nil || before.Error() != err.Error()) {
		p.options.Notef("cannot follow the cluster, and keeps the nodes it has: %v", err)
	}
	cl.followed = time.Now()
}

// unlessMoved asks Sentinel. If the master is another server, the connections to the one before
// end: what they write there would be lost.
func (p *proxy) unlessMoved(ctx context.Context) {
	u := p.upstream.Load()
	if u == nil {
		return
	}
	now, _, err := p.options.Login.Server(ctx, p.options.Redis)
	if err != nil || now.Addr == u.server.Addr { // without an answer the master stays
		return
	}
	p.options.Notef("the master has moved from %s to %s", u.server.Addr, now.Addr)
	p.counters.switches.Add(1)
	p.lock.Lock()
	p.upstream.Store(nil)
	for c := range p.clients {
		c.cancel()
	}
	p.lock.Unlock()
	if err := errors.Join(p.packing.Load().Close(), u.Close()); err != nil {
		p.options.Notef("cannot close the connections to %s: %v", u.server.Addr, err)
	}
}

// reload reads the settings again.
func (p *proxy) reload(ctx context.Context) error {
	if p.options.ConfigFile == "" && p.options.TLS.Cert == "" {
		return errors.New("there is no --config or --listen-cert to read again")
	}
	secure, err := p.options.TLS.load()
	if err != nil {
		return err
	}
	p.tls.Store(secure) // whatever the file says
	if p.options.ConfigFile == "" {
		p.options.Notef("has read the certificates again")
		return nil
	}
	c, err := ReadConfig(p.options.ConfigFile, p.options.Prefix)
	if err != nil {
		return err
	}
	if u := p.upstream.Load(); u != nil {
		k, err := p.pack(ctx, u, &c)
		if err != nil {
			return err
		}
		// A command that is being packed has the new one, too: see client.pack.
		if err := p.packing.Swap(k).Close(); err != nil {
			p.options.Notef("cannot close what packed before: %v", err)
		}
	}
	p.options.Config = c
	p.options.MemoryGoal(p.options.goal())
	p.options.Notef("has read %s: %d groups", p.options.ConfigFile, len(c.Groups))
	return nil
}

func listen(ctx context.Context, at string, mode os.FileMode) (net.Listener, error) {
	var config net.ListenConfig
	path, ok := strings.CutPrefix(at, "unix:")
	if !ok {
		if strings.HasPrefix(at, ":") {
			at = "127.0.0.1" + at
		}
		return config.Listen(ctx, "tcp", at)
	}
	config.Control = private
	l, err := config.Listen(ctx, "unix", path)
	if errors.Is(err, syscall.EADDRINUSE) && abandoned(ctx, path) {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
		l, err = config.Listen(ctx, "unix", path)
	}
	if err == nil {
		if err = os.Chmod(path, mode); err != nil {
			_ = l.Close()
		}
	}
	return l, err
}

// abandoned reports whether a path is a socket that nobody listens on: that of a process that was
// killed.
func abandoned(ctx context.Context, path string) bool {
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != os.ModeSocket {
		return false
	}
	c, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err == nil {
		_ = c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// serve accepts connections until ctx ends.
func (p *proxy) serve(ctx context.Context, l net.Listener, opened error) error {
	p.options.Notef("listens on %s, for %s", l.Addr(), keyspace.Redact(p.options.Redis))
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	inner, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	if p.cluster != nil {
		p.cluster.begin(inner, l.Addr())
	}
	watching, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { p.watch(watching, opened) })
	defer watch.Wait()
	defer cancel()
	failed := p.door(inner, l, nil)
	if p.cluster != nil {
		p.cluster.close()
	}
	p.drain(end)
	if ctx.Err() != nil {
		return nil
	}
	return failed
}

// door accepts connections to a node, or to any for nil, until the listener is closed.
func (p *proxy) door(ctx context.Context, l net.Listener, n *node) error {
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			p.accept(ctx, conn, n)
		case errors.Is(err, net.ErrClosed):
			return err
		default: // no file descriptor is free, for example
			p.options.Notef("cannot accept a connection: %v", err)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
}

// accept serves a connection, unless there are too many.
func (p *proxy) accept(ctx context.Context, conn net.Conn, n *node) {
	p.lock.Lock()
	up := p.upstream.Load()
	if up == nil || n != nil && n.gone {
		p.lock.Unlock()
		p.counters.rejected.Add(1)
		_ = conn.Close()
		return
	}
	for l := range p.leaving {
		if len(p.clients) < p.options.MaxClients {
			break
		}
		l.cancel()
		p.forget(l)
	}
	full := len(p.clients) >= p.options.MaxClients
	var c *client
	secure := p.tls.Load()
	if !full {
		if secure != nil {
			conn = tls.Server(conn, secure)
		}
		c = &client{proxy: p, upstream: up, node: n, conn: conn, session: session{protocol: 2}}
		c.memory.all, c.memory.max = &p.memory, max(p.options.MaxMemory/4, 4*int64(p.options.MaxRequest))
		c.queue, c.multi.memory = newQueue(&c.memory, &c.known), &c.memory
		c.ctx, c.cancel = context.WithCancel(ctx)
		p.clients[c] = true
	}
	p.lock.Unlock()
	if full {
		p.counters.rejected.Add(1)
		if secure == nil { // else a handshake would hold up the others
			_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = io.WriteString(conn, "-ERR max number of clients reached\r\n") // as Redis says it
		}
		_ = conn.Close()
		return
	}
	p.counters.accepted.Add(1)
	p.work.Go(func() {
		c.run()
		p.memory.give(int(c.memory.held.Load()))
		p.lock.Lock()
		p.forget(c)
		p.lock.Unlock()
	})
}

// forget gives the place of a client to others. The lock is held.
func (p *proxy) forget(c *client) {
	delete(p.clients, c)
	delete(p.leaving, c)
}

// drain lets clients have the replies in flight, and ends all connections.
func (p *proxy) drain(cancel func()) {
	p.until = time.Now().Add(p.options.Drain)
	p.draining.Store(true)
	p.lock.Lock()
	for c := range p.clients {
		c.interrupt()
	}
	p.lock.Unlock()
	timer := time.AfterFunc(p.options.Drain, cancel)
	defer timer.Stop()
	p.work.Wait()
}

// client is a connection of a client, and one to Redis.
type client struct {
	proxy    *proxy
	upstream *upstream
	node     *node  // that it has come to, or nil
	addr     string // of its server
	memory   memory
	ctx      context.Context
	cancel   func()
	conn     net.Conn // of the client
	server   net.Conn
	queue    *queue
	replying sync.WaitGroup

	// Before it has a connection of its own.
	outbox  *outbox
	shared  *shared
	link    *link        // that has its last commands; with the lock of shared
	owed    int          // replies of link, likewise
	sending bytes.Buffer // whole commands
	batch   []expected   // their replies

	// Of the requests' side.
	up          *relay
	args        [][]byte
	forArgs     int // bytes of memory for many of them
	name        [maxName]byte
	idle        bool // between two requests
	packing     *packing
	called, key string   // of the request, with a slow log
	hurried     bool     // the rest of the request has a deadline
	submitted   bool     // it sent what may be a write over a shared connection
	inMulti     bool     // MULTI was sent
	begun       bool     // and Redis did not refuse it
	multi       share    // of the replies to commands since then
	before      expected // the last of them

	monitoring atomic.Bool
	known      atomic.Bool // Redis has served it, so that it is logged in, or need not be

	// Of the replies' side.
	down   *relay
	growth growth // of the reply
	session
}

// run serves the client. If Redis cannot be reached its connection ends.
func (c *client) run() {
	defer c.cancel()
	defer c.conn.Close()
	if handshake(c.ctx, c.conn) != nil {
		return
	}
	// The end of the context ends whatever waits.
	stop := context.AfterFunc(c.ctx, func() { _ = c.conn.Close() })
	defer stop()
	counters := &c.proxy.counters
	c.up = newRelay(c.conn, nil, c.proxy.options.MaxRequest, &c.memory, &counters.fromClients, &counters.toRedis)
	c.up.may = c.mayHold
	c.up.interrupted = func() bool { // a request in flight may be finished while the proxy drains
		return !c.idle && c.proxy.draining.Load() && time.Now().Before(c.proxy.until) && c.conn.SetReadDeadline(c.proxy.until) == nil
	}
	if c.upstream.pool != nil {
		c.share()
	} else if c.own() != nil {
		return
	}
	err := c.requests()
	if errors.Is(err, io.EOF) {
		c.proxy.lock.Lock()
		c.proxy.leaving[c] = true
		c.proxy.lock.Unlock()
	}
	switch {
	case c.outbox != nil:
		if err != nil && !errors.Is(err, io.EOF) || c.up.leave() != nil || !c.outbox.finish() {
			c.cancel()
		}
		<-c.outbox.written
	case err == nil: // the proxy drains
		if err := c.up.leave(); err != nil {
			c.cancel()
		}
		if c.queue.end() {
			_ = c.server.SetReadDeadline(time.Now())
		}
	case errors.Is(err, errLast): // the replies' side ends
	case errors.Is(err, io.EOF):
		// Redis sees the end, too: a command that blocks must not take an element for nobody.
		if c.up.leave() != nil || closeWrite(c.server) != nil {
			c.cancel()
		}
	default:
		c.cancel()
	}
	c.replying.Wait()
	if c.server != nil {
		_ = c.server.Close()
	}
	c.up, c.sending, c.batch, c.args = nil, bytes.Buffer{}, nil, nil // a shared connection may still wait for its replies
	c.part()
}

// part lets the client have its last replies. If a connection is closed with something unread, the
// system drops what is still to be sent.
func (c *client) part() {
	if c.ctx.Err() != nil || closeWrite(c.conn) != nil {
		return
	}
	until := time.Now().Add(partWithin)
	err := os.ErrDeadlineExceeded
	for errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(until) { // see interrupt
		_ = c.conn.SetReadDeadline(until)
		_, err = io.Copy(io.Discard, c.conn)
	}
}

// own gives the client a connection to Redis of its own, after it has all replies of a shared one.
func (c *client) own() (err error) {
	pooled := c.outbox != nil
	if pooled {
		if err := c.up.flush(); err != nil {
			return err
		}
		if !c.outbox.finish() {
			return errGone
		}
		c.outbox, c.up.after = nil, nil
	}
	err = errGone
	for _, c.addr = range c.addrs() {
		if c.server, err = c.upstream.dial(c.ctx, c.addr); err == nil {
			break
		}
	}
	if err != nil {
		c.server = nil
		c.proxy.unreachable(c.ctx, c.addr, err)
		return err
	}
	server := c.server
	context.AfterFunc(c.ctx, func() { _ = server.Close() })
	c.up.dst = server
	counters := &c.proxy.counters
	c.down = newRelay(server, c.conn, math.MaxInt, &c.memory, &counters.fromRedis, &counters.toClients)
	if pooled { // as before
		if err := c.upstream.greet(server, c.down, false); err != nil {
			c.proxy.unreachable(c.ctx, c.addr, err)
			return err
		}
	}
	c.down.hurry = func(n int) { c.deadline(c.conn.SetWriteDeadline, n) }
	c.replying.Go(func() {
		err := c.replies()
		c.queue.die()
		if err != nil && errors.Is(err, errMalformed) {
			c.proxy.ends("connection: Redis sent %v", err)
		}
		c.unread(err)
		_ = c.down.leave() // but for half a packed value
		if err != nil && !c.queue.drained() {
			c.cancel() // ends the requests' side, which is not at its end
		}
	})
	return nil
}

// unreachable counts a connection that cannot be made. At most one a second has a line.
func (p *proxy) unreachable(ctx context.Context, addr string, err error) {
	p.counters.unreachable.Add(1)
	if ctx.Err() != nil { // the client is gone
		return
	}
	if show, _ := p.failures.allow(1); show {
		p.options.Notef("cannot connect to %s, and ends a client's connection: %v", addr, err)
	}
}

// closeWrite tells the other side that no more comes.
func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return os.ErrInvalid
}

func (u *upstream) dial(ctx context.Context, addr string) (net.Conn, error) {
	return keyspace.Dial(ctx, u.server, cmp.Or(u.server.Network, "tcp"), addr) // that of a master has none
}
