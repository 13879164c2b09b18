package main

import (
	"context"
	"errors"
	"time"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/events"
)

type statsCommand struct {
	Files []string      `arg:"" name:"file" help:"Files of events, as eventfile.NewWriter writes them; - for stdin."`
	Group string        `placeholder:"PATTERN" help:"Only groups that match this, for example 'user:*'."`
	Every time.Duration `placeholder:"D" help:"A time series, too, of intervals of this length; at least 1ms."`
	JSON  string        `name:"json" placeholder:"FILE" help:"Write all figures as JSON, too: to a file, or to stdout (-) in place of the tables."`
}

func (statsCommand) Help() string {
	return `Shows what the operations of a program did, by group and operation: rates, hits, errors, bytes, and how long` +
		` each stage took. The files are those of a stats.Ring with an eventfile.NewWriter as its sink; several are ` +
		`taken as those of a fleet, at the same time or one after another. Memory does not grow with them.

A file that ends within a batch, or is damaged, is shown as far as it can be read, with a warning. The exit ` +
		`status is 1 if nothing could be read.

Examples:
  bale stats app.events
  bale stats --group 'user:*' --every 1m app.events
  bale stats --json stats.json app.events other.events
  bale stats --json - - < app.events`
}

func (c *statsCommand) Run(ctx context.Context, s *cli.Streams) error {
	sources, done, err := events.Open(c.Files, s.In)
	if err != nil {
		return usagef("%w", err)
	}
	defer done()
	return cli.Report(s, c.JSON, func() (*events.Summary, error) {
		progress, stop := cli.ShowProgress(s.Err)
		found, err := events.Collect(ctx, sources, events.Options{Group: c.Group, Every: c.Every, Progress: progress})
		stop()
		if err != nil {
			return nil, err
		}
		for _, w := range found.Warnings {
			s.Notef("warning: %s", cli.Message(errors.New(w)))
		}
		return found, nil
	})
}
