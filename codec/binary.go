package codec

import (
	"encoding"
	"errors"
	"fmt"
)

// Binary encodes types with methods of package encoding: AppendBinary, or else MarshalBinary, and
// UnmarshalBinary. These are the types that go-redis takes as values. P is the pointer to T:
//
//	codec.Binary[User, *User]{}
type Binary[T any, P interface {
	*T
	encoding.BinaryUnmarshaler
}] struct{}

// errNotBinary is the error of a [Binary] whose type has neither AppendBinary nor MarshalBinary.
var errNotBinary = errors.New("the type has neither AppendBinary nor MarshalBinary")

// Append appends the encoding of v to dst.
func (Binary[T, P]) Append(dst []byte, v T) ([]byte, error) {
	switch v := any(P(&v)).(type) {
	case encoding.BinaryAppender:
		out, err := v.AppendBinary(dst)
		if err != nil {
			return dst, err
		}
		return out, nil
	case encoding.BinaryMarshaler:
		b, err := v.MarshalBinary()
		if err != nil {
			return dst, err
		}
		return append(dst, b...), nil
	}
	return dst, fmt.Errorf("%w: %T", errNotBinary, v)
}

// Decode reads src into *v. UnmarshalBinary must copy the bytes of src that it keeps, as its
// contract says.
func (Binary[T, P]) Decode(src []byte, v *T) error { return P(v).UnmarshalBinary(src) }
