package events

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
)

// Schema is the one of the JSON, in docs/schemas.
func (s *Summary) Schema() string { return "stats-v1" }

// WriteText writes what operations did as tables: the time series if there is one, then operations,
// errors and times.
func (s *Summary) WriteText(w page.Sheet) {
	head := fmt.Sprintf("%s, %s to %s UTC (%v): %s", page.Plural(s.Files, "file"), moment(s.From), moment(s.To), s.To.Sub(s.From).Round(time.Millisecond), page.PluralOf(int64(s.Events), "event"))
	if s.Dropped > 0 {
		head += fmt.Sprintf(", and %d that were dropped, for the program's ring was full", s.Dropped)
	}
	if s.Group != "" {
		head += fmt.Sprintf(". Of groups like %s: %d", s.Group, s.Selected)
	}
	w.Wrapped(head)
	if s.Selected == 0 {
		if len(s.Groups) > 0 {
			names := make([]string, len(s.Groups))
			for i, g := range s.Groups {
				names[i] = shortened(g, page.Width/2)
			}
			w.Wrapped("There are events of " + strings.Join(names, ", ") + ".")
		}
		return
	}
	if len(s.Series) > 0 {
		printable.Fprintf(w, "\n")
		series(w, s)
	}
	printable.Fprintf(w, "\n")
	w.Legend("operations", "hits: of the keys that were read", "plain and stored: bytes of values, serialized and as they are in Redis", "packed with: the packed value that came last")
	rows(w, s)
	failures(w, s)
	if s.Timed == 0 {
		printable.Fprintf(w, "\nNo operation was timed.\n")
		return
	}
	printable.Fprintf(w, "\n")
	w.Hanging("", fmt.Sprintf("latency of the %d of %d operations that were timed, µs, to 1%%", s.Timed, s.Selected))
	latencies(w, s)
}

// longestGroup is how much of a group's name is shown at most.
const longestGroup = 60

func rows(w page.Sheet, s *Summary) {
	t := w.Table(2, "group", "op", "count", "ops/s", "hits", "errors", "plain", "stored", "ratio", "packed with")
	t.Drop = []string{"packed with", "plain", "stored", "count", "errors"}
	for _, r := range s.Rows {
		row := []any{shortened(r.Group, longestGroup), r.Op, r.Count, rate(r.PerSecond), percent(r.HitRate), r.Failed, "-", "-", known(r.Ratio), "-"}
		if r.Stored > 0 {
			row[6], row[7] = printable.Size(r.Plain), printable.Size(r.Stored)
		}
		if r.Algorithm != "" {
			row[9] = strings.TrimSpace(r.Algorithm + " " + r.Dictionary)
		}
		t.Row(row...)
	}
	t.Render()
}

func failures(w page.Sheet, s *Summary) {
	if !slices.ContainsFunc(s.Rows, func(r *Row) bool { return r.Failed > 0 }) {
		return
	}
	printable.Fprintf(w, "\noperations with errors\n")
	t := w.Table(3, "group", "op", "class", "count", "of all")
	for _, r := range s.Rows {
		for _, class := range slices.Sorted(maps.Keys(r.Errors)) {
			n := r.Errors[class]
			part := float64(n) / float64(r.Count)
			t.Row(shortened(r.Group, longestGroup), r.Op, class, n, percent(&part))
		}
	}
	t.Render()
}

func latencies(w page.Sheet, s *Summary) {
	t := w.Table(3, "group", "op", "stage", "timed", "P50", "P95", "P99")
	for _, r := range s.Rows {
		for _, stage := range r.Stages {
			t.Row(shortened(r.Group, longestGroup), r.Op, stage.Stage, stage.Timed, us(stage.P50), us(stage.P95), us(stage.P99))
		}
	}
	t.Render()
}

func series(w page.Sheet, s *Summary) {
	every := time.Duration(s.Every * float64(time.Second)).Round(time.Microsecond)
	w.Legend(fmt.Sprintf("every %v, where there are events", every),
		"ops/s, hit rate, ratio and P99 (µs): of operations with a waiting caller, so without load, refresh and flush",
		"errors: of all operations", "The ring writes events in batches, by default every 500ms")
	t := w.Table(1, "from, UTC", "ops/s", "hit rate", "ratio", "P99", "timed", "errors", "dropped")
	t.Drop = []string{"timed", "dropped", "ratio"}
	for _, i := range s.Series {
		from := i.Start.Format(time.DateTime)
		if every%time.Second != 0 {
			from = moment(i.Start)
		}
		p99 := "-"
		if i.P99 != nil {
			p99 = us(*i.P99)
		}
		t.Row(from, rate(i.PerSecond), percent(i.HitRate), known(i.Ratio), p99, i.Timed, i.Failed, i.Dropped)
	}
	t.Render()
}

// moment is a time to the millisecond.
func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") }

// shortened returns a name of at most limit characters that moves no cursor.
func shortened(name string, limit int) string {
	if r := []rune(printable.Line(name)); len(r) > limit {
		return string(r[:limit-1]) + "…"
	}
	return printable.Line(name)
}

func rate(perSecond float64) string {
	if perSecond > 0 && perSecond < 10 {
		return fmt.Sprintf("%.2f", perSecond)
	}
	return fmt.Sprintf("%.0f", perSecond)
}

func percent(part *float64) string {
	if part == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100**part)
}

func known(f *float64) string {
	if f == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f", *f)
}

func us(f float64) string { return fmt.Sprintf("%.1f", f) }
