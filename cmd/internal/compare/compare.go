// Package compare says what changed between two runs of the same benchmarks, and what noise would
// have done as well.
//
// [Read] and [Write] speak the Go benchmark format. [Compare] turns two runs and a [Gate] into a
// [Report], which calls every comparison the same, better, a regression or unmeasurable. The
// statistics are exact rank tests and their intervals. They use no random numbers, so that the same
// two runs always get the same verdicts. docs/method.md has the formulas and their sources.
package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/rank"
)

// Benchmarks are what one run measured.
type Benchmarks struct {
	Environment []Setting // in order: what has to be the same in both runs for a change to be that of the programs
	Versions    []Setting // of what is compared: a difference may be why a figure changed
	Warnings    []string  // of whoever measured: another program had the machine, not all rounds were taken
	Series      []Series
	Failed      []Failure // cells that gave wrong results, or none
	Behind      []Failure // cells of an open loop that did not keep the rate; their figures are right
}

// Setting is a line about the environment.
type Setting struct {
	Key   string `json:"key"` // begins with a lower-case letter; no space, no upper case, no colon
	Value string `json:"value"`
}

// Failure is a cell without figures, or with wrong results, and why.
type Failure struct {
	Cell    string `json:"cell"`
	Error   string `json:"error,omitempty"`
	Package bool   `json:"package,omitempty"` // Cell is a package, which did not come to all of its benchmarks
}

// Series are the figures of one cell in one unit, one for each round. Package, Name and Unit tell
// it apart from others of its run.
type Series struct {
	Package string    // import path, where the benchmarks are Go's own; else ""
	Name    string    // the cell, as [Name] makes it: a Go benchmark's name without "Benchmark"
	Unit    string    // of base units: sec/op, B/op, allocs/op, p99-sec/op
	Values  []float64 // finite; at least one
	Exact   bool      // counted, not timed: a difference needs no test
	Higher  bool      // more is better; units that end in "/s" are so without it
	AtLeast bool      // lower bounds: of latencies, of which less is better
}

// Verdict is what a comparison comes to.
type Verdict string

// The verdicts. The empty one is that of units without a gate.
const (
	Same         Verdict = "same"         // a regression beyond the floor is excluded
	Better       Verdict = "better"       // proven, and beyond the floor
	Regression   Verdict = "regression"   // proven, and beyond the floor
	Unmeasurable Verdict = "unmeasurable" // neither proven nor excluded
)

const (
	alpha = 0.05 // of the whole family: how often noise alone may make any verdict but Same or Unmeasurable

	// constantRounds are as many equal figures as make a count a constant, and its change exact. A
	// count that is either of two numbers with even odds looks like this, and changed, once in 2^9.
	constantRounds = 5

	// maxRounds bounds the ranks to be enumerated; more rounds than this are not compared.
	maxRounds = 1000
)

// Interval is a range that holds the true change in 95 of 100 cases.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Figure sums up the rounds of one run.
type Figure struct {
	Median   float64   `json:"median"`
	Interval *Interval `json:"interval,omitempty"` // of the median; none for fewer than six rounds, or where the figure is exact
	Rounds   int       `json:"rounds"`
	AtLeast  bool      `json:"at_least,omitempty"` // a lower bound
}

// Comparison is one cell in one unit.
type Comparison struct {
	Package string `json:"package,omitempty"`
	Name    string `json:"name"`
	Unit    string `json:"unit"`
	Gate    string `json:"gate,omitempty"` // the gate that it is under, if any
	Old     Figure `json:"old"`
	New     Figure `json:"new"`

	// Change is new over old less one: 0.1 is a tenth more. If a figure is zero or below, Change is
	// the difference in Unit, and Absolute is true. It is the Hodges-Lehmann estimate, which is
	// close to the quotient of the medians but not equal to it.
	Change   float64   `json:"change"`
	Absolute bool      `json:"absolute,omitempty"`
	Interval *Interval `json:"interval,omitempty"` // of Change; none where there are too few rounds
	Exact    bool      `json:"exact,omitempty"`    // counted: without a test

	P          *float64 `json:"p,omitempty"`           // of the rank test
	PCorrected *float64 `json:"p_corrected,omitempty"` // by Holm, of those with a gate

	Verdict Verdict `json:"verdict,omitempty"`
	Reason  string  `json:"reason,omitempty"` // of Unmeasurable

	worse, low, high, floor float64 // Change and Interval with more being worse, and what is tolerated, on the same scale
}

// Difference is a line about the environment that is not the same in both runs.
type Difference struct {
	Key string `json:"key"`
	Old string `json:"old"` // "" where there is none
	New string `json:"new"`
}

// Report is what came of comparing two runs.
type Report struct {
	Gate   string `json:"gate"`
	Paired bool   `json:"paired"` // figures were taken in turn, and are compared pair by pair

	Regressions  int `json:"regressions"`
	Better       int `json:"better"`
	Same         int `json:"same"`
	Unmeasurable int `json:"unmeasurable"`

	Family       int `json:"family"`        // comparisons with a test and a gate, which Holm's correction is over
	RoundsNeeded int `json:"rounds_needed"` // of each run, or pairs, below which none of so many can be a regression

	// Ungated are the parts of the default gate that are of nothing: "allocs" where no cell has
	// allocs/op. Of a gate that was asked for, each part has to be of something.
	Ungated []string `json:"ungated,omitempty"`

	Comparisons []Comparison `json:"comparisons"`

	Failed      []Failure    `json:"failed,omitempty"`         // cells that failed in the new run and were right in the old one, or kept their rate in it alone
	StillFailed []Failure    `json:"still_failed,omitempty"`   // in both
	NewFailed   []Failure    `json:"new_and_failed,omitempty"` // in the new run, which the old one does not have
	Mended      []Failure    `json:"mended,omitempty"`         // in the old run alone, and right in the new one, which keeps the rate
	OnlyOld     []string     `json:"only_old,omitempty"`       // cells, right or failed
	OnlyNew     []string     `json:"only_new,omitempty"`       // and right
	Differences []Difference `json:"environment_differences,omitempty"`
	Versions    []Difference `json:"version_differences,omitempty"`
	OldWarnings []string     `json:"old_warnings,omitempty"`
	NewWarnings []string     `json:"new_warnings,omitempty"`

	Timed int `json:"timed"` // cells with a time in both runs
	// Shift is the change of the median cell's time, if at least four cells are timed. A change
	// that all cells share comes from the machine rather than from a change to one of them. With
	// fewer cells Shift is nil.
	Shift *float64 `json:"shift,omitempty"`
}

// ShiftCells are as many timed cells as Report.Shift takes: of three, a change to one and noise in
// another would make the median.
const ShiftCells = 4

// Err is an error that counts the regressions and what failed, or nil.
func (r *Report) Err() error {
	var errs []string
	if r.Regressions > 0 {
		errs = append(errs, fmt.Sprintf("%s of %d comparisons", page.Plural(r.Regressions, "regression"), r.Regressions+r.Better+r.Same+r.Unmeasurable))
	}
	if len(r.Failed) > 0 {
		errs = append(errs, page.Plural(len(r.Failed), "cell")+" FAILED that did not before")
	}
	if errs == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrRegression, strings.Join(errs, "; "))
}

// Rules are how to compare.
type Rules struct {
	// Gate says which units may not get worse, and by how much. The zero one is [DefaultGate].
	Gate Gate
	// Paired: value i of a series was taken together with value i of the same series of
	// the other run.
	Paired bool
}

// Limits of a run: more than a machine measures in a day. The time of a comparison grows with their
// product.
const (
	maxSeries = 10_000
	maxFailed = 1_000
)

// Compare compares the cells that both runs have. It returns [ErrIncomparable] if the runs have no
// cell in common, too many cells, or more than 1,000 rounds. A gate that names a unit of no cell is
// the same error, but the default gate may name a missing unit.
func Compare(ctx context.Context, before, after *Benchmarks, o Rules) (*Report, error) {
	for _, run := range []*Benchmarks{before, after} {
		if series, failed := len(run.Series), len(run.Failed)+len(run.Behind); series > maxSeries || failed > maxFailed {
			return nil, fmt.Errorf("%w: a run with %d figures and %d failed cells; there may be %d and %d", ErrIncomparable, series, failed, maxSeries, maxFailed)
		}
		if versions, warnings := len(run.Versions), len(run.Warnings); max(versions, warnings) > maxRemarks {
			return nil, fmt.Errorf("%w: a run with %d versions and %d warnings; there may be %d of each", ErrIncomparable, versions, warnings, maxRemarks)
		}
		if n := run.texts(); n > maxTexts {
			return nil, fmt.Errorf("%w: a run with %d %s; there may be %d", ErrIncomparable, n, texts, maxTexts)
		}
	}
	o.Gate = o.Gate.orDefault()
	r := &Report{
		Gate: o.Gate.String(), Paired: o.Paired, OldWarnings: before.Warnings, NewWarnings: after.Warnings,
		Differences: differences(before.Environment, after.Environment), Versions: changed(before.Versions, after.Versions),
	}
	if err := r.compareCells(ctx, before, after); err != nil {
		return nil, err
	}
	r.compareRates(before, after)
	rivals := map[key]Series{}
	for _, s := range after.Series {
		rivals[s.key()] = s
	}
	for _, a := range before.Series {
		b, ok := rivals[a.key()]
		if !ok {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c, err := compareSeries(a, b, o)
		if err != nil {
			return nil, err
		}
		r.Comparisons = append(r.Comparisons, c)
	}
	both := len(r.Comparisons) > 0
	if !both && len(r.Failed) == 0 {
		return nil, fmt.Errorf("%w: the two runs have no cell in common: %s in the old one, %s in the new one", ErrIncomparable, some(r.OnlyOld), some(r.OnlyNew))
	}
	for _, l := range o.Gate.unused(r.Comparisons) {
		if both && !o.Gate.isDefault() {
			return nil, fmt.Errorf("%w: the gate %s is of %s, which no cell has in both runs; there are %s",
				ErrIncomparable, l.Name, strings.Join(l.units(), ", "), units(r.Comparisons))
		}
		r.Ungated = append(r.Ungated, l.Name)
	}
	r.correct()
	r.judge()
	r.measureShift()
	return r, nil
}

// texts is how many bytes the names and texts of a run have.
func (r *Benchmarks) texts() (n int) {
	for _, s := range r.Series {
		n += len(s.Package) + len(s.Name) + len(s.Unit)
	}
	for _, s := range slices.Concat(r.Environment, r.Versions) {
		n += len(s.Key) + len(s.Value)
	}
	for _, f := range slices.Concat(r.Failed, r.Behind) {
		n += len(f.Cell) + len(f.Error)
	}
	for _, w := range r.Warnings {
		n += len(w)
	}
	return n
}

// key tells series of a run apart.
type key struct{ pkg, name, unit string }

func (s Series) key() key { return key{s.Package, s.Name, s.Unit} }

// Cell is the name of the series' cell with its package.
func (s Series) Cell() string { return cell(s.Package, s.Name) }

func cell(pkg, name string) string {
	if pkg == "" {
		return name
	}
	return pkg + "." + name
}

// compareCells lists each cell that is not right in both runs.
func (r *Report) compareCells(ctx context.Context, before, after *Benchmarks) error {
	was, is := before.cells(), after.cells()
	said, used := map[string]bool{}, map[*Failure]bool{}
	for _, s := range slices.Concat(before.Series, after.Series) {
		c := s.Cell()
		if said[c] {
			continue
		}
		said[c] = true
		if err := ctx.Err(); err != nil {
			return err
		}
		old, now := was.failure(s.Package, c), is.failure(s.Package, c)
		used[old], used[now] = true, true
		switch {
		case old != nil && now != nil:
			r.StillFailed = append(r.StillFailed, Failure{Cell: c, Error: now.Error})
		case now != nil && was.measured[c]:
			r.Failed = append(r.Failed, Failure{Cell: c, Error: now.Error})
		case now != nil:
			r.NewFailed = append(r.NewFailed, Failure{Cell: c, Error: now.Error})
		case old != nil && is.measured[c]:
			r.Mended = append(r.Mended, Failure{Cell: c, Error: old.Error})
		case !is.measured[c]:
			r.OnlyOld = append(r.OnlyOld, c)
		case !was.measured[c]:
			r.OnlyNew = append(r.OnlyNew, c)
		}
	}
	// The cells that remain have no figures in either run.
	for i := range after.Failed {
		if err := ctx.Err(); err != nil {
			return err
		}
		f := &after.Failed[i]
		switch {
		case used[f] || is.within(f):
		case has(before.Failed, f.Cell):
			r.StillFailed = append(r.StillFailed, *f)
		case was.partOf(f): // it failed beside its parts, which are right
			r.Failed = append(r.Failed, *f)
		default:
			r.NewFailed = append(r.NewFailed, *f)
		}
	}
	for i := range before.Failed {
		f := &before.Failed[i]
		if !used[f] && !was.within(f) && !has(after.Failed, f.Cell) {
			r.OnlyOld = append(r.OnlyOld, f.Cell)
		}
	}
	return nil
}

// compareRates lists the cells that keep their rate in one run alone. Cells that keep it in neither
// are compared by their throughput.
func (r *Report) compareRates(before, after *Benchmarks) {
	lost := func(kept, behind *Benchmarks) (cells []Failure) {
		measured := kept.cells().measured
		for _, f := range behind.Behind {
			if measured[f.Cell] && !has(kept.Behind, f.Cell) && !has(kept.Failed, f.Cell) && !has(behind.Failed, f.Cell) {
				cells = append(cells, f)
			}
		}
		return cells
	}
	r.Failed = append(r.Failed, lost(before, after)...)
	r.Mended = append(r.Mended, lost(after, before)...)
}

func has(failed []Failure, cell string) bool {
	return slices.ContainsFunc(failed, func(f Failure) bool { return f.Cell == cell })
}

// cells are those of a run, whatever came of them.
type cells struct {
	measured map[string]bool
	packages map[string]bool // of them
	failed   []Failure
}

func (r *Benchmarks) cells() cells {
	c := cells{map[string]bool{}, map[string]bool{}, r.Failed}
	for _, s := range r.Series {
		c.measured[s.Cell()], c.packages[s.Package] = true, true
	}
	return c
}

// failure is why a cell has no right figures in a run, or nil. That of what it is a part of is its
// own where it has no figures at all. go test names what failed without the processors: X, and X-2
// where it has figures.
func (cs cells) failure(pkg, cell string) *Failure {
	bare, measured := processors.ReplaceAllString(cell, ""), cs.measured[cell]
	for i := range cs.failed {
		f := &cs.failed[i]
		if own := !f.Package && (f.Cell == cell || f.Cell == bare); own || !measured && f.partly(pkg, cell) {
			return f
		}
	}
	return nil
}

// within says that another failure is of a part of what failed, which go test names, too.
func (cs cells) within(f *Failure) bool {
	return !f.Package && slices.ContainsFunc(cs.failed, func(o Failure) bool { return under(o.Cell, f.Cell) })
}

// partOf says that a cell with figures is a part of what failed.
func (cs cells) partOf(f *Failure) bool {
	if f.Package {
		return cs.packages[f.Cell]
	}
	for cell := range cs.measured {
		if under(cell, f.Cell) {
			return true
		}
	}
	return false
}

// partly says that a cell is a part of what failed: X/small of X, or of a package.
func (f *Failure) partly(pkg, cell string) bool {
	if f.Package {
		return f.Cell == pkg
	}
	return under(cell, f.Cell)
}

func under(cell, of string) bool {
	rest, ok := strings.CutPrefix(cell, of)
	return ok && strings.HasPrefix(rest, "/")
}

// some is a list of names that does not get long.
func some(names []string) string {
	const most = 3
	switch n := len(names); {
	case n == 0:
		return "none"
	case n > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n-most)
	}
	return strings.Join(names, ", ")
}

func units(cs []Comparison) string {
	var names []string
	seen := map[string]bool{}
	for _, c := range cs {
		if !seen[c.Unit] {
			seen[c.Unit] = true
			names = append(names, c.Unit)
		}
	}
	return strings.Join(names, ", ")
}

// ofThisRun are the keys of lines that say which run it was, not where.
var ofThisRun = []string{"branch", "command", "commit", "commit-time", "date", "pkg", "runstamp", "time"}

func differences(before, after []Setting) (d []Difference) {
	first := func(settings []Setting) map[string]string { // value of each key
		values := map[string]string{}
		for _, s := range slices.Backward(settings) {
			values[s.Key] = s.Value
		}
		return values
	}
	was, is, seen := first(before), first(after), map[string]bool{}
	for _, s := range slices.Concat(before, after) {
		if seen[s.Key] || slices.Contains(ofThisRun, s.Key) {
			continue
		}
		seen[s.Key] = true
		if a, b := was[s.Key], is[s.Key]; a != b {
			d = append(d, Difference{s.Key, a, b})
		}
	}
	return d
}

// changed are the differences of settings that are in both runs: one may have measured more than
// the other.
func changed(before, after []Setting) []Difference {
	return slices.DeleteFunc(differences(before, after), func(d Difference) bool { return d.Old == "" || d.New == "" })
}

// compareSeries estimates the change and tests it; there is no verdict yet.
func compareSeries(a, b Series, o Rules) (Comparison, error) {
	if len(a.Values) == 0 || len(b.Values) == 0 {
		return Comparison{}, fmt.Errorf("%w: no figures of %s in %s", ErrIncomparable, a.Cell(), a.Unit)
	}
	if n := max(len(a.Values), len(b.Values)); n > maxRounds {
		return Comparison{}, fmt.Errorf("%w: %d rounds of %s, at most %d are compared", ErrIncomparable, n, a.Cell(), maxRounds)
	}
	if o.Paired && len(a.Values) != len(b.Values) {
		return Comparison{}, fmt.Errorf("%w: %d and %d rounds of %s, which are no pairs", ErrIncomparable, len(a.Values), len(b.Values), a.Cell())
	}
	c := Comparison{Package: a.Package, Name: a.Name, Unit: a.Unit}
	limit, gated := o.Gate.of(a.Unit)
	if gated {
		c.Gate = limit.Name
	}
	c.Exact = a.Exact && b.Exact || constant(a) && constant(b)
	c.Old, c.New = figure(a.Values, c.Exact), figure(b.Values, c.Exact)
	c.Old.AtLeast, c.New.AtLeast = a.AtLeast, b.AtLeast
	c.Absolute = slices.Min(a.Values) <= 0 || slices.Min(b.Values) <= 0
	x, y := a.Values, b.Values
	if !c.Absolute {
		x, y = logs(x), logs(y)
	}
	switch {
	case c.Exact:
		c.Change = c.ratio(rank.Median(y) - rank.Median(x))
		c.Interval = &Interval{c.ratio(slices.Min(y) - slices.Max(x)), c.ratio(slices.Max(y) - slices.Min(x))}
	default:
		test := rank.Unpaired
		if o.Paired {
			test = rank.Signs
		}
		e := test(x, y)
		c.Change, c.P = c.ratio(e.Shift), &e.P
		if e.Bounded {
			c.Interval = &Interval{c.ratio(e.Low), c.ratio(e.High)}
		}
	}
	c.floor = limit.tolerated(c)
	c.worse, c.low, c.high = c.Change, math.Inf(-1), math.Inf(1)
	if c.Interval != nil {
		c.low, c.high = c.Interval.Low, c.Interval.High
	}
	if a.Higher || b.Higher || strings.HasSuffix(a.Unit, "/s") {
		c.worse, c.low, c.high = -c.worse, -c.high, -c.low
	}
	return c, nil
}

// constant says that a series of counts had the same in every round.
func constant(s Series) bool {
	return s.Unit == allocsUnit && len(s.Values) >= constantRounds && slices.Min(s.Values) == slices.Max(s.Values)
}

func figure(values []float64, exact bool) Figure {
	f := Figure{Median: rank.Median(values), Rounds: len(values)}
	if low, high, ok := rank.MedianInterval(values); ok && !exact {
		f.Interval = &Interval{low, high}
	}
	return f
}

// ratio is a shift as Change has it.
func (c *Comparison) ratio(shift float64) float64 {
	if c.Absolute {
		return shift
	}
	return math.Expm1(shift)
}

func logs(values []float64) []float64 {
	l := make([]float64, len(values))
	for i, v := range values {
		l[i] = math.Log(v)
	}
	return l
}

// correct does Holm's correction over all comparisons with a test and a gate.
func (r *Report) correct() {
	var family []*Comparison
	for i := range r.Comparisons {
		if c := &r.Comparisons[i]; c.P != nil && c.Gate != "" {
			family = append(family, c)
		}
	}
	r.Family = len(family)
	r.RoundsNeeded = rank.RoundsNeeded(r.Family, alpha, r.Paired)
	slices.SortStableFunc(family, func(a, b *Comparison) int { return cmp.Compare(*a.P, *b.P) })
	p := make([]float64, len(family))
	largest := 0.0
	for i, c := range family {
		largest = max(largest, min(1, *c.P*float64(len(family)-i)))
		p[i] = largest
		c.PCorrected = &p[i]
	}
}

// judge gives every comparison with a gate its verdict.
func (r *Report) judge() {
	for i := range r.Comparisons {
		c := &r.Comparisons[i]
		if c.Gate == "" {
			continue
		}
		c.Verdict, c.Reason = "", ""
		proven := c.Exact || *c.PCorrected < alpha
		switch {
		case proven && !r.Paired && math.Abs(c.worse) > c.floor && c.Contrary():
			c.Verdict, c.Reason = Unmeasurable, "the medians go the other way: there are rounds of more than one kind"
		case proven && c.low > 0 && c.worse > c.floor && !(c.Exact && c.low <= c.floor):
			c.Verdict = Regression
		case proven && c.high < 0 && c.worse < -c.floor && !(c.Exact && c.high >= -c.floor):
			c.Verdict = Better
		case c.high > c.floor:
			c.Verdict, c.Reason = Unmeasurable, r.reason(c)
		default:
			c.Verdict = Same
		}
		c.bound()
		switch c.Verdict {
		case Regression:
			r.Regressions++
		case Better:
			r.Better++
		case Unmeasurable:
			r.Unmeasurable++
		default:
			r.Same++
		}
	}
}

// bound takes back a verdict that lower bounds do not support. If the new run's lower bound is
// already worse, the regression stands. A value better than the old run's lower bound is also
// better than the true value.
func (c *Comparison) bound() {
	which := ""
	switch {
	case c.Old.AtLeast && c.New.AtLeast:
		which = "both runs"
	case c.New.AtLeast && c.Verdict != Regression:
		which = "the new run"
	case c.Old.AtLeast && c.Verdict != Better:
		which = "the old run"
	default:
		return
	}
	c.Verdict, c.Reason = Unmeasurable, "latencies of "+which+" are lower bounds"
}

// reason is why a comparison tells nothing, and how many rounds might.
func (r *Report) reason(c *Comparison) string {
	if c.Exact {
		return "the figures of one run are not the same"
	}
	what := "rounds"
	if r.Paired {
		what = "pairs"
	}
	rounds := min(c.Old.Rounds, c.New.Rounds)
	if rank.SmallestP(c.Old.Rounds, c.New.Rounds, r.Paired)*float64(r.Family) >= alpha || c.Interval == nil {
		return fmt.Sprintf("too few %s: %d, and with %s it takes %d", what, rounds, page.Plural(r.Family, "comparison"), max(r.RoundsNeeded, rank.IntervalRounds(r.Paired)))
	}
	// An interval gets narrower with the square root of the rounds. Enough is when it excludes what
	// is beyond the floor, or no change at all.
	half := (c.high - c.low) / 2
	room := c.floor - c.worse
	if c.worse > c.floor {
		room = c.worse
	}
	if need := float64(rounds) * (half / room) * (half / room); room > 0 && need < maxRounds {
		return fmt.Sprintf("too noisy: %d %s, and it would take about %.0f", rounds, what, math.Ceil(max(need, float64(rounds+1))))
	}
	return fmt.Sprintf("too noisy: %d %s", rounds, what)
}

// measureShift finds what the times of all cells have in common.
func (r *Report) measureShift() {
	var changes []float64
	for _, c := range r.Comparisons {
		if c.Unit == timeUnit && !c.Absolute {
			changes = append(changes, c.Change)
		}
	}
	if r.Timed = len(changes); r.Timed >= ShiftCells {
		m := rank.Median(changes)
		r.Shift = &m
	}
}

// Confirm checks the regressions of r against a second measurement of the same cells. A regression
// that again confirms gets the second figures, which were not selected for being large. The others
// become unmeasurable. The correction counts only the regressions of r.
func (r *Report) Confirm(again *Report) {
	found := map[key]*Comparison{}
	for i := range again.Comparisons {
		c := &again.Comparisons[i]
		found[c.key()] = c
	}
	var suspects []*Comparison
	second := Report{Gate: r.Gate, Paired: r.Paired}
	for i := range r.Comparisons {
		if c := &r.Comparisons[i]; c.Verdict == Regression {
			suspects = append(suspects, c)
			if s, ok := found[c.key()]; ok {
				second.Comparisons = append(second.Comparisons, *s)
			}
		}
	}
	second.correct()
	second.judge()
	for _, c := range suspects {
		i := slices.IndexFunc(second.Comparisons, func(s Comparison) bool { return s.key() == c.key() })
		if i >= 0 && second.Comparisons[i].Verdict == Regression {
			*c = second.Comparisons[i]
			continue
		}
		c.Verdict, c.Reason = Unmeasurable, "a regression at first, but not when it was measured again"
		r.Regressions--
		r.Unmeasurable++
	}
}

// Contrary says that the medians of the runs go one way and the change, which is of rounds against
// rounds, the other.
func (c Comparison) Contrary() bool { return (c.New.Median-c.Old.Median)*c.Change < 0 }

func (c Comparison) key() key { return key{c.Package, c.Name, c.Unit} }

// ErrIncomparable marks runs that cannot be compared as asked.
var ErrIncomparable = errors.New("cannot be compared")

// ErrRegression marks a comparison that did not pass its gate.
var ErrRegression = errors.New("it got worse")
