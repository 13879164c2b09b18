package compare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/internal/testvalues"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/perf/benchfmt"
)

const printed = `goos: linux
goarch: amd64
pkg: example.com/codec
cpu: AMD EPYC
BenchmarkJSON/size=small-2         	  100000	      1200 ns/op	     256 B/op	       3 allocs/op
BenchmarkJSON/size=small-2         	  100000	      1300 ns/op	     256 B/op	       3 allocs/op
BenchmarkZero
BenchmarkZero-2   	1000000000	         0 ns/op	   12.5 MB/s	 77 p99-ns/op
--- FAIL: BenchmarkBroken
    codec_test.go:7: not what went in
FAIL
exit status 1
FAIL	example.com/codec	3.1s
pkg: example.com/other
BenchmarkJSON/size=small-2	10	5 ns/op
PASS
ok  	example.com/other	1.0s
FAIL	example.com/third [build failed]
FAIL
`

func TestReadWhatGoTestPrints(t *testing.T) {
	got, err := Read(t.Context(), strings.NewReader(printed), "old.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := &Benchmarks{
		Environment: []Setting{{"goos", "linux"}, {"goarch", "amd64"}, {"cpu", "AMD EPYC"}},
		Series: []Series{
			{Package: "example.com/codec", Name: "JSON/size=small-2", Unit: "sec/op", Values: []float64{1200e-9, 1300e-9}},
			{Package: "example.com/codec", Name: "JSON/size=small-2", Unit: "B/op", Values: []float64{256, 256}},
			{Package: "example.com/codec", Name: "JSON/size=small-2", Unit: "allocs/op", Values: []float64{3, 3}},
			{Package: "example.com/codec", Name: "Zero-2", Unit: "sec/op", Values: []float64{0}},
			{Package: "example.com/codec", Name: "Zero-2", Unit: "B/s", Values: []float64{12.5e6}, Higher: true},
			{Package: "example.com/codec", Name: "Zero-2", Unit: "p99-sec/op", Values: []float64{77e-9}},
			{Package: "example.com/other", Name: "JSON/size=small-2", Unit: "sec/op", Values: []float64{5e-9}},
		},
		Failed: []Failure{{Cell: "example.com/codec.Broken"}, {Cell: "example.com/third", Error: "build failed", Package: true}},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(1e-12, 0)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// lab is a run as the lab makes it.
func lab() *Benchmarks {
	name := Name("RoundTrip", "data", "my values/1", "codec", "json", "compress", "zstd:3/go+dict", "callers", "64")
	other := Name("RoundTrip", "data", "100%", "host", "box-12")
	return &Benchmarks{
		Environment: []Setting{{"cpu", "AMD EPYC"}, {"redis", "7.0.15"}, {"load", "closed loop; 64 callers"}},
		Versions:    []Setting{{"bale", "v1.2.3 0123abc"}, {"github.com/Some/codec", "v1.0.0"}},
		Warnings:    []string{"BUSY MACHINE: other programs used 1.5 of 2 cores meanwhile"},
		Series: []Series{
			{Name: name, Unit: "sec/op", Values: []float64{140.3e-6, 141.2e-6, 139.9e-6, 140.1e-6, 140.2e-6, 140.4e-6}},
			{Name: name, Unit: "p99-sec/op", Values: []float64{1e-3, 2e-3, 3e-3, 1e-3, 2e-3, 3e-3}, AtLeast: true},
			{Name: name, Unit: "allocs/op", Values: []float64{111.25, 111.5, 111.25, 111.5, 111.25, 111.5}},
			{Name: name, Unit: "values/s", Values: []float64{7127.6, 7100, 7000, 7127.6, 7100, 7000}, Higher: true},
			{Name: name, Unit: "stored-B/value", Values: []float64{101.5}, Exact: true},
			{Name: other, Unit: "sec/op", Values: []float64{1}},
		},
		Failed: []Failure{{Cell: "RoundTrip/data=bad", Error: "4 of 100 came back changed"}, {Cell: "example.com/third", Error: "build failed", Package: true}},
		Behind: []Failure{{Cell: other, Error: "does 2 of 5 operations a second"}},
	}
}

func TestRoundTrip(t *testing.T) {
	var text bytes.Buffer
	if err := Write(&text, lab()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Unit ns/op better=lower\n", "Unit p99-ns/op better=lower\n", "Unit stored-B/value better=lower\nUnit stored-B/value assume=exact\n", "Unit values/s better=higher\n",
		"cpu: AMD EPYC\nredis: 7.0.15\n", "BenchmarkRoundTrip/data=my%20values%2F1/codec=json/compress=zstd:3%2Fgo+dict/callers=64 1 140300", "/data=100%25/host=box%2D12 1 1e+09 ns/op",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	got, err := Read(t.Context(), &text, "written")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(lab(), got, cmpopts.EquateApprox(1e-12, 0)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Part{{"", "RoundTrip"}, {"data", "my values/1"}, {"codec", "json"}, {"compress", "zstd:3/go+dict"}, {"callers", "64"}}, Parts(got.Series[0].Name)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestBenchstatReads what Write writes: figures, the directions and the exact units; and it
// compares runs of other versions, with warnings.
func TestBenchstatReads(t *testing.T) {
	dir := t.TempDir()
	old, slower := lab(), lab()
	for i := range slower.Series[0].Values {
		slower.Series[0].Values[i] *= 2
	}
	slower.Series[4].Values[0] = 203
	slower.Versions[0].Value, slower.Warnings = "v1.2.4 4567def", nil
	for name, r := range map[string]*Benchmarks{"old": old, "new": slower} {
		var text bytes.Buffer
		if err := Write(&text, r); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "run", "golang.org/x/perf/cmd/benchstat", filepath.Join(dir, "old"), filepath.Join(dir, "new"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"sec/op", "140.3µ", "280.5µ", "+100.00% (p=0.002 n=6)", "stored-B/value", "101.5", "203.0", "values/s"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// TestTwoFilesInOne: each difference between the files is reported once.
func TestTwoFilesInOne(t *testing.T) {
	one := "cpu: A\nBenchmarkX 1 5 ns/op\n"
	r, err := Read(t.Context(), strings.NewReader(one+one+strings.Replace(one, "A", "B", 1)+one), "both")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Setting{{"cpu", "A; B"}}, r.Environment); diff != "" || len(r.Series) != 1 || len(r.Series[0].Values) != 4 {
		t.Errorf("%+v %s", r.Series, diff)
	}
}

func TestMalformed(t *testing.T) {
	for _, test := range []struct {
		text, want string
		line       int
	}{
		{"goos: linux\nBenchmarkX abc 1 ns/op\n", "parsing iteration count: invalid syntax", 2},
		{"\n\nBenchmarkX 1\n", "missing measurements", 3},
		{"BenchmarkX 1 5\n", "missing units", 1},
		{"BenchmarkX 1 five ns/op\n", "parsing measurement: invalid syntax", 1},
		{"BenchmarkX 1 5 ns/op\nBenchmarkX 1 NaN ns/op\n", "NaN sec/op is no measurement", 2},
		{"BenchmarkX 1 +Inf ns/op\n", "+Inf ns/op is no measurement", 1},
		{"Unit\nBenchmarkX 1 5 ns/op\n", "missing unit", 1},
		{"Unit ns/op better\n", "expected key=value", 1},
		{"Unit ns/op better=lower\nUnit ns/op better=higher\n", "already set to lower", 2},
		{"Benchmark 1 5 ns/op\n", "a benchmark without a name", 1},
	} {
		_, err := Read(t.Context(), strings.NewReader(test.text), "old.txt")
		syntax, ok := errors.AsType[*benchfmt.SyntaxError](err)
		if !ok || !errors.Is(err, ErrFormat) || syntax.Line != test.line || syntax.FileName != "old.txt" || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v, want line %d: %s", test.text, err, test.line, test.want)
		}
	}
	if _, err := Read(t.Context(), strings.NewReader("BenchmarkX 1 5 ns/op\n"+strings.Repeat("x", 1<<17)), "old.txt"); !errors.Is(err, ErrFormat) {
		t.Errorf("a long line: %v", err)
	}
	for _, none := range []string{"", "{}", "PASS\nok  \texample.com\t0.1s\n", "BenchmarkX\n"} {
		if _, err := Read(t.Context(), strings.NewReader(none), "old.txt"); !errors.Is(err, ErrNoBenchmarks) || !strings.Contains(err.Error(), "old.txt") {
			t.Errorf("%q: %v", none, err)
		}
	}
	for _, bad := range []*Benchmarks{
		{Series: []Series{{Name: "a b", Unit: "sec/op", Values: []float64{1}}}},
		{Series: []Series{{Name: "", Unit: "sec/op", Values: []float64{1}}}},
		{Series: []Series{{Name: "a", Unit: "sec op", Values: []float64{1}}}},
		{Environment: []Setting{{"Go Version", "1"}}},
		{Environment: []Setting{{"go", "1\n2"}}},
		{Failed: []Failure{{Cell: "a b"}}},
		{Versions: []Setting{{"a b", "1"}}},
		{Versions: []Setting{{"a", "1\n2"}}},
		{Warnings: []string{"a\nb"}},
		{Behind: []Failure{{Cell: "a b", Error: "slow"}}},
		{Behind: []Failure{{Cell: "a"}}},
		{Series: []Series{{Package: "a b", Name: "a", Unit: "sec/op", Values: []float64{1}, AtLeast: true}}},
		{Warnings: []string{" "}},
	} {
		if err := Write(&bytes.Buffer{}, bad); !errors.Is(err, ErrFormat) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// FuzzRead reads anything, and what could be read is the same after Write.
func FuzzRead(f *testing.F) {
	f.Add(printed)
	f.Add("Unit ns/op assume=exact\nBenchmarkX 1 5 ns/op 3 \xff\nkey: value\nBenchmarkX 1 5 sec/op")
	f.Add("# rate not kept: X: does 2 of 5\n# lower bounds: a.X sec/op\npkg: a\nBenchmarkX 1 5 ns/op")
	f.Add("pkg: a\nBenchmarkX 1 5 ns/op\npkg:\nBenchmarkX 1 0 MB/s\nkey: other\nBenchmarkX/a=%2 1 1e300 ns/op")
	f.Fuzz(func(t *testing.T, text string) {
		first, err := Read(t.Context(), strings.NewReader(text), "fuzz")
		if err != nil {
			if !errors.Is(err, ErrFormat) && !errors.Is(err, ErrNoBenchmarks) {
				t.Fatal(err)
			}
			return
		}
		if _, err := Compare(t.Context(), first, first, Rules{}); err != nil && !errors.Is(err, ErrIncomparable) {
			t.Fatal(err)
		}
		var written bytes.Buffer
		if err := Write(&written, first); err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		second, err := Read(t.Context(), bytes.NewReader(written.Bytes()), "fuzz")
		if err != nil {
			t.Fatalf("%v\n%s", err, &written)
		}
		// The order of units and packages is that of the cells; values may lose their last bit by
		// the scale.
		byKey := cmpopts.SortSlices(func(a, b Series) bool { return a.Package+a.Name+a.Unit < b.Package+b.Name+b.Unit })
		opts := cmp.Options{byKey, cmpopts.EquateApprox(1e-12, 0), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(Benchmarks{}, "Environment", "Failed", "Behind", "Versions", "Warnings"), cmpopts.IgnoreFields(Series{}, "Higher")}
		if diff := cmp.Diff(first, second, opts); diff != "" {
			t.Fatalf("(-first +second):\n%s\n%s", diff, &written)
		}
	})
}

// TestReadLimits: a text beyond a limit is refused, with the limit; one that reaches it is read.
func TestReadLimits(t *testing.T) {
	repeat := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	// wide repeats a format for numbers of most bytes, and less for the last two, so that they have n
	// bytes together with what each has beside.
	wide := func(n, most int, format, beside string) string {
		var b strings.Builder
		most += len(beside)
		for i := 0; n > 0; i++ {
			size := min(n, most)
			if n > most && n < 2*most {
				size = n / 2
			}
			fmt.Fprintf(&b, format, size-len(beside), i)
			n -= size
		}
		return b.String()
	}
	const benchmark = "BenchmarkX 1 5 ns/op\n"
	long := strings.Repeat("n", maxName)
	for _, test := range []struct {
		what    string
		most    int
		text    func(n int) string
		problem string
	}{
		{"settings", maxSettings, func(n int) string { return repeat(n, "key%d: value\n") + benchmark }, "of different keys"},
		{"settings", maxSettings, func(n int) string { return repeat(n, "key: value%d\n"+benchmark) }, "of one key"},
		{"versions", maxRemarks, func(n int) string { return repeat(n, "# version of a%d: 1\n") + benchmark }, ""},
		{"warnings", maxRemarks, func(n int) string { return repeat(n, "# warning: %d\n") + benchmark }, ""},
		{"failed benchmarks", maxFailed, func(n int) string { return repeat(n, "--- FAIL: BenchmarkF%d\n") }, ""},
		{"failed benchmarks", maxFailed, func(n int) string { return repeat(n, "FAIL\tp%d\n") }, "packages"},
		{"rates that were not kept", maxFailed, func(n int) string { return repeat(n, "# rate not kept: r%d: slow\n") + benchmark }, ""},
		{"lower bounds", maxSeries, func(n int) string { return repeat(n, "# lower bounds: b%d sec/op\n") + benchmark }, ""},
		{"series of figures", maxSeries, func(n int) string { return repeat(n, "BenchmarkX%d 1 5 ns/op\n") }, ""},
		{"figures", maxFigures, func(n int) string {
			return strings.Repeat("BenchmarkX 1"+strings.Repeat(" 5 ns/op", 1024)+"\n", n/1024) + strings.Repeat(benchmark, n%1024)
		}, ""},
		{"metadata of units", maxSettings, func(n int) string { return repeat(n, "Unit u%d better=lower\n") + benchmark }, ""},
		{"bytes of a name", maxName, func(n int) string { return "Benchmark" + long[:maxName-1] + repeat(n-maxName+1, "%d") + " 1 5 ns/op\n" }, ""},
		{"bytes of a name", maxName, func(n int) string { return "pkg: " + long[:maxName-1] + repeat(n-maxName+1, "%d") + "\n" + benchmark }, "of a package"},
		{"bytes of names and texts", maxTexts, func(n int) string { // X in ns/op, which is sec/op
			return wide(n-len("X"+"sec/op"), maxName, "Benchmark%0*d 1 5 u\n", "u") + benchmark
		}, "of series"},
		{"bytes of names and texts", maxTexts, func(n int) string {
			return wide(n-len("X"+"sec/op"), maxLine-len("key: "), "key: %0*d\n"+benchmark, "key") + benchmark
		}, "of settings"},
		{"bytes of names and texts", maxTexts, func(n int) string {
			return wide(n-len("X"+"sec/op"), maxLine, "Unit %0*d better=lower\n", "better"+"lower") + benchmark
		}, "of units"},
		{"bytes of a unit", maxName, func(n int) string { return "BenchmarkX 1 5 " + long[:maxName-1] + repeat(n-maxName+1, "%d") + "\n" }, ""},
	} {
		t.Run(strings.TrimSpace(test.what+" "+test.problem), func(t *testing.T) {
			if _, err := Read(t.Context(), strings.NewReader(test.text(test.most)), "old.txt"); err != nil {
				t.Errorf("with %d: %v", test.most, err)
			}
			_, err := Read(t.Context(), strings.NewReader(test.text(test.most+1)), "old.txt")
			limit, ok := errors.AsType[*LimitError](err)
			if !ok || limit.What != test.what || limit.Most != test.most || !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "old.txt") {
				t.Errorf("with one more: %v", err)
			}
		})
	}
}

// TestOverwrittenSettings: what a program prints between benchmarks may look like a setting. The
// last one counts.
func TestOverwrittenSettings(t *testing.T) {
	var text strings.Builder
	for i := range 2 * maxSettings {
		fmt.Fprintf(&text, "info: %d\ngone: %d\n", i, i)
	}
	r, err := Read(t.Context(), strings.NewReader(text.String()+"gone:\nBenchmarkX 1 5 ns/op\n"), "old.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Setting{{"info", fmt.Sprint(2*maxSettings - 1)}}, r.Environment); diff != "" {
		t.Error(diff)
	}
}

// TestManyValuesOfASetting: what is read takes memory in proportion to it.
func TestManyValuesOfASetting(t *testing.T) {
	if testvalues.Race {
		t.Skip("the race detector allocates")
	}
	var text strings.Builder
	for i := range maxSettings {
		fmt.Fprintf(&text, "key: %0100d\nBenchmarkX 1 5 ns/op\n", i)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := Read(t.Context(), strings.NewReader(text.String()), "old.txt")
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > uint64(50*text.Len()) { // the square of it would be 4,000 times
		t.Errorf("%d bytes for a text of %d", took, text.Len())
	}
	if n := strings.Count(r.Environment[0].Value, "; "); n != maxSettings-1 {
		t.Errorf("%d values", n+1)
	}
}

// endless gives the same line again and again, and cancels a context after the first.
type endless struct{ cancel func() }

func (e endless) Read(b []byte) (int, error) {
	e.cancel()
	return copy(b, "BenchmarkX 1 5 ns/op\n"), nil
}

func TestReadEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := Read(ctx, endless{cancel}, "old.txt"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestManyLibraries: repeated versions are listed once.
func TestManyLibraries(t *testing.T) {
	r := outcome.Run{Environment: outcome.Environment{Bale: "v1"}}
	for i := range 30_000 {
		r.Environment.Libraries = append(r.Environment.Libraries, outcome.Library{Module: fmt.Sprint("m", i%15_000), Version: "v1"})
	}
	if n := len(Of(&r).Versions); n != 15_001 {
		t.Errorf("%d versions", n)
	}
}

// TestLongErrors: an error is as long as Read takes one, however long the result has it.
func TestLongErrors(t *testing.T) {
	r := outcome.Run{Cells: []outcome.Cell{{Mismatch: true, Error: strings.Repeat("a ", 1<<20)}, {Mismatch: true, Error: strings.Repeat("世", 1<<20)}}}
	for _, f := range Of(&r).Failed {
		if len(f.Error) > maxLine+len("\uFFFD") || len(f.Error) < maxLine-len("\uFFFD") {
			t.Errorf("%d bytes", len(f.Error))
		}
	}
}
