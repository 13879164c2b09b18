package pagetest

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/balekv/bale/cmd/internal/page"
)

// Hostile is a name that would run if a page did not escape it.
const Hostile = `<script>pwned=1</script>"'><img src=x onerror=pwned=1>:*`

var update = flag.Bool("update", false, "write the golden files anew")

// Updating reports whether the golden files are written anew.
func Updating() bool { return *update }

// kit is what all pages have from the page kit: the styles, the scripts and their hashes.
var kit = regexp.MustCompile(`(?s)(<style>|<script>).*?(</style>|</script>)|(sha256-)[^']*`)

// Golden compares a report with a file. Of a page it compares the content, without the style and
// the script. A text has to fit a width in columns.
func Golden(t *testing.T, path string, columns int, report string) {
	t.Helper()
	if filepath.Ext(path) == ".html" {
		report = kit.ReplaceAllString(report, "$1$2$3")
	}
	if *update {
		if err := os.WriteFile(path, []byte(report), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), report); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
	if filepath.Ext(path) == ".txt" {
		fits(t, path, columns, report)
	}
}

// fits checks the lines of a text for a terminal.
func fits(t *testing.T, name string, columns int, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if n := utf8.RuneCountInString(line); n > columns {
			t.Errorf("%s: line of %d columns, more than %d: %s", name, n, columns, line)
		}
		if strings.TrimRight(line, " ") != line {
			t.Errorf("%s: line ends in spaces: %q", name, line)
		}
	}
}

// Written returns the text of a report, and checks its width.
func Written(t *testing.T, columns int, write func(page.Sheet)) string {
	t.Helper()
	var out strings.Builder
	write(page.NewSheet(&out, columns))
	fits(t, "the report", columns, out.String())
	t.Log("\n" + out.String())
	return out.String()
}

// Has checks that a text has these words in their order, on one line or several.
func Has(t *testing.T, text string, want ...string) {
	t.Helper()
	words := strings.Join(strings.Fields(text), " ")
	for _, w := range want {
		if !strings.Contains(words, strings.Join(strings.Fields(w), " ")) {
			t.Errorf("no %q in\n%s", w, text)
		}
	}
}

// Closed checks that a page has the script of the kit alone, loads nothing, and escapes what a
// reader cannot see.
func Closed(t *testing.T, html string) {
	t.Helper()
	if n := strings.Count(html, "<script"); n != 1 {
		t.Errorf("%d scripts, want the page's own alone", n)
	}
	if !strings.Contains(html, `content="default-src 'none'; img-src data:; style-src 'sha256-`) {
		t.Error("its policy lets others in")
	}
	if strings.Contains(html, "<img") {
		t.Error("a picture")
	}
	if outer := regexp.MustCompile(`(?i)(src|href|url|@import)\s*[=(]?\s*["']?\s*(https?:)?//`).FindString(html); outer != "" {
		t.Errorf("%q is from elsewhere", outer)
	}
	if strings.ContainsAny(html, "\x00\u202e\ufffd") {
		t.Error("something is not escaped")
	}
}
