package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/proxy"
)

type proxyCommand struct {
	registryFlags
	Redis         string        `env:"BALE_REDIS_URL" placeholder:"URL" help:"The Redis behind the proxy: a single server, a node of a cluster, or redis://SENTINEL:26379?master_name=NAME for the master that Sentinel names. Without --pool clients log in themselves; the URL's login is for the dictionaries and, with --cluster, for the layout."`
	Cluster       bool          `help:"The Redis is a cluster: each node gets a listener, at the ports after --listen. Clients are told the proxy's addresses. --listen itself leads to any node: give it to clients as the seed."`
	Announce      string        `placeholder:"HOST" help:"With --cluster: the name or IP address that clients are told. Default: that at which they reached the proxy."`
	Listen        string        `default:"127.0.0.1:6380" placeholder:"ADDR" help:"Where clients connect: HOST:PORT, :PORT for 127.0.0.1, or unix:/PATH. Default: ${default}."`
	ListenMode    string        `default:"0600" placeholder:"MODE" help:"The permissions of a Unix socket. Default: ${default}, for the same user alone."`
	ListenCert    string        `placeholder:"FILE" help:"Clients use TLS: the proxy's certificate in PEM. SIGHUP has it read again."`
	ListenKey     string        `placeholder:"FILE" help:"Its key."`
	ListenCA      string        `name:"listen-ca" placeholder:"FILE" help:"The authority of clients' certificates. Every client then needs one."`
	Match         []string      `placeholder:"PATTERN" sep:"none" help:"The keys whose values are packed, for example 'user:*'; '*' for all. Repeatable."`
	Exclude       []string      `placeholder:"PATTERN" sep:"none" help:"Keys whose values are not packed although they match. Repeatable."`
	Compress      string        `placeholder:"SETTING" help:"What values are packed with: zstd, with a level where wanted, s2, lz4 and others; zstd:3+dict with the dictionary of --group. Default: zstd:3."`
	Group         string        `placeholder:"NAME" help:"With +dict: the group of the dictionary. Default: made of the pattern, user:profile of 'user:*:profile'."`
	ReadOnly      bool          `help:"Unpack, and pack nothing: the first step of a roll-out, and the last of the way back."`
	RefuseScripts bool          `help:"Refuse scripts and functions that declare a key in scope: they see packed bytes."`
	Config        string        `type:"path" placeholder:"FILE" help:"In place of --match, --exclude, --compress, --group, --read-only and --refuse-scripts: a file in JSON with several groups of keys. SIGHUP has it read again."`
	Check         bool          `help:"Check the settings, print them, and end. Redis is not asked."`
	Metrics       string        `placeholder:"ADDR" help:"Serve /metrics, for Prometheus, and /ready at HOST:PORT, or :PORT for 127.0.0.1."`
	Pool          int           `placeholder:"N" help:"Clients share N connections to Redis, as the user of --redis, until their first command that cannot be shared (MULTI, SELECT, AUTH, MGET and others): then they get their own. Default: none."`
	MaxClients    int           `default:"10000" placeholder:"N" help:"Connections of clients; others get an error. Default: ${default}."`
	MaxRequest    cli.Bytes     `default:"64MiB" placeholder:"N" help:"The largest command on keys in scope, on several keys, or with a script; a larger write of one value passes as it is. Others have no limit. Default: ${default}."`
	MaxMemory     cli.Bytes     `default:"1GiB" placeholder:"N" help:"Memory of all connections for commands, replies and decoded values in scope; beyond it a command is an error. One connection may hold a quarter. Default: ${default}."`
	Stall         time.Duration `default:"30s" placeholder:"D" help:"How long a client may take to go on with a command or reply that takes memory of --max-memory, and 1 s for each 128 KiB of it. Default: ${default}."`
	SlowLog       time.Duration `placeholder:"D" help:"Write a line for each command that takes at least this long, ten a second at most: its name, first key and client, never values. Default: none."`
	Drain         time.Duration `default:"10s" placeholder:"D" help:"On SIGTERM, how long replies in flight are waited for. Default: ${default}."`
}

func (proxyCommand) Help() string {
	return `Clients in any language write and read plain values through the proxy, and Redis holds packed ones. RESP2 and RESP3, logins, transactions, subscriptions and blocking commands are those of Redis: without --pool, each client's connection has its own to Redis. Almost everything that does not touch values in scope passes as it is.

Commands that work on a value's bytes within the server (APPEND, GETRANGE, STRLEN and their like) are refused for keys in scope, with an error that starts with BALE. docs/proxy.md lists them, and how to get from plain values to packed ones and back.

Examples:
  bale proxy --redis redis://127.0.0.1:6379 --match 'user:*'
  bale proxy --redis redis://127.0.0.1:6379 --match 'user:*' --compress zstd:3+dict --group user
  bale proxy --redis redis://127.0.0.1:6379 --match 'user:*' --read-only --listen unix:/run/bale.sock
  bale proxy --redis redis://127.0.0.1:6379 --match 'user:*' --cluster --listen 127.0.0.1:7000
  bale proxy --redis redis://127.0.0.1:6379 --config proxy.json --check`
}

// Validate implements kong's interface.
func (c *proxyCommand) Validate() error {
	switch {
	case c.Config == "" && len(c.Match) == 0:
		return errors.New("give one of --match and --config")
	case c.Config != "" && (len(c.Match)+len(c.Exclude) > 0 || c.Compress+c.Group != "" || c.ReadOnly || c.RefuseScripts):
		return errors.New("--config excludes --match, --exclude, --compress, --group, --read-only and --refuse-scripts, which are in the file")
	}
	return nil
}

func (c *proxyCommand) Run(ctx context.Context, s *cli.Streams) error {
	if c.Redis == "" {
		return cli.NoServer()
	}
	login, err := c.Login(c.Redis, c.Registry)
	if err != nil {
		return err
	}
	mode, err := strconv.ParseUint(c.ListenMode, 8, 9)
	if err != nil {
		return usagef("--listen-mode %q: give permissions as for chmod, such as 0660", c.ListenMode)
	}
	ctx, hangup, stop := cli.Reloading(ctx)
	defer stop()
	o := proxy.Options{
		Streams: s, Listen: c.Listen, ListenMode: os.FileMode(mode), TLS: proxy.Certificates{Cert: c.ListenCert, Key: c.ListenKey, CA: c.ListenCA}, Metrics: c.Metrics, Reload: hangup, Redis: c.Redis, Cluster: c.Cluster, Announce: c.Announce, Pool: c.Pool, Registry: c.Registry, Prefix: c.Prefix, Login: login,
		ConfigFile: c.Config, Config: proxy.Config{
			Groups:   []proxy.Group{{Match: c.Match, Exclude: c.Exclude, Compress: cmp.Or(c.Compress, "zstd:3"), Group: c.Group}},
			ReadOnly: c.ReadOnly, RefuseScripts: c.RefuseScripts,
		},
		MaxClients: c.MaxClients, MaxRequest: int(c.MaxRequest), MaxMemory: int64(c.MaxMemory), Stall: c.Stall, SlowLog: c.SlowLog, Drain: c.Drain,
	}
	if c.Check {
		if err := o.Check(); err != nil {
			return err
		}
		_, err = io.WriteString(s.Out, o.Config.String())
		return err
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		o.MemoryGoal = func(bytes int64) { debug.SetMemoryLimit(bytes) }
	}
	return proxy.Run(ctx, o)
}
