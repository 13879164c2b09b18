package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/balekv/bale/internal/redisproc"
)

// TestFailOver: the proxy follows the master that Sentinel names. Connections to the one before
// end, and new ones write to the new one.
func TestFailOver(t *testing.T) {
	t.Parallel()
	master, replica := redisproc.ForTest(t), redisproc.ForTest(t)
	do := func(s *redisproc.Server, args ...string) string {
		t.Helper()
		reply, err := s.Do(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	host, port, err := net.SplitHostPort(master.Addr())
	if err != nil {
		t.Fatal(err)
	}
	do(replica, "REPLICAOF", host, port)
	for !strings.Contains(do(replica, "INFO", "replication"), "master_link_status:up") {
		time.Sleep(10 * time.Millisecond)
	}
	sentinel := redisproc.SentinelForTest(t, "main", master)
	var notes lines
	o := options("redis://"+sentinel.Addr()+"?master_name=main", "user:*")
	o.Err = &notes
	p := start(t, o)

	c := dial(t, p.addr)
	talk(t, c, wire("SET", "user:1", big("x"))+wire("WAIT", "1", "0"), "+OK\r\n:1\r\n")
	for { // until Sentinel knows the replica
		if reply, err := sentinel.Do(t.Context(), "SENTINEL", "FAILOVER", "main"); err == nil && reply == "OK" {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if b, err := io.ReadAll(c); err != nil && !strings.Contains(err.Error(), "reset") || len(b) > 0 {
		t.Errorf("%q, %v", b, err)
	}
	notes.await(t, "the master has moved from "+master.Addr()+" to "+replica.Addr())
	notes.await(t, "serves clients now")
	c = dial(t, p.addr)
	talk(t, c, wire("SET", "user:2", big("y"))+wire("GET", "user:1"), fmt.Sprintf("+OK\r\n$%d\r\n%s\r\n", len(big("x")), big("x")))
	if v := do(replica, "GET", "user:2"); !isPacked(v) {
		t.Errorf("the new master has %q", v)
	}
	// A Sentinel that is gone changes nothing.
	if err := sentinel.Close(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * retryEvery)
	talk(t, c, wire("PING"), "+PONG\r\n")
	talk(t, dial(t, p.addr), wire("PING"), "+PONG\r\n")
}

// meeting is a closer that ends when all have begun to close.
type meeting struct{ others *sync.WaitGroup }

func (m meeting) Close() error {
	m.others.Done()
	m.others.Wait()
	return io.ErrClosedPipe
}

// TestGroupsCloseAtOnce: each waits for its poll while Redis hangs, and there may be a hundred.
func TestGroupsCloseAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which fails if they wait for one another
		var k packing
		var wg sync.WaitGroup
		for range 100 {
			wg.Add(1)
			k.add(meeting{&wg})
		}
		if err := k.Close(); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%v, must be that of a group", err)
		}
		if err := k.Close(); err != nil {
			t.Errorf("closed again: %v", err)
		}
	})
}
