// Command httpc is the second part of docs/resilience.md: an HTTP client with metrics and traces,
// and a service that knows how long its caller waits.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/balekv/bale/extra/observe/otelbale"
	"github.com/balekv/bale/extra/observe/prom"
	"github.com/balekv/bale/extra/resilient"
	"github.com/balekv/bale/extra/resilient/httpc"
)

// Order is what the service knows.
type Order struct {
	ID    int    `json:"id"`
	State string `json:"state"`
}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// newClient returns the client of a service.
func newClient(collector *prom.Collector) (*http.Client, error) {
	client, err := httpc.New(httpc.Options{
		Guard: &resilient.Options{
			Timeout: 10 * time.Second,
			Retry:   resilient.Retry{Tries: 3},
			Breaker: resilient.Breaker{Failures: 0.5},
			Limit:   resilient.Limit{Healthy: 50 * time.Millisecond},
			Hedge:   resilient.Hedge{Quantile: 0.95},
		},
		Concurrency:    256,
		DeadlineHeader: "X-Request-Timeout-Ms",
		Log:            slog.Default(),
		Wrap: func(next http.RoundTripper) http.RoundTripper {
			return collector.HTTPClient(otelbale.HTTPClient(next))
		},
	})
	return client, err
}

func run(ctx context.Context, out io.Writer) error {
	service := httptest.NewServer(handler())
	defer service.Close()
	collector, err := prom.NewCollector(prom.Options{})
	if err != nil {
		return err
	}
	client, err := newClient(collector)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	collector.Guards("orders", client.Transport.(*httpc.Transport).Guards)

	base := service.URL
	order, err := httpc.JSON[Order](ctx, client, "GET", base+"/v1/orders/{id}", nil, 7)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "order", order.ID, "is", order.State)

	_, err = httpc.JSON[Order](ctx, client, "GET", base+"/v1/orders/{id}", nil, 8)
	if e, ok := errors.AsType[*httpc.StatusError](err); ok && e.Status == http.StatusNotFound {
		fmt.Fprintln(out, "there is no order 8")
	} else {
		return fmt.Errorf("order 8: %w", err)
	}

	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	families, err := registry.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		if f.GetName() != "bale_http_client_request_duration_seconds" {
			continue
		}
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetValue())
			}
			fmt.Fprintln(out, "requests with", strings.Join(labels, " "), "-", m.Histogram.GetSampleCount())
		}
	}
	return nil
}

// handler is the service. The context of a request ends when its caller stops waiting.
func handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		if _, ok := r.Context().Deadline(); !ok {
			http.Error(w, "there is no deadline", http.StatusBadRequest)
			return
		}
		if r.PathValue("id") != "7" {
			http.NotFound(w, r)
			return
		}
		json.NewEncoder(w).Encode(Order{7, "sent"})
	})
	return httpc.Deadline("X-Request-Timeout-Ms", mux)
}
