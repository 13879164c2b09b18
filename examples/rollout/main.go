// Command rollout is a program in the first phase of docs/save-memory.md: it reads packed values
// and still writes plain ones.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/dict"
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

	registry, err := dict.NewRegistry(goredis.NewStore(rdb), dict.RegistryOptions{})
	if err != nil {
		return err
	}
	group, err := registry.Open(ctx, "shop:user", dict.GroupOptions{})
	if err != nil {
		return err
	}
	defer group.Close()
	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: group})
	if err != nil {
		return err
	}
	hook, err := goredis.NewHook(packer, goredis.HookOptions{Match: []string{"shop:user:*:profile"}, ReadOnly: true})
	if err != nil {
		return err
	}
	if err := hook.Install(rdb); err != nil {
		return err
	}

	// Another program packs already; this one reads what it wrote.
	packed, err := packer.Pack(nil, []byte(`{"name":"Ada Lovelace","note":"as long as this, as long as this, as long as this, as long as this"}`))
	if err != nil {
		return err
	}
	other := redis.NewClient(&redis.Options{Addr: addr})
	defer other.Close()
	if err := other.Set(ctx, "shop:user:ada:profile", packed, 0).Err(); err != nil {
		return err
	}
	profile, err := rdb.Get(ctx, "shop:user:ada:profile").Result()
	if err != nil {
		return err
	}
	if err := rdb.Set(ctx, "shop:user:ada:profile", profile, 0).Err(); err != nil {
		return err
	}
	stored, err := other.Get(ctx, "shop:user:ada:profile").Result()
	fmt.Fprintf(out, "reads packed: %v, writes plain: %v\n", len(profile) > len(packed), stored == profile)
	return err
}
