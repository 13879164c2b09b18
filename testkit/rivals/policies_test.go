package rivals

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/budget"
	"github.com/failsafe-go/failsafe-go/retrypolicy"

	"github.com/balekv/bale/extra/resilient"
)

// endpoint works on calls one after another, also on those whose callers have left.
type endpoint struct {
	mu      sync.Mutex
	rng     *rand.Rand
	free    []time.Time // when each worker is free
	service time.Duration
}

func (e *endpoint) set(workers int, service time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	slices.SortFunc(e.free, time.Time.Compare)
	for len(e.free) < workers {
		e.free = append(e.free, time.Now())
	}
	e.free, e.service = e.free[:workers], service
}

func (e *endpoint) call(ctx context.Context) (int, error) {
	e.mu.Lock()
	first := 0
	for i, at := range e.free {
		if at.Before(e.free[first]) {
			first = i
		}
	}
	start := e.free[first]
	if now := time.Now(); start.Before(now) {
		start = now
	}
	end := start.Add(e.service/3 + time.Duration(float64(e.service)*2/3*e.rng.ExpFloat64()))
	e.free[first] = end
	e.mu.Unlock()
	timer := time.NewTimer(time.Until(end))
	defer timer.Stop()
	select {
	case <-timer.C:
		return 1, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// policy makes a call to an endpoint.
type policy func(ctx context.Context, call func(context.Context) (int, error)) (int, error)

func ours(o resilient.Options) policy {
	g, err := resilient.New(o)
	if err != nil {
		panic(err)
	}
	return func(ctx context.Context, call func(context.Context) (int, error)) (int, error) {
		return resilient.Do(ctx, g, resilient.Idempotent, call)
	}
}

func theirs(policies ...failsafe.Policy[int]) policy {
	executor := failsafe.With(policies...)
	return func(ctx context.Context, call func(context.Context) (int, error)) (int, error) {
		return executor.WithContext(ctx).GetWithExecution(func(e failsafe.Execution[int]) (int, error) { return call(e.Context()) })
	}
}

// TestLimitsOfRivals: how many calls end in time under an adaptive limit, as a share of those under
// the best fixed one, for a minute in which the endpoint is ill, and for half a minute after that.
// The clock is simulated. Bounds hold for this project's limit alone; the log has the others.
func TestLimitsOfRivals(t *testing.T) {
	const workers, healthy = 8, 10 * time.Millisecond
	for name, fault := range map[string]struct {
		rate    int // calls a second
		workers int
		service time.Duration
	}{
		"half of the workers gone":       {500, workers / 2, healthy},
		"three times as slow, with room": {200, workers, 3 * healthy},
		"ten times as slow":              {500, workers, 10 * healthy},
	} {
		run := func(t *testing.T, start func() policy) (ill, after int, waited time.Duration) {
			synctest.Test(t, func(t *testing.T) {
				p := start()
				e := &endpoint{rng: rand.New(rand.NewPCG(1, 2))}
				var good [3]atomic.Int32
				var wait atomic.Int64
				for phase, seconds := range []int{5, 60, 30} {
					if phase == 1 {
						e.set(fault.workers, fault.service)
					} else {
						e.set(workers, healthy)
					}
					for range seconds * fault.rate {
						time.Sleep(time.Second / time.Duration(fault.rate))
						go func() {
							ctx, cancel := context.WithTimeout(t.Context(), 20*healthy)
							defer cancel()
							began := time.Now()
							if _, err := p(ctx, e.call); err == nil {
								good[phase].Add(1)
								if phase == 1 {
									wait.Add(int64(time.Since(began)))
								}
							}
						}()
					}
				}
				time.Sleep(time.Minute)
				ill, after = int(good[1].Load()), int(good[2].Load())
				waited = time.Duration(wait.Load()) / time.Duration(max(1, ill))
			})
			return ill, after, waited
		}
		t.Run(name, func(t *testing.T) {
			bestIll, bestAfter, at := 0, 0, 0
			for _, n := range []int{4, 6, 8, 9, 11, 13, 16, 20, 30} {
				ill, after, _ := run(t, func() policy {
					return ours(resilient.Options{Limit: resilient.Limit{Healthy: healthy, Min: n, Max: n}})
				})
				bestAfter = max(bestAfter, after)
				if ill > bestIll {
					bestIll, at = ill, n
				}
			}
			t.Logf("limit %d: %d while ill, %d after", at, bestIll, bestAfter)
			for _, contender := range []struct {
				name  string
				start func() policy
			}{
				{"resilient", func() policy { return ours(resilient.Options{Limit: resilient.Limit{Healthy: healthy}}) }},
				{"failsafe-go", func() policy { return theirs(adaptivelimiter.NewWithDefaults[int]()) }},
				{"failsafe-go, with a queue", func() policy {
					return theirs(adaptivelimiter.NewBuilder[int]().WithLimits(4, 1000, 20).WithQueueing(1, 1.5).WithMaxWaitTime(4 * healthy).Build())
				}},
			} {
				n, m, waited := run(t, contender.start)
				ill, after := float64(n)/float64(bestIll), float64(m)/float64(bestAfter)
				t.Logf("%s: %.2f while ill, with answers after %v, %.2f after", contender.name, ill, waited.Round(time.Millisecond), after)
				if contender.name == "resilient" && (ill < 0.8 || after < 0.95) {
					t.Error("less than before")
				}
			}
		})
	}
}

// TestBudgetsOfRivals: what retries add to the load of an endpoint that fails a share of its calls
// at once. The budget is a tenth: of the successes here, of the calls in flight in failsafe-go.
func TestBudgetsOfRivals(t *testing.T) {
	const calls, burst = 30_000, 10
	for _, contender := range []struct {
		name  string
		start func() policy
	}{
		{"resilient", func() policy { return ours(resilient.Options{Retry: resilient.Retry{Tries: 3, Burst: burst}}) }},
		{"failsafe-go", func() policy {
			return theirs(retrypolicy.NewBuilder[int]().WithMaxAttempts(3).WithBackoff(20*time.Millisecond, time.Second).WithBudget(budget.NewBuilder().WithMaxRate(0.1).Build()).Build())
		}},
	} {
		for _, percent := range []int{20, 50, 100} {
			synctest.Test(t, func(t *testing.T) {
				p, rng := contender.start(), rand.New(rand.NewPCG(1, 2))
				var mu sync.Mutex
				var tries, good int
				for range calls {
					time.Sleep(2 * time.Millisecond)
					go p(t.Context(), func(context.Context) (int, error) {
						time.Sleep(time.Millisecond)
						mu.Lock()
						defer mu.Unlock()
						if tries++; rng.IntN(100) < percent {
							return 0, errors.New("no answer")
						}
						good++
						return 1, nil
					})
				}
				time.Sleep(time.Minute)
				retries := tries - calls
				t.Logf("%s, %d%% fail: retries are %.0f%% of the calls, %d for %d successes", contender.name, percent, 100*float64(retries)/calls, retries, good)
				if contender.name == "resilient" && retries > burst+good/10 {
					t.Error("more than the budget")
				}
			})
		}
	}
}
