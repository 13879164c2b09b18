// Package migrate packs the values that a Redis holds, in place, while programs read and write them, or unpacks them again. [Run] does it;
// a [State] lets a run that was ended go on.
//
// Each value is replaced by a script that compares it with what was read: a value that a program has written meanwhile is read again. Its expiry stays to the
// millisecond, and a key that is gone stays gone. What is done twice changes nothing, so a run may end anywhere and start again.
package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/bale/internal/keyspace"
	"github.com/balekv/bale/frame"
)

const (
	tries      = 5        // of a value that programs write all the time
	swapBytes  = 16 << 20 // of new values that are held at a time, if not a single one has more
	maxNumber  = 5 << 10  // bytes; MAX_LONG_DOUBLE_CHARS, the longest that INCRBYFLOAT takes
	hllMagic   = "HYLL"   // what a HyperLogLog starts with (hyperloglog.c)
	hllMinSize = 16
)

// Options say what a run does.
type Options struct {
	Match []string // patterns of keys
	Skip  []string // keys that start so are left: those of registries
	Rate  int      // keys, and fields of hashes, a second; 0 for no limit

	// Packer writes values as they are to be, with Algorithm and DictionaryID, and reads all there are.
	Packer       *bale.Packer
	Algorithm    frame.Algorithm
	DictionaryID frame.DictionaryID
	MaxSize      int // of the Packer

	Revert bool // unpack
	Repack bool // pack anew what is packed otherwise
	DryRun bool // only count

	// Places is where to go on, nil for the start.
	Places []keyspace.Place

	// Page, if it is set, is told after every page of keys how far the run is.
	Page func(places []keyspace.Place, r *Result) error
}

// Run changes values, and adds to what a result has already. When ctx ends it finishes what is begun and stops, with ctx's error. Values that
// cannot be changed are no error: the result has them.
func Run(ctx context.Context, client redis.UniversalClient, o Options, r *Result) error {
	if r.Left == nil {
		r.Left = map[Reason]Tally{}
	}
	m := &migration{Options: o, client: client, swapper: newSwapper(!o.Revert), result: r}
	var before keyspace.Looked
	return keyspace.ReadValues(ctx, client, keyspace.ValuesOptions{
		Match: o.Match, Skip: o.Skip, Size: bale.MaxPackedLen(o.MaxSize), Rate: o.Rate, Places: o.Places,
		Values: m.values,
		Page: func(places []keyspace.Place, l keyspace.Looked) error {
			r.Keys += l.Keys - before.Keys
			r.count(Registry, l.Skipped-before.Skipped)
			r.count(OtherType, l.Others-before.Others)
			r.count(TooLarge, l.TooLarge-before.TooLarge)
			r.count(Gone, l.Gone-before.Gone)
			before = l
			if o.Page == nil {
				return nil
			}
			return o.Page(places, r)
		},
	})
}

// migration is a run.
type migration struct {
	Options
	client  redis.UniversalClient
	swapper *swapper
	result  *Result
}

// values deals with some values of a server.
func (m *migration) values(ctx context.Context, node redis.UniversalClient, values []keyspace.Value) (keyspace.Next, error) {
	for len(values) > 0 {
		changes, n := m.changes(ctx, values)
		if err := m.settle(ctx, node, changes); err != nil {
			return keyspace.Stop, err
		}
		values = values[n:]
	}
	return keyspace.More, nil
}

// changes says what is to be written for the first values, as many as there is room for.
func (m *migration) changes(ctx context.Context, values []keyspace.Value) (changes []change, n int) {
	size := 0
	for i, v := range values {
		next, why, err := m.decide(ctx, v)
		switch {
		case err != nil:
			m.result.problem(v, err)
			m.result.leave(v, why)
		case why != "":
			m.result.leave(v, why)
		default:
			changes = append(changes, change{v, next})
		}
		if size += len(next); size > swapBytes {
			return changes, i + 1
		}
	}
	return changes, len(values)
}

// settle makes changes, and makes those anew whose values have changed meanwhile.
func (m *migration) settle(ctx context.Context, node redis.UniversalClient, changes []change) error {
	for try := 1; len(changes) > 0; try++ {
		outcomes := make([]outcome, len(changes)) // all done
		if !m.DryRun {
			var err error
			if outcomes, err = m.swapper.swap(ctx, node, changes); err != nil {
				return err
			}
		}
		var again []keyspace.Value
		through := node
		for i, c := range changes {
			switch outcomes[i] {
			case done:
				m.done(c)
			case absent:
				m.result.leave(c.value, Gone)
			case elsewhere:
				again, through = append(again, c.value), m.client
			case different:
				again = append(again, c.value)
			}
		}
		node, changes = through, nil
		if try == tries {
			for _, v := range again {
				m.result.problem(v, errChanged)
				m.result.leave(v, Changed)
			}
			return nil
		}
		values, err := m.reread(ctx, node, again)
		if err != nil {
			return err
		}
		for len(values) > 0 {
			some, n := m.changes(ctx, values)
			changes, values = append(changes, some...), values[n:]
		}
	}
	return nil
}

var errChanged = fmt.Errorf("a program wrote it again and again, and came first %d times", tries)

func (m *migration) done(c change) {
	if c.value.InHash {
		m.result.Fields.add(c.value, len(c.next))
	} else {
		m.result.Strings.add(c.value, len(c.next))
	}
}

// reread reads values that have changed.
func (m *migration) reread(ctx context.Context, node redis.UniversalClient, values []keyspace.Value) ([]keyspace.Value, error) {
	replies := make([]*redis.StringCmd, len(values))
	if err := keyspace.Pipeline(ctx, node, len(values), func(p redis.Pipeliner, i int) {
		if v := values[i]; v.InHash {
			replies[i] = p.HGet(ctx, v.Key, v.Field)
		} else {
			replies[i] = p.Get(ctx, v.Key)
		}
	}); err != nil {
		return nil, err
	}
	var now []keyspace.Value
	for i, v := range values {
		stored, err := replies[i].Bytes()
		switch {
		case err == nil && len(stored) > bale.MaxPackedLen(m.MaxSize):
			m.result.leave(v, TooLarge)
		case err == nil:
			v.Stored = stored
			now = append(now, v)
		case errors.Is(err, redis.Nil), redis.HasErrorPrefix(err, "WRONGTYPE"):
			m.result.leave(v, Gone)
		case keyspace.IsMoved(err):
			now = append(now, v) // the next swap says so again
		default:
			return nil, fmt.Errorf("key %q: %w", v.Key, err)
		}
	}
	return now, nil
}

// decide says what is to be stored in place of a value, or why it is left; the error is for [Unreadable] and [Nested].
func (m *migration) decide(ctx context.Context, v keyspace.Value) (next []byte, why Reason, err error) {
	h, _, packed := frame.Parse(v.Stored)
	switch {
	case packed && keyspace.OfStream(v.Key, v.Stored):
		return nil, Stream, nil
	case !packed && m.Revert:
		return nil, Plain, nil
	case !packed:
		return m.pack(ctx, v.Stored)
	}
	plain, err := m.Packer.UnpackContext(ctx, nil, v.Stored)
	switch {
	case errors.Is(err, bale.ErrNotFound):
		return nil, Absent, nil
	case err != nil:
		return nil, Unreadable, err
	case m.Revert:
		if _, _, nested := frame.Parse(plain); nested {
			return nil, Nested, errNested
		}
		return plain, "", nil
	case h.Version > frame.V1:
		return nil, Fresh, nil
	case h.Algorithm == m.Algorithm && h.DictionaryID == m.DictionaryID, h.Algorithm == frame.Stored && !m.Repack:
		return nil, Packed, nil
	case !m.Repack:
		return nil, Otherwise, nil
	}
	if next, err = m.verified(ctx, plain); err != nil {
		return nil, Unreadable, err
	}
	if bytes.Equal(next, v.Stored) { // an escaped one
		return nil, Packed, nil
	}
	return next, "", nil
}

var errNested = errors.New("its content is itself a frame, which readers of bale would unpack once more; it stays packed (bale unpack gives the content)")

// pack packs a plain value.
func (m *migration) pack(ctx context.Context, plain []byte) (next []byte, why Reason, err error) {
	switch {
	case len(plain) > m.MaxSize:
		return nil, TooLarge, nil
	case len(plain) >= hllMinSize && bytes.HasPrefix(plain, []byte(hllMagic)):
		return nil, HLL, nil
	case isNumber(plain):
		return nil, Number, nil
	}
	if next, err = m.verified(ctx, plain); err != nil {
		return nil, Unreadable, err
	}
	if len(next) >= len(plain) { // as it is, or escaped
		return nil, NotSmaller, nil
	}
	return next, "", nil
}

// verified packs a value and sees that what comes out is read as it: before the value itself is overwritten, the last chance to.
func (m *migration) verified(ctx context.Context, plain []byte) ([]byte, error) {
	next, err := m.Packer.Pack(nil, plain)
	if err != nil {
		return nil, err
	}
	back, err := m.Packer.UnpackContext(ctx, nil, next)
	if err != nil {
		return nil, fmt.Errorf("packed, it cannot be read: %w", err)
	}
	if !bytes.Equal(back, plain) {
		return nil, errors.New("packed, it is read as another value")
	}
	return next, nil
}

// isNumber reports what INCR and INCRBYFLOAT work on, and some more that is spelled like it.
func isNumber(b []byte) bool {
	if len(b) == 0 || len(b) > maxNumber || !bytes.ContainsRune([]byte("+-.0123456789"), rune(b[0])) {
		return false
	}
	_, err := strconv.ParseFloat(string(b), 64)
	return err == nil || errors.Is(err, strconv.ErrRange)
}
