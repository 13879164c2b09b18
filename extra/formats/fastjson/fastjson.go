// Package fastjson is a bale.Codec for JSON, faster than the one of package codec, with
// github.com/goccy/go-json. It writes the bytes that encoding/json writes and reads the same input.
// So either can replace the other on a live cache. [Codec] is ready to use; [New] makes one with
// other limits.
//
// goccy/go-json was chosen over bytedance/sonic in the setting that writes the bytes of
// encoding/json. The test was a profile of 419 bytes (BenchmarkProfile in package codecs). The
// columns are microseconds to append and to decode, and the allocations of each:
//
//	encoding/json  0.91  4.38   2  22
//	sonic          1.10  1.57   4  17
//	go-json        0.38  0.83   1  14
//
// Methods UnmarshalJSON and UnmarshalText must copy the bytes that they keep, as encoding/json
// demands, too. The next value overwrites the argument of UnmarshalText.
package fastjson

import (
	"bytes"
	"cmp"
	"fmt"
	"sync"

	"github.com/goccy/go-json"

	"github.com/balekv/bale/extra/formats"
	"github.com/balekv/bale/extra/formats/internal/limits"
)

// Options are the limits of a [Codec]; the zero value is useful.
type Options struct {
	// MaxDepth is how many arrays and objects may be inside each other in a value that is read.
	// Deeper ones are formats.ErrLimit; Append does not look. Defaults to 1,000; 4 to 10,000.
	MaxDepth int
}

// Codec encodes with JSON. The zero Codec has the default Options. It is safe for concurrent use.
type Codec[T any] struct{ maxDepth int }

// New makes a Codec. An option out of range is bale.ErrInvalid.
func New[T any](o Options) (Codec[T], error) {
	n, err := limits.Depth("fastjson", o.MaxDepth)
	return Codec[T]{n}, err
}

// appender is a writer that appends.
type appender struct{ b []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}

type encoder struct {
	out appender
	enc *json.Encoder
}

// An Encoder writes straight into our buffer, where json.Marshal would allocate one of its own for
// each value.
var encoders = sync.Pool{New: func() any {
	e := new(encoder)
	e.enc = json.NewEncoder(&e.out)
	return e
}}

// Append appends the JSON of v to dst.
func (Codec[T]) Append(dst []byte, v T) ([]byte, error) {
	e := encoders.Get().(*encoder)
	e.out.b = dst
	err := e.enc.Encode(v)
	out := e.out.b
	e.out.b = nil
	encoders.Put(e)
	if err != nil {
		return dst, err
	}
	return out[:len(out)-1], nil // Encode ends in a newline, which Marshal does not
}

// Decode reads the JSON src, a single value, into *v.
func (c Codec[T]) Decode(src []byte, v *T) error {
	if n := cmp.Or(c.maxDepth, limits.DefaultDepth); deeper(src, n) {
		return fmt.Errorf("fastjson: %w: arrays and objects nest deeper than MaxDepth, %d", formats.ErrLimit, n)
	}
	return json.Unmarshal(src, v)
}

// deeper reports whether arrays and objects nest deeper than n before src is over or is no JSON any
// more.
func deeper(src []byte, n int) bool {
	// Most values are too short, or have too few brackets: those are counted at many bytes a
	// nanosecond.
	if len(src) <= n || bytes.Count(src, []byte{'['})+bytes.Count(src, []byte{'{'}) <= n {
		return false
	}
	depth := 0
	for i := 0; i < len(src); i++ {
		switch src[i] {
		case '[', '{':
			if depth++; depth > n {
				return true
			}
		case ']', '}':
			depth--
		case '"':
			for i++; i < len(src) && src[i] != '"'; i++ {
				if src[i] == '\\' {
					i++
				}
			}
		}
	}
	return false
}
