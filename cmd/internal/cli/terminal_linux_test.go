package cli

import (
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/balekv/bale/cmd/internal/cli/pty"
)

// TestTerminalWidth: a report is as wide as the terminal, within bounds.
func TestTerminalWidth(t *testing.T) {
	_, program := pty.Open(t, 80)
	for columns, want := range map[int]int{80: 80, 120: 120, 20: 40, 300: widest} {
		pty.Resize(t, program, columns)
		if got := (&Streams{Out: &checked{Writer: program}}).Sheet().Width; got != want {
			t.Errorf("%d columns: %d, want %d", columns, got, want)
		}
	}
}

// TestProgressFits: the line of progress is never as wide as the terminal, also when that gets
// narrower.
func TestProgressFits(t *testing.T) {
	screen, program := pty.Open(t, 60)
	for _, columns := range []int{60, 30, 8} {
		update, stop := ShowProgress(program)
		pty.Resize(t, program, columns) // after it was begun
		update(0, 10, strings.Repeat("é", 200))
		buffer := make([]byte, 4096)
		n, err := screen.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		line, ok := strings.CutPrefix(string(buffer[:n]), eraseLine)
		if !ok || utf8.RuneCountInString(line) != columns-1 || !strings.HasSuffix(line, "…") {
			t.Errorf("%d columns: %q", columns, buffer[:n])
		}
		stop()
		if n, err = screen.Read(buffer); err != nil || string(buffer[:n]) != eraseLine {
			t.Errorf("%d columns: %q is left, %v", columns, buffer[:n], err)
		}
	}
}

// TestNoteOverProgress: a note begins where the line of progress was, not behind it.
func TestNoteOverProgress(t *testing.T) {
	screen, program := pty.Open(t, 60)
	update, _ := ShowProgress(program)
	update(0, 10, "5285 values read")
	(&Streams{Err: program, Command: "bale train"}).Notef("pauses")
	program.Close()
	got, _ := io.ReadAll(screen) // which ends with an error: the other end is closed
	if want := "5285 values read" + eraseLine + "bale train: pauses\r\n"; !strings.HasSuffix(string(got), want) {
		t.Errorf("%q, want %q at the end", got, want)
	}
}
