package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"golang.org/x/perf/benchunit"

	"github.com/balekv/bale/cmd/bale/internal/ab"
	"github.com/balekv/bale/cmd/bale/internal/compare"
)

// CompareOptions say how much of a comparison to show.
type CompareOptions struct {
	All bool // what did not change and what has no gate, too
}

const (
	mostUnmeasurable = 20 // rows, where not all are shown
	mostListed       = 10 // cells that are in one run only, and reasons
)

// Compare writes what changed between two runs as a table, and ends in a line that counts the verdicts.
func Compare(w io.Writer, r *compare.Report, o CompareOptions) {
	for _, d := range r.Differences {
		wrapped(w, fmt.Sprintf("WARNING: not the same environment: %s was %s, now %s", d.Key, quoted(d.Old), quoted(d.New)))
	}
	if !r.Paired {
		wrapped(w, "The two runs were taken apart, and share no noise: a change may be the machine's. For a gate, bale bench --ab runs two commands in turn.")
	}
	if r.Shift != nil && math.Abs(*r.Shift) > notableShift && !r.Paired {
		wrapped(w, fmt.Sprintf("WARNING: the time of the median cell changed by %s: what all cells have in common is rather the machine than the code.", changePercent(*r.Shift)))
	}
	if !slices.ContainsFunc(r.Comparisons, func(c compare.Comparison) bool { return c.Gate != "" }) && len(r.Comparisons) > 0 {
		wrapped(w, "WARNING: no unit is under the gate: nothing can be a regression.")
	}
	rows, hidden := shownRows(r.Comparisons, o)
	if len(rows) > 0 {
		names := nameRows(rows)
		if names.common != "" {
			fmt.Fprintln(w)
			wrapped(w, "all: "+names.common)
		} else {
			fmt.Fprintln(w)
		}
		comparisonTable(w, rows, names)
	}
	if hidden > 0 {
		fmt.Fprintf(w, "and %d more that are UNMEASURABLE; --all and --json have them\n", hidden)
	}
	fmt.Fprintln(w)
	unmeasurableReasons(w, r.Comparisons)
	for _, f := range r.Failed {
		wrapped(w, strings.TrimSuffix(fmt.Sprintf("FAILED now, and not before: %s: %s", f.Cell, f.Error), ": "))
	}
	listed(w, "FAILED in both runs", failedCells(r.StillFailed))
	listed(w, "only in the old run", r.OnlyOld)
	listed(w, "only in the new run", r.OnlyNew)
	counts := fmt.Sprintf("%s, %d better, %d same, %d UNMEASURABLE", regressions(r.Regressions), r.Better, r.Same, r.Unmeasurable)
	if n := len(r.Failed); n > 0 {
		counts += fmt.Sprintf(", %d FAILED", n)
	}
	wrapped(w, fmt.Sprintf("%s; gate %s", counts, r.Gate))
}

// AB writes what came of two commands that were run in turn, as Compare does.
func AB(w io.Writer, r *ab.Result, o CompareOptions) {
	fmt.Fprintf(w, "A, old: %s\nB, new: %s\n", r.A, r.B)
	again := ""
	if r.Again != nil {
		again = ", and as many again to confirm what was found"
	}
	wrapped(w, fmt.Sprintf("%d blocks of ABBA or BAAB: %d pairs of runs%s", r.Blocks, 2*r.Blocks, again))
	if r.Interrupted {
		wrapped(w, "INTERRUPTED: this is what there was by then.")
	}
	Compare(w, r.Report, o)
}

// notableShift is a change of the median cell's time that is said.
const notableShift = 0.02

func quoted(s string) string {
	if s == "" {
		return "not said"
	}
	return s
}

func regressions(n int) string {
	if n == 1 {
		return "1 REGRESSION"
	}
	return fmt.Sprintf("%d REGRESSIONS", n)
}

func failedCells(failed []compare.Failure) (cells []string) {
	for _, f := range failed {
		cells = append(cells, f.Cell)
	}
	return cells
}

func listed(w io.Writer, what string, cells []string) {
	for i, c := range cells {
		if i == mostListed {
			fmt.Fprintf(w, "%s: %d more\n", what, len(cells)-i)
			return
		}
		wrapped(w, what+": "+c)
	}
}

// unmeasurableReasons says why cells are unmeasurable, those first that are of most.
func unmeasurableReasons(w io.Writer, cs []compare.Comparison) {
	counts := map[string]int{}
	var all []string
	for _, c := range cs {
		if c.Verdict != compare.Unmeasurable {
			continue
		}
		if counts[c.Reason]++; counts[c.Reason] == 1 {
			all = append(all, c.Reason)
		}
	}
	slices.SortStableFunc(all, func(a, b string) int { return cmp.Compare(counts[b], counts[a]) })
	for i, reason := range all {
		if i == mostListed {
			fmt.Fprintf(w, "UNMEASURABLE: %d more reasons; --json has them\n", len(all)-i)
			return
		}
		wrapped(w, fmt.Sprintf("UNMEASURABLE (%d): %s", counts[reason], reason))
	}
}

// order of verdicts in the table: what matters most first.
var order = []compare.Verdict{compare.Regression, compare.Unmeasurable, compare.Better, compare.Same, ""}

// shownRows are the comparisons to show, and how many are not that should be.
func shownRows(cs []compare.Comparison, o CompareOptions) (rows []compare.Comparison, hidden int) {
	unmeasurable := 0
	for _, c := range cs {
		switch {
		case o.All:
		case c.Verdict == compare.Same, c.Verdict == "":
			continue
		case c.Verdict == compare.Unmeasurable:
			if unmeasurable++; unmeasurable > mostUnmeasurable {
				hidden++
				continue
			}
		}
		rows = append(rows, c)
	}
	slices.SortStableFunc(rows, func(a, b compare.Comparison) int {
		return cmp.Compare(slices.Index(order, a.Verdict), slices.Index(order, b.Verdict))
	})
	return rows, hidden
}

// rowNames are the columns that tell the rows of a table apart.
type rowNames struct {
	common string // what all have in common
	header []any
	rows   [][]string
}

// nameRows splits the names of cells into a column for each key that is not the same in all, if they are all of the same keys.
func nameRows(cs []compare.Comparison) rowNames {
	parts := make([][]compare.Part, len(cs))
	uniform := true
	short := shortPackages(cs)
	for i, c := range cs {
		parts[i] = append([]compare.Part{{Key: "package", Value: short[c.Package]}}, compare.Parts(c.Name)...)
		parts[i][1].Key = "benchmark"
		uniform = uniform && len(parts[i]) == len(parts[0])
		for k, p := range parts[i] {
			uniform = uniform && p.Key != "" && p.Key == parts[0][k].Key
		}
	}
	if !uniform {
		for i, c := range cs {
			parts[i] = []compare.Part{parts[i][0], {Key: "benchmark", Value: c.Name}}
		}
	}
	n := rowNames{rows: make([][]string, len(cs))}
	var common []string
	for k, p := range parts[0] {
		same := !slices.ContainsFunc(parts, func(other []compare.Part) bool { return other[k].Value != p.Value })
		switch {
		case same && (len(cs) > 1 && uniform || p.Value == ""):
			if p.Key == "benchmark" {
				common = append(common, p.Value)
			} else if p.Value != "" {
				common = append(common, p.Key+"="+p.Value)
			}
			continue
		case same && p.Key == "package":
			common = append(common, p.Value)
			continue
		}
		n.header = append(n.header, p.Key)
		for i := range cs {
			n.rows[i] = append(n.rows[i], parts[i][k].Value)
		}
	}
	n.common = strings.Join(common, ", ")
	return n
}

// shortPackages are the last elements of import paths, where those tell them apart.
func shortPackages(cs []compare.Comparison) map[string]string {
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

// comparisonTable writes the first form of the table that fits.
func comparisonTable(w io.Writer, rows []compare.Comparison, names rowNames) {
	forms := []func(io.Writer){}
	add := func(gap, width int, p bool) {
		forms = append(forms, func(w io.Writer) { comparisonForm(w, rows, names, gap, width, p) })
	}
	add(2, math.MaxInt, true)
	add(1, math.MaxInt, true)
	add(1, math.MaxInt, false)
	for width := 40; width >= 4; width-- {
		add(1, width, false)
	}
	fitting(w, forms...)
}

func comparisonForm(w io.Writer, rows []compare.Comparison, names rowNames, gap, width int, p bool) {
	header := append(slices.Clone(names.header), "unit", "old", "new", "change", "95% interval")
	if p {
		header = append(header, "p")
	}
	t := newTable(w, gap, len(names.header)+1, append(header, "verdict")...)
	for i, c := range rows {
		var row table.Row
		for _, n := range names.rows[i] {
			row = append(row, cutTo(n, width))
		}
		class := benchunit.ClassOf(c.Unit)
		row = append(row, c.Unit, benchunit.Scale(c.Old.Median, class), benchunit.Scale(c.New.Median, class), change(c, c.Change), interval(c))
		if p {
			row = append(row, chance(c))
		}
		t.AppendRow(append(row, verdict(c)))
	}
	t.Render()
}

// cutTo leaves out the middle of a name that is longer than width.
func cutTo(name string, width int) string {
	n := utf8.RuneCountInString(name)
	if n <= width {
		return name
	}
	r := []rune(name)
	left := (width - 1) / 2
	return string(r[:left]) + "…" + string(r[n-(width-1-left):])
}

// changePercent is a relative change.
func changePercent(v float64) string {
	if v == 0 {
		return "0%"
	}
	return fmt.Sprintf("%+.1f%%", 100*v)
}

func change(c compare.Comparison, v float64) string {
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

func interval(c compare.Comparison) string {
	switch {
	case c.Interval == nil:
		return "unknown"
	case c.Exact && c.Interval.Low == c.Interval.High:
		return "exact"
	}
	return change(c, c.Interval.Low) + " to " + change(c, c.Interval.High)
}

// chance is the corrected P of a comparison with a gate, and the bare one of another.
func chance(c compare.Comparison) string {
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

func verdict(c compare.Comparison) string {
	switch c.Verdict {
	case compare.Regression, compare.Unmeasurable:
		return strings.ToUpper(string(c.Verdict))
	case "":
		return "-"
	}
	return string(c.Verdict)
}
