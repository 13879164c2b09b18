package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/outfile"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/cmd/internal/report"
	"github.com/balekv/bale/cmd/internal/values"
	"github.com/balekv/bale/dict"
)

type trainCommand struct {
	registryFlags
	paceFlags `set:"max_rate=5000"`
	Data      []string  `placeholder:"FILE|DIR|-" sep:"none" xor:"from" help:"Values to train on: a file or stdin (-) with one on each line, or a folder, with one in each file in it and below. Repeatable."`
	Redis     string    `placeholder:"URL" xor:"from" help:"Take a sample of the values in this Redis, or cluster, reading only: of strings, and where there are none to speak of, of the fields of hashes. Default: the environment's BALE_REDIS_URL."`
	Match     string    `placeholder:"PATTERN" help:"With --redis: the keys whose values are taken, for example 'user:*'."`
	Sample    int       `default:"20000" placeholder:"N" help:"How many values are used at most; of more, a random sample. Default: ${default}."`
	Compress  string    `default:"zstd" placeholder:"SETTING" help:"What values will be compressed with: zstd, with a level where wanted (zstd:3, zstd/go), s2 or lz4. Default: ${default}."`
	MaxSize   cli.Bytes `default:"128KiB" placeholder:"N" help:"The largest dictionary that is tried. Default: ${default}."`
	MinGain   float64   `default:"0.05" placeholder:"PART" help:"The part of the memory that it must save over compression without one. Default: ${default}."`
	Exclude   []string  `placeholder:"FIELDS" help:"Fields of JSON values whose contents never enter the dictionary: names, or paths from the root (user.token)."`
	Current   string    `placeholder:"FILE" type:"existingfile" help:"The dictionary in use: the new one must save so much over it."`
	Seed      uint64    `default:"1" placeholder:"N" help:"Seed of the sample. Default: ${default}."`
	Out       string    `placeholder:"FILE" required:"" help:"Where the dictionary goes."`
	JSON      string    `name:"json" placeholder:"FILE" help:"Write all figures as JSON, too: to a file, or to stdout (-) in place of the tables."`
	All       bool      `help:"Show every dictionary that was tried."`
}

// Help is shown below the options.
func (trainCommand) Help() string {
	return `The values come from files (--data) or from a Redis (--redis). Half of them are trained on; the others are held out, and dictionaries of several builders and sizes are measured on those. The one that takes the fewest bytes as Redis allocates them wins. Where none saves enough there is none, and the exit status is 1.

A dictionary is made of pieces of the values: who can read it can read those. Keep secrets out of it with --exclude.

Examples:
  bale train --data values.ndjson --out users.dict
  bale train --data values.ndjson --out users.dict --exclude email,token
  bale train --redis redis://127.0.0.1:6379 --match 'user:*' --out users.dict
  bale train --data values.ndjson --compress s2 --max-size 64KiB --out users.dict`
}

// maxSample bounds a sample of a Redis in bytes, which is held in memory.
const maxSample = 48 << 20

// Run trains.
func (c *trainCommand) Run(ctx context.Context, s *cli.Streams) error {
	setting, err := engine.Parse(c.Compress)
	if err != nil {
		return fmt.Errorf("%w: --compress: %w", cli.ErrUsage, err)
	}
	if !setting.TakesDictionary() {
		return fmt.Errorf("%w: --compress %s takes no dictionary: zstd and s2 do, and lz4 at its default level", cli.ErrUsage, setting)
	}
	if len(c.Data) == 0 {
		c.Redis = cmp.Or(c.Redis, os.Getenv(cli.URLEnv))
	}
	switch {
	case c.Match != "" && c.Redis == "":
		return fmt.Errorf("%w: --match is for --redis", cli.ErrUsage)
	case c.Registry != "" && c.Redis == "":
		return fmt.Errorf("%w: --registry is for --redis", cli.ErrUsage)
	case c.Sample < 1:
		return fmt.Errorf("%w: --sample %d, must be at least 1", cli.ErrUsage, c.Sample)
	case c.JSON == c.Out:
		return fmt.Errorf("%w: --json and --out are the same file", cli.ErrUsage)
	}
	if err := c.check(); err != nil {
		return err
	}
	if len(c.Data) == 0 && c.Redis == "" {
		return fmt.Errorf("%w: where do the values come from? Either --data or --redis says so", cli.ErrUsage)
	}
	if info, err := os.Stat(c.Out); err == nil && info.IsDir() {
		return fmt.Errorf("--out: %s is a folder", c.Out)
	}
	if _, err := os.Stat(filepath.Dir(c.Out)); err != nil { // before the training, not after it
		return fmt.Errorf("--out: %w", err)
	}
	var current *dict.Dictionary
	if c.Current != "" {
		if current, err = readDictionary(c.Current); err != nil {
			return err
		}
	}
	progress, stop := cli.ShowProgress(s.Err)
	defer stop()
	values, source, err := c.values(ctx, s, progress)
	if err != nil {
		return err
	}
	left := make([]report.LeftOut, len(c.Exclude))
	for i, n := range dict.CountFields(values, c.Exclude) {
		left[i] = report.LeftOut{Field: c.Exclude[i], Values: n}
		if n == 0 {
			stop()
			printable.Fprintf(s.Err, "bale train: WARNING: no value has the field %q, so nothing is left out for it. Is it spelled so? A name counts at any depth, a path from the root (user.token).\n", c.Exclude[i])
		}
	}
	start := time.Now()
	training, err := dict.Train(ctx, values, dict.TrainOptions{
		Setting: setting.Setting, Engine: setting.Engine(), Builders: engine.Builders(), MaxSize: int(c.MaxSize), MinGain: c.MinGain,
		Exclude: c.Exclude, Current: current, Progress: progress,
	})
	stop()
	if errors.Is(err, dict.ErrInvalid) {
		return fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	if err != nil && !errors.Is(err, dict.ErrNoDictionary) {
		return err
	}
	if training.Dictionary != nil {
		if err := outfile.Write(c.Out, training.Dictionary.Bytes()); err != nil {
			return err
		}
	}
	r := &report.Training{
		LeftOut: left, Values: len(values),
		Training: training, Source: source, Compress: setting.String(), Seconds: time.Since(start).Seconds(), File: c.Out,
		Engine: engine.Name, Lacking: engine.Lacking, Go: runtime.Version(), Cores: runtime.NumCPU(), CPU: cli.CPU(),
	}
	if err != nil {
		r.Reason = cli.Told(err)
	}
	return errors.Join(err, c.report(s, r))
}

func (c *trainCommand) report(s *cli.Streams, r *report.Training) error {
	if c.JSON != "-" {
		r.Write(s.Out, c.All)
	}
	out, err := cli.OpenJSON(c.JSON, s)
	if err != nil {
		return err
	}
	return out.Write(r.JSON())
}

// values reads what to train on, and says where it comes from.
func (c *trainCommand) values(ctx context.Context, s *cli.Streams, progress func(done, total int, what string)) ([][]byte, string, error) {
	if c.Redis == "" {
		var all [][]byte
		var notes string
		for _, path := range c.Data {
			d, err := values.Load(path, s.In, values.Limits{Values: c.Sample, ValueSize: cli.MaxValue, Seed: c.Seed})
			if err != nil {
				return nil, "", err
			}
			all = append(all, d.Values...)
			if notes += ", " + d.Name; d.Note != "" {
				notes += " (" + d.Note + ")"
			}
		}
		return all, notes[2:], nil
	}
	servers, err := c.open(ctx, 0, c.Redis)
	if err != nil {
		return nil, "", err
	}
	defer servers.close()
	servers.onlyLook = true
	defer servers.sayQuarantined(s.Err, "train")
	client := servers.data[0].client
	packer, err := newReader(nil, cli.MaxValue, newRegistryReader(servers))
	if err != nil {
		return nil, "", err
	}
	defer packer.Close()
	if err := servers.sayLost(ctx, s.Err, "train", keyspace.ServerInfo, keyspace.MemoryUsage); err != nil {
		return nil, "", err
	}
	sampled, err := keyspace.Sample(ctx, client, keyspace.SampleOptions{
		Match: c.Match, Skip: keyspace.RegistryKeys(c.Prefix), Values: c.Sample, Bytes: maxSample, Size: int(frameLimit(c.MaxSize)), Pace: c.pace(s.Err, "train"), Seed: c.Seed,
		Unpack: func(ctx context.Context, stored []byte) ([]byte, error) {
			return packer.UnpackContext(ctx, nil, stored)
		},
		Progress: func(n int) {
			if progress != nil {
				progress(n, c.Sample, fmt.Sprintf("%d values read", n))
			}
		},
	})
	if err != nil {
		return nil, "", err
	}
	source := fmt.Sprintf("%s, %d keys looked at", keyspace.Redact(c.Redis), sampled.Keys)
	if len(sampled.Values) < fewStrings {
		match := []string{c.Match}
		if c.Match == "" {
			match = nil
		}
		fields, err := sampleFields(ctx, client, packer, keyspace.ValuesOptions{Match: match, Skip: keyspace.RegistryKeys(c.Prefix), Size: int(frameLimit(c.MaxSize)), Pace: c.pace(s.Err, "train")}, c.Seed, c.Sample-len(sampled.Values), func(n int) {
			if progress != nil {
				progress(n, c.Sample, fmt.Sprintf("%d values of hashes read", n))
			}
		})
		if err != nil {
			return nil, "", err
		}
		if sampled.Values = append(sampled.Values, fields...); len(fields) > 0 {
			source += fmt.Sprintf(", and %d values of hashes", len(fields))
		}
	}
	if n := sampled.TooLarge; n > 0 {
		source += fmt.Sprintf(", %d passed over as too large", n)
	}
	if n := sampled.Streams; n > 0 {
		source += fmt.Sprintf(", %d of streams passed over", n)
	}
	if n := sampled.Unread; n > 0 {
		source += fmt.Sprintf(", %d that could not be unpacked (%s)", n, cli.Told(sampled.Err))
	}
	return sampled.Values, source, nil
}

// fewStrings is how many strings there must be for hashes not to be looked at: they are elsewhere
// then.
const fewStrings = 20

// frameLimit is the largest value that a dictionary of a size has anything to say to: one a hundred
// times as large is little helped by it. It is maxSampled at most.
func frameLimit(dictionary cli.Bytes) cli.Bytes { return min(100*dictionary, maxSampled) }
