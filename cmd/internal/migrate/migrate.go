// Package migrate packs the values that a Redis holds, in place, while programs read and write
// them, or unpacks them again. [Run] does it, and returns a [Result]; a [State] lets a run that was
// ended go on.
//
// A script replaces each value if it is still the same as when it was read. A value that a program
// has written meanwhile is read again. Its expiry stays to the millisecond, and a key that is gone
// stays gone. A value with its own end in the header gets that expiry when it is unpacked; a value
// past its end is deleted. A repeated step changes nothing, so a run may end anywhere and start
// again.
package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/frame"
)

const (
	tries      = 5       // of a value that programs write all the time
	swapBytes  = 4 << 20 // of new values and names that are sent at a time, if not a single one has more
	hllMagic   = "HYLL"  // what a HyperLogLog starts with (hyperloglog.c)
	hllMinSize = 16
)

// pass is a walk over keys, and what it does to their values.
type pass struct {
	Match []string      // patterns of keys
	Skip  keyspace.Skip // passes keys over: those of registries

	// Found gets the prefix of another registry, a key of which is not packed.
	Found func(prefix string)

	Pacer *keyspace.Pacer

	// Packer writes new values with Algorithm and DictionaryID, and reads all existing ones.
	Packer       *bale.Packer
	Algorithm    frame.Algorithm
	DictionaryID frame.DictionaryID
	MaxSize      int // of a plain value that is packed, or of one that is made plain; no more than the Packer's

	Revert bool // unpack
	Repack bool // pack anew what is packed otherwise
	DryRun bool // only count

	// Hold returns until when values may be written, and waits where they may not. See [claim]. Nil
	// is for no limit.
	Hold func(ctx context.Context) (until time.Time, err error)

	// Places is where to go on, nil for the start.
	Places []keyspace.Place

	// Page, if set, receives the position and the result so far after every page of keys.
	Page func(places []keyspace.Place, r *Counts) error
}

// walk changes values, and adds to what a result has already. When ctx ends it finishes what is
// begun and stops, with ctx's error. Values that cannot be changed are no error: the result has
// them.
func walk(ctx context.Context, client redis.UniversalClient, o pass, r *Counts) error {
	if r.Left == nil {
		r.Left = map[Reason]keyspace.Tally{}
	}
	m := &migration{pass: o, ctx: ctx, client: client, swapper: newSwapper(), result: r}
	m.swapper.leaves = !o.Revert
	var before keyspace.Looked
	return keyspace.ReadValues(ctx, client, keyspace.ValuesOptions{
		Match: o.Match, Skip: o.Skip, Size: bale.MaxPackedLen(o.MaxSize), Pacer: o.Pacer, Places: o.Places,
		Values: m.values,
		Page: func(places []keyspace.Place, l keyspace.Looked) error {
			r.Keys += l.Keys - before.Keys
			r.count(Registry, l.Skipped-before.Skipped)
			r.count(OtherType, l.Others-before.Others)
			r.count(TooLarge, l.TooLarge-before.TooLarge)
			r.count(LargeField, l.LargeFields-before.LargeFields)
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
	pass
	ctx     context.Context // of the run; those of its steps do not end
	client  redis.UniversalClient
	swapper *swapper
	result  *Counts
	hash    struct { // the last one
		key, prefix string
		ok          bool
	}
}

// values deals with some values of a server.
func (m *migration) values(
	ctx context.Context, node redis.UniversalClient, values []keyspace.Value,
) (keyspace.Next, error) {
	return keyspace.More, m.change(ctx, node, values, 1)
}

// change changes values, in portions of swapBytes. It clears values, which may be large, as
// soon as their changes are known.
func (m *migration) change(
	ctx context.Context, node redis.UniversalClient, values []keyspace.Value, try int,
) error {
	for len(values) > 0 && m.ctx.Err() == nil {
		changes, n, err := m.changes(ctx, values)
		if err != nil {
			return err
		}
		clear(values[:n])
		values = values[n:]
		if err := m.settle(ctx, node, changes, try); err != nil {
			return err
		}
	}
	return m.ctx.Err()
}

// changes decides the writes for the first values, as many as there is room for before the run
// ends.
func (m *migration) changes(
	ctx context.Context, values []keyspace.Value,
) (changes []change, n int, err error) {
	size := 0
	for i, v := range values {
		if m.ctx.Err() != nil { // a few MiB of forged values take minutes to unpack
			return changes, i, nil
		}
		next, why, err := m.decide(ctx, v)
		if errors.Is(err, registry.ErrUnreachable) {
			return nil, 0, fmt.Errorf("key %q: %w", v.Key, err)
		}
		c := change{value: v, next: next}
		if m.Revert && (why == "" || why == Absent) {
			c.ends = expiryOf(v.Stored)
		}
		if why == Absent && hasEnded(c.ends) {
			why = "" // to be deleted
		}
		switch {
		case err != nil:
			m.result.problem(v, err)
			m.result.leave(v, why)
		case why != "":
			m.result.leave(v, why)
		case !m.Revert && c.size() > LargestPacked:
			m.result.leave(v, tooLarge(v))
		case len(changes) > 0 && c.large():
			return changes, i, nil // it is next, alone
		default:
			changes = append(changes, c)
			if size += c.size(); c.large() || size > swapBytes {
				return changes, i + 1, nil
			}
		}
	}
	return changes, len(values), nil
}

// settle makes changes. Values that have changed meanwhile are read again, as many as a reply has
// room for at a time, and changed before others are read.
func (m *migration) settle(
	ctx context.Context, node redis.UniversalClient, changes []change, try int,
) error {
	if len(changes) == 0 {
		return nil
	}
	outcomes, err := m.swap(ctx, node, changes)
	if err != nil {
		return err
	}
	var again []keyspace.Value
	through, size := node, 0
	for i, c := range changes {
		size += c.size()
		switch outcomes[i] {
		case done:
			m.done(c)
		case deleted:
			m.result.Expired.Add(c.value, len(c.value.Stored))
		case endless:
			m.result.problem(c.value, errEndless)
			m.result.leave(c.value, FreshField)
		case refused:
			m.result.problem(c.value, c.cause)
			m.result.leave(c.value, Refused)
		case absent:
			m.result.leave(c.value, Gone)
		case elsewhere:
			again, through = append(again, c.value), m.client
		case different:
			again = append(again, c.value)
		}
	}
	clear(changes)
	if err := m.Pacer.Wait(m.ctx, nil, 0, size); err != nil {
		return err
	}
	if try == tries {
		for _, v := range again {
			m.result.problem(v, errChanged)
			m.result.leave(v, Changed)
		}
		return nil
	}
	for len(again) > 0 {
		values, n, err := m.reread(ctx, through, again)
		if err != nil {
			return err
		}
		clear(again[:n])
		again = again[n:]
		if err := m.change(ctx, through, values, try+1); err != nil {
			return err
		}
	}
	return nil
}

// swap makes changes as long as the run may write, or only says what would become of them.
func (m *migration) swap(
	ctx context.Context, node redis.UniversalClient, changes []change,
) ([]outcome, error) {
	if m.DryRun {
		return m.swapper.pretend(ctx, node, changes)
	}
	outcomes := make([]outcome, len(changes))
	for i := range outcomes {
		outcomes[i] = late
	}
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		var until time.Time
		var err error
		if m.Hold != nil {
			if until, err = m.Hold(m.ctx); err != nil {
				return nil, err
			}
		}
		var some []change
		var at []int
		for i, o := range outcomes {
			if o == late {
				some, at = append(some, changes[i]), append(at, i)
			}
		}
		got, err := m.swapper.swap(ctx, node, some, until)
		if err != nil {
			return nil, err
		}
		for i, o := range got {
			outcomes[at[i]], changes[at[i]].cause = o, some[i].cause
		}
		if !slices.Contains(outcomes, late) {
			return outcomes, nil
		}
		select {
		case <-m.ctx.Done(): // between commands: what was sent has its outcome
			return nil, m.ctx.Err()
		case <-time.After(wait):
		}
	}
}

func tooLarge(v keyspace.Value) Reason {
	return map[bool]Reason{false: TooLarge, true: LargeField}[v.InHash]
}

var errEndless = errors.New("it ends by itself, and this server gives fields no expiry: plain, it would never expire; delete it, or revert again when it has expired")

// expiryOf is when a value ends by its own account, which is earlier than its key's expiry where
// GetOrLoad keeps it for StaleIfError. Zero is for never.
func expiryOf(stored []byte) time.Time {
	h, offset, ok := frame.Parse(stored)
	if !ok || h.Version != frame.V2 {
		return time.Time{}
	}
	f, _, _, _ := frame.ParseTrailer(stored[offset:])
	return f.Expires
}

var errChanged = fmt.Errorf("a program wrote it again and again, and came first %d times", tries)

func (m *migration) done(c change) {
	if c.value.InHash {
		m.result.Fields.add(c.value, len(c.next))
	} else {
		m.result.Strings.add(c.value, len(c.next))
	}
}

// reread reads the first n of some values that have changed. It returns those to be changed.
func (m *migration) reread(
	ctx context.Context, node redis.UniversalClient, values []keyspace.Value,
) (now []keyspace.Value, n int, err error) {
	before := slices.Clone(values)
	n, errs, err := keyspace.Reread(ctx, node, values, int64(bale.MaxPackedLen(m.MaxSize)))
	if err != nil {
		return nil, 0, err
	}
	size := 0
	for _, v := range values[:n] {
		size += len(v.Stored) + 2*(len(v.Key)+len(v.Field)) // with the question about the length
	}
	if err := m.Pacer.Wait(m.ctx, nil, n, size); err != nil {
		return nil, 0, err
	}
	for i, v := range values[:n] {
		if errs[i] != nil {
			v = before[i]
		}
		switch err := errs[i]; {
		case errors.Is(err, keyspace.ErrTooLarge):
			m.result.leave(v, tooLarge(v))
		case err == nil:
			now = append(now, v)
		case errors.Is(err, redis.Nil), redis.HasErrorPrefix(err, "WRONGTYPE"):
			m.result.leave(v, Gone)
		case keyspace.IsMoved(err):
			now = append(now, v) // the next swap says so again
		default:
			return nil, 0, fmt.Errorf("key %q: %w", v.Key, keyspace.Explain(err, keyspace.UserOf(node)))
		}
	}
	return now, n, nil
}

// decide returns the new stored value, or the reason why the old one stays. The error comes with
// [Unreadable] and [Nested].
func (m *migration) decide(
	ctx context.Context, v keyspace.Value,
) (next []byte, why Reason, err error) {
	h, _, packed := frame.Parse(v.Stored)
	switch {
	case packed && !v.InHash && keyspace.OfStream(v.Key, v.Stored):
		return nil, Stream, nil
	case !packed && m.Revert:
		return nil, Plain, nil
	case !packed:
		prefix, ok, err := m.registryOf(ctx, v)
		switch {
		case err != nil:
			return nil, Unreadable, err
		case ok:
			m.Found(prefix)
			return nil, Registry, nil
		}
		return m.pack(ctx, v.Stored)
	}
	plain, err := m.Packer.Unpack(ctx, nil, v.Stored)
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
	case len(plain) > m.MaxSize:
		return nil, TooLarge, nil
	case h.Algorithm == m.Algorithm && h.DictionaryID == m.DictionaryID, h.Algorithm == frame.Stored &&
		!m.Repack:
		return nil, Packed, nil
	case !m.Repack:
		return nil, Otherwise, nil
	}
	if next, err = m.verified(ctx, plain, v.Stored); err != nil {
		return nil, Unreadable, err
	}
	if bytes.Equal(next, v.Stored) { // one that stays plain within its frame
		return nil, Packed, nil
	}
	return next, "", nil
}

// registryOf is keyspace.RegistryOf, asked once for a hash.
func (m *migration) registryOf(ctx context.Context, v keyspace.Value) (prefix string, ok bool, err error) {
	if v.InHash && v.Key == m.hash.key {
		return m.hash.prefix, m.hash.ok, nil
	}
	if prefix, ok, err = keyspace.RegistryOf(ctx, m.client, v); v.InHash && err == nil {
		m.hash.key, m.hash.prefix, m.hash.ok = v.Key, prefix, ok
	}
	return prefix, ok, err
}

var errNested = errors.New("its content is itself a frame, which readers of bale would unpack once more; it stays packed (bale unpack gives the content)")

// pack packs a plain value.
func (m *migration) pack(ctx context.Context, plain []byte) (next []byte, why Reason, err error) {
	switch {
	case len(plain) > m.MaxSize:
		return nil, TooLarge, nil
	case len(plain) >= hllMinSize && bytes.HasPrefix(plain, []byte(hllMagic)):
		return nil, HLL, nil
	case keyspace.IsNumber(plain):
		return nil, Number, nil
	}
	if next, err = m.verified(ctx, plain, plain); err != nil {
		return nil, Unreadable, err
	}
	if len(next) >= len(plain) { // as it is, or escaped
		return nil, NotSmaller, nil
	}
	return next, "", nil
}

// verified packs a stored value, with its freshness, and sees that what comes out is read as it:
// before the value itself is overwritten, the last chance to.
func (m *migration) verified(ctx context.Context, plain, stored []byte) ([]byte, error) {
	next, err := m.Packer.Pack(nil, plain)
	if err != nil {
		return nil, err
	}
	if h, _, ok := frame.Parse(stored); ok && h.Version == frame.V2 {
		next = withFreshness(next, stored, h)
	}
	back, err := m.Packer.Unpack(ctx, nil, next)
	if err != nil {
		return nil, fmt.Errorf("packed, it cannot be read: %w", err)
	}
	if !bytes.Equal(back, plain) {
		return nil, errors.New("packed, it is read as another value")
	}
	return next, nil
}

// withFreshness makes a V2 frame of a packed or plain value, with the trailer of the stored one,
// whose header is h.
func withFreshness(next, stored []byte, h frame.Header) []byte {
	offset := 0
	if packed, at, ok := frame.Parse(next); ok {
		h, offset = packed, at
	} else { // the old header has the checksum and the length
		h.Algorithm, h.DictionaryID = frame.Stored, 0
	}
	h.Version = frame.V2
	return slices.Concat(h.Append(nil), next[offset:], stored[len(stored)-frame.FreshnessSize:])
}
