package outcome

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/jedib0t/go-pretty/v6/text"
)

// What the page shows at most: it stays below 1 MB with 200 cells.
const (
	panelCells   = 14  // of a picture; more are told apart by no one
	nameColumns  = 40  // of a setting
	failedListed = 10  // cells that have no figures, in the warnings
	skippedRows  = 100 // of the combinations that were left out
)

// benchContent is what the content of the page shows. Each part of it has an id that stays the same
// while a run goes on.
type benchContent struct {
	Live           bool
	Title          string // of the page
	Kicker, Answer string
	Choices        []string
	Findings       []benchFinding // of a study; then there are no Choices
	Figures        []page.Figure
	Warnings       []string
	Sheets         []benchSheet
	Charts         []benchChart // of a report
	Timeline       [][]*page.Drawing
	TimelineTable  template.HTML
	Tables         []benchTable
	Compared       string
	Repeat         []string
	Baseline       string
	Skipped        template.HTML
	SkippedMore    string
	Dictionaries   template.HTML
	Method         string
	Facts          []page.Fact
	Libraries      template.HTML
}

// benchMethod is how the lab measures.
const benchMethod = "Each cell is a combination of values, serializer, compressor, client and load. The rounds of all cells are interleaved in random order, and each begins with a warm-up that ends when the rate is steady. " +
	"Every value that is read back is compared with the one that was written. Bytes are exact; times are medians of the rounds, with the interval that order statistics give. " +
	"The load generator is part of the client, and of the times and resources that are shown for it."

// benchFinding is what a study says of one of the things that it compares.
type benchFinding struct {
	About  string
	Claims []string
	Table  template.HTML
	Broad  bool // it takes the width of the page
}

// benchTable is the table of all cells of a track.
type benchTable struct {
	ID, Title string
	Table     template.HTML
}

// benchSheet is all about a set of values in a track.
type benchSheet struct {
	ID, Name, Track, About string
	Sizes, Speeds          [][]*page.Drawing
	Stages, Latency        [][]*page.Drawing
	Costs, Sweeps          [][]*page.Drawing
	Figures, Limits        template.HTML
	LimitsSummary          string
	Profiles, Graphs       template.HTML
	ProfilesSummary        string
	OpenLoop, Baseline     bool
	Mix                    string // GETS:SETS
}

// benchCell is a cell as it is shown.
type benchCell struct {
	*Cell
	index int    // in the run
	base  *Cell  // that it is compared with, if there is one
	hue   string // the class of its colour
}

// drawn says that a cell has figures.
func (c *benchCell) drawn() bool { return c.Verified && len(c.Stages) > 0 }

// benchPanel are cells that stand in one picture.
type benchPanel struct {
	title string // what they have in common, and others have not
	cells []*benchCell
	names []string // what tells each from the others
}

func newBenchContent(run *Run, o PageOptions) *benchContent {
	baseline := o.Baseline
	if o.Live { // it is not whole yet, and nobody ended it
		live := *run
		live.Environment.Interrupted, run = false, &live
	}
	e := &run.Environment
	c := &benchContent{Live: o.Live, Kicker: kicker(run, o.Live), Method: benchMethod, Facts: environment(e)}
	c.Findings = findingsOf(run.Findings)
	var best []choice
	if len(run.Findings) == 0 && !run.Environment.Interrupted {
		best = choices(run)
		for _, s := range best {
			c.Choices = append(c.Choices, printable.Line(s.says))
		}
	}
	cells := benchCells(run, baseline)
	sets := sheetsOf(cells)
	c.Answer = benchAnswer(run, len(sets), best, o.Live)
	c.Title = "balebench run: " + c.Answer
	if e.Study != "" {
		c.Title = "balebench study " + printable.Line(e.Study) + ": " + c.Answer
	}
	c.Figures, c.Warnings = benchSummary(run, best), benchWarnings(run, cells)
	profiles := 0
	for i := range run.Cells {
		profiles += len(run.Cells[i].Profiles)
	}
	swept := map[int]bool{}
	for _, s := range run.Sweeps {
		for _, i := range s.Cells {
			swept[i] = true
		}
	}
	ids := map[string]bool{}
	for _, set := range sets {
		id := slug("data-"+set[0].Dataset, ids)
		c.Sheets = append(c.Sheets, sheetOf(id, run, cells, set, swept, max(flameNodes/max(profiles, 1)-rowNodes, 5), baseline != nil))
	}
	for _, track := range tracksOf(cells) {
		t := benchTable{ID: slug("cells-"+track[0].Track, ids), Title: "All cells"}
		if track[0].Track != "" {
			t.Title = "All cells, " + printable.Line(track[0].Track) + " track"
		}
		t.Table = allCells(t.ID+"-table", t.Title, track, baseline != nil)
		c.Tables = append(c.Tables, t)
	}
	if len(run.Timeline) > 1 {
		c.Timeline, c.TimelineTable = timelineOf(run.Timeline), momentsOf(run.Timeline)
	}
	if baseline != nil {
		c.Compared, c.Baseline = comparedWith(cells, baseline), shellLine(baseline.Environment.Command)
	}
	c.Repeat, c.Libraries = repeat(e), librariesOf(e.Libraries)
	c.Skipped, c.SkippedMore = skippedOf(run.Skipped)
	c.Dictionaries = dictionariesOf(run.Dictionaries)
	return c
}

func kicker(run *Run, live bool) string {
	parts := []string{run.Environment.command()}
	if live {
		parts = append(parts, "running")
		if n := len(run.Timeline); n > 0 && run.Timeline[n-1].Doing != "" {
			parts = append(parts, printable.Line(run.Timeline[n-1].Doing))
		}
	}
	if t := run.Environment.Time; !t.IsZero() {
		parts = append(parts, t.UTC().Format("2 January 2006, 15:04 UTC"))
	}
	return strings.Join(parts, " · ")
}

// command is the name of the command that made a result.
func (e *Environment) command() string {
	switch {
	case e.Study != "":
		return "balebench study " + printable.Line(e.Study)
	case len(e.StudyCommand) > 1:
		return printable.Line(strings.Join(e.StudyCommand[:2], " "))
	}
	return "balebench run"
}

func benchAnswer(run *Run, sets int, choices []choice, live bool) string {
	cells := fmt.Sprintf("%s of %s", page.Plural(len(run.Cells), "cell"), page.Plural(sets, "dataset"))
	switch {
	case len(run.Cells) == 0 && live:
		return "Nothing is measured yet"
	case len(run.Cells) == 0:
		return "Nothing was measured"
	case run.Environment.Question != "":
		return printable.Line(run.Environment.Question)
	case live:
		return cells + " so far"
	case run.Environment.Interrupted:
		return cells + ", interrupted"
	case len(choices) > 1:
		return headlines(choices, sets)
	case len(choices) == 1:
		return cmp.Or(choices[0].headline(), "Nothing was verified")
	case slices.ContainsFunc(run.Cells, func(c Cell) bool { return c.Rate > 0 }):
		return rateHeadline(run)
	}
	return cells
}

func benchSummary(run *Run, best []choice) (all []page.Figure) {
	e := &run.Environment
	if len(run.Cells) == 0 {
		return nil
	}
	bad, operations := 0, int64(0)
	for _, c := range run.Cells {
		operations += c.Operations
		if !c.Verified {
			bad++
		}
	}
	note := "every value read back was the one written"
	if bad > 0 {
		note = fmt.Sprintf("%d without figures", bad)
	}
	if len(best) == 1 && best[0].cell != nil {
		all = best[0].figures()
	}
	all = append(all, page.Figure{Label: "Measured for", Value: page.Span(e.Seconds), Note: fmt.Sprintf("%s of %s, %s s each; %s operations, %s", page.Plural(len(run.Cells), "cell"), page.Plural(e.Rounds, "round"),
		page.Short(e.DurationS), page.ShortCount(float64(operations)), note)})
	server := "on a private server"
	switch {
	case e.Embedded:
		server = "embedded: latencies mean little"
	case !e.Private:
		server = "on a server that was given"
	}
	name, version, _ := strings.Cut(keyspace.ServerName(printable.Line(e.RedisVersion)), " ")
	all = append(all, page.Figure{Label: name, Value: version, Note: server})
	all = append(all, page.Figure{Label: "Machine", Value: page.Plural(e.Cores, "core"), Note: strings.Join(page.Filled(printable.Line(e.CPU), printable.Line(e.Go)), ", ")})
	return all
}

// figures are the two that a choice is about, beside those of plain values.
func (c *choice) figures() []page.Figure {
	bytes := func(of *Cell) string { return page.Amount(math.Round(of.BytesPerKey())) }
	rate := func(of *Cell) string { return page.Thousands(int64(math.Round(of.ValuesPerSecond.Median))) }
	plain := "plain values"
	if !c.plain.plain() {
		plain = printable.Line(c.plain.Compress)
	}
	size := page.Figure{Label: "A key in Redis", Value: bytes(c.cell), Note: "nothing here takes much less"}
	if c.plain.RedisBytesPerKey == nil {
		size.Label = "A value, stored"
	}
	speed := page.Figure{Label: "Values a second", Value: rate(c.cell), Note: "with " + callersOf(c.cell.Concurrency)}
	if c.cell.Identity != c.plain.Identity {
		size.Note, speed.Note = "instead of "+bytes(c.plain)+" with "+plain, speed.Note+"; "+rate(c.plain)+" with "+plain
	}
	return []page.Figure{size, speed}
}

func benchWarnings(run *Run, cells []*benchCell) (all []string) {
	e := &run.Environment
	var bad []*benchCell
	unsteady, atLeasts := 0, 0
	for _, c := range cells {
		if !c.Verified {
			bad = append(bad, c)
		} else if c.AtLeast {
			atLeasts++
		}
		if slices.ContainsFunc(c.Rounds, func(r Round) bool { return !r.Steady }) {
			unsteady++
		}
	}
	for _, c := range bad[:min(len(bad), failedListed)] {
		all = append(all, strings.TrimSuffix(failure(c.Cell)+": "+fullName(c.Cell)+": "+printable.Line(c.Error), ": "))
	}
	if n := len(bad) - failedListed; n > 0 {
		all = append(all, fmt.Sprintf("Another %s without figures; the table of all cells has them.", page.Plural(n, "cell")))
	}
	if e.Embedded {
		all = append(all, "The server is an embedded stand-in for Redis within this process. Ratios are exact; latencies mean little, and bytes a key are unknown.")
	}
	if atLeasts > 0 {
		all = append(all, fmt.Sprintf("Latencies of %s are lower bounds (%s): the slowest operations were given up, or took longer than can be told.", page.Plural(atLeasts, "cell"), page.AtLeast))
	}
	if unsteady > 0 {
		all = append(all, fmt.Sprintf("%s still getting faster or slower when the warm-up was given up, in one round or more.", were(unsteady, "cell")))
	}
	for _, n := range append(slices.Clone(e.Notes), run.Warnings()...) {
		all = append(all, printable.Line(n))
	}
	return all
}

func were(n int, what string) string {
	if n == 1 {
		return "1 " + what + " was"
	}
	return page.Plural(n, what) + " were"
}

// benchCells are the cells of a run with their colours, and what they are compared with.
func benchCells(run, baseline *Run) (all []*benchCell) {
	was := map[Identity]*Cell{}
	if baseline != nil {
		for i := range baseline.Cells {
			if c := &baseline.Cells[i]; c.Verified && len(c.Stages) > 0 {
				was[c.Identity] = c
			}
		}
	}
	hue := huesOf(run.Cells)
	for i := range run.Cells {
		c := &run.Cells[i]
		all = append(all, &benchCell{Cell: c, index: i, base: was[c.Identity], hue: hue(&c.Identity)})
	}
	return all
}

// hues are the classes of the colours, and of which compressor one always is.
var (
	hues     = []string{"hue-a", "hue-b", "hue-c", "hue-d", "hue-e", "hue-f", "hue-g", "hue-h"}
	hueOfOne = map[string]int{"none": 0, "snappy": 1, "s2": 2, "lz4": 3, "gzip": 4, "zstd": 5}
)

// huesOf gives each compressor a colour, which it has in all pictures; where the run compares none,
// each codec, or else each client.
func huesOf(cells []Cell) func(*Identity) string {
	family := func(s string) string { return regexp.MustCompile(`^[^:+/\-]*`).FindString(s) }
	of := func(i *Identity) string { return family(i.Compress) }
	count := func(of func(*Identity) string) (names []string) {
		for i := range cells {
			if name := of(&cells[i].Identity); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		return names
	}
	names := count(of)
	if len(names) < 2 {
		of = func(i *Identity) string { return i.Codec }
		if names = count(of); len(names) < 2 {
			of = func(i *Identity) string { return i.Client }
			names = count(of)
		}
	}
	next, place := 0, map[string]int{}
	for _, name := range names {
		if p, ok := hueOfOne[name]; ok {
			place[name] = p
		}
	}
	for _, name := range names {
		if _, ok := place[name]; ok {
			continue
		}
		for tried := 0; tried < len(hues) && slices.ContainsFunc(names, func(n string) bool { p, ok := place[n]; return ok && p == next%len(hues) }); tried++ {
			next++
		}
		place[name] = next % len(hues)
		next++
	}
	return func(i *Identity) string { return hues[place[of(i)]] }
}

// sheetsOf are the cells of each set of values in each track, the typed track first.
func sheetsOf(cells []*benchCell) (sheets [][]*benchCell) {
	for _, track := range tracksOf(cells) {
		sheets = append(sheets, groupedBy(track, func(c *benchCell) string { return c.Dataset })...)
	}
	return sheets
}

// tracksOf are the cells of each track: they are never in one picture or table.
func tracksOf(cells []*benchCell) [][]*benchCell {
	tracks := groupedBy(cells, func(c *benchCell) string { return c.Track })
	slices.SortStableFunc(tracks, func(a, b []*benchCell) int { return strings.Compare(b[0].Track, a[0].Track) }) // typed before dynamic
	return tracks
}

// groupedBy splits cells by a key, in the order that the keys come first.
func groupedBy[K comparable](cells []*benchCell, key func(*benchCell) K) (groups [][]*benchCell) {
	at := map[K]int{}
	for _, c := range cells {
		i, ok := at[key(c)]
		if !ok {
			i = len(groups)
			at[key(c)] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], c)
	}
	return groups
}

// A part of an identity that names are made of.
type benchPart func(*Identity) string

var (
	partCompress benchPart = func(i *Identity) string { return i.Compress }
	partCodec    benchPart = func(i *Identity) string { return i.Codec }
	partClient   benchPart = func(i *Identity) string { return i.Client }
	partServer   benchPart = func(i *Identity) string { return i.Server }
	partBatch    benchPart = func(i *Identity) string { return i.Batch }
	partCallers  benchPart = func(i *Identity) string { return callersOf(i.Concurrency) }
	partRate     benchPart = func(i *Identity) string {
		if i.Rate == 0 {
			return ""
		}
		return page.Thousands(int64(i.Rate)) + " ops/s"
	}

	settingParts = []benchPart{partCodec, partCompress, partClient}
	loadParts    = []benchPart{partCallers, partRate, partBatch, partServer}
)

func varies(cells []*benchCell, part benchPart) bool {
	return slices.ContainsFunc(cells, func(c *benchCell) bool { return part(&c.Identity) != part(&cells[0].Identity) })
}

// nameOf is what tells a cell from the others, by those parts that differ among them; of a single
// one, its codec and compressor.
func nameOf(c *benchCell, among []*benchCell, parts []benchPart) string {
	var all []string
	for _, p := range parts {
		if varies(among, p) {
			all = append(all, p(&c.Identity))
		}
	}
	if all = page.Filled(all...); len(all) == 0 {
		all = []string{c.Codec, c.Compress}
	}
	return text.Snip(printable.Line(strings.Join(all, " ")), nameColumns, "…")
}

// fullName is all that identifies a cell.
func fullName(c *Cell) string {
	i := &c.Identity
	return printable.Line(strings.Join(page.Filled(i.Dataset, i.Codec+" "+i.Compress, i.Client, i.Batch, i.Server, callersOf(i.Concurrency), partRate(i)), ", "))
}

func callersOf(n int) string { return page.Plural(n, "caller") }

// panelsOf splits the cells of a sheet into pictures: by load, and further where a picture would
// have too many.
func panelsOf(cells []*benchCell) (panels []benchPanel) {
	type load struct {
		callers       int
		rate          float64
		batch, server string
	}
	groups := groupedBy(cells, func(c *benchCell) load { return load{c.Concurrency, c.Rate, c.Batch, c.Server} })
	slices.SortStableFunc(groups, func(a, b []*benchCell) int { return a[0].Concurrency - b[0].Concurrency })
	var fitting [][]*benchCell
	for _, g := range groups {
		fitting = append(fitting, fewest(g)...)
	}
	groups = fitting
	for _, g := range groups {
		pictures := (len(g) + panelCells - 1) / panelCells
		for few := range slices.Chunk(g, (len(g)+pictures-1)/pictures) {
			panels = append(panels, panelOf(few, cells))
		}
	}
	return panels
}

// fewest splits cells by some of their parts into the fewest groups that fit into a picture each.
// Cells that no parts split so, and such that nothing would be left to compare of, stay together.
func fewest(cells []*benchCell) (best [][]*benchCell) {
	if len(cells) <= panelCells {
		return [][]*benchCell{cells}
	}
	for _, parts := range [][]benchPart{{partClient}, {partCodec}, {partCompress}, {partClient, partCodec}, {partClient, partCompress}, {partCodec, partCompress}} {
		split := groupedBy(cells, func(c *benchCell) string {
			var names []string
			for _, part := range parts {
				names = append(names, part(&c.Identity))
			}
			return strings.Join(names, "\n")
		})
		fits := !slices.ContainsFunc(split, func(g []*benchCell) bool { return len(g) > panelCells })
		if fits && 2*len(split) <= len(cells) && (best == nil || len(split) < len(best)) {
			best = split
		}
	}
	if best == nil {
		best = [][]*benchCell{cells}
	}
	return best
}

// panelOf names the cells of a picture among all of their sheet.
func panelOf(cells, among []*benchCell) benchPanel {
	p := benchPanel{cells: cells}
	titles := []string{callersOf(cells[0].Concurrency)}
	for _, part := range slices.Concat(loadParts[1:], settingParts) {
		if varies(among, part) && !varies(cells, part) {
			titles = append(titles, part(&cells[0].Identity))
		}
	}
	p.title = printable.Line(strings.Join(page.Filled(titles...), ", "))
	for _, c := range cells {
		name := ""
		if len(cells) == 1 {
			name = nameOf(c, among, settingParts)
		} else {
			name = nameOf(c, cells, settingParts)
		}
		p.names = append(p.names, name)
	}
	return p
}

func sheetOf(id string, run *Run, all, set []*benchCell, swept map[int]bool, nodes int, baseline bool) benchSheet {
	first := set[0]
	s := benchSheet{ID: id, Name: printable.Line(first.Dataset), Track: printable.Line(first.Track), Baseline: baseline, Mix: printable.Line(run.Environment.Mix)}
	if first.Values > 0 {
		s.About = fmt.Sprintf("%s of %s in the mean, as they are given", page.Plural(first.Values, "value"), page.Amount(float64(first.RawBytes)/float64(first.Values)))
	}
	ok := slices.DeleteFunc(slices.Clone(set), func(c *benchCell) bool { return !c.drawn() })
	if n := len(set) - len(ok); n > 0 {
		s.About = strings.Join(page.Filled(s.About, page.Plural(n, "cell")+" without figures"), "; ")
	}
	closed := slices.DeleteFunc(slices.Clone(ok), func(c *benchCell) bool { return swept[c.index] })
	var sizes, speeds, stages, latency, costs, sweeps []sketch
	if len(ok) > 0 {
		sizes = append(sizes, sketch{id + "-sizes", func(id string, width page.Px) *page.Drawing { return sizesOfCells(id, width, ok) }})
	}
	for i, p := range panelsOf(closed) {
		speeds = append(speeds, sketch{fmt.Sprintf("%s-speeds-%d", id, i+1), func(id string, width page.Px) *page.Drawing { return speedsPicture(id, width, &p) }})
		stages = append(stages, sketch{fmt.Sprintf("%s-stages-%d", id, i+1), func(id string, width page.Px) *page.Drawing { return stagesPicture(id, width, &p, baseline) }})
		latency = append(latency, sketch{fmt.Sprintf("%s-latency-%d", id, i+1), func(id string, width page.Px) *page.Drawing { return latencyPicture(id, width, &p) }})
	}
	if len(ok) > 0 {
		costs = append(costs, sketch{id + "-costs", func(id string, width page.Px) *page.Drawing { return costsOfCells(id, width, ok) }})
	}
	for i, sweep := range run.Sweeps {
		if sweep.Dataset != first.Dataset || sweep.Track != first.Track {
			continue
		}
		var steps []*benchCell
		for _, at := range sweep.Cells {
			if at >= 0 && at < len(all) && all[at].drawn() {
				steps = append(steps, all[at])
			}
		}
		if len(steps) == 0 {
			continue
		}
		sweeps = append(sweeps, sketch{fmt.Sprintf("%s-sweep-%d", id, i+1), func(id string, width page.Px) *page.Drawing {
			return sweepPicture(id, width, &sweep, steps, nameOf(steps[0], set, settingParts))
		}})
		if p := kneePanel(&sweep, steps, set); len(p.cells) > 0 {
			sweeps = append(sweeps, sketch{fmt.Sprintf("%s-knee-%d", id, i+1), func(id string, width page.Px) *page.Drawing { return latencyPicture(id, width, &p) }})
		}
	}
	s.Sizes, s.Speeds = arranged(sizes), arranged(speeds)
	s.Stages, s.Latency, s.Costs, s.Sweeps = arranged(stages), arranged(latency), arranged(costs), arranged(sweeps)
	s.OpenLoop = slices.ContainsFunc(ok, func(c *benchCell) bool { return len(c.Service) > 0 })
	s.Figures = figuresOf(id+"-figures", s.Name, ok)
	s.Limits, s.LimitsSummary = limitsOf(id+"-limits", s.Name, ok, max(run.Environment.Cores, 1))
	profiles := 0
	s.Profiles, s.Graphs, profiles = profilesOf(id, s.Name, ok, nodes)
	s.ProfilesSummary = page.Plural(profiles, "profile")
	return s
}

// kneePanel are the cell at the knee of a sweep and the one above it: there it shows what waiting
// callers hide.
func kneePanel(sweep *Sweep, steps, set []*benchCell) benchPanel {
	var few []*benchCell
	for i, c := range steps {
		if c.Rate == sweep.Knee {
			few = append(few, c)
			if i+1 < len(steps) {
				few = append(few, steps[i+1])
			}
		}
	}
	p := benchPanel{cells: few}
	if len(few) > 0 {
		p.title = nameOf(few[0], set, settingParts) + ", at the knee and above"
	}
	for _, c := range few {
		p.names = append(p.names, partRate(&c.Identity))
	}
	return p
}

var noSlug = regexp.MustCompile(`[^a-z0-9]+`)

// slug makes an id of a name, one that is not in ids yet.
func slug(name string, ids map[string]bool) string {
	base := strings.Trim(noSlug.ReplaceAllString(strings.ToLower(name), "-"), "-")
	id := base
	for n := 2; ids[id]; n++ {
		id = fmt.Sprintf("%s-%d", base, n)
	}
	ids[id] = true
	return id
}

// environment are the facts about where a run was; none as long as nothing is known of it.
func environment(e *Environment) (all []page.Fact) {
	if e.Go == "" {
		return nil
	}
	add := func(name, value string) {
		if value != "" {
			all = append(all, page.Fact{Name: name, Value: value})
		}
	}
	add("Load", printable.Line(e.Load))
	redis := keyspace.ServerName(printable.Line(e.RedisVersion))
	switch {
	case e.Embedded:
		redis = "an embedded stand-in for Redis within this process"
	case e.Private:
		redis += ", a private server of the run"
	}
	if len(e.Servers) == 0 {
		add("Server", redis)
	}
	add("Servers", printable.Line(strings.Join(e.Servers, ", ")))
	add("bale", printable.Line(e.Bale))
	add("Go", strings.Join(page.Filled(printable.Line(e.Go), printable.Line(e.OS)), ", "))
	machine := page.Filled(printable.Line(e.CPU), page.Plural(e.Cores, "core"))
	if e.MemoryBytes > 0 {
		machine = append(machine, page.Amount(float64(e.MemoryBytes))+" of memory")
	}
	add("Machine", strings.Join(machine, ", "))
	add("Rounds", fmt.Sprintf("%s of each cell, %s s of it measured in all; the order of cells was random in each", page.Plural(e.Rounds, "round"), page.Short(e.DurationS)))
	add("Seed", strconv.FormatUint(e.Seed, 10))
	add("Took", page.Span(e.Seconds))
	return all
}

// librariesOf is a table of what did the work.
func librariesOf(all []Library) template.HTML {
	g := &page.Grid{ID: "libraries-table", Label: "Libraries", Columns: []page.Column{{Name: "Name", Text: true}, {Name: "Library", Text: true}, {Name: "Version", Text: true, Rare: true}, {Name: "Note", Text: true, Rare: true}}}
	for _, l := range all {
		if l.Module != "" || l.Note != "" {
			g.Row("", page.Cell{Text: printable.Line(l.Name)}, page.Cell{Text: printable.Line(l.Module)}, page.Cell{Text: printable.Line(l.Version)}, page.Cell{Text: printable.Line(l.Note)})
		}
	}
	return g.HTML()
}

// repeat are the commands that make the run again.
func repeat(e *Environment) (all []string) {
	if len(e.Command) == 0 {
		return nil
	}
	if version := e.Bale; strings.HasPrefix(version, "v") && !strings.ContainsAny(version, "+ ") {
		all = append(all, "go install github.com/balekv/bale/cmd/balebench@"+printable.Line(version))
	}
	command := e.Command
	if e.Private && !e.Embedded {
		all = append(all, "sudo apt-get install redis-server # here it was "+printable.Line(e.RedisVersion))
	} else if !e.Embedded {
		command = slices.Concat(command, []string{"--redis", "redis://HOST:PORT"})
	}
	if len(e.StudyCommand) > 0 {
		return append(all, shellLine(e.StudyCommand), shellLine(command)+" # what the study stands for")
	}
	return append(all, shellLine(command))
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// shellLine is a command as it is typed.
func shellLine(command []string) string {
	words := slices.Clone(command)
	for i, w := range words {
		if !plainWord.MatchString(w) {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return printable.Line(strings.Join(words, " "))
}

func comparedWith(cells []*benchCell, baseline *Run) string {
	matched := 0
	for _, c := range cells {
		if c.base != nil {
			matched++
		}
	}
	e := &baseline.Environment
	s := fmt.Sprintf("Compared with a run of %s", e.Time.UTC().Format("2 January 2006, 15:04 UTC"))
	if e.Bale != "" {
		s += " by bale " + printable.Line(e.Bale)
	}
	s += fmt.Sprintf(": %s there, too", map[bool]string{true: "all cells are", false: fmt.Sprintf("%d of %s are", matched, page.Plural(len(cells), "cell"))}[matched == len(cells)])
	return s + ". In pictures it is the outline and the dashed lines, in tables the change in percent. Whether a change is more than chance, balebench compare says."
}
