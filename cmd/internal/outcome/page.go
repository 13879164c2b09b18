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

// PageOptions say what a page shows beside the figures of a run.
type PageOptions struct {
	// Baseline is drawn behind the run: cells are compared with those of the same [Identity]. Default:
	// none.
	Baseline *Run

	// Live is for a run that goes on. The page then requests "content", beside its own address,
	// every 2 seconds, and shows the answer, which [Run.WriteContent] writes. It stops after a content
	// that is not Live. The reader's sorting, filters, choices and open sections stay.
	Live bool
}

// WritePage writes the run as one HTML file that needs nothing else: no script, font or picture
// from elsewhere, which its content security policy sees to. All of it can be read without
// JavaScript, on a telephone, in the dark and on paper.
func (r *Run) WritePage(w io.Writer, o PageOptions) error {
	c := newBenchContent(r, o)
	p := benchPage{Page: page.New(c.Title, "To the answer", benchStyle, benchScript), Content: c}
	p.Page.Live = o.Live
	return benchTemplate.Execute(w, p)
}

// WriteContent writes what stands in the page: the content of its main element. The run may be a
// part of one.
func (r *Run) WriteContent(w io.Writer, o PageOptions) error {
	return benchTemplate.ExecuteTemplate(w, "content", newBenchContent(r, o))
}

// benchPage is what the template shows.
type benchPage struct {
	Page    page.Page
	Content *benchContent
}
