package shop

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestGenerated generates everything again, in a copy, and compares. It takes protoc (Debian:
// protobuf-compiler) and the sources of the generators, which belong to the modules in use.
func TestGenerated(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the generators")
	}
	if _, err := exec.LookPath("protoc"); err != nil {
		if os.Getenv("BALE_REQUIRE_PROTOC") == "1" {
			t.Fatal(err)
		}
		t.Skip("there is no protoc")
	}
	module, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Dir(module)
	copied := t.TempDir() // easyjson writes a program beside what it reads, and names functions for the package's path
	folder := filepath.Join(copied, "internal/dataset/shop")
	if err := os.CopyFS(folder, os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fields.go", "flat/fields.go", "easyjson.go", "msgp.go", "shoppb/fields.proto", "shoppb/fields.pb.go", "shoppb/shop.pb.go"} {
		if err := os.Remove(filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(copied, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	work, err := os.ReadFile(filepath.Join(root, "go.work"))
	if err != nil {
		t.Fatal(err)
	}
	work = regexp.MustCompile(`([\t ])\.(/\S*)?\n`).ReplaceAll(work, []byte("${1}"+root+"${2}\n"))
	work = bytes.Replace(work, []byte("\t"+module+"\n"), []byte("\t"+copied+"\n"), 1)
	if err := os.WriteFile(filepath.Join(copied, "go.work"), work, 0o644); err != nil {
		t.Fatal(err)
	}
	generate := exec.CommandContext(t.Context(), "go", "generate", ".")
	generate.Dir = folder
	generate.Env = append(os.Environ(), "GOWORK="+filepath.Join(copied, "go.work"), "GOFLAGS=-buildvcs=false")
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	compared := 0
	if err := fs.WalkDir(os.DirFS("."), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		want, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		got, err := os.ReadFile(filepath.Join(folder, path))
		if err != nil {
			return err
		}
		compared++
		if withoutVersions(got) != withoutVersions(want) {
			t.Errorf("%s is not what is generated: go generate writes it", path)
		}
		return nil
	}); err != nil || compared < 10 {
		t.Errorf("%d files compared: %v", compared, err)
	}
}

// withoutVersions is a file without the lines that name the protoc it was made with, which is the
// machine's.
func withoutVersions(b []byte) string {
	var kept strings.Builder
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, "// \tprotoc") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}
