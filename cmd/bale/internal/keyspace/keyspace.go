// Package keyspace walks the keys of a live Redis, reading only and at a bounded rate. Every command that looks at a
// server's data stands on it.
package keyspace

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	pageSize    = 100 // keys asked for at a time
	replyWithin = 10 * time.Second
)

// ErrURL says that a URL is none of a Redis.
var ErrURL = errors.New("no redis URL")

// ParseURL reads a URL; its error never shows a password.
func ParseURL(s string) (*redis.Options, error) {
	scheme, _, ok := strings.Cut(s, "://")
	if !ok || scheme != "redis" && scheme != "rediss" && scheme != "unix" {
		return nil, fmt.Errorf("%w: %q; one starts with redis://, rediss:// or unix://, for example redis://127.0.0.1:6379/0", ErrURL, Redact(s))
	}
	o, err := redis.ParseURL(s)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // the rest of it is the URL
		}
		return nil, fmt.Errorf("%w: %q: %w; for example redis://127.0.0.1:6379/0", ErrURL, Redact(s), err)
	}
	return o, nil
}

// Open connects to the server at a URL, or to the whole cluster that it is a part of. The caller closes the
// client.
func Open(ctx context.Context, at string) (redis.UniversalClient, error) {
	o, err := ParseURL(at)
	if err != nil {
		return nil, err
	}
	o.DisableIdentity = true // one round trip less for each connection
	o.ContextTimeoutEnabled = true
	o.ReadTimeout, o.WriteTimeout = replyWithin, replyWithin
	client := redis.NewClient(o)
	first, cancel := context.WithTimeout(ctx, replyWithin)
	defer cancel()
	info, err := client.Info(first, "server").Result()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("no answer from Redis at %s: %w%s", o.Addr, Explain(err, o.Username), hint(ctx, o, err)), client.Close())
	}
	if !strings.Contains(info, "_mode:cluster") { // redis_mode; Valkey says server_mode
		return client, nil
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{o.Addr}, Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig,
		DisableIdentity: true, ContextTimeoutEnabled: true, ReadTimeout: replyWithin, WriteTimeout: replyWithin,
	})
	return cluster, client.Close()
}

// hint is what may help to get an answer.
func hint(ctx context.Context, o *redis.Options, err error) string {
	switch {
	case redis.HasErrorPrefix(err, "NOAUTH"), redis.HasErrorPrefix(err, "WRONGPASS"):
		return "; a URL with a user and password is redis://USER:PASSWORD@HOST:PORT"
	case o.TLSConfig != nil && ctx.Err() == nil && !IsReply(err):
		return "; does it speak TLS? The URL of one that does not starts with redis://"
	}
	return ""
}

// Next says how a walk goes on after a page of keys.
type Next int

const (
	More     Next = iota // with the next page
	NextNode             // with the next master of the cluster
	Stop                 // not at all
)

// Walk calls page with all keys of a type ("string", or all if it is empty) that match a pattern, some at a time. It asks for at most
// rate keys a second, 0 for no limit. A key that is written or removed meanwhile may be missed, or seen twice,
// as SCAN has it. On a cluster it goes over the masters, one after another.
func Walk(ctx context.Context, client redis.UniversalClient, match, kind string, rate int, page func(ctx context.Context, node *redis.Client, keys []string) (Next, error)) error {
	p := pacer{rate: rate, start: time.Now()}
	walk := func(ctx context.Context, node *redis.Client) (Next, error) {
		var cursor uint64
		for {
			keys, next, err := scan(ctx, node, cursor, match, kind)
			if err != nil {
				return Stop, fmt.Errorf("SCAN: %w", err)
			}
			if len(keys) > 0 {
				if next, err := page(ctx, node, keys); err != nil || next != More {
					return next, err
				}
			}
			if cursor = next; cursor == 0 {
				return More, nil
			}
			// The server looks at as many keys as were asked for, whether they match or not.
			if err := p.wait(ctx, pageSize); err != nil {
				return Stop, err
			}
		}
	}
	if cluster, ok := client.(*redis.ClusterClient); ok {
		nodes, err := masters(ctx, cluster)
		if err != nil {
			return err
		}
		for _, n := range nodes {
			if next, err := walk(ctx, n); err != nil || next == Stop {
				return err
			}
		}
		return nil
	}
	_, err := walk(ctx, client.(*redis.Client))
	return err
}

func scan(ctx context.Context, node *redis.Client, cursor uint64, match, kind string) ([]string, uint64, error) {
	if kind == "" {
		return node.Scan(ctx, cursor, match, pageSize).Result()
	}
	return node.ScanType(ctx, cursor, match, pageSize, kind).Result()
}

// masters are the nodes of a cluster that hold its keys.
func masters(ctx context.Context, cluster *redis.ClusterClient) ([]*redis.Client, error) {
	var lock sync.Mutex
	var nodes []*redis.Client
	err := cluster.ForEachMaster(ctx, func(_ context.Context, n *redis.Client) error {
		lock.Lock()
		nodes = append(nodes, n)
		lock.Unlock()
		return nil
	})
	return nodes, err
}

// pacer keeps a rate.
type pacer struct {
	rate  int
	start time.Time
	done  int
}

func (p *pacer) wait(ctx context.Context, n int) error {
	p.done += n
	if p.rate <= 0 {
		return ctx.Err()
	}
	ahead := time.Duration(float64(p.done)/float64(p.rate)*float64(time.Second)) - time.Since(p.start)
	if ahead <= 0 {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(ahead):
		return nil
	}
}

// Redact leaves the password out of a URL that is shown.
func Redact(s string) string {
	if scheme, rest, ok := strings.Cut(s, "://"); ok {
		if i := strings.LastIndex(rest, "@"); i >= 0 {
			return scheme + "://***@" + rest[i+1:]
		}
	}
	return s
}
