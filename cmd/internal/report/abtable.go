package report

import (
	"fmt"
	"io"

	"github.com/balekv/bale/cmd/internal/ab"
	"github.com/balekv/bale/cmd/internal/printable"
)

// AB writes what came of two commands that were run in turn, as Compare does.
func AB(w io.Writer, r *ab.Result, o CompareOptions) {
	to := newSheet(w, o.Width)
	printable.Fprintf(w, "A, old: %s\nB, new: %s\n", r.A, r.B)
	again := ""
	if r.Again != nil {
		again = ", and as many again to confirm what was found"
	}
	to.wrapped(fmt.Sprintf("%d blocks of ABBA or BAAB: %d runs, which are %d pairs of A and B side by side%s", r.Blocks, 4*r.Blocks, 2*r.Blocks, again))
	if r.Interrupted {
		to.wrapped("INTERRUPTED: this is what there was by then.")
	}
	Compare(w, r.Report, o)
}
