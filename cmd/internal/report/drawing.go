package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
)

// drawing is a picture: marks in the units of its view box, written as SVG. The class of a mark
// says in the style how it looks.
type drawing struct {
	ID, Class     string
	Width, Height px
	Title, Desc   string // for those who do not see it
	marks         strings.Builder
}

// px is a length, written to a tenth.
type px float64

func (p px) String() string { return strconv.FormatFloat(math.Round(float64(p)*10)/10, 'f', -1, 64) }

// SVG is the picture as markup.
func (d *drawing) SVG() template.HTML {
	class := ""
	if d.Class != "" {
		class = ` class="` + d.Class + `"`
	}
	return template.HTML(fmt.Sprintf("<svg%s viewBox=\"0 0 %v %v\" role=\"img\" aria-labelledby=\"%s-title %s-desc\">\n<title id=\"%s-title\">%s</title><desc id=\"%s-desc\">%s</desc>\n",
		class, d.Width, d.Height, d.ID, d.ID, d.ID, html.EscapeString(d.Title), d.ID, html.EscapeString(d.Desc)) + d.marks.String() + "</svg>")
}

// mark writes an element; hover is its tooltip.
func (d *drawing) mark(hover, element, format string, a ...any) {
	fmt.Fprintf(&d.marks, "<"+element+" "+format, a...)
	if hover == "" {
		d.marks.WriteString("/>\n")
		return
	}
	d.marks.WriteString("><title>" + html.EscapeString(hover) + "</title></" + element + ">\n")
}

func (d *drawing) rect(class string, x, y, w, h px, hover string) {
	d.mark(hover, "rect", `class="%s" x="%v" y="%v" width="%v" height="%v"`, class, x, y, max(w, 0), max(h, 0))
}

func (d *drawing) line(class string, x, y, x2, y2 px) {
	d.mark("", "path", `class="%s" d="M%v %vL%v %v"`, class, x, y, x2, y2)
}

// path is a line through points, or whatever d says.
func (d *drawing) path(class, data, hover string) {
	d.mark(hover, "path", `class="%s" d="%s"`, class, data)
}

func (d *drawing) text(class, anchor string, x, y px, s string) {
	if anchor != "" {
		anchor = ` text-anchor="` + anchor + `"`
	}
	fmt.Fprintf(&d.marks, "<text class=\"%s\" x=\"%v\" y=\"%v\"%s>%s</text>\n", class, x, y, anchor, html.EscapeString(s))
}

func (d *drawing) circle(class string, x, y, r px, hover string) {
	d.mark(hover, "circle", `class="%s" cx="%v" cy="%v" r="%v"`, class, x, y, r)
}

func (d *drawing) diamond(class string, x, y, r px, hover string) {
	d.path(class, fmt.Sprintf("M%v %vl%v %vl-%v %vl-%v -%vz", x, y-r, r, r, r, r, r, r), hover)
}

func (d *drawing) cross(class string, x, y, r px, hover string) {
	d.path(class, fmt.Sprintf("M%v %vm-%v -%vl%v %vm0 -%vl-%v %v", x, y, r, r, 2*r, 2*r, 2*r, 2*r, 2*r), hover)
}

// across is a line of the grid with what it stands for.
func (d *drawing) across(left, right, y px, label string) {
	d.line("grid", left, y, right, y)
	d.text("tick", "end", left-5, y+4, label)
}

// through is a line through places, as the data of a path.
func through(all []place) string {
	var b strings.Builder
	for i, p := range all {
		letter := "L"
		if i == 0 {
			letter = "M"
		}
		fmt.Fprintf(&b, "%s%v %v", letter, p.x, p.y)
	}
	return b.String()
}

// column is what a column of text takes at most in the fonts of the page, at the 11.5 units of the
// style.
const column = 7.4

// room finds places for the labels of points.
type room struct {
	left, right, top, bottom px
	points                   []place // that a label should not cover
	upright                  px      // a line from top to bottom, which it should not cover either; 0 for none
	taken                    []place // middles of the labels that were placed, which none may cover
	halves                   []px    // and half of their widths
}

type place struct{ x, y px }

// label finds a place for the middle of the label of the point x, y, where it covers the least. ok
// is false if there is none.
func (r *room) label(x, y px, label string) (place, bool) {
	half := px(column * float64(text.StringWidth(label)) / 2)
	inside := func(x px) px { return min(max(x, r.left+half+2), r.right-half) }
	best, fewest := place{}, math.MaxInt
	for _, at := range []place{{inside(x), y - 14}, {inside(x), y + 23}, {x - half - 14, y + 4}, {x + half + 14, y + 4}, {inside(x - half), y - 26}, {inside(x - half), y + 35}, {inside(x + half), y - 26}} {
		if at.x != inside(at.x) || at.y < r.top+10 || at.y > r.bottom-4 || r.isTaken(at, half) {
			continue
		}
		covered := 0
		for _, p := range r.points {
			if max(p.x-at.x, at.x-p.x) < half+5 && p.y > at.y-14 && p.y < at.y+7 {
				covered++
			}
		}
		if r.upright > 0 && max(r.upright-at.x, at.x-r.upright) < half+2 {
			covered++
		}
		if covered < fewest {
			best, fewest = at, covered
		}
	}
	if fewest == math.MaxInt {
		return place{}, false
	}
	r.taken, r.halves = append(r.taken, best), append(r.halves, half)
	return best, true
}

func (r *room) isTaken(at place, half px) bool {
	for i, t := range r.taken {
		if max(t.x-at.x, at.x-t.x) < half+r.halves[i]+4 && max(t.y-at.y, at.y-t.y) < 13 {
			return true
		}
	}
	return false
}

// niceStep divides up to most into at most n steps of 1, 2 or 5 times a power of ten.
func niceStep(most float64, n int) (step float64, steps int) {
	power := math.Pow(10, math.Floor(math.Log10(most/float64(n))))
	for _, f := range []float64{1, 2, 5, 10} {
		step = f * power
		if most/step <= float64(n) {
			break
		}
	}
	return step, int(most/step + 1e-9)
}

// byteStep is niceStep in the unit of most.
func byteStep(most float64, n int) (step float64, steps int) {
	unit := 1.0
	for most/unit >= 1024 {
		unit *= 1024
	}
	step, steps = niceStep(max(most, 1)/unit, n)
	return step * unit, steps
}

// tickBytes is a number of bytes without digits that say nothing.
func tickBytes(n float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	unit := 0
	for n >= 1024 && unit < len(units)-1 {
		n, unit = n/1024, unit+1
	}
	if n == 0 {
		return "0"
	}
	return strconv.FormatFloat(math.Round(n*100)/100, 'f', -1, 64) + " " + units[unit]
}
