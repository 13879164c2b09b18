package ab

import (
	"fmt"

	"github.com/balekv/bale/cmd/internal/compare"
	"github.com/balekv/bale/cmd/internal/page"
)

// Schema is the one of the JSON, in docs/schemas.
func (r *Result) Schema() string { return "ab-v1" }

// WriteText writes the comparison as a table, below what was run.
func (r *Result) WriteText(w page.Sheet, o compare.TextOptions) {
	w.Lines("A, old: "+r.A, "B, new: "+r.B)
	again := ""
	if r.Again != nil {
		again = ", and as many again to confirm what was found"
	}
	w.Wrapped(fmt.Sprintf("%d blocks of ABBA or BAAB: %d runs, which are %d pairs of A and B side by side%s", r.Blocks, 4*r.Blocks, 2*r.Blocks, again))
	if r.Interrupted {
		w.Wrapped("INTERRUPTED: this is what there was by then.")
	}
	r.Report.WriteText(w, o)
}

// Err is that of [compare.Report].
func (r *Result) Err() error { return r.Report.Err() }
