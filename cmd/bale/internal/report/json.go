// Package report shows what the lab found: [WriteJSON] to machines, [Table] to people.
package report

import (
	"encoding/json"
	"io"
)

// WriteJSON writes the result as indented JSON.
func WriteJSON(w io.Writer, r any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
