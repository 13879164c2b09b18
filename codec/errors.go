package codec

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// ErrFailed is the class of all [Error] values: bale.ErrCodec.
var ErrFailed = errors.New("codec")

// Error says which codec could not encode or decode a value of which Go type: [ErrFailed]. Its
// message has no text of the value, and so none of the cause but a place in JSON. [errors.As] and
// Unwrap reach the cause. The cause's text may show the value, at any length: keep it out of logs.
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

// withoutValue says of a codec's error what cannot be text of a value.
func withoutValue(err error) string {
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
	for _, known := range []error{io.ErrUnexpectedEOF, io.EOF} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return fmt.Sprintf("an error of type %T, whose text may show the value", err)
}
