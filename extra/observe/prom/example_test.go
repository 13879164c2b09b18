package prom_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/extra/observe/prom"
	"github.com/balekv/bale/extra/resilient"
	"github.com/balekv/bale/extra/resilient/httpc"
	"github.com/balekv/bale/stats"
)

// scrape prints the metrics that contain one of some texts.
func scrape(registry *prometheus.Registry, texts ...string) {
	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	for lines := bufio.NewScanner(page.Body); lines.Scan(); {
		matches := func(text string) bool { return strings.Contains(lines.Text(), text) }
		if !strings.HasPrefix(lines.Text(), "#") && slices.ContainsFunc(texts, matches) {
			fmt.Println(lines.Text())
		}
	}
}

func Example() {
	collector, err := prom.NewCollector(prom.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)

	// A Cache does this for each operation, where bale.Options.Recorder is the group.
	users := collector.Group("shop:user")
	users.Record(context.Background(), stats.Event{Op: stats.Get, Keys: 1, Hits: 1, Plain: 400, Stored: 100})

	scrape(registry, "_bytes_total{", `"hit"`)
	// Output:
	// bale_keys_total{group="shop:user",op="get",result="hit"} 1
	// bale_operations_total{group="shop:user",op="get",outcome="hit"} 1
	// bale_plain_bytes_total{group="shop:user",op="get"} 400
	// bale_stored_bytes_total{group="shop:user",op="get"} 100
}

// The pool of a go-redis client, and the dictionaries of a group.
func ExampleCollector_Pool() {
	collector, err := prom.NewCollector(prom.Options{})
	if err != nil {
		panic(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)

	collector.Pool("cache", func() prom.PoolStats {
		// s := rdb.PoolStats()
		return prom.PoolStats{Waits: 7, Waited: 30 * time.Millisecond, Open: 10, Idle: 8}
	})
	collector.Dictionary("shop:user", func() dict.Status { // group.Status, of a *dict.Group
		return dict.Status{Synced: time.Unix(1893456000, 0), Restored: 1}
	})
	scrape(registry, "bale_pool", "bale_dictionary")
	// Output:
	// bale_dictionary_restored_total{group="shop:user"} 1
	// bale_dictionary_synced_timestamp_seconds{group="shop:user"} 1.893456e+09
	// bale_pool_connections{pool="cache",state="busy"} 2
	// bale_pool_connections{pool="cache",state="idle"} 8
	// bale_pool_timeouts_total{pool="cache"} 0
	// bale_pool_wait_seconds_total{pool="cache"} 0.03
	// bale_pool_waits_total{pool="cache"} 7
}

// The calls to an endpoint, and the state of its breaker.
func ExampleCollector_Guard() {
	collector, err := prom.NewCollector(prom.Options{})
	if err != nil {
		panic(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)

	guard, err := resilient.New(resilient.Options{Breaker: resilient.Breaker{Failures: 0.5, Calls: 2}})
	if err != nil {
		panic(err)
	}
	collector.Guard("prices", guard.Stats)
	for range 3 {
		resilient.Do(context.Background(), guard, resilient.Read, func(context.Context) (int, error) { return 0, errors.New("no answer") })
	}

	scrape(registry, `"tried"`, `"rejected_open"`, "state")
	// Output:
	// bale_guard_calls_total{guard="prices",outcome="rejected_open"} 1
	// bale_guard_calls_total{guard="prices",outcome="tried"} 2
	// bale_guard_state{guard="prices"} 2
}

// The requests of an HTTP client, by route.
func ExampleCollector_HTTPClient() {
	collector, err := prom.NewCollector(prom.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	service := httptest.NewServer(http.NotFoundHandler())
	defer service.Close()
	client, err := httpc.New(httpc.Options{Wrap: collector.HTTPClient})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.CloseIdleConnections()

	_, err = httpc.JSON[int](context.Background(), client, "GET", service.URL+"/v1/orders/{id}", nil, 7)
	fmt.Println(strings.HasSuffix(err.Error(), "status 404 Not Found"))
	scrape(registry, "bale_http_client_request_duration_seconds_count")
	// Output:
	// true
	// bale_http_client_request_duration_seconds_count{code="404",method="GET",route="/v1/orders/{id}"} 1
}
