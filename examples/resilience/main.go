// Command resilience is the code of docs/resilience.md: a service that goes on when its Redis is
// dead, and when the service behind it is slow or fails.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/extra/resilient"
	"github.com/balekv/bale/extra/resilient/httpc"
)

// User is what the service behind knows.
type User struct{ Name string }

func main() {
	addr := os.Getenv("REDIS_ADDR")
	if addr == "" {
		log.Fatal("set REDIS_ADDR to the address of a Redis, for example 127.0.0.1:6379")
	}
	if err := run(context.Background(), addr, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// newCache returns a cache behind a Guard.
func newCache(addr string) (*bale.Cache[User], *resilient.Guard, error) {
	rdb := redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, // the Guard's deadlines hold for connections, too
		MaxRetries: -1, DialerRetries: 1, // retries are the Guard's
	})
	guard, err := resilient.New(resilient.Options{
		Name: "redis", Timeout: 200 * time.Millisecond, Failed: resilient.StoreFailed,
		Retry:   resilient.Retry{Tries: 2},
		Breaker: resilient.Breaker{Failures: 0.5},
		Limit:   resilient.Limit{Healthy: 5 * time.Millisecond},
		Changed: func(from, to resilient.State) { log.Printf("redis: the breaker is %v, was %v", to, from) },
	})
	if err != nil {
		return nil, nil, err
	}
	users, err := bale.New(resilient.NewStore(goredis.NewStore(rdb), guard), bale.Options[User]{})
	return users, guard, err
}

func run(ctx context.Context, addr string, out io.Writer) error {
	// The service behind: it fails at first.
	var asked atomic.Int32
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		json.NewEncoder(w).Encode(User{"Ada Lovelace"})
	}))
	defer service.Close()

	client, err := httpc.New(httpc.Options{}) // which tries again
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	load := func(ctx context.Context) (User, error) {
		return httpc.JSON[User](ctx, client, "GET", service.URL+"/v1/users/{id}", nil, 1)
	}

	users, _, err := newCache(addr)
	if err != nil {
		return err
	}
	defer users.Close()
	user, err := users.GetOrLoad(ctx, "service:user:1", load)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "with a service that fails at first:", user.Value.Name)

	// The same with a Redis that is gone: nothing listens at this address.
	users, guard, err := newCache("127.0.0.1:1")
	if err != nil {
		return err
	}
	defer users.Close()
	for range 100 {
		if user, err = users.GetOrLoad(ctx, "service:user:1", load); err != nil {
			return err
		}
	}
	s := guard.Stats()
	fmt.Fprintln(out, "with a dead Redis:", user.Value.Name)
	fmt.Fprintln(out, "it was asked fewer than 60 times, and then left alone:", s.Tries < 60 && s.Open >= 50)
	return nil
}
