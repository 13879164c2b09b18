package httpc

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/extra/resilient"
)

// none are no policies, so that a test sees each request.
var none = &resilient.Options{}

func newClient(t *testing.T, o Options) *http.Client {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// server is a service that counts the connections to it.
type server struct {
	*httptest.Server
	opened atomic.Int64
}

func newServer(t *testing.T, http2 bool, handler http.HandlerFunc) *server {
	s := &server{Server: httptest.NewUnstartedServer(handler)}
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.opened.Add(1)
		}
	}
	if http2 {
		s.EnableHTTP2 = true
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// trust makes a client accept the certificate of a test's server.
func (s *server) trust(n *http.Transport) {
	if s.TLS != nil {
		n.TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	}
}

func send(t *testing.T, c *http.Client, method, url, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || string(got) != body {
		t.Fatalf("answered %.20q of %d bytes, %v; sent %.20q of %d", got, len(got), err, body, len(body))
	}
	return resp
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // in whole, before it answers
	w.Write(body)
}

func TestConnectionsStayOpen(t *testing.T) {
	const callers, rounds = 32, 5
	var busy sync.WaitGroup
	s := newServer(t, false, func(w http.ResponseWriter, r *http.Request) {
		busy.Done()
		busy.Wait() // until all callers are here
		echo(w, r)
	})
	c := newClient(t, Options{Guard: none})
	for range rounds {
		busy.Add(callers)
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				resp, err := c.Post(s.URL, "", strings.NewReader("a"))
				if err != nil {
					t.Error(err)
					return
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			})
		}
		wg.Wait()
	}
	if n := s.opened.Load(); n != callers {
		t.Errorf("%d connections for %d callers", n, callers)
	}
}

func TestResponseLimit(t *testing.T) {
	big := strings.Repeat("x", 1001)
	s := newServer(t, false, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/known":
			w.Header().Set("Content-Length", "1001")
			io.WriteString(w, big)
		case "/unknown":
			w.(http.Flusher).Flush()
			io.WriteString(w, big)
		case "/gzip":
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			io.WriteString(z, big)
			z.Close()
		case "/fits":
			w.(http.Flusher).Flush()
			io.WriteString(w, big[1:])
		}
	})
	c := newClient(t, Options{MaxResponse: 1000, Guard: &resilient.Options{Breaker: resilient.Breaker{Failures: 0.01}}})
	for _, path := range []string{"/known", "/unknown", "/gzip", "/fits"} {
		resp, err := c.Get(s.URL + path)
		var got []byte
		if err == nil {
			got, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		large, ok := errors.AsType[*TooLargeError](err)
		if fits := path == "/fits"; fits && (err != nil || string(got) != big[1:]) {
			t.Errorf("%s: %d bytes, %v", path, len(got), err)
		} else if !fits && (!ok || large.Limit != 1000 || large.Request || len(got) > 1000 || !errors.Is(err, ErrTooLarge)) {
			t.Errorf("%s: %d bytes, %v", path, len(got), err)
		}
	}
	if resp, err := c.Head(s.URL + "/known"); err != nil {
		t.Errorf("HEAD: %v", err)
	} else {
		resp.Body.Close()
	}
	if s := c.Transport.(*Transport).Guard(s.Listener.Addr().String()).Stats(); s.Failures != 0 {
		t.Errorf("counted as failures of the host: %+v", s)
	}
}

func TestRequestLimit(t *testing.T) {
	s := newServer(t, false, echo)
	c := newClient(t, Options{MaxRequest: 1000})
	for name, body := range map[string]io.Reader{
		"known": strings.NewReader(strings.Repeat("x", 1001)), "unknown": io.LimitReader(zeros{}, 1001),
	} {
		req, err := http.NewRequestWithContext(t.Context(), "PUT", s.URL, body)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Do(req)
		if large, ok := errors.AsType[*TooLargeError](err); !ok || large.Limit != 1000 || !large.Request {
			t.Errorf("%s: %v", name, err)
		}
	}
	send(t, c, "PUT", s.URL, strings.Repeat("x", 1000))
	resp, err := c.Post(s.URL, "", io.LimitReader(zeros{}, 1000))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, resp.Body); n != 1000 || err != nil {
		t.Errorf("of 1,000 bytes of unknown length %d came back: %v", n, err)
	}
	resp.Body.Close()
	if s := c.Transport.(*Transport).Guard(s.Listener.Addr().String()).Stats(); s.Failures != 0 || s.Retries != 0 {
		t.Errorf("counted as failures of the host: %+v", s)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestDeadlineHeader: a service sees how long its caller waits, of which each try has its part, and
// so does the service behind it.
func TestDeadlineHeader(t *testing.T) {
	const header = "X-Timeout-Ms"
	var mu sync.Mutex
	left := map[string][]time.Duration{}
	var tries atomic.Int32
	handler := func(name string, do http.HandlerFunc) http.Handler {
		return Deadline(header, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			at, ok := r.Context().Deadline()
			mu.Lock()
			defer mu.Unlock()
			if ok {
				left[name] = append(left[name], time.Until(at))
			} else {
				left[name] = append(left[name], 0)
			}
			do(w, r)
		}))
	}
	last := httptest.NewServer(handler("last", echo))
	defer last.Close()
	inner := newClient(t, Options{Guard: none, DeadlineHeader: header})
	first := httptest.NewServer(handler("first", func(w http.ResponseWriter, r *http.Request) {
		if tries.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		req, _ := http.NewRequestWithContext(r.Context(), "GET", last.URL, nil)
		mu.Unlock() // for the handler of last
		resp, err := inner.Do(req)
		mu.Lock()
		if err != nil {
			t.Error(err)
			return
		}
		resp.Body.Close()
	}))
	defer first.Close()
	outer := newClient(t, Options{DeadlineHeader: header, Guard: &resilient.Options{
		Timeout: 4 * time.Minute, Retry: resilient.Retry{Tries: 2, Delay: time.Millisecond},
	}})
	send(t, outer, "GET", first.URL, "")
	if f := left["first"]; len(f) != 2 || f[0] > 2*time.Minute || f[0] < time.Minute || f[1] <= 2*time.Minute || f[1] > 4*time.Minute {
		t.Errorf("the service had %v", f)
	}
	if l := left["last"]; len(l) != 1 || l[0] > left["first"][1] || l[0] < time.Minute {
		t.Errorf("the one behind it had %v; its caller %v", l, left["first"])
	}

	for _, odd := range []string{"", "0", "-5", "x", "9223372036854775807", "1e3"} {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", last.URL, nil)
		req.Header.Set(header, odd)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if l := left["last"]; l[len(l)-1] != 0 {
			t.Errorf("%q is a deadline %v ahead", odd, l[len(l)-1])
		}
	}
	http.DefaultClient.CloseIdleConnections()

	bare, _ := http.NewRequestWithContext(t.Context(), "GET", first.URL, nil)
	bare.Header = nil
	if _, err := outer.Transport.RoundTrip(bare); err == nil {
		t.Error("net/http takes a request without a map of headers")
	}

	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	before := tries.Load()
	req, _ := http.NewRequestWithContext(ctx, "GET", first.URL, nil)
	if _, err := outer.Do(req); !errors.Is(err, context.DeadlineExceeded) || tries.Load() != before {
		t.Errorf("a call that was over: %v, %d requests", err, tries.Load()-before)
	}
}

func TestRetryReplaysTheBody(t *testing.T) {
	var got []string
	s := newServer(t, false, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if got = append(got, string(b)); len(got) == 1 {
			w.WriteHeader(http.StatusBadGateway)
		}
		io.WriteString(w, "true")
	})
	c := newClient(t, Options{})
	if ok, err := JSON[bool](t.Context(), c, "PUT", s.URL+"/a", map[string]int{"n": 1}); !ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	if want := "{\"n\":1}\n"; len(got) != 2 || got[0] != want || got[1] != want {
		t.Errorf("the service got %q", got)
	}
}

// records keeps what is logged.
type records struct {
	mu sync.Mutex
	bytes.Buffer
}

func (r *records) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Buffer.Write(p)
}

func (r *records) all(t *testing.T) (all []map[string]any) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for line := range strings.Lines(r.String()) {
		var one map[string]any
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, one)
	}
	return all
}

func TestFailuresAreLogged(t *testing.T) {
	s := newServer(t, false, func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		w.WriteHeader(status)
	})
	var out records
	c := newClient(t, Options{
		Log:   slog.New(slog.NewJSONHandler(&out, nil)),
		Guard: &resilient.Options{Retry: resilient.Retry{Tries: 2, Delay: time.Millisecond}},
	})
	for _, status := range []int{200, 404, 503, 429} {
		JSON[struct{}](t.Context(), c, "GET", s.URL+"/v1/{secret}?status={status}&token=SECRET", nil, "SECRET", status)
	}
	c.CloseIdleConnections()
	s.Close()
	if _, err := JSON[int](t.Context(), c, "POST", s.URL+"/v1/{secret}?token=SECRET", "SECRET", "SECRET"); err == nil {
		t.Error("no error from a server that is gone")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel() // by the caller, who knows
	JSON[int](over, c, "GET", s.URL, nil)
	all := out.all(t)
	if len(all) != 3 || strings.Contains(out.String(), "SECRET") {
		t.Fatal(out.String())
	}
	for i, want := range []map[string]any{
		{"method": "GET", "route": "/v1/{secret}", "tries": 2.0, "status": 503.0},
		{"method": "GET", "route": "/v1/{secret}", "tries": 2.0, "status": 429.0},
		{"method": "POST", "route": "/v1/{secret}", "tries": 1.0},
	} {
		for k, v := range want {
			if all[i][k] != v {
				t.Errorf("record %d: %s is %v, not %v", i, k, all[i][k], v)
			}
		}
		if all[i]["host"] != s.Listener.Addr().String() || all[i]["took"] == nil {
			t.Errorf("record %d: %v", i, all[i])
		}
	}
	if e, _ := all[2]["error"].(string); !strings.Contains(e, "refused") {
		t.Errorf("the error is %q", e)
	}
}

func TestLogIsBounded(t *testing.T) {
	f, now, lines, left := failures{}, time.Now(), 0, 0
	for i := range 3000 {
		n, ok := f.more(now.Add(time.Duration(i) * time.Millisecond))
		if left += n; ok {
			lines++
		}
	}
	if lines != 30 || left != 2*990 {
		t.Errorf("%d lines in 3 s, %d left out in the first two", lines, left)
	}
}

func TestWrap(t *testing.T) {
	s := newServer(t, false, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "first" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	var routes []string
	c := newClient(t, Options{Wrap: func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			req.Header.Set("Authorization", "first")
			if routes = append(routes, Route(req.Context())); len(routes) > 1 {
				req.Header.Set("Authorization", "second")
			}
			return next.RoundTrip(req)
		})
	}})
	if _, err := JSON[struct{}](t.Context(), c, "GET", s.URL+"/v1/{id}", nil, 7); err != nil {
		t.Error(err)
	}
	if len(routes) != 2 || routes[0] != "/v1/{id}" || routes[1] != "/v1/{id}" {
		t.Errorf("the tries had the routes %q", routes)
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{Concurrency: -1}, {DeadlineHeader: "a b"}, {DeadlineHeader: "a:b"}, {DeadlineHeader: "a\nb"}, {TLS: TLS{Cert: "a"}}, {TLS: TLS{Key: "a"}},
		{Guard: &resilient.Options{Timeout: -1}},
	} {
		if _, err := New(o); !errors.Is(err, bale.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
