package migrate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
)

// larger are options for values of up to 64 MiB.
func larger(t *testing.T) pass {
	t.Helper()
	var engine compress.Engine
	zstd, err := engine.New(compress.Setting{Algorithm: frame.Zstd, Level: "fastest"}, nil)
	must(t, err)
	o := options(t)
	o.MaxSize = 64 << 20
	o.Packer, err = bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: zstd}, MaxSize: o.MaxSize})
	must(t, err)
	t.Cleanup(func() { o.Packer.Close(); zstd.Close() })
	return o
}

// setLarge sets a key in pieces.
func setLarge(t *testing.T, c redis.UniversalClient, key string, n int, piece func() string) {
	t.Helper()
	for size := 0; size < n; {
		at, err := c.Append(t.Context(), key, piece()).Result()
		must(t, err)
		size = int(at)
	}
}

// memory is a figure of INFO.
func memory(t *testing.T, c redis.UniversalClient, name string) (n int) {
	t.Helper()
	text, err := c.Info(t.Context(), "everything").Result()
	must(t, err)
	n, err = strconv.Atoi(keyspace.Info(text)[name])
	must(t, err)
	return n
}

// TestLargeValues: the server is 20 MiB below its limit. Large values are packed in place, and no
// key is evicted for it. One that stays large stays plain.
func TestLargeValues(t *testing.T) {
	t.Parallel()
	const size = 30 << 20
	c := open(t, redisproc.ForTest(t, "--maxmemory-policy", "allkeys-lru").Addr())
	ctx, random := t.Context(), rand.NewChaCha8([32]byte{})
	setLarge(t, c, "text", size, func() string { return strings.Repeat(text(1), 4000) })
	setLarge(t, c, "noise", size, func() string {
		b := make([]byte, 1<<20)
		_, _ = random.Read(b)
		return strings.Repeat(text(1), 1000) + string(b)
	})
	must(t, c.HSet(ctx, "hash", "text", strings.Repeat(text(1), 20_000)).Err(), c.Expire(ctx, "text", time.Hour).Err())
	before := snapshot(t, c)
	must(t, c.ConfigSet(ctx, "maxmemory", fmt.Sprint(memory(t, c, "used_memory")+20<<20)).Err())
	r := run(t, c, larger(t))
	if n := memory(t, c, "evicted_keys"); n > 0 || r.Strings.After.Values != 1 || r.Fields.After.Values != 1 || r.Left[TooLarge].Values != 1 {
		t.Errorf("%d keys evicted; %+v", n, r)
	}
	must(t, c.ConfigSet(ctx, "maxmemory", "0").Err())
	back := larger(t)
	back.Revert = true
	r = run(t, c, back)
	if after := snapshot(t, c); after["text//false"] != before["text//false"] || after["hash/text/true"] != before["hash/text/true"] {
		t.Errorf("another value, or another expiry: %+v", r)
	}
}

// TestLargeRevert: the server ends a connection that sends a large value. That value stays packed,
// and the run goes on.
func TestLargeRevert(t *testing.T) {
	t.Parallel()
	c := open(t, redisproc.ForTest(t).Addr())
	ctx, o := t.Context(), larger(t)
	large, err := o.Packer.Pack(nil, make([]byte, 24<<20))
	must(t, err)
	for i := range 20 {
		small, err := o.Packer.Pack(nil, []byte(strings.Repeat(text(i), 10)))
		must(t, err, c.Set(ctx, fmt.Sprint("small:", i), small, 0).Err())
	}
	must(t, c.Set(ctx, "large", large, 0).Err())
	if err := c.ConfigSet(ctx, "maxmemory-clients", "12mb").Err(); err != nil {
		t.Skip("before Redis 7.0")
	}
	o.Revert = true
	r := run(t, c, o)
	if r.Strings.After.Values != 20 || r.Left[Refused].Values != 1 || !strings.Contains(fmt.Sprint(r.Problems), "maxmemory-clients") {
		t.Errorf("%+v", r)
	}
	must(t, c.ConfigSet(ctx, "maxmemory-clients", "0").Err())
	if r := run(t, c, o); r.Strings.After.Values != 1 {
		t.Errorf("%+v", r)
	}
}

// requests keeps the bytes of the largest pipeline.
type requests struct{ most int }

func (*requests) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*requests) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (r *requests) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		size := 0
		for _, cmd := range cmds {
			size += len(fmt.Sprint(cmd.Args()...))
		}
		r.most = max(r.most, size)
		return next(ctx, cmds)
	}
}

// TestHashOfLongKey: the name of a hash goes with the script for each field. So it counts as new
// values do, for what is sent at once and for the bandwidth, also when a field is read again.
func TestHashOfLongKey(t *testing.T) {
	t.Parallel()
	const fields, size = 20, 1 << 20
	c, sent := open(t, redisproc.ForTest(t).Addr()), &requests{}
	c.AddHook(sent)
	key := strings.Repeat("k", size)
	for i := range fields {
		must(t, c.HSet(t.Context(), key, fmt.Sprint("f", i), strings.Repeat(text(i), 4)).Err())
	}
	if r := run(t, c, options(t)); r.Fields.After.Values != fields || sent.most > swapBytes+2*size {
		t.Errorf("%d MiB at once, %+v", sent.most>>20, r)
	}
	paced := func(do func(ctx context.Context, o pass) error) {
		t.Helper()
		o := options(t)
		o.Revert, o.Pacer = true, &keyspace.Pacer{Pace: keyspace.Pace{Bandwidth: size}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2) // less than the names take
		defer cancel()
		if err := do(ctx, o); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
	paced(func(ctx context.Context, o pass) error { return walk(ctx, c, o, newCounts()) })
	paced(func(ctx context.Context, o pass) error {
		m := &migration{pass: o, ctx: ctx}
		_, _, err := m.reread(t.Context(), c, []keyspace.Value{{Key: key, Field: "f0", InHash: true}})
		return err
	})
}
