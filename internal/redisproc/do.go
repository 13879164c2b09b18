package redisproc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ErrNil is the reply for no value.
var ErrNil = errors.New("redisproc: nil")

// Do sends one command, on a connection of its own, and returns the reply. Statuses, numbers and
// bulk strings come back as text, a list as one line per element. Do is for setup and inspection;
// programs use a client. The connection is to the server's socket, where nobody else can listen.
func (s *Server) Do(ctx context.Context, args ...string) (string, error) {
	conn, err := s.DialUnix(ctx)
	if err != nil {
		return "", err
	}
	return exchange(ctx, conn, s.password, args...)
}

// DialUnix connects to the server's socket, where nobody else can listen.
func (s *Server) DialUnix(ctx context.Context) (net.Conn, error) {
	return DialSocket(ctx, s.dir, socketFile)
}

// exchange sends one command, after a password if there is one, and closes the connection.
func exchange(ctx context.Context, conn net.Conn, password string, args ...string) (string, error) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })() // it ends what waits for the server
	var commands strings.Builder
	if password != "" {
		appendCommand(&commands, "AUTH", password)
	}
	appendCommand(&commands, args...)
	if _, err := io.WriteString(conn, commands.String()); err != nil {
		return "", err
	}
	r := bufio.NewReader(conn)
	if password != "" {
		if _, err := readReply(r); err != nil {
			return "", fmt.Errorf("redisproc: AUTH: %w", err)
		}
	}
	reply, err := readReply(r)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return "", fmt.Errorf("redisproc: %s: %w", args[0], err)
	}
	return reply, nil
}

// ErrGone: the server or proxy has ended, and another process may listen on its port.
var ErrGone = errors.New("redisproc: the server has ended")

// Dial connects to an address on the server's port, for clients. It is an error if the server has
// ended: somebody else may have taken its port.
func (s *Server) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return DialWhile(ctx, s.done, network, addr)
}

// DialWhile connects to a process that has not ended.
func DialWhile(ctx context.Context, ended <-chan struct{}, network, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: askWithin}
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	select { // now: until then it has listened there
	case <-ended:
		return nil, errors.Join(ErrGone, c.Close())
	default:
		return c, nil
	}
}

// maxSocketPath is how long the path of a socket may be: 104 bytes with the zero at its end, and
// 108 on Linux.
const maxSocketPath = 103

// DialSocket connects to the socket of that name in a folder, whose path may be longer than that of
// a socket (Linux).
func DialSocket(ctx context.Context, folder, name string) (net.Conn, error) {
	path := filepath.Join(folder, name)
	if len(path) > maxSocketPath {
		dir, err := os.Open(folder)
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		path = fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
	}
	var d net.Dialer
	return d.DialContext(ctx, "unix", path)
}

func appendCommand(b *strings.Builder, args ...string) {
	fmt.Fprintf(b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(b, "$%d\r\n%s\r\n", len(a), a)
	}
}

func readReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSpace(line)
	kind, rest := line[:min(1, len(line))], line[min(1, len(line)):]
	switch kind {
	case "+", ":":
		return rest, nil
	case "-":
		return "", errors.New(rest)
	}
	n, err := strconv.Atoi(rest)
	switch {
	case err != nil || kind != "$" && kind != "*":
		return "", fmt.Errorf("reply %q", line)
	case n < 0:
		return "", ErrNil
	case kind == "$":
		bulk := make([]byte, n+len("\r\n"))
		_, err = io.ReadFull(r, bulk)
		return string(bulk[:n]), err
	}
	elements := make([]string, n)
	for i := range elements {
		if elements[i], err = readReply(r); err != nil && !errors.Is(err, ErrNil) {
			return "", err
		}
	}
	return strings.Join(elements, "\n"), nil
}
