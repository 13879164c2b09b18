package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/balekv/bale/cmd/bale/internal/compare"
	"github.com/balekv/bale/cmd/bale/internal/outcome"
	"github.com/balekv/bale/cmd/bale/internal/report"
)

// benchOutputs are where the results of a run go beside the tables.
type benchOutputs struct {
	json, html, goBench *output
	baseline            *outcome.Run
}

func openOutputs(b *benchCommand, s *streams) (o *benchOutputs, err error) {
	o = &benchOutputs{}
	if b.Baseline != "" {
		if o.baseline, err = readOutcome(b.Baseline); err != nil {
			return nil, fmt.Errorf("--baseline: %w", err)
		}
	}
	for _, each := range []struct {
		to           **output
		option, path string
	}{{&o.json, "--json", b.JSON}, {&o.html, "--html", b.HTML}, {&o.goBench, "--go-bench", b.GoBench}} {
		if *each.to, err = openOutput(each.option, each.path, s); err != nil {
			o.discard()
			return nil, err
		}
	}
	return o, nil
}

func (o *benchOutputs) write(r *outcome.Run) error {
	return errors.Join(
		o.json.write(r),
		o.html.put(func(w io.Writer) error { return report.BenchHTML(w, r, o.baseline, pageOptions(r, false)) }),
		o.goBench.put(func(w io.Writer) error { return compare.Write(w, goBenchmarks(r)) }),
	)
}

func (o *benchOutputs) discard() {
	o.json.discard()
	o.html.discard()
	o.goBench.discard()
}

// pageOptions are those of a run's page. There is no advice on a part of one.
func pageOptions(r *outcome.Run, live bool) report.BenchOptions {
	o := report.BenchOptions{Live: live, Choices: r.Findings}
	if verdict := report.Verdict(r); len(r.Findings) == 0 && verdict != "" && !r.Environment.Interrupted {
		o.Choices = strings.Split(verdict, "\n")
	}
	return o
}

// readOutcome reads what bale bench --json wrote.
func readOutcome(path string) (*outcome.Run, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r outcome.Run
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s is no result of bale bench --json: %w", path, err)
	}
	if err := checkRun(&r); err != nil {
		return nil, fmt.Errorf("%s is no result of bale bench --json: %w", path, err)
	}
	return &r, nil
}

// checkRun says what a file lacks that is not one of bale bench --json, or one of another version.
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

// goBenchmarks are the rounds of a run as benchmarks of Go.
func goBenchmarks(r *outcome.Run) *compare.Run {
	e := r.Environment
	goos, goarch, _ := strings.Cut(e.OS, "/")
	run := &compare.Run{Environment: []compare.Setting{
		{Key: "goos", Value: goos}, {Key: "goarch", Value: goarch}, {Key: "cpu", Value: e.CPU}, {Key: "go", Value: e.Go}, {Key: "redis", Value: e.RedisVersion},
		{Key: "zstd", Value: e.Zstd}, {Key: "load", Value: e.Load}, {Key: "seed", Value: fmt.Sprint(e.Seed)}, {Key: "bale", Value: e.Bale},
	}}
	for _, c := range r.Cells {
		name := benchmarkName(c.Identity, c.Values, e.Mix)
		if !c.Verified {
			if c.Mismatch {
				run.Failed = append(run.Failed, compare.Failure{Cell: name, Error: c.Error})
			}
			continue
		}
		add := func(unit string, exact bool, of func(outcome.Round) float64) {
			s := compare.Series{Name: name, Unit: unit, Exact: exact}
			for _, round := range c.Rounds {
				s.Values = append(s.Values, of(round))
			}
			run.Series = append(run.Series, s)
		}
		once := func(unit string, v float64) {
			add(unit, true, func(outcome.Round) float64 { return v })
		}
		last := len(outcome.Stages) - 1
		if c.Rate == 0 { // otherwise it is what was asked for
			add("sec/op", false, func(r outcome.Round) float64 { return 1 / r.OpsPerSecond })
			add("values/s", false, func(r outcome.Round) float64 {
				return r.OpsPerSecond * c.ValuesPerSecond.Median / c.OpsPerSecond.Median
			})
		}
		add("p50-sec/op", false, func(r outcome.Round) float64 { return r.StagesP50[last] / 1e6 })
		add("p99-sec/op", false, func(r outcome.Round) float64 { return r.P99 / 1e6 })
		add("B/op", false, func(r outcome.Round) float64 { return r.BytesPerOp })
		add("allocs/op", false, func(r outcome.Round) float64 { return r.AllocsPerOp })
		once("stored-B/value", float64(c.StoredBytes)/float64(c.Values))
		if c.RedisBytesPerKey != nil {
			once("redis-B/key", *c.RedisBytesPerKey)
		}
	}
	return run
}

// benchmarkName is a cell's name as a benchmark.
func benchmarkName(i outcome.Identity, values int, mix string) string {
	parts := []string{"data", i.Dataset, "track", i.Track, "codec", i.Codec, "compress", i.Compress, "client", i.Client}
	if i.Server != "" {
		parts = append(parts, "server", i.Server)
	}
	if i.Batch != "" {
		parts = append(parts, "batch", i.Batch)
	}
	parts = append(parts, "callers", fmt.Sprint(i.Concurrency))
	// What was measured is not the same with other values, however much alike the names.
	parts = append(parts, "values", fmt.Sprint(values))
	if mix != "" {
		parts = append(parts, "mix", mix)
	}
	if i.Rate > 0 {
		parts = append(parts, "rate", fmt.Sprint(i.Rate))
	}
	return compare.Name("RoundTrip", parts...)
}
