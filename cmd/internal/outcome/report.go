package outcome

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
)

// Report is the result of a study that is no [Run]: it measures something else than values through
// Redis.
type Report struct {
	Environment Environment `json:"environment"`

	// Cells are the study's own figures.
	Cells any `json:"cells"`

	Findings []Finding `json:"findings"`

	// Skipped are servers that could not be measured; their Identity has a Server alone.
	Skipped []Skipped `json:"skipped,omitempty"`

	// Failures are cells without figures, in sentences.
	Failures []string `json:"failures,omitempty"`

	// Method is how it was measured, in sentences.
	Method string `json:"method"`

	// Charts are the pictures of a page.
	Charts []Chart `json:"-"`
}

// Schema is the one of the report's JSON, in docs/schemas: each study has cells of its own.
func (r *Report) Schema() string {
	if r.Environment.Study == "" {
		return "http-v1"
	}
	return "study-" + r.Environment.Study + "-v1"
}

// Err is an error that counts the cells without figures, or nil.
func (r *Report) Err() error {
	if len(r.Failures) == 0 {
		return nil
	}
	return fmt.Errorf("%s FAILED", page.Plural(len(r.Failures), "cell"))
}

// WriteText writes the tables of the findings, and then their sentences.
func (r *Report) WriteText(w page.Sheet, _ TextOptions) {
	to, e := w, r.Environment
	to.Hanging("", strings.Join(slices.Concat(e.Servers, []string{e.Go, page.Plural(e.Cores, "core"), e.CPU}), ", "))
	to.Hanging("", r.Method)
	if notes := r.notes(); len(notes) > 0 {
		printable.Fprintf(w, "\n")
		to.Wrapped(notes...)
	}
	for _, s := range r.Skipped {
		printable.Fprintf(w, "\n")
		to.Wrapped(fmt.Sprintf("not measured: %s: %s", s.Server, s.Reason))
	}
	printable.Fprintf(w, "\n")
	findings(to, r.Findings)
}

// notes are what to know before the figures.
func (r *Report) notes() []string {
	return slices.Concat(r.Failures, r.Environment.Notes, r.Environment.busy())
}

// WritePage writes the report as one HTML file, as [Run.WritePage] does.
func (r *Report) WritePage(w io.Writer) error {
	e := &r.Environment
	c := newBenchContent(&Run{Environment: *e, Findings: r.Findings}, PageOptions{})
	c.Answer, c.Method, c.Warnings = printable.Line(e.Question), printable.Line(r.Method), nil
	c.Title = e.command() + ": " + c.Answer
	for _, n := range r.notes() {
		c.Warnings = append(c.Warnings, printable.Line(n))
	}
	c.Figures = []page.Figure{
		{Label: "Machine", Value: page.Plural(e.Cores, "core"), Note: strings.Join(page.Filled(printable.Line(e.CPU), printable.Line(e.Go)), ", ")},
		{Label: "Measured", Value: page.Span(e.Seconds), Note: fmt.Sprintf("%s of each cell, %s s in all", page.Plural(e.Rounds, "round"), page.Short(e.DurationS))},
	}
	if len(e.Servers) > 0 {
		c.Figures = append(c.Figures, page.Figure{Label: "Servers", Value: fmt.Sprint(len(e.Servers)), Note: printable.Line(page.Enumerated(e.Servers))})
	}
	c.Repeat = []string{shellLine(e.StudyCommand)}
	c.Skipped, c.SkippedMore = skippedOf(r.Skipped)
	ids := map[string]bool{}
	for _, chart := range r.Charts {
		c.Charts = append(c.Charts, chart.drawn(slug("chart-"+chart.Title, ids)))
	}
	p := benchPage{Page: page.New(c.Title, "To the answer", benchStyle, benchScript), Content: c}
	return benchTemplate.Execute(w, p)
}
