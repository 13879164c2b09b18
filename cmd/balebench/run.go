package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/dataset"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/lab"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/cmd/internal/push"
	"github.com/balekv/bale/cmd/internal/serve"
	"github.com/balekv/bale/cmd/internal/values"
	"github.com/shirou/gopsutil/v4/mem"
)

type runCommand struct {
	Data        []string      `placeholder:"FILE|DIR|-" sep:"none" group:"data" help:"Values to measure on: a file or stdin (-) with one on each line, or a folder, with one in each file in it and below. Repeatable."`
	Builtin     []string      `placeholder:"LIST" group:"data" help:"Built-in values instead: ${builtin}. Default, without --data and --value-size: all of them."`
	ValueSize   []cli.Bytes   `placeholder:"LIST" group:"data" help:"Built-in values of exactly so many bytes instead: 100, 1KiB, 10KiB."`
	Track       []string      `default:"typed" placeholder:"LIST" group:"data" help:"How a program holds built-in values: in Go types (typed) or decoded into any (dynamic), as values of --data are. Default: ${default}."`
	Values      int           `default:"10000" placeholder:"N" group:"data" help:"How many values of each set of --data are used; of more, a random sample. Default: ${default}."`
	Codec       []string      `default:"json" placeholder:"LIST" group:"what" help:"Serializers: ${codecs}. Default: ${default}."`
	Compress    []string      `default:"none,snappy,s2,lz4,gzip,zstd:3,s2+dict,lz4+dict,zstd:3+dict" placeholder:"LIST" group:"what" help:"Compressors: none, snappy, s2, lz4, gzip, zstd, with a level where wanted (zstd:7), /go for zstd in pure Go, /naive for a new context for each value, /stream for the streaming API, +dict for a dictionary. Default: ${default}."`
	Client      []string      `default:"goredis" placeholder:"LIST" group:"what" help:"Redis clients: ${clients}. Default: ${default}."`
	Batch       []string      `default:"single" placeholder:"LIST" group:"what" help:"How values travel: single, pipeline:N for N values in a pipeline, mset:N for MSET and MGET of N. Default: ${default}."`
	Concurrency []int         `default:"1,64" placeholder:"LIST" group:"load" help:"How many callers at once, 1 to 10000. Default: ${default}."`
	Rate        []string      `placeholder:"LIST" group:"load" help:"Operations a second that start whether those before have ended or not (open loop), with latency from when each was to start; or sweep, for rates up to where the server gives in. Default: each caller starts one when its last has ended (closed loop)."`
	Mix         string        `placeholder:"GETS:SETS" group:"load" help:"Operations are single GETs and SETs in this proportion, such as 90:10, of keys that all callers share. Default: an operation is a value written and read back."`
	HitRate     float64       `default:"1" placeholder:"SHARE" group:"load" help:"With --mix: the share of GETs that find a value, 0 to 1. Default: ${default}."`
	Zipf        float64       `placeholder:"S" group:"load" help:"With --mix: some keys are more popular, by a Zipf distribution of this exponent (0.99 as in YCSB). Default: all alike."`
	KeySize     int           `placeholder:"BYTES" group:"load" help:"Length of a key, ${min_key} at least. Default: ${min_key}."`
	Redis       string        `placeholder:"URL" group:"server" help:"Redis to measure through, for example redis://127.0.0.1:6379. It gets keys bale:bench:*, which are removed. Default: a private redis-server, or an embedded stand-in where none is installed."`
	AppendOnly  []string      `name:"appendonly" placeholder:"LIST" group:"server" help:"Private servers with a log of writes: no, everysec, always."`
	IOThreads   []int         `name:"io-threads" placeholder:"LIST" group:"server" help:"Private servers with so many threads for reading and writing."`
	MaxPolicy   []string      `name:"maxmemory-policy" placeholder:"LIST" group:"server" help:"Private servers that keep what this policy needs: noeviction, allkeys-lru, allkeys-lfu ..."`
	Link        []string      `placeholder:"RATE[,RTT]" sep:"none" group:"server" help:"Private servers behind a limited network, such as 1gbit or 100mbit,0.5ms: in a network namespace, for root on Linux. Repeatable."`
	Embedded    bool          `group:"server" help:"Use the embedded stand-in even where a redis-server is installed."`
	Duration    time.Duration `default:"280ms" placeholder:"D" group:"measuring" help:"How long each cell is measured, in all rounds. Default: ${default}."`
	Repeat      int           `default:"8" placeholder:"N" group:"measuring" help:"Rounds that the duration is split into; cells take turns in random order. Intervals need 6. Default: ${default}."`
	Quick       bool          `group:"measuring" help:"A first look in some seconds: fewer sets, compressors and rounds where none are asked for."`
	Seed        uint64        `default:"1" placeholder:"N" group:"measuring" help:"Seed of built-in values, samples and order. Default: ${default}."`
	Profile     []string      `placeholder:"LIST" group:"measuring" help:"Take a pprof profile of each cell: ${profiles}. They are in --html as flame graphs, and in --profile-dir as files."`
	ProfileDir  string        `placeholder:"DIR" group:"measuring" help:"Write the profiles into this folder."`
	JSON        string        `name:"json" placeholder:"FILE" group:"results" help:"Write all figures as JSON, too: to a file, or to stdout (-) in place of the tables."`
	HTML        string        `name:"html" placeholder:"FILE" group:"results" help:"Write a report with pictures, as one file that needs no network; - for stdout, in place of the tables."`
	Baseline    string        `placeholder:"FILE" group:"results" help:"Lay the results of an earlier run (of --json) beside these in --html."`
	GoBench     string        `name:"go-bench" placeholder:"FILE" group:"results" help:"Write all rounds in the format of Go benchmarks, too, for balebench compare and benchstat; - for stdout, in place of the tables."`
	Stages      bool          `group:"results" help:"Show the percentiles of every stage, too."`
	Serve       string        `placeholder:"ADDRESS" group:"results" help:"Show the report live at this address while the run goes on, with /metrics and /debug/pprof; :8080 is port 8080 of loopback, which every user of the machine can read."`
	Push        string        `placeholder:"URL" group:"results" help:"Push the results to a Prometheus Pushgateway."`

	cli.PasswordFlag `group:"server"`

	given map[string]bool // options that were on the command line, by their names
	study *studyRun       // that it is run for; nil for none
}

// Help is shown below the options.
func (runCommand) Help() string {
	return `Each cell is a combination of data, codec, compressor, client, load and server. Each operation takes a value through the whole path: serialize, compress, SET, GET, decompress, deserialize; and what comes back is compared with what went in. A cell with a single mismatch is FAILED; one that could not be measured, for a time-out or too short a time, is in ERROR. The exit status is 1 in both cases.

With +dict a dictionary is trained on half of the values first, and everything is measured on the others alone.

Ctrl-C ends a run with the figures of the rounds that are whole by then; in the first round, of the cells that had their turn; while dictionaries are trained, or the rates of a sweep are found, there are none yet. A second Ctrl-C ends it at once.

Each run says which versions of which libraries were measured. radix is dormant: it is here to be compared with.

Clients: goredis, redigo and radix have as many connections as there are callers, at most; :N makes them N. goredis+auto pipelines the commands of all callers over one connection, goredis:N+auto over N. rueidis pipelines them over 1, 2 or 4 by itself, rueidis:N over N (a power of two); rueidis-auto and rueidis:N-auto have a pool as the others have. +idle:N keeps N connections of goredis open. @twemproxy puts a twemproxy (nutcracker) between.

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

// maxConcurrency bounds what a slip of the hand can start.
const maxConcurrency = 10_000

const sweepRates = "sweep"

// The defaults that --quick replaces.
var (
	quickBuiltin  = []string{"profiles", "sessions"}
	quickCompress = []string{"none", "s2", "zstd:3", "zstd:3+dict"}
)

const (
	quickConcurrency = 64
	quickRepeat      = 6
	quickDuration    = 240 * time.Millisecond
)

// AfterApply notes what was on the command line.
func (b *runCommand) AfterApply(c *kong.Context) error {
	b.given = map[string]bool{}
	for _, p := range c.Path {
		if p.Flag != nil {
			b.given[p.Flag.Name] = true
		}
	}
	return nil
}

// hurry replaces what was not on the command line.
func (b *runCommand) hurry() {
	if !b.Quick {
		return
	}
	if len(b.Data)+len(b.Builtin)+len(b.ValueSize) == 0 {
		b.Builtin = quickBuiltin
	}
	if !b.given["compress"] {
		b.Compress = quickCompress
	}
	if !b.given["concurrency"] {
		b.Concurrency = []int{quickConcurrency}
	}
	if !b.given["repeat"] {
		b.Repeat = quickRepeat
	}
	if !b.given["duration"] {
		b.Duration = quickDuration
	}
}

func (b *runCommand) config() (lab.Config, error) {
	b.hurry()
	c := lab.Config{Codecs: b.Codec, Concurrency: b.Concurrency, Duration: b.Duration, Rounds: b.Repeat, Seed: b.Seed, KeySize: b.KeySize, Profiles: b.Profile, ProfileDir: b.ProfileDir}
	for _, name := range b.Codec {
		if !slices.Contains(dataset.Codecs(), name) {
			return c, fmt.Errorf("%w: --codec %q; there are %s", cli.ErrUsage, name, strings.Join(dataset.Codecs(), ", "))
		}
	}
	for _, name := range b.Client {
		client, err := lab.ParseClient(name)
		if err != nil {
			return c, fmt.Errorf("%w: --client: %w", cli.ErrUsage, err)
		}
		c.Clients = append(c.Clients, client)
	}
	for _, name := range b.Compress {
		setting, err := engine.ParseForm(name)
		if err != nil {
			return c, fmt.Errorf("%w: --compress: %w", cli.ErrUsage, err)
		}
		c.Compress = append(c.Compress, setting)
	}
	for _, name := range b.Batch {
		batch, err := lab.ParseBatch(name)
		if err != nil {
			return c, fmt.Errorf("%w: --batch: %w", cli.ErrUsage, err)
		}
		c.Batches = append(c.Batches, batch)
	}
	for _, n := range b.Concurrency {
		if n < 1 || n > maxConcurrency {
			return c, fmt.Errorf("%w: --concurrency %d, must be 1 to %d", cli.ErrUsage, n, maxConcurrency)
		}
	}
	for _, track := range b.Track {
		if track != dataset.Typed && track != dataset.Dynamic {
			return c, fmt.Errorf("%w: --track %q; there are %s and %s", cli.ErrUsage, track, dataset.Typed, dataset.Dynamic)
		}
	}
	for _, kind := range b.Profile {
		if !slices.Contains(lab.ProfileKinds, kind) {
			return c, fmt.Errorf("%w: --profile %q; there are %s", cli.ErrUsage, kind, strings.Join(lab.ProfileKinds, ", "))
		}
	}
	if err := b.load(&c); err != nil {
		return c, fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	for option, n := range map[string]int{"--codec": len(b.Codec), "--compress": len(b.Compress), "--client": len(b.Client), "--batch": len(b.Batch), "--concurrency": len(b.Concurrency), "--track": len(b.Track)} {
		if n == 0 {
			return c, fmt.Errorf("%w: %s is empty", cli.ErrUsage, option)
		}
	}
	switch {
	case b.Repeat < 1 || b.Repeat > 1000:
		return c, fmt.Errorf("%w: --repeat %d, must be 1 to 1000", cli.ErrUsage, b.Repeat)
	case b.Duration < time.Duration(b.Repeat)*time.Millisecond:
		return c, fmt.Errorf("%w: --duration %v, must be at least a millisecond for each of %d rounds", cli.ErrUsage, b.Duration, b.Repeat)
	case b.Values < 1:
		return c, fmt.Errorf("%w: --values %d, must be at least 1", cli.ErrUsage, b.Values)
	case len(b.Data) > 0 && len(b.Builtin)+len(b.ValueSize) == 0 && slices.Contains(b.Track, dataset.Typed) && b.given["track"]:
		return c, fmt.Errorf("%w: --track %s is for --builtin: there is no Go type for values of --data, which are decoded into any", cli.ErrUsage, dataset.Typed)
	case b.Embedded && b.Redis != "":
		return c, fmt.Errorf("%w: --embedded and --redis exclude each other", cli.ErrUsage)
	case b.KeySize != 0 && (b.KeySize < lab.MinKeySize || b.KeySize > maxKeySize):
		return c, fmt.Errorf("%w: --key-size %d, must be %d to %d", cli.ErrUsage, b.KeySize, lab.MinKeySize, maxKeySize)
	case b.ProfileDir != "" && len(b.Profile) == 0:
		return c, fmt.Errorf("%w: --profile-dir without --profile", cli.ErrUsage)
	case b.Baseline != "" && b.HTML == "":
		return c, fmt.Errorf("%w: --baseline is for --html", cli.ErrUsage)
	case b.Serve != "" && serve.Check(b.Serve) != nil:
		return c, fmt.Errorf("%w: --serve: %w", cli.ErrUsage, serve.Check(b.Serve))
	case len(b.toStdout()) > 1:
		return c, fmt.Errorf("%w: %s cannot both have stdout", cli.ErrUsage, strings.Join(b.toStdout(), " and "))
	}
	// Two cells with one name would be ambiguous.
	if err := cmp.Or(twice("--builtin", b.Builtin), twice("--value-size", b.ValueSize), twice("--track", b.Track), twice("--codec", b.Codec), twice("--compress", c.Compress),
		twice("--client", c.Clients), twice("--batch", c.Batches), twice("--concurrency", b.Concurrency), twice("--rate", c.Rates), twice("--profile", b.Profile)); err != nil {
		return c, err
	}
	if b.Push != "" {
		if _, err := push.Parse(b.Push); err != nil {
			return c, fmt.Errorf("%w: --push: %w", cli.ErrUsage, err)
		}
	}
	return c, nil
}

const maxKeySize = 4 << 10 // bytes: there are tens of thousands of keys

func twice[T comparable](option string, list []T) error {
	for i, v := range list {
		if slices.Contains(list[:i], v) {
			return fmt.Errorf("%w: %s %v is there twice", cli.ErrUsage, option, v)
		}
	}
	return nil
}

// toStdout are the options whose results take the place of the tables.
func (b *runCommand) toStdout() (options []string) {
	for _, o := range []struct{ option, path string }{{"--json", b.JSON}, {"--html", b.HTML}, {"--go-bench", b.GoBench}} {
		if o.path == "-" {
			options = append(options, o.option)
		}
	}
	return options
}

// load reads how operations come.
func (b *runCommand) load(c *lab.Config) (err error) {
	if c.Mix, err = lab.ParseMix(b.Mix); err != nil {
		return fmt.Errorf("--mix: %w", err)
	}
	c.Mix.Misses, c.Mix.Zipf = 1-b.HitRate, b.Zipf
	for option, wrong := range map[string]bool{"--hit-rate": c.Mix.Misses != 0, "--zipf": b.Zipf != 0} {
		if wrong && !c.Mix.Single() {
			return fmt.Errorf("%s is for single GETs and SETs: add --mix, for example --mix 90:10", option)
		}
	}
	if err := c.Mix.Validate(); err != nil {
		return fmt.Errorf("--hit-rate, --zipf: %w", err)
	}
	if c.Mix.Single() && slices.ContainsFunc(c.Batches, func(b lab.Batch) bool { return b.N > 0 }) {
		return errors.New("--mix is of single values, and --batch of many")
	}
	for _, rate := range b.Rate {
		if rate == sweepRates {
			c.Sweep = true
			continue
		}
		v, err := strconv.ParseFloat(rate, 64)
		if err != nil || !(v >= 1 && v <= maxRate) {
			return fmt.Errorf("--rate %q; it is operations a second, 1 to %d, or %s", rate, int(maxRate), sweepRates)
		}
		c.Rates = append(c.Rates, v)
	}
	if c.Sweep && len(c.Rates) > 0 {
		return fmt.Errorf("--rate is either %s or a list of rates", sweepRates)
	}
	return nil
}

const maxRate = 10_000_000

// Run measures and reports.
func (b *runCommand) Run(ctx context.Context, s *cli.Streams) error {
	c, err := b.config()
	if err != nil {
		return err
	}
	return b.run(ctx, s, c)
}

func (b *runCommand) run(ctx context.Context, s *cli.Streams, c lab.Config) (err error) {
	if c.Datasets, err = b.datasets(s); err != nil {
		return err
	}
	dataset.RegisterGob()
	out, err := openOutputs(b, s) // before the measuring, not after it
	if err != nil {
		return err
	}
	defer out.Discard()
	servers, err := b.open(ctx)
	if err != nil {
		return err
	}
	defer func() {
		for _, server := range servers {
			err = errors.Join(err, server.Close())
		}
	}()
	progress, stopProgress := cli.ShowProgress(s.Err)
	if c.Progress == nil && progress != nil {
		c.Progress = func(p lab.Progress) { progress(p.Done, p.Total, p.What) }
	}
	live, err := b.live(ctx, s, &c, out.baseline, func(r *outcome.Run) { b.environment(r, servers, c) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, live.Close()) }()
	printable.Fprintf(s.Err, "%v\n", expected(lab.Estimate(servers, c)))
	result, err := lab.Run(ctx, servers, c)
	stopProgress()
	if result == nil && ctx.Err() != nil {
		printable.Fprintf(s.Err, "no round was whole by then: there are no figures\n")
	}
	if errors.Is(err, lab.ErrClient) { // one that the server's URL is nothing for
		err = fmt.Errorf("%w: --client: %w", cli.ErrUsage, err)
	}
	if result != nil {
		b.environment(result, servers, c)
		if b.study != nil && !result.Environment.Interrupted {
			result.Findings = b.study.Findings(result)
		}
		live.end(ctx, result)
		err = errors.Join(err, out.Write(result), b.push(context.WithoutCancel(ctx), s, result))
		if len(b.toStdout()) == 0 {
			result.WriteText(s.Out, outcome.TextOptions{Stages: b.Stages, Width: cli.ReportWidth(s.Out)})
		}
		if err == nil {
			err = failures(result)
		}
	}
	return err
}

// expected says what to expect of a run.
func expected(e lab.Expectation) string {
	what := "cells"
	if e.Cells == 1 {
		what = "cell"
	}
	text := fmt.Sprintf("%d %s: about %v, with loading, training and warming up", e.Cells, what, round(e.Time))
	if e.Overload > 0 {
		text += fmt.Sprintf("; up to %v more if every rate is too high", round(e.Overload))
	}
	return text
}

// round rounds a duration for display.
func round(d time.Duration) time.Duration {
	if d > time.Minute {
		return d.Round(10 * time.Second)
	}
	return max(d.Round(time.Second), time.Second)
}

// failures is an error that counts the cells that have no figures.
func failures(r *outcome.Run) error {
	wrong, unmeasured := 0, 0
	for _, c := range r.Cells {
		switch {
		case c.Mismatch:
			wrong++
		case !c.Verified:
			unmeasured++
		}
	}
	var errs []string
	if wrong > 0 {
		errs = append(errs, fmt.Sprintf("%d of %d cells FAILED: what came back was not what went in", wrong, len(r.Cells)))
	}
	if unmeasured > 0 {
		errs = append(errs, fmt.Sprintf("%d of %d cells in ERROR: they could not be measured", unmeasured, len(r.Cells)))
	}
	if len(r.Cells) == 0 && !r.Environment.Interrupted {
		errs = append(errs, "nothing was measured: there is no cell for what was asked for")
	}
	if errs == nil {
		return nil
	}
	return errors.New(strings.Join(errs, "; "))
}

// datasets are the values to measure on.
func (b *runCommand) datasets(s *cli.Streams) (sets []*dataset.Dataset, err error) {
	names := b.Builtin
	if len(b.Data)+len(b.Builtin)+len(b.ValueSize) == 0 {
		names = dataset.Names()
	}
	for _, path := range b.Data {
		d, err := dataset.Load(path, s.In, values.Limits{Values: b.Values, ValueSize: cli.MaxValue, Seed: b.Seed, Uniform: true})
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(sets, func(o *dataset.Dataset) bool { return o.Name == d.Name }) {
			d.Name = fmt.Sprintf("%s-%d", d.Name, len(sets)+1)
		}
		sets = append(sets, d)
	}
	for _, name := range names {
		if !slices.Contains(dataset.Names(), name) {
			return nil, fmt.Errorf("%w: --builtin %q; there are %s", cli.ErrUsage, name, strings.Join(dataset.Names(), ", "))
		}
		d, err := dataset.Make(name, b.Seed)
		if err != nil {
			return nil, err
		}
		for _, track := range b.Track {
			each := d
			if track == dataset.Dynamic {
				if each, err = d.Dynamic(); errors.Is(err, dataset.ErrNoCoder) && len(names) > 1 {
					continue // one of several that is no JSON
				} else if err != nil {
					return nil, fmt.Errorf("%w: %w", cli.ErrUsage, err)
				}
			}
			sets = append(sets, each)
		}
	}
	for _, size := range b.ValueSize {
		if size < 1 || size > cli.MaxValue {
			return nil, fmt.Errorf("%w: --value-size %v, must be 1 to %v", cli.ErrUsage, size, cli.Bytes(cli.MaxValue))
		}
		d, err := dataset.Sized(int(size), b.Seed)
		if err != nil {
			return nil, err
		}
		sets = append(sets, d)
	}
	return sets, nil
}

// open makes the servers that are measured through: one, or a private one for each combination of
// settings.
func (b *runCommand) open(ctx context.Context) (servers []*lab.Server, err error) {
	settings, err := lab.ServerSettings(b.AppendOnly, b.IOThreads, b.MaxPolicy, b.Link)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	switch {
	case len(settings) > 0 && (b.Embedded || b.Redis != ""):
		return nil, fmt.Errorf("%w: settings of a server are for private ones, not for --redis or --embedded", cli.ErrUsage)
	case b.Embedded:
		settings, servers = nil, make([]*lab.Server, 1)
		servers[0], err = lab.OpenEmbedded(ctx)
	case len(settings) == 0:
		var password string
		if password, err = b.Password(); err != nil {
			return nil, err
		}
		servers = make([]*lab.Server, 1)
		servers[0], err = lab.OpenServer(ctx, keyspace.WithPassword(b.Redis, password))
		if err != nil {
			err = passwordHint(err)
		}
	}
	for _, setting := range settings {
		var server *lab.Server
		if server, err = lab.OpenPrivate(ctx, setting); err != nil {
			break
		}
		servers = append(servers, server)
	}
	if err != nil {
		for _, server := range servers {
			if server != nil {
				err = errors.Join(err, server.Close())
			}
		}
		return nil, err
	}
	return servers, nil
}

// passwordHint adds to a server's refusal how a password is given.
func passwordHint(err error) error {
	for _, refusal := range []string{"NOAUTH", "WRONGPASS"} {
		if strings.Contains(err.Error(), refusal) {
			return fmt.Errorf("%w; %s", err, keyspace.PasswordHint)
		}
	}
	return err
}

// environment fills in what is known only here.
func (b *runCommand) environment(r *outcome.Run, servers []*lab.Server, c lab.Config) {
	e := &r.Environment
	server := servers[0]
	e.Time = time.Now().UTC().Truncate(time.Second)
	e.Command = b.command()
	if b.study != nil {
		e.Study, e.Question, e.StudyCommand = b.study.Name, b.study.Question, b.study.command
	}
	e.Bale, e.Go, e.OS = cli.Version(), runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
	e.Cores, e.CPU = runtime.NumCPU(), cli.CPU()
	if m, err := mem.VirtualMemory(); err == nil {
		e.MemoryBytes = m.Total
	}
	e.RedisVersion, e.Embedded, e.Private = server.Version, server.Embedded, server.Private
	e.Zstd, e.Libraries = engine.Name, libraries(c)
	for _, d := range c.Datasets {
		if d.Note != "" {
			e.Notes = append(e.Notes, d.Note)
		}
	}
	if o := e.OthersCPU; o != nil && len(r.Cells) > 0 && lab.MuchElse(*o, e.Cores) {
		e.Notes = append(e.Notes, fmt.Sprintf("%s: other programs used %.1f of %d cores meanwhile; times are theirs, too, while bytes and ratios are exact", busyMachine, min(*o, float64(e.Cores)), e.Cores))
	}
	if e.Interrupted {
		e.Notes = append(e.Notes, fmt.Sprintf("%s: these are figures of %d of %d rounds, for %d of %d cells", interruptedRun, e.Rounds, c.Rounds, len(r.Cells), len(r.Cells)+e.CellsLeftOut))
	}
}

// Prefixes of the notes that a comparison of the run repeats.
const (
	busyMachine    = "BUSY MACHINE"
	interruptedRun = "INTERRUPTED"
)

// command is the call that repeats the run: what was on the command line and bears on the figures,
// with the seed. It has no address of a server, which may hold a password.
func (b *runCommand) command() []string {
	args := []string{"balebench", "run"}
	list := func(of []int) string { return strings.Trim(strings.ReplaceAll(fmt.Sprint(of), " ", ","), "[]") }
	sizes := make([]string, len(b.ValueSize))
	for i, size := range b.ValueSize {
		sizes[i] = size.String()
	}
	for _, option := range []struct {
		name   string
		values []string
	}{
		{"data", b.Data}, {"builtin", []string{strings.Join(b.Builtin, ",")}}, {"value-size", []string{strings.Join(sizes, ",")}},
		{"track", []string{strings.Join(b.Track, ",")}}, {"values", []string{fmt.Sprint(b.Values)}}, {"codec", []string{strings.Join(b.Codec, ",")}},
		{"compress", []string{strings.Join(b.Compress, ",")}}, {"client", []string{strings.Join(b.Client, ",")}}, {"batch", []string{strings.Join(b.Batch, ",")}},
		{"concurrency", []string{list(b.Concurrency)}}, {"rate", []string{strings.Join(b.Rate, ",")}}, {"mix", []string{b.Mix}},
		{"hit-rate", []string{fmt.Sprint(b.HitRate)}}, {"zipf", []string{fmt.Sprint(b.Zipf)}}, {"key-size", []string{fmt.Sprint(b.KeySize)}},
		{"appendonly", []string{strings.Join(b.AppendOnly, ",")}}, {"io-threads", []string{list(b.IOThreads)}},
		{"maxmemory-policy", []string{strings.Join(b.MaxPolicy, ",")}}, {"link", b.Link}, {"embedded", nil}, {"quick", nil},
		{"duration", []string{b.Duration.String()}}, {"repeat", []string{fmt.Sprint(b.Repeat)}},
		{"profile", []string{strings.Join(b.Profile, ",")}}, {"profile-dir", []string{b.ProfileDir}},
	} {
		if !b.given[option.name] {
			continue
		}
		if option.values == nil {
			args = append(args, "--"+option.name)
		}
		for _, v := range option.values {
			args = append(args, "--"+option.name, v)
		}
	}
	return append(args, "--seed", fmt.Sprint(b.Seed))
}
