package outcome

import (
	"fmt"
	"math"
	"slices"
)

// The columns of the medians that not every load has.
const (
	servedTotal = "served"  // the total from when an operation did start
	setsShare   = "in SETs" // of a mix
)

func (t *tables) aboutMedians() string {
	s := "where the time goes: median of each stage, µs"
	if t.run.Environment.Mix != "" {
		s += ", of a SET up to set, and of a GET from get on; " + setsShare + ": the share of all time that the SETs took"
	}
	if t.open() {
		s += "; total: from when an operation was to start, " + servedTotal + ": from when it did; the rest is waiting for a caller, and what the load generator was late"
	}
	return s
}

func (t *tables) medians(cells []Cell) {
	header, name := identityColumns(cells)
	left := len(header)
	loads, load := t.loadColumns()
	header = slices.Concat(header, loads, Stages)
	open, mixed := t.open(), t.run.Environment.Mix != ""
	if open {
		header = append(header, servedTotal)
	}
	if mixed {
		header = append(header, setsShare)
	}
	out := t.Table(left, header...)
	out.Short, out.Drop = shortStages, []string{"serialize", "deserialize", "decompress"}
	for _, c := range cells {
		if !c.Verified {
			continue
		}
		row := append(name(c), load(c)...)
		for _, s := range Stages {
			row = append(row, ofStage(&c, s, microseconds(c.Stages[s].P50)))
		}
		if open {
			row = append(row, microseconds(pointAt(c.Service, 0.5)))
		}
		if mixed {
			row = append(row, fmt.Sprintf("%.0f%%", 100*inSets(c)))
		}
		out.Row(row...)
	}
	out.Render()
}

// total is the stage that is the whole operation, the only one that can be a lower bound.
const total = "total"

// ofStage is the time of a stage, with a mark if it is a lower bound.
func ofStage(c *Cell, stage, text string) string {
	if stage == total {
		return withBound(c, text)
	}
	return text
}

// inSets is the share of the time of a mix's operations that its SETs took.
func inSets(c Cell) float64 {
	mean := func(stages ...string) (sum float64) {
		for _, s := range stages {
			sum += c.Stages[s].Mean
		}
		return sum
	}
	gets := float64(c.Hits + c.Misses)
	read := gets*mean("get") + float64(c.Hits)*mean("decompress", "deserialize")
	written := (float64(c.Operations) - gets) * mean("serialize", "compress", "set")
	return written / (written + read)
}

// microseconds is a time in microseconds.
func microseconds(us float64) string {
	switch {
	case math.IsNaN(us):
		return "-"
	case us >= 100:
		return fmt.Sprintf("%.0f", us)
	}
	return fmt.Sprintf("%.1f", us)
}

func (t *tables) percentiles(cells []Cell) {
	header, label := identityColumns(cells)
	loads, load := t.loadColumns()
	header = append(append(header, loads...), "stage")
	out := t.Table(len(header), append(header, "P50", "P95", "P99", "P99.9", "mean")...)
	out.Drop = []string{"mean", "P99.9", "P95"}
	for _, c := range cells {
		if !c.Verified {
			continue
		}
		for _, name := range Stages {
			s := c.Stages[name]
			row := append(label(c), append(load(c), name)...)
			for _, v := range []float64{s.P50, s.P95, s.P99, s.P999, s.Mean} {
				row = append(row, ofStage(&c, name, fmt.Sprintf("%.2f", v)))
			}
			out.Row(row...)
		}
		if len(c.Service) > 0 {
			row := append(label(c), append(load(c), servedTotal)...)
			for _, q := range []float64{0.5, 0.95, 0.99, 0.999} {
				row = append(row, fmt.Sprintf("%.2f", pointAt(c.Service, q)))
			}
			out.Row(append(row, "-")...)
		}
	}
	out.Render()
}
