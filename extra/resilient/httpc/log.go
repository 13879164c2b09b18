package httpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"
)

// failures logs calls that failed, ten in a second at most.
type failures struct {
	to *slog.Logger

	mu    sync.Mutex
	since time.Time
	n     int // since then
}

const logged = 10 // a second

// more reports whether to log another one, and how many were left out before it.
func (f *failures) more(now time.Time) (left int, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.since) >= time.Second {
		left = max(0, f.n-logged)
		f.since, f.n = now, 0
	}
	f.n++
	return left, f.n <= logged
}

// failure is an error whose text has nothing from the server and no URL. Unwrap reaches the cause.
type failure struct{ error }

func (f failure) Error() string { return withoutQuotes(f.error) }
func (f failure) Unwrap() error { return f.error }

// Timeout is for url.Error.
func (f failure) Timeout() bool {
	e, ok := errors.AsType[net.Error](f.error)
	return ok && e.Timeout()
}

// ErrorType is the type that OpenTelemetry would find without f.
func (f failure) ErrorType() string {
	for err := f.error; ; err = errors.Unwrap(err) {
		if name := fmt.Sprintf("%T", err); name != "*fmt.wrapError" {
			return name
		}
	}
}

var quoted = regexp.MustCompile(`"(\\.|[^"\\])*("|\\?$)`)

// withoutQuotes returns the start of an error's text. net/http quotes URLs and what a server sent,
// which may be part of a body, and 1 MiB.
func withoutQuotes(err error) string {
	return quoted.ReplaceAllLiteralString(clip(err.Error()), `"..."`)
}

// clip bounds text that a server can choose, such as the host of a redirect, and makes it
// printable.
func clip(s string) string {
	const most = 500
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

func (f *failures) add(req *http.Request, resp *http.Response, err error, tries int32, took time.Duration) {
	if err != nil && errors.Is(req.Context().Err(), context.Canceled) { // the caller has left
		return
	}
	failed := err != nil || resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests
	if !failed {
		return
	}
	left, ok := f.more(time.Now())
	if !ok {
		return
	}
	what := []slog.Attr{
		slog.String("method", req.Method), slog.String("host", clip(req.URL.Host)), slog.String("route", Route(req.Context())),
		slog.Int("tries", int(tries)), slog.Duration("took", took),
	}
	if err != nil {
		what = append(what, slog.String("error", withoutQuotes(err)))
	} else {
		what = append(what, slog.Int("status", resp.StatusCode))
	}
	if left > 0 {
		what = append(what, slog.Int("left_out", left))
	}
	f.to.LogAttrs(context.WithoutCancel(req.Context()), slog.LevelWarn, "httpc: a call failed", what...)
}
