package outcome

import (
	"github.com/balekv/bale/cmd/internal/page"

	_ "embed"
	"io"
)

var (
	//go:embed page.html
	benchMarkup string
	//go:embed page.css
	benchStyle string
	//go:embed page.js
	benchScript string

	benchTemplate = page.Template("bench", benchMarkup)
)

// BenchOptions say what a page of the lab shows beside the figures of a run.
type BenchOptions struct {
	// Choices are the recommendations, a sentence for each set of values. It is empty if there is
	// nothing to recommend, and for a study, which has findings.
	Choices []string

	// Live is for a run that goes on. The page then requests "content", beside its own address,
	// every 2 seconds, and shows the answer, which [BenchContent] writes. It stops after a content
	// that is not Live. The reader's sorting, filters, choices and open sections stay.
	Live bool
}

// BenchHTML writes a run as one HTML file that needs nothing else: no script, font or picture from
// elsewhere, which its content security policy sees to. All of it can be read without JavaScript,
// on a telephone, in the dark and on paper. A baseline, which may be nil, is drawn behind the run:
// cells are compared with those of the same [outcome.Identity].
func BenchHTML(w io.Writer, run, baseline *Run, o BenchOptions) error {
	c := newBenchContent(run, baseline, o)
	p := benchPage{Page: page.New(c.Title, "To the answer", benchStyle, benchScript), Content: c}
	p.Page.Live = o.Live
	return benchTemplate.Execute(w, p)
}

// BenchShell writes the page of a run of which there is nothing to show yet.
func BenchShell(w io.Writer, o BenchOptions) error {
	return BenchHTML(w, &Run{}, nil, o)
}

// BenchContent writes what stands in the page: the content of its main element. The run may be a
// part of one.
func BenchContent(w io.Writer, run, baseline *Run, o BenchOptions) error {
	return benchTemplate.ExecuteTemplate(w, "content", newBenchContent(run, baseline, o))
}

// benchPage is what the template shows.
type benchPage struct {
	Page    page.Page
	Content *benchContent
}
