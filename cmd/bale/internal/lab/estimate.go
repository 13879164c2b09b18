package lab

import (
	"math"
	"time"

	"golang.org/x/perf/benchmath"

	"github.com/balekv/bale/cmd/bale/internal/outcome"
)

const confidence = 0.95

// together is a percentile of all rounds together, with the interval of those of the rounds, and made wider where it is not in there. So it fits the other
// percentiles, and what one bad round has among the slowest is not lost.
func together(rounds outcome.Estimate, all time.Duration) outcome.Estimate {
	e := outcome.Estimate{Median: us(all)}
	if rounds.Interval != nil {
		e.Interval = &[2]float64{min(rounds.Interval[0], e.Median), max(rounds.Interval[1], e.Median)}
	}
	return e
}

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
