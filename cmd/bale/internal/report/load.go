package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/balekv/bale/cmd/bale/internal/outcome"
)

// sweeps says up to which rate each cell of a sweep kept up, and what its latency was there and beyond.
func sweeps(w io.Writer, r *outcome.Run) {
	if len(r.Sweeps) == 0 {
		return
	}
	fmt.Fprintln(w, "\nthe knee: the highest rate that was kept, and the latency in us at rates around it, from when an operation was to start")
	name := titled(r.Cells)
	t := newTable(w, 2, 2, "data", "what", "callers", "closed loop/s", "knee/s", "P99 at 10%", "P99 at the knee", "P99 beyond")
	for _, s := range r.Sweeps {
		row := table.Row{s.Dataset, name(outcome.Cell{Identity: s.Identity}), s.Concurrency, fmt.Sprintf("%.0f", s.Capacity)}
		knee, low, at, beyond := "none", "-", "-", "-"
		if s.Knee > 0 {
			knee = fmt.Sprintf("%.0f", s.Knee)
		}
		for i, place := range s.Cells {
			c := r.Cells[place]
			p99 := fmt.Sprintf("%.0f", c.P99.Median)
			switch {
			case c.Rate == s.Knee:
				at = p99
			case c.Rate > s.Knee && beyond == "-":
				beyond = p99
			}
			if i == 0 {
				low = p99
			}
		}
		t.AppendRow(append(row, knee, low, at, beyond))
	}
	t.Render()
}

// omitted says where latencies from when an operation was to start differ from those from when it was started: what a load generator
// does not see that waits for an answer before it asks again.
func omitted(w io.Writer, cells []outcome.Cell) {
	name := titled(cells)
	for _, c := range cells {
		if n := len(c.Service); !c.Verified || n == 0 || len(c.Latency) == 0 {
			continue
		}
		if c.Unstarted > 0 {
			hanging(w, "  ", fmt.Sprintf("%s at %.0f/s: the rate is too high: %d operations were given up before a caller came to them, and the latencies are those of the others",
				name(c), c.Rate, c.Unstarted))
			continue
		}
		real, seen := pointAt(c.Latency, 0.99), pointAt(c.Service, 0.99)
		if real < 2*seen {
			continue
		}
		hanging(w, "  ", fmt.Sprintf("%s at %.0f/s: P99 is %.0f us from when operations were to start, and %.0f from when they did: a generator that waits for answers would report the latter",
			name(c), c.Rate, real, seen))
	}
}

// pointAt is the latency of the last point that is not beyond q.
func pointAt(points []outcome.Point, q float64) float64 {
	v := points[0].US
	for _, p := range points {
		if p.Quantile <= q {
			v = p.US
		}
	}
	return v
}

// skipped names the combinations that there are no cells of, those of one reason together.
func skipped(w io.Writer, all []outcome.Skipped) {
	var reasons []string
	of := map[string][]string{}
	for _, s := range all {
		if of[s.Reason] == nil {
			reasons = append(reasons, s.Reason)
		}
		what := strings.Join(strings.Fields(fmt.Sprint(s.Dataset, " ", s.Codec, " ", s.Compress)), " ")
		if s.Concurrency > 0 {
			what += ", " + count(s.Concurrency)
		}
		of[s.Reason] = append(of[s.Reason], what)
	}
	if len(reasons) > 0 {
		fmt.Fprintln(w, "\nnot measured")
	}
	const shown = 3
	for _, reason := range reasons {
		what := of[reason]
		more := ""
		if len(what) > shown {
			what, more = what[:shown], fmt.Sprintf(" and %d more", len(what)-shown)
		}
		hanging(w, "  ", strings.Join(what, "; ")+more+": "+reason)
	}
}
