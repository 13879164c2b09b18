package redishook_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/extra/resilient"
	"github.com/balekv/bale/extra/resilient/redishook"
)

func ExampleNew() {
	guard, err := resilient.New(resilient.Options{
		Name: "redis", Timeout: 5 * time.Second, Failed: resilient.StoreFailed,
		Retry:   resilient.Retry{Tries: 2, Delay: time.Millisecond},
		Breaker: resilient.Breaker{Failures: 0.5, Calls: 10},
	})
	if err != nil {
		panic(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
	defer rdb.Close()
	rdb.AddHook(redishook.New(guard))

	// Nothing listens at that address. Soon nobody asks it any more.
	for range 20 {
		err = rdb.Get(context.Background(), "user:1").Err()
	}
	fmt.Println(errors.Is(err, resilient.ErrRejected), guard.Stats().State)
	// Output: true open
}
