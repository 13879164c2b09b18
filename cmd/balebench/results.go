package main

import (
	"bytes"
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
		if o.baseline, err = readBaseline(b.Baseline); err != nil {
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

func readBaseline(path string) (*outcome.Run, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readOutcome(f, path)
}

// Limits of a result of balebench run --json: more than a machine measures in a day. A cell of ten
// rounds is 8 KB of JSON with 400 commas. A forged cell of 2 bytes would take 752 bytes of memory.
const (
	maxResult = 64 << 20
	maxCells  = 2_000
	maxCommas = 1 << 20 // and so elements of lists
	maxParts  = 1 << 15 // rounds, of 31 commas and 240 bytes of memory each, and elements of the run's other lists
	maxPoints = 1_000   // of a distribution, which has 18: the time to draw a line grows with their square
)

// errResult marks what is no result of balebench run --json.
var errResult = errors.New("no result of balebench run --json")

// readOutcome reads a result of balebench run --json. It refuses one that is too large before it takes
// the memory for it.
func readOutcome(from io.Reader, name string) (*outcome.Run, error) {
	text, err := io.ReadAll(io.LimitReader(from, maxResult+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var r outcome.Run
	if err = checkSize(text); err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err == nil {
		err = checkRun(&r)
	}
	if err != nil {
		return nil, fmt.Errorf("%s is %w: %w", name, errResult, err)
	}
	return &r, nil
}

func checkSize(text []byte) error {
	if len(text) > maxResult {
		return fmt.Errorf("it is larger than %d MiB", maxResult>>20)
	}
	if n := bytes.Count(text, []byte(",")); n > maxCommas {
		return fmt.Errorf("it has %d commas, at most %d are read", n, maxCommas)
	}
	var lists struct {
		Cells                                             cellCounts
		Findings, Skipped, Dictionaries, Sweeps, Timeline elements
	}
	if err := json.Unmarshal(text, &lists); err != nil {
		return err
	}
	if n := lists.Cells.n; n > maxCells {
		return fmt.Errorf("it has %d cells, at most %d are read", n, maxCells)
	}
	if n := lists.Cells.rounds + lists.Findings + lists.Skipped + lists.Dictionaries + lists.Sweeps + lists.Timeline; n > maxParts {
		return fmt.Errorf("it has %d rounds and other parts, at most %d are read", n, maxParts)
	}
	return nil
}

// cellCounts are the numbers of cells and of their rounds.
type cellCounts struct{ n, rounds elements }

// UnmarshalJSON adds to the numbers, as that of elements does.
func (c *cellCounts) UnmarshalJSON(list []byte) error {
	var all []struct{ Rounds elements }
	json.Unmarshal(list, &all)
	c.n += elements(len(all))
	for _, cell := range all {
		c.rounds += cell.Rounds
	}
	return nil
}

// elements is the number of elements of a list in JSON. Counting takes no memory for them.
type elements int

// UnmarshalJSON adds to the number: a forged object may have a list twice.
func (n *elements) UnmarshalJSON(list []byte) error {
	var all []struct{}
	json.Unmarshal(list, &all) // of what type they are does not matter here
	*n += elements(len(all))
	return nil
}

// checkRun returns an error if a file is not a result of balebench run --json, or is of another
// version.
func checkRun(r *outcome.Run) error {
	if len(r.Cells) == 0 {
		return fmt.Errorf("%w: it has no cell", compare.ErrNoBenchmarks)
	}
	for _, c := range r.Cells {
		if n := max(len(c.Latency), len(c.Service)); n > maxPoints {
			return fmt.Errorf("a latency distribution of %s %s %s has %d points, at most %d are read", c.Dataset, c.Codec, c.Compress, n, maxPoints)
		}
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
