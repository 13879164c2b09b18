package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// published is the day of a version in the page. A module proxy may tell of another day later.
var published = regexp.MustCompile(`(?m)^(\| [^|]+ \| v[^|]+ \| )\d{4}-\d{2}-\d{2} `)

// TestPage: docs/dependencies.md is what the command writes, but for days of publication.
func TestPage(t *testing.T) {
	if testing.Short() {
		t.Skip("fetches modules")
	}
	want, err := os.ReadFile("../../docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := write(&got, "../.."); err != nil {
		if os.Getenv("BALE_REQUIRE_REDIS") == "" {
			t.Skipf("no module proxy: %v", err)
		}
		t.Fatal(err)
	}
	undated := func(page []byte) []byte { return published.ReplaceAll(page, []byte("$1")) }
	if bytes.Equal(undated(want), want) {
		t.Error("the page has no days")
	}
	if !bytes.Equal(undated(got.Bytes()), undated(want)) {
		t.Errorf("docs/dependencies.md is another: go run ./internal/dependencies > docs/dependencies.md\n%s", &got)
	}
}

// TestLabStaysOut: what the lab alone compares is not linked into the command.
func TestLabStaysOut(t *testing.T) {
	for _, module := range linked(t) {
		for _, ofLab := range []string{"github.com/go-sql-driver/mysql", "github.com/jackc/", "github.com/mediocregopher/radix", "github.com/bytedance/sonic", "github.com/valyala/fasthttp"} {
			if strings.HasPrefix(module, ofLab) {
				t.Errorf("%s is linked, which is for balebench", module)
			}
		}
	}
}

// linked are the modules of the packages that the command links.
func linked(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-C", "../../cmd", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./bale").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	modules := strings.Fields(string(out))
	if len(modules) < 30 {
		t.Fatalf("%d packages of modules", len(modules))
	}
	return modules
}

// TestNothingArchived: the command links no library that its authors have archived. They are known
// by hand; all have been a part of the lab or are often taken.
func TestNothingArchived(t *testing.T) {
	for _, module := range linked(t) {
		for _, archived := range []string{"github.com/json-iterator/go", "github.com/pquerna/ffjson", "github.com/pkg/errors", "github.com/golang/protobuf", "github.com/modern-go/", "github.com/gogo/protobuf", "github.com/mitchellh/", "gopkg.in/yaml"} {
			if strings.HasPrefix(module, archived) {
				t.Errorf("%s is linked, which its authors have archived", module)
			}
		}
	}
}

// TestUnknownLicence: a module without a licence that is allowed is an error that names it.
func TestUnknownLicence(t *testing.T) {
	dir := t.TempDir()
	if _, err := licenceOf(dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Error(err)
	}
	if err := os.WriteFile(dir+"/LICENSE", []byte("All rights reserved."), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := licenceOf(dir); err == nil {
		t.Error(l)
	}
}
