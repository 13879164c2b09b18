package proxy

import (
	"errors"
	"io"
	"os"
	"time"
)

// mayHold reports whether the request that is held may take memory. Before the login it must not.
func (c *client) mayHold() bool {
	if !c.known.Load() && c.await((*queue).any) && !c.known.Load() {
		c.expects(expected{role: probe})
		if _, err := io.WriteString(c.server, ping); err != nil || !c.await((*queue).any) || !c.known.Load() {
			return false
		}
	}
	c.hurried = true
	c.deadline(c.conn.SetReadDeadline, len(c.up.buf))
	return true
}

// await waits for replies while busy reports true. It reports false at the end of the connection.
// That comes when requests behind a large one keep its memory for too long, or when the client
// takes none of the replies.
func (c *client) await(busy func(*queue) bool) bool {
	if n := c.up.taken; n > 0 {
		defer c.endIn(c.patience(n), "commands behind a large one waited too long for replies, and held its memory").Stop()
	}
	if c.down != nil {
		ended := make(chan struct{})
		defer close(ended)
		defer time.AfterFunc(c.proxy.options.Stall, func() { c.watch(ended) }).Stop()
	}
	return c.queue.wait(busy)
}

// endIn ends the connection unless the timer is stopped, with a note of why.
func (c *client) endIn(d time.Duration, why string) *time.Timer {
	return time.AfterFunc(d, func() {
		c.proxy.ends("connection: %s (--stall)", why)
		c.cancel()
	})
}

// watch ends a connection that has a write to its client for --stall without an end. The client may
// read only after all its requests are taken: neither side would go on then.
func (c *client) watch(ended <-chan struct{}) {
	tick := time.NewTicker(c.proxy.options.Stall)
	defer tick.Stop()
	for seen := c.down.writes.Load(); ; seen = c.down.writes.Load() {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		if seen%2 == 1 && seen == c.down.writes.Load() {
			c.unread(os.ErrDeadlineExceeded)
			c.cancel()
			return
		}
	}
}

// unread notes that the connection ends because its client has not read in time.
func (c *client) unread(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) && !c.proxy.draining.Load() {
		c.proxy.ends("connection: its client does not read the replies in time (--stall)")
	}
}

// patience is the time that a client has for n bytes.
func (c *client) patience(n int) time.Duration {
	return c.proxy.options.Stall + time.Duration(n)*time.Second/(128<<10)
}

// deadline gives the client time for n bytes, or without end for none.
func (c *client) deadline(set func(time.Time) error, n int) {
	var until time.Time
	if n > 0 {
		until = time.Now().Add(c.patience(n))
	}
	_ = set(until)
	if c.proxy.draining.Load() {
		c.interrupt()
	}
}

// interrupt ends reading, while the proxy drains.
func (c *client) interrupt() { _ = c.conn.SetReadDeadline(time.Now()) }
