package advise

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/jedib0t/go-pretty/v6/text"
)

// The columns that a group's name and its contents take at most.
const (
	shownAdvice   = 24
	shownContents = 14
	shownProgress = 20 // beside the step and the time that is left, in 60 columns
)

// Schema is the one of the JSON, in docs/schemas.
func (a *Advice) Schema() string { return "advise-v3" }

// WriteText writes the answer as tables; all adds everything that was tried on each group.
func (a *Advice) WriteText(w page.Sheet, all bool) {
	printable.Fprintf(w, "%s\n", a.Source)
	w.Hanging("  ", adviceSource(a))
	var worth, left []*Group
	for i := range a.Groups {
		if g := &a.Groups[i]; g.Chosen >= 0 {
			worth = append(worth, g)
		} else {
			left = append(left, g)
		}
	}
	if len(worth) > 0 {
		printable.Fprintf(w, "\n")
		w.Hanging("", "what compression saves, in the bytes that Redis allocates; processor time is in µs for a value (seconds for a million):")
		adviceTable(w, worth)
	}
	if len(left) > 0 {
		printable.Fprintf(w, "\nwhat to leave as it is:\n")
		leftTable(w, left)
	}
	a.packedTable(w)
	if all {
		for _, g := range worth {
			adviceOptions(w, g)
		}
		for _, g := range left {
			adviceOptions(w, g)
		}
	}
	for i := range a.Groups {
		if g := &a.Groups[i]; len(g.Samples) > 0 {
			printable.Fprintf(w, "\n")
			w.Wrapped(page.Name(g.Name, page.Width) + ", some of its values:")
			for _, v := range g.Samples {
				w.Wrapped(v)
			}
		}
	}
	printable.Fprintf(w, "\n")
	w.Wrapped(adviceTotal(a))
	for _, warning := range a.Warnings {
		w.Hanging("  ", "NOTE: "+warning)
	}
	for i, step := range a.Next {
		printable.Fprintf(w, "\n")
		w.Hanging("   ", fmt.Sprintf("%d. %s", i+1, step.What))
		for line := range strings.Lines(step.Code) {
			io.WriteString(w, "   "+printable.Lines(strings.TrimRight(line, "\n"))+"\n")
		}
	}
}

// adviceSource is what was looked at, and with what.
func adviceSource(a *Advice) string {
	var b strings.Builder
	if s := a.Server; s != nil {
		b.WriteString(keyspace.ServerName(s.Version))
		if s.Cluster {
			fmt.Fprintf(&b, ", a cluster of %s", page.Plural(s.Masters, "master"))
		}
		if s.Replica {
			b.WriteString(", read from replicas")
		}
		if s.UsedMemory > 0 {
			fmt.Fprintf(&b, ", used_memory %s", page.Amount(float64(s.UsedMemory)))
		}
		b.WriteString("; ")
	}
	fmt.Fprintf(&b, "%s seen, %s of them looked at, %s values tried, %s in all, ", page.PluralOf(a.Scan.Seen, "key"), page.Thousands(a.Scan.LookedAt),
		page.Thousands(int64(a.Scan.Values)), page.Amount(float64(a.Scan.BytesRead)))
	if s := a.Server; s != nil && s.Masters > 1 {
		n := int64(s.Masters)
		fmt.Fprintf(&b, "for each shard some %s and %s, ", page.PluralOf(a.Scan.LookedAt/n, "key"), page.Amount(float64(a.Scan.BytesRead/n)))
	}
	fmt.Fprintf(&b, "%s. %s, %s, %s.", page.Span(a.Seconds), a.Go, page.Plural(a.Cores, "core"), a.CPU)
	if a.Slowness > 0 {
		fmt.Fprintf(&b, " Processor time is that of a reference processor; this one takes %.2f times as long.", a.Slowness)
	}
	if m := a.Model; m != nil {
		b.WriteString(" " + m.sentence())
	}
	if s := a.Server; s != nil && len(s.Unattributed) > 0 {
		b.WriteString(" " + s.unattributed())
	}
	return b.String()
}

func adviceTable(w page.Sheet, groups []*Group) {
	t := w.Table(3, "group", "values", "with", "keys", "now", "then", "saves", "pack", "unpack")
	t.Drop = []string{"unpack", "pack", "values", "keys", "now"}
	for _, g := range groups {
		o := g.Options[g.Chosen]
		t.Row(page.Name(g.Name, shownAdvice), text.Snip(contents(g), shownContents, "…"), settingOf(&o), page.Thousands(g.Keys), page.Amount(float64(g.Now)), page.Amount(float64(o.Bytes)),
			percents(g.Saving, g.Now), page.Microseconds(o.Pack.Mean), page.Microseconds(o.Unpack.Mean))
	}
	t.Render()
}

func leftTable(w page.Sheet, groups []*Group) {
	t := w.Table(2, "group", "values", "keys", "now")
	why := map[string][]string{}
	var reasons []string
	for _, g := range groups {
		t.Row(page.Name(g.Name, shownAdvice), contents(g), page.Thousands(g.Keys), page.Amount(float64(g.Now)))
		if why[g.Why] == nil {
			reasons = append(reasons, g.Why)
		}
		why[g.Why] = append(why[g.Why], page.Name(g.Name, shownAdvice))
	}
	t.Render()
	for _, r := range reasons {
		w.Hanging("  ", strings.Join(why[r], ", ")+": "+r)
	}
}

// adviceOptions is all that was tried on a group.
func adviceOptions(w page.Sheet, g *Group) {
	if len(g.Options) == 0 {
		return
	}
	printable.Fprintf(w, "\n")
	w.Wrapped(fmt.Sprintf("%s: %s of %s, of %.0f bytes in the mean, %.1f bits of information a byte, %s in common with one another", page.Name(g.Name, page.Width), page.Thousands(int64(g.Sampled)), contents(g), g.Size.Mean, g.Entropy, page.Share(g.Common)))
	t := w.Table(2, "with", "", "dictionary", "ratio", "then", "saves", "pack µs", "P99", "unpack µs", "P99")
	t.Drop = []string{"P99", "dictionary", "unpack µs", "pack µs"}
	for i, o := range g.Options {
		note := ""
		switch {
		case i == g.Chosen:
			note = "recommended"
		case !o.InBudget:
			note = "beyond the budget"
		}
		dictionary := "-"
		if o.Dictionary > 0 {
			dictionary = page.Amount(float64(o.Dictionary))
		}
		t.Row(settingOf(&o), note, dictionary, fmt.Sprintf("%.2f", o.Ratio), page.Amount(float64(o.Bytes)), percents(o.Saving, g.Now),
			page.Microseconds(o.Pack.Mean), page.Microseconds(o.Pack.P99), page.Microseconds(o.Unpack.Mean), page.Microseconds(o.Unpack.P99))
	}
	t.Render()
}

// contents is what a group's values are.
func contents(g *Group) string {
	var names []string
	for _, f := range g.Formats {
		if f.Part >= 0.1 {
			names = append(names, f.Name)
		}
	}
	what := strings.Join(names[:min(2, len(names))], ", ")
	switch g.Type {
	case String:
		return what
	case Hash:
		return "hashes of " + what
	}
	return g.Type
}

// percents are a saving in percent, with its bounds where they differ: "60% (58-61)".
func percents(i Interval, of int64) string {
	if of == 0 {
		return "0%"
	}
	low, high := 100*i.Low/float64(of), 100*i.High/float64(of)
	if s := fmt.Sprintf("%.0f-%.0f", low, high); math.Round(low) != math.Round(high) && low >= 0 {
		return page.Part(i.Estimate, of) + " (" + s + ")"
	}
	return page.Part(i.Estimate, of)
}

// moves reports whether there are reads that move less, in the figures as they are shown.
func (a *Advice) moves() bool {
	return a.Server != nil && math.Round(a.Server.Reads) > 0 && a.Total.Network.Estimate >= 1
}

// adviceTotal is the answer in words.
func adviceTotal(a *Advice) string {
	t := a.Total
	reach := t.Now - t.OutReach
	if !slices.ContainsFunc(a.Groups, func(g Group) bool { return g.Chosen >= 0 }) {
		if a.Scan.Interrupted {
			return "No answer: it was interrupted before anything was found that is worth a change."
		}
		switch {
		case len(a.Groups) == 0 && a.matched:
			return "There are no keys here that are like --match."
		case len(a.Groups) == 0:
			return "There are no keys here."
		}
		if s := a.renewals(); s != "" {
			return s
		}
		return fmt.Sprintf("Nothing to do: of the %s of these keys no compression saves what is worth a change.%s", page.Amount(float64(t.Now)), a.packedAlready())
	}
	s := fmt.Sprintf("In all, these keys take %s", page.Amount(float64(t.Now)))
	if a.Scan.Interrupted {
		s = fmt.Sprintf("NOT ALL WAS SEEN. By what was, all these keys take %s", page.Amount(float64(t.Now)))
	}
	if float64(t.OutReach) > 0.01*float64(t.Now) {
		s += fmt.Sprintf(" (%s of strings and hashes, which can be packed)", page.Amount(float64(reach)))
	}
	if t.Tables > 0 {
		s += fmt.Sprintf(", with %s of the server's hash tables", page.Amount(float64(t.Tables)))
	}
	s += fmt.Sprintf(", and would take %s: %s less", page.Amount(float64(t.Now)-t.Saving.Estimate), page.Amount(t.Saving.Estimate))
	if low, high := page.Amount(t.Saving.Low), page.Amount(t.Saving.High); low != high {
		s += fmt.Sprintf(" (95%% sure: %s to %s)", low, high)
	}
	s += fmt.Sprintf(", %s of it.", page.Part(t.Saving.Estimate, t.Now))
	if a.Price > 0 {
		s += fmt.Sprintf(" At %s for a GiB and month that is %s a month", page.Money(a.Price), page.Money(t.Month.Estimate))
		if low, high := page.Money(t.Month.Low), page.Money(t.Month.High); low != high {
			s += fmt.Sprintf(" (%s to %s)", low, high)
		}
		s += "."
	}
	if a.moves() {
		start := "its start"
		if a.Server.up > 0 {
			start += ", " + page.Span(a.Server.up) + " ago"
		}
		s += fmt.Sprintf(" Reads move %s a second less, at the %s reads a second that the server has had since %s (%s found something), if they are spread evenly over its keys; unpacking them takes %s of a processor.",
			page.Amount(t.Network.Estimate), page.Thousands(int64(math.Round(a.Server.Reads))), start, page.Part(float64(a.Server.Hits), a.Server.Hits+a.Server.Misses), page.Share(t.CPU))
	}
	return s + a.packedAlready()
}
