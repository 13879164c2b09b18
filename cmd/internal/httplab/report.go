package httplab

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/balekv/bale/cmd/internal/dataset"
	"github.com/balekv/bale/cmd/internal/origin"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/page"
)

// Question is what a run answers.
const Question = "How long do callers of an HTTP client wait, and what does it cost?"

const method = "Each client asks a server in a process of its own, which answers after a set delay; the status and every byte of a response are checked. The rounds of all cells are interleaved in random order, and each has a new client and a warm-up. " +
	"Open loop: requests start on schedule, whatever became of earlier ones, and P50 to P99.9 count from the schedule; served P99 counts from the actual start. The difference is the coordinated omission of load generators that wait for their answers. " +
	"Closed loop: each caller makes a request when its last one has ended."

// report is what was found.
func (r *run) report(e outcome.Environment) *outcome.Report {
	report := &outcome.Report{Environment: e, Method: fmt.Sprintf("%s The delay is %v.", method, r.Delay)}
	for library := range r.servers {
		name := "net/http " + e.Go
		if library == origin.FastHTTP {
			name = "fasthttp " + dataset.ModuleVersion(fastModule)
		}
		report.Environment.Servers = append(report.Environment.Servers, name)
	}
	slices.Sort(report.Environment.Servers)
	for _, c := range r.Clients {
		row := c.row()
		library := outcome.Library{Name: row.name, Module: cmp.Or(row.module, "net/http"), Version: e.Go, Note: row.about}
		if row.module != "" {
			library.Version = dataset.ModuleVersion(row.module)
		}
		if !slices.Contains(report.Environment.Libraries, library) {
			report.Environment.Libraries = append(report.Environment.Libraries, library)
			report.Method += fmt.Sprintf(" %s: %s.", page.Capital(row.name), row.about)
		}
	}
	cells := make([]Cell, len(r.cells))
	for i, c := range r.cells {
		cells[i] = c.result(e.Cores)
		switch c := cells[i]; {
		case !c.Verified:
			report.Failures = append(report.Failures, fmt.Sprintf("FAILED: %s: %s", c.Client, c.Error))
		case c.Unstarted > 0:
			report.Environment.Notes = append(report.Environment.Notes, fmt.Sprintf("%s at %s/s: %s were never begun. The rate is far too high, and these latencies are lower bounds.", c.Client, count(c.Rate), page.PluralOf(c.Unstarted, "request")))
		case c.Errors > 0:
			report.Environment.Notes = append(report.Environment.Notes, fmt.Sprintf("%s, %s: %s, the first: %s", c.Client, c.load(), page.PluralOf(c.Errors, "error"), c.FirstError))
		}
	}
	report.Cells = cells
	latency := outcome.Chart{Title: "Latency", Note: "How long the fastest so many percent of the requests took at most. Both axes are logarithmic. In an open loop they count from their intended start; the dotted line is from when they really started. Where the two part, requests waited to be sent."}
	for _, g := range groups(cells) {
		report.Findings = append(report.Findings, g.times(), g.costs())
		latency.Percentiles = append(latency.Percentiles, g.pictures()...)
	}
	report.Charts = []outcome.Chart{latency}
	return report
}

// group holds the cells of a run that differ only in the client.
type group struct {
	Identity // without the client
	cells    []Cell
}

// groups are the cells by load, in the order of the run.
func groups(cells []Cell) (all []group) {
	for _, c := range cells {
		i := c.Identity
		i.Client = ""
		at := slices.IndexFunc(all, func(g group) bool { return g.Identity == i })
		if at < 0 {
			at = len(all)
			all = append(all, group{Identity: i})
		}
		all[at].cells = append(all[at].cells, c)
	}
	return all
}

// pictures are one of clients, and one of policies beside the client that they protect.
func (g *group) pictures() (all []outcome.Percentiles) {
	for _, of := range []struct {
		title string
		is    func(*Cell) bool
	}{
		{"clients", func(c *Cell) bool { return !c.guarded() }},
		{"policies", func(c *Cell) bool { return c.guarded() || c.Client == "tuned" }},
	} {
		picture := outcome.Percentiles{Title: g.title() + ": " + of.title}
		for _, c := range g.cells {
			if c.Verified && of.is(&c) {
				picture.Lines = append(picture.Lines, outcome.Distribution{Name: c.Client, Latency: c.Latency, Service: c.Service})
			}
		}
		all = append(all, picture)
	}
	return all
}

// load is how requests come.
func (i *Identity) load() string {
	if i.Rate > 0 {
		return count(i.Rate) + " a second"
	}
	return page.Plural(i.Callers, "caller")
}

// title says what all cells of a group have in common.
func (g *group) title() string {
	title := fmt.Sprintf("%s, %s", g.load(), page.Amount(float64(g.Size)))
	if !g.Reuse {
		title += ", a connection per request"
	}
	return title
}

// find is the verified cell of a client.
func (g *group) find(client string) (Cell, bool) {
	i := slices.IndexFunc(g.cells, func(c Cell) bool { return c.Client == client && c.Verified })
	if i < 0 {
		return Cell{}, false
	}
	return g.cells[i], true
}

// nearest are the clients with the lowest P99, and those with no significant difference from it.
// There are none without intervals, or if no client differs.
func (g *group) nearest() map[string]bool {
	near := map[string]bool{}
	var best *Cell
	for i, c := range g.cells {
		if c.Verified && c.P99.Interval != nil && (best == nil || c.P99.Median < best.P99.Median) {
			best = &g.cells[i]
		}
	}
	for _, c := range g.cells {
		if best != nil && c.Verified && !c.P99.Apart(best.P99) {
			near[c.Client] = true
		}
	}
	if len(near) == len(g.cells) {
		return nil
	}
	return near
}

// millis is a time in microseconds as milliseconds.
func millis(e outcome.Estimate) outcome.Estimate {
	e.Median /= 1000
	if e.Interval != nil {
		e.Interval = &[2]float64{e.Interval[0] / 1000, e.Interval[1] / 1000}
	}
	return e
}

func count(v float64) string { return outcome.Number(v, 0) }

// times is the table of throughput and latency, with what it says.
func (g *group) times() outcome.Finding {
	f := outcome.Finding{About: g.title(), Legend: []string{"Latencies in ms"}, Columns: []string{"client", "req/s", "P50", "P99", "P99.9"}}
	if g.Rate > 0 {
		f.Columns = append(f.Columns, "served P99")
	}
	best := g.nearest()
	for _, c := range g.cells {
		if !c.Verified {
			continue
		}
		row := []outcome.Figure{outcome.Words(c.Client), outcome.Exact(c.PerSecond.Median, 0), outcome.Exact(c.P50.Median/1000, 1), outcome.Marked(outcome.Measured(millis(c.P99), 1), best[c.Client]), outcome.Exact(c.P999.Median/1000, 1)}
		if g.Rate > 0 {
			row = append(row, outcome.Exact(c.Served.Median/1000, 1))
		}
		f.Rows = append(f.Rows, row)
	}
	if g.Rate > 0 {
		var missed []string
		for _, c := range g.cells {
			if c.Verified && !c.Kept() {
				missed = append(missed, fmt.Sprintf("%s, which does %s", c.Client, count(c.PerSecond.Median)))
			}
		}
		kept := "All clients keep the rate."
		if len(missed) > 0 {
			kept = "The rate is not kept by " + page.Enumerated(missed) + "."
		}
		f.Claims = append(f.Claims, kept)
	}
	usual, ok1 := g.find("default")
	tuned, ok2 := g.find("tuned")
	if ok1 && ok2 {
		f.Claims = append(f.Claims, fmt.Sprintf("The default client's P99 is %s the tuned one's: %s and %s ms.", usual.P99.Times(tuned.P99), outcome.InSentence(millis(usual.P99), 1), outcome.InSentence(millis(tuned.P99), 1)))
		f.Claims = append(f.Claims, fmt.Sprintf("The default client opens %s connections a round, the tuned one %s. Their peaks of goroutines are %s and %s.", count(usual.Connections.Median), count(tuned.Connections.Median), count(usual.Goroutines.Median), count(tuned.Goroutines.Median)))
		if g.Rate == 0 {
			f.Claims = append(f.Claims, fmt.Sprintf("The default client has %s the tuned one's throughput.", usual.PerSecond.Times(tuned.PerSecond)))
		}
	}
	if !ok2 || tuned.P99.Interval == nil {
		return f
	}
	var apart []string
	guarded := false
	for _, c := range g.cells {
		if c.Verified && c.guarded() {
			guarded = true
			if c.P99.Apart(tuned.P99) {
				apart = append(apart, fmt.Sprintf("%s %s", c.Client, c.P99.Times(tuned.P99)))
			}
		}
	}
	switch {
	case len(apart) > 0:
		f.Claims = append(f.Claims, "P99 under policies, against the tuned client's: "+page.Enumerated(apart)+"; the others do not differ significantly.")
	case guarded:
		f.Claims = append(f.Claims, "No policy changes the tuned client's P99 significantly.")
	}
	return f
}

// guarded reports whether a client has policies.
func (c *Cell) guarded() bool {
	name, _, _ := strings.Cut(c.Client, ":")
	i := slices.IndexFunc(rows, func(r row) bool { return r.name == name })
	return i >= 0 && rows[i].policies
}

// costs is the table of what the clients take.
func (g *group) costs() outcome.Finding {
	f := outcome.Finding{About: g.title() + ", costs", Columns: []string{"client", "errors", "conns", "routines", "allocs", "GC", "cores", "limit"},
		Legend: []string{"conns: opened in a round, with its warm-up", "routines: goroutines at their peak", "allocs: per request, with those of the load generator",
			"GC: the longest stop of the world, ms", "cores: used by this process and by the server", "limit: what limited throughput"}}
	for _, c := range g.cells {
		if c.Verified {
			f.Rows = append(f.Rows, []outcome.Figure{
				outcome.Words(c.Client), outcome.Exact(float64(c.Errors), 0), outcome.Exact(c.Connections.Median, 0), outcome.Exact(c.Goroutines.Median, 0), outcome.Exact(c.AllocsPerOp.Median, 0),
				outcome.Exact(c.GCPause/1000, 2), outcome.Words(fmt.Sprintf("%.2f+%.2f", c.ClientCPU, c.ServerCPU)), outcome.Words(c.Limit),
			})
		}
	}
	return f
}
