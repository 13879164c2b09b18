package outcome

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/balekv/bale/cmd/internal/page"
)

// figure is a column of the summary.
type figure struct {
	name    string
	value   func(Cell) Estimate // its median is NaN where it is unknown
	format  string              // of its median; of its interval where it is empty
	sign    int                 // +1 where more is better, -1 where less is, 0 where neither is marked
	timed   bool                // it is not exact: only intervals tell which is the best
	about   string              // what it is, for the legend
	lacking string              // why it may be unknown; empty where that goes without saying
}

func exactly(value func(Cell) float64) func(Cell) Estimate {
	return func(c Cell) Estimate { return Estimate{Median: value(c)} }
}

// The names of columns.
const (
	perKey    = "B/key"
	perSecond = "values/s"
	margin    = "95%" // the interval of perSecond
	served    = "served P99"
	limited   = "limit"
	silent    = "the embedded server does not say"
	ofProcess = "per operation, in this process"
)

var figures = []figure{
	{name: "ratio", value: exactly(func(c Cell) float64 { return c.Ratio }), format: "%.2f", sign: +1, about: "to the values as given"},
	{name: perKey, value: exactly(func(c Cell) float64 { return orNaN(c.RedisBytesPerKey) }), format: "%.0f", sign: -1, about: "of used_memory", lacking: silent},
	{name: "usage", value: exactly(func(c Cell) float64 { return orNaN(c.MemoryUsagePerKey) }), format: "%.0f", about: "by MEMORY USAGE", lacking: silent},
	{name: perSecond, value: func(c Cell) Estimate { return c.ValuesPerSecond }, format: "%.0f", sign: +1, timed: true},
	{name: margin, value: func(c Cell) Estimate {
		if c.ValuesPerSecond.Interval == nil {
			return Estimate{Median: math.NaN()}
		}
		return c.ValuesPerSecond
	}, about: "the interval of " + perSecond, lacking: "it takes 6 rounds"},
	{name: "P50", value: func(c Cell) Estimate { return c.P50 }, format: "%.0f", sign: -1, timed: true, about: ofOperation},
	{name: "P99", value: func(c Cell) Estimate { return c.P99 }, format: "%.0f", sign: -1, timed: true, about: ofOperation},
	{name: "P99.9", value: exactly(func(c Cell) float64 { return c.Stages["total"].P999 }), format: "%.0f", about: ofOperation},
	{name: served, value: exactly(func(c Cell) float64 { return pointAt(c.Service, 0.99) }), format: "%.0f",
		about: "from when it did start, which is all that a load generator sees that waits for its answers"},
	{name: "late P99", value: exactly(func(c Cell) float64 {
		if c.Late == nil {
			return math.NaN()
		}
		return c.Late.P99
	}), format: "%.0f", about: "how late the load generator itself was, µs"},
	{name: "allocs", value: func(c Cell) Estimate { return c.AllocsPerOp }, format: "%.0f", about: ofProcess},
	{name: "B/op", value: func(c Cell) Estimate { return c.BytesPerOp }, format: "%.0f", about: ofProcess},
	{name: "GC", value: exactly(func(c Cell) float64 { return 100 * orNaN(c.Resources.GCShare) }), format: "%.0f%%",
		about: "its share of this process's processor time", lacking: "there were too few collections; a longer --duration has more"},
	{name: "RSS", value: exactly(func(c Cell) float64 { return float64(c.Resources.RSSBytes) / (1 << 20) }), format: "%.0f", about: "of this process at its peak, MiB"},
}

// ofOperation names the base of the percentiles; in an open loop the legend explains the start.
const ofOperation = "of the whole operation, µs"

func orNaN(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

// shown gives a cell's figure as it is shown; two that look alike are equally good.
func (f figure) shown(c Cell) string {
	e := f.value(c)
	if f.format == "" {
		return intervalText(*e.Interval)
	}
	text := fmt.Sprintf(f.format, e.Median)
	if f.bound(c) {
		text = page.AtLeast + text
	}
	return text
}

// bound says that a cell's figure is a lower bound of a latency.
func (f figure) bound(c Cell) bool { return f.about == ofOperation && c.AtLeast }

// meansAtLeast explains page.AtLeast.
const meansAtLeast = "at least, for the slowest operations were given up, or took longer than can be told"

// withBound puts page.AtLeast before a latency of a cell that is a lower bound.
func withBound(c *Cell, text string) string {
	if c.AtLeast {
		return page.AtLeast + text
	}
	return text
}

// intervalText is an interval with enough digits to tell its ends apart.
func intervalText(of [2]float64) string {
	digits := 2
	if of[1]-of[0] < 0.2*of[1] {
		digits = 3
	}
	return rounded(of[0], digits) + "–" + rounded(of[1], digits)
}

// rounded formats a number with this number of digits: 850, 12k.
func rounded(v float64, digits int) string {
	if v <= 0 {
		return "0"
	}
	unit := math.Pow(10, math.Floor(math.Log10(v))-float64(digits-1))
	switch v = math.Round(v/unit) * unit; {
	case v >= 1e6:
		return strconv.FormatFloat(v/1e6, 'g', digits, 64) + "M"
	case v >= 1e4:
		return strconv.FormatFloat(v/1e3, 'g', max(digits, 3), 64) + "k"
	}
	return strconv.FormatFloat(v, 'g', max(digits, 4), 64)
}

// expendable are the figures that a summary leaves out if it is too wide, the least useful first.
var expendable = []string{"RSS", "usage", "B/op", "GC", "P99.9", "allocs", "late P99", limited, margin, "P50"}

// choose finds the figures that are known of any cell, and that every summary has room for.
func (t *tables) choose(groups [][]Cell) {
	var verified []Cell
	for _, cells := range groups {
		for _, c := range cells {
			if c.Verified {
				verified = append(verified, c)
			}
		}
	}
	known := func(f figure) bool {
		return slices.ContainsFunc(verified, func(c Cell) bool { return !math.IsNaN(f.value(c).Median) })
	}
	why := map[string][]string{}
	var reasons []string
	for i, f := range figures {
		switch {
		case known(f) || i == 0:
			t.figures = append(t.figures, f)
		case f.lacking != "" && len(verified) > 0:
			if why[f.lacking] == nil {
				reasons = append(reasons, f.lacking)
			}
			why[f.lacking] = append(why[f.lacking], f.name)
		}
	}
	for _, reason := range reasons {
		t.unknown = append(t.unknown, fmt.Sprintf("%s (%s)", page.Enumerated(why[reason]), reason))
	}
	if len(verified) > 0 {
		t.figures = append(t.figures, figure{name: limited, about: "what limited throughput"})
	}
	for _, cells := range groups {
		omitted := t.summaryTable(cells).Omitted()
		t.figures = slices.DeleteFunc(t.figures, func(f figure) bool { return slices.Contains(omitted, f.name) })
		t.omitted = append(t.omitted, omitted...)
	}
}

// spot is a figure of a cell.
type spot struct {
	cell   int
	figure string
}

// rivals identifies the cells to compare: those with the same load, on the same server. Exact
// figures do not depend on a rate.
type rivals struct {
	callers int
	rate    float64
	server  string
}

func (r rivals) String() string {
	load := callersOf(r.callers)
	if r.rate > 0 {
		load += fmt.Sprintf(" at %.0f/s", r.rate)
	}
	return strings.TrimSpace(load + " " + r.server)
}

// rivalsOf are the places of the verified cells that a figure is compared among, where there are at
// least two.
func (f figure) rivalsOf(cells []Cell) (order []rivals, groups map[rivals][]int) {
	groups = map[rivals][]int{}
	for i, c := range cells {
		of := rivals{c.Concurrency, c.Rate, c.Server}
		if !f.timed {
			of.rate = 0
		}
		if !c.Verified || math.IsNaN(f.value(c).Median) {
			continue
		}
		if groups[of] == nil {
			order = append(order, of)
		}
		groups[of] = append(groups[of], i)
	}
	return slices.DeleteFunc(order, func(of rivals) bool { return len(groups[of]) < 2 }), groups
}

// marks returns the best figures among rivals, and those with no significant difference from the
// best. If that covers all of them, it marks nothing and returns a note.
func (t *tables) marks(cells []Cell) (marked map[spot]bool, untold []string) {
	marked = map[spot]bool{}
	var few []string               // figures without intervals
	alike := map[rivals][]string{} // figures that tell no rivals apart,
	loads := map[string][]rivals{} // and the other way round
	var timed []rivals             // all that are compared by times
	for _, f := range t.figures {
		if f.sign == 0 {
			continue
		}
		order, groups := f.rivalsOf(cells)
		for _, of := range order {
			if f.timed && !slices.Contains(timed, of) {
				timed = append(timed, of)
			}
			near := f.nearest(cells, groups[of])
			switch {
			case f.name == perSecond && of.rate > 0: // what was asked for
			case f.timed && f.value(cells[groups[of][0]]).Interval == nil:
				if !slices.Contains(few, f.name) {
					few = append(few, f.name)
				}
			case len(near) < len(groups[of]):
				for _, i := range near {
					marked[spot{i, f.name}] = true
				}
			case f.timed:
				alike[of] = append(alike[of], f.name)
			}
		}
	}
	if len(few) > 0 {
		untold = append(untold, page.Enumerated(few)+": no best marked, because intervals need 6 rounds (--repeat)")
	}
	var said []string
	for _, of := range timed {
		if names := page.Enumerated(alike[of]); names != "" {
			if loads[names] == nil {
				said = append(said, names)
			}
			loads[names] = append(loads[names], of)
		}
	}
	for _, names := range said {
		with := ""
		if len(loads[names]) < len(timed) {
			var which []string
			for _, of := range loads[names] {
				which = append(which, of.String())
			}
			with = " with " + page.Enumerated(which)
		}
		untold = append(untold, fmt.Sprintf("%s%s: no significant difference", names, with))
	}
	return marked, untold
}

// nearest returns the best of some cells, and those with no significant difference from it. A lower
// bound counts as worse than an exact figure, whatever its number. Two lower bounds do not differ
// significantly.
func (f figure) nearest(cells []Cell, among []int) (near []int) {
	known := slices.DeleteFunc(slices.Clone(among), func(i int) bool { return f.bound(cells[i]) })
	if len(known) == 0 {
		return among
	}
	top := cells[slices.MaxFunc(known, func(a, b int) int {
		return cmp.Compare(float64(f.sign)*f.value(cells[a]).Median, float64(f.sign)*f.value(cells[b]).Median)
	})]
	for _, i := range known {
		c := cells[i]
		best, other := f.value(top), f.value(c)
		if f.shown(top) == f.shown(c) || best.Interval != nil && other.Interval != nil && !best.Apart(other) {
			near = append(near, i)
		}
	}
	return near
}
