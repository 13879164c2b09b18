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

// TestOverDivides: two figures side by side divide to their quotient, whatever the pairs of rounds
// say, and its interval holds it.
func TestOverDivides(t *testing.T) {
	slow := []float64{1000, 1010, 990, 1980, 1985, 1990, 1995, 2000}
	quick := []float64{1225, 1230, 1220, 1215, 2400, 2410, 1000, 1210}
	with, without := NewEstimate(slow), NewEstimate(quick)
	q := with.Over(without)
	if want := with.Median / without.Median; q.Median != want {
		t.Errorf("%.0f over %.0f is %.3f, want %.3f", with.Median, without.Median, q.Median, want)
	}
	if q.Interval == nil || q.Interval[0] > q.Median || q.Interval[1] < q.Median {
		t.Errorf("%v is not in %v", q.Median, q.Interval)
	}
}

// TestSince: rounds of two runs are no pairs. A change that noise explains is none.
func TestSince(t *testing.T) {
	was := NewEstimate([]float64{100, 300, 110, 290, 105, 310, 98, 305})
	for _, test := range []struct {
		now         []float64
		significant bool
	}{
		{[]float64{300, 100, 290, 110, 310, 105, 305, 306}, false},
		{[]float64{900, 910, 920, 905, 930, 940, 899, 950}, true},
		{[]float64{900}, false},
	} {
		now := NewEstimate(test.now)
		change, significant := now.Since(was)
		if want := now.Median/was.Median - 1; change != want || significant != test.significant {
			t.Errorf("%v: %v %v, want %v %v", test.now, change, significant, want, test.significant)
		}
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
