package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/balekv/bale/cmd/internal/ab"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/compare"
)

type abCommand struct {
	A       string        `arg:"" help:"The command before, in quotes."`
	B       string        `arg:"" help:"The command after, in quotes."`
	Blocks  int           `default:"20" placeholder:"N" help:"How often A B B A is run. Default: ${default}."`
	Gate    string        `placeholder:"LIST" help:"What counts as a regression, and by how much. Default: ${default_gate}."`
	Confirm bool          `default:"true" negatable:"" help:"A regression is measured once more, and counts if it is found again. Default: yes."`
	Timeout time.Duration `default:"10m" placeholder:"D" help:"The longest that a command may run. Default: ${default}."`
	Seed    uint64        `default:"1" placeholder:"N" help:"Seed of the order. Default: ${default}."`
	All     bool          `help:"Show what did not change, too."`
	JSON    string        `name:"json" placeholder:"FILE" help:"Write all figures as JSON, too: to a file, or to stdout (-) in place of the table."`
}

// Help is shown below the options.
func (abCommand) Help() string {
	return `Two programs that take turns share the noise of the machine, so that a small change shows. Each command prints Go benchmarks, as go test -bench does; of one that prints none, the time it takes is compared. The exit status is 1 for regressions alone, and 2 where a command fails.

Examples:
  balebench ab './old.test -test.bench Pack' './new.test -test.bench Pack'
  balebench ab './old.test -test.bench Pack' './new.test -test.bench Pack' --blocks 40 --gate time=2%,allocs=0
  balebench ab 'gzip -9 -c values.ndjson' 'zstd -9 -c values.ndjson'`
}

// Run runs two commands in turn and compares what they print. The error is compare.ErrRegression
// where the second is worse.
func (c *abCommand) Run(ctx context.Context, s *cli.Streams) error {
	gate, err := parseGate(c.Gate)
	if err != nil {
		return err
	}
	switch {
	case c.Blocks < 1 || c.Blocks > ab.MaxBlocks:
		return fmt.Errorf("%w: --blocks %d, must be 1 to %d", cli.ErrUsage, c.Blocks, ab.MaxBlocks)
	case c.Timeout <= 0:
		return fmt.Errorf("%w: --timeout %v, must be above 0", cli.ErrUsage, c.Timeout)
	}
	out, err := cli.OpenJSON(c.JSON, s) // before the measuring, not after it
	if err != nil {
		return asUsage{err}
	}
	defer out.Discard()
	progress, stopProgress := cli.ShowProgress(s.Err)
	r, err := ab.Run(ctx, ab.Options{A: c.A, B: c.B, Blocks: c.Blocks, Gate: gate, Seed: c.Seed, NoConfirm: !c.Confirm, Timeout: c.Timeout, Progress: progress})
	stopProgress()
	if r != nil {
		unwritten := out.Write(r)
		if c.JSON != "-" {
			unwritten = errors.Join(unwritten, cli.Show(s, func(w io.Writer) { r.WriteText(w, compare.TextOptions{All: c.All, Width: cli.ReportWidth(s.Out)}) }))
		}
		switch {
		case unwritten != nil:
			err = asUsage{errors.Join(err, unwritten)}
		case err == nil:
			err = r.Report.Err()
		}
	}
	return incomparable(err)
}

// parseGate reads --gate; the zero Gate is the default one.
func parseGate(text string) (compare.Gate, error) {
	if text == "" {
		return compare.Gate{}, nil
	}
	gate, err := compare.ParseGate(text)
	if err != nil {
		return gate, fmt.Errorf("%w: --gate: %w", cli.ErrUsage, err)
	}
	return gate, nil
}

// incomparable turns errors of the input into errors of usage, so that exit status 1 always means a
// regression.
func incomparable(err error) error {
	for _, is := range []error{ab.ErrCommand, compare.ErrIncomparable, compare.ErrFormat, compare.ErrNoBenchmarks} {
		if errors.Is(err, is) && !errors.Is(err, cli.ErrUsage) {
			return asUsage{err}
		}
	}
	return err
}

// asUsage is an error in what a command was given, in its own words.
type asUsage struct{ error }

func (e asUsage) Is(target error) bool { return target == cli.ErrUsage }

func (e asUsage) Unwrap() error { return e.error }
