// Package push sends what the lab found to a Prometheus Pushgateway, so that runs can be followed
// over weeks.
//
// [Parse] reads the gateway's URL, and [Gateway.Push] sends a run: a gauge for each figure of each
// cell. The labels are dataset, track, codec, compress, client, server, batch, concurrency and
// rate. A push replaces the whole group of the job bale_bench and the instance. A run of a study
// has the study's name in its group, too, so that studies stand side by side:
//
//	bale_bench_ops_per_second
//	bale_bench_values_per_second            the same, times the values of a batch
//	bale_bench_p50_seconds                  of the whole operation; not of a cell whose latencies are lower bounds
//	bale_bench_p99_seconds                  (outcome.Cell.AtLeast): in a series they would look exact
//	bale_bench_ratio                        bytes as given over bytes stored
//	bale_bench_stored_bytes_per_value
//	bale_bench_redis_bytes_per_key          of used_memory, where Redis reports it
//	bale_bench_allocs_per_op
//	bale_bench_verified                     1 if all values came back unchanged; a cell with 0 has no other figure
//	bale_bench_run_timestamp_seconds        when the run began
//	bale_bench_info{bale,go,cpu,os,redis}   where it ran
package push

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/push"

	"github.com/balekv/bale/cmd/internal/outcome"
)

const (
	job      = "bale_bench"
	timeout  = 10 * time.Second // for the whole of a push
	maxReply = 2 << 10          // bytes of what the gateway says of an error
)

// Gateway is a Pushgateway. Make one with [Parse].
type Gateway struct {
	url      string // without credentials
	user     string
	password string
	basic    bool

	// Instance is the label that separates the runs of machines. Default: the name of the machine.
	Instance string
}

// Parse reads the URL of a gateway, http://[USER:PASSWORD@]HOST:PORT[/PATH]. Nothing is sent. Its
// errors never show the URL, which may have a password.
func Parse(address string) (*Gateway, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, errors.New("push: this is no URL; give it as http://[USER:PASSWORD@]HOST:PORT, with other characters than letters and digits of a password as %XX")
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return nil, errors.New("push: the URL must begin with http:// or https:// and a host")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("push: the URL must end with the path, without ? and #")
	}
	g := &Gateway{}
	if u.User != nil {
		g.basic, g.user = true, u.User.Username()
		g.password, _ = u.User.Password()
		u.User = nil
	}
	// As people copy it from a document of the gateway's.
	u.Path = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/metrics")
	g.url = u.String()
	g.Instance, err = os.Hostname()
	if err != nil || g.Instance == "" {
		g.Instance = "unknown"
	}
	return g, nil
}

// String is the gateway's URL, without credentials.
func (g *Gateway) String() string { return g.url }

// Push sends a run, in place of what the gateway has of the same job, instance and study.
func (g *Gateway) Push(ctx context.Context, r *outcome.Run) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
	defer transport.CloseIdleConnections()
	client := &http.Client{
		Transport: transport,
		// What is followed would be a GET, which a gateway's page answers as if all were well.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	p := push.New(g.url, job).Collector((*collection)(r)).Grouping("instance", clean(g.Instance)).Client(bounded{client})
	if study := r.Environment.Study; study != "" {
		p.Grouping("study", clean(study))
	}
	if g.basic {
		p.BasicAuth(g.user, g.password)
	}
	if err := p.PushContext(ctx); err != nil {
		return fmt.Errorf("push to %s: %w", g.url, err)
	}
	return nil
}

// bounded reads no more of an answer than fits into a message.
type bounded struct{ *http.Client }

func (b bounded) Do(r *http.Request) (*http.Response, error) {
	reply, err := b.Client.Do(r)
	if reply != nil {
		reply.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(reply.Body, maxReply), reply.Body}
	}
	return reply, err
}

// clean makes a label's value of any text.
func clean(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

var cellLabels = []string{"dataset", "track", "codec", "compress", "client", "server", "batch", "concurrency", "rate"}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(job+"_"+name, help, labels, nil)
}

// figures are what there is of each cell that was measured. Not all cells have all of them: NaN is
// left out.
var figures = []struct {
	desc *prometheus.Desc
	of   func(c *outcome.Cell) float64
}{
	{desc("ops_per_second", "Operations a second, the median of the rounds.", cellLabels...),
		func(c *outcome.Cell) float64 { return c.OpsPerSecond.Median }},
	{desc("values_per_second", "Values a second, the median of the rounds.", cellLabels...),
		func(c *outcome.Cell) float64 { return c.ValuesPerSecond.Median }},
	{desc("p50_seconds", "Median of the whole operation's time, where it is known.", cellLabels...), func(c *outcome.Cell) float64 { return seconds(c, c.P50) }},
	{desc("p99_seconds", "99th percentile of the whole operation's time, where it is known.", cellLabels...), func(c *outcome.Cell) float64 { return seconds(c, c.P99) }},
	{desc("ratio", "Bytes of the values as given, over bytes stored.", cellLabels...), func(c *outcome.Cell) float64 { return c.Ratio }},
	{desc("stored_bytes_per_value", "Bytes stored for a value, in the mean.", cellLabels...),
		func(c *outcome.Cell) float64 { return float64(c.StoredBytes) / float64(c.Values) }},
	{desc("redis_bytes_per_key", "Bytes of used_memory for a key, in the mean.", cellLabels...),
		func(c *outcome.Cell) float64 {
			if c.RedisBytesPerKey == nil {
				return math.NaN()
			}
			return *c.RedisBytesPerKey
		}},
	{desc("allocs_per_op", "Allocations of an operation, the client's included.", cellLabels...),
		func(c *outcome.Cell) float64 { return c.AllocsPerOp.Median }},
}

// seconds is a latency; NaN where only a lower bound of it is known.
func seconds(c *outcome.Cell, us outcome.Estimate) float64 {
	if c.AtLeast {
		return math.NaN()
	}
	return us.Median / 1e6
}

var (
	verified = desc("verified", "1 if all that came back was what went in. A cell that is 0 has no other figure.", cellLabels...)
	began    = desc("run_timestamp_seconds", "When the run began.")
	info     = desc("info", "Where the run was. The value is 1.", "bale", "go", "cpu", "os", "redis")
)

// collection is a Run as a prometheus.Collector.
type collection outcome.Run

// Describe implements prometheus.Collector.
func (r *collection) Describe(to chan<- *prometheus.Desc) {
	for _, f := range figures {
		to <- f.desc
	}
	for _, d := range []*prometheus.Desc{verified, began, info} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (r *collection) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		for i := range labels {
			labels[i] = clean(labels[i])
		}
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	e := &r.Environment
	redis := e.RedisVersion
	if e.Embedded {
		redis = "embedded"
	}
	gauge(info, 1, e.Bale, e.Go, e.CPU, e.OS, redis)
	if !e.Time.IsZero() {
		gauge(began, float64(e.Time.UnixMilli())/1e3)
	}
	for i := range r.Cells {
		c := &r.Cells[i]
		labels := func() []string {
			return []string{c.Dataset, c.Track, c.Codec, c.Compress, c.Client, c.Server, c.Batch, strconv.Itoa(c.Concurrency), rate(c.Rate)}
		}
		if !c.Verified {
			gauge(verified, 0, labels()...)
			continue
		}
		gauge(verified, 1, labels()...)
		for _, f := range figures {
			if v := f.of(c); !math.IsNaN(v) && !math.IsInf(v, 0) {
				gauge(f.desc, v, labels()...)
			}
		}
	}
}

// rate is that of an open loop, nothing for a closed one.
func rate(r float64) string {
	if r == 0 {
		return ""
	}
	return strconv.FormatFloat(r, 'f', -1, 64)
}
