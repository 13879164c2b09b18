package outcome

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
)

// atKnees returns the cells of a set for its summary. For each cell with rising rates it takes the
// highest rate that was kept, or the lowest if none was.
func atKnees(r *Run, cells []Cell) []Cell {
	return slices.DeleteFunc(slices.Clone(cells), func(c Cell) bool {
		i := slices.IndexFunc(r.Sweeps, func(s Sweep) bool { return sweepIdentity(c) == s.Identity })
		if i < 0 {
			return false
		}
		s := r.Sweeps[i]
		knee := s.Knee
		if knee == 0 {
			knee = r.Cells[s.Cells[0]].Rate
		}
		return c.Rate != knee
	})
}

// sweepIdentity is the identity of a cell without its rate.
func sweepIdentity(c Cell) Identity {
	i := c.Identity
	i.Rate = 0
	return i
}

// sweeps are all rates that the cells of a set were measured at.
func (t *tables) sweeps(cells []Cell) {
	var shown []Cell
	for _, s := range t.run.Sweeps {
		if s.Dataset != cells[0].Dataset || s.Track != cells[0].Track {
			continue
		}
		for _, place := range s.Cells {
			shown = append(shown, t.run.Cells[place])
		}
	}
	if len(shown) == 0 {
		return
	}
	printable.Fprintf(t, "\n")
	t.Hanging("", "all rates, in operations a second; latencies in ms, from when an operation was to start and, as served, from when it did")
	header, name := identityColumns(shown)
	left := len(header)
	callers := anyDiffer(t.run.Cells, func(c Cell) int { return c.Concurrency })
	if callers {
		header = append(header, "callers")
	}
	out := t.Table(left, append(header, "rate", "done", margin, "P50", "P99", served, limited)...)
	out.Drop = []string{margin, served, limited}
	for _, c := range shown {
		if !c.Verified {
			continue
		}
		row := name(c)
		if callers {
			row = append(row, c.Concurrency)
		}
		row = append(row, fmt.Sprintf("%.0f", c.Rate), fmt.Sprintf("%.0f", c.OpsPerSecond.Median))
		between := "-"
		if c.OpsPerSecond.Interval != nil {
			between = intervalText(*c.OpsPerSecond.Interval)
		}
		out.Row(append(row, between, withBound(&c, millis(c.P50.Median)), withBound(&c, millis(c.P99.Median)), millis(pointAt(c.Service, 0.99)), c.Limit)...)
	}
	out.Render()
}

// millis formats a time in microseconds as milliseconds, in three digits or to the microsecond.
func millis(us float64) string {
	switch ms := us / 1000; {
	case ms >= 100:
		return fmt.Sprintf("%.0f", ms)
	case ms >= 10:
		return fmt.Sprintf("%.1f", ms)
	default:
		return fmt.Sprintf("%.2f", ms)
	}
}

// rateLines reports in sentences which rates were kept. For a cell with rising rates it names the
// highest rate kept, and the results beyond it. For given rates it names the cells that kept them.
func rateLines(r *Run) (lines []string) {
	name := cellTitle(r.Cells)
	for _, s := range r.Sweeps {
		all := make([]Cell, len(s.Cells))
		for i, place := range s.Cells {
			all[i] = r.Cells[place]
		}
		all = slices.DeleteFunc(all, func(c Cell) bool { return !c.Verified })
		if len(all) > 0 {
			lines = append(lines, fmt.Sprintf("%s, %s with %s %s.", setName(all[0], r.Cells), name(all[0]), callersOf(s.Concurrency), sweepLine(s, all)))
		}
	}
	var given []Cell // of each rate, set, server, batch and number of callers the first
	of := map[Identity][]Cell{}
	for _, c := range r.Cells {
		if c.Rate == 0 || !c.Verified || slices.ContainsFunc(r.Sweeps, func(s Sweep) bool { return sweepIdentity(c) == s.Identity }) {
			continue
		}
		i := Identity{Dataset: c.Dataset, Track: c.Track, Server: c.Server, Batch: c.Batch, Concurrency: c.Concurrency, Rate: c.Rate}
		if of[i] == nil {
			given = append(given, Cell{Identity: i})
		}
		of[i] = append(of[i], c)
	}
	for _, g := range given {
		var missed []string
		for _, c := range of[g.Identity] {
			if c.Limit != LimitOffered {
				missed = append(missed, fmt.Sprintf("%s, which does %.0f", name(c), c.OpsPerSecond.Median))
			}
		}
		by := "kept by all"
		switch n := len(of[g.Identity]); {
		case len(missed) == n:
			by = "not kept by " + page.Enumerated(missed)
		case n == 1:
			by = "kept by " + name(of[g.Identity][0])
		case len(missed) > 0:
			by = "kept by all but " + page.Enumerated(missed)
		}
		where := strings.TrimSpace(g.Batch + " " + g.Server)
		if where != "" {
			where = " (" + where + ")"
		}
		lines = append(lines, fmt.Sprintf("%s%s: %.0f operations/s with %s are %s.", setName(g, r.Cells), where, g.Rate, callersOf(g.Concurrency), by))
	}
	return lines
}

// sweepLine describes the rising rates that a cell kept.
func sweepLine(s Sweep, all []Cell) string {
	latency := func(c Cell) string { return withBound(&c, millis(c.P99.Median)) + " ms" }
	var missed []string // below the knee
	var beyond *Cell
	text := ""
	for i, c := range all {
		switch {
		case c.Rate > s.Knee:
			if beyond == nil {
				beyond = &all[i]
			}
		case c.Rate == s.Knee:
			text = fmt.Sprintf("holds %.0f operations/s with a P99 of %s (a closed loop does %.0f)", s.Knee, latency(c), s.Capacity)
		case c.Limit != LimitOffered:
			missed = append(missed, fmt.Sprintf("%.0f", c.Rate))
		}
	}
	if text == "" {
		text = fmt.Sprintf("holds none of these rates (a closed loop does %.0f)", s.Capacity)
	}
	if beyond != nil {
		text += fmt.Sprintf("; of %.0f it does %.0f, with %s", beyond.Rate, beyond.OpsPerSecond.Median, latency(*beyond))
	} else {
		text += ", the highest that was tried"
	}
	if len(missed) > 0 {
		text += "; that it did not keep " + page.Enumerated(missed) + ", which is less, is noise: a longer --duration has less of it"
	}
	return text
}

// unstartedRates lists the rates with operations that no caller started.
func (t *tables) unstartedRates(cells []Cell) {
	name := cellTitle(cells)
	var rates []string
	for _, c := range cells {
		if c.Verified && c.Unstarted > 0 {
			rates = append(rates, fmt.Sprintf("%s at %.0f/s (%d)", name(c), c.Rate, c.Unstarted))
		}
	}
	if len(rates) > 0 {
		t.Hanging("  ", "Far too high a rate: operations were given up before a caller came to them, and would have had the longest latencies: "+page.Enumerated(rates))
	}
}

// lateGenerator lists the rates whose latencies are mostly the load generator's own: it started
// operations late although a caller was free.
func (t *tables) lateGenerator(cells []Cell) {
	name := cellTitle(cells)
	var rates []string
	for _, c := range cells {
		if c.Verified && c.Late != nil && c.P99.Median > 0 && c.Late.P99 > muchLate*c.P99.Median {
			rates = append(rates, fmt.Sprintf("%s at %.0f/s (%s of %s ms)", name(c), c.Rate, millis(c.Late.P99), withBound(&c, millis(c.P99.Median))))
		}
	}
	if n := len(rates); n > mostLate {
		rates = append(rates[:mostLate], fmt.Sprintf("%d more", n-mostLate))
	}
	if len(rates) > 0 {
		t.Hanging("  ", "The load generator did not get the processor in time, and P99 is its own in great part: "+page.Enumerated(rates))
	}
}

const (
	muchLate = 0.5 // of P99
	mostLate = 3   // that are named
)

// pointAt is the latency of the last point that is not beyond q; NaN without any.
func pointAt(points []Point, q float64) float64 {
	if len(points) == 0 {
		return math.NaN()
	}
	v := points[0].US
	for _, p := range points {
		if p.Quantile <= q {
			v = p.US
		}
	}
	return v
}

// skipped names the combinations that there are no cells of, those of one reason together.
func (t *tables) skipped(all []Skipped) {
	var reasons []string
	of := map[string][]string{}
	for _, s := range all {
		if of[s.Reason] == nil {
			reasons = append(reasons, s.Reason)
		}
		what := strings.Join(strings.Fields(fmt.Sprint(s.Dataset, " ", s.Codec, " ", s.Compress)), " ")
		if s.Concurrency > 0 {
			what += ", " + callersOf(s.Concurrency)
		}
		of[s.Reason] = append(of[s.Reason], what)
	}
	if len(reasons) > 0 {
		printable.Fprintf(t, "\nnot measured\n")
	}
	const shown = 3
	for _, reason := range reasons {
		what := of[reason]
		more := ""
		if len(what) > shown {
			what, more = what[:shown], fmt.Sprintf(" and %d more", len(what)-shown)
		}
		t.Hanging("  ", strings.Join(what, "; ")+more+": "+reason)
	}
}
