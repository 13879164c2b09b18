package lab

import (
	"time"

	"github.com/balekv/bale/cmd/bale/internal/outcome"
)

// together is a percentile of all rounds together, with the interval of those of the rounds, and made wider where it is not in there. So it fits the other
// percentiles, and what one bad round has among the slowest is not lost.
func together(rounds outcome.Estimate, all time.Duration) outcome.Estimate {
	e := outcome.Estimate{Median: us(all), Rounds: rounds.Rounds}
	if rounds.Interval != nil {
		e.Interval = &[2]float64{min(rounds.Interval[0], e.Median), max(rounds.Interval[1], e.Median)}
	}
	return e
}

// estimate is the median of a figure over rounds, and its interval where there are enough of them.
func estimate(rounds []outcome.Round, figure func(outcome.Round) float64) outcome.Estimate {
	values := make([]float64, len(rounds))
	for i, r := range rounds {
		values[i] = figure(r)
	}
	e := outcome.NewEstimate(values)
	for i, r := range rounds {
		if r.Round != i { // one in which nothing was done is not there: they make no pairs with those of other cells
			e.Rounds = nil
		}
	}
	return e
}
