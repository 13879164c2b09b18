// Package protobuf is a bale.Codec for protocol buffers, with google.golang.org/protobuf. Its type
// parameter is the pointer to a generated message: for a bale.Cache[*pb.User] the codec is
// [Codec][*pb.User]. It is ready to use; [New] makes one with other limits.
//
// Decode keeps fields that the reader's message does not know, so that an old program can write
// back the value of a new one. A nil message is an error: its encoding would be that of an empty
// message.
package protobuf

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/balekv/bale/extra/formats"
	"github.com/balekv/bale/extra/formats/internal/limits"
)

// Options are the limits of a [Codec]; the zero value is useful.
type Options struct {
	// MaxDepth is how many messages may be inside each other in a value that is read. Deeper ones
	// are formats.ErrLimit; Append does not look. Defaults to 1,000; 4 to 10,000.
	MaxDepth int
}

// Codec encodes messages of the type T, a pointer to a generated struct. The zero Codec has the
// default Options. It is safe for concurrent use.
type Codec[T proto.Message] struct{ maxDepth int }

// New makes a Codec. An option out of range is bale.ErrInvalid.
func New[T proto.Message](o Options) (Codec[T], error) {
	n, err := limits.Depth("protobuf", o.MaxDepth)
	return Codec[T]{n}, err
}

var errInterface = errors.New("protobuf: the codec's type must be a pointer to a generated message, not an interface")

// Append appends the wire form of v to dst. The order of a map's entries is not the same each time.
func (Codec[T]) Append(dst []byte, v T) ([]byte, error) {
	if any(v) == nil {
		return dst, errInterface
	}
	if !v.ProtoReflect().IsValid() {
		return dst, fmt.Errorf("protobuf: a nil %T cannot be told from an empty one when it is read: store an empty one", v)
	}
	out, err := proto.MarshalOptions{}.MarshalAppend(dst, v)
	if err != nil {
		return dst, err
	}
	return out, nil
}

// Decode reads the wire form src into **v, a new message if *v is nil.
func (c Codec[T]) Decode(src []byte, v *T) error {
	if any(*v) == nil {
		return errInterface
	}
	m := *v
	if r := m.ProtoReflect(); !r.IsValid() {
		m = r.New().Interface().(T)
	}
	if err := (proto.UnmarshalOptions{RecursionLimit: cmp.Or(c.maxDepth, limits.DefaultDepth)}).Unmarshal(src, m); err != nil {
		if strings.Contains(err.Error(), "exceeded maximum recursion depth") { // which the library has no type for
			err = fmt.Errorf("protobuf: %w: messages nest deeper than MaxDepth: %w", formats.ErrLimit, err)
		}
		return err
	}
	*v = m
	return nil
}
