package dict

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/balekv/bale/frame"
)

func newRegistry(t *testing.T, s Store, grace time.Duration) *Registry {
	t.Helper()
	r, err := NewRegistry(s, RegistryOptions{Grace: grace})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// dictionaryOf makes a small dictionary; each i makes another one.
func dictionaryOf(t testing.TB, i int) *Dictionary {
	t.Helper()
	d, err := frame.NewDictionary(fmt.Appendf(nil, `%04d "country":"DE","language":"de","plan":"pro","verified":true,"settings":{"theme":"dark","timezone":"Europe/Berlin"}`, i))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// collectable are the ids of what may be collected.
func collectable(t *testing.T, r *Registry, s *State) (ids []frame.DictionaryID) {
	t.Helper()
	entries, err := r.Collectable(context.Background(), s)
	must(t, err)
	for _, e := range entries {
		ids = append(ids, e.ID)
	}
	return ids
}

// remove removes a dictionary as it is now.
func remove(r *Registry, group string, id frame.DictionaryID, force bool) error {
	s, err := r.State(context.Background(), group)
	if err != nil {
		return err
	}
	e := s.Find(id)
	if e == nil {
		e = &Entry{ID: id}
	}
	_, err = r.Remove(context.Background(), group, *e, force)
	return err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestRegistry(t *testing.T) {
	ctx := context.Background()
	m := newMemory()
	r := newRegistry(t, m, time.Hour)
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	r.now = func() time.Time { return now }
	a, b := dictionaryOf(t, 1), dictionaryOf(t, 2)

	s, err := r.State(ctx, "g")
	if diff := cmp.Diff(&State{Group: "g"}, s); diff != "" || err != nil {
		t.Fatalf("a group that does not exist (-want +got):\n%s%v", diff, err)
	}
	must(t, r.Publish(ctx, "g", a, Info{Ratio: 3}))
	must(t, r.Publish(ctx, "g", a, Info{Ratio: 4})) // the same bytes are one dictionary
	must(t, r.Publish(ctx, "a", a, Info{}))
	if groups, err := r.Groups(ctx); err != nil || !cmp.Equal(groups, []string{"a", "g"}) {
		t.Errorf("groups %q, %v", groups, err)
	}
	if got, err := r.Fetch(ctx, a.ID()); err != nil || !bytes.Equal(got.Bytes(), a.Bytes()) {
		t.Errorf("fetch: %v", err)
	}
	if err := r.Activate(ctx, "g", a.ID(), false); !errors.Is(err, ErrGrace) {
		t.Errorf("within the grace period: %v", err)
	}
	now = now.Add(time.Hour)
	must(t, r.Activate(ctx, "g", a.ID(), false))
	must(t, r.Activate(ctx, "g", a.ID(), false)) // nothing changes
	must(t, r.Publish(ctx, "g", b, Info{}))
	must(t, r.Activate(ctx, "g", b.ID(), true))
	want := &State{Group: "g", Epoch: 4, Current: b.ID(), Previous: a.ID(), Changed: now.Add(time.Millisecond), Dictionaries: []Entry{
		{ID: b.ID(), Size: len(b.Bytes()), Published: now, Activated: now.Add(time.Millisecond), Uses: 1},
		{ID: a.ID(), Size: len(a.Bytes()), Published: now.Add(-time.Hour), Activated: now, Retired: now.Add(time.Millisecond), Uses: 2, Info: Info{Ratio: 3}},
	}}
	if s, err = r.State(ctx, "g"); err != nil {
		t.Fatal(err)
	}
	want.Incarnation = s.Incarnation // random
	if diff := cmp.Diff(want, s); diff != "" || s.Incarnation == "" {
		t.Errorf("state (-want +got), of incarnation %q:\n%s", s.Incarnation, diff)
	}
	must(t, r.Rollback(ctx, "g"))
	if s, err = r.State(ctx, "g"); err != nil || s.Current != a.ID() || s.Previous != b.ID() {
		t.Errorf("after rollback: %+v, %v", s, err)
	}
	for _, id := range []frame.DictionaryID{a.ID(), b.ID()} {
		if err := remove(r, "g", id, true); !errors.Is(err, ErrInUse) {
			t.Errorf("remove one in use: %v", err)
		}
	}
	if ids := collectable(t, r, s); len(ids) != 0 {
		t.Errorf("collectable %v, and all are in use", ids)
	}
	must(t, r.Activate(ctx, "g", 0, false)) // without a dictionary
	must(t, r.Activate(ctx, "g", b.ID(), false))
	s, err = r.State(ctx, "g")
	must(t, err)
	if ids := collectable(t, r, s); len(ids) != 0 {
		t.Errorf("collectable %v, within the grace period", ids)
	}
	now = now.Add(5*time.Hour + time.Second)
	if ids := collectable(t, r, s); len(ids) != 0 {
		t.Errorf("collectable %v, and a writer that hears nothing may have it", ids)
	}
	now = now.Add(time.Hour)
	if ids := collectable(t, r, s); !cmp.Equal(ids, []frame.DictionaryID{a.ID()}) {
		t.Errorf("collectable %v", ids)
	}
	must(t, remove(r, "g", a.ID(), false))
	if _, err := r.Fetch(ctx, a.ID()); err != nil {
		t.Errorf("a dictionary that another group has is gone: %v", err)
	}
	must(t, remove(r, "a", a.ID(), false))
	if m.value(r.dataKey(a.ID())) != nil || !bytes.Equal(m.value(r.quarantineKey(a.ID())), a.Bytes()) {
		t.Error("removed from both groups, and not in quarantine")
	}
}

// TestRestore: a dictionary that comes back is retired. It is no decision about the group.
func TestRestore(t *testing.T) {
	ctx := context.Background()
	r := newRegistry(t, newMemory(), time.Hour)
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	r.now = func() time.Time { return now }
	d := dictionaryOf(t, 1)
	must(t, r.Restore(ctx, "g", d, Info{Ratio: 3, Auto: true}))
	state := func() *State { s, err := r.State(ctx, "g"); must(t, err); return s }
	s := state()
	want := []Entry{{ID: d.ID(), Size: len(d.Bytes()), Published: now, Activated: now, Retired: now, Info: Info{Ratio: 3, Auto: true}}}
	if diff := cmp.Diff(want, s.Dictionaries); diff != "" || s.Current != 0 || len(pending(s)) != 0 || !s.changed().IsZero() {
		t.Errorf("%+v (-want +got):\n%s", s, diff)
	}
	for _, again := range []func(context.Context, string, *Dictionary, Info) error{r.Publish, r.Restore} { // a use
		now = now.Add(6*time.Hour + time.Second)
		if ids := collectable(t, r, state()); !cmp.Equal(ids, []frame.DictionaryID{d.ID()}) {
			t.Errorf("after six grace periods collectable is %v", ids)
		}
		must(t, again(ctx, "g", d, Info{}))
		if ids := collectable(t, r, state()); len(ids) > 0 {
			t.Errorf("collectable %v, and it just came back", ids)
		}
	}
	must(t, r.Activate(ctx, "g", d.ID(), false))
	if s := state(); s.Current != d.ID() || !s.Dictionaries[0].Retired.IsZero() {
		t.Errorf("%+v", s)
	}
}

func TestRegistryRefuses(t *testing.T) {
	ctx := context.Background()
	a, b := dictionaryOf(t, 1), dictionaryOf(t, 2)
	truncated := a.Bytes()[:len(a.Bytes())-1]
	for _, test := range []struct {
		name string
		do   func(*Registry, *memory) error
		want error
	}{
		{"activate what is not there", func(r *Registry, m *memory) error { return r.Activate(ctx, "g", b.ID(), true) }, ErrUnknown},
		{"activate in the wrong group", func(r *Registry, m *memory) error { return r.Activate(ctx, "other", a.ID(), true) }, ErrNotInGroup},
		{"activate a truncated one", func(r *Registry, m *memory) error {
			m.set(r.dataKey(a.ID()), truncated)
			return r.Activate(ctx, "g", a.ID(), true)
		}, ErrCorrupt},
		{"activate an exchanged one", func(r *Registry, m *memory) error {
			m.set(r.dataKey(a.ID()), b.Bytes())
			return r.Activate(ctx, "g", a.ID(), true)
		}, ErrCorrupt},
		{"fetch an empty one", func(r *Registry, m *memory) error {
			m.set(r.dataKey(a.ID()), []byte{})
			_, err := r.Fetch(ctx, a.ID())
			return err
		}, ErrUnknown},
		{"publish over other bytes", func(r *Registry, m *memory) error {
			m.set(r.dataKey(b.ID()), truncated)
			return r.Publish(ctx, "g", b, Info{})
		}, ErrCorrupt},
		{"publish nothing", func(r *Registry, m *memory) error { return r.Publish(ctx, "g", nil, Info{}) }, ErrInvalid},
		{"a group without a name", func(r *Registry, m *memory) error { return r.Publish(ctx, "", a, Info{}) }, ErrInvalid},
		{"a group with a space", func(r *Registry, m *memory) error { return r.Rollback(ctx, "a b") }, ErrInvalid},
		{"a group with a C1 control", func(r *Registry, m *memory) error { return r.Publish(ctx, "a\u009b2Jb", a, Info{}) }, ErrInvalid},
		{"a group with a mark of direction", func(r *Registry, m *memory) error { return r.Publish(ctx, "a\u202eb", a, Info{}) }, ErrInvalid},
		{"a group with an invisible character", func(r *Registry, m *memory) error { return r.Publish(ctx, "a\u200bb", a, Info{}) }, ErrInvalid},
		{"rollback to what is not there", func(r *Registry, m *memory) error {
			must(t, errors.Join(r.Publish(ctx, "h", a, Info{}), r.Publish(ctx, "h", b, Info{})))
			must(t, errors.Join(r.Activate(ctx, "h", b.ID(), true), r.Activate(ctx, "h", a.ID(), true)))
			m.set(r.dataKey(b.ID()), truncated)
			defer func() {
				if s, err := r.State(ctx, "h"); err != nil || s.Current != a.ID() || s.Previous != b.ID() {
					t.Errorf("%+v, %v", s, err)
				}
			}()
			return r.Rollback(ctx, "h")
		}, ErrCorrupt},
		{"rollback of nothing", func(r *Registry, m *memory) error { return r.Rollback(ctx, "g") }, ErrNotInGroup},
		{"remove what is not there", func(r *Registry, m *memory) error { return remove(r, "g", b.ID(), false) }, ErrNotInGroup},
		{"a damaged state", func(r *Registry, m *memory) error {
			m.set(r.groupKey("g"), []byte("{"))
			return r.Activate(ctx, "g", a.ID(), true)
		}, ErrCorrupt},
		{"an absurd epoch", func(r *Registry, m *memory) error {
			m.set(r.groupKey("g"), fmt.Appendf(nil, `{"group":"g","epoch":%d}`, int64(math.MaxInt64)))
			return r.Activate(ctx, "g", a.ID(), true)
		}, ErrCorrupt},
		{"a negative epoch", func(r *Registry, m *memory) error {
			m.set(r.groupKey("g"), []byte(`{"group":"g","epoch":-1}`))
			return r.Activate(ctx, "g", a.ID(), true)
		}, ErrCorrupt},
		{"the state of another group", func(r *Registry, m *memory) error {
			m.set(r.groupKey("g"), []byte(`{"group":"h"}`))
			return r.Publish(ctx, "g", b, Info{})
		}, ErrCorrupt},
		{"a damaged list", func(r *Registry, m *memory) error {
			m.set(r.groupsKey(), []byte("{"))
			return r.Publish(ctx, "new", a, Info{})
		}, ErrCorrupt},
		{"no answer", func(r *Registry, m *memory) error { m.setDown(true); return r.Publish(ctx, "g", b, Info{}) }, errDown},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMemory()
			r := newRegistry(t, m, 0)
			must(t, r.Publish(ctx, "g", a, Info{}))
			before, _ := r.State(ctx, "g")
			err := test.do(r, m)
			if !errors.Is(err, test.want) {
				t.Fatalf("%v, want %v", err, test.want)
			}
			m.setDown(false)
			if after, err := r.State(ctx, "g"); err == nil && !cmp.Equal(before, after) {
				t.Errorf("the group has changed:\n%s", cmp.Diff(before, after))
			}
			if _, err := r.Fetch(ctx, b.ID()); !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrCorrupt) {
				t.Errorf("the other dictionary is there: %v", err)
			}
		})
	}
	if _, err := NewRegistry(nil, RegistryOptions{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("no store: %v", err)
	}
	if _, err := NewRegistry(newMemory(), RegistryOptions{Grace: -1}); !errors.Is(err, ErrInvalid) {
		t.Errorf("grace: %v", err)
	}
}

// TestInterrupted: a change that ends after any of its steps, as when the program is killed, is
// done or not done, and can be repeated.
func TestInterrupted(t *testing.T) {
	ctx := context.Background()
	a, b := dictionaryOf(t, 1), dictionaryOf(t, 2)
	for name, change := range map[string]func(*Registry) error{
		"publish":  func(r *Registry) error { return r.Publish(ctx, "g", b, Info{}) },
		"restore":  func(r *Registry) error { return r.Restore(ctx, "g", b, Info{}) },
		"activate": func(r *Registry) error { return r.Activate(ctx, "g", a.ID(), true) },
		"remove":   func(r *Registry) error { return remove(r, "g", a.ID(), true) },
	} {
		for steps := 1; ; steps++ {
			m := newMemory()
			r := newRegistry(t, m, 0)
			must(t, r.Publish(ctx, "g", a, Info{}))
			before, err := r.State(ctx, "g")
			must(t, err)
			m.left = steps
			err = change(r)
			ended := m.left > 0
			m.left = 0
			m.setDown(false)
			after, stateErr := r.State(ctx, "g")
			must(t, stateErr)
			if after.Epoch != before.Epoch && after.Epoch != before.Epoch+1 {
				t.Errorf("%s, %d steps: epoch %d, was %d", name, steps, after.Epoch, before.Epoch)
			}
			for _, e := range after.Dictionaries {
				if _, err := r.Fetch(ctx, e.ID); err != nil {
					t.Errorf("%s, %d steps: the group names a dictionary that is not there: %v", name, steps, err)
				}
			}
			if again := change(r); again != nil && !(name == "remove" && errors.Is(again, ErrNotInGroup)) {
				t.Errorf("%s, %d steps, again: %v", name, steps, again)
			}
			if ended {
				must(t, err)
				break
			}
		}
	}
}

// TestRemoveAtOnce: a dictionary is published and activated while it is being removed as an orphan,
// or the other way round. It is there in the end with any interleaving, and readable all the time.
func TestRemoveAtOnce(t *testing.T) {
	ctx := context.Background()
	d := dictionaryOf(t, 1)
	for _, outer := range []string{"remove", "publish"} {
		for calls, ended := 1, false; !ended; calls++ {
			h := &hooked{memory: newMemory()}
			slow, quick := newRegistry(t, h, 0), newRegistry(t, h.memory, 0)
			must(t, quick.Publish(ctx, "other", dictionaryOf(t, 2), Info{}))
			must(t, quick.put(ctx, d)) // of no group
			remove := func(r *Registry) {
				if _, err := r.RemoveOrphan(ctx, d.ID()); err != nil && !errors.Is(err, ErrUnlisted) { // the group is listed before it is there
					t.Error(err)
				}
			}
			publish := func(r *Registry) {
				must(t, r.Publish(ctx, "new", d, Info{}))
				must(t, r.Activate(ctx, "new", d.ID(), true))
			}
			reached := false
			if outer == "remove" {
				h.after(calls, func() { reached = true; publish(quick) })
				remove(slow)
			} else {
				h.after(calls, func() { reached = true; remove(quick) })
				publish(slow)
			}
			ended = !reached
			if s, err := quick.State(ctx, "new"); ended && outer == "remove" && err == nil {
				if h.value(quick.dataKey(d.ID())) != nil {
					t.Errorf("nothing came in between, and it is not removed: %v", err)
				}
			} else if err != nil || s.Current != d.ID() {
				t.Errorf("%s, after %d calls: current is %v, %v", outer, calls, s.Current, err)
			} else if !bytes.Equal(h.value(quick.dataKey(d.ID())), d.Bytes()) {
				t.Errorf("%s, after %d calls: the group names a dictionary that is not there", outer, calls)
			}
			if ended && calls < 6 {
				t.Errorf("%s makes only %d calls: the test shows nothing", outer, calls-1)
			}
		}
	}
}

// TestRemovalInterrupted: a program that is killed while it removes a dictionary leaves it good,
// for readers, for who publishes it and for another removal.
func TestRemovalInterrupted(t *testing.T) {
	ctx := context.Background()
	d := dictionaryOf(t, 1)
	left := map[string]int{}
	for steps := 1; steps <= 10; steps++ {
		for name, then := range map[string]func(*Registry) error{
			"read":    func(r *Registry) error { _, err := r.Fetch(ctx, d.ID()); return err },
			"publish": func(r *Registry) error { return r.Publish(ctx, "new", d, Info{}) },
			"remove":  func(r *Registry) error { _, err := r.RemoveOrphan(ctx, d.ID()); return err },
		} {
			m := newMemory()
			r := newRegistry(t, m, 0)
			must(t, r.Publish(ctx, "other", dictionaryOf(t, 2), Info{}))
			must(t, r.put(ctx, d))
			m.left = steps
			_, err := r.RemoveOrphan(ctx, d.ID())
			m.left = 0
			m.setDown(false)
			if err == nil {
				continue
			}
			if m.value(r.quarantineKey(d.ID())) != nil {
				left["quarantine"]++
			}
			if m.value(r.dataKey(d.ID())) == nil {
				left["no data"]++
			}
			if err := then(r); err != nil {
				t.Errorf("%s after %d steps: %v", name, steps, err)
			}
			value := m.value(r.dataKey(d.ID()))
			if name != "remove" && !bytes.Equal(value, d.Bytes()) || name == "remove" && (value != nil || m.value(r.quarantineKey(d.ID())) == nil) {
				t.Errorf("%s after %d steps: %q is left", name, steps, value)
			}
		}
	}
	if left["quarantine"] == 0 || left["no data"] == 0 {
		t.Errorf("removals were interrupted half way: %v", left)
	}
}

// TestRollbackAtOnce: a rollback that another change comes before does not go to what was not
// looked at.
func TestRollbackAtOnce(t *testing.T) {
	ctx := context.Background()
	a, b, c := dictionaryOf(t, 1), dictionaryOf(t, 2), dictionaryOf(t, 3)
	conflicts := 0
	for calls := 1; calls <= 4; calls++ { // it makes four
		h := &hooked{memory: newMemory()}
		r, other := newRegistry(t, h, 0), newRegistry(t, h.memory, 0)
		for _, d := range []*Dictionary{a, b} {
			must(t, errors.Join(other.Publish(ctx, "g", d, Info{}), other.Activate(ctx, "g", d.ID(), true)))
		}
		h.after(calls, func() {
			must(t, errors.Join(other.Publish(ctx, "g", c, Info{}), other.Activate(ctx, "g", c.ID(), true)))
		})
		err := r.Rollback(ctx, "g")
		s, stateErr := other.State(ctx, "g")
		must(t, stateErr)
		switch {
		case errors.Is(err, ErrConflict):
			conflicts++
			if s.Current != c.ID() || s.Previous != b.ID() {
				t.Errorf("after %d calls: refused, and current is %v", calls, s.Current)
			}
		case err != nil || s.Current != c.ID() || s.Previous != a.ID(): // it was done before
			t.Errorf("after %d calls: %+v, %v", calls, s, err)
		}
	}
	if conflicts == 0 {
		t.Error("nothing came in between")
	}
}

// TestListIsLost: a registry that lost its list of groups removes nothing, and has the list back
// from the programs that run, or from who publishes.
func TestListIsLost(t *testing.T) {
	ctx := context.Background()
	d := dictionaryOf(t, 1)
	setUp := func(t *testing.T) (*memory, *Registry) {
		m := newMemory()
		r := newRegistry(t, m, time.Nanosecond)
		must(t, r.Publish(ctx, "g", d, Info{}))
		must(t, r.Activate(ctx, "g", d.ID(), true))
		return m, r
	}
	lose := func(m *memory, r *Registry) { m.lock.Lock(); delete(m.values, r.groupsKey()); m.lock.Unlock() }
	listed := func(r *Registry) bool {
		names, err := r.Groups(ctx)
		return err == nil && cmp.Equal(names, []string{"g"})
	}
	t.Run("removal", func(t *testing.T) {
		m, r := setUp(t)
		lose(m, r)
		if _, err := r.RemoveOrphan(ctx, d.ID()); !errors.Is(err, ErrUnlisted) {
			t.Errorf("%v", err)
		}
		if _, err := r.Fetch(ctx, d.ID()); err != nil {
			t.Error(err)
		}
	})
	t.Run("program", func(t *testing.T) {
		m, r := setUp(t)
		open(t, r, GroupOptions{Poll: 5 * time.Millisecond})
		lose(m, r)
		eventually(t, "the group is listed", func() bool { return listed(r) })
	})
	t.Run("publish", func(t *testing.T) {
		m, r := setUp(t)
		lose(m, r)
		must(t, r.Publish(ctx, "g", d, Info{}))
		if !listed(r) {
			t.Error("the group is not listed")
		}
	})
}

// TestPublishAtOnce: many at once lose nothing.
func TestPublishAtOnce(t *testing.T) {
	r := newRegistry(t, newMemory(), 0)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if err := r.Publish(context.Background(), "g", dictionaryOf(t, i), Info{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s, err := r.State(context.Background(), "g")
	if err != nil || len(s.Dictionaries) != 8 || s.Epoch != 8 {
		t.Errorf("%d dictionaries, epoch %d, %v", len(s.Dictionaries), s.Epoch, err)
	}
}

// Readers of very many tiny dictionaries take more memory than their bytes tell.
func TestManyTinyDictionaries(t *testing.T) {
	r := newRegistry(t, newMemory(), 0)
	g := open(t, r, GroupOptions{})
	for i := range 2 * maxReaders {
		d, err := frame.NewDictionary(fmt.Appendf(nil, "%0*d", frame.MinDictionarySize, i))
		if err = errors.Join(err, r.put(t.Context(), d)); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Reader(t.Context(), frame.LZ4, d.ID()); err != nil {
			t.Fatal(err)
		}
	}
	if n, held := len(*g.readers.Load()), len(g.held); n > maxReaders || held > maxReaders {
		t.Errorf("%d readers and %d dictionaries are kept, at most %d", n, held, maxReaders)
	}
}

// TestEmptyKeys: an empty key of a registry is a missing one. It stops nobody.
func TestEmptyKeys(t *testing.T) {
	ctx := context.Background()
	m := newMemory()
	r := newRegistry(t, m, time.Minute)
	d := dictionaryOf(t, 1)
	for _, key := range []string{r.settingsKey(), r.groupsKey(), r.groupKey("g"), r.dataKey(d.ID()), r.serverKey(), r.leaseKey("g")} {
		m.set(key, []byte{})
	}
	_, err := r.Join(ctx, nil, "name")
	must(t, errors.Join(err, r.Publish(ctx, "g", d, Info{}), r.Activate(ctx, "g", d.ID(), true)))
	if got, from, err := r.fetch(ctx, d.ID()); err != nil || from != "" || got.ID() != d.ID() {
		t.Errorf("%q, %v", from, err)
	}
	l, err := acquire(ctx, r, "g", time.Minute)
	if err != nil || l == nil {
		t.Fatalf("%v, %v", l, err)
	}
	must(t, l.release(ctx, 0))
}

// TestExcluded: what a dictionary leaves out stays out of the next one, also after a rollback,
// before an activation, and in a group that was imported.
func TestExcluded(t *testing.T) {
	at := func(hour int) time.Time { return time.Date(2026, 11, 1, hour, 0, 0, 0, time.UTC) }
	old, plain := Entry{ID: 1, Published: at(1), Activated: at(2), Info: Info{Exclude: "old"}}, Entry{ID: 2, Published: at(3), Activated: at(4)}
	newer := Entry{ID: 3, Published: at(5), Activated: at(6), Info: Info{Exclude: "secret email"}}
	waiting := Entry{ID: 4, Published: at(2), Info: Info{Exclude: "name"}}
	for name, test := range map[string]struct {
		State
		want []string
	}{
		"current":       {State{Current: 3, Dictionaries: []Entry{newer, plain, old}}, []string{"email", "secret"}},
		"rolled back":   {State{Current: 2, Previous: 3, Dictionaries: []Entry{newer, plain, old}}, []string{"email", "secret"}},
		"excludes less": {State{Current: 2, Dictionaries: []Entry{plain, old}}, nil},
		"waits":         {State{Current: 2, Dictionaries: []Entry{plain, waiting, old}}, []string{"name"}},
		"imported":      {State{Dictionaries: []Entry{newer, plain, old}}, []string{"email", "old", "secret"}},
		"none":          {},
	} {
		if got := test.Excluded(); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
