package keyspace

import (
	"fmt"

	"github.com/balekv/bale/cmd/internal/printable"
)

// Tally is a number of values and what they take.
type Tally struct {
	Values    int64 `json:"values"`
	Bytes     int64 `json:"bytes"`     // as stored
	Allocated int64 `json:"allocated"` // by the server, by package redismem's model; without keys
}

// Add counts a value that takes n bytes.
func (t *Tally) Add(v Value, n int) {
	t.Values++
	t.Bytes += int64(n)
	t.Allocated += int64(v.Allocated(n))
}

// NewProblem describes why a value could not be read or written back, in short texts.
func NewProblem(v Value, cause string) Problem {
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
