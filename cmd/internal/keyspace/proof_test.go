package keyspace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
)

// TestSlotProof reads slots while something happens, once or each time, in the middle of one.
func TestSlotProof(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cluster := redisproc.ClusterForTest(t, 3)
	client := opened(t, cluster.Servers[0].URL()).(*redis.ClusterClient)
	const keys, elements = 3000, 77
	tag := ""
	for i := 0; tag == "" || keySlot(tag) > 1000; i++ {
		tag = fmt.Sprintf("{r%d}", i)
	}
	fill(t, client, "k%d", keys, map[string]int{})
	must(t, client.RPush(ctx, tag+"list", slices.Repeat([]any{packedWith(1)}, elements)...).Err(),
		client.SAdd(ctx, "set", packedWith(2)).Err(), client.HSet(ctx, "hash", "f", packedWith(3)).Err(),
		client.ZAdd(ctx, "zset", redis.Z{Member: packedWith(4)}).Err())
	move := func(slot, from, to int) {
		must(t, cluster.Move(ctx, slot, cluster.Servers[from], cluster.Servers[to], func() {}))
	}
	rename := func() {
		must(t, client.Set(ctx, tag+"a", "x", 0).Err(), client.Rename(ctx, tag+"a", tag+"b").Err(),
			client.Del(ctx, tag+"b").Err())
	}
	restore := func() {
		dump, err := client.Dump(ctx, tag+"list").Result()
		must(t, err, client.Restore(ctx, "copy", 0, dump).Err(), client.Del(ctx, "copy").Err())
	}
	copies := func() {
		must(t, client.Do(ctx, "COPY", tag+"list", tag+"copy").Err(), client.Del(ctx, tag+"copy").Err())
	}
	resetAll := func() { must(t, client.ForEachMaster(ctx, reset)) }
	accept := ReferenceOptions{AcceptMoves: true}
	for _, test := range []struct {
		name   string
		o      ReferenceOptions
		during func()
		always bool   // it happens each time that the slot is read
		again  bool   // the slot is read again
		want   string // in the error; empty for none
	}{
		{name: "nothing", during: func() {}},
		{name: "rename", during: rename, again: true},
		{name: "renames all the time", during: rename, always: true, again: true, want: "RENAME ran"},
		{name: "renames all the time, accepted", o: accept, during: rename, always: true},
		{name: "copy", during: copies, again: true},
		{name: "restore", during: restore, want: "RESTORE ran during the scan"},
		{name: "restore, accepted", o: accept, during: restore},
		// As if it were this one:
		{name: "another slot arrives and leaves", during: func() { move(9000, 1, 0); move(9000, 0, 1) }, again: true},
		{name: "another slot leaves", during: func() { move(4000, 0, 1) }},
		{name: "there and back", during: func() { move(keySlot(tag), 0, 1); move(keySlot(tag), 1, 0) }, again: true},
		{name: "counters begin anew", during: resetAll, again: true, want: "counters of commands began anew"},
		{name: "restore, and counters begin anew", during: func() { restore(); resetAll() }, again: true, want: "began anew"},
		{name: "counters, where moves may run", o: accept, during: resetAll},
		{name: "it leaves", during: func() { move(keySlot(tag), 0, 1) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			looks := 0
			shared := func(_ context.Context, n int) error {
				if n == elements {
					if looks++; looks == 1 || test.always {
						test.during()
					}
				}
				return nil
			}
			p := SlotProof{ReferenceOptions: test.o, Client: client, Pacer: &Pacer{Pace: Pace{Shared: shared}}}
			var err error
			p.Begun, err = p.Start(ctx)
			must(t, err)
			found := NewReferences(nil)
			var all []Standing
			for _, slots := range []Slots{{0, 1800}, {1800, SlotCount}} {
				place, read, failed := p.Read(ctx, slots, found)
				if err = failed; err != nil {
					break
				}
				if !place.Done || place.Slots == nil || *place.Slots != slots || len(read) != len(place.Servers) || len(read) == 0 {
					t.Errorf("%+v, %+v", place, read)
				}
				all = append(all, read...)
			}
			if err == nil {
				err = p.Check(ctx, all)
			}
			if looks > 1 != test.again {
				t.Errorf("the slot was read %d times", looks)
			}
			if test.want != "" {
				wantInconclusive(t, err, "", test.want)
				return
			}
			must(t, err)
			if found.Keys != keys+4 || found.Foreign != keys+2 {
				t.Errorf("%d keys, %d plain values", found.Keys, found.Foreign)
			}
			for id, want := range map[frame.DictionaryID]int64{1: elements, 2: 1, 3: 1, 4: 1} {
				if ref := found.ByID[id]; ref == nil || ref.Values != want {
					t.Errorf("%d: %+v, want %d values", id, ref, want)
				}
			}
		})
	}
	// Half of a slot has arrived elsewhere, and its move goes on later.
	const halves = 20
	fill(t, client, tag+"%d", halves, map[string]int{})
	steps, p := 0, SlotProof{Client: client}
	var err error
	p.Begun, err = p.Start(ctx)
	must(t, err)
	must(t, cluster.Move(ctx, keySlot(tag), cluster.Servers[1], cluster.Servers[0], func() {
		if steps++; steps != 3 { // ten keys are there
			return
		}
		found, slot := NewReferences(nil), keySlot(tag)
		_, read, err := p.Read(ctx, Slots{slot, slot + 1}, found)
		must(t, err)
		if len(read) != 2 || found.ByID[1] == nil || found.ByID[1].Values < elements || found.Keys < halves+1 {
			t.Errorf("%d servers, %d keys, %+v", len(read), found.Keys, found.ByID[1])
		}
	}))
	if steps < 3 {
		t.Errorf("the slot moved in %d steps", steps)
	}
	if _, _, err := p.Read(cancelled(ctx), Slots{0, 1800}, NewReferences(nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("after an interrupt: %v", err)
	}
}

// TestSlotProofOfDatabases: no value is missed that leaves its database while its slot is listed.
func TestSlotProofOfDatabases(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	if has, err := mainServer(t).Do(ctx, "CONFIG", "GET", "cluster-databases"); err != nil || has == "" {
		t.Skip("a cluster of this server has one database")
	}
	cluster := redisproc.ClusterForTestWith(t, 1, redisproc.Options{Args: []string{"--cluster-databases", "2"}})
	client := opened(t, cluster.Servers[0].URL()).(*redis.ClusterClient)
	var db [2]*redis.Client
	for i := range db {
		db[i] = redis.NewClient(&redis.Options{Addr: cluster.Servers[0].Addr(), DB: i})
		t.Cleanup(func() { db[i].Close() })
	}
	const before, after = 77, 78 // elements of lists, whose slots are read before and after the value's
	first, value, last := probes()[1], probes()[2], probes()[3]
	must(t, client.RPush(ctx, first, slices.Repeat([]any{"x"}, before)...).Err(),
		client.RPush(ctx, last, slices.Repeat([]any{"x"}, after)...).Err(), client.Set(ctx, value, packedWith(7), 0).Err())
	for name, move := range map[string]func(from, to int){
		"MOVE": func(from, to int) { must(t, db[from].Do(ctx, "MOVE", value, to).Err()) },
		"COPY": func(from, to int) {
			must(t, db[from].Do(ctx, "COPY", value, value, "DB", to).Err(), db[from].Del(ctx, value).Err())
		},
	} {
		done := map[int]bool{}
		shared := func(_ context.Context, n int) error {
			if done[n] {
				return nil
			}
			switch done[n] = true; n {
			case before:
				move(0, 1)
			case after:
				move(1, 0)
			}
			return nil
		}
		p := SlotProof{Client: client, Pacer: &Pacer{Pace: Pace{Shared: shared}}}
		var err error
		p.Begun, err = p.Start(ctx)
		must(t, err)
		_, _, err = p.Read(ctx, Slots{0, SlotCount}, NewReferences(nil))
		if !done[after] {
			t.Errorf("%s: it was not moved back", name)
		}
		wantInconclusive(t, err, "", "MOVE or COPY between databases")
	}
}

func reset(ctx context.Context, node *redis.Client) error { return node.ConfigResetStat(ctx).Err() }

func cancelled(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// TestSlotProofAfterFailOver: a proof holds only if the new master has all that was read, and
// counted all that ran.
func TestSlotProofAfterFailOver(t *testing.T) {
	t.Parallel()
	const lacks, unknown = "may lack what it had", "not known at the start"
	for name, want := range map[string]string{
		"in step": "", "behind": lacks, "RESTORE": "RESTORE ran during the scan",
		"RESTORE, and a replica that came later": unknown,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			cluster := redisproc.ClusterForTest(t, 3)
			heir, err := cluster.AddReplica(ctx, cluster.Servers[0])
			must(t, err)
			client := opened(t, cluster.Servers[1].URL()).(*redis.ClusterClient)
			key := ""
			for i := 0; key == "" || keySlot(key) > 5000; i++ {
				key = "k" + strconv.Itoa(i)
			}
			must(t, client.Set(ctx, key, packedWith(7), 0).Err())
			restore := func() {
				dump, err := client.Dump(ctx, key).Result()
				must(t, err, client.RestoreReplace(ctx, key, 0, dump).Err())
			}
			confirm := func() {
				_, err = cluster.Servers[0].Do(ctx, "WAIT", "1", "10000")
				must(t, err)
			}
			restore() // before the start
			confirm()
			if want == lacks {
				must(t, syscall.Kill(heir.PID(), syscall.SIGSTOP))
				_, err = cluster.Servers[0].Do(ctx, "CLIENT", "KILL", "TYPE", "REPLICA")
				must(t, err)
			}
			must(t, client.Set(ctx, key, "plain", 0).Err())
			p := SlotProof{Client: client}
			p.Begun, err = p.Start(ctx)
			must(t, err)
			found := NewReferences(nil)
			_, read, err := p.Read(ctx, Slots{0, SlotCount}, found)
			must(t, err)
			if found.ByID[7] != nil {
				t.Errorf("the old value was found: %+v", found.ByID[7])
			}
			if want != "" && want != lacks {
				restore()
			}
			if want == unknown {
				heir, err = cluster.AddReplica(ctx, cluster.Servers[0])
				must(t, err)
			}
			if want != lacks {
				confirm()
			}
			cluster.Servers[0].Kill()
			if want == lacks {
				must(t, syscall.Kill(heir.PID(), syscall.SIGCONT))
			}
			_, err = heir.Do(ctx, "CLUSTER", "FAILOVER", "TAKEOVER")
			must(t, err)
			await(t, "the new master", func() bool {
				client.ReloadState(ctx)
				masters, failed := nodesOf(ctx, client)
				err = p.Check(ctx, read)
				// Neither the nodes nor the client may know yet that the former one has failed.
				agreed := err == nil || !strings.Contains(err.Error(), "a master without slots") && !errors.Is(err, syscall.ECONNREFUSED)
				return failed == nil && masters[heir.Addr()] != nil && agreed
			})
			if want == "" {
				must(t, err)
				return
			}
			wantInconclusive(t, err, "", want)
			if want == lacks { // else this tries nothing
				await(t, "the old value", func() bool {
					client.ReloadState(ctx)
					return client.Get(ctx, key).Val() == packedWith(7)
				})
			}
		})
	}
}

// addEmpty adds a master without slots to a cluster.
func addEmpty(t *testing.T, c *redisproc.Cluster) *redisproc.Server {
	t.Helper()
	ctx := t.Context()
	empty, err := c.AddReplica(ctx, c.Servers[0])
	must(t, err)
	_, port, _ := net.SplitHostPort(c.Servers[0].Addr())
	_, err = empty.Do(ctx, "CLUSTER", "RESET", "SOFT")
	must(t, err)
	_, err = empty.Do(ctx, "CLUSTER", "MEET", "127.0.0.1", port)
	must(t, err)
	awaitMaster(t, empty, "", append([]*redisproc.Server{empty}, c.Servers...))
	return empty
}

// awaitMaster waits until servers know of a master, with slots that a pattern matches. On a busy
// machine a fail-over is given up after 5 s, or the former master takes its slots back.
func awaitMaster(t *testing.T, master *redisproc.Server, slots string, servers []*redisproc.Server) {
	t.Helper()
	id, err := master.Do(t.Context(), "CLUSTER", "MYID")
	must(t, err)
	known := regexp.MustCompile(id + ` \S+ (myself,)?master .* connected` + slots)
	asked := time.Now()
	for _, s := range servers {
		await(t, "a new master", func() bool {
			if time.Since(asked) > 6*time.Second {
				_, _ = master.Do(t.Context(), "CLUSTER", "FAILOVER") // an error if it is master
				asked = time.Now()
			}
			info, err := s.Do(t.Context(), "CLUSTER", "INFO")
			nodes, failed := s.Do(t.Context(), "CLUSTER", "NODES")
			return err == nil && failed == nil && strings.Contains(info, "cluster_state:ok") && known.MatchString(nodes)
		})
	}
}

// half moves a slot from the first server of a cluster, and calls do when some keys have arrived.
func half(t *testing.T, c *redisproc.Cluster, slot int, to *redisproc.Server, do func()) {
	t.Helper()
	steps := 0
	must(t, c.Move(t.Context(), slot, c.Servers[0], to, func() {
		if steps++; steps == 3 {
			do()
		}
	}))
	if steps < 3 {
		t.Errorf("the slot moved in %d steps", steps)
	}
}

// TestSlotProofOfHalves: the keys that have left for the target of a slot's move are read, or
// nothing is proven.
func TestSlotProofOfHalves(t *testing.T) {
	t.Parallel()
	const keys, elements = 12, 1001 // a list of 1,000 is read at once
	slot := slotOf("a")
	for name, long := range map[string]bool{"to a new master": false, "long lists": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			cluster := redisproc.ClusterForTest(t, 2)
			if slot >= SlotCount/2 {
				slices.Reverse(cluster.Servers)
			}
			client := opened(t, cluster.Servers[0].URL()).(*redis.ClusterClient)
			target, want := cluster.Servers[1], int64(keys)
			if !long {
				target = addEmpty(t, cluster)
			}
			for i := range keys {
				key := "{a}" + strconv.Itoa(i)
				if long {
					want = keys * elements
					must(t, client.RPush(ctx, key, slices.Repeat([]any{packedWith(7)}, elements)...).Err())
				} else {
					must(t, client.Set(ctx, key, packedWith(7), 0).Err())
				}
			}
			slots := Slots{slot, slot + 1}
			reads := map[string]func(*redis.ClusterClient, *References) error{
				"proof": func(c *redis.ClusterClient, found *References) error {
					p := SlotProof{Client: c}
					_, _, err := p.Read(ctx, slots, found)
					return err
				},
				"list": func(c *redis.ClusterClient, found *References) error {
					o := ReferenceOptions{}
					return ReadReferences(ctx, c, []Place{{Slots: &slots}}, o, nil, found, func([]Place) error { return nil })
				},
			}
			var group sync.WaitGroup
			half(t, cluster, slot, target, func() {
				masters, err := nodesOf(ctx, client)
				must(t, err)
				named, err := otherwise(ctx, masters, masters[cluster.Servers[0].Addr()], slot, errors.New("ASK 1 host:1"))
				if long && (err != nil || named.Options().Addr != target.Addr()) || !long && !errors.Is(err, errMeanwhile) {
					t.Errorf("the target under another address: %v, %v", named, err)
				}
				if _, err := NewWatch(ctx, client); err == nil || !strings.Contains(err.Error(), "is moving") {
					t.Errorf("without --run: %v", err)
				}
				var twice sync.WaitGroup // the move goes on when both have listed the slot twice
				for name, read := range reads {
					c := opened(t, cluster.Servers[0].URL()).(*redis.ClusterClient)
					lists := listings{again: make(chan struct{})}
					must(t, c.ForEachMaster(ctx, func(_ context.Context, n *redis.Client) error {
						n.AddHook(&lists)
						return nil
					}))
					ended := make(chan struct{})
					group.Go(func() {
						defer close(ended)
						found := NewReferences(nil)
						if err := read(c, found); err != nil || found.of(7).Values != want {
							t.Errorf("%s: %d values, want %d: %v", name, found.of(7).Values, want, err)
						}
					})
					twice.Go(func() {
						select {
						case <-lists.again:
						case <-ended:
						}
					})
				}
				twice.Wait()
			})
			group.Wait()
		})
	}
}

// TestSlotProofOfStranded: before Valkey 8, a slot's move is forgotten when its source fails over,
// and the keys that have left are back later.
func TestSlotProofOfStranded(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]bool{"at a master with slots": true, "at a new master": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			cluster := redisproc.ClusterForTest(t, 3)
			slot := slotOf("a")
			from := slot * 3 / SlotCount
			cluster.Servers[0], cluster.Servers[from] = cluster.Servers[from], cluster.Servers[0]
			target := cluster.Servers[1]
			if !known {
				target = addEmpty(t, cluster)
			}
			heir, err := cluster.AddReplica(ctx, cluster.Servers[0])
			must(t, err)
			client := opened(t, cluster.Servers[1].URL()).(*redis.ClusterClient)
			const keys = 20
			for i := range keys {
				must(t, client.Set(ctx, "{a}"+strconv.Itoa(i), packedWith(7), 0).Err())
			}
			p := SlotProof{Client: client}
			p.Begun, err = p.Start(ctx)
			must(t, err)
			moving, interrupt := context.WithCancel(ctx)
			steps := 0
			err = cluster.Move(moving, slot, cluster.Servers[0], target, func() {
				if steps++; steps == 3 {
					interrupt()
				}
			})
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			if known {
				_, err = p.Start(ctx) // both sides know of the move
				must(t, err)
				found, slots := NewReferences(nil), Slots{slot, slot + 1}
				_, read, err := p.Read(ctx, slots, found)
				must(t, err)
				wantInconclusive(t, p.Check(ctx, read), "", "is moving")
			}
			_, err = cluster.Servers[0].Do(ctx, "WAIT", "1", "10000")
			must(t, err)
			_, err = heir.Do(ctx, "CLUSTER", "FAILOVER")
			must(t, err)
			moves := func(of string, do func() error) {
				await(t, of, func() bool { // the client may take the former master for one still
					client.ReloadState(ctx)
					err := do()
					if err == nil {
						t.Errorf("%s: no error", of)
					}
					return err == nil || strings.Contains(err.Error(), "is moving") || !known && errors.Is(err, errMeanwhile)
				})
			}
			moves("Read", func() error {
				found := NewReferences(nil)
				_, _, err := p.Read(ctx, Slots{slot, slot + 1}, found)
				if err == nil && found.of(7).Values == keys {
					err = errors.New("the former master was read, and it knows of the move")
				}
				return err
			})
			moves("Check", func() error { return p.Check(ctx, nil) })
			moves("a walk without --run", func() error { _, err := NewWatch(ctx, client); return err })
			// The target does not change whose the slot is that it imports: its cluster may stay down.
			others := slices.DeleteFunc(slices.Clone(cluster.Servers), func(s *redisproc.Server) bool { return s == target })
			awaitMaster(t, heir, ` \d+-\d+`, others)
			nodes, err := heir.Do(ctx, "CLUSTER", "NODES")
			must(t, err)
			if _, err := p.Start(ctx); (err == nil) != strings.Contains(nodes, "[") {
				t.Errorf("another run: %v; the new master says:\n%s", err, nodes)
			}
		})
	}
}
