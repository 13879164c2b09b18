package compare

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/balekv/bale/cmd/internal/outcome"
)

// Of are the rounds of a run of the lab as benchmarks of Go.
func Of(r *outcome.Run) *Benchmarks {
	e := r.Environment
	goos, goarch, _ := strings.Cut(e.OS, "/")
	run := &Benchmarks{
		Environment: []Setting{
			{Key: "goos", Value: goos}, {Key: "goarch", Value: goarch}, {Key: "cpu", Value: e.CPU}, {Key: "cores", Value: fmt.Sprint(e.Cores)}, {Key: "go", Value: e.Go},
			{Key: "redis", Value: e.RedisVersion}, {Key: "load", Value: e.Load},
			{Key: "round", Value: roundLength(e).String()}, // a short one has fewer collections and another P99
		},
		Versions: []Setting{{Key: "bale", Value: e.Bale}},
		Warnings: r.Warnings(),
	}
	known := map[Setting]bool{}
	for _, l := range e.Libraries {
		if v := (Setting{Key: l.Module, Value: l.Version}); v.Key != "" && v.Value != "" && !known[v] {
			known[v] = true
			run.Versions = append(run.Versions, v)
		}
	}
	for _, c := range r.Cells {
		name := benchmarkName(c.Identity, c.Values, e.Mix)
		if !c.Verified {
			failure := Failure{Cell: name, Error: oneLine(c.Error)}
			if !c.Mismatch {
				failure.Error = "could not be measured: " + failure.Error
			}
			run.Failed = append(run.Failed, failure)
			continue
		}
		series := func(s Series, of func(outcome.Round) float64) {
			s.Name = name
			for _, round := range c.Rounds {
				s.Values = append(s.Values, of(round))
			}
			run.Series = append(run.Series, s)
		}
		add := func(unit string, of func(outcome.Round) float64) { series(Series{Unit: unit}, of) }
		once := func(unit string, v float64) {
			series(Series{Unit: unit, Exact: true}, func(outcome.Round) float64 { return v })
		}
		atLeast := c.AtLeast || slices.ContainsFunc(c.Rounds, func(r outcome.Round) bool { return r.AtLeast })
		latency := func(unit string, of func(outcome.Round) float64) {
			series(Series{Unit: unit, AtLeast: atLeast}, of)
		}
		last := len(outcome.Stages) - 1
		if c.Rate > 0 && !c.Kept() {
			run.Behind = append(run.Behind, Failure{Cell: name, Error: notKept(&c)})
		}
		if !c.Kept() { // otherwise it is what was asked for
			add("sec/op", func(r outcome.Round) float64 { return 1 / r.OpsPerSecond })
			add("values/s", func(r outcome.Round) float64 {
				return r.OpsPerSecond * c.ValuesPerSecond.Median / c.OpsPerSecond.Median
			})
		}
		latency("p50-sec/op", func(r outcome.Round) float64 { return r.StagesP50[last] / 1e6 })
		latency("p99-sec/op", func(r outcome.Round) float64 { return r.P99 / 1e6 })
		add("B/op", func(r outcome.Round) float64 { return r.BytesPerOp })
		add("allocs/op", func(r outcome.Round) float64 { return r.AllocsPerOp })
		once("stored-B/value", float64(c.StoredBytes)/float64(c.Values))
		if c.RedisBytesPerKey != nil {
			once("redis-B/key", *c.RedisBytesPerKey)
		}
	}
	return run
}

// notKept describes how far a cell fell short of the requested rate.
func notKept(c *outcome.Cell) string {
	text := fmt.Sprintf("does %.0f of %.0f operations a second", c.OpsPerSecond.Median, c.Rate)
	if c.Unstarted > 0 {
		text += fmt.Sprintf(", and left %d unstarted", c.Unstarted)
	}
	return text
}

// roundLength is how long a cell was measured in a round.
func roundLength(e outcome.Environment) time.Duration {
	return time.Duration(e.DurationS / float64(max(1, e.Rounds)) * float64(time.Second)).Round(100 * time.Microsecond)
}

// oneLine is a text for a format of lines, and as long as Read takes it.
func oneLine(s string) string {
	s = strings.ToValidUTF8(s[:min(len(s), maxLine)], "\uFFFD")
	return strings.Join(strings.Fields(s), " ")
}

// benchmarkName is a cell's name as a benchmark.
func benchmarkName(i outcome.Identity, values int, mix string) string {
	parts := []string{"data", i.Dataset, "track", i.Track, "codec", i.Codec, "compress", i.Compress, "client", i.Client}
	if i.Server != "" {
		parts = append(parts, "server", i.Server)
	}
	if i.Batch != "" {
		parts = append(parts, "batch", i.Batch)
	}
	parts = append(parts, "callers", fmt.Sprint(i.Concurrency))
	// With other values it is another measurement, even under similar names.
	parts = append(parts, "values", fmt.Sprint(values))
	if mix != "" {
		parts = append(parts, "mix", mix)
	}
	if i.Rate > 0 {
		parts = append(parts, "rate", fmt.Sprint(i.Rate))
	}
	return Name("RoundTrip", parts...)
}
