package compare

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/page/pagetest"
)

// compared is a comparison of a matrix as the lab's, with one cell a fifth slower, one too noisy,
// and a key a byte longer.
func compared(t *testing.T, name func(i int, base string, keyValues ...string) string) *Report {
	t.Helper()
	var runs [2]*Benchmarks
	for side := range runs {
		runs[side] = &Benchmarks{Environment: []Setting{{Key: "redis", Value: fmt.Sprint(7 + side)}}}
		for i, compress := range []string{"none", "zstd:3+dict", "zstd:3/go+dict", "s2"} {
			times := Series{Name: name(i, "RoundTrip", "data", "profiles", "track", "typed", "codec", "json", "compress", compress, "client", "rueidis:4-auto", "callers", "64"), Unit: "sec/op"}
			for round := range 10 {
				v := 140e-6 * (1 + 0.001*float64(round))
				switch {
				case side == 1 && i == 1:
					v *= 1.2
				case i == 2:
					v *= 1 + 0.1*float64(round*7%10)
				}
				times.Values = append(times.Values, v)
			}
			bytes := Series{Name: times.Name, Unit: "stored-B/value", Values: []float64{101.5 + float64(side*(i%2))}, Exact: true}
			runs[side].Series = append(runs[side].Series, times, bytes)
		}
	}
	runs[0].Series = append(runs[0].Series, Series{Name: "Gone", Unit: "sec/op", Values: []float64{1}})
	runs[1].Failed = []Failure{{Cell: "Gone", Error: "4 of 100 came back changed"}}
	r, err := Compare(t.Context(), runs[0], runs[1], Rules{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCompareTable(t *testing.T) {
	lab := func(_ int, base string, keyValues ...string) string { return Name(base, keyValues...) }
	servers := func(i int, base string, keyValues ...string) string { // a key that not all have
		if i > 1 {
			keyValues = append(keyValues, "server", "appendonly=always")
		}
		return Name(base, keyValues...)
	}
	mixed := func(i int, base string, keyValues ...string) string {
		return strings.Repeat("Long", 20) + fmt.Sprint("/", i, "/") + Name(base, keyValues...)
	}
	const verdicts = "of the gate, no cell has allocs 3 REGRESSIONS, 0 better, 4 same, 1 UNMEASURABLE, 1 FAILED; gate time=5%,bytes=0,allocs=0"
	for name, test := range map[string]struct {
		name         func(i int, base string, keyValues ...string) string
		all          bool
		want, narrow []string // what there is in 100 columns and in 80
	}{
		"a matrix": {lab, false, []string{"WARNING: not the same environment: redis was 7, now 8", "share no noise", "all cells: RoundTrip, data=profiles, track=typed, codec=json, client=rueidis:4-auto,",
			"callers=64\n\ncompress ", "zstd:3+dict     sec/op          140.6µ  168.8µ", "zstd:3/go+dict  sec/op", "UNMEASURABLE: compress=zstd:3/go+dict, sec/op: too noisy: 10 rounds, and it would take about",
			"zstd:3+dict     stored-B/value   101.5   102.5", "FAILED now, and not before: Gone: 4 of 100 came back changed", verdicts},
			[]string{"compress=zstd:3+dict\n  sec/op ", "compress=zstd:3/go+dict\n  sec/op ", "REGRESSION\n", verdicts}},
		"all of it": {lab, true, []string{"none            stored-B/value", "same\n", verdicts}, []string{"compress=none\n  sec/op ", "same\n"}},
		"a key that not all have": {servers, false, []string{"compress  ", "server", "zstd:3+dict     -                  sec/op", "zstd:3/go+dict  appendonly=always  sec/op", "compress=zstd:3/go+dict, server=appendonly=always, sec/op"},
			[]string{"compress=zstd:3+dict\n  sec/op ", "compress=zstd:3/go+dict, server=appendonly=always\n"}},
		"long names": {mixed, false, []string{"LongLongLong", "Long/1/RoundTrip/data=", "REGRESSION\n", "UNMEASURABLE\n", "\n  sec/op "}, []string{"LongLongLong", "REGRESSION\n", "\n  sec/op "}},
	} {
		t.Run(name, func(t *testing.T) {
			r := compared(t, test.name)
			text := pagetest.Written(t, page.Width, func(w page.Sheet) { r.WriteText(w, TextOptions{All: test.all}) })
			pagetest.Has(t, text, test.want...)
			if test.all != strings.Contains(text, "same\n") {
				t.Errorf("what is the same is shown: %v\n%s", !test.all, text)
			}
			pagetest.Has(t, pagetest.Written(t, 80, func(w page.Sheet) { r.WriteText(w, TextOptions{All: test.all}) }), test.narrow...)
		})
	}
}

// TestCompareFewCells: a single cell has no column. Several cells have the column in which they
// differ, even if only one of them is shown. The report notes that too few cells cannot show a
// shift.
func TestCompareFewCells(t *testing.T) {
	times := func(name string, by float64) Series {
		s := Series{Name: Name("RoundTrip", "data", "profiles", "compress", name, "callers", "8"), Unit: "sec/op"}
		for round := range 8 {
			s.Values = append(s.Values, 100e-6*(1+by*float64(round)))
		}
		return s
	}
	const cannot = "%s with a time are too few to see whether the whole machine was slower"
	one := &Benchmarks{Series: []Series{times("none", 0.1)}, Warnings: []string{"BUSY MACHINE: other programs used 1.5 of 2 cores meanwhile"}, Versions: []Setting{{Key: "example.com/codec", Value: "v1.0.0"}}}
	two := &Benchmarks{Series: []Series{times("none", 0.1), times("s2", 0.0001)}, Versions: []Setting{{Key: "example.com/codec", Value: "v1.1.0"}}}
	four := &Benchmarks{Series: []Series{times("none", 0.0001), times("s2", 0.0001), times("lz4", 0.0001), times("zstd:3", 0.0001)}}
	five := &Benchmarks{Series: slices.Clone(four.Series)}
	for i := range five.Series {
		five.Series[i].Values = slices.Clone(five.Series[i].Values)
		for k := range five.Series[i].Values {
			five.Series[i].Values[k] *= 1.04
		}
	}
	for _, test := range []struct {
		name       string
		old, new   *Benchmarks
		want, none []string
	}{
		{"one", one, one, []string{fmt.Sprintf(cannot, "1 cell"), "WARNING: the old run: BUSY MACHINE", "WARNING: the new run: BUSY MACHINE",
			"cell: RoundTrip, data=profiles, compress=none, callers=8\n\nunit ", "\nsec/op  ", "UNMEASURABLE: sec/op: too noisy: 8 rounds, and it would take about"}, []string{"another version"}},
		{"two, of which one is shown", two, two, []string{fmt.Sprintf(cannot, "2 cells"), "all cells: RoundTrip, data=profiles, callers=8\n\ncompress  unit ", "\nnone      sec/op  ", "UNMEASURABLE: compress=none, sec/op: too noisy"}, []string{"WARNING"}},
		{"one of two", one, two, []string{"another version: example.com/codec was v1.0.0, now v1.1.0", "only in the new run: RoundTrip/data=profiles/compress=s2", "WARNING: the old run: BUSY"}, []string{"WARNING: the new run"}},
		{"four alike", four, four, []string{"share no noise", "0 REGRESSIONS"}, []string{"cannot be told", "WARNING", "all cells"}},
		{"four slower", four, five, []string{"WARNING: the time of the median cell changed by +4.0%"}, []string{"cannot be told"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := Compare(t.Context(), test.old, test.new, Rules{})
			if err != nil {
				t.Fatal(err)
			}
			for _, width := range []int{80, 100} {
				text := pagetest.Written(t, width, func(w page.Sheet) { r.WriteText(w, TextOptions{}) })
				pagetest.Has(t, text, test.want...)
				for _, none := range test.none {
					if strings.Contains(text, none) {
						t.Errorf("%q in %s", none, text)
					}
				}
			}
		})
	}
}

func TestComparePackages(t *testing.T) {
	for paths, want := range map[[2]string]string{{"example.com/a/codec", "example.com/a/store"}: "\ncodec    X", {"example.com/a/codec", "example.com/b/codec"}: "\nexample.com/a/codec  X"} {
		run := &Benchmarks{}
		for _, p := range paths {
			run.Series = append(run.Series, Series{Package: p, Name: "X", Unit: "sec/op", Values: []float64{1}}, Series{Package: p, Name: "Y", Unit: "sec/op", Values: []float64{1}})
		}
		r, err := Compare(t.Context(), run, run, Rules{})
		if err != nil {
			t.Fatal(err)
		}
		pagetest.Has(t, pagetest.Written(t, page.Width, func(w page.Sheet) { r.WriteText(w, TextOptions{All: true}) }), want)
	}
}

// TestCompareCells: what became of cells that cannot be compared.
func TestCompareCells(t *testing.T) {
	r := &Report{
		Failed: []Failure{{Cell: "A", Error: "could not be measured: a time-out"}, {Cell: "example.com/p", Package: true}}, StillFailed: []Failure{{Cell: "B"}},
		NewFailed: []Failure{{Cell: "C"}}, Mended: []Failure{{Cell: "D", Error: "other bytes"}}, OnlyNew: []string{"E"}, Gate: "time=5%",
	}
	for i := range mostListed + 2 {
		r.OnlyOld = append(r.OnlyOld, fmt.Sprint("Old", i))
	}
	pagetest.Has(t, pagetest.Written(t, page.Width, func(w page.Sheet) { r.WriteText(w, TextOptions{}) }), "\nFAILED now, and not before: A: could not be measured: a time-out\nFAILED now, and not before: the package example.com/p\n",
		"\nFAILED in both runs: B\n", "\nFAILED, and is only in the new run: C\n", "\nFAILED before, and right now: D: other bytes\n", "\nonly in the old run: Old9\nonly in the old run: 2 more\n", "\nonly in the new run: E\n", ", 2 FAILED; gate")
}

// TestCompareForgedNames: names with ever other keys make no table with a column for each, which
// would take hours and all of the memory.
func TestCompareForgedNames(t *testing.T) {
	run := &Benchmarks{}
	for i := range 10_000 {
		name := "X"
		for j := range 15 {
			name += fmt.Sprintf("/k%dx%d=v", i, j)
		}
		run.Series = append(run.Series, Series{Name: name, Unit: "B/op", Values: []float64{1}})
	}
	r, err := Compare(t.Context(), run, run, Rules{})
	if err != nil {
		t.Fatal(err)
	}
	if n := nameCells(r.Comparisons); len(n.keys) != 1 || n.values[1][0] != run.Series[1].Name {
		t.Errorf("%d columns", len(n.keys))
	}
	r.WriteText(page.NewSheet(io.Discard, 0), TextOptions{All: true})
}

// TestTextDivides: the figures side by side divide to the change beside them, which has a sign only
// if noise does not explain it.
func TestTextDivides(t *testing.T) {
	run := func(values ...float64) *Benchmarks {
		return &Benchmarks{Series: []Series{{Name: "X", Unit: "ns/op", Values: values}}}
	}
	old := run(55, 55.6, 55.7, 55.82, 58, 59, 60)
	for _, test := range []struct {
		now  *Benchmarks
		want string
	}{
		{run(55.1, 55.5, 55.9, 58.08, 58.1, 58.2, 58.3), "55.82  58.08   ~4.0%"},
		{run(75.1, 75.5, 75.9, 78.08, 78.1, 78.2, 78.3), "55.82  78.08  +39.9%"},
	} {
		r, err := Compare(t.Context(), old, test.now, Rules{})
		if err != nil {
			t.Fatal(err)
		}
		pagetest.Has(t, pagetest.Written(t, page.Width, func(w page.Sheet) { r.WriteText(w, TextOptions{All: true}) }), test.want)
	}
}
