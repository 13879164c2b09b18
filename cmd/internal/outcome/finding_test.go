package outcome

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestOverIsPaired: what slows both cells of a round down is not in their quotient.
func TestOverIsPaired(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var slow, quick []float64
	for range 8 {
		machine := 1 + rng.Float64() // up to half as fast
		slow = append(slow, 100/machine*(1+0.01*rng.Float64()))
		quick = append(quick, 110/machine*(1+0.01*rng.Float64()))
	}
	a, b := NewEstimate(quick), NewEstimate(slow)
	q := a.Over(b)
	if math.Abs(q.Median-1.1) > .01 || q.Interval == nil || q.Interval[0] < 1.08 || q.Interval[0] > q.Median || q.Interval[1] > 1.12 || q.Interval[1] < q.Median || !a.Apart(b) || !b.Apart(a) {
		t.Errorf("%v %v, apart: %v", q.Median, q.Interval, a.Apart(b))
	}
	if a.Apart(a) {
		t.Error("apart from itself")
	}

	// Without the rounds, as they are read from a file, it is what the intervals leave.
	a.Rounds, b.Rounds = nil, nil
	if q := a.Over(b); *q.Interval != [2]float64{a.Interval[0] / b.Interval[1], a.Interval[1] / b.Interval[0]} || a.Apart(b) {
		t.Errorf("without rounds: %v", q.Interval)
	}
}

// TestOverCovers: if many pairs of cells differ only by noise, about one in twenty shows a
// significant difference. No pair that is 30% apart is missed.
func TestOverCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const pairs = 2000
	same, different := 0, 0
	for range pairs {
		x, y, z := make([]float64, 8), make([]float64, 8), make([]float64, 8)
		for i := range x {
			machine := math.Exp(0.2 * rng.NormFloat64())
			x[i], y[i], z[i] = machine*math.Exp(0.05*rng.NormFloat64()), machine*math.Exp(0.05*rng.NormFloat64()), 1.3*machine*math.Exp(0.05*rng.NormFloat64())
		}
		if NewEstimate(y).Apart(NewEstimate(x)) {
			same++
		}
		if NewEstimate(z).Apart(NewEstimate(x)) {
			different++
		}
	}
	if same > pairs*6/100 || different < pairs*95/100 {
		t.Errorf("told apart: %d of %d that are the same, %d of those that are not", same, pairs, different)
	}
}

func TestOverOfFew(t *testing.T) {
	six := []float64{1, 2, 3, 4, 5, 6}
	for name, c := range map[string]struct {
		a, b  []float64
		times string
	}{
		"none":       {nil, six, "0.00 times"},
		"over none":  {six, nil, "unknown times"},
		"few":        {six[:5], six[1:], "0.75 times"},
		"zeros":      {[]float64{0, 0, 0, 0, 0, 0}, six, "0.00 times (0.00 to 0.00)"},
		"over zeros": {six, []float64{0, 0, 0, 0, 0, 1}, "unknown times"},
		"the same":   {six, six, "1.00 times (1.00 to 1.00: no significant difference)"},
		"twice":      {[]float64{2, 4, 6, 8, 10, 12}, six, "2.00 times (2.00 to 2.00)"},
	} {
		if got := NewEstimate(c.a).Times(NewEstimate(c.b)); got != c.times {
			t.Errorf("%s: %q, want %q", name, got, c.times)
		}
	}
}
