package lab

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/mem"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/dataset"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/cmd/internal/push"
	"github.com/balekv/bale/cmd/internal/serve"
)

// Options are a run: what to measure on which values, through which servers, and who follows it.
type Options struct {
	*cli.Streams // data of - comes from In, notes go to Err
	Config
	Data dataset.Options // where Config.Datasets come from

	// Redis is the URL of a server, with its password. Default: a private redis-server for each
	// combination of the settings below, or an embedded stand-in where none is installed.
	Redis       string
	Login       keyspace.Login // beside the URL
	Embedded    bool           // the stand-in in any case
	AppendOnly  []string
	IOThreads   []int
	MaxPolicies []string
	Links       []string

	Serve    string       // the address of a live page; default: none
	Baseline *outcome.Run // on that page
	Push     string       // the URL of a Pushgateway for the result; default: none

	// Findings sums the result up, for a study. Default: no findings.
	Findings func(*outcome.Run) []outcome.Finding
}

// What a slip of the hand could ask for.
const (
	maxConcurrency = 10_000
	maxRounds      = 1000
	maxKeySize     = 4 << 10 // bytes: there are tens of thousands of keys
	maxRate        = 10_000_000
)

// Validate returns an error if no run is possible.
func (o *Options) Validate() error {
	for _, name := range o.Codecs {
		if name != dataset.Auto && !slices.Contains(dataset.Codecs(), name) {
			return fmt.Errorf("--codec %q; there are %s, and %s", name, strings.Join(dataset.Codecs(), ", "), dataset.Auto)
		}
	}
	for _, n := range o.Concurrency {
		if n < 1 || n > maxConcurrency {
			return fmt.Errorf("--concurrency %d, must be 1 to %d", n, maxConcurrency)
		}
	}
	for _, kind := range o.Profiles {
		if !slices.Contains(ProfileKinds, kind) {
			return fmt.Errorf("--profile %q; there are %s", kind, strings.Join(ProfileKinds, ", "))
		}
	}
	for option, given := range map[string]bool{"--hit-rate": o.Mix.Misses != 0, "--zipf": o.Mix.Zipf != 0} {
		if given && !o.Mix.Single() {
			return fmt.Errorf("%s is for single GETs and SETs: add --mix, for example --mix 90:10", option)
		}
	}
	if err := o.Mix.Validate(); err != nil {
		return fmt.Errorf("--hit-rate, --zipf: %w", err)
	}
	settings, err := o.servers()
	switch {
	case err != nil:
		return err
	case len(settings) > 0 && (o.Embedded || o.Redis != ""):
		return errors.New("settings of a server are for private ones, not for --redis or --embedded")
	case o.Embedded && o.Redis != "":
		return errors.New("--embedded and --redis exclude each other")
	case o.Mix.Single() && slices.ContainsFunc(o.Batches, func(b Batch) bool { return b.N > 0 }):
		return errors.New("--mix is of single values, and --batch of many")
	case o.Rounds < 1 || o.Rounds > maxRounds:
		return fmt.Errorf("--repeat %d, must be 1 to %d", o.Rounds, maxRounds)
	case o.Duration < time.Duration(o.Rounds)*time.Millisecond:
		return fmt.Errorf("--duration %v, must be at least a millisecond for each of %d rounds", o.Duration, o.Rounds)
	case o.KeySize != 0 && (o.KeySize < MinKeySize || o.KeySize > maxKeySize):
		return fmt.Errorf("--key-size %d, must be %d to %d", o.KeySize, MinKeySize, maxKeySize)
	case o.ProfileDir != "" && len(o.Profiles) == 0:
		return errors.New("--profile-dir without --profile")
	}
	if o.Serve != "" {
		if err := serve.Check(o.Serve); err != nil {
			return fmt.Errorf("--serve: %w", err)
		}
	}
	if o.Push != "" {
		if _, err := push.Parse(o.Push); err != nil {
			return fmt.Errorf("--push: %w", err)
		}
	}
	return o.Data.Validate()
}

func (o *Options) servers() ([]ServerSetting, error) {
	return ServerSettings(o.AppendOnly, o.IOThreads, o.MaxPolicies, o.Links)
}

// Run opens what the options ask for, and measures it. Its errors and its result are those of
// [Measure]; a cell without figures is an error, too.
func Run(ctx context.Context, o Options) (result *outcome.Run, err error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	o.Data.In = o.In
	if o.Datasets, err = dataset.Open(ctx, o.Data); err != nil {
		return nil, err
	}
	dataset.RegisterGob()
	servers, err := o.open(ctx)
	defer func() {
		for _, server := range servers {
			err = errors.Join(err, server.Close())
		}
	}()
	if err != nil {
		return nil, err
	}
	progress, stopProgress := cli.ShowProgress(o.Err)
	if o.Progress == nil && progress != nil {
		o.Progress = func(p Progress) { progress(p.Done, p.Total, p.What) }
	}
	live, err := o.live(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, live.Close()) }()
	printable.Fprintf(o.Err, "%v\n", Estimate(servers, o.Config))
	result, err = Measure(ctx, servers, o.Config)
	stopProgress()
	switch {
	case result == nil && ctx.Err() != nil:
		printable.Fprintf(o.Err, "no round was whole by then: there are no figures\n")
	case errors.Is(err, ErrClient): // the server's URL has something that a client cannot do
		err = fmt.Errorf("%w: --client: %w", cli.ErrUsage, err)
	}
	if result == nil {
		return nil, err
	}
	if o.Findings != nil && !result.Environment.Interrupted {
		result.Findings = o.Findings(result)
	}
	live.end(ctx, result)
	if err = errors.Join(err, o.push(context.WithoutCancel(ctx), result)); err == nil {
		err = result.Err()
	}
	return result, err
}

// open makes the servers that are measured through: one, or a private one for each combination of
// settings. The caller closes them, also after an error.
func (o *Options) open(ctx context.Context) (servers []*Server, err error) {
	settings, err := o.servers()
	opened := func(s *Server, err error) error {
		if err == nil {
			servers = append(servers, s)
		}
		return err
	}
	switch {
	case err != nil:
	case o.Embedded:
		err = opened(OpenEmbedded(ctx))
	case len(settings) == 0:
		if err = opened(OpenServer(ctx, o.Redis, o.Login)); err != nil {
			for _, refusal := range []string{"NOAUTH", "WRONGPASS"} {
				if strings.Contains(err.Error(), refusal) {
					err = fmt.Errorf("%w; %s", err, keyspace.PasswordHint)
				}
			}
		}
	}
	for _, setting := range settings {
		if err == nil {
			err = opened(OpenPrivate(ctx, setting))
		}
	}
	return servers, err
}

// push sends a result to the Pushgateway, if there is one.
func (o *Options) push(ctx context.Context, r *outcome.Run) error {
	if o.Push == "" {
		return nil
	}
	gateway, err := push.Parse(o.Push)
	if err == nil {
		err = gateway.Push(ctx, r)
	}
	if err != nil {
		return fmt.Errorf("--push: %w", err)
	}
	printable.Fprintf(o.Err, "pushed to %s\n", gateway)
	return nil
}

// environment is what is known of a run before it begins.
func (r *run) environment() outcome.Environment {
	e, server := r.About, r.servers[0]
	e.Bale, e.Go, e.OS = cli.Version(), runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
	e.Cores, e.CPU = runtime.NumCPU(), cli.CPU()
	if m, err := mem.VirtualMemory(); err == nil {
		e.MemoryBytes = m.Total
	}
	e.RedisVersion, e.Embedded, e.Private = server.Version, server.Embedded, server.Private
	e.Libraries = libraries(&r.Config)
	for _, d := range r.Datasets {
		if d.Note != "" {
			e.Notes = append(e.Notes, d.Note)
		}
	}
	e.Seed, e.Planned, e.Load, e.Mix = r.Seed, r.Rounds, r.load(), r.Mix.Proportion()
	return e
}

// Rates are those of an open loop, in operations a second, or a sweep of them.
type Rates struct {
	List  []float64
	Sweep bool
}

// SweepRates is a sweep, as an option has it.
const SweepRates = "sweep"

// UnmarshalText adds a list of rates, or the sweep.
func (r *Rates) UnmarshalText(text []byte) error {
	for rate := range strings.SplitSeq(string(text), ",") {
		v, err := strconv.ParseFloat(rate, 64)
		switch {
		case rate == SweepRates:
			r.Sweep = true
		case err != nil || math.IsNaN(v) || v < 1 || v > maxRate:
			return fmt.Errorf("%q; it is operations a second, 1 to %d, or %s", rate, int(maxRate), SweepRates)
		case slices.Contains(r.List, v):
			return fmt.Errorf("%v is there twice", v)
		default:
			r.List = append(r.List, v)
		}
	}
	if r.Sweep && len(r.List) > 0 {
		return fmt.Errorf("either %s or a list of rates", SweepRates)
	}
	return nil
}
