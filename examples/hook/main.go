// Command hook packs the values of a program that knows nothing of it.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
)

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
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()

	packer, err := bale.NewPacker(bale.PackerOptions{})
	if err != nil {
		return err
	}
	hook, err := goredis.NewHook(packer, goredis.HookOptions{Match: []string{"page:*"}})
	if err != nil {
		return err
	}
	if err := hook.Install(rdb); err != nil {
		return err
	}

	// From here on it is the program as it was.
	page := strings.Repeat("<p>Hello, hello, hello.</p>", 100)
	if err := rdb.Set(ctx, "page:home", page, 0).Err(); err != nil {
		return err
	}
	got, err := rdb.Get(ctx, "page:home").Result()
	fmt.Fprintln(out, "the same page:", got == page)
	return err
}
