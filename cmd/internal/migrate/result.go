package migrate

import (
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/keyspace"
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
	Refused    Reason = "refused"     // by the server, such as a field that is to end later than it can have one end; see Counts.Problems
	NotSmaller Reason = "not_smaller" // or not by MinGain, or below MinSize
	Number     Reason = "number"      // what INCR and INCRBYFLOAT work on
	HLL        Reason = "hyperloglog"
	Stream     Reason = "stream"     // manifests and chunks of package stream
	TooLarge   Reason = "too_large"  // beyond MaxSize
	Changed    Reason = "changed"    // by a program, at every try
	Gone       Reason = "gone"       // removed, expired or of another type meanwhile
	Unreadable Reason = "unreadable" // see Counts.Problems
	Registry   Reason = "registry"   // keys of the dictionaries' registry
	OtherType  Reason = "other_type" // keys that are neither strings nor hashes
)

// problemsKept is how many problems are named; all are counted.
const problemsKept = 10

// Counts are the values that a run changed, or would change with DryRun, and those that it left.
type Counts struct {
	Keys    int64                     `json:"keys"` // looked at
	Strings Change                    `json:"strings"`
	Fields  Change                    `json:"fields"`  // of hashes
	Left    map[Reason]keyspace.Tally `json:"left"`    // keys for the last two reasons, else values
	Expired keyspace.Tally            `json:"expired"` // values that a revert deleted: they had expired by their own account

	Problems []keyspace.Problem `json:"problems,omitempty"` // the first ones
}

// Change is what values took before and after.
type Change struct {
	Before keyspace.Tally `json:"before"`
	After  keyspace.Tally `json:"after"`
}

func (c *Change) add(v keyspace.Value, after int) {
	c.Before.Add(v, len(v.Stored))
	c.After.Add(v, after)
}

// Changed is the number of values that were written.
func (r *Counts) Changed() int64 { return r.Strings.After.Values + r.Fields.After.Values }

// Failed is the number of values that should have been written and could not be.
func (r *Counts) Failed() int64 {
	return r.Left[Unreadable].Values + r.Left[Nested].Values + r.Left[FreshField].Values + r.Left[Refused].Values + r.Left[Changed].Values
}

func (r *Counts) leave(v keyspace.Value, why Reason) {
	t := r.Left[why]
	t.Add(v, len(v.Stored))
	r.Left[why] = t
}

func (r *Counts) problem(v keyspace.Value, cause error) {
	if len(r.Problems) < problemsKept {
		r.Problems = append(r.Problems, keyspace.NewProblem(v, cli.Told(cause)))
	}
}

// count adds to a reason where nothing is known of the bytes.
func (r *Counts) count(why Reason, n int64) {
	if n > 0 {
		t := r.Left[why]
		t.Values += n
		r.Left[why] = t
	}
}
