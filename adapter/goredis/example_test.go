package goredis_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
)

// Commands on the bytes of a packed value are refused before anything is sent.
func ExampleCommandError() {
	packer, err := bale.NewPacker(bale.PackerOptions{})
	if err != nil {
		panic(err)
	}
	defer packer.Close()
	hook, err := goredis.NewHook(packer, goredis.HookOptions{Match: []string{"page:*"}})
	if err != nil {
		panic(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer rdb.Close()
	if err := hook.Install(rdb); err != nil {
		panic(err)
	}

	err = rdb.Append(context.Background(), "page:home", "<p>more</p>").Err()
	if refused, ok := errors.AsType[*goredis.CommandError](err); ok {
		fmt.Println(refused.Command, refused.Key, errors.Is(err, goredis.ErrCommand))
	}
	// Output:
	// append page:home true
}

// traced is a client of a program that wraps it.
type traced struct{ redis.UniversalClient }

// Install reports a client that would hand out packed bytes, and what to do.
func ExampleInstallError() {
	packer, err := bale.NewPacker(bale.PackerOptions{})
	if err != nil {
		panic(err)
	}
	defer packer.Close()
	hook, err := goredis.NewHook(packer, goredis.HookOptions{Match: []string{"page:*"}})
	if err != nil {
		panic(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer rdb.Close()

	err = hook.Install(traced{rdb})
	if e, ok := errors.AsType[*goredis.InstallError](err); ok {
		fmt.Println(e.Client, e.Installed, errors.Is(err, goredis.ErrInstall))
		fmt.Println(e.Reason)
	}
	// Output:
	// goredis_test.traced false true
	// Install does not know this type; give it the Client, ClusterClient or Ring underneath
}
