package keyspace

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestDialTLS: a node has a certificate for its own host, or for the one that the URL names. One
// for another name, or of another authority, is refused.
func TestDialTLS(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name                string // of the certificate
		stranger, skip, url bool   // not of the authority; not verified; the URL names no host
		ok                  bool
	}{
		{name: "seed.example", ok: true}, {name: "127.0.0.1", ok: true}, {name: "other.example"},
		{name: "127.0.0.1", stranger: true}, {name: "seed.example", stranger: true},
		{name: "other.example", stranger: true, skip: true, ok: true},
		{name: "127.0.0.1", url: true, ok: true}, {name: "seed.example", url: true},
	} {
		c := &x509.Certificate{
			SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		}
		if ip := net.ParseIP(test.name); ip != nil {
			c.IPAddresses = []net.IP{ip}
		} else {
			c.DNSNames = []string{test.name}
		}
		der, err := x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private)
		if err != nil {
			t.Fatal(err)
		}
		pair := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan struct{})
		go func() {
			defer close(served)
			if conn, err := l.Accept(); err == nil {
				_ = conn.(*tls.Conn).Handshake()
				conn.Close()
			}
		}()
		config := &tls.Config{RootCAs: x509.NewCertPool(), InsecureSkipVerify: test.skip}
		if !test.url {
			config.ServerName = "seed.example"
		}
		if own, err := x509.ParseCertificate(der); err == nil && !test.stranger {
			config.RootCAs.AddCert(own)
		}
		conn, err := Dial(t.Context(), &redis.Options{TLSConfig: config}, "tcp", l.Addr().String())
		if (err == nil) != test.ok {
			t.Errorf("%+v: %v", test, err)
		}
		if err == nil {
			conn.Close()
		}
		<-served
		l.Close()
	}
}
