package advise

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/internal/redisproc"
)

// modelled are the kinds of keys that package redismem has a model of.
var modelled = []struct {
	name string
	keys int
	add  func(p redis.Pipeliner, rng *rand.Rand, key string)
}{
	{"sessions", 500, func(p redis.Pipeliner, rng *rand.Rand, key string) {
		p.Set(context.Background(), key, sized(rng, 200, 600), time.Hour)
	}},
	{"short", 1000, func(p redis.Pipeliner, rng *rand.Rand, key string) {
		p.Set(context.Background(), key, sized(rng, 1, 100), time.Hour)
	}},
	{"short without TTL", 1000, func(p redis.Pipeliner, rng *rand.Rand, key string) {
		p.Set(context.Background(), key, sized(rng, 1, 100), 0)
	}},
	{"pages", 200, func(p redis.Pipeliner, rng *rand.Rand, key string) {
		p.Set(context.Background(), key, sized(rng, 1000, 9000), time.Hour)
	}},
	{"large", 20, func(p redis.Pipeliner, rng *rand.Rand, key string) {
		p.Set(context.Background(), key, sized(rng, 30_000, 300_000), 0)
	}},
	{"counters", 1000, func(p redis.Pipeliner, rng *rand.Rand, key string) {
		p.IncrBy(context.Background(), key, rng.Int64N(1e6))
	}},
	{"long names", 500, func(p redis.Pipeliner, rng *rand.Rand, key string) {
		p.Set(context.Background(), strings.Repeat("n", 1+rng.IntN(400))+key, sized(rng, 1, 300), time.Hour)
	}},
	{"listpacks", 500, func(p redis.Pipeliner, rng *rand.Rand, key string) { hash(p, rng, key, 10, 60) }},
	{"tables", 200, func(p redis.Pipeliner, rng *rand.Rand, key string) { hash(p, rng, key, 6, 300) }},
	{"tables of 40", 100, func(p redis.Pipeliner, rng *rand.Rand, key string) { hash(p, rng, key, 40, 300) }},
	{"tables of 120", 20, func(p redis.Pipeliner, rng *rand.Rand, key string) { hash(p, rng, key, 120, 300) }},
}

// sized is text of low to high bytes.
func sized(rng *rand.Rand, low, high int) string {
	return strings.Repeat("text ", 1+high/5)[:low+rng.IntN(high-low)]
}

// hash adds an expiring hash of fields of up to longest bytes. Reads remove the table that it had
// before it grew. Of the same names all hashes of a Valkey would have as many overflowing buckets.
func hash(p redis.Pipeliner, rng *rand.Rand, key string, fields, longest int) {
	ctx := context.Background()
	for i := range fields {
		p.HSet(ctx, key, fmt.Sprint("field", i, key), sized(rng, 1, longest))
	}
	for i := range fields {
		p.HExists(ctx, key, fmt.Sprint("field", i, key))
	}
	p.Expire(ctx, key, time.Hour)
}

// disguise makes a client's server one of another version.
type disguise struct{ redis.Hook }

func (disguise) DialHook(next redis.DialHook) redis.DialHook { return next }

func (disguise) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (disguise) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if info, ok := cmd.(*redis.StringCmd); ok && cmd.Name() == "info" {
			info.SetVal(regexp.MustCompile(`(?m)^(valkey_version|mem_allocator|redis_version):.*$`).ReplaceAllString(info.Val(), "other:x"))
		}
		return err
	}
}

// TestModel: the model of each kind of key is within 1% of the server's MEMORY USAGE.
func TestModel(t *testing.T) {
	s := redisproc.ForTest(t)
	for _, k := range modelled {
		t.Run(k.name, func(t *testing.T) {
			a := modelOf(t, s, k.name)
			off := 100 * (float64(a.Model.Modelled)/float64(a.Model.Measured) - 1)
			t.Logf("%d keys: model %d, MEMORY USAGE %d (%+.2f%%)", a.Model.Keys, a.Model.Modelled, a.Model.Measured, off)
			if libc := a.Server.info["mem_allocator"] == "libc"; math.Abs(off) > 1 || a.Model.Scaled != libc {
				t.Errorf("the model is %+.2f%% off MEMORY USAGE for %d keys (%+v)", off, a.Model.Keys, a.Model)
			}
		})
	}
}

// TestModelOfUnknownServer: a server of another version is sized by its MEMORY USAGE.
func TestModelOfUnknownServer(t *testing.T) {
	s := redisproc.ForTest(t)
	for _, k := range modelled {
		t.Run(k.name, func(t *testing.T) {
			known, unknown := modelOf(t, s, k.name), modelOf(t, s, k.name, disguise{})
			if !unknown.Model.Scaled {
				t.Errorf("%+v is not scaled", unknown.Model)
			}
			want, got := float64(known.Groups[0].Now), float64(unknown.Groups[0].Now)
			t.Logf("%.0f bytes known, %.0f unknown (%+.2f%%)", want, got, 100*(got/want-1))
			if math.Abs(got/want-1) > 0.01 {
				t.Errorf("%.0f bytes now, not the %.0f of the known server", got, want)
			}
		})
	}
}

// modelOf fills the server with a kind of key and asks for advice.
func modelOf(t *testing.T, s *redisproc.Server, kind string, hooks ...redis.Hook) *Advice {
	t.Helper()
	c := opened(t, s.URL())
	for _, h := range hooks {
		c.AddHook(h)
	}
	if err := c.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for _, k := range modelled {
		if k.name == kind {
			rng := rand.New(rand.NewPCG(1, 2))
			store(t, c, func(p redis.Pipeliner) {
				for i := range k.keys {
					k.add(p, rng, fmt.Sprintf("some:%x:key:%d", i*i, i))
				}
			})
		}
	}
	o := options()
	o.Sample = 100
	a, err := Redis(t.Context(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
