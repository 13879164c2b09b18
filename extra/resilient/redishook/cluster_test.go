package redishook_test

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/extra/resilient"
	"github.com/balekv/bale/extra/resilient/redishook"
	"github.com/balekv/bale/internal/redisproc"
)

// TestGuardPerNode: with a Guard for each node of a Cluster, only calls to the node that does not
// answer are refused.
func TestGuardPerNode(t *testing.T) {
	cluster := redisproc.ClusterForTest(t, 3)
	for _, server := range cluster.Servers {
		if _, err := server.Do(t.Context(), "CONFIG", "SET", "cluster-require-full-coverage", "no"); err != nil {
			t.Fatal(err)
		}
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})
	defer rdb.Close()
	var mu sync.Mutex
	guards := map[string]*resilient.Guard{}
	rdb.OnNewNode(func(node *redis.Client) {
		mu.Lock()
		defer mu.Unlock()
		addr := node.Options().Addr
		g := guards[addr]
		if g == nil {
			var err error
			if g, err = resilient.New(resilient.Options{
				Name: addr, Timeout: 200 * time.Millisecond, Failed: resilient.StoreFailed,
				Breaker: resilient.Breaker{Failures: 0.5, Calls: 5, Open: 100 * time.Millisecond, Probes: 1},
			}); err != nil {
				t.Error(err)
				return
			}
			guards[addr] = g
		}
		node.AddHook(redishook.New(g))
	})
	byNode := map[string]string{} // a key of each
	for i := 0; len(byNode) < 3; i++ {
		key := fmt.Sprint("k", i)
		node, err := rdb.MasterForKey(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		byNode[node.Options().Addr] = key
	}
	set := func(addr string) error { return rdb.Set(t.Context(), byNode[addr], "v", 0).Err() }
	state := func(addr string, want resilient.State) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			err := set(addr)
			mu.Lock()
			s := guards[addr].Stats()
			mu.Unlock()
			if s.State == want && (want == resilient.Opened || err == nil) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%+v, %v", s, err)
			}
		}
	}
	for addr := range byNode {
		state(addr, resilient.Closed)
	}
	dead := cluster.Servers[0]
	if err := syscall.Kill(dead.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume := sync.OnceFunc(func() { syscall.Kill(dead.PID(), syscall.SIGCONT) })
	defer resume()
	state(dead.Addr(), resilient.Opened)
	refused := 0
	for range 1000 {
		if errors.Is(set(dead.Addr()), resilient.ErrRejected) {
			refused++
		}
	}
	if refused < 500 {
		t.Errorf("%d of 1000 calls refused", refused)
	}
	for addr := range byNode {
		if addr != dead.Addr() {
			state(addr, resilient.Closed)
		}
	}
	resume()
	state(dead.Addr(), resilient.Closed)
}
