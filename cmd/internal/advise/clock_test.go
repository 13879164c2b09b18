package advise

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestColdStart: the time that the first value of a round takes longer, for caches that others have
// filled, is no time of the value.
func TestColdStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, calls := newLap(3), 0
		for range 2 {
			cold := true
			err := l.run(func(int) error {
				calls++
				if cold {
					time.Sleep(time.Second)
				}
				cold = false
				time.Sleep(time.Millisecond)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if calls != 8 || l[0] != time.Millisecond || l[1] != time.Millisecond || l[2] != time.Millisecond {
			t.Errorf("%v in %d calls", l, calls)
		}
	})
}

// TestCostOfFew: of few values, or of equal ones, the mean is not above P99.
func TestCostOfFew(t *testing.T) {
	y := &yardstick{best: yardstickTime / 3}
	for n := 1; n <= 300; n++ {
		l, w := newLap(n), &stopwatch{}
		for i := range l {
			l[i] = 101 * time.Nanosecond
			w.times = append(w.times, 1.1)
		}
		if c := w.cost(l, y); c.Mean <= 0 || c.Mean > c.P99 || c.P50 > c.P99 {
			t.Errorf("%d values: %+v", n, c)
		}
	}
}
