package main

import (
	"context"
	"time"

	"github.com/balekv/bale/cmd/internal/ab"
	"github.com/balekv/bale/cmd/internal/cli"
)

type abCommand struct {
	A       string        `arg:"" help:"The command before, in quotes."`
	B       string        `arg:"" help:"The command after, in quotes."`
	Blocks  int           `placeholder:"N" help:"How often A B B A is run. Default: ${default_blocks}."`
	Confirm bool          `default:"true" negatable:"" help:"A regression is measured once more, and counts if it is found again. Default: yes."`
	Timeout time.Duration `placeholder:"D" help:"The longest that a command may run. Default: ${default_timeout}."`
	Seed    uint64        `default:"1" placeholder:"N" help:"Seed of the order. Default: ${default}."`
	comparisonFlags
}

// Help is shown below the options.
func (abCommand) Help() string {
	return `Two programs that take turns share the noise of the machine, so that a small change shows. Each command ` +
		`prints Go benchmarks, as go test -bench does; of one that prints none, the time it takes is compared. The ` +
		`exit status is 1 for regressions alone, and 2 where a command fails.

Examples:
  balebench ab './old.test -test.bench Pack' './new.test -test.bench Pack'
  balebench ab './old.test -test.bench Pack' './new.test -test.bench Pack' --blocks 40 --gate time=2%,allocs=0
  balebench ab 'gzip -9 -c values.ndjson' 'zstd -9 -c values.ndjson'`
}

// Run runs two commands in turn and compares what they print. The error is compare.ErrRegression
// where the second is worse.
func (c *abCommand) Run(ctx context.Context, s *cli.Streams) error {
	progress, stopProgress := cli.ShowProgress(s.Err)
	return show(s, &c.comparisonFlags, func() (*ab.Result, error) {
		defer stopProgress()
		return ab.Run(ctx, ab.Options{A: c.A, B: c.B, Blocks: c.Blocks, Gate: c.Gate, Seed: c.Seed, NoConfirm: !c.Confirm, Timeout: c.Timeout, Progress: progress})
	})
}
