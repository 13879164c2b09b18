package proxy

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/balekv/bale/cmd/internal/printable"
)

// maxRedirect is the longest error in bytes that sends a client to another server.
const maxRedirect = 512

// The errors in place of those that would send a client past the proxy.
const (
	unserved  = "-TRYAGAIN the cluster names a node that bale proxy does not serve yet; its log has the address"
	elsewhere = "-BALE the server sends its clients to another one, past the proxy; give --redis that one, or its Sentinel"
)

// failure forwards an error. One that sends the client to another server gets the proxy's address
// for it.
func (c *client) failure() error {
	r := c.down
	word, err := c.ahead(len("-REDIRECT "))
	if err != nil {
		return err
	}
	single := c.proxy.cluster == nil // which has a replica's -REDIRECT alone
	switch {
	case word == "-REDIRECT ":
	case !single && (strings.HasPrefix(word, "-MOVED ") || strings.HasPrefix(word, "-ASK ")):
	default:
		return r.reply()
	}
	r.hold()
	line, err := r.line(maxRedirect, false)
	if err != nil {
		return err
	}
	text := string(line)
	start, _ := r.release()
	if err := r.upTo(start); err != nil {
		return err
	}
	r.from = r.at
	at := strings.LastIndexByte(text, ' ') + 1
	w := rewriting{client: c}
	switch n := w.node(c.absolute(text[at:])); {
	case n != nil && at < maxNumber: // with a slot
		c.fail(text[:at] + c.place(n))
	case single:
		c.fail(elsewhere)
	default:
		c.fail(unserved)
	}
	return nil
}

// absolute is an address whose host may be left out: it is then that of the server that said it.
func (c *client) absolute(addr string) string {
	if strings.HasPrefix(addr, ":") {
		host, _, _ := net.SplitHostPort(c.addr)
		return host + addr
	}
	return addr
}

// host is how clients are told to call the proxy: as this one does, unless an option says it.
func (c *client) host() string {
	if c.proxy.options.Announce != "" {
		return c.proxy.options.Announce
	}
	host, _, _ := net.SplitHostPort(c.conn.LocalAddr().String())
	return host
}

// place is the address of a node's listener, as servers write one.
func (c *client) place(n *node) string { return fmt.Sprintf("%s:%d", c.host(), n.port) }

// described forwards what a server says of the nodes of its cluster, with the proxy's addresses. A
// node without one is left out.
func (c *client) described(role role) error {
	r := c.down
	b, err := c.whole()
	if b == nil {
		return err
	}
	mark := len(r.out)
	w := rewriting{client: c, cursor: cursor{b: b}}
	switch role {
	case slots:
		w.slots()
	case shards:
		w.shards()
	default:
		w.lines()
	}
	r.from = r.at
	switch {
	case w.odd || w.at < len(b):
		r.out = r.out[:mark]
		return malformed("a description of a cluster in another form")
	case w.full:
		r.out = r.out[:mark]
		c.failed(errMemory)
	}
	return nil
}

// rewriting writes a reply again.
type rewriting struct {
	*client
	cursor
	full  bool // there was no memory
	odd   bool // no server sends it
	asked bool // for a node that was not known, which takes time
}

// node is one by its id or an address, or nil. If it is not known, the server is asked.
func (w *rewriting) node(name string) (n *node) {
	if cl := w.proxy.cluster; cl != nil {
		learned := 0
		if n, learned = cl.lookup(name); n == nil && !w.asked {
			w.asked = true
			cl.learn(w.client, learned)
			n, _ = cl.lookup(name)
		}
	}
	if n == nil {
		w.proxy.unserved(name)
	}
	return n
}

// unserved counts a server that clients must not be sent to. At most one a second has a line.
func (p *proxy) unserved(name string) {
	p.counters.unserved.Add(1)
	if show, _ := p.notes.allow(1); show {
		p.options.Notef("a reply names the server %q, which has no listener here; clients are not told", printable.Name(name))
	}
}

func (w *rewriting) put(b []byte) { w.full = w.full || !w.down.put(b) }

// keep writes the element at the cursor as it is.
func (w *rewriting) keep() {
	start := w.at
	w.cursor.skip()
	w.put(w.b[start:w.at])
}

// putHost and putPort write the proxy's in place of the element at the cursor.
func (w *rewriting) putHost() {
	w.cursor.skip()
	w.full = w.full || !w.down.putString([]byte(w.host()))
}

func (w *rewriting) putPort(n *node) {
	w.cursor.skip()
	w.put(appendHeader(nil, ':', n.port))
}

// each writes a list again. The function writes an element, or reports false to leave it out.
func (w *rewriting) each(write func(i int) bool) (left int) {
	start := w.at
	kind := w.b[start]
	n := w.elements()
	head := len(w.down.out)
	w.put(w.b[start:w.at]) // all of it, if it is no list
	length := w.at - start
	for i := range n {
		mark := len(w.down.out)
		if write(i) {
			left++
		} else if !w.full {
			w.down.out = w.down.out[:mark]
		}
	}
	w.odd = w.odd || left < n && kind == '%'
	if left < n && !w.full {
		w.down.out = slices.Replace(w.down.out, head, head+length, appendHeader(nil, kind, left)...)
	}
	return left
}

// pairs writes a map again, which has the form of a list in RESP2. The function writes a value, or
// reports false to keep it.
func (w *rewriting) pairs(write func(name string) bool) {
	name := ""
	w.each(func(i int) bool {
		if i%2 == 0 {
			ahead := w.cursor
			text, _ := ahead.text()
			name = string(text)
			w.keep()
		} else if !write(name) {
			w.keep()
		}
		return true
	})
}

// slots: a range is its first and last slot, the master and the replicas. Without the master it is
// left out.
func (w *rewriting) slots() {
	w.each(func(int) bool {
		master := true
		w.each(func(i int) bool {
			if i < 2 {
				w.keep()
				return true
			}
			ok := w.slotNode()
			master = master && (ok || i > 2)
			return ok
		})
		return master
	})
}

// slotNode: endpoint, port, id, and a map with more addresses.
func (w *rewriting) slotNode() bool {
	ahead := w.cursor
	id := []byte(nil)
	for i := range ahead.elements() {
		if i == 2 {
			id, _ = ahead.text()
			continue
		}
		ahead.skip()
	}
	n := w.node(string(id))
	if n == nil {
		w.cursor.skip()
		return false
	}
	w.each(func(i int) bool {
		switch i {
		case 0:
			w.putHost()
		case 1:
			w.putPort(n)
		case 3:
			w.pairs(w.address)
		default:
			w.keep()
		}
		return true
	})
	return true
}

// address writes the proxy's host in place of an address by its name. An empty one stays.
func (w *rewriting) address(name string) bool {
	switch name {
	case "ip", "endpoint":
	case "hostname":
		ahead := w.cursor
		if text, ok := ahead.text(); ok && len(text) == 0 {
			return false
		}
	default:
		return false
	}
	w.putHost()
	return true
}

// shards: a shard is a map of its slots and nodes, and a node is a map.
func (w *rewriting) shards() {
	w.each(func(int) bool {
		left := 0
		w.pairs(func(name string) bool {
			if name != "nodes" {
				return false
			}
			left = w.each(func(int) bool { return w.shardNode() })
			return true
		})
		return left > 0
	})
}

func (w *rewriting) shardNode() bool {
	ahead := w.cursor
	id, isID := "", false
	for i := range ahead.elements() {
		at := ahead
		text, _ := at.text()
		if isID && i%2 == 1 {
			id = string(text)
		}
		isID = i%2 == 0 && string(text) == "id"
		ahead.skip()
	}
	n := w.node(id)
	if n == nil {
		w.cursor.skip()
		return false
	}
	w.pairs(func(name string) bool {
		if name == "port" || name == "tls-port" {
			w.putPort(n)
			return true
		}
		return w.address(name)
	})
	return true
}

// lines: a text, or a list of texts.
func (w *rewriting) lines() {
	if w.b[w.at] == '*' {
		w.each(func(int) bool { return w.listing() })
		return
	}
	w.listing()
}

// listing: a text with a line for each node. It reports whether one is left.
func (w *rewriting) listing() (left bool) {
	start := w.at
	kind := w.b[start]
	text, ok := w.text()
	if !ok {
		w.put(w.b[start:w.at])
		return true
	}
	mark := len(w.down.out)
	var head [headRoom]byte
	w.put(head[:])
	if kind == '=' {
		w.put(text[:min(len(text), len("txt:"))])
		text = text[min(len(text), len("txt:")):]
	}
	for line := range bytes.Lines(text) {
		left = w.line(line) || left
	}
	if !w.full {
		n := len(w.down.out) - mark - headRoom
		w.down.out = slices.Replace(w.down.out, mark, mark+headRoom, appendHeader(nil, kind, n)...)
	}
	w.put([]byte("\r\n"))
	return left
}

// line: the id, the address, the flags, and more.
func (w *rewriting) line(line []byte) bool {
	id, rest, _ := bytes.Cut(line, []byte(" "))
	addr, rest, _ := bytes.Cut(rest, []byte(" "))
	if flags, _, _ := bytes.Cut(rest, []byte(" ")); transient(flags) { // clients do not use it either
		return false
	}
	n := w.node(string(id))
	if n == nil {
		return false
	}
	addr, more, hasMore := bytes.Cut(addr, []byte(","))
	w.put(fmt.Appendf(nil, "%s %s", id, w.place(n)))
	if _, bus, ok := bytes.Cut(addr, []byte("@")); ok {
		w.put(fmt.Appendf(nil, "@%s", bus))
	}
	if hasMore {
		hostname, _, _ := bytes.Cut(more, []byte(","))
		if w.put([]byte(",")); len(hostname) > 0 && !bytes.Contains(hostname, []byte("=")) {
			w.put([]byte(w.host()))
			more = more[len(hostname):]
		}
		w.put(more)
	}
	w.put([]byte(" "))
	w.put(rest)
	return true
}
