package keyspace

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/tcptest"
	"github.com/balekv/bale/internal/redisproc"
)

func TestMain(m *testing.M) { tcptest.VerifyTestMain(m) }

// await waits for a condition.
func await(t *testing.T, what string, met func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !met(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: it does not happen", what)
		}
	}
}

// replicaOf is a replica that has its master's data.
func replicaOf(t *testing.T, master *redisproc.Server, args ...string) *redisproc.Server {
	t.Helper()
	host, port, _ := net.SplitHostPort(master.Addr())
	r := redisproc.ForTest(t, append([]string{"--replicaof", host, port}, args...)...)
	await(t, "replication", func() bool {
		of, err := r.Do(t.Context(), "INFO", "replication")
		own, err2 := master.Do(t.Context(), "INFO", "replication")
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(of, "master_link_status:up") && strings.Contains(own, "state=online")
	})
	return r
}

// mainServer is one that replicas get their data from at once.
func mainServer(t *testing.T) *redisproc.Server {
	return redisproc.ForTest(t, "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
}

// run sends commands, each in words.
func run(t *testing.T, s *redisproc.Server, commands ...string) {
	t.Helper()
	for _, c := range commands {
		if _, err := s.Do(t.Context(), strings.Fields(c)...); err != nil {
			t.Fatal(err)
		}
	}
}

func opened(t *testing.T, url string) redis.UniversalClient {
	t.Helper()
	c, err := Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// topology is that of a client, closed with the test.
func topology(t *testing.T, c redis.UniversalClient) *Topology {
	t.Helper()
	top, err := Nodes(t.Context(), c, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { top.Close() })
	return top
}

// node is what of a Node is compared.
type node struct {
	addr    string
	replica bool
	keys    int64
}

func nodes(top *Topology) (all []node) {
	for _, n := range top.Nodes {
		all = append(all, node{n.Addr, n.Replica, n.Keys})
	}
	return all
}

// readAll reads all keys of all nodes, by plain commands and by pipelines.
func readAll(t *testing.T, top *Topology) (keys []string) {
	t.Helper()
	ctx := t.Context()
	for _, n := range top.Nodes {
		iter := n.Client.Scan(ctx, 0, "", 10).Iterator()
		for iter.Next(ctx) {
			k := iter.Val()
			keys = append(keys, k)
			kind, err := n.Client.Type(ctx, k).Result()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := n.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
				p.PTTL(ctx, k)
				p.MemoryUsage(ctx, k)
				p.ObjectEncoding(ctx, k)
				if kind == "hash" {
					p.HLen(ctx, k)
					p.HScan(ctx, k, 0, "", 10)
				} else {
					p.StrLen(ctx, k)
					p.GetRange(ctx, k, 0, 10)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := iter.Err(); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(keys)
	return keys
}

func TestNodesSingle(t *testing.T) {
	t.Parallel()
	master := mainServer(t)
	run(t, master, "SET a 1", "HSET h f v", "SELECT 0")
	c := opened(t, "redis://"+master.Addr())
	other := opened(t, "redis://"+master.Addr()+"/3")
	if err := other.Set(t.Context(), "elsewhere", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	top := topology(t, c)
	if diff := cmp.Diff([]node{{master.Addr(), false, 2}}, nodes(top), cmp.AllowUnexported(node{})); diff != "" || top.Masters != 1 || top.Cluster || top.Notes != nil {
		t.Errorf("without replicas: %+v\n%s", top, diff)
	}

	replica := replicaOf(t, master)
	top = topology(t, c)
	if diff := cmp.Diff([]node{{replica.Addr(), true, 2}}, nodes(top), cmp.AllowUnexported(node{})); diff != "" || top.Notes != nil {
		t.Errorf("with a replica: %+v\n%s", top, diff)
	}
	if diff := cmp.Diff([]string{"a", "h"}, readAll(t, top)); diff != "" {
		t.Error(diff)
	}
	if clients, err := replica.Do(t.Context(), "CLIENT", "LIST"); err != nil || !strings.Contains(clients, "name="+clientName+" ") {
		t.Errorf("%s, %v", clients, err)
	}
	if err := top.Nodes[0].Client.Set(t.Context(), "a", "2", 0).Err(); err == nil {
		t.Error("a replica was written to")
	}
	if diff := cmp.Diff([]node{{replica.Addr(), true, 1}}, nodes(topology(t, other)), cmp.AllowUnexported(node{})); diff != "" {
		t.Errorf("another database: %s", diff)
	}
	if diff := cmp.Diff([]string{"elsewhere"}, readAll(t, topology(t, other))); diff != "" {
		t.Errorf("another database: %s", diff)
	}
	if diff := cmp.Diff([]node{{replica.Addr(), true, 2}}, nodes(topology(t, opened(t, "redis://"+replica.Addr()))), cmp.AllowUnexported(node{})); diff != "" {
		t.Errorf("a replica itself: %s", diff)
	}

	// It remains the replica of a server that it has no link to.
	if err := syscall.Kill(master.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(master.PID(), syscall.SIGCONT)
	run(t, replica, "CONFIG SET replica-serve-stale-data no", "CONFIG SET repl-timeout 1")
	await(t, "a lost link", func() bool {
		_, err := replica.Do(t.Context(), "GET", "a")
		return err != nil && strings.Contains(err.Error(), "MASTERDOWN")
	})
	if _, err := Nodes(t.Context(), opened(t, "redis://"+replica.Addr()), false); err == nil || !strings.Contains(err.Error(), "MASTERDOWN") {
		t.Errorf("a replica without its master: %v", err)
	}
	run(t, replica, "CONFIG SET replica-serve-stale-data yes")
	if diff := cmp.Diff([]node{{replica.Addr(), true, 2}}, nodes(topology(t, opened(t, "redis://"+replica.Addr()))), cmp.AllowUnexported(node{})); diff != "" {
		t.Errorf("a replica without its master that serves what it has: %s", diff)
	}
}

// TestNodesFallBack: whatever is wrong with a replica, its master is read, and a note says why.
func TestNodesFallBack(t *testing.T) {
	stranger := redisproc.ForTest(t)
	_, strangersPort, _ := net.SplitHostPort(stranger.Addr())
	nobody, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts: the connection stands, and no answer comes
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	_, nobodysPort, _ := net.SplitHostPort(nobody.Addr().String())
	for name, test := range map[string]struct {
		args []string
		then func(t *testing.T, replica *redisproc.Server)
		want string
	}{
		"refused":       {[]string{"--replica-announce-port", "1"}, nil, "refused"},
		"no route":      {[]string{"--replica-announce-ip", "192.0.2.1"}, nil, "192.0.2.1"},
		"no answer":     {[]string{"--replica-announce-port", nobodysPort}, nil, "is not read"},
		"no such name":  {[]string{"--replica-announce-ip", "redis-replica.invalid"}, nil, "redis-replica.invalid"},
		"another":       {[]string{"--replica-announce-port", strangersPort}, nil, "no replica of this master"},
		"renamed":       {[]string{"--rename-command", "SCAN", "SEARCH"}, nil, "SCAN: ERR unknown command"},
		"password":      {nil, func(t *testing.T, r *redisproc.Server) { run(t, r, "CONFIG SET requirepass secret") }, "NOAUTH"},
		"no permission": {nil, func(t *testing.T, r *redisproc.Server) { run(t, r, "ACL SETUSER default -hscan") }, "may not run HSCAN; ACL SETUSER default +hscan"},
		"stopped": {nil, func(t *testing.T, r *redisproc.Server) {
			if err := syscall.Kill(r.PID(), syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { syscall.Kill(r.PID(), syscall.SIGCONT) })
		}, "is not read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			master := mainServer(t)
			run(t, master, "SET a 1")
			replica := replicaOf(t, master, test.args...)
			if test.then != nil {
				test.then(t, replica)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			client := opened(t, "redis://"+master.Addr())
			top, err := Nodes(ctx, client, false)
			// On a busy machine a replica may answer later than a probe waits.
			for err == nil && strings.Contains(strings.Join(top.Notes, ""), context.DeadlineExceeded.Error()) && test.want != "is not read" && ctx.Err() == nil {
				top.Close()
				top, err = Nodes(ctx, client, false)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer top.Close()
			if diff := cmp.Diff([]node{{master.Addr(), false, 1}}, nodes(top), cmp.AllowUnexported(node{})); diff != "" || len(top.Notes) != 1 || !strings.Contains(top.Notes[0], test.want) {
				t.Errorf("%q\n%s", top.Notes, diff)
			}
			readAll(t, top)
		})
	}
	t.Run("down", func(t *testing.T) {
		master := mainServer(t)
		if err := replicaOf(t, master).Close(); err != nil {
			t.Fatal(err)
		}
		if top := topology(t, opened(t, "redis://"+master.Addr())); top.Nodes[0].Addr != master.Addr() {
			t.Errorf("%+v", top)
		}
	})
}

// recorder is a connection that keeps what is written to it.
type recorder struct {
	net.Conn
	lock *sync.Mutex
	text *strings.Builder
}

func (r recorder) Write(b []byte) (int, error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.text.Write(b)
	return r.Conn.Write(b)
}

// TestNodesGreeting: every connection says that its reading is no use of a key, and a name that the
// client has already remains.
func TestNodesGreeting(t *testing.T) {
	s := redisproc.ForTest(t)
	for _, name := range []string{"", "mine"} {
		var lock sync.Mutex
		var text strings.Builder
		greeted := 0
		c := redis.NewClient(&redis.Options{
			Addr: s.Addr(), ClientName: name, OnConnect: func(context.Context, *redis.Conn) error { greeted++; return nil },
			Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := net.Dial(network, addr)
				return recorder{conn, &lock, &text}, err
			},
		})
		defer c.Close()
		top := topology(t, c)
		lock.Lock()
		sent := strings.ToUpper(strings.Join(strings.Fields(text.String()), " "))
		lock.Unlock()
		own := strings.Contains(sent, "SETNAME $4 BALE ")
		if !strings.Contains(sent, "CLIENT $8 NO-TOUCH $2 ON") || own != (name == "") || greeted == 0 {
			t.Errorf("name %q, greeted %d: %s", name, greeted, sent)
		}
		if err := top.Close(); err != nil {
			t.Error(err)
		}
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Errorf("the client that was given: %v", err)
		}
	}
}

// TestNodesTLS: a replica is reached as its master is.
func TestNodesTLS(t *testing.T) {
	dir := t.TempDir()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	if err := errors.Join(
		os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	start := func(args ...string) (addr string) {
		t.Helper()
		return redisproc.ForTestWith(t, redisproc.Options{
			TLS: redisproc.TLS{Cert: certFile, Key: keyFile, CA: certFile}, Args: append([]string{"--tls-auth-clients", "yes", "--repl-diskless-sync-delay", "0"}, args...),
		}).Addr()
	}
	master := start("--requirepass", "secret")
	_, port, _ := net.SplitHostPort(master)
	replica := start("--replicaof", "127.0.0.1", port, "--requirepass", "secret", "--masterauth", "secret")
	login := Login{Password: "secret", CA: certFile, Certificate: certFile, Key: keyFile}
	u, err := login.Open(t.Context(), "rediss://"+master)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	c := u.(*redis.Client)
	for _, l := range []Login{{Password: "secret"}, {Password: "secret", CA: certFile}} {
		if u, err := l.Open(t.Context(), "rediss://"+master); err == nil {
			t.Errorf("%+v is enough", l)
			u.Close()
		}
	}
	for want, l := range map[string]Login{
		"go together": {Certificate: certFile}, "no certificate in PEM": {CA: keyFile}, "no such file": {CA: "none"},
	} {
		if _, err := l.Open(t.Context(), "rediss://"+master); !errors.Is(err, ErrLogin) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	await(t, "replication", func() bool {
		info, err := c.Info(t.Context(), "replication").Result()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(info, "state=online")
	})
	await(t, "the replica is read", func() bool {
		top := topology(t, c)
		return len(top.Nodes) == 1 && top.Nodes[0].Addr == replica && top.Nodes[0].Replica
	})
}

// TestNodesWithhold: an address that a replica announces does not get the password without the
// user's permission.
func TestNodesWithhold(t *testing.T) {
	const password = "secret-of-the-master"
	var lock sync.Mutex
	var got strings.Builder
	_, port, _ := net.SplitHostPort(tcptest.Listen(t, func(c net.Conn) {
		for b := make([]byte, 4096); ; {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			lock.Lock()
			got.Write(b[:n])
			lock.Unlock()
			fmt.Fprint(c, "-NOAUTH Authentication required.\r\n")
		}
	}))
	for _, announced := range []bool{false, true} {
		master := mainServer(t)
		run(t, master, "SET a 1")
		good, stranger := replicaOf(t, master), replicaOf(t, master, "--replica-announce-port", port)
		for _, s := range []*redisproc.Server{good, stranger, master} {
			run(t, s, "CONFIG SET masterauth "+password, "CONFIG SET requirepass "+password)
		}
		top, err := Nodes(t.Context(), opened(t, "redis://:"+password+"@"+master.Addr()), announced)
		if err != nil {
			t.Fatal(err)
		}
		defer top.Close()
		want, notes := node{master.Addr(), false, 1}, 2
		if announced {
			want, notes = node{good.Addr(), true, 1}, 1
		}
		if diff := cmp.Diff([]node{want}, nodes(top), cmp.AllowUnexported(node{})); diff != "" || len(top.Notes) != notes {
			t.Errorf("announced %v: %q\n%s", announced, top.Notes, diff)
		}
		for _, n := range top.Notes {
			if strings.Contains(n, "--replicas sends it") == announced {
				t.Errorf("announced %v: %s", announced, n)
			}
		}
		lock.Lock()
		if (got.Len() > 0) != announced || strings.Contains(got.String(), password) != announced {
			t.Errorf("announced %v: the stranger got %q", announced, got.String())
		}
		lock.Unlock()
		readAll(t, top)
	}
}

// TestNodesOneOfTwo: the replica that works is read, and the other one noted.
func TestNodesOneOfTwo(t *testing.T) {
	master := mainServer(t)
	replicaOf(t, master, "--replica-announce-port", "1")
	good := replicaOf(t, master)
	top := topology(t, opened(t, "redis://"+master.Addr()))
	if len(top.Nodes) != 1 || top.Nodes[0].Addr != good.Addr() || len(top.Notes) != 1 || !strings.Contains(top.Notes[0], "refused") {
		t.Errorf("%+v", top)
	}
}

func TestBehind(t *testing.T) {
	master := &member{state: map[string]string{"master_replid": "id", "master_repl_offset": "100000000"}}
	good := map[string]string{"role": "slave", "master_replid": "id", "slave_repl_offset": "99000000", "master_link_status": "up", "loading": "0", "async_loading": "0", "master_sync_in_progress": "0"}
	for change, want := range map[string]string{
		"": "", "slave_repl_offset=100000001": "", "slave_repl_offset=80000000": "it is 19.1 MiB behind", "role=master": "no replica", "master_replid=other": "no replica",
		"master_link_status=down": "no link", "loading=1": "still loads", "async_loading=1": "still loads", "master_sync_in_progress=1": "still loads",
	} {
		m := &member{state: map[string]string{}}
		for k, v := range good {
			m.state[k] = v
		}
		name, value, _ := strings.Cut(change, "=")
		m.state[name] = value
		if err := m.behind(master); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", change, err)
		}
	}
	if (&member{state: map[string]string{"role": "slave"}}).behind(&member{}) == nil {
		t.Error("of a server that does not say who it is")
	}
}

func TestNodesCluster(t *testing.T) {
	t.Parallel()
	cluster := redisproc.ClusterForTest(t, 3)
	var replicas []*redisproc.Server
	for _, master := range cluster.Servers[:2] {
		r, err := cluster.AddReplica(t.Context(), master)
		if err != nil {
			t.Fatal(err)
		}
		replicas = append(replicas, r)
	}
	c := opened(t, "redis://"+cluster.Servers[2].Addr())
	var want []string
	for i := range 300 {
		k := fmt.Sprint("key:", i)
		want = append(want, k)
		if err := c.Set(t.Context(), k, "value", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(want)
	await(t, "replication", func() bool {
		var keys int64
		for _, s := range []*redisproc.Server{replicas[0], replicas[1], cluster.Servers[2]} {
			n, err := s.Do(t.Context(), "DBSIZE")
			if err != nil {
				t.Fatal(err)
			}
			var count int64
			fmt.Sscan(n, &count)
			keys += count
		}
		return keys == 300
	})
	// addrs are the servers that are read, those that are replicas marked.
	addrs := func(top *Topology) (all []string) {
		for _, n := range top.Nodes {
			all = append(all, fmt.Sprint(n.Addr, " ", n.Replica))
		}
		slices.Sort(all)
		return all
	}
	servers := []string{replicas[0].Addr() + " true", replicas[1].Addr() + " true", cluster.Servers[2].Addr() + " false"}
	slices.Sort(servers)
	// seen is the topology once it is as wanted: on a busy machine a cluster takes a replica for
	// failed now and then, and does not name it.
	seen := func(url, what string, wanted func(top *Topology) bool) (top *Topology) {
		t.Helper()
		defer func() {
			if t.Failed() {
				t.Logf("%+v", top)
			}
		}()
		await(t, what, func() bool {
			top = topology(t, opened(t, url))
			return top.Cluster && top.Masters == 3 && len(top.Nodes) == 3 && wanted(top)
		})
		return top
	}
	both := func(top *Topology) bool { return slices.Equal(addrs(top), servers) && top.Notes == nil }
	top := seen("redis://"+cluster.Servers[2].Addr(), "both replicas are read", both)
	if diff := cmp.Diff(want, readAll(t, top)); diff != "" {
		t.Error(diff)
	}
	var keys int64
	for _, n := range top.Nodes {
		keys += n.Keys
	}
	if keys != 300 {
		t.Errorf("%d keys", keys)
	}

	// A replica that a user is not known to, and one that does not answer.
	for _, s := range slices.Concat(cluster.Servers, replicas[:1]) {
		run(t, s, "ACL SETUSER reader on >secret %R~* +@read +info +ping +cluster|slots")
	}
	if err := syscall.Kill(replicas[0].PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(replicas[0].PID(), syscall.SIGCONT)
	// (The cluster may have noticed already that one does not answer, and not name it.)
	top = seen("redis://reader:secret@"+cluster.Servers[0].Addr(), "the masters alone are read", func(top *Topology) bool {
		return !slices.ContainsFunc(top.Nodes, func(n Node) bool { return n.Replica }) && strings.Contains(strings.Join(top.Notes, "; "), "WRONGPASS")
	})
	if diff := cmp.Diff(want, readAll(t, top)); diff != "" {
		t.Error(diff)
	}
	if err := syscall.Kill(replicas[0].PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(replicas[0].Addr())
	await(t, "the replica is known again", func() bool {
		return !slices.ContainsFunc(cluster.Servers, func(s *redisproc.Server) bool {
			slots, err := s.Do(t.Context(), "CLUSTER", "SLOTS")
			return err != nil || !strings.Contains(slots, "\n"+port+"\n")
		})
	})
	run(t, replicas[1], "ACL SETUSER reader on >secret %R~* +@read +info +ping")
	top = seen("redis://reader:secret@"+cluster.Servers[0].Addr(), "READONLY is missed", func(top *Topology) bool {
		return len(top.Notes) == 2 && strings.Contains(top.Notes[0], `the user "reader" may not run READONLY; ACL SETUSER reader +readonly allows it`)
	})
	for _, s := range slices.Concat(cluster.Servers, replicas) {
		run(t, s, "ACL SETUSER reader +readonly")
	}
	top = seen("redis://reader:secret@"+cluster.Servers[0].Addr(), "both replicas are read again", both)
	if diff := cmp.Diff(want, readAll(t, top)); diff != "" {
		t.Error(diff)
	}
	for _, s := range cluster.Servers {
		run(t, s, "ACL SETUSER reader -cluster|slots")
	}
	if _, err := Nodes(t.Context(), opened(t, "redis://reader:secret@"+cluster.Servers[0].Addr()), false); !errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "+cluster|slots allows it") {
		t.Errorf("%v", err)
	}
	if _, err := Lost(t.Context(), opened(t, "redis://reader:secret@"+cluster.Servers[0].Addr())); !errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "+cluster|slots allows it") {
		t.Errorf("%v", err)
	}
}

// rules are those of the comment of Topology.
var rules = []string{"+info", "+ping", "+scan", "+type", "+pttl", "+strlen", "+getrange", "+hlen", "+hscan", "+object|encoding", "+memory|usage"}

// TestNodesRules: the rules that are documented are enough, and none of them is too much.
func TestNodesRules(t *testing.T) {
	master := mainServer(t)
	replicaOf(t, master)
	run(t, master, "SET a 1", "HSET h f v")
	user := func(t *testing.T, rules ...string) redis.UniversalClient {
		t.Helper()
		run(t, master, "ACL SETUSER reader reset on >secret "+strings.Join(rules, " "))
		o, err := ParseURL("redis://reader:secret@" + master.Addr())
		if err != nil {
			t.Fatal(err)
		}
		o.DisableIdentity = true
		c := redis.NewClient(o)
		t.Cleanup(func() { c.Close() })
		return c
	}
	// The replica does not know the user.
	all := append([]string{"%R~*"}, rules...)
	top, err := Nodes(t.Context(), user(t, all...), true)
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	if len(top.Notes) != 1 || !strings.Contains(top.Notes[0], "WRONGPASS") {
		t.Errorf("%q", top.Notes)
	}
	if diff := cmp.Diff([]string{"a", "h"}, readAll(t, top)); diff != "" {
		t.Error(diff)
	}
	for i, rule := range rules {
		top, err := Nodes(t.Context(), user(t, slices.Delete(slices.Clone(all), i+1, i+2)...), false)
		want := "ACL SETUSER reader " + rule + " allows it"
		if optional := strings.Contains(rule, "|") || rule == "+info"; optional {
			if err != nil || !slices.ContainsFunc(top.Notes, func(n string) bool { return strings.Contains(n, want) }) {
				t.Errorf("without %s: %+v, %v", rule, top, err)
			}
		} else if !errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), want) {
			t.Errorf("without %s: %v", rule, err)
		}
		if top != nil {
			top.Close()
		}
	}
	if _, err := Nodes(t.Context(), user(t, "~*", "+info", "+ping"), false); !errors.Is(err, ErrDenied) ||
		!strings.Contains(err.Error(), `the user "reader" may not run SCAN, TYPE, PTTL, STRLEN, GETRANGE, HLEN, HSCAN; ACL SETUSER reader +scan +type +pttl +strlen +getrange +hlen +hscan allows it`) {
		t.Errorf("%v", err)
	}
	if top := topology(t, user(t, "%R~*", "+@read", "+info", "+ping")); len(top.Notes) != 1 {
		t.Errorf("%q", top.Notes)
	}
	if top := topology(t, user(t, "~some:*", "+@read", "+info", "+ping")); len(top.Notes) != 2 || !strings.Contains(top.Notes[1], "may read some keys only; ACL SETUSER reader %R~* allows all") {
		t.Errorf("%q", top.Notes)
	}
}

// reply is an error that a server answers.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// TestExplain has the words of servers that are not here. Keys in an error may have them as well.
func TestExplain(t *testing.T) {
	const key = "NOPERM permissions to run the '@all ~*' "
	for _, test := range []struct {
		in   error
		want string
	}{
		{reply("NOPERM this user has no permissions to run the 'scan' command or its subcommand"), "SETUSER me +scan allows"},
		{fmt.Errorf("SCAN: %w", reply("NOPERM User me has no permissions to run the 'scan' command")), "SETUSER me +scan allows"},
		{reply("NOPERM this user has no permissions to run the 'cluster|slots' command"), "SETUSER me +cluster|slots allows"},
		{reply("NOPERM this user has no permissions to access one of the keys used as arguments"), ""},
		{errors.New("ERR unknown command"), ""},
		{reply("ERR unknown command 'MEMORY', with args beginning with: 'USAGE' '" + key + "' "), "it has no command MEMORY"},
		{fmt.Errorf("key %q: %w", key, reply("WRONGTYPE Operation against a key holding the wrong kind of value")), ""},
		{fmt.Errorf("key %q: %w", key, context.DeadlineExceeded), ""},
	} {
		err := Explain(test.in, "me")
		if test.want == "" && err != test.in || test.want != "" && (!errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%v: %v", test.in, err)
		}
	}
	if Explain(nil, "") != nil {
		t.Error("of nothing")
	}
}

func TestNodesOfOthers(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	gone := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	defer gone.Close()
	for _, c := range []redis.UniversalClient{ring, gone} {
		if top, err := Nodes(t.Context(), c, false); err == nil {
			t.Errorf("%T: %+v", c, top)
		}
	}
}

// TestAtOnce: as many servers are read at a time as the pace says, by default 16, and all of them.
// An error ends the rest.
func TestAtOnce(t *testing.T) {
	servers := make([]int, 40)
	for i := range servers {
		servers[i] = i
	}
	for masters, want := range map[int]int{0: 16, 3: 3, 100: len(servers)} {
		var lock sync.Mutex
		seen, atWork, most := 0, 0, 0
		met := make(chan struct{})
		if err := AtOnce(t.Context(), Pace{Masters: masters}, servers, func(context.Context, int) error {
			lock.Lock()
			seen++
			if atWork++; atWork > most {
				if most = atWork; most == want {
					close(met)
				}
			}
			lock.Unlock()
			select {
			case <-met:
			case <-time.After(time.Minute):
				t.Error("one server is read after another")
			}
			lock.Lock()
			defer lock.Unlock()
			atWork--
			return nil
		}); err != nil || seen != len(servers) || most != want {
			t.Errorf("%d: %v, %d of %d, %d at once", masters, err, seen, len(servers), most)
		}
	}
	failed := errors.New("it fails")
	if err := AtOnce(t.Context(), Pace{}, servers, func(ctx context.Context, i int) error {
		if i == 3 {
			return failed
		}
		<-ctx.Done()
		return ctx.Err()
	}); err != failed {
		t.Error(err)
	}
}
