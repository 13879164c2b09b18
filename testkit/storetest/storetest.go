//go:build unix

// Package storetest is what every bale.Store must do, as tests against real servers: [Run] for a
// Store, [RunDict] for a dict.Store. Each adapter runs it, and an adapter of one's own can.
//
// The servers are private ones of package redisproc; without a redis-server the tests are skipped.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/internal/redisproc"
)

// Kind is a way to run Redis.
type Kind string

// The kinds there are.
const (
	Standalone Kind = "standalone"
	Cluster    Kind = "cluster"
	Sentinel   Kind = "sentinel"
)

// Deployment is what a client connects to.
type Deployment struct {
	Kind  Kind
	Addrs []string // of the server, the nodes or the sentinels

	// Master is the name that sentinels know the servers by.
	Master string

	// Username and Password are empty for none.
	Username, Password string

	// CA holds the certificate authority of servers that speak TLS, in PEM; nil for plain
	// connections.
	CA []byte

	server *redisproc.Server // one that can be asked for anything; of a cluster the first
	nodes  []*redisproc.Server
}

// Open makes a store over a client of its own, which is closed by t.Cleanup. The client must end
// with the context of a call, also while it waits for a server, and give up retrying within some
// seconds. One that cannot log in may be nil.
type Open[S any] func(t *testing.T, d Deployment) S

// Run tests a Store on all kinds of deployments, but those named.
func Run(t *testing.T, open Open[bale.Store], without ...Kind) {
	for _, kind := range []Kind{Standalone, Cluster, Sentinel} {
		if slices.Contains(without, kind) {
			continue
		}
		t.Run(string(kind), func(t *testing.T) {
			d := deploy(t, kind)
			s := open(t, d)
			t.Run("values", func(t *testing.T) { testValues(t, s) })
			t.Run("expiry", func(t *testing.T) { testExpiry(t, s, d) })
			t.Run("many", func(t *testing.T) { testMany(t, s, d) })
			t.Run("swap", func(t *testing.T) {
				testSwap(t, s, func(key string) ([]byte, error) {
					v, err := s.Get(t.Context(), key)
					if errors.Is(err, bale.ErrNotFound) {
						return nil, nil
					}
					return v, err
				}, d)
			})
			t.Run("cancelled", func(t *testing.T) { testCancelled(t, s) })
			t.Run("buffers", func(t *testing.T) { testBuffers(t, s) })
		})
	}
	apart := func(name string, test func(*testing.T, Open[bale.Store])) { // they wait, each for servers of its own
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open)
		})
	}
	apart("slow", testSlow)
	apart("restart", testRestart)
	t.Run("access", func(t *testing.T) { testAccess(t, open) })
	t.Run("odd server", func(t *testing.T) { testOddServer(t, open) })
	t.Run("refused", func(t *testing.T) { testRefused(t, open) })
	t.Run("tls", func(t *testing.T) { testTLS(t, open) })
	if !slices.Contains(without, Cluster) {
		apart("moving slot", testMovingSlot)
		apart("dead node", testDeadNode)
	}
	if !slices.Contains(without, Sentinel) {
		apart("failover", testFailover)
	}
}

// testOddServer: a server that answers MGET with too many values, or too few, is an error, and the
// end of no program. A store may send no MGET.
func testOddServer(t *testing.T, open Open[bale.Store]) {
	const a, b = "$1\r\na\r\n", "$1\r\nb\r\n"
	for name, other := range map[string]string{"more": "*4\r\n$4\r\nMGET\r\n" + a + b + b, "fewer": "*2\r\n$4\r\nMGET\r\n" + a} {
		t.Run(name, func(t *testing.T) {
			d := deploy(t, Standalone)
			real := d.Addrs[0]
			var odd atomic.Bool
			d.Addrs = []string{between(t, real, func(sent string) string {
				changed := strings.NewReplacer("*3\r\n$4\r\nMGET\r\n"+a+b, other, "*3\r\n$4\r\nmget\r\n"+a+b, other).Replace(sent)
				odd.Store(odd.Load() || changed != sent)
				return changed
			})}
			s := open(t, d)
			must(t, s.Set(t.Context(), "a", []byte("1"), bale.Expiry{}))
			if got, err := s.GetMany(t.Context(), []string{"a", "b"}); err == nil && (odd.Load() || string(got[0]) != "1" || got[1] != nil) {
				t.Errorf("no error, but %q", got)
			}
			if v, err := s.Get(t.Context(), "a"); err != nil || string(v) != "1" {
				t.Errorf("%q, %v", v, err)
			}
		})
	}
}

// between is the address of something in front of a server, which changes what clients send.
func between(t *testing.T, server string, change func(sent string) string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var work sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		work.Wait()
	})
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", server)
			if err != nil {
				c.Close()
				continue
			}
			work.Go(func() {
				defer up.Close()
				for b := make([]byte, 64<<10); ; {
					n, err := c.Read(b)
					if err != nil {
						return
					}
					if _, err := io.WriteString(up, change(string(b[:n]))); err != nil {
						return
					}
				}
			})
			work.Go(func() {
				defer c.Close()
				io.Copy(c, up)
			})
		}
	})
	return l.Addr().String()
}

// deploy runs servers until the test ends.
func deploy(t *testing.T, kind Kind) Deployment {
	t.Helper()
	switch kind {
	case Cluster:
		c := redisproc.ClusterForTest(t, 3)
		return Deployment{Kind: kind, Addrs: c.Addrs(), server: c.Servers[0], nodes: c.Servers}
	case Sentinel:
		server := redisproc.ForTest(t)
		return Deployment{Kind: kind, Addrs: []string{redisproc.SentinelForTest(t, "main", server).Addr()}, Master: "main", server: server, nodes: []*redisproc.Server{server}}
	}
	server := redisproc.ForTest(t)
	return Deployment{Kind: kind, Addrs: []string{server.Addr()}, server: server, nodes: []*redisproc.Server{server}}
}

// do asks whichever server has the key.
func (d *Deployment) do(t *testing.T, args ...string) string {
	t.Helper()
	var reply string
	var err error
	for _, n := range d.nodes {
		if reply, err = n.Do(t.Context(), args...); err == nil || !strings.Contains(err.Error(), "MOVED ") {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// within tries until it succeeds.
func within(t *testing.T, d time.Duration, what string, try func(ctx context.Context) error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(d); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err = try(ctx)
		cancel()
		if err == nil {
			return
		}
	}
	t.Fatalf("%s: not within %v: %v", what, d, err)
}

func testValues(t *testing.T, s bale.Store) {
	ctx := t.Context()
	for _, n := range []int{0, 1, 100, 64 << 10, 8 << 20} {
		value := bytes.Repeat([]byte{0, 0xff, '\r', '\n'}, n/4+1)[:n]
		key := "binary\x00\xff\r\n:" + fmt.Sprint(n)
		must(t, s.Set(ctx, key, value, bale.Expiry{}))
		got, err := s.Get(ctx, key)
		if err != nil || got == nil || !bytes.Equal(got, value) {
			t.Errorf("%d bytes: %d come back, %v", n, len(got), err)
		}
		many, err := s.GetMany(ctx, []string{key, "none"})
		if err != nil || many[0] == nil || !bytes.Equal(many[0], value) || many[1] != nil {
			t.Errorf("%d bytes of many: %d come back, %v", n, len(many[0]), err)
		}
	}
	if got, err := s.Get(ctx, "none"); !errors.Is(err, bale.ErrNotFound) || got != nil {
		t.Errorf("a key that does not exist: %q, %v", got, err)
	}
}

// testBuffers: what is handed out belongs to the caller, and what is handed in may be used again at
// once.
func testBuffers(t *testing.T, s bale.Store) {
	ctx := t.Context()
	value := []byte("the value of the key")
	must(t, s.Set(ctx, "buffer", value, bale.Expiry{}))
	copy(value, "XXXXXXXXXXXXXXXXXXXX")
	first, err := s.Get(ctx, "buffer")
	must(t, err)
	kept := string(first)
	if kept != "the value of the key" {
		t.Fatalf("%q was stored", kept)
	}
	copy(first, "YYYYYYYYYYYYYYYYYYYY")
	second, err := s.Get(ctx, "buffer")
	if err != nil || string(second) != kept {
		t.Errorf("after the first copy was changed: %q, %v", second, err)
	}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			key := fmt.Sprint("buffer:", w)
			buffer := make([]byte, 200)
			for i := range 100 {
				for j := range buffer {
					buffer[j] = byte(w*31 + i)
				}
				if err := s.Set(ctx, key, buffer, bale.Expiry{}); err != nil {
					t.Error(err)
					return
				}
				clear(buffer)
				got, err := s.Get(ctx, key)
				if err != nil || len(got) != 200 || got[0] != byte(w*31+i) || got[199] != got[0] {
					t.Errorf("%s, %d: another value of %d bytes, %v", key, i, len(got), err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func testExpiry(t *testing.T, s bale.Store, d Deployment) {
	ctx := t.Context()
	at := time.Now().Add(time.Hour + 123456*time.Microsecond)
	for name, e := range map[string]bale.Expiry{"px": bale.TTL(1500 * time.Millisecond), "long": bale.TTL(100 * time.Hour), "never": bale.NoExpiry(), "zero": {}, "pxat": bale.ExpireAt(at)} {
		for how, set := range map[string]func(key string) error{
			"set":     func(key string) error { return s.Set(ctx, key, []byte("v"), e) },
			"setmany": func(key string) error { return s.SetMany(ctx, []bale.Item{{Key: key, Value: []byte("v"), Expiry: e}}) },
			"touch": func(key string) error {
				d.do(t, "SET", key, "v", "PX", "300000")
				ok, err := s.Touch(ctx, key, e)
				if err == nil && !ok {
					err = errors.New("touch found no key")
				}
				return err
			},
		} {
			key := name + how
			before := time.Now()
			must(t, set(key))
			ends, err := strconv.ParseInt(d.do(t, "PEXPIRETIME", key), 10, 64)
			must(t, err)
			after := time.Now()
			ms, absolute := e.Millis()
			switch {
			case ms == 0:
				if ends > 0 {
					t.Errorf("%s: expires at %d", key, ends)
				}
			case absolute:
				if want := at.UnixMilli() + 1; ends != want { // rounded up
					t.Errorf("%s: expires at %d, want %d", key, ends, want)
				}
			default: // between the moments before and after
				if low, high := before.UnixMilli()+ms, after.UnixMilli()+ms; ends < low || ends > high {
					t.Errorf("%s: expires at %d, want %d to %d", key, ends, low, high)
				}
			}
		}
	}
	if aging, ok := s.(interface {
		PTTL(ctx context.Context, keys []string) ([]int64, error)
	}); ok {
		must(t, s.Set(ctx, "pttl:some", []byte("v"), bale.TTL(time.Hour)))
		must(t, s.Set(ctx, "pttl:ever", []byte("v"), bale.Expiry{}))
		ttls, err := aging.PTTL(ctx, []string{"pttl:none", "pttl:some", "pttl:ever"})
		if hour := time.Hour.Milliseconds(); err != nil || len(ttls) != 3 || ttls[0] != -2 || ttls[1] < hour/2 || ttls[1] > hour || ttls[2] != -1 {
			t.Errorf("PTTL: %d, %v", ttls, err)
		}
		if ttls, err := aging.PTTL(ctx, nil); err != nil || len(ttls) > 0 {
			t.Errorf("PTTL of nothing: %d, %v", ttls, err)
		}
	}
	for _, e := range []bale.Expiry{{}, bale.TTL(time.Hour), bale.ExpireAt(at)} {
		if ok, err := s.Touch(ctx, "none", e); ok || err != nil {
			t.Errorf("touch of a missing key: %v, %v", ok, err)
		}
	}
	must(t, s.Set(ctx, "eternal", nil, bale.Expiry{}))
	if ok, err := s.Touch(ctx, "eternal", bale.NoExpiry()); !ok || err != nil {
		t.Errorf("touch of a key without expiry: %v, %v", ok, err)
	}
	must(t, s.Set(ctx, "past", []byte("v"), bale.ExpireAt(time.Now().Add(-time.Hour))))
	if _, err := s.Get(ctx, "past"); !errors.Is(err, bale.ErrNotFound) {
		t.Errorf("expired before it was set: %v", err)
	}
}

func testMany(t *testing.T, s bale.Store, d Deployment) {
	ctx := t.Context()
	var items []bale.Item
	var keys []string
	for i := range 1000 {
		keys = append(keys, fmt.Sprint("many:", i))
		items = append(items, bale.Item{Key: keys[i], Value: bytes.Repeat([]byte{byte(i)}, i)})
	}
	must(t, s.SetMany(ctx, items))
	got, err := s.GetMany(ctx, append([]string{"none"}, keys...))
	if err != nil || len(got) != 1001 || got[0] != nil {
		t.Fatalf("%d values, %v", len(got), err)
	}
	for i, v := range got[1:] {
		if v == nil || !bytes.Equal(v, items[i].Value) {
			t.Errorf("value %d has %d bytes", i, len(v))
		}
	}
	if got, err := s.GetMany(ctx, []string{"many:5", "many:5", "none", "many:6"}); err != nil || len(got[0]) != 5 || len(got[1]) != 5 || got[2] != nil || len(got[3]) != 6 {
		t.Errorf("a key asked for twice: %v, %v", got, err)
	}
	if n, err := s.Delete(ctx, append([]string{"none"}, keys[:500]...)); n != 500 || err != nil {
		t.Errorf("%d deleted, %v", n, err)
	}
	if got, err := s.GetMany(ctx, keys); err != nil || got[499] != nil || got[500] == nil {
		t.Errorf("after Delete: %v", err)
	}
	// A key of another type is an error, and no miss: a loader would write over it.
	d.do(t, "RPUSH", "many:list", "x")
	d.do(t, "HSET", "many:hash", "f", "x")
	got, err = s.GetMany(ctx, []string{"many:600", "many:list", "none", "many:hash", "many:601"})
	var failed bale.KeyErrors
	if !errors.As(err, &failed) || len(failed) != 2 || failed[0].Key != "many:list" || failed[1].Key != "many:hash" || !strings.Contains(err.Error(), "WRONGTYPE") ||
		len(got) != 5 || len(got[0]) != 600 || got[1] != nil || got[2] != nil || got[3] != nil || len(got[4]) != 601 {
		t.Errorf("keys of other types: %d values, %v", len(got), err)
	}
	if _, err := s.Get(ctx, "many:list"); err == nil || errors.Is(err, bale.ErrNotFound) {
		t.Errorf("a key of another type: %v", err)
	}
	for name, err := range map[string]error{"set": s.SetMany(ctx, nil), "get": errorOf(s.GetMany(ctx, nil)), "delete": errorOf(s.Delete(ctx, nil))} {
		if err != nil {
			t.Errorf("%s of nothing: %v", name, err)
		}
	}
}

func errorOf[T any](_ T, err error) error { return err }

// calls returns all calls of a Store that take a context. None reads another's value: a Store with
// a buffer may have that without the server.
func calls(s bale.Store) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"get":     func(ctx context.Context) error { return errorOf(s.Get(ctx, "k")) },
		"set":     func(ctx context.Context) error { return s.Set(ctx, "s", []byte("v"), bale.Expiry{}) },
		"getmany": func(ctx context.Context) error { return errorOf(s.GetMany(ctx, []string{"k", "l"})) },
		"setmany": func(ctx context.Context) error { return s.SetMany(ctx, []bale.Item{{Key: "m"}, {Key: "n"}}) },
		"delete":  func(ctx context.Context) error { return errorOf(s.Delete(ctx, []string{"k", "l"})) },
		"touch":   func(ctx context.Context) error { return errorOf(s.Touch(ctx, "k", bale.TTL(time.Hour))) },
		"swap":    func(ctx context.Context) error { return errorOf(s.Swap(ctx, "w", nil, []byte("v"), time.Hour)) },
	}
}

func testCancelled(t *testing.T, s bale.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 { // a quick answer must never win against the context
		for name, call := range calls(s) {
			err := call(ctx)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
			var many bale.KeyErrors
			if errors.As(err, &many) {
				t.Errorf("%s blames the keys: %v", name, err)
			}
		}
	}
}
