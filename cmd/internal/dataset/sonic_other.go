//go:build !amd64 && !arm64

package dataset

import (
	"fmt"
	"runtime"
)

// byteDance stands in for sonic where that does not compile.
type byteDance[T any] struct{ serializer[T] }

func newByteDance[T any](bool) (byteDance[T], error) {
	return byteDance[T]{}, fmt.Errorf("%w: sonic does not compile for %s", ErrNoCoder, runtime.GOARCH)
}
