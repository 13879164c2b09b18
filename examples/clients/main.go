// Command clients keeps the same values through all clients: go-redis, rueidis, valkey-go and
// redigo.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	redigolib "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
	rueidislib "github.com/redis/rueidis"
	valkeylib "github.com/valkey-io/valkey-go"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/adapter/redigo"
	"github.com/balekv/bale/adapter/rueidis"
	"github.com/balekv/bale/adapter/valkey"
	"github.com/balekv/bale/extra/near"
)

func main() {
	addr := os.Getenv("REDIS_ADDR")
	if addr == "" {
		log.Fatal("set REDIS_ADDR to the address of a Redis, for example 127.0.0.1:6379")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, addr, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, addr string, out io.Writer) error {
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	defer rdb.Close()

	rueidisClient, err := rueidislib.NewClient(rueidislib.ClientOption{InitAddress: []string{addr}})
	if err != nil {
		return err
	}
	defer rueidisClient.Close()

	valkeyClient, err := valkeylib.NewClient(valkeylib.ClientOption{InitAddress: []string{addr}})
	if err != nil {
		return err
	}
	defer valkeyClient.Close()

	pool := &redigolib.Pool{DialContext: func(ctx context.Context) (redigolib.Conn, error) {
		return redigolib.DialContext(ctx, "tcp", addr, redigolib.DialReadTimeout(2*time.Second), redigolib.DialWriteTimeout(2*time.Second))
	}}
	defer pool.Close()

	for _, store := range []bale.Store{
		goredis.NewStore(rdb),
		rueidis.NewStore(rueidisClient, rueidis.StoreOptions{CacheTTL: time.Minute}), // packed values stay in the process
		valkey.NewStore(valkeyClient, valkey.StoreOptions{}),
		redigo.NewStore(pool),
	} {
		cache, err := bale.New(store, bale.Options[string]{TTL: time.Hour})
		if err != nil {
			return err
		}
		before, err := cache.GetMany(ctx, "motto") // of the client before
		if err != nil {
			return err
		}
		if err := cache.Set(ctx, "motto", fmt.Sprintf("%T", store)); err != nil {
			return err
		}
		fmt.Fprintln(out, before)
	}
	return invalidated(ctx, valkeyClient, rdb, out)
}

// invalidated keeps a decoded value in the process, until another client changes it.
func invalidated(ctx context.Context, client valkeylib.Client, other *redis.Client, out io.Writer) error {
	cache, err := bale.New(valkey.NewStore(client, valkey.StoreOptions{}), bale.Options[string]{})
	if err != nil {
		return err
	}
	changes, err := valkey.NewInvalidations(client, valkey.InvalidationsOptions{Prefixes: []string{"motto"}})
	if err != nil {
		return err
	}
	kept, err := near.New(cache, near.Options[string]{MaxAge: time.Hour, Invalidations: changes})
	if err != nil {
		return err
	}
	defer kept.Close()
	motto, err := kept.Get(ctx, "motto")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, motto)
	if err := other.Set(ctx, "motto", `"changed by others"`, 0).Err(); err != nil {
		return err
	}
	for motto != "changed by others" { // until the server's message arrives
		time.Sleep(time.Millisecond)
		if motto, err = kept.Get(ctx, "motto"); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, motto)
	return nil
}
