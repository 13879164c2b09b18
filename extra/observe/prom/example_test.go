package prom_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/balekv/bale/extra/observe/prom"
	"github.com/balekv/bale/stats"
)

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

	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	for lines := bufio.NewScanner(page.Body); lines.Scan(); {
		if strings.Contains(lines.Text(), "_bytes_total{") || strings.Contains(lines.Text(), `"hit"`) {
			fmt.Println(lines.Text())
		}
	}
	// Output:
	// bale_keys_total{group="shop:user",op="get",result="hit"} 1
	// bale_operations_total{group="shop:user",op="get",outcome="hit"} 1
	// bale_plain_bytes_total{group="shop:user",op="get"} 400
	// bale_stored_bytes_total{group="shop:user",op="get"} 100
}
