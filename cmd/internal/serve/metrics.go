package serve

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/extra/observe/prom"
	"github.com/balekv/bale/stats"
)

// Metrics are what /metrics shows of a run. Make them with [NewMetrics]; they are safe for
// concurrent use.
type Metrics struct {
	registry  *prometheus.Registry
	collector *prom.Collector

	steps, stepsDone, cells, cellsDone, rounds, round, cell *prometheus.Desc

	lock        sync.Mutex
	total, done int
	turn        Turn
}

// Turn is the measuring of a cell in a round.
type Turn struct {
	Cell             outcome.Identity
	Cells, CellsDone int // of the run; done are those that were measured in every round
	Rounds, Round    int // from 1
}

// NewMetrics makes Metrics.
func NewMetrics() (*Metrics, error) {
	collector, err := prom.NewCollector(prom.Options{})
	if err != nil {
		return nil, err
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("bale_lab_"+name, help, labels, nil)
	}
	m := &Metrics{
		registry: prometheus.NewRegistry(), collector: collector,
		steps:     desc("steps", "Steps that the run has."),
		stepsDone: desc("steps_done", "Steps that are done."),
		cells:     desc("cells", "Cells that the run has."),
		cellsDone: desc("cells_done", "Cells that were measured in every round."),
		rounds:    desc("rounds", "Rounds that the run has."),
		round:     desc("round", "The present round; 0 before the first."),
		cell: desc("cell_info", "The cell under measurement. The value is 1.",
			"dataset", "track", "codec", "compress", "client", "server", "batch", "concurrency", "rate"),
	}
	for _, c := range []prometheus.Collector{
		collector, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), progressCollector{m},
		// Beside its defaults: what the garbage collector takes of the processors, and how long it
		// stops the world.
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsGC)),
	} {
		if err := m.registry.Register(c); err != nil {
			return nil, fmt.Errorf("serve: metrics: %w", err)
		}
	}
	return m, nil
}

// Recorder returns the recorder for all operations of a group: a set of values in one form,
// DATASET/TRACK/CODEC/COMPRESS, whatever the client and the load. Beyond two hundred groups they
// share "other". Ask for it once, not for each operation.
func (m *Metrics) Recorder(group string) stats.Recorder { return m.collector.Group(group) }

// Trained shows the dictionary of a group, which has just been trained.
func (m *Metrics) Trained(group string, d *dict.Dictionary, info dict.Info) {
	state := &dict.State{Current: d.ID(), Dictionaries: []dict.Entry{{ID: d.ID(), Published: time.Now(), Info: info}}}
	counters := m.collector.Group(group)
	m.collector.Dictionary(group, func() dict.Status {
		s := dict.Status{Writing: d.ID(), State: state, Synced: time.Now()} // there is no registry that could be silent
		written := counters.Snapshot()
		for _, op := range []stats.Op{stats.Set, stats.SetMany} {
			s.PlainBytes += int64(written.Ops[op].Plain)
			s.StoredBytes += int64(written.Ops[op].Stored)
		}
		return s
	})
}

// Pool shows the connections of a client, until it is called with nil before the client is closed;
// see [prom.Collector.Pool].
func (m *Metrics) Pool(client string, pool func() prom.PoolStats) { m.collector.Pool(client, pool) }

// Progress shows how many steps of the run are done, as the lab tells it.
func (m *Metrics) Progress(done, total int, _ string) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.done, m.total = done, total
}

// Turn shows what is being measured, until the next.
func (m *Metrics) Turn(t Turn) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.turn = t
}

func (m *Metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// progressCollector has the metrics of the progress. It is a type of its own so that Metrics is not
// a Collector for all to see.
type progressCollector struct{ *Metrics }

// Describe implements prometheus.Collector.
func (c progressCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.steps, c.stepsDone, c.cells, c.cellsDone, c.rounds, c.round, c.cell} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c progressCollector) Collect(to chan<- prometheus.Metric) {
	c.lock.Lock()
	steps, done, turn := c.total, c.done, c.turn
	c.lock.Unlock()
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		for i := range labels { // names of files may be anything
			labels[i] = strings.ToValidUTF8(labels[i], "\uFFFD")
		}
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	gauge(c.steps, steps)
	gauge(c.stepsDone, done)
	gauge(c.cells, turn.Cells)
	gauge(c.cellsDone, turn.CellsDone)
	gauge(c.rounds, turn.Rounds)
	gauge(c.round, turn.Round)
	if i := &turn.Cell; *i != (outcome.Identity{}) {
		rate := "" // in a closed loop
		if i.Rate != 0 {
			rate = strconv.FormatFloat(i.Rate, 'f', -1, 64)
		}
		gauge(c.cell, 1, i.Dataset, i.Track, i.Codec, i.Compress, i.Client, i.Server, i.Batch, strconv.Itoa(i.Concurrency), rate)
	}
}
