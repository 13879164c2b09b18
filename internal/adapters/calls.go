package adapters

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ErrHung is the error of a call that is not sent, because of [Calls]' bound.
var ErrHung = errors.New("not sent: the server does not answer, and earlier calls whose contexts have ended hold too much already")

const (
	// maxLate bounds the bytes of the calls that go on without their callers. So 2,000 of them have
	// room. A part of a cluster has a fourth of it: a server often has several.
	maxLate = 16 << 20

	// lateSize is what such a call takes beside its commands: two goroutines, most of all.
	lateSize = 8 << 10

	// CommandSize is what a command takes beside its value.
	CommandSize = 256

	// maxDirect is half of the commands that rueidis queues for a connection by default
	// (RingScaleEachConn). A command waits for room there, even if its context ends.
	maxDirect = 512

	// patience is how long a server answers nothing before calls to it fail at once. Every probeEvery
	// one of them is sent all the same, and less often when more than maxLate is held: its answer
	// ends that.
	patience   = 250 * time.Millisecond
	probeEvery = 100 * time.Millisecond

	// giveUp is longer than rueidis waits for a server by default: 10 s (ConnWriteTimeout), after
	// at most 1 s.
	giveUp = 15 * time.Second

	// parts of a cluster's slots, and one more.
	parts = 1 + slots>>partBits

	slots    = 1 << 14
	partBits = 10
)

// Part returns the part of a cluster for a slot, so that a hung server stops no calls to others. It
// returns 0 for a number that is not a slot.
func Part(slot uint16) int {
	if slot >= slots {
		return 0
	}
	return 1 + int(slot)>>partBits
}

// Calls are a Store's calls through a client that sends the commands of all callers over the same
// connections. While a server hangs, the client may not heed a context. The zero value is ready,
// and safe for concurrent use.
//
// [Send] ends a call with its context, and bounds what goes on without callers. It keeps the writes
// of a key in order: a write may still be on its way when its caller's context has ended. Then a
// later write of the key waits for it.
type Calls struct {
	late   atomic.Int64 // keys below, so that most calls need no lock
	mu     sync.Mutex
	keys   map[string]*lateWrites
	queued atomic.Int64 // calls that may have a place in the client's queues
	reads  [parts]side
	writes [parts]side // which may go to other servers than reads
}

// side are the reads of a part, or the writes.
type side struct {
	silent atomic.Int64 // since when no call has been answered, in Unix nanoseconds; 0 if the last one was
	probed atomic.Int64 // when a call was sent last though it might have failed at once, likewise
	bytes  atomic.Int64 // of the calls that go on without their callers
}

// left notes a call that ended with its context.
func (s *side) left() { s.silent.CompareAndSwap(0, time.Now().UnixNano()) }

// refuses reports whether a call is not sent: the calls that go on without callers hold enough, and
// the server has been silent for a while. Of a part with several servers one may answer: then eight
// times as much is enough.
func (s *side) refuses(part int) bool {
	held, most := s.bytes.Load(), int64(maxLate)
	if part > 0 {
		most /= 4
	}
	if held < most {
		return false
	}
	now, since, probed := time.Now().UnixNano(), s.silent.Load(), s.probed.Load()
	if held < 8*most && (since == 0 || now-since < int64(patience)) {
		return false
	}
	every := int64(probeEvery) * (held / most) // a probe holds its value, too
	return now-probed < every || !s.probed.CompareAndSwap(probed, now)
}

// lateWrites are the writes of a key that go on without their callers.
type lateWrites struct {
	n     int
	ended chan struct{} // closed when there are none
}

// Call describes a call.
type Call struct {
	Writes []string // the keys that it writes
	Bytes  int      // what it holds: its values, and CommandSize for each command
	Part   int      // see [Part]
	Always bool     // it is sent beyond the bound, too
}

// side is that of a call.
func (c *Calls) side(call *Call) *side {
	if len(call.Writes) > 0 {
		return &c.writes[call.Part]
	}
	return &c.reads[call.Part]
}

// Direct reports whether the client has room for a read, which then heeds its context. The caller
// needs no Send, but calls [Calls.Ended] when the read has ended.
func (c *Calls) Direct(part int) bool {
	if c.Silent(part) {
		return false
	}
	if c.queued.Add(1) <= maxDirect {
		return true
	}
	c.queued.Add(-1)
	return false
}

// Ended notes the end of a read that Direct has let through, with an error if the server has not
// answered. A call that ended with its context keeps its place in the client's queue, for at most
// giveUp.
func (c *Calls) Ended(ctx context.Context, part int, err error) { c.ended(ctx, &c.reads[part], err) }

func (c *Calls) ended(ctx context.Context, s *side, err error) {
	switch {
	case err == nil && s.silent.Load() != 0: // a needless write would cost the other cores' caches
		s.silent.Store(0)
	case err != nil && (ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)): // the connection may notice first
		s.left()
		if c.queued.Load() <= 2*maxDirect { // a bound for the timers
			time.AfterFunc(giveUp, func() { c.queued.Add(-1) })
			return
		}
	}
	c.queued.Add(-1)
}

// Silent reports whether a read of the part has ended with its context, and none has been answered
// since.
func (c *Calls) Silent(part int) bool { return c.reads[part].silent.Load() != 0 }

// Answered ends Silent of part 0: a call for several parts has been answered, part by part.
func (c *Calls) Answered() { c.reads[0].silent.Store(0) }

// Wait waits for the end of the writes of the keys that go on without their callers. It returns the
// error of ctx if that ends first.
func (c *Calls) Wait(ctx context.Context, keys ...string) error {
	for i := 0; i < len(keys) && c.late.Load() > 0; i++ {
		c.mu.Lock()
		late := c.keys[keys[i]]
		c.mu.Unlock()
		if late == nil {
			continue
		}
		select {
		case <-late.ended:
			i-- // or another one has begun
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Send waits for earlier writes of the call's keys and calls send, which returns when its commands
// cannot take effect any more. If ctx ends first, Send returns its error, and send goes on: it must
// not use what belongs to the caller. The client's own timeouts bound it. When the server has not
// answered for a while, and the calls of its side that go on without callers hold maxLate, the
// error is [ErrHung].
func Send[T any](ctx context.Context, c *Calls, call Call, send func() (T, error)) (T, error) {
	var none T
	side := c.side(&call) // alone for the goroutine: call stays on the stack
	if ctx.Done() != nil && !call.Always && side.refuses(call.Part) {
		return none, ErrHung
	}
	if err := c.Wait(ctx, call.Writes...); err != nil {
		return none, err
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	c.queued.Add(1)
	if ctx.Done() == nil {
		v, err := send()
		c.ended(ctx, side, err)
		return v, err
	}
	type outcome struct {
		v   T
		err error
	}
	sent := make(chan outcome, 1)
	go func() {
		v, err := send()
		c.ended(ctx, side, err)
		sent <- outcome{v, err}
	}()
	select {
	case o := <-sent:
		return o.v, o.err
	case <-ctx.Done():
	}
	side.left()
	end := c.begin(call, side)
	go func() {
		<-sent
		end()
	}()
	return none, ctx.Err()
}

// begin notes a call that goes on without its caller, until end is called.
func (c *Calls) begin(call Call, side *side) (end func()) {
	keys, size := slices.Clone(call.Writes), int64(lateSize+call.Bytes)
	side.bytes.Add(size)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys == nil {
		c.keys = map[string]*lateWrites{}
	}
	for _, key := range keys {
		if c.keys[key] == nil {
			c.keys[key] = &lateWrites{ended: make(chan struct{})}
			c.late.Add(1)
		}
		c.keys[key].n++
	}
	return func() {
		side.bytes.Add(-size)
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, key := range keys {
			if late := c.keys[key]; late.n == 1 {
				close(late.ended)
				delete(c.keys, key)
				c.late.Add(-1)
			} else {
				late.n--
			}
		}
	}
}
