// Package keyspace walks the keys of a live Redis, reading only and at a bounded rate. Every
// command that looks at a server's data stands on it.
package keyspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/balekv/bale/cmd/internal/printable"
)

const (
	pageSize    = 100 // keys asked for at a time
	replyWithin = 10 * time.Second
	dialTimeout = 5 * time.Second // go-redis' own
)

// PasswordHint says where a command takes a password from.
const PasswordHint = "the environment's REDISCLI_AUTH has the password, or a file that --redis-password-file names; --user names the user; a URL has both as redis://USER:PASSWORD@HOST:PORT"

// ErrURL: the URL is not of a Redis.
var ErrURL = errors.New("no redis URL")

// ParseURL reads a URL; its error never shows a password.
func ParseURL(s string) (*redis.Options, error) {
	if _, ok := schemeOf(s); !ok {
		return nil, fmt.Errorf("%w: %q; one starts with redis://, rediss:// or unix://, for example redis://127.0.0.1:6379/0", ErrURL, mangled(s))
	}
	o, err := redis.ParseURL(s)
	if err != nil {
		return nil, unreadable(s, err)
	}
	return o, nil
}

// unreadable is the error of a URL. The client's own quotes parts of the URL, and a password with a
// / or a # in it is taken for the path.
func unreadable(at string, err error) error {
	why := whyNot(err)
	scheme, _ := schemeOf(at)
	rest := at[len(scheme):]
	if i := strings.IndexAny(rest, "/?#"); i >= 0 && strings.Contains(rest[i:], "@") {
		why = "there is an @ after a /, ? or #; in a password these are to be escaped: %2F for /, %3F for ?, %23 for #, %25 for %, %40 for @"
	}
	return fmt.Errorf("%w: %q: %s; for example redis://127.0.0.1:6379/0", ErrURL, mangled(at), why)
}

// schemeOf is what a URL begins with, :// included.
func schemeOf(s string) (scheme string, ok bool) {
	for _, scheme := range []string{"redis://", "rediss://", "unix://"} {
		if strings.HasPrefix(s, scheme) {
			return scheme, true
		}
	}
	return "", false
}

// whyNot returns the cause of an invalid URL, without any part of the URL.
func whyNot(err error) string {
	for _, c := range []struct{ said, meant string }{
		{"invalid port", "the port is no number"},
		{"invalid URL escape", "a % begins no escape; %25 is a % in a password"},
		{"invalid userinfo", "the password has a character that must be escaped, such as %23 for #"},
		{"invalid database number", "the database after the host is no number"},
		{"invalid URL path", "there is more than a database after the host"},
		{"unexpected option", "it has an option that is not known"},
		{"number:", "an option is no number"},
	} {
		if strings.Contains(err.Error(), c.said) {
			return c.meant
		}
	}
	return "it cannot be read; special characters in a password must be escaped, such as %2F for /"
}

// mangled is how a URL that cannot be read is shown: as [Redact] has it, and nothing after a colon
// that may be a password's.
func mangled(s string) string {
	s = Redact(s)
	scheme, _ := schemeOf(s)
	for i, r := range s {
		if r != ':' || i < len(scheme) || strings.HasPrefix(s[i:], "://") {
			continue
		}
		port, _, _ := strings.Cut(s[i+1:], "/")
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return s[:i] + ":***"
		}
	}
	return s
}

// Open is [Login.Open] of a URL that has all.
func Open(ctx context.Context, at string) (redis.UniversalClient, error) {
	return Login{}.Open(ctx, at)
}

// Open connects to the server at a URL, or to the whole cluster that it is a part of. The caller
// closes the client.
func (l Login) Open(ctx context.Context, at string) (redis.UniversalClient, error) {
	o, seeds, err := l.Server(ctx, at)
	if err != nil {
		return nil, err
	}
	l.prepare(o)
	o.OnConnect = func(ctx context.Context, c *redis.Conn) error { return greet(ctx, c, false, true) }
	if len(seeds) > 0 {
		return redis.NewClusterClient(clusterOf(o, seeds)), nil
	}
	client := redis.NewClient(o)
	first, cancel := context.WithTimeout(ctx, replyWithin)
	defer cancel()
	clustered, err := isCluster(first, client)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w%s", Unusable(o.Addr, err, o.Username), hint(ctx, o, err)), client.Close())
	}
	if !clustered {
		return client, nil
	}
	return redis.NewClusterClient(clusterOf(o, []string{o.Addr})), client.Close()
}

// prepare sets what all connections have in common.
func (l Login) prepare(o *redis.Options) {
	l.Guard(o)
	o.DisableIdentity = true // one round trip less for each connection
	o.ContextTimeoutEnabled = true
	o.ReadTimeout, o.WriteTimeout = replyWithin, replyWithin
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// Guard makes connections by the options end where a reply announces what no Redis sends: clients
// make room for it, or panic. The Dialer does TLS, too.
func (l Login) Guard(o *redis.Options) {
	o.DialTimeout = cmp.Or(o.DialTimeout, dialTimeout)
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) { return Dial(ctx, o, network, addr) }
	o.Dialer = guarded(dial, cmp.Or(l.LargestString, largestString))
}

func clusterOf(o *redis.Options, seeds []string) *redis.ClusterOptions {
	return &redis.ClusterOptions{
		Addrs: seeds, Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig, Dialer: o.Dialer,
		DisableIdentity: true, ContextTimeoutEnabled: true, ReadTimeout: replyWithin, WriteTimeout: replyWithin,
		MaintNotificationsConfig: o.MaintNotificationsConfig, OnConnect: o.OnConnect,
	}
}

// isCluster asks a server whether it is a part of a cluster: by INFO, or by HELLO where INFO is
// forbidden. One that tells neither is taken for a single server.
func isCluster(ctx context.Context, client *redis.Client) (bool, error) {
	info, err := client.Info(ctx, "server").Result()
	if !IsForbidden(err) {
		return strings.Contains(info, "_mode:cluster"), err // redis_mode; Valkey says server_mode
	}
	hello, err := client.Do(ctx, "HELLO").Result()
	if err != nil && !IsForbidden(err) {
		return false, err
	}
	fields := fmt.Sprint(hello) // a map, or a list of names and values where the connection speaks RESP2
	return strings.Contains(fields, "mode:cluster") || strings.Contains(fields, "mode cluster"), nil
}

// Unusable is the error of a server whose first command failed: it refused, or did not answer.
func Unusable(addr string, err error, user string) error {
	if IsReply(err) {
		return fmt.Errorf("Redis at %s refuses: %w", addr, Explain(err, user))
	}
	return fmt.Errorf("no answer from Redis at %s: %w", addr, err)
}

// hint is what may help to get an answer.
func hint(ctx context.Context, o *redis.Options, err error) string {
	switch {
	case redis.HasErrorPrefix(err, "NOAUTH"), redis.HasErrorPrefix(err, "WRONGPASS"):
		return "; " + PasswordHint
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

// EachString calls each with the rest of the name of every string whose key starts with a prefix,
// on all masters: some at a time, and each at the pace, which counts all keys. The calls come one
// after another. A key that is written or removed meanwhile may be missed, or seen twice, as SCAN
// has it.
func EachString(
	ctx context.Context, client redis.UniversalClient, prefix string, pace Pace, each func(rest string) error,
) error {
	nodes, err := nodesOf(ctx, client)
	if err != nil {
		return err
	}
	var lock sync.Mutex
	pattern := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(prefix) + "*"
	return AtOnce(ctx, pace, slices.Collect(maps.Values(nodes)), func(ctx context.Context, node *redis.Client) error {
		p, size := &Pacer{Pace: pace}, pager{firstKeys, mostKeys}
		for cursor, more := uint64(0), true; more; more = cursor != 0 {
			asked := size.count
			keys, next, err := scan(ctx, node, cursor, pattern, "string", asked)
			if err != nil {
				return fmt.Errorf("SCAN: %w", Explain(err, node.Options().Username))
			}
			cursor = next
			size.saw(len(keys), lengthOfAll(keys))
			lock.Lock()
			for _, k := range keys {
				if err = each(strings.TrimPrefix(k, prefix)); err != nil {
					break
				}
			}
			lock.Unlock()
			if err != nil {
				return err
			}
			// The server looks at as many keys as were asked for, whether they match or not.
			if err := p.Wait(ctx, node, int(asked), 0); err != nil {
				return err
			}
		}
		return nil
	})
}

func scan(ctx context.Context, node *redis.Client, cursor uint64, match, kind string, count int64) ([]string, uint64, error) {
	if kind == "" {
		return node.Scan(ctx, cursor, match, count).Result()
	}
	return node.ScanType(ctx, cursor, match, count, kind).Result()
}

// secretParameter is a password among the options of a URL. Letters of its name may be escaped.
var secretParameter = func() *regexp.Regexp {
	name := ""
	for _, c := range "password" {
		name += fmt.Sprintf("(?:%c|%%%02x|%%%02x)", c, c, unicode.ToUpper(c))
	}
	return regexp.MustCompile(`(?i)((?:[?&]|/[0-9]*;)(?:[a-z_]|%[0-9a-f]{2})*` + name + `=)[^&]*`)
}()

// Passwords are the options of a URL that have passwords, as they stand there.
func Passwords(s string) []string { return secretParameter.FindAllString(s, -1) }

// Redact leaves user and password out of a URL that is shown: all before its last @ but the scheme,
// and the options of that name.
func Redact(s string) string {
	s = secretParameter.ReplaceAllString(s, "$1***")
	if i := strings.LastIndex(s, "@"); i >= 0 {
		scheme, _ := schemeOf(s)
		return scheme + "***" + s[i:]
	}
	return s
}

// Shell is a URL as a shell takes it. In place of one with a user or a secret it is a variable.
func Shell(url, variable string) string {
	if url = Redact(url); strings.Contains(url, "***") {
		return `"$` + variable + `"`
	}
	return printable.Shell(url)
}
