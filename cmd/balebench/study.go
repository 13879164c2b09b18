package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/cmd/internal/rounds"
	"github.com/balekv/bale/cmd/internal/study"
)

type studyCommand struct {
	Name        string `arg:"" optional:"" help:"Which one: ${studies}. Without, they are listed."`
	Duration    string `placeholder:"D" help:"How long each cell is measured. Default: as the study has it, 0.28 to 15 seconds."`
	Repeat      string `placeholder:"N" help:"Rounds that the duration is split into. Default: 8; for resilience, 1."`
	resultFlags `group:"results"`

	given []string // options on the command line that bear on the figures
}

// Help is shown below the options.
func (studyCommand) Help() string {
	var b strings.Builder
	b.WriteString("A study is a comparison that is the same for everybody, summed up in small tables and sentences. Most are a command line of balebench run. The others, durability, instruments and resilience, have only --json and --html of the options for results.\n\nStudies:\n")
	for _, s := range study.All() {
		fmt.Fprintf(&b, "  %-12s %s\n", s.Name, s.About)
	}
	b.WriteString(`
The report with pictures goes to study-NAME.html in this folder, unless --html says otherwise or stdout has another result.

Examples:
  balebench study
  balebench study compressors
  balebench study clients --html clients.html --json clients.json
  balebench study dictionary --duration 2s`)
	return b.String()
}

// AfterApply notes what was on the command line.
func (c *studyCommand) AfterApply(k *kong.Context) error {
	c.given = given(k)
	return nil
}

// Run runs a study.
func (c *studyCommand) Run(ctx context.Context, s *cli.Streams) error {
	if c.Name == "" {
		for _, each := range study.All() {
			s.Sheet().Hanging(strings.Repeat(" ", 13), fmt.Sprintf("%-12s %s", each.Name, each.About))
		}
		return nil
	}
	chosen, err := study.Find(c.Name)
	if err != nil {
		return fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	run, err := parseRun(slices.Concat([]string{"run"}, chosen.Args, c.given))
	if err != nil {
		return fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	if c.HTML == "" && c.JSON != "-" && c.GoBench != "-" {
		c.HTML = "study-" + c.Name + ".html"
	}
	about := outcome.Environment{Study: chosen.Name, Question: chosen.Question, StudyCommand: append([]string{"balebench", "study", chosen.Name}, c.given...)}
	if !chosen.IsRun() {
		o := rounds.Options{Duration: run.Duration, Rounds: run.Repeat, Seed: run.Seed, About: about}
		if err := o.Validate(); err != nil {
			return fmt.Errorf("%w: %w", cli.ErrUsage, err)
		}
		err = c.report(s, func() (*outcome.Report, error) {
			progress, stop := cli.ShowProgress(s.Err)
			defer stop()
			o.Progress = progress
			return chosen.Report(ctx, o)
		})
	} else {
		err = c.run(ctx, s, run, chosen, about)
	}
	if err == nil && c.HTML != "" && c.HTML != "-" {
		printable.Fprintf(s.Err, "the report with pictures: %s\n", c.HTML)
	}
	return err
}

// run runs a study that is a command line of balebench run.
func (c *studyCommand) run(ctx context.Context, s *cli.Streams, run *runCommand, chosen study.Study, about outcome.Environment) error {
	o, err := run.options(s)
	if err != nil {
		return err
	}
	about.Command = o.About.Command
	o.About, o.Findings = about, chosen.Findings
	return c.measure(ctx, s, o)
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
