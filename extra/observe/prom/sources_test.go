package prom_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/extra/observe/prom"
	"github.com/balekv/bale/extra/resilient"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
)

// sourceMetrics are the metrics of dictionaries and pools.
var sourceMetrics = []string{"bale_dictionary_published_timestamp_seconds", "bale_dictionary_training_ratio",
	"bale_dictionary_plain_bytes_total", "bale_dictionary_stored_bytes_total", "bale_dictionary_synced_timestamp_seconds", "bale_dictionary_restored_total",
	"bale_dictionary_collected_values", "bale_dictionary_wanted_values",
	"bale_pool_waits_total", "bale_pool_wait_seconds_total", "bale_pool_timeouts_total", "bale_pool_connections"}

func status(published time.Time, ratio float64) func() dict.Status {
	return func() dict.Status {
		return dict.Status{Writing: 7, PlainBytes: 700, StoredBytes: 200, Synced: time.Unix(2000, 5e8), Restored: 3, State: &dict.State{Current: 7, Dictionaries: []dict.Entry{
			{ID: 9, Published: time.Unix(1999, 0), Info: dict.Info{Ratio: 99}}, // published, and not yet written with
			{ID: 7, Published: published, Info: dict.Info{Ratio: ratio}},
		}}}
	}
}

func TestDictionary(t *testing.T) {
	const synced = `
# HELP bale_dictionary_restored_total Dictionaries that the registry did not hold, and that this program put back.
# TYPE bale_dictionary_restored_total counter
bale_dictionary_restored_total{group="g"} 3
# HELP bale_dictionary_synced_timestamp_seconds When the registry of dictionaries last answered.
# TYPE bale_dictionary_synced_timestamp_seconds gauge
bale_dictionary_synced_timestamp_seconds{group="g"} 2000.5
`
	const counted = synced + `
# HELP bale_dictionary_plain_bytes_total Bytes of the values written with the dictionary, serialized.
# TYPE bale_dictionary_plain_bytes_total counter
bale_dictionary_plain_bytes_total{group="g"} 700
# HELP bale_dictionary_stored_bytes_total Bytes of the same values packed, as at training: without the record of when a loaded value expires.
# TYPE bale_dictionary_stored_bytes_total counter
bale_dictionary_stored_bytes_total{group="g"} 200
`
	const whole = counted + `
# HELP bale_dictionary_published_timestamp_seconds When the dictionary that the group writes with was published.
# TYPE bale_dictionary_published_timestamp_seconds gauge
bale_dictionary_published_timestamp_seconds{group="g"} 1000
# HELP bale_dictionary_training_ratio Ratio that the dictionary came to at training, on values it had not seen.
# TYPE bale_dictionary_training_ratio gauge
bale_dictionary_training_ratio{group="g"} 3.5
`
	c := newCollector(t, prom.Options{MaxGroups: 1})
	for _, test := range []struct {
		name   string
		status func() dict.Status
		want   string
	}{
		{"whole", status(time.Unix(1000, 0), 3.5), whole},
		{"nothing known of the dictionary", status(time.Time{}, 0), counted},
		{"no registry yet", func() dict.Status { return dict.Status{} }, ""},
		{"no dictionary", func() dict.Status {
			return dict.Status{Synced: time.Unix(2000, 5e8), Restored: 3, State: &dict.State{}}
		}, synced},
		{"Auto at work", func() dict.Status { return dict.Status{Collected: 63, Wanted: 1000} }, `
# HELP bale_dictionary_collected_values Values that Auto has seen, to judge whether a dictionary is needed and then for its sample.
# TYPE bale_dictionary_collected_values gauge
bale_dictionary_collected_values{group="g"} 63
# HELP bale_dictionary_wanted_values Values that Auto wants to see.
# TYPE bale_dictionary_wanted_values gauge
bale_dictionary_wanted_values{group="g"} 1000
`},
		{"of another group", func() dict.Status {
			return dict.Status{Writing: 8, Synced: time.Unix(2000, 5e8), Restored: 3, State: &dict.State{Current: 8}}
		}, synced},
		{"again", status(time.Unix(1000, 0), 3.5), whole},
		{"closed", nil, ""},
	} {
		c.Dictionary("g", test.status)
		c.Dictionary("beyond the most", status(time.Unix(1, 0), 1))
		if err := testutil.CollectAndCompare(c, strings.NewReader(test.want), sourceMetrics...); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// nearStats has another number in each field.
var nearStats = prom.NearStats{
	Hits: 9, Misses: 4, Bytes: 1 << 20, Entries: 3, Evictions: 2, TooLarge: 1, Invalidations: 7, Resets: 5,
}

func TestNear(t *testing.T) {
	c := newCollector(t, prom.Options{MaxGroups: 1})
	const want = `
# HELP bale_near_bytes Memory that the values in the near cache take.
# TYPE bale_near_bytes gauge
bale_near_bytes{group="g"} 1.048576e+06
# HELP bale_near_entries Values in the near cache.
# TYPE bale_near_entries gauge
bale_near_entries{group="g"} 3
# HELP bale_near_evictions_total Values that the near cache dropped to make room.
# TYPE bale_near_evictions_total counter
bale_near_evictions_total{group="g"} 2
# HELP bale_near_invalidations_total Keys that were said to have changed, in the near cache or not.
# TYPE bale_near_invalidations_total counter
bale_near_invalidations_total{group="g"} 7
# HELP bale_near_reads_total Keys that the near cache was asked for by result: hit or miss. Misses that wait for one read all count.
# TYPE bale_near_reads_total counter
bale_near_reads_total{group="g",result="hit"} 9
bale_near_reads_total{group="g",result="miss"} 4
# HELP bale_near_resets_total Times that the near cache dropped all, because any key may have changed.
# TYPE bale_near_resets_total counter
bale_near_resets_total{group="g"} 5
# HELP bale_near_too_large_total Values that the near cache did not keep for their size.
# TYPE bale_near_too_large_total counter
bale_near_too_large_total{group="g"} 1
`
	metrics := regexp.MustCompile(`bale_near_\w+`).FindAllString(want, -1)
	for _, test := range []struct {
		name string
		near func() prom.NearStats
		want string
	}{
		{"at work", func() prom.NearStats { return nearStats }, want},
		{"closed", nil, ""},
		{"again", func() prom.NearStats { return nearStats }, want},
	} {
		c.Near("g", test.near)
		c.Near("beyond the most", func() prom.NearStats { return prom.NearStats{Hits: 1} })
		if err := testutil.CollectAndCompare(c, strings.NewReader(test.want), metrics...); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	problems, err := testutil.CollectAndLint(c, metrics...)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

func TestPool(t *testing.T) {
	c := newCollector(t, prom.Options{})
	c.Pool("a", func() prom.PoolStats { return prom.PoolStats{} })
	c.Pool("a", func() prom.PoolStats {
		return prom.PoolStats{Waits: 3, Waited: 1500 * time.Millisecond, Timeouts: 2, Open: 10, Idle: 4}
	})
	c.Pool("b\xff", func() prom.PoolStats { return prom.PoolStats{Open: 1, Idle: 2} }) // as two readings of a pool at work may be
	c.Pool("gone", func() prom.PoolStats { return prom.PoolStats{} })
	c.Pool("gone", nil)
	const want = `
# HELP bale_pool_connections Connections of the pool, idle or busy.
# TYPE bale_pool_connections gauge
bale_pool_connections{pool="a",state="busy"} 6
bale_pool_connections{pool="a",state="idle"} 4
bale_pool_connections{pool="b�",state="busy"} 0
bale_pool_connections{pool="b�",state="idle"} 2
# HELP bale_pool_timeouts_total Callers that gave up waiting for a connection of the pool.
# TYPE bale_pool_timeouts_total counter
bale_pool_timeouts_total{pool="a"} 2
bale_pool_timeouts_total{pool="b�"} 0
# HELP bale_pool_wait_seconds_total Time that callers waited for a connection of the pool, together.
# TYPE bale_pool_wait_seconds_total counter
bale_pool_wait_seconds_total{pool="a"} 1.5
bale_pool_wait_seconds_total{pool="b�"} 0
# HELP bale_pool_waits_total Callers that had to wait for a connection of the pool.
# TYPE bale_pool_waits_total counter
bale_pool_waits_total{pool="a"} 3
bale_pool_waits_total{pool="b�"} 0
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), sourceMetrics...); err != nil {
		t.Error(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	problems, err := testutil.GatherAndLint(registry, sourceMetrics...)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// TestSourcesOfRealOnes: a dictionary that is published while its group runs, and a go-redis whose
// callers wait for its one connection.
func TestSourcesOfRealOnes(t *testing.T) {
	ctx := t.Context()
	rdb := redis.NewClient(&redis.Options{Addr: redisproc.ForTest(t).Addr(), PoolSize: 1})
	defer rdb.Close()
	c := newCollector(t, prom.Options{})
	c.Pool("shop", poolOf(rdb))

	other := redis.NewClient(&redis.Options{Addr: rdb.Options().Addr}) // the only connection of rdb is for those who wait for it
	defer other.Close()
	registry, err := dict.NewRegistry(goredis.NewStore(other), dict.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	group, err := registry.Open(ctx, "shop:user", dict.GroupOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	c.Dictionary("shop:user", group.Status)
	if n := testutil.CollectAndCount(c, "bale_dictionary_published_timestamp_seconds"); n != 0 {
		t.Errorf("%d dictionaries before there is one", n)
	}
	d, err := frame.NewDictionary([]byte(strings.Repeat("what values have in common", 100)))
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now().Add(-time.Second)
	if err := registry.Publish(ctx, "shop:user", d, dict.Info{Ratio: 3.25}); err != nil {
		t.Fatal(err)
	}
	if err := registry.Activate(ctx, "shop:user", d.ID(), true); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return group.Status().Writing == d.ID() })
	gauges := values(t, c)
	if at := gauges["bale_dictionary_published_timestamp_seconds{group=shop:user}"]; at < float64(before.Unix()) || at > float64(time.Now().Unix()+1) {
		t.Errorf("published at %v", at)
	}
	if ratio := gauges["bale_dictionary_training_ratio{group=shop:user}"]; ratio != 3.25 {
		t.Errorf("ratio %v", ratio)
	}

	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for rdb.PoolStats().WaitCount == 0 && ctx.Err() == nil {
				if err := rdb.Ping(ctx).Err(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
	const waits, waited = "bale_pool_waits_total{pool=shop}", "bale_pool_wait_seconds_total{pool=shop}"
	got := values(t, c)
	if got[waits] != float64(rdb.PoolStats().WaitCount) || got[waits] == 0 || got[waited] <= 0 {
		t.Errorf("%v waits of %v s", got[waits], got[waited])
	}
	if n := got["bale_pool_connections{pool=shop}{state=busy}"] + got["bale_pool_connections{pool=shop}{state=idle}"]; n != 1 {
		t.Errorf("%v connections", n)
	}
}

func poolOf(rdb *redis.Client) func() prom.PoolStats {
	return func() prom.PoolStats {
		s := rdb.PoolStats()
		return prom.PoolStats{Waits: uint64(s.WaitCount), Waited: time.Duration(s.WaitDurationNs), Timeouts: uint64(s.Timeouts),
			Open: int(s.TotalConns), Idle: int(s.IdleConns)}
	}
}

// values are the counters and gauges that a collector has.
func values(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	m := map[string]float64{}
	for _, family := range gather(t, c) {
		for _, one := range family.Metric {
			name := family.GetName()
			for _, l := range one.Label {
				name += fmt.Sprintf("{%s=%s}", l.GetName(), l.GetValue())
			}
			m[name] = one.Counter.GetValue() + one.Gauge.GetValue()
		}
	}
	return m
}

// await waits until something is so.
func await(t *testing.T, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for !is() {
		select {
		case <-ctx.Done():
			t.Fatal("it never was")
		case <-time.After(time.Millisecond):
		}
	}
}

func TestGuard(t *testing.T) {
	c := newCollector(t, prom.Options{})
	guard, err := resilient.New(resilient.Options{Limit: resilient.Limit{Healthy: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	c.Guard("redis", guard.Stats)
	c.Guard("gone", func() resilient.Stats { return resilient.Stats{} })
	c.Guard("gone", nil)
	if _, err := resilient.Do(t.Context(), guard, resilient.Read, func(context.Context) (int, error) { return 1, nil }); err != nil {
		t.Fatal(err)
	}
	metric := func(name, help, kind string, samples ...string) string {
		return fmt.Sprintf("# HELP %s %s\n# TYPE %s %s\n%s\n", name, help, name, kind, strings.Join(samples, "\n"))
	}
	var calls []string
	for _, outcome := range []string{"failed", "fallback", "hedge_won", "hedged", "rejected_full", "rejected_late", "rejected_open", "retried", "retry_denied", "tried"} {
		n := 0
		if outcome == "tried" {
			n = 1
		}
		calls = append(calls, fmt.Sprintf("bale_guard_calls_total{guard=\"redis\",outcome=%q} %d", outcome, n))
	}
	want := metric("bale_guard_calls_total", "Calls to the endpoint by what became of them: tried, failed, retried and so on; one call can be several.", "counter", calls...) +
		metric("bale_guard_in_flight", "Calls in flight, counted with a limit only.", "gauge", `bale_guard_in_flight{guard="redis"} 0`) +
		metric("bale_guard_limit", "Calls that may be in flight; 0 without a limit.", "gauge", `bale_guard_limit{guard="redis"} 20`) +
		metric("bale_guard_state", "State of the breaker: 0 closed, 1 half open, 2 open.", "gauge", `bale_guard_state{guard="redis"} 0`) +
		metric("bale_guard_waiting", "Calls that wait for their turn.", "gauge", `bale_guard_waiting{guard="redis"} 0`)
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), "bale_guard_calls_total", "bale_guard_in_flight", "bale_guard_limit", "bale_guard_state", "bale_guard_waiting"); err != nil {
		t.Error(err)
	}
}

// TestGuards: the hosts of a Transport, as far as they fit, without a name from the program for
// each.
func TestGuards(t *testing.T) {
	c := newCollector(t, prom.Options{MaxGroups: 3})
	transport, err := resilient.NewTransport(failing{}, resilient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c.Guards("orders", transport.Guards)
	c.Guards("gone", transport.Guards)
	c.Guards("gone", nil)
	for _, host := range []string{"b:80", "a\xff", "a\xfe", "a", "c"} {
		if _, err := transport.RoundTrip(&http.Request{URL: &url.URL{Scheme: "http", Host: host}}); err == nil {
			t.Error("a response")
		}
	}
	want := "# HELP bale_guard_state State of the breaker: 0 closed, 1 half open, 2 open.\n# TYPE bale_guard_state gauge\n"
	for _, guard := range []string{"orders/a", "orders/a\uFFFD", "orders/b:80"} {
		want += fmt.Sprintf("bale_guard_state{guard=%q} 0\n", guard)
	}
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), "bale_guard_state"); err != nil {
		t.Error(err)
	}
}

// failing is an http.RoundTripper.
type failing struct{}

func (failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("no answer") }
