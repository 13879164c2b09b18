package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
)

// TestReportsFitTerminals: the report of each command fits terminals of 60 columns and more.
func TestReportsFitTerminals(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	results := filepath.Join(dir, "results.json")
	short := []string{"--embedded", "--duration", "24ms", "--repeat", "6", "--values", "30"}
	long := "sleep" + strings.Repeat(" 0.00001", 40)
	for _, args := range [][]string{
		append([]string{"run", "--builtin", "profiles", "--compress", "none,zstd:better", "--client", "goredis:16+auto", "--concurrency", "1,1000", "--json", results, "--stages"}, short...),
		append([]string{"run", "--builtin", "profiles", "--compress", "s2", "--rate", "500,1000"}, short...),
		{"compare", results, results, "--all"},
		{"http", "--duration", "200ms", "--repeat", "1", "--client", "httpc", "--loop", "closed"},
		{"study"},
		{"study", "instruments", "--duration", "6ms", "--repeat", "6"},
		{"ab", long, long, "--blocks", "6", "--gate", "time=1000%"},
	} {
		t.Run(args[0], func(t *testing.T) {
			clitest.FitsTerminals(t, func(stdout *os.File) {
				var errs bytes.Buffer
				if code := app.Run(t.Context(), slices.Clone(args), strings.NewReader(""), stdout, &errs); code != cli.ExitDone {
					t.Errorf("%q: exit %d: %s", args, code, &errs)
				}
			})
		})
	}
}
