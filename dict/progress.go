package dict

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"
)

const (
	shownIntervals = 3       // of Auto, after which the progress of a program that ended expires
	maxValues      = 1 << 30 // of a progress
)

// progress is how far [Auto] is with the next dictionary of a group. Programs keep that of the one
// furthest ahead in the registry. The fields are those of [Status].
type progress struct {
	Collected int  `json:"collected"`
	Wanted    int  `json:"wanted"`
	Training  bool `json:"training,omitempty"`
}

// ahead reports whether p is further than another one.
func (p *progress) ahead(other *progress) bool {
	if p.Training != other.Training {
		return p.Training
	}
	return float64(p.Collected)/float64(p.Wanted) > float64(other.Collected)/float64(other.Wanted)
}

// Progress returns the progress of [Auto] with a group's next dictionary: Group, Collected, Wanted
// and Training in the Status of the program that is furthest along. It is nil if no program has
// reported any, and [ErrCorrupt] if the key holds something else. The next program with Auto
// replaces that.
func (r *Registry) Progress(ctx context.Context, group string) (*Status, error) {
	if err := CheckGroup(group); err != nil {
		return nil, err
	}
	values, err := r.store.Read(ctx, r.autoKey(group))
	if err != nil {
		return nil, fmt.Errorf("dict: progress of group %q: %w", group, err)
	}
	p, err := r.parseProgress(group, values[0])
	if p == nil {
		return nil, err
	}
	return &Status{Group: group, Collected: p.Collected, Wanted: p.Wanted, Training: p.Training}, nil
}

func (r *Registry) parseProgress(group string, raw []byte) (*progress, error) {
	if raw == nil {
		return nil, nil
	}
	p := &progress{}
	err := decode(raw, p)
	if err == nil && !(0 <= p.Collected && p.Collected <= p.Wanted && 0 < p.Wanted && p.Wanted <= maxValues) {
		err = fmt.Errorf("%d of %d values", p.Collected, p.Wanted)
	}
	if err != nil {
		return nil, fmt.Errorf("dict: %w: key %q is not the progress of group %q: %w; delete it", ErrCorrupt, r.autoKey(group), group, err)
	}
	return p, nil
}

// progress is how far this program is, nil if it collects no values.
func (a *autopilot) progress() *progress {
	s := a.group.Status()
	if s.State == nil || !s.Training && (!first(s.State) || awaiting(s.State) != nil) {
		return nil
	}
	return &progress{Collected: s.Collected, Wanted: s.Wanted, Training: s.Training}
}

// show writes the progress into the registry at each interval, until Close.
func (a *autopilot) show() {
	g := a.group
	for a.sleep(g.ctx, a.Interval) {
		ctx, cancel := context.WithTimeout(g.ctx, g.options.FetchTimeout)
		err := a.showOnce(ctx)
		cancel()
		g.report("the progress of Auto could not be written into the registry", err)
	}
}

// showOnce writes the progress into the registry, unless another program is further.
func (a *autopilot) showOnce(ctx context.Context) error {
	r, p := a.group.registry, a.progress()
	key := r.autoKey(a.group.name)
	if p == nil {
		if a.shown == nil {
			return nil
		}
		_, err := r.store.Swap(ctx, key, a.shown, nil, 0) // unless it is another program's by now
		if err == nil {
			a.shown = nil
		}
		return err
	}
	values, err := r.store.Read(ctx, key)
	if err != nil {
		return err
	}
	there := values[0]
	if other, err := r.parseProgress(a.group.name, there); err == nil && other != nil && !bytes.Equal(there, a.shown) && other.ahead(p) {
		return nil
	}
	mine, err := json.Marshal(p)
	if err != nil {
		return err
	}
	ok, err := swap(ctx, r.store, key, there, mine, shownIntervals*max(a.Interval, time.Second))
	if ok {
		a.shown = mine
	}
	return err
}
