package proxy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/balekv/bale/internal/rediscmd"
)

const (
	maxPool     = 1000     // connections
	maxAhead    = 128      // commands of a client whose replies are not there yet
	maxTogether = 1 << 20  // bytes that wait to be sent together; beyond them clients wait
	maxWaiting  = 64 << 10 // replies that a connection waits for, likewise: of clients that are gone, too

	// Seconds that a connection may owe replies while nothing comes: until other clients get another
	// one, if Redis answers there, and until it ends. The end is late, so that a Redis that is busy,
	// or pauses writes, loses no client.
	silentAfter = 2
	silentMost  = 30
)

// pool shares connections to Redis. A client has one of them until its first command with a state.
type pool struct {
	shared []*shared
	next   atomic.Uint64
	cancel func()
	work   sync.WaitGroup
}

// newPool makes a pool, which the caller closes. Connections are made when they are needed.
func (p *proxy) newPool(ctx context.Context, u *upstream) *pool {
	o := new(pool)
	ctx, o.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for range p.options.Pool {
		s := &shared{proxy: p, upstream: u, ctx: ctx}
		s.changed.L = &s.lock
		o.shared = append(o.shared, s)
	}
	o.work.Go(func() { o.watch(ctx, cmp.Or(p.options.second, time.Second)) })
	return o
}

// watch has silent connections looked for.
func (o *pool) watch(ctx context.Context, second time.Duration) {
	t := time.NewTicker(second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			for _, s := range o.shared {
				s.tick()
			}
		}
	}
}

// Close implements io.Closer.
func (o *pool) Close() error {
	o.cancel()
	o.work.Wait()
	for _, s := range o.shared {
		s.lock.Lock()
		s.die(s.link)
		s.die(s.old)
		s.lock.Unlock()
		s.work.Wait()
	}
	return nil
}

// stateless reports whether a command means the same on every connection, and does not wait.
func stateless(name string) bool {
	if spec, _ := table.Lookup(name); spec != nil {
		return spec.OneKey()
	}
	switch rediscmd.Passes(name) {
	case rediscmd.Numbers, rediscmd.NoValue, rediscmd.OtherTypes:
		return !waits[name] && name != "watch" && name != "unwatch"
	}
	return name == "ping"
}

// shared is one connection to Redis at a time, for many clients. Once it is silent there is another
// one, for clients that wait for no reply.
type shared struct {
	proxy    *proxy
	upstream *upstream
	ctx      context.Context
	work     sync.WaitGroup

	commands atomic.Int64 // since the start

	lock    sync.Mutex
	changed sync.Cond
	link    *link    // nil until a command needs it
	old     *link    // that before, which was silent and owes replies
	dialing *attempt // in progress
}

// link is a connection. What is sent and what is waited for change together, so that a reply never
// goes to another command.
type link struct {
	conn net.Conn
	out  []byte // to be sent
	wait []asked
	head int // wait[head:] are the replies to come
	dead bool

	reads   atomic.Int64 // that began and ended: odd while one waits
	before  int64        // reads at the last tick
	silence int          // ticks in which nothing came
}

// attempt is to make a connection.
type attempt struct {
	done bool
	err  error
}

// asked is a reply, and who waits for it.
type asked struct {
	client *client
	expected
}

// submit sends whole commands of a client, of which each has a reply.
func (s *shared) submit(c *client, commands []byte, replies []expected) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	l := s.linkOf(c)
	if l == nil || l.full() {
		var err error
		if l, err = s.await(c); err != nil {
			return err
		}
	}
	if c.ctx.Err() != nil {
		return errGone
	}
	c.link = l
	c.owed += len(replies)
	c.outbox.expect(len(replies))
	s.commands.Add(int64(len(replies)))
	l.out = append(l.out, commands...)
	for _, e := range replies {
		l.wait = append(l.wait, asked{c, e})
	}
	s.changed.Broadcast()
	return nil
}

// linkOf is the connection for a client's next commands. While one owes it replies it stays there,
// so that they keep their order. The lock is held.
func (s *shared) linkOf(c *client) *link {
	if c.owed > 0 {
		return c.link
	}
	return s.link
}

// await waits for a connection with room. At most one is made for it. The lock is held.
func (s *shared) await(c *client) (*link, error) {
	// The end of the client must be seen, too: Redis may never read again.
	stop := context.AfterFunc(c.ctx, func() {
		s.lock.Lock()
		defer s.lock.Unlock()
		s.changed.Broadcast()
	})
	defer stop()
	var a *attempt
	for s.ctx.Err() == nil && c.ctx.Err() == nil {
		l := s.linkOf(c)
		switch {
		case l != nil && !l.full():
			return l, nil
		case l == nil && a == nil:
			a = s.dial(false)
		case l == nil && a.done:
			err := cmp.Or(a.err, errGone)
			s.proxy.unreachable(c.ctx, s.upstream.server.Addr, err)
			return nil, err
		}
		s.changed.Wait()
	}
	return nil, errGone
}

// full reports whether more has to wait. The lock is held.
func (l *link) full() bool {
	return len(l.out) >= maxTogether || l.owes() >= maxWaiting
}

// owes is how many replies are to come. The lock is held.
func (l *link) owes() int { return len(l.wait) - l.head }

// Read implements io.Reader.
func (l *link) Read(b []byte) (int, error) {
	l.reads.Add(1)
	defer l.reads.Add(1)
	return l.conn.Read(b)
}

// silent reports whether replies are to come, and nothing has since the last tick. The time that
// the proxy itself takes for a reply does not count. The lock is held.
func (l *link) silent() bool {
	n := l.reads.Load()
	return n == l.before && n%2 == 1 && l.owes() > 0
}

// tick looks for silent connections. It counts ticks, so that a time in which the proxy was stopped
// is one.
func (s *shared) tick() {
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, l := range []*link{s.link, s.old} {
		if l == nil {
			continue
		}
		if l.silent() {
			l.silence++
		} else {
			l.before, l.silence = l.reads.Load(), 0
		}
		switch {
		case l == s.old && l.owes() == 0:
			s.die(l)
		case l.silence >= silentMost:
			s.proxy.ends("shared connection: Redis owes %d replies on it, and sent nothing for %d s", l.owes(), silentMost)
			s.die(l)
		case l == s.link && l.silence >= silentAfter && s.old == nil:
			s.dial(true)
		}
	}
}

// dial makes a connection without the lock, which is held. One in place of a silent one must
// answer, or it would be no better.
func (s *shared) dial(answer bool) *attempt {
	if s.dialing != nil {
		return s.dialing
	}
	a := new(attempt)
	s.dialing = a
	s.work.Go(func() {
		l, c, err := s.connect(answer)
		s.lock.Lock()
		defer s.lock.Unlock()
		defer s.changed.Broadcast()
		s.dialing, a.done, a.err = nil, true, err
		switch {
		case err != nil:
			return
		case s.ctx.Err() != nil || s.link != nil && !s.link.silent(): // it was not dead
			s.drop(l, c)
			return
		case s.link != nil:
			s.old = s.link
		}
		s.link = l
		s.proxy.counters.shared.Add(1)
		s.work.Go(func() { s.send(l) })
		s.work.Go(func() {
			err := s.receive(l, c)
			if errors.Is(err, errMalformed) {
				s.proxy.ends("shared connection: Redis sent %v", err)
			}
			s.lock.Lock()
			defer s.lock.Unlock()
			s.die(l)
			s.drop(l, c)
		})
	})
	return a
}

// connect makes a connection, and the client of nobody that reads from it.
func (s *shared) connect(answer bool) (*link, *client, error) {
	conn, err := s.upstream.dial(s.ctx, s.upstream.server.Addr)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(s.ctx, func() { _ = conn.Close() })
	defer stop()
	o, counters, l := &s.proxy.options, &s.proxy.counters, &link{conn: conn}
	c := &client{proxy: s.proxy, upstream: s.upstream, ctx: s.ctx, session: session{protocol: 2, missing: -1}}
	c.memory.all, c.memory.max = &s.proxy.memory, max(o.MaxMemory/4, 4*int64(o.MaxRequest))
	c.down = newRelay(l, nil, math.MaxInt, &c.memory, &counters.fromRedis, new(atomic.Int64))
	if err := s.upstream.greet(conn, c.down, answer); err != nil {
		s.drop(l, c)
		return nil, nil, err
	}
	return l, c, nil
}

// drop closes a connection that nobody reads from any more.
func (s *shared) drop(l *link, c *client) {
	_ = l.conn.Close()
	s.proxy.memory.give(int(c.memory.held.Load()))
}

// die ends a connection, and the clients that wait for replies of it. The lock is held.
func (s *shared) die(l *link) {
	if l != nil && !l.dead {
		l.dead = true
		s.proxy.counters.shared.Add(-1)
		_ = l.conn.Close()
		for _, a := range l.wait[l.head:] {
			a.client.cancel()
		}
		l.wait, l.head = nil, 0
		if s.link == l {
			s.link = nil
		}
		if s.old == l {
			s.old = nil
		}
	}
	s.changed.Broadcast()
}

// send sends what there is, all that came meanwhile together.
func (s *shared) send(l *link) {
	s.lock.Lock()
	defer s.lock.Unlock()
	var spare []byte
	for {
		for len(l.out) == 0 && !l.dead {
			s.changed.Wait()
		}
		// Clients that can run do so first. Or else each would wake this goroutine next, and hardly any
		// command would be sent together with others.
		s.lock.Unlock()
		runtime.Gosched()
		s.lock.Lock()
		if l.dead {
			return
		}
		b := l.out
		l.out = spare[:0]
		s.lock.Unlock()
		_, err := l.conn.Write(b)
		s.lock.Lock()
		if spare = b; cap(b) > 4*bufferSize {
			spare = nil
		}
		s.changed.Broadcast()
		if err != nil {
			s.die(l)
		}
	}
}

// receive hands replies to those who wait for them, until the connection ends.
func (s *shared) receive(l *link, c *client) error {
	r := c.down
	for {
		if err := r.settle(); err != nil {
			return err
		}
		if _, err := r.peek(); err != nil {
			return err
		}
		s.lock.Lock()
		if l.head == len(l.wait) {
			s.lock.Unlock()
			return errUnasked
		}
		a := l.wait[l.head]
		s.lock.Unlock()
		r.dst, c.growth = a.client.outbox, growth{}
		if err := c.element(a.expected, false); err != nil {
			return err
		}
		if err := r.flush(); err != nil {
			return err
		}
		if a.more != nil && !a.more.sent.IsZero() {
			s.proxy.slow(a.more, a.client.conn.RemoteAddr())
		}
		s.lock.Lock()
		if l.head < len(l.wait) { // it lives
			a.client.owed--
			l.wait[l.head] = asked{}
			if l.head++; l.head == len(l.wait) {
				l.wait, l.head = l.wait[:0], 0
			} else if l.head > len(l.wait)/2 && len(l.wait) == cap(l.wait) {
				l.wait, l.head = l.wait[:copy(l.wait, l.wait[l.head:])], 0
			}
			if len(l.wait)-l.head == maxWaiting-1 {
				s.changed.Broadcast()
			}
		}
		s.lock.Unlock()
		a.client.outbox.expect(-1)
	}
}

// outbox is replies for a client that shares a connection. The shared connection never waits for
// the client. A client that does not read its replies sends no more commands. It ends when the
// replies take more than a connection may hold.
type outbox struct {
	client  *client
	written chan struct{} // closed after the last byte

	lock     sync.Mutex
	changed  sync.Cond
	b        []byte
	taken    int // bytes of memory for b
	writing  int // and for what is being written
	limited  bool
	expected int // replies
	last     bool
	dead     bool
}

// Write implements io.Writer. It keeps a copy, or drops what nobody reads any more.
func (o *outbox) Write(b []byte) (int, error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	if need := len(o.b) + len(b); !o.dead && need > cap(o.b) {
		capacity := max(need, 2*cap(o.b))
		if capacity > keptOut && !o.client.memory.take(capacity) {
			o.client.proxy.ends("connection: replies that it does not read take more memory than there is (--max-memory)")
			o.kill()
		} else {
			o.b = append(make([]byte, 0, capacity), o.b...)
			if capacity > keptOut {
				o.client.memory.give(o.taken) // of the one before
				o.taken = capacity
				o.limit()
			}
		}
	}
	if !o.dead {
		o.b = append(o.b, b...)
		o.changed.Broadcast()
	}
	return len(b), nil
}

// limit gives the client time to read what takes memory, also while what takes none is written. The
// lock is held.
func (o *outbox) limit() {
	n := o.taken + o.writing
	o.client.deadline(o.client.conn.SetWriteDeadline, n)
	o.limited = n > 0
}

// kill drops everything, and ends the client. The lock is held.
func (o *outbox) kill() {
	o.dead, o.b = true, nil
	o.client.memory.give(o.taken)
	o.taken = 0
	o.client.cancel()
	o.changed.Broadcast()
}

// expect changes how many replies are to come.
func (o *outbox) expect(n int) {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.expected += n
	o.changed.Broadcast()
}

// room waits until the client may send more. It reports false if it is at its end.
func (o *outbox) room() bool {
	o.lock.Lock()
	defer o.lock.Unlock()
	for !o.dead && (o.expected >= maxAhead || len(o.b) > keptOut) {
		o.changed.Wait()
	}
	return !o.dead
}

// finish waits until the client has all its replies. It reports false if it never will.
func (o *outbox) finish() bool {
	o.lock.Lock()
	o.last = true
	o.changed.Broadcast()
	o.lock.Unlock()
	<-o.written
	o.lock.Lock()
	defer o.lock.Unlock()
	return !o.dead
}

// run writes to the client.
func (o *outbox) run() {
	defer close(o.written)
	c := o.client
	stop := context.AfterFunc(c.ctx, func() {
		o.lock.Lock()
		defer o.lock.Unlock()
		o.kill()
	})
	defer stop()
	var spare []byte
	o.lock.Lock()
	defer o.lock.Unlock()
	for {
		for len(o.b) == 0 && !o.dead && (!o.last || o.expected > 0) {
			o.changed.Wait()
		}
		if o.dead || len(o.b) == 0 {
			return
		}
		b := o.b
		o.b, o.taken, o.writing = spare[:0], 0, o.taken
		o.lock.Unlock()
		n, err := c.conn.Write(b)
		c.proxy.counters.toClients.Add(int64(n))
		o.lock.Lock()
		c.memory.give(o.writing)
		if o.writing = 0; o.limited {
			o.limit()
		}
		if spare = b; cap(b) > keptOut {
			spare = nil
		}
		o.changed.Broadcast()
		if err != nil && !o.dead {
			c.unread(err)
			o.kill()
		}
	}
}

// share has the client begin without a connection of its own.
func (c *client) share() {
	o := &outbox{client: c, written: make(chan struct{})}
	o.changed.L = &o.lock
	c.outbox = o
	all := c.upstream.pool.shared
	c.shared = all[c.upstream.pool.next.Add(1)%uint64(len(all))] // one, so that its commands keep their order
	c.up.dst = &c.sending
	c.up.after = func() error {
		if len(c.batch) == 0 {
			return nil
		}
		err := c.shared.submit(c, c.sending.Bytes(), c.batch)
		c.sending.Reset()
		c.batch = c.batch[:0]
		return err
	}
	go o.run()
}

// shares reports whether the next command can go over a shared connection. It is in the buffer as a
// whole then. If it cannot, a counter has its name.
func (c *client) shares() (bool, error) {
	r := c.up
	for {
		name, version, n, ok := wholeCommand(r.buf[r.at:r.end])
		switch {
		case !ok:
			c.proxy.counters.moved.add("")
			return false, nil
		case n > 0, r.end-r.at == len(r.buf):
			name := c.lower(name[:min(len(name), maxName)])
			if n == 0 || !stateless(name) && (name != "hello" || version != "" && version != "2") {
				c.proxy.counters.moved.add(name)
				return false, nil
			}
			if len(c.batch) >= maxAhead {
				if err := r.flush(); err != nil {
					return false, err
				}
			}
			if !c.outbox.room() {
				return false, errGone
			}
			c.submitted = c.submitted || name != "ping" && name != "hello"
			return true, nil
		}
		if err := r.more(); err != nil {
			return false, err
		}
	}
}

// wholeCommand looks at the command that b starts with. Its length is 0 if it is not whole yet; its
// name may be there then. It reports false for one that is of no use on a shared connection:
// without lengths, or malformed. The version is the argument of HELLO, if there is one and no more.
func wholeCommand(b []byte) (name []byte, version string, length int, ok bool) {
	at := 0
	number := func(kind byte) (n int64, whole, ok bool) {
		i := bytes.IndexByte(b[at:], '\n')
		if i < 0 {
			return 0, false, len(b)-at <= maxNumber && (at == len(b) || b[at] == kind)
		}
		line := b[at : at+i]
		at += i + 1
		if len(line) < 3 || line[0] != kind || line[i-1] != '\r' {
			return 0, true, false
		}
		n, ok = parseInt(line[1 : i-1])
		return n, true, ok && n >= 0
	}
	n, whole, ok := number('*')
	if !whole || !ok || n == 0 {
		return nil, "", 0, ok && !whole
	}
	for i := range n {
		size, whole, ok := number('$')
		switch {
		case !ok, i == 0 && size > maxName:
			return nil, "", 0, false
		case !whole, size > int64(len(b)-at-2):
			return name, "", 0, true
		case string(b[at+int(size):at+int(size)+2]) != "\r\n":
			return nil, "", 0, false
		}
		arg := b[at : at+int(size)]
		switch {
		case i == 0:
			name = arg
		case n == 2 && size == 1:
			version = string(arg)
		default:
			version = "x"
		}
		at += int(size) + 2
	}
	return name, version, at, true
}

// greet logs in as --redis says, on a connection that a relay reads from. If asked to, it waits for
// an answer where no login does.
func (u *upstream) greet(conn net.Conn, r *relay, answer bool) error {
	if err := conn.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return err
	}
	if err := u.login(conn, r); err != nil {
		return err
	}
	if answer {
		if _, err := r.ask(conn, "PING"); err != nil {
			return err
		}
	}
	return conn.SetDeadline(time.Time{})
}
