package dataset

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/balekv/bale/cmd/internal/values"
	"github.com/balekv/bale/codec"
)

// Dynamic returns the set as one of the dynamic track: its JSON, decoded into any. Of a set that is
// not JSON the error is ErrNoCoder.
func (d *Dataset) Dynamic() (*Dataset, error) {
	if d.Track == Dynamic {
		return d, nil
	}
	if !values.AllJSON(d.Raw) {
		return nil, fmt.Errorf("%s in the dynamic track: %w", d.Name, &NoCoderError{"it needs values that are JSON, and these are " + d.Kind})
	}
	dynamic := newDocuments(d.Name, d.Raw)
	dynamic.Total, dynamic.Note = d.Total, d.Note
	return dynamic, nil
}

// Load reads a set of values as package values does, to be measured as JSON, text or bytes.
func Load(ctx context.Context, path string, stdin io.Reader, limits values.Limits) (*Dataset, error) {
	set, err := values.Load(ctx, path, stdin, limits)
	if err != nil {
		return nil, err
	}
	var d *Dataset
	switch set.Kind {
	case values.JSON:
		if n := items(set.Values); n > maxItems {
			return nil, fmt.Errorf("%w: %s is JSON of %d items, more than %d: decoded they take some 90 bytes each; give fewer, or ask for a smaller sample", values.ErrData, path, n, maxItems)
		}
		d = newDocuments(set.Name, set.Values)
	case values.Text:
		d = newText(set.Name, Dynamic, set.Values)
	default:
		d = newBytes(set.Name, Dynamic, set.Values)
	}
	d.Total, d.Note = set.Total, set.Note
	return d, nil
}

// maxItems bounds the objects, lists and commas of a set of JSON. Decoded, "{}," takes 180 bytes: a
// set within the limit takes 3 GB at most. Without one, a file of 400 MB took 24 GB.
var maxItems = 1 << 25

func items(raw [][]byte) (n int) {
	for _, v := range raw {
		n += bytes.Count(v, []byte("{")) + bytes.Count(v, []byte("[")) + bytes.Count(v, []byte(","))
	}
	return n
}

// newDocuments makes a set of JSON values to decode into any, as a program does that has no type
// for them.
func newDocuments(name string, raw [][]byte) *Dataset {
	textual := func(make func(numbers bool) (serializer[any], error)) func() (Coder, error) {
		return func() (Coder, error) {
			values, numbers, err := parse(raw)
			if err != nil {
				return nil, err
			}
			s, err := make(numbers)
			return typed[any]{s, values, sameDocument}, err
		}
	}
	binary := func(make func() (serializer[any], error), prepare func(any) (any, error)) func() (Coder, error) {
		return func() (Coder, error) {
			values, err := prepared(raw, prepare)
			if err != nil {
				return nil, err
			}
			s, err := make()
			return typed[any]{s, values, sameDocument}, err
		}
	}
	return &Dataset{Name: name, Kind: "json", Track: Dynamic, Raw: raw, coders: map[string]func() (Coder, error){
		"json":     textual(func(numbers bool) (serializer[any], error) { return standard[any]{numbers}, nil }),
		"json2":    textual(func(numbers bool) (serializer[any], error) { return newVersion2[any](numbers), nil }),
		"go-json":  textual(func(numbers bool) (serializer[any], error) { return goccy[any]{numbers}, nil }),
		"sonic":    textual(func(numbers bool) (serializer[any], error) { return newByteDance[any](numbers) }),
		"gob":      binary(func() (serializer[any], error) { return gobDocument{}, nil }, forGob),
		"msgpack":  binary(func() (serializer[any], error) { return vmihailenco[any]{}, nil }, withNumbers),
		"shamaton": binary(func() (serializer[any], error) { return shamatons[any]{}, nil }, withNumbers),
		"cbor":     binary(func() (serializer[any], error) { return newFxamacker[any]() }, withNumbers),
		"raw":      func() (Coder, error) { return newRaw(raw), nil },
	}}
}

// parse decodes JSON values, with numbers as json.Number if those of the set do not all stay what
// they are as float64.
func parse(raw [][]byte) (values []any, numbers bool, err error) {
	if values, err = prepared(raw, func(v any) (any, error) {
		numbers = numbers || !asFloats(v)
		return v, nil
	}); err != nil || numbers {
		return values, numbers, err
	}
	for i, r := range raw {
		values[i] = nil
		if err := json.Unmarshal(r, &values[i]); err != nil {
			return nil, false, fmt.Errorf("value %d: %w", i, notDecoded(err))
		}
	}
	return values, false, nil
}

// notDecoded is an error of encoding/json, without text of the value.
func notDecoded(err error) error {
	return &codec.Error{Op: "decode", Codec: "encoding/json", Type: "any", Err: err}
}

// prepared decodes JSON values, with numbers as json.Number, and prepares each.
func prepared(raw [][]byte, prepare func(any) (any, error)) ([]any, error) {
	values := make([]any, len(raw))
	for i, r := range raw {
		d := json.NewDecoder(bytes.NewReader(r))
		d.UseNumber()
		err := d.Decode(&values[i])
		if err != nil {
			err = notDecoded(err)
		} else {
			values[i], err = prepare(values[i])
		}
		if err != nil {
			return nil, fmt.Errorf("value %d: %w", i, err)
		}
	}
	return values, nil
}

// asFloats reports whether all numbers of a document are written as encoding/json writes a float64.
func asFloats(v any) bool {
	switch v := v.(type) {
	case []any:
		return !slices.ContainsFunc(v, func(e any) bool { return !asFloats(e) })
	case map[string]any:
		for _, e := range v {
			if !asFloats(e) {
				return false
			}
		}
	case json.Number:
		f, err := v.Float64()
		if err != nil {
			return false
		}
		b, err := json.Marshal(f)
		return err == nil && string(b) == string(v)
	}
	return true
}

// number is a JSON number as a program would hold it: int64, uint64 or float64, or the json.Number
// itself if none of them fits.
func number(n json.Number) any {
	s := string(n)
	if i, err := strconv.ParseInt(s, 10, 64); err == nil && s != "-0" {
		return i
	}
	if u, err := strconv.ParseUint(s, 10, 64); err == nil {
		return u
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || decimal(s) != decimal(strconv.FormatFloat(f, 'e', -1, 64)) {
		return n
	}
	return f
}

// decimal normalizes a number to its sign, its digits without zeros around them, and a power of
// ten. Equal numbers have equal results, except for the sign of zero.
func decimal(s string) string {
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	exponent := 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		e, err := strconv.Atoi(s[i+1:])
		if err != nil {
			return s
		}
		exponent, s = e, s[:i]
	}
	if whole, fraction, ok := strings.Cut(s, "."); ok {
		exponent -= len(fraction)
		s = whole + fraction
	}
	digits := strings.TrimRight(s, "0")
	exponent += len(s) - len(digits)
	if digits = strings.TrimLeft(digits, "0"); digits == "" {
		exponent = 0
	}
	return sign + digits + "e" + strconv.Itoa(exponent)
}

// withNumbers puts Go's numbers into a document, which it changes.
func withNumbers(v any) (any, error) {
	return replaced(v, func(v any) (any, error) {
		n, ok := v.(json.Number)
		if !ok {
			return v, nil
		}
		if v = number(n); v == any(n) {
			return nil, &NoCoderError{"it has a number that is neither an int64 nor a uint64 nor a float64"}
		}
		return v, nil
	})
}

// replaced puts what f makes of each leaf of a document in its place. A list or an object without
// elements is a leaf.
func replaced(v any, f func(any) (any, error)) (any, error) {
	var err error
	switch v := v.(type) {
	case []any:
		if len(v) == 0 {
			return f(v)
		}
		for i := range v {
			if v[i], err = replaced(v[i], f); err != nil {
				return nil, err
			}
		}
		return v, nil
	case map[string]any:
		if len(v) == 0 {
			return f(v)
		}
		for k := range v {
			if v[k], err = replaced(v[k], f); err != nil {
				return nil, err
			}
		}
		return v, nil
	}
	return f(v)
}

// sameDocument reports whether two documents are the same. Integers are the same that have the same
// value, whatever their Go type, and so are floats; an integer is no float. Some libraries make a
// map[any]any of an object.
func sameDocument(got, want *any) bool { return sameAny(*got, *want) }

func sameAny(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		switch got := got.(type) {
		case map[string]any:
			return sameObject(got, want)
		case map[any]any:
			return sameObject(got, want)
		}
		return false
	case []any:
		list, ok := got.([]any)
		return ok && list != nil && slices.EqualFunc(list, want, sameAny)
	case int64, uint64:
		g, w := reflect.ValueOf(got), reflect.ValueOf(want)
		switch {
		case g.CanInt() && w.CanInt():
			return g.Int() == w.Int()
		case g.CanUint() && w.CanUint():
			return g.Uint() == w.Uint()
		case g.CanUint() && w.CanInt():
			return w.Int() >= 0 && g.Uint() == uint64(w.Int())
		}
		return false // a uint64 among the values is larger than any int64
	case float64:
		switch got := got.(type) {
		case float64:
			return math.Float64bits(got) == math.Float64bits(want)
		case float32:
			return math.Float64bits(float64(got)) == math.Float64bits(want)
		}
		return false
	}
	return reflect.DeepEqual(got, want)
}

func sameObject[K comparable](got map[K]any, want map[string]any) bool {
	if got == nil || len(got) != len(want) {
		return false
	}
	for k, g := range got {
		name, ok := any(k).(string)
		if !ok {
			return false
		}
		if w, ok := want[name]; !ok || !sameAny(g, w) {
			return false
		}
	}
	return true
}

// gobDocument encodes documents with gob, which needs the types named that an any may hold.
type gobDocument struct{}

type document struct{ V any }

// Types of their own stand in for values that gob cannot encode within an any: nil, and empty
// values, which gob does not distinguish from nil.
type (
	null      struct{ Null bool }
	emptyList struct{ Empty bool }
	emptyMap  struct{ Empty bool }
)

func (gobDocument) append(dst []byte, v *any) ([]byte, error) {
	return codec.Gob[document]{}.Append(dst, document{*v})
}

func (gobDocument) decode(src []byte, v *any) error {
	var d document
	err := codec.Gob[document]{}.Decode(src, &d)
	*v = d.V
	return err
}

// RegisterGob registers a document's types with gob. Gob keeps them for the whole process, so the
// program must call it, once, before it uses a coder "gob".
func RegisterGob() {
	gob.Register(map[string]any{})
	gob.Register([]any{})
	gob.Register(json.Number(""))
	gob.Register(null{})
	gob.Register(emptyList{})
	gob.Register(emptyMap{})
}

// forGob makes a document fit for gob: numbers are Go's where they can be.
func forGob(v any) (any, error) {
	return replaced(v, func(v any) (any, error) {
		switch v := v.(type) {
		case nil:
			return null{true}, nil
		case []any:
			return emptyList{true}, nil
		case map[string]any:
			return emptyMap{true}, nil
		case json.Number:
			return number(v), nil
		}
		return v, nil
	})
}
