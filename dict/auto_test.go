package dict

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/sampling"
)

// traffic packs some thousand values a second through a group until the test ends.
func traffic(t *testing.T, g *Group, value func(i int) []byte) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		var dst []byte
		var err error
		for i := 0; ctx.Err() == nil; i++ {
			v := value(i)
			if dst, err = g.Writer().Compress(dst[:0], v); err != nil {
				t.Error(err)
				return
			}
			g.Packed(v, len(dst)+12)
			time.Sleep(50 * time.Microsecond) // it is the training that needs the processors
		}
	})
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	return stop
}

func auto() *Auto {
	return &Auto{
		Interval: 20 * time.Millisecond, MinValues: 200, MinAge: time.Nanosecond,
		Train: quick(TrainOptions{MaxSize: 4 << 10}),
	}
}

// TestAuto: a group without a dictionary gets one by itself, and another when its values change. It
// runs alone, for all groups are counted.
func TestAuto(t *testing.T) {
	ctx := context.Background()
	m := newMemory()
	r := newRegistry(t, m, 50*time.Millisecond)
	g := open(t, r, GroupOptions{Auto: auto()})
	if n := sampling.Groups.Load(); n != 1 {
		t.Errorf("%d groups need values that are read", n)
	}
	all := profiles(500)
	stop := traffic(t, g, func(i int) []byte { return all[i%500] })
	eventually(t, "a first dictionary", func() bool { return g.Writer().DictionaryID() != 0 })
	eventually(t, "no values that are read are needed", func() bool { return sampling.Groups.Load() == 0 })
	first := g.Writer().DictionaryID()
	s, err := r.State(ctx, "g")
	must(t, err)
	e := s.Find(first)
	if !e.Info.Auto || e.Info.Ratio < 2 || e.Activated.Sub(e.Published) < 50*time.Millisecond {
		t.Errorf("%+v", e)
	}
	eventually(t, "the lease is given back", func() bool { v, err := m.Read(ctx, r.leaseKey("g")); return err == nil && v[0] == nil })
	time.Sleep(200 * time.Millisecond) // the values are as before: nothing is to be done
	if s, err = r.State(ctx, "g"); err != nil || len(s.Dictionaries) != 1 {
		t.Fatalf("%d dictionaries, %v", len(s.Dictionaries), err)
	}
	stop()
	others := many(500, session)
	traffic(t, g, func(i int) []byte { return others[i%500] })
	eventually(t, "a second dictionary", func() bool { id := g.Writer().DictionaryID(); return id != 0 && id != first })
	if s, err = r.State(ctx, "g"); err != nil || s.Previous != first {
		t.Errorf("the previous one is %v, %v", s.Previous, err)
	}
}

// TestAutoTells: the log says how far the first values are, a tenth of them at a time, before
// there are enough to take a sample.
func TestAutoTells(t *testing.T) {
	var log lines
	g := open(t, newRegistry(t, newMemory(), 0), GroupOptions{Auto: auto(), Log: log.logger()})
	seen := func(n int) {
		for range n {
			g.Packed([]byte("a value"), 7)
		}
	}
	seen(63)
	eventually(t, "63 of 200", func() bool { return log.count("collected=63 wanted=200") == 1 })
	seen(1)
	time.Sleep(100 * time.Millisecond) // some looks
	if n := log.count("collected="); n != 1 {
		t.Errorf("%d lines for one tenth", n)
	}
	seen(20)
	eventually(t, "84 of 200", func() bool { return log.count("collected=84 wanted=200") == 1 })
}

// TestAutoShows: the registry has the progress of the program that is furthest, as long as that
// runs and until there is a dictionary.
func TestAutoShows(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	m := newMemory()
	r := newRegistry(t, m, 50*time.Millisecond)
	shows := func(want Status) {
		t.Helper()
		eventually(t, fmt.Sprintf("%+v", want), func() bool { p, err := r.Progress(ctx, "g"); return err == nil && p != nil && *p == want })
	}
	packed := func(g *Group, n int) {
		for range n {
			g.Packed([]byte("a value"), 7)
		}
	}
	if p, err := r.Progress(ctx, "g"); p != nil || err != nil {
		t.Errorf("%+v, %v before there is any", p, err)
	}
	m.set(r.autoKey("g"), []byte("by somebody else"))
	one, another := open(t, r, GroupOptions{Auto: auto()}), open(t, r, GroupOptions{Auto: auto()})
	packed(one, 63)
	shows(Status{Group: "g", Collected: 63, Wanted: 200})
	if left := m.lifetime(r.autoKey("g")); left <= 0 || left > time.Minute {
		t.Errorf("it stays for %v", left)
	}
	packed(another, 120)
	shows(Status{Group: "g", Collected: 120, Wanted: 200})
	must(t, another.Close())
	shows(Status{Group: "g", Collected: 63, Wanted: 200})
	packed(one, 200)
	eventually(t, "a sample is taken", func() bool {
		packed(one, 1) // without values it gives up, maybe before this has seen it
		p, err := r.Progress(ctx, "g")
		return err == nil && p != nil && p.Training
	})
	all := profiles(500)
	traffic(t, one, func(i int) []byte { return all[i%500] })
	eventually(t, "a dictionary", func() bool { return one.Writer().DictionaryID() != 0 })
	eventually(t, "no progress any more", func() bool { return m.value(r.autoKey("g")) == nil })
}

// TestProgressOfOthers: what Auto did not write is ErrCorrupt.
func TestProgressOfOthers(t *testing.T) {
	m := newMemory()
	r := newRegistry(t, m, 0)
	for _, raw := range []string{
		"{", "[]", "null", "{}", `{"collected":-1,"wanted":5}`, `{"collected":6,"wanted":5}`, `{"wanted":1e30}`,
		`{"wanted":1073741825}`, `{"collected":0,"wanted":0}`, "[" + string(bytes.Repeat([]byte("{},"), 1<<20)),
	} {
		m.set(r.autoKey("g"), []byte(raw))
		if p, err := r.Progress(context.Background(), "g"); p != nil || !errors.Is(err, ErrCorrupt) || len(err.Error()) > 1000 {
			t.Errorf("%.40s: %+v, %v", raw, p, err)
		}
	}
	if _, err := r.Progress(context.Background(), "a group"); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

// session is a value that profiles have nothing in common with.
func session(i int) []byte {
	r := rand.New(rand.NewPCG(uint64(i), 5))
	return fmt.Appendf(nil, `<session token="%016x%016x%016x%016x" user="%d" agent="Mozilla/5.0 (X11; Linux x86_64; rv:139.0) Gecko/20100101 Firefox/139.0" scopes="read write purchase" cart="%x"/>`,
		r.Uint64(), r.Uint64(), r.Uint64(), r.Uint64(), r.Uint32(), r.Uint64())
}

// TestAutoGivesUp: values without anything in common are not trained on again and again.
func TestAutoGivesUp(t *testing.T) {
	m := newMemory()
	r := newRegistry(t, m, 0)
	g := open(t, r, GroupOptions{Auto: auto()})
	values := randomValues(300, 300)
	traffic(t, g, func(i int) []byte { return values[i%300] })
	eventually(t, "the lease is kept", func() bool {
		m.lock.Lock()
		defer m.lock.Unlock()
		return time.Until(m.expires[r.leaseKey("g")]) > defaultRetry/2
	})
	if s, err := r.State(context.Background(), "g"); err != nil || len(s.Dictionaries) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestAutoReason: when a new dictionary is needed.
func TestAutoReason(t *testing.T) {
	const id = 7
	type written struct{ values, plain, stored int64 }
	for name, test := range map[string]struct {
		current, previous frame.DictionaryID
		trained           float64 // ratio
		writer            frame.DictionaryID
		written           []written
		want              bool // after the last of them
	}{
		"no dictionary, little written":    {written: []written{{199, 1e6, 1e6}}},
		"no dictionary, enough written":    {written: []written{{200, 1e6, 1e6}}, want: true},
		"switched off by a person":         {previous: 5, written: []written{{1000, 1e6, 1e6}}},
		"as at training":                   {current: id, trained: 4, writer: id, written: []written{{1000, 400, 100}}},
		"too little to say":                {current: id, trained: 4, writer: id, written: []written{{199, 100, 100}}},
		"bad from the start":               {current: id, trained: 4, writer: id, written: []written{{1000, 200, 100}}, want: true},
		"another engine, from the start":   {current: id, trained: 4, writer: id, written: []written{{1000, 330, 100}, {50_000, 3300, 1000}}},
		"another engine, and then decayed": {current: id, trained: 4, writer: id, written: []written{{1000, 330, 100}, {50_000, 25_000, 10_000}}, want: true},
		"decayed":                          {current: id, trained: 4, writer: id, written: []written{{1000, 400, 100}, {100_000, 30_000, 10_000}}, want: true},
		"a bad moment among many values":   {current: id, trained: 4, writer: id, written: []written{{10_000, 40_000, 10_000}, {200, 100, 100}}},
		"not written with yet":             {current: id, trained: 4, writer: 0, written: []written{{1000, 100, 100}}},
		"nothing known of the training":    {current: id, writer: id, written: []written{{1000, 100, 100}}},
	} {
		t.Run(name, func(t *testing.T) {
			g := open(t, newRegistry(t, newMemory(), time.Minute), GroupOptions{Auto: &Auto{Interval: time.Hour, MinValues: 200}})
			w := &writer{compressor: g.plain, key: readerKey{frame.Zstd, test.writer}}
			g.writer.Store(w)
			s := &State{Group: "g", Current: test.current, Previous: test.previous, Dictionaries: []Entry{{ID: id, Activated: time.Now(), Info: Info{Ratio: test.trained}}}}
			if test.current == 0 && test.previous == 0 {
				s.Dictionaries[0].Retired = s.Dictionaries[0].Activated // it came back
			}
			why := ""
			for _, more := range test.written {
				w.values.Add(more.values)
				w.plainBytes.Add(more.plain)
				w.storedBytes.Add(more.stored)
				why = g.auto.reason(s)
			}
			if (why != "") != test.want {
				t.Errorf("%q", why)
			}
		})
	}
}

// TestAutoHoldsBack: a decayed ratio leads to no dictionary while the newest one is young, or the
// group's take what they may.
func TestAutoHoldsBack(t *testing.T) {
	ctx := context.Background()
	d := dictionaryOf(t, 1)
	size := int64(len(d.Bytes()))
	for name, test := range map[string]struct {
		auto   Auto
		age    time.Duration
		old    bool // another one comes back
		trains bool
		log    string
	}{
		"a day by default":     {age: 25 * time.Hour, trains: true},
		"an old one is back":   {age: 25 * time.Hour, old: true, trains: true},
		"young":                {age: 23 * time.Hour},
		"of a wrong clock":     {age: -48 * time.Hour, trains: true},
		"as old as it must be": {auto: Auto{MinAge: time.Minute}, age: 2 * time.Minute, trains: true},
		"as many bytes as may": {auto: Auto{MaxBytes: size}, age: 25 * time.Hour, log: "bale dict gc"},
		"fewer bytes than may": {auto: Auto{MaxBytes: size + 1}, age: 25 * time.Hour, trains: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log lines
				r := newRegistry(t, newMemory(), time.Minute)
				wrong := max(0, -test.age)
				r.now = func() time.Time { return time.Now().Add(wrong) }
				must(t, r.Publish(ctx, "g", d, Info{Ratio: 4}))
				must(t, r.Activate(ctx, "g", d.ID(), true))
				r.now = time.Now
				a := test.auto
				a.Interval, a.MinValues = 1000*time.Hour, 200
				g := open(t, r, GroupOptions{Auto: &a, Log: log.logger(), Poll: time.Minute})
				time.Sleep(test.age)
				if test.old {
					must(t, r.Restore(ctx, "g", dictionaryOf(t, 2), Info{Auto: true}))
				}
				w := &writer{compressor: g.plain, key: readerKey{frame.Zstd, d.ID()}}
				w.values.Add(1000)
				w.plainBytes.Add(100)
				w.storedBytes.Add(100)
				g.writer.Store(w)
				sampling, cancel := context.WithTimeout(ctx, time.Second) // as long as a sample is taken
				defer cancel()
				err := g.auto.look(sampling)
				if (err != nil) != test.trains || err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				if test.log != "" && log.count(test.log) != 1 {
					t.Errorf("%q", log.text.String())
				}
			})
		})
	}
}

// TestAutoIdle: a program that falls idle gives the lease back, and takes it again only after
// further values.
func TestAutoIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		r := newRegistry(t, m, 0)
		o := auto()
		o.Interval = time.Minute
		g := open(t, r, GroupOptions{Auto: o})
		leases := func() int {
			m.lock.Lock()
			defer m.lock.Unlock()
			n := m.swaps[r.leaseKey("g")]
			m.swaps[r.leaseKey("g")] = 0
			return n
		}
		for _, v := range profiles(o.MinValues) { // enough to begin with
			g.Packed(v, len(v))
		}
		for range 2 {
			time.Sleep(2 * time.Minute) // after a look
			if !g.Status().Training {
				t.Error("no sample is taken")
			}
			time.Sleep(3 * time.Minute)
			if g.Status().Training || leases() == 0 || m.value(r.leaseKey("g")) != nil {
				t.Error("the lease is kept")
			}
			time.Sleep(time.Hour)
			if n := leases(); n > 0 {
				t.Errorf("an idle program asks %d times for the lease", n)
			}
			g.Packed([]byte("a value"), 7)
		}
	})
}

// TestAutoPatience: how long a sample may take depends on the values that come.
func TestAutoPatience(t *testing.T) {
	all := profiles(100)
	for name, test := range map[string]struct {
		every time.Duration // there is a value
		of    int           // different ones
		takes time.Duration // at most
		err   error
	}{
		"none":                        {time.Hour, 100, 3 * time.Minute, errIdle},
		"one is read again and again": {time.Second, 1, 3 * time.Minute, errIdle},
		"slow":                        {50 * time.Second, 100, 20 * time.Minute, nil},
		"too slow":                    {100 * time.Second, 100, 21 * time.Minute, errIdle},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := open(t, newRegistry(t, newMemory(), 0), GroupOptions{Auto: &Auto{Interval: time.Minute, MinValues: 20}})
			ctx, cancel := context.WithCancel(t.Context())
			var values sync.WaitGroup
			values.Go(func() {
				for i := 0; g.auto.sleep(ctx, test.every); i++ {
					g.auto.offer(all[i%test.of], false)
				}
			})
			start := time.Now()
			sample, err := g.auto.collect(ctx)
			cancel()
			values.Wait()
			took := time.Since(start)
			if !errors.Is(err, test.err) || took > test.takes || err == nil && len(sample) != 20 {
				t.Errorf("%s: %d values, %v, after %v", name, len(sample), err, took)
			}
			if name == "too slow" && took < 20*time.Minute {
				t.Errorf("%s: %v", name, took)
			}
		})
	}
}

// TestAutoBursts: values that come all at once, while no sample is waited for, are in the next one.
func TestAutoBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := open(t, newRegistry(t, newMemory(), 0), GroupOptions{Auto: &Auto{Interval: time.Minute, MinValues: 20}})
		all := profiles(30)
		for _, values := range [][][]byte{nil, all[:15], all[15:]} {
			sample, err := g.auto.collect(t.Context())
			if !errors.Is(err, errIdle) || sample != nil {
				t.Errorf("%d values, %v", len(sample), err)
			}
			for _, v := range values {
				g.auto.offer(v, true)
			}
		}
		start := time.Now()
		sample, err := g.auto.collect(t.Context())
		if len(sample) != 30 || err != nil || time.Since(start) > time.Minute || g.auto.sampling.Load() {
			t.Errorf("%d values after %v, %v", len(sample), time.Since(start), err)
		}
	})
}

// TestAutoReads: a cache that programs only read, of plain values, gets a dictionary. One value
// that is read again and again does not.
func TestAutoReads(t *testing.T) {
	r := newRegistry(t, newMemory(), 50*time.Millisecond)
	for name, distinct := range map[string]int{"many": 500, "few": 30} {
		o := auto()
		g, err := r.Open(t.Context(), name, GroupOptions{Auto: o, Poll: 10 * time.Millisecond})
		must(t, err)
		t.Cleanup(func() { g.Close() })
		p, err := bale.NewPacker(bale.PackerOptions{Compressors: g})
		must(t, err)
		all := profiles(distinct)
		read := func(n int) {
			for i := range n {
				v := all[i%distinct]
				if got, err := p.Unpack(t.Context(), nil, v); err != nil || !bytes.Equal(got, v) {
					t.Fatalf("%v, %d bytes", err, len(got))
				}
			}
		}
		read(63)
		if s := g.Status(); s.Collected != 63 || s.Wanted != o.MinValues {
			t.Errorf("%s: %d of %d values collected, 63 were read", name, s.Collected, s.Wanted)
		}
		read(o.MinValues)
		if distinct < o.MinValues {
			sampled := func() bool { // it is given up now and then, and goes on later
				read(100)
				s := g.Status()
				if s.Training && s.Collected > distinct {
					t.Fatalf("%d values collected, of %d different ones", s.Collected, distinct)
				}
				return s.Training && s.Collected == distinct
			}
			for range 20 {
				eventually(t, "a sample of all different values", sampled)
			}
			continue
		}
		eventually(t, "a dictionary", func() bool { read(distinct); return g.Writer().DictionaryID() != 0 })
	}
}

// TestAutoLeavesDecisions: what Auto published before a person rolled back, or activated another
// dictionary or none, stays where it is.
func TestAutoLeavesDecisions(t *testing.T) {
	ctx := context.Background()
	a, b, c := dictionaryOf(t, 1), dictionaryOf(t, 2), dictionaryOf(t, 3)
	for name, test := range map[string]struct {
		decide func(*Registry) error
		want   frame.DictionaryID
	}{
		"nobody decided": {func(r *Registry) error { return nil }, b.ID()},
		"rolled back": {func(r *Registry) error {
			return errors.Join(r.Publish(ctx, "g", c, Info{}), r.Activate(ctx, "g", c.ID(), true), r.Rollback(ctx, "g"))
		}, a.ID()},
		"switched off": {func(r *Registry) error { return r.Activate(ctx, "g", 0, false) }, 0},
		"forced before": {func(r *Registry) error {
			return errors.Join(r.Activate(ctx, "g", b.ID(), true), r.Activate(ctx, "g", a.ID(), true))
		}, a.ID()},
	} {
		for _, old := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, old state %v", name, old), func(t *testing.T) {
				m := newMemory()
				r := newRegistry(t, m, time.Minute)
				now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
				r.now = func() time.Time { now = now.Add(10 * time.Millisecond); return now }
				must(t, r.Publish(ctx, "g", a, Info{}))
				must(t, r.Activate(ctx, "g", a.ID(), true))
				must(t, r.Publish(ctx, "g", b, Info{Auto: true}))
				must(t, test.decide(r))
				if old {
					raw := string(m.value(r.groupKey("g")))
					without := regexp.MustCompile(`"changed":"[^"]*",`).ReplaceAllString(raw, "")
					if without == raw {
						t.Fatalf("no time in %s", raw)
					}
					m.set(r.groupKey("g"), []byte(without))
				}
				g := open(t, newRegistry(t, m, time.Nanosecond), GroupOptions{Auto: &Auto{Interval: time.Hour}})
				must(t, g.auto.look(ctx))
				if s, err := r.State(ctx, "g"); err != nil || s.Current != test.want {
					t.Errorf("current is %v, want %v (a %v, b %v, c %v), %v", s.Current, test.want, a.ID(), b.ID(), c.ID(), err)
				}
			})
		}
	}
}

// TestAutoLeavesLateDecisions: also one that comes while Auto trains, or between its look and its
// change.
func TestAutoLeavesLateDecisions(t *testing.T) {
	ctx := context.Background()
	a, b := dictionaryOf(t, 1), dictionaryOf(t, 2)
	t.Run("in training", func(t *testing.T) {
		r := newRegistry(t, newMemory(), time.Nanosecond)
		must(t, r.Publish(ctx, "g", a, Info{}))
		must(t, r.Activate(ctx, "g", a.ID(), true))
		g := open(t, r, GroupOptions{Auto: auto()})
		before, err := r.State(ctx, "g")
		must(t, err)
		must(t, r.Activate(ctx, "g", 0, false))
		all := profiles(500)
		traffic(t, g, func(i int) []byte { return all[i%500] })
		err = g.auto.renew(ctx, before)
		for errors.Is(err, errIdle) { // the traffic has no processor yet
			err = g.auto.renew(ctx, before)
		}
		if !errors.Is(err, errDecided) {
			t.Errorf("renewed: %v", err)
		}
		if s, err := r.State(ctx, "g"); err != nil || len(s.Dictionaries) != 1 {
			t.Errorf("published all the same: %+v, %v", s, err)
		}
	})
	for calls := 1; calls <= 8; calls++ { // a look that activates makes six
		t.Run(fmt.Sprint("after ", calls, " calls"), func(t *testing.T) {
			h := &hooked{memory: newMemory()}
			r := newRegistry(t, h.memory, time.Nanosecond)
			now := time.Now().Add(-time.Minute)
			r.now = func() time.Time { now = now.Add(10 * time.Millisecond); return now }
			must(t, r.Publish(ctx, "g", a, Info{}))
			must(t, r.Activate(ctx, "g", a.ID(), true))
			must(t, r.Publish(ctx, "g", b, Info{Auto: true}))
			g := open(t, newRegistry(t, h, time.Nanosecond), GroupOptions{Auto: &Auto{Interval: time.Hour}})
			decided := make(chan struct{})
			h.after(calls, func() { must(t, r.Activate(ctx, "g", 0, false)); close(decided) })
			must(t, g.auto.look(ctx))
			for done := false; !done; {
				select {
				case <-decided:
					done = true
				default:
					_, err := g.registry.State(ctx, "g") // a call
					must(t, err)
				}
			}
			if s, err := r.State(ctx, "g"); err != nil || s.Current != 0 {
				t.Errorf("current is %v, %v", s.Current, err)
			}
		})
	}
}

// TestAutoExcludes: what the current dictionary leaves out stays out of the next one, also after
// a rollback to none.
func TestAutoExcludes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, rolledBack := range []bool{false, true} {
		r := newRegistry(t, newMemory(), time.Nanosecond)
		d := dictionaryOf(t, 1)
		must(t, r.Publish(ctx, "g", d, Info{Exclude: excluded([]string{"email"}), Ratio: 100}))
		must(t, r.Activate(ctx, "g", d.ID(), true))
		if rolledBack {
			must(t, r.Activate(ctx, "g", 0, false))
		}
		a := auto()
		a.Train.Exclude = []string{"name", "nmae"}
		var log lines
		l, err := acquire(ctx, r, "g", time.Minute) // so that it trains only here
		must(t, err)
		g := open(t, r, GroupOptions{Auto: a, Log: log.logger()})
		all := profiles(500)
		traffic(t, g, func(i int) []byte { return all[i%500] })
		s, err := r.State(ctx, "g")
		must(t, err)
		if leaks := g.auto.leaks(s); (leaks == nil) != rolledBack || leaks != nil && leaks[0] != "name" {
			t.Errorf("leaks %q", leaks)
		}
		for err = errIdle; errors.Is(err, errIdle); { // the traffic has no processor yet
			err = g.auto.renew(ctx, s)
		}
		must(t, err)
		s, err = r.State(ctx, "g")
		must(t, err)
		if e := s.Dictionaries[0]; e.ID == d.ID() || e.Info.Exclude != "email name nmae" || log.count("field=nmae") != 1 {
			t.Errorf("%+v\n%s", e, log.text.String())
		}
		must(t, l.release(ctx, 0))
	}
}

// TestLease: one at a time; it passes on when it is given back or runs out, and the work of who
// lost it ends.
func TestLease(t *testing.T) {
	ctx := context.Background()
	m := newMemory()
	r := newRegistry(t, m, 0)
	first, err := acquire(ctx, r, "g", time.Minute)
	if err != nil || first == nil {
		t.Fatal(err)
	}
	if second, err := acquire(ctx, r, "g", time.Minute); second != nil || err != nil {
		t.Fatalf("a second one: %v", err)
	}
	must(t, first.release(ctx, 0))
	second, err := acquire(ctx, r, "g", time.Minute)
	if err != nil || second == nil {
		t.Fatal(err)
	}
	must(t, first.release(ctx, 0)) // not his any more
	if v, err := m.Read(ctx, r.leaseKey("g")); err != nil || v[0] == nil {
		t.Fatal("the lease of another was given back")
	}
	must(t, second.release(ctx, time.Hour))
	if third, err := acquire(ctx, r, "g", time.Minute); third != nil || err != nil {
		t.Errorf("everybody should be kept off: %v", err)
	}
	m.setDown(true)
	if _, err := acquire(ctx, r, "g", time.Minute); !errors.Is(err, errDown) {
		t.Errorf("no answer: %v", err)
	}
}

// TestLeaseIsLost: who cannot renew it stops.
func TestLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		m := newMemory()
		r := newRegistry(t, m, 0)
		l, err := acquire(ctx, r, "g", 30*time.Millisecond)
		if err != nil || l == nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		if l.ctx.Err() != nil {
			t.Fatal("it was not renewed")
		}
		m.flush() // and so it is anybody's
		<-l.ctx.Done()
		if !errors.Is(context.Cause(l.ctx), errLeaseLost) {
			t.Errorf("%v", context.Cause(l.ctx))
		}
		second, err := acquire(ctx, r, "g", time.Minute)
		if err != nil || second == nil {
			t.Fatal(err)
		}
		must(t, l.release(ctx, 0))
		if v, err := m.Read(ctx, r.leaseKey("g")); err != nil || v[0] == nil {
			t.Error("the lease of another was given back")
		}
		must(t, second.release(ctx, 0))
		third, err := acquire(ctx, r, "g", 20*time.Millisecond)
		if err != nil || third == nil {
			t.Fatal(err)
		}
		m.setDown(true)
		<-third.ctx.Done() // no answer for as long as it was given
		m.setDown(false)
		must(t, third.release(ctx, 0))
	})
}

// TestOfferIsBounded: the sample keeps within its bytes, and holds early and late values.
func TestOfferIsBounded(t *testing.T) {
	r := newRegistry(t, newMemory(), 0)
	o := auto()
	o.SampleBytes = 100 << 10
	o.Interval = time.Hour
	g := open(t, r, GroupOptions{Auto: o, Setting: compress.Setting{}})
	a := g.auto
	a.offer(profiles(1)[0], true)
	if a.seen != 0 {
		t.Error("a sample is taken though none was asked for")
	}
	a.sampling.Store(true)
	for i, v := range profiles(3000) {
		v[0] = byte(i / 12) // its time
		a.offer(v, true)
	}
	a.offer(make([]byte, 50<<10), true)
	size, late := 0, 0
	for _, v := range a.sample {
		size += len(v)
		if v[0] > 125 {
			late++
		}
	}
	if size > o.SampleBytes || size != a.size || size < o.SampleBytes/2 {
		t.Errorf("%d bytes in the sample, counted %d", size, a.size)
	}
	if share := float64(late) / float64(len(a.sample)); share < 0.3 || share > 0.7 {
		t.Errorf("%.2f of the sample are of the later half", share)
	}
}
