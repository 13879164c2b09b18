package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/cmd/internal/flame"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/internal/redisproc"
)

// hostileRun runs a command, and checks all it says.
func hostileRun(t *testing.T, mentions bool, args ...string) {
	t.Helper()
	clitest.HostileRun(t, app, mentions, "", args...)
}

// TestHostile feeds every command with hostile values, names, results and answers, and looks at
// every byte that it prints.
func TestHostile(t *testing.T) {
	url, dir := redisproc.ForTest(t).URL(), t.TempDir()
	file, hostileFile := clitest.HostileFiles(t, dir)
	values := bytes.Buffer{}
	for i := range 400 {
		v := clitest.HostileValue(t, i)
		values.Write(append(v, '\n'))
	}
	data := hostileFile(".ndjson", values.Bytes())

	hostileRun(t, true, clitest.HostileText)
	hostileRun(t, true, "run", "--codec", clitest.HostileText)
	hostileRun(t, true, "study", clitest.HostileText)
	hostileRun(t, true, "ab", clitest.HostileText, clitest.HostileText)
	hostileRun(t, true, "run", "--redis", clitest.HostileServer(t))

	results, html := filepath.Join(dir, "results.json"), filepath.Join(dir, "bench.html")
	bench := []string{"run", "--redis", url, "--data", data, "--compress", "none,zstd", "--concurrency", "1", "--duration", "20ms", "--repeat", "2", "--values", "40"}
	hostileRun(t, true, append(slices.Clone(bench), "--json", results, "--html", html)...)
	text, err := os.ReadFile(results)
	if err != nil {
		t.Fatal(err)
	}
	clitest.CheckShown(t, "the JSON of balebench run", string(text))
	clitest.CheckShown(t, "the page of balebench run", clitest.ReadPage(t, html))
	var run, other outcome.Run
	if json.Unmarshal(text, &run) != nil || json.Unmarshal(text, &other) != nil {
		t.Fatal("the JSON of balebench run is none")
	}
	for i, r := range []*outcome.Run{&run, &other} {
		r.Skipped = []outcome.Skipped{{}}
		r.Dictionaries = []outcome.Dictionary{{}, {Payload: 1}}
		r.Environment.Libraries = []outcome.Library{{}}
		r.Environment.Notes = []string{"", ""}
		r.Findings = []outcome.Finding{{Claims: []string{"", ""}, Columns: []string{"", ""}, Rows: [][]outcome.Figure{{{}, {}}}}}
		r.Cells = append(r.Cells, r.Cells[0])
		r.Cells[len(r.Cells)-1].Verified = false
		poison(reflect.ValueOf(r).Elem(), clitest.HostileText+strconv.Itoa(i))
		r.Cells[0].Error = ""
		r.Cells[0].Stages[clitest.HostileText] = outcome.Stage{P50: 1}
		r.Cells[0].Profiles = map[string]outcome.Profile{clitest.HostileText: {File: clitest.HostileText, Shares: map[string]float64{clitest.HostileText: 1},
			Tree: &flame.Tree{Unit: "bytes", Total: 9, Nodes: []flame.Node{{Name: "all", Value: 9}, {Name: clitest.HostileText, Depth: 1, Value: 9}}}}}
		r.Timeline = []outcome.Moment{{Doing: clitest.HostileText}, {AtS: 1, Doing: clitest.HostileText}}
	}
	write := func(name string, r *outcome.Run) string {
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return file(name, b)
	}
	old, now := write("old.json", &run), write("new.json", &other)
	hostileRun(t, true, "compare", "--all", old, now)
	hostileRun(t, true, "compare", old, now)
	hostileRun(t, true, "compare", "--json", "-", old, now)
	hostileRun(t, true, "compare", hostileFile("old", []byte("cpu: \u202e\x1b\nBenchmarkX/\u202e\x1b[2J 1 100 ns/op\n")), hostileFile("new", []byte("BenchmarkX/\u202e\x1b[2J 1 100 ns/op 5 \u202e/op\n")))
	hostileRun(t, true, append(slices.Clone(bench), "--baseline", old, "--html", html)...)
	clitest.CheckShown(t, "the page of balebench run with a baseline", clitest.ReadPage(t, html))
	ab := file("ab.txt", []byte("goos: \u202e\x1b\r\nBenchmarkX/\u202e\x1b[2J 1 100 ns/op 5 \u202e/op\n"))
	hostileRun(t, true, "ab", "--blocks", "1", "--all", "cat "+ab, "cat "+ab)
	hostileRun(t, true, "ab", "--blocks", "1", "grep -r . "+ab+" /nothing/\u202e", "false")
	hostileRun(t, true, append(slices.Clone(bench), "--go-bench", "-")...)
	for _, findings := range []bool{true, false} {
		if !findings {
			run.Findings = nil
		}
		var table, pages bytes.Buffer
		run.WriteText(page.NewSheet(&table, 0), outcome.TextOptions{Stages: true})
		clitest.CheckShown(t, "the tables of a run", table.String())
		if err := run.WritePage(&pages, outcome.PageOptions{Baseline: &other}); err != nil {
			t.Fatal(err)
		}
		clitest.CheckShown(t, "the page of a run", strings.ReplaceAll(pages.String(), "\u00a0", " "))
	}
}

// poison adds a text to every string in a value, but to names that code knows.
func poison(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + text)
	case reflect.Pointer:
		if !v.IsNil() {
			poison(v.Elem(), text)
		}
	case reflect.Slice:
		for i := range v.Len() {
			poison(v.Index(i), text)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				poison(v.Field(i), text)
			}
		}
	}
}
