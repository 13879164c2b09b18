package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/tcptest"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
)

// clustered is a proxy in front of a cluster, with its notes.
func clustered(t testing.TB, c *redisproc.Cluster, change func(*Options)) (*running, *lines) {
	t.Helper()
	var notes lines
	o := options("redis://"+c.Addrs()[0], "*")
	o.Cluster, o.Err = true, &notes
	if change != nil {
		change(&o)
	}
	return start(t, o), &notes
}

var listensFor = regexp.MustCompile(`listens on (\S+), for the node (\S+)\n`)

// listener is the address at the proxy of a server.
func (l *lines) listener(t testing.TB, s *redisproc.Server) string {
	t.Helper()
	for range 60_000 {
		l.lock.Lock()
		text := l.b.String()
		l.lock.Unlock()
		for _, m := range listensFor.FindAllStringSubmatch(text, -1) {
			if m[2] == s.Addr() {
				return m[1]
			}
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("%s has no listener", s.Addr())
	return ""
}

func do(t testing.TB, s *redisproc.Server, args ...string) string {
	t.Helper()
	reply, err := s.Do(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// TestClusterFlag: a server of a cluster would send clients past a proxy without --cluster, and a
// single one has no nodes.
func TestClusterFlag(t *testing.T) {
	t.Parallel()
	c := redisproc.ClusterForTest(t, 1)
	if err := Run(t.Context(), options("redis://"+c.Addrs()[0], "*")); !errors.Is(err, cli.ErrUsage) || !strings.Contains(err.Error(), "part of a cluster: give --cluster") {
		t.Errorf("%v", err)
	}
	o := options(redisproc.ForTest(t).URL(), "*")
	o.Cluster = true
	if err := Run(t.Context(), o); !errors.Is(err, cli.ErrUsage) || !strings.Contains(err.Error(), "no part of a cluster") {
		t.Errorf("%v", err)
	}
}

// varies is what differs in a description from one moment to the next.
var varies = regexp.MustCompile(`(?m)^[$=]\d{3,}\r\n|\d{1,13} \d{1,13} (\d+ (?:dis)?connected)|(replication-offset\r\n):\d+`)

// TestClusterDescribed: every description of the cluster is that of the server, with the ports of
// the proxy in place of the servers'.
func TestClusterDescribed(t *testing.T) {
	t.Parallel()
	t.Run("plain", func(t *testing.T) { testDescribed(t, redisproc.Options{}, nil, nil) })
	t.Run("tls", func(t *testing.T) {
		servers, change, client := encrypted(t)
		testDescribed(t, servers, change, client)
	})
}

// encrypted is TLS for a cluster and a proxy in front of it, and what a client needs for either.
func encrypted(t *testing.T) (servers redisproc.Options, change func(*Options), client *tls.Config) {
	t.Helper()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	roots := x509.NewCertPool()
	roots.AddCert(certify(t, 1, cert, key))
	change = func(o *Options) {
		o.Redis, o.Login.CA = strings.Replace(o.Redis, "redis://", "rediss://", 1), cert
		o.TLS = Certificates{Cert: cert, Key: key}
	}
	return redisproc.Options{TLS: redisproc.TLS{Cert: cert, Key: key, CA: cert}}, change, &tls.Config{RootCAs: roots}
}

// dialTLS is dial with TLS, or without for nil.
func dialTLS(t testing.TB, addr string, client *tls.Config) net.Conn {
	t.Helper()
	c := dial(t, addr)
	if client != nil {
		client = client.Clone()
		client.ServerName = "127.0.0.1"
		c = tls.Client(c, client)
	}
	return c
}

func testDescribed(t *testing.T, servers redisproc.Options, change func(*Options), client *tls.Config) {
	cluster := redisproc.ClusterForTestWith(t, 3, servers)
	if _, err := cluster.AddReplica(t.Context(), cluster.Servers[1]); err != nil {
		t.Fatal(err)
	}
	all := append(cluster.Servers, cluster.Replicas...)
	do(t, all[2], "CONFIG", "SET", "cluster-announce-hostname", "three.example")
	id := do(t, all[1], "CLUSTER", "MYID")
	for { // until all know the name
		n := 0
		for _, s := range all {
			if strings.Contains(do(t, s, "CLUSTER", "NODES"), "three.example") {
				n++
			}
		}
		if n == len(all) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	_, notes := clustered(t, cluster, change)
	proxied := map[string]string{} // ports
	for _, s := range all {
		_, port, _ := net.SplitHostPort(s.Addr())
		_, proxied[port], _ = net.SplitHostPort(notes.listener(t, s))
	}
	ask := func(addr, stream string) string {
		c := dialTLS(t, addr, client)
		defer c.Close()
		if _, err := io.WriteString(c, stream+wire("QUIT")); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		return varies.ReplaceAllString(string(got), "$1$2")
	}
	good := wire("CLUSTER", "SLOTS") + wire("cluster", "Shards") + wire("CLUSTER", "NODES") + wire("CLUSTER", "REPLICAS", id) + wire("cluster", "slaves", id) + "cluster slots\r\n" +
		wire("CLUSTER", "REPLICAS", "none") + wire("CLUSTER", "MYID") + wire("CLUSTER", "KEYSLOT", "a") + wire("CLUSTER", "COUNTKEYSINSLOT", "1")
	for _, stream := range []string{
		good + wire("CLUSTER", "SLOTS", "x") + wire("CLUSTER") + wire("CLUSTER", "NONE"),
		wire("READONLY") + wire("MULTI") + good + wire("EXEC"), wire("CLIENT", "REPLY", "SKIP") + good,
	} {
		for _, protocol := range []string{"2", "3"} {
			for _, s := range all {
				hello := wire("HELLO", protocol)
				want := ask(s.Addr(), hello+stream)
				want = regexp.MustCompile(`:(\d{4,5})(@|\r)`).ReplaceAllStringFunc(want, func(m string) string {
					port, after := m[1:len(m)-1], m[len(m)-1:]
					if p, ok := proxied[port]; ok {
						port = p
					}
					return ":" + port + after
				})
				want = strings.NewReplacer("three.example", "127.0.0.1", "$13\r\n", "$9\r\n").Replace(want)
				got := ask(notes.listener(t, s), hello+stream)
				ids := regexp.MustCompile(`(\$2\r\nid\r\n):\d+`)
				if got, want := ids.ReplaceAllString(got, "$1"), ids.ReplaceAllString(want, "$1"); got != want {
					t.Fatalf("RESP%s of %s:\ngot  %q\nwant %q", protocol, s.Addr(), got, want)
				}
				for port := range proxied {
					if strings.Contains(got, ":"+port+"\r") || strings.Contains(got, ":"+port+"@") {
						t.Errorf("port %s is shown", port)
					}
				}
			}
		}
	}
}

// TestClusterTLS: with TLS on both sides clients of a cluster read and write packed values with a
// dictionary, in both protocols and from replicas. MOVED leads to listeners with TLS, and nothing
// answers without.
func TestClusterTLS(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	servers, change, secure := encrypted(t)
	cluster := redisproc.ClusterForTestWith(t, 3, servers)
	replica, err := cluster.AddReplica(ctx, cluster.Servers[0])
	if err != nil {
		t.Fatal(err)
	}
	past := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), TLSConfig: secure})
	defer past.Close()
	d := activated(t, past, big("a dictionary"))
	p, notes := clustered(t, cluster, func(o *Options) {
		change(o)
		o.Groups[0].Match, o.Groups[0].Compress, o.Groups[0].Group = []string{"user:*", "{b}*"}, "zstd:3+dict", "user"
	})
	for _, protocol := range []int{2, 3} {
		through := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{p.addr}, Protocol: protocol, TLSConfig: secure, ReadOnly: true, RouteRandomly: true})
		defer through.Close()
		for i := range 50 {
			key := fmt.Sprintf("user:%d:%d", protocol, i)
			if err := through.Set(ctx, key, big(key), 0).Err(); err != nil {
				t.Fatal(err)
			}
			for v := ""; v == ""; { // a replica may be late
				v, err = through.Get(ctx, key).Result()
				if err != nil && !errors.Is(err, redis.Nil) || err == nil && v != big(key) {
					t.Fatalf("%q, %v", v, err)
				}
			}
			if h, _, ok := frame.Parse([]byte(past.Get(ctx, key).Val())); !ok || h.DictionaryID != d.ID() {
				t.Errorf("%s is packed with %v", key, h.DictionaryID)
			}
		}
	}
	first, second := notes.listener(t, cluster.Servers[0]), notes.listener(t, cluster.Servers[1])
	slot := do(t, cluster.Servers[0], "CLUSTER", "KEYSLOT", "{b}1") // 3300
	talk(t, dialTLS(t, second, secure), wire("GET", "{b}1"), "-MOVED "+slot+" "+first+"\r\n")
	talk(t, dialTLS(t, first, secure), wire("SET", "{b}1", big("x"))+wire("GET", "{b}1"), fmt.Sprintf("+OK\r\n$%d\r\n%s\r\n", len(big("x")), big("x")))
	talk(t, dialTLS(t, notes.listener(t, replica), secure), wire("GET", "{b}1"), "-MOVED "+slot+" "+first+"\r\n")
	for _, addr := range []string{p.addr, first, cluster.Servers[0].Addr()} {
		c := dial(t, addr)
		if _, err := io.WriteString(c, wire("PING")); err != nil {
			t.Fatal(err)
		}
		if b, _ := io.ReadAll(c); bytes.Contains(b, []byte("PONG")) {
			t.Errorf("%s answers without TLS: %q", addr, b)
		}
	}
}

// TestClusterRedirects: errors that send a client to another node have the proxy's address, as an
// option says it; the one of the host at which the client came by default.
func TestClusterRedirects(t *testing.T) {
	t.Parallel()
	cluster := redisproc.ClusterForTest(t, 2)
	_, notes := clustered(t, cluster, nil)
	announced, others := clustered(t, cluster, func(o *Options) { o.Announce = "proxy.example" })
	first, second := notes.listener(t, cluster.Servers[0]), notes.listener(t, cluster.Servers[1])
	c := dial(t, second)
	slot := do(t, cluster.Servers[0], "CLUSTER", "KEYSLOT", "{b}1") // 3300
	moved := "-MOVED " + slot + " " + first + "\r\n"
	queued := "-EXECABORT Transaction discarded because of previous errors.\r\n"
	talk(t, c, wire("GET", "{b}1")+wire("SET", "{b}1", big("x"))+wire("MGET", "{b}1", "{b}2")+"get {b}1\r\n"+wire("SSUBSCRIBE", "{b}1"), moved+moved+moved+moved+moved)
	talk(t, c, wire("MULTI")+wire("GET", "{b}1")+wire("EXEC"), "+OK\r\n"+moved+queued)
	_, port, _ := net.SplitHostPort(others.listener(t, cluster.Servers[0]))
	talk(t, dial(t, others.listener(t, cluster.Servers[1])), wire("GET", "{b}1"), "-MOVED "+slot+" proxy.example:"+port+"\r\n")
	// The listener for any node leads to one of them.
	reply, err := bytes.NewBuffer(nil), error(nil)
	seed := dial(t, announced.addr)
	if _, err = io.WriteString(seed, wire("SET", "{b}1", big("x"))+wire("QUIT")); err == nil {
		_, err = io.Copy(reply, seed)
	}
	if got := reply.String(); err != nil || got != "+OK\r\n+OK\r\n" && got != "-MOVED "+slot+" proxy.example:"+port+"\r\n+OK\r\n" {
		t.Errorf("%q, %v", got, err)
	}
	c = dial(t, first)
	talk(t, c, wire("SET", "{b}1", big("x")), "+OK\r\n")
	if v := do(t, cluster.Servers[0], "GET", "{b}1"); !isPacked(v) {
		t.Errorf("%q is stored", v)
	}
	do(t, cluster.Servers[1], "CLUSTER", "SETSLOT", slot, "IMPORTING", do(t, cluster.Servers[0], "CLUSTER", "MYID"))
	do(t, cluster.Servers[0], "CLUSTER", "SETSLOT", slot, "MIGRATING", do(t, cluster.Servers[1], "CLUSTER", "MYID"))
	talk(t, c, wire("GET", "{b}1")+wire("SET", "{b}2", big("y")), fmt.Sprintf("$%d\r\n%s\r\n-ASK %s %s\r\n", len(big("x")), big("x"), slot, second))
	// ASKING is for the next command, also for one that takes memory, before which the proxy may
	// ask by itself.
	large := strings.Repeat(big("y"), 100)
	talk(t, dial(t, second), wire("ASKING")+wire("SET", "{b}2", large)+wire("ASKING")+wire("GET", "{b}2")+wire("GET", "{b}2"), fmt.Sprintf("+OK\r\n+OK\r\n+OK\r\n$%d\r\n%s\r\n%s", len(large), large, moved))
}

// TestClusterMovesTransaction: a slot that moves between MULTI and EXEC ends the transaction, and
// not the connection.
func TestClusterMovesTransaction(t *testing.T) {
	t.Parallel()
	cluster := redisproc.ClusterForTest(t, 2)
	_, notes := clustered(t, cluster, nil)
	first, second := notes.listener(t, cluster.Servers[0]), notes.listener(t, cluster.Servers[1])
	c := dial(t, first)
	talk(t, c, wire("SET", "{b}1", big("x"))+wire("MULTI")+wire("GET", "{b}1"), "+OK\r\n+OK\r\n+QUEUED\r\n")
	slot, heir := do(t, cluster.Servers[0], "CLUSTER", "KEYSLOT", "{b}1"), do(t, cluster.Servers[1], "CLUSTER", "MYID")
	do(t, cluster.Servers[0], "DEL", "{b}1") // no owner lets go of a slot with keys
	for _, s := range []*redisproc.Server{cluster.Servers[1], cluster.Servers[0]} {
		do(t, s, "CLUSTER", "SETSLOT", slot, "NODE", heir)
	}
	moved := "-MOVED " + slot + " " + second + "\r\n"
	talk(t, c, wire("EXEC")+wire("PING")+wire("GET", "{b}1")+wire("MULTI")+wire("PING")+wire("EXEC"),
		moved+"+PONG\r\n"+moved+"+OK\r\n+QUEUED\r\n*1\r\n+PONG\r\n")
}

// TestReplicaRedirectsTransaction: a server that becomes a replica between MULTI and EXEC ends the
// transaction, and not the connection.
func TestReplicaRedirectsTransaction(t *testing.T) {
	master, replica := redisproc.ForTest(t), redisproc.ForTest(t)
	if v, err := master.Do(t.Context(), "CLIENT", "CAPA", "redirect"); err != nil || v != "OK" {
		t.Skip("only Valkey redirects: ", v, err)
	}
	p := start(t, options(master.URL(), "user:*"))
	c := dial(t, p.addr)
	talk(t, c, wire("CLIENT", "CAPA", "redirect")+wire("MULTI")+wire("SET", "user:1", "x"), "+OK\r\n+OK\r\n+QUEUED\r\n")
	host, port, _ := net.SplitHostPort(replica.Addr())
	do(t, master, "REPLICAOF", host, port)
	io.WriteString(c, wire("EXEC")+wire("MULTI")+wire("PING")+wire("EXEC")+wire("ECHO", "1"))
	if got := untilEcho(t, c, "1"); !strings.HasPrefix(got, "-BALE ") && !strings.HasPrefix(got, "-TRYAGAIN ") || !strings.HasSuffix(got, "\r\n+OK\r\n+QUEUED\r\n*1\r\n+PONG\r\n") {
		t.Errorf("%q", got)
	}
}

// TestClusterPorts: nodes have the ports after that for any node, but for those that are in use.
func TestClusterPorts(t *testing.T) {
	t.Parallel()
	cluster := redisproc.ClusterForTest(t, 3)
	var p *running
	var notes *lines
	first := 0
	for p == nil { // another process may take a port
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		first = l.Addr().(*net.TCPAddr).Port
		l.Close()
		second, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+2))
		if err != nil || first > 60_000 {
			continue
		}
		defer second.Close()
		p, notes = clustered(t, cluster, func(o *Options) { o.Listen = fmt.Sprintf(":%d", first) })
	}
	if p.addr != fmt.Sprintf("127.0.0.1:%d", first) {
		t.Error(p.addr)
	}
	ports := map[int]bool{}
	for _, s := range cluster.Servers {
		_, text, _ := net.SplitHostPort(notes.listener(t, s))
		port, _ := strconv.Atoi(text)
		if ports[port] || port <= first || port == first+2 || port > first+10 {
			t.Errorf("%s is at %d, after %d", s.Addr(), port, first)
		}
		ports[port] = true
	}
}

// TestClusterDictionary: the dictionaries are read from the cluster, and the rights that
// docs/security.md gives the login of --redis are enough.
func TestClusterDictionary(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cluster := redisproc.ClusterForTest(t, 3)
	past := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	defer past.Close()
	d := activated(t, past, big("a dictionary"))
	page, err := os.ReadFile("../../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	rules := regexp.MustCompile("(?s)ACL SETUSER bale-proxy (.*?)\n.*`(\\+cluster[^`]*)`").FindSubmatch(page)
	if rules == nil {
		t.Fatal("docs/security.md has no rights of the proxy's login")
	}
	for _, s := range cluster.Servers {
		do(t, s, append([]string{"ACL", "SETUSER", "bale-proxy", "reset"}, strings.Fields(strings.ReplaceAll(fmt.Sprintf("%s %s", rules[1], rules[2]), "PASSWORD", "p"))...)...)
	}
	p, _ := clustered(t, cluster, func(o *Options) {
		o.Redis = strings.Replace(o.Redis, "redis://", "redis://bale-proxy:p@", 1)
		o.Groups[0].Compress, o.Groups[0].Group = "zstd:3+dict", "user"
	})
	for _, protocol := range []int{2, 3} {
		through := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{p.addr}, Protocol: protocol})
		defer through.Close()
		for i := range 20 {
			key := fmt.Sprint("user:", i)
			if err := through.Set(ctx, key, big(key), 0).Err(); err != nil {
				t.Fatal(err)
			}
			if v, err := through.Get(ctx, key).Result(); err != nil || v != big(key) {
				t.Errorf("%q, %v", v, err)
			}
			if h, _, ok := frame.Parse([]byte(past.Get(ctx, key).Val())); !ok || h.DictionaryID != d.ID() {
				t.Errorf("%s is packed with %v", key, h.DictionaryID)
			}
		}
	}
	for _, s := range cluster.Servers {
		for _, denied := range regexp.MustCompile("\nobject\n(.*)\n").FindAllStringSubmatch(do(t, s, "ACL", "LOG"), -1) {
			if denied[1] != "client|no-touch" { // which is asked for where there is one
				t.Errorf("refused: %s", denied[1])
			}
		}
	}
}

// TestClusterChanges: under load of a cluster client that also reads from replicas, a node comes,
// slots move there, a master dies, and is removed. No value is another's, and none is lost for
// good.
func TestClusterChanges(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cluster := redisproc.ClusterForTest(t, 3)
	for _, s := range cluster.Servers {
		if _, err := cluster.AddReplica(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	p, notes := clustered(t, cluster, nil)
	dead := cluster.Servers[0]
	atDead := dial(t, notes.listener(t, dead))
	talk(t, atDead, wire("PING"), "+PONG\r\n")

	loading, stop := context.WithCancel(ctx)
	var load sync.WaitGroup
	var done atomic.Int64
	for _, o := range []redis.ClusterOptions{{Protocol: 2}, {Protocol: 3, ReadOnly: true, RouteRandomly: true}} {
		o.Addrs = []string{p.addr}
		through := redis.NewClusterClient(&o)
		defer through.Close()
		for w := range 2 {
			load.Go(func() {
				for i := 0; loading.Err() == nil; i++ {
					key := fmt.Sprintf("load:%d:%d:%d", o.Protocol, w, i%50)
					if through.Set(loading, key, big(key), 0).Err() != nil {
						continue
					}
					if v, err := through.Get(loading, key).Result(); err == nil && v != big(key) {
						t.Errorf("%s: %q", key, v)
					} else if err == nil {
						done.Add(1)
					}
				}
			})
		}
	}
	goOn := func(what string) {
		t.Helper()
		for n := done.Load(); done.Load() < n+200; {
			time.Sleep(time.Millisecond)
			if t.Context().Err() != nil {
				t.Fatal(what)
			}
		}
	}
	defer load.Wait()
	defer stop()
	goOn("at rest")

	// A node comes, as a replica, and becomes a master with slots of another.
	added, err := cluster.AddReplica(ctx, cluster.Servers[1])
	if err != nil {
		t.Fatal(err)
	}
	notes.listener(t, added)
	do(t, added, "CLUSTER", "RESET", "HARD")
	host, port, _ := net.SplitHostPort(cluster.Servers[1].Addr())
	for _, s := range append(cluster.Servers, cluster.Replicas...) {
		if s != added {
			for line := range strings.Lines(do(t, s, "CLUSTER", "NODES")) {
				if strings.Contains(line, added.Addr()+"@") {
					do(t, s, "CLUSTER", "FORGET", line[:40])
				}
			}
		}
	}
	do(t, added, "CLUSTER", "MEET", host, port)
	from := cluster.Servers[1]
	to := do(t, added, "CLUSTER", "MYID")
	source := do(t, from, "CLUSTER", "MYID")
	known := func() bool {
		for _, s := range append(cluster.Servers, cluster.Replicas...) {
			nodes := do(t, s, "CLUSTER", "NODES")
			if !strings.Contains(nodes, to) || strings.Contains(nodes, "handshake") || !strings.Contains(do(t, added, "CLUSTER", "NODES"), source) {
				return false
			}
		}
		return true
	}
	for !known() {
		time.Sleep(20 * time.Millisecond)
	}
	for slot := 5461; slot < 5561; slot++ {
		if err := cluster.Move(ctx, slot, from, added, func() {}); err != nil {
			t.Fatalf("slot %d: %v", slot, err)
		}
	}
	goOn("slots have moved")

	dead.Kill()
	replica := cluster.Replicas[0]
	for !strings.HasPrefix(do(t, replica, "ROLE"), "master") {
		time.Sleep(20 * time.Millisecond)
	}
	if b, _ := io.ReadAll(atDead); len(b) > 0 {
		t.Errorf("%q", b)
	}
	goOn("after the fail-over")
	through := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{p.addr}})
	defer through.Close()
	for i := range 100 { // all slots are served
		key := fmt.Sprint("after:", i)
		var err error
		for range 100 {
			if err = through.Set(ctx, key, big(key), 0).Err(); err == nil {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		if v, failed := through.Get(ctx, key).Result(); err != nil || failed != nil || v != big(key) {
			t.Errorf("%s: %q, %v, %v", key, v, err, failed)
		}
	}
	at := notes.listener(t, dead)
	gone := ""
	for line := range strings.Lines(do(t, replica, "CLUSTER", "NODES")) {
		if strings.Contains(line, dead.Addr()+"@") {
			gone = line[:40]
		}
	}
	for _, s := range append(cluster.Servers[1:], cluster.Replicas...) {
		do(t, s, "CLUSTER", "FORGET", gone)
	}
	notes.await(t, "the node "+dead.Addr()+" has left the cluster: no listener on "+at)
	if c, err := net.Dial("tcp", at); err == nil {
		c.Close()
		t.Error("the listener of a node that is gone accepts connections")
	}
	goOn("without the node")
}

// TestElsewhere: a single server that sends clients elsewhere would send them past the proxy. Other
// errors are as they come.
func TestElsewhere(t *testing.T) {
	p := start(t, fakeRedis(t, redisproc.ForTest(t).Addr(), func(c net.Conn) {
		io.WriteString(c, "-REDIRECT 10.0.0.9:6379\r\n-MOVED by hand\r\n-\r\n-ASK\r\n")
		io.Copy(io.Discard, c)
	}))
	talk(t, dial(t, p.addr), wire("GET", "hostile")+strings.Repeat(wire("GET", "x"), 3), elsewhere+"\r\n-MOVED by hand\r\n-\r\n-ASK\r\n")
}

// TestHostileDescriptions: whatever a server says of its cluster, it takes bounded memory, and no
// node has an address that is none.
func TestHostileDescriptions(t *testing.T) {
	text := func(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }
	const empty = "*0\r\n"
	rest := " master - 0 0 1 connected 0-16383\n"
	var many strings.Builder
	for i := range 300_000 {
		fmt.Fprintf(&many, "%040x 10.0.0.1:1@1 master - 0 0 0 connected 1\n", i)
	}
	var thousand strings.Builder
	for i := range maxNodes + 1 {
		fmt.Fprintf(&thousand, "%040x 10.0.0.1:%d@1%s", i, i+1, rest)
	}
	const n = 300_000
	var endpoints strings.Builder
	fmt.Fprintf(&endpoints, "*1\r\n*%d\r\n:0\r\n:1\r\n", n+2)
	for i := range n {
		fmt.Fprintf(&endpoints, "*3\r\n$6\r\n%06d\r\n:1\r\n$1\r\na\r\n", i)
	}
	for name, test := range map[string]struct{ replies, want string }{
		"many endpoints":   {text("a 10.0.0.1:1@1"+rest) + endpoints.String(), "a=299999:1 [10.0.0.1:1 000000:1 000001:1 000002:1 000003:1 000004:1 000005:1 000006:1] "},
		"many words":       {text("a 10.0.0.1:1@1 master - 0 0 1 connected"+strings.Repeat(" 1", 7<<20)) + empty, "a=10.0.0.1:1 [10.0.0.1:1] "},
		"two nodes":        {text("a 10.0.0.1:6379@16379"+rest+"b 10.0.0.2:6380@16380,two.example,shard-id=x slave a 0 0 1 connected\n") + empty, "a=10.0.0.1:6379 [10.0.0.1:6379] b=10.0.0.2:6380 [10.0.0.2:6380 two.example:6380] "},
		"IPv6":             {text("a fe80::1%eth0:6379@1"+rest) + empty, "a=[fe80::1%eth0]:6379 [fe80::1%eth0:6379] "},
		"no host":          {text("a :6379@1"+rest) + empty, "a=127.0.0.1:6379 [127.0.0.1:6379] "},
		"endpoints":        {text("a 10.0.0.1:6379@1"+rest+"b 10.0.0.2:6379@1"+rest+"c 10.0.0.3:6379@1"+rest) + "*2\r\n*4\r\n:0\r\n:1\r\n*4\r\n$5\r\na.com\r\n:6379\r\n$1\r\na\r\n*0\r\n*3\r\n$-1\r\n:6379\r\n$1\r\nb\r\n*3\r\n:0\r\n:1\r\n*3\r\n$1\r\n?\r\n:6379\r\n$1\r\nc\r\n", "a=a.com:6379 [10.0.0.1:6379 a.com:6379] b=127.0.0.1:6379 [10.0.0.2:6379 127.0.0.1:6379] c=10.0.0.3:6379 [10.0.0.3:6379] "},
		"odd endpoints":    {text("a 10.0.0.1:6379@1"+rest) + "*4\r\n:1\r\n*-1\r\n*3\r\n+x\r\n:1\r\n*1\r\n*0\r\n*3\r\n:0\r\n:1\r\n*3\r\n$3\r\n\x1b[m\r\n:1\r\n$1\r\na\r\n", "a=10.0.0.1:6379 [10.0.0.1:6379] "},
		"states":           {text("a 10.0.0.1:6379@1 myself,master,nofailover - 0 0 1 connected 1\nb :0@0 master,noaddr - 0 0 0 disconnected\nc 10.0.0.1:1@1 handshake - 0 0 0 connected\nd 10.0.0.4:1@1 master,fail? - 0 0 0 connected\n") + empty, "a=10.0.0.1:6379 [10.0.0.1:6379] d=10.0.0.4:1 [10.0.0.4:1] failed "},
		"odd addresses":    {text("a 10.0.0.1:65536@1"+rest+"b 10.0.0.1:-1"+rest+"c 10.0.0.1"+rest+"d \x1b[2J:1"+rest+"e 10.0.0.1:1,\x1b[2J"+rest+"f:1 10.0.0.1:1"+rest+strings.Repeat("g", 65)+" 10.0.0.1:1"+rest+"h "+strings.Repeat("h", 256)+":1"+rest+"i 10.0.0.1:007"+rest) + empty, "i=10.0.0.1:7 [10.0.0.1:7] "},
		"without slots":    {text("a 10.0.0.1:6379@1 master - 0 0 1 connected\n") + empty, "no node of the cluster has a slot"},
		"no text":          {empty + empty, "CLUSTER NODES without a text"},
		"few words":        {text("a b\n") + empty, "a node in 2 words"},
		"an error":         {"-NOPERM this user \x1b[2J\r\n" + empty, "NOPERM this user"},
		"too many":         {text(many.String()) + empty, "the reply to CLUSTER has more than 16"},
		"a thousand":       {text(thousand.String()) + empty, "more than 1000 nodes"},
		"an announcement":  {"$999999999999\r\nabc", "EOF"},
		"another protocol": {"HTTP/1.1 200 OK\r\n\r\n", "a reply starts with"},
		"end":              {text("a 10.0.0.1:6379@1" + rest), "EOF"},
	} {
		addr := tcptest.Listen(t, func(c net.Conn) {
			if _, err := c.Read(make([]byte, 1000)); err != nil {
				return
			}
			io.Copy(c, strings.NewReader(test.replies))
			c.(*net.TCPConn).CloseWrite()
			io.Copy(io.Discard, c)
		})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		all, err := (&upstream{server: new(redis.Options)}).describe(t.Context(), addr, new(counters))
		runtime.ReadMemStats(&after)
		got := ""
		for _, m := range all {
			if got += fmt.Sprintf("%s=%s %s ", m.id, m.addr, m.names); m.failed {
				got += "failed "
			}
		}
		if err != nil {
			got = err.Error()
		}
		if got != test.want && (err == nil || !strings.Contains(got, test.want)) {
			t.Errorf("%s: %.500s, not %s", name, got, test.want)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 4*maxView {
			t.Errorf("%s: %d bytes", name, n)
		}
	}
}

// rewritten is what a client in a cluster of two nodes gets for a reply.
func rewritten(role role, reply string, memoryMax int64) (string, *counters, error) {
	o := options("", "*")
	o.Announce = "proxy"
	p := &proxy{options: o}
	p.cluster = &cluster{proxy: p, nodes: map[string]*node{}, named: map[string]*node{}}
	for i, id := range []string{"a", "b"} {
		n := &node{id: id, port: 7001 + i}
		p.cluster.named[id], p.cluster.named[fmt.Sprintf("10.0.0.%d:6379", i+1)] = n, n
	}
	p.memory.max = memoryMax
	c := &client{proxy: p, ctx: context.Background(), addr: "10.0.0.1:6379", upstream: &upstream{server: &redis.Options{Network: "nowhere"}}}
	c.memory.all, c.memory.max = &p.memory, memoryMax
	var out bytes.Buffer
	c.down = newRelay(strings.NewReader(reply), &out, math.MaxInt, &c.memory, new(atomic.Int64), new(atomic.Int64))
	err := c.element(expected{role: role}, false)
	err = errors.Join(err, c.down.leave())
	return out.String(), &p.counters, err
}

// TestUnserved: a client is told of no server that has no listener. What names one is left out, or
// is an error.
func TestUnserved(t *testing.T) {
	a, b, x := "*3\r\n$8\r\n10.0.0.1\r\n:6379\r\n$1\r\na\r\n", "*3\r\n$8\r\n10.0.0.2\r\n:6379\r\n$1\r\nb\r\n", "*3\r\n$8\r\n10.0.0.3\r\n:6379\r\n$1\r\nx\r\n"
	pa, pb := "*3\r\n$5\r\nproxy\r\n:7001\r\n$1\r\na\r\n", "*3\r\n$5\r\nproxy\r\n:7002\r\n$1\r\nb\r\n"
	shard := func(map_, id string) string {
		return map_ + "\r\n$2\r\nid\r\n$1\r\n" + id + "\r\n$4\r\nport\r\n:6379\r\n$2\r\nip\r\n$8\r\n10.0.0.1\r\n$8\r\nhostname\r\n$0\r\n\r\n"
	}
	served := strings.NewReplacer("6379", "7001", "$8\r\n10.0.0.1", "$5\r\nproxy")
	line := " master - 0 0 1 connected 0-16383\n"
	for _, test := range []struct {
		role        role
		reply, want string
		unserved    int64
	}{
		{plain, "-MOVED 1 10.0.0.2:6379\r\n", "-MOVED 1 proxy:7002\r\n", 0},
		{plain, "-ASK 16383 :6379\r\n", "-ASK 16383 proxy:7001\r\n", 0},
		{plain, "-REDIRECT 10.0.0.2:6379\r\n", "-REDIRECT proxy:7002\r\n", 0},
		{plain, "-MOVED 1 10.0.0.2:6380\r\n", unserved + "\r\n", 1},
		{plain, "-MOVED 10.0.0.2\r\n", unserved + "\r\n", 1},
		{plain, "-MOVED " + strings.Repeat("1", 400) + " 10.0.0.2:6379\r\n", unserved + "\r\n", 0},
		{plain, "-MOVEDX 1 10.0.0.9:1\r\n", "-MOVEDX 1 10.0.0.9:1\r\n", 0},
		{slots, "*2\r\n*4\r\n:0\r\n:1\r\n" + a + x + "*3\r\n:2\r\n:3\r\n" + b, "*2\r\n*3\r\n:0\r\n:1\r\n" + pa + "*3\r\n:2\r\n:3\r\n" + pb, 1},
		{slots, "*2\r\n*4\r\n:0\r\n:1\r\n" + x + a + "*3\r\n:2\r\n:3\r\n" + b, "*1\r\n*3\r\n:2\r\n:3\r\n" + pb, 1},
		{slots, "*0\r\n", "*0\r\n", 0},
		{slots, "*-1\r\n", "*-1\r\n", 0},
		{slots, "+odd\r\n", "+odd\r\n", 0},
		{slots, "*1\r\n*3\r\n:0\r\n:1\r\n*4\r\n_\r\n:6379\r\n$1\r\na\r\n%1\r\n$2\r\nip\r\n$8\r\n10.0.0.1\r\n", "*1\r\n*3\r\n:0\r\n:1\r\n*4\r\n$5\r\nproxy\r\n:7001\r\n$1\r\na\r\n%1\r\n$2\r\nip\r\n$5\r\nproxy\r\n", 0},
		{shards, "*2\r\n%2\r\n$5\r\nslots\r\n*2\r\n:0\r\n:1\r\n$5\r\nnodes\r\n*2\r\n" + shard("%4", "a") + shard("%4", "x") + "*4\r\n$5\r\nslots\r\n*0\r\n$5\r\nnodes\r\n*1\r\n" + shard("*8", "x"),
			"*1\r\n%2\r\n$5\r\nslots\r\n*2\r\n:0\r\n:1\r\n$5\r\nnodes\r\n*1\r\n" + served.Replace(shard("%4", "a")), 2},
		{nodeLines, "$139\r\na 10.0.0.1:6379@16379" + line + "x 10.0.0.9:6379@16379" + line + "b 10.0.0.2:6379@16379,host,shard-id=1 slave a 0\r\n",
			"$101\r\na proxy:7001@16379" + line + "b proxy:7002@16379,proxy,shard-id=1 slave a 0\r\n", 1},
		{nodeLines, "=64\r\ntxt:a 10.0.0.1:6379@16379,,shard-id=1 m\nq 10.0.0.1:1@1 handshake - 0\n\r\n", "=41\r\ntxt:a proxy:7001@16379,,shard-id=1 m\n\r\n", 0},
		{nodeLines, "*2\r\n$3\r\na 1\r\n$3\r\nx 1\r\n", "*1\r\n$13\r\na proxy:7001 \r\n", 1},
	} {
		reply := regexp.MustCompile(`^[$=]\d+\r\n`).ReplaceAllStringFunc(test.reply, func(head string) string {
			return fmt.Sprintf("%c%d\r\n", head[0], len(test.reply)-len(head)-2)
		})
		want := regexp.MustCompile(`^[$=]\d+\r\n`).ReplaceAllStringFunc(test.want, func(head string) string {
			return fmt.Sprintf("%c%d\r\n", head[0], len(test.want)-len(head)-2)
		})
		got, counters, err := rewritten(test.role, reply, 1<<20)
		if err != nil || got != want || counters.unserved.Load() != test.unserved {
			t.Errorf("%q:\ngot  %q, %d, %v\nwant %q, %d", reply, got, counters.unserved.Load(), err, want, test.unserved)
		}
	}
	if got, _, err := rewritten(slots, "%1\r\n+a\r\n*3\r\n:0\r\n:1\r\n"+x, 1<<20); got != "" || !errors.Is(err, errMalformed) {
		t.Errorf("%q, %v", got, err)
	}
	// So many nodes take the memory of a connection, and no more.
	const n = 200_000
	head := fmt.Sprintf("*1\r\n*%d\r\n:0\r\n:1\r\n", n+2)
	many := head + strings.Repeat(a, n)
	for _, max := range []int64{1 << 20, 10 << 20} {
		if got, _, err := rewritten(slots, many, max); err != nil || got != "-BALE the reply "+replyTooLarge+"\r\n" {
			t.Errorf("%.200q, %v", got, err)
		}
	}
	if got, _, err := rewritten(slots, many, 1<<30); err != nil || got != head+strings.Repeat(pa, n) {
		t.Errorf("%.200q of %d bytes, %v", got, len(got), err)
	}
}

// FuzzDescribed: a description becomes a whole reply, or an error. No address of a server is in
// what has a known form.
func FuzzDescribed(f *testing.F) {
	for role, reply := range map[role]string{
		slots:  "*2\r\n*4\r\n:0\r\n:1\r\n*4\r\n$8\r\n10.0.0.1\r\n:6379\r\n$1\r\na\r\n*2\r\n$8\r\nhostname\r\n$1\r\nh\r\n*3\r\n_\r\n:6379\r\n$1\r\nx\r\n*3\r\n:2\r\n:3\r\n*3\r\n$-1\r\n:1\r\n$1\r\nb\r\n",
		shards: "*1\r\n%2\r\n$5\r\nslots\r\n*2\r\n:0\r\n:1\r\n$5\r\nnodes\r\n*1\r\n%3\r\n$2\r\nid\r\n$1\r\na\r\n$4\r\nport\r\n:6379\r\n$8\r\nendpoint\r\n$8\r\n10.0.0.1\r\n",
		plain:  "-MOVED 1 10.0.0.2:6379\r\n", nodeLines: "=58\r\ntxt:a 10.0.0.1:6379@1,h master - 0 0 1 connected 0-16383\nx y\n\r\n",
	} {
		f.Add(byte(role), []byte(reply))
	}
	f.Fuzz(func(t *testing.T, r byte, reply []byte) {
		of := []role{plain, slots, shards, nodeLines}[r%4]
		got, _, err := rewritten(of, string(reply), 1<<20)
		if err != nil {
			return
		}
		again := newRelay(strings.NewReader(got), io.Discard, math.MaxInt, &memory{max: 1 << 30}, new(atomic.Int64), new(atomic.Int64))
		if err := again.reply(); err != nil || again.at < again.end {
			t.Errorf("%q became %q: %v", reply, got, err)
		}
	})
}
