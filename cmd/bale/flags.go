package main

import (
	"fmt"
	"time"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/registry"
)

// registryFlags say where the registry of dictionaries is, for a command with a --redis of its own.
type registryFlags struct {
	cli.ConnectionFlags
	Registry string `placeholder:"URL" help:"The Redis with the registry of dictionaries. Default: that of --redis."`
	Prefix   string `default:"${prefix}" placeholder:"TEXT" help:"Prefix of the registry's keys. Default: ${default}."`
}

// registryBandwidth bounds the bytes that a command without a pace reads of a registry a second.
const registryBandwidth = 20 << 20

// options are those of the registry, and of the servers with values.
func (f *registryFlags) options(s *cli.Streams, data ...string) (registry.Options, error) {
	login, err := f.Login(append(data, f.Registry)...)
	return registry.Options{Streams: s, Data: data, URL: f.Registry, Prefix: f.Prefix,
		Login: login, Pace: keyspace.Pace{Bandwidth: registryBandwidth}}, err
}

// graceFlag is the grace period that a command declares.
type graceFlag struct {
	Grace time.Duration `placeholder:"D" help:"The grace period that your programs need. The registry keeps the longest one; bale dict grace sets it. Default: the registry's."`
}

// paceFlags bound what a walk asks of a server. The default of the rate is set where they are
// embedded.
type paceFlags struct {
	MaxRate      int      `default:"${max_rate}" placeholder:"N" help:"At most how many keys and elements (fields of hashes and the like) to look at per second; 0 for no limit. Default: ${default}."`
	MaxBandwidth byteRate `default:"20MiB" placeholder:"N" help:"How many bytes of values a second are read (migrate: and written), at most; 0 for no limit. With either limit the walk pauses, too, while the server gets slower, its memory grows or its replicas fall behind. Default: ${default}."`
}

// mastersFlag is for the walks of one process that read several masters at a time.
type mastersFlag struct {
	Masters int `default:"16" placeholder:"N" help:"How many masters of a cluster are read at a time, each at the pace of --max-rate. Each takes some MiB of memory. Default: ${default}."`
}

// set sets the number in a pace.
func (f *mastersFlag) set(p *keyspace.Pace) error {
	if p.Masters = f.Masters; p.Masters < 1 {
		return usagef("--masters %d, must be at least 1", p.Masters)
	}
	return nil
}

// pace is that of a walk, which reports why it pauses.
func (f *paceFlags) pace(s *cli.Streams) (keyspace.Pace, error) {
	var err error
	if f.MaxRate < 0 {
		err = usagef("--max-rate %d, must not be negative", f.MaxRate)
	}
	return keyspace.Pace{Rate: f.MaxRate, Bandwidth: int(f.MaxBandwidth), Paused: func(why string, sofar time.Duration) {
		if sofar > 0 {
			s.Notef("has paused for %v in all: %s", sofar, why)
			return
		}
		s.Notef("pauses from time to time: %s. --max-rate 0 --max-bandwidth 0 switch the pauses off, and both limits", why)
	}}, err
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

// usagef is an error in how a command was called.
func usagef(format string, args ...any) error {
	return fmt.Errorf("%w: %w", cli.ErrUsage, fmt.Errorf(format, args...))
}
