package rueidis

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestValkey: adapter/valkey is what valkey.sh writes of this package.
func TestValkey(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "sh", "valkey.sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	written, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(written) < 4 {
		t.Fatalf("%d files, %v", len(written), err)
	}
	kept, err := filepath.Glob("../valkey/*.go")
	if err != nil || len(kept) != len(written) {
		t.Errorf("%d files are kept of %d, %v", len(kept), len(written), err)
	}
	for _, path := range written {
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("../valkey", filepath.Base(path)))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is another, %v: run sh adapter/rueidis/valkey.sh", filepath.Base(path), err)
		}
	}
}
