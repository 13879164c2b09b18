package dataset

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/fxamacker/cbor/v2"
	json2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	gojson "github.com/goccy/go-json"
	"github.com/mailru/easyjson"
	"github.com/mailru/easyjson/jwriter"
	shamaton "github.com/shamaton/msgpack/v2"
	"github.com/tinylib/msgp/msgp"
	"github.com/vmihailenco/msgpack/v5"
	"google.golang.org/protobuf/proto"

	"github.com/balekv/bale/cmd/internal/dataset/shop/wire"
	"github.com/balekv/bale/codec"
)

// serializer is a library, put to work on values of one type. It is safe for concurrent use.
type serializer[T any] interface {
	// append appends the encoding of v, which it does not change, to dst.
	append(dst []byte, v *T) ([]byte, error)

	// decode reads src into v, which is zero, and keeps nothing of src.
	decode(src []byte, v *T) error
}

// argument is what a program hands to a library to have v encoded: a pointer, which costs no
// allocation, but a document as it is.
func argument[T any](v *T) any {
	if document, ok := any(v).(*any); ok {
		return *document
	}
	return v
}

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

// standard is encoding/json, through bale's own codec.
type standard[T any] struct{ numbers bool }

func (standard[T]) append(dst []byte, v *T) ([]byte, error) {
	return codec.JSON[any]{}.Append(dst, argument(v))
}

func (s standard[T]) decode(src []byte, v *T) error {
	if !s.numbers {
		return codec.JSON[T]{}.Decode(src, v)
	}
	d := json.NewDecoder(bytes.NewReader(src))
	d.UseNumber()
	return d.Decode(v)
}

// gobs is encoding/gob, through bale's own codec.
type gobs[T any] struct{}

func (gobs[T]) append(dst []byte, v *T) ([]byte, error) { return codec.Gob[*T]{}.Append(dst, v) }
func (gobs[T]) decode(src []byte, v *T) error           { return codec.Gob[T]{}.Decode(src, v) }

// plain stores bytes as they are.
type plain struct{}

func (plain) append(dst []byte, v *[]byte) ([]byte, error) { return codec.Bytes{}.Append(dst, *v) }
func (plain) decode(src []byte, v *[]byte) error           { return codec.Bytes{}.Decode(src, v) }

// version2 is go-json-experiment/json. Given a bytes.Buffer it writes straight into its memory.
type version2[T any] struct{ options json2.Options }

// newVersion2 sets it up. It has no setting for json.Number: functions are how its documentation
// keeps the digits.
func newVersion2[T any](numbers bool) version2[T] {
	if !numbers {
		return version2[T]{json2.JoinOptions()}
	}
	return version2[T]{json2.JoinOptions(
		json2.WithMarshalers(json2.MarshalToFunc(func(e *jsontext.Encoder, n json.Number) error { return e.WriteValue(jsontext.Value(n)) })),
		json2.WithUnmarshalers(json2.UnmarshalFromFunc(func(d *jsontext.Decoder, v *any) error {
			if d.PeekKind() != '0' {
				return errors.ErrUnsupported // not for this function
			}
			n, err := d.ReadValue()
			*v = json.Number(n)
			return err
		})),
	)}
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func (s version2[T]) append(dst []byte, v *T) ([]byte, error) {
	b := buffers.Get().(*bytes.Buffer)
	*b = *bytes.NewBuffer(dst)
	err := json2.MarshalWrite(b, argument(v), s.options)
	dst = b.Bytes()
	*b = bytes.Buffer{}
	buffers.Put(b)
	return dst, err
}

func (s version2[T]) decode(src []byte, v *T) error { return json2.Unmarshal(src, v, s.options) }

// goccy is goccy/go-json. Its Encoder writes into a buffer of ours, where Marshal would allocate
// one.
type goccy[T any] struct{ numbers bool }

type goccyEncoder struct {
	out appender
	enc *gojson.Encoder
}

var goccyEncoders = sync.Pool{New: func() any {
	e := new(goccyEncoder)
	e.enc = gojson.NewEncoder(&e.out)
	return e
}}

func (goccy[T]) append(dst []byte, v *T) ([]byte, error) {
	e := goccyEncoders.Get().(*goccyEncoder)
	e.out.b = dst
	err := e.enc.Encode(argument(v))
	dst, e.out.b = e.out.b, nil
	goccyEncoders.Put(e)
	if err != nil {
		return dst, err
	}
	return dst[:len(dst)-1], nil // Encode ends in a newline
}

func (s goccy[T]) decode(src []byte, v *T) error {
	if !s.numbers {
		return gojson.Unmarshal(src, v)
	}
	d := gojson.NewDecoder(bytes.NewReader(src))
	d.UseNumber()
	return d.Decode(v)
}

// easy is easyjson.
type easy[T any, P code[T]] struct{}

func (easy[T, P]) append(dst []byte, v *T) ([]byte, error) {
	var w jwriter.Writer
	P(v).MarshalEasyJSON(&w)
	if w.Error != nil {
		return dst, w.Error
	}
	out := appender{dst}
	_, err := w.DumpTo(&out) // and so its buffers go back to its pool
	return out.b, err
}

func (easy[T, P]) decode(src []byte, v *T) error { return easyjson.Unmarshal(src, P(v)) }

// vmihailenco is vmihailenco/msgpack. Integers are as short as they can be, which is not its
// default, but what the others do.
type vmihailenco[T any] struct{}

type msgpackEncoder struct {
	out appender
	enc *msgpack.Encoder
}

var msgpackEncoders = sync.Pool{New: func() any { return &msgpackEncoder{enc: msgpack.NewEncoder(nil)} }}

func (vmihailenco[T]) append(dst []byte, v *T) ([]byte, error) {
	e := msgpackEncoders.Get().(*msgpackEncoder)
	e.out.b = dst
	e.enc.Reset(&e.out)
	e.enc.UseCompactInts(true)
	err := e.enc.Encode(argument(v))
	dst, e.out.b = e.out.b, nil
	msgpackEncoders.Put(e)
	return dst, err
}

func (vmihailenco[T]) decode(src []byte, v *T) error { return msgpack.Unmarshal(src, v) }

// shamatons is shamaton/msgpack. MarshalWrite takes half the time of Marshal, which walks the value
// twice and allocates the result.
type shamatons[T any] struct{}

func (shamatons[T]) append(dst []byte, v *T) ([]byte, error) {
	b := buffers.Get().(*bytes.Buffer)
	*b = *bytes.NewBuffer(dst)
	err := shamaton.MarshalWrite(b, argument(v))
	dst = b.Bytes()
	*b = bytes.Buffer{}
	buffers.Put(b)
	return dst, err
}

func (shamatons[T]) decode(src []byte, v *T) error {
	err := shamaton.Unmarshal(src, v)
	if b, ok := any(v).(*[]byte); ok {
		*b = bytes.Clone(*b) // what it decodes as bytes is a piece of src
	}
	return err
}

// tinylib is tinylib/msgp.
type tinylib[T any, P code[T]] struct{}

func (tinylib[T, P]) append(dst []byte, v *T) ([]byte, error) { return P(v).MarshalMsg(dst) }

func (tinylib[T, P]) decode(src []byte, v *T) error {
	rest, err := P(v).UnmarshalMsg(src)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes after the value", len(rest))
	}
	return err
}

// handwritten is code that somebody wrote for the type, through bale's own codec.
type handwritten[T any, P code[T]] struct{}

func (handwritten[T, P]) append(dst []byte, v *T) ([]byte, error) {
	return codec.Binary[wire.Value[T, P], *wire.Value[T, P]]{}.Append(dst, wire.Value[T, P]{V: v})
}

func (handwritten[T, P]) decode(src []byte, v *T) error {
	return codec.Binary[wire.Value[T, P], *wire.Value[T, P]]{}.Decode(src, &wire.Value[T, P]{V: v})
}

// fxamacker is fxamacker/cbor.
type fxamacker[T any] struct {
	enc cbor.UserBufferEncMode
	dec cbor.DecMode
}

// newFxamacker sets it up. Times are text: as numbers, its default, they would lose what is below a
// second. Maps are those of documents, and the limits are for what strangers send.
func newFxamacker[T any]() (fxamacker[T], error) {
	enc, err := cbor.EncOptions{Time: cbor.TimeRFC3339Nano}.UserBufferEncMode()
	if err != nil {
		return fxamacker[T]{}, err
	}
	dec, err := cbor.DecOptions{
		DefaultMapType: reflect.TypeFor[map[string]any](), MaxNestedLevels: 65535, MaxArrayElements: 1<<31 - 1, MaxMapPairs: 1<<31 - 1,
	}.DecMode()
	return fxamacker[T]{enc, dec}, err
}

func (s fxamacker[T]) append(dst []byte, v *T) ([]byte, error) {
	b := buffers.Get().(*bytes.Buffer)
	*b = *bytes.NewBuffer(dst)
	err := s.enc.MarshalToBuffer(argument(v), b)
	dst = b.Bytes()
	*b = bytes.Buffer{}
	buffers.Put(b)
	return dst, err
}

func (s fxamacker[T]) decode(src []byte, v *T) error { return s.dec.Unmarshal(src, v) }

// google is google.golang.org/protobuf, of which M is a message.
type google[M any, PM message[M]] struct{}

func (google[M, PM]) append(dst []byte, v *M) ([]byte, error) {
	return proto.MarshalOptions{}.MarshalAppend(dst, PM(v))
}

func (google[M, PM]) decode(src []byte, v *M) error { return proto.Unmarshal(src, PM(v)) }

// code is what is generated or written by hand for a type.
type code[T any] interface {
	wire.Fields[T]
	easyjson.Marshaler
	easyjson.Unmarshaler
	msgp.Marshaler
	msgp.Unmarshaler
}

// message is a message of type M.
type message[M any] interface {
	*M
	proto.Message
}
