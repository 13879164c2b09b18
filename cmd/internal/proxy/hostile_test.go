package proxy

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/balekv/bale/cmd/internal/tcptest"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
)

// proxied is the address of a proxy in front of a server of its own.
func proxied(t *testing.T, change func(*Options)) (string, *redisproc.Server, *running) {
	t.Helper()
	server := redisproc.ForTest(t)
	o := options(server.URL(), "user:*")
	if change != nil {
		change(&o)
	}
	p := start(t, o)
	return p.addr, server, p
}

// TestBrokenProtocol: a client that breaks the protocol has the replies to what it sent before, an
// error, and the end. Nothing of the broken request is executed.
func TestBrokenProtocol(t *testing.T) {
	addr, server, _ := proxied(t, nil)
	for _, test := range []struct{ send, want string }{
		{"*x\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
		{"*99999999999\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
		{"*1000000000000000000000\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
		{"*" + strings.Repeat("1", 100) + "\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
		{"*1\n", "-ERR Protocol error: invalid multibulk length\r\n"},
		{"*2\r\n$3\r\nGET\r\nx\r\n", "-ERR Protocol error: expected '$', got 'x'\r\n"},
		{"*2\r\n$4\r\nECHO\r\nx\r\n", "-ERR Protocol error: expected '$', got 'x'\r\n"}, // streamed: the server says so
		{"*2\r\n$4\r\nECHO\r\n$-5\r\n", "-ERR Protocol error: invalid bulk length\r\n"},
		{"*3\r\n$3\r\nSET\r\n$6\r\nuser:1\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length\r\n"},
		{"*3\r\n$3\r\nSET\r\n$6\r\nuser:1\r\n$01\r\nx\r\n", "-ERR Protocol error: invalid bulk length\r\n"},
		{"*3\r\n$3\r\nSET\r\n$6\r\nuser:1\r\n$1\r\nxx\r\n", "-ERR Protocol error: a string longer than its length\r\n"},
		{"*1\r\n$4\r\nPINGGET user:1\r\n", "-ERR Protocol error: a string longer than its length\r\n"},
		{"GET \"user:1\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"},
		{"GET \"user:1\"x\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"},
		{"GET a\x00b\r\n", "-ERR Protocol error: a zero byte in an inline request\r\n"},
		{strings.Repeat("x", maxInline+100), "-ERR Protocol error: too big inline request\r\n"},
	} {
		c := dial(t, addr)
		talk(t, c, wire("PING")+test.send+wire("SET", "executed", "1"), "+PONG\r\n"+test.want)
		atEnd(t, c)
	}
	for _, cut := range []string{"*3\r\n$3\r\nSET\r\n$8\r\nexecuted\r\n$1\r\n", "*3\r\n$3\r\nSET\r\n$6\r\nuser:1\r\n$999999999999\r\nx", "SET executed 1", "*2147483647\r\n$3\r\nDEL\r\n", "*"} {
		c := dial(t, addr)
		if _, err := io.WriteString(c, cut); err != nil {
			t.Fatal(err)
		}
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		atEnd(t, c)
	}
	if n, err := server.Do(t.Context(), "EXISTS", "executed", "user:1"); err != nil || n != "0" {
		t.Errorf("%s keys were written, %v", n, err)
	}
}

// TestRandomBytes: whatever bytes a client sends, the proxy serves the next one.
func TestRandomBytes(t *testing.T) {
	addr, server, _ := proxied(t, nil)
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		stream := []byte(wire("PING") + commandsOf(r, "user:", r.IntN(5), nil))
		for range 1 + r.IntN(4) {
			stream[r.IntN(len(stream))] = "*$\r\n-0123456789\x00\xffx"[r.IntN(18)]
		}
		c := dial(t, addr)
		go func() {
			c.Write(stream)
			c.(*net.TCPConn).CloseWrite()
		}()
		if _, err := io.Copy(io.Discard, c); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Fatalf("%v after %q", err, stream)
		}
		c.Close()
	}
	if _, err := server.Do(t.Context(), "PING"); err != nil {
		t.Fatal(err)
	}
	talk(t, dial(t, addr), wire("PING"), "+PONG\r\n")
}

// TestUnaskedError: an error that belongs to no command is the server's last word. Else the client
// would take it for the reply to its next command.
func TestUnaskedError(t *testing.T) {
	p := start(t, fakeRedis(t, redisproc.ForTest(t).Addr(), func(c net.Conn) {
		io.WriteString(c, "+OK\r\n-ERR late\r\n")
		b := make([]byte, 100)
		for {
			if _, err := c.Read(b); err != nil {
				return
			}
			io.WriteString(c, "+second\r\n")
		}
	}))
	c := dial(t, p.addr)
	talk(t, c, wire("PING", "hostile"), "+OK\r\n-ERR late\r\n")
	io.WriteString(c, wire("PING"))
	c.(*net.TCPConn).CloseWrite() // which ends it in any case
	if got, _ := io.ReadAll(c); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

// TestLineBeforeLogin: a client without a login takes no memory by a long line while its command
// waits.
func TestLineBeforeLogin(t *testing.T) {
	read := make(chan struct{})
	var notes lines
	o := fakeRedis(t, redisproc.ForTest(t).Addr(), func(c net.Conn) {
		io.WriteString(c, "-NOAUTH Authentication required.\r\n")
		b := make([]byte, bufferSize)
		for n := 0; ; { // without a reply
			k, err := c.Read(b)
			if err != nil {
				return
			}
			if n += k; n > 7000 && n-k <= 7000 { // fakeRedis has read up to 4 KiB
				read <- struct{}{}
			}
		}
	})
	o.Metrics, o.Err, o.Drain = ":0", &notes, time.Millisecond
	p := start(t, o)
	url := regexp.MustCompile(`http://\S+/`).FindString(notes.await(t, "metrics are at "))
	for _, line := range []string{"monitor", "auth", "hello 3 auth"} {
		c := dial(t, p.addr)
		talk(t, c, wire("PING", "hostile")+line+strings.Repeat(" x", 6000)+"\r\n", "-NOAUTH Authentication required.\r\n")
		<-read
		_, text := ask(t, url+"metrics", "")
		if held := regexp.MustCompile(`(?m)^bale_proxy_held_bytes (\d+)$`).FindStringSubmatch(text); held == nil || held[1] != "0" {
			t.Errorf("%s: it holds memory: %q", line, held)
		}
		c.Close()
	}
}

// fakeRedis passes the proxy's own connections to a real server. It answers a connection whose
// first command names the key "hostile" by a function.
func fakeRedis(t *testing.T, real string, answer func(net.Conn)) Options {
	t.Helper()
	addr := tcptest.Listen(t, func(c net.Conn) {
		b := make([]byte, 4096)
		n, err := c.Read(b)
		if err != nil {
			return
		}
		if bytes.Contains(b[:n], []byte("hostile")) {
			answer(c)
			return
		}
		up, err := net.Dial("tcp", real)
		if err != nil {
			return
		}
		defer up.Close()
		go func() { io.Copy(c, up); c.Close() }()
		up.Write(b[:n])
		io.Copy(up, c)
	})
	return options("redis://"+addr, "*")
}

// TestHostileServer: replies that no server sends end the connection, without panic and without
// memory for what they only announce.
func TestHostileServer(t *testing.T) {
	real := redisproc.ForTest(t)
	deep := strings.Repeat("*1\r\n", 1_000_000)
	for name, test := range map[string]struct{ reply, want string }{
		"nonsense":            {"hello\r\n", ""},
		"huge list":           {"*999999999999999999\r\n", ""},
		"huge lists":          {strings.Repeat("*1099511627776\r\n", 3), ""},
		"huge string":         {"$999999999999\r\nabc", ""},
		"negative":            {"*-7\r\n", ""},
		"half a value":        {"$100\r\n\xba\x1exx", ""},
		"a string too long":   {"$1\r\nabc\r\n", "$1\r\na"},
		"two replies":         {"+OK\r\n+OK\r\n", "+OK\r\n"},
		"streamed":            {"$?\r\n;4\r\nabcd\r\n", ""},
		"deep":                {deep + "+x\r\n", deep + "+x\r\n"},
		"attributes":          {"|1\r\n+a\r\n+b\r\n$1\r\nx\r\n", "|1\r\n+a\r\n+b\r\n$1\r\nx\r\n"},
		"an unknown push":     {">2\r\n+a\r\n:1\r\n+OK\r\n", ">2\r\n+a\r\n:1\r\n+OK\r\n"},
		"an empty push":       {">0\r\n+OK\r\n", ">0\r\n+OK\r\n"},
		"a bad confirmation":  {">2\r\n$9\r\nsubscribe\r\n:1\r\n+OK\r\n", ""},
		"no count":            {">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n\r\n", ""},
		"another count":       {">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n$5\r\n", ""},
		"a message of no one": {"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n", "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, fakeRedis(t, real.Addr(), func(c net.Conn) { io.WriteString(c, test.reply) }))
			for _, command := range [][]string{{"GET", "hostile"}, {"HGETALL", "hostile"}, {"TYPE", "hostile"}} {
				c := dial(t, p.addr)
				if _, err := io.WriteString(c, wire(command...)); err != nil {
					t.Fatal(err)
				}
				got, _ := io.ReadAll(c)
				// What was understood before may be there. A packed value never is.
				if !strings.HasPrefix(test.reply, string(got)) || !strings.HasPrefix(string(got), test.want) || command[0] == "GET" && bytes.Contains(got, []byte("\xba\x1e")) {
					t.Errorf("%s: %.100q", command, got)
				}
			}
		})
	}
}

// TestEndings: a server or clients that break one connection after the other do not fill the log.
func TestEndings(t *testing.T) {
	real := redisproc.ForTest(t)
	for pool := range 2 {
		var notes lines
		o := fakeRedis(t, real.Addr(), func(c net.Conn) { io.WriteString(c, "hello\r\n") })
		o.Pool, o.Err = pool, &notes
		p := start(t, o)
		begin := time.Now()
		for range 100 {
			c := dial(t, p.addr)
			io.WriteString(c, wire("GET", "hostile"))
			io.Copy(io.Discard, c)
			c.Close()
		}
		text := notes.await(t, "connection: Redis sent Protocol error")
		if n, most := strings.Count(text, "\n")-1, maxSlow*(2+int(time.Since(begin)/time.Second)); n > most {
			t.Errorf("--pool %d: %d lines, more than %d", pool, n, most)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var notes lines
		o := options("", "*")
		o.Err = &notes
		p := &proxy{options: o}
		for range 100 {
			c := &client{proxy: p, cancel: func() {}}
			c.memory.all = &p.memory
			box := outbox{client: c}
			box.changed.L = &box.lock
			box.Write(make([]byte, keptOut+1))
		}
		if n := strings.Count(notes.b.String(), "ends a connection: replies that it does not read"); n != maxSlow {
			t.Errorf("%d lines of clients that do not read", n)
		}
	})
}

// TestHostileOwnReply: what Redis sends to the proxy itself, for the dictionaries, neither ends it
// nor takes memory.
func TestHostileOwnReply(t *testing.T) {
	server := redisproc.ForTest(t)
	var hostile atomic.Bool
	sent := make(chan struct{}, 1)
	addr := between(t, server, func(c, up net.Conn, got []byte) bool {
		if !hostile.Load() || bytes.Contains(got, []byte("message")) {
			c.Write(got)
			return true
		}
		io.WriteString(c, "$9223372036854775807\r\n")
		select {
		case sent <- struct{}{}:
		default:
		}
		return true
	})
	p := start(t, options("redis://"+addr, "*"))
	talk(t, dial(t, p.addr), wire("SET", "k", big("k"))+wire("GET", "k"), "+OK\r\n"+fmt.Sprintf("$%d\r\n%s\r\n", len(big("k")), big("k")))
	hostile.Store(true)
	announce(t, server, sent)
	hostile.Store(false)
	talk(t, dial(t, p.addr), wire("GET", "k"), fmt.Sprintf("$%d\r\n%s\r\n", len(big("k")), big("k")))
}

// between listens before a server, and lets pass answer for it with what it has sent. It ends the
// connection if pass is false.
func between(t *testing.T, server *redisproc.Server, pass func(c, up net.Conn, got []byte) bool) string {
	return tcptest.Listen(t, func(c net.Conn) {
		up, err := net.Dial("tcp", server.Addr())
		if err != nil {
			return
		}
		defer up.Close()
		go func() {
			defer c.Close()
			for b := make([]byte, 64<<10); ; {
				n, err := up.Read(b)
				if err != nil || !pass(c, up, b[:n]) {
					return
				}
			}
		}()
		io.Copy(up, c)
	})
}

// announce lets all programs look at the registry, again until one does: it may not listen yet.
func announce(t *testing.T, server *redisproc.Server, seen <-chan struct{}) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if _, err := server.Do(t.Context(), "PUBLISH", dict.DefaultPrefix+"changes", ""); err != nil {
			t.Fatal(err)
		}
		select {
		case <-seen:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
	t.Fatal("nobody listens to the registry")
}

// TestHostileMessage: what is no message, where the proxy listens for those of the registry, does
// not end it.
func TestHostileMessage(t *testing.T) {
	server := redisproc.ForTest(t)
	sent := make(chan struct{}, 1)
	addr := between(t, server, func(c, up net.Conn, got []byte) bool {
		if !bytes.Contains(got, []byte("message")) {
			c.Write(got)
			return true
		}
		io.WriteString(c, "*0\r\n")
		io.Copy(io.Discard, up) // until the proxy is gone, from this connection at least
		select {
		case sent <- struct{}{}:
		default:
		}
		return false
	})
	p := start(t, options("redis://"+addr, "*"))
	talk(t, dial(t, p.addr), wire("SET", "k", big("k")), "+OK\r\n")
	announce(t, server, sent)
	talk(t, dial(t, p.addr), wire("GET", "k"), fmt.Sprintf("$%d\r\n%s\r\n", len(big("k")), big("k")))
}

// TestStates: what a reply means follows the connection's state.
func TestStates(t *testing.T) {
	addr, server, _ := proxied(t, nil)
	value := big("state")
	stored := fmt.Sprintf("$%d\r\n%s\r\n", len(value), value)
	set := wire("SET", "user:1", value)
	get := wire("GET", "user:1")
	absent := frame.Freshness{Absent: true}.Append(frame.Header{Version: frame.V2}.Append(nil))
	if _, err := server.Do(t.Context(), "SET", "user:absent", string(absent)); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ send, want string }{
		"a transaction":            {set + wire("MULTI") + get + wire("PING") + get + wire("EXEC") + get, "+OK\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n" + stored + "+PONG\r\n" + stored + stored},
		"one that is discarded":    {set + wire("MULTI") + get + wire("DISCARD") + get, "+OK\r\n+OK\r\n+QUEUED\r\n+OK\r\n" + stored},
		"EXEC with an argument":    {set + wire("MULTI") + get + wire("EXEC", "x") + get, "+OK\r\n+OK\r\n+QUEUED\r\n-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command\r\n" + stored},
		"one that is reset":        {set + wire("MULTI") + get + wire("RESET") + get, "+OK\r\n+OK\r\n+QUEUED\r\n+RESET\r\n" + stored},
		"a refused command":        {set + wire("MULTI") + wire("APPEND", "user:1", "x") + wire("EXEC") + get, "+OK\r\n+OK\r\n-BALE APPEND on a key in scope: it works on the value's bytes inside the server; ask Redis itself, or leave the key out (--match, --exclude)\r\n-EXECABORT Transaction discarded because of previous errors.\r\n" + stored},
		"absent in RESP2":          {wire("GET", "user:absent"), "$-1\r\n"},
		"absent in RESP3":          {wire("CLIENT", "REPLY", "SKIP") + wire("HELLO", "3") + wire("GET", "user:absent"), "_\r\n"},
		"CLIENT REPLY OFF":         {set + wire("CLIENT", "REPLY", "OFF") + get + wire("APPEND", "user:1", "x") + wire("CLIENT", "REPLY", "ON") + get, "+OK\r\n+OK\r\n" + stored},
		"CLIENT REPLY SKIP":        {set + wire("CLIENT", "REPLY", "SKIP") + get + get, "+OK\r\n" + stored},
		"a push among replies":     {wire("CLIENT", "REPLY", "SKIP") + wire("HELLO", "3") + wire("SUBSCRIBE", "a", "b") + set + get + wire("PUBLISH", "b", value) + get, ">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n+OK\r\n" + stored + ">3\r\n$7\r\nmessage\r\n$1\r\nb\r\n" + stored + ":1\r\n" + stored},
		"SUBSCRIBE in MULTI":       {wire("MULTI") + wire("SUBSCRIBE", "a") + wire("EXEC"), "+OK\r\n-BALE SUBSCRIBE " + notInMulti + "\r\n-EXECABORT Transaction discarded because of previous errors.\r\n"},
		"CLIENT REPLY in MULTI":    {wire("CLIENT", "REPLY", "OFF") + wire("MULTI") + wire("CLIENT", "REPLY", "ON") + wire("EXEC") + wire("CLIENT", "REPLY", "ON") + wire("PING"), "+OK\r\n+PONG\r\n"},
		"a replica":                {wire("PSYNC", "?", "-1") + wire("REPLCONF", "ACK", "1") + wire("PING"), "-BALE PSYNC " + noReplica + "\r\n-BALE REPLCONF " + noReplica + "\r\n+PONG\r\n"},
		"MONITOR without a permit": {wire("MONITOR", "x") + set + get, "-ERR wrong number of arguments for 'monitor' command\r\n+OK\r\n" + stored},
	} {
		t.Run(name, func(t *testing.T) {
			if push := ">3\r\n$7\r\nmessage\r\n$1\r\nb\r\n" + stored; strings.Contains(test.want, push) {
				if v, err := server.Do(t.Context(), "INFO", "server"); err != nil || !strings.Contains(v, "redis_version:7.0") { // later ones send it after the reply
					test.want = strings.Replace(test.want, push+":1\r\n", ":1\r\n"+push, 1)
				}
			}
			c := dial(t, addr)
			talk(t, c, test.send, test.want)
			talk(t, c, wire("QUIT"), "+OK\r\n")
			atEnd(t, c)
		})
	}
}

// TestMaintenanceNotifications: a server that can announce another address is not asked to. The
// client has the error of a server that cannot.
func TestMaintenanceNotifications(t *testing.T) {
	real := redisproc.ForTest(t)
	p := start(t, fakeRedis(t, real.Addr(), func(c net.Conn) {
		io.WriteString(c, "+OK\r\n>4\r\n$6\r\nMOVING\r\n:1\r\n:2\r\n$13\r\n10.0.0.9:6379\r\n")
	}))
	on := wire("CLIENT", "Maint_Notifications", "on", "hostile")
	for name, stream := range map[string]string{
		"alone":         on,
		"inline":        "client Maint_Notifications 'hostile'\n",
		"a pipeline":    wire("PING") + on + on + wire("PING"),
		"a transaction": wire("MULTI") + on + wire("PING") + wire("EXEC") + wire("PING"),
		"no reply":      wire("CLIENT", "REPLY", "SKIP") + on + wire("PING"),
		"subscribed":    wire("SUBSCRIBE", "a") + on,
	} {
		t.Run(name, func(t *testing.T) {
			stream += wire("QUIT")
			other := strings.ReplaceAll(stream, "Maint_", "Other_") // which every server lacks
			talk(t, dial(t, p.addr), stream, strings.ReplaceAll(run(t, 0, real.Addr(), other), "Other_", "Maint_"))
		})
	}
}

// TestMonitor: the lines of MONITOR are no replies, and a connection that has them takes no command
// whose reply could be taken for one.
func TestMonitor(t *testing.T) {
	addr, _, _ := proxied(t, nil)
	c := dial(t, addr)
	if _, err := io.WriteString(c, wire("MONITOR")+wire("GET", "user:1")+wire("RESET")+wire("SET", "user:1", "x")+wire("GET", "user:1")+wire("QUIT")); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	replies := regexp.MustCompile(`\+\d[^\r]*\r\n`).ReplaceAllString(string(got), "")
	if want := "+OK\r\n-BALE GET " + inMonitor + "\r\n+RESET\r\n+OK\r\n$1\r\nx\r\n+OK\r\n"; replies != want {
		t.Errorf("%q", got)
	}
}
