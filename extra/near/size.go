package near

import (
	"math"
	"reflect"
	"sync"
	"time"
)

const (
	// overhead is the memory of an entry beside its key and value, in bytes. TestOverhead measured
	// it with small values.
	overhead = 128

	maxParts = 1 << 20 // of a value whose size is estimated: some 10 ms
	maxDepth = 100
	tooLarge = math.MaxInt32 // the size of a value that has more
)

// estimator estimates the memory of values in bytes. A part counts once per pointer to it.
type estimator[T any] struct {
	fixed int      // of every T
	flat  bool     // nothing in a T points to anything
	types sync.Map // reflect.Type to traits
}

// traits are the properties of a type that an estimate needs.
type traits struct{ flat, locked bool }

func newEstimator[T any]() *estimator[T] {
	t := reflect.TypeFor[T]()
	e := &estimator[T]{fixed: int(t.Size())}
	e.flat = e.of(t).flat
	return e
}

// size is the memory of a value with everything it points to, or tooLarge.
func (e *estimator[T]) size(_ string, v T) int {
	if e.flat {
		return e.fixed
	}
	w := walk{parts: maxParts, of: e.of}
	n := e.fixed + w.beyond(reflect.ValueOf(&v).Elem(), maxDepth)
	if w.parts < 0 || n < 0 || n > tooLarge {
		return tooLarge
	}
	return n
}

func (e *estimator[T]) of(t reflect.Type) traits {
	if known, ok := e.types.Load(t); ok {
		return known.(traits)
	}
	is := traits{isFlat(t), isLocked(t)}
	e.types.Store(t, is)
	return is
}

// isFlat reports whether nothing in a t points to anything that counts. The location of a time and
// the type of a protocol buffer's message are nearly always shared, and do not count.
func isFlat(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return isFlat(t.Elem())
	case reflect.Struct:
		if t == reflect.TypeFor[time.Time]() || t.Name() == "MessageState" && t.PkgPath() == "google.golang.org/protobuf/internal/impl" {
			return true
		}
		for f := range t.Fields() {
			if !isFlat(f.Type) {
				return false
			}
		}
		return true
	case reflect.String, reflect.Slice, reflect.Map, reflect.Pointer, reflect.Interface:
		return false
	}
	return true
}

// isLocked reports whether a t has a lock in it. Messages of protocol buffers have an array of
// none.
func isLocked(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return t.Len() > 0 && isLocked(t.Elem())
	case reflect.Struct:
		if t == reflect.TypeFor[sync.Mutex]() || t == reflect.TypeFor[sync.RWMutex]() {
			return true
		}
		for f := range t.Fields() {
			if isLocked(f.Type) {
				return true
			}
		}
	}
	return false
}

// walk is the state of one estimate.
type walk struct {
	parts int // that may still be looked at
	of    func(reflect.Type) traits
}

// beyond is the memory that v points to, directly or not.
func (w *walk) beyond(v reflect.Value, depth int) int {
	if w.parts--; w.parts < 0 || depth == 0 {
		w.parts = -1
		return 0
	}
	t, n := v.Type(), 0
	switch v.Kind() {
	case reflect.String:
		return v.Len()
	case reflect.Slice:
		n = v.Cap() * int(t.Elem().Size())
		if !w.of(t.Elem()).flat { // beyond the length, too: a field that a value has twice leaves elements there
			n += w.elements(v.Slice(0, v.Cap()), depth)
		}
	case reflect.Array:
		if !w.of(t).flat {
			n = w.elements(v, depth)
		}
	case reflect.Struct:
		if w.of(t).flat {
			return 0
		}
		for i := 0; i < v.NumField() && w.parts >= 0; i++ {
			n += w.beyond(v.Field(i), depth-1)
		}
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return 0
		}
		// Others may change what has a lock, such as the connections that a loaded value points to.
		// A map that changes meanwhile would end the program. The value itself may have a lock.
		t := v.Elem().Type()
		if depth < maxDepth && w.of(t).locked {
			w.parts = -1
			return 0
		}
		n = int(t.Size()) + w.beyond(v.Elem(), depth-1)
	case reflect.Map:
		if v.IsNil() {
			return 0
		}
		// Go's maps have 8 places, or twice as many until 7/8 of them are enough. Each has a byte
		// more; what is larger than 128 bytes is elsewhere. Tens of bytes are for the whole.
		places := min(v.Len(), 1) * 8
		for v.Len() > 8 && places*7 < v.Len()*8 {
			places *= 2
		}
		n = 48 + places
		for _, t := range []reflect.Type{t.Key(), t.Elem()} {
			if size := int(t.Size()); size > 128 {
				n += places*8 + v.Len()*size
			} else {
				n += places * size
			}
		}
		keys, elems := !w.of(t.Key()).flat, !w.of(t.Elem()).flat
		for i := v.MapRange(); (keys || elems) && w.parts >= 0 && i.Next(); {
			if keys {
				n += w.beyond(i.Key(), depth-1)
			}
			if elems {
				n += w.beyond(i.Value(), depth-1)
			}
		}
	}
	return n
}

func (w *walk) elements(v reflect.Value, depth int) int {
	n := 0
	for i := 0; i < v.Len() && w.parts >= 0; i++ {
		n += w.beyond(v.Index(i), depth-1)
	}
	return n
}
