package proxy

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"

	"github.com/balekv/bale/internal/testvalues"
)

// traffic are exchanges of one kind: what is sent, and the very bytes that come back. The values
// have 400 bytes, and are not in the dictionary of a stage.
type traffic struct {
	send, want [][]byte
	depth      int // commands of an exchange
}

const valueSize = 400

// newTraffic makes SETs, or GETs of what they wrote, in pipelines.
func newTraffic(tb testing.TB, prefix string, write bool, depth int) traffic {
	tb.Helper()
	profiles, err := os.ReadFile("../../../examples/profiles.ndjson")
	if err != nil {
		tb.Fatal(err)
	}
	t := traffic{depth: depth}
	lines := bytes.Split(profiles, []byte("\n"))[100:200]
	var send, want []byte
	for i := range len(lines) / depth * depth {
		value := bytes.Repeat(lines[i], 2)[:valueSize]
		if key := prefix + strconv.Itoa(i); write {
			send, want = append(send, wire("SET", key, string(value))...), append(want, "+OK\r\n"...)
		} else {
			send, want = append(send, wire("GET", key)...), fmt.Appendf(want, "$%d\r\n%s\r\n", len(value), value)
		}
		if (i+1)%depth == 0 {
			t.send, t.want = append(t.send, send), append(t.want, want)
			send, want = nil, nil
		}
	}
	return t
}

// exchange sends pipeline n and compares the replies.
func (t *traffic) exchange(c net.Conn, n int, buf []byte) error {
	n %= len(t.send)
	if _, err := c.Write(t.send[n]); err != nil {
		return err
	}
	got := buf[:len(t.want[n])]
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if !bytes.Equal(got, t.want[n]) {
		return fmt.Errorf("pipeline %d: %.200q, want %.200q", n, got, t.want[n])
	}
	return nil
}

// prove writes all values, and reads them back through the proxy, and past it, where those in scope
// are packed.
func (s *stage) prove(tb testing.TB) {
	tb.Helper()
	c := dial(tb, s.proxy)
	buf := make([]byte, 1<<20)
	for _, prefix := range []string{"user:", "quick:", "other:"} {
		for _, write := range []bool{true, false} {
			for _, depth := range []int{1, 16} {
				t := newTraffic(tb, prefix, write, depth)
				for i := range t.send {
					if err := t.exchange(c, i, buf); err != nil {
						tb.Fatal(err)
					}
				}
			}
		}
		for i := range 100 {
			stored := s.past.Get(tb.Context(), prefix+strconv.Itoa(i)).Val()
			if isPacked(stored) != (prefix != "other:") || (len(stored) < valueSize) != (prefix != "other:") {
				tb.Fatalf("%s%d is stored in %d bytes: %.20q", prefix, i, len(stored), stored)
			}
		}
	}
}

var hotPaths = []struct {
	name, prefix string
	write        bool
	depth        int
	allocations  float64 // of a command
}{
	{"out of scope/get", "other:", false, 1, 0},
	{"out of scope/set", "other:", true, 1, 0},
	{"out of scope/get, pipelines of 16", "other:", false, 16, 0},
	{"out of scope/set, pipelines of 16", "other:", true, 16, 0},
	{"packed/get", "user:", false, 1, 0},
	{"packed/set", "user:", true, 1, 0},
	{"packed/get, pipelines of 16", "user:", false, 16, 0},
	{"packed/set, pipelines of 16", "user:", true, 16, 0},
}

// TestAllocations: neither forwarding nor packing allocates anything for a command.
func TestAllocations(t *testing.T) {
	if testvalues.Race {
		t.Skip("with the race detector pools forget")
	}
	s := newStage(t)
	s.prove(t)
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // pools are not emptied
	for _, hot := range hotPaths {
		t.Run(hot.name, func(t *testing.T) {
			traffic, c, buf := newTraffic(t, hot.prefix, hot.write, hot.depth), dial(t, s.proxy), make([]byte, 1<<20)
			// What runs beside it, such as the group's polls, hits few of some measurements. One
			// allocation for a pipeline would be 0.06 for a command.
			const commands, besides = 4800, 0.03
			least := math.Inf(1)
			for range 5 {
				var before, after runtime.MemStats
				for i := range 2 * commands / hot.depth {
					if i == commands/hot.depth {
						runtime.ReadMemStats(&before)
					}
					if err := traffic.exchange(c, i, buf); err != nil {
						t.Fatal(err)
					}
				}
				runtime.ReadMemStats(&after)
				if least = min(least, float64(after.Mallocs-before.Mallocs)/commands); least < hot.allocations+besides {
					break
				}
			}
			if t.Logf("%.4f", least); math.Abs(least-hot.allocations) > besides {
				t.Errorf("%.4f allocations a command, want %v", least, hot.allocations)
			}
		})
	}
}

// BenchmarkProxy is a command on one connection, by its own proxy and Redis. TestFigures compares
// the proxy with others.
func BenchmarkProxy(b *testing.B) {
	s := newStage(b)
	s.prove(b)
	for _, hot := range hotPaths {
		b.Run(hot.name, func(b *testing.B) {
			traffic, c, buf := newTraffic(b, hot.prefix, hot.write, hot.depth), dial(b, s.proxy), make([]byte, 1<<20)
			b.ReportAllocs()
			b.SetBytes(valueSize)
			b.ResetTimer()
			for i := 0; i < b.N; i += hot.depth {
				if err := traffic.exchange(c, i, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
