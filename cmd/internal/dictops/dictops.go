// Package dictops works on the dictionaries of a registry, a function for each command: [List],
// [Publish], [Activate], [GC] and others. [Train] makes a dictionary.
package dictops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/cmd/internal/report"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

// Options are the settings of the functions of this package. Each uses some of them.
type Options struct {
	Group string
	ID    frame.DictionaryID
	File  string // of the dictionary to publish
	Force bool   // Activate does not wait, Remove looks at no value, and Import takes those of another group

	Scan  bool // List looks at every value
	Proof      // of Remove and GC
	Apply bool // GC removes

	Training string        // file of bale train --json, for Publish
	Dir      string        // of Export and Import
	Period   time.Duration // a new grace period; 0 for none
	Forget   string        // id of a server that the registry forgets
}

// Run opens the registry for one of the functions of this package.
func Run[R any](ctx context.Context, at registry.Options, o Options, do func(context.Context, *registry.Registry, Options) (R, error)) (result R, err error) {
	r, err := registry.Open(ctx, at)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return do(ctx, r, o)
}

// List lists the groups and their dictionaries. It is an error if some are missing or damaged.
func List(ctx context.Context, r *registry.Registry, o Options) (*report.Dictionaries, error) {
	in, err := inventory(ctx, r, o.Group)
	if err != nil {
		return nil, err
	}
	var refs *keyspace.References
	if o.Scan { // passes the registry's keys over, which hold no frames
		refs, err = references(ctx, r, keyspace.ReferenceOptions{Known: in.IDs(), Skip: keyspace.RegistryKeys(r.Prefix)})
		if err != nil {
			return nil, err
		}
	}
	list := report.NewDictionaries(in, o.Group, refs, time.Now())
	return list, list.Sound()
}

// Shown is a dictionary, without its content.
type Shown struct {
	dictionary *dict.Dictionary
	states     []*dict.State
	until      time.Time // in quarantine
}

// Write writes what is known of the dictionary.
func (s *Shown) Write(w io.Writer) { report.ShowDictionary(w, s.dictionary, s.states, s.until) }

// Show looks at a dictionary in the registry.
func Show(ctx context.Context, r *registry.Registry, o Options) (_ *Shown, err error) {
	s := &Shown{}
	if s.dictionary, s.until, err = r.Peek(ctx, o.ID); err != nil {
		return nil, err
	}
	s.states, err = r.States(ctx, "")
	return s, err
}

// ShowFile looks at a dictionary in a file.
func ShowFile(path string) (*Shown, error) {
	d, err := registry.ReadFile(path)
	return &Shown{dictionary: d}, err
}

// Published is a dictionary that was put into a group.
type Published struct {
	dictionary *dict.Dictionary
	group      string
	current    bool
	grace      time.Duration
	at, prefix string // of the registry
}

// Write writes the next step.
func (p *Published) Write(w io.Writer) {
	id := p.dictionary.ID()
	printable.Fprintf(w, "Dictionary %v, %d bytes, is published to %s", id, len(p.dictionary.Bytes()), p.group)
	if p.current {
		printable.Fprintf(w, ", which is written with it already.\n")
		return
	}
	printable.Fprintf(w, ". Activate it in %v:\n  bale dict activate %v %s %s %s\n",
		p.grace, id, printable.Option("--group", p.group), printable.Option("--redis", p.at), printable.Option("--prefix", p.prefix))
}

// Publish puts the dictionary of a file into a group.
func Publish(ctx context.Context, r *registry.Registry, o Options) (*Published, error) {
	d, err := registry.ReadFile(o.File)
	if err != nil {
		return nil, err
	}
	info, err := trainingInfo(o.Training, d.ID())
	if err != nil {
		return nil, err
	}
	if o.Training == "" {
		warnOfPlain(r, o.File, d, o.Group)
	}
	p := &Published{dictionary: d, group: o.Group, at: keyspace.Redact(r.At()), prefix: r.Prefix}
	if err := r.Publish(ctx, o.Group, d, info); err != nil {
		return nil, err
	}
	st, err := r.State(ctx, o.Group)
	if err != nil {
		return nil, err
	}
	p.current = st.Current == d.ID()
	if p.grace, err = r.Registry.Grace(ctx); err != nil {
		return nil, err
	}
	r.WarnOfEviction(ctx)
	return p, nil
}

// warnOfPlain warns that bytes without a zstd dictionary's header are used as plain content, which
// may be a mistake.
func warnOfPlain(r *registry.Registry, what string, d *dict.Dictionary, group string) {
	if !report.IsZstdDictionary(d) {
		r.Notef("warning: %s has not the format of a zstd dictionary, so all of it is used as plain content. If it is none, take it back: bale dict remove %v %s",
			what, d.ID(), printable.Option("--group", group))
	}
}

// maxTraining is what is read of a file of bale train --json: one has some KB. Of a longer one the
// JSON ends too early.
const maxTraining = 4 << 20

// trainingInfo is what bale train found out about a dictionary, nothing without a file.
func trainingInfo(path string, id frame.DictionaryID) (info dict.Info, err error) {
	if path == "" {
		return info, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return info, err
	}
	defer f.Close()
	var t report.TrainingJSON
	if err := json.NewDecoder(io.LimitReader(f, maxTraining)).Decode(&t); err != nil {
		return info, fmt.Errorf("%s: %w", path, err)
	}
	if t.Winner == nil || t.Winner.ID != id {
		return info, fmt.Errorf("%s is not about dictionary %v", path, id)
	}
	builder := strings.TrimSpace(t.Winner.Builder + " " + t.Winner.Params)
	return dict.Info{Setting: t.Compress, Builder: builder, Samples: t.Samples, RatioWithout: t.Without.Ratio(), Ratio: t.Ratio}, nil
}

// Switched is a group whose values are written with another dictionary from now on.
type Switched struct {
	group    string
	to       frame.DictionaryID
	back     bool // to the one before
	previous frame.DictionaryID
}

// Write writes the dictionary.
func (s *Switched) Write(w io.Writer) {
	if s.back {
		printable.Fprintf(w, "%s is written with %s again, and no more with %s.\n", s.group, registry.Named(s.to), registry.Named(s.previous))
		return
	}
	printable.Fprintf(w, "%s is written with %s now.\n", s.group, registry.Named(s.to))
}

// Activate makes a published dictionary the one that values are written with.
func Activate(ctx context.Context, r *registry.Registry, o Options) (*Switched, error) {
	err := r.Activate(ctx, o.Group, o.ID, o.Force)
	if errors.Is(err, dict.ErrGrace) {
		err = fmt.Errorf("%w; --force does not wait", err)
	}
	if err != nil {
		return nil, err
	}
	return &Switched{group: o.Group, to: o.ID}, nil
}

// Rollback makes the previous dictionary the current one.
func Rollback(ctx context.Context, r *registry.Registry, o Options) (*Switched, error) {
	if _, err := r.States(ctx, o.Group); err != nil {
		return nil, err
	}
	if err := r.Rollback(ctx, o.Group); err != nil {
		return nil, err
	}
	st, err := r.State(ctx, o.Group)
	if err != nil {
		return nil, err
	}
	return &Switched{group: o.Group, to: st.Current, back: true, previous: st.Previous}, nil
}

// Restored is a dictionary that is in the registry again.
type Restored struct {
	id    frame.DictionaryID
	group string // empty for none
}

// Write writes the place of the dictionary.
func (r *Restored) Write(w io.Writer) {
	if r.group == "" {
		printable.Fprintf(w, "%v is in the registry. No group has it: --group publishes it to one.\n", r.id)
	} else {
		printable.Fprintf(w, "%v is in the registry, published to %s.\n", r.id, r.group)
	}
}

// Restore brings a dictionary back from quarantine, and publishes it to a group if one is given.
func Restore(ctx context.Context, r *registry.Registry, o Options) (*Restored, error) {
	d, err := r.Fetch(ctx, o.ID)
	if err == nil && o.Group != "" {
		err = r.Publish(ctx, o.Group, d, dict.Info{})
	}
	if err != nil {
		return nil, err
	}
	return &Restored{o.ID, o.Group}, nil
}

// GracePeriod is that of a registry.
type GracePeriod time.Duration

// Write writes the period.
func (g GracePeriod) Write(w io.Writer) {
	printable.Fprintf(w, "The grace period is %v.\n", time.Duration(g))
}

// Grace returns the grace period, after setting it if a new one is given.
func Grace(ctx context.Context, r *registry.Registry, o Options) (GracePeriod, error) {
	if o.Period != 0 {
		if err := r.SetGrace(ctx, o.Period); err != nil {
			return 0, err
		}
	}
	grace, err := r.Registry.Grace(ctx)
	return GracePeriod(grace), err
}

// ServerList are the servers whose programs use a registry.
type ServerList struct {
	servers   []dict.Server
	forgotten string // id of the one that the registry forgot, empty for none
}

// MarshalJSON lists the servers.
func (l *ServerList) MarshalJSON() ([]byte, error) {
	return json.Marshal(append([]dict.Server{}, l.servers...))
}

// Write writes a table.
func (l *ServerList) Write(w io.Writer) {
	switch {
	case l.forgotten != "":
		printable.Fprintf(w, "%s is forgotten.\n", l.forgotten)
		return
	case len(l.servers) == 0:
		printable.Fprintf(w, "No server has joined this registry.\n")
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	printable.Fprintf(t, "id\tname\tlast seen\n")
	for _, s := range l.servers {
		printable.Fprintf(t, "%s\t%s\t%s\n", s.ID, s.Name, s.Seen.Format(time.RFC3339))
	}
	t.Flush()
}

// Servers lists the servers whose programs use the registry, or forgets one.
func Servers(ctx context.Context, r *registry.Registry, o Options) (*ServerList, error) {
	l := &ServerList{forgotten: o.Forget}
	var err error
	if o.Forget != "" {
		err = r.Forget(ctx, o.Forget)
	} else {
		l.servers, err = r.Registry.Servers(ctx)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}
