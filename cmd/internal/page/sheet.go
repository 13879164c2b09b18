package page

import (
	"cmp"
	"io"
	"strings"

	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Width is how many columns a report takes at most, if no terminal says otherwise.
const Width = 100

const leastWidth = 40

// Sheet is text of at most this many columns.
type Sheet struct {
	io.Writer
	Width    int
	Terminal bool // else programs may read the lines
}

// NewSheet makes a sheet of a width in columns, 40 at least. Default 0: [Width].
func NewSheet(w io.Writer, width int) Sheet {
	return Sheet{Writer: w, Width: max(leastWidth, cmp.Or(width, Width))}
}

// Lines writes lines: as they are, and wrapped on a terminal.
func (s Sheet) Lines(lines ...string) {
	for _, line := range lines {
		if s.Terminal {
			s.Wrapped(line)
		} else {
			printable.Fprintf(s, "%s\n", line)
		}
	}
}

// Fits reports whether a line is not too wide.
func (s Sheet) Fits(line string) bool { return text.StringWidth(line) <= s.Width }

// Wrapped writes texts of one line each in lines that fit. It indents the lines after the first.
func (s Sheet) Wrapped(texts ...string) { s.Hanging("  ", texts...) }

// Legend writes a title, and below it the items that explain a table, one a line.
func (s Sheet) Legend(title string, items ...string) {
	s.Hanging("", title)
	for _, item := range items {
		s.Hanging("  ", "- "+item)
	}
}

// Hanging is wrapped with any indent.
func (s Sheet) Hanging(indent string, texts ...string) {
	for _, one := range texts {
		var line strings.Builder
		printable.Fprintf(&line, "%s", one) // a message may name a key of 512 MB
		before := ""
		for part := range strings.Lines(text.WrapSoft(strings.TrimSpace(line.String()), s.Width-len(indent))) {
			printable.Fprintf(s, "%s%s\n", before, strings.TrimSpace(part))
			before = indent
		}
	}
}
