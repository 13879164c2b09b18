package codec

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
)

// ErrFailed is matched by [errors.Is] for each [Error]. It is the same value as bale.ErrCodec.
var ErrFailed = errors.New("codec")

// Error says which codec could not encode or decode a value of which Go type. It is an [ErrFailed].
// Its message has no text of the value. Of the cause it has only the place in JSON, or the message
// of a [PanicError]. [errors.As] and Unwrap reach the cause. The cause's text may show the value,
// at any length: keep it out of logs.
type Error struct {
	Op    string // "encode" or "decode"
	Codec string // its Go type
	Type  string // the value's Go type
	Err   error
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s %s with %s: %s", e.Op, e.Type, e.Codec, withoutValue(e.Err))
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is makes it ErrFailed.
func (e *Error) Is(target error) bool { return target == ErrFailed }

// PanicError is a panic of a codec, as the cause of an [Error], or of a loader of bale.Cache. Its
// message has the text of a runtime.Error. For other panics it has only the type, because the
// panic's value may show a cached value.
type PanicError struct {
	Value any    // what was panicked with
	Stack []byte // of the goroutine
}

func (e *PanicError) Error() string {
	if err, ok := e.Value.(runtime.Error); ok {
		return "panic: " + err.Error()
	}
	return fmt.Sprintf("panic with a value of type %T", e.Value)
}

// withoutValue returns the parts of a codec's error that cannot be text of a value.
func withoutValue(err error) string {
	if e, ok := errors.AsType[*PanicError](err); ok {
		return e.Error()
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("invalid JSON at offset %d", e.Offset)
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		what, _, _ := strings.Cut(e.Value, " ") // "number 4111"
		if !slices.Contains([]string{"number", "string", "bool", "array", "object"}, what) {
			what = "value"
		}
		place := ""
		if e.Field != "" {
			place = fmt.Sprintf(", field %q", e.Field)
		}
		return fmt.Sprintf("a JSON %s is no %v, at offset %d%s", what, e.Type, e.Offset, place)
	}
	for _, known := range []error{io.ErrUnexpectedEOF, io.EOF, errNotBinary} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return fmt.Sprintf("an error of type %T, whose text may show the value", err)
}
