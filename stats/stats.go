// Package stats is the seam between bale and whatever watches it: each operation of a Cache is told
// to a [Recorder] as an [Event].
//
// [Counters] is the recorder for most programs: it counts, and keeps histograms of how long stages
// take, at a cost of some tens of nanoseconds. Module github.com/balekv/bale/extra/observe shows
// them to Prometheus (package prom), and has a recorder for OpenTelemetry (otelbale). [Ring] takes
// events off the hot path altogether, to a [Sink]: a compact file ([NewFile]), or whatever else
// there is. No event has a key or a value.
package stats

import (
	"context"
	"fmt"
	"time"

	"github.com/balekv/bale/frame"
)

// Recorder is told of operations. It is safe for concurrent use, and quick: the caller waits for
// it.
type Recorder interface {
	// Timed reports whether the operation that begins is to be timed. Reading the clock between all
	// stages costs more than all else that a recorder does (25 ns a reading), so that a recorder
	// may choose a sample.
	Timed(ctx context.Context) bool

	// Record is told of an operation that has ended, with the context that the caller gave.
	Record(ctx context.Context, e Event)
}

// Event is one operation. It has neither keys nor values.
type Event struct {
	Op    Op
	Class Class // of the error; of many keys the first one's

	// Keys of the operation are Hits, Misses (reads of keys that do not exist), Errors, or for
	// other operations than reads just successes.
	Keys, Hits, Misses, Errors int32

	// Algorithm and DictionaryID say how the value is packed, of many values the last; Stored for
	// one that is plain.
	Algorithm    frame.Algorithm
	DictionaryID frame.DictionaryID

	// Fresh are the buffers that had to be made or to grow for the operation, in place of one that
	// was used before.
	Fresh int32

	// Plain and Stored are the bytes of the values, serialized and as they are in Redis.
	Plain, Stored int

	// Timed says whether Times are there: see [Recorder].Timed. Those of stages that the operation
	// does not have are zero.
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

// The operations there are. The numbers are part of the file format of [NewFile]: appended, never
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

	Ops = iota // how many there are
)

var ops = [Ops]string{"get", "set", "get_many", "set_many", "delete", "touch", "load", "refresh", "flush", "stale", "replace"}

// Call reports whether an operation is a caller's, rather than a part or a consequence of one.
func (o Op) Call() bool { return o <= Touch }

// String is the operation's name, a word for labels.
func (o Op) String() string { return name(ops[:], int(o), "op") }

// Stage is a part of an operation.
type Stage uint8

// The stages there are, in the order of a write and then a read. The numbers are part of the file
// format.
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

// The classes there are. The numbers are part of the file format.
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

	Classes = iota // how many there are
)

var classes = [Classes]string{"ok", "corrupt", "too_large", "unknown_dictionary", "unknown_algorithm", "invalid", "codec", "canceled", "timeout", "server", "loader", "dropped"}

// String is the class's name, a word for labels.
func (c Class) String() string { return name(classes[:], int(c), "class") }

func name(names []string, i int, what string) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s %d", what, i)
}

// Multi tells several recorders; an operation is timed if one of them wants it.
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
