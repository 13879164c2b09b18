// Package report shows what the lab found: [WriteJSON] to machines, [Table] to people.
package report

import (
	"encoding/json"
	"io"
	"strings"

	"github.com/balekv/bale/cmd/internal/printable"
)

// WriteJSON writes the result as indented JSON, with escapes for what a terminal would obey.
func WriteJSON(w io.Writer, r any) error {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return err
	}
	_, err := io.WriteString(w, printable.JSON(b.String()))
	return err
}
