package advise

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/balekv/bale/cmd/internal/page"
	"github.com/jedib0t/go-pretty/v6/text"
)

// savings draws what each group takes, what of it stays and what is saved, with the interval that
// the border between them is in. Wide is for screens and paper: a line for each group; else its
// name stands above its bar.
func savings(groups []Group, wide bool) *page.Drawing {
	d := &page.Drawing{ID: "savings-narrow", Class: "narrow", Width: 360}
	left, right, row, bar, top, mono := page.Px(0), page.Px(358), page.Px(37), page.Px(11), page.Px(46), 6.6
	if wide {
		d.ID, d.Class, d.Width = "savings", "wide", 960
		left, right, row, bar, top, mono = 270, 740, 25, 13, 46, 7.1
	}
	drawn := groups[:min(len(groups), drawnGroups)]
	rest := groups[len(drawn):]
	restNow, restSaving := memoryOf(rest)
	largest := restNow
	for _, g := range drawn {
		largest = max(largest, g.Now)
	}
	scale := float64(right-left) / float64(max(largest, 1))
	at := func(bytes float64) page.Px { return left + page.Px(max(bytes, 0)*scale) }

	rows := len(drawn) + min(len(rest), 1)
	d.Height = top + page.Px(rows)*row + 4
	total, saved := memoryOf(groups)
	d.Title = "What each group of keys takes, and what packing saves of it"
	d.Desc = fmt.Sprintf("Bars for %s, which take %s together; %s of it would be saved. The table of all groups has the same figures.", page.Plural(len(groups), "group"), page.Amount(float64(total)), page.Amount(saved))

	d.Rect("stays", left, 5, 14, 10, "")
	d.Text("label", "", left+19, 14, "stays")
	d.Rect("saved", left+64, 5, 14, 10, "")
	d.Text("label", "", left+83, 14, "saved")
	d.Line("whisker", left+136, 10, left+152, 10)
	d.Line("whisker", left+136, 7, left+136, 13)
	d.Line("whisker", left+152, 7, left+152, 13)
	d.Text("label", "", left+158, 14, "95% interval")
	step, ticks := page.ByteStep(float64(largest), map[bool]int{true: 5, false: 3}[wide])
	for i := range ticks + 1 {
		x := at(float64(i) * step)
		d.Line("grid", x, top-8, x, d.Height-2)
		anchor := "middle"
		if i == 0 {
			anchor = "start"
		} else if x > right-30 {
			anchor = "end"
		}
		if wide && anchor == "end" && x < right+20 {
			anchor = "middle"
		}
		d.Text("tick", anchor, x, top-13, page.TickBytes(float64(i)*step))
	}
	for i := range rows {
		name, now, saving := fmt.Sprintf("the other %s", page.Plural(len(rest), "group")), restNow, Interval{Estimate: restSaving, Low: restSaving, High: restSaving}
		if i < len(drawn) {
			g := &drawn[i]
			name, now, saving = page.Name(g.Name, nameInTable), g.Now, g.Saving
		}
		y := top + page.Px(i)*row
		value := fmt.Sprintf("%s of %s, %s", page.Amount(saving.Estimate), page.Amount(float64(now)), page.Part(saving.Estimate, now))
		if saving.Estimate == 0 {
			value = page.Amount(float64(now)) + ", none saved"
		}
		barY := y + (row-bar)/2
		if wide {
			d.Text("name", "end", left-10, y+row/2+4, text.Snip(name, int(float64(left-12)/mono), "…"))
			d.Text("label", "end", d.Width-2, y+row/2+4, value)
		} else {
			if saving.Estimate != 0 {
				value = fmt.Sprintf("%s of %s", page.Part(saving.Estimate, now), page.Amount(float64(now)))
			}
			d.Text("name", "", 0, y+12, text.Snip(name, int((float64(right)-page.ColumnWidth*float64(text.StringWidth(value))-8)/mono), "…"))
			d.Text("label", "end", right, y+12, value)
			barY = y + 18
		}
		hover := fmt.Sprintf("%s: %s", name, value)
		if saving.Low != saving.High {
			hover += fmt.Sprintf(" (%s to %s saved)", page.Amount(saving.Low), page.Amount(saving.High))
		}
		border := at(float64(now) - max(saving.Estimate, 0))
		d.Rect("stays", left, barY, border-left, bar, hover)
		if saving.Estimate > 0 {
			d.Rect("saved", border, barY, at(float64(now))-border, bar, hover)
		}
		low, high, mid := at(float64(now)-saving.High), at(float64(now)-saving.Low), barY+bar/2
		if high-low > 2 { // else it would be a blot
			for _, class := range []string{"halo", "whisker"} {
				d.Line(class, low, mid, high, mid)
				d.Line(class, low, mid-3, low, mid+3)
				d.Line(class, high, mid-3, high, mid+3)
			}
		}
	}
	return d
}

// sizesPicture draws the classes of memory that a group's values take, before and after.
func sizesPicture(id string, g *Group) *page.Drawing {
	d := &page.Drawing{ID: id, Width: 360, Height: 222, Title: "Values by the memory that one takes, before and after"}
	const left, right, top, bottom = 38.0, 358.0, 44.0, 186.0
	sizes := g.Sizes
	rare := func(b Bucket) bool { return max(b.Before, b.After) < 0.001 }
	for len(sizes) > 1 && rare(sizes[0]) {
		sizes = sizes[1:]
	}
	for len(sizes) > 1 && rare(sizes[len(sizes)-1]) {
		sizes = sizes[:len(sizes)-1]
	}
	sizes = even(sizes)
	changes, most := false, 0.0
	mode := func(of func(Bucket) float64) Bucket {
		best := sizes[0]
		for _, b := range sizes {
			if of(b) > of(best) {
				best = b
			}
		}
		return best
	}
	before := func(b Bucket) float64 { return b.Before }
	after := func(b Bucket) float64 { return b.After }
	for _, b := range sizes {
		changes = changes || b.Before != b.After
		most = max(most, b.Before, b.After)
	}
	d.Desc = fmt.Sprintf("Before, most values take %s each (%s of them).", page.Amount(float64(mode(before).Class)), page.Share(mode(before).Before))
	d.Rect("saved", left, 4, 14, 10, "")
	d.Text("label", "", left+19, 13, "before")
	if changes {
		d.Desc += fmt.Sprintf(" After, most take %s (%s of them).", page.Amount(float64(mode(after).Class)), page.Share(mode(after).After))
		d.Rect("stays", left+74, 4, 14, 10, "")
		d.Text("label", "", left+93, 13, "after")
	}
	step, ticks := page.NiceStep(max(most, 0.01), 4)
	scale := (bottom - top) / max(most, step*float64(ticks))
	for i := range ticks + 1 {
		y := page.Px(bottom - float64(i)*step*scale)
		d.Across(left, right, y, strconv.FormatFloat(math.Round(1000*float64(i)*step)/10, 'f', -1, 64)+"%")
	}
	slot := (right - left) / float64(len(sizes))
	labelEnd := 0.0 // where the label before ends
	for i, b := range sizes {
		x := left + slot*float64(i)
		hover := fmt.Sprintf("up to %s: %s before", page.Amount(float64(b.Class)), page.Share(b.Before))
		width, gap := min(slot*0.8, 40), slot
		if changes {
			hover += fmt.Sprintf(", %s after", page.Share(b.After))
			width = min(slot*0.42, 30)
			gap = 2 * width
		} else {
			gap = width
		}
		from := x + (slot-gap)/2
		if h := b.Before * scale; h >= 0.1 {
			d.Rect("saved", page.Px(from), page.Px(bottom-h), page.Px(width), page.Px(h), "")
		}
		if h := b.After * scale; changes && h >= 0.1 {
			d.Rect("stays", page.Px(from+width), page.Px(bottom-h), page.Px(width), page.Px(h), "")
		}
		d.Rect("hit", page.Px(x), top, page.Px(slot), bottom-top, hover)
		if b.Class&(b.Class-1) != 0 { // a mark for each doubling, at the end of the sizes up to it
			continue
		}
		label := classLabel(b.Class)
		half := page.ColumnWidth * float64(len(label)) / 2
		end := x + slot
		if end-half > labelEnd {
			d.Text("tick", "middle", page.Px(min(end, float64(d.Width)-half)), bottom+14, label)
			d.Line("axis", page.Px(end), bottom, page.Px(end), bottom+3)
			labelEnd = end + half + 6
		}
	}
	d.Text("tick", "middle", (left+right)/2, bottom+30, "bytes that a value takes in memory")
	d.Text("tick", "", 0, top-8, "of the values")
	d.Line("axis", left, bottom, right, bottom)
	return d
}

// even returns the buckets in steps of an even part of a doubling, the empty ones between them
// included.
func even(sizes []Bucket) (steps []Bucket) {
	const most = 36
	doubling := 4.0 // steps in one: jemalloc has four classes there
	at := func(b Bucket) float64 { return math.Ceil(math.Log2(float64(max(b.Class, 1)))*doubling - 1e-9) }
	for ; doubling > 0.25 && at(sizes[len(sizes)-1])-at(sizes[0]) >= most; doubling /= 2 {
	}
	first := at(sizes[0])
	for _, b := range sizes {
		for float64(len(steps)) <= at(b)-first {
			steps = append(steps, Bucket{Class: int64(math.Round(math.Exp2((first + float64(len(steps))) / doubling)))})
		}
		last := &steps[len(steps)-1]
		last.Before, last.After = last.Before+b.Before, last.After+b.After
	}
	return steps
}

// costsPicture draws all options of a group: what a value takes to pack, and how much smaller it
// gets.
func costsPicture(id string, g *Group, budget time.Duration) *page.Drawing {
	d := &page.Drawing{ID: id, Width: 360, Height: 234, Title: "How much smaller values get, against the time to pack one"}
	const left, right, top, bottom = 34.0, 352.0, 60.0, 198.0
	limit := float64(budget) / float64(time.Microsecond)
	least, most, highest := math.Inf(1), 0.0, 1.0
	for _, o := range g.Options {
		if o.Pack.Mean > 0 {
			least, most = min(least, o.Pack.Mean), max(most, o.Pack.Mean)
		}
		highest = max(highest, o.Ratio)
	}
	if limit > 0 {
		least, most = min(least, limit), max(most, limit)
	}
	if most == 0 {
		least, most = 1, 1
	}
	from, to := math.Floor(math.Log10(max(least, 0.01))), math.Ceil(math.Log10(most))
	if math.Pow(10, to) < most*1.15 {
		to++ // so that nothing lies on the edge
	}
	to = max(to, from+1)
	atX := func(us float64) page.Px {
		f := 0.0
		if us > 0 {
			f = (math.Log10(us) - from) / (to - from)
		}
		return page.Px(left + (right-left)*min(max(f, 0), 1))
	}
	step, ticks := page.NiceStep(highest, 4)
	if float64(ticks)*step < highest {
		ticks++
	}
	atY := func(ratio float64) page.Px { return page.Px(bottom - (bottom-top)*ratio/(float64(ticks)*step)) }

	d.Circle("point", left+6, 9, 4, "")
	d.Text("label", "", left+15, 13, "with a dictionary")
	d.Circle("hollow", left+141, 9, 4, "")
	d.Text("label", "", left+150, 13, "without")
	d.Cross("over", left+212, 9, 3.5, "")
	d.Text("label", "", left+221, 13, "over budget")
	for i := range ticks + 1 {
		y := atY(float64(i) * step)
		d.Across(left, right, y, strconv.FormatFloat(math.Round(float64(i)*step*10)/10, 'f', -1, 64))
	}
	for e := from; e <= to; e++ {
		x := atX(math.Pow(10, e))
		d.Line("axis", x, bottom, x, bottom+3)
		label, anchor := strconv.FormatFloat(math.Pow(10, e), 'f', -1, 64), "middle"
		if e == to {
			anchor, x = "end", d.Width-1
		}
		d.Text("tick", anchor, x, bottom+15, label)
	}
	d.Line("axis", left, bottom, right, bottom)
	d.Text("tick", "middle", (left+right)/2, bottom+30, "µs to pack a value (logarithmic)")
	d.Text("tick", "", 0, top-28, "times smaller")
	if limit > 0 {
		x, label := atX(limit), "budget "+budgetOf(budget)
		d.Line("budget", x, top-8, x, bottom)
		half := page.Px(page.ColumnWidth * float64(len(label)) / 2)
		d.Text("label", "middle", min(max(x, left+half), d.Width-half), top-12, label)
	}
	for i, o := range g.Options {
		if i != g.Chosen {
			costPoint(d, &o, atX(o.Pack.Mean), atY(o.Ratio))
		}
	}
	d.Desc = fmt.Sprintf("%s from a ratio of %s; the table has them all.", page.Capital(page.Plural(len(g.Options), "option")), ratioRange(g.Options))
	if o := chosenOf(g); o != nil {
		x, y := atX(o.Pack.Mean), atY(o.Ratio)
		d.Circle("ring", x, y, 8, "")
		costPoint(d, o, x, y)
		label := settingOf(o)
		r := page.Room{Left: left, Right: right, Top: top, Bottom: bottom}
		if limit > 0 {
			r.Upright = atX(limit)
		}
		for _, o := range g.Options {
			r.Points = append(r.Points, page.Place{X: atX(o.Pack.Mean), Y: atY(o.Ratio)})
		}
		if at, ok := r.Label(x, y, label); ok {
			d.Text("chosen", "middle", at.X, at.Y, label)
		}
		d.Desc += fmt.Sprintf(" Chosen is %s with a ratio of %.2f at %s µs.", label, o.Ratio, page.Microseconds(o.Pack.Mean))
	}
	return d
}

func costPoint(d *page.Drawing, o *Option, x, y page.Px) {
	hover := fmt.Sprintf("%s: ratio %.2f, %s µs to pack, %s to unpack", settingOf(o), o.Ratio, page.Microseconds(o.Pack.Mean), page.Microseconds(o.Unpack.Mean))
	switch {
	case !o.InBudget:
		d.Cross("over", x, y, 3.5, hover)
	case o.Dictionary > 0:
		d.Circle("point", x, y, 4, hover)
	default:
		d.Circle("hollow", x, y, 4, hover)
	}
}

func ratioRange(options []Option) string {
	low, high := math.Inf(1), math.Inf(-1)
	for _, o := range options {
		low, high = min(low, o.Ratio), max(high, o.Ratio)
	}
	return fmt.Sprintf("%.2f to %.2f", low, high)
}

// classLabel is a class of memory, as short as can be.
func classLabel(n int64) string {
	for i, unit := range []string{"", "K", "M", "G"} {
		if f := float64(n) / math.Pow(1024, float64(i)); f < 1024 {
			return strconv.FormatFloat(math.Round(f*10)/10, 'f', -1, 64) + unit
		}
	}
	return page.TickBytes(float64(n))
}
