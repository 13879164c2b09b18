package outcome

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
)

// best marks the best cell of its column among those with the same number of callers, and the cells
// with no significant difference from it.
const best = "*"

// TextOptions say how much to show.
type TextOptions struct {
	Stages bool // the percentiles of each stage of each cell, too
}

// tables are a run as tables.
type tables struct {
	page.Sheet
	run     *Run
	figures []figure // of the summaries, the same in all of them, so that one legend explains them
	omitted []string // names of figures without room
	unknown []string // figures without a value, with the reason
}

// WriteText writes the run as tables, one for each set of values, and ends in a sentence that says
// what to choose.
func (r *Run) WriteText(w page.Sheet, o TextOptions) {
	t := &tables{Sheet: w, run: r}
	e := r.Environment
	t.Hanging("", fmt.Sprintf("%s, %s, %d cores, %s", keyspace.ServerName(e.RedisVersion), e.Go, e.Cores, e.CPU))
	if text := versions(e.Libraries); text != "" {
		t.Hanging("", "Libraries: "+text)
	}
	if s := oneServer(r.Cells); s != "" {
		t.Hanging("", "Server: "+s)
	}
	groups := byDataset(r.Cells)
	for _, cells := range groups {
		slices.SortStableFunc(cells, func(a, b Cell) int {
			if len(r.Sweeps) > 0 { // where each has rates of its own
				return cmp.Compare(a.Concurrency, b.Concurrency)
			}
			return cmp.Or(cmp.Compare(a.Concurrency, b.Concurrency), cmp.Compare(a.Rate, b.Rate))
		})
	}
	shown := make([][]Cell, len(groups)) // in the summaries
	for i, cells := range groups {
		shown[i] = atKnees(r, cells)
	}
	if len(groups) > 0 {
		t.choose(shown)
		t.legend(shown)
	}
	notes := append(slices.Clone(e.Notes), r.Warnings()...)
	if e.Embedded {
		notes = slices.Insert(notes, 0, "EMBEDDED SERVER: no redis-server was found, or it was asked for: this is miniredis within this process. Ratios are exact; latencies mean little, "+
			"and bytes a key are unknown. Debian: apt-get install redis-server")
	}
	if len(notes) > 0 {
		printable.Fprintf(w, "\n")
		t.Wrapped(notes...)
	}
	for i, cells := range groups {
		t.dataset(cells, shown[i], o)
	}
	t.skipped(r.Skipped)
	for _, d := range withoutCells(r) {
		printable.Fprintf(w, "\n")
		t.Wrapped(d.Dataset + ": not measured, for every setting needs a dictionary, and none pays")
		t.dictionaries(d.Dataset, d.Track)
	}
	printable.Fprintf(w, "\n")
	if notes := libraryNotes(e.Libraries); len(notes) > 0 {
		t.Wrapped(notes...)
		printable.Fprintf(w, "\n")
	}
	for _, c := range r.Cells {
		if !c.Verified {
			t.Wrapped(fmt.Sprintf("%s %s %s, %s: %s", failure(&c), c.Dataset, strings.ReplaceAll(cellTitle(r.Cells)(c), " + ", " "), callersOf(c.Concurrency), c.Error))
		}
	}
	switch {
	case e.Interrupted:
		printable.Fprintf(w, "No advice: the run was interrupted.\n")
	case len(r.Findings) > 0:
		findings(t.Sheet, r.Findings)
	default:
		t.Wrapped(append(rateLines(r), verdict(r)...)...)
	}
}

// dataset shows the cells of a set, and of them those that go into the summary.
func (t *tables) dataset(cells, shown []Cell, o TextOptions) {
	first := cells[0]
	printable.Fprintf(t, "\n")
	title := fmt.Sprintf("%s: %d values of %.0f bytes in the mean", setName(first, t.run.Cells), first.Values, float64(first.RawBytes)/float64(first.Values))
	if slices.ContainsFunc(t.figures, func(f figure) bool { return f.name == perKey }) {
		title += fmt.Sprintf("; %s over %d keys", perKey, first.Keys)
	}
	if len(shown) < len(cells) {
		title += "; each cell at its knee, the highest rate that it kept, or at the lowest where it kept none"
	}
	t.Hanging("", title)
	t.summary(shown)
	t.sweeps(cells)
	t.unstartedRates(cells)
	t.lateGenerator(cells)
	t.dictionaries(first.Dataset, first.Track)
	printable.Fprintf(t, "\n")
	t.Hanging("", t.aboutMedians())
	t.medians(shown)
	if o.Stages {
		printable.Fprintf(t, "\nlatency of each stage, µs\n")
		t.percentiles(cells)
	}
}

// versions are those of all libraries, those of one module together.
func versions(all []Library) string {
	var parts []string
	for i, l := range all {
		same := func(o Library) bool { return o.Module == l.Module && o.Version == l.Version }
		if l.Module == "" || slices.ContainsFunc(all[:i], same) {
			continue
		}
		var names []string
		for _, o := range all[i:] {
			if same(o) {
				names = append(names, o.Name)
			}
		}
		path := majorSuffix.ReplaceAllString(strings.TrimPrefix(l.Module, "github.com/"), "")
		parts = append(parts, strings.Join(names, ", ")+": "+strings.TrimSpace(path+" "+l.Version))
	}
	return strings.Join(parts, "; ")
}

// libraryNotes are what to know of some before they are chosen.
func libraryNotes(all []Library) (notes []string) {
	for _, l := range all {
		if l.Note != "" {
			notes = append(notes, fmt.Sprintf("%s: %s", strings.TrimSpace(l.Name+" "+l.Version), l.Note))
		}
	}
	return notes
}

var majorSuffix = regexp.MustCompile(`/v[0-9]+$`)

// oneServer are the settings that all servers have.
func oneServer(cells []Cell) string {
	if len(cells) == 0 || slices.ContainsFunc(cells, func(c Cell) bool { return c.Server != cells[0].Server }) {
		return ""
	}
	return cells[0].Server
}

// withoutCells has a dictionary, or the reason for none, of each set that there are no cells of.
func withoutCells(r *Run) (first []Dictionary) {
	if r.Environment.Interrupted {
		return nil
	}
	for _, d := range r.Dictionaries {
		known := slices.ContainsFunc(first, func(o Dictionary) bool { return o.Dataset == d.Dataset && o.Track == d.Track })
		if !known && !slices.ContainsFunc(r.Cells, func(c Cell) bool { return c.Dataset == d.Dataset && c.Track == d.Track }) {
			first = append(first, d)
		}
	}
	return first
}

// failure is the label of a cell without figures: FAILED if it had wrong data back, ERROR if it
// could not be measured.
func failure(c *Cell) string {
	if c.Mismatch {
		return "FAILED"
	}
	return "ERROR"
}

// byDataset splits cells into runs of one data set, each a copy.
func byDataset(cells []Cell) [][]Cell {
	var groups [][]Cell
	for i, c := range cells {
		if i == 0 || c.Dataset != cells[i-1].Dataset || c.Track != cells[i-1].Track {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], c)
	}
	return groups
}

// dimension is a column that tells cells apart.
type dimension struct {
	name   string
	of     func(Cell) any
	always bool // else where cells differ in it
}

var dimensions = []dimension{
	{"server", func(c Cell) any { return c.Server }, false},
	{"client", func(c Cell) any { return c.Client }, false},
	{"batch", func(c Cell) any { return cmp.Or(c.Batch, "single") }, false},
	{"codec", func(c Cell) any { return c.Codec }, true},
	{"compress", func(c Cell) any { return c.Compress }, true},
}

// identityColumns are the columns that tell cells apart.
func identityColumns(cells []Cell) (header []string, row func(c Cell) []any) {
	var shown []dimension
	for _, d := range dimensions {
		if d.always || slices.ContainsFunc(cells, func(c Cell) bool { return d.of(c) != d.of(cells[0]) }) {
			shown = append(shown, d)
			header = append(header, d.name)
		}
	}
	return header, func(c Cell) (row []any) {
		for _, d := range shown {
			row = append(row, d.of(c))
		}
		return row
	}
}

// loadColumns are those of the load, if it differs between cells.
func (t *tables) loadColumns() (header []string, row func(c Cell) []any) {
	all := t.run.Cells
	callers, rates := anyDiffer(all, func(c Cell) int { return c.Concurrency }), anyDiffer(all, func(c Cell) float64 { return c.Rate })
	if callers {
		header = append(header, "callers")
	}
	if rates {
		header = append(header, "rate")
	}
	return header, func(c Cell) (row []any) {
		if callers {
			row = append(row, c.Concurrency)
		}
		if rates {
			row = append(row, fmt.Sprintf("%.0f", c.Rate))
		}
		return row
	}
}

// anyDiffer reports whether cells differ in something.
func anyDiffer[T comparable](cells []Cell, in func(Cell) T) bool {
	return slices.ContainsFunc(cells, func(c Cell) bool { return in(c) != in(cells[0]) })
}

// legend describes the load, and explains the figures in the table.
func (t *tables) legend(groups [][]Cell) {
	e := t.run.Environment
	if e.Load != "" {
		load := e.Load
		if cells := t.run.Cells; !anyDiffer(cells, func(c Cell) int { return c.Concurrency }) {
			load += "; " + callersOf(cells[0].Concurrency)
		}
		if c := t.run.Cells[0]; c.Rate > 0 && !anyDiffer(t.run.Cells, func(c Cell) float64 { return c.Rate }) {
			load += fmt.Sprintf("; %.0f operations a second", c.Rate)
		}
		t.Hanging("", "Load: "+load)
	}
	rounds := fmt.Sprintf("%d rounds", e.Rounds)
	if e.Rounds == 1 {
		rounds = "1 round"
	}
	var order []string
	names := map[string][]string{}
	for _, f := range t.figures {
		if f.about == "" {
			continue
		}
		if names[f.about] == nil {
			order = append(order, f.about)
		}
		names[f.about] = append(names[f.about], f.name)
	}
	var items []string
	for _, about := range order {
		what := about
		if about == ofOperation && t.open() {
			what += ", from when it was to start"
		}
		items = append(items, page.Enumerated(names[about])+": "+what)
	}
	if slices.ContainsFunc(groups, func(cells []Cell) bool { marks, _ := t.marks(cells); return len(marks) > 0 }) {
		items = append(items, best+": the best, or without a significant difference from it")
	}
	if slices.ContainsFunc(t.run.Cells, func(c Cell) bool { return c.Verified && c.AtLeast }) {
		items = append(items, page.AtLeast+": "+meansAtLeast)
	}
	if len(t.omitted) > 0 {
		items = append(items, page.LeftOut(t.omitted))
	}
	if len(t.unknown) > 0 {
		items = append(items, "Not known: "+strings.Join(t.unknown, ", "))
	}
	t.Legend(fmt.Sprintf("%s, %.3g s a cell", rounds, e.DurationS), items...)
}

// open reports whether operations came at a rate.
func (t *tables) open() bool {
	return slices.ContainsFunc(t.run.Cells, func(c Cell) bool { return c.Rate > 0 })
}

// summary writes a table of all figures. Below it, it lists the figures without a significant best.
func (t *tables) summary(cells []Cell) {
	t.summaryTable(cells).Render()
	_, untold := t.marks(cells)
	for _, line := range untold {
		t.Hanging("  ", line)
	}
}

func (t *tables) summaryTable(cells []Cell) *page.Table {
	header, name := identityColumns(cells)
	left := len(header)
	loads, load := t.loadColumns()
	header = append(header, loads...)
	for _, f := range t.figures {
		header = append(header, f.name)
	}
	marks, _ := t.marks(cells)
	out := t.Table(left, header...)
	out.Drop = expendable
	for i, c := range cells {
		row := append(name(c), load(c)...)
		for j, f := range t.figures {
			text := "-"
			switch {
			case !c.Verified && j == 0:
				text = failure(&c)
			case !c.Verified:
			case f.name == limited:
				text = cmp.Or(c.Limit, text)
			case !math.IsNaN(f.value(c).Median):
				text = f.shown(c)
			}
			if marks[spot{i, f.name}] {
				text += best
			}
			row = append(row, text)
		}
		out.Row(row...)
	}
	return out
}

// dictionaries describes the extra cost of the settings with a dictionary. It was trained on values
// that are not measured, and the bytes of the keys include its own.
func (t *tables) dictionaries(dataset, track string) {
	shown := slices.DeleteFunc(slices.Clone(t.run.Dictionaries), func(d Dictionary) bool { return d.Dataset != dataset || d.Track != track })
	if len(shown) == 0 {
		return
	}
	var none []string
	made := slices.DeleteFunc(slices.Clone(shown), func(d Dictionary) bool {
		if d.Reason != "" {
			none = append(none, fmt.Sprintf("%s %s: %s", d.Codec, d.Compress, d.Reason))
		}
		return d.Reason != ""
	})
	printable.Fprintf(t, "\n")
	t.Hanging("", "dictionaries, trained on equally many other values; B/key includes their bytes")
	if len(made) > 0 {
		const ratio = "ratio without headers"
		out := t.Table(3, "codec", "compress", "builder", "size", ratio, "seconds")
		out.Short, out.Drop = map[string]string{ratio: "bare ratio"}, []string{"seconds", "builder"}
		for _, d := range made {
			out.Row(d.Codec, d.Compress, d.Builder, printable.Size(d.Bytes), fmt.Sprintf("%.2f", d.Payload), fmt.Sprintf("%.1f", d.Seconds))
		}
		out.Render()
	}
	t.Wrapped(none...)
}

// shortStages are [Stages] where there is little room.
var shortStages = map[string]string{"serialize": "ser.", "compress": "comp.", "decompress": "decomp.", "deserialize": "deser."}
