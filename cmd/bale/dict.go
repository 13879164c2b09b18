package main

import (
	"cmp"
	"context"
	"os"
	"time"

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
	Activate dictActivate `cmd:"" help:"Choose the dictionary that values are written with: a published one, the previous one, or none."`
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
	Redis string `env:"BALE_REDIS_URL" placeholder:"URL" help:"The Redis, or a node of the cluster, with the registry. Default: the environment's BALE_REDIS_URL."`
}

// dataFlags are those of the dict commands that look at values.
type dataFlags struct {
	registryFlags
	graceFlag
	paceFlags `set:"max_rate=10000"`
	mastersFlag
	Redis []string `env:"BALE_REDIS_URL" placeholder:"URL" sep:"none" help:"A Redis, or a node of a cluster, with values. Repeatable: give all that use the registry. Default: the environment's BALE_REDIS_URL."`
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
		err = cmp.Or(err, f.set(&o.Pace))
	}
	o.Grace = f.Grace
	return o, err
}

// operate runs a function of package dictops, and writes its result: as JSON, or as text.
func operate[R cli.Result](
	ctx context.Context, s *cli.Streams, at registryOptions, json bool, o dictops.Options,
	do dictops.Operation[R],
) error {
	if o.Group != "" {
		if err := dict.CheckGroup(o.Group); err != nil {
			return usagef("--group: %w", err)
		}
	}
	for _, kind := range o.Proof.SkipTypes {
		if kind == "string" || kind == "hash" {
			return usagef("--skip-type %s: bale packs values of this type, so that all of them are read", kind)
		}
	}
	if err := o.Run.Validate(); err != nil {
		return usagef("%w", err)
	}
	where, err := at.options(s)
	if err != nil {
		return err
	}
	return cli.Report(s, map[bool]string{true: "-"}[json],
		func() (R, error) { return dictops.Run(ctx, where, o, do) })
}

type dictList struct {
	dataFlags
	sharedFlag
	Group string `placeholder:"NAME" help:"This group alone."`
	Scan  bool   `help:"Look at every value, for what refers to each dictionary and the ratio it has now."`
	JSON  bool   `name:"json" help:"Write JSON."`
}

func (dictList) Help() string {
	return `The bytes of each dictionary are read and compared with its id. The exit status is 1 if some are missing or damaged.

The registry's keys are found by their names among all keys of its Redis, at five times --max-rate.

Examples:
  bale dict list
  bale dict list --redis redis://127.0.0.1:6379 --group user:profile --scan
  bale dict list --redis redis://127.0.0.1:6379 --scan --run list-november`
}

func (c *dictList) Run(ctx context.Context, s *cli.Streams) error {
	if !c.Scan && c.Registry != "" { // no value is read
		c.Redis = []string{c.Registry}
	}
	if !c.Scan && c.Shared != "" {
		return usagef("--run is for --scan")
	}
	o := dictops.Options{Group: c.Group, Scan: c.Scan, Run: c.part()}
	return operate(ctx, s, c, c.JSON, o, dictops.List)
}

type dictShow struct {
	dictFlags
	Dictionary string `arg:"" name:"id|file" help:"The dictionary: its id, or its file."`
}

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
	Training string `placeholder:"FILE" type:"existingfile" help:"What bale train --json wrote: the live ratio is compared with the ratio there."`
}

func (dictPublish) Help() string {
	return `Readers fetch it; writers use it once it is activated. Whoever can read the registry can read the pieces of ` +
		`values that a dictionary is made of. A file of any other format than a zstd dictionary's is used as plain ` +
		`content: pieces that values have in common.

Examples:
  bale dict publish users.dict --group user:profile
  bale dict publish users.dict --group user:profile --training users.json`
}

func (c *dictPublish) Run(ctx context.Context, s *cli.Streams) error {
	return operate(ctx, s, c, false,
		dictops.Options{Group: c.Group, File: c.File, Training: c.Training}, dictops.Publish)
}

const dictionaryHelp = `Three ways lead to a dictionary: bale migrate --dict auto trains, publishes and activates one and packs the stored values; Auto in a program (dict.GroupOptions) renews it, too; bale train, bale dict publish and bale dict activate leave each step to you. The way back from all is bale dict activate previous, or none. docs/dictionaries.md says which to take.`

type dictActivate struct {
	dictFlags
	groupFlag
	ID    string `arg:"" name:"id|file|previous|none" help:"The dictionary: its id, or its file; previous for the one before the current one; none to write without one."`
	Force bool   `help:"Do not wait for the grace period: readers that do not have it yet will fetch it when they meet it."`
}

func (dictActivate) Help() string {
	return `Values that were written with another dictionary stay readable. Where no dictionary came before the current ` +
		`one, previous is none; previous once more returns to the newer one.

` + dictionaryHelp + `

Examples:
  bale dict activate 0a1b2c3d --group user:profile
  bale dict activate users.dict --group user:profile
  bale dict activate previous --group user:profile
  bale dict activate none --group user:profile`
}

func (c *dictActivate) Run(ctx context.Context, s *cli.Streams) error {
	if c.ID == "previous" {
		return operate(ctx, s, c, false, dictops.Options{Group: c.Group}, dictops.Rollback)
	}
	id, err := registry.ID(c.ID)
	if err != nil {
		return err
	}
	return operate(ctx, s, c, false, dictops.Options{Group: c.Group, ID: id, Force: c.Force},
		dictops.Activate)
}

type dictExport struct {
	dictFlags
	groupFlag
	Out string `required:"" placeholder:"DIR" help:"The folder that they go to."`
}

func (dictExport) Help() string {
	return `Each dictionary becomes a file ID.dict, beside group.json with their history. If one cannot be read, the ` +
		`command exports the others and fails. A folder is for one group: the command does not replace the group.json of ` +
		`another. A program can bring them along: see dict.ReadFS.

Examples:
  bale dict export --group user:profile --out dictionaries`
}

func (c *dictExport) Run(ctx context.Context, s *cli.Streams) error {
	return operate(ctx, s, c, false, dictops.Options{Group: c.Group, Dir: c.Out}, dictops.Export)
}

type dictImport struct {
	dictFlags
	groupFlag
	Dir   string `arg:"" type:"existingdir" help:"A folder with files *.dict, as bale dict export writes it."`
	Force bool   `help:"Import what was exported from another group."`
}

func (dictImport) Help() string {
	return `Dictionaries that are there already stay as they are. Where the folder has a group.json and the group has no` +
		` current dictionary, the exported one becomes that. The others count as retired: no program writes with them, ` +
		`and gc removes them when no value needs them. bale dict activate makes one the current one. Only ` +
		`regular files count, and no link leads out of the folder.

Examples:
  bale dict import dictionaries --group user:profile`
}

func (c *dictImport) Run(ctx context.Context, s *cli.Streams) error {
	return operate(ctx, s, c, false, dictops.Options{Group: c.Group, Dir: c.Dir, Force: c.Force},
		dictops.Import)
}

// proofFlags are the settings of a scan that proves that no value needs a dictionary.
type proofFlags struct {
	SkipType    []string `placeholder:"TYPE" help:"A type (as TYPE names it) whose keys hold no packed values: list, set, zset, stream or that of a module. Repeatable. Without it, a key of an unknown type stops the command."`
	AcceptMoves bool     `help:"Go on if commands that move values (RENAME, COPY, LMOVE, SORT and others) ran during the scan. Only if they never touch packed values."`
	Empty       bool     `help:"Go on if the scan finds no packed value at all. Only if that is right."`
}

func (f *proofFlags) proof() dictops.Proof {
	return dictops.Proof{SkipTypes: f.SkipType, AcceptMoves: f.AcceptMoves, Empty: f.Empty}
}

type dictRemove struct {
	dataFlags
	proofFlags
	groupFlag
	ID    string `arg:"" name:"id|file" help:"The dictionary: its id, or its file."`
	Force bool   `help:"Remove it at once and without a look at the values: those that were written with it cannot be read once the quarantine is over."`
}

const quarantineHelp = `A removed dictionary stays in quarantine for 30 days. It comes back by itself when a reader asks for it, or with bale dict restore.`

func (dictRemove) Help() string {
	return `For a dictionary that was published by mistake. The current and the previous dictionary stay, and one that ` +
		`was used less than six grace periods ago. The command looks at every value of every type in every database ` +
		`of the servers. A dictionary that a value refers to stays, too. It cannot see values elsewhere, in a backup ` +
		`or a Redis that never joined the registry.

` + quarantineHelp + `

Examples:
  bale dict remove 0a1b2c3d --group user:profile
  bale dict remove wrong.dict --group user:profile`
}

func (c *dictRemove) Run(ctx context.Context, s *cli.Streams) error {
	id, err := registry.ID(c.ID)
	if err != nil {
		return err
	}
	return operate(ctx, s, c, false,
		dictops.Options{Group: c.Group, ID: id, Force: c.Force, Proof: c.proof()}, dictops.Remove)
}

type dictGC struct {
	dataFlags
	proofFlags
	sharedFlag
	Apply bool `help:"Remove them. Without it nothing is changed."`
}

func (dictGC) Help() string {
	return `The command looks at every value of every type in every database of the servers. Current and previous ` +
		`dictionaries stay, those that wait to be activated, and those that were used less than six grace periods ` +
		`ago. It cannot see values elsewhere, in a backup or a Redis that never joined the registry: export first ` +
		`what they may need. It sees a frame only at the start of a value, not within JSON or behind a prefix.

It removes nothing if it may have missed a value: a key that the user may not read, slots that move, a ` +
		`restart or a failover, a data server of the registry that is not given, no packed value at all.

With --run, any number of processes share the scan of one cluster, and slots may move: those that did are read ` +
		`again. A master may fail over to a replica that has all that was read of it. Start gc under another name ` +
		`each time: what a run has read is not read again.

` + quarantineHelp + `

Examples:
  bale dict gc
  bale dict gc --apply
  bale dict gc --apply --run gc-november
  bale dict gc --registry redis://127.0.0.1:6379 --redis redis://127.0.0.1:6379 --redis redis://127.0.0.1:6379/1`
}

func (c *dictGC) Run(ctx context.Context, s *cli.Streams) error {
	return operate(ctx, s, c, false, dictops.Options{Proof: c.proof(), Apply: c.Apply, Run: c.part()}, dictops.GC)
}

type dictRestore struct {
	dictFlags
	ID    string `arg:"" name:"id" help:"The dictionary."`
	Group string `placeholder:"NAME" help:"Put it into this group, too, whose programs then keep it from being evicted."`
}

func (dictRestore) Help() string {
	return `Brings a removed dictionary back from quarantine. bale dict list shows which are there, and until when. ` +
		`Without --group it belongs to no group, and the next gc removes it again unless a value refers to it. New in a ` +
		`group it counts as retired: no program writes with it, and gc leaves it for six grace periods at least.

Examples:
  bale dict restore 0a1b2c3d --group user:profile`
}

func (c *dictRestore) Run(ctx context.Context, s *cli.Streams) error {
	id, err := registry.ID(c.ID)
	if err != nil {
		return err
	}
	return operate(ctx, s, c, false, dictops.Options{ID: id, Group: c.Group}, dictops.Restore)
}

type dictGrace struct {
	dictFlags
	Period time.Duration `arg:"" optional:"" name:"period" help:"The new grace period."`
}

func (dictGrace) Help() string {
	return `Shows or sets the grace period of the registry. A published dictionary may be activated after one period, so` +
		` that every reader has it; it may be removed six periods after its last use, so that no writer uses it any ` +
		`more. After you set a shorter period, removal goes by the old one for another six old periods. A program ` +
		`that declares a longer period sets that again.

Examples:
  bale dict grace
  bale dict grace 2m`
}

func (c *dictGrace) Run(ctx context.Context, s *cli.Streams) error {
	if c.Period < 0 {
		return usagef("the period %v must be positive", c.Period)
	}
	return operate(ctx, s, c, false, dictops.Options{Period: c.Period}, dictops.Grace)
}

type dictServers struct {
	dictFlags
	Forget string `placeholder:"ID" help:"Take a server off the list: its values are gone, or none is packed."`
	JSON   bool   `name:"json" help:"Write JSON."`
}

func (dictServers) Help() string {
	return `Shows the servers whose programs use the registry. bale dict gc and remove need all of them. A program joins` +
		` by itself (GroupOptions.Data), and so does bale migrate; one that still uses a forgotten server joins ` +
		`again.

Examples:
  bale dict servers
  bale dict servers --json`
}

func (c *dictServers) Run(ctx context.Context, s *cli.Streams) error {
	if c.Forget != "" {
		return operate(ctx, s, c, false, dictops.Options{Server: c.Forget}, dictops.Forget)
	}
	return operate(ctx, s, c, c.JSON, dictops.Options{}, dictops.Servers)
}
