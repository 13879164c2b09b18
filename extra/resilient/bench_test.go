package resilient

import (
	"context"
	"testing"
	"time"
)

// all are all policies but hedging.
func all() Options {
	return Options{
		Name: "test", Timeout: time.Second, Retry: Retry{Tries: 3}, Breaker: Breaker{Failures: 0.5, Slow: time.Second, SlowShare: 0.5},
		Limit: Limit{Healthy: 10 * time.Millisecond},
	}
}

func guard(t testing.TB, o Options) *Guard {
	t.Helper()
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func BenchmarkDo(b *testing.B) {
	none := func(context.Context) (int, error) { return 1, nil }
	asks := func(ctx context.Context) (int, error) { ctx.Deadline(); return 1, nil }
	waits := func(ctx context.Context) (int, error) { ctx.Done(); return 1, nil }
	later := all()
	later.Timeout = 0
	hedged := all()
	hedged.Hedge.Quantile = 0.95
	for _, test := range []struct {
		name string
		o    Options
		kind Kind
		call func(context.Context) (int, error)
	}{
		{"nothing", Options{}, Read, none},
		{"breaker", Options{Breaker: all().Breaker}, Read, none},
		{"limit", Options{Limit: all().Limit}, Read, none},
		{"retry", Options{Retry: all().Retry}, Read, none},
		{"retry+breaker+limit", later, Read, none},
		{"all", all(), Read, asks},
		{"all, which waits for the context", all(), Read, waits},
		{"all and hedge", hedged, Read, asks},
	} {
		b.Run(test.name, func(b *testing.B) {
			g := guard(b, test.o)
			b.ReportAllocs()
			for b.Loop() {
				if v, err := Do(b.Context(), g, test.kind, test.call); v != 1 || err != nil {
					b.Fatal(v, err)
				}
			}
		})
	}
	b.Run("retry+breaker+limit, parallel", func(b *testing.B) {
		g := guard(b, later)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if v, err := Do(b.Context(), g, Read, none); v != 1 || err != nil {
					b.Fatal(v, err)
				}
			}
		})
	})
	b.Run("context.WithTimeout", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			ctx, cancel := context.WithTimeout(b.Context(), time.Second)
			if v, err := waits(ctx); v != 1 || err != nil {
				b.Fatal(v, err)
			}
			cancel()
		}
	})
}
