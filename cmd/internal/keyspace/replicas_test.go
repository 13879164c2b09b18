package keyspace

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/tcptest"
	"github.com/balekv/bale/internal/redisproc"
)

// calls is how often a server has been sent a command.
func calls(t *testing.T, s *redisproc.Server, command string) int64 {
	t.Helper()
	text, err := s.Do(t.Context(), "INFO", "commandstats")
	if err != nil {
		t.Fatal(err)
	}
	return callsIn(Info(text))[command]
}

// replicas are those of a client, and what was said of them.
func replicas(t *testing.T, c redis.UniversalClient) (*Replicas, *strings.Builder) {
	t.Helper()
	var notes strings.Builder
	r, err := NewReplicas(t.Context(), c, func(format string, args ...any) { fmt.Fprintf(&notes, format+"\n", args...) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r, &notes
}

// TestReplicas: values are read from a replica, and what it lacks from its master.
func TestReplicas(t *testing.T) {
	master := mainServer(t)
	c := opened(t, "redis://"+master.Addr())
	want := map[string]int{"h:/a=1": 1, "h:/b=2": 1, "late:/=here": 1, "late:hash/f=here": 1}
	pipe := c.Pipeline()
	for i := range 500 {
		pipe.Set(t.Context(), fmt.Sprint("s:", i), i, 0)
		want[fmt.Sprintf("s:%d/=%d", i, i)] = 1
	}
	pipe.HSet(t.Context(), "h:", "a", "1", "b", "2")
	pipe.Set(t.Context(), "late:", "here", 0)
	pipe.HSet(t.Context(), "late:hash", "f", "here")
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	server := replicaOf(t, master)
	run(t, server, "CONFIG SET replica-read-only no", "DEL late: late:hash")
	r, notes := replicas(t, c)
	seen := map[string]int{}
	var then func() // after the first values
	read := func() error {
		clear(seen)
		return ReadValues(t.Context(), c, ValuesOptions{
			Size: 1 << 20, Replicas: r,
			Values: func(_ context.Context, _ redis.UniversalClient, values []Value) (Next, error) {
				for _, v := range values {
					seen[v.Key+"/"+v.Field+"="+string(v.Stored)]++
				}
				if then != nil {
					then()
				}
				return More, nil
			},
		})
	}
	if err := read(); err != nil {
		t.Fatal(err)
	}
	same(t, seen, want)
	if there, here := calls(t, server, "getrange"), calls(t, master, "getrange"); there < 500 || here > 10 || strings.Contains(notes.String(), "not read") {
		t.Errorf("GETRANGE %d times at the replica, and %d at the master; %s", there, here, notes)
	}

	// It is a replica no longer: the next look finds out.
	replicaSeen = 0
	defer func() { replicaSeen = 5 * time.Second }()
	then = func() { run(t, server, "REPLICAOF NO ONE") }
	if err := read(); err != nil {
		t.Fatal(err)
	}
	same(t, seen, want)
	if !strings.Contains(notes.String(), "is not read any more: it is no replica of this master") || calls(t, master, "getrange") < 100 {
		t.Errorf("%s", notes)
	}

	// It is killed: the reading fails, and the next one reads the master.
	second := replicaOf(t, master)
	replicaSeen = time.Hour
	r, notes = replicas(t, c)
	then = second.Kill
	if err := read(); err == nil || strings.Contains(notes.String(), "any more") {
		t.Errorf("%v; %s", err, notes)
	}
	then = nil
	if err := read(); err != nil {
		t.Fatal(err)
	}
	same(t, seen, want)
	if !strings.Contains(notes.String(), second.Addr()+" is not read any more") {
		t.Errorf("%s", notes)
	}
}

// TestReplicasBehind: what was written before the reading began is read, though a replica in step
// still has the value before it.
func TestReplicasBehind(t *testing.T) {
	t.Parallel()
	master := mainServer(t)
	run(t, master, "SET k before")
	var held sync.Mutex // by the test: the replica gets nothing
	relay := tcptest.Listen(t, func(replica net.Conn) {
		link, err := net.Dial("tcp", master.Addr())
		if err != nil {
			return
		}
		defer link.Close()
		go io.Copy(link, replica)
		for b := make([]byte, 4096); ; {
			n, err := link.Read(b)
			held.Lock()
			replica.Write(b[:n])
			held.Unlock()
			if err != nil {
				return
			}
		}
	})
	host, port, _ := net.SplitHostPort(relay)
	server := redisproc.ForTest(t, "--replicaof", host, port)
	await(t, "replication", func() bool { // Valkey's WAIT also counts a replica that is still loading
		reply, err := server.Do(t.Context(), "GET", "k")
		return err == nil && reply == "before"
	})
	held.Lock()
	run(t, master, "SET k now")
	c := opened(t, "redis://"+master.Addr())
	r, notes := replicas(t, c)
	read := func() (got string) {
		if err := ReadValues(t.Context(), c, ValuesOptions{Size: 1 << 20, Replicas: r, Values: func(_ context.Context, _ redis.UniversalClient, values []Value) (Next, error) {
			got += string(values[0].Stored)
			return More, nil
		}}); err != nil {
			t.Error(err)
		}
		return got
	}
	if got := read(); got != "now" || strings.Contains(notes.String(), "not read") {
		t.Errorf("%q; %s", got, notes)
	}
	held.Unlock()
	before := calls(t, server, "getrange")
	await(t, "the replica is read once it has all", func() bool { return read() == "now" && calls(t, server, "getrange") > before })
}

// TestReplicasOfCluster: whole servers and slots are read from replicas where there is one.
func TestReplicasOfCluster(t *testing.T) {
	t.Parallel()
	cluster := redisproc.ClusterForTest(t, 2)
	server, err := cluster.AddReplica(t.Context(), cluster.Servers[0])
	if err != nil {
		t.Fatal(err)
	}
	c := opened(t, cluster.Servers[1].URL())
	want := map[string]int{}
	for i := range 300 {
		key := fmt.Sprint("s:", i)
		want[fmt.Sprintf("%s/=%d", key, i)] = 1
		if err := c.Set(t.Context(), key, i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	r, notes := replicas(t, c)
	if !strings.Contains(notes.String(), "values are read from 1 replica, and those of 1 master without") {
		t.Errorf("%s", notes)
	}
	seen, _, err := inSlots(t.Context(), c, ValuesOptions{Replicas: r}, 4)
	if err != nil {
		t.Fatal(err)
	}
	same(t, seen, want)
	clear(seen)
	if err := ReadValues(t.Context(), c, ValuesOptions{Size: 1 << 20, Replicas: r, Values: func(_ context.Context, _ redis.UniversalClient, values []Value) (Next, error) {
		for _, v := range values {
			seen[v.Key+"/"+v.Field+"="+string(v.Stored)]++
		}
		return More, nil
	}}); err != nil {
		t.Fatal(err)
	}
	same(t, seen, want)
	if there, here := calls(t, server, "getrange"), calls(t, cluster.Servers[0], "getrange"); there < 200 || here > 20 {
		t.Errorf("GETRANGE %d times at the replica, and %d at its master", there, here)
	}
}
