// Package ab compares two commands on a busy machine. It runs them in turn, A B B A or B A A B, and
// compares each run with its neighbour, so that other load hits both alike. [Run] is the entry
// point; docs/method.md explains the method and its accuracy.
package ab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/compare"
)

// ErrCommand marks commands that failed, took too long, or printed what cannot be compared.
var ErrCommand = errors.New("it cannot be compared")

const (
	// DefaultTimeout of a run of a command.
	DefaultTimeout = 10 * time.Minute

	// DefaultBlocks: on a machine with six times as much load as processors, intervals of 20 blocks
	// were a quarter as wide as those of 10 longer blocks. The 10 blocks had runs of twice the
	// length. With more blocks a disturbance hits one run of many. Their 40 pairs are enough for
	// any number of comparisons.
	DefaultBlocks = 20

	maxBlocks = 200
)

// Options are what to compare, and how.
type Options struct {
	// A and B are the commands, old and new. A command without shell characters runs directly, any
	// other through sh -c. Run compares their output in Go benchmark format. Without such output it
	// compares the time, processor time and memory of the process.
	A, B string

	// Blocks of four runs, which are two pairs; 1 to 200. Default: [DefaultBlocks]. It takes 3 to
	// prove a change of a single figure.
	Blocks int

	// Gate is what may not get worse. Default: [compare.DefaultGate].
	Gate compare.Gate

	// Seed is of the coin that says which command begins a block.
	Seed uint64

	// NoConfirm takes a regression as found without measuring it again.
	NoConfirm bool

	// Timeout is of one run of a command. Default: [DefaultTimeout].
	Timeout time.Duration

	// Progress is called before each run, if it is set. Total grows when a regression is measured
	// again.
	Progress func(done, total int, what string)
}

// Result is what came of it.
type Result struct {
	A           string          `json:"a"`
	B           string          `json:"b"`
	Blocks      int             `json:"blocks"` // measured; of each measuring, where it was confirmed
	Seed        uint64          `json:"seed"`
	Interrupted bool            `json:"interrupted,omitempty"`
	Report      *compare.Report `json:"report"`
	// Again is the second measuring, where the first found a regression; Report has its outcome
	// already.
	Again *compare.Report `json:"again,omitempty"`

	first [2]*compare.Benchmarks // the figures of the first measuring, two rounds for each block
}

// session is a Run in hand.
type session struct {
	o       Options
	rng     *rand.Rand
	warm    [2]*compare.Benchmarks // what each printed first: the cells that are to come in every run
	process bool                   // they print no benchmarks
	done    int
	total   int
}

// Run measures. Errors of the commands are [ErrCommand]; errors of the comparison are
// [compare.ErrIncomparable]. When ctx ends, Run ends the processes that it started and all their
// children. If at least one block was measured, it returns a Result beside the error.
func Run(ctx context.Context, o Options) (*Result, error) {
	o.Blocks, o.Timeout = cmp.Or(o.Blocks, DefaultBlocks), cmp.Or(o.Timeout, DefaultTimeout)
	switch {
	case o.Blocks < 1 || o.Blocks > maxBlocks:
		return nil, fmt.Errorf("%w: --blocks %d, must be 1 to %d", cli.ErrUsage, o.Blocks, maxBlocks)
	case o.Timeout < 0:
		return nil, fmt.Errorf("%w: --timeout %v, must be above 0", cli.ErrUsage, o.Timeout)
	}
	blocks := o.Blocks
	s := &session{o: o, rng: rand.New(rand.NewPCG(o.Seed, 0)), total: 2 + 4*blocks}
	if err := s.warmUp(ctx); err != nil {
		return nil, err
	}
	runs, measured, err := s.measure(ctx, blocks, "")
	if err != nil && (ctx.Err() == nil || measured == 0) {
		return nil, err
	}
	r := &Result{A: o.A, B: o.B, Blocks: measured, Seed: o.Seed, Interrupted: err != nil, first: runs}
	var failure error
	if r.Report, failure = compare.Compare(context.WithoutCancel(ctx), runs[0], runs[1], compare.Rules{Gate: o.Gate, Paired: true}); failure != nil {
		return nil, failure
	}
	if err != nil || r.Report.Regressions == 0 || o.NoConfirm {
		return r, err
	}
	s.total += 4 * blocks
	again, _, err := s.measure(ctx, blocks, ", again, for a regression")
	if err != nil {
		if ctx.Err() == nil {
			return nil, err
		}
		r.Interrupted = true
		return r, err
	}
	if r.Again, err = compare.Compare(ctx, again[0], again[1], compare.Rules{Gate: o.Gate, Paired: true}); err != nil {
		return nil, err
	}
	r.Report.Confirm(r.Again)
	return r, nil
}

var names = [2]string{"A", "B"}

// warmUp runs each once, which does not count, and looks at what they print.
func (s *session) warmUp(ctx context.Context) error {
	var kinds [2]bool
	for side := range s.warm {
		run, process, err := s.once(ctx, side, "warm-up")
		if err != nil {
			return err
		}
		s.warm[side], kinds[side] = run, process
	}
	if kinds[0] != kinds[1] {
		one, other := names[0], names[1]
		if kinds[0] {
			one, other = other, one
		}
		return fmt.Errorf("%w: %s prints benchmarks and %s does not", ErrCommand, one, other)
	}
	s.process = kinds[0]
	// Before all the blocks are measured, not after them.
	_, err := compare.Compare(ctx, s.warm[0], s.warm[1], compare.Rules{Gate: s.o.Gate, Paired: false})
	return err
}

// measure takes blocks, and gives the runs with two rounds for each, and how many there are; that
// is not all of them only with an error.
func (s *session) measure(ctx context.Context, blocks int, note string) (runs [2]*compare.Benchmarks, measured int, err error) {
	for side, w := range s.warm {
		runs[side] = &compare.Benchmarks{Environment: w.Environment, Failed: w.Failed, Behind: w.Behind}
		for _, series := range w.Series {
			series.Values = nil
			runs[side].Series = append(runs[side].Series, series)
		}
	}
	for block := range blocks {
		first := s.rng.IntN(2)
		var values [2][2][]float64 // of each side, each of its two runs, each series
		var taken [2]int
		for _, side := range []int{first, 1 - first, 1 - first, first} {
			run, process, err := s.once(ctx, side, fmt.Sprintf("block %d of %d%s", block+1, blocks, note))
			if err == nil && process != s.process {
				err = fmt.Errorf("%w: %s printed no benchmarks in block %d, but did before", ErrCommand, names[side], block+1)
				if s.process {
					err = fmt.Errorf("%w: %s printed benchmarks in block %d, but did not before", ErrCommand, names[side], block+1)
				}
			}
			if err == nil {
				values[side][taken[side]], err = s.pick(run, side, block)
			}
			if err != nil {
				return runs, measured, err
			}
			taken[side]++
		}
		for side, r := range runs {
			for i := range r.Series {
				r.Series[i].Values = append(r.Series[i].Values, values[side][0][i], values[side][1][i])
			}
		}
		measured++
	}
	return runs, measured, nil
}

// pick is the figure of each series of the warm-up in a run: the median, where there are several of
// one.
func (s *session) pick(run *compare.Benchmarks, side, block int) ([]float64, error) {
	var values []float64
	for _, w := range s.warm[side].Series {
		i := slices.IndexFunc(run.Series, func(o compare.Series) bool { return o.Cell() == w.Cell() && o.Unit == w.Unit })
		if i < 0 {
			return nil, fmt.Errorf("%w: %s printed %s in %s when it was warmed up, but not in block %d", ErrCommand, names[side], w.Cell(), w.Unit, block+1)
		}
		v := slices.Sorted(slices.Values(run.Series[i].Values))
		values = append(values, v[(len(v)-1)/2]/2+v[len(v)/2]/2)
	}
	return values, nil
}

// once runs a command and reads its output. If that has no benchmarks, process is true and the
// figures are the process's.
func (s *session) once(ctx context.Context, side int, what string) (run *compare.Benchmarks, process bool, err error) {
	if s.o.Progress != nil {
		s.o.Progress(s.done, s.total, fmt.Sprintf("%s: %s", names[side], what))
	}
	command := []string{s.o.A, s.o.B}[side]
	p, err := execute(ctx, command, s.o.Timeout)
	s.done++
	if ctx.Err() != nil {
		return nil, false, ctx.Err()
	}
	if err != nil {
		return nil, false, fmt.Errorf("%w: %s (%s), %s: %w", ErrCommand, names[side], command, what, err)
	}
	run, err = compare.Read(ctx, p.stdout(), names[side])
	switch {
	case ctx.Err() != nil:
		return nil, false, ctx.Err()
	case errors.Is(err, compare.ErrNoBenchmarks):
		return p.run(), true, nil
	case err != nil:
		return nil, false, fmt.Errorf("%w: %s (%s), %s: %w", ErrCommand, names[side], command, what, err)
	}
	return run, false, nil
}
