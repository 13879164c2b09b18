package report

import (
	"fmt"
	"html"
	"html/template"
	"slices"
	"strconv"
	"strings"
)

// grid is a table of a page that can be sorted. It is written without a template: of a large run
// there are ten thousands of fields, and a live page is written while the run goes on.
type grid struct {
	ID, Label, Caption string
	Filter             string // the label of the box for words, if there is to be one
	Hidden             string // groups of columns that are not shown at first, with spaces between them
	columns            []gridColumn
	rows               []gridRow
}

type gridColumn struct {
	name, group string
	text        bool
	rare        bool // left out where no row has a figure for it
}

type gridRow struct {
	class string
	cells []gridCell
}

// gridCell is a figure as it is shown. Numbers that do not read as one, as those with a unit, have
// By.
type gridCell struct {
	text  string
	by    string
	small string        // beside it
	mark  template.HTML // before it
}

// none is a cell without a figure.
func (c gridCell) none() bool { return c.text == "" && c.mark == "" }

func (g *grid) column(name string)                  { g.columns = append(g.columns, gridColumn{name: name}) }
func (g *grid) row(class string, cells ...gridCell) { g.rows = append(g.rows, gridRow{class, cells}) }

// HTML is the table as markup; nothing where it has no rows.
func (g *grid) HTML() template.HTML {
	if len(g.rows) == 0 {
		return ""
	}
	shown := make([]bool, len(g.columns))
	for i, c := range g.columns {
		shown[i] = !c.rare || slices.ContainsFunc(g.rows, func(r gridRow) bool { return !r.cells[i].none() })
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
	b.WriteString(">\n<caption><span>" + html.EscapeString(unbroken(g.Caption)) + "</span></caption>\n<thead><tr>")
	for i, c := range g.columns {
		if !shown[i] {
			continue
		}
		b.WriteString(`<th scope="col"`)
		if c.text {
			b.WriteString(` class="t"`)
		}
		attribute("data-group", c.group)
		b.WriteString(">" + html.EscapeString(c.name))
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
			case g.columns[i].text:
				b.WriteString(`<td class="t">`)
			case c.by != "":
				b.WriteString(`<td data-v="` + c.by + `">`)
			case c.mark != "" && c.text != "":
				b.WriteString(`<td data-v="` + html.EscapeString(strings.Trim(c.text, "%")) + `">`)
			default:
				b.WriteString("<td>")
			}
			b.WriteString(string(c.mark))
			if c.none() {
				b.WriteString("–")
			}
			b.WriteString(html.EscapeString(c.text))
			if c.small != "" {
				b.WriteString(" <small>" + html.EscapeString(c.small) + "</small>")
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("</tbody>\n</table>\n</div>\n")
	return template.HTML(b.String())
}

// inBytes is a number of bytes in the largest unit that fits, which sorts by the bytes.
func inBytes(n float64) gridCell {
	return gridCell{text: amount(n), by: strconv.FormatFloat(n, 'f', 0, 64)}
}
