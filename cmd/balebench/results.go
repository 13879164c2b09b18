package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/compare"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/report"
)

// benchOutputs are where the results of a run go beside the tables.
type benchOutputs struct {
	json, html, goBench *cli.Output
	baseline            *outcome.Run
}

func openOutputs(b *runCommand, s *cli.Streams) (o *benchOutputs, err error) {
	o = &benchOutputs{}
	if b.Baseline != "" {
		if o.baseline, err = readOutcome(b.Baseline); err != nil {
			return nil, fmt.Errorf("--baseline: %w", err)
		}
	}
	for _, each := range []struct {
		to           **cli.Output
		option, path string
		stdout       io.Writer
	}{{&o.json, "--json", b.JSON, s.Out}, {&o.html, "--html", b.HTML, s.Raw}, {&o.goBench, "--go-bench", b.GoBench, s.Out}} {
		if *each.to, err = cli.OpenOutput(each.option, each.path, each.stdout); err != nil {
			o.Discard()
			return nil, err
		}
	}
	return o, nil
}

func (o *benchOutputs) Write(r *outcome.Run) error {
	return errors.Join(
		o.json.Write(r),
		o.html.Put(func(w io.Writer) error { return report.BenchHTML(w, r, o.baseline, pageOptions(r, false)) }),
		o.goBench.Put(func(w io.Writer) error { return compare.Write(w, goBenchmarks(r)) }),
	)
}

func (o *benchOutputs) Discard() {
	o.json.Discard()
	o.html.Discard()
	o.goBench.Discard()
}

// pageOptions are those of a run's page. There is no advice on a part of one.
func pageOptions(r *outcome.Run, live bool) report.BenchOptions {
	o := report.BenchOptions{Live: live}
	if len(r.Findings) == 0 && !r.Environment.Interrupted {
		o.Choices = report.Verdict(r)
	}
	return o
}

// readOutcome reads what balebench run --json wrote.
func readOutcome(path string) (*outcome.Run, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r outcome.Run
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s is no result of balebench run --json: %w", path, err)
	}
	if err := checkRun(&r); err != nil {
		return nil, fmt.Errorf("%s is no result of balebench run --json: %w", path, err)
	}
	return &r, nil
}

// checkRun says what a file lacks that is not one of balebench run --json, or one of another version.
func checkRun(r *outcome.Run) error {
	if len(r.Cells) == 0 {
		return fmt.Errorf("%w: it has no cell", compare.ErrNoBenchmarks)
	}
	for _, c := range r.Cells {
		if !c.Verified {
			continue
		}
		if c.Values <= 0 || len(c.Rounds) == 0 || !(c.OpsPerSecond.Median > 0) {
			return fmt.Errorf("%w: %s %s %s has no figures", compare.ErrNoBenchmarks, c.Dataset, c.Codec, c.Compress)
		}
		for _, round := range c.Rounds {
			if len(round.StagesP50) != len(outcome.Stages) || !(round.OpsPerSecond > 0) {
				return fmt.Errorf("%w: a round of %s %s %s is not whole", compare.ErrNoBenchmarks, c.Dataset, c.Codec, c.Compress)
			}
		}
	}
	return nil
}
