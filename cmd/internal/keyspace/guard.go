package keyspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// go-redis makes room for as many bytes and elements as a reply announces. It reads lines of any
// length, and lists however deep. So a reply beyond these limits ends its connection. They are
// above all that Redis sends to a command, except for a stream's entry of many fields.
const (
	largestString = 512 << 20 // bytes, as in Redis unless it is set otherwise
	largestLine   = 64 << 10  // bytes, an error for example
	longestNumber = 32        // bytes of a line with a length
	mostElements  = 1 << 20   // that lists within each other announce, and that are not there yet
	deepestReply  = 64        // lists within each other
)

var errReply = errors.New("the reply is malformed or too large")

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// guarded dials connections whose replies have the limits, most bytes of a string among them.
func guarded(dial dialer, most int64) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		g := &guard{Conn: c, most: most}
		if raw, ok := c.(syscall.Conn); ok { // by which go-redis sees that an idle connection has ended
			return struct {
				*guard
				syscall.Conn
			}{g, raw}, nil
		}
		return g, nil
	}
}

// guard follows what it reads.
type guard struct {
	net.Conn
	most int64

	body  int64   // bytes of a string that are still to come, its end included
	line  []byte  // the start of a line, as far as it matters
	lined int     // bytes of the line
	open  []int64 // elements that the open lists still lack, the innermost last
	lack  int64   // their sum
	err   error
}

// Read implements net.Conn.
func (g *guard) Read(p []byte) (int, error) {
	if g.err != nil {
		return 0, g.err
	}
	n, err := g.Conn.Read(p)
	if g.err = g.follow(p[:n]); g.err != nil {
		return 0, g.err
	}
	return n, err
}

func (g *guard) follow(b []byte) error {
	for len(b) > 0 {
		if g.body > 0 {
			n := min(g.body, int64(len(b)))
			b = b[n:]
			if g.body -= n; g.body == 0 {
				g.element()
			}
			continue
		}
		end := bytes.IndexByte(b, '\n') + 1
		part := b[:end]
		if end == 0 {
			part = b
		}
		b = b[len(part):]
		if g.lined += len(part); g.lined > largestLine {
			return fmt.Errorf("%w: a line of more than %d bytes", errReply, largestLine)
		}
		g.line = append(g.line, part[:min(len(part), longestNumber-len(g.line))]...)
		if end == 0 {
			return nil
		}
		err := g.header(g.line)
		if g.line, g.lined = g.line[:0], 0; err != nil {
			return err
		}
	}
	return nil
}

// header follows a line.
func (g *guard) header(line []byte) error {
	kind := line[0]
	switch kind {
	case '$', '=', '!', '*', '~', '>', '%', '|':
	default: // it is an element itself, or go-redis says that it is none
		g.element()
		return nil
	}
	n, err := strconv.ParseInt(string(bytes.TrimRight(line[1:], "\r\n")), 10, 64)
	switch {
	case err != nil || n < -1 || g.lined > longestNumber:
		return fmt.Errorf("%w: a length that is no number", errReply)
	case n == -1:
		g.element()
	case kind == '$' || kind == '=' || kind == '!':
		if n > g.most {
			return fmt.Errorf("%w: a string of %d bytes", errReply, n)
		}
		g.body = n + int64(len("\r\n"))
	default:
		if n > mostElements {
			return fmt.Errorf("%w: a list of %d elements", errReply, n)
		}
		switch kind {
		case '%':
			n *= 2
		case '|': // belongs to the element that follows
			n = 2*n + 1
		}
		if n == 0 {
			g.element()
			return nil
		}
		g.open, g.lack = append(g.open, n), g.lack+n
		if g.lack > mostElements || len(g.open) > deepestReply {
			return fmt.Errorf("%w: lists of %d elements, %d within each other", errReply, g.lack, len(g.open))
		}
	}
	return nil
}

// element notes that an element is there, and lists that are complete with it.
func (g *guard) element() {
	for last := len(g.open) - 1; last >= 0; last-- {
		g.open[last]--
		if g.lack--; g.open[last] > 0 {
			return
		}
		g.open = g.open[:last]
	}
}
