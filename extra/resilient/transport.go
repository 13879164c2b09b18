package resilient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Transport is an http.RoundTripper behind Guards, one for each host. Make it with [NewTransport].
// It is safe for concurrent use.
//
// GET, HEAD, OPTIONS and TRACE are of kind [Read]; PUT, DELETE and requests with the header
// Idempotency-Key are [Idempotent], all others [Once]. A request with a body is Once unless it has
// GetBody, as http.NewRequest gives it for bytes and strings.
//
// The responses 429, 502, 503 and 504 are failures, and tried again after the time in Retry-After.
// 500 is a failure, too. It is not tried again, because the same request may cause it again. The
// response of the last try is returned, whatever its status. For the Guard a call ends with the
// response's header. Options.Timeout bounds the body, too, which has all the time that is left, not
// just its try's part.
type Transport struct {
	base    http.RoundTripper
	options Options

	mu     sync.Mutex
	guards map[string]*Guard
	order  []*Guard // of the hosts' first requests
}

// maxHosts bounds the Guards of a Transport, and maxHost the name of a host with its port: a name
// in DNS has 253 bytes at most. A redirect may name anything. Each request to a host beyond these
// has a Guard of its own, whose Breaker no other host can open.
const (
	maxHosts = 1000
	maxHost  = 300
)

// NewTransport returns a Transport. Each host has a Guard with these options, whose Name is the
// host, and whose Failed is asked about errors that are not a response. A nil base is
// http.DefaultTransport.
func NewTransport(base http.RoundTripper, o Options) (*Transport, error) {
	if base == nil {
		base = http.DefaultTransport
	}
	failed := o.Failed
	o.Failed = func(err error) bool {
		if _, ok := errors.AsType[*responseError](err); ok {
			return true
		}
		return failed == nil || failed(err)
	}
	if _, err := New(o); err != nil {
		return nil, err
	}
	return &Transport{base: base, options: o, guards: map[string]*Guard{}}, nil
}

// Guard returns the Guard of a host ("name:port", as in URL.Host). A Transport keeps the Guards of
// its first 1,000 hosts. For another one it returns a new one each time, as each request to that
// host has.
func (t *Transport) Guard(host string) *Guard {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.guards[host]
	if g == nil {
		o := t.options
		o.Name = host
		g, _ = New(o) // they are valid
		if len(t.guards) < maxHosts && len(host) <= maxHost {
			t.guards[host] = g
			t.order = append(t.order, g)
		}
	}
	return g
}

// Guards yields the hosts that have a Guard, in the order of their first requests. Hosts beyond the
// first 1,000 have none that lasts.
func (t *Transport) Guards() iter.Seq2[string, *Guard] {
	return func(yield func(string, *Guard) bool) {
		t.mu.Lock()
		all := t.order
		t.mu.Unlock()
		for _, g := range all {
			if !yield(g.o.Name, g) {
				return
			}
		}
	}
}

// CloseIdleConnections closes those of the base, for http.Client.CloseIdleConnections.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	e := &exchange{base: t.base, req: req}
	if t.options.Timeout > 0 {
		e.end = time.Now().Add(t.options.Timeout)
	}
	resp, err := do[*http.Response](req.Context(), t.Guard(req.URL.Host), kindOf(req), e)
	if r, ok := errors.AsType[*responseError](err); ok {
		resp, err = r.resp, nil
	}
	e.finish(resp)
	return resp, err
}

func kindOf(req *http.Request) Kind {
	if req.Body != nil && req.Body != http.NoBody && req.GetBody == nil {
		return Once
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return Read
	case http.MethodPut, http.MethodDelete:
		return Idempotent
	}
	if req.Header.Get("Idempotency-Key") != "" {
		return Idempotent
	}
	return Once
}

// responseError is a response that is a failure.
type responseError struct {
	resp  *http.Response
	again bool // it may be another one next time
	after time.Duration
}

func (r *responseError) Error() string             { return r.resp.Status }
func (r *responseError) RetryAfter() time.Duration { return r.after }
func (r *responseError) final() bool               { return !r.again }

// exchange is a request with all its tries.
type exchange struct {
	base http.RoundTripper
	req  *http.Request
	end  time.Time // of the call with its body, if there is a Timeout

	mu    sync.Mutex
	tried bool
	over  bool
	open  []*http.Response // of tries that failed
}

// request returns the request for a try. The first one has the caller's body.
func (e *exchange) request(ctx context.Context) (*http.Request, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over { // the request is the caller's again
		return nil, context.Canceled
	}
	again := e.tried
	e.tried = true
	req := e.req.Clone(ctx) // a hedge may go on when the caller has changed its request
	if again && req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, fmt.Errorf("the body of a retry: %w", err)
		}
		req.Body = body
	}
	if req.GetBody == nil { // sent once; the caller fills in the trailer while the body is read
		req.Trailer = e.req.Trailer
	}
	return req, nil
}

// finish closes what was not returned.
func (e *exchange) finish(returned *http.Response) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	for _, resp := range e.open {
		if resp != returned {
			resp.Body.Close()
		}
	}
	if !e.tried && e.req.Body != nil {
		e.req.Body.Close() // as a RoundTripper must, though nothing was sent
	}
}

func (e *exchange) discard(resp *http.Response) { resp.Body.Close() }

// peeked is how much of the body of a failure is read at once, so that its connection is free.
const peeked = 4 << 10

func (e *exchange) make(ctx context.Context) (*http.Response, error) {
	// The body of the response is read after the try, whose context holds for the header only.
	var within context.Context
	var cancel context.CancelFunc
	if e.end.IsZero() {
		within, cancel = context.WithCancel(e.req.Context())
	} else {
		within, cancel = context.WithDeadline(e.req.Context(), e.end)
	}
	tried := within
	if at, limited := ctx.Deadline(); limited {
		tried = try{within, at}
	}
	req, err := e.request(tried)
	if err != nil {
		cancel()
		return nil, err
	}
	stop := context.AfterFunc(ctx, cancel)
	resp, err := e.base.RoundTrip(req)
	if err != nil {
		stop()
		cancel()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	failed := &responseError{resp: resp}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		failed.again, failed.after = true, retryAfterOf(resp)
	case http.StatusInternalServerError:
	default:
		failed = nil
	}
	if resp.Body == nil { // a test's RoundTripper; http.Client allows it
		resp.Body = http.NoBody
	}
	plain := &body{resp.Body, resp.Body, cancel}
	if w, ok := resp.Body.(io.Writer); ok { // a connection, after 101
		resp.Body = struct {
			*body
			io.Writer
		}{plain, w}
	} else {
		resp.Body = plain
	}
	if failed != nil && failed.again {
		start, err := io.ReadAll(io.LimitReader(resp.Body, peeked))
		rest := io.Reader(resp.Body)
		if err != nil {
			rest = failing{err}
		}
		resp.Body = &body{io.MultiReader(bytes.NewReader(start), rest), resp.Body, cancel}
	}
	if !stop() {
		resp.Body.Close()
		return nil, ctx.Err()
	}
	if failed == nil {
		return resp, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		resp.Body.Close()
	}
	e.open = append(e.open, resp)
	return nil, failed
}

// try is the context of a try's request: its deadline is for the header, its end is after the body.
type try struct {
	context.Context
	at time.Time
}

func (t try) Deadline() (time.Time, bool) { return t.at, true }

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// retryAfterOf is the header Retry-After, in seconds or as a date (RFC 9110, section 10.2.3).
func retryAfterOf(resp *http.Response) time.Duration {
	h := resp.Header.Get("Retry-After")
	if n, err := strconv.ParseUint(h, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(h); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// body ends its request's context when it is read or closed.
type body struct {
	io.Reader
	io.Closer
	cancel context.CancelFunc
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil {
		b.cancel()
	}
	return n, err
}

func (b *body) Close() error {
	err := b.Closer.Close()
	b.cancel()
	return err
}
