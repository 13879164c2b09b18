package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/cmd/internal/lab"
	"github.com/balekv/bale/cmd/internal/origin"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/internal/redisproc"
)

func TestMain(m *testing.M) {
	origin.Child()
	testscript.Main(m, map[string]func(){"balebench": main})
}

// cells FILE N checks the JSON of balebench run: N cells, every one of them verified, every figure
// there.
func cells(ts *testscript.TestScript, neg bool, args []string) {
	var r outcome.Run
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &r))
	if want, _ := strconv.Atoi(args[1]); len(r.Cells) != want {
		ts.Fatalf("%d cells, want %d", len(r.Cells), want)
	}
	for _, c := range r.Cells {
		if !c.Verified || c.Error != "" {
			ts.Fatalf("%+v", c)
		}
		if c.RawBytes == 0 || c.StoredBytes == 0 || math.Abs(c.Ratio-float64(c.RawBytes)/float64(c.StoredBytes)) > 1e-9 {
			ts.Fatalf("ratio of %+v", c)
		}
		if c.Values == 0 || c.Operations == 0 || c.OpsPerSecond.Median <= 0 || c.AllocsPerOp.Median <= 0 || c.BytesPerOp.Median <= 0 {
			ts.Fatalf("figures of %+v", c)
		}
		if (c.RedisBytesPerKey == nil) != r.Environment.Embedded || !r.Environment.Embedded && *c.RedisBytesPerKey < float64(c.StoredBytes)/float64(c.Values) {
			ts.Fatalf("bytes a key of %+v", c)
		}
		for _, name := range outcome.Stages {
			s := c.Stages[name]
			if s.Mean <= 0 || s.P50 <= 0 || s.P95 < s.P50 || s.P99 < s.P95 || s.P999 < s.P99 {
				ts.Fatalf("stage %s of %+v", name, c)
			}
		}
	}
}

func TestScripts(t *testing.T) { clitest.Scripts(t, clitest.Commands{"cells": cells}) }

func TestExitCodes(t *testing.T) {
	clitest.ExitCodes(t, app, cli.ExitDone, "", "", "--version", "--help", "help run", "study")
	clitest.ExitCodes(t, app, cli.ExitFailed, "", "run --data nowhere --embedded")
	clitest.ExitCodes(t, app, cli.ExitUsage, "", "nonsense", "run --nonsense", "run --repeat 0", "run --redis redis://127.0.0.1:1 --embedded",
		"http --client curl", "http --size 1", "http --loop half", "http --reuse maybe", "http --repeat 0", "http --rate -1", "study resilience --baseline x")
}

func TestExamplesOfHelpAreKnown(t *testing.T) {
	clitest.HelpExamples(t, app, "run", "study", "http", "compare", "ab")
}

// TestJSONFields checks the names that others read.
func TestJSONFields(t *testing.T) {
	b, err := json.Marshal(outcome.Cell{Stages: map[string]outcome.Stage{"total": {}}})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"client", "codec", "compress", "dataset", "concurrency", "values", "raw_bytes", "stored_bytes", "ratio",
		"redis_bytes_per_key", "ops_per_second", "allocs_per_op", "bytes_per_op", "verified", "stages"} {
		if _, ok := got[name]; !ok {
			t.Errorf("no field %q", name)
		}
	}
	want := map[string]any{"p50_us": 0.0, "p95_us": 0.0, "p99_us": 0.0, "p999_us": 0.0, "mean_us": 0.0}
	if diff := cmp.Diff(want, got["stages"].(map[string]any)["total"]); diff != "" {
		t.Errorf("stage (-want +got):\n%s", diff)
	}
}

// TestInterruptEndsTheServer ends a run by a signal and looks for what it left behind.
func TestInterruptEndsTheServer(t *testing.T) {
	redisproc.ForTest(t) // skips where there is no server
	tmp, results := t.TempDir(), t.TempDir()
	var stdout, stderr bytes.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan int)
	t.Setenv("TMPDIR", tmp)
	go func() {
		done <- app.Run(ctx, []string{"run", "--duration", "60s", "--repeat", "1", "--concurrency", "2", "--json", filepath.Join(results, "out.json")}, strings.NewReader(""), &stdout, &stderr)
	}()
	for len(clitest.Entries(t, tmp)) == 0 { // the server's directory
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	if code := <-done; code != cli.ExitFailed {
		t.Errorf("exit %d, want %d", code, cli.ExitFailed)
	}
	if !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("stderr %q", &stderr)
	}
	if stdout.Len() > 0 {
		t.Errorf("stdout %q", &stdout)
	}
	if left := clitest.Entries(t, results); len(left) > 0 {
		t.Errorf("results that are none: %v", left)
	}
	if left := clitest.Entries(t, tmp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestInterruptedBench ends a run by a signal after its first cell: that one is shown, in the
// JSON too, and there is no advice.
func TestInterruptedBench(t *testing.T) {
	results := t.TempDir()
	path := filepath.Join(results, "out.json")
	values := filepath.Join(clitest.Repository, "examples", "profiles.ndjson")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var stdout bytes.Buffer
	b, err := parseRun([]string{"run", "--data", values, "--compress", "none,s2,gzip", "--concurrency", "1", "--duration", "50ms", "--repeat", "1", "--values", "10", "--json", path, "--embedded"})
	if err != nil {
		t.Fatal(err)
	}
	o, err := b.options(&cli.Streams{In: strings.NewReader(""), Out: &stdout, Err: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	o.Progress = func(p lab.Progress) {
		done := p.Done
		if done == 5 { // three are filled, and two cells measured
			cancel()
		}
	}
	if err := b.measure(ctx, o.Streams, o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for _, want := range []string{"1 round, 0.05 s a cell", "INTERRUPTED: these are figures of 1 of 1 rounds, for 2 of 3 cells", "No advice"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, &stdout)
		}
	}
	if strings.Contains(stdout.String(), "Choose") {
		t.Errorf("advice:\n%s", &stdout)
	}
	var r outcome.Run
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil || !r.Environment.Interrupted || len(r.Cells) != 2 {
		t.Errorf("%+v, %v", r.Environment, err)
	}
	if left := clitest.Entries(t, results); len(left) != 1 {
		t.Errorf("%v", left)
	}
}
