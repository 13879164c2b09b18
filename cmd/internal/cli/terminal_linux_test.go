package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// openTerminal makes a terminal with this number of columns. It returns both ends; a program writes
// to the second.
func openTerminal(t *testing.T, columns int) (screen, program *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { screen.Close() })
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	resize(t, program, columns)
	return screen, program
}

func resize(t *testing.T, terminal *os.File, columns int) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: uint16(columns)}); err != nil {
		t.Fatal(err)
	}
}

// TestTerminalWidth: a report is as wide as the terminal, within bounds.
func TestTerminalWidth(t *testing.T) {
	_, program := openTerminal(t, 80)
	for columns, want := range map[int]int{80: 80, 120: 120, 20: narrowest, 300: widest} {
		resize(t, program, columns)
		if got := ReportWidth(&checked{Writer: program}); got != want {
			t.Errorf("%d columns: %d, want %d", columns, got, want)
		}
	}
}

// TestProgressFits: the line of progress is never as wide as the terminal, also when that gets
// narrower.
func TestProgressFits(t *testing.T) {
	screen, program := openTerminal(t, 60)
	for _, columns := range []int{60, 30, 8} {
		update, stop := ShowProgress(program)
		resize(t, program, columns) // after it was begun
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
