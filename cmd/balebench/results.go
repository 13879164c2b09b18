package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/compare"
	"github.com/balekv/bale/cmd/internal/lab"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/printable"
)

// resultFlags say where the result of a run goes.
type resultFlags struct {
	JSON     string `name:"json" placeholder:"FILE" help:"Write all figures as JSON, too: to a file, or to stdout (-) in place of the tables."`
	HTML     string `name:"html" placeholder:"FILE" help:"Write a report with pictures, as one file that needs no network; - for stdout, in place of the tables."`
	Baseline string `placeholder:"FILE" help:"Lay the results of an earlier run (of --json) beside these in --html."`
	GoBench  string `name:"go-bench" placeholder:"FILE" help:"Write all rounds in the format of Go benchmarks, too, for balebench compare and benchstat; - for stdout, in place of the tables."`
	Stages   bool   `group:"results" help:"Show the percentiles of every stage, too."`
	Serve    string `placeholder:"ADDRESS" help:"Show the report live at this address while the run goes on, with /metrics and /debug/pprof; :8080 is port 8080 of loopback, which every user of the machine can read."`
	Push     string `placeholder:"URL" help:"Push the results to a Prometheus Pushgateway."`
}

// measure runs the lab, and writes what it found.
func (f *resultFlags) measure(ctx context.Context, s *cli.Streams, o lab.Options) (err error) {
	if f.Baseline != "" {
		if f.HTML == "" {
			return fmt.Errorf("%w: --baseline is for --html", cli.ErrUsage)
		}
		if o.Baseline, err = outcome.ReadFile(f.Baseline); err != nil {
			return fmt.Errorf("--baseline: %w", err)
		}
	}
	o.Serve, o.Push = f.Serve, f.Push
	var result *outcome.Run
	return put([]output{
		{"--json", f.JSON, s.Out, func(w io.Writer) error { return printable.WriteJSON(w, result) }},
		{"--html", f.HTML, s.Raw, func(w io.Writer) error { return result.WritePage(w, outcome.PageOptions{Baseline: o.Baseline}) }},
		{"--go-bench", f.GoBench, s.Out, func(w io.Writer) error { return compare.Write(w, compare.Of(result)) }},
	}, func() (bool, error) {
		result, err = lab.Run(ctx, o)
		return result != nil, err
	}, func() {
		result.WriteText(s.Sheet(), outcome.TextOptions{Stages: f.Stages})
	})
}

// report runs a study that is no command line of balebench run, and writes what it found.
func (f *resultFlags) report(s *cli.Streams, run func() (*outcome.Report, error)) error {
	for _, each := range []struct {
		option string
		given  bool
	}{{"--baseline", f.Baseline != ""}, {"--go-bench", f.GoBench != ""}, {"--stages", f.Stages}, {"--serve", f.Serve != ""}, {"--push", f.Push != ""}} {
		if each.given {
			return fmt.Errorf("%w: %s is only for studies that are a command line of balebench run, and this one is not", cli.ErrUsage, each.option)
		}
	}
	var result *outcome.Report
	return put([]output{
		{"--json", f.JSON, s.Out, func(w io.Writer) error { return printable.WriteJSON(w, result) }},
		{"--html", f.HTML, s.Raw, func(w io.Writer) error { return result.WritePage(w) }},
	}, func() (_ bool, err error) {
		result, err = run()
		return result != nil, err
	}, func() {
		result.WriteText(s.Sheet(), outcome.TextOptions{})
	})
}

// output is where an option writes a result; the path - is stdout.
type output struct {
	option, path string
	stdout       io.Writer
	write        func(io.Writer) error
}

// put opens all outputs, finds a result, and writes it. The text is for stdout, unless an output
// has that.
func put(outputs []output, find func() (found bool, err error), text func()) (err error) {
	var toStdout []string
	files := make([]*cli.Output, len(outputs))
	for i, each := range outputs { // before the measuring, not after it
		if files[i], err = cli.OpenOutput(each.option, each.path, each.stdout); err != nil {
			return err
		}
		defer files[i].Discard()
		if each.path == "-" {
			toStdout = append(toStdout, each.option)
		}
	}
	if len(toStdout) > 1 {
		return fmt.Errorf("%w: %s cannot both have stdout", cli.ErrUsage, strings.Join(toStdout, " and "))
	}
	found, err := find()
	if !found {
		return err
	}
	for i, each := range outputs {
		err = errors.Join(err, files[i].Put(each.write))
	}
	if len(toStdout) == 0 {
		text()
	}
	return err
}
