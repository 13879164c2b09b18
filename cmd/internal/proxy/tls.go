package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
)

// Certificates are the files in PEM with which clients' connections are encrypted. They are read
// again at each Reload.
type Certificates struct {
	Cert, Key string // of the proxy
	CA        string // of clients, which then need a certificate; empty if they need none
}

// check reports files that do not go together. The errors name the command's flags.
func (f *Certificates) check() error {
	if (f.Cert == "") != (f.Key == "") || f.CA != "" && f.Cert == "" {
		return fmt.Errorf("--listen-cert and --listen-key go together, and --listen-ca needs them")
	}
	return nil
}

// load reads the files. It returns nil if there are none.
func (f *Certificates) load() (*tls.Config, error) {
	if f.Cert == "" {
		return nil, nil
	}
	own, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("--listen-cert and --listen-key: %w", err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("--listen-ca: %w", err)
		}
		if c.ClientCAs = x509.NewCertPool(); !c.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--listen-ca %s has no certificate in PEM", f.CA)
		}
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return c, nil
}

// handshake waits for the client's part of TLS.
func handshake(ctx context.Context, c net.Conn) error {
	secure, ok := c.(*tls.Conn)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return secure.HandshakeContext(ctx)
}
