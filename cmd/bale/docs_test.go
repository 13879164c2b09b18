package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/internal/redisproc"
)

// notRun are the commands that run this very test.
var notRun = map[string]bool{"make test": true, "bash .ci/run": true}

var fence = regexp.MustCompile("(?ms)^```(sh|go)\n(.*?)^```$")

// documents are all the Markdown files for users, without translations: [TestTranslations] finds
// the same code in those.
func documents(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(clitest.Repository, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, path := range append(paths, filepath.Join(clitest.Repository, "README.md"), filepath.Join(clitest.Repository, "docs", "ops", "README.md")) {
		if strings.HasSuffix(path, translated) {
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = string(b)
	}
	return texts
}

// TestDocumentedCommands runs every line of every sh block of the documents, with short
// measurements. A Redis of the test's own takes the place of the one at the default port. It runs a
// document's lines in their order, and the documents in parallel.
func TestDocumentedCommands(t *testing.T) {
	redisproc.ForTest(t)
	binaries := t.TempDir()
	build := exec.Command("go", "build", "-o", binaries, ".", "../balebench")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	before := entries(t)
	t.Cleanup(func() { // after the parallel documents
		if left := cmp.Diff(before, entries(t)); left != "" {
			t.Errorf("a command changed what is in the checkout; add the file's name to written:\n%s", left)
		}
	})
	n := 0
	for path, text := range documents(t) {
		lines := commands(text)
		if n += len(lines); len(lines) == 0 {
			continue
		}
		t.Run(strings.TrimPrefix(path, clitest.Repository), func(t *testing.T) {
			t.Parallel()
			redis, files := serverOf(t, path), t.TempDir()
			t.Cleanup(func() { // where a line failed
				_ = exec.Command("sh", "-c", "kill $(cat "+filepath.Join(files, "proxy.pid")+")").Run()
			})
			for _, line := range lines {
				t.Run(line, func(t *testing.T) { runDocumented(t, line, redis, files, binaries) })
			}
		})
	}
	if n < 5 {
		t.Errorf("only %d commands found", n)
	}
}

// serverOf is the server for a document's commands. That about clusters gets a cluster, of
// BALE_FLEET_MASTERS masters.
func serverOf(t *testing.T, path string) *redisproc.Server {
	if filepath.Base(path) == "scale.md" {
		return redisproc.ClusterForTest(t, number("BALE_FLEET_MASTERS", 3)).Servers[0]
	}
	return redisproc.ForTest(t)
}

// entries names what is in the folder that documented commands run in.
func entries(t *testing.T) (names []string) {
	found, err := os.ReadDir(clitest.Repository)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range found {
		names = append(names, entry.Name())
	}
	return names
}

// commands returns the lines to run from a document's sh blocks.
func commands(text string) (lines []string) {
	for _, block := range fence.FindAllStringSubmatch(text, -1) {
		if block[1] != "sh" {
			continue
		}
		for line := range strings.Lines(block[2]) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") && !notRun[line] {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

func runDocumented(t *testing.T, line string, redis *redisproc.Server, files, binaries string) {
	cmd := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-c", shorten(line, redis, files))
	cmd.Dir = clitest.Repository
	cmd.Env = append(os.Environ(), "PATH="+binaries+":"+os.Getenv("PATH"), "BALE_BENCH_KEYS=500", "BALE_BENCH_TURN=100ms", "BALE_BENCH_OPS=2000", "BALE_CORPORA=")
	if strings.Contains(line, "extra/czstd") || strings.Contains(line, "testkit/rivals") {
		if _, err := exec.LookPath("gcc"); err != nil {
			t.Skip("cgo needs gcc")
		}
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1")
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Errorf("%v\n%s", err, &out)
	}
	for _, named := range []struct {
		in    *regexp.Regexp
		shown string
	}{{goBench, "Benchmark"}, {goTest, "Test"}} {
		if named.in.MatchString(line) {
			if !regexp.MustCompile(`(?m)^` + named.shown).Match(out.Bytes()) {
				t.Errorf("it names no %s that there is\n%s", named.shown, &out)
			}
			break
		}
	}
	if out.Len() == 0 && !strings.Contains(line, ">") {
		t.Error("it says nothing")
	}
}

var (
	benchRun  = regexp.MustCompile(`(\bbalebench run\b[^|>]*)`)
	goBench   = regexp.MustCompile(`\bgo test .*-bench\b`)
	goTest    = regexp.MustCompile(`\bgo test .*-run\b`)
	measuring = regexp.MustCompile(`-(benchtime|count)[ =]\S+`)
	written   = regexp.MustCompile(`\b((results|old|new)\.json|(report|dictionary)\.html|dump\.rdb|migrate\.progress|backup\.rdb|restored(/(dump\.rdb|dictionaries))?|(users|shop-user|better)\.(dict|json)|live\.dict|dictionaries|proxy\.(log|pid|json)|service\.(py|log|pid)|before\.sum|nodes\.conf)\b`)
	graceful  = regexp.MustCompile(`(bale dict activate\b)`)
	rated     = regexp.MustCompile(`(bale (migrate|verify|advise --redis \S+|train --redis \S+))`)
	studied   = regexp.MustCompile(`(\bbalebench (?:study \w[\w-]*|http\b))`)
	lasting   = regexp.MustCompile(` --(duration|repeat) \S+`)
	filled    = regexp.MustCompile(`-n (20000|300000)\b`)
)

// These take the place of the ports of servers that a document starts.
var privatePort, clusterPort, proxyPort, servicePort = sync.OnceValue(freePort), sync.OnceValue(freePort), sync.OnceValue(freePort), sync.OnceValue(freePort)

func freePort() string {
	port, err := redisproc.FreePort()
	if err != nil {
		panic(err)
	}
	return strconv.Itoa(port)
}

// shorten makes a documented command quick and points it at the test's server.
// Files that it writes go to a folder of the test's.
func shorten(line string, redis *redisproc.Server, dir string) string {
	line = written.ReplaceAllStringFunc(line, func(name string) string { return filepath.Join(dir, name) })
	line = strings.ReplaceAll(line, "redis://127.0.0.1:6379", redis.URL())
	line = strings.ReplaceAll(line, "127.0.0.1:6379", redis.Addr())
	line = strings.ReplaceAll(line, "redis-cli ", "redis-cli -u "+redis.URL()+" ")
	line = strings.NewReplacer("6391", clusterPort(), "6390", privatePort(), "6380", proxyPort(), "127.0.0.1:8080", "127.0.0.1:"+servicePort()).Replace(line)
	line = filled.ReplaceAllString(line, "-n 3000")
	switch {
	case goBench.MatchString(line):
		line = measuring.ReplaceAllString(line, "")
		line = strings.Replace(line, "-bench ", "-short -vet=off -benchtime 1x -count 1 -bench ", 1)
	case goTest.MatchString(line): // a test, which runs by itself: that there is one by that name
		line = strings.NewReplacer("-run ", "-list ", "-v ", "").Replace(line)
	}
	line = graceful.ReplaceAllString(line, "$1 --force ")
	line = rated.ReplaceAllString(line, "$1 --max-rate 0 --max-bandwidth 0")
	if studied.MatchString(line) {
		duration := "60ms"
		if strings.Contains(line, "balebench http") { // on a busy machine a request takes longer than that
			duration = "500ms"
		}
		line = studied.ReplaceAllString(lasting.ReplaceAllString(line, ""), "$1 --duration "+duration+" --repeat 2 ")
	}
	return benchRun.ReplaceAllStringFunc(line, func(command string) string {
		command += " --duration 150ms --repeat 1 "
		// A few cells of the matrix, where it is the whole one.
		if !strings.Contains(command, "--compress") {
			command += "--compress none,zstd:3+dict "
		}
		return command
	})
}

// TestDocumentedCode finds every go block of the documents in the examples, which are compiled and
// run by tests of their own.
func TestDocumentedCode(t *testing.T) {
	var code strings.Builder
	err := filepath.WalkDir(filepath.Join(clitest.Repository, "examples"), func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		b, err := os.ReadFile(path)
		code.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	examples := unindented(code.String())
	n := 0
	for path, text := range documents(t) {
		for _, block := range fence.FindAllStringSubmatch(text, -1) {
			if block[1] != "go" {
				continue
			}
			n++
			if !strings.Contains(examples, unindented(block[2])) {
				t.Errorf("%s: not in examples:\n%s", path, block[2])
			}
		}
	}
	if n == 0 {
		t.Error("no code found")
	}
}

// TestGuideIsAProgram: whoever copies the blocks of the guide in their order has the example, which
// another test compiles and runs.
func TestGuideIsAProgram(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join(clitest.Repository, "docs", "guide.md"))
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile(filepath.Join(clitest.Repository, "examples", "guide", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	code := func(text string) (lines []string) {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
				lines = append(lines, line)
			}
		}
		return lines
	}
	var blocks strings.Builder
	for _, block := range fence.FindAllStringSubmatch(string(guide), -1) {
		if block[1] == "go" {
			blocks.WriteString(block[2])
		}
	}
	if diff := cmp.Diff(code(string(example)), code(blocks.String())); diff != "" {
		t.Errorf("the guide's code is not its example (-example +guide):\n%s", diff)
	}
}

// unindented is text without the white space at the start and end of lines.
func unindented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
}

// translated is how the name of a translation ends.
const translated = ".zh-CN.md"

// TestTranslations: a translation is Chinese, and has the structure, code and figures of its
// English page.
func TestTranslations(t *testing.T) {
	n := 0
	for _, pattern := range []string{"*" + translated, "*/*" + translated} {
		paths, err := filepath.Glob(filepath.Join(clitest.Repository, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			n++
			chinese, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			english, err := os.ReadFile(strings.TrimSuffix(path, translated) + ".md")
			if err != nil {
				t.Fatal(err)
			}
			if wrong := mistranslated(string(english), string(chinese)); wrong != "" {
				t.Errorf("%s: %s", path, wrong)
			}
		}
	}
	if n < 2 {
		t.Errorf("only %d translations found", n)
	}
}

// TestMistranslated: every kind of difference is found.
func TestMistranslated(t *testing.T) {
	const english = "# Cache\n\nStores 12 values, see [guide](guide.md).\n\n    make test\n\n| a | b |\n|---|---|\n| `Get` | 1.5 | 2 |\n\n```go\ncache.Get()\n```\n\n- Small\nvalues.\n"
	const chinese = "# 缓存\n\n存储 12 个值，见[指南](guide.zh-CN.md)。\n\n    make test\n\n| 甲 | 乙 |\n|---|---|\n| `Get` | 1.5 | 2 |\n\n```go\ncache.Get()\n```\n\n- 很小的值。\n"
	if wrong := mistranslated(english, chinese); wrong != "" {
		t.Fatal(wrong)
	}
	if mistranslated(english, english) == "" {
		t.Error("English passes for Chinese")
	}
	for _, change := range [][2]string{
		{"cache.Get()", "cache.Set()"}, {"```go", "```sh"}, {"make test", "make"}, {"# 缓存", "## 缓存"}, {"# 缓存\n\n", ""},
		{"| 1.5 |", "| 1.6 |"}, {"1.5 | 2", "2 | 1.5"}, {"| 1.5 |", "| 1.5 | |"}, {"|---|---|\n", "|---|---|\n| | |\n"}, {"`Get`", "`Set`"},
		{"12", "21"}, {"guide.zh-CN.md", "hook.md"}, {"- 很小的值。\n", ""}, {"存储", "存储\n\n"},
	} {
		changed := strings.Replace(chinese, change[0], change[1], 1)
		if mistranslated(english, changed) == "" {
			t.Errorf("%q for %q is not found", change[1], change[0])
		}
	}
}

var (
	// block is the start of a part of a page, and all of a code block or of a row of a table.
	block = regexp.MustCompile("(?m)^(```(?s:.*?)^```$|(?:    .*\\n)+|\\|.*$|#+ |- |\\d+\\. |$)")

	// fact is a code span, the target of a link or a number: equal in every language.
	fact = regexp.MustCompile("`[^`]+`|\\]\\([^)]*\\)|\\d+(?:[.,]\\d+)*")

	han    = regexp.MustCompile(`\p{Han}`)
	letter = regexp.MustCompile(`\pL`)
)

// leastHan is the share of Han characters among a translation's letters outside of code; the rest
// are names.
const leastHan = 0.6

// mistranslated says how a translation differs from its English page.
func mistranslated(english, chinese string) string {
	blocks, facts, _ := anatomy(english)
	translatedBlocks, translatedFacts, prose := anatomy(chinese)
	if diff := cmp.Diff(blocks, translatedBlocks); diff != "" {
		return "other parts than the English page (-English +translation):\n" + diff
	}
	if diff := cmp.Diff(facts, translatedFacts); diff != "" {
		return "other code spans, links or numbers than the English page (-English +translation):\n" + diff
	}
	share := float64(len(han.FindAllString(prose, -1))) / float64(len(letter.FindAllString(prose, -1)))
	if share < leastHan {
		return fmt.Sprintf("%.0f%% of the letters are Chinese, less than %.0f%%", 100*share, 100*leastHan)
	}
	return ""
}

// anatomy splits a page into its blocks, in order, its facts, sorted, and the rest. A row of a
// table is its number of columns, and its facts.
func anatomy(text string) (blocks, facts []string, prose string) {
	prose = block.ReplaceAllStringFunc(strings.ReplaceAll(text, translated+")", ".md)"), func(b string) string {
		if strings.HasPrefix(b, "|") {
			blocks = append(blocks, fmt.Sprintf("row of %d columns with %q", strings.Count(b, "|")-1, fact.FindAllString(b, -1)))
			return b
		}
		blocks = append(blocks, b)
		return ""
	})
	prose = fact.ReplaceAllStringFunc(prose, func(f string) string {
		facts = append(facts, strings.Join(strings.Fields(f), " "))
		return ""
	})
	slices.Sort(facts)
	return blocks, facts, prose
}
