package keyspace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/tcptest"
)

// readConn is a connection that is read from.
type readConn struct {
	net.Conn
	from io.Reader
}

func (c readConn) Read(p []byte) (int, error) { return c.from.Read(p) }

// TestGuard: replies pass as they are, in whatever pieces they come. Those beyond a limit end the
// connection before the client sees them.
func TestGuard(t *testing.T) {
	const most = 100
	long := strings.Repeat("x", most)
	for _, test := range []struct{ before, beyond string }{
		{"+OK\r\n-ERR no\r\n:1\r\n_\r\n#t\r\n,1.5\r\n(12345678901234567890\r\n", ""},
		{"$3\r\na\r\n\r\n$-1\r\n*-1\r\n$0\r\n\r\n*0\r\n%0\r\n=7\r\ntxt:abc\r\n!5\r\nERR x\r\n", ""},
		{"$100\r\n" + long + "\r\n", "$101\r\n"},
		{"*2\r\n*2\r\n:1\r\n:2\r\n%1\r\n+a\r\n*1\r\n$1\r\n$\r\n", "$9223372036854775807\r\n"},
		{"|1\r\n+a\r\n+b\r\n>2\r\n+message\r\n|0\r\n:1\r\n", "*1048577\r\n"},
		{"", "%524289\r\n"},
		{"*1000000\r\n:1\r\n", "*50000\r\n"},
		{strings.Repeat("*1\r\n", deepestReply) + ":1\r\n", strings.Repeat("*1\r\n", deepestReply) + "*1\r\n"},
		{strings.Repeat(strings.Repeat("*1\r\n", deepestReply)+":1\r\n", 100), ""},
		{"+" + strings.Repeat("x", largestLine-3) + "\r\n", "-" + strings.Repeat("x", largestLine)},
		{"", "$-2\r\n"},
		{"", "*x\r\n"},
		{"", "$" + strings.Repeat("0", longestNumber) + "5\r\n"},
		{"", "*9223372036854775808\r\n"},
	} {
		for name, pieces := range map[string]func(io.Reader) io.Reader{"one": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "half": iotest.HalfReader} {
			g := &guard{Conn: readConn{from: pieces(strings.NewReader(test.before + test.beyond))}, most: most}
			got, err := io.ReadAll(g)
			if test.beyond == "" {
				if err != nil || string(got) != test.before || g.lack != 0 || len(g.open) != 0 || g.body != 0 {
					t.Errorf("%s: %.100q: %.100q, %v, %+v", name, test.before, got, err, g)
				}
				continue
			}
			if !errors.Is(err, errReply) || bytes.Contains(got, []byte(test.beyond)) || !strings.HasPrefix(test.before+test.beyond, string(got)) {
				t.Errorf("%s: %.100q: %.100q, %v", name, test.before+test.beyond, got, err)
			}
			if _, again := g.Read(make([]byte, 10)); again != err {
				t.Errorf("%s: and then %v", name, again)
			}
		}
	}
}

// TestHostileServer: a server that announces what it does not send is an error, and takes no
// memory.
func TestHostileServer(t *testing.T) {
	for _, reply := range []string{
		"$9223372036854775807\r\n", "$1000000000\r\n", "*1000000000\r\n", "%500000000\r\n", "~9223372036854775807\r\n",
		strings.Repeat("*1\r\n", 1_000_000), "-" + strings.Repeat("x", 1<<20) + "\r\n",
	} {
		addr := tcptest.Listen(t, func(c net.Conn) {
			for b := make([]byte, 4096); ; {
				if _, err := c.Read(b); err != nil {
					return
				}
				io.WriteString(c, reply)
			}
		})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		client, err := Open(t.Context(), "redis://"+addr)
		runtime.ReadMemStats(&after)
		if client != nil {
			client.Close()
		}
		if n := after.TotalAlloc - before.TotalAlloc; err == nil || n > 16<<20 {
			t.Errorf("%.30q: %v, and %d bytes were allocated", reply, err, n)
		}
	}
}

// TestInfoWithoutSections: fields of INFO count that stand in no section. go-redis' InfoMap ends
// the program then.
func TestInfoWithoutSections(t *testing.T) {
	ctx := t.Context()
	info := "run_id:a\r\nmaster_replid:b\r\nrole:master\r\nused_memory:5\r\ncmdstat_info:calls=7,usec=1\r\ndb0:keys=3,expires=0,avg_ttl=0\r\n"
	client := opened(t, "redis://"+tcptest.Redis(t, map[string]string{
		"PING": "+PONG\r\n", "INFO": fmt.Sprintf("$%d\r\n%s\r\n", len(info), info), "SCAN": "*2\r\n$1\r\n0\r\n*0\r\n",
	}))
	places, err := Places(ctx, client)
	if err != nil || len(places) != 1 || places[0].RunID != "a" {
		t.Errorf("%+v, %v", places, err)
	}
	if n, err := UsedMemory(ctx, client); n != 5 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if calls, err := CommandCalls(ctx, client); calls["info"] != 7 || err != nil {
		t.Errorf("%v, %v", calls, err)
	}
	if n, err := Count(ctx, client); n != 3 || err != nil {
		t.Errorf("%d keys, %v", n, err)
	}
	_, err = FindReferences(ctx, []redis.UniversalClient{client}, ReferenceOptions{Proof: true})
	wantInconclusive(t, err, "", "RESETSTAT") // for it counts no INFO
}
