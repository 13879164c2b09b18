package compare

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
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

// LimitError says which limit of [Read] a text exceeds. It is an [ErrFormat].
type LimitError struct {
	What string // "warnings"
	Most int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("more than %d %s: too many for one run", e.Most, e.What)
}

// Is reports ErrFormat.
func (e *LimitError) Is(target error) bool { return target == ErrFormat }

// What Read takes of a text, beside maxSeries and maxFailed. A run of the lab has 10 settings and
// 30 versions; a benchmark may print lines that look like a setting.
const (
	maxFigures  = 1 << 20 // of all series together
	maxSettings = 10_000  // and as much metadata of units
	maxRemarks  = 1_000   // versions, and as many warnings
	maxName     = 1 << 10 // bytes of a package, a name and a unit each
	maxLine     = 4096    // bytes of a line that is no benchmark; the rest is cut off
	maxTexts    = 2 << 20 // bytes of all names and texts, each series counted with its own: --json takes 80 times that
)

// Read reads the Go benchmark format: the output of go test -bench, with each line of -count as a
// round, and of [Write]. It skips lines that are not benchmarks. A line that begins as a benchmark
// and is malformed is [ErrFormat] with a [*benchfmt.SyntaxError], whose file is name. Benchmarks
// and packages that go test reports as FAILED are in Benchmarks.Failed. Without any benchmark or
// failure it returns [ErrNoBenchmarks]. A run that is too large is a [LimitError]. Read ends with
// ctx.
func Read(ctx context.Context, r io.Reader, name string) (*Benchmarks, error) {
	run := &Benchmarks{}
	all := newLines(ctx, r, run)
	reader := benchfmt.NewReader(all, name)
	index, figures, units := map[key]int{}, 0, 0
	for reader.Scan() {
		switch record := reader.Result().(type) {
		case *benchfmt.SyntaxError:
			return nil, fmt.Errorf("%w: %w", ErrFormat, record)
		case *benchfmt.UnitMetadata:
			if units++; units > maxSettings {
				return nil, fmt.Errorf("%s: %w", name, &LimitError{"metadata of units", maxSettings})
			}
			if err := all.take(len(record.Unit) + len(record.Key) + len(record.Value)); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		case *benchfmt.Result:
			if figures += len(record.Values); figures > maxFigures {
				return nil, fmt.Errorf("%s: %w", name, &LimitError{"figures", maxFigures})
			}
			if err := all.add(record, index); err != nil {
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
	if len(run.Series) == 0 && len(run.Failed) == 0 {
		return nil, fmt.Errorf("%s: %w", name, ErrNoBenchmarks)
	}
	for i := range run.Environment {
		run.Environment[i].Value = strings.Join(all.values[run.Environment[i].Key], "; ")
	}
	metadata := reader.Units()
	for i := range run.Series {
		s := &run.Series[i]
		s.Higher = metadata.GetBetter(s.Unit) > 0
		if m := metadata.Get(s.Unit, assume); m != nil {
			s.Exact = m.Value == exact
		}
		s.AtLeast = all.seen[line{bounds, s.Cell(), s.Unit}]
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

// add adds the figures of a line.
func (l *lines) add(r *benchfmt.Result, index map[key]int) error {
	run := l.run
	file, at := r.Pos()
	malformed := func(format string, a ...any) error {
		return fmt.Errorf("%w: %w", ErrFormat, &benchfmt.SyntaxError{FileName: file, Line: at, Msg: fmt.Sprintf(format, a...)})
	}
	pkg := r.GetConfig(pkgKey)
	switch {
	case len(r.Name) == 0:
		return malformed("a benchmark without a name")
	case len(r.Name) > maxName || len(pkg) > maxName:
		return fmt.Errorf("%s:%d: %w", file, at, &LimitError{"bytes of a name", maxName})
	}
	for _, v := range r.Values {
		if math.IsNaN(v.Value) || math.IsInf(v.Value, 0) {
			return malformed("%v %s is no measurement", v.Value, v.Unit)
		}
		_, unit := benchunit.Tidy(1, v.Unit) // the reader leaves the unit of a zero as it is
		k := key{pkg, string(r.Name), unit}
		i, ok := index[k]
		if !ok {
			switch i = len(run.Series); {
			case i == maxSeries:
				return fmt.Errorf("%s:%d: %w", file, at, &LimitError{series, maxSeries})
			case len(unit) > maxName:
				return fmt.Errorf("%s:%d: %w", file, at, &LimitError{"bytes of a unit", maxName})
			}
			if err := l.take(len(pkg) + len(r.Name) + len(unit)); err != nil {
				return fmt.Errorf("%s:%d: %w", file, at, err)
			}
			index[k] = i
			run.Series = append(run.Series, Series{Package: k.pkg, Name: k.name, Unit: unit})
		}
		run.Series[i].Values = append(run.Series[i].Values, v.Value)
	}
	return nil
}

// lines hands on the lines of benchmarks, units and packages, and leaves the others empty. It reads
// those itself: the environment, benchmarks and packages that failed in go test, and versions,
// warnings, rates that were not kept and lower bounds of [Write].
type lines struct {
	ctx     context.Context // of Read
	scanner *bufio.Scanner
	next    []byte // to be handed on
	rest    []byte // of next
	run     *Benchmarks
	pkg     string
	broken  map[string]bool     // packages with a failed benchmark
	since   []Setting           // since the last benchmark
	at      map[string]int      // in since, by key
	values  map[string][]string // of the environment, by key
	seen    map[line]bool
	counts  map[string]int // of seen, by kind
	texts   int            // bytes of what is kept
	err     error          // the limit that was exceeded
}

// line is what a line says.
type line struct{ kind, key, value string }

// The kinds of lines, as a LimitError names them.
const (
	settings = "settings"
	versions = "versions"
	warnings = "warnings"
	failed   = "failed benchmarks"
	behind   = "rates that were not kept"
	bounds   = "lower bounds"
	series   = "series of figures"
	texts    = "bytes of names and texts"
)

func newLines(ctx context.Context, r io.Reader, run *Benchmarks) *lines {
	return &lines{
		ctx: ctx, scanner: bufio.NewScanner(r), run: run, broken: map[string]bool{}, at: map[string]int{}, values: map[string][]string{}, seen: map[line]bool{}, counts: map[string]int{},
	}
}

var (
	settingLine   = regexp.MustCompile(`^(\p{Ll}[^\s\v\x{85}\p{Z}\p{Lu}:]*):(?:[ \t]+(.*))?$`) // as benchfmt has it
	failedLine    = regexp.MustCompile(`^\s*--- FAIL: Benchmark(\S+)\s*(.*)`)
	failedPackage = regexp.MustCompile(`^FAIL\t(\S+)[ \t]*(?:\[(.*)\])?`) // with a time, or [build failed]
	versionLine   = regexp.MustCompile(`^` + versionMark + `(\S+): (.+)`)
	warningLine   = regexp.MustCompile(`^` + warningMark + `(.+)`)
	behindLine    = regexp.MustCompile(`^` + behindMark + `(\S+): (.+)`)
	boundLine     = regexp.MustCompile(`^` + boundMark + `(\S+) (\S+)$`)
)

// Lines with these prefixes are neither benchmarks nor lines of the environment, by which benchstat
// would separate runs.
const (
	versionMark = "# version of "
	warningMark = "# warning: "
	behindMark  = "# rate not kept: "
	boundMark   = "# lower bounds: "
)

// Read hands on a line, or a part of it.
func (l *lines) Read(b []byte) (int, error) {
	if len(l.rest) == 0 {
		if err := cmp.Or(l.err, l.ctx.Err()); err != nil {
			return 0, err
		}
		if !l.scanner.Scan() {
			return 0, cmp.Or(l.scanner.Err(), io.EOF)
		}
		l.next = l.next[:0]
		if b := l.scanner.Bytes(); l.look(b) {
			l.next = append(l.next, b...)
		}
		l.next = append(l.next, '\n')
		l.rest = l.next
	}
	n := copy(b, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// look looks at a line, and reports whether benchfmt reads it.
func (l *lines) look(b []byte) bool {
	switch {
	case bytes.HasPrefix(b, []byte("Benchmark")):
		if bytes.ContainsAny(b, " \t") { // one alone has just begun
			l.environment()
		}
		return true
	case bytes.HasPrefix(b, []byte("Unit")):
		return true
	}
	text := strings.ToValidUTF8(string(b[:min(maxLine, len(b))]), "\uFFFD")
	if m := settingLine.FindStringSubmatch(text); m != nil {
		if m[1] == pkgKey {
			l.pkg = m[2]
			return true
		}
		l.setting(m[1], m[2])
		return false
	}
	if m := failedLine.FindStringSubmatch(text); m != nil {
		l.broken[l.pkg] = true
		l.failed(Failure{Cell: cell(l.pkg, m[1]), Error: m[2]})
	}
	if m := failedPackage.FindStringSubmatch(text); m != nil && !l.broken[m[1]] { // it fails because of its benchmarks, too
		l.failed(Failure{Cell: m[1], Error: m[2], Package: true})
	}
	if !strings.HasPrefix(text, "#") {
		return false
	}
	if m := versionLine.FindStringSubmatch(text); m != nil && l.first(versions, maxRemarks, m[1], m[2]) {
		l.run.Versions = append(l.run.Versions, Setting{m[1], m[2]})
	}
	if m := warningLine.FindStringSubmatch(text); m != nil && l.first(warnings, maxRemarks, m[1], "") {
		l.run.Warnings = append(l.run.Warnings, m[1])
	}
	if m := behindLine.FindStringSubmatch(text); m != nil && l.first(behind, maxFailed, m[1], "") {
		l.run.Behind = append(l.run.Behind, Failure{Cell: m[1], Error: m[2]})
	}
	if m := boundLine.FindStringSubmatch(text); m != nil {
		l.first(bounds, maxSeries, m[1], m[2])
	}
	return false
}

func (l *lines) failed(f Failure) {
	if l.first(failed, maxFailed, f.Cell, "") {
		l.run.Failed = append(l.run.Failed, f)
	}
}

// setting takes a line of the environment; the last one of a key holds, and an empty value takes
// the key back.
func (l *lines) setting(key, value string) {
	if i, ok := l.at[key]; ok {
		l.since[i].Value = value
		return
	}
	if len(l.since) == maxSettings {
		l.err = &LimitError{settings, maxSettings}
		return
	}
	l.at[key] = len(l.since)
	l.since = append(l.since, Setting{key, value})
}

// environment takes the settings that a benchmark comes after. All values of a key stand in one
// line: files may have been appended.
func (l *lines) environment() {
	if len(l.since) == 0 {
		return
	}
	for _, s := range l.since {
		if s.Value == "" || !l.first(settings, maxSettings, s.Key, s.Value) {
			continue
		}
		if l.values[s.Key] == nil {
			l.run.Environment = append(l.run.Environment, Setting{Key: s.Key})
		}
		l.values[s.Key] = append(l.values[s.Key], s.Value)
	}
	l.since = l.since[:0]
	clear(l.at)
}

// first reports whether nothing said the same before. Beyond the limit of its kind it is an error.
func (l *lines) first(kind string, most int, key, value string) bool {
	said := line{kind, key, value}
	if l.seen[said] {
		return false
	}
	if l.counts[kind]++; l.counts[kind] > most {
		l.err = &LimitError{kind, most}
		return false
	}
	if l.err = l.take(len(key) + len(value)); l.err != nil {
		return false
	}
	l.seen[said] = true
	return true
}

// take counts bytes of names and texts that are kept.
func (l *lines) take(n int) error {
	if l.texts += n; l.texts > maxTexts {
		return &LimitError{texts, maxTexts}
	}
	return nil
}

// Write writes a run in Go benchmark format, a line for each round of each cell, so that benchstat
// reads it, and Read. Names must be without white space, as [Name] makes them, and keys of settings
// as [Setting] says; it is [ErrFormat] where they are not. Versions, warnings, rates that were not
// kept and lower bounds are lines that benchstat passes over: it compares no runs whose environment
// differs.
func Write(w io.Writer, run *Benchmarks) error {
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

// Name makes the name of a cell: the base, then each key with its value. Name("RoundTrip", "codec",
// "json", "callers", "64") is RoundTrip/codec=json/callers=64. It percent-encodes characters that
// would end a value or the name.
func Name(base string, keyValues ...string) string {
	var b strings.Builder
	b.WriteString(escape(base))
	for i := 0; i+1 < len(keyValues); i += 2 {
		fmt.Fprintf(&b, "/%s=%s", escape(keyValues[i]), escape(keyValues[i+1]))
	}
	name := b.String()
	// Readers take a minus with digits at the end for a number of processors.
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
