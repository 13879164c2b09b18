package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/shirou/gopsutil/v4/process"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/internal/redisproc"
	"github.com/balekv/bale/testkit/promtest"
)

// ops is a file of the folder docs/ops.
func ops(path ...string) string {
	return filepath.Join(append([]string{clitest.Repository, "docs", "ops"}, path...)...)
}

// documentedInOps returns the arguments of a program's command in docs/ops/README.md, with pairs of
// words replaced.
func documentedInOps(t *testing.T, program string, replace ...string) []string {
	t.Helper()
	readme, err := os.ReadFile(ops("README.md"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^` + program + ` (-.*)$`).FindSubmatch(readme)
	if line == nil {
		t.Fatalf("docs/ops/README.md has no command of %s", program)
	}
	return strings.Fields(replaced(t, string(line[1]), replace...))
}

// replaced replaces texts that must be there, in pairs.
func replaced(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for pair := range slices.Chunk(pairs, 2) {
		if !strings.Contains(text, pair[0]) {
			t.Fatalf("there is no %q in %q", pair[0], text)
		}
		text = strings.ReplaceAll(text, pair[0], pair[1])
	}
	return text
}

// runningBench is a balebench run in a process of its own.
type runningBench struct {
	addr  string           // of its metrics
	redis *process.Process // its private server
	tmp   string           // its folder for what is temporary
	end   func() benchEnd  // interrupts it, once
}

type benchEnd struct {
	code           int
	stdout, stderr string
}

// startBench runs the bench of docs/ops/README.md.
func startBench(t *testing.T) *runningBench {
	t.Helper()
	b := &runningBench{tmp: t.TempDir()}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "balebench", append([]string{"run"}, documentedInOps(t, "balebench run", "--serve :8080", "--serve 127.0.0.1:0")...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+b.tmp)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second // then it is killed
	var stdout, said bytes.Buffer
	cmd.Stdout = &stdout
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b.end = sync.OnceValue(func() benchEnd {
		cancel()
		_, _ = said.ReadFrom(stderr) // until it ends
		_ = cmd.Wait()               // the code says it
		return benchEnd{cmd.ProcessState.ExitCode(), stdout.String(), said.String()}
	})
	t.Cleanup(func() {
		if end := b.end(); t.Failed() {
			t.Logf("the bench says:\n%s%s", end.stderr, end.stdout)
		}
	})
	const live = "the report, live: http://"
	for lines := bufio.NewScanner(io.TeeReader(stderr, &said)); b.addr == ""; {
		if !lines.Scan() {
			t.Fatal("the bench ended before it said where it is")
		}
		if _, addr, ok := strings.Cut(lines.Text(), live); ok {
			b.addr = strings.TrimSuffix(addr, "/")
		}
	}
	self, err := process.NewProcess(int32(cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	children, err := self.Children()
	if err != nil || len(children) != 1 {
		t.Fatalf("not one private server: %v, %v", children, err)
	}
	b.redis = children[0]
	return b
}

const (
	scrapeInterval = "500ms"
	rateInterval   = "4s" // what Grafana makes of $__rate_interval is at least four scrapes
)

// prometheusServer is a running prometheus.
type prometheusServer struct {
	*promtest.Server
	t *testing.T
}

// runPrometheus runs one until the test ends, by the command and the example of ops/, but in less
// time.
func runPrometheus(t *testing.T, target string) *prometheusServer {
	t.Helper()
	rules, err := filepath.Abs(ops("prometheus", "rules.yml"))
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile(ops("prometheus", "prometheus.yml"))
	if err != nil {
		t.Fatal(err)
	}
	// Nothing listens at port 1: this test does not cover the push.
	config := replaced(t, string(example), " 15s", " "+scrapeInterval, " 5s", " "+scrapeInterval, "rules.yml", strconv.Quote(rules),
		"'127.0.0.1:8080'", strconv.Quote(target), "'127.0.0.1:9091'", strconv.Quote("127.0.0.1:1"))
	return &prometheusServer{promtest.Start(t, config, func(file, data, addr string) []string {
		return documentedInOps(t, "prometheus", "docs/ops/prometheus/prometheus.yml", file, "/tmp/bale-metrics", data, "127.0.0.1:9090", addr)
	}), t}
}

// await calls f until it returns "".
func (p *prometheusServer) await(f func() string) {
	p.t.Helper()
	promtest.Await(p.t, func() error {
		if missing := f(); missing != "" {
			return errors.New(missing)
		}
		return nil
	})
}

// labels are the values of a label of what is selected.
func (p *prometheusServer) labels(label, selector string) (values []string, err error) {
	err = p.Get("label/"+label+"/values", url.Values{"match[]": {selector}}, &values)
	slices.Sort(values)
	return values, err
}

// sample is an element of a vector.
type sample struct {
	labels map[string]string
	value  float64
}

// query runs an instant query, and returns those of its results that are numbers.
func (p *prometheusServer) query(expr string) (samples []sample, err error) {
	var answer struct {
		ResultType string
		Result     []struct {
			Metric map[string]string
			Value  [2]any // time and value, the latter as text
		}
	}
	if err := p.Get("query", url.Values{"query": {expr}}, &answer); err != nil {
		return nil, err
	}
	if answer.ResultType != "vector" {
		return nil, fmt.Errorf("%s: is a %s", expr, answer.ResultType)
	}
	for _, s := range answer.Result {
		if v, err := strconv.ParseFloat(fmt.Sprint(s.Value[1]), 64); err == nil && !math.IsNaN(v) && !math.IsInf(v, 0) {
			samples = append(samples, sample{s.Metric, v})
		}
	}
	return samples, nil
}

// substitute puts values in the place of variables, as Grafana does in a regular expression in a
// string. No group is all of them.
func substitute(expr, job, instance, group string) string {
	quote := func(value string) string {
		return "(" + strings.ReplaceAll(regexp.QuoteMeta(value), `\`, `\\`) + ")"
	}
	if group == "" {
		group = ".*"
	} else {
		group = quote(group)
	}
	return strings.NewReplacer("$__rate_interval", rateInterval, "$job", quote(job), "$instance", quote(instance), "$group", group).Replace(expr)
}

// opsDashboard is what is asked of the dashboard's file here.
type opsDashboard struct {
	Panels []struct {
		Title   string
		Targets []struct{ RefID, Expr string }
	}
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
}

// TestOperations runs the bench and the prometheus of docs/ops/README.md. Each panel of the
// dashboard and each recording rule has data, and the dashboard's variables select. An interrupted
// bench leaves nothing behind.
func TestOperations(t *testing.T) {
	promtest.Require(t)
	redisproc.ForTest(t) // skips where there is no server
	var d opsDashboard
	text, err := os.ReadFile(ops("grafana", "bale.json"))
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	const (
		job      = "bale-bench"
		plain    = "profiles/typed/json/none"
		withDict = "profiles/typed/json/zstd:3+dict"
	)
	bench := startBench(t)
	p := runPrometheus(t, bench.addr)
	p.await(func() string {
		groups, err := p.labels("group", `{job="`+job+`"}`)
		if err != nil {
			return err.Error()
		}
		return cmp.Diff([]string{plain, withDict}, groups)
	})

	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`).FindStringSubmatch(v.Definition)
		if m == nil {
			t.Errorf("variable %s: %q", v.Name, v.Definition)
			continue
		}
		got, err := p.labels(m[2], substitute(m[1], job, bench.addr, ""))
		want := map[string][]string{"job": {job}, "instance": {bench.addr}, "group": {plain, withDict}}[v.Name]
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("variable %s (-want +got): %v\n%s", v.Name, err, diff)
		}
	}

	p.hasData(bench.addr, p.queries(&d, job, bench.addr, withDict))
	p.hasNone(&d, job, bench.addr)

	// A result needs a whole round.
	p.await(func() string {
		if found, err := p.query("bale_lab_round > 1"); err != nil || len(found) == 0 {
			return fmt.Sprint("no second round: ", err)
		}
		return ""
	})
	end := bench.end()
	if end.code != cli.ExitFailed || !strings.Contains(end.stderr, "balebench run: interrupted\n") || !strings.Contains(end.stdout, "INTERRUPTED: these are figures of") {
		t.Errorf("exit %d, want %d, and the figures so far", end.code, cli.ExitFailed)
	}
	if running, err := bench.redis.IsRunning(); running || err != nil {
		t.Errorf("its redis-server, process %d, runs on: %v", bench.redis.Pid, err)
	}
	if left := clitest.Entries(t, bench.tmp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// query is one that has to have data.
type query struct {
	expr   string
	group  string  // the only one that it may have; empty for any
	bounds *bounds // of every value; nil for none
}

type bounds struct{ least, most float64 }

// queries are those of the panels, for all groups and for one, and of the recording rules, by name.
func (p *prometheusServer) queries(d *opsDashboard, job, instance, group string) map[string]query {
	p.t.Helper()
	queries, bounded := map[string]query{}, map[string]bool{}
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			if strings.Contains(target.Expr, "bale_near_") { // a bench has no near cache: TestNearPanels of package prom
				continue
			}
			name := fmt.Sprintf("%s, %s", panel.Title, target.RefID)
			queries[name] = query{expr: substitute(target.Expr, job, instance, "")}
			q := query{substitute(target.Expr, job, instance, group), group, nil}
			if b, ok := plausible[panel.Title]; ok {
				q.bounds = &b
				bounded[panel.Title] = true
			}
			queries[name+" of "+group] = q
		}
	}
	if len(queries) < 50 || len(bounded) != len(plausible) {
		p.t.Errorf("only %d queries of panels, and bounds of %v", len(queries), bounded)
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Type, Name, Health, LastError string }
		}
	}
	p.await(func() string {
		if err := p.Get("rules", nil, &rules); err != nil {
			return err.Error()
		}
		for _, g := range rules.Groups {
			for _, r := range g.Rules {
				if r.Health != "ok" {
					return fmt.Sprintf("rule %s is %s: %s", r.Name, r.Health, r.LastError)
				}
			}
		}
		return ""
	})
	recorded := 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if r.Type == "recording" {
				recorded++
				queries["rule "+r.Name] = query{expr: fmt.Sprintf("%s{job=%q}", r.Name, job)}
			}
		}
	}
	if recorded < 15 {
		p.t.Errorf("only %d recording rules", recorded)
	}
	return queries
}

// plausible are the bounds of what panels show of the group with a dictionary: of the bench nine
// GETs of ten hit, and sixteen callers share two connections.
var plausible = map[string]bounds{
	"Operations": {1, 1e9}, "Throughput": {1, 1e9}, "Hit rate": {0.8, 0.99}, "Errors": {0, 0}, "Errors by class": {0, 0},
	"Compression ratio": {2, 20}, "Ratio against training": {2, 20}, "Worst dictionary": {0.5, 1.5}, "Age of the dictionary": {0, 600},
	"P99 of reads from Redis": {1e-6, 60}, "Callers that wait for a connection": {0.1, 16}, "Fresh buffers an operation": {0, 1},
}

// hasData waits for data of every query, within its bounds: a rate of few operations may be beyond.
func (p *prometheusServer) hasData(instance string, queries map[string]query) {
	p.t.Helper()
	p.await(func() string {
		var missing []string
		for name, q := range queries {
			found, err := p.query(q.expr)
			if err != nil {
				p.t.Fatalf("%s: %v", name, err)
			}
			for _, s := range found {
				if got, ok := s.labels["instance"]; ok && got != instance {
					p.t.Errorf("%s: instance %s", name, got)
				}
				if got, ok := s.labels["group"]; ok && q.group != "" && got != q.group {
					p.t.Errorf("%s: group %s", name, got)
				}
			}
			beyond := func(s sample) bool { return q.bounds != nil && (s.value < q.bounds.least || s.value > q.bounds.most) }
			switch i := slices.IndexFunc(found, beyond); {
			case i >= 0:
				missing = append(missing, fmt.Sprintf("%s: %v is not in %v", name, found[i], *q.bounds))
			case len(found) > 0:
				delete(queries, name)
			default:
				missing = append(missing, name+": nothing")
			}
		}
		return strings.Join(missing, "\n")
	})
}

// hasNone looks at each panel with values of the variables that nothing has.
func (p *prometheusServer) hasNone(d *opsDashboard, job, instance string) {
	p.t.Helper()
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			exprs := []string{substitute(target.Expr, job, "nobody", ""), substitute(target.Expr, "nobody", instance, "")}
			if strings.Contains(target.Expr, "$group") {
				exprs = append(exprs, substitute(target.Expr, job, instance, "nobody"))
			}
			for _, expr := range exprs {
				if found, err := p.query(expr); err != nil || len(found) > 0 {
					p.t.Errorf("panel %q: %s: %v, %v", panel.Title, expr, found, err)
				}
			}
		}
	}
}
