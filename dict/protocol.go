package dict

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/balekv/bale/frame"
)

// The protocol of writers and removers. TestProtocol explores all its interleavings, and finds a
// violation if any rule is removed. The names in brackets are those of the model.
//
// Writers. A program writes with the current dictionary of a state that it asked for at most five
// grace periods ago, or continues with the previous one (lapse). With any other it stops as soon as
// it has read the state (at once). A tool notes its use in the state (use), and writes for five
// grace periods from then (reassert). All writers, and Activate, first look for the bytes. They
// restore missing bytes from quarantine or a mirror (usable). When a dictionary ceases to be the
// previous one, it counts as used until then (used).
//
// Removers. A dictionary is a candidate six grace periods after its last use (retention). That is
// one more than writers have (margin), for clocks that differ and for writes in flight. First the
// remover chooses the candidates (seen). Then a complete scan finds no value that needs them
// (scan). Then the swap removes the entry if it is unchanged (same). Only then are the bytes
// deleted (group first), and quarantine holds them before that (quarantine).
//
// A dictionary may be published again while its bytes are being deleted. So Publish writes them
// again at the end (put again), and the remover looks for a group again (look again).
//
// Losses. A registry may be emptied, or reset to an older state, and filled again. A program
// restores the entries and bytes that it holds, unless the state includes them (includes).
const (
	lapseGraces       = 5                     // a writer without an answer for so long stops
	removeGraces      = 6                     // a dictionary that was not used for so long may be removed
	minGrace          = 10 * time.Millisecond // for both; a shorter grace period counts as this
	defaultQuarantine = 30 * 24 * time.Hour
	removeTimeout     = 10 * time.Second // for a removal under way whose caller gave up
)

// used notes a use.
func (e *Entry) used(now time.Time) {
	e.Used = later(e.Used, now)
	e.Uses++
}

// restored reports whether Restore put the dictionary into the group, and nobody has activated it
// since. An activation that counts ends later than it begins.
func (e *Entry) restored() bool { return !e.Retired.IsZero() && e.Retired.Equal(e.Activated) }

// lastUse is when a writer may last have been allowed to use a dictionary that is neither current
// nor previous.
func (e *Entry) lastUse() time.Time { return later(e.Published, later(e.Retired, e.Used)) }

// same reports whether nothing that matters to a remover has happened between two looks at an
// entry.
func (e *Entry) same(other *Entry) bool {
	return e.ID == other.ID && e.Uses == other.Uses && e.Used.Equal(other.Used) && e.Retired.Equal(other.Retired) &&
		e.Activated.Equal(other.Activated) && e.Published.Equal(other.Published)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Use is for tools that write with a dictionary of their choice; a [Group] does not need it. It
// notes in the group that the dictionary is in use, and returns the grace period that removers go
// by, whatever this program declares. The tool may write with the dictionary for five of them,
// counted from before the call. It calls Use again at least once in each. ErrNotInGroup and
// ErrUnknown: the dictionary was removed, and the tool must stop. With any other error it asks
// again.
func (r *Registry) Use(ctx context.Context, group string, id frame.DictionaryID) (grace time.Duration, err error) {
	set, err := r.inForce(ctx)
	if errors.Is(err, ErrUnlisted) { // all may be lost
		if s, other := r.State(ctx, group); other == nil && s.Find(id) == nil {
			return 0, fmt.Errorf("dict: use %v: %w %q", id, ErrNotInGroup, group)
		}
	}
	if err != nil {
		return 0, err
	}
	if err := r.change(ctx, group, func(s *State) (bool, error) {
		e := s.Find(id)
		if e == nil {
			return false, fmt.Errorf("dict: use %v: %w %q", id, ErrNotInGroup, group)
		}
		e.used(later(r.time(), s.changed()))
		return true, nil
	}); err != nil {
		return 0, err
	}
	// After the swap: from here on no remover deletes the bytes.
	there, err := r.store.Refresh(ctx, r.dataKey(id))
	if err == nil && !there[0] {
		err = r.usable(ctx, id)
	}
	if err != nil {
		return 0, err
	}
	return max(set.grace(), minGrace), nil
}

// Removable returns the entry of a dictionary that no writer may use any more. Scan all data
// servers after this call. If no value needs the dictionary, pass the entry to [Registry.Remove].
// ErrInUse: it is the current or previous one, or was used within six grace periods, one more than
// a writer goes on without an answer of the registry.
func (r *Registry) Removable(ctx context.Context, s *State, id frame.DictionaryID) (Entry, error) {
	keep, err := r.retention(ctx)
	if err != nil {
		return Entry{}, err
	}
	return r.removable(s, id, keep)
}

func (r *Registry) removable(s *State, id frame.DictionaryID, keep time.Duration) (Entry, error) {
	e := s.Find(id)
	switch {
	case e == nil:
		return Entry{}, fmt.Errorf("dict: remove %v: %w %q", id, ErrNotInGroup, s.Group)
	case s.Current == id:
		return *e, fmt.Errorf("dict: remove %v: %w: it is the current one of group %q", id, ErrInUse, s.Group)
	case s.Previous == id:
		return *e, fmt.Errorf("dict: remove %v: %w: it is the previous one of group %q", id, ErrInUse, s.Group)
	}
	if left := e.lastUse().Add(keep).Sub(r.now()); left >= 0 {
		return *e, fmt.Errorf("dict: remove %v from group %q: %w: a writer may still use it, for %v", id, s.Group, ErrInUse, left.Round(time.Millisecond))
	}
	return *e, nil
}

// Collectable returns the entries of a group that a garbage collector may remove: they are
// [Registry.Removable], and do not wait to be activated.
func (r *Registry) Collectable(ctx context.Context, s *State) (entries []Entry, err error) {
	keep, err := r.retention(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range s.Dictionaries {
		if _, err := r.removable(s, e.ID, keep); err == nil && !e.Activated.IsZero() {
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// Remove takes a dictionary out of a group, and puts its bytes into quarantine if no other group
// has it; it reports whether they went there. Seen is the entry as [Registry.Removable] or
// [Registry.Collectable] returned it before the scan. If the entry has changed since, the error is
// ErrConflict. If the dictionary may be in use, it is ErrInUse. Nothing is removed then. With force
// the time since its last use does not matter.
func (r *Registry) Remove(ctx context.Context, group string, seen Entry, force bool) (quarantined bool, err error) {
	if err := r.takeOut(ctx, group, seen, force); err != nil {
		return false, err
	}
	return r.RemoveOrphan(ctx, seen.ID)
}

// Unlist takes a dictionary out of a group and leaves its bytes, for a dictionary that another
// group has. It needs no scan. It is ErrConflict if no other group has it. Seen and the other
// errors are those of [Registry.Remove]. Unlist counts as a use in the other group. So it stops a
// removal in progress there, whose scan may have missed values of this group.
func (r *Registry) Unlist(ctx context.Context, group string, seen Entry) error {
	groups, _, err := r.groups(ctx)
	if err != nil {
		return err
	}
	kept := false
	for _, other := range groups {
		if other == group || kept {
			continue
		}
		if err := r.change(ctx, other, func(s *State) (bool, error) {
			e := s.Find(seen.ID)
			if kept = e != nil; kept {
				e.used(later(r.time(), s.changed()))
			}
			return kept, nil
		}); err != nil {
			return err
		}
	}
	if !kept {
		return fmt.Errorf("dict: take %v out of group %q: %w: no other group has it", seen.ID, group, ErrConflict)
	}
	return r.takeOut(ctx, group, seen, false)
}

// takeOut takes an entry out of a group, if it is as it was seen.
func (r *Registry) takeOut(ctx context.Context, group string, seen Entry, force bool) error {
	return r.change(ctx, group, func(s *State) (bool, error) {
		keep, err := r.retention(ctx)
		if err != nil {
			return false, err
		}
		e, err := r.removable(s, seen.ID, keep)
		inUse := errors.Is(err, ErrInUse)
		switch {
		case inUse && force && e.ID != s.Current && e.ID != s.Previous:
		case err != nil:
			return false, err
		}
		if !e.same(&seen) {
			return false, fmt.Errorf("dict: remove %v from group %q: %w: it was used since you looked", seen.ID, group, ErrConflict)
		}
		s.Dictionaries = slices.DeleteFunc(s.Dictionaries, func(e Entry) bool { return e.ID == seen.ID })
		return true, nil
	})
}

// RemoveOrphan moves the bytes of a dictionary into quarantine if no group has it. It reports
// whether it moved any. Without a list of groups, or without the state of a listed group, nobody
// knows: ErrUnlisted.
func (r *Registry) RemoveOrphan(ctx context.Context, id frame.DictionaryID) (quarantined bool, err error) {
	used, err := r.used(ctx, id)
	if err != nil || used {
		return false, err
	}
	retention, err := r.retention(ctx)
	if err != nil {
		return false, err
	}
	ttl := max(r.quarantine, retention)
	// A removal that has begun goes on even if the caller has gone.
	caller := ctx
	ctx, cancel := context.WithCancel(context.WithoutCancel(caller))
	defer cancel()
	defer context.AfterFunc(caller, func() { time.AfterFunc(removeTimeout, cancel) })()
	b, failed := r.isolate(ctx, id, ttl)
	// A Publish may have come in between. It puts the bytes once more in the end: either that was
	// after they were deleted, or the second look finds the group.
	if used, err = r.used(ctx, id); err != nil || used {
		if b != nil {
			_, again := r.store.Swap(ctx, r.dataKey(id), nil, b, 0)
			err = errors.Join(err, again)
		}
		return false, err
	}
	if failed != nil {
		return false, failed
	}
	for i := range r.mirrors {
		if _, other := r.at(i).isolate(ctx, id, ttl); other != nil {
			err = errors.Join(err, fmt.Errorf("mirror %d: %w", i+1, other))
		}
	}
	return b != nil, err
}

// isolate moves the bytes of a dictionary to quarantine, and returns them, also if they may be
// there alone. They are never nowhere.
func (r *Registry) isolate(ctx context.Context, id frame.DictionaryID, ttl time.Duration) ([]byte, error) {
	key, quarantined := r.dataKey(id), r.quarantineKey(id)
	values, err := r.store.Read(ctx, key, quarantined)
	if err != nil || values[0] == nil {
		return nil, err
	}
	b := values[0]
	for _, step := range []struct {
		key        string
		old, value []byte
		ttl        time.Duration
	}{{quarantined, values[1], b, ttl}, {key, b, nil, 0}} {
		if ok, err := swap(ctx, r.store, step.key, step.old, step.value, step.ttl); err != nil {
			return b, fmt.Errorf("dict: remove %v: %w", id, err)
		} else if !ok {
			return b, fmt.Errorf("dict: remove %v: key %q: %w", id, step.key, ErrConflict)
		}
	}
	return b, nil
}

// used reports whether a group has a dictionary.
func (r *Registry) used(ctx context.Context, id frame.DictionaryID) (bool, error) {
	groups, raw, err := r.groups(ctx)
	if err != nil {
		return false, err
	}
	if raw == nil {
		return false, fmt.Errorf("dict: remove %v: %w", id, ErrUnlisted)
	}
	for _, name := range groups {
		s, raw, err := r.state(ctx, name)
		if err != nil {
			return false, err
		}
		if raw == nil {
			return false, fmt.Errorf("dict: remove %v: %w: group %q is listed and has no state; a program that has it open puts it back, and so does publishing to it", id, ErrUnlisted, name)
		}
		if s.Find(id) != nil {
			return true, nil
		}
	}
	return false, nil
}
