package values

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKeptBytesAreBounded: sparse files take no room on a disk, and must not take all the memory. A
// sample counts for what it keeps alone.
func TestKeptBytesAreBounded(t *testing.T) {
	before := maxKept
	defer func() { maxKept = before }()
	maxKept = 10 << 20
	dir := t.TempDir()
	for i := range 20 {
		path := filepath.Join(dir, fmt.Sprint(i))
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Load(dir, nil, Limits{Values: 20, ValueSize: 1 << 20}); !errors.Is(err, ErrData) || !strings.Contains(err.Error(), "more than 10 MiB") {
		t.Errorf("%v", err)
	}
	if s, err := Load(dir, nil, Limits{Values: 9, ValueSize: 1 << 20}); err != nil || len(s.Values) != 9 || s.Total != 20 {
		t.Errorf("%v", err)
	}
	lines := strings.Repeat(strings.Repeat("x", 1<<20)+"\n", 11)
	if _, err := Load("-", strings.NewReader(lines), Limits{Values: 20, ValueSize: 1 << 20}); !errors.Is(err, ErrData) {
		t.Errorf("%v", err)
	}
}
