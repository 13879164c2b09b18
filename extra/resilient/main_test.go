package resilient

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv("RESILIENT_SERVE"); addr != "" {
		fmt.Fprintln(os.Stderr, serve(addr))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// ServedConnections is how many connections the HTTP server has.
const ServedConnections = 4

// serve makes this process an HTTP server, which refuses further connections.
func serve(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	few := &fewConnections{Listener: l}
	server := http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/refused" {
				fmt.Fprint(w, few.refused.Load())
				return
			}
			fmt.Fprint(w, "well")
		}),
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateClosed {
				few.open.Add(-1)
			}
		},
	}
	return server.Serve(few)
}

type fewConnections struct {
	net.Listener
	open, refused atomic.Int64
}

func (l *fewConnections) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil || l.open.Load() < ServedConnections {
			l.open.Add(1)
			return conn, err
		}
		l.refused.Add(1)
		conn.Close()
	}
}
