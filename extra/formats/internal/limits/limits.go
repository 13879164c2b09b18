// Package limits has what the codecs' Options have in common.
package limits

import (
	"fmt"

	"github.com/balekv/bale"
)

// DefaultDepth is the default of Options.MaxDepth, the limit on nesting. It is far deeper than real
// values. The libraries' readers need less than a megabyte of stack for it.
const DefaultDepth = 1000

// The range of Options.MaxDepth: cbor takes no fewer, go-json and protobuf no more.
const (
	minDepth = 4
	maxDepth = 10_000
)

// Depth resolves an Options.MaxDepth of a package.
func Depth(pkg string, n int) (int, error) {
	switch {
	case n == 0:
		return DefaultDepth, nil
	case n < minDepth || n > maxDepth:
		return 0, fmt.Errorf("%s: %w: MaxDepth is %d, must be %d to %d, or 0 for %d", pkg, bale.ErrInvalid, n, minDepth, maxDepth, DefaultDepth)
	}
	return n, nil
}
