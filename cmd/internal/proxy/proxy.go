// Package proxy stands between Redis and clients that know nothing of bale: they write and read
// plain values, and Redis holds packed ones.
//
// [Run] serves until its context ends; [Options] select what is packed. Each connection of a client
// has one to Redis, so that logins, databases, transactions, subscriptions and both protocols are
// those of Redis. The meaning of the commands is the hook's: package rediscmd has the table.
package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/glob"
	"github.com/balekv/bale/internal/rediscmd"
)

const (
	dialTimeout = 5 * time.Second
	maxReply    = 256 << 20 // bytes of a reply of many values, stored, that is unpacked
)

// Options are the settings of a proxy. Streams, Listen, Redis and Match are required.
type Options struct {
	*cli.Streams // Err receives notes

	Listen   string // HOST:PORT, :PORT for 127.0.0.1, or unix:PATH
	Redis    string // URL of the server. Clients log in themselves: its login is for the registry.
	Registry string // URL of the Redis with the dictionaries; empty for Redis
	Prefix   string // of the registry's keys
	Login    keyspace.Login

	Match, Exclude []string // patterns of the keys whose values are packed, and of those that are not
	Setting        engine.Setting
	Group          string // of the dictionary, with Setting.Dict
	ReadOnly       bool   // unpack, and pack nothing
	RefuseScripts  bool   // refuse scripts that declare a key in scope

	MaxClients int           // connections; others get an error
	MaxRequest int           // bytes of a command that is looked into
	MaxMemory  int64         // bytes that all connections hold beyond their buffers
	Drain      time.Duration // for replies in flight when the context ends

	// Listening, if not nil, receives the address when the proxy accepts connections.
	Listening func(net.Addr)
}

// Check reports options that cannot be. The errors name the command's flags.
func (o *Options) Check() error {
	usage := func(format string, args ...any) error {
		return fmt.Errorf("%w: %w", cli.ErrUsage, fmt.Errorf(format, args...))
	}
	for flag, patterns := range map[string][]string{"match": o.Match, "exclude": o.Exclude} {
		for _, p := range patterns {
			if err := glob.Check(p); err != nil {
				return usage("--%s: pattern %q %w", flag, p, err)
			}
		}
	}
	switch {
	case len(o.Match) == 0:
		return usage("--match is empty; '*' is for all keys")
	case strings.Contains(o.Redis, "master_name=") || strings.Contains(o.Redis, "addr="):
		return usage("--redis: the proxy serves a single Redis; Sentinel and Cluster are not supported yet")
	case o.MaxClients < 1 || o.MaxRequest < bufferSize || o.MaxMemory < int64(o.MaxRequest) || o.Drain < 0:
		return usage("--max-clients must be at least 1, --max-request at least 16KiB, --max-memory at least --max-request, and --drain not negative")
	case o.Setting.Dict && o.Group == "":
		return usage("--compress %s needs a --group, the name of the dictionary's group: none can be made of --match", o.Setting)
	}
	if o.Group != "" {
		if err := dict.CheckGroup(o.Group); err != nil {
			return usage("--group: %w", err)
		}
	}
	return nil
}

// Run serves until ctx ends, and then until the replies in flight are delivered, at most Drain.
func Run(ctx context.Context, o Options) (err error) {
	if err := o.Check(); err != nil {
		return err
	}
	p := &proxy{
		scope:    rediscmd.Scope{Match: o.Match, Exclude: o.Exclude, Prefix: o.Prefix},
		readOnly: o.ReadOnly, options: o, memory: memory{max: o.MaxMemory}, clients: map[*client]bool{},
	}
	if o.RefuseScripts {
		p.scope.RefuseScripts = "scripts see packed bytes, and --refuse-scripts is set"
	}
	closers, err := p.open(ctx)
	defer func() {
		for _, c := range closers {
			err = errors.Join(err, c.Close())
		}
	}()
	if err != nil {
		return err
	}
	l, err := listen(ctx, o.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if o.Listening != nil {
		o.Listening(l.Addr())
	}
	return p.serve(ctx, l)
}

// proxy serves clients.
type proxy struct {
	options  Options
	scope    rediscmd.Scope
	packer   *bale.Packer
	readOnly bool
	memory   memory
	server   *redis.Options // where it is

	draining atomic.Bool
	until    time.Time // ends draining
	lock     sync.Mutex
	clients  map[*client]bool
	work     sync.WaitGroup
}

// open connects to the registry, and makes the Packer. The caller closes the closers in their order,
// also after an error.
func (p *proxy) open(ctx context.Context) (closers []io.Closer, err error) {
	o := &p.options
	add := func(c io.Closer) { closers = append([]io.Closer{c}, closers...) }
	connect := func(url, flag string) (*redis.Client, error) {
		any, err := o.Login.Open(ctx, url)
		if err != nil {
			return nil, err
		}
		add(any)
		client, ok := any.(*redis.Client)
		if !ok && flag == "--redis" { // clients would be sent past the proxy
			return nil, fmt.Errorf("%w: %s: the proxy serves a single Redis, and this one is a part of a cluster, which is not supported yet", cli.ErrUsage, flag)
		}
		return client, nil
	}
	if p.server, _, err = o.Login.Server(ctx, o.Redis); err != nil {
		return closers, err
	}
	data, err := connect(o.Redis, "--redis")
	if err != nil {
		return closers, err
	}
	store := registry.NewExplaining(data)
	follow := dict.GroupOptions{ReadOnly: !o.Setting.Dict || o.ReadOnly, Engine: o.Setting.Engine(), Log: printable.Log(o.Err)}
	keys := store
	if o.Registry != "" && o.Registry != o.Redis {
		any, err := o.Login.Open(ctx, o.Registry)
		if err != nil {
			return closers, fmt.Errorf("--registry: %w", err)
		}
		add(any)
		keys, follow.Data, follow.DataName = registry.NewExplaining(any), store, data.Options().Addr
	}
	dictionaries, err := dict.NewRegistry(keys, dict.RegistryOptions{Prefix: o.Prefix})
	if err != nil {
		return closers, err
	}
	group := "proxy" // for reading alone: it writes nothing under that name
	if o.Setting.Dict {
		group, follow.Setting = o.Group, o.Setting.Setting
	}
	g, err := dictionaries.Open(ctx, group, follow)
	if err != nil {
		return closers, err
	}
	add(g)
	var compressors bale.Compressors = g
	if !o.Setting.Dict {
		w, err := o.Setting.New(nil)
		if err != nil {
			return closers, err
		}
		add(w)
		compressors = writing{g, w}
	}
	p.packer, err = bale.NewPacker(bale.PackerOptions{Compressors: compressors})
	return closers, err
}

// writing writes with a compressor of its own.
type writing struct {
	*dict.Group
	writer compress.Compressor
}

// Writer implements bale.Compressors.
func (w writing) Writer() compress.Compressor { return w.writer }

// Reader implements bale.Compressors.
func (w writing) Reader(ctx context.Context, a frame.Algorithm, id frame.DictionaryID) (compress.Compressor, error) {
	if a == w.writer.Algorithm() && id == 0 {
		return w.writer, nil
	}
	return w.Group.Reader(ctx, a, id)
}

func listen(ctx context.Context, at string) (net.Listener, error) {
	network, addr := "tcp", at
	if path, ok := strings.CutPrefix(at, "unix:"); ok {
		network, addr = "unix", path
	} else if strings.HasPrefix(at, ":") {
		addr = "127.0.0.1" + at
	}
	return new(net.ListenConfig).Listen(ctx, network, addr)
}

// serve accepts connections until ctx ends.
func (p *proxy) serve(ctx context.Context, l net.Listener) error {
	p.options.Notef("listens on %s, for %s", l.Addr(), p.server.Addr)
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var failed error
	for failed == nil {
		conn, err := l.Accept()
		switch {
		case err == nil:
			p.accept(inner, conn)
		case ctx.Err() != nil, errors.Is(err, net.ErrClosed):
			failed = err
		default: // no file descriptor is free, for example
			p.options.Notef("cannot accept a connection: %v", err)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	p.drain(cancel)
	if ctx.Err() != nil {
		return nil
	}
	return failed
}

// accept serves a connection, unless there are too many.
func (p *proxy) accept(ctx context.Context, conn net.Conn) {
	p.lock.Lock()
	full := len(p.clients) >= p.options.MaxClients
	var c *client
	if !full {
		c = &client{proxy: p, conn: conn, queue: newQueue(), session: session{protocol: 2}}
		c.ctx, c.cancel = context.WithCancel(ctx)
		p.clients[c] = true
	}
	p.lock.Unlock()
	if full {
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(conn, "-ERR max number of clients reached\r\n") // as Redis says it
		_ = conn.Close()
		return
	}
	p.work.Go(func() {
		c.run()
		p.lock.Lock()
		delete(p.clients, c)
		p.lock.Unlock()
	})
}

// drain lets clients have the replies in flight, and ends all connections.
func (p *proxy) drain(cancel func()) {
	p.until = time.Now().Add(p.options.Drain)
	p.draining.Store(true)
	p.lock.Lock()
	for c := range p.clients {
		_ = c.conn.SetReadDeadline(time.Now())
	}
	p.lock.Unlock()
	timer := time.AfterFunc(p.options.Drain, cancel)
	defer timer.Stop()
	p.work.Wait()
}

// client is a connection of a client, and one to Redis.
type client struct {
	proxy  *proxy
	ctx    context.Context
	cancel func()
	conn   net.Conn // of the client
	server net.Conn
	queue  *queue

	// Of the requests' side.
	up      *relay
	args    [][]byte
	name    [maxName]byte
	idle    bool // between two requests
	inMulti bool // MULTI was sent
	since   int  // commands since then

	monitoring atomic.Bool

	// Of the replies' side.
	down *relay
	session
}

// run serves the client. If Redis cannot be reached its connection ends.
func (c *client) run() {
	defer c.cancel()
	defer c.conn.Close()
	server, err := c.proxy.dial(c.ctx)
	if err != nil {
		return
	}
	c.server = server
	defer server.Close()
	// The end of the context ends whatever waits.
	stop := context.AfterFunc(c.ctx, func() { _, _ = c.conn.Close(), server.Close() })
	defer stop()
	c.up = newRelay(c.conn, server, c.proxy.options.MaxRequest, &c.proxy.memory)
	c.down = newRelay(server, c.conn, maxReply, &c.proxy.memory)
	defer c.up.close()
	defer c.down.close()
	c.up.interrupted = func() bool { // a request in flight may be finished while the proxy drains
		return !c.idle && c.proxy.draining.Load() && time.Now().Before(c.proxy.until) && c.conn.SetReadDeadline(c.proxy.until) == nil
	}
	var replies sync.WaitGroup
	replies.Go(func() {
		err := c.replies()
		c.queue.die()
		if err != nil && errors.Is(err, errMalformed) {
			c.proxy.options.Notef("ends a connection: Redis sent %v", err)
		}
		_ = c.down.leave() // but for half a packed value
		c.cancel()         // ends the requests' side
	})
	switch err := c.requests(); {
	case err == nil: // the proxy drains
		if err := c.up.leave(); err != nil {
			c.cancel()
		}
		if c.queue.end() {
			_ = server.SetReadDeadline(time.Now())
		}
	case errors.Is(err, errLast): // the replies' side ends
	case errors.Is(err, io.EOF):
		// Redis sees the end, too: a command that blocks must not take an element for nobody.
		if c.up.leave() != nil || closeWrite(server) != nil {
			c.cancel()
		}
	default:
		c.cancel()
	}
	replies.Wait()
}

// closeWrite tells the other side that no more comes.
func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return os.ErrInvalid
}

func (p *proxy) dial(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	if p.server.TLSConfig == nil {
		return d.DialContext(ctx, p.server.Network, p.server.Addr)
	}
	return (&tls.Dialer{NetDialer: &d, Config: p.server.TLSConfig}).DialContext(ctx, p.server.Network, p.server.Addr)
}
