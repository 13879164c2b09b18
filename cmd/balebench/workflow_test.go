package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
)

// TestWorkflowFlags: the commands in continuous integration use existing flags, and the gate finds
// its commit. A comparison of two runs from different times never fails the job.
func TestWorkflowFlags(t *testing.T) {
	command := regexp.MustCompile(`/balebench(?:-base)?" (run|compare|ab) (.*)`)
	flag := regexp.MustCompile(`--[a-z][a-z-]*`)
	n := 0
	for _, name := range []string{".github/workflows/bench.yml", ".ci/gate"} {
		text, err := os.ReadFile(filepath.Join(clitest.Repository, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range command.FindAllStringSubmatch(string(text), -1) {
			n++
			if m[1] == "compare" && !strings.Contains(m[2], "|| ") {
				t.Errorf("%s: %s fails the job", name, m[0])
			}
			var help, errs bytes.Buffer
			if code := app.Run(t.Context(), []string{m[1], "--help"}, strings.NewReader(""), &help, &errs); code != cli.ExitDone {
				t.Fatalf("exit %d: %s", code, &errs)
			}
			for _, f := range flag.FindAllString(m[2], -1) {
				if !regexp.MustCompile(regexp.QuoteMeta(f) + `\b`).Match(help.Bytes()) {
					t.Errorf("%s: balebench %s has no %s", name, m[1], f)
				}
			}
		}
	}
	if n != 4 {
		t.Errorf("%d commands found, want 4", n)
	}

	// The gate compares with an earlier commit, which a checkout does not have by itself.
	text, err := os.ReadFile(filepath.Join(clitest.Repository, ".github/workflows/nightly.yml"))
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`fetch-depth: 0\n`).Match(text) || !regexp.MustCompile(`BALE_REQUIRE_GATE: 1\n`).Match(text) {
		t.Error("nightly.yml has no commit for the gate to compare with, or would not notice")
	}
}
