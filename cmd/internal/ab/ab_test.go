//go:build unix

package ab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/compare"
)

// script writes a shell script and gives its path.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "command")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestArgv(t *testing.T) {
	for _, test := range []struct {
		command string
		want    []string
	}{
		{"  ./old.test  -test.bench=. -test.count=3 ", []string{"./old.test", "-test.bench=.", "-test.count=3"}},
		{"./old.test -test.run '^$'", []string{"sh", "-c", "./old.test -test.run '^$'"}},
		{"a | b", []string{"sh", "-c", "a | b"}},
		{"GOGC=off ./old.test", []string{"sh", "-c", "GOGC=off ./old.test"}},
		{"cat *", []string{"sh", "-c", "cat *"}},
	} {
		got, err := argv(test.command)
		if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
			t.Errorf("%q: %v %s", test.command, err, diff)
		}
	}
	if _, err := argv(" "); err == nil {
		t.Error("an empty command")
	}
}

// TestOrder: every block is ABBA or BAAB, both come, and the seed decides.
func TestOrder(t *testing.T) {
	order := func(seed uint64) string {
		log := filepath.Join(t.TempDir(), "log")
		a := script(t, "printf A >> "+log+"\necho BenchmarkX 1 10 ns/op\n")
		b := script(t, "printf B >> "+log+"\necho BenchmarkX 1 10 ns/op\n")
		var steps []int
		r, err := Run(t.Context(), Options{A: a, B: b, Blocks: 8, Seed: seed, Progress: func(done, total int, what string) {
			if total != 34 || what == "" {
				t.Errorf("%d of %d: %s", done, total, what)
			}
			steps = append(steps, done)
		}})
		if err != nil {
			t.Fatal(err)
		}
		if len(steps) != 34 || steps[33] != 33 || r.Blocks != 8 || len(r.first[0].Series[0].Values) != 16 || r.Report.Same != 1 || r.Again != nil {
			t.Errorf("%v, %+v", steps, r)
		}
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first := order(1)
	if !strings.HasPrefix(first, "AB") || len(first) != 34 {
		t.Fatal(first)
	}
	kinds := map[string]int{}
	for i := 2; i < len(first); i += 4 {
		kinds[first[i:i+4]]++
	}
	if kinds["ABBA"] == 0 || kinds["BAAB"] == 0 || kinds["ABBA"]+kinds["BAAB"] != 8 {
		t.Errorf("%v", kinds)
	}
	if order(1) != first || order(2) == first {
		t.Error("the order is not the seed's")
	}
}

// TestDefaultBlocks: there are twenty, which are enough for 60 comparisons.
func TestDefaultBlocks(t *testing.T) {
	var lines strings.Builder
	for i := range 60 {
		fmt.Fprintf(&lines, "BenchmarkX/%d 1 10 ns/op\n", i)
	}
	path := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	many := "cat " + path
	r, err := Run(t.Context(), Options{A: many, B: many})
	if err != nil {
		t.Fatal(err)
	}
	if r.Blocks != DefaultBlocks || r.Report.Family != 60 || r.Report.Same != 60 {
		t.Errorf("%d blocks, %+v", r.Blocks, r.Report)
	}
}

// TestLines: of several lines of one benchmark the median counts, and an allocation more is exact.
func TestLines(t *testing.T) {
	a := script(t, "for v in 10 11 900; do echo BenchmarkX 1 $v ns/op 3 allocs/op; done; echo BenchmarkOld 1 1 ns/op\n")
	b := script(t, "for v in 1 11 12; do echo BenchmarkX 1 $v ns/op 4 allocs/op; done; echo BenchmarkNew 1 1 ns/op\n")
	r, err := Run(t.Context(), Options{A: a, B: b, Blocks: 5})
	if err != nil {
		t.Fatal(err)
	}
	if v := r.first[1].Series[0].Values[9]; math.Abs(v-11e-9) > 1e-15 {
		t.Errorf("%v", v)
	}
	if r.Report.Regressions != 1 || r.Report.Comparisons[1].Verdict != compare.Regression || !r.Report.Comparisons[1].Exact || r.Again == nil {
		t.Errorf("%+v", r.Report)
	}
	if diff := cmp.Diff([][]string{{"Old"}, {"New"}}, [][]string{r.Report.OnlyOld, r.Report.OnlyNew}); diff != "" {
		t.Error(diff)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}

// TestConfirmed: what was slower for a while only is no regression; without confirming it is.
func TestConfirmed(t *testing.T) {
	once := func(noConfirm bool) *Result {
		counter := filepath.Join(t.TempDir(), "calls")
		a := script(t, "echo BenchmarkX 1 10 ns/op")
		// Warmed up once, then 12 runs that count.
		b := script(t, "echo x >> "+counter+"\nif [ $(wc -l < "+counter+") -gt 13 ]; then echo BenchmarkX 1 10 ns/op; else echo BenchmarkX 1 20 ns/op; fi")
		r, err := Run(t.Context(), Options{A: a, B: b, Blocks: 6, NoConfirm: noConfirm})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := once(false); r.Report.Regressions != 0 || r.Report.Unmeasurable != 1 || r.Again == nil || !strings.Contains(r.Report.Comparisons[0].Reason, "measured again") {
		t.Errorf("%+v", r.Report)
	}
	if r := once(true); r.Report.Regressions != 1 || r.Again != nil {
		t.Errorf("%+v", r.Report)
	}
}

// TestProcess: where a command prints no benchmark, the process itself is measured.
func TestProcess(t *testing.T) {
	r, err := Run(t.Context(), Options{A: "true", B: "true", Blocks: 5})
	if err != nil {
		t.Fatal(err)
	}
	var units []string
	for _, c := range r.Report.Comparisons {
		units = append(units, c.Unit)
		if c.Old.Median < 0 || c.Unit == "peak-RSS-bytes" && c.Old.Median < 4096 || c.Unit == "sec/op" && c.Old.Median == 0 {
			t.Errorf("%+v", c)
		}
	}
	if diff := cmp.Diff([]string{"sec/op", "user+sys-sec/op", "peak-RSS-bytes"}, units); diff != "" {
		t.Error(diff)
	}
}

func TestErrors(t *testing.T) {
	good := "echo BenchmarkX 1 10 ns/op"
	counter := filepath.Join(t.TempDir(), "calls")
	later := "echo x >> " + counter + "\nif [ $(wc -l < " + counter + ") -gt 3 ]; then %s; else echo BenchmarkX 1 10 ns/op; fi"
	for _, test := range []struct {
		name, a, b string
		want       string
		is         error
	}{
		{"not found", "/nonexistent/command", "true", "A (/nonexistent/command), warm-up: fork/exec /nonexistent/command: no such file", ErrCommand},
		{"empty", "true", "", "B (), warm-up: an empty command", ErrCommand},
		{"failing", script(t, good), script(t, "echo out of luck >&2; exit 3"), "warm-up: exit status 3; its last words: out of luck", ErrCommand},
		{"failing test", script(t, good), script(t, "echo '--- FAIL: BenchmarkX'; exit 1"), "exit status 1; its last words: --- FAIL: BenchmarkX", ErrCommand},
		{"killed", script(t, "kill -KILL $$"), "true", "signal: killed", ErrCommand},
		{"malformed", script(t, "echo BenchmarkX ten ns/op"), script(t, good), "A:1: parsing iteration count", ErrCommand},
		{"different kinds", script(t, good), "true", "A prints benchmarks and B does not", ErrCommand},
		{"nothing in common", script(t, good), script(t, "echo BenchmarkY 1 10 ns/op"), "no cell in common: X in the old one, Y in the new one", compare.ErrIncomparable},
		{"not in every run", script(t, good), script(t, strings.Replace(later, "%s", "echo BenchmarkY 1 10 ns/op", 1)), "B printed X in sec/op when it was warmed up, but not in block 2", ErrCommand},
		{"none in some run", script(t, good), script(t, strings.Replace(strings.ReplaceAll(later, counter, counter+"2"), "%s", "true", 1)), "B printed no benchmarks in block 2, but did before", ErrCommand},
		{"too much", script(t, "yes"), "true", "it printed more than 64 MiB", ErrCommand},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := Run(t.Context(), Options{A: test.a, B: test.b, Blocks: 3})
			if !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.want) || r != nil {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
	if _, err := Run(t.Context(), Options{A: "true", B: "true", Blocks: maxBlocks + 1}); !errors.Is(err, cli.ErrUsage) {
		t.Error(err)
	}
	if _, err := Run(t.Context(), Options{A: "sleep 60", B: "true", Timeout: 50 * time.Millisecond}); !errors.Is(err, ErrCommand) || !strings.Contains(err.Error(), "longer than 50ms") {
		t.Error(err)
	}
}

// TestInterrupt: the children of a command end with it, and the earlier measurements are kept.
func TestInterrupt(t *testing.T) {
	dir := t.TempDir()
	pids, calls := filepath.Join(dir, "pids"), filepath.Join(dir, "calls")
	a := script(t, "echo BenchmarkX 1 10 ns/op")
	// Of its fourth call, two blocks in, a child in the background and one that does not listen to
	// signals.
	b := script(t, "echo x >> "+calls+"\nif [ $(wc -l < "+calls+") -lt 6 ]; then echo BenchmarkX 1 10 ns/op; exit; fi\n"+
		"sleep 60 &\necho $! >> "+pids+"\ntrap '' TERM\necho $$ >> "+pids+"\necho done >> "+pids+"\nsleep 60\nsleep 60\n")
	ctx, cancel := context.WithCancel(t.Context())
	type outcome struct {
		r   *Result
		err error
	}
	result := make(chan outcome)
	go func() {
		r, err := Run(ctx, Options{A: a, B: b, Blocks: 10})
		result <- outcome{r, err}
	}()
	var started []string
	for len(started) < 3 {
		text, err := os.ReadFile(pids)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		started = strings.Fields(string(text))
		time.Sleep(time.Millisecond)
	}
	cancel()
	o := <-result
	if !errors.Is(o.err, context.Canceled) || o.r == nil || !o.r.Interrupted || o.r.Blocks != 2 || len(o.r.Report.Comparisons) != 1 {
		t.Fatalf("%v, %+v", o.err, o.r)
	}
	for _, pid := range started[:2] {
		n, err := strconv.Atoi(pid)
		if err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(10 * time.Second); alive(n); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("process %d is still there", n)
			}
		}
	}
	// Before there is anything to tell, there is only the error.
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if r, err := Run(ctx, Options{A: a, B: a}); !errors.Is(err, context.Canceled) || r != nil {
		t.Errorf("%v, %+v", err, r)
	}
}

// alive reports whether a process runs. A killed process that nobody has waited for yet does not
// run.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || !strings.Contains(string(stat), ") Z ")
}
