package study

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/balekv/bale/cmd/bale/internal/outcome"
)

const (
	plain = "none"
	zstd  = "zstd:3"
	withD = "zstd:3+dict"
)

// serializers finds the quickest and the smallest codec of each set, by itself and with a dictionary.
func serializers(r *outcome.Run) (out []string) {
	for _, g := range groups(r, func(c outcome.Cell) string { return c.Dataset + ", " + c.Track }) {
		alone := group{g.name, nil}
		for _, c := range g.cells {
			if c.Compress == plain {
				alone.cells = append(alone.cells, c)
			}
		}
		json, ok := alone.find(func(c outcome.Cell) bool { return c.Codec == "json" })
		if !ok {
			continue
		}
		work := func(c outcome.Cell) float64 { return cpu(c, "serialize", "deserialize") }
		quick := alone.best(func(c outcome.Cell) float64 { return -work(c) })
		small := alone.best(func(c outcome.Cell) float64 { return -float64(c.StoredBytes) })
		out = append(out, fmt.Sprintf("%s: %s takes the least time to write and read a value (%.1f us, encoding/json %.1f), %s the fewest bytes (%.0f, encoding/json %.0f); through Redis with %s %s has %s encoding/json's throughput.",
			g.name, quick.Codec, work(quick), work(json), small.Codec, stored(small), stored(json), callers(quick.Concurrency), quick.Codec, quick.ValuesPerSecond.Times(json.ValuesPerSecond)))
		dictionary, ok := g.find(func(c outcome.Cell) bool { return c.Codec == "json" && c.Compress == withD })
		if best, there := g.find(func(c outcome.Cell) bool { return c.Codec == small.Codec && c.Compress == withD }); ok && there {
			out = append(out, fmt.Sprintf("%s: with a dictionary (%s) JSON takes %.0f bytes, %s %.0f.", g.name, withD, stored(dictionary), small.Codec, stored(best)))
		}
	}
	return out
}

func stored(c outcome.Cell) float64 { return float64(c.StoredBytes) / float64(max(1, c.Values)) }

// compressors compares the ratios with and without a dictionary, by kind of data.
func compressors(r *outcome.Run) (out []string) {
	for _, g := range groups(r, func(c outcome.Cell) string { return c.Dataset + " as " + c.Codec }) {
		base, ok := g.find(compressed(plain))
		if !ok {
			continue
		}
		without, with := group{g.name, nil}, group{g.name, nil}
		for _, c := range g.cells {
			if strings.HasSuffix(c.Compress, "+dict") {
				with.cells = append(with.cells, c)
			} else {
				without.cells = append(without.cells, c)
			}
		}
		ratio := func(c outcome.Cell) float64 { return c.Ratio }
		best := without.best(ratio)
		line := fmt.Sprintf("%s: without a dictionary %s is smallest (ratio %.2f, %.1f us to write and read, %.0f bytes a key instead of %.0f)",
			g.name, best.Compress, best.Ratio, cpu(best, "compress", "decompress"), best.BytesPerKey(), base.BytesPerKey())
		if best.Ratio/base.Ratio < 1.05 {
			line = fmt.Sprintf("%s: without a dictionary nothing saves 5%%", g.name)
		}
		if len(with.cells) > 0 {
			d := with.best(ratio)
			line += fmt.Sprintf("; with one %s is (ratio %.2f, %.1f us, %.0f bytes a key), at %s the throughput of plain values", d.Compress, d.Ratio, cpu(d, "compress", "decompress"), d.BytesPerKey(), d.ValuesPerSecond.Times(base.ValuesPerSecond))
		} else {
			line += "; no dictionary pays"
		}
		out = append(out, line+".")
	}
	return out
}

// pooling compares each form of a compressor with the pooled one.
func pooling(r *outcome.Run) (out []string) {
	for _, g := range groups(r, func(c outcome.Cell) string { return c.Dataset }) {
		for _, c := range g.cells {
			form, name := "", c.Compress
			for _, f := range []string{"/naive", "/stream"} {
				if base, ok := strings.CutSuffix(name, f); ok {
					form, name = f, base
				}
			}
			pooled, ok := g.find(compressed(name))
			if form == "" || !ok {
				continue
			}
			out = append(out, fmt.Sprintf("%s takes %.1f us to write and read a value of %s, pooled %.1f; %.0f bytes allocated an operation, pooled %.0f; the garbage collector has %s of the processor time, pooled %s; throughput %s.",
				c.Compress, cpu(c, "compress", "decompress"), c.Dataset, cpu(pooled, "compress", "decompress"), c.BytesPerOp.Median, pooled.BytesPerOp.Median,
				percent(c.Resources.GCShare), percent(pooled.Resources.GCShare), c.ValuesPerSecond.Times(pooled.ValuesPerSecond)))
		}
	}
	return out
}

func percent(share *float64) string {
	if share == nil {
		return "too little to be told"
	}
	return fmt.Sprintf("%.0f%%", 100**share)
}

// clients names the client with the highest throughput at each concurrency, and what a proxy costs.
func clients(r *outcome.Run) (out []string) {
	for _, g := range groups(r, func(c outcome.Cell) string { return callers(c.Concurrency) }) {
		base, ok := g.find(func(c outcome.Cell) bool { return c.Client == "goredis" })
		if !ok {
			continue
		}
		best := g.best(throughput)
		out = append(out, fmt.Sprintf("%s: %s does the most, %.0f operations a second, %s go-redis with a pool; P99 %.0f us, go-redis %.0f; limit: %s.",
			g.name, best.Client, best.OpsPerSecond.Median, best.OpsPerSecond.Times(base.OpsPerSecond), best.P99.Median, base.P99.Median, limit(best)))
		if hop, ok := g.find(func(c outcome.Cell) bool { return c.Client == "goredis@twemproxy" }); ok {
			out = append(out, fmt.Sprintf("%s: through twemproxy go-redis has %s its throughput without.", g.name, hop.OpsPerSecond.Times(base.OpsPerSecond)))
		}
	}
	return out
}

// pipelines compares the ways for values to travel with one by one.
func pipelines(r *outcome.Run) (out []string) {
	for _, g := range groups(r, func(c outcome.Cell) string { return c.Client }) {
		one, ok := g.find(func(c outcome.Cell) bool { return c.Batch == "" })
		if !ok {
			continue
		}
		best := g.best(throughput)
		line := fmt.Sprintf("%s: one by one does the most, %.0f values a second", g.name, best.ValuesPerSecond.Median)
		if best.Batch != "" {
			line = fmt.Sprintf("%s: %s does the most, %.0f values a second, %s one by one", g.name, best.Batch, best.ValuesPerSecond.Median, best.ValuesPerSecond.Times(one.ValuesPerSecond))
		}
		for _, depth := range []string{"10", "100", "1000"} {
			p, there := g.find(func(c outcome.Cell) bool { return c.Batch == "pipeline:"+depth })
			m, also := g.find(func(c outcome.Cell) bool { return c.Batch == "mset:"+depth })
			if there && also {
				line += fmt.Sprintf("; MSET of %s %s a pipeline of as many", depth, m.ValuesPerSecond.Times(p.ValuesPerSecond))
			}
		}
		out = append(out, line+".")
	}
	return out
}

// enoughPool is the share of the highest throughput that a smaller pool is to reach.
const enoughPool = 0.95

// poolSizes finds the smallest pool that is as good as the best.
func poolSizes(r *outcome.Run) (out []string) {
	for _, g := range groups(r, func(c outcome.Cell) string { return callers(c.Concurrency) }) {
		best := g.best(throughput)
		for _, c := range g.cells { // in the order of their sizes
			if throughput(c) >= enoughPool*throughput(best) {
				out = append(out, fmt.Sprintf("%s: %s is the smallest with %.0f%% of the highest throughput (%.0f a second, %s has %.0f); P99 %.0f us, of the highest %.0f.",
					g.name, c.Client, 100*enoughPool, throughput(c), best.Client, throughput(best), c.P99.Median, best.P99.Median))
				break
			}
		}
		if last := g.cells[0]; last.Resources.PoolWait != nil && *last.Resources.PoolWait > 0 {
			out = append(out, fmt.Sprintf("%s: with %s an operation waits %.0f us for a connection, of %.0f in all.", g.name, last.Client, min(*last.Resources.PoolWait, last.Stages["total"].Mean), last.Stages["total"].Mean))
		}
	}
	return out
}

// dictionaries compares a dictionary with none, and one that is digested once with one that is digested for each value.
func dictionaries(r *outcome.Run) (out []string) {
	for _, g := range groups(r, func(c outcome.Cell) string { return c.Dataset }) {
		alone, ok1 := g.find(compressed(zstd))
		with, ok2 := g.find(compressed(withD))
		if !ok1 || !ok2 {
			continue
		}
		out = append(out, fmt.Sprintf("%s: with a dictionary %s has a ratio of %.2f, without %.2f; P99 %.0f us and %.0f; %.0f bytes a key in Redis and %.0f.",
			g.name, zstd, with.Ratio, alone.Ratio, with.P99.Median, alone.P99.Median, with.BytesPerKey(), alone.BytesPerKey()))
		if naive, ok := g.find(compressed("zstd:3/naive+dict")); ok {
			out = append(out, fmt.Sprintf("%s: digested anew for each value the dictionary takes %.1f us to write and read with, digested once %.1f.",
				g.name, cpu(naive, "compress", "decompress"), cpu(with, "compress", "decompress")))
		}
		if stream, ok := g.find(compressed("zstd:3/stream+dict")); ok {
			out = append(out, fmt.Sprintf("%s: as a stream the same takes %.1f us, at a ratio of %.2f.", g.name, cpu(stream, "compress", "decompress"), stream.Ratio))
		}
	}
	return out
}

// networks finds where compression begins to win, from the narrowest link on.
func networks(r *outcome.Run) (out []string) {
	type link struct {
		group
		dataset, server string
	}
	var sets []string
	of := map[string][]link{}
	for _, g := range groups(r, func(c outcome.Cell) string { return c.Dataset + " over " + c.Server }) {
		d := g.cells[0].Dataset
		if of[d] == nil {
			sets = append(sets, d)
		}
		of[d] = append(of[d], link{g, d, g.cells[0].Server})
	}
	for _, d := range sets {
		var wins []string
		for _, l := range of[d] {
			base, ok := l.find(compressed(plain))
			if !ok {
				continue
			}
			best := l.best(throughput)
			name := strings.TrimPrefix(l.server, "link=")
			if best.Compress == plain || !apart(best.ValuesPerSecond, base.ValuesPerSecond) {
				wins = append(wins, fmt.Sprintf("over %s nothing is told to be faster than plain values (limit: %s)", name, limit(base)))
				continue
			}
			wins = append(wins, fmt.Sprintf("over %s %s has %s the throughput of plain values (limit of those: %s)", name, best.Compress, best.ValuesPerSecond.Times(base.ValuesPerSecond), limit(base)))
		}
		if len(wins) > 0 {
			out = append(out, d+": "+strings.Join(wins, "; ")+".")
		}
	}
	return out
}

func limit(c outcome.Cell) string { return cmp.Or(c.Limit, "unknown") }

// apart reports whether the intervals of two estimates have nothing in common.
func apart(a, b outcome.Estimate) bool {
	return a.Interval != nil && b.Interval != nil && (a.Interval[0] > b.Interval[1] || b.Interval[0] > a.Interval[1])
}
