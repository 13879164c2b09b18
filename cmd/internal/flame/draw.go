package flame

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/balekv/bale/cmd/internal/printable"
)

const (
	width     = 1000 // of the picture's own units; it is as wide as the page gives it
	rowHeight = 18
	charWidth = 6.3 // at a font size of 11, in the mean
	fewest    = 3   // letters of a name that are worth showing
)

// SVG draws the tree, the root above. It sets no colours; the page styles the classes. Each frame
// is in a group of class "flame-compress", "flame-serialize", "flame-network", "flame-gc",
// "flame-scheduler" or "flame-other", and the whole picture has class "flame". A frame's tooltip
// has its whole name and figures. For a screen reader it is one image, and its label has the title
// and the largest costs.
func (t *Tree) SVG(title string) string {
	depth := 0
	for _, n := range t.Nodes {
		depth = max(depth, n.Depth)
	}
	var b strings.Builder
	label := html.EscapeString(title + ": " + t.Summary())
	fmt.Fprintf(&b, `<svg class="flame" role="img" aria-label="%s" viewBox="0 0 %d %d" width="100%%" font-size="11" xmlns="http://www.w3.org/2000/svg">`,
		label, width, (depth+1)*rowHeight)
	b.WriteByte('\n')
	for i, x := range t.starts() {
		n := t.Nodes[i]
		w := t.part(n.Value) * width
		y := n.Depth * rowHeight
		fmt.Fprintf(&b, `<g class="flame-%v"><title>%s: %s, %s</title><rect x="%s" y="%d" width="%s" height="%d"/>`,
			n.Category, html.EscapeString(n.Name), percent(t.part(n.Value)), t.format(n.Value), number(x*width), y, number(w), rowHeight-1)
		if room := int((w - 6) / charWidth); room >= fewest {
			name := []rune(n.Name)
			if len(name) > room {
				name = append(name[:room-1:room-1], '…')
			}
			fmt.Fprintf(&b, `<text x="%s" y="%d">%s</text>`, number(x*width+3), y+rowHeight-5, html.EscapeString(string(name)))
		}
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>")
	return b.String()
}

// Summary says in words what the tree shows: the total, the shares of it, and the functions that
// cost most without what they called.
func (t *Tree) Summary() string {
	if t.Total == 0 {
		return "no samples"
	}
	parts := []string{t.format(t.Total)}
	shown := Categories()
	slices.SortStableFunc(shown, func(a, b Category) int { return cmp.Compare(t.Shares[b], t.Shares[a]) })
	for _, c := range shown {
		if t.Shares[c] > 0 {
			parts = append(parts, c.Label()+" "+percent(t.Shares[c]))
		}
	}
	text := strings.Join(parts, ", ")
	own := map[string]int64{}
	var path []int
	for i, n := range t.Nodes {
		path = append(path[:n.Depth], i)
		if n.Name != otherName && n.Depth > 0 {
			own[n.Name] += n.Value
		}
		if n.Depth > 1 {
			own[t.Nodes[path[n.Depth-1]].Name] -= n.Value
		}
	}
	names := make([]string, 0, len(own))
	for name := range own {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(own[b], own[a]), cmp.Compare(a, b)) })
	var most []string
	for _, name := range names[:min(3, len(names))] {
		if own[name] > 0 {
			most = append(most, name+" "+percent(t.part(own[name])))
		}
	}
	if len(most) > 0 {
		text += "; most in " + strings.Join(most, ", ")
	}
	return text
}

// starts are where nodes begin, as a part of the whole width: each where the sibling before it
// ends.
func (t *Tree) starts() []float64 {
	starts := make([]float64, len(t.Nodes))
	next := []float64{0} // where the next node of each depth begins
	for i, n := range t.Nodes {
		x := next[n.Depth]
		starts[i] = x
		next = append(next[:n.Depth], x+t.part(n.Value), x)
	}
	return starts
}

// part is a value as a part of the total.
func (t *Tree) part(v int64) float64 { return float64(v) / float64(max(1, t.Total)) }

func (t *Tree) format(v int64) string {
	switch t.Unit {
	case "nanoseconds":
		d := time.Duration(v)
		for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
			if d >= unit {
				return d.Round(unit / 100).String()
			}
		}
		return d.String()
	case "bytes":
		return printable.Size(v)
	}
	return strconv.FormatInt(v, 10) + " " + t.Unit
}

func percent(f float64) string { return fmt.Sprintf("%.1f%%", 100*f) }

// number is a coordinate, to a tenth.
func number(f float64) string { return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0") }

// Forest is the trees of a run, for a page that draws them. Nil ones are null.
//
// As JSON it is an object. "names" are the names of all functions, and "categories" the names of
// the categories. "trees" has for each tree its "unit", its "total", its "shares" in the order of
// the Category numbers, and its "nodes". A node is four numbers: the index of the name, the depth,
// the value, and the number of the Category. The value is in 1/100,000 of the total, rounded down,
// so that children never stick out.
type Forest []*Tree

// parts of the total are what values are counted in.
const parts = 100_000

func partsOf(v, total int64) int64 {
	if v >= total {
		return parts
	}
	hi, lo := bits.Mul64(uint64(v), parts)
	q, _ := bits.Div64(hi, lo, uint64(total))
	return int64(q)
}

// MarshalJSON is the JSON above: 11 to 15 bytes a node.
func (f Forest) MarshalJSON() ([]byte, error) {
	type packed struct {
		Unit   string              `json:"unit"`
		Total  int64               `json:"total"`
		Shares [categories]float64 `json:"shares"`
		Nodes  []int64             `json:"nodes"`
	}
	out := struct {
		Categories []string  `json:"categories"`
		Names      []string  `json:"names"`
		Trees      []*packed `json:"trees"`
	}{Names: []string{}, Trees: []*packed{}}
	for c := range Category(categories) {
		out.Categories = append(out.Categories, c.String())
	}
	index := map[string]int64{}
	for _, t := range f {
		if t == nil {
			out.Trees = append(out.Trees, nil)
			continue
		}
		p := &packed{t.Unit, t.Total, t.Shares, make([]int64, 0, 4*len(t.Nodes))}
		for c, s := range p.Shares {
			p.Shares[c], _ = strconv.ParseFloat(strconv.FormatFloat(s, 'f', 4, 64), 64)
		}
		for _, n := range t.Nodes {
			at, ok := index[n.Name]
			if !ok {
				at = int64(len(out.Names))
				index[n.Name] = at
				out.Names = append(out.Names, n.Name)
			}
			p.Nodes = append(p.Nodes, at, int64(n.Depth), partsOf(n.Value, t.Total), int64(n.Category))
		}
		out.Trees = append(out.Trees, p)
	}
	return json.Marshal(out)
}
