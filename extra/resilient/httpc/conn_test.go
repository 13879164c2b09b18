package httpc

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/balekv/bale/extra/resilient"
)

func TestConnectionsAge(t *testing.T) {
	tuned := func(n *http.Transport) { n.DialContext = (&net.Dialer{}).DialContext }
	for _, http2 := range []bool{false, true} {
		for age, want := range map[time.Duration]int{time.Nanosecond: 6, time.Hour: 1, -1: 1} {
			for name, tune := range map[string]func(*http.Transport){"": func(*http.Transport) {}, "/tuned": tuned} {
				t.Run(fmt.Sprint("HTTP2=", http2, "/", age, name), func(t *testing.T) {
					serve := sync.Map{} // connections; net/http may open one more than it uses
					s := newServer(t, http2, func(w http.ResponseWriter, r *http.Request) {
						serve.Store(r.RemoteAddr, true)
						echo(w, r)
					})
					c := newClient(t, Options{Guard: none, ConnectionAge: age, Tune: func(n *http.Transport) { s.trust(n); tune(n) }})
					for i := range 3 {
						send(t, c, "GET", s.URL, "")
						resp := send(t, c, "POST", s.URL, fmt.Sprint(i))
						if (resp.ProtoMajor == 2) != http2 {
							t.Errorf("answered with %s", resp.Proto)
						}
					}
					n := 0
					serve.Range(func(any, any) bool { n++; return true })
					if n != want {
						t.Errorf("6 calls on %d connections, not %d", n, want)
					}
				})
			}
		}
	}
}

// TestConnectionsAgeUnderLoad: no call fails when its connection, or that of other calls at once,
// is replaced.
func TestConnectionsAgeUnderLoad(t *testing.T) {
	const callers, calls = 8, 50
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint("HTTP2=", http2), func(t *testing.T) {
			s := newServer(t, http2, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				w.(http.Flusher).Flush() // so that the body comes while others replace the connection
				time.Sleep(time.Millisecond)
				w.Write(body)
			})
			c := newClient(t, Options{Guard: none, ConnectionAge: 50 * time.Millisecond, Tune: s.trust})
			var wg sync.WaitGroup
			for i := range callers {
				wg.Go(func() {
					want := strings.Repeat("x", i*10_000)
					for range calls {
						resp, err := c.Post(s.URL, "", strings.NewReader(want))
						if err != nil {
							t.Error(err)
							return
						}
						got, err := io.ReadAll(resp.Body)
						resp.Body.Close()
						if err != nil || string(got) != want {
							t.Errorf("%d of %d bytes came back: %v", len(got), len(want), err)
						}
					}
				})
			}
			wg.Wait()
			if n := s.opened.Load(); n <= callers {
				t.Errorf("%d connections for %d callers", n, callers)
			}
		})
	}
}

// TestOldConnectionsEndHere: a server may close a connection without saying so before.
func TestOldConnectionsEndHere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan bool)
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r := bufio.NewReader(conn)
			if _, err := http.ReadRequest(r); err != nil {
				t.Error(err)
			}
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			_, err = r.ReadByte()
			ended <- err == io.EOF
			conn.Close()
		}
	}()
	c := newClient(t, Options{Guard: none, ConnectionAge: time.Nanosecond})
	resp, err := c.Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	select {
	case ok := <-ended:
		if !ok {
			t.Error("the connection was not closed")
		}
	case <-time.After(10 * time.Second):
		t.Error("the connection stays open")
		c.CloseIdleConnections()
		<-ended
	}
	l.Close()
	<-ended
}

// TestUpgrade: an old connection can take another protocol, which no Timeout ends.
func TestUpgrade(t *testing.T) {
	const timeout = 50 * time.Millisecond
	s := newServer(t, false, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Connection") != "Upgrade" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		rw.Flush()
		io.CopyN(conn, rw, 5)
	})
	c := newClient(t, Options{ConnectionAge: time.Nanosecond, Guard: &resilient.Options{Timeout: timeout}})
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	conn, ok := resp.Body.(io.ReadWriter)
	if resp.StatusCode != http.StatusSwitchingProtocols || !ok {
		t.Fatalf("%s, %T", resp.Status, resp.Body)
	}
	time.Sleep(2 * timeout)
	io.WriteString(conn, "hello")
	got := make([]byte, 5)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestOldUnderTLS(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	for end, want := range map[time.Duration]bool{-1: true, time.Hour: false} {
		proxy := tls.Client(aged{a, time.Now().Add(end)}, &tls.Config{})
		if got := old(tls.Client(proxy, &tls.Config{})); got != want {
			t.Errorf("ends in %v, old: %v", end, got)
		}
	}
}
