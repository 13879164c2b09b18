//go:build !amd64 && !arm64

package dataset

import (
	"runtime"
)

// byteDance stands in for sonic where that does not compile.
type byteDance[T any] struct{ serializer[T] }

func newByteDance[T any](bool) (byteDance[T], error) {
	return byteDance[T]{}, &NoCoderError{"sonic does not compile for " + runtime.GOARCH}
}
