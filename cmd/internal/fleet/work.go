package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

const (
	firstWait   = 100 * time.Millisecond // between two looks for work
	longestWait = 5 * time.Second
	failures    = 20 // in a row, before a worker gives up
	candidates  = 8  // units that are asked for, before looking again
)

// Unit is a part of a job that this worker holds.
type Unit struct {
	Number int             // of 0 to Units-1
	State  json.RawMessage // how far it is, nil at the start. [Job.Do] sets it

	name   string
	token  string // of the lease, and the worker
	shards []string
	run    *Run
}

// Worker is what a worker does.
type Worker struct {
	// Shards returns who serves each unit at present. At most one unit of a shard is worked on at a
	// time. Nil is for units that share nothing.
	Shards func(ctx context.Context) (func(unit int) []string, error)

	// Do does a unit, from its State on. The context ends when the unit is lost, or the run is
	// paused or aborted.
	Do func(ctx context.Context, u *Unit) error

	// Progress, if set, gets how far the run is, about once a second at most.
	Progress func(v *View)

	// Failed, if set, gets why a unit failed, which is then tried again by someone; -1 is for asking
	// for units.
	Failed func(unit int, err error)
}

// Work takes units until all are done, also by other workers. It waits while the run is paused, and
// fails if it is aborted, or if units fail again and again.
func (r *Run) Work(ctx context.Context, w Worker) error {
	wait := firstWait
	units, asked := 0, 0 // that failed in a row
	// fails counts what failed, and waits: a master of the Redis with the run may fail over, too.
	fails := func(failed *int, unit int, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if w.Failed != nil {
			w.Failed(unit, err)
		}
		if *failed++; *failed == failures {
			return fmt.Errorf("%w; that were %d failures in a row", err, *failed)
		}
		return pause(ctx, min(firstWait<<min(*failed, 6), longestWait))
	}
	for {
		v, err := r.View(ctx)
		if errors.Is(err, ErrUnknown) {
			return err
		}
		if err != nil {
			if err := fails(&asked, -1, err); err != nil {
				return err
			}
			continue
		}
		if w.Progress != nil {
			w.Progress(v)
		}
		switch {
		case v.Done == r.Units:
			ms, err := endScript.Run(ctx, r.client, []string{r.key}, keepEnded.Milliseconds()).Int64()
			if err == nil {
				r.took = time.Duration(ms) * time.Millisecond
				return nil
			}
			if err := fails(&asked, -1, err); err != nil {
				return err
			}
			continue
		case v.State == Aborted:
			return ErrAborted
		}
		var u *Unit
		if v.State == Running {
			if u, err = r.choose(ctx, v, w.Shards); err != nil {
				if err := fails(&asked, -1, err); err != nil {
					return err
				}
				continue
			}
		}
		asked = 0
		if u == nil {
			// Each waits another time, so that a thousand do not ask at once.
			if err := pause(ctx, wait/2+rand.N(wait)); err != nil {
				return err
			}
			wait = min(2*wait, longestWait)
			continue
		}
		wait = firstWait
		err = r.hold(ctx, u, func(ctx context.Context) error { return w.Do(ctx, u) })
		switch {
		case err == nil:
			units = 0
		case errors.Is(err, ErrAborted), errors.Is(err, ErrUnknown):
			return err
		case errors.Is(err, errPaused), errors.Is(err, errFenced):
		default:
			if err := fails(&units, u.Number, err); err != nil {
				return err
			}
		}
	}
}

// choose takes a unit of the shard that has most left to do, by what its units took so far. Each
// shard begins with one, so that a slow one shows early.
func (r *Run) choose(ctx context.Context, v *View, shards func(context.Context) (func(int) []string, error)) (*Unit,
	error) {
	of := func(unit int) []string { return nil }
	if shards != nil {
		var err error
		if of, err = shards(ctx); err != nil {
			return nil, err
		}
	}
	type shard struct {
		open, done int
		took       time.Duration
		busy       bool
	}
	all := map[string]*shard{}
	var took time.Duration
	served := make([][]string, r.Units)
	for i := range r.Units {
		if served[i] = of(i); len(served[i]) == 0 {
			served[i] = []string{"unit" + strconv.Itoa(i)}
		}
		for _, name := range served[i] {
			s := all[name]
			if s == nil {
				s = &shard{}
				all[name] = s
			}
			switch {
			case v.done(i):
				s.done++
				s.took += v.took(i)
			case v.held(i):
				s.busy = true
			default:
				s.open++
			}
		}
		if v.done(i) {
			took += v.took(i)
		}
	}
	mean := float64(took) / float64(max(v.Done, 1))
	left := func(unit int) (first bool, rest float64) {
		for _, name := range served[unit] {
			s := all[name]
			first = first || s.done == 0
			each := mean
			if s.done > 0 {
				each = float64(s.took) / float64(s.done)
			}
			rest = max(rest, each*float64(s.open))
		}
		return first, rest
	}
	var open []int
	for i := range r.Units {
		if v.done(i) || v.held(i) || slices.ContainsFunc(served[i], func(name string) bool { return all[name].busy }) {
			continue
		}
		open = append(open, i)
	}
	rand.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
	slices.SortStableFunc(open, func(a, b int) int {
		firstA, restA := left(a)
		firstB, restB := left(b)
		if firstA != firstB {
			return map[bool]int{true: -1, false: 1}[firstA]
		}
		return cmp.Compare(restB, restA)
	})
	for _, i := range open[:min(len(open), candidates)] {
		names := served[i]
		if shards == nil {
			names = nil
		}
		u, answer, err := r.take(ctx, strconv.Itoa(i), names)
		if err != nil {
			return nil, err
		}
		if u != nil {
			u.Number = i
			return u, nil
		}
		if answer != "taken" && answer != "busy" && answer != "done" {
			return nil, nil
		}
	}
	return nil, nil
}

// hold does something while this worker holds a unit, and says what has become of it.
func (r *Run) hold(ctx context.Context, u *Unit, do func(ctx context.Context) error) error {
	started := time.Now()
	held, lose := context.WithCancelCause(ctx)
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		for pause(held, lease/renewals) == nil {
			// A Redis that does not answer for a while is no reason: the lease is checked when something is
			// saved.
			if err := u.tell(held, lease, nil); err != nil && (errors.Is(err, errFenced) || errors.Is(err, errPaused) ||
				errors.Is(err, ErrAborted)) {
				lose(err)
				return
			}
		}
	}()
	err := do(held)
	lost := context.Cause(held)
	lose(nil)
	<-renewed
	if ctx.Err() == nil && lost != nil {
		err = lost
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease/renewals)
	defer cancel()
	if err != nil {
		if !errors.Is(err, errFenced) {
			_ = u.tell(after, 0, nil) // else the lease ends by itself
		}
		return err
	}
	took := time.Since(started)          // the same at each try
	for wait := firstWait; ; wait *= 2 { // what was done is not done again for an answer that is lost
		err = u.finish(after, took)
		if err == nil || errors.Is(err, errFenced) || pause(after, wait) != nil {
			return err
		}
	}
}

// Save keeps the unit's State for a worker that takes over.
func (u *Unit) Save(ctx context.Context) error { return u.tell(ctx, lease, u.State) }

// take asks for a unit. It is nil where the answer is a reason.
func (r *Run) take(ctx context.Context, name string, shards []string) (u *Unit, answer string, err error) {
	args := []any{name, r.Worker, lease.Milliseconds()}
	for _, s := range shards {
		args = append(args, s)
	}
	reply, err := takeScript.Run(ctx, r.client, []string{r.key}, args...).StringSlice()
	if err != nil {
		return nil, "", err
	}
	switch len(reply) {
	case 3:
	case 1:
		return nil, reply[0], nil
	default:
		return nil, "", fmt.Errorf("%d elements in the answer about unit %s", len(reply), name)
	}
	u = &Unit{name: name, token: reply[1], shards: shards, run: r}
	if reply[2] != "" {
		u.State = json.RawMessage(reply[2])
	}
	return u, "", nil
}

// tell renews the lease, or gives the unit back if it is for no time.
func (u *Unit) tell(ctx context.Context, lease time.Duration, state json.RawMessage) error {
	return u.told(ctx, strconv.FormatInt(lease.Milliseconds(), 10), state)
}

func (u *Unit) finish(ctx context.Context, took time.Duration) error {
	err := u.told(ctx, "done "+strconv.FormatInt(took.Milliseconds(), 10), u.State)
	if errors.Is(err, errPaused) || errors.Is(err, ErrAborted) {
		return nil // it is done all the same
	}
	return err
}

func (u *Unit) told(ctx context.Context, what string, state json.RawMessage) error {
	args := []any{u.name, u.token, what, string(state)}
	for _, s := range u.shards {
		args = append(args, s)
	}
	answer, err := tellScript.Run(ctx, u.run.client, []string{u.run.key}, args...).Text()
	switch {
	case err != nil:
		return err
	case answer == "fenced":
		return errFenced
	case answer == Paused:
		return errPaused
	case answer == Aborted:
		return ErrAborted
	}
	return nil
}

// pace returns what keeps all workers at a rate together. It counts n keys, and waits until they
// are due. A worker asks for a tenth of a second of the rate at a time.
func (r *Run) pace(rate int) func(ctx context.Context, n int) error {
	owed := 0
	return func(ctx context.Context, n int) error {
		if owed += n; owed < rate/10 {
			return nil
		}
		ms, err := paceScript.Run(ctx, r.client, []string{r.key}, rate, owed).Int64()
		if err != nil {
			return err
		}
		owed = 0
		return pause(ctx, time.Duration(ms)*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
