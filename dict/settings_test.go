package dict

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/balekv/bale/internal/adapters"
	"github.com/google/go-cmp/cmp"
)

func servers(t *testing.T, r *Registry) (ids []string) {
	t.Helper()
	all, err := r.Servers(context.Background())
	must(t, err)
	for _, s := range all {
		ids = append(ids, s.ID)
	}
	return ids
}

// TestGraceIsTheRegistrys: the longest that was declared is in force, whatever a tool thinks; a
// shorter one only after the old one's time.
func TestGraceIsTheRegistrys(t *testing.T) {
	ctx := context.Background()
	m := newMemory()
	none, long, short := newRegistry(t, m, 0), newRegistry(t, m, time.Hour), newRegistry(t, m, time.Second)
	now := newClock(none, long, short)
	grace := func(r *Registry) time.Duration {
		g, err := r.Grace(ctx)
		must(t, err)
		return g
	}
	if g := grace(none); g != time.Minute {
		t.Errorf("an empty registry: %v", g)
	}
	a, b := dictionaryOf(t, 1), dictionaryOf(t, 2)
	must(t, none.Publish(ctx, "g", a, Info{}))
	must(t, short.Publish(ctx, "g", b, Info{}))
	if g := grace(short); g != time.Minute {
		t.Errorf("a tool with a shorter one: %v", g)
	}
	must(t, long.Publish(ctx, "g", b, Info{}))
	if g := grace(none); g != time.Hour {
		t.Errorf("declared: %v", g)
	}
	now.pass(time.Minute)
	if err := short.Activate(ctx, "g", a.ID(), false); !errors.Is(err, ErrGrace) {
		t.Errorf("activated by a tool with a shorter one: %v", err)
	}
	now.pass(time.Hour)
	must(t, errors.Join(short.Activate(ctx, "g", a.ID(), false), short.Activate(ctx, "g", b.ID(), false), short.Activate(ctx, "g", 0, false)))
	retired := now.Time
	must(t, none.SetGrace(ctx, time.Minute))
	s, err := none.State(ctx, "g")
	must(t, err)
	if g := grace(short); g != time.Minute {
		t.Errorf("set: %v", g)
	}
	for _, step := range []struct {
		after time.Duration
		want  bool
	}{{7 * time.Minute, false}, {6 * time.Hour, false}, {6*time.Hour + time.Second, true}} {
		now.Time = retired.Add(step.after)
		if got := len(collectable(t, short, s)) > 0; got != step.want {
			t.Errorf("%v after it was retired, and the grace period shortened: collectable %v", step.after, got)
		}
	}
	if err := none.SetGrace(ctx, 0); !errors.Is(err, ErrInvalid) {
		t.Errorf("none: %v", err)
	}
	// Twice in a row: the longest of all counts until its time is over.
	s2 := &settings{Grace: time.Hour}
	start := now.Time
	s2.set(time.Minute, start)
	s2.set(time.Second, start.Add(time.Minute))
	if keep := s2.retention(start.Add(6 * time.Hour)); keep != 6*time.Hour {
		t.Errorf("shortened twice: kept for %v", keep)
	}
	if keep := s2.retention(start.Add(7 * time.Hour)); keep != 6*time.Second {
		t.Errorf("shortened twice, later: kept for %v", keep)
	}
}

// TestGroupGoesByTheRegistrysGrace: a writer that is cut off stops by the registry's grace period,
// whatever its own options say.
func TestGroupGoesByTheRegistrysGrace(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	m := newMemory()
	mine := &cutOff{memory: m}
	r := newRegistry(t, m, 100*time.Millisecond)
	a := dictionaryOf(t, 1)
	must(t, errors.Join(r.Publish(ctx, "g", a, Info{}), r.Activate(ctx, "g", a.ID(), true)))
	g := open(t, newRegistry(t, mine, 0), GroupOptions{Poll: time.Hour})
	eventually(t, "the dictionary", writes(g, a.ID()))
	polls := m.count(m.gets, r.groupKey("g"))
	eventually(t, "polls are as frequent as the grace period needs", func() bool { return m.count(m.gets, r.groupKey("g")) > polls+1 })
	mine.cut.Store(true)
	eventually(t, "it stops", writes(g, 0)) // with a minute of its own it would after five of them, which is more than busy
	mine.cut.Store(false)
	eventually(t, "it goes on", writes(g, a.ID()))
}

// TestServers: a group makes its data server known, and again when either side forgets it.
func TestServers(t *testing.T) {
	ctx := context.Background()
	m, data := newMemory(), newMemory()
	r := newRegistry(t, m, 0)
	g := open(t, r, GroupOptions{Poll: 10 * time.Millisecond, Data: data, DataName: "values"})
	eventually(t, "it has joined", func() bool { return len(servers(t, r)) == 1 })
	all, err := r.Servers(ctx)
	must(t, err)
	id, err := r.ServerID(ctx, data)
	if err != nil || all[0].ID != id || all[0].Name != "values" || all[0].Seen.IsZero() {
		t.Errorf("%+v, %q, %v", all, id, err)
	}
	if own, err := r.ServerID(ctx, nil); err != nil || own != "" {
		t.Errorf("the registry's own Redis has the id %q, %v", own, err)
	}
	own, err := r.Join(ctx, nil, "registry")
	must(t, err)
	if got := servers(t, r); !cmp.Equal(got, []string{id, own}) {
		t.Errorf("%q, want %q and %q", got, id, own)
	}
	if again, err := r.Join(ctx, data, ""); again != id || err != nil {
		t.Errorf("joined again as %q, %v", again, err)
	}
	data.flush()
	eventually(t, "an emptied data server has its id again", func() bool { now, err := r.ServerID(ctx, data); return err == nil && now == id })
	eventually(t, "the group knows its settings", func() bool {
		g.lock.Lock()
		defer g.lock.Unlock()
		return g.settings != nil && len(g.settings.Servers) == 2
	})
	m.lock.Lock()
	delete(m.values, r.settingsKey())
	m.lock.Unlock()
	eventually(t, "the settings are back, also of others", func() bool { return cmp.Equal(servers(t, r), []string{id, own}) })
	must(t, r.Forget(ctx, own))
	must(t, r.Forget(ctx, id))
	eventually(t, "one that is in use joins again, and the other one does not", func() bool { return cmp.Equal(servers(t, r), []string{id}) })
	if err := r.Forget(ctx, "nonsense"); !errors.Is(err, ErrInvalid) {
		t.Errorf("%v", err)
	}
	eventually(t, "it is quiet", func() bool {
		swaps := m.count(m.swaps, r.settingsKey())
		polls := m.count(m.gets, r.groupKey("g"))
		for m.count(m.gets, r.groupKey("g")) < polls+10 {
			time.Sleep(time.Millisecond)
		}
		return m.count(m.swaps, r.settingsKey()) == swaps
	})
}

// readOnly is a memory in which a program may not write.
type readOnly struct{ *memory }

var errNoPermission = errors.New("NOPERM")

func (readOnly) Refresh(context.Context, ...string) ([]bool, error) { return nil, errNoPermission }
func (readOnly) Swap(context.Context, string, []byte, []byte, time.Duration) (bool, error) {
	return false, errNoPermission
}

// TestProgramThatMayNotWrite: it follows and reads as others do, and says once what it cannot do.
func TestProgramThatMayNotWrite(t *testing.T) {
	ctx := context.Background()
	m := newMemory()
	r := newRegistry(t, m, 0)
	a := dictionaryOf(t, 1)
	must(t, errors.Join(r.Publish(ctx, "g", a, Info{}), r.Activate(ctx, "g", a.ID(), true)))
	var log lines
	g := open(t, newRegistry(t, readOnly{m}, 0), GroupOptions{Poll: 10 * time.Millisecond, Log: log.logger()})
	eventually(t, "it follows", writes(g, a.ID()))
	polls := m.count(m.gets, r.groupKey("g"))
	eventually(t, "it has polled some times", func() bool { return m.count(m.gets, r.groupKey("g")) > polls+1 })
	if err := g.Status().Err; err != nil {
		t.Error(err)
	}
	for _, what := range []string{"could not join", "cannot be touched"} {
		if n := log.count(what); n != 1 {
			t.Errorf("%q was logged %d times", what, n)
		}
	}
}

// evicting is a memory with an eviction policy.
type evicting struct {
	*memory
	policy string
}

func (e evicting) EvictionPolicy(context.Context) (string, int64, error) {
	return e.policy, 1 << 20, nil
}

func TestDanger(t *testing.T) {
	ctx := context.Background()
	for policy, want := range map[string]string{"allkeys-lfu": "any key", "volatile-ttl": "quarantine", "noeviction": ""} {
		var log lines
		r := newRegistry(t, evicting{newMemory(), policy}, 0)
		why, err := r.Danger(ctx)
		if err != nil || (why == "") != (want == "") || !strings.Contains(why, want) || !strings.Contains(why, policy) == (want != "") {
			t.Errorf("%s: %q, %v", policy, why, err)
		}
		g := open(t, r, GroupOptions{Log: log.logger()})
		eventually(t, "the group knows", func() bool { return g.Status().Danger == why })
		if want != "" && log.count("maxmemory-policy "+policy) != 1 {
			t.Errorf("%s: logged %q", policy, log.text.String())
		}
	}
	if why, err := newRegistry(t, newMemory(), 0).Danger(ctx); why != "" || err != nil {
		t.Errorf("a store that does not say: %q, %v", why, err)
	}
	info := func(policy, limit string) string {
		return "# Memory\r\nused_memory:1\r\nmaxmemory:" + limit + "\r\nmaxmemory_human:x\r\nmaxmemory_policy:" + policy + "\r\n"
	}
	policy, limit, err := adapters.WorstPolicy(info("noeviction", "5"), info("allkeys-lru", "7"), info("volatile-lru", "9"), info("allkeys-lru", "0"))
	if policy != "allkeys-lru" || limit != 7 || err != nil {
		t.Errorf("%q, %d, %v", policy, limit, err)
	}
	if _, _, err := adapters.WorstPolicy(info("allkeys-lru", "5"), "# Memory\r\n"); err == nil {
		t.Error("an answer without them is accepted")
	}
}

// TestLostSettings: nobody knows how long writers go on, and nothing is removed until programs have
// put the settings back.
func TestLostSettings(t *testing.T) {
	ctx := context.Background()
	m := newMemory()
	r := newRegistry(t, m, time.Minute)
	now := newClock(r)
	a := dictionaryOf(t, 1)
	must(t, errors.Join(r.Publish(ctx, "g", a, Info{}), r.Activate(ctx, "g", a.ID(), true)))
	retire(t, r, a.ID())
	now.pass(time.Hour)
	s, err := r.State(ctx, "g")
	must(t, err)
	seen := *s.Find(a.ID())
	m.lock.Lock()
	delete(m.values, r.settingsKey())
	m.lock.Unlock()
	if _, err := r.Collectable(ctx, s); !errors.Is(err, ErrUnlisted) {
		t.Errorf("collectable: %v", err)
	}
	if _, err := r.Remove(ctx, "g", seen, false); !errors.Is(err, ErrUnlisted) {
		t.Errorf("remove: %v", err)
	}
	_, err = r.Join(ctx, nil, "")
	must(t, err)
	if err := remove(r, "g", a.ID(), true); !errors.Is(err, ErrUnlisted) || !strings.Contains(err.Error(), "made anew") {
		t.Errorf("a program that knew nothing made new settings: %v", err)
	}
	must(t, errors.Join(r.SetGrace(ctx, time.Minute), remove(r, "g", a.ID(), false)))
}

// TestNewSettingsAfterALoss: what a newcomer writes in the place of lost settings lets nothing be
// removed, until a program that knew the lost ones has added what they said.
func TestNewSettingsAfterALoss(t *testing.T) {
	ctx := context.Background()
	for name, newcomer := range map[string]func(*Registry) error{
		"joins":     func(r *Registry) error { _, err := r.Join(ctx, nil, "newcomer"); return err },
		"publishes": func(r *Registry) error { return r.Publish(ctx, "h", dictionaryOf(t, 5), Info{}) },
		"opens a group": func(r *Registry) error {
			g := open(t, r, GroupOptions{Poll: 5 * time.Millisecond})
			synced := func() time.Time { return g.Status().Synced }
			for range 3 { // it does not take the new settings for the lost ones
				last := synced()
				eventually(t, "a poll", func() bool { return synced().After(last) })
			}
			return nil
		},
		"changes them often": func(r *Registry) error {
			_, err := r.Join(ctx, nil, "newcomer")
			for i := range 50 {
				err = errors.Join(err, r.changeSettings(ctx, func(s *settings) bool { return s.set(time.Duration(i+1)*time.Second, r.time()) }))
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, other := newMemory(), newMemory()
			r, old := newRegistry(t, m, 0), newRegistry(t, m, 0)
			now := newClock()
			a := dictionaryOf(t, 1)
			must(t, errors.Join(r.Publish(ctx, "g", a, Info{}), r.SetGrace(ctx, time.Hour), r.Activate(ctx, "g", a.ID(), true)))
			retire(t, r, a.ID())
			must(t, r.SetGrace(ctx, 20*time.Minute))
			if _, err := r.Join(ctx, other, "other"); err != nil {
				t.Fatal(err)
			}
			known, err := r.settings(ctx)
			must(t, err)
			now.Time = time.Now().Add(3 * time.Hour)
			r.now = func() time.Time { return now.Time }
			m.lock.Lock()
			delete(m.values, r.settingsKey())
			m.lock.Unlock()
			must(t, newcomer(newRegistry(t, m, 0)))
			if err := remove(r, "g", a.ID(), false); !errors.Is(err, ErrUnlisted) {
				t.Errorf("before a program has added what it knew: %v", err)
			}
			g := open(t, old, GroupOptions{Poll: 5 * time.Millisecond})
			eventually(t, "it adds what it knew", func() bool {
				if slices.Contains(servers(t, r), known.Servers[0].ID) {
					return true
				}
				g.lock.Lock()
				g.settings = known // as if it had run before the loss; a poll under way may have changed it
				g.lock.Unlock()
				return false
			})
			if s, err := r.settings(ctx); err != nil || s.Grace < 20*time.Minute || !s.Recreated.IsZero() {
				t.Errorf("%+v, %v", s, err)
			}
			if err := remove(r, "g", a.ID(), false); !errors.Is(err, ErrInUse) {
				t.Errorf("three hours after the old period of one hour: %v", err)
			}
			now.pass(9 * time.Hour)
			must(t, remove(r, "g", a.ID(), false))
		})
	}
}

// TestPollsOnceEachGrace: a reader that has not heard of a published dictionary has polled when it
// may be activated.
func TestPollsOnceEachGrace(t *testing.T) {
	g := open(t, newRegistry(t, newMemory(), 0), GroupOptions{})
	for range 100 {
		if poll := g.untilPoll(); poll > time.Minute || poll < time.Minute*3/4 {
			t.Fatalf("the next poll is in %v, and the grace period is a minute", poll)
		}
	}
}

// TestPollsNoOftener: a registry with a forged grace period does not make programs ask without
// rest. A program that wants to may.
func TestPollsNoOftener(t *testing.T) {
	for _, test := range []struct {
		declared, poll, least time.Duration
	}{
		{0, 0, minPoll},
		{0, 5 * time.Millisecond, 3 * time.Millisecond},
		{20 * time.Millisecond, 0, minGrace},
	} {
		m := newMemory()
		m.set(newRegistry(t, m, 0).settingsKey(), []byte(`{"incarnation":"a","epoch":1,"grace_ns":1}`))
		g := open(t, newRegistry(t, m, test.declared), GroupOptions{Poll: test.poll})
		for range 100 {
			if poll := g.untilPoll(); poll < test.least {
				t.Errorf("%+v: the next poll is in %v", test, poll)
				break
			}
		}
	}
}

// TestLongGracePeriods: some multiples of a grace period must be times, too.
func TestLongGracePeriods(t *testing.T) {
	ctx := context.Background()
	m := newMemory()
	r := newRegistry(t, m, 0)
	must(t, r.SetGrace(ctx, maxGrace))
	if err := r.SetGrace(ctx, maxGrace+1); !errors.Is(err, ErrInvalid) {
		t.Errorf("set: %v", err)
	}
	if _, err := NewRegistry(m, RegistryOptions{Grace: maxGrace + 1}); !errors.Is(err, ErrInvalid) {
		t.Errorf("declared: %v", err)
	}
	for _, forged := range []string{`"grace_ns":2500000000000000000`, `"grace_ns":1000000000,"grace_before_ns":2500000000000000000`, `"grace_ns":-1`, `"epoch":9223372036854775807`} {
		m.set(r.settingsKey(), []byte(`{"incarnation":"a","epoch":1,`+forged+`}`))
		if _, err := r.Grace(ctx); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), r.settingsKey()) {
			t.Errorf("%s: %v", forged, err)
		}
	}
}

// TestDamagedSettings: nothing is removed, and programs go on.
func TestDamagedSettings(t *testing.T) {
	ctx := context.Background()
	m := newMemory()
	r := newRegistry(t, m, 0)
	a := dictionaryOf(t, 1)
	must(t, errors.Join(r.Publish(ctx, "g", a, Info{}), r.Activate(ctx, "g", a.ID(), true)))
	retire(t, r, a.ID())
	good := bytes.Clone(m.value(r.settingsKey()))
	m.set(r.settingsKey(), []byte("{"))
	if err := remove(r, "g", a.ID(), true); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), r.settingsKey()) {
		t.Errorf("%v", err)
	}
	g := open(t, r, GroupOptions{Poll: 10 * time.Millisecond})
	s, err := r.State(ctx, "g")
	must(t, err)
	eventually(t, "the current dictionary", writes(g, s.Current))
	if slices.Equal(good, m.value(r.settingsKey())) {
		t.Error("the settings changed by themselves")
	}
}

// TestForgedServerID: an id that bale does not write stops nobody from joining, and leaves the
// settings whole: JSON replaces bytes that are no UTF-8, so that the id would be another one there.
func TestForgedServerID(t *testing.T) {
	ctx := context.Background()
	for name, id := range map[string]string{"long": strings.Repeat("x", 3000), "no text": "\xff"} {
		t.Run(name, func(t *testing.T) {
			data := newMemory()
			r := newRegistry(t, newMemory(), time.Minute)
			data.set(DefaultPrefix+"server", []byte(id))
			for range 3 {
				joined, err := r.Join(ctx, data, "name")
				must(t, err)
				known, err := r.ServerID(ctx, data)
				must(t, err)
				servers, err := r.Servers(ctx)
				if err != nil || len(servers) != 1 || joined != known || servers[0].ID != known {
					t.Fatalf("%q, %q, %v, %v", joined, known, servers, err)
				}
			}
		})
	}
}
