package report

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// compareGolden compares a report with a file, and sees that it fits a terminal.
func compareGolden(t *testing.T, path string, got []byte) {
	t.Helper()
	compareGoldenText(t, path, got)
	if filepath.Ext(path) != ".txt" { // the others are not for terminals
		return
	}
	for line := range strings.Lines(string(got)) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > Width {
			t.Errorf("%s: line of %d columns, more than %d: %s", path, n, Width, line)
		}
	}
}

// compareGoldenText compares a report with a file.
func compareGoldenText(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
	if filepath.Ext(path) != ".txt" { // the others are not for terminals
		return
	}
	for line := range strings.Lines(string(got)) {
		if strings.TrimRight(line, " \n") != strings.TrimSuffix(line, "\n") {
			t.Errorf("%s: line ends in spaces: %q", path, line)
		}
	}
}

// hostile is a name that would run, if it were written as it is.
const hostile = `<script>pwned=1</script>"'><img src=x onerror=pwned=1>:*`

// written is what a report writes, and that it is not too wide.
func written(t *testing.T, width int, write func(io.Writer)) string {
	t.Helper()
	var out strings.Builder
	write(&out)
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
			t.Errorf("%d columns of %d: %s", n, width, line)
		}
	}
	t.Log("\n" + out.String())
	return out.String()
}

// has says what a text lacks, whose words may be on any line.
func has(t *testing.T, text string, want ...string) {
	t.Helper()
	words := strings.Join(strings.Fields(text), " ")
	for _, w := range want {
		if !strings.Contains(words, strings.Join(strings.Fields(w), " ")) {
			t.Errorf("no %q in\n%s", w, text)
		}
	}
}
