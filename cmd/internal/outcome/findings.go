package outcome

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/jedib0t/go-pretty/v6/text"
)

// findingMarks are what stands behind a figure, and what it means.
var findingMarks = []struct {
	mark, means string
	is          func(Figure) bool
}{
	{"*", "the best of its column, or without a significant difference from it", func(f Figure) bool { return f.Best }},
	{"~", "no significant difference from 1", func(f Figure) bool { return f.Same }},
}

func figureText(f Figure) string {
	text := f.Text
	for _, m := range findingMarks {
		if m.is(f) {
			text += m.mark
		}
	}
	return text
}

// legendOf explains the table of a finding: its columns and those findingMarks that it has.
func legendOf(f *Finding) []string {
	legend := slices.Clone(f.Legend)
	for _, m := range findingMarks {
		if slices.ContainsFunc(f.Rows, func(row []Figure) bool { return slices.ContainsFunc(row, m.is) }) {
			legend = append(legend, m.mark+": "+m.means)
		}
	}
	return legend
}

// findings writes the tables of all findings, with intervals if there is room for them, and then
// their conclusions.
func findings(to page.Sheet, found []Finding) {
	for i := range found {
		f := &found[i]
		if len(f.Rows) == 0 {
			continue
		}
		legend := legendOf(f)
		table, ranges := findingTable(to, f, true)
		if !table.Fits() {
			table, ranges = findingTable(to, f, false)
		}
		if ranges {
			legend = append(legend, "In parentheses: the 95% interval")
		}
		to.Legend(f.About, legend...)
		table.Render()
		printable.Fprintf(to, "\n")
	}
	for _, f := range found {
		if f.About != "" && len(f.Claims) > 1 {
			to.Wrapped(f.About + ":")
		}
		for _, s := range f.Claims {
			switch {
			case f.About == "":
				to.Wrapped(s)
			case len(f.Claims) == 1:
				to.Wrapped(f.About + ": " + s)
			default:
				to.Wrapped("- " + s)
			}
		}
	}
}

// findingTable is the table of a finding, and whether it has intervals.
func findingTable(to page.Sheet, f *Finding, intervals bool) (t *page.Table, ranges bool) {
	t = to.Table(1, f.Columns...)
	for _, row := range f.Rows {
		fields := make([]any, len(row))
		for i, figure := range row {
			field := figureText(figure)
			if intervals && figure.Range != "" {
				field += " (" + figure.Range + ")"
				ranges = true
			}
			fields[i] = field
		}
		t.Row(fields...)
	}
	return t, ranges
}

// findingsOf are the findings as a page has them.
func findingsOf(found []Finding) (all []benchFinding) {
	wide := slices.ContainsFunc(found, broad) // one that takes the width of the page would leave a hole beside those that do not
	for i := range found {
		f := &found[i]
		b := benchFinding{About: printable.Line(f.About)}
		for _, s := range f.Claims {
			b.Claims = append(b.Claims, printable.Line(s))
		}
		g := &page.Grid{ID: fmt.Sprintf("found-%d", i+1), Label: "Figures: " + b.About, Caption: printable.Line(strings.Join(legendOf(f), ". ") + ".")}
		if slices.ContainsFunc(f.Rows, func(row []Figure) bool {
			return slices.ContainsFunc(row, func(f Figure) bool { return f.Range != "" })
		}) {
			g.Caption += " Beside a figure stands its 95% interval."
		}
		for column, name := range f.Columns {
			words := column == 0 || !slices.ContainsFunc(f.Rows, func(row []Figure) bool { return column < len(row) && row[column].Value != nil })
			g.Columns = append(g.Columns, page.Column{Name: printable.Line(name), Text: words})
		}
		for _, row := range f.Rows {
			cells := make([]page.Cell, len(f.Columns))
			for column, figure := range row[:min(len(row), len(cells))] {
				cells[column] = page.Cell{Text: printable.Line(figureText(figure)), Small: printable.Line(figure.Range)}
				if v := figure.Value; column > 0 && v != nil {
					cells[column].By = strconv.FormatFloat(*v, 'g', -1, 64)
				}
			}
			g.Row("", cells...)
		}
		b.Table, b.Broad = g.HTML(), wide
		all = append(all, b)
	}
	return all
}

// halfWidth is about how many letters of a table half of the page has room for. A column has the
// space of columnGap more, and its name the mark for sorting.
const (
	halfWidth = 72
	columnGap = 3
	sortMark  = 2
)

// broad says that a table takes the width of the page.
func broad(f Finding) bool {
	letters := 0
	for column, name := range f.Columns {
		most := text.StringWidth(name) + sortMark
		for _, row := range f.Rows {
			if column < len(row) {
				most = max(most, text.StringWidth(figureText(row[column])+row[column].Range))
			}
		}
		letters += most + columnGap
	}
	return letters > halfWidth
}
