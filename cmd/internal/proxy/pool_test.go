package proxy

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/tcptest"
	"github.com/balekv/bale/internal/redisproc"
)

// lastWas counts the connections of a server whose last command was one of these.
func lastWas(t *testing.T, s *redisproc.Server, commands string) int {
	t.Helper()
	return len(regexp.MustCompile(` cmd=(`+commands+`) `).FindAllString(do(t, s, "CLIENT", "LIST"), -1))
}

// pooled is the address of a proxy whose clients share connections.
func pooled(t *testing.T, n int, change func(*Options)) (string, *redisproc.Server, *running) {
	return proxied(t, func(o *Options) {
		if o.Pool = n; change != nil {
			change(o)
		}
	})
}

// TestPool: many clients share a connection, and each has its own replies in its order, values in
// scope included. The first command with a state takes a client off it, and the others stay.
func TestPool(t *testing.T) {
	addr, server, _ := pooled(t, 2, nil)
	const clients, rounds = 50, 40
	conns := make([]net.Conn, clients)
	for i := range conns {
		conns[i] = dial(t, addr)
	}
	var all sync.WaitGroup
	for i, c := range conns {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for range rounds {
				var send, want strings.Builder
				for j := range 1 + r.IntN(20) {
					key, value := fmt.Sprintf("user:%d:%d", i, j), big(fmt.Sprint(i, j))[:r.IntN(300)]
					send.WriteString(wire("SET", key, value) + wire("GET", key) + wire("APPEND", key, "x") + wire("LRANGE", "none", "0", "1"))
					want.WriteString(fmt.Sprintf("+OK\r\n$%d\r\n%s\r\n", len(value), value))
					want.WriteString("-BALE APPEND on a key in scope: it works on the value's bytes inside the server; ask Redis itself, or leave the key out (--match, --exclude)\r\n*0\r\n")
				}
				var sending sync.WaitGroup
				sending.Go(func() { pieces(r, c, send.String()) })
				got := make([]byte, want.Len())
				if _, err := io.ReadFull(c, got); err != nil || string(got) != want.String() {
					t.Errorf("client %d: %.200q, %v\nwant %.200q", i, got, err, want.String())
				}
				sending.Wait()
			}
		})
	}
	all.Wait()
	if n := lastWas(t, server, "set|get|lrange"); n != 2 {
		t.Errorf("%d connections to Redis for %d clients", n, clients)
	}
	for i, command := range [][]string{{"MULTI"}, {"WATCH", "k"}, {"SELECT", "1"}, {"CLIENT", "REPLY", "ON"}, {"BLPOP", "none", "0.01"}, {"XREAD", "STREAMS", "none", "0"}, {"HELLO", "3"}, {"AUTH", "x"}, {"PSUBSCRIBE", "c"}, {"READONLY"}, {"MGET", "k"}} {
		c := conns[i]
		talk(t, c, wire("SET", "user:k", "1")+wire("GET", "user:k"), "+OK\r\n$1\r\n1\r\n")
		talk(t, c, wire("GET", "user:k")+wire(command...), "$1\r\n1\r\n")
		if n, err := c.Read(make([]byte, 4096)); err != nil || n == 0 {
			t.Errorf("%s: %v", command, err)
		}
		if n := lastWas(t, server, strings.ToLower(command[0])+"(\\|reply)?"); n != 1 {
			t.Errorf("%s: on %d connections", command, n)
		}
	}
	if n := lastWas(t, server, "set|get|lrange"); n != 2 {
		t.Errorf("%d connections are shared", n)
	}
	talk(t, conns[20], wire("SET", "user:k", strings.Repeat("x", 20_000))+wire("GET", "user:k"), "+OK\r\n$20000\r\n"+strings.Repeat("x", 20_000)+"\r\n") // too large for it
	talk(t, conns[21], "get user:k\r\n", "$20000\r\n"+strings.Repeat("x", 20_000)+"\r\n")
	talk(t, conns[22], wire("PING")+"*x\r\n", "+PONG\r\n-ERR Protocol error: invalid multibulk length\r\n")
	atEnd(t, conns[22])
	talk(t, conns[23], wire("PING")+wire("QUIT"), "+PONG\r\n+OK\r\n")
	atEnd(t, conns[23])
	talk(t, conns[24], wire("PING"), "+PONG\r\n")
	conns[24].(*net.TCPConn).CloseWrite()
	atEnd(t, conns[24])
}

// TestPoolLogin: clients without a login are the user of --redis, on a shared connection and after
// it. One that logs in is its own user.
func TestPoolLogin(t *testing.T) {
	server := redisproc.ForTest(t)
	do(t, server, "ACL", "SETUSER", "proxy", "on", ">p", "~*", "&*", "+@all")
	do(t, server, "ACL", "SETUSER", "app", "on", ">a", "~app:*", "+@all")
	do(t, server, "ACL", "SETUSER", "default", "off")
	o := options(strings.Replace(server.URL(), "redis://", "redis://proxy:p@", 1), "user:*")
	o.Pool = 1
	p := start(t, o)
	c := dial(t, p.addr)
	talk(t, c, wire("SET", "user:1", big("x"))+wire("ACL", "WHOAMI")+wire("GET", "user:1"), fmt.Sprintf("+OK\r\n$5\r\nproxy\r\n$%d\r\n%s\r\n", len(big("x")), big("x")))
	c = dial(t, p.addr)
	talk(t, c, wire("AUTH", "app", "a")+wire("ACL", "WHOAMI")+wire("SET", "app:1", "x"), "+OK\r\n$3\r\napp\r\n+OK\r\n")
	if _, err := io.WriteString(c, wire("GET", "user:1")); err != nil {
		t.Fatal(err)
	}
	if b := make([]byte, 7); true {
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "-NOPERM" {
			t.Errorf("%q, %v", b, err)
		}
	}
}

// TestPoolWait: WAIT and WAITAOF are refused where they would answer for a connection that has not
// sent the client's writes.
func TestPoolWait(t *testing.T) {
	addr, server, _ := pooled(t, 1, nil)
	set, wait, refused := wire("SET", "k", "x"), wire("WAIT", "0", "0"), "-BALE WAIT "+notShared+"\r\n"
	c := dial(t, addr)
	talk(t, c, set+wait+wire("WAITAOF", "0", "0", "0"), "+OK\r\n"+refused+"-BALE WAITAOF "+notShared+"\r\n")
	// A write that changes nothing leaves the offset that WAIT waits for where it was.
	talk(t, c, wire("DEL", "none")+"wait 0 0\r\n", ":0\r\n"+refused)
	talk(t, c, wire("MULTI")+wait+wire("DISCARD"), "+OK\r\n"+refused+"+OK\r\n")
	if n, err := server.Do(t.Context(), "INFO", "commandstats"); err != nil || strings.Contains(n, "cmdstat_wait") {
		t.Errorf("Redis has executed it: %s, %v", n, err)
	}
	talk(t, dial(t, addr), wire("PING")+wait+set+wait, "+PONG\r\n:0\r\n+OK\r\n:0\r\n")
	talk(t, dial(t, addr), wire("SELECT", "0")+set+wait, "+OK\r\n+OK\r\n:0\r\n")
}

// TestPoolMetrics: commands are counted by shared connection, and clients that leave it by the
// command that takes them off.
func TestPoolMetrics(t *testing.T) {
	var notes lines
	addr, server, _ := pooled(t, 2, func(o *Options) { o.Metrics, o.Err = ":0", &notes })
	url := regexp.MustCompile(`http://\S+/`).FindString(notes.await(t, "metrics are at ")) + "metrics"
	metrics := func(want ...string) {
		t.Helper()
		_, text := ask(t, url, "")
		for _, w := range want {
			if !strings.Contains(text, "\nbale_proxy_"+w+"\n") {
				t.Errorf("no %s in %s", w, regexp.MustCompile(`(?m)^bale_proxy_.*shared.*$`).FindAllString(text, -1))
			}
		}
		if problems, err := promlint.New(strings.NewReader(text)).Lint(); err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
	}
	metrics("shared_connections 0", `shared_commands_total{connection="0"} 0`, `shared_commands_total{connection="1"} 0`)
	a, b := dial(t, addr), dial(t, addr)
	talk(t, a, wire("PING"), "+PONG\r\n")
	talk(t, b, wire("SET", "user:1", big("x"))+wire("GET", "user:1"), fmt.Sprintf("+OK\r\n$%d\r\n%s\r\n", len(big("x")), big("x")))
	_, text := ask(t, url, "")
	for _, w := range []string{"1", "2"} {
		if !regexp.MustCompile(`(?m)^bale_proxy_shared_commands_total{connection="[01]"} ` + w + `$`).MatchString(text) {
			t.Errorf("no connection has %s commands: %s", w, text)
		}
	}
	talk(t, a, wire("PING")+wire("MULTI"), "+PONG\r\n+OK\r\n")
	talk(t, b, wire("SET", "user:1", strings.Repeat("x", bufferSize)), "+OK\r\n")
	talk(t, dial(t, addr), "get user:2\r\n", "$-1\r\n")
	talk(t, dial(t, addr), wire("CLIENT", "SETNAME", "x"), "+OK\r\n")
	metrics("shared_connections 2", `unshared_clients_total{command="multi"} 1`, `unshared_clients_total{command="set"} 1`, `unshared_clients_total{command="other"} 1`, `unshared_clients_total{command="client"} 1`)
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	for { // until both ends are seen
		if _, text := ask(t, url, ""); strings.Contains(text, "\nbale_proxy_shared_connections 0\n") {
			break
		}
		time.Sleep(time.Millisecond)
	}
}

// TestPoolSlowLog: a slow command of a shared connection has its line, with the key and the client
// that sent it.
func TestPoolSlowLog(t *testing.T) {
	var notes lines
	addr, server, _ := pooled(t, 1, func(o *Options) { o.SlowLog, o.Err = 20*time.Millisecond, &notes })
	a, b := dial(t, addr), dial(t, addr)
	for _, c := range []net.Conn{a, b} {
		talk(t, c, wire("PING"), "+PONG\r\n")
	}
	if err := syscall.Kill(server.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(server.PID(), syscall.SIGCONT)
	for c, commands := range map[net.Conn]string{a: wire("SET", "user:a", big("secret")) + wire("RPUSH", "list", "secret"), b: wire("GET", "user:b")} {
		if _, err := io.WriteString(c, commands); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(500 * time.Millisecond) // until the proxy has it, and 20 ms
	if err := syscall.Kill(server.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	talk(t, a, "", "+OK\r\n:1\r\n")
	talk(t, b, "", "$-1\r\n")
	for _, want := range []string{`for "set", key "user:a", of ` + a.LocalAddr().String(), `for "rpush", key "", of ` + a.LocalAddr().String(), `for "get", key "user:b", of ` + b.LocalAddr().String()} {
		notes.await(t, want)
	}
	if text := notes.await(t, "slow: "); strings.Contains(text, "secret") {
		t.Error(text)
	}
	if n := lastWas(t, server, "set|get|rpush"); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// TestPoolGone: clients that die in the middle, and one that does not read, leave the others their
// replies. One whose replies are more than it may hold is at its end.
func TestPoolGone(t *testing.T) {
	var notes lines
	addr, server, _ := pooled(t, 1, func(o *Options) { o.MaxRequest, o.MaxMemory, o.Err = 64<<10, 4<<20, &notes })
	value := strings.Repeat("0123456789abcdef", 256<<10/16) // for which sockets have no room
	do(t, server, "SET", "big", value)
	do(t, server, "SET", "small", "1")
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range 3 {
		c := dial(t, addr)
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				talk(t, c, wire("GET", "small")+wire("PING", fmt.Sprint(i)), fmt.Sprintf("$1\r\n1\r\n$%d\r\n%d\r\n", len(fmt.Sprint(i)), i))
			}
		})
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		c := dial(t, addr)
		stream := strings.Repeat(wire("GET", "big"), 1+r.IntN(5)) + wire("SET", "k", "x")
		if _, err := io.WriteString(c, stream[:len(stream)-r.IntN(20)]); err != nil {
			t.Fatal(err)
		}
		if r.IntN(2) == 0 {
			io.ReadFull(c, make([]byte, r.IntN(100_000)))
		}
		c.Close()
	}
	deaf := dial(t, addr)
	if _, err := io.WriteString(deaf, strings.Repeat(wire("GET", "big"), 1000)); err != nil {
		t.Fatal(err)
	}
	notes.await(t, "ends a connection: replies that it does not read")
	close(stop)
	all.Wait()
	if got, _ := io.ReadAll(deaf); len(got) >= 1000*len(value) {
		t.Errorf("%d bytes for a client that does not read", len(got))
	}
	if n := lastWas(t, server, "get|ping"); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// TestPoolStall: a client that stops to read before replies take memory, and then asks for more, is
// at its end, too.
func TestPoolStall(t *testing.T) {
	t.Parallel()
	addr, server, _ := pooled(t, 1, func(o *Options) { o.Stall = time.Millisecond })
	do(t, server, "SET", "k", strings.Repeat("x", 8<<10))
	c := dial(t, addr)
	if err := errors.Join(c.(*net.TCPConn).SetReadBuffer(4096), c.SetDeadline(time.Now().Add(time.Minute))); err != nil {
		t.Fatal(err)
	}
	// One reply at a time, so that the one for which the socket has no room takes no memory.
	calls := func() string {
		return regexp.MustCompile(`cmdstat_get:calls=\d+`).FindString(do(t, server, "INFO", "commandstats"))
	}
	for before := ""; ; {
		if _, err := io.WriteString(c, wire("GET", "k")); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("it holds memory without end")
		} else if err != nil {
			break // it is at its end
		}
		for range 1000 {
			if now := calls(); now != before {
				before = now
				break
			}
			time.Sleep(100 * time.Microsecond)
		}
	}
	talk(t, dial(t, addr), wire("PING"), "+PONG\r\n")
}

// TestPoolEnds: a Redis that stands still, and has no room for more, does not keep the proxy
// running.
func TestPoolEnds(t *testing.T) {
	t.Parallel()
	addr, server, p := pooled(t, 1, func(o *Options) { o.Drain = 50 * time.Millisecond })
	c := dial(t, addr)
	talk(t, c, wire("PING"), "+PONG\r\n")
	if err := syscall.Kill(server.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(server.PID(), syscall.SIGCONT)
	command := wire("PING", strings.Repeat("x", 15<<10))
	for range 20 { // a client waits for 128 replies
		c := dial(t, addr)
		go io.WriteString(c, strings.Repeat(command, 128)) // until the end
	}
	time.Sleep(500 * time.Millisecond) // in which sockets and the proxy fill up
	if err := p.stop(); err != nil {
		t.Error(err)
	}
}

// TestPoolMemoryOfTheGone: clients that are gone hold next to no memory while a shared connection
// waits for their replies.
func TestPoolMemoryOfTheGone(t *testing.T) {
	addr, server, _ := pooled(t, 1, nil)
	last := dial(t, addr)
	talk(t, last, wire("PING"), "+PONG\r\n")
	if err := syscall.Kill(server.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(server.PID(), syscall.SIGCONT)
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	const n = 3000
	for range n {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, wire("PING")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Microsecond) // so that it is sent
		if err := errors.Join(c.(*net.TCPConn).SetLinger(0), c.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		if heap()-before < n*4<<10 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if each := (heap() - before) / n; each > 4<<10 {
		t.Errorf("%d bytes for each client that is gone", each)
	}
	if err := syscall.Kill(server.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	talk(t, last, wire("PING"), "+PONG\r\n")
}

// TestPoolPatience: a client that reads late, within its share of memory, has all of its replies.
func TestPoolPatience(t *testing.T) {
	addr, server, _ := pooled(t, 1, nil)
	value := strings.Repeat("0123456789abcdef", 64<<10/16)
	do(t, server, "SET", "big", value)
	const n = 500
	late := dial(t, addr)
	go io.WriteString(late, strings.Repeat(wire("GET", "big"), n)+wire("CLIENT", "ID"))
	for range 50 {
		talk(t, dial(t, addr), wire("PING"), "+PONG\r\n")
	}
	want := fmt.Sprintf("$%d\r\n%s\r\n", len(value), value)
	got := make([]byte, len(want))
	for i := range n {
		if _, err := io.ReadFull(late, got); err != nil || string(got) != want {
			t.Fatalf("reply %d: %v", i, err)
		}
	}
	talk(t, late, "", ":")
}

// TestPoolServerGone: a server that ends its connection ends the clients that wait for a reply, and
// no reply is made up. The others get a new connection.
func TestPoolServerGone(t *testing.T) {
	addr, server, _ := pooled(t, 1, nil)
	idle, waits := dial(t, addr), dial(t, addr)
	talk(t, idle, wire("PING"), "+PONG\r\n")
	talk(t, waits, wire("PING"), "+PONG\r\n")
	if err := syscall.Kill(server.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(waits, wire("GET", "user:1")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(waits); len(got) > 0 || err != nil && !os.IsTimeout(err) && !strings.Contains(err.Error(), "reset") {
		t.Errorf("%q, %v", got, err)
	}
	talk(t, idle, wire("PING"), "+PONG\r\n")
}

// TestPoolHostileServer: a reply that nobody asked for ends the shared connection, and is nobody's.
func TestPoolHostileServer(t *testing.T) {
	real := redisproc.ForTest(t)
	o := fakeRedis(t, real.Addr(), func(c net.Conn) {
		io.WriteString(c, "$1\r\nx\r\n+two\r\n")
		io.Copy(io.Discard, c)
	})
	o.Pool = 1
	p := start(t, o)
	c := dial(t, p.addr)
	talk(t, c, wire("GET", "hostile"), "$1\r\nx\r\n")
	for range 100 { // a new connection each time, or the end
		c := dial(t, p.addr)
		if _, err := io.WriteString(c, wire("GET", "user:1")); err != nil {
			t.Fatal(err)
		}
		got, err := make([]byte, 100), error(nil)
		n, err := c.Read(got)
		if err == nil && string(got[:n]) != "$-1\r\n" {
			t.Errorf("%q", got[:n])
		}
		c.Close()
	}
}

// TestPoolDrain: replies in flight are delivered.
func TestPoolDrain(t *testing.T) {
	addr, server, p := pooled(t, 1, nil)
	c, idle := dial(t, addr), dial(t, addr)
	talk(t, idle, wire("PING"), "+PONG\r\n")
	talk(t, c, wire("PING"), "+PONG\r\n")
	if err := syscall.Kill(server.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, wire("GET", "user:1")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	ended := make(chan error, 1)
	go func() { ended <- p.stop() }()
	atEnd(t, idle)
	if err := syscall.Kill(server.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	talk(t, c, "", "$-1\r\n")
	atEnd(t, c)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestWholeCommand: what can be shared is seen before the first byte is sent.
func TestWholeCommand(t *testing.T) {
	for b, want := range map[string]string{
		"": `"" "" 0 true`, "*": `"" "" 0 true`, "*1\r\n$4\r\nPING\r\n*": `"PING" "" 14 true`, "*1\r\n$4\r\nPING\r": `"PING" "" 0 true`, "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n": `"HELLO" "3" 22 true`,
		"*3\r\n$5\r\nHELLO\r\n$1\r\n2\r\n$1\r\n2\r\n": `"HELLO" "x" 29 true`, "PING\r\n": `"" "" 0 false`, "*0\r\n": `"" "" 0 false`, "*-1\r\n": `"" "" 0 false`, "*x\r\n": `"" "" 0 false`, "*1\n": `"" "" 0 false`,
		"*1\r\n$4\r\nPINGxx": `"" "" 0 false`, "*1\r\n:4\r\n": `"" "" 0 false`, "*1\r\n$-1\r\n": `"" "" 0 false`, "*1\r\n$99\r\n": `"" "" 0 false`, "*2\r\n$4\r\nECHO\r\n$999999999999\r\nx": `"ECHO" "" 0 true`,
		"*" + strings.Repeat("1", 100): `"" "" 0 false`, "*1" + strings.Repeat("\r", 100) + "\n": `"" "" 0 false`,
	} {
		name, version, n, ok := wholeCommand([]byte(b))
		if n == 0 {
			name, version = name[:0], ""
		}
		got := fmt.Sprintf("%q %q %d %v", name, version, n, ok)
		if w := regexp.MustCompile(`^"\w*" "" 0`).ReplaceAllString(want, `"" "" 0`); got != w {
			t.Errorf("%.60q: %s, not %s", b, got, w)
		}
	}
}

// TestPoolClients: real clients work, and stay on the shared connections if they send nothing with
// a state.
func TestPoolClients(t *testing.T) {
	addr, server, _ := pooled(t, 2, nil)
	through := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true, PoolSize: 20})
	defer through.Close()
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			for j := range 100 {
				key := fmt.Sprintf("user:%d:%d", i, j)
				if err := through.Set(t.Context(), key, big(key), 0).Err(); err != nil {
					t.Error(err)
				}
				if v, err := through.Get(t.Context(), key).Result(); err != nil || v != big(key) {
					t.Errorf("%q, %v", v, err)
				}
			}
		})
	}
	all.Wait()
	if !isPacked(do(t, server, "GET", "user:1:1")) {
		t.Error("it is not packed")
	}
	if n := lastWas(t, server, "get|set|hello"); n > 2 {
		t.Errorf("%d connections", n)
	}
}

// forwarder is between the proxy and Redis. After cut the connections so far stay open, and carry
// nothing any more, as behind a firewall that has forgotten them. New ones work.
func forwarder(t *testing.T, to string) (addr string, cut func()) {
	var cuts atomic.Int64
	return tcptest.Listen(t, func(c net.Conn) {
		of := cuts.Load()
		up, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		var pipes sync.WaitGroup
		pipe := func(dst, src net.Conn) {
			defer dst.Close()
			for b := make([]byte, 64<<10); ; {
				n, err := src.Read(b)
				if err != nil {
					return
				}
				if cuts.Load() == of {
					dst.Write(b[:n])
				}
			}
		}
		pipes.Go(func() { pipe(up, c) })
		pipe(c, up)
		pipes.Wait()
	}), func() { cuts.Add(1) }
}

// answered reports whether a client's PING is answered before the client gives up.
func answered(t *testing.T, addr string) bool {
	t.Helper()
	c := dial(t, addr)
	defer c.Close()
	if _, err := io.WriteString(c, wire("PING")); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 7)
	_, err := io.ReadFull(c, b)
	return err == nil && string(b) == "+PONG\r\n"
}

// TestPoolBlackHole: a connection that carries nothing any more ends, and the client that waits for
// a reply of it. Others have a new one, and those that gave up take no place from them.
func TestPoolBlackHole(t *testing.T) {
	t.Parallel()
	server := redisproc.ForTest(t)
	addr, cut := forwarder(t, server.Addr())
	var notes lines
	o := options(strings.Replace(server.URL(), server.Addr(), addr, 1), "user:*")
	o.Pool, o.MaxClients, o.second, o.Err = 2, 10, 50*time.Millisecond, &notes
	p := start(t, o)
	waits := dial(t, p.addr)
	talk(t, waits, wire("PING"), "+PONG\r\n")
	talk(t, dial(t, p.addr), wire("PING"), "+PONG\r\n") // on the other one
	cut()
	if _, err := io.WriteString(waits, wire("GET", "user:1")); err != nil {
		t.Fatal(err)
	}
	for left := 50; ; left-- { // each gives up meanwhile
		if answered(t, p.addr) && answered(t, p.addr) && answered(t, p.addr) && answered(t, p.addr) {
			break
		}
		if left == 0 {
			t.Fatal("new clients hang on a dead connection")
		}
	}
	atEnd(t, waits)
	notes.await(t, "ends a shared connection: Redis owes ")
}

// TestPoolPausedWrites: while a reply is late, clients that wait for none have another connection.
// The late one comes, and those of the commands behind it, in their order.
func TestPoolPausedWrites(t *testing.T) {
	t.Parallel()
	addr, server, _ := pooled(t, 1, func(o *Options) { o.second = 500 * time.Millisecond })
	idle, waits := dial(t, addr), dial(t, addr)
	talk(t, idle, wire("PING"), "+PONG\r\n")
	talk(t, waits, wire("PING"), "+PONG\r\n")
	do(t, server, "CLIENT", "PAUSE", "60000", "WRITE")
	if _, err := io.WriteString(waits, wire("SET", "k", "1")); err != nil {
		t.Fatal(err)
	}
	for lastWas(t, server, "set") == 0 { // until Redis has it
		time.Sleep(time.Millisecond)
	}
	for left := 100; !answered(t, addr); left-- {
		if left == 0 {
			t.Fatal("a client hangs behind the reply of another")
		}
	}
	talk(t, idle, wire("GET", "k"), "$-1\r\n")
	if _, err := io.WriteString(waits, wire("GET", "k")); err != nil {
		t.Fatal(err)
	}
	talk(t, idle, wire("GET", "k"), "$-1\r\n")
	do(t, server, "CLIENT", "UNPAUSE")
	talk(t, waits, "", "+OK\r\n$1\r\n1\r\n")
	talk(t, waits, wire("GET", "k"), "$1\r\n1\r\n")
	for left := 1000; lastWas(t, server, "get|set|ping") != 1; left-- { // the other one is not needed any more
		if left == 0 {
			t.Fatal("a connection stays that nobody has")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestPoolBusy: a Redis that answers late, on each connection, loses no client.
func TestPoolBusy(t *testing.T) {
	t.Parallel()
	addr, server, _ := pooled(t, 1, func(o *Options) { o.second = 250 * time.Millisecond })
	waits := dial(t, addr)
	talk(t, waits, wire("PING"), "+PONG\r\n")
	if err := syscall.Kill(server.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(server.PID(), syscall.SIGCONT)
	if _, err := io.WriteString(waits, wire("SET", "k", "1")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // until another connection is tried
	late := dial(t, addr)
	if _, err := io.WriteString(late, wire("GET", "k")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond)
	if err := syscall.Kill(server.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	talk(t, waits, wire("GET", "k"), "+OK\r\n$1\r\n1\r\n")
	talk(t, late, "", "$1\r\n1\r\n")
}

// TestPoolDial: clients that need a connection at a time wait for the same attempt to make one.
func TestPoolDial(t *testing.T) {
	server := redisproc.ForTest(t)
	do(t, server, "ACL", "SETUSER", "proxy", "on", ">p", "~*", "&*", "+@all")
	var attempts atomic.Int64
	end := make(chan struct{})
	hangs := tcptest.Listen(t, func(c net.Conn) {
		b := make([]byte, 4096)
		n, err := c.Read(b)
		if err != nil {
			return
		}
		if string(b[:n]) == wire("AUTH", "proxy", "p") { // of a shared connection
			attempts.Add(1)
			<-end
			return
		}
		up, err := net.Dial("tcp", server.Addr())
		if err != nil {
			return
		}
		defer up.Close()
		go func() { io.Copy(c, up); c.Close() }()
		up.Write(b[:n])
		io.Copy(up, c)
	})
	o := options("redis://proxy:p@"+hangs, "user:*")
	o.Pool = 1
	p := start(t, o)
	var clients []net.Conn
	for range 5 {
		c := dial(t, p.addr)
		if _, err := io.WriteString(c, wire("PING")); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	time.Sleep(500 * time.Millisecond) // until they wait
	close(end)
	for _, c := range clients {
		atEnd(t, c)
	}
	if n := attempts.Load(); n >= int64(len(clients)) {
		t.Errorf("%d attempts for %d clients", n, len(clients))
	}
}

// TestGone: clients that are gone while Redis does not answer have no place that another one needs.
// Those that only send no more have their replies.
func TestGone(t *testing.T) {
	t.Parallel()
	for _, pool := range []int{0, 1} {
		t.Run(fmt.Sprint("pool ", pool), func(t *testing.T) {
			addr, server, _ := pooled(t, pool, func(o *Options) { o.MaxClients = 3 })
			if err := syscall.Kill(server.PID(), syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			defer syscall.Kill(server.PID(), syscall.SIGCONT)
			for range 3 {
				if answered(t, addr) {
					t.Fatal("Redis answers")
				}
			}
			var next net.Conn
			for left := 50; ; left-- {
				next = dial(t, addr)
				if err := next.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
					t.Fatal(err)
				}
				if _, err := next.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
					break
				}
				if left == 0 {
					t.Fatal("there is no place")
				}
			}
			if err := next.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(next, wire("PING")); err != nil {
				t.Fatal(err)
			}
			if err := next.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(server.PID(), syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(next); string(got) != "+PONG\r\n" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}
