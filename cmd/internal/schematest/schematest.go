// Package schematest holds the JSON of commands against the schemas in docs/schemas, by [Check] and
// [CheckReport].
package schematest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/balekv/bale/cmd/internal/dictops"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/page/pagetest"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/frame"
)

// Check holds the JSON of a command against its schema in docs/schemas, and that against the type
// T that the command writes. The flag -update writes the schema of a new version, and none anew.
func Check[T any, P interface {
	*T
	printable.Versioned
}](t *testing.T, output []byte) {
	t.Helper()
	check(t, P(new(T)).Schema(), schemaOf[T](t), output)
}

// CheckReport is Check for the report of a study with cells of type C.
func CheckReport[C any](t *testing.T, name string, output []byte) {
	t.Helper()
	schema := schemaOf[outcome.Report](t)
	schema.Properties["cells"] = &jsonschema.Schema{Type: "array", Items: schemaOf[C](t)}
	check(t, name, schema, output)
}

// Written is the JSON of a result.
func Written(t *testing.T, result printable.Versioned) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := printable.WriteJSON(&b, result); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func check(t *testing.T, name string, schema *jsonschema.Schema, output []byte) {
	t.Helper()
	file := name + ".json"
	schema.Schema, schema.ID = "https://json-schema.org/draft/2020-12/schema", "https://github.com/balekv/bale/blob/main/docs/schemas/"+file
	schema.Title = "The JSON with the schema " + name
	constant := any(name)
	schema.Properties["schema"] = &jsonschema.Schema{Type: "string", Const: &constant}
	schema.Required = slices.Insert(schema.Required, 0, "schema")
	schema.PropertyOrder = slices.Insert(schema.PropertyOrder, 0, "schema")
	text, err := json.MarshalIndent(schema, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := frozen(filepath.Join(folder(t), file), string(text)+"\n", pagetest.Updating()); err != nil {
		t.Error(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(output, &value); err != nil {
		t.Fatal(err)
	}
	if err := resolved.Validate(value); err != nil {
		t.Errorf("%s: %v", file, err)
	}
	// The schema tells a wrong output from a right one.
	if object, ok := value.(map[string]any); ok {
		object["unknown_field"] = 1
		if resolved.Validate(object) == nil {
			t.Errorf("%s allows any field", file)
		}
	}
}

// folder is where the schemas are, seen from a test's folder.
func folder(t *testing.T) string {
	t.Helper()
	path := filepath.Join("docs", "schemas")
	for range 5 {
		if _, err := os.Stat(path); err == nil {
			return path
		}
		path = filepath.Join("..", path)
	}
	t.Fatal("no docs/schemas above")
	return ""
}

// frozen compares a schema with its file. It makes a missing file if it may write, and changes
// none: readers rely on it.
func frozen(path, text string, write bool) error {
	was, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && write:
		return os.WriteFile(path, []byte(text), 0o644)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: -update writes it", err)
	case err != nil:
		return err
	case string(was) != text:
		return fmt.Errorf("what the command writes is no longer %s. Count up the version in its Schema(), and -update writes the new file. Delete the old one if no release has it (-file +written):\n%s",
			path, cmp.Diff(string(was), text))
	}
	return nil
}

func schemaOf[T any](t *testing.T) *jsonschema.Schema {
	t.Helper()
	schema, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: written(t)})
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// written are the schemas of types that write themselves.
func written(t *testing.T) map[reflect.Type]*jsonschema.Schema {
	t.Helper()
	id := &jsonschema.Schema{Type: "string"}
	training, err := jsonschema.For[dictops.TrainingJSON](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{reflect.TypeFor[frame.DictionaryID](): id}})
	if err != nil {
		t.Fatal(err)
	}
	return map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[frame.DictionaryID](): id,
		reflect.TypeFor[dictops.Training]():   training,
	}
}
