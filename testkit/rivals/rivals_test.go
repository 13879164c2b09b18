package rivals

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redis/cache/v9"
	"github.com/redis/go-redis/v9"
	rueidislib "github.com/redis/rueidis"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/adapter/rueidis"
	"github.com/balekv/bale/batch"
	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/extra/formats/fastjson"
	"github.com/balekv/bale/extra/formats/msgpack"
	"github.com/balekv/bale/internal/redisproc"
	"github.com/balekv/bale/stats"
)

// contestant does operation i, and checks what comes of it.
type contestant struct {
	name string
	op   func(ctx context.Context, i int) error
	end  func() (done int, err error) // after each turn, within its time: how many operations it comes to; nil for all
}

// contest lets contestants take turns of n operations by this number of callers, in a rotating
// order. It reports each contestant's operations a second and allocations an operation. It also
// reports the others' speed over the first's ("x-NAME", the median over all rounds).
func contest(b *testing.B, callers, n int, all ...contestant) {
	b.Helper()
	n = operations(b, n)
	turn := func(c contestant) (perSecond, allocs float64) {
		var next atomic.Int64
		var wg sync.WaitGroup
		before := mallocs()
		start := time.Now()
		for range callers {
			wg.Go(func() {
				for i := next.Add(1); i <= int64(n); i = next.Add(1) {
					if err := c.op(context.Background(), int(i-1)); err != nil {
						b.Errorf("%s: %v", c.name, err)
						return
					}
				}
			})
		}
		wg.Wait()
		done := n
		if c.end != nil {
			var err error
			if done, err = c.end(); err != nil {
				b.Errorf("%s: %v", c.name, err)
			}
		}
		return float64(done) / time.Since(start).Seconds(), float64(mallocs()-before) / float64(n)
	}
	for _, c := range all {
		turn(c) // warms up connections and pools
	}
	speeds, ratios, allocs := make([][]float64, len(all)), make([][]float64, len(all)), make([][]float64, len(all))
	round := 0
	for b.Loop() {
		var speed [8]float64
		for k := range all {
			i := (round + k) % len(all)
			var a float64
			speed[i], a = turn(all[i])
			speeds[i], allocs[i] = append(speeds[i], speed[i]), append(allocs[i], a)
		}
		for i := range all {
			ratios[i] = append(ratios[i], speed[i]/speed[0])
		}
		round++
	}
	for i, c := range all {
		b.ReportMetric(median(speeds[i]), c.name+"/s")
		b.ReportMetric(median(allocs[i]), c.name+"-allocs")
		if i > 0 {
			low, high := interval(ratios[i])
			b.ReportMetric(median(ratios[i]), "x-"+c.name)
			b.ReportMetric(low, "low-"+c.name)
			b.ReportMetric(high, "high-"+c.name)
		}
	}
	b.ReportMetric(0, "ns/op") // of a round, which says nothing
}

// interval is that of the median with 95% confidence, by the sign test.
func interval(values []float64) (low, high float64) {
	sorted, n := slices.Sorted(slices.Values(values)), len(values)
	k := max(0, int(float64(n)/2-0.98*math.Sqrt(float64(n))))
	return sorted[k], sorted[n-1-k]
}

// operations are n, or as many as BALE_BENCH_OPS says, which is for fewer.
func operations(b *testing.B, n int) int {
	b.Helper()
	if v := os.Getenv("BALE_BENCH_OPS"); v != "" {
		if _, err := fmt.Sscan(v, &n); err != nil {
			b.Fatal(err)
		}
	}
	return n
}

func median(v []float64) float64 {
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

var errOther = errors.New("another value came back")

// accounts are the values, and their keys below a prefix.
func accounts(prefix string) (all []account, keys []string) {
	for i := range values {
		all, keys = append(all, newAccount(i)), append(keys, fmt.Sprint(prefix, ":", i))
	}
	return all, keys
}

func newCache(tb testing.TB, store bale.Store, c bale.Codec[account], p *bale.Packer) *bale.Cache[account] {
	tb.Helper()
	made, err := bale.New(store, bale.Options[account]{Codec: c, Packer: p})
	if err != nil {
		tb.Fatal(err)
	}
	return made
}

// patience is how long a client waits for an answer: these are measured, not limited, and a busy
// machine may stand still for longer than a client's default.
const patience = time.Minute

func newGoRedis(tb testing.TB, addr string, callers int) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: callers, PoolTimeout: patience,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience})
	tb.Cleanup(func() { rdb.Close() })
	return rdb
}

func newRueidis(tb testing.TB, addr string) rueidislib.Client {
	client, err := rueidislib.NewClient(rueidislib.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true,
		Dialer: net.Dialer{Timeout: patience}, ConnWriteTimeout: patience})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(client.Close)
	return client
}

// BenchmarkPacked compares a Cache with zstd and a dictionary with one of plain values, at nine
// reads for each write.
func BenchmarkPacked(b *testing.B) {
	server := redisproc.ForTest(b)
	packers := map[string]*bale.Packer{"zstd": packer(b, codec.JSON[account]{})}
	none, err := compress.Setting{}.New(nil)
	if err == nil {
		packers["plain"], err = bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: none}})
	}
	if err != nil {
		b.Fatal(err)
	}
	for _, callers := range []int{64, 1000} {
		for name, store := range map[string]bale.Store{
			"rueidis": rueidis.NewStore(newRueidis(b, server.Addr()), rueidis.StoreOptions{}),
			"goredis": goredis.NewStore(newGoRedis(b, server.Addr(), callers)),
		} {
			b.Run(fmt.Sprintf("%s/%d", name, callers), func(b *testing.B) {
				var all []contestant
				for _, kind := range []string{"plain", "zstd"} {
					cache := newCache(b, store, codec.JSON[account]{}, packers[kind])
					accounts, keys := accounts(kind)
					for i, a := range accounts {
						if err := cache.Set(b.Context(), keys[i], a); err != nil {
							b.Fatal(err)
						}
					}
					all = append(all, contestant{kind, func(ctx context.Context, i int) error {
						k := i % values
						if i%10 == 0 {
							return cache.Set(ctx, keys[k], accounts[k])
						}
						got, err := cache.Get(ctx, keys[k])
						if err != nil {
							return err
						}
						return check(got, accounts[k])
					}, nil})
				}
				contest(b, callers, 20_000, all...)
			})
		}
	}
}

// BenchmarkRead compares two ways of reading. The first is a Cache, with zstd and a dictionary. The
// second is hand-written: the same client reads plain JSON, and encoding/json decodes
// it. The Cache's codec is encoding/json, too.
func BenchmarkRead(b *testing.B) {
	server := redisproc.ForTest(b)
	p := packer(b, codec.JSON[account]{})
	all, keys := accounts("bale")
	_, plain := accounts("plain")
	for _, callers := range []int{64, 1000} {
		rdb, ru := newGoRedis(b, server.Addr(), callers), newRueidis(b, server.Addr())
		for _, client := range []struct {
			name  string
			store bale.Store
			get   func(ctx context.Context, key string) ([]byte, error)
		}{
			{"rueidis", rueidis.NewStore(ru, rueidis.StoreOptions{}), func(ctx context.Context, key string) ([]byte, error) {
				return ru.Do(ctx, ru.B().Get().Key(key).Build()).AsBytes()
			}},
			{"goredis", goredis.NewStore(rdb), func(ctx context.Context, key string) ([]byte, error) { return rdb.Get(ctx, key).Bytes() }},
		} {
			b.Run(fmt.Sprintf("%s/%d", client.name, callers), func(b *testing.B) {
				made := newCache(b, client.store, codec.JSON[account]{}, p)
				for i, a := range all {
					encoded, err := json.Marshal(a)
					if err == nil {
						err = errors.Join(client.store.Set(b.Context(), plain[i], encoded, bale.Expiry{}), made.Set(b.Context(), keys[i], a))
					}
					if err != nil {
						b.Fatal(err)
					}
				}
				contest(b, callers, 20_000,
					contestant{"hand", func(ctx context.Context, i int) error {
						i %= values
						stored, err := client.get(ctx, plain[i])
						if err != nil {
							return err
						}
						var a account
						if err := json.Unmarshal(stored, &a); err != nil {
							return err
						}
						return check(a, all[i])
					}, nil},
					contestant{"bale", func(ctx context.Context, i int) error {
						i %= values
						a, err := made.Get(ctx, keys[i])
						if err != nil {
							return err
						}
						return check(a, all[i])
					}, nil})
				b.ReportMetric(stored(b, rdb, plain)/stored(b, rdb, keys), "x-smaller")
			})
		}
	}
}

func check(got, want account) error {
	if !got.equal(want) {
		return errOther
	}
	return nil
}

// stored is how many bytes the values of keys take, as they are stored.
func stored(tb testing.TB, rdb *redis.Client, keys []string) float64 {
	tb.Helper()
	sum := int64(0)
	for _, key := range keys {
		n, err := rdb.StrLen(tb.Context(), key).Result()
		if err != nil || n == 0 {
			tb.Fatal(n, err)
		}
		sum += n
	}
	return float64(sum)
}

// BenchmarkGoRedisCache compares with go-redis/cache as it comes: msgpack with s2, no local cache.
// Each operation is a Set and a Get.
func BenchmarkGoRedisCache(b *testing.B) {
	server := redisproc.ForTest(b)
	all, theirs := accounts("cache")
	_, ours := accounts("bale")
	_, oursJSON := accounts("json")
	packed, packedJSON := packer(b, msgpack.Codec[account]{}), packer(b, fastjson.Codec[account]{})
	for _, callers := range []int{64, 1000} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			rdb := newGoRedis(b, server.Addr(), callers)
			rival := cache.New(&cache.Options{Redis: rdb})
			by := func(keys []string, c *bale.Cache[account]) func(ctx context.Context, i int) error {
				return func(ctx context.Context, i int) error {
					i %= values
					if err := c.Set(ctx, keys[i], all[i], bale.TTL(time.Hour)); err != nil {
						return err
					}
					a, err := c.Get(ctx, keys[i])
					if err != nil {
						return err
					}
					return check(a, all[i])
				}
			}
			contest(b, callers, 10_000,
				contestant{"cache", func(ctx context.Context, i int) error {
					i %= values
					if err := rival.Set(&cache.Item{Ctx: ctx, Key: theirs[i], Value: &all[i], TTL: time.Hour}); err != nil {
						return err
					}
					var a account
					if err := rival.Get(ctx, theirs[i], &a); err != nil {
						return err
					}
					return check(a, all[i])
				}, nil},
				contestant{"bale-msgpack", by(ours, newCache(b, goredis.NewStore(rdb), msgpack.Codec[account]{}, packed)), nil},
				contestant{"bale-fastjson", by(oursJSON, newCache(b, goredis.NewStore(rdb), fastjson.Codec[account]{}, packedJSON)), nil})
			b.ReportMetric(stored(b, rdb, theirs)/stored(b, rdb, ours), "x-smaller-msgpack")
			b.ReportMetric(stored(b, rdb, theirs)/stored(b, rdb, oursJSON), "x-smaller-json")
		})
	}
}

// BenchmarkBatch compares writing bytes through a batch with single SETs, both by go-redis and
// 1,000 callers. The time of the batch is until all its values are in Redis; a value that is
// overwritten in the buffer is not sent, and does not count.
func BenchmarkBatch(b *testing.B) {
	server := redisproc.ForTest(b)
	const callers, n, keyCount, maxBytes = 1000, 100_000, 10_000, 4 << 20
	rdb := newGoRedis(b, server.Addr(), callers)
	keys, encoded := make([]string, keyCount), make([][]byte, values)
	for i := range keys {
		keys[i] = fmt.Sprint("batch:", i)
	}
	for i := range encoded {
		var err error
		if encoded[i], err = json.Marshal(newAccount(i)); err != nil {
			b.Fatal(err)
		}
	}
	store := goredis.NewStore(rdb)
	counters := stats.NewCounters(stats.CountersOptions{})
	batched, err := batch.New(store, batch.Options{MaxBytes: maxBytes, Recorder: counters})
	if err != nil {
		b.Fatal(err)
	}
	defer batched.Close()
	sent := 0 // so far
	for name, ttl := range map[string]time.Duration{"ttl": time.Hour, "no ttl": 0} {
		b.Run(name, func(b *testing.B) {
			contest(b, callers, n,
				contestant{"single", func(ctx context.Context, i int) error {
					return rdb.Set(ctx, keys[i%keyCount], encoded[i%values], ttl).Err()
				}, nil},
				contestant{"batch", func(ctx context.Context, i int) error {
					return batched.Set(ctx, keys[i%keyCount], encoded[i%values], bale.TTL(ttl))
				}, func() (int, error) {
					before := sent
					err := batched.Flush(context.Background())
					sent = int(counters.Snapshot().Ops[stats.Flush].Keys)
					return sent - before, err
				}})
		})
	}
	for i, key := range keys[:min(keyCount, operations(b, n))] {
		if got, err := store.Get(b.Context(), key); err != nil || string(got) != string(encoded[i%values]) {
			b.Fatalf("%s: %d bytes, %v", key, len(got), err)
		}
	}
}
