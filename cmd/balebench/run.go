package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/alecthomas/kong"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/dataset"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/cmd/internal/lab"
)

type runCommand struct {
	Data        []string            `placeholder:"FILE|DIR|-" sep:"none" group:"data" help:"Values to measure on: a file or stdin (-) with one on each line, or a folder, with one in each file in it and below. Repeatable."`
	Builtin     []string            `placeholder:"LIST" group:"data" help:"Built-in values instead: ${builtin}. Default, without --data and --value-size: all of them."`
	ValueSize   []cli.Bytes         `placeholder:"LIST" group:"data" help:"Built-in values of exactly so many bytes instead: 100, 1KiB, 10KiB."`
	Track       []string            `default:"typed" placeholder:"LIST" group:"data" help:"How a program holds built-in values: in Go types (typed) or decoded into any (dynamic), as values of --data are. Default: ${default}."`
	Values      int                 `default:"10000" placeholder:"N" group:"data" help:"How many values of each set of --data are used; if there are more, a random sample. Default: ${default}."`
	Codec       []string            `default:"auto" placeholder:"LIST" group:"what" help:"Serializers: ${codecs}; or auto: raw for values of --data that are no JSON, json for all others. Default: ${default}."`
	Compress    []engine.Setting    `default:"none,snappy,s2,lz4,gzip,zstd:3,s2+dict,lz4+dict,zstd:3+dict" placeholder:"LIST" group:"what" help:"Compressors: none, snappy, s2, lz4, gzip, zstd, with a level where wanted (zstd:7), /go for zstd in pure Go, /naive for a new context for each value, /stream for the streaming API, +dict for a dictionary. Default: ${default}."`
	Client      []lab.ClientSetting `default:"goredis" placeholder:"LIST" group:"what" help:"Redis clients: ${clients}. Default: ${default}."`
	Batch       []lab.Batch         `default:"single" placeholder:"LIST" group:"what" help:"How values travel: single, pipeline:N for N values in a pipeline, mset:N for MSET and MGET of N. Default: ${default}."`
	Concurrency []int               `default:"1,64" placeholder:"LIST" group:"load" help:"How many callers at once, 1 to 10000. Default: ${default}."`
	Rate        lab.Rates           `placeholder:"LIST" group:"load" help:"Operations to start per second, whether earlier ones have ended or not (open loop), with latency from the time when each should have started; or sweep, for rates up to where the server gives in. Default: each caller starts one when its last has ended (closed loop)."`
	Mix         lab.Mix             `placeholder:"GETS:SETS" group:"load" help:"Operations are single GETs and SETs in this proportion, such as 90:10, of keys that all callers share. Default: an operation is a value written and read back."`
	HitRate     float64             `default:"1" placeholder:"SHARE" group:"load" help:"With --mix: the share of GETs that find a value, 0 to 1. Default: ${default}."`
	Zipf        float64             `placeholder:"S" group:"load" help:"With --mix: some keys are more popular, by a Zipf distribution of this exponent (0.99 as in YCSB). Default: all alike."`
	KeySize     int                 `placeholder:"BYTES" group:"load" help:"Length of a key, ${min_key} at least. Default: ${min_key}."`
	Redis       string              `placeholder:"URL" group:"server" help:"Redis to measure through, for example redis://127.0.0.1:6379. It gets keys bale:bench:*, which are removed. Default: a private redis-server, or an embedded stand-in where none is installed."`
	AppendOnly  []string            `name:"appendonly" placeholder:"LIST" group:"server" help:"Private servers with a log of writes: no, everysec, always."`
	IOThreads   []int               `name:"io-threads" placeholder:"LIST" group:"server" help:"Private servers with so many threads for reading and writing."`
	MaxPolicy   []string            `name:"maxmemory-policy" placeholder:"LIST" group:"server" help:"Private servers that keep what this policy needs: noeviction, allkeys-lru, allkeys-lfu ..."`
	Link        []string            `placeholder:"RATE[,RTT]" sep:"none" group:"server" help:"Private servers behind a limited network, such as 1gbit or 100mbit,0.5ms: in a network namespace, for root on Linux. Repeatable."`
	Embedded    bool                `group:"server" help:"Use the embedded stand-in even where a redis-server is installed."`
	Duration    time.Duration       `default:"280ms" placeholder:"D" group:"measuring" help:"How long each cell is measured, in all rounds. Default: ${default}."`
	Repeat      int                 `default:"8" placeholder:"N" group:"measuring" help:"Rounds that the duration is split into; cells take turns in random order. Intervals need 6. Default: ${default}."`
	Quick       bool                `group:"measuring" help:"A first look in some seconds: fewer sets, compressors and rounds where none are asked for."`
	Seed        uint64              `default:"1" placeholder:"N" group:"measuring" help:"Seed of built-in values, samples and order. Default: ${default}."`
	Profile     []string            `placeholder:"LIST" group:"measuring" help:"Take a pprof profile of each cell: ${profiles}. They are in --html as flame graphs, and in --profile-dir as files."`
	ProfileDir  string              `placeholder:"DIR" group:"measuring" help:"Write the profiles into this folder."`

	cli.ConnectionFlags `group:"server"`

	resultFlags `group:"results"`

	given []string // options on the command line that bear on the figures
}

// Help is shown below the options.
func (runCommand) Help() string {
	return `Each cell is a combination of data, codec, compressor, client, load and server. Each operation takes a value` +
		` through the whole path: serialize, compress, SET, GET, decompress, deserialize; and what comes back is ` +
		`compared with what went in. A cell with a single mismatch is FAILED; one that could not be measured, for a ` +
		`time-out or too short a time, is in ERROR. The exit status is 1 in both cases.

With +dict a dictionary is trained on half of the values first, and everything is measured on the others alone.

Ctrl-C ends a run with the figures of the rounds that are whole by then; in the first round, with those of the cells ` +
		`that had their turn; while dictionaries are trained, or the rates of a sweep are found, with none. ` +
		`A second Ctrl-C ends it at once.

Each run says which versions of which libraries were measured. radix is dormant: it is here to be compared with.

Clients: goredis, redigo and radix have as many connections as there are callers, at most; :N makes them N. ` +
		`goredis+auto pipelines the commands of all callers over one connection, goredis:N+auto over N. rueidis ` +
		`pipelines them over 1, 2 or 4 by itself, rueidis:N over N (a power of two); rueidis-auto and rueidis:N-auto ` +
		`have a pool as the others have. +idle:N keeps N connections of goredis open. @twemproxy puts a twemproxy ` +
		`(nutcracker) between.

Examples:
  balebench run
  balebench run --quick --html report.html
  balebench run --data values.ndjson
  balebench run --data values.ndjson --compress none,zstd:3,zstd:3+dict --concurrency 1,64,1000
  balebench run --data values.ndjson --client goredis,rueidis,redigo --compress none,zstd:3+dict
  balebench run --client goredis,goredis+auto,rueidis,rueidis:1,rueidis-auto,redigo:16 --concurrency 64
  balebench run --builtin profiles --codec json,sonic,msgpack,protobuf --compress none,zstd:3+dict
  balebench run --builtin profiles --mix 90:10 --zipf 0.99 --rate sweep --compress none,zstd:3+dict --concurrency 64
  balebench run --codec json,gob,raw --duration 500ms --json results.json
  redis-cli --raw GET user:1 | balebench run --data -`
}

// The defaults that --quick replaces.
var (
	quickBuiltin     = []string{"profiles", "sessions"}
	quickCompress    = []string{"none", "s2", "zstd:3", "zstd:3+dict"}
	quickConcurrency = []int{64}
)

const (
	quickRepeat   = 6
	quickDuration = 240 * time.Millisecond
)

// AfterApply checks the lists, and notes what was on the command line.
func (c *runCommand) AfterApply(k *kong.Context) error {
	c.given = given(k)
	return cli.CheckLists(k)
}

// given are the options of a command line that bear on its figures. None is an address of a server,
// which may hold a password.
func given(k *kong.Context) []string {
	return cli.Given(k, func(f *kong.Flag) bool {
		return (f.Group == nil || f.Group.Key != "results") && !slices.Contains([]string{"redis", "redis-password-file", "seed"}, f.Name)
	})
}

// hurry replaces what was not on the command line.
func (c *runCommand) hurry() error {
	if len(c.Data)+len(c.Builtin)+len(c.ValueSize) == 0 {
		c.Builtin = quickBuiltin
	}
	if !slices.Contains(c.given, "--compress") {
		c.Compress = make([]engine.Setting, len(quickCompress))
		for i, name := range quickCompress {
			if err := c.Compress[i].UnmarshalText([]byte(name)); err != nil {
				return err
			}
		}
	}
	if !slices.Contains(c.given, "--concurrency") {
		c.Concurrency = quickConcurrency
	}
	if !slices.Contains(c.given, "--repeat") {
		c.Repeat = quickRepeat
	}
	if !slices.Contains(c.given, "--duration") {
		c.Duration = quickDuration
	}
	return nil
}

// options are the flags as the lab takes them.
func (c *runCommand) options(s *cli.Streams) (o lab.Options, err error) {
	if c.Quick {
		if err := c.hurry(); err != nil {
			return o, err
		}
	}
	if len(c.Data) > 0 && len(c.Builtin)+len(c.ValueSize) == 0 && slices.Contains(c.Track, dataset.Typed) && slices.Contains(c.given, "--track") {
		return o, fmt.Errorf("%w: --track %s is for --builtin: there is no Go type for values of --data, which are decoded into any", cli.ErrUsage, dataset.Typed)
	}
	login, err := c.Login(c.Redis)
	if err != nil {
		return o, err
	}
	o = lab.Options{
		Streams: s,
		Data:    dataset.Options{Files: c.Data, Builtin: c.Builtin, Tracks: c.Track, Values: c.Values, Seed: c.Seed},
		Config: lab.Config{
			Codecs: c.Codec, Clients: c.Client, Compress: c.Compress, Batches: c.Batch, Concurrency: c.Concurrency, Rates: c.Rate.List, Sweep: c.Rate.Sweep, Mix: c.Mix,
			KeySize: c.KeySize, Duration: c.Duration, Rounds: c.Repeat, Seed: c.Seed, Profiles: c.Profile, ProfileDir: c.ProfileDir,
		},
		Redis: c.Redis, Login: login, Embedded: c.Embedded,
		AppendOnly: c.AppendOnly, IOThreads: c.IOThreads, MaxPolicies: c.MaxPolicy, Links: c.Link,
	}
	for _, size := range c.ValueSize {
		o.Data.Sizes = append(o.Data.Sizes, int(size))
	}
	o.Mix.Misses, o.Mix.Zipf = 1-c.HitRate, c.Zipf
	o.About.Command = slices.Concat([]string{"balebench", "run"}, c.given, []string{"--seed", fmt.Sprint(c.Seed)})
	return o, nil
}

// Run measures and reports.
func (c *runCommand) Run(ctx context.Context, s *cli.Streams) error {
	o, err := c.options(s)
	if err != nil {
		return err
	}
	return c.measure(ctx, s, o)
}
