package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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

// workersPatience is how long workers may take before the test ends them, and shows what they do. A
// thousand keys take a second at worst.
func workersPatience(keys int) time.Duration {
	return 5*time.Minute + time.Duration(keys)*time.Millisecond
}

// number is a number of the environment, else the default one.
func number(name string, or int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return or
}

// sharedUser is the value of user:I.
func sharedUser(i int) string {
	plan := []string{"free", "team", "enterprise"}[i%3]
	return fmt.Sprintf(`{"id":%d,"name":"user %d","email":"user%d@example.org","roles":["reader","writer"],"visits":%d,"plan":"%s"}`,
		i, i*7919, i, i%977, plan)
}

// fillUsers stores the users that runs work on.
func fillUsers(ctx context.Context, t *testing.T, client redis.UniversalClient, keys int) {
	t.Helper()
	for from := 0; from < keys; from += 5000 {
		if _, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := from; i < min(from+5000, keys); i++ {
				p.Set(ctx, "user:"+strconv.Itoa(i), sharedUser(i), 0)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFleetMigrates: many workers share a migration of a cluster, while they are killed, slots are
// moved and masters fail over. In the end each value is packed. Then they share a garbage
// collection: it removes the dictionary that no value needs, and no other. After the way back each
// value is what it was. BALE_FLEET_MASTERS, _KEYS and _WORKERS make it larger.
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
	fillUsers(ctx, t, client, keys)

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
	bale := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(binary, append(args, "--redis", url)...).CombinedOutput()
		if err != nil {
			t.Fatalf("bale %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	bale("dict", "grace", "1ms") // before anything is removed: a shorter one takes effect later
	share := func(run string, more ...string) (killed, moved, failed int) {
		rate := "4000"
		if run == "collect" { // which reads a slot again if a slot arrives at its master meanwhile
			rate = "0"
		}
		args := append(more, "--redis", url, "--run", run, "--max-rate", rate)
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
			if run == "collect" { // which must be said not to hold if writes are lost
				if n, err := dead.Do(ctx, "WAIT", "1", "10000"); err != nil || n != "1" {
					t.Errorf("WAIT: %s, %v", n, err)
				}
			}
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
		over := time.AfterFunc(workersPatience(keys), func() {
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
	killed, moved, failed := share("pack", "migrate", "--match", "user:*", "--dict", "auto", "--force")
	if killed == 0 || moved == 0 || failed == 0 {
		t.Errorf("%d killed, %d slots moved, %d fail-overs: that tries nothing", killed, moved, failed)
	}
	each(func(i int, stored string) string {
		if h, _, ok := frame.Parse([]byte(stored)); !ok || h.DictionaryID == 0 || int(h.Length) != len(sharedUser(i)) {
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
	// Of two dictionaries that nobody writes with any more, a value needs one.
	var ids []frame.DictionaryID
	for i := range 4 {
		d, err := frame.NewDictionary([]byte(strings.Repeat("dictionary "+strconv.Itoa(i), 10)))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "plain.dict")
		if err := os.WriteFile(file, d.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		bale("dict", "publish", file, "--group", "user")
		bale("dict", "activate", d.ID().String(), "--group", "user", "--force")
		ids = append(ids, d.ID())
	}
	stored := frame.Header{Algorithm: frame.Zstd, DictionaryID: ids[1], Length: 100}.Append(nil)
	if err := client.RPush(ctx, "needs", string(stored)+"payload").Err(); err != nil {
		t.Fatal(err)
	}
	if replicas[cluster.Servers[0]], err = cluster.AddReplica(ctx, cluster.Servers[0]); err != nil {
		t.Fatal(err)
	}
	if _, _, failed := share("collect", "dict", "gc", "--apply"); failed == 0 {
		t.Error("no fail-over during gc")
	}
	list := bale("dict", "list", "--scan", "--run", "list", "--max-rate", "0")
	for _, want := range []string{
		ids[0].String() + " is in quarantine", ids[1].String() + " +retired .* 1\n", fmt.Sprint(keys+1, " keys looked at"),
	} {
		if !regexp.MustCompile(want).MatchString(list) {
			t.Errorf("%s is not in:\n%s", want, list)
		}
	}
	mortal = 2
	share("unpack", "migrate", "--match", "user:*", "--revert")
	each(func(i int, stored string) string {
		if stored != sharedUser(i) {
			return "another value than before"
		}
		return ""
	})
}

// TestFleetFigures measures runs on a cluster: keys a second and processor time by the number of
// workers, their memory, and how long a load beside them waits. It is for figures, with
// BALE_FLEET_FIGURES=1; BALE_FLEET_MASTERS and _KEYS are as in TestFleetMigrates.
func TestFleetFigures(t *testing.T) {
	if os.Getenv("BALE_FLEET_FIGURES") == "" {
		t.Skip("BALE_FLEET_FIGURES is not set")
	}
	masters, keys := number("BALE_FLEET_MASTERS", 30), number("BALE_FLEET_KEYS", 300_000)
	ctx := t.Context()
	binary := clitest.Build(t)
	cluster := redisproc.ClusterForTest(t, masters)
	client, err := keyspace.Open(ctx, cluster.Servers[0].URL())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	fillUsers(ctx, t, client, keys)
	servers := func() (cpu float64) { // seconds of all
		for _, s := range cluster.Servers {
			info, err := s.Do(ctx, "INFO", "cpu")
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"used_cpu_sys", "used_cpu_user"} {
				seconds, _ := strconv.ParseFloat(keyspace.Info(info)[name], 64)
				cpu += seconds
			}
		}
		return cpu
	}
	runs := 0
	start := func(workers int, what string, before ...string) (all []*exec.Cmd) {
		t.Helper()
		runs++
		args := slices.Concat(before, []string{binary}, strings.Fields(what))
		args = append(args, "--match", "user:*", "--run", fmt.Sprint("run-", runs), "--redis", cluster.Servers[0].URL())
		for range workers {
			c := exec.Command(args[0], args[1:]...)
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			all = append(all, c)
		}
		return all
	}
	// wait returns the processor time of all workers, in seconds, and the most memory of one.
	wait := func(all []*exec.Cmd) (cpu float64, memory int64) {
		t.Helper()
		for _, c := range all {
			if err := c.Wait(); err != nil {
				t.Fatal(err)
			}
			cpu += (c.ProcessState.UserTime() + c.ProcessState.SystemTime()).Seconds()
			memory = max(memory, int64(c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)<<10)
		}
		return cpu, memory
	}
	const unlimited = " --max-rate 0 --max-bandwidth 0"
	wait(start(1, "migrate --dict auto --force"+unlimited))
	for _, workers := range []int{1, 2, 4, 8} {
		for _, what := range []string{"migrate --revert", "migrate --dict current", "verify", "advise --sample 500"} {
			began, before := time.Now(), servers()
			cpu, memory := wait(start(workers, what+unlimited))
			speed, each := float64(keys)/time.Since(began).Seconds(), 1e6/float64(keys)
			t.Logf("| %d | %s | %.0f | %.1f | %.1f | %d |",
				workers, what, speed, cpu*each, (servers()-before)*each, memory>>20)
		}
	}

	// The load asks a thousand times a second, on its own schedule. Every five seconds the workers
	// are stopped, or go on. At the lowest priority they take no core from the servers and the load,
	// as on a machine of their own.
	for _, beside := range []struct {
		limit  string // keys a second of a shard; four workers read four times as many
		before []string
	}{{"500", nil}, {"500", []string{"nice", "-n", "19"}}, {"100", nil}, {"100", []string{"nice", "-n", "19"}}} {
		all := start(4, "verify --max-rate "+beside.limit, beside.before...)
		var waits [2][]time.Duration // without, and beside
		const each, windows, rate = 5 * time.Second, 12, 1000
		for window := range windows {
			for _, c := range all {
				c.Process.Signal(map[bool]os.Signal{true: syscall.SIGCONT, false: syscall.SIGSTOP}[window%2 == 1])
			}
			var lock sync.Mutex
			var asking sync.WaitGroup
			for began, n := time.Now(), 0; n < rate*int(each/time.Second); n++ {
				due := began.Add(time.Duration(n) * time.Second / rate)
				time.Sleep(time.Until(due))
				asking.Go(func() {
					err := client.Get(ctx, "user:"+strconv.Itoa(n*7919%keys)).Err()
					lock.Lock()
					defer lock.Unlock()
					if waits[window%2] = append(waits[window%2], time.Since(due)); err != nil {
						t.Error(err)
					}
				})
			}
			asking.Wait()
		}
		for _, c := range all {
			c.Process.Kill()
			c.Wait()
		}
		for i, name := range []string{"without", "beside"} {
			slices.Sort(waits[i])
			at := func(q float64) time.Duration {
				return waits[i][int(q*float64(len(waits[i])-1))].Round(time.Microsecond)
			}
			t.Logf("%s %v %s: %d reads, P50 %v, P99 %v, P99.9 %v", beside.limit, beside.before, name, len(waits[i]), at(0.5), at(0.99), at(0.999))
		}
	}
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
