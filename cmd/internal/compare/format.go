package compare

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchunit"
)

// ErrFormat marks text that is not in Go benchmark format; a [*benchfmt.SyntaxError] below it has
// the line.
var ErrFormat = errors.New("not in Go benchmark format")

// ErrNoBenchmarks marks text without a single benchmark.
var ErrNoBenchmarks = errors.New("no benchmark in it")

// Read reads the Go benchmark format: what go test -bench prints, with each line of -count as a
// round, and what [Write] writes. Lines that are no benchmarks are passed over, but one that begins
// as a benchmark and is none is an error: [ErrFormat] with a [*benchfmt.SyntaxError], whose file is
// name. Benchmarks and packages that go test says FAILED are in Run.Failed. Without any of them it
// is [ErrNoBenchmarks].
func Read(r io.Reader, name string) (*Run, error) {
	run := &Run{}
	others := &otherLines{run: run, bounds: map[bound]bool{}}
	reader := benchfmt.NewReader(io.TeeReader(r, others), name)
	index, settings := map[key]int{}, map[Setting]bool{}
	for reader.Scan() {
		switch record := reader.Result().(type) {
		case *benchfmt.SyntaxError:
			return nil, fmt.Errorf("%w: %w", ErrFormat, record)
		case *benchfmt.Result:
			if err := run.add(record, index, settings); err != nil {
				return nil, err
			}
		}
	}
	if err := reader.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			return nil, fmt.Errorf("%w: %w", ErrFormat, err)
		}
		return nil, err
	}
	others.end()
	if len(run.Series) == 0 && len(run.Failed) == 0 {
		return nil, fmt.Errorf("%s: %w", name, ErrNoBenchmarks)
	}
	units := reader.Units()
	for i := range run.Series {
		s := &run.Series[i]
		s.Higher = units.GetBetter(s.Unit) > 0
		if m := units.Get(s.Unit, assume); m != nil {
			s.Exact = m.Value == exact
		}
		s.AtLeast = others.bounds[bound{s.Cell(), s.Unit}]
	}
	return run, nil
}

const (
	pkgKey = "pkg"
	// The metadata of units.
	assume = "assume"
	exact  = "exact"
	better = "better"
)

func (run *Run) add(r *benchfmt.Result, index map[key]int, settings map[Setting]bool) error {
	pkg := ""
	for _, c := range r.Config {
		if !c.File {
			continue
		}
		if c.Key == pkgKey {
			pkg = string(c.Value)
			continue
		}
		setting := Setting{c.Key, string(c.Value)}
		if settings[setting] {
			continue
		}
		settings[setting] = true
		known := slices.IndexFunc(run.Environment, func(s Setting) bool { return s.Key == c.Key })
		if known < 0 {
			run.Environment = append(run.Environment, setting)
		} else { // of another file that was appended
			run.Environment[known].Value += "; " + setting.Value
		}
	}
	if len(r.Name) == 0 {
		file, line := r.Pos()
		return fmt.Errorf("%w: %w", ErrFormat, &benchfmt.SyntaxError{FileName: file, Line: line, Msg: "a benchmark without a name"})
	}
	for _, v := range r.Values {
		if math.IsNaN(v.Value) || math.IsInf(v.Value, 0) {
			file, line := r.Pos()
			return fmt.Errorf("%w: %w", ErrFormat, &benchfmt.SyntaxError{FileName: file, Line: line, Msg: fmt.Sprintf("%v %s is no measurement", v.Value, v.Unit)})
		}
		_, unit := benchunit.Tidy(1, v.Unit) // the reader leaves the unit of a zero as it is
		k := key{pkg, string(r.Name), unit}
		i, ok := index[k]
		if !ok {
			i = len(run.Series)
			index[k] = i
			run.Series = append(run.Series, Series{Package: k.pkg, Name: k.name, Unit: unit})
		}
		run.Series[i].Values = append(run.Series[i].Values, v.Value)
	}
	return nil
}

// otherLines finds, line by line in what is written to it, what the format has no place for:
// benchmarks and packages that go test says failed, and versions, warnings, rates that were not
// kept and lower bounds of [Write].
type otherLines struct {
	run    *Run
	line   []byte
	pkg    string
	bounds map[bound]bool
}

// bound is a series whose figures are lower bounds.
type bound struct{ cell, unit string }

var (
	failedLine    = regexp.MustCompile(`^\s*--- FAIL: Benchmark(\S+)\s*(.*)`)
	failedPackage = regexp.MustCompile(`^FAIL\t(\S+)[ \t]*(?:\[(.*)\])?`) // with a time, or [build failed]
	packageLine   = regexp.MustCompile(`^pkg:[ \t]+(.+)`)
	versionLine   = regexp.MustCompile(`^` + versionMark + `(\S+): (.+)`)
	warningLine   = regexp.MustCompile(`^` + warningMark + `(.+)`)
	behindLine    = regexp.MustCompile(`^` + behindMark + `(\S+): (.+)`)
	boundLine     = regexp.MustCompile(`^` + boundMark + `(\S+) (\S+)$`)
)

// What begins so is no benchmark and no line of the environment, by which benchstat would keep runs
// apart.
const (
	versionMark = "# version of "
	warningMark = "# warning: "
	behindMark  = "# rate not kept: "
	boundMark   = "# lower bounds: "
)

// maxOtherLine is as much of a line as is looked at.
const maxOtherLine = 4096

func (o *otherLines) Write(b []byte) (int, error) {
	for line := range bytes.Lines(b) {
		if room := maxOtherLine - len(o.line); room > 0 {
			o.line = append(o.line, line[:min(room, len(line))]...)
		}
		if line[len(line)-1] == '\n' {
			o.end()
		}
	}
	return len(b), nil
}

// end looks at a whole line.
func (o *otherLines) end() {
	text := strings.TrimRight(strings.ToValidUTF8(string(o.line), "\uFFFD"), "\r\n")
	o.line = o.line[:0]
	if m := packageLine.FindStringSubmatch(text); m != nil {
		o.pkg = m[1]
	}
	if m := failedLine.FindStringSubmatch(text); m != nil {
		o.failed(Failure{Cell: cell(o.pkg, m[1]), Error: m[2]})
	}
	if m := failedPackage.FindStringSubmatch(text); m != nil {
		// It fails because of its benchmarks, too.
		if !slices.ContainsFunc(o.run.Failed, func(f Failure) bool { return strings.HasPrefix(f.Cell, m[1]+".") }) {
			o.failed(Failure{Cell: m[1], Error: m[2], Package: true})
		}
	}
	if m := versionLine.FindStringSubmatch(text); m != nil && !slices.Contains(o.run.Versions, Setting{m[1], m[2]}) {
		o.run.Versions = append(o.run.Versions, Setting{m[1], m[2]})
	}
	if m := warningLine.FindStringSubmatch(text); m != nil && !slices.Contains(o.run.Warnings, m[1]) {
		o.run.Warnings = append(o.run.Warnings, m[1])
	}
	if m := behindLine.FindStringSubmatch(text); m != nil && !has(o.run.Behind, m[1]) {
		o.run.Behind = append(o.run.Behind, Failure{Cell: m[1], Error: m[2]})
	}
	if m := boundLine.FindStringSubmatch(text); m != nil {
		o.bounds[bound{m[1], m[2]}] = true
	}
}

func (o *otherLines) failed(f Failure) {
	if !has(o.run.Failed, f.Cell) {
		o.run.Failed = append(o.run.Failed, f)
	}
}

// Write writes a run in Go benchmark format, a line for each round of each cell, so that benchstat
// reads it, and Read. Names must be without white space, as [Name] makes them, and keys of settings
// as [Setting] says; it is [ErrFormat] where they are not. Versions, warnings, rates that were not
// kept and lower bounds are lines that benchstat passes over: it compares no runs whose environment
// differs.
func Write(w io.Writer, run *Run) error {
	out := bufio.NewWriter(w)
	bw := benchfmt.NewWriter(out)
	if err := writeUnits(bw, run.Series); err != nil {
		return err
	}
	for _, v := range run.Versions {
		if !oneWord(v.Key) || strings.ContainsAny(v.Value, "\r\n") {
			return fmt.Errorf("%w: a version of %q", ErrFormat, v.Key)
		}
		if value := strings.TrimSpace(v.Value); value != "" {
			fmt.Fprintf(out, "%s%s: %s\n", versionMark, v.Key, value)
		}
	}
	for _, text := range run.Warnings {
		if strings.TrimSpace(text) == "" || strings.ContainsAny(text, "\r\n") {
			return fmt.Errorf("%w: a warning %q", ErrFormat, text)
		}
		fmt.Fprintf(out, "%s%s\n", warningMark, text)
	}
	for _, f := range run.Behind {
		if !oneWord(f.Cell) || f.Error == "" || strings.ContainsAny(f.Error, "\r\n") {
			return fmt.Errorf("%w: a rate of %q", ErrFormat, f.Cell)
		}
		fmt.Fprintf(out, "%s%s: %s\n", behindMark, f.Cell, f.Error)
	}
	for _, s := range run.Series {
		if !s.AtLeast {
			continue
		}
		if !oneWord(s.Cell()) || !oneWord(s.Unit) {
			return fmt.Errorf("%w: lower bounds of %q in %q", ErrFormat, s.Cell(), s.Unit)
		}
		fmt.Fprintf(out, "%s%s %s\n", boundMark, s.Cell(), s.Unit)
	}
	var environment []benchfmt.Config
	for _, s := range run.Environment {
		if !keyPattern.MatchString(s.Key) || s.Key == pkgKey || strings.ContainsAny(s.Value, "\r\n") {
			return fmt.Errorf("%w: a line of the environment of %q", ErrFormat, s.Key)
		}
		if value := strings.TrimSpace(s.Value); value != "" {
			environment = append(environment, benchfmt.Config{Key: s.Key, Value: []byte(value), File: true})
		}
	}
	var cells []key
	series := map[key][]Series{}
	for _, s := range run.Series {
		if !oneWord(s.Name) || !oneWord(s.Unit) || strings.ContainsAny(s.Package, "\r\n") {
			return fmt.Errorf("%w: a cell %q in %q", ErrFormat, s.Name, s.Unit)
		}
		k := key{pkg: s.Package, name: s.Name}
		if series[k] == nil {
			cells = append(cells, k)
		}
		series[k] = append(series[k], s)
	}
	for _, k := range cells {
		for round := 0; ; round++ {
			r := &benchfmt.Result{Name: benchfmt.Name(k.name), Iters: 1, Config: slices.Clone(environment)}
			if k.pkg != "" {
				r.Config = append(r.Config, benchfmt.Config{Key: pkgKey, Value: []byte(k.pkg), File: true})
			}
			for _, s := range series[k] {
				if round < len(s.Values) {
					r.Values = append(r.Values, scaled(s.Values[round], s.Unit))
				}
			}
			if r.Values == nil {
				break
			}
			if err := bw.Write(r); err != nil {
				return err
			}
		}
	}
	for _, f := range run.Failed {
		if !oneWord(f.Cell) || strings.ContainsAny(f.Error, "\r\n") {
			return fmt.Errorf("%w: a failed cell %q", ErrFormat, f.Cell)
		}
		line := fmt.Sprintf("--- FAIL: Benchmark%s %s", f.Cell, f.Error)
		if f.Package {
			line = fmt.Sprintf("FAIL\t%s [%s]", f.Cell, f.Error)
		}
		fmt.Fprintln(out, line)
	}
	return out.Flush()
}

var keyPattern = regexp.MustCompile(`^[a-z][^\s\p{Lu}:]*$`)

// oneWord says that a name is one word.
func oneWord(s string) bool {
	return s != "" && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsSpace)
}

func writeUnits(w *benchfmt.Writer, series []Series) error {
	seen := map[string]bool{}
	for _, s := range series {
		if seen[s.Unit] || !oneWord(s.Unit) {
			continue
		}
		seen[s.Unit] = true
		meta := map[string]string{better: "lower"}
		if s.Higher || strings.HasSuffix(s.Unit, "/s") {
			meta[better] = "higher"
		}
		if s.Exact {
			meta[assume] = exact
		}
		unit := scaled(1, s.Unit)
		name := s.Unit
		if unit.OrigUnit != "" {
			name = unit.OrigUnit
		}
		for _, k := range []string{better, assume} {
			if meta[k] == "" {
				continue
			}
			if err := w.Write(&benchfmt.UnitMetadata{UnitMetadataKey: benchfmt.UnitMetadataKey{Unit: s.Unit, Key: k}, OrigUnit: name, Value: meta[k]}); err != nil {
				return err
			}
		}
	}
	return nil
}

// scaled is a value as Go's benchmarks print it: sec/op as ns/op.
func scaled(v float64, unit string) benchfmt.Value {
	over, under, _ := strings.Cut(unit, "/")
	if head, ok := strings.CutSuffix(over, "sec"); ok && (head == "" || strings.HasSuffix(head, "-")) {
		ns := head + "ns"
		if under != "" {
			ns += "/" + under
		}
		if factor, tidied := benchunit.Tidy(1, ns); tidied == unit && factor == 1e-9 {
			return benchfmt.Value{Value: v, Unit: unit, OrigValue: v * 1e9, OrigUnit: ns}
		}
	}
	return benchfmt.Value{Value: v, Unit: unit}
}

// Name makes the name of a cell: the base, then each key with its value, as Name("RoundTrip",
// "codec", "json", "callers", "64") is RoundTrip/codec=json/callers=64. What would end a value or
// the name is percent-encoded in it.
func Name(base string, keyValues ...string) string {
	var b strings.Builder
	b.WriteString(escape(base))
	for i := 0; i+1 < len(keyValues); i += 2 {
		fmt.Fprintf(&b, "/%s=%s", escape(keyValues[i]), escape(keyValues[i+1]))
	}
	name := b.String()
	// What ends in a minus and digits is read as a number of processors.
	if m := processors.FindStringIndex(name); m != nil {
		name = name[:m[0]] + "%2D" + name[m[0]+1:]
	}
	return name
}

var processors = regexp.MustCompile(`-[0-9]+$`)

func escape(s string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		if r == '/' || r == '%' || unicode.IsSpace(r) || unicode.IsControl(r) {
			for _, c := range []byte(string(r)) {
				fmt.Fprintf(&b, "%%%02X", c)
			}
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Part is a piece of a cell's name.
type Part struct{ Key, Value string } // Key is "" for the base, and for a piece without =

// Parts are the pieces of a name, decoded.
func Parts(name string) []Part {
	var parts []Part
	for i, piece := range strings.Split(name, "/") {
		k, v, ok := strings.Cut(piece, "=")
		if !ok || i == 0 {
			k, v = "", piece
		}
		parts = append(parts, Part{unescape(k), unescape(v)})
	}
	return parts
}

func unescape(s string) string {
	if u, err := url.PathUnescape(s); err == nil && utf8.ValidString(u) {
		return u
	}
	return s
}
