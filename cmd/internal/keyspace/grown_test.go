package keyspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/internal/redisproc"
)

// beforeGet is a hook that runs before values of strings are read.
type beforeGet func()

func (beforeGet) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (b beforeGet) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		b.see(cmd)
		return next(ctx, cmd)
	}
}

func (b beforeGet) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		b.see(cmds[0])
		return next(ctx, cmds)
	}
}

func (b beforeGet) see(cmd redis.Cmder) {
	if name := cmd.Name(); name == "get" || name == "getrange" {
		b()
	}
}

// TestGrownMeanwhile: a string that a program makes longer after its length was asked for is read
// again by its new length, within the limit.
func TestGrownMeanwhile(t *testing.T) {
	ctx := t.Context()
	const limit, allowed = 1 << 20, 4 << 20
	for name, c := range map[string]struct {
		grow func(writer redis.UniversalClient, n int) error // before the n-th reading
		want int                                             // length, -1 if it is too large
	}{
		"a little":   {func(w redis.UniversalClient, n int) error { return w.Set(ctx, "k", "longer than before", 0).Err() }, 18},
		"to nothing": {func(w redis.UniversalClient, n int) error { return w.Set(ctx, "k", "", 0).Err() }, 0},
		"by 24 MiB":  {func(w redis.UniversalClient, n int) error { return w.SetRange(ctx, "k", 24<<20, "x").Err() }, -1},
		"each time": {func(w redis.UniversalClient, n int) error {
			return w.Set(ctx, "k", strings.Repeat("x", 100*n), 0).Err()
		}, -1},
	} {
		for reading, read := range map[string]func(redis.UniversalClient) (int, error){
			"values": func(c redis.UniversalClient) (n int, err error) {
				n = -2
				err = ReadValues(ctx, c, ValuesOptions{Size: limit, Values: func(_ context.Context, _ redis.UniversalClient, values []Value) (Next, error) {
					n = len(values[0].Stored)
					return More, nil
				}, Page: func(_ []Place, l Looked) error {
					if l.TooLarge > 0 {
						n = -1
					}
					return nil
				}})
				return n, err
			},
			"sample": func(c redis.UniversalClient) (int, error) {
				s, err := Sample(ctx, c, SampleOptions{Values: 10, Bytes: limit, Size: limit, Unpack: func(_ context.Context, b []byte) ([]byte, error) { return b, nil }})
				if err != nil || s.TooLarge > 0 {
					return -1, err
				}
				return len(bytes.Join(s.Values, nil)), nil // an empty one is left out
			},
			"one": func(c redis.UniversalClient) (int, error) {
				b, err := Fetch(ctx, c, "k", "", false, limit)
				if errors.Is(err, ErrTooLarge) {
					return -1, nil
				}
				return len(b), err
			},
		} {
			t.Run(fmt.Sprint(name, "/", reading), func(t *testing.T) {
				s := redisproc.ForTest(t)
				writer, client := opened(t, s.URL()), opened(t, s.URL())
				must(t, writer.Set(ctx, "k", "short", 0).Err())
				n := 0
				client.(*redis.Client).AddHook(beforeGet(func() {
					n++
					must(t, c.grow(writer, n))
				}))
				before := figure(t, writer, "total_net_output_bytes")
				if got, err := read(client); err != nil || got != c.want {
					t.Errorf("%d bytes, %v; want %d", got, err, c.want)
				}
				if sent := figure(t, writer, "total_net_output_bytes") - before; sent > allowed {
					t.Errorf("the server sent %d bytes", sent)
				}
			})
		}
	}
}
