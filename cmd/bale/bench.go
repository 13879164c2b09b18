package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/mem"
	"golang.org/x/term"

	"github.com/balekv/bale/cmd/bale/internal/dataset"
	"github.com/balekv/bale/cmd/bale/internal/engine"
	"github.com/balekv/bale/cmd/bale/internal/lab"
	"github.com/balekv/bale/cmd/bale/internal/report"
)

type benchCommand struct {
	Data        []string      `placeholder:"FILE|DIR|-" sep:"none" help:"Values to measure on: a file or stdin (-) with one on each line, or a folder, with one in each file in it and below. Repeatable. Default: built-in profiles, sessions, logs and random bytes."`
	Redis       string        `placeholder:"URL" help:"Redis to measure through, for example redis://127.0.0.1:6379. It gets keys bale:bench:*, which are removed. Default: a private redis-server, or an embedded stand-in where none is installed."`
	Codec       []string      `default:"json" placeholder:"LIST" help:"Serializers: json, gob, raw (the bytes as they are). Default: ${default}."`
	Compress    []string      `default:"none,snappy,s2,lz4,gzip,zstd:3,s2+dict,lz4+dict,zstd:3+dict" placeholder:"LIST" help:"Compressors: none, snappy, s2, lz4, gzip, zstd, with a level where wanted (zstd:7), /go for zstd in pure Go, +dict for a dictionary. Default: ${default}."`
	Client      []string      `default:"goredis" placeholder:"LIST" help:"Redis clients: goredis, rueidis, redigo, with a number of connections where wanted (redigo:16), +auto for go-redis' auto-pipelining, -auto for rueidis without its own. Default: ${default}."`
	Concurrency []int         `default:"1,64" placeholder:"LIST" help:"How many callers at once, 1 to 10000. Default: ${default}."`
	Duration    time.Duration `default:"1s" placeholder:"D" help:"How long each cell is measured, in all rounds. Default: ${default}."`
	Repeat      int           `default:"3" placeholder:"N" help:"Rounds that the duration is split into; cells take turns in random order. Default: ${default}."`
	Values      int           `default:"10000" placeholder:"N" help:"How many values of each set are used; of more, a random sample. Default: ${default}."`
	Seed        uint64        `default:"1" placeholder:"N" help:"Seed of built-in values, samples and order. Default: ${default}."`
	JSON        string        `name:"json" placeholder:"FILE" help:"Write all figures as JSON, too: to a file, or to stdout (-) in place of the tables."`
	Stages      bool          `help:"Show the percentiles of every stage, too."`
	Embedded    bool          `help:"Use the embedded stand-in even where a redis-server is installed."`
}

// Help is shown below the options.
func (benchCommand) Help() string {
	return `Each cell is a combination of data, codec, compressor and callers. Each operation takes a value through the whole path: serialize, compress, SET, GET, decompress, deserialize; and what comes back is compared with what went in. A cell with a single mismatch is FAILED; one that could not be measured, for a time-out or too short a time, is in ERROR. The exit status is 1 in both cases.

With +dict a dictionary is trained on half of the values first, and everything is measured on the others alone.

Clients: goredis and redigo have as many connections as there are callers, at most; :N makes them N. goredis+auto pipelines the commands of all callers over one connection, goredis:N+auto over N. rueidis pipelines them over 1, 2 or 4 by itself, rueidis:N over N (a power of two); rueidis-auto and rueidis:N-auto have a pool as the others have.

Examples:
  bale bench
  bale bench --data values.ndjson
  bale bench --data values.ndjson --compress none,zstd:3,zstd:3+dict --concurrency 1,64,1000
  bale bench --data values.ndjson --client goredis,rueidis,redigo --compress none,zstd:3+dict
  bale bench --client goredis,goredis+auto,rueidis,rueidis:1,rueidis-auto,redigo:16 --concurrency 64
  bale bench --codec json,gob,raw --duration 500ms --json results.json
  redis-cli --raw GET user:1 | bale bench --data -`
}

// maxValue is the largest value in bytes that the bench reads: what a Packer unpacks by default.
const maxValue = 64 << 20

// maxConcurrency bounds what a slip of the hand can start.
const maxConcurrency = 10_000

func (b *benchCommand) config() (lab.Config, error) {
	c := lab.Config{Codecs: b.Codec, Concurrency: b.Concurrency, Duration: b.Duration, Rounds: b.Repeat, Seed: b.Seed}
	for _, name := range b.Codec {
		if !slices.Contains(dataset.Codecs(), name) {
			return c, fmt.Errorf("%w: --codec %q; there are %s", errUsage, name, strings.Join(dataset.Codecs(), ", "))
		}
	}
	for _, name := range b.Client {
		client, err := lab.ParseClient(name)
		if err != nil {
			return c, fmt.Errorf("%w: --client: %w", errUsage, err)
		}
		if slices.Contains(c.Clients, client) {
			return c, fmt.Errorf("%w: --client %s is there twice", errUsage, name)
		}
		c.Clients = append(c.Clients, client)
	}
	for _, name := range b.Compress {
		setting, err := engine.Parse(name)
		if err != nil {
			return c, fmt.Errorf("%w: --compress: %w", errUsage, err)
		}
		c.Compress = append(c.Compress, setting)
	}
	for _, n := range b.Concurrency {
		if n < 1 || n > maxConcurrency {
			return c, fmt.Errorf("%w: --concurrency %d, must be 1 to %d", errUsage, n, maxConcurrency)
		}
	}
	switch {
	case b.Repeat < 1 || b.Repeat > 1000:
		return c, fmt.Errorf("%w: --repeat %d, must be 1 to 1000", errUsage, b.Repeat)
	case b.Duration < time.Duration(b.Repeat)*time.Millisecond:
		return c, fmt.Errorf("%w: --duration %v, must be at least a millisecond for each of %d rounds", errUsage, b.Duration, b.Repeat)
	case b.Values < 1:
		return c, fmt.Errorf("%w: --values %d, must be at least 1", errUsage, b.Values)
	case b.Embedded && b.Redis != "":
		return c, fmt.Errorf("%w: --embedded and --redis exclude each other", errUsage)
	}
	return c, nil
}

// Run measures and reports.
func (b *benchCommand) Run(ctx context.Context, s *streams) error {
	c, err := b.config()
	if err != nil {
		return err
	}
	return b.run(ctx, s, c)
}

func (b *benchCommand) run(ctx context.Context, s *streams, c lab.Config) (err error) {
	if c.Datasets, err = b.load(s); err != nil {
		return err
	}
	dataset.RegisterGob()
	out, err := openJSON(b.JSON, s) // before the measuring, not after it
	if err != nil {
		return err
	}
	defer out.discard()
	server, err := b.open(ctx)
	if err != nil {
		return err
	}
	progress, stopProgress := showProgress(s.err)
	if c.Progress == nil {
		c.Progress = progress
	}
	result, err := lab.Run(ctx, server, c)
	stopProgress()
	err = errors.Join(err, server.Close())
	if result != nil {
		b.environment(result, server, c)
		err = errors.Join(err, out.write(result))
		if b.JSON != "-" {
			report.Table(s.out, result, report.Options{Stages: b.Stages})
		}
		if err == nil {
			err = failures(result)
		}
	}
	return err
}

// failures is an error that counts the cells that have no figures.
func failures(r *lab.Result) error {
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
	if errs == nil {
		return nil
	}
	return errors.New(strings.Join(errs, "; "))
}

func (b *benchCommand) load(s *streams) ([]*dataset.Dataset, error) {
	if len(b.Data) == 0 {
		return dataset.BuiltIn(b.Seed)
	}
	var sets []*dataset.Dataset
	for _, path := range b.Data {
		d, err := dataset.Load(path, s.in, dataset.Limits{Values: b.Values, ValueSize: maxValue, Seed: b.Seed})
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(sets, func(o *dataset.Dataset) bool { return o.Name == d.Name }) {
			d.Name = fmt.Sprintf("%s-%d", d.Name, len(sets)+1)
		}
		sets = append(sets, d)
	}
	return sets, nil
}

func (b *benchCommand) open(ctx context.Context) (*lab.Server, error) {
	if b.Embedded {
		return lab.OpenEmbedded(ctx)
	}
	return lab.OpenServer(ctx, b.Redis)
}

// environment fills in what is known only here.
func (b *benchCommand) environment(r *lab.Result, server *lab.Server, c lab.Config) {
	e := &r.Environment
	e.Time = time.Now().UTC().Truncate(time.Second)
	e.Command = b.command()
	e.Bale, e.Go, e.OS = version(), runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
	e.Cores, e.CPU = runtime.NumCPU(), cpuName()
	if m, err := mem.VirtualMemory(); err == nil {
		e.MemoryBytes = m.Total
	}
	e.RedisVersion, e.Embedded, e.Private = server.Version, server.Embedded, server.Private
	e.Zstd = engine.Name
	for _, d := range c.Datasets {
		if d.Note != "" {
			e.Notes = append(e.Notes, d.Note)
		}
	}
	if e.Interrupted {
		e.Notes = append(e.Notes, fmt.Sprintf("INTERRUPTED: these are figures of %d of %d rounds, for %d of %d cells", e.Rounds, c.Rounds, len(r.Cells), len(r.Cells)+e.CellsLeftOut))
	}
}

func cpuName() string {
	if info, err := cpu.Info(); err == nil && len(info) > 0 {
		return strings.TrimSpace(info[0].ModelName)
	}
	return "unknown CPU"
}

// command is the call that repeats the run, without the address of the server, which may hold a password.
func (b *benchCommand) command() []string {
	args := []string{"bale", "bench"}
	for _, d := range b.Data {
		args = append(args, "--data", d)
	}
	if b.Embedded {
		args = append(args, "--embedded")
	}
	return append(args,
		"--client", strings.Join(b.Client, ","), "--codec", strings.Join(b.Codec, ","), "--compress", strings.Join(b.Compress, ","),
		"--concurrency", strings.Trim(strings.ReplaceAll(fmt.Sprint(b.Concurrency), " ", ","), "[]"),
		"--duration", b.Duration.String(), "--repeat", fmt.Sprint(b.Repeat), "--values", fmt.Sprint(b.Values), "--seed", fmt.Sprint(b.Seed))
}

// progressInterval is the shortest time between two looks of the progress line.
const progressInterval = 100 * time.Millisecond

// showProgress keeps a line on w if that is a terminal. Call stop before writing anything else.
func showProgress(w io.Writer) (update func(done, total int, what string), stop func()) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil, func() {}
	}
	const eraseLine = "\r\x1b[K"
	start := time.Now()
	var shown time.Time
	update = func(done, total int, what string) {
		now := time.Now()
		if now.Sub(shown) < progressInterval {
			return
		}
		shown = now
		left := "" // what is left can be told once a few steps are done
		if done > 3 {
			rest := time.Duration(float64(now.Sub(start)) / float64(done) * float64(total-done))
			left = fmt.Sprintf(", about %v left", rest.Round(time.Second))
		}
		fmt.Fprintf(w, "%s%3d%%%s  %s", eraseLine, 100*done/total, left, what)
	}
	return update, func() { fmt.Fprint(w, eraseLine) }
}
