// Package wire is a binary form as one writes it by hand for one's own types: the fields in their
// order, numbers as varints, strings behind their length. It has no names and no versions.
package wire

import (
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// Fields is a type that names its fields to a Coder, in their order.
type Fields[T any] interface {
	*T
	Fields(c *Coder)
}

// Coder appends fields to Bytes, or reads them from there. To append it only reads the value, which
// others may do at the same time.
type Coder struct {
	Bytes   []byte
	reading bool
	err     error
}

// Value is a value with the methods that codec.Binary takes.
type Value[T any, P Fields[T]] struct{ V P }

// AppendBinary implements encoding.BinaryAppender.
func (v Value[T, P]) AppendBinary(dst []byte) ([]byte, error) {
	c := Coder{Bytes: dst}
	v.V.Fields(&c)
	return c.Bytes, nil
}

// UnmarshalBinary implements encoding.BinaryUnmarshaler.
func (v Value[T, P]) UnmarshalBinary(src []byte) error {
	c := Coder{Bytes: src, reading: true}
	v.V.Fields(&c)
	if c.err == nil && len(c.Bytes) > 0 {
		c.err = errors.New("the value has bytes behind its end")
	}
	return c.err
}

var errEnd = errors.New("the value ends too early")

func (c *Coder) fail() {
	c.err, c.Bytes = errEnd, nil
}

// uint is a number in 1 to 10 bytes.
func (c *Coder) uint(v *uint64) {
	if !c.reading {
		c.Bytes = binary.AppendUvarint(c.Bytes, *v)
		return
	}
	n := 0
	if *v, n = binary.Uvarint(c.Bytes); n <= 0 {
		c.fail()
		return
	}
	c.Bytes = c.Bytes[n:]
}

// Int is a number in as many bytes as it takes.
func Int[I ~int | ~int32 | ~int64](c *Coder, v *I) {
	x := uint64(*v)<<1 ^ uint64(int64(*v)>>63)
	if c.uint(&x); c.reading {
		*v = I(int64(x>>1) ^ -int64(x&1))
	}
}

// Float is a number in 8 bytes.
func (c *Coder) Float(v *float64) {
	if !c.reading {
		c.Bytes = binary.LittleEndian.AppendUint64(c.Bytes, math.Float64bits(*v))
		return
	}
	if len(c.Bytes) < 8 {
		c.fail()
		return
	}
	*v = math.Float64frombits(binary.LittleEndian.Uint64(c.Bytes))
	c.Bytes = c.Bytes[8:]
}

// Bool is a byte.
func (c *Coder) Bool(v *bool) {
	x := uint64(0)
	if *v {
		x = 1
	}
	if c.uint(&x); c.reading {
		*v = x == 1
	}
}

// String is its length and its bytes.
func (c *Coder) String(v *string) {
	n := uint64(len(*v))
	c.uint(&n)
	switch {
	case !c.reading:
		c.Bytes = append(c.Bytes, *v...)
	case n > uint64(len(c.Bytes)):
		c.fail()
	default:
		*v, c.Bytes = string(c.Bytes[:n]), c.Bytes[n:]
	}
}

// Time is an instant between 1678 and 2262, in nanoseconds.
func (c *Coder) Time(v *time.Time) {
	ns := v.UnixNano()
	Int(c, &ns)
	if c.reading {
		*v = time.Unix(0, ns).UTC()
	}
}

// List is how many there are, and each of them. A nil list stays nil.
func List[T any](c *Coder, v *[]T, each func(c *Coder, v *T)) {
	n := uint64(0)
	if *v != nil {
		n = uint64(len(*v)) + 1
	}
	c.uint(&n)
	if c.reading {
		if n > uint64(len(c.Bytes))+1 { // each has a byte at least
			c.fail()
			return
		}
		if n > 0 {
			*v = make([]T, n-1)
		}
	}
	for i := range *v {
		each(c, &(*v)[i])
	}
}

// Strings is a list of strings.
func (c *Coder) Strings(v *[]string) { List(c, v, (*Coder).String) }
