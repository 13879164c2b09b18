package values

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	if _, err := Load(t.Context(), dir, nil, Limits{Values: 20, ValueSize: 1 << 20}); !errors.Is(err, ErrData) || !strings.Contains(err.Error(), "more than 10 MiB") {
		t.Errorf("%v", err)
	}
	if s, err := Load(t.Context(), dir, nil, Limits{Values: 9, ValueSize: 1 << 20}); err != nil || len(s.Values) != 9 || s.Total != 20 {
		t.Errorf("%v", err)
	}
	lines := strings.Repeat(strings.Repeat("x", 1<<20)+"\n", 11)
	if _, err := Load(t.Context(), "-", strings.NewReader(lines), Limits{Values: 20, ValueSize: 1 << 20}); !errors.Is(err, ErrData) {
		t.Errorf("%v", err)
	}
}

// TestFolder: an empty file has no value, and one above the limit is refused.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a", "")
	write("b", "1234")
	if s, err := Load(t.Context(), dir, nil, Limits{Values: 9, ValueSize: 4}); err != nil || s.Total != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	write("c", "12345")
	if _, err := Load(t.Context(), dir, nil, Limits{Values: 9, ValueSize: 4}); !errors.Is(err, ErrData) || !strings.Contains(err.Error(), "c has more than 4 B") {
		t.Error(err)
	}
}

// TestLoadEndsWithContext: stdin may have no end.
func TestLoadEndsWithContext(t *testing.T) {
	for _, line := range []string{"{}\n", "\n"} {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		endless := readerFunc(func(b []byte) (int, error) {
			switch n++; n {
			case 100:
				cancel()
			case 200:
				return 0, io.EOF
			}
			return copy(b, line), nil
		})
		if _, err := Load(ctx, "-", endless, Limits{Values: 10, ValueSize: 10}); !errors.Is(err, context.Canceled) || n > 100 {
			t.Errorf("%q: %v after %d reads", line, err, n)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }
