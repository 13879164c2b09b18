package instruments

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/page"
)

const method = "An operation records a count and a size, or reads both totals. Goroutines do nothing else. Rounds of all cells take turns in random order. After each round the totals must be those of all operations, or in the ring those that it did not drop."

// claimNote is all that is known of the published figures.
const claimNote = "The claim is published, for unknown hardware and load, and was not measured here"

const million = 1e6

// findings sum the cells up. They leave out failed cells.
func findings(cells []*Cell) (out []outcome.Finding) {
	cells = slices.DeleteFunc(slices.Clone(cells), func(c *Cell) bool { return !c.Verified })
	for _, share := range reads {
		some := slices.DeleteFunc(slices.Clone(cells), func(c *Cell) bool { return c.Reads != share })
		if len(some) > 0 {
			out = append(out, loads(some, share))
		}
	}
	if f := claims(cells); len(f.Rows) > 0 {
		out = append(out, f)
	}
	return out
}

// of finds the cell of an instrument.
func of(cells []*Cell, name string, goroutines, reads int) *Cell {
	i := slices.IndexFunc(cells, func(c *Cell) bool { return c.Instrument == name && c.Goroutines == goroutines && c.Reads == reads })
	if i < 0 {
		return nil
	}
	return cells[i]
}

func millions(e outcome.Estimate) outcome.Estimate {
	e.Median /= million
	if e.Interval != nil {
		e.Interval = &[2]float64{e.Interval[0] / million, e.Interval[1] / million}
	}
	return e
}

func about(share int) string {
	if share == 0 {
		return "no reads"
	}
	return fmt.Sprintf("%d%% reads", share)
}

// loads compares the instruments at one share of reads.
func loads(cells []*Cell, share int) outcome.Finding {
	f := outcome.Finding{About: about(share), Legend: []string{"Million operations a second, by the number of goroutines", "B/op, allocs: allocated for an operation, the largest of these", "Dropped: the largest share of what was recorded; dropping a record takes less time than keeping it"},
		Columns: []string{"instrument"}}
	for _, n := range goroutines {
		f.Columns = append(f.Columns, page.Thousands(int64(n)))
	}
	f.Columns = append(f.Columns, "B/op", "allocs", "dropped")
	for _, i := range instruments {
		row, bytes, allocs, dropped, measured := []outcome.Figure{outcome.Words(i.name)}, 0.0, 0.0, 0.0, false
		for _, n := range goroutines {
			c := of(cells, i.name, n, share)
			if c == nil {
				row = append(row, outcome.Figure{})
				continue
			}
			measured = true
			row = append(row, outcome.Measured(millions(c.OpsPerSecond), 2))
			bytes, allocs = max(bytes, c.BytesPerOp.Median), max(allocs, c.AllocsPerOp.Median)
			dropped = max(dropped, float64(c.Dropped)/float64(max(1, c.Recorded)))
		}
		if measured {
			lost := outcome.Exact(100*dropped, 0)
			lost.Text = page.Share(dropped)
			f.Rows = append(f.Rows, append(row, outcome.Exact(bytes, 0), outcome.Exact(allocs, 1), lost))
		}
	}
	for _, n := range []int{goroutines[0], goroutines[len(goroutines)-1]} {
		some := slices.DeleteFunc(slices.Clone(cells), func(c *Cell) bool { return c.Goroutines != n })
		whole := slices.DeleteFunc(slices.Clone(some), func(c *Cell) bool { return c.Dropped > 0 })
		if len(whole) == 0 {
			continue
		}
		most := slices.MaxFunc(whole, func(a, b *Cell) int { return cmp.Compare(a.OpsPerSecond.Median, b.OpsPerSecond.Median) })
		line := fmt.Sprintf("%s: %s does the most without loss, %s million operations a second", page.Plural(n, "goroutine"), most.Instrument, outcome.InSentence(millions(most.OpsPerSecond), 2))
		if m := of(some, "mutex", n, share); m != nil && m != most {
			line += fmt.Sprintf(", %s a mutex", most.OpsPerSecond.Times(m.OpsPerSecond))
		}
		f.Claims = append(f.Claims, line+".")
	}
	if r := of(cells, "ring", goroutines[len(goroutines)-1], share); r != nil && r.Dropped > 0 {
		f.Claims = append(f.Claims, fmt.Sprintf("%s: the ring dropped %s of %s events, and says so.", page.Plural(r.Goroutines, "goroutine"), page.Share(float64(r.Dropped)/float64(r.Recorded)), page.ShortCount(float64(r.Recorded))))
	}
	return f
}

// claims sets published figures beside those of the most goroutines.
func claims(cells []*Cell) outcome.Finding {
	most := goroutines[len(goroutines)-1]
	f := outcome.Finding{About: "the published claim", Legend: []string{"Million operations a second with " + page.Plural(most, "goroutine") + ", by the share of reads", claimNote}, Columns: []string{"instrument", "claimed"}}
	for _, share := range reads {
		f.Columns = append(f.Columns, about(share))
	}
	for _, i := range instruments {
		if i.claim == 0 {
			continue
		}
		row, least := []outcome.Figure{outcome.Words(i.name), outcome.Words(outcome.Number(i.claim/million, 2))}, 0.0
		for _, share := range reads {
			figure := outcome.Figure{}
			if c := of(cells, i.name, most, share); c != nil {
				figure = outcome.Measured(millions(c.OpsPerSecond), 2)
				if least == 0 || c.OpsPerSecond.Median < least {
					least = c.OpsPerSecond.Median
				}
			}
			row = append(row, figure)
		}
		if least > 0 {
			f.Rows = append(f.Rows, row)
			f.Claims = append(f.Claims, fmt.Sprintf("%s: claimed %s operations a second; here at least %s, %s times.", i.name, outcome.Number(i.claim, 0), outcome.Number(least, 0), outcome.Number(least/i.claim, 1)))
		}
	}
	return f
}

// charts are a picture for each share of reads.
func charts(cells []*Cell) []outcome.Chart {
	c := outcome.Chart{Title: "Operations a second by goroutines", Note: "Medians of the rounds. Both axes are logarithmic."}
	at := make([]float64, len(goroutines))
	for i, n := range goroutines {
		at[i] = float64(n)
	}
	for _, share := range reads {
		l := outcome.Lines{Title: about(share), Over: "goroutines", Unit: "million operations a second", At: at, Tick: func(v float64) string { return page.Short(v/million) + " M" }}
		for _, i := range instruments {
			line := outcome.Line{Name: i.name}
			for _, n := range goroutines {
				v := 0.0
				if c := of(cells, i.name, n, share); c != nil && c.Verified {
					v = c.OpsPerSecond.Median
				}
				line.Points = append(line.Points, v)
			}
			l.Lines = append(l.Lines, line)
		}
		c.Lines = append(c.Lines, l)
	}
	return []outcome.Chart{c}
}
