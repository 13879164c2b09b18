package migrate

import (
	"fmt"

	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/printable"
)

// Reason is why a value was left as it is.
type Reason string

// The reasons, as the JSON names them.
const (
	Packed     Reason = "packed"      // already, as it would be packed now
	Otherwise  Reason = "otherwise"   // packed with another algorithm or dictionary, and Repack is not set
	Fresh      Reason = "fresh"       // packed by GetOrLoad, which keeps with it how long it is good
	Absent     Reason = "absent"      // a frame that says that there is no value
	Plain      Reason = "plain"       // already, when reverting
	FreshField Reason = "fresh_field" // a field that ends by its own account, on a server that gives fields no expiry
	Nested     Reason = "nested"      // its content is itself a frame: plain, it would be unpacked once more
	Refused    Reason = "refused"     // by the server, such as a field that is to end later than it can have one end; see Result.Problems
	NotSmaller Reason = "not_smaller" // or not by MinGain, or below MinSize
	Number     Reason = "number"      // what INCR and INCRBYFLOAT work on
	HLL        Reason = "hyperloglog"
	Stream     Reason = "stream"     // manifests and chunks of package stream
	TooLarge   Reason = "too_large"  // beyond MaxSize
	Changed    Reason = "changed"    // by a program, at every try
	Gone       Reason = "gone"       // removed, expired or of another type meanwhile
	Unreadable Reason = "unreadable" // see Result.Problems
	Registry   Reason = "registry"   // keys of the dictionaries' registry
	OtherType  Reason = "other_type" // keys that are neither strings nor hashes
)

// Tally is a number of values and what they take.
type Tally struct {
	Values    int64 `json:"values"`
	Bytes     int64 `json:"bytes"`     // as stored
	Allocated int64 `json:"allocated"` // by the server, by package redismem's model; without keys
}

// Add counts a value that takes n bytes.
func (t *Tally) Add(v keyspace.Value, n int) {
	t.Values++
	t.Bytes += int64(n)
	t.Allocated += int64(v.Allocated(n))
}

// NewProblem describes why a value could not be read or written back, in short texts.
func NewProblem(v keyspace.Value, cause string) Problem {
	if len(cause) > maxCause { // for the names of keys in it
		cause = printable.Name(cause)
	}
	return Problem{printable.Name(v.Key), printable.Name(v.Field), v.InHash, cause}
}

// maxCause is the longest cause in bytes that is no matter of long names.
const maxCause = 1 << 10

// Problem is a value that could not be read or written back.
type Problem struct {
	Key    string `json:"key"`
	Field  string `json:"field,omitempty"`
	InHash bool   `json:"in_hash,omitempty"`
	Cause  string `json:"cause"`
}

// String names the key, quoted.
func (p Problem) String() string {
	if p.InHash {
		return fmt.Sprintf("%q, field %q: %s", p.Key, p.Field, p.Cause)
	}
	return fmt.Sprintf("%q: %s", p.Key, p.Cause)
}

// problemsKept is how many problems are named; all are counted.
const problemsKept = 10

// Result is what a run did, or would do with DryRun. Its fields are those of the JSON.
type Result struct {
	Keys    int64            `json:"keys"` // looked at
	Strings Change           `json:"strings"`
	Fields  Change           `json:"fields"`  // of hashes
	Left    map[Reason]Tally `json:"left"`    // keys for the last two reasons, else values
	Expired Tally            `json:"expired"` // values that a revert deleted: they had expired by their own account

	Problems []Problem `json:"problems,omitempty"` // the first ones
}

// Change is what values took before and after.
type Change struct {
	Before Tally `json:"before"`
	After  Tally `json:"after"`
}

func (c *Change) add(v keyspace.Value, after int) {
	c.Before.Add(v, len(v.Stored))
	c.After.Add(v, after)
}

// Changed is the number of values that were written.
func (r *Result) Changed() int64 { return r.Strings.After.Values + r.Fields.After.Values }

// Failed is the number of values that should have been written and could not be.
func (r *Result) Failed() int64 {
	return r.Left[Unreadable].Values + r.Left[Nested].Values + r.Left[FreshField].Values + r.Left[Refused].Values + r.Left[Changed].Values
}

func (r *Result) leave(v keyspace.Value, why Reason) {
	t := r.Left[why]
	t.Add(v, len(v.Stored))
	r.Left[why] = t
}

func (r *Result) problem(v keyspace.Value, cause error) {
	if len(r.Problems) < problemsKept {
		r.Problems = append(r.Problems, NewProblem(v, cause.Error()))
	}
}

// count adds to a reason where nothing is known of the bytes.
func (r *Result) count(why Reason, n int64) {
	if n > 0 {
		t := r.Left[why]
		t.Values += n
		r.Left[why] = t
	}
}
