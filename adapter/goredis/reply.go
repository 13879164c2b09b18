package goredis

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"unsafe"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/rediscmd"
	"github.com/balekv/bale/internal/sampling"
)

// unpacking replaces the values of one reply. Lists and maps are replaced as a whole when a value
// in them is, never changed in place: a client-side cache may hold the same ones.
type unpacking struct {
	ctx context.Context // of the command
	h   *Hook
	call
	batch  bale.Batch // of the command, or of its pipeline
	args   []any
	failed bale.KeyErrors
	bad    int        // how many values could not be unpacked,
	ofKey  int        // and of the last key among them
	none   bool       // the only value says that there is none
	rec    *recording // nil if the command is not told
}

// outcome is what became of a value.
type outcome uint8

const (
	kept     outcome = iota // it is plain already, or out of scope
	replaced                // by its content, or by nothing if it could not be unpacked
	absent                  // the frame says that there is no value, or none any more
)

// replace unpacks what the command holds. If that fails for any value the command is left without
// one.
func (u *unpacking) replace() {
	switch cmd := u.cmd.(type) {
	case *redis.StringCmd:
		replaceIn(u, cmd.Val(), u.first, cmd.SetVal)
	case *redis.StatusCmd:
		replaceIn(u, cmd.Val(), u.first, cmd.SetVal)
	case *redis.SliceCmd:
		replaceIn(u, cmd.Val(), u.executed, cmd.SetVal)
	case *redis.StringSliceCmd:
		replaceIn(u, cmd.Val(), u.strings, cmd.SetVal)
	case *redis.MapStringStringCmd:
		replaceIn(u, cmd.Val(), u.hash, cmd.SetVal)
	case *redis.KeyValueSliceCmd:
		replaceIn(u, cmd.Val(), u.pairs, cmd.SetVal)
	case *redis.ScanCmd:
		page, cursor := cmd.Val()
		replaceIn(u, page, u.strings, func(page []string) { cmd.SetVal(page, cursor) })
	case *redis.Cmd:
		replaceIn(u, cmd.Val(), u.any, cmd.SetVal)
	}
}

// replaceIn replaces a value by what unpack makes of it, by the zero value if something in it
// failed.
func replaceIn[T any](u *unpacking, v T, unpack func(T) (T, bool), set func(T)) {
	v, changed := unpack(v)
	if len(u.failed) > 0 {
		var zero T
		set(zero)
	} else if changed {
		set(v)
	}
}

// first is the value of the first key.
func (u *unpacking) first(s string) (string, bool) {
	u.queued(s)
	plain, o := u.value(s, u.Keys.First, nil)
	u.none = o == absent
	return plain, o != kept
}

// queued looks for the reply to a command of a transaction by hand: the value that it reads comes
// with EXEC.
func (u *unpacking) queued(s string) {
	if u.rec != nil && s == "QUEUED" && u.rec.reads() {
		u.rec.on = false
	}
}

// errWhose is for a frame in the reply of EXEC that may be of a key in scope, or of another.
var errWhose = fmt.Errorf("%w: the hook did not see all commands of the transaction, and cannot tell whether a packed value in the reply is of a key in scope; use TxPipeline", ErrCommand)

// value unpacks a string that is the value of the key at a position, of the given field in a hash.
// Where the key is not known and not all keys are in scope, a frame is an error. Unpacked, it would
// be wrong for a key out of scope. As it is, it would be wrong for one in scope.
func (u *unpacking) value(s string, key int, field any) (string, outcome) {
	magic := frame.HasMagic(s)
	if !magic && u.rec == nil && sampling.Groups.Load() == 0 {
		return s, kept
	}
	name := ""
	if key < len(u.args) {
		name = text(u.args[key])
	}
	if u.Reply != rediscmd.AnyValues && !u.h.scope.Has(name) {
		return s, kept
	}
	if u.Reply == rediscmd.AnyValues && u.Gets == nil && magic && !u.h.scope.All() {
		return u.fail(name, nil, errWhose)
	}
	if !magic {
		u.rec.read(s)
		if u.Reply != rediscmd.AnyValues && len(s) <= maxScratch && sampling.Groups.Load() > 0 {
			u.observe(s)
		}
		return s, kept
	}
	stored := unsafeBytes(s)
	if rediscmd.Gone(stored) {
		u.rec.missed()
		return "", absent
	}
	plain, err := u.batch.Unpack(u.ctx, nil, stored)
	if err != nil {
		return u.fail(name, field, err)
	}
	if u.rec != nil {
		u.rec.read(s)
		u.rec.unpacked = true
	}
	// Nobody else has these bytes.
	return unsafe.String(unsafe.SliceData(plain), len(plain)), replaced
}

// observe shows a plain value to the Compressors, as a Cache does: dict.Auto samples what is read.
func (u *unpacking) observe(plain string) {
	scratch := u.h.scratch.Get().(*[]byte)
	*scratch, _ = u.h.packer.Unpack(u.ctx, (*scratch)[:0], unsafeBytes(plain))
	if cap(*scratch) <= maxScratch {
		u.h.scratch.Put(scratch)
	}
}

// maxFailed is how many values of one key an error names: the writer of a key chooses how many
// there are.
const maxFailed = 100

// unnamed are the failures of a key that an error does not name.
type unnamed struct {
	n     int
	first error
}

func (o *unnamed) Error() string { return fmt.Sprintf("and %d more values, with: %v", o.n, o.first) }
func (o *unnamed) Unwrap() error { return o.first }

// fail notes that a value could not be unpacked.
func (u *unpacking) fail(key string, field any, err error) (string, outcome) {
	u.bad++
	last := len(u.failed) - 1
	// The patterns of SORT name keys in turn, one for each element of a list.
	if last < 0 || u.Reply == rediscmd.KeyValues || u.Gets == nil && u.failed[last].Key != key {
		u.ofKey = 0
	}
	u.ofKey++
	switch {
	case u.ofKey > maxFailed+1:
		u.failed[last].Err.(*unnamed).n++
		return "", replaced
	case u.ofKey > maxFailed:
		err = &unnamed{1, err}
	case field != nil:
		err = fmt.Errorf("field %.100q: %w", text(field), err)
	}
	u.failed = append(u.failed, &bale.KeyError{Op: u.name, Key: key, Err: err})
	return "", replaced
}

// place says whether element i of a flat list is a value, of which key, and of which field.
func (u *unpacking) place(i int, element func(int) any) (key int, field any, ok bool) {
	switch u.Reply {
	case rediscmd.KeyValues:
		return u.Keys.First + i*u.Keys.Step, nil, true
	case rediscmd.ListValues:
		return u.Keys.First, nil, true
	case rediscmd.AnyValues:
		if u.Gets == nil {
			return u.Keys.First, nil, true
		}
		at := u.Gets[i%len(u.Gets)]
		return at, nil, u.h.scope.MayName(text(u.args[at]))
	case rediscmd.PairValues, rediscmd.ScanValues:
		if i%2 == 1 {
			return u.Keys.First, element(i - 1), true
		}
	}
	return 0, nil, false
}

func (u *unpacking) strings(list []string) ([]string, bool) {
	changed := false
	for i, s := range list {
		key, field, ok := u.place(i, func(i int) any { return list[i] })
		if !ok {
			continue
		}
		if s == "" && u.Reply == rediscmd.ListValues && u.name != "hvals" { // what go-redis makes of a field that is not there
			u.rec.missed()
			continue
		}
		if plain, o := u.value(s, key, field); o != kept { // "" for an absent one, as go-redis has it
			if !changed {
				list, changed = slices.Clone(list), true
			}
			list[i] = plain
		}
	}
	return list, changed
}

func (u *unpacking) list(list []any) ([]any, bool) {
	changed := false
	put := func(i int, v any) {
		if !changed {
			list, changed = slices.Clone(list), true
		}
		list[i] = v
	}
	for i, element := range list {
		switch v := element.(type) {
		case nil:
			if key, _, ok := u.place(i, func(int) any { return nil }); ok && u.rec != nil && key < len(u.args) && u.h.scope.Has(text(u.args[key])) {
				u.rec.missed()
			}
		case string:
			if key, field, ok := u.place(i, func(i int) any { return list[i] }); ok {
				switch plain, o := u.value(v, key, field); o {
				case replaced:
					put(i, plain)
				case absent:
					put(i, nil)
				}
			}
		case []any: // a scan's page after its cursor, or a pair of RESP3
			if inner, is := u.list(v); is {
				put(i, inner)
			}
		case map[any]any:
			if inner, is := u.document(v); is {
				put(i, inner)
			}
		}
	}
	return list, changed
}

func (u *unpacking) hash(m map[string]string) (map[string]string, bool) {
	changed := false
	for field, s := range m {
		plain, o := u.value(s, u.Keys.First, field)
		if o != kept && !changed {
			m, changed = maps.Clone(m), true
		}
		switch o {
		case replaced:
			m[field] = plain
		case absent:
			delete(m, field)
		}
	}
	return m, changed
}

func (u *unpacking) document(m map[any]any) (map[any]any, bool) {
	changed := false
	for field, v := range m {
		s, ok := v.(string)
		if !ok {
			continue
		}
		plain, o := u.value(s, u.Keys.First, field)
		if o != kept && !changed {
			m, changed = maps.Clone(m), true
		}
		switch o {
		case replaced:
			m[field] = plain
		case absent:
			m[field] = nil
		}
	}
	return m, changed
}

func (u *unpacking) pairs(list []redis.KeyValue) ([]redis.KeyValue, bool) {
	changed := false
	for i, pair := range list {
		if plain, o := u.value(pair.Value, u.Keys.First, pair.Key); o != kept {
			if !changed {
				list, changed = slices.Clone(list), true
			}
			list[i].Value = plain
		}
	}
	return list, changed
}

// executed unpacks a list. In that of EXEC, each element is the reply of a queued command.
func (u *unpacking) executed(list []any) ([]any, bool) {
	if u.name != "exec" || len(u.queue) != len(list) {
		return u.list(list)
	}
	changed := false
	exec, args := u.call, u.args
	for i, q := range exec.queue {
		if q.Reply == rediscmd.NoValues {
			continue
		}
		u.call, u.args = q.call, q.args
		if element, is := u.any(list[i]); is {
			if !changed {
				list, changed = slices.Clone(list), true
			}
			list[i] = element
		}
	}
	u.call, u.args, u.none = exec, args, false
	return list, changed
}

// any unpacks the reply of Do, whose shape depends on the protocol.
func (u *unpacking) any(v any) (any, bool) {
	switch v := v.(type) {
	case string:
		if u.Reply == rediscmd.OneValue {
			plain, changed := u.first(v)
			if u.none {
				return nil, true
			}
			return plain, changed
		}
		u.queued(v)
	case []any:
		return u.executed(v)
	case map[any]any:
		return u.document(v)
	}
	return v, false
}
