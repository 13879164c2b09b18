package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	maxNames    = 100 // of commands, for a label; the others share "other"
	httpTimeout = 5 * time.Second
)

// counters are what a proxy has done since its start.
type counters struct {
	accepted, rejected, unreachable                   atomic.Int64 // connections
	fromClients, toClients, fromRedis, toRedis        atomic.Int64 // bytes
	packed, plain, stored, unpacked, bad, large, lost atomic.Int64
	scripts, switches, slow, unserved, shared         atomic.Int64

	refused, unknown, moved named
}

// named counts commands by their name. Clients choose the names, so there is a limit.
type named struct {
	lock   sync.Mutex
	counts map[string]int64
}

func (n *named) add(name string) {
	n.lock.Lock()
	defer n.lock.Unlock()
	if _, ok := n.counts[name]; !ok {
		odd := func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
		}
		if name == "" || len(n.counts) >= maxNames || strings.ContainsFunc(name, odd) {
			name = "other"
		}
		if n.counts == nil {
			n.counts = map[string]int64{}
		}
	}
	n.counts[strings.Clone(name)]++ // a map keeps the key of the last assignment, whose bytes change with the next command
}

func (n *named) all() map[string]int64 {
	n.lock.Lock()
	defer n.lock.Unlock()
	return maps.Clone(n.counts)
}

// metrics writes the counters in the text format of Prometheus.
func (p *proxy) metrics() []byte {
	var b bytes.Buffer
	c := &p.counters
	family := func(name, kind, help string) {
		fmt.Fprintf(&b, "# HELP bale_proxy_%s %s\n# TYPE bale_proxy_%s %s\n", name, help, name, kind)
	}
	one := func(name, kind, help string, n int64) {
		family(name, kind, help)
		fmt.Fprintf(&b, "bale_proxy_%s %d\n", name, n)
	}
	by := func(name, help, label string, counts map[string]int64) {
		family(name, "counter", help)
		for _, value := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(&b, "bale_proxy_%s{%s=%q} %d\n", name, label, value, counts[value])
		}
	}
	p.lock.Lock()
	connected := len(p.clients)
	p.lock.Unlock()
	ready := int64(0)
	if p.notReady() == "" {
		ready = 1
	}
	one("ready", "gauge", "1 if Redis answers and the proxy does not drain.", ready)
	one("connections", "gauge", "Connections of clients.", int64(connected))
	one("connections_total", "counter", "Connections of clients since the start.", c.accepted.Load())
	one("connections_rejected_total", "counter", "Connections beyond --max-clients, and those before Redis answered.", c.rejected.Load())
	one("upstream_failures_total", "counter", "Connections to Redis that could not be made.", c.unreachable.Load())
	one("upstream_switches_total", "counter", "Changes of the master that Sentinel reported.", c.switches.Load())
	nodes := 0
	if cl := p.cluster; cl != nil {
		cl.lock.Lock()
		nodes = len(cl.nodes)
		cl.lock.Unlock()
	}
	commands := map[string]int64{}
	if u := p.upstream.Load(); u != nil && u.pool != nil {
		for i, s := range u.pool.shared {
			commands[strconv.Itoa(i)] = s.commands.Load()
		}
	}
	one("shared_connections", "gauge", "Connections to Redis that clients share.", c.shared.Load())
	by("shared_commands_total", "Commands over shared connections, by the connection's number.", "connection", commands)
	by("unshared_clients_total", "Clients that got a connection of their own, by the command that needs it.", "command", c.moved.all())
	one("nodes", "gauge", "Nodes of the cluster that have a listener.", int64(nodes))
	one("unserved_nodes_total", "counter", "Servers that replies named and clients were not told, because they have no listener.", c.unserved.Load())
	by("received_bytes_total", "Bytes read, by the side they came from.", "from", map[string]int64{"clients": c.fromClients.Load(), "redis": c.fromRedis.Load()})
	by("sent_bytes_total", "Bytes written, by the side they went to.", "to", map[string]int64{"clients": c.toClients.Load(), "redis": c.toRedis.Load()})
	one("held_bytes", "gauge", "Memory of --max-memory that is taken.", p.memory.held.Load())
	one("packed_values_total", "counter", "Values that were packed, or were tried to and stay as they are.", c.packed.Load())
	one("packed_plain_bytes_total", "counter", "Bytes of these values.", c.plain.Load())
	one("packed_stored_bytes_total", "counter", "Bytes that Redis holds of these values.", c.stored.Load())
	one("passed_large_values_total", "counter", "Values above --max-request that passed unpacked.", c.large.Load())
	one("unpacked_values_total", "counter", "Values that were unpacked.", c.unpacked.Load())
	one("pack_errors_total", "counter", "Commands refused because a value could not be packed.", c.bad.Load())
	one("unpack_errors_total", "counter", "Replies replaced by an error because a value could not be unpacked, or because they decode to too much.", c.lost.Load())
	one("scripts_total", "counter", "Scripts and functions, which see packed bytes.", c.scripts.Load())
	one("slow_commands_total", "counter", "Commands that took as long as --slow-log.", c.slow.Load())
	by("refused_commands_total", "Commands that were refused, by name.", "command", c.refused.all())
	by("unknown_commands_total", "Commands that the proxy does not know, and passed, by name.", "command", c.unknown.all())
	return b.Bytes()
}

// readiness remembers for a second whether Redis answers.
type readiness struct {
	lock sync.Mutex
	at   time.Time
	why  string
}

// notReady returns why the proxy is not ready for clients, or "".
func (p *proxy) notReady() string {
	u := p.upstream.Load()
	switch {
	case p.draining.Load():
		return "the proxy drains"
	case u == nil:
		return "Redis has not answered yet"
	}
	r := &p.ready
	r.lock.Lock()
	defer r.lock.Unlock()
	if time.Since(r.at) < retryEvery {
		return r.why
	}
	ctx, cancel := context.WithTimeout(context.Background(), retryEvery)
	defer cancel()
	r.why = ""
	var err error
	if cl := p.cluster; cl != nil {
		cl.lock.Lock()
		err = cl.why
		cl.lock.Unlock()
	} else {
		err = u.data.Ping(ctx).Err()
	}
	if _, answered := errors.AsType[redis.Error](err); err != nil && !answered {
		r.why = "Redis does not answer"
	}
	r.at = time.Now()
	return r.why
}

// serveMetrics serves /metrics and /ready until close is called.
func (p *proxy) serveMetrics(ctx context.Context) (close func() error, err error) {
	addr := p.options.Metrics
	if strings.HasPrefix(addr, ":") {
		addr = "127.0.0.1" + addr
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("--metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(p.metrics())
	})
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if why := p.notReady(); why != "" {
			http.Error(w, "not ready: "+why, http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ready\n")
	})
	server := &http.Server{
		Handler: local(l.Addr(), mux), ReadTimeout: httpTimeout, WriteTimeout: httpTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	p.options.Notef("metrics are at http://%s/metrics, and readiness at /ready", l.Addr())
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	return func() error {
		err := server.Close()
		if served := <-done; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	}, nil
}

// local refuses requests to loopback under a foreign name, as a browser sends them after DNS
// rebinding.
func local(at net.Addr, next http.Handler) http.Handler {
	if tcp, ok := at.(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if ip, err := netip.ParseAddr(strings.Trim(host, "[]")); !strings.EqualFold(host, "localhost") && (err != nil || !ip.IsLoopback()) {
			http.Error(w, "ask for 127.0.0.1 or localhost", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
