package page

import (
	"fmt"
	"html"
	"html/template"
	"slices"
	"strconv"
	"strings"
)

// Grid is a table of a page that can be sorted. It is written without a template: of a large run
// there are ten thousands of fields, and a live page is written while the run goes on.
type Grid struct {
	ID, Label, Caption string
	Filter             string // the label of the box for words, if there is to be one
	Hidden             string // groups of columns that are not shown at first, with spaces between them
	Columns            []Column
	rows               []row
}

// Column is a column of a grid.
type Column struct {
	Name, Group string
	Text        bool
	Rare        bool // left out where no row has a figure for it
}

type row struct {
	class string
	cells []Cell
}

// Cell is a figure as it is shown. Numbers that do not read as one, as those with a unit, have
// By.
type Cell struct {
	Text  string
	By    string
	Small string        // beside it
	Since string        // how it changed significantly, beside that
	Mark  template.HTML // before it
}

// none is a cell without a figure.
func (c Cell) none() bool { return c.Text == "" && c.Mark == "" }

// Column adds a column of figures.
func (g *Grid) Column(name string) { g.Columns = append(g.Columns, Column{Name: name}) }

// Row adds a row; class is that of its style.
func (g *Grid) Row(class string, cells ...Cell) { g.rows = append(g.rows, row{class, cells}) }

// Len is the number of rows.
func (g *Grid) Len() int { return len(g.rows) }

// HTML is the table as markup; nothing where it has no rows.
func (g *Grid) HTML() template.HTML {
	if len(g.rows) == 0 {
		return ""
	}
	shown := make([]bool, len(g.Columns))
	for i, c := range g.Columns {
		shown[i] = !c.Rare || slices.ContainsFunc(g.rows, func(r row) bool { return !r.cells[i].none() })
	}
	var b strings.Builder
	attribute := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, ` %s="%s"`, name, html.EscapeString(value))
		}
	}
	b.WriteString(`<div class="scroll" role="region" tabindex="0"`)
	attribute("aria-label", g.Label)
	b.WriteString(">\n<table class=\"sortable\"")
	attribute("id", g.ID)
	attribute("data-filter", g.Filter)
	attribute("data-hidden", g.Hidden)
	b.WriteString(">\n<caption><span>" + html.EscapeString(Unbroken(g.Caption)) + "</span></caption>\n<thead><tr>")
	for i, c := range g.Columns {
		if !shown[i] {
			continue
		}
		b.WriteString(`<th scope="col"`)
		if c.Text {
			b.WriteString(` class="t"`)
		}
		attribute("data-group", c.Group)
		b.WriteString(">" + html.EscapeString(c.Name))
	}
	b.WriteString("</tr></thead>\n<tbody>\n")
	for _, r := range g.rows {
		b.WriteString("<tr")
		attribute("class", r.class)
		b.WriteString(">")
		for i, c := range r.cells {
			if !shown[i] {
				continue
			}
			switch {
			case i == 0:
				b.WriteString(`<th scope="row">`)
			case g.Columns[i].Text:
				b.WriteString(`<td class="t">`)
			case c.By != "":
				b.WriteString(`<td data-v="` + c.By + `">`)
			case c.Mark != "" && c.Text != "":
				b.WriteString(`<td data-v="` + html.EscapeString(strings.Trim(c.Text, "%")) + `">`)
			default:
				b.WriteString("<td>")
			}
			b.WriteString(string(c.Mark))
			if c.none() {
				b.WriteString("–")
			}
			b.WriteString(html.EscapeString(c.Text))
			if c.Small != "" {
				b.WriteString(" <small>" + html.EscapeString(c.Small) + "</small>")
			}
			if c.Since != "" {
				b.WriteString(" <em>" + html.EscapeString(c.Since) + "</em>")
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("</tbody>\n</table>\n</div>\n")
	return template.HTML(b.String())
}

// BytesCell is a number of bytes in the largest unit that fits, which sorts by the bytes.
func BytesCell(n float64) Cell {
	return Cell{Text: Amount(n), By: strconv.FormatFloat(n, 'f', 0, 64)}
}
