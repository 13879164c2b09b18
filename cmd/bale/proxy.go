package main

import (
	"context"
	"time"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/cmd/internal/migrate"
	"github.com/balekv/bale/cmd/internal/proxy"
)

type proxyCommand struct {
	registryFlags
	Redis         string        `env:"BALE_REDIS_URL" placeholder:"URL" help:"The Redis behind the proxy: a single server. Clients log in themselves; the URL's login is for the dictionaries."`
	Listen        string        `default:"127.0.0.1:6380" placeholder:"ADDR" help:"Where clients connect: HOST:PORT, :PORT for 127.0.0.1, or unix:/PATH. Default: ${default}."`
	Match         []string      `required:"" placeholder:"PATTERN" sep:"none" help:"The keys whose values are packed, for example 'user:*'; '*' for all. Repeatable."`
	Exclude       []string      `placeholder:"PATTERN" sep:"none" help:"Keys whose values are not packed although they match. Repeatable."`
	Compress      string        `default:"zstd:3" placeholder:"SETTING" help:"What values are packed with: zstd, with a level where wanted, s2, lz4 and others; zstd:3+dict with the dictionary of --group. Default: ${default}."`
	Group         string        `placeholder:"NAME" help:"With +dict: the group of the dictionary. Default: made of the pattern, user:profile of 'user:*:profile'."`
	ReadOnly      bool          `help:"Unpack, and pack nothing: the first step of a roll-out, and the last of the way back."`
	RefuseScripts bool          `help:"Refuse scripts and functions that declare a key in scope: they see packed bytes."`
	MaxClients    int           `default:"10000" placeholder:"N" help:"Connections of clients; others get an error. Default: ${default}."`
	MaxRequest    cli.Bytes     `default:"64MiB" placeholder:"N" help:"The largest command on keys in scope. Others have no limit. Default: ${default}."`
	MaxMemory     cli.Bytes     `default:"1GiB" placeholder:"N" help:"Memory of all connections for commands and replies in scope; beyond it a command is an error. Each connection has 32 KiB of buffers beside it. Default: ${default}."`
	Drain         time.Duration `default:"10s" placeholder:"D" help:"On SIGTERM, how long replies in flight are waited for. Default: ${default}."`
}

func (proxyCommand) Help() string {
	return `Clients in any language write and read plain values through the proxy, and Redis holds packed ones. RESP2 and RESP3, logins, transactions, subscriptions and blocking commands are those of Redis: each connection has one of its own. Everything that does not touch values in scope passes as it is.

Commands that work on a value's bytes within the server (APPEND, GETRANGE, STRLEN and their like) are refused for keys in scope, with an error that starts with BALE. docs/proxy.md lists them, and how to get from plain values to packed ones and back.

Not there yet: Cluster, Sentinel, TLS for clients, a pool of connections, a configuration file, metrics.

Examples:
  bale proxy --redis redis://127.0.0.1:6379 --match 'user:*'
  bale proxy --redis redis://127.0.0.1:6379 --match 'user:*' --compress zstd:3+dict --group user
  bale proxy --redis redis://127.0.0.1:6379 --match 'user:*' --read-only --listen unix:/run/bale.sock`
}

func (c *proxyCommand) Run(ctx context.Context, s *cli.Streams) error {
	if c.Redis == "" {
		return cli.NoServer()
	}
	setting, err := engine.Parse(c.Compress)
	if err != nil {
		return usagef("--compress: %w", err)
	}
	if c.Group != "" && !setting.Dict {
		return usagef("--group is for --compress with +dict: %s+dict", setting)
	}
	if c.Group == "" && setting.Dict && len(c.Match) == 1 {
		c.Group = migrate.GroupOf(c.Match[0])
	}
	login, err := c.Login(c.Redis, c.Registry)
	if err != nil {
		return err
	}
	return proxy.Run(ctx, proxy.Options{
		Streams: s, Listen: c.Listen, Redis: c.Redis, Registry: c.Registry, Prefix: c.Prefix, Login: login,
		Match: c.Match, Exclude: c.Exclude, Setting: setting, Group: c.Group, ReadOnly: c.ReadOnly, RefuseScripts: c.RefuseScripts,
		MaxClients: c.MaxClients, MaxRequest: int(c.MaxRequest), MaxMemory: int64(c.MaxMemory), Drain: c.Drain,
	})
}
