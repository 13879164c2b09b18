package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/balekv/bale/redisproc"
)

// repository is the root of the clone, where the documents' commands are meant to be run.
const repository = "../.."

// notRun are the commands that run this very test.
var notRun = map[string]bool{"make test": true, "bash .ci/run": true}

var fence = regexp.MustCompile("(?ms)^```(sh|go)\n(.*?)^```$")

// documents are all the Markdown files for users.
func documents(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(repository, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, path := range append(paths, filepath.Join(repository, "README.md")) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = string(b)
	}
	return texts
}

// TestDocumentedCommands runs every line of every sh block of the documents, with the measuring cut short: a
// Redis of the test's own takes the place of the one at the default port.
func TestDocumentedCommands(t *testing.T) {
	redis := redisproc.ForTest(t)
	dir, files := t.TempDir(), t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "bale"), ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	n := 0
	for path, text := range documents(t) {
		for _, block := range fence.FindAllStringSubmatch(text, -1) {
			if block[1] != "sh" {
				continue
			}
			for line := range strings.Lines(block[2]) {
				line = strings.TrimSpace(line)
				if line == "" || strings.HasPrefix(line, "#") || notRun[line] {
					continue
				}
				n++
				t.Run(filepath.Base(path)+": "+line, func(t *testing.T) {
					cmd := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-c", shorten(line, redis, files))
					cmd.Dir = repository
					cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "BALE_FUZZ_N=100", "BALE_BENCH_KEYS=2000", "BALE_BENCH_TURN=100ms")
					var out bytes.Buffer
					cmd.Stdout, cmd.Stderr = &out, &out
					if err := cmd.Run(); err != nil {
						t.Errorf("%v\n%s", err, &out)
					}
					if out.Len() == 0 && !strings.Contains(line, ">") {
						t.Error("it says nothing")
					}
				})
			}
		}
	}
	if n < 5 {
		t.Errorf("only %d commands found", n)
	}
}

var (
	benchRun  = regexp.MustCompile(`(\bbale bench\b[^|>]*)`)
	benchTime = regexp.MustCompile(`-benchtime \S+`)
	goBench   = regexp.MustCompile(`go test (.*-bench\b)`)
	written   = regexp.MustCompile(`\b(results\.json|report\.html|dump\.rdb|migrate\.progress|(users|shop-user)\.(dict|json)|live\.dict|dictionaries)\b`)
	graceful  = regexp.MustCompile(`(bale dict (activate|gc)\b)`)
	rated     = regexp.MustCompile(`(bale (migrate|verify)\b)`)
	fuzzN     = regexp.MustCompile(`BALE_FUZZ_N=\d+`)
)

// shorten makes a documented command quick and points it at the test's server.
// Files that it writes go to a folder of the test's.
func shorten(line string, redis *redisproc.Server, dir string) string {
	line = written.ReplaceAllStringFunc(line, func(name string) string { return filepath.Join(dir, name) })
	line = strings.ReplaceAll(line, "redis://127.0.0.1:6379", redis.URL())
	line = strings.ReplaceAll(line, "127.0.0.1:6379", redis.Addr())
	line = strings.ReplaceAll(line, "redis-cli ", "redis-cli -u "+redis.URL()+" ")
	line = strings.ReplaceAll(line, "-n 300000", "-n 3000")
	line = fuzzN.ReplaceAllString(line, "BALE_FUZZ_N=100")
	line = benchTime.ReplaceAllString(line, "")
	line = goBench.ReplaceAllString(line, "go test -benchtime 1x -count 1 $1")
	line = graceful.ReplaceAllString(line, "$1 --grace 0s ")
	line = rated.ReplaceAllString(line, "$1 --rate 0")
	return benchRun.ReplaceAllString(line, "$1 --duration 150ms --repeat 1 ")
}

// TestDocumentedCode finds every go block of the documents in the examples, which are compiled and
// run by tests of their own.
func TestDocumentedCode(t *testing.T) {
	var code strings.Builder
	err := filepath.WalkDir(filepath.Join(repository, "examples"), func(path string, _ os.DirEntry, err error) error {
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

// unindented is text without the white space at the start and end of lines.
func unindented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
}
