package outcome

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
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
)

// benchColumn is a column of the table of all cells.
type benchColumn struct {
	name, group string
	text, rare  bool
	cell        func(*benchCell) page.Cell
}

// allCells is the table of all cells of a track, with every figure.
func allCells(id, label string, cells []*benchCell, baseline bool) template.HTML {
	g := &page.Grid{ID: id, Label: label, Filter: "Show cells with", Hidden: "Stages Resources"}
	g.Caption = "Medians of the rounds, and beside them the interval that the median of all rounds there could be is in with 95% confidence, where there are 6 rounds or more. Times are in microseconds."
	if baseline {
		g.Caption += " Percentages are the change since the baseline; grey ones, with ~, are no significant difference."
	}
	if slices.ContainsFunc(cells, func(c *benchCell) bool { return c.Late != nil }) {
		g.Caption += " Late is how long after its time an operation began although a caller was free: what the generator itself added."
	}
	if slices.ContainsFunc(cells, func(c *benchCell) bool { return c.Unstarted > 0 }) {
		g.Caption += " Unstarted are operations that no caller came to: the rate is far too high."
	}
	if slices.ContainsFunc(cells, func(c *benchCell) bool { return c.drawn() && c.AtLeast }) {
		g.Caption += " " + page.AtLeast + ": " + meansAtLeast + "."
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
		g.Columns = append(g.Columns, page.Column{Name: c.name, Group: c.group, Text: c.text, Rare: c.rare})
	}
	for _, c := range cells {
		class := ""
		if !c.Verified {
			class = "bad"
		}
		row := make([]page.Cell, len(columns))
		for i, column := range columns {
			row[i] = column.cell(c)
		}
		g.Row(class, row...)
	}
	return g.HTML()
}

func benchColumns(cells []*benchCell) []benchColumn {
	word := func(name string, part benchPart, rare bool) benchColumn {
		return benchColumn{name: name, text: true, rare: rare, cell: func(c *benchCell) page.Cell { return page.Cell{Text: printable.Line(part(&c.Identity))} }}
	}
	// of shows a figure of the cells that have some.
	of := func(group, name string, cell func(*Cell) page.Cell) benchColumn {
		return benchColumn{name: name, group: group, rare: true, cell: func(c *benchCell) page.Cell {
			if !c.drawn() {
				return page.Cell{}
			}
			return cell(c.Cell)
		}}
	}
	estimate := func(name string, show func(float64) string, get func(*Cell) Estimate) benchColumn {
		return benchColumn{name: name, rare: true, cell: func(c *benchCell) page.Cell {
			if !c.drawn() {
				return page.Cell{}
			}
			e := get(c.Cell)
			cell := page.Cell{Text: show(e.Median), Small: intervalOf(e, show)}
			if c.base != nil {
				change, significant := changeSince(e, get(c.base))
				if significant {
					cell.Since = change
				} else { // as grey as the interval
					cell.Small = strings.Join(page.Filled(cell.Small, change), " ")
				}
			}
			return cell
		}}
	}
	latency := func(name string, get func(*Cell) Estimate) benchColumn {
		column := estimate(name, page.Microseconds, get)
		exactly := column.cell
		column.cell = func(c *benchCell) page.Cell {
			cell := exactly(c)
			if c.drawn() && c.AtLeast { // neither an interval nor a change is known of it
				return stageCell(c.Cell, total, get(c.Cell).Median)
			}
			if c.base != nil && c.base.AtLeast {
				cell.Small, cell.Since = intervalOf(get(c.Cell), page.Microseconds), ""
			}
			return cell
		}
		return column
	}
	batches := slices.ContainsFunc(cells, func(c *benchCell) bool { return c.Batch != "" })
	columns := []benchColumn{
		word("Dataset", func(i *Identity) string { return i.Dataset }, false),
		word("Codec", partCodec, false),
		{name: "Compress", text: true, cell: func(c *benchCell) page.Cell { return page.Cell{Mark: swatch(c.hue), Text: printable.Line(c.Compress)} }},
		word("Client", partClient, true),
		word("Server", partServer, true),
		word("Batch", partBatch, true),
		{name: "Callers", cell: func(c *benchCell) page.Cell { return page.Cell{Text: page.Thousands(int64(c.Concurrency))} }},
		{name: "Rate", rare: true, cell: func(c *benchCell) page.Cell {
			if c.Rate == 0 {
				return page.Cell{}
			}
			return page.Cell{Text: page.Thousands(int64(c.Rate))}
		}},
		{name: "State", text: true, rare: true, cell: func(c *benchCell) page.Cell {
			if c.Verified {
				return page.Cell{}
			}
			return page.Cell{Mark: `<b class="badge bad">` + template.HTML(failure(c.Cell)) + `</b> `, Text: printable.Line(c.Error)}
		}},
		estimate("Ops/s", roundly, func(c *Cell) Estimate { return c.OpsPerSecond }),
	}
	if batches {
		columns = append(columns, estimate("Values/s", roundly, func(c *Cell) Estimate { return c.ValuesPerSecond }))
	}
	columns = append(columns,
		latency("P50", func(c *Cell) Estimate { return c.P50 }),
		latency("P99", func(c *Cell) Estimate { return c.P99 }),
		of("", "Ratio", func(c *Cell) page.Cell { return page.Cell{Text: fmt.Sprintf("%.2f", c.Ratio)} }),
		of("", "Stored B/value", func(c *Cell) page.Cell { return perValue(c.StoredBytes, c.Values) }),
		benchColumn{name: "Redis B/key", rare: true, cell: func(c *benchCell) page.Cell {
			if c.RedisBytesPerKey == nil {
				return page.Cell{}
			}
			cell := page.Cell{Text: fmt.Sprintf("%.1f", *c.RedisBytesPerKey)}
			if c.base != nil && c.base.RedisBytesPerKey != nil && *c.base.RedisBytesPerKey > 0 {
				cell.Since = changePercent(*c.RedisBytesPerKey / *c.base.RedisBytesPerKey - 1)
			}
			return cell
		}},
		of("", "MEMORY USAGE", func(c *Cell) page.Cell { return optional(c.MemoryUsagePerKey, "%.1f") }),
		of("", "Hits", func(c *Cell) page.Cell {
			if c.Hits+c.Misses == 0 {
				return page.Cell{}
			}
			return page.Cell{Text: page.Share(float64(c.Hits) / float64(c.Hits+c.Misses))}
		}),
		estimate("Allocs/op", page.Short, func(c *Cell) Estimate { return c.AllocsPerOp }),
		estimate("B/op", roundly, func(c *Cell) Estimate { return c.BytesPerOp }),
		of("", "Plain B/value", func(c *Cell) page.Cell { return perValue(c.PlainBytes, c.Values) }),
		of("", "Late P99", func(c *Cell) page.Cell {
			if c.Late == nil {
				return page.Cell{}
			}
			return page.Cell{Text: page.Microseconds(c.Late.P99)}
		}),
		of("", "Unstarted", func(c *Cell) page.Cell {
			if c.Unstarted == 0 {
				return page.Cell{}
			}
			return page.Cell{Text: page.Thousands(c.Unstarted)}
		}),
		of("", "Operations", func(c *Cell) page.Cell { return page.Cell{Text: page.Thousands(c.Operations)} }),
		of("", "Keys", func(c *Cell) page.Cell { return page.Cell{Text: page.Thousands(int64(c.Keys))} }),
		benchColumn{name: "Limit", text: true, rare: true, cell: func(c *benchCell) page.Cell { return page.Cell{Text: printable.Line(c.Limit)} }},
	)
	for _, name := range Stages {
		columns = append(columns, of("Stages", page.Capital(name)+" P50", func(c *Cell) page.Cell {
			s, ok := c.Stages[name]
			if !ok {
				return page.Cell{}
			}
			return stageCell(c, name, s.P50)
		}))
	}
	resource := func(name string, cell func(*Resources) page.Cell) {
		columns = append(columns, of("Resources", name, func(c *Cell) page.Cell { return cell(&c.Resources) }))
	}
	resource("Client CPU", func(r *Resources) page.Cell { return page.Cell{Text: fmt.Sprintf("%.2f", r.ClientCPU)} })
	resource("Server CPU", func(r *Resources) page.Cell { return optional(r.ServerCPU, "%.2f") })
	resource("In B/op", func(r *Resources) page.Cell { return page.Cell{Text: roundly(r.ServerIn)} })
	resource("Out B/op", func(r *Resources) page.Cell { return page.Cell{Text: roundly(r.ServerOut)} })
	resource("GC share", func(r *Resources) page.Cell { return sharedCell(r.GCShare) })
	resource("GC/s", func(r *Resources) page.Cell { return page.Cell{Text: page.Short(r.GCCycles)} })
	resource("GC pause, max", func(r *Resources) page.Cell { return page.Cell{Text: page.Microseconds(r.GCPauseUS)} })
	resource("RSS, peak", func(r *Resources) page.Cell { return page.BytesCell(float64(r.RSSBytes)) })
	resource("RSS growth", func(r *Resources) page.Cell { return page.BytesCell(float64(r.RSSGrowth)) })
	resource("VSS, peak", func(r *Resources) page.Cell { return page.BytesCell(float64(r.VSSBytes)) })
	resource("Goroutines", func(r *Resources) page.Cell { return page.Cell{Text: page.Thousands(int64(r.Routines))} })
	resource("Pool waits/op", func(r *Resources) page.Cell { return optional(r.PoolWaits, "%.2f") })
	resource("Pool wait, µs/op", func(r *Resources) page.Cell { return optional(r.PoolWait, "%.1f") })
	return columns
}

// swatch is a spot of a colour.
func swatch(hue string) template.HTML { return template.HTML(`<i class="` + hue + `"></i>`) }

func optional(f *float64, format string) page.Cell {
	if f == nil {
		return page.Cell{}
	}
	return page.Cell{Text: fmt.Sprintf(format, *f)}
}

func perValue(bytes int64, values int) page.Cell {
	if values == 0 {
		return page.Cell{}
	}
	return page.Cell{Text: roundly(float64(bytes) / float64(values))}
}

// roundly is a number of things a second, or of bytes an operation.
func roundly(f float64) string {
	if f < 10 {
		return page.Short(f)
	}
	return page.Thousands(int64(math.Round(f)))
}

func intervalOf(e Estimate, show func(float64) string) string {
	if e.Interval == nil {
		return ""
	}
	return show(e.Interval[0]) + ".." + show(e.Interval[1])
}

// changeSince is a change in percent, with its sign if it is significant.
func changeSince(e, was Estimate) (text string, significant bool) {
	change, significant := e.Since(was)
	switch {
	case was.Median == 0:
		return "", false
	case !significant:
		return fmt.Sprintf("~%.1f%%", 100*math.Abs(change)), false
	}
	return changePercent(change), true
}

// changePercent is a change of an exact figure in percent.
func changePercent(change float64) string {
	s := fmt.Sprintf("%+.1f%%", 100*change)
	return strings.Replace(s, "-", "−", 1)
}

// figuresOf are the figures behind the pictures of a sheet.
func figuresOf(id, name string, cells []*benchCell) template.HTML {
	g := &page.Grid{ID: id, Label: "Figures of " + name, Caption: "Median of each stage, of the rounds together, with the 99th percentile beside it, and percentiles of whole operations, all in microseconds. CPU is compressing and decompressing."}
	if slices.ContainsFunc(cells, func(c *benchCell) bool { return c.AtLeast }) {
		g.Caption += " " + page.AtLeast + ": " + meansAtLeast + "."
	}
	g.Columns = append(g.Columns, page.Column{Name: "Setting", Text: true}, page.Column{Name: "Load", Text: true})
	for _, s := range Stages {
		g.Column(page.Capital(s))
	}
	g.Column("P90")
	g.Column("P99")
	g.Column("P99.9")
	g.Columns = append(g.Columns, page.Column{Name: "P99.9 from the real start", Rare: true})
	g.Column("CPU")
	g.Column("Ratio")
	for _, c := range cells {
		row := []page.Cell{{Mark: swatch(c.hue), Text: nameOf(c, cells, settingParts)}, {Text: loadOf(c, cells)}}
		for _, s := range Stages {
			stage := c.Stages[s]
			cell := stageCell(c.Cell, s, stage.P50)
			cell.Small = ofStage(c.Cell, s, page.Microseconds(stage.P99))
			row = append(row, cell)
		}
		for _, q := range []float64{0.9, 0.99, 0.999} {
			cell := page.Cell{}
			if us, ok := at(c.Latency, q); ok {
				cell = stageCell(c.Cell, total, us)
			}
			row = append(row, cell)
		}
		row = append(row, quantileCell(c.Service, 0.999),
			page.Cell{Text: page.Microseconds(packing(c.Cell))}, page.Cell{Text: fmt.Sprintf("%.2f", c.Ratio)})
		g.Row("", row...)
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
	return printable.Line(strings.Join(page.Filled(all...), ", "))
}

func quantileCell(points []Point, q float64) page.Cell {
	us, ok := at(points, q)
	if !ok {
		return page.Cell{}
	}
	return page.Cell{Text: page.Microseconds(us)}
}

// stageCell is a time of a stage; one that is a lower bound sorts by its number.
func stageCell(c *Cell, stage string, us float64) page.Cell {
	cell := page.Cell{Text: page.Microseconds(us)}
	if marked := ofStage(c, stage, cell.Text); marked != cell.Text {
		cell.Text, cell.By = marked, strconv.FormatFloat(us, 'f', -1, 64)
	}
	return cell
}

// at is the smallest time that a share of the operations or more did not exceed.
func at(points []Point, q float64) (float64, bool) {
	i := slices.IndexFunc(points, func(p Point) bool { return p.Quantile >= q-1e-9 })
	if i < 0 {
		return 0, false
	}
	return points[i].US, true
}

// packing is the processor time of compressing and decompressing.
func packing(c *Cell) float64 { return c.Stages["compress"].P50 + c.Stages["decompress"].P50 }

// limitsOf says what kept the cells of a sheet from being faster.
func limitsOf(id, name string, cells []*benchCell, cores int) (template.HTML, string) {
	g := &page.Grid{ID: id, Label: "Limits of " + name}
	g.Caption = fmt.Sprintf("Cores that client and server used; a full bar is all of the machine: %d. The client is the load generator and what is measured at once. In is to the server, Out from it.", cores)
	g.Columns = []page.Column{{Name: "Setting", Text: true}, {Name: "Load", Text: true}, {Name: "Limit", Text: true},
		{Name: "Why", Text: true, Rare: true}, {Name: "Client CPU"}, {Name: "Server CPU", Rare: true}, {Name: "GC share"}, {Name: "In, B/op"}, {Name: "Out, B/op"}, {Name: "Pool wait, µs/op", Rare: true}}
	counts := map[string]int{}
	for _, c := range cells {
		r := &c.Resources
		limit := page.Cell{}
		if c.Limit != "" {
			counts[c.Limit]++
			limit.Mark = template.HTML(`<b class="badge">` + template.HTMLEscapeString(printable.Line(c.Limit)) + `</b>`)
		}
		server := page.Cell{}
		if r.ServerCPU != nil {
			server = coresCell(*r.ServerCPU, cores)
		}
		g.Row("", page.Cell{Mark: swatch(c.hue), Text: nameOf(c, cells, settingParts)}, page.Cell{Text: loadOf(c, cells)}, limit,
			page.Cell{Text: printable.Line(c.Why)}, coresCell(r.ClientCPU, cores), server, sharedCell(r.GCShare),
			page.Cell{Text: roundly(r.ServerIn)}, page.Cell{Text: roundly(r.ServerOut)}, optional(r.PoolWait, "%.1f"))
	}
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b)) })
	var all []string
	for _, n := range names {
		all = append(all, fmt.Sprintf("%s in %d", printable.Line(n), counts[n]))
	}
	return g.HTML(), strings.Join(all, ", ")
}

// coresCell shows cores as a figure and a bar.
func coresCell(used float64, cores int) page.Cell {
	bar := fmt.Sprintf(`<svg class="meter" viewBox="0 0 48 9" aria-hidden="true"><path d="M0 0H%vV9H0z"/></svg> `, page.Px(48*min(max(used/float64(cores), 0), 1)))
	return page.Cell{Mark: template.HTML(bar), Text: fmt.Sprintf("%.2f", used)}
}

// momentsOf is a table of some of the moments.
func momentsOf(moments []Moment) template.HTML {
	const most = 25
	g := &page.Grid{ID: "moments", Label: "Memory and garbage collection by time", Caption: "Some of the moments, evenly spaced."}
	g.Columns = []page.Column{{Name: "Time, s"}, {Name: "RSS"}, {Name: "Heap"}, {Name: "GC pause, µs"}, {Name: "GC cycles"}, {Name: "Goroutines"},
		{Name: "Ops/s"}, {Name: "Doing", Text: true}}
	step := max(1, (len(moments)+most-1)/most)
	for i := 0; i < len(moments); i += step {
		m := &moments[i]
		g.Row("", page.Cell{Text: fmt.Sprintf("%.1f", m.AtS)}, page.BytesCell(float64(m.RSSBytes)), page.BytesCell(float64(m.HeapBytes)),
			page.Cell{Text: page.Microseconds(m.GCPauseUS)}, page.Cell{Text: strconv.Itoa(m.GCCycles)},
			page.Cell{Text: page.Thousands(int64(m.Goroutines))}, page.Cell{Text: roundly(m.OpsPerSecond)}, page.Cell{Text: printable.Line(m.Doing)})
	}
	return g.HTML()
}

// skippedOf lists what was not measured, combinations with the same reason together.
func skippedOf(skipped []Skipped) (template.HTML, string) {
	g := &page.Grid{ID: "skipped-table", Label: "Left out", Caption: "Combinations that there are no cells of."}
	g.Columns = []page.Column{{Name: "Combination", Text: true}, {Name: "Why", Text: true}}
	for _, s := range skipped[:min(len(skipped), skippedRows)] {
		what := strings.Join(page.Filled(s.Dataset, s.Codec, s.Compress, s.Client, s.Batch, s.Server), ", ")
		if s.Concurrency > 0 {
			what += ", " + callersOf(s.Concurrency)
		}
		if s.Track != "" {
			what += ", " + s.Track
		}
		g.Row("", page.Cell{Text: printable.Line(strings.TrimPrefix(what, ", "))}, page.Cell{Text: printable.Line(s.Reason)})
	}
	more := ""
	if n := len(skipped) - skippedRows; n > 0 {
		more = fmt.Sprintf("Another %s; the JSON has them.", page.Plural(n, "combination"))
	}
	return g.HTML(), more
}

// sharedCell is a share, if it is known.
func sharedCell(s *float64) page.Cell {
	if s == nil {
		return page.Cell{}
	}
	return page.Cell{Text: page.Share(*s)}
}

func dictionariesOf(dictionaries []Dictionary) template.HTML {
	g := &page.Grid{ID: "dictionaries-table", Label: "Dictionaries"}
	g.Caption = "Trained on the half of each set that is not measured. The payload ratio is of the other half, without headers; the bytes of a dictionary are counted in the bytes a key."
	g.Columns = []page.Column{{Name: "Dataset", Text: true}, {Name: "Track", Text: true, Rare: true}, {Name: "Codec", Text: true}, {Name: "Setting", Text: true}, {Name: "Bytes"},
		{Name: "Payload ratio", Rare: true}, {Name: "Builder", Text: true, Rare: true},
		{Name: "Samples"}, {Name: "Tried"}, {Name: "Seconds"}, {Name: "Why there is none", Text: true, Rare: true}}
	for _, d := range dictionaries {
		payload, size := page.Cell{}, page.Cell{}
		if d.Reason == "" {
			payload, size = page.Cell{Text: fmt.Sprintf("%.2f", d.Payload)}, page.Cell{Text: page.Thousands(int64(d.Bytes))}
		}
		g.Row("", page.Cell{Text: printable.Line(d.Dataset)}, page.Cell{Text: printable.Line(d.Track)}, page.Cell{Text: printable.Line(d.Codec)}, page.Cell{Text: printable.Line(d.Compress)}, size, payload,
			page.Cell{Text: printable.Line(d.Builder)},
			page.Cell{Text: page.Thousands(int64(d.Samples))}, page.Cell{Text: strconv.Itoa(d.Tried)}, page.Cell{Text: page.Short(d.Seconds)}, page.Cell{Text: printable.Line(d.Reason)})
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
	g := &page.Grid{ID: id + "-profiles-table", Label: "Profiles of " + name, Caption: "Part of the samples by what they were spent on, of all rounds of a cell together."}
	for _, k := range profileKinds {
		if slices.ContainsFunc(cells, func(c *benchCell) bool { _, ok := c.Profiles[k.kind]; return ok }) {
			g.Caption += fmt.Sprintf(" %s: %s.", page.Capital(k.kind), k.of)
		}
	}
	g.Columns = []page.Column{{Name: "Setting", Text: true}, {Name: "Load", Text: true}, {Name: "Profile", Text: true}}
	var shares []string
	for _, c := range flame.Categories() {
		shares = append(shares, c.String())
		g.Columns = append(g.Columns, page.Column{Name: page.Capital(c.Label()), Rare: true})
	}
	for _, c := range cells { // categories that flame does not know
		for _, kind := range slices.Sorted(maps.Keys(c.Profiles)) {
			for _, name := range slices.Sorted(maps.Keys(c.Profiles[kind].Shares)) {
				if !slices.Contains(shares, name) {
					shares = append(shares, name)
					g.Columns = append(g.Columns, page.Column{Name: page.Capital(printable.Line(name)), Rare: true})
				}
			}
		}
	}
	g.Columns = append(g.Columns, page.Column{Name: "Samples"}, page.Column{Name: "File, for go tool pprof", Text: true, Rare: true})
	var forest flame.Forest
	for _, c := range cells {
		for _, kind := range slices.Sorted(maps.Keys(c.Profiles)) {
			p := c.Profiles[kind]
			class := ""
			if p.Tree != nil && len(p.Tree.Nodes) > 0 {
				class = fmt.Sprintf("tree-%d", len(forest))
				forest = append(forest, largest(p.Tree, nodes))
			}
			row := []page.Cell{{Mark: swatch(c.hue), Text: nameOf(c, cells, settingParts)}, {Text: loadOf(c, cells)}, {Text: printable.Line(kind)}}
			for _, name := range shares {
				cell := page.Cell{}
				if f, ok := p.Shares[name]; ok {
					cell.Text = page.Share(f)
				}
				row = append(row, cell)
			}
			g.Row(class, append(row, page.Cell{Text: page.Thousands(p.Samples)}, page.Cell{Text: printable.Line(p.File)})...)
		}
	}
	if len(forest) > 0 {
		if data, err := json.Marshal(forest); err == nil { // it has no < or &: encoding/json writes \u003c
			graphs = template.HTML(`<template class="flames">` + printable.JSON(string(data)) + "</template>")
		}
	}
	return g.HTML(), graphs, g.Len()
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
