//go:build amd64 || arm64

package dataset

import (
	"fmt"
	"reflect"

	"github.com/bytedance/sonic"
	sonicencoder "github.com/bytedance/sonic/encoder"
)

// byteDance is sonic with its default settings. Strings that it decodes are pieces of one copy of
// the source, which Unmarshal makes: they keep it all alive, but have none of the caller's memory.
type byteDance[T any] struct{ api sonic.API }

// newByteDance sets it up, and has the code for the type compiled, as its documentation advises for
// large types.
func newByteDance[T any](numbers bool) (byteDance[T], error) {
	if err := sonic.Pretouch(reflect.TypeFor[T]()); err != nil {
		return byteDance[T]{}, fmt.Errorf("compile: %w", err)
	}
	return byteDance[T]{sonic.Config{UseNumber: numbers}.Froze()}, nil
}

func (byteDance[T]) append(dst []byte, v *T) ([]byte, error) {
	err := sonicencoder.EncodeInto(&dst, argument(v), 0) // 0: as the default settings say
	return dst, err
}

func (s byteDance[T]) decode(src []byte, v *T) error { return s.api.Unmarshal(src, v) }
