// Package tcptest stands in for servers in tests: [Listen] and [Serve] answer connections by a
// function.
package tcptest

import (
	"net"
	"testing"
)

// Listen answers connections at an address of loopback until the test ends. It returns the address.
func Listen(t testing.TB, each func(net.Conn)) string {
	t.Helper()
	return Serve(t, "127.0.0.1:0", each)
}

// Serve is Listen at a given address. Each runs in a goroutine of its own for each connection,
// which is closed when it returns.
func Serve(t testing.TB, addr string, each func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				each(c)
			}()
		}
	}()
	return l.Addr().String()
}
