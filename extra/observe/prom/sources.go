package prom

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/extra/observe/internal/group"
)

// PoolStats are the totals and the present state of a client's connection pool.
type PoolStats struct {
	Waits    uint64        // callers that had to wait for a connection, and got one
	Waited   time.Duration // by all of them together
	Timeouts uint64        // callers that gave up waiting; zero for a client that does not say

	Open int // connections that there are now
	Idle int // those of them that nobody uses
}

// Dictionary shows the dictionaries of a group. Each scrape calls status, the method Status of a
// dict.Group. A second call for the same name replaces the function; nil removes it, for a closed
// group. Use the name of [Collector.Group], so that both sets of metrics match. Groups beyond
// Options.MaxGroups are not shown, because they share one name.
func (c *Collector) Dictionary(name string, status func() dict.Status) {
	c.groups.Get(name).status.Store(&status)
}

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
	name = strings.ToValidUTF8(name, "\uFFFD")
	c.poolLock.Lock()
	defer c.poolLock.Unlock()
	if pool == nil {
		delete(c.pools, name)
		return
	}
	c.pools[name] = pool
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
}

// poolMetrics sends the figures of the pools.
func (c *Collector) poolMetrics(to chan<- prometheus.Metric) {
	c.poolLock.Lock()
	pools := maps.Clone(c.pools)
	c.poolLock.Unlock()
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		s := pools[name]()
		for _, counter := range []struct {
			desc *prometheus.Desc
			is   float64
		}{{c.waits, float64(s.Waits)}, {c.waited, s.Waited.Seconds()}, {c.timeouts, float64(s.Timeouts)}} {
			to <- prometheus.MustNewConstMetric(counter.desc, prometheus.CounterValue, counter.is, name)
		}
		to <- prometheus.MustNewConstMetric(c.connections, prometheus.GaugeValue, float64(s.Idle), name, "idle")
		to <- prometheus.MustNewConstMetric(c.connections, prometheus.GaugeValue, float64(max(0, s.Open-s.Idle)), name, "busy")
	}
}

// seconds is a time in Prometheus' unit.
func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
