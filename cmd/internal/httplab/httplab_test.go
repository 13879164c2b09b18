package httplab

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/balekv/bale/cmd/internal/origin"
	"github.com/balekv/bale/cmd/internal/rounds"
)

func TestMain(m *testing.M) {
	origin.Child()
	// fasthttp's cleaner of connections sleeps for 10 s before it sees that there are none; that of
	// its cache of addresses never ends.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*HostClient).connsCleaner"), goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*TCPDialer).tcpAddrsClean"))
}

// options are those of a short run.
func options(t *testing.T, clients ...string) Options {
	t.Helper()
	o := Options{Sizes: []int{1000}, Reuse: []bool{true}, Loops: []string{Open, Closed}, Rate: 100, Concurrency: 4, InFlight: 50, Delay: time.Millisecond,
		Options: rounds.Options{Duration: 100 * time.Millisecond, Rounds: 1}}
	for _, name := range clients {
		var c ClientSetting
		if err := c.UnmarshalText([]byte(name)); err != nil {
			t.Fatal(err)
		}
		o.Clients = append(o.Clients, c)
	}
	return o
}

// TestEveryClient: every client, with each of its policies and on each server, with connections
// used again and not, brings back what was asked for.
func TestEveryClient(t *testing.T) {
	clients := []string{"default", "tuned", "resilient", "httpc", "http2", "fasthttp", "tuned@fasthttp", "fasthttp@fasthttp"}
	for _, policy := range Policies {
		clients = append(clients, "resilient:"+policy, "httpc:"+policy)
	}
	o := options(t, clients...)
	o.Reuse = []bool{true, false}
	r, err := Run(context.Background(), o)
	if r == nil {
		t.Fatal(err)
	}
	cells := r.Cells.([]Cell)
	if want := 4 * len(clients); len(cells) != want {
		t.Fatalf("%d cells, want %d", len(cells), want)
	}
	for _, c := range cells {
		if !c.Verified || c.Errors > 0 || c.Requests == 0 {
			t.Errorf("%+v: %d requests, %d errors: %s %s", c.Identity, c.Requests, c.Errors, c.Error, c.FirstError)
		}
		if least := float64(o.Delay.Microseconds()); c.P50.Median < least || c.P99.Median < c.P50.Median || c.P999.Median < c.P99.Median {
			t.Errorf("%+v: P50 %g, P99 %g, P99.9 %g µs with a delay of %g", c.Identity, c.P50.Median, c.P99.Median, c.P999.Median, least)
		}
		switch n := c.Connections.Median; {
		case n < 1:
			t.Errorf("%+v: %g connections", c.Identity, n)
		case !c.Reuse && n < float64(c.Requests)/float64(o.Rounds): // those of the warm-up come on top
			t.Errorf("%+v: %g connections for %d requests", c.Identity, n, c.Requests)
		case c.Reuse && c.Client == "http2" && n > float64(o.Concurrency):
			t.Errorf("%+v: %g connections", c.Identity, n)
		}
		if c.Goroutines.Median < 1 || c.AllocsPerOp.Median <= 0 || c.Limit == "" || len(c.Latency) == 0 || (len(c.Service) > 0) != (c.Rate > 0) {
			t.Errorf("%+v", c)
		}
	}
}
