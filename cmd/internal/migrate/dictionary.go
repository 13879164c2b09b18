package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

const (
	autoSample = 20000   // values that a dictionary is trained on, as bale train has it
	autoSize   = 1 << 20 // bytes of the largest dictionary that is tried, likewise
)

// mostNamed is how many groups an error names.
const mostNamed = 5

// The steps of a run that trains.
const (
	sampleStep = 1 + iota
	trainStep
	waitStep // for readers, unless forced
	walkStep
)

// step names a step in the progress of a run that trains.
func (j *job) step(
	progress func(done, total int, what string), step int,
) func(done, total int, what string) {
	of := walkStep
	if j.Dict != Auto || j.resumed {
		return progress
	}
	if j.DryRun || j.Force {
		of, step = of-1, min(step, of-1)
	}
	return cli.Step(progress, step, of)
}

// choose returns the dictionary to pack with, nil for none.
func (j *job) choose(ctx context.Context) (*dict.Dictionary, error) {
	switch {
	case j.Dict == "":
		return nil, nil
	case j.state.Dictionary != 0: // of the run that is resumed
		d, err := j.registry.Read(ctx, j.state.Dictionary)
		if err == nil && j.Dict == Auto {
			err = j.activate(ctx, d.ID(), false)
		}
		return d, err
	case j.Dict == Auto:
		d, published, err := j.train(ctx)
		if err != nil || !published {
			return d, err
		}
		j.state.Dictionary = d.ID()
		if err := j.state.Save(j.Resume); err != nil { // a run that is killed from now on does not train again
			return nil, err
		}
		return d, j.activate(ctx, d.ID(), true)
	}
	id, err := j.named(ctx)
	if err != nil || id == 0 {
		return nil, err
	}
	d, err := j.registry.Read(ctx, id)
	if errors.Is(err, dict.ErrUnknown) {
		return nil, fmt.Errorf("%w (prefix %s), so that no program could read what is packed with it: bale dict publish puts it there", err, j.Prefix)
	}
	return d, err
}

// named is the id of the dictionary that the settings name.
func (j *job) named(ctx context.Context) (frame.DictionaryID, error) {
	if j.Dict != Current {
		return registry.ID(j.Dict)
	}
	st, err := j.registry.State(ctx, j.Group)
	if err != nil {
		return 0, err
	}
	if st.Current == 0 {
		hint := "give --dict ID, or --dict auto to make one"
		if st.Epoch == 0 {
			hint = "there is no such group: bale dict list shows those there are; " + hint
		}
		if i := slices.IndexFunc(st.Dictionaries,
			func(e dict.Entry) bool { return e.Activated.IsZero() }); i >= 0 {
			hint = fmt.Sprintf("%v is published there, and waits for bale dict activate %[1]v %s",
				st.Dictionaries[i].ID, printable.Option("--group", j.Group)+" "+j.registry.Flags())
		}
		return 0, fmt.Errorf("group %q is written with no dictionary: %s", j.Group, hint)
	}
	return st.Current, nil
}

// claim keeps the dictionary in use while the run writes with it: gc removes unused dictionaries. A
// resumed run needs it as a new one does. It is nil for a run without a dictionary.
func (j *job) claim(ctx context.Context) (func(context.Context) (time.Time, error), error) {
	id := j.dictionary.ID()
	if j.dictionary == nil {
		return nil, nil
	}
	group, retired := "", false
	look := func(st *dict.State) error {
		if e := st.Find(id); e != nil && (group == "" || retired) {
			group, retired = st.Group, !e.Retired.IsZero() && id != st.Current && id != st.Previous
		}
		return nil
	}
	var err error
	if j.Group == "" {
		states := registry.States{Registry: j.registry}
		err = states.All(ctx, look)
		states.Warn()
		err = withoutList(err)
	} else if st, failed := j.registry.Group(ctx, j.Group); failed == nil {
		look(st)
	} else if !(j.DryRun && j.Dict == Auto) { // which publishes nothing
		err = failed
	}
	switch {
	case err != nil:
		return nil, err
	case j.DryRun && (group != "" || j.Dict == Auto):
		return nil, nil
	case group == "" && j.Group != "":
		return nil, fmt.Errorf("group %q has no dictionary %v: bale dict list shows what it has", j.Group,
			id)
	case group == "":
		return nil, fmt.Errorf("no group has dictionary %v, and it may be collected: bale dict publish puts it into one", id)
	case retired:
		j.registry.Notef("warning: %s is not written with dictionary %v any more. What this packs can be read, and keeps it from being collected", group, id)
	}
	if err := j.registry.Join(ctx); err != nil { // also before Hold, which needs the registry's settings
		return nil, err
	}
	c := claim{Registry: j.registry.Registry, Group: group, Dictionary: id, Join: j.registry.Join,
		Waiting: func(err error) {
			j.registry.Notef("the registry does not answer, so nothing is written until it does: %v", err)
		}}
	_, err = c.Hold(ctx)
	return c.Hold, err
}

// withoutList adds to an error of the list of groups how a run does without the list.
func withoutList(err error) error {
	if registry.Foreign(err) {
		return fmt.Errorf("%w; give --group NAME: then the list of groups is not needed", err)
	}
	return err
}

// meant returns an error if --dict auto would begin a new, unnamed group while another group leaves
// fields out of its dictionaries: these keys may belong to that group.
func (j *job) meant(ctx context.Context) error {
	if !j.unnamed || j.Dict != Auto {
		return nil
	}
	var careful []string
	there := false
	states := registry.States{Registry: j.registry}
	err := states.All(ctx, func(st *dict.State) error {
		there = there || st.Group == j.Group && st.Epoch != 0
		if st.Epoch == 0 || len(st.Excluded()) > 0 { // nobody knows what one without a state leaves out
			careful = append(careful, strconv.Quote(st.Group))
		}
		return nil
	})
	for _, u := range states.Unread {
		there = there || u.Group == j.Group // training says why it cannot be read
		careful = append(careful, strconv.Quote(u.Group))
	}
	if err != nil || there || len(careful) == 0 {
		return withoutList(err)
	}
	if more := len(careful) - mostNamed; more > 0 {
		careful = append(careful[:mostNamed], fmt.Sprint(more, " more"))
	}
	return fmt.Errorf("group %q does not exist; its name was made from --match. "+
		"These groups leave fields out of their dictionaries, or may do so: %s. "+
		"If programs pack these keys with one of them, give that --group. "+
		"For a new group, give %s, and --exclude for fields that must stay out",
		j.Group, page.Enumerated(careful), printable.Option("--group", j.Group))
}

// train makes a dictionary of the existing values, and publishes it except in a dry run. If no new
// dictionary pays, it returns the group's current one.
func (j *job) train(ctx context.Context) (_ *dict.Dictionary, published bool, err error) {
	st, err := j.registry.State(ctx, j.Group)
	if err != nil {
		return nil, false, err
	}
	var current *dict.Dictionary
	if st.Current != 0 {
		if current, err = j.registry.Read(ctx, st.Current); err != nil {
			return nil, false, err
		}
	}
	before, left := st.Latest(), st.Excluded()
	if len(left) > 0 {
		j.planf("As in the dictionaries of %s, the contents of %s are left out.", j.Group, strings.Join(left, ", "))
	}
	if before == nil && len(st.Dictionaries) > 0 {
		before = &st.Dictionaries[0] // the newest
	}
	if before != nil && before.Info.Builder == "" && len(j.Exclude) == 0 {
		j.registry.Notef("warning: the registry does not know how dictionary %v of group %s was trained. "+
			"If contents of fields were left out of it, give the same --exclude", before.ID, j.Group)
	}
	exclude := slices.Concat(j.Exclude, left)
	if leaks := st.Latest().MayContain(exclude); current != nil && len(leaks) > 0 {
		j.planf("Dictionary %v of %s may have the contents of %s, so the new one need not be better.",
			current.ID(), j.Group, strings.Join(leaks, ", "))
		current = nil
	}
	progress, stop := cli.ShowProgress(j.registry.Err)
	defer stop()
	sample, err := j.registry.Sample(ctx, keyspace.SampleOptions{
		Match: j.Match, Values: autoSample, Size: registry.MaxSampled(autoSize), FewStrings: autoSample,
		Exclude:  exclude,
		Progress: j.step(progress, sampleStep),
	})
	if err != nil {
		return nil, false, err
	}
	warn := func(text string) { stop(); j.registry.Notef("%s", text) }
	if _, err := registry.LeftOut(ctx, sample, j.Exclude, warn); err != nil {
		return nil, false, err
	}
	training, err := dict.Train(ctx, sample.Values, dict.TrainOptions{
		Setting: j.setting.Setting, Engine: j.setting.Engine(),
		MaxSize: autoSize, Values: sample.Most, Exclude: exclude, Current: current,
		Progress: j.step(progress, trainStep),
	})
	stop()
	switch {
	case errors.Is(err, dict.ErrInvalid):
		return nil, false, fmt.Errorf("%w: %w", cli.ErrUsage, err)
	case errors.Is(err, dict.ErrNoDictionary) && current != nil:
		j.planf("The current dictionary of %s, %v, stays: %s.", j.Group, current.ID(), cli.Message(err))
		return current, false, nil
	case errors.Is(err, dict.ErrNoDictionary):
		return nil, false, fmt.Errorf("%w (of %d values). Leave out --dict to pack without one, or give a --match of keys whose values look more alike", err, len(sample.Values))
	case err != nil:
		return nil, false, err
	}
	d := training.Dictionary
	j.planf("Trained dictionary %v of %s on %d values. One of half of them takes the others of %s from a ratio of %.2f to one of %.2f.",
		d.ID(), printable.Size(len(d.Bytes())), max(training.Refitted, training.Samples), j.Group, training.Without.Ratio(), training.With.Ratio())
	if j.DryRun {
		return d, false, nil
	}
	return d, true, j.registry.Publish(ctx, j.Group, d, training.Info())
}

// activate makes a published dictionary the current one, when readers have had the time to fetch
// it. One that was in use before, and was switched off, is activated only if it was trained again:
// a run that goes on does not decide against who switched it off.
func (j *job) activate(ctx context.Context, id frame.DictionaryID, trained bool) error {
	st, err := j.registry.State(ctx, j.Group)
	if err != nil {
		return err
	}
	e := st.Find(id)
	switch {
	case e == nil:
		return fmt.Errorf("dictionary %v is not in group %q any more: start without the file of --resume",
			id, j.Group)
	case st.Current == id:
		return nil
	case !e.Activated.IsZero() && !trained:
		j.registry.Notef("warning: dictionary %v of this run is not the current one of %s any more. "+
			"To write with it again: bale dict activate %[1]v %[3]s %[4]s",
			id, j.Group, printable.Option("--group", j.Group), j.registry.Flags())
		return nil
	}
	grace, err := j.registry.Registry.Grace(ctx)
	if err != nil {
		return err
	}
	until := e.Published.Add(grace)
	if left := time.Until(until); left > 0 && !j.Force && e.Activated.IsZero() {
		j.planf("It is published to %s, and is activated in %v, when readers have it; --force does not wait.", j.Group, left.Round(time.Second))
		progress, stop := cli.ShowProgress(j.registry.Err)
		defer stop()
		progress = j.step(progress, waitStep)
		for left > 0 {
			if progress != nil {
				progress(int((grace - left).Milliseconds()), int(grace.Milliseconds()),
					"waiting for readers")
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(min(left, time.Second)):
			}
			left = time.Until(until)
		}
	}
	if err := j.registry.Activate(ctx, j.Group, id, j.Force); err != nil {
		return err
	}
	j.planf("%s is written with %s now.", j.Group, registry.Named(id))
	return nil
}
