package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/outcome"
)

// saidSoFar is the stderr of a command so far, for concurrent readers.
type saidSoFar struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // has one where something was said
}

func newSaid() *saidSoFar { return &saidSoFar{more: make(chan struct{}, 1)} }

func (s *saidSoFar) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
	return s.text.Write(b)
}

func (s *saidSoFar) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// liveBench is balebench run --serve under way in this process.
type liveBench struct {
	url    string
	said   *saidSoFar
	out    bytes.Buffer // to be read after the end
	cancel context.CancelFunc
	ended  chan struct{} // closed when it has ended
	code   int
}

var servedAt = regexp.MustCompile(`the report, live: (http://127\.0\.0\.1:\d+/)\n`)

// live starts one and waits until it says where its page is.
func live(t *testing.T, args ...string) *liveBench {
	t.Helper()
	goleak.VerifyNone(t) // what was there before is not what it leaves
	ctx, cancel := context.WithCancel(t.Context())
	b := &liveBench{said: newSaid(), cancel: cancel, ended: make(chan struct{})}
	args = append([]string{"run", "--serve", "127.0.0.1:0", "--embedded", "--value-size", "100", "--compress", "none,s2", "--concurrency", "2"}, args...)
	go func() {
		defer close(b.ended)
		b.code = app.Run(ctx, args, strings.NewReader(""), &b.out, b.said)
	}()
	t.Cleanup(func() {
		cancel()
		<-b.ended
		http.DefaultClient.CloseIdleConnections()
		goleak.VerifyNone(t)
	})
	for {
		if found := servedAt.FindStringSubmatch(b.said.String()); found != nil {
			b.url = found[1]
			return b
		}
		select {
		case <-b.said.more:
		case <-b.ended:
			t.Fatalf("exit %d: %s", b.code, b.said)
		}
	}
}

// get asks for a page.
func (b *liveBench) get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	answer, err := http.Get(b.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// await asks for a page until it is as wanted, and for as long as the run goes on.
func (b *liveBench) await(t *testing.T, path string, is func(status int, body string) bool) (body string) {
	t.Helper()
	for {
		status, body := b.get(t, path)
		if is(status, body) {
			return body
		}
		if status != http.StatusOK && status != http.StatusServiceUnavailable {
			t.Fatalf("/%s: %d: %s", path, status, body)
		}
		select {
		case <-b.ended:
			t.Fatalf("it ended before /%s was as wanted; exit %d: %s", path, b.code, b.said)
		case <-time.After(20 * time.Millisecond): // between two looks, for the run needs the processors
		}
	}
}

// metric is the sum of a metric over all its labels.
func metric(t *testing.T, page, name string) (sum float64, there bool) {
	t.Helper()
	for line := range strings.Lines(page) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndex(rest, " "):]), 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		sum, there = sum+v, true
	}
	return sum, there
}

// gone fails if somebody answers still.
func (b *liveBench) gone(t *testing.T) {
	t.Helper()
	u, err := url.Parse(b.url)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err == nil {
		conn.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%s after the end: %v", b.url, err)
	}
}

// TestLivePage follows a run by its page, from the first answer to the interrupt that ends it.
func TestLivePage(t *testing.T) {
	b := live(t, "--duration", "100s", "--repeat", "1000") // turns of 0.1 s; it is interrupted
	if status, page := b.get(t, ""); status != http.StatusOK || !strings.HasPrefix(strings.ToLower(page), "<!doctype html>") || !strings.Contains(page, "connect-src 'self'") {
		t.Errorf("/: %d: %.200s", status, page)
	}
	var result outcome.Run
	b.await(t, "result.json", func(status int, body string) bool {
		if status != http.StatusOK {
			return false
		}
		result = outcome.Run{}
		if err := json.Unmarshal([]byte(body), &result); err != nil {
			t.Fatalf("/result.json: %v: %.200s", err, body)
		}
		return len(result.Cells) == 2
	})
	for _, c := range result.Cells {
		if !c.Verified || c.Dataset != "100B" || c.Operations == 0 {
			t.Errorf("%+v: %s", c.Identity, c.Error)
		}
	}
	if e := result.Environment; !e.Interrupted || !e.Embedded || e.RedisVersion != "miniredis" || len(e.Command) == 0 {
		t.Errorf("%+v", e)
	}
	content := b.await(t, "content", func(status int, body string) bool { return status == http.StatusOK && strings.Contains(body, "100B") })
	if !isLive(content) || !strings.Contains(content, ">s2<") || strings.Contains(strings.ToLower(content), "interrupted") {
		t.Errorf("content: %.500s", content)
	}
	metrics := b.await(t, "metrics", func(status int, body string) bool {
		operations, there := metric(t, body, "bale_operations_total")
		return status == http.StatusOK && there && operations > 0
	})
	if cells, _ := metric(t, metrics, "bale_lab_cells"); cells != 2 {
		t.Errorf("%v cells", cells)
	}
	if !strings.Contains(metrics, `group="100B/typed/json/s2"`) {
		t.Error("no operations of s2 by their group")
	}
	if status, _ := b.get(t, "debug/pprof/goroutine?debug=1"); status != http.StatusOK {
		t.Errorf("/debug/pprof: %d", status)
	}
	b.cancel() // as Ctrl-C does
	<-b.ended
	if b.code != cli.ExitFailed || !strings.Contains(b.said.String(), "balebench run: interrupted\n") {
		t.Errorf("exit %d: %s", b.code, b.said)
	}
	if !strings.Contains(b.out.String(), "INTERRUPTED: these are figures of") {
		t.Errorf("no figures of what was measured:\n%s", &b.out)
	}
	b.gone(t)
}

// isLive reports whether a content says that there is more to come.
func isLive(content string) bool { return strings.Contains(content, `data-live="true"`) }

// TestLivePageInTheEnd: who has the page open is given the end of it, and then it is over by
// itself.
func TestLivePageInTheEnd(t *testing.T) {
	b := live(t, "--duration", "1s", "--repeat", "2")
	running := b.await(t, "content", func(status int, _ string) bool { return status == http.StatusOK })
	last := b.await(t, "content", func(status int, body string) bool { return status == http.StatusOK && isLive(body) != isLive(running) })
	if !isLive(running) || isLive(last) || !strings.Contains(last, "Choose json") {
		t.Errorf("while it went on: %.300s\nin the end: %.300s", running, last)
	}
	<-b.ended
	if b.code != cli.ExitDone || !strings.Contains(b.out.String(), "Choose json") {
		t.Errorf("exit %d: %s\n%s", b.code, b.said, &b.out)
	}
	b.gone(t)
}

// TestLivePageNowhere: an address that cannot be had is an error before anything is measured.
func TestLivePageNowhere(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	var out, errs bytes.Buffer
	code := app.Run(t.Context(), []string{"run", "--serve", fmt.Sprint(taken.Addr()), "--embedded", "--value-size", "100"}, strings.NewReader(""), &out, &errs)
	if code != cli.ExitFailed || !strings.Contains(errs.String(), "--serve: serve: listen tcp") || out.Len() > 0 {
		t.Errorf("exit %d, stdout %q, stderr %q", code, &out, &errs)
	}
}
