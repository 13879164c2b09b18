package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/balekv/bale/cmd/internal/advise"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/outfile"
	"github.com/balekv/bale/cmd/internal/page"
)

type adviseCommand struct {
	registryFlags
	paceFlags `set:"max_rate=30000"`
	mastersFlag
	sharedFlag
	Redis    string   `placeholder:"URL" xor:"from" help:"A Redis, or a node of a cluster. It is only read, from its replicas where it has some. Default: the environment's BALE_REDIS_URL."`
	Replicas bool     `help:"With --redis: send user and password to the replicas of a single server, too, at the addresses that they announce. By default they get a password only over TLS, and else their master is read."`
	RDB      string   `name:"rdb" placeholder:"FILE" xor:"from" help:"An RDB file (BGSAVE, redis-cli --rdb FILE), which is loaded into a private redis-server and not changed."`
	Data     []string `placeholder:"FILE|DIR|-" sep:"none" xor:"from" help:"Values that are in no Redis yet: a file or stdin (-) with one on each line, or a folder, with one in each file in it and below. Each FILE or DIR is a group. Repeatable."`
	TrustRDB bool     `name:"trust-rdb" help:"With --rdb: load a file with libraries of functions, whose Lua runs as they are loaded, with data of modules, or with types that bale does not know. Only for files of your own servers."`
	DB       int      `name:"db" default:"-1" placeholder:"N" help:"With --rdb: the database. Default: the one with most keys."`

	Match     []string      `sep:"none" placeholder:"PATTERN" help:"The keys that are looked at, for example 'user:*'. Repeatable. Default: all."`
	Group     []string      `sep:"none" placeholder:"PATTERN" help:"Keys that are a group of their own, beside the groups that are found. Repeatable."`
	Sample    int           `default:"4000" placeholder:"N" help:"How many keys of a group are read at most. Default: ${default}."`
	MaxBytes  cli.Bytes     `default:"256MiB" placeholder:"N" help:"At most how many bytes of values are read. Default: ${default}."`
	CPUBudget time.Duration `name:"cpu-budget" default:"50us" placeholder:"D" help:"How long packing a value of up to 4KiB may take, and unpacking it, on average; larger values proportionally longer. The setting that saves most within this is recommended. Default: ${default}."`
	Price     float64       `placeholder:"USD" help:"What a GiB of Redis costs a month."`
	Seed      uint64        `default:"1" placeholder:"N" help:"Seed of the samples: the same keys and seed give the same ones. Default: ${default}."`

	JSON        string `name:"json" placeholder:"FILE" help:"Write the answer as JSON, too: to a file, or to stdout (-) in place of the tables."`
	HTML        string `name:"html" placeholder:"FILE" help:"Write the answer as a page with pictures, too: one file that needs no network."`
	All         bool   `help:"Show all that was tried on each group."`
	ShowSamples bool   `help:"Show some values of each group. Without it no report holds any part of a value."`
	HideKeys    bool   `help:"Show no names or patterns of keys."`
}

func (adviseCommand) Help() string {
	return `Finds the groups of keys that there are, tries compressors and dictionaries on a sample of each group's ` +
		`values, and says what each would save: in the bytes that Redis allocates, in traffic, and in money where a ` +
		`price is given. Half of a group's sample is for training dictionaries, the other half for measuring.

Nothing is written to the server. (With --run the registry keeps how far the run is, and names of keys until the answer; the user needs more rights: see docs/scale.md.) The scan keeps a server busy for at most a tenth of the time, besides the limits of --max-rate and ` +
		`--max-bandwidth. The user needs to be allowed to read and to ask for INFO: ACL SETUSER advisor on >secret ` +
		`%R~* +@read +info +ping +script|exists (and +client|no-touch from Redis 7.2 on, +select for a database ` +
		`other than 0, +cluster|slots +readonly for a cluster). Ctrl-C ends the scan, and the answer is estimated ` +
		`from what was seen (exit status 1); a second one ends the command.

Examples:
  bale advise --redis redis://127.0.0.1:6379
  bale advise --redis redis://127.0.0.1:6379 --price 12.5 --html report.html
  bale advise --redis redis://127.0.0.1:6379 --run advice
  bale advise --redis redis://127.0.0.1:6379 --match 'user:*' --match 'session:*' --cpu-budget 10us
  bale advise --rdb dump.rdb --json advice.json
  bale advise --data values.ndjson`
}

func (c *adviseCommand) Run(ctx context.Context, s *cli.Streams) error {
	if c.RDB == "" && len(c.Data) == 0 {
		c.Redis = cmp.Or(c.Redis, os.Getenv(cli.URLEnv))
		if c.Redis == "" {
			return cli.NoServer("--rdb", "--data")
		}
	}
	if c.HTML != "" { // before the work, not after it
		if err := writable("--html", c.HTML); err != nil {
			return err
		}
	}
	source := advise.Source{
		Redis: c.Redis, Registry: c.Registry, Prefix: c.Prefix, RDB: c.RDB, TrustRDB: c.TrustRDB, DB: c.DB, Files: c.Data,
		Streams: s, MaxValue: cli.MaxValue, Yield: yieldToOthers,
	}
	o := advise.Options{
		Match: c.Match, Groups: c.Group, Skip: keyspace.RegistryKeys(c.Prefix), Sample: c.Sample,
		MaxBytes: int64(c.MaxBytes), Budget: c.CPUBudget, Price: c.Price, Seed: c.Seed,
		ShowSamples: c.ShowSamples, HideKeys: c.HideKeys, Replicas: c.Replicas, CPU: cli.CPU(), Run: c.part(),
	}
	var err error
	if o.Pace, err = c.pace(s); err != nil {
		return err
	}
	if err := c.set(&o.Pace); err != nil {
		return err
	}
	if source.Login, err = c.Login(c.Redis, c.Registry); err != nil {
		return err
	}
	return cli.Report(s, c.JSON, func() (*advice, error) {
		var stop func()
		o.Progress, stop = cli.ShowProgress(s.Err)
		defer stop()
		defer context.AfterFunc(ctx, func() {
			stop()
			if c.Shared == "" {
				s.Notef("interrupted; what was seen until now is worked on (once more to end at once)")
			}
		})()
		a, err := advise.Run(ctx, source, o)
		if a == nil {
			return nil, err
		}
		if c.HTML != "" {
			err = errors.Join(err, writePage(c.HTML, a))
		}
		return &advice{a, c.All}, err
	})
}

// yieldToOthers gives the process the lowest priority. Tests turn it off: the other tests of their
// process would starve, too.
var yieldToOthers = advise.Yield

// advice is an answer that writes itself.
type advice struct {
	*advise.Advice
	all bool
}

// WriteText writes the answer as text.
func (a *advice) WriteText(w page.Sheet) { a.Advice.WriteText(w, a.all) }

// writePage writes the answer as a page.
func writePage(path string, a *advise.Advice) error {
	var html bytes.Buffer
	err := a.WritePage(&html)
	if err == nil {
		err = outfile.Write(path, html.Bytes())
	}
	if err != nil {
		err = fmt.Errorf("--html: %w", err)
	}
	return err
}
