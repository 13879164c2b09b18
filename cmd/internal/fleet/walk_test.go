package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/internal/redisproc"
)

// at are the options of a registry.
func at(url string) registry.Options {
	return registry.Options{Streams: &cli.Streams{Err: io.Discard}, Data: []string{url}, Prefix: dict.DefaultPrefix}
}

// opened is a registry that is closed with the test.
func opened(t *testing.T, url string) *registry.Registry {
	t.Helper()
	reg, err := registry.Open(t.Context(), at(url))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reg.Close() })
	return reg
}

// seen is what a walk counts.
type seen struct {
	Keys int            `json:"keys"`
	By   map[string]int `json:"by,omitempty"`
}

func (s *seen) merge(more *seen) {
	s.Keys += more.Keys
	for by, n := range more.By {
		s.By[by] += n
	}
}

// TestRunRate: workers that begin together look at no more keys a second than the run may.
func TestRunRate(t *testing.T) {
	ctx := t.Context()
	url := redisproc.ForTest(t).URL()
	const rate, workers, page, pages = 2000, 4, 64, 20
	var all sync.WaitGroup
	start := time.Now()
	for range workers {
		all.Go(func() {
			reg, err := registry.Open(ctx, at(url))
			if err != nil {
				t.Error(err)
				return
			}
			defer reg.Close()
			run, err := JoinWalk(ctx, reg, "rate", "verify", struct{}{})
			if err != nil {
				t.Error(err)
				return
			}
			pacer := keyspace.Pacer{Pace: keyspace.Pace{Shared: run.pace(rate)}}
			for range pages {
				if err := pacer.Wait(ctx, nil, page, 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	// Each keeps up to a tenth of a second of the rate to itself.
	least := (workers*page*pages - workers*(rate/10+page)) * time.Second / rate
	if took := time.Since(start); took < least {
		t.Errorf("%d keys in %v, at most %d a second", workers*page*pages, took, rate)
	}
	// What many workers owe together is not forgotten.
	reg := opened(t, url)
	run, err := JoinWalk(ctx, reg, "rate", "verify", struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	for debt := 0; debt < 300; debt += 100 {
		ms, err := paceScript.Run(ctx, reg.Keys, []string{run.key}, 1, 100).Int64()
		if least := int64(debt+99) * 1000; err != nil || ms < least {
			t.Errorf("%d ms to wait, want %d, %v", ms, least, err)
		}
	}
	for p, want := range map[Part]string{
		{Rate: 1}: "--run-rate", {Name: "a", Rate: -1}: "--run-rate", {Name: " "}: "--run:",
	} {
		if err := p.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

// TestUnitGoesOn: a worker goes on from the last whole slot, with what was counted until there. A
// state that is none of the unit's is an error.
func TestUnitGoesOn(t *testing.T) {
	ctx := t.Context()
	before := unitSaved
	unitSaved = 0
	defer func() { unitSaved = before }()
	reg := opened(t, redisproc.ClusterForTest(t, 3).Servers[0].URL())
	run, err := JoinWalk(ctx, reg, "users", "verify", struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	const n = 3 // not the first one: its first slot is not 0
	slots := run.slots(n)
	unit := func(pass func(keyspace.Place, *seen, func([]keyspace.Place) error) error) error {
		t.Helper()
		u, answer, err := run.take(ctx, strconv.Itoa(n), nil)
		if err != nil || u == nil {
			t.Fatalf("%q, %v", answer, err)
		}
		u.Number = n
		defer u.tell(ctx, 0, nil)
		w := Walk[seen]{
			Registry: reg, New: func() *seen { return &seen{By: map[string]int{}} }, Merge: (*seen).merge,
			Pass: func(_ context.Context, p keyspace.Place, s *seen, page func([]keyspace.Place) error) error {
				return pass(p, s, page)
			},
		}
		return w.unit(ctx, u)
	}
	dies := errors.New("the worker dies")
	if err := unit(func(p keyspace.Place, s *seen, page func([]keyspace.Place) error) error {
		for _, step := range []struct{ keys, slots int }{{3, 0}, {4, 1}, {2, 0}} { // 2 of a slot that is not whole
			s.Keys += step.keys
			p.Cursor += uint64(step.slots)
			if err := page([]keyspace.Place{p}); err != nil {
				return err
			}
		}
		return dies
	}); !errors.Is(err, dies) {
		t.Fatal(err)
	}
	goesOn := func(p keyspace.Place, s *seen, page func([]keyspace.Place) error) error {
		if p.Cursor != uint64(slots.From)+1 || s.Keys != 7 {
			t.Errorf("it goes on from slot %d with %d keys", p.Cursor, s.Keys)
		}
		s.By["plain"]++
		return dies
	}
	if err := unit(goesOn); !errors.Is(err, dies) {
		t.Fatal(err)
	}

	field := "unit:" + strconv.Itoa(n)
	good := reg.Keys.HGet(ctx, run.key, field).Val()
	set := func(state string) {
		t.Helper()
		if err := reg.Keys.HSet(ctx, run.key, field, state).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set(strings.Replace(good, `"keys":7`, `"keys":7,"by":null`, 1))
	if err := unit(goesOn); !errors.Is(err, dies) {
		t.Fatal(err)
	}
	for _, state := range []string{
		`[]`, `{`, `{"place":{}}`,
		strings.Replace(good, `"keys":7`, `"keys":7,"by":{"`+strings.Repeat("x", longestText+1)+`":1}`, 1),
		`{"place":{"slots":{"from":-5,"to":99999}}}`,
	} {
		set(state)
		if err := unit(func(keyspace.Place, *seen, func([]keyspace.Place) error) error {
			t.Errorf("%s: it is walked", state)
			return dies
		}); err == nil || errors.Is(err, dies) || !strings.Contains(err.Error(), "another --run NAME") {
			t.Errorf("%s: %v", state, err)
		}
	}
	set(strings.Repeat("x", largestField+1))
	if u, _, err := run.take(ctx, strconv.Itoa(n), nil); u != nil || err == nil {
		t.Errorf("a state of more than a MiB: %v", err)
	}
	none := func(int, json.RawMessage) error { return nil }
	if err := run.States(ctx, none); err == nil || !strings.Contains(err.Error(), "another --run NAME") {
		t.Errorf("a state of more than a MiB: %v", err)
	}
	if err := reg.Keys.HSet(ctx, run.key, "lease:prepare", "done 1", "unit:prepare",
		strings.Repeat("x", largestField+1)).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := run.Once(ctx, "prepare", nil); err == nil || !strings.Contains(err.Error(), "another --run NAME") {
		t.Errorf("what was prepared has more than a MiB: %v", err)
	}
}

// failsOver loses the end of a unit just before the sum, a number of times.
type failsOver struct {
	run  string
	left int
}

func (*failsOver) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*failsOver) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (f *failsOver) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		if commands[0].Name() == "hstrlen" && f.left > 0 {
			f.left--
			lost := redis.NewIntCmd(ctx, "hdel", f.run, "lease:0", "unit:0")
			if err := next(ctx, []redis.Cmder{lost}); err != nil {
				return err
			}
		}
		return next(ctx, commands)
	}
}

// TestLostEnd: a unit whose end was lost after all were done is done again. If that does not help,
// the sum is no answer.
func TestLostEnd(t *testing.T) {
	ctx := t.Context()
	reg := opened(t, redisproc.ForTest(t).URL())
	loses := &failsOver{}
	reg.Keys.AddHook(loses)
	for losses, want := range map[int]string{0: "", 1: "", 2: "", 3: "lost the end of 1 units of 1"} {
		run, err := JoinWalk(ctx, reg, strconv.Itoa(losses), "verify", struct{}{})
		if err != nil {
			t.Fatal(err)
		}
		loses.run, loses.left = run.key, losses
		walks, all := 0, &seen{}
		w := Walk[seen]{
			Registry: reg, New: func() *seen { return &seen{By: map[string]int{}} }, Merge: (*seen).merge,
			Pass: func(_ context.Context, p keyspace.Place, s *seen, page func([]keyspace.Place) error) error {
				walks++
				s.Keys += 7
				p.Done = true
				return page([]keyspace.Place{p})
			},
		}
		err = w.Share(ctx, run, all)
		good := err == nil && all.Keys == 7 && walks == losses+1
		if want != "" {
			good = err != nil && strings.Contains(err.Error(), want)
		}
		if !good {
			t.Errorf("%d losses: %d keys after %d walks, %v", losses, all.Keys, walks, err)
		}
	}
}

// TestStates: the states of a forged run are read a few at a time.
func TestStates(t *testing.T) {
	ctx := t.Context()
	reg := opened(t, redisproc.ForTest(t).URL())
	const units, large = 40, "1048576"
	run, err := Join(ctx, reg.Keys, "p:", "large", Job{Command: "verify", Units: units, Settings: json.RawMessage("{}")})
	if err != nil {
		t.Fatal(err)
	}
	script := "for i = 0, " + strconv.Itoa(units-1) + " do redis.call('HSET', KEYS[1], 'unit:' .. i, string.rep('x', " + large + ")) end"
	if err := reg.Keys.Eval(ctx, script, []string{run.key}).Err(); !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	read, most := 0, uint64(0)
	if err := run.States(ctx, func(unit int, state json.RawMessage) error {
		if unit != read || len(state) != largestField {
			t.Errorf("unit %d: %d bytes", unit, len(state))
		}
		if read++; read%10 == 0 {
			runtime.GC()
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapAlloc)
		}
		return nil
	}); err != nil || read != units {
		t.Errorf("%d states, %v", read, err)
	}
	if grown := int64(most - before.HeapAlloc); grown > 5*statesAtOnce {
		t.Errorf("%d bytes of states at once", grown)
	}
}

// TestShowsOthers: a run of another version does not hide the rest.
func TestShowsOthers(t *testing.T) {
	ctx := t.Context()
	url := redisproc.ForTest(t).URL()
	reg := opened(t, url)
	if _, err := JoinWalk(ctx, reg, "users", "verify", struct{}{}); err != nil {
		t.Fatal(err)
	}
	forged, err := JoinWalk(ctx, reg, "forged", "verify", struct{}{})
	if err == nil {
		err = reg.Keys.HSet(ctx, forged.key, "lease:0", strings.Repeat("9", largestLease+1)).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, job := range map[string]string{"later": `{"layout":2,"units":1}`, "large": `"` + strings.Repeat("x", largestField) + `"`} {
		if err := errors.Join(reg.Keys.HSet(ctx, index(reg.Prefix), name, "verify").Err(),
			reg.Keys.HSet(ctx, key(reg.Prefix, name), "job", job).Err()); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(reg.Keys.HSet(ctx, index(reg.Prefix), "text", "verify").Err(),
		reg.Keys.Set(ctx, key(reg.Prefix, "text"), "x", 0).Err()); err != nil {
		t.Fatal(err)
	}
	shown, err := Show(ctx, at(url), "", "")
	if shown == nil || len(shown.Runs) != 1 || shown.Runs[0].Name != "users" || !errors.Is(err, ErrOther) || slices.ContainsFunc(
		[]string{"later", forged.key, "large", key(reg.Prefix, "text")}, func(name string) bool { return !strings.Contains(err.Error(), name) }) {
		t.Errorf("%+v, %v", shown, err)
	}
	for _, name := range []string{"later", "large"} {
		if _, err := Show(ctx, at(url), name, ""); !errors.Is(err, ErrOther) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestShowsSome: what is shown of all runs is bounded, and forged ones of 1 MiB do not add up.
func TestShowsSome(t *testing.T) {
	ctx := t.Context()
	url := redisproc.ForTest(t).URL()
	reg := opened(t, url)
	large := strings.Repeat("x", largestField-1000)
	for i := range 20 {
		if _, err := JoinWalk(ctx, reg, fmt.Sprintf("run-%02d", i), "verify", large); err != nil {
			t.Fatal(err)
		}
	}
	shown, err := Show(ctx, at(url), "", "")
	if shown == nil || len(shown.Runs) < 10 || len(shown.Runs) > mostShown/len(large) || err == nil || !strings.Contains(err.Error(), "and later ones are not shown") {
		t.Errorf("%d runs, %v", len(shown.Runs), err)
	}
	if shown, err := Show(ctx, at(url), "run-19", ""); err != nil || len(shown.Runs) != 1 {
		t.Errorf("the last one: %v", err)
	}
}

// TestDoneIsSaid: a worker that joins a run that is done says that it looks at nothing.
func TestDoneIsSaid(t *testing.T) {
	ctx := t.Context()
	reg := opened(t, redisproc.ForTest(t).URL())
	var notes strings.Builder
	reg.Err = &notes
	for _, done := range []bool{false, true} {
		run, err := JoinWalk(ctx, reg, "nightly", "verify", struct{}{})
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(notes.String(), "nothing is looked at again") != done {
			t.Errorf("done %v: %s", done, &notes)
		}
		w := Walk[seen]{Registry: reg, New: func() *seen { return &seen{} }, Merge: (*seen).merge,
			Pass: func(_ context.Context, p keyspace.Place, _ *seen, page func([]keyspace.Place) error) error {
				p.Done = true
				return page([]keyspace.Place{p})
			}}
		if err := w.Share(ctx, run, &seen{}); err != nil {
			t.Fatal(err)
		}
	}
}
