package outcome

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/page/pagetest"
	"github.com/google/go-cmp/cmp"
)

// about is an estimate with an interval of 1%.
func about(v float64) Estimate {
	return Estimate{Median: v, Interval: &[2]float64{0.99 * v, 1.01 * v}}
}

// cell makes a cell whose figures differ in the table.
func cell(dataset, compress string, callers int, stored int64, perKey, rate, p50 float64) Cell {
	stages := map[string]Stage{}
	for i, name := range Stages {
		f := p50 * float64(i+1) / 7
		stages[name] = Stage{P50: f, P95: 2 * f, P99: 3 * f, P999: 4 * f, Mean: 1.5 * f}
	}
	usage := perKey - 8
	c := Cell{
		Identity: Identity{Client: "goredis", Dataset: dataset, Track: "dynamic", Codec: "json", Compress: compress, Concurrency: callers}, Values: 2512,
		RawBytes: 2_105_591, StoredBytes: stored, Ratio: 2_105_591 / float64(stored), RedisBytesPerKey: &perKey, MemoryUsagePerKey: &usage,
		OpsPerSecond: about(rate), ValuesPerSecond: about(rate), P50: about(p50), P99: about(3 * p50), AllocsPerOp: about(98.2), BytesPerOp: about(7086),
		Resources: Resources{RSSBytes: 28 << 20, GCShare: new(0.031)}, Limit: LimitMachine, Verified: true, Stages: stages, Operations: 1000,
	}
	return c
}

func result() *Run {
	failed := cell("movies", "gzip", 64, 1_300_000, 675, 26_948, 2486)
	failed.Verified, failed.Mismatch, failed.Error = false, true, "MISMATCH: a value read back differs from the one written"
	return &Run{
		Environment: Environment{Go: "go1.26.8", CPU: "Some CPU", Cores: 2, RedisVersion: "7.0.15", Rounds: 3, DurationS: 1,
			Notes: []string{"movies: a sample of 2512 of its 9000 values"}},
		Dictionaries: []Dictionary{
			{Dataset: "movies", Track: "dynamic", Codec: "json", Compress: "zstd:3+dict", ID: 0xca49d507, Bytes: 114_688, Builder: "libzstd fastcover k=128 d=6", Samples: 1256, Tried: 280, Seconds: 3.84, Payload: 3.08},
			{Dataset: "movies", Track: "dynamic", Codec: "json", Compress: "s2+dict", ID: 7, Bytes: 65_536, Builder: "go cover k=128 d=8", Samples: 1256, Tried: 280, Seconds: 3.1, Payload: 2.2},
			{Dataset: "random", Track: "dynamic", Codec: "json", Compress: "zstd:3+dict", Samples: 1256, Seconds: 3, Reason: "no dictionary pays: the best of 280, go cover k=512 d=8 with 1851 bytes, takes 1296 bytes a value in Redis where there are 1296 without one"},
		},
		Cells: []Cell{
			cell("movies", "none", 1, 2_105_591, 1018, 10_601, 67),
			cell("movies", "none", 64, 2_105_591, 1018, 38_659, 1696),
			cell("movies", "zstd:fastest", 1, 1_350_000, 688, 9_133, 122),
			cell("movies", "zstd:fastest", 64, 1_350_000, 688, 30_117, 2140),
			cell("movies", "zstd:better", 1, 1_308_000, 669, 8_753, 118),
			cell("movies", "zstd:better", 64, 1_308_000, 669, 28_271, 2343),
			failed,
			cell("random", "none", 64, 2_105_591, 1018, 38_659, 1696),
			cell("random", "zstd:fastest", 64, 2_105_591, 1018, 31_000, 1896),
		},
	}
}

func TestTable(t *testing.T) {
	for _, test := range []struct {
		golden  string
		options TextOptions
		change  func(*Run)
	}{
		{"testdata/table.txt", TextOptions{}, func(*Run) {}},
		{"testdata/clients.txt", TextOptions{Stages: true}, func(r *Run) {
			r.Cells = r.Cells[:2]
			r.Cells[1].Compress = "zstd:3/go+dict"
			for _, name := range []string{"goredis:16+auto", "rueidis", "rueidis:256-auto", "redigo"} {
				for _, c := range r.Cells[:2] {
					c.Client, c.ValuesPerSecond = name, about(c.ValuesPerSecond.Median*1.1)
					r.Cells = append(r.Cells, c)
				}
			}
			r.Cells[3].Verified, r.Cells[3].Error = false, "get: i/o timeout"
		}},
		{"testdata/narrow.txt", TextOptions{}, func(r *Run) { // the second table, too, does without what the first has no room for
			r.Cells, r.Dictionaries = append(r.Cells[:2], r.Cells[7:]...), nil
			r.Cells[0].Client, r.Cells[1].Client = "goredis:16+auto", "rueidis:256-auto"
			r.Cells[0].Codec, r.Cells[1].Compress = "a-long-codec", "zstd:3/go+dict"
		}},
		{"testdata/no-cells.txt", TextOptions{}, func(r *Run) {
			r.Cells, r.Environment.Notes = nil, append(r.Environment.Notes, "random: another note")
			r.Dictionaries = append(r.Dictionaries[2:], r.Dictionaries[2])
			r.Dictionaries[1].Compress = "s2+dict"
		}},
		{"testdata/interrupted.txt", TextOptions{}, func(r *Run) {
			r.Cells, r.Dictionaries = r.Cells[:3], nil
			r.Environment.Interrupted, r.Environment.Rounds, r.Environment.DurationS, r.Environment.CellsLeftOut = true, 1, 1./3, 6
			r.Environment.Planned = 3
		}},
		{"testdata/stages.txt", TextOptions{Stages: true}, func(r *Run) { r.Cells = r.Cells[:2] }},
		{"testdata/embedded.txt", TextOptions{}, func(r *Run) {
			r.Environment.Embedded, r.Environment.RedisVersion = true, "miniredis"
			for i := range r.Cells {
				r.Cells[i].RedisBytesPerKey, r.Cells[i].MemoryUsagePerKey = nil, nil
			}
		}},
	} {
		r := result()
		test.change(r)
		var got bytes.Buffer
		r.WriteText(page.NewSheet(&got, 0), test.options)
		pagetest.Golden(t, test.golden, page.Width, got.String())
	}
}

// TestTableOfLowerBounds: latencies that are lower bounds are shown as such, and are never the
// best, nor do they keep others from it.
func TestTableOfLowerBounds(t *testing.T) {
	three := func(bounds ...int) *Run {
		r := result()
		r.Cells = []Cell{cell("movies", "none", 64, 2_105_591, 1018, 30_000, 700), cell("movies", "s2", 64, 1_500_000, 800, 20_000, 1400), cell("movies", "gzip", 64, 1_300_000, 700, 10_000, 7000)}
		r.Dictionaries = nil
		for _, i := range bounds {
			r.Cells[i].AtLeast = true
		}
		return r
	}
	for _, test := range []struct {
		bounds []int
		want   []spot // that are marked
		untold []string
	}{
		{nil, []spot{{0, "P50"}, {0, "P99"}}, nil},
		{[]int{0}, []spot{{1, "P50"}, {1, "P99"}}, nil}, // although its numbers are the lowest
		{[]int{1, 2}, []spot{{0, "P50"}, {0, "P99"}}, nil},
		{[]int{0, 1, 2}, nil, []string{"P50 and P99: no significant difference"}},
	} {
		r := three(test.bounds...)
		got, untold := (&tables{run: r, figures: figures}).marks(r.Cells)
		var latencies []spot
		for i := range r.Cells {
			for _, name := range []string{"P50", "P99"} {
				if s := (spot{i, name}); got[s] {
					latencies = append(latencies, s)
				}
			}
		}
		if diff := cmp.Diff(test.want, latencies, cmp.AllowUnexported(spot{})); diff != "" {
			t.Errorf("bounds %v (-want +got):\n%s", test.bounds, diff)
		}
		if diff := cmp.Diff(test.untold, untold); diff != "" {
			t.Errorf("bounds %v (-want +got):\n%s", test.bounds, diff)
		}
	}
	var b bytes.Buffer
	three(2).WriteText(page.NewSheet(&b, 0), TextOptions{Stages: true})
	for _, want := range []string{"≥: at least, for", "≥7000 ≥21000 ≥28000", "6000  ≥7000\n", "≥7000.00  ≥14000.00  ≥21000.00  ≥28000.00  ≥10500.00\n"} {
		if text := strings.ReplaceAll(b.String(), "\n       ", " "); !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if n := strings.Count(b.String(), "≥"); n != 10 { // the legend, 3 of the summary, the median, and 5 of the percentiles
		t.Errorf("%d times ≥, want 10\n%s", n, b.String())
	}
}

// atRates are a cell at some rates, of which it kept those up to the first that is too high.
func atRates(c Cell, tooHigh float64, rates ...float64) (all []Cell) {
	for _, rate := range rates {
		c.Rate, c.Limit, c.OpsPerSecond = rate, LimitOffered, about(rate)
		from := 1.0
		if rate >= tooHigh {
			c.Limit, c.OpsPerSecond, from = LimitServer, about(0.9*tooHigh), 40
		}
		c.ValuesPerSecond = c.OpsPerSecond
		c.P50, c.P99 = about(from*300), about(from*1500)
		c.Service = []Point{{Quantile: 0, US: 100}, {Quantile: 0.5, US: 290}, {Quantile: 0.99, US: 1400}, {Quantile: 1, US: 2000}}
		c.Late = &Stage{P50: 2, P99: 31}
		all = append(all, c)
	}
	return all
}

// swept are two cells at rising rates; the second keeps one that is higher than one that it did
// not.
func swept(r *Run) {
	r.Cells, r.Dictionaries, r.Environment.Notes = nil, nil, nil
	for i, c := range []Cell{cell("movies", "none", 64, 2_105_591, 1018, 0, 250), cell("movies", "zstd:3", 64, 1_350_000, 688, 0, 300)} {
		c.Identity.Rate = 0
		s := Sweep{Identity: c.Identity, Capacity: 10_000, Knee: 7000, Cells: []int{4 * i, 4*i + 1, 4*i + 2, 4*i + 3}}
		r.Cells = append(r.Cells, atRates(c, 9000, 1000, 5000, 7000, 10_000)...)
		r.Sweeps = append(r.Sweeps, s)
	}
	r.Cells[5].Limit, r.Cells[7].Unstarted, r.Cells[7].AtLeast = LimitMachine, 12, true
}

// TestLoads: what a table shows depends on how operations came, and on how wide the terminal is.
func TestLoads(t *testing.T) {
	for _, test := range []struct {
		golden string
		width  int
		change func(*Run)
	}{
		{"testdata/table-80.txt", 80, func(*Run) {}},
		{"testdata/table-120.txt", 120, func(r *Run) {
			r.Environment.Libraries = []Library{
				{Name: "json", Module: "encoding/json", Version: "go1.26.8"}, {Name: "json-iterator", Module: "github.com/json-iterator/go", Version: "v1.1.12", Note: "archived by its authors"},
				{Name: "raw"}, {Name: "s2", Module: "github.com/klauspost/compress", Version: "v1"}, {Name: "gzip", Module: "github.com/klauspost/compress", Version: "v1"},
				{Name: "goredis", Module: "github.com/redis/go-redis/v9", Version: "v9.23.0"},
			}
		}},
		{"testdata/sweep.txt", 100, swept},
		{"testdata/sweep-80.txt", 80, swept},
		{"testdata/rate.txt", 80, func(r *Run) {
			swept(r)
			r.Sweeps = nil
			r.Cells = []Cell{r.Cells[1], r.Cells[4], r.Cells[5], r.Cells[3], r.Cells[7]}
			for i, rate := range []float64{1000, 1000, 2000, 3000, 3000} {
				r.Cells[i].Rate = rate
			}
			r.Cells[0].P99, r.Cells[1].P99 = about(1500), about(2500)
			r.Cells[1].Late = &Stage{P99: 1300}
		}},
		{"testdata/mix.txt", 80, func(r *Run) {
			r.Environment.Mix, r.Environment.Load = "90:10", "of 100 operations 90 are a GET and 10 a SET"
			r.Cells, r.Dictionaries = r.Cells[7:], nil
			for i := range r.Cells {
				r.Cells[i].Hits, r.Cells[i].Misses = 700, 200
			}
		}},
		{"testdata/untold.txt", 80, func(r *Run) { // with 64 callers no throughput is told from another, nor are any P50
			r.Cells, r.Dictionaries = r.Cells[:6], nil
			for i := range r.Cells {
				if c := &r.Cells[i]; c.Concurrency == 64 {
					c.ValuesPerSecond.Interval, c.P50.Interval = &[2]float64{5000, 1.25e6}, &[2]float64{1000, 4000}
				}
			}
		}},
		{"testdata/few-rounds.txt", 80, func(r *Run) {
			r.Cells, r.Dictionaries = r.Cells[7:], nil
			for i := range r.Cells {
				c := &r.Cells[i]
				c.ValuesPerSecond.Interval, c.P50.Interval, c.P99.Interval, c.Resources.GCShare = nil, nil, nil, nil
			}
		}},
	} {
		r := result()
		test.change(r)
		var got bytes.Buffer
		r.WriteText(page.NewSheet(&got, test.width), TextOptions{})
		pagetest.Golden(t, test.golden, test.width, got.String())
	}
}

// TestLegend: every column is explained that there is, and none that there is not.
func TestLegend(t *testing.T) {
	for width := 60; width <= 140; width += 10 {
		for name, change := range map[string]func(*Run){"closed": func(*Run) {}, "open": swept} {
			r := result()
			change(r)
			var got bytes.Buffer
			r.WriteText(page.NewSheet(&got, width), TextOptions{})
			legend, rest, _ := strings.Cut(got.String(), "\n\n")
			legend = strings.Join(strings.Fields(legend), " ")
			explained, _, _ := strings.Cut(legend, "Left out")
			header := rest[strings.Index(rest, "codec "):]
			header, _, _ = strings.Cut(header, "\n")
			for _, f := range append(slices.Clone(figures), figure{name: limited, about: "what limited throughput"}) {
				if f.about == "" || f.name == figures[0].name {
					continue
				}
				shown, told := strings.Contains(header+" ", " "+f.name+" "), strings.Contains(explained, " "+f.name+":") || strings.Contains(explained, " "+f.name+", ") || strings.Contains(explained, " "+f.name+" and")
				if shown != told {
					t.Errorf("%s, %d columns: %s: shown %v, explained %v\n%s\n%s", name, width, f.name, shown, told, legend, header)
				}
			}
		}
	}
}

func TestReach(t *testing.T) {
	for _, test := range []struct {
		low, high float64
		want      string
	}{
		{8123, 13_999, "8100–14k"}, {38_272, 39_045, "38.3k–39k"}, {0.0512, 3.2, "0.051–3.2"}, {999, 1001, "999–1000"}, {950_000, 1_250_000, "950k–1.3M"}, {0, 12, "0–12"}, {9990, 9996, "9990–10k"},
	} {
		if got := intervalText([2]float64{test.low, test.high}); got != test.want {
			t.Errorf("%v to %v: %s, want %s", test.low, test.high, got, test.want)
		}
	}
}

func by(client string, c Cell) Cell {
	c.Client = client
	return c
}

func as(codec string, c Cell) Cell {
	c.Codec = codec
	return c
}

// TestGrownValues: a ratio below 1 is a warning, once for all loads, with its reason.
func TestGrownValues(t *testing.T) {
	larger := Cell{Identity: Identity{Dataset: "pages", Track: "dynamic", Codec: "json", Compress: "none"}, RawBytes: 800, PlainBytes: 1000, Ratio: 0.8}
	escaped := Cell{Identity: Identity{Dataset: "frames", Track: "dynamic", Codec: "raw", Compress: "none"}, RawBytes: 100, PlainBytes: 100, Ratio: 0.96}
	smaller, equal := larger, larger
	smaller.Compress, smaller.Ratio = "zstd", 4
	equal.Dataset, equal.Ratio = "movies", 0.996
	got := (&Run{Cells: []Cell{larger, larger, escaped, smaller, equal}}).Warnings()
	want := []string{
		"pages (dynamic) with codec json and compressor none is larger than the given values, ratio 0.80: json makes 1.25 times their bytes",
		"frames (dynamic) with codec raw and compressor none is larger than the given values, ratio 0.96: values that start as bale's frames are escaped",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestVerdict(t *testing.T) {
	for _, test := range []struct {
		name  string
		cells []Cell
		want  string
	}{
		{"the fastest of the smallest", []Cell{cell("m", "none", 64, 100, 1000, 100, 1), cell("m", "zstd", 64, 50, 510, 90, 1), cell("m", "zstd:better", 64, 49, 500, 80, 1)},
			"Choose json + zstd for m: 510 bytes a key in Redis instead of 1000 (49% less), at 0.90 times (0.88 to 0.92) the throughput of json + none with 64 callers."},
		{"not at any price", []Cell{cell("m", "none", 64, 100, 1000, 100, 1), cell("m", "s2", 64, 80, 800, 95, 1), cell("m", "zstd:best", 64, 40, 400, 10, 1)},
			"Choose json + s2 for m: 800 bytes a key in Redis instead of 1000 (20% less), at 0.95 times (0.93 to 0.97) the throughput of json + none with 64 callers."},
		{"nothing to save", []Cell{cell("m", "none", 64, 100, 1000, 100, 1), cell("m", "zstd", 64, 99, 990, 95, 1)},
			"Choose json + none for m: nothing that keeps 50% of its throughput with 64 callers saves 5% of its 1000 bytes a key in Redis."},
		{"the most callers count", []Cell{cell("m", "none", 1, 100, 1000, 100, 1), cell("m", "zstd", 1, 50, 500, 10, 1), cell("m", "none", 64, 100, 1000, 100, 1), cell("m", "zstd", 64, 50, 500, 60, 1)},
			"Choose json + zstd for m: 500 bytes a key in Redis instead of 1000 (50% less), at 0.60 times (0.59 to 0.61) the throughput of json + none with 64 callers."},
		{"the fastest client", []Cell{by("goredis", cell("m", "none", 64, 100, 1000, 100, 1)), by("goredis+auto", cell("m", "none", 64, 100, 1000, 290, 1)), by("rueidis", cell("m", "none", 64, 100, 1000, 200, 1))},
			"Choose goredis+auto + json + none for m: 2.90 times (2.84 to 2.96) the throughput of goredis + json + none with 64 callers, and nothing that keeps 50% of that saves 5% of its 1000 bytes a key in Redis."},
		{"the fastest client of the smallest", []Cell{by("goredis", cell("m", "none", 64, 100, 1000, 100, 1)), by("goredis", cell("m", "s2", 64, 50, 500, 90, 1)), by("rueidis", cell("m", "s2", 64, 50, 500, 200, 1))},
			"Choose rueidis + json + s2 for m: 500 bytes a key in Redis instead of 1000 (50% less), at 2.00 times (1.96 to 2.04) the throughput of goredis + json + none with 64 callers."},
		{"another client, beside its own plain values", []Cell{by("goredis", cell("m", "none", 64, 100, 1000, 100, 1)), by("rueidis", cell("m", "none", 64, 100, 1000, 250, 1)), by("rueidis", cell("m", "s2", 64, 50, 500, 210, 1))},
			"Choose rueidis + json + s2 for m: 500 bytes a key in Redis instead of 1000 (50% less), at 2.10 times (2.06 to 2.14) the throughput of goredis + json + none with 64 callers, and at 0.84 times (0.82 to 0.86) that of rueidis + json + none."},
		{"values as they are", []Cell{as("raw", cell("m", "none", 64, 100, 1000, 100, 1)), as("raw", cell("m", "zstd", 64, 50, 500, 90, 1))},
			"Choose zstd for m: 500 bytes a key in Redis instead of 1000 (50% less), at 0.90 times (0.88 to 0.92) the throughput of none with 64 callers."},
		{"nothing verified", []Cell{{Identity: Identity{Dataset: "m", Concurrency: 1}}}, "Choose nothing for m: no cell was verified."},
	} {
		if got := strings.Join(verdict(&Run{Cells: test.cells}), "\n"); got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, got, test.want)
		}
	}
}

// TestServerName: each form of a report calls a server by its own name.
func TestServerName(t *testing.T) {
	for version, want := range map[string]string{"7.0.15": "Redis 7.0.15", "Valkey 9.1.2": "Valkey 9.1.2"} {
		run := result()
		run.Environment.RedisVersion = version
		var table strings.Builder
		run.WriteText(page.NewSheet(&table, 0), TextOptions{})
		for what, got := range map[string]string{"table": table.String(), "page": benchHTML(t, run, PageOptions{})} {
			if !strings.Contains(got, want) || strings.Contains(got, "Redis Valkey") {
				t.Errorf("%s: %q is not in it, or is called Redis", what, want)
			}
		}
	}
}
