package outcome

import (
	"bytes"
	"strings"
	"testing"

	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/page/pagetest"
)

// reported is a report with all that one can have.
func reported() *Report {
	busy := 1.0
	tick := func(v float64) string { return page.Short(v) }
	return &Report{
		Environment: Environment{Study: "durability", Question: "What does <it> cost?", StudyCommand: []string{"balebench", "study", "durability"}, Go: "go1.26", CPU: "a CPU", Cores: 2, Private: true,
			Servers: []string{"Redis 7.0.15", "PostgreSQL 15.18"}, Rounds: 8, DurationS: 2, Seconds: 40, OthersCPU: &busy, Notes: []string{"NO DISK: a note"}},
		Cells:    []int{1},
		Findings: []Finding{{About: "one", Claims: []string{"It costs 3 µs."}, Legend: []string{"A note"}, Columns: []string{"setting", "P50"}, Rows: [][]Figure{{Words("a <b>"), Measured(Estimate{Median: 3, Interval: &[2]float64{2, 4}}, 0)}}}},
		Skipped:  []Skipped{{Identity{Server: "MariaDB"}, "MariaDB is not installed"}},
		Failures: []string{"FAILED a cell: lost"},
		Method:   "It was measured.",
		Charts: []Chart{
			{Title: "Ranges", Note: "Points.", Ranges: []Ranges{
				{Title: "first", Tick: TickTime, Hollow: true, Rows: []Range{{Name: "a setting with a name that is rather long for its place", Label: "8 µs, P99 100 µs", Low: 8, At: 8, High: 100}, {Name: "b", Label: "1 ms", Low: 1000, At: 1000, High: 1000, Hue: 9}}},
				{Title: "second", Tick: TickTime, Rows: []Range{{Name: "a", Label: "2", Low: 1, At: 2, High: 3}}},
				{Title: "empty", Tick: TickTime},
			}},
			{Title: "Lines", Note: "Lines.", Lines: []Lines{{Title: "third", Over: "goroutines", Unit: "a second", At: []float64{1, 10, 100, 1000}, Tick: tick,
				Lines: []Line{{"one", []float64{1, 10, 20, 30}}, {"two", []float64{0, 11, 21, 31}}, {"three", []float64{5, 5, 5, 30}}, {"none", []float64{0, 0, 0, 0}}}}}},
			{Title: "Over time", Note: "Series.", Series: []Series{{Title: "What callers wait for, P95", At: []float64{0.5, 1.5, 2.5}, Shaded: [2]float64{1, 2}, Tick: tick,
				Lines: []Line{{"none", []float64{10, 200, 10}}, {"breaker", []float64{10, 1, 10}}, {"limit", []float64{10, 60, 10}}, {"all", nil}, {"timeout, breaker", []float64{9, 8, 9}}}}}},
			{Title: "Latency", Note: "Percentiles.", Percentiles: []Percentiles{{Title: "5,200 a second, 1.0 KiB: policies", Lines: []Distribution{
				{"resilient:timeout", []Point{{0.01, 5000}, {0.5, 6000}, {0.99, 20_000}, {1, 30_000}}, []Point{{0.01, 5000}, {0.5, 5500}, {0.99, 9000}, {1, 10_000}}}, {"httpc:breaker", []Point{{0.01, 5000}, {0.99, 21_000}, {1, 30_000}}, nil}}}}},
		},
	}
}

func TestReportText(t *testing.T) {
	for _, width := range []int{60, 80, 120} {
		pagetest.Has(t, pagetest.Written(t, width, func(w page.Sheet) { reported().WriteText(w, TextOptions{}) }),
			"Redis 7.0.15, PostgreSQL 15.18, go1.26, 2 cores, a CPU", "It was measured.", "FAILED a cell: lost", "NO DISK: a note", "BUSY MACHINE: other programs used 1.0 of 2 cores",
			"not measured: MariaDB: MariaDB is not installed", "3 (2 to 4)", "one: It costs 3 µs.")
	}
	if err := reported().Err(); err == nil || err.Error() != "1 cell FAILED" {
		t.Errorf("%v", err)
	}
	if err := (&Report{}).Err(); err != nil {
		t.Error(err)
	}
}

// TestReportPage: the page shows everything, and nothing in it lies outside or upon another.
func TestReportPage(t *testing.T) {
	var b bytes.Buffer
	if err := reported().WritePage(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"What does &lt;it&gt; cost?", "a &lt;b&gt;", "BUSY MACHINE", "FAILED a cell: lost", "MariaDB is not installed", "It was measured.", "balebench study durability</code>", "Redis 7.0.15, PostgreSQL 15.18"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q", want)
		}
	}
	for _, wrong := range []string{"Each cell is a combination", "Nothing was measured", "NaN", "%!"} {
		if strings.Contains(b.String(), wrong) {
			t.Errorf("it has %q", wrong)
		}
	}
	ctx, address := pagetest.Browser(t), pagetest.File(t, b.String())
	for _, v := range pagetest.Views {
		tab, seen := pagetest.Open(t, ctx, address, v)
		pagetest.Screenshot(t, tab, "report-"+v.Name)
		if !v.NoJS {
			found := pagetest.Evaluate[pagetest.Found](t, tab, pagetest.Faults)
			if len(found.Faults) > 0 || found.Pictures != 5 {
				t.Errorf("%s: %d pictures, %q", v.Name, found.Pictures, found.Faults)
			}
		}
		seen.Quiet(t, address)
	}
}
