package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/extra/observe/prom"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves on a free port until the test ends.
func start(t *testing.T, o Options) *Server {
	t.Helper()
	if o.Addr == "" {
		o.Addr = ":0"
	}
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// ask sends a request under a host's name, its own if that is empty.
func ask(t *testing.T, method, url, host string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = host
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	reply, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply, string(body)
}

func write(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func newMetrics(t *testing.T) *Metrics {
	t.Helper()
	m, err := NewMetrics()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestPages(t *testing.T) {
	s := start(t, Options{
		Metrics: newMetrics(t), Page: write("<p>page"), Content: write("<p>content"), Result: func(io.Writer) error { return ErrNotYet },
	})
	bare := start(t, Options{Content: func(io.Writer) error { return errors.New("it broke") }})
	for _, test := range []struct {
		method, url string
		status      int
		kind, has   string
	}{
		{"GET", s.URL(), 200, "text/html; charset=utf-8", "<p>page"},
		{"HEAD", s.URL(), 200, "text/html; charset=utf-8", ""},
		{"POST", s.URL(), 405, "text/plain; charset=utf-8", ""},
		{"GET", s.URL() + "content", 200, "text/html; charset=utf-8", "<p>content"},
		{"GET", s.URL() + "result.json", 503, "text/plain; charset=utf-8", "nothing is measured yet"},
		{"GET", s.URL() + "metrics", 200, "text/plain; version=0.0.4; charset=utf-8; escaping=underscores", "\nbale_lab_cells 0\n"},
		{"GET", s.URL() + "metrics", 200, "", "\nprocess_resident_memory_bytes "},
		{"GET", s.URL() + "metrics", 200, "", "\ngo_gc_duration_seconds_count "},
		{"GET", s.URL() + "debug/pprof/", 200, "text/html; charset=utf-8", "goroutine"},
		{"GET", s.URL() + "debug/pprof/goroutine?debug=1", 200, "text/plain; charset=utf-8", "/serve/serve.go"},
		{"GET", s.URL() + "debug/pprof/cmdline", 404, "", ""},
		{"GET", s.URL() + "debug/pprof/profile?seconds=3600", 400, "text/plain; charset=utf-8", "a profile of more than 300 seconds is not taken"},
		{"GET", s.URL() + "other", 404, "text/plain; charset=utf-8", ""},
		{"GET", bare.URL(), 404, "text/plain; charset=utf-8", ""},
		{"GET", bare.URL() + "metrics", 404, "text/plain; charset=utf-8", ""},
		{"GET", bare.URL() + "content", 500, "text/plain; charset=utf-8", "it broke"},
	} {
		reply, body := ask(t, test.method, test.url, "")
		if kind := reply.Header.Get("Content-Type"); reply.StatusCode != test.status || test.kind != "" && kind != test.kind || !strings.Contains(body, test.has) {
			t.Errorf("%s %s: %d, %q:\n%.500s", test.method, test.url, reply.StatusCode, kind, body)
		}
		if got := reply.Header.Get("Cache-Control") + reply.Header.Get("X-Frame-Options"); got != "no-storeDENY" {
			t.Errorf("%s: %s", test.url, got)
		}
	}
}

// TestForeignNames: a page elsewhere whose name was pointed at this machine gets nothing, unless
// every interface is served.
func TestForeignNames(t *testing.T) {
	for _, test := range []struct {
		addr, host string
		status     int
	}{
		{":0", "", 200}, {":0", "localhost", 200}, {":0", "LOCALHOST:1234", 200}, {":0", "127.0.0.1", 200}, {":0", "127.1.2.3:80", 200}, {":0", "[::1]:80", 200},
		{":0", "[::1]", 200}, {":0", "evil.example", 421}, {":0", "localhost.evil.example:80", 421}, {":0", "10.0.0.1:80", 421}, {":0", "127.0.0.1.evil.example", 421},
		{"localhost:0", "evil.example", 421}, {"0.0.0.0:0", "bench.example", 200}, {"0.0.0.0:0", "", 200},
	} {
		s := start(t, Options{Addr: test.addr, Page: write("page")})
		if reply, body := ask(t, "GET", s.URL(), test.host); reply.StatusCode != test.status || (body == "page") != (test.status == 200) {
			t.Errorf("%s as %q: %d %s", test.addr, test.host, reply.StatusCode, body)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestBodies: no request has a body. That of a form would be kept in memory, and its files on the
// disk.
func TestBodies(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s := start(t, Options{})
	const most = 100 << 20
	var sent atomic.Int64
	body := io.MultiReader(strings.NewReader("--x\r\nContent-Disposition: form-data; name=a; filename=a\r\n\r\n"),
		readerFunc(func(b []byte) (int, error) {
			if sent.Add(int64(len(b))) > most {
				return 0, io.EOF
			}
			return len(b), nil
		}))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+"debug/pprof/symbol", body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "multipart/form-data; boundary=x")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if reply, err := client.Do(request); err == nil { // or the connection was closed meanwhile
		reply.Body.Close()
	}
	if sent.Load() > most {
		t.Errorf("%d MiB were taken", sent.Load()>>20)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func TestAddresses(t *testing.T) {
	for _, test := range []struct{ addr, want, err string }{
		{addr: ":8080", want: "127.0.0.1:8080"},
		{addr: ":0", want: "127.0.0.1:0"},
		{addr: "0.0.0.0:8080", want: "0.0.0.0:8080"},
		{addr: "[::]:8080", want: "[::]:8080"},
		{addr: "localhost:8080", want: "localhost:8080"},
		{addr: "8080", err: `serve: address "8080": give it as HOST:PORT, or as :PORT for 127.0.0.1`},
		{addr: "", err: `serve: address "": give it as HOST:PORT, or as :PORT for 127.0.0.1`},
		{addr: ":", err: `serve: address ":": the port must be a number from 0 to 65535`},
		{addr: ":65536", err: `serve: address ":65536": the port must be a number from 0 to 65535`},
		{addr: ":-1", err: `serve: address ":-1": the port must be a number from 0 to 65535`},
		{addr: "http://a:80", err: `serve: address "http://a:80": give it as HOST:PORT, or as :PORT for 127.0.0.1`},
	} {
		got, err := address(test.addr)
		if fmt.Sprint(err) != test.err && (err != nil || test.err != "") || got != test.want {
			t.Errorf("%q: %q, %v", test.addr, got, err)
		}
		if (Check(test.addr) == nil) != (test.err == "") {
			t.Errorf("%q: Check says %v", test.addr, Check(test.addr))
		}
	}
	taken := start(t, Options{})
	if s, err := Start(t.Context(), Options{Addr: strings.Trim(taken.URL(), "htp:/")}); err == nil {
		t.Errorf("two on one port, %v", s.Close())
	} else if !strings.Contains(err.Error(), "address already in use") {
		t.Error(err)
	}
}

// TestClose: answers that are under way end, and nothing is called any more.
func TestClose(t *testing.T) {
	var running, after atomic.Int32
	var closed atomic.Bool
	begun, release := make(chan struct{}), make(chan struct{})
	s := start(t, Options{
		Page: func(w io.Writer) error {
			running.Add(1)
			defer running.Add(-1)
			if closed.Load() {
				after.Add(1)
			}
			close(begun)
			<-release
			return write("late")(w)
		},
		Content: write("content"),
	})
	var askers sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	get := func(path string) {
		reply, err := client.Get(s.URL() + path)
		if err == nil {
			_, _ = io.Copy(io.Discard, reply.Body) // it is cut off
			reply.Body.Close()
		}
	}
	get("content") // the connection stays
	askers.Go(func() { get("debug/pprof/profile?seconds=60") })
	askers.Go(func() { get("debug/pprof/trace?seconds=60") })
	askers.Go(func() { get("") })
	<-begun
	done := make(chan error, 2)
	for range 2 {
		go func() { done <- s.Close() }()
	}
	select {
	case <-done:
		t.Error("closed, while a page is being made")
	case <-time.After(50 * time.Millisecond): // less proves no less
	}
	close(release)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	closed.Store(true)
	if running.Load() != 0 {
		t.Error("a page is being made after Close")
	}
	askers.Wait()
	if _, err := net.Dial("tcp", strings.Trim(s.URL(), "htp:/")); err == nil {
		t.Error("somebody listens after Close")
	}
	if after.Load() != 0 {
		t.Error("a page was made after Close")
	}
}

// TestContextEnds: it ends the server.
func TestContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s, err := Start(ctx, Options{Addr: ":0", Page: write("page")})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", strings.Trim(s.URL(), "htp:/"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer := bufio.NewReader(conn)
	if reply, err := http.ReadResponse(answer, nil); err != nil || reply.StatusCode != 200 {
		t.Fatal(reply, err)
	}
	cancel()
	if _, err := io.Copy(io.Discard, answer); err != nil { // until it hangs up
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if s, err := Start(ctx, Options{Addr: ":0"}); err == nil {
		t.Error("started, with a context that has ended", s.Close())
	}
}

// TestTooMany: who comes when all places are taken is sent away, and does not wait.
func TestTooMany(t *testing.T) {
	release := make(chan struct{})
	s := start(t, Options{Page: func(w io.Writer) error {
		<-release
		return write("page")(w)
	}})
	var waiting sync.WaitGroup
	for range maxRequests {
		waiting.Go(func() {
			if reply, body := ask(t, "GET", s.URL(), ""); reply.StatusCode != 200 || body != "page" {
				t.Errorf("%d %s", reply.StatusCode, body)
			}
		})
	}
	deadline, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for len(s.limit) < maxRequests {
		select {
		case <-deadline.Done():
			t.Fatalf("%d requests under way", len(s.limit))
		case <-time.After(time.Millisecond):
		}
	}
	if reply, _ := ask(t, "GET", s.URL()+"debug/pprof/", ""); reply.StatusCode != 503 || reply.Header.Get("Retry-After") == "" {
		t.Errorf("one more than there are places for: %d", reply.StatusCode)
	}
	close(release)
	waiting.Wait()
}

// TestMadeOnce: a page is made once for all who ask within a second, an error too.
func TestMadeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := 0
		d := &document{write: func(w io.Writer) error {
			if made++; made == 2 {
				return errors.New("broken")
			}
			_, err := fmt.Fprint(w, made)
			return err
		}}
		for i, test := range []struct {
			is, err string
			sleep   time.Duration
		}{
			{"1", "<nil>", pageInterval - 1}, {"1", "<nil>", 1}, {"", "broken", pageInterval - 1}, {"", "broken", 1}, {"3", "<nil>", 0},
		} {
			b, err := d.get()
			if string(b) != test.is || fmt.Sprint(err) != test.err {
				t.Errorf("%d: %q, %v", i, b, err)
			}
			time.Sleep(test.sleep)
		}
	})
}

func TestMetrics(t *testing.T) {
	m := newMetrics(t)
	const group = "profiles/typed/json/zstd:3+dict"
	m.Recorder(group).Record(t.Context(), stats.Event{Op: stats.Set, Keys: 1, Plain: 400, Stored: 100})
	d, err := frame.NewDictionary([]byte(strings.Repeat("what values have in common", 100)))
	if err != nil {
		t.Fatal(err)
	}
	m.Trained(group, d, dict.Info{Ratio: 4.5})
	m.Pool("goredis", func() prom.PoolStats { return prom.PoolStats{Waits: 5} })
	cell := outcome.Identity{Dataset: "profi\xffles", Track: "dynamic", Codec: "json", Compress: "none", Client: "goredis", Batch: "mset:10", Concurrency: 64, Rate: 1e6}
	m.Progress(3, 7, "round 2 of 6")
	m.Turn(Turn{Cell: cell, Cells: 4, CellsDone: 1, Rounds: 6, Round: 2})
	want := map[string]bool{}
	for _, line := range []string{
		`bale_stored_bytes_total{group="profiles/typed/json/zstd:3+dict",op="set"} 100`,
		`bale_dictionary_training_ratio{group="profiles/typed/json/zstd:3+dict"} 4.5`,
		`bale_pool_waits_total{pool="goredis"} 5`,
		`bale_lab_steps 7`, `bale_lab_steps_done 3`, `bale_lab_cells 4`, `bale_lab_cells_done 1`, `bale_lab_rounds 6`, `bale_lab_round 2`,
		`bale_lab_cell_info{batch="mset:10",client="goredis",codec="json",compress="none",concurrency="64",dataset="profi�les",rate="1000000",server="",track="dynamic"} 1`,
	} {
		want[line] = true
	}
	s := start(t, Options{Metrics: m})
	_, body := ask(t, "GET", s.URL()+"metrics", "")
	got := map[string]bool{}
	for line := range strings.Lines(body) {
		if line = strings.TrimSpace(line); want[line] {
			got[line] = true
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	m.Turn(Turn{})
	m.Pool("goredis", nil)
	if _, body := ask(t, "GET", s.URL()+"metrics", ""); !strings.Contains(body, "bale_dictionary_published_timestamp_seconds{group=") ||
		strings.Contains(body, "bale_lab_cell_info{") || strings.Contains(body, "bale_pool_") {
		t.Errorf("what is over is still shown, or what is not is none:\n%s", body)
	}
	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
