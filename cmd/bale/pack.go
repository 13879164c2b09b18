package main

import (
	"cmp"
	"context"
	"os"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/cmd/internal/inspect"
)

type packCommand struct {
	Compress string    `default:"zstd:fastest" placeholder:"SETTING" help:"none, snappy, s2, lz4, gzip or zstd, with a level where wanted: zstd:better. Default: ${default}."`
	Dict     string    `placeholder:"FILE" type:"existingfile" help:"Compress with this dictionary."`
	MaxSize  cli.Bytes `default:"64MiB" placeholder:"N" help:"The largest value that is packed; a larger one is stored as it is. Default: ${default}."`
}

func (packCommand) Help() string {
	return `A value below 64 bytes, or that gets less than 5% smaller, comes out as it is, as bale stores it. One that is itself a frame gets a header.

Examples:
  bale pack < value.json > value.packed
  bale pack --compress zstd:better < value.json | redis-cli -x SET user:1
  bale pack --compress zstd --dict users.dict < value.json > value.packed`
}

func (p *packCommand) Run(s *cli.Streams) error {
	setting, err := engine.Parse(p.Compress)
	if err != nil {
		return usagef("--compress: %w", err)
	}
	o := inspect.Options{Streams: s, Setting: setting, MaxSize: int(p.MaxSize)}
	if p.Dict != "" {
		o.Dictionaries = []string{p.Dict}
	}
	return inspect.Pack(o)
}

type unpackCommand struct {
	registryFlags
	Key     string    `arg:"" optional:"" placeholder:"KEY" help:"Print the value of this key in the Redis of --redis. Default: unpack stdin."`
	Redis   string    `placeholder:"URL" help:"The Redis with the key, and with the registry of dictionaries. Default: none is asked; with a key the environment's BALE_REDIS_URL."`
	Field   string    `placeholder:"F" help:"The field, if the key is a hash."`
	Raw     bool      `xor:"form" help:"Print the value of the key as it is. Default: a text, escaped for terminals."`
	Hex     bool      `xor:"form" help:"Print the value of the key in hexadecimal."`
	JSON    bool      `xor:"form" name:"json" help:"Print the value of the key as indented JSON."`
	Dict    []string  `placeholder:"FILE" type:"existingfile" sep:"none" help:"A dictionary that the value may have been packed with. Repeatable."`
	MaxSize cli.Bytes `default:"64MiB" placeholder:"N" help:"The largest value that is unpacked. Default: ${default}."`
}

func (unpackCommand) Help() string {
	return `A damaged value gives no output but an error, and exit status 1; so does a frame that says that there is no ` +
		`value, and a stream, whose content is under other keys. The newline that redis-cli appends to a value is ` +
		`left out. bale inspect shows how a value is packed.

Examples:
  bale unpack < value.packed
  redis-cli --raw GET user:1 | bale unpack
  bale unpack --dict users.dict < value.packed
  redis-cli --raw GET user:1 | bale unpack --redis redis://127.0.0.1:6379
  bale cat user:1 --redis redis://127.0.0.1:6379
  bale cat user:1 --json --redis redis://127.0.0.1:6379
  bale cat user:1 --raw --redis redis://127.0.0.1:6379 > value`
}

func (u *unpackCommand) Run(ctx context.Context, s *cli.Streams) error {
	if u.Key != "" {
		u.Redis = cmp.Or(u.Redis, os.Getenv(cli.URLEnv))
	}
	switch {
	case u.Key != "" && u.Redis == "":
		return cli.NoServer()
	case u.Key == "" && (u.Field != "" || u.Raw || u.Hex || u.JSON):
		return usagef("--field, --raw, --hex and --json go with a key")
	}
	o := inspect.Options{Streams: s, Dictionaries: u.Dict, MaxSize: int(u.MaxSize), Key: u.Key, Field: u.Field}
	switch {
	case u.Raw:
		o.Form = inspect.RawForm
	case u.Hex:
		o.Form = inspect.HexForm
	case u.JSON:
		o.Form = inspect.JSONForm
	}
	at := cmp.Or(u.Registry, u.Redis)
	if u.Key != "" {
		at = u.Redis // which the registry's may be beside
	}
	if at != "" {
		where, err := u.options(s, at)
		if err != nil {
			return err
		}
		o.Registry = &where
	}
	return inspect.Unpack(ctx, o)
}

type inspectCommand struct {
	registryFlags
	File  string   `arg:"" optional:"" placeholder:"FILE" help:"The stored value; - or nothing for stdin."`
	Redis string   `placeholder:"URL" help:"Read the value from this Redis, which is not changed. Default: the environment's BALE_REDIS_URL."`
	Key   string   `placeholder:"K" help:"The key of the value in Redis."`
	Field string   `placeholder:"F" help:"The field, if the key is a hash."`
	Dict  []string `placeholder:"FILE" type:"existingfile" sep:"none" help:"A dictionary that the value may have been packed with. Repeatable."`
}

func (inspectCommand) Help() string {
	return `Shows the header, the sizes, and the decoded value when it is JSON, of which it shows the first MiB. With ` +
		`--redis the dictionary comes from the registry in that Redis, or in that of --registry. A value of ` +
		`GetOrLoad says until when it is good, and how long loading took. Of a stream, which is in chunks under other ` +
		`keys, its size is shown; with --redis also whether all chunks are there and how long they live. The exit ` +
		`status is 1 when the value is damaged or not whole. bale cat KEY prints the value alone, as a whole.

Examples:
  bale inspect value.packed
  bale pack < value.json | bale inspect
  redis-cli --raw GET user:1 | bale inspect
  bale inspect --redis redis://127.0.0.1:6379 --key user:1`
}

func (c *inspectCommand) Run(ctx context.Context, s *cli.Streams) error {
	if c.Key != "" {
		c.Redis = cmp.Or(c.Redis, os.Getenv(cli.URLEnv))
	}
	switch {
	case c.Redis == "" && c.Key != "":
		return cli.NoServer()
	case c.Redis != "" && c.Key == "":
		return usagef("--redis goes with --key")
	case c.Redis != "" && c.File != "":
		return usagef("either a file or --redis")
	case c.Registry != "" && c.Redis == "":
		return usagef("--registry goes with --redis")
	case c.Field != "" && c.Key == "":
		return usagef("--field goes with --key")
	}
	o := inspect.Options{Streams: s, File: c.File, Key: c.Key, Field: c.Field, Dictionaries: c.Dict}
	if c.Redis != "" {
		where, err := c.options(s, c.Redis)
		if err != nil {
			return err
		}
		o.Registry = &where
	}
	return cli.Report(s, "", func() (*inspect.Result, error) { return inspect.Run(ctx, o) })
}
