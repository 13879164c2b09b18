package adapters

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxLate bounds the bytes of the calls that go on without their callers. So 2,000 of them have
	// room. Calls to a server that may answer go on until they hold ceiling.
	maxLate = 16 << 20
	ceiling = 8 * maxLate

	// lateSize is what such a call takes beside its commands: two goroutines, most of all.
	lateSize = 8 << 10

	// CommandSize is what a command takes beside its value.
	CommandSize = 256

	// maxDirect is half of the commands that rueidis queues for a connection by default
	// (RingScaleEachConn). A command waits for room there, even if its context ends.
	maxDirect = 512

	// giveUp is longer than rueidis waits for a server by default: 10 s (ConnWriteTimeout), after
	// at most 1 s.
	giveUp = 15 * time.Second

	// parts of a cluster's slots, and one more.
	parts = 1 + slots>>partBits

	slots    = 1 << 14
	partBits = 6
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
	keyed  atomic.Int64 // len(keys), so that most calls need no lock
	held   atomic.Int64 // bytes of the calls that go on without their callers
	reads  [parts]side
	writes [parts]side  // which may go to other servers than reads
	queued atomic.Int64 // calls that may have a place in the client's queues

	mu    sync.Mutex
	keys  map[string]*lateWrites
	freed chan struct{} // closed when there is room again; nil if no call waits
}

// side are the reads of a part, or the writes.
type side struct {
	silent atomic.Bool  // a call has ended with its context, and none has been answered since
	held   atomic.Int64 // bytes of its calls that go on without their callers
}

// full reports whether a call of the side waits for the end of earlier ones.
func (c *Calls) full(s *side) bool {
	held := c.held.Load()
	return held >= maxLate && (s.held.Load() > 0 || held >= ceiling)
}

// room waits until a call of the side may be sent. It returns the error of ctx if that ends first.
func (c *Calls) room(ctx context.Context, s *side) error {
	for c.full(s) {
		c.mu.Lock()
		if c.freed == nil {
			c.freed = make(chan struct{})
		}
		freed := c.freed
		c.mu.Unlock()
		if !c.full(s) { // it may have been freed before
			break
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return ctx.Err()
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
	Always bool     // it does not wait for room
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
	if c.reads[part].silent.Load() {
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
	if s.note(ctx, err) && c.queued.Load() <= 2*maxDirect { // a bound for the timers
		time.AfterFunc(giveUp, func() { c.queued.Add(-1) })
		return
	}
	c.queued.Add(-1)
}

// note notes whether a call has been answered, and reports whether it has ended with its context.
func (s *side) note(ctx context.Context, err error) (left bool) {
	// The connection may notice the deadline first.
	left = err != nil && (ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded))
	// A needless write would cost the other cores' caches.
	if (left || err == nil) && s.silent.Load() != left {
		s.silent.Store(left)
	}
	return left
}

// ReadsApart reports whether the reads of a part of a cluster are sent apart from those of other
// parts, because their server may hang.
func (c *Calls) ReadsApart(part int) bool { return c.apart(&c.reads, part) }

// WritesApart is ReadsApart for writes.
func (c *Calls) WritesApart(part int) bool { return c.apart(&c.writes, part) }

func (c *Calls) apart(sides *[parts]side, part int) bool {
	return part != 0 && (sides[part].silent.Load() || c.full(&sides[0]))
}

// NoteRead notes for ReadsApart what became of a read that was sent with those of other parts: an
// error if the server has not answered.
func (c *Calls) NoteRead(ctx context.Context, part int, err error) { c.reads[part].note(ctx, err) }

// NoteWrite is NoteRead for writes.
func (c *Calls) NoteWrite(ctx context.Context, part int, err error) { c.writes[part].note(ctx, err) }

// Wait waits for the end of the writes of the keys that go on without their callers. It returns the
// error of ctx if that ends first.
func (c *Calls) Wait(ctx context.Context, keys ...string) error {
	for i := 0; i < len(keys) && c.keyed.Load() > 0; i++ {
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

// Left returns the context of a call that may go on without its caller. No wait for an answer ends
// with ctx. But a client that looks at Err before each attempt sends nothing once ctx has ended.
func Left(ctx context.Context) context.Context { return left{context.WithoutCancel(ctx), ctx} }

type left struct {
	context.Context
	caller context.Context
}

func (l left) Err() error { return l.caller.Err() }

// Send waits for earlier writes of the call's keys and calls send, which returns when its commands
// cannot take effect any more. If ctx ends first, Send returns its error, and send goes on: it must
// not use what belongs to the caller. The client's own timeouts bound what it waits for. While the
// calls that go on without callers hold maxLate, Send waits for their end, too.
func Send[T any](ctx context.Context, c *Calls, call Call, send func() (T, error)) (T, error) {
	var none T
	side := c.side(&call) // alone for the goroutine: call stays on the stack
	if ctx.Done() != nil && !call.Always {
		if err := c.room(ctx, side); err != nil {
			return none, err
		}
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
	side.silent.Store(true)
	end := c.begin(call, side)
	go func() {
		<-sent
		end()
	}()
	return none, ctx.Err()
}

// begin notes a call that goes on without its caller, until end is called.
func (c *Calls) begin(call Call, s *side) (end func()) {
	keys, size := slices.Clone(call.Writes), int64(lateSize+call.Bytes)
	s.held.Add(size)
	c.held.Add(size)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys == nil {
		c.keys = map[string]*lateWrites{}
	}
	for _, key := range keys {
		if c.keys[key] == nil {
			c.keys[key] = &lateWrites{ended: make(chan struct{})}
			c.keyed.Add(1)
		}
		c.keys[key].n++
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, key := range keys {
			if late := c.keys[key]; late.n == 1 {
				close(late.ended)
				delete(c.keys, key)
				c.keyed.Add(-1)
			} else {
				late.n--
			}
		}
		own, all := s.held.Add(-size), c.held.Add(-size)
		falls := func(below int64) bool { return all < below && all+size >= below }
		if c.freed != nil && (own == 0 || falls(maxLate) || falls(ceiling)) {
			close(c.freed)
			c.freed = nil
		}
	}
}
