package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/alecthomas/kong"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/httplab"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/rounds"
)

type httpCommand struct {
	Client      []httplab.ClientSetting `default:"${http_default}" placeholder:"LIST" group:"what" help:"HTTP clients: ${http_clients}. Default: ${default}."`
	Size        []cli.Bytes             `default:"1KiB" placeholder:"LIST" group:"what" help:"Bytes of a response: 16 to 16MiB. Default: ${default}."`
	Reuse       []string                `default:"on" enum:"on,off" placeholder:"LIST" group:"what" help:"Use connections again (on), or open one for each request (off). Default: ${default}."`
	Loop        []string                `default:"open,closed" placeholder:"LIST" group:"load" help:"Requests start on schedule (open), or when a caller's last one has ended (closed). Default: ${default}."`
	Rate        float64                 `placeholder:"N" group:"load" help:"Requests a second of the open loop. Default: the highest that every client sustains, which is measured first."`
	InFlight    int                     `default:"1000" placeholder:"N" group:"load" help:"Requests of the open loop in flight at most, 1 to 10000; later ones wait, and their latency includes that. Default: ${default}."`
	Concurrency int                     `default:"64" placeholder:"N" group:"load" help:"Callers of the closed loop, 1 to 10000. Default: ${default}."`
	Delay       time.Duration           `default:"5ms" placeholder:"D" group:"server" help:"How long the server takes for a response. Default: ${default}."`
	Duration    time.Duration           `default:"2s" placeholder:"D" group:"measuring" help:"How long each cell is measured, in all rounds. Default: ${default}."`
	Repeat      int                     `default:"8" placeholder:"N" group:"measuring" help:"Rounds that the duration is split into; cells take turns in random order. Intervals need 6. Default: ${default}."`
	Seed        uint64                  `default:"1" placeholder:"N" group:"measuring" help:"Seed of the order. Default: ${default}."`
	JSON        string                  `name:"json" placeholder:"FILE" group:"results" help:"Write all figures as JSON, too: to a file, or to stdout (-) in place of the tables."`
	HTML        string                  `name:"html" placeholder:"FILE" group:"results" help:"Write a report with pictures, as one file that needs no network."`

	given []string
}

// Help is shown below the options.
func (httpCommand) Help() string {
	return `Each client asks a server in a process of its own, which answers after --delay. The status and every byte of` +
		` each response are checked; a cell with a single mismatch is FAILED, and the exit status is 1. Each round ` +
		`has a new client, so that connections opened are counted from the first.

A policy of resilient has the settings of docs/resilience.md, with the delay for the healthy latency.

Examples:
  balebench http
  balebench http --client default,tuned --rate 1000 --html http.html
  balebench http --client tuned,resilient,httpc,httpc:hedge --loop closed
  balebench http --client tuned,http2,fasthttp,fasthttp@fasthttp --size 100B,10KiB,100KiB --reuse on,off --duration 1s`
}

// AfterApply notes what was on the command line.
func (c *httpCommand) AfterApply(k *kong.Context) error {
	c.given = cli.Given(k, func(f *kong.Flag) bool { return (f.Group == nil || f.Group.Key != "results") && f.Name != "seed" })
	return cli.CheckLists(k)
}

// Run measures and reports.
func (c *httpCommand) Run(ctx context.Context, s *cli.Streams) error {
	o := httplab.Options{
		Clients: c.Client, Loops: c.Loop, Rate: c.Rate, InFlight: c.InFlight, Concurrency: c.Concurrency, Delay: c.Delay,
		Options: rounds.Options{Duration: c.Duration, Rounds: c.Repeat, Seed: c.Seed, About: outcome.Environment{
			Question: httplab.Question, StudyCommand: slices.Concat([]string{"balebench", "http"}, c.given, []string{"--seed", fmt.Sprint(c.Seed)}),
		}},
	}
	for _, size := range c.Size {
		o.Sizes = append(o.Sizes, int(size))
	}
	for _, reuse := range c.Reuse {
		o.Reuse = append(o.Reuse, reuse == "on")
	}
	progress, stop := cli.ShowProgress(s.Err)
	o.Progress = progress
	f := resultFlags{JSON: c.JSON, HTML: c.HTML}
	return f.report(s, func() (*outcome.Report, error) {
		defer stop()
		return httplab.Run(ctx, o)
	})
}
