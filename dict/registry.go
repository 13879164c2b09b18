package dict

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/balekv/bale/frame"
)

// DefaultPrefix is what the keys of a registry start with.
const DefaultPrefix = "bale:dict:"

const (
	defaultGrace = time.Minute
	swapAttempts = 20 // of a change to a group, until others let it through
	maxGroupName = 200
	lapseGraces  = 5       // how long writers go on without an answer of the registry, in grace periods
	maxEpoch     = 1 << 53 // a change each millisecond for 285,000 years
)

// RegistryOptions are the settings of a [Registry]; the zero value is useful.
type RegistryOptions struct {
	// Prefix is what the keys start with. Defaults to "bale:dict:". Programs that share dictionaries have the
	// same; on a cluster the keys spread over all nodes.
	Prefix string

	// Grace is how long after it was published a dictionary may become the current one: long enough for every reader to
	// poll once. Defaults to a minute. The clocks of those who publish and activate should agree to a few
	// seconds. A writer that has had no answer of the registry for five times as long goes on without a dictionary, for what it
	// has may be retired; after six times as long that may be collected. So all programs have the same Grace, none longer a
	// GroupOptions.Poll.
	Grace time.Duration
}

// Registry keeps the dictionaries of a fleet, by groups, in Redis:
//
//	<prefix>groups         the names of all groups (JSON)
//	<prefix>group:<name>   the state of a group (JSON, see [State])
//	<prefix>data:<id>      the bytes of a dictionary, and while it is being removed a mark
//
// A dictionary is immutable, so that readers may keep it for ever; the state of a group changes by compare-and-swap. It
// is safe for concurrent use and holds nothing: [Registry.Open] makes the part that lives in a program.
type Registry struct {
	store  Store
	prefix string
	grace  time.Duration
	now    func() time.Time // for tests
}

// NewRegistry makes a Registry.
func NewRegistry(store Store, o RegistryOptions) (*Registry, error) {
	r := &Registry{store: store, prefix: o.Prefix, grace: o.Grace, now: time.Now}
	if r.prefix == "" {
		r.prefix = DefaultPrefix
	}
	if r.grace == 0 {
		r.grace = defaultGrace
	}
	switch {
	case store == nil:
		return nil, fmt.Errorf("dict: %w: no Store", ErrInvalid)
	case r.grace < 0:
		return nil, fmt.Errorf("dict: %w: Grace is %v, must not be negative", ErrInvalid, o.Grace)
	}
	return r, nil
}

// Info is what is known of how a dictionary was trained.
type Info struct {
	Setting      string  `json:"setting,omitempty"`       // that it was measured with: "zstd:3"
	Builder      string  `json:"builder,omitempty"`       // who made it
	Samples      int     `json:"samples,omitempty"`       // values it was trained on
	RatioWithout float64 `json:"ratio_without,omitempty"` // on held-out values, header included
	Ratio        float64 `json:"ratio,omitempty"`         // the same, with the dictionary
	Auto         bool    `json:"auto,omitempty"`          // trained by [Auto], which will activate it
}

// Info is what a registry keeps of a training.
func (t *Training) Info() Info {
	return Info{
		Setting: t.Setting.String(), Builder: strings.TrimSpace(t.Winner.Builder + " " + t.Winner.Params),
		Samples: t.Samples, RatioWithout: t.Without.Ratio(), Ratio: t.With.Ratio(),
	}
}

// Entry is a dictionary of a group.
type Entry struct {
	ID        frame.DictionaryID `json:"id"`
	Size      int                `json:"size"`
	Published time.Time          `json:"published"`
	Activated time.Time          `json:"activated,omitzero"` // when it last became the current one; zero for never
	Retired   time.Time          `json:"retired,omitzero"`   // when it last ceased to be the current one
	Info      Info               `json:"info,omitzero"`
}

// State is a group: its dictionaries, the newest first, and which of them are in use.
type State struct {
	Group string `json:"group"`
	// Epoch rises with every change.
	Epoch int64 `json:"epoch"`
	// Current is what writers use, zero for no dictionary; Previous is what it was before.
	Current  frame.DictionaryID `json:"current"`
	Previous frame.DictionaryID `json:"previous"`
	// Changed is when Current last changed, later each time; zero for never, and in a state that was written before there was this field.
	Changed      time.Time `json:"changed,omitzero"`
	Dictionaries []Entry   `json:"dictionaries"`
}

// changed is Changed, or in an old state what the entries say of it.
func (s *State) changed() time.Time {
	at := s.Changed
	if at.IsZero() {
		for _, e := range s.Dictionaries {
			at = slices.MaxFunc([]time.Time{at, e.Activated, e.Retired}, time.Time.Compare)
		}
	}
	return at
}

// Find returns the entry of a dictionary, nil when it is not in the group. The entry is part of the State.
func (s *State) Find(id frame.DictionaryID) *Entry {
	for i := range s.Dictionaries {
		if s.Dictionaries[i].ID == id {
			return &s.Dictionaries[i]
		}
	}
	return nil
}

// use makes a dictionary the current one.
func (s *State) use(id frame.DictionaryID, now time.Time) {
	changed := now
	if last := s.changed(); !now.After(last) { // by another clock
		changed = last.Add(time.Millisecond)
	}
	if e := s.Find(s.Current); e != nil {
		e.Retired = now
	}
	if e := s.Find(id); e != nil {
		e.Activated, e.Retired = now, time.Time{}
	}
	s.Current, s.Changed = id, changed
}

// Collectable are the dictionaries of a group that nobody writes with any more: neither the current nor the previous one, and retired
// for longer than six grace periods, one more than a writer goes on that cannot hear of it. Those that were never activated are not among them. Values may refer to them.
func (r *Registry) Collectable(s *State) (ids []frame.DictionaryID) {
	for _, e := range s.Dictionaries {
		if e.ID != s.Current && e.ID != s.Previous && !e.Retired.IsZero() && r.now().Sub(e.Retired) > (lapseGraces+1)*r.grace {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

func (r *Registry) time() time.Time { return r.now().UTC().Truncate(time.Millisecond) }

// GroupKey is the key of a group's state; without a name it is the pattern of all such keys.
func (r *Registry) GroupKey(name string) string {
	if name == "" {
		name = "*"
	}
	return r.groupKey(name)
}

// DataKey is the key of a dictionary's bytes; with zero it is the pattern of all such keys.
func (r *Registry) DataKey(id frame.DictionaryID) string {
	if id == 0 {
		return r.prefix + "data:*"
	}
	return r.dataKey(id)
}

func (r *Registry) groupsKey() string           { return r.prefix + "groups" }
func (r *Registry) groupKey(name string) string { return r.prefix + "group:" + name }
func (r *Registry) leaseKey(name string) string { return r.prefix + "lease:" + name }
func (r *Registry) channel() string             { return r.prefix + "changes" }

func (r *Registry) dataKey(id frame.DictionaryID) string { return r.prefix + "data:" + id.String() }

// CheckGroup reports a name that no group can have: one of 1 to 200 bytes without spaces and control characters can.
func CheckGroup(name string) error {
	if name == "" || len(name) > maxGroupName || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c == 0x7F }) {
		return fmt.Errorf("dict: %w: group %q, must be 1 to %d bytes without spaces and control characters", ErrInvalid, name, maxGroupName)
	}
	return nil
}

// Groups are the names of all groups, sorted.
func (r *Registry) Groups(ctx context.Context) ([]string, error) {
	names, _, err := r.groups(ctx)
	return names, err
}

func (r *Registry) groups(ctx context.Context) (names []string, raw []byte, err error) {
	values, err := r.store.Get(ctx, r.groupsKey())
	if err != nil {
		return nil, nil, fmt.Errorf("dict: groups: %w", err)
	}
	if values[0] == nil {
		return nil, nil, nil
	}
	if err := json.Unmarshal(values[0], &names); err != nil {
		return nil, nil, fmt.Errorf("dict: %w: key %q is no list of groups: %w", ErrCorrupt, r.groupsKey(), err)
	}
	return names, values[0], nil
}

// addGroup puts a name on the list of groups, if it is not there.
func (r *Registry) addGroup(ctx context.Context, name string) error {
	for range swapAttempts {
		names, raw, err := r.groups(ctx)
		if err != nil {
			return err
		}
		at, found := slices.BinarySearch(names, name)
		if found {
			return nil
		}
		value, err := json.Marshal(slices.Insert(names, at, name))
		if err != nil {
			return err
		}
		if ok, err := r.store.Swap(ctx, r.groupsKey(), raw, value, 0); err != nil || ok {
			return err
		}
	}
	return fmt.Errorf("dict: list of groups: %w", ErrConflict)
}

// State returns the state of a group; one that does not exist has no dictionaries and epoch 0.
func (r *Registry) State(ctx context.Context, group string) (*State, error) {
	s, _, err := r.state(ctx, group)
	return s, err
}

func (r *Registry) state(ctx context.Context, group string) (s *State, raw []byte, err error) {
	if err := CheckGroup(group); err != nil {
		return nil, nil, err
	}
	values, err := r.store.Get(ctx, r.groupKey(group))
	if err != nil {
		return nil, nil, fmt.Errorf("dict: group %q: %w", group, err)
	}
	s = &State{Group: group}
	if values[0] == nil {
		return s, nil, nil
	}
	if err := json.Unmarshal(values[0], s); err != nil || s.Group != group {
		return nil, nil, fmt.Errorf("dict: %w: key %q is not the state of group %q (it says %q): %w", ErrCorrupt, r.groupKey(group), group, s.Group, err)
	}
	if s.Epoch < 0 || s.Epoch > maxEpoch {
		return nil, nil, fmt.Errorf("dict: %w: key %q says epoch %d, which no group comes to; delete it, and programs that follow the group put it back", ErrCorrupt, r.groupKey(group), s.Epoch)
	}
	return s, values[0], nil
}

// change applies a change to a group until no other comes in between. The change may be asked for more than once, each
// time with the state as it is then; returning false leaves everything as it is.
func (r *Registry) change(ctx context.Context, group string, change func(*State) (bool, error)) error {
	for range swapAttempts {
		s, raw, err := r.state(ctx, group)
		if err != nil {
			return err
		}
		if changed, err := change(s); err != nil || !changed {
			return err
		}
		if s.Epoch++; s.Epoch > maxEpoch {
			return fmt.Errorf("dict: %w: group %q is at its last epoch", ErrCorrupt, group)
		}
		value, err := json.Marshal(s)
		if err != nil {
			return err
		}
		ok, err := r.store.Swap(ctx, r.groupKey(group), raw, value, 0)
		if err != nil {
			return fmt.Errorf("dict: group %q: %w", group, err)
		}
		if ok {
			// A nudge that is lost costs one poll.
			_ = r.store.Notify(ctx, r.channel(), changedMessage+group)
			return nil
		}
	}
	return fmt.Errorf("dict: group %q: %w", group, ErrConflict)
}

// Publish puts a dictionary into a group, for readers to fetch; writers use it once it is activated. Publishing it
// again, to any group, stores nothing twice and does not start the grace period anew.
func (r *Registry) Publish(ctx context.Context, group string, d *Dictionary, info Info) error {
	return r.publish(ctx, group, d, info, func(*State) error { return nil })
}

// publish is Publish unless the group's state is against it.
func (r *Registry) publish(ctx context.Context, group string, d *Dictionary, info Info, allowed func(*State) error) error {
	if err := CheckGroup(group); err != nil {
		return err
	}
	if d == nil {
		return fmt.Errorf("dict: %w: no dictionary to publish", ErrInvalid)
	}
	if _, err := r.State(ctx, group); err != nil {
		return err // a damaged group: nothing is written
	}
	// The bytes go first, so that a group never names a dictionary that is not there; a list that names a group which
	// does not exist yet is harmless.
	if err := r.put(ctx, d); err != nil {
		return err
	}
	if err := r.addGroup(ctx, group); err != nil {
		return err
	}
	if err := r.change(ctx, group, func(s *State) (bool, error) {
		if s.Find(d.ID()) != nil {
			return false, nil
		}
		if err := allowed(s); err != nil {
			return false, err
		}
		s.Dictionaries = slices.Insert(s.Dictionaries, 0, Entry{ID: d.ID(), Size: len(d.Bytes()), Published: r.time(), Info: info})
		return true, nil
	}); err != nil {
		return err
	}
	// Somebody may have removed it from another group meanwhile, and the bytes with it.
	return r.put(ctx, d)
}

// put stores the bytes of a dictionary, also where it is being removed.
func (r *Registry) put(ctx context.Context, d *Dictionary) error {
	key := r.dataKey(d.ID())
	var there []byte
	for range swapAttempts {
		done, err := r.store.Swap(ctx, key, there, d.Bytes(), 0)
		if err != nil {
			return fmt.Errorf("dict: publish %v: %w", d.ID(), err)
		}
		if done { // or it was there
			return nil
		}
		values, err := r.store.Get(ctx, key)
		if err != nil {
			return fmt.Errorf("dict: publish %v: %w", d.ID(), err)
		}
		if there = values[0]; there == nil || bytes.Equal(contentOf(there, d.ID()), d.Bytes()) {
			continue
		}
		if other, err := New(there); err == nil && other.ID() == d.ID() {
			return fmt.Errorf("dict: publish %v: %w", d.ID(), ErrCollision)
		}
		return fmt.Errorf("dict: publish %v: %w: key %q holds other bytes; delete it and publish again", d.ID(), ErrCorrupt, key)
	}
	return fmt.Errorf("dict: publish %v: %w", d.ID(), ErrConflict)
}

// Fetch returns a dictionary by its id: ErrUnknown when the registry does not hold it, ErrCorrupt when the
// bytes there are not its own.
func (r *Registry) Fetch(ctx context.Context, id frame.DictionaryID) (*Dictionary, error) {
	key := r.dataKey(id)
	values, err := r.store.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("dict: fetch %v: %w", id, err)
	}
	if values[0] == nil {
		return nil, fmt.Errorf("dict: fetch %v: %w", id, ErrUnknown)
	}
	d, err := New(contentOf(values[0], id))
	if err != nil {
		return nil, fmt.Errorf("dict: fetch %v: %w: key %q: %w", id, ErrCorrupt, key, err)
	}
	if d.ID() != id {
		return nil, fmt.Errorf("dict: fetch %v: %w: key %q holds the bytes of %v", id, ErrCorrupt, key, d.ID())
	}
	return d, nil
}

// Activate makes a published dictionary the current one of its group; zero makes writers do without one. Before the
// grace period since publishing is over it is ErrGrace, unless forced: readers that do not have it yet will fetch it when they meet
// it.
func (r *Registry) Activate(ctx context.Context, group string, id frame.DictionaryID, force bool) error {
	return r.activate(ctx, group, id, force, func(*State) bool { return true })
}

// activate is Activate unless the group's state is against it, and then does nothing.
func (r *Registry) activate(ctx context.Context, group string, id frame.DictionaryID, force bool, allowed func(*State) bool) error {
	if id != 0 {
		if _, err := r.Fetch(ctx, id); err != nil { // what cannot be read must not be written with
			return err
		}
	}
	return r.change(ctx, group, func(s *State) (bool, error) {
		if s.Current == id || !allowed(s) {
			return false, nil
		}
		if id != 0 {
			e := s.Find(id)
			if e == nil {
				return false, fmt.Errorf("dict: activate %v: %w %q", id, ErrNotInGroup, group)
			}
			if left := e.Published.Add(r.grace).Sub(r.now()); left > 0 && !force && e.Activated.IsZero() {
				return false, fmt.Errorf("dict: activate %v: %w: %v of %v left", id, ErrGrace, left.Round(time.Millisecond), r.grace)
			}
		}
		s.Previous = s.Current
		s.use(id, r.time())
		return true, nil
	})
}

// Rollback makes the previous dictionary the current one again, and the current one the previous. A group that
// had none before writes without a dictionary then.
func (r *Registry) Rollback(ctx context.Context, group string) error {
	before, err := r.State(ctx, group)
	if err != nil {
		return err
	}
	if before.Previous != 0 {
		if _, err := r.Fetch(ctx, before.Previous); err != nil { // as in Activate
			return err
		}
	}
	return r.change(ctx, group, func(s *State) (bool, error) {
		if s.Current == 0 && s.Previous == 0 {
			return false, fmt.Errorf("dict: rollback of group %q: %w: nothing was ever activated", group, ErrNotInGroup)
		}
		if s.Previous != before.Previous {
			return false, fmt.Errorf("dict: rollback of group %q: %w: the previous dictionary is %v, and was %v", group, ErrConflict, s.Previous, before.Previous)
		}
		s.Previous = s.Current
		s.use(before.Previous, r.time())
		return true, nil
	})
}

// Remove takes a dictionary out of a group, and out of the registry if no other group has it. A current or previous
// one is ErrInUse. Values that were written with it cannot be read afterwards, unless a reader has it
// bundled: see that there are none.
func (r *Registry) Remove(ctx context.Context, group string, id frame.DictionaryID) error {
	if err := r.change(ctx, group, func(s *State) (bool, error) {
		if s.Current == id || s.Previous == id {
			return false, fmt.Errorf("dict: remove %v from group %q: %w", id, group, ErrInUse)
		}
		n := len(s.Dictionaries)
		s.Dictionaries = slices.DeleteFunc(s.Dictionaries, func(e Entry) bool { return e.ID == id })
		if len(s.Dictionaries) == n {
			return false, fmt.Errorf("dict: remove %v: %w %q", id, ErrNotInGroup, group)
		}
		return true, nil
	}); err != nil {
		return err
	}
	return r.RemoveOrphan(ctx, id)
}

// RemoveOrphan removes the bytes of a dictionary that no group has, and leaves one alone that a group has. Without a list
// of groups nobody knows, and it is ErrUnlisted.
func (r *Registry) RemoveOrphan(ctx context.Context, id frame.DictionaryID) error {
	groups, raw, err := r.groups(ctx)
	if err != nil {
		return err
	}
	if raw == nil {
		return fmt.Errorf("dict: remove %v: %w", id, ErrUnlisted)
	}
	if used, err := r.used(ctx, groups, id); err != nil || used {
		return err
	}
	key := r.dataKey(id)
	values, err := r.store.Get(ctx, key)
	if err != nil || values[0] == nil {
		return err
	}
	// Somebody may be about to publish it to a group. Publish puts the bytes once more in the end: it either finds the mark then,
	// and takes it away, so that they stay; or it was done before the mark, and the second look finds the group.
	content := contentOf(values[0], id)
	marked := slices.Concat(content, []byte(removalMark), []byte(rand.Text()))
	if ok, err := r.store.Swap(ctx, key, values[0], marked, 0); err != nil || !ok {
		return err
	}
	used := true
	if groups, raw, err = r.groups(ctx); err == nil && raw != nil {
		used, err = r.used(ctx, groups, id)
	}
	left := content
	if err == nil && !used {
		left = nil
	}
	_, swapErr := r.store.Swap(ctx, key, marked, left, 0)
	return errors.Join(err, swapErr)
}

// used reports whether one of the groups has a dictionary.
func (r *Registry) used(ctx context.Context, groups []string, id frame.DictionaryID) (bool, error) {
	for _, name := range groups {
		s, err := r.State(ctx, name)
		if err != nil {
			return false, err
		}
		if s.Find(id) != nil {
			return true, nil
		}
	}
	return false, nil
}

// removalMark, and 26 random characters that tell one removal from another, come after the bytes of a dictionary that is being
// removed. It is good until it is gone.
const (
	removalMark = "\x00bale:removing:"
	markSize    = len(removalMark) + 26 // of rand.Text
)

// contentOf are the bytes of a dictionary, in a value that may have the mark of a removal.
func contentOf(value []byte, id frame.DictionaryID) []byte {
	n := len(value) - markSize
	if n < 0 || !bytes.HasPrefix(value[n:], []byte(removalMark)) {
		return value
	}
	if d, err := New(value); err == nil && d.ID() == id {
		return value // which ends so by itself
	}
	return value[:n]
}

// restore brings back what a program knows of a group to a registry that lost it, or a part of it. What others have published or
// activated there since stays. A dictionary that cannot be put back stops no other; it is in the error.
func (r *Registry) restore(ctx context.Context, known *State, held func(frame.DictionaryID) *Dictionary) error {
	var failed error
	there := map[frame.DictionaryID]bool{0: true}
	for _, e := range known.Dictionaries {
		if d := held(e.ID); d != nil {
			err := r.put(ctx, d)
			if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrCollision) {
				return err // no answer, as for the others
			}
			there[e.ID] = err == nil
			failed = errors.Join(failed, err)
		}
	}
	if err := r.addGroup(ctx, known.Group); err != nil {
		return err
	}
	return errors.Join(failed, r.change(ctx, known.Group, func(s *State) (bool, error) {
		if s.Epoch >= known.Epoch {
			return false, nil // another program was faster, or knew more
		}
		s.merge(known, there[known.Current], r.time())
		return true, nil
	}))
}

// merge adds what is known to a state that knows less. The later decision on what is the current dictionary holds, the known one
// only if it is usable.
func (s *State) merge(known *State, usable bool, now time.Time) {
	decided := usable && known.changed().After(s.changed())
	all := slices.Clone(known.Dictionaries)
	for _, e := range s.Dictionaries {
		if i := slices.IndexFunc(all, func(other Entry) bool { return other.ID == e.ID }); i < 0 {
			i = slices.IndexFunc(all, func(other Entry) bool { return other.Published.Before(e.Published) })
			if i < 0 {
				i = len(all)
			}
			all = slices.Insert(all, i, e)
		} else if !decided {
			all[i] = e
		}
	}
	s.Epoch = max(s.Epoch, known.Epoch)
	s.Dictionaries = all
	if decided {
		s.Current, s.Previous, s.Changed = known.Current, known.Previous, known.changed()
	}
	for i := range all {
		if e := &all[i]; e.ID == s.Current {
			e.Retired = time.Time{}
		} else if !e.Activated.IsZero() && e.Retired.IsZero() {
			e.Retired = now
		}
	}
}

// Messages on the channel.
const (
	changedMessage = "changed " // and a group
	wantMessage    = "want "    // and an id: whoever has the dictionary puts it into the registry
)
