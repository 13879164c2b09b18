package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/goredis"
	"github.com/balekv/bale/observe/prom"
	"github.com/balekv/bale/redisproc"
)

// requireEnv names the variable that, when not empty, makes a test without a prometheus fail instead of skip.
const requireEnv = "BALE_REQUIRE_PROMETHEUS"

// lookPath finds a program of Debian's package prometheus.
func lookPath(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		if os.Getenv(requireEnv) != "" {
			t.Fatal(err)
		}
		t.Skipf("no %s in PATH (Debian: apt-get install prometheus)", program)
	}
	return path
}

// TestRules: promtool has nothing against the rules and the example, and each alert fires in one of the rules' own tests.
func TestRules(t *testing.T) {
	promtool := lookPath(t, "promtool")
	for _, args := range [][]string{{"check", "rules", rulesFile}, {"check", "config", configFile}, {"test", "rules", rulesTests}} {
		out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("SUCCESS")) {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	tests, err := os.ReadFile(rulesTests)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range alerts(t) {
		fires := regexp.MustCompile(fmt.Sprintf(`(?s)alertname="%s", alertstate="firing"|alertname: %[1]s\s+exp_alerts:\s+- `, name))
		if !fires.Match(tests) {
			t.Errorf("there is no test in which %s fires", name)
		}
	}
}

// program runs something that uses bale until the test ends, and returns where its metrics are, and the names of its groups: any of them may
// stand in for it that shows metrics by observe/prom, has at least two groups, one of them with a dictionary, and a client with a pool.
func program(t *testing.T) (addr string, groups []string) {
	t.Helper()
	server := redisproc.ForTest(t)
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	m := newMetrics(t)
	s := start(t, Options{Metrics: m, Page: write("page")})

	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 2}) // fewer than there are callers
	t.Cleanup(func() { rdb.Close() })
	m.Pool("goredis", func() prom.PoolStats {
		s := rdb.PoolStats()
		return prom.PoolStats{Waits: uint64(s.WaitCount), Waited: time.Duration(s.WaitDurationNs), Timeouts: uint64(s.Timeouts),
			Open: int(s.TotalConns), Idle: int(s.IdleConns)}
	})
	registry, err := dict.NewRegistry(goredis.NewDictStore(rdb), dict.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const what = `{"id":%d,"name":"Ada Lovelace","bio":"Wrote the first program, for a machine that was never built.","tags":["mathematics","engines"]}`
	d, err := dict.New([]byte(strings.Repeat(what, 20)))
	if err != nil {
		t.Fatal(err)
	}
	groups = []string{"profiles/json/zstd:3+dict", "profiles/json/none"}
	for i, name := range groups {
		var o bale.PackerOptions
		if i == 0 {
			if err := registry.Publish(ctx, name, d, dict.Info{Ratio: 3}); err != nil {
				t.Fatal(err)
			}
			if err := registry.Activate(ctx, name, d.ID(), true); err != nil {
				t.Fatal(err)
			}
			group, err := registry.Open(ctx, name, dict.GroupOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { group.Close() })
			m.collector.Dictionary(name, group.Status)
			o.Dictionaries = group
		}
		packer, err := bale.NewPacker(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { packer.Close() })
		cache, err := bale.New(goredis.NewStore(rdb), bale.Options[json.RawMessage]{Packer: packer, Recorder: m.Recorder(name)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cache.Close() })
		for caller := range 4 {
			callers.Go(func() {
				for n := caller; ctx.Err() == nil; n++ {
					key := fmt.Sprintf("bale:test:%d:%d", i, n%100)
					_ = cache.Set(ctx, key, json.RawMessage(fmt.Appendf(nil, what, n)), bale.Expiry{}) // what fails is in the metrics
					_, _ = cache.Get(ctx, key)
					_, _ = cache.GetMany(ctx, key, "bale:test:missing")
					if n%100 == 0 {
						runtime.GC()
					}
					time.Sleep(2 * time.Millisecond) // there are other tests
				}
			})
		}
	}
	t.Cleanup(func() { // first of all
		cancel()
		callers.Wait()
	})
	return strings.TrimSuffix(strings.TrimPrefix(s.URL(), "http://"), "/"), groups
}

const (
	scrapeInterval = "500ms"
	rateInterval   = "4s" // what Grafana makes of $__rate_interval is at least four scrapes
)

// prometheusServer is a running prometheus.
type prometheusServer struct {
	t      *testing.T
	url    string
	client *http.Client
}

// runPrometheus runs one with the rules until the test ends.
func runPrometheus(t *testing.T, target string) *prometheusServer {
	t.Helper()
	path := lookPath(t, "prometheus")
	rules, err := filepath.Abs(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := fmt.Sprintf(`
global: {scrape_interval: %s, scrape_timeout: %[1]s, evaluation_interval: %[1]s}
rule_files: [%q]
scrape_configs:
  - job_name: bale-bench
    static_configs:
      - targets: [%q]
`, scrapeInterval, rules, target)
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr, "--log.level=warn")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second // then it is killed
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &prometheusServer{t, "http://" + addr, &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(func() {
		cancel()
		if err := cmd.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("prometheus: %v\n%s", err, log.Bytes())
		}
		if t.Failed() {
			t.Logf("prometheus says:\n%s", log.Bytes())
		}
		p.client.CloseIdleConnections()
	})
	return p
}

// await calls f until it says nothing more, for two minutes at most.
func (p *prometheusServer) await(f func() string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 2*time.Minute)
	defer cancel()
	for {
		missing := f()
		if missing == "" {
			return
		}
		select {
		case <-ctx.Done():
			p.t.Fatalf("after two minutes: %s", missing)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// get asks the API, and decodes its answer into data.
func (p *prometheusServer) get(path string, values url.Values, data any) error {
	reply, err := p.client.Get(p.url + "/api/v1/" + path + "?" + values.Encode())
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		return err
	}
	answer := struct {
		Status string
		Data   any
	}{Data: data}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Status != "success" {
		return fmt.Errorf("%s %v: %s: %.1000s", path, values, reply.Status, body)
	}
	return nil
}

// sample is an element of a vector.
type sample struct {
	Metric map[string]string
	Value  [2]any // time and value, the latter as text
}

// query runs an instant query, and returns those of its results that are numbers.
func (p *prometheusServer) query(expr string) ([]sample, error) {
	var answer struct {
		ResultType string
		Result     []sample
	}
	if err := p.get("query", url.Values{"query": {expr}}, &answer); err != nil {
		return nil, err
	}
	if answer.ResultType != "vector" {
		return nil, fmt.Errorf("%s: is a %s", expr, answer.ResultType)
	}
	return slices.DeleteFunc(answer.Result, func(s sample) bool {
		v, err := strconv.ParseFloat(fmt.Sprint(s.Value[1]), 64)
		return err != nil || math.IsNaN(v) || math.IsInf(v, 0)
	}), nil
}

// substitute puts values in the place of variables, as Grafana does in a regular expression in a string. No groups are all of them.
func substitute(expr, job, instance string, groups ...string) string {
	quote := func(values ...string) string {
		for i, v := range values {
			values[i] = strings.ReplaceAll(regexp.QuoteMeta(v), `\`, `\\`)
		}
		return "(" + strings.Join(values, "|") + ")"
	}
	group := ".*"
	if len(groups) > 0 {
		group = quote(groups...)
	}
	return strings.NewReplacer("$__rate_interval", rateInterval, "$job", quote(job), "$instance", quote(instance), "$group", group).Replace(expr)
}

// TestOperations: each panel of the dashboard and each recording rule has data, of a program that runs, by a prometheus that scrapes it;
// and the dashboard's variables select.
func TestOperations(t *testing.T) {
	lookPath(t, "prometheus") // before a program is started for it
	addr, groups := program(t)
	p := runPrometheus(t, addr)
	p.await(func() string {
		scrapes, err := p.query(fmt.Sprintf("count_over_time(up{job=\"bale-bench\",instance=%q}[5m]) > 2", addr))
		if err != nil || len(scrapes) == 0 {
			return fmt.Sprint("no scrapes: ", err)
		}
		return ""
	})
	d := readDashboard(t)

	// Which metrics have a group.
	var series []map[string]string
	if err := p.get("series", url.Values{"match[]": {`{job="bale-bench"}`}}, &series); err != nil {
		t.Fatal(err)
	}
	grouped := map[string]bool{}
	for _, s := range series {
		if s["group"] != "" {
			grouped[s["__name__"]] = true
		}
	}

	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`).FindStringSubmatch(v.Definition)
		if m == nil {
			t.Errorf("variable %s: %q", v.Name, v.Definition)
			continue
		}
		var got []string
		if err := p.get("label/"+m[2]+"/values", url.Values{"match[]": {substitute(m[1], "bale-bench", addr)}}, &got); err != nil {
			t.Error(err)
		}
		want := map[string][]string{"job": {"bale-bench"}, "instance": {addr}, "group": slices.Sorted(slices.Values(groups))}[v.Name]
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("variable %s (-want +got):\n%s", v.Name, diff)
		}
	}

	waiting := map[string]string{} // query by name
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			name := fmt.Sprintf("panel %q, %s", panel.Title, target.RefID)
			waiting[name] = substitute(target.Expr, "bale-bench", addr)
			selects(t, name, target.Expr, grouped)
		}
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Type, Name, Query, Health, LastError string }
		}
	}
	p.await(func() string {
		if err := p.get("rules", nil, &rules); err != nil {
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
				waiting["rule "+r.Name] = r.Name
			}
		}
	}
	if len(waiting) < 30 || recorded < 15 {
		t.Errorf("only %d queries, %d of recording rules", len(waiting), recorded)
	}

	results := map[string][]sample{}
	p.await(func() string {
		for name, expr := range waiting {
			found, err := p.query(expr)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if len(found) > 0 {
				results[name] = found
				delete(waiting, name)
			}
		}
		if len(waiting) == 0 {
			return ""
		}
		return fmt.Sprintf("no data for %v", waiting)
	})
	for name, found := range results {
		for _, s := range found {
			if instance, ok := s.Metric["instance"]; ok && instance != addr {
				t.Errorf("%s: instance %s", name, instance)
			}
			if group, ok := s.Metric["group"]; ok && !slices.Contains(groups, group) {
				t.Errorf("%s: group %s", name, group)
			}
		}
	}

	// With one group chosen there is no other; with none that exists, nothing.
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			name := fmt.Sprintf("panel %q, %s", panel.Title, target.RefID)
			for _, test := range []struct {
				what, expr string
				some       bool
			}{
				{"of the first group", substitute(target.Expr, "bale-bench", addr, groups[0]), true},
				{"of no group", substitute(target.Expr, "bale-bench", addr, "nobody"), !strings.Contains(target.Expr, "$group")},
				{"of no instance", substitute(target.Expr, "bale-bench", "nobody"), false},
				{"of no job", substitute(target.Expr, "nobody", addr), false},
			} {
				found, err := p.query(test.expr)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if !test.some && len(found) > 0 {
					t.Errorf("%s %s: %v", name, test.what, found)
				}
				for _, s := range found {
					if group, ok := s.Metric["group"]; ok && group != groups[0] {
						t.Errorf("%s %s: %s", name, test.what, group)
					}
				}
			}
		}
	}
}

// selects reports what an expression does not select by.
func selects(t *testing.T, name, expr string, grouped map[string]bool) {
	t.Helper()
	n := 0
	for _, s := range selector.FindAllStringSubmatch(expr, -1) {
		n++
		wants := []string{`job=~"$job"`, `instance=~"$instance"`}
		if grouped[s[1]] {
			wants = append(wants, `group=~"$group"`)
		}
		for _, want := range wants {
			if !strings.Contains(s[2], want) {
				t.Errorf("%s: %s does not select by %s", name, s[0], want)
			}
		}
	}
	if n == 0 {
		t.Errorf("%s: no metrics in %s", name, expr)
	}
}
