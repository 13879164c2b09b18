package dataset

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/balekv/bale/codec"
)

// typed serializes values of one Go type.
type typed[T any] struct {
	serializer[T]
	values []T
	same   func(got, want *T) bool
}

func (c typed[T]) Encode(dst []byte, i int) ([]byte, error) {
	dst, err := c.append(dst, &c.values[i])
	return dst, c.refused("encode", err)
}

func (c typed[T]) Decode(src []byte) error { return c.refused("decode", c.decode(src, new(T))) }

// refused is an error of the serializer, without text of the value.
func (c typed[T]) refused(op string, err error) error {
	if err == nil {
		return nil
	}
	return &codec.Error{Op: op, Codec: fmt.Sprintf("%T", c.serializer), Type: reflect.TypeFor[T]().String(), Err: err}
}

func (c typed[T]) Verify(src []byte, i int) error {
	// The decoded value must not change when the source's memory is used again.
	source := append(make([]byte, 0, len(src)), src...)
	v := new(T)
	if err := c.decode(source, v); err != nil {
		return c.refused("decode", err)
	}
	for j := range source {
		source[j] = 0xa5
	}
	if !c.same(v, &c.values[i]) {
		return fmt.Errorf("value %d comes back different", i)
	}
	return nil
}

// newSet makes a set of Go values with the codecs that need only reflection. raw holds their JSON,
// or the values themselves if they are text or bytes.
func newSet[T any](name, track, kind string, values []T, raw [][]byte) *Dataset {
	coder := func(s serializer[T], err error) (Coder, error) { return typed[T]{s, values, sameGo[T]}, err }
	return &Dataset{Name: name, Kind: kind, Track: track, Raw: raw, coders: map[string]func() (Coder, error){
		"json":     func() (Coder, error) { return coder(standard[T]{}, nil) },
		"gob":      func() (Coder, error) { return coder(gobs[T]{}, nil) },
		"raw":      func() (Coder, error) { return newRaw(raw), nil },
		"json2":    func() (Coder, error) { return coder(newVersion2[T](false), nil) },
		"go-json":  func() (Coder, error) { return coder(goccy[T]{}, nil) },
		"sonic":    func() (Coder, error) { s, err := newByteDance[T](false); return coder(s, err) },
		"msgpack":  func() (Coder, error) { return coder(vmihailenco[T]{}, nil) },
		"shamaton": func() (Coder, error) { return coder(shamatons[T]{}, nil) },
		"cbor":     func() (Coder, error) { s, err := newFxamacker[T](); return coder(s, err) },
	}}
}

func newRaw(raw [][]byte) Coder { return typed[[]byte]{plain{}, raw, sameGo[[]byte]} }

// newBytes makes a set of bytes.
func newBytes(name, track string, raw [][]byte) *Dataset {
	return newSet(name, track, "binary", raw, raw)
}

// newText makes a set of strings.
func newText(name, track string, raw [][]byte) *Dataset {
	values := make([]string, len(raw))
	for i, v := range raw {
		values[i] = string(v)
	}
	return newSet(name, track, "text", values, raw)
}

// newStructs makes a set of values of a struct.
func newStructs[T any](name string, values []T) (*Dataset, error) {
	raw := make([][]byte, len(values))
	for i := range values {
		b, err := json.Marshal(&values[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		raw[i] = b
	}
	return newSet(name, Typed, fmt.Sprintf("%T", values[0]), values, raw), nil
}

// newGenerated makes a set of values whose type has generated code; M is the message that stands
// for it.
func newGenerated[M, T any, P code[T], PM message[M]](name string, values []T) (*Dataset, error) {
	d, err := newStructs(name, values)
	if err != nil {
		return nil, err
	}
	d.coders["easyjson"] = func() (Coder, error) { return typed[T]{easy[T, P]{}, values, sameGo[T]}, nil }
	d.coders["binary"] = func() (Coder, error) { return typed[T]{handwritten[T, P]{}, values, sameGo[T]}, nil }
	d.coders["msgp"] = func() (Coder, error) { return typed[T]{tinylib[T, P]{}, values, sameGo[T]}, nil }
	// A program that uses protocol buffers holds messages: they are made once, which takes seconds
	// for large sets, and not measured.
	messages := sync.OnceValues(func() ([]M, error) {
		messages := make([]M, len(values))
		for i := range messages {
			if err := protojson.Unmarshal(d.Raw[i], PM(&messages[i])); err != nil {
				return nil, fmt.Errorf("value %d: %w", i, err)
			}
		}
		return messages, nil
	})
	d.coders["protobuf"] = func() (Coder, error) {
		m, err := messages()
		return typed[M]{google[M, PM]{}, m, func(got, want *M) bool { return proto.Equal(PM(got), PM(want)) }}, err
	}
	return d, nil
}

// sameGo reports whether two values are the same. It compares like reflect.DeepEqual, except that
// times are equal at the same instant.
func sameGo[T any](got, want *T) bool {
	return reflect.DeepEqual(got, want) || sameValue(reflect.ValueOf(got).Elem(), reflect.ValueOf(want).Elem())
}

// sameValue knows what the types of the sets are made of.
func sameValue(got, want reflect.Value) bool {
	switch want.Kind() {
	case reflect.Struct:
		if t, ok := want.Interface().(time.Time); ok {
			return got.Interface().(time.Time).Equal(t)
		}
		for i := range want.NumField() {
			if !sameValue(got.Field(i), want.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Slice:
		if got.Len() != want.Len() || got.IsNil() != want.IsNil() {
			return false
		}
		for i := range want.Len() {
			if !sameValue(got.Index(i), want.Index(i)) {
				return false
			}
		}
		return true
	}
	return got.Equal(want)
}
