package proxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	numbers "math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/internal/redisproc"
)

// certify writes a certificate for 127.0.0.1 that signs itself.
func certify(t *testing.T, serial int64, cert, key string) *x509.Certificate {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: numbers.NewInt(serial), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestTLS: clients use TLS, with a certificate where that is wanted. A client that does not begin
// its handshake holds up no other, and certificates are read again.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	own := certify(t, 1, file("cert"), file("key"))
	certify(t, 2, file("client.cert"), file("client.key"))
	server := redisproc.ForTest(t)
	reload := make(chan os.Signal)
	var notes lines
	o := options(server.URL(), "user:*")
	o.TLS, o.Reload, o.Err = Certificates{Cert: file("cert"), Key: file("key"), CA: file("client.cert")}, reload, &notes
	p := start(t, o)
	dial(t, p.addr) // and no handshake
	pair, err := tls.LoadX509KeyPair(file("client.cert"), file("client.key"))
	if err != nil {
		t.Fatal(err)
	}
	roots := func(c *x509.Certificate) *x509.CertPool {
		pool := x509.NewCertPool()
		pool.AddCert(c)
		return pool
	}
	client := func(c *tls.Config) *redis.Client {
		r := redis.NewClient(&redis.Options{Addr: p.addr, TLSConfig: c, MaxRetries: -1})
		t.Cleanup(func() { r.Close() })
		return r
	}
	ctx := t.Context()
	r := client(&tls.Config{RootCAs: roots(own), Certificates: []tls.Certificate{pair}})
	value := strings.Repeat(big("x"), 1000)
	if err := r.Set(ctx, "user:1", value, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if v, err := r.Get(ctx, "user:1").Result(); v != value || err != nil {
		t.Errorf("%d bytes, %v", len(v), err)
	}
	if err := client(&tls.Config{RootCAs: roots(own)}).Ping(ctx).Err(); err == nil {
		t.Error("a client without a certificate is served")
	}
	next := certify(t, 3, file("cert"), file("key"))
	reload <- syscall.SIGHUP
	notes.await(t, "has read the certificates again")
	if err := client(&tls.Config{RootCAs: roots(next), Certificates: []tls.Certificate{pair}}).Ping(ctx).Err(); err != nil {
		t.Errorf("with the next certificate: %v", err)
	}
	if err := r.Ping(ctx).Err(); err != nil {
		t.Errorf("the connection that is there: %v", err)
	}
	for _, wrong := range []Certificates{{Cert: "c"}, {Key: "k"}, {CA: "c"}} {
		o.TLS = wrong
		if err := Run(ctx, o); !errors.Is(err, cli.ErrUsage) {
			t.Errorf("%v: %v", wrong, err)
		}
	}
	o.TLS = Certificates{Cert: file("none"), Key: file("key")}
	if err := Run(ctx, o); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestReloadTLS: certificates are read again although the file of --config cannot be used.
func TestReloadTLS(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	certify(t, 1, file("cert"), file("key"))
	writeConfig(t, file("config"), `{"groups":[{"match":["user:*"],"compress":"s2"}]}`)
	reload := make(chan os.Signal)
	var notes lines
	o := options(redisproc.ForTest(t).URL(), "user:*")
	o.ConfigFile, o.Reload, o.Err = file("config"), reload, &notes
	o.TLS = Certificates{Cert: file("cert"), Key: file("key")}
	p := start(t, o)
	next := certify(t, 2, file("cert"), file("key"))
	writeConfig(t, file("config"), `{`)
	reload <- syscall.SIGHUP
	notes.await(t, "keeps the settings it has: ")
	roots := x509.NewCertPool()
	roots.AddCert(next)
	talk(t, dialTLS(t, p.addr, &tls.Config{RootCAs: roots}), wire("PING"), "+PONG\r\n")
}
