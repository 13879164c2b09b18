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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
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

// TestTransportHosts: a program that asks ever more hosts has a bounded number of Guards.
func TestTransportHosts(t *testing.T) {
	transport, err := NewTransport(nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	guards := map[*Guard]bool{}
	for i := range 2 * maxHosts {
		guards[transport.Guard(fmt.Sprint(i))] = true
	}
	if len(guards) != maxHosts+1 {
		t.Error(len(guards))
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
