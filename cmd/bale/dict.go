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

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/bale/internal/keyspace"
	"github.com/balekv/bale/cmd/bale/internal/report"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/goredis"
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
	Export   dictExport   `cmd:"" help:"Write the dictionaries of a group to files, to be bundled with a program or imported."`
	Import   dictImport   `cmd:"" help:"Put the dictionaries of a folder into the registry."`
}

// registryFlags say where the registry is.
type registryFlags struct {
	Redis  string        `default:"redis://127.0.0.1:6379" placeholder:"URL" help:"The Redis, or a node of the cluster, that the registry is in. Default: ${default}."`
	Prefix string        `default:"bale:dict:" placeholder:"TEXT" help:"What the registry's keys start with. Default: ${default}."`
	Grace  time.Duration `default:"1m" placeholder:"D" help:"How long after publishing a dictionary may be activated, and six times as long after it was used last removed. Default: ${default}."`
}

// open connects to the registry.
func (f *registryFlags) open(ctx context.Context) (*dict.Registry, redis.UniversalClient, error) {
	client, err := keyspace.Open(ctx, f.Redis)
	if err != nil {
		return nil, nil, err
	}
	grace := f.Grace
	if grace == 0 {
		grace = time.Nanosecond // zero would be the default
	}
	r, err := dict.NewRegistry(goredis.NewDictStore(client), dict.RegistryOptions{Prefix: f.Prefix, Grace: grace})
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%w: %w", errUsage, err), client.Close())
	}
	return r, client, nil
}

// with opens the registry for as long as f runs.
func (f *registryFlags) with(ctx context.Context, do func(*dict.Registry) error) error {
	r, client, err := f.open(ctx)
	if err != nil {
		return err
	}
	return errors.Join(do(r), client.Close())
}

type groupFlag struct {
	Group string `required:"" placeholder:"NAME" help:"The group: a name for keys whose values look alike, such as user:profile."`
}

type scanFlags struct {
	MaxRate int `default:"10000" placeholder:"N" help:"How many keys a second a scan looks at, at most; 0 for no limit. Default: ${default}."`
}

type dictList struct {
	registryFlags
	scanFlags
	Group string `placeholder:"NAME" help:"This group alone."`
	Scan  bool   `help:"Look at every value of the server, for what refers to each dictionary and the ratio it has now."`
	JSON  bool   `name:"json" help:"Write JSON."`
}

// Help is shown below the options.
func (dictList) Help() string {
	return `Examples:
  bale dict list
  bale dict list --redis redis://127.0.0.1:6379 --group user:profile --scan`
}

// Run lists.
func (c *dictList) Run(ctx context.Context, s *streams) error {
	r, client, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	states, err := groupStates(ctx, r, c.Group)
	if err != nil {
		return err
	}
	var refs *keyspace.References
	if c.Scan {
		if refs, err = findReferences(ctx, client, c.Prefix, c.MaxRate, s); err != nil {
			return err
		}
	}
	list := report.NewDictionaries(states, refs, c.Prefix, time.Now())
	if c.JSON {
		return report.WriteJSON(s.out, list)
	}
	list.Write(s.out)
	return nil
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

// findReferences scans the server but for the registry's own keys, with progress.
func findReferences(ctx context.Context, client redis.UniversalClient, prefix string, rate int, s *streams) (*keyspace.References, error) {
	progress, stop := showProgress(s.err)
	defer stop()
	total, err := keyspace.Count(ctx, client)
	if err != nil {
		return nil, err
	}
	return keyspace.FindReferences(ctx, client, "", prefix, rate, func(keys int64) {
		if progress != nil {
			progress(int(keys), int(max(total, keys, 1)), fmt.Sprintf("%d keys looked at", keys))
		}
	})
}

type dictShow struct {
	registryFlags
	Dictionary string `arg:"" name:"id|file" help:"The dictionary: its id, or its file."`
}

// Help is shown below the options.
func (dictShow) Help() string {
	return `Examples:
  bale dict show 0a1b2c3d
  bale dict show users.dict`
}

// Run shows. It never writes the dictionary's content, which is pieces of values.
func (c *dictShow) Run(ctx context.Context, s *streams) error {
	if _, err := os.Stat(c.Dictionary); err == nil {
		d, err := readDictionary(c.Dictionary)
		if err != nil {
			return err
		}
		report.ShowDictionary(s.out, d, nil)
		return nil
	}
	id, err := idOf(c.Dictionary)
	if err != nil {
		return err
	}
	return c.with(ctx, func(r *dict.Registry) error {
		d, err := r.Fetch(ctx, id)
		if err != nil {
			return err
		}
		states, err := groupStates(ctx, r, "")
		if err != nil {
			return err
		}
		report.ShowDictionary(s.out, d, states)
		return nil
	})
}

type dictPublish struct {
	registryFlags
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
func (c *dictPublish) Run(ctx context.Context, s *streams) error {
	d, err := readDictionary(c.File)
	if err != nil {
		return err
	}
	info, err := c.info(d)
	if err != nil {
		return err
	}
	return c.with(ctx, func(r *dict.Registry) error {
		if err := r.Publish(ctx, c.Group, d, info); err != nil {
			return usageIfInvalid(err)
		}
		if c.Training == "" {
			warnOfPlain(s.err, "publish", c.File, d, c.Group)
		}
		fmt.Fprintf(s.out, "Dictionary %v, %d bytes, is published to %s. Activate it in %v:\n  bale dict activate %v --group %s --redis %s --prefix %s --grace %v\n",
			d.ID(), len(d.Bytes()), c.Group, c.Grace, d.ID(), c.Group, keyspace.Redact(c.Redis), c.Prefix, c.Grace)
		return nil
	})
}

// warnOfPlain says of what is no zstd dictionary that it is used as plain content, which may have been meant otherwise.
func warnOfPlain(w io.Writer, verb, what string, d *dict.Dictionary, group string) {
	if !report.IsZstdDictionary(d) {
		fmt.Fprintf(w, "bale dict %s: warning: %s has not the format of a zstd dictionary, so all of it is used as plain content. If it is none, take it back: bale dict remove %v --group %s\n",
			verb, what, d.ID(), group)
	}
}

func (c *dictPublish) info(d *dict.Dictionary) (dict.Info, error) {
	if c.Training == "" {
		return dict.Info{}, nil
	}
	b, err := os.ReadFile(c.Training)
	if err != nil {
		return dict.Info{}, err
	}
	var t report.TrainingJSON
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
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	return err
}

type dictActivate struct {
	registryFlags
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
func (c *dictActivate) Run(ctx context.Context, s *streams) error {
	id, err := idOf(c.ID)
	if err != nil {
		return err
	}
	return c.with(ctx, func(r *dict.Registry) error {
		err := r.Activate(ctx, c.Group, id, c.Force)
		if errors.Is(err, dict.ErrGrace) {
			return fmt.Errorf("%w; --force does not wait", err)
		}
		if err != nil {
			return usageIfInvalid(err)
		}
		fmt.Fprintf(s.out, "%s is written with %s now.\n", c.Group, named(id))
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
		return 0, fmt.Errorf("%w: there is no file %q, and it is no dictionary id: eight lower-case hexadecimal digits", errUsage, s)
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
	registryFlags
	groupFlag
}

// Help is shown below the options.
func (dictRollback) Help() string {
	return `What was written with the present dictionary stays readable.

Examples:
  bale dict rollback --group user:profile`
}

// Run rolls back.
func (c *dictRollback) Run(ctx context.Context, s *streams) error {
	return c.with(ctx, func(r *dict.Registry) error {
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
		fmt.Fprintf(s.out, "%s is written with %s again, and no more with %s.\n", c.Group, named(st.Current), named(st.Previous))
		return nil
	})
}

type dictRemove struct {
	registryFlags
	scanFlags
	groupFlag
	ID    string `arg:"" name:"id|file" help:"The dictionary: its id, or its file."`
	Force bool   `help:"Remove it without a look at the values: those that were written with it cannot be read any more."`
}

// Help is shown below the options.
func (dictRemove) Help() string {
	return `For what was published by mistake. The current and the previous dictionary stay, and one that was retired less than six grace periods ago; every value of every type in every database of the server is looked at, and one that a value refers to stays, too. Values elsewhere, in a backup or another Redis, are not seen.

Examples:
  bale dict remove 0a1b2c3d --group user:profile
  bale dict remove wrong.dict --group user:profile`
}

// Run removes.
func (c *dictRemove) Run(ctx context.Context, s *streams) error {
	id, err := idOf(c.ID)
	if err != nil {
		return err
	}
	r, client, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	states, err := groupStates(ctx, r, c.Group)
	if err != nil {
		return usageIfInvalid(err)
	}
	st := states[0]
	e := st.Find(id)
	switch {
	case e == nil:
		return fmt.Errorf("%s has no dictionary %v: bale dict list shows what it has", c.Group, id)
	case id == st.Current:
		return fmt.Errorf("%v is what %s is written with: activate another one, or none, first", id, c.Group)
	case id == st.Previous:
		return fmt.Errorf("%v is what a rollback of %s goes back to: it stays until it is neither the current nor the previous one", id, c.Group)
	}
	why := "without a look at the values"
	if !c.Force {
		if why, err = c.prove(ctx, s, r, client, st, e); err != nil {
			return err
		}
	}
	if err := r.Remove(ctx, c.Group, id); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "%v of %s is removed: %s\n", id, c.Group, why)
	return nil
}

// prove says why nothing is lost with a dictionary, or is an error.
func (c *dictRemove) prove(ctx context.Context, s *streams, r *dict.Registry, client redis.UniversalClient, st *dict.State, e *dict.Entry) (string, error) {
	if !e.Activated.IsZero() && !slices.Contains(r.Collectable(st), e.ID) {
		return "", fmt.Errorf("%v was retired less than six grace periods of %v ago: some writer may still use it", e.ID, c.Grace)
	}
	all, err := groupStates(ctx, r, "")
	if err != nil {
		return "", err
	}
	for _, other := range all {
		if other.Group != st.Group && other.Find(e.ID) != nil {
			return fmt.Sprintf("%s keeps it", other.Group), nil
		}
	}
	refs, err := findReferences(ctx, client, c.Prefix, c.MaxRate, s)
	if err != nil {
		return "", err
	}
	if ref := refs.ByID[e.ID]; ref != nil {
		return "", fmt.Errorf("%v stays: %d values refer to it, and could not be read without it; --force removes it all the same", e.ID, ref.Values)
	}
	return fmt.Sprintf("no value of %d keys refers to it", refs.Keys), nil
}

type dictGC struct {
	registryFlags
	scanFlags
	Apply bool `help:"Remove them. Without it nothing is changed."`
}

// Help is shown below the options.
func (dictGC) Help() string {
	return `Every value of every type in every database of the server is looked at. Current and previous dictionaries stay, and those that were never activated. Values elsewhere, in a backup or another Redis, are not seen: export first what they may need.

Examples:
  bale dict gc
  bale dict gc --apply`
}

// allListed: a group that the registry has and its list of groups has not would lose what it is written with.
func (c *dictGC) allListed(ctx context.Context, r *dict.Registry, client redis.UniversalClient, states []*dict.State) error {
	listed := map[string]bool{}
	for _, st := range states {
		listed[r.GroupKey(st.Group)] = true
	}
	return keyspace.Walk(ctx, client, r.GroupKey(""), "string", c.MaxRate, func(_ context.Context, _ *redis.Client, keys []string) (keyspace.Next, error) {
		for _, k := range keys {
			if !listed[k] {
				return keyspace.Stop, fmt.Errorf("%q is a group of the registry that is not on its list of groups, which was lost in part: nothing is removed. A program that has the group open puts it back within its Poll; so does publishing one of its dictionaries again",
					strings.TrimPrefix(k, strings.TrimSuffix(r.GroupKey(""), "*")))
			}
		}
		return keyspace.More, nil
	})
}

// Run collects.
func (c *dictGC) Run(ctx context.Context, s *streams) error {
	r, client, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	type candidate struct {
		group string // empty for one that no group has
		id    frame.DictionaryID
	}
	var candidates []candidate
	states, err := groupStates(ctx, r, "")
	if err != nil {
		return err
	}
	if err := c.allListed(ctx, r, client, states); err != nil {
		return err
	}
	known := map[frame.DictionaryID]bool{}
	for _, st := range states {
		for _, e := range st.Dictionaries {
			known[e.ID] = true
		}
		for _, id := range r.Collectable(st) {
			candidates = append(candidates, candidate{st.Group, id})
		}
	}
	prefix := strings.TrimSuffix(r.DataKey(0), "*")
	if err := keyspace.Walk(ctx, client, r.DataKey(0), "string", c.MaxRate, func(_ context.Context, _ *redis.Client, keys []string) (keyspace.Next, error) {
		for _, k := range keys {
			if id, err := frame.ParseDictionaryID(strings.TrimPrefix(k, prefix)); err == nil && id != 0 && !known[id] {
				known[id] = true
				candidates = append(candidates, candidate{"", id})
			}
		}
		return keyspace.More, nil
	}); err != nil {
		return err
	}
	if len(candidates) == 0 {
		fmt.Fprintln(s.out, "Nothing to remove: every dictionary is in use, previous, or retired too lately.")
		return nil
	}
	refs, err := findReferences(ctx, client, c.Prefix, c.MaxRate, s)
	if err != nil {
		return err
	}
	removed := 0
	for _, d := range candidates {
		group := d.group
		if group == "" {
			group = "no group"
		}
		if ref := refs.ByID[d.id]; ref != nil {
			fmt.Fprintf(s.out, "%v of %s stays: %d values refer to it\n", d.id, group, ref.Values)
			continue
		}
		removed++
		if !c.Apply {
			fmt.Fprintf(s.out, "%v of %s would be removed: no value of %d keys refers to it\n", d.id, group, refs.Keys)
			continue
		}
		if d.group == "" {
			err = r.RemoveOrphan(ctx, d.id)
		} else {
			err = r.Remove(ctx, d.group, d.id)
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(s.out, "%v of %s is removed: no value of %d keys refers to it\n", d.id, group, refs.Keys)
	}
	if removed > 0 && !c.Apply {
		fmt.Fprintln(s.out, "Nothing was changed: --apply removes.")
	}
	return nil
}

// stateFile has the state of a group in a folder of exported dictionaries.
const stateFile = "group.json"

type dictExport struct {
	registryFlags
	groupFlag
	Out string `required:"" placeholder:"DIR" help:"The folder that they go to."`
}

// Help is shown below the options.
func (dictExport) Help() string {
	return `Each dictionary becomes a file ID.dict, beside group.json with their history. A program can bring them along: see dict.ReadFS.

Examples:
  bale dict export --group user:profile --out dictionaries`
}

// Run exports.
func (c *dictExport) Run(ctx context.Context, s *streams) error {
	return c.with(ctx, func(r *dict.Registry) error {
		states, err := groupStates(ctx, r, c.Group)
		if err != nil {
			return usageIfInvalid(err)
		}
		if err := os.MkdirAll(c.Out, 0o700); err != nil {
			return err
		}
		for _, e := range states[0].Dictionaries {
			d, err := r.Fetch(ctx, e.ID)
			if err != nil {
				return err
			}
			path := filepath.Join(c.Out, d.ID().String()+dict.Extension)
			if err := writeFile(path, d.Bytes()); err != nil {
				return err
			}
			fmt.Fprintln(s.out, path)
		}
		b, err := json.MarshalIndent(states[0], "", "  ")
		if err != nil {
			return err
		}
		return writeFile(filepath.Join(c.Out, stateFile), append(b, '\n'))
	})
}

type dictImport struct {
	registryFlags
	groupFlag
	Dir string `arg:"" type:"existingdir" help:"A folder with files *.dict, as bale dict export writes it."`
}

// Help is shown below the options.
func (dictImport) Help() string {
	return `Dictionaries that are there already stay as they are. Where the folder has a group.json and the group has no current dictionary, the exported one becomes that.

Examples:
  bale dict import dictionaries --group user:profile`
}

// Run imports.
func (c *dictImport) Run(ctx context.Context, s *streams) error {
	all, err := dict.ReadFS(os.DirFS(c.Dir))
	if err != nil {
		return fmt.Errorf("%s: %w", c.Dir, err)
	}
	var exported dict.State
	b, err := os.ReadFile(filepath.Join(c.Dir, stateFile))
	if err == nil {
		err = json.Unmarshal(b, &exported)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", stateFile, err)
	}
	return c.with(ctx, func(r *dict.Registry) error {
		// The newest is published last, as it was.
		slices.SortStableFunc(all, func(a, b *dict.Dictionary) int { return age(&exported, b.ID()) - age(&exported, a.ID()) })
		for _, d := range all {
			var info dict.Info
			e := exported.Find(d.ID())
			if e != nil {
				info = e.Info
			}
			if err := r.Publish(ctx, c.Group, d, info); err != nil {
				return usageIfInvalid(err)
			}
			if e == nil { // what was exported was published once, and warned of then
				warnOfPlain(s.err, "import", "dictionary "+d.ID().String(), d, c.Group)
			}
			fmt.Fprintf(s.out, "%v is in %s\n", d.ID(), c.Group)
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
		fmt.Fprintf(s.out, "%s is written with %s now.\n", c.Group, named(exported.Current))
		return nil
	})
}

// age is the place of a dictionary in a state, the newest first.
func age(s *dict.State, id frame.DictionaryID) int {
	return slices.IndexFunc(s.Dictionaries, func(e dict.Entry) bool { return e.ID == id })
}
