// Package codec turns values into bytes and back, with the standard library alone.
//
// [JSON] and [Gob] take any type; [Binary] takes types with binary methods of their own, [Bytes]
// and [String] bytes as they are. Each satisfies bale.Codec, an interface of two methods. Use Gob
// only for values that nobody else can write: forged gob can take much memory.
package codec

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// JSON encodes with encoding/json: the same bytes as json.Marshal.
type JSON[T any] struct{}

// appender is a writer that appends. Encoders that keep their writer are pooled with it.
type appender struct{ b []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}

type jsonEncoder struct {
	out appender
	enc *json.Encoder
}

// An Encoder writes straight into our buffer, where json.Marshal would allocate one of its own for
// each value.
var jsonEncoders = sync.Pool{New: func() any {
	e := new(jsonEncoder)
	e.enc = json.NewEncoder(&e.out)
	return e
}}

// Append appends the JSON of v to dst.
func (JSON[T]) Append(dst []byte, v T) ([]byte, error) {
	e := jsonEncoders.Get().(*jsonEncoder)
	defer jsonEncoders.Put(e)
	e.out.b = dst
	err := e.enc.Encode(v)
	out := e.out.b
	e.out.b = nil
	if err != nil {
		return dst, err
	}
	return out[:len(out)-1], nil // Encode ends in a newline, which Marshal does not
}

// Decode reads the JSON src, a single value, into *v.
func (JSON[T]) Decode(src []byte, v *T) error { return json.Unmarshal(src, v) }

// Gob encodes with encoding/gob, each value on its own. It is only for values that nobody else can
// write: encoding/gob is not hardened against forged bytes. 76 bytes allocate 640 MiB for a map
// (golang/go#79539). A type that contains itself can overflow the stack, which ends the program.
// Use another codec where somebody else may write.
//
// Each value repeats the description of its type. So small values take several times the bytes of
// JSON, unless a dictionary has the description.
type Gob[T any] struct{}

// Append appends the gob of v to dst.
func (Gob[T]) Append(dst []byte, v T) ([]byte, error) {
	out := appender{dst}
	if err := gob.NewEncoder(&out).Encode(&v); err != nil {
		return dst, err
	}
	return out.b, nil
}

// Decode reads the gob src into *v. Only the program itself, or one you trust as much, may have
// written src.
func (Gob[T]) Decode(src []byte, v *T) error {
	r := bytes.NewReader(src)
	if err := gob.NewDecoder(r).Decode(v); err != nil {
		return err
	}
	if r.Len() > 0 {
		return fmt.Errorf("codec: %d bytes after the gob: %w", r.Len(), io.ErrUnexpectedEOF)
	}
	return nil
}

// Bytes stores bytes as they are.
type Bytes struct{}

// Append appends v to dst.
func (Bytes) Append(dst []byte, v []byte) ([]byte, error) { return append(dst, v...), nil }

// Decode copies src into *v, which is never nil afterwards.
func (Bytes) Decode(src []byte, v *[]byte) error {
	*v = append(make([]byte, 0, len(src)), src...)
	return nil
}

// String stores strings as they are.
type String struct{}

// Append appends v to dst.
func (String) Append(dst []byte, v string) ([]byte, error) { return append(dst, v...), nil }

// Decode copies src into *v.
func (String) Decode(src []byte, v *string) error {
	*v = string(src)
	return nil
}
