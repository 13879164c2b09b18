package keyspace

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrLogin: the files of a [Login] are no certificates, or the URL takes none.
var ErrLogin = errors.New("no TLS to log in with")

// Login is how a command reaches a Redis, beside its URL. A URL's own user and password come first.
type Login struct {
	User, Password string

	// PEM files for rediss://: the CA that signed the server's certificate, default those of the
	// system, and the client's own certificate and key.
	CA, Certificate, Key string

	SentinelPassword string // of Sentinels whose URL has none

	// LargestString is how many bytes a string in a reply may have. Default 512 MiB, as in Redis. One
	// that is announced takes its memory at once.
	LargestString int64
}

// Check is an error if there are files for TLS, and none of the URLs that a command was given uses
// it.
func (l Login) Check(urls ...string) error {
	urls = slices.DeleteFunc(slices.Clone(urls), func(at string) bool { return at == "" })
	if l.CA+l.Certificate+l.Key == "" || len(urls) == 0 || slices.ContainsFunc(urls, func(at string) bool { return strings.HasPrefix(strings.ToLower(at), "rediss://") }) {
		return nil
	}
	return fmt.Errorf("%w: --tls-ca, --tls-cert and --tls-key are for URLs of rediss://, and none is one", ErrLogin)
}

// errAt: messages name servers and options, and before an @ there may be a password. No address and
// no name of a master has one.
var errAt = errors.New("an option has an @")

// taken are the options of URLs of several nodes or Sentinels that commands take. All others would
// be lost.
var taken = []string{"addr", "master_name", "username", "password", "db", "skip_verify"}

// Server reads a URL, and asks the Sentinels for the master where it names one. Seeds are the
// addresses of a URL of several nodes of a cluster. Errors never show a password.
func (l Login) Server(ctx context.Context, at string) (o *redis.Options, seeds []string, err error) {
	u, err := url.Parse(at)
	if err != nil || !u.Query().Has("master_name") && !u.Query().Has("addr") {
		if o, err = ParseURL(at); err != nil {
			return nil, nil, err
		}
		o.TLSConfig, err = l.tls(o.TLSConfig)
		l.fill(o)
		return o, nil, err
	}
	for name, values := range u.Query() {
		if name != "username" && name != "password" && strings.Contains(name+strings.Join(values, ""), "@") {
			return nil, nil, unreadable(strings.ReplaceAll(at, "%40", "@"), errAt)
		}
		if !slices.Contains(taken, name) {
			return nil, nil, fmt.Errorf("%w: %s: commands do not take the option %q of a URL with addr or master_name", ErrURL, Redact(at), name)
		}
	}
	if !u.Query().Has("master_name") {
		c, err := redis.ParseClusterURL(at)
		if err != nil {
			return nil, nil, unreadable(at, err)
		}
		o = &redis.Options{Addr: c.Addrs[0], Username: c.Username, Password: c.Password}
		o.TLSConfig, err = l.tls(c.TLSConfig)
		l.fill(o)
		return o, c.Addrs, err
	}
	f, err := redis.ParseFailoverURL(at)
	if err != nil {
		return nil, nil, unreadable(at, err)
	}
	if f.TLSConfig, err = l.tls(f.TLSConfig); err != nil {
		return nil, nil, err
	}
	f.SentinelPassword = cmp.Or(f.SentinelPassword, l.SentinelPassword)
	o = &redis.Options{Username: f.Username, Password: f.Password, DB: f.DB, TLSConfig: f.TLSConfig}
	l.fill(o)
	if o.Addr, err = l.master(ctx, f); err == nil && o.TLSConfig != nil {
		o.TLSConfig = o.TLSConfig.Clone()
		o.TLSConfig.ServerName, _, _ = net.SplitHostPort(o.Addr)
	}
	return o, nil, err
}

// fill sets what the URL leaves open.
func (l Login) fill(o *redis.Options) {
	o.Username, o.Password = cmp.Or(o.Username, l.User), cmp.Or(o.Password, l.Password)
}

// master asks the Sentinels one after another.
func (l Login) master(ctx context.Context, f *redis.FailoverOptions) (addr string, err error) {
	for _, sentinel := range f.SentinelAddrs {
		o := &redis.Options{Addr: sentinel, Username: f.SentinelUsername, Password: f.SentinelPassword, TLSConfig: f.TLSConfig, MaxRetries: -1}
		l.prepare(o)
		c := redis.NewSentinelClient(o)
		asking, cancel := context.WithTimeout(ctx, replyWithin)
		found, failed := c.GetMasterAddrByName(asking, f.MasterName).Result()
		cancel()
		c.Close()
		if failed == nil && len(found) == 2 {
			return net.JoinHostPort(found[0], found[1]), nil
		}
		if errors.Is(failed, redis.Nil) {
			failed = fmt.Errorf("it knows no master %q", f.MasterName)
		}
		err = errors.Join(err, fmt.Errorf("Sentinel %s: %w", sentinel, failed))
		if ctx.Err() != nil {
			break
		}
	}
	return "", err
}

// Dial connects to an address by the options of a server, with TLS if they have it. The address may
// be that of another node of a cluster.
func Dial(ctx context.Context, o *redis.Options, network, addr string) (net.Conn, error) {
	d := &net.Dialer{Timeout: cmp.Or(o.DialTimeout, dialTimeout)}
	if o.TLSConfig == nil {
		return d.DialContext(ctx, network, addr)
	}
	return (&tls.Dialer{NetDialer: d, Config: either(o.TLSConfig, addr)}).DialContext(ctx, network, addr)
}

// either accepts a certificate for the host of an address, beside one for the name in a URL. Some
// clusters have a certificate for each node, and some have one for all.
func either(c *tls.Config, addr string) *tls.Config {
	host, _, _ := net.SplitHostPort(addr)
	if host == "" || c.ServerName == "" || host == c.ServerName || c.InsecureSkipVerify {
		return c // in which TLS itself verifies the only name
	}
	both := c.Clone()
	both.InsecureSkipVerify = true // VerifyConnection does it
	both.VerifyConnection = func(s tls.ConnectionState) error {
		o := x509.VerifyOptions{Roots: c.RootCAs, Intermediates: x509.NewCertPool(), DNSName: c.ServerName}
		for _, one := range s.PeerCertificates[1:] {
			o.Intermediates.AddCert(one)
		}
		if _, err := s.PeerCertificates[0].Verify(o); err == nil {
			return nil
		}
		o.DNSName = host
		_, err := s.PeerCertificates[0].Verify(o)
		return err
	}
	return both
}

// tls adds the CA and the client's certificate to the configuration of a URL, which is nil for one
// without TLS.
func (l Login) tls(c *tls.Config) (*tls.Config, error) {
	switch {
	case l.CA == "" && l.Certificate == "" && l.Key == "", c == nil:
		return c, nil
	case (l.Certificate == "") != (l.Key == ""):
		return nil, fmt.Errorf("%w: --tls-cert and --tls-key go together", ErrLogin)
	}
	if l.CA != "" {
		pem, err := os.ReadFile(l.CA)
		if err != nil {
			return nil, fmt.Errorf("%w: --tls-ca: %w", ErrLogin, err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: --tls-ca %s has no certificate in PEM", ErrLogin, l.CA)
		}
	}
	if l.Certificate != "" {
		own, err := tls.LoadX509KeyPair(l.Certificate, l.Key)
		if err != nil {
			return nil, fmt.Errorf("%w: --tls-cert and --tls-key: %w", ErrLogin, err)
		}
		c.Certificates = []tls.Certificate{own}
	}
	return c, nil
}
