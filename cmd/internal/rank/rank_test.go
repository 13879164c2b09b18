package rank

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// alpha is that of the family.
const alpha = 0.05

// TestCriticalValues are those of the tables in Hollander, Wolfe and Chicken, for a two-sided test
// at 5%: the interval's bound is one further in.
func TestCriticalValues(t *testing.T) {
	for n, critical := range map[int]int{3: -1, 5: -1, 6: 0, 7: 2, 8: 3, 9: 5, 10: 8, 11: 10, 12: 13, 15: 25, 20: 52, 25: 89} {
		if k := signedRank(n); k != critical+1 {
			t.Errorf("%d pairs: %d, want %d", n, k, critical+1)
		}
	}
	for sizes, critical := range map[[2]int]int{{1, 1}: -1, {3, 3}: -1, {3, 4}: -1, {3, 5}: 0, {4, 4}: 0, {4, 5}: 1, {4, 6}: 2, {5, 5}: 2, {5, 8}: 6, {6, 6}: 5, {7, 7}: 8, {8, 8}: 13, {10, 10}: 23, {15, 15}: 64, {20, 20}: 127} {
		if k, swapped := mannWhitneyRank(sizes[0], sizes[1]), mannWhitneyRank(sizes[1], sizes[0]); k != critical+1 || swapped != k {
			t.Errorf("%d: %d and %d, want %d", sizes, k, swapped, critical+1)
		}
	}
	// Of the sign test, in the same book: the largest number of the rarer sign that is significant.
	for n, critical := range map[int]int{5: -1, 6: 0, 8: 0, 9: 1, 12: 2, 15: 3, 20: 5, 25: 7, 40: 13, 100: 39} {
		if k := tail(binomial(n)); k != critical+1 {
			t.Errorf("signs of %d pairs: %d, want %d", n, k, critical+1)
		}
	}
	for _, paired := range []bool{false, true} { // the fewest that have an interval
		rank := func(n int) int { return mannWhitneyRank(n, n) }
		if paired {
			rank = signedRank
		}
		if n := IntervalRounds(paired); rank(n) == 0 || rank(n-1) != 0 {
			t.Errorf("paired %v: %d rounds", paired, n)
		}
	}
}

// TestSignsOnTwoSpeeds: what is a tenth slower is found on a machine that has two speeds, of which
// a run has one or the other.
func TestSignsOnTwoSpeeds(t *testing.T) {
	r := rand.New(rand.NewPCG(14, 15))
	const tries, pairs = 500, 40
	alarms, signs, ranks := 0, 0, 0
	speed, other := 0, 1.6
	draw := func() float64 {
		if r.IntN(5) == 0 { // it changes
			speed = 1 - speed
		}
		return math.Log(math.Pow(other, float64(speed))) + 0.02*r.NormFloat64()
	}
	for range tries {
		x, same, slow := make([]float64, pairs), make([]float64, pairs), make([]float64, pairs)
		for i := range x {
			x[i], same[i] = draw(), draw()
		}
		if Signs(x, same).P < alpha {
			alarms++
		}
		for i := range x {
			x[i], slow[i] = draw(), draw()+math.Log(1.1)
		}
		if Signs(x, slow).P < alpha/3 {
			signs++
		}
		if SignedRanks(x, slow).P < alpha/3 {
			ranks++
		}
	}
	t.Logf("of %d: %d alarms, %d found by signs, %d by signed ranks", tries, alarms, signs, ranks)
	if alarms > tries*7/100 || signs < tries*95/100 || ranks > signs {
		t.Errorf("of %d: %d alarms, %d found by signs, %d by signed ranks", tries, alarms, signs, ranks)
	}
}

// TestLargeSamples: beyond what is enumerated the normal distribution is as good.
func TestLargeSamples(t *testing.T) {
	const n = exactSize + 10
	whole := make([]int, n)
	for i := range whole {
		whole[i] = i + 1
	}
	if got, exact := signedRank(n), tail(signedSums(whole)); got > exact || exact-got > 2 {
		t.Errorf("pairs: %d, exactly %d", got, exact)
	}
	if got, exact := mannWhitneyRank(n, n), tail(rankSums(n, 2*n)); got > exact || exact-got > 3 {
		t.Errorf("%d, exactly %d", got, exact)
	}
	d := make([]float64, n)
	for i := range d {
		if d[i] = float64(i + 1); i%3 == 0 {
			d[i] = -d[i]
		}
	}
	positive := 0
	for i := range d {
		if d[i] > 0 {
			positive += i + 1
		}
	}
	exact := 0.0
	for _, p := range signedSums(whole)[:n*(n+1)/2-positive+1] {
		exact += 2 * p
	}
	if p := signedRankP(d); math.Abs(p-exact) > 1e-3 {
		t.Errorf("P %v, exactly %v", p, exact)
	}
}

// TestSignedRankP against all signs that there could be, with ties and zeros.
func TestSignedRankP(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 11))
	for range 300 {
		d := make([]float64, 1+r.IntN(10))
		for i := range d {
			d[i] = float64(r.IntN(9) - 3)
		}
		if p, want := signedRankP(d), enumeratedP(d); math.Abs(p-want) > 1e-12 {
			t.Fatalf("%v: %v, want %v", d, p, want)
		}
	}
}

func enumeratedP(d []float64) float64 {
	d = slices.DeleteFunc(slices.Clone(d), func(v float64) bool { return v == 0 })
	ranks := make([]float64, len(d))
	sum := func(positive func(i int) bool) (w float64) {
		for i, rank := range ranks {
			if positive(i) {
				w += rank
			}
		}
		return w
	}
	for i, v := range d {
		for _, o := range d {
			switch {
			case math.Abs(o) < math.Abs(v):
				ranks[i]++
			case math.Abs(o) == math.Abs(v):
				ranks[i] += 0.5
			}
		}
		ranks[i] += 0.5
	}
	least := min(sum(func(i int) bool { return d[i] > 0 }), sum(func(i int) bool { return d[i] < 0 }))
	n := 0
	for signs := range 1 << len(d) {
		if sum(func(i int) bool { return signs>>i&1 == 1 }) <= least {
			n++
		}
	}
	return min(1, 2*float64(n)/float64(int(1)<<len(d)))
}

// TestIntervalsAreThoseOfTheTests: a change just within the interval is not rejected, one just
// beyond it is.
func TestIntervalsAreThoseOfTheTests(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 13))
	for _, test := range []struct {
		name     string
		estimate func(x, y []float64) Estimate
	}{{"unpaired", Unpaired}, {"signed ranks", SignedRanks}, {"signs", Signs}} {
		for _, n := range []int{6, 8, 13, 20} {
			t.Run(fmt.Sprint(test.name, " ", n), func(t *testing.T) {
				for range 20 {
					x, y := make([]float64, n), make([]float64, n)
					for i := range x {
						x[i], y[i] = r.NormFloat64(), 1+r.NormFloat64()
					}
					e := test.estimate(x, y)
					if !e.Bounded || !(e.Low < e.Shift && e.Shift < e.High) {
						t.Fatalf("%+v", e)
					}
					less := func(by float64) float64 {
						shifted := slices.Clone(y)
						for i := range shifted {
							shifted[i] -= by
						}
						return test.estimate(x, shifted).P
					}
					const little = 1e-9
					for _, within := range []float64{e.Low + little, e.Shift, e.High - little} {
						if p := less(within); p <= alpha {
							t.Errorf("%v is in %+v, but P is %v", within, e, p)
						}
					}
					for _, beyond := range []float64{e.Low - little, e.High + little} {
						if p := less(beyond); p > alpha {
							t.Errorf("%v is not in %+v, but P is %v", beyond, e, p)
						}
					}
				}
			})
		}
	}
}

// TestSmallestP is that of samples that do not overlap, and as many rounds as are needed are
// enough, and not one too many.
func TestSmallestP(t *testing.T) {
	for _, paired := range []bool{false, true} {
		for _, n := range []int{4, 6, 10, 20} {
			x, y := make([]float64, n), make([]float64, n)
			for i := range x {
				x[i], y[i] = float64(i), float64(2*n+2*i)
			}
			test := Unpaired
			if paired {
				test = Signs
			}
			e := test(x, y)
			if signed := SignedRanks(x, y); paired && math.Abs(e.P/signed.P-1) > 1e-9 {
				t.Errorf("%d pairs: P %v by signs, %v by signed ranks", n, e.P, signed.P)
			}
			if want := SmallestP(n, n, paired); math.Abs(e.P/want-1) > 1e-9 {
				t.Errorf("paired %v, %d rounds: P %v, want %v", paired, n, e.P, want)
			}
		}
		for _, family := range []int{1, 6, 7, 23, 24, 85, 86, 1000} {
			n := RoundsNeeded(family, alpha, paired)
			if SmallestP(n, n, paired)*float64(family) >= alpha || SmallestP(n-1, n-1, paired)*float64(family) < alpha {
				t.Errorf("paired %v, %d comparisons: %d rounds", paired, family, n)
			}
		}
	}
}
