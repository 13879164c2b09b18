package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/cmd/internal/registry"
)

// Shown are runs, for people. Its fields are those of the JSON.
type Shown struct {
	Runs []ShownRun `json:"runs"`

	whole bool
}

// ShownRun is a run.
type ShownRun struct {
	Name     string          `json:"name"`
	Command  string          `json:"command"`
	State    string          `json:"state"`
	Units    int             `json:"units"`
	Done     int             `json:"done"` // units
	Started  time.Time       `json:"started"`
	Settings json.RawMessage `json:"settings"`
	Workers  map[string]int  `json:"workers"` // the unit of each
}

// mostShown bounds what is shown of all runs. Those of workers take some hundred bytes each.
const mostShown = 16 << 20

// Show looks at one run, or at all of them where the name is empty. State, if it is one, is set
// before.
func Show(ctx context.Context, at registry.Options, name, state string) (_ *Shown, err error) {
	r, err := registry.Open(ctx, at)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	names, shown := []string{name}, &Shown{Runs: []ShownRun{}, whole: name != ""}
	if name == "" {
		if names, err = List(ctx, r.Keys, r.Prefix); err != nil {
			return nil, err
		}
	}
	var others error // which do not hide the rest
	size := 0
	for _, name := range names {
		run, err := Open(ctx, r.Keys, r.Prefix, name)
		switch {
		case !shown.whole && errors.Is(err, ErrUnknown): // by now
			continue
		case !shown.whole && (errors.Is(err, ErrOther) || keyspace.IsReply(err)): // forged
			others = errors.Join(others, err)
			continue
		case err != nil:
			return nil, err
		}
		if state != "" {
			if err := run.Set(ctx, state); err != nil {
				return nil, err
			}
		}
		v, err := run.View(ctx)
		switch {
		case !shown.whole && (errors.Is(err, ErrUnknown) || keyspace.IsReply(err)): // forged
			others = errors.Join(others, err)
			continue
		case err != nil:
			return nil, err
		}
		if v.Done == run.Units {
			v.State = Done
		}
		size += len(run.Settings) + len(run.Command)
		for worker := range v.Workers {
			size += len(worker) + 64
		}
		if size > mostShown {
			others = errors.Join(others, fmt.Errorf("%s and later ones are not shown: those before take more than %d MiB",
				name, mostShown>>20))
			break
		}
		shown.Runs = append(shown.Runs, ShownRun{name, run.Command, v.State, run.Units, v.Done, run.Started, run.Settings,
			v.Workers})
	}
	return shown, others
}

// WriteText writes a table, and of a single run its settings and workers.
func (s *Shown) WriteText(w page.Sheet) {
	if len(s.Runs) == 0 {
		w.Lines("There are no runs: bale migrate --run NAME makes one.")
		return
	}
	t := w.Table(2, "run", "command", "state", "units", "done", "workers", "started")
	t.Drop = []string{"started", "command"}
	for _, r := range s.Runs {
		t.Row(r.Name, r.Command, r.State, r.Units, r.Done, len(r.Workers), r.Started.Format(time.DateTime))
	}
	t.Render()
	if !s.whole {
		return
	}
	w.Lines("settings: " + string(s.Runs[0].Settings))
	if s.Runs[0].State == Paused {
		w.Lines("It is paused: its workers wait, and hold no unit until bale run resume.")
	}
	for _, worker := range slices.Sorted(maps.Keys(s.Runs[0].Workers)) {
		printable.Fprintf(w, "unit %4d  %s\n", s.Runs[0].Workers[worker], worker)
	}
}
