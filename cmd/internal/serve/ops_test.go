package serve

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/extra/observe/prom"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stats"
)

// requireEnv names the variable that, when not empty, makes a test without a prometheus fail
// instead of skip.
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

// TestRules: promtool has nothing against the rules and the example, and each alert fires in one of
// the rules' own tests.
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

// TestSelectors: each metric that a panel reads is one that a run has, and is selected by all the
// variables that it has labels for.
func TestSelectors(t *testing.T) {
	m := newMetrics(t)
	d, err := frame.NewDictionary([]byte(strings.Repeat("what values have in common", 100)))
	if err != nil {
		t.Fatal(err)
	}
	e := stats.Event{Op: stats.Set, Keys: 1, Plain: 400, Stored: 100, Algorithm: frame.Zstd, DictionaryID: d.ID(), Timed: true}
	e.Times[stats.Store] = time.Millisecond
	m.Recorder("group").Record(t.Context(), e)
	m.Trained("group", d, dict.Info{Ratio: 4.5})
	m.Pool("goredis", func() prom.PoolStats { return prom.PoolStats{Waits: 5} })
	m.collector.Near("group", func() prom.NearStats { return prom.NearStats{} }) // which a run has none of
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	wants := map[string][]string{} // by metric
	for _, f := range families {
		wants[f.GetName()] = []string{`job=~"$job"`, `instance=~"$instance"`}
		for _, l := range f.GetMetric()[0].GetLabel() {
			if l.GetName() == "group" {
				wants[f.GetName()] = append(wants[f.GetName()], `group=~"$group"`)
			}
		}
	}
	part := regexp.MustCompile("_(bucket|sum|count)$") // of a histogram or summary
	for _, panel := range readDashboard(t).Panels {
		for _, target := range panel.Targets {
			name := fmt.Sprintf("panel %q, %s", panel.Title, target.RefID)
			found := selector.FindAllStringSubmatch(target.Expr, -1)
			if len(found) == 0 {
				t.Errorf("%s: no metrics in %s", name, target.Expr)
			}
			for _, s := range found {
				want, ok := wants[s[1]]
				if !ok {
					want, ok = wants[part.ReplaceAllString(s[1], "")]
				}
				if !ok {
					t.Errorf("%s: there is no metric %s", name, s[1])
				}
				for _, by := range want {
					if !slices.Contains(strings.Split(strings.Trim(s[2], "{}"), ","), by) {
						t.Errorf("%s: %s does not select by %s", name, s[0], by)
					}
				}
			}
		}
	}
}
