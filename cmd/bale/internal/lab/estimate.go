package lab

import (
	"math"

	"golang.org/x/perf/benchmath"

	"github.com/balekv/bale/cmd/bale/internal/outcome"
)

const confidence = 0.95

// estimate is the median of a figure over rounds, and its interval where there are enough of them.
func estimate(rounds []outcome.Round, figure func(outcome.Round) float64) outcome.Estimate {
	if len(rounds) == 0 {
		return outcome.Estimate{}
	}
	values := make([]float64, len(rounds))
	for i, r := range rounds {
		values[i] = figure(r)
	}
	summary := benchmath.AssumeNothing.Summary(benchmath.NewSample(values, &benchmath.DefaultThresholds), confidence)
	e := outcome.Estimate{Median: summary.Center}
	if !math.IsInf(summary.Lo, 0) && !math.IsInf(summary.Hi, 0) {
		e.Interval = &[2]float64{summary.Lo, summary.Hi}
	}
	return e
}
