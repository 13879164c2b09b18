package proxy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/balekv/bale/cmd/internal/printable"
)

// A cluster describes itself, and may lie.
const (
	maxNodes    = 1000                   // Redis Cluster is made for as many
	maxView     = 16 << 20               // bytes of a description: that of slots in the greatest disorder has 6 MB
	maxHost     = 255                    // bytes
	maxID       = 64                     // bytes; servers have 40
	maxPlaces   = 8                      // addresses of a node; servers say up to three
	maxTries    = 3                      // servers that are asked, or connected to, before an error
	askWithin   = 2 * time.Second        // for a description
	askApart    = 100 * time.Millisecond // between descriptions that replies ask for
	followEvery = 2 * time.Second
	goneAfter   = 5 * time.Second // in which no description has the node
)

// node is a server of a cluster. Clients reach it at a listener of its own.
type node struct {
	id       string
	listener net.Listener
	port     int // of the listener

	// As described last.
	addr    string   // where the proxy reaches it
	names   []string // the addresses by which servers send clients there
	failed  bool
	missing time.Time // since when it is not described; zero while it is

	gone bool // it has left, and has no clients any more; under the proxy's lock
}

// cluster is the nodes of a Redis Cluster. Its methods are safe for concurrent use.
type cluster struct {
	proxy *proxy

	// Since begin.
	serving context.Context // of clients
	host    string          // of the listeners
	first   int             // port, which is that for any node; 0 if all ports are the system's choice
	doors   sync.WaitGroup

	lock    sync.Mutex
	nodes   map[string]*node // by id
	named   map[string]*node // by id, and by each of names
	learned int              // descriptions so far, those that failed included
	why     error            // of the last description by follow
	refused string           // why a node has no listener
	closed  bool

	followed time.Time // the last follow, which one goroutine calls

	asking sync.Mutex // one description at a time
	asked  time.Time  // the last one
}

// begin says where nodes have their listeners: beside the one for any node.
func (cl *cluster) begin(serving context.Context, any net.Addr) {
	cl.serving = serving
	host, port, _ := net.SplitHostPort(cl.proxy.options.Listen)
	cl.host = cmp.Or(host, "127.0.0.1")
	if port != "0" {
		cl.first = any.(*net.TCPAddr).Port
	}
}

// close ends all listeners.
func (cl *cluster) close() {
	cl.lock.Lock()
	cl.closed = true
	for _, n := range cl.nodes {
		_ = n.listener.Close()
	}
	cl.lock.Unlock()
	cl.doors.Wait()
}

// follow has a server describe the cluster, and takes nodes away that have left it.
func (cl *cluster) follow(ctx context.Context, u *upstream) error {
	cl.asking.Lock()
	defer cl.asking.Unlock()
	var err error
	for _, addr := range append(cl.some(), u.seeds...) {
		if err = cl.ask(ctx, u, addr, true); err == nil || ctx.Err() != nil {
			break
		}
	}
	cl.lock.Lock()
	defer cl.lock.Unlock()
	cl.why = err
	return err
}

// anyDescribes reports whether a seed describes the cluster.
func (u *upstream) anyDescribes(ctx context.Context, counters *counters) (err error) {
	for _, addr := range u.seeds {
		if _, err = u.describe(ctx, addr, counters); err == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}

// learn has a server describe the cluster because a reply has a name that was not known after so
// many descriptions. If there is another one meanwhile, it does nothing.
func (cl *cluster) learn(c *client, learned int) {
	cl.asking.Lock()
	defer cl.asking.Unlock()
	if _, now := cl.lookup(""); now != learned {
		return
	}
	select {
	case <-c.ctx.Done():
	case <-time.After(time.Until(cl.asked.Add(askApart))):
		_ = cl.ask(c.ctx, c.upstream, c.addr, false) // then the name stays unknown
	}
}

// ask has a server describe the cluster. Others may take part, so that nodes leave only if the
// description is to be complete.
func (cl *cluster) ask(ctx context.Context, u *upstream, addr string, complete bool) error {
	all, err := u.describe(ctx, addr, &cl.proxy.counters)
	cl.asked = time.Now()
	if err == nil {
		cl.apply(all, complete)
	}
	if ctx.Err() == nil {
		cl.lock.Lock()
		cl.learned++
		cl.lock.Unlock()
	}
	return err
}

// apply makes the nodes those of a description.
func (cl *cluster) apply(all []member, complete bool) {
	slices.SortFunc(all, func(a, b member) int { return cmp.Compare(a.addr, b.addr) }) // so that ports are the same each time
	var notes []string
	defer func() {
		for _, n := range notes {
			cl.proxy.options.Notef("%s", n)
		}
	}()
	cl.lock.Lock()
	defer cl.lock.Unlock()
	if cl.closed {
		return
	}
	refused, there := "", map[string]bool{}
	for _, m := range all {
		there[m.id] = true
		n := cl.nodes[m.id]
		if n == nil {
			l, err := cl.listen()
			if err != nil {
				refused = fmt.Sprintf("no listener for the node %s: %v", m.addr, err)
				continue
			}
			n = &node{id: m.id, listener: l, port: l.Addr().(*net.TCPAddr).Port}
			cl.nodes[m.id] = n
			cl.doors.Go(func() { _ = cl.proxy.door(cl.serving, l, n) })
			notes = append(notes, fmt.Sprintf("listens on %s, for the node %s", l.Addr(), m.addr))
		}
		n.addr, n.names, n.failed, n.missing = m.addr, m.names, m.failed, time.Time{}
	}
	for id, n := range cl.nodes {
		switch {
		case there[id] || !complete:
		case n.missing.IsZero():
			n.missing = time.Now()
		case time.Since(n.missing) >= goneAfter:
			delete(cl.nodes, id)
			cl.proxy.leave(n)
			notes = append(notes, fmt.Sprintf("the node %s has left the cluster: no listener on %s", n.addr, n.listener.Addr()))
		}
	}
	if refused != "" && refused != cl.refused {
		notes = append(notes, refused)
	}
	cl.refused = refused
	clear(cl.named)
	for id, n := range cl.nodes {
		cl.named[id] = n
		for _, name := range n.names {
			if before := cl.named[name]; before == nil || before.failed { // it has the address of a dead one
				cl.named[name] = n
			}
		}
	}
}

// leave ends the listener and the clients of a node.
func (p *proxy) leave(n *node) {
	_ = n.listener.Close()
	p.lock.Lock()
	defer p.lock.Unlock()
	n.gone = true
	for c := range p.clients {
		if c.node == n {
			c.cancel()
		}
	}
}

// listen opens the listener with the lowest port that is free.
func (cl *cluster) listen() (net.Listener, error) {
	if len(cl.nodes) >= maxNodes {
		return nil, fmt.Errorf("a cluster has %d nodes at most", maxNodes)
	}
	at := func(port int) (net.Listener, error) {
		return listen(cl.serving, net.JoinHostPort(cl.host, strconv.Itoa(port)), 0)
	}
	if cl.first == 0 {
		return at(0)
	}
	taken := map[int]bool{}
	for _, n := range cl.nodes {
		taken[n.port] = true
	}
	for port := cl.first + 1; port <= min(cl.first+maxNodes, 1<<16-1); port++ {
		if taken[port] {
			continue
		}
		if l, err := at(port); !errors.Is(err, syscall.EADDRINUSE) {
			return l, err
		}
	}
	return nil, fmt.Errorf("no port after %d is free", cl.first)
}

// lookup returns the node by its id or an address, nil if there is none, and how many descriptions
// there have been.
func (cl *cluster) lookup(name string) (n *node, learned int) {
	cl.lock.Lock()
	defer cl.lock.Unlock()
	return cl.named[name], cl.learned
}

// some are the addresses of a few nodes at random, which may answer.
func (cl *cluster) some() (addrs []string) {
	cl.lock.Lock()
	defer cl.lock.Unlock()
	for _, n := range cl.nodes {
		if !n.failed && n.missing.IsZero() {
			addrs = append(addrs, n.addr)
		}
	}
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	return addrs[:min(len(addrs), maxTries)]
}

// addrs are the addresses of the client's server: that of its node, or of some to choose from.
func (c *client) addrs() []string {
	cl := c.proxy.cluster
	switch {
	case cl == nil:
		return []string{c.upstream.server.Addr}
	case c.node == nil:
		return append(cl.some(), c.upstream.seeds...)
	}
	cl.lock.Lock()
	defer cl.lock.Unlock()
	return []string{c.node.addr}
}

// member is a node as a server describes it.
type member struct {
	id, addr string
	names    []string
	failed   bool
}

// describe asks a server for the nodes of its cluster. It holds no more memory than twice maxView,
// whatever the server answers.
func (u *upstream) describe(ctx context.Context, addr string, counters *counters) ([]member, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	conn, err := u.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	r := newRelay(conn, io.Discard, maxView, &memory{max: 2 * maxView}, &counters.fromRedis, new(atomic.Int64))
	if err := u.login(conn, r); err != nil {
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	reply, err := r.ask(conn, "CLUSTER", "NODES")
	var all []member
	if err == nil {
		c := cursor{b: reply}
		all, err = c.members(host)
	}
	if err == nil {
		reply, err = r.ask(conn, "CLUSTER", "SLOTS")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	c := cursor{b: reply}
	c.endpoints(all, host)
	return all, nil
}

// login sends the login of --redis, if it has one.
func (u *upstream) login(conn net.Conn, r *relay) (err error) {
	switch o := u.server; {
	case o.Password == "":
	case o.Username == "":
		_, err = r.ask(conn, "AUTH", o.Password)
	default:
		_, err = r.ask(conn, "AUTH", o.Username, o.Password)
	}
	return err
}

// ask sends a command of the proxy's own, and returns the reply, which is there until the next
// read.
func (r *relay) ask(conn io.Writer, args ...string) ([]byte, error) {
	b := appendHeader(nil, '*', len(args))
	for _, a := range args {
		b = append(append(appendHeader(b, '$', len(a)), a...), "\r\n"...)
	}
	if _, err := conn.Write(b); err != nil {
		return nil, err
	}
	reply, ok, err := r.whole()
	r.from = r.at // it is for nobody else
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", args[0], err)
	case !ok:
		return nil, fmt.Errorf("the reply to %s has more than %s", args[0], printable.Size(r.limit))
	case reply[0] == '-':
		return nil, fmt.Errorf("%s: %s", args[0], printable.Name(string(bytes.TrimSpace(reply[1:]))))
	}
	return reply, nil
}

// members reads the reply to CLUSTER NODES, from a server at a host.
func (c *cursor) members(from string) (all []member, err error) {
	text, ok := c.text()
	if !ok {
		return nil, malformed("CLUSTER NODES without a text")
	}
	owned := false // a server that was reset describes itself alone
	for line := range bytes.Lines(text) {
		var fields [9][]byte // of a line that may have millions
		n := 0
		for f := range bytes.FieldsSeq(line) {
			if fields[n] = f; n == len(fields)-1 {
				owned = true // a range of slots
				break
			}
			n++
		}
		if n < 8 {
			return nil, malformed("a node in %d words", n)
		}
		host, port, hostname, ok := splitNode(string(fields[1]))
		if !ok || len(fields[0]) > maxID || !isHost(string(fields[0])) || bytes.Contains(fields[0], []byte(":")) || transient(fields[2]) {
			continue
		}
		if len(all) == maxNodes {
			return nil, fmt.Errorf("the cluster has more than %d nodes", maxNodes)
		}
		host = cmp.Or(host, from)
		m := member{id: string(fields[0]), addr: net.JoinHostPort(host, port), names: []string{host + ":" + port}, failed: flagged(fields[2], "fail", "fail?")}
		if hostname != "" {
			m.names = append(m.names, hostname+":"+port)
		}
		all = append(all, m)
	}
	if !owned {
		return nil, errors.New("no node of the cluster has a slot")
	}
	return all, nil
}

// transient reports whether a node with these flags has no id or address that lasts.
func transient(flags []byte) bool { return flagged(flags, "handshake", "noaddr") }

// flagged reports whether a node has one of two flags: myself,master,fail.
func flagged(flags []byte, one, other string) bool {
	for f := range bytes.SplitSeq(flags, []byte(",")) {
		if string(f) == one || string(f) == other {
			return true
		}
	}
	return false
}

// splitNode splits the address of a node, 10.0.0.1:6379@16379,hostname,shard-id=1. Host and
// hostname may be empty.
func splitNode(s string) (host, port, hostname string, ok bool) {
	addr, more, _ := strings.Cut(s, ",")
	if hostname, _, _ = strings.Cut(more, ","); strings.Contains(hostname, "=") {
		hostname = ""
	}
	addr, _, _ = strings.Cut(addr, "@")
	host, port, ok = splitAddr(addr)
	return host, port, hostname, ok && (hostname == "" || isHost(hostname))
}

// splitAddr splits an address as servers write it: one of IPv6 has no brackets. The host may be
// empty.
func splitAddr(s string) (host, port string, ok bool) {
	at := strings.LastIndexByte(s, ':')
	if at < 0 {
		return "", "", false
	}
	host, port = s[:at], s[at+1:]
	n, err := strconv.ParseUint(port, 10, 16)
	return host, strconv.FormatUint(n, 10), err == nil && n > 0 && (host == "" || isHost(host))
}

// isHost reports whether a text may be a name or an IP address.
func isHost(s string) bool {
	return s != "" && len(s) <= maxHost && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(".-_:%", r)
	})
}

// endpoints reads the reply to CLUSTER SLOTS, which has the address that the cluster prefers.
func (c *cursor) endpoints(all []member, from string) {
	byID := map[string]*member{}
	for i := range all {
		byID[all[i].id] = &all[i]
	}
	for range c.elements() {
		for i := range c.elements() {
			if i < 2 {
				c.skip() // the slots
				continue
			}
			var endpoint []byte
			known := true // null is: at the address of the server that was asked
			var id []byte
			for j := range c.elements() {
				switch j {
				case 0:
					if known = c.b[c.at] == '$'; known {
						endpoint, _ = c.text()
						continue
					}
					known = c.b[c.at] == '_'
					c.skip()
				case 2:
					id, _ = c.text()
				default:
					c.skip()
				}
			}
			m, host := byID[string(id)], cmp.Or(string(endpoint), from)
			if m == nil || !known || !isHost(host) {
				continue
			}
			_, port, _ := net.SplitHostPort(m.addr)
			m.addr = net.JoinHostPort(host, port)
			if name := host + ":" + port; len(m.names) < maxPlaces && !slices.Contains(m.names, name) {
				m.names = append(m.names, name)
			}
		}
	}
}
