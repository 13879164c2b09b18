package lab

import (
	"bufio"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/tcptest"
	"github.com/balekv/bale/internal/redisproc"
)

// boaster is the URL of a server that answers a command by a reply that announces what never comes.
func boaster(t *testing.T, command, reply string) (url string) {
	return "redis://" + tcptest.Listen(t, func(c net.Conn) {
		for r := bufio.NewReader(c); ; {
			line, err := r.ReadString('\n')
			var n, size int
			if _, bad := fmt.Sscanf(line, "*%d", &n); err != nil || bad != nil {
				return
			}
			words := make([]string, n)
			for i := range words {
				line, _ := r.ReadString('\n')
				fmt.Sscanf(line, "$%d", &size)
				b := make([]byte, size+2)
				if _, err := io.ReadFull(r, b); err != nil {
					return
				}
				words[i] = string(b[:size])
			}
			answer := map[string]string{"PING": "+PONG\r\n", "INFO": "$0\r\n\r\n", "HELLO": "%1\r\n+proto\r\n:3\r\n", strings.ToUpper(command): reply}[strings.ToUpper(words[0])]
			if answer == "" {
				answer = "-ERR unknown command\r\n"
			}
			if _, err := io.WriteString(c, answer); err != nil {
				return
			}
		}
	})
}

// TestHostileServer: a server of --redis that announces what it does not send is an error, of the
// lab's own client and of those that are measured.
func TestHostileServer(t *testing.T) {
	for _, reply := range []string{"$9223372036854775807\r\n", "$9223372036854775805\r\n", "*9223372036854775807\r\n", "%4611686018427387904\r\n", "$-9\r\n"} {
		if s, err := OpenServer(t.Context(), boaster(t, "ping", reply), keyspace.Login{}); err == nil {
			s.Close()
			t.Errorf("%q as the answer to PING is no error", reply)
		}
		s, err := OpenServer(t.Context(), boaster(t, "get", reply), keyspace.Login{})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range Clients {
			c, err := dial(t.Context(), ClientSetting{Name: name}, *s.Options, 1, time.Second)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if _, err := c.store.Get(t.Context(), "key"); err == nil {
				t.Errorf("%s: %q as the answer to GET is no error", name, reply)
			}
			c.close()
		}
		s.Close()
	}
}

// TestTLS: all clients reach a server by TLS.
func TestTLS(t *testing.T) {
	web := httptest.NewTLSServer(nil) // for its certificate
	web.Close()
	pair := web.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := redisproc.TLS{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), CA: filepath.Join(dir, "cert")}
	for path, block := range map[string]*pem.Block{
		files.Cert: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, files.Key: {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server := redisproc.ForTestWith(t, redisproc.Options{TLS: files})
	s, err := OpenServer(t.Context(), "rediss://"+server.Addr(), keyspace.Login{CA: files.CA})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, name := range Clients {
		c, err := dial(t.Context(), ClientSetting{Name: name}, *s.Options, 1, 10*time.Second)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := c.store.Set(t.Context(), "key", []byte(name), bale.Expiry{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := c.store.Get(t.Context(), "key"); err != nil || string(got) != name {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		c.close()
	}
}
