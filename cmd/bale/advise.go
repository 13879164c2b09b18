package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/balekv/bale/cmd/internal/advise"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/outfile"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/cmd/internal/rdb"
	"github.com/balekv/bale/cmd/internal/values"
	"github.com/redis/go-redis/v9"
)

type adviseCommand struct {
	registryFlags
	paceFlags `set:"max_rate=30000"`
	Redis     string   `placeholder:"URL" xor:"from" help:"A Redis, or a node of a cluster, which is only read: its replicas where it has some. Default: the environment's BALE_REDIS_URL."`
	Replicas  bool     `help:"With --redis: send user and password to the replicas of a single server, too, at the addresses that they announce. By default they get a password only over TLS, and else their master is read."`
	RDB       string   `name:"rdb" placeholder:"FILE" xor:"from" help:"An RDB file (BGSAVE, redis-cli --rdb FILE), which is loaded into a private redis-server and not changed."`
	Data      []string `placeholder:"FILE|DIR|-" sep:"none" xor:"from" help:"Values that are in no Redis yet: a file or stdin (-) with one on each line, or a folder, with one in each file in it and below. Each is a group. Repeatable."`
	TrustRDB  bool     `name:"trust-rdb" help:"With --rdb: load a file with libraries of functions, whose Lua runs as they are loaded, with data of modules, or with types that bale does not know. Only for files of your own servers."`
	DB        int      `name:"db" default:"-1" placeholder:"N" help:"With --rdb: the database. Default: the one with most keys."`

	Match     []string      `sep:"none" placeholder:"PATTERN" help:"The keys that are looked at, for example 'user:*'. Repeatable. Default: all."`
	Group     []string      `sep:"none" placeholder:"PATTERN" help:"Keys that are a group of their own, beside the groups that are found. Repeatable."`
	Sample    int           `default:"4000" placeholder:"N" help:"How many values of a group are tried at most. Default: ${default}."`
	MaxBytes  cli.Bytes     `default:"256MiB" placeholder:"N" help:"After how many bytes of values no more are read. Default: ${default}."`
	CPUBudget time.Duration `name:"cpu-budget" default:"50us" placeholder:"D" help:"How long packing a value may take, and unpacking it, in the mean: recommended is what saves most within that. Default: ${default}."`
	Price     float64       `placeholder:"USD" help:"What a GiB of Redis costs a month."`
	Seed      uint64        `default:"1" placeholder:"N" help:"Seed of the samples: the same keys and seed give the same ones. Default: ${default}."`

	JSON        string `name:"json" placeholder:"FILE" help:"Write the answer as JSON, too: to a file, or to stdout (-) in place of the tables."`
	HTML        string `name:"html" placeholder:"FILE" help:"Write the answer as a page with pictures, too: one file that needs no network."`
	All         bool   `help:"Show all that was tried on each group."`
	ShowSamples bool   `help:"Show some values of each group. Without it no report holds any part of a value."`
	HideKeys    bool   `help:"Show no names or patterns of keys."`
}

// Help is shown below the options.
func (adviseCommand) Help() string {
	return `Finds the groups of keys that there are, tries compressors and dictionaries on a sample of each group's values, and says what each would save: in the bytes that Redis allocates, in traffic, and in money where a price is given. Half of a group's sample is for training dictionaries, the other half for measuring.

Nothing is written to the server. The scan takes a tenth of its time at most, beside --max-rate and --max-bandwidth. The user needs to be allowed to read and to ask for INFO: ACL SETUSER advisor on >secret %R~* +@read +info +ping +client|no-touch (and +select for a database other than 0, +cluster|slots +readonly for a cluster). Ctrl-C ends the scan, and the answer is for what was seen until then (exit status 1); a second one ends the command.

Examples:
  bale advise --redis redis://127.0.0.1:6379
  bale advise --redis redis://127.0.0.1:6379 --price 12.5 --html report.html
  bale advise --redis redis://127.0.0.1:6379 --match 'user:*' --match 'session:*' --cpu-budget 10us
  bale advise --rdb dump.rdb --json advice.json
  bale advise --data values.ndjson`
}

// Run advises.
func (c *adviseCommand) Run(ctx context.Context, s *cli.Streams) error {
	if err := c.check(); err != nil {
		return err
	}
	out, err := cli.OpenJSON(c.JSON, s) // before the work, not after it
	if err != nil {
		return err
	}
	defer out.Discard()
	if c.HTML != "" {
		if err := writable(c.HTML); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	progress, stop := cli.ShowProgress(s.Err)
	defer stop()
	defer context.AfterFunc(ctx, func() {
		stop()
		printable.Fprintf(s.Err, "bale advise: interrupted; what was seen until now is worked on (once more to end at once)\n")
	})()
	a, err := c.advise(ctx, s, progress)
	stop()
	if a == nil {
		return err
	}
	a.Engine, a.Lacking, a.Go, a.CPU, a.Cores = engine.Name, engine.Lacking, runtime.Version(), cli.CPU(), runtime.NumCPU()
	err = errors.Join(err, out.Write(a))
	if c.HTML != "" {
		err = errors.Join(err, c.writeHTML(a))
	}
	if c.JSON != "-" { // in the end: who reads it may stop before all is written
		a.WriteText(s.Out, c.All)
	}
	return err
}

func (c *adviseCommand) check() error {
	if c.RDB == "" && len(c.Data) == 0 {
		c.Redis = cmp.Or(c.Redis, os.Getenv(cli.URLEnv))
	}
	switch {
	case c.Redis == "" && c.RDB == "" && len(c.Data) == 0:
		return fmt.Errorf("%w: what is it about? --redis, --rdb or --data says so", cli.ErrUsage)
	case len(c.Data) > 0 && len(c.Match)+len(c.Group) > 0:
		return fmt.Errorf("%w: --match and --group are for keys, and --data has none", cli.ErrUsage)
	case c.DB >= 0 && c.RDB == "":
		return fmt.Errorf("%w: --db is for --rdb; a URL ends in its database: redis://127.0.0.1:6379/%d", cli.ErrUsage, c.DB)
	case c.TrustRDB && c.RDB == "":
		return fmt.Errorf("%w: --trust-rdb is for --rdb", cli.ErrUsage)
	case c.Replicas && c.Redis == "":
		return fmt.Errorf("%w: --replicas is for --redis", cli.ErrUsage)
	case c.Sample < 2:
		return fmt.Errorf("%w: --sample %d, must be at least 2", cli.ErrUsage, c.Sample)
	case c.CPUBudget <= 0:
		return fmt.Errorf("%w: --cpu-budget %v, must be more than nothing", cli.ErrUsage, c.CPUBudget)
	case c.Price < 0 || math.IsNaN(c.Price) || math.IsInf(c.Price, 0):
		return fmt.Errorf("%w: --price %v, must be an amount of USD", cli.ErrUsage, c.Price)
	}
	return c.paceFlags.check()
}

// writable says early what would go wrong late.
func writable(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a folder", path)
	}
	_, err := os.Stat(filepath.Dir(path))
	return err
}

func (c *adviseCommand) advise(ctx context.Context, s *cli.Streams, progress func(done, total int, what string)) (*advise.Advice, error) {
	o := advise.Options{
		Match: c.Match, Groups: c.Group, Skip: keyspace.RegistryKeys(c.Prefix), Sample: c.Sample, MaxBytes: int64(c.MaxBytes), Budget: c.CPUBudget, Price: c.Price, Seed: c.Seed,
		ShowSamples: c.ShowSamples, HideKeys: c.HideKeys, Progress: progress, Replicas: c.Replicas,
	}
	switch {
	case len(c.Data) > 0:
		return c.values(ctx, s, o)
	case c.RDB != "":
		return c.file(ctx, o, progress)
	}
	o.Source = keyspace.Redact(c.Redis)
	o.URL, o.Registry = o.Source, keyspace.Redact(c.Registry)
	yieldToOthers()
	o.Pace = c.pace(s.Err, "advise")
	return c.server(ctx, c.Redis, o)
}

// yieldToOthers gives the process the lowest priority. Tests turn it off: the other tests of their
// process would starve, too.
var yieldToOthers = gentle

func (c *adviseCommand) server(ctx context.Context, url string, o advise.Options) (*advise.Advice, error) {
	defer frugal()()
	password, err := c.Password()
	if err != nil {
		return nil, err
	}
	client, err := keyspace.Open(ctx, keyspace.WithPassword(url, password))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if single, ok := client.(*redis.Client); ok {
		o.Database = single.Options().DB
	}
	return advise.Redis(ctx, client, o)
}

// file reads an RDB file through a private server, which nobody else uses.
func (c *adviseCommand) file(ctx context.Context, o advise.Options, progress func(done, total int, what string)) (*advise.Advice, error) {
	loaded, err := rdb.Load(ctx, c.RDB, rdb.Options{Trust: c.TrustRDB, Progress: func(part float64) {
		if progress != nil {
			progress(int(1000*part), 1000, "loading "+c.RDB)
		}
	}})
	if err != nil {
		return nil, err
	}
	defer loaded.Close()
	largest := rdb.Database{Number: max(0, c.DB)}
	for _, d := range loaded.Databases {
		if c.DB < 0 && d.Keys > largest.Keys {
			largest = d
		}
	}
	o.Source, o.Private = c.RDB, true
	a, err := c.server(ctx, fmt.Sprintf("%s/%d", strings.TrimSuffix(loaded.URL, "/0"), largest.Number), o)
	if a == nil {
		return nil, err
	}
	a.Warnings = append(a.Warnings, loaded.Warnings...)
	if loaded.Expired > 0 {
		a.Warnings = append(a.Warnings, fmt.Sprintf("%d keys of the file had expired since it was written, and are not counted.", loaded.Expired))
	}
	for _, d := range loaded.Databases {
		if d.Number != largest.Number {
			a.Warnings = append(a.Warnings, fmt.Sprintf("Database %d of the file holds %d keys more: --db %[1]d.", d.Number, d.Keys))
		}
	}
	return a, err
}

func (c *adviseCommand) values(ctx context.Context, s *cli.Streams, o advise.Options) (*advise.Advice, error) {
	var sets []advise.Set
	for _, path := range c.Data {
		d, err := values.Load(path, s.In, values.Limits{Values: c.Sample, ValueSize: cli.MaxValue, Seed: c.Seed})
		if err != nil {
			return nil, err
		}
		sets = append(sets, advise.Set{Name: d.Name, File: path, Values: d.Values, Total: int64(d.Total)})
	}
	o.Source = strings.Join(c.Data, ", ")
	return advise.Values(ctx, sets, o)
}

func (c *adviseCommand) writeHTML(a *advise.Advice) error {
	var page strings.Builder
	if err := a.WritePage(&page); err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	if err := outfile.Write(c.HTML, []byte(page.String())); err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	return nil
}
