package report

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/balekv/bale/cmd/bale/internal/outcome"
)

// Width is how many columns reports take at most, where they are not told of a terminal.
const Width = 100

// best marks the best cell of its column, among those with as many callers, and those that cannot be told from it.
const best = "*"

// Options say how much to show.
type Options struct {
	Stages bool // the percentiles of each stage of each cell, too
	Width  int  // columns that text and tables take at most, from 40; Width if zero
}

// sheet is what a report is written on.
type sheet struct {
	io.Writer
	width int
}

// tables are a run as tables.
type tables struct {
	sheet
	run     *outcome.Run
	figures []figure // of the summaries, the same in all of them, so that one legend explains them
	left    []string // names of those that there is no room for
	lacking []string // those that nothing is known of, and why
}

const leastWidth = 40

// Table writes the result as tables, one for each set of values, and ends in a sentence that says what
// to choose.
func Table(w io.Writer, r *outcome.Run, o Options) {
	t := &tables{sheet: sheet{w, max(leastWidth, cmp.Or(o.Width, Width))}, run: r}
	e := r.Environment
	t.hanging("", fmt.Sprintf("Redis %s, %s, %d cores, %s", e.RedisVersion, e.Go, e.Cores, e.CPU))
	if text := versions(e.Libraries); text != "" {
		t.hanging("", "Libraries: "+text)
	}
	if s := oneServer(r.Cells); s != "" {
		t.hanging("", "Server: "+s)
	}
	groups := byDataset(r.Cells)
	for _, cells := range groups {
		slices.SortStableFunc(cells, func(a, b outcome.Cell) int {
			if len(r.Sweeps) > 0 { // where each has rates of its own
				return cmp.Compare(a.Concurrency, b.Concurrency)
			}
			return cmp.Or(cmp.Compare(a.Concurrency, b.Concurrency), cmp.Compare(a.Rate, b.Rate))
		})
	}
	shown := make([][]outcome.Cell, len(groups)) // in the summaries
	for i, cells := range groups {
		shown[i] = atKnees(r, cells)
	}
	if len(groups) > 0 {
		t.choose(shown)
		t.legend(shown)
	}
	notes := slices.Clone(e.Notes)
	if e.Embedded {
		notes = slices.Insert(notes, 0, "EMBEDDED SERVER: no redis-server was found, or it was asked for: this is miniredis within this process. Ratios are exact; latencies mean little, "+
			"and bytes a key are unknown. Debian: apt-get install redis-server")
	}
	if len(notes) > 0 {
		fmt.Fprintln(w)
		t.wrapped(strings.Join(notes, "\n"))
	}
	for i, cells := range groups {
		t.dataset(cells, shown[i], o)
	}
	t.skipped(r.Skipped)
	for _, d := range withoutCells(r) {
		fmt.Fprintln(w)
		t.wrapped(d.Dataset + ": not measured, for every setting needs a dictionary, and none pays")
		t.dictionaries(d.Dataset, d.Track)
	}
	fmt.Fprintln(w)
	if notes := libraryNotes(e.Libraries); notes != "" {
		t.wrapped(notes)
		fmt.Fprintln(w)
	}
	for _, c := range r.Cells {
		if !c.Verified {
			t.wrapped(fmt.Sprintf("%s %s %s, %s: %s", Failure(c), c.Dataset, strings.ReplaceAll(titled(r.Cells)(c), " + ", " "), count(c.Concurrency), c.Error))
		}
	}
	switch {
	case e.Interrupted:
		fmt.Fprintln(w, "No advice: the run was interrupted.")
	case len(r.Findings) > 0:
		t.findings(r.Findings)
	default:
		t.wrapped(strings.Join(append(kept(r), Verdict(r)), "\n"))
	}
}

// dataset shows the cells of a set, and of them those that go into the summary.
func (t *tables) dataset(cells, shown []outcome.Cell, o Options) {
	first := cells[0]
	fmt.Fprintln(t)
	title := fmt.Sprintf("%s: %d values of %.0f bytes in the mean", setName(first, t.run.Cells), first.Values, float64(first.RawBytes)/float64(first.Values))
	if slices.ContainsFunc(t.figures, func(f figure) bool { return f.name == perKey }) {
		title += fmt.Sprintf("; %s over %d keys", perKey, first.Keys)
	}
	if len(shown) < len(cells) {
		title += "; each cell at its knee, the highest rate that it kept, or at the lowest where it kept none"
	}
	t.hanging("", title)
	t.summary(shown)
	t.sweeps(cells)
	t.givenUp(cells)
	t.late(cells)
	t.dictionaries(first.Dataset, first.Track)
	fmt.Fprintln(t)
	t.hanging("", t.aboutMedians())
	t.medians(shown)
	if o.Stages {
		fmt.Fprintln(t, "\nlatency of each stage, us")
		t.percentiles(cells)
	}
}

// versions are those of all libraries, those of one module together.
func versions(all []outcome.Library) string {
	var parts []string
	for i, l := range all {
		same := func(o outcome.Library) bool { return o.Module == l.Module && o.Version == l.Version }
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
func libraryNotes(all []outcome.Library) string {
	var notes []string
	for _, l := range all {
		if l.Note != "" {
			notes = append(notes, fmt.Sprintf("%s: %s", strings.TrimSpace(l.Name+" "+l.Version), l.Note))
		}
	}
	return strings.Join(notes, "\n")
}

var majorSuffix = regexp.MustCompile(`/v[0-9]+$`)

// oneServer are the settings that all servers have.
func oneServer(cells []outcome.Cell) string {
	if len(cells) == 0 || slices.ContainsFunc(cells, func(c outcome.Cell) bool { return c.Server != cells[0].Server }) {
		return ""
	}
	return cells[0].Server
}

// withoutCells has a dictionary, or the reason for none, of each set that there are no cells of.
func withoutCells(r *outcome.Run) (first []outcome.Dictionary) {
	if r.Environment.Interrupted {
		return nil
	}
	for _, d := range r.Dictionaries {
		known := slices.ContainsFunc(first, func(o outcome.Dictionary) bool { return o.Dataset == d.Dataset && o.Track == d.Track })
		if !known && !slices.ContainsFunc(r.Cells, func(c outcome.Cell) bool { return c.Dataset == d.Dataset && c.Track == d.Track }) {
			first = append(first, d)
		}
	}
	return first
}

// Failure is what a cell without figures is called: FAILED is one that had wrong data back, ERROR one that could not be measured.
func Failure(c outcome.Cell) string {
	if c.Mismatch {
		return "FAILED"
	}
	return "ERROR"
}

// byDataset splits cells into runs of one data set, each a copy.
func byDataset(cells []outcome.Cell) [][]outcome.Cell {
	var groups [][]outcome.Cell
	for i, c := range cells {
		if i == 0 || c.Dataset != cells[i-1].Dataset || c.Track != cells[i-1].Track {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], c)
	}
	return groups
}

// newTable makes a table with so many spaces between columns, the first left of which are aligned to the left.
func newTable(w io.Writer, gap, left int, header ...any) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Options.SeparateHeader = true
	style.Format.Header = text.FormatDefault
	style.Box.PaddingLeft = ""
	style.Box.PaddingRight = strings.Repeat(" ", gap)
	t.SetStyle(style)
	columns := make([]table.ColumnConfig, len(header))
	for i := range columns {
		columns[i] = table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight}
		if i < left {
			columns[i].Align, columns[i].AlignHeader = text.AlignLeft, text.AlignLeft
		}
	}
	t.SetColumnConfigs(columns)
	t.AppendHeader(header)
	t.SuppressTrailingSpaces()
	return t
}

// figure is a column of the summary.
type figure struct {
	name    string
	value   func(outcome.Cell) outcome.Estimate // its median is NaN where it is unknown
	format  string                              // of its median; of its interval where it is empty
	sign    int                                 // +1 where more is better, -1 where less is, 0 where neither is marked
	timed   bool                                // it is not exact: only intervals tell which is the best
	about   string                              // what it is, for the legend
	lacking string                              // why it may be unknown; empty where that goes without saying
}

func exactly(value func(outcome.Cell) float64) func(outcome.Cell) outcome.Estimate {
	return func(c outcome.Cell) outcome.Estimate { return outcome.Estimate{Median: value(c)} }
}

// The names of columns.
const (
	perKey    = "B/key"
	perSecond = "values/s"
	margin    = "95%" // the interval of perSecond
	served    = "served P99"
	limited   = "limit"
	silent    = "the embedded server does not say"
	ofProcess = "of this process, an operation"
)

var figures = []figure{
	{name: "ratio", value: exactly(func(c outcome.Cell) float64 { return c.Ratio }), format: "%.2f", sign: +1, about: "to the values as given"},
	{name: perKey, value: exactly(func(c outcome.Cell) float64 { return orNaN(c.RedisBytesPerKey) }), format: "%.0f", sign: -1, about: "of used_memory", lacking: silent},
	{name: "usage", value: exactly(func(c outcome.Cell) float64 { return orNaN(c.MemoryUsagePerKey) }), format: "%.0f", about: "by MEMORY USAGE", lacking: silent},
	{name: perSecond, value: func(c outcome.Cell) outcome.Estimate { return c.ValuesPerSecond }, format: "%.0f", sign: +1, timed: true},
	{name: margin, value: func(c outcome.Cell) outcome.Estimate {
		if c.ValuesPerSecond.Interval == nil {
			return outcome.Estimate{Median: math.NaN()}
		}
		return c.ValuesPerSecond
	}, about: "the interval of " + perSecond, lacking: "it takes 6 rounds"},
	{name: "P50", value: func(c outcome.Cell) outcome.Estimate { return c.P50 }, format: "%.0f", sign: -1, timed: true, about: ofOperation},
	{name: "P99", value: func(c outcome.Cell) outcome.Estimate { return c.P99 }, format: "%.0f", sign: -1, timed: true, about: ofOperation},
	{name: "P99.9", value: exactly(func(c outcome.Cell) float64 { return c.Stages["total"].P999 }), format: "%.0f", about: ofOperation},
	{name: served, value: exactly(func(c outcome.Cell) float64 { return pointAt(c.Service, 0.99) }), format: "%.0f",
		about: "from when it did start, which is all that a load generator sees that waits for its answers"},
	{name: "late P99", value: exactly(func(c outcome.Cell) float64 {
		if c.Late == nil {
			return math.NaN()
		}
		return c.Late.P99
	}), format: "%.0f", about: "how late the load generator itself was, us"},
	{name: "allocs", value: func(c outcome.Cell) outcome.Estimate { return c.AllocsPerOp }, format: "%.0f", about: ofProcess},
	{name: "B/op", value: func(c outcome.Cell) outcome.Estimate { return c.BytesPerOp }, format: "%.0f", about: ofProcess},
	{name: "GC", value: exactly(func(c outcome.Cell) float64 { return 100 * orNaN(c.Resources.GCShare) }), format: "%.0f%%",
		about: "its share of this process's processor time", lacking: "there were too few collections; a longer --duration has more"},
	{name: "RSS", value: exactly(func(c outcome.Cell) float64 { return float64(c.Resources.RSSBytes) / (1 << 20) }), format: "%.0f", about: "of this process at its peak, MiB"},
}

// ofOperation is what the percentiles are of; in an open loop the legend says from when.
const ofOperation = "of the whole operation, us"

func orNaN(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

// shown gives a cell's figure as it is shown; two that look alike are equally good.
func (f figure) shown(c outcome.Cell) string {
	e := f.value(c)
	if f.format == "" {
		return reach(*e.Interval)
	}
	text := fmt.Sprintf(f.format, e.Median)
	if f.about == ofOperation && c.AtLeast {
		text = atLeast + text
	}
	return text
}

// atLeast is before latencies that are lower bounds.
const atLeast = "≥"

// reach is an interval, in as many digits as tell its ends apart.
func reach(of [2]float64) string {
	digits := 2
	if of[1]-of[0] < 0.2*of[1] {
		digits = 3
	}
	return rounded(of[0], digits) + "–" + rounded(of[1], digits)
}

// rounded is a number in so many digits: 850, 12k.
func rounded(v float64, digits int) string {
	if v <= 0 {
		return "0"
	}
	unit := math.Pow(10, math.Floor(math.Log10(v))-float64(digits-1))
	switch v = math.Round(v/unit) * unit; {
	case v >= 1e6:
		return strconv.FormatFloat(v/1e6, 'g', digits, 64) + "M"
	case v >= 1e4:
		return strconv.FormatFloat(v/1e3, 'g', max(digits, 3), 64) + "k"
	}
	return strconv.FormatFloat(v, 'g', max(digits, 4), 64)
}

// dimension is a column that tells cells apart.
type dimension struct {
	name   string
	of     func(outcome.Cell) any
	always bool // else where cells differ in it
}

var dimensions = []dimension{
	{"server", func(c outcome.Cell) any { return c.Server }, false},
	{"client", func(c outcome.Cell) any { return c.Client }, false},
	{"batch", func(c outcome.Cell) any { return cmp.Or(c.Batch, "single") }, false},
	{"codec", func(c outcome.Cell) any { return c.Codec }, true},
	{"compress", func(c outcome.Cell) any { return c.Compress }, true},
}

// named puts what tells cells apart before the other columns.
func named(cells []outcome.Cell) (header []any, row func(c outcome.Cell) table.Row) {
	var shown []dimension
	for _, d := range dimensions {
		if d.always || slices.ContainsFunc(cells, func(c outcome.Cell) bool { return d.of(c) != d.of(cells[0]) }) {
			shown = append(shown, d)
			header = append(header, d.name)
		}
	}
	return header, func(c outcome.Cell) (row table.Row) {
		for _, d := range shown {
			row = append(row, d.of(c))
		}
		return row
	}
}

// loaded puts the load of a cell after its name, where not all of the run have the same.
func (t *tables) loaded() (header []any, row func(c outcome.Cell) table.Row) {
	all := t.run.Cells
	callers, rates := differ(all, func(c outcome.Cell) int { return c.Concurrency }), differ(all, func(c outcome.Cell) float64 { return c.Rate })
	if callers {
		header = append(header, "callers")
	}
	if rates {
		header = append(header, "rate")
	}
	return header, func(c outcome.Cell) (row table.Row) {
		if callers {
			row = append(row, c.Concurrency)
		}
		if rates {
			row = append(row, fmt.Sprintf("%.0f", c.Rate))
		}
		return row
	}
}

// differ reports whether not all cells are alike in something.
func differ[T comparable](cells []outcome.Cell, in func(outcome.Cell) T) bool {
	return slices.ContainsFunc(cells, func(c outcome.Cell) bool { return in(c) != in(cells[0]) })
}

// fitting writes the first of some forms of a table that is not too wide, the last one whatever its width.
func (s sheet) fitting(forms ...func(io.Writer)) {
	var b bytes.Buffer
	for _, form := range forms {
		b.Reset()
		form(&b)
		if s.fits(b.String()) {
			break
		}
	}
	s.Write(b.Bytes())
}

// fitting does so in a report of the usual width.
func fitting(w io.Writer, forms ...func(io.Writer)) { sheet{w, Width}.fitting(forms...) }

func (s sheet) fits(text string) bool {
	return !slices.ContainsFunc(strings.Split(text, "\n"), func(line string) bool { return utf8.RuneCountInString(line) > s.width })
}

// spared are the figures that the summaries do without where one is too wide, those first that tell least.
var spared = []string{"RSS", "usage", "B/op", "GC", "P99.9", "allocs", "late P99", limited, margin}

// choose finds the figures that are known of any cell, and that every summary has room for.
func (t *tables) choose(groups [][]outcome.Cell) {
	var verified []outcome.Cell
	for _, cells := range groups {
		for _, c := range cells {
			if c.Verified {
				verified = append(verified, c)
			}
		}
	}
	known := func(f figure) bool {
		return slices.ContainsFunc(verified, func(c outcome.Cell) bool { return !math.IsNaN(f.value(c).Median) })
	}
	why := map[string][]string{}
	var reasons []string
	for i, f := range figures {
		switch {
		case known(f) || i == 0:
			t.figures = append(t.figures, f)
		case f.lacking != "" && len(verified) > 0:
			if why[f.lacking] == nil {
				reasons = append(reasons, f.lacking)
			}
			why[f.lacking] = append(why[f.lacking], f.name)
		}
	}
	for _, reason := range reasons {
		t.lacking = append(t.lacking, fmt.Sprintf("%s (%s)", enumerated(why[reason]), reason))
	}
	if len(verified) > 0 {
		t.figures = append(t.figures, figure{name: limited, about: "what was busy"})
	}
	for _, cells := range groups {
		for next := 0; ; next++ {
			var b strings.Builder
			(&tables{sheet: sheet{&b, t.width}, run: t.run, figures: t.figures}).summaryTable(cells)
			if t.fits(b.String()) || next == len(spared) {
				break
			}
			before := len(t.figures)
			if t.figures = slices.DeleteFunc(t.figures, func(f figure) bool { return f.name == spared[next] }); len(t.figures) < before {
				t.left = append(t.left, spared[next])
			}
		}
	}
}

// enumerated is a list as one says it.
func enumerated(names []string) string {
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return strings.Join(names, "")
}

// legend says what the load was, and explains the figures that are shown.
func (t *tables) legend(groups [][]outcome.Cell) {
	e := t.run.Environment
	if e.Load != "" {
		load := e.Load
		if cells := t.run.Cells; !differ(cells, func(c outcome.Cell) int { return c.Concurrency }) {
			load += "; " + count(cells[0].Concurrency)
		}
		if c := t.run.Cells[0]; c.Rate > 0 && !differ(t.run.Cells, func(c outcome.Cell) float64 { return c.Rate }) {
			load += fmt.Sprintf("; %.0f operations a second", c.Rate)
		}
		t.hanging("", "Load: "+load)
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
	var parts []string
	for _, about := range order {
		what := about
		if about == ofOperation && t.open() {
			what += ", from when it was to start"
		}
		parts = append(parts, enumerated(names[about])+": "+what)
	}
	if slices.ContainsFunc(groups, func(cells []outcome.Cell) bool { marks, _ := t.marks(cells); return len(marks) > 0 }) {
		parts = append(parts, best+": the best, and what cannot be told from it")
	}
	t.hanging("", fmt.Sprintf("%s, %.3g s a cell. %s", rounds, e.DurationS, upperFirst(strings.Join(parts, "; "))))
	var missing []string
	if len(t.left) > 0 {
		missing = append(missing, "Left out for width, but in --json: "+enumerated(t.left))
	}
	if len(t.lacking) > 0 {
		missing = append(missing, "Not known: "+strings.Join(t.lacking, ", "))
	}
	if len(missing) > 0 {
		t.hanging("", strings.Join(missing, ". "))
	}
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// open reports whether operations came at a rate.
func (t *tables) open() bool {
	return slices.ContainsFunc(t.run.Cells, func(c outcome.Cell) bool { return c.Rate > 0 })
}

// summary is a table of all figures, and says below it where no best one can be told.
func (t *tables) summary(cells []outcome.Cell) {
	t.summaryTable(cells)
	_, untold := t.marks(cells)
	for _, line := range untold {
		t.hanging("  ", line)
	}
}

func (t *tables) summaryTable(cells []outcome.Cell) {
	header, name := named(cells)
	left := len(header)
	loads, load := t.loaded()
	header = append(header, loads...)
	for _, f := range t.figures {
		header = append(header, f.name)
	}
	marks, _ := t.marks(cells)
	out := newTable(t, 1, left, header...)
	for i, c := range cells {
		row := append(name(c), load(c)...)
		for j, f := range t.figures {
			text := "-"
			switch {
			case !c.Verified && j == 0:
				text = Failure(c)
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
		out.AppendRow(row)
	}
	out.Render()
}

// spot is a figure of a cell.
type spot struct {
	cell   int
	figure string
}

// rivals are cells that are compared: with the same load, on the same server. What is exact does not depend on a rate.
type rivals struct {
	callers int
	rate    float64
	server  string
}

func (r rivals) String() string {
	load := count(r.callers)
	if r.rate > 0 {
		load += fmt.Sprintf(" at %.0f/s", r.rate)
	}
	return strings.TrimSpace(load + " " + r.server)
}

// rivalsOf are the places of the verified cells that a figure is compared among, where there are at least two.
func (f figure) rivalsOf(cells []outcome.Cell) (order []rivals, groups map[rivals][]int) {
	groups = map[rivals][]int{}
	for i, c := range cells {
		of := rivals{c.Concurrency, c.Rate, c.Server}
		if !f.timed {
			of.rate = 0
		}
		if !c.Verified || math.IsNaN(f.value(c).Median) {
			continue
		}
		if groups[of] == nil {
			order = append(order, of)
		}
		groups[of] = append(groups[of], i)
	}
	return slices.DeleteFunc(order, func(of rivals) bool { return len(groups[of]) < 2 }), groups
}

// marks are the figures that are the best among rivals, or cannot be told from it. Where that is so of all of them nothing is marked, but said.
func (t *tables) marks(cells []outcome.Cell) (marked map[spot]bool, untold []string) {
	marked = map[spot]bool{}
	var few []string               // figures without intervals
	alike := map[rivals][]string{} // figures that tell no rivals apart,
	loads := map[string][]rivals{} // and the other way round
	var timed []rivals             // all that are compared by times
	for _, f := range t.figures {
		if f.sign == 0 {
			continue
		}
		order, groups := f.rivalsOf(cells)
		for _, of := range order {
			if f.timed && !slices.Contains(timed, of) {
				timed = append(timed, of)
			}
			near := f.nearest(cells, groups[of])
			switch {
			case f.name == perSecond && of.rate > 0: // what was asked for
			case f.timed && f.value(cells[groups[of][0]]).Interval == nil:
				if !slices.Contains(few, f.name) {
					few = append(few, f.name)
				}
			case len(near) < len(groups[of]):
				for _, i := range near {
					marked[spot{i, f.name}] = true
				}
			case f.timed:
				alike[of] = append(alike[of], f.name)
			}
		}
	}
	if len(few) > 0 {
		untold = append(untold, "No best in "+enumerated(few)+": that takes intervals, and those take 6 rounds (--repeat)")
	}
	var said []string
	for _, of := range timed {
		if names := enumerated(alike[of]); names != "" {
			if loads[names] == nil {
				said = append(said, names)
			}
			loads[names] = append(loads[names], of)
		}
	}
	for _, names := range said {
		with := ""
		if len(loads[names]) < len(timed) {
			var which []string
			for _, of := range loads[names] {
				which = append(which, of.String())
			}
			with = " with " + enumerated(which)
		}
		untold = append(untold, fmt.Sprintf("No best in %s%s: none of the others is told from it", names, with))
	}
	return marked, untold
}

// nearest are those of some cells that are the best, or cannot be told from it.
func (f figure) nearest(cells []outcome.Cell, among []int) (near []int) {
	top := cells[slices.MaxFunc(among, func(a, b int) int {
		return cmp.Compare(float64(f.sign)*f.value(cells[a]).Median, float64(f.sign)*f.value(cells[b]).Median)
	})]
	for _, i := range among {
		c := cells[i]
		best, other := f.value(top), f.value(c)
		if f.shown(top) == f.shown(c) || best.Interval != nil && other.Interval != nil && !best.Apart(other) {
			near = append(near, i)
		}
	}
	return near
}

// dictionaries says what the settings with a dictionary cost beside: it was trained on values that are not measured, and its
// bytes are in those of the keys.
func (t *tables) dictionaries(dataset, track string) {
	shown := slices.DeleteFunc(slices.Clone(t.run.Dictionaries), func(d outcome.Dictionary) bool { return d.Dataset != dataset || d.Track != track })
	if len(shown) == 0 {
		return
	}
	none := ""
	made := slices.DeleteFunc(slices.Clone(shown), func(d outcome.Dictionary) bool {
		if d.Reason != "" {
			none += fmt.Sprintf("%s %s: %s\n", d.Codec, d.Compress, d.Reason)
		}
		return d.Reason != ""
	})
	form := func(gap int, ratio string) func(io.Writer) {
		return func(w io.Writer) {
			out := newTable(w, gap, 3, "codec", "compress", "builder", "bytes", ratio, "seconds")
			for _, d := range made {
				out.AppendRow(table.Row{d.Codec, d.Compress, d.Builder, d.Bytes, fmt.Sprintf("%.2f", d.Payload), fmt.Sprintf("%.1f", d.Seconds)})
			}
			out.Render()
		}
	}
	fmt.Fprintln(t)
	t.hanging("", "dictionaries, trained on as many other values; their bytes are in B/key")
	if len(made) > 0 {
		t.fitting(form(2, "ratio without headers"), form(1, "bare ratio"))
	}
	t.wrapped(none)
}

// shortStages are outcome.Stages where there is little room.
var shortStages = []string{"ser.", "comp.", "set", "get", "decomp.", "deser.", "total"}

// The columns of the medians that not every load has.
const (
	servedTotal = "served"  // the total from when an operation did start
	setsShare   = "in SETs" // of a mix
)

func (t *tables) aboutMedians() string {
	s := "where the time goes: median of each stage, us"
	if t.run.Environment.Mix != "" {
		s += ", of a SET up to set, and of a GET from get on; " + setsShare + ": the share of all time that the SETs took"
	}
	if t.open() {
		s += "; total: from when an operation was to start, " + servedTotal + ": from when it did; the rest is waiting for a caller, and what the load generator was late"
	}
	return s
}

func (t *tables) medians(cells []outcome.Cell) {
	form := func(gap int, stages []string) func(io.Writer) {
		return func(w io.Writer) { t.mediansOf(w, cells, gap, stages) }
	}
	t.fitting(form(2, outcome.Stages), form(1, outcome.Stages), form(1, shortStages))
}

func (t *tables) mediansOf(w io.Writer, cells []outcome.Cell, gap int, stages []string) {
	header, name := named(cells)
	left := len(header)
	loads, load := t.loaded()
	header = append(header, loads...)
	for _, s := range stages {
		header = append(header, s)
	}
	open, mixed := t.open(), t.run.Environment.Mix != ""
	if open {
		header = append(header, servedTotal)
	}
	if mixed {
		header = append(header, setsShare)
	}
	out := newTable(w, gap, left, header...)
	for _, c := range cells {
		if !c.Verified {
			continue
		}
		row := append(name(c), load(c)...)
		for _, s := range outcome.Stages {
			row = append(row, micro(c.Stages[s].P50))
		}
		if open {
			row = append(row, micro(pointAt(c.Service, 0.5)))
		}
		if mixed {
			row = append(row, fmt.Sprintf("%.0f%%", 100*inSets(c)))
		}
		out.AppendRow(row)
	}
	out.Render()
}

// inSets is the share of the time of a mix's operations that its SETs took.
func inSets(c outcome.Cell) float64 {
	mean := func(stages ...string) (sum float64) {
		for _, s := range stages {
			sum += c.Stages[s].Mean
		}
		return sum
	}
	gets := float64(c.Hits + c.Misses)
	read := gets*mean("get") + float64(c.Hits)*mean("decompress", "deserialize")
	written := (float64(c.Operations) - gets) * mean("serialize", "compress", "set")
	return written / (written + read)
}

// micro is a time in microseconds.
func micro(us float64) string {
	switch {
	case math.IsNaN(us):
		return "-"
	case us >= 100:
		return fmt.Sprintf("%.0f", us)
	}
	return fmt.Sprintf("%.1f", us)
}

func (t *tables) percentiles(cells []outcome.Cell) {
	form := func(gap int) func(io.Writer) {
		return func(w io.Writer) { t.percentilesOf(w, cells, gap) }
	}
	t.fitting(form(2), form(1))
}

func (t *tables) percentilesOf(w io.Writer, cells []outcome.Cell, gap int) {
	header, label := named(cells)
	loads, load := t.loaded()
	header = append(append(header, loads...), "stage")
	out := newTable(w, gap, len(header), append(header, "P50", "P95", "P99", "P99.9", "mean")...)
	for _, c := range cells {
		if !c.Verified {
			continue
		}
		for _, name := range outcome.Stages {
			s := c.Stages[name]
			row := append(label(c), append(load(c), name)...)
			for _, v := range []float64{s.P50, s.P95, s.P99, s.P999, s.Mean} {
				row = append(row, fmt.Sprintf("%.2f", v))
			}
			out.AppendRow(row)
		}
		if len(c.Service) > 0 {
			row := append(label(c), append(load(c), servedTotal)...)
			for _, q := range []float64{0.5, 0.95, 0.99, 0.999} {
				row = append(row, fmt.Sprintf("%.2f", pointAt(c.Service, q)))
			}
			out.AppendRow(append(row, "-"))
		}
	}
	out.Render()
}

const (
	minSaving     = 0.05 // of the bytes a key, below which compressing is not worth its trouble
	minThroughput = 0.50 // of that of plain values, which a choice must keep
	asGood        = 1.03 // times the fewest bytes: among such cells the fastest is chosen
)

// Verdict says in a line for each set of values what to choose and what it saves. It looks at the
// verified cells of closed loops with the most callers that keep at least half of the throughput of the plain
// values, and chooses the fastest of those within 3% of the fewest bytes: as Redis allocates them, or
// stored ones where those are unknown. Memory is what costs, so it comes first; the throughput is
// said beside it, measured with client and server on one machine, where compressing takes the most.
func Verdict(r *outcome.Run) string {
	var lines []string
	for _, cells := range byDataset(r.Cells) {
		// A throughput that was asked for tells nothing; and what a server is, and how values travel, is not for a compressor to win.
		cells = slices.DeleteFunc(cells, func(c outcome.Cell) bool { return c.Rate > 0 })
		for len(cells) > 0 {
			first := cells[0]
			same := func(c outcome.Cell) bool { return c.Server == first.Server && c.Batch == first.Batch }
			name := setName(first, r.Cells)
			if slices.ContainsFunc(r.Cells, func(c outcome.Cell) bool { return !same(c) }) {
				name += " " + strings.TrimSpace(cmp.Or(first.Batch, "one by one")+" "+first.Server)
			}
			lines = append(lines, "Choose "+choose(name, slices.DeleteFunc(slices.Clone(cells), func(c outcome.Cell) bool { return !same(c) }))+".")
			cells = slices.DeleteFunc(cells, same)
		}
	}
	return strings.Join(lines, "\n")
}

// setName is a set's name, with its track where there is more than one.
func setName(c outcome.Cell, all []outcome.Cell) string {
	if slices.ContainsFunc(all, func(o outcome.Cell) bool { return o.Track != c.Track }) {
		return c.Dataset + ", " + c.Track
	}
	return c.Dataset
}

func choose(name string, cells []outcome.Cell) string {
	title := titled(cells)
	callers := slices.MaxFunc(cells, func(a, b outcome.Cell) int { return cmp.Compare(a.Concurrency, b.Concurrency) }).Concurrency
	cells = slices.DeleteFunc(slices.Clone(cells), func(c outcome.Cell) bool { return !c.Verified || c.Concurrency != callers })
	if len(cells) == 0 {
		return "nothing for " + name + ": no cell was verified"
	}
	// What to compare with: plain values of the first codec, or whatever comes first.
	base := cells[max(0, slices.IndexFunc(cells, func(c outcome.Cell) bool { return c.Compress == "none" }))]
	verified := slices.Clone(cells)
	cells = slices.DeleteFunc(cells, func(c outcome.Cell) bool { return c.ValuesPerSecond.Median < minThroughput*base.ValuesPerSecond.Median })
	smallest := slices.MinFunc(cells, func(a, b outcome.Cell) int { return cmp.Compare(a.BytesPerKey(), b.BytesPerKey()) })
	cells = slices.DeleteFunc(cells, func(c outcome.Cell) bool { return c.BytesPerKey() > asGood*smallest.BytesPerKey() })
	choice := slices.MaxFunc(cells, func(a, b outcome.Cell) int { return cmp.Compare(a.ValuesPerSecond.Median, b.ValuesPerSecond.Median) })
	saving := 1 - choice.BytesPerKey()/base.BytesPerKey()
	what := "stored"
	if base.RedisBytesPerKey != nil {
		what = "in Redis"
	}
	if saving < minSaving {
		// Plain values, then, but by the client that is fastest with them.
		plain := slices.DeleteFunc(slices.Clone(verified), func(c outcome.Cell) bool { return c.Codec != base.Codec || c.Compress != base.Compress })
		if c := slices.MaxFunc(plain, func(a, b outcome.Cell) int { return cmp.Compare(a.ValuesPerSecond.Median, b.ValuesPerSecond.Median) }); c.Client != base.Client {
			return fmt.Sprintf("%s for %s: %s the throughput of %s with %s, and nothing that keeps %.0f%% of that saves %.0f%% of its %.0f bytes a key %s",
				title(c), name, c.ValuesPerSecond.Times(base.ValuesPerSecond), title(base), count(callers), 100*minThroughput, 100*minSaving, base.BytesPerKey(), what)
		}
		return fmt.Sprintf("%s for %s: nothing that keeps %.0f%% of its throughput with %s saves %.0f%% of its %.0f bytes a key %s",
			title(base), name, 100*minThroughput, count(callers), 100*minSaving, base.BytesPerKey(), what)
	}
	return fmt.Sprintf("%s for %s: %.0f bytes a key %s instead of %.0f (%.0f%% less), at %s the throughput of %s with %s%s",
		title(choice), name, choice.BytesPerKey(), what, base.BytesPerKey(), 100*saving, choice.ValuesPerSecond.Times(base.ValuesPerSecond), title(base), count(callers),
		withoutCompression(choice, base, verified))
}

// withoutCompression compares a choice with plain values by its own client, where the base is by another: the throughput
// of the two together tells nothing of what compressing takes.
func withoutCompression(choice, base outcome.Cell, verified []outcome.Cell) string {
	i := slices.IndexFunc(verified, func(c outcome.Cell) bool {
		return c.Client == choice.Client && c.Codec == choice.Codec && c.Compress == "none"
	})
	if choice.Client == base.Client || choice.Compress == "none" || i < 0 {
		return ""
	}
	return fmt.Sprintf(", and at %s that of %s", choice.ValuesPerSecond.Times(verified[i].ValuesPerSecond), titled(verified)(verified[i]))
}

// titled tells the cells of a set apart in a sentence.
func titled(cells []outcome.Cell) func(outcome.Cell) string {
	_, row := named(cells)
	return func(c outcome.Cell) string {
		var words []string
		for _, word := range row(c) {
			if word != "" {
				words = append(words, fmt.Sprint(word))
			}
		}
		return strings.Join(words, " + ")
	}
}

func count(callers int) string {
	if callers == 1 {
		return "1 caller"
	}
	return fmt.Sprintf("%d callers", callers)
}
