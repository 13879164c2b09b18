package resilient

import (
	"errors"
	"fmt"
	"time"

	"github.com/balekv/bale/stats"
)

// ErrRejected is the class of all [RejectedError] values.
var ErrRejected = errors.New("the call was not made")

// Reason is why a call was not made.
type Reason uint8

// The reasons.
const (
	Open Reason = iota // the Breaker is open
	Full               // too many calls wait for their turn already
	Late               // its turn did not come within Limit.Wait, or the Timeout
)

func (r Reason) String() string {
	switch r {
	case Open:
		return "the breaker is open"
	case Full:
		return "too many calls wait for their turn"
	case Late:
		return "its turn did not come in time"
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// RejectedError says that a policy refused a call, which had no effect. It is never retried.
type RejectedError struct {
	Endpoint string // Options.Name
	Reason   Reason
	After    time.Duration // when the Breaker lets a call through again; 0 for other reasons
}

func (e *RejectedError) Error() string {
	after := ""
	if e.After > 0 {
		after = fmt.Sprintf(" for another %v", e.After.Round(time.Millisecond))
	}
	return fmt.Sprintf("resilient: %q: %v: %v%s", e.Endpoint, ErrRejected, e.Reason, after)
}

// Class returns stats.Rejected, under which a Recorder sees it.
func (e *RejectedError) Class() stats.Class { return stats.Rejected }

// Unwrap returns ErrRejected.
func (e *RejectedError) Unwrap() error { return ErrRejected }
