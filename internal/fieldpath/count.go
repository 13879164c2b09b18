package fieldpath

import (
	"bytes"
	"encoding/json"
	"io"
)

// Count counts, for each field, the values that contain it. Values that
// are not JSON, or nest deeper than 1,000 levels, have no fields.
func Count(values [][]byte, fields []string) []int {
	counts := make([]int, len(fields))
	found := make([]bool, len(fields))
	for _, v := range values {
		clear(found)
		d := json.NewDecoder(bytes.NewReader(v))
		var err error
		for err == nil {
			var document any
			if err = d.Decode(&document); err == nil {
				if !markFields(document, fields, &Place{}, found, MaxDepth) {
					break
				}
			}
		}
		if err != io.EOF {
			continue
		}
		for i, f := range found {
			if f {
				counts[i]++
			}
		}
	}
	return counts
}

// markFields marks the fields that are within v, which stands at a place. It is false for a value
// that nests deeper than it may.
func markFields(v any, fields Paths, at *Place, found []bool, depth int) bool {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if !markFields(e, fields, at, found, depth-1) {
				return false
			}
		}
	case map[string]any:
		var below Place
		for name, e := range v {
			fields.Below(&below, at, name)
			for i := range fields {
				found[i] = found[i] || fields.Is(&below, i)
			}
			if !markFields(e, fields, &below, found, depth-1) {
				return false
			}
		}
	default:
		return true
	}
	return depth > 0
}
