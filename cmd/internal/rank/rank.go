// Package rank compares two samples by the order of their values alone, so that a few outliers do
// not outweigh the others. It has exact tests, with their estimates and intervals. [Unpaired]
// compares independent samples; [SignedRanks] and [Signs] compare pairs. [Median] and
// [MedianInterval] describe a single sample.
package rank

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"golang.org/x/perf/benchmath"
)

// Confidence is that of all intervals.
const Confidence = 0.95

// Estimate is how far one sample lies above another.
type Estimate struct {
	Shift     float64 // Hodges and Lehmann's
	Low, High float64 // its interval,
	Bounded   bool    // if there are enough values for one
	P         float64 // two-sided
}

// Unpaired compares two independent samples with Mann and Whitney's test, exact up to 50 values (25
// with ties), and its estimate and interval. The shift is the median of all differences of a y to
// an x. The interval holds the shifts that the test would not reject. Sources: Hodges and Lehmann
// 1963; Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 4.2 and 4.3.
func Unpaired(x, y []float64) Estimate {
	d := make([]float64, 0, len(x)*len(y))
	for _, a := range x {
		for _, b := range y {
			d = append(d, b-a)
		}
	}
	slices.Sort(d)
	e := Estimate{Shift: medianOf(d)}
	c := benchmath.AssumeNothing.Compare(sample(x), sample(y))
	e.P = min(1, c.P)
	if k := mannWhitneyRank(len(x), len(y)); k > 0 {
		e.Low, e.High, e.Bounded = d[k-1], d[len(d)-k], true
	}
	return e
}

// SignedRanks compares samples of one length whose values were taken in pairs: Wilcoxon's
// signed-rank test, exact with ties too, and the estimate and interval that belong to it. The shift
// is the median of the means of all pairs of differences (Hollander, Wolfe and Chicken, 3.2 and
// 3.3).
func SignedRanks(x, y []float64) Estimate {
	d := make([]float64, len(x))
	for i := range x {
		d[i] = y[i] - x[i]
	}
	means := make([]float64, 0, len(d)*(len(d)+1)/2)
	for i := range d {
		for j := range i + 1 {
			means = append(means, (d[i]+d[j])/2)
		}
	}
	slices.Sort(means)
	e := Estimate{Shift: medianOf(means), P: signedRankP(d)}
	if k := signedRank(len(d)); k > 0 {
		e.Low, e.High, e.Bounded = means[k-1], means[len(means)-k], true
	}
	return e
}

// Signs compares paired samples of one length by the signs of their differences alone: the exact
// sign test, the median of the differences, and its interval. It suits a machine with two speeds,
// where most pairs agree to a percent and every third is far off. There it finds changes that the
// signed ranks miss, because the distant pairs have the largest ranks. With normal noise it needs
// half as many pairs again (Hollander, Wolfe and Chicken, 3.4 to 3.6).
func Signs(x, y []float64) Estimate {
	d := make([]float64, len(x))
	below, above := 0, 0
	for i := range x {
		switch d[i] = y[i] - x[i]; {
		case d[i] < 0:
			below++
		case d[i] > 0:
			above++
		}
	}
	slices.Sort(d)
	e := Estimate{Shift: medianOf(d), P: 1}
	if tosses := binomial(below + above); len(tosses) > 1 { // pairs without a difference say nothing
		e.P = 0
		for _, p := range tosses[:min(below, above)+1] {
			e.P += 2 * p
		}
		e.P = min(1, e.P)
	}
	if k := tail(binomial(len(d))); k > 0 {
		e.Low, e.High, e.Bounded = d[k-1], d[len(d)-k], true
	}
	return e
}

// binomial is the distribution of heads in n tosses of a fair coin.
func binomial(n int) []float64 {
	chances := make([]float64, n+1)
	all, _ := math.Lgamma(float64(n + 1))
	for k := range chances {
		heads, _ := math.Lgamma(float64(k + 1))
		tails, _ := math.Lgamma(float64(n - k + 1))
		chances[k] = math.Exp(all - heads - tails - float64(n)*math.Ln2)
	}
	return chances
}

func sample(values []float64) *benchmath.Sample {
	return benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds)
}

// Median is that of values in any order; there has to be one.
func Median(values []float64) float64 { return medianOf(slices.Sorted(slices.Values(values))) }

// medianOf is that of sorted values.
func medianOf(sorted []float64) float64 {
	n := len(sorted)
	return sorted[(n-1)/2]/2 + sorted[n/2]/2
}

// MedianInterval is the 95% interval of the median by the binomial distribution of the values below
// it; there is none for fewer than six.
func MedianInterval(values []float64) (low, high float64, ok bool) {
	s := benchmath.AssumeNothing.Summary(sample(values), Confidence)
	return s.Lo, s.Hi, !math.IsInf(s.Lo, 0) && !math.IsInf(s.Hi, 0)
}

// exactSize is the size of samples up to which distributions are enumerated; larger ones are normal
// for all that can be seen.
const exactSize = 50

// ranks caches, for the sizes of two samples, or of pairs and 0, the rank of the bound.
var ranks sync.Map

// mannWhitneyRank is the rank of the interval's lower bound among the sorted differences of two
// samples. It is the largest k with a chance of at most 2.5% that fewer than k differences are
// below zero, if both samples have one distribution. It is 0 if there is none.
func mannWhitneyRank(n, m int) int {
	if k, ok := ranks.Load([2]int{n, m}); ok {
		return k.(int)
	}
	k := 0
	if max(n, m) <= exactSize {
		k = tail(rankSums(n, n+m))
	} else {
		product, all := float64(n)*float64(m), float64(n+m)
		k = int(product/2 - normalQuantile*math.Sqrt(product*(all+1)/12))
	}
	k = max(k, 0)
	ranks.Store([2]int{n, m}, k)
	return k
}

// normalQuantile is how many standard deviations on both sides of the mean hold 95% of a normal
// distribution.
const normalQuantile = 1.959964

// signedRank is as mannWhitneyRank for the means of pairs of n differences.
func signedRank(n int) int {
	if k, ok := ranks.Load([2]int{n, 0}); ok {
		return k.(int)
	}
	k := 0
	if n <= exactSize {
		whole := make([]int, n)
		for i := range whole {
			whole[i] = i + 1
		}
		k = tail(signedSums(whole))
	} else {
		size := float64(n)
		k = int(size*(size+1)/4 - normalQuantile*math.Sqrt(size*(size+1)*(2*size+1)/24))
	}
	ranks.Store([2]int{n, 0}, k)
	return k
}

// tail is how many of the smallest sums have a chance of at most 2.5% together.
func tail(chances []float64) int {
	below := 0.0
	for k, p := range chances {
		if below += p; below > (1-Confidence)/2 {
			return k
		}
	}
	return 0 // it adds up to 1
}

// rankSums is the distribution of the sum of n ranks drawn from 1 to all, without what it is at
// least: [s] is the chance of n(n+1)/2 + s.
func rankSums(n, all int) []float64 {
	most := n * (all - n)
	// ways[c][s]: to draw c ranks with the sum c(c+1)/2 + s.
	ways := make([][]float64, n+1)
	for c := range ways {
		ways[c] = make([]float64, most+1)
	}
	ways[0][0] = 1
	for rank := 1; rank <= all; rank++ {
		for c := min(n, rank); c > 0; c-- {
			for s := most; s >= rank-c; s-- {
				ways[c][s] += ways[c-1][s-(rank-c)]
			}
		}
	}
	total := 0.0
	for _, w := range ways[n] {
		total += w
	}
	for s := range ways[n] {
		ways[n][s] /= total
	}
	return ways[n]
}

// signedSums is the distribution of the sum of those ranks whose sign a fair coin made positive:
// [s] is the chance of s.
func signedSums(ranks []int) []float64 {
	sums := []float64{1}
	for _, r := range ranks {
		next := make([]float64, len(sums)+r)
		for s, p := range sums {
			next[s] += p / 2
			next[s+r] += p / 2
		}
		sums = next
	}
	return sums
}

// signedRankP is the two-sided P of Wilcoxon's signed-rank test. Differences of zero are left out,
// as Wilcoxon did; equal ones have the mean of their ranks, and the distribution is that of these
// very ranks.
func signedRankP(d []float64) float64 {
	d = slices.DeleteFunc(slices.Clone(d), func(v float64) bool { return v == 0 })
	if len(d) == 0 {
		return 1
	}
	slices.SortFunc(d, func(a, b float64) int { return cmp.Compare(math.Abs(a), math.Abs(b)) })
	doubled := make([]int, len(d)) // twice the rank, for the mean of two may be a half
	for i := 0; i < len(d); {
		j := i
		for j < len(d) && math.Abs(d[j]) == math.Abs(d[i]) {
			j++
		}
		for k := i; k < j; k++ {
			doubled[k] = i + 1 + j
		}
		i = j
	}
	positive, total := 0, 0
	for i, r := range doubled {
		total += r
		if d[i] > 0 {
			positive += r
		}
	}
	smaller := min(positive, total-positive)
	if len(d) > exactSize {
		squares := 0.0
		for _, r := range doubled {
			squares += float64(r) * float64(r)
		}
		z := (float64(total)/2 - float64(smaller) - 1) / math.Sqrt(squares/4) // less half a rank for continuity
		return math.Erfc(max(z, 0) / math.Sqrt2)
	}
	p := 0.0
	for _, q := range signedSums(doubled)[:smaller+1] {
		p += q
	}
	return min(1, 2*p)
}

// SmallestP is the smallest P that n and m rounds can have: every round of one run is above every
// round of the other, or all blocks agree.
func SmallestP(n, m int, paired bool) float64 {
	if paired {
		return math.Exp2(float64(1 - n))
	}
	// Two of the (n+m choose n) orders that the values can come in.
	total, _ := math.Lgamma(float64(n + m + 1))
	first, _ := math.Lgamma(float64(n + 1))
	second, _ := math.Lgamma(float64(m + 1))
	return min(1, 2*math.Exp(first+second-total))
}

// RoundsNeeded returns the fewest rounds of each run for which the smallest P, times the
// comparisons in the family, is below alpha.
func RoundsNeeded(family int, alpha float64, paired bool) int {
	n := 2
	for SmallestP(n, n, paired)*float64(max(family, 1)) >= alpha {
		n++
	}
	return n
}

// IntervalRounds are as many rounds of each run as there is an interval for.
func IntervalRounds(paired bool) int {
	if paired {
		return 6
	}
	return 4
}
