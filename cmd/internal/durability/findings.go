package durability

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/page"
)

const method = "A write is a new key or row of 256 bytes, a transaction of its own, over a connection of the caller's own to a private server on this machine. " +
	"Rounds of all settings take turns in random order. After each round every acknowledged write is read back."

// notCovered is what a kill does not show.
const notCovered = "A kill leaves what the kernel has; a power loss also takes what was acknowledged and not yet flushed, which these figures do not count."

// findings sum the cells up. They leave out failed cells.
func findings(cells []*Cell) (out []outcome.Finding) {
	cells = slices.DeleteFunc(slices.Clone(cells), func(c *Cell) bool { return !c.Verified })
	for _, n := range callers {
		if f := loads(slices.DeleteFunc(slices.Clone(cells), func(c *Cell) bool { return c.Callers != n }), n); f != nil {
			out = append(out, *f)
		}
	}
	if f := losses(cells); f != nil {
		out = append(out, *f)
	}
	return out
}

func about(callers int) string {
	if callers == 1 {
		return "one write at a time"
	}
	return fmt.Sprintf("%d writes at once", callers)
}

// loads compares the settings under one load.
func loads(cells []*Cell, callers int) *outcome.Finding {
	if len(cells) == 0 {
		return nil
	}
	f := &outcome.Finding{About: about(callers), Legend: []string{
		"Redis by appendonly (no) and appendfsync (everysec, always), PostgreSQL by synchronous_commit, MariaDB by innodb_flush_log_at_trx_commit",
		"To disk: when a write gets there, by the server's documentation",
		"P50, P99: µs from a write to its acknowledgement"},
		Columns: []string{"setting", "to disk", "writes/s", "P50", "P99"}}
	var durable []*Cell
	for _, c := range cells {
		f.Rows = append(f.Rows, []outcome.Figure{outcome.Words(c.Setting), outcome.Words(c.Flush), outcome.Measured(c.WritesPerSecond, 0), outcome.Measured(c.P50, 0), outcome.Measured(c.P99, 0)})
		if c.Flush == flushEach && c.Server != "" {
			durable = append(durable, c)
		}
	}
	if len(durable) > 0 {
		most := slices.MaxFunc(durable, func(a, b *Cell) int { return cmp.Compare(a.WritesPerSecond.Median, b.WritesPerSecond.Median) })
		line := fmt.Sprintf("On disk before it is acknowledged: %s does the most, %s writes a second with a P50 of %s µs", most.Setting, outcome.InSentence(most.WritesPerSecond, 0), outcome.InSentence(most.P50, 0))
		var same []string
		for _, c := range durable {
			if c != most && !c.WritesPerSecond.Apart(most.WritesPerSecond) {
				same = append(same, c.Setting)
			}
		}
		if len(same) > 0 {
			line += "; no significant difference: " + strings.Join(same, ", ")
		}
		f.Claims = append(f.Claims, line+".")
	}
	for _, strict := range cells {
		if !slices.Contains(durable, strict) {
			continue
		}
		for _, c := range cells {
			if c.Server == strict.Server && c.Flush != flushEach {
				f.Claims = append(f.Claims, fmt.Sprintf("%s does %s the writes of %s.", c.Setting, c.WritesPerSecond.Times(strict.WritesPerSecond), strict.Setting))
			}
		}
	}
	return f
}

// losses says what the kills took.
func losses(cells []*Cell) *outcome.Finding {
	f := &outcome.Finding{About: "kill -9", Legend: []string{
		fmt.Sprintf("All processes of the server are killed under %d writers, and started again", maxCallers),
		"Acknowledged: writes, over all kills", "Lost: acknowledged writes that are gone",
		"Oldest: ms from the acknowledgement of the oldest lost write to the kill"},
		Columns: []string{"setting", "to disk", "kills", "acknowledged", "lost", "oldest"}}
	var none []string
	kept := map[string]*Cell{}
	for _, c := range cells {
		k := c.Kill
		if k == nil {
			continue
		}
		kept[c.Setting] = c
		oldest, ms := outcome.Figure{}, max(1, math.Ceil(k.OldestMS)) // within the last of these
		if k.Lost > 0 {
			oldest = outcome.Exact(ms, 0)
		}
		f.Rows = append(f.Rows, []outcome.Figure{outcome.Words(c.Setting), outcome.Words(c.Flush), outcome.Exact(float64(k.Kills), 0), outcome.Exact(float64(k.Acknowledged), 0), outcome.Exact(float64(k.Lost), 0), oldest})
		switch {
		case k.Lost == 0:
			none = append(none, c.Setting)
		case k.Lost == k.Acknowledged:
			f.Claims = append(f.Claims, fmt.Sprintf("%s lost all %s acknowledged writes.", c.Setting, page.Thousands(k.Acknowledged)))
		default:
			f.Claims = append(f.Claims, fmt.Sprintf("%s lost %s of %s acknowledged writes, of the last %s ms.", c.Setting, page.Thousands(k.Lost), page.Thousands(k.Acknowledged), outcome.Number(ms, 0)))
		}
	}
	if len(f.Rows) == 0 {
		return nil
	}
	if len(none) > 0 {
		f.Claims = append(f.Claims, "No acknowledged write was lost by "+page.Enumerated(none)+".")
	}
	f.Claims = append(f.Claims, notCovered)
	if no, ok := kept["Redis no"]; ok && no.Kill.Lost > 0 {
		f.Claims = append(f.Claims, fmt.Sprintf("Redis is no database unless appendfsync is always: without a log a kill took %s of %s writes, and with everysec a power loss may take the last second.", page.Thousands(no.Kill.Lost), page.Thousands(no.Kill.Acknowledged)))
	}
	return f
}

// charts are the pictures of the cells.
func charts(cells []*Cell) []outcome.Chart {
	times := outcome.Chart{Title: "Latency", Note: "From a write to its acknowledgement: the filled point is the median, the hollow one P99. The axis is logarithmic. One colour is one server."}
	rates := outcome.Chart{Title: "Writes a second", Note: "The point is the median of the rounds, the line its 95% interval. The axis is logarithmic."}
	hues := map[string]int{}
	for _, c := range cells {
		if _, ok := hues[c.Server]; !ok {
			hues[c.Server] = len(hues)
		}
	}
	for _, n := range callers {
		time := outcome.Ranges{Title: about(n), Tick: outcome.TickTime, Hollow: true}
		rate := outcome.Ranges{Title: about(n), Tick: func(v float64) string { return page.Thousands(int64(v)) }}
		for _, c := range cells {
			if c.Callers != n || !c.Verified || c.P50.Median == 0 || c.WritesPerSecond.Median == 0 {
				continue
			}
			time.Rows = append(time.Rows, outcome.Range{Name: c.Setting, Hue: hues[c.Server], Low: c.P50.Median, At: c.P50.Median, High: c.P99.Median,
				Label: fmt.Sprintf("%s, P99 %s", outcome.TickTime(c.P50.Median), outcome.TickTime(c.P99.Median))})
			r := outcome.Range{Name: c.Setting, Hue: hues[c.Server], Label: outcome.Number(c.WritesPerSecond.Median, 0), At: c.WritesPerSecond.Median}
			r.Low, r.High = r.At, r.At
			if i := c.WritesPerSecond.Interval; i != nil {
				r.Low, r.High = i[0], i[1]
			}
			rate.Rows = append(rate.Rows, r)
		}
		times.Ranges, rates.Ranges = append(times.Ranges, time), append(rates.Ranges, rate)
	}
	return []outcome.Chart{times, rates}
}
