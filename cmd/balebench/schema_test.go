package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/compare"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/schematest"
)

// TestSchemas holds what the commands write as JSON against docs/schemas.
func TestSchemas(t *testing.T) {
	results := filepath.Join(t.TempDir(), "results.json")
	run := func(args ...string) []byte {
		t.Helper()
		var out, errs bytes.Buffer
		if code := app.Run(t.Context(), args, strings.NewReader(""), &out, &errs); code != cli.ExitDone {
			t.Fatalf("%q: exit %d: %s", args, code, &errs)
		}
		return out.Bytes()
	}
	run("run", "--embedded", "--builtin", "profiles", "--compress", "none,s2", "--duration", "24ms", "--repeat", "6", "--values", "30", "--json", results)
	measured, err := os.ReadFile(results)
	if err != nil {
		t.Fatal(err)
	}
	schematest.Check[outcome.Run](t, "bench", 1, measured)
	schematest.Check[outcome.Run](t, "bench", 1, run("run", "--embedded", "--builtin", "profiles", "--compress", "s2", "--rate", "300,600", "--duration", "24ms", "--repeat", "6", "--values", "30", "--json", "-"))
	schematest.Check[compare.Report](t, "compare", 1, run("compare", results, results, "--json", "-"))
}
