package proxy

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
)

// TestZeroBytes: Redis compares names and words up to a zero byte. A command whose name has one is
// refused. A word with one is read as Redis reads it: each reply is that of its command.
func TestZeroBytes(t *testing.T) {
	server := redisproc.ForTest(t)
	p := start(t, options(server.URL(), "user:*"))
	refused := fmt.Sprintf("-BALE  %s\r\n", noName)
	c := dial(t, p.addr)
	for _, name := range []string{"GET\x00", "SUBSCRIBE\x00117", "SUBSCRIBE\x00" + strings.Repeat("1", 100), strings.Repeat("1", maxLong+1)} {
		talk(t, c, wire(name, "user:1")+wire("ECHO", "1"), refused+"$1\r\n1\r\n")
	}
	talk(t, c, `"SUBSCRIBE\x00117" c`+"\r\n"+strings.Repeat("1", maxLong+1)+"\r\n"+wire("ECHO", "1"), refused+refused+"$1\r\n1\r\n")
	unknown := strings.Repeat("1", maxLong)
	io.WriteString(c, wire(unknown)+wire("ECHO", "1"))
	if got := untilEcho(t, c, "1"); !strings.HasPrefix(got, "-ERR unknown command") {
		t.Errorf("%q", got)
	}

	for _, line := range []string{"PING \x00", "GET \"a\\\x00b\"", "SET user:1 \"\\\x00" + big("x") + "\"", `GET "\x` + "\x00\""} {
		c := dial(t, p.addr)
		talk(t, c, line+"\r\n"+wire("PING"), "-ERR Protocol error: a zero byte in an inline request\r\n")
		atEnd(t, c)
	}

	// The same word for Redis alone and through the proxy.
	for _, at := range []string{server.Addr(), p.addr} {
		c := dial(t, at)
		talk(t, c, wire("CLIENT", "REPLY", "SKIP\x00")+wire("ECHO", "1")+wire("ECHO", "2"), "$1\r\n2\r\n")
		talk(t, c, wire("CLIENT", "REPLY", "OFF\x00x")+wire("ECHO", "1")+wire("CLIENT", "REPLY", "ON\x00")+wire("ECHO", "2"), "+OK\r\n$1\r\n2\r\n")
	}
	c = dial(t, p.addr)
	old := big("the old value")
	talk(t, c, wire("SET", "user:1", old)+wire("SET", "user:1", big("x"), "GET\x00"+strings.Repeat("1", 100)),
		fmt.Sprintf("+OK\r\n$%d\r\n%s\r\n", len(old), old))
	io.WriteString(c, wire("SORT", "user:list\x00")+wire("HELLO", "2", "AUTH\x00", "default", "wrong")+wire("ECHO", "1"))
	if got := untilEcho(t, c, "1"); strings.Contains(got, "\xba\x1e") {
		t.Errorf("%q", got)
	}
}

// untilEcho is what comes before the reply to ECHO.
func untilEcho(t *testing.T, c net.Conn, word string) string {
	t.Helper()
	got, end := "", fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
	for b := make([]byte, 4096); !strings.HasSuffix(got, end); {
		n, err := c.Read(b)
		if got += string(b[:n]); err != nil {
			t.Fatalf("%q: %v", got, err)
		}
	}
	return strings.TrimSuffix(got, end)
}

// TestPairsAreLists: a server answers HGETALL with a list in place of a field, before a value that
// says that there is none.
func TestPairsAreLists(t *testing.T) {
	packer, err := bale.NewPacker(bale.PackerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	packed, err := packer.Pack(nil, []byte(big("x")))
	if err != nil {
		t.Fatal(err)
	}
	none := frame.Freshness{Absent: true}.Append(frame.Header{Version: frame.V2}.Append(nil))
	reply := fmt.Sprintf("*2\r\n*2\r\n$1\r\nf\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(packed), packed, len(none), none)
	server := redisproc.ForTest(t)
	p := start(t, fakeRedis(t, server.Addr(), func(c net.Conn) { io.WriteString(c, reply) }))
	c := dial(t, p.addr)
	talk(t, c, wire("HGETALL", "user:hostile"), fmt.Sprintf("*2\r\n*2\r\n$1\r\nf\r\n$%d\r\n%[2]s\r\n$-1\r\n", len(big("x")), big("x")))
	talk(t, dial(t, p.addr), wire("PING"), "+PONG\r\n")
}

// TestSlotLeavesSubscriber: a slot leaves a node while a client unsubscribes from a channel in it.
// Redis sends the confirmation unasked, and refuses the command then: no reply may be taken for
// that of another command.
func TestSlotLeavesSubscriber(t *testing.T) {
	t.Parallel()
	cluster := redisproc.ClusterForTest(t, 2)
	_, notes := clustered(t, cluster, nil)
	s := cluster.Servers[0]
	tag := "" // of a slot of the first server
	slot := 0
	for i := 0; tag == ""; i++ {
		name := strconv.Itoa(i)
		if slot, _ = strconv.Atoi(do(t, s, "CLUSTER", "KEYSLOT", name)); slot < 1000 {
			tag = "{" + name + "}"
		}
	}
	c := dial(t, notes.listener(t, s))
	io.WriteString(c, wire("HELLO", "3")+wire("ECHO", "1"))
	untilEcho(t, c, "1")
	talk(t, c, wire("SSUBSCRIBE", tag), fmt.Sprintf(">3\r\n$10\r\nssubscribe\r\n$%d\r\n%s\r\n:1\r\n", len(tag), tag))
	key := "{other}:1"
	if n, _ := strconv.Atoi(do(t, s, "CLUSTER", "KEYSLOT", key)); n >= 8192 {
		key = "{c}:1"
	}
	talk(t, c, wire("SET", key, big("x")), "+OK\r\n")
	admin := dial(t, s.Addr())
	talk(t, admin, wire("PING"), "+PONG\r\n") // accepted before the server stops: it would read what came after that first
	other := do(t, cluster.Servers[1], "CLUSTER", "MYID")
	if err := syscall.Kill(s.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	io.WriteString(admin, wire("CLUSTER", "SETSLOT", strconv.Itoa(slot), "NODE", other))
	time.Sleep(100 * time.Millisecond) // so that the server reads it first
	io.WriteString(c, wire("SUNSUBSCRIBE", tag)+wire("PING")+wire("GET", key)+wire("PING")+wire("GET", key))
	time.Sleep(100 * time.Millisecond)
	if err := syscall.Kill(s.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if strings.Contains(string(got), "\xba\x1e") || strings.Contains(string(got), "PONG") || !strings.Contains(string(got), "sunsubscribe") {
		t.Errorf("%q, %v", got, err)
	}
}
