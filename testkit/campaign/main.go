// Command campaign looks for lost and wrong values. It keeps a model of the values that each key
// may hold, beside a fleet of programs that use bale. It runs the bale command's tools, makes
// faults at random, and checks every read against the model. It is for bale's own developers and
// promises no compatibility.
//
//	campaign --for 10m --servers single,cluster,sentinel
//	campaign --seed 42 --servers cluster --for 1m    # one walk again
//
// # What runs
//
// A walk is one set of private servers (package redisproc, with the redis-server in PATH) and a
// fleet of worker processes. The workers are this program itself, and builds of it with and without
// cgo. The driver sends them operations as lines of JSON: bale.Cache with three codecs, GetOrLoad,
// the hook of go-redis, near, batch, stream, dictionaries with and without Auto. Except on a
// cluster, the last worker has a bale proxy of its own in place of the hook. Beside them it runs
// tools (tools.go) and makes faults (faults.go). In half of the walks servers never lose
// acknowledged writes, and the model is strict. In the other half they are flushed, restarted and
// replaced, and the model allows for these losses. In half of each the registry of dictionaries has
// a server of its own.
//
// Each walk alternates between chaos and rest. At rest all faults are over. Then programs that have
// just started, and bale verify, must be able to read all values, and the values must match the
// model. No expiry may be longer than requested, and no key may be left over.
//
// # The model
//
// A read may return a value if its write began before the read ended, unless a later write replaced
// it. A later write begins after the first took effect, and replaces it if it was acknowledged
// before the read began. An unacknowledged write is in doubt until the next rest: a killed program
// may have sent it. A write that was acknowledged late is in doubt too, because its command may
// have been sent twice. The model is never stricter than Redis' promises, and sometimes weaker.
//
// On a cluster, Watch of go-redis 9.23.0 may return nil without calling the function: when
// MaxRedirects redirects did not reach a node that takes WATCH. A slot that moves does this to a
// key that the old node does not have. A worker reports such a transaction as not written.
//
// # Seeds
//
// A seed decides all operations, tools and faults, their order and their parameters. The speed of
// the processes decides the interleaving. A seed repeats the schedule but not the interleaving, so
// a violation may need several runs of its seed to show again.
//
// Not simulated: jumps of the clock, for all processes have the machine's; disks that fail;
// networks that split between servers (links to clients are cut and slowed down).
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	if config := os.Getenv(workerEnv); config != "" {
		if err := workerMain(config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	os.Exit(runMain(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// campaign is what the walks have in common.
type campaign struct {
	seed     uint64
	length   time.Duration
	kinds    []string
	workers  int
	rate     int
	grace    time.Duration
	period   time.Duration
	pause    time.Duration // between two faults, at most
	coldKeys int
	walkLen  time.Duration
	mode     string
	registry string
	tools    bool
	stories  bool
	faults   bool
	first    bool
	faultsOn map[string]bool
	bale     string   // the command
	programs []string // builds of the worker

	start     time.Time
	walkStart instant
	mu        sync.Mutex
	to        io.Writer // the log
}

// result is what a campaign found.
type result struct {
	Seed       uint64           `json:"seed"`
	Seconds    float64          `json:"seconds"`
	Walks      []walkResult     `json:"walks"`
	Counts     map[string]int64 `json:"counts"`
	Violations []violation      `json:"violations"`
}

type walkResult struct {
	Seed       uint64         `json:"seed"`
	Flags      string         `json:"flags"`
	Seconds    float64        `json:"seconds"`
	Operations int64          `json:"operations"`
	Found      map[string]int `json:"found,omitempty"` // violations by class
	Error      string         `json:"error,omitempty"`
}

func (c *campaign) log(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(c.to, format+"\n", args...)
}

// faultNames are all that --faults can name.
func faultNames() []string {
	names := []string{"tool-kill", "tool-stop", "proxy-kill"}
	for _, f := range faults {
		names = append(names, f.name)
	}
	return names
}

// runMain is the command. It returns the exit status.
func runMain(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c := &campaign{to: io.Discard}
	flags := flag.NewFlagSet("campaign", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Uint64Var(&c.seed, "seed", 0, "seed of the first walk; the next one has the next number; 0 for a random one")
	flags.DurationVar(&c.length, "for", time.Minute, "how long")
	kinds := flags.String("servers", "single,cluster,sentinel", "kinds of servers, in turns")
	only := flags.String("faults", "all", "kinds of faults: all, none, or some of "+strings.Join(faultNames(), ","))
	flags.IntVar(&c.workers, "workers", 4, "worker processes")
	flags.IntVar(&c.rate, "rate", 1500, "operations a second, at most")
	flags.DurationVar(&c.grace, "grace", 400*time.Millisecond, "the registry's grace period")
	flags.DurationVar(&c.period, "period", 20*time.Second, "how long chaos lasts between two rests")
	flags.DurationVar(&c.walkLen, "walk", 45*time.Second, "how long one set of servers lives")
	flags.DurationVar(&c.pause, "pause", 1500*time.Millisecond, "between two faults, at most")
	flags.IntVar(&c.coldKeys, "keys", 2000, "keys that are seldom used, for tools to walk over")
	flags.StringVar(&c.mode, "mode", "both", "strict: servers lose nothing; lossy: they may; both: in turns")
	flags.StringVar(&c.registry, "registry", "both", "of dictionaries. together: with the values; apart: in a server of its own; both: in turns")
	flags.BoolVar(&c.tools, "tools", true, "run tools")
	flags.BoolVar(&c.stories, "stories", true, "run sequences of tools that meet")
	flags.BoolVar(&c.first, "first", false, "stop after the first walk with a violation")
	flags.StringVar(&c.bale, "bale", "", "the bale command; empty to build it")
	programs := flags.String("worker-programs", "", "builds of this command for workers, separated by commas; empty for this one and one without cgo")
	old := flags.String("old", "", "another checkout, whose build of the worker takes part")
	logTo := flags.String("log", "", "file for all faults and tools; - for stderr")
	jsonTo := flags.String("json", "", "file for the summary; - for stdout in place of the text")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	c.kinds = strings.Split(*kinds, ",")
	c.faults = *only != "none"
	c.faultsOn = map[string]bool{}
	for _, name := range strings.Split(*only, ",") {
		switch {
		case name == "all":
			for _, name := range faultNames() {
				c.faultsOn[name] = true
			}
		case name == "none":
		case !slices.Contains(faultNames(), name):
			fmt.Fprintf(stderr, "campaign: no such fault: %q: give some of %s\n", name, strings.Join(faultNames(), ","))
			return 2
		default:
			c.faultsOn[name] = true
		}
	}
	if c.seed == 0 {
		c.seed = uint64(rand.Uint32())
	}
	switch *logTo {
	case "":
	case "-":
		c.to = stderr
	default:
		f, err := os.Create(*logTo)
		if err != nil {
			fmt.Fprintln(stderr, "campaign:", err)
			return 2
		}
		defer f.Close()
		c.to = f
	}
	folder, err := os.MkdirTemp("", "bale-campaign-build-")
	if err == nil {
		defer os.RemoveAll(folder)
		err = c.build(ctx, folder, *programs, *old, stderr)
	}
	if err != nil {
		fmt.Fprintln(stderr, "campaign:", err)
		return 2
	}
	fmt.Fprintf(stderr, "campaign: seed %d for %v\n", c.seed, c.length)
	r := c.run(ctx)
	switch *jsonTo {
	case "":
	case "-":
		stdout = io.Discard
		_ = json.NewEncoder(os.Stdout).Encode(r)
	default:
		b, err := json.MarshalIndent(r, "", "\t")
		if err == nil {
			err = os.WriteFile(*jsonTo, b, 0o600)
		}
		if err != nil {
			fmt.Fprintln(stderr, "campaign:", err)
			return 2
		}
	}
	r.write(stdout)
	return r.status()
}

// status is the exit status: 1 for a violation or a walk that could not be made.
func (r *result) status() int {
	for _, w := range r.Walks {
		if w.Error != "" {
			return 1
		}
	}
	if len(r.Violations) > 0 {
		return 1
	}
	return 0
}

// build makes the command and the builds of the worker.
func (c *campaign) build(ctx context.Context, folder, programs, old string, stderr io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c.programs = []string{self}
	build := func(dir, out, pkg string, env ...string) error {
		cmd := exec.CommandContext(ctx, "go", "build", "-o", out, pkg)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		if b, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go build %s: %w: %s", pkg, err, b)
		}
		return nil
	}
	root, err := rootOf()
	if c.bale == "" {
		if err != nil {
			return err
		}
		fmt.Fprintln(stderr, "campaign: building the bale command")
		c.bale = filepath.Join(folder, "bale")
		if err := build(filepath.Join(root, "cmd", "bale"), c.bale, "."); err != nil {
			return err
		}
	}
	switch {
	case programs != "":
		c.programs = strings.Split(programs, ",")
	case err == nil:
		out := filepath.Join(folder, "worker-nocgo")
		if err := build(filepath.Join(root, "testkit", "campaign"), out, ".", "CGO_ENABLED=0"); err != nil {
			return err
		}
		c.programs = append(c.programs, out)
	}
	if old != "" {
		out := filepath.Join(folder, "worker-old")
		if err := build(filepath.Join(old, "testkit", "campaign"), out, "."); err != nil {
			return err
		}
		c.programs = append(c.programs, out)
	}
	return nil
}

// rootOf finds the repository that the working directory is in.
func rootOf() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "cmd", "bale", "main.go")); err == nil {
			return dir, nil
		}
		if filepath.Dir(dir) == dir {
			return "", errors.New("run it within the repository, or give --bale and --worker-programs")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}

// run makes one walk after another.
func (c *campaign) run(ctx context.Context) *result {
	c.start = time.Now()
	r := &result{Seed: c.seed, Counts: map[string]int64{}}
	for n := uint64(0); ctx.Err() == nil && time.Since(c.start) < c.length; n++ {
		seed := c.seed + n
		// Both follow from the seed, so that one walk can be repeated alone.
		w := &walk{c: c, seed: seed, kind: c.kinds[seed%uint64(len(c.kinds))], model: newModel(), trouble: &stops{}, said: map[string]int{}, counts: map[string]int64{}}
		w.loads = newLoads(w.trouble)
		turn := seed / uint64(len(c.kinds))
		w.lossy = c.mode == "lossy" || c.mode == "both" && turn%2 == 1
		w.apart = c.registry == "apart" || c.registry == "both" && turn/2%2 == 1
		c.walkStart = time.Since(c.start)
		begun := time.Now()
		c.log("walk %d: %s", seed, w.flags())
		err := w.run(ctx, min(c.walkLen, c.length-time.Since(c.start)))
		x := walkResult{Seed: seed, Flags: w.flags(), Seconds: time.Since(begun).Seconds(), Operations: w.counts["operations"], Found: w.said}
		if err != nil && ctx.Err() == nil {
			x.Error = err.Error()
			c.log("walk %d: %v", seed, err)
		}
		r.Walks = append(r.Walks, x)
		for what, n := range w.counts {
			r.Counts[what] += n
		}
		r.Violations = append(r.Violations, w.violations...)
		if c.first && len(w.violations) > 0 {
			break
		}
	}
	r.Seconds = time.Since(c.start).Seconds()
	return r
}

// write writes the summary.
func (r *result) write(out io.Writer) {
	for _, v := range r.Violations {
		fmt.Fprintf(out, "VIOLATION %s: key %q, %.1f s into the walk --seed %d %s\n  %s\n", v.Class, v.Key, v.At, v.Seed, v.Flags, v.What)
		for _, line := range v.History {
			fmt.Fprintf(out, "    %s\n", line)
		}
		fmt.Fprintln(out, "  around it:")
		for _, line := range v.Around[max(0, len(v.Around)-25):] {
			fmt.Fprintf(out, "    %s\n", line)
		}
	}
	fmt.Fprintf(out, "\nseed %d, %.0f s\n", r.Seed, r.Seconds)
	for _, w := range r.Walks {
		fmt.Fprintf(out, "  walk %d: %s, %.0f s, %d operations", w.Seed, w.Flags, w.Seconds, w.Operations)
		if len(w.Found) > 0 {
			fmt.Fprintf(out, ", VIOLATIONS %v", w.Found)
		}
		if w.Error != "" {
			fmt.Fprintf(out, ", FAILED: %s", w.Error)
		}
		fmt.Fprintln(out)
	}
	for _, what := range slices.Sorted(maps.Keys(r.Counts)) {
		fmt.Fprintf(out, "%10d %s\n", r.Counts[what], what)
	}
	fmt.Fprintf(out, "%d violations\n", r.Counts["violations"])
}
