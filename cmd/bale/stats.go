package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/events"
	"github.com/balekv/bale/cmd/internal/printable"
)

type statsCommand struct {
	Files []string      `arg:"" name:"file" help:"Files of events, as stats.NewFile writes them; - for stdin."`
	Group string        `placeholder:"PATTERN" help:"Groups like this alone, for example 'user:*'."`
	Every time.Duration `placeholder:"D" help:"A time series, too, of intervals of this length; at least 1ms."`
	JSON  string        `name:"json" placeholder:"FILE" help:"Write all figures as JSON, too: to a file, or to stdout (-) in place of the tables."`
}

// Help is shown below the options.
func (statsCommand) Help() string {
	return `Shows what the operations of a program did, by group and operation: rates, hits, errors, bytes, and how long each stage took. The files are those of a stats.Ring with a stats.NewFile as its sink; several are taken as those of a fleet, at the same time or one after another. Memory does not grow with them.

A file that ends within a batch, or is damaged, is shown as far as it can be read, with a warning. The exit status is 1 if nothing could be read.

Examples:
  bale stats app.events
  bale stats --group 'user:*' --every 1m app.events
  bale stats --json stats.json app.events other.events
  bale stats --json - - < app.events`
}

// minEvery is the shortest interval of a time series.
const minEvery = time.Millisecond

// Run sums up events.
func (c *statsCommand) Run(ctx context.Context, s *cli.Streams) error {
	if c.Every != 0 && c.Every < minEvery {
		return fmt.Errorf("%w: --every %v, must be at least %v", cli.ErrUsage, c.Every, minEvery)
	}
	var sources []events.Source
	stdin := false
	for _, path := range c.Files {
		source := events.Source{Name: path}
		if path == "-" {
			if stdin {
				return fmt.Errorf("%w: stdin (-) is there twice", cli.ErrUsage)
			}
			stdin = true
			source = events.Source{Name: "stdin", Reader: s.In}
		} else if f, err := os.Open(path); err == nil {
			defer f.Close()
			source.Reader = f
		} else {
			if e, ok := errors.AsType[*fs.PathError](err); ok {
				err = e.Err // the rest of it is the name
			}
			source.Reader = unread{err}
		}
		sources = append(sources, source)
	}
	out, err := cli.OpenJSON(c.JSON, s) // before the reading, not after it
	if err != nil {
		return err
	}
	defer out.Discard()
	summary, err := events.Collect(ctx, sources, events.Options{Group: c.Group, Every: c.Every})
	switch {
	case errors.Is(err, events.ErrPattern), errors.Is(err, events.ErrIntervals):
		return fmt.Errorf("%w: %w", cli.ErrUsage, err)
	case err != nil:
		return err
	}
	for _, w := range summary.Warnings {
		printable.Fprintf(s.Err, "bale stats: warning: %s\n", cli.Told(errors.New(w)))
	}
	if c.JSON != "-" {
		summary.WriteText(s.Out)
	}
	return out.Write(summary)
}

// unread is a file that cannot be opened: it gives its error when it is read, as others may.
type unread struct{ err error }

func (u unread) Read([]byte) (int, error) { return 0, u.err }
