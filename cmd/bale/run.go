package main

import (
	"context"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/fleet"
)

// runCommand is bale run and what is below it.
type runCommand struct {
	List   runList   `cmd:"" help:"Show all runs, and how far they are. The names of those that have gone are forgotten."`
	Show   runShow   `cmd:"" help:"Show a run, its settings and its workers."`
	Pause  runPause  `cmd:"" help:"Make the workers of a run wait, at the latest after ten seconds."`
	Resume runResume `cmd:"" help:"Let them go on."`
	Abort  runAbort  `cmd:"" help:"End a run for good: its workers stop. What they have done stays."`
}

func (runCommand) Help() string {
	return `A run is the work of one command that many processes share, on any number of machines: each starts the same bale advise, migrate, verify, dict gc or dict list --scan with the same --run NAME. Its parts, the units, are ranges of a cluster's slots; a single server is one unit. The registry's Redis keeps how far each is.

A process takes a unit, one of each shard at a time, for as long as it renews its lease of 15 seconds. If it dies or hangs, it loses the unit, and another process goes on. Slots may be moved and masters may fail over meanwhile. Each process ends when all units are done, and reports what all have done.

Examples:
  bale run list --redis redis://127.0.0.1:6379
  bale run pause users --redis redis://127.0.0.1:6379`
}

// sharedFlag is of the commands whose work can be shared.
type sharedFlag struct {
	Shared string `name:"run" placeholder:"NAME" help:"Share the work: any number of processes with the same command and name do a part of the keys each. See bale run."`
	Rate   int    `name:"run-rate" default:"0" placeholder:"N" help:"With --run: how many keys and elements a second all processes look at together, at most; 0 for no limit but --max-rate. Default: ${default}."`
}

func (f *sharedFlag) part() fleet.Part { return fleet.Part{Name: f.Shared, Rate: f.Rate} }

// runsFlags say where the runs are.
type runsFlags struct {
	registryFlags
	Redis string `env:"BALE_REDIS_URL" placeholder:"URL" help:"The Redis, or a node of the cluster, that the run works on. Default: the environment's BALE_REDIS_URL."`
}

func (f *runsFlags) show(ctx context.Context, s *cli.Streams, name, state string) error {
	at, err := f.options(s, f.Redis)
	if err != nil {
		return err
	}
	return cli.Report(s, "", func() (*fleet.Shown, error) { return fleet.Show(ctx, at, name, state) })
}

// runName is the run that a command is about.
type runName struct {
	Name string `arg:"" help:"The run."`
}

type runList struct{ runsFlags }

func (c *runList) Run(ctx context.Context, s *cli.Streams) error { return c.show(ctx, s, "", "") }

type runShow struct {
	runsFlags
	runName
}

func (c *runShow) Run(ctx context.Context, s *cli.Streams) error { return c.show(ctx, s, c.Name, "") }

type runPause struct {
	runsFlags
	runName
}

func (c *runPause) Run(ctx context.Context, s *cli.Streams) error {
	return c.show(ctx, s, c.Name, fleet.Paused)
}

type runResume struct {
	runsFlags
	runName
}

func (c *runResume) Run(ctx context.Context, s *cli.Streams) error {
	return c.show(ctx, s, c.Name, fleet.Running)
}

type runAbort struct {
	runsFlags
	runName
}

func (c *runAbort) Run(ctx context.Context, s *cli.Streams) error {
	return c.show(ctx, s, c.Name, fleet.Aborted)
}
