package lab

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/tcptest"
	"github.com/balekv/bale/cmd/internal/twemproxy"
	"github.com/balekv/bale/internal/redisproc"
)

// TestPortTakenMeanwhile: who takes the port of a private server or proxy that has ended gets
// nothing from any client, not even the password.
func TestPortTakenMeanwhile(t *testing.T) {
	redisproc.ForTest(t) // skips where there is no server
	for _, name := range []string{"goredis", "goredis+auto", "rueidis", "rueidis-auto", "redigo", "radix", "goredis@twemproxy", "rueidis@twemproxy", "redigo@twemproxy", "radix@twemproxy"} {
		t.Run(name, func(t *testing.T) {
			server, err := OpenPrivate(t.Context(), ServerSetting{})
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			setting, err := ParseClient(name)
			if err != nil {
				t.Fatal(err)
			}
			err = server.dial(t.Context(), &Config{Clients: []ClientSetting{setting}, Concurrency: []int{2}, timeout: time.Second})
			if errors.Is(err, twemproxy.ErrNotInstalled) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { server.closeClients(nil) }()
			store := server.clients[0].store
			if err := store.Set(t.Context(), "k", []byte("value"), bale.Expiry{}); err != nil {
				t.Fatal(err)
			}
			addr, end := server.Options.Addr, server.close
			if setting.Proxy {
				addr, end = server.proxy.Addr(), server.proxy.Close
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
			var got atomic.Int64
			tcptest.Serve(t, addr, func(c net.Conn) {
				for b := make([]byte, 4096); ; {
					n, err := c.Read(b)
					if got.Add(int64(n)); err != nil {
						return
					}
				}
			})
			for i := range 5 {
				short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond) // radix waits for a connection
				defer cancel()
				if err := store.Set(short, strconv.Itoa(i), []byte("value"), bale.Expiry{}); err == nil {
					t.Error("a value was stored")
				}
			}
			if !setting.Proxy {
				if err := server.client.Ping(t.Context()).Err(); !errors.Is(err, redisproc.ErrGone) {
					t.Error(err)
				}
			}
			if n := got.Load(); n > 0 {
				t.Errorf("the stranger got %d bytes", n)
			}
		})
	}
}
