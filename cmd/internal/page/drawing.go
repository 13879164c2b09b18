package page

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
)

// Drawing is a picture: marks in the units of its view box, written as SVG. The class of a mark
// says in the style how it looks.
type Drawing struct {
	ID, Class     string
	Width, Height Px
	Title, Desc   string // for those who do not see it
	marks         strings.Builder
}

// Px is a length, written to a tenth.
type Px float64

func (p Px) String() string { return strconv.FormatFloat(math.Round(float64(p)*10)/10, 'f', -1, 64) }

// SVG is the picture as markup.
func (d *Drawing) SVG() template.HTML {
	class := ""
	if d.Class != "" {
		class = ` class="` + d.Class + `"`
	}
	return template.HTML(fmt.Sprintf("<svg%s viewBox=\"0 0 %v %v\" role=\"img\" aria-labelledby=\"%s-title %s-desc\">\n<title id=\"%s-title\">%s</title><desc id=\"%s-desc\">%s</desc>\n",
		class, d.Width, d.Height, d.ID, d.ID, d.ID, html.EscapeString(d.Title), d.ID, html.EscapeString(d.Desc)) + d.marks.String() + "</svg>")
}

// mark writes an element; hover is its tooltip.
func (d *Drawing) mark(hover, element, format string, a ...any) {
	fmt.Fprintf(&d.marks, "<"+element+" "+format, a...)
	if hover == "" {
		d.marks.WriteString("/>\n")
		return
	}
	d.marks.WriteString("><title>" + html.EscapeString(hover) + "</title></" + element + ">\n")
}

// Rect draws a rectangle.
func (d *Drawing) Rect(class string, x, y, w, h Px, hover string) {
	d.mark(hover, "rect", `class="%s" x="%v" y="%v" width="%v" height="%v"`, class, x, y, max(w, 0), max(h, 0))
}

// Line draws a line.
func (d *Drawing) Line(class string, x, y, x2, y2 Px) {
	d.mark("", "path", `class="%s" d="M%v %vL%v %v"`, class, x, y, x2, y2)
}

// Path is a line through points, or whatever d says.
func (d *Drawing) Path(class, data, hover string) {
	d.mark(hover, "path", `class="%s" d="%s"`, class, data)
}

// Text writes a text; anchor is start, middle or end, and start if it is empty.
func (d *Drawing) Text(class, anchor string, x, y Px, s string) {
	if anchor != "" {
		anchor = ` text-anchor="` + anchor + `"`
	}
	fmt.Fprintf(&d.marks, "<text class=\"%s\" x=\"%v\" y=\"%v\"%s>%s</text>\n", class, x, y, anchor, html.EscapeString(s))
}

// Circle draws a circle.
func (d *Drawing) Circle(class string, x, y, r Px, hover string) {
	d.mark(hover, "circle", `class="%s" cx="%v" cy="%v" r="%v"`, class, x, y, r)
}

// Diamond draws a square on its corner.
func (d *Drawing) Diamond(class string, x, y, r Px, hover string) {
	d.Path(class, fmt.Sprintf("M%v %vl%v %vl-%v %vl-%v -%vz", x, y-r, r, r, r, r, r, r), hover)
}

// Cross draws two lines.
func (d *Drawing) Cross(class string, x, y, r Px, hover string) {
	d.Path(class, fmt.Sprintf("M%v %vm-%v -%vl%v %vm0 -%vl-%v %v", x, y, r, r, 2*r, 2*r, 2*r, 2*r, 2*r), hover)
}

// Add puts the marks of another drawing above its own.
func (d *Drawing) Add(above *Drawing) { d.marks.WriteString(above.marks.String()) }

// Across is a line of the grid with what it stands for.
func (d *Drawing) Across(left, right, y Px, label string) {
	d.Line("grid", left, y, right, y)
	d.Text("tick", "end", left-5, y+4, label)
}

// Down is a line of the grid with what it stands for below it, within the picture.
func (d *Drawing) Down(x, top, bottom Px, label string) {
	d.Line("grid", x, top, x, bottom)
	anchor, half := "middle", Px(ColumnWidth*float64(text.StringWidth(label))/2)
	switch {
	case x < half:
		anchor = "start"
	case x > d.Width-half:
		anchor = "end"
	}
	d.Text("tick", anchor, x, bottom+15, label)
}

// Through is a line through places, as the data of a path.
func Through(all []Place) string {
	var b strings.Builder
	for i, p := range all {
		letter := "L"
		if i == 0 {
			letter = "M"
		}
		fmt.Fprintf(&b, "%s%v %v", letter, p.X, p.Y)
	}
	return b.String()
}

// ColumnWidth is what a column of text takes at most in the fonts of the page, at the 12 units of
// the style.
const ColumnWidth = 7.7

// Room finds places for the labels of points.
type Room struct {
	Left, Right, Top, Bottom Px
	Points                   []Place // that a label should not cover
	Upright                  Px      // a line from top to bottom, which it should not cover either; 0 for none
	taken                    []Place // middles of the labels that were placed, which none may cover
	halves                   []Px    // and half of their widths
}

// Place is a point of a picture.
type Place struct{ X, Y Px }

// Label finds a place for the middle of the label of the point x, y, where it covers the least. ok
// is false if there is none.
func (r *Room) Label(x, y Px, label string) (Place, bool) {
	half := Px(ColumnWidth * float64(text.StringWidth(label)) / 2)
	inside := func(x Px) Px { return min(max(x, r.Left+half+2), r.Right-half) }
	best, fewest := Place{}, math.MaxInt
	for _, at := range []Place{{inside(x), y - 14}, {inside(x), y + 23}, {x - half - 14, y + 4}, {x + half + 14, y + 4}, {inside(x - half), y - 26}, {inside(x - half), y + 35}, {inside(x + half), y - 26}} {
		if at.X != inside(at.X) || at.Y < r.Top+10 || at.Y > r.Bottom-4 || r.isTaken(at, half) {
			continue
		}
		covered := 0
		for _, p := range r.Points {
			if max(p.X-at.X, at.X-p.X) < half+5 && p.Y > at.Y-14 && p.Y < at.Y+7 {
				covered++
			}
		}
		if r.Upright > 0 && max(r.Upright-at.X, at.X-r.Upright) < half+2 {
			covered++
		}
		if covered < fewest {
			best, fewest = at, covered
		}
	}
	if fewest == math.MaxInt {
		return Place{}, false
	}
	r.taken, r.halves = append(r.taken, best), append(r.halves, half)
	return best, true
}

func (r *Room) isTaken(at Place, half Px) bool {
	for i, t := range r.taken {
		if max(t.X-at.X, at.X-t.X) < half+r.halves[i]+4 && max(t.Y-at.Y, at.Y-t.Y) < 13 {
			return true
		}
	}
	return false
}

// NiceStep divides up to most into at most n steps of 1, 2 or 5 times a power of ten.
func NiceStep(most float64, n int) (step float64, steps int) {
	power := math.Pow(10, math.Floor(math.Log10(most/float64(n))))
	for _, f := range []float64{1, 2, 5, 10} {
		step = f * power
		if most/step <= float64(n) {
			break
		}
	}
	return step, int(min(most/step+1e-9, float64(n)))
}

// ByteStep is niceStep in the unit of most.
func ByteStep(most float64, n int) (step float64, steps int) {
	unit := 1.0
	for most/unit >= 1024 {
		unit *= 1024
	}
	step, steps = NiceStep(max(most, 1)/unit, n)
	return step * unit, steps
}

// TickBytes is a number of bytes without digits that say nothing.
func TickBytes(n float64) string {
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
