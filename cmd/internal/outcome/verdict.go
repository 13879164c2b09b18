package outcome

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
)

const (
	minSaving     = 0.05 // of the bytes a key, below which compressing is not worth its trouble
	minThroughput = 0.50 // of that of plain values, which a choice must keep
	asGood        = 1.03 // times the fewest bytes: among such cells the fastest is chosen
)

// verdict recommends a setting for each set of values, in a line with its saving. It looks at the
// verified cells of closed loops with the most callers that keep at least half of the throughput of
// the plain values. Of the cells within 3% of the fewest bytes it chooses the fastest. Bytes are
// those that Redis allocates, or stored bytes if the former are unknown. Memory comes first because
// it is the cost. The throughput stands beside it, measured with client and server on one machine,
// where compression costs the most.
func verdict(r *Run) (lines []string) {
	for _, c := range choices(r) {
		lines = append(lines, c.says)
	}
	return lines
}

// choice is what to choose for a set of values.
type choice struct {
	says        string
	cell, plain *Cell // nil for none; plain is what it is compared with
}

// headline is the choice for people, "" for none.
func (c *choice) headline() string {
	if c.cell == nil {
		return ""
	}
	what, than := memoryOf(c.plain), ""
	switch same := c.cell.Identity == c.plain.Identity; {
	case same && c.plain.plain():
		return "Compression saves too little here: keep plain values"
	case same:
		return fmt.Sprintf("%s a key with %s, and no plain values to compare with", page.Amount(math.Round(c.cell.BytesPerKey())), printable.Line(c.cell.Compress))
	case !c.plain.plain():
		than = " than with " + printable.Line(c.plain.Compress)
	}
	return fmt.Sprintf("%s less %s%s, %s", page.Share(less(c.cell, c.plain)), what, than, c.slowdown())
}

// plain reports a cell of values that are not compressed.
func (c *Cell) plain() bool { return c.Compress == "none" }

// memoryOf is what bytes of a cell are.
func memoryOf(c *Cell) string {
	if c.RedisBytesPerKey == nil {
		return "stored bytes"
	}
	return "memory"
}

// rateHeadline is what cells at given rates show: the memory that compressing saves at the highest
// rate that plain values keep as well, and what it does to P99. With several sets it is the range.
func rateHeadline(r *Run) string {
	var all []choice
	rates := map[float64]bool{}
	for _, cells := range byDataset(r.Cells) {
		kept := slices.DeleteFunc(slices.Clone(cells), func(c Cell) bool { return !c.Verified || c.Rate == 0 || c.Limit != LimitOffered })
		base := -1
		for i := range kept {
			if kept[i].plain() && (base < 0 || kept[i].Rate > kept[base].Rate) {
				base = i
			}
		}
		if base < 0 {
			continue
		}
		best := &kept[base]
		for i := range kept {
			if c := &kept[i]; c.Rate == best.Rate && c.BytesPerKey() < best.BytesPerKey() {
				best = c
			}
		}
		all = append(all, choice{cell: best, plain: &kept[base]})
		rates[best.Rate] = true
	}
	at := "the highest rate that plain values keep"
	if len(rates) == 1 {
		at = page.Thousands(int64(math.Round(all[0].cell.Rate))) + " operations a second"
	}
	switch {
	case len(all) > 0:
	case slices.ContainsFunc(r.Cells, func(c Cell) bool { return c.plain() }):
		return "None of these rates is kept with plain values"
	default:
		return "No plain values to compare with at these rates"
	}
	least, most := math.Inf(1), 0.0
	for _, c := range all {
		least, most = min(least, less(c.cell, c.plain)), max(most, less(c.cell, c.plain))
	}
	what := memoryOf(all[0].plain)
	switch {
	case most < minSaving:
		return fmt.Sprintf("At %s compression saves too little", at)
	case len(all) > 1:
		return fmt.Sprintf("%s to %s less %s at %s, by dataset", page.Share(least), page.Share(most), what, at)
	}
	return fmt.Sprintf("%s less %s at %s, %s", page.Share(most), what, at, all[0].latency())
}

// latency is what a choice does to P99, in words.
func (c *choice) latency() string {
	now, plain := c.cell.P99, c.plain.P99
	switch {
	case c.cell.AtLeast || c.plain.AtLeast || plain.Median <= 0:
		return "P99 unknown"
	case now.Interval == nil || plain.Interval == nil:
		return fmt.Sprintf("P99 %s ms instead of %s", millis(now.Median), millis(plain.Median))
	case !now.Apart(plain):
		return "no measurable change of P99"
	case now.Median > plain.Median:
		return page.Share(now.Median/plain.Median-1) + " higher P99"
	}
	return page.Share(1-now.Median/plain.Median) + " lower P99"
}

// less is the part of the bytes a key that a cell saves over another, as a reader finds it from the
// figures in print.
func less(c, than *Cell) float64 {
	return 1 - math.Round(c.BytesPerKey())/math.Round(than.BytesPerKey())
}

// headlines is what the choices for several sets save.
func headlines(all []choice, sets int) string {
	least, most := math.Inf(1), 0.0
	slowest, quickest, apart := math.Inf(1), 0.0, false
	for _, c := range all {
		if c.cell == nil || c.cell.RedisBytesPerKey == nil || c.plain.RedisBytesPerKey == nil || !c.plain.plain() {
			return fmt.Sprintf("What to choose for each of %s", page.Plural(sets, "dataset"))
		}
		saves := less(c.cell, c.plain)
		least, most = min(least, saves), max(most, saves)
		times := c.cell.ValuesPerSecond.Over(c.plain.ValuesPerSecond).Median
		slowest, quickest = min(slowest, times), max(quickest, times)
		apart = apart || c.cell.ValuesPerSecond.Apart(c.plain.ValuesPerSecond)
	}
	throughput := "no measurable slowdown"
	if apart {
		throughput = fmt.Sprintf("%.2f to %.2f times the throughput", slowest, quickest)
	}
	return fmt.Sprintf("%s to %s less memory, %s, by dataset", page.Share(max(least, 0)), page.Share(most), throughput)
}

// slowdown is what a choice does to the throughput, in words.
func (c *choice) slowdown() string {
	q := c.cell.ValuesPerSecond.Over(c.plain.ValuesPerSecond)
	switch {
	case q.Interval == nil:
		return fmt.Sprintf("%.2f times the throughput", q.Median)
	case !c.cell.ValuesPerSecond.Apart(c.plain.ValuesPerSecond):
		return "no measurable slowdown"
	case q.Median < 1:
		return page.Share(1-q.Median) + " less throughput"
	}
	return page.Share(q.Median-1) + " more throughput"
}

// choices are what to choose for each set, server and batch.
func choices(r *Run) (all []choice) {
	for _, cells := range byDataset(r.Cells) {
		// At a given rate the throughput shows nothing. Servers and batches are not the
		// compressor's merit.
		cells = slices.DeleteFunc(cells, func(c Cell) bool { return c.Rate > 0 })
		for len(cells) > 0 {
			first := cells[0]
			same := func(c Cell) bool { return c.Server == first.Server && c.Batch == first.Batch }
			name := setName(first, r.Cells)
			if slices.ContainsFunc(r.Cells, func(c Cell) bool { return !same(c) }) {
				name += " " + strings.TrimSpace(cmp.Or(first.Batch, "one by one")+" "+first.Server)
			}
			c := choose(name, slices.DeleteFunc(slices.Clone(cells), func(c Cell) bool { return !same(c) }))
			c.says = "Choose " + c.says + "."
			all = append(all, c)
			cells = slices.DeleteFunc(cells, same)
		}
	}
	return all
}

// setName is a set's name, with its track where there is more than one.
func setName(c Cell, all []Cell) string {
	if slices.ContainsFunc(all, func(o Cell) bool { return o.Track != c.Track }) {
		return c.Dataset + ", " + c.Track
	}
	return c.Dataset
}

func choose(name string, cells []Cell) choice {
	title := cellTitle(cells)
	callers := slices.MaxFunc(cells, func(a, b Cell) int { return cmp.Compare(a.Concurrency, b.Concurrency) }).Concurrency
	cells = slices.DeleteFunc(slices.Clone(cells), func(c Cell) bool { return !c.Verified || c.Concurrency != callers })
	if len(cells) == 0 {
		return choice{says: "nothing for " + name + ": no cell was verified"}
	}
	isRaw := func(c Cell) bool { return c.Codec == "raw" }
	if slices.ContainsFunc(cells, func(c Cell) bool { return !isRaw(c) }) {
		cells = slices.DeleteFunc(cells, isRaw) // what serializes nothing is no serializer to choose
	}
	// What to compare with: plain values of the first codec, or whatever comes first.
	base := cells[max(0, slices.IndexFunc(cells, func(c Cell) bool { return c.Compress == "none" }))]
	verified := slices.Clone(cells)
	cells = slices.DeleteFunc(cells, func(c Cell) bool { return c.ValuesPerSecond.Median < minThroughput*base.ValuesPerSecond.Median })
	smallest := slices.MinFunc(cells, func(a, b Cell) int { return cmp.Compare(a.BytesPerKey(), b.BytesPerKey()) })
	cells = slices.DeleteFunc(cells, func(c Cell) bool { return c.BytesPerKey() > asGood*smallest.BytesPerKey() })
	best := slices.MaxFunc(cells, func(a, b Cell) int { return cmp.Compare(a.ValuesPerSecond.Median, b.ValuesPerSecond.Median) })
	saving := 1 - best.BytesPerKey()/base.BytesPerKey()
	what := "stored"
	if base.RedisBytesPerKey != nil {
		what = "in Redis"
	}
	if saving < minSaving {
		// Plain values, then, but by the client that is fastest with them.
		plain := slices.DeleteFunc(slices.Clone(verified), func(c Cell) bool { return c.Codec != base.Codec || c.Compress != base.Compress })
		if c := slices.MaxFunc(plain, func(a, b Cell) int { return cmp.Compare(a.ValuesPerSecond.Median, b.ValuesPerSecond.Median) }); c.Client != base.Client {
			return choice{fmt.Sprintf("%s for %s: %s the throughput of %s with %s, and nothing that keeps %.0f%% of that saves %.0f%% of its %.0f bytes a key %s",
				title(c), name, c.ValuesPerSecond.Times(base.ValuesPerSecond), title(base), callersOf(callers), 100*minThroughput, 100*minSaving, base.BytesPerKey(), what), &base, &base}
		}
		return choice{fmt.Sprintf("%s for %s: nothing that keeps %.0f%% of its throughput with %s saves %.0f%% of its %.0f bytes a key %s",
			title(base), name, 100*minThroughput, callersOf(callers), 100*minSaving, base.BytesPerKey(), what), &base, &base}
	}
	return choice{fmt.Sprintf("%s for %s: %.0f bytes a key %s instead of %.0f (%.0f%% less), at %s the throughput of %s with %s%s",
		title(best), name, best.BytesPerKey(), what, base.BytesPerKey(), 100*less(&best, &base), best.ValuesPerSecond.Times(base.ValuesPerSecond), title(base), callersOf(callers),
		withoutCompression(best, base, verified)), &best, &base}
}

// withoutCompression compares a choice with plain values by its own client, if the base uses
// another client. Across two clients the throughput does not show the cost of compression.
func withoutCompression(choice, base Cell, verified []Cell) string {
	i := slices.IndexFunc(verified, func(c Cell) bool {
		return c.Client == choice.Client && c.Codec == choice.Codec && c.Compress == "none"
	})
	if choice.Client == base.Client || choice.Compress == "none" || i < 0 {
		return ""
	}
	return fmt.Sprintf(", and at %s that of %s", choice.ValuesPerSecond.Times(verified[i].ValuesPerSecond), cellTitle(verified)(verified[i]))
}

// cellTitle tells the cells of a set apart in a sentence.
func cellTitle(cells []Cell) func(Cell) string {
	_, row := identityColumns(cells)
	return func(c Cell) string {
		if c.Codec == "raw" { // no serializer to choose
			c.Codec = ""
		}
		var words []string
		for _, word := range row(c) {
			if word != "" {
				words = append(words, fmt.Sprint(word))
			}
		}
		return strings.Join(words, " + ")
	}
}
