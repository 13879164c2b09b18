package goredis

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/rediscmd"
	"github.com/balekv/bale/stats"
)

// maxRecordings is the longest pipeline whose recordings are kept for the next one: some 200 KB.
const maxRecordings = 1000

// clock is where times are counted from: reading the monotonic clock alone takes half as long as
// reading both.
var clock = time.Now()

// recording is a command in flight whose Event goes to the Recorder. The nil and the zero recording
// send none.
type recording struct {
	on       bool
	unpacked bool // a value of the reply was
	reply    rediscmd.Reply
	event    stats.Event
	last     time.Duration // since clock, when the stage before ended
}

// begin starts the recording of a command that has keys in scope.
func (h *Hook) begin(ctx context.Context, rec *recording, spec *rediscmd.Command[any], c *call) {
	op, ok := spec.Operation(c.Reply)
	if !ok {
		return
	}
	counted := c.Keys
	if op == stats.Set || op == stats.SetMany {
		counted = c.Values
	}
	args := c.cmd.Args()
	keys := int32(0)
	for i := counted.First; i <= counted.Last; i += counted.Step {
		at := i
		if counted == c.Values {
			at = c.KeyOf(i)
		}
		if h.scope.Has(text(args[at])) {
			keys++
		}
	}
	if keys == 0 {
		return
	}
	rec.on, rec.reply = true, c.Reply
	rec.event.Op, rec.event.Keys = op, keys
	if rec.event.Timed = h.options.Recorder.Timed(ctx); rec.event.Timed {
		rec.start()
	}
}

// start is when the next stage begins.
func (r *recording) start() {
	if r != nil && r.event.Timed {
		r.last = time.Since(clock)
	}
}

// stage says that a stage has ended, which began when the one before did.
func (r *recording) stage(s stats.Stage) {
	if r != nil && r.event.Timed {
		now := time.Since(clock)
		r.event.Times[s] += now - r.last
		r.last = now
	}
}

// stored counts a value as it is in Redis, and says how it is packed.
func (r *recording) stored(value []byte) {
	plain := len(value)
	h, _, ok := frame.Parse(value)
	if ok {
		plain = int(h.Length)
	}
	r.event.Algorithm, r.event.DictionaryID = h.Algorithm, h.DictionaryID
	r.event.Plain += plain
	r.event.Stored += len(value)
}

// read counts a value of the reply of a command that reads; of one that writes, the old value is
// not counted.
func (r *recording) read(value string) {
	if r != nil && r.on && r.reads() {
		r.event.Hits++
		r.stored(unsafeBytes(value))
	}
}

// missed counts a value of the reply that is not there.
func (r *recording) missed() {
	if r != nil && r.on && r.reads() {
		r.event.Misses++
	}
}

func (r *recording) reads() bool { return r.event.Op == stats.Get || r.event.Op == stats.GetMany }

// tell tells the Recorder of a command that has ended, of which failed values could not be
// unpacked.
func (h *Hook) tell(ctx context.Context, r *recording, err error, failed int) {
	if r == nil || !r.on {
		return
	}
	e := &r.event
	if r.unpacked {
		r.stage(stats.Unpack)
	}
	keyed := r.reply == rediscmd.OneValue || r.reply == rediscmd.KeyValues || !r.reads()
	switch {
	case err == redis.Nil && r.reads():
		e.Hits, e.Misses = 0, e.Keys
	case err == redis.Nil: // SET with NX, or with GET of a key that was not there
	case err != nil && failed == 0:
		e.Class = bale.ErrorClass(err)
		e.Hits, e.Misses, e.Errors = 0, 0, e.Keys
	default:
		if failed > 0 {
			e.Class, e.Errors = bale.ErrorClass(err), int32(failed)
		}
		if keyed && r.reads() {
			e.Hits = e.Keys - e.Misses - e.Errors // those that are no bytes, too
		} else if !keyed {
			// The fields that there are: a hash that is not there is one miss, but a page of a scan
			// may just be empty.
			if e.Hits+e.Misses+e.Errors == 0 && r.reply != rediscmd.ScanValues {
				e.Misses = 1
			}
			e.Keys = e.Hits + e.Misses + e.Errors
		}
	}
	h.options.Recorder.Record(ctx, r.event)
}

// countPlain counts values that are written as they are. What looks like a frame may be anybody's
// bytes: its header is not believed.
func (h *Hook) countPlain(rec *recording, c *call) {
	args := c.cmd.Args()
	for i := c.Values.First; i <= c.Values.Last; i += c.Values.Step {
		if !h.scope.Has(text(args[c.KeyOf(i)])) {
			continue
		}
		n := 0
		switch v := args[i].(type) { // what marshals itself does so once, for go-redis
		case string:
			n = len(v)
		case []byte:
			n = len(v)
		}
		rec.event.Plain += n
		rec.event.Stored += n
	}
}

// recordings are those of the commands of a pipeline, or of one command. A nil one is of a hook
// without a Recorder.
type recordings struct{ of []recording }

// recordingsOf has n recordings. It is taken from a pool, where done puts it unless a hook further
// down panics.
func (h *Hook) recordingsOf(n int) *recordings {
	if h.options.Recorder == nil {
		return nil
	}
	r := h.recordings.Get().(*recordings)
	r.of = slices.Grow(r.of[:0], n)[:n]
	clear(r.of)
	return r
}

func (h *Hook) done(r *recordings) {
	if r != nil && cap(r.of) <= maxRecordings {
		h.recordings.Put(r)
	}
}

// at is the i-th recording.
func (r *recordings) at(i int) *recording {
	if r == nil {
		return nil
	}
	return &r.of[i]
}

// sent says when the pipeline was sent. The round trip is that of each of its commands.
func (r *recordings) sent(since time.Duration) {
	if r == nil {
		return
	}
	took := time.Since(clock) - since
	for i := range r.of {
		if r.of[i].event.Timed {
			r.of[i].event.Times[stats.Store] = took
		}
	}
}
