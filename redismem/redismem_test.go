package redismem

import (
	"bufio"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/balekv/bale/redisproc"
)

func TestClass(t *testing.T) {
	for n, want := range map[int]int{0: 8, 8: 8, 9: 16, 16: 16, 17: 32, 128: 128, 129: 160, 160: 160, 161: 192, 256: 256, 257: 320, 1024: 1024, 1025: 1280, 4097: 5120, 32769: 40960} {
		if got := Class(n); got != want {
			t.Errorf("Class(%d) = %d, want %d", n, got, want)
		}
	}
}

// TestString compares the model with a real server, at the borders of every class up to 128 KiB and between them.
func TestString(t *testing.T) {
	s := redisproc.ForTest(t)
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	replies := bufio.NewReader(conn)
	usage := func(n int) int {
		t.Helper()
		fmt.Fprintf(conn, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n%s\r\n", n, strings.Repeat("x", n))
		fmt.Fprint(conn, "MEMORY USAGE k\r\n")
		if ok, err := replies.ReadString('\n'); err != nil || ok != "+OK\r\n" {
			t.Fatalf("SET: %q, %v", ok, err)
		}
		line, err := replies.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		v, err := strconv.Atoi(strings.Trim(line, ":\r\n"))
		if err != nil {
			t.Fatalf("MEMORY USAGE: %q", line)
		}
		return v
	}
	// What is beside the value is the same for all: the key and its entry.
	const beside = 32
	checked := 0
	for n := 1; n < 128<<10; n += 1 + n/37 {
		for _, n := range []int{n, Class(n) - 4, Class(n) - 6, Class(n) - 10} {
			if n < 1 {
				continue
			}
			checked++
			got, want := String(n)+beside, usage(n)
			if n >= 32<<10 && got+Class(n+64)-Class(n) == want {
				continue // kept in a buffer somewhat larger
			}
			if got != want {
				t.Errorf("%d bytes: the model says %d, Redis %d", n, got, want)
			}
		}
	}
	if checked < 500 {
		t.Errorf("only %d sizes checked", checked)
	}
}
