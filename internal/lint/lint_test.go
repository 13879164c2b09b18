package lint

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/balekv/bale"

var core = Rules{
	Module:      module,
	External:    []string{"github.com/klauspost/compress", "github.com/pierrec/lz4/v4"},
	Skip:        []string{"czstd", "goredis", "rueidis", "redigo", "observe", "near", "codecs", "rivals", "cmd", "examples"},
	RootFiles:   10,
	RootExports: 30,
	Standard:    []string{"frame", "codec", "redismem", "redisproc", "internal/bufpool", "internal/lint", "internal/testvalues"},
	Above:       []string{"storetest", "batch", "stream", "ready"},
}

func TestCoreKeepsTheRules(t *testing.T) {
	found, err := Check(os.DirFS("../.."), core)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Error(f)
	}
}

// TestNestedModulesStayOut: the internal packages of the root are not for them, though Go would allow it.
func TestNestedModulesStayOut(t *testing.T) {
	for _, dir := range []string{"czstd", "goredis", "rueidis", "redigo", "observe", "near", "codecs", "rivals", "cmd/bale", "examples"} {
		cmd := exec.Command("go", "list", "-test", "-f", `{{join .Imports "\n"}}`, "./...")
		cmd.Dir = "../../" + dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		if len(out) == 0 {
			t.Errorf("%s imports nothing", dir)
		}
		for imported := range strings.Lines(string(out)) {
			if strings.HasPrefix(imported, module+"/internal/") {
				t.Errorf("%s imports %s", dir, strings.TrimSpace(imported))
			}
		}
	}
}

func TestRulesCanBeBroken(t *testing.T) {
	file := func(src string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(src)} }
	found, err := Check(fstest.MapFS{
		"a.go":              file("// Package a is documented.\npackage a\n\nimport _ \"m/low\"\n\nfunc A() {}\nfunc (T) Method() {}\n\ntype T struct{}\n"),
		"b.go":              file("package a\n\nvar B, c = 1, 2\n"),
		"a_test.go":         file("package a\n\nimport _ \"example.com/anything\"\n\nfunc init() {}\n"),
		"low/low.go":        file("package low\n\nimport (\n\t_ \"C\"\n\t_ \"fmt\"\n\t_ \"m\"\n\t_ \"example.com/allowed/sub\"\n\t_ \"example.com/forbidden\"\n\t_ \"m/nested/x\"\n)\n\nfunc init() {}\n"),
		"std/std.go":        file("// Package std is documented.\npackage std\n\nimport (\n\t_ \"m/low\"\n\t_ \"example.com/allowed\"\n)\n"),
		"top/top.go":        file("// Package top is documented.\npackage top\n\nimport _ \"m\"\n"),
		"low/low2.go":       file("package low\n\nimport _ \"m/top\"\n"),
		"nested/x/x.go":     file("package x\n\nimport _ \"example.com/forbidden\"\n"),
		"low/testdata/x.go": file("not Go"),
	}, Rules{Module: "m", External: []string{"example.com/allowed"}, Skip: []string{"nested"}, RootFiles: 1, RootExports: 2, Standard: []string{"std"}, Above: []string{"top"}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{
		"low/low.go: cgo",
		"low/low.go: func init",
		"low/low.go: imports example.com/forbidden, which the module does not depend on",
		"low/low.go: imports m/nested/x, a module above it",
		"low/low.go: imports the root, which is above it",
		"low/low2.go: imports m/top, which is above it",
		"low: no package comment",
		"std/std.go: imports example.com/allowed, and may import the standard library alone",
		"std/std.go: imports m/low, and may import the standard library alone",
		"the root package exports 3 names, more than 2: [A T B]",
		"the root package has 2 files, more than 1",
	}, found); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
