package advise

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestIntervalsHoldTheTruth draws samples of a population that is known, and counts how often the
// interval has its saving in it.
func TestIntervalsHoldTheTruth(t *testing.T) {
	t.Parallel()
	const (
		keys  = 5000
		tries = 200
	)
	for _, sampled := range []int{200, 1000} {
		rng := rand.New(rand.NewPCG(3, uint64(sampled)))
		before, after := make([]float64, keys), make([]float64, keys)
		truth := 0.0
		for i := range keys {
			before[i] = 100 + rng.ExpFloat64()*400 // some large, most small
			after[i] = before[i] * (0.2 + 0.6*rng.Float64())
			truth += before[i] - after[i]
		}
		within := 0
		var width float64
		for try := range tries {
			g := &groupSample{memory: &memory{}}
			tr := &trial{}
			for _, i := range rng.Perm(keys)[:sampled] {
				e := &entry{name: fmt.Sprint(i), now: int64(before[i])}
				g.sizes = append(g.sizes, e)
				g.add(piece{entry: e, before: before[i]})
				tr.after = append(tr.after, after[i])
			}
			g.read = float64(sampled) / keys
			i := interval(newEstimator(g, keys, uint64(try)).saving(tr))
			if i.Low > i.Estimate || i.Estimate > i.High {
				t.Fatalf("%+v", i)
			}
			if i.Low <= truth && truth <= i.High {
				within++
			}
			width += (i.High - i.Low) / truth / tries
		}
		t.Logf("%d of %d keys: %d of %d intervals hold the truth, %.1f%% wide", sampled, keys, within, tries, 100*width)
		// 95% of them should; 200 tries have a standard deviation of 3.
		if within < 180 {
			t.Errorf("%d keys: only %d of %d intervals hold the truth", sampled, within, tries)
		}
		if width > 0.5 {
			t.Errorf("%d keys: intervals are %.0f%% wide", sampled, 100*width)
		}
	}
}

// TestNoIntervalWhereAllIsKnown: there is nothing to estimate when every key was looked at.
func TestNoIntervalWhereAllIsKnown(t *testing.T) {
	g := &groupSample{memory: &memory{}}
	tr := &trial{}
	for i := range 100 {
		e := &entry{name: fmt.Sprint(i), now: int64(100 + i)}
		g.sizes = append(g.sizes, e)
		g.add(piece{entry: e, before: float64(e.now)})
		tr.after = append(tr.after, 50)
	}
	g.read = 1
	i := interval(newEstimator(g, 100, 1).saving(tr))
	if i.Low != i.High || i.Estimate < 9949 || i.Estimate > 9951 { // the sum of 100..199 less 50 each
		t.Errorf("%+v", i)
	}
}

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		of   []int
		q    float64
		want int
	}{{[]int{1}, 0.5, 1}, {[]int{1, 2}, 0.5, 1}, {[]int{1, 2, 3}, 0.5, 2}, {[]int{1, 2, 3}, 0.99, 3}, {[]int{1, 2, 3}, 0, 1}, {[]int{1, 2, 3}, 1, 3}} {
		if got := quantile(c.of, c.q); got != c.want {
			t.Errorf("%v of %v: %d, want %d", c.q, c.of, got, c.want)
		}
	}
}
