package httplab

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/balekv/bale/cmd/internal/origin"
	"github.com/balekv/bale/extra/resilient"
	"github.com/balekv/bale/extra/resilient/httpc"
)

// ClientSetting is a client with its policy and server, written NAME[:POLICY][@SERVER].
type ClientSetting struct {
	Name   string
	Policy string // of Policies; empty for all of them, where the client has policies
	Server string // a library of package origin
}

// ClientSyntax lists the clients for a help text.
var ClientSyntax = strings.Join(names(), ", ") + "; :POLICY for one policy of resilient and httpc (" + strings.Join(Policies, ", ") + "), @fasthttp for fasthttp's server"

// Policies are those that a client can have one of.
var Policies = []string{"timeout", "retry", "breaker", "limit", "hedge"}

// Defaults are the clients of a run that names none.
var Defaults = "default,tuned,http2,fasthttp,fasthttp@fasthttp," +
	"resilient:timeout,resilient:retry,resilient:breaker,resilient:limit,resilient:hedge,resilient," +
	"httpc:timeout,httpc:retry,httpc:breaker,httpc:limit,httpc:hedge,httpc"

// String is how it is written.
func (c ClientSetting) String() string {
	s := c.Name
	if c.Policy != "" {
		s += ":" + c.Policy
	}
	if c.Server != origin.Net {
		s += "@" + c.Server
	}
	return s
}

// UnmarshalText reads a setting.
func (c *ClientSetting) UnmarshalText(text []byte) error {
	before, server, hasServer := strings.Cut(string(text), "@")
	name, policy, hasPolicy := strings.Cut(before, ":")
	i := slices.IndexFunc(rows, func(r row) bool { return r.name == name })
	switch {
	case i < 0:
		return fmt.Errorf("client %q; there are %s", name, strings.Join(names(), ", "))
	case hasPolicy && !rows[i].policies:
		return fmt.Errorf("client %q: %s has no policies", text, name)
	case hasPolicy && !slices.Contains(Policies, policy):
		return fmt.Errorf("client %q: no policy %q; there are %s", text, policy, strings.Join(Policies, ", "))
	case hasServer && !slices.Contains(origin.Libraries, server):
		return fmt.Errorf("client %q: no server %q; there are %s", text, server, strings.Join(origin.Libraries, ", "))
	case server == origin.FastHTTP && name == "http2":
		return fmt.Errorf("client %q: fasthttp's server has no HTTP/2", text)
	}
	if !hasServer {
		server = origin.Net
	}
	*c = ClientSetting{name, policy, server}
	return nil
}

// client makes requests. Its methods but close are for many goroutines at once.
type client interface {
	// get appends the body of the response to dst.
	get(ctx context.Context, path string, dst []byte) (status int, body []byte, err error)
	close()
}

// need is the load that a client is opened for.
type need struct {
	addr    string
	policy  string
	callers int           // at a time, at most
	reuse   bool          // of connections
	delay   time.Duration // of the server
}

// row is a client.
type row struct {
	name     string
	about    string
	module   string // empty for the standard library
	policies bool
	open     func(need) (client, error)
}

const fastModule = "github.com/valyala/fasthttp"

var rows = []row{
	{name: "default", about: "net/http as it comes: 2 idle connections a host", open: func(n need) (client, error) {
		return overHTTP(n, standard(n), nil)
	}},
	{name: "tuned", about: "net/http with as many idle connections as callers", open: func(n need) (client, error) {
		return overHTTP(n, tuned(n), nil)
	}},
	{name: "resilient", about: "tuned, behind resilient.NewTransport with all policies or the one named", module: "github.com/balekv/bale/extra/resilient", policies: true, open: func(n need) (client, error) {
		base := tuned(n)
		t, err := resilient.NewTransport(base, guarded(n))
		return overHTTP(n, t, err)
	}},
	{name: "httpc", about: "this project's client as it comes (time-out, retry, breaker), or with the policy named alone", module: "github.com/balekv/bale/extra/resilient", policies: true, open: func(n need) (client, error) {
		o := httpc.Options{Concurrency: n.callers, Tune: func(t *http.Transport) { t.DisableKeepAlives = !n.reuse }}
		if n.policy != "" {
			policies := guarded(n)
			o.Guard = &policies
		}
		t, err := httpc.NewTransport(o)
		return overHTTP(n, t, err)
	}},
	{name: "http2", about: "net/http over HTTP/2 without TLS", open: func(n need) (client, error) {
		t := tuned(n)
		t.Protocols = new(http.Protocols)
		t.Protocols.SetUnencryptedHTTP2(true)
		return overHTTP(n, t, nil)
	}},
	{name: "fasthttp", about: "fasthttp.HostClient with as many connections as callers", module: fastModule, open: func(n need) (client, error) {
		return &fast{fasthttp.HostClient{Addr: n.addr, MaxConns: n.callers, MaxConnWaitTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, MaxResponseBodySize: origin.MaxSize}, n.reuse}, nil
	}},
}

// patience is how long a client without contexts waits.
const patience = 10 * time.Second

func names() (all []string) {
	for _, r := range rows {
		all = append(all, r.name)
	}
	return all
}

// row is that of a setting, which was checked.
func (c ClientSetting) row() row {
	return rows[slices.IndexFunc(rows, func(r row) bool { return r.name == c.Name })]
}

// standard is a transport with the settings of http.DefaultTransport.
func standard(n need) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil // loopback has none
	t.DisableKeepAlives = !n.reuse
	return t
}

func tuned(n need) *http.Transport {
	t := standard(n)
	t.MaxIdleConns, t.MaxIdleConnsPerHost = n.callers, n.callers
	return t
}

// guarded are the policies of a client. Those that follow a latency get the server's.
func guarded(n need) (o resilient.Options) {
	is := func(policy string) bool { return n.policy == "" || n.policy == policy }
	if is("timeout") {
		o.Timeout = patience
	}
	if is("retry") {
		o.Retry = resilient.Retry{Tries: 3}
	}
	if is("breaker") {
		o.Breaker = resilient.Breaker{Failures: 0.5}
	}
	if is("limit") {
		o.Limit = resilient.Limit{Healthy: max(n.delay, time.Millisecond)}
	}
	if is("hedge") {
		o.Hedge = resilient.Hedge{Quantile: 0.95}
	}
	return o
}

// plain is an *http.Client.
type plain struct {
	http.Client
	host string
}

// overHTTP is a client of a transport, if there is one.
func overHTTP(n need, t http.RoundTripper, err error) (client, error) {
	if err != nil {
		return nil, err
	}
	return &plain{http.Client{Transport: t}, "http://" + n.addr}, nil
}

func (p *plain) get(ctx context.Context, path string, dst []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.host+path, nil)
	if err != nil {
		return 0, dst, err
	}
	resp, err := p.Do(req)
	if err != nil {
		return 0, dst, err
	}
	defer resp.Body.Close()
	for {
		if len(dst) > origin.MaxSize { // another process has the server's port
			return 0, dst, origin.ErrMismatch
		}
		if len(dst) == cap(dst) {
			dst = append(dst, 0)[:len(dst)]
		}
		n, err := resp.Body.Read(dst[len(dst):cap(dst)])
		if dst = dst[:len(dst)+n]; err == io.EOF {
			return resp.StatusCode, dst, nil
		}
		if err != nil {
			return 0, dst, err
		}
	}
}

func (p *plain) close() { p.CloseIdleConnections() }

// fast is fasthttp's client.
type fast struct {
	fasthttp.HostClient
	reuse bool
}

func (f *fast) get(_ context.Context, path string, dst []byte) (int, []byte, error) {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI(path)
	req.Header.SetHost(f.Addr)
	if !f.reuse {
		req.SetConnectionClose()
	}
	if err := f.Do(req, resp); err != nil {
		return 0, dst, err
	}
	return resp.StatusCode(), append(dst, resp.Body()...), nil
}

func (f *fast) close() { f.CloseIdleConnections() }
