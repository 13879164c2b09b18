package resilient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// service answers one status after another, and then 200, and keeps what it was sent.
type service struct {
	*httptest.Server
	mu       sync.Mutex
	statuses []int
	header   http.Header
	bodies   []string
}

func newService(t *testing.T, statuses ...int) *service {
	s := &service{statuses: statuses, header: http.Header{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.bodies = append(s.bodies, string(b))
		status := http.StatusOK
		if len(s.statuses) > 0 {
			status, s.statuses = s.statuses[0], s.statuses[1:]
			for k, v := range s.header {
				w.Header()[k] = v
			}
		}
		w.WriteHeader(status)
		fmt.Fprintf(w, "%d for %s", status, b)
	}))
	t.Cleanup(s.Close)
	return s
}

func client(t *testing.T, o Options) *http.Client {
	t.Helper()
	base := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(base.CloseIdleConnections)
	transport, err := NewTransport(base, o)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: transport}
}

// once hides that a body can be had again.
type once struct{ io.Reader }

func TestTransport(t *testing.T) {
	retries := Options{Timeout: time.Minute, Retry: Retry{Tries: 3, Delay: time.Millisecond}}
	for name, test := range map[string]struct {
		method   string
		body     io.Reader
		header   string
		statuses []int
		want     int // the status
		tries    int
	}{
		"well":                     {method: "GET", want: 200, tries: 1},
		"unavailable":              {method: "GET", statuses: []int{503, 502}, want: 200, tries: 3},
		"for good":                 {method: "GET", statuses: []int{503, 504, 429, 500}, want: 429, tries: 3},
		"an error of its own":      {method: "GET", statuses: []int{500}, want: 500, tries: 1},
		"not found":                {method: "GET", statuses: []int{404}, want: 404, tries: 1},
		"POST":                     {method: "POST", body: strings.NewReader("x"), statuses: []int{503}, want: 503, tries: 1},
		"POST with a key":          {method: "POST", body: strings.NewReader("x"), header: "Idempotency-Key", statuses: []int{503}, want: 200, tries: 2},
		"PUT":                      {method: "PUT", body: bytes.NewReader([]byte("body")), statuses: []int{503, 503}, want: 200, tries: 3},
		"a body that is read once": {method: "PUT", body: once{strings.NewReader("body")}, statuses: []int{503}, want: 503, tries: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, test.statuses...)
			sent := ""
			if test.body != nil {
				sent = "x"
				if test.method == "PUT" {
					sent = "body"
				}
			}
			req, err := http.NewRequest(test.method, s.URL, test.body)
			if err != nil {
				t.Fatal(err)
			}
			if test.header != "" {
				req.Header.Set(test.header, "k")
			}
			resp, err := client(t, retries).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != test.want || err != nil || string(b) != fmt.Sprintf("%d for %s", test.want, sent) {
				t.Errorf("%d, %q, %v", resp.StatusCode, b, err)
			}
			if !slices.Equal(s.bodies, slices.Repeat([]string{sent}, test.tries)) {
				t.Errorf("%q", s.bodies)
			}
		})
	}
}

// TestTransportConnections: what is not returned holds no connection.
func TestTransportConnections(t *testing.T) {
	s := newService(t, slices.Repeat([]int{503}, 20)...)
	var opened atomic.Int32
	c := client(t, Options{Retry: Retry{Tries: 21, Delay: 1, Burst: 30}})
	base := c.Transport.(*Transport).base.(*http.Transport)
	dial := base.DialContext
	base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		opened.Add(1)
		return dial(ctx, network, addr)
	}
	resp, err := c.Get(s.URL)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	resp.Body.Close()
	if n := opened.Load(); n != 1 {
		t.Errorf("%d connections for 21 tries", n)
	}
}

// TestTransportBodies: a body can be read after the call, until the deadline, and larger ones of
// failures too.
func TestTransportBodies(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	status := http.StatusOK
	hang := make(chan struct{})
	defer close(hang)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, large)
		if r.URL.Path == "/hangs" {
			w.(http.Flusher).Flush()
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		}
	}))
	t.Cleanup(s.Close)
	c := client(t, Options{Timeout: time.Minute, Retry: Retry{Tries: 2, Delay: 1}, Hedge: Hedge{Quantile: 0.5}})
	for _, status = range []int{200, 503} {
		resp, err := c.Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(resp.Body); string(b) != large || err != nil || resp.StatusCode != status {
			t.Errorf("%d: %d bytes, %v", resp.StatusCode, len(b), err)
		}
		resp.Body.Close()
	}
	status = 200
	c = client(t, Options{Timeout: 500 * time.Millisecond})
	resp, err := c.Get(s.URL + "/hangs")
	if errors.Is(err, context.DeadlineExceeded) { // a busy machine
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(resp.Body); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	resp.Body.Close()
}

// TestTransportOverload: a service that fails is left alone, and asked again later. Another host
// has a Guard of its own.
func TestTransportOverload(t *testing.T) {
	down, well := newService(t, slices.Repeat([]int{500}, 10)...), newService(t)
	c := client(t, Options{Breaker: Breaker{Failures: 0.5, Calls: 10, Open: 50 * time.Millisecond, Probes: 1}})
	get := func(s *service) (int, error) {
		resp, err := c.Get(s.URL)
		if err != nil {
			return 0, err
		}
		resp.Body.Close()
		return resp.StatusCode, nil
	}
	for range 10 {
		if status, err := get(down); status != 500 || err != nil {
			t.Error(status, err)
		}
	}
	var rejected *RejectedError
	if _, err := get(down); !errors.As(err, &rejected) || rejected.Reason != Open || rejected.Endpoint != strings.TrimPrefix(down.URL, "http://") {
		t.Error(err)
	}
	if status, err := get(well); status != 200 || err != nil {
		t.Error(status, err)
	}
	for {
		if status, err := get(down); err == nil && status == 200 {
			break
		} else if !errors.Is(err, ErrRejected) {
			t.Fatal(status, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if n := len(down.bodies); n != 11 {
		t.Errorf("%d requests", n)
	}
}

// TestTransportHosts: a program that asks ever more hosts, or is redirected to them, has a bounded
// number of Guards. Hosts that fail do not keep it from others.
func TestTransportHosts(t *testing.T) {
	bad, refused := true, errors.New("refused")
	transport, err := NewTransport(tripper(func(*http.Request) (*http.Response, error) {
		if bad {
			return nil, refused
		}
		return &http.Response{StatusCode: 200}, nil
	}), Options{Breaker: Breaker{Failures: 0.5, Calls: 2}})
	if err != nil {
		t.Fatal(err)
	}
	get := func(host string) error {
		_, err := transport.RoundTrip(&http.Request{URL: &url.URL{Scheme: "http", Host: host}})
		return err
	}
	for i := range 2 * maxHosts {
		if err := get(fmt.Sprint(i, strings.Repeat("a", i))); !errors.Is(err, refused) {
			t.Fatal(i, err)
		}
	}
	if err := errors.Join(get("0"), get("0")); !errors.Is(err, refused) || !errors.Is(get("0"), ErrRejected) {
		t.Error(err)
	}
	if bad = false; get("well") != nil {
		t.Error("other hosts have opened its Breaker")
	}
	names := 0
	for name := range transport.guards {
		names = max(names, len(name))
	}
	if len(transport.guards) > maxHosts || names > maxHost {
		t.Errorf("%d Guards, with names of up to %d bytes", len(transport.guards), names)
	}
	n := 0
	for host, g := range transport.Guards() {
		if g != transport.guards[host] || host != fmt.Sprint(n, strings.Repeat("a", n)) {
			t.Fatalf("%q is number %d", host, n)
		}
		if n++; n == 3 {
			break
		}
	}
}

// TestRetryAfterHeader: seconds, a date, and neither.
func TestRetryAfterHeader(t *testing.T) {
	for h, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-7": 0, "soon": 0, "99999999999999999999": 0,
		time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat): 0, time.Now().Add(time.Hour).UTC().Format(http.TimeFormat): time.Hour,
	} {
		got := retryAfterOf(&http.Response{Header: http.Header{"Retry-After": {h}}})
		if got > want || got < want-time.Minute {
			t.Errorf("%q: %v", h, got)
		}
	}
}

// tripper is an http.RoundTripper.
type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// until is a body that ends with its request's context.
type until struct{ context.Context }

func (u until) Read([]byte) (int, error) { <-u.Done(); return 0, u.Err() }
func (u until) Close() error             { return nil }

// TestTransportBodyTime: a try has its part of the time for the header; the body has all the rest.
func TestTransportBodyTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries, start := 0, time.Now()
		transport, err := NewTransport(tripper(func(req *http.Request) (*http.Response, error) {
			if tries++; tries == 1 {
				<-req.Context().Done()
				return nil, req.Context().Err()
			}
			return &http.Response{StatusCode: 200, Body: until{req.Context()}}, nil
		}), Options{Timeout: 3 * time.Second, Retry: Retry{Tries: 3, Delay: 1}, Failed: func(err error) bool { return !errors.Is(err, context.Canceled) }})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(httptest.NewRequest("GET", "/", nil))
		if err != nil || tries != 2 || time.Since(start).Round(time.Millisecond) != time.Second {
			t.Fatalf("%v, %d tries, %v", err, tries, time.Since(start))
		}
		if _, err := resp.Body.Read(nil); err != context.DeadlineExceeded || time.Since(start).Round(time.Millisecond) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// TestTransportUpgrade: the body of a response 101 can be written to.
func TestTransportUpgrade(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := rw.ReadString('\n')
		io.WriteString(conn, line)
	}))
	defer s.Close()
	req, err := http.NewRequest("GET", s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}}
	resp, err := client(t, Options{Timeout: time.Minute, Retry: Retry{Tries: 2}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	w, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		t.Fatalf("%T", resp.Body)
	}
	io.WriteString(w, "hello\n")
	if b, err := io.ReadAll(w); string(b) != "hello\n" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
}

// TestTransportHeader: what runs on after the call does not see the caller's changes to the
// request.
func TestTransportHeader(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	release, seen := make(chan struct{}), make(chan string, 1)
	transport, err := NewTransport(tripper(func(req *http.Request) (*http.Response, error) {
		cancel()
		<-release
		seen <- req.Header.Get("K") + req.URL.Path
		return nil, errSick
	}), Options{Hedge: Hedge{Quantile: 0.5}})
	if err != nil {
		t.Fatal(err)
	}
	transport.Guard("host").slow.saw, transport.Guard("host").slow.is = learning, 1e12
	req, err := http.NewRequestWithContext(ctx, "GET", "http://host/a", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("K", "a")
	if _, err := transport.RoundTrip(req); err != context.Canceled {
		t.Error(err)
	}
	req.Header.Set("K", "b")
	req.URL.Path = "/b"
	close(release)
	if got := <-seen; got != "a/a" {
		t.Error(got)
	}
}

// TestTransportBases: a base may leave out a body, as http.Client allows, and closes its idle
// connections if the client is to.
func TestTransportBases(t *testing.T) {
	transport, err := NewTransport(tripper(func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: 200}, nil }), Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: transport}
	c.CloseIdleConnections() // none
	resp, err := c.Get("http://host")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	base := &idle{}
	if c.Transport, err = NewTransport(base, Options{}); err != nil {
		t.Fatal(err)
	}
	c.CloseIdleConnections()
	if base.closed != 1 {
		t.Error(base.closed)
	}
}

type idle struct {
	http.RoundTripper
	closed int
}

func (i *idle) CloseIdleConnections() { i.closed++ }

// TestTransportStream: a response that is not tried again comes with its header.
func TestTransportStream(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client(t, Options{}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

// TestTransportTrailers: a caller fills in the trailer of its request when the body ends.
func TestTransportTrailers(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Sum")
		io.Copy(w, r.Body)
		w.Header().Set("Sum", r.Trailer.Get("Sum"))
	}))
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	transport, err := NewTransport(nil, Options{Timeout: time.Minute, Retry: Retry{Tries: 3}})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), "PUT", s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Trailer, req.ContentLength = http.Header{"Sum": nil}, -1
	req.Body = io.NopCloser(io.MultiReader(strings.NewReader("a"), atEnd(func() { req.Trailer.Set("Sum", "1") })))
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if string(got) != "a" || resp.Trailer.Get("Sum") != "1" || err != nil {
		t.Errorf("%q with trailer %v, %v", got, resp.Trailer, err)
	}
}

// atEnd is an empty reader that calls a function.
type atEnd func()

func (f atEnd) Read([]byte) (int, error) { f(); return 0, io.EOF }
