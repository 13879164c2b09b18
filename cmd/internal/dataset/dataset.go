// Package dataset holds the values and the serializers that the lab measures. The values are the
// user's own, read by [Load], or realistic ones, made by [Make] and [Sized].
//
// There are two tracks, which are not to be compared with each other. In the [Typed] one a value is
// of a Go type that is known when the program is built, with generated code for the libraries that
// need it. In the [Dynamic] one it is a document, which a program decodes into any;
// [Dataset.Dynamic] puts a built-in set there.
//
// # Numbers of documents
//
// The JSON libraries decode a number as a float64 if encoding/json would write every number of the
// set in the same way. Otherwise (12.50, or an id of 20 digits) every number of the set is a
// json.Number, so that no digit is lost. Gob, MessagePack and CBOR hold the types of a typical
// program. An integer that fits is an int64 or a uint64. Another number is a float64, if its
// shortest decimal is that number. For any other number gob holds the json.Number, and the other
// two have no coder: [ErrNoCoder].
package dataset

import (
	"errors"
	"fmt"
	"slices"

	"github.com/balekv/bale/internal/holdout"
)

// The tracks. Results of one say nothing about those of the other.
const (
	Typed   = "typed"   // values of Go types, with generated code where a library needs it
	Dynamic = "dynamic" // values that are decoded into any
)

// ErrNoCoder is the class of a [NoCoderError].
var ErrNoCoder = errors.New("not possible")

// NoCoderError means that a codec cannot serialize a set. It is ErrNoCoder.
type NoCoderError struct{ Reason string }

func (e *NoCoderError) Error() string { return ErrNoCoder.Error() + ": " + e.Reason }
func (e *NoCoderError) Unwrap() error { return ErrNoCoder }

// Dataset is a named set of values.
type Dataset struct {
	Name string
	// Raw are the values as they were given. Ratios are taken against their size, so that
	// serializers compare as well as compressors.
	Raw [][]byte
	// Total is how many there were, of which Raw is a sample.
	Total int
	// Kind is the kind of the values: "json", "text", "binary", or the Go type of a built-in set.
	Kind string
	// Track is Typed or Dynamic.
	Track string
	// Note is a remark for readers of the results, or empty.
	Note string

	coders map[string]func() (Coder, error)
}

// RawBytes is the size of all values in bytes.
func (d *Dataset) RawBytes() int64 {
	var n int64
	for _, v := range d.Raw {
		n += int64(len(v))
	}
	return n
}

// Halves splits the set: the values to train on, by holdout.Training, and the others to measure on.
func (d *Dataset) Halves() (train, measure *Dataset) {
	return d.half(true), d.half(false)
}

func (d *Dataset) half(training bool) *Dataset {
	h := &Dataset{Name: d.Name, Kind: d.Kind, Track: d.Track, Note: d.Note, coders: map[string]func() (Coder, error){}}
	var places []int
	for i, v := range d.Raw {
		if holdout.Training(i) == training {
			places = append(places, i)
			h.Raw = append(h.Raw, v)
		}
	}
	for name, make := range d.coders {
		h.coders[name] = func() (Coder, error) {
			c, err := make()
			return halved{c, places}, err
		}
	}
	return h
}

// halved is a Coder of the values at some places.
type halved struct {
	Coder
	places []int
}

func (h halved) Encode(dst []byte, i int) ([]byte, error) { return h.Coder.Encode(dst, h.places[i]) }
func (h halved) Verify(src []byte, i int) error           { return h.Coder.Verify(src, h.places[i]) }

// Coder serializes the values of a set with one codec, as who knows the library would write it. It
// is safe for concurrent use.
type Coder interface {
	// Encode appends the encoding of value i to dst.
	Encode(dst []byte, i int) ([]byte, error)

	// Decode decodes src and throws the result away.
	Decode(src []byte) error

	// Verify decodes src and compares the result with value i. Times are the same that are the same
	// instant, and what decodes src must have kept nothing of its memory.
	Verify(src []byte, i int) error
}

// Coder returns the values ready to be serialized by a codec. Where it cannot serialize them the
// error is ErrNoCoder.
func (d *Dataset) Coder(name string) (Coder, error) {
	make, ok := d.coders[name]
	if !ok {
		return nil, d.noCoder(name)
	}
	c, err := make()
	if err != nil {
		return nil, fmt.Errorf("%s as %s: %w", d.Name, name, err)
	}
	return c, nil
}

// Auto stands for the codec that suits a set: see [Dataset.Codecs].
const Auto = "auto"

// Codecs are codecs by their names, with the one that suits the set in place of Auto: json, and raw
// for values that a program stores as they are.
func (d *Dataset) Codecs(names []string) []string {
	own := "json"
	if d.Track == Dynamic && d.Kind != "json" {
		own = "raw"
	}
	names = slices.Clone(names)
	for i, name := range names {
		if name == Auto {
			names[i] = own
		}
	}
	return slices.Compact(names)
}

// noCoder returns the error for a codec without a coder.
func (d *Dataset) noCoder(name string) error {
	for _, c := range CodecInfos() {
		switch {
		case c.Name != name:
		case d.Track == Dynamic:
			return fmt.Errorf("%s as %s: %w", d.Name, name,
				&NoCoderError{"it needs code generated for a Go type, which only sets of the typed track have"})
		default:
			return fmt.Errorf("%s as %s: %w", d.Name, name,
				&NoCoderError{"it needs code generated for a struct, and these values are " + d.Kind})
		}
	}
	return fmt.Errorf("no codec %q; there are %q", name, Codecs())
}
