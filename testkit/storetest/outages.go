//go:build unix

package storetest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/internal/redisproc"
)

// testSlow: a server that does not answer holds a call no longer than its context, and the store
// works afterwards.
func testSlow(t *testing.T, open Open[bale.Store]) {
	d := deploy(t, Standalone)
	s := open(t, d)
	must(t, s.Set(t.Context(), "k", []byte("v"), bale.Expiry{}))
	resume := d.pause(t)
	for name, call := range calls(s) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		start := time.Now()
		err := call(ctx)
		cancel()
		// The connection has the context's deadline, and may be the first to notice that it has passed.
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v (%T)", name, err, err)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("%s: held for %v", name, took)
		}
	}
	resume()
	within(t, 20*time.Second, "after the pause", func(ctx context.Context) error {
		if err := s.Set(ctx, "after", []byte("pause"), bale.Expiry{}); err != nil {
			return err
		}
		got, err := s.Get(ctx, "after")
		if err == nil && string(got) != "pause" {
			t.Errorf("%q comes back", got)
		}
		return err
	})
}

// pause stops the server until resume is called, or the test ends.
func (d Deployment) pause(t *testing.T) (resume func()) {
	must(t, syscall.Kill(d.server.PID(), syscall.SIGSTOP))
	resume = sync.OnceFunc(func() { syscall.Kill(d.server.PID(), syscall.SIGCONT) })
	t.Cleanup(resume)
	return resume
}

// Overtaken tests that a write whose call ended with its context comes before a later one of its
// key.
func Overtaken(t *testing.T, open Open[bale.Store]) {
	d := deploy(t, Standalone)
	s := open(t, d)
	for range 4 { // connections of a pool
		must(t, s.Set(t.Context(), "k", []byte("v"), bale.Expiry{}))
	}
	later := map[string]func(ctx context.Context, key string) error{
		"Set": func(ctx context.Context, key string) error { return s.Set(ctx, key, []byte("2"), bale.Expiry{}) },
		"SetMany": func(ctx context.Context, key string) error {
			return s.SetMany(ctx, []bale.Item{{Key: key, Value: []byte("2")}})
		},
		"Delete": func(ctx context.Context, key string) error { return errorOf(s.Delete(ctx, []string{key})) },
	}
	resume := d.pause(t)
	var wg sync.WaitGroup
	for i := range 10 {
		for name, write := range later {
			key := name + strconv.Itoa(i)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			if err := s.Set(ctx, key, []byte("1"), bale.Expiry{}); err == nil {
				t.Errorf("%s: a stopped server answers", key)
			}
			cancel()
			wg.Go(func() {
				if err := write(t.Context(), key); err != nil {
					t.Errorf("%s: %v", key, err)
				}
			})
		}
	}
	resume()
	wg.Wait()
	for name := range later {
		for i := range 10 {
			if got, err := s.Get(t.Context(), name+strconv.Itoa(i)); string(got) == "1" {
				t.Errorf("%s after a Set: %q stays, %v", name, got, err)
			}
		}
	}
}

// testRestart: a server that is killed and comes back empty in the middle costs errors and missing
// values, and never a wrong one.
func testRestart(t *testing.T, open Open[bale.Store]) {
	d := deploy(t, Standalone)
	s := open(t, d)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				key := fmt.Sprintf("restart:%d:%d", w, i%10)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				if s.Set(ctx, key, []byte(key), bale.Expiry{}) == nil {
					if got, err := s.Get(ctx, key); err == nil && string(got) != key {
						t.Errorf("%s: %q comes back", key, got)
					}
				}
				if many, err := s.GetMany(ctx, []string{key, "none"}); err == nil && (many[0] != nil && string(many[0]) != key || many[1] != nil) {
					t.Errorf("%s of many: %q comes back", key, many)
				}
				cancel()
			}
		})
	}
	for range 2 {
		time.Sleep(100 * time.Millisecond)
		must(t, d.server.Restart(t.Context()))
	}
	within(t, 20*time.Second, "after the restart", func(ctx context.Context) error {
		if err := s.Set(ctx, "after", []byte("v"), bale.Expiry{}); err != nil {
			return err
		}
		return errorOf(s.Get(ctx, "after"))
	})
	close(stop)
	wg.Wait()
}

// testAccess: a user with a password, who may not touch every key: those are named, and the others
// succeed.
func testAccess(t *testing.T, open Open[bale.Store]) {
	d := deploy(t, Standalone)
	d.do(t, "ACL", "SETUSER", "app", "on", ">secret", "~ok:*", "&*", "+@all")
	d.do(t, "ACL", "SETUSER", "default", "off")
	d.Username, d.Password = "app", "secret"
	s := open(t, d)
	ctx := t.Context()
	var failed bale.KeyErrors
	err := s.SetMany(ctx, []bale.Item{{Key: "ok:1", Value: []byte("one")}, {Key: "no:1", Value: []byte("two")}, {Key: "ok:2", Value: []byte("three")}})
	if !errors.As(err, &failed) || len(failed) != 1 || failed[0].Key != "no:1" || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("SetMany: %v", err)
	}
	got, err := s.GetMany(ctx, []string{"ok:1", "ok:2"})
	if err != nil || string(got[0]) != "one" || string(got[1]) != "three" {
		t.Errorf("GetMany: %q, %v", got, err)
	}
	if _, err := s.Get(ctx, "no:1"); err == nil || errors.Is(err, bale.ErrNotFound) || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("Get: %v", err)
	}
	if err := s.Set(ctx, "no:1", nil, bale.Expiry{}); err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("Set: %v", err)
	}
}

// testRefused: a connection that the server refuses fails every call; none looks done, and no key
// looks missing.
func testRefused(t *testing.T, open Open[bale.Store]) {
	d := deploy(t, Standalone)
	d.do(t, "ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all")
	d.do(t, "ACL", "SETUSER", "default", "off")
	for name, login := range map[string][2]string{"wrong password": {"app", "wrong"}, "no password": {}} {
		d.Username, d.Password = login[0], login[1]
		s := open(t, d)
		if s == nil {
			continue // a client that says so at once
		}
		for what, call := range calls(s) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			if err := call(ctx); err == nil || errors.Is(err, bale.ErrNotFound) {
				t.Errorf("%s: %s: %v", name, what, err)
			}
			cancel()
		}
	}
}

func testTLS(t *testing.T, open Open[bale.Store]) {
	dir := t.TempDir()
	ca := certificate(t, dir)
	cert := filepath.Join(dir, "cert.pem")
	server := redisproc.ForTestWith(t, redisproc.Options{TLS: redisproc.TLS{Cert: cert, Key: filepath.Join(dir, "key.pem"), CA: cert}})
	s := open(t, Deployment{Kind: Standalone, Addrs: []string{server.Addr()}, CA: ca})
	must(t, s.Set(t.Context(), "k", []byte("v"), bale.Expiry{}))
	if got, err := s.Get(t.Context(), "k"); err != nil || string(got) != "v" {
		t.Errorf("%q, %v", got, err)
	}
}

// certificate writes a certificate for 127.0.0.1 that signs itself, and its key.
func certificate(t *testing.T, dir string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "127.0.0.1"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	must(t, err)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	must(t, os.WriteFile(filepath.Join(dir, "cert.pem"), cert, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "key.pem"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), 0o600))
	return cert
}

// testMovingSlot: while a slot moves to another node (ASK), and after it has (MOVED), all its keys
// are read and written.
func testMovingSlot(t *testing.T, open Open[bale.Store]) {
	ctx := t.Context()
	d := deploy(t, Cluster)
	s := open(t, d)
	must(t, s.Set(ctx, "{slot}:old", []byte("old"), bale.Expiry{}))
	slot := d.do(t, "CLUSTER", "KEYSLOT", "{slot}:old")
	n, err := strconv.Atoi(slot)
	must(t, err)
	from := d.nodes[n*len(d.nodes)/16384]
	to := d.nodes[(n*len(d.nodes)/16384+1)%len(d.nodes)]
	ask := func(node *redisproc.Server, args ...string) string {
		t.Helper()
		reply, err := node.Do(ctx, args...)
		must(t, err)
		return reply
	}
	ids := map[*redisproc.Server]string{}
	for _, node := range d.nodes {
		ids[node] = ask(node, "CLUSTER", "MYID")
	}
	ask(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[from])
	ask(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[to])
	check := func(when string) {
		t.Helper()
		if got, err := s.Get(ctx, "{slot}:old"); err != nil || string(got) != "old" {
			t.Errorf("%s: old: %q, %v", when, got, err)
		}
		if err := s.Set(ctx, "{slot}:"+when, []byte(when), bale.TTL(time.Hour)); err != nil {
			t.Errorf("%s: set: %v", when, err)
		}
		if got, err := s.Get(ctx, "{slot}:"+when); err != nil || string(got) != when {
			t.Errorf("%s: new: %q, %v", when, got, err)
		}
		if err := s.SetMany(ctx, []bale.Item{{Key: "{slot}:1" + when, Value: []byte("1")}, {Key: "elsewhere", Value: []byte("2")}, {Key: "{slot}:2" + when, Value: []byte("3")}}); err != nil {
			t.Errorf("%s: setmany: %v", when, err)
		}
		got, err := s.GetMany(ctx, []string{"{slot}:1" + when, "elsewhere", "{slot}:2" + when, "{slot}:old", "{slot}:none"})
		if err != nil || string(got[0]) != "1" || string(got[1]) != "2" || string(got[2]) != "3" || string(got[3]) != "old" || got[4] != nil {
			t.Errorf("%s: getmany: %q, %v", when, got, err)
		}
	}
	check("moving")
	host, port, err := net.SplitHostPort(to.Addr())
	must(t, err)
	ask(from, "MIGRATE", host, port, "{slot}:old", "0", "5000")
	check("moved key")
	for _, node := range []*redisproc.Server{to, from, d.nodes[0], d.nodes[1], d.nodes[2]} {
		ask(node, "CLUSTER", "SETSLOT", slot, "NODE", ids[to])
	}
	check("moved slot")
}

// testDeadNode: that a key of one node is not there says nothing of the keys of a node that does
// not answer.
func testDeadNode(t *testing.T, open Open[bale.Store]) {
	ctx := t.Context()
	d := deploy(t, Cluster)
	s := open(t, d)
	on := map[*redisproc.Server]string{} // a key of each node
	for i := 0; len(on) < len(d.nodes); i++ {
		key := fmt.Sprint("key", i)
		slot, err := strconv.Atoi(d.do(t, "CLUSTER", "KEYSLOT", key))
		must(t, err)
		on[d.nodes[slot*len(d.nodes)/16384]] = key
	}
	dead, absent, there := on[d.nodes[1]], on[d.nodes[0]], on[d.nodes[2]]
	must(t, s.SetMany(ctx, []bale.Item{{Key: dead, Value: []byte("1")}, {Key: there, Value: []byte("2")}}))
	for _, node := range d.nodes {
		must(t, errorOf(node.Do(ctx, "CONFIG", "SET", "cluster-require-full-coverage", "no")))
	}
	d.nodes[1].Kill() // which leaves its port to nobody
	for i, keys := range [][]string{{absent, dead, there}, {there, dead, absent}, {dead, there, absent}} {
		if i == 2 { // clients that ask for the nodes now are told of two
			within(t, 30*time.Second, "the node counts as failed", func(ctx context.Context) error {
				nodes, err := d.nodes[0].Do(ctx, "CLUSTER", "NODES")
				if err == nil && !strings.Contains(nodes, "master,fail ") {
					err = errors.New("it does not")
				}
				return err
			})
		}
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		got, err := s.GetMany(ctx, keys)
		failed, is := errors.AsType[bale.KeyErrors](err)
		if !is || len(failed) != 1 || failed[0].Key != dead || errors.Is(err, bale.ErrNotFound) {
			t.Errorf("getmany %v: %v", keys, err)
		}
		for i, key := range keys {
			if want := map[string]string{there: "2"}[key]; string(got[i]) != want {
				t.Errorf("getmany %v: %s is %q", keys, key, got[i])
			}
		}
	}
}

// testFailover: when the sentinels make the replica the master, the store follows, and a value that
// was replicated is there.
func testFailover(t *testing.T, open Open[bale.Store]) {
	ctx := t.Context()
	master := redisproc.ForTest(t)
	host, port, err := net.SplitHostPort(master.Addr())
	must(t, err)
	replica := redisproc.ForTest(t, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0")
	sentinel := redisproc.SentinelForTest(t, "main", master)
	s := open(t, Deployment{Kind: Sentinel, Addrs: []string{sentinel.Addr()}, Master: "main"})
	must(t, s.Set(ctx, "before", []byte("kept"), bale.Expiry{}))
	within(t, 20*time.Second, "replication", func(ctx context.Context) error {
		got, err := replica.Do(ctx, "GET", "before")
		if err == nil && got != "kept" {
			err = fmt.Errorf("%q", got)
		}
		return err
	})
	within(t, 30*time.Second, "the sentinel knows the replica", func(ctx context.Context) error {
		reply, err := sentinel.Do(ctx, "SENTINEL", "REPLICAS", "main")
		if err == nil && !strings.Contains(reply, replica.Addr()) {
			err = errors.New("not yet")
		}
		return err
	})
	within(t, 20*time.Second, "failover", func(ctx context.Context) error { return errorOf(sentinel.Do(ctx, "SENTINEL", "FAILOVER", "main")) })
	within(t, 60*time.Second, "the store follows", func(ctx context.Context) error {
		role, err := replica.Do(ctx, "ROLE")
		if err == nil && !strings.HasPrefix(role, "master") {
			err = errors.New("still a replica")
		}
		if err == nil {
			err = s.Set(ctx, "after", []byte("new"), bale.Expiry{})
		}
		if err == nil {
			var got string
			if got, err = replica.Do(ctx, "GET", "after"); err == nil && got != "new" {
				err = fmt.Errorf("the new master has %q", got)
			}
		}
		return err
	})
	if got, err := s.Get(ctx, "before"); err != nil || string(got) != "kept" {
		t.Errorf("a value from before: %q, %v", got, err)
	}
}
