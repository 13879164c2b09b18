package outcome

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/balekv/bale/cmd/internal/page"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Widths of the lab's pictures, in the units of their view boxes. Pictures stand in twos where
// there is room, and each is readable on a telephone. A single picture in its row is drawn twice:
// wide, and narrow for a telephone.
const (
	panelWidth = 360
	wideWidth  = 750 // two of them, and the gap between
	nameColumn = 6.9 // what a column of a name takes, in the smaller monospaced type
)

// sketch draws a picture of a width; nil where there is nothing to draw.
type sketch struct {
	id   string
	draw func(id string, width page.Px) *page.Drawing
}

// arranged draws pictures for rows of two. Each is one drawing, or the wide one and the narrow one.
func arranged(all []sketch) (figures [][]*page.Drawing) {
	var last sketch
	for _, s := range all {
		if d := s.draw(s.id, panelWidth); d != nil {
			figures, last = append(figures, []*page.Drawing{d}), s
		}
	}
	if n := len(figures); n%2 == 1 {
		wide, narrow := last.draw(last.id+"-wide", wideWidth), figures[n-1][0]
		wide.Class, narrow.Class = "wide", "narrow"
		figures[n-1] = []*page.Drawing{wide, narrow}
	}
	return figures
}

// stackOf are the stages in a bar, with the classes of their colours: what serializes, compresses
// and travels is of one colour each, darker for writing.
var stackOf = []struct{ stage, class string }{
	{"serialize", "serialize"}, {"compress", "compress"}, {"set", "travel"}, {"get", "travel read"}, {"decompress", "compress read"}, {"deserialize", "serialize read"},
}

// logScale are times on a line, each tenfold as far from the last.
type logScale struct {
	low, high  float64 // logarithms
	start, end page.Px
}

// newLogScale has room for all from least to most, and ends in round figures.
func newLogScale(least, most float64, start, end page.Px) logScale {
	const shortest, longest = 1e-3, 1e15 // a line to infinity would have ticks without end
	least, most = min(max(least, shortest), longest), min(max(most, shortest), longest)
	s := logScale{low: math.Log10(roundDown(least)), high: math.Log10(roundUp(most)), start: start, end: end}
	if s.high-s.low < 0.45 {
		s.high = s.low + 1
	}
	return s
}

func roundDown(f float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(f)+1e-9))
	for _, m := range []float64{5, 2} {
		if f >= m*power*(1-1e-9) {
			return m * power
		}
	}
	return power
}

func roundUp(f float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(f)-1e-9))
	for _, m := range []float64{1, 2, 5} {
		if f <= m*power*(1+1e-9) {
			return m * power
		}
	}
	return 10 * power
}

func (s logScale) at(f float64) page.Px {
	part := 0.0
	if f > 0 {
		part = min(max((math.Log10(f)-s.low)/(s.high-s.low), 0), 1)
	}
	return s.start + (s.end-s.start)*page.Px(part)
}

// ticks are three to five round figures on the line: the most of them that are not more.
func (s logScale) ticks() (all []float64) {
	const most = 5
	of := [][]float64{{1, 2, 5}, {1, 3}, {1}}
	for coarser := 0; ; coarser++ {
		all = nil
		every := float64(max(1, coarser-len(of)+2)) // decades
		for e := math.Floor(s.low); e <= s.high; e += every {
			for _, m := range of[min(coarser, len(of)-1)] {
				if v := m * math.Pow(10, e); math.Log10(v) >= s.low-1e-9 && math.Log10(v) <= s.high+1e-9 {
					all = append(all, v)
				}
			}
		}
		if len(all) <= most {
			return all
		}
	}
}

// TickTime is a time on an axis, in the unit that makes it short.
func TickTime(us float64) string {
	switch {
	case us >= 1e6:
		return strconv.FormatFloat(us/1e6, 'g', 3, 64) + " s"
	case us >= 1e3:
		return strconv.FormatFloat(us/1e3, 'g', 3, 64) + " ms"
	}
	return strconv.FormatFloat(us, 'g', 3, 64) + " µs"
}

func stacked(c *Cell) (sum float64) {
	for _, s := range stackOf {
		sum += c.Stages[s.stage].P50
	}
	return sum
}

// stagesPicture draws where the time goes: a bar for each cell, of the medians of its stages.
func stagesPicture(id string, width page.Px, p *benchPanel, baseline bool) *page.Drawing {
	const row, bar, top = 35.0, 14.0, 58.0
	d := &page.Drawing{ID: id, Width: width, Height: page.Px(top+row*float64(len(p.cells))) + 18, Title: "Where the time goes with " + p.title}
	most := 0.0
	for _, c := range p.cells {
		most = max(most, stacked(c.Cell))
		if c.base != nil {
			most = max(most, stacked(c.base))
		}
	}
	most = max(most, 0.001)
	scale := float64(width-2) / most
	d.Text("heading", "", 0, 13, p.title)
	for i, s := range stackOf {
		x, y := page.Px([]float64{0, 84, 182}[i%3]), page.Px(23)
		if i >= 3 {
			x, y = page.Px([]float64{0, 84, 182}[i%3]), 39
		}
		d.Rect("stage "+s.class, x, y, 14, 10, "")
		d.Text("label", "", x+19, y+9, s.stage)
	}
	if baseline {
		d.Rect("ghost", 268, 23, 14, 10, "")
		d.Text("label", "", 287, 32, "baseline")
	}
	step, ticks := page.NiceStep(most, 5)
	bottom := page.Px(top + row*float64(len(p.cells)))
	for i := range ticks + 1 {
		d.Down(page.Px(float64(i)*step*scale)+0.5, top-2, bottom, TickTime(float64(i)*step))
	}
	var slowest, fastest *benchCell
	names := map[*benchCell]string{}
	stacks := make([]strings.Builder, len(stackOf)) // one path for all bars of a stage: there are many
	var over page.Drawing                           // what stands upon the bars
	for i, c := range p.cells {
		names[c] = p.names[i]
		if slowest == nil || stacked(c.Cell) > stacked(slowest.Cell) {
			slowest = c
		}
		if fastest == nil || stacked(c.Cell) < stacked(fastest.Cell) {
			fastest = c
		}
		y := page.Px(top + row*float64(i))
		value := withBound(c.Cell, page.Microseconds(c.Stages[total].P50)) + " µs"
		if c.base != nil && !c.AtLeast && !c.base.AtLeast {
			change, _ := changeSince(c.P50, c.base.P50)
			value += ", " + change
		}
		d.Circle("dot "+c.hue, 5, y+8, 4.5, "")
		d.Text("name", "", 14, y+12, text.Snip(p.names[i], int((float64(width)-14-page.ColumnWidth*float64(text.StringWidth(value))-8)/nameColumn), "…"))
		d.Text("label", "end", width-1, y+12, value)
		x, parts := page.Px(0), make([]string, 0, len(stackOf))
		for _, s := range stackOf {
			parts = append(parts, s.stage+" "+page.Microseconds(c.Stages[s.stage].P50))
		}
		hover := fmt.Sprintf("%s: %s µs", p.names[i], strings.Join(parts, ", "))
		for j, s := range stackOf {
			w := page.Px(c.Stages[s.stage].P50 * scale)
			if w < 0.2 {
				x += w
				continue
			}
			fmt.Fprintf(&stacks[j], "M%v %vh%vv%vh-%vz", x, y+17, w, bar, w)
			if label := page.Microseconds(c.Stages[s.stage].P50); float64(w) > 7*float64(len(label))+6 {
				over.Text("on "+s.class, "", x+w/2, y+17+11, label)
			}
			x += w
		}
		if c.base != nil {
			over.Rect("ghost", 0.5, y+15.5, page.Px(stacked(c.base)*scale)-1, bar+3, "")
		}
		over.Rect("hit", 0, y, width, row, hover)
	}
	for i, s := range stackOf {
		if stacks[i].Len() > 0 {
			d.Path("stage "+s.class, stacks[i].String(), "")
		}
	}
	d.Add(&over)
	d.Desc = fmt.Sprintf("Stacked bars of the medians of six stages for %s. Least time takes %s with %s µs, most %s with %s µs. The table of the figures has them all.",
		page.Plural(len(p.cells), "setting"), names[fastest], page.Microseconds(stacked(fastest.Cell)), names[slowest], page.Microseconds(stacked(slowest.Cell)))
	return d
}

// curve is a line through the points of a distribution, without those that no one would miss.
func curve(points []Point, x func(float64) page.Px, y logScale) string {
	places := make([]page.Place, len(points))
	for i, p := range points {
		places[i] = page.Place{X: x(p.Quantile), Y: y.at(p.US)}
	}
	return page.Through(simpler(places))
}

// simpler leaves out the places that lie within half a unit of the line through the others (Ramer
// 1972, Douglas and Peucker 1973).
func simpler(all []page.Place) []page.Place {
	const near = 0.5
	if len(all) < 3 {
		return all
	}
	first, last := all[0], all[len(all)-1]
	dx, dy := last.X-first.X, last.Y-first.Y
	length := page.Px(math.Hypot(float64(dx), float64(dy)))
	farthest, at := page.Px(0), 0
	for i, p := range all[1 : len(all)-1] {
		off := page.Px(math.Hypot(float64(p.X-first.X), float64(p.Y-first.Y)))
		if length > 0 {
			off = page.Px(math.Abs(float64(dy*(p.X-first.X)-dx*(p.Y-first.Y)))) / length
		}
		if off > farthest {
			farthest, at = off, i+1
		}
	}
	if farthest < near {
		return []page.Place{first, last}
	}
	before := simpler(all[:at+1])
	return slices.Concat(before[:len(before)-1], simpler(all[at:]))
}

// shownOf returns the points of a distribution from its median on. The fastest operations say
// nothing, and would take half of the picture.
func shownOf(points []Point) []Point {
	i := slices.IndexFunc(points, func(p Point) bool { return p.Quantile >= 0.5 })
	return points[max(i, 0):]
}

// lowerBounds is beside the name of an axis of a picture with page.AtLeast.
const lowerBounds = " (" + page.AtLeast + ": lower bounds)"

// latencyPicture draws the latency distribution: both axes are logarithmic, so that the slowest can
// be seen. It is nil without distributions.
func latencyPicture(id string, width page.Px, p *benchPanel) *page.Drawing {
	const left, top = 52.0, 56.0
	type line struct {
		at     int
		points []Point
	}
	var lines []line
	least, most, highest := math.Inf(1), 0.0, 0.99
	look := func(points []Point) {
		for _, q := range points {
			if q.US > 0 {
				least, most = min(least, q.US), max(most, q.US)
			}
			if q.Quantile < 1 {
				highest = max(highest, q.Quantile)
			}
		}
	}
	service, base := false, false
	for i, c := range p.cells {
		if len(c.Latency) < 2 {
			continue
		}
		lines = append(lines, line{at: i, points: shownOf(c.Latency)})
		look(shownOf(c.Latency))
		look(shownOf(c.Service))
		service = service || len(c.Service) > 0
		if c.base != nil {
			look(shownOf(c.base.Latency))
			base = base || len(c.base.Latency) > 1
		}
	}
	if len(lines) == 0 || most == 0 {
		return nil
	}
	longest := 0
	for _, l := range lines {
		longest = max(longest, text.StringWidth(withBound(p.cells[l.at].Cell, p.names[l.at])))
	}
	letters := min(longest, int(width)/19) // of a name beside its line
	right := width - 20 - page.Px(nameColumn*float64(letters))
	bottom := page.Px(top + max(190, 14*float64(len(lines))))
	d := &page.Drawing{ID: id, Width: width, Height: bottom + 34, Title: "Latency by percentile with " + p.title}
	y := newLogScale(least, most, bottom, top)
	nines := min(max(math.Ceil(-math.Log10(1-highest)-1e-9), 2), 7)
	median := -math.Log10(0.5)
	x := func(q float64) page.Px {
		n := nines
		if q < 1 {
			n = min(-math.Log10(1-q), nines)
		}
		return page.Px(left + float64(right-left)*max(n-median, 0)/(nines-median))
	}
	d.Text("heading", "", 0, 13, p.title)
	legend := page.Px(0)
	for _, l := range []struct {
		is           bool
		class, label string
		room         page.Px
	}{{service, "curve", "intended start", 132}, {service, "curve service", "real start", 108}, {base, "curve base", "baseline", 90}} {
		if l.is {
			d.Path(l.class, fmt.Sprintf("M%v 28h20", legend), "")
			d.Text("label", "", legend+24, 32, l.label)
			legend += l.room
		}
	}
	for _, v := range y.ticks() {
		d.Across(left, right, y.at(v), TickTime(v))
	}
	d.Line("axis", left, bottom, left, bottom+3)
	d.Text("tick", "", left, bottom+15, "P50")
	for n := 1.0; n <= nines; n++ {
		at := x(1 - math.Pow(10, -n))
		d.Line("axis", at, bottom, at, bottom+3)
		if beside := at < left+40; !beside && (nines <= 4 || int(n)%2 == int(nines)%2) { // of the label P50
			d.Text("tick", "middle", at, bottom+15, "P"+strconv.FormatFloat(100-math.Pow(10, 2-n), 'f', max(0, int(n)-2), 64))
		}
	}
	d.Text("tick", "", 0, top-8, "latency")
	d.Line("axis", left, bottom, right, bottom)
	axis := "percentile"
	if slices.ContainsFunc(lines, func(l line) bool { return p.cells[l.at].AtLeast }) {
		axis += lowerBounds
	}
	d.Text("tick", "middle", (left+right)/2, bottom+30, axis)
	var ends []ending
	for i := range lines {
		l := &lines[i]
		c := p.cells[l.at]
		p50, _ := at(c.Latency, 0.5)
		p99, _ := at(c.Latency, 0.99)
		p999, _ := at(c.Latency, 0.999)
		hover := fmt.Sprintf("%s: P50 %s µs, P99 %s µs, P99.9 %s µs", p.names[l.at],
			withBound(c.Cell, page.Microseconds(p50)), withBound(c.Cell, page.Microseconds(p99)), withBound(c.Cell, page.Microseconds(p999)))
		if c.base != nil && len(c.base.Latency) > 1 {
			d.Path("curve base "+c.hue, curve(shownOf(c.base.Latency), x, y), "baseline of "+p.names[l.at])
		}
		if len(c.Service) > 1 {
			d.Path("curve service "+c.hue, curve(shownOf(c.Service), x, y), p.names[l.at]+", from the real start")
		}
		d.Path("curve "+c.hue+bold(c.Compress), curve(l.points, x, y), hover)
		end := l.points[len(l.points)-1]
		ends = append(ends, ending{withBound(c.Cell, p.names[l.at]), c.hue, page.Place{X: x(end.Quantile), Y: y.at(end.US)}})
	}
	nameEnds(d, right, top, bottom, letters, ends)
	d.Desc = fmt.Sprintf("Lines for %s. The slowest operations take least with %s and most with %s. The table of the figures has the percentiles.",
		page.Plural(len(lines), "setting"), ends[len(ends)-1].name, ends[0].name)
	return d
}

// ending is where a line ends, and the name to write there.
type ending struct {
	name, hue string
	at        page.Place
}

// nameEnds sorts the ends of lines from the top, and writes the names beside them: each at its end
// if there is room.
func nameEnds(d *page.Drawing, right, top, bottom page.Px, letters int, ends []ending) {
	const apart = 13
	slices.SortStableFunc(ends, func(a, b ending) int { return cmp.Compare(a.at.Y, b.at.Y) })
	places := make([]page.Px, len(ends))
	for i, e := range ends {
		places[i] = max(e.at.Y+4, top+4)
		if i > 0 {
			places[i] = max(places[i], places[i-1]+apart)
		}
	}
	limit := bottom + 4
	for i, e := range slices.Backward(ends) {
		places[i] = min(places[i], limit)
		limit = places[i] - apart
		d.Path("lead "+e.hue, fmt.Sprintf("M%v %vH%vL%v %v", e.at.X, e.at.Y, right+3, right+13, places[i]-4), "")
		d.Text("name", "", right+16, places[i], text.Snip(e.name, letters, "…"))
	}
}

// bold is the class of what has a dictionary.
func bold(compress string) string {
	if strings.Contains(compress, "+dict") {
		return " dictionary"
	}
	return ""
}

// costsOfCells draws the costs and savings of compression. It takes each setting with the fewest
// callers, because each has a core of its own there, and by the first client.
func costsOfCells(id string, width page.Px, cells []*benchCell) *page.Drawing {
	fewest := slices.MinFunc(cells, func(a, b *benchCell) int { return cmp.Compare(a.Concurrency, b.Concurrency) }).Concurrency
	type setting struct{ codec, compress string }
	var few []*benchCell
	for _, g := range groupedBy(cells, func(c *benchCell) setting { return setting{c.Codec, c.Compress} }) {
		if i := slices.IndexFunc(g, func(c *benchCell) bool { return c.Concurrency == fewest && c.Ratio > 0 }); i >= 0 {
			few = append(few, g[i])
		}
	}
	if len(few) < 2 {
		return nil
	}
	d := &page.Drawing{ID: id, Width: width, Height: 290, Title: "How much smaller values get, against what compressing takes"}
	const left, top, bottom, zero = 34.0, 54.0, 252.0, 62.0
	right := width - 6
	const leastPacking = 0.01 // microseconds; less is none, which a logarithm has no place for
	least, most, highest := math.Inf(1), 0.0, 1.0
	for _, c := range few {
		if us := packing(c.Cell); us >= leastPacking {
			least, most = min(least, us), max(most, us)
		}
		highest = max(highest, c.Ratio)
	}
	if most == 0 {
		least, most = 1, 10
	}
	scale := newLogScale(least*0.9, most*1.1, zero+16, right-4)
	atX := func(c *benchCell) page.Px {
		if us := packing(c.Cell); us >= leastPacking {
			return scale.at(us)
		}
		return zero - 12
	}
	step, ticks := page.NiceStep(highest*1.05, 5)
	if float64(ticks)*step < highest*1.05 {
		ticks++
	}
	atY := func(ratio float64) page.Px { return page.Px(bottom - (bottom-top)*ratio/(float64(ticks)*step)) }
	d.Text("heading", "", 0, 13, callersOf(fewest))
	d.Diamond("dot ink", left+6, 25, 5, "")
	d.Text("label", "", left+16, 29, "with a dictionary")
	d.Circle("dot ink", left+140, 25, 4, "")
	d.Text("label", "", left+149, 29, "without")
	d.Path("front", fmt.Sprintf("M%v 25h20", left+214), "")
	d.Text("label", "", left+239, 29, "none is better")
	for i := range ticks + 1 {
		y := atY(float64(i) * step)
		d.Across(left, right, y, strconv.FormatFloat(math.Round(float64(i)*step*10)/10, 'f', -1, 64))
	}
	d.Line("axis", left, bottom, right, bottom)
	if slices.ContainsFunc(few, func(c *benchCell) bool { return packing(c.Cell) < leastPacking }) {
		d.Line("axis", zero-12, bottom, zero-12, bottom+3)
		d.Text("tick", "middle", zero-12, bottom+15, "0")
	}
	free := page.Px(zero) // from where on there is room for a label
	for _, v := range scale.ticks() {
		x, label := scale.at(v), TickTime(v)
		d.Line("axis", x, bottom, x, bottom+3)
		half := page.Px(page.ColumnWidth * float64(len(label)) / 2)
		if x = min(x, width-half); x-half > free {
			d.Text("tick", "middle", x, bottom+15, label)
			free = x + half + 4
		}
	}
	d.Text("tick", "middle", (left+right)/2, bottom+31, "time to compress and decompress a value (log)")
	d.Text("tick", "", 0, top-8, "ratio")

	front := frontOf(few)
	var line strings.Builder
	for i, c := range front {
		if i == 0 {
			fmt.Fprintf(&line, "M%v %v", atX(c), atY(c.Ratio))
		} else {
			fmt.Fprintf(&line, "H%vV%v", atX(c), atY(c.Ratio))
		}
	}
	d.Path("front", line.String(), "")
	r := page.Room{Left: left, Right: right, Top: top - 2, Bottom: bottom}
	for _, c := range few {
		r.Points = append(r.Points, page.Place{X: atX(c), Y: atY(c.Ratio)})
	}
	for _, c := range few {
		hover := fmt.Sprintf("%s: ratio %.2f, %s µs", nameOf(c, few, settingParts[:2]), c.Ratio, page.Microseconds(packing(c.Cell)))
		if c.RedisBytesPerKey != nil {
			hover += fmt.Sprintf(", %.0f bytes a key in Redis", *c.RedisBytesPerKey)
		}
		if bold(c.Compress) != "" {
			d.Diamond("dot "+c.hue, atX(c), atY(c.Ratio), 6, hover)
		} else {
			d.Circle("dot "+c.hue, atX(c), atY(c.Ratio), 5, hover)
		}
	}
	// Those that nothing beats have their names first, then what finds room.
	for _, c := range slices.Concat(front, slices.DeleteFunc(slices.Clone(few), func(c *benchCell) bool { return slices.Contains(front, c) })) {
		name := nameOf(c, few, settingParts[:2])
		if at, ok := r.Label(atX(c), atY(c.Ratio), name); ok {
			class := "label"
			if slices.Contains(front, c) {
				class = "chosen"
			}
			d.Text(class, "middle", at.X, at.Y, name)
		}
	}
	var names []string
	for _, c := range front {
		names = append(names, fmt.Sprintf("%s (%.2f at %s µs)", nameOf(c, few, settingParts[:2]), c.Ratio, page.Microseconds(packing(c.Cell))))
	}
	d.Desc = fmt.Sprintf("Points for %s. No other has both a higher ratio and less time than %s.", page.Plural(len(few), "setting"), strings.Join(names, ", "))
	return d
}

// frontOf are the cells that none beats in both ratio and time, by rising time.
func frontOf(cells []*benchCell) (front []*benchCell) {
	sorted := slices.Clone(cells)
	slices.SortStableFunc(sorted, func(a, b *benchCell) int {
		return cmp.Or(cmp.Compare(packing(a.Cell), packing(b.Cell)), cmp.Compare(b.Ratio, a.Ratio))
	})
	for _, c := range sorted {
		if len(front) == 0 || c.Ratio > front[len(front)-1].Ratio {
			front = append(front, c)
		}
	}
	return front
}

// sweepPicture draws latency against the rate that was asked for, with the knee.
func sweepPicture(id string, width page.Px, sweep *Sweep, steps []*benchCell, name string) *page.Drawing {
	const left, top, bottom = 52.0, 62.0, 252.0
	right := width - 6
	title := fmt.Sprintf("%s, %s", name, callersOf(sweep.Concurrency))
	d := &page.Drawing{ID: id, Width: width, Height: bottom + 36, Title: "Latency by rate with " + title}
	least, most, fastest := math.Inf(1), 0.0, sweep.Capacity
	for _, c := range steps {
		fastest = max(fastest, c.Rate)
		for _, us := range []float64{c.P50.Median, c.P99.Median} {
			if us > 0 {
				least, most = min(least, us), max(most, us)
			}
		}
		if us, ok := at(c.Service, 0.99); ok && us > 0 {
			least, most = min(least, us), max(most, us)
		}
	}
	if most == 0 {
		least, most = 1, 10
	}
	fastest = max(fastest, 1)
	y := newLogScale(least, most, bottom, top)
	x := func(rate float64) page.Px { return left + (right-left)*page.Px(rate/fastest) }
	d.Text("heading", "", 0, 13, text.Snip(title, 50, "…"))
	hue := steps[0].hue
	for i, l := range []struct{ class, label string }{{"curve dictionary", "P99"}, {"curve service", "P99 from the real start"}, {"curve", "P50"}} {
		at := page.Px([]float64{left, left + 66, left + 240}[i])
		d.Path(l.class+" "+hue, fmt.Sprintf("M%v 28h20", at), "")
		d.Text("label", "", at+24, 32, l.label)
	}
	for _, v := range y.ticks() {
		d.Across(left, right, y.at(v), TickTime(v))
	}
	step, ticks := page.NiceStep(fastest, 4)
	for i := range ticks + 1 {
		at, anchor := x(float64(i)*step), "middle"
		d.Line("axis", at, bottom, at, bottom+3)
		if at > right-20 {
			anchor, at = "end", right+4
		}
		d.Text("tick", anchor, at, bottom+15, page.Thousands(int64(float64(i)*step)))
	}
	d.Line("axis", left, bottom, right, bottom)
	axis := "operations a second that were asked for"
	if slices.ContainsFunc(steps, func(c *benchCell) bool { return c.AtLeast }) {
		axis = "operations a second asked for" + lowerBounds
	}
	d.Text("tick", "middle", (left+right)/2, bottom+31, axis)
	d.Text("tick", "", 0, top-8, "latency")
	mark := func(at page.Px, label string) {
		d.Line("budget", at, top-8, at, bottom)
		half := page.Px(page.ColumnWidth * float64(len(label)) / 2)
		d.Text("label", "middle", min(max(at, left+half), width-half), top-12, label)
	}
	d.Desc = fmt.Sprintf("Lines for %s up to %s operations a second.", page.Plural(len(steps), "rate"), page.Thousands(int64(fastest)))
	if sweep.Knee > 0 {
		mark(x(sweep.Knee), "knee "+page.Thousands(int64(sweep.Knee))+"/s")
		d.Desc += fmt.Sprintf(" The highest rate that was kept is %s.", page.Thousands(int64(sweep.Knee)))
	} else {
		d.Desc += " None of the rates was kept."
	}
	for _, l := range []struct {
		class string
		of    func(*benchCell) (float64, bool)
	}{
		{"curve service", func(c *benchCell) (float64, bool) { return at(c.Service, 0.99) }},
		{"curve", func(c *benchCell) (float64, bool) { return c.P50.Median, true }},
		{"curve dictionary", func(c *benchCell) (float64, bool) { return c.P99.Median, true }},
	} {
		var line []page.Place
		for _, c := range steps {
			if us, ok := l.of(c); ok && us > 0 {
				line = append(line, page.Place{X: x(c.Rate), Y: y.at(us)})
			}
		}
		d.Path(l.class+" "+hue, page.Through(line), "")
	}
	for _, c := range steps {
		hover := fmt.Sprintf("%s asked for, %s done: P50 %s µs, P99 %s µs", page.Thousands(int64(c.Rate)), roundly(c.OpsPerSecond.Median),
			withBound(c.Cell, page.Microseconds(c.P50.Median)), withBound(c.Cell, page.Microseconds(c.P99.Median)))
		class := "dot "
		if c.Rate > sweep.Knee {
			class = "open "
		}
		if c.AtLeast {
			d.Text("label", "middle", x(c.Rate), y.at(c.P99.Median)-7, page.AtLeast)
		}
		d.Circle(class+hue, x(c.Rate), y.at(c.P99.Median), 4, hover)
		d.Circle(class+hue, x(c.Rate), y.at(c.P50.Median), 3, hover)
	}
	return d
}

// timelineOf draws this process over the time of the run: memory, pauses and throughput.
func timelineOf(moments []Moment) [][]*page.Drawing {
	line := func(name string, of func(*Moment) float64) Line {
		l := Line{Name: name}
		for i := range moments {
			l.Points = append(l.Points, of(&moments[i]))
		}
		return l
	}
	at := line("", func(m *Moment) float64 { return m.AtS }).Points
	memory := Series{Title: "Memory", At: at, Tick: page.TickBytes, nice: page.ByteStep, hues: []string{"hue-f", "hue-g"}, Lines: []Line{
		line("RSS", func(m *Moment) float64 { return float64(m.RSSBytes) }),
		line("heap", func(m *Moment) float64 { return float64(m.HeapBytes) }),
	}}
	rate := Series{Title: "Operations a second", At: at, Tick: func(f float64) string { return page.Thousands(int64(f)) }, Lines: []Line{
		line("throughput", func(m *Moment) float64 { return m.OpsPerSecond }),
	}}
	pauses := Series{Title: "Pauses for garbage collection", At: at, Tick: TickTime, hues: []string{"hue-d"}, Lines: []Line{
		line("pause", func(m *Moment) float64 { return m.GCPauseUS }),
	}}
	return arranged([]sketch{{"time-memory", memory.draw}, {"time-rate", rate.draw}, {"time-pauses", pauses.draw}})
}
