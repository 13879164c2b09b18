package dict

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/memstore"
)

// clock is a registry's time, under control.
type clock struct{ time.Time }

func (c *clock) pass(d time.Duration) { c.Time = c.Add(d) }

func newClock(rs ...*Registry) *clock {
	c := &clock{time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	for _, r := range rs {
		r.now = func() time.Time { return c.Time }
	}
	return c
}

// retire makes a dictionary of group g neither current nor previous.
func retire(t *testing.T, r *Registry, id frame.DictionaryID) {
	t.Helper()
	for i := range 2 {
		d := dictionaryOf(t, 9000+i)
		must(t, errors.Join(r.Publish(context.Background(), "g", d, Info{}), r.Activate(context.Background(), "g", d.ID(), true)))
	}
	s, err := r.State(context.Background(), "g")
	must(t, err)
	if s.Current == id || s.Previous == id {
		t.Fatalf("%v is not retired", id)
	}
}

// TestRemoveSeesWhatHappenedSince: whatever happens to a dictionary between a remover's look and
// its swap stops the removal, even if as much time has passed as it needs.
func TestRemoveSeesWhatHappenedSince(t *testing.T) {
	ctx := context.Background()
	a := dictionaryOf(t, 1)
	for name, happens := range map[string]func(*Registry) error{
		"activated, and retired again": func(r *Registry) error {
			before, err := r.State(ctx, "g")
			return errors.Join(err, r.Activate(ctx, "g", a.ID(), false), r.Activate(ctx, "g", before.Previous, false), r.Activate(ctx, "g", before.Current, false))
		},
		"used by a tool":  func(r *Registry) error { return use(r, a) },
		"published again": func(r *Registry) error { return r.Publish(ctx, "g", a, Info{}) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t, newMemory(), time.Minute)
			now := newClock(r)
			must(t, errors.Join(r.Publish(ctx, "g", a, Info{}), r.Activate(ctx, "g", a.ID(), true)))
			retire(t, r, a.ID())
			now.pass(6*time.Minute + time.Second)
			s, err := r.State(ctx, "g")
			must(t, err)
			seen, err := r.Removable(ctx, s, a.ID())
			must(t, err)
			must(t, happens(r))
			if _, err := r.Remove(ctx, "g", seen, false); !errors.Is(err, ErrInUse) {
				t.Errorf("at once: %v", err)
			}
			now.pass(7 * time.Minute)
			if _, err := r.Remove(ctx, "g", seen, false); !errors.Is(err, ErrConflict) {
				t.Errorf("seven grace periods later: %v", err)
			}
			if _, from, err := r.fetch(ctx, a.ID()); err != nil || from != "" {
				t.Errorf("it is in %q, %v", from, err)
			}
			must(t, remove(r, "g", a.ID(), false)) // after another look
		})
	}
}

// TestUnlist: a dictionary leaves a group, and its bytes stay. No other removal of it may continue.
// The scan of a removal may have missed values of this group. A second Unlist would leave the
// dictionary in no group.
func TestUnlist(t *testing.T) {
	ctx := context.Background()
	a := dictionaryOf(t, 1)
	m := newMemory()
	r := newRegistry(t, m, time.Minute)
	now := newClock(r)
	must(t, errors.Join(r.Publish(ctx, "g", a, Info{}), r.Publish(ctx, "h", a, Info{})))
	entry := func(group string) Entry {
		s, err := r.State(ctx, group)
		must(t, err)
		e, err := r.Removable(ctx, s, a.ID())
		must(t, err)
		return e
	}
	now.pass(7 * time.Minute)
	g, h := entry("g"), entry("h")
	must(t, use(r, a))
	if err := r.Unlist(ctx, "g", g); !errors.Is(err, ErrInUse) {
		t.Errorf("a tool uses it: %v", err)
	}
	now.pass(7 * time.Minute)
	if err := r.Unlist(ctx, "g", g); !errors.Is(err, ErrConflict) {
		t.Errorf("a tool used it since: %v", err)
	}
	now.pass(7 * time.Minute)
	h = entry("h")
	must(t, r.Unlist(ctx, "g", entry("g")))
	now.pass(7 * time.Minute)
	if _, err := r.Remove(ctx, "h", h, false); !errors.Is(err, ErrConflict) {
		t.Errorf("a removal that was under way: %v", err)
	}
	if err := r.Unlist(ctx, "h", entry("h")); !errors.Is(err, ErrConflict) {
		t.Errorf("the last group: %v", err)
	}
	if s, err := r.State(ctx, "g"); err != nil || s.Find(a.ID()) != nil || m.value(r.dataKey(a.ID())) == nil {
		t.Errorf("%v, %v", s, err)
	}
	must(t, r.Publish(ctx, "g", a, Info{}))
	now.pass(7 * time.Minute)
	if gone, err := r.Remove(ctx, "h", entry("h"), false); err != nil || gone {
		t.Errorf("removed, and another group has it: %v, %v", gone, err)
	}
	if gone, err := r.Remove(ctx, "g", entry("g"), false); err != nil || !gone {
		t.Errorf("removed from the last group: %v, %v", gone, err)
	}
}

// use uses a dictionary of group g.
func use(r *Registry, d *Dictionary) error {
	_, err := r.Use(context.Background(), "g", d.ID())
	return err
}

// TestUseGoesByTheRemoversGrace: a tool that declares a longer grace period does not write for
// longer than removers wait.
func TestUseGoesByTheRemoversGrace(t *testing.T) {
	ctx := context.Background()
	m := newMemory()
	tool, operator := newRegistry(t, m, 10*time.Minute), newRegistry(t, m, 0)
	now := newClock(tool, operator)
	a := dictionaryOf(t, 1)
	_, err := tool.Join(ctx, nil, "x")
	must(t, errors.Join(err, operator.Publish(ctx, "g", a, Info{}), operator.SetGrace(ctx, time.Minute)))
	now.pass(61 * time.Minute)
	grace, err := tool.Use(ctx, "g", a.ID())
	must(t, err)
	now.pass(lapseGraces * grace) // and then a write in flight
	if err := remove(operator, "g", a.ID(), false); !errors.Is(err, ErrInUse) {
		t.Errorf("the tool may write for %v of %v, and it is removed: %v", lapseGraces, grace, err)
	}
	m.lock.Lock()
	delete(m.values, tool.settingsKey())
	m.lock.Unlock()
	if grace, err := tool.Use(ctx, "g", a.ID()); !errors.Is(err, ErrUnlisted) {
		t.Errorf("nobody knows the grace period: %v, %v", grace, err)
	}
}

// TestUse: a tool and a remover exclude each other.
func TestUse(t *testing.T) {
	ctx := context.Background()
	m := newMemory()
	r := newRegistry(t, m, time.Minute)
	now := newClock(r)
	a := dictionaryOf(t, 1)
	must(t, r.Publish(ctx, "g", a, Info{})) // and never activates it
	now.pass(5 * time.Minute)
	must(t, use(r, a))
	now.pass(5 * time.Minute)
	if err := remove(r, "g", a.ID(), false); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "1m0s") {
		t.Errorf("while the tool may write: %v", err)
	}
	m.lock.Lock()
	m.values[r.quarantineKey(a.ID())] = m.values[r.dataKey(a.ID())]
	delete(m.values, r.dataKey(a.ID()))
	m.lock.Unlock()
	must(t, use(r, a))
	if m.value(r.dataKey(a.ID())) == nil {
		t.Error("used, and in quarantine alone")
	}
	now.pass(6*time.Minute + time.Second)
	must(t, remove(r, "g", a.ID(), false))
	if err := use(r, a); !errors.Is(err, ErrNotInGroup) {
		t.Errorf("removed: %v", err)
	}
	must(t, r.Publish(ctx, "g", a, Info{}))
	m.lock.Lock()
	delete(m.values, r.dataKey(a.ID()))
	delete(m.values, r.quarantineKey(a.ID()))
	m.lock.Unlock()
	if err := use(r, a); !errors.Is(err, ErrUnknown) {
		t.Errorf("the bytes are lost: %v", err)
	}
}

// TestPreviousIsInUse: a program that cannot load the current dictionary goes on with the previous
// one, however long ago that was retired. The six grace periods begin when it ceases to be the
// previous one.
func TestPreviousIsInUse(t *testing.T) {
	ctx := context.Background()
	r := newRegistry(t, newMemory(), time.Minute)
	now := newClock(r)
	a, b, c := dictionaryOf(t, 1), dictionaryOf(t, 2), dictionaryOf(t, 3)
	for _, d := range []*Dictionary{a, b, c} {
		must(t, errors.Join(r.Publish(ctx, "g", d, Info{}), r.Activate(ctx, "g", d.ID(), true)))
		now.pass(time.Hour)
	}
	s, err := r.State(ctx, "g")
	must(t, err)
	now.Time = s.Find(c.ID()).Activated.Add(6 * time.Minute)
	if ids := collectable(t, r, s); ids != nil {
		t.Errorf("collectable %v, and it was the previous one six grace periods ago", ids)
	}
	now.pass(time.Second)
	if ids := collectable(t, r, s); len(ids) != 1 || ids[0] != a.ID() {
		t.Errorf("collectable %v", ids)
	}
}

// lines collects what is logged.
type lines struct {
	lock sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.text.Write(b)
}

func (l *lines) count(s string) int {
	l.lock.Lock()
	defer l.lock.Unlock()
	return strings.Count(l.text.String(), s)
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// TestQuarantine: what was removed is fetched by a reader that needs it, and is back then. It stays
// in quarantine for the time that was set, or six grace periods if that is longer.
func TestQuarantine(t *testing.T) {
	ctx := context.Background()
	for quarantine, want := range map[time.Duration]time.Duration{0: 30 * 24 * time.Hour, time.Second: 6 * time.Hour, 7 * time.Hour: 7 * time.Hour} {
		m := newMemory()
		r, err := NewRegistry(m, RegistryOptions{Grace: time.Hour, Quarantine: quarantine})
		must(t, err)
		a := dictionaryOf(t, 1)
		must(t, r.Publish(ctx, "g", a, Info{}))
		must(t, remove(r, "g", a.ID(), true))
		if left := m.lifetime(r.quarantineKey(a.ID())); left > want || left < want-busy || m.value(r.dataKey(a.ID())) != nil {
			t.Errorf("quarantine %v: %v left", quarantine, left)
		}
		var log lines
		g := open(t, r, GroupOptions{Log: log.logger()})
		if c, err := g.Reader(ctx, frame.Zstd, a.ID()); err != nil || c.DictionaryID() != a.ID() {
			t.Errorf("%v", err)
		}
		m.lock.Lock()
		if !bytes.Equal(m.values[r.dataKey(a.ID())], a.Bytes()) {
			t.Error("it is not back")
		}
		m.lock.Unlock()
		if n := g.Status().Restored; n != 1 || log.count("from=quarantine") != 1 {
			t.Errorf("%d were restored; logged: %s", n, log.text.String())
		}
		// A second removal begins a second time in quarantine.
		m.lock.Lock()
		m.expires[r.quarantineKey(a.ID())] = time.Now().Add(time.Minute + busy)
		m.lock.Unlock()
		if gone, err := r.RemoveOrphan(ctx, a.ID()); err != nil || !gone {
			t.Errorf("removed: %v, %v", gone, err)
		}
		if left := m.lifetime(r.quarantineKey(a.ID())); left < want-busy {
			t.Errorf("quarantine %v, again: %v left", quarantine, left)
		}
	}
}

// TestOrphanOfALostGroup: the bytes of a group whose state was lost look like nobody's.
func TestOrphanOfALostGroup(t *testing.T) {
	ctx := context.Background()
	m := newMemory()
	r := newRegistry(t, m, 0)
	a := dictionaryOf(t, 1)
	must(t, errors.Join(r.Publish(ctx, "g", a, Info{}), r.Activate(ctx, "g", a.ID(), true)))
	m.lock.Lock()
	delete(m.values, r.groupKey("g"))
	m.lock.Unlock()
	if _, err := r.RemoveOrphan(ctx, a.ID()); !errors.Is(err, ErrUnlisted) || m.value(r.dataKey(a.ID())) == nil {
		t.Errorf("%v", err)
	}
}

// TestMirrors: mirrors get all that is published. A dictionary that the registry lost comes back
// from the first mirror that has it. Readers use mirrors while the registry does not answer, and
// programs keep mirrors complete.
func TestMirrors(t *testing.T) {
	ctx := context.Background()
	main, first, second := newMemory(), newMemory(), newMemory()
	first.setDown(true)
	r, err := NewRegistry(main, RegistryOptions{Mirrors: []Store{first, second}})
	must(t, err)
	a, b := dictionaryOf(t, 1), dictionaryOf(t, 2)
	if err := r.Publish(ctx, "g", a, Info{}); !errors.Is(err, errDown) || !strings.Contains(err.Error(), "mirror 1") {
		t.Errorf("a mirror is down: %v", err)
	}
	first.setDown(false)
	must(t, r.Activate(ctx, "g", a.ID(), true)) // it was published all the same
	if first.value(r.dataKey(a.ID())) != nil || second.value(r.dataKey(a.ID())) == nil {
		t.Error("the wrong mirrors have it")
	}
	lose := func(d *Dictionary) {
		main.lock.Lock()
		delete(main.values, r.dataKey(d.ID()))
		main.lock.Unlock()
	}
	has := func(m *memory, d *Dictionary) func() bool {
		return func() bool {
			m.lock.Lock()
			defer m.lock.Unlock()
			return bytes.Equal(m.values[r.dataKey(d.ID())], d.Bytes())
		}
	}
	must(t, r.put(ctx, b)) // of no group
	must(t, r.mirror(ctx, b))
	lose(b)
	g := open(t, r, GroupOptions{Poll: 10 * time.Millisecond})
	if _, err := g.Reader(ctx, frame.Zstd, b.ID()); err != nil || !has(main, b)() || g.Status().Restored != 1 {
		t.Errorf("fetched from a mirror: %v, %+v", err, g.Status())
	}
	eventually(t, "the first mirror is complete", has(first, a))
	must(t, g.Close())

	lose(a)
	other := open(t, r, GroupOptions{})
	eventually(t, "the current dictionary is back, and written with", func() bool { return has(main, a)() && writes(other, a.ID())() })
	main.setDown(true)
	if d, err := r.Fetch(ctx, b.ID()); err != nil || d.ID() != b.ID() {
		t.Errorf("the registry is down: %v", err)
	}
	main.setDown(false)
	_, err = r.RemoveOrphan(ctx, b.ID())
	must(t, err)
	for i, m := range []*memory{main, first, second} {
		if m.value(r.dataKey(b.ID())) != nil || m.value(r.quarantineKey(b.ID())) == nil {
			t.Errorf("removed, and store %d has it", i)
		}
	}
}

// TestUnknownIsReplaced: LoadOptions.ReplaceUnreadable replaces a value if the registry and all
// mirrors answer that they lack its dictionary. If one of them does not answer, the value stays,
// and the fleet is asked all the same.
func TestUnknownIsReplaced(t *testing.T) {
	for name, down := range map[string]int{
		"all answer": -1, "the registry is down": 0, "the first mirror is down": 1, "the last mirror is down": 2,
	} {
		synctest.Test(t, func(t *testing.T) {
			stores := []*memory{newMemory(), newMemory(), newMemory()}
			r, err := NewRegistry(stores[0], RegistryOptions{Mirrors: []Store{stores[1], stores[2]}})
			must(t, err)
			g := open(t, r, GroupOptions{FetchTimeout: time.Second})
			synctest.Wait()
			p, err := bale.NewPacker(bale.PackerOptions{Compressors: g})
			must(t, err)
			values := memstore.New()
			load := bale.LoadOptions{ReplaceUnreadable: true}
			c, err := bale.New(values, bale.Options[[]byte]{Codec: codec.Bytes{}, Packer: p, Load: load})
			must(t, err)
			defer c.Close()
			if down >= 0 {
				stores[down].setDown(true)
			}
			id := dictionaryOf(t, 1).ID()
			stored := append(frame.Header{Algorithm: frame.Zstd, DictionaryID: id, Length: 3}.Append(nil), "xyz"...)
			must(t, values.Set(t.Context(), "k", stored, bale.Expiry{}))
			e, err := c.GetOrLoad(t.Context(), "k", func(context.Context) ([]byte, error) { return []byte("loaded"), nil })
			if err != nil || string(e.Value) != "loaded" {
				t.Errorf("%s: %q, %v", name, e.Value, err)
			}
			now, err := values.Get(t.Context(), "k")
			if replaced := !bytes.Equal(now, stored); replaced != (down < 0) || err != nil {
				t.Errorf("%s: replaced %v, %v", name, replaced, err)
			}
			if n := stores[0].count(stores[0].gets, r.dataKey(id)); (n > 1) != (down != 0) {
				t.Errorf("%s: the registry is asked %d times, and so is the fleet", name, n)
			}
		})
	}
}

// TestOldAnswerReplacesNothing: that the registry once lacked a dictionary does not let
// LoadOptions.ReplaceUnreadable replace a value. Nobody waits long for a new answer.
func TestOldAnswerReplacesNothing(t *testing.T) {
	for name, others := range map[string]int{"no answer": 0, "no answers to many": 100} {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			m := newMemory()
			r := newRegistry(t, m, 0)
			g := open(t, r, GroupOptions{})
			synctest.Wait()
			p, err := bale.NewPacker(bale.PackerOptions{Compressors: g})
			must(t, err)
			values := memstore.New()
			c, err := bale.New(values, bale.Options[[]byte]{Codec: codec.Bytes{}, Packer: p, Load: bale.LoadOptions{ReplaceUnreadable: true}})
			must(t, err)
			defer c.Close()
			d := dictionaryOf(t, 1)
			with, err := compress.Setting{Algorithm: frame.Zstd}.New(d)
			must(t, err)
			writer, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: with}})
			must(t, err)
			plain := bytes.Repeat([]byte(`"country":"DE","plan":"pro",`), 8)
			stored, err := writer.Pack(nil, plain)
			must(t, errors.Join(err, values.Set(ctx, "k", stored, bale.Expiry{})))
			if _, err := c.Get(ctx, "k"); !errors.Is(err, ErrUnknown) {
				t.Errorf("%s: at first: %v", name, err)
			}
			must(t, r.put(ctx, d))
			time.Sleep(time.Hour)
			m.lock.Lock()
			m.stuck = make(chan struct{})
			m.lock.Unlock()
			for id := range frame.DictionaryID(others) {
				go g.Reader(ctx, frame.Zstd, id+1)
			}
			synctest.Wait()
			asked := time.Now()
			if _, err := g.Reader(ctx, frame.Zstd, d.ID()); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnknown) || time.Since(asked) > brief {
				t.Errorf("%s: %v after %v", name, err, time.Since(asked))
			}
			e, err := c.GetOrLoad(ctx, "k", func(context.Context) ([]byte, error) { return []byte("loaded"), nil })
			now, _ := values.Get(ctx, "k")
			if err != nil || string(e.Value) != "loaded" || !bytes.Equal(now, stored) {
				t.Errorf("%s: %q, %v; the value is now %q", name, e.Value, err, now)
			}
			m.lock.Lock()
			close(m.stuck)
			m.stuck = nil
			m.lock.Unlock()
			synctest.Wait()
			if v, err := c.Get(ctx, "k"); err != nil || !bytes.Equal(v, plain) {
				t.Errorf("%s: once it answers: %q, %v", name, v, err)
			}
		})
	}
}

// TestBundleIsPutBack: a dictionary that a program reads from its bundle is given to the registry,
// for those who have no bundle.
func TestBundleIsPutBack(t *testing.T) {
	ctx := context.Background()
	m := newMemory()
	r := newRegistry(t, m, 0)
	a, b := dictionaryOf(t, 1), dictionaryOf(t, 2)
	g := open(t, r, GroupOptions{Poll: 10 * time.Millisecond, Bundled: []*Dictionary{a, b}})
	_, err := g.Reader(ctx, frame.Zstd, a.ID())
	must(t, err)
	eventually(t, "the one that was read is in the registry", func() bool { return g.Status().Restored == 1 })
	if m.value(r.dataKey(a.ID())) == nil || m.value(r.dataKey(b.ID())) != nil {
		t.Error("the wrong one is in the registry")
	}
}

// TestRetiredIsPutBack: a retired dictionary that was evicted is back as soon as a program that
// holds it polls.
func TestRetiredIsPutBack(t *testing.T) {
	ctx := context.Background()
	m := newMemory()
	r := newRegistry(t, m, 0)
	a := dictionaryOf(t, 1)
	must(t, errors.Join(r.Publish(ctx, "g", a, Info{}), r.Activate(ctx, "g", a.ID(), true)))
	retire(t, r, a.ID())
	g := open(t, r, GroupOptions{Poll: 10 * time.Millisecond})
	_, err := g.Reader(ctx, frame.Zstd, a.ID())
	must(t, err)
	m.lock.Lock()
	delete(m.values, r.dataKey(a.ID()))
	m.lock.Unlock()
	eventually(t, "it is back", func() bool {
		m.lock.Lock()
		defer m.lock.Unlock()
		return m.values[r.dataKey(a.ID())] != nil
	})
}

// lagging answers reads of a group as a replica that lags behind.
type lagging struct {
	*memory
	lock sync.Mutex
	old  map[string][]byte
}

func (l *lagging) Read(ctx context.Context, keys ...string) ([][]byte, error) {
	values, err := l.memory.Read(ctx, keys...)
	l.lock.Lock()
	defer l.lock.Unlock()
	for i, key := range keys {
		if old, ok := l.old[key]; ok && err == nil {
			values[i] = old
		}
	}
	return values, err
}

// TestLaggingReplica: the answer of a replica that lags behind is not taken for that of an emptied
// registry.
func TestLaggingReplica(t *testing.T) {
	ctx := context.Background()
	m := newMemory()
	r := newRegistry(t, m, 0)
	a, b := dictionaryOf(t, 1), dictionaryOf(t, 2)
	must(t, errors.Join(r.Publish(ctx, "g", a, Info{}), r.Activate(ctx, "g", a.ID(), true)))
	for name, old := range map[string][]byte{"an older state": bytes.Clone(m.value(r.groupKey("g"))), "none yet": nil} {
		t.Run(name, func(t *testing.T) {
			must(t, errors.Join(r.Publish(ctx, "g", b, Info{}), r.Activate(ctx, "g", b.ID(), true)))
			l := &lagging{memory: m}
			g := open(t, newRegistry(t, l, 0), GroupOptions{Poll: 10 * time.Millisecond})
			eventually(t, "the current one", writes(g, b.ID()))
			before := g.Status().State.Epoch
			l.lock.Lock()
			l.old = map[string][]byte{r.groupKey("g"): old}
			l.lock.Unlock()
			eventually(t, "the old answer is known", func() bool {
				err := g.Status().Err
				return err != nil && strings.Contains(err.Error(), "lagging")
			})
			if s, err := r.State(ctx, "g"); err != nil || s.Epoch != before || g.Writer().DictionaryID() != b.ID() {
				t.Errorf("epoch %d, was %d; writes with %v; %v", s.Epoch, before, g.Writer().DictionaryID(), err)
			}
			l.lock.Lock()
			l.old = nil
			l.lock.Unlock()
			eventually(t, "the replica has caught up", func() bool { return g.Status().Err == nil })
			must(t, r.Activate(ctx, "g", a.ID(), true))
		})
	}
}

// unconfirming is a memory that swaps no state of a group for a while, as a client does whose pool
// still has the error of its last dial.
type unconfirming struct {
	*memory
	failing atomic.Bool
}

func (u *unconfirming) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error) {
	if u.failing.Load() {
		return false, errDown
	}
	return u.memory.Swap(ctx, key, old, value, ttl)
}

// TestUnconfirmed: while a program cannot confirm that the registry was emptied, it writes without
// a dictionary. It tries again long before the next poll.
func TestUnconfirmed(t *testing.T) {
	ctx := context.Background()
	u := &unconfirming{memory: newMemory()}
	r := newRegistry(t, u.memory, 0)
	d := dictionaryOf(t, 1)
	must(t, errors.Join(r.Publish(ctx, "g", d, Info{}), r.Activate(ctx, "g", d.ID(), true)))
	g := open(t, newRegistry(t, u, 0), GroupOptions{Poll: time.Hour})
	eventually(t, "the current one", writes(g, d.ID()))
	u.failing.Store(true)
	u.lock.Lock()
	clear(u.values)
	u.lock.Unlock()
	must(t, u.Notify(ctx, r.channel(), changedMessage+"g"))
	eventually(t, "no dictionary", writes(g, 0))
	eventually(t, "the error of the server", func() bool { // a moment after the writer
		err := g.Status().Err
		return errors.Is(err, errDown) && !strings.Contains(err.Error(), "lagging")
	})
	u.failing.Store(false)
	eventually(t, "it is back", func() bool { return u.value(r.dataKey(d.ID())) != nil && g.Writer().DictionaryID() == d.ID() })
}

// halting is a memory whose Touch can be made to wait, whatever its context says, and which can be
// cut off.
type halting struct {
	*memory
	lock sync.Mutex
	gate chan struct{}
	cut  bool
}

func (h *halting) set(gate chan struct{}, cut bool) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.gate, h.cut = gate, cut
}

func (h *halting) Read(ctx context.Context, keys ...string) ([][]byte, error) {
	h.lock.Lock()
	defer h.lock.Unlock()
	if h.cut {
		return nil, errDown
	}
	return h.memory.Read(ctx, keys...)
}

func (h *halting) Refresh(ctx context.Context, keys ...string) ([]bool, error) {
	h.lock.Lock()
	gate := h.gate
	h.lock.Unlock()
	if gate != nil {
		<-gate
	}
	return h.memory.Refresh(ctx, keys...)
}

// TestNewStateOldWriter: a program that reads that its dictionary is neither current nor previous
// any more does not write with it, however long the next one takes.
func TestNewStateOldWriter(t *testing.T) {
	ctx := context.Background()
	h := &halting{memory: newMemory()}
	r := newRegistry(t, h.memory, 0)
	a := dictionaryOf(t, 1)
	must(t, errors.Join(r.Publish(ctx, "g", a, Info{}), r.Activate(ctx, "g", a.ID(), true)))
	g := open(t, newRegistry(t, h, 0), GroupOptions{Poll: 10 * time.Millisecond})
	eventually(t, "the dictionary", writes(g, a.ID()))
	h.set(nil, true)
	retire(t, r, a.ID())
	eventually(t, "the polls before are over", func() bool { return errors.Is(g.Status().Err, errDown) })
	now, err := r.State(ctx, "g")
	must(t, err)
	gate := make(chan struct{})
	h.set(gate, false)
	eventually(t, "it has read the state", func() bool { return g.Status().State.Epoch == now.Epoch })
	eventually(t, "it does not write with it", func() bool { return g.Writer().DictionaryID() != a.ID() })
	h.set(nil, false)
	close(gate)
	eventually(t, "the current one", writes(g, now.Current))
}

// bytesCut is a Store that does not answer for the bytes of dictionaries, as where their part of a
// cluster is down.
type bytesCut struct {
	*memory
	cut atomic.Bool
}

func (b *bytesCut) down(keys ...string) error {
	if b.cut.Load() && slices.ContainsFunc(keys, func(key string) bool { return strings.Contains(key, "data:") }) {
		return errDown
	}
	return nil
}

func (b *bytesCut) Read(ctx context.Context, keys ...string) ([][]byte, error) {
	if err := b.down(keys...); err != nil {
		return nil, err
	}
	return b.memory.Read(ctx, keys...)
}

func (b *bytesCut) Refresh(ctx context.Context, keys ...string) ([]bool, error) {
	if err := b.down(keys...); err != nil {
		return nil, err
	}
	return b.memory.Refresh(ctx, keys...)
}

// TestNobodyKnowsTheBytes: a program that reads the state and learns nothing of its dictionary's
// bytes stops writing with it, as without any answer.
func TestNobodyKnowsTheBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		b := &bytesCut{memory: newMemory()}
		r := newRegistry(t, b.memory, time.Minute)
		a := dictionaryOf(t, 1)
		must(t, errors.Join(r.Publish(ctx, "g", a, Info{}), r.Activate(ctx, "g", a.ID(), true)))
		g := open(t, newRegistry(t, b, 0), GroupOptions{Poll: 10 * time.Second})
		for _, step := range []struct {
			cut  bool
			pass time.Duration
			want frame.DictionaryID
		}{{false, time.Hour, a.ID()}, {true, 4 * time.Minute, a.ID()}, {true, 2 * time.Minute, 0}, {false, time.Minute, a.ID()}} {
			b.cut.Store(step.cut)
			time.Sleep(step.pass)
			if id := g.Writer().DictionaryID(); id != step.want {
				t.Errorf("%+v: it writes with %v", step, id)
			}
		}
	})
}

// TestLapseNeedsNoTimer: a process that was stopped, or a machine that was suspended, begins no
// write with a lapsed dictionary, whichever of its goroutines runs first.
func TestLapseNeedsNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		c := &cutOff{memory: newMemory()}
		r := newRegistry(t, c.memory, time.Minute)
		a := dictionaryOf(t, 1)
		must(t, errors.Join(r.Publish(ctx, "g", a, Info{}), r.Activate(ctx, "g", a.ID(), true)))
		g := open(t, newRegistry(t, c, 0), GroupOptions{Poll: 10 * time.Second})
		stopped := func(want frame.DictionaryID) {
			t.Helper()
			if id, said := g.Writer().DictionaryID(), g.Status().Writing; id != want || said != want {
				t.Errorf("it writes with %v, and says %v", id, said)
			}
		}
		time.Sleep(time.Minute)
		c.cut.Store(true)
		g.lapse.Stop() // as if its goroutine had not run yet
		time.Sleep(4 * time.Minute)
		stopped(a.ID())
		time.Sleep(time.Minute)
		stopped(0)
		c.cut.Store(false)
		time.Sleep(time.Minute)
		stopped(a.ID())
		g.lapsesWall.Add(-int64(time.Hour)) // the machine was suspended: the monotonic clock has not gone on
		stopped(0)
		time.Sleep(time.Minute)
		stopped(a.ID())
	})
}

// TestRemovalIsFinishedAfterItsContext: a remover that is interrupted after it has deleted the
// bytes looks again all the same.
func TestRemovalIsFinishedAfterItsContext(t *testing.T) {
	d := dictionaryOf(t, 1)
	looked := 0
	for published := 1; published < 10; published++ {
		for more := 1; more < 10; more++ {
			ctx, cancel := context.WithCancel(context.Background())
			h := &hooked{memory: newMemory()}
			slow, quick := newRegistry(t, heeding{h}, 0), newRegistry(t, h.memory, 0)
			must(t, errors.Join(quick.Publish(context.Background(), "other", dictionaryOf(t, 2), Info{}), quick.put(context.Background(), d)))
			h.after(published, func() {
				must(t, quick.Publish(context.Background(), "new", d, Info{}))
				h.after(more, cancel)
			})
			_, err := slow.RemoveOrphan(ctx, d.ID())
			cancel()
			s, _ := quick.State(context.Background(), "new")
			if s.Find(d.ID()) == nil {
				continue // it was removed before it could be published
			}
			looked++
			if _, from, fetch := quick.fetch(context.Background(), d.ID()); fetch != nil || from != "" {
				t.Errorf("published after %d calls, interrupted after %d more: %v; it is in %q, %v", published, more, err, from, fetch)
			}
		}
	}
	if looked < 10 {
		t.Errorf("looked %d times", looked)
	}
}

// heeding is a Store that makes no call after its context.
type heeding struct{ Store }

func (h heeding) Read(ctx context.Context, keys ...string) ([][]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return h.Store.Read(ctx, keys...)
}

func (h heeding) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	return h.Store.Swap(ctx, key, old, value, ttl)
}

// TestOneKeyOfAnotherType: the other place of a dictionary is read all the same.
func TestOneKeyOfAnotherType(t *testing.T) {
	ctx := context.Background()
	d := dictionaryOf(t, 1)
	m := &failing{newMemory(), ""}
	r := newRegistry(t, m, time.Minute)
	for place, other := range map[string]string{r.dataKey(d.ID()): r.quarantineKey(d.ID()), r.quarantineKey(d.ID()): r.dataKey(d.ID())} {
		m.flush()
		m.set(place, d.Bytes())
		m.key = other
		if got, err := r.Look(ctx, d.ID()); err != nil || got.ID() != d.ID() {
			t.Errorf("%s: %v", place, err)
		}
		m.key = place
		if _, err := r.Look(ctx, d.ID()); !errors.Is(err, errDown) {
			t.Errorf("%s: %v", place, err)
		}
	}
}

// failing is a memory with a key that cannot be read.
type failing struct {
	*memory
	key string
}

func (f *failing) Read(ctx context.Context, keys ...string) ([][]byte, error) {
	values, err := f.memory.Read(ctx, keys...)
	if i := slices.Index(keys, f.key); i >= 0 {
		values[i], err = nil, errDown
	}
	return values, err
}
