package keyspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/internal/redisproc"
)

// TestWatch walks over servers that change in the middle: the walk may have missed keys.
func TestWatch(t *testing.T) {
	t.Parallel()
	const keys = 3000
	ctx := t.Context()
	do := func(t *testing.T, s *redisproc.Server, args ...string) {
		t.Helper()
		if reply, err := s.Do(ctx, args...); err != nil {
			t.Fatal(reply, err)
		}
	}
	// followed makes a server the replica of another, and waits for its data.
	followed := func(t *testing.T, s, master *redisproc.Server) {
		t.Helper()
		host, port, _ := strings.Cut(master.Addr(), ":")
		do(t, s, "REPLICAOF", host, port)
		for info := ""; !strings.Contains(info, "master_link_status:up"); {
			var err error
			if info, err = s.Do(ctx, "INFO", "replication"); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The keys of a cluster are in one slot, of the server that is walked last.
	type change func(t *testing.T, servers []*redisproc.Server, c *redisproc.Cluster, slot int)
	for name, test := range map[string]struct {
		cluster bool
		change  change
		want    string // in the error; empty for none
	}{
		"nothing":              {false, nil, ""},
		"nothing in a cluster": {true, nil, ""},
		"restart": {false, func(t *testing.T, s []*redisproc.Server, _ *redisproc.Cluster, _ int) {
			do(t, s[0], "SAVE")
			if err := s[0].Restart(ctx); err != nil {
				t.Fatal(err)
			}
		}, "it was restarted"},
		"fail-over and back": {false, func(t *testing.T, s []*redisproc.Server, _ *redisproc.Cluster, _ int) {
			followed(t, s[1], s[0])
			do(t, s[1], "REPLICAOF", "NO", "ONE")
			followed(t, s[0], s[1])
			do(t, s[0], "REPLICAOF", "NO", "ONE")
		}, "it failed over"},
		"master becomes a replica": {false, func(t *testing.T, s []*redisproc.Server, _ *redisproc.Cluster, _ int) {
			followed(t, s[0], s[1])
		}, "its role"},
		"first replica": {false, func(t *testing.T, s []*redisproc.Server, _ *redisproc.Cluster, _ int) {
			followed(t, s[1], s[0])
		}, ""},
		"slot moved to a server that is done": {true, func(t *testing.T, s []*redisproc.Server, c *redisproc.Cluster, slot int) {
			if err := c.Move(ctx, slot, s[1], s[0], func() {}); err != nil {
				t.Fatal(err)
			}
		}, "slots of the cluster moved"},
		"slot moved there and back": {true, func(t *testing.T, s []*redisproc.Server, c *redisproc.Cluster, slot int) {
			for _, to := range []int{0, 1} {
				if err := c.Move(ctx, slot, s[1-to], s[to], func() {}); err != nil {
					t.Fatal(err)
				}
			}
		}, "its cluster changed"},
		"slot is moving": {true, func(t *testing.T, s []*redisproc.Server, c *redisproc.Cluster, slot int) {
			id, err := s[0].Do(ctx, "CLUSTER", "MYID")
			if err != nil {
				t.Fatal(err)
			}
			do(t, s[1], "CLUSTER", "SETSLOT", fmt.Sprint(slot), "MIGRATING", id)
		}, "is moving"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var servers []*redisproc.Server // in the order of the walk
			var c *redisproc.Cluster
			tag := "x"
			if test.cluster {
				c = redisproc.ClusterForTest(t, 2)
				servers = slices.SortedFunc(slices.Values(c.Servers),
					func(a, b *redisproc.Server) int { return cmp.Compare(a.Addr(), b.Addr()) })
				if _, err := servers[1].Do(ctx, "EXISTS", tag); err != nil { // it is the other one's
					tag = "b"
				}
			} else {
				for range 2 {
					servers = append(servers, redisproc.ForTest(t, "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"))
				}
			}
			client := opened(t, servers[0].URL())
			if _, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
				for i := range keys {
					p.Set(ctx, fmt.Sprintf("{%s}%d", tag, i), i, 0)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			w, err := NewWatch(ctx, client)
			must(t, err)
			before := w.Places()
			must(t, ReadValues(ctx, client, ValuesOptions{
				Size: 100, Places: before,
				Values: func(context.Context, redis.UniversalClient, []Value) (Next, error) { return More, nil },
				Page: func(places []Place, l Looked) error {
					if last := len(places) - 1; places[last].Done || last > 0 && !places[0].Done || test.change == nil {
						return nil
					}
					test.change(t, servers, c, slotOf(tag))
					test.change = nil
					return nil
				},
			}))
			if test.change != nil {
				t.Fatal("it was done before the change")
			}
			if err = w.Look(ctx); test.want == "" && err != nil {
				t.Error(err)
			}
			if test.want != "" && (!errors.Is(err, ErrInconclusive) || !strings.Contains(err.Error(), test.want)) {
				t.Error(err)
			}
			// A shared walk of a single server sees the same.
			if !test.cluster {
				if same, _, err := Settled(ctx, client, before[0], false); err != nil || same != (test.want == "") {
					t.Errorf("settled: %v, %v", same, err)
				}
			}
			// Another walk begins where no slot is moving, also on a replica.
			if _, err := NewWatch(ctx, client); (err != nil) != (test.want == "is moving") {
				t.Errorf("another walk: %v", err)
			}
		})
	}
}

// TestWatchSlotComesBack: a slot that moves is seen while it does. It may come back before the end,
// after keys were on neither server when those were read.
func TestWatchSlotComesBack(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := redisproc.ClusterForTest(t, 2)
	client := opened(t, c.Servers[0].URL())
	w, err := NewWatch(ctx, client)
	must(t, err)
	id, err := c.Servers[1].Do(ctx, "CLUSTER", "MYID")
	must(t, err)
	_, err = c.Servers[0].Do(ctx, "CLUSTER", "SETSLOT", "0", "MIGRATING", id)
	must(t, err)
	w.looked = time.Time{}
	if err := w.NowAndThen(ctx); !errors.Is(err, ErrInconclusive) || !strings.Contains(err.Error(), "is moving") {
		t.Errorf("%v", err)
	}
	_, err = c.Servers[0].Do(ctx, "CLUSTER", "SETSLOT", "0", "STABLE")
	must(t, err)
	must(t, w.Look(ctx))
}

// TestWatchOfTheForbidden: what a server does not tell is no change, and a warning says so.
func TestWatchOfTheForbidden(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := redisproc.ClusterForTest(t, 1).Servers[0]
	for rule, want := range map[string]string{
		"-cluster|nodes": "CLUSTER NODES", "-cluster|info": "CLUSTER INFO", "-info": "does not notice that one is restarted",
	} {
		_, err := s.Do(ctx, "ACL", "SETUSER", "u", "reset", "on", ">p", "~*", "+@all", rule)
		must(t, err)
		client := opened(t, strings.Replace(s.URL(), "redis://", "redis://u:p@", 1))
		lost, err := Lost(ctx, client, ServerInfo, ClusterNodes)
		if err != nil || !strings.Contains(strings.Join(lost, "\n"), want) {
			t.Errorf("%s: %q, %v", rule, lost, err)
		}
		w, err := NewWatch(ctx, client)
		must(t, err)
		must(t, w.Look(ctx))
		if p := w.Places(); len(p) != 1 || (p[0].RunID == "") != (rule == "-info") {
			t.Errorf("%s: %+v", rule, p)
		}
	}
}
