package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/link"
	"github.com/balekv/bale/internal/redisproc"
)

// ServerSetting is how a private server differs from one as it comes.
type ServerSetting struct {
	AppendOnly string // everysec, always; empty for no log of writes
	IOThreads  int    // 0 for one
	Policy     string // maxmemory-policy; empty for none
	Link       string // link.Setting; empty for loopback
}

// ErrServer says that a server cannot have a setting.
var ErrServer = errors.New("no such server setting")

var (
	appendOnly = []string{"no", "everysec", "always"}
	policies   = []string{"noeviction", "allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"}
)

const (
	maxIOThreads = 128   // Redis' own limit
	maxMemory    = "8gb" // that a policy is for, which the values of a run stay below
)

// ServerSettings returns all combinations of the values for each setting; none if there are no
// values.
func ServerSettings(logs []string, threads []int, evictions, links []string) ([]ServerSetting, error) {
	if len(logs)+len(threads)+len(evictions)+len(links) == 0 {
		return nil, nil
	}
	for _, v := range logs {
		if !slices.Contains(appendOnly, v) {
			return nil, fmt.Errorf("%w: appendonly %q; there are %s", ErrServer, v, strings.Join(appendOnly, ", "))
		}
	}
	for _, v := range threads {
		if v < 1 || v > maxIOThreads {
			return nil, fmt.Errorf("%w: io-threads %d, must be 1 to %d", ErrServer, v, maxIOThreads)
		}
	}
	for _, v := range evictions {
		if !slices.Contains(policies, v) {
			return nil, fmt.Errorf("%w: maxmemory-policy %q; there are %s", ErrServer, v, strings.Join(policies, ", "))
		}
	}
	for i, v := range links {
		s, err := link.Parse(v)
		if err != nil {
			return nil, fmt.Errorf("%w: link: %w", ErrServer, err)
		}
		links[i] = s.String()
	}
	var all []ServerSetting
	for _, l := range orDefault(links) {
		for _, policy := range orDefault(evictions) {
			for _, n := range orDefault(threads) {
				for _, log := range orDefault(logs) {
					s := ServerSetting{AppendOnly: log, IOThreads: n, Policy: policy, Link: l}
					if log == appendOnly[0] {
						s.AppendOnly = ""
					}
					if n == 1 {
						s.IOThreads = 0
					}
					if slices.Contains(all, s) {
						return nil, fmt.Errorf("%w: %q is there twice", ErrServer, s)
					}
					all = append(all, s)
				}
			}
		}
	}
	return all, nil
}

func orDefault[T any](v []T) []T {
	if len(v) == 0 {
		return make([]T, 1)
	}
	return v
}

// String names what differs: "appendonly=always io-threads=4"; empty for nothing.
func (s ServerSetting) String() string {
	var parts []string
	for _, part := range []struct{ name, value string }{
		{"link", s.Link}, {"maxmemory-policy", s.Policy}, {"io-threads", strconv.Itoa(s.IOThreads)}, {"appendonly", s.AppendOnly},
	} {
		if part.value != "" && part.value != "0" {
			parts = append(parts, part.name+"="+part.value)
		}
	}
	return strings.Join(parts, " ")
}

// args are the settings on a server's command line.
func (s ServerSetting) args() (args []string) {
	if s.AppendOnly != "" {
		args = append(args, "--appendonly", "yes", "--appendfsync", s.AppendOnly)
	}
	if s.IOThreads > 1 {
		args = append(args, "--io-threads", strconv.Itoa(s.IOThreads), "--io-threads-do-reads", "yes")
	}
	if s.Policy != "" {
		args = append(args, "--maxmemory", maxMemory, "--maxmemory-policy", s.Policy)
	}
	return args
}

// OpenPrivate runs a private redis-server with a setting. The caller closes it.
func OpenPrivate(ctx context.Context, setting ServerSetting) (*Server, error) {
	o := redisproc.Options{Args: setting.args(), Password: rand.Text(), Unprivileged: setting.Link == ""} // it will have values of the user's own
	server := &Server{Private: true, Here: true, Setting: setting.String()}
	closeLink := func() error { return nil }
	if setting.Link != "" {
		limits, err := link.Parse(setting.Link)
		if err != nil {
			return nil, err
		}
		l, err := link.Open(ctx, limits)
		if err != nil {
			return nil, fmt.Errorf("--link: %w", err)
		}
		o.Host, o.Prefix, closeLink = l.ServerIP(), l.Prefix(), l.Close
		server.LinkBits, server.LinkDelay = float64(limits.Bits), limits.Delay
	}
	private, err := redisproc.StartWith(ctx, o)
	if err != nil {
		return nil, errors.Join(err, closeLink())
	}
	server.Options = &redis.Options{Addr: private.Addr(), Password: o.Password, Dialer: private.Dial}
	server.close = func() error { return errors.Join(private.Close(), closeLink()) }
	return connect(ctx, server)
}
