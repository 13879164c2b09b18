package proxy

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/balekv/bale/internal/rediscmd"
)

// The replies that a connection waits for, in runs of like ones. Beyond maxExpected the client
// waits. A transaction keeps those of its commands until EXEC.
const (
	perExpected  = 48 // bytes of a run, and of the room that a list has for more
	freeExpected = 4 << 10
	maxExpected  = 256 << 10 // bytes, and one command beyond them
	maxQueued    = 12 << 20  // bytes of a transaction
)

// role is what a reply means for the connection.
type role uint8

const (
	plain       role = iota // nothing, but it may hold values
	probe                   // PING of the proxy, which asks whether the client is logged in
	refused                 // of the command in place of one that was not sent
	last                    // likewise, and the end of the connection
	multi                   // MULTI
	exec                    // EXEC
	discard                 // DISCARD
	immediate               // WATCH, QUIT: is not queued in a transaction
	reset                   // RESET
	hello                   // HELLO, with a version
	slots                   // CLUSTER SLOTS, of a cluster; and the role of all CLUSTER commands as they come
	shards                  // CLUSTER SHARDS
	nodeLines               // CLUSTER NODES, CLUSTER REPLICAS
	replyOn                 // CLIENT REPLY ON
	replyOff                // CLIENT REPLY OFF, for which ON was sent
	replySkip               // CLIENT REPLY SKIP, likewise
	subscribe               // SUBSCRIBE and the like, with a confirmation for each channel
	unsubscribe             // UNSUBSCRIBE and the like, without channels: all
	login                   // AUTH
	monitor                 // MONITOR; what is listed from replyOn on cannot be queued
)

// expected is a reply that is waited for.
type expected struct {
	role  role
	reply rediscmd.Reply // where it holds values
	n     uint32         // as many like it follow each other
	more  *details
}

// details are what only some replies have. They are not changed.
type details struct {
	text    string // of the error, for refused and last
	scope   []bool // which elements are values of keys in scope; nil for all
	number  int    // of channels, or the version of the protocol, or the bytes that the transaction holds
	channel string // the kind of confirmation: "subscribe"

	// With a slow log.
	sent      time.Time
	name, key string   // of the command; the key where the table knows it
	untimed   *details // what the reply has without the log, for EXEC
}

// weight is how many bytes it takes, the details included.
func (e *expected) weight() int {
	if e.more == nil {
		return perExpected
	}
	n := perExpected + 128 + len(e.more.scope) + len(e.more.text) + len(e.more.key)
	if e.more.untimed != nil {
		n += 128
	}
	return n
}

func (e *expected) like(o *expected) bool {
	return e.role == o.role && e.reply == o.reply && e.more == o.more
}

// runs is a list of replies.
type runs struct {
	list []expected
	head int
}

// push adds a reply. It reports whether that starts a run.
func (r *runs) push(e expected) bool {
	if n := len(r.list); n > r.head && r.list[n-1].like(&e) && r.list[n-1].n < 1<<30 {
		r.list[n-1].n++
		return false
	}
	if r.head > len(r.list)/2 && len(r.list) == cap(r.list) { // before it grows
		r.list = r.list[:copy(r.list, r.list[r.head:])]
		r.head = 0
	}
	e.n = 1
	r.list = append(r.list, e)
	return true
}

// pop removes the first. It reports whether that ends a run.
func (r *runs) pop() bool {
	if r.list[r.head].n--; r.list[r.head].n > 0 {
		return false
	}
	r.list[r.head] = expected{}
	if r.head++; r.head == len(r.list) {
		r.head = 0
		if r.list = r.list[:0]; cap(r.list) > freeExpected/perExpected {
			r.list = nil
		}
	}
	return true
}

func (r *runs) size() int { return len(r.list) - r.head }

// queue are the replies that are waited for. The requests' side adds, the replies' side takes.
type queue struct {
	lock    sync.Mutex
	changed sync.Cond
	runs
	share
	known *atomic.Bool // the client is logged in; before, it has what is free
	ended bool         // no more come
	dead  bool         // nobody takes any more
}

// share is what one of a connection's lists takes of its memory, beyond what is free.
type share struct {
	memory *memory
	used   int // bytes
	taken  int // bytes, beyond freeExpected
}

// fits takes memory ahead. It reports false if there is none.
func (s *share) fits() bool {
	for s.used >= s.taken+freeExpected {
		n := s.taken + freeExpected
		if !s.memory.take(n) {
			return false
		}
		s.taken += n
	}
	return true
}

// use counts what is there, beyond what fits if it has to be.
func (s *share) use(n int) {
	s.used += n
	if n = s.used - s.taken - freeExpected; n > 0 {
		s.memory.add(n)
		s.taken += n
	}
}

func newQueue(m *memory, known *atomic.Bool) *queue {
	q := &queue{share: share{memory: m}, known: known}
	q.changed.L = &q.lock
	return q
}

// add adds a reply.
func (q *queue) add(e expected) {
	q.lock.Lock()
	defer q.lock.Unlock()
	if q.push(e) {
		q.use(e.weight())
	}
}

// full reports that there are too many, so that more have to wait.
func (q *queue) full() bool {
	q.lock.Lock()
	defer q.lock.Unlock()
	return q.tooMany()
}

func (q *queue) tooMany() bool {
	return q.size() > 0 && (q.used >= maxExpected || q.used >= freeExpected && !q.known.Load() || !q.fits())
}

// long reports that they take a quarter of what they may.
func (q *queue) long() bool {
	q.lock.Lock()
	defer q.lock.Unlock()
	return q.used >= maxExpected/4
}

func (q *queue) any() bool { return q.size() > 0 }

// first is the reply that is waited for first.
func (q *queue) first() (e expected, ok bool) {
	q.lock.Lock()
	defer q.lock.Unlock()
	if q.size() == 0 {
		return e, false
	}
	return q.list[q.head], true
}

// take removes the first. It reports whether that was the last one there will be.
func (q *queue) take() (done bool) {
	q.lock.Lock()
	defer q.lock.Unlock()
	weight := q.list[q.head].weight()
	if q.pop() {
		q.used -= weight
	}
	if q.size() == 0 {
		q.memory.give(q.taken)
		q.taken = 0
	}
	q.changed.Broadcast()
	return q.ended && q.size() == 0
}

// end says that no more come. It reports whether none is waited for.
func (q *queue) end() (done bool) {
	q.lock.Lock()
	defer q.lock.Unlock()
	q.ended = true
	return q.size() == 0
}

// die says that nobody takes any more.
func (q *queue) die() {
	q.lock.Lock()
	defer q.lock.Unlock()
	q.dead = true
	q.changed.Broadcast()
}

// wait waits while busy reports true. It reports false if nobody takes them any more.
func (q *queue) wait(busy func(*queue) bool) bool {
	q.lock.Lock()
	defer q.lock.Unlock()
	for busy(q) && !q.dead {
		q.changed.Wait()
	}
	return !q.dead
}

// drained reports that no more come, and none is waited for.
func (q *queue) drained() bool {
	q.lock.Lock()
	defer q.lock.Unlock()
	return q.ended && q.size() == 0
}
