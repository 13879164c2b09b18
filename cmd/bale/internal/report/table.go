package report

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/balekv/bale/cmd/bale/internal/outcome"
)

// Width is how many columns the tables take at most.
const Width = 100

// best marks the best cell of its column, among those with as many callers.
const best = "*"

// Options say how much to show.
type Options struct {
	Stages bool // the percentiles of each stage of each cell, too
}

// Table writes the result as tables, one for each set of values, and ends in a sentence that says what
// to choose.
func Table(w io.Writer, r *outcome.Run, o Options) {
	e := r.Environment
	fmt.Fprintf(w, "Redis %s, %s, zstd by %s, %d cores, %s\n", e.RedisVersion, e.Go, e.Zstd, e.Cores, e.CPU)
	if e.Load != "" {
		hanging(w, "", "Load: "+e.Load)
	}
	if s := oneServer(r.Cells); s != "" {
		hanging(w, "", "Server: "+s)
	}
	rounds := fmt.Sprintf("%d rounds", e.Rounds)
	if e.Rounds == 1 {
		rounds = "1 round"
	}
	groups := byDataset(r.Cells)
	for _, cells := range groups {
		slices.SortStableFunc(cells, func(a, b outcome.Cell) int {
			return cmp.Or(cmp.Compare(a.Concurrency, b.Concurrency), cmp.Compare(a.Rate, b.Rate))
		})
	}
	without := leftOut(groups)
	hanging(w, "", fmt.Sprintf("%s, %.3g s a cell. %s", rounds, e.DurationS, legend(without)))
	if len(without) > 0 {
		fmt.Fprintf(w, "Left out for width: %s; --json has them\n", strings.Join(without, ", "))
	}
	notes := slices.Clone(e.Notes)
	if e.Embedded {
		notes = slices.Insert(notes, 0, "EMBEDDED SERVER: no redis-server was found, or it was asked for: this is miniredis within this process. Ratios are exact; latencies mean little, "+
			"and bytes a key are unknown. Debian: apt-get install redis-server")
	}
	if len(notes) > 0 {
		fmt.Fprintln(w)
		wrapped(w, strings.Join(notes, "\n"))
	}
	for _, cells := range groups {
		first := cells[0]
		fmt.Fprintf(w, "\n%s: %d values of %.0f bytes in the mean; B/key over %d keys\n", setName(first, r.Cells), first.Values, float64(first.RawBytes)/float64(first.Values), first.Keys)
		summary(w, cells, without)
		dictionaries(w, r.Dictionaries, first.Dataset, first.Track)
		fmt.Fprintln(w, "\nwhere the time goes: median of each stage, us")
		medians(w, cells)
		omitted(w, cells)
		if o.Stages {
			fmt.Fprintln(w, "\nlatency of each stage, us")
			percentiles(w, cells)
		}
	}
	sweeps(w, r)
	skipped(w, r.Skipped)
	for _, d := range withoutCells(r) {
		fmt.Fprintf(w, "\n%s: not measured, for every setting needs a dictionary, and none pays\n", d.Dataset)
		dictionaries(w, r.Dictionaries, d.Dataset, d.Track)
	}
	fmt.Fprintln(w)
	for _, c := range r.Cells {
		if !c.Verified {
			wrapped(w, fmt.Sprintf("%s %s %s, %s: %s", Failure(c), c.Dataset, strings.ReplaceAll(titled(r.Cells)(c), " + ", " "), count(c.Concurrency), c.Error))
		}
	}
	if e.Interrupted {
		fmt.Fprintln(w, "No advice: the run was interrupted.")
		return
	}
	if len(r.Findings) > 0 {
		wrapped(w, strings.Join(r.Findings, "\n"))
		return
	}
	wrapped(w, Verdict(r))
}

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
	name   string
	value  func(outcome.Cell) outcome.Estimate // its median is NaN where it is unknown
	format string
	sign   int // +1 where more is better, -1 where less is, 0 where neither is marked
}

func exactly(value func(outcome.Cell) float64) func(outcome.Cell) outcome.Estimate {
	return func(c outcome.Cell) outcome.Estimate { return outcome.Estimate{Median: value(c)} }
}

// margin is the column of throughput's interval.
const margin = "±"

var figures = []figure{
	{"ratio", exactly(func(c outcome.Cell) float64 { return c.Ratio }), "%.2f", +1},
	{"B/key", exactly(func(c outcome.Cell) float64 { return orNaN(c.RedisBytesPerKey) }), "%.0f", -1},
	{"usage", exactly(func(c outcome.Cell) float64 { return orNaN(c.MemoryUsagePerKey) }), "%.0f", 0},
	{"values/s", func(c outcome.Cell) outcome.Estimate { return c.ValuesPerSecond }, "%.0f", +1},
	{margin, exactly(func(c outcome.Cell) float64 { return spread(c.ValuesPerSecond) }), "%.0f%%", 0},
	{"P50", func(c outcome.Cell) outcome.Estimate { return c.P50 }, "%.0f", -1},
	{"P99", func(c outcome.Cell) outcome.Estimate { return c.P99 }, "%.0f", -1},
	{"P99.9", exactly(func(c outcome.Cell) float64 { return c.Stages["total"].P999 }), "%.0f", 0},
	{"late P99", exactly(func(c outcome.Cell) float64 {
		if c.Late == nil {
			return math.NaN()
		}
		return c.Late.P99
	}), "%.0f", 0},
	{"allocs", func(c outcome.Cell) outcome.Estimate { return c.AllocsPerOp }, "%.0f", 0},
	{"B/op", func(c outcome.Cell) outcome.Estimate { return c.BytesPerOp }, "%.0f", 0},
	{"GC", exactly(func(c outcome.Cell) float64 { return 100 * orNaN(c.Resources.GCShare) }), "%.0f%%", 0},
	{"RSS", exactly(func(c outcome.Cell) float64 { return float64(c.Resources.RSSBytes) / (1 << 20) }), "%.0f", 0},
}

// spread is how far an interval reaches from its median at most, in percent.
func spread(e outcome.Estimate) float64 {
	if e.Interval == nil || e.Median == 0 {
		return math.NaN()
	}
	return 100 * max(e.Interval[1]-e.Median, e.Median-e.Interval[0]) / e.Median
}

func orNaN(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

// compared gives a cell's figure as it is shown; two that look alike are equally good.
func (f figure) compared(c outcome.Cell) string { return fmt.Sprintf(f.format, f.value(c).Median) }

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

// loaded puts the load of a cell after its name.
func loaded(cells []outcome.Cell) (header []any, row func(c outcome.Cell) table.Row) {
	if !slices.ContainsFunc(cells, func(c outcome.Cell) bool { return c.Rate > 0 }) {
		return []any{"callers"}, func(c outcome.Cell) table.Row { return table.Row{c.Concurrency} }
	}
	return []any{"callers", "rate"}, func(c outcome.Cell) table.Row { return table.Row{c.Concurrency, fmt.Sprintf("%.0f", c.Rate)} }
}

// fitting writes the first of some forms of a table that is not wider than Width, the last one whatever its width.
func fitting(w io.Writer, forms ...func(io.Writer)) {
	var b bytes.Buffer
	for _, form := range forms {
		b.Reset()
		form(&b)
		if fits(b.String()) {
			break
		}
	}
	w.Write(b.Bytes())
}

func fits(text string) bool {
	return !slices.ContainsFunc(strings.Split(text, "\n"), func(line string) bool { return utf8.RuneCountInString(line) > Width })
}

// spared are the figures that the summaries do without where one is too wide, those first that tell least.
var spared = [][]string{nil, {"RSS"}, {"RSS", "usage"}, {"RSS", "usage", "B/op"}, {"RSS", "usage", "B/op", "GC"}, {"RSS", "usage", "B/op", "GC", "P99.9"},
	{"RSS", "usage", "B/op", "GC", "P99.9", "allocs"}, {"RSS", "usage", "B/op", "GC", "P99.9", "allocs", limited}}

// limited is the column of what kept a cell from being faster.
const limited = "limit"

// leftOut are the figures without which every summary fits, the same in all, so that one legend explains them.
func leftOut(groups [][]outcome.Cell) []string {
	widest := 0
	for _, cells := range groups {
		for widest < len(spared)-1 {
			var b strings.Builder
			summary(&b, cells, spared[widest])
			if fits(b.String()) {
				break
			}
			widest++
		}
	}
	return spared[widest]
}

// legend explains the figures that are shown.
func legend(without []string) string {
	shown := func(figure, about string) string {
		if slices.Contains(without, figure) {
			return ""
		}
		return about
	}
	return "Ratio: to the values as given. B/key: of used_memory" + shown("usage", "; usage: by MEMORY USAGE") +
		". " + margin + ": the 95% interval of values/s. P50 to P99.9: of the whole operation, us." +
		shown("allocs", " Allocs"+shown("B/op", ", B/op")+": in this process.") +
		shown("GC", " GC: of its processor time.") + shown("RSS", " RSS: peak, MiB.") +
		shown(limited, " Limit: what was busy.") +
		" " + best + ": best of its callers, or not told from it"
}

// summary is a table of all figures but some, and but those that no cell has.
func summary(w io.Writer, cells []outcome.Cell, without []string) {
	shown := slices.DeleteFunc(slices.Clone(figures), func(f figure) bool {
		none := !slices.ContainsFunc(cells, func(c outcome.Cell) bool { return c.Verified && !math.IsNaN(f.value(c).Median) })
		return slices.Contains(without, f.name) || none && f.name != figures[0].name
	})
	header, name := named(cells)
	left := len(header)
	loads, load := loaded(cells)
	header = append(header, loads...)
	for _, f := range shown {
		header = append(header, f.name)
	}
	withLimit := !slices.Contains(without, limited)
	if withLimit {
		header = append(header, limited)
	}
	t := newTable(w, 1, left, header...)
	for _, c := range cells {
		row := append(name(c), load(c)...)
		for _, f := range shown {
			row = append(row, f.show(c, cells))
		}
		if withLimit {
			row = append(row, cmp.Or(c.Limit, "-"))
		}
		t.AppendRow(row)
	}
	t.Render()
}

// show is a cell's figure, marked if it is the best among those with the same load, or cannot be told from it: their intervals meet.
func (f figure) show(c outcome.Cell, cells []outcome.Cell) string {
	switch {
	case !c.Verified && f.name == figures[0].name:
		return Failure(c)
	case !c.Verified, math.IsNaN(f.value(c).Median):
		return "-"
	case f.sign == 0:
		return f.compared(c)
	}
	var top outcome.Cell
	rivals := 0
	for _, r := range cells {
		if !r.Verified || r.Concurrency != c.Concurrency || r.Rate != c.Rate || r.Server != c.Server {
			continue
		}
		if rivals++; rivals == 1 || float64(f.sign)*f.value(r).Median > float64(f.sign)*f.value(top).Median {
			top = r
		}
	}
	if rivals > 1 && (f.compared(top) == f.compared(c) || meet(f.value(top), f.value(c))) {
		return f.compared(c) + best
	}
	return f.compared(c)
}

// meet reports whether two intervals have something in common.
func meet(a, b outcome.Estimate) bool {
	return a.Interval != nil && b.Interval != nil && a.Interval[0] <= b.Interval[1] && b.Interval[0] <= a.Interval[1]
}

// dictionaries says what the settings with a dictionary cost beside: it was trained on values that are not measured, and its
// bytes are in those of the keys.
func dictionaries(w io.Writer, all []outcome.Dictionary, dataset, track string) {
	shown := slices.DeleteFunc(slices.Clone(all), func(d outcome.Dictionary) bool { return d.Dataset != dataset || d.Track != track })
	if len(shown) == 0 {
		return
	}
	fmt.Fprintln(w, "\ndictionaries, trained on as many other values; their bytes are in B/key")
	t := newTable(w, 2, 3, "codec", "compress", "builder", "bytes", "ratio without headers", "seconds")
	none := ""
	for _, d := range shown {
		if d.Reason != "" {
			none += fmt.Sprintf("%s %s: %s\n", d.Codec, d.Compress, d.Reason)
			continue
		}
		t.AppendRow(table.Row{d.Codec, d.Compress, d.Builder, d.Bytes, fmt.Sprintf("%.2f", d.Payload), fmt.Sprintf("%.1f", d.Seconds)})
	}
	if t.Length() > 0 {
		t.Render()
	}
	wrapped(w, none)
}

// shortStages are outcome.Stages where there is little room.
var shortStages = []string{"ser.", "comp.", "set", "get", "decomp.", "deser.", "total"}

func medians(w io.Writer, cells []outcome.Cell) {
	form := func(gap int, stages []string) func(io.Writer) {
		return func(w io.Writer) { mediansOf(w, cells, gap, stages) }
	}
	fitting(w, form(2, outcome.Stages), form(1, outcome.Stages), form(1, shortStages))
}

func mediansOf(w io.Writer, cells []outcome.Cell, gap int, stages []string) {
	header, name := named(cells)
	left := len(header)
	loads, load := loaded(cells)
	header = append(header, loads...)
	for _, s := range stages {
		header = append(header, s)
	}
	t := newTable(w, gap, left, header...)
	for _, c := range cells {
		if !c.Verified {
			continue
		}
		row := append(name(c), load(c)...)
		for _, s := range outcome.Stages {
			row = append(row, fmt.Sprintf("%.1f", c.Stages[s].P50))
		}
		t.AppendRow(row)
	}
	t.Render()
}

func percentiles(w io.Writer, cells []outcome.Cell) {
	form := func(gap int) func(io.Writer) {
		return func(w io.Writer) { percentilesOf(w, cells, gap) }
	}
	fitting(w, form(2), form(1))
}

func percentilesOf(w io.Writer, cells []outcome.Cell, gap int) {
	header, label := named(cells)
	loads, load := loaded(cells)
	header = append(append(header, loads...), "stage")
	t := newTable(w, gap, len(header), append(header, "P50", "P95", "P99", "P99.9", "mean")...)
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
			t.AppendRow(row)
		}
	}
	t.Render()
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
