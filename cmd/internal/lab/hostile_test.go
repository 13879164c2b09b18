package lab

import (
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/tcptest"
	"github.com/balekv/bale/internal/redisproc"
)

// boaster is the URL of a server that answers a command by a reply that announces what never comes.
func boaster(t *testing.T, command, reply string) (url string) {
	answers := map[string]string{"PING": "+PONG\r\n", "INFO": "$0\r\n\r\n", "HELLO": "%1\r\n+proto\r\n:3\r\n"}
	answers[command] = reply
	return "redis://" + tcptest.Redis(t, answers)
}

// TestHostileServer: a server of --redis that announces what it does not send is an error, of the
// lab's own client and of those that are measured.
func TestHostileServer(t *testing.T) {
	for _, reply := range []string{"$9223372036854775807\r\n", "$9223372036854775805\r\n", "*9223372036854775807\r\n", "%4611686018427387904\r\n", "$-9\r\n"} {
		if s, err := OpenServer(t.Context(), boaster(t, "PING", reply), keyspace.Login{}); err == nil {
			s.Close()
			t.Errorf("%q as the answer to PING is no error", reply)
		}
		s, err := OpenServer(t.Context(), boaster(t, "GET", reply), keyspace.Login{})
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
