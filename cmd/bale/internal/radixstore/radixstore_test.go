package radixstore

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/balekv/bale"
	"github.com/balekv/bale/redisproc"
	"github.com/balekv/bale/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T, d storetest.Deployment) bale.Store {
		if strings.HasSuffix(t.Name(), "/slow") {
			t.Skip("a call through radix waits for those before it on its connection, beyond its own context")
		}
		o := Options{Username: d.Username, Password: d.Password}
		if d.CA != nil {
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(d.CA)
			o.TLS = &tls.Config{RootCAs: roots}
		}
		s, err := Open(t.Context(), d.Addrs[0], o)
		if err != nil {
			if d.Username != "" {
				return nil
			}
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}, storetest.Cluster, storetest.Sentinel)
}

func TestOptions(t *testing.T) {
	server := redisproc.ForTest(t)
	s, err := Open(t.Context(), server.Addr(), Options{Connections: 7, DB: 3})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Set(t.Context(), "k", []byte("v"), bale.Expiry{}); err != nil {
		t.Error(err)
	}
	if reply, err := server.Do(t.Context(), "INFO", "keyspace"); err != nil || !strings.Contains(reply, "db3:keys=1,") {
		t.Errorf("%q, %v", reply, err)
	}
	clients := func(n int) {
		t.Helper()
		want := fmt.Sprintf("connected_clients:%d\r\n", n+1) // with the one that asks
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			reply, err := server.Do(t.Context(), "INFO", "clients")
			if err == nil && strings.Contains(reply, want) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s, %v; want %s", reply, err, want)
			}
		}
	}
	clients(7)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	clients(0)
	if _, err := Open(t.Context(), server.Addr(), Options{Password: "wrong"}); err == nil {
		t.Error("a password that the server does not ask for is taken")
	}
}
