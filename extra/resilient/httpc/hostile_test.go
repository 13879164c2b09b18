package httpc

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	neturl "net/url"
	"strings"
	"testing"
	"time"
	"unicode"
)

// wire serves what it is given, whatever the request.
func wire(t *testing.T, answer string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			http.ReadRequest(bufio.NewReader(conn))
			io.WriteString(conn, answer)
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return "http://" + l.Addr().String()
}

// A server that switches protocols unasked could send a body without end.
func TestUnaskedUpgrade(t *testing.T) {
	url := wire(t, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"+strings.Repeat("x", 1<<20))
	c := newClient(t, Options{Guard: none, MaxResponse: 1000})
	for _, asked := range []bool{false, true} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if asked {
			req.Header.Set("Connection", "Upgrade")
			req.Header.Set("Upgrade", "x")
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if asked && (len(b) != 1<<20 || err != nil) || !asked && (len(b) > 1000 || !errors.Is(err, ErrTooLarge)) {
			t.Errorf("asked: %v, %d bytes, %v", asked, len(b), err)
		}
	}
}

func TestErrorsOfHostileServers(t *testing.T) {
	long := strings.Repeat("\x01\"\\", 300<<10)
	for _, answer := range []string{
		"SECRET" + long,
		"HTTP/1.1 SECRET" + long + " OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: SECRET\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: SECRET\r\n\r\n",
		"HTTP/1.1 200 OK\r\nSECRET" + strings.Repeat("x", 900<<10) + "\r\n\r\n",
		"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: http://h/%zz?SECRET\r\n\r\n",
		"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: http://" + strings.Repeat("x", 900<<10) + "/?SECRET\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Type: " + strings.Repeat("x", 900<<10) + "SECRET\r\n\r\n{}!",
		"HTTP/1.1 200 OK\r\n\r\n{\"At\": \"SECRET\"}",
		"HTTP/1.1 200 OK\r\n\r\n{\"N\": 4111222233334444}",
	} {
		var log bytes.Buffer
		c := newClient(t, Options{Guard: none, Log: slog.New(slog.NewTextHandler(&log, nil))})
		_, err := JSON[struct {
			At time.Time
			N  int8
		}](t.Context(), c, "GET", wire(t, answer)+"/v1/{id}", nil, 1)
		if err == nil {
			t.Fatalf("%.60q: no error", answer)
		}
		if text := err.Error() + log.String(); len(text) > 4<<10 || strings.Contains(text, "SECRET") || strings.Contains(text, "4111222233334444") {
			t.Errorf("%.60q: %d bytes: %.300s", answer, len(text), text)
		}
	}
}

// What a Wrap sees, and what a caller of the plain client gets, has no text of the server's either.
func TestWrapOfHostileServers(t *testing.T) {
	long := strings.Repeat("\x01", 900<<10)
	for name, c := range map[string]struct {
		scheme, answer string
		tls            bool
	}{
		"no HTTP":                  {"http", "SECRET" + long + "\r\n\r\n", false},
		"redirect to a long URL":   {"http", "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: /SECRET" + strings.Repeat("x", 900<<10) + "\r\n\r\n", false},
		"redirect to a long host":  {"http", "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: http://SECRET" + strings.Repeat("x", 900<<10) + "\r\n\r\n", false},
		"status of a proxy":        {"https", "HTTP/1.1 502 \x1b[31m\u202e" + strings.Repeat("x", 900<<10) + "\r\n\r\n", false},
		"HTTP where TLS should be": {"https", "HTTP/1.1 200 OK\r\n\r\nSECRET", true},
	} {
		url := wire(t, c.answer)
		client := newClient(t, Options{Guard: none, Tune: func(h *http.Transport) {
			if c.scheme == "https" && !c.tls {
				address := url
				h.Proxy = func(*http.Request) (*neturl.URL, error) { return neturl.Parse(address) }
			}
		}, Wrap: func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				if n := len(req.URL.String()); n > maxRedirect {
					t.Errorf("%s: a URL of %d bytes", name, n)
				}
				resp, err := next.RoundTrip(req)
				if err != nil {
					checkText(t, name, err)
				}
				return resp, err
			})
		}})
		_, err := client.Get(strings.Replace(url, "http:", c.scheme+":", 1))
		var e *neturl.Error
		if !errors.As(err, &e) {
			t.Fatalf("%s: %v", name, err)
		}
		checkText(t, name, e.Err)
		if c.tls && !errors.Is(err, http.ErrSchemeMismatch) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func checkText(t *testing.T, name string, err error) {
	t.Helper()
	text := err.Error()
	if len(text) > 1000 || strings.Contains(text, "SECRET") || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("%s: %d bytes: %.300q", name, len(text), text)
	}
}

func TestErrorsOfTemplatesHaveNoPassword(t *testing.T) {
	for _, template := range []string{
		"https://u:SECRET@h/{a", "https://u:SEC/SECRET@h/{a}/{b}", "https://u:SECRET?x@h/{a}", "https://h/{a}?k=SECRET&b={b",
		"https://u:SECRET /x@h/{a}", "SECRET@h/{a}", "https://h:x/{a}?m=x@SECRET", "u:SECRET/x@h",
	} {
		if _, err := NewRequest(t.Context(), "GET", template, nil, 1); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%q: %v", template, err)
		}
	}
	if _, err := NewRequest(t.Context(), "GET", "https://u:SECRET@h/{a}", struct{ F failing }{}, 1); err == nil || strings.Contains(err.Error(), "SECRET") {
		t.Error(err)
	}
}

type failing struct{}

func (failing) MarshalJSON() ([]byte, error) { return nil, errors.New("SECRET") }
