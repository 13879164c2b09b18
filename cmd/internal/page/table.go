package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Table is a table that fits its sheet. Where it is too wide, these steps come in turn: one space
// between columns in place of two, the Short forms of headers, names of [NameKept] columns, no
// columns of Drop, shorter names, and at last no columns on the right.
type Table struct {
	Short map[string]string // forms of headers of figures for little room
	Drop  []string          // the columns to leave out, in this order

	sheet  Sheet
	left   int // columns of names, which may be cut
	header []string
	rows   [][]string
}

const (
	// NameKept is how long names stay as long as there are columns to drop.
	NameKept  = 24
	leastName = 4
)

// Table makes a table. The first left columns are names, aligned to the left; the others are
// figures, aligned to the right.
func (s Sheet) Table(left int, header ...string) *Table {
	return &Table{sheet: s, left: left, header: s.cells(header)}
}

// Row adds a row.
func (t *Table) Row(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = fmt.Sprint(cell)
	}
	t.rows = append(t.rows, t.sheet.cells(row))
}

// cells are texts on one line each. Where one is wider than the sheet, it does not matter how much.
func (s Sheet) cells(texts []string) []string {
	all := make([]string, len(texts))
	for i, cell := range texts {
		all[i] = text.Snip(printable.Line(printable.Name(cell)), s.Width+1, "…")
	}
	return all
}

// Len is the number of rows.
func (t *Table) Len() int { return len(t.rows) }

// layout is how a table fits.
type layout struct {
	gap     int
	short   bool
	columns []int // that are shown
	widths  []int // of those
	cut     bool  // some names are shorter than they are
}

// layout finds how the table fits.
func (t *Table) layout() (l layout) {
	columns, widest := make([]int, len(t.header)), make([]int, len(t.header))
	for i := range columns {
		columns[i] = i
		for _, row := range t.rows {
			if i < len(row) {
				widest[i] = max(widest[i], text.StringWidth(row[i]))
			}
		}
	}
	fits := func(least int) bool {
		forms := []layout{{gap: 2}, {gap: 1}, {gap: 1, short: true}}
		if least < math.MaxInt { // names are cut where nothing else helps
			forms = forms[2:]
		}
		for _, l = range forms {
			l.columns = columns
			if t.fit(&l, widest, least) {
				return true
			}
		}
		return false
	}
	for _, name := range t.Drop {
		if fits(math.MaxInt) || fits(NameKept) {
			return l
		}
		columns = slices.DeleteFunc(slices.Clone(columns), func(i int) bool { return t.header[i] == name })
	}
	for !fits(math.MaxInt) && !fits(NameKept) && !fits(leastName) && len(columns) > 1 {
		columns = columns[:len(columns)-1]
	}
	return l
}

// fit finds the widths of the columns, whose widest cells are given. It cuts the longest names, to
// no less than least columns.
func (t *Table) fit(l *layout, widest []int, least int) bool {
	beyond := -t.sheet.Width
	shortest := make([]int, len(l.columns)) // that they may be cut to
	for place, i := range l.columns {
		header := text.StringWidth(t.headerOf(*l, i))
		width := max(widest[i], header)
		l.widths, shortest[place] = append(l.widths, width), max(least, header)
		beyond += width + l.gap
	}
	for ; beyond > 0; beyond-- {
		longest := -1
		for place, i := range l.columns {
			if i < t.left && l.widths[place] > shortest[place] && (longest < 0 || l.widths[place] > l.widths[longest]) {
				longest = place
			}
		}
		if longest < 0 {
			return false
		}
		l.widths[longest]--
		l.cut = true
	}
	return true
}

func (t *Table) headerOf(l layout, i int) string {
	if short := t.Short[t.header[i]]; l.short && i >= t.left && short != "" {
		return short
	}
	return t.header[i]
}

// Fits reports whether the table fits as it is, with all its columns and names.
func (t *Table) Fits() bool {
	l := t.layout()
	return len(l.columns) == len(t.header) && !l.cut
}

// Omitted are the columns that there is no room for.
func (t *Table) Omitted() (names []string) { return t.omitted(t.layout()) }

func (t *Table) omitted(l layout) (names []string) {
	for i, name := range t.header {
		if !slices.Contains(l.columns, i) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(t.place(a), t.place(b)) })
	return names
}

// place is when a column goes.
func (t *Table) place(name string) int {
	if i := slices.Index(t.Drop, name); i >= 0 {
		return i
	}
	return len(t.Drop)
}

// Render writes the table, and the names of the columns that it leaves out.
func (t *Table) Render() {
	l := t.layout()
	out := table.NewWriter()
	out.SetOutputMirror(t.sheet)
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Options.SeparateHeader = true
	style.Format.Header = text.FormatDefault
	style.Box.PaddingLeft, style.Box.PaddingRight = "", strings.Repeat(" ", l.gap)
	out.SetStyle(style)
	configs := make([]table.ColumnConfig, len(l.columns))
	header := make(table.Row, len(l.columns))
	for place, i := range l.columns {
		align := text.AlignRight
		if i < t.left {
			align = text.AlignLeft
		}
		configs[place] = table.ColumnConfig{Number: place + 1, Align: align, AlignHeader: align}
		header[place] = text.Snip(t.headerOf(l, i), l.widths[place], "…")
	}
	out.SetColumnConfigs(configs)
	out.AppendHeader(header)
	for _, cells := range t.rows {
		row := make(table.Row, len(l.columns))
		for place, i := range l.columns {
			row[place] = ""
			if i < len(cells) {
				row[place] = text.Snip(cells[i], l.widths[place], "…")
			}
		}
		out.AppendRow(row)
	}
	out.SuppressTrailingSpaces()
	out.Render()
	if names := t.omitted(l); len(names) > 0 {
		t.sheet.Hanging("  ", LeftOut(names))
	}
}

// LeftOut names columns for which there is no room.
func LeftOut(names []string) string {
	return "Left out for width, but in --json: " + Enumerated(names)
}
