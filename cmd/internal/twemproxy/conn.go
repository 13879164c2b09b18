package twemproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// dialTimeout is for the password alone.
const dialTimeout = 5 * time.Second

// conn is a connection whose HELLO is answered on this side. A client says it first, and waits for
// the answer before it sends or reads anything else.
type conn struct {
	*net.TCPConn
	began  bool   // something was written; for Write alone
	answer []byte // what is to be read first
}

// Dialer connects, as a [net.Dialer] does.
type Dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// Dial returns a function that connects to a proxy by another one, mostly [Proxy.DialContext], for
// clients that begin with HELLO: go-redis and rueidis. The proxy would close the connection.
// Instead Dial answers like a server that is too old for HELLO, and the client goes on without.
// Dial sends the password, if it is not empty, so the client must not. It changes nothing else.
func Dial(password string, dial Dialer) Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		tcp, ok := c.(*net.TCPConn)
		if !ok {
			err = fmt.Errorf("twemproxy: network %q: want tcp", network)
		} else if password != "" {
			err = authenticate(tcp, password)
		}
		if err != nil {
			c.Close()
			return nil, err
		}
		return &conn{TCPConn: tcp}, nil
	}
}

// authenticate gives a proxy the password of its server.
func authenticate(c net.Conn, password string) error {
	c.SetDeadline(time.Now().Add(dialTimeout))
	defer c.SetDeadline(time.Time{})
	if _, err := fmt.Fprintf(c, "*2\r\n$4\r\nAUTH\r\n$%d\r\n%s\r\n", len(password), password); err != nil {
		return err
	}
	const ok = "+OK\r\n" // all that there is to be read: the proxy answers alone
	reply := make([]byte, len(ok))
	if _, err := io.ReadFull(c, reply); err != nil || string(reply) != ok {
		return errors.Join(errRefused, err)
	}
	return nil
}

// Write implements [net.Conn].
func (c *conn) Write(b []byte) (int, error) {
	if c.began {
		return c.TCPConn.Write(b)
	}
	c.began = true
	hello := helloLength(b)
	if hello > 0 {
		c.answer = []byte("-ERR unknown command 'HELLO'\r\n")
	}
	if hello == len(b) {
		return len(b), nil
	}
	n, err := c.TCPConn.Write(b[hello:])
	return hello + n, err
}

// Read implements [net.Conn].
func (c *conn) Read(b []byte) (int, error) {
	if len(c.answer) > 0 {
		n := copy(b, c.answer)
		c.answer = c.answer[n:]
		return n, nil
	}
	return c.TCPConn.Read(b)
}

// helloLength is how many bytes of b are a whole HELLO at its start; 0 if there is none.
func helloLength(b []byte) int {
	length := 0
	// line takes a line and returns its number, after a type.
	line := func(kind byte) (n int, ok bool) {
		end := bytes.Index(b[length:], []byte("\r\n"))
		if end < 2 || b[length] != kind {
			return 0, false
		}
		for _, digit := range b[length+1 : length+end] {
			if digit < '0' || digit > '9' || n > len(b) {
				return 0, false
			}
			n = 10*n + int(digit-'0')
		}
		length += end + 2
		return n, true
	}
	elements, ok := line('*')
	if !ok || elements == 0 {
		return 0
	}
	for i := range elements {
		size, ok := line('$')
		if !ok || len(b) < length+size+2 || i == 0 && !bytes.EqualFold(b[length:length+size], []byte("hello")) {
			return 0
		}
		length += size + 2
	}
	return length
}
