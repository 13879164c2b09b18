package bale

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stats"
)

// clock is where times are counted from: reading the monotonic clock alone takes half as long as
// reading both.
var clock = time.Now()

// recording is an operation in flight whose Event goes to the Recorder. Without a Recorder it does
// nothing.
type recording struct {
	recorder stats.Recorder
	event    stats.Event
	last     time.Duration // since clock, when the stage before ended
}

// begin is for a zero recording. It is filled in its place, for a copy would be a tenth of what
// recording costs.
func (r *recording) begin(ctx context.Context, recorder stats.Recorder, op stats.Op, keys int) {
	if recorder == nil {
		return
	}
	r.recorder = recorder
	r.event.Op, r.event.Keys = op, int32(keys)
	if r.event.Timed = recorder.Timed(ctx); r.event.Timed {
		r.last = time.Since(clock)
	}
}

// stage says that a stage has ended, which began when the one before did.
func (r *recording) stage(s stats.Stage) {
	if r.event.Timed {
		now := time.Since(clock)
		r.event.Times[s] += now - r.last
		r.last = now
	}
}

// packed says how a value is stored.
func (r *recording) packed(how readerKey, plain, stored int) {
	r.event.Algorithm, r.event.DictionaryID = how.algorithm, how.dictionary
	r.event.Plain += plain
	r.event.Stored += stored
}

// grown says how large a buffer was before it was used.
func (r *recording) grown(before int, b []byte) {
	if cap(b) != before {
		r.event.Fresh++
	}
}

// end tells the Recorder. An operation of one key that failed has one error.
func (r *recording) end(ctx context.Context, err error) {
	if r.recorder == nil {
		return
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		r.event.Class = ErrorClass(err)
		if r.event.Keys == 1 {
			r.event.Errors = 1
		}
	}
	r.recorder.Record(ctx, r.event)
}

// ErrorClass returns the class under which a Recorder sees an error of bale's packages. For a
// [KeyErrors] it is the class of the first error. An error with the method Class() stats.Class says
// it itself.
func ErrorClass(err error) stats.Class {
	if err == nil {
		return stats.OK
	}
	if many, ok := errors.AsType[KeyErrors](err); ok && len(many) > 0 {
		err = many[0]
	}
	if classified, ok := errors.AsType[interface {
		error
		Class() stats.Class
	}](err); ok {
		return classified.Class()
	}
	for _, c := range []struct {
		err   error
		class stats.Class
	}{
		{context.Canceled, stats.Canceled}, {context.DeadlineExceeded, stats.Timeout}, {os.ErrDeadlineExceeded, stats.Timeout},
		{ErrCorrupt, stats.Corrupt}, {ErrTooLarge, stats.TooLarge}, {ErrBudget, stats.TooLarge}, {ErrUnknownDictionary, stats.UnknownDictionary},
		{ErrUnknownAlgorithm, stats.UnknownAlgorithm}, {ErrCodec, stats.Codec}, {ErrInvalid, stats.Invalid},
	} {
		if errors.Is(err, c.err) {
			return c.class
		}
	}
	if _, ok := errors.AsType[*errLoad](err); ok {
		return stats.Loader
	}
	if timeout, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && timeout.Timeout() {
		return stats.Timeout
	}
	return stats.Server
}

// freshness is the freshness of a read value; zero if the value carries none.
type freshness struct{ frame.Freshness }

// expired reports whether the value remains only for the case that a load fails.
func (f *freshness) expired(now func() time.Time) bool {
	return !f.Expires.IsZero() && !now().Before(f.Expires)
}
