package main

import (
	"context"
	"errors"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/compare"
	"github.com/balekv/bale/cmd/internal/page"
)

// comparisonFlags are those of the commands that compare.
type comparisonFlags struct {
	Gate compare.Gate `placeholder:"LIST" help:"What may not get worse, and by how much: time, bytes, allocs, cpu, rss, p50 to p99.99, or a unit such as B/op. Default: ${default_gate}."`
	All  bool         `help:"Show what did not change and what has no gate, too."`
	JSON string       `name:"json" placeholder:"FILE" help:"Write all figures as JSON, too: to a file, or to stdout (-) in place of the table."`
}

// comparison is what a command that compares found.
type comparison interface {
	comparable
	WriteText(page.Sheet, compare.TextOptions)
	Err() error
}

// show runs a comparison, and writes what it found. An error that is no regression is one of usage,
// so that exit status 1 always means a regression.
func show[R comparison](s *cli.Streams, f *comparisonFlags, run func() (R, error)) error {
	out, err := cli.OpenJSON(f.JSON, s) // before the measuring, not after it
	if err != nil {
		return asUsage{err}
	}
	defer out.Discard()
	r, err := run()
	var unwritten error
	if none := *new(R); r != none {
		if err == nil {
			err = r.Err()
		}
		unwritten = out.Write(r)
		if f.JSON != "-" {
			unwritten = errors.Join(unwritten, cli.Show(s, func(to page.Sheet) {
				r.WriteText(to, compare.TextOptions{All: f.All})
			}))
		}
	}
	if unwritten == nil && (err == nil || errors.Is(err, compare.ErrRegression) || errors.Is(err, context.Canceled)) {
		return err
	}
	return asUsage{errors.Join(err, unwritten)}
}

// asUsage is an error in what a command was given, in its own words.
type asUsage struct{ error }

func (e asUsage) Is(target error) bool { return target == cli.ErrUsage }

func (e asUsage) Unwrap() error { return e.error }

type compareCommand struct {
	Old string `arg:"" help:"The run before: a file of balebench run --json, or one in Go benchmark format, as go test -bench prints it; - for stdin."`
	New string `arg:"" help:"The run after."`
	comparisonFlags
}

// Help is shown below the options.
func (compareCommand) Help() string {
	return `Says which cells of two runs got better or worse, by rank tests that are corrected for as many gated ` +
		`figures as there are (Holm). A REGRESSION is a change for the worse that noise does not explain and that is beyond the ` +
		`floor of its gate; a cell in which noise might hide one is UNMEASURABLE, and passes no gate silently. A cell` +
		` that was right and now has wrong results, or none at all, is FAILED, which is a regression, too; so is an ` +
		`open loop that kept its rate and does not now. The exit status is 1 for regressions alone, and 2 for runs that ` +
		`cannot be compared.

Two runs that were taken apart share no noise: what another hour or another machine does to all cells looks ` +
		`like a change of each. For a gate, balebench ab takes two programs in turn.

Gates: time is sec/op; bytes is stored-B/value and redis-B/key, of which 5 bytes or 0.5% always pass; allocs` +
		` is allocs/op; p99 is p99-sec/op. Floors are percentages; for bytes and allocs also absolute numbers.

Examples:
  balebench compare old.json new.json
  balebench compare old.json new.json --gate time=5%,bytes=0,allocs=0,p99=10%
  balebench compare old.txt new.txt --gate time=10% --all
  balebench compare old.json new.json --json -`
}

// Run compares.
func (c *compareCommand) Run(ctx context.Context, s *cli.Streams) error {
	return show(s, &c.comparisonFlags, func() (*compare.Report, error) {
		return compare.Run(ctx, compare.Options{Old: c.Old, New: c.New, In: s.In, Gate: c.Gate})
	})
}
