// Package schematest holds the JSON of commands against the schemas in docs/schemas, by [Check].
package schematest

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/cmd/internal/dictops"
	"github.com/balekv/bale/cmd/internal/page/pagetest"
	"github.com/balekv/bale/frame"
)

// Check holds the JSON of a command against its schema in docs/schemas, and that against the
// type T that the command writes. The flag -update writes the schema anew: a change that breaks
// readers is a new version.
func Check[T any](t *testing.T, command string, version int, output []byte) {
	t.Helper()
	schema, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: written(t)})
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("%s-v%d.json", command, version)
	schema.Schema, schema.ID = "https://json-schema.org/draft/2020-12/schema", "https://github.com/balekv/bale/blob/main/docs/schemas/"+name
	schema.Title = fmt.Sprintf("What %s --json writes, version %d", command, version)
	text, err := json.MarshalIndent(schema, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	pagetest.Golden(t, filepath.Join(clitest.Repository, "docs", "schemas", name), 0, string(text)+"\n")
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(output, &value); err != nil {
		t.Fatal(err)
	}
	if err := resolved.Validate(value); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	// The schema tells a wrong output from a right one.
	if object, ok := value.(map[string]any); ok {
		object["unknown_field"] = 1
		if resolved.Validate(object) == nil {
			t.Errorf("%s allows any field", name)
		}
	}
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
