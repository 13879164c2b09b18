// Package stats records cache operations. No event has a key or a value.
package stats

import (
	"context"
	"fmt"
	"time"

	"github.com/balekv/bale/frame"
)

// Recorder receives each operation of a Cache as an [Event], synchronously. [Counters] is the one
// for most programs. [Ring] moves events off the hot path. Module otelbale has one for
// OpenTelemetry. An implementation must be safe for concurrent use, and fast: the caller waits for
// it.
type Recorder interface {
	// Timed reports whether to time the operation that begins. Clock readings between all stages
	// (25 ns each) cost more than the rest of a recorder, so a recorder may choose a sample.
	Timed(ctx context.Context) bool

	// Record receives an operation that has ended, with the caller's context.
	Record(ctx context.Context, e Event)
}

// Event is one operation, without keys and values.
type Event struct {
	Op    Op
	Class Class // of the error; of many keys the first one's

	// Keys of the operation are Hits, Misses (reads of missing keys), Errors, or, for operations
	// other than reads, successes.
	Keys, Hits, Misses, Errors int32

	// Algorithm and DictionaryID describe the packed value, or the last of many; Stored for a plain
	// one.
	Algorithm    frame.Algorithm
	DictionaryID frame.DictionaryID

	// Fresh is how many buffers the operation had to allocate or grow, because none could be
	// reused.
	Fresh int32

	// Plain and Stored are the bytes of the values, serialized and as stored in Redis.
	Plain, Stored int

	// Timed says whether Times are set: see [Recorder].Timed. Stages that the operation does not
	// have are zero.
	Timed bool
	Times [Stages]time.Duration
}

// Total is how long the operation took, if it was timed.
func (e *Event) Total() time.Duration {
	var t time.Duration
	for _, d := range e.Times {
		t += d
	}
	return t
}

// Op is a kind of operation.
type Op uint8

// The operations. The numbers are part of the file format of package eventfile: appended, never
// changed.
const (
	Get Op = iota
	Set
	GetMany
	SetMany
	Delete
	Touch
	Load    // a value was fetched from where it comes from: the loader of GetOrLoad
	Refresh // the same, ahead of the value's expiry
	Flush   // a Batch sent what it held
	Stale   // GetOrLoad returned an old value, because no new one came
	Replace // GetOrLoad overwrote a value that could not be read: LoadOptions.ReplaceUnreadable

	// Events of a Guard of package resilient.
	Retry         // a failed call was tried again
	Hedge         // a second call was made beside a slow one
	Refuse        // a call was refused; the class is Rejected
	Fallback      // a fallback took the place of a call
	BreakerOpen   // the breaker opened
	BreakerClosed // the breaker closed

	Ops = iota // how many there are
)

var ops = [Ops]string{"get", "set", "get_many", "set_many", "delete", "touch", "load", "refresh", "flush", "stale", "replace",
	"retry", "hedge", "refuse", "fallback", "breaker_open", "breaker_closed"}

// Call reports whether a caller started the operation, rather than another operation.
func (o Op) Call() bool { return o <= Touch }

// String is the operation's name, a word for labels.
func (o Op) String() string { return name(ops[:], int(o), "op") }

// Stage is a part of an operation.
type Stage uint8

// The stages, in the order of a write and then a read. The numbers are part of the file format.
const (
	Encode Stage = iota // the codec writes
	Pack
	Store // the round trip to Redis
	Unpack
	Decode  // the codec reads
	Loading // the loader runs

	Stages = iota // how many there are
)

var stages = [Stages]string{"encode", "pack", "store", "unpack", "decode", "load"}

// String is the stage's name, a word for labels.
func (s Stage) String() string { return name(stages[:], int(s), "stage") }

// Class is a class of errors.
type Class uint8

// The classes. The numbers are part of the file format.
const (
	OK Class = iota
	Corrupt
	TooLarge
	UnknownDictionary
	UnknownAlgorithm
	Invalid  // an argument
	Codec    // the codec refused a value
	Canceled // the caller's context was cancelled
	Timeout  // the caller's context ran out, or the client's patience
	Server   // anything else between the program and Redis
	Loader   // the loader failed
	Dropped  // a full Batch dropped the value, as it was told to
	Rejected // a policy refused the call before it was made, such as an open breaker

	Classes = iota // how many there are
)

var classes = [Classes]string{"ok", "corrupt", "too_large", "unknown_dictionary", "unknown_algorithm", "invalid", "codec", "canceled", "timeout", "server", "loader", "dropped", "rejected"}

// String is the class's name, a word for labels.
func (c Class) String() string { return name(classes[:], int(c), "class") }

func name(names []string, i int, what string) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s %d", what, i)
}

// Multi combines recorders. It times an operation if one of them wants it.
func Multi(recorders ...Recorder) Recorder { return multi(recorders) }

type multi []Recorder

func (m multi) Timed(ctx context.Context) bool {
	timed := false
	for _, r := range m {
		timed = r.Timed(ctx) || timed
	}
	return timed
}

func (m multi) Record(ctx context.Context, e Event) {
	for _, r := range m {
		r.Record(ctx, e)
	}
}
