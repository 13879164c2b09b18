package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/cmd/internal/fleet"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
)

// workersPatience is how long workers may take before the test ends them, and shows what they do.
const workersPatience = 5 * time.Minute

// number is a number of the environment, else the default one.
func number(name string, or int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return or
}

// TestFleetMigrates: many workers share a migration of a cluster, while they are killed, slots are
// moved and masters fail over. In the end each value is packed, and after the way back each is what
// it was. BALE_FLEET_MASTERS, _KEYS and _WORKERS make it larger.
func TestFleetMigrates(t *testing.T) {
	masters, keys, workers := number("BALE_FLEET_MASTERS", 3), number("BALE_FLEET_KEYS", 30_000), number("BALE_FLEET_WORKERS", 4)
	ctx := t.Context()
	binary := clitest.Build(t)
	cluster := redisproc.ClusterForTest(t, masters)
	replicas := map[*redisproc.Server]*redisproc.Server{}
	for _, m := range cluster.Servers {
		r, err := cluster.AddReplica(ctx, m)
		if err != nil {
			t.Fatal(err)
		}
		replicas[m] = r
	}
	client, err := keyspace.Open(ctx, cluster.Servers[0].URL())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	value := func(i int) string {
		return fmt.Sprintf(`{"id":%d,"name":"user %d","email":"user%d@example.org","roles":["reader","writer"],"visits":%d,"plan":"%s"}`, i, i*7919, i, i%977, []string{"free", "team", "enterprise"}[i%3])
	}
	for from := 0; from < keys; from += 5000 {
		if _, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := from; i < min(from+5000, keys); i++ {
				p.Set(ctx, "user:"+strconv.Itoa(i), value(i), 0)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}

	// begun waits until a unit is done: what is done before has its own tests.
	begun := func(ctx context.Context, run string) bool {
		for ; ctx.Err() == nil; pause(ctx, 100*time.Millisecond) {
			r, err := fleet.Open(ctx, client, dict.DefaultPrefix, run)
			if err != nil {
				continue
			}
			if v, err := r.View(ctx); err == nil && v.Done > 0 {
				return true
			}
		}
		return false
	}
	url := cluster.Servers[1].URL() // a URL is of one node, which is not killed
	mortal := 0                     // the master that is
	share := func(run string, more ...string) (killed, moved, failed int) {
		args := append([]string{"migrate", "--redis", url, "--match", "user:*", "--run", run, "--max-rate", "4000"}, more...)
		trouble, calm := context.WithCancel(ctx)
		defer calm()
		var chaos, work sync.WaitGroup
		var topology sync.Mutex // a fail-over in the middle of a move strands keys, whoever looks
		chaos.Go(func() {
			r := rand.New(rand.NewPCG(1, 2))
			for trouble.Err() == nil {
				topology.Lock()
				from, to := cluster.Servers[r.IntN(masters)], cluster.Servers[r.IntN(masters)]
				if slot, ok := someSlot(ctx, from, r); ok && from != to {
					if err := cluster.Move(ctx, slot, from, to, func() { time.Sleep(time.Millisecond) }); err != nil {
						t.Errorf("slot %d: %v", slot, err)
					}
					moved++
				}
				topology.Unlock()
				pause(trouble, 50*time.Millisecond)
			}
		})
		chaos.Go(func() {
			if !begun(trouble, run) {
				return
			}
			topology.Lock()
			defer topology.Unlock()
			dead := cluster.Servers[mortal]
			heir := replicas[dead]
			dead.Kill()
			for ok := false; !ok; time.Sleep(50 * time.Millisecond) {
				role, err := heir.Do(ctx, "ROLE")
				ok = err == nil && strings.HasPrefix(role, "master")
			}
			cluster.Servers[mortal] = heir
			failed++
		})
		process := make([]*exec.Cmd, workers)
		var hung atomic.Bool
		output := make([]bytes.Buffer, workers)
		var lock sync.Mutex
		for i := range workers {
			work.Go(func() {
				for try := 0; ; try++ {
					lock.Lock()
					output[i].Reset()
					c := exec.Command(binary, args...)
					c.Stdout, c.Stderr = &output[i], &output[i]
					err := c.Start()
					process[i] = c
					lock.Unlock()
					if err != nil {
						t.Error(err)
						return
					}
					err = c.Wait()
					if err == nil {
						return
					}
					if try == 50 || hung.Load() {
						t.Errorf("worker %d: %v\n%s", i, err, output[i].String())
						return
					}
					time.Sleep(200 * time.Millisecond)
				}
			})
		}
		chaos.Go(func() {
			for begun(trouble, run); trouble.Err() == nil; pause(trouble, 8*time.Second) {
				lock.Lock()
				if c := process[killed%workers]; c != nil && c.ProcessState == nil {
					c.Process.Kill()
					killed++
				}
				lock.Unlock()
			}
		})
		over := time.AfterFunc(workersPatience, func() {
			hung.Store(true)
			lock.Lock()
			defer lock.Unlock()
			for _, c := range process {
				if c.ProcessState == nil {
					c.Process.Signal(syscall.SIGQUIT)
				}
			}
		})
		work.Wait()
		over.Stop()
		calm()
		chaos.Wait()
		t.Logf("%s: %d workers killed, %d slots moved, %d fail-overs\n%s", run, killed, moved, failed, output[0].String())
		return killed, moved, failed
	}
	each := func(check func(i int, stored string) string) {
		t.Helper()
		wrong := 0
		for from := 0; from < keys; from += 5000 {
			var got []*redis.StringCmd
			client.Pipelined(ctx, func(p redis.Pipeliner) error {
				for i := from; i < min(from+5000, keys); i++ {
					got = append(got, p.Get(ctx, "user:"+strconv.Itoa(i)))
				}
				return nil
			})
			for i, g := range got {
				stored, err := g.Result()
				why := check(from+i, stored)
				if err != nil {
					why = err.Error()
				}
				if why != "" {
					if wrong++; wrong <= 5 {
						t.Errorf("user:%d: %s", from+i, why)
					}
				}
			}
		}
		if wrong > 0 {
			t.Fatalf("%d of %d values are wrong", wrong, keys)
		}
	}
	killed, moved, failed := share("pack", "--dict", "auto", "--force")
	if killed == 0 || moved == 0 || failed == 0 {
		t.Errorf("%d killed, %d slots moved, %d fail-overs: that tries nothing", killed, moved, failed)
	}
	each(func(i int, stored string) string {
		if h, _, ok := frame.Parse([]byte(stored)); !ok || h.DictionaryID == 0 || int(h.Length) != len(value(i)) {
			return "not packed with a dictionary"
		}
		return ""
	})
	var verifies sync.WaitGroup
	for range 2 {
		verifies.Go(func() {
			out, err := exec.Command(binary, "verify", "--redis", url, "--run", "check", "--max-rate", "0").CombinedOutput()
			if err != nil || !strings.Contains(string(out), fmt.Sprintf("%d values read: all can be unpacked", keys)) {
				t.Errorf("verify: %v\n%s", err, out)
			}
		})
	}
	verifies.Wait()
	if out, err := exec.Command(binary, "run", "list", "--redis", url).CombinedOutput(); err != nil || !strings.Contains(string(out), "done") {
		t.Errorf("run list: %v\n%s", err, out)
	}
	mortal = 2
	share("unpack", "--revert")
	each(func(i int, stored string) string {
		if stored != value(i) {
			return "another value than before"
		}
		return ""
	})
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// someSlot is a slot that a server has.
func someSlot(ctx context.Context, s *redisproc.Server, r *rand.Rand) (int, bool) {
	nodes, err := s.Do(ctx, "CLUSTER", "NODES")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(nodes) {
		words := strings.Fields(line)
		if len(words) < 9 || !strings.Contains(words[2], "myself") {
			continue
		}
		first, last, ranged := strings.Cut(words[8+r.IntN(len(words)-8)], "-")
		from, err := strconv.Atoi(first)
		if err != nil {
			return 0, false
		}
		to := from
		if ranged {
			to, _ = strconv.Atoi(last)
		}
		return from + r.IntN(to-from+1), true
	}
	return 0, false
}
