package outcome

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/balekv/bale/cmd/internal/page"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Chart is a section of pictures in a report's page.
type Chart struct {
	Title, Note string
	Lines       []Lines  // either these
	Ranges      []Ranges // or these
	Percentiles []Percentiles
	Series      []Series
}

// Lines is a picture of lines over values, both axes logarithmic.
type Lines struct {
	Title, Over string // Over names the values
	Unit        string // of a point, for those who do not see it
	At          []float64
	Lines       []Line
	Tick        func(float64) string
}

// Line is a figure at each of the values; 0 for none.
type Line struct {
	Name   string
	Points []float64
}

// Ranges is a picture of a dot and a range for each name, on a logarithmic axis.
type Ranges struct {
	Title  string
	Rows   []Range
	Tick   func(float64) string
	Hollow bool // the end of a range is a figure of its own
}

// Range is a row of [Ranges]. Low and High are the same as At if there is no range.
type Range struct {
	Name, Label   string
	Low, At, High float64
	Hue           int // rows of one colour belong together
}

// benchChart is a chart as a page has it.
type benchChart struct {
	ID, Title, Note string
	Panels          [][]*page.Drawing
}

func (c *Chart) drawn(id string) benchChart {
	var all []sketch
	for i := range c.Lines {
		all = append(all, sketch{fmt.Sprintf("%s-%d", id, i+1), c.Lines[i].draw})
	}
	for i := range c.Ranges {
		all = append(all, sketch{fmt.Sprintf("%s-%d", id, i+1), c.Ranges[i].draw})
	}
	for i := range c.Percentiles {
		all = append(all, sketch{fmt.Sprintf("%s-%d", id, i+1), c.Percentiles[i].draw})
	}
	for i := range c.Series {
		all = append(all, sketch{fmt.Sprintf("%s-%d", id, i+1), c.Series[i].draw})
	}
	return benchChart{id, c.Title, c.Note, arranged(all)}
}

// draw is nil without points.
func (l *Lines) draw(id string, width page.Px) *page.Drawing {
	const left, top = 52.0, 30.0
	least, most, longest := math.Inf(1), 0.0, 0
	type drawn struct {
		hue, name string
		points    []page.Place
		hover     string
	}
	var lines []drawn
	classes := familiesOf(l.Lines)
	for i, line := range l.Lines {
		d := drawn{hue: classes[i], name: line.Name, hover: line.Name}
		for j, v := range line.Points {
			if v > 0 {
				least, most = min(least, v), max(most, v)
				d.hover += fmt.Sprintf(", %s at %s", l.Tick(v), page.Thousands(int64(l.At[j])))
				d.points = append(d.points, page.Place{X: page.Px(l.At[j]), Y: page.Px(v)}) // not placed yet
			}
		}
		if len(d.points) > 0 {
			lines = append(lines, d)
			longest = max(longest, text.StringWidth(line.Name))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	right := width - 20 - page.Px(nameColumn*float64(longest))
	bottom := page.Px(top + max(200, 14*float64(len(lines))))
	d := &page.Drawing{ID: id, Width: width, Height: bottom + 34, Title: l.Title}
	x, y := newLogScale(slices.Min(l.At), slices.Max(l.At), left+8, right), newLogScale(least, most, bottom, top)
	d.Text("heading", "", 0, 13, l.Title)
	for _, v := range y.ticks() {
		d.Across(left, right, y.at(v), l.Tick(v))
	}
	for _, v := range l.At {
		d.Line("axis", x.at(v), bottom, x.at(v), bottom+3)
		d.Text("tick", "middle", x.at(v), bottom+15, page.Thousands(int64(v)))
	}
	d.Line("axis", left, bottom, right, bottom)
	d.Text("tick", "middle", (left+right)/2, bottom+30, l.Over)
	var ends []ending
	for _, line := range lines {
		for j, p := range line.points {
			line.points[j] = page.Place{X: x.at(float64(p.X)), Y: y.at(float64(p.Y))}
		}
		ends = append(ends, ending{line.name, line.hue, line.points[len(line.points)-1]})
		d.Path("curve "+line.hue, page.Through(line.points), line.hover)
		for _, p := range line.points {
			d.Circle("dot "+line.hue, p.X, p.Y, 3.5, line.hover)
		}
	}
	nameEnds(d, right, top, bottom, longest, ends)
	d.Desc = fmt.Sprintf("Lines for %s, in %s. At the right end %s is highest and %s lowest. The table of the figures has them all.", page.Plural(len(lines), "setting"), l.Unit, ends[0].name, ends[len(ends)-1].name)
	return d
}

// draw is nil without rows.
func (r *Ranges) draw(id string, width page.Px) *page.Drawing {
	const row, top = 34.0, 26.0
	if len(r.Rows) == 0 {
		return nil
	}
	least := slices.MinFunc(r.Rows, func(a, b Range) int { return cmp.Compare(a.Low, b.Low) }).Low
	most := slices.MaxFunc(r.Rows, func(a, b Range) int { return cmp.Compare(a.High, b.High) }).High
	bottom := page.Px(top + row*float64(len(r.Rows)))
	d := &page.Drawing{ID: id, Width: width, Height: bottom + 20, Title: r.Title}
	x := newLogScale(least, most, 8, width-16)
	d.Text("heading", "", 0, 13, r.Title)
	for _, v := range x.ticks() {
		d.Down(x.at(v), top-2, bottom, r.Tick(v))
	}
	for i, each := range r.Rows {
		y, hue := page.Px(top+row*float64(i)), hues[each.Hue%len(hues)]
		hover := each.Name + ": " + each.Label
		d.Text("name", "", 0, y+12, text.Snip(each.Name, int((float64(width)-page.ColumnWidth*float64(text.StringWidth(each.Label))-8)/nameColumn), "…"))
		d.Text("label", "end", width-1, y+12, each.Label)
		d.Path("curve "+hue, fmt.Sprintf("M%v %vH%v", x.at(each.Low), y+22, x.at(each.High)), hover)
		if r.Hollow {
			d.Circle("open "+hue, x.at(each.High), y+22, 4, hover)
		}
		d.Circle("dot "+hue, x.at(each.At), y+22, 4.5, hover)
		d.Rect("hit", 0, y, width, row, hover)
	}
	byPlace := func(a, b Range) int { return cmp.Compare(a.At, b.At) }
	lowest, highest := slices.MinFunc(r.Rows, byPlace), slices.MaxFunc(r.Rows, byPlace)
	d.Desc = fmt.Sprintf("%s. Least: %s with %s. Most: %s with %s. The table of the figures has them all.", page.Plural(len(r.Rows), "setting"), lowest.Name, lowest.Label, highest.Name, highest.Label)
	return d
}
