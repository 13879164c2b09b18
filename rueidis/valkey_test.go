package rueidis

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestValkey: what valkey.sh writes is an adapter for valkey-go that compiles.
func TestValkey(t *testing.T) {
	if testing.Short() {
		t.Skip("fetches a module")
	}
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "sh", "valkey.sh", dir).CombinedOutput(); err != nil || !strings.Contains(string(out), dir) {
		t.Fatalf("%v\n%s", err, out)
	}
	core, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	module := "module example.com/valkey\n\ngo 1.26.0\n\nrequire github.com/valkey-io/valkey-go v1.0.79\n\nreplace github.com/balekv/bale => " + core + "\n"
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(module), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
		return cmd.CombinedOutput()
	}
	if out, err := run("mod", "tidy"); err != nil {
		if os.Getenv("BALE_REQUIRE_REDIS") == "" {
			t.Skipf("no module proxy: %v\n%s", err, out)
		}
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := run("vet", "."); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	written, err := os.ReadFile(filepath.Join(dir, "rueidis.go"))
	if err != nil || !strings.Contains(string(written), "valkey.Client") {
		t.Error(err)
	}
}
