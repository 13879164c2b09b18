package dict

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
)

// A reply may name very many dictionaries. When the caller's context has ended, none is fetched for
// it any more.
func TestNoFetchAfterContext(t *testing.T) {
	g := open(t, newRegistry(t, newMemory(), 0), GroupOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 100 {
		if _, err := g.Reader(ctx, frame.Zstd, frame.DictionaryID(i+1)); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	g.lock.Lock()
	defer g.lock.Unlock()
	if n := len(g.flights) + len(g.missing); n > 0 {
		t.Errorf("%d dictionaries were asked for", n)
	}
}

// TestWriterIsLogged: a log names what values are written with, once for each change.
func TestWriterIsLogged(t *testing.T) {
	r := newRegistry(t, newMemory(), time.Minute)
	var log lines
	g := open(t, r, GroupOptions{Log: log.logger()})
	a := dictionaryOf(t, 1)
	must(t, r.Publish(t.Context(), "g", a, Info{}))
	for _, id := range []frame.DictionaryID{a.ID(), 0} {
		must(t, r.Activate(t.Context(), "g", id, true))
		eventually(t, "a log line", func() bool {
			return log.count("writing with a dictionary") == 1 && (id != 0 || log.count("writing without a dictionary") == 1)
		})
	}
	if id := g.Writer().DictionaryID(); id != 0 {
		t.Errorf("written with %v", id)
	}
}

func open(t *testing.T, r *Registry, o GroupOptions) *Group {
	t.Helper()
	if o.Poll == 0 {
		o.Poll = time.Hour // what is to be heard of must be heard at once
	}
	g, err := r.Open(context.Background(), "g", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

func writes(g *Group, id frame.DictionaryID) func() bool {
	return func() bool { return g.Writer().DictionaryID() == id }
}

// TestGroupFollows: what is activated is written with, at once and without a restart.
func TestGroupFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		m := newMemory()
		r := newRegistry(t, m, 0)
		g := open(t, r, GroupOptions{})
		reading := open(t, r, GroupOptions{ReadOnly: true})
		if g.Writer().DictionaryID() != 0 || g.Writer().Algorithm() != frame.Zstd {
			t.Fatalf("writes with %v, %v", g.Writer().Algorithm(), g.Writer().DictionaryID())
		}
		a, b := dictionaryOf(t, 1), dictionaryOf(t, 2)
		must(t, r.Publish(ctx, "g", a, Info{}))
		eventually(t, "published is at hand", func() bool { return g.dictionary(a.ID()) != nil })
		if g.Writer().DictionaryID() != 0 {
			t.Error("published is not activated")
		}
		must(t, r.Activate(ctx, "g", a.ID(), true))
		eventually(t, "the first dictionary", writes(g, a.ID()))
		must(t, r.Publish(ctx, "g", b, Info{}))
		must(t, r.Activate(ctx, "g", b.ID(), true))
		eventually(t, "the second dictionary", writes(g, b.ID()))
		must(t, r.Rollback(ctx, "g"))
		eventually(t, "the first one again", writes(g, a.ID()))
		must(t, r.Activate(ctx, "g", 0, false))
		eventually(t, "no dictionary", writes(g, 0))
		if reading.Writer().DictionaryID() != 0 {
			t.Error("a read-only group writes with a dictionary")
		}
		status := g.Status()
		if status.Writing != 0 || status.State.Epoch != 6 || status.Err != nil || status.Synced.IsZero() {
			t.Errorf("%+v", status)
		}
	})
}

// TestGroupReads: unknown ids are fetched once for all, kept within bounds, and remembered when
// they are missing.
func TestGroupReads(t *testing.T) {
	ctx := context.Background()
	m := newMemory()
	r := newRegistry(t, m, 0)
	bundled := dictionaryOf(t, 100)
	g := open(t, r, GroupOptions{Keep: 3 * len(bundled.Bytes()), FetchTimeout: 100 * time.Millisecond, Bundled: []*Dictionary{bundled}})
	var all []*Dictionary
	for i := range 6 {
		d := dictionaryOf(t, i)
		must(t, r.put(ctx, d)) // of no group
		all = append(all, d)
	}
	value := []byte(`{"country":"DE","language":"de","plan":"pro","verified":true}`)
	for _, setting := range []compress.Setting{{Algorithm: frame.Zstd}, {Algorithm: frame.S2}, {Algorithm: frame.LZ4}} {
		w, err := setting.New(all[0])
		must(t, err)
		payload, err := w.Compress(nil, value)
		must(t, err)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				c, err := g.Reader(ctx, setting.Algorithm, all[0].ID())
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := c.Decompress(nil, payload, len(value)); err != nil || !bytes.Equal(got, value) {
					t.Errorf("%v: %q, %v", setting, got, err)
				}
			})
		}
		wg.Wait()
	}
	if n := m.count(m.gets, r.dataKey(all[0].ID())); n != 1 {
		t.Errorf("the dictionary was fetched %d times", n)
	}
	for range 3 {
		for _, d := range all {
			if _, err := g.Reader(ctx, frame.Zstd, d.ID()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(*g.readers.Load()); n > 3 || len(g.held) > 3 {
		t.Errorf("%d readers and %d dictionaries are kept, in the room of 3", n, len(g.held))
	}
	if c, err := g.Reader(ctx, frame.Zstd, bundled.ID()); err != nil || c.DictionaryID() != bundled.ID() {
		t.Errorf("bundled: %v", err)
	}
	if _, err := g.Reader(ctx, frame.Gzip, all[0].ID()); !errors.Is(err, compress.ErrUnknownAlgorithm) {
		t.Errorf("gzip with a dictionary: %v", err)
	}
	unknown := dictionaryOf(t, 999).ID()
	if _, err := g.Reader(ctx, frame.Zstd, unknown); !errors.Is(err, ErrUnknown) {
		t.Errorf("unknown: %v", err)
	}
	eventually(t, "nobody asks any more", func() bool { g.lock.Lock(); defer g.lock.Unlock(); return len(g.flights) == 0 })
	asked := m.count(m.gets, r.dataKey(unknown))
	if _, err := g.Reader(ctx, frame.Zstd, unknown); !errors.Is(err, ErrUnknown) || m.count(m.gets, r.dataKey(unknown)) != asked {
		t.Errorf("unknown again: %v, asked %d times and then %d", err, asked, m.count(m.gets, r.dataKey(unknown)))
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := g.Reader(cancelled, frame.Zstd, dictionaryOf(t, 998).ID()); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that does not wait: %v", err)
	}
	m.setDown(true)
	if _, err := g.Reader(ctx, frame.Zstd, dictionaryOf(t, 997).ID()); !errors.Is(err, errDown) {
		t.Errorf("no answer: %v", err)
	}
	if _, err := g.Reader(ctx, frame.Zstd, bundled.ID()); err != nil {
		t.Errorf("bundled, without a registry: %v", err)
	}
	m.setDown(false)
}

// TestGroupKeepsGoing: a server that does not answer changes nothing, also at the start.
func TestGroupKeepsGoing(t *testing.T) {
	ctx := context.Background()
	m := newMemory()
	r := newRegistry(t, m, 0)
	a := dictionaryOf(t, 1)
	must(t, r.Publish(ctx, "g", a, Info{}))
	must(t, r.Activate(ctx, "g", a.ID(), true))
	g := open(t, r, GroupOptions{Poll: 5 * time.Millisecond})
	if g.Writer().DictionaryID() != a.ID() {
		t.Fatal("Open does not wait for the dictionary")
	}
	m.setDown(true)
	late := open(t, r, GroupOptions{Poll: 5 * time.Millisecond})
	eventually(t, "the failure is known", func() bool { return errors.Is(g.Status().Err, errDown) && errors.Is(late.Status().Err, errDown) })
	if g.Writer().DictionaryID() != a.ID() || late.Writer().DictionaryID() != 0 {
		t.Errorf("writing with %v and %v", g.Writer().DictionaryID(), late.Writer().DictionaryID())
	}
	m.setDown(false)
	eventually(t, "the late one has caught up", writes(late, a.ID()))
	// Damage in the registry does not reach those that hold the dictionary, and those that do not
	// write without it.
	m.set(r.dataKey(a.ID()), []byte("something quite different"))
	other := open(t, r, GroupOptions{Poll: 5 * time.Millisecond})
	eventually(t, "the damage is known", func() bool { return errors.Is(other.Status().Err, ErrCorrupt) })
	if g.Writer().DictionaryID() != a.ID() || other.Writer().DictionaryID() != 0 {
		t.Errorf("writing with %v and %v", g.Writer().DictionaryID(), other.Writer().DictionaryID())
	}
}

// TestGroupCutOff: a writer that hears nothing any more does not write with what may be collected,
// and does again when it hears.
func TestGroupCutOff(t *testing.T) {
	ctx := context.Background()
	m := newMemory()
	mine := &cutOff{memory: m}
	const grace = 200 * time.Millisecond
	r := newRegistry(t, m, grace)
	a, b, c := dictionaryOf(t, 1), dictionaryOf(t, 2), dictionaryOf(t, 3)
	must(t, errors.Join(r.Publish(ctx, "g", a, Info{}), r.Activate(ctx, "g", a.ID(), true)))
	g := open(t, newRegistry(t, mine, grace), GroupOptions{Poll: grace})
	eventually(t, "the first dictionary", writes(g, a.ID()))
	mine.cut.Store(true)
	for _, d := range []*Dictionary{b, c} {
		must(t, errors.Join(r.Publish(ctx, "g", d, Info{}), r.Activate(ctx, "g", d.ID(), true)))
	}
	eventually(t, "a program that hears nothing is known to write without", func() bool {
		wrote := g.Writer().DictionaryID() // before the look at what is collectable, which is later only
		s, err := r.State(ctx, "g")
		must(t, err)
		collectable := slices.Contains(collectable(t, r, s), a.ID())
		if collectable && wrote == a.ID() && g.Writer().DictionaryID() == a.ID() {
			t.Fatal("it is collected, and still written with")
		}
		return collectable
	})
	must(t, remove(r, "g", a.ID(), false))
	if !errors.Is(g.Status().Err, errDown) {
		t.Errorf("%v", g.Status().Err)
	}
	mine.cut.Store(false)
	eventually(t, "it hears again", writes(g, c.ID()))
}

// TestGroupCannotHaveTheNext: a group that cannot have the current dictionary goes on with the
// previous one, and with none that is neither.
func TestGroupCannotHaveTheNext(t *testing.T) {
	ctx := context.Background()
	m := newMemory()
	r := newRegistry(t, m, 0)
	a := dictionaryOf(t, 1)
	must(t, errors.Join(r.Publish(ctx, "g", a, Info{}), r.Activate(ctx, "g", a.ID(), true)))
	g := open(t, r, GroupOptions{FetchTimeout: 20 * time.Millisecond})
	for i, want := range []frame.DictionaryID{a.ID(), 0} {
		s, err := r.State(ctx, "g")
		must(t, err)
		lost := dictionaryOf(t, 100+i)
		s.Dictionaries = slices.Insert(s.Dictionaries, 0, Entry{ID: lost.ID(), Published: time.Now()})
		s.Previous, s.Epoch = s.Current, s.Epoch+1
		s.use(lost.ID(), time.Now())
		raw, err := json.Marshal(s)
		must(t, err)
		m.set(r.groupKey("g"), raw)
		must(t, m.Notify(ctx, "", changedMessage+"g"))
		eventually(t, "the group has looked", func() bool {
			now := g.Status()
			return now.State.Epoch == s.Epoch && now.Err != nil && strings.Contains(now.Err.Error(), lost.ID().String())
		})
		if g.Writer().DictionaryID() != want {
			t.Errorf("%d dictionaries later: writes with %v, want %v", i+1, g.Writer().DictionaryID(), want)
		}
	}
}

// TestUnknownForAllAlgorithms: made-up dictionaries keep readers waiting once each, however many
// algorithms name them, and however often they are read.
func TestUnknownForAllAlgorithms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := open(t, newRegistry(t, newMemory(), 0), GroupOptions{})
		for _, most := range []time.Duration{maxUnknown * time.Second, 0, 3 * maxUnknown * brief} {
			start := time.Now()
			for _, a := range allAlgorithms {
				for id := frame.DictionaryID(1); id <= maxUnknown; id++ {
					_, err := g.Reader(t.Context(), a, id)
					again := most == 3*maxUnknown*brief && errors.Is(err, context.DeadlineExceeded) // others are fetched
					if !errors.Is(err, ErrUnknown) && !again {
						t.Errorf("%v, %v: %v", a, id, err)
					}
					synctest.Wait() // until that is remembered
				}
			}
			if took := time.Since(start); took > most {
				t.Errorf("%v instead of %v", took, most)
			}
			if most == 0 {
				time.Sleep(missingFor)
			}
		}
	})
}

// TestSilentRegistry: of many readers with unknown dictionaries only the first waits for a registry
// that does not answer. Once it does, they have their dictionaries.
func TestSilentRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		m := newMemory()
		r := newRegistry(t, m, 0)
		old := dictionaryOf(t, 1)
		must(t, r.put(ctx, old))
		g := open(t, r, GroupOptions{})
		m.lock.Lock()
		m.stuck = make(chan struct{})
		m.lock.Unlock()
		start := time.Now()
		for id := range frame.DictionaryID(100) {
			if _, err := g.Reader(ctx, frame.Zstd, id+1); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v: %v", id, err)
			}
		}
		if took := time.Since(start); took > 1100*time.Millisecond {
			t.Errorf("100 readers waited %v", took)
		}
		m.lock.Lock()
		close(m.stuck)
		m.stuck = nil
		m.lock.Unlock()
		synctest.Wait()
		if _, err := g.Reader(ctx, frame.Zstd, old.ID()); err != nil {
			t.Error(err)
		}
	})
}

// TestStoreThatHangs: a Store that heeds no context keeps nobody waiting. Here it hangs until all
// is over that must not wait for it.
func TestStoreThatHangs(t *testing.T) {
	ctx := context.Background()
	m := newMemory()
	r := newRegistry(t, m, 0)
	a, b := dictionaryOf(t, 1), dictionaryOf(t, 2)
	must(t, errors.Join(r.Publish(ctx, "g", a, Info{}), r.Activate(ctx, "g", a.ID(), true), r.put(ctx, b)))
	o := GroupOptions{FetchTimeout: 30 * time.Millisecond, Poll: time.Minute}
	g := open(t, r, o)
	closed, err := r.Open(ctx, "g", o)
	must(t, err)
	eventually(t, "the dictionary", writes(g, a.ID()))
	m.lock.Lock()
	stuck := make(chan struct{})
	m.stuck = stuck
	m.lock.Unlock()
	for range 100 { // the first one waits; the others need not
		if _, err := g.Reader(ctx, frame.Zstd, b.ID()); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), b.ID().String()) {
			t.Fatalf("%v", err)
		}
	}
	if c, err := g.Reader(ctx, frame.Zstd, a.ID()); err != nil || c.DictionaryID() != a.ID() {
		t.Errorf("the one at hand: %v", err)
	}
	late := open(t, r, o)
	if late.Writer().DictionaryID() != 0 {
		t.Errorf("writes with %v", late.Writer().DictionaryID())
	}
	if _, err := closed.Reader(ctx, frame.Zstd, b.ID()); !errors.Is(err, context.DeadlineExceeded) { // and that flight is not over
		t.Errorf("%v", err)
	}
	must(t, closed.Close())
	if _, err := closed.Reader(ctx, frame.Zstd, b.ID()); !errors.Is(err, errClosed) {
		t.Errorf("closed: %v", err)
	}
	m.lock.Lock()
	m.stuck = nil
	m.lock.Unlock()
	close(stuck)
	eventually(t, "the flight has landed", func() bool {
		c, err := g.Reader(ctx, frame.Zstd, b.ID())
		return err == nil && c.DictionaryID() == b.ID()
	})
	eventually(t, "the late one has caught up", writes(late, a.ID()))
}

// TestGroupRestores: a registry that was emptied, or set back, is filled again by those who hold
// what was in it.
func TestGroupRestores(t *testing.T) {
	ctx := context.Background()
	m := newMemory()
	r := newRegistry(t, m, 0)
	a, b := dictionaryOf(t, 1), dictionaryOf(t, 2)
	must(t, r.Publish(ctx, "g", a, Info{Ratio: 2}))
	must(t, r.Activate(ctx, "g", a.ID(), true))
	backup, err := m.Read(ctx, r.groupKey("g"))
	must(t, err)
	var log lines
	g := open(t, r, GroupOptions{Poll: 5 * time.Millisecond, Log: log.logger()})
	must(t, r.Publish(ctx, "g", b, Info{}))
	must(t, r.Activate(ctx, "g", b.ID(), true))
	eventually(t, "the second dictionary", writes(g, b.ID()))
	counted := func(n int64) {
		t.Helper()
		eventually(t, fmt.Sprint(n, " are counted"), func() bool { return g.Status().Restored >= n })
		if got, logged := g.Status().Restored, log.count("it is put back"); got != n || int64(logged) != n {
			t.Errorf("%d are counted, and %d logged, not %d:\n%s", got, logged, n, log.text.String())
		}
	}
	counted(0)
	before, err := r.State(ctx, "g")
	must(t, err)

	restored := func() bool {
		s, err := r.State(ctx, "g")
		if err != nil || s.Epoch < before.Epoch || !cmp.Equal(before, s, cmpopts.IgnoreFields(State{}, "Epoch", "Incarnation", "Merged")) {
			return false
		}
		_, errA := r.Fetch(ctx, a.ID())
		_, errB := r.Fetch(ctx, b.ID())
		groups, err := r.Groups(ctx)
		return errA == nil && errB == nil && err == nil && cmp.Equal(groups, []string{"g"})
	}
	m.flush()
	eventually(t, "all is back after a flush", restored)
	eventually(t, "and written with", writes(g, b.ID()))
	counted(2)
	m.set(r.groupKey("g"), backup[0])
	eventually(t, "all is back after a fail-over to an older copy", restored)
	counted(2) // the bytes were there
	m.lock.Lock()
	delete(m.values, r.dataKey(b.ID()))
	m.lock.Unlock()
	eventually(t, "a lost dictionary is back", restored)
	counted(3)
}

// TestRestoreMerges: what others did with the registry since it was emptied or set back stays, and
// what cannot be put back stops nothing else.
func TestRestoreMerges(t *testing.T) {
	ctx := context.Background()
	a, b, c := dictionaryOf(t, 1), dictionaryOf(t, 2), dictionaryOf(t, 3)
	activated := func(r *Registry, d *Dictionary) error {
		return errors.Join(r.Publish(ctx, "g", d, Info{}), r.Activate(ctx, "g", d.ID(), true))
	}
	for name, test := range map[string]struct {
		since             func(*Registry, *memory) error
		held              []*Dictionary
		current, previous *Dictionary
		ids               []*Dictionary // the newest first
		err               error
	}{
		"nothing": {
			since: func(*Registry, *memory) error { return nil },
			held:  []*Dictionary{a, b}, current: b, previous: a, ids: []*Dictionary{b, a},
		},
		"published": {
			since: func(r *Registry, _ *memory) error { return r.Publish(ctx, "g", c, Info{Ratio: 3}) },
			held:  []*Dictionary{a, b}, current: b, previous: a, ids: []*Dictionary{c, b, a},
		},
		"put back by hand": {
			since: func(r *Registry, _ *memory) error { return r.Restore(ctx, "g", a, Info{}) },
			held:  []*Dictionary{a, b}, current: b, previous: a, ids: []*Dictionary{b, a},
		},
		"activated": {
			since: func(r *Registry, _ *memory) error { return activated(r, c) },
			held:  []*Dictionary{a, b}, current: c, ids: []*Dictionary{c, b, a},
		},
		"activated one that was": {
			since: func(r *Registry, _ *memory) error { return activated(r, a) },
			held:  []*Dictionary{a, b}, current: a, ids: []*Dictionary{b, a},
		},
		"current is not held": {
			since: func(*Registry, *memory) error { return nil },
			held:  []*Dictionary{a}, ids: []*Dictionary{b, a},
		},
		"current is not held, another activated": {
			since: func(r *Registry, _ *memory) error { return activated(r, a) },
			held:  []*Dictionary{a}, current: a, ids: []*Dictionary{b, a},
		},
		"previous is damaged": {
			since: func(r *Registry, m *memory) error {
				m.set(r.dataKey(a.ID()), []byte("something quite different"))
				return nil
			},
			held: []*Dictionary{a, b}, current: b, previous: a, ids: []*Dictionary{b, a}, err: ErrCorrupt,
		},
		"current is damaged": {
			since: func(r *Registry, m *memory) error {
				m.set(r.dataKey(b.ID()), []byte("something quite different"))
				return nil
			},
			held: []*Dictionary{a, b}, ids: []*Dictionary{b, a}, err: ErrCorrupt,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory()
			r := newRegistry(t, m, time.Minute)
			now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
			r.now = func() time.Time { now = now.Add(10 * time.Millisecond); return now }
			must(t, errors.Join(activated(r, a), activated(r, b)))
			known, err := r.State(ctx, "g")
			must(t, err)
			m.flush()
			must(t, test.since(r, m))
			held := func(id frame.DictionaryID) *Dictionary {
				for _, d := range test.held {
					if d.ID() == id {
						return d
					}
				}
				return nil
			}
			if err := r.giveBack(ctx, known, held); !errors.Is(err, test.err) {
				t.Fatalf("%v, want %v", err, test.err)
			}
			s, err := r.State(ctx, "g")
			must(t, err)
			if s.Current != test.current.ID() || s.Previous != test.previous.ID() || s.Epoch != known.Epoch+1 {
				t.Errorf("current %v, previous %v, want %v and %v; epoch %d, was %d", s.Current, s.Previous, test.current.ID(), test.previous.ID(), s.Epoch, known.Epoch)
			}
			var want, got []frame.DictionaryID
			for _, d := range test.ids {
				want = append(want, d.ID())
			}
			for _, e := range s.Dictionaries {
				got = append(got, e.ID)
				if used := !e.Activated.IsZero(); used && (e.ID == s.Current) != e.Retired.IsZero() {
					t.Errorf("%v: activated %v, retired %v", e.ID, e.Activated, e.Retired)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("dictionaries (-want +got):\n%s", diff)
			}
			before := bytes.Clone(m.value(r.groupKey("g")))
			if err := r.giveBack(ctx, known, held); !errors.Is(err, test.err) || !bytes.Equal(before, m.value(r.groupKey("g"))) {
				t.Errorf("a second program changes it again, %v", err)
			}
		})
	}
}

// TestRefilledWithinAPoll: a registry that was emptied and filled again gets back what programs
// know, whatever epoch it has come to.
func TestRefilledWithinAPoll(t *testing.T) {
	ctx := context.Background()
	a, b, c := dictionaryOf(t, 1), dictionaryOf(t, 2), dictionaryOf(t, 3)
	filled := func(at time.Time, dictionaries ...*Dictionary) (*memory, *Registry) {
		m := newMemory()
		r := newRegistry(t, m, 0)
		r.now = func() time.Time { return at }
		for _, d := range dictionaries {
			must(t, errors.Join(r.Publish(ctx, "g", d, Info{}), r.Activate(ctx, "g", d.ID(), true)))
		}
		return m, r
	}
	// as a program without incarnations wrote it
	old := func(m *memory, r *Registry) {
		var fields map[string]any
		must(t, json.Unmarshal(m.value(r.groupKey("g")), &fields))
		delete(fields, "incarnation")
		raw, err := json.Marshal(fields)
		must(t, err)
		m.set(r.groupKey("g"), raw)
	}
	for name, test := range map[string]struct {
		changes            int64 // of the new state, beyond those of the old one
		oldKnown, oldThere bool
		readOnly           bool
	}{
		"to a lower epoch":                   {changes: -2},
		"to the same epoch":                  {},
		"beyond it":                          {changes: 5},
		"from an old state":                  {changes: 5, oldKnown: true},
		"to an old state":                    {changes: 5, oldThere: true},
		"under a program that may not write": {changes: 5, readOnly: true},
	} {
		t.Run(name, func(t *testing.T) {
			m, r := filled(time.Now(), a, b)
			if test.oldKnown {
				old(m, r)
			}
			var store Store = m
			if test.readOnly {
				store = readOnly{m}
			}
			g := open(t, newRegistry(t, store, 0), GroupOptions{Poll: 5 * time.Millisecond})
			eventually(t, "it knows the state", writes(g, b.ID()))
			before, err := r.State(ctx, "g")
			must(t, err)
			refilled, other := filled(time.Now().Add(time.Minute), c)
			for s := (&State{}); s.Epoch < before.Epoch+test.changes; {
				must(t, other.change(ctx, "g", func(*State) (bool, error) { return true, nil }))
				s, err = other.State(ctx, "g")
				must(t, err)
			}
			if test.oldThere {
				old(refilled, other)
			}
			m.lock.Lock()
			m.values = refilled.values
			m.lock.Unlock()
			eventually(t, "what is current now", writes(g, c.ID()))
			if test.readOnly {
				return
			}
			eventually(t, "what was there is back", func() bool {
				s, err := r.State(ctx, "g")
				must(t, err)
				lost, err := r.missing(ctx, []frame.DictionaryID{a.ID(), b.ID(), c.ID()})
				must(t, err)
				return s.Current == c.ID() && s.Find(a.ID()) != nil && s.Find(b.ID()) != nil && len(lost) == 0
			})
			eventually(t, "it is quiet", func() bool {
				swaps, polls := m.count(m.swaps, r.groupKey("g")), m.count(m.gets, r.groupKey("g"))
				for m.count(m.gets, r.groupKey("g")) < polls+10 {
					time.Sleep(time.Millisecond)
				}
				return m.count(m.swaps, r.groupKey("g")) == swaps && g.Status().Err == nil
			})
		})
	}
}

// TestMergedIsBounded: a state knows the last incarnations that it was merged with.
func TestMergedIsBounded(t *testing.T) {
	s := &State{Group: "g", Epoch: 5, Incarnation: "0"}
	for i := range 10 * maxMerged {
		known := &State{Group: "g", Epoch: int64(1 + i%7), Incarnation: fmt.Sprint(i + 1), Merged: map[string]int64{fmt.Sprint("before ", i): 3}}
		if s.includes(known) {
			t.Fatalf("%d is included before it is merged", i)
		}
		s.merge(known, false, time.Now())
		s.Epoch++
		if !s.includes(known) || len(s.Merged) > maxMerged {
			t.Fatalf("%d: %+v", i, s)
		}
	}
}

// TestSetBackAndChanged: what was lost of an incarnation is not taken for what came in its place.
func TestSetBackAndChanged(t *testing.T) {
	state := func(epoch int64) *State { return &State{Group: "g", Epoch: epoch, Incarnation: "a"} }
	s := state(3) // after a fail-over that lost two changes or more
	s.merge(state(5), false, time.Now())
	s.Epoch++
	if !s.includes(state(5)) || s.includes(state(6)) {
		t.Errorf("%+v", s)
	}
}

// TestMergeKeeps: whatever two states are merged, no dictionary may be removed earlier than by
// either of them.
func TestMergeKeeps(t *testing.T) {
	start := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	now := start.Add(time.Hour)
	rng := rand.New(rand.NewPCG(1, 2))
	at := func() time.Time { return start.Add(time.Duration(rng.IntN(10)) * time.Minute) }
	random := func() *State {
		s := &State{Group: "g", Epoch: rng.Int64N(10)}
		for i := range 4 {
			if d := dictionaryOf(t, i); rng.IntN(3) > 0 {
				s.Dictionaries = append(s.Dictionaries, Entry{ID: d.ID(), Published: start})
			}
		}
		for range rng.IntN(6) {
			if n := len(s.Dictionaries); n > 0 {
				s.use(s.Dictionaries[rng.IntN(n)].ID, at())
				s.Dictionaries[rng.IntN(n)].used(at())
			}
		}
		return s
	}
	for range 2000 {
		a, b := random(), random()
		merged := *a
		merged.Dictionaries = slices.Clone(a.Dictionaries)
		merged.merge(b, rng.IntN(2) == 0, now)
		for _, before := range []*State{a, b} {
			for _, e := range before.Dictionaries {
				m := merged.Find(e.ID)
				if m == nil || m.Uses < e.Uses || m.lastUse().Before(e.lastUse()) && e.ID != merged.Current && e.ID != merged.Previous {
					t.Fatalf("%+v and %+v: of %+v %+v", a, b, e, m)
				}
				written := e.ID == before.Current || e.ID == before.Previous
				if written && e.ID != merged.Current && e.ID != merged.Previous && (!m.lastUse().Equal(now) || m.Uses <= e.Uses) {
					t.Fatalf("%+v and %+v: %+v was written with until now", a, b, m)
				}
			}
		}
	}
}

// TestGroupFollowsAfterALoss: a group that never had its current dictionary follows what is
// activated after a reset all the same.
func TestGroupFollowsAfterALoss(t *testing.T) {
	ctx := context.Background()
	m := newMemory()
	r := newRegistry(t, m, 0)
	a, b := dictionaryOf(t, 1), dictionaryOf(t, 2)
	for _, d := range []*Dictionary{a, b} {
		must(t, errors.Join(r.Publish(ctx, "g", d, Info{}), r.Activate(ctx, "g", d.ID(), true)))
	}
	m.lock.Lock()
	delete(m.values, r.dataKey(b.ID()))
	m.lock.Unlock()
	g := open(t, r, GroupOptions{Poll: 5 * time.Millisecond, FetchTimeout: 20 * time.Millisecond})
	eventually(t, "the loss is known", func() bool { return errors.Is(g.Status().Err, ErrUnknown) })
	m.flush()
	must(t, errors.Join(r.Publish(ctx, "g", a, Info{}), r.Activate(ctx, "g", a.ID(), true)))
	eventually(t, "what is current", writes(g, a.ID()))
}

// TestGroupHeals: a reader that meets a dictionary which the registry lost has it from whoever
// holds it.
func TestGroupHeals(t *testing.T) {
	ctx := context.Background()
	m := newMemory()
	r := newRegistry(t, m, 0)
	a := dictionaryOf(t, 1)
	must(t, r.Publish(ctx, "g", a, Info{}))
	must(t, r.Activate(ctx, "g", a.ID(), true))
	holder := open(t, r, GroupOptions{})
	if holder.Writer().DictionaryID() != a.ID() {
		t.Fatal("the holder does not hold it")
	}
	eventually(t, "the holder listens", func() bool { m.lock.Lock(); defer m.lock.Unlock(); return len(m.listeners) > 0 })
	m.flush()
	reader, err := r.Open(ctx, "other", GroupOptions{Poll: time.Hour, FetchTimeout: 10 * time.Second})
	must(t, err)
	defer reader.Close()
	c, err := reader.Reader(ctx, frame.Zstd, a.ID())
	if err != nil || c.DictionaryID() != a.ID() {
		t.Fatalf("%v", err)
	}
	eventually(t, "it is counted", func() bool { return holder.Status().Restored > 0 })
}

// TestHeardOfByAll: all programs hear of a publication at once. Each loads the dictionary at a
// moment of its own, before it may be activated. What is activated by force is loaded at once.
func TestHeardOfByAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		m := newMemory()
		r := newRegistry(t, m, time.Minute)
		a, b := dictionaryOf(t, 1), dictionaryOf(t, 2)
		const programs = 100
		var groups []*Group
		for range programs {
			groups = append(groups, open(t, newRegistry(t, m, time.Minute), GroupOptions{Poll: 10 * time.Second}))
		}
		time.Sleep(time.Second)
		loads := func(d *Dictionary) int { return m.count(m.gets, r.dataKey(d.ID())) }
		must(t, r.Publish(ctx, "g", a, Info{}))
		for _, g := range groups {
			eventually(t, "it is heard of", func() bool { s := g.Status().State; return s != nil && s.Find(a.ID()) != nil })
		}
		atOnce, last := loads(a), 0
		if atOnce > programs/10 {
			t.Errorf("%d of %d programs load it at once", atOnce, programs)
		}
		for range 20 { // half a second each
			time.Sleep(500 * time.Millisecond)
			n := loads(a)
			if n-last > programs/4 {
				t.Errorf("%d of %d programs load it within half a second", n-last, programs)
			}
			last = n
		}
		time.Sleep(2 * time.Second)
		if n := loads(a); n != programs {
			t.Errorf("%d loads by %d programs", n, programs)
		}
		must(t, errors.Join(r.Publish(ctx, "g", b, Info{}), r.Activate(ctx, "g", b.ID(), true)))
		time.Sleep(2 * heardApart)
		for _, g := range groups {
			if w := g.Writer(); w.DictionaryID() != b.ID() {
				t.Errorf("%v is written with, not what was activated by force", w.DictionaryID())
				break
			}
		}
	})
}

// TestHeardOfInVain: a dictionary that was heard of, and is taken back before the poll, leaves a
// program polling as before. So does a registry that is down by then.
func TestHeardOfInVain(t *testing.T) {
	for name, trouble := range map[string]func(m *memory, r *Registry, id frame.DictionaryID) error{
		"taken back": func(_ *memory, r *Registry, id frame.DictionaryID) error { return remove(r, "g", id, true) },
		"down":       func(m *memory, _ *Registry, _ frame.DictionaryID) error { m.setDown(true); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &hooked{memory: newMemory()}
				r := newRegistry(t, h.memory, time.Minute)
				open(t, newRegistry(t, h, time.Minute), GroupOptions{Poll: 10 * time.Second})
				time.Sleep(time.Second)
				d := dictionaryOf(t, 1)
				must(t, r.Publish(t.Context(), "g", d, Info{}))
				time.Sleep(2 * heardApart)
				must(t, trouble(h.memory, r, d.ID()))
				time.Sleep(20 * time.Second)
				before := h.asked()
				time.Sleep(time.Minute)
				if n := h.asked() - before; n > 120 { // a look is some requests
					t.Errorf("%d requests in a minute", n)
				}
			})
		})
	}
}

// TestPublishersAreBounded: whoever may publish on the channel makes a program look at the registry
// ten times a second at most, and logs nothing. A change is heard of within a tenth of a second.
func TestPublishersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		m := newMemory()
		r := newRegistry(t, m, time.Minute)
		a, b := dictionaryOf(t, 1), dictionaryOf(t, 2)
		must(t, errors.Join(r.Publish(ctx, "g", a, Info{}), r.Activate(ctx, "g", a.ID(), true)))
		var log lines
		g := open(t, r, GroupOptions{Poll: time.Minute, Log: log.logger()})
		time.Sleep(time.Second)
		shout := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Millisecond) {
				for _, message := range []string{"", "nonsense", changedMessage + "g", wantMessage + a.ID().String()} {
					must(t, r.store.Notify(ctx, r.channel(), message))
				}
			}
		}
		looks, logged := m.count(m.gets, r.groupKey("g")), log.count("\n")
		shout(10 * time.Second)
		if n := m.count(m.gets, r.groupKey("g")) - looks; n > 101 {
			t.Errorf("%d looks in 10 s", n)
		}
		if n := log.count("\n") - logged; n > 0 {
			t.Errorf("%d lines are logged: %s", n, log.text.String())
		}
		must(t, errors.Join(r.Publish(ctx, "g", b, Info{}), r.Activate(ctx, "g", b.ID(), true)))
		time.Sleep(heardApart + time.Millisecond)
		if id := g.Writer().DictionaryID(); id != b.ID() {
			t.Errorf("it writes with %v", id)
		}

		// A permanent failure is logged once.
		m.set(r.groupKey("g"), []byte("damaged"))
		shout(time.Second)
		if n := log.count("dictionaries are not up to date"); n != 1 {
			t.Errorf("%d lines of one failure", n)
		}
	})
}

// TestGroupPollsWhatever: a group keeps polling its own state even if other programs constantly ask
// for dictionaries. It restores a dictionary once for many requests.
func TestGroupPollsWhatever(t *testing.T) {
	ctx := context.Background()
	m := newMemory()
	r := newRegistry(t, m, 0)
	a := dictionaryOf(t, 1)
	must(t, r.Publish(ctx, "g", a, Info{}))
	open(t, r, GroupOptions{Poll: 20 * time.Millisecond})
	eventually(t, "the group listens", func() bool { m.lock.Lock(); defer m.lock.Unlock(); return len(m.listeners) > 0 })
	for _, wanted := range []*Dictionary{dictionaryOf(t, 2), a} { // one that it does not hold, and one that it does
		before, put := m.count(m.gets, r.groupKey("g")), m.count(m.swaps, r.dataKey(a.ID()))
		m.lock.Lock()
		delete(m.values, r.dataKey(wanted.ID()))
		m.lock.Unlock()
		messages := 0
		for start := time.Now(); m.count(m.gets, r.groupKey("g")) < before+20; time.Sleep(time.Millisecond) {
			if time.Since(start) > busy {
				t.Fatalf("wanted %v: looked %d times", wanted.ID(), m.count(m.gets, r.groupKey("g"))-before)
			}
			must(t, m.Notify(ctx, "", wantMessage+wanted.ID().String()))
			messages++
		}
		if n := m.count(m.swaps, r.dataKey(a.ID())) - put; (n > 0) != (wanted == a) || n > messages/4 {
			t.Errorf("wanted %v %d times: put back %d times", wanted.ID(), messages, n)
		}
	}
}

// TestGroupWithoutWhatIsLost: what the registry lost and nobody can give back is not written with.
func TestGroupWithoutWhatIsLost(t *testing.T) {
	ctx := context.Background()
	m := newMemory()
	r := newRegistry(t, m, 0)
	a := dictionaryOf(t, 1)
	must(t, r.Publish(ctx, "g", a, Info{}))
	must(t, r.Activate(ctx, "g", a.ID(), true))
	m.lock.Lock()
	delete(m.values, r.dataKey(a.ID()))
	m.lock.Unlock()
	g := open(t, r, GroupOptions{FetchTimeout: 100 * time.Millisecond})
	eventually(t, "the loss is known", func() bool { return errors.Is(g.Status().Err, ErrUnknown) })
	if g.Writer().DictionaryID() != 0 {
		t.Errorf("writes with %v", g.Writer().DictionaryID())
	}
}

// TestCloseInUse: a group may be closed while programs write and read with it. They get right
// values, or os.ErrClosed.
func TestCloseInUse(t *testing.T) {
	ctx := context.Background()
	m := newMemory()
	r := newRegistry(t, m, 0)
	setting := compress.Setting{Algorithm: frame.Zstd}
	plain := bytes.Repeat(dictionaryOf(t, 9).Bytes(), 3)
	var ids []frame.DictionaryID
	var packed [][]byte
	for i := range 8 {
		d := dictionaryOf(t, i)
		must(t, errors.Join(r.Publish(ctx, "g", d, Info{}), r.Activate(ctx, "g", d.ID(), true)))
		c, err := compress.Engine(nil).New(setting, d)
		must(t, err)
		b, err := c.Compress(nil, plain)
		must(t, errors.Join(err, c.Close()))
		ids, packed = append(ids, d.ID()), append(packed, b)
	}
	for range 20 {
		g, err := r.Open(ctx, "g", GroupOptions{Poll: time.Millisecond, Keep: 300})
		must(t, err)
		var programs sync.WaitGroup
		var busy atomic.Int64
		ends := func(err error) bool {
			if err != nil && !errors.Is(err, os.ErrClosed) {
				t.Error(err)
			}
			return err != nil
		}
		for n := range 4 {
			programs.Go(func() {
				for i := n; ; i++ {
					c := g.Writer()
					b, err := c.Compress(nil, plain)
					g.Packed(plain, len(b))
					if ends(err) {
						return
					}
					c, err = g.Reader(ctx, frame.Zstd, ids[i%len(ids)])
					if ends(err) {
						return
					}
					back, err := c.Decompress(nil, packed[i%len(ids)], len(plain))
					if ends(err) {
						return
					}
					if !bytes.Equal(back, plain) {
						t.Error("another value")
						return
					}
					busy.Add(1)
				}
			})
		}
		programs.Go(func() { // which nobody has, and is looked for when the group is closed
			for err := error(nil); !errors.Is(err, os.ErrClosed); {
				if _, err = g.Reader(ctx, frame.Zstd, 1); !errors.Is(err, ErrUnknown) && !errors.Is(err, os.ErrClosed) {
					t.Error(err)
					return
				}
			}
		})
		eventually(t, "they are busy", func() bool { return busy.Load() > 20 })
		programs.Go(func() { ends(g.Close()) })
		ends(g.Close())
		programs.Wait()
		g.Status()
	}
}

func TestOpenRefuses(t *testing.T) {
	r := newRegistry(t, newMemory(), 0)
	for name, o := range map[string]GroupOptions{
		"gzip":     {Setting: compress.Setting{Algorithm: frame.Gzip}},
		"level":    {Setting: compress.Setting{Algorithm: frame.Zstd, Level: "99"}},
		"poll":     {Poll: -1},
		"readonly": {ReadOnly: true, Auto: &Auto{}},
		"auto":     {Auto: &Auto{Decay: 2}},
		"values":   {Auto: &Auto{MinValues: 1}},
		"sample":   {Auto: &Auto{SampleBytes: 1}},
		"interval": {Auto: &Auto{Interval: -1}},
		"lease":    {Auto: &Auto{Lease: time.Second - 1}},
		"train":    {Auto: &Auto{Train: TrainOptions{MaxSize: 1}}},
	} {
		if g, err := r.Open(context.Background(), "g", o); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v, %v", name, g, err)
		}
	}
	if _, err := r.Open(context.Background(), "", GroupOptions{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("no name: %v", err)
	}
}

func BenchmarkGroup(b *testing.B) {
	ctx := context.Background()
	r, err := NewRegistry(newMemory(), RegistryOptions{})
	if err != nil {
		b.Fatal(err)
	}
	d := dictionaryOf(b, 1)
	if err := errors.Join(r.Publish(ctx, "g", d, Info{}), r.Publish(ctx, "g", dictionaryOf(b, 2), Info{}), r.Activate(ctx, "g", dictionaryOf(b, 2).ID(), true)); err != nil {
		b.Fatal(err)
	}
	g, err := r.Open(ctx, "g", GroupOptions{Auto: &Auto{}})
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	value := profiles(1)[0]
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			g.Writer()
			g.Packed(value, 100)
		}
	})
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := g.Reader(ctx, frame.Zstd, d.ID()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
