// Package events sums up what operations did from the files that eventfile.NewWriter writes:
// [Collect] makes a [Summary] of any number of them, in memory that does not grow with them.
package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stats"
	"github.com/balekv/bale/stats/eventfile"
)

const (
	// maxRows bounds the number of groups and operations with their own rows: each may take seven
	// histograms of 37 KB.
	maxRows = 500

	// maxIntervals bounds a time series: a day in seconds.
	maxIntervals = 24 * 60 * 60

	// namesShown is how many groups are named where none is like the pattern.
	namesShown = 10

	maxLatency = int64(time.Hour) // longer ones count as this
	digits     = 2                // a percentile is right to 1%
)

// OtherGroups is the name of the group that collects all groups beyond the limit.
const OtherGroups = eventfile.OtherGroups

var (
	// ErrNothing says that no file had a whole batch.
	ErrNothing = errors.New("nothing could be read")

	// ErrPattern says that Options.Group is no pattern.
	ErrPattern = fmt.Errorf("%w: no pattern", cli.ErrUsage)

	// ErrIntervals says that Options.Every is too short for the time there is.
	ErrIntervals = fmt.Errorf("%w: too many intervals", cli.ErrUsage)
)

// Source is a file to be read.
type Source struct {
	Name   string
	Reader io.Reader
	Size   int64 // in bytes; 0 if it is not known
}

// Options select the events to sum up. The zero value selects all, without a time series.
type Options struct {
	Group string        // groups like this pattern alone: * is any text, ? any character, [ab] one of these
	Every time.Duration // intervals of a time series; 0 for none

	// Progress is called after each batch, with the bytes that were read. The total is 0 if it is
	// not known. It may be nil.
	Progress func(done, total int, what string)
}

// minEvery is the shortest interval of a time series.
const minEvery = time.Millisecond

// Validate says which option is out of range.
func (o *Options) Validate() error {
	if _, err := path.Match(o.Group, ""); err != nil {
		return fmt.Errorf("%w: %q: %w", ErrPattern, o.Group, err)
	}
	if o.Every != 0 && o.Every < minEvery {
		return fmt.Errorf("%w: --every %v, must be at least %v", cli.ErrUsage, o.Every, minEvery)
	}
	return nil
}

// Summary is what Collect found. Ratios and rates that nothing is known of are nil.
type Summary struct {
	Files    int        `json:"files"` // that something could be read of
	From     time.Time  `json:"from"`
	To       time.Time  `json:"to"`
	Seconds  float64    `json:"seconds"`
	Events   uint64     `json:"events"`
	Dropped  uint64     `json:"dropped"` // that no file has, of all groups
	Group    string     `json:"group,omitempty"`
	Selected uint64     `json:"selected"` // events of the groups that were asked for
	Timed    uint64     `json:"timed"`    // of those
	Rows     []*Row     `json:"operations"`
	Every    float64    `json:"every_seconds,omitempty"`
	Series   []Interval `json:"series,omitempty"`
	Warnings []string   `json:"warnings,omitempty"`

	// Groups are some of those there are, where none is like the pattern.
	Groups []string `json:"groups,omitempty"`
}

// Row is one operation of one group.
type Row struct {
	Group     string            `json:"group"`
	Op        string            `json:"op"`
	Count     uint64            `json:"count"`
	PerSecond float64           `json:"per_second"`
	Keys      uint64            `json:"keys"`
	Hits      uint64            `json:"hits"`
	Misses    uint64            `json:"misses"`
	HitRate   *float64          `json:"hit_rate,omitempty"` // of reads
	Failed    uint64            `json:"failed"`             // operations with an error
	Errors    map[string]uint64 `json:"errors,omitempty"`   // the same by class
	Plain     uint64            `json:"plain_bytes"`
	Stored    uint64            `json:"stored_bytes"`
	Ratio     *float64          `json:"ratio,omitempty"`

	// Algorithm and Dictionary are those of the packed value that came last, empty for none.
	Algorithm  string `json:"algorithm,omitempty"`
	Dictionary string `json:"dictionary,omitempty"`

	Stages []Stage `json:"stages,omitempty"` // the total first

	op     stats.Op
	times  [1 + stats.Stages]*hdrhistogram.Histogram // nil until there is one
	packed frame.Header                              // of the packed value that came last
}

// Stage is how long a part of the operations that were timed took.
type Stage struct {
	Stage string  `json:"stage"`
	Timed uint64  `json:"timed"`
	P50   float64 `json:"p50_us"`
	P95   float64 `json:"p95_us"`
	P99   float64 `json:"p99_us"`
}

// Total is the name of the stage that is all of them.
const Total = "total"

// Interval is a part of a time series. It counts the operations that a caller waits for; load,
// refresh and flush have their own counts. Errors counts the errors of all operations.
type Interval struct {
	Start     time.Time `json:"start"`
	Seconds   float64   `json:"seconds"` // of it within the time of the summary
	Count     uint64    `json:"count"`
	PerSecond float64   `json:"per_second"`
	Hits      uint64    `json:"hits"`
	Misses    uint64    `json:"misses"`
	HitRate   *float64  `json:"hit_rate,omitempty"`
	Plain     uint64    `json:"plain_bytes"`
	Stored    uint64    `json:"stored_bytes"`
	Ratio     *float64  `json:"ratio,omitempty"`
	Timed     uint64    `json:"timed"`
	P99       *float64  `json:"p99_us,omitempty"`
	Failed    uint64    `json:"failed"`
	Dropped   uint64    `json:"dropped"`
}

// Collect reads all sources at once, in the order of time. An unreadable part of a source becomes a
// warning. If no source has any data, Collect returns an error.
func Collect(ctx context.Context, sources []Source, o Options) (*Summary, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	c := collector{options: o, rows: map[rowKey]*Row{}}
	c.summary.Group, c.summary.Every = o.Group, o.Every.Seconds()
	var all []*reading
	total := int64(0)
	for _, s := range sources {
		r := read(s)
		defer r.stop()
		all = append(all, r)
		total += s.Size
	}
	if slices.ContainsFunc(sources, func(s Source) bool { return s.Size == 0 }) {
		total = 0
	}
	progress := func() {
		done := int64(0)
		for _, r := range all {
			done += r.read
		}
		o.Progress(int(min(done, total)), int(total), printable.Count(int64(c.summary.Events), "event", "events")+" read")
	}
	var failed error
	advance := func(r *reading) {
		whole := r.batches
		if err := r.next(); err != nil {
			failed = err
			c.summary.Warnings = append(c.summary.Warnings, err.Error())
		}
		if whole == 0 && r.batches > 0 {
			c.summary.Files++
		}
	}
	for _, r := range all {
		advance(r)
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var first *reading
		for _, r := range all {
			if r.batch != nil && (first == nil || r.batch.To.Before(first.batch.To)) {
				first = r
			}
		}
		if first == nil {
			break
		}
		if err := c.add(first.batch); err != nil {
			return nil, err
		}
		if o.Progress != nil {
			progress()
		}
		advance(first)
	}
	if c.summary.Files == 0 {
		if len(sources) == 1 {
			return nil, failed
		}
		return nil, fmt.Errorf("%w: %s", ErrNothing, strings.Join(c.summary.Warnings, "; "))
	}
	return c.finish(), nil
}

// reading is a source that is being read.
type reading struct {
	Source
	pull    func() (*stats.Batch, error, bool)
	stop    func()
	read    int64
	batches int
	batch   *stats.Batch // the next one, nil at the end
}

// errEnough ends a stats.Read whose batches are not wanted any more.
var errEnough = errors.New("enough")

func read(s Source) *reading {
	r := &reading{Source: s}
	var batches iter.Seq2[*stats.Batch, error] = func(yield func(*stats.Batch, error) bool) {
		err := eventfile.Read(r, func(b *stats.Batch) error {
			if !yield(b, nil) {
				return errEnough
			}
			return nil
		})
		if err != nil && err != errEnough {
			yield(nil, err)
		}
	}
	r.pull, r.stop = iter.Pull2(batches)
	return r
}

// Read counts what is read.
func (r *reading) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.read += int64(n)
	return n, err
}

// next goes to the next batch. Its error is the message for the source.
func (r *reading) next() error {
	batch, err, ok := r.pull()
	r.batch = batch
	shown := fmt.Sprintf("what is before is shown, %d batches", r.batches)
	if r.batches == 1 {
		shown = "what is before is shown, 1 batch"
	}
	switch {
	case ok && err == nil:
		r.batches++
		return nil
	case err == nil && r.batches > 0:
		return nil
	case err == nil, r.read == 0 && errors.Is(err, eventfile.ErrFormat):
		return fmt.Errorf("%s is empty: no batch of events was written", r.Name)
	case r.batches == 0:
		return fmt.Errorf("%s: %w", r.Name, err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s ends within a batch, as that of a program that was killed may: %s", r.Name, shown)
	case errors.Is(err, eventfile.ErrFormat):
		return fmt.Errorf("%s is damaged: %w: %s", r.Name, err, shown)
	}
	return fmt.Errorf("%s: %w: %s", r.Name, err, shown)
}

type rowKey struct {
	group string
	op    stats.Op
}

// collector is a Collect under way.
type collector struct {
	options  Options
	summary  Summary
	rows     map[rowKey]*Row
	interval int64                   // the present one, in intervals since 1970
	times    *hdrhistogram.Histogram // of the present interval
}

func (c *collector) add(b *stats.Batch) error {
	s := &c.summary
	if s.From.IsZero() || b.From.Before(s.From) {
		s.From = b.From
	}
	if b.To.After(s.To) {
		s.To = b.To
	}
	s.Events += uint64(len(b.Events))
	s.Dropped += b.Dropped
	var now *Interval
	for i := range b.Events {
		e, group := &b.Events[i], printable.Name(b.Groups[i]) // short: this is done for each event
		if !like(c.options.Group, group) {
			if s.Selected == 0 && len(s.Groups) < namesShown && !slices.Contains(s.Groups, group) {
				s.Groups = append(s.Groups, group)
			}
			continue
		}
		s.Selected++
		if e.Timed {
			s.Timed++
		}
		c.row(group, e.Op).add(e)
		if c.options.Every == 0 {
			continue
		}
		if now == nil {
			var err error
			if now, err = c.at(b.To); err != nil {
				return err
			}
		}
		c.count(now, e)
	}
	if b.Dropped > 0 && c.options.Every > 0 {
		now, err := c.at(b.To)
		if err != nil {
			return err
		}
		now.Dropped += b.Dropped
	}
	return nil
}

// like reports whether a group is like a pattern. To path.Match a slash is not any text.
func like(pattern, group string) bool {
	if pattern == "" || pattern == "*" {
		return true
	}
	ok, _ := path.Match(strings.ReplaceAll(pattern, "/", "\x00"), strings.ReplaceAll(group, "/", "\x00"))
	return ok
}

func (c *collector) row(group string, op stats.Op) *Row {
	key := rowKey{group, op}
	r := c.rows[key]
	if r == nil && len(c.rows) >= maxRows {
		key.group = OtherGroups
		r = c.rows[key]
	}
	if r == nil {
		r = &Row{Group: key.group, Op: op.String(), op: op}
		c.rows[key] = r
	}
	return r
}

func (r *Row) add(e *stats.Event) {
	r.Count++
	r.Keys += uint64(e.Keys)
	r.Hits += uint64(e.Hits)
	r.Misses += uint64(e.Misses)
	r.Plain += uint64(e.Plain)
	r.Stored += uint64(e.Stored)
	if e.Class != stats.OK {
		r.Failed++
		if r.Errors == nil {
			r.Errors = map[string]uint64{}
		}
		r.Errors[e.Class.String()]++
	}
	if e.Algorithm != frame.Stored {
		r.packed.Algorithm, r.packed.DictionaryID = e.Algorithm, e.DictionaryID
	}
	if !e.Timed {
		return
	}
	record(&r.times[0], e.Total())
	for stage, d := range e.Times {
		if d > 0 {
			record(&r.times[1+stage], d)
		}
	}
}

func record(h **hdrhistogram.Histogram, d time.Duration) {
	if *h == nil {
		*h = hdrhistogram.New(1, maxLatency, digits)
	}
	// Within the bounds there is no error.
	_ = (*h).RecordValue(min(max(int64(d), 1), maxLatency))
}

// at is the interval of a batch that ended at t; a clock that was put back does not take the series
// back.
func (c *collector) at(t time.Time) (*Interval, error) {
	s := &c.summary
	every := c.options.Every.Nanoseconds()
	n := (t.UnixNano() - 1) / every // events end after From, and not after To
	if len(s.Series) > 0 && n <= c.interval {
		return &s.Series[len(s.Series)-1], nil
	}
	if len(s.Series) == maxIntervals {
		return nil, fmt.Errorf("%w: more than %d with events: choose longer ones than %v", ErrIntervals, maxIntervals, c.options.Every)
	}
	c.close()
	c.interval = n
	s.Series = append(s.Series, Interval{Start: time.Unix(0, n*every).UTC()})
	return &s.Series[len(s.Series)-1], nil
}

// close ends the present interval.
func (c *collector) close() {
	if c.times == nil {
		return
	}
	if i := &c.summary.Series[len(c.summary.Series)-1]; i.Timed > 0 {
		p99 := float64(c.times.ValueAtQuantile(99)) / 1e3
		i.P99 = &p99
	}
	c.times.Reset()
}

func (c *collector) count(i *Interval, e *stats.Event) {
	if e.Class != stats.OK {
		i.Failed++
	}
	if !e.Op.Call() {
		return
	}
	i.Count++
	if reads(e.Op) {
		i.Hits += uint64(e.Hits)
		i.Misses += uint64(e.Misses)
	}
	i.Plain += uint64(e.Plain)
	i.Stored += uint64(e.Stored)
	if e.Timed {
		i.Timed++
		record(&c.times, e.Total())
	}
}

// reads reports whether an operation has hits and misses.
func reads(op stats.Op) bool { return op == stats.Get || op == stats.GetMany }

func (c *collector) finish() *Summary {
	c.close()
	s := &c.summary
	s.From, s.To = s.From.UTC(), s.To.UTC()
	s.Seconds = s.To.Sub(s.From).Seconds()
	if s.Selected > 0 {
		s.Groups = nil
	}
	slices.Sort(s.Groups)
	s.Rows = make([]*Row, 0, len(c.rows))
	others := false
	for key, r := range c.rows {
		others = others || key.group == OtherGroups
		r.finish(s.Seconds)
		s.Rows = append(s.Rows, r)
	}
	slices.SortFunc(s.Rows, func(a, b *Row) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.op, b.op)) })
	if others {
		s.Warnings = append(s.Warnings, fmt.Sprintf("more than %d groups and operations: what comes beyond is summed up as %s", maxRows, OtherGroups))
	}
	for i := range s.Series {
		s.Series[i].finish(s.From, s.To, c.options.Every)
	}
	return s
}

func (r *Row) finish(seconds float64) {
	r.PerSecond = perSecond(r.Count, seconds)
	if reads(r.op) {
		r.HitRate = part(r.Hits, r.Hits+r.Misses)
	}
	r.Ratio = part(r.Plain, r.Stored)
	if r.packed.Algorithm != frame.Stored {
		r.Algorithm = r.packed.Algorithm.String()
	}
	if r.packed.DictionaryID != 0 {
		r.Dictionary = r.packed.DictionaryID.String()
	}
	us := func(ns int64) float64 { return float64(ns) / 1e3 }
	for i, h := range r.times {
		if h == nil {
			continue
		}
		name := Total
		if i > 0 {
			name = stats.Stage(i - 1).String()
		}
		r.Stages = append(r.Stages, Stage{name, uint64(h.TotalCount()), us(h.ValueAtQuantile(50)), us(h.ValueAtQuantile(95)), us(h.ValueAtQuantile(99))})
	}
}

func (i *Interval) finish(from, to time.Time, every time.Duration) {
	start, end := i.Start, i.Start.Add(every)
	if start.Before(from) {
		start = from
	}
	if end.After(to) {
		end = to
	}
	if i.Seconds = end.Sub(start).Seconds(); i.Seconds <= 0 { // the clock was put back
		i.Seconds = every.Seconds()
	}
	i.PerSecond = perSecond(i.Count, i.Seconds)
	i.HitRate = part(i.Hits, i.Hits+i.Misses)
	i.Ratio = part(i.Plain, i.Stored)
}

func perSecond(n uint64, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return float64(n) / seconds
}

// part is nil of nothing.
func part(n, of uint64) *float64 {
	if of == 0 {
		return nil
	}
	p := float64(n) / float64(of)
	return &p
}

// unread is a file that cannot be opened: it gives its error when it is read, as others may.
type unread struct{ err error }

func (u unread) Read([]byte) (int, error) { return 0, u.err }

// Open opens files for [Collect]; "-" is stdin, once.
func Open(paths []string, stdin io.Reader) (sources []Source, done func(), err error) {
	var files []*os.File
	done = func() {
		for _, f := range files {
			f.Close()
		}
	}
	for _, path := range paths {
		source := Source{Name: path}
		if path == "-" {
			if stdin == nil {
				done()
				return nil, nil, errors.New("stdin (-) is there twice")
			}
			source, stdin = Source{Name: "stdin", Reader: stdin}, nil
		} else if f, err := os.Open(path); err == nil {
			files = append(files, f)
			source.Reader = f
			if about, err := f.Stat(); err == nil && about.Mode().IsRegular() {
				source.Size = about.Size()
			}
		} else {
			if e, ok := errors.AsType[*fs.PathError](err); ok {
				err = e.Err // the rest of it is the name
			}
			source.Reader = unread{err}
		}
		sources = append(sources, source)
	}
	return sources, done, nil
}
