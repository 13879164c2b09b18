// Package dictops works on the dictionaries of a registry, a function for each command: [List],
// [Publish], [Activate], [GC] and others. [Train] makes a dictionary.
package dictops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/fleet"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/outfile"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

// Options are the settings of the functions of this package. Each uses some of them.
type Options struct {
	Group string
	ID    frame.DictionaryID
	File  string // of the dictionary to publish
	Force bool   // Activate does not wait, Remove does not look, Import ignores the exported group

	Scan  bool // List looks at every value
	Proof      // of Remove and GC
	Apply bool // GC removes

	Run fleet.Part // of List with Scan, and of GC: in a scan that workers share

	Training string        // file of bale train --json, for Publish
	Dir      string        // of Export and Import
	Period   time.Duration // a new grace period; 0 for none
	Server   string        // id of the server that the registry forgets
}

// Operation is a function of this package.
type Operation[R any] func(context.Context, *registry.Registry, Options) (R, error)

// Run opens the registry for an operation.
func Run[R any](
	ctx context.Context, at registry.Options, o Options, do Operation[R],
) (result R, err error) {
	r, err := registry.Open(ctx, at)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	r.WarnOfLag(ctx)
	return do(ctx, r, o)
}

// List lists the groups and their dictionaries. It is an error if some are missing or damaged.
func List(ctx context.Context, r *registry.Registry, o Options) (*Dictionaries, error) {
	in, err := inventory(ctx, r, o.Group)
	if err != nil {
		return nil, err
	}
	var refs *keyspace.References
	if o.Scan { // passes the registry's keys over, which hold no frames
		options := keyspace.ReferenceOptions{Known: in.IDs(), Skip: keyspace.RegistryKeys(r.Prefix)}
		if o.Run.Name != "" {
			refs, err = listShared(ctx, r, o, options)
		} else {
			refs, err = references(ctx, r, options)
		}
		if err != nil {
			return nil, err
		}
	}
	list := newDictionaries(in, o.Group, refs, time.Now())
	return list, list.Sound()
}

// Shown is a dictionary, without its content.
type Shown struct {
	dictionary *dict.Dictionary
	states     []*dict.State
	until      time.Time // in quarantine
}

// WriteText writes what is known of the dictionary.
func (s *Shown) WriteText(w page.Sheet) { showDictionary(w, s.dictionary, s.states, s.until) }

// Show looks at a dictionary in the registry.
func Show(ctx context.Context, r *registry.Registry, o Options) (_ *Shown, err error) {
	s := &Shown{}
	if s.dictionary, s.until, err = r.Peek(ctx, o.ID); err != nil {
		return nil, err
	}
	states := registry.States{Registry: r}
	err = states.All(ctx, func(st *dict.State) error {
		if e := st.Find(o.ID); e != nil {
			st.Dictionaries = []dict.Entry{*e}
			s.states = append(s.states, st)
		}
		return nil
	})
	if registry.Foreign(err) { // the list of groups
		r.Notef("warning: groups are left out: %s", cli.Message(err))
		err = nil
	}
	states.Warn()
	return s, err
}

// ShowFile looks at a dictionary in a file.
func ShowFile(path string) (*Shown, error) {
	d, err := registry.ReadFile(path)
	return &Shown{dictionary: d}, err
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
	if err := keyspace.TakesWrites(ctx, r.Keys); err != nil { // publishing what is there writes nothing, and would succeed
		return nil, err
	}
	if err := r.Publish(ctx, o.Group, d, info); err != nil {
		return nil, err
	}
	st, err := r.State(ctx, o.Group)
	if err != nil {
		return nil, err
	}
	grace, err := r.Registry.Grace(ctx)
	if err != nil {
		return nil, err
	}
	r.WarnOfEviction(ctx)
	e := st.Find(d.ID())
	if e == nil {
		return nil, fmt.Errorf("dictionary %v was removed from group %q meanwhile", d.ID(), o.Group)
	}
	if fields := e.MayContain(st.Excluded()); len(fields) > 0 {
		r.Notef("warning: another dictionary of %s was made without the contents of %s. This one may contain them. "+
			"If it was trained without them, publish it again with --training FILE. Otherwise remove it: bale dict remove %v %s %s",
			o.Group, strings.Join(fields, ", "), d.ID(), printable.Option("--group", o.Group), r.Flags())
	}
	left := max(0, time.Until(e.Published.Add(grace))).Round(time.Second)
	return &Published{Group: o.Group, Dictionary: d.ID(), Bytes: len(d.Bytes()), Current: st.Current == d.ID(), Grace: left, flags: r.Flags()}, nil
}

// warnOfPlain warns that bytes without a zstd dictionary's header are used as plain content, which
// may be a mistake.
func warnOfPlain(r *registry.Registry, what string, d *dict.Dictionary, group string) {
	if !isZstdDictionary(d) {
		r.Notef("warning: %s has not the format of a zstd dictionary, so all of it is used as plain content. If it is none, take it back: bale dict remove %v %s %s",
			what, d.ID(), printable.Option("--group", group), r.Flags())
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
	var t struct { // of a TrainingJSON: its lists may be very long
		Compress string
		Samples  int
		Ratio    float64
		Without  dict.Measure
		Whole    dict.Measure
		LeftOut  []LeftOut `json:"left_out"`
		Winner   *dict.Candidate
	}
	if err := json.NewDecoder(io.LimitReader(f, maxTraining)).Decode(&t); err != nil {
		return info, fmt.Errorf("%s was not written by bale train --json: %w", path, err)
	}
	if t.Winner == nil || t.Winner.ID != id {
		return info, fmt.Errorf("%s is not about dictionary %v", path, id)
	}
	var fields []string
	for _, l := range t.LeftOut {
		fields = append(fields, l.Field)
	}
	builder := strings.TrimSpace(t.Winner.Builder + " " + t.Winner.Params)
	return dict.Info{Setting: t.Compress, Builder: builder, Samples: t.Samples,
		RatioWithout: t.Without.Ratio(), Ratio: t.Ratio,
		Exclude: (&dict.Training{Exclude: fields}).Info().Exclude, RatioWhole: t.Whole.Ratio()}, nil
}

// Activate makes a published dictionary the one that values are written with, or none.
func Activate(ctx context.Context, r *registry.Registry, o Options) (*Activated, error) {
	if o.ID == 0 { // else the registry has to have it in the group
		if _, err := r.Group(ctx, o.Group); err != nil {
			return nil, err
		}
	}
	if err := keyspace.TakesWrites(ctx, r.Keys); err != nil { // before the grace period is waited for
		return nil, err
	}
	err := r.Activate(ctx, o.Group, o.ID, o.Force)
	if errors.Is(err, dict.ErrGrace) {
		err = fmt.Errorf("%w; --force does not wait", err)
	}
	if err != nil {
		return nil, err
	}
	r.WarnOfEviction(ctx)
	return &Activated{Group: o.Group, Current: o.ID}, nil
}

// Rollback makes the previous dictionary the current one.
func Rollback(ctx context.Context, r *registry.Registry, o Options) (*Activated, error) {
	if _, err := r.Group(ctx, o.Group); err != nil {
		return nil, err
	}
	if err := r.Rollback(ctx, o.Group); err != nil {
		return nil, err
	}
	r.WarnOfEviction(ctx)
	st, err := r.State(ctx, o.Group)
	if err != nil {
		return nil, err
	}
	return &Activated{Group: o.Group, Current: st.Current, Previous: st.Previous, Rollback: true}, nil
}

// Restore brings a dictionary back from quarantine, and puts it into a group if one is given.
func Restore(ctx context.Context, r *registry.Registry, o Options) (*Restored, error) {
	d, err := r.Bring(ctx, o.ID)
	if err == nil && o.Group != "" {
		err = r.Restore(ctx, o.Group, d, dict.Info{})
	}
	if err != nil {
		return nil, err
	}
	r.WarnOfEviction(ctx)
	return &Restored{o.ID, o.Group}, nil
}

// Grace sets the grace period if a new one is given, and shows it.
func Grace(ctx context.Context, r *registry.Registry, o Options) (*GracePeriod, error) {
	if o.Period != 0 {
		if err := r.SetGrace(ctx, o.Period); err != nil {
			return nil, err
		}
	}
	grace, err := r.Registry.Grace(ctx)
	if err != nil {
		return nil, err
	}
	return &GracePeriod{grace}, nil
}

// Forget removes a server from the list of data servers.
func Forget(ctx context.Context, r *registry.Registry, o Options) (*Forgotten, error) {
	if err := r.Forget(ctx, o.Server); err != nil {
		return nil, err
	}
	return &Forgotten{o.Server}, nil
}

// ServerList are the servers whose programs use a registry.
type ServerList struct{ servers []dict.Server }

// MarshalJSON lists the servers.
func (l *ServerList) MarshalJSON() ([]byte, error) {
	return json.Marshal(append([]dict.Server{}, l.servers...))
}

// WriteText writes a table.
func (l *ServerList) WriteText(w page.Sheet) {
	if len(l.servers) == 0 {
		printable.Fprintf(w, "No server has joined this registry.\n")
		return
	}
	t := w.Table(3, "id", "name", "last seen")
	t.Drop = []string{"last seen"}
	for _, s := range l.servers {
		t.Row(s.ID, s.Name, s.Seen.Format(time.RFC3339))
	}
	t.Render()
}

// Servers lists the servers whose programs use the registry.
func Servers(ctx context.Context, r *registry.Registry, _ Options) (*ServerList, error) {
	servers, err := r.Registry.Servers(ctx)
	if err != nil {
		return nil, err
	}
	return &ServerList{servers}, nil
}

// Export writes the dictionaries of a group to the files of a folder. An error about one of them
// does not stop it.
func Export(ctx context.Context, r *registry.Registry, o Options) (_ *Exported, err error) {
	st, err := r.Group(ctx, o.Group)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	before, err := dict.ReadState(os.DirFS(o.Dir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("%s: %w. Nothing was exported: give another --out", o.Dir, err)
	case before.Group != o.Group:
		return nil, fmt.Errorf("%s has the dictionaries of group %q, not of %q. Nothing was exported: give another --out", o.Dir, before.Group, o.Group)
	}
	done := &Exported{}
	var missing error
	for _, entry := range st.Dictionaries {
		d, err := r.Read(ctx, entry.ID)
		if err != nil { // of this one: the copy has the others
			missing = errors.Join(missing, err)
			continue
		}
		path := filepath.Join(o.Dir, d.ID().String()+dict.Extension)
		if err := outfile.Write(path, d.Bytes()); err != nil {
			return done, err
		}
		done.Files = append(done.Files, path)
	}
	b, err := json.MarshalIndent(st, "", "  ")
	if err != nil {
		return done, err
	}
	return done, errors.Join(outfile.Write(filepath.Join(o.Dir, dict.StateFile), append(b, '\n')),
		missing)
}

// Import brings the dictionaries of a folder back into a group. If the group has no current
// dictionary, the exported one becomes that.
func Import(ctx context.Context, r *registry.Registry, o Options) (_ *Imported, err error) {
	all, exported, err := readFolder(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Dir, err)
	}
	if exported.Group != "" && exported.Group != o.Group && !o.Force {
		return nil, fmt.Errorf("%s has the dictionaries of group %q, not of %q: --force imports them all the same",
			o.Dir, exported.Group, o.Group)
	}
	r.WarnOfEviction(ctx)
	// The newest comes last, as when they were published.
	slices.SortStableFunc(all,
		func(a, b *dict.Dictionary) int { return place(exported, b.ID()) - place(exported, a.ID()) })
	done := &Imported{Group: o.Group}
	for _, d := range all {
		var info dict.Info
		if e := exported.Find(d.ID()); e != nil {
			info = e.Info
		} else { // what was exported was published once, and warned of then
			warnOfPlain(r, "dictionary "+d.ID().String(), d, o.Group)
		}
		if err := r.Restore(ctx, o.Group, d, info); err != nil {
			return done, err
		}
		done.Dictionaries = append(done.Dictionaries, d.ID())
	}
	now, err := r.State(ctx, o.Group)
	if err != nil || exported.Current == 0 || now.Current != 0 {
		return done, err
	}
	for _, id := range []frame.DictionaryID{exported.Previous, exported.Current} {
		if id != 0 && now.Find(id) != nil {
			if err := r.Activate(ctx, o.Group, id, true); err != nil {
				return done, err
			}
			done.Activated = &Activated{Group: o.Group, Current: id}
		}
	}
	if now.Find(exported.Current) == nil {
		err = fmt.Errorf("%s has no file of %v, the exported current dictionary; the others are imported. Find it, then: bale dict publish FILE %s, and activate it",
			o.Dir, exported.Current, strings.TrimSpace(printable.Option("--group", o.Group)+" "+r.Flags()))
	}
	return done, err
}

// readFolder reads dictionaries, and their history if the folder has it.
func readFolder(dir string) ([]*dict.Dictionary, *dict.State, error) {
	folder, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	defer folder.Close()
	all, err := dict.ReadFS(folder.FS()) // no link leads out of it, to a file that would be published
	if err != nil {
		return nil, nil, err
	}
	exported, err := dict.ReadState(folder.FS())
	if errors.Is(err, fs.ErrNotExist) {
		return all, &dict.State{}, nil
	}
	return all, exported, err
}

// place is where a dictionary is in a state, the newest first.
func place(s *dict.State, id frame.DictionaryID) int {
	return slices.IndexFunc(s.Dictionaries, func(e dict.Entry) bool { return e.ID == id })
}
