package rivals

import (
	"context"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/hedgepolicy"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/failsafe-go/failsafe-go/timeout"
	"github.com/sony/gobreaker/v2"

	"github.com/balekv/bale/extra/resilient"
)

// BenchmarkResilience is what policies cost a call that succeeds at once: the same ones, as far as
// a library has them.
func BenchmarkResilience(b *testing.B) {
	answer := func(context.Context) (int, error) { return 1, nil }
	guard := func(o resilient.Options) func(context.Context) (int, error) {
		g, err := resilient.New(o)
		if err != nil {
			b.Fatal(err)
		}
		return func(ctx context.Context) (int, error) { return resilient.Do(ctx, g, resilient.Read, answer) }
	}
	safe := func(policies ...failsafe.Policy[int]) func(context.Context) (int, error) {
		executor := failsafe.With(policies...)
		return func(ctx context.Context) (int, error) {
			return executor.WithContext(ctx).GetWithExecution(func(e failsafe.Execution[int]) (int, error) { return answer(e.Context()) })
		}
	}
	breaker := func() failsafe.Policy[int] {
		return circuitbreaker.NewBuilder[int]().WithFailureRateThreshold(0.5, 20, 10*time.Second).Build()
	}
	retry := func() failsafe.Policy[int] { return retrypolicy.NewWithDefaults[int]() }
	limiter := func() failsafe.Policy[int] { return adaptivelimiter.NewWithDefaults[int]() }
	gobreak := gobreaker.NewCircuitBreaker[int](gobreaker.Settings{})

	guarded := resilient.Options{Retry: resilient.Retry{Tries: 3}, Breaker: resilient.Breaker{Failures: 0.5}, Limit: resilient.Limit{Healthy: 10 * time.Millisecond}}
	timed, hedged := guarded, guarded
	timed.Timeout = time.Second
	hedged.Hedge.Quantile = 0.95
	for _, test := range []struct {
		name string
		call func(context.Context) (int, error)
	}{
		{"breaker/resilient", guard(resilient.Options{Breaker: guarded.Breaker})},
		{"breaker/failsafe-go", safe(breaker())},
		{"breaker/gobreaker", func(ctx context.Context) (int, error) {
			return gobreak.Execute(func() (int, error) { return answer(ctx) })
		}},
		{"retry+breaker+limit/resilient", guard(guarded)},
		{"retry+breaker+limit/failsafe-go", safe(retry(), breaker(), limiter())},
		{"timeout+retry+breaker+limit/resilient", guard(timed)},
		{"timeout+retry+breaker+limit/failsafe-go", safe(timeout.New[int](time.Second), retry(), breaker(), limiter())},
		{"timeout/context.WithTimeout", func(ctx context.Context) (int, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return answer(ctx)
		}},
		{"retry+breaker+limit+hedge/resilient", guard(hedged)},
		{"retry+breaker+limit+hedge/failsafe-go", safe(retry(), breaker(), limiter(), hedgepolicy.NewWithDelay[int](time.Second))},
	} {
		b.Run(test.name, func(b *testing.B) {
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if v, err := test.call(ctx); v != 1 || err != nil {
					b.Fatal(v, err)
				}
			}
		})
	}
}
