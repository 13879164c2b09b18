//go:build cgo && (linux || darwin) && (amd64 || arm64)

package rivals

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	rueidislib "github.com/redis/rueidis"
	glide "github.com/valkey-io/valkey-glide/go/v2"
	"github.com/valkey-io/valkey-glide/go/v2/config"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/adapter/rueidis"
	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/internal/redisproc"
)

// glideClient is Valkey GLIDE, with or without its compression.
type glideClient struct{ *glide.Client }

func newGlide(tb testing.TB, addr string, compression *config.CompressionConfiguration) glideClient {
	tb.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		tb.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		tb.Fatal(err)
	}
	c := config.NewClientConfiguration().WithAddress(&config.NodeAddress{Host: host, Port: n}).WithRequestTimeout(patience)
	if compression != nil {
		c = c.WithCompressionConfiguration(compression)
	}
	client, err := glide.NewClient(c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(client.Close)
	return glideClient{client}
}

func (c glideClient) get(ctx context.Context, key string) ([]byte, error) {
	got, err := c.Get(ctx, key)
	return []byte(got.Value()), err
}

func (c glideClient) set(ctx context.Context, key string, value []byte) error {
	_, err := c.Set(ctx, key, string(value))
	return err
}

// BenchmarkGlide compares with Valkey GLIDE and its compression: JSON as bytes, nine reads for each
// write. "B-NAME" is what used_memory grows by for a key. A Cache has a dictionary trained on other
// values.
func BenchmarkGlide(b *testing.B) {
	server := redisproc.ForTest(b)
	p := packer(b, codec.JSON[account]{})
	encoded := make([][]byte, values)
	for i := range encoded {
		var err error
		if encoded[i], err = json.Marshal(newAccount(i)); err != nil {
			b.Fatal(err)
		}
	}
	for _, callers := range []int{1, 64, 1000} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			rdb := newGoRedis(b, server.Addr(), callers)
			cache := func(store bale.Store) *bale.Cache[[]byte] {
				c, err := bale.New(store, bale.Options[[]byte]{Codec: codec.Bytes{}, Packer: p})
				if err != nil {
					b.Fatal(err)
				}
				return c
			}
			zstd := newGlide(b, server.Addr(), config.NewCompressionConfiguration())
			lz4 := newGlide(b, server.Addr(), config.NewCompressionConfiguration().WithBackend(config.LZ4))
			plain := newGlide(b, server.Addr(), nil)
			ru := newRueidis(b, server.Addr())
			byGoRedis, byRueidis := cache(goredis.NewStore(rdb)), cache(rueidis.NewStore(ru, rueidis.StoreOptions{}))
			clients := []struct {
				name string
				get  func(ctx context.Context, key string) ([]byte, error)
				set  func(ctx context.Context, key string, value []byte) error
			}{
				{"glide-zstd", zstd.get, zstd.set}, {"glide-lz4", lz4.get, lz4.set}, {"glide-plain", plain.get, plain.set},
				{"bale-rueidis", byRueidis.Get, func(ctx context.Context, key string, value []byte) error { return byRueidis.Set(ctx, key, value) }},
				{"bale-goredis", byGoRedis.Get, func(ctx context.Context, key string, value []byte) error { return byGoRedis.Set(ctx, key, value) }},
				{"goredis-plain", func(ctx context.Context, key string) ([]byte, error) { return rdb.Get(ctx, key).Bytes() },
					func(ctx context.Context, key string, value []byte) error { return rdb.Set(ctx, key, value, 0).Err() }},
				{"rueidis-plain", func(ctx context.Context, key string) ([]byte, error) {
					return ru.Do(ctx, ru.B().Get().Key(key).Build()).AsBytes()
				}, func(ctx context.Context, key string, value []byte) error {
					return ru.Do(ctx, ru.B().Set().Key(key).Value(rueidislib.BinaryString(value)).Build()).Error()
				}},
			}
			keys := operations(b, 10*values)
			var all []contestant
			bytes := map[string]float64{}
			// Memory first, each in an empty keyspace, for its table doubles with the keys; then all
			// keys for the contest.
			for n := range 2 * len(clients) {
				client, inContest := clients[n%len(clients)], n >= len(clients)
				key := func(i int) string { return fmt.Sprintf("%13s:%d", client.name, i) } // as long with each
				if !inContest || n == len(clients) {
					if err := rdb.FlushAll(b.Context()).Err(); err != nil {
						b.Fatal(err)
					}
				}
				before := usedMemory(b, rdb)
				for i := range keys {
					if err := client.set(b.Context(), key(i), encoded[i%values]); err != nil {
						b.Fatal(err)
					}
				}
				if !inContest {
					bytes[client.name] = (usedMemory(b, rdb) - before) / float64(keys)
					continue
				}
				for i := range keys {
					if got, err := client.get(b.Context(), key(i)); err != nil || string(got) != string(encoded[i%values]) {
						b.Fatalf("%s: %d bytes, %v", key(i), len(got), err)
					}
				}
				all = append(all, contestant{client.name, func(ctx context.Context, i int) error {
					k, value := key(i%keys), encoded[i%keys%values]
					if i%10 == 0 {
						return client.set(ctx, k, value)
					}
					got, err := client.get(ctx, k)
					if err == nil && string(got) != string(value) {
						err = errOther
					}
					return err
				}, nil})
			}
			contest(b, callers, 20_000, all...)
			for name, n := range bytes {
				b.ReportMetric(n, "B-"+name)
			}
			if err := rdb.FlushAll(b.Context()).Err(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// usedMemory is the server's, in bytes.
func usedMemory(tb testing.TB, rdb *redis.Client) float64 {
	tb.Helper()
	info, err := rdb.InfoMap(tb.Context(), "memory").Result()
	if err != nil {
		tb.Fatal(err)
	}
	n, err := strconv.ParseFloat(info["Memory"]["used_memory"], 64)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}
