package resilient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// retryAfter is an error that says when to come back.
type retryAfter time.Duration

func (r retryAfter) Error() string             { return "come back" }
func (r retryAfter) RetryAfter() time.Duration { return time.Duration(r) }

func TestRetries(t *testing.T) {
	permanent := errors.New("permanent")
	for name, test := range map[string]struct {
		kind  Kind
		o     Options
		fails []error // one after another; then it succeeds
		tries int
		err   error
		least time.Duration
	}{
		"none needed":       {kind: Read, o: Options{Retry: Retry{Tries: 3}}, tries: 1},
		"not idempotent":    {kind: Once, o: Options{Retry: Retry{Tries: 3}}, fails: []error{errSick}, tries: 1, err: errSick},
		"idempotent":        {kind: Idempotent, o: Options{Retry: Retry{Tries: 3}}, fails: []error{errSick, errSick}, tries: 3},
		"too many":          {kind: Read, o: Options{Retry: Retry{Tries: 3}}, fails: []error{errSick, errSick, errSick}, tries: 3, err: errSick},
		"off":               {kind: Read, fails: []error{errSick}, tries: 1, err: errSick},
		"no failure":        {kind: Read, o: Options{Retry: Retry{Tries: 3}, Failed: func(err error) bool { return err != permanent }}, fails: []error{permanent}, tries: 1, err: permanent},
		"the endpoint asks": {kind: Read, o: Options{Retry: Retry{Tries: 3}}, fails: []error{fmt.Errorf("429: %w", retryAfter(time.Minute))}, tries: 2, least: time.Minute},
		"for too much":      {kind: Read, o: Options{Timeout: time.Second, Retry: Retry{Tries: 3}}, fails: []error{retryAfter(time.Minute)}, tries: 1, err: retryAfter(time.Minute)},
		"no budget":         {kind: Read, o: Options{Retry: Retry{Tries: 9, Burst: 2}}, fails: slices.Repeat([]error{errSick}, 8), tries: 3, err: errSick},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, start, tries := guard(t, test.o), time.Now(), 0
				_, err := Do(t.Context(), g, test.kind, func(context.Context) (int, error) {
					if tries++; tries <= len(test.fails) {
						return 0, test.fails[tries-1]
					}
					return 1, nil
				})
				if tries != test.tries || !errors.Is(err, test.err) || (err == nil) != (test.err == nil) || time.Since(start) < test.least {
					t.Errorf("%d tries, %v, %v", tries, err, time.Since(start))
				}
			})
		})
	}
}

// TestBackoff: the wait before a retry is at random between zero and a bound that doubles.
func TestBackoff(t *testing.T) {
	r := Retry{Tries: 100, Delay: 10 * time.Millisecond, MaxDelay: 65 * time.Millisecond}
	for try, want := range []time.Duration{1: 10, 20, 40, 65, 65, 80: 65} {
		if want > 0 && backoff(&r, try) != want*time.Millisecond {
			t.Errorf("after %d tries: %v", try, backoff(&r, try))
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var longest, sum time.Duration
		const n = 2000
		g := guard(t, Options{Retry: Retry{Tries: 2, Delay: time.Second, Burst: n}})
		for range n {
			start := time.Now()
			Do(t.Context(), g, Read, sick(0))
			longest = max(longest, time.Since(start))
			sum += time.Since(start)
		}
		if mean := sum / n; longest > time.Second || longest < 950*time.Millisecond || mean < 450*time.Millisecond || mean > 550*time.Millisecond {
			t.Errorf("%v on average, %v at most", mean, longest)
		}
	})
}
