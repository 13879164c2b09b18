package lab

import "github.com/balekv/bale/cmd/internal/outcome"

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
