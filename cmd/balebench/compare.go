package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/compare"
)

type compareCommand struct {
	Old  string `arg:"" help:"The run before: a file of balebench run --json, or one in Go benchmark format, as go test -bench prints it; - for stdin."`
	New  string `arg:"" help:"The run after."`
	Gate string `placeholder:"LIST" help:"What may not get worse, and by how much: time, bytes, allocs, cpu, rss, p50 to p99.99, or a unit such as B/op. Default: ${default_gate}."`
	JSON string `name:"json" placeholder:"FILE" help:"Write all figures as JSON, too: to a file, or to stdout (-) in place of the table."`
	All  bool   `help:"Show what did not change and what has no gate, too."`
}

// Help is shown below the options.
func (compareCommand) Help() string {
	return `Says which cells of two runs got better or worse, by rank tests that are corrected for as many cells as there are (Holm). A REGRESSION is a change for the worse that noise does not explain and that is beyond the floor of its gate; a cell in which noise might hide one is UNMEASURABLE, and passes no gate silently. A cell that was right and has wrong results or none at all now FAILED, which is a regression, too; so did an open loop that kept its rate and does not now. The exit status is 1 for regressions alone, and 2 for runs that cannot be compared.

Two runs that were taken apart share no noise: what another hour or another machine does to all cells looks like a change of each. For a gate, balebench ab takes two programs in turn.

Gates: time is sec/op; bytes is stored-B/value and redis-B/key, of which 5 bytes or 0.5% always pass; allocs is allocs/op; p99 is p99-sec/op. Floors are percentages; of bytes and allocs they may be numbers of them.

Examples:
  balebench compare old.json new.json
  balebench compare old.json new.json --gate time=5%,bytes=0,allocs=0,p99=10%
  balebench compare old.txt new.txt --gate time=10% --all
  balebench compare old.json new.json --json -`
}

// Run compares.
func (c *compareCommand) Run(ctx context.Context, s *cli.Streams) error {
	gate, err := parseGate(c.Gate)
	if err != nil {
		return err
	}
	if c.Old == "-" && c.New == "-" {
		return fmt.Errorf("%w: stdin (-) is there twice", cli.ErrUsage)
	}
	before, err := readRun(ctx, c.Old, s)
	if err != nil {
		return err
	}
	after, err := readRun(ctx, c.New, s)
	if err != nil {
		return err
	}
	out, err := cli.OpenJSON(c.JSON, s)
	if err != nil {
		return asUsage{err}
	}
	defer out.Discard()
	r, err := compare.Compare(ctx, before, after, compare.Options{Gate: gate})
	if err != nil {
		return incomparable(err)
	}
	if c.JSON != "-" {
		err = cli.Show(s, func(w io.Writer) {
			r.WriteText(w, compare.TextOptions{All: c.All, Width: cli.ReportWidth(s.Out)})
		})
	}
	if err = errors.Join(err, out.Write(r)); err != nil {
		return asUsage{err}
	}
	return r.Err()
}

// maxText bounds a file in Go benchmark format, which may be between what a program printed.
const maxText = 256 << 20

// readRun reads a run: JSON of balebench run, or Go benchmark format.
func readRun(ctx context.Context, path string, s *cli.Streams) (*compare.Run, error) {
	source, name := s.In, "stdin"
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			if e, ok := errors.AsType[*fs.PathError](err); ok {
				err = e.Err
			}
			return nil, asUsage{fmt.Errorf("%s: %w", path, err)}
		}
		defer f.Close()
		source, name = f, path
	}
	text := &io.LimitedReader{R: source, N: maxText + 1}
	r := bufio.NewReader(text)
	start, err := r.Peek(r.Size())
	if err != nil && err != io.EOF {
		return nil, asUsage{fmt.Errorf("%s: %w", name, err)}
	}
	if bytes.HasPrefix(bytes.TrimSpace(start), []byte("{")) {
		result, err := readOutcome(r, name)
		if err != nil {
			return nil, asUsage{err}
		}
		return goBenchmarks(result), nil
	}
	run, err := compare.Read(ctx, r, name)
	if text.N == 0 {
		return nil, asUsage{fmt.Errorf("%s is larger than %d MiB", name, maxText>>20)}
	}
	return run, incomparable(err)
}
