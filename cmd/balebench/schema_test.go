package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/balekv/bale/cmd/internal/ab"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/compare"
	"github.com/balekv/bale/cmd/internal/httplab"
	"github.com/balekv/bale/cmd/internal/instruments"
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
	schematest.Check[outcome.Run](t, measured)
	schematest.Check[outcome.Run](t, run("run", "--embedded", "--builtin", "profiles", "--compress", "s2", "--rate", "300,600", "--duration", "24ms", "--repeat", "6", "--values", "30", "--json", "-"))
	if _, err := exec.LookPath("redis-server"); err == nil {
		schematest.Check[outcome.Run](t, run("study", "pipeline", "--duration", "6ms", "--repeat", "1", "--json", "-"))
	}
	schematest.Check[compare.Report](t, run("compare", results, results, "--json", "-"))
	schematest.Check[ab.Result](t, run("ab", "sleep 0.001", "sleep 0.001", "--blocks", "6", "--gate", "time=1000%", "--json", "-"))
	schematest.CheckReport[httplab.Cell](t, "http-v1", run("http", "--client", "httpc", "--rate", "100", "--duration", "600ms", "--repeat", "6", "--json", "-"))
	schematest.CheckReport[instruments.Cell](t, "study-instruments-v1", run("study", "instruments", "--duration", "6ms", "--repeat", "6", "--json", "-"))
}
