package main

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
	"github.com/balekv/bale/cmd/internal/dictionaries"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/outfile"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

// dictCommand is bale dict and what is below it.
type dictCommand struct {
	List     dictList     `cmd:"" help:"Show groups and their dictionaries; with --scan, what values refer to them."`
	Show     dictShow     `cmd:"" help:"Show what is known of one dictionary, in a registry or a file."`
	Publish  dictPublish  `cmd:"" help:"Put a dictionary into a group, for readers to fetch."`
	Activate dictActivate `cmd:"" help:"Make a published dictionary the one that values are written with."`
	Rollback dictRollback `cmd:"" help:"Write with the dictionary before the current one again."`
	Remove   dictRemove   `cmd:"" help:"Take back a dictionary that no value refers to."`
	GC       dictGC       `cmd:"" name:"gc" help:"Remove the dictionaries that no value refers to any more."`
	Restore  dictRestore  `cmd:"" help:"Bring a removed dictionary back from quarantine."`
	Grace    dictGrace    `cmd:"" help:"Show or set the registry's grace period."`
	Servers  dictServers  `cmd:"" help:"Show or forget the servers whose programs use the registry."`
	Export   dictExport   `cmd:"" help:"Write the dictionaries of a group to files, to be bundled with a program or imported."`
	Import   dictImport   `cmd:"" help:"Put the dictionaries of a folder into the registry."`
}

type groupFlag struct {
	Group string `required:"" placeholder:"NAME" help:"The group: a name for keys whose values look alike, such as user:profile."`
}

type dictList struct {
	dataFlags
	Group string `placeholder:"NAME" help:"This group alone."`
	Scan  bool   `help:"Look at every value, for what refers to each dictionary and the ratio it has now."`
	JSON  bool   `name:"json" help:"Write JSON."`
}

// Help is shown below the options.
func (dictList) Help() string {
	return `The bytes of each dictionary are read and compared with its id. The exit status is 1 if some are missing or damaged.

Examples:
  bale dict list
  bale dict list --redis redis://127.0.0.1:6379 --group user:profile --scan`
}

// Run lists.
func (c *dictList) Run(ctx context.Context, s *cli.Streams) error {
	if !c.Scan && c.Registry != "" { // no value is read
		c.Redis = []string{c.Registry}
	}
	if err := c.check(); err != nil {
		return err
	}
	servers, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer servers.close()
	in, err := servers.inventory(ctx, c.Group)
	if err != nil {
		return err
	}
	var refs *keyspace.References
	if c.Scan {
		if refs, err = servers.references(ctx, "dict list", keyspace.ReferenceOptions{Known: in.IDs(), Pace: c.pace(s.Err, "dict list")}, s); err != nil {
			return err
		}
	}
	list := dictionaries.NewDictionaries(in, c.Group, refs, time.Now())
	if !c.JSON {
		list.Write(s.Out)
	} else if err := printable.WriteJSON(s.Out, list); err != nil {
		return err
	}
	return list.Sound()
}

func groupStates(ctx context.Context, r *dict.Registry, group string) ([]*dict.State, error) {
	names := []string{group}
	if group == "" {
		var err error
		if names, err = r.Groups(ctx); err != nil {
			return nil, err
		}
	}
	var states []*dict.State
	for _, name := range names {
		st, err := r.State(ctx, name)
		if err != nil {
			return nil, err
		}
		if st.Epoch == 0 && group != "" {
			return nil, fmt.Errorf("there is no group %q", name)
		}
		states = append(states, st)
	}
	return states, nil
}

type dictShow struct {
	dictFlags
	Dictionary string `arg:"" name:"id|file" help:"The dictionary: its id, or its file."`
}

// Help is shown below the options.
func (dictShow) Help() string {
	return `Examples:
  bale dict show 0a1b2c3d
  bale dict show users.dict`
}

// Run shows. It never writes the dictionary's content, which is pieces of values.
func (c *dictShow) Run(ctx context.Context, s *cli.Streams) error {
	if _, err := os.Stat(c.Dictionary); err == nil {
		d, err := readDictionary(c.Dictionary)
		if err != nil {
			return err
		}
		dictionaries.ShowDictionary(s.Out, d, nil, time.Time{})
		return nil
	}
	id, err := idOf(c.Dictionary)
	if err != nil {
		return err
	}
	return c.with(ctx, func(servers *redisServers) error {
		r := servers.registry
		d, until, err := servers.look(ctx, id)
		if err != nil {
			return err
		}
		states, err := groupStates(ctx, r, "")
		if err != nil {
			return err
		}
		dictionaries.ShowDictionary(s.Out, d, states, until)
		return nil
	})
}

type dictPublish struct {
	dictFlags
	groupFlag
	File     string `arg:"" type:"existingfile" help:"The dictionary, as bale train writes it."`
	Training string `placeholder:"FILE" type:"existingfile" help:"What bale train --json said of it: its ratio is what the live one is compared with."`
}

// Help is shown below the options.
func (dictPublish) Help() string {
	return `Readers fetch it; writers use it once it is activated. Whoever can read the registry can read the pieces of values that a dictionary is made of. A file of any other format than a zstd dictionary's is used as plain content: pieces that values have in common.

Examples:
  bale dict publish users.dict --group user:profile
  bale dict publish users.dict --group user:profile --training users.json`
}

// Run publishes.
func (c *dictPublish) Run(ctx context.Context, s *cli.Streams) error {
	d, err := readDictionary(c.File)
	if err != nil {
		return err
	}
	info, err := c.info(d)
	if err != nil {
		return err
	}
	return c.with(ctx, func(servers *redisServers) error {
		r := servers.registry
		if c.Training == "" {
			warnOfPlain(s.Err, "publish", c.File, d, c.Group)
		}
		if err := r.Publish(ctx, c.Group, d, info); err != nil {
			return usageIfInvalid(err)
		}
		grace, err := r.Grace(ctx)
		if err != nil {
			return err
		}
		servers.warnOfDanger(ctx, s.Err, "dict publish")
		printable.Fprintf(s.Out, "Dictionary %v, %d bytes, is published to %s. Activate it in %v:\n  bale dict activate %v %s %s %s\n",
			d.ID(), len(d.Bytes()), c.Group, grace, d.ID(), printable.Option("--group", c.Group), printable.Option("--redis", keyspace.Redact(c.at())), printable.Option("--prefix", c.Prefix))
		return nil
	})
}

// warnOfPlain warns that bytes without a zstd dictionary's header are used as plain content, which
// may be a mistake.
func warnOfPlain(w io.Writer, verb, what string, d *dict.Dictionary, group string) {
	if !dictionaries.IsZstdDictionary(d) {
		printable.Fprintf(w, "bale dict %s: warning: %s has not the format of a zstd dictionary, so all of it is used as plain content. If it is none, take it back: bale dict remove %v %s\n",
			verb, what, d.ID(), printable.Option("--group", group))
	}
}

// maxTraining is what is read of a file of bale train --json: one has some KB. Of a longer one the
// JSON ends too early.
const maxTraining = 4 << 20

func (c *dictPublish) info(d *dict.Dictionary) (dict.Info, error) {
	if c.Training == "" {
		return dict.Info{}, nil
	}
	b, err := readStart(c.Training, maxTraining)
	if err != nil {
		return dict.Info{}, err
	}
	var t dictionaries.TrainingJSON
	if err := json.Unmarshal(b, &t); err != nil {
		return dict.Info{}, fmt.Errorf("%s: %w", c.Training, err)
	}
	if t.Winner == nil || t.Winner.ID != d.ID() {
		return dict.Info{}, fmt.Errorf("%s is not about dictionary %v", c.Training, d.ID())
	}
	return dict.Info{Setting: t.Compress, Builder: strings.TrimSpace(t.Winner.Builder + " " + t.Winner.Params), Samples: t.Samples, RatioWithout: t.Without.Ratio(), Ratio: t.Ratio}, nil
}

func usageIfInvalid(err error) error {
	if errors.Is(err, dict.ErrInvalid) {
		return fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	return err
}

type dictActivate struct {
	dictFlags
	groupFlag
	ID    string `arg:"" name:"id|file" help:"The dictionary: its id, or its file; none to write without one."`
	Force bool   `help:"Do not wait for the grace period: readers that do not have it yet will fetch it when they meet it."`
}

// Help is shown below the options.
func (dictActivate) Help() string {
	return `Examples:
  bale dict activate 0a1b2c3d --group user:profile
  bale dict activate users.dict --group user:profile
  bale dict activate none --group user:profile`
}

// Run activates.
func (c *dictActivate) Run(ctx context.Context, s *cli.Streams) error {
	id, err := idOf(c.ID)
	if err != nil {
		return err
	}
	return c.with(ctx, func(servers *redisServers) error {
		r := servers.registry
		err := r.Activate(ctx, c.Group, id, c.Force)
		if errors.Is(err, dict.ErrGrace) {
			return fmt.Errorf("%w; --force does not wait", err)
		}
		if err != nil {
			return usageIfInvalid(err)
		}
		printable.Fprintf(s.Out, "%s is written with %s now.\n", c.Group, named(id))
		return nil
	})
}

// idOf is an id as it is written, or that of the dictionary in a file.
func idOf(s string) (frame.DictionaryID, error) {
	if _, err := os.Stat(s); err == nil {
		d, err := readDictionary(s)
		if err != nil {
			return 0, err
		}
		return d.ID(), nil
	}
	id, err := frame.ParseDictionaryID(s)
	if err != nil {
		return 0, fmt.Errorf("%w: there is no file %q, and it is no dictionary id: eight lower-case hexadecimal digits", cli.ErrUsage, s)
	}
	return id, nil
}

func named(id frame.DictionaryID) string {
	if id == 0 {
		return "no dictionary"
	}
	return "dictionary " + id.String()
}

type dictRollback struct {
	dictFlags
	groupFlag
}

// Help is shown below the options.
func (dictRollback) Help() string {
	return `What was written with the present dictionary stays readable.

Examples:
  bale dict rollback --group user:profile`
}

// Run rolls back.
func (c *dictRollback) Run(ctx context.Context, s *cli.Streams) error {
	return c.with(ctx, func(servers *redisServers) error {
		r := servers.registry
		if _, err := groupStates(ctx, r, c.Group); err != nil {
			return usageIfInvalid(err)
		}
		if err := r.Rollback(ctx, c.Group); err != nil {
			return usageIfInvalid(err)
		}
		st, err := r.State(ctx, c.Group)
		if err != nil {
			return err
		}
		printable.Fprintf(s.Out, "%s is written with %s again, and no more with %s.\n", c.Group, named(st.Current), named(st.Previous))
		return nil
	})
}

type dictExport struct {
	dictFlags
	groupFlag
	Out string `required:"" placeholder:"DIR" help:"The folder that they go to."`
}

// Help is shown below the options.
func (dictExport) Help() string {
	return `Each dictionary becomes a file ID.dict, beside group.json with their history. If one cannot be read, the command exports the others and fails. A program can bring them along: see dict.ReadFS.

Examples:
  bale dict export --group user:profile --out dictionaries`
}

// Run exports.
func (c *dictExport) Run(ctx context.Context, s *cli.Streams) error {
	return c.with(ctx, func(servers *redisServers) error {
		r := servers.registry
		states, err := groupStates(ctx, r, c.Group)
		if err != nil {
			return usageIfInvalid(err)
		}
		if err := os.MkdirAll(c.Out, 0o700); err != nil {
			return err
		}
		defer servers.sayQuarantined(s.Err, "dict export")
		var missing error
		for _, e := range states[0].Dictionaries {
			d, err := servers.fetch(ctx, e.ID)
			if err != nil { // of this one: the copy has the others
				missing = errors.Join(missing, err)
				continue
			}
			path := filepath.Join(c.Out, d.ID().String()+dict.Extension)
			if err := outfile.Write(path, d.Bytes()); err != nil {
				return err
			}
			printable.Fprintf(s.Out, "%v\n", path)
		}
		b, err := json.MarshalIndent(states[0], "", "  ")
		if err != nil {
			return err
		}
		return errors.Join(outfile.Write(filepath.Join(c.Out, dict.StateFile), append(b, '\n')), missing)
	})
}

type dictImport struct {
	dictFlags
	groupFlag
	Dir string `arg:"" type:"existingdir" help:"A folder with files *.dict, as bale dict export writes it."`
}

// Help is shown below the options.
func (dictImport) Help() string {
	return `Dictionaries that are there already stay as they are. Where the folder has a group.json and the group has no current dictionary, the exported one becomes that. Only regular files count, and no link leads out of the folder.

Examples:
  bale dict import dictionaries --group user:profile`
}

// Run imports.
func (c *dictImport) Run(ctx context.Context, s *cli.Streams) error {
	folder, err := os.OpenRoot(c.Dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	all, err := dict.ReadFS(folder.FS()) // no link leads out of it, to a file that would be published
	if err != nil {
		return fmt.Errorf("%s: %w", c.Dir, err)
	}
	exported, err := dict.ReadState(folder.FS())
	if errors.Is(err, fs.ErrNotExist) {
		exported, err = &dict.State{}, nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.Dir, err)
	}
	return c.with(ctx, func(servers *redisServers) error {
		r := servers.registry
		// The newest is published last, as it was.
		slices.SortStableFunc(all, func(a, b *dict.Dictionary) int { return age(exported, b.ID()) - age(exported, a.ID()) })
		for _, d := range all {
			var info dict.Info
			e := exported.Find(d.ID())
			if e != nil {
				info = e.Info
			}
			if e == nil { // what was exported was published once, and warned of then
				warnOfPlain(s.Err, "import", "dictionary "+d.ID().String(), d, c.Group)
			}
			if err := r.Publish(ctx, c.Group, d, info); err != nil {
				return usageIfInvalid(err)
			}
			printable.Fprintf(s.Out, "%v is in %s\n", d.ID(), c.Group)
		}
		now, err := r.State(ctx, c.Group)
		if err != nil || exported.Current == 0 || now.Current != 0 {
			return err
		}
		for _, id := range []frame.DictionaryID{exported.Previous, exported.Current} {
			if id != 0 && now.Find(id) != nil {
				if err := r.Activate(ctx, c.Group, id, true); err != nil {
					return err
				}
			}
		}
		printable.Fprintf(s.Out, "%s is written with %s now.\n", c.Group, named(exported.Current))
		return nil
	})
}

// age is the place of a dictionary in a state, the newest first.
func age(s *dict.State, id frame.DictionaryID) int {
	return slices.IndexFunc(s.Dictionaries, func(e dict.Entry) bool { return e.ID == id })
}
