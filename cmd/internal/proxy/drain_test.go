package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestStopped: while Redis stands still clients wait, and none has an error. Afterwards all have
// their replies.
func TestStopped(t *testing.T) {
	addr, server, _ := proxied(t, nil)
	before := dial(t, addr)
	talk(t, before, wire("SET", "user:1", big("x")), "+OK\r\n")
	if err := syscall.Kill(server.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(server.PID(), syscall.SIGCONT)
	reply := fmt.Sprintf("$%d\r\n%s\r\n", len(big("x")), big("x"))
	during := dial(t, addr)
	for _, c := range []net.Conn{before, during} {
		if _, err := io.WriteString(c, strings.Repeat(wire("GET", "user:1"), 100)); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(c); len(b) > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q, %v", b, err)
		}
		if err := c.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Kill(server.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{before, during} {
		talk(t, c, "", strings.Repeat(reply, 100))
	}
}

// TestServerGone: a server that cannot be reached, or goes, is the end of the connection, and no
// reply is made up.
func TestServerGone(t *testing.T) {
	var notes lines
	addr, server, _ := proxied(t, func(o *Options) { o.Err = &notes })
	c := dial(t, addr)
	talk(t, c, wire("PING"), "+PONG\r\n")
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, wire("PING"))
	if b, _ := io.ReadAll(c); len(b) > 0 {
		t.Errorf("%q", b)
	}
	if b, _ := io.ReadAll(dial(t, addr)); len(b) > 0 {
		t.Errorf("%q", b)
	}
	notes.await(t, "cannot connect to "+server.Addr()+", and ends a client's connection: ")
}

// TestClientGone: Redis sees that a client has gone, so that a command that blocks takes no
// element for it.
func TestClientGone(t *testing.T) {
	addr, server, _ := proxied(t, nil)
	c := dial(t, addr)
	io.WriteString(c, wire("BLPOP", "list", "0"))
	blocked := func() bool {
		info, err := server.Do(t.Context(), "INFO", "clients")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(info, "blocked_clients:1")
	}
	for !blocked() {
		time.Sleep(time.Millisecond)
	}
	c.Close()
	for blocked() {
		time.Sleep(time.Millisecond)
	}
	if _, err := server.Do(t.Context(), "RPUSH", "list", "x"); err != nil {
		t.Fatal(err)
	}
	if n, err := server.Do(t.Context(), "LLEN", "list"); n != "1" {
		t.Errorf("%s elements are left, %v", n, err)
	}
}

// TestDrain: when the proxy ends, the replies in flight are delivered, and idle connections end.
func TestDrain(t *testing.T) {
	addr, server, p := proxied(t, func(o *Options) { o.Drain = time.Hour }) // for which nothing waits
	idle, busy, listening, half := dial(t, addr), dial(t, addr), dial(t, addr), dial(t, addr)
	talk(t, idle, wire("PING"), "+PONG\r\n")
	talk(t, listening, wire("SUBSCRIBE", "c"), "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n")
	talk(t, half, wire("PING")+"*3\r\n$3\r\nSET\r\n$4\r\nhalf\r\n$1\r\n", "+PONG\r\n")
	talk(t, busy, wire("PING")+wire("BLPOP", "list", "0")+wire("PING"), "+PONG\r\n")
	ended := make(chan error, 1)
	go func() { ended <- p.stop() }()
	atEnd(t, idle)
	atEnd(t, listening)
	if c, err := net.Dial("tcp", addr); err == nil {
		c.Close()
		t.Error("it still accepts connections")
	}
	if _, err := server.Do(t.Context(), "RPUSH", "list", "x"); err != nil {
		t.Fatal(err)
	}
	talk(t, half, "x\r\n", "+OK\r\n")
	atEnd(t, half)
	talk(t, busy, "", "*2\r\n$4\r\nlist\r\n$1\r\nx\r\n+PONG\r\n")
	atEnd(t, busy)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestLastReplies: a slow reader has the replies to all commands that Redis has executed, although
// it sends more than the proxy reads. The proxy drains, or the request before was broken.
func TestLastReplies(t *testing.T) {
	t.Parallel()
	const n = 400
	value := strings.Repeat("x", 10_000)
	for name, test := range map[string]struct {
		pool      int
		tls, ends bool
	}{"own connection": {}, "shared": {pool: 1}, "TLS": {tls: true}, "broken": {ends: true}} {
		t.Run(name, func(t *testing.T) {
			var secure *tls.Config
			addr, server, p := pooled(t, test.pool, func(o *Options) {
				if test.tls {
					dir := t.TempDir()
					o.TLS = Certificates{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")}
					roots := x509.NewCertPool()
					roots.AddCert(certify(t, 1, o.TLS.Cert, o.TLS.Key))
					secure = &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}
				}
			})
			fill := []string{"RPUSH", "list"}
			for range n {
				fill = append(fill, value)
			}
			do(t, server, fill...)
			conn, idle := dial(t, addr), dial(t, addr)
			if err := conn.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
				t.Fatal(err)
			}
			c := conn
			if secure != nil {
				c, idle = tls.Client(c, secure), tls.Client(idle, secure)
			}
			talk(t, idle, wire("PING"), "+PONG\r\n")
			talk(t, c, wire("PING"), "+PONG\r\n")
			send := strings.Repeat(wire("LPOP", "list"), n)
			if test.ends {
				send += "*2\r\nx" + strings.Repeat(wire("PING"), 2*bufferSize/len(ping))
			}
			if _, err := io.WriteString(c, send); err != nil {
				t.Fatal(err)
			}
			for test.pool == 0 && do(t, server, "LLEN", "list") != "0" { // with a pool, it waits for what is read
				time.Sleep(time.Millisecond)
			}
			ended := make(chan error, 1)
			if !test.ends {
				go func() { ended <- p.stop() }()
				atEnd(t, idle)
				if _, err := io.WriteString(c, wire("PING")); err != nil {
					t.Fatal(err)
				}
			}
			r, got := bufio.NewReaderSize(c, bufferSize), 0
			want := fmt.Sprintf("$%d\r\n%s\r\n", len(value), value)
			for b := make([]byte, len(want)); ; got++ {
				if got%4 == 0 {
					time.Sleep(5 * time.Millisecond)
				}
				if _, err := io.ReadFull(r, b); err != nil || string(b) != want {
					if err != io.EOF && !(test.ends && bytes.HasPrefix(b, []byte("-ERR Protocol error"))) {
						t.Errorf("after %d replies: %v", got, err)
					}
					break
				}
			}
			if left := do(t, server, "LLEN", "list"); fmt.Sprint(n-got) != left {
				t.Errorf("%d replies, and %s elements are left", got, left)
			}
			c.Close()
			if test.ends {
				return
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDrainEnds: a command that blocks without end does not keep the proxy running.
func TestDrainEnds(t *testing.T) {
	addr, _, p := proxied(t, func(o *Options) { o.Drain = 50 * time.Millisecond })
	c := dial(t, addr)
	talk(t, c, wire("PING")+wire("BLPOP", "list", "0"), "+PONG\r\n")
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	atEnd(t, c)
}
