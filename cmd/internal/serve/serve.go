// Package serve shows a run of the lab while it goes on: the report page, live; metrics for
// Prometheus; Go's profiles.
//
// [Start] makes a [Server]; [NewMetrics] makes the [Metrics] that the lab feeds and the server
// shows:
//
//	/               the report as a page
//	/content        the changing part of the page, which polls it
//	/result.json    the figures so far
//	/metrics        for Prometheus: operations by group, stage and outcome, as in bale's library; the run's progress; Go; the process
//	/debug/pprof/   Go's profiles
//
// Any client that connects can read profiles of the process, and with them the names of files and
// functions. So an address without a host means the loopback interface. The server refuses requests
// under a foreign host name, as a browser sends them after DNS rebinding.
package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	readTimeout  = 5 * time.Second
	writeTimeout = 30 * time.Second // pprof adds the time of a profile
	idleTimeout  = time.Minute
	closeTimeout = time.Second // for answers that are under way at Close
	maxHeader    = 16 << 10    // bytes
	maxRequests  = 32          // at a time
	maxProfile   = 5 * time.Minute
	pageInterval = time.Second // a page is made at most so often, whoever asks: it takes time from what is measured
)

// ErrNotYet is for the functions of [Options] while there is nothing to show yet. The server asks
// the browser to retry.
var ErrNotYet = errors.New("nothing is measured yet")

// Options select the pages of a [Server]. A nil function has no page. One goroutine at a time calls
// each function, while the run goes on, and at most once a second.
type Options struct {
	// Addr is HOST:PORT. Without a host, ":8080", it is the loopback interface, 127.0.0.1;
	// "0.0.0.0:8080" is every interface, for those who mean it. Port 0 is a free one.
	Addr string

	// Metrics are shown at /metrics.
	Metrics *Metrics

	Page    func(w io.Writer) error // a whole page of HTML
	Content func(w io.Writer) error // the part of it that changes
	Result  func(w io.Writer) error // JSON
}

// Server serves until Close, or until the context of [Start] ends.
type Server struct {
	url      string
	http     http.Server
	loopback bool // it cannot be reached from elsewhere
	limit    chan struct{}
	cancel   context.CancelFunc
	served   chan error

	// Answers hold handlers for reading while they run: who holds it for writing knows that there
	// are none.
	handlers sync.RWMutex
	closed   bool

	close  sync.Once
	failed error
}

// Start listens, and serves in the background. The caller closes the Server, whether the context
// has ended or not.
func Start(ctx context.Context, o Options) (*Server, error) {
	addr, err := address(o.Addr)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	bound := listener.Addr().(*net.TCPAddr)
	s := &Server{url: "http://" + listener.Addr().String() + "/", loopback: bound.IP.IsLoopback(), limit: make(chan struct{}, maxRequests), served: make(chan error, 1)}
	if bound.IP.IsUnspecified() {
		s.url = fmt.Sprintf("http://127.0.0.1:%d/", bound.Port)
	}
	base, cancel := context.WithCancel(ctx)
	s.cancel = cancel
	s.http = http.Server{
		Handler: s.guard(routes(o)), BaseContext: func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
	}
	go func() { s.served <- s.http.Serve(listener) }()
	context.AfterFunc(base, func() { _ = s.Close() }) // Close returns the error to who calls it next
	return s, nil
}

// Check reports an address that [Options].Addr cannot be.
func Check(addr string) error {
	_, err := address(addr)
	return err
}

func address(addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("serve: address %q: give it as HOST:PORT, or as :PORT for 127.0.0.1", addr)
	}
	if _, err := net.LookupPort("tcp", port); err != nil || port == "" {
		return "", fmt.Errorf("serve: address %q: the port must be a number from 0 to 65535", addr)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// URL is where the page is; with every interface served, as this machine sees it.
func (s *Server) URL() string { return s.url }

// Close ends the server: answers under way have a second, profiles end at once. When it returns no
// function of the Options runs any more, and none will. It returns why the server had ended before,
// if it had.
func (s *Server) Close() error {
	s.close.Do(func() {
		s.cancel() // which ends profiles
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		err := s.http.Shutdown(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			err = s.http.Close()
		}
		if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(served, err)
		}
		s.handlers.Lock()
		s.closed = true
		s.handlers.Unlock()
		if err != nil {
			s.failed = fmt.Errorf("serve: %w", err)
		}
	})
	return s.failed
}

// guard lets through what may pass.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.NoBody // a form would be kept in memory and on the disk
		s.handlers.RLock()
		defer s.handlers.RUnlock()
		header := w.Header()
		header.Set("Cache-Control", "no-store")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		if s.loopback && !isLoopback(r.Host) {
			http.Error(w, "this is served to 127.0.0.1 and localhost alone, and was asked for by another name", http.StatusMisdirectedRequest)
			return
		}
		if s.closed {
			http.Error(w, "the run is over", http.StatusServiceUnavailable)
			return
		}
		select {
		case s.limit <- struct{}{}:
			defer func() { <-s.limit }()
		default:
			header.Set("Retry-After", "1")
			http.Error(w, "too many requests at a time", http.StatusServiceUnavailable)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLoopback reports whether a Host header names this machine. Its port is whatever a tunnel makes
// of it.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.IsLoopback()
}

func routes(o Options) http.Handler {
	mux := http.NewServeMux()
	for _, page := range []struct {
		pattern, kind string
		write         func(io.Writer) error
	}{
		{"GET /{$}", "text/html; charset=utf-8", o.Page},
		{"GET /content", "text/html; charset=utf-8", o.Content},
		{"GET /result.json", "application/json", o.Result},
	} {
		if page.write != nil {
			mux.Handle(page.pattern, &document{kind: page.kind, write: page.write})
		}
	}
	if o.Metrics != nil {
		mux.Handle("GET /metrics", o.Metrics.handler())
	}
	// Without cmdline: it would show the passwords of URLs.
	for path, handler := range map[string]http.HandlerFunc{
		"": pprof.Index, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace,
	} {
		mux.Handle("GET /debug/pprof/"+path, profile(handler))
	}
	return mux
}

// profile bounds how long a profile may take.
func profile(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if seconds, err := strconv.ParseFloat(r.FormValue("seconds"), 64); err == nil && !(seconds <= maxProfile.Seconds()) {
			http.Error(w, fmt.Sprintf("a profile of more than %.0f seconds is not taken", maxProfile.Seconds()), http.StatusBadRequest)
			return
		}
		next(w, r)
	})
}

// document is what a function of the Options writes, for all who ask within a while.
type document struct {
	kind  string
	write func(io.Writer) error

	lock    sync.Mutex
	content []byte
	err     error
	written time.Time
}

func (d *document) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, err := d.get()
	switch {
	case errors.Is(err, ErrNotYet):
		w.Header().Set("Retry-After", "1")
		w.Header().Set("Refresh", "1") // for a browser
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		w.Header().Set("Content-Type", d.kind)
		// A client that has gone away needs no error.
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
	}
}

func (d *document) get() ([]byte, error) {
	d.lock.Lock()
	defer d.lock.Unlock()
	if d.written.IsZero() || time.Since(d.written) >= pageInterval {
		var b bytes.Buffer
		d.err = d.write(&b)
		d.content, d.written = b.Bytes(), time.Now() // by others it may be read still: a buffer of its own each time
	}
	return d.content, d.err
}
