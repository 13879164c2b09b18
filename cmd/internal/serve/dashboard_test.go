package serve

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	dashboardFile = "../../../docs/ops/grafana/bale.json"
	rulesFile     = "../../../docs/ops/prometheus/rules.yml"
	rulesTests    = "../../../docs/ops/prometheus/rules_test.yml"
	configFile    = "../../../docs/ops/prometheus/prometheus.yml"
	opsReadme     = "../../../docs/ops/README.md"
)

// dashboard is what matters here of a dashboard of Grafana.
type dashboard struct {
	ID            *int
	UID           string
	Title         string
	SchemaVersion int
	Panels        []panel
	Templating    struct{ List []variable }
}

type panel struct {
	ID          int
	Type        string
	Title       string
	Description string
	Datasource  datasource
	GridPos     struct{ X, Y, W, H int }
	Targets     []target
	FieldConfig struct {
		Defaults struct {
			Unit       string
			Thresholds struct {
				Mode  string
				Steps []struct {
					Color string
					Value *float64
				}
			}
		}
	}
}

type datasource struct{ Type, UID string }

type target struct {
	RefID        string
	Datasource   datasource
	Expr         string
	LegendFormat string
	Instant      bool
	Range        bool
}

type variable struct {
	Name       string
	Type       string
	Definition string
	Query      json.RawMessage
	AllValue   string
	IncludeAll bool
	Multi      bool
}

func readDashboard(t *testing.T) *dashboard {
	t.Helper()
	b, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	d := new(dashboard)
	if err := json.Unmarshal(b, d); err != nil {
		t.Fatal(err)
	}
	return d
}

var (
	// units are those of Grafana's that the dashboard has: operations a second, a share, a number,
	// seconds, bytes a second, bytes.
	units       = []string{"ops", "percentunit", "none", "s", "Bps", "bytes"}
	panelTypes  = []string{"row", "stat", "timeseries", "table"}
	variableUse = regexp.MustCompile(`\$\{?(\w+)`)
	legendLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)
	byLabels    = regexp.MustCompile(`by \(([^)]*)\)`)
	selector    = regexp.MustCompile(`\b((?:bale|go|process)_\w+)(\{[^}]*\})?`)
)

// TestDashboard: that it is one for Grafana, and complete. There is none here to import it into.
func TestDashboard(t *testing.T) {
	d := readDashboard(t)
	if d.ID != nil || d.UID == "" || d.Title == "" || d.SchemaVersion < 39 {
		t.Errorf("id %v, uid %q, title %q, schema %d", d.ID, d.UID, d.Title, d.SchemaVersion)
	}
	known := []string{"__rate_interval"}
	for _, v := range d.Templating.List {
		known = append(known, v.Name)
		if v.Type == "query" && (!v.Multi || !v.IncludeAll || v.AllValue != ".*" || !strings.Contains(string(v.Query), "label_values(")) {
			t.Errorf("variable %s: %+v", v.Name, v)
		}
		for _, used := range variableUse.FindAllStringSubmatch(v.Definition, -1) {
			if !slices.Contains(known, used[1]) {
				t.Errorf("variable %s uses %s, which comes later or not at all", v.Name, used[0])
			}
		}
	}
	for _, want := range []string{"datasource", "job", "instance", "group"} {
		if !slices.Contains(known, want) {
			t.Errorf("there is no variable %s", want)
		}
	}
	ids, titles := map[int]bool{}, map[string]bool{}
	taken := map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID <= 0 || !slices.Contains(panelTypes, p.Type) || p.Title == "" {
			t.Errorf("panel %q: id %d, type %q", p.Title, p.ID, p.Type)
		}
		ids[p.ID] = true
		g := p.GridPos
		if g.X < 0 || g.W <= 0 || g.H <= 0 || g.X+g.W > 24 || g.Y < 0 {
			t.Errorf("panel %q is at %+v", p.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Errorf("panel %q lies over %q", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if kind := p.Type + p.Title; titles[kind] {
			t.Errorf("two panels %q", p.Title)
		} else {
			titles[kind] = true
		}
		defaults := p.FieldConfig.Defaults
		if !slices.Contains(units, defaults.Unit) || len(p.Description) < 60 {
			t.Errorf("panel %q: unit %q, description %q", p.Title, defaults.Unit, p.Description)
		}
		if steps := defaults.Thresholds.Steps; len(steps) == 0 || steps[0].Value != nil || defaults.Thresholds.Mode != "absolute" {
			t.Errorf("panel %q: the first threshold is not the base", p.Title)
		}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			where := fmt.Sprintf("panel %q, %s", p.Title, target.RefID)
			if target.RefID == "" || refs[target.RefID] || target.Expr == "" || target.LegendFormat == "" || target.Instant == target.Range {
				t.Errorf("%s: %+v", where, target)
			}
			refs[target.RefID] = true
			if want := (datasource{"prometheus", "${datasource}"}); target.Datasource != want || p.Datasource != want {
				t.Errorf("%s: data source %+v", where, target.Datasource)
			}
			for _, used := range variableUse.FindAllStringSubmatch(target.Expr, -1) {
				if !slices.Contains(known, used[1]) {
					t.Errorf("%s: uses %s, which does not exist", where, used[0])
				}
			}
			by := byLabels.FindStringSubmatch(target.Expr)
			for _, label := range legendLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
				if by == nil || !slices.Contains(strings.Split(by[1], ", "), label[1]) {
					t.Errorf("%s: the legend has %s, the query's result has not", where, label[1])
				}
			}
		}
		if len(refs) == 0 {
			t.Errorf("panel %q asks for nothing", p.Title)
		}
	}
}

// TestOpsReadme: it explains each panel and each alert.
func TestOpsReadme(t *testing.T) {
	readme, err := os.ReadFile(opsReadme)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range readDashboard(t).Panels {
		if p.Type != "row" && !strings.Contains(string(readme), "**"+p.Title+"**") {
			t.Errorf("it says nothing of the panel %q", p.Title)
		}
	}
	for _, name := range alerts(t) {
		if !strings.Contains(string(readme), "`"+name+"`") {
			t.Errorf("it says nothing of the alert %s", name)
		}
	}
}

// alerts are the names of the alerts that there are rules for.
func alerts(t *testing.T) (names []string) {
	t.Helper()
	rules, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllSubmatch(rules, -1) {
		names = append(names, string(m[1]))
	}
	if len(names) < 8 {
		t.Fatalf("only %d alerts", len(names))
	}
	return names
}
