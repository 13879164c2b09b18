package httpc

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/balekv/bale"
)

// TLS names PEM files, which may change while the program runs: before a call that comes Every
// after the last look, they are read again. New certificates are used for new connections. The idle
// ones close at once; those in use close at the first look after their calls, or when 90 s idle.
// Files that do not fit together, as in the middle of a change, leave the certificates before in
// use.
type TLS struct {
	// CA has the certificates of the authorities that servers are trusted for. Default those of the
	// system.
	CA string

	// Cert and Key are the client's certificate, with its chain, and its key. Default none.
	Cert, Key string

	// Every is how often the files are looked at. Default 10 s.
	Every time.Duration

	// Config has all other settings. It is not changed. Default that of package tls.
	Config *tls.Config
}

// certificates are the contents of the files of a TLS.
type certificates struct{ ca, cert, key []byte }

func (t TLS) read() (c certificates, err error) {
	if (t.Cert == "") != (t.Key == "") {
		return c, fmt.Errorf("httpc: %w: TLS needs both Cert and Key", bale.ErrInvalid)
	}
	for _, f := range []struct {
		name    string
		content *[]byte
	}{{t.CA, &c.ca}, {t.Cert, &c.cert}, {t.Key, &c.key}} {
		if f.name == "" {
			continue
		}
		if *f.content, err = os.ReadFile(f.name); err != nil {
			return c, fmt.Errorf("httpc: %w", err)
		}
	}
	return c, nil
}

func (c certificates) equal(d certificates) bool {
	return bytes.Equal(c.ca, d.ca) && bytes.Equal(c.cert, d.cert) && bytes.Equal(c.key, d.key)
}

// config is base with these certificates.
func (c certificates) config(base *tls.Config) (*tls.Config, error) {
	if base == nil {
		base = &tls.Config{}
	}
	base = base.Clone()
	if c.ca != nil {
		base.RootCAs = x509.NewCertPool()
		if !base.RootCAs.AppendCertsFromPEM(c.ca) {
			return nil, fmt.Errorf("httpc: %w: TLS.CA has no certificate", bale.ErrInvalid)
		}
	}
	if c.cert != nil {
		pair, err := tls.X509KeyPair(c.cert, c.key)
		if err != nil {
			return nil, fmt.Errorf("httpc: %w: TLS.Cert and TLS.Key: %w", bale.ErrInvalid, err)
		}
		base.Certificates = []tls.Certificate{pair}
	}
	return base, nil
}

// reload looks whether the files have changed, if it is time. One call does; the others go on with
// the certificates they have.
func (t *Transport) reload() {
	o := t.o.TLS
	if o.CA == "" && o.Cert == "" || time.Since(time.Unix(0, t.checked.Load())) < cmp.Or(o.Every, 10*time.Second) || !t.changing.TryLock() {
		return
	}
	defer t.changing.Unlock()
	t.checked.Store(time.Now().UnixNano())
	t.closeBefore() // those that were in use, or were just asked for, at the last look
	files, err := o.read()
	if err == nil && files.equal(t.files) {
		return
	}
	if err == nil {
		err = t.load(files)
	}
	if err != nil && t.o.Log != nil {
		t.o.Log.Warn("httpc: certificates were not reloaded; those before stay in use", "error", err)
	}
}
