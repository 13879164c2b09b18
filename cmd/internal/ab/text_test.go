package ab

import (
	"strings"
	"testing"

	"github.com/balekv/bale/cmd/internal/compare"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/page/pagetest"
	"golang.org/x/perf/benchunit"
)

func TestABTable(t *testing.T) {
	// Half of the pairs on a slow machine: B is a twentieth faster in every pair, and yet its
	// median is above A's.
	a := compare.Series{Name: "X", Unit: "sec/op"}
	b := a
	for i := range 20 {
		v := 100e-6 * (1 + 0.001*float64(i))
		if i%2 == 1 {
			v *= 3
		}
		a.Values = append(a.Values, v)
		b.Values = append(b.Values, v*0.9)
	}
	a.Values, b.Values = append(a.Values, 100e-6), append(b.Values, 300e-6)
	compared := func(paired bool) *compare.Report {
		r, err := compare.Compare(t.Context(), &compare.Benchmarks{Series: []compare.Series{a}}, &compare.Benchmarks{Series: []compare.Series{b}}, compare.Rules{Paired: paired})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := compared(true)
	if c := r.Comparisons[0]; c.Change > -0.05 || c.New.Median < c.Old.Median {
		t.Fatalf("the medians go the way of the change: %+v", c)
	}
	for _, width := range []int{80, 100} {
		pagetest.Has(t, pagetest.Written(t, width, func(w page.Sheet) {
			(&Result{A: "./old.test", B: "./new.test", Blocks: 20, Again: r, Report: r, Interrupted: true}).WriteText(w, compare.TextOptions{All: true})
		}), "A, old: ./old.test\nB, new: ./new.test\n20 blocks of ABBA or BAAB: 80 runs, which are 40 pairs of A and B side by side, and as many again", "INTERRUPTED", "-10.0%",
			benchunit.Scale(r.Comparisons[0].Old.Median*0.9, benchunit.Decimal))
	}
	if text := pagetest.Written(t, page.Width, func(w page.Sheet) { (&Result{A: "a", B: "b", Report: r}).WriteText(w, compare.TextOptions{}) }); strings.Contains(text, "share no noise") {
		t.Error("pairs share their noise")
	}
	// Compared without their pairs they are medians, and the report notes that these disagree.
	pagetest.Has(t, pagetest.Written(t, page.Width, func(w page.Sheet) { compared(false).WriteText(w, compare.TextOptions{}) }), benchunit.Scale(r.Comparisons[0].New.Median, benchunit.Decimal),
		"can be outside", "UNMEASURABLE: sec/op: the medians go the other way")
}
