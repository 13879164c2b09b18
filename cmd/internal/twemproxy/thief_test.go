package twemproxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/balekv/bale/cmd/internal/tcptest"
	"github.com/balekv/bale/internal/redisproc"
)

// TestPortTaken: a stranger who took the port before the proxy, and says yes to all, is not
// believed and gets nothing.
func TestPortTaken(t *testing.T) {
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skip(err) // proxyForTest fails where there must be one
	}
	redisproc.ForTest(t) // skips where there is no server
	server, err := redisproc.StartWith(t.Context(), redisproc.Options{Password: password})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	var asked atomic.Int32
	stranger := tcptest.Listen(t, func(c net.Conn) {
		asked.Add(1)
		for r := bufio.NewReader(c); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			switch strings.TrimSpace(line) {
			case password:
				io.WriteString(c, "+OK\r\n")
			case "bale:ready":
				io.WriteString(c, "$-1\r\n")
			}
		}
	})
	tries := 0
	p, err := startOn(t.Context(), func() (int, error) {
		if tries++; tries == 1 {
			return net.LookupPort("tcp", stranger[strings.LastIndex(stranger, ":")+1:])
		}
		return redisproc.FreePort()
	}, path, server.Addr(), password)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if n := asked.Load(); n > 0 || p.Addr() == stranger {
		t.Errorf("the stranger at %s was asked %d times; the proxy is at %s", stranger, n, p.Addr())
	}
}

// TestEnvironment: the proxy does not get the passwords of other servers, which others may be able
// to read there. Its folder's path may be long.
func TestEnvironment(t *testing.T) {
	const secret = "password-of-production"
	t.Setenv("REDISCLI_AUTH", secret)
	long := filepath.Join(t.TempDir(), strings.Repeat("long", 50))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", long)
	_, p := proxyWith(t, "")
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID())); err == nil && strings.Contains(string(b), secret) {
		t.Errorf("its environment is %q", b)
	}
}
