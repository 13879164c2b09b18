package report

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/balekv/bale/cmd/bale/internal/ab"
	"github.com/balekv/bale/cmd/bale/internal/compare"
)

// compared is a comparison of a matrix as the lab's, with one cell a fifth slower, one too noisy, and a key a byte longer.
func compared(t *testing.T, name func(i int, base string, keyValues ...string) string) *compare.Report {
	t.Helper()
	var runs [2]*compare.Run
	for side := range runs {
		runs[side] = &compare.Run{Environment: []compare.Setting{{Key: "redis", Value: fmt.Sprint(7 + side)}}}
		for i, compress := range []string{"none", "zstd:3+dict", "zstd:3/go+dict", "s2"} {
			times := compare.Series{Name: name(i, "RoundTrip", "data", "profiles", "track", "typed", "codec", "json", "compress", compress, "client", "rueidis:4-auto", "callers", "64"), Unit: "sec/op"}
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
			bytes := compare.Series{Name: times.Name, Unit: "stored-B/value", Values: []float64{101.5 + float64(side*(i%2))}, Exact: true}
			runs[side].Series = append(runs[side].Series, times, bytes)
		}
	}
	runs[0].Series = append(runs[0].Series, compare.Series{Name: "Gone", Unit: "sec/op", Values: []float64{1}})
	runs[1].Failed = []compare.Failure{{Cell: "Gone", Error: "4 of 100 came back changed"}}
	r, err := compare.Compare(runs[0], runs[1], compare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCompareTable(t *testing.T) {
	lab := func(_ int, base string, keyValues ...string) string { return compare.Name(base, keyValues...) }
	mixed := func(i int, base string, keyValues ...string) string {
		return strings.Repeat("Long", 20) + fmt.Sprint("/", i, "/") + compare.Name(base, keyValues...)
	}
	for name, test := range map[string]struct {
		name func(i int, base string, keyValues ...string) string
		all  bool
		want []string
	}{
		"a matrix": {lab, false, []string{"WARNING: not the same environment: redis was 7, now 8", "share no noise", "all: RoundTrip, data=profiles, track=typed, codec=json, client=rueidis:4-auto,",
			"zstd:3+dict     sec/op          140.6µ  168.8µ", "zstd:3/go+dict  sec/op", "UNMEASURABLE (1): too noisy: 10 rounds", "zstd:3+dict     stored-B/value   101.5   102.5",
			"FAILED now, and not before: Gone: 4 of 100 came back changed", "\n3 REGRESSIONS, 0 better, 4 same, 1 UNMEASURABLE, 1 FAILED; gate time=5%,bytes=0,allocs=0\n"}},
		"all of it":  {lab, true, []string{"none            stored-B/value", "same\n"}},
		"long names": {mixed, true, []string{"…", "REGRESSION\n", "UNMEASURABLE\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := compared(t, test.name)
			var out strings.Builder
			Compare(&out, r, CompareOptions{All: test.all})
			for _, want := range test.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, &out)
				}
			}
			for line := range strings.Lines(out.String()) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > Width {
					t.Errorf("%d columns: %s", n, line)
				}
			}
			if test.all != strings.Contains(out.String(), "same\n") {
				t.Errorf("what is the same is shown: %v\n%s", !test.all, &out)
			}
			t.Log("\n" + out.String())
		})
	}
	var out strings.Builder
	for paths, want := range map[[2]string]string{{"example.com/a/codec", "example.com/a/store"}: "\ncodec    X", {"example.com/a/codec", "example.com/b/codec"}: "\nexample.com/a/codec  X"} {
		run := &compare.Run{}
		for _, p := range paths {
			run.Series = append(run.Series, compare.Series{Package: p, Name: "X", Unit: "sec/op", Values: []float64{1}}, compare.Series{Package: p, Name: "Y", Unit: "sec/op", Values: []float64{1}})
		}
		r, err := compare.Compare(run, run, compare.Options{})
		if err != nil {
			t.Fatal(err)
		}
		out.Reset()
		Compare(&out, r, CompareOptions{All: true})
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	out.Reset()
	r := compared(t, lab)
	r.Paired = true
	AB(&out, &ab.Result{A: "./old.test", B: "./new.test", Blocks: 20, Again: r, Report: r, Interrupted: true}, CompareOptions{})
	for _, want := range []string{"A, old: ./old.test\nB, new: ./new.test\n20 blocks of ABBA or BAAB: 40 pairs of runs, and as many again", "INTERRUPTED"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "share no noise") {
		t.Error("pairs share their noise")
	}
}
