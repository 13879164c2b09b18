package httpc

import (
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"time"
)

// aged is a connection that calls use until its end.
type aged struct {
	net.Conn
	end time.Time
}

type dial func(ctx context.Context, network, addr string) (net.Conn, error)

// aging returns dial with connections that age.
func aging(dial dial, age time.Duration) dial {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return aged{conn, time.Now().Add(age - rand.N(age/5+1))}, nil
	}
}

// old reports whether a connection, or the one under its TLS, has reached its age. TLS through a
// proxy with TLS has two layers.
func old(c net.Conn) bool {
	for {
		switch layer := c.(type) {
		case aged:
			return time.Now().After(layer.end)
		case interface{ NetConn() net.Conn }:
			c = layer.NetConn()
		default:
			return false
		}
	}
}

// retiring returns the request so that an old connection ends with it. A new protocol (Upgrade) has
// its connection for itself anyway.
func retiring(req *http.Request) *http.Request {
	if req.Header.Get("Upgrade") != "" {
		return req
	}
	var sent *http.Request
	sent = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(c httptrace.GotConnInfo) {
			if old(c.Conn) {
				sent.Close = true
				// net/http sends a copy of a request with a body, with the same map of headers. With
				// HTTP/1 the server must then close the connection.
				sent.Header.Set("Connection", "close")
			}
		},
	}))
	return sent
}
