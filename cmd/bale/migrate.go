package main

import (
	"context"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/migrate"
	"github.com/balekv/bale/cmd/internal/page"
)

type migrateCommand struct {
	registryFlags
	paceFlags `set:"max_rate=5000"`
	graceFlag
	sharedFlag
	Redis    string    `env:"BALE_REDIS_URL" placeholder:"URL" help:"The Redis, or a node of the cluster, whose values are packed: those of the URL's database."`
	Match    []string  `required:"" placeholder:"PATTERN" sep:"none" help:"The keys whose values are packed, for example 'user:*'; '*' for all. Repeatable; each pattern takes a walk of its own, and a key that is like two of them counts twice."`
	Compress string    `placeholder:"SETTING" help:"What values are packed with, the same as in the programs that write them: zstd, with a level where wanted (zstd:3), s2, lz4 and others. Default: zstd."`
	Dict     string    `placeholder:"ID|FILE|current|auto" help:"The dictionary to pack with, which the registry must have: its id or its file; current for the one that --group is written with; auto to train, publish and activate one."`
	Group    string    `placeholder:"NAME" help:"The group of the dictionary. Default: made of the pattern, user:profile of 'user:*:profile'."`
	Exclude  []string  `placeholder:"FIELDS" help:"With --dict auto: fields of JSON values whose contents never enter the dictionary: names, or paths from the root (user.token). Fields that the group's dictionaries leave out stay out."`
	Revert   bool      `help:"Unpack what is packed, in place of packing."`
	Repack   bool      `help:"Pack anew what is packed with another algorithm or dictionary, too."`
	DryRun   bool      `help:"Change no value, and say what would be changed."`
	Resume   string    `placeholder:"FILE" help:"Keep in this file how far it is, and go on from there if the file is there already. It is removed in the end."`
	Force    bool      `help:"With --dict auto: activate the dictionary at once, without waiting for the grace period."`
	MinSize  cli.Bytes `placeholder:"N" help:"Smaller values are left. Default: 64."`
	MinGain  float64   `placeholder:"PART" help:"The part of its size that packing must save for a value. Default: 0.05."`
	JSON     string    `name:"json" placeholder:"FILE" help:"Write all figures as JSON, too: to a file, or to stdout (-) in place of the tables."`
}

func (migrateCommand) Help() string {
	return `The values of strings and the fields of hashes are packed in place, while programs run. A script ` +
		`within Redis compares each with what was read, and replaces it: what a program writes meanwhile stays, expiries ` +
		`stay to the millisecond, a key that is gone stays gone. What is packed already is left, so that migrate can be ` +
		`stopped, killed and started again at any time.

FIRST every program that reads the keys must be able to unpack:
  1. Roll out the programs with bale: a bale.Cache, or a goredis.Hook with ReadOnly, which unpacks but does not pack. With a dictionary they follow its group (dict.Registry.Open).
  2. Let the programs pack what they write: take ReadOnly away, and with a dictionary activate it (bale dict activate). This may also come after the next step: programs that still write plain values do no harm, and migrate can be run again.
  3. bale migrate --dry-run, then bale migrate.
  4. bale verify.

` + dictionaryHelp + `

The user needs to read and to write: ACL SETUSER mover on >secret ~* &bale:dict:* +@read +@write +@connection +@scripting +info +time +publish. On a cluster it needs +cluster|slots +cluster|nodes +cluster|info as well, on each node.

The way back: let programs write plain values (ReadOnly again), bale migrate --revert, bale verify, which then ` +
		`counts plain values alone; in the end take bale out of the programs.

Programs must not use APPEND, GETRANGE, SETRANGE, STRLEN, SETBIT and their like on these keys, nor scripts ` +
		`that look into values: they would work on packed bytes. Numbers, HyperLogLogs, streams of package stream and ` +
		`keys of other types are left. Values of GetOrLoad that are packed anew (--repack) stay fresh as long as ` +
		`before.

A revert makes values of GetOrLoad plain, too. One that has expired by its own account is deleted, and the ` +
		`others expire at their own time, never later than before. A revert leaves, and verify counts: frames that say ` +
		`that there is no value (they expire soon), values whose content is itself a frame (users may have written ` +
		`them), and on a server that gives fields no expiry (before Redis 7.4 and Valkey 9) fields of GetOrLoad ` +
		`that have not expired: revert again when they have.

A value that cannot be read, or that programs write all the time, is left and named, and the exit status is 1. ` +
		`A key whose value is replaced counts as used (LRU); one that is only read does not, from Redis 7.2 and in ` +
		`Valkey.

Examples:
  bale migrate --redis redis://127.0.0.1:6379 --match 'user:*' --dry-run
  bale migrate --redis redis://127.0.0.1:6379 --match 'user:*' --compress zstd:3 --resume users.state
  bale migrate --redis redis://127.0.0.1:6379 --match 'user:*' --dict auto --force --repack
  bale migrate --redis redis://127.0.0.1:6379 --match 'user:*' --revert`
}

func (c *migrateCommand) Run(ctx context.Context, s *cli.Streams) error {
	o := migrate.Options{
		Settings: migrate.Settings{
			Match: c.Match, Compress: c.Compress, Dict: c.Dict, Group: c.Group, Exclude: c.Exclude,
			Revert: c.Revert,
			Repack: c.Repack, MinSize: int(c.MinSize), MinGain: c.MinGain,
		},
		DryRun: c.DryRun, Force: c.Force, Resume: c.Resume, Run: c.part(), Plan: s.Sheet(),
	}
	switch c.JSON {
	case "-":
		o.Plan = page.NewSheet(s.Err, o.Plan.Width)
	case "":
	case c.Resume:
		return usagef("--json and --resume are the same file")
	}
	var err error
	if o.Registry, err = c.registryFlags.options(s, c.Redis); err != nil {
		return err
	}
	o.Registry.Grace = c.Grace
	if o.Registry.Pace, err = c.pace(s); err != nil {
		return err
	}
	return cli.Report(s, c.JSON, func() (*migrate.Result, error) { return migrate.Run(ctx, o) })
}
