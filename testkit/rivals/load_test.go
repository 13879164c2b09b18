package rivals

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/adapter/rueidis"
	"github.com/balekv/bale/internal/redisproc"
)

// TestOneLoad: 10,000 callers of one missing key make one load, through a real server, however they
// come; and two processes with a lock make one, too.
func TestOneLoad(t *testing.T) {
	addr := redisproc.ForTest(t).Addr()
	const callers = 10_000
	for name, store := range map[string]bale.Store{
		"goredis": goredis.NewStore(newGoRedis(t, addr, 64)),
		"rueidis": rueidis.NewStore(newRueidis(t, addr), rueidis.StoreOptions{}),
	} {
		for _, processes := range []int{1, 2} {
			t.Run(fmt.Sprint(name, " ", processes), func(t *testing.T) {
				var caches []*bale.Cache[account]
				for range processes {
					c, err := bale.New(store, bale.Options[account]{Load: bale.LoadOptions{Lock: time.Minute, Patience: time.Minute}}) // ten thousand callers take the race detector a while
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					caches = append(caches, c)
				}
				for round := range 3 {
					var loads atomic.Int64
					key, want := fmt.Sprint(name, processes, round), newAccount(round)
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					start := make(chan struct{})
					var wg sync.WaitGroup
					for i := range callers {
						wg.Go(func() {
							<-start
							got, err := caches[i%processes].GetOrLoad(ctx, key, func(context.Context) (account, error) {
								loads.Add(1)
								time.Sleep(time.Duration(round) * 20 * time.Millisecond)
								return want, nil
							}, bale.TTL(time.Hour))
							if err == nil && !got.Value.equal(want) {
								err = errOther
							}
							if err != nil {
								t.Error(err)
							}
						})
					}
					close(start)
					wg.Wait()
					cancel()
					if n := loads.Load(); n != 1 {
						t.Errorf("%d loads", n)
					}
				}
			})
		}
	}
}
