package lab

import (
	"context"
	"math"

	"github.com/balekv/bale/cmd/internal/outcome"
)

// sweepShares are the rates of a sweep, of what the closed loop does.
var sweepShares = []float64{0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 1, 1.1}

// findRates measures each cell once in a closed loop, and puts cells at rising rates in its place.
func (r *run) findRates(ctx context.Context) {
	var cells []*cell
	for _, base := range r.cells {
		r.step("finding the rates of " + base.variant.String())
		if ctx.Err() != nil {
			return
		}
		r.measure(ctx, base, 0)
		if len(base.rounds) == 0 {
			cells = append(cells, base) // which has failed, and says so
			continue
		}
		capacity := base.rounds[0].OpsPerSecond
		r.mu.Lock()
		r.sweeps = append(r.sweeps, outcome.Sweep{Identity: base.identity(), Capacity: capacity})
		r.mu.Unlock()
		for _, share := range sweepShares {
			c := &cell{variant: base.variant, server: base.server, client: base.client, batch: base.batch, mix: base.mix, concurrency: base.concurrency}
			c.rate = threeDigits(share * capacity)
			cells = append(cells, c)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cells = cells
}

// threeDigits rounds a rate, so that it can be typed.
func threeDigits(v float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(v))-2)
	return math.Round(v/unit) * unit
}

// knee finds where a sweep's cells stopped to keep their rate.
func knee(s outcome.Sweep, cells []*cell, places map[outcome.Identity]int, results []outcome.Cell) (outcome.Sweep, bool) {
	for _, c := range cells {
		i := c.identity()
		i.Rate = 0
		place, there := places[c.identity()]
		if i != s.Identity || c.rate == 0 || !there {
			continue
		}
		s.Cells = append(s.Cells, place)
		if results[place].Limit == outcome.LimitOffered {
			s.Knee = max(s.Knee, c.rate)
		}
	}
	return s, len(s.Cells) > 0
}
