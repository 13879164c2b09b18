package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// simulated is a hook of a worker's client. The server's clock is that of the test, commands are
// counted, and none of a dead worker arrives.
type simulated struct {
	server   *miniredis.Miniredis
	commands *atomic.Int64
	dead     <-chan struct{}
}

var errDead = errors.New("the worker is dead")

func (s simulated) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s simulated) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		select {
		case <-s.dead:
			return errDead
		default:
		}
		s.commands.Add(1)
		s.server.SetTime(time.Now())
		return next(ctx, cmd)
	}
}

func (s simulated) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestThousandShards: a run over a thousand shards in simulated time, one of which takes twenty
// times as long, while a third of the workers die. It takes at most 1.3 times as long as it must,
// and fewer than 500 commands a second.
func TestThousandShards(t *testing.T) {
	const (
		slow    = 20
		workers = 150
		each    = 20 * time.Second // of a shard
	)
	shards := 1000
	if testing.Short() {
		shards = 250
	}
	units := UnitsOf(shards)
	server := miniredis.RunT(t)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := rand.New(rand.NewPCG(1, 2))
		var commands atomic.Int64
		of := func(unit int) []string { // as slots would be dealt out
			from, to := unit*shards/units, ((unit+1)*shards-1)/units
			names := []string{fmt.Sprint(from)}
			if to != from {
				names = append(names, fmt.Sprint(to))
			}
			return names
		}
		takes := func(unit int) time.Duration {
			d := each * time.Duration(shards) / time.Duration(units)
			if slices.Contains(of(unit), strconv.Itoa(shards/2)) {
				d *= slow
			}
			return d
		}
		var work, slowest time.Duration
		for i := range units {
			work += takes(i)
			if slices.Contains(of(i), strconv.Itoa(shards/2)) {
				slowest += takes(i)
			}
		}
		var group sync.WaitGroup
		var lock sync.Mutex
		done := map[int]int{}
		var deaths []time.Duration
		for i := range workers {
			dead := make(chan struct{})
			if i%3 == 0 {
				after := time.Duration(r.Int64N(int64(work / workers)))
				deaths = append(deaths, after)
				time.AfterFunc(after, func() { close(dead) })
			}
			group.Go(func() {
				c := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 2, MaxRetries: -1})
				defer c.Close()
				c.AddHook(simulated{server, &commands, dead})
				run := join(t, c, units)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				err := run.Work(ctx, Worker{
					Shards: func(context.Context) (func(int) []string, error) { return of, nil },
					Do: func(ctx context.Context, u *Unit) error {
						select {
						case <-dead:
							cancel()
							return errDead
						case <-ctx.Done():
							return ctx.Err()
						case <-time.After(takes(u.Number)):
						}
						lock.Lock()
						defer lock.Unlock()
						done[u.Number]++
						return nil
					},
				})
				select {
				case <-dead:
				default:
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		took := time.Since(start)
		// What workers could do at best: all of the work is spread evenly over those who live.
		slices.Sort(deaths)
		best := time.Duration(0)
		for left, alive := work, time.Duration(workers); ; alive-- {
			died := workers - int(alive)
			if died == len(deaths) || best+left/alive <= deaths[died] {
				best += left / alive
				break
			}
			left -= (deaths[died] - best) * alive
			best = deaths[died]
		}
		best = max(best, slowest)
		rate := float64(commands.Load()) / took.Seconds()
		t.Logf("%d units of %d shards, %d workers of which %d die: %v, %v at best (%.2f times); %.0f commands a second",
			units, shards, workers, len(deaths), took.Round(time.Second), best.Round(time.Second), took.Seconds()/best.Seconds(), rate)
		if len(done) != units {
			t.Errorf("%d of %d units are done", len(done), units)
		}
		if took > best*13/10 {
			t.Errorf("it took %v, and %v at best", took, best)
		}
		if rate > 500 {
			t.Errorf("%.0f commands a second", rate)
		}
	})
}
