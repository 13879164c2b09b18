package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestProgressLine: there is no percentage before the first step. The estimate of the remaining
// time counts from the first step, so that a slow start does not distort it.
func TestProgressLine(t *testing.T) {
	began := time.Unix(1000, 0)
	p := progressLine{began: began}
	for _, test := range []struct {
		after       time.Duration
		done, total int
		want        string
	}{
		{0, 0, 100, "  0s  at work"},
		{12 * time.Second, 0, 100, " 12s  at work"},
		{20 * time.Second, 0, 0, " 20s  at work"},
		{30 * time.Second, 1, 100, "  1%  at work"},
		{31 * time.Second, 3, 100, "  3%  at work"},
		{36 * time.Second, 4, 100, "  4%, about 3m12s left  at work"},
		{228 * time.Second, 100, 100, "100%, about 0s left  at work"},
	} {
		if got := p.text(began.Add(test.after), test.done, test.total, "at work"); got != test.want {
			t.Errorf("%d of %d after %v: %q, want %q", test.done, test.total, test.after, got, test.want)
		}
	}
}

// TestNoTerminal: what is no terminal has no width, and gets no progress.
func TestNoTerminal(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var buffer bytes.Buffer
	if w := ReportWidth(&checked{Writer: f}); w != 0 {
		t.Errorf("a file is %d columns wide", w)
	}
	if update, _ := ShowProgress(&buffer); update != nil || ReportWidth(&buffer) != 0 {
		t.Error("a buffer is a terminal")
	}
}
