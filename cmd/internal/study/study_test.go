package study

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/rounds"
)

// made is a verified cell: 100 values of 1000 bytes each, stored without compression, with 1000
// values a second within 2%.
func made(change func(*outcome.Cell)) outcome.Cell {
	c := outcome.Cell{
		Identity: outcome.Identity{Dataset: "profiles", Track: "typed", Codec: "json", Compress: "none", Client: "goredis", Concurrency: 8},
		Values:   100, RawBytes: 100_000, PlainBytes: 100_000, StoredBytes: 100_000, Ratio: 1, Operations: 1000, Verified: true,
		P99: outcome.Estimate{Median: 500}, BytesPerOp: outcome.Estimate{Median: 2000}, Limit: outcome.LimitWaiting,
		Stages: map[string]outcome.Stage{
			"serialize": {P50: 2}, "compress": {P50: 0.5}, "set": {P50: 50}, "get": {P50: 50}, "decompress": {P50: 0.5}, "deserialize": {P50: 4}, "total": {P50: 107, Mean: 120},
		},
	}
	quick(&c, 1000)
	change(&c)
	return c
}

// quick sets a cell's throughput in values a second, within 2%.
func quick(c *outcome.Cell, values float64) {
	c.ValuesPerSecond = outcome.Estimate{Median: values, Interval: &[2]float64{0.98 * values, 1.02 * values}}
	c.OpsPerSecond = c.ValuesPerSecond
}

// packed sets a cell's compressor, its ratio, and its time in us a value.
func packed(c *outcome.Cell, compressor string, ratio, us float64) {
	c.Compress, c.Ratio, c.StoredBytes = compressor, ratio, int64(100_000/ratio)
	c.Stages["compress"], c.Stages["decompress"] = outcome.Stage{P50: 0.75 * us}, outcome.Stage{P50: 0.25 * us}
	key := float64(c.StoredBytes)/100 + 100
	c.RedisBytesPerKey = &key
}

func share(v float64) *float64 { return &v }

// example is a run of a study with its expected findings.
type example struct {
	cells        []outcome.Cell
	dictionaries []outcome.Dictionary
	want         []string
}

var examples = map[string]example{
	"serializers": {
		cells: []outcome.Cell{
			made(func(c *outcome.Cell) { c.Stages["serialize"] = outcome.Stage{P50: 2, P99: 12} }),
			made(func(c *outcome.Cell) {
				c.Codec, c.Stages["serialize"], c.Stages["deserialize"] = "sonic", outcome.Stage{P50: 1}, outcome.Stage{P50: 1.5}
				quick(c, 1200)
			}),
			made(func(c *outcome.Cell) { c.Codec, c.StoredBytes = "protobuf", 60_000 }),
			made(func(c *outcome.Cell) {
				c.Codec, c.Stages["serialize"] = "binary", outcome.Stage{P50: 2, P99: 3}
			}),
			made(func(c *outcome.Cell) { packed(c, "zstd:3+dict", 5, 4) }),
			made(func(c *outcome.Cell) { packed(c, "zstd:3+dict", 6.25, 4); c.Codec = "protobuf" }),
			made(func(c *outcome.Cell) { c.Track = "dynamic" }),
			made(func(c *outcome.Cell) { c.Track, c.Codec, c.StoredBytes = "dynamic", "msgpack", 80_000; quick(c, 1010) }),
		},
		want: []string{
			"profiles, typed: Least time to write and read a value: sonic with 2.5 µs, encoding/json 6.0.",
			"profiles, typed: Through Redis with 8 callers sonic has 1.20 times (1.15 to 1.25) encoding/json's throughput.",
			"profiles, typed: Fewest bytes: protobuf with 600, encoding/json 1,000; with a dictionary protobuf with 160, encoding/json 200.",
			"profiles, typed: P99 of writing a value of 1,000 bytes of JSON: codec.Binary 3.0 µs, encoding/json 12.0, 4.0 times. Published claim for 1 KB, not measured here: 3.2 times.",
			"profiles, dynamic: Least time to write and read a value: json with 6.0 µs.",
			"profiles, dynamic: Fewest bytes: msgpack with 800, encoding/json 1,000.",
		},
	},
	"compressors": {
		cells: []outcome.Cell{
			made(func(c *outcome.Cell) { packed(c, "none", 1, 0.2) }),
			made(func(c *outcome.Cell) { packed(c, "s2", 1.02, 1) }),
			made(func(c *outcome.Cell) { packed(c, "zstd:3", 1.25, 8) }),
			made(func(c *outcome.Cell) { packed(c, "s2+dict", 3, 2) }),
			made(func(c *outcome.Cell) { packed(c, "zstd:3+dict", 4, 6); quick(c, 1100) }),
			made(func(c *outcome.Cell) { packed(c, "none", 1, 0.2); c.Dataset = "random" }),
			made(func(c *outcome.Cell) { packed(c, "zstd:3", 0.99, 1); c.Dataset = "random" }),
			made(func(c *outcome.Cell) { packed(c, "none", 1, 0.2); c.Dataset = "broken" }),
			made(func(c *outcome.Cell) {
				packed(c, "zstd:3+dict", 4, 6)
				c.Dataset, c.Verified, c.Error = "broken", false, "get: i/o timeout"
			}),
		},
		dictionaries: []outcome.Dictionary{
			{Dataset: "profiles", Compress: "zstd:3+dict", Bytes: 1000},
			{Dataset: "random", Compress: "s2+dict", Reason: "no dictionary pays"}, {Dataset: "random", Compress: "zstd:3+dict", Reason: "no dictionary pays"},
			{Dataset: "broken", Compress: "s2+dict", Reason: "no dictionary pays"}, {Dataset: "broken", Compress: "zstd:3+dict", Bytes: 1000},
		},
		want: []string{
			"profiles: Without a dictionary zstd:3 has the highest ratio: 1.25, 900 bytes a key instead of 1,100; 8.0 µs to compress and decompress a value, 1.00 times (0.96 to 1.04: no significant difference) the throughput of plain values.",
			"profiles: With a dictionary zstd:3+dict has the highest ratio: 4.00, 350 bytes a key instead of 1,100; 6.0 µs to compress and decompress a value, 1.10 times (1.06 to 1.14) the throughput of plain values.",
			"random: Without a dictionary nothing saves 5%.",
			"random: No dictionary pays.",
			"broken: Without a dictionary nothing saves 5%.",
			"broken: The settings with a dictionary could not be measured.",
		},
	},
	"pooling": {
		cells: []outcome.Cell{
			made(func(c *outcome.Cell) {}),
			made(func(c *outcome.Cell) { packed(c, "zstd:3", 2, 10); c.Resources.GCShare = share(0.04) }),
			made(func(c *outcome.Cell) {
				packed(c, "zstd:3/naive", 2, 90)
				c.Resources.GCShare, c.BytesPerOp.Median = share(0.31), 1_000_000
				quick(c, 250)
			}),
			made(func(c *outcome.Cell) { packed(c, "zstd:3/stream", 2, 12) }),
			made(func(c *outcome.Cell) { packed(c, "lz4/naive", 2, 12) }), // of which there is no pooled one
		},
		want: []string{
			"values of profiles: zstd:3/naive (a new context for each value) against pooled: 9.00 times the time to compress and decompress, 0.25 times (0.24 to 0.26) the throughput, 976.6 KiB allocated an operation instead of 2.0 KiB, 31% of the processor time in garbage collection instead of 4%.",
			"values of profiles: zstd:3/stream (the streaming API) against pooled: 1.20 times the time to compress and decompress, 1.00 times (0.96 to 1.04: no significant difference) the throughput.",
		},
	},
	"clients": {
		cells: []outcome.Cell{
			made(func(c *outcome.Cell) { c.Concurrency, c.Limit = 64, outcome.LimitMachine }),
			made(func(c *outcome.Cell) {
				c.Concurrency, c.Client, c.P99.Median, c.Limit = 64, "rueidis", 250, outcome.LimitServer
				quick(c, 2000)
			}),
			made(func(c *outcome.Cell) { c.Concurrency, c.Client = 64, "goredis@twemproxy"; quick(c, 600) }),
			made(func(c *outcome.Cell) { c.Concurrency = 1 }),
		},
		want: []string{
			"throughput: 64 callers: rueidis does the most, 2,000 (1,960 to 2,040) operations a second, 2.00 times (1.92 to 2.08) goredis; limit: server.",
			"throughput: 1 caller: goredis does the most, 1,000 (980 to 1,020) operations a second; limit: waiting.",
			"throughput: goredis through twemproxy: less throughput than without: 0.60 times (0.58 to 0.62) with 64 callers.",
			"P99: 64 callers: rueidis has the lowest P99, 250 µs, goredis 500.",
			"P99: 1 caller: goredis has the lowest P99, 500 µs.",
		},
	},
	"pipeline": {
		cells: []outcome.Cell{
			made(func(c *outcome.Cell) {}),
			made(func(c *outcome.Cell) { c.Batch = "pipeline:10"; quick(c, 4000) }),
			made(func(c *outcome.Cell) { c.Batch = "mset:10"; quick(c, 5000) }),
			made(func(c *outcome.Cell) { c.Client = "redigo"; quick(c, 5000) }),
			made(func(c *outcome.Cell) { c.Client, c.Batch = "redigo", "pipeline:10"; quick(c, 4000) }),
		},
		want: []string{
			"depth: goredis: mset:10 does the most, 5,000 (4,900 to 5,100) values a second, 5.00 times (4.80 to 5.20) those one by one.",
			"depth: redigo: one by one does the most, 5,000 (4,900 to 5,100) values a second.",
			"MSET: goredis: MSET does more than a pipeline of as many: 1.25 times (1.20 to 1.30) at 10.",
		},
	},
	"pool-size": {
		cells: []outcome.Cell{
			made(func(c *outcome.Cell) {
				c.Client, c.Concurrency, c.Resources.PoolWait = "goredis:1", 256, share(80)
				quick(c, 500)
			}),
			made(func(c *outcome.Cell) { c.Client, c.Concurrency = "goredis:8", 256; quick(c, 980) }),
			made(func(c *outcome.Cell) { c.Client, c.Concurrency, c.P99.Median = "goredis:64", 256, 900 }),
		},
		want: []string{
			"256 callers: goredis:8 is the smallest with 95% of the highest throughput: 980 (960 to 1,000) operations a second, 0.98 times (0.94 to 1.02: no significant difference) that of goredis:64.",
			"256 callers: P99 with goredis:8: 500 µs, 0.56 times that with goredis:64.",
			"256 callers: With goredis:1 an operation takes 120 µs in the mean, and 67% of that is waiting for a connection.",
		},
	},
	"dictionary": {
		cells: []outcome.Cell{
			made(func(c *outcome.Cell) { packed(c, "zstd:3", 1.25, 8) }),
			made(func(c *outcome.Cell) { packed(c, "zstd:3+dict", 4, 6); c.P99.Median = 450 }),
			made(func(c *outcome.Cell) { packed(c, "zstd:3/naive+dict", 4, 120) }),
			made(func(c *outcome.Cell) { packed(c, "zstd:3/stream+dict", 3.9, 7) }),
			made(func(c *outcome.Cell) { packed(c, "zstd:3", 1.25, 8); c.Dataset = "sessions" }),
		},
		want: []string{
			"profiles: A dictionary (zstd:3+dict): ratio 4.00 instead of 1.25, 350 bytes a key in Redis instead of 900.",
			"profiles: P99 with it: 450 µs, without 500: 0.90 times.",
			"profiles: Digested anew for each value (zstd:3/naive+dict): 120 µs to compress and decompress instead of 6.0, 20.00 times; ratio 4.00; P99 1.11 times.",
			"profiles: As a stream (zstd:3/stream+dict): 7.0 µs to compress and decompress instead of 6.0, 1.17 times; ratio 3.90; P99 1.11 times.",
		},
	},
	"network": {
		cells: []outcome.Cell{
			made(func(c *outcome.Cell) { c.Server, c.Limit = "link=10mbit", outcome.LimitNetwork }),
			made(func(c *outcome.Cell) { packed(c, "zstd:3", 2, 8); c.Server = "link=10mbit"; quick(c, 2000) }),
			made(func(c *outcome.Cell) { c.Server, c.Limit = "link=10gbit", outcome.LimitMachine }),
			made(func(c *outcome.Cell) { packed(c, "zstd:3", 2, 8); c.Server = "link=10gbit"; quick(c, 1010) }),
			made(func(c *outcome.Cell) { packed(c, "zstd:3", 2, 8); c.Server, c.Dataset = "link=10mbit", "text" }), // with none to compare
		},
		want: []string{
			"profiles: zstd:3: more throughput than plain values: 2.00 times (1.92 to 2.08) over 10mbit; no significant difference over 10gbit.",
			"profiles: What plain values are limited by: 10mbit network, 10gbit machine.",
		},
	},
}

func TestFindings(t *testing.T) {
	for _, s := range runs() {
		t.Run(s.Name, func(t *testing.T) {
			e, ok := examples[s.Name]
			if !ok {
				t.Fatal("no example")
			}
			if diff := cmp.Diff(e.want, sentences(s.Findings(&outcome.Run{Cells: e.cells, Dictionaries: e.dictionaries}))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestFailedCellsAreLeftOut: a cell that failed is as one that is not there, however good its
// figures are.
func TestFailedCellsAreLeftOut(t *testing.T) {
	for _, s := range runs() {
		e := examples[s.Name]
		all := slices.Clone(e.cells)
		for _, c := range e.cells {
			c.Verified, c.Mismatch, c.Error = false, true, "MISMATCH"
			c.Ratio, c.StoredBytes, c.P99.Median = 1000, 100, 1
			quick(&c, 1e9)
			all = append([]outcome.Cell{c}, all...)
		}
		if diff := cmp.Diff(e.want, sentences(s.Findings(&outcome.Run{Cells: all, Dictionaries: e.dictionaries}))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s.Name, diff)
		}
		for i := range all {
			all[i].Verified = false
		}
		if found := s.Findings(&outcome.Run{Cells: all}); len(found) > 0 {
			t.Errorf("%s of cells that failed: %q", s.Name, sentences(found))
		}
		if found := s.Findings(&outcome.Run{}); len(found) > 0 {
			t.Errorf("%s of nothing: %q", s.Name, sentences(found))
		}
	}
}

// noSentence matches broken figures, or a placeholder that was not filled in.
var noSentence = regexp.MustCompile(`NaN|Inf|%!|nil|: *[.,;)]|: does| {2}|^ |[^.]$|, \.|\(\)`)

// TestFindingsOfParts: with any cells missing, and any figures, each finding is a sentence with
// numbers.
func TestFindingsOfParts(t *testing.T) {
	poorer := map[string]func(*outcome.Cell){
		"all figures":        func(*outcome.Cell) {},
		"without intervals":  func(c *outcome.Cell) { c.ValuesPerSecond.Interval, c.OpsPerSecond.Interval = nil, nil },
		"without stages":     func(c *outcome.Cell) { c.Stages = nil },
		"without resources":  func(c *outcome.Cell) { c.Resources, c.RedisBytesPerKey = outcome.Resources{}, nil },
		"without throughput": func(c *outcome.Cell) { quick(c, 0) },
		"without a ratio":    func(c *outcome.Cell) { c.Ratio, c.StoredBytes = 0, 0 },
		"without anything": func(c *outcome.Cell) {
			*c = outcome.Cell{Identity: c.Identity, Verified: true}
		},
	}
	said := 0
	for _, s := range runs() {
		e := examples[s.Name]
		for name, poor := range poorer {
			cells := make([]outcome.Cell, len(e.cells))
			for i, c := range e.cells {
				poor(&c)
				cells[i] = c
			}
			for some := range 1 << len(cells) { // all choices of them
				r := &outcome.Run{}
				for i, c := range cells {
					if some&(1<<i) != 0 {
						r.Cells = append(r.Cells, c)
					}
				}
				for _, line := range sentences(s.Findings(r)) {
					said++
					if bad := noSentence.FindString(line); bad != "" {
						t.Fatalf("%s %s: %q in %q", s.Name, name, bad, line)
					}
				}
			}
		}
	}
	if said < 1000 {
		t.Errorf("%d sentences", said)
	}
}

func TestFind(t *testing.T) {
	for _, name := range Names() {
		if s, err := Find(name); err != nil || s.Name != name || s.About == "" || strings.HasSuffix(s.About, ".") {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	want := fmt.Sprintf(`no such study: "nothing"; there are %s`, strings.Join(Names(), ", "))
	if _, err := Find("nothing"); !errors.Is(err, ErrStudy) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// sentences are those of findings, each with what it is about.
func sentences(found []outcome.Finding) (all []string) {
	for _, f := range found {
		for _, s := range f.Claims {
			all = append(all, strings.TrimPrefix(f.About+": "+s, ": "))
		}
	}
	return all
}

// TestFindingsTables: each finding of a study has a table, whose rows are as long as its header,
// with a name first.
func TestFindingsTables(t *testing.T) {
	for _, s := range runs() {
		for _, f := range s.Findings(&outcome.Run{Cells: examples[s.Name].cells}) {
			if f.About == "" || len(f.Legend) == 0 || len(f.Columns) < 2 || len(f.Rows) == 0 {
				t.Errorf("%s: %+v", s.Name, f)
			}
			for _, row := range f.Rows {
				if len(row) != len(f.Columns) || row[0].Text == "" {
					t.Errorf("%s, %s: a row %v below %q", s.Name, f.About, row, f.Columns)
				}
			}
		}
	}
}

// TestMarksOfWideIntervals: no marked figure is worse than an unmarked one, and the note explains
// it.
func TestMarksOfWideIntervals(t *testing.T) {
	between := func(median, low, high float64) outcome.Estimate {
		return outcome.Estimate{Median: median, Interval: &[2]float64{low, high}}
	}
	for _, test := range []struct {
		p99   []outcome.Estimate
		want  []bool
		noted bool
	}{
		{[]outcome.Estimate{between(685, 569, 865), between(2474, 565, 4170), between(1186, 900, 1708)}, []bool{false, false, false}, true},
		{[]outcome.Estimate{between(685, 569, 865), between(700, 565, 900), between(1186, 900, 1708)}, []bool{true, true, false}, false},
		{[]outcome.Estimate{between(685, 569, 865), between(2474, 565, 4170), between(1186, 600, 1708)}, []bool{true, true, true}, false},
	} {
		var cells []outcome.Cell
		for i, setting := range []string{zstd, withD, "s2+dict"} {
			cells = append(cells, made(func(c *outcome.Cell) { packed(c, setting, float64(i+1), 5); c.P99 = test.p99[i] }))
		}
		f := dictionaries(&outcome.Run{Cells: cells})[0]
		var got []bool
		for _, row := range f.Rows {
			got = append(got, row[4].Best)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", test.p99, diff)
		}
		if noted := strings.Contains(strings.Join(f.Legend, "\n"), "No best is marked in P99: "); noted != test.noted {
			t.Errorf("%v: %q", test.p99, f.Legend)
		}

		for i := range cells { // the same as clients
			cells[i].Client, cells[i].Compress = []string{"goredis", "rueidis", "redigo"}[i], "none"
		}
		both := clients(&outcome.Run{Cells: cells})
		if noted := strings.Contains(strings.Join(both[1].Legend, "\n"), "No best is marked in 8 callers: "); noted != test.noted || both[1].Rows[1][1].Best != test.want[1] {
			t.Errorf("%v: %q, %+v", test.p99, both[1].Legend, both[1].Rows[1])
		}
	}
}

// TestFindingsWithoutIntervals: with few rounds there is no significant difference, and the first
// finding says why.
func TestFindingsWithoutIntervals(t *testing.T) {
	e := examples["network"]
	cells := slices.Clone(e.cells)
	for i := range cells {
		cells[i].ValuesPerSecond.Interval = nil
	}
	s, err := Find("network")
	if err != nil {
		t.Fatal(err)
	}
	got := sentences(s.Findings(&outcome.Run{Cells: cells}))
	if len(got) != 3 || !strings.HasPrefix(got[0], "These are medians of too few rounds for intervals, which take 6") || got[1] != "profiles: zstd:3: no significant difference over 10mbit, 10gbit." {
		t.Errorf("%q", got)
	}
}

// TestWork: the time of stages together has an interval of the rounds' sums, which holds the median
// of all rounds together.
func TestWork(t *testing.T) {
	c := made(func(c *outcome.Cell) {})
	for i := range 8 {
		us := float64(i + 1)
		c.Rounds = append(c.Rounds, outcome.Round{StagesP50: []float64{us, 100, 0, 0, 0, 2 * us, 0}})
	}
	got := work(c, "serialize", "deserialize")
	want := outcome.Estimate{Median: 6, Interval: &[2]float64{3, 21}, Rounds: []float64{3, 6, 9, 12, 15, 18, 21, 24}} // 2 and 4 of all rounds together
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c.Stages["deserialize"] = outcome.Stage{P50: 40}
	if got := work(c, "serialize", "deserialize"); got.Median != 42 || got.Interval[1] != 42 {
		t.Errorf("%+v, want an interval up to 42", got)
	}
}

func TestNumber(t *testing.T) {
	for _, c := range []struct {
		v        float64
		decimals int
		want     string
	}{{0, 1, "0.0"}, {9.96, 1, "10.0"}, {99.94, 1, "99.9"}, {1234.5, 1, "1,234"}, {1234567, 0, "1,234,567"}, {123.456, 2, "123.46"}, {-1234, 0, "-1,234"}} {
		if got := outcome.Number(c.v, c.decimals); got != c.want {
			t.Errorf("%v: %s, want %s", c.v, got, c.want)
		}
	}
}

// TestReports: a study with a load of its own has defaults for its options. It says if there are
// too few rounds for intervals.
func TestReports(t *testing.T) {
	reports := 0
	for _, s := range All() {
		if s.IsRun() {
			continue
		}
		reports++
		if s.Question == "" || len(s.Args) < 2 || s.Args[0] != "--duration" {
			t.Errorf("%+v", s)
		}
		for n, few := range map[int]bool{enoughRounds - 1: true, enoughRounds: false} {
			s.report = func(context.Context, rounds.Options) (*outcome.Report, error) {
				return &outcome.Report{Findings: []outcome.Finding{{About: "all"}}}, nil
			}
			r, err := s.Report(t.Context(), rounds.Options{Rounds: n})
			if err != nil || few != (len(r.Findings) == 2) {
				t.Errorf("%s, %d rounds: %+v, %v", s.Name, n, r, err)
			}
		}
	}
	if reports != 3 {
		t.Errorf("%d reports", reports)
	}
}
