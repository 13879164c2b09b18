// Command cache stores a typed value, compressed, and reads it back.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
)

// User is a value to be cached.
type User struct {
	Name string   `json:"name"`
	Bio  string   `json:"bio"`
	Tags []string `json:"tags"`
}

func main() {
	addr := os.Getenv("REDIS_ADDR")
	if addr == "" {
		log.Fatal("set REDIS_ADDR to the address of a Redis, for example 127.0.0.1:6379")
	}
	if err := run(context.Background(), addr, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, addr string, out io.Writer) error {
	ada := User{"Ada Lovelace", strings.Repeat("Wrote the first program. ", 20), []string{"mathematics", "engines"}}

	rdb := redis.NewClient(&redis.Options{Addr: addr}) // or a cluster's, or Sentinel's
	defer rdb.Close()
	users, err := bale.New(goredis.NewStore(rdb), bale.Options[User]{TTL: time.Hour, Jitter: 0.1})
	if err != nil {
		return err
	}
	if err := users.Set(ctx, "shop:user:1", ada); err != nil {
		return err
	}
	user, err := users.Get(ctx, "shop:user:1")
	if errors.Is(err, bale.ErrNotFound) {
		// load it from where it comes from
	}

	if err != nil {
		return err
	}
	size, err := rdb.StrLen(ctx, "shop:user:1").Result()
	fmt.Fprintf(out, "%s, in fewer than 200 bytes: %v\n", user.Name, size < 200)
	return err
}
