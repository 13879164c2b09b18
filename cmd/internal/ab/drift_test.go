package ab

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/balekv/bale/cmd/internal/compare"
)

// TestDriftGivesNoAlarms: the two pairs of a block are not independent if the machine drifts.
// Without any floor, at most 5% of 1,000 matrices of the same may have a verdict, under a drift as
// strong as the noise. That is 50 matrices, and with three standard deviations of a binomial 71.
func TestDriftGivesNoAlarms(t *testing.T) {
	const matrices, most, cells, blocks = 1000, 71, 6, 10
	gate, err := compare.ParseGate("time=0")
	if err != nil {
		t.Fatal(err)
	}
	for _, drift := range []float64{0, 0.03, 0.3} {
		r := rand.New(rand.NewPCG(8, 9))
		alarms := 0
		for range matrices {
			var runs [2]*compare.Benchmarks
			for side := range runs {
				runs[side] = &compare.Benchmarks{}
				for c := range cells {
					runs[side].Series = append(runs[side].Series, compare.Series{Name: fmt.Sprint(c), Unit: "sec/op"})
				}
			}
			mood := 0.0
			for range blocks {
				first, slope := r.IntN(2), drift*r.NormFloat64()
				for _, side := range []int{first, 1 - first, 1 - first, first} {
					mood += slope
					for c := range cells {
						s := &runs[side].Series[c]
						s.Values = append(s.Values, math.Exp(mood+0.03*r.NormFloat64()))
					}
				}
			}
			report, err := compare.Compare(t.Context(), runs[0], runs[1], compare.Rules{Gate: gate, Paired: true})
			if err != nil {
				t.Fatal(err)
			}
			if report.Regressions+report.Better > 0 {
				alarms++
			}
		}
		t.Logf("a drift of %v: %d of %d", drift, alarms, matrices)
		if alarms > most {
			t.Errorf("a drift of %v: %d alarms of %d, at most %d", drift, alarms, matrices, most)
		}
	}
}
