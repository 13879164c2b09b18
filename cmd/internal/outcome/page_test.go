package outcome

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/balekv/bale/cmd/internal/flame"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/page/pagetest"
	"github.com/google/go-cmp/cmp"
)

// benchShape is what a generated run is made of.
type benchShape struct {
	seed                      uint64
	typed, dynamic            []string
	codecs, compress, clients []string
	callers                   []int
	rate                      float64 // of an open loop
	sweep, timeline, faster   bool
	profiles                  []string
}

var (
	benchCompressors = []string{"none", "snappy", "s2", "lz4", "gzip", "zstd:3", "s2+dict", "lz4+dict", "zstd:3+dict"}
	benchDatasets    = []string{"profile", "session", "logs", "text", "fields10", "fields100", "fields1000", "protobuf", "random", "shop"}
)

// whole is a run of 180 cells.
func whole() benchShape {
	return benchShape{seed: 1, typed: benchDatasets, codecs: []string{"json"}, compress: benchCompressors, clients: []string{"goredis"}, callers: []int{1, 64}, timeline: true}
}

// mixed is a small run with all that there can be.
func mixed() benchShape {
	return benchShape{seed: 2, typed: []string{"profile", "logs"}, dynamic: []string{"profile"}, codecs: []string{"json"}, compress: benchCompressors,
		clients: []string{"goredis"}, callers: []int{1, 64}, sweep: true, timeline: true,
		profiles: []string{"cpu", "heap"}}
}

// ratioOf and costOf are what a compressor does to values of about 450 bytes.
func ratioOf(compress string) (ratio, pack, unpack float64) {
	switch compress {
	case "none":
		return 1, 0, 0
	case "snappy":
		return 1.04, 0.5, 0.15
	case "s2":
		return 1.06, 0.6, 0.12
	case "lz4":
		return 1.08, 0.9, 0.2
	case "gzip":
		return 1.38, 24, 4.1
	case "zstd:3":
		return 1.42, 5.1, 1.3
	case "s2+dict":
		return 2.9, 1.5, 0.4
	case "lz4+dict":
		return 2.2, 1.9, 0.35
	}
	return 3.9, 3.2, 0.8
}

// outcomeOf makes a run from a seed.
func outcomeOf(s benchShape) *Run {
	r := rand.New(rand.NewPCG(s.seed, 7))
	near := func(f, by float64) float64 { return f * (1 + by*(r.Float64()-0.5)) }
	run := &Run{Environment: Environment{
		Time: time.Date(2026, 11, 21, 14, 3, 0, 0, time.UTC), Command: []string{"balebench", "run", "--data", "my data.ndjson", "--compress", "none,zstd:3+dict"},
		Bale: "v0.6.0", Go: "go1.26.0", OS: "linux/amd64",
		CPU: "AMD EPYC 9R14", Cores: 2, MemoryBytes: 8 << 30, RedisVersion: "7.0.15", Private: true,
		Load: "a value written and read back; closed loop", Seed: s.seed, DurationS: 1, Rounds: 7, Seconds: 412,
	}}
	estimate := func(f float64) Estimate {
		e := Estimate{Median: f, Interval: &[2]float64{f * 0.985, f * 1.02}}
		for _, part := range []float64{0.98, 0.985, 0.99, 1, 1.01, 1.02, 1.03} {
			e.Rounds = append(e.Rounds, f*part)
		}
		return e
	}
	// The distribution of a time with this median, which gets long behind P99.
	points := func(p50, tail float64) (all []Point) {
		for n := 0.0; n <= 4.01; n += 0.1 {
			if n == 0 {
				all = append(all, Point{US: p50 / 40})
				continue
			}
			all = append(all, Point{Quantile: 1 - math.Pow(10, -n), US: p50 * (0.7 + 0.45*n + tail*math.Pow(n, 3)/12)})
		}
		return all
	}
	cell := func(id Identity) Cell {
		ratio, pack, unpack := ratioOf(id.Compress)
		if id.Dataset == "random" {
			ratio = 1
		}
		scale := 1 + float64(len(id.Dataset)%4)
		ratio, pack, unpack = near(ratio, 0.1), near(pack*scale, 0.2), near(unpack*scale, 0.2)
		trip := near(19+float64(id.Concurrency)*6.1, 0.15) - 3*(1-1/ratio)
		if s.faster {
			pack, trip = pack*0.7, trip*0.93
		}
		stages := map[string]Stage{}
		total := 0.0
		for i, us := range []float64{near(1.9*scale, 0.1), pack, trip, trip * 0.95, unpack, near(4.2*scale, 0.1)} {
			stages[Stages[i]] = Stage{P50: us, P95: us * 1.6, P99: us * 2.4, P999: us * 7, Mean: us * 1.1}
			total += us
		}
		stages["total"] = Stage{P50: total, P95: total * 1.5, P99: total * 2.2, P999: total * 6, Mean: total * 1.1}
		perKey, usage, server := 147+446/ratio, 120+446/ratio, near(0.7, 0.2)
		c := Cell{
			Identity: id, Values: 5000, RawBytes: 2_230_000, PlainBytes: 2_230_000, StoredBytes: int64(2_230_000 / ratio), Ratio: ratio,
			RedisBytesPerKey: &perKey, MemoryUsagePerKey: &usage, Keys: 5000,
			Operations: int64(1e6 * float64(id.Concurrency) / total), OpsPerSecond: estimate(1e6 * float64(id.Concurrency) / total),
			ValuesPerSecond: estimate(1e6 * float64(id.Concurrency) / total),
			AllocsPerOp:     estimate(near(21, 0.05)), BytesPerOp: estimate(near(1800, 0.05)), P50: estimate(total), P99: estimate(total * 2.2),
			Stages: stages, Latency: points(total, near(1, 0.8)),
			Resources: Resources{ClientCPU: near(1.2, 0.2), ServerCPU: &server, ServerIn: 120 + 446/ratio, ServerOut: 20 + 446/ratio,
				GCShare: new(near(0.03, 0.5)), GCCycles: 12, GCPauseUS: near(180, 0.6),
				RSSBytes: 61 << 20, RSSGrowth: 2 << 20, VSSBytes: 1900 << 20, Routines: 20 + id.Concurrency},
			Limit: LimitMachine, Why: "client and server used 1.9 of 2 cores", Verified: true, Rounds: []Round{{Seconds: 0.14, Steady: true}},
		}
		if id.Concurrency == 1 {
			c.Limit, c.Why = LimitWaiting, "nothing is busy: one caller waits for round trips"
		}
		if id.Rate > 0 {
			c.Limit, c.Why = LimitOffered, "no more was asked for"
			c.Late = &Stage{P50: 2, P99: 31}
			c.Service = points(total, 0.5)
			c.Latency = points(total*(1+id.Rate/40_000), 1+id.Rate/4000)
		}
		if len(s.profiles) > 0 {
			c.Profiles = map[string]Profile{}
			for _, kind := range s.profiles {
				c.Profiles[kind] = Profile{File: "profiles/" + strings.ReplaceAll(id.Compress, ":", "-") + "." + kind + ".pb.gz",
					Samples: 980, Tree: treeOf(r, pack), Shares: map[string]float64{"compress": pack / (pack + 40), "network": 1 - pack/(pack+40) - 0.12, "gc": 0.12}}
			}
		}
		return c
	}
	for i, name := range append(append([]string(nil), s.typed...), s.dynamic...) {
		track := "typed"
		if i >= len(s.typed) {
			track = "dynamic"
		}
		for _, callers := range s.callers {
			for _, client := range s.clients {
				for _, codec := range s.codecs {
					for _, compress := range s.compress {
						run.Cells = append(run.Cells, cell(Identity{Dataset: name, Track: track, Codec: codec, Compress: compress,
							Client: client, Concurrency: callers, Rate: s.rate}))
					}
				}
			}
		}
		for _, codec := range s.codecs {
			for _, compress := range s.compress {
				if strings.Contains(compress, "+dict") {
					run.Dictionaries = append(run.Dictionaries, Dictionary{Dataset: name, Codec: codec, Compress: compress, Bytes: 16 << 10,
						Builder: "cover", Samples: 5000, Tried: 12, Seconds: 1.9, Payload: 4.2})
				}
			}
		}
	}
	if s.sweep {
		sweep := Sweep{Identity: Identity{Dataset: s.typed[0], Track: "typed", Codec: "json", Compress: "zstd:3+dict",
			Client: s.clients[0], Concurrency: 64}, Capacity: 21_400, Knee: 16_000}
		for i, rate := range []float64{4000, 8000, 12_000, 16_000, 18_000, 20_000} {
			id := sweep.Identity
			id.Rate = rate
			c := cell(id)
			c.P50, c.P99 = estimate(60+rate/100), estimate(190+rate/40)
			if i > 3 {
				c.P50, c.P99 = estimate(9_000*float64(i)), estimate(60_000*float64(i))
				c.Latency = points(9_000*float64(i), 1)
			}
			sweep.Cells = append(sweep.Cells, len(run.Cells))
			run.Cells = append(run.Cells, c)
		}
		run.Sweeps = append(run.Sweeps, sweep)
	}
	if s.timeline {
		for i := range 200 {
			run.Timeline = append(run.Timeline, Moment{AtS: 7.5 + float64(i)*2.06, RSSBytes: int64(near(55<<20, 0.1)) + int64(i)<<16,
				HeapBytes: int64(near(16<<20, 0.9)), GCPauseUS: near(90, 1.6), GCCycles: 12, Goroutines: 70,
				OpsPerSecond: near(18_000, 0.5), Doing: fmt.Sprintf("round %d", i/30+1)})
		}
	}
	return run
}

// treeOf makes a flame graph where this much of 40 and it is spent on compressing.
func treeOf(r *rand.Rand, pack float64) *flame.Tree {
	t := &flame.Tree{Unit: "nanoseconds", Total: 1e9}
	var grow func(name string, depth int, value int64, c flame.Category)
	grow = func(name string, depth int, value int64, c flame.Category) {
		t.Nodes = append(t.Nodes, flame.Node{Name: name, Depth: depth, Value: value, Category: c})
		if depth > 12 || value < 2e7 {
			return
		}
		part := 0.35 + 0.6*r.Float64()
		for i := range 3 {
			grow(fmt.Sprintf("%s.(*part%d).called%d", strings.Split(name, ".")[0], depth, r.IntN(9)), depth+1, int64(float64(value)*part), c)
			if part = (1 - part) * 0.7; i == 1 || float64(value)*part < 5e6 {
				return
			}
		}
	}
	t.Nodes = append(t.Nodes, flame.Node{Name: "all", Value: t.Total})
	compress := pack / (pack + 40)
	t.Shares[flame.Compress], t.Shares[flame.Network], t.Shares[flame.GC] = compress, 0.88-compress, 0.12
	grow("redis.(*Client).Process", 1, int64(t.Shares[flame.Network]*1e9), flame.Network)
	grow("zstd.(*Encoder).EncodeAll", 1, int64(compress*1e9), flame.Compress)
	grow("runtime.gcBgMarkWorker", 1, int64(0.12*1e9), flame.GC)
	return t
}

// studied is a run of a study, with findings of which one has too many columns for half of the
// page.
func studied() *Run {
	s := whole()
	s.typed, s.callers = s.typed[:1], []int{64}
	run := outcomeOf(s)
	e := &run.Environment
	e.Study, e.Question, e.StudyCommand = "network", "Up to which bandwidth does compression have the higher throughput?", []string{"balebench", "study", "network", "--repeat", "7"}
	e.Libraries = []Library{{Name: "json", Module: "encoding/json", Version: "go1.26.0"}, {Name: "radix", Module: "github.com/mediocregopher/radix/v4", Version: "v4.1.4", Note: "dormant"}, {Name: "raw"}}
	field := func(s string) Figure { return Figure{Text: s} }
	figure := func(s string, v float64) Figure { return Figure{Text: s, Value: &v} }
	best, same := figure("2.57", 2.57), figure("0.98", 0.98)
	best.Range, best.Best, same.Range, same.Same = "2.30 to 2.79", true, "0.90 to 1.07", true
	row := []Figure{field("zstd:3+dict"), best, same, {}, field("machine")}
	run.Findings = []Finding{
		{Claims: []string{"These are medians."}},
		{About: "profile", Claims: []string{"zstd:3+dict: 2.57 times (2.30 to 2.79) over 10mbit.", "None of the others."}, Legend: []string{"Throughput: values a second"},
			Columns: []string{"compressor", "10mbit", "1gbit", "10gbit", "limit"}, Rows: [][]Figure{{field("none"), figure("1", 1), figure("1,234", 1234), figure("1", 1), field("network")}, row}},
		{About: "broad", Claims: []string{"One."}, Columns: []string{"compressor", "a", "b", "c", "d", "e", "f", "g", "h"}, Rows: [][]Figure{slices.Concat(row, row[1:])}},
	}
	return run
}

// broken has cells that failed, names that would run, and combinations that were left out.
func broken() *Run {
	run := outcomeOf(mixed())
	for i := range run.Cells {
		c := &run.Cells[i]
		if c.Dataset == "logs" {
			c.Dataset = pagetest.Hostile
		}
	}
	run.Cells[3].Verified, run.Cells[3].Mismatch, run.Cells[3].Error = false, true, "a value came back with other bytes: "+pagetest.Hostile
	run.Cells[5].Verified, run.Cells[5].Stages, run.Cells[5].Latency, run.Cells[5].Error = false, nil, nil, "dial tcp: connection refused\x00"
	run.Cells[20].Client, run.Cells[20].Why = pagetest.Hostile, pagetest.Hostile
	run.Cells[21].Codec, run.Cells[21].Compress = pagetest.Hostile, pagetest.Hostile
	run.Cells[22].Profiles = map[string]Profile{pagetest.Hostile: {File: pagetest.Hostile, Shares: map[string]float64{pagetest.Hostile: 1}}}
	run.Dictionaries[0].Reason, run.Dictionaries[1].Builder = pagetest.Hostile, pagetest.Hostile
	run.Skipped = []Skipped{{Identity: Identity{Dataset: pagetest.Hostile, Codec: "easyjson", Track: "dynamic"}, Reason: "easyjson needs generated code: " + pagetest.Hostile}}
	run.Environment.Notes, run.Environment.CPU, run.Environment.Command = []string{pagetest.Hostile}, pagetest.Hostile, []string{"balebench", "run", "--data", pagetest.Hostile, "it's"}
	run.Timeline[5].Doing = pagetest.Hostile
	run.Environment.Libraries = []Library{{Name: pagetest.Hostile, Module: pagetest.Hostile, Version: pagetest.Hostile, Note: pagetest.Hostile}}
	return run
}

func benchHTML(t *testing.T, run *Run, o PageOptions) string {
	t.Helper()
	var w bytes.Buffer
	if err := run.WritePage(&w, o); err != nil {
		t.Fatal(err)
	}
	return w.String()
}

func TestBenchHTML(t *testing.T) {
	was := mixed()
	was.seed = 3
	now := mixed()
	now.seed, now.faster = 4, true
	now.typed, now.dynamic, now.compress, now.sweep, now.profiles = now.typed[:1], nil, now.compress[5:], false, nil
	for golden, html := range map[string]string{
		"testdata/bench.html":          benchHTML(t, outcomeOf(mixed()), PageOptions{}),
		"testdata/bench-baseline.html": benchHTML(t, outcomeOf(now), PageOptions{Baseline: outcomeOf(was)}),
		"testdata/bench-study.html":    benchHTML(t, studied(), PageOptions{}),
		"testdata/bench-none.html":     benchHTML(t, &Run{}, PageOptions{Live: true}),
	} {
		pagetest.Golden(t, golden, 0, html)
	}
}

// TestBenchHTMLOfLowerBounds: they are marked wherever the page shows a latency, and have no
// change.
func TestBenchHTMLOfLowerBounds(t *testing.T) {
	run := func() *Run {
		s := mixed()
		s.typed, s.dynamic, s.profiles, s.compress = s.typed[:1], nil, nil, s.compress[:2]
		return outcomeOf(s)
	}
	exactly := run()
	if got := benchHTML(t, exactly, PageOptions{Baseline: exactly}); strings.Contains(got, "≥") {
		t.Error("a lower bound where there is none")
	}
	bounded := run()
	for _, i := range []int{0, bounded.Sweeps[0].Cells[4]} { // above the knee
		bounded.Cells[i].AtLeast = true
	}
	got := benchHTML(t, bounded, PageOptions{Baseline: exactly})
	c := &bounded.Cells[0]
	p99 := page.Microseconds(c.P99.Median)
	for what, want := range map[string]string{
		"the warnings":            "Latencies of 2 cells are lower bounds (≥)",
		"the captions":            "≥: at least, for the slowest",
		"all cells":               fmt.Sprintf(`<td data-v="%v">≥%s<td`, strconv.FormatFloat(c.P99.Median, 'f', -1, 64), p99),
		"figures":                 ">≥" + page.Microseconds(c.Stages["total"].P50) + " <small>≥" + page.Microseconds(c.Stages["total"].P99) + "</small>",
		"where the time goes":     ">≥" + page.Microseconds(c.Stages["total"].P50) + " µs</text>",
		"a line of a percentile":  ">≥none</text>",
		"the axis of percentiles": "percentile (≥: lower bounds)</text>",
		"the axis of rates":       "asked for (≥: lower bounds)</text>",
		"a line's words":          "none: P50 ≥",
		"a point's words":         "done: P50 ≥36,000 µs, P99 ≥240,000 µs",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s: no %q", what, want)
		}
	}
	change := p99 + ` <small>` + intervalOf(c.P99, page.Microseconds) + " ~0.0%"
	for name, test := range map[string]struct {
		baseline *Run
		told     bool
	}{"an exact figure": {exactly, true}, "a lower bound": {bounded, false}} {
		if got := benchHTML(t, exactly, PageOptions{Baseline: test.baseline}); strings.Contains(got, change) != test.told {
			t.Errorf("a change since %s: told %v", name, !test.told)
		}
	}
}

func TestBenchHTMLIsSmall(t *testing.T) {
	const limit = 1_100_000
	large := whole()
	large.callers = []int{1, 16, 64, 256}
	large.typed = large.typed[:5]
	large.compress = append(large.compress[:len(large.compress):len(large.compress)], "zstd:19+dict") // 200 cells
	large.profiles = []string{"cpu", "heap", "mutex", "block"}
	for name, s := range map[string]benchShape{"180 cells": whole(), "200 cells with profiles": large} {
		run := outcomeOf(s)
		for with, baseline := range map[string]*Run{"": nil, ", and a baseline": outcomeOf(s)} {
			got := benchHTML(t, run, PageOptions{Baseline: baseline})
			t.Logf("%s%s (%d): %d bytes", name, with, len(run.Cells), len(got))
			if len(got) > limit {
				t.Errorf("%s%s: %d bytes, more than %d", name, with, len(got), limit)
			}
		}
	}
}

func TestBenchHTMLIsClosed(t *testing.T) {
	got := benchHTML(t, broken(), PageOptions{Baseline: broken()})
	pagetest.Closed(t, got)
	if strings.Contains(got, "connect-src") {
		t.Error("it may ask for something")
	}
	for _, want := range []string{`<b class="badge bad">FAILED</b> a value came back`,
		`<b class="badge bad">ERROR</b> dial tcp: connection refused\x00`, "&lt;script&gt;pwned=1", `&#39;it&#39;\&#39;&#39;s&#39;`, "easyjson needs generated code"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s", want)
		}
	}
	if live := benchHTML(t, broken(), PageOptions{Live: true}); !strings.Contains(live, "connect-src 'self';") || !strings.Contains(live, `data-live="true"`) {
		t.Error("a live page cannot ask for more")
	}
}

// TestBenchHTMLTracks: no table and no picture has cells of two tracks.
func TestBenchHTMLTracks(t *testing.T) {
	cells := benchCells(outcomeOf(mixed()), nil)
	for _, set := range sheetsOf(cells) {
		for _, c := range set {
			if c.Track != set[0].Track || c.Dataset != set[0].Dataset {
				t.Errorf("%s of the %s track stands with %s of the %s track", c.Dataset, c.Track, set[0].Dataset, set[0].Track)
			}
		}
	}
	got := benchHTML(t, outcomeOf(mixed()), PageOptions{})
	for _, want := range []string{`<h2 id="cells-typed-heading">All cells, typed track</h2>`,
		`<h2 id="cells-dynamic-heading">All cells, dynamic track</h2>`, `<option value="data-profile">profile, typed</option>`,
		`<option value="data-profile-2">profile, dynamic</option>`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s", want)
		}
	}
}

// TestBenchHTMLOfAnything: no run, however odd, panics or draws at no place.
func TestBenchHTMLOfAnything(t *testing.T) {
	odd := outcomeOf(mixed())
	odd.Cells[0].Stages = map[string]Stage{}
	odd.Cells[1].Latency = nil
	odd.Cells[2].Latency = []Point{{Quantile: 1, US: 0}}
	odd.Cells[4].Latency = []Point{{Quantile: 0, US: 0}, {Quantile: 1, US: 1e9}}
	odd.Cells[6].Values, odd.Cells[6].Ratio, odd.Cells[6].Concurrency = 0, 0, 0
	odd.Cells[7].Resources = Resources{ClientCPU: -1}
	odd.Cells[8].OpsPerSecond, odd.Cells[8].P99 = Estimate{}, Estimate{}
	odd.Sweeps[0].Cells = []int{-1, 10_000, 3}
	odd.Sweeps[0].Knee = 0
	odd.Timeline = make([]Moment, 3)
	only := &Run{Cells: []Cell{{}}, Sweeps: make([]Sweep, 2), Timeline: make([]Moment, 1),
		Skipped: make([]Skipped, 200), Dictionaries: make([]Dictionary, 1)}
	zero := outcomeOf(mixed())
	for i := range zero.Cells {
		for name := range zero.Cells[i].Stages {
			zero.Cells[i].Stages[name] = Stage{}
		}
	}
	for _, run := range []*Run{odd, {}, only, zero} {
		for _, baseline := range []*Run{nil, odd, {}} {
			got := strings.Split(benchHTML(t, run, PageOptions{Baseline: baseline}), "<script>")[0]
			for _, bad := range []string{"NaN", "Inf"} {
				if i := strings.Index(got, bad); i >= 0 {
					t.Errorf("a figure that is none: %q", got[max(0, i-80):min(len(got), i+20)])
				}
			}
		}
	}
}

func TestBenchPanels(t *testing.T) {
	codecs := []string{"json", "jsonv2", "goccy", "sonic", "jsoniter", "easyjson", "gob", "msgpack", "shamaton", "msgp", "cbor", "protobuf", "raw"}
	for name, c := range map[string]struct {
		codecs, compress, clients []string
		pictures                  int // for each number of callers
		title                     string
		names                     []string // of the first
	}{
		"compressors":             {codecs[:1], benchCompressors, []string{"goredis"}, 1, "1 caller", benchCompressors},
		"codecs and compressors":  {codecs[:3], benchCompressors, []string{"goredis", "rueidis"}, 6, "1 caller, json, goredis", benchCompressors},
		"codecs":                  {codecs, []string{"none"}, []string{"goredis"}, 1, "1 caller", codecs},
		"codecs of three clients": {codecs, []string{"none"}, []string{"goredis", "rueidis", "redigo"}, 3, "1 caller, goredis", codecs},
		"codecs and two settings": {codecs[:12], []string{"none", "zstd:3+dict"}, []string{"goredis"}, 2, "1 caller, none", codecs[:12]},
		"more than fit":           {append(codecs[:13:13], "a", "b"), []string{"none"}, []string{"goredis"}, 2, "1 caller", codecs[:8]},
	} {
		s := whole()
		s.typed, s.codecs, s.compress, s.clients, s.callers = s.typed[:1], c.codecs, c.compress, c.clients, []int{64, 1}
		cells := benchCells(outcomeOf(s), nil)
		panels := panelsOf(cells)
		if len(panels) != 2*c.pictures {
			t.Errorf("%s: %d pictures, want %d for each number of callers", name, len(panels), c.pictures)
		}
		if p := panels[0]; p.title != c.title || !cmp.Equal(p.names, c.names) {
			t.Errorf("%s: %q has %q, want %q with %q", name, p.title, p.names, c.title, c.names)
		}
		n := 0
		for _, p := range panels {
			n += len(p.cells)
			if len(p.cells) > panelCells {
				t.Errorf("%s: %q has %d cells", name, p.title, len(p.cells))
			}
		}
		if n != len(cells) {
			t.Errorf("%s: %d cells in pictures, of %d", name, n, len(cells))
		}
	}
}

// TestBenchHTMLOfStudy: the question first, what answers it before any figure, and the commands
// that do it again.
func TestBenchHTMLOfStudy(t *testing.T) {
	run := studied()
	got := benchHTML(t, run, PageOptions{})
	at := 0
	for _, want := range []string{"<title>balebench study network: Up to which bandwidth", `<h1 id="answer">Up to which bandwidth does compression have the higher throughput?</h1>`, "<li>These are medians.</li>",
		`<section aria-label="profile">`, "<li>zstd:3&#43;dict: 2.57 times (2.30 to 2.79) over 10mbit.</li>", `<dl class="figures">`, `<section id="found"`, "no significant difference from 1. Beside a figure",
		`<td data-v="1234">1,234`, `<td data-v="2.57">2.57* <small>2.30 to 2.79</small>`, `<div class="broad">`, "<code>balebench study network --repeat 7</code>", "# what the study stands for</code>", "radix/v4"} {
		i := strings.Index(got[at:], want)
		if i < 0 {
			t.Fatalf("no %q behind the first %d bytes", want, at)
		}
		at += i
	}
	if strings.Contains(got, "Choose json") {
		t.Error("it has the choices of a run that is no study, too")
	}
	run.Environment.Private, run.Environment.StudyCommand = false, nil
	if want := []string{"go install github.com/balekv/bale/cmd/balebench@v0.6.0", "balebench run --data 'my data.ndjson' --compress none,zstd:3+dict --redis redis://HOST:PORT"}; !cmp.Equal(want, repeat(&run.Environment)) {
		t.Errorf("to repeat it: %q, want %q", repeat(&run.Environment), want)
	}
}

// TestBenchAlone: the last picture of an odd number has a row for itself, and is drawn for it and
// for a telephone.
func TestBenchAlone(t *testing.T) {
	draw := func(id string, width page.Px) *page.Drawing {
		if id == "nothing" {
			return nil
		}
		return &page.Drawing{ID: id, Width: width}
	}
	for n, want := range map[int]string{0: "", 1: "a-wide 750 wide, a 360 narrow", 2: "a 360 ; b 360 ", 3: "a 360 ; b 360 ; c-wide 750 wide, c 360 narrow"} {
		all := []sketch{{"nothing", draw}}
		for i := range n {
			all = append(all, sketch{string(rune('a' + i)), draw})
		}
		var rows []string
		for _, f := range arranged(all) {
			var each []string
			for _, d := range f {
				each = append(each, fmt.Sprintf("%s %v %s", d.ID, d.Width, d.Class))
			}
			rows = append(rows, strings.Join(each, ", "))
		}
		if got := strings.Join(rows, "; "); got != want {
			t.Errorf("%d pictures: %q, want %q", n, got, want)
		}
	}
}

func TestFindingsText(t *testing.T) {
	for width, want := range map[int]string{
		80: `profile
- Throughput: values a second
- *: the best of its column, or without a significant difference from it
- ~: no significant difference from 1
- In parentheses: the 95% interval
compressor                 10mbit                 1gbit  10gbit    limit
──────────────────────────────────────────────────────────────────────────
none                            1                 1,234       1  network
zstd:3+dict  2.57* (2.30 to 2.79)  0.98~ (0.90 to 1.07)          machine

These are medians.
profile:
- zstd:3+dict: 2.57 times (2.30 to 2.79) over 10mbit.
- None of the others.
`, 60: `profile
- Throughput: values a second
- *: the best of its column, or without a significant
  difference from it
- ~: no significant difference from 1
compressor   10mbit  1gbit  10gbit    limit
─────────────────────────────────────────────
none              1  1,234       1  network
zstd:3+dict   2.57*  0.98~          machine

These are medians.
profile:
- zstd:3+dict: 2.57 times (2.30 to 2.79) over 10mbit.
- None of the others.
`} {
		var b strings.Builder
		findings(page.NewSheet(&b, width), studied().Findings[:2])
		if diff := cmp.Diff(want, b.String()); diff != "" {
			t.Errorf("%d wide (-want +got):\n%s", width, diff)
		}
	}
}

func TestBenchHues(t *testing.T) {
	cells := func(compress ...string) (all []Cell) {
		for i, c := range compress {
			all = append(all, Cell{Identity: Identity{Compress: c, Codec: "codec" + strconv.Itoa(i), Client: "one"}})
		}
		return all
	}
	for name, c := range map[string]struct {
		cells []Cell
		want  []string
	}{
		"as ever":    {cells("zstd:3", "none", "zstd:19+dict", "s2"), []string{"hue-f", "hue-a", "hue-f", "hue-c"}},
		"an unknown": {cells("none", "brotli:4", "zstd", "xz"), []string{"hue-a", "hue-b", "hue-f", "hue-c"}},
		"by codec":   {cells("none", "none", "none"), []string{"hue-a", "hue-b", "hue-c"}},
		"many codecs": {cells("s2", "s2", "s2", "s2", "s2", "s2", "s2", "s2", "s2"), []string{"hue-a", "hue-b", "hue-c", "hue-d", "hue-e", "hue-f",
			"hue-g", "hue-h", "hue-a"}},
	} {
		hue := huesOf(c.cells)
		var got []string
		for i := range c.cells {
			got = append(got, hue(&c.cells[i].Identity))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestLogScale(t *testing.T) {
	for _, c := range []struct {
		least, most float64
		want        []float64
	}{
		{1, 10, []float64{1, 2, 5, 10}}, {37, 180, []float64{20, 50, 100, 200}}, {3, 40_000, []float64{10, 100, 1000, 10_000}},
		{0, 0, []float64{0.001, 0.002, 0.005, 0.01}}, {5, 5, []float64{5, 10, 20, 50}},
	} {
		s := newLogScale(c.least, c.most, 0, 100)
		got := s.ticks()
		for i := range got {
			got[i] = math.Round(got[i]*1e6) / 1e6
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%v to %v (-want +got):\n%s", c.least, c.most, diff)
		}
		if s.at(c.most) > 100 || s.at(c.least) < 0 || s.at(0) != 0 {
			t.Errorf("%v to %v lie at %v and %v", c.least, c.most, s.at(c.least), s.at(c.most))
		}
	}
}

// TestGridLines: an axis has three to five lines.
func TestGridLines(t *testing.T) {
	for least := 1.0; least < 1000; least *= 1.37 {
		for most := 1.2 * least; most < 1e9; most *= 1.9 {
			if n := len(newLogScale(least, most, 0, 100).ticks()); n < 3 || n > 5 {
				t.Errorf("%.4g to %.4g: %d", least, most, n)
			}
		}
	}
}

// TestBenchHTMLContrast: what is drawn has 3:1 against its ground, text 4.5:1, as in
// TestContrast of the page kit.
func TestBenchHTMLContrast(t *testing.T) {
	own, all := pagetest.Themes(t, benchStyle), pagetest.Themes(t, page.Style)
	for i, name := range []string{"light", "dark"} {
		checked := map[string]bool{}
		check := func(front, ground string, least float64) {
			t.Helper()
			maps.Copy(all[i], own[i])
			checked[front], checked[ground] = true, true
			if got := pagetest.Contrast(t, all[i], front, ground); got < least {
				t.Errorf("%s: %s on %s has a contrast of %.2f, less than %.1f", name, front, ground, got, least)
			}
		}
		for colour := range own[i] {
			if colour != "on-read" {
				check(colour, "paper", 3)
			}
		}
		for _, ground := range []string{"serialize", "compress", "travel", "hue-b", "hue-h", "bad"} { // bars, frames of flame graphs, badges
			check("paper", ground, 4.5)
		}
		for _, ground := range []string{"serialize-read", "compress-read", "travel-read"} {
			check("on-read", ground, 4.5)
		}
		check("ink", "rule", 4.5)
		for colour := range own[i] {
			if !checked[colour] {
				t.Errorf("%s: %s is compared with nothing", name, colour)
			}
		}
	}
	if loose := regexp.MustCompile(`(?:color|fill|stroke|background|border[a-z-]*):[^;}]*#[0-9a-f]+`).FindString(benchStyle); loose != "" {
		t.Errorf("a colour beside the themes: %s", loose)
	}
}

func BenchmarkBenchContent(b *testing.B) {
	run := outcomeOf(whole())
	var w bytes.Buffer
	b.ReportAllocs()
	for b.Loop() {
		w.Reset()
		if err := run.WriteContent(&w, PageOptions{Live: true}); err != nil {
			b.Fatal(err)
		}
	}
}

// TestForgedLatencies: a line of latencies that no clock can show has an end.
func TestForgedLatencies(t *testing.T) {
	for _, most := range []float64{1e300, 1.5e308, math.Inf(1)} {
		if ticks := newLogScale(1, most, 0, 100).ticks(); len(ticks) > 20 {
			t.Errorf("%v: %d ticks", most, len(ticks))
		}
		if ticks := newLogScale(most, most, 0, 100).ticks(); len(ticks) > 20 {
			t.Errorf("from %v: %d ticks", most, len(ticks))
		}
	}
}

// TestHeadline: the page begins with what the run means for people, and its first picture is the
// memory that each setting takes.
func TestHeadline(t *testing.T) {
	none, packed := cell("m", "none", 64, 100, 1000, 100, 1), cell("m", "zstd", 64, 36, 360, 100, 1)
	packed.Latency, none.Latency = nil, nil
	for want, rate := range map[string]float64{"64% less memory, no measurable slowdown": 100, "64% less memory, 20% less throughput": 80, "64% less memory, 50% more throughput": 150} {
		packed.ValuesPerSecond = about(rate)
		html := benchHTML(t, &Run{Cells: []Cell{none, packed}, Environment: Environment{Rounds: 8, RedisVersion: "7.0.15"}}, PageOptions{})
		if !strings.Contains(html, `<h1 id="answer">`+want+"</h1>") {
			t.Errorf("no %q in %s", want, html[strings.Index(html, "<h1"):][:200])
		}
		if svg := html[strings.Index(html, `role="img"`):]; !strings.Contains(svg[:strings.Index(svg, "</svg>")], "bytes a key in Redis</text>") {
			t.Error("the first picture is another one")
		}
		for _, old := range []string{"<dt>Cells", "<dt>Operations", ">P0<"} {
			if strings.Contains(html, old) {
				t.Errorf("it has %q", old)
			}
		}
	}
}

// TestHeadlineOfRates: cells at given rates, and those without plain values, have a headline for
// people, too.
func TestHeadlineOfRates(t *testing.T) {
	at := func(c Cell, rate, p99 float64) Cell {
		c.Rate, c.P99, c.Limit = rate, about(p99), LimitOffered
		return c
	}
	none, packed := cell("m", "none", 64, 100, 1000, 100, 1), cell("m", "zstd", 64, 36, 360, 100, 1)
	other, otherPacked := cell("n", "none", 64, 100, 1000, 100, 1), cell("n", "zstd", 64, 80, 800, 100, 1)
	missed := at(none, 2000, 90)
	missed.Limit = LimitClient
	wrong := none
	wrong.Verified = false
	s2 := cell("m", "s2", 64, 72, 720, 100, 1)
	for want, cells := range map[string][]Cell{
		"64% less memory at 1,000 operations a second, no measurable change of P99": {at(none, 500, 100), at(packed, 500, 120), at(none, 1000, 100), at(packed, 1000, 100), missed, at(packed, 2000, 100)},
		"64% less memory at 500 operations a second, 20% higher P99":                {at(none, 500, 100), at(packed, 500, 120)},
		"64% less memory at 500 operations a second, 20% lower P99":                 {at(none, 500, 100), at(packed, 500, 80)},
		"20% to 64% less memory at 500 operations a second, by dataset":             {at(none, 500, 100), at(packed, 500, 100), at(other, 500, 100), at(otherPacked, 500, 100)},
		"At 500 operations a second compression saves too little":                   {at(none, 500, 100)},
		"None of these rates is kept with plain values":                             {missed, at(packed, 2000, 100)},
		"No plain values to compare with at these rates":                            {at(packed, 2000, 100)},
		"50% less memory than with s2, no measurable slowdown":                      {s2, packed},
		"720\u00a0B a key with s2, and no plain values to compare with":             {s2},
		"Nothing was verified": {wrong},
	} {
		html := benchHTML(t, &Run{Cells: cells, Environment: Environment{Rounds: 8, RedisVersion: "7.0.15"}}, PageOptions{})
		if !strings.Contains(html, `<h1 id="answer">`+want+"</h1>") {
			t.Errorf("no %q in %s", want, html[strings.Index(html, "<h1"):][:200])
		}
	}
}

// TestFamilies: ten lines differ in colour or dash, and a family has one colour.
func TestFamilies(t *testing.T) {
	names := []string{"mutex", "atomic", "shards", "counters", "ring", "channel", "prometheus", "otel", "expvar", "log", "ring:dropped"}
	seen := map[string]bool{}
	classes := families(names)
	for i, class := range classes {
		if seen[class] {
			t.Errorf("%s looks like another one: %s", names[i], class)
		}
		seen[class] = true
	}
	if hue, _, _ := strings.Cut(classes[10], " "); hue != classes[4] {
		t.Errorf("a family of two colours: %q and %q", classes[4], classes[10])
	}
}

// TestLatencyInWords: the description of a picture of latencies names the slowest as such.
func TestLatencyInWords(t *testing.T) {
	line := func(name string, us float64) Distribution {
		return Distribution{Name: name, Latency: []Point{{Quantile: 0.5, US: us}, {Quantile: 0.99, US: 2 * us}}}
	}
	p := Percentiles{Title: "title", Lines: []Distribution{line("quick", 10), line("slow", 100), line("middling", 50)}}
	if got := p.draw("id", 500).Desc; !strings.Contains(got, "take least with quick and most with slow.") {
		t.Error(got)
	}
}

// TestOneSaving: the headline saves what the sentence below it does, from the bytes in print.
func TestOneSaving(t *testing.T) {
	cell, plain := 202.6, 541.4 // 62.6% less; in print 203 and 541, 62.5%
	c := choice{cell: &Cell{Identity: Identity{Compress: "zstd"}, RedisBytesPerKey: &cell}, plain: &Cell{RedisBytesPerKey: &plain}}
	if got := c.headline(); !strings.HasPrefix(got, "62% less memory") {
		t.Error(got)
	}
}
