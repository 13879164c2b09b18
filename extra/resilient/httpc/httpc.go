// Package httpc makes HTTP clients for calls from service to service.
//
// [New] returns a plain *http.Client, so that any SDK can use it. [JSON] makes a call with a JSON
// body and a JSON answer, from a template of the URL.
package httpc

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/extra/resilient"
)

// Options configure a client. The zero value is a good start.
type Options struct {
	// Guard has the policies for calls to each host. Default: a Timeout of 10 s, Retry with 3 tries,
	// a Breaker that opens when half of the calls fail. Name is the host, whatever is set here.
	Guard *resilient.Options

	// Concurrency is how many calls to a host you expect at once. That many idle connections stay
	// open. Default 64. With fewer than there are calls at once, as the 2 of http.DefaultTransport,
	// most calls open a connection of their own.
	Concurrency int

	// ConnectionAge is how long a connection is used at most, so that calls follow DNS and load
	// balancers. Each connection ends at a random age between 80% and 100% of it, with the call that
	// finds it too old. Those of a Tune with DialTLSContext do not age. Default 5 min; negative means
	// no limit.
	ConnectionAge time.Duration

	// MaxRequest and MaxResponse bound the bytes of a body, the response's after decompression by
	// net/http. Beyond them a call ends with a [TooLargeError]. Default 64 MiB; negative means no
	// limit.
	MaxRequest, MaxResponse int64

	// TLS is for certificates of your own.
	TLS TLS

	// DeadlineHeader is a header with the milliseconds that are left for a try, such as
	// "X-Request-Timeout-Ms". [Deadline] reads it in the service. Default none.
	DeadlineHeader string

	// Log gets a warning for each call that failed before its body, or with status 429 or 5xx: method,
	// host, route, status or error, tries, time. No query, header or body, unless errors of Wrap have
	// them. Calls that their callers cancel are left out. At most 10 a second, with the number of
	// those left out. It also gets certificates that cannot be read. Default none.
	Log *slog.Logger

	// Wrap returns a RoundTripper around the one for a try, which carries metrics, traces or
	// credentials: otelhttp.NewTransport, promhttp.InstrumentRoundTripperDuration. [Route] gives it
	// the route. The requests it sends on must not share a Header. A redirect may lead to another
	// host: give credentials only to URL.Host that you know. Default none.
	Wrap func(http.RoundTripper) http.RoundTripper

	// Tune changes the http.Transport before it is used, for what has no option here. It is called
	// again when certificates change. Default none.
	Tune func(*http.Transport)
}

const (
	defaultBody       = 64 << 20
	defaultAge        = 5 * time.Minute
	defaultConcurrent = 64
)

// New returns an http.Client with a [Transport]. It has no Timeout, because the Guard has one.
func New(o Options) (*http.Client, error) {
	t, err := NewTransport(o)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: t}, nil
}

// Transport is the http.RoundTripper of a client. It is safe for concurrent use. It has no
// goroutines but those of its connections, which CloseIdleConnections ends. Its parts are, from the
// outside in:
//
//  1. limits on the size of requests and responses, and a log of the calls that failed;
//  2. a resilient.Guard for each host: deadlines, retries within a budget, a breaker;
//  3. for each try: the header that tells the service how long you wait, and Options.Wrap for
//     traces, metrics and credentials;
//  4. an http.Transport that keeps enough connections, replaces each of them after some minutes,
//     and follows certificates that change on disk.
type Transport struct {
	o       Options
	guarded *resilient.Transport
	log     failures

	current  atomic.Pointer[http.Transport]
	before   atomic.Pointer[http.Transport] // with the certificates before, nil at first
	changing sync.Mutex                     // of certificates
	files    certificates
	checked  atomic.Int64 // when, in ns since the epoch
}

// NewTransport returns a Transport. An option out of range is a bale.ErrInvalid.
func NewTransport(o Options) (*Transport, error) {
	if o.Concurrency < 0 {
		return nil, fmt.Errorf("httpc: %w: Concurrency is %d, must not be negative", bale.ErrInvalid, o.Concurrency)
	}
	if o.DeadlineHeader != "" && !headerName(o.DeadlineHeader) {
		return nil, fmt.Errorf("httpc: %w: DeadlineHeader %q is no name of a header", bale.ErrInvalid, o.DeadlineHeader)
	}
	if o.Guard == nil {
		o.Guard = &resilient.Options{
			Timeout: 10 * time.Second, Retry: resilient.Retry{Tries: 3}, Breaker: resilient.Breaker{Failures: 0.5},
		}
	}
	o.Concurrency, o.ConnectionAge = cmp.Or(o.Concurrency, defaultConcurrent), cmp.Or(o.ConnectionAge, defaultAge)
	o.MaxRequest, o.MaxResponse = cmp.Or(o.MaxRequest, defaultBody), cmp.Or(o.MaxResponse, defaultBody)
	t := &Transport{o: o, log: failures{to: o.Log}}
	files, err := o.TLS.read()
	if err != nil {
		return nil, err
	}
	if err := t.load(files); err != nil {
		return nil, err
	}
	guard, failed := *o.Guard, o.Guard.Failed
	guard.Failed = func(err error) bool {
		return !errors.Is(err, ErrTooLarge) && (failed == nil || failed(err))
	}
	base := http.RoundTripper(roundTripper(t.send))
	if o.Wrap != nil {
		base = o.Wrap(base)
	}
	if t.guarded, err = resilient.NewTransport(roundTripper(func(req *http.Request) (*http.Response, error) {
		return t.try(base, req)
	}), guard); err != nil {
		return nil, err
	}
	return t, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// Guard returns the Guard of a host, as resilient.Transport does.
func (t *Transport) Guard(host string) *resilient.Guard { return t.guarded.Guard(host) }

// Guards yields the hosts that have a Guard, as resilient.Transport.Guards does.
func (t *Transport) Guards() iter.Seq2[string, *resilient.Guard] { return t.guarded.Guards() }

// CloseIdleConnections closes the connections that no call uses.
func (t *Transport) CloseIdleConnections() {
	t.closeBefore()
	t.current.Load().CloseIdleConnections()
}

// closeBefore closes idle connections with the certificates before.
func (t *Transport) closeBefore() {
	if before := t.before.Load(); before != nil {
		before.CloseIdleConnections()
	}
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	began := time.Now()
	sent, err := limitRequest(req, t.o.MaxRequest)
	if err != nil {
		return nil, err
	}
	var c *call
	if t.o.Log != nil {
		c = &call{}
		sent = sent.WithContext(context.WithValue(sent.Context(), callKey{}, c))
	}
	resp, err := t.guarded.RoundTrip(sent)
	if err == nil {
		err = limitResponse(req, resp, t.o.MaxResponse)
	}
	if c != nil {
		t.log.add(req, resp, err, c.tries.Load(), time.Since(began))
	}
	if err != nil {
		return nil, err
	}
	resp.Request = req
	return resp, nil
}

// call is a call with all its tries.
type call struct{ tries atomic.Int32 }

type callKey struct{}

// try makes one try. The request belongs to it: resilient.Transport made it.
func (t *Transport) try(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	if c, ok := req.Context().Value(callKey{}).(*call); ok {
		c.tries.Add(1)
	}
	if t.o.DeadlineHeader != "" {
		setDeadline(req, t.o.DeadlineHeader)
	}
	return next.RoundTrip(req)
}

// send sends a request by the http.Transport of the moment.
func (t *Transport) send(req *http.Request) (*http.Response, error) {
	t.reload()
	if t.o.ConnectionAge > 0 {
		req = retiring(req)
	}
	resp, err := t.current.Load().RoundTrip(req)
	if _, mapped := err.(tls.RecordHeaderError); err != nil && !mapped { // http.Client looks for that one
		err = failure{err}
	}
	return resp, err
}

// load replaces the http.Transport by one with these certificates.
func (t *Transport) load(files certificates) error {
	config, err := files.config(t.o.TLS.Config)
	if err != nil {
		return err
	}
	n := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    5 * time.Second,
		MaxIdleConnsPerHost:    t.o.Concurrency,
		MaxIdleConns:           10 * t.o.Concurrency,
		IdleConnTimeout:        90 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 1 << 20,
		ForceAttemptHTTP2:      true,
		// A connection of HTTP/2 whose other end is gone is found out, not used until the kernel
		// gives up.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second},
	}
	if t.o.Tune != nil {
		t.o.Tune(n)
	}
	if t.o.ConnectionAge > 0 && n.DialContext != nil {
		n.DialContext = aging(n.DialContext, t.o.ConnectionAge)
	}
	t.files = files
	t.checked.Store(time.Now().UnixNano())
	t.before.Store(t.current.Swap(n))
	t.closeBefore()
	return nil
}
