package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/balekv/bale/cmd/internal/lab"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"bale": main, "fleet": fleetMain, "events": eventsMain})
}

// TestScripts runs the command as a user does; testdata/script has a session for each thing it
// does.
func TestScripts(t *testing.T) {
	_, err := exec.LookPath("redis-server")
	installed := err == nil
	if !installed && os.Getenv(redisproc.RequireEnv) != "" {
		t.Fatal("no redis-server in PATH")
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			values, err := os.ReadFile(filepath.Join(repository, "examples", "profiles.ndjson"))
			if err == nil {
				err = os.WriteFile(filepath.Join(env.WorkDir, "profiles.ndjson"), values, 0o600)
			}
			if err != nil || !installed {
				return err
			}
			// A server of the script's own, for what needs --redis.
			s, err := redisproc.Start(context.Background())
			if err != nil {
				return err
			}
			env.Defer(func() { s.Close() })
			env.Setenv("REDIS_URL", s.URL())
			return nil
		},
		Condition: func(cond string) (bool, error) { return installed && cond == "redis", nil },
		Cmds: with(with(with(dictScripts, migrateScripts), streamScripts), map[string]func(*testscript.TestScript, bool, []string){
			"change":     change,
			"unbase64":   unbase64,
			"cells":      cells,
			"redis-set":  redisSet,
			"redis-has":  redisHas,
			"redis-save": redisSave,
			"same":       same,
			"examples":   examples,
			"cut":        cut,
		}),
	})
}

func with(a, b map[string]func(*testscript.TestScript, bool, []string)) map[string]func(*testscript.TestScript, bool, []string) {
	maps.Copy(a, b)
	return a
}

// change FILE OFFSET adds one to the byte at an offset, counted from the end when negative.
func change(ts *testscript.TestScript, neg bool, args []string) {
	b := []byte(ts.ReadFile(args[0]))
	offset, err := strconv.Atoi(args[1])
	ts.Check(err)
	if offset < 0 {
		offset += len(b)
	}
	b[offset]++
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b, 0o644))
}

// unbase64 FROM TO decodes a file.
func unbase64(ts *testscript.TestScript, neg bool, args []string) {
	b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(ts.ReadFile(args[0])))
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b, 0o644))
}

// same A B compares two files byte by byte.
func same(ts *testscript.TestScript, neg bool, args []string) {
	if equal := ts.ReadFile(args[0]) == ts.ReadFile(args[1]); equal == neg {
		ts.Fatalf("%s and %s are the same: %v", args[0], args[1], equal)
	}
}

func client(ts *testscript.TestScript) *redis.Client {
	o, err := redis.ParseURL(ts.Getenv("REDIS_URL"))
	ts.Check(err)
	c := redis.NewClient(o)
	ts.Defer(func() { c.Close() })
	return c
}

// redis-set KEY FILE stores a file.
func redisSet(ts *testscript.TestScript, neg bool, args []string) {
	ts.Check(client(ts).Set(context.Background(), args[0], ts.ReadFile(args[1]), 0).Err())
}

// redis-has PATTERN says whether there are keys.
func redisHas(ts *testscript.TestScript, neg bool, args []string) {
	keys, err := client(ts).Keys(context.Background(), args[0]).Result()
	ts.Check(err)
	if (len(keys) > 0) == neg {
		ts.Fatalf("keys %v", keys)
	}
}

// cells FILE N checks the JSON of bale bench: N cells, every one of them verified, every figure
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

func TestExitCodes(t *testing.T) {
	damaged := string(append(frame.Header{Algorithm: frame.Zstd, Length: 5}.Append(nil), "xxxxx"...))
	for _, test := range []struct {
		args  []string
		stdin string
		want  int
	}{
		{[]string{"--version"}, "", exitDone}, {[]string{"--help"}, "", exitDone}, {nil, "", exitDone}, {[]string{"pack"}, "value", exitDone}, {[]string{"unpack"}, "plain", exitDone},
		{[]string{"unpack"}, damaged, exitFailed}, {[]string{"inspect", "nowhere"}, "", exitFailed}, {[]string{"bench", "--data", "nowhere", "--embedded"}, "", exitFailed},
		{[]string{"nonsense"}, "", exitUsage}, {[]string{"bench", "--nonsense"}, "", exitUsage}, {[]string{"pack", "--compress", "brotli"}, "", exitUsage}, {[]string{"bench", "--repeat", "0"}, "", exitUsage},
		{[]string{"bench", "--redis", "redis://127.0.0.1:1", "--embedded"}, "", exitUsage}, {[]string{"inspect", "--key", "k"}, "", exitUsage}, {[]string{"unpack", "--dict", "nowhere"}, "", exitUsage},
	} {
		var out, errs bytes.Buffer
		if got := run(context.Background(), test.args, strings.NewReader(test.stdin), &out, &errs); got != test.want {
			t.Errorf("bale %v: exit %d, want %d: %s", test.args, got, test.want, &errs)
		}
		if (errs.Len() > 0) != (test.want != exitDone) || strings.Count(errs.String(), "\n") > 1 {
			t.Errorf("bale %v: stderr %q", test.args, &errs)
		}
	}
}

// TestLargeValuesGoThrough packs and unpacks more than --max-size: as it is, and not within memory.
func TestLargeValuesGoThrough(t *testing.T) {
	large := strings.Repeat("0123456789", 1000)
	for _, verb := range []string{"pack", "unpack"} {
		var out, errs bytes.Buffer
		if code := run(context.Background(), []string{verb, "--max-size", "1KiB"}, strings.NewReader(large), &out, &errs); code != exitDone || out.String() != large {
			t.Errorf("%s: exit %d, %d bytes, %s", verb, code, out.Len(), &errs)
		}
	}
}

// TestBytesStayBytes: pack and unpack hand on all 256 bytes as they are, to a pipe and to a file.
func TestBytesStayBytes(t *testing.T) {
	var content []byte
	for b := range 256 {
		content = append(content, byte(b))
	}
	magic := frame.Header{Algorithm: frame.Stored, Length: 1}.Append(nil)[:2]
	claim := append(slices.Clone(magic), content...) // starts like a frame, and is none
	stored := frame.Header{Algorithm: frame.Stored, Version: frame.V2, HasChecksum: true, Checksum: frame.Checksum(content), Length: uint64(len(content))}
	fresh := frame.Freshness{Expires: time.Now().Add(time.Hour)}.Append(append(stored.Append(nil), content...))
	for _, test := range []struct {
		name        string
		args        []string
		stdin, want []byte
	}{
		{"pack", []string{"pack"}, content, content},
		{"pack what is larger than --max-size", []string{"pack", "--max-size", "100"}, content, content},
		{"unpack", []string{"unpack"}, content, content},
		{"unpack what starts like a frame", []string{"unpack"}, claim, claim},
		{"unpack what starts like a frame and is larger than --max-size", []string{"unpack", "--max-size", "1"}, claim, claim},
		{"unpack what is fresh", []string{"unpack"}, fresh, content},
		{"unpack what is fresh within --max-size", []string{"unpack", "--max-size", "256"}, fresh, content},
	} {
		check := func(to string, got []byte, code int, errs fmt.Stringer) {
			if !bytes.Equal(got, test.want) || code != exitDone {
				t.Errorf("%s to a %s: exit %d, %q, want %q; %s", test.name, to, code, got, test.want, errs)
			}
		}
		var errs bytes.Buffer
		file, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		code := run(t.Context(), test.args, bytes.NewReader(test.stdin), file, &errs)
		file.Close()
		got, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		check("file", got, code, &errs)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		code = run(t.Context(), test.args, bytes.NewReader(test.stdin), w, &errs) // a pipe has room for it
		w.Close()
		if got, err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		r.Close()
		check("pipe", got, code, &errs)
	}
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

// TestExamplesOfHelpAreKnown parses every example that --help shows.
func TestExamplesOfHelpAreKnown(t *testing.T) {
	n := 0
	for _, verb := range []string{"bench", "pack", "unpack", "inspect", "stats"} {
		var out, errs bytes.Buffer
		if code := run(context.Background(), []string{verb, "--help"}, strings.NewReader(""), &out, &errs); code != exitDone {
			t.Fatalf("%s --help: exit %d, %s", verb, code, &errs)
		}
		_, examples, ok := strings.Cut(out.String(), "Examples:")
		if !ok || !strings.Contains(examples, "bale "+verb) {
			t.Errorf("%s --help has no example:\n%s", verb, &out)
		}
		n += strings.Count(examples, "bale "+verb)
	}
	if n < 8 {
		t.Errorf("%d examples", n)
	}
}

// TestInterruptEndsTheServer ends a bench by a signal and looks for what it left behind.
func TestInterruptEndsTheServer(t *testing.T) {
	redisproc.ForTest(t) // skips where there is no server
	tmp, results := t.TempDir(), t.TempDir()
	var stdout, stderr bytes.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan int)
	t.Setenv("TMPDIR", tmp)
	go func() {
		done <- run(ctx, []string{"bench", "--duration", "60s", "--repeat", "1", "--concurrency", "2", "--json", filepath.Join(results, "out.json")}, strings.NewReader(""), &stdout, &stderr)
	}()
	for len(entries(t, tmp)) == 0 { // the server's directory
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	if code := <-done; code != exitFailed {
		t.Errorf("exit %d, want %d", code, exitFailed)
	}
	if !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("stderr %q", &stderr)
	}
	if stdout.Len() > 0 {
		t.Errorf("stdout %q", &stdout)
	}
	if left := entries(t, results); len(left) > 0 {
		t.Errorf("results that are none: %v", left)
	}
	if left := entries(t, tmp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestInterruptedBench ends a bench by a signal after its first cell: that one is shown, in the
// JSON too, and there is no advice.
func TestInterruptedBench(t *testing.T) {
	results := t.TempDir()
	path := filepath.Join(results, "out.json")
	values := filepath.Join(repository, "examples", "profiles.ndjson")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var stdout bytes.Buffer
	b, err := parseBench([]string{"bench", "--data", values, "--compress", "none,s2,gzip", "--concurrency", "1", "--duration", "50ms", "--repeat", "1", "--values", "10", "--json", path, "--embedded"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.config()
	if err != nil {
		t.Fatal(err)
	}
	c.Progress = func(p lab.Progress) {
		done := p.Done
		if done == 5 { // three are filled, and two cells measured
			cancel()
		}
	}
	if err := b.run(ctx, &streams{in: strings.NewReader(""), out: &stdout, err: io.Discard}, c); !errors.Is(err, context.Canceled) {
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
	if left := entries(t, results); len(left) != 1 {
		t.Errorf("%v", left)
	}
}

func entries(t *testing.T, dir string) []string {
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}
