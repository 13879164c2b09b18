package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/balekv/bale/cmd/internal/flame"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/printable"
)

// benchColumn is a column of the table of all cells.
type benchColumn struct {
	name, group string
	text, rare  bool
	cell        func(*benchCell) gridCell
}

// allCells is the table of all cells of a track, with every figure.
func allCells(id, label string, cells []*benchCell, baseline bool) template.HTML {
	g := &grid{ID: id, Label: label, Filter: "Show cells with", Hidden: "Stages Resources"}
	g.Caption = "Medians of the rounds, and beside them the interval that the median of all rounds there could be is in with 95% confidence, where there are 6 rounds or more. Times are in microseconds."
	if baseline {
		g.Caption += " Percentages are the change since the baseline."
	}
	if slices.ContainsFunc(cells, func(c *benchCell) bool { return c.Late != nil }) {
		g.Caption += " Late is how long after its time an operation began although a caller was free: what the generator itself added."
	}
	if slices.ContainsFunc(cells, func(c *benchCell) bool { return c.Unstarted > 0 }) {
		g.Caption += " Unstarted are operations that no caller came to: the rate is far too high."
	}
	if slices.ContainsFunc(cells, func(c *benchCell) bool { return c.drawn() && c.AtLeast }) {
		g.Caption += " " + atLeast + ": " + atLeastSays + "."
	}
	columns := benchColumns(cells)
	for _, same := range []struct {
		name string
		part benchPart
	}{{"Codec", partCodec}, {"Client", partClient}} {
		if v := same.part(&cells[0].Identity); v != "" && !varies(cells, same.part) {
			g.Caption += fmt.Sprintf(" %s of all: %s.", same.name, printable.Line(v))
			columns = slices.DeleteFunc(columns, func(c benchColumn) bool { return c.name == same.name })
		}
	}
	for _, c := range columns {
		g.columns = append(g.columns, gridColumn{c.name, c.group, c.text, c.rare})
	}
	for _, c := range cells {
		class := ""
		if !c.Verified {
			class = "bad"
		}
		row := make([]gridCell, len(columns))
		for i, column := range columns {
			row[i] = column.cell(c)
		}
		g.row(class, row...)
	}
	return g.HTML()
}

func benchColumns(cells []*benchCell) []benchColumn {
	word := func(name string, part benchPart, rare bool) benchColumn {
		return benchColumn{name: name, text: true, rare: rare, cell: func(c *benchCell) gridCell { return gridCell{text: printable.Line(part(&c.Identity))} }}
	}
	// of shows a figure of the cells that have some.
	of := func(group, name string, cell func(*outcome.Cell) gridCell) benchColumn {
		return benchColumn{name: name, group: group, rare: true, cell: func(c *benchCell) gridCell {
			if !c.drawn() {
				return gridCell{}
			}
			return cell(c.Cell)
		}}
	}
	estimate := func(name string, show func(float64) string, get func(*outcome.Cell) outcome.Estimate) benchColumn {
		return benchColumn{name: name, rare: true, cell: func(c *benchCell) gridCell {
			if !c.drawn() {
				return gridCell{}
			}
			e := get(c.Cell)
			cell := gridCell{text: show(e.Median), small: intervalOf(e, show)}
			if c.base != nil {
				cell.small = strings.Join(filled(cell.small, changeSince(get(c.base).Median, e.Median)), " ")
			}
			return cell
		}}
	}
	latency := func(name string, get func(*outcome.Cell) outcome.Estimate) benchColumn {
		column := estimate(name, microseconds, get)
		exactly := column.cell
		column.cell = func(c *benchCell) gridCell {
			cell := exactly(c)
			if c.drawn() && c.AtLeast { // neither an interval nor a change is known of it
				return stageCell(c.Cell, total, get(c.Cell).Median)
			}
			if c.base != nil && c.base.AtLeast {
				cell.small = intervalOf(get(c.Cell), microseconds)
			}
			return cell
		}
		return column
	}
	batches := slices.ContainsFunc(cells, func(c *benchCell) bool { return c.Batch != "" })
	columns := []benchColumn{
		word("Dataset", func(i *outcome.Identity) string { return i.Dataset }, false),
		word("Codec", partCodec, false),
		{name: "Compress", text: true, cell: func(c *benchCell) gridCell { return gridCell{mark: swatch(c.hue), text: printable.Line(c.Compress)} }},
		word("Client", partClient, true),
		word("Server", partServer, true),
		word("Batch", partBatch, true),
		{name: "Callers", cell: func(c *benchCell) gridCell { return gridCell{text: thousands(int64(c.Concurrency))} }},
		{name: "Rate", rare: true, cell: func(c *benchCell) gridCell {
			if c.Rate == 0 {
				return gridCell{}
			}
			return gridCell{text: thousands(int64(c.Rate))}
		}},
		{name: "State", text: true, rare: true, cell: func(c *benchCell) gridCell {
			if c.Verified {
				return gridCell{}
			}
			return gridCell{mark: `<b class="badge bad">` + template.HTML(failureOf(c.Cell)) + `</b> `, text: printable.Line(c.Error)}
		}},
		estimate("Ops/s", roundly, func(c *outcome.Cell) outcome.Estimate { return c.OpsPerSecond }),
	}
	if batches {
		columns = append(columns, estimate("Values/s", roundly, func(c *outcome.Cell) outcome.Estimate { return c.ValuesPerSecond }))
	}
	columns = append(columns,
		latency("P50", func(c *outcome.Cell) outcome.Estimate { return c.P50 }),
		latency("P99", func(c *outcome.Cell) outcome.Estimate { return c.P99 }),
		of("", "Ratio", func(c *outcome.Cell) gridCell { return gridCell{text: fmt.Sprintf("%.2f", c.Ratio)} }),
		of("", "Stored B/value", func(c *outcome.Cell) gridCell { return perValue(c.StoredBytes, c.Values) }),
		benchColumn{name: "Redis B/key", rare: true, cell: func(c *benchCell) gridCell {
			if c.RedisBytesPerKey == nil {
				return gridCell{}
			}
			cell := gridCell{text: fmt.Sprintf("%.1f", *c.RedisBytesPerKey)}
			if c.base != nil && c.base.RedisBytesPerKey != nil {
				cell.small = changeSince(*c.base.RedisBytesPerKey, *c.RedisBytesPerKey)
			}
			return cell
		}},
		of("", "MEMORY USAGE", func(c *outcome.Cell) gridCell { return optional(c.MemoryUsagePerKey, "%.1f") }),
		of("", "Hits", func(c *outcome.Cell) gridCell {
			if c.Hits+c.Misses == 0 {
				return gridCell{}
			}
			return gridCell{text: share(float64(c.Hits) / float64(c.Hits+c.Misses))}
		}),
		estimate("Allocs/op", short, func(c *outcome.Cell) outcome.Estimate { return c.AllocsPerOp }),
		estimate("B/op", roundly, func(c *outcome.Cell) outcome.Estimate { return c.BytesPerOp }),
		of("", "Plain B/value", func(c *outcome.Cell) gridCell { return perValue(c.PlainBytes, c.Values) }),
		of("", "Late P99", func(c *outcome.Cell) gridCell {
			if c.Late == nil {
				return gridCell{}
			}
			return gridCell{text: microseconds(c.Late.P99)}
		}),
		of("", "Unstarted", func(c *outcome.Cell) gridCell {
			if c.Unstarted == 0 {
				return gridCell{}
			}
			return gridCell{text: thousands(c.Unstarted)}
		}),
		of("", "Operations", func(c *outcome.Cell) gridCell { return gridCell{text: thousands(c.Operations)} }),
		of("", "Keys", func(c *outcome.Cell) gridCell { return gridCell{text: thousands(int64(c.Keys))} }),
		benchColumn{name: "Limit", text: true, rare: true, cell: func(c *benchCell) gridCell { return gridCell{text: printable.Line(c.Limit)} }},
	)
	for _, name := range outcome.Stages {
		columns = append(columns, of("Stages", capital(name)+" P50", func(c *outcome.Cell) gridCell {
			s, ok := c.Stages[name]
			if !ok {
				return gridCell{}
			}
			return stageCell(c, name, s.P50)
		}))
	}
	resource := func(name string, cell func(*outcome.Resources) gridCell) {
		columns = append(columns, of("Resources", name, func(c *outcome.Cell) gridCell { return cell(&c.Resources) }))
	}
	resource("Client CPU", func(r *outcome.Resources) gridCell { return gridCell{text: fmt.Sprintf("%.2f", r.ClientCPU)} })
	resource("Server CPU", func(r *outcome.Resources) gridCell { return optional(r.ServerCPU, "%.2f") })
	resource("In B/op", func(r *outcome.Resources) gridCell { return gridCell{text: roundly(r.ServerIn)} })
	resource("Out B/op", func(r *outcome.Resources) gridCell { return gridCell{text: roundly(r.ServerOut)} })
	resource("GC share", func(r *outcome.Resources) gridCell { return sharedCell(r.GCShare) })
	resource("GC/s", func(r *outcome.Resources) gridCell { return gridCell{text: short(r.GCCycles)} })
	resource("GC pause, max", func(r *outcome.Resources) gridCell { return gridCell{text: microseconds(r.GCPauseUS)} })
	resource("RSS, peak", func(r *outcome.Resources) gridCell { return inBytes(float64(r.RSSBytes)) })
	resource("RSS growth", func(r *outcome.Resources) gridCell { return inBytes(float64(r.RSSGrowth)) })
	resource("VSS, peak", func(r *outcome.Resources) gridCell { return inBytes(float64(r.VSSBytes)) })
	resource("Goroutines", func(r *outcome.Resources) gridCell { return gridCell{text: thousands(int64(r.Routines))} })
	resource("Pool waits/op", func(r *outcome.Resources) gridCell { return optional(r.PoolWaits, "%.2f") })
	resource("Pool wait, µs/op", func(r *outcome.Resources) gridCell { return optional(r.PoolWait, "%.1f") })
	return columns
}

// swatch is a spot of a colour.
func swatch(hue string) template.HTML { return template.HTML(`<i class="` + hue + `"></i>`) }

func optional(f *float64, format string) gridCell {
	if f == nil {
		return gridCell{}
	}
	return gridCell{text: fmt.Sprintf(format, *f)}
}

func perValue(bytes int64, values int) gridCell {
	if values == 0 {
		return gridCell{}
	}
	return gridCell{text: roundly(float64(bytes) / float64(values))}
}

// roundly is a number of things a second, or of bytes an operation.
func roundly(f float64) string {
	if f < 10 {
		return short(f)
	}
	return thousands(int64(math.Round(f)))
}

func intervalOf(e outcome.Estimate, show func(float64) string) string {
	if e.Interval == nil {
		return ""
	}
	return show(e.Interval[0]) + ".." + show(e.Interval[1])
}

// changeSince is how much more something is than it was.
func changeSince(was, is float64) string {
	if was == 0 {
		return ""
	}
	s := fmt.Sprintf("%+.1f%%", 100*(is/was-1))
	return strings.Replace(s, "-", "−", 1)
}

// figuresOf are the figures behind the pictures of a sheet.
func figuresOf(id, name string, cells []*benchCell) template.HTML {
	g := &grid{ID: id, Label: "Figures of " + name, Caption: "Median of each stage, of the rounds together, with the 99th percentile beside it, and percentiles of whole operations, all in microseconds. CPU is compressing and decompressing."}
	if slices.ContainsFunc(cells, func(c *benchCell) bool { return c.AtLeast }) {
		g.Caption += " " + atLeast + ": " + atLeastSays + "."
	}
	g.columns = append(g.columns, gridColumn{name: "Setting", text: true}, gridColumn{name: "Load", text: true})
	for _, s := range outcome.Stages {
		g.column(capital(s))
	}
	g.column("P90")
	g.column("P99")
	g.column("P99.9")
	g.columns = append(g.columns, gridColumn{name: "P99.9 from the real start", rare: true})
	g.column("CPU")
	g.column("Ratio")
	for _, c := range cells {
		row := []gridCell{{mark: swatch(c.hue), text: nameOf(c, cells, settingParts)}, {text: loadOf(c, cells)}}
		for _, s := range outcome.Stages {
			stage := c.Stages[s]
			cell := stageCell(c.Cell, s, stage.P50)
			cell.small = ofStage(c.Cell, s, microseconds(stage.P99))
			row = append(row, cell)
		}
		for _, q := range []float64{0.9, 0.99, 0.999} {
			cell := gridCell{}
			if us, ok := at(c.Latency, q); ok {
				cell = stageCell(c.Cell, total, us)
			}
			row = append(row, cell)
		}
		row = append(row, quantileCell(c.Service, 0.999),
			gridCell{text: microseconds(packing(c.Cell))}, gridCell{text: fmt.Sprintf("%.2f", c.Ratio)})
		g.row("", row...)
	}
	return g.HTML()
}

func loadOf(c *benchCell, cells []*benchCell) string {
	all := []string{callersOf(c.Concurrency)}
	for _, part := range loadParts[1:] {
		if varies(cells, part) {
			all = append(all, part(&c.Identity))
		}
	}
	return printable.Line(strings.Join(filled(all...), ", "))
}

func quantileCell(points []outcome.Point, q float64) gridCell {
	us, ok := at(points, q)
	if !ok {
		return gridCell{}
	}
	return gridCell{text: microseconds(us)}
}

// stageCell is a time of a stage; one that is a lower bound sorts by its number.
func stageCell(c *outcome.Cell, stage string, us float64) gridCell {
	cell := gridCell{text: microseconds(us)}
	if marked := ofStage(c, stage, cell.text); marked != cell.text {
		cell.text, cell.by = marked, strconv.FormatFloat(us, 'f', -1, 64)
	}
	return cell
}

// at is the smallest time that a share of the operations or more did not exceed.
func at(points []outcome.Point, q float64) (float64, bool) {
	i := slices.IndexFunc(points, func(p outcome.Point) bool { return p.Quantile >= q-1e-9 })
	if i < 0 {
		return 0, false
	}
	return points[i].US, true
}

// packing is the processor time of compressing and decompressing.
func packing(c *outcome.Cell) float64 { return c.Stages["compress"].P50 + c.Stages["decompress"].P50 }

// limitsOf says what kept the cells of a sheet from being faster.
func limitsOf(id, name string, cells []*benchCell, cores int) (template.HTML, string) {
	g := &grid{ID: id, Label: "Limits of " + name}
	g.Caption = fmt.Sprintf("Cores that client and server used; a full bar is all of the machine: %d. The client is the load generator and what is measured at once. In is to the server, Out from it.", cores)
	g.columns = []gridColumn{{name: "Setting", text: true}, {name: "Load", text: true}, {name: "Limit", text: true},
		{name: "Why", text: true, rare: true}, {name: "Client CPU"}, {name: "Server CPU", rare: true}, {name: "GC share"}, {name: "In, B/op"}, {name: "Out, B/op"}, {name: "Pool wait, µs/op", rare: true}}
	counts := map[string]int{}
	for _, c := range cells {
		r := &c.Resources
		limit := gridCell{}
		if c.Limit != "" {
			counts[c.Limit]++
			limit.mark = template.HTML(`<b class="badge">` + template.HTMLEscapeString(printable.Line(c.Limit)) + `</b>`)
		}
		server := gridCell{}
		if r.ServerCPU != nil {
			server = coresCell(*r.ServerCPU, cores)
		}
		g.row("", gridCell{mark: swatch(c.hue), text: nameOf(c, cells, settingParts)}, gridCell{text: loadOf(c, cells)}, limit,
			gridCell{text: printable.Line(c.Why)}, coresCell(r.ClientCPU, cores), server, sharedCell(r.GCShare),
			gridCell{text: roundly(r.ServerIn)}, gridCell{text: roundly(r.ServerOut)}, optional(r.PoolWait, "%.1f"))
	}
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b)) })
	var all []string
	for _, n := range names {
		all = append(all, fmt.Sprintf("%s in %d", printable.Line(n), counts[n]))
	}
	return g.HTML(), strings.Join(all, ", ")
}

// coresCell shows cores as a figure and a bar.
func coresCell(used float64, cores int) gridCell {
	bar := fmt.Sprintf(`<svg class="meter" viewBox="0 0 48 9" aria-hidden="true"><path d="M0 0H%vV9H0z"/></svg> `, px(48*min(max(used/float64(cores), 0), 1)))
	return gridCell{mark: template.HTML(bar), text: fmt.Sprintf("%.2f", used)}
}

// momentsOf is a table of some of the moments.
func momentsOf(moments []outcome.Moment) template.HTML {
	const most = 25
	g := &grid{ID: "moments", Label: "Memory and garbage collection by time", Caption: "Some of the moments, evenly spaced."}
	g.columns = []gridColumn{{name: "Time, s"}, {name: "RSS"}, {name: "Heap"}, {name: "GC pause, µs"}, {name: "GC cycles"}, {name: "Goroutines"},
		{name: "Ops/s"}, {name: "Doing", text: true}}
	step := max(1, (len(moments)+most-1)/most)
	for i := 0; i < len(moments); i += step {
		m := &moments[i]
		g.row("", gridCell{text: fmt.Sprintf("%.1f", m.AtS)}, inBytes(float64(m.RSSBytes)), inBytes(float64(m.HeapBytes)),
			gridCell{text: microseconds(m.GCPauseUS)}, gridCell{text: strconv.Itoa(m.GCCycles)},
			gridCell{text: thousands(int64(m.Goroutines))}, gridCell{text: roundly(m.OpsPerSecond)}, gridCell{text: printable.Line(m.Doing)})
	}
	return g.HTML()
}

// skippedOf lists what was not measured, combinations with the same reason together.
func skippedOf(skipped []outcome.Skipped) (template.HTML, string) {
	g := &grid{ID: "skipped-table", Label: "Left out", Caption: "Combinations that there are no cells of."}
	g.columns = []gridColumn{{name: "Combination", text: true}, {name: "Why", text: true}}
	for _, s := range skipped[:min(len(skipped), skippedRows)] {
		what := strings.Join(filled(s.Dataset, s.Codec, s.Compress, s.Client, s.Batch, s.Server), ", ")
		if s.Concurrency > 0 {
			what += ", " + callersOf(s.Concurrency)
		}
		if s.Track != "" {
			what += ", " + s.Track
		}
		g.row("", gridCell{text: printable.Line(strings.TrimPrefix(what, ", "))}, gridCell{text: printable.Line(s.Reason)})
	}
	more := ""
	if n := len(skipped) - skippedRows; n > 0 {
		more = fmt.Sprintf("Another %s; the JSON has them.", plural(n, "combination"))
	}
	return g.HTML(), more
}

// sharedCell is a share, if it is known.
func sharedCell(s *float64) gridCell {
	if s == nil {
		return gridCell{}
	}
	return gridCell{text: share(*s)}
}

func dictionariesOf(dictionaries []outcome.Dictionary) template.HTML {
	g := &grid{ID: "dictionaries-table", Label: "Dictionaries"}
	g.Caption = "Trained on the half of each set that is not measured. The payload ratio is of the other half, without headers; the bytes of a dictionary are counted in the bytes a key."
	g.columns = []gridColumn{{name: "Dataset", text: true}, {name: "Track", text: true, rare: true}, {name: "Codec", text: true}, {name: "Setting", text: true}, {name: "Bytes"},
		{name: "Payload ratio", rare: true}, {name: "Builder", text: true, rare: true},
		{name: "Samples"}, {name: "Tried"}, {name: "Seconds"}, {name: "Why there is none", text: true, rare: true}}
	for _, d := range dictionaries {
		payload, size := gridCell{}, gridCell{}
		if d.Reason == "" {
			payload, size = gridCell{text: fmt.Sprintf("%.2f", d.Payload)}, gridCell{text: thousands(int64(d.Bytes))}
		}
		g.row("", gridCell{text: printable.Line(d.Dataset)}, gridCell{text: printable.Line(d.Track)}, gridCell{text: printable.Line(d.Codec)}, gridCell{text: printable.Line(d.Compress)}, size, payload,
			gridCell{text: printable.Line(d.Builder)},
			gridCell{text: thousands(int64(d.Samples))}, gridCell{text: strconv.Itoa(d.Tried)}, gridCell{text: short(d.Seconds)}, gridCell{text: printable.Line(d.Reason)})
	}
	return g.HTML()
}

// flameNodes are those of all flame graphs of a page together, 15 bytes each, where there are few:
// the row of a profile takes the room of rowNodes.
const (
	flameNodes = 18_500
	rowNodes   = 14
)

// profileKinds are what a kind of profile has samples of.
var profileKinds = []struct{ kind, of string }{
	{"cpu", "processor time of this process"}, {"heap", "bytes allocated"}, {"mutex", "time that others waited for a lock that was held"},
	{"block", "time that goroutines waited for locks, channels and timers"},
}

// profilesOf returns a table of the profiles of a sheet's cells, and their flame graphs as data:
// the page draws a graph on request. A graph has at most this number of nodes, the largest.
func profilesOf(id, name string, cells []*benchCell, nodes int) (table, graphs template.HTML, n int) {
	g := &grid{ID: id + "-profiles-table", Label: "Profiles of " + name, Caption: "Part of the samples by what they were spent on, of all rounds of a cell together."}
	for _, k := range profileKinds {
		if slices.ContainsFunc(cells, func(c *benchCell) bool { _, ok := c.Profiles[k.kind]; return ok }) {
			g.Caption += fmt.Sprintf(" %s: %s.", capital(k.kind), k.of)
		}
	}
	g.columns = []gridColumn{{name: "Setting", text: true}, {name: "Load", text: true}, {name: "Profile", text: true}}
	var shares []string
	for _, c := range flame.Categories() {
		shares = append(shares, c.String())
		g.columns = append(g.columns, gridColumn{name: capital(c.Label()), rare: true})
	}
	for _, c := range cells { // categories that flame does not know
		for _, kind := range slices.Sorted(maps.Keys(c.Profiles)) {
			for _, name := range slices.Sorted(maps.Keys(c.Profiles[kind].Shares)) {
				if !slices.Contains(shares, name) {
					shares = append(shares, name)
					g.columns = append(g.columns, gridColumn{name: capital(printable.Line(name)), rare: true})
				}
			}
		}
	}
	g.columns = append(g.columns, gridColumn{name: "Samples"}, gridColumn{name: "File, for go tool pprof", text: true, rare: true})
	var forest flame.Forest
	for _, c := range cells {
		for _, kind := range slices.Sorted(maps.Keys(c.Profiles)) {
			p := c.Profiles[kind]
			class := ""
			if p.Tree != nil && len(p.Tree.Nodes) > 0 {
				class = fmt.Sprintf("tree-%d", len(forest))
				forest = append(forest, largest(p.Tree, nodes))
			}
			row := []gridCell{{mark: swatch(c.hue), text: nameOf(c, cells, settingParts)}, {text: loadOf(c, cells)}, {text: printable.Line(kind)}}
			for _, name := range shares {
				cell := gridCell{}
				if f, ok := p.Shares[name]; ok {
					cell.text = share(f)
				}
				row = append(row, cell)
			}
			g.row(class, append(row, gridCell{text: thousands(p.Samples)}, gridCell{text: printable.Line(p.File)})...)
		}
	}
	if len(forest) > 0 {
		if data, err := json.Marshal(forest); err == nil { // it has no < or &: encoding/json writes \u003c
			graphs = template.HTML(`<template class="flames">` + printable.JSON(string(data)) + "</template>")
		}
	}
	return g.HTML(), graphs, len(g.rows)
}

// largest returns a tree with only its largest nodes. Those below a node are smaller, so the result
// is a tree.
func largest(t *flame.Tree, nodes int) *flame.Tree {
	if len(t.Nodes) <= nodes {
		return t
	}
	values := make([]int64, len(t.Nodes))
	for i, n := range t.Nodes {
		values[i] = n.Value
	}
	slices.Sort(values)
	least := values[len(values)-nodes]
	few := *t
	few.Nodes = slices.DeleteFunc(slices.Clone(t.Nodes), func(n flame.Node) bool { return n.Value < least })
	return &few
}
