package advise

import (
	"cmp"

	"github.com/balekv/bale/cmd/internal/page"

	_ "embed"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Limits of the page: it stays below 300 KB with 200 groups, however long their names are.
const (
	drawnGroups    = 20  // bars of the first picture; the others are one bar
	detailedGroups = 10  // groups with a section of their own
	listedGroups   = 500 // rows of the table of groups
	listedReasons  = 20  // to leave groups alone
	reasonNames    = 5   // of groups, for each reason
	nameInTable    = 72  // columns
	nameInFull     = 600
	sampleInFull   = 400

	printedWarnings = 4 // as page.css has it

	worthSaying = 0.01 // of a group's memory, that another option would save
)

var (
	//go:embed page.html
	adviceMarkup string
	//go:embed page.css
	adviceStyle        string
	advicePageTemplate = page.Template("advice", adviceMarkup)
)

// WritePage writes the advice as one HTML file that needs nothing else: no script, font or
// picture from elsewhere, which its content security policy sees to. All of it can be read without
// JavaScript, on a telephone, in the dark and on paper. Names and values are shown escaped; bytes
// that are no text are shown as \xff.
func (a *Advice) WritePage(w io.Writer) error {
	return advicePageTemplate.Execute(w, newAdvicePage(a))
}

// advicePage is what the template shows.
type advicePage struct {
	Page         page.Page
	Source, Time string
	Answer       string
	Figures      []page.Figure
	Warnings     []string
	Unprinted    string        // the warnings that are not on paper
	Wide, Narrow *page.Drawing // the same picture for two widths
	Drawn        string        // what the picture leaves out
	Groups       int
	Priced       bool
	Rows         []pageRow
	Unlisted     string
	Rest         string // what the total has, and no group
	Sections     []pageGroup
	Keys         []pageKey
	Reasons      []pageReason
	InPlace      []string
	Next         []Step
	Facts        []page.Fact
}

// pageCell is an amount as it is shown, and as it is sorted by.
type pageCell struct {
	Text string
	By   int64
}

type pageRow struct {
	Name, Link, Type, Setting, Part, Month, Keys string
	Now, Saving                                  pageCell
}

type pageGroup struct {
	ID, Name, Full, Summary, Verdict, Others, Budget string
	Facts                                            []page.Fact
	Sizes, Costs                                     *page.Drawing
	Options                                          []pageOption
	Samples                                          []string
}

type pageOption struct {
	Name, Note, Ratio, Part, Pack, P99, Unpack, U99 string
	Chosen                                          bool
	Dictionary, Bytes                               pageCell
}

type pageKey struct {
	Name, Type, Group string
	Bytes             pageCell
}

type pageReason struct{ Why, Groups, Names string }

func newAdvicePage(a *Advice) *advicePage {
	p := &advicePage{
		Page:   page.New("bale advise: "+printable.Line(a.Source), "To the answer", adviceStyle, ""),
		Source: printable.Line(a.Source), Time: a.Time.UTC().Format("2 January 2006, 15:04 UTC"), Groups: len(a.Groups), Priced: a.Price > 0,
		Answer: answer(a), Figures: headFigures(a), Reasons: reasonsToLeave(a.Groups), Facts: methodFacts(a),
	}
	if len(a.Groups) > 0 {
		p.Wide, p.Narrow = savings(a.Groups, true), savings(a.Groups, false)
	}
	if n := len(a.Groups) - drawnGroups; n > 0 {
		p.Drawn = fmt.Sprintf(" The last bar is the other %s together.", page.Plural(n, "group"))
	}
	for i, g := range a.Groups[:min(len(a.Groups), listedGroups)] {
		p.Rows = append(p.Rows, row(i, &g))
	}
	if n := a.Total.Tables; n > 0 {
		p.Rest = fmt.Sprintf("The tables by which Redis finds the keys take another %s of the %s in all. Packing does not change them.", page.Amount(float64(n)), page.Amount(float64(a.Total.Now)))
	}
	if rest := a.Groups[len(p.Rows):]; len(rest) > 0 {
		now, saving := memoryOf(rest)
		p.Unlisted = fmt.Sprintf("Another %s of %s save %s; the JSON has them.", page.Plural(len(rest), "group"), page.Amount(float64(now)), page.Amount(saving))
	}
	for i, g := range a.Groups[:min(len(a.Groups), detailedGroups)] {
		p.Sections = append(p.Sections, section(a, i, &g))
	}
	for _, w := range a.Warnings {
		p.Warnings = append(p.Warnings, printable.Line(w))
	}
	if n := len(p.Warnings) - printedWarnings; n > 0 {
		p.Unprinted = fmt.Sprintf("and %d more", n)
	}
	for _, k := range a.TopKeys {
		p.Keys = append(p.Keys, pageKey{Name: page.Name(k.Name, nameInTable), Type: printable.Line(k.Type), Group: page.Name(k.Group, nameInTable), Bytes: bytesCell(float64(k.Bytes))})
	}
	if a.Server != nil {
		p.InPlace = a.Server.inside()
	}
	for _, s := range a.Next {
		p.Next = append(p.Next, Step{What: printable.Line(s.What), Code: printable.Lines(strings.TrimRight(s.Code, "\n")), Go: s.Go})
	}
	return p
}

func answer(a *Advice) string {
	chosen := 0
	for _, g := range a.Groups {
		if chosenOf(&g) != nil {
			chosen++
		}
	}
	renewals := a.renewals()
	switch {
	case len(a.Groups) == 0:
		return "There is nothing to say: no keys were found."
	case chosen == 0 && renewals != "":
		return renewals
	case chosen == 0 && len(a.Groups) == 1:
		return "Leave it as it is: there is no setting to recommend for the only group of keys." + a.packedAlready()
	case chosen == 0:
		return fmt.Sprintf("Leave it as it is: there is no setting to recommend for any of the %s of keys.%s", page.Plural(len(a.Groups), "group"), a.packedAlready())
	}
	of := fmt.Sprintf("%d of the %s", chosen, page.Plural(len(a.Groups), "group"))
	switch {
	case len(a.Groups) == 1:
		of = "the only group"
	case chosen == len(a.Groups):
		of = fmt.Sprintf("all %s", page.Plural(chosen, "group"))
	}
	about := map[bool]string{true: "about "}[a.Scan.Interrupted]
	s := fmt.Sprintf("Packing %s of keys would save %s%s of %s, which is %s", of, about, page.Amount(a.Total.Saving.Estimate), page.Amount(float64(a.Total.Now)), page.Part(a.Total.Saving.Estimate, a.Total.Now))
	if a.Price > 0 {
		s += fmt.Sprintf(", or %s a month", page.Money(a.Total.Month.Estimate))
	}
	return s + "." + a.packedAlready()
}

func headFigures(a *Advice) []page.Figure {
	if len(a.Groups) == 0 {
		return nil
	}
	t, now := a.Total, a.Total.Now
	note := "with the keys and their entries"
	if t.OutReach > 0 {
		note = fmt.Sprintf("%s of it in types that packing does not apply to", page.Amount(float64(t.OutReach)))
	}
	if !slices.ContainsFunc(a.Groups, func(g Group) bool { return chosenOf(&g) != nil }) {
		return []page.Figure{{Label: "Memory now", Value: page.Amount(float64(now)), Note: note}}
	}
	all := []page.Figure{
		{Label: "Memory, now → after", Value: page.Amount(float64(now)) + " → " + page.Amount(float64(now)-t.Saving.Estimate), Note: note},
		{Label: "Saved", Value: page.Part(t.Saving.Estimate, now), Note: a.boundsText(t.Saving, now, slices.ContainsFunc(a.Groups, Group.cut))},
	}
	if a.Price > 0 {
		all = append(all, page.Figure{Label: "Saved a month", Value: page.Money(t.Month.Estimate), Note: bounds(t.Month, page.Money, "%s to %s, ") + fmt.Sprintf("at %s for a GiB and month", page.Money(a.Price))})
	}
	if a.moves() {
		all = append(all, page.Figure{Label: "Network", Value: page.Amount(t.Network.Estimate) + "/s less", Note: fmt.Sprintf("for reads; unpacking them takes %s of one processor", page.Share(t.CPU))})
	}
	return all
}

func chosenOf(g *Group) *Option {
	if g.Chosen < 0 || g.Chosen >= len(g.Options) {
		return nil
	}
	return &g.Options[g.Chosen]
}

// settingOf is an option as people would say it.
func settingOf(o *Option) string {
	s := o.Setting
	if o.Dictionary > 0 {
		s += "+dict"
	}
	switch {
	case o.Encoding != "" && s == "none":
		s = o.Encoding
	case o.Encoding != "":
		s = o.Encoding + ", " + s
	}
	return printable.Line(s)
}

func memoryOf(groups []Group) (now int64, saving float64) {
	for _, g := range groups {
		now, saving = now+g.Now, saving+g.Saving.Estimate
	}
	return now, saving
}

func row(i int, g *Group) pageRow {
	r := pageRow{Name: page.Name(g.Name, nameInTable), Type: printable.Line(g.Type), Setting: "leave as it is", Now: bytesCell(float64(g.Now)), Keys: page.Thousands(g.Keys),
		Saving: noCell, Part: noCell.Text, Month: noCell.Text}
	if i < detailedGroups {
		r.Link = fmt.Sprintf("#group-%d", i+1)
	}
	if o := chosenOf(g); o != nil {
		r.Setting, r.Saving, r.Part, r.Month = settingOf(o), bytesCell(g.Saving.Estimate), page.Part(g.Saving.Estimate, g.Now), page.Money(g.Month.Estimate)
	}
	return r
}

func section(a *Advice, i int, g *Group) pageGroup {
	s := pageGroup{ID: fmt.Sprintf("group-%d", i+1), Name: page.Name(g.Name, nameInTable), Full: page.Name(g.Name, nameInFull), Summary: "leave as it is, " + page.Amount(float64(g.Now)), Verdict: a.verdictOf(g), Others: others(a, g), Budget: budgetOf(cmp.Or(g.Budget, a.Budget))}
	if s.Full == s.Name {
		s.Full = ""
	}
	chosen := chosenOf(g)
	if chosen != nil {
		s.Summary = fmt.Sprintf("%s saves %s of %s", settingOf(chosen), page.Amount(g.Saving.Estimate), page.Amount(float64(g.Now)))
	}
	s.Facts = facts(a, g, chosen)
	if len(g.Sizes) > 0 {
		s.Sizes = sizesPicture(s.ID+"-sizes", g)
	}
	if len(g.Options) > 0 {
		s.Costs = costsPicture(s.ID+"-costs", g, cmp.Or(g.Budget, a.Budget))
	}
	for j, o := range g.Options {
		dictionary := noCell
		if o.Dictionary > 0 {
			dictionary = bytesCell(float64(o.Dictionary))
		}
		s.Options = append(s.Options, pageOption{
			Name: settingOf(&o), Chosen: j == g.Chosen, Note: map[bool]string{true: "", false: "over the budget"}[o.InBudget],
			Ratio: fmt.Sprintf("%.2f", o.Ratio), Dictionary: dictionary, Bytes: bytesCell(float64(o.Bytes)), Part: page.Part(o.Saving.Estimate, g.Now),
			Pack: page.Microseconds(o.Pack.Mean), P99: page.Microseconds(o.Pack.P99), Unpack: page.Microseconds(o.Unpack.Mean), U99: page.Microseconds(o.Unpack.P99),
		})
	}
	for _, v := range g.Samples {
		s.Samples = append(s.Samples, text.Snip(printable.Lines(v), sampleInFull, "…"))
	}
	return s
}

// verdictOf says what to do with a group.
func (a *Advice) verdictOf(g *Group) string {
	o := chosenOf(g)
	if o == nil {
		return "Leave it as it is: " + reasonOf(g) + "."
	}
	dictionary := ""
	if o.Dictionary > 0 {
		dictionary = fmt.Sprintf(" with a dictionary of %s", page.Amount(float64(o.Dictionary)))
	}
	s := fmt.Sprintf("Use %s%s. It makes values %.2f times smaller, and Redis needs %s instead of %s for the group: %s less (%s). Packing takes %s µs a value, unpacking %s.",
		settingOf(o), dictionary, o.Ratio, page.Amount(float64(o.Bytes)), page.Amount(float64(g.Now)), page.Part(g.Saving.Estimate, g.Now), a.boundsText(g.Saving, g.Now, g.cut()),
		page.Microseconds(o.Pack.Mean), page.Microseconds(o.Unpack.Mean))
	if g.Why != "" {
		s += " See to this first: " + strings.TrimSuffix(printable.Line(g.Why), ".") + "."
	}
	return s
}

// others says why an option was chosen before others.
func others(a *Advice, g *Group) string {
	o := chosenOf(g)
	if o == nil {
		return ""
	}
	s := "No other option within the budget saves much more, and of those that save about as much it costs least."
	smaller := g.Options[:g.Chosen]
	less := func(s *Option) string { return page.Amount(float64(o.Bytes - s.Bytes)) }
	worth := func(s Option) bool { return float64(o.Bytes-s.Bytes) >= worthSaying*float64(g.Now) }
	if i := slices.IndexFunc(smaller, func(s Option) bool {
		return s.InBudget && s.Encoding == "" && float64(o.Bytes-s.Bytes) > sameWorth*float64(g.Now)
	}); i >= 0 {
		s = fmt.Sprintf("%s seems to need %s less, but the sample is too varied to be sure."+
			" Of the options that may save as much as any, the recommended one costs least.",
			settingOf(&smaller[i]), less(&smaller[i]))
	}
	if i := slices.IndexFunc(smaller, func(s Option) bool { return !s.InBudget && s.Encoding == "" && worth(s) }); i >= 0 {
		s += fmt.Sprintf(" %s would need %s less, but takes %s µs to pack and %s to unpack: more than the budget of %s.", settingOf(&smaller[i]),
			less(&smaller[i]), page.Microseconds(smaller[i].Pack.Mean), page.Microseconds(smaller[i].Unpack.Mean), budgetOf(cmp.Or(g.Budget, a.Budget)))
	}
	if i := slices.IndexFunc(smaller, func(s Option) bool { return s.InBudget && s.Encoding != "" && worth(s) }); i >= 0 {
		s += fmt.Sprintf(" A program that writes %s in the first place would need %s less (%s).",
			printable.Line(smaller[i].Encoding), less(&smaller[i]), settingOf(&smaller[i]))
	}
	return s
}

func reasonOf(g *Group) string {
	if g.Why == "" {
		return "there is no setting to recommend"
	}
	return strings.TrimSuffix(printable.Line(g.Why), ".")
}

func facts(a *Advice, g *Group, chosen *Option) []page.Fact {
	keys := fmt.Sprintf("%s, of type %s; their names take %.0f bytes in the mean", page.PluralOf(g.Keys, "key"), printable.Line(g.Type), g.KeyBytes)
	if g.Fields > 0 {
		keys += fmt.Sprintf("; %.1f fields in the mean", g.Fields)
	}
	all := []page.Fact{{Name: "Keys", Value: keys}}
	add := func(name, value string) { all = append(all, page.Fact{Name: name, Value: value}) }
	if g.Match != "" {
		all = append(all, page.Fact{Name: "Found by", Value: page.Name(g.Match, nameInFull), Code: true})
	}
	if chosen != nil {
		saved := page.Amount(g.Saving.Estimate) + bounds(g.Saving, page.Amount, ", between %s and %s")
		if a.Price > 0 {
			saved += fmt.Sprintf("; %s a month", page.Money(g.Month.Estimate)) + bounds(g.Month, page.Money, ", between %s and %s")
		}
		add("Saves", saved)
		if chosen.Later > 0 && g.Saving.Estimate/float64(max(g.Now, 1))-chosen.Later >= 0.005 {
			add("Later", page.Share(chosen.Later)+" of keys that come later: the dictionary was not trained on those")
		}
		if chosen.Network != 0 {
			add("Network", page.Amount(chosen.Network)+" less for each read of a value")
		}
	}
	if p := g.Packed; p != nil {
		add("Packed already", fmt.Sprintf("%s, which saves %s, with dictionary %s; a new one adds: %s", p.keysOf(g.Keys, page.PluralOf(g.Keys, "key")), page.Amount(float64(p.Saved)), p.with(), p.adds(g.Now)))
	}
	if g.Sampled > 0 {
		z := g.Size
		add("Values", fmt.Sprintf("%s in the mean; half up to %s, 90%% up to %s, 99%% up to %s, the largest %s", page.Amount(z.Mean), printable.Size(z.P50), printable.Size(z.P90), printable.Size(z.P99), printable.Size(z.Max)))
	}
	if len(g.Formats) > 0 {
		var formats []string
		for _, f := range g.Formats {
			formats = append(formats, printable.Line(f.Name)+" "+page.Share(f.Part))
		}
		add("Formats", strings.Join(formats, ", "))
	}
	if g.TTL.Part > 0 {
		add("Expiry", fmt.Sprintf("%s of the keys expire; half of those within %s, 90%% within %s", page.Share(g.TTL.Part), page.Span(g.TTL.P50), page.Span(g.TTL.P90)))
	} else {
		add("Expiry", "none of the keys expires")
	}
	if g.Sampled > 0 {
		add("Tried on", page.Plural(g.Sampled, map[bool]string{true: "field", false: "value"}[g.Type == Hash]))
	}
	if g.Entropy > 0 {
		alike := fmt.Sprintf("%.1f bits a byte (8 for random ones)", g.Entropy)
		if g.Common > 0 {
			alike += fmt.Sprintf("; %s of a value is in others, too", page.Share(g.Common))
		}
		add("Content", alike)
	}
	return all
}

// reasonsToLeave lists the reasons to leave groups alone, each with its groups, the largest first.
func reasonsToLeave(groups []Group) (all []pageReason) {
	by := map[string][]Group{}
	for _, g := range groups {
		if chosenOf(&g) == nil {
			by[reasonOf(&g)] = append(by[reasonOf(&g)], g)
		}
	}
	bytes := func(why string) int64 { now, _ := memoryOf(by[why]); return now }
	whys := slices.SortedFunc(maps.Keys(by), func(a, b string) int { return cmp.Or(cmp.Compare(bytes(b), bytes(a)), cmp.Compare(a, b)) })
	for _, why := range whys {
		same := by[why]
		slices.SortStableFunc(same, func(a, b Group) int { return cmp.Compare(b.Now, a.Now) })
		var names []string
		for _, g := range same[:min(len(same), reasonNames)] {
			names = append(names, page.Name(g.Name, nameInTable))
		}
		r := pageReason{Why: page.Capital(why), Groups: fmt.Sprintf("%s, %s", page.Plural(len(same), "group"), page.Amount(float64(bytes(why)))), Names: strings.Join(names, ", ")}
		if more := len(same) - reasonNames; more > 0 {
			r.Names += fmt.Sprintf(" and %d more", more)
		}
		all = append(all, r)
	}
	if len(all) > listedReasons {
		more := pageReason{Why: fmt.Sprintf("Another %s", page.Plural(len(all)-listedReasons, "reason")), Names: "the JSON has them"}
		var n int
		var now int64
		for _, why := range whys[listedReasons:] {
			n, now = n+len(by[why]), now+bytes(why)
		}
		more.Groups = fmt.Sprintf("%s, %s", page.Plural(n, "group"), page.Amount(float64(now)))
		all = append(all[:listedReasons], more)
	}
	return all
}

// methodFacts describe how the figures were measured.
func methodFacts(a *Advice) (all []page.Fact) {
	add := func(name, value string) { all = append(all, page.Fact{Name: name, Value: value}) }
	add("Source", printable.Line(a.Source))
	if s := a.Server; s != nil {
		server := keyspace.ServerName(printable.Line(s.Version))
		if s.Cluster {
			server += ", a cluster of " + page.Plural(s.Masters, "master")
		}
		if s.Replica {
			server += ", read from replicas"
		}
		server += "; " + page.Amount(float64(s.UsedMemory)) + " used"
		if s.MaxMemory > 0 {
			server += " of " + page.Amount(float64(s.MaxMemory))
		}
		if s.Policy != "" {
			server += ", " + printable.Line(s.Policy)
		}
		add("Server", server)
		if reads := s.Hits + s.Misses; reads > 0 && s.Reads > 0 {
			add("Reads", fmt.Sprintf("%.1f values a second since the start; %s hits and %s misses, %s of them hits", s.Reads, page.Thousands(s.Hits), page.Thousands(s.Misses), page.Share(float64(s.Hits)/float64(reads))))
		}
	}
	if a.Server != nil && len(a.Server.Unattributed) > 0 {
		add("Commands", a.Server.unattributed())
	}
	s := a.Scan
	add("Scan", fmt.Sprintf("%s, the names of %s seen; %s asked for type, size and expiry; %s tried, %s read; %s", page.PluralOf(s.Keys, "key"), page.Thousands(s.Seen), page.Thousands(s.LookedAt),
		page.Plural(s.Values, "value"), page.Amount(float64(s.BytesRead)), page.Span(s.Seconds)))
	if m := a.Model; m != nil && m.Measured > 0 {
		add("Memory", fmt.Sprintf("%s Modelled: %s. Measured: %s. The groups take more than MEMORY USAGE says: it leaves out expiries, and counts less for the entry of a key, or nothing.", m.sentence(), page.Amount(float64(m.Modelled)), page.Amount(float64(m.Measured))))
	} else {
		add("Memory", "reckoned as Redis allocates it, not compared with a server's own MEMORY USAGE")
	}
	add("Budget", budgetOf(a.Budget)+" of processor time to pack a value of up to 4 KiB, and to unpack it; in proportion more for a larger one")
	machine := fmt.Sprintf("%s, %s, %s", printable.Line(a.CPU), page.Plural(a.Cores, "core"), printable.Line(a.Go))
	if a.Slowness > 0 {
		machine += fmt.Sprintf("; it takes %.2f times as long as the reference processor, whose times these are", a.Slowness)
	}
	add("Machine", machine)
	add("Seed", strconv.FormatUint(a.Seed, 10))
	add("Took", page.Span(a.Seconds))
	return all
}

// noCell is shown where there is nothing to recommend.
var noCell = pageCell{Text: "–"}

func bytesCell(n float64) pageCell { return pageCell{page.Amount(n), int64(math.Round(n))} }

// bounds are those of an interval, nothing where they look alike.
func bounds(i Interval, show func(float64) string, format string) string {
	low, high := show(i.Low), show(i.High)
	if low == high {
		return ""
	}
	return fmt.Sprintf(format, low, high)
}

// boundsText is the interval of a saving.
func (a *Advice) boundsText(i Interval, of int64, cut bool) string {
	switch {
	case a.Scan.Interrupted:
		return "an estimate: not all was seen"
	case i.Low == i.High && cut:
		return fmt.Sprintf("the first %d KiB of all values were tried", headBytes>>10)
	case i.Low == i.High:
		return "all values were tried"
	}
	return partBounds(i, of) + " with 95% confidence"
}

// partBounds are those of an interval as parts of a whole, in percent, with a digit more where they
// would look alike.
func partBounds(i Interval, of int64) string {
	low, high := page.Part(i.Low, of), page.Part(i.High, of)
	if low == high && of > 0 {
		low, high = fmt.Sprintf("%.1f%%", 100*i.Low/float64(of)), fmt.Sprintf("%.1f%%", 100*i.High/float64(of))
	}
	return low + " to " + high
}

// budgetOf is a budget of processor time.
func budgetOf(d time.Duration) string {
	return strconv.FormatFloat(float64(d.Round(100*time.Nanosecond))/float64(time.Microsecond), 'f', -1, 64) + " µs"
}
