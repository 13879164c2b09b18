package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/cmd/internal/compare"
	"github.com/balekv/bale/cmd/internal/outcome"
)

// TestCompareExitCodes: 1 is for what got worse alone.
func TestCompareExitCodes(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	lines := func(name string, values ...string) string {
		return write(name, "BenchmarkX 1 "+strings.Join(values, " ns/op\nBenchmarkX 1 ")+" ns/op\n")
	}
	old, slower, noisy := lines("old", "100", "101", "99", "100.5"), lines("slower", "200", "201", "199", "200.5"), lines("noisy", "50", "200", "100", "120")
	failed, damaged, other := write("failed", "--- FAIL: BenchmarkX\nBenchmarkY 1 1 ns/op\n"), write("damaged", "BenchmarkX 1 x ns/op\n"), write("other", "BenchmarkY 1 1 ns/op\n")
	for _, test := range []struct {
		args []string
		want int
	}{
		{[]string{old, old}, cli.ExitDone}, {[]string{slower, old}, cli.ExitDone}, {[]string{old, noisy}, cli.ExitDone}, {[]string{other, old}, cli.ExitUsage},
		{[]string{old, slower}, cli.ExitFailed}, {[]string{old, failed}, cli.ExitFailed}, {[]string{old, slower, "--json", "-"}, cli.ExitFailed},
		{[]string{old, filepath.Join(dir, "none")}, cli.ExitUsage}, {[]string{old, damaged}, cli.ExitUsage}, {[]string{old, old, "--gate", "time"}, cli.ExitUsage},
		{[]string{old, old, "--gate", "p99=10%"}, cli.ExitUsage}, {[]string{old}, cli.ExitUsage}, {[]string{old, dir}, cli.ExitUsage},
	} {
		var out, errs bytes.Buffer
		if got := app.Run(t.Context(), append([]string{"compare"}, test.args...), strings.NewReader(""), &out, &errs); got != test.want {
			t.Errorf("balebench compare %v: exit %d, want %d: %s", test.args, got, test.want, &errs)
		}
		if (errs.Len() > 0) != (test.want != cli.ExitDone) || strings.Count(errs.String(), "\n") > 1 || (test.want == cli.ExitUsage) != (out.Len() == 0) {
			t.Errorf("balebench compare %v: stdout %q, stderr %q", test.args, &out, &errs)
		}
	}
}

// full is a stdout that nothing can be written to.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestNotWrittenIsNoRegression: nor is a table that nobody reads to its end.
func TestNotWrittenIsNoRegression(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "run")
	if err := os.WriteFile(path, []byte("BenchmarkX 1 5 ns/op\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"compare", path, path}, {"ab", "cat " + path, "cat " + path, "--blocks", "1"}} {
		var errs bytes.Buffer
		if code := app.Run(t.Context(), command, strings.NewReader(""), full{}, &errs); code != cli.ExitUsage || !strings.Contains(errs.String(), "stdout: no space left on device") {
			t.Errorf("%v: exit %d: %s", command, code, &errs)
		}
		errs.Reset()
		if code := app.Run(t.Context(), slices.Concat(command, []string{"--json", filepath.Join(dir, "no", "file")}), strings.NewReader(""), io.Discard, &errs); code != cli.ExitUsage {
			t.Errorf("%v: exit %d: %s", command, code, &errs)
		}
	}
}

// TestFailedCells: cells in error, and those with wrong results, are not passed over, whichever
// form the run comes in.
func TestFailedCells(t *testing.T) {
	share := 1.5
	cell := func(compress string) outcome.Cell {
		c := outcome.Cell{
			Identity: outcome.Identity{Dataset: "profiles", Track: "dynamic", Codec: "json", Compress: compress, Client: "goredis", Concurrency: 8},
			Values:   200, StoredBytes: 20000, OpsPerSecond: outcome.Estimate{Median: 1000}, ValuesPerSecond: outcome.Estimate{Median: 1000}, Verified: true,
		}
		for range 6 {
			c.Rounds = append(c.Rounds, outcome.Round{OpsPerSecond: 1000, P99: 1, AllocsPerOp: 100, BytesPerOp: 1000, StagesP50: make([]float64, len(outcome.Stages))})
		}
		return c
	}
	broken := func(c outcome.Cell, why string, mismatch bool) outcome.Cell {
		c.Verified, c.Error, c.Mismatch = false, why, mismatch
		return c
	}
	environment := outcome.Environment{OS: "linux/amd64", CPU: "one", Cores: 2, Rounds: 6, DurationS: 0.3, RedisVersion: "7.0.15", Bale: "v1", OthersCPU: &share,
		Notes:     []string{"3 values are there twice"},
		Libraries: []outcome.Library{{Name: "s2", Module: "example.com/compress", Version: "v1.0.0"}, {Name: "snappy", Module: "example.com/compress", Version: "v1.0.0"}, {Name: "json", Module: "encoding/json"}}}
	old := outcome.Run{Environment: environment, Cells: []outcome.Cell{cell("none"), cell("s2"), cell("lz4"), broken(cell("gzip"), "a time-out", false)}}
	environment.Notes, environment.OthersCPU = nil, nil
	environment.Libraries = []outcome.Library{{Name: "s2", Module: "example.com/compress", Version: "v1.1.0"}}
	now := outcome.Run{Environment: environment, Cells: []outcome.Cell{cell("none"), broken(cell("s2"), "a time-out,\nand more", false), broken(cell("lz4"), "MISMATCH", true), cell("gzip")}}
	dir := t.TempDir()
	var paths [2][2]string // of each run, each form
	for i, r := range []outcome.Run{old, now} {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var lines bytes.Buffer
		if err := compare.Write(&lines, compare.Of(&r)); err != nil {
			t.Fatal(err)
		}
		for form, b := range [][]byte{text, lines.Bytes()} {
			paths[i][form] = filepath.Join(dir, fmt.Sprint(i, form))
			if err := os.WriteFile(paths[i][form], b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for form := range 2 {
		var out, errs bytes.Buffer
		if code := app.Run(t.Context(), []string{"compare", paths[0][form], paths[1][form]}, strings.NewReader(""), &out, &errs); code != cli.ExitFailed || !strings.Contains(errs.String(), "2 cells FAILED that did not before") {
			t.Errorf("exit %d: %s", code, &errs)
		}
		text := strings.Join(strings.Fields(out.String()), " ")
		const name = "RoundTrip/data=profiles/track=dynamic/codec=json/compress="
		for _, want := range []string{
			"WARNING: the old run: BUSY MACHINE", "another version: example.com/compress was v1.0.0, now v1.1.0", "FAILED now, and not before: " + name + "s2/", ": could not be measured: a time-out, and more",
			"FAILED now, and not before: " + name + "lz4/", ": MISMATCH", "FAILED before, and right now: " + name + "gzip/", ", 2 FAILED; gate",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, &out)
			}
		}
		for _, none := range []string{"twice", "the new run:", "environment", "only in"} {
			if strings.Contains(text, none) {
				t.Errorf("%q in\n%s", none, &out)
			}
		}
	}
}

// TestOpenLoop: a rate that is no longer kept, and latencies of which only the least is known, are
// not passed over, whichever form the run comes in.
func TestOpenLoop(t *testing.T) {
	const rate = 50000
	open := func(ops float64, unstarted int64, p99 float64, bounded bool) *outcome.Run {
		c := outcome.Cell{
			Identity: outcome.Identity{Dataset: "profiles", Track: "dynamic", Codec: "json", Compress: "none", Client: "goredis", Concurrency: 8, Rate: rate},
			Values:   200, StoredBytes: 20000, OpsPerSecond: outcome.Estimate{Median: ops}, ValuesPerSecond: outcome.Estimate{Median: ops},
			Unstarted: unstarted, AtLeast: bounded, Verified: true,
		}
		for i := range 8 {
			by := 1 + float64(i)/1000
			c.Rounds = append(c.Rounds, outcome.Round{
				OpsPerSecond: ops * by, P99: p99 * by, AtLeast: bounded, AllocsPerOp: 100, BytesPerOp: 1000, StagesP50: make([]float64, len(outcome.Stages)),
			})
		}
		return &outcome.Run{Environment: outcome.Environment{OS: "linux/amd64", Rounds: 8, DurationS: 1}, Cells: []outcome.Cell{c}}
	}
	kept, collapsed := open(49900, 0, 2000, false), open(21000, 90000, 5.1e6, true)
	for _, test := range []struct {
		name     string
		old, new *outcome.Run
		gate     string
		code     int
		want     []string
	}{
		{"kept", kept, open(48000, 0, 2000, false), "", cli.ExitDone, []string{"of the gate, no cell has time", "0 REGRESSIONS, 0 better, 2 same, 0 UNMEASURABLE; gate"}},
		{"collapsed", kept, collapsed, "", cli.ExitFailed, []string{"FAILED now, and not before: RoundTrip/", "/rate=50000: does 21000 of 50000 operations a second, and left 90000 unstarted", ", 1 FAILED; gate"}},
		{"a little less than was asked for", kept, open(47000, 0, 2000, false), "", cli.ExitFailed, []string{"does 47000 of 50000 operations a second", ", 1 FAILED; gate"}},
		{"some left unstarted", kept, open(49900, 1, 2000, false), "", cli.ExitFailed, []string{"and left 1 unstarted"}},
		{"mended", collapsed, kept, "", cli.ExitDone, []string{"FAILED before, and right now: RoundTrip/", "does 21000 of 50000"}},
		{"a collapse as before", collapsed, collapsed, "p99=10%", cli.ExitDone, []string{"UNMEASURABLE: p99-sec/op: latencies of both runs are lower bounds", "≥5.", "0 same, 1 UNMEASURABLE"}},
		{"a worse collapse", collapsed, open(10000, 90000, 5.1e6, true), "", cli.ExitFailed, []string{"sec/op", "1 REGRESSION, 0 better, 2 same"}},
		{"P99 of a collapse", kept, collapsed, "p99=10%", cli.ExitFailed, []string{"1 REGRESSION", ", 1 FAILED"}},
		{"P99 like that of before, at least", kept, open(21000, 90000, 2000, true), "p99=10%", cli.ExitFailed, []string{"latencies of the new run are lower bounds"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			for form := range 2 {
				args := []string{"compare"}
				for side, r := range []*outcome.Run{test.old, test.new} {
					b, err := json.Marshal(r)
					if form == 1 {
						var lines bytes.Buffer
						err = compare.Write(&lines, compare.Of(r))
						b = lines.Bytes()
					}
					path := filepath.Join(dir, fmt.Sprint(form, side))
					if err := errors.Join(err, os.WriteFile(path, b, 0o600)); err != nil {
						t.Fatal(err)
					}
					args = append(args, path)
				}
				if test.gate != "" {
					args = append(args, "--gate", test.gate)
				}
				var out, errs bytes.Buffer
				if code := app.Run(t.Context(), args, strings.NewReader(""), &out, &errs); code != test.code {
					t.Errorf("exit %d, want %d: %s", code, test.code, &errs)
				}
				text := strings.Join(strings.Fields(out.String()), " ")
				for _, want := range test.want {
					if !strings.Contains(text, want) {
						t.Errorf("no %q in\n%s", want, &out)
					}
				}
			}
		})
	}
}

// TestLabRunIsComparable: what the bench writes goes through Go benchmark format and back.
func TestLabRunIsComparable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.json")
	var out, errs bytes.Buffer
	args := []string{"run", "--embedded", "--data", filepath.Join(clitest.Repository, "examples", "profiles.ndjson"), "--compress", "none,zstd:3", "--concurrency", "1,2", "--duration", "60ms", "--json", path}
	if code := app.Run(t.Context(), args, strings.NewReader(""), &out, &errs); code != cli.ExitDone {
		t.Fatalf("exit %d: %s", code, &errs)
	}
	result, err := outcome.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := compare.Of(result)
	var text bytes.Buffer
	if err := compare.Write(&text, r); err != nil {
		t.Fatal(err)
	}
	again, err := compare.Read(t.Context(), &text, "written")
	if err != nil {
		t.Fatal(err)
	}
	report, err := compare.Compare(t.Context(), r, again, compare.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	units := map[string]int{}
	for _, c := range report.Comparisons {
		units[c.Unit]++
		if math.Abs(c.Change) > 1e-9 || c.Verdict == compare.Regression || c.Verdict == compare.Better {
			t.Errorf("changed on the way: %+v", c)
		}
	}
	for _, unit := range []string{"sec/op", "allocs/op", "stored-B/value", "values/s"} {
		if units[unit] != 4 {
			t.Errorf("%d cells in %s, want 4", units[unit], unit)
		}
	}
	if len(report.OnlyOld)+len(report.OnlyNew)+len(report.Differences) > 0 {
		t.Errorf("not in both: %v, %v, %v", report.OnlyOld, report.OnlyNew, report.Differences)
	}
	if _, err := json.Marshal(report); err != nil {
		t.Error(err)
	}
}

// TestCompareIsInterrupted: Ctrl-C ends the reading, and is no misuse.
func TestCompareIsInterrupted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	clitest.OK(t, os.WriteFile(path, []byte("BenchmarkX 1 5 ns/op\n"), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := compare.Run(ctx, compare.Options{Old: path, New: path}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	var errs bytes.Buffer
	if code := app.Run(ctx, []string{"compare", path, path}, strings.NewReader(""), io.Discard, &errs); code != cli.ExitFailed || !strings.Contains(errs.String(), "interrupted") {
		t.Errorf("exit %d: %s", code, &errs)
	}
}
