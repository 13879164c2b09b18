package keyspace

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/internal/redisproc"
)

// figure is a figure of INFO.
func figure(t *testing.T, c redis.UniversalClient, name string) int64 {
	t.Helper()
	text, err := c.Info(t.Context(), "everything").Result()
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(Info(text)[name], 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestPagesBySize: the server is 20 MiB below its limit. A walk over large elements evicts nothing
// from it, and its replies take less than 16 MiB of the server's memory.
func TestPagesBySize(t *testing.T) {
	t.Parallel()
	const (
		allowed = 16 << 20
		room    = 20 << 20
	)
	many := func(size, n int, add func(c redis.UniversalClient, i int, value string) error) func(*testing.T, redis.UniversalClient) int {
		return func(t *testing.T, c redis.UniversalClient) int {
			for i := range n {
				if err := add(c, i, fmt.Sprintf("%08d%s", i, strings.Repeat("x", size-8))); err != nil {
					t.Fatal(err)
				}
			}
			return n
		}
	}
	ctx := t.Context()
	for name, fill := range map[string]func(*testing.T, redis.UniversalClient) int{
		"hashes": many(100<<10, 640, func(c redis.UniversalClient, i int, v string) error {
			return c.HSet(ctx, fmt.Sprint("h:", i%16), fmt.Sprint("f", i), v).Err()
		}),
		"a hash of large fields": many(4<<20, 12, func(c redis.UniversalClient, i int, v string) error { return c.HSet(ctx, "h", i, v).Err() }),
		"a hash of long field names": many(512<<10, 120, func(c redis.UniversalClient, i int, v string) error {
			return c.HSet(ctx, "h", v, i).Err()
		}),
		"a hash of many small fields and some large ones": func(t *testing.T, c redis.UniversalClient) int {
			many(10, 9000, func(c redis.UniversalClient, i int, v string) error { return c.HSet(ctx, "h", i, v).Err() })(t, c)
			return 9000 + many(6<<20, 10, func(c redis.UniversalClient, i int, v string) error {
				return c.HSet(ctx, "h", fmt.Sprint("large", i), v).Err()
			})(t, c)
		},
		"a list of many small elements and some large ones": func(t *testing.T, c redis.UniversalClient) int {
			many(10, 2000, func(c redis.UniversalClient, i int, v string) error { return c.RPush(ctx, "l", v).Err() })(t, c)
			return 2000 + many(1<<20, 60, func(c redis.UniversalClient, i int, v string) error { return c.RPush(ctx, "l", v).Err() })(t, c)
		},
		"a stream of many small entries and some large ones": func(t *testing.T, c redis.UniversalClient) int {
			add := func(c redis.UniversalClient, i int, v string) error {
				return c.XAdd(ctx, &redis.XAddArgs{Stream: "x", Values: []any{"f", v}}).Err()
			}
			many(10, 2000, add)(t, c)
			return 2000 + many(1<<20, 60, add)(t, c)
		},
		"strings":  many(2<<20, 30, func(c redis.UniversalClient, i int, v string) error { return c.Set(ctx, fmt.Sprint(i), v, 0).Err() }),
		"a string": many(60<<20, 1, func(c redis.UniversalClient, i int, v string) error { return c.Set(ctx, "k", v, 0).Err() }),
		"a list":   many(512<<10, 120, func(c redis.UniversalClient, i int, v string) error { return c.RPush(ctx, "l", v).Err() }),
		"a set":    many(512<<10, 120, func(c redis.UniversalClient, i int, v string) error { return c.SAdd(ctx, "s", v).Err() }),
		"a sorted set": many(512<<10, 120, func(c redis.UniversalClient, i int, v string) error {
			return c.ZAdd(ctx, "z", redis.Z{Score: float64(i), Member: v}).Err()
		}),
		"a stream": many(512<<10, 120, func(c redis.UniversalClient, i int, v string) error {
			return c.XAdd(ctx, &redis.XAddArgs{Stream: "x", Values: []any{"f", v}}).Err()
		}),
	} {
		t.Run(name, func(t *testing.T) {
			c := opened(t, redisproc.ForTest(t, "--maxmemory-policy", "allkeys-lru").URL())
			want := fill(t, c)
			before := figure(t, c, "used_memory_peak")
			if err := c.ConfigSet(ctx, "maxmemory", fmt.Sprint(before+room)).Err(); err != nil {
				t.Fatal(err)
			}
			check := func(walk string, got int) {
				t.Helper()
				if grown := figure(t, c, "used_memory_peak") - before; grown > allowed {
					t.Errorf("%s: the server grew by %d KiB", walk, grown>>10)
				}
				if n := figure(t, c, "evicted_keys"); n > 0 {
					t.Errorf("%s: %d keys were evicted", walk, n)
				}
				if got != want {
					t.Errorf("%s: %d of %d values", walk, got, want)
				}
			}
			if strings.Contains(name, "hash") || strings.Contains(name, "string") {
				read := 0
				if err := ReadValues(ctx, c, ValuesOptions{Size: 64 << 20, Values: func(_ context.Context, _ redis.UniversalClient, values []Value) (Next, error) {
					read += len(values)
					return More, nil
				}}); err != nil {
					t.Fatal(err)
				}
				check("values", read)
			}
			r, err := FindReferences(ctx, []redis.UniversalClient{c}, ReferenceOptions{Proof: true})
			if err != nil {
				t.Fatal(err)
			}
			found := int(r.Foreign)
			if !strings.Contains(name, "string") && !strings.Contains(name, "a list") && name != "a set" {
				found /= 2 // names of fields, and scores
			}
			check("references", found)
		})
	}
}

// TestLongName: the name of a field or key that a server gives is not sent back if it is long. The
// server would hold it twice in a request, and evict keys for it.
func TestLongName(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	long := strings.Repeat("n", 30<<20)
	for name, test := range map[string]struct {
		fill func(c redis.UniversalClient) error
		want Looked
	}{
		"field": {func(c redis.UniversalClient) error { return c.HSet(ctx, "h", long, "v", "short", "v").Err() },
			Looked{Keys: 1, LargeFields: 1}},
		"key": {func(c redis.UniversalClient) error { return c.MSet(ctx, long, "v", "short", "v").Err() },
			Looked{Keys: 2, TooLarge: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			c := opened(t, redisproc.ForTest(t, "--maxmemory-policy", "allkeys-lru").URL())
			if err := test.fill(c); err != nil {
				t.Fatal(err)
			}
			if err := c.ConfigSet(ctx, "maxmemory", fmt.Sprint(figure(t, c, "used_memory_peak")+20<<20)).Err(); err != nil {
				t.Fatal(err)
			}
			read, looked := 0, Looked{}
			if err := ReadValues(ctx, c, ValuesOptions{
				Size: 1000,
				Values: func(_ context.Context, _ redis.UniversalClient, values []Value) (Next, error) {
					read += len(values)
					return More, nil
				},
				Page: func(_ []Place, l Looked) error {
					looked = l
					return nil
				},
			}); err != nil {
				t.Fatal(err)
			}
			if looked.Scanned = 0; looked != test.want || read != 1 {
				t.Errorf("%d values read, %+v", read, looked)
			}
			if n := figure(t, c, "evicted_keys"); n > 0 {
				t.Errorf("%d keys were evicted", n)
			}
		})
	}
}

// TestHashOfLongKey: the name of a hash is not sent for each of its fields, also where the server
// does not tell their sizes.
func TestHashOfLongKey(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := redisproc.ForTest(t)
	c := opened(t, server.URL())
	key, want := strings.Repeat("k", 1<<20), 3000
	fields := map[string]any{}
	for i := range want {
		fields[fmt.Sprint("f", i)] = i
	}
	if err := c.HSet(ctx, key, fields).Err(); err != nil {
		t.Fatal(err)
	}
	before := int64(0)
	for _, memory := range []string{"+memory", "-memory"} {
		if err := c.Do(ctx, "ACL", "SETUSER", "default", memory).Err(); err != nil {
			t.Fatal(err)
		}
		read := map[string]bool{}
		values := func(_ context.Context, _ redis.UniversalClient, values []Value) (Next, error) {
			for _, v := range values {
				read[v.Field] = true
			}
			return More, nil
		}
		if err := ReadValues(ctx, c, ValuesOptions{Size: 1000, Values: values}); err != nil {
			t.Fatal(err)
		}
		n := calls(t, server, "hstrlen") + calls(t, server, "hscan") - before
		if before += n; len(read) != want || n > 100 {
			t.Errorf("%s: %d of %d fields, %d commands", memory, len(read), want, n)
		}
	}
}

// TestElementsOfLongKey: the name of a set, sorted set, list or stream is not sent for each few of
// its elements.
func TestElementsOfLongKey(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := opened(t, redisproc.ForTest(t).URL())
	key := strings.Repeat("k", 1<<20)
	for kind, add := range map[string]func(p redis.Pipeliner, v string){
		"set":    func(p redis.Pipeliner, v string) { p.SAdd(ctx, "short", v) },
		"zset":   func(p redis.Pipeliner, v string) { p.ZAdd(ctx, "short", redis.Z{Member: v}) },
		"list":   func(p redis.Pipeliner, v string) { p.RPush(ctx, "short", v) },
		"stream": func(p redis.Pipeliner, v string) { p.Do(ctx, "XADD", "short", "*", "f", v) },
	} {
		for name, n := range map[string]int{"small": UsageOf + 1, "large": 40 * UsageOf} {
			must(t, c.FlushAll(ctx).Err())
			_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
				for i := range n {
					add(p, fmt.Sprintf("%0200d", i))
				}
				return nil
			})
			must(t, err, c.Rename(ctx, "short", key).Err())
			before := figure(t, c, "total_net_input_bytes")
			r, err := FindReferences(ctx, []redis.UniversalClient{c}, ReferenceOptions{})
			if err != nil || r.Foreign < int64(n) {
				t.Errorf("%+v, %v", r, err)
			}
			if sent := figure(t, c, "total_net_input_bytes") - before; sent > int64(30*len(key)+16*200*n) {
				t.Errorf("%s %s: %d names", name, kind, sent/int64(len(key)))
			}
		}
	}
}

// odd is a server that has one value too many for HMGET.
type odd struct{}

func (odd) DialHook(next redis.DialHook) redis.DialHook { return next }

func (odd) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook { return next }

func (odd) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if s, ok := cmd.(*redis.SliceCmd); ok {
			s.SetVal(append(s.Val(), "odd"))
		}
		return err
	}
}

// TestOddHash: values that no field was asked for are no values.
func TestOddHash(t *testing.T) {
	c := opened(t, redisproc.ForTest(t).URL())
	c.AddHook(odd{})
	if err := c.HSet(t.Context(), "h", "a", "1", "b", "2").Err(); err != nil {
		t.Fatal(err)
	}
	var r HashReader
	if err := r.Read(t.Context(), c, "h", Extent{Length: 1000, Usage: 64 << 20}, 100, func(pairs []string, _ int) error {
		if got := strings.Join(pairs, " "); got != "a 1 b 2" && got != "b 2 a 1" {
			t.Errorf("%q", got)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
