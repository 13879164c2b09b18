package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/cmd/internal/study"
)

type studyCommand struct {
	Name     string `arg:"" optional:"" help:"Which one: ${studies}. Without, they are listed."`
	HTML     string `name:"html" placeholder:"FILE" help:"Write the report to this file. Default: study-NAME.html in this folder; none with --json -."`
	JSON     string `name:"json" placeholder:"FILE" help:"Write all figures as JSON, too: to a file, or to stdout (-) in place of the tables."`
	GoBench  string `name:"go-bench" placeholder:"FILE" help:"Write all rounds in the format of Go benchmarks, too."`
	Duration string `placeholder:"D" help:"How long each cell is measured. Default: as the study has it, 0.28 to 2 seconds."`
	Repeat   string `placeholder:"N" help:"Rounds that the duration is split into. Default: those of balebench run."`
	Serve    string `placeholder:"ADDRESS" help:"Show the report live at this address while the study goes on."`
}

// studyRun is a study that is run.
type studyRun struct {
	study.Study
	command []string // that runs it again
}

// Help is shown below the options.
func (studyCommand) Help() string {
	var b strings.Builder
	b.WriteString("A study is a comparison that is the same for everybody: a command line of balebench run, whose results are summed up in small tables and sentences.\n\nStudies:\n")
	for _, s := range study.All() {
		fmt.Fprintf(&b, "  %-12s %s\n", s.Name, s.About)
	}
	b.WriteString(`
Examples:
  balebench study
  balebench study compressors
  balebench study clients --html clients.html --json clients.json
  balebench study dictionary --duration 2s`)
	return b.String()
}

// Run runs a study.
func (c *studyCommand) Run(ctx context.Context, s *cli.Streams) error {
	if c.Name == "" {
		for _, each := range study.All() {
			printable.Fprintf(s.Out, "%-12s %s\n", each.Name, each.About)
		}
		return nil
	}
	chosen, err := study.Find(c.Name)
	if err != nil {
		return fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	args := append([]string{"run"}, chosen.Args...)
	run := &studyRun{Study: chosen, command: []string{"balebench", "study", chosen.Name}}
	for _, option := range []struct {
		name, value string
		counts      bool // for the figures
	}{
		{"--duration", c.Duration, true}, {"--repeat", c.Repeat, true}, {"--json", c.JSON, false}, {"--go-bench", c.GoBench, false},
		{"--serve", c.Serve, false}, {"--html", c.page(), false},
	} {
		if option.value == "" {
			continue
		}
		args = append(args, option.name+"="+option.value)
		if option.counts {
			run.command = append(run.command, option.name, option.value)
		}
	}
	bench, err := parseRun(args)
	if err != nil {
		return fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	bench.study = run
	if err := bench.Run(ctx, s); err != nil {
		return err
	}
	if page := c.page(); page != "" && page != "-" {
		printable.Fprintf(s.Err, "the report with pictures: %s\n", page)
	}
	return nil
}

// page is where the report goes.
func (c *studyCommand) page() string {
	if c.HTML == "" && c.JSON != "-" && c.GoBench != "-" {
		return "study-" + c.Name + ".html"
	}
	return c.HTML
}

// parseRun reads a command line of balebench run.
func parseRun(args []string) (*runCommand, error) {
	var g grammar
	parser, err := app.Parser(&g, kong.Exit(func(int) {}))
	if err != nil {
		return nil, err
	}
	if _, err := parser.Parse(args); err != nil {
		return nil, err
	}
	return &g.Run, nil
}
