package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/balekv/bale/internal/redisproc"
)

// mutantsEnv runs [TestMutants]: each mutant is built and looked for, which takes minutes. A value
// other than 1 is a part of the names of those to run.
const mutantsEnv = "BALE_MUTANTS"

// mutant is a known defect, put back: a file mutants/NAME.txt, whose first line describes the
// defect.
//
// A line "file: PATH" names the file of the edits after it. An edit has two texts. The first,
// between a line "-----" and a line "+++++", must occur exactly once in the file. The second
// replaces it, and ends at a line "=====". A line "find: campaign ARGUMENTS" or "find: test PACKAGE
// NAME" names the check that finds the mutant. "class: CLASS" is the class of the violation that
// the campaign reports.
type mutant struct {
	name   string
	defect string
	edits  []edit
	find   []string
	class  string
}

type edit struct{ file, old, new string }

func readMutant(path string) (*mutant, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m := &mutant{name: strings.TrimSuffix(filepath.Base(path), ".txt")}
	var file string
	var old, text []string
	state := ""
	in := bufio.NewScanner(bytes.NewReader(b))
	for in.Scan() {
		line := in.Text()
		if m.defect == "" {
			m.defect = line
			continue
		}
		key, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "-----":
			state, text = "old", nil
		case line == "+++++" && state == "old":
			state, old, text = "new", text, nil
		case line == "=====" && state == "new":
			m.edits = append(m.edits, edit{file, strings.Join(old, "\n"), strings.Join(text, "\n")})
			state = ""
		case state != "":
			text = append(text, line)
		case key == "file":
			file = value
		case key == "find":
			m.find = strings.Fields(value)
		case key == "class":
			m.class = value
		}
	}
	tested := len(m.find) == 3 && m.find[0] == "test"
	walked := len(m.find) > 1 && m.find[0] == "campaign" && m.class != ""
	if len(m.edits) == 0 || !tested && !walked || state != "" {
		return nil, fmt.Errorf("%s: no edit, no find and class, or an edit that does not end", path)
	}
	return m, in.Err()
}

// readMutants returns all, sorted by their defects.
func readMutants(t *testing.T) (all []*mutant) {
	t.Helper()
	for _, path := range must(filepath.Glob("mutants/*.txt")) {
		m, err := readMutant(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	if len(all) == 0 {
		t.Fatal("no mutants")
	}
	slices.SortFunc(all, func(a, b *mutant) int { return cmp.Compare(a.defect, b.defect) })
	return all
}

// test are the arguments of go for the test that finds the mutant.
func (m *mutant) test() []string {
	return []string{"test", "-failfast", "-run", "^" + m.find[2] + "$", m.find[1]}
}

// row is the mutant in the table of docs/reliability.md.
func (m *mutant) row() string {
	by := "the campaign: " + m.class
	if m.find[0] == "test" {
		by = fmt.Sprintf("`%s` in %s", m.find[2], cmp.Or(strings.TrimPrefix(strings.TrimPrefix(m.find[1], "."), "/"), "package bale"))
	}
	return fmt.Sprintf("| %s | `%s` | %s |\n", strings.TrimSuffix(m.defect, "."), m.name, by)
}

// apply makes the edits in a copy of the repository, and returns what takes them back.
func (m *mutant) apply(dir string) (restore func() error, err error) {
	before := map[string][]byte{}
	restore = func() (err error) {
		for path, b := range before {
			err = errors.Join(err, os.WriteFile(path, b, 0o600))
		}
		return err
	}
	for _, e := range m.edits {
		path := filepath.Join(dir, filepath.FromSlash(e.file))
		b, err := os.ReadFile(path)
		if err != nil {
			return restore, err
		}
		if n := strings.Count(string(b), e.old); n != 1 {
			return restore, fmt.Errorf("%s: %d places for %q, there must be one: write the mutant anew", e.file, n, e.old)
		}
		if before[path] == nil {
			before[path] = b
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(b), e.old, e.new, 1)), 0o600); err != nil {
			return restore, err
		}
	}
	return restore, nil
}

// copyOf copies the files that git knows, or would add, to a folder.
func copyOf(t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("git ls-files: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		b, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed
		}
		to := filepath.Join(dir, name)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o700)
		}
		if err == nil {
			err = os.WriteFile(to, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestMutantsApply: each mutant still has a place in the code and a test that finds it, and
// docs/reliability.md lists them all.
func TestMutantsApply(t *testing.T) {
	root := must(rootOf())
	table := "| defect | mutant | found by |\n|---|---|---|\n"
	for _, m := range readMutants(t) {
		table += m.row()
		for _, e := range m.edits {
			b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(e.file)))
			if n := strings.Count(string(b), e.old); err != nil || n != 1 {
				t.Errorf("%s: %s has %d places for its edit (%v): write the mutant anew", m.name, e.file, n, err)
			}
		}
		if m.find[0] == "test" && !slices.ContainsFunc(must(filepath.Glob(filepath.Join(root, m.find[1], "*_test.go"))), func(path string) bool {
			return bytes.Contains(must(os.ReadFile(path)), []byte("func "+m.find[2]+"("))
		}) {
			t.Errorf("%s: there is no %s in %s", m.name, m.find[2], m.find[1])
		}
	}
	if doc := must(os.ReadFile(filepath.Join(root, "docs", "reliability.md"))); !bytes.Contains(doc, []byte("\n\n"+table+"\n")) {
		t.Errorf("docs/reliability.md must have this table:\n\n%s", table)
	}
}

// TestMutants puts known defects back, one at a time, into a copy of the repository, and shows that
// the campaign or a test finds each.
func TestMutants(t *testing.T) {
	wanted := os.Getenv(mutantsEnv)
	if wanted == "" {
		t.Skip(mutantsEnv + " is not set")
	}
	redisproc.ForTest(t)             // which skips without a server
	dir := copyOf(t, must(rootOf())) // one for all, so that little is built anew
	passes := map[string]bool{}      // tests that find mutants, without one
	for _, m := range readMutants(t) {
		if wanted != "1" && !strings.Contains(m.name, wanted) {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			if test := strings.Join(m.find[1:], " "); m.find[0] == "test" && !passes[test] {
				cmd := exec.CommandContext(t.Context(), "go", m.test()...)
				cmd.Dir = dir
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%s fails without the mutant: %v: %.6000s", test, err, out)
				}
				passes[test] = true
			}
			restore, err := m.apply(dir)
			defer func() {
				if err := restore(); err != nil {
					t.Fatal(err)
				}
			}()
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
			defer cancel()
			args := append([]string{"run", "./testkit/campaign", "--first"}, m.find[1:]...)
			if m.find[0] == "test" {
				args = m.test()
			}
			begun := time.Now()
			cmd := exec.CommandContext(ctx, "go", args...)
			cmd.Dir = dir
			cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("nothing found it in %v: %.3000s", time.Since(begun), out)
			}
			found := "VIOLATION " + m.class
			if m.find[0] == "test" {
				found = "--- FAIL: " + m.find[2]
			}
			at := bytes.Index(out, []byte(found))
			if at < 0 {
				at = bytes.Index(out, []byte("\nSIGSEGV: ")) // of C code: it ends the whole process
			}
			if at < 0 {
				t.Fatalf("it failed, and not with %q: %.6000s", found, out)
			}
			t.Logf("found after %v: %.500s", time.Since(begun).Round(time.Second), out[at:])
		})
	}
}
