package lab

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/perf/benchmath"

	"github.com/balekv/bale/cmd/internal/dataset"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/internal/redisproc"
)

// BenchmarkOwnCost compares the lab, with codec raw and without compression, with a bare loop of
// go-redis. Both write and read the same values and as many keys, in turn, with 64 callers.
// "lab/bare" is the median of the lab's operations a second over the loop's before and after it,
// "low" and "high" its 95% interval.
func BenchmarkOwnCost(b *testing.B) {
	const callers, turn = 64, 250 * time.Millisecond
	process := redisproc.ForTest(b)
	server, err := OpenServer(b.Context(), process.URL(), keyspace.Login{})
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	profiles, err := dataset.Make("profiles", 1)
	if err != nil {
		b.Fatal(err)
	}
	none := config(b, "none")
	none.Datasets, none.Codecs, none.Concurrency, none.Rounds, none.Duration = []*dataset.Dataset{profiles}, []string{"raw"}, []int{callers}, 1, turn
	rdb := redis.NewClient(&redis.Options{Addr: process.Addr(), PoolSize: callers, ContextTimeoutEnabled: true, DisableIdentity: true})
	defer rdb.Close()
	// As many keys as the lab writes, because the server's speed depends on its processor caches.
	keys := make([]string, memoryKeys)
	for i := range keys {
		keys[i] = fmt.Sprintf("bare:bench:00000000:%06d", i)
	}
	bare := func() float64 {
		var done atomic.Int64
		var measuring atomic.Bool
		stop := make(chan struct{})
		var all sync.WaitGroup
		for i := range callers {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			own := keys[i*len(keys)/callers:][:len(keys)/callers]
			all.Go(func() {
				ctx := context.Background()
				for turn := 0; ; turn++ {
					key := own[turn%len(own)]
					select {
					case <-stop:
						return
					default:
					}
					value := profiles.Raw[rng.IntN(len(profiles.Raw))]
					if err := rdb.Set(ctx, key, value, 0).Err(); err != nil {
						b.Error(err)
						return
					}
					got, err := rdb.Get(ctx, key).Bytes()
					if err != nil || len(got) != len(value) {
						b.Errorf("%d bytes of %d, %v", len(got), len(value), err)
						return
					}
					if measuring.Load() {
						done.Add(1)
					}
				}
			})
		}
		time.Sleep(turn / 5)
		measuring.Store(true)
		start := time.Now()
		time.Sleep(turn)
		measuring.Store(false)
		elapsed := time.Since(start)
		n := done.Load()
		close(stop)
		all.Wait()
		return float64(n) / elapsed.Seconds()
	}
	var ratios []float64
	for b.Loop() {
		first := bare()
		r, err := Measure(b.Context(), []*Server{server}, none)
		if err != nil || !r.Cells[0].Verified {
			b.Fatal(err, r)
		}
		ratios = append(ratios, 2*r.Cells[0].OpsPerSecond.Median/(first+bare()))
	}
	ratio := benchmath.AssumeNothing.Summary(benchmath.NewSample(ratios, &benchmath.DefaultThresholds), 0.95)
	b.ReportMetric(ratio.Center, "lab/bare")
	b.ReportMetric(ratio.Lo, "low")
	b.ReportMetric(ratio.Hi, "high")
}
