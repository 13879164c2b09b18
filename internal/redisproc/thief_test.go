package redisproc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// asStranger asks a server as another user of the machine can: through its port, without a
// password.
func asStranger(t *testing.T, s *Server, args ...string) (string, error) {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return exchange(t.Context(), conn, "", args...)
}

// thief listens on an address until the test ends, takes any password and says that all is well. It
// keeps what it gets.
type thief struct {
	lock sync.Mutex
	got  bytes.Buffer
}

func (th *thief) listen(t *testing.T, addr string) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for b := make([]byte, 4096); ; {
					n, err := c.Read(b)
					if err != nil {
						return
					}
					th.lock.Lock()
					th.got.Write(b[:n])
					th.lock.Unlock()
					reply := "+PONG\r\n"
					if bytes.Contains(b[:n], []byte("INFO")) {
						reply = "$11\r\nloading:0\r\n\r\n"
					}
					if bytes.Contains(b[:n], []byte("AUTH")) {
						reply = "+OK\r\n" + reply
					}
					if _, err := io.WriteString(c, reply); err != nil {
						return
					}
				}
			}()
		}
	}()
}

// TestPortTaken: a stranger who took the port before the server is not believed, gets nothing, and
// the server has another port.
func TestPortTaken(t *testing.T) {
	path := saved(t)
	for name, start := range map[string]func(prepare func(*Server)) (*Server, error){
		"empty": func(prepare func(*Server)) (*Server, error) {
			return startWith(t.Context(), programs, func(s *Server) error { prepare(s); return Options{Password: "p"}.prepare(s) })
		},
		"file": func(prepare func(*Server)) (*Server, error) {
			return startWith(t.Context(), programs, func(s *Server) error { prepare(s); return File{Path: path}.prepare(s) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			var taken *Server
			var th thief
			s, err := start(func(s *Server) {
				if taken == nil {
					taken = s
					th.listen(t, s.Addr())
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if s.Addr() == taken.Addr() {
				t.Errorf("the stranger at %s is taken for the server", s.Addr())
			}
			if _, err := s.Do(t.Context(), "SET", "k", "secret"); err != nil {
				t.Error(err)
			}
			if th.got.Len() > 0 {
				t.Errorf("the stranger got %q", th.got.String())
			}
			info, err := s.Do(t.Context(), "INFO", "server")
			if pid := fields(info)["process_id"]; err != nil || pid != strconv.Itoa(s.PID()) {
				t.Errorf("the server is process %s and not %d, %v", pid, s.PID(), err)
			}
		})
	}
}

// TestPortTakenMeanwhile: who takes the port of a server that is about to come back is not
// believed.
func TestPortTakenMeanwhile(t *testing.T) {
	ForTest(t) // skips where there is no server
	s, err := StartWith(t.Context(), Options{Password: "p"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Kill()
	var th thief
	th.listen(t, s.Addr())
	if err := s.launch(t.Context()); !errors.Is(err, errPortTaken) {
		t.Error(err)
	}
	if th.got.Len() > 0 {
		t.Errorf("the stranger got %q", th.got.String())
	}
}

// TestPortTakenAfterwards: who takes the port of a server that crashed gets nothing from clients,
// also while a child of the server lives on with its output.
func TestPortTakenAfterwards(t *testing.T) {
	ForTest(t) // skips where there is no server
	s, err := StartWith(t.Context(), Options{Password: "p", Prefix: []string{"sh", "-c", `sleep 120 <&- & exec "$@"`, "sh"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	pid := s.PID()
	if runtime.GOOS == "linux" { // where they are a group of their own
		defer syscall.Kill(-pid, syscall.SIGKILL)
	}
	s.cmd.Process.Kill()
	var th thief
	for {
		l, err := net.Listen("tcp", s.Addr()) // as soon as it is free
		if err == nil {
			l.Close()
			break
		}
		time.Sleep(time.Millisecond)
	}
	th.listen(t, s.Addr())
	select {
	case <-s.done:
	case <-time.After(time.Minute):
		t.Fatal("it does not count as ended while its child lives")
	}
	if c, err := s.Dial(t.Context(), "tcp", s.Addr()); !errors.Is(err, ErrGone) {
		t.Errorf("%v, %v", c, err)
	}
}

// TestNothingToSee: neither the port nor the environment of this process can be seen in the
// server's process.
func TestNothingToSee(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("on Linux alone")
	}
	path := saved(t)
	const secret = "password-of-production"
	t.Setenv("REDISCLI_AUTH", secret)
	dir := t.TempDir()
	program, err := lookPath(programs)
	if err != nil {
		t.Fatal(err)
	}
	// A server changes its title when it runs, so what it was started with is noted before.
	for _, name := range programs {
		script := "#!/bin/sh\ntr '\\0' '\\n' < /proc/$$/cmdline > " + dir + "/arguments\nenv > " + dir + "/environment\nexec " + program + ` "$@"` + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for name, start := range map[string]func() (*Server, error){
		"empty":  func() (*Server, error) { return Start(t.Context()) },
		"prefix": func() (*Server, error) { return StartWith(t.Context(), Options{Prefix: through}) },
		"file":   func() (*Server, error) { return StartFile(t.Context(), File{Path: path, Memory: 1 << 30}) },
	} {
		s, err := start()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for file, hidden := range map[string]string{"arguments": strconv.Itoa(s.port), "environment": secret} {
			if b, err := os.ReadFile(filepath.Join(dir, file)); err != nil || len(b) == 0 || strings.Contains(string(b), hidden) {
				t.Errorf("%s: the %s show %q, or: %v\n%s", name, file, hidden, err, b)
			}
		}
	}
}

// TestLongFolder: the name of a socket has about a hundred bytes, and the name of a folder may have
// more.
func TestLongFolder(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("on Linux alone")
	}
	ForTest(t) // skips where there is no server
	long := filepath.Join(t.TempDir(), strings.Repeat("long", 50))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", long)
	s, err := Start(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
