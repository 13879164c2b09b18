package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/balekv/bale/cmd/bale/internal/compare"
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
		{[]string{old, old}, exitDone}, {[]string{slower, old}, exitDone}, {[]string{old, noisy}, exitDone}, {[]string{other, old}, exitUsage},
		{[]string{old, slower}, exitFailed}, {[]string{old, failed}, exitFailed}, {[]string{old, slower, "--json", "-"}, exitFailed},
		{[]string{old, filepath.Join(dir, "none")}, exitUsage}, {[]string{old, damaged}, exitUsage}, {[]string{old, old, "--gate", "time"}, exitUsage},
		{[]string{old, old, "--gate", "p99=10%"}, exitUsage}, {[]string{old}, exitUsage}, {[]string{old, dir}, exitUsage},
	} {
		var out, errs bytes.Buffer
		if got := run(t.Context(), append([]string{"compare"}, test.args...), strings.NewReader(""), &out, &errs); got != test.want {
			t.Errorf("bale compare %v: exit %d, want %d: %s", test.args, got, test.want, &errs)
		}
		if (errs.Len() > 0) != (test.want != exitDone) || strings.Count(errs.String(), "\n") > 1 || (test.want == exitUsage) != (out.Len() == 0) {
			t.Errorf("bale compare %v: stdout %q, stderr %q", test.args, &out, &errs)
		}
	}
}

// TestLabRunIsComparable: what the bench writes goes through Go benchmark format and back.
func TestLabRunIsComparable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.json")
	var out, errs bytes.Buffer
	args := []string{"bench", "--embedded", "--data", filepath.Join(repository, "examples", "profiles.ndjson"), "--compress", "none,zstd:3/go", "--concurrency", "1,2", "--duration", "60ms", "--json", path}
	if code := run(t.Context(), args, strings.NewReader(""), &out, &errs); code != exitDone {
		t.Fatalf("exit %d: %s", code, &errs)
	}
	r, err := readRun(path, &streams{})
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := compare.Write(&text, r); err != nil {
		t.Fatal(err)
	}
	again, err := compare.Read(&text, "written")
	if err != nil {
		t.Fatal(err)
	}
	report, err := compare.Compare(r, again, compare.Options{})
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
