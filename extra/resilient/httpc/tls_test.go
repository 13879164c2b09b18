package httpc

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/balekv/bale/extra/resilient"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) authority {
	a := authority{}
	var pair tls.Certificate
	pair, a.pem, _ = a.sign(t, "CA")
	a.cert, a.key = pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey)
	return a
}

// sign returns a certificate for a name and for 127.0.0.1. Without an authority it is one itself.
func (a authority) sign(t *testing.T, name string) (pair tls.Certificate, cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: a.cert == nil,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	parent, by := a.cert, a.key
	if parent == nil {
		parent, by = c, private
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &private.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	key = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})
	pair, err = tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair, cert, key
}

// TestCertificatesReload: a server takes a new certificate of a new authority, and demands one of
// it from its clients, while a client goes on.
func TestCertificatesReload(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint("HTTP2=", http2), func(t *testing.T) {
			dir := t.TempDir()
			files := TLS{CA: filepath.Join(dir, "ca"), Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), Every: time.Nanosecond}
			write := func(name string, content []byte) {
				t.Helper()
				if err := os.WriteFile(name, content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			start := func(a authority) *httptest.Server {
				s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
				}))
				s.EnableHTTP2 = http2
				pool := x509.NewCertPool()
				pool.AddCert(a.cert)
				pair, _, _ := a.sign(t, "server")
				s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
				s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
				s.StartTLS()
				t.Cleanup(s.Close)
				return s
			}
			before, after := newAuthority(t), newAuthority(t)
			_, cert, key := before.sign(t, "first")
			write(files.CA, before.pem)
			write(files.Cert, cert)
			write(files.Key, key)
			var out records
			c := newClient(t, Options{TLS: files, Guard: &resilient.Options{}, Log: slog.New(slog.NewJSONHandler(&out, nil))})
			ask := func(s *httptest.Server) (string, error) {
				resp, err := c.Get(s.URL)
				if err != nil {
					return "", err
				}
				defer resp.Body.Close()
				if (resp.ProtoMajor == 2) != http2 {
					t.Errorf("answered with %s", resp.Proto)
				}
				got, err := io.ReadAll(resp.Body)
				return string(got), err
			}
			expect := func(s *httptest.Server, want string) {
				t.Helper()
				if got, err := ask(s); got != want || err != nil {
					t.Errorf("the server saw %q, %v, not %q", got, err, want)
				}
			}
			old := start(before)
			expect(old, "first")
			_, cert, key = before.sign(t, "second")
			write(files.Cert, cert)
			expect(old, "first") // its key is not there yet
			if !strings.Contains(out.String(), "not reloaded") {
				t.Errorf("the log has %q", out.String())
			}
			write(files.Key, key)
			expect(old, "second")
			write(files.CA, []byte("nothing"))
			expect(old, "second")
			if err := os.Remove(files.Cert); err != nil {
				t.Fatal(err)
			}
			expect(old, "second")

			renewed := start(after)
			if got, err := ask(renewed); err == nil {
				t.Errorf("the server of another authority answered %q", got)
			}
			_, cert, key = after.sign(t, "third")
			write(files.CA, after.pem)
			write(files.Cert, cert)
			write(files.Key, key)
			expect(renewed, "third")
			if got, err := ask(old); err == nil {
				t.Errorf("the server of the old authority answered %q", got)
			}
		})
	}
}

// TestConnectionsEndAfterReload: a connection of HTTP/2 in use closes at the first look after its
// call.
func TestConnectionsEndAfterReload(t *testing.T) {
	a := newAuthority(t)
	pair, _, _ := a.sign(t, "server")
	closed := make(chan struct{}, 9)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		io.Copy(w, r.Body)
	}))
	s.EnableHTTP2, s.TLS = true, &tls.Config{Certificates: []tls.Certificate{pair}}
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	ca := filepath.Join(t.TempDir(), "ca")
	write := func(content []byte) {
		if err := os.WriteFile(ca, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(a.pem)
	c := newClient(t, Options{Guard: none, TLS: TLS{CA: ca, Every: time.Nanosecond}})
	body, end := io.Pipe()
	resp, err := c.Post(s.URL, "", body) // goes on
	if err != nil {
		t.Fatal(err)
	}
	write(append(newAuthority(t).pem, a.pem...))
	send(t, c, "GET", s.URL, "")
	select {
	case <-closed:
		t.Error("the connection was closed in use")
	default:
	}
	io.WriteString(end, "a")
	end.Close()
	if got, err := io.ReadAll(resp.Body); string(got) != "a" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	resp.Body.Close()
	for range 1000 { // its stream ends soon
		send(t, c, "GET", s.URL, "")
		select {
		case <-closed:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Error("the connection is open still")
}
