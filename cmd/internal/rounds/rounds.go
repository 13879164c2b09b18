// Package rounds measures the cells of a study in rounds of random order, so that drift of the
// machine hits all cells alike. [Measure] is the entry point. Its studies make their own load; that
// of values through Redis is package lab.
package rounds

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"time"

	"github.com/shirou/gopsutil/v4/mem"
	"github.com/shirou/gopsutil/v4/process"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/load"
	"github.com/balekv/bale/cmd/internal/outcome"
)

// Options are how long to measure, and who follows it.
type Options struct {
	Duration time.Duration       // of each cell, in all rounds; at least 1 ms a round
	Rounds   int                 // at least 1; intervals need 6
	Seed     uint64              // of the order
	About    outcome.Environment // the study's name, question and command

	// Progress is called before each step, if it is set.
	Progress func(done, total int, what string)
}

const (
	maxRounds   = 1000
	maxDuration = 10 * time.Minute
)

// Validate returns an error if nothing can be measured so.
func (o *Options) Validate() error {
	switch {
	case o.Rounds < 1 || o.Rounds > maxRounds:
		return fmt.Errorf("--repeat %d, must be 1 to %d", o.Rounds, maxRounds)
	case o.Duration < time.Duration(o.Rounds)*time.Millisecond || o.Duration > maxDuration:
		return fmt.Errorf("--duration %v, must be at least a millisecond for each of %d rounds, and at most %v", o.Duration, o.Rounds, maxDuration)
	}
	return nil
}

// Measure calls turn for each of the named cells in each round, which measures for d. It returns
// what is known of the machine, with the processor time that other programs used meanwhile. The
// first error of turn ends it.
func Measure(ctx context.Context, o Options, names []string, turn func(ctx context.Context, cell int, d time.Duration) error) (outcome.Environment, error) {
	e, rng, began := o.environment(), rand.New(rand.NewPCG(o.Seed, 0)), time.Now()
	busy, ours := processorTimes(ctx)
	for round := range o.Rounds {
		for i, cell := range rng.Perm(len(names)) {
			if o.Progress != nil {
				o.Progress(round*len(names)+i, o.Rounds*len(names), fmt.Sprintf("round %d of %d, %s", round+1, o.Rounds, names[cell]))
			}
			if err := ctx.Err(); err != nil {
				return e, err
			}
			if err := turn(ctx, cell, o.Duration/time.Duration(o.Rounds)); err != nil {
				return e, err
			}
		}
	}
	e.Seconds = time.Since(began).Seconds()
	if busyAfter, oursAfter := processorTimes(ctx); busy > 0 && busyAfter > 0 {
		others := max(0, busyAfter-busy-(oursAfter-ours)) / e.Seconds
		e.OthersCPU = &others
	}
	return e, nil
}

func (o *Options) environment() outcome.Environment {
	e := o.About
	e.Time, e.Bale, e.Go, e.OS = time.Now().UTC().Truncate(time.Second), cli.Version(), runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
	e.Cores, e.CPU, e.Private = runtime.NumCPU(), cli.CPU(), true
	if m, err := mem.VirtualMemory(); err == nil {
		e.MemoryBytes = m.Total
	}
	e.Seed, e.Rounds, e.Planned, e.DurationS = o.Seed, o.Rounds, o.Rounds, o.Duration.Seconds()
	return e
}

// processorTimes are the seconds that all programs have used, and of them this process with its
// servers; 0 where they are unknown.
func processorTimes(ctx context.Context) (all, ours float64) {
	return load.MachineTime(ctx).Seconds(), ofFamily(ctx)
}

// ofFamily is the processor time of this process and all below it, with those that have ended.
func ofFamily(ctx context.Context) (sum float64) {
	sum = load.ChildrenTime().Seconds()
	all, _ := process.ProcessesWithContext(ctx) // none where they are unknown
	parents := map[int32]int32{}
	for _, p := range all {
		if parent, err := p.PpidWithContext(ctx); err == nil {
			parents[p.Pid] = parent
		}
	}
	for _, p := range all {
		pid := p.Pid
		for range len(all) {
			if pid == int32(os.Getpid()) {
				if t, err := p.TimesWithContext(ctx); err == nil {
					sum += t.User + t.System
				}
				break
			}
			pid = parents[pid]
		}
	}
	return sum
}
