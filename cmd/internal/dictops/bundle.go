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

	"github.com/balekv/bale/cmd/internal/outfile"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

// Exported are the files of a group's dictionaries.
type Exported struct{ paths []string }

// Write writes a line for each file.
func (e *Exported) Write(w io.Writer) {
	for _, path := range e.paths {
		printable.Fprintf(w, "%v\n", path)
	}
}

// Export writes the dictionaries of a group to the files of a folder. An error about one of them
// does not stop it.
func Export(ctx context.Context, r *registry.Registry, o Options) (*Exported, error) {
	states, err := r.States(ctx, o.Group)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	e := &Exported{}
	var missing error
	for _, entry := range states[0].Dictionaries {
		d, err := r.Read(ctx, entry.ID)
		if err != nil { // of this one: the copy has the others
			missing = errors.Join(missing, err)
			continue
		}
		path := filepath.Join(o.Dir, d.ID().String()+dict.Extension)
		if err := outfile.Write(path, d.Bytes()); err != nil {
			return e, err
		}
		e.paths = append(e.paths, path)
	}
	b, err := json.MarshalIndent(states[0], "", "  ")
	if err != nil {
		return e, err
	}
	return e, errors.Join(outfile.Write(filepath.Join(o.Dir, dict.StateFile), append(b, '\n')), missing)
}

// Imported are the dictionaries of a folder that a group has now.
type Imported struct {
	group   string
	ids     []frame.DictionaryID
	current frame.DictionaryID // that became the current one, 0 for none
}

// Write writes a line for each dictionary.
func (i *Imported) Write(w io.Writer) {
	for _, id := range i.ids {
		printable.Fprintf(w, "%v is in %s\n", id, i.group)
	}
	if i.current != 0 {
		(&Switched{group: i.group, to: i.current}).Write(w)
	}
}

// Import publishes the dictionaries of a folder to a group. If the group has no current dictionary,
// the exported one becomes that.
func Import(ctx context.Context, r *registry.Registry, o Options) (*Imported, error) {
	all, exported, err := readFolder(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Dir, err)
	}
	if exported.Group != "" && exported.Group != o.Group && !o.Force {
		return nil, fmt.Errorf("%s has the dictionaries of group %q, not of %q: --force imports them all the same", o.Dir, exported.Group, o.Group)
	}
	i := &Imported{group: o.Group}
	// The newest is published last, as it was.
	slices.SortStableFunc(all, func(a, b *dict.Dictionary) int { return age(exported, b.ID()) - age(exported, a.ID()) })
	for _, d := range all {
		var info dict.Info
		if e := exported.Find(d.ID()); e != nil {
			info = e.Info
		} else { // what was exported was published once, and warned of then
			warnOfPlain(r, "dictionary "+d.ID().String(), d, o.Group)
		}
		if err := r.Publish(ctx, o.Group, d, info); err != nil {
			return i, err
		}
		i.ids = append(i.ids, d.ID())
	}
	now, err := r.State(ctx, o.Group)
	if err != nil || exported.Current == 0 || now.Current != 0 {
		return i, err
	}
	for _, id := range []frame.DictionaryID{exported.Previous, exported.Current} {
		if id != 0 && now.Find(id) != nil {
			if err := r.Activate(ctx, o.Group, id, true); err != nil {
				return i, err
			}
		}
	}
	i.current = exported.Current
	return i, nil
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

// age is the place of a dictionary in a state, the newest first.
func age(s *dict.State, id frame.DictionaryID) int {
	return slices.IndexFunc(s.Dictionaries, func(e dict.Entry) bool { return e.ID == id })
}
