package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/balekv/bale/cmd/internal/advise"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/printable"
)

// The columns that a group's name and its contents take at most.
const (
	shownAdvice   = 24
	shownContents = 14
)

// WriteAdvice writes the answer as tables; all is for everything that was tried on each group.
func WriteAdvice(w io.Writer, a *advise.Advice, all bool) {
	printable.Fprintf(w, "%s\n", a.Source)
	newSheet(w, 0).hanging("  ", adviceSource(a))
	if a.Lacking != "" {
		newSheet(w, 0).wrapped(a.Lacking)
	}
	var worth, left []*advise.Group
	for i := range a.Groups {
		if g := &a.Groups[i]; g.Chosen >= 0 {
			worth = append(worth, g)
		} else {
			left = append(left, g)
		}
	}
	if len(worth) > 0 {
		printable.Fprintf(w, "\nwhat compression saves, in the bytes that Redis allocates; processor time is µs for a value, and so\nseconds for a million:\n")
		adviceTable(w, worth)
	}
	if len(left) > 0 {
		printable.Fprintf(w, "\nwhat to leave as it is:\n")
		leftTable(w, left)
	}
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
			printable.Fprintf(w, "\n%s, some of its values:\n", keyName(g.Name, Width))
			for _, v := range g.Samples {
				newSheet(w, 0).wrapped(v)
			}
		}
	}
	printable.Fprintf(w, "\n")
	newSheet(w, 0).wrapped(adviceTotal(a))
	for _, warning := range a.Warnings {
		newSheet(w, 0).hanging("  ", "NOTE: "+warning)
	}
	for i, step := range a.Next {
		printable.Fprintf(w, "\n")
		newSheet(w, 0).hanging("   ", fmt.Sprintf("%d. %s", i+1, step.What))
		for line := range strings.Lines(step.Code) {
			printable.Fprintf(w, "   %s\n", strings.TrimRight(line, "\n"))
		}
	}
}

// adviceSource is what was looked at, and with what.
func adviceSource(a *advise.Advice) string {
	var b strings.Builder
	if s := a.Server; s != nil {
		b.WriteString(keyspace.ServerName(s.Version))
		if s.Cluster {
			fmt.Fprintf(&b, ", a cluster of %s", plural(s.Masters, "master"))
		}
		if s.Replica {
			b.WriteString(", read from replicas")
		}
		if s.UsedMemory > 0 {
			fmt.Fprintf(&b, ", used_memory %s", amount(float64(s.UsedMemory)))
		}
		b.WriteString("; ")
	}
	fmt.Fprintf(&b, "%s seen, %s of them looked at, %s of values tried, %s in all, %s. Zstd by %s, %s, %s, %s.", pluralOf(a.Scan.Seen, "key"), thousands(a.Scan.LookedAt),
		thousands(int64(a.Scan.Values)), amount(float64(a.Scan.BytesRead)), span(a.Seconds), a.Engine, a.Go, plural(a.Cores, "core"), a.CPU)
	if m := a.Model; m != nil {
		fmt.Fprintf(&b, " The model of the server's memory is %+.1f%% off MEMORY USAGE for %s.", 100*(float64(m.Modelled)/float64(m.Measured)-1), plural(m.Keys, "key"))
	}
	return b.String()
}

func adviceTable(w io.Writer, groups []*advise.Group) {
	t := newTable(w, 2, 3, "group", "values", "with", "keys", "now", "then", "saves", "pack", "unpack")
	for _, g := range groups {
		o := g.Options[g.Chosen]
		t.AppendRow(table.Row{
			keyName(g.Name, shownAdvice), text.Snip(contents(g), shownContents, "…"), adviceSetting(o), thousands(g.Keys), amount(float64(g.Now)), amount(float64(o.Bytes)),
			percents(g.Saving, g.Now), microseconds(o.Pack.Mean), microseconds(o.Unpack.Mean),
		})
	}
	t.Render()
}

func leftTable(w io.Writer, groups []*advise.Group) {
	t := newTable(w, 2, 2, "group", "values", "keys", "now")
	why := map[string][]string{}
	var reasons []string
	for _, g := range groups {
		t.AppendRow(table.Row{keyName(g.Name, shownAdvice), contents(g), thousands(g.Keys), amount(float64(g.Now))})
		if why[g.Why] == nil {
			reasons = append(reasons, g.Why)
		}
		why[g.Why] = append(why[g.Why], keyName(g.Name, shownAdvice))
	}
	t.Render()
	for _, r := range reasons {
		newSheet(w, 0).hanging("  ", strings.Join(why[r], ", ")+": "+r)
	}
}

// adviceOptions is all that was tried on a group.
func adviceOptions(w io.Writer, g *advise.Group) {
	if len(g.Options) == 0 {
		return
	}
	printable.Fprintf(w, "\n%s: %s of %s, of %.0f bytes in the mean, %.1f bits of information a byte, %s in common with one another\n", keyName(g.Name, Width), thousands(int64(g.Sampled)), contents(g), g.Size.Mean, g.Entropy, share(g.Common))
	t := newTable(w, 2, 2, "with", "", "dictionary", "ratio", "then", "saves", "pack µs", "P99", "unpack µs", "P99")
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
			dictionary = amount(float64(o.Dictionary))
		}
		t.AppendRow(table.Row{adviceSetting(o), note, dictionary, fmt.Sprintf("%.2f", o.Ratio), amount(float64(o.Bytes)), percents(o.Saving, g.Now),
			microseconds(o.Pack.Mean), microseconds(o.Pack.P99), microseconds(o.Unpack.Mean), microseconds(o.Unpack.P99)})
	}
	t.Render()
}

// adviceSetting is a setting as balebench run spells it, after the encoding that goes before it.
func adviceSetting(o advise.Option) string {
	name := o.Setting
	if o.Dictionary > 0 {
		name += "+dict"
	}
	switch {
	case o.Encoding == "":
		return name
	case o.Setting == "none":
		return o.Encoding
	}
	return o.Encoding + ", " + name
}

// contents is what a group's values are.
func contents(g *advise.Group) string {
	var names []string
	for _, f := range g.Formats {
		if f.Part >= 0.1 {
			names = append(names, f.Name)
		}
	}
	what := strings.Join(names[:min(2, len(names))], ", ")
	switch g.Type {
	case advise.String:
		return what
	case advise.Hash:
		return "hashes of " + what
	}
	return g.Type
}

// percents are a saving in percent, with its bounds where they differ: "60% (58-61)".
func percents(i advise.Interval, of int64) string {
	if of == 0 {
		return "0%"
	}
	low, high := 100*i.Low/float64(of), 100*i.High/float64(of)
	if s := fmt.Sprintf("%.0f-%.0f", low, high); math.Round(low) != math.Round(high) && low >= 0 {
		return part(i.Estimate, of) + " (" + s + ")"
	}
	return part(i.Estimate, of)
}

// adviceTotal is the answer in words.
func adviceTotal(a *advise.Advice) string {
	t := a.Total
	reach := t.Now - t.OutReach
	if !slices.ContainsFunc(a.Groups, func(g advise.Group) bool { return g.Chosen >= 0 }) {
		if a.Scan.Interrupted {
			return "No answer: it was interrupted before anything was found that is worth a change."
		}
		if len(a.Groups) == 0 {
			return "There are no keys here, or none that is like --match."
		}
		return fmt.Sprintf("Nothing to do: of the %s of these keys no compression saves what is worth a change.", amount(float64(t.Now)))
	}
	s := fmt.Sprintf("In all these keys take %s", amount(float64(t.Now)))
	if a.Scan.Interrupted {
		s = fmt.Sprintf("NOT ALL WAS SEEN. As far as it was, these keys take %s", amount(float64(t.Now)))
	}
	if float64(t.OutReach) > 0.01*float64(t.Now) {
		s += fmt.Sprintf(" (%s of strings and hashes, which can be packed)", amount(float64(reach)))
	}
	s += fmt.Sprintf(", and would take %s: %s less", amount(float64(t.Now)-t.Saving.Estimate), amount(t.Saving.Estimate))
	if low, high := amount(t.Saving.Low), amount(t.Saving.High); low != high {
		s += fmt.Sprintf(" (95%% sure: %s to %s)", low, high)
	}
	s += fmt.Sprintf(", %s of it.", part(t.Saving.Estimate, t.Now))
	if a.Price > 0 {
		s += fmt.Sprintf(" At %s for a GiB and month that is %s a month", money(a.Price), money(t.Month.Estimate))
		if low, high := money(t.Month.Low), money(t.Month.High); low != high {
			s += fmt.Sprintf(" (%s to %s)", low, high)
		}
		s += "."
	}
	if t.Network.Estimate >= 1 {
		s += fmt.Sprintf(" Reads move %s a second less, at the %.0f reads a second that the server has had since its start (%s found something), if they are spread evenly over its keys; unpacking them takes %s of a processor.",
			amount(t.Network.Estimate), a.Server.Reads, part(float64(a.Server.Hits), a.Server.Hits+a.Server.Misses), share(t.CPU))
	}
	return s
}
