package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/balekv/bale/cmd/internal/advise"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/internal/redisproc"
)

// corpora are sets of values by the name of what their keys start with: those of the folder that
// BALE_CORPORA names, or, without it, the example's.
func corpora(tb testing.TB) map[string][][]byte {
	tb.Helper()
	paths := []string{filepath.Join(clitest.Repository, "examples", "profiles.ndjson")}
	if dir := os.Getenv("BALE_CORPORA"); dir != "" {
		var err error
		if paths, err = filepath.Glob(filepath.Join(dir, "*.ndjson")); err != nil || len(paths) == 0 {
			tb.Fatalf("BALE_CORPORA has no corpora: %v", err)
		}
	}
	all := map[string][][]byte{}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			tb.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".ndjson")
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			all[name] = append(all[name], bytes.Clone(lines.Bytes()))
		}
		if err := errors.Join(lines.Err(), f.Close()); err != nil {
			tb.Fatal(err)
		}
	}
	return all
}

// keysMemory is by how much used_memory falls when all keys go.
func keysMemory(tb testing.TB, s *redisproc.Server) int64 {
	tb.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), PoolSize: 1})
	defer client.Close()
	// Each client takes memory, too, including clients that have just closed their connections.
	alone := func() bool {
		info, err := client.InfoMap(tb.Context(), "clients").Result()
		if err != nil {
			tb.Fatal(err)
		}
		return info["Clients"]["connected_clients"] == "1"
	}
	for !alone() {
		time.Sleep(time.Millisecond)
	}
	used := func() (n int64) {
		info, err := client.InfoMap(tb.Context(), "memory").Result()
		if err != nil {
			tb.Fatal(err)
		}
		if _, err := fmt.Sscan(info["Memory"]["used_memory"], &n); err != nil {
			tb.Fatal(err)
		}
		return n
	}
	with := used()
	if err := client.Do(tb.Context(), "FLUSHALL", "SYNC").Err(); err != nil { // Valkey 8 flushes in the background
		tb.Fatal(err)
	}
	return with - used()
}

// ask runs bale advise --json in this process.
func ask(tb testing.TB, args ...string) *advise.Advice {
	tb.Helper()
	var out, errs bytes.Buffer
	if code := app.Run(tb.Context(), append([]string{"advise", "--json", "-"}, args...), nil, &out, &errs); code != cli.ExitDone {
		tb.Fatalf("exit status %d: %s", code, &errs)
	}
	var a advise.Advice
	if err := json.Unmarshal(out.Bytes(), &a); err != nil {
		tb.Fatal(err)
	}
	return &a
}

// TestAdviceIsFollowed runs the commands that advise ends with, compares the server's memory with
// what it said, and goes all the way back.
func TestAdviceIsFollowed(t *testing.T) {
	const within = 5 // percent
	binary := clitest.Build(t)
	for name, values := range corpora(t) {
		t.Run(name, func(t *testing.T) {
			s := redisproc.ForTest(t)
			key := func(i int) string { return fmt.Sprintf("%s:%d", name, i) }
			fill := func() {
				store(t, s, func(p redis.Pipeliner, i int) bool {
					if i < len(values) {
						p.Set(t.Context(), key(i), values[i], 0)
					}
					return i < len(values)
				})
			}
			keysMemory(t, s) // the first call of each command takes memory of its own (latency-tracking): 24 KB
			fill()
			full := keysMemory(t, s)
			fill()
			a := ask(t, "--redis", s.URL())
			if len(a.Groups) != 1 || a.Groups[0].Chosen < 0 || a.Groups[0].Keys != int64(len(values)) {
				t.Fatalf("groups: %+v", a.Groups)
			}
			there, back := a.Next[:len(a.Next)-1], a.Next[len(a.Next)-1:]
			follow(t, binary, there)
			follow(t, binary, back)
			for i, v := range values {
				if got, err := s.Do(t.Context(), "GET", key(i)); err != nil || got != string(v) {
					t.Fatalf("%s is not what it was, %v", key(i), err)
				}
			}
			follow(t, binary, there[len(there)-2:])
			packed := keysMemory(t, s)
			predicted := a.Total.Now - int64(a.Total.Saving.Estimate)
			t.Logf("%s: %d values; now %d bytes predicted, %d measured (%+.1f%%); packed %d predicted, %d measured (%+.1f%%)", name, len(values), a.Total.Now, full, percentOff(a.Total.Now, full),
				predicted, packed, percentOff(predicted, packed))
			if off := percentOff(a.Total.Now, full); math.Abs(off) > within {
				t.Errorf("the present memory is %+.1f%% off", off)
			}
			if off := percentOff(predicted, packed); math.Abs(off) > within {
				t.Errorf("the memory of packed values is %+.1f%% off", off)
			}
		})
	}
}

// follow runs the commands of some steps.
func follow(t *testing.T, binary string, steps []advise.Step) {
	t.Helper()
	dir := t.TempDir()
	for _, step := range steps {
		if step.Go {
			continue
		}
		cmd := exec.Command("bash", "-e", "-c", strings.ReplaceAll(step.Code, "dict activate", "dict activate --force"))
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", step.Code, err, out)
		}
	}
}

func percentOff(predicted, measured int64) float64 {
	return 100 * (float64(predicted)/float64(measured) - 1)
}

// store fills a server by pipelines, until add says that there is no more.
func store(tb testing.TB, s *redisproc.Server, add func(p redis.Pipeliner, i int) bool) {
	tb.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.Addr()})
	for i, more := 0, true; more; {
		if _, err := client.Pipelined(tb.Context(), func(p redis.Pipeliner) error {
			for range 1000 {
				if more = more && add(p, i); !more {
					break
				}
				i++
			}
			return nil
		}); err != nil {
			tb.Fatal(err)
		}
	}
	if err := client.Close(); err != nil {
		tb.Fatal(err)
	}
}

// order is a value of some 500 bytes.
func order(rng *rand.Rand, i int) string {
	first := []string{"Ada", "Grace", "Alan", "Edsger", "Barbara", "Donald", "Radia", "Leslie"}
	last := []string{"Lovelace", "Hopper", "Turing", "Dijkstra", "Liskov", "Knuth", "Perlman", "Lamport"}
	return fmt.Sprintf(`{"id":%d,"customer":{"name":"%s %s","email":"user%d@example.com","country":"%s","vip":%v},"status":"%s","total":%d.%02d,"currency":"EUR","items":[{"sku":"SKU-%06d","qty":%d,"price":%d.99},`+
		`{"sku":"SKU-%06d","qty":%d,"price":%d.49}],"shipping":{"street":"%d Main Street","city":"%s","carrier":"%s","tracking":"%016x"},"created_at":"2026-11-%02dT%02d:%02d:%02dZ","note":"%x"}`,
		i, first[rng.IntN(8)], last[rng.IntN(8)], rng.IntN(1e6), []string{"DE", "FR", "US", "JP"}[rng.IntN(4)], rng.IntN(10) == 0, []string{"paid", "shipped", "open", "returned"}[rng.IntN(4)], rng.IntN(1000), rng.IntN(100),
		rng.IntN(1e6), 1+rng.IntN(5), rng.IntN(300), rng.IntN(1e6), 1+rng.IntN(5), rng.IntN(300), rng.IntN(200), []string{"Berlin", "Paris", "Boston", "Kyoto"}[rng.IntN(4)], []string{"DHL", "UPS", "FedEx"}[rng.IntN(3)],
		rng.Uint64(), 1+rng.IntN(28), rng.IntN(24), rng.IntN(60), rng.IntN(60), rng.Uint64())
}

// TestNextLinesCompile puts the lines of Go of a next step into a program, for each kind of them.
func TestNextLinesCompile(t *testing.T) {
	kinds := map[string][]string{
		"dictionary": {"--data", filepath.Join(clitest.Repository, "examples", "profiles.ndjson")},
		"plain":      {"--data", filepath.Join(clitest.Repository, "examples", "profiles.ndjson"), "--sample", "30"}, // too few to train on
	}
	for name, args := range kinds {
		t.Run(name, func(t *testing.T) {
			a := ask(t, args...)
			i := slices.IndexFunc(a.Next, func(s advise.Step) bool { return s.Go })
			if i < 0 || strings.Contains(a.Next[i].Code, "dict.NewRegistry") != (name == "dictionary") {
				t.Fatalf("%+v", a.Next)
			}
			program := `package program

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/extra/czstd"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/adapter/goredis"
)

// Not all kinds use all of these.
var _ = []any{compress.Setting{}, czstd.Engine, dict.RegistryOptions{}, frame.Zstd}

func attach(ctx context.Context, rdb *redis.Client) error {
` + a.Next[i].Code + `
	return nil
}
`
			// A file that is nowhere but in the build's overlay, for the module's dependencies.
			dir := t.TempDir()
			source, overlay := filepath.Join(dir, "program.go"), filepath.Join(dir, "overlay.json")
			at, err := filepath.Abs(filepath.Join("internal", "program", "program.go"))
			if err != nil {
				t.Fatal(err)
			}
			b, err := json.Marshal(map[string]any{"Replace": map[string]string{at: source}})
			if err := errors.Join(err, os.WriteFile(source, []byte(program), 0o600), os.WriteFile(overlay, b, 0o600)); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("go", "build", "-overlay", overlay, "./internal/program").CombinedOutput(); err != nil {
				t.Errorf("%v\n%s\n%s", err, out, program)
			}
		})
	}
}

// redis-save FILE writes the server's RDB file.
func redisSave(ts *testscript.TestScript, neg bool, args []string) {
	c := clitest.Client(ts)
	dir, err := c.ConfigGet(context.Background(), "dir").Result()
	ts.Check(err)
	ts.Check(c.Save(context.Background()).Err())
	b, err := os.ReadFile(filepath.Join(dir["dir"], "dump.rdb"))
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b, 0o600))
}

// BenchmarkAdvise asks about a million keys of 500 bytes, in a process of its own.
func BenchmarkAdvise(b *testing.B) {
	s := million(b)
	for b.Loop() {
		cmd := exec.Command(clitest.Build(b), "advise", "--redis", s.URL(), "--json", filepath.Join(b.TempDir(), "advice.json"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		b.ReportMetric(float64(cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)/1024, "MiB-RSS")
		b.ReportMetric((cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), "cpu-s/op")
	}
}

// million is a server with a million keys of 500 bytes; BALE_BENCH_KEYS is for fewer.
func million(tb testing.TB) *redisproc.Server {
	tb.Helper()
	keys := 1_000_000
	if v := os.Getenv("BALE_BENCH_KEYS"); v != "" {
		if _, err := fmt.Sscan(v, &keys); err != nil {
			tb.Fatal(err)
		}
	}
	s := redisproc.ForTest(tb)
	rng := rand.New(rand.NewPCG(1, 1))
	store(tb, s, func(p redis.Pipeliner, i int) bool {
		if i < keys {
			p.Set(tb.Context(), fmt.Sprintf("shop:order:%d", i), order(rng, i), 0)
		}
		return i < keys
	})
	return s
}

// BenchmarkBesideAdvise measures what a running load notices of an advise: GETs and SETs at a fixed
// rate, timed from when each was due, without and with bale advise beside them, in turns.
func BenchmarkBesideAdvise(b *testing.B) {
	const (
		callers = 8
		every   = 2 * time.Millisecond // for each caller
		turns   = 3
	)
	turn := 20 * time.Second // without; with it a turn is as long as it takes
	if v := os.Getenv("BALE_BENCH_TURN"); v != "" {
		var err error
		if turn, err = time.ParseDuration(v); err != nil {
			b.Fatal(err)
		}
	}
	s := million(b)
	binary := clitest.Build(b)
	for b.Loop() {
		var took [2][]time.Duration
		for range turns {
			ctx, cancel := context.WithTimeout(b.Context(), turn)
			took[0] = append(took[0], load(b, ctx, s, callers, every)...)
			cancel()
			ctx, cancel = context.WithCancel(b.Context())
			var advising sync.WaitGroup
			advising.Go(func() {
				defer cancel()
				if out, err := exec.Command(binary, "advise", "--redis", s.URL(), "--json", filepath.Join(b.TempDir(), "advice.json")).CombinedOutput(); err != nil {
					b.Errorf("%v: %s", err, out)
				}
			})
			took[1] = append(took[1], load(b, ctx, s, callers, every)...)
			advising.Wait()
		}
		at := func(with int, q float64) float64 { return took[with][int(q*float64(len(took[with])))].Seconds() * 1e6 }
		for with, name := range []string{"without", "with"} {
			slices.Sort(took[with])
			b.ReportMetric(at(with, 0.5), "us-P50-"+name)
			b.ReportMetric(at(with, 0.99), "us-P99-"+name)
		}
		b.ReportMetric(at(1, 0.99)/at(0, 0.99), "P99-ratio")
	}
}

// load reads and writes at a rate until ctx ends, and returns how long each operation took from
// when it was due.
func load(b *testing.B, ctx context.Context, s *redisproc.Server, callers int, every time.Duration) []time.Duration {
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), PoolSize: callers})
	defer client.Close()
	var lock sync.Mutex
	var all []time.Duration
	var work sync.WaitGroup
	for c := range callers {
		work.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(c), 7))
			var took []time.Duration
			due := time.Now().Add(time.Duration(c) * every / time.Duration(callers))
			for ; ctx.Err() == nil; due = due.Add(every) {
				start := due // a caller that is late, since the one before took long, has kept this one waiting
				if wait := time.Until(due); wait > 0 {
					time.Sleep(wait)
					start = time.Now() // sleeping too long is not the server's doing
				}
				key := fmt.Sprintf("shop:order:%d", rng.IntN(1_000_000))
				var err error
				if rng.IntN(10) == 0 {
					err = client.Set(b.Context(), key, order(rng, 1), 0).Err()
				} else {
					err = client.Get(b.Context(), key).Err()
				}
				if err != nil && !errors.Is(err, redis.Nil) {
					b.Error(err)
					return
				}
				took = append(took, time.Since(start))
			}
			lock.Lock()
			all = append(all, took...)
			lock.Unlock()
		})
	}
	work.Wait()
	return all
}
