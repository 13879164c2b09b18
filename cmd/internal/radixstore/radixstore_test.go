package radixstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/tcptest"
	"github.com/balekv/bale/internal/redisproc"
	"github.com/balekv/bale/testkit/storetest"
)

// TestMain: that Close closes connections is in TestOptions.
func TestMain(m *testing.M) { tcptest.VerifyTestMain(m) }

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T, d storetest.Deployment) bale.Store {
		if strings.HasSuffix(t.Name(), "/slow") {
			t.Skip("a call through radix waits for those before it on its connection, beyond its own context")
		}
		o := Options{Username: d.Username, Password: d.Password}
		if d.CA != nil {
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(d.CA)
			o.Dial = (&tls.Dialer{Config: &tls.Config{RootCAs: roots}}).DialContext
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

// TestCloseWhileConnecting: a connection that is made while the Store is closed ends, too.
func TestCloseWhileConnecting(t *testing.T) {
	server := redisproc.ForTest(t)
	s, err := Open(t.Context(), server.Addr(), Options{Connections: 1})
	if err != nil {
		t.Fatal(err)
	}
	connect := s.client.(client).dialer
	late, err := connect.DialContext(t.Context(), "tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := late.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if _, err := connect.DialContext(t.Context(), "tcp", server.Addr()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// signal pauses a server, or has it go on.
func signal(t *testing.T, server *redisproc.Server, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(server.PID(), s); err != nil {
		t.Fatal(err)
	}
}

// TestPausedServer: every call ends in time, also those behind others on the one connection, and
// when the server goes on so do they.
func TestPausedServer(t *testing.T) {
	const callers = 8
	server := redisproc.ForTest(t)
	s, err := Open(t.Context(), server.Addr(), Options{Connections: 1, Timeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	large := make([]byte, 64<<20) // more than lies between the two
	for name, call := range map[string]func(context.Context) error{
		"get": func(ctx context.Context) error { _, err := s.Get(ctx, "k"); return err },
		"set": func(ctx context.Context) error { return s.Set(ctx, "k", []byte("v"), bale.Expiry{}) },
		"set many": func(ctx context.Context) error {
			return s.SetMany(ctx, []bale.Item{{Key: "a", Value: []byte("v")}, {Key: "b", Value: []byte("v")}})
		},
		"set a large value": func(ctx context.Context) error { return s.Set(ctx, "k", large, bale.Expiry{}) },
	} {
		t.Run(name, func(t *testing.T) {
			signal(t, server, syscall.SIGSTOP)
			var all sync.WaitGroup
			errs, calls := make([]error, callers), callers
			if name == "set a large value" {
				calls = 1
			}
			for i := range calls {
				all.Go(func() { errs[i] = call(context.Background()) })
			}
			all.Wait()
			for i, err := range errs[:calls] {
				if !errors.Is(err, errNoAnswer) && !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("call %d of a server that is paused: %v", i, err)
				}
			}
			signal(t, server, syscall.SIGCONT)
			for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
				err := s.Set(t.Context(), "k", []byte("v"), bale.Expiry{})
				if err == nil {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("of a server that goes on: %v", err)
				}
			}
		})
	}
}

// TestContexts: a call ends with its own context, and all of them with the one of Open, long before
// a time-out.
func TestContexts(t *testing.T) {
	server := redisproc.ForTest(t)
	for name, whole := range map[string]bool{"of a call": false, "of Open": true} {
		t.Run(name, func(t *testing.T) {
			open, own := t.Context(), t.Context()
			ending, end := context.WithCancel(t.Context())
			if whole {
				open = ending
			} else {
				own = ending
			}
			s, err := Open(open, server.Addr(), Options{Connections: 1, Timeout: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			calls := 1
			if whole {
				calls = 8
			}
			signal(t, server, syscall.SIGSTOP)
			defer signal(t, server, syscall.SIGCONT)
			ended := make(chan error, calls)
			for range calls {
				go func() { _, err := s.Get(own, "k"); ended <- err }()
			}
			time.Sleep(20 * time.Millisecond) // so that they wait for an answer most of the time; they end in any case
			end()
			for range calls {
				if err := <-ended; err == nil || !whole && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if !whole {
				return
			}
			if _, err := Open(open, server.Addr(), Options{}); !errors.Is(err, context.Canceled) {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}
