package clitest

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/balekv/bale/cmd/internal/cli/pty"
)

// Terminals are the widths in columns that every report fits.
var Terminals = []int{60, 80, 120}

// FitsTerminals runs something at each of [Terminals], and checks the width of the lines that it
// writes. Lines of code, which are there to be copied, are as long as they are: those are indented
// by three spaces.
func FitsTerminals(t *testing.T, run func(stdout *os.File)) {
	t.Helper()
	for _, columns := range Terminals {
		screen, program := pty.Open(t, columns)
		seen := make(chan []byte)
		go func() {
			var b bytes.Buffer
			io.Copy(&b, screen) // ends in an error when nobody has the terminal open any more
			seen <- b.Bytes()
		}()
		run(program)
		program.Close()
		shown := strings.ReplaceAll(string(<-seen), "\r\n", "\n")
		t.Logf("%d columns:\n%s", columns, shown)
		if strings.TrimSpace(shown) == "" {
			t.Errorf("%d columns: nothing is shown", columns)
		}
		for line := range strings.Lines(shown) {
			line = strings.TrimSuffix(line, "\n")
			if n := text.StringWidth(line); n > columns && !strings.HasPrefix(line, "   ") {
				t.Errorf("%d columns: a line of %d: %s", columns, n, line)
			}
		}
	}
}
