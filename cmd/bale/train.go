package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/dictops"
	"github.com/balekv/bale/cmd/internal/engine"
)

type trainCommand struct {
	registryFlags
	paceFlags `set:"max_rate=5000"`
	Data      []string  `placeholder:"FILE|DIR|-" sep:"none" xor:"from" help:"Values to train on: a file or stdin (-) with one on each line, or a folder, with one in each file in it and below. Repeatable."`
	Redis     string    `placeholder:"URL" xor:"from" help:"Take a sample of the values in this Redis, or cluster, reading only: of strings, and where there are none to speak of, of the fields of hashes. Default: the environment's BALE_REDIS_URL."`
	Match     []string  `sep:"none" placeholder:"PATTERN" help:"With --redis: the keys whose values are taken, for example 'user:*'. Repeatable. Default: all."`
	Sample    int       `default:"20000" placeholder:"N" help:"How many values are used at most; if there are more, a random sample. Default: ${default}."`
	Compress  string    `default:"zstd" placeholder:"SETTING" help:"What values will be compressed with: zstd, with a level where wanted (zstd:3), s2 or lz4. Default: ${default}."`
	MaxSize   cli.Bytes `default:"1MiB" placeholder:"N" help:"The largest dictionary that is tried. Default: ${default}."`
	Values    int64     `placeholder:"N" help:"How many values the dictionary will serve: more justify a larger one. Default: those of the Redis, or 1,000,000 with --data."`
	MinGain   float64   `default:"0.05" placeholder:"PART" help:"The part of the memory that the dictionary must save, compared with none. Default: ${default}."`
	Exclude   []string  `placeholder:"FIELDS" help:"Fields of JSON values whose contents never enter the dictionary: names, or paths from the root (user.token)."`
	Current   string    `placeholder:"FILE" type:"existingfile" help:"The dictionary in use: the new one must save --min-gain over it."`
	Seed      uint64    `default:"1" placeholder:"N" help:"Seed of the sample. Default: ${default}."`
	Out       string    `placeholder:"FILE" required:"" help:"Where the dictionary goes."`
	JSON      string    `name:"json" placeholder:"FILE" help:"Write all figures as JSON, too: to a file, or to stdout (-) in place of the tables."`
	All       bool      `help:"Show every dictionary that was tried."`
}

func (trainCommand) Help() string {
	return `The values come from files (--data) or from a Redis (--redis). Half of them are trained on; the others are ` +
		`held out, and dictionaries of several builders and sizes are measured on those. The one with the fewest ` +
		`bytes as Redis allocates them wins; each value is charged its share of the dictionary. If none saves ` +
		`enough, no dictionary is written, and the exit status is 1.

A dictionary is made of pieces of the values: who can read it can read those. Keep secrets out of it with --exclude.

` + dictionaryHelp + `

Examples:
  bale train --data values.ndjson --out users.dict
  bale train --data values.ndjson --out users.dict --exclude email,token
  bale train --redis redis://127.0.0.1:6379 --match 'user:*' --out users.dict
  bale train --data values.ndjson --compress s2 --max-size 64KiB --out users.dict`
}

func (c *trainCommand) Run(ctx context.Context, s *cli.Streams) error {
	o, err := c.options(s)
	if err != nil {
		return err
	}
	return cli.Report(s, c.JSON, func() (*dictops.Training, error) { return dictops.Train(ctx, o) })
}

// options are those of the flags, which must go together.
func (c *trainCommand) options(s *cli.Streams) (o dictops.TrainOptions, err error) {
	if len(c.Data) == 0 {
		c.Redis = cmp.Or(c.Redis, os.Getenv(cli.URLEnv))
	}
	setting, err := engine.Parse(c.Compress)
	switch {
	case err != nil:
		return o, usagef("--compress: %w", err)
	case !setting.TakesDictionary():
		return o, usagef("--compress %s takes no dictionary: zstd and s2 do, and lz4 at its default level",
			setting)
	case len(c.Match) > 0 && c.Redis == "":
		return o, usagef("--match is for --redis")
	case c.Registry != "" && c.Redis == "":
		return o, usagef("--registry is for --redis")
	case c.Sample < 1:
		return o, usagef("--sample %d, must be at least 1", c.Sample)
	case c.Values < 0:
		return o, usagef("--values %d, must not be negative", c.Values)
	case c.JSON == c.Out:
		return o, usagef("--json and --out are the same file")
	case len(c.Data) == 0 && c.Redis == "":
		return o, cli.NoServer("--data")
	}
	o = dictops.TrainOptions{
		Files: c.Data, Match: c.Match, Sample: c.Sample, Seed: c.Seed, Setting: setting, MaxSize: int(c.MaxSize),
		Serves: c.Values, MinGain: c.MinGain,
		Exclude: c.Exclude, Current: c.Current, Out: c.Out, Report: c.JSON, All: c.All,
	}
	if o.Registry, err = c.registryFlags.options(s, c.Redis); err == nil {
		o.Registry.Pace, err = c.pace(s)
	}
	if err != nil {
		return o, err
	}
	return o, writable("--out", c.Out) // before the training, not after it
}

// writable is an error if a file could not be written.
func writable(option, path string) error {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		return fmt.Errorf("%s: %s is a folder", option, path)
	}
	if _, err = os.Stat(filepath.Dir(path)); err != nil {
		err = fmt.Errorf("%s: %w", option, err)
	}
	return err
}
