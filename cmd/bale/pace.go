package main

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/printable"
)

// paceFlags bound what a walk asks of a server. The default of the rate is set where they are
// embedded.
type paceFlags struct {
	MaxRate      int      `default:"${max_rate}" placeholder:"N" help:"How many keys and elements (fields of hashes and the like) a second are looked at, at most; 0 for no limit. Default: ${default}."`
	MaxBandwidth byteRate `default:"20MiB" placeholder:"N" help:"How many bytes of values a second are read, at most; 0 for no limit. With either limit the walk pauses, too, while the server gets slower, its memory grows or its replicas fall behind. Default: ${default}."`
}

// check rejects what is no rate.
func (f *paceFlags) check() error {
	if f.MaxRate < 0 {
		return fmt.Errorf("%w: --max-rate %d, must not be negative", cli.ErrUsage, f.MaxRate)
	}
	return nil
}

// pace is what a walk keeps; it says on w why it pauses.
func (f *paceFlags) pace(w io.Writer, command string) keyspace.Pace {
	return keyspace.Pace{Rate: f.MaxRate, Bandwidth: int(f.MaxBandwidth), Paused: func(why string) {
		printable.Fprintf(w, "bale %s: pauses from time to time: %s\n", command, why)
	}}
}

// byteRate is a cli.Bytes that may be 0.
type byteRate int

// UnmarshalText reads the rate.
func (b *byteRate) UnmarshalText(text []byte) error {
	if string(text) == "0" {
		*b = 0
		return nil
	}
	return (*cli.Bytes)(b).UnmarshalText(text)
}

// memoryGoal is from where on the garbage collector works hard: a command that reads values keeps
// below 200 MiB.
const memoryGoal = 96 << 20

// frugal sets memoryGoal, and returns what sets back what was before.
func frugal() (back func()) {
	before := debug.SetMemoryLimit(memoryGoal)
	return func() { debug.SetMemoryLimit(before) }
}

// sayLost says what the command goes without, because the servers with values refuse commands.
func (s *redisServers) sayLost(ctx context.Context, w io.Writer, command string, optional ...keyspace.Optional) error {
	for _, d := range s.data {
		all, err := keyspace.Lost(ctx, d.client, optional...)
		if err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
		for _, text := range all {
			printable.Fprintf(w, "bale %s: WARNING: %s: %s\n", command, d.name, text)
		}
	}
	return nil
}
