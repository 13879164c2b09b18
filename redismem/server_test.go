package redismem

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/balekv/bale/internal/redisproc"
)

// client sends commands in pipelines. Its methods end the test if anything fails.
type client struct {
	tb   testing.TB
	conn net.Conn
	w    *bufio.Writer
	r    *bufio.Reader
	sent int // commands whose replies were not read
}

func dial(tb testing.TB, s *redisproc.Server) *client {
	tb.Helper()
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	return &client{tb: tb, conn: conn, w: bufio.NewWriter(conn), r: bufio.NewReader(conn)}
}

// send adds a command to the pipeline.
func (c *client) send(args ...string) {
	fmt.Fprintf(c.w, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(c.w, "$%d\r\n%s\r\n", len(a), a)
	}
	c.sent++
}

// replies are those to what was sent: statuses, numbers and texts of one line.
func (c *client) replies() []string {
	c.tb.Helper()
	if err := c.w.Flush(); err != nil {
		c.tb.Fatal(err)
	}
	var lines []string
	for ; c.sent > 0; c.sent-- {
		line, err := c.r.ReadString('\n')
		if err != nil || strings.HasPrefix(line, "-") {
			c.tb.Fatalf("%q, %v", line, err)
		}
		if line[0] == '$' {
			if line, err = c.r.ReadString('\n'); err != nil {
				c.tb.Fatal(err)
			}
			line = "$" + line
		}
		lines = append(lines, strings.TrimRight(line[1:], "\r\n"))
	}
	return lines
}

// do sends one command.
func (c *client) do(args ...string) string {
	c.tb.Helper()
	c.send(args...)
	return c.replies()[0]
}

// usages are what MEMORY USAGE says of keys.
func (c *client) usages(keys ...string) []int {
	c.tb.Helper()
	for _, k := range keys {
		c.send("MEMORY", "USAGE", k, "SAMPLES", "0")
	}
	var usages []int
	for _, line := range c.replies() {
		n, err := strconv.Atoi(line)
		if err != nil {
			c.tb.Fatalf("MEMORY USAGE: %q", line)
		}
		usages = append(usages, n)
	}
	return usages
}

// modelOf is the model of a server with settings of its own, whose build it finds out.
func modelOf(tb testing.TB, s *redisproc.Server) Server {
	tb.Helper()
	text, err := s.Do(tb.Context(), "INFO")
	if err != nil {
		tb.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			all[name] = value
		}
	}
	candidates := Candidates(all)
	n := 20
	if candidates[0].Layout == Redis82 {
		n = 12 // which with the name takes 40 bytes
	}
	c := dial(tb, s)
	c.do("SET", "k", strings.Repeat("x", n))
	usage := c.usages("k")[0]
	c.do("DEL", "k")
	c.conn.Close()
	for _, m := range candidates {
		said := m
		said.MemoryUsage = true
		if said.KeyString(1, n, false) == usage {
			return m
		}
	}
	tb.Fatalf("no model has %d bytes for a string of %d", usage, n)
	return Server{}
}

// same reports whether the model and the server agree on allocations. libc may take 16 bytes more
// when it reuses freed memory. From 128 KiB on it takes whole pages, or not.
func (s Server) same(model, server int) bool {
	return model == server || s.Libc && (server == model+16 || max(model, server) > 128<<10 && max(model-server, server-model) < 8<<10)
}

func info(tb testing.TB, s *redisproc.Server, section, field string) string {
	tb.Helper()
	text, err := s.Do(context.Background(), "INFO", section)
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	tb.Fatalf("INFO %s has no %s", section, field)
	return ""
}

// used is the server's used_memory with this number of keys and of expiring keys, without other
// clients and with settled tables.
func used(tb testing.TB, s *redisproc.Server, m Server, keys, expires int) int {
	tb.Helper()
	want := map[string]int{
		"overhead.hashtable.main":    keys*(entrySize+objectSize) + Server{}.table(keys),
		"overhead.hashtable.expires": expires*entrySize + Server{}.table(expires),
	}
	settled := func() error {
		if n := info(tb, s, "clients", "connected_clients"); n != "1" {
			return fmt.Errorf("%s clients", n)
		}
		if m.Layout != Redis70 {
			if n := info(tb, s, "memory", "mem_overhead_db_hashtable_rehashing"); n != "0" {
				return fmt.Errorf("tables of %s bytes are rehashed", n)
			}
			return nil
		}
		text, err := s.Do(context.Background(), "MEMORY", "STATS")
		if err != nil {
			return err
		}
		lines := strings.Split(text, "\n")
		for i, name := range lines {
			if n, ok := want[name]; ok && lines[i+1] != strconv.Itoa(n) {
				return fmt.Errorf("%s is %s, not %d", name, lines[i+1], n)
			}
		}
		return nil
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := settled()
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			tb.Fatal(err)
		}
	}
	n, err := strconv.Atoi(info(tb, s, "memory", "used_memory"))
	if err != nil {
		tb.Fatal(err)
	}
	return n
}
