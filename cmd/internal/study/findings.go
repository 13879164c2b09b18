package study

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/page"
)

const (
	plain = "none"
	zstd  = "zstd:3"
	withD = "zstd:3+dict"
)

// binaryClaim is published, of unknown hardware and load.
const binaryClaim = "Published claim for 1 KB, not measured here: 3.2 times."

// serializers finds the quickest and the smallest codec of each set, by itself and with a
// dictionary.
func serializers(r *outcome.Run) (out []outcome.Finding) {
	coding := func(c outcome.Cell) outcome.Estimate { return work(c, "serialize", "deserialize") }
	for _, g := range groups(r, func(c outcome.Cell) string { return c.Dataset + ", " + c.Track }) {
		alone, with := g.only(compressed(plain)), g.only(compressed(withD))
		isJSON := func(c outcome.Cell) bool { return c.Codec == "json" }
		json, ok := alone.find(isJSON)
		if !ok {
			continue
		}
		quick := alone.best(func(c outcome.Cell) float64 { return -coding(c).Median })
		small := alone.best(func(c outcome.Cell) float64 { return -stored(c) })
		f := outcome.Finding{About: g.name}
		line := fmt.Sprintf("Least time to write and read a value: %s with %s µs", quick.Codec, outcome.InSentence(coding(quick), 1))
		if quick.Codec != json.Codec {
			line += fmt.Sprintf(", encoding/json %s", outcome.InSentence(coding(json), 1))
		}
		f.Claims = append(f.Claims, line+alone.alike(quick, coding, codec)+".")
		if quick.Codec != json.Codec {
			f.Claims = append(f.Claims, fmt.Sprintf("Through Redis with %s %s has %s encoding/json's throughput.", page.Plural(quick.Concurrency, "caller"), quick.Codec, rate(quick).Times(rate(json))))
		}
		fewest := fmt.Sprintf("Fewest bytes: %s with %s, encoding/json %s", small.Codec, outcome.Number(stored(small), 0), outcome.Number(stored(json), 0))
		packedJSON, ok := with.find(isJSON)
		if ok {
			best := with.best(func(c outcome.Cell) float64 { return -stored(c) })
			if stored(best) == stored(packedJSON) { // others that write the same
				best.Codec = "encoding/json"
			}
			if fewest += fmt.Sprintf("; with a dictionary %s with %s", best.Codec, outcome.Number(stored(best), 0)); best.Codec != "encoding/json" {
				fewest += ", encoding/json " + outcome.Number(stored(packedJSON), 0)
			}
		}
		f.Claims = append(f.Claims, fewest+".")
		if c, ok := alone.find(func(c outcome.Cell) bool { return c.Codec == "binary" }); ok && c.Stages["serialize"].P99 > 0 {
			hand, std := c.Stages["serialize"].P99, json.Stages["serialize"].P99
			f.Claims = append(f.Claims, fmt.Sprintf("P99 of writing a value of %s bytes of JSON: codec.Binary %s µs, encoding/json %s, %.1f times. %s", outcome.Number(stored(json), 0), outcome.Number(hand, 1), outcome.Number(std, 1), std/hand, binaryClaim))
		}

		f.Legend = []string{"µs: to write and read a value, in the median", "B: of a value", "Throughput: values a second, relative to encoding/json"}
		f.Columns = []string{"codec", "µs", "B", "throughput"}
		if len(with.cells) > 0 {
			f.Legend = append(f.Legend, "B+dict: with "+withD+", dictionary not counted")
			f.Columns = []string{"codec", "µs", "B", "B+dict", "throughput"}
		}
		nearest, ordered := alone.nearest(quick, coding)
		if !ordered {
			f.Legend = append(f.Legend, noMarks("µs")...)
		}
		rows := slices.Clone(alone.cells)
		slices.SortStableFunc(rows, func(a, b outcome.Cell) int { return cmp.Compare(coding(a).Median, coding(b).Median) })
		for _, c := range rows {
			row := []outcome.Figure{outcome.Words(c.Codec), outcome.Marked(outcome.Measured(coding(c), 1), nearest(c)), outcome.Marked(outcome.Exact(stored(c), 0), c.StoredBytes == small.StoredBytes)}
			if len(with.cells) > 0 {
				d, ok := with.find(func(d outcome.Cell) bool { return d.Codec == c.Codec })
				field := outcome.Figure{}
				if ok {
					field = outcome.Exact(stored(d), 0)
				}
				row = append(row, field)
			}
			f.Rows = append(f.Rows, append(row, than(c, json)))
		}
		out = append(out, f)
	}
	return out
}

// than is a throughput against another; of that itself nothing.
func than(c, base outcome.Cell) outcome.Figure {
	if c.Identity == base.Identity {
		return outcome.Exact(1, 0)
	}
	return outcome.Against(rate(c), rate(base))
}

func stored(c outcome.Cell) float64 { return float64(c.StoredBytes) / float64(max(1, c.Values)) }

// compressors compares the ratios with and without a dictionary, by kind of data.
func compressors(r *outcome.Run) (out []outcome.Finding) {
	for _, g := range groups(r, func(c outcome.Cell) string { return c.Dataset }) {
		base, ok := g.find(compressed(plain))
		if !ok {
			continue
		}
		hasDict := func(c outcome.Cell) bool { return strings.HasSuffix(c.Compress, "+dict") }
		without, with := g.only(func(c outcome.Cell) bool { return !hasDict(c) }), g.only(hasDict)
		ratio := func(c outcome.Cell) float64 { return c.Ratio }
		sizes := func(c outcome.Cell) string {
			return fmt.Sprintf("%s has the highest ratio: %.2f, %s bytes a key instead of %s; %s µs to compress and decompress a value, %s the throughput of plain values",
				c.Compress, c.Ratio, outcome.Number(c.BytesPerKey(), 0), outcome.Number(base.BytesPerKey(), 0), outcome.InSentence(packing(c), 1), rate(c).Times(rate(base)))
		}
		f := outcome.Finding{About: g.name, Legend: []string{"B/key: what Redis takes for a value and its key, the dictionary included", "µs: to compress and decompress a value, in the median", "Throughput: values a second, relative to plain values"},
			Columns: []string{"compressor", "ratio", "B/key", "µs", "throughput"}}
		best := without.best(ratio)
		if best.Ratio < 1.05*base.Ratio || best.Compress == plain {
			f.Claims = append(f.Claims, "Without a dictionary nothing saves 5%.")
		} else {
			f.Claims = append(f.Claims, "Without a dictionary "+sizes(best)+".")
		}
		highest := g.best(ratio)
		switch {
		case len(with.cells) > 0:
			f.Claims = append(f.Claims, "With a dictionary "+sizes(with.best(ratio))+".")
		case noDictionary(r, g.name):
			f.Claims = append(f.Claims, "No dictionary pays.")
		default:
			f.Claims = append(f.Claims, "The settings with a dictionary could not be measured.")
		}
		for _, c := range g.cells {
			f.Rows = append(f.Rows, []outcome.Figure{outcome.Words(c.Compress), outcome.Marked(outcome.Exact(c.Ratio, 2), c.Ratio == highest.Ratio), outcome.Exact(c.BytesPerKey(), 0), outcome.Measured(packing(c), 1), than(c, base)})
		}
		out = append(out, f)
	}
	return out
}

// noDictionary reports whether training found for every setting that none pays.
func noDictionary(r *outcome.Run, dataset string) bool {
	of := slices.DeleteFunc(slices.Clone(r.Dictionaries), func(d outcome.Dictionary) bool { return d.Dataset != dataset })
	return len(of) > 0 && !slices.ContainsFunc(of, func(d outcome.Dictionary) bool { return d.Reason == "" })
}

// pooling compares each form of a compressor with the pooled one.
func pooling(r *outcome.Run) (out []outcome.Finding) {
	forms := []struct{ suffix, says string }{{"/naive", "a new context for each value"}, {"/stream", "the streaming API"}}
	for _, g := range groups(r, func(c outcome.Cell) string { return c.Dataset }) {
		f := outcome.Finding{About: "values of " + g.name, Legend: []string{"µs: to compress and decompress a value, in the median", "B/op and allocs: in this process, the client's included", "GC: its share of the processor time of this process, where it ran often enough to tell", "Throughput: values a second, relative to the pooled form, which is the one without a suffix"},
			Columns: []string{"setting", "µs", "B/op", "allocs", "GC", "throughput"}}
		for _, c := range g.cells {
			what, pooled := "", c
			for _, form := range forms {
				if name, ok := strings.CutSuffix(c.Compress, form.suffix); ok {
					if p, ok := g.find(compressed(name)); ok {
						what, pooled = form.says, p
					}
				}
			}
			row := []outcome.Figure{outcome.Words(c.Compress), outcome.Measured(packing(c), 1), outcome.Measured(c.BytesPerOp, 0), outcome.Measured(c.AllocsPerOp, 0), {}, {}}
			if e := collecting(c); e != nil {
				row[4] = percentage(*e)
			}
			if what != "" {
				row[5] = than(c, pooled)
				line := fmt.Sprintf("%s (%s) against pooled: %s the time to compress and decompress, %s the throughput", c.Compress, what,
					packing(c).Times(packing(pooled)), rate(c).Times(rate(pooled)))
				if more, before := page.Amount(c.BytesPerOp.Median), page.Amount(pooled.BytesPerOp.Median); more != before {
					line += fmt.Sprintf(", %s allocated an operation instead of %s", more, before)
				}
				switch now, was := collecting(c), collecting(pooled); {
				case now != nil && was != nil:
					line += fmt.Sprintf(", %s of the processor time in garbage collection instead of %s", spoken(*now), spoken(*was))
				case now != nil:
					line += fmt.Sprintf(", %s of the processor time in garbage collection, too little to tell when pooled", spoken(*now))
				}
				f.Claims = append(f.Claims, line+".")
			}
			f.Rows = append(f.Rows, row)
		}
		if len(f.Claims) > 0 {
			out = append(out, f)
		}
	}
	return out
}

// collecting is the share of garbage collection in percent; nil where it is unknown.
func collecting(c outcome.Cell) *outcome.Estimate {
	if c.Resources.GCShare == nil {
		return nil
	}
	mean := 100 * *c.Resources.GCShare
	var rounds []float64
	for _, r := range c.Rounds {
		if r.Resources.GCShare != nil {
			rounds = append(rounds, 100**r.Resources.GCShare)
		}
	}
	e := outcome.NewEstimate(rounds)
	if e.Interval != nil {
		e.Interval = &[2]float64{min(e.Interval[0], mean), max(e.Interval[1], mean)}
	}
	e.Median = mean
	return &e
}

func percentage(e outcome.Estimate) outcome.Figure {
	f := outcome.Measured(e, 0)
	f.Text += "%"
	if f.Range != "" {
		f.Range += "%"
	}
	return f
}

func spoken(e outcome.Estimate) string {
	f := percentage(e)
	if f.Range == "" {
		return f.Text
	}
	return f.Text + " (" + f.Range + ")"
}

// matrix is a table of cells: a row for each of some names, and a column for each of others.
func matrix(r *outcome.Run, corner string, row, column func(outcome.Cell) string, field func(c outcome.Cell, all group) outcome.Figure) (columns []string, rows [][]outcome.Figure) {
	columns = []string{corner}
	across := groups(r, column)
	for _, g := range across {
		columns = append(columns, g.name)
	}
	for _, down := range groups(r, row) {
		figures := []outcome.Figure{outcome.Words(down.name)}
		for _, g := range across {
			f := outcome.Figure{}
			if c, ok := g.find(func(c outcome.Cell) bool { return row(c) == down.name }); ok {
				f = field(c, g)
			}
			figures = append(figures, f)
		}
		rows = append(rows, figures)
	}
	return columns, rows
}

// clients names the client with the highest throughput and the lowest P99 at each concurrency, and
// what a proxy costs.
func clients(r *outcome.Run) []outcome.Finding {
	load := func(c outcome.Cell) string { return page.Plural(c.Concurrency, "caller") }
	ops := func(c outcome.Cell) outcome.Estimate { return c.OpsPerSecond }
	p99 := func(c outcome.Cell) outcome.Estimate { return c.P99 }
	fastest := func(g group) outcome.Cell { return g.best(func(c outcome.Cell) float64 { return ops(c).Median }) }
	soonest := func(g group) outcome.Cell { return g.best(func(c outcome.Cell) float64 { return -p99(c).Median }) }
	rates, times := outcome.Finding{About: "throughput", Legend: []string{"Operations a second"}}, outcome.Finding{About: "P99", Legend: []string{"µs that 99 of 100 operations took at most"}}
	var hops []place
	for _, g := range groups(r, load) {
		base, ok := g.find(func(c outcome.Cell) bool { return c.Client == "goredis" })
		if !ok {
			continue
		}
		most, least := fastest(g), soonest(g)
		line := fmt.Sprintf("%s: %s does the most, %s operations a second", g.name, most.Client, outcome.InSentence(ops(most), 0))
		if most.Client != base.Client {
			line += fmt.Sprintf(", %s goredis", ops(most).Times(ops(base)))
		}
		rates.Claims = append(rates.Claims, fmt.Sprintf("%s; limit: %s%s.", line, limit(most), g.alike(most, ops, client)))
		line = fmt.Sprintf("%s: %s has the lowest P99, %s µs", g.name, least.Client, outcome.InSentence(p99(least), 0))
		if least.Client != base.Client {
			line += fmt.Sprintf(", goredis %s", outcome.InSentence(p99(base), 0))
		}
		times.Claims = append(times.Claims, line+g.alike(least, p99, client)+".")
		if hop, ok := g.find(func(c outcome.Cell) bool { return c.Client == "goredis@twemproxy" }); ok {
			hops = append(hops, place{g.name, ops(hop), ops(base)})
		}
	}
	if len(rates.Claims) == 0 {
		return nil
	}
	if through := verdicts(hops, "more throughput than without", "less throughput than without", "with"); through != "" {
		rates.Claims = append(rates.Claims, "goredis through twemproxy: "+through+".")
	}
	rates.Columns, rates.Rows = matrix(r, "client", client, load, func(c outcome.Cell, all group) outcome.Figure {
		nearest, _ := all.nearest(fastest(all), ops)
		return outcome.Marked(outcome.Measured(ops(c), 0), nearest(c))
	})
	times.Columns, times.Rows = matrix(r, "client", client, load, func(c outcome.Cell, all group) outcome.Figure {
		nearest, _ := all.nearest(soonest(all), p99)
		return outcome.Marked(outcome.Measured(p99(c), 0), nearest(c))
	})
	rates.Legend = append(rates.Legend, unmarked(groups(r, load), fastest, ops)...)
	times.Legend = append(times.Legend, unmarked(groups(r, load), soonest, p99)...)
	return []outcome.Finding{rates, times}
}

// pipelines compares the ways for values to travel with one by one, and MSET with pipelines.
func pipelines(r *outcome.Run) []outcome.Finding {
	way := func(c outcome.Cell) string { return cmp.Or(c.Batch, "one by one") }
	fastest := func(g group) outcome.Cell { return g.best(throughput) }
	rates := outcome.Finding{About: "depth", Legend: []string{"Values a second, written and read back"}}
	sets := outcome.Finding{About: "MSET", Legend: []string{"Values a second by MSET and MGET, relative to a pipeline of equally many"}}
	for _, g := range groups(r, client) {
		one, ok := g.find(func(c outcome.Cell) bool { return c.Batch == "" })
		if !ok {
			continue
		}
		most := fastest(g)
		line := fmt.Sprintf("%s: %s does the most, %s values a second", g.name, way(most), outcome.InSentence(rate(most), 0))
		if most.Batch != "" {
			line += fmt.Sprintf(", %s those one by one", rate(most).Times(rate(one)))
		}
		rates.Claims = append(rates.Claims, line+g.alike(most, rate, way)+".")
		var depths []place
		for _, m := range g.cells {
			depth, ok := strings.CutPrefix(m.Batch, "mset:")
			if p, there := g.find(func(c outcome.Cell) bool { return c.Batch == "pipeline:"+depth }); ok && there {
				depths = append(depths, place{depth, rate(m), rate(p)})
			}
		}
		if v := verdicts(depths, "MSET does more than a pipeline of as many", "MSET does less than a pipeline of as many", "at"); v != "" {
			sets.Claims = append(sets.Claims, g.name+": "+v+".")
		}
	}
	if len(rates.Claims) == 0 {
		return nil
	}
	rates.Columns, rates.Rows = matrix(r, "way", way, client, func(c outcome.Cell, all group) outcome.Figure {
		nearest, _ := all.nearest(fastest(all), rate)
		return outcome.Marked(outcome.Measured(rate(c), 0), nearest(c))
	})
	rates.Legend = append(rates.Legend, unmarked(groups(r, client), fastest, rate)...)
	if len(sets.Claims) == 0 {
		return []outcome.Finding{rates}
	}
	msets := &outcome.Run{Cells: slices.DeleteFunc(slices.Clone(r.Cells), func(c outcome.Cell) bool { return !strings.HasPrefix(c.Batch, "mset:") })}
	sets.Columns, sets.Rows = matrix(msets, "depth", func(c outcome.Cell) string { return strings.TrimPrefix(c.Batch, "mset:") }, client, func(c outcome.Cell, all group) outcome.Figure {
		for _, p := range r.Cells {
			if p.Verified && p.Client == c.Client && p.Batch == strings.Replace(c.Batch, "mset", "pipeline", 1) {
				return outcome.Against(rate(c), rate(p))
			}
		}
		return outcome.Figure{}
	})
	return []outcome.Finding{rates, sets}
}

// enoughPool is the share of the highest throughput that a smaller pool is to reach.
const enoughPool = 0.95

// poolSizes finds the smallest pool that is as good as the best.
func poolSizes(r *outcome.Run) (out []outcome.Finding) {
	for _, g := range groups(r, func(c outcome.Cell) string { return page.Plural(c.Concurrency, "caller") }) {
		best := g.best(throughput)
		f := outcome.Finding{About: g.name, Legend: []string{"Throughput: operations a second", "Of best: relative to the highest", "P99: µs that 99 of 100 operations took at most", "Wait: for a connection, µs an operation"},
			Columns: []string{"pool", "throughput", "of best", "P99", "wait", "limit"}}
		at := slices.IndexFunc(g.cells, func(c outcome.Cell) bool { return throughput(c) >= enoughPool*throughput(best) }) // in the order of their sizes
		enough := g.cells[at]
		line := fmt.Sprintf("%s is the smallest with %.0f%% of the highest throughput: %s operations a second", enough.Client, 100*enoughPool, outcome.InSentence(rate(enough), 0))
		if enough.Identity != best.Identity {
			line += fmt.Sprintf(", %s that of %s", rate(enough).Times(rate(best)), best.Client)
		}
		f.Claims = append(f.Claims, line+".")
		var smaller []string
		for _, c := range g.cells[:at] {
			if like(c, best, rate) {
				smaller = append(smaller, c.Client)
			}
		}
		if len(smaller) > 0 {
			f.Claims = append(f.Claims, "Smaller ones without a significant difference may be as good: "+strings.Join(smaller, ", ")+".")
		}
		if enough.Identity != best.Identity {
			f.Claims = append(f.Claims, fmt.Sprintf("P99 with %s: %s µs, %s that with %s.", enough.Client, outcome.InSentence(enough.P99, 0), enough.P99.Times(best.P99), best.Client))
		}
		if least := g.cells[0]; least.Resources.PoolWait != nil && *least.Resources.PoolWait > 0 {
			all := least.Stages["total"].Mean
			f.Claims = append(f.Claims, fmt.Sprintf("With %s an operation takes %s µs in the mean, and %.0f%% of that is waiting for a connection.", least.Client, outcome.Number(all, 0), 100*min(1, *least.Resources.PoolWait/all)))
		}
		nearest, ordered := g.nearest(best, rate)
		if !ordered {
			f.Legend = append(f.Legend, noMarks("throughput")...)
		}
		for _, c := range g.cells {
			wait := outcome.Figure{}
			if w := c.Resources.PoolWait; w != nil {
				wait = outcome.Exact(*w, 0)
			}
			f.Rows = append(f.Rows, []outcome.Figure{outcome.Words(c.Client), outcome.Marked(outcome.Measured(rate(c), 0), nearest(c)), than(c, best), outcome.Measured(c.P99, 0), wait, outcome.Words(limit(c))})
		}
		out = append(out, f)
	}
	return out
}

// dictionaries compares a dictionary with none, and one that is digested once with one that is
// digested for each value.
func dictionaries(r *outcome.Run) (out []outcome.Finding) {
	for _, g := range groups(r, func(c outcome.Cell) string { return c.Dataset }) {
		alone, ok1 := g.find(compressed(zstd))
		with, ok2 := g.find(compressed(withD))
		if !ok1 || !ok2 {
			continue
		}
		f := outcome.Finding{About: g.name, Legend: []string{"B/key: what Redis takes for a value and its key, the dictionary included", "µs: to compress and decompress a value, in the median", "P99: µs that 99 of 100 operations took at most"},
			Columns: []string{"setting", "ratio", "B/key", "µs", "P99"}}
		f.Claims = append(f.Claims,
			fmt.Sprintf("A dictionary (%s): ratio %.2f instead of %.2f, %s bytes a key in Redis instead of %s.", withD, with.Ratio, alone.Ratio, outcome.Number(with.BytesPerKey(), 0), outcome.Number(alone.BytesPerKey(), 0)),
			fmt.Sprintf("P99 with it: %s µs, without %s: %s.", outcome.InSentence(with.P99, 0), outcome.InSentence(alone.P99, 0), with.P99.Times(alone.P99)))
		for _, other := range []struct{ setting, says string }{{"zstd:3/naive+dict", "Digested anew for each value"}, {"zstd:3/stream+dict", "As a stream"}} {
			if c, ok := g.find(compressed(other.setting)); ok {
				f.Claims = append(f.Claims, fmt.Sprintf("%s (%s): %s µs to compress and decompress instead of %s, %s; ratio %.2f; P99 %s.", other.says, other.setting,
					outcome.InSentence(packing(c), 1), outcome.InSentence(packing(with), 1), packing(c).Times(packing(with)), c.Ratio, c.P99.Times(with.P99)))
			}
		}
		smallest, soonest := g.best(func(c outcome.Cell) float64 { return c.Ratio }), g.best(func(c outcome.Cell) float64 { return -c.P99.Median })
		nearest, ordered := g.nearest(soonest, func(c outcome.Cell) outcome.Estimate { return c.P99 })
		if !ordered {
			f.Legend = append(f.Legend, noMarks("P99")...)
		}
		for _, c := range g.cells {
			f.Rows = append(f.Rows, []outcome.Figure{outcome.Words(c.Compress), outcome.Marked(outcome.Exact(c.Ratio, 2), c.Ratio == smallest.Ratio), outcome.Exact(c.BytesPerKey(), 0), outcome.Measured(packing(c), 1),
				outcome.Marked(outcome.Measured(c.P99, 0), nearest(c))})
		}
		out = append(out, f)
	}
	return out
}

// networks finds up to where each compressor wins.
func networks(r *outcome.Run) (out []outcome.Finding) {
	link := func(c outcome.Cell) string { return strings.TrimPrefix(c.Server, "link=") }
	for _, g := range groups(r, func(c outcome.Cell) string { return c.Dataset }) {
		set := &outcome.Run{Cells: g.cells}
		bases := map[string]outcome.Cell{}
		var limits []string
		for _, over := range groups(set, link) {
			if base, ok := over.find(compressed(plain)); ok {
				bases[over.name] = base
				limits = append(limits, over.name+" "+limit(base))
			}
		}
		f := outcome.Finding{About: g.name, Legend: []string{"Throughput: values a second, relative to plain values (none) over the same link"}}
		for _, compressor := range groups(set, compressor) {
			var places []place
			for _, c := range compressor.cells {
				if base, ok := bases[link(c)]; ok && c.Compress != plain {
					places = append(places, place{link(c), rate(c), rate(base)})
				}
			}
			if v := verdicts(places, "more throughput than plain values", "less than plain values", "over"); v != "" {
				f.Claims = append(f.Claims, compressor.name+": "+v+".")
			}
		}
		if len(f.Claims) == 0 {
			continue
		}
		f.Claims = append(f.Claims, "What plain values are limited by: "+strings.Join(limits, ", ")+".")
		f.Columns, f.Rows = matrix(set, "compressor", compressor, link, func(c outcome.Cell, _ group) outcome.Figure {
			base, ok := bases[link(c)]
			switch {
			case !ok:
				return outcome.Figure{}
			case c.Compress == plain:
				return outcome.Exact(1, 0)
			}
			return outcome.Against(rate(c), rate(base))
		})
		out = append(out, f)
	}
	return out
}

func limit(c outcome.Cell) string { return cmp.Or(c.Limit, "unknown") }
