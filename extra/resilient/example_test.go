package resilient_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/balekv/bale/extra/resilient"
)

func Example() {
	guard, err := resilient.New(resilient.Options{
		Name: "prices", Timeout: time.Minute,
		Retry:   resilient.Retry{Tries: 3, Delay: time.Millisecond},
		Breaker: resilient.Breaker{Failures: 0.5, Calls: 4},
		Limit:   resilient.Limit{Healthy: 10 * time.Millisecond},
		Hedge:   resilient.Hedge{Quantile: 0.95},
		Changed: func(from, to resilient.State) { fmt.Println("the breaker:", from, "to", to) },
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()

	n := 0
	price, err := resilient.Do(ctx, guard, resilient.Read, func(context.Context) (int, error) {
		if n++; n == 1 {
			return 0, errors.New("no answer")
		}
		return 42, nil
	})
	fmt.Println(price, err)

	_, err = resilient.Do(ctx, guard, resilient.Once, func(context.Context) (int, error) { return 0, errors.New("no answer") })
	fmt.Println(err)
	_, err = resilient.Do(ctx, guard, resilient.Idempotent, func(context.Context) (int, error) { return 0, errors.New("no answer") })
	fmt.Println(err)

	_, err = resilient.Do(ctx, guard, resilient.Read, func(context.Context) (int, error) { return 42, nil })
	if e, ok := errors.AsType[*resilient.RejectedError](err); ok && errors.Is(err, resilient.ErrRejected) {
		fmt.Println(e.Endpoint, e.Reason == resilient.Open, e.After > time.Second, e.Class())
	}
	s := guard.Stats()
	fmt.Println("the breaker is open:", s.State == resilient.Opened)
	for outcome, n := range s.Calls() {
		if n > 0 {
			fmt.Println(outcome, n)
		}
	}
	// Output:
	// 42 <nil>
	// no answer
	// the breaker: closed to open
	// no answer
	// prices true true rejected
	// the breaker is open: true
	// tried 4
	// failed 3
	// retried 2
	// rejected_open 2
}

func ExampleNewTransport() {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Idempotency-Key") == "" {
			http.Error(w, "too busy", http.StatusServiceUnavailable)
		}
	}))
	defer service.Close()

	transport, err := resilient.NewTransport(http.DefaultTransport, resilient.Options{Retry: resilient.Retry{Tries: 2, Delay: time.Millisecond}})
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: transport}
	resp, err := client.Get(service.URL)
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	transport.CloseIdleConnections() // as client.CloseIdleConnections does
	fmt.Println(resp.Status)
	fmt.Println(transport.Guard(resp.Request.URL.Host).Stats().Tries, "tries")
	for host, guard := range transport.Guards() {
		fmt.Println(host == resp.Request.URL.Host, guard.Stats().Retries, "retry")
	}
	// Output:
	// 503 Service Unavailable
	// 2 tries
	// true 1 retry
}

func ExampleDoWithFallback() {
	guard, err := resilient.New(resilient.Options{Breaker: resilient.Breaker{Failures: 0.5, Calls: 2}})
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		price, err := resilient.DoWithFallback(context.Background(), guard, resilient.Read,
			func(context.Context) (int, error) { return 0, errors.New("no answer") },
			func(_ context.Context, err error) (int, error) {
				fmt.Println("yesterday's price, because:", err)
				return 41, nil
			})
		if price != 41 || err != nil {
			log.Fatal(price, err)
		}
		if guard.Stats().State == resilient.Opened {
			break
		}
	}
	fmt.Println(guard.Stats().Fallbacks, "fallbacks")
	// Output:
	// yesterday's price, because: no answer
	// yesterday's price, because: no answer
	// 2 fallbacks
}
