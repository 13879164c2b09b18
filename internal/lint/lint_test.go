package lint

import (
	"cmp"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	gocmp "github.com/google/go-cmp/cmp"
)

const module = "github.com/balekv/bale"

// nested are the folders of the other modules, as go.work lists them.
func nested(t *testing.T) (folders []string) {
	t.Helper()
	b, err := os.ReadFile("../../go.work")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\t\./(\S+)$`).FindAllStringSubmatch(string(b), -1) {
		folders = append(folders, m[1])
	}
	if len(folders) < 10 {
		t.Fatalf("go.work lists %q", folders)
	}
	return folders
}

var core = Rules{
	Module:      module,
	External:    []string{"github.com/klauspost/compress", "github.com/pierrec/lz4/v4"},
	RootFiles:   10,
	RootExports: 34,
	Standard:    []string{"frame", "codec", "redismem", "internal/bufpool", "internal/fieldpath", "internal/glob", "internal/lint", "internal/redisproc"},
	Above:       []string{"batch", "stream", "extra/ready", "internal/memstore"},
}

func TestCoreKeepsTheRules(t *testing.T) {
	rules := core
	rules.Skip = nested(t)
	found, err := Check(os.DirFS("../.."), rules)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Error(f)
	}
}

// shared are the internal packages of the root that nested modules may import. The hook and the
// proxy deal with commands alike. The hook and the advisor read a pattern alike. Both engines bound
// a forged claim alike. Tests forge values alike. Tests and the command start private servers.
// Stores of all clients swap alike. What trains a dictionary and what measures it split samples
// alike, and find fields alike. Examples run without a server. The hook asks whether Auto needs
// values that are read.
var shared = []string{
	module + "/internal/glob", module + "/internal/rediscmd", module + "/internal/claim", module + "/internal/testvalues", module + "/internal/redisproc",
	module + "/internal/adapters", module + "/internal/holdout", module + "/internal/fieldpath", module + "/internal/memstore", module + "/internal/zstd",
	module + "/internal/sampling",
}

// TestNestedModulesStayOut: nested modules import no other internal package of the root, though Go
// would allow it.
func TestNestedModulesStayOut(t *testing.T) {
	for _, dir := range nested(t) {
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
			if imported = strings.TrimSpace(imported); strings.HasPrefix(imported, module+"/internal/") && !slices.Contains(shared, imported) {
				t.Errorf("%s imports %s", dir, imported)
			}
		}
	}
}

// TestHouse: limits that keep the repository easy to read and install.
func TestHouse(t *testing.T) {
	out, err := exec.Command("git", "-C", "../..", "ls-files").Output()
	if err != nil {
		t.Skipf("no clone: %v", err)
	}
	folders, generated, files, mains := map[string]bool{}, 0, 0, 0
	long, longest, comments := 0, 0, 0
	exported := map[string]int{}
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		if first, _, below := strings.Cut(name, "/"); below && !strings.HasPrefix(first, ".") {
			folders[first] = true
		}
		b, err := os.ReadFile("../../" + name)
		if err != nil {
			continue // deleted, and not committed
		}
		files++
		switch {
		case name == "README.md":
			if words := len(strings.Fields(string(b))); words > 1200 {
				t.Errorf("README.md has %d words, more than 1,200", words)
			}
		case strings.HasSuffix(name, "go.mod") && strings.Contains(string(b), "\nreplace"):
			t.Errorf("%s has a replace directive, with which go install refuses a module", name)
		case strings.HasSuffix(name, ".go") && strings.Contains(string(b), "\n// Code generated ") || strings.HasPrefix(string(b), "// Code generated "):
			generated += strings.Count(string(b), "\n")
		case strings.HasSuffix(name, ".go"):
			test := strings.HasSuffix(name, "_test.go")
			if dir := path.Dir(name); !test && (dir == "cmd/bale" || dir == "cmd/balebench") {
				mains += strings.Count(string(b), "\n")
			}
			if dir := path.Dir(name); !test && (dir == "dict" || dir == "stats") {
				f, err := parser.ParseFile(token.NewFileSet(), name, b, 0)
				if err != nil {
					t.Fatal(err)
				}
				exported[dir] += len(exports(f))
			}
			for line := range strings.Lines(string(b)) {
				columns := utf8.RuneCountInString(strings.TrimRight(line, "\n"))
				if columns > 120 && !test {
					long, longest = long+1, max(longest, columns)
				}
				if columns > 100 && prose.MatchString(line) && !strings.HasSuffix(name, "example_test.go") {
					comments++
					t.Logf("%s: a comment of %d columns: %.40s...", name, columns, line)
				}
			}
		}
	}
	if files < 300 || len(folders) < 10 || generated == 0 || mains == 0 || long == 0 {
		t.Fatalf("%d files, %d folders, %d generated lines, %d of package main, %d long", files, len(folders), generated, mains, long)
	}
	for _, limit := range []struct {
		what      string
		is, limit int
	}{
		{"lines of package main of both commands", mains, 2500},
		{"lines of comments above 100 columns", comments, 0},
		{"lines of code above 120 columns", long, 1400},
		{"columns of the longest line of code", longest, 400},
		{"exported names of dict", exported["dict"], 37},
		{"exported names of stats", exported["stats"], 58},
	} {
		t.Logf("%s: %d", limit.what, limit.is)
		if limit.is > limit.limit {
			t.Errorf("%s: %d, more than %d", limit.what, limit.is, limit.limit)
		}
	}
	if len(folders) > 16 {
		t.Errorf("%d folders at the root, more than 16: %v", len(folders), slices.Sorted(maps.Keys(folders)))
	}
	if generated > 12_000 {
		t.Errorf("%d lines of generated code, more than 12,000", generated)
	}
}

// prose is a line of a comment that can wrap: no table, no code, no list's example.
var prose = regexp.MustCompile(`^\t*// \S`)

// TestGoDocIsShort: go doc shows a package's names without scrolling. Package frame is exempt: its
// comment is the format's specification.
func TestGoDocIsShort(t *testing.T) {
	limits := map[string]int{".": 30, "dict": 30, "extra/resilient": 30}
	for _, dir := range []string{".", "batch", "codec", "compress", "dict", "redismem", "stats", "stream", "adapter/goredis", "adapter/redigo", "adapter/rueidis",
		"adapter/valkey", "extra/czstd", "extra/formats", "extra/near", "extra/observe/otelbale", "extra/observe/prom", "extra/ready", "extra/resilient", "extra/resilient/httpc"} {
		cmd := exec.Command("go", "doc", ".")
		cmd.Dir = "../../" + dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", dir, err)
		}
		lines, limit := strings.Count(string(out), "\n"), cmp.Or(limits[dir], 25)
		t.Logf("%s: %d", dir, lines)
		if lines < 5 || lines > limit {
			t.Errorf("%s: %d lines, must be 5 to %d", dir, lines, limit)
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
	if diff := gocmp.Diff([]string{
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
