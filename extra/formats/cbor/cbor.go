// Package cbor is a bale.Codec for CBOR (RFC 8949), with github.com/fxamacker/cbor/v2. [Codec] is
// ready as it is; [New] makes one with other limits.
//
// Fields are named by their cbor tags, or else by their json tags, so that a struct that was stored
// as JSON needs no change. A time is a string as in RFC 3339, with tag 0. It keeps its nanoseconds
// and its offset. A time in a year before 0 or after 9999 is written but not read. A map in an
// interface comes back as map[string]any, a positive integer as uint64 and a negative one as int64.
// A string comes back unchanged, even if it is not UTF-8.
//
// Decode first checks that the bytes are well-formed, so that a claimed length is really there. A
// map with a duplicate key is an error.
package cbor

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"sync"

	"github.com/fxamacker/cbor/v2"

	"github.com/balekv/bale/extra/formats"
	"github.com/balekv/bale/extra/formats/internal/limits"
)

// Options are the limits of a [Codec]; the zero value is useful.
type Options struct {
	// MaxDepth is how many arrays, maps and tags may be inside each other in a value that is read.
	// Deeper ones are formats.ErrLimit; Append does not look. Defaults to 1,000; 4 to 10,000.
	MaxDepth int

	// IndefiniteLength reads arrays, maps and strings that do not begin with their length, which
	// some writers in other languages prefer (Jackson is one) and Append never does. They are
	// formats.ErrLimit otherwise: to learn the length the library reads ahead at each level, so that
	// 100 KB inside 900 of them take 0.3 seconds. Lower MaxDepth as you set it.
	IndefiniteLength bool

	// BigIntegers reads integers beyond 64 bits, which are for fields of the type big.Int. They are
	// formats.ErrLimit otherwise: where the field is of another type the library writes all digits
	// into its error, which for a megabyte of them takes 4 seconds.
	BigIntegers bool
}

// Codec encodes with CBOR. The zero Codec has the default Options. It is safe for concurrent use.
type Codec[T any] struct{ dec cbor.DecMode }

// New makes a Codec. An option out of range is bale.ErrInvalid.
func New[T any](o Options) (Codec[T], error) {
	dec, err := decMode(o)
	return Codec[T]{dec}, err
}

func decMode(o Options) (cbor.DecMode, error) {
	n, err := limits.Depth("cbor", o.MaxDepth)
	if err != nil {
		return nil, err
	}
	indefinite := cbor.IndefLengthForbidden
	if o.IndefiniteLength {
		indefinite = cbor.IndefLengthAllowed
	}
	big := cbor.BignumTagForbidden
	if o.BigIntegers {
		big = cbor.BignumTagAllowed
	}
	return cbor.DecOptions{
		DupMapKey:       cbor.DupMapKeyEnforcedAPF,
		MaxNestedLevels: n,
		// The library counts what is there before it allocates: lower limits would only make values
		// that Append writes unreadable.
		MaxArrayElements: math.MaxInt32,
		MaxMapPairs:      math.MaxInt32,
		IndefLength:      indefinite,
		BignumTag:        big,
		DefaultMapType:   reflect.TypeFor[map[string]any](),
		UTF8:             cbor.UTF8DecodeInvalid, // Append writes such strings
	}.DecMode()
}

// The modes are made when first used; the options they come from are constant.
var (
	defaultDecMode = sync.OnceValues(func() (cbor.DecMode, error) { return decMode(Options{}) })
	encMode        = sync.OnceValues(func() (cbor.UserBufferEncMode, error) {
		return cbor.EncOptions{Time: cbor.TimeRFC3339Nano, TimeTag: cbor.EncTagRequired}.UserBufferEncMode()
	})
)

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// Append appends the CBOR of v to dst.
func (Codec[T]) Append(dst []byte, v T) ([]byte, error) {
	enc, err := encMode()
	if err != nil {
		return dst, err
	}
	b := buffers.Get().(*bytes.Buffer)
	*b = *bytes.NewBuffer(dst)
	err = enc.MarshalToBuffer(v, b)
	out := b.Bytes()
	*b = bytes.Buffer{}
	buffers.Put(b)
	if err != nil {
		return dst, err
	}
	return out, nil
}

// Decode reads the CBOR src, a single value, into *v.
func (c Codec[T]) Decode(src []byte, v *T) error {
	dec := c.dec
	if dec == nil {
		var err error
		if dec, err = defaultDecMode(); err != nil {
			return err
		}
	}
	err := dec.Unmarshal(src, v)
	if err == nil {
		return nil
	}
	var deep *cbor.MaxNestedLevelError
	var indefinite *cbor.IndefiniteLengthError
	var unacceptable *cbor.UnacceptableDataItemError
	switch {
	case errors.As(err, &deep):
		return fmt.Errorf("cbor: %w: arrays, maps and tags nest deeper than MaxDepth: %w", formats.ErrLimit, err)
	case errors.As(err, &indefinite):
		return fmt.Errorf("cbor: %w: set Options.IndefiniteLength to read it: %w", formats.ErrLimit, err)
	case errors.As(err, &unacceptable): // no other kind is forbidden
		return fmt.Errorf("cbor: %w: set Options.BigIntegers to read it: %w", formats.ErrLimit, err)
	}
	return err
}
