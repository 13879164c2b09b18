package radixstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/mediocregopher/radix/v4"
)

// errNoAnswer says that the server did not answer in time. It is not os.ErrDeadlineExceeded, which
// radix takes for the end of a caller's context.
var errNoAnswer = errors.New("no answer from the server")

// dialer makes connections that have time-outs, which radix has not, and that end with a context.
type dialer struct {
	dial    func(ctx context.Context, network, addr string) (net.Conn, error)
	timeout time.Duration
	until   context.Context       // for it ends connections and not calls
	broke   atomic.Pointer[error] // why the last connection did, that did not end with a context
}

// DialContext is what radix takes.
func (d *dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if err := d.until.Err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	plain, err := d.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: plain, dialer: d}
	c.stay = context.AfterFunc(d.until, func() { plain.Close() })
	return c, nil
}

// conn is a connection of radix, which reads where an answer is awaited, and else not.
type conn struct {
	net.Conn
	dialer *dialer
	stay   func() bool // it does not end with the context any more
	ended  atomic.Bool // a caller's context ended: the deadline is radix'
}

// SetReadDeadline puts the time-out in the place of none, which radix sets before it reads each
// answer.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.ended.Store(!t.IsZero())
	if t.IsZero() {
		t = time.Now().Add(c.dialer.timeout)
	}
	return c.Conn.SetReadDeadline(t)
}

// Read implements [net.Conn].
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && !c.ended.Load() {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("%w within %v", errNoAnswer, c.dialer.timeout)
		}
		c.dialer.broke.Store(&err)
	}
	return n, err
}

// Write implements [net.Conn].
func (c *conn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.dialer.timeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.stay()
	return c.Conn.Close()
}

// client says why a connection was closed.
type client struct {
	radix.Client
	dialer *dialer
	end    func() // of all connections
}

// Close implements [radix.Client]. radix leaves a connection open that it is making just then.
func (c client) Close() error {
	defer c.end()
	return c.Client.Close()
}

// Do implements [radix.Client].
func (c client) Do(ctx context.Context, a radix.Action) error {
	err := c.Client.Do(ctx, a)
	// After a break radix returns this error for all calls on the connection except the one that
	// saw it; it exports no such error.
	if err != nil && err.Error() == "closed" {
		if why := c.dialer.broke.Load(); why != nil {
			return fmt.Errorf("connection closed: %w", *why)
		}
	}
	return err
}
