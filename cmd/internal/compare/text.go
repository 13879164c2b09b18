package compare

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
	"golang.org/x/perf/benchunit"
)

// TextOptions say how much of a comparison to show.
type TextOptions struct {
	All bool // what did not change and what has no gate, too
}

const (
	mostUnmeasurable = 20 // rows, where not all are shown
	mostListed       = 10 // cells that are in one run only, and reasons
	mostNamed        = 3  // cells of one reason
	mostColumns      = 32 // of names; a forged run may have a million keys
)

// comparison is one being written.
type comparison struct {
	page.Sheet
	*Report
	names cellNames
}

// Schema is the one of the JSON, in docs/schemas.
func (r *Report) Schema() string { return "compare-v1" }

// WriteText writes what changed between two runs as a table, and ends in a line that counts the
// verdicts.
func (r *Report) WriteText(w page.Sheet, o TextOptions) {
	c := &comparison{w, r, nameCells(r.Comparisons)}
	c.preface()
	rows, hidden := shownRows(r.Comparisons, o)
	printable.Fprintf(w, "\n")
	if len(rows) > 0 {
		if c.names.common != "" {
			of := "all cells: "
			if len(c.names.keys) == 0 {
				of = "cell: "
			}
			c.Wrapped(of + c.names.common)
			printable.Fprintf(w, "\n")
		}
		c.table(rows)
		if hidden > 0 {
			c.Wrapped(fmt.Sprintf("and %d more that are UNMEASURABLE; --all and --json have them", hidden))
		}
		if slices.ContainsFunc(rows, func(i int) bool { return c.outside(r.Comparisons[i]) }) {
			c.Wrapped("95% interval: of the quotients of every new round and every old one. Where rounds differ much, that of the medians can be outside.")
		}
		if slices.ContainsFunc(rows, func(i int) bool { return !c.significant(r.Comparisons[i]) }) {
			c.Wrapped("~: no significant change.")
		}
		printable.Fprintf(w, "\n")
	}
	c.listUnmeasurable()
	c.failures("FAILED now, and not before", r.Failed)
	c.failures("FAILED in both runs", r.StillFailed)
	c.failures("FAILED, and is only in the new run", r.NewFailed)
	c.failures("FAILED before, and right now", r.Mended)
	c.list("only in the old run", r.OnlyOld)
	c.list("only in the new run", r.OnlyNew)
	if len(r.Ungated) > 0 {
		c.Wrapped("of the gate, no cell has " + strings.Join(r.Ungated, " or "))
	}
	counts := fmt.Sprintf("%s, %d better, %d same, %d UNMEASURABLE", strings.ToUpper(page.Plural(r.Regressions, "regression")), r.Better, r.Same, r.Unmeasurable)
	if n := len(r.Failed); n > 0 {
		counts += fmt.Sprintf(", %d FAILED", n)
	}
	c.Wrapped(counts + "; gate " + r.Gate)
}

// preface is what to know before looking at any figure.
func (c *comparison) preface() {
	c.list("WARNING: the old run", c.OldWarnings)
	c.list("WARNING: the new run", c.NewWarnings)
	var differences []string
	for _, d := range c.Differences {
		differences = append(differences, fmt.Sprintf("%s was %s, now %s", d.Key, orNotGiven(d.Old), orNotGiven(d.New)))
	}
	c.list("WARNING: not the same environment", differences)
	for i, d := range c.Versions {
		if i == mostListed {
			c.Wrapped(fmt.Sprintf("other versions: %d more; --json has them", len(c.Versions)-i))
			break
		}
		c.Wrapped(fmt.Sprintf("another version: %s was %s, now %s", d.Key, d.Old, d.New))
	}
	if c.Paired {
		c.Wrapped("old: the median of A's runs. change: of a run of B against the run of A beside it, the middle of all pairs. new: old with that change.")
		return
	}
	apart := "The two runs were taken apart, and share no noise: a change may be the machine's. For a gate, balebench ab runs two commands in turn."
	if c.Timed > 0 && c.Shift == nil {
		apart += fmt.Sprintf(" %s with a time are too few to see whether the whole machine was slower in one of them: that takes %d.", page.Plural(c.Timed, "cell"), ShiftCells)
	}
	c.Wrapped(apart)
	if c.Shift != nil && math.Abs(*c.Shift) > notableShift {
		c.Wrapped(fmt.Sprintf("WARNING: the time of the median cell changed by %s: what most cells have in common is rather the machine, or something that all share, than a change to any of them.", changePercent(*c.Shift)))
	}
}

// notableShift is the smallest change of the median cell's time that is reported.
const notableShift = 0.02

func orNotGiven(s string) string {
	if s == "" {
		return "not said"
	}
	return s
}

func (c *comparison) failures(what string, failed []Failure) {
	var lines []string
	for _, f := range failed {
		line := f.Cell
		if f.Package {
			line = "the package " + line
		}
		if f.Error != "" {
			line += ": " + f.Error
		}
		lines = append(lines, line)
	}
	c.list(what, lines)
}

// list writes a line for each of some cells, but not many.
func (c *comparison) list(what string, cells []string) {
	for i, cell := range cells {
		if i == mostListed {
			printable.Fprintf(c, "%s: %d more\n", what, len(cells)-i)
			return
		}
		c.Wrapped(what + ": " + cell)
	}
}

// listUnmeasurable lists the cells without a verdict by reason, the most frequent reason first.
func (c *comparison) listUnmeasurable() {
	cells := map[string][]string{}
	var reasons []string
	for i, r := range c.Comparisons {
		if r.Verdict != Unmeasurable {
			continue
		}
		if cells[r.Reason] == nil {
			reasons = append(reasons, r.Reason)
		}
		name := r.Unit
		if cell := c.names.label(i); cell != "" {
			name = cell + ", " + name
		}
		cells[r.Reason] = append(cells[r.Reason], name)
	}
	slices.SortStableFunc(reasons, func(a, b string) int { return cmp.Compare(len(cells[b]), len(cells[a])) })
	for i, reason := range reasons {
		if i == mostListed {
			c.Wrapped(fmt.Sprintf("UNMEASURABLE: %d more reasons; --json has them", len(reasons)-i))
			return
		}
		names, more := cells[reason], ""
		if n := len(names); n > mostNamed {
			names, more = names[:mostNamed], fmt.Sprintf("; and %d more", n-mostNamed)
		}
		c.Wrapped(fmt.Sprintf("UNMEASURABLE: %s%s: %s", strings.Join(names, "; "), more, reason))
	}
}

// order of verdicts in the table: what matters most first.
var order = []Verdict{Regression, Unmeasurable, Better, Same, ""}

// shownRows are the places of the comparisons to show, and how many are not that should be.
func shownRows(cs []Comparison, o TextOptions) (rows []int, hidden int) {
	unmeasurable := 0
	for i, c := range cs {
		switch {
		case o.All:
		case c.Verdict == Same, c.Verdict == "":
			continue
		case c.Verdict == Unmeasurable:
			if unmeasurable++; unmeasurable > mostUnmeasurable {
				hidden++
				continue
			}
		}
		rows = append(rows, i)
	}
	slices.SortStableFunc(rows, func(a, b int) int {
		return cmp.Compare(slices.Index(order, cs[a].Verdict), slices.Index(order, cs[b].Verdict))
	})
	return rows, hidden
}

// cellNames are the columns that tell the cells of all comparisons apart.
type cellNames struct {
	common string     // what all have in common
	keys   []string   // of the columns
	values [][]string // of each comparison
}

const (
	packageColumn   = "package"
	benchmarkColumn = "benchmark"
)

// nameCells splits the names of cells into a column for each key that is not the same in all.
func nameCells(cs []Comparison) cellNames {
	split := make([]map[string]string, len(cs))
	keys := []string{packageColumn, benchmarkColumn}
	short, whole := shortPackages(cs), false
	for i, c := range cs {
		split[i] = map[string]string{packageColumn: short[c.Package]}
		if whole {
			continue
		}
		for k, p := range Parts(c.Name) {
			if k == 0 {
				p.Key = benchmarkColumn
			}
			if _, twice := split[i][p.Key]; twice || p.Key == "" {
				whole = true // such as X/small, whose pieces have no names
			}
			split[i][p.Key] = p.Value
			if !slices.Contains(keys, p.Key) {
				keys = append(keys, p.Key)
			}
			if whole = whole || len(keys) > mostColumns; whole {
				break
			}
		}
	}
	if whole {
		keys = keys[:2]
		for i, c := range cs {
			split[i][benchmarkColumn] = c.Name
		}
	}
	n := cellNames{values: make([][]string, len(cs))}
	var common []string
	for _, key := range keys {
		if same := !slices.ContainsFunc(split, func(other map[string]string) bool { return other[key] != split[0][key] }); same {
			if len(cs) > 0 && split[0][key] != "" {
				common = append(common, labelled(key, split[0][key]))
			}
			continue
		}
		n.keys = append(n.keys, key)
		for i := range cs {
			n.values[i] = append(n.values[i], cmp.Or(split[i][key], "-"))
		}
	}
	n.common = strings.Join(common, ", ")
	return n
}

func labelled(key, value string) string {
	if key == packageColumn || key == benchmarkColumn {
		return value
	}
	return key + "=" + value
}

// label is the cell of a comparison, in words; empty where there is but one.
func (n cellNames) label(i int) string {
	var parts []string
	for k, v := range n.values[i] {
		if v != "-" {
			parts = append(parts, labelled(n.keys[k], v))
		}
	}
	return strings.Join(parts, ", ")
}

// shortPackages are the last elements of import paths, where those tell them apart.
func shortPackages(cs []Comparison) map[string]string {
	short, whole, taken := map[string]string{}, map[string]string{}, map[string]string{}
	unique := true
	for _, c := range cs {
		last := c.Package[strings.LastIndex(c.Package, "/")+1:]
		if p, ok := taken[last]; ok && p != c.Package {
			unique = false
		}
		taken[last], short[c.Package], whole[c.Package] = c.Package, last, c.Package
	}
	if unique {
		return short
	}
	return whole
}

// table writes the first form of the table that fits: with the corrected P, without, and with the
// name of each cell on a line of its own.
func (c *comparison) table(rows []int) {
	for _, p := range []bool{true, false} {
		if t := c.form(c.Sheet, rows, true, p); t.Fits() {
			t.Render()
			return
		}
	}
	c.stacked(rows)
}

func (c *comparison) form(to page.Sheet, rows []int, names, p bool) *page.Table {
	var header []string
	if names {
		header = slices.Clone(c.names.keys)
	}
	header = append(header, "unit", "old", "new", "change", "95% interval")
	left := len(header) - 4
	if p {
		header = append(header, "p")
	}
	t := to.Table(left, append(header, "verdict")...)
	t.Drop = []string{"p", "95% interval", "old"}
	for _, i := range rows {
		r := c.Comparisons[i]
		var row []any
		if names {
			for _, n := range c.names.values[i] {
				row = append(row, n)
			}
		}
		class := benchunit.ClassOf(r.Unit)
		row = append(row, r.Unit, medianText(r.Old, r.Old.Median, class), medianText(r.New, c.newMedian(r), class), c.change(r), interval(r))
		if p {
			row = append(row, pValue(r))
		}
		t.Row(append(row, verdict(r))...)
	}
	return t
}

// stacked is a table with the name of each cell above its figures.
func (c *comparison) stacked(rows []int) {
	const indent = "  "
	var b strings.Builder
	c.form(page.NewSheet(&b, c.Width-len(indent)), rows, false, true).Render()
	const heading = 2 // lines
	n := 0
	for line := range strings.Lines(b.String()) {
		if row := n - heading; row >= 0 && row < len(rows) {
			if label := c.names.label(rows[row]); row == 0 || label != c.names.label(rows[row-1]) {
				c.Wrapped(label)
			}
		}
		printable.Fprintf(c, "%s%s\n", indent, strings.TrimSuffix(line, "\n"))
		n++
	}
}

// newMedian returns the new figure to show. For pairs it is derived from their change, because the
// medians of all runs of A and of B ignore which runs were neighbours.
func (c *comparison) newMedian(r Comparison) float64 {
	switch {
	case !c.Paired || r.Exact:
		return r.New.Median
	case r.Absolute:
		return r.Old.Median + r.Change
	}
	return r.Old.Median * (1 + r.Change)
}

// change is the change from the old figure to the new one that stand beside it, with its sign if it
// is significant.
func (c *comparison) change(r Comparison) string {
	v := c.shown(r)
	if c.significant(r) {
		return change(r, v)
	}
	return "~" + strings.TrimPrefix(change(r, math.Abs(v)), "+")
}

// shown is the change of the figures that are shown.
func (c *comparison) shown(r Comparison) float64 {
	v := c.newMedian(r) - r.Old.Median
	if !r.Absolute {
		v /= r.Old.Median
	}
	return v
}

// outside reports whether the change that is shown is outside its interval.
func (c *comparison) outside(r Comparison) bool {
	const rounding = 1e-9
	v := c.shown(r)
	return r.Interval != nil && (v < r.Interval.Low-rounding || v > r.Interval.High+rounding)
}

// significant reports whether noise does not explain a change. The medians of all runs do not count
// for pairs.
func (c *comparison) significant(r Comparison) bool {
	return r.Exact || r.Interval != nil && (c.Paired || !r.Contrary()) && (r.Interval.Low > 0 || r.Interval.High < 0)
}

// medianText is the median of a figure as it is shown.
func medianText(f Figure, median float64, class benchunit.Class) string {
	text := benchunit.Scale(median, class)
	if f.AtLeast {
		text = page.AtLeast + text
	}
	return text
}

// changePercent is a relative change.
func changePercent(v float64) string {
	if v == 0 {
		return "0%"
	}
	return fmt.Sprintf("%+.1f%%", 100*v)
}

func change(c Comparison, v float64) string {
	if !c.Absolute {
		return changePercent(v)
	}
	if v == 0 {
		return "0"
	}
	text := benchunit.Scale(v, benchunit.ClassOf(c.Unit))
	if v > 0 {
		text = "+" + text
	}
	return text
}

func interval(c Comparison) string {
	switch {
	case c.Interval == nil:
		return "unknown"
	case c.Exact && c.Interval.Low == c.Interval.High:
		return "exact"
	}
	return change(c, c.Interval.Low) + " to " + change(c, c.Interval.High)
}

// pValue is the P of a comparison, corrected if it has a gate.
func pValue(c Comparison) string {
	p := c.PCorrected
	if p == nil {
		p = c.P
	}
	switch {
	case p == nil:
		return "-"
	case *p < 0.0001:
		return "<0.0001"
	}
	return fmt.Sprintf("%.4f", *p)
}

func verdict(c Comparison) string {
	switch c.Verdict {
	case Regression, Unmeasurable:
		return strings.ToUpper(string(c.Verdict))
	case "":
		return "-"
	}
	return string(c.Verdict)
}
