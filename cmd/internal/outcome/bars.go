package outcome

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/balekv/bale/cmd/internal/page"
	"github.com/jedib0t/go-pretty/v6/text"
)

// bars is a picture of a bar from zero for each setting.
type bars struct {
	title, axis string
	rows        []bar
}

type bar struct {
	name, label, hue string
	value            float64
}

// draw is nil where there is nothing to compare.
func (b *bars) draw(id string, width page.Px) *page.Drawing {
	const row, top = 30.0, 24.0
	if len(b.rows) < 2 {
		return nil
	}
	byValue := func(a, b bar) int { return cmp.Compare(a.value, b.value) }
	least, largest := slices.MinFunc(b.rows, byValue), slices.MaxFunc(b.rows, byValue)
	if largest.value <= 0 || math.IsInf(largest.value, 0) {
		return nil
	}
	bottom := page.Px(top + row*float64(len(b.rows)))
	d := &page.Drawing{ID: id, Width: width, Height: bottom + 36, Title: page.Capital(b.axis) + " with " + b.title}
	step, ticks := page.NiceStep(largest.value, 4)
	end := max(largest.value, step*float64(ticks))
	x := func(v float64) page.Px { return 0.5 + (width-16)*page.Px(v/end) }
	d.Text("heading", "", 0, 13, b.title)
	for i := range ticks + 1 {
		d.Down(x(float64(i)*step), top, bottom, shortTick(float64(i)*step))
	}
	d.Text("tick", "middle", width/2, bottom+31, b.axis)
	for i, r := range b.rows {
		y := page.Px(top + row*float64(i))
		room := float64(width) - page.ColumnWidth*float64(text.StringWidth(r.label)) - 16
		d.Text("name", "", 0, y+12, text.Snip(r.name, int(room/nameColumn), "…"))
		d.Text("label", "end", width-1, y+12, r.label)
		d.Rect("bar "+r.hue, x(0), y+17, x(r.value)-x(0), 9, "")
	}
	d.Desc = fmt.Sprintf("Bars for %s. Least: %s with %s. Most: %s with %s.", page.Plural(len(b.rows), "setting"), least.name, least.label, largest.name, largest.label)
	return d
}

// shortTick is a figure on an axis without digits that say nothing.
func shortTick(v float64) string {
	if v >= 1 {
		return page.Thousands(int64(math.Round(v)))
	}
	return page.Short(v)
}

// sizesOfCells draws what a key takes with each setting, the most first. The load does not matter
// for that.
func sizesOfCells(id string, width page.Px, cells []*benchCell) *page.Drawing {
	type setting struct{ codec, compress string }
	var few []*benchCell
	for _, g := range groupedBy(cells, func(c *benchCell) setting { return setting{c.Codec, c.Compress} }) {
		few = append(few, g[0])
	}
	slices.SortStableFunc(few, func(a, b *benchCell) int { return cmp.Compare(b.BytesPerKey(), a.BytesPerKey()) })
	all := bars{title: "All settings", axis: "bytes a key in Redis"}
	if slices.ContainsFunc(few, func(c *benchCell) bool { return c.RedisBytesPerKey == nil }) {
		all.axis = "bytes a value, stored"
	}
	for _, c := range few {
		label := page.Thousands(int64(math.Round(c.BytesPerKey()))) + " B"
		if saved := less(c.Cell, few[0].Cell); saved >= 0.0005 {
			label += ", " + page.Share(saved) + " less"
		}
		all.rows = append(all.rows, bar{nameOf(c, few, settingParts[:2]), label, c.hue, c.BytesPerKey()})
	}
	return all.draw(id, width)
}

// speedsPicture draws the throughput of the cells of a panel.
func speedsPicture(id string, width page.Px, p *benchPanel) *page.Drawing {
	all := bars{title: p.title, axis: "values a second"}
	for i, c := range p.cells {
		if c.Rate == 0 { // else it is what was asked for
			all.rows = append(all.rows, bar{p.names[i], roundly(c.ValuesPerSecond.Median), c.hue, c.ValuesPerSecond.Median})
		}
	}
	return all.draw(id, width)
}
