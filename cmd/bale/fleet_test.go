package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
)

// The fleet is many processes with one group of dictionaries. They are of two program versions: an
// older one with a Cache and the pure-Go engine, a newer one with a Hook and libzstd.

const (
	fleetGroup = "fleet"
	fleetKeys  = 50 // of each writer

	leastOperations = 50
	fleetPatience   = time.Minute // for what takes moments, when the machine does not stand still
)

// fleetValue is what a writer writes: every byte of it follows from its key and its number.
type fleetValue struct {
	Key  string `json:"key"`
	N    int64  `json:"n"`
	Body string `json:"body"`
}

func newFleetValue(key string, n int64) fleetValue {
	r := rand.New(rand.NewPCG(uint64(n), uint64(len(key))))
	return fleetValue{key, n, fmt.Sprintf("country=DE language=de plan=pro verified=true theme=dark timezone=Europe/Berlin balance=%d avatar=%016x tags=vip,beta,newsletter", r.IntN(100000), r.Uint64())}
}

// fleetConfig is how a process of the fleet is to run.
type fleetConfig struct {
	Role    string `json:"role"` // writer or reader
	Number  int    `json:"number"`
	Version string `json:"version"` // old or new
	Redis   string `json:"redis"`
	Outage  bool   `json:"outage"` // connections may break, and values be missing
	Auto    bool   `json:"auto"`
	Poll    time.Duration
}

// fleetReport is what a process did.
type fleetReport struct {
	Operations int64                        `json:"operations"`
	Used       map[frame.DictionaryID]int64 `json:"used"` // writes by dictionary
	Broken     int64                        `json:"broken"`
	Missing    int64                        `json:"missing"`
	Failures   []string                     `json:"failures"`
}

// fleetMain is a process of the fleet: it says "ready", works until its input ends, and reports.
func fleetMain() {
	var c fleetConfig
	err := json.Unmarshal([]byte(os.Args[1]), &c)
	if err == nil {
		err = runFleet(c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runFleet(c fleetConfig) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	o, err := redis.ParseURL(c.Redis)
	if err != nil {
		return err
	}
	if !c.Outage { // a busy machine may stand still for longer than a client's default
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = fleetPatience, fleetPatience, fleetPatience, fleetPatience
	}
	client := redis.NewClient(o)
	defer client.Close()
	registry, err := dict.NewRegistry(goredis.NewStore(client), dict.RegistryOptions{Grace: 300 * time.Millisecond})
	if err != nil {
		return err
	}
	options := dict.GroupOptions{Poll: c.Poll, FetchTimeout: fleetPatience}
	if c.Version == "new" {
		options.Setting = compress.Setting{Algorithm: frame.Zstd, Level: "3"}
	}
	if c.Auto {
		options.Auto = &dict.Auto{Interval: 100 * time.Millisecond, MinValues: 100, Lease: time.Second, Train: dict.TrainOptions{MaxSize: 8 << 10}}
	}
	group, err := registry.Open(ctx, fleetGroup, options)
	if err != nil {
		return err
	}
	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: group})
	if err != nil {
		return err
	}
	var get func(key string) (fleetValue, error)
	var set func(v fleetValue) error
	if c.Version == "new" {
		hook, err := goredis.NewHook(packer, goredis.HookOptions{Match: []string{"value:*"}})
		if err != nil {
			return err
		}
		if err := hook.Install(client); err != nil {
			return err
		}
		get = func(key string) (v fleetValue, err error) {
			b, err := client.Get(ctx, key).Bytes()
			if err == nil {
				err = json.Unmarshal(b, &v)
			}
			return v, err
		}
		set = func(v fleetValue) error {
			b, err := json.Marshal(v)
			if err != nil {
				return err
			}
			return client.Set(ctx, v.Key, b, 0).Err()
		}
	} else {
		cache, err := bale.New(goredis.NewStore(client), bale.Options[fleetValue]{Packer: packer})
		if err != nil {
			return err
		}
		get = func(key string) (fleetValue, error) { return cache.Get(ctx, key) }
		set = func(v fleetValue) error { return cache.Set(ctx, v.Key, v) }
	}
	var operations atomic.Int64
	go func() {
		io.Copy(io.Discard, os.Stdin)
		for end := time.Now().Add(fleetPatience); operations.Load() < leastOperations && time.Now().Before(end); { // it may have had no processor yet
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	fmt.Println("ready")
	report := fleetReport{Used: map[frame.DictionaryID]int64{}}
	fail := func(format string, args ...any) {
		report.Failures = append(report.Failures, fmt.Sprintf(format, args...))
	}
	newest := map[string]int64{}
	check := func(key string, v fleetValue, err error, own bool) {
		missing := errors.Is(err, bale.ErrNotFound) || errors.Is(err, redis.Nil)
		switch {
		case ctx.Err() != nil:
		case missing && (c.Outage || !own && newest[key] == 0):
			report.Missing++
		case err != nil && c.Outage && !missing && !errors.Is(err, bale.ErrCorrupt) && !errors.Is(err, bale.ErrUnknownDictionary):
			report.Broken++
		case err != nil:
			fail("%s: %v", key, err)
		case v != newFleetValue(key, v.N):
			fail("%s: a wrong value: %+v", key, v)
		case v.N < newest[key] || own && v.N != newest[key] && !c.Outage:
			fail("%s: number %d, and %d was there before", key, v.N, newest[key])
		default:
			newest[key] = v.N
		}
	}
	for n := int64(1); ctx.Err() == nil && len(report.Failures) < 5; n++ {
		time.Sleep(time.Millisecond)
		if c.Role == "writer" {
			key := fmt.Sprintf("value:%d:%d", c.Number, n%fleetKeys)
			used := group.Writer().DictionaryID()
			err := set(newFleetValue(key, n))
			switch {
			case ctx.Err() != nil:
				continue
			case err != nil && c.Outage:
				report.Broken++
				continue
			case err != nil:
				fail("set %s: %v", key, err)
				continue
			}
			if report.Used[used]++; report.Used[used] == 1 {
				client.SAdd(ctx, usedKey(used), c.Number) // without it the test waits in vain
			}
			newest[key] = n
			if n%3 == 0 {
				v, err := get(key)
				check(key, v, err, true)
			}
		} else {
			key := fmt.Sprintf("value:%d:%d", rand.IntN(8), rand.IntN(fleetKeys))
			v, err := get(key)
			check(key, v, err, false)
		}
		report.Operations = operations.Add(1)
	}
	return errors.Join(packer.Close(), group.Close(), json.NewEncoder(os.Stdout).Encode(report))
}

// usedKey is the set of the writers that have written with a dictionary.
func usedKey(id frame.DictionaryID) string { return "used:" + id.String() }

// fleetProcess is a process that runs.
type fleetProcess struct {
	config fleetConfig
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr bytes.Buffer
}

func startFleet(t *testing.T, c fleetConfig) *fleetProcess {
	t.Helper()
	if c.Poll == 0 {
		c.Poll = 200 * time.Millisecond
	}
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	p := &fleetProcess{config: c, cmd: exec.Command("fleet", string(b))}
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.stdin, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p.stdout = bufio.NewReader(out)
	t.Cleanup(func() { p.cmd.Process.Kill(); p.cmd.Wait() })
	if line, err := p.stdout.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%+v: %q, %v\n%s", c, line, err, &p.stderr)
	}
	return p
}

// stopAll ends processes at once, and returns their reports in their order.
func stopAll(t *testing.T, all []*fleetProcess) (reports []fleetReport) {
	t.Helper()
	for _, p := range all {
		p.stdin.Close()
	}
	for _, p := range all {
		reports = append(reports, p.stop(t))
	}
	return reports
}

// stop ends the process, and fails the test for whatever went wrong in it.
func (p *fleetProcess) stop(t *testing.T) fleetReport {
	t.Helper()
	p.stdin.Close()
	var r fleetReport
	err := json.NewDecoder(p.stdout).Decode(&r)
	if err = errors.Join(err, p.cmd.Wait()); err != nil {
		t.Errorf("%s %d (%s): %v\n%s", p.config.Role, p.config.Number, p.config.Version, err, &p.stderr)
	}
	for _, f := range r.Failures {
		t.Errorf("%s %d (%s): %s", p.config.Role, p.config.Number, p.config.Version, f)
	}
	if r.Operations < leastOperations {
		t.Errorf("%s %d (%s): only %d operations", p.config.Role, p.config.Number, p.config.Version, r.Operations)
	}
	return r
}

// startAll starts 8 writers and 8 readers, half of them of each version.
func startAll(t *testing.T, c fleetConfig) (all []*fleetProcess) {
	t.Helper()
	for i := range 16 {
		c.Role, c.Version, c.Number = []string{"writer", "reader"}[i%2], []string{"old", "new"}[i/2%2], i/2
		all = append(all, startFleet(t, c))
	}
	return all
}

// dictionaryFile trains a dictionary on values like the fleet's.
func dictionaryFile(t *testing.T, seed int) (path string, id frame.DictionaryID) {
	t.Helper()
	var samples [][]byte
	for i := range 200 {
		b, err := json.Marshal(newFleetValue(fmt.Sprintf("value:%d:%d", i%8, i%fleetKeys), int64(1000*seed+i)))
		if err != nil {
			t.Fatal(err)
		}
		samples = append(samples, b)
	}
	training, err := dict.Train(t.Context(), samples, dict.TrainOptions{MaxSize: 4 << 10, Builders: dict.Builders(compress.Setting{})[:4]})
	if err != nil {
		t.Fatal(err)
	}
	path = t.TempDir() + "/fleet.dict"
	if err := os.WriteFile(path, training.Dictionary.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, training.Dictionary.ID()
}

// operator runs bale dict against a server.
func operator(t *testing.T, url string, args ...string) string {
	t.Helper()
	var out, errOut bytes.Buffer
	args = append([]string{"dict"}, append(args, "--redis", url)...)
	if code := app.Run(t.Context(), args, strings.NewReader(""), &out, &errOut); code != 0 {
		t.Fatalf("bale %s: %s", strings.Join(args, " "), &errOut)
	}
	return out.String()
}

// TestFleetRollsOver: dictionaries are published, activated, forced, rolled back and switched off
// under a fleet that reads and writes; nothing is lost, and nothing is wrong.
func TestFleetRollsOver(t *testing.T) {
	server := redisproc.ForTest(t)
	url := server.URL()
	firstFile, first := dictionaryFile(t, 1)
	secondFile, second := dictionaryFile(t, 2)
	thirdFile, third := dictionaryFile(t, 3)
	all := startAll(t, fleetConfig{Redis: url})
	client, err := keyspace.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	// A phase lasts for a while, and until all writers have written with a dictionary.
	phase := func(id frame.DictionaryID) {
		t.Helper()
		time.Sleep(500 * time.Millisecond)
		for start := time.Now(); client.SCard(t.Context(), usedKey(id)).Val() < 8; time.Sleep(5 * time.Millisecond) {
			if time.Since(start) > fleetPatience {
				t.Fatalf("not all write with %v after %v", id, fleetPatience)
			}
		}
	}
	phase(0) // without a dictionary
	operator(t, url, "publish", firstFile, "--group", fleetGroup)
	time.Sleep(400 * time.Millisecond)
	operator(t, url, "activate", first.String(), "--group", fleetGroup, "--grace", "300ms")
	phase(first)
	operator(t, url, "publish", secondFile, "--group", fleetGroup)
	operator(t, url, "activate", second.String(), "--group", fleetGroup, "--force")
	phase(second)
	operator(t, url, "activate", "previous", "--group", fleetGroup)
	phase(first)
	operator(t, url, "activate", "none", "--group", fleetGroup)
	phase(0)
	operator(t, url, "publish", thirdFile, "--group", fleetGroup)
	operator(t, url, "activate", third.String(), "--group", fleetGroup, "--force")
	phase(third)
	var operations int64
	for i, r := range stopAll(t, all) {
		p := all[i]
		operations += r.Operations
		if p.config.Role != "writer" {
			continue
		}
		for _, id := range []frame.DictionaryID{0, first, second, third} {
			if r.Used[id] == 0 {
				t.Errorf("writer %d (%s) never wrote with %v: %v", p.config.Number, p.config.Version, id, r.Used)
			}
		}
	}
	t.Logf("%d operations of 16 processes over 5 changes", operations)
	// A program that comes afterwards reads every value there is.
	late := startFleet(t, fleetConfig{Role: "reader", Version: "new", Redis: url})
	late.stop(t)
	if list := operator(t, url, "list", "--scan", "--max-rate", "0"); !strings.Contains(list, third.String()) || strings.Contains(list, "UNKNOWN") {
		t.Errorf("list:\n%s", list)
	}
}

// TestFleetSurvivesAnEmptyRedis: if a server comes back empty in the middle, only values are lost.
// The fleet fills the registry again, and new values can be read.
func TestFleetSurvivesAnEmptyRedis(t *testing.T) {
	ctx := t.Context()
	server := redisproc.ForTest(t)
	url := server.URL()
	file, id := dictionaryFile(t, 1)
	operator(t, url, "publish", file, "--group", fleetGroup)
	operator(t, url, "activate", id.String(), "--group", fleetGroup, "--force")
	all := startAll(t, fleetConfig{Redis: url, Outage: true})
	client, err := keyspace.Open(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	registry, err := dict.NewRegistry(goredis.NewStore(client), dict.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The registry holds what values refer to, within moments.
	restored := func(what string) {
		t.Helper()
		start := time.Now()
		for {
			refs, err := keyspace.FindReferences(ctx, []redis.UniversalClient{client}, keyspace.ReferenceOptions{Match: "value:*"})
			if err == nil && refs.ByID[id] != nil && refs.ByID[id].Values > 100 {
				if d, err := registry.Fetch(ctx, id); err == nil && d.ID() == id {
					if s, err := registry.State(ctx, fleetGroup); err == nil && s.Current == id {
						t.Logf("%s: written with the dictionary again after %v", what, time.Since(start).Round(time.Millisecond))
						return
					}
				}
			}
			if time.Since(start) > fleetPatience {
				t.Fatalf("%s: not restored within %v: %v", what, fleetPatience, err)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	restored("at the start")
	for i := range 2 {
		if err := server.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		restored(fmt.Sprint("restart ", i+1))
		time.Sleep(300 * time.Millisecond)
	}
	if err := client.FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	restored("FLUSHALL")
	missing := int64(0)
	for _, r := range stopAll(t, all) {
		missing += r.Missing
	}
	if missing == 0 {
		t.Error("nobody noticed that the server was empty")
	}
}

// TestFleetTrainsByItself: a fleet with Auto gets a dictionary, though the process that is training
// is killed; one of them trains at a time.
func TestFleetTrainsByItself(t *testing.T) {
	ctx := t.Context()
	server := redisproc.ForTest(t)
	url := server.URL()
	client, err := keyspace.Open(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	registry, err := dict.NewRegistry(goredis.NewStore(client), dict.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lease := dict.DefaultPrefix + "lease:" + fleetGroup
	wait := func(what string, condition func() bool) {
		t.Helper()
		for deadline := time.Now().Add(5 * time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("not within five minutes: %s", what)
			}
		}
	}
	killed := false
	for range 10 { // the process may be faster than its death
		doomed := startFleet(t, fleetConfig{Role: "writer", Version: "new", Number: 0, Redis: url, Auto: true})
		wait("the first one trains", func() bool { return client.Exists(ctx, lease).Val() == 1 })
		if err := doomed.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		doomed.cmd.Wait()
		s, err := registry.State(ctx, fleetGroup)
		if err != nil {
			t.Fatal(err)
		}
		if killed = len(s.Dictionaries) == 0; killed {
			break
		}
		if err := client.FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if !killed {
		t.Fatal("no process was killed before it had published")
	}
	var all []*fleetProcess
	for i := 1; i < 5; i++ {
		all = append(all, startFleet(t, fleetConfig{Role: "writer", Version: []string{"old", "new"}[i%2], Number: i, Redis: url, Auto: true}))
	}
	reader := startFleet(t, fleetConfig{Role: "reader", Version: "old", Redis: url})
	var state *dict.State
	wait("a dictionary is activated", func() bool {
		state, err = registry.State(ctx, fleetGroup)
		return err == nil && state.Current != 0
	})
	time.Sleep(time.Second)
	if state, err = registry.State(ctx, fleetGroup); err != nil || len(state.Dictionaries) != 1 || !state.Dictionaries[0].Info.Auto {
		t.Errorf("%+v, %v", state, err)
	}
	for i, r := range stopAll(t, append(all, reader)) {
		if i < len(all) && r.Used[state.Current] == 0 {
			t.Errorf("writer %d wrote without it: %v", all[i].config.Number, r.Used)
		}
	}
}
