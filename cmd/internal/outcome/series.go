package outcome

import (
	"fmt"
	"math"
	"strings"

	"github.com/balekv/bale/cmd/internal/page"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Percentiles is a picture of latencies by percentile.
type Percentiles struct {
	Title string
	Lines []Distribution
}

// Distribution is a line of [Percentiles]; Service is dotted, and may be empty.
type Distribution struct {
	Name             string
	Latency, Service []Point
}

func (p *Percentiles) draw(id string, width page.Px) *page.Drawing {
	panel := &benchPanel{title: p.Title}
	for _, l := range p.Lines {
		panel.names = append(panel.names, l.Name)
	}
	classes := families(panel.names)
	for i, l := range p.Lines {
		panel.cells = append(panel.cells, &benchCell{Cell: &Cell{Latency: l.Latency, Service: l.Service}, hue: classes[i]})
	}
	return latencyPicture(id, width, panel)
}

// Series is a picture of figures over time, both axes linear and the other one from 0.
type Series struct {
	Title  string
	At     []float64 // seconds, rising
	Lines  []Line    // Points at these times; one without any only keeps its colour
	Shaded [2]float64
	Tick   func(float64) string

	nice func(most float64, n int) (step float64, steps int) // default page.NiceStep
	hues []string                                            // of the lines; default by their place
}

// draw is nil without points.
func (s *Series) draw(id string, width page.Px) *page.Drawing {
	if len(s.At) == 0 {
		return nil
	}
	const left, top, bottom = 58.0, 38.0, 180.0
	right := width - 6
	letters := 0 // of a name beside its line, where there are more than two
	if len(s.Lines) > 2 {
		for _, l := range s.Lines {
			letters = max(letters, min(text.StringWidth(l.Name), int(width)/19))
		}
		right = width - 20 - page.Px(nameColumn*float64(letters))
	}
	d := &page.Drawing{ID: id, Width: width, Height: bottom + 34, Title: s.Title + " by time"}
	first, last, most := s.At[0], s.At[len(s.At)-1], 1.0
	for _, l := range s.Lines {
		for _, v := range l.Points {
			most = max(most, v)
		}
	}
	last = max(last, first+0.001)
	nice := s.nice
	if nice == nil {
		nice = page.NiceStep
	}
	step, ticks := nice(most, 4)
	if float64(ticks)*step < most {
		ticks++
	}
	x := func(at float64) page.Px { return left + (right-left)*page.Px((at-first)/(last-first)) }
	y := func(v float64) page.Px { return page.Px(bottom - (bottom-top)*v/(float64(ticks)*step)) }
	if from, until := s.Shaded[0], s.Shaded[1]; until > from {
		d.Rect("hatch-ground", x(max(from, first)), top, x(min(until, last))-x(max(from, first)), bottom-top, "")
	}
	d.Text("heading", "", 0, 13, s.Title)
	for i := range ticks + 1 {
		d.Across(left, right, y(float64(i)*step), s.Tick(float64(i)*step))
	}
	every, _ := page.NiceStep(last-first, 5)
	for at := math.Ceil(first/every) * every; at <= last; at += every {
		at, anchor, label := x(at), "middle", page.Short(at)+" s"
		d.Line("axis", at, bottom, at, bottom+3)
		if at > right-16 {
			anchor, at = "end", right+4
		}
		d.Text("tick", anchor, at, bottom+15, label)
	}
	d.Line("axis", left, bottom, right, bottom)
	var said []string
	classes := familiesOf(s.Lines)
	legend := page.Px(left + 130)
	var ends []ending
	for i, l := range s.Lines {
		if len(l.Points) == 0 {
			continue
		}
		var line []page.Place
		peak := 0.0
		for j, v := range l.Points {
			peak = max(peak, v)
			line = append(line, page.Place{X: x(s.At[j]), Y: y(v)})
		}
		hue := classes[i]
		if i < len(s.hues) {
			hue = s.hues[i]
		}
		d.Path("curve "+hue, page.Through(line), "")
		said = append(said, fmt.Sprintf("%s at most %s", l.Name, s.Tick(peak)))
		switch {
		case letters > 0:
			ends = append(ends, ending{l.Name, hue, line[len(line)-1]})
		case len(s.Lines) > 1:
			d.Path("curve "+hue, fmt.Sprintf("M%v 9h20", legend), "")
			d.Text("label", "", legend+24, 13, l.Name)
			legend += max(90, page.Px(32+page.ColumnWidth*float64(text.StringWidth(l.Name))))
		}
	}
	nameEnds(d, right, top, bottom, letters, ends)
	d.Desc = fmt.Sprintf("Over %s: %s.", page.Span(last-first), strings.Join(said, ", "))
	return d
}
