package fieldpath

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
)

// Count counts, for each field, the values that contain it. Values that
// are not JSON, or nest deeper than 1,000 levels, have no fields. The error is ctx's.
func Count(ctx context.Context, values [][]byte, fields []string) ([]int, error) {
	counts := make([]int, len(fields))
	found := make([]bool, len(fields))
	for _, v := range values {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		clear(found)
		if !mark(v, fields, found) {
			continue
		}
		for i, f := range found {
			if f {
				counts[i]++
			}
		}
	}
	return counts, nil
}

// mark marks the fields that are within a value. It is false for one whose fields are unknown. It
// reads token by token: decoded as a whole, a value takes 60 times its bytes.
func mark(value []byte, fields Paths, found []bool) bool {
	type level struct{ object, key bool } // key: the next token is a name
	var stack []level
	path := make([]Place, 1, 8) // the root, and of each object that is open the member that is read
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err != nil {
			return err == io.EOF && len(stack) == 0
		}
		top := &level{}
		if len(stack) > 0 {
			top = &stack[len(stack)-1]
		}
		if name, ok := token.(string); ok && top.key {
			fields.Below(&path[len(path)-1], &path[len(path)-2], name)
			for i := range fields {
				found[i] = found[i] || fields.Is(&path[len(path)-1], i)
			}
			top.key = false
			continue
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			if len(stack) == MaxDepth {
				return false
			}
			object := token == json.Delim('{')
			top.key = top.object
			stack = append(stack, level{object, object})
			if object {
				path = append(path, Place{})
			}
		case json.Delim('}'), json.Delim(']'):
			if top.object {
				path = path[:len(path)-1]
			}
			stack = stack[:len(stack)-1]
		default:
			top.key = top.object
		}
	}
}
