package dataset

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
)

// CountFields says in how many of the values each field is that dict.TrainOptions.Exclude would keep out: a name at any depth, or a
// path from the root ("user.token"). What is not JSON has none.
func CountFields(values [][]byte, fields []string) []int {
	counts := make([]int, len(fields))
	found := make([]bool, len(fields))
	for _, v := range values {
		clear(found)
		d := json.NewDecoder(bytes.NewReader(v))
		var err error
		for err == nil {
			var document any
			if err = d.Decode(&document); err == nil {
				markFields(document, "", fields, found)
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

// markFields marks the fields that are within v, whose path ends in a dot if it is not the root.
func markFields(v any, path string, fields []string, found []bool) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			markFields(e, path, fields, found)
		}
	case map[string]any:
		for name, e := range v {
			for i, f := range fields {
				if f == name || strings.Contains(f, ".") && f == path+name {
					found[i] = true
				}
			}
			markFields(e, path+name+".", fields, found)
		}
	}
}
