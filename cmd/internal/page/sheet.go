package page

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Width is how many columns a report takes at most, if no terminal says otherwise.
const Width = 100

const leastWidth = 40

// Sheet is text of at most this many columns.
type Sheet struct {
	io.Writer
	Width int
}

// NewSheet makes a sheet of a width in columns, 40 at least. Default 0: [Width].
func NewSheet(w io.Writer, width int) Sheet { return Sheet{w, max(leastWidth, cmp.Or(width, Width))} }

// NewTable makes a table with gap spaces between columns. The first left columns are aligned to the
// left, the others to the right.
func NewTable(w io.Writer, gap, left int, header ...any) onOneLine {
	t := onOneLine{table.NewWriter()}
	t.SetOutputMirror(w)
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Options.SeparateHeader = true
	style.Format.Header = text.FormatDefault
	style.Box.PaddingLeft = ""
	style.Box.PaddingRight = strings.Repeat(" ", gap)
	t.SetStyle(style)
	columns := make([]table.ColumnConfig, len(header))
	for i := range columns {
		columns[i] = table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight}
		if i < left {
			columns[i].Align, columns[i].AlignHeader = text.AlignLeft, text.AlignLeft
		}
	}
	t.SetColumnConfigs(columns)
	t.AppendHeader(lines(header))
	t.SuppressTrailingSpaces()
	return t
}

// onOneLine is a table that puts each cell on one line.
type onOneLine struct{ table.Writer }

// AppendRow adds a row.
func (t onOneLine) AppendRow(row table.Row, o ...table.RowConfig) {
	t.Writer.AppendRow(lines(row), o...)
}

func lines(row table.Row) table.Row {
	all := make(table.Row, len(row))
	for i, cell := range row {
		all[i] = printable.Line(fmt.Sprint(cell))
	}
	return all
}

// Fitting writes the first of some forms of a table that fits, and otherwise the last one.
func (s Sheet) Fitting(forms ...func(io.Writer)) {
	var b bytes.Buffer
	for _, form := range forms {
		b.Reset()
		form(&b)
		if s.Fits(b.String()) {
			break
		}
	}
	s.Write(b.Bytes())
}

// Fits reports whether no line of a text is too wide.
func (s Sheet) Fits(text string) bool {
	return !slices.ContainsFunc(strings.Split(text, "\n"), func(line string) bool { return utf8.RuneCountInString(line) > s.Width })
}

// Wrapped writes texts of one line each in lines that fit. It indents the lines after the first.
func (s Sheet) Wrapped(texts ...string) { s.Hanging("  ", texts...) }

// Hanging is wrapped with any indent.
func (s Sheet) Hanging(indent string, texts ...string) {
	for _, one := range texts {
		before := ""
		for part := range strings.Lines(text.WrapSoft(strings.TrimSpace(printable.Line(one)), s.Width-len(indent))) {
			printable.Fprintf(s, "%s%s\n", before, strings.TrimSpace(part))
			before = indent
		}
	}
}
