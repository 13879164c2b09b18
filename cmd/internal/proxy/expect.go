package proxy

import (
	"sync"

	"github.com/balekv/bale/internal/rediscmd"
)

// maxExpected bounds the replies that are waited for, in runs of like ones: 6 MiB a connection, and
// at most as much again for their details. Beyond it the client waits. A transaction has at most as
// many commands.
const (
	maxExpected = 1 << 18
	perExpected = 24 // bytes
)

// role is what a reply means for the connection.
type role uint8

const (
	plain       role = iota // nothing, but it may hold values
	refused                 // of the command in place of one that was not sent
	last                    // likewise, and the end of the connection
	multi                   // MULTI
	exec                    // EXEC
	discard                 // DISCARD
	immediate               // WATCH, QUIT: is not queued in a transaction
	reset                   // RESET
	hello                   // HELLO, with a version
	replyOn                 // CLIENT REPLY ON
	replyOff                // CLIENT REPLY OFF, for which ON was sent
	replySkip               // CLIENT REPLY SKIP, likewise
	subscribe               // SUBSCRIBE and the like, with a confirmation for each channel
	unsubscribe             // UNSUBSCRIBE and the like, without channels: all
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
	number  int    // of channels, or the version of the protocol
	channel string // the kind of confirmation: "subscribe"
}

// weight is how many bytes the details take.
func (e *expected) weight() int {
	if e.more == nil {
		return 0
	}
	return 64 + len(e.more.scope) + len(e.more.text)
}

func (e *expected) like(o *expected) bool {
	return e.role == o.role && e.reply == o.reply && e.more == o.more
}

// runs is a list of replies.
type runs struct {
	list []expected
	head int
}

func (r *runs) push(e expected) {
	if n := len(r.list); n > r.head && r.list[n-1].like(&e) && r.list[n-1].n < 1<<30 {
		r.list[n-1].n++
		return
	}
	if r.head > len(r.list)/2 && len(r.list) == cap(r.list) { // before it grows
		r.list = r.list[:copy(r.list, r.list[r.head:])]
		r.head = 0
	}
	e.n = 1
	r.list = append(r.list, e)
}

func (r *runs) pop() {
	if r.list[r.head].n--; r.list[r.head].n > 0 {
		return
	}
	r.list[r.head] = expected{}
	if r.head++; r.head == len(r.list) {
		r.head = 0
		if r.list = r.list[:0]; cap(r.list) > 1024 {
			r.list = nil
		}
	}
}

func (r *runs) size() int { return len(r.list) - r.head }

// queue are the replies that are waited for. The requests' side adds, the replies' side takes.
type queue struct {
	lock    sync.Mutex
	changed sync.Cond
	runs
	weight int  // of all
	ended  bool // no more come
	dead   bool // nobody takes any more
}

func newQueue() *queue {
	q := new(queue)
	q.changed.L = &q.lock
	return q
}

// add adds a reply.
func (q *queue) add(e expected) {
	q.lock.Lock()
	defer q.lock.Unlock()
	q.push(e)
	q.weight += e.weight()
}

// full reports that there are too many, so that more have to wait.
func (q *queue) full() bool {
	q.lock.Lock()
	defer q.lock.Unlock()
	return q.tooMany()
}

func (q *queue) tooMany() bool {
	return q.size() >= maxExpected || q.weight >= maxExpected*perExpected
}

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
	q.weight -= q.list[q.head].weight()
	q.pop()
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
