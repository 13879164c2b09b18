// Package sampling tells hooks whether a dict.Auto of this process needs values that are read. A
// hook leaves plain values alone otherwise: to show one takes a look at its key and a copy.
package sampling

import "sync/atomic"

// Groups is how many groups with a dict.Auto have no dictionary yet.
var Groups atomic.Int64
