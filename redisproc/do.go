package redisproc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// ErrNil is the reply for no value.
var ErrNil = errors.New("redisproc: nil")

// Do sends one command, on a connection of its own, and returns the reply: a status, a number or a bulk string as text, and of a list its elements in lines.
// It is for
// setting up and looking after; programs use a client.
func (s *Server) Do(ctx context.Context, args ...string) (string, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })() // it ends what waits for the server
	var commands strings.Builder
	if s.password != "" {
		appendCommand(&commands, "AUTH", s.password)
	}
	appendCommand(&commands, args...)
	if _, err := io.WriteString(conn, commands.String()); err != nil {
		return "", err
	}
	r := bufio.NewReader(conn)
	if s.password != "" {
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
