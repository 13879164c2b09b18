package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/cmd/internal/registry"
)

var unitSaved = 5 * time.Second // between two saves of a unit

const (
	unitWalks      = 20 // of a unit whose masters change each time
	sumTries       = 3  // where the Redis with the run fails over after the last unit, and loses some
	failuresShown  = 5
	failuresUnseen = "further failures of units are not shown"
)

// Walk is a walk over all keys of a Redis that workers share. A unit is a range of a cluster's
// slots, or a single server. C is what they count, as JSON.
type Walk[C any] struct {
	Registry *registry.Registry // has the run, and the keys
	New      func() *C          // a count of nothing
	Merge    func(all, part *C) // adds what a part counted

	// Rate is how many keys and elements a second all workers look at, at most; 0 for no such limit.
	Rate int

	// Writes says that the walk writes: what it wrote counts once the replicas have it.
	Writes bool

	// Keep, if set, keeps of a unit's count what stays where it is walked again after a fail-over.
	Keep func(count, before *C)

	// Pass walks from a place on, and adds to what is counted. It calls page after each page of keys.
	Pass func(ctx context.Context, place keyspace.Place, counts *C, page func(places []keyspace.Place) error) error
}

// part is how far a unit is.
type part[C any] struct {
	Place       keyspace.Place `json:"place"`
	Counts      *C             `json:"counts"`
	Again       int            `json:"again,omitempty"`       // walks from the start, after a fail-over
	Unconfirmed bool           `json:"unconfirmed,omitempty"` // a replica did not have the last writes in time
}

var (
	errFailedOver = errors.New("another server became the master")
	errLost       = errors.New("the Redis with the run has lost the end")
)

// JoinWalk makes or joins a run that walks over the keys of the registry's first Redis.
func JoinWalk(ctx context.Context, reg *registry.Registry, name, command string, settings any) (*Run, error) {
	text, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	units := 1
	if _, ok := reg.Client().(*redis.ClusterClient); ok {
		masters, err := keyspace.Places(ctx, reg.Client())
		if err != nil {
			return nil, err
		}
		units = UnitsOf(len(masters))
	}
	r, err := Join(ctx, reg.Keys, reg.Prefix, name, Job{Command: command, Settings: text, Units: units})
	if err != nil {
		return nil, fmt.Errorf("--run: %w", err)
	}
	if v, err := r.View(ctx); err == nil && v.Done == r.Units {
		reg.Notef("--run %s began at %s and is done: this is what it found, and nothing is looked at again. Another --run NAME looks.",
			name, r.Started.Format(time.DateTime))
	}
	return r, nil
}

// Work walks with the other workers of a run until all units are done.
func (w *Walk[C]) Work(ctx context.Context, r *Run) error {
	client := w.Registry.Client()
	show, stop := cli.ShowProgress(w.Registry.Err)
	defer stop()
	if w.Rate > 0 {
		w.Registry.Pacer.Shared = r.pace(w.Rate)
	}
	failed := 0
	worker := Worker{
		Do: func(ctx context.Context, u *Unit) error { return w.unit(ctx, u) },
		Progress: func(v *View) {
			if show != nil {
				doing := printable.Count(int64(len(v.Workers)), "worker", "workers") + " at work"
				if v.State == Paused {
					doing = Paused
				}
				show(v.Done, r.Units, fmt.Sprintf("%d of %d units, %s", v.Done, r.Units, doing))
			}
		},
		Failed: func(n int, err error) {
			if failed++; failed <= failuresShown {
				what := "the run's state is not known"
				if n >= 0 {
					what = fmt.Sprintf("unit %d failed", n)
				}
				w.Registry.Notef("%s, which is tried again: %v", what, err)
			} else if failed == failuresShown+1 {
				w.Registry.Notef(failuresUnseen)
			}
		},
	}
	if _, ok := client.(*redis.ClusterClient); ok {
		worker.Shards = func(ctx context.Context) (func(int) []string, error) {
			owners, err := keyspace.Owners(ctx, client)
			return func(n int) []string { return owners(r.slots(n)) }, err
		}
	}
	return r.Work(ctx, worker)
}

// Share is [Walk.Work], and adds what all workers have counted to all, also with an error.
func (w *Walk[C]) Share(ctx context.Context, r *Run, all *C) error {
	before, err := w.calls(ctx, r, "calls")
	var sum *C
	var summed error
	for range sumTries {
		if err == nil {
			err = w.Work(ctx, r)
		}
		if sum, summed = w.sum(ctx, r, err == nil); !errors.Is(summed, errLost) {
			break
		}
	}
	w.Merge(all, sum)
	if err = errors.Join(err, summed); err != nil {
		return err
	}
	now, err := w.calls(ctx, r, "calls-after")
	if err == nil {
		err = w.Registry.Renamed(before, now)
	}
	return err
}

// calls are those of keyspace.RenameCalls at the start of the run or at its end, the same for all
// workers, and for those that come later.
func (w *Walk[C]) calls(ctx context.Context, r *Run, when string) (calls map[string]int64, err error) {
	calls, err = Once(ctx, r, when, func(ctx context.Context) (map[string]int64, error) {
		return keyspace.RenameCalls(ctx, w.Registry.Client()), nil
	})
	if errors.Is(err, ErrAborted) && when != "calls" { // as its last unit ended
		return nil, nil
	}
	return calls, err
}

// slots are those of a unit.
func (r *Run) slots(n int) keyspace.Slots {
	return keyspace.Slots{From: n * keyspace.SlotCount / r.Units, To: (n + 1) * keyspace.SlotCount / r.Units}
}

// unit walks a part of the keys. What it has done counts as long as the masters are the same: a
// fail-over loses writes.
func (w *Walk[C]) unit(ctx context.Context, u *Unit) error {
	client := w.Registry.Client()
	var start keyspace.Place
	if _, ok := client.(*redis.ClusterClient); ok {
		slots := u.run.slots(u.Number)
		start.Slots, start.Cursor = &slots, uint64(slots.From)
	} else {
		places, err := keyspace.Places(ctx, client)
		if err != nil {
			return err
		}
		start = places[0]
	}
	p := part[C]{Place: start, Counts: w.New()}
	if u.State != nil {
		var before part[C]
		if err := decode(u.State, &before); err != nil || !sameSlots(before.Place, start) {
			return errors.Join(fmt.Errorf("what %s has of it is no state of these slots: start again under another --run NAME",
				u.run.key), err)
		}
		if before.Counts != nil {
			w.Merge(p.Counts, before.Counts) // whose maps may be nil
		}
		before.Counts = p.Counts
		p = before
	}
	settled := func() (same bool, err error) {
		same, confirmed, err := keyspace.Settled(ctx, client, p.Place, w.Writes)
		p.Unconfirmed = !confirmed
		return same, err
	}
	save := func() (err error) {
		u.State, err = json.Marshal(p)
		return err
	}
	for range unitWalks {
		same, err := settled()
		if err != nil {
			return err
		}
		if !same {
			p.Place = start
			p.Again++
			before := p.Counts
			if p.Counts = w.New(); w.Keep != nil {
				w.Keep(p.Counts, before)
			}
		}
		saved := time.Now()
		if err := w.Pass(ctx, p.Place, p.Counts, func(places []keyspace.Place) error {
			// Within a slot, the count has keys that are read again from here on.
			within := places[0].Slots != nil && !places[0].Done && places[0].Cursor == p.Place.Cursor
			p.Place = places[0]
			if within || time.Since(saved) < unitSaved {
				return nil
			}
			if same, err := settled(); err != nil || !same {
				return errors.Join(err, errFailedOver)
			}
			saved = time.Now()
			if err := save(); err != nil {
				return err
			}
			return u.Save(ctx)
		}); err != nil && !errors.Is(err, errFailedOver) {
			return err
		}
		if same, err = settled(); err != nil {
			return err
		}
		if same && p.Place.Done {
			return save()
		}
	}
	return errFailedOver
}

// longestText is of a text in a state, in bytes of its JSON. Names and causes have a few KiB.
const longestText = 16 << 10

// decode reads a state that somebody may have forged. What is counted keeps some of its texts.
func decode(state json.RawMessage, v any) error {
	for i, since := 0, -1; i < len(state); i++ {
		switch {
		case state[i] == '"' && since < 0:
			since = i
		case state[i] == '"':
			since = -1
		case since >= 0 && i-since > longestText:
			return fmt.Errorf("it has a text of more than %d bytes", longestText)
		case since >= 0 && state[i] == '\\':
			i++
		}
	}
	return json.Unmarshal(state, v)
}

// sameSlots reports places of the same slots, or of a single server each.
func sameSlots(a, b keyspace.Place) bool {
	return a.Slots == nil && b.Slots == nil || a.Slots != nil && b.Slots != nil && *a.Slots == *b.Slots
}

// sum returns what all workers counted, also with an error. It is errLost if the run was done a
// moment ago, and lacks the end of a unit.
func (w *Walk[C]) sum(ctx context.Context, r *Run, done bool) (*C, error) {
	if ctx.Err() != nil { // what was counted is worth a moment
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
	}
	sum, ended, again, unconfirmed := w.New(), 0, 0, 0
	err := r.States(ctx, func(_ int, text json.RawMessage) error {
		var p part[C]
		if err := decode(text, &p); err != nil {
			return fmt.Errorf("--run: the state of a unit: %w", err)
		}
		if p.Counts != nil {
			w.Merge(sum, p.Counts)
		}
		if p.Place.Done {
			ended++
		}
		again += p.Again
		if p.Unconfirmed {
			unconfirmed++
		}
		return nil
	})
	if err == nil && done && ended < r.Units {
		err = fmt.Errorf("--run: %w of %d units of %d: start again under another --run NAME",
			errLost, r.Units-ended, r.Units)
	}
	if err != nil {
		return sum, err
	}
	if again > 0 {
		what := "what was counted before does not count"
		if w.Writes {
			what = "what was written before, and is there still, was passed over"
		}
		w.Registry.Notef("units were walked %d times more than once, for another server became the master: %s", again, what)
	}
	if unconfirmed > 0 {
		w.Registry.Notef("of %d units, replicas did not have the last writes within ten seconds: after a fail-over, run it again under another name", unconfirmed)
	}
	return sum, nil
}
