// Command dictionary packs profiles with a trained dictionary that lives in Redis beside them.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/codec"
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
	group, err := registry.Open(ctx, "shop:user", dict.GroupOptions{Auto: &dict.Auto{}})
	if err != nil {
		return err
	}
	defer group.Close()
	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: group})
	if err != nil {
		return err
	}
	defer packer.Close()
	users, err := bale.New(goredis.NewStore(rdb), bale.Options[[]byte]{Packer: packer, Codec: codec.Bytes{}})
	if err != nil {
		return err
	}

	// Auto would train one by itself after a thousand values; here it is done by hand.
	samples, err := os.ReadFile("profiles.ndjson")
	if err != nil {
		return err
	}
	profiles := bytes.Split(bytes.TrimSpace(samples), []byte("\n"))
	training, err := dict.Train(ctx, profiles, dict.TrainOptions{Exclude: []string{"email"}})
	if err != nil {
		return err
	}
	if err := registry.Publish(ctx, "shop:user", training.Dictionary, training.Info()); err != nil {
		return err
	}
	if err := registry.Activate(ctx, "shop:user", training.Dictionary.ID(), true); err != nil { // nobody reads yet: no grace period
		return err
	}
	for group.Status().Writing != training.Dictionary.ID() { // the group hears of it at once
		time.Sleep(time.Millisecond)
	}

	if err := users.Set(ctx, "shop:user:1", profiles[0]); err != nil {
		return err
	}
	got, err := users.Get(ctx, "shop:user:1")
	if err != nil {
		return err
	}
	stored, err := rdb.StrLen(ctx, "shop:user:1").Result()
	fmt.Fprintf(out, "the same profile: %v, in less than half of its bytes: %v\n", bytes.Equal(got, profiles[0]), int(stored) < len(got)/2)
	return err
}
