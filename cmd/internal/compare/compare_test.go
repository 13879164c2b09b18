package compare

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// run makes a run of one unit, cell by cell.
func run(unit string, cells ...[]float64) *Benchmarks {
	r := &Benchmarks{}
	for i, v := range cells {
		r.Series = append(r.Series, Series{Name: fmt.Sprint("Cell", i), Unit: unit, Values: v, Exact: unit == storedUnit || unit == redisUnit})
	}
	return r
}

// around are n values that lie evenly within a share of a centre.
func around(centre, share float64, n int) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = centre * (1 + share*(2*float64(i)/float64(max(n-1, 1))-1))
	}
	return v
}

func repeat(v float64, n int) []float64 { return around(v, 0, n) }

func TestVerdicts(t *testing.T) {
	for _, test := range []struct {
		name     string
		unit     string
		old, new []float64
		gate     string
		paired   bool
		want     Verdict
		reason   string
	}{
		{"nothing changed", timeUnit, around(1, .01, 8), around(1.0005, .01, 8), "", false, Same, ""},
		{"a tenth slower", timeUnit, around(1, .01, 8), around(1.1, .01, 8), "", false, Regression, ""},
		{"a tenth faster", timeUnit, around(1, .01, 8), around(.9, .01, 8), "", false, Better, ""},
		{"slower, below the floor", timeUnit, around(1, .005, 8), around(1.03, .005, 8), "", false, Same, ""},
		{"slower, below a higher floor", timeUnit, around(1, .01, 8), around(1.1, .01, 8), "time=20%", false, Same, ""},
		{"faster, below the floor", timeUnit, around(1, .005, 8), around(.97, .005, 8), "", false, Same, ""},
		{"slower, and the floor within the interval", timeUnit, around(1, .02, 8), around(1.045, .02, 8), "", false, Unmeasurable, "too noisy: 8 rounds, and it would take about"},
		{"noise", timeUnit, around(1, .2, 8), around(1.01, .2, 8), "", false, Unmeasurable, "too noisy"},
		{"noise that might hide a tenth", timeUnit, around(1, .3, 8), around(1.1, .3, 8), "", false, Unmeasurable, "too noisy"},
		{"too few rounds for any", timeUnit, around(1, .001, 3), around(2, .001, 3), "", false, Unmeasurable, "too few rounds: 3, and with 1 comparison it takes 4"},
		{"too few for an interval", timeUnit, around(1, .001, 3), around(1, .001, 3), "", false, Unmeasurable, "too few rounds"},
		{"single figures", timeUnit, []float64{1}, []float64{1}, "", false, Unmeasurable, "too few rounds"},
		{"four rounds of one cell are enough", timeUnit, around(1, .01, 4), around(1.2, .01, 4), "", false, Regression, ""},
		{"pairs in a noisy time", timeUnit, around(1, .5, 8), around(1.1, .5, 8), "", true, Regression, ""},
		{"pairs alike", timeUnit, around(1, .5, 8), around(1.001, .5, 8), "", true, Same, ""},
		{"too few pairs", timeUnit, around(1, .01, 5), around(1.2, .01, 5), "", true, Unmeasurable, "too few pairs: 5, and with 1 comparison it takes 6"},
		{"throughput is not gated", "values/s", around(1000, .01, 8), around(500, .01, 8), "time=5%", false, "", ""},
		{"less throughput", "values/s", around(1000, .01, 8), around(900, .01, 8), "values/s=5%", false, Regression, ""},
		{"more throughput", "values/s", around(1000, .01, 8), around(1100, .01, 8), "values/s=5%", false, Better, ""},
		{"a byte more", storedUnit, []float64{100}, []float64{101}, "", false, Regression, ""},
		{"a byte less", storedUnit, []float64{100}, []float64{99}, "", false, Better, ""},
		{"as many bytes", storedUnit, []float64{100}, []float64{100}, "", false, Same, ""},
		{"a byte more is let pass", storedUnit, []float64{100}, []float64{101}, "bytes=1", false, Same, ""},
		{"two are not", storedUnit, []float64{100}, []float64{102}, "bytes=1", false, Regression, ""},
		{"a percent of bytes", storedUnit, []float64{1000}, []float64{1009}, "bytes=1%", false, Same, ""},
		{"bytes that are not exact", storedUnit, []float64{100, 110}, []float64{105}, "", false, Unmeasurable, "not the same"},
		{"bytes far beyond what is not exact", storedUnit, []float64{100, 101}, []float64{120, 121}, "", false, Regression, ""},
		{"jitter of used_memory", redisUnit, []float64{542.04}, []float64{546.14}, "", false, Same, ""},
		{"a step of the allocator", redisUnit, []float64{208}, []float64{216}, "", false, Regression, ""},
		{"a step less", redisUnit, []float64{216}, []float64{208}, "", false, Better, ""},
		{"an allocation more, always", allocsUnit, repeat(110, 6), repeat(111, 6), "", false, Regression, ""},
		{"the first allocation", allocsUnit, repeat(0, 6), repeat(1, 6), "", false, Regression, ""},
		{"none any more", allocsUnit, repeat(1, 6), repeat(0, 6), "", false, Better, ""},
		{"none as before", allocsUnit, repeat(0, 6), repeat(0, 6), "", false, Same, ""},
		{"jitter of allocations", allocsUnit, around(110.1, .0005, 8), around(110.4, .0005, 8), "", false, Same, ""},
		{"two of 110 more, with jitter", allocsUnit, around(110, .0005, 8), around(112, .0005, 8), "", false, Regression, ""},
		{"two more are let pass", allocsUnit, repeat(110, 6), repeat(112, 6), "allocs=2", false, Same, ""},
		{"few equal counts are no constant", allocsUnit, repeat(110, 3), repeat(111, 3), "", false, Unmeasurable, "too few rounds"},
		{"P99", "p99-sec/op", around(1, .01, 8), around(1.2, .01, 8), "p99=10%", false, Regression, ""},
		{"negative figures", "ns-over/op", around(-2, .01, 8), around(3, .01, 8), "ns-over/op=10%", false, Regression, ""},
		// A tenth faster in both of two kinds of rounds, of which there are more slow ones.
		{"two kinds of rounds", timeUnit, slices.Concat(around(1, .02, 11), around(3, .02, 10)), slices.Concat(around(.9, .02, 10), around(2.7, .02, 11)), "", false, Unmeasurable, "the medians go the other way"},
		{"two kinds of rounds, in pairs", timeUnit, slices.Concat(around(1, .02, 11), around(3, .02, 10)), slices.Concat(around(.9, .02, 11), around(2.7, .02, 10)), "", true, Better, ""},
		{"the same figure everywhere", timeUnit, repeat(1, 8), repeat(1, 8), "", false, Same, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			gate := Gate{}
			if test.gate != "" {
				var err error
				if gate, err = ParseGate(test.gate); err != nil {
					t.Fatal(err)
				}
			}
			before, after := run(test.unit, test.old), run(test.unit, test.new)
			if test.want == "" { // something that the gate is of
				before.Series = append(before.Series, Series{Name: "Other", Unit: timeUnit, Values: repeat(1, 8)})
				after.Series = append(after.Series, before.Series[1])
			}
			r, err := Compare(t.Context(), before, after, Rules{Gate: gate, Paired: test.paired})
			if err != nil {
				t.Fatal(err)
			}
			c := r.Comparisons[0]
			if c.Verdict != test.want || !strings.Contains(c.Reason, test.reason) || (c.Reason != "") != (test.want == Unmeasurable) {
				t.Errorf("%s (%s), want %s (%s): %+v", c.Verdict, c.Reason, test.want, test.reason, c)
			}
			if (r.Err() != nil) != (test.want == Regression) {
				t.Errorf("error %v", r.Err())
			}
			if n := r.Regressions + r.Better + r.Same + r.Unmeasurable; n != 1 {
				t.Errorf("%d verdicts", n)
			}
		})
	}
}

// TestLowerBounds: the true value may be higher than a lower bound.
func TestLowerBounds(t *testing.T) {
	const unit, both, before, after = "p99-sec/op", "both runs", "the old run", "the new run"
	gate, err := ParseGate("p99=10%")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name     string
		new      float64 // of 1
		old, now bool    // bounded
		want     Verdict
		of       string
	}{
		{"slower, exact", 2, false, false, Regression, ""},
		{"alike, exact", 1, false, false, Same, ""},
		{"faster, exact", .5, false, false, Better, ""},
		{"slower, by two bounds", 2, true, true, Unmeasurable, both},
		{"alike, by two bounds", 1, true, true, Unmeasurable, both},
		{"faster, by two bounds", .5, true, true, Unmeasurable, both},
		{"at least twice as slow", 2, false, true, Regression, ""},
		{"at least as slow", 1, false, true, Unmeasurable, after},
		{"at least half as slow", .5, false, true, Unmeasurable, after},
		{"slower than a bound", 2, true, false, Unmeasurable, before},
		{"like a bound", 1, true, false, Unmeasurable, before},
		{"faster than a bound", .5, true, false, Better, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			old, now := run(unit, around(1, .01, 8)), run(unit, around(test.new, .01, 8))
			old.Series[0].AtLeast, now.Series[0].AtLeast = test.old, test.now
			r, err := Compare(t.Context(), old, now, Rules{Gate: gate})
			if err != nil {
				t.Fatal(err)
			}
			reason := ""
			if test.of != "" {
				reason = "latencies of " + test.of + " are lower bounds"
			}
			c := r.Comparisons[0]
			if c.Verdict != test.want || c.Reason != reason || c.Old.AtLeast != test.old || c.New.AtLeast != test.now {
				t.Errorf("%s (%s), want %s (%s)", c.Verdict, c.Reason, test.want, reason)
			}
			counted := map[Verdict]int{Regression: r.Regressions, Better: r.Better, Same: r.Same, Unmeasurable: r.Unmeasurable}
			if n := r.Regressions + r.Better + r.Same + r.Unmeasurable; n != 1 || counted[test.want] != 1 {
				t.Errorf("counted: %v", counted)
			}
		})
	}
}

// TestRates: a rate that was kept and is not is a regression.
func TestRates(t *testing.T) {
	does := []Failure{{Cell: "Cell0", Error: "does 2 of 5 operations a second"}}
	wrong := []Failure{{Cell: "Cell0", Error: "other bytes"}}
	one, none := func() *Benchmarks { return run("p99-sec/op", around(1, .01, 8)) }, &Benchmarks{Series: run("p99-sec/op", nil, around(1, .01, 8)).Series[1:]}
	with := func(behind, failed []Failure) *Benchmarks {
		r := run("p99-sec/op", around(1, .01, 8), around(1, .01, 8))
		r.Behind, r.Failed = behind, failed
		return r
	}
	for _, test := range []struct {
		name     string
		old, new *Benchmarks
		want     Report
	}{
		{"kept in both", one(), one(), Report{}},
		{"not any more", with(nil, nil), with(does, nil), Report{Failed: does}},
		{"again", with(does, nil), with(nil, nil), Report{Mended: does}},
		{"in neither", with(does, nil), with(does, nil), Report{}},
		{"new, and not kept", none, with(does, nil), Report{OnlyNew: []string{"Cell0"}}},
		{"not kept, and gone", with(does, nil), none, Report{OnlyOld: []string{"Cell0"}}},
		{"not kept, and wrong now", with(does, nil), with(nil, wrong), Report{Failed: wrong}},
		{"neither kept nor right now", with(nil, nil), with(does, wrong), Report{Failed: wrong}},
		{"wrong, and not kept now", with(nil, wrong), with(does, nil), Report{Mended: wrong}},
	} {
		r, err := Compare(t.Context(), test.old, test.new, Rules{})
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		got := Report{Failed: r.Failed, StillFailed: r.StillFailed, NewFailed: r.NewFailed, Mended: r.Mended, OnlyOld: r.OnlyOld, OnlyNew: r.OnlyNew}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
		if err := r.Err(); errors.Is(err, ErrRegression) != (test.want.Failed != nil) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// TestHolm: a change that is significant by itself is not among very many.
func TestHolm(t *testing.T) {
	before, after := run(timeUnit), run(timeUnit)
	for i := range 400 {
		a, b := around(1, .05, 8), around(1, .05, 8)
		if i == 0 {
			b = around(1.3, .05, 8)
		}
		before.Series = append(before.Series, Series{Name: fmt.Sprint(i), Unit: timeUnit, Values: a})
		after.Series = append(after.Series, Series{Name: fmt.Sprint(i), Unit: timeUnit, Values: b})
		if i+1 != 1 && i+1 != 321 && i+1 != 322 && i+1 != 400 {
			continue
		}
		r, err := Compare(t.Context(), before, after, Rules{})
		if err != nil {
			t.Fatal(err)
		}
		// 2 of the 12,870 orders of eight and eight: 321 times that are still below 0.05.
		want := Regression
		if i+1 > 321 {
			want = Unmeasurable
		}
		if c := r.Comparisons[0]; c.Verdict != want || r.Family != i+1 {
			t.Fatalf("%d cells: %+v", i+1, c)
		}
		if i+1 == 400 && (r.RoundsNeeded != 9 || !strings.Contains(r.Comparisons[0].Reason, "too few rounds: 8, and with 400 comparisons it takes 9")) {
			t.Errorf("%d rounds needed, %+v", r.RoundsNeeded, r.Comparisons[0])
		}
	}
	p := []float64{.01, .04, .03, .005}
	r := &Report{}
	for i := range p {
		r.Comparisons = append(r.Comparisons, Comparison{Gate: "time", P: &p[i]})
	}
	r.Comparisons = append(r.Comparisons, Comparison{P: &p[0]}, Comparison{Gate: "bytes"}) // not of the family
	r.correct()
	var got []float64
	for _, c := range r.Comparisons[:4] {
		got = append(got, *c.PCorrected)
	}
	if diff := cmp.Diff([]float64{.03, .06, .06, .02}, got); diff != "" || r.Family != 4 {
		t.Errorf("%d, (-want +got):\n%s", r.Family, diff)
	}
}

// TestCells: the report lists every cell that is gone, new or failed. A cell that was right and now
// fails is an error.
func TestCells(t *testing.T) {
	const was, is = 1, 2 // measured in the old run, in the new one
	for _, test := range []struct {
		name       string
		measured   map[string]int // cells, with their package
		old, new   []Failure
		want       Report
		regression bool
	}{
		{name: "a cell that fails now", measured: map[string]int{"Fails": was}, new: []Failure{{Cell: "Fails", Error: "other bytes"}},
			want: Report{Failed: []Failure{{Cell: "Fails", Error: "other bytes"}}}, regression: true},
		{name: "one that fails now and then", measured: map[string]int{"Fails": was | is}, new: []Failure{{Cell: "Fails"}},
			want: Report{Failed: []Failure{{Cell: "Fails"}}}, regression: true},
		{name: "go test leaves out the processors, and names the whole too", measured: map[string]int{"p.X/a-2": was | is, "p.X/b-2": was}, new: []Failure{{Cell: "p.X/b", Error: "(0.1s)"}, {Cell: "p.X"}},
			want: Report{Failed: []Failure{{Cell: "p.X/b-2", Error: "(0.1s)"}}}, regression: true},
		{name: "a whole that failed before its parts", measured: map[string]int{"p.X/a-2": was, "p.X/b-2": was}, new: []Failure{{Cell: "p.X"}},
			want: Report{Failed: []Failure{{Cell: "p.X/a-2"}, {Cell: "p.X/b-2"}}}, regression: true},
		{name: "a whole that failed after its parts", measured: map[string]int{"p.X/a-2": was | is}, new: []Failure{{Cell: "p.X"}},
			want: Report{Failed: []Failure{{Cell: "p.X"}}}, regression: true},
		{name: "a package that ended early", measured: map[string]int{"p.X-2": was | is, "p.Y-2": was, "p/q.Y-2": was}, new: []Failure{{Cell: "p", Error: "build failed", Package: true}},
			want: Report{Failed: []Failure{{Cell: "p.Y-2", Error: "build failed"}}, OnlyOld: []string{"p/q.Y-2"}}, regression: true},
		{name: "failed in both", old: []Failure{{Cell: "Broken"}}, new: []Failure{{Cell: "Broken", Error: "as ever"}},
			want: Report{StillFailed: []Failure{{Cell: "Broken", Error: "as ever"}}}},
		{name: "right again", measured: map[string]int{"Mended": is}, old: []Failure{{Cell: "Mended", Error: "other bytes"}},
			want: Report{Mended: []Failure{{Cell: "Mended", Error: "other bytes"}}}},
		{name: "failed, and gone", old: []Failure{{Cell: "Gone"}}, want: Report{OnlyOld: []string{"Gone"}}},
		{name: "new, and failed", new: []Failure{{Cell: "New", Error: "other bytes"}}, want: Report{NewFailed: []Failure{{Cell: "New", Error: "other bytes"}}}},
		{name: "in one run", measured: map[string]int{"Gone": was, "New": is, "a/b.Both": was}, want: Report{OnlyOld: []string{"Gone", "a/b.Both"}, OnlyNew: []string{"New"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			runs := [2]*Benchmarks{run(timeUnit, around(1, .01, 8)), run(timeUnit, around(1, .01, 8))}
			runs[0].Failed, runs[1].Failed = test.old, test.new
			for _, c := range slices.Sorted(maps.Keys(test.measured)) {
				pkg, name, ok := strings.Cut(c, ".")
				if !ok {
					pkg, name = "", c
				}
				for side, r := range runs {
					if test.measured[c]&(side+1) != 0 {
						r.Series = append(r.Series, Series{Package: pkg, Name: name, Unit: timeUnit, Values: around(1, .01, 8)}, Series{Package: pkg, Name: name, Unit: "B/op", Values: []float64{1}})
					}
				}
			}
			r, err := Compare(t.Context(), runs[0], runs[1], Rules{})
			if err != nil {
				t.Fatal(err)
			}
			got := Report{Failed: r.Failed, StillFailed: r.StillFailed, NewFailed: r.NewFailed, Mended: r.Mended, OnlyOld: r.OnlyOld, OnlyNew: r.OnlyNew}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if err := r.Err(); errors.Is(err, ErrRegression) != test.regression || test.regression && !strings.Contains(err.Error(), "FAILED that did not before") {
				t.Error(err)
			}
		})
	}
	// Where nothing is left that could be compared, there still is an error.
	if r, err := Compare(t.Context(), run(timeUnit, around(1, .01, 8)), &Benchmarks{Failed: []Failure{{Cell: "Cell0"}}}, Rules{}); err != nil || !errors.Is(r.Err(), ErrRegression) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestWhatElseDiffers(t *testing.T) {
	before, after := run(timeUnit, around(1, .01, 8)), run(timeUnit, around(1, .01, 8))
	before.Environment, after.Environment = []Setting{{"cpu", "A"}, {"go", "1.26"}, {"commit", "1"}, {"redis", "7"}}, []Setting{{"cpu", "B"}, {"go", "1.26"}, {"commit", "2"}, {"valkey", "8"}}
	before.Versions, after.Versions = []Setting{{"bale", "1"}, {"example.com/codec", "v1.0.0"}, {"example.com/other", "v1.0.0"}}, []Setting{{"bale", "1"}, {"example.com/codec", "v1.1.0"}}
	before.Warnings, after.Warnings = []string{"BUSY MACHINE"}, nil
	r, err := Compare(t.Context(), before, after, Rules{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Difference{{"cpu", "A", "B"}, {"redis", "7", ""}, {"valkey", "", "8"}}, r.Differences); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Difference{{"example.com/codec", "v1.0.0", "v1.1.0"}}, r.Versions); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([][]string{{"BUSY MACHINE"}, nil}, [][]string{r.OldWarnings, r.NewWarnings}); diff != "" {
		t.Error(diff)
	}
}

// TestShift: the shift that all times have in common needs at least four cells.
func TestShift(t *testing.T) {
	var before, after [][]float64
	for n := 1; n <= 5; n++ {
		before, after = append(before, around(1, .01, 8)), append(after, around(1.1+float64(n)/100, .01, 8))
		r, err := Compare(t.Context(), run(timeUnit, before...), run(timeUnit, after...), Rules{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Timed != n || (r.Shift != nil) != (n >= ShiftCells) || r.Shift != nil && math.Abs(*r.Shift-(.1+(float64(n)+1)/200)) > 1e-3 {
			t.Errorf("%d cells: %d timed, a shift of %v", n, r.Timed, r.Shift)
		}
	}
}

// TestDefaultGate: it may be of more than there is, given in full or not; any other may not.
func TestDefaultGate(t *testing.T) {
	one := run(timeUnit, around(1, .01, 8))
	full, err := ParseGate(DefaultGate().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, gate := range []Gate{{}, full} {
		r, err := Compare(t.Context(), one, one, Rules{Gate: gate})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"bytes", "allocs"}, r.Ungated); diff != "" || r.Gate != "time=5%,bytes=0,allocs=0" {
			t.Errorf("%s: %s", r.Gate, diff)
		}
	}
}

func TestIncomparable(t *testing.T) {
	one := run(timeUnit, around(1, .01, 8))
	gate, err := ParseGate("p99=10%")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name          string
		before, after *Benchmarks
		o             Rules
		want          string
	}{
		{"nothing in common", one, &Benchmarks{Series: []Series{{Name: "Other", Unit: timeUnit, Values: []float64{1}}}}, Rules{}, "no cell in common: Cell0 in the old one, Other in the new one"},
		{"a gate of nothing", one, one, Rules{Gate: gate}, "the gate p99 is of p99-sec/op, which no cell has in both runs; there are sec/op"},
		{"no pairs", one, run(timeUnit, []float64{1}), Rules{Paired: true}, "8 and 1 rounds of Cell0, which are no pairs"},
		{"too many", run(timeUnit, around(1, .01, 1001)), one, Rules{}, "1001 rounds of Cell0, at most 1000"},
		{"no figures", run(timeUnit, nil), one, Rules{}, "no figures of Cell0"},
	} {
		if _, err := Compare(t.Context(), test.before, test.after, test.o); !errors.Is(err, ErrIncomparable) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestParseGate(t *testing.T) {
	for _, good := range []string{"time=5%", "time=5%,bytes=0,allocs=0", "p99=10%,p50=2.5%,p99.9=30%", "B/op=5%", "bytes=16,allocs=2", "time=0", "cpu=5%,rss=10%"} {
		if g, err := ParseGate(good); err != nil || g.String() != good {
			t.Errorf("%s: %s, %v", good, g, err)
		}
	}
	for bad, want := range map[string]string{
		"":                "must be a name, = and a floor",
		"time":            "must be a name, = and a floor",
		"time=":           "must be a number",
		"time=5":          "must be a percentage: time=5%",
		"time=-5%":        "of at least 0",
		"time=NaN%":       "of at least 0",
		"time=5%,time=6%": "time is there twice",
		"tme=5%":          `"tme"; there are time, bytes`,
		"p100=5%":         "there are",
		"time=5%,":        "must be a name",
		"B/op=16":         "must be a percentage: B/op=16%",
	} {
		if _, err := ParseGate(bad); !errors.Is(err, errGate) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", bad, err, want)
		}
	}
}

func TestConfirm(t *testing.T) {
	report := func(after ...float64) *Report {
		before, now := run(timeUnit), run(timeUnit)
		for i, a := range after {
			before.Series = append(before.Series, Series{Name: fmt.Sprint(i), Unit: timeUnit, Values: around(1, .3, 8)})
			now.Series = append(now.Series, Series{Name: fmt.Sprint(i), Unit: timeUnit, Values: around(a, .3, 8)})
		}
		r, err := Compare(t.Context(), before, now, Rules{Paired: true})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := report(1, 1.2, 1.3, .8)
	if r.Regressions != 2 || r.Better != 1 || r.Same != 1 {
		t.Fatalf("%+v", r)
	}
	r.Confirm(report(1.4, 1.15, 1.01, .8)) // the first was not under suspicion
	var got []Verdict
	for _, c := range r.Comparisons {
		got = append(got, c.Verdict)
	}
	if diff := cmp.Diff([]Verdict{Same, Regression, Unmeasurable, Better}, got); diff != "" {
		t.Error(diff)
	}
	if r.Regressions != 1 || r.Unmeasurable != 1 || math.Abs(r.Comparisons[1].Change-.15) > 1e-9 || math.Abs(*r.Comparisons[1].PCorrected-2*math.Exp2(-7)) > 1e-9 {
		t.Errorf("%+v", r)
	}
}

// noise makes a run whose times vary by a share, and have a machine's outliers.
func noise(r *rand.Rand, cells, rounds int, share float64, slower map[int]float64) *Benchmarks {
	out := &Benchmarks{}
	for i := range cells {
		v := make([]float64, rounds)
		for k := range v {
			v[k] = math.Exp(share * r.NormFloat64())
			if r.IntN(20) == 0 {
				v[k] *= 1 + r.Float64()/2
			}
			if by, ok := slower[i]; ok {
				v[k] *= by
			}
		}
		out.Series = append(out.Series, Series{Name: fmt.Sprint(i), Unit: timeUnit, Values: v})
	}
	return out
}

// TestFalseAlarms: of 2,000 matrices of pure noise, at most 5% may have a verdict other than same
// and unmeasurable, with no floor to help. That is 100 matrices, and with three standard deviations
// of a binomial 129.
func TestFalseAlarms(t *testing.T) {
	const matrices, most = 2000, 129
	gate, err := ParseGate("time=0")
	if err != nil {
		t.Fatal(err)
	}
	for _, paired := range []bool{false, true} {
		r := rand.New(rand.NewPCG(1, 2))
		alarms := 0
		for range matrices {
			report, err := Compare(t.Context(), noise(r, 12, 10, .03, nil), noise(r, 12, 10, .03, nil), Rules{Gate: gate, Paired: paired})
			if err != nil {
				t.Fatal(err)
			}
			if report.Regressions+report.Better > 0 {
				alarms++
			}
		}
		t.Logf("paired %v: %d of %d", paired, alarms, matrices)
		if alarms > most || alarms == 0 {
			t.Errorf("paired %v: %d of %d matrices of noise have a verdict, want 1 to %d", paired, alarms, matrices, most)
		}
	}
}

// TestPower: a true tenth, in noise of 3% with outliers, is mostly found among 180 cells by 15
// rounds (in 90% of cases, docs/method.md), and nothing else is.
func TestPower(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const matrices = 20
	found, others := 0, 0
	for range matrices {
		report, err := Compare(t.Context(), noise(r, 180, 15, .03, nil), noise(r, 180, 15, .03, map[int]float64{77: 1.1}), Rules{})
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range report.Comparisons {
			switch {
			case c.Verdict == Regression && i == 77:
				found++
			case c.Verdict == Regression:
				others++
			}
		}
	}
	t.Logf("%d of %d, and %d others", found, matrices, others)
	if found < matrices*3/4 || others > 1 {
		t.Errorf("%d of %d found, and %d others", found, matrices, others)
	}
}

// TestCoverage: intervals hold the true change in 95% of cases, less three standard deviations of a
// binomial.
func TestCoverage(t *testing.T) {
	const trials = 2000
	least := int(trials*.95 - 3*math.Sqrt(trials*.95*.05))
	r := rand.New(rand.NewPCG(5, 6))
	for _, paired := range []bool{false, true} {
		for _, n := range []int{6, 8, 10, 20} {
			inside := 0
			for range trials {
				report, err := Compare(t.Context(), noise(r, 1, n, .05, nil), noise(r, 1, n, .05, map[int]float64{0: 1.2}), Rules{Paired: paired})
				if err != nil {
					t.Fatal(err)
				}
				if i := report.Comparisons[0].Interval; i.Low <= .2 && .2 <= i.High {
					inside++
				}
			}
			t.Logf("paired %v, %d rounds: %.1f%%", paired, n, 100*float64(inside)/trials)
			if inside < least {
				t.Errorf("paired %v, %d rounds: %d of %d intervals hold the truth, want at least %d", paired, n, inside, trials, least)
			}
		}
	}
}

// TestForgedRuns: a file with very many cells is refused, and not compared for minutes.
func TestForgedRuns(t *testing.T) {
	long := strings.Repeat("x", maxTexts/12+1) // twelve are too many
	for name, run := range map[string]*Benchmarks{
		"failed": {Failed: make([]Failure, maxFailed+1)}, "behind": {Behind: make([]Failure, maxFailed+1)}, "series": {Series: make([]Series, maxSeries+1)},
		"versions": {Versions: make([]Setting, maxRemarks+1)}, "warnings": {Warnings: make([]string, maxRemarks+1)},
		"texts": {Series: []Series{{Package: long, Name: long, Unit: long}}, Environment: []Setting{{long, long}}, Versions: []Setting{{long, long}},
			Failed: []Failure{{Cell: long, Error: long}}, Behind: []Failure{{Cell: long, Error: long}}, Warnings: []string{long}},
	} {
		for _, pair := range [][2]*Benchmarks{{run, {}}, {{}, run}} {
			if _, err := Compare(t.Context(), pair[0], pair[1], Rules{}); !errors.Is(err, ErrIncomparable) || !strings.Contains(err.Error(), "there may be") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestInterrupted: it ends with the context, also where no cell is compared.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	failed := &Benchmarks{Failed: []Failure{{Cell: "X"}}}
	for _, r := range []*Benchmarks{run(timeUnit, around(1, .01, 8)), failed} {
		if report, err := Compare(ctx, r, r, Rules{}); report != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("%v, %v", report, err)
		}
	}
}
