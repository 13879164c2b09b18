package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/balekv/bale/internal/redisproc"
	"github.com/balekv/bale/internal/testvalues"
)

func TestMain(m *testing.M) {
	if config := os.Getenv(workerEnv); config != "" {
		if err := workerMain(config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// lengthEnv is how long [TestCampaign] runs, for example 10m; 20 s by default.
const lengthEnv = "BALE_CAMPAIGN"

// builtBale is the bale command, built once.
func builtBale(t *testing.T) string {
	t.Helper()
	root, err := rootOf()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "bale")
	cmd := exec.Command("go", "build", "-o", out, ".")
	cmd.Dir = filepath.Join(root, "cmd", "bale")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, b)
	}
	return out
}

// TestCampaign runs half of its time with a fixed seed and half with one that it prints.
func TestCampaign(t *testing.T) {
	if testvalues.Race {
		t.Skip("its processes are bound by the clock, and far too slow with the race detector")
	}
	redisproc.ForTest(t) // which skips without a server
	length := 20 * time.Second
	if s := os.Getenv(lengthEnv); s != "" {
		var err error
		if length, err = time.ParseDuration(s); err != nil {
			t.Fatalf("%s: %v", lengthEnv, err)
		}
	}
	bale, self := builtBale(t), must(os.Executable())
	walk := max(length/6, 10*time.Second)
	for _, seed := range []string{"1", "0"} {
		var out, errs bytes.Buffer
		status := runMain(t.Context(), []string{"--seed", seed, "--for", (length / 2).String(), "--walk", walk.String(), "--period", walk.String(), "--bale", bale,
			"--worker-programs", self, "--rate", "800", "--keys", "600"}, &out, &errs)
		t.Logf("%s%s", errs.String(), out.String())
		if status != 0 {
			t.Errorf("seed %s: exit status %d", seed, status)
		}
		if strings.Contains(out.String(), " 0 operations") {
			t.Error("a walk had no operations")
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestScheduleFollowsFromSeed: operations and tools are the same each time.
func TestScheduleFollowsFromSeed(t *testing.T) {
	plans := func(seed uint64) string {
		c := &campaign{grace: time.Second, coldKeys: 100, faultsOn: map[string]bool{"tool-kill": true, "tool-stop": true}}
		w := &walk{c: c, seed: seed, folder: "folder", dictionaries: &dictionaries{files: make([]string, dictionaryCount), ids: make([]string, dictionaryCount)}}
		sources := w.sources()
		var b strings.Builder
		for range 1000 {
			fmt.Fprintf(&b, "%+v\n", w.plan(sources[4]))
		}
		for lane := range commands {
			for range 100 {
				fmt.Fprintf(&b, "%+v\n", w.planTool(sources[2], lane))
			}
		}
		return b.String()
	}
	if plans(5) != plans(5) {
		t.Error("one seed gave two schedules")
	}
	if plans(5) == plans(6) {
		t.Error("two seeds gave one schedule")
	}
}

// TestNothingIsLeftBehind: the driver ends its processes when it is stopped.
func TestNothingIsLeftBehind(t *testing.T) {
	redisproc.ForTest(t) // which skips without a server
	ctx, cancel := context.WithCancel(t.Context())
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder) // all servers and walks are below it
	done := make(chan int)
	log := filepath.Join(folder, "log")
	go func() {
		var out, errs bytes.Buffer
		done <- runMain(ctx, []string{"--for", "5m", "--servers", "single", "--bale", "/bin/false", "--worker-programs", must(os.Executable()), "--log", log}, &out, &errs)
	}()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if b, _ := os.ReadFile(log); strings.Contains(string(b), "worker 0: ") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no worker started")
		}
	}
	cancel()
	<-done
	processes, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil || len(processes) == 0 {
		t.Skip("no /proc")
	}
	for _, p := range processes {
		if to, err := os.Readlink(p); err == nil && strings.HasPrefix(to, folder) {
			t.Errorf("%s is still there, in %s", p, to)
		}
	}
	left, err := filepath.Glob(filepath.Join(folder, "bale-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
