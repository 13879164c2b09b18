package migrate

import (
	"context"
	"errors"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/fleet"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/frame"
)

// shared is what all workers of a run agree on.
type shared struct {
	Settings
	DryRun bool `json:"dry-run,omitempty"`
}

// prepared is what one worker has done for all.
type prepared struct {
	Dictionary frame.DictionaryID `json:"dictionary"`
	UsedMemory int64              `json:"used_memory"`
}

// join makes or joins the shared run, and finds the dictionary, which one worker chooses for all.
func (j *job) join(ctx context.Context, places []keyspace.Place) (err error) {
	if j.shared, err = fleet.JoinWalk(ctx, j.registry, j.Run.Name, "migrate", shared{j.Settings, j.DryRun}); err != nil {
		return err
	}
	j.state = NewState(j.Settings, places)
	if j.Dict == Auto { // else once the dictionary is known to be there
		j.announce(ctx)
	}
	p, err := fleet.Once(ctx, j.shared, "prepare", func(ctx context.Context) (p prepared, err error) {
		d, err := j.choose(ctx)
		if err != nil {
			return p, err
		}
		p.Dictionary = d.ID()
		p.UsedMemory, err = keyspace.UsedMemory(ctx, j.client)
		return p, err
	})
	if err != nil {
		return err
	}
	j.state.Dictionary, j.state.UsedMemory = p.Dictionary, p.UsedMemory
	if p.Dictionary != 0 {
		j.dictionary, err = j.registry.Read(ctx, p.Dictionary)
	}
	return err
}

// usedAfter is the used_memory at the end of the run. One worker measures it for all, and for those
// that come later.
func (j *job) usedAfter(ctx context.Context) (int64, error) {
	used, err := fleet.Once(ctx, j.shared, "after", func(ctx context.Context) (int64, error) {
		return keyspace.UsedMemory(ctx, j.client)
	})
	if errors.Is(err, fleet.ErrAborted) { // as its last unit ended
		return 0, nil
	}
	return used, err
}

// share does units of the run until all are done, and sums up what all workers did.
func (j *job) share(
	ctx context.Context, packer *bale.Packer, hold func(context.Context) (time.Time, error),
) error {
	w := fleet.Walk[Counts]{
		Registry: j.registry, New: newCounts, Merge: (*Counts).merge, Writes: !j.DryRun, Rate: j.Run.Rate,
		Pass: func(ctx context.Context, place keyspace.Place, counts *Counts, page func([]keyspace.Place) error) error {
			o := j.pass(packer, hold)
			o.Places = []keyspace.Place{place}
			o.Page = func(places []keyspace.Place, _ *Counts) error { return page(places) }
			return walk(ctx, j.client, o, counts)
		},
	}
	if w.Writes {
		w.Keep = w.Merge
	}
	err := w.Share(ctx, j.shared, j.state.Counts)
	j.state.Seconds = j.shared.Seconds()
	return err
}
