package main

import (
	"context"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/verify"
)

type verifyCommand struct {
	registryFlags
	paceFlags `set:"max_rate=5000"`
	sharedFlag
	Redis    string   `env:"BALE_REDIS_URL" placeholder:"URL" help:"The Redis, or a node of the cluster, whose values are read: those of the URL's database."`
	Match    []string `placeholder:"PATTERN" sep:"none" help:"The keys whose values are read, for example 'user:*'. Repeatable; each pattern takes a walk of its own, and a key that is like two of them counts twice. Default: all."`
	Repair   bool     `help:"Mend streams (package stream) that a crash left half done: chunks that would expire before their value, and chunks that no value needs."`
	Replicas bool     `help:"Read values from replicas where there are good ones. Names, what a replica lacks, and values that cannot be unpacked are read from the masters. Replicas get the user and password, at the addresses that they announce."`
	JSON     string   `name:"json" placeholder:"FILE" help:"Write all figures as JSON, too: to a file, or to stdout (-) in place of the tables."`
}

func (verifyCommand) Help() string {
	return `Every string and every field of a hash is read and unpacked with the registry's dictionaries; checksums are ` +
		`compared. For a value in chunks (package stream) it checks the manifest, and that no chunk is missing ` +
		`or expires before the value; the contents of chunks are checked, too, if --match has their keys. ` +
		`No value is changed, except streams with --repair. A dictionary in quarantine that a value needs comes back to the registry; the command says how many did.

The exit status is 1 if a value cannot be unpacked; ten of each cause are named, a hundred in all, and ` +
		`values never shown.

Examples:
  bale verify --redis redis://127.0.0.1:6379
  bale verify --redis redis://127.0.0.1:6379 --match 'user:*' --max-rate 0 --max-bandwidth 0
  bale verify --redis redis://127.0.0.1:6379 --repair
  bale verify --redis redis://127.0.0.1:6379 --replicas`
}

func (c *verifyCommand) Run(ctx context.Context, s *cli.Streams) error {
	registry, err := c.options(s, c.Redis)
	if err == nil {
		registry.Pace, err = c.pace(s)
	}
	if err != nil {
		return err
	}
	return cli.Report(s, c.JSON, func() (*verify.Result, error) {
		return verify.Run(ctx, verify.Options{Registry: registry, Match: c.Match, Repair: c.Repair, Replicas: c.Replicas, Run: c.part()})
	})
}
