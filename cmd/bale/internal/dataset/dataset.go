// Package dataset holds the values that the lab measures on: the user's own, read by [Load], or
// realistic ones, made by [BuiltIn].
package dataset

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"unicode/utf8"

	"github.com/balekv/bale"
	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/dict"
)

// Dataset is a named set of values.
type Dataset struct {
	Name string
	// Raw are the values as they were given. Ratios are taken against their size, so that serializers compare as well
	// as compressors.
	Raw [][]byte
	// Total is how many there were, of which Raw is a sample.
	Total int
	// Kind says what the values are taken for: "json", "text", "binary", or the Go type of a
	// built-in set.
	Kind string
	// Note says what a reader of the results should know about the set, or is empty.
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

// Halves splits the set: the values to train on, by dict.InTraining, and the others to measure on.
func (d *Dataset) Halves() (train, measure *Dataset) {
	return d.half(true), d.half(false)
}

func (d *Dataset) half(training bool) *Dataset {
	h := &Dataset{Name: d.Name, Kind: d.Kind, Note: d.Note, coders: map[string]func() (Coder, error){}}
	var places []int
	for i, v := range d.Raw {
		if dict.InTraining(i) == training {
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

// Coder serializes the values of a set with one codec. It is safe for concurrent use.
type Coder interface {
	// Encode appends the encoding of value i to dst.
	Encode(dst []byte, i int) ([]byte, error)

	// Decode decodes src and throws the result away.
	Decode(src []byte) error

	// Verify decodes src and compares the result with value i.
	Verify(src []byte, i int) error
}

// Codecs are the names that Coder takes.
func Codecs() []string { return []string{"json", "gob", "raw"} }

// Coder returns the values ready to be serialized by a codec.
func (d *Dataset) Coder(name string) (Coder, error) {
	make, ok := d.coders[name]
	if !ok {
		return nil, fmt.Errorf("no codec %q; there are %q", name, Codecs())
	}
	c, err := make()
	if err != nil {
		return nil, fmt.Errorf("%s as %s: %w", d.Name, name, err)
	}
	return c, nil
}

// typed serializes values of one Go type.
type typed[T any] struct {
	codec  bale.Codec[T]
	values []T
}

func (c typed[T]) Encode(dst []byte, i int) ([]byte, error) { return c.codec.Append(dst, c.values[i]) }

func (c typed[T]) Decode(src []byte) error {
	var v T
	return c.codec.Decode(src, &v)
}

func (c typed[T]) Verify(src []byte, i int) error {
	var v T
	if err := c.codec.Decode(src, &v); err != nil {
		return err
	}
	if !reflect.DeepEqual(v, c.values[i]) {
		return fmt.Errorf("value %d comes back different", i)
	}
	return nil
}

// newTyped makes a set of Go values; raw are their JSON, or they themselves when they are bytes.
func newTyped[T any](name, kind string, values []T, raw [][]byte) *Dataset {
	return &Dataset{Name: name, Kind: kind, Raw: raw, coders: map[string]func() (Coder, error){
		"json": func() (Coder, error) { return typed[T]{codec.JSON[T]{}, values}, nil },
		"gob":  func() (Coder, error) { return typed[T]{codec.Gob[T]{}, values}, nil },
		"raw":  func() (Coder, error) { return typed[[]byte]{codec.Bytes{}, raw}, nil },
	}}
}

// newDynamic makes a set of values of which only the bytes are known.
func newDynamic(name string, raw [][]byte) *Dataset {
	switch {
	case !slices.ContainsFunc(raw, func(v []byte) bool { return !json.Valid(v) }):
		return &Dataset{Name: name, Kind: "json", Raw: raw, coders: map[string]func() (Coder, error){
			"json": func() (Coder, error) { return newDocuments(raw, jsonDocument{}, func(v any) any { return v }) },
			"gob":  func() (Coder, error) { return newDocuments(raw, gobDocument{}, withoutNil) },
			"raw":  func() (Coder, error) { return typed[[]byte]{codec.Bytes{}, raw}, nil },
		}}
	case !slices.ContainsFunc(raw, func(v []byte) bool { return !utf8.Valid(v) }):
		values := make([]string, len(raw))
		for i, v := range raw {
			values[i] = string(v)
		}
		return newTyped(name, "text", values, raw)
	}
	return newTyped(name, "binary", raw, raw)
}

// newDocuments decodes JSON values into any, which is what a program has that knows no type for them.
func newDocuments(raw [][]byte, c bale.Codec[any], prepare func(any) any) (Coder, error) {
	values := make([]any, len(raw))
	for i, r := range raw {
		if err := (jsonDocument{}).Decode(r, &values[i]); err != nil {
			return nil, fmt.Errorf("value %d: %w", i, err)
		}
		values[i] = prepare(values[i])
	}
	return typed[any]{c, values}, nil
}

// jsonDocument is bale's JSON codec, but for numbers: they keep their digits, where float64 would
// lose some of large ids.
type jsonDocument struct{ codec.JSON[any] }

func (jsonDocument) Decode(src []byte, v *any) error {
	d := json.NewDecoder(bytes.NewReader(src))
	d.UseNumber()
	return d.Decode(v)
}

// gobDocument encodes documents with gob, which needs the types named that an any may hold.
type gobDocument struct{ codec.Gob[document] }

type document struct{ V any }

// What gob cannot encode within an any is stood for by a type of its own: nil, and what is empty, which
// it does not tell from nil.
type (
	null      struct{ Null bool }
	emptyList struct{ Empty bool }
	emptyMap  struct{ Empty bool }
)

func (c gobDocument) Append(dst []byte, v any) ([]byte, error) {
	return c.Gob.Append(dst, document{v})
}

func (c gobDocument) Decode(src []byte, v *any) error {
	var d document
	err := c.Gob.Decode(src, &d)
	*v = d.V
	return err
}

// RegisterGob tells gob the types that a document is made of. Gob keeps them for the whole process, so it
// is for the program to call, once, before a coder "gob" is used.
func RegisterGob() {
	gob.Register(map[string]any{})
	gob.Register([]any{})
	gob.Register(json.Number(""))
	gob.Register(null{})
	gob.Register(emptyList{})
	gob.Register(emptyMap{})
}

// withoutNil makes a document fit for gob.
func withoutNil(v any) any {
	switch v := v.(type) {
	case nil:
		return null{true}
	case []any:
		if len(v) == 0 {
			return emptyList{true}
		}
		for i := range v {
			v[i] = withoutNil(v[i])
		}
		return v
	case map[string]any:
		if len(v) == 0 {
			return emptyMap{true}
		}
		for k := range v {
			v[k] = withoutNil(v[k])
		}
		return v
	}
	return v
}
