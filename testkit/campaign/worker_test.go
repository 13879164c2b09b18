package main

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/internal/redisproc"
)

// TestWatchWhileSlotMoves checks that a worker reports a transaction as written only if the value
// is there. The package comment describes the behaviour of go-redis.
func TestWatchWhileSlotMoves(t *testing.T) {
	redisproc.ForTest(t) // which skips without a server
	ctx := t.Context()
	cluster, err := redisproc.StartCluster(ctx, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	defer client.Close()
	do := func(server *redisproc.Server, args ...string) string {
		t.Helper()
		reply, err := server.Do(ctx, args...)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	const key = "h:{0}:0"
	owner, err := client.MasterForKey(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	var from, to *redisproc.Server
	for _, server := range cluster.Servers {
		if server.Addr() == owner.Options().Addr {
			from = server
		} else {
			to = server
		}
	}
	w := &worker{hooked: client}
	watch := func(n int64) (written bool) {
		t.Helper()
		r := &request{Kind: "hwatch", Keys: []string{key}, N: []int64{n}, Size: 100}
		a := w.do(ctx, r)
		s, err := client.Get(ctx, key).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		there := ofText(key, s, err)
		if a.Wrote[0].OK != (there.N == n) || a.Wrote[0].OK == a.Wrote[0].Refused || len(a.Got) != 1 {
			t.Errorf("write %d: reported as %+v, and %+v is stored", n, a, there)
		}
		return a.Wrote[0].OK
	}
	slot := do(from, "CLUSTER", "KEYSLOT", key)
	do(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", do(from, "CLUSTER", "MYID"))
	do(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", do(to, "CLUSTER", "MYID"))
	watch(1)
	for _, server := range []*redisproc.Server{from, to} {
		do(server, "CLUSTER", "SETSLOT", slot, "STABLE")
	}
	if err := client.Del(ctx, key).Err(); err != nil {
		t.Fatal(err)
	}
	if !watch(2) {
		t.Error("nothing was written when the slot had stayed")
	}
}
