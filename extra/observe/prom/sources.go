package prom

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/extra/observe/internal/group"
	"github.com/balekv/bale/extra/resilient"
)

// PoolStats are the totals and the present state of a client's connection pool.
type PoolStats struct {
	Waits    uint64        // callers that had to wait for a connection, and got one
	Waited   time.Duration // by all of them together
	Timeouts uint64        // callers that gave up waiting; zero for a client that does not say

	Open int // connections that there are now
	Idle int // those of them that nobody uses
}

// NearStats are the totals and the present state of a near.Cache: near.Stats, of which it has the
// fields, so that this package does not need package near.
type NearStats struct {
	Hits          uint64
	Misses        uint64
	Bytes         int64
	Entries       int
	Evictions     uint64
	TooLarge      uint64
	Invalidations uint64
	Resets        uint64
}

// Dictionary shows the dictionaries of a group. Each scrape calls status, the method Status of a
// dict.Group. A second call for the same name replaces the function; nil removes it, for a closed
// group. Use the name of [Collector.Group], so that both sets of metrics match. Groups beyond
// Options.MaxGroups are not shown, because they share one name.
func (c *Collector) Dictionary(name string, status func() dict.Status) {
	c.groups.Get(name).status.Store(&status)
}

// Near shows the near.Cache in front of a group's Cache, whose own metrics count what near does not
// have. Each scrape calls near. A second call for the same name replaces the function; nil removes
// it, for a closed near.Cache. Use the name of [Collector.Group]; groups beyond Options.MaxGroups
// are not shown.
//
// Of a near.Cache hot:
//
//	collector.Near("shop:user", func() prom.NearStats { return prom.NearStats(hot.Stats()) })
func (c *Collector) Near(name string, near func() NearStats) { c.groups.Get(name).near.Store(&near) }

// Pool shows a client's connection pool. Each scrape calls pool. A second call for the same name
// replaces the function; nil removes the pool. Names become labels: use one per client, a few in
// total.
//
// Of go-redis, s being rdb.PoolStats():
//
//	prom.PoolStats{Waits: uint64(s.WaitCount), Waited: time.Duration(s.WaitDurationNs), Timeouts: uint64(s.Timeouts),
//		Open: int(s.TotalConns), Idle: int(s.IdleConns)}
//
// and of redigo, s being pool.Stats():
//
//	prom.PoolStats{Waits: uint64(s.WaitCount), Waited: s.WaitDuration, Open: s.ActiveCount, Idle: s.IdleCount}
//
// rueidis sends the commands of all callers over a few shared connections, and has no such figures.
func (c *Collector) Pool(name string, pool func() PoolStats) {
	c.pools.set(name, pool)
}

// Guard shows a resilient.Guard. Each scrape calls guard, its method Stats. A second call for the
// same name replaces the function; nil removes it. Names become labels: use one per endpoint, a few
// in total.
func (c *Collector) Guard(name string, guard func() resilient.Stats) { c.guards.set(name, guard) }

// Guards shows the Guards of a resilient.Transport, of which guards is the method Guards. Each host
// is the guard "name/host". Only the first Options.MaxGroups hosts are shown: redirects may name
// any number. A second call for the same name replaces the function; nil removes it.
func (c *Collector) Guards(name string, guards func() iter.Seq2[string, *resilient.Guard]) {
	c.transports.set(name, guards)
}

// guardsOf sends the figures of the Guards of a Transport.
func (c *Collector) guardsOf(to chan<- prometheus.Metric, name string, guards iter.Seq2[string, *resilient.Guard]) {
	seen := map[string]bool{} // two hosts may differ in bytes that are no UTF-8
	for host, guard := range guards {
		if len(seen) == c.hosts {
			return
		}
		if host = strings.ToValidUTF8(host, "\uFFFD"); !seen[host] {
			seen[host] = true
			c.guardMetrics(to, name+"/"+host, guard.Stats())
		}
	}
}

// sources are functions that a scrape asks, by name.
type sources[T any] struct {
	mu sync.Mutex
	of map[string]func() T
}

func (s *sources[T]) set(name string, source func() T) {
	name = strings.ToValidUTF8(name, "\uFFFD")
	s.mu.Lock()
	defer s.mu.Unlock()
	if source == nil {
		delete(s.of, name)
		return
	}
	if s.of == nil {
		s.of = map[string]func() T{}
	}
	s.of[name] = source
}

func (s *sources[T]) each(do func(name string, v T)) {
	s.mu.Lock()
	of := maps.Clone(s.of)
	s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(of)) {
		do(name, of[name]())
	}
}

// dictionaries sends the figures of the dictionary that the group writes with.
func (c *Collector) dictionaries(to chan<- prometheus.Metric, g *groupMetrics) {
	status := g.status.Load()
	if status == nil || *status == nil || g.name == group.Other {
		return
	}
	s := (*status)()
	gauge := func(desc *prometheus.Desc, v float64) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, g.name)
	}
	if !s.Synced.IsZero() {
		gauge(c.synced, seconds(s.Synced))
		to <- prometheus.MustNewConstMetric(c.restored, prometheus.CounterValue, float64(s.Restored), g.name)
	}
	if s.Wanted > 0 {
		gauge(c.collected, float64(s.Collected))
		gauge(c.wanted, float64(s.Wanted))
	}
	if s.State == nil || s.Writing == 0 {
		return
	}
	e := s.State.Find(s.Writing)
	if e == nil {
		return
	}
	if !e.Published.IsZero() {
		gauge(c.published, seconds(e.Published))
	}
	if e.Info.Ratio > 0 { // zero for one that was made elsewhere, of which nothing is known
		gauge(c.trained, e.Info.Ratio)
	}
	to <- prometheus.MustNewConstMetric(c.written, prometheus.CounterValue, float64(s.PlainBytes), g.name)
	to <- prometheus.MustNewConstMetric(c.packed, prometheus.CounterValue, float64(s.StoredBytes), g.name)
}

// nearMetrics sends the figures of the near cache of the group.
func (c *Collector) nearMetrics(to chan<- prometheus.Metric, g *groupMetrics) {
	near := g.near.Load()
	if near == nil || *near == nil || g.name == group.Other {
		return
	}
	s := (*near)()
	counter := func(desc *prometheus.Desc, n uint64, labels ...string) {
		labels = append([]string{g.name}, labels...)
		to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
	}
	counter(c.nearReads, s.Hits, "hit")
	counter(c.nearReads, s.Misses, "miss")
	counter(c.evictions, s.Evictions)
	counter(c.tooLarge, s.TooLarge)
	counter(c.invalidations, s.Invalidations)
	counter(c.resets, s.Resets)
	to <- prometheus.MustNewConstMetric(c.nearBytes, prometheus.GaugeValue, float64(s.Bytes), g.name)
	to <- prometheus.MustNewConstMetric(c.nearEntries, prometheus.GaugeValue, float64(s.Entries), g.name)
}

// poolMetrics sends the figures of a pool.
func (c *Collector) poolMetrics(to chan<- prometheus.Metric, name string, s PoolStats) {
	for _, counter := range []struct {
		desc *prometheus.Desc
		is   float64
	}{{c.waits, float64(s.Waits)}, {c.waited, s.Waited.Seconds()}, {c.timeouts, float64(s.Timeouts)}} {
		to <- prometheus.MustNewConstMetric(counter.desc, prometheus.CounterValue, counter.is, name)
	}
	to <- prometheus.MustNewConstMetric(c.connections, prometheus.GaugeValue, float64(s.Idle), name, "idle")
	to <- prometheus.MustNewConstMetric(c.connections, prometheus.GaugeValue, float64(max(0, s.Open-s.Idle)), name, "busy")
}

// guardMetrics sends the figures of a Guard.
func (c *Collector) guardMetrics(to chan<- prometheus.Metric, name string, s resilient.Stats) {
	for outcome, n := range s.Calls() {
		to <- prometheus.MustNewConstMetric(c.calls, prometheus.CounterValue, float64(n), name, outcome)
	}
	for desc, is := range map[*prometheus.Desc]int{c.state: int(s.State), c.limit: s.Limit, c.inFlight: s.InFlight, c.waiting: s.Waiting} {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(is), name)
	}
}

// seconds is a time in Prometheus' unit.
func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
