package schematest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFrozen: a schema is written once. A change needs a new version, also with -update.
func TestFrozen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "some-v1.json")
	if err := frozen(path, "{}", false); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for _, write := range []bool{true, true, false} {
		if err := frozen(path, "{}", write); err != nil {
			t.Error(err)
		}
	}
	for _, write := range []bool{true, false} {
		if err := frozen(path, "[]", write); err == nil || !strings.Contains(err.Error(), "Count up the version") {
			t.Errorf("write %v: %v", write, err)
		}
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "{}" {
		t.Errorf("%q, %v", text, err)
	}
}
