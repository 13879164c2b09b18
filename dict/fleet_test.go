package dict

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/balekv/bale/frame"
)

// slow is a client's way to a memory: most calls are quick, some take up to two grace periods, and
// it can be cut.
type slow struct {
	*memory
	fleet *fleet
	lock  sync.Mutex
	cut   time.Time // until then
}

func (s *slow) wait(ctx context.Context) error {
	d := s.fleet.upTo(5 * time.Millisecond)
	switch n := s.fleet.intN(1000); {
	case n < 3:
		d = s.fleet.upTo(2 * fleetGrace)
	case n < 30:
		d = s.fleet.upTo(fleetGrace / 10)
	}
	s.lock.Lock()
	cut := s.cut
	s.lock.Unlock()
	if time.Now().Before(cut) {
		return errDown
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// call waits before and after a call: it may be made, and the answer be lost.
func (s *slow) call(ctx context.Context, do func() error) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	return errors.Join(do(), s.wait(ctx))
}

func (s *slow) Read(ctx context.Context, keys ...string) (values [][]byte, err error) {
	err = s.call(ctx, func() (err error) { values, err = s.memory.Read(ctx, keys...); return err })
	return values, err
}

func (s *slow) Refresh(ctx context.Context, keys ...string) (there []bool, err error) {
	err = s.call(ctx, func() (err error) { there, err = s.memory.Refresh(ctx, keys...); return err })
	return there, err
}

func (s *slow) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (ok bool, err error) {
	err = s.call(ctx, func() (err error) { ok, err = s.memory.Swap(ctx, key, old, value, ttl); return err })
	return ok, err
}

const (
	fleetGrace  = time.Minute
	fleetFlight = fleetGrace/2 - time.Second // of a write
	fleetSkew   = fleetGrace/2 - time.Second // of the remover's clock
	fleetValues = 20
	fleetMends  = 20 * fleetGrace // from when the registry was emptied: programs may be cut off for most of it
)

// fleet is programs, a tool, an operator and a garbage collector at work on one group.
type fleet struct {
	t      *testing.T
	memory *memory
	all    []*Dictionary

	lock     sync.Mutex
	rng      *rand.Rand
	values   [fleetValues]frame.DictionaryID // what each value needs
	removing bool
	kill     bool // collectors are killed
	empty    bool // the registry is emptied and filled again, and programs are not killed
	mending  bool // it was, and programs have not put everything back yet; nobody else publishes, and half of the values stay
	programs []*Group
	torn     bool // one was: what it removed may be in quarantine alone
	written  int
	removed  int
	refused  int
	mended   int
}

func (f *fleet) intN(n int) int {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.rng.IntN(n)
}

func (f *fleet) upTo(d time.Duration) time.Duration { return time.Duration(f.intN(int(d))) }

func (f *fleet) registry() (*Registry, *slow) {
	s := &slow{memory: f.memory, fleet: f}
	r, err := NewRegistry(s, RegistryOptions{Grace: fleetGrace})
	if err != nil {
		panic(err)
	}
	return r, s
}

// store stores a value that was packed some time ago.
func (f *fleet) store(id frame.DictionaryID) {
	f.set(id)
	f.lock.Lock()
	f.written++
	f.lock.Unlock()
	f.check()
}

// set changes a value at random.
func (f *fleet) set(id frame.DictionaryID) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if i := f.rng.IntN(fleetValues); i >= fleetValues/2 || !f.mending {
		f.values[i] = id
	}
}

// check sees that each value has its dictionary: not in quarantine alone, unless a collector is at
// work or was killed. Programs put it back after the registry was emptied.
func (f *fleet) check() {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.mending {
		return
	}
	f.memory.lock.Lock()
	defer f.memory.lock.Unlock()
	for _, id := range f.values {
		data, quarantine := f.memory.values[DefaultPrefix+"data:"+id.String()], f.memory.values[DefaultPrefix+"quarantine:"+id.String()]
		if id != 0 && data == nil && (quarantine == nil || !f.removing && !f.torn) {
			f.t.Errorf("a value needs %v, which is gone", id)
		}
	}
}

// program follows the group and writes, until it is killed and another one takes its place.
func (f *fleet) program(ctx context.Context) {
	for ctx.Err() == nil {
		r, s := f.registry()
		g, err := r.Open(ctx, "g", GroupOptions{Poll: time.Second + f.upTo(2*fleetGrace)})
		if err != nil {
			f.t.Error(err)
			return
		}
		f.lock.Lock()
		f.programs = append(f.programs, g)
		f.lock.Unlock()
		for killed := time.Now().Add(f.upTo(30 * fleetGrace)); ctx.Err() == nil && (f.empty || time.Now().Before(killed)); time.Sleep(f.upTo(fleetGrace / 3)) {
			if f.intN(40) == 0 {
				s.lock.Lock()
				s.cut = time.Now().Add(f.upTo(12 * fleetGrace))
				s.lock.Unlock()
			}
			id := g.Writer().DictionaryID()
			time.Sleep(f.upTo(fleetFlight))
			f.store(id)
		}
		if err := g.Close(); err != nil {
			f.t.Error(err)
		}
	}
}

// tool writes with one dictionary after another, as a long walk does.
func (f *fleet) tool(ctx context.Context) {
	r, s := f.registry()
	for ctx.Err() == nil {
		d := f.all[f.intN(len(f.all))]
		var last time.Time
		for walk := time.Now().Add(f.upTo(30 * fleetGrace)); ctx.Err() == nil && time.Now().Before(walk); time.Sleep(f.upTo(fleetGrace / 3)) {
			if f.intN(40) == 0 {
				s.lock.Lock()
				s.cut = time.Now().Add(f.upTo(8 * fleetGrace))
				s.lock.Unlock()
			}
			if time.Since(last) > fleetGrace*3/4 {
				start := time.Now()
				_, err := r.Use(ctx, "g", d.ID())
				if errors.Is(err, ErrNotInGroup) || errors.Is(err, ErrUnknown) {
					break
				} else if err == nil {
					last = start
				}
			}
			if time.Since(last) < lapseGraces*fleetGrace {
				time.Sleep(f.upTo(fleetFlight))
				f.store(d.ID())
			}
		}
		time.Sleep(f.upTo(fleetGrace))
	}
}

// operator publishes, activates and rolls back at random.
func (f *fleet) operator(ctx context.Context) {
	r, _ := f.registry()
	for ctx.Err() == nil {
		f.lock.Lock()
		mending := f.mending
		f.lock.Unlock()
		if mending {
			time.Sleep(fleetGrace)
			continue
		}
		d := f.all[f.intN(len(f.all))]
		var err error
		switch f.intN(8) {
		case 0:
			err = r.Rollback(ctx, "g")
		case 1:
			err = r.Activate(ctx, "g", 0, false)
		case 2, 3:
			err = r.Activate(ctx, "g", d.ID(), true)
		default:
			if err = r.Publish(ctx, "g", d, Info{}); err == nil {
				err = r.Activate(ctx, "g", d.ID(), true)
			}
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, ErrNotInGroup) && !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrConflict) {
			f.t.Error(err)
		}
		time.Sleep(f.upTo(fleetGrace))
		for f.intN(3) == 0 { // and leaves things as they are for a while
			time.Sleep(f.upTo(8 * fleetGrace))
		}
	}
}

// collector removes what it finds no value for. Its clock is fast, and its scans are slow.
func (f *fleet) collector(ctx context.Context) {
	for ctx.Err() == nil {
		r, s := f.registry()
		r.now = func() time.Time { return time.Now().Add(fleetSkew) }
		time.Sleep(f.upTo(fleetGrace))
		err := f.collect(ctx, r, func() {
			if f.kill && f.intN(4) == 0 {
				time.Sleep(f.upTo(50 * time.Millisecond))
				s.lock.Lock()
				s.cut = time.Now().Add(1000 * fleetGrace)
				s.lock.Unlock()
			}
		})
		if err != nil && ctx.Err() == nil && !errors.Is(err, errDown) {
			f.t.Error(err)
		}
	}
}

func (f *fleet) collect(ctx context.Context, r *Registry, removes func()) error {
	var killer sync.WaitGroup
	defer killer.Wait()
	s, err := r.State(ctx, "g")
	if err != nil {
		return err
	}
	if _, err := r.retention(ctx); errors.Is(err, ErrUnlisted) {
		return nil // the settings are lost
	}
	var candidates []Entry
	for _, d := range f.all {
		if e, err := r.Removable(ctx, s, d.ID()); err == nil {
			candidates = append(candidates, e)
		} else if errors.Is(err, ErrNotInGroup) {
			candidates = append(candidates, Entry{ID: d.ID()}) // an orphan, if it is there
		} else if !errors.Is(err, ErrInUse) {
			return err
		}
	}
	needed := map[frame.DictionaryID]bool{}
	pause := f.upTo(fleetGrace)
	for i := range fleetValues {
		f.lock.Lock()
		needed[f.values[i]] = true
		f.lock.Unlock()
		time.Sleep(pause)
	}
	for _, e := range candidates {
		if needed[e.ID] {
			continue
		}
		f.lock.Lock()
		f.removing = true
		f.lock.Unlock()
		killer.Go(removes)
		if s.Find(e.ID) == nil {
			_, err = r.RemoveOrphan(ctx, e.ID)
		} else {
			_, err = r.Remove(ctx, "g", e, false)
		}
		f.lock.Lock()
		f.removing = false
		f.torn = f.torn || errors.Is(err, errDown)
		if err == nil {
			f.removed++
		} else {
			f.refused++
		}
		f.lock.Unlock()
		if ctx.Err() == nil {
			f.check()
		}
		if err != nil && !errors.Is(err, ErrConflict) && !errors.Is(err, ErrInUse) && !errors.Is(err, ErrNotInGroup) && !errors.Is(err, ErrUnlisted) {
			return err
		}
	}
	return nil
}

// loss empties the registry and fills it again before anybody polls, up to the epoch that it had or
// beyond. Values whose dictionary no program holds are lost.
func (f *fleet) loss(ctx context.Context) {
	r, err := NewRegistry(f.memory, RegistryOptions{Grace: fleetGrace}) // which is not slow
	if err != nil {
		panic(err)
	}
	for time.Sleep(f.upTo(2 * fleetMends)); ctx.Err() == nil; time.Sleep(f.upTo(fleetMends)) {
		f.lock.Lock()
		before, err := r.State(ctx, "g")
		held := map[frame.DictionaryID]bool{0: true}
		for _, g := range f.programs {
			for _, d := range f.all {
				if s := g.Status().State; s != nil && s.Find(d.ID()) != nil && g.dictionary(d.ID()) != nil {
					held[d.ID()] = true
				}
			}
		}
		for i, id := range f.values {
			if held[id] {
				f.mended++
			} else {
				f.values[i] = 0
			}
		}
		f.memory.flush()
		f.mending = true
		d := f.all[f.rng.IntN(len(f.all))]
		err = errors.Join(err, r.Publish(ctx, "g", d, Info{}))
		for range f.rng.IntN(3) + int(before.Epoch) {
			err = errors.Join(err, r.Activate(ctx, "g", 0, true), r.Activate(ctx, "g", d.ID(), true))
		}
		f.lock.Unlock()
		if err != nil && ctx.Err() == nil {
			f.t.Error(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(fleetMends):
		}
		f.lock.Lock()
		f.mending = false
		f.lock.Unlock()
		f.check()
	}
}

// TestFleet runs the real code as the model's agents, under a fake clock. Calls are slow, answers
// are lost, and programs and collectors are cut off and killed. Values expire, a clock is fast, and
// scans take several grace periods. No value may outlive its dictionary.
func TestFleet(t *testing.T) {
	t.Parallel()
	seeds := 12
	var written, removed, refused, mended int
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fleet{t: t, memory: newMemory(), rng: rand.New(rand.NewPCG(uint64(seed), 1)), kill: seed%2 == 1, empty: seed%3 == 2}
				for i := range 4 {
					f.all = append(f.all, dictionaryOf(t, i))
				}
				r, err := NewRegistry(f.memory, RegistryOptions{Grace: fleetGrace})
				must(t, err)
				must(t, errors.Join(r.Publish(t.Context(), "g", f.all[0], Info{}), r.Activate(t.Context(), "g", f.all[0].ID(), true)))
				ctx, stop := context.WithTimeout(t.Context(), 200*fleetGrace)
				defer stop()
				var agents sync.WaitGroup
				other := f.tool
				if f.empty {
					other = f.loss
				}
				for _, agent := range []func(context.Context){f.program, f.program, other, f.operator, f.collector, func(ctx context.Context) {
					for ; ctx.Err() == nil; time.Sleep(f.upTo(fleetGrace / 4)) {
						f.set(0) // it expires
					}
				}} {
					agents.Go(func() { agent(ctx) })
				}
				agents.Wait()
				written, removed, refused, mended = written+f.written, removed+f.removed, refused+f.refused, mended+f.mended
				for key := range f.memory.values {
					if !slices.ContainsFunc([]string{"groups", "group:g", "settings", "server", "data:", "quarantine:"}, func(known string) bool {
						return strings.HasPrefix(key, DefaultPrefix+known)
					}) {
						t.Errorf("%q is left over", key)
					}
				}
			})
		})
	}
	t.Logf("%d values were written, %d dictionaries removed and %d removals refused; %d values outlived an emptied registry", written, removed, refused, mended)
	if written < 100*seeds || removed < seeds || refused == 0 || mended < seeds {
		t.Error("that shows nothing")
	}
}
