package main

import (
	"cmp"
	"context"
	"os"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/dictops"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/dict"
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

// dictFlags are those of the dict commands that need the registry alone.
type dictFlags struct {
	registryFlags
	graceFlag
	Redis string `default:"${redis}" env:"BALE_REDIS_URL" placeholder:"URL" help:"The Redis, or a node of the cluster, with the registry. Default: ${default}."`
}

// dataFlags are those of the dict commands that look at values.
type dataFlags struct {
	registryFlags
	graceFlag
	paceFlags `set:"max_rate=10000"`
	Redis     []string `default:"${redis}" env:"BALE_REDIS_URL" placeholder:"URL" sep:"none" help:"A Redis, or a node of a cluster, with values. Repeatable: give all that use the registry. Default: ${default}."`
}

// groupFlag is the group that a command works on.
type groupFlag struct {
	Group string `required:"" placeholder:"NAME" help:"The group: a name for keys whose values look alike, such as user:profile."`
}

// registryOptions are the flags of a command that say where the registry is.
type registryOptions interface {
	options(*cli.Streams) (registry.Options, error)
}

func (f *dictFlags) options(s *cli.Streams) (registry.Options, error) {
	o, err := f.registryFlags.options(s, cmp.Or(f.Registry, f.Redis))
	o.Grace = f.Grace
	return o, err
}

func (f *dataFlags) options(s *cli.Streams) (o registry.Options, err error) {
	if o, err = f.registryFlags.options(s, f.Redis...); err == nil {
		o.Pace, err = f.pace(s)
	}
	o.Grace = f.Grace
	return o, err
}

// operate runs a function of package dictops, and writes its result: as JSON, or as text.
func operate[R cli.Result](ctx context.Context, s *cli.Streams, at registryOptions, json bool, o dictops.Options, do func(context.Context, *registry.Registry, dictops.Options) (R, error)) error {
	if o.Group != "" {
		if err := dict.CheckGroup(o.Group); err != nil {
			return usagef("--group: %w", err)
		}
	}
	where, err := at.options(s)
	if err != nil {
		return err
	}
	return cli.Report(s, map[bool]string{true: "-"}[json], func() (R, error) { return dictops.Run(ctx, where, o, do) })
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
	return operate(ctx, s, c, c.JSON, dictops.Options{Group: c.Group, Scan: c.Scan}, dictops.List)
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
		return cli.Report(s, "", func() (*dictops.Shown, error) { return dictops.ShowFile(c.Dictionary) })
	}
	id, err := registry.ID(c.Dictionary)
	if err != nil {
		return err
	}
	return operate(ctx, s, c, false, dictops.Options{ID: id}, dictops.Show)
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
	return operate(ctx, s, c, false, dictops.Options{Group: c.Group, File: c.File, Training: c.Training}, dictops.Publish)
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
	id, err := registry.ID(c.ID)
	if err != nil {
		return err
	}
	return operate(ctx, s, c, false, dictops.Options{Group: c.Group, ID: id, Force: c.Force}, dictops.Activate)
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
	return operate(ctx, s, c, false, dictops.Options{Group: c.Group}, dictops.Rollback)
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
	return operate(ctx, s, c, false, dictops.Options{Group: c.Group, Dir: c.Out}, dictops.Export)
}

type dictImport struct {
	dictFlags
	groupFlag
	Dir   string `arg:"" type:"existingdir" help:"A folder with files *.dict, as bale dict export writes it."`
	Force bool   `help:"Import what was exported from another group."`
}

// Help is shown below the options.
func (dictImport) Help() string {
	return `Dictionaries that are there already stay as they are. Where the folder has a group.json and the group has no current dictionary, the exported one becomes that. Only regular files count, and no link leads out of the folder.

Examples:
  bale dict import dictionaries --group user:profile`
}

// Run imports.
func (c *dictImport) Run(ctx context.Context, s *cli.Streams) error {
	return operate(ctx, s, c, false, dictops.Options{Group: c.Group, Dir: c.Dir, Force: c.Force}, dictops.Import)
}
