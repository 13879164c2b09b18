// Package report shows what the lab found: [WriteJSON] to machines, [Table] to people.
package report

import (
	"encoding/json"
	"io"

	"github.com/balekv/bale/cmd/bale/internal/lab"
)

// WriteJSON writes the result as indented JSON.
func WriteJSON(w io.Writer, r *lab.Result) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
