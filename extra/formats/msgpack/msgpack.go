// Package msgpack is a bale.Codec for MessagePack, with github.com/vmihailenco/msgpack/v5. [Codec]
// is ready as it is; [New] makes one with other limits.
//
// Fields are named by their msgpack tags, or else by their json tags, so that a struct that was
// stored as JSON needs no change. Integers take as few bytes as they can. They come back from an
// interface as the narrowest type, int8 for 5. A time keeps its instant to the nanosecond and loses
// its location: it comes back in local time. A map in an interface comes back as map[string]any.
// The library's struct tag intern is not supported: such values are written but not read.
//
// Decode first scans the bytes, without allocating. It limits the nesting, and checks that each
// claimed length is there. A map of more than 15 pairs, most of whose keys are the same, is an
// error. Bytes that make the library panic, such as nil for a time.Time, are an error. A panic in a
// decoding method of the value's own type is an error, too.
package msgpack

import (
	"cmp"
	"fmt"
	"io"
	"sync"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/balekv/bale/extra/formats/internal/limits"
)

// Options are the limits of a [Codec]; the zero value is useful.
type Options struct {
	// MaxDepth is how many arrays and maps may be inside each other in a value that is read. Deeper
	// ones are codecs.ErrLimit; Append does not look. Defaults to 1,000; 4 to 10,000.
	MaxDepth int
}

// Codec encodes with MessagePack. The zero Codec has the default Options. It is safe for concurrent
// use.
type Codec[T any] struct{ maxDepth int }

// New makes a Codec. An option out of range is bale.ErrInvalid.
func New[T any](o Options) (Codec[T], error) {
	n, err := limits.Depth("msgpack", o.MaxDepth)
	return Codec[T]{n}, err
}

// fallbackTag names the fields that have no msgpack tag.
const fallbackTag = "json"

// appender is a writer that appends.
type appender struct{ b []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}

func (a *appender) WriteByte(c byte) error {
	a.b = append(a.b, c)
	return nil
}

type encoder struct {
	out appender
	enc *msgpack.Encoder
}

var encoders = sync.Pool{New: func() any { return &encoder{enc: msgpack.NewEncoder(nil)} }}

// Append appends the MessagePack of v to dst.
func (Codec[T]) Append(dst []byte, v T) ([]byte, error) {
	e := encoders.Get().(*encoder)
	e.out.b = dst
	// Each time, for an encoding method of the value's own type can change the encoder.
	e.enc.Reset(&e.out)
	e.enc.UseCompactInts(true)
	e.enc.SetCustomStructTag(fallbackTag)
	err := e.enc.Encode(&v) // by address, or methods of pointers would not be found, and Decode finds them
	out := e.out.b
	e.out.b = nil
	encoders.Put(e)
	if err != nil {
		return dst, err
	}
	return out, nil
}

// decoder reads one value, with the library on top of reader.
type decoder struct {
	in  reader
	dec *msgpack.Decoder
}

var decoders = sync.Pool{New: func() any { return &decoder{dec: msgpack.NewDecoder(nil)} }}

// maxPooled is the largest source in bytes whose decoder is used again: it keeps a buffer for the
// longest string it met, and the places of the extensions.
const maxPooled = 64 << 10

// Decode reads the MessagePack src, a single value, into *v.
func (c Codec[T]) Decode(src []byte, v *T) error {
	d := decoders.Get().(*decoder)
	payloads, err := scan(src, cmp.Or(c.maxDepth, limits.DefaultDepth), d.in.payloads[:0])
	if err != nil {
		decoders.Put(d)
		return err
	}
	d.in = reader{src: src, payloads: payloads}
	d.dec.Reset(&d.in)
	d.dec.SetCustomStructTag(fallbackTag)
	if err := decode(d.dec, v); err != nil {
		return err // and the decoder is dropped, for one that failed may go on recording what it reads
	}
	left := len(src) - d.in.off
	d.in = reader{payloads: payloads}
	if len(src) <= maxPooled {
		decoders.Put(d)
	}
	if left > 0 {
		return trailing(left)
	}
	return nil
}

func trailing(n int) error {
	return fmt.Errorf("msgpack: %d bytes after the value: %w", n, io.ErrUnexpectedEOF)
}

// decode turns the library's panics into errors. Anybody can write bytes that cause one: nil for a
// time.Time, a slice for the key of a map[any]T, or any value for an interface with methods.
func decode(dec *msgpack.Decoder, v any) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("msgpack: %T does not take such a value: %v", v, r)
		}
	}()
	return dec.Decode(v)
}
