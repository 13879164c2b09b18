package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestPage: docs/dependencies.md is what the command writes.
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
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("docs/dependencies.md is another: go run ./internal/dependencies > docs/dependencies.md\n%s", &got)
	}
}

// TestNothingArchived: the command links no library that its authors have archived. They are known
// by hand; all have been a part of the lab or are often taken.
func TestNothingArchived(t *testing.T) {
	out, err := exec.Command("go", "list", "-C", "../../cmd", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./bale").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	linked := strings.Fields(string(out))
	if len(linked) < 30 {
		t.Fatalf("%d packages of modules", len(linked))
	}
	for _, module := range linked {
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
