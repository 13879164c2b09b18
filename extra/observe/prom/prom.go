// Package prom shows bale's stats to Prometheus.
//
// [NewCollector] makes a prometheus.Collector; [Collector.Group] gives the stats.Counters of a
// group, which are the Recorder of its Caches:
//
//	collector, err := prom.NewCollector(prom.Options{})
//	prometheus.MustRegister(collector)
//	users, err := bale.New(store, bale.Options[User]{Recorder: collector.Group("shop:user")})
package prom

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/balekv/bale"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/extra/observe/internal/group"
	"github.com/balekv/bale/extra/resilient"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stats"
)

// Options are the settings of a [Collector]; the zero value is useful.
type Options struct {
	// Namespace is the prefix of all metric names. Default "bale".
	Namespace string

	// MaxGroups is how many groups there are at most; further ones share the group "other". A group
	// takes some 60 KiB. Default 200; at least 1.
	MaxGroups int

	// Buckets are the upper bounds of the classic buckets in seconds, rising, from 2^-22 (240 ns)
	// to 64. Each becomes the nearest power of 2^(1/4), where a native bucket ends, so that the
	// count is exact: 0.001 becomes 0.0009765625. The default is twelve from 1 µs to 1 s, close
	// together around the round trip times to Redis. An empty, non-nil slice leaves only the native
	// buckets.
	Buckets []float64

	// Counters are the settings of the groups' Counters.
	Counters stats.CountersOptions

	// Ring adds the events of a ring. The caller still owns it.
	Ring *stats.Ring
}

// The default classic buckets: powers of two in seconds.
var defaultBuckets = []float64{1. / (1 << 20), 1. / (1 << 18), 1. / (1 << 16), 1. / (1 << 14), 1. / (1 << 13), 1. / (1 << 12), 1. / (1 << 11),
	1. / (1 << 10), 1. / (1 << 8), 1. / (1 << 6), 1. / (1 << 4), 1}

// Collector is a prometheus.Collector of groups. Make one with [NewCollector]; it is safe for
// concurrent use.
//
// An operation costs as much as with Counters; the rest of the work happens at each scrape. The
// metrics, with the default namespace:
//
//	bale_operations_total{group,op,outcome}             outcome is hit, miss, ok, or the class of the error
//	bale_keys_total{group,op,result}                    result is hit, miss or error for reads, any for the others
//	bale_plain_bytes_total{group,op}                    of the values, serialized
//	bale_stored_bytes_total{group,op}                   of the same values in Redis: the ratio is one rate divided by the other
//	bale_stage_duration_seconds{group,op,stage}         a histogram of those operations that were timed, a sample
//	bale_fresh_buffers_total{group}                     buffers that had to be made or to grow
//	bale_dictionary_info{group,algorithm,dictionary}    1 for what the group wrote last with
//	bale_ring_events_total{outcome}                     of the stats.Ring that it was given: delivered or dropped
//
// [Collector.Dictionary] adds the state of a dict.Group, to compare the present ratio with the
// ratio at training, and [Collector.Near] a near.Cache. [Collector.Pool] adds a client's connection
// pool, and [Collector.Guard] a resilient.Guard, or [Collector.Guards] those of a Transport:
//
//	bale_dictionary_published_timestamp_seconds{group}  when the dictionary that the group writes with was published: its age is time() - that
//	bale_dictionary_training_ratio{group}               the ratio that it came to at training, on values that it had not seen
//	bale_dictionary_plain_bytes_total{group}            of the values written with the dictionary
//	bale_dictionary_stored_bytes_total{group}           and after packing, as at training: without the record of when a loaded value expires
//	bale_dictionary_synced_timestamp_seconds{group}     when the registry last answered
//	bale_dictionary_restored_total{group}               dictionaries that the registry did not hold, and that this program put back
//	bale_dictionary_collected_values{group}             values that dict.Auto has seen: to judge by, and then for its sample
//	bale_dictionary_wanted_values{group}                and how many it wants; neither without Auto
//	bale_near_reads_total{group,result}                 keys asked for by result: hit or miss; misses that wait for one read all count
//	bale_near_bytes{group}                              of memory that the kept values take
//	bale_near_entries{group}                            kept values
//	bale_near_evictions_total{group}                    values that were dropped to make room
//	bale_near_too_large_total{group}                    values that were not kept for their size
//	bale_near_invalidations_total{group}                keys that were said to have changed
//	bale_near_resets_total{group}                       times that all was dropped: the invalidations began anew
//	bale_pool_waits_total{pool}                         callers that had to wait for a connection
//	bale_pool_wait_seconds_total{pool}                  and how long, together: its rate is how many wait at a time
//	bale_pool_timeouts_total{pool}                      callers that gave up waiting
//	bale_pool_connections{pool,state}                   idle or busy
//	bale_guard_calls_total{guard,outcome}               tried, failed, retried, retry_denied, rejected_open, rejected_full, rejected_late, hedged, hedge_won or fallback
//	bale_guard_state{guard}                             of the breaker: 0 closed, 1 half open, 2 open
//	bale_guard_limit{guard}                             calls that may be in flight
//	bale_guard_in_flight{guard}                         and how many are
//	bale_guard_waiting{guard}                           calls that wait for their turn
//
// [Collector.HTTPClient] is for an HTTP client, above all one of package httpc:
//
//	bale_http_client_request_duration_seconds{method,route,code}  a histogram of the requests until the header; code is the status, or error
//
// The folder docs/ops of the repository has a Grafana dashboard and alert rules for these metrics.
//
// The histogram has classic and native buckets at once; the configuration of Prometheus chooses
// between them. No label contains a key or a part of one, because a stats.Event has none.
type Collector struct {
	groups  *group.Set[*groupMetrics]
	bounds  []int // of the classic buckets: indexes of native ones
	ring    *stats.Ring
	collect sync.Mutex

	pools  sources[PoolStats]
	guards sources[resilient.Stats]

	transports sources[iter.Seq2[string, *resilient.Guard]]
	hosts      int // that each may show

	requests *prometheus.HistogramVec // over HTTP

	operations, keys, plain, stored, stages, fresh, dictionary, events *prometheus.Desc
	published, trained, written, packed                                *prometheus.Desc // of dictionaries, as the next
	synced, restored, collected, wanted                                *prometheus.Desc
	nearReads, nearBytes, nearEntries                                  *prometheus.Desc // of near caches, as the next
	evictions, tooLarge, invalidations, resets                         *prometheus.Desc
	waits, waited, timeouts, connections                               *prometheus.Desc // of pools
	calls, state, limit, inFlight, waiting                             *prometheus.Desc // of guards
}

var _ prometheus.Collector = (*Collector)(nil)

// groupMetrics are the metrics of one group.
type groupMetrics struct {
	name     string
	counters *stats.Counters
	status   atomic.Pointer[func() dict.Status] // of its dictionaries
	near     atomic.Pointer[func() NearStats]

	totals group.Totals                   // under Collector.collect, as all below
	labels map[labelsKey][]*dto.LabelPair // as they were made for a scrape before
}

type labelsKey struct {
	desc  *prometheus.Desc
	op    stats.Op
	third int // outcome, result or stage
}

// NewCollector makes a Collector. The caller registers it. An option out of range is
// bale.ErrInvalid.
func NewCollector(o Options) (*Collector, error) {
	if o.MaxGroups < 0 {
		return nil, fmt.Errorf("prom: %w: MaxGroups is %d, must be at least 1", bale.ErrInvalid, o.MaxGroups)
	}
	if o.Buckets == nil {
		o.Buckets = defaultBuckets
	}
	c := &Collector{ring: o.Ring, hosts: cmp.Or(o.MaxGroups, group.DefaultMax)}
	for _, b := range o.Buckets {
		if !(b >= 1./(1<<22) && b <= 64) {
			return nil, fmt.Errorf("prom: %w: Buckets has %v, must be 2^-22 to 64 seconds", bale.ErrInvalid, b)
		}
		index := int(math.Round(math.Log2(b) * 4))
		if n := len(c.bounds); n > 0 && index <= c.bounds[n-1] {
			return nil, fmt.Errorf("prom: %w: Buckets has %v, not above the one before by 2^(1/4) or more", bale.ErrInvalid, b)
		}
		c.bounds = append(c.bounds, index)
	}
	c.groups = group.NewSet(o.MaxGroups, func(name string) *groupMetrics {
		return &groupMetrics{name: name, counters: stats.NewCounters(o.Counters), labels: map[labelsKey][]*dto.LabelPair{}}
	})
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(cmp.Or(o.Namespace, "bale"), "", name), help, labels, nil)
	}
	c.requests = newRequests(cmp.Or(o.Namespace, "bale"))
	c.operations = desc("operations_total", "Operations by outcome: hit or miss of get, ok of the others, or the class of the error.", "group", "op", "outcome")
	c.keys = desc("keys_total", "Keys of the operations by result: hit, miss or error of reads, any of the others.", "group", "op", "result")
	c.plain = desc("plain_bytes_total", "Bytes of the values, serialized.", "group", "op")
	c.stored = desc("stored_bytes_total", "Bytes of the same values as they are in Redis.", "group", "op")
	c.stages = desc("stage_duration_seconds", "Time of each stage of the operations that were timed, which are a sample: its count is not that of the operations.",
		"group", "op", "stage")
	c.fresh = desc("fresh_buffers_total", "Buffers that had to be made or to grow, in place of one that was used before.", "group")
	c.dictionary = desc("dictionary_info", "What the group wrote last with. The value is 1.", "group", "algorithm", "dictionary")
	c.events = desc("ring_events_total", "Events that the ring has delivered, or dropped for it was full.", "outcome")
	c.published = desc("dictionary_published_timestamp_seconds", "When the dictionary that the group writes with was published.", "group")
	c.trained = desc("dictionary_training_ratio", "Ratio that the dictionary came to at training, on values it had not seen.", "group")
	c.written = desc("dictionary_plain_bytes_total",
		"Bytes of the values written with the dictionary, serialized.", "group")
	c.packed = desc("dictionary_stored_bytes_total",
		"Bytes of the same values packed, as at training: without the record of when a loaded value expires.", "group")
	c.synced = desc("dictionary_synced_timestamp_seconds", "When the registry of dictionaries last answered.", "group")
	c.restored = desc("dictionary_restored_total", "Dictionaries that the registry did not hold, and that this program put back.", "group")
	c.collected = desc("dictionary_collected_values", "Values that Auto has seen, to judge whether a dictionary is needed and then for its sample.", "group")
	c.wanted = desc("dictionary_wanted_values", "Values that Auto wants to see.", "group")
	c.nearReads = desc("near_reads_total",
		"Keys that the near cache was asked for by result: hit or miss. Misses that wait for one read all count.", "group", "result")
	c.nearBytes = desc("near_bytes", "Memory that the values in the near cache take.", "group")
	c.nearEntries = desc("near_entries", "Values in the near cache.", "group")
	c.evictions = desc("near_evictions_total", "Values that the near cache dropped to make room.", "group")
	c.tooLarge = desc("near_too_large_total", "Values that the near cache did not keep for their size.", "group")
	c.invalidations = desc("near_invalidations_total",
		"Keys that were said to have changed, in the near cache or not.", "group")
	c.resets = desc("near_resets_total",
		"Times that the near cache dropped all, because any key may have changed.", "group")
	c.waits = desc("pool_waits_total", "Callers that had to wait for a connection of the pool.", "pool")
	c.waited = desc("pool_wait_seconds_total", "Time that callers waited for a connection of the pool, together.", "pool")
	c.timeouts = desc("pool_timeouts_total", "Callers that gave up waiting for a connection of the pool.", "pool")
	c.connections = desc("pool_connections", "Connections of the pool, idle or busy.", "pool", "state")
	c.calls = desc("guard_calls_total", "Calls to the endpoint by what became of them: tried, failed, retried and so on; one call can be several.", "guard", "outcome")
	c.state = desc("guard_state", "State of the breaker: 0 closed, 1 half open, 2 open.", "guard")
	c.limit = desc("guard_limit", "Calls that may be in flight; 0 without a limit.", "guard")
	c.inFlight = desc("guard_in_flight", "Calls in flight, counted with a limit only.", "guard")
	c.waiting = desc("guard_waiting", "Calls that wait for their turn.", "guard")
	// An invalid name: the library of Prometheus would report it only when the collector is
	// registered.
	if err := prometheus.NewPedanticRegistry().Register(c); err != nil {
		return nil, fmt.Errorf("prom: %w: Namespace is %q: %w", bale.ErrInvalid, o.Namespace, err)
	}
	return c, nil
}

// Group returns the Counters of a group, and makes them if there are none. Beyond MaxGroups it
// returns those of the group "other". A group cannot be removed. Call Group once per Cache, not per
// operation.
func (c *Collector) Group(name string) *stats.Counters { return c.groups.Get(name).counters }

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.operations, c.keys, c.plain, c.stored, c.stages, c.fresh, c.dictionary, c.events,
		c.published, c.trained, c.written, c.packed, c.synced, c.restored, c.collected, c.wanted,
		c.nearReads, c.nearBytes, c.nearEntries, c.evictions, c.tooLarge, c.invalidations, c.resets, c.waits, c.waited, c.timeouts, c.connections, c.calls, c.state, c.limit, c.inFlight, c.waiting} {
		to <- d
	}
	c.requests.Describe(to)
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	c.collect.Lock()
	defer c.collect.Unlock()
	var s stats.Snapshot
	for _, g := range c.groups.All() {
		s = g.counters.Snapshot()
		c.group(to, g, &s)
		c.dictionaries(to, g)
		c.nearMetrics(to, g)
	}
	c.pools.each(func(name string, s PoolStats) { c.poolMetrics(to, name, s) })
	c.requests.Collect(to)
	c.guards.each(func(name string, s resilient.Stats) { c.guardMetrics(to, name, s) })
	c.transports.each(func(name string, all iter.Seq2[string, *resilient.Guard]) { c.guardsOf(to, name, all) })
	if c.ring != nil {
		dropped, delivered := c.ring.Dropped()
		to <- prometheus.MustNewConstMetric(c.events, prometheus.CounterValue, float64(delivered), "delivered")
		to <- prometheus.MustNewConstMetric(c.events, prometheus.CounterValue, float64(dropped), "dropped")
	}
}

// group sends the metrics of a group. An operation has series after its first use, then including
// those that are zero: a rate does not see a series that begins with one.
func (c *Collector) group(to chan<- prometheus.Metric, g *groupMetrics, s *stats.Snapshot) {
	counter := func(desc *prometheus.Desc, n uint64, labels []*dto.LabelPair) {
		value := float64(n)
		to <- &metric{desc, dto.Metric{Label: labels, Counter: &dto.Counter{Value: &value}}}
	}
	for i, totals := range g.totals.Update(s) {
		op := stats.Op(i)
		if totals.Count == 0 {
			continue
		}
		for outcome, n := range totals.Outcomes {
			if group.Has(op, outcome) {
				counter(c.operations, n, g.pairs(c.operations, op, outcome, group.Outcome))
			}
		}
		for result, n := range totals.Keys {
			if (result == group.Any) != group.Reads(op) {
				counter(c.keys, n, g.pairs(c.keys, op, result, group.Result))
			}
		}
		if totals.Plain != 0 || totals.Stored != 0 {
			counter(c.plain, totals.Plain, g.pairs(c.plain, op, 0, nil))
			counter(c.stored, totals.Stored, g.pairs(c.stored, op, 0, nil))
		}
		for stage := range s.Ops[i].Times {
			if h := &s.Ops[i].Times[stage]; h.Count > 0 {
				to <- &metric{c.stages, dto.Metric{
					Label:     g.pairs(c.stages, op, stage, func(i int) string { return stats.Stage(i).String() }),
					Histogram: c.histogram(h),
				}}
			}
		}
	}
	counter(c.fresh, s.Fresh, prometheus.MakeLabelPairs(c.fresh, []string{g.name}))
	if s.Algorithm != frame.Stored {
		to <- prometheus.MustNewConstMetric(c.dictionary, prometheus.GaugeValue, 1, g.name, s.Algorithm.String(), s.DictionaryID.String())
	}
}

// pairs returns the labels of a metric: group, op, and a third if it has a name.
func (g *groupMetrics) pairs(desc *prometheus.Desc, op stats.Op, third int, name func(int) string) []*dto.LabelPair {
	key := labelsKey{desc, op, third}
	pairs, ok := g.labels[key]
	if !ok {
		values := []string{g.name, op.String()}
		if name != nil {
			values = append(values, name(third))
		}
		pairs = prometheus.MakeLabelPairs(desc, values)
		g.labels[key] = pairs
	}
	return pairs
}

// metric is a prometheus.Metric with a fixed value.
type metric struct {
	desc *prometheus.Desc
	is   dto.Metric
}

func (m *metric) Desc() *prometheus.Desc { return m.desc }

func (m *metric) Write(to *dto.Metric) error {
	to.Label, to.Counter, to.Histogram = m.is.Label, m.is.Counter, m.is.Histogram
	return nil
}
